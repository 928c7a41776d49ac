//! GitHub's data as plain records. Statuses and check runs are in `commit`; the operations are in `changes` and
//! `discussion`.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::commit::CommitReports;
use crate::settings::RepoSettings;

pub(crate) type Sha = Arc<str>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PrIx(pub(crate) usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RepoIx(pub(crate) usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullState {
    Open,
    Closed,
    Merged,
}

/// State of GitHub's lazy mergeability computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeMergeability {
    /// Not requested since the last change.
    Unasked,
    /// Requested, not computed yet.
    Computing,
    /// Computed: whether it can be merged without conflicts.
    Known(bool),
}

#[derive(Debug, Clone)]
pub struct FakePull {
    pub(crate) repo: RepoIx,
    pub number: u64,
    pub id: u64,
    pub node_id: String,
    pub title: String,
    pub body: String,
    pub author: String,
    pub head_ref: String,
    pub base_ref: String,
    /// The head's commits, newest last.
    pub commits: Vec<Arc<str>>,
    /// Number of base commits that the head contains.
    pub base_commits: usize,
    pub state: PullState,
    pub draft: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub merged_by: Option<String>,
    /// The merge commit.
    pub merge_commit: Option<Arc<str>>,
    pub labels: Vec<String>,
    pub reviews: Vec<FakeReview>,
    /// From a fork, for which check events name no pull request.
    pub fork: bool,
    /// Whether the base has conflicting commits.
    pub conflicts: bool,
    /// GitHub's knowledge of `conflicts`.
    pub mergeability: FakeMergeability,
    pub(crate) mergeability_version: u32,
    /// The head branch was deleted, so the pull request cannot be reopened.
    pub head_deleted: bool,
    /// Login that enabled auto-merge, and when.
    pub auto_merge: Option<(String, Timestamp)>,
    /// Time since which it is in the merge queue.
    pub queued_at: Option<Timestamp>,
    /// CodeGenie's id of the vulnerability it repairs.
    pub vulnerability: Option<String>,
}

impl FakePull {
    pub fn head(&self) -> &Arc<str> {
        // A pull request without a commit cannot be opened.
        &self.commits[self.commits.len() - 1]
    }

    pub fn is_open(&self) -> bool {
        self.state == PullState::Open
    }
}

#[derive(Debug, Clone)]
pub struct FakeReview {
    pub id: u64,
    pub user: String,
    pub state: ReviewState,
    pub body: String,
    pub commit: Arc<str>,
    pub submitted_at: Timestamp,
    pub reactions: Vec<FakeReaction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewState {
    Approved,
    ChangesRequested,
    Commented,
    Dismissed,
}

impl ReviewState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Approved => "APPROVED",
            Self::ChangesRequested => "CHANGES_REQUESTED",
            Self::Commented => "COMMENTED",
            Self::Dismissed => "DISMISSED",
        }
    }
}

/// A comment on a pull request or an issue.
#[derive(Debug, Clone)]
pub struct FakeComment {
    pub id: u64,
    pub(crate) repo: RepoIx,
    pub number: u64,
    pub user: String,
    pub body: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub reactions: Vec<FakeReaction>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeReaction {
    pub id: u64,
    pub user: String,
    /// `eyes`, `rocket`, …
    pub content: String,
}

#[derive(Debug, Clone)]
pub struct FakeIssue {
    pub(crate) repo: RepoIx,
    pub number: u64,
    pub id: u64,
    pub node_id: String,
    pub title: String,
    pub body: String,
    pub user: String,
    pub open: bool,
    pub pinned: bool,
    /// Why it was closed: `completed` or `not_planned`.
    pub state_reason: Option<String>,
    pub labels: Vec<String>,
    /// Logins of the assignees.
    pub assignees: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullOrIssue {
    Pull(PrIx),
    Issue(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct FakeRepository {
    pub(crate) id: u64,
    pub(crate) owner: String,
    pub(crate) name: String,
    pub(crate) settings: RepoSettings,
    /// Commits of the base, newest last. Other target branches are not modelled.
    pub(crate) base: Vec<Sha>,
    /// Pull requests and issues in the order of their numbers.
    pub(crate) numbers: Vec<PullOrIssue>,
    /// Numbers used by earlier fakes.
    pub(crate) used_before: u64,
}

impl FakeRepository {
    pub(crate) fn last_number(&self) -> u64 {
        self.used_before + self.numbers.len() as u64
    }
}

#[derive(Debug, Default)]
pub(crate) struct FakeGitHub {
    pub(crate) repos: Vec<FakeRepository>,
    pub(crate) by_name: HashMap<String, RepoIx>,
    pub(crate) pulls: Vec<FakePull>,
    pub(crate) by_node: HashMap<String, PullOrIssue>,
    pub(crate) issues: Vec<FakeIssue>,
    pub(crate) commits: HashMap<Sha, CommitReports>,
    /// Ordered by id.
    pub(crate) comments: Vec<FakeComment>,
    /// Indexes into `comments`, by pull request or issue.
    pub(crate) comments_of: HashMap<(RepoIx, u64), Vec<usize>>,
    /// Pull request and index of each review.
    pub(crate) by_review: HashMap<u64, (PrIx, usize)>,
    /// Commit of each check run and suite.
    pub(crate) sha_of_check: HashMap<u64, Sha>,
    pub(crate) last_id: u64,
}

impl FakeGitHub {
    /// A new id, larger than all previous ones.
    pub(crate) fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn repo(&self, ix: RepoIx) -> &FakeRepository {
        &self.repos[ix.0]
    }

    pub(crate) fn pull(&self, ix: PrIx) -> &FakePull {
        &self.pulls[ix.0]
    }

    pub(crate) fn numbered(&self, repo: RepoIx, number: u64) -> Option<PullOrIssue> {
        let repo = self.repo(repo);
        let place = usize::try_from(number.checked_sub(repo.used_before + 1)?).ok()?;
        repo.numbers.get(place).copied()
    }

    pub(crate) fn pull_at(&self, repo: RepoIx, number: u64) -> Option<PrIx> {
        match self.numbered(repo, number)? {
            PullOrIssue::Pull(ix) => Some(ix),
            PullOrIssue::Issue(_) => None,
        }
    }

    /// The pull requests of a repository, oldest first.
    pub(crate) fn pulls_of(&self, repo: RepoIx) -> impl DoubleEndedIterator<Item = PrIx> + '_ {
        self.repo(repo).numbers.iter().filter_map(|numbered| match numbered {
            PullOrIssue::Pull(ix) => Some(*ix),
            PullOrIssue::Issue(_) => None,
        })
    }

    /// Number of base commits that the head lacks.
    pub(crate) fn behind_by(&self, ix: PrIx) -> usize {
        let pull = self.pull(ix);
        self.repo(pull.repo).base.len().saturating_sub(pull.base_commits)
    }

    /// Statuses and check runs of a pull request's head.
    pub(crate) fn reported(&self, ix: PrIx) -> Option<&CommitReports> {
        self.commits.get(self.pull(ix).head())
    }

    pub(crate) fn base_tip(&self, repo: RepoIx) -> Sha {
        let base = &self.repo(repo).base;
        Arc::clone(&base[base.len() - 1])
    }
}
