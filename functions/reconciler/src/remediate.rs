//! Remediates stale pull requests: diagnoses them, checks the limits, and lets the domain decide: a claim, an
//! escalation, or no action.

use domain::breaker::{Permit, ProbeOutcome, SKIPPED_LOG};
use domain::comment::{self, Story};
use domain::decide::Outcome;
use domain::diagnosis::{Case, Classification, Diagnosis, classify};
use domain::event::{Diagnosed, EventKind, Happened};
use domain::id::{PrId, RunId};
use domain::policy::{Mode, Policy};
use domain::pull_request::{Record, Vulnerability};
use domain::snapshot::{Live, Mergeable};
use domain::state::{State, Strategy};
use futures_util::future::join_all;
use jiff::SignedDuration;
use platform::breaker;
use platform::engine::Applied;
use platform::hash::hashed;
use platform::jenkins::build_of;
use platform::lookup;
use platform::outlets::Outlets;
use platform::store::{Store, StoreError};
use platform::sweep_summary::{Plan, Skip, Summary};
use tracing::info;

use crate::build_log::{self, Explained};
use crate::context::{SweepContext, after, count};
use crate::execution::ApplyError;
use crate::history;
use crate::limits::rate_budget::{WorkKind, shed_until};
use crate::limits::{Deferral, Limits, update_queue};
use crate::observe_report::Week;
use crate::visit::VisitOutcome;

/// When `limits.remedies_in_flight` is reached, the other pull requests are due again after this long.
const FULL_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(5);

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

