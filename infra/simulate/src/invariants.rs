//! Checks invariants at every write to the store and every external effect. `final_checks` checks the final state.

use std::collections::{BTreeMap, BTreeSet};

use domain::breaker::{Breaker, BreakerState};
use domain::event::{Event, EventKind};
use domain::id::{PrId, RunId};
use domain::policy::Policies;
use domain::state::State;
use domain::text::Notice;
use fakes::{AuditEntry, AuditedAction, FakePrId, Fakes};
use jiff::Timestamp;
use platform::store::schema;
use platform::store::{Index, Key, RowWrite, TTL, Table, VERSION, number_of, text_of};
use serde_dynamo::{AttributeValue, Item};
use serde_json::Value;

use crate::budget_model::BudgetModel;
use crate::fault_injection::FunctionName;

/// An invariant of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A pull request was not merged, closed or escalated.
    Stuck,
    /// An acknowledged webhook or request is neither in the store nor on the queue.
    LostEvent,
    DoubleEffect,
    Budget,
    /// The reconciler dispatched a remedy while the breaker was open.
    Breaker,
    /// A write did not raise the record's version by one.
    Version,
    /// A remedy was executed on an outdated head.
    StaleHead,
    /// An open record without a due date, or a terminal record with one.
    DueDate,
    EventOverwritten,
    /// A function other than the Car Bridge wrote to an external system.
    WriteOutsideBridge,
    /// Two records disagree at the end.
    Disagreement,
    /// An escalated pull request without a mail.
    NotNotified,
    /// An effect or a run that is still due at the end.
    LeftBehind,
    /// A request to an unknown endpoint of GitHub or Jenkins.
    UnknownRequest,
}

impl Invariant {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stuck => "stuck",
            Self::LostEvent => "lost_events",
            Self::DoubleEffect => "double_effects",
            Self::Budget => "budget_exceeded",
            Self::Breaker => "acted_while_breaker_open",
            Self::Version => "version_jumped",
            Self::StaleHead => "acted_on_stale_head",
            Self::DueDate => "without_due_date",
            Self::EventOverwritten => "event_overwritten",
            Self::WriteOutsideBridge => "acted_outside_bridge",
            Self::Disagreement => "record_disagrees",
            Self::NotNotified => "nobody_notified",
            Self::LeftBehind => "left_behind",
            Self::UnknownRequest => "unknown_request",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) at: Timestamp,
    pub(crate) invariant: Invariant,
    pub(crate) detail: String,
}

/// The current invocation of a process.
#[derive(Debug)]
pub(crate) struct InvocationState {
    function: FunctionName,
    since: Timestamp,
    /// The run that the process read last, which is the one it works on.
    pub(crate) run: Option<RunId>,
    /// The keys of written events (first hop) and reconcile requests.
    pub(crate) events: Vec<Key>,
    /// The ids of sent queue messages.
    pub(crate) queued: Vec<u64>,
    /// The keys of reports that are kept until their commit becomes a head.
    pub(crate) early_reports: Vec<Key>,
}

impl InvocationState {
    pub(crate) fn new(function: FunctionName, since: Timestamp) -> Self {
        Self { function, since, run: None, events: Vec::new(), queued: Vec::new(), early_reports: Vec::new() }
    }

    pub(crate) fn begin(&mut self, now: Timestamp) {
        *self = Self::new(self.function, now);
    }
}

/// The checker's state for a pull request.
#[derive(Debug, Default)]
struct PrHistory {
    version: Option<i64>,
    ttl: Option<i64>,
    budget: BudgetModel,
    vulnerability: Option<String>,
}

/// The head for which a run was decided, and whether a person requested it.
#[derive(Debug, Clone)]
pub(crate) struct RunOrigin {
    head: Option<String>,
    human: bool,
}

/// The part of a write that is checked.
#[derive(Debug)]
pub(crate) enum WriteSummary {
    Event(Key, Result<Box<Event>, String>),
    Record(RecordRow),
    Run(RunId, RunOrigin),
    Request(Key),
    /// A report that is kept until its commit becomes the head of a pull request.
    EarlyReport(Key),
    Breaker(BreakerState),
}

