//! Every sentence a person reads: in logs, mails, comments, the dashboard and the API. Pure functions that decide
//! nothing; texts that the requirements quote are kept literally. One submodule per place: sweeps and their mails, the
//! dashboard and API texts about one pull request, the check run, issues (`coordination`), and advice from statistics.

pub mod check_run;
pub mod coordination;
pub mod insights;
pub mod pull_request;
pub mod sweep;

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use crate::bus::RemedyTarget;
use crate::command::{ApiRole, Command};
use crate::diagnosis::{Classification, Diagnosis};
use crate::event::{EventKind, EventPayload, truncate};
use crate::id::PrId;
use crate::policy::Policy;
use crate::pull_request::PullRequest;
use crate::signals::CheckReport;
use crate::state::{State, Strategy};

/// The comment on a pull request that Suture closes by itself to have it replaced (R-BRIDGE-10).
pub const CLOSING_COMMENT: &str = "Closing due to merge conflicts. A new PR will be created automatically.";
/// Logged when the duplicate guard of close-and-reopen finds another open pull request (R-REMEDY-8).
pub const DUPLICATE_EXISTS: &str = "duplicate PR exists";

/// A time to the minute, in UTC: `2026-03-02 09:00 UTC`.
pub fn time(at: Timestamp) -> String {
    let text = format!("{at:.0}");
    match text.get(..16) {
        Some(minute) => format!("{} UTC", minute.replace('T', " ")),
        None => text,
    }
}

