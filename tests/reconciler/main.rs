//! The reconciler in virtual time, against the simulated world: what it finds, what it claims, what it tells people, and what
//! it survives.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may stop, and say its figures")]

mod again;
mod bounds;
mod coordination;
mod crashes;
mod finding;
mod insight;
mod living;
mod mails;
mod missed;
mod outage;
mod overlap;
mod rules;
mod scale;
mod scenes;
#[expect(dead_code, reason = "the tests of triggers use the rest of it")]
mod stage;
mod waking;
mod watching;
