//! What is known about one head commit, and THE function that says which state it implies (rules 1, 2, 5 and 6).
//! A webhook and a GitHub snapshot fill the same signals, so there is one derivation. Nothing here knows the state a
//! record is in; how it gets from there to the implied one is in `transition`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::state::{State, Strategy, Substatus};

/// The signals of one head. For each source the newest report by its own time wins, whatever order reports arrive in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Signals {
    /// When check runs were last asked for by GitHub itself (`check_suite.requested`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<Timestamp>,
    /// Checks and statuses, sorted by name and kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Policy Bot's newest report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyReport>,
    /// The newest word of each approver bot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approval>,
    /// Automerge Bot's newest report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeReport>,
    /// What Suture asked for, was promised, and has not seen yet. It never replaces a report: it only says that the old
    /// one is being renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
}

/// What the target of a remedy accepted to renew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// A rebuild.
    Checks,
    /// A merge of the base into the head: this head is about to be history.
    Branch,
    /// A new policy evaluation.
    Policy,
    /// A merge.
    Merge,
}

/// Check run or commit status. Both may report under one name, and then both must pass (rule 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    /// A check run of GitHub's Checks API.
    Run,
    /// A commit status.
    Status,
}

/// What a check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Waiting for an agent.
    Queued,
    /// At work.
    Running,
    /// Green (success, neutral or skipped).
    Passed,
    /// Red.
    Failed,
}

impl Verdict {
    /// Queued < running < completed: what orders two reports of one check run with equal times.
    fn phase(self) -> u8 {
        match self {
            Self::Queued => 0,
            Self::Running => 1,
            Self::Passed | Self::Failed => 2,
        }
    }
}

/// The newest report of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name: check-run name or status context.
    pub name: String,
    /// Check run or status.
    pub kind: CheckKind,
    /// What it says.
    pub verdict: Verdict,
    /// The check run's id; re-runs get a higher one. Statuses have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// When this run of it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it said so.
    pub at: Timestamp,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Whether a remedy is about to renew this report.
    #[serde(default, skip_serializing_if = "Renewal::is_none")]
    pub renewal: Renewal,
}

/// A mark on a report that a remedy is to renew. A newer report comes without a mark, and so the answer to a remedy is
/// told from what was known before by identity, not by comparing clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renewal {
    /// It stands as it is.
    #[default]
    None,
    /// A remedy is claimed, and this report is the one it is to renew. Changes nothing yet.
    Claimed,
    /// The target has accepted: the old report does not count any more.
    Promised,
}

impl Renewal {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Why a check failed, as classified when it arrived (rule 14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The transient rule that matched; none: persistent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transient_rule: Option<String>,
    /// The first line of what it said.
    pub text: String,
}

impl Check {
    /// GitHub's times have one-second resolution, so the order of two reports of one check needs more than the time: per
    /// check run (id, started_at, phase), per status (created_at, phase). The rest makes the order total, so that it does
    /// not depend on which report arrives first; of two contradicting ones the red one counts.
    fn order(&self) -> (u64, Option<Timestamp>, u8, Timestamp, Verdict, &str) {
        let text = self.failure.as_ref().map_or("", |failure| failure.text.as_str());
        match self.kind {
            CheckKind::Run => {
                (self.id.unwrap_or(0), self.started_at, self.verdict.phase(), self.at, self.verdict, text)
            }
            CheckKind::Status => (0, Some(self.at), self.verdict.phase(), self.at, self.verdict, text),
        }
    }

    fn key(&self) -> (&str, CheckKind) {
        (&self.name, self.kind)
    }
}

/// What Policy Bot says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// Evaluating, met, or which policy is not.
    pub verdict: PolicyVerdict,
    /// When it said so.
    pub at: Timestamp,
    /// Its description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Whether a remedy is about to renew this report.
    #[serde(default, skip_serializing_if = "Renewal::is_none")]
    pub renewal: Renewal,
}

/// Policy Bot's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyVerdict {
    /// Not decided yet.
    Evaluating,
    /// All policies met.
    Passed,
    /// One is not; which kind.
    Failed(Substatus),
}

impl PolicyReport {
    fn order(&self) -> (Timestamp, bool, PolicyVerdict, &str) {
        (self.at, self.verdict != PolicyVerdict::Evaluating, self.verdict, &self.text)
    }
}

/// An approver bot's newest word on this head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Which bot.
    pub by: String,
    /// Approved, or taken back.
    pub granted: bool,
    /// When.
    pub at: Timestamp,
}

