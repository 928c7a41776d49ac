//! Tests that need more than one module: the table, lives of pull requests told as scenarios, and properties. Unit tests
//! stand beside what they test.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test names what it is about, not everything it is not about")]

mod lives;
mod properties;
mod remedies;
mod showing;
mod table;
pub(crate) mod world;
