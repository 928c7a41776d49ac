//! Who watches: every write to the tables and every deed outside is looked at in the moment it happens, and what must always
//! hold is checked. What must hold in the end is in `ending`.

use std::collections::{BTreeMap, BTreeSet};

use domain::breaker::{Breaker, BreakerState};
use domain::comment::Notice;
use domain::event::{Event, EventKind};
use domain::id::{PrId, RunId};
use domain::policy::Policies;
use domain::state::State;
use jiff::Timestamp;
use platform::rows;
use platform::store::{Index, Key, Table, VERSION, Write, number_of, text_of};
use serde_dynamo::{AttributeValue, Item};
use serde_json::Value;
use world::{Deed, Effect, Pr, World};

use crate::budget_model::{BudgetModel, ReopenChange};
use crate::fault_injection::Function;

/// What must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A pull request did not end.
    Stuck,
    /// Something acknowledged is neither in the log nor on the queue.
    LostEvent,
    /// Something was done twice.
    DoubleEffect,
    /// A budget was exceeded.
    Budget,
    /// The reconciler's remedy went out while the breaker was open.
    Breaker,
    /// A write did not raise the version by one.
    Version,
    /// Something was done on a head that is history.
    StaleHead,
    /// A record that is not over has no date, or one that is over has one.
    DueDate,
    /// A row of the log was written over.
    EventOverwritten,
    /// Somebody else than the Car Bridge changed the outside.
    WriteOutsideBridge,
    /// The record and GitHub do not agree in the end.
    Disagreement,
    /// A person is needed, and nobody was told.
    NotNotified,
    /// An effect, a run or a message was left behind.
    LeftBehind,
    /// GitHub or Jenkins was asked something it does not know.
    UnknownRequest,
}

impl Invariant {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stuck => "stuck",
            Self::LostEvent => "lost_events",
            Self::DoubleEffect => "double_effects",
            Self::Budget => "budget_exceeded",
            Self::Breaker => "acted_while_breaker_open",
            Self::Version => "version_jumped",
            Self::StaleHead => "acted_on_old_head",
            Self::DueDate => "without_due_date",
            Self::EventOverwritten => "event_overwritten",
            Self::WriteOutsideBridge => "acted_outside_bridge",
            Self::Disagreement => "record_disagrees",
            Self::NotNotified => "nobody_was_told",
            Self::LeftBehind => "left_behind",
            Self::UnknownRequest => "unknown_request",
        }
    }
}

/// Something that must not have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Timestamp,
    /// What kind.
    pub what: Invariant,
    /// In a sentence.
    pub detail: String,
}

/// What a process is doing right now, as the watch needs it.
#[derive(Debug, Clone)]
pub(crate) struct InvocationState {
    pub(crate) function: Function,
    pub(crate) since: Timestamp,
    /// The run it read last: the one it works on.
    pub(crate) run: Option<RunId>,
    /// Events it has written, the first row of each, and requests.
    pub(crate) events: Vec<Key>,
    /// Messages it has put onto the queue.
    pub(crate) queued: Vec<u64>,
}

impl InvocationState {
    pub(crate) fn new(function: Function) -> Self {
        Self { function, since: Timestamp::MIN, run: None, events: Vec::new(), queued: Vec::new() }
    }
}

/// What is known of a pull request's record.
#[derive(Debug, Default)]
struct PrHistory {
    version: Option<i64>,
    ttl: Option<i64>,
    budget: BudgetModel,
    vulnerability: Option<String>,
}

/// What is known of a run.
#[derive(Debug)]
pub(crate) struct RunSummary {
    head: Option<String>,
    human: bool,
}

/// What is worth noting of a write.
#[derive(Debug)]
pub(crate) enum WriteSummary {
    Event(Key, Result<Box<Event>, String>),
    Record(RecordRow),
    Run(RunId, RunSummary),
    Request(Key),
    Breaker(BreakerState),
}

/// A record's row, as far as its attributes tell.
#[derive(Debug)]
pub(crate) struct RecordRow {
    pr: PrId,
    version: Option<i64>,
    ttl: Option<i64>,
    is_over: bool,
    is_due: bool,
}

