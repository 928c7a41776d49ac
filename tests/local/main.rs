//! `cargo run` as users run it: a separate process, on free ports and in new directories.

#![expect(clippy::expect_used, clippy::panic, reason = "a test may stop")]

mod child_process;
mod crash_recovery;
mod dashboard;
mod demo;
mod doctor;
mod real_github;
mod startup_errors;
