//! A life as the log has it: the stretches a pull request spent in each state, what was said in them, and what was done.

use std::collections::BTreeMap;

use domain::event::{Event, EventKind};
use domain::id::PrId;
use domain::state::{State, Strategy};
use jiff::{SignedDuration, Timestamp};

/// One pull request's life.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    pub(crate) pr: PrId,
    pub(crate) intervals: Vec<Interval>,
}

/// A time spent in one state.
#[derive(Debug, Clone)]
pub(crate) struct Interval {
    pub(crate) state: State,
    pub(crate) since: Timestamp,
    /// When it ended, and how; nothing if the log ends before it does.
    pub(crate) until: Option<(Timestamp, IntervalEnd)>,
    /// Action checks and Policy Bot said, newest last.
    pub(crate) reports: Vec<StatusReport>,
    /// Action was done, or would have been, in order.
    pub(crate) done: Vec<Decision>,
    /// Whether a person held it, or it was a draft, for some of the time.
    pub(crate) held: bool,
}

/// How a stretch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IntervalEnd {
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

/// Action a check or Policy Bot said.
#[derive(Debug, Clone)]
pub(crate) struct StatusReport {
    pub(crate) kind: EventKind,
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Something that was done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) at: Timestamp,
    pub(crate) what: Action,
    /// The title of the rule that said so.
    pub(crate) rule: String,
    /// Action it gave as evidence.
    pub(crate) evidence: String,
}

/// A remedy, or a call for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    Remedy(Strategy),
    Escalation,
}

/// All lives of a log.
pub(crate) fn timelines(events: Vec<Event>) -> Vec<Timeline> {
    let mut by_pr: BTreeMap<PrId, Vec<Event>> = BTreeMap::new();
    for event in events {
        by_pr.entry(event.pr.clone()).or_default().push(event);
    }
    by_pr.into_iter().filter_map(|(pr, events)| timeline(pr, events)).collect()
}

fn timeline(pr: PrId, mut events: Vec<Event>) -> Option<Timeline> {
    events.sort_by_cached_key(|event| (known_by(event.occurred_at), event.sort_key()));
    let mut timeline = Timeline { pr, intervals: Vec::new() };
    for event in &in_order(events) {
        if timeline.intervals.is_empty() {
            // A log may begin in the middle of a life: then it begins where the first change says it was.
            let state = event.from.unwrap_or(State::Created);
            timeline.intervals.push(Interval::begin(state, event.occurred_at));
        }
        timeline.take(event);
    }
    (!timeline.intervals.is_empty()).then_some(timeline)
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

impl Interval {
    fn begin(state: State, since: Timestamp) -> Self {
        Self { state, since, until: None, reports: Vec::new(), done: Vec::new(), held: false }
    }
}

impl Timeline {
    fn take(&mut self, event: &Event) {
        let Some(interval) = self.intervals.last_mut() else { return };
        let text = &event.payload.text;
        if let Some(what) = action_of(event) {
            interval.done.push(Decision {
                at: event.occurred_at,
                what,
                rule: event.payload.name.clone().unwrap_or_default(),
                evidence: text.clone(),
            });
        }
        let name = event.payload.name.clone().unwrap_or_default();
        let reports = StatusReport { kind: event.kind, name, text: text.clone() };
        if event.kind == EventKind::PrEdited && (text.contains("hold") || text.contains("draft")) {
            interval.held = true;
        }
        if event.kind == EventKind::CommandReceived && reports.name == "/hold" {
            interval.held = true;
        }
        let Some(to) = event.to else {
            interval.reports.push(reports);
            return;
        };
        interval.until = Some((event.occurred_at, ended(event, to)));
        let mut next = Interval::begin(to, event.occurred_at);
        // Whatever leads into a state is what it is about.
        next.reports.push(reports);
        self.intervals.push(next);
    }
}

fn ended(event: &Event, to: State) -> IntervalEnd {
    match event.kind {
        EventKind::EscalatedNeedsIntervention => IntervalEnd::Escalation,
        EventKind::RemediationAccepted | EventKind::RemediationEnded => IntervalEnd::Assumption,
        EventKind::CommandReceived => IntervalEnd::Person,
        EventKind::BranchUpdated if event.from == Some(State::NeedsIntervention) => IntervalEnd::Person,
        EventKind::PrClosed | EventKind::StateDriftCorrected if to == State::Closed => IntervalEnd::Closing,
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
        | EventKind::Anomaly => IntervalEnd::Progress,
    }
}

/// Action an event says was done. Action observe mode would have done was not.
fn action_of(event: &Event) -> Option<Action> {
    let escalated = event.kind == EventKind::EscalatedNeedsIntervention;
    event.kind.claims().map(Action::Remedy).or_else(|| escalated.then_some(Action::Escalation))
}
