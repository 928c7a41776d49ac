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
mod pulls;
mod rate_limit;
mod repository;
mod snapshots;

pub use app::{AppInstallation, AppWebhook, CredentialCheck, FailedDelivery, GitHubApp};
pub use auth::{Credentials, InvalidPrivateKey};
pub use checks::{CheckRun, CheckRunState, ExistingCheckRun, WorkflowRun, pr_of_check_run};
pub use client::{GitHub, GitHubSettings};
pub use comments::{PostedComment, Reaction};
pub use graphql::comparisons;
pub use inventory::OpenPullRequest;
pub use issues::{GitHubIssue, IssueChange};
pub use pulls::{BranchUpdate, RestPullRequest};
pub use rate_limit::{RateLimit, RateLimits};
pub use repository::BaseRequirements;
pub use snapshots::SnapshotError;
