//! Issues: the status and post-merge health issues that Suture owns, and those of the backlog.

use domain::id::{PrId, RepoName};
use http::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::client::{GitHub, body, encode_segment};
use super::graphql::PIN_ISSUE;
use super::pulls::{issue_path, owner, repo_path};
use crate::transport::ApiError;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "RawIssue")]
pub struct GitHubIssue {
    pub number: u64,
    /// For GraphQL.
    pub node_id: String,
    /// `open` or `closed`.
    pub state: String,
    pub title: String,
    pub body: String,
    pub labels: Vec<String>,
    /// Whether the issue has an assignee.
    pub assigned: bool,
    pub created_at: Option<Timestamp>,
    /// GitHub lists pull requests among the issues.
    pub is_pull: bool,
}

impl GitHubIssue {
    pub fn is_open(&self) -> bool {
        self.state == "open"
    }
}

#[derive(Deserialize)]
struct RawIssue {
    number: u64,
    node_id: String,
    state: String,
    title: String,
    body: Option<String>,
    #[serde(default)]
    labels: Vec<RawLabel>,
    #[serde(default)]
    assignees: Option<Vec<serde_json::Value>>,
    #[serde(default)]
    created_at: Option<Timestamp>,
    #[serde(default)]
    pull_request: Option<serde_json::Value>,
}

/// GitHub sends a name or an object.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawLabel {
    Name(String),
    Object { name: Option<String> },
}

impl From<RawIssue> for GitHubIssue {
    fn from(raw: RawIssue) -> Self {
        let name = |label: RawLabel| match label {
            RawLabel::Name(name) => Some(name),
            RawLabel::Object { name } => name,
        };
        Self {
            number: raw.number,
            node_id: raw.node_id,
            state: raw.state,
            title: raw.title,
            body: raw.body.unwrap_or_default(),
            labels: raw.labels.into_iter().filter_map(name).collect(),
            assigned: raw.assignees.is_some_and(|assignees| !assignees.is_empty()),
            created_at: raw.created_at,
            is_pull: raw.pull_request.is_some(),
        }
    }
}

/// A change of an issue; `None` leaves a field unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct IssueChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// `open` or `closed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// `completed` or `not_planned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<String>,
}

impl GitHub {
    pub async fn issue(&self, repo: &RepoName, number: u64) -> Result<GitHubIssue, ApiError> {
        self.read(owner(repo), &issue_path(&PrId::new(repo.clone(), number), "")).await
    }

    /// The issues with this label, newest first, without pull requests. With `closed_too` it is the probe before creating an issue.
    pub async fn issues_labelled(
        &self,
        repo: &RepoName,
        label: &str,
        closed_too: bool,
    ) -> Result<Vec<GitHubIssue>, ApiError> {
        let state = if closed_too { "all" } else { "open" };
        let path = repo_path(repo, &format!("issues?state={state}&labels={}&per_page=100", encode_segment(label)));
        let mut issues: Vec<GitHubIssue> = self.read_all(owner(repo), &path).await?;
        issues.retain(|issue| !issue.is_pull);
        Ok(issues)
    }

    pub async fn create_issue(
        &self,
        repo: &RepoName,
        title: &str,
        text: &str,
        labels: &[&str],
    ) -> Result<GitHubIssue, ApiError> {
        #[derive(Serialize)]
        struct NewIssue<'a> {
            title: &'a str,
            body: &'a str,
            labels: &'a [&'a str],
        }
        let path = repo_path(repo, "issues");
        let new = NewIssue { title, body: text, labels };
        body(self.write(owner(repo), Method::POST, &path, Some(&new)).await?).await
    }

    pub async fn update_issue(
        &self,
        repo: &RepoName,
        number: u64,
        change: &IssueChange,
    ) -> Result<GitHubIssue, ApiError> {
        let path = repo_path(repo, &format!("issues/{number}"));
        body(self.write(owner(repo), Method::PATCH, &path, Some(change)).await?).await
    }

    /// Pins an issue, with GraphQL because REST cannot. A repository can have three pinned issues.
    pub async fn pin_issue(&self, repo: &RepoName, issue: &GitHubIssue) -> Result<(), ApiError> {
        #[derive(Serialize)]
        struct PinVariables<'a> {
            issue: &'a str,
        }
        let variables = PinVariables { issue: &issue.node_id };
        self.mutate::<serde_json::Value>(owner(repo), PIN_ISSUE, variables).await.map(drop)
    }
}
