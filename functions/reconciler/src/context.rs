//! The read-only context of every sweep stage: clients, clock, trigger, deadline, and whether the sweep was cancelled.

use std::sync::atomic::{AtomicBool, Ordering};

use domain::event::{Actor, Fact, FactKind};
use domain::id::{EventId, PrId};
use domain::policy::Policies;
use domain::run::{Run, RunTrigger};
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock;
use platform::engine::Engine;
use platform::engine::repo_registry::RepoRegistry;
use platform::github::GitHub;
use platform::jenkins::Jenkins;
use platform::publish::Publisher;
use platform::reconcile_request;
use platform::store::schema;
use platform::store::{Condition, RowWrite, Store, StoreError};
use platform::sweep_summary::SweepSummary;
use tracing::{error, warn};

use crate::digest::DigestingPublisher;
use crate::execution::Execution;
use crate::reconciler::Reconciler;
use crate::trigger::SweepTrigger;

/// No new work starts when less than this is left before the deadline: work in progress must end and be reported.
pub(crate) const RESERVE: SignedDuration = SignedDuration::from_secs(10);
/// No snapshots are read from GitHub when less than this is left: computing mergeability alone may take 30 s.
pub(crate) const SNAPSHOT_RESERVE: SignedDuration = SignedDuration::from_secs(60);

pub(crate) fn saturating_after(at: Timestamp, by: SignedDuration) -> Timestamp {
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
    pub(crate) trigger: &'a SweepTrigger,
    pub(crate) execution: Execution,
    pub(crate) deadline: Timestamp,
    /// Set when the cancellation is first read, and never unset, so that it is read only once.
    cancelled: AtomicBool,
}

impl<'a, S: Store, O: Publisher> SweepContext<'a, S, O> {
    pub(crate) fn new(reconciler: &'a Reconciler<S, O>, trigger: &'a SweepTrigger, deadline: Timestamp) -> Self {
        Self {
            engine: &reconciler.engine,
            github: &reconciler.github,
            jenkins: reconciler.jenkins.as_ref(),
            repos: &reconciler.repos,
            clock: &*reconciler.clock,
            trigger,
            execution: Execution::from(trigger),
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
        self.trigger.kind == RunTrigger::Schedule
    }

    /// How many pull requests are processed at the same time.
    pub(crate) fn concurrency(&self) -> usize {
        usize::try_from(self.policies().base().sweep.concurrency).unwrap_or(1).max(1)
    }

    /// A fact recorded by this sweep. Its id stays the same when the step is repeated within the sweep.
    pub(crate) fn fact(&self, pr: &PrId, step: &str, what: FactKind) -> Fact {
        Fact {
            id: EventId::new(format!("{}.{step}", self.trigger.run)),
            pr: pr.clone(),
            occurred_at: self.now(),
            actor: Actor::Reconciler,
            kind: what,
            described: None,
        }
    }

    /// Writes a run, if it is unchanged since it was loaded.
    pub(crate) async fn put_run(&self, run: &Run, loaded: u64) -> Result<(), StoreError> {
        let (key, item) = schema::run_row(run, self.policies().base())?;
        self.store().write(vec![RowWrite::Put { key, item, only_if: Condition::Version(loaded) }], self.now()).await
    }

    /// Whether the deadline is too near to start new work; if so, the summary is marked partial.
    pub(crate) fn is_late(&self, summary: &mut SweepSummary) -> bool {
        self.ends_within(RESERVE, summary)
    }

    pub(crate) fn ends_within(&self, reserve: SignedDuration, summary: &mut SweepSummary) -> bool {
        let late = saturating_after(self.now(), reserve) >= self.deadline;
        summary.partial |= late;
        late
    }

    /// Checked between two stages: false if the deadline is near or the sweep is cancelled.
    pub(crate) async fn should_continue(&self, summary: &mut SweepSummary) -> bool {
        if summary.cancelled || self.is_late(summary) {
            return false;
        }
        summary.cancelled = self.is_cancelled().await;
        !summary.cancelled
    }

    /// Checked before each claim and each write of an on-demand sweep. A scheduled sweep is cancelled only between its
    /// stages: no user waits for it, and the check would cost one read per write.
    pub(crate) async fn is_request_cancelled(&self) -> bool {
        !self.is_scheduled() && self.is_cancelled().await
    }

    async fn is_cancelled(&self) -> bool {
        if self.was_cancelled() {
            return true;
        }
        match reconcile_request::is_cancel_requested(self.store(), &self.trigger.run, self.now()).await {
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

    /// Whether a cancellation has been read already; does not read again.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Logs and counts a failed stage; the remaining stages still run. After a write conflict the rest of the stage is still due.
    pub(crate) fn stage_failed(&self, stage: &str, error: &StoreError, summary: &mut SweepSummary) {
        if error.is_conflict() {
            warn!(run = %self.trigger.run, stage, %error, "write conflict ended sweep stage; the next sweep continues");
            return;
        }
        error!(run = %self.trigger.run, stage, %error, "sweep stage failed");
        summary.fail(stage, error);
    }
}
