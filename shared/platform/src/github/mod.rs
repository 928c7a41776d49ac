//! GitHub. The client: who we are, how fast we may go, what may be repeated; typed calls for what Suture reads and writes;
//! and the verification query, which turns GitHub's answer into the domain's snapshot. What follows from any of it is
//! decided elsewhere.

pub mod mapping;

mod app;
mod auth;
mod checks;
mod client;
mod comments;
mod graphql;
mod inventory;
mod issues;
mod limits;
mod pulls;
mod repository;
mod snapshots;

pub use app::{App, FailedDelivery, Health, Hook, Installation};
pub use auth::{BadKey, Credentials};
pub use checks::{CheckRun, CheckRunSeen, CheckState, WorkflowRun, shown_on};
pub use client::{GitHub, Settings};
pub use comments::{Comment, Reaction};
pub use graphql::comparisons;
pub use inventory::Listed;
pub use issues::{Issue, IssueChange};
pub use limits::{Rate, Rates};
pub use pulls::{BranchUpdate, Pull};
pub use repository::Required;
pub use snapshots::Unread;
