//! Everything that waits. The domain decides; here its decisions are committed and what they ask for is done: the store,
//! the engine loop, the ways in and the ways out. Nothing here decides what becomes of a pull request.

pub mod aws;
pub mod breaker;
pub mod bridge;
pub mod clock;
pub mod coordination;
pub mod desk;
pub mod engine;
pub mod gateway;
pub mod github;
pub mod guards;
pub mod http;
pub mod idempotency;
pub mod intake;
pub mod jenkins;
mod kept;
pub mod keys;
pub mod lookup;
pub mod outlets;
pub mod reports;
pub mod repos;
pub mod requests;
pub mod rows;
pub mod secrets;
pub mod store;
pub mod succession;
pub mod sweep;
pub mod telemetry;
pub mod wiring;
