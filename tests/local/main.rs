//! `cargo run` as people run it: a process of its own, on free ports and in fresh directories.

#![expect(clippy::expect_used, clippy::panic, reason = "a test may stop")]

mod demo;
mod doctor;
mod killed;
mod live;
mod page;
mod process;
mod refusals;
