//! `cargo run` as people run it: a process of its own, on free ports and in fresh directories.

#![expect(clippy::expect_used, clippy::panic, reason = "a test may stop")]

mod child_process;
mod crash_recovery;
mod dashboard;
mod demo;
mod doctor;
mod real_github;
mod startup_errors;