impl Approval {
    /// Taken back in the second it was granted: taken back.
    fn order(&self) -> (Timestamp, bool) {
        (self.at, !self.granted)
    }
}

/// What Automerge Bot says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeReport {
    /// Whether the attempt has failed; otherwise it is under way.
    pub failed: bool,
    /// When.
    pub at: Timestamp,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Whether a remedy is about to bring about another attempt.
    #[serde(default, skip_serializing_if = "Renewal::is_none")]
    pub renewal: Renewal,
}

impl MergeReport {
    fn order(&self) -> (Timestamp, bool, &str) {
        (self.at, self.failed, &self.text)
    }
}

/// What noting a report did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It is the newest of its kind now.
    Changed,
    /// It was known, or older than what is known.
    Unchanged,
    /// There is no room: this head has more checks than the limit allows.
    Full,
}

impl Noted {
    fn changed(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Unchanged }
    }
}

/// The state signals imply, with its detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Implied {
    /// The furthest state all of whose requirements hold.
    pub state: State,
    /// Its detail, if it has one.
    pub substatus: Option<Substatus>,
}

impl Implied {
    fn plain(state: State) -> Self {
        Self { state, substatus: None }
    }
}

/// Where the checks of a head stand, all required ones together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// Nothing has been heard of any.
    NotStarted,
    /// Some required one has not finished, or not reported.
    Running,
    /// A required one is red.
    Failed(Substatus),
    /// All required ones are green.
    Passed,
}

impl Signals {
    /// Notes that check runs were asked for.
    pub fn note_requested(&mut self, at: Timestamp) -> Noted {
        let newer = self.requested_at.is_none_or(|known| at > known);
        if newer {
            self.requested_at = Some(at);
        }
        Noted::changed(newer)
    }

    /// Notes the report of a check, unless a newer one is known or there are `limit` others already.
    pub fn note_check(&mut self, check: &Check, limit: usize) -> Noted {
        match self.checks.binary_search_by(|known| known.key().cmp(&check.key())) {
            Ok(at) => {
                let newer = check.order() > self.checks[at].order();
                if newer {
                    self.checks[at] = check.clone();
                    self.answered(Asked::Checks);
                }
                Noted::changed(newer)
            }
            Err(_) if self.checks.len() >= limit => Noted::Full,
            Err(at) => {
                self.checks.insert(at, check.clone());
                self.answered(Asked::Checks);
                Noted::Changed
            }
        }
    }

    /// Notes a report of Policy Bot, unless a newer one is known.
    pub fn note_policy(&mut self, report: &PolicyReport) -> Noted {
        let newer = self.policy.as_ref().is_none_or(|known| report.order() > known.order());
        if newer {
            self.policy = Some(report.clone());
            self.answered(Asked::Policy);
        }
        Noted::changed(newer)
    }

    /// Notes an approval or its dismissal, unless newer word of the same bot is known.
    pub fn note_approval(&mut self, approval: &Approval) -> Noted {
        match self.approvals.binary_search_by(|known| known.by.cmp(&approval.by)) {
            Ok(at) => {
                let newer = approval.order() > self.approvals[at].order();
                if newer {
                    self.approvals[at] = approval.clone();
                }
                Noted::changed(newer)
            }
            Err(at) => {
                self.approvals.insert(at, approval.clone());
                Noted::Changed
            }
        }
    }

    /// Notes a merge attempt or its failure, unless a newer one is known.
    pub fn note_merge(&mut self, report: &MergeReport) -> Noted {
        let newer = self.merge.as_ref().is_none_or(|known| report.order() > known.order());
        if newer {
            self.merge = Some(report.clone());
            self.answered(Asked::Merge);
        }
        Noted::changed(newer)
    }

    fn answered(&mut self, what: Asked) {
        if self.asked == Some(what) {
            self.asked = None;
        }
    }

    /// Notes all of another's reports, newest wins. Reports older than `not_before` are left out: while a remedy runs,
    /// what was said before it began corrects nothing (rule 2).
    pub fn note_all(&mut self, other: &Self, limit: usize, not_before: Option<Timestamp>) -> Noted {
        let counts = |at: Timestamp| not_before.is_none_or(|earliest| at >= earliest);
        let mut noted = Vec::new();
        noted.extend(other.requested_at.filter(|at| counts(*at)).map(|at| self.note_requested(at)));
        noted.extend(other.checks.iter().filter(|c| counts(c.at)).map(|check| self.note_check(check, limit)));
        noted.extend(other.policy.iter().filter(|p| counts(p.at)).map(|report| self.note_policy(report)));
        noted.extend(other.approvals.iter().filter(|a| counts(a.at)).map(|approval| self.note_approval(approval)));
        noted.extend(other.merge.iter().filter(|m| counts(m.at)).map(|report| self.note_merge(report)));
        if noted.contains(&Noted::Full) { Noted::Full } else { Noted::changed(noted.contains(&Noted::Changed)) }
    }

