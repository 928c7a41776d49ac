//! The decision function: takes policy, record, one fact and the time, and returns the new record, the events to
//! append, the effects to deliver, and the reason. It is pure; the engine commits the decision in one transaction.
//! Suture's own actions are facts too, so this is the only place that changes a record.
//!
//! `lifecycle` creates, moves and ends records; `reports` stores what checks and bots report; `verify` compares with
//! GitHub; `remediation` claims remedies and escalates, `run_update` handles their progress; `command` applies people's
//! commands; `check_run` updates the check run on the head; `state_change` writes the state.

mod check_run;
mod command;
mod lifecycle;
mod remediation;
mod reports;
mod run_update;
mod state_change;
mod verify;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::command::CommandMessage;
use crate::event::{Event, EventKind, EventPayload, Fact, FactKind};
use crate::id::{EffectId, RunId, Sha};
use crate::policy::Policy;
use crate::pull_request::{BlockedUntil, PullRequest};
use crate::remedy;
use crate::run::{Run, RunEnd};
use crate::signals::ImpliedState;
use crate::state::{State, Strategy, Substatus};
use crate::text::check_run::CheckRunText;
use crate::text::{self, Notice};
use crate::time::saturating_after;
use crate::transition::{self, TransitionHop};

pub use command::is_possible;

/// Tolerated difference between the sender's clock and Suture's.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The result of a fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub outcome: FactOutcome,
    pub reason: String,
    /// The record to write, if it changed. Its version is one higher than that of the record it was decided on.
    pub record: Option<PullRequest>,
    /// Entries for the event log; the first one has hop 0.
    pub events: Vec<Event>,
    /// Effects to deliver after the commit.
    pub effects: Vec<Effect>,
    /// Runs that open, are accepted or end.
    pub runs: Vec<RunChange>,
    /// Commits that became the head or were superseded, for the lookup of pull requests by commit.
    pub heads: Vec<HeadChange>,
    pub vulnerabilities: Vec<VulnerabilityChange>,
}

impl Decision {
    /// The rows that the decision writes besides the record.
    fn rows(&self) -> usize {
        let Self { outcome: _, reason: _, record: _, events, effects, runs, heads, vulnerabilities } = self;
        events.len() + effects.len() + runs.len() + heads.len() + vulnerabilities.len()
    }
}

/// How a fact was handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactOutcome {
    /// New, and recorded.
    Applied,
    Duplicate,
    /// The pull request is not managed by Suture, or not open any more.
    Ignored,
    /// Outdated: about a former head, or older than what is known.
    Superseded,
    /// Recorded, but it contradicts the record; the pull request is due for verification.
    Anomaly,
    /// A command that is not possible or not permitted.
    Refused,
    /// A command that waits for an earlier one. Nothing is recorded; it is decided when it is sent again.
    Deferred,
}

/// An action to deliver, with the head it was decided on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// `<pr>#<event>#<n>`, so that a repeated delivery is recognised.
    pub id: EffectId,
    pub head_sha: Sha,
    pub what: EffectKind,
}

/// The kinds of effects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    Command(CommandMessage),
    Notice(Notice),
    /// Create or update the check run on the head.
    CheckRun {
        text: CheckRunText,
        /// Version of the text: an older one never replaces a newer one.
        as_of: Timestamp,
    },
}

/// A change of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunChange {
    Open(Box<Run>),
    /// The target accepted the request; the expected event must arrive by the deadline.
    Accepted {
        id: RunId,
        expects: &'static str,
        deadline: Timestamp,
    },
    Ended {
        id: RunId,
        end: RunEnd,
        outcome: String,
    },
}

/// A change in the lookup from commits to pull requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadChange {
    Current(Sha),
    /// Not the head any more, or the pull request is closed or merged.
    Superseded(Sha),
}

/// A change of a vulnerability's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VulnerabilityChange {
    pub base_branch: String,
    pub id: String,
    pub update: VulnerabilityUpdate,
}

