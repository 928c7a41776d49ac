//! Finds and repairs stuck pull requests. `event` tells what the schedule or the bus asks for, `sweep` lists the stages of one
//! sweep in their order; each stage has a file of its own. It claims remedies and never carries one out.

mod build_log;
mod coordination;
mod digest;
mod event;
mod handler;
mod history;
mod idle;
mod inventory;
mod jenkins_queue;
mod limits;
pub mod observe_report;
mod on_demand;
mod remediate;
mod run_recovery;
mod sweep;
mod trigger;
mod verify;

pub use digest::MOST_SINGLE;
pub use event::{Unclear, wish_of};
pub use handler::{Moment, NotSwept, handle, line};
pub use idle::is_idle;
pub use sweep::{NoSweep, Sweep, Swept};
pub use trigger::{Scope, Wish};
