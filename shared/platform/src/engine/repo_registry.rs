//! The registry of repositories with managed pull requests, a few rows, so that listing them needs no scan; and a row for each of their base
//! branches, so that a push to any other branch costs one read. Each process registers a repository once, and a base branch once a day.
//! After a crash in between, the next sweep that visits one of its pull requests registers it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::id::RepoName;
use domain::pull_request::PullRequest;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use crate::engine::ApplyResult;
use crate::store::schema;
use crate::store::{Key, RowUpdate, RowWrite, Store, StoreError, TTL, number};

/// The version of a new record.
pub(super) const FIRST_VERSION: u64 = 1;

/// Every open pull request is visited once a day, so its base branch is registered again long before this.
const BASE_RETENTION: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How often a process registers a base branch again.
const BASE_REFRESH: SignedDuration = SignedDuration::from_hours(24);

/// What this process has registered: repositories, and base branches with the time.
#[derive(Debug, Default)]
pub struct RepoRegistry {
    repos: Mutex<BTreeSet<RepoName>>,
    bases: Mutex<BTreeMap<(RepoName, String), Timestamp>>,
}

fn base_key(repo: &RepoName, branch: &str) -> Key {
    Key::state(format!("BASE#{repo}#{branch}"))
}

/// Whether the branch is, or was within a week, the base of a managed pull request.
pub async fn is_base<S: Store>(store: &S, repo: &RepoName, branch: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(store.get(&base_key(repo, branch), now).await?.is_some())
}

impl RepoRegistry {
    /// Registers a repository, unless this process has done so. Best effort: a failure is only logged, and retried the next time.
    pub async fn register<S: Store>(&self, store: &S, repo: &RepoName, now: Timestamp) {
        if locked(&self.repos).contains(repo) {
            return;
        }
        match store.write(vec![schema::add_repo(repo)], now).await {
            Ok(()) => _ = locked(&self.repos).insert(repo.clone()),
            Err(error) => warn!(%repo, %error, "cannot register repository"),
        }
    }

    /// Registers the base branch of an open pull request. Best effort, like `register`.
    pub async fn register_base<S: Store>(&self, store: &S, record: &PullRequest, now: Timestamp) {
        let base = (record.id.repo.clone(), record.base_branch.clone());
        let is_fresh = |at: &Timestamp| now.duration_since(*at) < BASE_REFRESH;
        if record.state.is_terminal() || locked(&self.bases).get(&base).is_some_and(is_fresh) {
            return;
        }
        let ttl = number(saturating_after(now, BASE_RETENTION).as_second());
        let change = RowUpdate { set: BTreeMap::from([(TTL.to_owned(), ttl)]), ..RowUpdate::default() };
        match store.write(vec![RowWrite::Update { key: base_key(&base.0, &base.1), change }], now).await {
            Ok(()) => _ = locked(&self.bases).insert(base, now),
            Err(error) => warn!(repo = %base.0, branch = base.1, %error, "cannot register base branch"),
        }
    }

    /// Registers the repository of a new pull request, and the base branch of one that is new, reopened or retargeted.
    pub async fn register_new<S: Store>(&self, store: &S, applied: &ApplyResult, described: bool, now: Timestamp) {
        let Some(record) = &applied.record else { return };
        let is_new = record.version == FIRST_VERSION;
        if is_new {
            self.register(store, &record.id.repo, now).await;
        }
        if is_new || described {
            self.register_base(store, record, now).await;
        }
    }
}

/// A panic while holding the lock cannot corrupt a set of names.
fn locked<T>(names: &Mutex<T>) -> MutexGuard<'_, T> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}
