//! The simulation itself: that it repeats itself exactly, that it notices what it is there to notice, that every fault by
//! itself is survived, that seeds which once failed do not fail again, and that a process may stop at any call.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may stop and speak")]

mod crash_points;
mod detects_bugs;
mod regressions;
mod replay;
mod seeds;
