//! What every stage of a sweep may use and none may change: clients, clock, trigger, deadline, and whether somebody has
//! cancelled the sweep.

use std::sync::atomic::{AtomicBool, Ordering};

use domain::event::{Actor, Fact, Happened};
use domain::id::{EventId, PrId};
use domain::policy::Policies;
use domain::run::{Run, RunTrigger};
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock;
use platform::engine::Engine;
use platform::engine::repo_registry::RepoRegistry;
use platform::github::GitHub;
use platform::jenkins::Jenkins;
use platform::outlets::Outlets;
use platform::requests;
use platform::rows;
use platform::store::{OnlyIf, Store, StoreError, Write};
use platform::sweep_summary::Summary;
use tracing::{error, warn};

use crate::digest::DigestingPublisher;
use crate::execution::Execution;
use crate::reconciler::Sweep;
use crate::trigger::Wish;

/// Nothing new is started when less than this is left before the deadline: work in progress has to end, and be reported.
pub(crate) const RESERVE: SignedDuration = SignedDuration::from_secs(10);
/// Pull requests are not read from GitHub when less than this is left: computing mergeability alone may take 30 s.
pub(crate) const READING: SignedDuration = SignedDuration::from_secs(60);

pub(crate) fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// A length as the summary counts it.
pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

pub(crate) struct SweepContext<'a, S, O> {
    pub(crate) engine: &'a Engine<S, DigestingPublisher<O>>,
    pub(crate) github: &'a GitHub,
    pub(crate) jenkins: Option<&'a Jenkins>,
    pub(crate) repos: &'a RepoRegistry,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) wish: &'a Wish,
    pub(crate) execution: Execution,
    pub(crate) deadline: Timestamp,
    /// Set when the cancellation is first read, and never unset: it is not read again.
    cancelled: AtomicBool,
}

impl<'a, S: Store, O: Outlets> SweepContext<'a, S, O> {
    pub(crate) fn new(reconciler: &'a Sweep<S, O>, wish: &'a Wish, deadline: Timestamp) -> Self {
        Self {
            engine: &reconciler.engine,
            github: &reconciler.github,
            jenkins: reconciler.jenkins.as_ref(),
            repos: &reconciler.repos,
            clock: &*reconciler.clock,
            wish,
            execution: Execution::from(wish),
            deadline,
            cancelled: AtomicBool::new(false),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn store(&self) -> &'a S {
        self.engine.store()
    }

    pub(crate) fn policies(&self) -> &'a Policies {
        self.engine.policies()
    }

    pub(crate) fn is_scheduled(&self) -> bool {
        self.wish.trigger == RunTrigger::Schedule
    }

    /// How many pull requests are worked on at the same time.
    pub(crate) fn concurrency(&self) -> usize {
        usize::try_from(self.policies().base().sweep.concurrency).unwrap_or(1).max(1)
    }

    /// Something this sweep did. Its id is the same however often the step is repeated within the sweep.
    pub(crate) fn fact(&self, pr: &PrId, step: &str, what: Happened) -> Fact {
        Fact {
            id: EventId::new(format!("{}.{step}", self.wish.run)),
            pr: pr.clone(),
            occurred_at: self.now(),
            actor: Actor::Reconciler,
            what,
        }
    }

    /// Writes a run that nobody has written since it was loaded.
    pub(crate) async fn put_run(&self, run: &Run, loaded: u64) -> Result<(), StoreError> {
        let (key, item) = rows::run_row(run, self.policies().base())?;
        self.store().write(vec![Write::Put { key, item, only_if: OnlyIf::Version(loaded) }], self.now()).await
    }

    /// Whether the deadline is so near that nothing new may be started; if so, the summary says it.
    pub(crate) fn is_late(&self, summary: &mut Summary) -> bool {
        self.ends_within(RESERVE, summary)
    }

    pub(crate) fn ends_within(&self, reserve: SignedDuration, summary: &mut Summary) -> bool {
        let late = after(self.now(), reserve) >= self.deadline;
        summary.partial |= late;
        late
    }

    /// Between two stages: whether neither the deadline nor a cancellation ends the sweep.
    pub(crate) async fn should_continue(&self, summary: &mut Summary) -> bool {
        if summary.cancelled || self.is_late(summary) {
            return false;
        }
        summary.cancelled = self.is_cancelled().await;
        !summary.cancelled
    }

    /// Before each claim and each write of an on-demand sweep. A scheduled sweep is cancelled between its stages only:
    /// nobody waits for it, and asking would cost a read for each write.
    pub(crate) async fn is_request_cancelled(&self) -> bool {
        !self.is_scheduled() && self.is_cancelled().await
    }

    async fn is_cancelled(&self) -> bool {
        if self.was_cancelled() {
            return true;
        }
        match requests::is_told_to_stop(self.store(), &self.wish.run, self.now()).await {
            Ok(cancelled) => {
                self.cancelled.store(cancelled, Ordering::Relaxed);
                cancelled
            }
            // If the flag can't be read, assume not cancelled.
            Err(error) => {
                warn!(%error, "cannot read whether the sweep is cancelled");
                false
            }
        }
    }

    /// Whether somebody was found to have cancelled it, without asking again.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// A stage failed; the others are tried all the same.
    pub(crate) fn stage_failed(&self, stage: &str, error: &StoreError, summary: &mut Summary) {
        error!(run = %self.wish.run, stage, %error, "sweep stage failed");
        summary.fail(stage, error);
    }
}
