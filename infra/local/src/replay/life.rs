//! A life as the log has it: the stretches a pull request spent in each state, what was said in them, and what was done.

use std::collections::BTreeMap;

use domain::event::{Event, EventKind};
use domain::id::PrId;
use domain::state::{State, Strategy};
use jiff::{SignedDuration, Timestamp};

/// One pull request's life.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) pr: PrId,
    pub(crate) stretches: Vec<Stretch>,
}

/// A time spent in one state.
#[derive(Debug, Clone)]
pub(crate) struct Stretch {
    pub(crate) state: State,
    pub(crate) since: Timestamp,
    /// When it ended, and how; nothing if the log ends before it does.
    pub(crate) until: Option<(Timestamp, Ended)>,
    /// What checks and Policy Bot said, newest last.
    pub(crate) said: Vec<Said>,
    /// What was done, or would have been, in order.
    pub(crate) done: Vec<Done>,
    /// Whether a person held it, or it was a draft, for some of the time.
    pub(crate) held: bool,
}

/// How a stretch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Something was heard that led on.
    Progress,
    /// Our own assumption was made or withdrawn: no news.
    Assumption,
    /// A person was called.
    Escalation,
    /// A person took over, or pushed.
    Person,
    /// Closed without a merge.
    Closing,
}

/// What a check or Policy Bot said.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) kind: EventKind,
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Something that was done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) at: Timestamp,
    pub(crate) what: What,
    /// The title of the rule that said so.
    pub(crate) rule: String,
    /// What it gave as evidence.
    pub(crate) evidence: String,
}

/// A remedy, or a call for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Remedy(Strategy),
    Escalation,
}

/// All lives of a log.
pub(crate) fn lives(events: Vec<Event>) -> Vec<Life> {
    let mut by_pr: BTreeMap<PrId, Vec<Event>> = BTreeMap::new();
    for event in events {
        by_pr.entry(event.pr.clone()).or_default().push(event);
    }
    by_pr.into_iter().filter_map(|(pr, events)| life(pr, events)).collect()
}

fn life(pr: PrId, mut events: Vec<Event>) -> Option<Life> {
    events.sort_by_cached_key(|event| (known_by(event.occurred_at), event.sort_key()));
    let mut life = Life { pr, stretches: Vec::new() };
    for event in &in_order(events) {
        if life.stretches.is_empty() {
            // A log may begin in the middle of a life: then it begins where the first change says it was.
            let state = event.from.unwrap_or(State::Created);
            life.stretches.push(Stretch::begin(state, event.occurred_at));
        }
        life.take(event);
    }
    (!life.stretches.is_empty()).then_some(life)
}

/// By when it had happened: GitHub's times are whole seconds, ours are not, and what we did within the same second came first.
pub(crate) fn known_by(at: Timestamp) -> Timestamp {
    if at.subsec_nanosecond() == 0 { at.saturating_add(SignedDuration::from_millis(999)).unwrap_or(at) } else { at }
}

/// Events of the same moment are put in order by the states they lead from and to.
fn in_order(events: Vec<Event>) -> Vec<Event> {
    let mut waiting = std::collections::VecDeque::from(events);
    let mut ordered: Vec<Event> = Vec::new();
    let mut state = None;
    while let Some(first) = waiting.front() {
        let at = known_by(first.occurred_at);
        let fits = |event: &Event| event.hop == 0 && event.from.is_some() && event.from == state;
        let same_moment = waiting.iter().take_while(|event| known_by(event.occurred_at) == at);
        let place =
            same_moment.clone().position(|event| event.from.is_none()).or_else(|| same_moment.clone().position(fits));
        // A fact's further hops follow it.
        let chosen = waiting.remove(place.unwrap_or(0));
        let Some(chosen) = chosen else { break };
        let id = chosen.id.clone();
        state = chosen.to.or(state);
        ordered.push(chosen);
        while let Some(place) = waiting.iter().position(|event| event.id == id && known_by(event.occurred_at) == at) {
            let Some(hop) = waiting.remove(place) else { break };
            state = hop.to.or(state);
            ordered.push(hop);
        }
    }
    ordered
}

impl Stretch {
    fn begin(state: State, since: Timestamp) -> Self {
        Self { state, since, until: None, said: Vec::new(), done: Vec::new(), held: false }
    }
}

impl Life {
    fn take(&mut self, event: &Event) {
        let Some(stretch) = self.stretches.last_mut() else { return };
        let text = &event.payload.text;
        if let Some(what) = what_of(event) {
            stretch.done.push(Done {
                at: event.occurred_at,
                what,
                rule: event.payload.name.clone().unwrap_or_default(),
                evidence: text.clone(),
            });
        }
        let name = event.payload.name.clone().unwrap_or_default();
        let said = Said { kind: event.kind, name, text: text.clone() };
        if event.kind == EventKind::PrEdited && (text.contains("hold") || text.contains("draft")) {
            stretch.held = true;
        }
        if event.kind == EventKind::CommandReceived && said.name == "/hold" {
            stretch.held = true;
        }
        let Some(to) = event.to else {
            stretch.said.push(said);
            return;
        };
        stretch.until = Some((event.occurred_at, ended(event, to)));
        let mut next = Stretch::begin(to, event.occurred_at);
        // Whatever leads into a state is what it is about.
        next.said.push(said);
        self.stretches.push(next);
    }
}

fn ended(event: &Event, to: State) -> Ended {
    match event.kind {
        EventKind::EscalatedNeedsIntervention => Ended::Escalation,
        EventKind::RemediationAccepted | EventKind::RemediationEnded => Ended::Assumption,
        EventKind::CommandReceived => Ended::Person,
        EventKind::BranchUpdated if event.from == Some(State::NeedsIntervention) => Ended::Person,
        EventKind::PrClosed | EventKind::StateDriftCorrected if to == State::Closed => Ended::Closing,
        EventKind::PrOpened
        | EventKind::PrClosed
        | EventKind::PrMerged
        | EventKind::PrReopened
        | EventKind::PrEdited
        | EventKind::BranchUpdated
        | EventKind::BaseMoved
        | EventKind::PrLinked
        | EventKind::ChecksStarted
        | EventKind::CheckReported
        | EventKind::ChecksPassed
        | EventKind::ChecksFailed
        | EventKind::PolicyStarted
        | EventKind::PolicyPassed
        | EventKind::PolicyFailed
        | EventKind::ApprovalGranted
        | EventKind::ApprovalDismissed
        | EventKind::MergeAttempted
        | EventKind::MergeSucceeded
        | EventKind::MergeFailed
        | EventKind::RemediationBranchUpdate
        | EventKind::RemediationRebuild
        | EventKind::RemediationRetriggerPolicy
        | EventKind::RemediationRetriggerSod
        | EventKind::RemediationRetriggerApprover
        | EventKind::RemediationRetriggerMerge
        | EventKind::RemediationCloseAndReopen
        | EventKind::StateDriftCorrected
        | EventKind::WouldRemedy
        | EventKind::WouldEscalate
        | EventKind::PostMergeVerified
        | EventKind::Anomaly => Ended::Progress,
    }
}

/// What an event says was done. What observe mode would have done was not.
fn what_of(event: &Event) -> Option<What> {
    let escalated = event.kind == EventKind::EscalatedNeedsIntervention;
    event.kind.claims().map(What::Remedy).or_else(|| escalated.then_some(What::Escalation))
}
