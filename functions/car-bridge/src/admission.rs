//! Whether a run may be executed now: the checks before its lease, cheapest first.
//!
//! Pause, observe mode and an open breaker stop remedies that have not begun. A run that has changed something outside
//! which only its remaining steps make right ([`must_finish`]) is never dropped:
//! - Paused, it waits: a person has stopped all acting, may do so because Suture does harm, and will end the pause. The
//!   run stays due meanwhile, and so it continues within a minute after the pause.
//! - With the breaker open, it is finished: the breaker keeps new remedies away from a target that fails, but what is
//!   left here is one request, and every minute of waiting leaves a vulnerability without a pull request.
//! - In observe mode, it is finished: observe mode has no end for which the run could wait, and a pull request that
//!   stays closed without a replacement is a greater change than the request for one.

use domain::admission::{PutOffReason, StartConditions, Starter, may_start};
use domain::breaker::{BreakerPermit, BreakerState};
use domain::id::RunId;
use domain::policy::{Mode, Policy};
use domain::pull_request::PullRequest;
use domain::remedy;
use domain::run::{Run, RunKind, RunState, RunTrigger, StepStatus};
use domain::state::Strategy;
use domain::time::saturating_after;

use crate::dispatch::{CarBridge, RetryableError};
use crate::remedy::must_finish;
use platform::publish::Publisher;
use platform::store::Store;
use platform::store::breaker;
use platform::store::gates;
use platform::store::pause;
use platform::store::queries;
use platform::store::slot;
use platform::store::slot::SlotResult;

const BREAKER_OPEN: &str = "the circuit breaker is open";

/// Whether a run may be executed now.
pub(crate) enum Admission {
    Admitted,
    Drop(String),
    /// Unchanged; its due date brings it back.
    Defer(String),
    Noop(String),
}

impl<S: Store, O: Publisher> CarBridge<S, O> {
    pub(crate) async fn admit(
        &self,
        run: &Run,
        record: &PullRequest,
        policy: &Policy,
    ) -> Result<Admission, RetryableError> {
        if run.state.is_terminal() {
            return Ok(Admission::Noop(format!("run {} is already {}", run.id, run.state)));
        }
        let under_way = record.active_run.as_ref().filter(|active| active.id == run.id);
        let abandoning = record.abandoning.as_ref() == Some(&run.id);
        let Some(active) = under_way else {
            return match (run.kind, abandoning) {
                (RunKind::Abandon, true) => self.admit_abandoning().await,
                (RunKind::Abandon | RunKind::Remedy(_) | RunKind::Sweep, _) => {
                    Ok(Admission::Noop(format!("run {} is not the active run of {}", run.id, record.id)))
                }
            };
        };
        match run.state {
            RunState::WaitingExternal if !(active.repeated && active.strategy == Strategy::CloseAndReopen) => {
                return Ok(Admission::Noop(format!("run {} was accepted and awaits its proof", run.id)));
            }
            RunState::AwaitingApproval => return Ok(Admission::Noop(format!("run {} awaits approval", run.id))),
            RunState::WaitingExternal => return Ok(Admission::Admitted),
            RunState::Pending | RunState::Running | RunState::Completed | RunState::Failed | RunState::Cancelled => {}
        }
        let began = run.steps.iter().any(|step| step.status != StepStatus::Failed);
        let updating = began && active.strategy == Strategy::BranchUpdate;
        if record.head_sha != active.head_sha && !updating && !active.closing {
            return Ok(Admission::Drop(format!("the head moved to {}", record.head_sha.short())));
        }
        if record.state.is_terminal() && active.strategy != Strategy::CloseAndReopen {
            return Ok(Admission::Drop(format!("the pull request is {}", record.state)));
        }
        let must_finish = must_finish(run);
        if policy.mode == Mode::Observe && !must_finish {
            return Ok(Admission::Drop("observe mode".to_owned()));
        }
        let (store, now) = (self.engine.store(), self.now());
        let gates = gates::load(store, now).await?;
        let github_until = self.github_not_before().await?;
        let conditions = StartConditions { github_until, ..StartConditions::new(&gates) };
        // By the run's trigger, not by the message's sender: an approval or a sweep may have sent the message.
        let breaker_counts = !is_human(run) && !must_finish;
        let starter = if breaker_counts { Starter::Run(&run.id) } else { Starter::Person };
        if let Err(put_off) = may_start(active.strategy, starter, &conditions, now) {
            return Ok(match put_off.reason {
                PutOffReason::Paused if !must_finish => Admission::Drop(put_off.why),
                PutOffReason::Breaker => Admission::Drop(BREAKER_OPEN.to_owned()),
                PutOffReason::Paused
                | PutOffReason::RateLimit
                | PutOffReason::Full
                | PutOffReason::Slots
                | PutOffReason::Turn => Admission::Defer(put_off.why),
            });
        }
        if breaker_counts && gates.breaker.state != BreakerState::Closed {
            let settings = &self.engine.policies().base().breaker;
            match breaker::may_dispatch(store, &run.id, settings, now).await? {
                BreakerPermit::Allowed | BreakerPermit::Probe(_) => {}
                BreakerPermit::Refused { .. } => return Ok(Admission::Drop(BREAKER_OPEN.to_owned())),
            }
        }
        if active.strategy == Strategy::Rebuild {
            return self.acquire_build_slot(run, record, policy).await;
        }
        Ok(Admission::Admitted)
    }

    /// An accepted `/cancel` is not dropped, because the record already expects the closing.
    async fn admit_abandoning(&self) -> Result<Admission, RetryableError> {
        if let Some(by) = pause::paused_by(self.engine.store(), self.now()).await? {
            return Ok(Admission::Defer(format!("Suture is paused by {by}")));
        }
        Ok(match self.github_not_before().await? {
            Some(until) => Admission::Defer(format!("GitHub rate limit: paused until {until}")),
            None => Admission::Admitted,
        })
    }

    /// Acquires one of the repository's build slots. If all are held, releases those of finished runs and tries again.
    async fn acquire_build_slot(
        &self,
        run: &Run,
        record: &PullRequest,
        policy: &Policy,
    ) -> Result<Admission, RetryableError> {
        let (store, now) = (self.engine.store(), self.now());
        let slots = policy.limits.rebuilds_in_flight_per_repo;
        let until = saturating_after(now, remedy::proof_timeout(Strategy::Rebuild, policy));
        let (repo, holder) = (record.id.repo.as_str(), run.id.as_str());
        if slot::acquire(store, repo, slots, holder, until, now).await? == SlotResult::Held {
            return Ok(Admission::Admitted);
        }
        let holders: Vec<RunId> = slot::holders(store, repo, slots, now).await?.into_iter().map(RunId::new).collect();
        let alive = queries::runs(store, &holders, now).await?;
        for holder in holders {
            if alive.iter().all(|run| run.id != holder || run.state.is_terminal()) {
                slot::release(store, repo, slots, holder.as_str(), now).await?;
            }
        }
        Ok(match slot::acquire(store, repo, slots, holder, until, now).await? {
            SlotResult::Held => Admission::Admitted,
            SlotResult::Full { until } => {
                Admission::Defer(format!("all {slots} build slots of {repo} are in use; the first expires at {until}"))
            }
        })
    }
}

/// Whether a user requested the run: the breaker neither counts nor blocks it.
pub(crate) fn is_human(run: &Run) -> bool {
    matches!(run.trigger, RunTrigger::PrComment | RunTrigger::CheckRun | RunTrigger::AdminApi)
}
