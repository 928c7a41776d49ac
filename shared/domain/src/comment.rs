//! Every sentence a person reads: in logs, mails, comments, the dashboard and the API. Pure functions of what is known;
//! texts that the requirements quote are kept literally. Nothing here decides anything. What sweeps say is in `sweep`,
//! what the dashboard and the API say in `desk`, what the check run on a head says in `check_run`, what issues say in
//! `coordination`, what the numbers suggest in `insight`.

pub mod check_run;
pub mod coordination;
pub mod desk;
pub mod insight;
pub mod sweep;

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use crate::command::Role;
use crate::diagnosis::{Classification, Diagnosis};
use crate::event::{EventKind, Payload, cut};
use crate::id::PrId;
use crate::policy::Policy;
use crate::pull_request::Record;
use crate::signals::Check;
use crate::state::{State, Strategy};

/// What the comment on a pull request says when Suture closes it for a fresh one (R-BRIDGE-10).
pub const CLOSING: &str = "Closing due to merge conflicts. A new PR will be created automatically.";
/// What the log says when the guard of close-and-reopen finds another pull request (R-REMEDY-8).
pub const DUPLICATE: &str = "duplicate PR exists";

/// A time as people read it: to the minute, in UTC.
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

/// How long a pull request has been where it is.
pub fn waited(state: State, span: SignedDuration) -> String {
    format!("in {state} for {}", duration(span))
}

/// One red check, with the rule that excuses it or what it said.
pub fn failed_check(check: &Check) -> String {
    match &check.failure {
        None => format!("`{}` failed and gave no reason", check.name),
        Some(failure) => match &failure.transient_rule {
            Some(rule) => format!("`{}` failed, transient by rule `{rule}`: {}", check.name, failure.text),
            None => format!("`{}` failed: {}", check.name, failure.text),
        },
    }
}

pub fn policy_text(record: &Record) -> String {
    let said = record.signals.policy.as_ref().map_or("", |report| report.text.as_str());
    let which = record.substatus.map_or("no reason given", |substatus| substatus.name());
    if said.is_empty() {
        format!("Policy Bot rejected it ({which})")
    } else {
        format!("Policy Bot rejected it ({which}): {said}")
    }
}

/// A change the table does not allow (R-STATE-5).
pub fn invalid_transition(pr: &PrId, current: State, new: State, event: EventKind) -> String {
    format!("Invalid transition for PR #{}: {current} → {new} via {event}", pr.number)
}

/// The record differed from GitHub (R-SWEEP-5).
pub fn drift(pr: &PrId, old: State, new: State) -> String {
    format!("State drift detected for PR #{}: table={old}, actual={new}", pr.number)
}

/// What Suture does, as in "Suture will …".
pub fn action(classification: Classification) -> &'static str {
    match classification {
        Classification::CloseAndReopen => "close it and ask CodeGenie for a fresh pull request",
        Classification::UpdateBranch => "merge the base branch into it",
        Classification::RetryChecks => "run the checks again",
        Classification::RetriggerPolicyBot => "wake Policy Bot",
        Classification::RetriggerSodCheck => "ask the SOD validator again",
        Classification::RetriggerApproverBot => "wake Approver Bot",
        Classification::RetriggerMerge => "wake Automerge Bot",
        Classification::NeedsIntervention => "call a person",
        Classification::NoAction => "leave it alone for now",
    }
}

pub fn diagnosis(diagnosis: &Diagnosis) -> String {
    let evidence = diagnosis.evidence.join("; ");
    match &diagnosis.overridden {
        None => format!("Rule {} ({}): {evidence}.", diagnosis.rule.number, diagnosis.rule.title),
        Some((_, why)) => format!("Rule {} ({}): {evidence}. {why}.", diagnosis.rule.number, diagnosis.rule.title),
    }
}

