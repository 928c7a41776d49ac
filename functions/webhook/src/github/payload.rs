//! The fields of GitHub's payloads that Suture uses. Any may be missing: see `lenient`.

use std::borrow::Cow;

use domain::id::RepoName;
use domain::policy::PullRequestOrigin;
use jiff::Timestamp;
use serde::Deserialize;

use super::ParseRejection;
use super::lenient::{Lenient, LenientList, LenientObject};

pub(super) type Text<'a> = Lenient<Cow<'a, str>>;
pub(super) type Time = Lenient<Timestamp>;

/// Declares the structs with their common attributes.
macro_rules! payloads {
    (borrowed: $($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Default, Deserialize)]
            #[serde(default, bound(deserialize = "'de: 'a"))]
            pub(super) struct $name<'a> {
                $(pub(super) $field: $type,)*
            }
        )+
    };
    (copied: $($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Default, Deserialize)]
            #[serde(default)]
            pub(super) struct $name {
                $(pub(super) $field: $type,)*
            }
        )+
    };
}

payloads! {
    copied:
    RepositoryId { id: Lenient<u64>, }
    ListedBase { repo: LenientObject<RepositoryId>, }
    Commit { timestamp: Time, }
    Installation { updated_at: Time, }
    /// An object whose fields are not used.
    Presence {}
    /// Pull requests are issues with `pull_request`.
    Issue { number: Lenient<u64>, pull_request: LenientObject<Presence>, }
}