impl RecordRow {
    fn of(pr: PrId, item: &Item) -> Self {
        let state = text_of(item, Index::ByRepo.shape().2).and_then(|text| text.split('#').next()).unwrap_or("");
        Self {
            pr,
            version: number_of(item, VERSION),
            ttl: number_of(item, platform::store::TTL),
            is_over: [State::Merged, State::Closed].iter().any(|over| over.name() == state),
            is_due: text_of(item, Index::Due.shape().2).is_some(),
        }
    }
}

/// A call for a person.
#[derive(Debug, Clone)]
pub struct Escalation {
    /// Which pull request.
    pub pr: PrId,
    /// When.
    pub at: Timestamp,
    /// Why, as the log has it.
    pub why: String,
    /// Whether the world had a reason for it.
    pub needless: bool,
}

/// A mail.
#[derive(Debug)]
struct Mail {
    id: String,
    at: Timestamp,
    text: String,
}

/// The watch.
#[derive(Debug)]
pub(crate) struct InvariantChecker {
    policies: Policies,
    prs: BTreeMap<PrId, PrHistory>,
    runs: BTreeMap<RunId, RunSummary>,
    reopens: BTreeMap<String, u32>,
    events: BTreeSet<Key>,
    deeds: BTreeSet<String>,
    sent: BTreeSet<String>,
    mails: Vec<Mail>,
    breaker: Vec<(Timestamp, BreakerState)>,
    /// What was sent more than once under the same name.
    pub(crate) repeated: u64,
    /// Claims, by strategy.
    pub(crate) remedies: BTreeMap<&'static str, u64>,
    pub(crate) escalations: Vec<Escalation>,
    pub(crate) violations: Vec<Violation>,
    /// The whole log, if somebody wants it.
    pub(crate) log: Option<Vec<Event>>,
}

/// Beyond this many nothing more is noted: the first ones tell.
const MOST_VIOLATIONS: usize = 50;

impl InvariantChecker {
    pub(crate) fn new(policies: Policies, keeps_log: bool) -> Self {
        Self {
            policies,
            prs: BTreeMap::new(),
            runs: BTreeMap::new(),
            reopens: BTreeMap::new(),
            events: BTreeSet::new(),
            deeds: BTreeSet::new(),
            sent: BTreeSet::new(),
            mails: Vec::new(),
            breaker: vec![(Timestamp::MIN, BreakerState::Closed)],
            repeated: 0,
            remedies: BTreeMap::new(),
            escalations: Vec::new(),
            violations: Vec::new(),
            log: keeps_log.then(Vec::new),
        }
    }