/// A duration in its two largest units: `3 d 4 h`, `2 h 5 min`, `12 min`, `40 s`.
pub fn duration(span: SignedDuration) -> String {
    let secs = span.as_secs().max(0);
    let (days, hours, minutes) = (secs / 86_400, secs % 86_400 / 3_600, secs % 3_600 / 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{secs} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, 0) => format!("{hours} h"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, 0, _) => format!("{days} d"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// How long a pull request has been in its state.
pub fn time_in_state(state: State, span: SignedDuration) -> String {
    format!("in {state} for {}", duration(span))
}

/// One failed check, with its failure text and the transient rule that matched, if one did.
pub fn failed_check(check: &CheckReport) -> String {
    match &check.failure {
        None => format!("`{}` failed and gave no reason", check.name),
        Some(failure) => match &failure.transient_rule {
            Some(rule) => format!("`{}` failed, transient by rule `{rule}`: {}", check.name, failure.text),
            None => format!("`{}` failed: {}", check.name, failure.text),
        },
    }
}

pub fn policy_text(record: &PullRequest) -> String {
    let description = record.signals.policy.as_ref().map_or("", |report| report.text.as_str());
    let substatus = record.substatus.map_or("no reason given", |substatus| substatus.name());
    if description.is_empty() {
        format!("Policy Bot rejected it ({substatus})")
    } else {
        format!("Policy Bot rejected it ({substatus}): {description}")
    }
}

/// Logged for a transition that the state table does not allow (R-STATE-5).
pub fn invalid_transition(pr: &PrId, current: State, new: State, event: EventKind) -> String {
    format!("Invalid transition for PR #{}: {current} → {new} via {event}", pr.number)
}

/// The reply to a command that closes, merges or approves and arrives late.
pub fn command_too_old(command: Command, age: SignedDuration) -> String {
    format!("`{command}` is {} old and was not executed; repeat it if you still want it", duration(age))
}

/// Logged when somebody else reports under Policy Bot's name (R-SIGNAL-15).
pub fn foreign_policy(context: &str, by: &str) -> String {
    format!(
        "`{context}` was posted by {by}, which is not Policy Bot (`policy_bot.logins`, `policy_bot.app_ids`): it counts as an ordinary check"
    )
}

/// Logged when the stored state differs from GitHub (R-SWEEP-5).
pub fn drift(pr: &PrId, old: State, new: State) -> String {
    format!("State drift detected for PR #{}: table={old}, actual={new}", pr.number)
}

/// Suture assumed a state when it started a remedy, and the remedy was not proven.
pub fn withdrawn(pr: &PrId, assumed: State, actual: State, strategy: Strategy) -> String {
    format!("{}; {strategy} was not proven", drift(pr, assumed, actual))
}

/// GitHub did not compute the mergeability of a head in this many visits in a row.
pub fn mergeability_unknown(visits: u32) -> String {
    format!(
        "GitHub has not computed whether this head can be merged, {visits} visits in a row: open the pull request on GitHub, \
         and push a commit if it still does not say"
    )
}

/// What Suture does for a classification, to follow "Suture will …".
pub fn action(classification: Classification) -> &'static str {
    match classification {
        Classification::CloseAndReopen => "close it and ask CodeGenie for a new pull request",
        Classification::UpdateBranch => "merge the base branch into it",
        Classification::RetryChecks => "run the checks again",
        Classification::RetriggerPolicyBot => "retrigger Policy Bot",
        Classification::RetriggerSodCheck => "request the separation-of-duties check again",
        Classification::RetriggerApproverBot => "retrigger Approver Bot",
        Classification::RetriggerMerge => "retrigger Automerge Bot",
        Classification::NeedsIntervention => "escalate to a person",
        Classification::NoAction => "do nothing for now",
    }
}

pub fn diagnosis(diagnosis: &Diagnosis) -> String {
    let evidence = diagnosis.evidence.join("; ");
    match &diagnosis.overridden {
        None => format!("Rule {} ({}): {evidence}.", diagnosis.rule.number, diagnosis.rule.title),
        Some((_, why)) => format!("Rule {} ({}): {evidence}. {why}.", diagnosis.rule.number, diagnosis.rule.title),
    }
}

/// Why a pull request was escalated, for its record: the reason that overrode the remedy, or else the evidence.
pub fn blocked_reason(diagnosis: &Diagnosis) -> String {
    match &diagnosis.overridden {
        Some((_, why)) => why.clone(),
        None => truncate(&diagnosis.evidence.join("; "), EventPayload::MAX_TEXT),
    }
}

/// Why automation stopped on a pull request: it was escalated, it is held, or it has to wait.
pub fn blocked(record: &PullRequest) -> Option<String> {
    let recorded = || record.blocked.as_ref().map(|blocked| blocked.reason.clone());
    if record.state == State::NeedsIntervention {
        return recorded().or_else(|| Some(NO_REASON.to_owned()));
    }
    if let Some(label) = record.hold_label() {
        return Some(format!("held by the label `{label}`"));
    }
    if record.hold {
        return record.hold_reason.clone().or_else(recorded).or_else(|| Some("held by a person".to_owned()));
    }
    recorded()
}

/// The comment on a pull request that Suture closes to have it replaced: by itself, or because a person asked for it.
pub fn closing_comment(by: Option<&str>) -> String {
    match by {
        None => CLOSING_COMMENT.to_owned(),
        Some(by) => {
            format!("Closing because {by} requested `/close-and-reopen`. A new PR will be created automatically.")
        }
    }
}

/// The log text of an accepted command.
pub fn command_accepted(replaced: Option<Strategy>) -> String {
    match replaced {
        None => "accepted".to_owned(),
        Some(strategy) => format!("accepted, replaces {strategy}"),
    }
}

/// Why a command waits for an earlier one.
pub fn command_in_progress(earlier: Command) -> String {
    format!("`{earlier}` is in progress")
}

/// The reply to a command that is executed later.
pub fn command_waits(command: Command, why: &str) -> String {
    format!("`{command}` waits: {}. Suture executes it as soon as possible.", why.trim_end_matches('.'))
}

/// The reply to a command that was accepted and then not executed.
pub fn command_dropped(command: Command, why: &str) -> String {
    format!("`{command}` was not executed: {}.", why.trim_end_matches('.'))
}

/// The reply to a command that was executed without success.
pub fn command_failed(command: Command, why: &str) -> String {
    format!("`{command}` failed: {}.", why.trim_end_matches('.'))
}

/// The comment on a pull request that `/cancel` closes.
pub fn abandoned(by: &str) -> String {
    format!(
        "Closed by Suture: {by} requested `/cancel`. Suture will not request another pull request for this vulnerability."
    )
}

/// The reply to `/status`: state, blockers, running remedy, budgets used, next look.
pub fn status(record: &PullRequest, policy: &Policy, now: Timestamp) -> String {
    let since = duration(now.duration_since(record.state_since));
    let mut lines = vec![format!("**{}** for {since}, at commit {}.", record.state, record.head_sha.short())];
    if let Some(reason) = blocked(record) {
        lines.push(format!("Waiting for a person: {}.", reason.trim_end_matches('.')));
    }
    if let Some(label) = record.hold_label() {
        lines.push(format!("Held: Suture takes no action until a person removes the label `{label}`."));
    } else if record.hold {
        lines.push("Held: Suture takes no action until `/resume`.".to_owned());
    }
    if let Some(run) = &record.active_run {
        let progress = if run.accepted { "requested, waiting for its result" } else { "not requested yet" };
        lines.push(format!("Remedy in progress: {} ({progress}).", run.strategy));
    }
    let used: Vec<String> = Strategy::ALL
        .into_iter()
        .filter(|strategy| record.retry_counts.of(*strategy) > 0)
        .map(|strategy| format!("{strategy} {} of {}", record.retry_counts.of(strategy), policy.budget(strategy)))
        .collect();
    if !used.is_empty() {
        lines.push(format!("Budgets used: {}.", used.join(", ")));
    }
    match record.due_at {
        Some(due_at) if due_at > now => lines.push(format!("Suture will look at it again at {}.", time(due_at))),
        Some(_) => lines.push("Suture will look at it again in the next sweep.".to_owned()),
        None => {}
    }
    lines.join("\n\n")
}

/// The reply to `/explain`: diagnosis, evidence and next step.
pub fn explanation(record: &PullRequest, found: &Diagnosis, policy: &Policy, now: Timestamp) -> String {
    pull_request::explanation(record, found, &pull_request::commands(record, policy, ApiRole::Admin), policy, now)
}

/// Remedies and events for the escalation mail, one line each, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EscalationHistory {
    pub remedies: Vec<String>,
    /// The most recent events.
    pub events: Vec<String>,
}

