//! Executes messages from the command queue; the only function that writes to GitHub, Jenkins and the bots. `batch` handles the SQS
//! batch, `dispatch` sends each message to its handler, `hops` counts messages that lead to each other, `admission` decides whether a run may start, `run_executor` executes it with the
//! steps in `remedy`, `user_command` checks and answers users' commands, `task` does small idempotent writes. Decisions are made in the `domain` crate.

mod admission;
mod batch;
mod bot_http;
mod dispatch;
mod hops;
mod remedy;
mod run_executor;
mod task;
mod user_command;

pub use batch::{Message, MessageResult, handle, handle_messages, rank, returned};
pub use bot_http::{BotHttp, RETRIGGER_SECRET};
pub use dispatch::{CarBridge, ExternalClients, MessageOutcome, RetryableError};
pub use hops::HopCounter;