/// Why a pull request was given up, for its record: the reason first, then the evidence.
pub fn blocked_reason(diagnosis: &Diagnosis) -> String {
    match &diagnosis.overridden {
        Some((_, why)) => why.clone(),
        None => cut(&diagnosis.evidence.join("; "), Payload::MAX_TEXT),
    }
}

/// Why automation stopped on a pull request: it was given up, a person holds it, or another one is in the way.
pub fn blocked(record: &Record) -> Option<String> {
    let said = || record.blocked.as_ref().map(|blocked| blocked.reason.clone());
    if record.state == State::NeedsIntervention {
        return said().or_else(|| Some("nobody wrote down why".to_owned()));
    }
    if let Some(label) = record.hold_label() {
        return Some(format!("the label `{label}` holds it"));
    }
    if record.hold {
        return record.hold_reason.clone().or_else(said).or_else(|| Some("a person holds it".to_owned()));
    }
    said()
}

/// Why `/cancel` closes a pull request, as a comment on it.
pub fn abandoned(by: &str) -> String {
    format!("Closed by Suture: {by} gave this fix up with `/cancel`. Suture will not ask for another one.")
}

/// Where a pull request stands, in a few lines: the answer to `/status`.
pub fn status(record: &Record, policy: &Policy, now: Timestamp) -> String {
    let since = duration(now.duration_since(record.progressed_at));
    let mut lines = vec![format!("**{}** for {since}, on {}.", record.state, record.head_sha.short())];
    if let Some(reason) = blocked(record) {
        lines.push(format!("Waiting for a person: {}.", reason.trim_end_matches('.')));
    }
    if record.hold || record.hold_label().is_some() {
        lines.push("Held: Suture watches, but does nothing. `/resume` lets it go on.".to_owned());
    }
    if let Some(run) = &record.active_run {
        let stage = if run.accepted { "asked for; its result is awaited" } else { "about to be asked for" };
        lines.push(format!("Under way: {}, {stage}.", run.strategy));
    }
    let tried: Vec<String> = Strategy::ALL
        .into_iter()
        .filter(|strategy| record.retry_counts.of(*strategy) > 0)
        .map(|strategy| format!("{strategy} {} of {}", record.retry_counts.of(strategy), policy.budget(strategy)))
        .collect();
    if !tried.is_empty() {
        lines.push(format!("Tried so far: {}.", tried.join(", ")));
    }
    match record.due_at {
        Some(due_at) if due_at > now => lines.push(format!("Suture looks again at {}.", time(due_at))),
        Some(_) => lines.push("Suture looks again with its next sweep.".to_owned()),
        None => {}
    }
    lines.join("\n\n")
}

/// What is wrong and what comes next: the answer to `/explain`.
pub fn explanation(record: &Record, found: &Diagnosis, policy: &Policy, now: Timestamp) -> String {
    desk::explanation(record, found, &desk::commands(record, policy, Role::Admin), policy, now)
}

/// What was tried and what happened, as the sweep found it; oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Story {
    pub remedies: Vec<String>,
    /// The last events, one line each.
    pub history: Vec<String>,
}

pub fn held(by: &str, why: &str) -> String {
    if why.is_empty() { format!("held by {by}") } else { cut(&format!("held by {by}: {why}"), Payload::MAX_TEXT) }
}

/// What `/resume` answers when a label holds the pull request all the same.
pub fn still_held(label: &str) -> String {
    format!("the label `{label}` still holds it: only people remove that")
}

/// The mail for a vulnerability whose pull request was closed, and no fresh one came (R-REMEDY-9).
pub fn missing_replacement(record: &Record, why: &str) -> Notice {
    let (pr, id) = (&record.id, record.vulnerability_id.as_deref().unwrap_or("unknown"));
    let body = format!(
        "{id} in {} has no pull request any more.\n\
         https://github.com/{}/pull/{}\n\n\
         What is wrong\n\
         \x20 Suture closed #{} because of conflicts and asked CodeGenie for a fresh pull request, twice. None came.\n\
         \x20 {}.\n\n\
         What you can do\n\
         \x20 - See whether CodeGenie is at work, and ask it for a pull request for {id}.\n\
         \x20 - Or reopen #{} and resolve its conflicts: Suture takes over again by itself.\n",
        pr.repo,
        pr.repo,
        pr.number,
        pr.number,
        why.trim_end_matches('.'),
        pr.number,
    );
    Notice { subject: subject(&format!("Suture: no pull request for {id} ({})", pr.repo)), body }
}

