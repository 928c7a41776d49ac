//! Executes one run after its admission: lease, steps, report. The lease and the first checkpoint are one write, so that after a crash the
//! next worker knows that the first step may have been executed.

use domain::backoff::AttemptFailure;
use domain::breaker::ProbeOutcome;
use domain::command::CommandMessage;
use domain::event::{CloseReason, FactKind, RemedyUpdate};
use domain::id::PrId;
use domain::policy::Policy;
use domain::pull_request::PullRequest;
use domain::run::{Initiator, Run, RunError, RunKind, RunState, RunStep, RunTrigger, StepStatus, TransitionContext};
use domain::state::Strategy;
use domain::time::saturating_after;
use jiff::Timestamp;
use tracing::{info, warn};

use crate::admission::{Admission, is_human};
use crate::dispatch::{CarBridge, MessageOutcome, RetryableError, WORKER_LEASE};
use crate::remedy::RemedyError;
use platform::engine::EngineError;
use platform::engine::replacement;
use platform::publish::Publisher;
use platform::store::breaker::{self, RemedyOutcome};
use platform::store::queries;
use platform::store::schema;
use platform::store::slot;
use platform::store::versioned::{write_all_if, write_if};
use platform::store::{Condition, RowWrite, Store, StoreError};

/// A leased run; every change is stored.
pub(crate) struct RunContext<'a> {
    pub(crate) run: Run,
    pub(crate) record: &'a PullRequest,
    pub(crate) policy: &'a Policy,
    pub(crate) command: &'a CommandMessage,
}

impl RunContext<'_> {
    pub(crate) fn pr(&self) -> &PrId {
        &self.record.id
    }

    /// The output of a step, if the step is done.
    pub(crate) fn done(&self, step: &str) -> Option<Option<String>> {
        let step = self.run.step(step).filter(|step| step.status == StepStatus::Done)?;
        Some(step.output.clone())
    }
}

impl<S: Store, O: Publisher> CarBridge<S, O> {
    /// Executes a run that a sweep claimed or a user's command opened.
    pub(crate) async fn execute_run(
        &self,
        id: &str,
        command: &CommandMessage,
    ) -> Result<MessageOutcome, RetryableError> {
        let (pr, run_id) = (command.pr(), command.run_id());
        let holder = &self.worker(id);
        let now = self.now();
        let Some(run) = self.engine.run(&run_id, now).await? else {
            return Ok(MessageOutcome::Noop(format!("run {run_id} does not exist any more")));
        };
        let record = match self.engine.load(&pr, now).await? {
            Some(record) => record,
            None => return Ok(MessageOutcome::Noop(format!("{pr} has no record any more"))),
        };
        let policy = self.engine.policies().for_repo(&pr.repo);
        match Box::pin(self.admit(&run, &record, policy)).await? {
            Admission::Admitted => {}
            Admission::Noop(why) => return Ok(MessageOutcome::Noop(why)),
            Admission::Defer(why) => return Ok(MessageOutcome::Deferred(why)),
            Admission::Drop(why) => return self.report_dropped(&pr, &run, &why).await,
        }
        if run.state == RunState::WaitingExternal {
            // Only the second request to CodeGenie is left; all earlier steps are done.
            return self.request_again(&run, &record, command).await;
        }
        if needs_approval(&run, policy) && !was_approved(&run) {
            return self.await_approval(run, holder).await;
        }
        let first = match run.kind {
            RunKind::Remedy(strategy) => crate::remedy::first_step(strategy, policy),
            RunKind::Abandon => "comment",
            RunKind::Sweep => return Ok(MessageOutcome::Noop("sweeps are executed by the reconciler".to_owned())),
        };
        let leased = match self.acquire_lease(run, holder, first).await? {
            Ok(run) => run,
            Err(why) => return Ok(MessageOutcome::Noop(why)),
        };
        let kind = leased.kind;
        let mut ctx = RunContext { run: leased, record: &record, policy, command };
        let result = match kind {
            RunKind::Remedy(strategy) => Box::pin(self.remedy(&mut ctx, strategy)).await,
            RunKind::Abandon => Box::pin(self.abandon(&mut ctx)).await,
            RunKind::Sweep => Ok(String::new()),
        };
        let result = crate::remedy::end_late_retries(&ctx.run, result, self.now());
        Box::pin(self.report_end(&ctx, result)).await
    }

