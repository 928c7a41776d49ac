//! What we say on a pull request: comments with a hidden marker, by which they are found again; reactions; labels.

use domain::id::{PrId, RepoName};
use http::Method;
use jiff::Timestamp;
use octocrab::Page;
use serde::{Deserialize, Serialize};

use super::app::empty_if_null;
use super::client::{GitHub, next_page, part};
use super::graphql::ADD_REACTION;
use super::pulls::{issue_path, owner};
use crate::http::CallError;

/// Comments are read this far, 100 to a page: beyond that a marker counts as absent.
const MOST_PAGES: usize = 30;

/// A comment on a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Comment {
    pub id: u64,
    /// Its node id, for GraphQL.
    pub node_id: String,
    /// What it says, markers included.
    #[serde(default, deserialize_with = "empty_if_null")]
    pub body: String,
}

/// How we answer a command without words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reaction {
    Eyes,
    Rocket,
    Confused,
}

#[derive(Serialize)]
struct Text<'a> {
    body: &'a str,
}

impl GitHub {
    /// Writes a comment. The body should carry a marker that [`Self::find_comment`] can ask for before a repeat.
    pub async fn comment(&self, pr: &PrId, body: &str) -> Result<(), CallError> {
        let path = issue_path(pr, "/comments");
        self.write(owner(&pr.repo), Method::POST, &path, Some(&Text { body })).await.map(drop)
    }

    /// The first comment that carries this marker, among those changed since then.
    pub async fn find_comment(
        &self,
        pr: &PrId,
        marker: &str,
        since: Option<Timestamp>,
    ) -> Result<Option<Comment>, CallError> {
        let since = since.map(|at| format!("&since={}", part(&format!("{at:.0}")))).unwrap_or_default();
        let mut next = Some(issue_path(pr, &format!("/comments?per_page=100{since}")));
        for _ in 0..MOST_PAGES {
            let Some(path) = next.take() else { break };
            let page: Page<Comment> = self.read(owner(&pr.repo), &path).await?;
            next = next_page(&page);
            if let Some(found) = page.into_iter().find(|comment| comment.body.contains(marker)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Reacts to a comment or a review, named by its node id. Reacting twice is reacting once.
    pub async fn react(&self, repo: &RepoName, subject: &str, reaction: Reaction) -> Result<(), CallError> {
        #[derive(Serialize)]
        struct Variables<'a> {
            subject: &'a str,
            content: &'static str,
        }
        let content = match reaction {
            Reaction::Eyes => "EYES",
            Reaction::Rocket => "ROCKET",
            Reaction::Confused => "CONFUSED",
        };
        let variables = Variables { subject, content };
        self.mutate::<serde_json::Value>(owner(repo), ADD_REACTION, variables).await.map(drop)
    }

    /// Adds labels.
    pub async fn add_labels(&self, pr: &PrId, labels: &[&str]) -> Result<(), CallError> {
        #[derive(Serialize)]
        struct Body<'a> {
            labels: &'a [&'a str],
        }
        let path = issue_path(pr, "/labels");
        self.write(owner(&pr.repo), Method::POST, &path, Some(&Body { labels })).await.map(drop)
    }

    /// Takes a label away. Whether it was there.
    pub async fn remove_label(&self, pr: &PrId, label: &str) -> Result<bool, CallError> {
        let path = issue_path(pr, &format!("/labels/{}", part(label)));
        match self.write(owner(&pr.repo), Method::DELETE, &path, None::<&()>).await {
            Ok(_) => Ok(true),
            Err(CallError::Gone { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
