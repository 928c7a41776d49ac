//! The ways out: what a committed decision asks to be sent. One verb, since a sender that knows what it sends would have to
//! decide.

use std::future::Future;

use domain::decide::Effect;
use domain::id::PrId;
use thiserror::Error;

/// It was not sent, or nobody knows. It stays in the table, and is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("could not be delivered: {0}")]
pub struct Undelivered(pub String);

/// Sends effects. What was sent may be sent again after a crash: receivers know it by its id.
pub trait Outlets: Send + Sync {
    /// Sends one.
    fn deliver(&self, pr: &PrId, effect: &Effect) -> impl Future<Output = Result<(), Undelivered>> + Send;
}
