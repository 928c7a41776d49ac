//! What time it is, and how to let it pass: the one thing the clients take both from, so that tests and the simulation can
//! run them in a time of their own. Nothing else about time is here; deadlines on calls are real, since they guard against
//! real silence.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;

/// A pause under way.
pub type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time as its user sees it pass.
pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Timestamp;

    fn sleep(&self, pause: Duration) -> Pause;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep(&self, pause: Duration) -> Pause {
        Box::pin(tokio::time::sleep(pause))
    }
}