    pub(crate) fn violated(&mut self, what: Invariant, at: Timestamp, detail: String) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(Violation { at, what, detail });
        }
    }

    /// What is worth noting of what is about to be written.
    pub(crate) fn digest(&self, writes: &[Write]) -> Vec<WriteSummary> {
        let summaries = |write: &Write| {
            let Write::Put { key, item, .. } = write else { return None };
            if key.table == Table::Events {
                let event = rows::read(key, item).map_err(|error| error.to_string());
                return Some(WriteSummary::Event(key.clone(), event.map(Box::new)));
            }
            if let Some(pr) = key.partition.strip_prefix("PR#") {
                return Some(WriteSummary::Record(RecordRow::of(pr.parse().ok()?, item)));
            }
            if let Some(run) = key.partition.strip_prefix("RUN#") {
                let id = RunId::new(run);
                return (!self.runs.contains_key(&id)).then(|| WriteSummary::Run(id, claimed(item)));
            }
            if key.partition.starts_with("REQ#") {
                return Some(WriteSummary::Request(key.clone()));
            }
            let breaker: Option<Breaker> = (key.partition == "BREAKER").then(|| rows::read(key, item).ok()).flatten();
            breaker.map(|breaker| WriteSummary::Breaker(breaker.state))
        };
        writes.iter().filter_map(summaries).collect()
    }

    /// The tables were written. Answers lines for whoever reads along.
    pub(crate) fn wrote(
        &mut self,
        summaries: Vec<WriteSummary>,
        invocation: &mut InvocationState,
        at: Timestamp,
        needs_a_person: impl Fn(&Pr) -> bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for one in summaries {
            match one {
                WriteSummary::Event(key, event) => {
                    lines.extend(self.logged(&key, event, invocation, at, &needs_a_person))
                }
                WriteSummary::Record(row) => self.recorded(&row, at),
                WriteSummary::Run(id, claimed) => {
                    self.runs.entry(id).or_insert(claimed);
                }
                // What a push says is kept in its request until a sweep grants that.
                WriteSummary::Request(key) => invocation.events.push(key),
                WriteSummary::Breaker(state) => {
                    lines.push(format!("the breaker is {state:?}"));
                    self.breaker.push((at, state));
                }
            }
        }
        lines
    }

    /// A record was written.
    fn recorded(&mut self, row: &RecordRow, at: Timestamp) {
        let pr = &row.pr;
        let seen = self.prs.entry(pr.clone()).or_default();
        // A record that was forgotten begins anew.
        let known = seen.version.filter(|_| seen.ttl.is_none_or(|ttl| ttl > at.as_second()));
        let expected = known.map_or(1, |version| version + 1);
        (seen.version, seen.ttl) = (row.version, row.ttl);
        if row.version != Some(expected) {
            self.violated(
                Invariant::Version,
                at,
                format!("{pr} was written as version {:?} after {known:?}", row.version),
            );
        }
        if row.is_over == row.is_due {
            let (over, due) = (if row.is_over { "over" } else { "not over" }, if row.is_due { "a" } else { "no" });
            self.violated(Invariant::DueDate, at, format!("{pr} is {over}, and has {due} date"));
        }
    }

    /// The log got an event.
    fn logged(
        &mut self,
        key: &Key,
        event: Result<Box<Event>, String>,
        invocation: &mut InvocationState,
        at: Timestamp,
        needs_a_person: &impl Fn(&Pr) -> bool,
    ) -> Option<String> {
        if !self.events.insert(key.clone()) {
            self.violated(Invariant::EventOverwritten, at, format!("{key} was in the log already"));
        }
        let event = match event {
            Ok(event) => *event,
            Err(error) => {
                self.violated(Invariant::EventOverwritten, at, format!("{key} cannot be read: {error}"));
                return None;
            }
        };
        if event.hop == 0 {
            invocation.events.push(key.clone());
        }
        self.counted(&event, at);
        if let Some(strategy) = event.kind.claims() {
            *self.remedies.entry(strategy.name()).or_default() += 1;
            let run = event.payload.run.clone().unwrap_or_else(|| RunId::new("?"));
            self.permitted(&run, invocation, at, &format!("{strategy} of {} was claimed", event.pr));
        }
        if event.kind == EventKind::EscalatedNeedsIntervention {
            let needless = !needs_a_person(&fakes_pr(&event.pr));
            let why = format!("{} ({})", event.payload.text, event.payload.name.as_deref().unwrap_or(""));
            self.escalations.push(Escalation { pr: event.pr.clone(), at, why, needless });
        }
        let line = line_of(&event);
        if let Some(log) = &mut self.log {
            log.push(event);
        }
        Some(line)
    }

    fn counted(&mut self, event: &Event, at: Timestamp) {
        let seen = self.prs.entry(event.pr.clone()).or_default();
        if event.kind == EventKind::PrOpened {
            seen.vulnerability.clone_from(&event.payload.name);
        }
        let policy = self.policies.for_repo(&event.pr.repo);
        let (exceeded, reopens) = seen.budget.read(event, policy);
        let most = policy.budgets.close_and_reopen;
        let vulnerability = seen.vulnerability.clone().unwrap_or_else(|| event.pr.to_string());
        if let Some(detail) = exceeded {
            self.violated(Invariant::Budget, at, format!("{}: {detail}", event.pr));
        }
        let count = self.reopens.entry(vulnerability.clone()).or_default();
        match reopens {
            ReopenChange::Same => {}
            ReopenChange::OneMore => *count += 1,
            ReopenChange::OneLess => *count = count.saturating_sub(1),
        }
        if reopens == ReopenChange::OneMore && *count > most {
            let detail = format!("{vulnerability} was closed and asked for {count} times, and {most} are allowed");
            self.violated(Invariant::Budget, at, detail);
        }
    }

    /// Whether the breaker let this run through at some time since its process began.
    fn permitted(&mut self, run: &RunId, invocation: &InvocationState, at: Timestamp, what: &str) {
        let lets_through = |state: &BreakerState| match state {
            BreakerState::Closed => true,
            BreakerState::Open { .. } => false,
            BreakerState::HalfOpen { probe, .. } => probe == run,
        };
        let last_before = self.breaker.iter().rposition(|(since, _)| *since <= invocation.since).unwrap_or(0);
        if !self.breaker[last_before..].iter().any(|(_, state)| lets_through(state)) {
            self.violated(Invariant::Breaker, at, format!("{what} by {run}"));
        }
    }

    /// The outside was changed. Answers lines for whoever reads along.
    pub(crate) fn did(
        &mut self,
        effects: &[Effect],
        invocation: &InvocationState,
        world: &World,
        at: Timestamp,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for effect in effects.iter().filter(|effect| is_ours(effect)) {
            let pr = effect.pr.as_ref().map(ToString::to_string).unwrap_or_default();
            let run = invocation.run.as_ref().map(ToString::to_string).unwrap_or_default();
            lines.push(format!("does {:?} {pr} {} (run {run})", effect.deed, short(&effect.detail)));
            if invocation.function != Function::CarBridge {
                let detail = format!("{} did {:?} {pr}", invocation.function.name(), effect.deed);
                self.violated(Invariant::WriteOutsideBridge, at, detail);
            }
            self.once(effect, &pr, &run, at);
            if is_remedy(effect.deed) {
                self.in_order(effect, invocation, world, at);
            }
        }
        lines
    }

    /// No deed twice; what is sent under the same name may be, and is counted.
    fn once(&mut self, effect: &Effect, pr: &str, run: &str, at: Timestamp) {
        let name = match effect.deed {
            Deed::BusEvent => {
                let id = bus_detail(effect)["effect_id"].as_str().unwrap_or_default().to_owned();
                self.repeated += u64::from(!self.sent.insert(format!("bus {id}")));
                return;
            }
            Deed::Redelivered => {
                self.repeated += u64::from(!self.sent.insert(format!("redelivery {}", effect.detail)));
                return;
            }
            // Each comment of ours has a marker.
            Deed::CommentCreated => {
                let marker = effect.detail.rsplit("<!--").next().unwrap_or(&effect.detail);
                format!("comment {pr} {marker}")
            }
            Deed::ReactionAdded | Deed::ReactionRemoved => format!("reaction {pr} {}", effect.detail),
            Deed::BuildQueued | Deed::RepositoryScanned => format!("build {run}"),
            Deed::BuildStopped | Deed::LabelAdded | Deed::LabelRemoved | Deed::CheckRerequested | Deed::JobsRerun => {
                format!("{:?} {pr} {run} {}", effect.deed, effect.detail)
            }
            Deed::PullClosed | Deed::BranchUpdated => format!("{:?} {pr} {run}", effect.deed),
            Deed::PullOpened
            | Deed::PullReopened
            | Deed::PullMerged
            | Deed::PullEdited
            | Deed::HeadPushed
            | Deed::BasePushed
            | Deed::CommentEdited
            | Deed::ReviewSubmitted
            | Deed::StatusPosted
            | Deed::CheckRunCreated
            | Deed::CheckRunUpdated
            | Deed::IssueOpened
            | Deed::IssueEdited
            | Deed::IssuePinned => return,
        };
        if !self.deeds.insert(name.clone()) {
            self.violated(Invariant::DoubleEffect, at, name);
        }
    }

    /// The breaker was closed, and the head is the one it was decided on.
    fn in_order(&mut self, effect: &Effect, invocation: &InvocationState, world: &World, at: Timestamp) {
        let Some(run) = &invocation.run else { return };
        let what = format!("{:?} {}", effect.deed, effect.pr.as_ref().map(ToString::to_string).unwrap_or_default());
        let Some(RunSummary { head, human }) = self.runs.get(run) else { return };
        let head = head.clone();
        if !*human {
            self.permitted(run, invocation, at, &what);
        }
        let (Some(head), Some(pull)) = (head, effect.pr.as_ref().and_then(|pr| world.pull(pr))) else { return };
        // An update is pushed onto the head it was decided on; everything else leaves it as it is.
        let on = if effect.deed == Deed::BranchUpdated { 1 } else { 0 };
        let now = pull.commits.iter().rev().nth(on).map(|sha| sha.as_ref());
        if now != Some(head.as_str()) && pull.is_open() {
            self.violated(
                Invariant::StaleHead,
                at,
                format!("{what} by {run} was decided on {head}, and the head is {now:?}"),
            );
        }
    }

    /// Users got a mail.
    pub(crate) fn mailed(&mut self, id: &str, notice: &Notice, at: Timestamp) {
        self.repeated += u64::from(!self.sent.insert(format!("mail {id}")));
        self.mails.push(Mail { id: id.to_owned(), at, text: format!("{}\n{}", notice.subject, notice.body) });
    }

    /// Whether people were told about this pull request since then.
    pub(crate) fn told(&self, pr: &PrId, since: Timestamp) -> bool {
        let (own, name) = (format!("{pr}#"), pr.to_string());
        self.mails
            .iter()
            .filter(|mail| mail.at >= since)
            .any(|mail| mail.id.starts_with(&own) || (mail.id.starts_with("digest-") && names(&mail.text, &name)))
    }
}

