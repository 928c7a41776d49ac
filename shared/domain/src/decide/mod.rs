//! Fact in, decision out: THE function. It takes the record as it is, one fact, the policy and the time, and says what the
//! record becomes, what the log gets, what is to be done, and why. It knows no clock and waits for nothing; the engine
//! commits its answer in one transaction. Suture's own deeds are facts too, so there is one place that changes a record.
//!
//! `life` opens, moves and ends pull requests; `reports` notes what checks and bots say; `verify` compares with GitHub;
//! `act` claims remedies, follows them and escalates; `command` obeys people; `show` keeps the check run on the head true.

mod act;
mod command;
mod life;
mod reports;
mod show;
mod verify;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::command::CommandMessage;
use crate::comment::check_run::CheckText;
use crate::comment::{self, Notice};
use crate::event::{Event, EventKind, Fact, Happened, Payload};
use crate::id::{EffectId, RunId, Sha};
use crate::policy::Policy;
use crate::pull_request::{Record, Until};
use crate::remedy;
use crate::run::Run;
use crate::signals::Implied;
use crate::state::{State, Strategy, Substatus};
use crate::time::saturating_after;
use crate::transition::{self, Hop};

pub use command::is_possible;

/// Clocks of others may differ from ours by this much.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// What follows from a fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub outcome: Outcome,
    pub reason: String,
    /// The record to write, if anything is to be written. Its version is one higher than the one it was decided on.
    pub record: Option<Record>,
    /// Rows for the log; the first, if there is one, has hop 0.
    pub events: Vec<Event>,
    /// What is to be done, once this is committed.
    pub effects: Vec<Effect>,
    /// Runs that begin, go on or end.
    pub runs: Vec<RunChange>,
    /// Commits that became or ceased to be the head, for finding pull requests by commit.
    pub heads: Vec<HeadChange>,
    pub vulnerabilities: Vec<VulnerabilityChange>,
}

/// What became of a fact, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It said something new, and is recorded.
    Applied,
    Duplicate,
    /// It is about a pull request that is not ours or no longer open.
    Ignored,
    /// It is about a commit or a time that is history.
    Superseded,
    /// It is recorded, but does not fit; GitHub will be asked.
    Anomaly,
    /// A person asked for something that is not possible or not allowed.
    Refused,
}

/// Something to do outside, carrying the head it was decided on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// `<pr>#<event>#<n>`: doing it twice can be noticed.
    pub id: EffectId,
    pub head_sha: Sha,
    pub what: EffectKind,
}

/// What there is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    Command(CommandMessage),
    Notice(Notice),
    /// Show on the head how it stands.
    CheckRun {
        text: CheckText,
        /// When that was so: an older one never replaces it.
        as_of: Timestamp,
    },
}

/// What happens to a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunChange {
    Open(Box<Run>),
    /// Its target has accepted; the proof must come by the deadline.
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

named! {
    /// How a run ended.
    pub enum RunEnd {
        Completed = "completed",
        Failed = "failed",
        /// It was never done, or does not matter any more.
        Cancelled = "cancelled",
    }
}

/// A commit's relation to the pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadChange {
    Current(Sha),
    /// It is not the head any more, or the pull request is over.
    Superseded(Sha),
}

/// What changes on a vulnerability's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VulnerabilityChange {
    pub base_branch: String,
    pub id: String,
    pub news: VulnerabilityNews,
}

/// What happened to a vulnerability's pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VulnerabilityNews {
    /// This pull request is open for it.
    Opened,
    /// This pull request is not open any more.
    NoLongerOpen,
    Abandoned,
    CountReopen,
    /// One close-and-reopen less: it was never done.
    GiveBackReopen,
}

