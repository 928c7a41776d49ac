//! Recovers runs whose message was lost, whose worker has crashed, or whose expected event did not arrive: resends the
//! message or ends the run. A run that stays open gets a later due date.

use domain::backoff::AttemptFailure;
use domain::breaker::ProbeOutcome;
use domain::event::{FactKind, RemedyUpdate};
use domain::id::RunId;
use domain::run::{Initiator, Run, RunError, RunKind, RunRecoveryAction, RunState, RunTrigger, TransitionContext};
use domain::state::Strategy;
use jiff::SignedDuration;
use platform::engine::{EngineError, replacement};
use platform::publish::{OutboundMessage, Publisher};
use platform::store::breaker::{self, RemedyOutcome};
use platform::store::queries;
use platform::store::schema;
use platform::store::{Condition, Store, StoreError};
use platform::sweep_summary::SweepSummary;
use tracing::{info, warn};

use crate::context::SweepContext;
use crate::due::{defer, defer_undecodable};
use crate::jenkins_queue::{self, ItemState, JenkinsQueue};

/// A run whose message was resent is due again after this long.
const RUN_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(1);

struct RunRecovery<'a, S, O> {
    cx: &'a SweepContext<'a, S, O>,
    jenkins: JenkinsQueue<'a, S, O>,
    summary: &'a mut SweepSummary,
}

/// Recovers runs past their lease or deadline.
pub(crate) async fn recover<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    ids: &[RunId],
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    let runs = queries::runs(cx.store(), ids, cx.now()).await?;
    for id in ids.iter().filter(|id| runs.iter().all(|run| run.id != **id)) {
        // Deleted meanwhile, or undecodable: reading it alone shows which.
        if let Err(error) = cx.engine.run(id, cx.now()).await {
            defer_undecodable(cx, schema::run_key(id), error, summary).await?;
        }
    }
    let mut recovery = RunRecovery { cx, jenkins: JenkinsQueue { cx, is_unavailable: false }, summary };
    for run in runs {
        if cx.is_late(recovery.summary) {
            return Ok(());
        }
        let key = schema::run_key(&run.id);
        if let Err(error) = recovery.recover(run).await {
            match error {
                EngineError::WriteConflict { .. } => {}
                EngineError::Store(StoreError::ConditionFailed(_) | StoreError::TransactionConflict) => {}
                EngineError::Store(StoreError::Corrupt(..)) => {
                    defer_undecodable(cx, key, error, recovery.summary).await?
                }
                EngineError::Store(error) => return Err(error),
            }
        }
    }
    Ok(())
}

