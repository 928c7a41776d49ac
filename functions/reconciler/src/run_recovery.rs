//! Recovers runs whose message was lost, whose worker has crashed, or whose expected event did not arrive: resends the
//! message or ends the run. A run that stays open gets a later due date.
//!
//! An event that did not arrive is no failure yet: its webhook may be lost. Such a run is overdue; it ends only after its
//! pull request was compared with GitHub in the same sweep and the proof is not there either (R-RUN-10).

use std::collections::BTreeSet;

use domain::backoff::AttemptFailure;
use domain::breaker::ProbeOutcome;
use domain::event::{FactKind, RemedyUpdate};
use domain::id::{PrId, RunId};
use domain::run::{Initiator, Run, RunError, RunKind, RunRecoveryAction, RunState, RunTrigger, TransitionContext};
use domain::state::Strategy;
use jiff::SignedDuration;
use platform::engine::{EngineError, replacement};
use platform::publish::{OutboundMessage, Publisher};
use platform::store::breaker::{self, RemedyOutcome};
use platform::store::pause;
use platform::store::queries;
use platform::store::schema;
use platform::store::{Condition, Store, StoreError};
use platform::sweep_summary::SweepSummary;
use tracing::{info, warn};

use crate::context::SweepContext;
use crate::due::{defer, defer_undecodable};
use crate::inventory;
use crate::jenkins_queue::{self, ItemState, JenkinsQueue};

/// A run that is overdue for this long ends although GitHub never answered about its pull request.
const UNANSWERED_LIMIT: SignedDuration = SignedDuration::from_hours(12);
/// How far GitHub's clock may be behind ours.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);
/// A run whose message was resent is due again after this long.
const RUN_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(1);

enum Replacement {
    Found,
    Missing,
    /// GitHub could not be asked.
    Unknown,
}

struct RunRecovery<'a, S, O> {
    cx: &'a SweepContext<'a, S, O>,
    jenkins: JenkinsQueue<'a, S, O>,
    overdue: Vec<OverdueRun>,
    summary: &'a mut SweepSummary,
}

/// A run whose expected event did not arrive in time.
pub(crate) struct OverdueRun {
    pub(crate) id: RunId,
    pub(crate) pr: PrId,
}

/// Recovers runs past their lease or deadline. Returns the overdue ones, whose pull requests must be compared with
/// GitHub before `end_overdue`.
pub(crate) async fn recover<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    ids: &[RunId],
    summary: &mut SweepSummary,
) -> Result<Vec<OverdueRun>, StoreError> {
    let runs = queries::runs(cx.store(), ids, cx.now()).await?;
    for id in ids.iter().filter(|id| runs.iter().all(|run| run.id != **id)) {
        // Deleted meanwhile, or undecodable: reading it alone shows which.
        if let Err(error) = cx.engine.run(id, cx.now()).await {
            defer_undecodable(cx, schema::run_key(id), error, summary).await?;
        }
    }
    let mut recovery = RunRecovery::new(cx, summary);
    for run in runs {
        if cx.is_late(recovery.summary) {
            break;
        }
        let id = run.id.clone();
        let recovered = recovery.recover(run).await;
        recovery.handle_error(&id, recovered).await?;
    }
    Ok(recovery.overdue)
}

/// Ends the overdue runs whose pull requests were compared with GitHub in this sweep and that are still not proven. The
/// others stay due: without an answer from GitHub there is no verdict.
pub(crate) async fn end_overdue<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    overdue: &[OverdueRun],
    compared: &BTreeSet<PrId>,
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    if overdue.is_empty() {
        return Ok(());
    }
    let prs: Vec<PrId> = overdue.iter().map(|run| run.pr.clone()).collect();
    let recorded: BTreeSet<PrId> =
        queries::records(cx.store(), &prs, cx.now()).await?.into_iter().map(|record| record.id).collect();
    let ids: Vec<RunId> = overdue.iter().map(|run| run.id.clone()).collect();
    let paused = pause::paused_by(cx.store(), cx.now()).await?.is_some();
    let mut recovery = RunRecovery::new(cx, summary);
    for run in queries::runs(cx.store(), &ids, cx.now()).await? {
        let RunRecoveryAction::Fail(error) = run.recover(cx.now()) else { continue };
        // CodeGenie would be asked again, which has to wait for the end of the pause.
        if paused && run.kind == RunKind::Remedy(Strategy::CloseAndReopen) {
            continue;
        }
        let unanswered = run.wait_expired(cx.now().saturating_sub(UNANSWERED_LIMIT).unwrap_or(cx.now()));
        let may_end = run.pr.as_ref().is_none_or(|pr| compared.contains(pr) || !recorded.contains(pr));
        if may_end || unanswered {
            let id = run.id.clone();
            let ended = recovery.expire(run, &error, unanswered).await;
            recovery.handle_error(&id, ended).await?;
        }
    }
    Ok(())
}