/// A message to people.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Notice {
    /// Less than 100 ASCII characters: SNS takes no more.
    pub subject: String,
    pub body: String,
}

/// Longest body, in characters; a mail nobody can read helps nobody.
const MAX_BODY: usize = 20_000;

/// The mail of an escalation (R-REMEDY-11): what is wrong and why, what was tried, what a person can do.
pub fn escalation(
    record: &Record,
    found: &Diagnosis,
    reason: &str,
    story: &Story,
    policy: &Policy,
    now: Timestamp,
) -> Notice {
    let pr = &record.id;
    let mut body = String::new();
    // What Suture saw, and then why it gave up, if that is more than what it saw.
    let own_reason = (reason != blocked_reason(found) || found.overridden.is_some()).then_some(reason);
    let seen = found.evidence.iter().map(String::as_str);
    let wrong: String = seen.chain(own_reason).map(|line| format!("  {}.\n", line.trim_end_matches('.'))).collect();
    // Writing to a string cannot fail.
    let _ = write!(
        body,
        "{pr} needs a person.\n\
         https://github.com/{}/pull/{}\n\n\
         What is wrong\n{}  Stuck in {} since {} ({}).\n  Found by rule {}, {}.\n\n\
         Repository      {}\n\
         Vulnerability   {}\n\
         Branch          {} -> {}\n\
         Head            {}\n\n",
        pr.repo,
        pr.number,
        wrong,
        found.state,
        time(record.progressed_at),
        duration(now.duration_since(record.progressed_at)),
        found.rule.number,
        found.rule.title,
        pr.repo,
        record.vulnerability_id.as_deref().unwrap_or("unknown"),
        record.branch,
        record.base_branch,
        record.head_sha.short(),
    );
    body.push_str("What Suture tried\n");
    push_lines(&mut body, &story.remedies, "nothing: no remedy applies");
    if record.lifetime_remedies > 0 {
        let (used, all) = (record.lifetime_remedies, policy.budgets.lifetime);
        let _ = writeln!(body, "  ({used} of {all} remedies used in this pull request's life)");
    }
    body.push_str(
        "\nWhat you can do\n\
         \x20 - Fix the cause and push to the branch: Suture takes over again by itself.\n\
         \x20 - Comment /resume on the pull request: Suture tries again, with fresh budgets.\n\
         \x20 - Merge or close the pull request: Suture notices. CodeGenie may open another one.\n\
         \x20 - Comment /cancel: it is closed, and Suture never asks for another one.\n\
         Until then Suture only watches.\n",
    );
    // The history comes last: it is the longest part, and the one a cut does least harm to.
    body.push_str("\nWhat happened\n");
    push_lines(&mut body, &story.history, "no events are recorded");
    let headline = format!("Suture: #{} needs a person: {} ({})", pr.number, found.rule.title, pr.repo);
    Notice { subject: subject(&headline), body: cut(&body, MAX_BODY) }
}

fn push_lines(body: &mut String, lines: &[String], none: &str) {
    for line in lines {
        let _ = writeln!(body, "  - {line}");
    }
    if lines.is_empty() {
        let _ = writeln!(body, "  - {none}");
    }
}

