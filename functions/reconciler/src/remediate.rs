//! Remediates stale pull requests: diagnoses them, checks the limits, and lets the domain decide: a claim, an
//! escalation, or no action.

use domain::admission::{Gate, GateEpoch, StartConditions, Starter, may_start};
use domain::breaker::{BreakerPermit, ProbeOutcome, SKIPPED_LOG};
use domain::decide::FactOutcome;
use domain::diagnosis::{Classification, Diagnosis, DiagnosisInput, classify};
use domain::event::{DiagnosisFact, EventKind, FactKind};
use domain::id::{PrId, RunId};
use domain::policy::{Mode, Policy};
use domain::pull_request::{PullRequest, Vulnerability};
use domain::snapshot::LiveStatus;
use domain::state::{State, Strategy};
use domain::text::{self, EscalationHistory};
use futures_util::future::join_all;
use platform::engine::ApplyResult;
use platform::hash::stable_id;
use platform::jenkins::build_of;
use platform::publish::Publisher;
use platform::store::breaker;
use platform::store::queries;
use platform::store::{Store, StoreError};
use platform::sweep_summary::{PlannedAction, SkipReason, SweepSummary};
use tracing::info;

use crate::build_log::{self, BuildLogFindings};
use crate::context::{SweepContext, count};
use crate::execution::ApplyError;
use crate::history;
use crate::limits::rate_budget::{WorkKind, shed_until};
use crate::limits::{Deferral, Limits, gates, update_queue};
use crate::observe_report::ObservedWeek;
use crate::visit::VisitOutcome;

/// Which remedies may still be dispatched.
#[derive(Debug, Clone, Copy)]
struct Capacity {
    any: bool,
    /// Retriggering Automerge Bot, within the merge batch of the sweep.
    merge: bool,
}

/// Remediates within the limits of one sweep.
pub(crate) struct Remediation<'a, S, O> {
    pub(crate) cx: &'a SweepContext<'a, S, O>,
    pub(crate) limits: Limits<'a>,
}

