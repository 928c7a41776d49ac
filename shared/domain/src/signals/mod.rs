//! What is known about one head commit, and THE function that says which state it implies (R-SIGNAL-1 to R-SIGNAL-4).
//! A webhook and a GitHub snapshot fill the same signals, so there is one derivation. Nothing here knows the state a
//! record is in; how it gets from there to the implied one is in `transition`.

mod report;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::cut;
use crate::state::{State, Strategy, Substatus};

use report::MAX_TEXT;
pub use report::{Approval, Check, CheckKind, Failure, MergeReport, PolicyReport, PolicyVerdict, Renewal, Verdict};

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
    Checks,
    /// A merge of the base into the head: this head is about to be history.
    Branch,
    Policy,
    Merge,
}

/// Who brings a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// A webhook, or a bot: one of several that may be under way.
    ByEvent,
    /// GitHub, when asked: the last word on the second it happened in.
    ByGitHub,
}

/// Whether a check is a required one. An empty list means all are.
fn counts(check: &Check, required: &[String]) -> bool {
    required.is_empty() || required.contains(&check.name)
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
        self.note_check_by(check, limit, Said::ByEvent)
    }

    fn note_check_by(&mut self, check: &Check, limit: usize, said: Said) -> Noted {
        match self.checks.binary_search_by(|known| known.key().cmp(&check.key())) {
            Ok(at) => {
                let known = &self.checks[at];
                let overrules =
                    said == Said::ByGitHub && check.order().0 == known.order().0 && check.verdict != known.verdict;
                let newer = overrules || check.order() > known.order();
                if newer {
                    self.checks[at] = check.clone();
                    self.checks[at].shorten();
                    self.answered(Asked::Checks);
                }
                Noted::changed(newer)
            }
            Err(_) if self.checks.len() >= limit => Noted::Full,
            Err(at) => {
                self.checks.insert(at, check.clone());
                self.checks[at].shorten();
                self.answered(Asked::Checks);
                Noted::Changed
            }
        }
    }

    /// Notes a report of Policy Bot, unless a newer one is known.
    pub fn note_policy(&mut self, report: &PolicyReport) -> Noted {
        self.note_policy_by(report, Said::ByEvent)
    }

    fn note_policy_by(&mut self, report: &PolicyReport, said: Said) -> Noted {
        let newer = self.policy.as_ref().is_none_or(|known| {
            let overrules =
                said == Said::ByGitHub && report.order().0 == known.order().0 && report.verdict != known.verdict;
            overrules || report.order() > known.order()
        });
        if newer {
            self.policy = Some(PolicyReport { text: cut(&report.text, MAX_TEXT), ..report.clone() });
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
            self.merge = Some(MergeReport { text: cut(&report.text, MAX_TEXT), ..report.clone() });
            self.answered(Asked::Merge);
        }
        Noted::changed(newer)
    }

    fn answered(&mut self, what: Asked) {
        if self.asked == Some(what) {
            self.asked = None;
        }
    }

    /// Notes all that GitHub shows, newest wins; what it shows of one and the same second overrules what events said of it.
    /// Reports older than `not_before` are left out: while a remedy runs, what was said before it began corrects nothing
    /// (R-SWEEP-6). Required checks always find room.
    pub fn note_all(
        &mut self,
        other: &Self,
        limit: usize,
        required: &[String],
        not_before: Option<Timestamp>,
    ) -> Noted {
        let room = |check: &Check| if required.contains(&check.name) { usize::MAX } else { limit };
        let counts = |at: Timestamp| not_before.is_none_or(|earliest| at >= earliest);
        let mut noted = Vec::new();
        noted.extend(other.requested_at.filter(|at| counts(*at)).map(|at| self.note_requested(at)));
        noted.extend(
            other
                .checks
                .iter()
                .filter(|c| counts(c.at))
                .map(|check| self.note_check_by(check, room(check), Said::ByGitHub)),
        );
        noted.extend(
            other.policy.iter().filter(|p| counts(p.at)).map(|report| self.note_policy_by(report, Said::ByGitHub)),
        );
        noted.extend(other.approvals.iter().filter(|a| counts(a.at)).map(|approval| self.note_approval(approval)));
        noted.extend(other.merge.iter().filter(|m| counts(m.at)).map(|report| self.note_merge(report)));
        if noted.contains(&Noted::Full) { Noted::Full } else { Noted::changed(noted.contains(&Noted::Changed)) }
    }

    /// Where the required checks stand. An empty list means that GitHub could not be asked, or requires nothing by name:
    /// then every check seen on the head is required, and there must be one.
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

    /// THE derivation: the furthest state whose requirements all hold (R-SIGNAL-1). An early policy pass or approval waits
    /// for green checks and counts when its turn comes.
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

    pub fn is_approved(&self) -> bool {
        self.approvals.iter().any(|approval| approval.granted)
    }

    fn is_merging(&self) -> bool {
        self.asked == Some(Asked::Merge) || self.merge.as_ref().is_some_and(|report| !report.failed)
    }

    /// Since when a required check has been queued or at work, by its own word; the first, if there are several.
    pub fn at_work_since(&self, required: &[String]) -> Option<Timestamp> {
        let at_work = |check: &&Check| counts(check, required) && check.verdict.phase() < 2;
        self.checks.iter().filter(at_work).map(|check| check.started_at.unwrap_or(check.at)).min()
    }

    /// Whether any check of this head is queued or at work, by its own word.
    pub fn any_check_at_work(&self) -> bool {
        self.checks.iter().any(|check| matches!(check.verdict, Verdict::Queued | Verdict::Running))
    }

    /// When the last of the green checks turned green.
    pub fn checks_passed_at(&self) -> Option<Timestamp> {
        self.checks.iter().filter(|check| check.verdict == Verdict::Passed).map(|check| check.at).max()
    }

    /// Since when the head has been in the state its signals imply: the time of the last report that state needs.
    pub fn since(&self, state: State, required: &[String]) -> Option<Timestamp> {
        let red = || self.failed_checks(required).map(|check| check.at).max();
        let judged = || self.policy.as_ref().map(|report| report.at).max(self.checks_passed_at());
        match state {
            State::ChecksRunning => self.at_work_since(required).or(self.requested_at),
            State::ChecksFailed => red(),
            State::ChecksPassed => self.checks_passed_at(),
            State::PolicyEvaluating | State::PolicyFailed | State::PolicyPassed => judged(),
            State::Approved => judged().max(self.approved_at()),
            State::Merging => judged().max(self.approved_at()).max(self.merge.as_ref().map(|report| report.at)),
            State::Created | State::Merged | State::Closed | State::NeedsIntervention => None,
        }
    }

    pub fn approved_at(&self) -> Option<Timestamp> {
        self.approvals.iter().filter(|approval| approval.granted).map(|approval| approval.at).max()
    }

    /// The red checks that count.
    pub fn failed_checks<'a>(&'a self, required: &'a [String]) -> impl Iterator<Item = &'a Check> {
        self.checks.iter().filter(|check| counts(check, required) && check.verdict == Verdict::Failed)
    }

    /// Marks what a claimed remedy is to renew: of the checks only those that count, or a red one that nobody requires
    /// would be awaited for ever.
    pub fn claim(&mut self, strategy: Strategy, required: &[String]) {
        self.mark(strategy, Renewal::Claimed, required);
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
            // Waking the approver changes no state (R-REMEDY-2), closing is a fact of its own.
            Strategy::RetriggerApproverBot | Strategy::CloseAndReopen => {}
        }
    }

    /// Takes all marks away: the remedy is over, and what was known is again what is known.
    pub fn unmark(&mut self) {
        self.asked = None;
        for strategy in [Strategy::Rebuild, Strategy::RetriggerPolicyBot, Strategy::RetriggerAutomergeBot] {
            self.mark(strategy, Renewal::None, &[]);
        }
    }

    fn mark(&mut self, strategy: Strategy, mark: Renewal, required: &[String]) {
        match strategy {
            Strategy::Rebuild => {
                let counts = |check: &&mut Check| counts(check, required) && check.verdict != Verdict::Passed;
                for check in self.checks.iter_mut().filter(counts) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::world::{
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

    fn with_checks(checks: &[Check]) -> Signals {
        let mut signals = Signals::default();
        for check in checks {
            assert_eq!(signals.note_check(check, LIMIT), Noted::Changed);
        }
        signals
    }

    fn red(name: &str, rule: Option<&str>) -> Check {
        Check { failure: failed_because(rule, "text"), ..run(name, Verdict::Failed, at(2)) }
    }

    /// One green check, at minute 2.
    fn green() -> Signals {
        with_checks(&[run("build", Verdict::Passed, at(2))])
    }

    /// Green, with a policy result at minute 3.
    fn judged(verdict: PolicyVerdict) -> Signals {
        Signals { policy: Some(policy_says(verdict, at(3))), ..green() }
    }

    /// Green, policy passed, approved at minute 4.
    fn ready() -> Signals {
        Signals { approvals: vec![approved(at(4))], ..judged(PolicyVerdict::Passed) }
    }

    fn state_of(signals: &Signals) -> State {
        signals.implied(&[]).state
    }

    /// The second report is the newer one, in whatever order the two arrive, and each says something new only once.
    fn assert_newer(older: &Check, newer: &Check) {
        let mut in_order = with_checks(std::slice::from_ref(older));
        assert_eq!(in_order.note_check(older, LIMIT), Noted::Unchanged, "the same again: {older:?}");
        assert_eq!(in_order.note_check(newer, LIMIT), Noted::Changed, "{newer:?} after {older:?}");
        assert_eq!(in_order.checks, std::slice::from_ref(newer));
        let mut swapped = with_checks(std::slice::from_ref(newer));
        assert_eq!(swapped.note_check(older, LIMIT), Noted::Unchanged, "{older:?} after {newer:?}");
        assert_eq!(swapped.checks, std::slice::from_ref(newer));
    }

    #[test]
    fn of_two_check_runs_the_higher_id_is_newer_whatever_the_times() {
        let first = run("build", Verdict::Failed, at(9));
        let again = Check { id: Some(8), started_at: None, ..run("build", Verdict::Queued, at(1)) };
        assert_newer(&first, &again);
        assert_newer(&Check { id: None, ..first.clone() }, &Check { id: Some(1), ..again });
    }

    #[test]
    fn of_one_check_run_a_result_is_newer_than_the_work_and_a_later_start_newer_than_the_result() {
        let at_work = Check { started_at: Some(at(3)), ..run("build", Verdict::Running, at(4)) };
        for started_at in [None, Some(at(1)), Some(at(3)), Some(at(4))] {
            let done = Check { started_at, ..run("build", Verdict::Failed, at(9)) };
            assert_newer(&at_work, &done);
            let restarted = Check { started_at: Some(at(10)), ..run("build", Verdict::Running, at(10)) };
            assert_newer(&done, &restarted);
        }
        let later = Check { started_at: Some(at(5)), ..run("build", Verdict::Queued, at(4)) };
        assert_newer(&at_work, &later);
        // What does not say when it started counts from when it said so.
        let unsaid = Check { started_at: None, ..run("build", Verdict::Queued, at(2)) };
        assert_newer(&unsaid, &at_work);
        assert_newer(&at_work, &Check { at: at(4), ..unsaid });
    }

    #[test]
    fn with_equal_starts_queued_comes_before_running_before_completed() {
        let said = |verdict, mins| run("build", verdict, at(mins));
        assert_newer(&said(Verdict::Queued, 1), &said(Verdict::Running, 1));
        assert_newer(&said(Verdict::Queued, 5), &said(Verdict::Running, 1));
        for completed in [Verdict::Passed, Verdict::Failed] {
            assert_newer(&said(Verdict::Running, 1), &said(completed, 1));
            assert_newer(&said(Verdict::Running, 5), &said(completed, 1));
            assert_newer(&said(Verdict::Queued, 5), &said(completed, 1));
        }
    }

    #[test]
    fn of_two_contradicting_reports_the_later_counts_and_in_one_second_the_red_one() {
        let said = |verdict, mins| run("build", verdict, at(mins));
        assert_newer(&said(Verdict::Failed, 1), &said(Verdict::Passed, 2));
        assert_newer(&said(Verdict::Passed, 1), &said(Verdict::Failed, 1));
        // Even two red ones have an order, so that no arrival matters.
        let because = |text: &str| Check { failure: failed_because(None, text), ..said(Verdict::Failed, 1) };
        assert_newer(&because("a"), &because("b"));
        assert_newer(&said(Verdict::Failed, 1), &because("a"));
    }

    #[test]
    fn statuses_are_ordered_by_their_time_and_pending_before_final() {
        let said = |verdict, mins| status("ci/jenkins", verdict, at(mins));
        assert_newer(&said(Verdict::Passed, 1), &said(Verdict::Running, 2));
        assert_newer(&said(Verdict::Running, 1), &said(Verdict::Passed, 1));
        assert_newer(&said(Verdict::Running, 1), &said(Verdict::Failed, 1));
        assert_newer(&said(Verdict::Passed, 1), &said(Verdict::Failed, 1));
        assert_newer(&said(Verdict::Failed, 1), &said(Verdict::Passed, 2));
        // Only check runs have ids and starts that mean something.
        let odd = Check { id: Some(9), started_at: Some(at(9)), ..said(Verdict::Failed, 1) };
        assert_newer(&odd, &said(Verdict::Passed, 2));
    }

    #[test]
    fn checks_are_kept_by_name_and_kind() {
        let signals = with_checks(&[
            status("b", Verdict::Passed, at(1)),
            run("c", Verdict::Passed, at(1)),
            run("b", Verdict::Failed, at(1)),
            run("a", Verdict::Passed, at(1)),
        ]);
        let keys: Vec<_> = signals.checks.iter().map(Check::key).collect();
        let expected = [("a", CheckKind::Run), ("b", CheckKind::Run), ("b", CheckKind::Status), ("c", CheckKind::Run)];
        assert_eq!(keys, expected);
    }

    #[test]
    fn there_is_room_for_so_many_checks_and_news_of_those_is_always_heard() {
        let mut signals = Signals::default();
        assert_eq!(signals.note_check(&run("a", Verdict::Running, at(1)), 0), Noted::Full);
        assert_eq!(signals, Signals::default());
        assert_eq!(signals.note_check(&run("a", Verdict::Running, at(1)), 2), Noted::Changed);
        assert_eq!(signals.note_check(&run("b", Verdict::Running, at(1)), 2), Noted::Changed);
        assert_eq!(signals.note_check(&run("c", Verdict::Running, at(1)), 2), Noted::Full);
        assert_eq!(signals.note_check(&run("a", Verdict::Passed, at(2)), 2), Noted::Changed);
        assert_eq!(signals.note_check(&run("a", Verdict::Passed, at(2)), 2), Noted::Unchanged);
        assert_eq!(signals.checks.len(), 2);
    }

    #[test]
    fn a_request_for_checks_counts_once_and_the_newest_is_kept() {
        let mut signals = Signals::default();
        assert_eq!(signals.note_requested(at(2)), Noted::Changed);
        assert_eq!(signals.note_requested(at(2)), Noted::Unchanged);
        assert_eq!(signals.note_requested(at(1)), Noted::Unchanged);
        assert_eq!(signals.note_requested(at(3)), Noted::Changed);
        assert_eq!(signals.requested_at, Some(at(3)));
    }

    #[test]
    fn policy_bots_newest_word_counts_and_in_one_second_its_result() {
        for (older, newer) in [
            (policy_says(PolicyVerdict::Passed, at(1)), policy_says(PolicyVerdict::Evaluating, at(2))),
            (policy_says(PolicyVerdict::Evaluating, at(1)), policy_says(PolicyVerdict::Passed, at(1))),
            (policy_says(PolicyVerdict::Evaluating, at(1)), policy_says(SOD, at(1))),
            (policy_says(PolicyVerdict::Passed, at(1)), policy_says(SOD, at(1))),
            (policy_says(SOD, at(1)), PolicyReport { text: "a".to_owned(), ..policy_says(SOD, at(1)) }),
        ] {
            let mut signals = Signals::default();
            assert_eq!(signals.note_policy(&older), Noted::Changed);
            assert_eq!(signals.note_policy(&older), Noted::Unchanged);
            assert_eq!(signals.note_policy(&newer), Noted::Changed, "{newer:?}");
            assert_eq!(signals.note_policy(&older), Noted::Unchanged, "{older:?}");
            assert_eq!(signals.policy, Some(newer));
        }
    }

    #[test]
    fn each_approver_bot_has_its_own_word() {
        let by = |by: &str, granted, mins| Approval { by: by.to_owned(), granted, at: at(mins) };
        let mut signals = Signals::default();
        assert!(!signals.is_approved());
        assert_eq!(signals.note_approval(&by("b", true, 1)), Noted::Changed);
        assert_eq!(signals.note_approval(&by("a", true, 2)), Noted::Changed);
        assert_eq!(signals.note_approval(&by("a", true, 2)), Noted::Unchanged);
        assert_eq!((signals.is_approved(), signals.approved_at()), (true, Some(at(2))));
        // One takes it back: the other's stands.
        assert_eq!(signals.note_approval(&by("a", false, 3)), Noted::Changed);
        assert_eq!((signals.is_approved(), signals.approved_at()), (true, Some(at(1))));
        assert_eq!(signals.note_approval(&by("a", true, 2)), Noted::Unchanged, "that was before");
        assert_eq!(signals.approvals, [by("a", false, 3), by("b", true, 1)]);
        // Taken back in the second it was granted: taken back.
        assert_eq!(signals.note_approval(&by("b", false, 1)), Noted::Changed);
        assert_eq!(signals.note_approval(&by("b", true, 1)), Noted::Unchanged);
        assert_eq!((signals.is_approved(), signals.approved_at()), (false, None));
    }

    #[test]
    fn automerge_bots_newest_word_counts_and_in_one_second_its_failure() {
        let failed = |text: &str, mins| MergeReport { failed: true, text: text.to_owned(), ..merging(at(mins)) };
        for (older, newer) in
            [(failed("", 1), merging(at(2))), (merging(at(1)), failed("", 1)), (failed("a", 1), failed("b", 1))]
        {
            let mut signals = Signals::default();
            assert_eq!(signals.note_merge(&older), Noted::Changed);
            assert_eq!(signals.note_merge(&older), Noted::Unchanged);
            assert_eq!(signals.note_merge(&newer), Noted::Changed, "{newer:?}");
            assert_eq!(signals.note_merge(&older), Noted::Unchanged, "{older:?}");
            assert_eq!(signals.merge, Some(newer));
        }
    }

    #[test]
    fn nothing_heard_is_not_started_and_a_request_is_running() {
        for required in [names(&[]), names(&["build"])] {
            assert_eq!(Signals::default().checks(&required), Checks::NotStarted);
            let requested = Signals { requested_at: Some(at(1)), ..Signals::default() };
            assert_eq!(requested.checks(&required), Checks::Running);
            let asked = Signals { asked: Some(Asked::Checks), ..Signals::default() };
            assert_eq!(asked.checks(&required), Checks::Running);
            for asked in [Asked::Branch, Asked::Policy, Asked::Merge] {
                let signals = Signals { asked: Some(asked), ..Signals::default() };
                assert_eq!(signals.checks(&required), Checks::NotStarted, "{asked:?}");
            }
            // Whoever else has spoken, no check has.
            let only_policy = Signals { checks: vec![], ..ready() };
            assert_eq!(only_policy.checks(&required), Checks::NotStarted);
        }
    }

    #[test]
    fn an_empty_list_requires_every_check_seen() {
        let green = run("a", Verdict::Passed, at(1));
        for (other, expected) in [
            (run("b", Verdict::Passed, at(1)), Checks::Passed),
            (run("b", Verdict::Queued, at(1)), Checks::Running),
            (run("b", Verdict::Running, at(1)), Checks::Running),
            (run("b", Verdict::Failed, at(1)), Checks::Failed(Substatus::Persistent)),
            (red("b", Some("timeout")), Checks::Failed(Substatus::Transient)),
        ] {
            assert_eq!(with_checks(&[green.clone(), other]).checks(&[]), expected);
        }
    }

    #[test]
    fn only_required_checks_count_and_every_one_must_have_reported() {
        let build = run("build", Verdict::Passed, at(1));
        let others = [red("bui", None), red("build2", None), red("scan", None)];
        let signals = with_checks(&[&[build], others.as_slice()].concat());
        assert_eq!(signals.checks(&names(&["build"])), Checks::Passed);
        assert_eq!(signals.checks(&names(&["build", "docs"])), Checks::Running, "docs has not reported");
        assert_eq!(signals.checks(&names(&["docs"])), Checks::Running);
        assert_eq!(signals.checks(&names(&["aaa"])), Checks::Running);
        assert_eq!(signals.checks(&names(&["zzz"])), Checks::Running);
        // A red one is red whoever is still awaited.
        let failed = Checks::Failed(Substatus::Persistent);
        assert_eq!(signals.checks(&names(&["docs", "scan"])), failed);
        assert_eq!(signals.checks(&names(&["scan", "build"])), failed);
    }

    #[test]
    fn a_status_and_a_check_run_of_one_required_name_must_both_pass() {
        let passed = run("build", Verdict::Passed, at(1));
        for (verdict, expected) in [
            (Verdict::Passed, Checks::Passed),
            (Verdict::Running, Checks::Running),
            (Verdict::Failed, Checks::Failed(Substatus::Persistent)),
        ] {
            let signals = with_checks(&[passed.clone(), status("build", verdict, at(1))]);
            assert_eq!(signals.checks(&names(&["build"])), expected);
            let swapped = with_checks(&[run("build", verdict, at(1)), status("build", Verdict::Passed, at(1))]);
            assert_eq!(swapped.checks(&names(&["build"])), expected);
        }
    }

    #[test]
    fn one_persistent_failure_makes_all_of_it_persistent() {
        let transient = red("a", Some("timeout"));
        let persistent = Checks::Failed(Substatus::Persistent);
        assert_eq!(with_checks(&[red("a", Some("timeout"))]).checks(&[]), Checks::Failed(Substatus::Transient));
        assert_eq!(with_checks(&[transient.clone(), red("b", None)]).checks(&[]), persistent);
        assert_eq!(with_checks(&[red("0", None), transient.clone()]).checks(&[]), persistent);
        // A failure that gave no reason is a real one.
        let silent = run("b", Verdict::Failed, at(1));
        assert_eq!(with_checks(&[transient.clone(), silent]).checks(&[]), persistent);
        // Only a required one can.
        let signals = with_checks(&[transient.clone(), red("b", None)]);
        assert_eq!(signals.checks(&names(&["a"])), Checks::Failed(Substatus::Transient));
        // What is still running does not hide a failure.
        let running = run("c", Verdict::Running, at(1));
        assert_eq!(with_checks(&[transient, running]).checks(&[]), Checks::Failed(Substatus::Transient));
    }

    #[test]
    fn signals_imply_the_furthest_state_whose_requirements_all_hold() {
        let failed = MergeReport { failed: true, ..merging(at(5)) };
        let detail = |state, substatus| Implied { state, substatus: Some(substatus) };
        for (signals, expected) in [
            (Signals::default(), Implied::plain(State::Created)),
            (Signals { requested_at: Some(at(1)), ..Signals::default() }, Implied::plain(State::ChecksRunning)),
            (with_checks(&[run("a", Verdict::Queued, at(1))]), Implied::plain(State::ChecksRunning)),
            (with_checks(&[red("a", Some("disk"))]), detail(State::ChecksFailed, Substatus::Transient)),
            (with_checks(&[red("a", None)]), detail(State::ChecksFailed, Substatus::Persistent)),
            (green(), Implied::plain(State::ChecksPassed)),
            (judged(PolicyVerdict::Evaluating), Implied::plain(State::PolicyEvaluating)),
            (judged(SOD), detail(State::PolicyFailed, Substatus::SodFailure)),
            (
                judged(PolicyVerdict::Failed(Substatus::BuildFailure)),
                detail(State::PolicyFailed, Substatus::BuildFailure),
            ),
            (judged(PolicyVerdict::Passed), Implied::plain(State::PolicyPassed)),
            (ready(), Implied::plain(State::Approved)),
            (Signals { merge: Some(merging(at(5))), ..ready() }, Implied::plain(State::Merging)),
            (Signals { merge: Some(failed), ..ready() }, Implied::plain(State::Approved)),
        ] {
            assert_eq!(signals.implied(&[]), expected, "{signals:?}");
        }
    }

    #[test]
    fn what_comes_early_waits_for_its_turn() {
        let all = Signals { merge: Some(merging(at(5))), ..ready() };
        let red = Signals { checks: vec![red("build", None)], ..all.clone() };
        assert_eq!(state_of(&red), State::ChecksFailed);
        assert_eq!(state_of(&Signals { checks: vec![], ..all.clone() }), State::Created);
        let running = Signals { checks: vec![run("build", Verdict::Running, at(1))], ..all.clone() };
        assert_eq!(state_of(&running), State::ChecksRunning);
        assert_eq!(all.implied(&names(&["build", "scan"])).state, State::ChecksRunning);
        assert_eq!(state_of(&Signals { policy: None, ..all.clone() }), State::ChecksPassed);
        let evaluating = Signals { policy: Some(policy_says(PolicyVerdict::Evaluating, at(3))), ..all.clone() };
        assert_eq!(state_of(&evaluating), State::PolicyEvaluating);
        assert_eq!(state_of(&Signals { approvals: vec![], ..all }), State::PolicyPassed);
    }

    #[test]
    fn a_claim_changes_nothing() {
        let failed_merge = Signals { merge: Some(MergeReport { failed: true, ..merging(at(5)) }), ..ready() };
        for signals in
            [Signals::default(), with_checks(&[red("build", None)]), green(), judged(SOD), ready(), failed_merge]
        {
            for strategy in Strategy::ALL {
                let mut claimed = signals.clone();
                claimed.claim(strategy, &[]);
                assert_eq!(claimed.implied(&[]), signals.implied(&[]), "{strategy}");
                assert_eq!(claimed.asked, None);
            }
        }
    }

    #[test]
    fn a_promised_rebuild_is_running_until_every_red_check_has_reported_again() {
        let mut signals =
            with_checks(&[red("build", None), red("lint", Some("disk")), run("docs", Verdict::Passed, at(1))]);
        signals.claim(Strategy::Rebuild, &[]);
        signals.promise(Strategy::Rebuild);
        let renewals: Vec<_> = signals.checks.iter().map(|check| check.renewal).collect();
        assert_eq!(renewals, [Renewal::Promised, Renewal::None, Renewal::Promised], "green ones stand");
        assert_eq!((signals.asked, state_of(&signals)), (Some(Asked::Checks), State::ChecksRunning));
        let again = |name, verdict| Check { id: Some(8), ..run(name, verdict, at(6)) };
        signals.note_check(&again("build", Verdict::Passed), LIMIT);
        assert_eq!((signals.asked, state_of(&signals)), (None, State::ChecksRunning));
        signals.note_check(&again("lint", Verdict::Passed), LIMIT);
        assert_eq!(state_of(&signals), State::ChecksPassed);
        signals.note_check(&Check { id: Some(9), ..again("lint", Verdict::Failed) }, LIMIT);
        assert_eq!(state_of(&signals), State::ChecksFailed);
    }

    #[test]
    fn a_promised_rebuild_with_nothing_known_is_running() {
        let mut signals = Signals::default();
        signals.claim(Strategy::Rebuild, &[]);
        assert_eq!(state_of(&signals), State::Created);
        signals.promise(Strategy::Rebuild);
        assert_eq!(state_of(&signals), State::ChecksRunning);
    }

    #[test]
    fn a_promised_branch_update_is_running_whatever_this_head_says() {
        let mut signals = ready();
        signals.claim(Strategy::BranchUpdate, &[]);
        signals.promise(Strategy::BranchUpdate);
        assert_eq!((signals.asked, state_of(&signals)), (Some(Asked::Branch), State::ChecksRunning));
        signals.note_check(&Check { id: Some(8), ..red("build", None) }, LIMIT);
        signals.note_policy(&policy_says(SOD, at(9)));
        signals.note_merge(&merging(at(9)));
        assert_eq!((signals.asked, state_of(&signals)), (Some(Asked::Branch), State::ChecksRunning));
    }

    #[test]
    fn a_promised_evaluation_is_evaluating_until_policy_bot_speaks() {
        for strategy in [Strategy::RetriggerPolicyBot, Strategy::RetriggerSodCheck] {
            for mut signals in [green(), judged(SOD), judged(PolicyVerdict::Evaluating), ready()] {
                signals.claim(strategy, &[]);
                signals.promise(strategy);
                assert_eq!((signals.asked, state_of(&signals)), (Some(Asked::Policy), State::PolicyEvaluating));
                signals.note_check(&run("lint", Verdict::Passed, at(6)), LIMIT);
                signals.note_merge(&merging(at(6)));
                assert_eq!(signals.asked, Some(Asked::Policy), "others do not answer for it");
                assert_eq!(signals.note_policy(&policy_says(SOD, at(7))), Noted::Changed);
                assert_eq!((signals.asked, state_of(&signals)), (None, State::PolicyFailed));
            }
        }
        let mut red = Signals { checks: vec![red("build", None)], ..judged(SOD) };
        red.claim(Strategy::RetriggerPolicyBot, &[]);
        red.promise(Strategy::RetriggerPolicyBot);
        assert_eq!(state_of(&red), State::ChecksFailed, "checks come first");
    }

    #[test]
    fn a_promised_merge_is_merging_until_automerge_bot_speaks() {
        let failed = MergeReport { failed: true, ..merging(at(5)) };
        for mut signals in [ready(), Signals { merge: Some(failed.clone()), ..ready() }] {
            signals.claim(Strategy::RetriggerAutomergeBot, &[]);
            assert_eq!(state_of(&signals), State::Approved);
            signals.promise(Strategy::RetriggerAutomergeBot);
            assert_eq!((signals.asked, state_of(&signals)), (Some(Asked::Merge), State::Merging));
            signals.note_policy(&policy_says(PolicyVerdict::Passed, at(6)));
            assert_eq!(signals.asked, Some(Asked::Merge), "others do not answer for it");
            assert_eq!(signals.note_merge(&MergeReport { at: at(7), ..failed.clone() }), Noted::Changed);
            assert_eq!((signals.asked, state_of(&signals)), (None, State::Approved));
        }
    }

    #[test]
    fn waking_the_approver_and_closing_promise_no_state() {
        for strategy in [Strategy::RetriggerApproverBot, Strategy::CloseAndReopen] {
            let mut signals = judged(PolicyVerdict::Passed);
            signals.claim(strategy, &[]);
            signals.promise(strategy);
            assert_eq!(signals, judged(PolicyVerdict::Passed), "{strategy}");
        }
    }

    #[test]
    fn a_report_between_claim_and_promise_stands() {
        let mut checks = with_checks(&[red("build", None), red("lint", None)]);
        checks.claim(Strategy::Rebuild, &[]);
        checks.note_check(&Check { id: Some(8), ..red("build", Some("disk")) }, LIMIT);
        checks.promise(Strategy::Rebuild);
        assert_eq!(checks.implied(&[]).substatus, Some(Substatus::Transient), "build's new failure, not lint's old");

        let mut policy = judged(SOD);
        policy.claim(Strategy::RetriggerSodCheck, &[]);
        policy.note_policy(&policy_says(PolicyVerdict::Passed, at(4)));
        policy.promise(Strategy::RetriggerSodCheck);
        assert_eq!((policy.asked, state_of(&policy)), (None, State::PolicyPassed));

        let failed = MergeReport { failed: true, ..merging(at(5)) };
        let mut merge = Signals { merge: Some(failed.clone()), ..ready() };
        merge.claim(Strategy::RetriggerAutomergeBot, &[]);
        merge.note_merge(&MergeReport { at: at(6), ..failed });
        merge.promise(Strategy::RetriggerAutomergeBot);
        assert_eq!((merge.asked, state_of(&merge)), (None, State::Approved));
    }

    #[test]
    fn taking_the_marks_away_restores_what_was_known() {
        let failed = MergeReport { failed: true, ..merging(at(5)) };
        for signals in [
            Signals::default(),
            with_checks(&[red("build", None), run("lint", Verdict::Running, at(1))]),
            judged(SOD),
            ready(),
            Signals { merge: Some(failed), ..ready() },
        ] {
            for strategy in Strategy::ALL {
                let mut marked = signals.clone();
                marked.claim(strategy, &[]);
                marked.promise(strategy);
                marked.unmark();
                assert_eq!(marked, signals, "{strategy}");
            }
        }
    }

    #[test]
    fn a_rebuild_is_answered_when_every_marked_check_has_a_new_result() {
        let mut signals = with_checks(&[red("build", None), run("lint", Verdict::Running, at(1))]);
        let is_answered = |signals: &Signals| signals.is_answered(Strategy::Rebuild, &[]);
        signals.claim(Strategy::Rebuild, &[]);
        assert!(!is_answered(&signals), "claimed only");
        signals.promise(Strategy::Rebuild);
        assert!(!is_answered(&signals));
        let again = |name, verdict| Check { id: Some(8), ..run(name, verdict, at(6)) };
        signals.note_check(&again("build", Verdict::Failed), LIMIT);
        assert!(!is_answered(&signals), "lint is awaited");
        signals.note_check(&again("lint", Verdict::Running), LIMIT);
        signals.note_check(&Check { id: Some(9), ..again("build", Verdict::Passed) }, LIMIT);
        assert!(!is_answered(&signals), "lint is at work");
        signals.note_check(&again("lint", Verdict::Passed), LIMIT);
        assert!(is_answered(&signals));
        assert!(!signals.is_answered(Strategy::Rebuild, &names(&["build", "scan"])), "scan is awaited");
        signals.note_check(&Check { id: Some(9), ..again("lint", Verdict::Failed) }, LIMIT);
        assert!(is_answered(&signals), "a failure is an answer");
        assert!(!is_answered(&Signals::default()));
    }

    #[test]
    fn policy_bot_has_answered_with_a_new_result_only() {
        for strategy in [Strategy::RetriggerPolicyBot, Strategy::RetriggerSodCheck] {
            assert!(!green().is_answered(strategy, &[]));
            assert!(!judged(PolicyVerdict::Evaluating).is_answered(strategy, &[]));
            assert!(judged(PolicyVerdict::Passed).is_answered(strategy, &[]));
            let mut signals = judged(SOD);
            assert!(signals.is_answered(strategy, &[]));
            signals.claim(strategy, &[]);
            assert!(!signals.is_answered(strategy, &[]));
            signals.note_policy(&policy_says(SOD, at(4)));
            assert!(signals.is_answered(strategy, &[]), "the same again is an answer");
        }
    }

    #[test]
    fn the_other_strategies_are_answered_by_an_approval_an_attempt_or_not_here() {
        assert!(!judged(PolicyVerdict::Passed).is_answered(Strategy::RetriggerApproverBot, &[]));
        assert!(ready().is_answered(Strategy::RetriggerApproverBot, &[]));
        let automerge = Strategy::RetriggerAutomergeBot;
        assert!(!ready().is_answered(automerge, &[]));
        for failed in [false, true] {
            let mut signals = Signals { merge: Some(MergeReport { failed, ..merging(at(5)) }), ..ready() };
            assert!(signals.is_answered(automerge, &[]));
            signals.claim(automerge, &[]);
            assert!(!signals.is_answered(automerge, &[]));
        }
        let all = Signals { merge: Some(merging(at(5))), ..ready() };
        assert!(!all.is_answered(Strategy::BranchUpdate, &[]));
        assert!(!all.is_answered(Strategy::CloseAndReopen, &[]));
    }

    #[test]
    fn a_state_has_lasted_since_the_last_report_it_needs() {
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
        // What came early counts from when its turn came.
        let late = Signals { checks: vec![run("build", Verdict::Passed, at(9))], ..full.clone() };
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
    fn checks_have_run_since_the_first_of_those_at_work_started() {
        let started = |name, verdict, mins| Check { started_at: Some(at(mins)), ..run(name, verdict, at(6)) };
        let mut signals = with_checks(&[
            started("a", Verdict::Passed, 1),
            started("b", Verdict::Running, 4),
            started("c", Verdict::Queued, 3),
            started("d", Verdict::Failed, 1),
        ]);
        signals.requested_at = Some(at(2));
        assert_eq!(signals.since(State::ChecksRunning, &[]), Some(at(3)));
        // One that does not say when it started counts from its report.
        let silent = with_checks(&[Check { started_at: None, ..run("b", Verdict::Running, at(6)) }]);
        assert_eq!(silent.since(State::ChecksRunning, &[]), Some(at(6)));
        let requested = Signals { requested_at: Some(at(2)), ..green() };
        assert_eq!(requested.since(State::ChecksRunning, &[]), Some(at(2)));
    }

    #[test]
    fn checks_have_failed_or_passed_since_the_last_of_them() {
        let signals = with_checks(&[
            run("a", Verdict::Passed, at(3)),
            run("b", Verdict::Failed, at(4)),
            run("c", Verdict::Failed, at(5)),
            run("d", Verdict::Running, at(9)),
            run("e", Verdict::Passed, at(2)),
        ]);
        assert_eq!(signals.since(State::ChecksFailed, &[]), Some(at(5)));
        assert_eq!(signals.since(State::ChecksPassed, &[]), Some(at(3)));
        assert_eq!(signals.checks_passed_at(), Some(at(3)));
        let red: Vec<&str> = signals.failed_checks(&[]).map(|check| check.name.as_str()).collect();
        assert_eq!(red, ["b", "c"]);
    }

    #[test]
    fn a_check_is_at_work_by_its_own_word() {
        for (verdict, expected) in
            [(Verdict::Queued, true), (Verdict::Running, true), (Verdict::Passed, false), (Verdict::Failed, false)]
        {
            let signals = with_checks(&[run("a", Verdict::Passed, at(1)), run("b", verdict, at(1))]);
            assert_eq!(signals.any_check_at_work(), expected, "{verdict:?}");
        }
        let mut promised = with_checks(&[red("build", None)]);
        promised.claim(Strategy::Rebuild, &[]);
        promised.promise(Strategy::Rebuild);
        assert!(!promised.any_check_at_work(), "a promise is not its own word");
    }

    #[test]
    fn note_all_takes_over_every_newer_report() {
        let theirs = Signals { merge: Some(merging(at(5))), requested_at: Some(at(1)), ..ready() };
        let mut mine = Signals::default();
        assert_eq!(mine.note_all(&theirs, LIMIT, &[], None), Noted::Changed);
        assert_eq!(mine, theirs);
        assert_eq!(mine.note_all(&theirs, LIMIT, &[], None), Noted::Unchanged);
        assert_eq!(mine.note_all(&Signals::default(), LIMIT, &[], None), Noted::Unchanged);
        let mut newer = Signals { policy: Some(policy_says(SOD, at(9))), ..Signals::default() };
        assert_eq!(newer.note_all(&theirs, LIMIT, &[], None), Noted::Changed);
        assert_eq!(newer.policy, Some(policy_says(SOD, at(9))));
        let two = with_checks(&[run("a", Verdict::Passed, at(1)), run("b", Verdict::Passed, at(1))]);
        let mut cramped = Signals::default();
        assert_eq!(cramped.note_all(&two, 1, &[], None), Noted::Full);
        assert_eq!(cramped.checks.len(), 1);
    }

    #[test]
    fn reports_from_before_are_left_out() {
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
            assert_eq!(noted, Noted::changed(expected != Signals::default()));
        }
    }

    #[test]
    fn signals_are_read_back_and_say_only_what_is_known() {
        assert_eq!(serde_json::to_string(&Signals::default()).unwrap(), "{}");
        let mut signals = Signals { merge: Some(merging(at(5))), requested_at: Some(at(1)), ..ready() };
        signals.note_check(&red("build", Some("timeout")), LIMIT);
        signals.note_check(&red("lint", None), LIMIT);
        signals.claim(Strategy::Rebuild, &[]);
        signals.promise(Strategy::Rebuild);
        let json = serde_json::to_string(&signals).unwrap();
        assert_eq!(serde_json::from_str::<Signals>(&json).unwrap(), signals);
        let check = serde_json::to_string(&status("ci", Verdict::Passed, at(2))).unwrap();
        assert_eq!(check, r#"{"name":"ci","kind":"status","verdict":"passed","at":1772442120000000}"#);
        let policy = serde_json::to_string(&policy_says(SOD, at(2))).unwrap();
        assert_eq!(policy, r#"{"verdict":{"failed":"SOD_FAILURE"},"at":1772442120000000}"#);
    }
}
