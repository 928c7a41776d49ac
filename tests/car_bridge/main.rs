//! The Car Bridge in the pretended fakes: every remedy, its repetition, its refusal; people; slots; the breaker.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test may stop and speak")]

mod batch;
mod crash_points;
mod flows;
mod rebuild;
mod remedies;
mod tasks;
mod user_commands;