/// Whether a text names this pull request, and not only one whose number begins with it.
fn names(text: &str, pr: &str) -> bool {
    text.match_indices(pr).any(|(at, _)| !text[at + pr.len()..].starts_with(|next: char| next.is_ascii_digit()))
}

/// The world's name of a pull request.
pub(crate) fn fakes_pr(pr: &PrId) -> Pr {
    Pr { repo: pr.repo.to_string(), number: pr.number }
}

fn claimed(item: &Item) -> RunSummary {
    let body = match item.get("body") {
        Some(AttributeValue::M(body)) => Some(body),
        Some(_) | None => None,
    };
    let text = |name: &str| match body.and_then(|body| body.get(name)) {
        Some(AttributeValue::S(text)) => Some(text.clone()),
        Some(_) | None => None,
    };
    RunSummary { head: text("head_sha"), human: text("trigger").as_deref() != Some("reconciler") }
}

/// What Suture did, by whichever of its names.
fn is_ours(effect: &Effect) -> bool {
    matches!(effect.by.as_str(), "suture[bot]" | "jenkins:suture" | "bus" | "app")
}

/// What is done about a stuck pull request, and not only said.
fn is_remedy(deed: Deed) -> bool {
    matches!(
        deed,
        Deed::BusEvent
            | Deed::BuildQueued
            | Deed::BuildStopped
            | Deed::BranchUpdated
            | Deed::PullClosed
            | Deed::LabelAdded
            | Deed::LabelRemoved
            | Deed::CheckRerequested
            | Deed::JobsRerun
    )
}

