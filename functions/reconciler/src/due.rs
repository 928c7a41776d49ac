//! Reads the due items by kind and rank, and sets a later due date for items that cannot be processed now.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use domain::id::{EffectId, PrId, RepoName, RunId};
use domain::pull_request::PullRequest;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use platform::engine::EngineError;
use platform::publish::Publisher;
use platform::store::queries;
use platform::store::schema::{self, DueEntry, DueSubject};
use platform::store::versioned::write_if;
use platform::store::{Condition, Key, Store, StoreError};
use platform::sweep_summary::SweepSummary;
use tracing::warn;

use crate::context::{SweepContext, count, saturating_after};
use crate::limits::gates::{self, SweepRows};
use crate::trigger::ReconcileScope;

/// An item that cannot be decoded is due again after this long: a new release may decode it.
const UNDECODABLE_RETRY_AFTER: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Default)]
pub(crate) struct DueWork {
    pub(crate) effects: Vec<EffectId>,
    pub(crate) runs: Vec<RunId>,
    pub(crate) requests: Vec<String>,
    /// Messages that waited.
    pub(crate) messages: Vec<String>,
    pub(crate) prs: Vec<PrId>,
}

impl DueWork {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { effects, runs, requests, messages, prs } = self;
        effects.is_empty() && runs.is_empty() && requests.is_empty() && messages.is_empty() && prs.is_empty()
    }
}

/// The due items within the scope of the sweep. Effects, runs, requests, messages and urgent pull requests are read whole; each
/// other partition of the index is read up to the limit for the whole sweep, and the highest ranked are chosen.
///
/// After a gate has opened, and in a sweep that somebody requested, pull requests that were put off are found before
/// their date (R-ADMIT-2, R-ADMIT-3).
pub(crate) async fn find(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    rows: &SweepRows,
    summary: &mut SweepSummary,
) -> Result<DueWork, StoreError> {
    match &cx.trigger.scope {
        ReconcileScope::One(pr) => {
            summary.due = 1;
            return Ok(DueWork { prs: vec![pr.clone()], ..DueWork::default() });
        }
        ReconcileScope::Base(repo, branch) => {
            let prs = Box::pin(on_base(cx, repo, branch, summary)).await?;
            return Ok(DueWork { prs, ..DueWork::default() });
        }
        ReconcileScope::All | ReconcileScope::Repo(_) => {}
    }
    let (now, base) = (cx.now(), cx.policies().base());
    let max = base.sweep.max_prs.max(1);
    let (mut due, mut prs) = (DueWork::default(), Vec::new());
    let early = !cx.is_scheduled() || rows.gate_rows.has_opened();
    let until = if early { saturating_after(now, gates::longest_put_off(base)) } else { now };
    let mut entries = queries::due(cx.store(), max, until, now).await?.entries;
    let later: Vec<DueEntry> = entries.extract_if(.., |entry| entry.due_at > now).collect();
    entries.extend(released(cx, rows, later).await?);
    for entry in entries {
        match (&entry.subject, &cx.trigger.scope) {
            (DueSubject::Effect(id), ReconcileScope::All) => due.effects.push(id.clone()),
            (DueSubject::Run(id), ReconcileScope::All) => due.runs.push(id.clone()),
            (DueSubject::Request(key), ReconcileScope::All) => due.requests.push(key.clone()),
            (DueSubject::Message(id), ReconcileScope::All) => due.messages.push(id.clone()),
            (DueSubject::PullRequest(pr), ReconcileScope::All) => prs.push((pr.clone(), entry)),
            (DueSubject::PullRequest(pr), ReconcileScope::Repo(repo)) if pr.repo == *repo => {
                prs.push((pr.clone(), entry))
            }
            (
                DueSubject::PullRequest(_)
                | DueSubject::Effect(_)
                | DueSubject::Run(_)
                | DueSubject::Request(_)
                | DueSubject::Message(_),
                _,
            ) => {}
        }
    }
    summary.due = count(prs.len());
    let oldest = prs.iter().map(|(_, entry)| now.duration_since(entry.due_at).as_secs()).max();
    summary.oldest_due_secs = u64::try_from(oldest.unwrap_or(0)).unwrap_or(0);
    prs.sort_by_key(|(_, entry)| (Reverse(rank(entry, now)), entry.due_at));
    let max = cx.trigger.scope.repo().map_or(max, |repo| cx.policies().for_repo(repo).triggers.max_prs);
    due.prs = take_capped(prs.into_iter().map(|(pr, _)| pr).collect(), max, summary);
    Ok(due)
}

