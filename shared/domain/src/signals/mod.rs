//! The signals of one head commit, and the function that derives the state they imply (R-SIGNAL-1 to R-SIGNAL-4).
//! Webhooks and GitHub snapshots fill the same signals, so there is one derivation. It does not depend on the current
//! state; the path from the current state to the implied one is in `transition`.

mod report;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::truncate;
use crate::state::{State, Strategy, Substatus};

use report::MAX_TEXT;
pub use report::{
    ApprovalReport, CheckFailure, CheckKind, CheckReport, CheckVerdict, MergeReport, PolicyReport, PolicyVerdict,
    RenewalMark,
};

/// The signals of one head. For each source the newest report by its own time wins, whatever order reports arrive in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Signals {
    /// When GitHub last requested check runs (`check_suite.requested`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<Timestamp>,
    /// Checks and statuses, sorted by name and kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckReport>,
    /// Policy Bot's newest report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyReport>,
    /// The newest report of each approver bot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalReport>,
    /// Automerge Bot's newest report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeReport>,
    /// What the target of a remedy accepted to renew and has not reported yet. It does not replace the old report, it
    /// only says that a new one is expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_renewal: Option<PendingRenewal>,
    /// Whether the log already says that somebody else reported under Policy Bot's name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub foreign_policy_logged: bool,
}

/// The report that the target of a remedy accepted to renew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingRenewal {
    Checks,
    /// A merge of the base into the head, which creates a new head.
    Branch,
    Policy,
    Merge,
}

/// The source of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportSource {
    /// A webhook of GitHub or a bot. Several may arrive in any order.
    Webhook,
    /// A GitHub snapshot, which overrules webhooks of the same second.
    Snapshot,
}

/// Whether a check is required. An empty list means that all are.
fn is_required(check: &CheckReport, required: &[String]) -> bool {
    required.is_empty() || required.contains(&check.name)
}

/// The result of storing a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateResult {
    /// Stored as the newest of its kind.
    Changed,
    /// Known already, or older than the stored one.
    Unchanged,
    /// Not stored: this head has more checks than the limit allows.
    LimitReached,
}

impl UpdateResult {
    fn changed(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Unchanged }
    }
}

/// The state that the signals imply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImpliedState {
    /// The furthest state whose requirements all hold.
    pub state: State,
    pub substatus: Option<Substatus>,
}

impl ImpliedState {
    fn plain(state: State) -> Self {
        Self { state, substatus: None }
    }
}

/// The combined status of all required checks of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksStatus {
    NotStarted,
    /// A required check has not finished or not reported.
    Running,
    /// A required check failed.
    Failed(Substatus),
    /// All required checks are green.
    Passed,
}

impl Signals {
    /// Stores that check runs were requested.
    pub fn note_requested(&mut self, at: Timestamp) -> UpdateResult {
        let newer = self.requested_at.is_none_or(|known| at > known);
        if newer {
            self.requested_at = Some(at);
        }
        UpdateResult::changed(newer)
    }

    /// Stores a check report, unless a newer one is known or there are already `limit` other checks.
    pub fn note_check(&mut self, check: &CheckReport, limit: usize) -> UpdateResult {
        self.note_check_by(check, limit, ReportSource::Webhook)
    }

    fn note_check_by(&mut self, check: &CheckReport, limit: usize, source: ReportSource) -> UpdateResult {
        // GitHub shows the newest report of a context: Policy Bot's own replaces an older one of somebody else.
        let replaced = self.policy.as_ref().is_some_and(|policy| check.at <= policy.at);
        if check.posted_by.is_some() && replaced {
            return UpdateResult::Unchanged;
        }
        match self.checks.binary_search_by(|known| known.key().cmp(&check.key())) {
            Ok(at) => {
                let known = &self.checks[at];
                let overrules = source == ReportSource::Snapshot
                    && check.order().0 == known.order().0
                    && check.verdict != known.verdict;
                let newer = overrules || check.order() > known.order();
                if newer {
                    self.checks[at] = check.clone();
                    self.checks[at].shorten();
                    self.renewed(PendingRenewal::Checks);
                }
                UpdateResult::changed(newer)
            }
            Err(_) if self.checks.len() >= limit => UpdateResult::LimitReached,
            Err(at) => {
                self.checks.insert(at, check.clone());
                self.checks[at].shorten();
                self.renewed(PendingRenewal::Checks);
                UpdateResult::Changed
            }
        }
    }

    /// Stores a report of Policy Bot, unless a newer one is known.
    pub fn note_policy(&mut self, report: &PolicyReport) -> UpdateResult {
        self.note_policy_by(report, ReportSource::Webhook)
    }

    fn note_policy_by(&mut self, report: &PolicyReport, source: ReportSource) -> UpdateResult {
        let newer = self.policy.as_ref().is_none_or(|known| {
            let overrules = source == ReportSource::Snapshot
                && report.order().0 == known.order().0
                && report.verdict != known.verdict;
            overrules || report.order() > known.order()
        });
        if newer {
            self.policy = Some(PolicyReport { text: truncate(&report.text, MAX_TEXT), ..report.clone() });
            self.checks.retain(|check| check.posted_by.is_none() || check.at > report.at);
            self.renewed(PendingRenewal::Policy);
        }
        UpdateResult::changed(newer)
    }

    /// A report under Policy Bot's name by somebody else, if there is one and the log does not say so yet.
    pub fn take_unlogged_foreign_policy(&mut self) -> Option<&CheckReport> {
        if self.foreign_policy_logged {
            return None;
        }
        let found = self.checks.iter().find(|check| check.posted_by.is_some())?;
        self.foreign_policy_logged = true;
        Some(found)
    }

    /// Stores an approval or its dismissal, unless a newer report of the same bot is known.
    pub fn note_approval(&mut self, approval: &ApprovalReport) -> UpdateResult {
        match self.approvals.binary_search_by(|known| known.by.cmp(&approval.by)) {
            Ok(at) => {
                let newer = approval.order() > self.approvals[at].order();
                if newer {
                    self.approvals[at] = approval.clone();
                }
                UpdateResult::changed(newer)
            }
            Err(at) => {
                self.approvals.insert(at, approval.clone());
                UpdateResult::Changed
            }
        }
    }

    /// Stores a merge attempt or its failure, unless a newer one is known.
    pub fn note_merge(&mut self, report: &MergeReport) -> UpdateResult {
        let newer = self.merge.as_ref().is_none_or(|known| report.order() > known.order());
        if newer {
            self.merge = Some(MergeReport { text: truncate(&report.text, MAX_TEXT), ..report.clone() });
            self.renewed(PendingRenewal::Merge);
        }
        UpdateResult::changed(newer)
    }

    /// The expected report has arrived.
    fn renewed(&mut self, what: PendingRenewal) {
        if self.pending_renewal == Some(what) {
            self.pending_renewal = None;
        }
    }

