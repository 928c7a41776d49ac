//! The GitHub and the Jenkins client: what they send is held against what GitHub publishes, how they behave against the
//! simulated world, and what the world does not do against answers made up here.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "test support may stop when its own setting is wrong")]

mod aws_time_limits;
mod conform;
mod github;
mod jenkins;
mod sending;
mod snapshots;
mod stage;
