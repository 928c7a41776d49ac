//! A stale pull request: what is wrong with it, whether anything may be done about it now, and then the domain's word: a claim, an
//! escalation, or nothing.

use domain::breaker::{Permit, ProbeOutcome, SKIPPED_LOG};
use domain::comment::{self, Story};
use domain::decide::Outcome;
use domain::diagnosis::{Case, Classification, Diagnosis, classify};
use domain::event::{Diagnosed, EventKind, Happened};
use domain::id::{PrId, RunId};
use domain::policy::{Mode, Policy};
use domain::pull_request::{Record, Vulnerability};
use domain::snapshot::{Build, Live, Mergeable};
use domain::state::{State, Strategy};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tracing::info;

use crate::build_log::{self, Explained};
use crate::history;
use crate::limits::in_flight;
use crate::limits::rate_budget::{self, Work};
use crate::sweep::{Pass, after};
use crate::verify::{Stopped, Visited};
use platform::breaker;
use platform::engine::Applied;
use platform::hash::hashed;
use platform::jenkins::build_of;
use platform::lookup;
use platform::outlets::Outlets;
use platform::store::{Store, StoreError};
use platform::sweep_summary::{Plan, Skip};

/// When enough remedies are under way, the others come back after this long.
const FULL_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// What there is room for.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// Any remedy.
    any: bool,
    /// Waking Automerge Bot, in the sweep's batch.
    merge: bool,
}