pub fn hold_reason(by: &str, why: &str) -> String {
    if why.is_empty() {
        format!("held by {by}")
    } else {
        truncate(&format!("held by {by}: {why}"), EventPayload::MAX_TEXT)
    }
}

/// The reply to `/resume` when a label still holds the pull request.
pub fn held_by_label(label: &str) -> String {
    format!("it is still held by the label `{label}`: remove that label, Suture never does")
}

/// Why a bot cannot be asked over the bus here.
pub fn no_receiver(target: RemedyTarget) -> String {
    let setting = target.name().replace('-', "_");
    format!(
        "nobody receives events for {target} on the event bus of this machine: set retrigger.{setting} to via = \"comment\", \"label\" or \"http\" with a target"
    )
}

/// The mail for a vulnerability whose pull request was closed and never replaced (R-REMEDY-9).
pub fn missing_replacement(record: &PullRequest, why: &str, policy: &Policy) -> Notice {
    let (pr, id) = (&record.id, record.vulnerability_id.as_deref().unwrap_or("unknown"));
    let body = format!(
        "{id} in {} no longer has a pull request.\n\
         {}\n\n\
         What is wrong\n\
         \x20 Suture closed #{} to replace it and asked CodeGenie for a new pull request. None was opened.\n\
         \x20 {}.\n\n\
         What you can do\n\
         \x20 - Check that CodeGenie is running, and ask it for a pull request for {id}.\n\
         \x20 - Or reopen #{} and resolve its conflicts, if it has any: Suture then resumes automatically.\n",
        pr.repo,
        record.url(policy),
        pr.number,
        why.trim_end_matches('.'),
        pr.number,
    );
    Notice::new(subject(&format!("Suture: no pull request for {id} ({})", pr.repo)), body)
}

