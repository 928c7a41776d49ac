//! Comments with a hidden marker for later lookups, reactions and labels.

use domain::id::{PrId, RepoName};
use http::Method;
use jiff::Timestamp;
use octocrab::Page;
use serde::{Deserialize, Serialize};

use super::app::empty_if_null;
use super::client::{GitHub, encode_segment, next_page};
use super::graphql::ADD_REACTION;
use super::pulls::{issue_path, owner};
use crate::transport::ApiError;

/// Pages of 100 comments searched for a marker.
const MAX_PAGES: usize = 30;

/// A comment on a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PostedComment {
    pub id: u64,
    /// For GraphQL.
    pub node_id: String,
    /// Includes the markers.
    #[serde(default, deserialize_with = "empty_if_null")]
    pub body: String,
}

/// The reaction to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reaction {
    Eyes,
    Rocket,
    Confused,
}

#[derive(Serialize)]
struct CommentBody<'a> {
    body: &'a str,
}

impl GitHub {
    /// Posts a comment. The body should contain a marker, so that [`Self::find_comment`] finds it before a retry.
    pub async fn comment(&self, pr: &PrId, body: &str) -> Result<(), ApiError> {
        let path = issue_path(pr, "/comments");
        self.write(owner(&pr.repo), Method::POST, &path, Some(&CommentBody { body })).await.map(drop)
    }

    /// The first comment with this marker, among those updated since `since`.
    pub async fn find_comment(
        &self,
        pr: &PrId,
        marker: &str,
        since: Option<Timestamp>,
    ) -> Result<Option<PostedComment>, ApiError> {
        let since = since.map(|at| format!("&since={}", encode_segment(&format!("{at:.0}")))).unwrap_or_default();
        let mut next = Some(issue_path(pr, &format!("/comments?per_page=100{since}")));
        for _ in 0..MAX_PAGES {
            let Some(path) = next.take() else { break };
            let page: Page<PostedComment> = self.read(owner(&pr.repo), &path).await?;
            next = next_page(&page);
            if let Some(found) = page.into_iter().find(|comment| comment.body.contains(marker)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Reacts to the comment or review with this node id. Idempotent.
    pub async fn react(&self, repo: &RepoName, subject: &str, reaction: Reaction) -> Result<(), ApiError> {
        #[derive(Serialize)]
        struct ReactionVariables<'a> {
            subject: &'a str,
            content: &'static str,
        }
        let content = match reaction {
            Reaction::Eyes => "EYES",
            Reaction::Rocket => "ROCKET",
            Reaction::Confused => "CONFUSED",
        };
        let variables = ReactionVariables { subject, content };
        self.mutate::<serde_json::Value>(owner(repo), ADD_REACTION, variables).await.map(drop)
    }

    pub async fn add_labels(&self, pr: &PrId, labels: &[&str]) -> Result<(), ApiError> {
        #[derive(Serialize)]
        struct LabelsBody<'a> {
            labels: &'a [&'a str],
        }
        let path = issue_path(pr, "/labels");
        self.write(owner(&pr.repo), Method::POST, &path, Some(&LabelsBody { labels })).await.map(drop)
    }

    /// Removes a label. Returns whether the pull request had it.
    pub async fn remove_label(&self, pr: &PrId, label: &str) -> Result<bool, ApiError> {
        let path = issue_path(pr, &format!("/labels/{}", encode_segment(label)));
        match self.write(owner(&pr.repo), Method::DELETE, &path, None::<&()>).await {
            Ok(_) => Ok(true),
            Err(ApiError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