impl<'a, S: Store, O: Publisher> RunRecovery<'a, S, O> {
    fn new(cx: &'a SweepContext<'a, S, O>, summary: &'a mut SweepSummary) -> Self {
        Self { cx, jenkins: JenkinsQueue { cx, is_unavailable: false }, overdue: Vec::new(), summary }
    }

    /// A conflict means that another process has advanced the run; an undecodable run is deferred.
    async fn handle_error(&mut self, run: &RunId, result: Result<(), EngineError>) -> Result<(), StoreError> {
        match result {
            Ok(()) | Err(EngineError::WriteConflict { .. }) => Ok(()),
            Err(EngineError::Store(StoreError::ConditionFailed(_) | StoreError::TransactionConflict)) => Ok(()),
            Err(error @ EngineError::Store(StoreError::Corrupt(..))) => {
                defer_undecodable(self.cx, schema::run_key(run), error, self.summary).await
            }
            Err(EngineError::Store(error)) => Err(error),
        }
    }

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
            RunRecoveryAction::Fail(error) => match (&error, &run.pr) {
                (RunError::WaitExpired { .. }, Some(pr)) => {
                    self.overdue.push(OverdueRun { id: run.id.clone(), pr: pr.clone() });
                    Ok(())
                }
                _ => self.expire(run, &error, false).await,
            },
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
    async fn expire(&mut self, run: Run, error: &RunError, unanswered: bool) -> Result<(), EngineError> {
        let overdue = matches!(error, RunError::WaitExpired { .. });
        if overdue {
            match self.find_replacement(&run).await? {
                Replacement::Found => return Ok(()),
                Replacement::Unknown if !unanswered => return Ok(()),
                Replacement::Unknown | Replacement::Missing => {}
            }
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
        } else if !still.state.is_terminal() || still.state == RunState::Completed {
            // The record extended the deadline, or the proof was found meanwhile: the run has not failed.
            return Ok(());
        }
        self.summary.expired += 1;
        Ok(self.count_failure(&run).await?)
    }

    /// Looks for the replacement that a close-and-reopen waits for, and links it: first among the records, then among the
    /// pull requests on GitHub, open and closed, because its webhooks may be lost and it may be merged by now.
    async fn find_replacement(&mut self, run: &Run) -> Result<Replacement, EngineError> {
        let (RunKind::Remedy(Strategy::CloseAndReopen), Some(pr)) = (run.kind, &run.pr) else {
            return Ok(Replacement::Missing);
        };
        let Some(record) = self.cx.engine.load(pr, self.cx.now()).await? else { return Ok(Replacement::Missing) };
        let since = run.created_at.saturating_sub(CLOCK_SKEW).unwrap_or(run.created_at);
        if replacement::find(self.cx.engine, &record, self.cx.now()).await? {
            return Ok(Replacement::Found);
        }
        for closed in [false, true] {
            let listed = if closed {
                inventory::adopt_closed(self.cx, &record, since, self.summary).await
            } else {
                inventory::adopt_open(self.cx, &pr.repo, self.summary).await
            };
            if let Err(error) = listed {
                warn!(run = %run.id, %error, "cannot list pull requests to find the replacement");
                return Ok(Replacement::Unknown);
            }
            if replacement::find(self.cx.engine, &record, self.cx.now()).await? {
                return Ok(Replacement::Found);
            }
        }
        Ok(Replacement::Missing)
    }

    /// Only automatic remedies count for the breaker.
    async fn count_failure(&self, run: &Run) -> Result<(), StoreError> {
        let counts = matches!(run.kind, RunKind::Remedy(_)) && run.trigger == RunTrigger::Reconciler;
        if !counts {
            return Ok(());
        }
        let now = self.cx.now();
        let settings = &self.cx.policies().base().breaker;
        let tripped = breaker::report_outcome(self.cx.store(), &run.id, RemedyOutcome::Failed, settings, now).await?;
        if let Some(tripped) = tripped {
            warn!(run = %run.id, "{}", tripped.log);
        }
        if run.state != RunState::WaitingExternal {
            // A remedy whose target accepted it has closed the breaker already.
            breaker::probe_ended(self.cx.store(), &run.id, ProbeOutcome::Failed, settings, now).await?;
        }
        Ok(())
    }
}
