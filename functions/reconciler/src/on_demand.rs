//! Reconcile requests (R-TRIGGER-1 to R-TRIGGER-10) run before the next scheduled sweep. Each is a separate sweep over
//! its scope: one at a time per repository, and a limited number in total. The scheduled sweep runs the due requests;
//! an event runs the request it names.

use std::collections::BTreeSet;

use domain::id::{PrId, RepoName, RunId};
use domain::reconcile_request::{ReconcileRequest, ReconcileScope, RequestCompletion, RequestNextStep};
use domain::run::{Initiator, Run, RunStep, TransitionContext};
use domain::text::sweep as sweep_text;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use platform::engine::EngineError;
use platform::publish::Publisher;
use platform::reconcile_request::{self, StartOutcome, StartedRequest};
use platform::store::lease::LeaseResult;
use platform::store::queries;
use platform::store::schema;
use platform::store::slot;
use platform::store::slot::SlotResult;
use platform::store::{Store, StoreError};
use platform::sweep_summary::SweepSummary;
use tracing::{info, warn};

use crate::context::{RESERVE, SNAPSHOT_RESERVE, SweepContext, saturating_after};
use crate::due::defer_undecodable;
use crate::execution::Execution;
use crate::reconciler::Reconciler;
use crate::sweep::{self, SweepReport, SweepStart, summary_step};
use crate::trigger::SweepTrigger;

const ALL_REQUESTS: &str = "requests";
/// Concurrent requests of one repository.
const PER_REPO: u32 = 1;

/// The result of trying to run a request.
pub(crate) enum RequestOutcome {
    /// It has ended; these pull requests were compared with GitHub.
    Done(Box<SweepSummary>, BTreeSet<PrId>),
    /// It waits for its due date, for a slot, or for the sweep that is running it.
    Deferred { by: String, until: Timestamp },
    /// The request is no longer pending.
    Noop,
}

/// The slots a request holds while it is swept.
enum HeldSlots {
    /// Dry runs and nested sweeps need no slot.
    None,
    /// The lease of the scheduled sweep.
    Lease(String),
    /// A slot of the repository, and one of the total.
    Slots(RepoName, RunId),
}

fn repo_slot(repo: &RepoName) -> String {
    format!("{ALL_REQUESTS}:{repo}")
}

impl<S: Store, O: Publisher> Reconciler<S, O> {
    /// Sweeps the due requests in rounds of `max_concurrent`, one per repository. Returns the pull requests that were
    /// compared with GitHub.
    pub(crate) async fn sweep_due(
        &self,
        cx: &SweepContext<'_, S, O>,
        keys: &[String],
        summary: &mut SweepSummary,
    ) -> BTreeSet<PrId> {
        let mut compared = BTreeSet::new();
        if keys.is_empty() || !cx.should_continue(summary).await {
            return compared;
        }
        let read = due_requests(cx, keys, summary).await;
        let mut rest = read.unwrap_or_else(|error| {
            cx.stage_failed("requests", &error, summary);
            Vec::new()
        });
        let at_once = usize::try_from(cx.policies().base().triggers.max_concurrent).unwrap_or(1).max(1);
        while !rest.is_empty() && cx.should_continue(summary).await {
            let (round, later) = next_round(rest, at_once);
            rest = later;
            let (holder, deadline) = (&cx.trigger.holder, cx.deadline);
            // Boxed one by one: the futures are large.
            let sweeps = round.iter().map(|request| Box::pin(self.sweep_request(request, holder, deadline, true)));
            for (request, outcome) in round.iter().zip(join_all(sweeps).await) {
                match outcome {
                    Ok(RequestOutcome::Done(_, seen)) => {
                        summary.requests += 1;
                        compared.extend(seen);
                    }
                    Ok(RequestOutcome::Deferred { by, until }) => {
                        info!(request = request.key(), by, %until, "reconcile request deferred");
                    }
                    Ok(RequestOutcome::Noop) => {}
                    Err(error) => cx.stage_failed("requests", &error, summary),
                }
            }
        }
        compared
    }

