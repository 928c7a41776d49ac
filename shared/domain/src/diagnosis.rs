//! The classifier (R-DIAG-1, R-DIAG-2): finds out why a pull request is stuck, and which remedy applies. An ordered
//! list of rules with fixed numbers; the first match decides, and every result has its evidence. Stateless and
//! deterministic. The remedies are in `remedy`.

use jiff::Timestamp;

use crate::budget;
use crate::id::Sha;
use crate::policy::{BehindRule, Policy};
use crate::pull_request::{PullRequest, Vulnerability};
use crate::signals::PolicyVerdict;
use crate::snapshot::{BuildStatus, LiveStatus, Mergeability};
use crate::state::{State, Strategy, Substatus};
use crate::text;
use crate::time::saturating_after;

/// The input of the classifier.
#[derive(Debug, Clone, Copy)]
pub struct DiagnosisInput<'a> {
    /// The record, after verification with GitHub.
    pub record: &'a PullRequest,
    /// The current status in GitHub and Jenkins; `None` if it was not read (for `/explain`).
    pub live: Option<&'a LiveStatus>,
    /// The row of the vulnerability, for the budget that never resets.
    pub vulnerability: Option<&'a Vulnerability>,
    pub policy: &'a Policy,
    pub now: Timestamp,
}

named! {
    /// What to do about a pull request.
    pub enum Classification {
        /// Close it, and request a replacement.
        CloseAndReopen = "CLOSE_AND_REOPEN",
        UpdateBranch = "UPDATE_BRANCH",
        RetryChecks = "RETRY_CHECKS",
        RetriggerPolicyBot = "RETRIGGER_POLICY_BOT",
        /// Run the SOD validator again.
        RetriggerSodCheck = "RETRIGGER_SOD_CHECK",
        RetriggerApproverBot = "RETRIGGER_APPROVER_BOT",
        RetriggerMerge = "RETRIGGER_MERGE",
        NeedsIntervention = "NEEDS_INTERVENTION",
        NoAction = "NO_ACTION",
    }
}

impl Classification {
    /// The strategy, which also has the budget.
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

/// Number and title of a rule, for evidence, mails and explanations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleName {
    /// Extended rules are 9a to 9c, since they come before rule 10.
    pub number: &'static str,
    pub title: &'static str,
}

/// The result of the classifier.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// The state of the record at the diagnosis. If the record has changed since, the diagnosis is void.
    pub state: State,
    pub head_sha: Sha,
    /// What to do, after the budget check.
    pub classification: Classification,
    pub rule: RuleName,
    pub evidence: Vec<String>,
    /// The next rule that would have matched.
    pub next: Option<RuleName>,
    /// Set if a limit overrode the rule: the classification of the rule, and why it was overridden (R-DIAG-21).
    pub overridden: Option<(Classification, String)>,
    /// Whether the running build hangs, and has to be stopped before another one is started.
    pub stop_build: bool,
    /// What did not answer. Such visits are counted, and escalate when they repeat (R-DIAG-16, R-DIAG-24).
    pub inconclusive: Option<InconclusiveCause>,
}

/// What did not answer, so that no rule could decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InconclusiveCause {
    /// Jenkins could not be reached.
    Jenkins,
    /// GitHub has not computed whether the head can be merged.
    Mergeability,
}

/// The result of a matching rule.
struct RuleFinding {
    classification: Classification,
    evidence: Vec<String>,
    inconclusive: Option<InconclusiveCause>,
    stop_build: bool,
}

impl RuleFinding {
    fn new(classification: Classification, evidence: impl Into<String>) -> Self {
        Self { classification, evidence: vec![evidence.into()], inconclusive: None, stop_build: false }
    }

    fn and(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }
}

