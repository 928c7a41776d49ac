//! Whether a sweep writes, or only finds out what it would do. Everything that is written on behalf of a pull request
//! is written here, so that a dry run is decided in one place; whole stages that a dry run does not have are left out
//! by `sweep`.

use std::collections::BTreeSet;

use domain::breaker::{Breaker, Permit};
use domain::decide::{Decision, decide};
use domain::event::{Actor, Fact, Happened};
use domain::id::{EventId, PrId, RepoName, RunId};
use domain::pull_request::Record;
use domain::request::Request;
use platform::breaker;
use platform::engine::{Applied, EngineError, replacement};
use platform::outlets::Outlets;
use platform::store::{Store, StoreError};
use platform::sweep_summary::{Skip, Summary};
use tracing::warn;

use crate::context::SweepContext;
use crate::limits::{Deferral, dispatch_gate, in_flight};
use crate::trigger::Wish;
use crate::visit::VisitOutcome;

/// Why nothing was written.
pub(crate) enum ApplyError {
    Engine(EngineError),
    Cancelled,
}

impl From<EngineError> for ApplyError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<StoreError> for ApplyError {
    fn from(error: StoreError) -> Self {
        Self::Engine(EngineError::Store(error))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Execution {
    /// What is decided is written, and so happens.
    Commit,
    /// Nothing is written: the summary says what would be.
    DryRun,
}

impl From<&Wish> for Execution {
    fn from(wish: &Wish) -> Self {
        if wish.dry_run { Self::DryRun } else { Self::Commit }
    }
}

impl From<&Request> for Execution {
    fn from(request: &Request) -> Self {
        if request.dry_run { Self::DryRun } else { Self::Commit }
    }
}

impl Execution {
    /// Whether one that is to update its branch keeps others of its base from updating theirs.
    pub(crate) fn takes_turn(self) -> bool {
        self == Self::Commit
    }

    /// Whether a request needs a slot. A dry run is in nobody's way.
    pub(crate) fn needs_slot(self) -> bool {
        self == Self::Commit
    }

    /// Whether the summary lists what would be done.
    pub(crate) fn lists_plan(self, outcome: &VisitOutcome) -> bool {
        self == Self::DryRun || matches!(outcome, VisitOutcome::WouldRemedy | VisitOutcome::WouldEscalate)
    }
}

impl<S: Store, O: Outlets> SweepContext<'_, S, O> {
    /// Applies a fact to a record that was just read, or only decides what would follow from it.
    pub(crate) async fn apply(&self, record: Record, fact: &Fact) -> Result<Applied, ApplyError> {
        if self.is_request_cancelled().await {
            return Err(ApplyError::Cancelled);
        }
        let now = self.now();
        if self.execution == Execution::Commit {
            return Ok(self.engine.apply_to(Some(record), fact, now).await?);
        }
        let policy = self.policies().for_repo(&fact.pr.repo);
        let Decision { outcome, reason, record, events, .. } = decide(policy, Some(record), fact, now);
        Ok(Applied { outcome, reason, record, events, undelivered: 0, tries: 1, ended_ms: Vec::new() })
    }

    pub(crate) async fn skip(&self, record: Record, deferral: Deferral) -> Result<VisitOutcome, ApplyError> {
        let Deferral { skip, why, until } = deferral;
        let fact = self.fact(&record.id, "skip", Happened::Skipped { why, until });
        self.apply(record, &fact).await?;
        Ok(VisitOutcome::Skipped(skip))
    }

    /// The record as it is now, after a fact about it was refused because another sweep had applied it first.
    pub(crate) async fn reload(&self, record: Record) -> Result<Record, EngineError> {
        match self.execution {
            Execution::Commit => Ok(self.engine.load(&record.id, self.now()).await?.unwrap_or(record)),
            Execution::DryRun => Ok(record),
        }
    }

    /// Tells a record that its base has moved: once for each request, however often that is tried.
    pub(crate) async fn move_base(&self, record: Record, base: &str) -> Result<Record, ApplyError> {
        if self.execution == Execution::DryRun {
            return Ok(record);
        }
        let fact = Fact {
            id: EventId::new(format!("{}.base", self.wish.run)),
            pr: record.id.clone(),
            occurred_at: self.wish.at.unwrap_or_else(|| self.now()),
            actor: Actor::GithubWebhook,
            what: Happened::BaseMoved { base: base.to_owned() },
        };
        let applied = self.apply(record.clone(), &fact).await?;
        Ok(applied.record.unwrap_or(record))
    }

    /// Whoever wrote a repository's first record may have died before the list of repositories had it.
    pub(crate) async fn register_repos(&self, records: &[Record]) {
        if self.execution == Execution::DryRun {
            return;
        }
        let repos: BTreeSet<&RepoName> = records.iter().map(|record| &record.id.repo).collect();
        for repo in repos {
            self.repos.register(self.store(), repo, self.now()).await;
        }
    }

    /// Links a closed pull request and its replacement, if what was applied shows one of them.
    pub(crate) async fn link_replacement(&self, pr: &PrId, applied: &Applied) {
        if self.execution == Execution::Commit
            && let Err(error) = replacement::follow(self.engine, applied, self.now()).await
        {
            // Tried again when the replacement seems to be missing.
            warn!(%pr, %error, "cannot link replacement");
        }
    }

    /// How many remedies are in flight. A dry run dispatches none, and so need not know.
    pub(crate) async fn count_in_flight(&self) -> Result<u32, StoreError> {
        match self.execution {
            Execution::Commit => in_flight::count(self.store(), self.now()).await,
            Execution::DryRun => Ok(0),
        }
    }

    /// Trips the breaker if too many remedies have failed, and says so.
    pub(crate) async fn evaluate_breaker(&self) -> Result<(), StoreError> {
        if self.execution == Execution::Commit
            && let Some(tripped) = breaker::evaluate(self.store(), &self.policies().base().breaker, self.now()).await?
        {
            warn!(run = %self.wish.run, "{}", tripped.log);
        }
        Ok(())
    }

    /// Sends the mail about the breaker's last trip, once.
    pub(crate) async fn report_trip(&self, breaker: &Breaker, summary: &mut Summary) -> Result<(), StoreError> {
        match self.execution {
            Execution::Commit => dispatch_gate::report_trip(self, breaker, summary).await,
            Execution::DryRun => Ok(()),
        }
    }

    /// Whether the breaker lets this remedy through; if so, it counts as in flight from here on.
    pub(crate) async fn permit(&self, run: &RunId) -> Result<Permit, ApplyError> {
        if self.execution == Execution::DryRun {
            return Ok(Permit::Allowed);
        }
        // Before the claim takes a place among those in flight, or the breaker's only probe.
        if self.is_request_cancelled().await {
            return Err(ApplyError::Cancelled);
        }
        let now = self.now();
        let permit = breaker::may_dispatch(self.store(), run, &self.policies().base().breaker, now).await?;
        match permit {
            Permit::Allowed | Permit::Probe(_) => in_flight::add(self.store(), run, now).await?,
            Permit::Refused { .. } => {}
        }
        Ok(permit)
    }

    /// What an error means for one pull request. A store that does not answer ends the visits of all.
    pub(crate) fn classify_error(&self, error: ApplyError) -> Result<VisitOutcome, StoreError> {
        let skip = match error {
            ApplyError::Cancelled => Skip::Cancelled,
            ApplyError::Engine(EngineError::Contended { .. }) => Skip::Overtaken,
            ApplyError::Engine(EngineError::Store(error)) => match error {
                StoreError::Unavailable(_) | StoreError::Throttled => return Err(error),
                StoreError::Refused(_) | StoreError::Contended => Skip::Overtaken,
                StoreError::Corrupt(..) | StoreError::TooLarge(_) => {
                    warn!(run = %self.wish.run, %error, "skipping a pull request that cannot be stored");
                    Skip::Store
                }
            },
        };
        Ok(VisitOutcome::Skipped(skip))
    }
}