impl<S: Store, O: Publisher> Remediation<'_, S, O> {
    /// Diagnoses stale pull requests in their order, and claims remedies as long as there is capacity.
    pub(crate) async fn remediate(
        &mut self,
        stale: Vec<(PullRequest, LiveStatus)>,
        week: &mut ObservedWeek,
        summary: &mut SweepSummary,
    ) -> Result<(), StoreError> {
        let policy = self.cx.policies().base();
        let merges = summary.dispatched.get(&Strategy::RetriggerAutomergeBot.to_string()).copied().unwrap_or(0);
        let mut merges_left = policy.coordination.merge_batch.saturating_sub(merges);
        let mut rest = stale.into_iter();
        loop {
            let group: Vec<(PullRequest, LiveStatus)> = rest.by_ref().take(self.cx.concurrency()).collect();
            if group.is_empty() {
                return Ok(());
            }
            if self.cx.is_late(summary) {
                summary.remaining += count(group.len() + rest.len());
                return Ok(());
            }
            let free = policy.limits.remedies_in_flight.saturating_sub(self.limits.in_flight);
            let free = usize::try_from(free).unwrap_or(usize::MAX);
            let mut visits = Vec::new();
            for (index, (record, live)) in group.into_iter().enumerate() {
                // All merges of a sweep are one batch: they complete work in flight, so they need no capacity.
                let merge = record.is_merge_ready() && merges_left > 0;
                merges_left -= u32::from(merge);
                visits.push(self.remediate_one(record, live, Capacity { any: index < free, merge }));
            }
            for done in join_all(visits).await {
                let (pr, outcome, plan) = done?;
                match &outcome {
                    VisitOutcome::Dispatched(_) => self.limits.in_flight += 1,
                    VisitOutcome::Skipped(SkipReason::Breaker | SkipReason::Paused) => {
                        summary.list_stale(pr.to_string())
                    }
                    VisitOutcome::WouldRemedy => _ = week.would_remedy.insert(pr.to_string()),
                    VisitOutcome::WouldEscalate => _ = week.would_escalate.insert(pr.to_string()),
                    VisitOutcome::Healthy
                    | VisitOutcome::Ended
                    | VisitOutcome::Escalated { .. }
                    | VisitOutcome::Skipped(_) => {}
                }
                outcome.count(summary);
                if let Some(plan) = plan {
                    summary.plan(plan);
                }
            }
        }
    }

    async fn remediate_one(
        &self,
        record: PullRequest,
        live: LiveStatus,
        capacity: Capacity,
    ) -> Result<(PrId, VisitOutcome, Option<PlannedAction>), StoreError> {
        let pr = record.id.clone();
        match self.diagnose_and_claim(record, live, capacity).await {
            Ok((outcome, plan)) => Ok((pr, outcome, plan)),
            Err(error) => Ok((pr, self.cx.classify_error(error)?, None)),
        }
    }

    async fn diagnose_and_claim(
        &self,
        record: PullRequest,
        live: LiveStatus,
        capacity: Capacity,
    ) -> Result<(VisitOutcome, Option<PlannedAction>), ApplyError> {
        let pr = record.id.to_string();
        let policy = self.cx.policies().for_repo(&record.id.repo);
        let acts = policy.mode == Mode::Act;
        // Asked first, because the diagnosis may read Jenkins.
        if let Some(deferral) = self.gate().filter(|_| acts) {
            return Ok((self.cx.skip(record, deferral).await?, None));
        }
        let BuildLogFindings { record, jenkins_unavailable } =
            build_log::classify_by_log(self.cx, record, policy).await?;
        let (mut diagnosis, vulnerability) = self.diagnose(&record, live, policy).await?;
        if jenkins_unavailable {
            build_log::log_unavailable(&mut diagnosis, &record);
        }
        let busy = record.active_run.is_some();
        let strategy = diagnosis.classification.strategy().filter(|_| acts && !busy);
        if let Some(strategy) = strategy
            && let Some(deferral) = self.put_off(strategy, capacity, &record).await?
        {
            return Ok((self.cx.skip(record, deferral).await?, None));
        }
        let why = text::diagnosis(&diagnosis);
        // In a dry run a claim that fails is still listed as a plan.
        let (outcome, what) = match self.claim(record, diagnosis, vulnerability, strategy).await {
            Ok(done) => done,
            Err(error) => (self.cx.classify_error(error)?, String::new()),
        };
        let plan = self.cx.execution.lists_plan(&outcome).then_some(PlannedAction { pr, what, why });
        Ok((outcome, plan))
    }

    /// The closed gate that stops all remedies, if any.
    fn gate(&self) -> Option<Deferral> {
        match self.limits.gates {
            Some(gates) => gates.put_off(self.cx.now()).map(Deferral::from),
            None => Some(gates::unread(self.cx.now())),
        }
    }

    /// Whether a remedy may start now; if not, why and until when it is put off.
    async fn put_off(
        &self,
        strategy: Strategy,
        capacity: Capacity,
        record: &PullRequest,
    ) -> Result<Option<Deferral>, StoreError> {
        let now = self.cx.now();
        let Some(gates) = self.limits.gates else { return Ok(Some(gates::unread(now))) };
        let mut conditions = StartConditions {
            github_until: shed_until(&self.cx.github.rate_limits(), WorkKind::of(strategy), now),
            is_full: !(capacity.any || capacity.merge && strategy == Strategy::RetriggerAutomergeBot),
            ..StartConditions::new(gates)
        };
        let mut admitted = may_start(strategy, Starter::Sweep, &conditions, now);
        if admitted.is_ok() && strategy == Strategy::BranchUpdate {
            // The turn is taken only when nothing else is in the way.
            conditions.turn_of = update_queue::take_turn(self.cx, &self.limits.queues, record).await?;
            admitted = may_start(strategy, Starter::Sweep, &conditions, now);
        }
        Ok(admitted.err().map(Deferral::from))
    }

    /// Reads the inputs of the diagnosis rules, and classifies.
    async fn diagnose(
        &self,
        record: &PullRequest,
        mut live: LiveStatus,
        policy: &Policy,
    ) -> Result<(Diagnosis, Option<Vulnerability>), StoreError> {
        let now = self.cx.now();
        let busy = record.active_run.is_some();
        if record.state == State::ChecksRunning && !busy && policy.rules.extended {
            live.build = match self.cx.jenkins {
                Some(jenkins) => Some(build_of(jenkins, record, policy).await),
                None => None,
            };
        }
        let vulnerability = if record.has_conflict(Some(&live)) && !busy {
            queries::vulnerability_of(self.cx.store(), record, now).await?
        } else {
            None
        };
        let case = DiagnosisInput { record, live: Some(&live), vulnerability: vulnerability.as_ref(), policy, now };
        Ok((classify(&case), vulnerability))
    }

    /// Applies the diagnosis: a claim, an escalation, or no action. Returns the outcome and its reason in a sentence.
    async fn claim(
        &self,
        record: PullRequest,
        diagnosis: Diagnosis,
        vulnerability: Option<Vulnerability>,
        strategy: Option<Strategy>,
    ) -> Result<(VisitOutcome, String), ApplyError> {
        let pr = record.id.clone();
        // The same id on every retry, and safe in a URL.
        let run = RunId::new(format!("run-{}", &stable_id(&[self.cx.trigger.run.as_str(), &pr.to_string()])[..20]));
        let mut probing = false;
        if strategy.is_some() {
            match self.cx.permit(&run).await? {
                BreakerPermit::Allowed => {}
                BreakerPermit::Probe(_) => probing = true,
                // It tripped, or another remedy became its probe, since the sweep read it.
                BreakerPermit::Refused { until } => {
                    let epoch = self.limits.gates.map_or(0, |gates| gates.epoch(Gate::Breaker));
                    let deferral = Deferral {
                        skip: SkipReason::Breaker,
                        why: SKIPPED_LOG.to_owned(),
                        until: Some(until),
                        gate: Some(GateEpoch { gate: Gate::Breaker, epoch }),
                    };
                    return Ok((self.cx.skip(record, deferral).await?, SKIPPED_LOG.to_owned()));
                }
            }
        }
        let history = self.escalation_history(&record, &diagnosis).await?;
        let spent = diagnosis.overridden.is_some();
        let found = DiagnosisFact { diagnosis, run: run.clone(), vulnerability, history };
        let fact = self.cx.fact(&pr, "diagnose", FactKind::Diagnosed(Box::new(found)));
        let (outcome, what) = match self.cx.apply(record, &fact).await {
            Ok(applied) => {
                if let Some(event) = applied.events.iter().find(|event| event.kind == EventKind::DuplicateExists) {
                    info!(%pr, sweep = %self.cx.trigger.run, other = event.payload.name.as_deref(), "duplicate PR exists");
                }
                (outcome_of(&applied, &run, spent), applied.reason)
            }
            Err(error) => (self.cx.classify_error(error)?, String::new()),
        };
        if matches!(outcome, VisitOutcome::Dispatched(_) | VisitOutcome::Escalated { .. }) {
            // Correlates the sweep, the event and the run that the Car Bridge logs.
            info!(%pr, sweep = %self.cx.trigger.run, event = %fact.id, run = %run, what, "remedy claimed or escalated");
        }
        if probing && !matches!(outcome, VisitOutcome::Dispatched(_)) {
            // The probe was not dispatched: the next remedy may be the probe.
            let settings = &self.cx.policies().base().breaker;
            breaker::probe_ended(self.cx.store(), &run, ProbeOutcome::Cancelled, settings, self.cx.now()).await?;
        }
        Ok((outcome, what))
    }

    /// Reads the history only if the diagnosis may escalate: only the escalation mail contains it.
    async fn escalation_history(
        &self,
        record: &PullRequest,
        diagnosis: &Diagnosis,
    ) -> Result<EscalationHistory, StoreError> {
        let escalates = [Classification::NeedsIntervention, Classification::CloseAndReopen];
        let may_escalate = escalates.contains(&diagnosis.classification) || record.refused.is_some();
        if may_escalate {
            history::load(self.cx.store(), &record.id, self.cx.now()).await
        } else {
            Ok(EscalationHistory::default())
        }
    }
}

fn outcome_of(applied: &ApplyResult, run: &RunId, spent: bool) -> VisitOutcome {
    let Some(record) = &applied.record else {
        let skip = if applied.outcome == FactOutcome::Duplicate { SkipReason::NoAction } else { SkipReason::Overtaken };
        return VisitOutcome::Skipped(skip);
    };
    if let Some(active) = record.active_run.as_ref().filter(|active| active.id == *run) {
        return VisitOutcome::Dispatched(active.strategy);
    }
    if applied.events.iter().any(|event| event.kind == EventKind::EscalatedNeedsIntervention) {
        return VisitOutcome::Escalated { spent };
    }
    // Observe mode logs a decision only once, but the recorded decision still counts.
    match record.observed_decision.as_ref().map(|decision| decision.kind) {
        Some(EventKind::WouldRemedy) => VisitOutcome::WouldRemedy,
        Some(EventKind::WouldEscalate) => VisitOutcome::WouldEscalate,
        Some(_) | None if record.active_run.is_some() => VisitOutcome::Skipped(SkipReason::UnderWay),
        Some(_) | None => VisitOutcome::Skipped(SkipReason::NoAction),
    }
}
