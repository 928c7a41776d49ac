//! The webhook function: what is answered, what becomes of it, and what it does when too much comes or nothing works.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

mod answers;
mod binary;
mod counted;
mod ear;
mod examples;
mod lives;
mod mutated;
mod storms;
