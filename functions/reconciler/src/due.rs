//! What is due, by kind and rank, and when a row that cannot be worked on now is due again.

use std::cmp::Reverse;

use domain::id::{EffectId, PrId, RepoName, RunId};
use domain::pull_request::Record;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use platform::engine::EngineError;
use platform::lookup;
use platform::outlets::Outlets;
use platform::rows::{self, DueEntry, Subject};
use platform::store::versioned::write_if;
use platform::store::{Key, OnlyIf, Store, StoreError};
use platform::sweep_summary::Summary;
use tracing::warn;

use crate::context::{SweepContext, after, count};
use crate::trigger::Scope;

/// An item that cannot be decoded is due again after this long: a new version may decode it.
const UNDECODABLE_AGAIN: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Default)]
pub(crate) struct Due {
    pub(crate) effects: Vec<EffectId>,
    pub(crate) runs: Vec<RunId>,
    pub(crate) requests: Vec<String>,
    pub(crate) prs: Vec<PrId>,
}

/// What is due within the sweep's scope. Each part of the index is read as far as all of them together may be visited,
/// and of that the highest in rank are chosen: the urgent are found among the late.
pub(crate) async fn find(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    summary: &mut Summary,
) -> Result<Due, StoreError> {
    match &cx.wish.scope {
        Scope::One(pr) => {
            summary.due = 1;
            return Ok(Due { prs: vec![pr.clone()], ..Due::default() });
        }
        Scope::Base(repo, branch) => {
            let prs = Box::pin(on_base(cx, repo, branch, summary)).await?;
            return Ok(Due { prs, ..Due::default() });
        }
        Scope::All | Scope::Repo(_) => {}
    }
    let max = cx.policies().base().sweep.max_prs.max(1);
    let (mut due, mut prs) = (Due::default(), Vec::new());
    for entry in lookup::due(cx.store(), max, cx.now()).await?.entries {
        match (&entry.subject, &cx.wish.scope) {
            (Subject::Effect(id), Scope::All) => due.effects.push(id.clone()),
            (Subject::Run(id), Scope::All) => due.runs.push(id.clone()),
            (Subject::Request(key), Scope::All) => due.requests.push(key.clone()),
            (Subject::PullRequest(pr), Scope::All) => prs.push((pr.clone(), entry)),
            (Subject::PullRequest(pr), Scope::Repo(repo)) if pr.repo == *repo => prs.push((pr.clone(), entry)),
            (Subject::PullRequest(_) | Subject::Effect(_) | Subject::Run(_) | Subject::Request(_), _) => {}
        }
    }
    let now = cx.now();
    summary.due = count(prs.len());
    let oldest = prs.iter().map(|(_, entry)| now.duration_since(entry.due_at).as_secs()).max();
    summary.oldest_due_secs = u64::try_from(oldest.unwrap_or(0)).unwrap_or(0);
    prs.sort_by_key(|(_, entry)| (Reverse(rank(entry, now)), entry.due_at));
    let max = cx.wish.scope.repo().map_or(max, |repo| cx.policies().for_repo(repo).triggers.max_prs);
    due.prs = take_capped(prs.into_iter().map(|(pr, _)| pr).collect(), max, summary);
    Ok(due)
}

/// A pull request's rank before its record is read: its priority, and how long it has been due.
fn rank(entry: &DueEntry, now: Timestamp) -> i64 {
    entry.priority + 5 * (now.duration_since(entry.due_at).as_hours() / 24).max(0)
}

/// As many as may be visited. The others are counted and named: they are left to the schedule.
fn take_capped(mut ranked: Vec<PrId>, max: u32, summary: &mut Summary) -> Vec<PrId> {
    let rest = ranked.split_off(ranked.len().min(usize::try_from(max.max(1)).unwrap_or(usize::MAX)));
    summary.leave_out(&rest);
    ranked
}

/// A base has moved: that is written to every record on it, and as many as may be are visited now, those of the highest
/// rank first. The others are due now, and left to the schedule.
async fn on_base(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    repo: &RepoName,
    branch: &str,
    summary: &mut Summary,
) -> Result<Vec<PrId>, StoreError> {
    let now = cx.now();
    let mut rest = lookup::on_base(cx.store(), repo, branch, now).await?.into_iter();
    let mut records = Vec::new();
    summary.due = count(rest.len());
    loop {
        let group: Vec<Record> = rest.by_ref().take(cx.concurrency()).collect();
        if group.is_empty() || cx.is_late(summary) {
            break;
        }
        for moved in join_all(group.into_iter().map(|record| cx.move_base(record, branch))).await {
            match moved {
                Ok(record) => records.push(record),
                Err(error) => _ = cx.classify_error(error)?,
            }
        }
    }
    records.sort_by_cached_key(|record| (Reverse(record.priority_score(now)), record.id.clone()));
    let ranked = records.into_iter().map(|record| record.id).collect();
    Ok(take_capped(ranked, cx.policies().for_repo(repo).triggers.max_prs, summary))
}

/// A later due date for a row that is as it was found. One that is gone, or has moved on, has its own.
pub(crate) async fn defer(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    key: Key,
    by: SignedDuration,
    as_found: OnlyIf,
) -> Result<(), StoreError> {
    let now = cx.now();
    write_if(cx.store(), rows::redate(key, after(now, by), as_found), now).await?;
    Ok(())
}

/// An item that cannot be decoded is deferred, so that it keeps nothing else from being found. Any other error is the
/// store's.
pub(crate) async fn defer_undecodable(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    key: Key,
    error: EngineError,
    summary: &mut Summary,
) -> Result<(), StoreError> {
    match error {
        EngineError::Store(StoreError::Corrupt(at, why)) => {
            warn!(row = %at, why, "skipping undecodable item; retry in 1 h");
            summary.unreadable += 1;
            defer(cx, key, UNDECODABLE_AGAIN, OnlyIf::Present).await
        }
        EngineError::Store(error) => Err(error),
        // Somebody else is writing it.
        EngineError::Contended { .. } => Ok(()),
    }
}