struct DiagnosisRule {
    name: RuleName,
    extended: bool,
    check: fn(&DiagnosisInput<'_>) -> Option<RuleFinding>,
}

const fn standard(
    number: &'static str,
    title: &'static str,
    check: fn(&DiagnosisInput<'_>) -> Option<RuleFinding>,
) -> DiagnosisRule {
    DiagnosisRule { name: RuleName { number, title }, extended: false, check }
}

const fn extended(
    number: &'static str,
    title: &'static str,
    check: fn(&DiagnosisInput<'_>) -> Option<RuleFinding>,
) -> DiagnosisRule {
    DiagnosisRule { name: RuleName { number, title }, extended: true, check }
}

const RULES: [DiagnosisRule; 15] = [
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

/// The number of the rule with this title.
pub fn rule_number(title: &str) -> Option<&'static str> {
    RULES.iter().map(|rule| rule.name).find(|name| name.title == title).map(|name| name.number)
}

/// Dropped remedies in a row before an escalation. Drops cost no budget, so without this limit they could repeat for
/// ever when reconciler and Car Bridge see different things.
const MAX_DROPS: u32 = 24;

/// Applies the first rule that matches, then checks the budget (R-DIAG-2, R-DIAG-21).
pub fn classify(case: &DiagnosisInput<'_>) -> Diagnosis {
    let mut matching = RULES
        .iter()
        .filter(|rule| !rule.extended || case.policy.rules.extended)
        .filter_map(|rule| (rule.check)(case).map(|finding| (rule.name, finding)));
    // Rule 11 always matches, so the default is never used.
    let (rule, finding) = matching.next().unwrap_or_else(|| {
        let last = RuleName { number: "11", title: "FALLTHROUGH" };
        (last, RuleFinding::new(Classification::NeedsIntervention, "no rule matched"))
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
        } else if let Some(drops) = record.dropped.as_ref().filter(|drops| drops.count >= MAX_DROPS) {
            let why = format!("{strategy} was blocked {} times in a row", drops.count);
            diagnosis.overridden = Some((diagnosis.classification, why));
            diagnosis.classification = Classification::NeedsIntervention;
        }
    }
    diagnosis
}

impl DiagnosisInput<'_> {
    fn state(&self) -> State {
        self.record.state
    }

    /// Whether the state has lasted longer than its threshold allows.
    fn is_overdue(&self) -> bool {
        self.record.stale_at(self.policy).is_some_and(|at| self.now >= at)
    }

    fn time_in_state(&self) -> String {
        text::time_in_state(self.state(), self.now.duration_since(self.record.state_since))
    }

    fn last_retrigger(&self, strategy: Strategy) -> Option<Timestamp> {
        self.record.last_requested.get(&strategy).copied()
    }
}

/// 0. GitHub has not computed yet whether the head can be merged. That neither shows nor excludes a conflict (R-DIAG-3), so no
///    other rule is applied. GitHub normally computes it within seconds: the third visit in a row needs a person (R-DIAG-24).
fn mergeability_unknown(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    if case.live?.mergeable != Mergeability::Unknown || case.record.has_conflict(case.live) {
        return None;
    }
    let visits = case.record.unknown_mergeable_visits.saturating_add(1);
    if visits >= MAX_SKIPS {
        return Some(RuleFinding::new(Classification::NeedsIntervention, text::mergeability_unknown(visits)));
    }
    Some(RuleFinding {
        inconclusive: Some(InconclusiveCause::Mergeability),
        ..RuleFinding::new(Classification::NoAction, "GitHub has not computed mergeability yet")
    })
}

/// 1. GitHub reports merge conflicts on the pull request, or refused a branch update because of one (R-DIAG-23).
fn merge_conflict(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    let evidence = match case.record.base_conflict {
        Some(_) => "GitHub refused to merge the base: conflict".to_owned(),
        None => format!("GitHub reports merge conflicts with `{}`", case.record.base_branch),
    };
    let conflict = case.record.has_conflict(case.live);
    conflict.then(|| RuleFinding::new(Classification::CloseAndReopen, evidence))
}

/// 2. The head is behind its base, without conflicts. Applies only if the base requires up-to-date heads (R-DIAG-5).
fn branch_behind(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    let live = case.live?;
    let matters = live.strict || case.policy.checks.behind == BehindRule::Always;
    let behind_by = live.behind_by.filter(|commits| *commits > 0)?;
    let evidence = format!("the head is {behind_by} commit(s) behind `{}`", case.record.base_branch);
    (matters && live.mergeable == Mergeability::Clean).then(|| RuleFinding::new(Classification::UpdateBranch, evidence))
}

/// 3. CHECKS_FAILED, and every failed check matches a transient rule. Waits for checks that are still running (R-DIAG-6),
///    unless they hang.
fn checks_failed_transient(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    let finding = checks_failed(case, Substatus::Transient, Classification::RetryChecks)?;
    let Some(since) = case.record.signals.running_since(case.record.required(case.policy)) else {
        return Some(finding);
    };
    let evidence = format!("other checks have been running since {}", text::time(since));
    let threshold = case.policy.threshold(State::ChecksRunning)?;
    if case.now < saturating_after(since, threshold) {
        return Some(RuleFinding { classification: Classification::NoAction, ..finding }.and(evidence));
    }
    Some(RuleFinding { stop_build: true, ..finding }.and(evidence))
}

/// 4. CHECKS_FAILED, and at least one failed check matches no transient rule.
fn checks_failed_persistent(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    checks_failed(case, Substatus::Persistent, Classification::NeedsIntervention)
}

fn checks_failed(
    case: &DiagnosisInput<'_>,
    substatus: Substatus,
    classification: Classification,
) -> Option<RuleFinding> {
    // A failure without a substatus counts as persistent: a pointless retry would be the worse mistake.
    let known = case.record.substatus.unwrap_or(Substatus::Persistent);
    if case.state() != State::ChecksFailed || known != substatus {
        return None;
    }
    let mut finding = RuleFinding { evidence: Vec::new(), ..RuleFinding::new(classification, "") };
    for check in case.record.signals.failed_checks(case.record.required(case.policy)) {
        finding = finding.and(text::failed_check(check));
    }
    if finding.evidence.is_empty() {
        finding = finding.and("checks are recorded as failed");
    }
    Some(finding)
}

/// 5. Checks are green, and Policy Bot has reported no result since, for longer than the threshold. A bot that reported only
///    its start is stale too; only a result newer than the last retrigger counts (R-DIAG-13).
fn policy_bot_stale(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    let waiting = matches!(case.state(), State::ChecksPassed | State::PolicyEvaluating);
    let retriggered_at =
        case.last_retrigger(Strategy::RetriggerPolicyBot).max(case.last_retrigger(Strategy::RetriggerSodCheck));
    let answered = case.record.signals.policy.as_ref().is_some_and(|report| {
        report.verdict != PolicyVerdict::Evaluating && retriggered_at.is_none_or(|at| report.at >= at)
    });
    (waiting && !answered && case.is_overdue()).then(|| {
        RuleFinding::new(Classification::RetriggerPolicyBot, case.time_in_state()).and(match retriggered_at {
            None => "Policy Bot has reported no result since the checks passed".to_owned(),
            Some(at) => format!("Policy Bot has reported no result since it was retriggered at {}", text::time(at)),
        })
    })
}

/// 6. POLICY_FAILED by separation of duties alone, which can be a matter of timing.
fn policy_failed_sod(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    let sod = case.state() == State::PolicyFailed && case.record.substatus == Some(Substatus::SodFailure);
    sod.then(|| RuleFinding::new(Classification::RetriggerSodCheck, text::policy_text(case.record)))
}

/// 7. POLICY_FAILED by any other policy, which needs a person.
fn policy_failed_other(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    let other = case.state() == State::PolicyFailed && case.record.substatus != Some(Substatus::SodFailure);
    other.then(|| RuleFinding::new(Classification::NeedsIntervention, text::policy_text(case.record)))
}

/// 8. Policy passed, and no approval for longer than the threshold.
fn approver_bot_stale(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    let stale = case.state() == State::PolicyPassed && !case.record.signals.is_approved() && case.is_overdue();
    stale.then(|| {
        RuleFinding::new(Classification::RetriggerApproverBot, case.time_in_state())
            .and("this head has no approval by an approver bot")
    })
}

/// 9. Approved, and no merge attempt since (or only failed ones) for longer than the threshold.
fn automerge_bot_stale(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    let merge = case.record.signals.merge.as_ref();
    let attempted = merge.is_some_and(|report| !report.failed);
    (case.state() == State::Approved && !attempted && case.is_overdue()).then(|| {
        RuleFinding::new(Classification::RetriggerMerge, case.time_in_state()).and(match merge {
            None => "Automerge Bot has not attempted to merge this head".to_owned(),
            Some(report) => format!("the merge attempt at {} failed: {}", text::time(report.at), report.text),
        })
    })
}

/// 9a. Checks never started, most likely because a webhook to Jenkins was lost.
fn checks_never_started(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    (case.state() == State::Created && case.is_overdue()).then(|| {
        RuleFinding::new(Classification::RetryChecks, case.time_in_state())
            .and("no check has ever reported on this head")
    })
}

/// 9b. Checks have been running for longer than the threshold: the Jenkins build decides.
fn checks_running_too_long(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    if case.state() != State::ChecksRunning || !case.is_overdue() {
        return None;
    }
    let twice = case.policy.threshold(State::ChecksRunning)?.saturating_mul(2);
    Some(match case.live.and_then(|live| live.build) {
        Some(BuildStatus::Gone) => {
            RuleFinding::new(Classification::RetryChecks, "Jenkins has no build of this head, queued or running")
        }
        Some(BuildStatus::Finished) => RuleFinding::new(
            Classification::RetryChecks,
            "Jenkins finished the build, but its result never reached GitHub",
        ),
        Some(BuildStatus::Building { since }) if case.now >= saturating_after(since, twice) => RuleFinding {
            stop_build: true,
            ..RuleFinding::new(
                Classification::RetryChecks,
                format!(
                    "the Jenkins build has been running since {}: it hangs, and will be stopped first",
                    text::time(since)
                ),
            )
        },
        Some(BuildStatus::Building { since }) => RuleFinding::new(
            Classification::NoAction,
            format!("the Jenkins build is still running, since {}", text::time(since)),
        ),
        Some(BuildStatus::Unreachable) | None if case.record.inconclusive_visits >= MAX_SKIPS => RuleFinding::new(
            Classification::NeedsIntervention,
            format!("Jenkins could not be reached {MAX_SKIPS} times in a row"),
        ),
        Some(BuildStatus::Unreachable) | None => RuleFinding {
            inconclusive: Some(InconclusiveCause::Jenkins),
            ..RuleFinding::new(Classification::NoAction, "Jenkins could not be reached")
        },
    })
    .map(|finding| finding.and(case.time_in_state()))
}

/// Consecutive visits without an answer of Jenkins, or of GitHub about mergeability, before an escalation.
pub const MAX_SKIPS: u32 = 3;

/// 9c. A merge was started and never finished.
fn merge_never_finished(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    (case.state() == State::Merging && case.is_overdue()).then(|| {
        RuleFinding::new(Classification::RetriggerMerge, case.time_in_state())
            .and("the merge was started and never finished")
    })
}

/// 10. Still within the threshold: do not intervene yet.
fn still_within_threshold(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    (!case.is_overdue()).then(|| RuleFinding::new(Classification::NoAction, case.time_in_state()))
}

/// 11. No rule matches: escalating is safer than guessing.
fn fallthrough(case: &DiagnosisInput<'_>) -> Option<RuleFinding> {
    Some(
        RuleFinding::new(Classification::NeedsIntervention, case.time_in_state()).and("no rule matches this situation"),
    )
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::event::FactKind;
    use crate::pull_request::DroppedRemedies;
    use crate::signals::{CheckVerdict, MergeReport};
    use crate::tests::fixture::{PrScenario, approved, merging, minutes, policy_says, run_of, sha};

    /// A healthy pull request: no conflicts, up to date, Jenkins not read.
    const FINE: LiveStatus =
        LiveStatus { mergeable: Mergeability::Clean, behind_by: Some(0), strict: true, build: None };
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
    fn stuck(state: State) -> PrScenario {
        let mut scenario = PrScenario::at(state);
        scenario.now = scenario.record().state_since + scenario.policy.threshold(state).unwrap();
        scenario
    }

    /// The same, one second earlier.
    fn almost_stuck(state: State) -> PrScenario {
        let mut scenario = stuck(state);
        scenario.now -= SECOND;
        scenario
    }

    /// Rule, classification, and the next rule that would have matched.
    fn summary(found: &Diagnosis) -> (&'static str, Classification, Option<&'static str>) {
        (found.rule.number, found.classification, found.next.map(|rule| rule.number))
    }

    fn diagnosed(scenario: &PrScenario) -> (&'static str, Classification, Option<&'static str>) {
        summary(&scenario.diagnose(Some(&FINE)))
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
    fn diagnosis_has_the_state_and_head_of_the_record() {
        let mut scenario = stuck(State::Approved);
        scenario.record_mut().head_sha = sha('c');
        let found = scenario.diagnose(Some(&FINE));
        assert_eq!((found.state, found.head_sha), (State::Approved, sha('c')));
    }

    #[test]
    fn rule_1_matches_conflicts_in_every_state_without_delay() {
        let conflicting = LiveStatus { mergeable: Mergeability::Conflicting, ..FINE };
        for state in LIVE_STATES {
            let found = almost_stuck(state).diagnose(Some(&conflicting));
            assert_eq!((found.rule.number, found.classification), ("1", Classification::CloseAndReopen), "{state}");
        }
        let mut scenario = almost_stuck(State::Created);
        scenario.record_mut().base_branch = "release/2".to_owned();
        let found = scenario.diagnose(Some(&conflicting));
        assert_eq!(found.rule, RuleName { number: "1", title: "MERGE CONFLICT DETECTED" });
        assert_eq!(found.evidence, ["GitHub reports merge conflicts with `release/2`"]);
        assert_eq!((found.next.unwrap().number, found.inconclusive, found.overridden), ("10", None, None));
    }

    #[test]
    fn rule_1_does_not_match_without_a_conflict() {
        let scenario = almost_stuck(State::Approved);
        assert_eq!(summary(&scenario.diagnose(Some(&FINE))), TOO_EARLY);
        assert_eq!(summary(&scenario.diagnose(None)), TOO_EARLY);
    }

    #[test]
    fn rule_0_takes_no_action_while_mergeability_is_unknown() {
        for state in LIVE_STATES {
            let found = stuck(state).diagnose(Some(&LiveStatus { behind_by: Some(1), ..LiveStatus::default() }));
            assert_eq!((found.rule.number, found.classification), ("0", Classification::NoAction), "{state}");
            assert_eq!(found.evidence, ["GitHub has not computed mergeability yet"]);
            assert_eq!(found.inconclusive, Some(InconclusiveCause::Mergeability));
        }
    }

    #[test]
    fn rule_2_matches_a_branch_behind_in_every_state_without_delay() {
        let behind = LiveStatus { behind_by: Some(1), ..FINE };
        for state in LIVE_STATES {
            let found = almost_stuck(state).diagnose(Some(&behind));
            assert_eq!((found.rule.number, found.classification), ("2", Classification::UpdateBranch), "{state}");
        }
        let found = almost_stuck(State::Approved).diagnose(Some(&LiveStatus { behind_by: Some(7), ..FINE }));
        assert_eq!(found.rule, RuleName { number: "2", title: "BRANCH BEHIND BASE" });
        assert_eq!(found.evidence, ["the head is 7 commit(s) behind `main`"]);
        assert_eq!(summary(&found), ("2", Classification::UpdateBranch, Some("10")));
        assert_eq!(found.inconclusive, None);
    }

    #[test]
    fn rule_2_needs_all_of_its_conditions() {
        let scenario = almost_stuck(State::Approved);
        let behind = LiveStatus { behind_by: Some(1), ..FINE };
        for live in [
            LiveStatus { behind_by: Some(0), ..behind },
            LiveStatus { behind_by: None, ..behind },
            LiveStatus { strict: false, ..behind },
        ] {
            assert_eq!(summary(&scenario.diagnose(Some(&live))), TOO_EARLY, "{live:?}");
        }
        assert_eq!(summary(&scenario.diagnose(None)), TOO_EARLY);
        let conflicting = scenario.diagnose(Some(&LiveStatus { mergeable: Mergeability::Conflicting, ..behind }));
        assert_eq!(summary(&conflicting), ("1", Classification::CloseAndReopen, Some("10")));
    }

    #[test]
    fn rule_2_ignores_strict_if_behind_is_always() {
        let mut scenario = almost_stuck(State::Approved);
        scenario.policy.checks.behind = BehindRule::Always;
        let lax = LiveStatus { behind_by: Some(1), strict: false, ..FINE };
        assert_eq!(summary(&scenario.diagnose(Some(&lax))), ("2", Classification::UpdateBranch, Some("10")));
        let level = LiveStatus { behind_by: Some(0), ..lax };
        assert_eq!(summary(&scenario.diagnose(Some(&level))), TOO_EARLY);
    }

    #[test]
    fn rule_3_retries_a_transient_failure() {
        let scenario = stuck(State::ChecksFailed);
        let found = scenario.diagnose(Some(&FINE));
        assert_eq!(found.rule, RuleName { number: "3", title: "CHECKS FAILED — TRANSIENT" });
        assert_eq!(summary(&found), ("3", Classification::RetryChecks, Some("11")));
        assert_eq!(found.evidence, ["`build` failed, transient by rule `timeout`: timeout"]);
        assert_eq!((found.inconclusive, found.overridden), (None, None));
        // The rule does not depend on the threshold; the sweep only visits stale pull requests.
        assert_eq!(diagnosed(&almost_stuck(State::ChecksFailed)), ("3", Classification::RetryChecks, Some("10")));
        assert_eq!(summary(&scenario.diagnose(None)), ("3", Classification::RetryChecks, Some("11")));
    }

    #[test]
    fn rule_3_needs_its_state_and_substatus() {
        let mut scenario = almost_stuck(State::ChecksFailed);
        scenario.record_mut().substatus = Some(Substatus::Persistent);
        assert_eq!(diagnosed(&scenario), ("4", Classification::NeedsIntervention, Some("10")));
        let mut running = almost_stuck(State::ChecksRunning);
        running.record_mut().substatus = Some(Substatus::Transient);
        assert_eq!(diagnosed(&running), TOO_EARLY);
    }

    #[test]
    fn rule_4_escalates_a_persistent_failure() {
        let mut scenario = PrScenario::at(State::ChecksRunning);
        scenario.fail("build", None, "3 tests failed");
        scenario.fail("scan", Some("network"), "connection reset");
        scenario.apply(FactKind::Check { head: sha('a'), check: run_of("lint", CheckVerdict::Failed, scenario.now) });
        scenario.check("docs", CheckVerdict::Passed);
        let found = scenario.diagnose(Some(&FINE));
        assert_eq!(found.rule, RuleName { number: "4", title: "CHECKS FAILED — PERSISTENT" });
        assert_eq!(summary(&found), ("4", Classification::NeedsIntervention, Some("10")));
        assert_eq!(
            found.evidence,
            [
                "`build` failed: 3 tests failed",
                "`lint` failed and gave no reason",
                "`scan` failed, transient by rule `network`: connection reset",
            ]
        );
        assert_eq!((found.inconclusive, found.overridden), (None, None));
    }

    #[test]
    fn rule_4_treats_a_missing_substatus_as_persistent() {
        let mut scenario = stuck(State::ChecksFailed);
        scenario.record_mut().substatus = None;
        scenario.record_mut().signals.checks.clear();
        let found = scenario.diagnose(Some(&FINE));
        assert_eq!(summary(&found), ("4", Classification::NeedsIntervention, Some("11")));
        assert_eq!(found.evidence, ["checks are recorded as failed"]);
        // A substatus of another state matches no rule.
        scenario.record_mut().substatus = Some(Substatus::SodFailure);
        assert_eq!(diagnosed(&scenario), NO_RULE);
        let mut running = almost_stuck(State::ChecksRunning);
        running.record_mut().substatus = None;
        assert_eq!(diagnosed(&running), TOO_EARLY);
    }

    #[test]
    fn rule_5_retriggers_policy_bot_after_the_threshold() {
        for state in [State::ChecksPassed, State::PolicyEvaluating] {
            assert_eq!(diagnosed(&stuck(state)), ("5", Classification::RetriggerPolicyBot, Some("11")), "{state}");
            assert_eq!(diagnosed(&almost_stuck(state)), TOO_EARLY, "{state}");
        }
        let found = stuck(State::ChecksPassed).diagnose(None);
        assert_eq!(found.rule, RuleName { number: "5", title: "POLICY BOT STALE" });
        assert_eq!(
            found.evidence,
            ["in CHECKS_PASSED for 30 min", "Policy Bot has reported no result since the checks passed"]
        );
        assert_eq!(found.inconclusive, None);
        // A bot that reported only its start is stale too.
        let started = stuck(State::PolicyEvaluating);
        assert_eq!(started.record().signals.policy.as_ref().unwrap().verdict, PolicyVerdict::Evaluating);
        assert_eq!(started.diagnose(None).evidence[0], "in POLICY_EVALUATING for 30 min");
    }

    #[test]
    fn rule_5_counts_only_results_newer_than_the_last_retrigger() {
        for strategy in [Strategy::RetriggerPolicyBot, Strategy::RetriggerSodCheck] {
            for verdict in [PolicyVerdict::Passed, PolicyVerdict::Failed(Substatus::SodFailure)] {
                let mut scenario = stuck(State::PolicyEvaluating);
                let at = scenario.record().state_since;
                scenario.record_mut().signals.policy = Some(policy_says(verdict, at));
                assert_eq!(diagnosed(&scenario), NO_RULE, "it has answered");
                scenario.record_mut().last_requested.insert(strategy, at);
                assert_eq!(diagnosed(&scenario), NO_RULE, "a result in the second of the retrigger counts");
                scenario.record_mut().last_requested.insert(strategy, at + SECOND);
                let found = scenario.diagnose(Some(&FINE));
                assert_eq!(
                    summary(&found),
                    ("5", Classification::RetriggerPolicyBot, Some("11")),
                    "{strategy} {verdict:?}"
                );
                assert_eq!(
                    found.evidence[1],
                    "Policy Bot has reported no result since it was retriggered at 2026-03-02 09:03 UTC"
                );
            }
        }
    }

    #[test]
    fn rule_5_uses_the_later_retrigger_of_policy_bot_or_sod() {
        let mut scenario = stuck(State::PolicyEvaluating);
        let at = scenario.record().state_since;
        scenario.record_mut().signals.policy = Some(policy_says(PolicyVerdict::Passed, at));
        for strategy in [Strategy::Rebuild, Strategy::RetriggerApproverBot, Strategy::RetriggerAutomergeBot] {
            scenario.record_mut().last_requested.insert(strategy, at + minutes(2));
        }
        assert_eq!(diagnosed(&scenario), NO_RULE);
        scenario.record_mut().last_requested.insert(Strategy::RetriggerPolicyBot, at - minutes(1));
        scenario.record_mut().last_requested.insert(Strategy::RetriggerSodCheck, at + minutes(1));
        assert!(scenario.diagnose(None).evidence[1].ends_with("retriggered at 2026-03-02 09:04 UTC"));
        scenario.record_mut().last_requested.insert(Strategy::RetriggerPolicyBot, at + minutes(3));
        assert!(scenario.diagnose(None).evidence[1].ends_with("retriggered at 2026-03-02 09:06 UTC"));
        // A start after the retrigger is not a result either.
        scenario.record_mut().signals.policy = Some(policy_says(PolicyVerdict::Evaluating, at + minutes(4)));
        assert_eq!(diagnosed(&scenario), ("5", Classification::RetriggerPolicyBot, Some("11")));
    }

    #[test]
    fn rule_6_retriggers_the_sod_check_on_a_sod_failure() {
        let mut scenario = stuck(State::PolicyFailed);
        let found = scenario.diagnose(None);
        assert_eq!(found.rule, RuleName { number: "6", title: "POLICY FAILED — SOD" });
        assert_eq!(summary(&found), ("6", Classification::RetriggerSodCheck, Some("11")));
        assert_eq!(found.evidence, ["Policy Bot rejected it (SOD_FAILURE)"]);
        assert_eq!(diagnosed(&almost_stuck(State::PolicyFailed)), ("6", Classification::RetriggerSodCheck, Some("10")));
        scenario.record_mut().signals.policy.as_mut().unwrap().text = "author is approver".to_owned();
        assert_eq!(scenario.diagnose(None).evidence, ["Policy Bot rejected it (SOD_FAILURE): author is approver"]);
        let mut elsewhere = almost_stuck(State::PolicyPassed);
        elsewhere.record_mut().substatus = Some(Substatus::SodFailure);
        assert_eq!(diagnosed(&elsewhere), TOO_EARLY);
    }

    #[test]
    fn rule_7_escalates_any_other_policy_failure() {
        for (substatus, evidence) in [
            (Some(Substatus::BuildFailure), "Policy Bot rejected it (BUILD_FAILURE)"),
            (Some(Substatus::BranchProtectionFailure), "Policy Bot rejected it (BRANCH_PROTECTION_FAILURE)"),
            (Some(Substatus::OtherPolicyFailure), "Policy Bot rejected it (OTHER_POLICY_FAILURE)"),
            (None, "Policy Bot rejected it (no reason given)"),
        ] {
            let mut scenario = almost_stuck(State::PolicyFailed);
            scenario.record_mut().substatus = substatus;
            let found = scenario.diagnose(Some(&FINE));
            assert_eq!(found.rule, RuleName { number: "7", title: "POLICY FAILED — OTHER" });
            assert_eq!(summary(&found), ("7", Classification::NeedsIntervention, Some("10")));
            assert_eq!(found.evidence, [evidence]);
        }
    }

    #[test]
    fn rule_8_retriggers_approver_bot_after_the_threshold() {
        let mut scenario = stuck(State::PolicyPassed);
        let found = scenario.diagnose(None);
        assert_eq!(found.rule, RuleName { number: "8", title: "APPROVER BOT STALE" });
        assert_eq!(summary(&found), ("8", Classification::RetriggerApproverBot, Some("11")));
        assert_eq!(found.evidence, ["in POLICY_PASSED for 15 min", "this head has no approval by an approver bot"]);
        assert_eq!(diagnosed(&almost_stuck(State::PolicyPassed)), TOO_EARLY);
        let approval = approved(scenario.now);
        scenario.record_mut().signals.approvals.push(approval);
        assert_eq!(diagnosed(&scenario), NO_RULE, "it is approved");
        scenario.record_mut().signals.approvals[0].granted = false;
        assert_eq!(diagnosed(&scenario).0, "8", "the approval was dismissed");
        scenario.record_mut().state = State::PolicyEvaluating;
        assert_ne!(diagnosed(&scenario).0, "8");
    }

    #[test]
    fn rule_9_retriggers_automerge_bot_after_the_threshold() {
        let mut scenario = stuck(State::Approved);
        let found = scenario.diagnose(None);
        assert_eq!(found.rule, RuleName { number: "9", title: "AUTOMERGE BOT STALE" });
        assert_eq!(summary(&found), ("9", Classification::RetriggerMerge, Some("11")));
        assert_eq!(found.evidence, ["in APPROVED for 10 min", "Automerge Bot has not attempted to merge this head"]);
        assert_eq!(diagnosed(&almost_stuck(State::Approved)), TOO_EARLY);
        let at = scenario.now - minutes(3);
        scenario.record_mut().signals.merge = Some(merging(at));
        assert_eq!(diagnosed(&scenario), NO_RULE, "a merge attempt is in progress");
        let failed = MergeReport { failed: true, text: "405 not mergeable".to_owned(), ..merging(at) };
        scenario.record_mut().signals.merge = Some(failed);
        assert_eq!(
            scenario.diagnose(None).evidence,
            ["in APPROVED for 10 min", "the merge attempt at 2026-03-02 09:12 UTC failed: 405 not mergeable"]
        );
    }

    #[test]
    fn rule_9a_retries_checks_that_never_started() {
        let scenario = stuck(State::Created);
        let found = scenario.diagnose(Some(&FINE));
        assert_eq!(found.rule, RuleName { number: "9a", title: "CHECKS NEVER STARTED" });
        assert_eq!(summary(&found), ("9a", Classification::RetryChecks, Some("11")));
        assert_eq!(found.evidence, ["in CREATED for 5 min", "no check has ever reported on this head"]);
        assert_eq!(diagnosed(&almost_stuck(State::Created)), TOO_EARLY);
    }

    #[test]
    fn rule_9b_depends_on_the_jenkins_build() {
        let scenario = stuck(State::ChecksRunning);
        let with_build = |build| scenario.diagnose(Some(&LiveStatus { build, ..FINE }));
        let since = scenario.now - minutes(120);
        for (build, classification, evidence) in [
            (BuildStatus::Gone, Classification::RetryChecks, "Jenkins has no build of this head, queued or running"),
            (
                BuildStatus::Finished,
                Classification::RetryChecks,
                "Jenkins finished the build, but its result never reached GitHub",
            ),
            (
                BuildStatus::Building { since: since - SECOND },
                Classification::RetryChecks,
                "the Jenkins build has been running since 2026-03-02 08:00 UTC: it hangs, and will be stopped first",
            ),
            (
                BuildStatus::Building { since },
                Classification::RetryChecks,
                "the Jenkins build has been running since 2026-03-02 08:01 UTC: it hangs, and will be stopped first",
            ),
            (
                BuildStatus::Building { since: since + SECOND },
                Classification::NoAction,
                "the Jenkins build is still running, since 2026-03-02 08:01 UTC",
            ),
        ] {
            let found = with_build(Some(build));
            assert_eq!(found.rule, RuleName { number: "9b", title: "CHECKS RUNNING TOO LONG" });
            assert_eq!(summary(&found), ("9b", classification, Some("11")), "{build:?}");
            assert_eq!(found.evidence, [evidence, "in CHECKS_RUNNING for 1 h"]);
            assert_eq!(found.inconclusive, None, "{build:?}");
        }
    }

    #[test]
    fn rule_9b_stops_a_build_after_twice_the_threshold() {
        let mut scenario = PrScenario::at(State::ChecksRunning);
        scenario.policy.thresholds_minutes.checks_running = 10;
        scenario.now = scenario.record().state_since + minutes(10);
        let building = |since| LiveStatus { build: Some(BuildStatus::Building { since }), ..FINE };
        let hanging = scenario.diagnose(Some(&building(scenario.now - minutes(20))));
        assert_eq!(hanging.classification, Classification::RetryChecks);
        let working = scenario.diagnose(Some(&building(scenario.now - minutes(20) + SECOND)));
        assert_eq!(working.classification, Classification::NoAction);
    }

    #[test]
    fn rule_9b_needs_its_state_and_the_threshold() {
        let gone = LiveStatus { build: Some(BuildStatus::Gone), ..FINE };
        assert_eq!(summary(&almost_stuck(State::ChecksRunning).diagnose(Some(&gone))), TOO_EARLY);
        let created = stuck(State::Created).diagnose(Some(&gone));
        assert_eq!(summary(&created), ("9a", Classification::RetryChecks, Some("11")));
    }

    #[test]
    fn rule_9b_escalates_when_jenkins_is_unreachable_three_times() {
        let unreachable = LiveStatus { build: Some(BuildStatus::Unreachable), ..FINE };
        let mut scenario = stuck(State::ChecksRunning);
        for live in [Some(&unreachable), Some(&FINE), None] {
            for skips in [0, MAX_SKIPS - 1] {
                scenario.record_mut().inconclusive_visits = skips;
                let found = scenario.diagnose(live);
                assert_eq!(summary(&found), ("9b", Classification::NoAction, Some("11")), "{skips} {live:?}");
                assert_eq!(found.inconclusive, Some(InconclusiveCause::Jenkins));
                assert_eq!(found.evidence, ["Jenkins could not be reached", "in CHECKS_RUNNING for 1 h"]);
            }
            for skips in [MAX_SKIPS, MAX_SKIPS + 1] {
                scenario.record_mut().inconclusive_visits = skips;
                let found = scenario.diagnose(live);
                assert_eq!(summary(&found), ("9b", Classification::NeedsIntervention, Some("11")), "{skips} {live:?}");
                assert_eq!(found.inconclusive, None);
                assert_eq!(found.evidence[0], "Jenkins could not be reached 3 times in a row");
            }
        }
        // Once Jenkins responds, the count does not matter.
        let answered = scenario.diagnose(Some(&LiveStatus { build: Some(BuildStatus::Gone), ..FINE }));
        assert_eq!(answered.classification, Classification::RetryChecks);
    }

    #[test]
    fn rule_9c_retriggers_a_merge_that_never_finished() {
        let found = stuck(State::Merging).diagnose(None);
        assert_eq!(found.rule, RuleName { number: "9c", title: "MERGE NEVER FINISHED" });
        assert_eq!(summary(&found), ("9c", Classification::RetriggerMerge, Some("11")));
        assert_eq!(found.evidence, ["in MERGING for 5 min", "the merge was started and never finished"]);
        assert_eq!(diagnosed(&almost_stuck(State::Merging)), TOO_EARLY);
    }

    #[test]
    fn without_extended_rules_stale_states_fall_through() {
        for state in [State::Created, State::ChecksRunning, State::Merging] {
            let mut scenario = stuck(state);
            scenario.policy.rules.extended = false;
            let gone = LiveStatus { build: Some(BuildStatus::Gone), ..FINE };
            let found = scenario.diagnose(Some(&gone));
            assert_eq!(summary(&found), NO_RULE, "{state}");
            assert_eq!(found.rule.title, "FALLTHROUGH");
            assert_eq!(found.evidence[1], "no rule matches this situation");
            scenario.now -= SECOND;
            assert_eq!(summary(&scenario.diagnose(Some(&gone))), TOO_EARLY, "{state}");
        }
        let mut green = stuck(State::ChecksPassed);
        green.policy.rules.extended = false;
        assert_eq!(diagnosed(&green), ("5", Classification::RetriggerPolicyBot, Some("11")));
    }

    #[test]
    fn rule_10_takes_no_action_within_the_threshold() {
        let found = almost_stuck(State::ChecksRunning).diagnose(Some(&FINE));
        assert_eq!(found.rule, RuleName { number: "10", title: "STILL WITHIN THRESHOLD" });
        assert_eq!(summary(&found), TOO_EARLY);
        assert_eq!(found.evidence, ["in CHECKS_RUNNING for 59 min"]);
        assert_eq!((found.inconclusive, found.overridden), (None, None));
        // Escalated and terminal pull requests have no threshold.
        for state in [State::NeedsIntervention, State::Merged, State::Closed] {
            let mut scenario = PrScenario::at(State::Created);
            scenario.record_mut().state = state;
            scenario.advance_minutes(100_000);
            assert_eq!(diagnosed(&scenario), TOO_EARLY, "{state}");
        }
    }

    #[test]
    fn rule_10_gives_a_retriggered_bot_the_threshold_again() {
        let mut scenario = stuck(State::ChecksPassed);
        let retriggered_at = scenario.now;
        let record = scenario.record_mut();
        record.last_remediation_at = Some(retriggered_at);
        record.remediation_action = Some(Strategy::RetriggerPolicyBot);
        record.remedied_in = Some(record.state);
        record.retry_counts.retrigger_policy_bot = 1;
        scenario.now = retriggered_at + minutes(30) + SECOND * 29;
        assert_eq!(diagnosed(&scenario), TOO_EARLY);
        scenario.now += SECOND;
        assert_eq!(diagnosed(&scenario), ("5", Classification::RetriggerPolicyBot, Some("11")));
    }

    #[test]
    fn rule_11_escalates_when_no_rule_matches() {
        let mut scenario = stuck(State::PolicyPassed);
        let approval = approved(scenario.now);
        scenario.record_mut().signals.approvals.push(approval);
        let found = scenario.diagnose(Some(&FINE));
        assert_eq!(found.rule, RuleName { number: "11", title: "FALLTHROUGH" });
        assert_eq!(summary(&found), NO_RULE);
        assert_eq!(found.evidence, ["in POLICY_PASSED for 15 min", "no rule matches this situation"]);
        assert_eq!((found.inconclusive, found.overridden), (None, None));
    }

    #[test]
    fn first_matching_rule_decides_and_the_next_is_named() {
        let behind = LiveStatus { behind_by: Some(2), ..FINE };
        let conflicting = LiveStatus { mergeable: Mergeability::Conflicting, ..behind };
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
            assert_eq!(summary(&stuck(state).diagnose(Some(&live))), expected, "{state}");
        }
    }

    /// A pull request that needs this strategy, its live status, and the expected classification.
    fn stuck_for(strategy: Strategy) -> (PrScenario, LiveStatus, Classification) {
        let conflicting = LiveStatus { mergeable: Mergeability::Conflicting, ..FINE };
        let behind = LiveStatus { behind_by: Some(1), ..FINE };
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

    fn spend(scenario: &mut PrScenario, strategy: Strategy, times: u32) {
        for _ in 0..times {
            scenario.record_mut().retry_counts.spend(strategy);
        }
    }

    #[test]
    fn exhausted_budget_overrides_the_rule() {
        for (strategy, max, sentence) in [
            (Strategy::Rebuild, 3, "Retry budget exhausted for rebuild (3/3)"),
            (Strategy::BranchUpdate, 2, "Retry budget exhausted for branch_update (2/2)"),
            (Strategy::RetriggerPolicyBot, 2, "Retry budget exhausted for retrigger_policy_bot (2/2)"),
            (Strategy::RetriggerApproverBot, 2, "Retry budget exhausted for retrigger_approver_bot (2/2)"),
            (Strategy::RetriggerAutomergeBot, 2, "Retry budget exhausted for retrigger_automerge_bot (2/2)"),
            (Strategy::RetriggerSodCheck, 1, "Retry budget exhausted for retrigger_sod_check (1/1)"),
            (Strategy::CloseAndReopen, 1, "Retry budget exhausted for close_and_reopen (1/1)"),
        ] {
            let (mut scenario, live, classification) = stuck_for(strategy);
            spend(&mut scenario, strategy, max - 1);
            let before = scenario.diagnose(Some(&live));
            assert_eq!((before.classification, before.overridden), (classification, None), "{strategy}");
            spend(&mut scenario, strategy, 1);
            let after = scenario.diagnose(Some(&live));
            assert_eq!(after.classification, Classification::NeedsIntervention, "{strategy}");
            assert_eq!(after.overridden, Some((classification, sentence.to_owned())));
            // Rule and evidence stay the same.
            assert_eq!((after.rule, after.evidence, after.next), (before.rule, before.evidence, before.next));
        }
    }

    #[test]
    fn exhausted_budget_of_another_strategy_overrides_nothing() {
        for strategy in Strategy::ALL {
            let (mut scenario, live, classification) = stuck_for(strategy);
            for other in Strategy::ALL.into_iter().filter(|other| *other != strategy) {
                spend(&mut scenario, other, 9);
            }
            let found = scenario.diagnose(Some(&live));
            assert_eq!((found.classification, found.overridden), (classification, None), "{strategy}");
        }
    }

    #[test]
    fn lifetime_cap_overrides_every_strategy() {
        for strategy in Strategy::ALL {
            let (mut scenario, live, classification) = stuck_for(strategy);
            scenario.record_mut().lifetime_remedies = 11;
            assert_eq!(scenario.diagnose(Some(&live)).classification, classification, "{strategy}");
            scenario.record_mut().lifetime_remedies = 12;
            let found = scenario.diagnose(Some(&live));
            assert_eq!(found.classification, Classification::NeedsIntervention);
            let sentence = "Retry budget exhausted for lifetime (12/12)".to_owned();
            assert_eq!(found.overridden, Some((classification, sentence)), "{strategy}");
        }
        // Without a strategy there is nothing to override.
        let mut waiting = almost_stuck(State::Approved);
        waiting.record_mut().lifetime_remedies = 12;
        assert_eq!(diagnosed(&waiting), TOO_EARLY);
    }

    /// Found by the simulation: the sweep knew no build of the head, but the Car Bridge found a running one, so the
    /// rebuild was claimed and dropped every ten minutes for six days.
    #[test]
    fn remedy_dropped_24_times_escalates() {
        for strategy in Strategy::ALL {
            let (mut scenario, live, classification) = stuck_for(strategy);
            let at = scenario.now - minutes(120);
            scenario.record_mut().dropped = Some(DroppedRemedies { count: 23, at });
            assert_eq!(scenario.diagnose(Some(&live)).classification, classification, "{strategy}");
            scenario.record_mut().dropped = Some(DroppedRemedies { count: 24, at });
            let found = scenario.diagnose(Some(&live));
            let why = format!("{strategy} was blocked 24 times in a row");
            assert_eq!(found.overridden, Some((classification, why)));
            assert_eq!(found.classification, Classification::NeedsIntervention);
        }
    }

    #[test]
    fn close_and_reopen_budget_uses_the_count_of_the_vulnerability() {
        let (mut scenario, live, classification) = stuck_for(Strategy::CloseAndReopen);
        scenario.vulnerability.close_and_reopen = 1;
        assert_eq!(scenario.record().retry_counts.close_and_reopen, 0);
        let found = scenario.diagnose(Some(&live));
        let sentence = "Retry budget exhausted for close_and_reopen (1/1)".to_owned();
        assert_eq!(found.overridden, Some((classification, sentence)));
        assert_eq!(found.classification, Classification::NeedsIntervention);
        // Without a row the count is zero, and other strategies do not use it.
        let record = scenario.record();
        let case = DiagnosisInput {
            record,
            live: Some(&live),
            vulnerability: None,
            policy: &scenario.policy,
            now: scenario.now,
        };
        assert_eq!((classify(&case).classification, classify(&case).overridden), (classification, None));
        let other = stuck_for(Strategy::RetriggerAutomergeBot).1;
        assert_eq!(scenario.diagnose(Some(&other)).classification, Classification::RetriggerMerge);
    }

    #[test]
    fn diagnosis_is_deterministic() {
        for strategy in Strategy::ALL {
            let (scenario, live, _) = stuck_for(strategy);
            assert_eq!(scenario.diagnose(Some(&live)), scenario.clone().diagnose(Some(&live)));
        }
    }

    #[test]
    fn rule_3_waits_for_running_checks_unless_they_hang() {
        let mut scenario = PrScenario::at(State::ChecksRunning);
        scenario.check("integration", CheckVerdict::Running);
        scenario.fail("build", Some("timeout"), "timeout");
        scenario.advance_minutes(57);
        let found = scenario.diagnose(Some(&FINE));
        assert_eq!((found.rule.number, found.classification, found.stop_build), ("3", Classification::NoAction, false));
        assert_eq!(found.evidence[1], "other checks have been running since 2026-03-02 09:00 UTC");
        scenario.advance_minutes(1);
        let found = scenario.diagnose(Some(&FINE));
        assert_eq!((found.classification, found.stop_build), (Classification::RetryChecks, true));
        // Checks that are not required do not matter.
        scenario.record_mut().required_checks = vec!["build".to_owned()];
        let found = scenario.diagnose(Some(&FINE));
        assert_eq!((found.classification, found.stop_build), (Classification::RetryChecks, false));
    }

    #[test]
    fn only_a_hanging_build_is_stopped() {
        let scenario = stuck(State::ChecksRunning);
        let build = |build| scenario.diagnose(Some(&LiveStatus { build: Some(build), ..FINE }));
        assert!(build(BuildStatus::Building { since: scenario.now - minutes(120) }).stop_build);
        for other in [
            BuildStatus::Building { since: scenario.now - minutes(119) },
            BuildStatus::Gone,
            BuildStatus::Finished,
            BuildStatus::Unreachable,
        ] {
            assert!(!build(other).stop_build, "{other:?}");
        }
    }

    #[test]
    fn only_required_checks_are_evidence() {
        let mut scenario = PrScenario::at(State::ChecksRunning);
        scenario.fail("advice", None, "no opinion");
        scenario.fail("build", Some("timeout"), "timeout");
        assert_eq!(stuck_evidence(&mut scenario).len(), 2, "without a list every check counts");
        scenario.record_mut().required_checks = vec!["build".to_owned()];
        scenario.record_mut().substatus = Some(Substatus::Transient);
        assert_eq!(stuck_evidence(&mut scenario), ["`build` failed, transient by rule `timeout`: timeout"]);
    }

    fn stuck_evidence(scenario: &mut PrScenario) -> Vec<String> {
        scenario.advance_minutes(30);
        scenario.diagnose(Some(&FINE)).evidence
    }
}
