//! What others left behind: effects that never went out, and runs whose message was lost, whose worker is gone or whose proof
//! did not come. It is sent again, or ended; every row that is left here gets a new date.

use std::time::Duration;

use domain::backoff::Failure;
use domain::breaker::ProbeOutcome;
use domain::event::{Happened, RemedyNews};
use domain::id::{EffectId, RunId};
use domain::run::{Initiator, Recovery, Run, RunError, RunKind, RunState, RunTrigger, TransitionContext};
use domain::state::Strategy;
use futures_util::future::join_all;
use jiff::SignedDuration;
use tracing::{info, warn};

use crate::sweep::{Pass, after};
use platform::breaker::{self, Ended};
use platform::engine::EngineError;
use platform::engine::replacement;
use platform::lookup;
use platform::outlets::message::Message;
use platform::outlets::{Content, Outlets, Parcel};
use platform::rows;
use platform::store::{OnlyIf, Store, StoreError, Write};

/// An effect that could not be delivered comes back after this long.
pub(crate) const EFFECT_AGAIN: SignedDuration = SignedDuration::from_mins(2);
/// A run that was sent again comes back after this long.
const RUN_AGAIN: SignedDuration = SignedDuration::from_mins(1);
/// A row nobody understands comes back after this long: a new version may understand it.
const UNREADABLE_AGAIN: SignedDuration = SignedDuration::from_hours(1);

