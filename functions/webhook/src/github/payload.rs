//! The fields of GitHub's payloads that are needed, and no others. Any may be missing: see `lenient`.

use std::borrow::Cow;

use domain::id::RepoName;
use jiff::Timestamp;
use serde::Deserialize;

use super::NoFact;
use super::lenient::{Many, Part, Soft};

pub(super) type Text<'a> = Soft<Cow<'a, str>>;
pub(super) type Time = Soft<Timestamp>;

/// Writes the structs, with what all of them have in common.
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
    App { id: Soft<u64>, }
    /// A repository of which only the identity matters.
    Place { id: Soft<u64>, }
    /// The base of a pull request that a check names.
    ListedBase { repo: Part<Place>, }
    /// A pull request that a check names.
    Listed { number: Soft<u64>, base: Part<ListedBase>, }
    /// A commit of which only the time matters.
    Commit { timestamp: Time, }
    /// An installation of which only the time matters.
    Installation { updated_at: Time, }
    /// An object of which only the presence matters.
    Presence {}
    /// An issue; a pull request is one with this link.
    Issue { number: Soft<u64>, pull_request: Part<Presence>, }
}

payloads! {
    borrowed:
    Repository { id: Soft<u64>, full_name: Text<'a>, pushed_at: Time, }
    /// A person, a bot, or nobody any more.
    User { login: Text<'a>, }
    Label { name: Text<'a>, }
    /// Head or base of a pull request. Its repository may be gone, and is not looked at.
    End { r#ref: Text<'a>, sha: Text<'a>, }
    PullRequest {
        number: Soft<u64>,
        node_id: Text<'a>,
        state: Text<'a>,
        title: Text<'a>,
        body: Text<'a>,
        user: Part<User<'a>>,
        labels: Many<Part<Label<'a>>>,
        head: Part<End<'a>>,
        base: Part<End<'a>>,
        draft: Soft<bool>,
        merged: Soft<bool>,
        merged_by: Part<User<'a>>,
        additions: Soft<u64>,
        deletions: Soft<u64>,
        created_at: Time,
        updated_at: Time,
        closed_at: Time,
        merged_at: Time,
    }
    /// `pull_request`.
    PullRequestEvent {
        action: Text<'a>,
        pull_request: Part<PullRequest<'a>>,
        repository: Part<Repository<'a>>,
        sender: Part<User<'a>>,
        before: Text<'a>,
        reason: Text<'a>,
    }
    /// What a check run found.
    Output { title: Text<'a>, summary: Text<'a>, text: Text<'a>, }
    Suite {
        head_sha: Text<'a>,
        app: Part<App>,
        pull_requests: Many<Part<Listed>>,
        created_at: Time,
        updated_at: Time,
        head_commit: Part<Commit>,
    }
    CheckRun {
        id: Soft<u64>,
        name: Text<'a>,
        external_id: Text<'a>,
        head_sha: Text<'a>,
        status: Text<'a>,
        conclusion: Text<'a>,
        started_at: Time,
        completed_at: Time,
        output: Part<Output<'a>>,
        app: Part<App>,
        pull_requests: Many<Part<Listed>>,
        check_suite: Part<Suite<'a>>,
    }
    /// `check_run`.
    CheckRunEvent {
        action: Text<'a>,
        check_run: Part<CheckRun<'a>>,
        requested_action: Part<Pressed<'a>>,
        repository: Part<Repository<'a>>,
        sender: Part<User<'a>>,
    }
    /// A button of a check run.
    Pressed { identifier: Text<'a>, }
    /// `check_suite`.
    SuiteEvent { action: Text<'a>, check_suite: Part<Suite<'a>>, repository: Part<Repository<'a>>, }
    /// `status`.
    StatusEvent {
        sha: Text<'a>,
        context: Text<'a>,
        state: Text<'a>,
        description: Text<'a>,
        created_at: Time,
        updated_at: Time,
        repository: Part<Repository<'a>>,
    }
    Review {
        node_id: Text<'a>,
        user: Part<User<'a>>,
        body: Text<'a>,
        state: Text<'a>,
        commit_id: Text<'a>,
        submitted_at: Time,
        author_association: Text<'a>,
    }
    /// `pull_request_review`.
    ReviewEvent {
        action: Text<'a>,
        review: Part<Review<'a>>,
        pull_request: Part<PullRequest<'a>>,
        repository: Part<Repository<'a>>,
    }
    Comment {
        node_id: Text<'a>,
        user: Part<User<'a>>,
        body: Text<'a>,
        created_at: Time,
        author_association: Text<'a>,
        performed_via_github_app: Part<App>,
    }
    /// `issue_comment`.
    CommentEvent {
        action: Text<'a>,
        issue: Part<Issue>,
        comment: Part<Comment<'a>>,
        repository: Part<Repository<'a>>,
    }
    /// `push`.
    PushEvent {
        r#ref: Text<'a>,
        deleted: Soft<bool>,
        head_commit: Part<Commit>,
        repository: Part<Repository<'a>>,
    }
    /// `merge_group`.
    MergeGroupEvent { action: Text<'a>, reason: Text<'a>, }
    /// What a webhook is subscribed to.
    Hook { events: Many<Text<'a>>, }
    /// `ping`.
    PingEvent { hook: Part<Hook<'a>>, }
    /// `installation` and the like.
    InstallationEvent { action: Text<'a>, installation: Part<Installation>, }
}

impl Part<Repository<'_>> {
    /// The repository's name, which nothing can do without.
    pub(super) fn name(&self) -> Result<RepoName, NoFact> {
        let name = self.0.as_ref().and_then(|repository| repository.full_name.0.as_deref());
        name.and_then(|name| name.parse().ok()).ok_or_else(|| NoFact::missing("repository.full_name"))
    }
}

impl<T> Part<T> {
    /// The object, which must be there.
    pub(super) fn needed(&self, field: &str) -> Result<&T, NoFact> {
        self.0.as_ref().ok_or_else(|| NoFact::missing(field))
    }
}

impl<T: Copy> Soft<T> {
    /// The value, which must be there.
    pub(super) fn needed(&self, field: &str) -> Result<T, NoFact> {
        self.0.ok_or_else(|| NoFact::missing(field))
    }
}

impl Part<User<'_>> {
    /// The login; empty for nobody.
    pub(super) fn login(&self) -> &str {
        self.0.as_ref().map_or("", |user| user.login.text())
    }
}
