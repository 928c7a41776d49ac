//! Executes commands from the queue; the only function that changes the outside world. `batch` takes the queue's messages,
//! `dispatch` tells what each one is, `run_executor` takes a run from its message to its result with the steps of `remedy`,
//! `user_command` answers people, `task` does small idempotent writes. What is worth doing was decided before.

mod batch;
mod dispatch;
mod remedy;
mod run_executor;
mod task;
mod user_command;

pub use batch::{handle, handle_one};
pub use dispatch::{Again, Bridge, Handled, World};
