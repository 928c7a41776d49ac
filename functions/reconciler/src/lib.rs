//! Finds and repairs stuck pull requests. `event` parses what the schedule or the bus sends, `reconciler` starts a
//! sweep, and `sweep` lists its stages in their order; each stage has a file of its own. It claims remedies and never
//! executes one.

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
mod remediate;
mod run_recovery;
mod sweep;
mod trigger;
mod verify;
mod visit;

pub use digest::MOST_SINGLE;
pub use event::{Unclear, wish_of};
pub use handler::{Moment, NotSwept, handle, line};
pub use idle::is_idle;
pub use reconciler::{NoSweep, Sweep, Swept};
pub use trigger::{Scope, Wish};