impl<S: Store, O: Outlets> Remediation<'_, S, O> {
    /// Diagnoses stale pull requests in their order, and claims remedies as long as there is capacity.
    pub(crate) async fn remediate(
        &mut self,
        stale: Vec<(Record, Live)>,
        week: &mut Week,
        summary: &mut Summary,
    ) -> Result<(), StoreError> {
        let policy = self.cx.policies().base();
        let merges = summary.dispatched.get(&Strategy::RetriggerAutomergeBot.to_string()).copied().unwrap_or(0);
        let mut merges_left = policy.coordination.merge_batch.saturating_sub(merges);
        let mut rest = stale.into_iter();
        loop {
            let group: Vec<(Record, Live)> = rest.by_ref().take(self.cx.concurrency()).collect();
            if group.is_empty() {
                return Ok(());
            }
            if self.cx.is_late(summary) {
                summary.left += count(group.len() + rest.len());
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
                    VisitOutcome::Skipped(Skip::Breaker | Skip::Paused) => summary.list_stale(pr.to_string()),
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
        record: Record,
        live: Live,
        capacity: Capacity,
    ) -> Result<(PrId, VisitOutcome, Option<Plan>), StoreError> {
        let pr = record.id.clone();
        match self.diagnose_and_claim(record, live, capacity).await {
            Ok((outcome, plan)) => Ok((pr, outcome, plan)),
            Err(error) => Ok((pr, self.cx.classify_error(error)?, None)),
        }
    }

    async fn diagnose_and_claim(
        &self,
        record: Record,
        live: Live,
        capacity: Capacity,
    ) -> Result<(VisitOutcome, Option<Plan>), ApplyError> {
        let pr = record.id.to_string();
        let policy = self.cx.policies().for_repo(&record.id.repo);
        let acts = policy.mode == Mode::Act;
        if let Some(gate) = self.limits.gate.filter(|_| acts) {
            return Ok((self.cx.skip(record, gate.clone()).await?, None));
        }
        let Explained { record, jenkins_unavailable } = build_log::explain(self.cx, record, policy).await?;
        let (mut diagnosis, vulnerability) = self.diagnose(&record, live, policy).await?;
        if jenkins_unavailable {
            build_log::doubt(&mut diagnosis, &record);
        }
        let busy = record.active_run.is_some();
        let strategy = diagnosis.classification.strategy().filter(|_| acts && !busy);
        if let Some(strategy) = strategy
            && let Some(deferral) = self.exceeds_limit(strategy, capacity, &record).await?
        {
            return Ok((self.cx.skip(record, deferral).await?, None));
        }
        let why = comment::diagnosis(&diagnosis);
        // In a dry run a claim that fails is still listed as a plan.
        let (outcome, what) = match self.claim(record, diagnosis, vulnerability, strategy).await {
            Ok(done) => done,
            Err(error) => (self.cx.classify_error(error)?, String::new()),
        };
        let plan = self.cx.execution.lists_plan(&outcome).then_some(Plan { pr, what, why });
        Ok((outcome, plan))
    }

    /// The limit that prevents claiming a remedy now, if any.
    async fn exceeds_limit(
        &self,
        strategy: Strategy,
        capacity: Capacity,
        record: &Record,
    ) -> Result<Option<Deferral>, StoreError> {
        let now = self.cx.now();
        if let Some(until) = shed_until(&self.cx.github.rates(), WorkKind::of(strategy), now) {
            let why = format!("GitHub rate limit is low: {strategy} deferred");
            return Ok(Some(Deferral { skip: Skip::RateLimit, why, until: Some(until) }));
        }
        if !(capacity.any || capacity.merge && strategy == Strategy::RetriggerAutomergeBot) {
            let why = "`limits.remedies_in_flight` is reached".to_owned();
            return Ok(Some(Deferral { skip: Skip::Full, why, until: Some(after(now, FULL_RETRY_AFTER)) }));
        }
        if strategy == Strategy::BranchUpdate {
            return update_queue::take_turn(self.cx, &self.limits.queues, record).await;
        }
        Ok(None)
    }

    /// Reads the inputs of the diagnosis rules, and classifies.
    async fn diagnose(
        &self,
        record: &Record,
        mut live: Live,
        policy: &Policy,
    ) -> Result<(Diagnosis, Option<Vulnerability>), StoreError> {
        let now = self.cx.now();
        let busy = record.active_run.is_some();
        if record.state == State::ChecksRunning && !busy && policy.policy.extended_rules {
            live.build = match self.cx.jenkins {
                Some(jenkins) => Some(build_of(jenkins, record, policy).await),
                None => None,
            };
        }
        let vulnerability = if live.mergeable == Mergeable::Conflicting && !busy {
            lookup::vulnerability_of(self.cx.store(), record, now).await?
        } else {
            None
        };
        let case = Case { record, live: Some(&live), vulnerability: vulnerability.as_ref(), policy, now };
        Ok((classify(&case), vulnerability))
    }

    /// Applies the diagnosis: a claim, an escalation, or no action. Returns the outcome and its reason in a sentence.
    async fn claim(
        &self,
        record: Record,
        diagnosis: Diagnosis,
        vulnerability: Option<Vulnerability>,
        strategy: Option<Strategy>,
    ) -> Result<(VisitOutcome, String), ApplyError> {
        let pr = record.id.clone();
        // The same id on every retry, and safe in a URL.
        let run = RunId::new(format!("run-{}", &hashed(&[self.cx.trigger.run.as_str(), &pr.to_string()])[..20]));
        let mut probing = false;
        if strategy.is_some() {
            match self.cx.permit(&run).await? {
                Permit::Allowed => {}
                Permit::Probe(_) => probing = true,
                Permit::Refused { until } => {
                    let deferral = Deferral { skip: Skip::Breaker, why: SKIPPED_LOG.to_owned(), until: Some(until) };
                    return Ok((self.cx.skip(record, deferral).await?, SKIPPED_LOG.to_owned()));
                }
            }
        }
        let story = self.story_for(&record, &diagnosis).await?;
        let spent = diagnosis.overridden.is_some();
        let found = Diagnosed { diagnosis, run: run.clone(), vulnerability, story };
        let fact = self.cx.fact(&pr, "diagnose", Happened::Diagnosed(Box::new(found)));
        let (outcome, what) = match self.cx.apply(record, &fact).await {
            Ok(applied) => (outcome_of(&applied, &run, spent), applied.reason),
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
    async fn story_for(&self, record: &Record, diagnosis: &Diagnosis) -> Result<Story, StoreError> {
        let escalates = [Classification::NeedsIntervention, Classification::CloseAndReopen];
        let may_escalate = escalates.contains(&diagnosis.classification) || record.refused.is_some();
        if may_escalate { history::of(self.cx.store(), &record.id, self.cx.now()).await } else { Ok(Story::default()) }
    }
}

fn outcome_of(applied: &Applied, run: &RunId, spent: bool) -> VisitOutcome {
    let Some(record) = &applied.record else {
        let skip = if applied.outcome == Outcome::Duplicate { Skip::NoAction } else { Skip::Overtaken };
        return VisitOutcome::Skipped(skip);
    };
    if let Some(active) = record.active_run.as_ref().filter(|active| active.id == *run) {
        return VisitOutcome::Dispatched(active.strategy);
    }
    if applied.events.iter().any(|event| event.kind == EventKind::EscalatedNeedsIntervention) {
        return VisitOutcome::Escalated { spent };
    }
    // Observe mode logs a decision only once, but the recorded decision still counts.
    match record.would.as_deref() {
        Some(would) if would.starts_with(EventKind::WouldRemedy.name()) => VisitOutcome::WouldRemedy,
        Some(would) if would.starts_with(EventKind::WouldEscalate.name()) => VisitOutcome::WouldEscalate,
        Some(_) | None if record.active_run.is_some() => VisitOutcome::Skipped(Skip::UnderWay),
        Some(_) | None => VisitOutcome::Skipped(Skip::NoAction),
    }
}
