//! Executes one run: admission checks, lease, steps, report. The lease and the first checkpoint are one write, so that after a crash the
//! next worker knows that the first step may have been executed.

use domain::breaker::{Permit, ProbeOutcome};
use domain::command::CommandMessage;
use domain::event::{ClosedBecause, Happened, RemedyNews};
use domain::id::{PrId, RunId};
use domain::policy::{Mode, Policy};
use domain::pull_request::Record;
use domain::remedy;
use domain::run::{Initiator, Run, RunError, RunKind, RunState, RunTrigger, Step, StepStatus, TransitionContext};
use domain::state::Strategy;
use domain::time::saturating_after;
use jiff::Timestamp;
use tracing::info;

use crate::dispatch::{AT_WORK, Again, Bridge, Handled};
use crate::remedy::Stop;
use platform::breaker::{self, Ended};
use platform::engine::EngineError;
use platform::engine::replacement;
use platform::guards::{self, Slot};
use platform::lookup;
use platform::outlets::Outlets;
use platform::rows;
use platform::store::versioned::{write_if, written};
use platform::store::{OnlyIf, Store, StoreError, Write};

/// A leased run; every change is stored.
pub(crate) struct InHand<'a> {
    pub(crate) run: Run,
    pub(crate) record: &'a Record,
    pub(crate) policy: &'a Policy,
    pub(crate) command: &'a CommandMessage,
}

impl InHand<'_> {
    pub(crate) fn pr(&self) -> &PrId {
        &self.record.id
    }

    /// The output of a step, if the step is done.
    pub(crate) fn done(&self, step: &str) -> Option<Option<String>> {
        let step = self.run.step(step).filter(|step| step.status == StepStatus::Done)?;
        Some(step.output.clone())
    }
}

/// Whether a run may be executed now.
enum Ready {
    Go,
    Drop(String),
    /// Unchanged; its due date brings it back.
    Wait(String),
    Nothing(String),
}

impl<S: Store, O: Outlets> Bridge<S, O> {
    /// Executes a run that a sweep claimed or a user's command opened.
    pub(crate) async fn carry_out(&self, id: &str, command: &CommandMessage) -> Result<Handled, Again> {
        let (pr, run_id) = (command.pr(), command.run());
        let holder = &self.worker(id);
        let now = self.now();
        let Some(run) = self.engine.run(&run_id, now).await? else {
            return Ok(Handled::Nothing(format!("run {run_id} does not exist any more")));
        };
        let record = match self.engine.load(&pr, now).await? {
            Some(record) => record,
            None => return Ok(Handled::Nothing(format!("{pr} has no record any more"))),
        };
        let policy = self.engine.policies().for_repo(&pr.repo);
        match self.ready(&run, &record, policy).await? {
            Ready::Go => {}
            Ready::Nothing(why) => return Ok(Handled::Nothing(why)),
            Ready::Wait(why) => return Ok(Handled::Waits(why)),
            Ready::Drop(why) => return self.dropped(&pr, &run, &why).await,
        }
        if run.state == RunState::WaitingExternal {
            // Only the second request to CodeGenie is left; all earlier steps are done.
            return self.ask_again(&run, &record, command).await;
        }
        if needs_approval(&run, policy) && !was_approved(&run) {
            return self.await_approval(run, holder).await;
        }
        let first = match run.kind {
            RunKind::Remedy(strategy) => crate::remedy::first_step(strategy, policy),
            RunKind::Abandon => "comment",
            RunKind::Sweep => return Ok(Handled::Nothing("sweeps are executed by the reconciler".to_owned())),
        };
        let leased = match self.take(run, holder, first).await? {
            Ok(run) => run,
            Err(why) => return Ok(Handled::Waits(why)),
        };
        let kind = leased.kind;
        let mut ctx = InHand { run: leased, record: &record, policy, command };
        let result = match kind {
            RunKind::Remedy(strategy) => Box::pin(self.remedy(&mut ctx, strategy)).await,
            RunKind::Abandon => Box::pin(self.abandon(&mut ctx)).await,
            RunKind::Sweep => Ok(String::new()),
        };
        self.ended(&ctx, result).await
    }

