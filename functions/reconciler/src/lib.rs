//! Finds and repairs stuck pull requests. `event` parses the payload of the schedule or the event bus, `reconciler`
//! starts a sweep, and `sweep` lists the stages in the order they run; each stage has its own file. The reconciler
//! claims remedies; the Car Bridge executes them.

mod build_log;
mod context;
mod coordination;
mod digest;
mod due;
mod event;
mod execution;
mod handler;
mod history;
mod idle;
mod inventory;
mod jenkins_queue;
mod limits;
pub mod observe_report;
mod on_demand;
mod outbox;
mod reconciler;
mod redelivery;
mod remediate;
mod run_recovery;
mod sweep;
mod trigger;
mod verify;
mod visit;

pub use digest::MAX_SINGLE_MAILS;
pub use event::{InvalidEvent, parse_event};
pub use handler::{Invocation, ReconcileError, handle, line};
pub use idle::is_idle;
pub use reconciler::{Reconciler, SweepError, SweepOutcome};
pub use trigger::{ReconcileScope, SweepTrigger};