    /// Where the required checks stand. An empty list means that GitHub could not be asked, or requires nothing by name:
    /// then every check seen on the head is required, and there must be one.
    #[must_use]
    pub fn checks(&self, required: &[String]) -> Checks {
        let mut persistent = false;
        let mut failed = false;
        let mut pending = false;
        let mut missing = false;
        let mut look = |check: &Check| match check.verdict {
            Verdict::Passed => {}
            Verdict::Queued | Verdict::Running => pending = true,
            // The old result of a check that is being run again is not a result.
            Verdict::Failed if check.renewal == Renewal::Promised => pending = true,
            Verdict::Failed => {
                failed = true;
                persistent |= check.failure.as_ref().is_none_or(|failure| failure.transient_rule.is_none());
            }
        };
        if required.is_empty() {
            self.checks.iter().for_each(&mut look);
        } else {
            for name in required {
                let first = self.checks.partition_point(|check| check.name.as_str() < name.as_str());
                let reports = self.checks[first..].iter().take_while(|check| check.name == *name);
                // A required check that has not reported is absent from everything GitHub says: it is awaited.
                missing |= reports.inspect(|check| look(check)).count() == 0;
            }
        }
        let pending = pending || missing || self.checks.is_empty();
        let started = !self.checks.is_empty() || self.requested_at.is_some() || self.asked == Some(Asked::Checks);
        match (started, failed, pending) {
            (false, _, _) => Checks::NotStarted,
            (true, true, _) if persistent => Checks::Failed(Substatus::Persistent),
            (true, true, _) => Checks::Failed(Substatus::Transient),
            (true, false, true) => Checks::Running,
            (true, false, false) => Checks::Passed,
        }
    }

    /// THE derivation: the furthest state whose requirements (seed §3) all hold. An early policy pass or approval waits
    /// for green checks and counts when its turn comes.
    #[must_use]
    pub fn implied(&self, required: &[String]) -> Implied {
        if self.asked == Some(Asked::Branch) {
            return Implied::plain(State::ChecksRunning);
        }
        match self.checks(required) {
            Checks::NotStarted => Implied::plain(State::Created),
            Checks::Running => Implied::plain(State::ChecksRunning),
            Checks::Failed(substatus) => Implied { state: State::ChecksFailed, substatus: Some(substatus) },
            Checks::Passed if self.asked == Some(Asked::Policy) => Implied::plain(State::PolicyEvaluating),
            Checks::Passed => match self.policy.as_ref().map(|report| report.verdict) {
                None => Implied::plain(State::ChecksPassed),
                Some(PolicyVerdict::Evaluating) => Implied::plain(State::PolicyEvaluating),
                Some(PolicyVerdict::Failed(substatus)) => {
                    Implied { state: State::PolicyFailed, substatus: Some(substatus) }
                }
                Some(PolicyVerdict::Passed) if !self.is_approved() => Implied::plain(State::PolicyPassed),
                Some(PolicyVerdict::Passed) if self.is_merging() => Implied::plain(State::Merging),
                Some(PolicyVerdict::Passed) => Implied::plain(State::Approved),
            },
        }
    }