impl<S: Store, O: Outlets> Pass<'_, S, O> {
    /// Effects first: what was decided long ago should have happened long ago.
    pub(crate) async fn effects(&mut self, ids: &[EffectId]) -> Result<(), StoreError> {
        for group in ids.chunks(self.at_once()) {
            if self.is_late() {
                break;
            }
            let now = self.now();
            let answers = join_all(group.iter().map(|id| self.engine().redeliver(id, now))).await;
            for (id, answer) in group.iter().zip(answers) {
                match answer {
                    Ok(true) => self.summary.delivered += 1,
                    Ok(false) if self.engine().outlets().keeps(id) => {}
                    Ok(false) => {
                        self.summary.undelivered += 1;
                        self.redate(rows::effect_key(id), EFFECT_AGAIN, OnlyIf::Present).await?;
                    }
                    Err(error) => self.unreadable(rows::effect_key(id), error).await?,
                }
            }
        }
        self.release().await
    }

    /// A row that cannot be understood is put off, so that it is in nobody's way. Anything else is the store's trouble.
    pub(crate) async fn unreadable(&mut self, key: platform::store::Key, error: EngineError) -> Result<(), StoreError> {
        match error {
            EngineError::Store(StoreError::Corrupt(at, why)) => {
                warn!(row = %at, why, "a row is put off: nobody understands it");
                self.summary.unreadable += 1;
                self.redate(key, UNREADABLE_AGAIN, OnlyIf::Present).await
            }
            EngineError::Store(error) => Err(error),
            // Somebody else is at it.
            EngineError::Contended { .. } => Ok(()),
        }
    }

    /// Another date for a row that is as it was found. One that is gone, or has moved on, has its own.
    async fn redate(&self, key: platform::store::Key, by: SignedDuration, as_found: OnlyIf) -> Result<(), StoreError> {
        let now = self.now();
        match self.store().write(vec![rows::redate(key, after(now, by), as_found)], now).await {
            Ok(()) | Err(StoreError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A run that goes to the Car Bridge once more comes back in a minute, unless somebody moves it on before.
    async fn run_again(&mut self, run: &Run) -> Result<(), EngineError> {
        let as_found = OnlyIf::Version(run.version);
        self.redate(rows::run_key(&run.id), RUN_AGAIN, as_found).await.map_err(EngineError::Store)?;
        self.send_again(run).await;
        Ok(())
    }

    /// Then runs past their lease or deadline.
    pub(crate) async fn runs(&mut self, ids: &[RunId]) -> Result<(), StoreError> {
        let runs = lookup::runs(self.store(), ids, self.now()).await?;
        for id in ids.iter().filter(|id| runs.iter().all(|run| run.id != **id)) {
            // Gone since, or not to be understood: only reading it alone tells.
            if let Err(error) = self.engine().run(id, self.now()).await {
                self.unreadable(rows::run_key(id), error).await?;
            }
        }
        for run in runs {
            if self.is_late() {
                return Ok(());
            }
            let id = run.id.clone();
            if let Err(error) = self.recover(run).await {
                match error {
                    EngineError::Contended { .. } => {}
                    EngineError::Store(StoreError::Refused(_) | StoreError::Contended) => {}
                    EngineError::Store(StoreError::Corrupt(..)) => self.unreadable(rows::run_key(&id), error).await?,
                    EngineError::Store(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn recover(&mut self, run: Run) -> Result<(), EngineError> {
        let now = self.now();
        match run.recover(now) {
            Recovery::Leave => Ok(()),
            Recovery::Resend => {
                // Its new date first: a sweep that dies here costs a minute, two that meet send once.
                let loaded = run.version;
                let again = run.resent(now);
                self.put_run(&again, loaded).await?;
                self.send_again(&again).await;
                Ok(())
            }
            Recovery::Resume(_) => self.run_again(&run).await,
            // Closing for good may be begun again: what is closed stays closed.
            Recovery::Fail(RunError::Orphaned { .. }) if run.kind == RunKind::Abandon => self.run_again(&run).await,
            Recovery::Look => self.look(run).await,
            Recovery::Fail(error) => self.expire(run, &error).await,
        }
    }

    /// The Car Bridge gets the same message once more; it knows by the run what was done.
    async fn send_again(&mut self, run: &Run) {
        let Some(message) = run.message() else { return };
        let content =
            Content::Queue { repo: message.repo.clone(), message: Message::Command(message), delay: Duration::ZERO };
        let parcel = Parcel { id: format!("{}#{}", run.id, run.version), what: content };
        match self.engine().outlets().send_now(parcel).await {
            Ok(()) => self.summary.resent += 1,
            // Its date brings it back in a minute.
            Err(error) => warn!(run = %run.id, %error, "a run could not be sent again"),
        }
    }

    /// Its time is over: the record hears of it if it waits for it, the breaker counts it, and in any case the run ends.
    async fn expire(&mut self, run: Run, error: &RunError) -> Result<(), EngineError> {
        let news = match error {
            RunError::WaitExpired { .. } => RemedyNews::Overdue,
            RunError::InvalidTransition { .. }
            | RunError::TerminalState { .. }
            | RunError::Orphaned { .. }
            | RunError::ResumeFailed { .. }
            | RunError::Leased { .. }
            | RunError::NotCancelled { .. } => {
                RemedyNews::Failed { error: error.to_string(), failure: Failure::TimedOut }
            }
        };
        if news == RemedyNews::Overdue && self.is_replaced(&run).await? {
            return Ok(());
        }
        self.over(run, news, error.to_string()).await
    }

    /// Tells that a run is over, and sees to it that it is.
    pub(crate) async fn over(&mut self, run: Run, news: RemedyNews, error: String) -> Result<(), EngineError> {
        if let Some(pr) = &run.pr {
            let fact = self.fact(pr, &format!("{}.expired", run.id), Happened::Remedy { run: run.id.clone(), news });
            let applied = self.engine().apply(&fact, self.now()).await?;
            info!(run = %run.id, %pr, reason = applied.reason, "a run is over");
        }
        let now = self.now();
        let Some(still) = self.engine().run(&run.id, now).await? else { return Ok(()) };
        if still.recover(now) != Recovery::Leave {
            // No record waits for it: a sweep, or a run that was overtaken.
            let loaded = still.version;
            let context = TransitionContext::new(Initiator::Timeout, now).because("past its date");
            if let Ok(failed) = still.clone().fail("left behind", error, context) {
                self.put_run(&failed, loaded).await?;
            }
        } else if !still.state.is_terminal() {
            // It was given more time: nothing has failed yet.
            return Ok(());
        }
        self.summary.expired += 1;
        self.count_failure(&run).await.map_err(EngineError::Store)
    }

    /// Whether the fresh pull request that a close-and-reopen waits for is there, and only nobody has said so.
    async fn is_replaced(&mut self, run: &Run) -> Result<bool, EngineError> {
        let (RunKind::Remedy(Strategy::CloseAndReopen), Some(pr)) = (run.kind, &run.pr) else { return Ok(false) };
        let now = self.now();
        let Some(record) = self.engine().load(pr, now).await? else { return Ok(false) };
        replacement::find(self.engine(), &record, now).await
    }

    /// Only what Suture did by itself counts for the breaker.
    async fn count_failure(&self, run: &Run) -> Result<(), StoreError> {
        let counts = matches!(run.kind, RunKind::Remedy(_)) && run.trigger == RunTrigger::Reconciler;
        if !counts {
            return Ok(());
        }
        let now = self.now();
        breaker::count(self.store(), &run.id, Ended::Failed, now).await?;
        if run.state != RunState::WaitingExternal {
            // What was accepted has closed the breaker already.
            let settings = &self.policies().base().breaker;
            breaker::probe_ended(self.store(), &run.id, ProbeOutcome::Failed, settings, now).await?;
        }
        Ok(())
    }

    pub(crate) async fn put_run(&self, run: &Run, loaded: u64) -> Result<(), EngineError> {
        let (key, item) = rows::run_row(run, self.policies().base()).map_err(EngineError::Store)?;
        let write = Write::Put { key, item, only_if: OnlyIf::Version(loaded) };
        self.store().write(vec![write], self.now()).await.map_err(EngineError::Store)
    }
}
