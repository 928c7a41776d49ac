//! Compares pull requests with GitHub snapshots, corrects their records, and returns those that are still stale.

use std::collections::{BTreeMap, BTreeSet};

use domain::event::{Event, EventKind, FactKind};
use domain::id::PrId;
use domain::pull_request::PullRequest;
use domain::snapshot::{LiveStatus, Snapshot};
use futures_util::future::join_all;
use platform::github::{GitHub, SnapshotError};
use platform::publish::Publisher;
use platform::store::{Store, StoreError};
use platform::sweep_summary::{SkipReason, SweepSummary};
use platform::transport::ApiError;
use tracing::{info, warn};

use crate::context::SweepContext;
use crate::execution::ApplyError;
use crate::limits::Deferral;
use crate::visit::VisitOutcome;

/// The result of comparing a pull request with GitHub.
enum VerifyResult {
    /// The visit ends here.
    Finished(VisitOutcome),
    Stale(Box<PullRequest>, LiveStatus),
}

struct VisitReport {
    pr: PrId,
    verified: VerifyResult,
    events: Vec<Event>,
    compared: bool,
}

pub(crate) async fn verify(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    records: Vec<PullRequest>,
    compared: &mut BTreeSet<PrId>,
    summary: &mut SweepSummary,
) -> Result<Vec<(PullRequest, LiveStatus)>, StoreError> {
    let nodes = join_all(records.iter().map(|record| node_of(cx.github, record))).await;
    let nodes: Vec<(PrId, String)> = nodes.into_iter().flatten().collect();
    let read = cx.github.snapshots(&nodes, cx.policies()).await;
    if let Some(error) = read.iter().find_map(|(_, snapshot)| unreachable(snapshot)) {
        summary.github_error = Some(error);
    }
    let mut read: BTreeMap<PrId, Result<Snapshot, SnapshotError>> = read.into_iter().collect();
    let mut stale = Vec::new();
    let mut rest = records.into_iter();
    loop {
        let group: Vec<PullRequest> = rest.by_ref().take(cx.concurrency()).collect();
        if group.is_empty() {
            return Ok(stale);
        }
        let visits = group.into_iter().map(|record| {
            let unknown = || Err(SnapshotError::Partial { why: "cannot read the node id".to_owned() });
            let snapshot = read.remove(&record.id).unwrap_or_else(unknown);
            compare(cx, record, snapshot)
        });
        for report in join_all(visits).await {
            let report = report?;
            if report.compared {
                summary.verified += 1;
                compared.insert(report.pr);
            }
            count_drift(&report.events, summary);
            match report.verified {
                VerifyResult::Finished(outcome) => outcome.count(summary),
                VerifyResult::Stale(record, live) => stale.push((*record, live)),
            }
        }
    }
}

/// Why GitHub could not be reached. A pull request that GitHub does not show, or shows in part, is not an outage.
fn unreachable(snapshot: &Result<Snapshot, SnapshotError>) -> Option<String> {
    match snapshot {
        Err(SnapshotError::Failed(
            error @ (ApiError::Unavailable { .. } | ApiError::Unauthorized { .. } | ApiError::RateLimited { .. }),
        )) => Some(error.to_string()),
        Err(SnapshotError::Failed(
            ApiError::NotFound { .. }
            | ApiError::Refused { .. }
            | ApiError::Conflict { .. }
            | ApiError::Unreadable { .. },
        )) => None,
        Err(SnapshotError::Gone | SnapshotError::Renamed { .. } | SnapshotError::Partial { .. }) | Ok(_) => None,
    }
}

/// The GraphQL node id of a pull request. It is looked up once for records whose events did not contain it; the
/// snapshot then adds it to the record.
async fn node_of(github: &GitHub, record: &PullRequest) -> Option<(PrId, String)> {
    let node_id = match &record.node_id {
        Some(node_id) => node_id.clone(),
        None => github.pull(&record.id).await.ok()?.node_id,
    };
    Some((record.id.clone(), node_id))
}

async fn compare(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    record: PullRequest,
    snapshot: Result<Snapshot, SnapshotError>,
) -> Result<VisitReport, StoreError> {
    let (pr, compared) = (record.id.clone(), snapshot.is_ok());
    let done = match snapshot {
        Ok(snapshot) => apply_snapshot(cx, record, snapshot).await,
        Err(unread) => {
            skip_unread(cx, record, &unread).await.map(|outcome| (VerifyResult::Finished(outcome), Vec::new()))
        }
    };
    let (verified, events) = match done {
        Ok(done) => done,
        Err(error) => (VerifyResult::Finished(cx.classify_error(error)?), Vec::new()),
    };
    Ok(VisitReport { pr, verified, events, compared })
}

async fn skip_unread(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    record: PullRequest,
    unread: &SnapshotError,
) -> Result<VisitOutcome, ApplyError> {
    if let SnapshotError::Failed(ApiError::Unauthorized { .. }) = unread {
        warn!(pr = %record.id, %unread, "GitHub rejected our credentials");
    }
    let until = unread.until();
    let why = if until.is_some() { SkipReason::RateLimit } else { SkipReason::Unread };
    cx.skip(record, Deferral { skip: why, why: unread.to_string(), until, gate: None }).await
}

async fn apply_snapshot(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    record: PullRequest,
    snapshot: Snapshot,
) -> Result<(VerifyResult, Vec<Event>), ApplyError> {
    let (live, read_at, pr) = (snapshot.live, snapshot.read_at, record.id.clone());
    let mut fact = cx.fact(&pr, "verify", FactKind::Verified(Box::new(snapshot)));
    fact.occurred_at = read_at;
    let applied = cx.apply(record, &fact).await?;
    if let Some(drift) = applied.events.iter().find(|event| event.kind == EventKind::StateDriftCorrected) {
        info!(%pr, "{}", drift.payload.text);
    }
    cx.link_replacement(&pr, &applied).await;
    let policy = cx.policies().for_repo(&pr.repo);
    let verified = match applied.record {
        None => VerifyResult::Finished(VisitOutcome::Skipped(SkipReason::Overtaken)),
        Some(record) if record.state.is_terminal() => VerifyResult::Finished(VisitOutcome::Ended),
        Some(record) if record.is_stale(policy, cx.now()) => VerifyResult::Stale(Box::new(record), live),
        Some(_) => VerifyResult::Finished(VisitOutcome::Healthy),
    };
    Ok((verified, applied.events))
}

/// Counts corrected drift, and the missed events by kind.
fn count_drift(events: &[Event], summary: &mut SweepSummary) {
    for event in events.iter().filter(|event| event.kind == EventKind::StateDriftCorrected) {
        summary.drifted += 1;
        if let Some(missed) = &event.payload.name {
            summary.count_failure(missed);
        }
    }
}
