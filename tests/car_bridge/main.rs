//! The Car Bridge against the fakes: every remedy, redelivery, rejection, user commands, slots and the breaker.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests may panic and print")]

mod batch;
mod codegenie_requests;
mod crash_points;
mod flows;
mod interrupted_remedies;
mod rebuild;
mod remedies;
mod tasks;
mod user_commands;
