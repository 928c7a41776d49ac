//! The row with the number of an issue that Suture owns. The Car Bridge writes it, the reconciler reads it.

use domain::id::RepoName;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::store::queries;
use crate::store::{Key, Store, StoreError, versioned};

/// Retention after the last use; afterwards the issue is searched on GitHub again.
const RETENTION: SignedDuration = SignedDuration::from_hours(24 * 90);

/// An issue that Suture owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedIssueRow {
    pub number: u64,
    /// Whether pinning was attempted. It is not repeated if it failed or if a user unpinned the issue.
    pub pinned: bool,
}

fn row_key(repo: &RepoName, key: &str) -> Key {
    Key::state(format!("ISSUE#{repo}#{key}"))
}

/// The issue with this key, if it exists.
pub async fn load<S: Store>(
    store: &S,
    repo: &RepoName,
    key: &str,
    now: Timestamp,
) -> Result<Option<ManagedIssueRow>, StoreError> {
    queries::read(store, &row_key(repo, key), now).await
}

/// Stores the issue with this key.
pub async fn save<S: Store>(
    store: &S,
    repo: &RepoName,
    key: &str,
    issue: &ManagedIssueRow,
    now: Timestamp,
) -> Result<(), StoreError> {
    let ttl = saturating_after(now, RETENTION);
    versioned::put(store, &row_key(repo, key), issue, ttl, now).await
}
