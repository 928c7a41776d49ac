//! Reconcile requests (R-TRIGGER-1 to R-TRIGGER-9): enqueue, start, complete, cancel. A request is a row with a due date, so there is no
//! second queue. The rules are in `domain::reconcile_request`; this module stores the request together with its run, and counts toward
//! the daily limits.

use domain::id::RunId;
use domain::policy::{Policies, Triggers};
use domain::pull_request::visit_backoff;
use domain::reconcile_request::{
    CancelResult, EnqueueResult, NewRequest, PendingRequest, QueuedRequest, ReconcileRequest, ReconcileScope,
    RequestCompletion, RequestNextStep, RequestState, StartResult,
};
use domain::run::{Initiator, Run, RunError, RunState, RunTrigger, TransitionContext};
use domain::text::sweep as sweep_text;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use tracing::info;

use crate::store::counter;
use crate::store::not_before;
use crate::store::queries::read;
use crate::store::schema;
use crate::store::versioned::{Conflicts, write_all_if, write_if};
use crate::store::{Condition, RowWrite, Store, StoreError};

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Retention of a cancel flag; no sweep runs longer.
const CANCEL_RETENTION: SignedDuration = SignedDuration::from_hours(1);

/// The result of enqueueing a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnqueueOutcome {
    Queued(Box<PendingRequest>),
    AlreadyKnown(RequestState),
    /// A newer request covers this one.
    Superseded {
        by: RunId,
    },
    /// Over the daily limit, with the sentence for the requester. The scheduled sweep does the work.
    OverLimit(String),
}

/// The settings of a scope.
fn settings_of<'a>(policies: &'a Policies, scope: &ReconcileScope) -> &'a Triggers {
    let policy = scope.repo().map_or(policies.base(), |repo| policies.for_repo(repo));
    &policy.triggers
}

/// Loads a request.
pub async fn load<S: Store>(store: &S, key: &str, now: Timestamp) -> Result<Option<ReconcileRequest>, StoreError> {
    read(store, &schema::request_key(key), now).await
}

/// Enqueues a reconcile of a scope. On return the request is stored, or the result says why not.
pub async fn enqueue<S: Store>(
    store: &S,
    policies: &Policies,
    (scope, dry_run): (&ReconcileScope, bool),
    ask: &NewRequest,
    now: Timestamp,
) -> Result<EnqueueOutcome, StoreError> {
    let key = ReconcileRequest::key_of(scope, dry_run);
    // A promised run that has ended, for instance by a cancel, is not started again by a late message.
    let promised = if ask.trigger == RunTrigger::AdminApi { run_of(store, &ask.run, now).await? } else { None };
    if promised.is_some_and(|run| run.state.is_terminal()) {
        return Ok(EnqueueOutcome::AlreadyKnown(RequestState::Finished));
    }
    let mut counted = false;
    let mut conflicts = Conflicts::new(&ask.run);
    loop {
        let known = load(store, &key, now).await?;
        let loaded = known.as_ref().map(|request| request.version);
        let request = known.unwrap_or_else(|| ReconcileRequest::new(scope.clone(), dry_run));
        let queued = match request.enqueue(ask, settings_of(policies, scope), now) {
            EnqueueResult::Queued(queued) => queued,
            EnqueueResult::Known(standing) => return Ok(EnqueueOutcome::AlreadyKnown(standing)),
            EnqueueResult::Superseded { by } => {
                record_superseded(store, policies, (&key, ask), &by, now).await?;
                return Ok(EnqueueOutcome::Superseded { by });
            }
        };
        if queued.is_first && !counted {
            if let Some(why) = count_toward_limit(store, policies, scope, now).await? {
                info!(request = key, run = %ask.run, why, "request over daily limit; left to the scheduled sweep");
                return Ok(EnqueueOutcome::OverLimit(why));
            }
            counted = true;
        }
        let writes = queue_writes(store, policies, &queued, loaded, now).await?;
        if write_all_if(store, writes, now).await? {
            let queued_as = |asked: &PendingRequest| EnqueueOutcome::Queued(Box::new(asked.clone()));
            return Ok(queued.request.waiting().map_or(EnqueueOutcome::AlreadyKnown(RequestState::Waiting), queued_as));
        }
        conflicts.pause().await?;
    }
}

/// Counts a request toward the daily limits; returns a sentence if a limit is exceeded. Requests for everything are exempt: they are
/// rare, and made when much is wrong.
pub async fn count_toward_limit<S: Store>(
    store: &S,
    policies: &Policies,
    scope: &ReconcileScope,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    let Some(repo) = scope.repo() else { return Ok(None) };
    let (of_repo, of_org) = (settings_of(policies, scope).per_repo_per_day, policies.base().triggers.per_org_per_day);
    for (name, limit) in [(repo.as_str(), of_repo), (repo.owner(), of_org)] {
        if counter::count_in_window(store, &format!("requests#{name}"), DAY, now).await? > i64::from(limit) {
            return Ok(Some(sweep_text::too_many_requests(name, limit)));
        }
    }
    Ok(None)
}