    /// Sweeps one request, if it is due and there is a slot.
    pub(crate) async fn sweep_request(
        &self,
        request: &ReconcileRequest,
        holder: &str,
        deadline: Timestamp,
        nested: bool,
    ) -> Result<RequestOutcome, StoreError> {
        let (policies, now) = (self.engine.policies(), self.clock.now());
        match request.due_at() {
            None => return Ok(RequestOutcome::Noop),
            Some(until) if until > now => return Ok(RequestOutcome::Deferred { by: "its due date".to_owned(), until }),
            Some(_) => {}
        }
        let policy = request.scope.repo().map_or(policies.base(), |repo| policies.for_repo(repo));
        let timeout = SignedDuration::from_mins(i64::from(policy.triggers.timeout_minutes));
        let until = deadline.min(saturating_after(now, timeout));
        if saturating_after(now, SNAPSHOT_RESERVE + RESERVE) >= until {
            // It would end before it could read a snapshot, and still count as done.
            return Ok(RequestOutcome::Deferred { by: "the deadline of this sweep".to_owned(), until: deadline });
        }
        let slots = match self.acquire_slots(request, holder, until, nested).await? {
            Ok(slots) => slots,
            Err(later) => return Ok(later),
        };
        let outcome = match reconcile_request::start(self.store(), policies, request, (holder, until), now).await {
            Ok(StartOutcome::Started(started)) => self.run_request(&started, holder, until).await,
            Ok(StartOutcome::NotYet { by, until }) => Ok(RequestOutcome::Deferred { by, until }),
            Ok(StartOutcome::Nothing) => Ok(RequestOutcome::Noop),
            Err(error) => Err(error),
        };
        self.release_slots(slots).await;
        outcome
    }

    /// Runs the stages of a request that has started, and ends it.
    async fn run_request(
        &self,
        started: &StartedRequest,
        holder: &str,
        until: Timestamp,
    ) -> Result<RequestOutcome, StoreError> {
        let StartedRequest { request, pending, .. } = started;
        let trigger = SweepTrigger::enqueued(request, pending, holder);
        let cx = SweepContext::new(self, &trigger, until);
        let start = SweepStart::read(&cx).await;
        let mut report = Box::pin(sweep::run(self, &cx, start)).await;
        report.summary.coalesced = pending.coalesced;
        if matches!(request.scope, ReconcileScope::One(_)) && report.compared.is_empty() && report.summary.remaining > 0
        {
            // The scheduled sweep finds only due pull requests, so the request itself is retried.
            report.first_failure.get_or_insert_with(|| "GitHub could not be read".to_owned());
        }
        let end = match &report.first_failure {
            _ if report.summary.cancelled => RequestCompletion::Cancelled,
            Some(error) => RequestCompletion::Failed(error),
            None => RequestCompletion::Done,
        };
        let now = cx.now();
        let close = |run: Run, next: &RequestNextStep| closed_run(run, next, &report, pending.tries, cx.now());
        let next = reconcile_request::complete(cx.store(), cx.policies(), started, end, close, now).await?;
        let summary = report.summary.sentence();
        info!(request = request.key(), run = %pending.run, coalesced = pending.coalesced, ?next, summary, "reconcile request completed");
        Ok(RequestOutcome::Done(Box::new(report.summary), report.compared))
    }

    async fn acquire_slots(
        &self,
        request: &ReconcileRequest,
        holder: &str,
        until: Timestamp,
        nested: bool,
    ) -> Result<Result<HeldSlots, RequestOutcome>, StoreError> {
        let (store, now) = (self.store(), self.clock.now());
        let pending = request.waiting().or_else(|| request.running());
        let Some(pending) = pending.filter(|_| Execution::from(request).needs_slot()) else {
            return Ok(Ok(HeldSlots::None));
        };
        let Some(repo) = request.scope.repo() else {
            if nested {
                return Ok(Ok(HeldSlots::None));
            }
            return Ok(match self.acquire_lease(holder, until, now).await? {
                LeaseResult::Held => Ok(HeldSlots::Lease(holder.to_owned())),
                LeaseResult::HeldByOther { by, until } => Err(RequestOutcome::Deferred { by, until }),
            });
        };
        let (run, slot) = (pending.run.as_str(), repo_slot(repo));
        let full = |by: &str, until| Ok(Err(RequestOutcome::Deferred { by: by.to_owned(), until }));
        if let SlotResult::Full { until } = slot::acquire(store, &slot, PER_REPO, run, until, now).await? {
            return full("another request of the same repository", until);
        }
        let at_once = self.engine.policies().base().triggers.max_concurrent;
        if let SlotResult::Full { until } = slot::acquire(store, ALL_REQUESTS, at_once, run, until, now).await? {
            slot::release(store, &slot, PER_REPO, run, now).await?;
            return full("the limit of concurrent requests", until);
        }
        Ok(Ok(HeldSlots::Slots(repo.clone(), pending.run.clone())))
    }

