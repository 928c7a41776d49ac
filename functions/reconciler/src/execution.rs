//! Commit or dry run. All writes on behalf of a pull request go through this file, so that a dry run is decided in one
//! place; `sweep` omits the stages that a dry run does not have.

use std::collections::BTreeSet;

use domain::breaker::{Breaker, BreakerPermit};
use domain::decide::{Decision, decide};
use domain::event::{Actor, Fact, FactKind};
use domain::id::{EventId, PrId, RepoName, RunId};
use domain::pull_request::PullRequest;
use domain::reconcile_request::ReconcileRequest;
use platform::engine::{ApplyResult, EngineError, replacement};
use platform::publish::Publisher;
use platform::store::breaker;
use platform::store::{Store, StoreError};
use platform::sweep_summary::{SkipReason, SweepSummary};
use tracing::warn;

use crate::context::SweepContext;
use crate::limits::gates::{self, SweepRows};
use crate::limits::{Deferral, in_flight};
use crate::trigger::SweepTrigger;
use crate::visit::VisitOutcome;

/// Why a fact was not applied.
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
    /// Decisions are written, and their effects are delivered.
    Commit,
    /// Nothing is written: the summary lists what would be done.
    DryRun,
}

impl From<&SweepTrigger> for Execution {
    fn from(trigger: &SweepTrigger) -> Self {
        if trigger.dry_run { Self::DryRun } else { Self::Commit }
    }
}

impl From<&ReconcileRequest> for Execution {
    fn from(request: &ReconcileRequest) -> Self {
        if request.dry_run { Self::DryRun } else { Self::Commit }
    }
}

impl Execution {
    /// Whether a branch update makes other pull requests of the same base wait.
    pub(crate) fn holds_update_queue(self) -> bool {
        self == Self::Commit
    }

    /// Whether a request needs a slot. A dry run conflicts with no other sweep.
    pub(crate) fn needs_slot(self) -> bool {
        self == Self::Commit
    }

    /// Whether the summary lists the planned action.
    pub(crate) fn lists_plan(self, outcome: &VisitOutcome) -> bool {
        self == Self::DryRun || matches!(outcome, VisitOutcome::WouldRemedy | VisitOutcome::WouldEscalate)
    }
}