impl<S: Store, O: Publisher> RunRecovery<'_, S, O> {
    async fn recover(&mut self, run: Run) -> Result<(), EngineError> {
        let now = self.cx.now();
        match run.recover(now) {
            RunRecoveryAction::Nothing => Ok(()),
            RunRecoveryAction::Resend => {
                // The due date is written first: a crash here costs a minute, and of two concurrent sweeps one sends.
                let loaded = run.version;
                let resent = run.mark_resent(now);
                self.cx.put_run(&resent, loaded).await?;
                self.resend(&resent).await;
                Ok(())
            }
            RunRecoveryAction::Resume(_) => self.resume(&run).await,
            // Abandoning may be repeated: closing a closed pull request changes nothing.
            RunRecoveryAction::Fail(RunError::Orphaned { .. }) if run.kind == RunKind::Abandon => {
                self.resume(&run).await
            }
            RunRecoveryAction::PollExternal => match self.jenkins.poll(&run).await? {
                ItemState::Cancelled(item) => {
                    let error = format!("Jenkins queue item {item} was cancelled");
                    let update = RemedyUpdate::Failed { error: error.clone(), failure: AttemptFailure::Unavailable };
                    self.end(run, update, error).await
                }
                state @ (ItemState::Build(_) | ItemState::Queued(..) | ItemState::Forgotten | ItemState::Unknown) => {
                    let loaded = run.version;
                    let run = jenkins_queue::record(run, state, self.cx.now());
                    if run.version == loaded {
                        return Ok(());
                    }
                    Ok(self.cx.put_run(&run, loaded).await?)
                }
            },
            RunRecoveryAction::Fail(error) => self.expire(run, &error).await,
        }
    }

    /// Resends the message. The run is due again in a minute, unless the Car Bridge advances it before.
    async fn resume(&mut self, run: &Run) -> Result<(), EngineError> {
        let unchanged = Condition::Version(run.version);
        defer(self.cx, schema::run_key(&run.id), RUN_RETRY_AFTER, unchanged).await?;
        self.resend(run).await;
        Ok(())
    }

    /// Sends the same message to the Car Bridge, which finds the completed steps in the run.
    async fn resend(&mut self, run: &Run) {
        let Some(message) = run.message() else { return };
        let outbound = OutboundMessage::command(format!("{}#{}", run.id, run.version), message);
        match self.cx.engine.publisher().send_now(outbound).await {
            Ok(()) => self.summary.resent += 1,
            // The run is due again in a minute.
            Err(error) => warn!(run = %run.id, %error, "cannot resend run"),
        }
    }

    /// Fails a run past its deadline, unless the replacement it waits for exists and only the link was missing.
    async fn expire(&mut self, run: Run, error: &RunError) -> Result<(), EngineError> {
        let overdue = matches!(error, RunError::WaitExpired { .. });
        if overdue && self.is_replaced(&run).await? {
            return Ok(());
        }
        let failed = RemedyUpdate::Failed { error: error.to_string(), failure: AttemptFailure::TimedOut };
        let update = if overdue { RemedyUpdate::Overdue } else { failed };
        self.end(run, update, error.to_string()).await
    }

    /// Ends a run: updates the record that waits for it, if any, ends the run, and counts the failure for the breaker.
    async fn end(&mut self, run: Run, update: RemedyUpdate, error: String) -> Result<(), EngineError> {
        if let Some(pr) = &run.pr {
            let fact =
                self.cx.fact(pr, &format!("{}.expired", run.id), FactKind::Remedy { run: run.id.clone(), update });
            let applied = self.cx.engine.apply(&fact, self.cx.now()).await?;
            info!(run = %run.id, %pr, reason = applied.reason, "run expired");
        }
        let now = self.cx.now();
        let Some(still) = self.cx.engine.run(&run.id, now).await? else { return Ok(()) };
        if still.recover(now) != RunRecoveryAction::Nothing {
            // No record waits for the run: it is a sweep, or was superseded.
            let loaded = still.version;
            let context = TransitionContext::new(Initiator::Timeout, now).because("deadline passed");
            if let Ok(failed) = still.clone().fail("expired", error, context) {
                self.cx.put_run(&failed, loaded).await?;
            }
        } else if !still.state.is_terminal() {
            // The record extended the deadline: the run has not failed.
            return Ok(());
        }
        self.summary.expired += 1;
        Ok(self.count_failure(&run).await?)
    }

    /// Whether the replacement that a close-and-reopen waits for exists; links it if so.
    async fn is_replaced(&self, run: &Run) -> Result<bool, EngineError> {
        let (RunKind::Remedy(Strategy::CloseAndReopen), Some(pr)) = (run.kind, &run.pr) else { return Ok(false) };
        let now = self.cx.now();
        let Some(record) = self.cx.engine.load(pr, now).await? else { return Ok(false) };
        replacement::find(self.cx.engine, &record, now).await
    }

    /// Only automatic remedies count for the breaker.
    async fn count_failure(&self, run: &Run) -> Result<(), StoreError> {
        let counts = matches!(run.kind, RunKind::Remedy(_)) && run.trigger == RunTrigger::Reconciler;
        if !counts {
            return Ok(());
        }
        let now = self.cx.now();
        breaker::count_outcome(self.cx.store(), &run.id, RemedyOutcome::Failed, now).await?;
        if run.state != RunState::WaitingExternal {
            // A remedy whose target accepted it has closed the breaker already.
            let settings = &self.cx.policies().base().breaker;
            breaker::probe_ended(self.cx.store(), &run.id, ProbeOutcome::Failed, settings, now).await?;
        }
        Ok(())
    }
}
