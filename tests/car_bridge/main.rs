//! The Car Bridge in the pretended world: every remedy, its repetition, its refusal; people; slots; the breaker.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test may stop and speak")]

mod batch;
mod tasks;
mod crash_points;
mod user_commands;
mod rebuild;
mod remedies;
mod flows;