#[derive(Debug)]
pub(crate) struct RecordRow {
    pr: PrId,
    version: Option<i64>,
    ttl: Option<i64>,
    is_terminal: bool,
    is_due: bool,
}

impl RecordRow {
    fn of(pr: PrId, item: &Item) -> Self {
        let state = text_of(item, Index::ByRepo.shape().2).and_then(|text| text.split('#').next()).unwrap_or("");
        Self {
            pr,
            version: number_of(item, VERSION),
            ttl: number_of(item, TTL),
            is_terminal: [State::Merged, State::Closed].iter().any(|terminal| terminal.name() == state),
            is_due: text_of(item, Index::Due.shape().2).is_some(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct EscalationRecord {
    pub(crate) pr: PrId,
    pub(crate) at: Timestamp,
    pub(crate) why: String,
    /// Nothing in the fakes required a person.
    pub(crate) needless: bool,
}

#[derive(Debug)]
struct SentMail {
    id: String,
    at: Timestamp,
    text: String,
}

#[derive(Debug, Default)]
pub(crate) struct InvariantChecker {
    policies: Policies,
    prs: BTreeMap<PrId, PrHistory>,
    runs: BTreeMap<RunId, RunOrigin>,
    /// Runs that have announced a close or removed a label: they are finished even if the breaker opens meanwhile.
    begun: BTreeSet<RunId>,
    reopens: BTreeMap<String, u32>,
    events: BTreeSet<Key>,
    /// The heads that Suture's branch updates made, as GitHub executed them.
    updated_heads: BTreeSet<String>,
    /// Effects that must happen only once.
    effects: BTreeSet<String>,
    /// Effects that may be repeated with the same id.
    sent: BTreeSet<String>,
    mails: Vec<SentMail>,
    /// The history of the breaker, starting closed.
    breaker: Vec<(Timestamp, BreakerState)>,
    pub(crate) repeated: u64,
    pub(crate) remedies: BTreeMap<&'static str, u64>,
    pub(crate) escalations: Vec<EscalationRecord>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) log: Option<Vec<Event>>,
}

/// Further violations are dropped: the first ones are enough to find the cause.
const MAX_VIOLATIONS: usize = 50;

impl InvariantChecker {
    pub(crate) fn new(policies: Policies, keeps_log: bool) -> Self {
        let breaker = vec![(Timestamp::MIN, BreakerState::Closed)];
        Self { policies, breaker, log: keeps_log.then(Vec::new), ..Self::default() }
    }

    pub(crate) fn violated(&mut self, invariant: Invariant, at: Timestamp, detail: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation { at, invariant, detail });
        }
    }

    /// Extracts the checked parts of a write, before it happens.
    pub(crate) fn summarize(&self, writes: &[RowWrite]) -> Vec<WriteSummary> {
        let summary = |write: &RowWrite| {
            if let RowWrite::Update { key, change } = write
                && key.partition.starts_with("EARLY#")
                && !change.insert.is_empty()
            {
                return Some(WriteSummary::EarlyReport(key.clone()));
            }
            let RowWrite::Put { key, item, .. } = write else { return None };
            if key.table == Table::Events {
                let event = schema::read(key, item).map_err(|error| error.to_string());
                return Some(WriteSummary::Event(key.clone(), event.map(Box::new)));
            }
            if let Some(pr) = key.partition.strip_prefix("PR#") {
                return Some(WriteSummary::Record(RecordRow::of(pr.parse().ok()?, item)));
            }
            if let Some(run) = key.partition.strip_prefix("RUN#") {
                let id = RunId::new(run);
                return (!self.runs.contains_key(&id)).then(|| WriteSummary::Run(id, run_origin(item)));
            }
            if key.partition.starts_with("REQ#") {
                return Some(WriteSummary::Request(key.clone()));
            }
            let breaker: Option<Breaker> = (key.partition == "BREAKER").then(|| schema::read(key, item).ok()).flatten();
            breaker.map(|breaker| WriteSummary::Breaker(breaker.state))
        };
        writes.iter().filter_map(summary).collect()
    }

    /// Checks a completed write. Returns lines for the trace.
    pub(crate) fn written(
        &mut self,
        summaries: Vec<WriteSummary>,
        invocation: &mut InvocationState,
        at: Timestamp,
        needs_a_person: impl Fn(&FakePrId) -> bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for summary in summaries {
            match summary {
                WriteSummary::Event(key, Ok(event)) => {
                    lines.push(line_of(&event));
                    self.event_written(key, *event, invocation, at, &needs_a_person);
                }
                WriteSummary::Event(key, Err(error)) => {
                    self.violated(Invariant::EventOverwritten, at, format!("{key} cannot be read: {error}"));
                }
                WriteSummary::Record(row) => self.record_written(&row, at),
                WriteSummary::Run(id, origin) => _ = self.runs.entry(id).or_insert(origin),
                // A push is stored only as a reconcile request.
                WriteSummary::Request(key) => invocation.events.push(key),
                WriteSummary::EarlyReport(key) => invocation.early_reports.push(key),
                WriteSummary::Breaker(state) => {
                    lines.push(format!("the breaker is {state:?}"));
                    self.breaker.push((at, state));
                }
            }
        }
        lines
    }

    fn record_written(&mut self, row: &RecordRow, at: Timestamp) {
        let pr = &row.pr;
        let history = self.prs.entry(pr.clone()).or_default();
        // An expired record starts again at version 1.
        let known = history.version.filter(|_| history.ttl.is_none_or(|ttl| ttl > at.as_second()));
        let expected = known.map_or(1, |version| version + 1);
        (history.version, history.ttl) = (row.version, row.ttl);
        if row.version != Some(expected) {
            let detail = format!("{pr} was written as version {:?} after {known:?}", row.version);
            self.violated(Invariant::Version, at, detail);
        }
        if row.is_terminal == row.is_due {
            let detail = format!("{pr}: terminal {}, due {}", row.is_terminal, row.is_due);
            self.violated(Invariant::DueDate, at, detail);
        }
    }

    fn event_written(
        &mut self,
        key: Key,
        event: Event,
        invocation: &mut InvocationState,
        at: Timestamp,
        needs_a_person: &impl Fn(&FakePrId) -> bool,
    ) {
        if event.hop == 0 {
            invocation.events.push(key.clone());
        }
        if self.events.contains(&key) {
            self.violated(Invariant::EventOverwritten, at, format!("{key} already exists"));
        }
        self.events.insert(key);
        self.count_budgets(&event, at);
        if let Some(strategy) = event.kind.claimed_strategy() {
            *self.remedies.entry(strategy.name()).or_default() += 1;
            let run = event.payload.run.clone().unwrap_or_else(|| RunId::new("?"));
            self.check_breaker(&run, invocation, at, &format!("{strategy} of {} was claimed", event.pr));
        }
        if event.kind == EventKind::EscalatedNeedsIntervention {
            let needless = !needs_a_person(&fakes_pr(&event.pr));
            let why = format!("{} ({})", event.payload.text, event.payload.name.as_deref().unwrap_or(""));
            self.escalations.push(EscalationRecord { pr: event.pr.clone(), at, why, needless });
        }
        if let Some(log) = &mut self.log {
            log.push(event);
        }
    }

    fn count_budgets(&mut self, event: &Event, at: Timestamp) {
        let history = self.prs.entry(event.pr.clone()).or_default();
        if event.kind == EventKind::PrOpened {
            history.vulnerability.clone_from(&event.payload.name);
        }
        let policy = self.policies.for_repo(&event.pr.repo);
        let updated = event.payload.head.as_ref().is_some_and(|head| self.updated_heads.contains(head.as_str()));
        let (exceeded, reopens) = history.budget.read(event, policy, updated);
        let most = policy.budgets.close_and_reopen;
        let vulnerability = history.vulnerability.clone().unwrap_or_else(|| event.pr.to_string());
        if let Some(detail) = exceeded {
            self.violated(Invariant::Budget, at, format!("{}: {detail}", event.pr));
        }
        let count = self.reopens.entry(vulnerability.clone()).or_default();
        *count = count.saturating_add_signed(reopens);
        if reopens > 0 && *count > most {
            let detail = format!("{vulnerability} was closed and reopened {count} times; {most} are allowed");
            self.violated(Invariant::Budget, at, detail);
        }
    }

    /// The breaker must have permitted this run at some time since the start of the invocation.
    fn check_breaker(&mut self, run: &RunId, invocation: &InvocationState, at: Timestamp, what: &str) {
        let permits = |state: &BreakerState| match state {
            BreakerState::Closed => true,
            BreakerState::Open { .. } => false,
            BreakerState::HalfOpen { probe, .. } => probe == run,
        };
        let last_before = self.breaker.iter().rposition(|(since, _)| *since <= invocation.since).unwrap_or(0);
        if !self.breaker[last_before..].iter().any(|(_, state)| permits(state)) {
            self.violated(Invariant::Breaker, at, format!("{what} by {run}"));
        }
    }

    /// Checks external effects. Returns lines for the trace.
    pub(crate) fn acted(
        &mut self,
        effects: &[AuditEntry],
        invocation: &InvocationState,
        fakes: &Fakes,
        at: Timestamp,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let is_own =
            |effect: &&AuditEntry| matches!(effect.by.as_str(), "suture[bot]" | "jenkins:suture" | "bus" | "app");
        for effect in effects.iter().filter(is_own) {
            let pr = effect.pr.as_ref().map(ToString::to_string).unwrap_or_default();
            let run = invocation.run.as_ref().map(ToString::to_string).unwrap_or_default();
            lines.push(format!("does {:?} {pr} {} (run {run})", effect.action, short(&effect.detail)));
            if invocation.function != FunctionName::CarBridge {
                let detail = format!("{} did {:?} {pr}", invocation.function.name(), effect.action);
                self.violated(Invariant::WriteOutsideBridge, at, detail);
            }
            if effect.action == AuditedAction::BranchUpdated {
                self.updated_heads.extend(effect.head.clone());
            }
            self.check_once(effect, &pr, &run, at);
            if is_remedy(effect.action) {
                self.check_remedy(effect, invocation, fakes, at);
            }
            if matches!(effect.action, AuditedAction::CommentCreated | AuditedAction::LabelRemoved) {
                self.begun.extend(invocation.run.clone());
            }
        }
        lines
    }

    /// An effect must happen only once, unless it carries an id; repetitions with the same id are counted.
    fn check_once(&mut self, effect: &AuditEntry, pr: &str, run: &str, at: Timestamp) {
        let (action, detail) = (effect.action, &effect.detail);
        let name = match action {
            AuditedAction::BusEvent => {
                // The detail is the type and the JSON body.
                let json = detail.split_once(' ').map_or("", |(_, json)| json);
                let json: Value = serde_json::from_str(json).unwrap_or_default();
                let id = json["effect_id"].as_str().unwrap_or_default();
                self.repeated += u64::from(!self.sent.insert(format!("bus {id}")));
                return;
            }
            AuditedAction::Redelivered => {
                self.repeated += u64::from(!self.sent.insert(format!("redelivery {detail}")));
                return;
            }
            // Each of Suture's comments ends with a unique marker.
            AuditedAction::CommentCreated => format!("comment {pr} {}", detail.rsplit("<!--").next().unwrap_or(detail)),
            AuditedAction::ReactionAdded => format!("reaction {pr} {detail}"),
            AuditedAction::BuildQueued | AuditedAction::RepositoryScanned => format!("build {run}"),
            AuditedAction::BuildStopped
            | AuditedAction::LabelAdded
            | AuditedAction::LabelRemoved
            | AuditedAction::CheckRerequested
            | AuditedAction::JobsRerun => {
                format!("{action:?} {pr} {run} {detail}")
            }
            AuditedAction::PullClosed | AuditedAction::BranchUpdated => format!("{action:?} {pr} {run}"),
            AuditedAction::PullOpened
            | AuditedAction::PullReopened
            | AuditedAction::PullMerged
            | AuditedAction::HeadPushed
            | AuditedAction::BasePushed
            | AuditedAction::ReviewSubmitted
            | AuditedAction::StatusPosted
            | AuditedAction::CheckRunCreated
            | AuditedAction::CheckRunUpdated
            | AuditedAction::IssueOpened
            | AuditedAction::IssueEdited
            | AuditedAction::IssuePinned => return,
        };
        if !self.effects.insert(name.clone()) {
            self.violated(Invariant::DoubleEffect, at, name);
        }
    }

    /// The breaker must permit the remedy, and the head must be the one for which it was decided.
    fn check_remedy(&mut self, effect: &AuditEntry, invocation: &InvocationState, fakes: &Fakes, at: Timestamp) {
        let Some(run) = &invocation.run else { return };
        let Some(RunOrigin { head, human }) = self.runs.get(run).cloned() else { return };
        let what = format!("{:?} {}", effect.action, effect.pr.as_ref().map(ToString::to_string).unwrap_or_default());
        if !human && !self.begun.contains(run) {
            self.check_breaker(run, invocation, at, &what);
        }
        let (Some(head), Some(pull)) = (head, effect.pr.as_ref().and_then(|pr| fakes.pull(pr))) else { return };
        // A branch update adds one commit to that head; other remedies do not change the head.
        let behind = usize::from(effect.action == AuditedAction::BranchUpdated);
        let now = pull.commits.iter().rev().nth(behind).map(|sha| sha.as_ref());
        if now != Some(head.as_str()) && pull.is_open() {
            let detail = format!("{what} by {run} was decided for head {head}, but the head is {now:?}");
            self.violated(Invariant::StaleHead, at, detail);
        }
    }

    pub(crate) fn mailed(&mut self, id: &str, notice: &Notice, at: Timestamp) {
        self.repeated += u64::from(!self.sent.insert(format!("mail {id}")));
        self.mails.push(SentMail { id: id.to_owned(), at, text: format!("{}\n{}", notice.subject, notice.body) });
    }

    /// Whether a mail about this pull request was sent since then, as its own mail or in a digest.
    pub(crate) fn is_mailed(&self, pr: &PrId, since: Timestamp) -> bool {
        let (own, name) = (format!("{pr}#"), pr.to_string());
        let about =
            |mail: &SentMail| mail.id.starts_with(&own) || (mail.id.starts_with("digest-") && names(&mail.text, &name));
        self.mails.iter().any(|mail| mail.at >= since && about(mail))
    }
}

/// Whether a text names this pull request: `#1` does not match `#12`.
fn names(text: &str, pr: &str) -> bool {
    text.match_indices(pr).any(|(at, _)| !text[at + pr.len()..].starts_with(|next: char| next.is_ascii_digit()))
}

pub(crate) fn fakes_pr(pr: &PrId) -> FakePrId {
    FakePrId { repo: pr.repo.to_string(), number: pr.number }
}

fn run_origin(item: &Item) -> RunOrigin {
    let text = |name: &str| {
        let Some(AttributeValue::M(body)) = item.get("body") else { return None };
        let Some(AttributeValue::S(text)) = body.get(name) else { return None };
        Some(text.clone())
    };
    RunOrigin { head: text("head_sha"), human: text("trigger").as_deref() != Some("reconciler") }
}

/// Whether the action is a remedy, in contrast to a comment or a status report.
fn is_remedy(action: AuditedAction) -> bool {
    matches!(
        action,
        AuditedAction::BusEvent
            | AuditedAction::BuildQueued
            | AuditedAction::BuildStopped
            | AuditedAction::BranchUpdated
            | AuditedAction::PullClosed
            | AuditedAction::LabelAdded
            | AuditedAction::LabelRemoved
            | AuditedAction::CheckRerequested
            | AuditedAction::JobsRerun
    )
}

fn short(text: &str) -> String {
    domain::event::truncate(&text.replace('\n', " "), 100)
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

    /// A record's row with this version and state, with or without a due date.
    fn record(version: u64, state: &str, due: bool) -> Vec<RowWrite> {
        let mut item = Item::default();
        let mut set = |name: &str, value: AttributeValue| _ = item.inner_mut().insert(name.to_owned(), value);
        set(VERSION, platform::store::number(version));
        set(Index::ByRepo.shape().2, AttributeValue::S(format!("{state}#0000000001")));
        if due {
            set(Index::Due.shape().2, AttributeValue::S("2026-01-01T00:00:00.000Z".to_owned()));
        }
        let key = Key::state("PR#acme/shop#1");
        vec![RowWrite::Put { key, item, only_if: platform::store::Condition::Always }]
    }

    fn event(id: &str, kind: EventKind, run: &str) -> Vec<RowWrite> {
        let event = Event {
            pr: "acme/shop#1".parse().unwrap(),
            occurred_at: at(0),
            id: domain::id::EventId::new(id),
            hop: 0,
            kind,
            source: domain::event::Actor::Reconciler,
            from: None,
            to: None,
            payload: domain::event::EventPayload {
                run: Some(RunId::new(run)),
                ..domain::event::EventPayload::default()
            },
            ttl: at(1_000_000),
        };
        let mut item = Item::default();
        let body = serde_dynamo::to_attribute_value(&event).unwrap();
        item.inner_mut().insert("body".to_owned(), body);
        vec![RowWrite::Put { key: schema::event_key(&event), item, only_if: platform::store::Condition::Always }]
    }

    fn found(checker: &mut InvariantChecker, writes: &[RowWrite]) -> Vec<Invariant> {
        let mut invocation = InvocationState::new(FunctionName::Reconciler, at(10));
        let summaries = checker.summarize(writes);
        checker.written(summaries, &mut invocation, at(20), |_| true);
        checker.violations.drain(..).map(|violation| violation.invariant).collect()
    }

    #[test]
    fn version_must_rise_by_one() {
        let mut checker = checker();
        assert_eq!(found(&mut checker, &record(1, "CREATED", true)), []);
        assert_eq!(found(&mut checker, &record(2, "CREATED", true)), []);
        assert_eq!(found(&mut checker, &record(2, "CREATED", true)), [Invariant::Version]);
        assert_eq!(found(&mut checker, &record(4, "CREATED", true)), [Invariant::Version]);
    }

    #[test]
    fn only_open_records_have_a_due_date() {
        let mut checker = checker();
        assert_eq!(found(&mut checker, &record(1, "APPROVED", false)), [Invariant::DueDate]);
        assert_eq!(found(&mut checker, &record(2, "NEEDS_INTERVENTION", true)), []);
        assert_eq!(found(&mut checker, &record(3, "MERGED", true)), [Invariant::DueDate]);
        assert_eq!(found(&mut checker, &record(4, "MERGED", false)), []);
    }

    #[test]
    fn exceeded_budget_is_a_violation() {
        let mut checker = checker();
        let claim = |n: u32| event(&format!("e{n}"), EventKind::RemediationRebuild, &format!("r{n}"));
        for n in 1..=3 {
            assert_eq!(found(&mut checker, &claim(n)), [], "{n}");
        }
        assert_eq!(found(&mut checker, &claim(4)), [Invariant::Budget]);
    }

    #[test]
    fn overwritten_event_is_a_violation() {
        let mut checker = checker();
        let once = event("e1", EventKind::BaseMoved, "r");
        assert_eq!(found(&mut checker, &once), []);
        assert_eq!(found(&mut checker, &once), [Invariant::EventOverwritten]);
    }

    #[test]
    fn claim_while_breaker_is_open_is_a_violation_except_the_probe() {
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
    fn breaker_that_opens_during_the_invocation_is_not_a_violation() {
        let mut checker = checker();
        let open = BreakerState::Open { since: at(15), cooldown_until: at(600), failure_rate_percent: 80 };
        checker.breaker.push((at(15), open));
        assert_eq!(found(&mut checker, &event("e1", EventKind::RemediationRebuild, "r1")), []);
    }

    #[test]
    fn digest_names_a_pull_request_by_its_whole_number() {
        let mut checker = checker();
        let mail = Notice::new("two".to_owned(), "acme/shop#12 and acme/shop#3".to_owned());
        checker.mailed("digest-1", &mail, at(5));
        let is_mailed = |number: u64| checker.is_mailed(&PrId::new("acme/shop".parse().unwrap(), number), at(0));
        assert_eq!((is_mailed(1), is_mailed(12), is_mailed(3)), (false, true, true));
    }
}