    /// Stores all reports of a snapshot. The newest report wins; within one second the snapshot overrules webhooks.
    /// Reports older than `not_before` are ignored: while a remedy runs, a report from before its start corrects
    /// nothing (R-SWEEP-6). Required checks are stored regardless of the limit.
    pub fn note_all(
        &mut self,
        other: &Self,
        limit: usize,
        required: &[String],
        not_before: Option<Timestamp>,
    ) -> UpdateResult {
        let limit_for = |check: &CheckReport| if required.contains(&check.name) { usize::MAX } else { limit };
        let is_recent = |at: Timestamp| not_before.is_none_or(|earliest| at >= earliest);
        let mut noted = Vec::new();
        noted.extend(other.requested_at.filter(|at| is_recent(*at)).map(|at| self.note_requested(at)));
        noted.extend(
            other
                .checks
                .iter()
                .filter(|c| is_recent(c.at))
                .map(|check| self.note_check_by(check, limit_for(check), ReportSource::Snapshot)),
        );
        noted.extend(
            other
                .policy
                .iter()
                .filter(|p| is_recent(p.at))
                .map(|report| self.note_policy_by(report, ReportSource::Snapshot)),
        );
        noted.extend(other.approvals.iter().filter(|a| is_recent(a.at)).map(|approval| self.note_approval(approval)));
        noted.extend(other.merge.iter().filter(|m| is_recent(m.at)).map(|report| self.note_merge(report)));
        if noted.contains(&UpdateResult::LimitReached) {
            UpdateResult::LimitReached
        } else {
            UpdateResult::changed(noted.contains(&UpdateResult::Changed))
        }
    }

    /// The combined status of the required checks. If the list is empty, GitHub could not be read or names no required
    /// check: then every check seen on the head is required, and there must be at least one.
    pub fn checks(&self, required: &[String]) -> ChecksStatus {
        let mut persistent = false;
        let mut failed = false;
        let mut pending = false;
        let mut missing = false;
        let mut add = |check: &CheckReport| match check.verdict {
            CheckVerdict::Passed => {}
            CheckVerdict::Queued | CheckVerdict::Running => pending = true,
            // The old result of a check that is being run again does not count.
            CheckVerdict::Failed if check.renewal == RenewalMark::Promised => pending = true,
            CheckVerdict::Failed => {
                failed = true;
                persistent |= check.failure.as_ref().is_none_or(|failure| failure.transient_rule.is_none());
            }
        };
        if required.is_empty() {
            self.checks.iter().for_each(&mut add);
        } else {
            for name in required {
                let first = self.checks.partition_point(|check| check.name.as_str() < name.as_str());
                let reports = self.checks[first..].iter().take_while(|check| check.name == *name);
                // GitHub does not list a required check that has not reported yet.
                missing |= reports.inspect(|check| add(check)).count() == 0;
            }
        }
        let pending = pending || missing || self.checks.is_empty();
        let started = !self.checks.is_empty()
            || self.requested_at.is_some()
            || self.pending_renewal == Some(PendingRenewal::Checks);
        match (started, failed, pending) {
            (false, _, _) => ChecksStatus::NotStarted,
            (true, true, _) if persistent => ChecksStatus::Failed(Substatus::Persistent),
            (true, true, _) => ChecksStatus::Failed(Substatus::Transient),
            (true, false, true) => ChecksStatus::Running,
            (true, false, false) => ChecksStatus::Passed,
        }
    }

    /// Derives the state: the furthest one whose requirements all hold (R-SIGNAL-1). A policy pass or approval that
    /// arrives before the checks are green is kept, and counts as soon as they are.
    pub fn implied(&self, required: &[String]) -> ImpliedState {
        if self.pending_renewal == Some(PendingRenewal::Branch) {
            return ImpliedState::plain(State::ChecksRunning);
        }
        match self.checks(required) {
            ChecksStatus::NotStarted => ImpliedState::plain(State::Created),
            ChecksStatus::Running => ImpliedState::plain(State::ChecksRunning),
            ChecksStatus::Failed(substatus) => ImpliedState { state: State::ChecksFailed, substatus: Some(substatus) },
            ChecksStatus::Passed if self.pending_renewal == Some(PendingRenewal::Policy) => {
                ImpliedState::plain(State::PolicyEvaluating)
            }
            ChecksStatus::Passed => match self.policy.as_ref().map(|report| report.verdict) {
                None => ImpliedState::plain(State::ChecksPassed),
                Some(PolicyVerdict::Evaluating) => ImpliedState::plain(State::PolicyEvaluating),
                Some(PolicyVerdict::Failed(substatus)) => {
                    ImpliedState { state: State::PolicyFailed, substatus: Some(substatus) }
                }
                Some(PolicyVerdict::Passed) if !self.is_approved() => ImpliedState::plain(State::PolicyPassed),
                Some(PolicyVerdict::Passed) if self.is_merging() => ImpliedState::plain(State::Merging),
                Some(PolicyVerdict::Passed) => ImpliedState::plain(State::Approved),
            },
        }
    }

    pub fn is_approved(&self) -> bool {
        self.approvals.iter().any(|approval| approval.granted)
    }

    fn is_merging(&self) -> bool {
        self.pending_renewal == Some(PendingRenewal::Merge) || self.merge.as_ref().is_some_and(|report| !report.failed)
    }

    /// Since when a required check has been queued or running, by its own report; the earliest, if there are several.
    pub fn running_since(&self, required: &[String]) -> Option<Timestamp> {
        let running = |check: &&CheckReport| is_required(check, required) && check.verdict.phase() < 2;
        self.checks.iter().filter(running).map(|check| check.started_at.unwrap_or(check.at)).min()
    }

    /// A required check that is queued or running, by its own report.
    pub fn running_check(&self, required: &[String]) -> Option<&CheckReport> {
        self.checks.iter().find(|check| is_required(check, required) && check.verdict.phase() < 2)
    }

    /// Whether any check of this head is queued or running, by its own report.
    pub fn has_running_check(&self) -> bool {
        self.checks.iter().any(|check| matches!(check.verdict, CheckVerdict::Queued | CheckVerdict::Running))
    }

    /// When the last of the green checks passed.
    pub fn checks_passed_at(&self) -> Option<Timestamp> {
        self.checks.iter().filter(|check| check.verdict == CheckVerdict::Passed).map(|check| check.at).max()
    }

    /// Since when the signals have implied this state: the time of the last report that it requires.
    pub fn since(&self, state: State, required: &[String]) -> Option<Timestamp> {
        let failed_at = || self.failed_checks(required).map(|check| check.at).max();
        let policy_at = || self.policy.as_ref().map(|report| report.at).max(self.checks_passed_at());
        match state {
            State::ChecksRunning => self.running_since(required).or(self.requested_at),
            State::ChecksFailed => failed_at(),
            State::ChecksPassed => self.checks_passed_at(),
            State::PolicyEvaluating | State::PolicyFailed | State::PolicyPassed => policy_at(),
            State::Approved => policy_at().max(self.approved_at()),
            State::Merging => policy_at().max(self.approved_at()).max(self.merge.as_ref().map(|report| report.at)),
            State::Created | State::Merged | State::Closed | State::NeedsIntervention => None,
        }
    }