    /// A slot that cannot be released expires.
    async fn release_slots(&self, slots: HeldSlots) {
        let (store, now) = (self.store(), self.clock.now());
        let (repo, run) = match slots {
            HeldSlots::None => return,
            HeldSlots::Lease(holder) => return self.release_lease(&holder).await,
            HeldSlots::Slots(repo, run) => (repo, run),
        };
        let at_once = self.engine.policies().base().triggers.max_concurrent;
        for (name, slots) in [(ALL_REQUESTS.to_owned(), at_once), (repo_slot(&repo), PER_REPO)] {
            if let Err(error) = slot::release(store, &name, slots, run.as_str(), now).await {
                warn!(%run, %error, "cannot release request slot");
            }
        }
    }
}

/// Loads the due requests, longest due first.
async fn due_requests(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    keys: &[String],
    summary: &mut SweepSummary,
) -> Result<Vec<ReconcileRequest>, StoreError> {
    let now = cx.now();
    let mut found = queries::requests(cx.store(), keys, now).await?;
    for key in keys.iter().filter(|key| found.iter().all(|request| request.key() != **key)) {
        if let Err(error) = reconcile_request::load(cx.store(), key, now).await {
            defer_undecodable(cx, schema::request_key(key), EngineError::Store(error), summary).await?;
        }
    }
    found.sort_by_key(|request| (request.due_at(), request.key()));
    Ok(found)
}

/// Splits off the requests that can be swept concurrently, one per repository; the rest follows in later rounds.
fn next_round(requests: Vec<ReconcileRequest>, at_once: usize) -> (Vec<ReconcileRequest>, Vec<ReconcileRequest>) {
    let (mut round, mut rest): (Vec<ReconcileRequest>, Vec<ReconcileRequest>) = (Vec::new(), Vec::new());
    let needs_slot = |request: &ReconcileRequest| Execution::from(request).needs_slot();
    for request in requests {
        let taken = round.iter().any(|other| needs_slot(other) && other.scope.repo() == request.scope.repo());
        let fits = round.len() < at_once && !(taken && needs_slot(&request));
        if fits { round.push(request) } else { rest.push(request) }
    }
    (round, rest)
}

/// The run of a request after the sweep; `None` if another process holds the request by now.
fn closed_run(run: Run, next: &RequestNextStep, report: &SweepReport, tries: u32, now: Timestamp) -> Option<Run> {
    let summary = &report.summary;
    let context = TransitionContext::new(Initiator::System, now);
    let (id, sentence, step) = (run.id.clone(), summary.sentence(), summary_step(summary, &run, now));
    let error = report.first_failure.clone().unwrap_or_default();
    let closed = match next {
        RequestNextStep::Lost => return None,
        RequestNextStep::Finished if summary.cancelled => {
            run.checkpoint(step).and_then(|run| run.cancel(sentence, context))
        }
        RequestNextStep::Finished => run.checkpoint(step).and_then(|run| run.complete(sentence, context)),
        RequestNextStep::Superseded { by } => {
            let sentence = format!("{}; {sentence}", sweep_text::superseded(by));
            run.checkpoint(step).and_then(|run| run.cancel(sentence, context))
        }
        RequestNextStep::GivenUp => run.checkpoint(step).and_then(|run| run.fail("retries exhausted", error, context)),
        RequestNextStep::Retry { .. } => {
            let step = RunStep::started(format!("try-{tries}"), run.updated_at).idempotent().failed(error, now);
            run.checkpoint(step).map(|run| Run { lease_until: None, lease_holder: None, ..run })
        }
    };
    match closed {
        Ok(run) => Some(Run { partial: summary.partial, ..run }),
        Err(error) => {
            warn!(run = %id, %error, "cannot close the run of a reconcile request");
            None
        }
    }
}
