//! Sweep triggers: the schedule, or a reconcile request. The same trigger has the same run id, so it starts one sweep.

use domain::id::RunId;
pub use domain::reconcile_request::ReconcileScope;
use domain::reconcile_request::{PendingRequest, ReconcileRequest};
use domain::run::RunTrigger;
use jiff::Timestamp;

/// The trigger of a sweep, and its scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepTrigger {
    /// The run id: the same for every delivery of the trigger.
    pub run: RunId,
    /// The lease holder: different for each process, so the id of the invocation.
    pub holder: String,
    pub kind: RunTrigger,
    /// The person who requested it, if any.
    pub requested_by: Option<String>,
    /// The idempotency key (R-SWEEP-3).
    pub key: Option<String>,
    pub scope: ReconcileScope,
    /// Only report what would be done.
    pub dry_run: bool,
    /// When the cause happened, if known: of two requests for the same scope the newer one wins.
    pub at: Option<Timestamp>,
}

impl SweepTrigger {
    /// A schedule slot starts one sweep, however often its event is delivered.
    pub fn scheduled(schedule: &str, slot: Timestamp, holder: impl Into<String>) -> Self {
        let minute = domain::breaker::minute_of(slot);
        Self {
            run: RunId::new(format!("{schedule}-{}", minute.strftime("%Y%m%dT%H%MZ"))),
            holder: holder.into(),
            kind: RunTrigger::Schedule,
            requested_by: None,
            key: Some(format!("scheduler:{schedule}:{minute}")),
            scope: ReconcileScope::All,
            dry_run: false,
            at: Some(slot),
        }
    }

    pub fn requested(run: RunId, scope: ReconcileScope, dry_run: bool, holder: impl Into<String>) -> Self {
        let trigger = RunTrigger::AdminApi;
        Self { run, holder: holder.into(), kind: trigger, requested_by: None, key: None, scope, dry_run, at: None }
    }

    /// The sweep of a request that was enqueued earlier.
    pub(crate) fn enqueued(request: &ReconcileRequest, pending: &PendingRequest, holder: &str) -> Self {
        Self {
            kind: pending.trigger,
            requested_by: pending.requested_by.clone(),
            at: Some(pending.at),
            ..Self::requested(pending.run.clone(), request.scope.clone(), request.dry_run, holder)
        }
    }
}
