//! Runs whose message was lost, whose worker is gone, or whose proof did not come: their message is sent again, or they
//! are ended. Every run that is left here gets a later due date.

use domain::backoff::Failure;
use domain::breaker::ProbeOutcome;
use domain::event::{Happened, RemedyNews};
use domain::id::RunId;
use domain::run::{Initiator, Recovery, Run, RunError, RunKind, RunState, RunTrigger, TransitionContext};
use domain::state::Strategy;
use jiff::SignedDuration;
use platform::breaker::{self, Ended};
use platform::engine::{EngineError, replacement};
use platform::lookup;
use platform::outlets::{Outlets, Parcel};
use platform::rows;
use platform::store::{OnlyIf, Store, StoreError};
use platform::sweep_summary::Summary;
use tracing::{info, warn};

use crate::context::SweepContext;
use crate::due::{defer, defer_undecodable};
use crate::jenkins_queue::{self, ItemState, JenkinsQueue};

/// A run whose message was sent again is due again after this long.
const RUN_AGAIN: SignedDuration = SignedDuration::from_mins(1);

struct RunRecovery<'a, S, O> {
    cx: &'a SweepContext<'a, S, O>,
    jenkins: JenkinsQueue<'a, S, O>,
    summary: &'a mut Summary,
}

/// Recovers runs past their lease or deadline.
pub(crate) async fn recover<S: Store, O: Outlets>(
    cx: &SweepContext<'_, S, O>,
    ids: &[RunId],
    summary: &mut Summary,
) -> Result<(), StoreError> {
    let runs = lookup::runs(cx.store(), ids, cx.now()).await?;
    for id in ids.iter().filter(|id| runs.iter().all(|run| run.id != **id)) {
        // Gone since, or undecodable: only reading it alone tells.
        if let Err(error) = cx.engine.run(id, cx.now()).await {
            defer_undecodable(cx, rows::run_key(id), error, summary).await?;
        }
    }
    let mut recovery = RunRecovery { cx, jenkins: JenkinsQueue { cx, is_silent: false }, summary };
    for run in runs {
        if cx.is_late(recovery.summary) {
            return Ok(());
        }
        let key = rows::run_key(&run.id);
        if let Err(error) = recovery.recover(run).await {
            match error {
                EngineError::Contended { .. } => {}
                EngineError::Store(StoreError::Refused(_) | StoreError::Contended) => {}
                EngineError::Store(StoreError::Corrupt(..)) => {
                    defer_undecodable(cx, key, error, recovery.summary).await?
                }
                EngineError::Store(error) => return Err(error),
            }
        }
    }
    Ok(())
}

impl<S: Store, O: Outlets> RunRecovery<'_, S, O> {
    async fn recover(&mut self, run: Run) -> Result<(), EngineError> {
        let now = self.cx.now();
        match run.recover(now) {
            Recovery::Leave => Ok(()),
            Recovery::Resend => {
                // Its due date first: a sweep that dies here costs a minute, two that meet send once.
                let loaded = run.version;
                let again = run.resent(now);
                self.cx.put_run(&again, loaded).await?;
                self.send_again(&again).await;
                Ok(())
            }
            Recovery::Resume(_) => self.resume(&run).await,
            // Closing for good may be started again: what is closed stays closed.
            Recovery::Fail(RunError::Orphaned { .. }) if run.kind == RunKind::Abandon => self.resume(&run).await,
            Recovery::Look => match self.jenkins.poll(&run).await? {
                ItemState::Cancelled(item) => {
                    let error = format!("item {item} was taken out of Jenkins' queue");
                    let news = RemedyNews::Failed { error: error.clone(), failure: Failure::Unavailable };
                    self.end(run, news, error).await
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
            Recovery::Fail(error) => self.expire(run, &error).await,
        }
    }

    /// A run that goes to the Car Bridge once more is due again in a minute, unless somebody moves it on before.
    async fn resume(&mut self, run: &Run) -> Result<(), EngineError> {
        let as_found = OnlyIf::Version(run.version);
        defer(self.cx, rows::run_key(&run.id), RUN_AGAIN, as_found).await?;
        self.send_again(run).await;
        Ok(())
    }

    /// The Car Bridge gets the same message once more; it knows by the run what was done.
    async fn send_again(&mut self, run: &Run) {
        let Some(message) = run.message() else { return };
        let parcel = Parcel::command(format!("{}#{}", run.id, run.version), message);
        match self.cx.engine.outlets().send_now(parcel).await {
            Ok(()) => self.summary.resent += 1,
            // It is due again in a minute.
            Err(error) => warn!(run = %run.id, %error, "cannot send a run again"),
        }
    }

    /// A run past its deadline fails, unless all that was missing is the link to the replacement it waits for.
    async fn expire(&mut self, run: Run, error: &RunError) -> Result<(), EngineError> {
        let overdue = matches!(error, RunError::WaitExpired { .. });
        if overdue && self.is_replaced(&run).await? {
            return Ok(());
        }
        let failed = RemedyNews::Failed { error: error.to_string(), failure: Failure::TimedOut };
        let news = if overdue { RemedyNews::Overdue } else { failed };
        self.end(run, news, error.to_string()).await
    }

    /// Ends a run: its record is told, if it waits for the run, the breaker counts the failure, and in any case the run
    /// ends.
    async fn end(&mut self, run: Run, news: RemedyNews, error: String) -> Result<(), EngineError> {
        if let Some(pr) = &run.pr {
            let fact = self.cx.fact(pr, &format!("{}.expired", run.id), Happened::Remedy { run: run.id.clone(), news });
            let applied = self.cx.engine.apply(&fact, self.cx.now()).await?;
            info!(run = %run.id, %pr, reason = applied.reason, "run expired");
        }
        let now = self.cx.now();
        let Some(still) = self.cx.engine.run(&run.id, now).await? else { return Ok(()) };
        if still.recover(now) != Recovery::Leave {
            // No record waits for it: a sweep, or a run that was overtaken.
            let loaded = still.version;
            let context = TransitionContext::new(Initiator::Timeout, now).because("past its date");
            if let Ok(failed) = still.clone().fail("left behind", error, context) {
                self.cx.put_run(&failed, loaded).await?;
            }
        } else if !still.state.is_terminal() {
            // It was given more time: nothing has failed yet.
            return Ok(());
        }
        self.summary.expired += 1;
        Ok(self.count_failure(&run).await?)
    }

    /// Whether the replacement that a close-and-reopen waits for exists, and only nobody has linked it.
    async fn is_replaced(&self, run: &Run) -> Result<bool, EngineError> {
        let (RunKind::Remedy(Strategy::CloseAndReopen), Some(pr)) = (run.kind, &run.pr) else { return Ok(false) };
        let now = self.cx.now();
        let Some(record) = self.cx.engine.load(pr, now).await? else { return Ok(false) };
        replacement::find(self.cx.engine, &record, now).await
    }

    /// Only what Suture did by itself counts for the breaker.
    async fn count_failure(&self, run: &Run) -> Result<(), StoreError> {
        let counts = matches!(run.kind, RunKind::Remedy(_)) && run.trigger == RunTrigger::Reconciler;
        if !counts {
            return Ok(());
        }
        let now = self.cx.now();
        breaker::count(self.cx.store(), &run.id, Ended::Failed, now).await?;
        if run.state != RunState::WaitingExternal {
            // A remedy that was accepted has closed the breaker already.
            let settings = &self.cx.policies().base().breaker;
            breaker::probe_ended(self.cx.store(), &run.id, ProbeOutcome::Failed, settings, now).await?;
        }
        Ok(())
    }
}
