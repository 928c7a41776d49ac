//! The timeline of a pull request from the event log: its intervals in each state, with their reports and decisions.

use std::collections::{BTreeMap, VecDeque};

use domain::command::Command;
use domain::diagnosis::rule_number;
use domain::event::{Event, EventKind};
use domain::id::PrId;
use domain::state::{State, Strategy};
use jiff::{SignedDuration, Timestamp};

#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) pr: PrId,
    pub(super) intervals: Vec<Interval>,
}

/// A time spent in one state.
#[derive(Debug)]
pub(super) struct Interval {
    pub(super) state: State,
    pub(super) since: Timestamp,
    /// `None` if the log ends before it does.
    pub(super) until: Option<(Timestamp, IntervalEnd)>,
    /// The event that led into this state, then events that did not change the state.
    pub(super) reports: Vec<TimelineReport>,
    pub(super) decisions: Vec<ReplayDecision>,
    /// Whether it was on hold or a draft for some of the time.
    pub(super) held: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntervalEnd {
    Progress,
    /// Suture set or reverted its own assumed state; nothing new was reported.
    Assumption,
    Escalation,
    /// A person sent a command or pushed.
    Person,
    /// Closed without a merge.
    Closed,
}

#[derive(Debug)]
pub(super) struct TimelineReport {
    pub(super) kind: EventKind,
    pub(super) name: String,
    pub(super) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReplayDecision {
    pub(super) at: Timestamp,
    pub(super) action: ReplayAction,
    /// The title of the rule.
    pub(super) rule: String,
}

impl ReplayDecision {
    pub(super) fn is_by(&self, number: &str) -> bool {
        rule_number(&self.rule) == Some(number)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplayAction {
    Remedy(Strategy),
    Escalation,
}

pub(super) fn timelines(events: Vec<Event>) -> Vec<Timeline> {
    let mut by_pr: BTreeMap<PrId, Vec<Event>> = BTreeMap::new();
    for event in events {
        by_pr.entry(event.pr.clone()).or_default().push(event);
    }
    by_pr.into_iter().map(|(pr, events)| timeline(pr, events)).collect()
}

fn timeline(pr: PrId, mut events: Vec<Event>) -> Timeline {
    events.sort_by_cached_key(|event| (known_by(event.occurred_at), event.sort_key()));
    let mut timeline = Timeline { pr, intervals: Vec::new() };
    for event in in_order(events) {
        timeline.add(&event);
    }
    timeline
}

/// The end of the second for GitHub's timestamps, which are whole seconds: Suture's actions within the same second came first.
pub(super) fn known_by(at: Timestamp) -> Timestamp {
    if at.subsec_nanosecond() == 0 { at.saturating_add(SignedDuration::from_millis(999)).unwrap_or(at) } else { at }
}

/// Orders events of the same moment by their states: each starts in the state to which the previous one led.
fn in_order(events: Vec<Event>) -> Vec<Event> {
    let mut waiting = VecDeque::from(events);
    let mut ordered: Vec<Event> = Vec::new();
    let mut state = None;
    while let Some(first) = waiting.front() {
        let at = known_by(first.occurred_at);
        let fits = |event: &Event| event.hop == 0 && event.from.is_some() && event.from == state;
        let same_moment = waiting.iter().take_while(|event| known_by(event.occurred_at) == at);
        let place =
            same_moment.clone().position(|event| event.from.is_none()).or_else(|| same_moment.clone().position(fits));
        let Some(chosen) = waiting.remove(place.unwrap_or(0)) else { break };
        let id = chosen.id.clone();
        state = chosen.to.or(state);
        ordered.push(chosen);
        // The further hops of the same fact follow.
        let is_hop = |event: &Event| event.id == id && known_by(event.occurred_at) == at;
        while let Some(hop) = waiting.iter().position(is_hop).and_then(|place| waiting.remove(place)) {
            state = hop.to.or(state);
            ordered.push(hop);
        }
    }
    ordered
}

impl Timeline {
    fn begin(&mut self, state: State, since: Timestamp, reports: Vec<TimelineReport>) {
        self.intervals.push(Interval { state, since, until: None, reports, decisions: Vec::new(), held: false });
    }

    fn add(&mut self, event: &Event) {
        let at = event.occurred_at;
        if self.intervals.is_empty() {
            // An incomplete log starts with the state before its first transition.
            self.begin(event.from.unwrap_or(State::Created), at, Vec::new());
        }
        let Some(interval) = self.intervals.last_mut() else { return };
        let (name, text) = (event.payload.name.clone().unwrap_or_default(), event.payload.text.clone());
        // Decisions of observe mode were not executed, so they do not count.
        let escalated = event.kind == EventKind::EscalatedNeedsIntervention;
        let action = event
            .kind
            .claimed_strategy()
            .map(ReplayAction::Remedy)
            .or_else(|| escalated.then_some(ReplayAction::Escalation));
        interval.decisions.extend(action.map(|action| ReplayDecision { at, action, rule: name.clone() }));
        let edited = event.kind == EventKind::PrEdited && (text.contains("hold") || text.contains("draft"));
        interval.held |= edited || (event.kind == EventKind::CommandReceived && name == Command::Hold.name());
        let report = TimelineReport { kind: event.kind, name, text };
        match event.to {
            None => interval.reports.push(report),
            Some(to) => {
                interval.until = Some((at, end_of(event, to)));
                // The event that leads into a state is its first report.
                self.begin(to, at, vec![report]);
            }
        }
    }
}

fn end_of(event: &Event, to: State) -> IntervalEnd {
    let kind = event.kind;
    let pushed = kind == EventKind::BranchUpdated && event.from == Some(State::NeedsIntervention);
    if kind == EventKind::EscalatedNeedsIntervention {
        IntervalEnd::Escalation
    } else if kind == EventKind::RemediationAccepted || event.withdraws_assumption() {
        IntervalEnd::Assumption
    } else if kind == EventKind::CommandReceived || pushed {
        IntervalEnd::Person
    } else if to == State::Closed && matches!(kind, EventKind::PrClosed | EventKind::StateDriftCorrected) {
        IntervalEnd::Closed
    } else {
        IntervalEnd::Progress
    }
}
