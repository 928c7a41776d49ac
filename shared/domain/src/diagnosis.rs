//! The classifier (R-DIAG-1, R-DIAG-2): what is wrong with a stale pull request, and what to do. An ordered list of named rules with
//! fixed numbers; the first that matches decides, and every answer comes with its evidence. Stateless and
//! deterministic. What a remedy then does is in `remedy`.

use jiff::Timestamp;

use crate::budget;
use crate::comment;
use crate::id::Sha;
use crate::policy::{Behind, Policy};
use crate::pull_request::{Record, Vulnerability};
use crate::signals::PolicyVerdict;
use crate::snapshot::{Build, Live, Mergeable};
use crate::state::{State, Strategy, Substatus};
use crate::time::saturating_after;

/// What the classifier looks at.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The record, corrected by what GitHub showed.
    pub record: &'a Record,
    /// What GitHub and Jenkins say right now; `None` if nobody asked (a dry explanation).
    pub live: Option<&'a Live>,
    /// The vulnerability's row, for the budget that never resets.
    pub vulnerability: Option<&'a Vulnerability>,
    pub policy: &'a Policy,
    pub now: Timestamp,
}

named! {
    /// What to do.
    pub enum Classification {
        /// Close it, and ask for a fresh pull request.
        CloseAndReopen = "CLOSE_AND_REOPEN",
        UpdateBranch = "UPDATE_BRANCH",
        RetryChecks = "RETRY_CHECKS",
        RetriggerPolicyBot = "RETRIGGER_POLICY_BOT",
        /// Ask the SOD validator again.
        RetriggerSodCheck = "RETRIGGER_SOD_CHECK",
        RetriggerApproverBot = "RETRIGGER_APPROVER_BOT",
        RetriggerMerge = "RETRIGGER_MERGE",
        NeedsIntervention = "NEEDS_INTERVENTION",
        NoAction = "NO_ACTION",
    }
}

impl Classification {
    /// The strategy, and so the budget, behind it.
    pub fn strategy(self) -> Option<Strategy> {
        match self {
            Self::CloseAndReopen => Some(Strategy::CloseAndReopen),
            Self::UpdateBranch => Some(Strategy::BranchUpdate),
            Self::RetryChecks => Some(Strategy::Rebuild),
            Self::RetriggerPolicyBot => Some(Strategy::RetriggerPolicyBot),
            Self::RetriggerSodCheck => Some(Strategy::RetriggerSodCheck),
            Self::RetriggerApproverBot => Some(Strategy::RetriggerApproverBot),
            Self::RetriggerMerge => Some(Strategy::RetriggerAutomergeBot),
            Self::NeedsIntervention | Self::NoAction => None,
        }
    }
}

/// A rule by name, for evidence, mails and explanations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleName {
    /// Its number; extended rules are 9a to 9c, since they come before rule 10.
    pub number: &'static str,
    pub title: &'static str,
}

/// What the classifier says.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// The state it was made in: if the record has moved on, it is void.
    pub state: State,
    pub head_sha: Sha,
    /// What to do, after the budget was looked at.
    pub classification: Classification,
    pub rule: RuleName,
    pub evidence: Vec<String>,
    /// The next rule that would have matched.
    pub next: Option<RuleName>,
    /// Set if the budget overrode the rule: what the rule had said, and why (R-DIAG-21).
    pub overridden: Option<(Classification, String)>,
    /// Whether the build under way hangs, and is to be stopped before another one is started.
    pub stop_build: bool,
    /// Whether this answer is "could not find out": such visits are counted, and the third escalates (R-DIAG-16).
    pub inconclusive: bool,
}

/// What a matching rule answers.
struct Finding {
    classification: Classification,
    evidence: Vec<String>,
    inconclusive: bool,
    stop_build: bool,
}

impl Finding {
    fn new(classification: Classification, evidence: impl Into<String>) -> Self {
        Self { classification, evidence: vec![evidence.into()], inconclusive: false, stop_build: false }
    }

    fn and(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }
}