    /// Acquires the lease, moves the run to running and writes the first checkpoint in one write. On a conflict the run is left to its due
    /// date.
    async fn acquire_lease(
        &self,
        run: Run,
        holder: &str,
        first: &'static str,
    ) -> Result<Result<Run, String>, RetryableError> {
        let now = self.now();
        let until = saturating_after(now, WORKER_LEASE);
        let loaded = run.version;
        let context = TransitionContext::new(Initiator::System, now);
        let leased = match run.state {
            // Without a checkpoint no step was executed, because the first checkpoint is written with the lease.
            RunState::Running if run.is_orphaned(now) && !run.steps.is_empty() => {
                run.resume(holder, now, until).map(|(run, _)| run)
            }
            RunState::Running => run.acquire_lease(holder, now, until),
            RunState::Pending
            | RunState::AwaitingApproval
            | RunState::WaitingExternal
            | RunState::Completed
            | RunState::Failed
            | RunState::Cancelled => {
                run.acquire_lease(holder, now, until).and_then(|run| run.advance(RunState::Running, context))
            }
        };
        let leased =
            leased.and_then(|run| if run.step(first).is_some() { Ok(run) } else { run.checkpoint(step(first, now)) });
        match leased {
            Ok(run) if write_all_if(self.engine.store(), vec![self.put(&run, loaded)?], now).await? => Ok(Ok(run)),
            Ok(_) => Ok(Err("another worker acquired the lease".to_owned())),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Ends the lease early, so that the redelivered message need not wait for it. If the write fails, it waits.
    async fn release_lease(&self, run: &Run) {
        let Some(holder) = &run.lease_holder else { return };
        let now = self.now();
        if let Ok(free) = run.clone().acquire_lease(holder, now, now) {
            let _ = self.write(&free, run.version).await;
        }
    }

    async fn write(&self, run: &Run, loaded: u64) -> Result<(), RetryableError> {
        Ok(self.engine.store().write(vec![self.put(run, loaded)?], self.now()).await?)
    }

    /// Writes a run unless its version changed. Returns whether it was written.
    async fn write_if_unchanged(&self, run: &Run, loaded: u64) -> Result<bool, RetryableError> {
        Ok(write_if(self.engine.store(), self.put(run, loaded)?, self.now()).await?)
    }

    fn put(&self, run: &Run, loaded: u64) -> Result<RowWrite, StoreError> {
        let (key, item) = schema::run_row(run, self.engine.policies().base())?;
        Ok(RowWrite::Put { key, item, only_if: Condition::Version(loaded) })
    }

    pub(crate) async fn checkpoint(&self, ctx: &mut RunContext<'_>, step: RunStep) -> Result<(), RetryableError> {
        self.update_run(ctx, |run| run.checkpoint(step)).await
    }

    /// Changes the run, and stores it if it differs.
    pub(crate) async fn update_run(
        &self,
        ctx: &mut RunContext<'_>,
        change: impl FnOnce(Run) -> Result<Run, RunError>,
    ) -> Result<(), RetryableError> {
        let loaded = ctx.run.version;
        let corrupt = |error: RunError| StoreError::Corrupt(schema::run_key(&ctx.run.id), error.to_string());
        let run = change(ctx.run.clone()).map_err(corrupt)?;
        if run.version != loaded {
            self.write(&run, loaded).await?;
        }
        ctx.run = run;
        Ok(())
    }

    /// Reports the result to the engine and the breaker, and releases the build slot if nothing was started.
    async fn report_end(
        &self,
        ctx: &RunContext<'_>,
        result: Result<String, RemedyError>,
    ) -> Result<MessageOutcome, RetryableError> {
        let (pr, run) = (ctx.pr().clone(), &ctx.run);
        let human = is_human(run);
        match result {
            Ok(what) => {
                self.report_accepted(&pr, run, human).await?;
                info!(%pr, run = %run.id, result = what, "run executed");
                Ok(MessageOutcome::Done(what))
            }
            Err(RemedyError::Retry(again)) => {
                self.release_lease(run).await;
                Err(again)
            }
            // The next worker resumes the run and probes. If its request has no result either, the remedy has failed.
            Err(RemedyError::Unknown(again, _)) if run.resume_count == 0 => {
                self.release_lease(run).await;
                Err(again)
            }
            Err(RemedyError::Drop(why)) => {
                self.release_build_slot(ctx).await?;
                self.report_dropped(&pr, run, &why).await
            }
            // In a resumed run an earlier request may have reached the target.
            Err(RemedyError::NotSent(why)) if run.resume_count == 0 => {
                self.release_build_slot(ctx).await?;
                self.report_update(&pr, run, "dropped", RemedyUpdate::Dropped { why: why.clone() }).await?;
                self.count(run, human, RemedyOutcome::Failed, ProbeOutcome::Failed).await?;
                Ok(MessageOutcome::Rejected(why))
            }
            Err(RemedyError::NotSent(why)) => self.report_failed(ctx, why, AttemptFailure::Unavailable).await,
            Err(RemedyError::Unknown(error, failure)) => self.report_failed(ctx, error.to_string(), failure).await,
            Err(RemedyError::Fail(error, failure)) => self.report_failed(ctx, error, failure).await,
        }
    }

    async fn report_failed(
        &self,
        ctx: &RunContext<'_>,
        error: String,
        failure: AttemptFailure,
    ) -> Result<MessageOutcome, RetryableError> {
        self.release_build_slot(ctx).await?;
        let update = RemedyUpdate::Failed { error: error.clone(), failure };
        self.report_update(ctx.pr(), &ctx.run, "failed", update).await?;
        self.count(&ctx.run, is_human(&ctx.run), RemedyOutcome::Failed, ProbeOutcome::Failed).await?;
        Ok(MessageOutcome::Failed(error))
    }

    async fn report_accepted(&self, pr: &PrId, run: &Run, human: bool) -> Result<(), RetryableError> {
        match run.kind {
            RunKind::Remedy(_) => {
                self.report_update(pr, run, "accepted", RemedyUpdate::Accepted).await?;
                self.count(run, human, RemedyOutcome::Succeeded, ProbeOutcome::Accepted).await
            }
            RunKind::Abandon => {
                let by = run.requested_by.clone();
                let closed = FactKind::Closed { by, why: Some(CloseReason::Abandoned) };
                self.apply_fact(pr, format!("{}#closed", run.id), self.now(), closed).await?;
                let now = self.now();
                let loaded = run.version;
                let context = TransitionContext::new(Initiator::System, now);
                if let Ok(done) = run.clone().complete("closed for good", context) {
                    // On a conflict the engine has already completed the run.
                    self.write_if_unchanged(&done, loaded).await?;
                }
                Ok(())
            }
            RunKind::Sweep => Ok(()),
        }
    }

    pub(crate) async fn report_dropped(
        &self,
        pr: &PrId,
        run: &Run,
        why: &str,
    ) -> Result<MessageOutcome, RetryableError> {
        self.report_update(pr, run, "dropped", RemedyUpdate::Dropped { why: why.to_owned() }).await?;
        let settings = &self.engine.policies().base().breaker;
        breaker::probe_ended(self.engine.store(), &run.id, ProbeOutcome::Cancelled, settings, self.now()).await?;
        Ok(MessageOutcome::Rejected(why.to_owned()))
    }

    async fn report_update(
        &self,
        pr: &PrId,
        run: &Run,
        word: &str,
        update: RemedyUpdate,
    ) -> Result<(), RetryableError> {
        let what = FactKind::Remedy { run: run.id.clone(), update };
        self.apply_fact(pr, format!("{}#{word}", run.id), self.now(), what).await.map(drop)
    }

    /// Users' commands are neither counted nor blocked (R-BREAKER-7).
    async fn count(
        &self,
        run: &Run,
        human: bool,
        ended: RemedyOutcome,
        probe: ProbeOutcome,
    ) -> Result<(), RetryableError> {
        if human {
            return Ok(());
        }
        let (store, now) = (self.engine.store(), self.now());
        let settings = &self.engine.policies().base().breaker;
        if let Some(tripped) = breaker::report_outcome(store, &run.id, ended, settings, now).await? {
            warn!(run = %run.id, "{}", tripped.log);
        }
        breaker::probe_ended(store, &run.id, probe, settings, now).await?;
        Ok(())
    }

    async fn release_build_slot(&self, ctx: &RunContext<'_>) -> Result<(), RetryableError> {
        if ctx.run.kind == RunKind::Remedy(Strategy::Rebuild) {
            let slots = ctx.policy.limits.rebuilds_in_flight_per_repo;
            let (repo, holder) = (ctx.pr().repo.as_str(), ctx.run.id.as_str());
            slot::release(self.engine.store(), repo, slots, holder, self.now()).await?;
        }
        Ok(())
    }

    /// Moves the run to awaiting approval. This message is acknowledged; the approval sends another one.
    async fn await_approval(&self, run: Run, holder: &str) -> Result<MessageOutcome, RetryableError> {
        let now = self.now();
        let loaded = run.version;
        let context = || TransitionContext::new(Initiator::Policy, now).because("rules.approval_required");
        let until = saturating_after(now, WORKER_LEASE);
        let awaiting = run
            .acquire_lease(holder, now, until)
            .and_then(|run| run.advance(RunState::Running, context()))
            .and_then(|run| run.advance(RunState::AwaitingApproval, context()));
        match awaiting {
            Ok(run) if self.write_if_unchanged(&run, loaded).await? => {
                Ok(MessageOutcome::Deferred(format!("run {} awaits approval: `/approve`", run.id)))
            }
            Ok(_) => Ok(MessageOutcome::Noop("another worker acquired the lease".to_owned())),
            Err(error) => Ok(MessageOutcome::Noop(error.to_string())),
        }
    }

    /// Resumes the run that awaits approval, if there is one.
    pub(crate) async fn approve(&self, record: &PullRequest, by: &str) -> Result<Option<Run>, RetryableError> {
        let Some(active) = &record.active_run else { return Ok(None) };
        let now = self.now();
        let Some(run) = self.engine.run(&active.id, now).await? else { return Ok(None) };
        if run.state != RunState::AwaitingApproval {
            return Ok(None);
        }
        let loaded = run.version;
        let context = TransitionContext::new(Initiator::Approval, now).by(by);
        let until = saturating_after(now, WORKER_LEASE);
        let approved = run.advance(RunState::Running, context).and_then(|run| run.acquire_lease(APPROVED, now, until));
        let Ok(run) = approved else { return Ok(None) };
        // The lease expires immediately, so that the worker that gets the message can acquire it.
        let run = Run { lease_until: Some(now), ..run };
        Ok(self.write_if_unchanged(&run, loaded).await?.then_some(run))
    }

    async fn request_again(
        &self,
        run: &Run,
        record: &PullRequest,
        command: &CommandMessage,
    ) -> Result<MessageOutcome, RetryableError> {
        // The replacement may exist already, with only the link missing.
        if let Some(id) = &record.vulnerability_id {
            let (repo, base, now) = (&record.id.repo, &record.base_branch, self.now());
            let known = queries::vulnerability(self.engine.store(), repo, base, id, now).await?;
            for number in known.open {
                if let Some(fresh) = self.engine.load(&PrId::new(repo.clone(), number), now).await?
                    && replacement::link(&self.engine, &fresh, now).await?.is_some()
                {
                    return Ok(MessageOutcome::Noop(format!("#{number} already replaces it")));
                }
            }
        }
        let policy = self.engine.policies().for_repo(&record.id.repo);
        let mut ctx = RunContext { run: run.clone(), record, policy, command };
        match self.request_replacement(&mut ctx, "again").await {
            Ok(()) => Ok(MessageOutcome::Done("requested a pull request from CodeGenie again".to_owned())),
            Err(RemedyError::Retry(again) | RemedyError::Unknown(again, _)) => Err(again),
            Err(RemedyError::Drop(why) | RemedyError::NotSent(why) | RemedyError::Fail(why, _)) => {
                Ok(MessageOutcome::Failed(why))
            }
        }
    }
}

/// Lease holder of a run between its approval and its execution.
const APPROVED: &str = "approved";

fn needs_approval(run: &Run, policy: &Policy) -> bool {
    match run.kind {
        RunKind::Remedy(strategy) => {
            run.trigger == RunTrigger::Reconciler && policy.rules.approval_required.contains(&strategy)
        }
        RunKind::Abandon | RunKind::Sweep => false,
    }
}

fn was_approved(run: &Run) -> bool {
    run.transitions.iter().any(|transition| transition.context.initiator == Initiator::Approval)
}

/// A step that probes before it acts: it may be repeated, and skipped once done.
pub(crate) fn step(name: &str, now: Timestamp) -> RunStep {
    RunStep::started(name, now).idempotent().resumable()
}

impl From<EngineError> for RemedyError {
    fn from(error: EngineError) -> Self {
        Self::Retry(RetryableError::Engine(error))
    }
}