    /// The admission checks, cheapest first.
    async fn ready(&self, run: &Run, record: &Record, policy: &Policy) -> Result<Ready, Again> {
        // By the run's trigger, not by the message's sender: an approval or a sweep may have sent the message.
        let human = is_human(run);
        if run.state.is_terminal() {
            return Ok(Ready::Nothing(format!("run {} is already {}", run.id, run.state)));
        }
        let under_way = record.active_run.as_ref().filter(|active| active.id == run.id);
        let abandoning = record.abandoning.as_ref() == Some(&run.id);
        let Some(active) = under_way else {
            return Ok(match (run.kind, abandoning) {
                (RunKind::Abandon, true) => Ready::Go,
                (RunKind::Abandon | RunKind::Remedy(_) | RunKind::Sweep, _) => {
                    Ready::Nothing(format!("run {} is not the active run of {}", run.id, record.id))
                }
            });
        };
        match run.state {
            RunState::WaitingExternal if !(active.asked_twice && active.strategy == Strategy::CloseAndReopen) => {
                return Ok(Ready::Nothing(format!("run {} was accepted and awaits its proof", run.id)));
            }
            RunState::AwaitingApproval => return Ok(Ready::Nothing(format!("run {} awaits approval", run.id))),
            RunState::WaitingExternal => return Ok(Ready::Go),
            RunState::Pending | RunState::Running | RunState::Completed | RunState::Failed | RunState::Cancelled => {}
        }
        let began = run.steps.iter().any(|step| step.status != StepStatus::Failed);
        if record.head_sha != active.head_sha && !(began && active.strategy == Strategy::BranchUpdate) {
            return Ok(Ready::Drop(format!("the head moved to {}", record.head_sha.short())));
        }
        if record.state.is_terminal() && active.strategy != Strategy::CloseAndReopen {
            return Ok(Ready::Drop(format!("the pull request is {}", record.state)));
        }
        if policy.mode == Mode::Observe {
            return Ok(Ready::Drop("observe mode".to_owned()));
        }
        let now = self.now();
        if let Some(by) = guards::paused(self.engine.store(), now).await? {
            return Ok(Ready::Drop(format!("paused by {by}")));
        }
        if let Some(until) = self.github_held_off().await? {
            return Ok(Ready::Wait(format!("GitHub rate limit: paused until {until}")));
        }
        if !human {
            let settings = &self.engine.policies().base().breaker;
            match breaker::may_dispatch(self.engine.store(), &run.id, settings, now).await? {
                Permit::Allowed | Permit::Probe(_) => {}
                Permit::Refused { .. } => return Ok(Ready::Drop("the circuit breaker is open".to_owned())),
            }
        }
        if active.strategy == Strategy::Rebuild {
            return self.slot(run, record, policy).await;
        }
        Ok(Ready::Go)
    }

    /// Acquires one of the repository's build slots. If all are held, releases those of finished runs and tries again.
    async fn slot(&self, run: &Run, record: &Record, policy: &Policy) -> Result<Ready, Again> {
        let (store, now) = (self.engine.store(), self.now());
        let slots = policy.limits.rebuilds_in_flight_per_repo;
        let until = saturating_after(now, remedy::wait(Strategy::Rebuild, policy));
        let (repo, holder) = (record.id.repo.as_str(), run.id.as_str());
        if guards::take_slot(store, repo, slots, holder, until, now).await? == Slot::Held {
            return Ok(Ready::Go);
        }
        let holders: Vec<RunId> =
            guards::slot_holders(store, repo, slots, now).await?.into_iter().map(RunId::new).collect();
        let alive = lookup::runs(store, &holders, now).await?;
        for holder in holders {
            if alive.iter().all(|run| run.id != holder || run.state.is_terminal()) {
                guards::give_slot(store, repo, slots, holder.as_str(), now).await?;
            }
        }
        Ok(match guards::take_slot(store, repo, slots, holder, until, now).await? {
            Slot::Held => Ready::Go,
            Slot::Full { until } => {
                Ready::Wait(format!("all {slots} build slots of {repo} are in use; the first expires at {until}"))
            }
        })
    }