struct Rule {
    name: RuleName,
    extended: bool,
    look: fn(&Case<'_>) -> Option<Finding>,
}

const fn standard(number: &'static str, title: &'static str, look: fn(&Case<'_>) -> Option<Finding>) -> Rule {
    Rule { name: RuleName { number, title }, extended: false, look }
}

const fn extended(number: &'static str, title: &'static str, look: fn(&Case<'_>) -> Option<Finding>) -> Rule {
    Rule { name: RuleName { number, title }, extended: true, look }
}

const RULES: [Rule; 15] = [
    standard("0", "MERGEABILITY UNKNOWN", mergeability_unknown),
    standard("1", "MERGE CONFLICT DETECTED", merge_conflict),
    standard("2", "BRANCH BEHIND BASE", branch_behind),
    standard("3", "CHECKS FAILED — TRANSIENT", checks_failed_transient),
    standard("4", "CHECKS FAILED — PERSISTENT", checks_failed_persistent),
    standard("5", "POLICY BOT STALE", policy_bot_stale),
    standard("6", "POLICY FAILED — SOD", policy_failed_sod),
    standard("7", "POLICY FAILED — OTHER", policy_failed_other),
    standard("8", "APPROVER BOT STALE", approver_bot_stale),
    standard("9", "AUTOMERGE BOT STALE", automerge_bot_stale),
    extended("9a", "CHECKS NEVER STARTED", checks_never_started),
    extended("9b", "CHECKS RUNNING TOO LONG", checks_running_too_long),
    extended("9c", "MERGE NEVER FINISHED", merge_never_finished),
    standard("10", "STILL WITHIN THRESHOLD", still_within_threshold),
    standard("11", "FALLTHROUGH", fallthrough),
];

/// A remedy that is dropped costs no budget. So many in a row take hours: whoever decides and whoever acts will not agree any more.
const MOST_DROPS: u32 = 24;

/// Classifies: the first rule that matches, then the budget (R-DIAG-2, R-DIAG-21).
pub fn classify(case: &Case<'_>) -> Diagnosis {
    let mut matching = RULES
        .iter()
        .filter(|rule| !rule.extended || case.policy.policy.extended_rules)
        .filter_map(|rule| (rule.look)(case).map(|finding| (rule.name, finding)));
    // Rule 11 always matches; the default is only what the compiler asks for.
    let (rule, finding) = matching.next().unwrap_or_else(|| {
        let last = RuleName { number: "11", title: "FALLTHROUGH" };
        (last, Finding::new(Classification::NeedsIntervention, "no rule matched"))
    });
    let next = matching.next().map(|(name, _)| name);
    let mut diagnosis = Diagnosis {
        state: case.record.state,
        head_sha: case.record.head_sha.clone(),
        classification: finding.classification,
        rule,
        evidence: finding.evidence,
        next,
        overridden: None,
        stop_build: finding.stop_build,
        inconclusive: finding.inconclusive,
    };
    if let Some(strategy) = diagnosis.classification.strategy() {
        let record = case.record;
        let on_vulnerability = case.vulnerability.map_or(0, |row| row.close_and_reopen);
        if let Err(exhausted) =
            budget::check(case.policy, strategy, &record.retry_counts, record.lifetime_remedies, on_vulnerability)
        {
            diagnosis.overridden = Some((diagnosis.classification, exhausted.to_string()));
            diagnosis.classification = Classification::NeedsIntervention;
        } else if let Some(drops) = record.dropped.as_ref().filter(|drops| drops.count >= MOST_DROPS) {
            let why = format!(
                "{strategy} was decided {} times in a row, and each time something was in its way",
                drops.count
            );
            diagnosis.overridden = Some((diagnosis.classification, why));
            diagnosis.classification = Classification::NeedsIntervention;
        }
    }
    diagnosis
}

impl Case<'_> {
    fn state(&self) -> State {
        self.record.state
    }

    /// Whether the state has lasted longer than its threshold allows.
    fn is_overdue(&self) -> bool {
        self.record.stale_at(self.policy).is_some_and(|at| self.now >= at)
    }

    fn waited(&self) -> String {
        comment::waited(self.state(), self.now.duration_since(self.record.progressed_at))
    }

    fn asked_at(&self, strategy: Strategy) -> Option<Timestamp> {
        self.record.last_asked.get(&strategy).copied()
    }
}

/// 0. GitHub was asked and does not know yet whether the head can be merged. That is no verdict, neither for a conflict nor
///    against one (R-DIAG-3): nothing is concluded from half a reading.
fn mergeability_unknown(case: &Case<'_>) -> Option<Finding> {
    let unknown = case.live?.mergeable == Mergeable::Unknown;
    unknown.then(|| Finding::new(Classification::NoAction, "GitHub has not worked out yet whether it can be merged"))
}

/// 1. GitHub reports merge conflicts on the pull request.
fn merge_conflict(case: &Case<'_>) -> Option<Finding> {
    match case.live?.mergeable {
        Mergeable::Conflicting => Some(Finding::new(
            Classification::CloseAndReopen,
            format!("GitHub reports merge conflicts with `{}`", case.record.base_branch),
        )),
        Mergeable::Clean | Mergeable::Unknown => None,
    }
}

/// 2. The head is behind its base, without conflicts. It matters only if the base demands up-to-date heads (R-DIAG-5).
fn branch_behind(case: &Case<'_>) -> Option<Finding> {
    let live = case.live?;
    let matters = live.strict || case.policy.checks.behind == Behind::Always;
    let behind_by = live.behind_by.filter(|commits| *commits > 0)?;
    let evidence = format!("the head is {behind_by} commit(s) behind `{}`", case.record.base_branch);
    (matters && live.mergeable == Mergeable::Clean).then(|| Finding::new(Classification::UpdateBranch, evidence))
}

/// 3. CHECKS_FAILED, and every red check matches a transient rule. While others are still at work they are left to finish
///    (R-DIAG-6), unless they hang.
fn checks_failed_transient(case: &Case<'_>) -> Option<Finding> {
    let finding = checks_failed(case, Substatus::Transient, Classification::RetryChecks)?;
    let Some(since) = case.record.signals.at_work_since(case.record.required(case.policy)) else {
        return Some(finding);
    };
    let evidence = format!("other checks have been at work since {}", comment::time(since));
    let patience = case.policy.threshold(State::ChecksRunning)?;
    if case.now < saturating_after(since, patience) {
        return Some(Finding { classification: Classification::NoAction, ..finding }.and(evidence));
    }
    Some(Finding { stop_build: true, ..finding }.and(evidence))
}

/// 4. CHECKS_FAILED, and some red check does not.
fn checks_failed_persistent(case: &Case<'_>) -> Option<Finding> {
    checks_failed(case, Substatus::Persistent, Classification::NeedsIntervention)
}

fn checks_failed(case: &Case<'_>, substatus: Substatus, classification: Classification) -> Option<Finding> {
    // A failure without a class is taken for a real one: retrying it blindly would be the worse mistake.
    let known = case.record.substatus.unwrap_or(Substatus::Persistent);
    if case.state() != State::ChecksFailed || known != substatus {
        return None;
    }
    let mut finding = Finding { evidence: Vec::new(), ..Finding::new(classification, "") };
    for check in case.record.signals.failed_checks(case.record.required(case.policy)) {
        finding = finding.and(comment::failed_check(check));
    }
    if finding.evidence.is_empty() {
        finding = finding.and("checks are recorded as failed");
    }
    Some(finding)
}

/// 5. Checks are green and Policy Bot has given no result since, for longer than it may take. A bot that said it started
///    and then fell silent is stale too; only a result newer than our last asking counts (R-DIAG-13).
fn policy_bot_stale(case: &Case<'_>) -> Option<Finding> {
    let waiting = matches!(case.state(), State::ChecksPassed | State::PolicyEvaluating);
    let asked_at = case.asked_at(Strategy::RetriggerPolicyBot).max(case.asked_at(Strategy::RetriggerSodCheck));
    let answered = case.record.signals.policy.as_ref().is_some_and(|report| {
        report.verdict != PolicyVerdict::Evaluating && asked_at.is_none_or(|asked| report.at >= asked)
    });
    (waiting && !answered && case.is_overdue()).then(|| {
        Finding::new(Classification::RetriggerPolicyBot, case.waited()).and(match asked_at {
            None => "Policy Bot has given no result since the checks passed".to_owned(),
            Some(at) => format!("Policy Bot has given no result since it was asked again at {}", comment::time(at)),
        })
    })
}

/// 6. POLICY_FAILED on separation of duties alone: that can be a matter of timing.
fn policy_failed_sod(case: &Case<'_>) -> Option<Finding> {
    let sod = case.state() == State::PolicyFailed && case.record.substatus == Some(Substatus::SodFailure);
    sod.then(|| Finding::new(Classification::RetriggerSodCheck, comment::policy_text(case.record)))
}

/// 7. POLICY_FAILED on anything else: that takes human judgment.
fn policy_failed_other(case: &Case<'_>) -> Option<Finding> {
    let other = case.state() == State::PolicyFailed && case.record.substatus != Some(Substatus::SodFailure);
    other.then(|| Finding::new(Classification::NeedsIntervention, comment::policy_text(case.record)))
}

/// 8. Policy passed and nobody approved, for longer than it may take.
fn approver_bot_stale(case: &Case<'_>) -> Option<Finding> {
    let stale = case.state() == State::PolicyPassed && !case.record.signals.is_approved() && case.is_overdue();
    stale.then(|| {
        Finding::new(Classification::RetriggerApproverBot, case.waited())
            .and("no approver bot's approval stands on this head")
    })
}

/// 9. Approved, and no attempt to merge since (or only failed ones), for longer than it may take.
fn automerge_bot_stale(case: &Case<'_>) -> Option<Finding> {
    let merge = case.record.signals.merge.as_ref();
    let attempted = merge.is_some_and(|report| !report.failed);
    (case.state() == State::Approved && !attempted && case.is_overdue()).then(|| {
        Finding::new(Classification::RetriggerMerge, case.waited()).and(match merge {
            None => "Automerge Bot has not tried to merge this head".to_owned(),
            Some(report) => format!("the merge attempt of {} failed: {}", comment::time(report.at), report.text),
        })
    })
}

/// 9a. Checks never started: most likely the webhook to Jenkins was lost.
fn checks_never_started(case: &Case<'_>) -> Option<Finding> {
    (case.state() == State::Created && case.is_overdue()).then(|| {
        Finding::new(Classification::RetryChecks, case.waited()).and("no check has ever reported on this head")
    })
}

/// 9b. Checks have been running for too long: Jenkins decides.
fn checks_running_too_long(case: &Case<'_>) -> Option<Finding> {
    if case.state() != State::ChecksRunning || !case.is_overdue() {
        return None;
    }
    let twice = case.policy.threshold(State::ChecksRunning)?.saturating_mul(2);
    Some(match case.live.and_then(|live| live.build) {
        Some(Build::Gone) => {
            Finding::new(Classification::RetryChecks, "Jenkins has no build of this head, queued or running")
        }
        Some(Build::Finished) => Finding::new(
            Classification::RetryChecks,
            "Jenkins has finished the build, but GitHub was never told the result",
        ),
        Some(Build::Building { since }) if case.now >= saturating_after(since, twice) => Finding {
            stop_build: true,
            ..Finding::new(
                Classification::RetryChecks,
                format!(
                    "Jenkins has been building since {}: it hangs, and is to be stopped first",
                    comment::time(since)
                ),
            )
        },
        Some(Build::Building { since }) => {
            Finding::new(Classification::NoAction, format!("Jenkins is still building, since {}", comment::time(since)))
        }
        Some(Build::Unreachable) | None if case.record.unanswered >= MAX_SKIPS => Finding::new(
            Classification::NeedsIntervention,
            format!("Jenkins could not be asked about this build {MAX_SKIPS} times in a row"),
        ),
        Some(Build::Unreachable) | None => Finding {
            inconclusive: true,
            ..Finding::new(Classification::NoAction, "Jenkins could not be asked about this build")
        },
    })
    .map(|finding| finding.and(case.waited()))
}

/// Visits in a row that may end with "Jenkins could not be asked" before a person is.
pub const MAX_SKIPS: u32 = 3;

/// 9c. A merge was begun and never finished.
fn merge_never_finished(case: &Case<'_>) -> Option<Finding> {
    (case.state() == State::Merging && case.is_overdue()).then(|| {
        Finding::new(Classification::RetriggerMerge, case.waited()).and("the merge was begun and never finished")
    })
}

/// 10. Still within its normal time: do not intervene yet.
fn still_within_threshold(case: &Case<'_>) -> Option<Finding> {
    (!case.is_overdue()).then(|| Finding::new(Classification::NoAction, case.waited()))
}

/// 11. None of the above: safer to escalate than to guess.
fn fallthrough(case: &Case<'_>) -> Option<Finding> {
    Some(Finding::new(Classification::NeedsIntervention, case.waited()).and("no rule knows this situation"))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::event::Happened;
    use crate::pull_request::Dropped;
    use crate::signals::{MergeReport, Verdict};
    use crate::tests::world::{Tale, approved, merging, minutes, policy_says, run_of, sha};

    /// What a healthy pull request shows: no conflicts, up to date, Jenkins not asked.
    const FINE: Live = Live { mergeable: Mergeable::Clean, behind_by: Some(0), strict: true, build: None };
    const SECOND: SignedDuration = SignedDuration::from_secs(1);

    const LIVE_STATES: [State; 9] = [
        State::Created,
        State::ChecksRunning,
        State::ChecksFailed,
        State::ChecksPassed,
        State::PolicyEvaluating,
        State::PolicyFailed,
        State::PolicyPassed,
        State::Approved,
        State::Merging,
    ];

    /// A pull request that has been in its state for exactly its threshold.
    fn stuck(state: State) -> Tale {
        let mut tale = Tale::at(state);
        tale.now = tale.record().progressed_at + tale.policy.threshold(state).unwrap();
        tale
    }

    /// The same, one second earlier.
    fn almost_stuck(state: State) -> Tale {
        let mut tale = stuck(state);
        tale.now -= SECOND;
        tale
    }

    /// Rule, classification, and the next rule that would have matched.
    fn told(found: &Diagnosis) -> (&'static str, Classification, Option<&'static str>) {
        (found.rule.number, found.classification, found.next.map(|rule| rule.number))
    }

    fn diagnosed(tale: &Tale) -> (&'static str, Classification, Option<&'static str>) {
        told(&tale.diagnose(Some(&FINE)))
    }

    const TOO_EARLY: (&str, Classification, Option<&str>) = ("10", Classification::NoAction, Some("11"));
    const NO_RULE: (&str, Classification, Option<&str>) = ("11", Classification::NeedsIntervention, None);

    #[test]
    fn rules_have_a_fixed_order_and_fixed_titles() {
        let names: Vec<String> = RULES
            .iter()
            .map(|rule| {
                let mark = if rule.extended { "*" } else { "" };
                format!("{}{mark} {}", rule.name.number, rule.name.title)
            })
            .collect();
        assert_eq!(
            names,
            [
                "0 MERGEABILITY UNKNOWN",
                "1 MERGE CONFLICT DETECTED",
                "2 BRANCH BEHIND BASE",
                "3 CHECKS FAILED — TRANSIENT",
                "4 CHECKS FAILED — PERSISTENT",
                "5 POLICY BOT STALE",
                "6 POLICY FAILED — SOD",
                "7 POLICY FAILED — OTHER",
                "8 APPROVER BOT STALE",
                "9 AUTOMERGE BOT STALE",
                "9a* CHECKS NEVER STARTED",
                "9b* CHECKS RUNNING TOO LONG",
                "9c* MERGE NEVER FINISHED",
                "10 STILL WITHIN THRESHOLD",
                "11 FALLTHROUGH",
            ]
        );
    }

    #[test]
    fn each_classification_has_its_name_and_strategy() {
        let table = [
            (Classification::CloseAndReopen, "CLOSE_AND_REOPEN", Some(Strategy::CloseAndReopen)),
            (Classification::UpdateBranch, "UPDATE_BRANCH", Some(Strategy::BranchUpdate)),
            (Classification::RetryChecks, "RETRY_CHECKS", Some(Strategy::Rebuild)),
            (Classification::RetriggerPolicyBot, "RETRIGGER_POLICY_BOT", Some(Strategy::RetriggerPolicyBot)),
            (Classification::RetriggerSodCheck, "RETRIGGER_SOD_CHECK", Some(Strategy::RetriggerSodCheck)),
            (Classification::RetriggerApproverBot, "RETRIGGER_APPROVER_BOT", Some(Strategy::RetriggerApproverBot)),
            (Classification::RetriggerMerge, "RETRIGGER_MERGE", Some(Strategy::RetriggerAutomergeBot)),
            (Classification::NeedsIntervention, "NEEDS_INTERVENTION", None),
            (Classification::NoAction, "NO_ACTION", None),
        ];
        for (classification, name, strategy) in table {
            assert_eq!((classification.name(), classification.strategy()), (name, strategy));
        }
        for strategy in Strategy::ALL {
            assert_eq!(table.iter().filter(|(_, _, of)| *of == Some(strategy)).count(), 1, "{strategy}");
        }
    }

    #[test]
    fn a_diagnosis_says_for_which_state_and_head_it_was_made() {
        let mut tale = stuck(State::Approved);
        tale.record_mut().head_sha = sha('c');
        let found = tale.diagnose(Some(&FINE));
        assert_eq!((found.state, found.head_sha), (State::Approved, sha('c')));
    }

    #[test]
    fn rule_1_merge_conflicts_count_in_every_state_and_at_once() {
        let conflicting = Live { mergeable: Mergeable::Conflicting, ..FINE };
        for state in LIVE_STATES {
            let found = almost_stuck(state).diagnose(Some(&conflicting));
            assert_eq!((found.rule.number, found.classification), ("1", Classification::CloseAndReopen), "{state}");
        }
        let mut tale = almost_stuck(State::Created);
        tale.record_mut().base_branch = "release/2".to_owned();
        let found = tale.diagnose(Some(&conflicting));
        assert_eq!(found.rule, RuleName { number: "1", title: "MERGE CONFLICT DETECTED" });
        assert_eq!(found.evidence, ["GitHub reports merge conflicts with `release/2`"]);
        assert_eq!((found.next.unwrap().number, found.inconclusive, found.overridden), ("10", false, None));
    }

    #[test]
    fn rule_1_is_missed_when_github_does_not_say_conflicting() {
        let tale = almost_stuck(State::Approved);
        assert_eq!(told(&tale.diagnose(Some(&FINE))), TOO_EARLY);
        assert_eq!(told(&tale.diagnose(None)), TOO_EARLY);
    }

    #[test]
    fn rule_0_nothing_is_concluded_while_github_does_not_know() {
        for state in LIVE_STATES {
            let found = stuck(state).diagnose(Some(&Live { behind_by: Some(1), ..Live::default() }));
            assert_eq!((found.rule.number, found.classification), ("0", Classification::NoAction), "{state}");
            assert_eq!(found.evidence, ["GitHub has not worked out yet whether it can be merged"]);
            assert!(!found.inconclusive, "that count is Jenkins'");
        }
    }

    #[test]
    fn rule_2_a_branch_behind_is_updated_in_every_state_and_at_once() {
        let behind = Live { behind_by: Some(1), ..FINE };
        for state in LIVE_STATES {
            let found = almost_stuck(state).diagnose(Some(&behind));
            assert_eq!((found.rule.number, found.classification), ("2", Classification::UpdateBranch), "{state}");
        }
        let found = almost_stuck(State::Approved).diagnose(Some(&Live { behind_by: Some(7), ..FINE }));
        assert_eq!(found.rule, RuleName { number: "2", title: "BRANCH BEHIND BASE" });
        assert_eq!(found.evidence, ["the head is 7 commit(s) behind `main`"]);
        assert_eq!(told(&found), ("2", Classification::UpdateBranch, Some("10")));
        assert!(!found.inconclusive);
    }

    #[test]
    fn rule_2_is_missed_by_each_of_its_conditions() {
        let tale = almost_stuck(State::Approved);
        let behind = Live { behind_by: Some(1), ..FINE };
        for live in [
            Live { behind_by: Some(0), ..behind },
            Live { behind_by: None, ..behind },
            Live { strict: false, ..behind },
        ] {
            assert_eq!(told(&tale.diagnose(Some(&live))), TOO_EARLY, "{live:?}");
        }
        assert_eq!(told(&tale.diagnose(None)), TOO_EARLY);
        let conflicting = tale.diagnose(Some(&Live { mergeable: Mergeable::Conflicting, ..behind }));
        assert_eq!(told(&conflicting), ("1", Classification::CloseAndReopen, Some("10")));
    }

    #[test]
    fn rule_2_needs_no_strict_base_where_behind_is_always_minded() {
        let mut tale = almost_stuck(State::Approved);
        tale.policy.checks.behind = Behind::Always;
        let lax = Live { behind_by: Some(1), strict: false, ..FINE };
        assert_eq!(told(&tale.diagnose(Some(&lax))), ("2", Classification::UpdateBranch, Some("10")));
        let level = Live { behind_by: Some(0), ..lax };
        assert_eq!(told(&tale.diagnose(Some(&level))), TOO_EARLY);
    }

    #[test]
    fn rule_3_a_transient_failure_is_retried() {
        let tale = stuck(State::ChecksFailed);
        let found = tale.diagnose(Some(&FINE));
        assert_eq!(found.rule, RuleName { number: "3", title: "CHECKS FAILED — TRANSIENT" });
        assert_eq!(told(&found), ("3", Classification::RetryChecks, Some("11")));
        assert_eq!(found.evidence, ["`build` failed, transient by rule `timeout`: timeout"]);
        assert_eq!((found.inconclusive, found.overridden), (false, None));
        // Whether it is time already is the sweep's question: nothing about a failure gets clearer with age.
        assert_eq!(diagnosed(&almost_stuck(State::ChecksFailed)), ("3", Classification::RetryChecks, Some("10")));
        assert_eq!(told(&tale.diagnose(None)), ("3", Classification::RetryChecks, Some("11")));
    }

    #[test]
    fn rule_3_is_missed_in_another_state_or_with_another_class() {
        let mut tale = almost_stuck(State::ChecksFailed);
        tale.record_mut().substatus = Some(Substatus::Persistent);
        assert_eq!(diagnosed(&tale), ("4", Classification::NeedsIntervention, Some("10")));
        let mut running = almost_stuck(State::ChecksRunning);
        running.record_mut().substatus = Some(Substatus::Transient);
        assert_eq!(diagnosed(&running), TOO_EARLY);
    }

    #[test]
    fn rule_4_a_persistent_failure_goes_to_a_person() {
        let mut tale = Tale::at(State::ChecksRunning);
        tale.fail("build", None, "3 tests failed");
        tale.fail("scan", Some("network"), "connection reset");
        tale.tell(Happened::Check { head: sha('a'), check: run_of("lint", Verdict::Failed, tale.now) });
        tale.check("docs", Verdict::Passed);
        let found = tale.diagnose(Some(&FINE));
        assert_eq!(found.rule, RuleName { number: "4", title: "CHECKS FAILED — PERSISTENT" });
        assert_eq!(told(&found), ("4", Classification::NeedsIntervention, Some("10")));
        assert_eq!(
            found.evidence,
            [
                "`build` failed: 3 tests failed",
                "`lint` failed and gave no reason",
                "`scan` failed, transient by rule `network`: connection reset",
            ]
        );
        assert_eq!((found.inconclusive, found.overridden), (false, None));
    }

    #[test]
    fn rule_4_takes_a_failure_without_a_class_for_a_real_one() {
        let mut tale = stuck(State::ChecksFailed);
        tale.record_mut().substatus = None;
        tale.record_mut().signals.checks.clear();
        let found = tale.diagnose(Some(&FINE));
        assert_eq!(told(&found), ("4", Classification::NeedsIntervention, Some("11")));
        assert_eq!(found.evidence, ["checks are recorded as failed"]);
        // But a failure of another kind altogether is nobody's.
        tale.record_mut().substatus = Some(Substatus::SodFailure);
        assert_eq!(diagnosed(&tale), NO_RULE);
        let mut running = almost_stuck(State::ChecksRunning);
        running.record_mut().substatus = None;
        assert_eq!(diagnosed(&running), TOO_EARLY);
    }

    #[test]
    fn rule_5_policy_bot_is_woken_when_it_is_silent_for_its_time() {
        for state in [State::ChecksPassed, State::PolicyEvaluating] {
            assert_eq!(diagnosed(&stuck(state)), ("5", Classification::RetriggerPolicyBot, Some("11")), "{state}");
            assert_eq!(diagnosed(&almost_stuck(state)), TOO_EARLY, "{state}");
        }
        let found = stuck(State::ChecksPassed).diagnose(None);
        assert_eq!(found.rule, RuleName { number: "5", title: "POLICY BOT STALE" });
        assert_eq!(
            found.evidence,
            ["in CHECKS_PASSED for 30 min", "Policy Bot has given no result since the checks passed"]
        );
        assert!(!found.inconclusive);
        // A bot that said it started and then fell silent is stale too.
        let started = stuck(State::PolicyEvaluating);
        assert_eq!(started.record().signals.policy.as_ref().unwrap().verdict, PolicyVerdict::Evaluating);
        assert_eq!(started.diagnose(None).evidence[0], "in POLICY_EVALUATING for 30 min");
    }

    #[test]
    fn rule_5_counts_only_results_newer_than_the_last_asking() {
        for asked in [Strategy::RetriggerPolicyBot, Strategy::RetriggerSodCheck] {
            for verdict in [PolicyVerdict::Passed, PolicyVerdict::Failed(Substatus::SodFailure)] {
                let mut tale = stuck(State::PolicyEvaluating);
                let at = tale.record().progressed_at;
                tale.record_mut().signals.policy = Some(policy_says(verdict, at));
                assert_eq!(diagnosed(&tale), NO_RULE, "it has answered");
                tale.record_mut().last_asked.insert(asked, at);
                assert_eq!(diagnosed(&tale), NO_RULE, "an answer in the very second of the asking is one");
                tale.record_mut().last_asked.insert(asked, at + SECOND);
                let found = tale.diagnose(Some(&FINE));
                assert_eq!(told(&found), ("5", Classification::RetriggerPolicyBot, Some("11")), "{asked} {verdict:?}");
                assert_eq!(
                    found.evidence[1],
                    "Policy Bot has given no result since it was asked again at 2026-03-02 09:03 UTC"
                );
            }
        }
    }

    #[test]
    fn rule_5_takes_the_later_of_two_askings_and_none_of_another_bots() {
        let mut tale = stuck(State::PolicyEvaluating);
        let at = tale.record().progressed_at;
        tale.record_mut().signals.policy = Some(policy_says(PolicyVerdict::Passed, at));
        for strategy in [Strategy::Rebuild, Strategy::RetriggerApproverBot, Strategy::RetriggerAutomergeBot] {
            tale.record_mut().last_asked.insert(strategy, at + minutes(2));
        }
        assert_eq!(diagnosed(&tale), NO_RULE);
        tale.record_mut().last_asked.insert(Strategy::RetriggerPolicyBot, at - minutes(1));
        tale.record_mut().last_asked.insert(Strategy::RetriggerSodCheck, at + minutes(1));
        assert!(tale.diagnose(None).evidence[1].ends_with("asked again at 2026-03-02 09:04 UTC"));
        tale.record_mut().last_asked.insert(Strategy::RetriggerPolicyBot, at + minutes(3));
        assert!(tale.diagnose(None).evidence[1].ends_with("asked again at 2026-03-02 09:06 UTC"));
        // A start after the asking is no result either.
        tale.record_mut().signals.policy = Some(policy_says(PolicyVerdict::Evaluating, at + minutes(4)));
        assert_eq!(diagnosed(&tale), ("5", Classification::RetriggerPolicyBot, Some("11")));
    }

    #[test]
    fn rule_6_a_sod_failure_alone_is_worth_a_retry() {
        let mut tale = stuck(State::PolicyFailed);
        let found = tale.diagnose(None);
        assert_eq!(found.rule, RuleName { number: "6", title: "POLICY FAILED — SOD" });
        assert_eq!(told(&found), ("6", Classification::RetriggerSodCheck, Some("11")));
        assert_eq!(found.evidence, ["Policy Bot rejected it (SOD_FAILURE)"]);
        assert_eq!(diagnosed(&almost_stuck(State::PolicyFailed)), ("6", Classification::RetriggerSodCheck, Some("10")));
        tale.record_mut().signals.policy.as_mut().unwrap().text = "author is approver".to_owned();
        assert_eq!(tale.diagnose(None).evidence, ["Policy Bot rejected it (SOD_FAILURE): author is approver"]);
        let mut elsewhere = almost_stuck(State::PolicyPassed);
        elsewhere.record_mut().substatus = Some(Substatus::SodFailure);
        assert_eq!(diagnosed(&elsewhere), TOO_EARLY);
    }

    #[test]
    fn rule_7_any_other_policy_failure_goes_to_a_person() {
        for (substatus, evidence) in [
            (Some(Substatus::BuildFailure), "Policy Bot rejected it (BUILD_FAILURE)"),
            (Some(Substatus::BranchProtectionFailure), "Policy Bot rejected it (BRANCH_PROTECTION_FAILURE)"),
            (Some(Substatus::OtherPolicyFailure), "Policy Bot rejected it (OTHER_POLICY_FAILURE)"),
            (None, "Policy Bot rejected it (no reason given)"),
        ] {
            let mut tale = almost_stuck(State::PolicyFailed);
            tale.record_mut().substatus = substatus;
            let found = tale.diagnose(Some(&FINE));
            assert_eq!(found.rule, RuleName { number: "7", title: "POLICY FAILED — OTHER" });
            assert_eq!(told(&found), ("7", Classification::NeedsIntervention, Some("10")));
            assert_eq!(found.evidence, [evidence]);
        }
    }

    #[test]
    fn rule_8_approver_bot_is_woken_when_nobody_approved_in_time() {
        let mut tale = stuck(State::PolicyPassed);
        let found = tale.diagnose(None);
        assert_eq!(found.rule, RuleName { number: "8", title: "APPROVER BOT STALE" });
        assert_eq!(told(&found), ("8", Classification::RetriggerApproverBot, Some("11")));
        assert_eq!(found.evidence, ["in POLICY_PASSED for 15 min", "no approver bot's approval stands on this head"]);
        assert_eq!(diagnosed(&almost_stuck(State::PolicyPassed)), TOO_EARLY);
        let approval = approved(tale.now);
        tale.record_mut().signals.approvals.push(approval);
        assert_eq!(diagnosed(&tale), NO_RULE, "an approval stands");
        tale.record_mut().signals.approvals[0].granted = false;
        assert_eq!(diagnosed(&tale).0, "8", "it was taken back");
        tale.record_mut().state = State::PolicyEvaluating;
        assert_ne!(diagnosed(&tale).0, "8");
    }

    #[test]
    fn rule_9_automerge_bot_is_woken_when_it_did_not_try_in_time() {
        let mut tale = stuck(State::Approved);
        let found = tale.diagnose(None);
        assert_eq!(found.rule, RuleName { number: "9", title: "AUTOMERGE BOT STALE" });
        assert_eq!(told(&found), ("9", Classification::RetriggerMerge, Some("11")));
        assert_eq!(found.evidence, ["in APPROVED for 10 min", "Automerge Bot has not tried to merge this head"]);
        assert_eq!(diagnosed(&almost_stuck(State::Approved)), TOO_EARLY);
        let at = tale.now - minutes(3);
        tale.record_mut().signals.merge = Some(merging(at));
        assert_eq!(diagnosed(&tale), NO_RULE, "an attempt is under way");
        let failed = MergeReport { failed: true, text: "405 not mergeable".to_owned(), ..merging(at) };
        tale.record_mut().signals.merge = Some(failed);
        assert_eq!(
            tale.diagnose(None).evidence,
            ["in APPROVED for 10 min", "the merge attempt of 2026-03-02 09:12 UTC failed: 405 not mergeable"]
        );
    }

    #[test]
    fn rule_9a_checks_that_never_started_are_run() {
        let tale = stuck(State::Created);
        let found = tale.diagnose(Some(&FINE));
        assert_eq!(found.rule, RuleName { number: "9a", title: "CHECKS NEVER STARTED" });
        assert_eq!(told(&found), ("9a", Classification::RetryChecks, Some("11")));
        assert_eq!(found.evidence, ["in CREATED for 5 min", "no check has ever reported on this head"]);
        assert_eq!(diagnosed(&almost_stuck(State::Created)), TOO_EARLY);
    }

    #[test]
    fn rule_9b_jenkins_decides_about_checks_that_run_too_long() {
        let tale = stuck(State::ChecksRunning);
        let asked = |build| tale.diagnose(Some(&Live { build, ..FINE }));
        let since = tale.now - minutes(120);
        for (build, classification, evidence) in [
            (Build::Gone, Classification::RetryChecks, "Jenkins has no build of this head, queued or running"),
            (
                Build::Finished,
                Classification::RetryChecks,
                "Jenkins has finished the build, but GitHub was never told the result",
            ),
            (
                Build::Building { since: since - SECOND },
                Classification::RetryChecks,
                "Jenkins has been building since 2026-03-02 08:00 UTC: it hangs, and is to be stopped first",
            ),
            (
                Build::Building { since },
                Classification::RetryChecks,
                "Jenkins has been building since 2026-03-02 08:01 UTC: it hangs, and is to be stopped first",
            ),
            (
                Build::Building { since: since + SECOND },
                Classification::NoAction,
                "Jenkins is still building, since 2026-03-02 08:01 UTC",
            ),
        ] {
            let found = asked(Some(build));
            assert_eq!(found.rule, RuleName { number: "9b", title: "CHECKS RUNNING TOO LONG" });
            assert_eq!(told(&found), ("9b", classification, Some("11")), "{build:?}");
            assert_eq!(found.evidence, [evidence, "in CHECKS_RUNNING for 1 h"]);
            assert!(!found.inconclusive, "{build:?}");
        }
    }

    #[test]
    fn rule_9b_follows_the_threshold_for_checks() {
        let mut tale = Tale::at(State::ChecksRunning);
        tale.policy.thresholds_minutes.checks_running = 10;
        tale.now = tale.record().progressed_at + minutes(10);
        let building = |since| Live { build: Some(Build::Building { since }), ..FINE };
        let hanging = tale.diagnose(Some(&building(tale.now - minutes(20))));
        assert_eq!(hanging.classification, Classification::RetryChecks);
        let working = tale.diagnose(Some(&building(tale.now - minutes(20) + SECOND)));
        assert_eq!(working.classification, Classification::NoAction);
    }

    #[test]
    fn rule_9b_is_missed_in_time_and_in_another_state() {
        let gone = Live { build: Some(Build::Gone), ..FINE };
        assert_eq!(told(&almost_stuck(State::ChecksRunning).diagnose(Some(&gone))), TOO_EARLY);
        let created = stuck(State::Created).diagnose(Some(&gone));
        assert_eq!(told(&created), ("9a", Classification::RetryChecks, Some("11")));
    }

    #[test]
    fn rule_9b_comes_back_when_jenkins_cannot_be_asked_and_the_third_time_calls_a_person() {
        let unreachable = Live { build: Some(Build::Unreachable), ..FINE };
        let mut tale = stuck(State::ChecksRunning);
        for live in [Some(&unreachable), Some(&FINE), None] {
            for skips in [0, MAX_SKIPS - 1] {
                tale.record_mut().unanswered = skips;
                let found = tale.diagnose(live);
                assert_eq!(told(&found), ("9b", Classification::NoAction, Some("11")), "{skips} {live:?}");
                assert!(found.inconclusive);
                assert_eq!(
                    found.evidence,
                    ["Jenkins could not be asked about this build", "in CHECKS_RUNNING for 1 h"]
                );
            }
            for skips in [MAX_SKIPS, MAX_SKIPS + 1] {
                tale.record_mut().unanswered = skips;
                let found = tale.diagnose(live);
                assert_eq!(told(&found), ("9b", Classification::NeedsIntervention, Some("11")), "{skips} {live:?}");
                assert!(!found.inconclusive);
                assert_eq!(found.evidence[0], "Jenkins could not be asked about this build 3 times in a row");
            }
        }
        // Three failures to ask are forgotten once Jenkins answers.
        let answered = tale.diagnose(Some(&Live { build: Some(Build::Gone), ..FINE }));
        assert_eq!(answered.classification, Classification::RetryChecks);
    }

    #[test]
    fn rule_9c_a_merge_that_never_finished_is_begun_again() {
        let found = stuck(State::Merging).diagnose(None);
        assert_eq!(found.rule, RuleName { number: "9c", title: "MERGE NEVER FINISHED" });
        assert_eq!(told(&found), ("9c", Classification::RetriggerMerge, Some("11")));
        assert_eq!(found.evidence, ["in MERGING for 5 min", "the merge was begun and never finished"]);
        assert_eq!(diagnosed(&almost_stuck(State::Merging)), TOO_EARLY);
    }

    #[test]
    fn without_extended_rules_stale_states_fall_through() {
        for state in [State::Created, State::ChecksRunning, State::Merging] {
            let mut tale = stuck(state);
            tale.policy.policy.extended_rules = false;
            let gone = Live { build: Some(Build::Gone), ..FINE };
            let found = tale.diagnose(Some(&gone));
            assert_eq!(told(&found), NO_RULE, "{state}");
            assert_eq!(found.rule.title, "FALLTHROUGH");
            assert_eq!(found.evidence[1], "no rule knows this situation");
            tale.now -= SECOND;
            assert_eq!(told(&tale.diagnose(Some(&gone))), TOO_EARLY, "{state}");
        }
        let mut green = stuck(State::ChecksPassed);
        green.policy.policy.extended_rules = false;
        assert_eq!(diagnosed(&green), ("5", Classification::RetriggerPolicyBot, Some("11")));
    }

    #[test]
    fn rule_10_leaves_everything_within_its_time_alone() {
        let found = almost_stuck(State::ChecksRunning).diagnose(Some(&FINE));
        assert_eq!(found.rule, RuleName { number: "10", title: "STILL WITHIN THRESHOLD" });
        assert_eq!(told(&found), TOO_EARLY);
        assert_eq!(found.evidence, ["in CHECKS_RUNNING for 59 min"]);
        assert_eq!((found.inconclusive, found.overridden), (false, None));
        // Nothing is waited for where a person decides, or where it is over.
        for state in [State::NeedsIntervention, State::Merged, State::Closed] {
            let mut tale = Tale::at(State::Created);
            tale.record_mut().state = state;
            tale.pass(100_000);
            assert_eq!(diagnosed(&tale), TOO_EARLY, "{state}");
        }
    }

    #[test]
    fn rule_10_gives_a_bot_just_woken_its_time_again() {
        let mut tale = stuck(State::ChecksPassed);
        let woken_at = tale.now;
        let record = tale.record_mut();
        record.last_remediation_at = Some(woken_at);
        record.remediation_action = Some(Strategy::RetriggerPolicyBot);
        record.retry_counts.retrigger_policy_bot = 1;
        tale.now = woken_at + minutes(30) + SECOND * 29;
        assert_eq!(diagnosed(&tale), TOO_EARLY);
        tale.now += SECOND;
        assert_eq!(diagnosed(&tale), ("5", Classification::RetriggerPolicyBot, Some("11")));
    }

    #[test]
    fn rule_11_calls_a_person_where_no_rule_knows_better() {
        let mut tale = stuck(State::PolicyPassed);
        let approval = approved(tale.now);
        tale.record_mut().signals.approvals.push(approval);
        let found = tale.diagnose(Some(&FINE));
        assert_eq!(found.rule, RuleName { number: "11", title: "FALLTHROUGH" });
        assert_eq!(told(&found), NO_RULE);
        assert_eq!(found.evidence, ["in POLICY_PASSED for 15 min", "no rule knows this situation"]);
        assert_eq!((found.inconclusive, found.overridden), (false, None));
    }

    #[test]
    fn of_several_rules_that_match_the_first_decides_and_the_second_is_named() {
        let behind = Live { behind_by: Some(2), ..FINE };
        let conflicting = Live { mergeable: Mergeable::Conflicting, ..behind };
        for (state, live, expected) in [
            (State::ChecksFailed, conflicting, ("1", Classification::CloseAndReopen, Some("3"))),
            (State::ChecksFailed, behind, ("2", Classification::UpdateBranch, Some("3"))),
            (State::PolicyFailed, conflicting, ("1", Classification::CloseAndReopen, Some("6"))),
            (State::PolicyFailed, behind, ("2", Classification::UpdateBranch, Some("6"))),
            (State::ChecksPassed, behind, ("2", Classification::UpdateBranch, Some("5"))),
            (State::PolicyPassed, behind, ("2", Classification::UpdateBranch, Some("8"))),
            (State::Approved, behind, ("2", Classification::UpdateBranch, Some("9"))),
            (State::Created, behind, ("2", Classification::UpdateBranch, Some("9a"))),
            (State::ChecksRunning, conflicting, ("1", Classification::CloseAndReopen, Some("9b"))),
            (State::Merging, conflicting, ("1", Classification::CloseAndReopen, Some("9c"))),
        ] {
            assert_eq!(told(&stuck(state).diagnose(Some(&live))), expected, "{state}");
        }
    }

    /// For each strategy a pull request that needs it, and what GitHub says about it.
    fn in_need_of(strategy: Strategy) -> (Tale, Live, Classification) {
        let conflicting = Live { mergeable: Mergeable::Conflicting, ..FINE };
        let behind = Live { behind_by: Some(1), ..FINE };
        match strategy {
            Strategy::Rebuild => (stuck(State::ChecksFailed), FINE, Classification::RetryChecks),
            Strategy::BranchUpdate => (stuck(State::Approved), behind, Classification::UpdateBranch),
            Strategy::RetriggerPolicyBot => (stuck(State::ChecksPassed), FINE, Classification::RetriggerPolicyBot),
            Strategy::RetriggerApproverBot => (stuck(State::PolicyPassed), FINE, Classification::RetriggerApproverBot),
            Strategy::RetriggerAutomergeBot => (stuck(State::Approved), FINE, Classification::RetriggerMerge),
            Strategy::RetriggerSodCheck => (stuck(State::PolicyFailed), FINE, Classification::RetriggerSodCheck),
            Strategy::CloseAndReopen => (stuck(State::Approved), conflicting, Classification::CloseAndReopen),
        }
    }

    fn spend(tale: &mut Tale, strategy: Strategy, times: u32) {
        for _ in 0..times {
            tale.record_mut().retry_counts.count(strategy);
        }
    }

    #[test]
    fn spent_budget_overrides_the_rule_and_says_so() {
        for (strategy, max, sentence) in [
            (Strategy::Rebuild, 3, "Retry budget exhausted for rebuild (3/3)"),
            (Strategy::BranchUpdate, 2, "Retry budget exhausted for branch_update (2/2)"),
            (Strategy::RetriggerPolicyBot, 2, "Retry budget exhausted for retrigger_policy_bot (2/2)"),
            (Strategy::RetriggerApproverBot, 2, "Retry budget exhausted for retrigger_approver_bot (2/2)"),
            (Strategy::RetriggerAutomergeBot, 2, "Retry budget exhausted for retrigger_automerge_bot (2/2)"),
            (Strategy::RetriggerSodCheck, 1, "Retry budget exhausted for retrigger_sod_check (1/1)"),
            (Strategy::CloseAndReopen, 1, "Retry budget exhausted for close_and_reopen (1/1)"),
        ] {
            let (mut tale, live, classification) = in_need_of(strategy);
            spend(&mut tale, strategy, max - 1);
            let before = tale.diagnose(Some(&live));
            assert_eq!((before.classification, before.overridden), (classification, None), "{strategy}");
            spend(&mut tale, strategy, 1);
            let after = tale.diagnose(Some(&live));
            assert_eq!(after.classification, Classification::NeedsIntervention, "{strategy}");
            assert_eq!(after.overridden, Some((classification, sentence.to_owned())));
            // It still says which rule matched, and why.
            assert_eq!((after.rule, after.evidence, after.next), (before.rule, before.evidence, before.next));
        }
    }

    #[test]
    fn a_spent_budget_of_another_strategy_overrides_nothing() {
        for strategy in Strategy::ALL {
            let (mut tale, live, classification) = in_need_of(strategy);
            for other in Strategy::ALL.into_iter().filter(|other| *other != strategy) {
                spend(&mut tale, other, 9);
            }
            let found = tale.diagnose(Some(&live));
            assert_eq!((found.classification, found.overridden), (classification, None), "{strategy}");
        }
    }

    #[test]
    fn the_lifetime_cap_overrides_every_strategy() {
        for strategy in Strategy::ALL {
            let (mut tale, live, classification) = in_need_of(strategy);
            tale.record_mut().lifetime_remedies = 11;
            assert_eq!(tale.diagnose(Some(&live)).classification, classification, "{strategy}");
            tale.record_mut().lifetime_remedies = 12;
            let found = tale.diagnose(Some(&live));
            assert_eq!(found.classification, Classification::NeedsIntervention);
            let sentence = "Retry budget exhausted for lifetime (12/12)".to_owned();
            assert_eq!(found.overridden, Some((classification, sentence)), "{strategy}");
        }
        // What spends nothing is not overridden.
        let mut waiting = almost_stuck(State::Approved);
        waiting.record_mut().lifetime_remedies = 12;
        assert_eq!(diagnosed(&waiting), TOO_EARLY);
    }

    /// The simulation's seed 9 of a hundred: the sweep knew no build of the head, the Car Bridge found one at work, and the rebuild
    /// was decided and dropped every ten minutes, for six days.
    #[test]
    fn what_is_decided_and_dropped_again_and_again_is_a_persons() {
        for strategy in Strategy::ALL {
            let (mut tale, live, classification) = in_need_of(strategy);
            let at = tale.now - minutes(120);
            tale.record_mut().dropped = Some(Dropped { count: 23, at });
            assert_eq!(tale.diagnose(Some(&live)).classification, classification, "{strategy}");
            tale.record_mut().dropped = Some(Dropped { count: 24, at });
            let found = tale.diagnose(Some(&live));
            let why = format!("{strategy} was decided 24 times in a row, and each time something was in its way");
            assert_eq!(found.overridden, Some((classification, why)));
            assert_eq!(found.classification, Classification::NeedsIntervention);
        }
    }

    #[test]
    fn close_and_reopen_is_counted_on_the_vulnerability_whatever_the_record_says() {
        let (mut tale, live, classification) = in_need_of(Strategy::CloseAndReopen);
        tale.vulnerability.close_and_reopen = 1;
        assert_eq!(tale.record().retry_counts.close_and_reopen, 0);
        let found = tale.diagnose(Some(&live));
        let sentence = "Retry budget exhausted for close_and_reopen (1/1)".to_owned();
        assert_eq!(found.overridden, Some((classification, sentence)));
        assert_eq!(found.classification, Classification::NeedsIntervention);
        // Without a row there is nothing to count; and no other strategy cares.
        let record = tale.record();
        let case = Case { record, live: Some(&live), vulnerability: None, policy: &tale.policy, now: tale.now };
        assert_eq!((classify(&case).classification, classify(&case).overridden), (classification, None));
        let other = in_need_of(Strategy::RetriggerAutomergeBot).1;
        assert_eq!(tale.diagnose(Some(&other)).classification, Classification::RetriggerMerge);
    }

    #[test]
    fn the_same_case_is_always_diagnosed_the_same() {
        for strategy in Strategy::ALL {
            let (tale, live, _) = in_need_of(strategy);
            assert_eq!(tale.diagnose(Some(&live)), tale.clone().diagnose(Some(&live)));
        }
    }

    #[test]
    fn rule_3_leaves_checks_that_are_at_work_to_finish_unless_they_hang() {
        let mut tale = Tale::at(State::ChecksRunning);
        tale.check("integration", Verdict::Running);
        tale.fail("build", Some("timeout"), "timeout");
        tale.pass(57);
        let found = tale.diagnose(Some(&FINE));
        assert_eq!((found.rule.number, found.classification, found.stop_build), ("3", Classification::NoAction, false));
        assert_eq!(found.evidence[1], "other checks have been at work since 2026-03-02 09:00 UTC");
        tale.pass(1);
        let found = tale.diagnose(Some(&FINE));
        assert_eq!((found.classification, found.stop_build), (Classification::RetryChecks, true));
        // What nobody requires may hang as long as it likes.
        tale.record_mut().required_checks = vec!["build".to_owned()];
        let found = tale.diagnose(Some(&FINE));
        assert_eq!((found.classification, found.stop_build), (Classification::RetryChecks, false));
    }

    #[test]
    fn only_a_hanging_build_is_stopped() {
        let tale = stuck(State::ChecksRunning);
        let build = |build| tale.diagnose(Some(&Live { build: Some(build), ..FINE }));
        assert!(build(Build::Building { since: tale.now - minutes(120) }).stop_build);
        for other in
            [Build::Building { since: tale.now - minutes(119) }, Build::Gone, Build::Finished, Build::Unreachable]
        {
            assert!(!build(other).stop_build, "{other:?}");
        }
    }

    #[test]
    fn only_required_checks_are_evidence() {
        let mut tale = Tale::at(State::ChecksRunning);
        tale.fail("advice", None, "no opinion");
        tale.fail("build", Some("timeout"), "timeout");
        assert_eq!(stuck_evidence(&mut tale).len(), 2, "without a list every check counts");
        tale.record_mut().required_checks = vec!["build".to_owned()];
        tale.record_mut().substatus = Some(Substatus::Transient);
        assert_eq!(stuck_evidence(&mut tale), ["`build` failed, transient by rule `timeout`: timeout"]);
    }

    fn stuck_evidence(tale: &mut Tale) -> Vec<String> {
        tale.pass(30);
        tale.diagnose(Some(&FINE)).evidence
    }
}
