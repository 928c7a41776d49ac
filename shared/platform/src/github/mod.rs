//! The GitHub client: authentication, rate limits and retries, typed calls, and the verification query, which produces the domain's
//! snapshots. The `domain` crate decides what follows.

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

pub use app::{
    AppInstallation, AppWebhook, CredentialCheck, DeliveryContent, FailedDeliveries, FailedDelivery, GitHubApp,
};
pub use auth::{Credentials, InvalidPrivateKey};
pub use checks::{CheckRun, CheckRunState, ExistingCheckRun, WorkflowRun, pr_of_check_run};
pub use client::{GitHub, GitHubSettings};
pub use comments::{PostedComment, Reaction};
pub use graphql::comparisons;
pub use inventory::ListedPullRequest;
pub use issues::{GitHubIssue, IssueChange};
pub use pulls::{BranchUpdate, RestPullRequest};
pub use rate_limit::{RateLimit, RateLimits};
pub use repository::BaseRequirements;
pub use snapshots::SnapshotError;
