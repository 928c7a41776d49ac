//! `cargo run` as people run it: a process of its own, on free ports and in fresh directories.

#![expect(clippy::expect_used, clippy::panic, reason = "a test may stop")]

mod demo;
mod doctor;
mod crash_recovery;
mod real_github;
mod dashboard;
mod child_process;
mod startup_errors;