    pub fn approved_at(&self) -> Option<Timestamp> {
        self.approvals.iter().filter(|approval| approval.granted).map(|approval| approval.at).max()
    }

    /// The failed checks that are required.
    pub fn failed_checks<'a>(&'a self, required: &'a [String]) -> impl Iterator<Item = &'a CheckReport> {
        self.checks.iter().filter(|check| is_required(check, required) && check.verdict == CheckVerdict::Failed)
    }

    /// Marks the reports that a claimed remedy is expected to renew. Of the checks only required ones are marked: a
    /// failed check that is not required might never report again.
    pub fn mark_claimed(&mut self, strategy: Strategy, required: &[String]) {
        self.mark(strategy, RenewalMark::Claimed, required);
    }

    /// The target accepted: the marked reports are expected to be renewed. Reports that arrived since the claim have no
    /// mark and still count.
    pub fn mark_accepted(&mut self, strategy: Strategy) {
        match strategy {
            Strategy::Rebuild => {
                for check in self.checks.iter_mut().filter(|check| check.renewal == RenewalMark::Claimed) {
                    check.renewal = RenewalMark::Promised;
                }
                self.pending_renewal = Some(PendingRenewal::Checks);
            }
            Strategy::BranchUpdate => self.pending_renewal = Some(PendingRenewal::Branch),
            Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => {
                if self.policy.as_ref().is_none_or(|report| report.renewal != RenewalMark::None) {
                    self.pending_renewal = Some(PendingRenewal::Policy);
                }
            }
            Strategy::RetriggerAutomergeBot => {
                if self.merge.as_ref().is_none_or(|report| report.renewal != RenewalMark::None) {
                    self.pending_renewal = Some(PendingRenewal::Merge);
                }
            }
            // Retriggering Approver Bot changes no state (R-REMEDY-2); closing is a fact of its own.
            Strategy::RetriggerApproverBot | Strategy::CloseAndReopen => {}
        }
    }

    /// Clears all marks when the remedy ends, so that the old reports count again.
    pub fn clear_marks(&mut self) {
        self.pending_renewal = None;
        for strategy in [Strategy::Rebuild, Strategy::RetriggerPolicyBot, Strategy::RetriggerAutomergeBot] {
            self.mark(strategy, RenewalMark::None, &[]);
        }
    }

