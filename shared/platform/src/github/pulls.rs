//! Pull requests: reading one, finding those of a branch, opening, closing, reopening, and bringing a branch up to date.

use domain::id::{PrId, RepoName, Sha};
use http::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::client::{As, GitHub, part};
use crate::http::CallError;

/// A pull request, as REST shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct Pull {
    /// Its number.
    pub number: u64,
    /// GitHub's node id, for GraphQL.
    pub node_id: String,
    /// Open, or closed in one of two ways.
    pub open: bool,
    /// Whether it was merged.
    pub merged: bool,
    /// Draft?
    pub draft: bool,
    /// Title.
    pub title: String,
    /// Text.
    pub body: String,
    /// Who opened it.
    pub author: String,
    /// Head branch.
    pub branch: String,
    /// Head commit, as GitHub spells it.
    pub head: String,
    /// The head's repository, `owner/name`; `None` if it was deleted.
    pub head_repo: Option<String>,
    /// Target branch.
    pub base_branch: String,
    /// Labels.
    pub labels: Vec<String>,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When it was closed or merged.
    pub closed_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Raw {
    number: u64,
    node_id: String,
    state: String,
    #[serde(default)]
    draft: Option<bool>,
    title: String,
    body: Option<String>,
    user: Option<User>,
    head: Branch,
    base: Branch,
    #[serde(default)]
    labels: Vec<Label>,
    created_at: Timestamp,
    closed_at: Option<Timestamp>,
    merged_at: Option<Timestamp>,
}

#[derive(Deserialize)]
pub(super) struct User {
    pub(super) login: String,
}

#[derive(Deserialize)]
pub(super) struct Label {
    pub(super) name: String,
}

#[derive(Deserialize)]
struct Branch {
    #[serde(rename = "ref")]
    name: String,
    sha: String,
    repo: Option<Repo>,
}

#[derive(Deserialize)]
struct Repo {
    full_name: String,
}

impl From<Raw> for Pull {
    fn from(raw: Raw) -> Self {
        Self {
            number: raw.number,
            node_id: raw.node_id,
            open: raw.state == "open",
            merged: raw.merged_at.is_some(),
            draft: raw.draft.unwrap_or(false),
            title: raw.title,
            body: raw.body.unwrap_or_default(),
            author: raw.user.map(|user| user.login).unwrap_or_default(),
            branch: raw.head.name,
            head: raw.head.sha.to_ascii_lowercase(),
            head_repo: raw.head.repo.map(|repo| repo.full_name),
            base_branch: raw.base.name,
            labels: raw.labels.into_iter().map(|label| label.name).collect(),
            created_at: raw.created_at,
            closed_at: raw.closed_at,
        }
    }
}

/// What became of the request to merge the base into the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchUpdate {
    /// GitHub will do it: a push follows.
    Accepted,
    /// The head already has everything.
    NothingToMerge,
    /// Base and head contradict each other.
    Conflict,
    /// The head is another one by now.
    HeadMoved,
}

/// What became of the request to reopen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reopening {
    /// It is open.
    Reopened(Box<Pull>),
    /// It cannot be: its head was deleted or overwritten, or another one for this branch is open.
    Impossible {
        /// What GitHub said.
        why: String,
    },
}

/// A pull request to open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewPull {
    /// Title.
    pub title: String,
    /// Head branch.
    pub head: String,
    /// Target branch.
    pub base: String,
    /// Text.
    pub body: String,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// It was opened.
    Created(Pull),
    /// One for this branch was open already: as good as created.
    Existed(Pull),
}

/// Which pull requests to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Open ones.
    Open,
    /// All.
    All,
}

impl GitHub {
    /// One pull request.
    ///
    /// # Errors
    /// See [`CallError`]; `Gone` if there is none.
    pub async fn pull(&self, pr: &PrId) -> Result<Pull, CallError> {
        self.read(owner(&pr.repo), pull_path(pr, "")).await?.json()
    }

    /// The pull requests whose head is this branch of the repository itself, newest first.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn pulls_of_branch(&self, repo: &RepoName, branch: &str, which: Which) -> Result<Vec<Pull>, CallError> {
        let state = match which {
            Which::Open => "open",
            Which::All => "all",
        };
        let head = part(&format!("{}:{branch}", repo.owner()));
        let path = repo_path(repo, &format!("pulls?state={state}&head={head}&per_page=100"));
        self.read(owner(repo), path).await?.json()
    }

    /// Opens a pull request; one that is open for this branch already counts.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn open_pull(&self, repo: &RepoName, new: &NewPull) -> Result<Opened, CallError> {
        let answer = self.write(owner(repo), Method::POST, repo_path(repo, "pulls"), Some(new)).await;
        let refused = match answer {
            Ok(answer) => return answer.json().map(Opened::Created),
            Err(refused) => refused,
        };
        if !is_422(&refused, &["already exists"]) {
            return Err(refused);
        }
        let open = self.pulls_of_branch(repo, &new.head, Which::Open).await?;
        let same_base = open.into_iter().find(|pull| pull.base_branch == new.base);
        same_base.map(Opened::Existed).ok_or(refused)
    }

    /// Closes a pull request. One that is closed stays closed.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn close(&self, pr: &PrId) -> Result<Pull, CallError> {
        self.set_state(pr, "closed").await
    }

    /// Opens a closed pull request again. Whoever asks should have compared its head branch first.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn reopen(&self, pr: &PrId) -> Result<Reopening, CallError> {
        match self.set_state(pr, "open").await {
            Ok(pull) => Ok(Reopening::Reopened(Box::new(pull))),
            Err(CallError::Refused { status: 422, message }) => Ok(Reopening::Impossible { why: message }),
            Err(error) => Err(error),
        }
    }

    async fn set_state(&self, pr: &PrId, state: &'static str) -> Result<Pull, CallError> {
        #[derive(Serialize)]
        struct Body {
            state: &'static str,
        }
        self.write(owner(&pr.repo), Method::PATCH, pull_path(pr, ""), Some(&Body { state })).await?.json()
    }

    /// Merges the base into the head, if the head is still this one.
    ///
    /// # Errors
    /// See [`CallError`]. What GitHub answers to the question itself is no error.
    pub async fn update_branch(&self, pr: &PrId, expected_head: &Sha) -> Result<BranchUpdate, CallError> {
        #[derive(Serialize)]
        struct Body<'a> {
            expected_head_sha: &'a str,
        }
        let body = Body { expected_head_sha: expected_head.as_str() };
        let asked = self.write(owner(&pr.repo), Method::PUT, pull_path(pr, "/update-branch"), Some(&body)).await;
        match asked {
            Ok(_) => Ok(BranchUpdate::Accepted),
            Err(error) if is_422(&error, &["head sha", "head_sha", "head ref"]) => Ok(BranchUpdate::HeadMoved),
            Err(error) if is_422(&error, &["no new commits", "not behind", "up to date", "up-to-date"]) => {
                Ok(BranchUpdate::NothingToMerge)
            }
            Err(error) if is_422(&error, &["conflict"]) => Ok(BranchUpdate::Conflict),
            Err(CallError::Conflict { .. }) => Ok(BranchUpdate::Conflict),
            Err(error) => Err(error),
        }
    }
}

/// GitHub tells its 422s apart by words only.
fn is_422(error: &CallError, words: &[&str]) -> bool {
    let CallError::Refused { status: 422, message } = error else { return false };
    let message = message.to_ascii_lowercase();
    words.iter().any(|word| message.contains(word))
}

pub(super) fn owner(repo: &RepoName) -> As<'_> {
    As::Owner(repo.owner())
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