/// What changes on the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VulnerabilityUpdate {
    /// Adds this pull request to the open ones.
    Opened,
    /// Removes this pull request from the open ones.
    NoLongerOpen,
    Abandoned,
    CountReopen,
    /// Refunds a close-and-reopen that was never executed.
    RefundReopen,
}

#[must_use]
pub fn decide(policy: &Policy, record: Option<PullRequest>, fact: &Fact, now: Timestamp) -> Decision {
    let Some(record) = record else {
        return lifecycle::first_seen(policy, fact, now);
    };
    if record.state.is_terminal() && !applies_to_terminal(&record, fact) {
        let outcome = if reports_same_end(record.state, fact) { FactOutcome::Duplicate } else { FactOutcome::Ignored };
        return no_change(outcome, format!("{} is already {}", record.id, record.state));
    }
    decide_on_record(DecisionBuilder::new(policy, record, fact, now))
}

/// The decisions of several facts about one pull request, each on the record that the one before it left, so that one transaction can
/// write all of them. Ends before the transaction would have more than `max_rows` rows; the first fact is always decided.
#[must_use]
pub fn decide_in_turn(
    policy: &Policy,
    mut record: Option<PullRequest>,
    facts: &[&Fact],
    max_rows: usize,
    now: Timestamp,
) -> Vec<Decision> {
    let (mut decisions, mut rows) = (Vec::new(), 1);
    for fact in facts {
        let decision = decide(policy, record.clone(), fact, now);
        rows += decision.rows();
        if rows > max_rows && !decisions.is_empty() {
            break;
        }
        record = decision.record.clone().or(record);
        decisions.push(decision);
    }
    decisions
}

fn decide_on_record(builder: DecisionBuilder<'_>) -> Decision {
    let was_closed = builder.record.state == State::Closed;
    match &builder.fact.kind {
        FactKind::Reopened(described) => lifecycle::reopened(builder, described),
        FactKind::Opened(described) | FactKind::Edited(described) | FactKind::HeadMoved { described, .. }
            if was_closed =>
        {
            lifecycle::reopened(builder, described)
        }
        FactKind::Opened(described) | FactKind::Edited(described) => lifecycle::edited(builder, described),
        FactKind::HeadMoved { described, before, by_suture } => {
            lifecycle::head_moved(builder, described, before.as_ref(), *by_suture)
        }
        FactKind::Closed { by, why } => lifecycle::closed(builder, by.as_deref(), *why),
        FactKind::Merged { by, by_automerge_bot } => lifecycle::merged(builder, by.as_deref(), *by_automerge_bot),
        FactKind::BaseMoved { base } => lifecycle::base_moved(builder, base),
        FactKind::ChecksRequested { head } => reports::checks_requested(builder, head),
        FactKind::Check { head, check } => reports::check(builder, head, check),
        FactKind::Policy { head, report } => reports::policy(builder, head, report),
        FactKind::Approval { head, approval } => reports::approval(builder, head, approval),
        FactKind::Merge { head, report } => reports::merge(builder, head, report),
        FactKind::Verified(snapshot) => verify::verified(builder, snapshot),
        FactKind::Skipped { why, until, gate } => verify::skipped(builder, why, *until, *gate),
        FactKind::Linked(link) => lifecycle::linked(builder, *link),
        FactKind::PostMergeVerified { watched_minutes } => lifecycle::post_merge_verified(builder, *watched_minutes),
        FactKind::Diagnosed(diagnosed) => remediation::diagnosed(builder, diagnosed),
        FactKind::Remedy { run, update } => run_update::remedy_update(builder, run, update),
        FactKind::CommandRequested(request) => command::command_requested(builder, request),
    }
}

/// Replaces a decision that is too large for one transaction: logs an anomaly with the reason, and makes the pull
/// request due for verification. Nothing of the original decision is kept.
pub fn quarantine(policy: &Policy, record: PullRequest, fact: &Fact, why: &str, now: Timestamp) -> Decision {
    let mut builder = DecisionBuilder::new(policy, record, fact, now);
    builder.log(EventKind::Anomaly, None, EventPayload { anomaly: Some(why.to_owned()), ..EventPayload::default() });
    builder.record.request_verification(why, now);
    builder.finish(FactOutcome::Anomaly, why)
}

