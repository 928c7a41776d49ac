//! Everything that waits. The domain decides; here its decisions are committed and what they ask for is done: the store,
//! the engine loop, and the ways out. Nothing here decides what becomes of a pull request.

pub mod breaker;
pub mod engine;
pub mod guards;
pub mod idempotency;
pub mod lookup;
pub mod outlets;
pub mod rows;
pub mod store;
