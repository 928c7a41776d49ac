//! The Car Bridge in the pretended world: every remedy, its repetition, its refusal; people; slots; the breaker.

#![expect(clippy::unwrap_used, reason = "a test may stop")]

mod batches;
mod crashes;
mod people;
mod remedies;
