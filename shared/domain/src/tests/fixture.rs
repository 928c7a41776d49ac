//! Test fixture: one pull request with its record, log and clock. Tests apply facts to it and advance the time.

use jiff::{SignedDuration, Timestamp};

use crate::command::{Command, CommandSource};
use crate::decide::{Decision, FactOutcome, RunChange, VulnerabilityUpdate, decide};
use crate::diagnosis::{Classification, Diagnosis, DiagnosisInput, classify};
use crate::event::{
    Actor, CommandRequest, DiagnosisFact, Event, EventKind, Fact, FactKind, PullRequestDetails, RemedyUpdate,
};
use crate::id::{EventId, PrId, RunId, Sha};
use crate::policy::{Mode, Policies, Policy};
use crate::pull_request::{PullRequest, Vulnerability};
use crate::run::RunEnd;
use crate::signals::{
    ApprovalReport, CheckFailure, CheckKind, CheckReport, CheckVerdict, MergeReport, PolicyReport, PolicyVerdict,
    RenewalMark, Signals,
};
use crate::snapshot::{LiveStatus, Mergeability, PullRequestState, Snapshot};
use crate::state::{State, Substatus};
use crate::text::EscalationHistory;
use crate::transition::{TransitionTrigger, next};

pub(crate) fn sha(letter: char) -> Sha {
    letter.to_string().repeat(40).parse().unwrap()
}

pub(crate) fn pr() -> PrId {
    "acme/my-app#42".parse().unwrap()
}

/// The start time of every test.
pub(crate) fn start() -> Timestamp {
    "2026-03-02T09:00:00Z".parse().unwrap()
}

pub(crate) fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

pub(crate) fn acting() -> Policy {
    let mut policy = Policies::default().base().clone();
    policy.mode = Mode::Act;
    policy
}

pub(crate) fn described(head: &Sha) -> PullRequestDetails {
    PullRequestDetails {
        node_id: Some("PR_kwDOA".to_owned()),
        html_url: None,
        branch: "codegenie/fix-openssl".to_owned(),
        base_branch: "main".to_owned(),
        head: head.clone(),
        labels: vec![],
        draft: false,
        vulnerability_id: Some("CVE-2026-1234".to_owned()),
        created_at: start(),
        size: Some(12),
        required_checks: Some(vec![]),
    }
}

/// A check run with id 7 that started at `start()`.
pub(crate) fn run_of(name: &str, verdict: CheckVerdict, at: Timestamp) -> CheckReport {
    CheckReport {
        name: name.to_owned(),
        kind: CheckKind::Run,
        verdict,
        id: Some(7),
        started_at: Some(start()),
        at,
        failure: None,
        renewal: RenewalMark::None,
        posted_by: None,
    }
}

pub(crate) fn status_of(name: &str, verdict: CheckVerdict, at: Timestamp) -> CheckReport {
    CheckReport { kind: CheckKind::Status, id: None, started_at: None, ..run_of(name, verdict, at) }
}

pub(crate) fn failed_because(rule: Option<&str>, text: &str) -> Option<CheckFailure> {
    Some(CheckFailure { transient_rule: rule.map(str::to_owned), text: text.to_owned() })
}

pub(crate) fn policy_says(verdict: PolicyVerdict, at: Timestamp) -> PolicyReport {
    PolicyReport { verdict, at, text: String::new(), renewal: RenewalMark::None }
}

pub(crate) fn approved(at: Timestamp) -> ApprovalReport {
    ApprovalReport { by: "approver-bot[bot]".to_owned(), granted: true, at }
}

pub(crate) fn merging(at: Timestamp) -> MergeReport {
    MergeReport { failed: false, at, text: String::new(), renewal: RenewalMark::None }
}

/// Every change of the state is logged, and is a transition of the table or a drift correction.
fn assert_changes_are_in_the_table(before: Option<&PullRequest>, decision: &Decision) {
    let mut state = before.map_or(State::Created, |record| record.state);
    for event in &decision.events {
        let Some((from, to)) = event.from.zip(event.to) else { continue };
        assert_eq!(from, state, "{} does not start in the state of the record", event.kind);
        let legal = TransitionTrigger::ALL.into_iter().any(|trigger| next(from, trigger) == Some(to));
        assert!(legal || event.kind == EventKind::StateDriftCorrected, "{}: {from} → {to}", event.kind);
        state = to;
    }
    if let Some(after) = &decision.record {
        assert_eq!(after.state, state, "a change of the state was not logged: {}", decision.reason);
    }
}

/// One pull request, its log, and the clock.
#[derive(Debug, Clone)]
pub(crate) struct PrScenario {
    pub(crate) policy: Policy,
    pub(crate) record: Option<PullRequest>,
    pub(crate) log: Vec<Event>,
    pub(crate) now: Timestamp,
    pub(crate) head: Sha,
    pub(crate) vulnerability: Vulnerability,
    pub(crate) last: Option<Decision>,
    facts: u32,
}