fn put(request: &ReconcileRequest, loaded: Option<u64>, now: Timestamp) -> Result<RowWrite, StoreError> {
    let (key, item) = schema::request_row(request, now)?;
    Ok(RowWrite::Put { key, item, only_if: loaded.map_or(Condition::Absent, Condition::Version) })
}

fn put_run(run: &Run, loaded: Option<u64>, policies: &Policies) -> Result<RowWrite, StoreError> {
    let (key, item) = schema::run_row(run, policies.base())?;
    Ok(RowWrite::Put { key, item, only_if: loaded.map_or(Condition::Absent, Condition::Version) })
}

async fn run_of<S: Store>(store: &S, id: &RunId, now: Timestamp) -> Result<Option<Run>, StoreError> {
    read(store, &schema::run_key(id), now).await
}

/// The pending run of a request.
fn pending(key: &str, run: &RunId, trigger: RunTrigger, requested_by: Option<&str>, now: Timestamp) -> Run {
    let mut run = Run::sweep(run.clone(), trigger, now);
    run.requested_by = requested_by.map(str::to_owned);
    run.request = Some(key.to_owned());
    run
}

/// The writes of one transaction: the request, its promised run, the run that it supersedes, and the cancel flag for the running one.
async fn queue_writes<S: Store>(
    store: &S,
    policies: &Policies,
    queued: &QueuedRequest,
    loaded: Option<u64>,
    now: Timestamp,
) -> Result<Vec<RowWrite>, StoreError> {
    let request = &queued.request;
    let mut writes = vec![put(request, loaded, now)?];
    let Some(asked) = request.waiting() else { return Ok(writes) };
    if asked.has_promised_run() {
        let run = pending(&request.key(), &asked.run, asked.trigger, asked.requested_by.as_deref(), now);
        writes.push(put_run(&run, None, policies)?);
    }
    if let Some(replaced) =
        queued.replaced.as_ref().filter(|replaced| replaced.has_promised_run() || replaced.tries > 0)
    {
        writes.extend(cancelled(store, policies, &replaced.run, sweep_text::superseded(&asked.run), now).await?);
    }
    if let Some(run) = &queued.cancel_running {
        writes.push(not_before::write(&cancel_name(run), saturating_after(now, CANCEL_RETENTION)));
    }
    Ok(writes)
}

/// Ends a run, unless it is missing or has ended.
async fn ended<S: Store>(
    store: &S,
    policies: &Policies,
    run: &RunId,
    end: impl FnOnce(Run) -> Result<Run, RunError>,
    now: Timestamp,
) -> Result<Option<RowWrite>, StoreError> {
    let Some(run) = run_of(store, run, now).await? else { return Ok(None) };
    let loaded = run.version;
    end(run).ok().map(|run| put_run(&run, Some(loaded), policies)).transpose()
}

async fn cancelled<S: Store>(
    store: &S,
    policies: &Policies,
    run: &RunId,
    why: String,
    now: Timestamp,
) -> Result<Option<RowWrite>, StoreError> {
    let context = TransitionContext::new(Initiator::System, now);
    ended(store, policies, run, |run| run.cancel(why, context), now).await
}

/// Records a promised run as superseded, so that its requester sees it.
async fn record_superseded<S: Store>(
    store: &S,
    policies: &Policies,
    (key, ask): (&str, &NewRequest),
    by: &RunId,
    now: Timestamp,
) -> Result<(), StoreError> {
    info!(request = key, run = %ask.run, %by, "request superseded by a newer one");
    if ask.trigger != RunTrigger::AdminApi {
        return Ok(());
    }
    let run = pending(key, &ask.run, ask.trigger, ask.requested_by.as_deref(), now);
    let context = TransitionContext::new(Initiator::System, now);
    let Ok(run) = run.cancel(sweep_text::superseded(by), context) else { return Ok(()) };
    write_if(store, put_run(&run, None, policies)?, now).await?;
    Ok(())
}

fn cancel_name(run: &RunId) -> String {
    format!("cancel-{run}")
}

/// Requests a sweep to stop at its next stage, claim or write.
pub async fn request_cancel<S: Store>(store: &S, run: &RunId, now: Timestamp) -> Result<(), StoreError> {
    not_before::set(store, &cancel_name(run), saturating_after(now, CANCEL_RETENTION), now).await
}

/// Whether a sweep was requested to stop.
pub async fn is_cancel_requested<S: Store>(store: &S, run: &RunId, now: Timestamp) -> Result<bool, StoreError> {
    Ok(not_before::load(store, &cancel_name(run), now).await?.is_some())
}

/// Cancels a run: a pending one is removed, a running one gets the cancel flag, a finished one is unchanged.
pub async fn cancel<S: Store>(
    store: &S,
    policies: &Policies,
    (key, run): (&str, &RunId),
    by: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut conflicts = Conflicts::new(run);
    loop {
        let Some(request) = load(store, key, now).await? else { return Ok(()) };
        let removed = match request.cancel(run) {
            CancelResult::Removed(removed) => removed,
            CancelResult::Running => return request_cancel(store, run, now).await,
            CancelResult::NotFound => return Ok(()),
        };
        let mut writes = vec![put(&removed, Some(request.version), now)?];
        writes.extend(cancelled(store, policies, run, format!("{by} cancelled it"), now).await?);
        if write_all_if(store, writes, now).await? {
            return Ok(());
        }
        conflicts.pause().await?;
    }
}

