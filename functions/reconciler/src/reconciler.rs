//! The reconciler: starts sweeps, holds the lease that prevents two scheduled sweeps from overlapping, and writes the
//! run of each sweep. It keeps no state of its own (R-SWEEP-1 to R-SWEEP-17): a sweep queries the table for due items,
//! reads GitHub, and lets the domain decide. It claims remedies and never executes one. Items it does not reach stay
//! due; items it visits get a new due date. `sweep` lists the stages.

use std::sync::Arc;

use domain::id::RunId;
use domain::policy::Policies;
use domain::reconcile_request::{NewRequest, ReconcileRequest, RequestState};
use domain::run::{Initiator, Run, RunState, RunTrigger, TransitionContext};
use jiff::Timestamp;
use platform::clock::Clock;
use platform::engine::Engine;
use platform::engine::repo_registry::RepoRegistry;
use platform::github::GitHub;
use platform::jenkins::Jenkins;
use platform::publish::Publisher;
use platform::reconcile_request::{self, EnqueueOutcome};
use platform::store::lease;
use platform::store::lease::LeaseResult;
use platform::store::schema;
use platform::store::versioned::{write_all_if, write_if};
use platform::store::{Condition, RowWrite, Store, StoreError};
use platform::sweep_summary::SweepSummary;
use platform::transport::Transport;
use thiserror::Error;
use tracing::warn;

use crate::context::SweepContext;
use crate::digest::DigestingPublisher;
use crate::on_demand::RequestOutcome;
use crate::sweep::{self, SweepStart};
use crate::trigger::SweepTrigger;

/// The lease of the scheduled sweep.
const LEASE: &str = "sweep";

/// How a sweep ended.
#[derive(Debug, Clone, PartialEq)]
pub enum SweepOutcome {
    Done(Box<SweepSummary>),
    /// Another sweep is running and processes the due items.
    Busy {
        by: String,
        /// When the lease of the other sweep expires at the latest.
        until: Timestamp,
    },
    /// The same trigger has started a sweep before.
    DuplicateTrigger,
    /// A newer request for the same scope replaces this one.
    Superseded {
        by: RunId,
    },
    /// The daily limit of requests is reached; the text says which one.
    RateLimited(String),
}

/// The sweep could not start.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("cannot start the sweep: {0}")]
pub struct SweepError(#[from] pub StoreError);

/// Runs sweeps with a store, a publisher and the API clients.
#[derive(Debug)]
pub struct Reconciler<S, O> {
    pub(crate) engine: Engine<S, DigestingPublisher<O>>,
    pub(crate) github: GitHub,
    pub(crate) jenkins: Option<Jenkins>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) owners: Vec<String>,
    pub(crate) repos: RepoRegistry,
    pub(crate) http: Option<Transport>,
}

impl<S: Store, O: Publisher> Reconciler<S, O> {
    /// `owners` are the owners whose repositories the inventory lists when Suture runs without a GitHub App; an App
    /// lists its installations instead.
    pub fn new(
        store: S,
        publisher: O,
        policies: Policies,
        github: GitHub,
        jenkins: Option<Jenkins>,
        clock: Arc<dyn Clock>,
        owners: Vec<String>,
    ) -> Self {
        let engine = Engine::new(store, DigestingPublisher::new(publisher), policies);
        Self { engine, github, jenkins, clock, owners, repos: RepoRegistry::default(), http: None }
    }

    /// Adds the transport that requests health URLs after a merge.
    #[must_use]
    pub fn with_clients(mut self, http: Transport) -> Self {
        self.http = Some(http);
        self
    }

    pub fn store(&self) -> &S {
        self.engine.store()
    }

    /// Runs one scheduled or requested sweep, and ends before the deadline.
    ///
    /// Returns [`SweepError`] if the store does not answer at the start. Later errors are in the summary.
    pub async fn sweep(&self, trigger: &SweepTrigger, deadline: Timestamp) -> Result<SweepOutcome, SweepError> {
        // Boxed, here and below: a single future of all of these would be too large to move.
        if trigger.kind == RunTrigger::Schedule {
            Box::pin(self.scheduled(trigger, deadline)).await
        } else {
            Box::pin(self.requested(trigger, deadline)).await
        }
    }

    async fn scheduled(&self, trigger: &SweepTrigger, deadline: Timestamp) -> Result<SweepOutcome, SweepError> {
        let cx = SweepContext::new(self, trigger, deadline);
        let start = SweepStart::read(&cx).await;
        if let Some(summary) = start.idle_summary(&cx) {
            return self.record_idle(trigger, deadline, summary).await;
        }
        let run = match self.begin(trigger, deadline).await? {
            Ok(run) => run,
            Err(outcome) => return Ok(outcome),
        };
        let mut summary = Box::pin(sweep::run(self, &cx, start)).await.summary;
        if let Err(error) = self.end(&cx, run, &summary).await {
            cx.stage_failed("summary", &error, &mut summary);
        }
        Ok(SweepOutcome::Done(Box::new(summary)))
    }

    /// Records a sweep that found nothing to do. It needs no lease, because it does nothing.
    async fn record_idle(
        &self,
        trigger: &SweepTrigger,
        deadline: Timestamp,
        summary: SweepSummary,
    ) -> Result<SweepOutcome, SweepError> {
        let now = self.clock.now();
        let run = ended_run(started_run(trigger, deadline, now), &summary, now);
        let (key, item) = schema::run_row(&run, self.engine.policies().base())?;
        let first = write_if(self.store(), RowWrite::Put { key, item, only_if: Condition::Absent }, now).await?;
        Ok(if first { SweepOutcome::Done(Box::new(summary)) } else { SweepOutcome::DuplicateTrigger })
    }

