//! The registry of repositories with managed pull requests: a few rows, so that listing them needs no scan. Each process registers a
//! repository once. After a crash in between, the next sweep that visits one of its pull requests registers it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use domain::id::RepoName;
use jiff::Timestamp;
use tracing::warn;

use crate::engine::ApplyResult;
use crate::store::Store;
use crate::store::schema;

/// The version of a new record.
pub(super) const FIRST_VERSION: u64 = 1;

/// The repositories that this process has registered.
#[derive(Debug, Default)]
pub struct RepoRegistry(Mutex<BTreeSet<RepoName>>);

impl RepoRegistry {
    /// Registers a repository, unless this process has done so. Best effort: a failure is only logged, and retried the next time.
    pub async fn register<S: Store>(&self, store: &S, repo: &RepoName, now: Timestamp) {
        if self.known().contains(repo) {
            return;
        }
        match store.write(vec![schema::add_repo(repo)], now).await {
            Ok(()) => _ = self.known().insert(repo.clone()),
            Err(error) => warn!(%repo, %error, "cannot register repository"),
        }
    }

    /// Registers the repository of a new pull request.
    pub async fn register_new<S: Store>(&self, store: &S, applied: &ApplyResult, now: Timestamp) {
        if let Some(record) = applied.record.as_ref().filter(|record| record.version == FIRST_VERSION) {
            self.register(store, &record.id.repo, now).await;
        }
    }

    /// A panic while holding the lock cannot corrupt a set of names.
    fn known(&self) -> std::sync::MutexGuard<'_, BTreeSet<RepoName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
