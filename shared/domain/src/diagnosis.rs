//! The classifier (seed §6): what is wrong with a stale pull request, and what to do. An ordered list of named rules with
//! the seed's numbers; the first that matches decides, and every answer comes with its evidence. Stateless and
//! deterministic. What a remedy then does is in `remedy`.

use jiff::Timestamp;

use crate::budget;
use crate::comment;
use crate::id::Sha;
use crate::policy::{Behind, Policy};
use crate::pull_request::{Record, Vulnerability, later};
use crate::signals::PolicyVerdict;
use crate::snapshot::{Build, Live, Mergeable};
use crate::state::{State, Strategy, Substatus};

/// What the classifier looks at.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The record, corrected by what GitHub showed.
    pub record: &'a Record,
    /// What GitHub and Jenkins say right now; `None` if nobody asked (a dry explanation).
    pub live: Option<&'a Live>,
    /// The vulnerability's row, for the budget that never resets.
    pub vulnerability: Option<&'a Vulnerability>,
    /// The numbers.
    pub policy: &'a Policy,
    /// The time.
    pub now: Timestamp,
}

/// What to do (seed §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Classification {
    /// Close it, and ask for a fresh pull request.
    CloseAndReopen,
    /// Merge the base into the head.
    UpdateBranch,
    /// Run the checks again.
    RetryChecks,
    /// Wake Policy Bot.
    RetriggerPolicyBot,
    /// Ask the SOD validator again.
    RetriggerSodCheck,
    /// Wake Approver Bot.
    RetriggerApproverBot,
    /// Wake Automerge Bot.
    RetriggerMerge,
    /// Call a person.
    NeedsIntervention,
    /// Leave it alone, this time.
    NoAction,
}

impl Classification {
    /// The name as the seed spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CloseAndReopen => "CLOSE_AND_REOPEN",
            Self::UpdateBranch => "UPDATE_BRANCH",
            Self::RetryChecks => "RETRY_CHECKS",
            Self::RetriggerPolicyBot => "RETRIGGER_POLICY_BOT",
            Self::RetriggerSodCheck => "RETRIGGER_SOD_CHECK",
            Self::RetriggerApproverBot => "RETRIGGER_APPROVER_BOT",
            Self::RetriggerMerge => "RETRIGGER_MERGE",
            Self::NeedsIntervention => "NEEDS_INTERVENTION",
            Self::NoAction => "NO_ACTION",
        }
    }

    /// The strategy, and so the budget, behind it.
    #[must_use]
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
    /// The seed's number; extended rules are 9a to 9c, since they come before rule 10.
    pub number: &'static str,
    /// The seed's title, or ours.
    pub title: &'static str,
}

/// What the classifier says.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// The state it was made in: if the record has moved on, it is void.
    pub state: State,
    /// The head it was made on.
    pub head_sha: Sha,
    /// What to do, after the budget was looked at.
    pub classification: Classification,
    /// The rule that matched.
    pub rule: RuleName,
    /// What it saw.
    pub evidence: Vec<String>,
    /// The next rule that would have matched.
    pub next: Option<RuleName>,
    /// Set if the budget overrode the rule: what the rule had said, and the seed's sentence.
    pub overridden: Option<(Classification, String)>,
    /// Whether this answer is "could not find out": such visits are counted, and the third escalates (rule 11).
    pub inconclusive: bool,
}

/// What a matching rule answers.
struct Finding {
    classification: Classification,
    evidence: Vec<String>,
    inconclusive: bool,
}

impl Finding {
    fn new(classification: Classification, evidence: impl Into<String>) -> Self {
        Self { classification, evidence: vec![evidence.into()], inconclusive: false }
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

const fn seed(number: &'static str, title: &'static str, look: fn(&Case<'_>) -> Option<Finding>) -> Rule {
    Rule { name: RuleName { number, title }, extended: false, look }
}

const fn extended(number: &'static str, title: &'static str, look: fn(&Case<'_>) -> Option<Finding>) -> Rule {
    Rule { name: RuleName { number, title }, extended: true, look }
}

/// The rules in priority order.
const RULES: [Rule; 14] = [
    seed("1", "MERGE CONFLICT DETECTED", merge_conflict),
    seed("2", "BRANCH BEHIND BASE", branch_behind),
    seed("3", "CHECKS FAILED — TRANSIENT", checks_failed_transient),
    seed("4", "CHECKS FAILED — PERSISTENT", checks_failed_persistent),
    seed("5", "POLICY BOT STALE", policy_bot_stale),
    seed("6", "POLICY FAILED — SOD", policy_failed_sod),
    seed("7", "POLICY FAILED — OTHER", policy_failed_other),
    seed("8", "APPROVER BOT STALE", approver_bot_stale),
    seed("9", "AUTOMERGE BOT STALE", automerge_bot_stale),
    extended("9a", "CHECKS NEVER STARTED", checks_never_started),
    extended("9b", "CHECKS RUNNING TOO LONG", checks_running_too_long),
    extended("9c", "MERGE NEVER FINISHED", merge_never_finished),
    seed("10", "STILL WITHIN THRESHOLD", still_within_threshold),
    seed("11", "FALLTHROUGH", fallthrough),
];

/// Classifies: the first rule that matches, then the budget (seed §6).
#[must_use]
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

/// 2. The head is behind its base, without conflicts. It matters only if the base demands up-to-date heads (rule 13).
fn branch_behind(case: &Case<'_>) -> Option<Finding> {
    let live = case.live?;
    let matters = live.strict || case.policy.checks.behind == Behind::Always;
    let behind_by = live.behind_by.filter(|commits| *commits > 0)?;
    let evidence = format!("the head is {behind_by} commit(s) behind `{}`", case.record.base_branch);
    (matters && live.mergeable == Mergeable::Clean).then(|| Finding::new(Classification::UpdateBranch, evidence))
}

/// 3. CHECKS_FAILED, and every red check matches a transient rule.
fn checks_failed_transient(case: &Case<'_>) -> Option<Finding> {
    checks_failed(case, Substatus::Transient, Classification::RetryChecks)
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
    let mut finding = Finding { classification, evidence: Vec::new(), inconclusive: false };
    for check in case.record.signals.failed_checks() {
        finding = finding.and(comment::failed_check(check));
    }
    if finding.evidence.is_empty() {
        finding = finding.and("checks are recorded as failed");
    }
    Some(finding)
}

/// 5. Checks are green and Policy Bot has given no result since, for longer than it may take. A bot that said it started
///    and then fell silent is stale too; only a result newer than our last asking counts (rule 12).
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
        Some(Build::Building { since }) if case.now >= later(since, twice) => Finding::new(
            Classification::RetryChecks,
            format!("Jenkins has been building since {}: it hangs, and is to be stopped first", comment::time(since)),
        ),
        Some(Build::Building { since }) => {
            Finding::new(Classification::NoAction, format!("Jenkins is still building, since {}", comment::time(since)))
        }
        Some(Build::Unreachable) | None if case.record.skips >= MAX_SKIPS => Finding::new(
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
