//! The fakes' behaviour, through the public API only.

#![expect(clippy::unwrap_used, reason = "a test may stop")]

mod client;
mod faults;
mod github;
mod graphql;
mod jenkins;
mod lifecycle;
mod limits;
mod serve;