impl PrScenario {
    pub(crate) fn new() -> Self {
        Self {
            policy: acting(),
            record: None,
            log: vec![],
            now: start(),
            head: sha('a'),
            vulnerability: Vulnerability { open: [42].into(), ..Vulnerability::default() },
            last: None,
            facts: 0,
        }
    }

    /// A pull request that was just opened.
    pub(crate) fn opened() -> Self {
        let mut scenario = Self::new();
        scenario.apply(FactKind::Opened(described(&scenario.head.clone())));
        scenario
    }

    /// A pull request that has reached this state, one minute per step.
    pub(crate) fn at(state: State) -> Self {
        let mut scenario = Self::opened();
        let steps: [fn(&mut Self); 6] = [
            |s| s.check("build", CheckVerdict::Running),
            |s| s.check("build", CheckVerdict::Passed),
            |s| s.policy_bot(PolicyVerdict::Evaluating),
            |s| s.policy_bot(PolicyVerdict::Passed),
            |s| s.approve(),
            |s| s.merge_attempt(),
        ];
        let taken = match state {
            State::Created => 0,
            State::ChecksRunning | State::ChecksFailed => 1,
            State::ChecksPassed => 2,
            State::PolicyEvaluating | State::PolicyFailed => 3,
            State::PolicyPassed => 4,
            State::Approved => 5,
            State::Merging | State::Merged | State::Closed | State::NeedsIntervention => 6,
        };
        for step in &steps[..taken] {
            scenario.advance_minutes(1);
            step(&mut scenario);
        }
        scenario.advance_minutes(1);
        match state {
            State::ChecksFailed => scenario.fail("build", Some("timeout"), "timeout"),
            State::PolicyFailed => scenario.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure)),
            State::Merged => scenario.apply(FactKind::Merged { by: None, by_automerge_bot: true }),
            State::Closed => scenario.apply(FactKind::Closed { by: None, why: None }),
            _ => {}
        }
        if state != State::NeedsIntervention {
            assert_eq!(scenario.state(), state);
        }
        scenario
    }

    pub(crate) fn advance_minutes(&mut self, mins: i64) {
        self.now += minutes(mins);
    }

    /// Applies a fact that happens now, with a new id.
    pub(crate) fn apply(&mut self, what: FactKind) {
        let at = self.now;
        self.apply_at(at, what);
    }

    /// Applies a fact that happened at this time.
    pub(crate) fn apply_at(&mut self, at: Timestamp, what: FactKind) {
        self.facts += 1;
        let fact = Fact {
            id: EventId::new(format!("f{}", self.facts)),
            pr: pr(),
            occurred_at: at,
            actor: Actor::GithubWebhook,
            kind: what,
            described: None,
        };
        self.apply_fact(&fact);
    }

    /// Applies a fact as the engine does.
    pub(crate) fn apply_fact(&mut self, fact: &Fact) {
        let before = self.record.clone();
        let decision = decide(&self.policy, self.record.clone(), fact, self.now);
        if let Some(after) = &decision.record {
            let version = before.as_ref().map_or(0, |record| record.version);
            assert_eq!(after.version, version + 1, "a write raises the version by one");
            assert_eq!(after.due_at.is_none(), after.state.is_terminal(), "only terminal records have no due date");
            let has_ended = after.state.is_terminal() && after.active_run.is_none();
            assert_eq!(after.ttl.is_some(), has_ended, "only terminal records without a run have a ttl");
            self.record = Some(after.clone());
        } else {
            assert!(decision.events.is_empty() && decision.effects.is_empty() && decision.runs.is_empty());
        }
        for (n, event) in decision.events.iter().enumerate() {
            assert_eq!(usize::from(event.hop), n, "hops are numbered from 0");
        }
        assert_changes_are_in_the_table(before.as_ref(), &decision);
        self.log.extend(decision.events.iter().cloned());
        self.last = Some(decision);
    }

    pub(crate) fn record(&self) -> &PullRequest {
        self.record.as_ref().unwrap()
    }

    pub(crate) fn record_mut(&mut self) -> &mut PullRequest {
        self.record.as_mut().unwrap()
    }

    pub(crate) fn state(&self) -> State {
        self.record().state
    }

    pub(crate) fn last(&self) -> &Decision {
        self.last.as_ref().unwrap()
    }

    /// The changes of vulnerability rows in the last decision.
    pub(crate) fn vulnerability_updates(&self) -> Vec<VulnerabilityUpdate> {
        self.last().vulnerabilities.iter().map(|change| change.update).collect()
    }

    pub(crate) fn outcome(&self) -> FactOutcome {
        self.last().outcome
    }

    /// The kinds of all logged events.
    pub(crate) fn kinds(&self) -> Vec<EventKind> {
        self.log.iter().map(|event| event.kind).collect()
    }

    pub(crate) fn check(&mut self, name: &str, verdict: CheckVerdict) {
        let check = run_of(name, verdict, self.now);
        self.apply(FactKind::Check { head: self.head.clone(), check });
    }

    /// A later run of a check, with a higher id.
    pub(crate) fn rerun(&mut self, name: &str, verdict: CheckVerdict, id: u64) {
        let check = CheckReport { id: Some(id), ..run_of(name, verdict, self.now) };
        self.apply(FactKind::Check { head: self.head.clone(), check });
    }

    pub(crate) fn fail(&mut self, name: &str, rule: Option<&str>, text: &str) {
        let check = CheckReport { failure: failed_because(rule, text), ..run_of(name, CheckVerdict::Failed, self.now) };
        self.apply(FactKind::Check { head: self.head.clone(), check });
    }

    pub(crate) fn fail_again(&mut self, name: &str, rule: Option<&str>, id: u64) {
        let check = CheckReport {
            id: Some(id),
            failure: failed_because(rule, "again"),
            ..run_of(name, CheckVerdict::Failed, self.now)
        };
        self.apply(FactKind::Check { head: self.head.clone(), check });
    }

    pub(crate) fn policy_bot(&mut self, verdict: PolicyVerdict) {
        let report = policy_says(verdict, self.now);
        self.apply(FactKind::Policy { head: self.head.clone(), report });
    }

    pub(crate) fn approve(&mut self) {
        let approval = approved(self.now);
        self.apply(FactKind::Approval { head: self.head.clone(), approval });
    }

    pub(crate) fn merge_attempt(&mut self) {
        let report = merging(self.now);
        self.apply(FactKind::Merge { head: self.head.clone(), report });
    }

    pub(crate) fn push(&mut self, head: char, by_suture: bool) {
        let before = Some(self.head.clone());
        self.head = sha(head);
        self.apply(FactKind::HeadMoved { described: described(&self.head.clone()), before, by_suture });
    }

    /// A snapshot with exactly the content of the record.
    pub(crate) fn github(&self) -> Snapshot {
        let record = self.record();
        let mut signals = record.signals.clone();
        signals.clear_marks();
        Snapshot {
            read_at: self.now,
            details: PullRequestDetails {
                labels: record.labels.clone(),
                draft: record.draft,
                vulnerability_id: record.vulnerability_id.clone(),
                required_checks: None,
                ..described(&self.head)
            },
            state: PullRequestState::Open,
            signals: Signals { requested_at: None, ..signals },
            required_checks: None,
            live: LiveStatus { mergeable: Mergeability::Clean, behind_by: Some(0), strict: true, build: None },
        }
    }

    pub(crate) fn verify(&mut self, snapshot: Snapshot) {
        self.apply(FactKind::Verified(Box::new(snapshot)));
    }

    pub(crate) fn diagnose(&self, live: Option<&LiveStatus>) -> Diagnosis {
        let vulnerability = Some(&self.vulnerability);
        classify(&DiagnosisInput { record: self.record(), live, vulnerability, policy: &self.policy, now: self.now })
    }

    /// One visit of the sweep: verifies with the snapshot, and diagnoses if stale. Returns the classification.
    pub(crate) fn sweep(&mut self, github: Snapshot) -> Option<Classification> {
        let live = github.live;
        self.verify(github);
        if self.record().state.is_terminal() || !self.record().is_stale(&self.policy, self.now) {
            return None;
        }
        let diagnosis = self.diagnose(Some(&live));
        let classification = diagnosis.classification;
        let run = RunId::new(format!("run-{}", self.facts));
        let found = DiagnosisFact {
            diagnosis,
            run,
            vulnerability: Some(self.vulnerability.clone()),
            history: EscalationHistory::default(),
        };
        self.apply(FactKind::Diagnosed(Box::new(found)));
        Some(classification)
    }

    /// One visit of the sweep with this live status; everything else is as in the record.
    pub(crate) fn sweep_with(&mut self, change: impl FnOnce(&mut LiveStatus)) -> Option<Classification> {
        let mut github = self.github();
        change(&mut github.live);
        self.sweep(github)
    }

    /// The run that the last decision ended.
    pub(crate) fn run_end(&self) -> Option<(RunEnd, &str)> {
        self.last().runs.iter().find_map(|change| match change {
            RunChange::Ended { end, outcome, .. } => Some((*end, outcome.as_str())),
            RunChange::Open(_) | RunChange::Accepted { .. } => None,
        })
    }

    /// An update of the active remedy by the Car Bridge.
    pub(crate) fn remedy_update(&mut self, update: RemedyUpdate) {
        let run = self.record().active_run.as_ref().map_or(RunId::new("none"), |run| run.id.clone());
        self.apply(FactKind::Remedy { run, update });
    }

    pub(crate) fn command(&mut self, command: Command) {
        self.command_by(command, CommandSource::PrComment, Ok(()));
    }

    /// A command from this source, with or without permission.
    pub(crate) fn command_by(&mut self, command: Command, source: CommandSource, permission: Result<(), String>) {
        let run = RunId::new(format!("human-{}", self.facts));
        let by = "danny".to_owned();
        self.apply(FactKind::CommandRequested(Box::new(CommandRequest {
            command,
            source,
            by,
            permission,
            run,
            args: String::new(),
            comment: None,
        })));
    }
}