/// Whether a fact applies to a merged or closed pull request: a reopening (shown by any event of an open pull request
/// that is newer than the closing), an update of its last remedy, the result of the health checks after its merge, or a
/// command, which gets a reply.
fn applies_to_terminal(record: &PullRequest, fact: &Fact) -> bool {
    match fact.kind {
        FactKind::Reopened(_) | FactKind::Remedy { .. } | FactKind::Linked(_) | FactKind::CommandRequested(_) => true,
        FactKind::PostMergeVerified { .. } => record.state == State::Merged,
        FactKind::Opened(_) | FactKind::Edited(_) | FactKind::HeadMoved { .. } => {
            record.state == State::Closed && fact.occurred_at > record.lifecycle_at
        }
        FactKind::Closed { .. }
        | FactKind::Merged { .. }
        | FactKind::ChecksRequested { .. }
        | FactKind::Check { .. }
        | FactKind::Policy { .. }
        | FactKind::Approval { .. }
        | FactKind::Merge { .. }
        | FactKind::BaseMoved { .. }
        | FactKind::Verified(_)
        | FactKind::Skipped { .. }
        | FactKind::Diagnosed(_) => false,
    }
}

/// Whether the fact is the close or the merge that ended the pull request, delivered again.
fn reports_same_end(state: State, fact: &Fact) -> bool {
    matches!((state, &fact.kind), (State::Closed, FactKind::Closed { .. }) | (State::Merged, FactKind::Merged { .. }))
}

/// A decision that changes nothing.
fn no_change(outcome: FactOutcome, reason: impl Into<String>) -> Decision {
    Decision {
        outcome,
        reason: reason.into(),
        record: None,
        events: Vec::new(),
        effects: Vec::new(),
        runs: Vec::new(),
        heads: Vec::new(),
        vulnerabilities: Vec::new(),
    }
}

/// Builds a decision.
struct DecisionBuilder<'a> {
    policy: &'a Policy,
    fact: &'a Fact,
    now: Timestamp,
    record: PullRequest,
    events: Vec<Event>,
    effects: Vec<Effect>,
    runs: Vec<RunChange>,
    heads: Vec<HeadChange>,
    vulnerabilities: Vec<VulnerabilityChange>,
    /// For the check run: the diagnosis behind the remedy or the escalation.
    diagnosis_text: Option<String>,
    /// For the check run: the result of a button or of a person's command.
    command_result: Option<String>,
    /// For the check run: a person asked for the full explanation.
    explain: bool,
}

impl<'a> DecisionBuilder<'a> {
    fn new(policy: &'a Policy, record: PullRequest, fact: &'a Fact, now: Timestamp) -> Self {
        Self {
            policy,
            fact,
            now,
            record,
            events: Vec::new(),
            effects: Vec::new(),
            runs: Vec::new(),
            heads: Vec::new(),
            vulnerabilities: Vec::new(),
            diagnosis_text: None,
            command_result: None,
            explain: false,
        }
    }

    /// The time of the fact, at most now: a clock that runs ahead must not postpone anything.
    fn fact_time(&self) -> Timestamp {
        self.fact.occurred_at.min(self.now)
    }

    /// Appends an event. The first one is hop 0 and is the fact itself.
    fn log(&mut self, kind: EventKind, change: Option<(State, State)>, payload: EventPayload) {
        self.events.push(Event {
            pr: self.record.id.clone(),
            occurred_at: self.fact.occurred_at,
            id: self.fact.id.clone(),
            hop: u8::try_from(self.events.len()).unwrap_or(u8::MAX),
            kind,
            source: self.fact.actor,
            from: change.map(|(from, _)| from),
            to: change.map(|(_, to)| to),
            payload,
            ttl: saturating_after(
                self.now,
                SignedDuration::from_hours(24 * i64::from(self.policy.retention.events_days)),
            ),
        });
    }