    /// Acquires the lease, moves the run to running and writes the first checkpoint in one write. On a conflict the run is left to its due
    /// date.
    async fn take(&self, run: Run, holder: &str, first: &'static str) -> Result<Result<Run, String>, Again> {
        let now = self.now();
        let until = saturating_after(now, AT_WORK);
        let loaded = run.version;
        let context = TransitionContext::new(Initiator::System, now);
        let leased = match run.state {
            // Without a checkpoint no step was executed, because the first checkpoint is written with the lease.
            RunState::Running if run.is_orphaned(now) && !run.steps.is_empty() => {
                run.resume(holder, now, until).map(|(run, _)| run)
            }
            RunState::Running => run.take_lease(holder, now, until),
            RunState::Pending
            | RunState::AwaitingApproval
            | RunState::WaitingExternal
            | RunState::Completed
            | RunState::Failed
            | RunState::Cancelled => {
                run.take_lease(holder, now, until).and_then(|run| run.advance(RunState::Running, context))
            }
        };
        let leased =
            leased.and_then(|run| if run.step(first).is_some() { Ok(run) } else { run.checkpoint(step(first, now)) });
        match leased {
            Ok(run) if written(self.engine.store(), vec![self.put(&run, loaded)?], now).await? => Ok(Ok(run)),
            Ok(_) => Ok(Err("another worker acquired the lease".to_owned())),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Ends the lease early, so that the redelivered message need not wait for it. If the write fails, it waits.
    async fn let_go(&self, run: &Run) {
        let Some(holder) = &run.lease_holder else { return };
        let now = self.now();
        if let Ok(free) = run.clone().take_lease(holder, now, now) {
            let _ = self.write(&free, run.version).await;
        }
    }

    async fn write(&self, run: &Run, loaded: u64) -> Result<(), Again> {
        Ok(self.engine.store().write(vec![self.put(run, loaded)?], self.now()).await?)
    }

    /// Writes a run unless its version changed. Returns whether it was written.
    async fn write_first(&self, run: &Run, loaded: u64) -> Result<bool, Again> {
        Ok(write_if(self.engine.store(), self.put(run, loaded)?, self.now()).await?)
    }

    fn put(&self, run: &Run, loaded: u64) -> Result<Write, StoreError> {
        let (key, item) = rows::run_row(run, self.engine.policies().base())?;
        Ok(Write::Put { key, item, only_if: OnlyIf::Version(loaded) })
    }

    pub(crate) async fn checkpoint(&self, ctx: &mut InHand<'_>, step: Step) -> Result<(), Again> {
        self.change(ctx, |run| run.checkpoint(step)).await
    }

    /// Changes the run, and stores it if it differs.
    pub(crate) async fn change(
        &self,
        ctx: &mut InHand<'_>,
        change: impl FnOnce(Run) -> Result<Run, RunError>,
    ) -> Result<(), Again> {
        let loaded = ctx.run.version;
        let corrupt = |error: RunError| StoreError::Corrupt(rows::run_key(&ctx.run.id), error.to_string());
        let run = change(ctx.run.clone()).map_err(corrupt)?;
        if run.version != loaded {
            self.write(&run, loaded).await?;
        }
        ctx.run = run;
        Ok(())
    }

    /// Reports the result to the engine and the breaker, and releases the build slot if nothing was started.
    async fn ended(&self, ctx: &InHand<'_>, result: Result<String, Stop>) -> Result<Handled, Again> {
        let (pr, run) = (ctx.pr().clone(), &ctx.run);
        let human = is_human(run);
        match result {
            Ok(what) => {
                self.accepted(&pr, run, human).await?;
                info!(%pr, run = %run.id, result = what, "run executed");
                Ok(Handled::Done(what))
            }
            Err(Stop::Again(again)) => {
                self.let_go(run).await;
                Err(again)
            }
            Err(Stop::Drop(why)) => {
                self.free_slot(ctx).await?;
                self.dropped(&pr, run, &why).await
            }
            Err(Stop::Fail(error, failure)) => {
                self.free_slot(ctx).await?;
                let update = RemedyNews::Failed { error: error.clone(), failure };
                self.news(&pr, run, "failed", update).await?;
                self.count(run, human, Ended::Failed, ProbeOutcome::Failed).await?;
                Ok(Handled::Failed(error))
            }
        }
    }

    async fn accepted(&self, pr: &PrId, run: &Run, human: bool) -> Result<(), Again> {
        match run.kind {
            RunKind::Remedy(_) => {
                self.news(pr, run, "accepted", RemedyNews::Accepted).await?;
                self.count(run, human, Ended::Succeeded, ProbeOutcome::Accepted).await
            }
            RunKind::Abandon => {
                let by = run.requested_by.clone();
                let closed = Happened::Closed { by, why: Some(ClosedBecause::Abandoned) };
                self.tell(pr, format!("{}#closed", run.id), self.now(), closed).await?;
                let now = self.now();
                let loaded = run.version;
                let context = TransitionContext::new(Initiator::System, now);
                if let Ok(done) = run.clone().complete("closed for good", context) {
                    // On a conflict the engine has already completed the run.
                    self.write_first(&done, loaded).await?;
                }
                Ok(())
            }
            RunKind::Sweep => Ok(()),
        }
    }

    pub(crate) async fn dropped(&self, pr: &PrId, run: &Run, why: &str) -> Result<Handled, Again> {
        self.news(pr, run, "dropped", RemedyNews::Dropped { why: why.to_owned() }).await?;
        let settings = &self.engine.policies().base().breaker;
        breaker::probe_ended(self.engine.store(), &run.id, ProbeOutcome::Cancelled, settings, self.now()).await?;
        Ok(Handled::Refused(why.to_owned()))
    }

    async fn news(&self, pr: &PrId, run: &Run, word: &str, news: RemedyNews) -> Result<(), Again> {
        let what = Happened::Remedy { run: run.id.clone(), news };
        self.tell(pr, format!("{}#{word}", run.id), self.now(), what).await.map(drop)
    }

    /// Users' commands are neither counted nor blocked (R-BREAKER-7).
    async fn count(&self, run: &Run, human: bool, ended: Ended, probe: ProbeOutcome) -> Result<(), Again> {
        if human {
            return Ok(());
        }
        let (store, now) = (self.engine.store(), self.now());
        breaker::count(store, &run.id, ended, now).await?;
        let settings = &self.engine.policies().base().breaker;
        breaker::probe_ended(store, &run.id, probe, settings, now).await?;
        Ok(())
    }

    async fn free_slot(&self, ctx: &InHand<'_>) -> Result<(), Again> {
        if ctx.run.kind == RunKind::Remedy(Strategy::Rebuild) {
            let slots = ctx.policy.limits.rebuilds_in_flight_per_repo;
            let (repo, holder) = (ctx.pr().repo.as_str(), ctx.run.id.as_str());
            guards::give_slot(self.engine.store(), repo, slots, holder, self.now()).await?;
        }
        Ok(())
    }

    /// Moves the run to awaiting approval. This message is acknowledged; the approval sends another one.
    async fn await_approval(&self, run: Run, holder: &str) -> Result<Handled, Again> {
        let now = self.now();
        let loaded = run.version;
        let context = || TransitionContext::new(Initiator::Policy, now).because("policy.approval_required");
        let until = saturating_after(now, AT_WORK);
        let awaiting = run
            .take_lease(holder, now, until)
            .and_then(|run| run.advance(RunState::Running, context()))
            .and_then(|run| run.advance(RunState::AwaitingApproval, context()));
        match awaiting {
            Ok(run) if self.write_first(&run, loaded).await? => {
                Ok(Handled::Waits(format!("run {} awaits approval: `/approve`", run.id)))
            }
            Ok(_) => Ok(Handled::Nothing("another worker acquired the lease".to_owned())),
            Err(error) => Ok(Handled::Nothing(error.to_string())),
        }
    }

    /// Resumes the run that awaits approval, if there is one.
    pub(crate) async fn approve(&self, record: &Record, by: &str) -> Result<Option<Run>, Again> {
        let Some(active) = &record.active_run else { return Ok(None) };
        let now = self.now();
        let Some(run) = self.engine.run(&active.id, now).await? else { return Ok(None) };
        if run.state != RunState::AwaitingApproval {
            return Ok(None);
        }
        let loaded = run.version;
        let context = TransitionContext::new(Initiator::Approval, now).by(by);
        let until = saturating_after(now, AT_WORK);
        let approved = run.advance(RunState::Running, context).and_then(|run| run.take_lease(APPROVED, now, until));
        let Ok(run) = approved else { return Ok(None) };
        // The lease expires immediately, so that the worker that gets the message can acquire it.
        let run = Run { lease_until: Some(now), ..run };
        Ok(self.write_first(&run, loaded).await?.then_some(run))
    }

    async fn ask_again(&self, run: &Run, record: &Record, command: &CommandMessage) -> Result<Handled, Again> {
        // The replacement may exist already, with only the link missing.
        if let Some(id) = &record.vulnerability_id {
            let (repo, base, now) = (&record.id.repo, &record.base_branch, self.now());
            let known = lookup::vulnerability(self.engine.store(), repo, base, id, now).await?;
            for number in known.open {
                if let Some(fresh) = self.engine.load(&PrId::new(repo.clone(), number), now).await?
                    && replacement::link(&self.engine, &fresh, now).await?.is_some()
                {
                    return Ok(Handled::Nothing(format!("#{number} already replaces it")));
                }
            }
        }
        let policy = self.engine.policies().for_repo(&record.id.repo);
        let ctx = InHand { run: run.clone(), record, policy, command };
        match self.ask_codegenie(&ctx, "again").await {
            Ok(()) => Ok(Handled::Done("requested a pull request from CodeGenie again".to_owned())),
            Err(Stop::Again(again)) => Err(again),
            Err(Stop::Drop(why) | Stop::Fail(why, _)) => Ok(Handled::Failed(why)),
        }
    }
}

/// Lease holder of a run between its approval and its execution.
const APPROVED: &str = "approved";

/// Whether a user requested the run: the breaker neither counts nor blocks it.
fn is_human(run: &Run) -> bool {
    matches!(run.trigger, RunTrigger::PrComment | RunTrigger::CheckRun | RunTrigger::AdminApi)
}

fn needs_approval(run: &Run, policy: &Policy) -> bool {
    match run.kind {
        RunKind::Remedy(strategy) => {
            run.trigger == RunTrigger::Reconciler && policy.policy.approval_required.contains(&strategy)
        }
        RunKind::Abandon | RunKind::Sweep => false,
    }
}

fn was_approved(run: &Run) -> bool {
    run.transitions.iter().any(|transition| transition.context.initiator == Initiator::Approval)
}

/// A step that probes before it acts: it may be repeated, and skipped once done.
pub(crate) fn step(name: &str, now: Timestamp) -> Step {
    Step::started(name, now).idempotent().resumable()
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Self {
        Self::Again(Again::Engine(error))
    }
}