/// Of the entries that are not due yet, the pull requests whose gate has opened, and in a sweep that somebody requested
/// all that are stale.
async fn released(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    rows: &SweepRows,
    later: Vec<DueEntry>,
) -> Result<Vec<DueEntry>, StoreError> {
    let pr_of = |entry: &DueEntry| match &entry.subject {
        DueSubject::PullRequest(pr) if cx.trigger.scope.repo().is_none_or(|repo| pr.repo == *repo) => Some(pr.clone()),
        DueSubject::PullRequest(_)
        | DueSubject::Effect(_)
        | DueSubject::Run(_)
        | DueSubject::Request(_)
        | DueSubject::Message(_) => None,
    };
    let prs: Vec<PrId> = later.iter().filter_map(pr_of).collect();
    if prs.is_empty() {
        return Ok(Vec::new());
    }
    let mut records = queries::records(cx.store(), &prs, cx.now()).await?;
    records.retain(|record| {
        let policy = cx.policies().for_repo(&record.id.repo);
        record.put_off.is_some_and(|put_off| rows.gates().has_released(put_off))
            || (!cx.is_scheduled() && record.active_run.is_none() && record.is_stale(policy, cx.now()))
    });
    let released: BTreeSet<PrId> = records.into_iter().map(|record| record.id).collect();
    Ok(later.into_iter().filter(|entry| pr_of(entry).is_some_and(|pr| released.contains(&pr))).collect())
}

/// The rank of a pull request before its record is read: its priority, and how long it has been due.
fn rank(entry: &DueEntry, now: Timestamp) -> i64 {
    entry.priority + 5 * (now.duration_since(entry.due_at).as_hours() / 24).max(0)
}

/// The first `max` pull requests. The summary counts and names the others; a scheduled sweep visits them.
fn take_capped(mut ranked: Vec<PrId>, max: u32, summary: &mut SweepSummary) -> Vec<PrId> {
    let rest = ranked.split_off(ranked.len().min(usize::try_from(max.max(1)).unwrap_or(usize::MAX)));
    summary.count_deferred(&rest);
    ranked
}

/// The base branch has moved: every record on it is updated, and the highest ranked up to the limit are visited now.
/// The others are due, and a scheduled sweep visits them.
async fn on_base(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    repo: &RepoName,
    branch: &str,
    summary: &mut SweepSummary,
) -> Result<Vec<PrId>, StoreError> {
    let now = cx.now();
    let mut rest = queries::open_on_base(cx.store(), repo, branch, now).await?.into_iter();
    let mut records = Vec::new();
    summary.due = count(rest.len());
    loop {
        let group: Vec<PullRequest> = rest.by_ref().take(cx.concurrency()).collect();
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

/// Sets a later due date on an item that still matches the condition. An item that was deleted or changed meanwhile is
/// left as it is.
pub(crate) async fn defer(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    key: Key,
    by: SignedDuration,
    condition: Condition,
) -> Result<(), StoreError> {
    let now = cx.now();
    write_if(cx.store(), schema::set_due_at(key, saturating_after(now, by), condition), now).await?;
    Ok(())
}

/// Defers an item that cannot be decoded, so that it does not take the place of others in the index. Other store errors
/// are returned.
pub(crate) async fn defer_undecodable(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    key: Key,
    error: EngineError,
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    match error {
        EngineError::Store(StoreError::Corrupt(row, why)) => {
            warn!(%row, why, "skipping undecodable item; retry in 1 h");
            summary.unreadable += 1;
            defer(cx, key, UNDECODABLE_RETRY_AFTER, Condition::Present).await
        }
        EngineError::Store(error) => Err(error),
        // Another process is writing it.
        EngineError::WriteConflict { .. } => Ok(()),
    }
}