impl<S: Store, O: Outlets> Pass<'_, S, O> {
    /// Finds out what is wrong, in order; claims as long as there is room. Answers how many are under way then.
    pub(crate) async fn diagnose(&mut self, stale: Vec<(Record, Live)>, mut under_way: u32) -> Result<u32, Stopped> {
        let limit = self.policies().base().limits.remedies_in_flight;
        let mut merges_left = self.policies().base().coordination.merge_batch.saturating_sub(self.merges());
        let mut rest = stale.into_iter();
        loop {
            let group: Vec<(Record, Live)> = rest.by_ref().take(self.at_once()).collect();
            if group.is_empty() {
                return Ok(under_way);
            }
            if self.is_late() {
                self.summary.left += u32::try_from(group.len() + rest.len()).unwrap_or(u32::MAX);
                return Ok(under_way);
            }
            let room = usize::try_from(limit.saturating_sub(under_way)).unwrap_or(usize::MAX);
            let mut visits = Vec::new();
            for (place, (record, live)) in group.into_iter().enumerate() {
                // All merges of a sweep are one batch: they end what is under way, and so need no room.
                let in_batch = record.is_merge_ready() && merges_left > 0;
                merges_left -= u32::from(in_batch);
                visits.push(self.treat(record, live, Room { any: place < room, merge: in_batch }));
            }
            for told in join_all(visits).await {
                let (pr, visited, plan) = told?;
                if matches!(visited, Visited::Dispatched(_)) {
                    under_way += 1;
                }
                if let Visited::Skipped(Skip::Breaker | Skip::Paused) = visited {
                    self.summary.list_stale(pr.to_string());
                }
                self.see(&pr, &visited);
                self.count(&visited);
                if let Some(plan) = plan {
                    self.summary.plan(plan);
                }
            }
        }
    }

    /// Merges that this sweep has set going.
    fn merges(&self) -> u32 {
        self.summary.dispatched.get(&Strategy::RetriggerAutomergeBot.to_string()).copied().unwrap_or(0)
    }

    /// One stale pull request.
    async fn treat(&self, record: Record, live: Live, room: Room) -> Result<(PrId, Visited, Option<Plan>), Stopped> {
        let pr = record.id.clone();
        let policy = self.policies().for_repo(&pr.repo);
        let acts = policy.mode == Mode::Act;
        if acts && let Some(gate) = self.gate.clone() {
            let visited = self.put_off(record, gate.why, gate.text, Some(gate.until)).await?;
            return Ok((pr, visited, None));
        }
        let Explained { record, unanswered } = match self.explain(record, policy).await {
            Ok(explained) => explained,
            Err(error) => return Ok((pr, self.lost(error)?, None)),
        };
        let (mut diagnosis, vulnerability) = match self.examine(&record, live, policy).await {
            Ok(found) => found,
            Err(error) => return Ok((pr, self.lost(error)?, None)),
        };
        if unanswered {
            build_log::doubt(&mut diagnosis, &record);
        }
        let busy = record.active_run.is_some();
        let strategy = diagnosis.classification.strategy().filter(|_| acts && !busy);
        if let Some(strategy) = strategy
            && let Some((why, text, until)) = self.in_the_way(strategy, room)
        {
            let visited = self.put_off(record, why, text, Some(until)).await?;
            return Ok((pr, visited, None));
        }
        if strategy == Some(Strategy::BranchUpdate) {
            match self.turn_of(&record, policy).await {
                Ok(None) => {}
                Ok(Some((text, until))) => {
                    let visited = self.put_off(record, Skip::Turn, text, Some(until)).await?;
                    return Ok((pr, visited, None));
                }
                Err(error) => return Ok((pr, self.lost(error)?, None)),
            }
        }
        let why = comment::diagnosis(&diagnosis);
        let (visited, what) = self.decide_on(record, diagnosis, vulnerability, strategy).await?;
        let shown = self.wish.dry_run || matches!(visited, Visited::WouldRemedy | Visited::WouldEscalate);
        let plan = shown.then(|| Plan { pr: pr.to_string(), what, why });
        Ok((pr, visited, plan))
    }

    /// What keeps a remedy from being claimed now.
    fn in_the_way(&self, strategy: Strategy, room: Room) -> Option<(Skip, String, Timestamp)> {
        let now = self.now();
        if let Some(until) = rate_budget::left_out_until(&self.sweep.github.rates(), Work::of(strategy), now) {
            let text = format!("little is left of GitHub's rate limit, and {strategy} can wait");
            return Some((Skip::RateLimit, text, until));
        }
        if !(room.any || room.merge && strategy == Strategy::RetriggerAutomergeBot) {
            let text = "as many remedies are under way as `limits.remedies_in_flight` allows".to_owned();
            return Some((Skip::Full, text, after(now, FULL_AGAIN)));
        }
        None
    }

    /// Looks at everything the rules ask for, and nothing more.
    async fn examine(
        &self,
        record: &Record,
        mut live: Live,
        policy: &Policy,
    ) -> Result<(Diagnosis, Option<Vulnerability>), StoreError> {
        let now = self.now();
        let busy = record.active_run.is_some();
        if record.state == State::ChecksRunning && !busy && policy.policy.extended_rules {
            live.build = self.build_of(record, policy).await;
        }
        let vulnerability = match &record.vulnerability_id {
            Some(id) if live.mergeable == Mergeable::Conflicting && !busy => {
                let (repo, base) = (&record.id.repo, &record.base_branch);
                Some(lookup::vulnerability(self.store(), repo, base, id, now).await?)
            }
            Some(_) | None => None,
        };
        let case = Case { record, live: Some(&live), vulnerability: vulnerability.as_ref(), policy, now };
        Ok((classify(&case), vulnerability))
    }

    /// What Jenkins says about the head's build, if there is a Jenkins.
    async fn build_of(&self, record: &Record, policy: &Policy) -> Option<Build> {
        let jenkins = self.sweep.jenkins.as_ref()?;
        Some(build_of(jenkins, record, policy).await)
    }

    /// Hands the diagnosis to the domain: a claim, an escalation, or nothing.
    async fn decide_on(
        &self,
        record: Record,
        diagnosis: Diagnosis,
        vulnerability: Option<Vulnerability>,
        strategy: Option<Strategy>,
    ) -> Result<(Visited, String), Stopped> {
        let pr = record.id.clone();
        let run = self.run_for(&pr);
        let mut probing = false;
        if strategy.is_some() && !self.wish.dry_run {
            // Before the claim takes a place among those under way, or the breaker's only probe.
            if self.is_stopped().await {
                return Ok((Visited::Skipped(Skip::Cancelled), String::new()));
            }
            match self.permit(&run).await {
                Ok(Permit::Allowed) => {}
                Ok(Permit::Probe(_)) => probing = true,
                Ok(Permit::Refused { until }) => {
                    let text = SKIPPED_LOG.to_owned();
                    let visited = self.put_off(record, Skip::Breaker, text.clone(), Some(until)).await?;
                    return Ok((visited, text));
                }
                Err(error) => return Ok((self.lost(error)?, String::new())),
            }
        }
        let story = match self.story_for(&record, &diagnosis).await {
            Ok(story) => story,
            Err(error) => return Ok((self.lost(error)?, String::new())),
        };
        let spent = diagnosis.overridden.is_some();
        let found = Diagnosed { diagnosis, run: run.clone(), vulnerability, story };
        let fact = self.fact(&pr, "diagnose", Happened::Diagnosed(Box::new(found)));
        let (visited, what) = match self.settle(record, &fact).await {
            Ok(applied) => (outcome_of(&applied, &run, spent), applied.reason),
            Err(error) => (self.lost(error)?, String::new()),
        };
        if matches!(visited, Visited::Dispatched(_) | Visited::Escalated { .. }) {
            // What ties the sweep to the run, and the run to what the Car Bridge does about it.
            info!(%pr, sweep = %self.wish.run, event = %fact.id, run = %run, what, "decided");
        }
        if probing && !matches!(visited, Visited::Dispatched(_)) {
            // Nothing was tried, so nothing was learned: the next remedy may be the probe.
            let settings = &self.policies().base().breaker;
            breaker::probe_ended(self.store(), &run, ProbeOutcome::Cancelled, settings, self.now()).await?;
        }
        Ok((visited, what))
    }

    /// Whether the breaker lets this remedy through; if so, it counts as under way from here on.
    async fn permit(&self, run: &RunId) -> Result<Permit, StoreError> {
        let now = self.now();
        let permit = breaker::may_dispatch(self.store(), run, &self.policies().base().breaker, now).await?;
        match permit {
            Permit::Allowed | Permit::Probe(_) => in_flight::add(self.store(), run, now).await?,
            Permit::Refused { .. } => {}
        }
        Ok(permit)
    }

    /// The run a remedy of this sweep gets: the same name in every repetition, and one that fits into an address.
    fn run_for(&self, pr: &PrId) -> RunId {
        RunId::new(format!("run-{}", &hashed(&[self.wish.run.as_str(), &pr.to_string()])[..20]))
    }

    /// Only a mail needs the story.
    async fn story_for(&self, record: &Record, diagnosis: &Diagnosis) -> Result<Story, StoreError> {
        let refused = record.refused.is_some();
        let may_escalate = match diagnosis.classification {
            Classification::NeedsIntervention | Classification::CloseAndReopen => true,
            Classification::UpdateBranch
            | Classification::RetryChecks
            | Classification::RetriggerPolicyBot
            | Classification::RetriggerSodCheck
            | Classification::RetriggerApproverBot
            | Classification::RetriggerMerge
            | Classification::NoAction => refused,
        };
        if may_escalate { history::of(self.store(), &record.id, self.now()).await } else { Ok(Story::default()) }
    }

    fn see(&mut self, pr: &PrId, visited: &Visited) {
        match visited {
            Visited::WouldRemedy => _ = self.seen.would_remedy.insert(pr.to_string()),
            Visited::WouldEscalate => _ = self.seen.would_escalate.insert(pr.to_string()),
            Visited::Healthy
            | Visited::Ended
            | Visited::Dispatched(_)
            | Visited::Escalated { .. }
            | Visited::Skipped(_) => {}
        }
    }
}

/// What became of a diagnosis.
fn outcome_of(applied: &Applied, run: &RunId, spent: bool) -> Visited {
    let logged = |kind: EventKind| applied.events.iter().any(|event| event.kind == kind);
    let Some(record) = &applied.record else {
        let skip = if applied.outcome == Outcome::Duplicate { Skip::NoAction } else { Skip::Overtaken };
        return Visited::Skipped(skip);
    };
    if let Some(active) = record.active_run.as_ref().filter(|active| active.id == *run) {
        return Visited::Dispatched(active.strategy);
    }
    if logged(EventKind::EscalatedNeedsIntervention) {
        return Visited::Escalated { spent };
    }
    // What observe mode has said before it does not say again, but it still means it.
    match record.would.as_deref() {
        Some(would) if would.starts_with(EventKind::WouldRemedy.name()) => Visited::WouldRemedy,
        Some(would) if would.starts_with(EventKind::WouldEscalate.name()) => Visited::WouldEscalate,
        Some(_) | None if record.active_run.is_some() => Visited::Skipped(Skip::UnderWay),
        Some(_) | None => Visited::Skipped(Skip::NoAction),
    }
}
