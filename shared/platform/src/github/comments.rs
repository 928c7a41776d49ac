//! What we say on a pull request: comments with a hidden marker, by which they are found again; reactions; labels.

use domain::id::{PrId, RepoName};
use http::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::client::{GitHub, part};
use super::graphql::ADD_REACTION;
use super::pulls::{Label, User, issue_path, owner, repo_path};
use crate::http::CallError;

/// Comments are read this far, 100 to a page: beyond that a marker counts as absent.
const MOST_PAGES: usize = 30;

/// A comment on a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct Comment {
    /// Its id.
    pub id: u64,
    /// Its node id, for GraphQL.
    pub node_id: String,
    /// Who wrote it.
    pub author: String,
    /// What it says, markers included.
    pub body: String,
    /// When it was written.
    pub created_at: Timestamp,
}

#[derive(Deserialize)]
struct Raw {
    id: u64,
    node_id: String,
    user: Option<User>,
    body: Option<String>,
    created_at: Timestamp,
}

impl From<Raw> for Comment {
    fn from(raw: Raw) -> Self {
        Self {
            id: raw.id,
            node_id: raw.node_id,
            author: raw.user.map(|user| user.login).unwrap_or_default(),
            body: raw.body.unwrap_or_default(),
            created_at: raw.created_at,
        }
    }
}

/// How we answer a command without words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reaction {
    /// 👀: seen.
    Eyes,
    /// 🚀: done.
    Rocket,
    /// 😕: refused.
    Confused,
}

#[derive(Serialize)]
struct Text<'a> {
    body: &'a str,
}

impl GitHub {
    /// Writes a comment. The body should carry a marker that [`Self::find_comment`] can ask for before a repeat.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn comment(&self, pr: &PrId, body: &str) -> Result<Comment, CallError> {
        let path = issue_path(pr, "/comments");
        self.write(owner(&pr.repo), Method::POST, path, Some(&Text { body })).await?.json()
    }

    /// The first comment that carries this marker, among those changed since then.
    ///
    /// # Errors
    /// See [`CallError`].
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
            let answer = self.read(owner(&pr.repo), path).await?;
            let comments: Vec<Comment> = answer.json()?;
            if let Some(found) = comments.into_iter().find(|comment| comment.body.contains(marker)) {
                return Ok(Some(found));
            }
            next = answer.next_page();
        }
        Ok(None)
    }

    /// Replaces what a comment says.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn edit_comment(&self, repo: &RepoName, comment: u64, body: &str) -> Result<Comment, CallError> {
        let path = repo_path(repo, &format!("issues/comments/{comment}"));
        self.write(owner(repo), Method::PATCH, path, Some(&Text { body })).await?.json()
    }

    /// Reacts to a comment or a review, named by its node id. Reacting twice is reacting once.
    ///
    /// # Errors
    /// See [`CallError`]; `Gone` if it was deleted.
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

    /// Reacts to a comment, named by its number. Reacting twice is reacting once.
    ///
    /// # Errors
    /// See [`CallError`]; `Gone` if it was deleted.
    pub async fn react_to_comment(&self, repo: &RepoName, comment: u64, reaction: Reaction) -> Result<(), CallError> {
        #[derive(Serialize)]
        struct Body {
            content: Reaction,
        }
        let path = repo_path(repo, &format!("issues/comments/{comment}/reactions"));
        self.write(owner(repo), Method::POST, path, Some(&Body { content: reaction })).await.map(drop)
    }

    /// The labels of a pull request.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn labels(&self, pr: &PrId) -> Result<Vec<String>, CallError> {
        let answer = self.read(owner(&pr.repo), issue_path(pr, "/labels?per_page=100")).await?;
        Ok(names(answer.json()?))
    }

    /// Adds labels and answers all there are then.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn add_labels(&self, pr: &PrId, labels: &[&str]) -> Result<Vec<String>, CallError> {
        #[derive(Serialize)]
        struct Body<'a> {
            labels: &'a [&'a str],
        }
        let path = issue_path(pr, "/labels");
        let answer = self.write(owner(&pr.repo), Method::POST, path, Some(&Body { labels })).await?;
        Ok(names(answer.json()?))
    }

    /// Takes a label away. Whether it was there.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn remove_label(&self, pr: &PrId, label: &str) -> Result<bool, CallError> {
        let path = issue_path(pr, &format!("/labels/{}", part(label)));
        match self.write(owner(&pr.repo), Method::DELETE, path, None::<&()>).await {
            Ok(_) => Ok(true),
            Err(CallError::Gone { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn names(labels: Vec<Label>) -> Vec<String> {
    labels.into_iter().map(|label| label.name).collect()
}