#[must_use]
pub fn decide(policy: &Policy, record: Option<Record>, fact: &Fact, now: Timestamp) -> Decision {
    let Some(record) = record else {
        return life::first_seen(policy, fact, now);
    };
    if record.state.is_terminal() && !listens(&record, fact) {
        return nothing(Outcome::Ignored, format!("{} is {} already", record.id, record.state));
    }
    let was_closed = record.state == State::Closed;
    let draft = Draft::new(policy, record, fact, now);
    match &fact.what {
        Happened::Reopened(described) => life::reopened(draft, described),
        Happened::Opened(described) | Happened::Edited(described) | Happened::HeadMoved { described, .. }
            if was_closed =>
        {
            life::reopened(draft, described)
        }
        Happened::Opened(described) | Happened::Edited(described) => life::edited(draft, described),
        Happened::HeadMoved { described, before, ours } => life::head_moved(draft, described, before.as_ref(), *ours),
        Happened::Closed { by, why } => life::closed(draft, by.as_deref(), *why),
        Happened::Merged { by, by_automerge_bot } => life::merged(draft, by.as_deref(), *by_automerge_bot),
        Happened::BaseMoved { base } => life::base_moved(draft, base),
        Happened::ChecksRequested { head } => reports::checks_requested(draft, head),
        Happened::Check { head, check } => reports::check(draft, head, check),
        Happened::Policy { head, report } => reports::policy(draft, head, report),
        Happened::Approval { head, approval } => reports::approval(draft, head, approval),
        Happened::Merge { head, report } => reports::merge(draft, head, report),
        Happened::Verified(snapshot) => verify::verified(draft, snapshot),
        Happened::Skipped { why, until } => verify::skipped(draft, why, *until),
        Happened::Linked(link) => life::linked(draft, *link),
        Happened::PostMergeVerified { watched_minutes } => life::post_merge_verified(draft, *watched_minutes),
        Happened::Diagnosed(diagnosed) => act::diagnosed(draft, diagnosed),
        Happened::Remedy { run, news } => act::remedy_news(draft, run, news),
        Happened::Commanded(commanded) => command::commanded(draft, commanded),
    }
}

/// What is left of a decision that no store takes, because it is too much at once: the log says what was heard and why it
/// came to nothing, and GitHub is asked for the truth. Nothing of the decision itself is kept.
pub fn set_aside(policy: &Policy, record: Record, fact: &Fact, why: &str, now: Timestamp) -> Decision {
    let mut draft = Draft::new(policy, record, fact, now);
    draft.log(EventKind::Anomaly, None, Payload { anomaly: Some(why.to_owned()), ..Payload::default() });
    draft.record.doubt(why, now);
    draft.finish(Outcome::Anomaly, why)
}

/// What a record that is over still hears: that it was reopened (any event of an open pull request says so, if it is newer
/// than the closing), what its last remedy and its merge have brought about, and people, who get an answer.
fn listens(record: &Record, fact: &Fact) -> bool {
    match fact.what {
        Happened::Reopened(_) | Happened::Remedy { .. } | Happened::Linked(_) | Happened::Commanded(_) => true,
        Happened::PostMergeVerified { .. } => record.state == State::Merged,
        Happened::Opened(_) | Happened::Edited(_) | Happened::HeadMoved { .. } => {
            record.state == State::Closed && fact.occurred_at > record.lifecycle_at
        }
        Happened::Closed { .. }
        | Happened::Merged { .. }
        | Happened::ChecksRequested { .. }
        | Happened::Check { .. }
        | Happened::Policy { .. }
        | Happened::Approval { .. }
        | Happened::Merge { .. }
        | Happened::BaseMoved { .. }
        | Happened::Verified(_)
        | Happened::Skipped { .. }
        | Happened::Diagnosed(_) => false,
    }
}

fn nothing(outcome: Outcome, reason: impl Into<String>) -> Decision {
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

/// A decision in the making.
struct Draft<'a> {
    policy: &'a Policy,
    fact: &'a Fact,
    now: Timestamp,
    record: Record,
    events: Vec<Event>,
    effects: Vec<Effect>,
    runs: Vec<RunChange>,
    heads: Vec<HeadChange>,
    vulnerabilities: Vec<VulnerabilityChange>,
    /// For the check run: the diagnosis that was acted on.
    because: Option<String>,
    /// For the check run: what became of what somebody asked for.
    asked: Option<String>,
    /// For the check run: somebody wants it explained.
    explain: bool,
}