payloads! {
    borrowed:
    Repository { id: Lenient<u64>, full_name: Text<'a>, pushed_at: Time, }
    User { login: Text<'a>, }
    App { id: Lenient<u64>, slug: Text<'a>, }
    ListedHead { r#ref: Text<'a>, repo: LenientObject<RepositoryId>, }
    /// A pull request in the list of a check run or suite.
    Listed { number: Lenient<u64>, head: LenientObject<ListedHead<'a>>, base: LenientObject<ListedBase>, }
    BranchTip { sha: Text<'a>, }
    /// A branch of the repository that contains the commit of a status.
    StatusBranch { name: Text<'a>, commit: LenientObject<BranchTip<'a>>, }
    Label { name: Text<'a>, }
    /// Head or base of a pull request.
    Branch { r#ref: Text<'a>, sha: Text<'a>, repo: LenientObject<RepositoryId>, }
    PullRequest {
        number: Lenient<u64>,
        node_id: Text<'a>,
        html_url: Text<'a>,
        state: Text<'a>,
        title: Text<'a>,
        body: Text<'a>,
        user: LenientObject<User<'a>>,
        labels: LenientList<LenientObject<Label<'a>>>,
        head: LenientObject<Branch<'a>>,
        base: LenientObject<Branch<'a>>,
        draft: Lenient<bool>,
        merged: Lenient<bool>,
        merged_by: LenientObject<User<'a>>,
        additions: Lenient<u64>,
        deletions: Lenient<u64>,
        created_at: Time,
        updated_at: Time,
        closed_at: Time,
        merged_at: Time,
    }
    /// `pull_request`.
    PullRequestEvent {
        action: Text<'a>,
        pull_request: LenientObject<PullRequest<'a>>,
        repository: LenientObject<Repository<'a>>,
        sender: LenientObject<User<'a>>,
        before: Text<'a>,
        reason: Text<'a>,
    }
    Output { title: Text<'a>, summary: Text<'a>, text: Text<'a>, }
    Suite {
        head_sha: Text<'a>,
        app: LenientObject<App<'a>>,
        pull_requests: LenientList<LenientObject<Listed<'a>>>,
        created_at: Time,
        updated_at: Time,
        head_commit: LenientObject<Commit>,
    }
    CheckRun {
        id: Lenient<u64>,
        name: Text<'a>,
        external_id: Text<'a>,
        head_sha: Text<'a>,
        status: Text<'a>,
        conclusion: Text<'a>,
        started_at: Time,
        completed_at: Time,
        output: LenientObject<Output<'a>>,
        app: LenientObject<App<'a>>,
        pull_requests: LenientList<LenientObject<Listed<'a>>>,
        check_suite: LenientObject<Suite<'a>>,
    }
    /// `check_run`.
    CheckRunEvent {
        action: Text<'a>,
        check_run: LenientObject<CheckRun<'a>>,
        requested_action: LenientObject<RequestedAction<'a>>,
        repository: LenientObject<Repository<'a>>,
        sender: LenientObject<User<'a>>,
    }
    /// A click on a button of a check run.
    RequestedAction { identifier: Text<'a>, }
    /// `check_suite`.
    SuiteEvent { action: Text<'a>, check_suite: LenientObject<Suite<'a>>, repository: LenientObject<Repository<'a>>, }
    /// `status`.
    StatusEvent {
        sha: Text<'a>,
        context: Text<'a>,
        state: Text<'a>,
        description: Text<'a>,
        created_at: Time,
        updated_at: Time,
        branches: LenientList<LenientObject<StatusBranch<'a>>>,
        repository: LenientObject<Repository<'a>>,
        sender: LenientObject<User<'a>>,
    }
    Review {
        id: Lenient<u64>,
        node_id: Text<'a>,
        user: LenientObject<User<'a>>,
        body: Text<'a>,
        state: Text<'a>,
        commit_id: Text<'a>,
        submitted_at: Time,
        author_association: Text<'a>,
    }
    /// `pull_request_review`.
    ReviewEvent {
        action: Text<'a>,
        review: LenientObject<Review<'a>>,
        pull_request: LenientObject<PullRequest<'a>>,
        repository: LenientObject<Repository<'a>>,
    }
    Comment {
        id: Lenient<u64>,
        node_id: Text<'a>,
        user: LenientObject<User<'a>>,
        body: Text<'a>,
        created_at: Time,
        author_association: Text<'a>,
        performed_via_github_app: LenientObject<App<'a>>,
    }
    /// `issue_comment`.
    CommentEvent {
        action: Text<'a>,
        issue: LenientObject<Issue>,
        comment: LenientObject<Comment<'a>>,
        repository: LenientObject<Repository<'a>>,
    }
    /// `pull_request_review_comment`.
    ReviewCommentEvent {
        action: Text<'a>,
        comment: LenientObject<Comment<'a>>,
        pull_request: LenientObject<PullRequest<'a>>,
        repository: LenientObject<Repository<'a>>,
    }
    /// `push`.
    PushEvent {
        r#ref: Text<'a>,
        deleted: Lenient<bool>,
        head_commit: LenientObject<Commit>,
        repository: LenientObject<Repository<'a>>,
    }
    /// `merge_group`.
    MergeGroupEvent { action: Text<'a>, reason: Text<'a>, }
    Hook { events: LenientList<Text<'a>>, }
    /// `ping`.
    PingEvent { hook: LenientObject<Hook<'a>>, }
    /// `installation` and the like.
    InstallationEvent { action: Text<'a>, installation: LenientObject<Installation>, }
}

impl LenientObject<Repository<'_>> {
    /// The repository's name, required in every event.
    pub(super) fn name(&self) -> Result<RepoName, ParseRejection> {
        let name = self.0.as_ref().and_then(|repository| repository.full_name.0.as_deref());
        name.and_then(|name| name.parse().ok()).ok_or_else(|| ParseRejection::missing("repository.full_name"))
    }
}

impl<T> LenientObject<T> {
    pub(super) fn needed(&self, field: &str) -> Result<&T, ParseRejection> {
        self.0.as_ref().ok_or_else(|| ParseRejection::missing(field))
    }
}

impl<T: Copy> Lenient<T> {
    pub(super) fn needed(&self, field: &str) -> Result<T, ParseRejection> {
        self.0.ok_or_else(|| ParseRejection::missing(field))
    }
}

impl LenientObject<User<'_>> {
    /// Empty for a deleted user.
    pub(super) fn login(&self) -> &str {
        self.0.as_ref().map_or("", |user| user.login.text())
    }
}

impl PullRequest<'_> {
    /// Where it comes from. `head.repo` is null if the fork was deleted.
    pub(super) fn origin(&self) -> PullRequestOrigin<'_> {
        let repo = |branch: &LenientObject<Branch<'_>>| branch.0.as_ref()?.repo.0.as_ref()?.id.0;
        let (head, base) = (repo(&self.head), repo(&self.base));
        PullRequestOrigin {
            author: self.user.login(),
            branch: self.head.0.as_ref().map_or("", |head| head.r#ref.text()),
            fork: head.is_none() || head != base,
        }
    }
}

impl Listed<'_> {
    pub(super) fn base_repo(&self) -> Option<u64> {
        self.base.0.as_ref()?.repo.0.as_ref()?.id.0
    }

    /// Where it comes from. The list has no authors.
    pub(super) fn origin(&self) -> PullRequestOrigin<'_> {
        let head = self.head.0.as_ref();
        let head_repo = head.and_then(|head| head.repo.0.as_ref()?.id.0);
        let branch = head.map_or("", |head| head.r#ref.text());
        PullRequestOrigin { author: "", branch, fork: head_repo.is_none() || head_repo != self.base_repo() }
    }
}