/// ASCII, one line, under 100 characters.
fn subject(text: &str) -> String {
    let ascii: String =
        text.replace('—', "-").chars().map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { '?' }).collect();
    ascii.chars().take(99).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::RuleName;
    use crate::signals::Verdict;
    use crate::snapshot::{Live, Mergeable};
    use crate::state::Substatus;
    use crate::tests::world::{Tale, failed_because, minutes, pr, run_of, sha, start};

    const FINE: Live = Live { mergeable: Mergeable::Clean, behind_by: Some(0), strict: true, build: None };

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
            inconclusive: false,
        }
    }

    /// A pull request whose rebuilds are all spent, half an hour after the last failure.
    fn given_up() -> (Tale, Diagnosis) {
        let mut tale = Tale::at(State::ChecksFailed);
        tale.record_mut().progressed_at = start() + minutes(95);
        tale.now = start() + minutes(125);
        tale.record_mut().retry_counts.rebuild = 3;
        tale.record_mut().lifetime_remedies = 3;
        let diagnosis = tale.diagnose(Some(&FINE));
        (tale, diagnosis)
    }

    fn mail(tale: &Tale, diagnosis: &Diagnosis, story: &Story) -> Notice {
        escalation(tale.record(), diagnosis, &blocked_reason(diagnosis), story, &tale.policy, tale.now)
    }

    #[test]
    fn a_time_is_told_to_the_minute_in_utc() {
        for (at, told) in [
            ("2026-03-02T09:00:00Z", "2026-03-02 09:00 UTC"),
            ("2026-03-02T09:00:59.999999999Z", "2026-03-02 09:00 UTC"),
            ("2026-03-02T00:30:00+01:00", "2026-03-01 23:30 UTC"),
            ("1969-12-31T23:59:59Z", "1969-12-31 23:59 UTC"),
        ] {
            assert_eq!(time(at.parse().unwrap()), told);
        }
    }

    #[test]
    fn a_duration_is_told_in_its_two_largest_units() {
        const MIN: i64 = 60;
        const HOUR: i64 = 60 * MIN;
        const DAY: i64 = 24 * HOUR;
        for (secs, told) in [
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
            assert_eq!(duration(SignedDuration::from_secs(secs)), told, "{secs} s");
        }
        assert_eq!(duration(SignedDuration::from_millis(59_999)), "59 s");
        assert_eq!(duration(SignedDuration::MIN), "0 s");
    }

    #[test]
    fn waiting_names_the_state() {
        assert_eq!(waited(State::PolicyEvaluating, minutes(125)), "in POLICY_EVALUATING for 2 h 5 min");
    }

    #[test]
    fn a_red_check_is_told_with_the_rule_that_excuses_it() {
        let check = run_of("unit tests", Verdict::Failed, start());
        assert_eq!(failed_check(&check), "`unit tests` failed and gave no reason");
        let excused = Check { failure: failed_because(Some("timeout"), "timed out after 60 min"), ..check.clone() };
        assert_eq!(failed_check(&excused), "`unit tests` failed, transient by rule `timeout`: timed out after 60 min");
        let real = Check { failure: failed_because(None, "3 tests failed"), ..check };
        assert_eq!(failed_check(&real), "`unit tests` failed: 3 tests failed");
    }

    #[test]
    fn a_rejection_is_told_with_its_class_and_policy_bots_words() {
        let mut tale = Tale::at(State::PolicyFailed);
        assert_eq!(policy_text(tale.record()), "Policy Bot rejected it (SOD_FAILURE)");
        tale.record_mut().signals.policy.as_mut().unwrap().text = "author approved it himself".to_owned();
        assert_eq!(policy_text(tale.record()), "Policy Bot rejected it (SOD_FAILURE): author approved it himself");
        tale.record_mut().substatus = None;
        assert_eq!(policy_text(tale.record()), "Policy Bot rejected it (no reason given): author approved it himself");
        tale.record_mut().signals.policy = None;
        tale.record_mut().substatus = Some(Substatus::OtherPolicyFailure);
        assert_eq!(policy_text(tale.record()), "Policy Bot rejected it (OTHER_POLICY_FAILURE)");
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
        assert_eq!(CLOSING, "Closing due to merge conflicts. A new PR will be created automatically.");
        assert_eq!(DUPLICATE, "duplicate PR exists");
    }

    #[test]
    fn every_classification_says_what_suture_will_do() {
        for (classification, said) in [
            (Classification::CloseAndReopen, "close it and ask CodeGenie for a fresh pull request"),
            (Classification::UpdateBranch, "merge the base branch into it"),
            (Classification::RetryChecks, "run the checks again"),
            (Classification::RetriggerPolicyBot, "wake Policy Bot"),
            (Classification::RetriggerSodCheck, "ask the SOD validator again"),
            (Classification::RetriggerApproverBot, "wake Approver Bot"),
            (Classification::RetriggerMerge, "wake Automerge Bot"),
            (Classification::NeedsIntervention, "call a person"),
            (Classification::NoAction, "leave it alone for now"),
        ] {
            assert_eq!(action(classification), said);
        }
    }

    #[test]
    fn a_diagnosis_is_the_rule_its_evidence_and_what_overrode_it() {
        assert_eq!(diagnosis(&found(&["one"], None)), "Rule 3 (CHECKS FAILED — TRANSIENT): one.");
        assert_eq!(diagnosis(&found(&["one", "two"], None)), "Rule 3 (CHECKS FAILED — TRANSIENT): one; two.");
        assert_eq!(
            diagnosis(&found(&["one", "two"], Some("Retry budget exhausted for rebuild (3/3)"))),
            "Rule 3 (CHECKS FAILED — TRANSIENT): one; two. Retry budget exhausted for rebuild (3/3)."
        );
    }

    #[test]
    fn the_reason_of_a_block_is_the_budget_or_else_the_evidence() {
        let spent = "Retry budget exhausted for rebuild (3/3)";
        assert_eq!(blocked_reason(&found(&["one", "two"], Some(spent))), spent);
        assert_eq!(blocked_reason(&found(&["one", "two"], None)), "one; two");
        let long = "x".repeat(400);
        let reason = blocked_reason(&found(&[&long], None));
        assert_eq!(reason, format!("{}…", "x".repeat(299)));
    }

    #[test]
    fn the_mail_says_what_is_wrong_what_was_tried_and_what_to_do() {
        let (tale, diagnosis) = given_up();
        let story = Story {
            remedies: vec![
                "2026-03-02 09:32 UTC rebuild: the checks failed again".to_owned(),
                "2026-03-02 10:03 UTC rebuild: the checks failed again".to_owned(),
                "2026-03-02 10:34 UTC rebuild: the checks failed again".to_owned(),
            ],
            history: vec![
                "2026-03-02 10:34 UTC CHECKS_STARTED by github-webhook".to_owned(),
                "2026-03-02 10:35 UTC CHECKS_FAILED by github-webhook: `build` failed".to_owned(),
            ],
        };
        let notice = mail(&tale, &diagnosis, &story);
        assert_eq!(notice.subject, "Suture: #42 needs a person: CHECKS FAILED - TRANSIENT (acme/my-app)");
        insta::assert_snapshot!(notice.body, @"
        acme/my-app#42 needs a person.
        https://github.com/acme/my-app/pull/42

        What is wrong
          `build` failed, transient by rule `timeout`: timeout.
          Retry budget exhausted for rebuild (3/3).
          Stuck in CHECKS_FAILED since 2026-03-02 10:35 UTC (30 min).
          Found by rule 3, CHECKS FAILED — TRANSIENT.

        Repository      acme/my-app
        Vulnerability   CVE-2026-1234
        Branch          codegenie/fix-openssl -> main
        Head            aaaaaaa

        What Suture tried
          - 2026-03-02 09:32 UTC rebuild: the checks failed again
          - 2026-03-02 10:03 UTC rebuild: the checks failed again
          - 2026-03-02 10:34 UTC rebuild: the checks failed again
          (3 of 12 remedies used in this pull request's life)

        What you can do
          - Fix the cause and push to the branch: Suture takes over again by itself.
          - Comment /resume on the pull request: Suture tries again, with fresh budgets.
          - Merge or close the pull request: Suture notices. CodeGenie may open another one.
          - Comment /cancel: it is closed, and Suture never asks for another one.
        Until then Suture only watches.

        What happened
          - 2026-03-02 10:34 UTC CHECKS_STARTED by github-webhook
          - 2026-03-02 10:35 UTC CHECKS_FAILED by github-webhook: `build` failed
        ");
    }

    #[test]
    fn the_mail_says_so_when_nothing_was_tried_or_is_known() {
        let mut tale = Tale::at(State::PolicyFailed);
        tale.record_mut().substatus = Some(Substatus::OtherPolicyFailure);
        tale.record_mut().vulnerability_id = None;
        tale.pass(24 * 60 + 90);
        let diagnosis = tale.diagnose(Some(&FINE));
        let body = mail(&tale, &diagnosis, &Story::default()).body;
        insta::assert_snapshot!(body, @"
        acme/my-app#42 needs a person.
        https://github.com/acme/my-app/pull/42

        What is wrong
          Policy Bot rejected it (OTHER_POLICY_FAILURE).
          Stuck in POLICY_FAILED since 2026-03-02 09:04 UTC (1 d 1 h).
          Found by rule 7, POLICY FAILED — OTHER.

        Repository      acme/my-app
        Vulnerability   unknown
        Branch          codegenie/fix-openssl -> main
        Head            aaaaaaa

        What Suture tried
          - nothing: no remedy applies

        What you can do
          - Fix the cause and push to the branch: Suture takes over again by itself.
          - Comment /resume on the pull request: Suture tries again, with fresh budgets.
          - Merge or close the pull request: Suture notices. CodeGenie may open another one.
          - Comment /cancel: it is closed, and Suture never asks for another one.
        Until then Suture only watches.

        What happened
          - no events are recorded
        ");
    }

    #[test]
    fn a_subject_is_one_line_of_less_than_100_ascii_characters() {
        let (mut tale, mut diagnosis) = given_up();
        let long = format!("{}/{}#4294967296", "o".repeat(100), "r".repeat(100));
        tale.record_mut().id = long.parse().unwrap();
        let subject = mail(&tale, &diagnosis, &Story::default()).subject;
        assert_eq!(subject.len(), 99);
        assert!(
            subject.starts_with("Suture: #4294967296 needs a person: CHECKS FAILED - TRANSIENT (ooooo"),
            "{subject}"
        );
        tale.record_mut().id = crate::tests::world::pr();
        diagnosis.rule = RuleName { number: "0", title: "Ä — \t\r\n🦀~" };
        let subject = mail(&tale, &diagnosis, &Story::default()).subject;
        assert_eq!(subject, "Suture: #42 needs a person: ? - ????~ (acme/my-app)");
    }

    #[test]
    fn a_body_nobody_can_read_is_cut() {
        let (tale, diagnosis) = given_up();
        let line = "ä".repeat(300);
        let many = Story { remedies: vec![line.clone(); 12], history: vec![line; 100] };
        let body = mail(&tale, &diagnosis, &many).body;
        assert_eq!(body.chars().count(), 20_000);
        assert!(body.ends_with('…'));
        assert!(body.contains("Until then Suture only watches.\n"), "what to do is never what is cut");
        let few = Story { remedies: vec![], history: vec!["x".to_owned(); 100] };
        assert!(mail(&tale, &diagnosis, &few).body.ends_with("  - x\n"));
    }

    #[test]
    fn a_notice_is_stored_and_read_back() {
        let notice = Notice { subject: "s".to_owned(), body: "b\n".to_owned() };
        let json = serde_json::to_string(&notice).unwrap();
        assert_eq!(json, r#"{"subject":"s","body":"b\n"}"#);
        assert_eq!(serde_json::from_str::<Notice>(&json).unwrap(), notice);
    }
}