    /// The time of a report, or now if it is too far in the future: a wrong clock must not make one report newer than
    /// all later ones.
    fn limit_skew(&self, at: Timestamp) -> Timestamp {
        if at > saturating_after(self.now, CLOCK_SKEW) { self.now } else { at }
    }

    /// Adds a change of the row of the vulnerability that this pull request fixes.
    fn change_vulnerability(&mut self, update: VulnerabilityUpdate) {
        if let Some(id) = self.record.vulnerability_id.clone() {
            let base_branch = self.record.base_branch.clone();
            self.vulnerabilities.push(VulnerabilityChange { base_branch, id, update });
        }
    }

    fn add_effect(&mut self, what: EffectKind) {
        let id = EffectId::new(format!("{}#{}#{}", self.record.id, self.fact.id, self.effects.len()));
        self.effects.push(Effect { id, head_sha: self.record.head_sha.clone(), what });
    }

    /// Moves to the state that the changed signals imply and logs each hop, or logs an anomaly if no legal path leads
    /// there. `own` and `payload` are the log entry of the fact itself.
    fn apply_signals(mut self, own: EventKind, payload: EventPayload) -> Decision {
        let implied = self.record.implied(self.policy);
        let from = self.record.state;
        self.record.last_event_at = self.record.last_event_at.max(self.fact_time());
        let hops = if from == State::NeedsIntervention {
            Some(self.hop_out_of_intervention(implied.state))
        } else {
            transition::walk(from, implied.state)
        };
        let Some(hops) = hops else {
            return self.anomaly(own, implied.state, payload);
        };
        if hops.is_empty() {
            self.update_substatus(implied);
            self.log(own, None, payload);
            self.complete_if_proven();
            return self.finish(FactOutcome::Applied, format!("{own}, still {from}"));
        }
        self.walk(&hops, implied.substatus, own, payload);
        self.complete_if_proven();
        let to = self.record.state;
        self.finish(FactOutcome::Applied, format!("{own}: {from} → {to}"))
    }

    /// Updates the substatus if the state is unchanged. A new substatus can reset a budget too.
    fn update_substatus(&mut self, implied: ImpliedState) {
        if self.record.state == implied.state && self.record.substatus != implied.substatus {
            self.record.substatus = implied.substatus;
            self.record.retry_counts.reset_reached(implied.state, implied.substatus);
        }
    }

    fn walk(&mut self, hops: &[TransitionHop], substatus: Option<Substatus>, own: EventKind, payload: EventPayload) {
        let at = self.fact_time();
        // The payload belongs to the hop of the fact itself, if there is one.
        let own_hop = hops.iter().position(|hop| hop.trigger.event() == own).unwrap_or(0);
        let mut payload = Some(payload);
        for (n, hop) in hops.iter().enumerate() {
            let detail = if n == own_hop { payload.take() } else { None };
            let detail = detail.unwrap_or_else(|| EventPayload::text("implied by earlier reports"));
            let substatus = if n + 1 == hops.len() { substatus } else { None };
            let change = self.enter(hop.trigger, substatus, at);
            self.log(hop.trigger.event(), change, detail);
            self.record.retry_counts.reset_reached(hop.state, substatus);
        }
    }

    /// The hop out of NEEDS_INTERVENTION, if the facts disprove its cause: they imply a later state than the one it
    /// escalated in. Otherwise the state stays, which is not an anomaly.
    fn hop_out_of_intervention(&self, implied: State) -> Vec<TransitionHop> {
        let disproved = self.record.blocked.as_ref().is_none_or(|blocked| match blocked.until {
            BlockedUntil::Progress => implied > blocked.state,
            BlockedUntil::Mergeable | BlockedUntil::MergeabilityKnown => false,
        });
        let hop = if disproved { transition::out_of_intervention(implied) } else { None };
        hop.into_iter().collect()
    }

