//! The rules of Suture: (policy, record, fact, now) → decision.
//!
//! This crate is pure and synchronous: no clock, network, environment, async or randomness; time and policy are
//! arguments. I/O is in `platform`, which commits and delivers what this crate decides.

#[macro_use]
mod named;

pub mod admission;
pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod bus;
pub mod command;
pub mod coordination;
pub mod decide;
pub mod diagnosis;
pub mod event;
pub mod github_contact;
pub mod id;
pub mod insights;
pub mod policy;
pub mod priority;
pub mod pull_request;
pub mod reconcile_request;
pub mod remedy;
pub mod run;
pub mod signals;
pub mod snapshot;
pub mod state;
pub mod text;
pub mod time;
pub mod transient;
pub mod transition;
pub mod webhook_silence;

#[cfg(test)]
mod tests;