    /// Acquires the lease and writes the run of the sweep, in one transaction.
    async fn begin(
        &self,
        trigger: &SweepTrigger,
        deadline: Timestamp,
    ) -> Result<Result<Run, SweepOutcome>, SweepError> {
        let now = self.clock.now();
        let run = started_run(trigger, deadline, now);
        let (key, item) = schema::run_row(&run, self.engine.policies().base())?;
        let first_time = RowWrite::Put { key, item, only_if: Condition::Absent };
        match lease::acquire_with(self.store(), LEASE, &trigger.holder, deadline, first_time, now).await? {
            Some(LeaseResult::Held) => Ok(Ok(run)),
            Some(LeaseResult::HeldByOther { by, until }) => Ok(Err(SweepOutcome::Busy { by, until })),
            None => Ok(Err(SweepOutcome::DuplicateTrigger)),
        }
    }

    /// Writes the run of a sweep that has ended, with its summary, and releases the lease.
    async fn end(&self, cx: &SweepContext<'_, S, O>, run: Run, summary: &SweepSummary) -> Result<(), StoreError> {
        let (now, loaded) = (cx.now(), run.version);
        let ended = ended_run(run, summary, now);
        let (key, item) = schema::run_row(&ended, cx.policies().base())?;
        let write = RowWrite::Put { key, item, only_if: Condition::Version(loaded) };
        let released = lease::release_write(LEASE, &cx.trigger.holder);
        if write_all_if(self.store(), vec![write.clone(), released], now).await? {
            return Ok(());
        }
        // The lease has expired meanwhile and is not ours to release.
        self.store().write(vec![write], now).await
    }

    /// An event names a request: it is enqueued like any other, and swept immediately if it may start.
    async fn requested(&self, trigger: &SweepTrigger, deadline: Timestamp) -> Result<SweepOutcome, SweepError> {
        let (store, policies, now) = (self.store(), self.engine.policies(), self.clock.now());
        let new_request = NewRequest {
            run: trigger.run.clone(),
            at: trigger.at.unwrap_or(now),
            trigger: trigger.kind,
            requested_by: trigger.requested_by.clone(),
        };
        match reconcile_request::enqueue(store, policies, (&trigger.scope, trigger.dry_run), &new_request, now).await? {
            EnqueueOutcome::Queued(_) | EnqueueOutcome::AlreadyKnown(RequestState::Waiting | RequestState::Running) => {
            }
            EnqueueOutcome::AlreadyKnown(RequestState::Finished) => return Ok(SweepOutcome::DuplicateTrigger),
            EnqueueOutcome::Superseded { by } => return Ok(SweepOutcome::Superseded { by }),
            EnqueueOutcome::OverLimit(why) => return Ok(SweepOutcome::RateLimited(why)),
        }
        let key = ReconcileRequest::key_of(&trigger.scope, trigger.dry_run);
        let Some(request) = reconcile_request::load(store, &key, now).await? else {
            return Ok(SweepOutcome::DuplicateTrigger);
        };
        if let Some(newer) = request.waiting().filter(|pending| pending.run != trigger.run) {
            return Ok(SweepOutcome::Superseded { by: newer.run.clone() });
        }
        Ok(match self.sweep_request(&request, &trigger.holder, deadline, false).await? {
            RequestOutcome::Done(summary, _) => SweepOutcome::Done(summary),
            RequestOutcome::Deferred { by, until } => SweepOutcome::Busy { by, until },
            RequestOutcome::Noop => SweepOutcome::DuplicateTrigger,
        })
    }

    pub(crate) async fn acquire_lease(
        &self,
        holder: &str,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<LeaseResult, StoreError> {
        lease::acquire(self.store(), LEASE, holder, deadline, now).await
    }

    pub(crate) async fn release_lease(&self, holder: &str) {
        if let Err(error) = lease::release(self.store(), LEASE, holder, self.clock.now()).await {
            // The lease expires at the deadline.
            warn!(%error, "cannot release the sweep lease");
        }
    }
}

fn started_run(trigger: &SweepTrigger, deadline: Timestamp, now: Timestamp) -> Run {
    let mut run = Run::sweep(trigger.run.clone(), trigger.kind, now);
    run.requested_by.clone_from(&trigger.requested_by);
    run.idempotency_key.clone_from(&trigger.key);
    let leased = run.clone().acquire_lease(&trigger.holder, now, deadline);
    let running = leased.and_then(|run| run.advance(RunState::Running, TransitionContext::new(Initiator::System, now)));
    // A new run is pending and not leased, so neither step can be refused.
    running.unwrap_or(run)
}

/// The run of a sweep that has ended, with its summary.
fn ended_run(run: Run, summary: &SweepSummary, now: Timestamp) -> Run {
    let context = TransitionContext::new(Initiator::System, now);
    let step = sweep::summary_step(summary, &run, now);
    let id = run.id.clone();
    let ended = run.clone().checkpoint(step).and_then(|run| {
        if summary.cancelled {
            run.cancel(summary.sentence(), context)
        } else {
            run.complete(summary.sentence(), context)
        }
    });
    match ended {
        Ok(ended) => Run { partial: summary.partial, ..ended },
        Err(error) => {
            warn!(run = %id, %error, "cannot close the run of the sweep");
            run
        }
    }
}
