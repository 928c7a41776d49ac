//! Reads and closes pull requests, and merges the base into their heads.

use domain::id::{PrId, RepoName, Sha};
use http::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::auth::Identity;
use super::client::GitHub;
use crate::transport::ApiError;

/// A pull request from the REST API.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "RawPullRequest")]
pub struct RestPullRequest {
    /// For GraphQL.
    pub node_id: String,
    pub open: bool,
    pub merged: bool,
    pub labels: Vec<String>,
    /// When it was closed or merged.
    pub closed_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct RawPullRequest {
    node_id: String,
    state: String,
    #[serde(default)]
    labels: Vec<RawPullLabel>,
    closed_at: Option<Timestamp>,
    merged_at: Option<Timestamp>,
}

#[derive(Deserialize)]
pub(super) struct RawUser {
    pub(super) login: String,
}

#[derive(Deserialize)]
struct RawPullLabel {
    name: String,
}

impl From<RawPullRequest> for RestPullRequest {
    fn from(raw: RawPullRequest) -> Self {
        Self {
            node_id: raw.node_id,
            open: raw.state == "open",
            merged: raw.merged_at.is_some(),
            labels: raw.labels.into_iter().map(|label| label.name).collect(),
            closed_at: raw.closed_at,
        }
    }
}

/// The result of a request to merge the base into the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchUpdate {
    /// GitHub will push the merge.
    Accepted,
    /// The head is up to date.
    NothingToMerge,
    /// Merge conflict.
    Conflict,
    /// The head is not the expected one.
    HeadMoved,
}

impl GitHub {
    pub async fn pull(&self, pr: &PrId) -> Result<RestPullRequest, ApiError> {
        self.read(owner(&pr.repo), &pull_path(pr, "")).await
    }

    /// Closes a pull request; no effect on a closed one.
    pub async fn close(&self, pr: &PrId) -> Result<(), ApiError> {
        #[derive(Serialize)]
        struct Body {
            state: &'static str,
        }
        let body = Body { state: "closed" };
        self.write(owner(&pr.repo), Method::PATCH, &pull_path(pr, ""), Some(&body)).await.map(drop)
    }

    /// Merges the base into the head, if the head is the expected one.
    pub async fn update_branch(&self, pr: &PrId, expected_head: &Sha) -> Result<BranchUpdate, ApiError> {
        #[derive(Serialize)]
        struct Body<'a> {
            expected_head_sha: &'a str,
        }
        let body = Body { expected_head_sha: expected_head.as_str() };
        let result = self.write(owner(&pr.repo), Method::PUT, &pull_path(pr, "/update-branch"), Some(&body)).await;
        match result {
            Ok(_) => Ok(BranchUpdate::Accepted),
            Err(error) if is_422(&error, &["head sha", "head_sha", "head ref"]) => Ok(BranchUpdate::HeadMoved),
            Err(error) if is_422(&error, &["no new commits", "not behind", "up to date", "up-to-date"]) => {
                Ok(BranchUpdate::NothingToMerge)
            }
            Err(error) if is_422(&error, &["conflict"]) => Ok(BranchUpdate::Conflict),
            Err(ApiError::Conflict { .. }) => Ok(BranchUpdate::Conflict),
            Err(error) => Err(error),
        }
    }
}

/// GitHub's 422 responses differ only in their messages.
fn is_422(error: &ApiError, words: &[&str]) -> bool {
    let ApiError::Refused { status: 422, message } = error else { return false };
    let message = message.to_ascii_lowercase();
    words.iter().any(|word| message.contains(word))
}

pub(super) fn owner(repo: &RepoName) -> Identity<'_> {
    Identity::Installation(repo.owner())
}

pub(super) fn repo_path(repo: &RepoName, rest: &str) -> String {
    format!("/repos/{repo}/{rest}")
}

fn pull_path(pr: &PrId, rest: &str) -> String {
    repo_path(&pr.repo, &format!("pulls/{}{rest}", pr.number))
}

pub(super) fn issue_path(pr: &PrId, rest: &str) -> String {
    repo_path(&pr.repo, &format!("issues/{}{rest}", pr.number))
}
