//! The world's behaviour, through its public surface only.

#![expect(clippy::unwrap_used, reason = "a test may stop")]

mod asking;
mod faults;
mod github;
mod graphql;
mod jenkins;
mod limits;
mod lives;
mod serving;
