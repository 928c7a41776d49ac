//! Tests that need more than one module: the table, lives of pull requests told as scenarios, and properties. Unit tests
//! stand beside what they test.

mod lives;
mod properties;
mod remedies;
mod table;
pub(crate) mod world;
