//! The world's behaviour, through its public surface only.

mod asking;
mod faults;
mod github;
mod graphql;
mod jenkins;
mod limits;
mod lives;
mod serving;
