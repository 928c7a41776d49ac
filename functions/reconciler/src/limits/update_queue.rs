//! Serialises branch updates per base branch. Where heads must be up to date, each merge puts all other pull requests
//! behind again: updating them all at once would rebuild all of them after every merge, until their budgets are spent
//! and they escalate for no reason. Instead one is updated and merged, then the next is updated, once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use domain::id::{PrId, RepoName};
use domain::pull_request::PullRequest;
use domain::state::{State, Strategy};
use jiff::{SignedDuration, Timestamp};
use platform::publish::Publisher;
use platform::store::queries;
use platform::store::{Store, StoreError};
use tokio::sync::Mutex;

use crate::context::{SweepContext, saturating_after};

/// A pull request in the queue is due again after this long, times its position.
const QUEUE_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(2);
/// The largest position that counts for the wait. (A merge moves the base, and then all pull requests on it are due.)
const MAX_QUEUE_STEPS: i32 = 10;

/// The queues that this sweep has read, by base branch.
pub(crate) type UpdateQueues = Mutex<BTreeMap<(RepoName, String), UpdateQueue>>;

/// The pull requests of a base branch that are updated one after another.
#[derive(Debug, Default)]
pub(crate) struct UpdateQueue {
    /// Updated and about to be merged; the one updated first comes first.
    merging: Vec<PrId>,
    /// Whether this sweep has started a branch update.
    taken: bool,
    /// How many pull requests of this sweep wait; the highest ranked come first.
    waiting: i32,
}

/// If another pull request of the base is updated first, returns which one and until when to wait; otherwise takes the
/// turn.
pub(crate) async fn take_turn(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    queues: &UpdateQueues,
    record: &PullRequest,
) -> Result<Option<(String, Timestamp)>, StoreError> {
    let base = &record.base_branch;
    // The lock is held while the queue is read, so that a sweep reads it once.
    let mut queues = queues.lock().await;
    let queue = match queues.entry((record.id.repo.clone(), base.clone())) {
        Entry::Occupied(queue) => queue.into_mut(),
        Entry::Vacant(entry) => {
            let merging = merging(cx, &record.id.repo, base).await?;
            entry.insert(UpdateQueue { merging, ..UpdateQueue::default() })
        }
    };
    let first = queue.merging.iter().find(|other| **other != record.id);
    let other = match first {
        Some(first) => format!("#{}", first.number),
        None if queue.taken => "another pull request".to_owned(),
        None => {
            queue.taken = cx.execution.holds_update_queue();
            return Ok(None);
        }
    };
    queue.waiting = queue.waiting.saturating_add(1);
    let until = saturating_after(cx.now(), QUEUE_RETRY_AFTER.saturating_mul(queue.waiting.min(MAX_QUEUE_STEPS)));
    let why = format!("{other} is updated with `{base}` first");
    Ok(Some((why, until)))
}

/// The pull requests of a base branch that were updated and are about to be merged.
async fn merging(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    repo: &RepoName,
    base: &str,
) -> Result<Vec<PrId>, StoreError> {
    let now = cx.now();
    // As long as checks may take: a pull request that is not merged by then loses its turn.
    let timeout = cx.policies().for_repo(repo).threshold(State::ChecksRunning).unwrap_or(SignedDuration::ZERO);
    let mut found = queries::open_on_base(cx.store(), repo, base, now).await?;
    found.retain(|record| {
        let updated = record.remediation_action == Some(Strategy::BranchUpdate);
        let recently = record.last_remediation_at.is_some_and(|at| now < saturating_after(at, timeout));
        let failed = matches!(record.state, State::ChecksFailed | State::PolicyFailed);
        record.is_actionable() && updated && recently && !failed
    });
    found.sort_by_key(|record| record.last_remediation_at);
    Ok(found.into_iter().map(|record| record.id).collect())
}
