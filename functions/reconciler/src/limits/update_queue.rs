//! One pull request of a base is brought up to date at a time. Where heads have to be up to date, each merge puts all
//! others behind again: updating them all at once would build them all again and again, until their budgets are spent
//! and a person is called, although nothing is wrong. The first is merged, then the next is updated, once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use domain::id::{PrId, RepoName};
use domain::pull_request::Record;
use domain::state::{State, Strategy};
use jiff::SignedDuration;
use platform::lookup;
use platform::outlets::Outlets;
use platform::store::{Store, StoreError};
use platform::sweep_summary::Skip;
use tokio::sync::Mutex;

use super::Deferral;
use crate::context::{SweepContext, after};

/// A pull request in the queue is due again after this long, once for each place.
const TURN_AGAIN: SignedDuration = SignedDuration::from_mins(2);
/// None waits for longer than this many places. (A merge moves the base, and then all of it are due.)
const MOST_PLACES: i32 = 10;

/// The queues that this sweep has read, by base.
pub(crate) type UpdateQueues = Mutex<BTreeMap<(RepoName, String), UpdateQueue>>;

/// The pull requests that wait to be brought up to date with a base.
#[derive(Debug, Default)]
pub(crate) struct UpdateQueue {
    /// Up to date, and about to be merged; the one updated first comes first.
    merging: Vec<PrId>,
    /// Whether this sweep has let one update its branch.
    taken: bool,
    /// How many this sweep has made wait; those of the highest rank come first.
    waiting: i32,
}

/// Why a pull request has to wait for another of its base. If it need not, the turn is taken.
pub(crate) async fn take_turn(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    queues: &UpdateQueues,
    record: &Record,
) -> Result<Option<Deferral>, StoreError> {
    let base = &record.base_branch;
    // Held while the queue is read: it is read once in a sweep, however many wait.
    let mut queues = queues.lock().await;
    let queue = match queues.entry((record.id.repo.clone(), base.clone())) {
        Entry::Occupied(queue) => queue.into_mut(),
        Entry::Vacant(place) => {
            let merging = merging(cx, &record.id.repo, base).await?;
            place.insert(UpdateQueue { merging, ..UpdateQueue::default() })
        }
    };
    let first = queue.merging.iter().find(|other| **other != record.id);
    let who = match first {
        Some(first) => format!("#{}", first.number),
        None if queue.taken => "another one".to_owned(),
        None => {
            queue.taken = cx.execution.takes_turn();
            return Ok(None);
        }
    };
    queue.waiting = queue.waiting.saturating_add(1);
    let until = after(cx.now(), TURN_AGAIN.saturating_mul(queue.waiting.min(MOST_PLACES)));
    let why = format!("{who} is brought up to date with `{base}` first");
    Ok(Some(Deferral { skip: Skip::Turn, why, until: Some(until) }))
}

/// The pull requests of a base that were brought up to date, and are about to be merged.
async fn merging(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    repo: &RepoName,
    base: &str,
) -> Result<Vec<PrId>, StoreError> {
    let now = cx.now();
    // As long as checks may take: one that is not merged by then has had its turn.
    let patience = cx.policies().for_repo(repo).threshold(State::ChecksRunning).unwrap_or(SignedDuration::ZERO);
    let mut found = lookup::on_base(cx.store(), repo, base, now).await?;
    found.retain(|record| {
        let updated = record.remediation_action == Some(Strategy::BranchUpdate);
        let lately = record.last_remediation_at.is_some_and(|at| now < after(at, patience));
        let failed = matches!(record.state, State::ChecksFailed | State::PolicyFailed);
        record.is_actionable() && updated && lately && !failed
    });
    found.sort_by_key(|record| record.last_remediation_at);
    Ok(found.into_iter().map(|record| record.id).collect())
}
