//! What people want done: commands, reconcile requests, and actions on runs. When one of these answers, what was asked for is
//! durable. Nothing is carried out here.

mod reconcile;
mod run_action;
mod submit;

pub use self::reconcile::SweepAsk;
pub use self::run_action::Verb;
pub use self::submit::{Ask, Asked};
