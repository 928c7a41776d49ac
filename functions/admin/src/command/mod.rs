//! Commands, reconcile requests, and actions on runs. Each is durable before it is answered; the Car Bridge and the
//! reconciler execute them.

mod reconcile;
mod run_action;
mod submit;

pub use self::reconcile::SweepRequest;
pub use self::run_action::RunAction;
pub use self::submit::{CommandSubmission, SubmittedCommand};