    /// Whether an approver bot's approval stands.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        self.approvals.iter().any(|approval| approval.granted)
    }

    fn is_merging(&self) -> bool {
        self.asked == Some(Asked::Merge) || self.merge.as_ref().is_some_and(|report| !report.failed)
    }

    /// Whether any check of this head is queued or at work, by its own word.
    #[must_use]
    pub fn any_check_at_work(&self) -> bool {
        self.checks.iter().any(|check| matches!(check.verdict, Verdict::Queued | Verdict::Running))
    }

    /// When the last of the green checks turned green.
    #[must_use]
    pub fn checks_passed_at(&self) -> Option<Timestamp> {
        self.checks.iter().filter(|check| check.verdict == Verdict::Passed).map(|check| check.at).max()
    }

    /// Since when the head has been in the state its signals imply: the time of the last report that state needs.
    #[must_use]
    pub fn since(&self, state: State) -> Option<Timestamp> {
        let red = || self.failed_checks().map(|check| check.at).max();
        let at_work = || {
            let started = |check: &Check| check.started_at.unwrap_or(check.at);
            self.checks.iter().filter(|check| check.verdict.phase() < 2).map(started).min().or(self.requested_at)
        };
        let judged = || self.policy.as_ref().map(|report| report.at).max(self.checks_passed_at());
        match state {
            State::ChecksRunning => at_work(),
            State::ChecksFailed => red(),
            State::ChecksPassed => self.checks_passed_at(),
            State::PolicyEvaluating | State::PolicyFailed | State::PolicyPassed => judged(),
            State::Approved => judged().max(self.approved_at()),
            State::Merging => judged().max(self.approved_at()).max(self.merge.as_ref().map(|report| report.at)),
            State::Created | State::Merged | State::Closed | State::NeedsIntervention => None,
        }
    }

    /// When the standing approval was given.
    #[must_use]
    pub fn approved_at(&self) -> Option<Timestamp> {
        self.approvals.iter().filter(|approval| approval.granted).map(|approval| approval.at).max()
    }

    /// The red checks.
    pub fn failed_checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.verdict == Verdict::Failed)
    }

    /// Marks what a claimed remedy is to renew.
    pub fn claim(&mut self, strategy: Strategy) {
        self.mark(strategy, Renewal::Claimed);
    }

    /// The target has accepted: what is marked is being renewed from now on. Reports that came since the claim have no
    /// mark and stand.
    pub fn promise(&mut self, strategy: Strategy) {
        match strategy {
            Strategy::Rebuild => {
                for check in self.checks.iter_mut().filter(|check| check.renewal == Renewal::Claimed) {
                    check.renewal = Renewal::Promised;
                }
                self.asked = Some(Asked::Checks);
            }
            Strategy::BranchUpdate => self.asked = Some(Asked::Branch),
            Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => {
                if self.policy.as_ref().is_none_or(|report| report.renewal != Renewal::None) {
                    self.asked = Some(Asked::Policy);
                }
            }
            Strategy::RetriggerAutomergeBot => {
                if self.merge.as_ref().is_none_or(|report| report.renewal != Renewal::None) {
                    self.asked = Some(Asked::Merge);
                }
            }
            // Waking the approver changes no state (seed §10), closing is a fact of its own.
            Strategy::RetriggerApproverBot | Strategy::CloseAndReopen => {}
        }
    }

    /// Takes all marks away: the remedy is over, and what was known is again what is known.
    pub fn unmark(&mut self) {
        self.asked = None;
        for strategy in [Strategy::Rebuild, Strategy::RetriggerPolicyBot, Strategy::RetriggerAutomergeBot] {
            self.mark(strategy, Renewal::None);
        }
    }

    fn mark(&mut self, strategy: Strategy, mark: Renewal) {
        match strategy {
            Strategy::Rebuild => {
                for check in self.checks.iter_mut().filter(|check| check.verdict != Verdict::Passed) {
                    check.renewal = mark;
                }
            }
            Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => {
                if let Some(report) = &mut self.policy {
                    report.renewal = mark;
                }
            }
            Strategy::RetriggerAutomergeBot => {
                if let Some(report) = &mut self.merge {
                    report.renewal = mark;
                }
            }
            Strategy::BranchUpdate | Strategy::RetriggerApproverBot | Strategy::CloseAndReopen => {}
        }
    }

    /// Whether the remedy has been answered by a newer report than those it was to renew.
    #[must_use]
    pub fn is_answered(&self, strategy: Strategy, required: &[String]) -> bool {
        match strategy {
            Strategy::Rebuild => {
                let renewed = self.checks.iter().all(|check| check.renewal == Renewal::None);
                renewed && matches!(self.checks(required), Checks::Passed | Checks::Failed(_))
            }
            Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => self
                .policy
                .as_ref()
                .is_some_and(|report| report.renewal == Renewal::None && report.verdict != PolicyVerdict::Evaluating),
            Strategy::RetriggerApproverBot => self.is_approved(),
            Strategy::RetriggerAutomergeBot => {
                self.merge.as_ref().is_some_and(|report| report.renewal == Renewal::None)
            }
            // Proven by a new head, and by a new pull request: not by anything on this head.
            Strategy::BranchUpdate | Strategy::CloseAndReopen => false,
        }
    }
}
