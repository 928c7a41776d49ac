//! Tests of more than one module: the transition table, scenarios, and properties. Unit tests are beside the code they
//! test.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test names what it is about, not everything it is not about")]

mod branch_update;
mod check_run;
mod first_seen;
pub(crate) mod fixture;
mod identity;
mod properties;
mod remediation;
mod scenarios;
mod state_table;
mod waiting;