/// A started request.
#[derive(Debug, Clone, PartialEq)]
pub struct StartedRequest {
    pub request: ReconcileRequest,
    pub pending: PendingRequest,
    pub run: Run,
}

/// The result of starting a request.
#[derive(Debug, Clone, PartialEq)]
pub enum StartOutcome {
    Started(Box<StartedRequest>),
    /// Another worker holds it, or it is not due yet.
    NotYet {
        by: String,
        until: Timestamp,
    },
    /// Nothing is pending, or it has ended.
    Nothing,
}

/// Starts the pending request of a key: the request and its run, in one write.
pub async fn start<S: Store>(
    store: &S,
    policies: &Policies,
    request: &ReconcileRequest,
    (holder, until): (&str, Timestamp),
    now: Timestamp,
) -> Result<StartOutcome, StoreError> {
    let settings = settings_of(policies, &request.scope);
    let (next, asked, overtaken) = match request.start(holder, until, settings, now) {
        StartResult::Started { request, asked, overtaken } => (request, asked, overtaken),
        StartResult::GivenUp { request: next, asked } => {
            let error = asked.error.clone().unwrap_or_else(|| "every worker crashed or timed out".to_owned());
            let mut writes = vec![put(&next, Some(request.version), now)?];
            let context = TransitionContext::new(Initiator::Timeout, now);
            let fail = |run: Run| run.fail("given up", error, context);
            writes.extend(ended(store, policies, &asked.run, fail, now).await?);
            return write_all_if(store, writes, now).await.map(|_| StartOutcome::Nothing);
        }
        StartResult::Busy { by, until } => return Ok(StartOutcome::NotYet { by, until }),
        StartResult::NotYet { until } => return Ok(StartOutcome::NotYet { by: "its due date".to_owned(), until }),
        StartResult::Nothing => return Ok(StartOutcome::Nothing),
    };
    let known = run_of(store, &asked.run, now).await?;
    let loaded = known.as_ref().map(|run| run.version);
    let by = asked.requested_by.as_deref();
    let run = known.unwrap_or_else(|| pending(&next.key(), &asked.run, asked.trigger, by, now));
    let mut writes = Vec::new();
    let run = match under_way(run, holder, until, now) {
        Ok(run) => run,
        // The run has ended, so the request ends too.
        Err(_) => {
            let (over, _) =
                next.complete(&asked.run, RequestCompletion::Cancelled, visit_backoff(policies.base()), settings, now);
            writes.push(put(&over, Some(request.version), now)?);
            return write_all_if(store, writes, now).await.map(|_| StartOutcome::Nothing);
        }
    };
    writes.push(put(&next, Some(request.version), now)?);
    writes.push(put_run(&run, loaded, policies)?);
    if let Some(orphaned) = overtaken {
        writes.extend(cancelled(store, policies, &orphaned, sweep_text::superseded(&asked.run), now).await?);
    }
    if write_all_if(store, writes, now).await? {
        return Ok(StartOutcome::Started(Box::new(StartedRequest { request: *next, pending: *asked, run })));
    }
    Ok(StartOutcome::NotYet { by: "another worker".to_owned(), until: now })
}

/// The run with this worker's lease. On a retry it is already running: its last worker released it or crashed.
fn under_way(mut run: Run, holder: &str, until: Timestamp, now: Timestamp) -> Result<Run, RunError> {
    (run.lease_until, run.lease_holder) = (None, None);
    let run = run.acquire_lease(holder, now, until)?;
    if run.state == RunState::Running {
        return Ok(run);
    }
    run.advance(RunState::Running, TransitionContext::new(Initiator::System, now))
}

/// Completes a request; the request and its run are one write. `close` returns the run's final version.
pub async fn complete<S: Store>(
    store: &S,
    policies: &Policies,
    started: &StartedRequest,
    end: RequestCompletion<'_>,
    close: impl Fn(Run, &RequestNextStep) -> Option<Run>,
    now: Timestamp,
) -> Result<RequestNextStep, StoreError> {
    let settings = settings_of(policies, &started.request.scope);
    let pauses = visit_backoff(policies.base());
    let mut conflicts = Conflicts::new(&started.pending.run);
    loop {
        let Some(request) = load(store, &started.request.key(), now).await? else { return Ok(RequestNextStep::Lost) };
        let (next, then) = request.complete(&started.pending.run, end, pauses, settings, now);
        if then == RequestNextStep::Lost {
            return Ok(then);
        }
        let mut writes = vec![put(&next, Some(request.version), now)?];
        if let Some(run) = close(started.run.clone(), &then) {
            writes.push(put_run(&run, Some(started.run.version), policies)?);
        }
        if write_all_if(store, writes, now).await? {
            return Ok(then);
        }
        conflicts.pause().await?;
    }
}
