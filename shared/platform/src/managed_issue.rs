//! The row that remembers which issue Suture wrote under a key: the Car Bridge writes it, the reconciler reads it.

use domain::id::RepoName;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::lookup;
use crate::store::{Key, Store, StoreError, versioned};

/// The row is kept this long after it was last needed; then GitHub is asked again.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_hours(24 * 90);

/// An issue that Suture wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedIssueRow {
    pub number: u64,
    /// Whether pinning it was tried: if there was no room, or a person unpinned it, that is so.
    pub pinned: bool,
}

fn row_key(repo: &RepoName, key: &str) -> Key {
    Key::state(format!("ISSUE#{repo}#{key}"))
}

/// The issue of this key, if it was written.
pub async fn load<S: Store>(
    store: &S,
    repo: &RepoName,
    key: &str,
    now: Timestamp,
) -> Result<Option<ManagedIssueRow>, StoreError> {
    lookup::read(store, &row_key(repo, key), now).await
}

/// Remembers which issue was written under this key.
pub async fn save<S: Store>(
    store: &S,
    repo: &RepoName,
    key: &str,
    issue: &ManagedIssueRow,
    now: Timestamp,
) -> Result<(), StoreError> {
    let ttl = saturating_after(now, REMEMBERED_FOR);
    versioned::put(store, &row_key(repo, key), issue, ttl, now).await
}