/// A mail to the on-call people, sent through SNS.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Notice {
    /// Less than 100 ASCII characters: the limit of SNS.
    pub subject: String,
    pub body: String,
    /// Set on escalations, so that several of them can become one mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<Box<EscalationSummary>>,
}

impl Notice {
    pub fn new(subject: String, body: String) -> Self {
        Self { subject, body, escalation: None }
    }
}

/// One escalation in a digest of several (R-REMEDY-11).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EscalationSummary {
    pub pr: PrId,
    pub link: String,
    /// The title of the rule; the digest groups by it.
    pub rule: String,
    /// What is wrong, one sentence each.
    pub cause: Vec<String>,
    pub vulnerability: String,
    /// State, branch and head in one line.
    pub position: String,
    /// What Suture tried, oldest first.
    pub remedies: Vec<String>,
    /// What happened, oldest first.
    pub events: Vec<String>,
}

/// Shown where an escalated pull request has no recorded reason.
const NO_REASON: &str = "no reason was recorded";

/// Longest mail body, in characters.
const MAX_BODY: usize = 20_000;

/// The mail of an escalation (R-REMEDY-11): cause, attempts, what a person can do, history.
pub fn escalation(
    record: &PullRequest,
    found: &Diagnosis,
    reason: &str,
    history: &EscalationHistory,
    policy: &Policy,
    now: Timestamp,
) -> Notice {
    let pr = &record.id;
    let mut body = String::new();
    // The evidence first, then the reason for the escalation if it says more than the evidence.
    let own_reason = (reason != blocked_reason(found) || found.overridden.is_some()).then_some(reason);
    let evidence = found.evidence.iter().map(String::as_str);
    let causes: Vec<String> =
        evidence.chain(own_reason).map(|line| format!("{}.", line.trim_end_matches('.'))).collect();
    let cause: String = causes.iter().map(|line| format!("  {line}\n")).collect();
    // Writing to a string cannot fail.
    let _ = write!(
        body,
        "{pr} needs a person.\n\
         {}\n\n\
         What is wrong\n{}  Stuck in {} since {} ({}).\n  Diagnosed by rule {}, {}.\n\n\
         Repository      {}\n\
         Vulnerability   {}\n\
         Branch          {} -> {}\n\
         Head            {}\n\n",
        record.url(policy),
        cause,
        found.state,
        time(record.state_since),
        duration(now.duration_since(record.state_since)),
        found.rule.number,
        found.rule.title,
        pr.repo,
        record.vulnerability_id.as_deref().unwrap_or("unknown"),
        record.branch,
        record.base_branch,
        record.head_sha.short(),
    );
    body.push_str("What Suture tried\n");
    push_lines(&mut body, &history.remedies, "nothing: no remedy applies");
    if record.lifetime_remedies > 0 {
        let (used, all) = (record.lifetime_remedies, policy.budgets.lifetime);
        let _ = writeln!(body, "  ({used} of {all} remedies used for this pull request in total)");
    }
    body.push_str(
        "\nWhat you can do\n\
         \x20 - Fix the cause and push to the branch: Suture then resumes automatically.\n\
         \x20 - Comment /resume on the pull request: Suture tries again with its budgets reset.\n\
         \x20 - Merge or close the pull request yourself. After a close, CodeGenie may open another one.\n\
         \x20 - Comment /cancel: Suture closes it and never requests another one.\n\
         Until then Suture takes no action.\n",
    );
    // The history comes last: truncation cuts the end, and the history is what the reader needs least.
    body.push_str("\nWhat happened\n");
    push_lines(&mut body, &history.events, "no events are recorded");
    let headline = format!("Suture: #{} needs a person: {} ({})", pr.number, found.rule.title, pr.repo);
    let summary = EscalationSummary {
        pr: pr.clone(),
        link: format!("https://github.com/{}/pull/{}", pr.repo, pr.number),
        rule: found.rule.title.to_owned(),
        cause: causes,
        vulnerability: record.vulnerability_id.clone().unwrap_or_else(|| "unknown".to_owned()),
        position: format!(
            "{} since {}, branch {} -> {}, head {}",
            found.state,
            time(record.state_since),
            record.branch,
            record.base_branch,
            record.head_sha.short()
        ),
        remedies: history.remedies.clone(),
        events: history.events.clone(),
    };
    Notice { escalation: Some(Box::new(summary)), ..Notice::new(subject(&headline), truncate(&body, MAX_BODY)) }
}

