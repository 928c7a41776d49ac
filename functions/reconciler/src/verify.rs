//! Compares pull requests with GitHub snapshots, corrects their records, and returns those that are still stale.

use std::collections::{BTreeMap, BTreeSet};

use domain::event::{Event, EventKind, Happened};
use domain::id::PrId;
use domain::pull_request::Record;
use domain::snapshot::{Live, Snapshot};
use futures_util::future::join_all;
use platform::github::{GitHub, Unread};
use platform::http::CallError;
use platform::outlets::Outlets;
use platform::store::{Store, StoreError};
use platform::sweep_summary::{Skip, Summary};
use tracing::{info, warn};

use crate::context::SweepContext;
use crate::execution::ApplyError;
use crate::limits::Deferral;
use crate::visit::VisitOutcome;

/// The result of comparing a pull request with GitHub.
enum Verified {
    /// The visit ends here.
    Finished(VisitOutcome),
    Stale(Box<Record>, Live),
}

struct VisitReport {
    pr: PrId,
    verified: Verified,
    events: Vec<Event>,
    compared: bool,
}

pub(crate) async fn verify(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    records: Vec<Record>,
    compared: &mut BTreeSet<PrId>,
    summary: &mut Summary,
) -> Result<Vec<(Record, Live)>, StoreError> {
    let nodes = join_all(records.iter().map(|record| node_of(cx.github, record))).await;
    let nodes: Vec<(PrId, String)> = nodes.into_iter().flatten().collect();
    let read = cx.github.snapshots(&nodes, cx.policies()).await;
    let mut read: BTreeMap<PrId, Result<Snapshot, Unread>> = read.into_iter().collect();
    let mut stale = Vec::new();
    let mut rest = records.into_iter();
    loop {
        let group: Vec<Record> = rest.by_ref().take(cx.concurrency()).collect();
        if group.is_empty() {
            return Ok(stale);
        }
        let visits = group.into_iter().map(|record| {
            let unknown = || Err(Unread::Partial { why: "cannot read the node id".to_owned() });
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
                Verified::Finished(outcome) => outcome.count(summary),
                Verified::Stale(record, live) => stale.push((*record, live)),
            }
        }
    }
}

/// The GraphQL node id of a pull request. It is looked up once for records whose events did not contain it; the
/// snapshot then adds it to the record.
async fn node_of(github: &GitHub, record: &Record) -> Option<(PrId, String)> {
    let node_id = match &record.node_id {
        Some(node_id) => node_id.clone(),
        None => github.pull(&record.id).await.ok()?.node_id,
    };
    Some((record.id.clone(), node_id))
}

async fn compare(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    record: Record,
    snapshot: Result<Snapshot, Unread>,
) -> Result<VisitReport, StoreError> {
    let (pr, compared) = (record.id.clone(), snapshot.is_ok());
    let done = match snapshot {
        Ok(snapshot) => apply_snapshot(cx, record, snapshot).await,
        Err(unread) => skip_unread(cx, record, &unread).await.map(|outcome| (Verified::Finished(outcome), Vec::new())),
    };
    let (verified, events) = match done {
        Ok(done) => done,
        Err(error) => (Verified::Finished(cx.classify_error(error)?), Vec::new()),
    };
    Ok(VisitReport { pr, verified, events, compared })
}

async fn skip_unread(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    record: Record,
    unread: &Unread,
) -> Result<VisitOutcome, ApplyError> {
    if let Unread::Failed(CallError::Unauthorized { .. }) = unread {
        warn!(pr = %record.id, %unread, "GitHub rejected our credentials");
    }
    let until = unread.until();
    let why = if until.is_some() { Skip::RateLimit } else { Skip::Unread };
    cx.skip(record, Deferral { skip: why, why: unread.to_string(), until }).await
}

async fn apply_snapshot(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    record: Record,
    snapshot: Snapshot,
) -> Result<(Verified, Vec<Event>), ApplyError> {
    let (live, read_at, pr) = (snapshot.live, snapshot.read_at, record.id.clone());
    let mut fact = cx.fact(&pr, "verify", Happened::Verified(Box::new(snapshot)));
    fact.occurred_at = read_at;
    let applied = cx.apply(record, &fact).await?;
    if let Some(drift) = applied.events.iter().find(|event| event.kind == EventKind::StateDriftCorrected) {
        info!(%pr, "{}", drift.payload.text);
    }
    cx.link_replacement(&pr, &applied).await;
    let policy = cx.policies().for_repo(&pr.repo);
    let verified = match applied.record {
        None => Verified::Finished(VisitOutcome::Skipped(Skip::Overtaken)),
        Some(record) if record.state.is_terminal() => Verified::Finished(VisitOutcome::Ended),
        Some(record) if record.is_stale(policy, cx.now()) => Verified::Stale(Box::new(record), live),
        Some(_) => Verified::Finished(VisitOutcome::Healthy),
    };
    Ok((verified, applied.events))
}

/// Counts corrected drift, and the missed events by kind.
fn count_drift(events: &[Event], summary: &mut Summary) {
    for event in events.iter().filter(|event| event.kind == EventKind::StateDriftCorrected) {
        summary.drifted += 1;
        if let Some(missed) = &event.payload.name {
            summary.lose(missed);
        }
    }
}