/// The detail of a bus event, as the world has written it down: its type, then its JSON.
fn bus_detail(effect: &Effect) -> Value {
    let json = effect.detail.split_once(' ').map_or("", |(_, json)| json);
    serde_json::from_str(json).unwrap_or(Value::Null)
}

fn short(text: &str) -> String {
    domain::event::cut(&text.replace('\n', " "), 100)
}

fn line_of(event: &Event) -> String {
    let change = match (event.from, event.to) {
        (Some(from), Some(to)) => format!(" {from} → {to}"),
        _ => String::new(),
    };
    let anomaly = event.payload.anomaly.as_deref().map(|why| format!(" ANOMALY {why}")).unwrap_or_default();
    format!("logs {} {}{change} {}{anomaly}", event.pr, event.kind, short(&event.payload.text))
}

#[cfg(test)]
mod tests {
    use serde_dynamo::AttributeValue;

    use super::*;

    fn checker() -> InvariantChecker {
        let policies = Policies::parse("mode = \"act\"").unwrap();
        InvariantChecker::new(policies, false)
    }

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + secs).unwrap()
    }

    /// A record's row: version, state, whether it has a date.
    fn record(version: u64, state: &str, due: bool) -> Vec<Write> {
        let mut item = Item::default();
        let mut set = |name: &str, value: AttributeValue| _ = item.inner_mut().insert(name.to_owned(), value);
        set(VERSION, platform::store::number(version));
        set(Index::ByRepo.shape().2, AttributeValue::S(format!("{state}#0000000001")));
        if due {
            set(Index::Due.shape().2, AttributeValue::S("2026-01-01T00:00:00.000Z".to_owned()));
        }
        let key = Key::state("PR#acme/shop#1");
        vec![Write::Put { key, item, only_if: platform::store::OnlyIf::Always }]
    }

    fn event(id: &str, kind: EventKind, run: &str) -> Vec<Write> {
        let event = Event {
            pr: "acme/shop#1".parse().unwrap(),
            occurred_at: at(0),
            id: domain::id::EventId::new(id),
            hop: 0,
            kind,
            source: domain::event::Actor::Reconciler,
            from: None,
            to: None,
            payload: domain::event::Payload { run: Some(RunId::new(run)), ..domain::event::Payload::default() },
            ttl: at(1_000_000),
        };
        let mut item = Item::default();
        let body = serde_dynamo::to_attribute_value(&event).unwrap();
        item.inner_mut().insert("body".to_owned(), body);
        vec![Write::Put { key: rows::event_key(&event), item, only_if: platform::store::OnlyIf::Always }]
    }

    fn found(checker: &mut InvariantChecker, writes: &[Write]) -> Vec<Invariant> {
        let mut invocation = InvocationState { since: at(10), ..InvocationState::new(Function::Reconciler) };
        let summaries = checker.digest(writes);
        checker.wrote(summaries, &mut invocation, at(20), |_| true);
        checker.violations.drain(..).map(|violation| violation.what).collect()
    }

    #[test]
    fn versions_rise_by_one() {
        let mut checker = checker();
        assert_eq!(found(&mut checker, &record(1, "CREATED", true)), []);
        assert_eq!(found(&mut checker, &record(2, "CREATED", true)), []);
        assert_eq!(found(&mut checker, &record(2, "CREATED", true)), [Invariant::Version]);
        assert_eq!(found(&mut checker, &record(4, "CREATED", true)), [Invariant::Version]);
    }

    #[test]
    fn what_is_not_over_has_a_date_and_what_is_over_has_none() {
        let mut checker = checker();
        assert_eq!(found(&mut checker, &record(1, "APPROVED", false)), [Invariant::DueDate]);
        assert_eq!(found(&mut checker, &record(2, "NEEDS_INTERVENTION", true)), []);
        assert_eq!(found(&mut checker, &record(3, "MERGED", true)), [Invariant::DueDate]);
        assert_eq!(found(&mut checker, &record(4, "MERGED", false)), []);
    }

    #[test]
    fn a_budget_that_is_exceeded_is_found_from_the_log() {
        let mut checker = checker();
        let claim = |n: u32| event(&format!("e{n}"), EventKind::RemediationRebuild, &format!("r{n}"));
        for n in 1..=3 {
            assert_eq!(found(&mut checker, &claim(n)), [], "{n}");
        }
        assert_eq!(found(&mut checker, &claim(4)), [Invariant::Budget]);
    }

    #[test]
    fn an_event_that_is_written_again_is_found() {
        let mut checker = checker();
        let once = event("e1", EventKind::BaseMoved, "r");
        assert_eq!(found(&mut checker, &once), []);
        assert_eq!(found(&mut checker, &once), [Invariant::EventOverwritten]);
    }

    #[test]
    fn a_claim_while_the_breaker_is_open_is_found_and_the_probe_is_not() {
        let mut checker = checker();
        let open = BreakerState::Open { since: at(0), cooldown_until: at(600), failure_rate_percent: 80 };
        checker.breaker.push((at(0), open));
        assert_eq!(found(&mut checker, &event("e1", EventKind::RemediationRebuild, "r1")), [Invariant::Breaker]);
        let probe = RunId::new("r2");
        let half = BreakerState::HalfOpen { probe, lease_until: at(900), since: at(0), failure_rate_percent: 80 };
        checker.breaker.push((at(5), half));
        assert_eq!(found(&mut checker, &event("e2", EventKind::RemediationBranchUpdate, "r2")), []);
        assert_eq!(found(&mut checker, &event("e3", EventKind::RemediationBranchUpdate, "r3")), [Invariant::Breaker]);
    }

    #[test]
    fn what_opened_while_it_was_under_way_is_no_trespass() {
        let mut checker = checker();
        let open = BreakerState::Open { since: at(15), cooldown_until: at(600), failure_rate_percent: 80 };
        checker.breaker.push((at(15), open));
        assert_eq!(found(&mut checker, &event("e1", EventKind::RemediationRebuild, "r1")), []);
    }

    #[test]
    fn people_are_told_of_this_one_and_not_of_one_with_a_longer_number() {
        let mut checker = checker();
        let mail = Notice { subject: "two".to_owned(), body: "acme/shop#12 and acme/shop#3".to_owned() };
        checker.mailed("digest-1", &mail, at(5));
        let told = |number: u64| checker.told(&PrId::new("acme/shop".parse().unwrap(), number), at(0));
        assert_eq!((told(1), told(12), told(3)), (false, true, true));
    }
}
