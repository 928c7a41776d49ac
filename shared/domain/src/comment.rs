//! Every sentence a person reads: in logs, mails, comments, the dashboard and the API. Pure functions of what is known;
//! the templates that the seed quotes are kept literally. Nothing here decides anything.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use crate::diagnosis::{Classification, Diagnosis};
use crate::event::{EventKind, Payload, cut};
use crate::id::PrId;
use crate::policy::Policy;
use crate::pull_request::Record;
use crate::signals::Check;
use crate::state::State;

/// What the comment on a pull request says when Suture closes it for a fresh one (seed §10).
pub const CLOSING: &str = "Closing due to merge conflicts. A new PR will be created automatically.";
/// What the log says when the guard of close-and-reopen finds another pull request (seed §10).
pub const DUPLICATE: &str = "duplicate PR exists";

/// A time as people read it: to the minute, in UTC.
#[must_use]
pub fn time(at: Timestamp) -> String {
    let text = format!("{at:.0}");
    match text.get(..16) {
        Some(minute) => format!("{} UTC", minute.replace('T', " ")),
        None => text,
    }
}

/// A duration in its two largest units: `3 d 4 h`, `2 h 5 min`, `12 min`, `40 s`.
#[must_use]
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
#[must_use]
pub fn waited(state: State, span: SignedDuration) -> String {
    format!("in {state} for {}", duration(span))
}

/// One red check, with the rule that excuses it or what it said.
#[must_use]
pub fn failed_check(check: &Check) -> String {
    match &check.failure {
        None => format!("`{}` failed and gave no reason", check.name),
        Some(failure) => match &failure.transient_rule {
            Some(rule) => format!("`{}` failed, transient by rule `{rule}`: {}", check.name, failure.text),
            None => format!("`{}` failed: {}", check.name, failure.text),
        },
    }
}

/// What Policy Bot said.
#[must_use]
pub fn policy_text(record: &Record) -> String {
    let said = record.signals.policy.as_ref().map_or("", |report| report.text.as_str());
    let which = record.substatus.map_or("no reason given", |substatus| substatus.name());
    if said.is_empty() {
        format!("Policy Bot rejected it ({which})")
    } else {
        format!("Policy Bot rejected it ({which}): {said}")
    }
}

/// Seed §13: a change the table does not allow.
#[must_use]
pub fn invalid_transition(pr: &PrId, current: State, new: State, event: EventKind) -> String {
    format!("Invalid transition for PR #{}: {current} → {new} via {event}", pr.number)
}

/// Seed §9: the record was wrong.
#[must_use]
pub fn drift(pr: &PrId, old: State, new: State) -> String {
    format!("State drift detected for PR #{}: table={old}, actual={new}", pr.number)
}

/// What Suture does, as in "Suture will …".
#[must_use]
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

/// The diagnosis in one sentence.
#[must_use]
pub fn diagnosis(diagnosis: &Diagnosis) -> String {
    let evidence = diagnosis.evidence.join("; ");
    match &diagnosis.overridden {
        None => format!("Rule {} ({}): {evidence}.", diagnosis.rule.number, diagnosis.rule.title),
        Some((_, why)) => format!("Rule {} ({}): {evidence}. {why}.", diagnosis.rule.number, diagnosis.rule.title),
    }
}

/// Why a pull request was given up, for its record: the reason first, then the evidence.
#[must_use]
pub fn blocked_reason(diagnosis: &Diagnosis) -> String {
    match &diagnosis.overridden {
        Some((_, why)) => why.clone(),
        None => cut(&diagnosis.evidence.join("; "), Payload::MAX_TEXT),
    }
}

/// What was tried and what happened, as the sweep found it; oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Story {
    /// Remedies: when, what, how it ended.
    pub remedies: Vec<String>,
    /// The last events, one line each.
    pub history: Vec<String>,
}

/// A message to people.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Notice {
    /// Less than 100 ASCII characters: SNS takes no more.
    pub subject: String,
    /// Plain text.
    pub body: String,
}

/// Longest body, in characters; a mail nobody can read helps nobody.
const MAX_BODY: usize = 20_000;

/// The mail of seed §10 ESCALATION: what is wrong and why, what was tried, what a person can do.
#[must_use]
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
    // Writing to a string cannot fail.
    let _ = write!(
        body,
        "{pr} needs a person.\n\
         https://github.com/{}/pull/{}\n\n\
         What is wrong\n  {reason}.\n  {}\n  Stuck in {} since {} ({}).\n\n\
         Repository      {}\n\
         Vulnerability   {}\n\
         Branch          {} -> {}\n\
         Head            {}\n\n",
        pr.repo,
        pr.number,
        diagnosis(found),
        found.state,
        time(record.progressed_at),
        duration(now.duration_since(record.progressed_at)),
        pr.repo,
        record.vulnerability_id.as_deref().unwrap_or("unknown"),
        record.branch,
        record.base_branch,
        record.head_sha.short(),
    );
    body.push_str("What Suture tried\n");
    push_lines(&mut body, &story.remedies, "nothing: no remedy applies");
    let _ = writeln!(
        body,
        "  ({} of {} remedies used in this pull request's life)\n",
        record.lifetime_remedies, policy.budgets.lifetime
    );
    body.push_str("What happened\n");
    push_lines(&mut body, &story.history, "no events are recorded");
    body.push_str(
        "\nWhat you can do\n\
         \x20 - Fix the cause and push to the branch: Suture takes over again by itself.\n\
         \x20 - Comment /resume on the pull request to let Suture try again with fresh budgets.\n\
         \x20 - Merge or close the pull request: Suture notices, and this is over.\n\
         \x20 - Comment /cancel to close it for good; Suture will not ask for another one.\n\
         Until then Suture only watches.\n",
    );
    Notice {
        subject: subject(&format!("Suture: {pr} needs a person ({})", found.rule.title)),
        body: cut(&body, MAX_BODY),
    }
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