    fn mark(&mut self, strategy: Strategy, mark: RenewalMark, required: &[String]) {
        match strategy {
            Strategy::Rebuild => {
                let renewable =
                    |check: &&mut CheckReport| is_required(check, required) && check.verdict != CheckVerdict::Passed;
                for check in self.checks.iter_mut().filter(renewable) {
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

    /// Whether a newer report has replaced those that the remedy was expected to renew.
    pub fn is_answered(&self, strategy: Strategy, required: &[String]) -> bool {
        match strategy {
            Strategy::Rebuild => {
                let renewed = self.checks.iter().all(|check| check.renewal == RenewalMark::None);
                renewed && matches!(self.checks(required), ChecksStatus::Passed | ChecksStatus::Failed(_))
            }
            Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => self.policy.as_ref().is_some_and(|report| {
                report.renewal == RenewalMark::None && report.verdict != PolicyVerdict::Evaluating
            }),
            Strategy::RetriggerApproverBot => self.is_approved(),
            Strategy::RetriggerAutomergeBot => {
                self.merge.as_ref().is_some_and(|report| report.renewal == RenewalMark::None)
            }
            // Proven by a new head and by a new pull request, not by a report on this head.
            Strategy::BranchUpdate | Strategy::CloseAndReopen => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::{
        approved, failed_because, merging, minutes, policy_says, run_of as run, start, status_of as status,
    };

    const LIMIT: usize = 250;
    const SOD: PolicyVerdict = PolicyVerdict::Failed(Substatus::SodFailure);

    fn at(mins: i64) -> Timestamp {
        start() + minutes(mins)
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    fn with_checks(checks: &[CheckReport]) -> Signals {
        let mut signals = Signals::default();
        for check in checks {
            assert_eq!(signals.note_check(check, LIMIT), UpdateResult::Changed);
        }
        signals
    }

    fn red(name: &str, rule: Option<&str>) -> CheckReport {
        CheckReport { failure: failed_because(rule, "text"), ..run(name, CheckVerdict::Failed, at(2)) }
    }

    /// One green check, at minute 2.
    fn green() -> Signals {
        with_checks(&[run("build", CheckVerdict::Passed, at(2))])
    }

    /// Green, with a policy result at minute 3.
    fn with_policy(verdict: PolicyVerdict) -> Signals {
        Signals { policy: Some(policy_says(verdict, at(3))), ..green() }
    }

    /// Green, policy passed, approved at minute 4.
    fn ready() -> Signals {
        Signals { approvals: vec![approved(at(4))], ..with_policy(PolicyVerdict::Passed) }
    }

    fn state_of(signals: &Signals) -> State {
        signals.implied(&[]).state
    }

    /// The second report is the newer one, in whatever order the two arrive, and each says something new only once.
    fn assert_newer(older: &CheckReport, newer: &CheckReport) {
        let mut in_order = with_checks(std::slice::from_ref(older));
        assert_eq!(in_order.note_check(older, LIMIT), UpdateResult::Unchanged, "the same again: {older:?}");
        assert_eq!(in_order.note_check(newer, LIMIT), UpdateResult::Changed, "{newer:?} after {older:?}");
        assert_eq!(in_order.checks, std::slice::from_ref(newer));
        let mut swapped = with_checks(std::slice::from_ref(newer));
        assert_eq!(swapped.note_check(older, LIMIT), UpdateResult::Unchanged, "{older:?} after {newer:?}");
        assert_eq!(swapped.checks, std::slice::from_ref(newer));
    }

    #[test]
    fn check_run_with_higher_id_is_newer() {
        let first = run("build", CheckVerdict::Failed, at(9));
        let again = CheckReport { id: Some(8), started_at: None, ..run("build", CheckVerdict::Queued, at(1)) };
        assert_newer(&first, &again);
        assert_newer(&CheckReport { id: None, ..first.clone() }, &CheckReport { id: Some(1), ..again });
    }

    #[test]
    fn check_result_is_newer_than_its_start_and_older_than_a_later_start() {
        let running = CheckReport { started_at: Some(at(3)), ..run("build", CheckVerdict::Running, at(4)) };
        for started_at in [None, Some(at(1)), Some(at(3)), Some(at(4))] {
            let done = CheckReport { started_at, ..run("build", CheckVerdict::Failed, at(9)) };
            assert_newer(&running, &done);
            let restarted = CheckReport { started_at: Some(at(10)), ..run("build", CheckVerdict::Running, at(10)) };
            assert_newer(&done, &restarted);
        }
        let later = CheckReport { started_at: Some(at(5)), ..run("build", CheckVerdict::Queued, at(4)) };
        assert_newer(&running, &later);
        // Without a start time, the time of the report counts.
        let without_start = CheckReport { started_at: None, ..run("build", CheckVerdict::Queued, at(2)) };
        assert_newer(&without_start, &running);
        assert_newer(&running, &CheckReport { at: at(4), ..without_start });
    }

    #[test]
    fn queued_is_older_than_running_than_completed_with_equal_starts() {
        let report = |verdict, mins| run("build", verdict, at(mins));
        assert_newer(&report(CheckVerdict::Queued, 1), &report(CheckVerdict::Running, 1));
        assert_newer(&report(CheckVerdict::Queued, 5), &report(CheckVerdict::Running, 1));
        for completed in [CheckVerdict::Passed, CheckVerdict::Failed] {
            assert_newer(&report(CheckVerdict::Running, 1), &report(completed, 1));
            assert_newer(&report(CheckVerdict::Running, 5), &report(completed, 1));
            assert_newer(&report(CheckVerdict::Queued, 5), &report(completed, 1));
        }
    }

    #[test]
    fn contradicting_reports_are_ordered_by_time_then_failed_wins() {
        let report = |verdict, mins| run("build", verdict, at(mins));
        assert_newer(&report(CheckVerdict::Failed, 1), &report(CheckVerdict::Passed, 2));
        assert_newer(&report(CheckVerdict::Passed, 1), &report(CheckVerdict::Failed, 1));
        // Even two failures have an order, so that the order of arrival does not matter.
        let because =
            |text: &str| CheckReport { failure: failed_because(None, text), ..report(CheckVerdict::Failed, 1) };
        assert_newer(&because("a"), &because("b"));
        assert_newer(&report(CheckVerdict::Failed, 1), &because("a"));
    }

    #[test]
    fn statuses_are_ordered_by_time_then_pending_before_final() {
        let report = |verdict, mins| status("ci/jenkins", verdict, at(mins));
        assert_newer(&report(CheckVerdict::Passed, 1), &report(CheckVerdict::Running, 2));
        assert_newer(&report(CheckVerdict::Running, 1), &report(CheckVerdict::Passed, 1));
        assert_newer(&report(CheckVerdict::Running, 1), &report(CheckVerdict::Failed, 1));
        assert_newer(&report(CheckVerdict::Passed, 1), &report(CheckVerdict::Failed, 1));
        assert_newer(&report(CheckVerdict::Failed, 1), &report(CheckVerdict::Passed, 2));
        // The id and the start time matter for check runs only.
        let odd = CheckReport { id: Some(9), started_at: Some(at(9)), ..report(CheckVerdict::Failed, 1) };
        assert_newer(&odd, &report(CheckVerdict::Passed, 2));
    }

    #[test]
    fn checks_are_stored_by_name_and_kind() {
        let signals = with_checks(&[
            status("b", CheckVerdict::Passed, at(1)),
            run("c", CheckVerdict::Passed, at(1)),
            run("b", CheckVerdict::Failed, at(1)),
            run("a", CheckVerdict::Passed, at(1)),
        ]);
        let keys: Vec<_> = signals.checks.iter().map(CheckReport::key).collect();
        let expected = [("a", CheckKind::Run), ("b", CheckKind::Run), ("b", CheckKind::Status), ("c", CheckKind::Run)];
        assert_eq!(keys, expected);
    }

    #[test]
    fn check_limit_does_not_block_updates_of_stored_checks() {
        let mut signals = Signals::default();
        assert_eq!(signals.note_check(&run("a", CheckVerdict::Running, at(1)), 0), UpdateResult::LimitReached);
        assert_eq!(signals, Signals::default());
        assert_eq!(signals.note_check(&run("a", CheckVerdict::Running, at(1)), 2), UpdateResult::Changed);
        assert_eq!(signals.note_check(&run("b", CheckVerdict::Running, at(1)), 2), UpdateResult::Changed);
        assert_eq!(signals.note_check(&run("c", CheckVerdict::Running, at(1)), 2), UpdateResult::LimitReached);
        assert_eq!(signals.note_check(&run("a", CheckVerdict::Passed, at(2)), 2), UpdateResult::Changed);
        assert_eq!(signals.note_check(&run("a", CheckVerdict::Passed, at(2)), 2), UpdateResult::Unchanged);
        assert_eq!(signals.checks.len(), 2);
    }

    #[test]
    fn newest_check_request_is_kept() {
        let mut signals = Signals::default();
        assert_eq!(signals.note_requested(at(2)), UpdateResult::Changed);
        assert_eq!(signals.note_requested(at(2)), UpdateResult::Unchanged);
        assert_eq!(signals.note_requested(at(1)), UpdateResult::Unchanged);
        assert_eq!(signals.note_requested(at(3)), UpdateResult::Changed);
        assert_eq!(signals.requested_at, Some(at(3)));
    }

    #[test]
    fn newest_policy_report_wins_and_results_win_within_one_second() {
        for (older, newer) in [
            (policy_says(PolicyVerdict::Passed, at(1)), policy_says(PolicyVerdict::Evaluating, at(2))),
            (policy_says(PolicyVerdict::Evaluating, at(1)), policy_says(PolicyVerdict::Passed, at(1))),
            (policy_says(PolicyVerdict::Evaluating, at(1)), policy_says(SOD, at(1))),
            (policy_says(PolicyVerdict::Passed, at(1)), policy_says(SOD, at(1))),
            (policy_says(SOD, at(1)), PolicyReport { text: "a".to_owned(), ..policy_says(SOD, at(1)) }),
        ] {
            let mut signals = Signals::default();
            assert_eq!(signals.note_policy(&older), UpdateResult::Changed);
            assert_eq!(signals.note_policy(&older), UpdateResult::Unchanged);
            assert_eq!(signals.note_policy(&newer), UpdateResult::Changed, "{newer:?}");
            assert_eq!(signals.note_policy(&older), UpdateResult::Unchanged, "{older:?}");
            assert_eq!(signals.policy, Some(newer));
        }
    }

    #[test]
    fn approvals_are_stored_per_bot() {
        let by = |by: &str, granted, mins| ApprovalReport { by: by.to_owned(), granted, at: at(mins) };
        let mut signals = Signals::default();
        assert!(!signals.is_approved());
        assert_eq!(signals.note_approval(&by("b", true, 1)), UpdateResult::Changed);
        assert_eq!(signals.note_approval(&by("a", true, 2)), UpdateResult::Changed);
        assert_eq!(signals.note_approval(&by("a", true, 2)), UpdateResult::Unchanged);
        assert_eq!((signals.is_approved(), signals.approved_at()), (true, Some(at(2))));
        // One bot dismisses its approval; that of the other is kept.
        assert_eq!(signals.note_approval(&by("a", false, 3)), UpdateResult::Changed);
        assert_eq!((signals.is_approved(), signals.approved_at()), (true, Some(at(1))));
        assert_eq!(signals.note_approval(&by("a", true, 2)), UpdateResult::Unchanged, "older than the dismissal");
        assert_eq!(signals.approvals, [by("a", false, 3), by("b", true, 1)]);
        // Within one second the dismissal wins.
        assert_eq!(signals.note_approval(&by("b", false, 1)), UpdateResult::Changed);
        assert_eq!(signals.note_approval(&by("b", true, 1)), UpdateResult::Unchanged);
        assert_eq!((signals.is_approved(), signals.approved_at()), (false, None));
    }

    #[test]
    fn newest_merge_report_wins_and_failures_win_within_one_second() {
        let failed = |text: &str, mins| MergeReport { failed: true, text: text.to_owned(), ..merging(at(mins)) };
        for (older, newer) in
            [(failed("", 1), merging(at(2))), (merging(at(1)), failed("", 1)), (failed("a", 1), failed("b", 1))]
        {
            let mut signals = Signals::default();
            assert_eq!(signals.note_merge(&older), UpdateResult::Changed);
            assert_eq!(signals.note_merge(&older), UpdateResult::Unchanged);
            assert_eq!(signals.note_merge(&newer), UpdateResult::Changed, "{newer:?}");
            assert_eq!(signals.note_merge(&older), UpdateResult::Unchanged, "{older:?}");
            assert_eq!(signals.merge, Some(newer));
        }
    }

    #[test]
    fn checks_without_reports_are_not_started_and_requested_ones_running() {
        for required in [names(&[]), names(&["build"])] {
            assert_eq!(Signals::default().checks(&required), ChecksStatus::NotStarted);
            let requested = Signals { requested_at: Some(at(1)), ..Signals::default() };
            assert_eq!(requested.checks(&required), ChecksStatus::Running);
            let asked = Signals { pending_renewal: Some(PendingRenewal::Checks), ..Signals::default() };
            assert_eq!(asked.checks(&required), ChecksStatus::Running);
            for asked in [PendingRenewal::Branch, PendingRenewal::Policy, PendingRenewal::Merge] {
                let signals = Signals { pending_renewal: Some(asked), ..Signals::default() };
                assert_eq!(signals.checks(&required), ChecksStatus::NotStarted, "{asked:?}");
            }
            // Reports of bots do not start the checks.
            let only_policy = Signals { checks: vec![], ..ready() };
            assert_eq!(only_policy.checks(&required), ChecksStatus::NotStarted);
        }
    }

    #[test]
    fn empty_required_list_requires_every_check_seen() {
        let green = run("a", CheckVerdict::Passed, at(1));
        for (other, expected) in [
            (run("b", CheckVerdict::Passed, at(1)), ChecksStatus::Passed),
            (run("b", CheckVerdict::Queued, at(1)), ChecksStatus::Running),
            (run("b", CheckVerdict::Running, at(1)), ChecksStatus::Running),
            (run("b", CheckVerdict::Failed, at(1)), ChecksStatus::Failed(Substatus::Persistent)),
            (red("b", Some("timeout")), ChecksStatus::Failed(Substatus::Transient)),
        ] {
            assert_eq!(with_checks(&[green.clone(), other]).checks(&[]), expected);
        }
    }

    #[test]
    fn only_required_checks_count_and_all_must_report() {
        let build = run("build", CheckVerdict::Passed, at(1));
        let others = [red("bui", None), red("build2", None), red("scan", None)];
        let signals = with_checks(&[&[build], others.as_slice()].concat());
        assert_eq!(signals.checks(&names(&["build"])), ChecksStatus::Passed);
        assert_eq!(signals.checks(&names(&["build", "docs"])), ChecksStatus::Running, "docs has not reported");
        assert_eq!(signals.checks(&names(&["docs"])), ChecksStatus::Running);
        assert_eq!(signals.checks(&names(&["aaa"])), ChecksStatus::Running);
        assert_eq!(signals.checks(&names(&["zzz"])), ChecksStatus::Running);
        // A failure counts even if another required check has not reported.
        let failed = ChecksStatus::Failed(Substatus::Persistent);
        assert_eq!(signals.checks(&names(&["docs", "scan"])), failed);
        assert_eq!(signals.checks(&names(&["scan", "build"])), failed);
    }

    #[test]
    fn status_and_check_run_of_one_name_must_both_pass() {
        let passed = run("build", CheckVerdict::Passed, at(1));
        for (verdict, expected) in [
            (CheckVerdict::Passed, ChecksStatus::Passed),
            (CheckVerdict::Running, ChecksStatus::Running),
            (CheckVerdict::Failed, ChecksStatus::Failed(Substatus::Persistent)),
        ] {
            let signals = with_checks(&[passed.clone(), status("build", verdict, at(1))]);
            assert_eq!(signals.checks(&names(&["build"])), expected);
            let swapped = with_checks(&[run("build", verdict, at(1)), status("build", CheckVerdict::Passed, at(1))]);
            assert_eq!(swapped.checks(&names(&["build"])), expected);
        }
    }

    #[test]
    fn one_persistent_failure_makes_the_head_persistent() {
        let transient = red("a", Some("timeout"));
        let persistent = ChecksStatus::Failed(Substatus::Persistent);
        assert_eq!(with_checks(&[red("a", Some("timeout"))]).checks(&[]), ChecksStatus::Failed(Substatus::Transient));
        assert_eq!(with_checks(&[transient.clone(), red("b", None)]).checks(&[]), persistent);
        assert_eq!(with_checks(&[red("0", None), transient.clone()]).checks(&[]), persistent);
        // A failure without a reason is persistent.
        let silent = run("b", CheckVerdict::Failed, at(1));
        assert_eq!(with_checks(&[transient.clone(), silent]).checks(&[]), persistent);
        // Only required checks count.
        let signals = with_checks(&[transient.clone(), red("b", None)]);
        assert_eq!(signals.checks(&names(&["a"])), ChecksStatus::Failed(Substatus::Transient));
        // A running check does not hide a failure.
        let running = run("c", CheckVerdict::Running, at(1));
        assert_eq!(with_checks(&[transient, running]).checks(&[]), ChecksStatus::Failed(Substatus::Transient));
    }

    #[test]
    fn signals_imply_the_furthest_state_whose_requirements_all_hold() {
        let failed = MergeReport { failed: true, ..merging(at(5)) };
        let detail = |state, substatus| ImpliedState { state, substatus: Some(substatus) };
        for (signals, expected) in [
            (Signals::default(), ImpliedState::plain(State::Created)),
            (Signals { requested_at: Some(at(1)), ..Signals::default() }, ImpliedState::plain(State::ChecksRunning)),
            (with_checks(&[run("a", CheckVerdict::Queued, at(1))]), ImpliedState::plain(State::ChecksRunning)),
            (with_checks(&[red("a", Some("disk"))]), detail(State::ChecksFailed, Substatus::Transient)),
            (with_checks(&[red("a", None)]), detail(State::ChecksFailed, Substatus::Persistent)),
            (green(), ImpliedState::plain(State::ChecksPassed)),
            (with_policy(PolicyVerdict::Evaluating), ImpliedState::plain(State::PolicyEvaluating)),
            (with_policy(SOD), detail(State::PolicyFailed, Substatus::SodFailure)),
            (
                with_policy(PolicyVerdict::Failed(Substatus::BuildFailure)),
                detail(State::PolicyFailed, Substatus::BuildFailure),
            ),
            (with_policy(PolicyVerdict::Passed), ImpliedState::plain(State::PolicyPassed)),
            (ready(), ImpliedState::plain(State::Approved)),
            (Signals { merge: Some(merging(at(5))), ..ready() }, ImpliedState::plain(State::Merging)),
            (Signals { merge: Some(failed), ..ready() }, ImpliedState::plain(State::Approved)),
        ] {
            assert_eq!(signals.implied(&[]), expected, "{signals:?}");
        }
    }

    #[test]
    fn early_reports_wait_for_earlier_requirements() {
        let all = Signals { merge: Some(merging(at(5))), ..ready() };
        let red = Signals { checks: vec![red("build", None)], ..all.clone() };
        assert_eq!(state_of(&red), State::ChecksFailed);
        assert_eq!(state_of(&Signals { checks: vec![], ..all.clone() }), State::Created);
        let running = Signals { checks: vec![run("build", CheckVerdict::Running, at(1))], ..all.clone() };
        assert_eq!(state_of(&running), State::ChecksRunning);
        assert_eq!(all.implied(&names(&["build", "scan"])).state, State::ChecksRunning);
        assert_eq!(state_of(&Signals { policy: None, ..all.clone() }), State::ChecksPassed);
        let evaluating = Signals { policy: Some(policy_says(PolicyVerdict::Evaluating, at(3))), ..all.clone() };
        assert_eq!(state_of(&evaluating), State::PolicyEvaluating);
        assert_eq!(state_of(&Signals { approvals: vec![], ..all }), State::PolicyPassed);
    }

    #[test]
    fn claim_does_not_change_the_implied_state() {
        let failed_merge = Signals { merge: Some(MergeReport { failed: true, ..merging(at(5)) }), ..ready() };
        for signals in
            [Signals::default(), with_checks(&[red("build", None)]), green(), with_policy(SOD), ready(), failed_merge]
        {
            for strategy in Strategy::ALL {
                let mut claimed = signals.clone();
                claimed.mark_claimed(strategy, &[]);
                assert_eq!(claimed.implied(&[]), signals.implied(&[]), "{strategy}");
                assert_eq!(claimed.pending_renewal, None);
            }
        }
    }

    #[test]
    fn accepted_rebuild_is_running_until_every_failed_check_reports_again() {
        let mut signals =
            with_checks(&[red("build", None), red("lint", Some("disk")), run("docs", CheckVerdict::Passed, at(1))]);
        signals.mark_claimed(Strategy::Rebuild, &[]);
        signals.mark_accepted(Strategy::Rebuild);
        let renewals: Vec<_> = signals.checks.iter().map(|check| check.renewal).collect();
        assert_eq!(
            renewals,
            [RenewalMark::Promised, RenewalMark::None, RenewalMark::Promised],
            "green checks are not marked"
        );
        assert_eq!((signals.pending_renewal, state_of(&signals)), (Some(PendingRenewal::Checks), State::ChecksRunning));
        let again = |name, verdict| CheckReport { id: Some(8), ..run(name, verdict, at(6)) };
        signals.note_check(&again("build", CheckVerdict::Passed), LIMIT);
        assert_eq!((signals.pending_renewal, state_of(&signals)), (None, State::ChecksRunning));
        signals.note_check(&again("lint", CheckVerdict::Passed), LIMIT);
        assert_eq!(state_of(&signals), State::ChecksPassed);
        signals.note_check(&CheckReport { id: Some(9), ..again("lint", CheckVerdict::Failed) }, LIMIT);
        assert_eq!(state_of(&signals), State::ChecksFailed);
    }

    #[test]
    fn accepted_rebuild_without_checks_is_running() {
        let mut signals = Signals::default();
        signals.mark_claimed(Strategy::Rebuild, &[]);
        assert_eq!(state_of(&signals), State::Created);
        signals.mark_accepted(Strategy::Rebuild);
        assert_eq!(state_of(&signals), State::ChecksRunning);
    }

    #[test]
    fn accepted_branch_update_is_running_despite_reports_on_this_head() {
        let mut signals = ready();
        signals.mark_claimed(Strategy::BranchUpdate, &[]);
        signals.mark_accepted(Strategy::BranchUpdate);
        assert_eq!((signals.pending_renewal, state_of(&signals)), (Some(PendingRenewal::Branch), State::ChecksRunning));
        signals.note_check(&CheckReport { id: Some(8), ..red("build", None) }, LIMIT);
        signals.note_policy(&policy_says(SOD, at(9)));
        signals.note_merge(&merging(at(9)));
        assert_eq!((signals.pending_renewal, state_of(&signals)), (Some(PendingRenewal::Branch), State::ChecksRunning));
    }

    #[test]
    fn accepted_policy_retrigger_is_evaluating_until_policy_bot_reports() {
        for strategy in [Strategy::RetriggerPolicyBot, Strategy::RetriggerSodCheck] {
            for mut signals in [green(), with_policy(SOD), with_policy(PolicyVerdict::Evaluating), ready()] {
                signals.mark_claimed(strategy, &[]);
                signals.mark_accepted(strategy);
                assert_eq!(
                    (signals.pending_renewal, state_of(&signals)),
                    (Some(PendingRenewal::Policy), State::PolicyEvaluating)
                );
                signals.note_check(&run("lint", CheckVerdict::Passed, at(6)), LIMIT);
                signals.note_merge(&merging(at(6)));
                assert_eq!(signals.pending_renewal, Some(PendingRenewal::Policy), "other reports do not answer it");
                assert_eq!(signals.note_policy(&policy_says(SOD, at(7))), UpdateResult::Changed);
                assert_eq!((signals.pending_renewal, state_of(&signals)), (None, State::PolicyFailed));
            }
        }
        let mut red = Signals { checks: vec![red("build", None)], ..with_policy(SOD) };
        red.mark_claimed(Strategy::RetriggerPolicyBot, &[]);
        red.mark_accepted(Strategy::RetriggerPolicyBot);
        assert_eq!(state_of(&red), State::ChecksFailed, "checks come first");
    }

    #[test]
    fn accepted_merge_retrigger_is_merging_until_automerge_bot_reports() {
        let failed = MergeReport { failed: true, ..merging(at(5)) };
        for mut signals in [ready(), Signals { merge: Some(failed.clone()), ..ready() }] {
            signals.mark_claimed(Strategy::RetriggerAutomergeBot, &[]);
            assert_eq!(state_of(&signals), State::Approved);
            signals.mark_accepted(Strategy::RetriggerAutomergeBot);
            assert_eq!((signals.pending_renewal, state_of(&signals)), (Some(PendingRenewal::Merge), State::Merging));
            signals.note_policy(&policy_says(PolicyVerdict::Passed, at(6)));
            assert_eq!(signals.pending_renewal, Some(PendingRenewal::Merge), "other reports do not answer it");
            assert_eq!(signals.note_merge(&MergeReport { at: at(7), ..failed.clone() }), UpdateResult::Changed);
            assert_eq!((signals.pending_renewal, state_of(&signals)), (None, State::Approved));
        }
    }

    #[test]
    fn accepted_approver_retrigger_and_close_change_no_state() {
        for strategy in [Strategy::RetriggerApproverBot, Strategy::CloseAndReopen] {
            let mut signals = with_policy(PolicyVerdict::Passed);
            signals.mark_claimed(strategy, &[]);
            signals.mark_accepted(strategy);
            assert_eq!(signals, with_policy(PolicyVerdict::Passed), "{strategy}");
        }
    }

    #[test]
    fn report_between_claim_and_acceptance_is_kept() {
        let mut checks = with_checks(&[red("build", None), red("lint", None)]);
        checks.mark_claimed(Strategy::Rebuild, &[]);
        checks.note_check(&CheckReport { id: Some(8), ..red("build", Some("disk")) }, LIMIT);
        checks.mark_accepted(Strategy::Rebuild);
        assert_eq!(checks.implied(&[]).substatus, Some(Substatus::Transient), "build's new failure, not lint's old");

        let mut policy = with_policy(SOD);
        policy.mark_claimed(Strategy::RetriggerSodCheck, &[]);
        policy.note_policy(&policy_says(PolicyVerdict::Passed, at(4)));
        policy.mark_accepted(Strategy::RetriggerSodCheck);
        assert_eq!((policy.pending_renewal, state_of(&policy)), (None, State::PolicyPassed));

        let failed = MergeReport { failed: true, ..merging(at(5)) };
        let mut merge = Signals { merge: Some(failed.clone()), ..ready() };
        merge.mark_claimed(Strategy::RetriggerAutomergeBot, &[]);
        merge.note_merge(&MergeReport { at: at(6), ..failed });
        merge.mark_accepted(Strategy::RetriggerAutomergeBot);
        assert_eq!((merge.pending_renewal, state_of(&merge)), (None, State::Approved));
    }

    #[test]
    fn clearing_the_marks_restores_the_signals() {
        let failed = MergeReport { failed: true, ..merging(at(5)) };
        for signals in [
            Signals::default(),
            with_checks(&[red("build", None), run("lint", CheckVerdict::Running, at(1))]),
            with_policy(SOD),
            ready(),
            Signals { merge: Some(failed), ..ready() },
        ] {
            for strategy in Strategy::ALL {
                let mut marked = signals.clone();
                marked.mark_claimed(strategy, &[]);
                marked.mark_accepted(strategy);
                marked.clear_marks();
                assert_eq!(marked, signals, "{strategy}");
            }
        }
    }

    #[test]
    fn rebuild_is_answered_when_every_marked_check_has_a_new_result() {
        let mut signals = with_checks(&[red("build", None), run("lint", CheckVerdict::Running, at(1))]);
        let is_answered = |signals: &Signals| signals.is_answered(Strategy::Rebuild, &[]);
        signals.mark_claimed(Strategy::Rebuild, &[]);
        assert!(!is_answered(&signals), "claimed only");
        signals.mark_accepted(Strategy::Rebuild);
        assert!(!is_answered(&signals));
        let again = |name, verdict| CheckReport { id: Some(8), ..run(name, verdict, at(6)) };
        signals.note_check(&again("build", CheckVerdict::Failed), LIMIT);
        assert!(!is_answered(&signals), "lint has not reported");
        signals.note_check(&again("lint", CheckVerdict::Running), LIMIT);
        signals.note_check(&CheckReport { id: Some(9), ..again("build", CheckVerdict::Passed) }, LIMIT);
        assert!(!is_answered(&signals), "lint is running");
        signals.note_check(&again("lint", CheckVerdict::Passed), LIMIT);
        assert!(is_answered(&signals));
        assert!(!signals.is_answered(Strategy::Rebuild, &names(&["build", "scan"])), "scan has not reported");
        signals.note_check(&CheckReport { id: Some(9), ..again("lint", CheckVerdict::Failed) }, LIMIT);
        assert!(is_answered(&signals), "a failure answers it");
        assert!(!is_answered(&Signals::default()));
    }

    #[test]
    fn policy_retrigger_is_answered_by_a_new_result_only() {
        for strategy in [Strategy::RetriggerPolicyBot, Strategy::RetriggerSodCheck] {
            assert!(!green().is_answered(strategy, &[]));
            assert!(!with_policy(PolicyVerdict::Evaluating).is_answered(strategy, &[]));
            assert!(with_policy(PolicyVerdict::Passed).is_answered(strategy, &[]));
            let mut signals = with_policy(SOD);
            assert!(signals.is_answered(strategy, &[]));
            signals.mark_claimed(strategy, &[]);
            assert!(!signals.is_answered(strategy, &[]));
            signals.note_policy(&policy_says(SOD, at(4)));
            assert!(signals.is_answered(strategy, &[]), "the same result again answers it");
        }
    }

    #[test]
    fn other_strategies_are_answered_by_approval_merge_attempt_or_never() {
        assert!(!with_policy(PolicyVerdict::Passed).is_answered(Strategy::RetriggerApproverBot, &[]));
        assert!(ready().is_answered(Strategy::RetriggerApproverBot, &[]));
        let automerge = Strategy::RetriggerAutomergeBot;
        assert!(!ready().is_answered(automerge, &[]));
        for failed in [false, true] {
            let mut signals = Signals { merge: Some(MergeReport { failed, ..merging(at(5)) }), ..ready() };
            assert!(signals.is_answered(automerge, &[]));
            signals.mark_claimed(automerge, &[]);
            assert!(!signals.is_answered(automerge, &[]));
        }
        let all = Signals { merge: Some(merging(at(5))), ..ready() };
        assert!(!all.is_answered(Strategy::BranchUpdate, &[]));
        assert!(!all.is_answered(Strategy::CloseAndReopen, &[]));
    }

    #[test]
    fn since_is_the_time_of_the_last_required_report() {
        let full = Signals { merge: Some(merging(at(5))), ..ready() };
        for (state, since) in [
            (State::Created, None),
            (State::ChecksRunning, None),
            (State::ChecksFailed, None),
            (State::ChecksPassed, Some(at(2))),
            (State::PolicyEvaluating, Some(at(3))),
            (State::PolicyFailed, Some(at(3))),
            (State::PolicyPassed, Some(at(3))),
            (State::Approved, Some(at(4))),
            (State::Merging, Some(at(5))),
            (State::Merged, None),
            (State::Closed, None),
            (State::NeedsIntervention, None),
        ] {
            assert_eq!(full.since(state, &[]), since, "{state}");
            assert_eq!(Signals::default().since(state, &[]), None, "{state}");
        }
        // An early report counts from the time of the last requirement.
        let late = Signals { checks: vec![run("build", CheckVerdict::Passed, at(9))], ..full.clone() };
        for state in [State::PolicyEvaluating, State::PolicyPassed, State::Approved, State::Merging] {
            assert_eq!(late.since(state, &[]), Some(at(9)), "{state}");
        }
        let late = Signals { policy: Some(policy_says(PolicyVerdict::Passed, at(8))), ..full };
        assert_eq!(late.since(State::Approved, &[]), Some(at(8)));
        let late = Signals { approvals: vec![approved(at(7))], ..late };
        assert_eq!(
            (late.since(State::Approved, &[]), late.since(State::PolicyPassed, &[])),
            (Some(at(8)), Some(at(8)))
        );
        let late = Signals { approvals: vec![approved(at(10))], ..late };
        assert_eq!((late.since(State::Approved, &[]), late.since(State::Merging, &[])), (Some(at(10)), Some(at(10))));
    }

    #[test]
    fn checks_running_since_the_earliest_running_check() {
        let started = |name, verdict, mins| CheckReport { started_at: Some(at(mins)), ..run(name, verdict, at(6)) };
        let mut signals = with_checks(&[
            started("a", CheckVerdict::Passed, 1),
            started("b", CheckVerdict::Running, 4),
            started("c", CheckVerdict::Queued, 3),
            started("d", CheckVerdict::Failed, 1),
        ]);
        signals.requested_at = Some(at(2));
        assert_eq!(signals.since(State::ChecksRunning, &[]), Some(at(3)));
        // Without a start time, the time of the report counts.
        let silent = with_checks(&[CheckReport { started_at: None, ..run("b", CheckVerdict::Running, at(6)) }]);
        assert_eq!(silent.since(State::ChecksRunning, &[]), Some(at(6)));
        let requested = Signals { requested_at: Some(at(2)), ..green() };
        assert_eq!(requested.since(State::ChecksRunning, &[]), Some(at(2)));
    }

    #[test]
    fn checks_failed_or_passed_since_the_last_of_them() {
        let signals = with_checks(&[
            run("a", CheckVerdict::Passed, at(3)),
            run("b", CheckVerdict::Failed, at(4)),
            run("c", CheckVerdict::Failed, at(5)),
            run("d", CheckVerdict::Running, at(9)),
            run("e", CheckVerdict::Passed, at(2)),
        ]);
        assert_eq!(signals.since(State::ChecksFailed, &[]), Some(at(5)));
        assert_eq!(signals.since(State::ChecksPassed, &[]), Some(at(3)));
        assert_eq!(signals.checks_passed_at(), Some(at(3)));
        let red: Vec<&str> = signals.failed_checks(&[]).map(|check| check.name.as_str()).collect();
        assert_eq!(red, ["b", "c"]);
    }

    #[test]
    fn check_is_running_by_its_own_report() {
        for (verdict, expected) in [
            (CheckVerdict::Queued, true),
            (CheckVerdict::Running, true),
            (CheckVerdict::Passed, false),
            (CheckVerdict::Failed, false),
        ] {
            let signals = with_checks(&[run("a", CheckVerdict::Passed, at(1)), run("b", verdict, at(1))]);
            assert_eq!(signals.has_running_check(), expected, "{verdict:?}");
        }
        let mut promised = with_checks(&[red("build", None)]);
        promised.mark_claimed(Strategy::Rebuild, &[]);
        promised.mark_accepted(Strategy::Rebuild);
        assert!(!promised.has_running_check(), "an accepted rebuild is not a report of the check");
    }

    #[test]
    fn note_all_keeps_the_newest_report_of_each_source() {
        let theirs = Signals { merge: Some(merging(at(5))), requested_at: Some(at(1)), ..ready() };
        let mut mine = Signals::default();
        assert_eq!(mine.note_all(&theirs, LIMIT, &[], None), UpdateResult::Changed);
        assert_eq!(mine, theirs);
        assert_eq!(mine.note_all(&theirs, LIMIT, &[], None), UpdateResult::Unchanged);
        assert_eq!(mine.note_all(&Signals::default(), LIMIT, &[], None), UpdateResult::Unchanged);
        let mut newer = Signals { policy: Some(policy_says(SOD, at(9))), ..Signals::default() };
        assert_eq!(newer.note_all(&theirs, LIMIT, &[], None), UpdateResult::Changed);
        assert_eq!(newer.policy, Some(policy_says(SOD, at(9))));
        let two = with_checks(&[run("a", CheckVerdict::Passed, at(1)), run("b", CheckVerdict::Passed, at(1))]);
        let mut cramped = Signals::default();
        assert_eq!(cramped.note_all(&two, 1, &[], None), UpdateResult::LimitReached);
        assert_eq!(cramped.checks.len(), 1);
    }

    #[test]
    fn note_all_ignores_reports_older_than_not_before() {
        let theirs = Signals { merge: Some(merging(at(5))), requested_at: Some(at(1)), ..ready() };
        for (not_before, expected) in [
            (at(1), theirs.clone()),
            (at(2), Signals { requested_at: None, ..theirs.clone() }),
            (at(3), Signals { requested_at: None, checks: vec![], ..theirs.clone() }),
            (at(4), Signals { approvals: theirs.approvals.clone(), merge: theirs.merge.clone(), ..Signals::default() }),
            (at(5), Signals { merge: theirs.merge.clone(), ..Signals::default() }),
            (at(6), Signals::default()),
        ] {
            let mut mine = Signals::default();
            let noted = mine.note_all(&theirs, LIMIT, &[], Some(not_before));
            assert_eq!(mine, expected, "not before {not_before}");
            assert_eq!(noted, UpdateResult::changed(expected != Signals::default()));
        }
    }

    #[test]
    fn signals_survive_a_json_round_trip_without_empty_fields() {
        assert_eq!(serde_json::to_string(&Signals::default()).unwrap(), "{}");
        let mut signals = Signals { merge: Some(merging(at(5))), requested_at: Some(at(1)), ..ready() };
        signals.note_check(&red("build", Some("timeout")), LIMIT);
        signals.note_check(&red("lint", None), LIMIT);
        signals.mark_claimed(Strategy::Rebuild, &[]);
        signals.mark_accepted(Strategy::Rebuild);
        let json = serde_json::to_string(&signals).unwrap();
        assert_eq!(serde_json::from_str::<Signals>(&json).unwrap(), signals);
        let check = serde_json::to_string(&status("ci", CheckVerdict::Passed, at(2))).unwrap();
        assert_eq!(check, r#"{"name":"ci","kind":"status","verdict":"passed","at":1772442120000000}"#);
        let policy = serde_json::to_string(&policy_says(SOD, at(2))).unwrap();
        assert_eq!(policy, r#"{"verdict":{"failed":"SOD_FAILURE"},"at":1772442120000000}"#);
    }
}
