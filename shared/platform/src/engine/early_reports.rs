//! Reports on a commit that arrive before the event that makes it the head of a managed pull request: webhooks arrive in any order, and
//! `opened` may be deferred to the queue. They are stored by commit for an hour, and applied when the commit becomes a head. They are
//! stored only if the pull request is managed: the payload shows it, or an event that announces the commit is on the queue.

use std::collections::{BTreeMap, BTreeSet};

use domain::event::{Actor, Fact, FactKind};
use domain::id::{EventId, PrId, RepoName, Sha};
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tracing::{error, warn};

use super::{Engine, EngineError};
use crate::publish::Publisher;
use crate::store::{Key, RowUpdate, RowWrite, Store, StoreError, TTL, number, number_of, set_of};

/// Longer than a deferred fact stays on the queue.
const RETENTION: SignedDuration = SignedDuration::from_hours(1);
/// Reports kept per commit. With more, the pull request is verified by the next sweeps.
const MAX_REPORTS: usize = 100;
/// The attribute that holds the reports, as JSON.
const REPORTS: &str = "reports";

/// A report without a pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlyReport {
    pub id: EventId,
    pub occurred_at: Timestamp,
    pub actor: Actor,
    pub kind: FactKind,
}

impl EarlyReport {
    fn fact(self, pr: PrId) -> Fact {
        let Self { id, occurred_at, actor, kind } = self;
        Fact { id, pr, occurred_at, actor, kind, described: None }
    }
}

/// When the fact that creates the record of a pull request leaves the queue, in seconds.
const EXPECTED_AT: &str = "expected_at";

fn key(repo: &RepoName, head: &Sha) -> Key {
    Key::state(format!("EARLY#{repo}#{head}"))
}

fn pull_request_key(pr: &PrId) -> Key {
    Key::state(format!("EARLY#{pr}"))
}

fn update(repo: &RepoName, head: &Sha, reports: BTreeSet<String>, now: Timestamp) -> RowWrite {
    let until = saturating_after(now, RETENTION);
    let set = BTreeMap::from([(TTL.to_owned(), number(until.as_second()))]);
    let insert = if reports.is_empty() { BTreeMap::new() } else { BTreeMap::from([(REPORTS.to_owned(), reports)]) };
    RowWrite::Update { key: key(repo, head), change: RowUpdate { set, insert, ..RowUpdate::default() } }
}

/// Notes that the commit becomes the head of this pull request when a fact on the queue is applied: from now on its reports are kept,
/// and commands on the pull request wait for it.
pub async fn announce<S: Store>(
    store: &S,
    pr: &PrId,
    head: &Sha,
    expected_at: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    let until = number(saturating_after(now, RETENTION).as_second());
    let set = BTreeMap::from([(TTL.to_owned(), until), (EXPECTED_AT.to_owned(), number(expected_at.as_second()))]);
    let change = RowUpdate { set, ..RowUpdate::default() };
    let expected = RowWrite::Update { key: pull_request_key(pr), change };
    store.write(vec![update(&pr.repo, head, BTreeSet::new(), now), expected], now).await
}

/// When the record of an announced pull request is expected.
pub async fn expected_at<S: Store>(store: &S, pr: &PrId, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let row = store.get(&pull_request_key(pr), now).await?;
    Ok(row.as_ref().and_then(|row| number_of(row, EXPECTED_AT)).and_then(|at| Timestamp::from_second(at).ok()))
}

/// Keeps a report on a commit, if it is `managed` or announced. Returns whether it was kept.
pub async fn keep<S: Store>(
    store: &S,
    (repo, head): (&RepoName, &Sha),
    report: &EarlyReport,
    managed: bool,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let row = store.get(&key(repo, head), now).await?;
    if row.is_none() && !managed {
        return Ok(false);
    }
    if row.as_ref().is_some_and(|row| set_of(row, REPORTS).count() >= MAX_REPORTS) {
        warn!(%repo, %head, event = %report.id, "too many early reports; left to the next sweep");
        return Ok(false);
    }
    let json =
        serde_json::to_string(report).map_err(|error| StoreError::Corrupt(key(repo, head), error.to_string()))?;
    match store.write(vec![update(repo, head, BTreeSet::from([json]), now)], now).await {
        Ok(()) => Ok(true),
        Err(StoreError::TooLarge(why)) => {
            warn!(%repo, %head, event = %report.id, why, "early report too large; left to the next sweep");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Applies the early reports on a commit that is the head of a pull request now. They are not deleted: another pull request may get the
/// same head, and a report that was applied before is recognised by its id.
pub async fn apply<S: Store, O: Publisher>(
    engine: &Engine<S, O>,
    pr: &PrId,
    head: &Sha,
    now: Timestamp,
) -> Result<(), EngineError> {
    let key = key(&pr.repo, head);
    let Some(row) = engine.store().get(&key, now).await? else { return Ok(()) };
    let read = |json: &str| {
        let report = serde_json::from_str::<EarlyReport>(json);
        report.inspect_err(|error| error!(%key, %error, "skipping undecodable early report")).ok()
    };
    let mut reports: Vec<EarlyReport> = set_of(&row, REPORTS).filter_map(read).collect();
    reports.sort_by(|one, other| (one.occurred_at, &one.id).cmp(&(other.occurred_at, &other.id)));
    for report in reports {
        engine.apply(&report.fact(pr.clone()), now).await?;
    }
    Ok(())
}
