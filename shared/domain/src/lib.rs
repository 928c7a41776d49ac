//! Suture's pure core: (record, fact, now) → decision.
//!
//! Nothing in this crate knows a clock, a network, an environment or randomness, and nothing in it waits: time and policy
//! are arguments. Whatever has to wait, read or send lives in the platform; what this crate decides, the platform does.

#[macro_use]
mod named;

pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod bus;
pub mod command;
pub mod comment;
pub mod coordination;
pub mod decide;
pub mod diagnosis;
pub mod event;
pub mod id;
pub mod insight;
pub mod policy;
pub mod priority;
pub mod pull_request;
pub mod remedy;
pub mod request;
pub mod run;
pub mod signals;
pub mod snapshot;
pub mod state;
pub mod time;
pub mod transient;
pub mod transition;

#[cfg(test)]
mod tests;
