//! Issues of our own: the status and the sentinel issue.

use domain::id::RepoName;
use http::Method;
use serde::{Deserialize, Serialize};

use super::client::{GitHub, part};
use super::graphql::PIN_ISSUE;
use super::pulls::{owner, repo_path};
use crate::http::CallError;

/// Issues of one label are read this far, 100 to a page.
const MOST_PAGES: usize = 10;

/// An issue.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Issue {
    /// Its number.
    pub number: u64,
    /// Its node id, for GraphQL.
    pub node_id: String,
    /// `open` or `closed`.
    pub state: String,
    /// Title.
    pub title: String,
    /// Text.
    pub body: Option<String>,
}

/// What to change about an issue; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct IssueChange {
    /// Title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// `open` or `closed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl GitHub {
    /// The open issues with this label: the probe before one is created.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn issues_labelled(&self, repo: &RepoName, label: &str) -> Result<Vec<Issue>, CallError> {
        let path = repo_path(repo, &format!("issues?state=open&labels={}&per_page=100", part(label)));
        self.read_all(owner(repo), path, MOST_PAGES, |page: Vec<Issue>| page).await
    }

    /// Creates an issue.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn create_issue(
        &self,
        repo: &RepoName,
        title: &str,
        body: &str,
        labels: &[&str],
    ) -> Result<Issue, CallError> {
        #[derive(Serialize)]
        struct New<'a> {
            title: &'a str,
            body: &'a str,
            labels: &'a [&'a str],
        }
        let path = repo_path(repo, "issues");
        self.write(owner(repo), Method::POST, path, Some(&New { title, body, labels })).await?.json()
    }

    /// Changes an issue.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn update_issue(&self, repo: &RepoName, number: u64, change: &IssueChange) -> Result<Issue, CallError> {
        let path = repo_path(repo, &format!("issues/{number}"));
        self.write(owner(repo), Method::PATCH, path, Some(change)).await?.json()
    }

    /// Pins an issue. REST cannot; a repository has room for three.
    ///
    /// # Errors
    /// See [`CallError`]; `Refused` when there is no room.
    pub async fn pin_issue(&self, repo: &RepoName, issue: &Issue) -> Result<(), CallError> {
        #[derive(Serialize)]
        struct Variables<'a> {
            issue: &'a str,
        }
        let variables = Variables { issue: &issue.node_id };
        self.mutate::<serde_json::Value>(owner(repo), PIN_ISSUE, variables).await.map(drop)
    }
}