impl<S: Store, O: Publisher> SweepContext<'_, S, O> {
    /// Applies a fact to a record that was just read; in a dry run only decides.
    pub(crate) async fn apply(&self, record: PullRequest, fact: &Fact) -> Result<ApplyResult, ApplyError> {
        if self.is_request_cancelled().await {
            return Err(ApplyError::Cancelled);
        }
        let now = self.now();
        if self.execution == Execution::Commit {
            return Ok(self.engine.apply_to(Some(record), fact, now).await?);
        }
        let policy = self.policies().for_repo(&fact.pr.repo);
        let Decision { outcome, reason, record, events, .. } = decide(policy, Some(record), fact, now);
        Ok(ApplyResult { outcome, reason, record, events, unpublished: 0, attempts: 1, run_durations_ms: Vec::new() })
    }

    pub(crate) async fn skip(&self, record: PullRequest, deferral: Deferral) -> Result<VisitOutcome, ApplyError> {
        let Deferral { skip, why, until, gate } = deferral;
        let fact = self.fact(&record.id, "skip", FactKind::Skipped { why, until, gate });
        self.apply(record, &fact).await?;
        Ok(VisitOutcome::Skipped(skip))
    }

    /// The current record, after a fact about it was refused because another sweep had applied it first.
    pub(crate) async fn reload(&self, record: PullRequest) -> Result<PullRequest, EngineError> {
        match self.execution {
            Execution::Commit => Ok(self.engine.load(&record.id, self.now()).await?.unwrap_or(record)),
            Execution::DryRun => Ok(record),
        }
    }

    /// Records that the base branch has moved: once per request, however often it is retried.
    pub(crate) async fn move_base(&self, record: PullRequest, base: &str) -> Result<PullRequest, ApplyError> {
        if self.execution == Execution::DryRun {
            return Ok(record);
        }
        let fact = Fact {
            id: EventId::new(format!("{}.base", self.trigger.run)),
            pr: record.id.clone(),
            occurred_at: self.trigger.at.unwrap_or_else(|| self.now()),
            actor: Actor::GithubWebhook,
            kind: FactKind::BaseMoved { base: base.to_owned() },
            described: None,
        };
        let applied = self.apply(record.clone(), &fact).await?;
        Ok(applied.record.unwrap_or(record))
    }

    /// Adds missing repositories and base branches to the registry: the process that wrote the first record may have
    /// crashed before registering them, and base branches expire.
    pub(crate) async fn register_repos(&self, records: &[PullRequest]) {
        if self.execution == Execution::DryRun {
            return;
        }
        let repos: BTreeSet<&RepoName> = records.iter().map(|record| &record.id.repo).collect();
        for repo in repos {
            self.repos.register(self.store(), repo, self.now()).await;
        }
        for record in records {
            self.repos.register_base(self.store(), record, self.now()).await;
        }
    }

    /// Links a closed pull request and its replacement, if the applied fact shows one of them.
    pub(crate) async fn link_replacement(&self, pr: &PrId, applied: &ApplyResult) {
        if self.execution == Execution::Commit
            && let Err(error) = replacement::link_after(self.engine, applied, self.now()).await
        {
            // Retried when the replacement seems to be missing.
            warn!(%pr, %error, "cannot link replacement");
        }
    }

    /// How many remedies are in flight; 0 in a dry run, which dispatches none.
    pub(crate) async fn count_in_flight(&self) -> Result<u32, StoreError> {
        match self.execution {
            Execution::Commit => in_flight::count(self.store(), self.now()).await,
            Execution::DryRun => Ok(0),
        }
    }

    /// Trips the breaker if too many remedies have failed, logs it, and returns the tripped breaker.
    pub(crate) async fn evaluate_breaker(&self) -> Result<Option<Breaker>, StoreError> {
        if self.execution == Execution::DryRun {
            return Ok(None);
        }
        let tripped = breaker::evaluate(self.store(), &self.policies().base().breaker, self.now()).await?;
        if let Some(tripped) = &tripped {
            warn!(run = %self.trigger.run, "{}", tripped.log);
        }
        Ok(tripped.map(|tripped| tripped.breaker))
    }

    /// Sends the mail about the last trip of the breaker, once.
    pub(crate) async fn report_trip(&self, rows: &SweepRows, summary: &mut SweepSummary) -> Result<(), StoreError> {
        match self.execution {
            Execution::Commit => gates::report_trip(self, rows, summary).await,
            Execution::DryRun => Ok(()),
        }
    }

    /// Whether the breaker permits this remedy; if so, it counts as in flight from here on.
    pub(crate) async fn permit(&self, run: &RunId) -> Result<BreakerPermit, ApplyError> {
        if self.execution == Execution::DryRun {
            return Ok(BreakerPermit::Allowed);
        }
        // Checked before the claim counts as in flight or becomes the breaker's only probe.
        if self.is_request_cancelled().await {
            return Err(ApplyError::Cancelled);
        }
        let now = self.now();
        let permit = breaker::may_dispatch(self.store(), run, &self.policies().base().breaker, now).await?;
        match permit {
            BreakerPermit::Allowed | BreakerPermit::Probe(_) => in_flight::add(self.store(), run, now).await?,
            BreakerPermit::Refused { .. } => {}
        }
        Ok(permit)
    }

    /// The outcome of a visit that failed. An unavailable store is returned as an error and ends all visits.
    pub(crate) fn classify_error(&self, error: ApplyError) -> Result<VisitOutcome, StoreError> {
        let skip = match error {
            ApplyError::Cancelled => SkipReason::Cancelled,
            ApplyError::Engine(EngineError::WriteConflict { .. }) => SkipReason::Overtaken,
            ApplyError::Engine(EngineError::Store(error)) => match error {
                StoreError::Unavailable(_) | StoreError::Throttled => return Err(error),
                StoreError::ConditionFailed(_) | StoreError::TransactionConflict => SkipReason::Overtaken,
                StoreError::Corrupt(..) | StoreError::TooLarge(_) => {
                    warn!(run = %self.trigger.run, %error, "skipping a pull request that cannot be stored");
                    SkipReason::Store
                }
            },
        };
        Ok(VisitOutcome::Skipped(skip))
    }
}
