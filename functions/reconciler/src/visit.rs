//! Visits pull requests: `verify` compares them with GitHub, `remediate` acts on the stale ones. Each visit ends with
//! one outcome and a new due date; a failed visit never ends the sweep.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use domain::admission::Gates;
use domain::id::PrId;
use domain::pull_request::PullRequest;
use domain::state::Strategy;
use platform::publish::Publisher;
use platform::store::queries;
use platform::store::schema;
use platform::store::{Store, StoreError};
use platform::sweep_summary::{SkipReason, SweepSummary};

use crate::context::{SNAPSHOT_RESERVE, SweepContext, count};
use crate::due::defer_undecodable;
use crate::limits::Limits;
use crate::limits::update_queue::UpdateQueues;
use crate::observe_report::ObservedWeek;
use crate::remediate::Remediation;
use crate::verify::verify;

/// Pull requests read from GitHub per batch: four queries of 25, and one for mergeability.
const BATCH_SIZE: usize = 100;

/// How a visit ended.
pub(crate) enum VisitOutcome {
    Healthy,
    Ended,
    Dispatched(Strategy),
    /// Escalated to a person; `spent` if only because a budget or the lifetime cap is exhausted.
    Escalated {
        spent: bool,
    },
    WouldRemedy,
    WouldEscalate,
    Skipped(SkipReason),
}

impl VisitOutcome {
    pub(crate) fn count(&self, summary: &mut SweepSummary) {
        match self {
            Self::Healthy => summary.healthy += 1,
            Self::Ended => summary.ended += 1,
            Self::Dispatched(strategy) => summary.dispatch(*strategy),
            Self::Escalated { spent } => {
                summary.escalated += 1;
                summary.loop_blocked += u32::from(*spent);
            }
            Self::WouldRemedy => summary.would_remedy += 1,
            Self::WouldEscalate => summary.would_escalate += 1,
            Self::Skipped(why) => summary.skip(*why),
        }
    }
}

/// Results of the visits so far, kept even if a visit fails.
#[derive(Default)]
pub(crate) struct VisitCounts {
    pub(crate) compared: BTreeSet<PrId>,
    pub(crate) week: ObservedWeek,
}

/// Visits pull requests: those ready to merge first, then the others by rank.
pub(crate) async fn visit<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    prs: &[PrId],
    gates: Option<&Gates>,
    visits: &mut VisitCounts,
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    if prs.is_empty() {
        return Ok(());
    }
    let now = cx.now();
    let mut records = queries::records(cx.store(), prs, now).await?;
    defer_missing(cx, prs, &records, summary).await?;
    records.sort_by_cached_key(|record| {
        let first = (record.is_merge_ready(), record.priority_score(now));
        (Reverse(first), record.due_at, record.id.clone())
    });
    cx.register_repos(&records).await;
    let in_flight = cx.count_in_flight().await?;
    summary.in_flight = in_flight;
    let limits = Limits { gates, queues: UpdateQueues::default(), in_flight };
    let mut remediation = Remediation { cx, limits };
    let mut rest = records.into_iter();
    loop {
        let chunk: Vec<PullRequest> = rest.by_ref().take(BATCH_SIZE).collect();
        if chunk.is_empty() {
            return Ok(());
        }
        let limited = cx.github.not_before().is_some();
        if limited || cx.ends_within(SNAPSHOT_RESERVE, summary) || !cx.should_continue(summary).await {
            // They stay due: a visit without a snapshot would only postpone them.
            summary.remaining += count(chunk.len() + rest.len());
            return Ok(());
        }
        let stale = verify(cx, chunk, &mut visits.compared, summary).await?;
        if !cx.should_continue(summary).await {
            // They stay due: the next sweep verifies them again.
            summary.remaining += count(stale.len() + rest.len());
            return Ok(());
        }
        remediation.remediate(stale, &mut visits.week, summary).await?;
    }
}

/// Defers index entries whose record cannot be decoded; deleted records need nothing.
async fn defer_missing(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    prs: &[PrId],
    records: &[PullRequest],
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    for pr in prs.iter().filter(|pr| records.iter().all(|record| record.id != **pr)) {
        if let Err(error) = cx.engine.load(pr, cx.now()).await {
            defer_undecodable(cx, schema::record_key(pr), error, summary).await?;
        }
    }
    Ok(())
}
