//! Which repositories have pull requests of ours: one row lists them, so that lists need no scan. A process tells the table
//! of each repository once; what is lost by a crash in between is told by the next sweep that visits one of its pull
//! requests.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use domain::id::RepoName;
use jiff::Timestamp;
use tracing::warn;

use crate::engine::Applied;
use crate::rows;
use crate::store::Store;

/// The version of a record that was just made.
const FIRST: u64 = 1;

/// The repositories this process has told the table of.
#[derive(Debug, Default)]
pub struct RepoRegistry(Mutex<BTreeSet<RepoName>>);

impl RepoRegistry {
    /// Tells the table of a repository, unless this process has done so. It keeps nobody from their work: what could not be
    /// told now is told the next time.
    pub async fn register<S: Store>(&self, store: &S, repo: &RepoName, now: Timestamp) {
        if self.known().contains(repo) {
            return;
        }
        match store.write(vec![rows::repo_known(repo)], now).await {
            Ok(()) => _ = self.known().insert(repo.clone()),
            Err(error) => warn!(%repo, %error, "the list of repositories could not be written"),
        }
    }

    /// Tells the table of the repository of a pull request that has just begun.
    pub async fn register_new<S: Store>(&self, store: &S, applied: &Applied, now: Timestamp) {
        if let Some(record) = applied.record.as_ref().filter(|record| record.version == FIRST) {
            self.register(store, &record.id.repo, now).await;
        }
    }

    /// A set of names is as good after a panic as before.
    fn known(&self) -> std::sync::MutexGuard<'_, BTreeSet<RepoName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