impl<'a> Draft<'a> {
    fn new(policy: &'a Policy, record: Record, fact: &'a Fact, now: Timestamp) -> Self {
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
            because: None,
            asked: None,
            explain: false,
        }
    }

    /// The fact's own time, but never later than now: a clock that runs ahead must not postpone anything.
    fn at(&self) -> Timestamp {
        self.fact.occurred_at.min(self.now)
    }

    /// Appends to the log. The first entry is hop 0 and stands for the fact itself.
    fn log(&mut self, kind: EventKind, change: Option<(State, State)>, payload: Payload) {
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

    /// A time that a report names. One far ahead of now comes from a clock that is wrong, and must not beat all that follows.
    fn bounded(&self, at: Timestamp) -> Timestamp {
        if at > saturating_after(self.now, CLOCK_SKEW) { self.now } else { at }
    }

    /// Notes a change on the row of the vulnerability this pull request fixes.
    fn vulnerability(&mut self, news: VulnerabilityNews) {
        if let Some(id) = self.record.vulnerability_id.clone() {
            let base_branch = self.record.base_branch.clone();
            self.vulnerabilities.push(VulnerabilityChange { base_branch, id, news });
        }
    }

    fn effect(&mut self, what: EffectKind) {
        let id = EffectId::new(format!("{}#{}#{}", self.record.id, self.fact.id, self.effects.len()));
        self.effects.push(Effect { id, head_sha: self.record.head_sha.clone(), what });
    }

    /// Changes the state. Progress counts from `at`, but never goes back.
    fn enter(&mut self, state: State, substatus: Option<Substatus>, at: Timestamp) {
        if self.record.state == State::NeedsIntervention {
            // A person, or the truth, has taken it out: it begins afresh, except for what never resets (R-STATE-9).
            self.record.retry_counts.reset_all();
            self.record.lifetime_remedies = 0;
        }
        self.record.blocked = None;
        self.record.state = state;
        self.record.substatus = substatus;
        self.record.progressed_at = self.record.progressed_at.max(at);
        self.record.not_before = None;
        self.record.skips = 0;
        self.record.unanswered = 0;
        self.record.dropped = None;
        self.record.refused = None;
        self.record.would = None;
        if let Some(shown) = &mut self.record.shown {
            (shown.asked, shown.explained) = (None, false);
        }
    }

    /// The signals have changed: walks to the state they imply and logs each hop, or logs that there is no way. `own` and
    /// `payload` are what the log shows for the fact itself.
    fn settle(mut self, own: EventKind, payload: Payload) -> Decision {
        let implied = self.record.implied(self.policy);
        let from = self.record.state;
        self.record.last_event_at = self.record.last_event_at.max(self.at());
        let hops = if from == State::NeedsIntervention {
            Some(self.way_out(implied.state))
        } else {
            transition::walk(from, implied.state)
        };
        let Some(hops) = hops else {
            return self.anomaly(own, implied.state, payload);
        };
        if hops.is_empty() {
            self.same_state(implied);
            self.log(own, None, payload);
            self.prove();
            return self.finish(Outcome::Applied, format!("{own}, still {from}"));
        }
        self.walk(&hops, implied.substatus, own, payload);
        self.prove();
        let to = self.record.state;
        self.finish(Outcome::Applied, format!("{own}: {from} → {to}"))
    }

    /// The state is right; its detail may have changed, which is an answer too.
    fn same_state(&mut self, implied: Implied) {
        if self.record.state == implied.state && self.record.substatus != implied.substatus {
            self.record.substatus = implied.substatus;
            self.record.retry_counts.reached(implied.state, implied.substatus);
        }
    }

    fn walk(&mut self, hops: &[Hop], substatus: Option<Substatus>, own: EventKind, payload: Payload) {
        let at = self.at();
        // The extract belongs to the hop that is the fact itself, if it is among them.
        let mine = hops.iter().position(|hop| hop.trigger.event() == own).unwrap_or(0);
        let mut payload = Some(payload);
        for (n, hop) in hops.iter().enumerate() {
            let change = (self.record.state, hop.state);
            let detail = if n == mine { payload.take() } else { None };
            let detail = detail.unwrap_or_else(|| Payload::text("implied by what was already known"));
            self.log(hop.trigger.event(), Some(change), detail);
            let substatus = if n + 1 == hops.len() { substatus } else { None };
            self.enter(hop.state, substatus, at);
            self.record.retry_counts.reached(hop.state, substatus);
        }
    }

    /// NEEDS_INTERVENTION is left by facts that disprove its cause: those that imply a later state than the one it was
    /// given up in. Otherwise it stays, and that is no anomaly.
    fn way_out(&self, implied: State) -> Vec<Hop> {
        let disproved = self.record.blocked.as_ref().is_none_or(|blocked| match blocked.until {
            Until::Progress => implied > blocked.state,
            Until::Mergeable => false,
        });
        let hop = if disproved { transition::out_of_intervention(implied) } else { None };
        hop.into_iter().collect()
    }

    /// A change the table does not allow: recorded, the state stays, and GitHub is asked at once (R-STATE-5).
    fn anomaly(mut self, own: EventKind, implied: State, mut payload: Payload) -> Decision {
        let why = comment::invalid_transition(&self.record.id, self.record.state, implied, own);
        payload.anomaly = Some(why.clone());
        self.log(own, None, payload);
        self.record.doubt(why.clone(), self.now);
        self.finish(Outcome::Anomaly, why)
    }

    /// If what is known now proves the remedy under way, its run is over.
    fn prove(&mut self) {
        if !self.record.active_run.as_ref().is_some_and(|run| run.accepted) {
            return;
        }
        if let Some(outcome) = remedy::proof(&self.record, self.policy) {
            self.end_run(RunEnd::Completed, outcome);
        }
    }

    /// Ends the remedy under way, and lets what is known count again.
    fn end_run(&mut self, end: RunEnd, outcome: impl Into<String>) -> Option<Strategy> {
        let run = self.record.active_run.take()?;
        self.record.signals.unmark();
        self.runs.push(RunChange::Ended { id: run.id, end, outcome: outcome.into() });
        Some(run.strategy)
    }

    /// A remedy that was proven is worth a line of the log of its own: what Suture has healed is read from there.
    fn log_proofs(&mut self) {
        let proven = |change: &RunChange| match change {
            RunChange::Ended { id, end: RunEnd::Completed, outcome } => Some((id.clone(), outcome.clone())),
            RunChange::Open(_) | RunChange::Accepted { .. } | RunChange::Ended { .. } => None,
        };
        let proofs: Vec<(RunId, String)> = self.runs.iter().filter_map(proven).collect();
        for (run, outcome) in proofs {
            let name = Some(RunEnd::Completed.name().to_owned());
            let payload = Payload { run: Some(run), name, ..Payload::text(&outcome) };
            self.log(EventKind::RemediationEnded, None, payload);
        }
    }

    /// The whole, with a new version, and a date for whatever is not over.
    fn finish(mut self, outcome: Outcome, reason: impl Into<String>) -> Decision {
        self.log_proofs();
        self.record.version = self.record.version.saturating_add(1);
        self.record.due_at = self.record.attention_at(self.policy);
        self.show();
        Decision {
            outcome,
            reason: reason.into(),
            record: Some(self.record),
            events: self.events,
            effects: self.effects,
            runs: self.runs,
            heads: self.heads,
            vulnerabilities: self.vulnerabilities,
        }
    }
}
