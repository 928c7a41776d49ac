//! The simulation: it is deterministic, detects injected bugs, survives every single fault and a crash at any call, and
//! former failing seeds pass.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests may panic and print")]

mod crash_points;
mod detects_bugs;
mod regressions;
mod replay;
mod seeds;