fn push_lines(body: &mut String, lines: &[String], none: &str) {
    for line in lines {
        let _ = writeln!(body, "  - {line}");
    }
    if lines.is_empty() {
        let _ = writeln!(body, "  - {none}");
    }
}

/// Makes a mail subject: ASCII, one line, under 100 characters.
fn subject(text: &str) -> String {
    let ascii: String =
        text.replace('—', "-").chars().map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { '?' }).collect();
    ascii.chars().take(99).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::RuleName;
    use crate::policy::GithubUrl;
    use crate::signals::CheckVerdict;
    use crate::snapshot::{LiveStatus, Mergeability};
    use crate::state::Substatus;
    use crate::tests::fixture::{PrScenario, failed_because, minutes, pr, run_of, sha, start};

    const FINE: LiveStatus =
        LiveStatus { mergeable: Mergeability::Clean, behind_by: Some(0), strict: true, build: None };

    fn found(evidence: &[&str], overridden: Option<&str>) -> Diagnosis {
        Diagnosis {
            state: State::ChecksFailed,
            head_sha: sha('a'),
            classification: Classification::NeedsIntervention,
            rule: RuleName { number: "3", title: "CHECKS FAILED — TRANSIENT" },
            evidence: evidence.iter().map(|&text| text.to_owned()).collect(),
            next: None,
            overridden: overridden.map(|why| (Classification::RetryChecks, why.to_owned())),
            stop_build: false,
            inconclusive: None,
        }
    }

    /// A pull request whose rebuild budget is exhausted, half an hour after the last failure.
    fn exhausted() -> (PrScenario, Diagnosis) {
        let mut scenario = PrScenario::at(State::ChecksFailed);
        scenario.record_mut().state_since = start() + minutes(95);
        scenario.now = start() + minutes(125);
        scenario.record_mut().retry_counts.rebuild = 3;
        scenario.record_mut().lifetime_remedies = 3;
        let diagnosis = scenario.diagnose(Some(&FINE));
        (scenario, diagnosis)
    }

    fn mail(scenario: &PrScenario, diagnosis: &Diagnosis, history: &EscalationHistory) -> Notice {
        escalation(scenario.record(), diagnosis, &blocked_reason(diagnosis), history, &scenario.policy, scenario.now)
    }

    #[test]
    fn time_is_shown_to_the_minute_in_utc() {
        for (at, expected) in [
            ("2026-03-02T09:00:00Z", "2026-03-02 09:00 UTC"),
            ("2026-03-02T09:00:59.999999999Z", "2026-03-02 09:00 UTC"),
            ("2026-03-02T00:30:00+01:00", "2026-03-01 23:30 UTC"),
            ("1969-12-31T23:59:59Z", "1969-12-31 23:59 UTC"),
        ] {
            assert_eq!(time(at.parse().unwrap()), expected);
        }
    }

    #[test]
    fn duration_shows_its_two_largest_units() {
        const MIN: i64 = 60;
        const HOUR: i64 = 60 * MIN;
        const DAY: i64 = 24 * HOUR;
        for (secs, expected) in [
            (-DAY, "0 s"),
            (-1, "0 s"),
            (0, "0 s"),
            (1, "1 s"),
            (59, "59 s"),
            (MIN, "1 min"),
            (2 * MIN - 1, "1 min"),
            (59 * MIN, "59 min"),
            (HOUR - 1, "59 min"),
            (HOUR, "1 h"),
            (HOUR + 59, "1 h"),
            (HOUR + MIN, "1 h 1 min"),
            (23 * HOUR + 59 * MIN, "23 h 59 min"),
            (DAY - 1, "23 h 59 min"),
            (DAY, "1 d"),
            (DAY + 59 * MIN, "1 d"),
            (DAY + HOUR, "1 d 1 h"),
            (DAY + HOUR + MIN, "1 d 1 h"),
            (3 * DAY + 4 * HOUR, "3 d 4 h"),
            (400 * DAY, "400 d"),
        ] {
            assert_eq!(duration(SignedDuration::from_secs(secs)), expected, "{secs} s");
        }
        assert_eq!(duration(SignedDuration::from_millis(59_999)), "59 s");
        assert_eq!(duration(SignedDuration::MIN), "0 s");
    }

    #[test]
    fn time_in_state_names_the_state() {
        assert_eq!(time_in_state(State::PolicyEvaluating, minutes(125)), "in POLICY_EVALUATING for 2 h 5 min");
    }

    #[test]
    fn failed_check_names_its_transient_rule() {
        let check = run_of("unit tests", CheckVerdict::Failed, start());
        assert_eq!(failed_check(&check), "`unit tests` failed and gave no reason");
        let transient =
            CheckReport { failure: failed_because(Some("timeout"), "timed out after 60 min"), ..check.clone() };
        assert_eq!(
            failed_check(&transient),
            "`unit tests` failed, transient by rule `timeout`: timed out after 60 min"
        );
        let real = CheckReport { failure: failed_because(None, "3 tests failed"), ..check };
        assert_eq!(failed_check(&real), "`unit tests` failed: 3 tests failed");
    }

    #[test]
    fn policy_rejection_shows_substatus_and_description() {
        let mut scenario = PrScenario::at(State::PolicyFailed);
        assert_eq!(policy_text(scenario.record()), "Policy Bot rejected it (SOD_FAILURE)");
        scenario.record_mut().signals.policy.as_mut().unwrap().text = "author approved it himself".to_owned();
        assert_eq!(policy_text(scenario.record()), "Policy Bot rejected it (SOD_FAILURE): author approved it himself");
        scenario.record_mut().substatus = None;
        assert_eq!(
            policy_text(scenario.record()),
            "Policy Bot rejected it (no reason given): author approved it himself"
        );
        scenario.record_mut().signals.policy = None;
        scenario.record_mut().substatus = Some(Substatus::OtherPolicyFailure);
        assert_eq!(policy_text(scenario.record()), "Policy Bot rejected it (OTHER_POLICY_FAILURE)");
    }

    #[test]
    fn required_texts_are_kept_literally() {
        assert_eq!(
            invalid_transition(&pr(), State::PolicyPassed, State::ChecksFailed, EventKind::CheckReported),
            "Invalid transition for PR #42: POLICY_PASSED → CHECKS_FAILED via CHECK_REPORTED"
        );
        assert_eq!(
            drift(&pr(), State::ChecksRunning, State::ChecksPassed),
            "State drift detected for PR #42: table=CHECKS_RUNNING, actual=CHECKS_PASSED"
        );
        assert_eq!(CLOSING_COMMENT, "Closing due to merge conflicts. A new PR will be created automatically.");
        assert_eq!(DUPLICATE_EXISTS, "duplicate PR exists");
    }

    #[test]
    fn closing_comment_names_the_person_who_asked() {
        assert_eq!(closing_comment(None), CLOSING_COMMENT);
        assert_eq!(
            closing_comment(Some("maria")),
            "Closing because maria requested `/close-and-reopen`. A new PR will be created automatically."
        );
    }

    #[test]
    fn every_classification_says_what_suture_will_do() {
        for (classification, expected) in [
            (Classification::CloseAndReopen, "close it and ask CodeGenie for a new pull request"),
            (Classification::UpdateBranch, "merge the base branch into it"),
            (Classification::RetryChecks, "run the checks again"),
            (Classification::RetriggerPolicyBot, "retrigger Policy Bot"),
            (Classification::RetriggerSodCheck, "request the separation-of-duties check again"),
            (Classification::RetriggerApproverBot, "retrigger Approver Bot"),
            (Classification::RetriggerMerge, "retrigger Automerge Bot"),
            (Classification::NeedsIntervention, "escalate to a person"),
            (Classification::NoAction, "do nothing for now"),
        ] {
            assert_eq!(action(classification), expected);
        }
    }

    #[test]
    fn diagnosis_text_has_rule_evidence_and_override() {
        assert_eq!(diagnosis(&found(&["one"], None)), "Rule 3 (CHECKS FAILED — TRANSIENT): one.");
        assert_eq!(diagnosis(&found(&["one", "two"], None)), "Rule 3 (CHECKS FAILED — TRANSIENT): one; two.");
        assert_eq!(
            diagnosis(&found(&["one", "two"], Some("Retry budget exhausted for rebuild (3/3)"))),
            "Rule 3 (CHECKS FAILED — TRANSIENT): one; two. Retry budget exhausted for rebuild (3/3)."
        );
    }

    #[test]
    fn blocked_reason_is_the_override_or_else_the_evidence() {
        let spent = "Retry budget exhausted for rebuild (3/3)";
        assert_eq!(blocked_reason(&found(&["one", "two"], Some(spent))), spent);
        assert_eq!(blocked_reason(&found(&["one", "two"], None)), "one; two");
        let long = "x".repeat(400);
        let reason = blocked_reason(&found(&[&long], None));
        assert_eq!(reason, format!("{}…", "x".repeat(299)));
    }

    #[test]
    fn mails_link_to_the_page_that_github_named() {
        let (mut scenario, diagnosis) = exhausted();
        let links = |scenario: &PrScenario, link: &str| {
            let escalation = mail(scenario, &diagnosis, &EscalationHistory::default());
            let missing = missing_replacement(scenario.record(), "no answer", &scenario.policy);
            for notice in [escalation, missing] {
                assert_eq!(notice.body.lines().nth(1), Some(link));
            }
        };
        links(&scenario, "https://github.com/acme/my-app/pull/42");
        scenario.policy.github_url = GithubUrl("https://ghe.example.org".to_owned());
        links(&scenario, "https://ghe.example.org/acme/my-app/pull/42");
        scenario.record_mut().html_url = Some("https://git.example.org/acme/my-app/pull/42".to_owned());
        links(&scenario, "https://git.example.org/acme/my-app/pull/42");
    }

    #[test]
    fn escalation_mail_has_cause_attempts_and_actions() {
        let (scenario, diagnosis) = exhausted();
        let history = EscalationHistory {
            remedies: vec![
                "2026-03-02 09:32 UTC rebuild: the checks failed again".to_owned(),
                "2026-03-02 10:03 UTC rebuild: the checks failed again".to_owned(),
                "2026-03-02 10:34 UTC rebuild: the checks failed again".to_owned(),
            ],
            events: vec![
                "2026-03-02 10:34 UTC CHECKS_STARTED by github-webhook".to_owned(),
                "2026-03-02 10:35 UTC CHECKS_FAILED by github-webhook: `build` failed".to_owned(),
            ],
        };
        let notice = mail(&scenario, &diagnosis, &history);
        assert_eq!(notice.subject, "Suture: #42 needs a person: CHECKS FAILED - TRANSIENT (acme/my-app)");
        insta::assert_snapshot!(notice.body, @"
        acme/my-app#42 needs a person.
        https://github.com/acme/my-app/pull/42

        What is wrong
          `build` failed, transient by rule `timeout`: timeout.
          Retry budget exhausted for rebuild (3/3).
          Stuck in CHECKS_FAILED since 2026-03-02 10:35 UTC (30 min).
          Diagnosed by rule 3, CHECKS FAILED — TRANSIENT.

        Repository      acme/my-app
        Vulnerability   CVE-2026-1234
        Branch          codegenie/fix-openssl -> main
        Head            aaaaaaa

        What Suture tried
          - 2026-03-02 09:32 UTC rebuild: the checks failed again
          - 2026-03-02 10:03 UTC rebuild: the checks failed again
          - 2026-03-02 10:34 UTC rebuild: the checks failed again
          (3 of 12 remedies used for this pull request in total)

        What you can do
          - Fix the cause and push to the branch: Suture then resumes automatically.
          - Comment /resume on the pull request: Suture tries again with its budgets reset.
          - Merge or close the pull request yourself. After a close, CodeGenie may open another one.
          - Comment /cancel: Suture closes it and never requests another one.
        Until then Suture takes no action.

        What happened
          - 2026-03-02 10:34 UTC CHECKS_STARTED by github-webhook
          - 2026-03-02 10:35 UTC CHECKS_FAILED by github-webhook: `build` failed
        ");
    }

    #[test]
    fn escalation_mail_without_attempts_or_events_says_so() {
        let mut scenario = PrScenario::at(State::PolicyFailed);
        scenario.record_mut().substatus = Some(Substatus::OtherPolicyFailure);
        scenario.record_mut().vulnerability_id = None;
        scenario.advance_minutes(24 * 60 + 90);
        let diagnosis = scenario.diagnose(Some(&FINE));
        let body = mail(&scenario, &diagnosis, &EscalationHistory::default()).body;
        insta::assert_snapshot!(body, @"
        acme/my-app#42 needs a person.
        https://github.com/acme/my-app/pull/42

        What is wrong
          Policy Bot rejected it (OTHER_POLICY_FAILURE).
          Stuck in POLICY_FAILED since 2026-03-02 09:04 UTC (1 d 1 h).
          Diagnosed by rule 7, POLICY FAILED — OTHER.

        Repository      acme/my-app
        Vulnerability   unknown
        Branch          codegenie/fix-openssl -> main
        Head            aaaaaaa

        What Suture tried
          - nothing: no remedy applies

        What you can do
          - Fix the cause and push to the branch: Suture then resumes automatically.
          - Comment /resume on the pull request: Suture tries again with its budgets reset.
          - Merge or close the pull request yourself. After a close, CodeGenie may open another one.
          - Comment /cancel: Suture closes it and never requests another one.
        Until then Suture takes no action.

        What happened
          - no events are recorded
        ");
    }

    #[test]
    fn subject_is_one_line_of_less_than_100_ascii_characters() {
        let (mut scenario, mut diagnosis) = exhausted();
        let long = format!("{}/{}#4294967296", "o".repeat(100), "r".repeat(100));
        scenario.record_mut().id = long.parse().unwrap();
        let subject = mail(&scenario, &diagnosis, &EscalationHistory::default()).subject;
        assert_eq!(subject.len(), 99);
        assert!(
            subject.starts_with("Suture: #4294967296 needs a person: CHECKS FAILED - TRANSIENT (ooooo"),
            "{subject}"
        );
        scenario.record_mut().id = crate::tests::fixture::pr();
        diagnosis.rule = RuleName { number: "0", title: "Ä — \t\r\n🦀~" };
        let subject = mail(&scenario, &diagnosis, &EscalationHistory::default()).subject;
        assert_eq!(subject, "Suture: #42 needs a person: ? - ????~ (acme/my-app)");
    }

    #[test]
    fn mail_body_is_truncated_at_the_limit() {
        let (scenario, diagnosis) = exhausted();
        let line = "ä".repeat(300);
        let many = EscalationHistory { remedies: vec![line.clone(); 12], events: vec![line; 100] };
        let body = mail(&scenario, &diagnosis, &many).body;
        assert_eq!(body.chars().count(), 20_000);
        assert!(body.ends_with('…'));
        assert!(body.contains("Until then Suture takes no action.\n"), "the actions are never truncated");
        let few = EscalationHistory { remedies: vec![], events: vec!["x".to_owned(); 100] };
        assert!(mail(&scenario, &diagnosis, &few).body.ends_with("  - x\n"));
    }

    #[test]
    fn notice_round_trips_through_json() {
        let notice = Notice::new("s".to_owned(), "b\n".to_owned());
        let json = serde_json::to_string(&notice).unwrap();
        assert_eq!(json, r#"{"subject":"s","body":"b\n"}"#);
        assert_eq!(serde_json::from_str::<Notice>(&json).unwrap(), notice);
    }
}