    /// A change that the transition table does not allow: it is logged, the state stays, and verification is due at
    /// once (R-STATE-5).
    fn anomaly(mut self, own: EventKind, implied: State, mut payload: EventPayload) -> Decision {
        let why = text::invalid_transition(&self.record.id, self.record.state, implied, own);
        payload.anomaly = Some(why.clone());
        self.log(own, None, payload);
        self.record.request_verification(why.clone(), self.now);
        self.finish(FactOutcome::Anomaly, why)
    }

    /// Completes the active run if the signals prove its remedy.
    fn complete_if_proven(&mut self) {
        if !self.record.active_run.as_ref().is_some_and(|run| run.accepted) {
            return;
        }
        if let Some((end, outcome)) = remedy::proof(&self.record, self.policy) {
            self.end_run(end, outcome);
        }
    }

    /// Ends the active run and clears its marks, so that the marked reports count again.
    fn end_run(&mut self, end: RunEnd, outcome: impl Into<String>) -> Option<Strategy> {
        let run = self.record.active_run.take()?;
        self.record.signals.clear_marks();
        self.runs.push(RunChange::Ended { id: run.id, end, outcome: outcome.into() });
        Some(run.strategy)
    }

    /// Logs each proven remedy as an event of its own, which the statistics count.
    fn log_proofs(&mut self) {
        let proven = |change: &RunChange| match change {
            RunChange::Ended { id, end: end @ (RunEnd::Completed | RunEnd::NoEffect), outcome } => {
                Some((id.clone(), *end, outcome.clone()))
            }
            RunChange::Open(_) | RunChange::Accepted { .. } | RunChange::Ended { .. } => None,
        };
        let proofs: Vec<(RunId, RunEnd, String)> = self.runs.iter().filter_map(proven).collect();
        for (run, end, outcome) in proofs {
            let payload = EventPayload { run: Some(run), run_end: Some(end), ..EventPayload::text(&outcome) };
            self.log(EventKind::RemediationEnded, None, payload);
        }
    }

    /// A terminal record expires. Not while its run is active: a closed pull request that awaits its replacement needs its
    /// record until the replacement is linked or a person was called.
    fn expires_at(&self) -> Option<Timestamp> {
        if !self.record.state.is_terminal() || self.record.active_run.is_some() {
            return None;
        }
        let hours = SignedDuration::from_hours(i64::from(self.policy.retention.terminal_hours));
        self.record.ttl.or(Some(saturating_after(self.now, hours)))
    }

    /// Logs once per head that somebody else reported under Policy Bot's name. The report is an ordinary check.
    fn log_foreign_policy(&mut self) -> Option<String> {
        let head = self.record.head_sha.clone();
        let check = self.record.signals.take_unlogged_foreign_policy()?;
        let (name, by) = (check.name.clone(), check.posted_by.clone());
        let why = text::foreign_policy(&name, by.as_deref().unwrap_or_default());
        let (head, anomaly) = (Some(head), Some(why.clone()));
        self.log(
            EventKind::Anomaly,
            None,
            EventPayload { head, name: Some(name), by, anomaly, ..EventPayload::default() },
        );
        Some(why)
    }

    /// Returns the decision, with a new version and a new due date.
    fn finish(mut self, mut outcome: FactOutcome, reason: impl Into<String>) -> Decision {
        let mut reason = reason.into();
        self.log_proofs();
        if let Some(why) = self.log_foreign_policy()
            && matches!(self.fact.kind, FactKind::Check { .. })
        {
            (outcome, reason) = (FactOutcome::Anomaly, why);
        }
        self.record.version = self.record.version.saturating_add(1);
        self.record.due_at = self.record.next_due_at(self.policy);
        self.record.ttl = self.expires_at();
        self.update_check_run();
        Decision {
            outcome,
            reason,
            record: Some(self.record),
            events: self.events,
            effects: self.effects,
            runs: self.runs,
            heads: self.heads,
            vulnerabilities: self.vulnerabilities,
        }
    }
}
