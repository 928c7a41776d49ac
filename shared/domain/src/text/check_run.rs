//! The text and buttons of Suture's check run on a head commit: state, cause, evidence, next step, remaining budgets.
//! Apart from the times, the text is a function of the record alone, so that a digest tells whether it has changed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{action, failed_check, pull_request, time};
use crate::backoff::jitter_seed;
use crate::command::{ApiRole, Command};
use crate::diagnosis::{Classification, DiagnosisInput, classify};
use crate::event::truncate;
use crate::policy::Policy;
use crate::pull_request::{PublishedCheckRun, PullRequest};
use crate::state::{State, Strategy};

pub const CHECK_RUN_NAME: &str = "suture";
/// Longest title, in characters.
const MAX_TITLE: usize = 120;
/// Failed checks that are named. Naming more would only change the check run more often.
const MAX_CHECKS: usize = 3;

/// The content of a check run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRunText {
    pub mood: CheckConclusion,
    pub title: String,
    pub summary: String,
    /// Commands that people can send with one click.
    pub buttons: Vec<CheckRunButton>,
}

/// The conclusion of the check run. It never blocks a merge: it is neutral unless a person is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckConclusion {
    /// Neutral: shown in grey, blocks nothing.
    Quiet,
    /// Action required: the pull request needs a person.
    Person,
    /// Success: the pull request is merged.
    Done,
}

/// A button of the check run; each sends one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckRunButton {
    /// `/rebuild`.
    Rebuild,
    /// `/hold`.
    Hold,
    /// `/resume`; replaces `/hold` while the pull request is held or escalated.
    Resume,
    /// `/explain`.
    Explain,
}

impl CheckRunButton {
    const ALL: [Self; 4] = [Self::Rebuild, Self::Hold, Self::Resume, Self::Explain];

    /// The identifier that GitHub sends when the button is pressed; at most 20 characters.
    pub fn identifier(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::Hold => "hold",
            Self::Resume => "resume",
            Self::Explain => "explain",
        }
    }

    pub fn from_identifier(identifier: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|button| button.identifier() == identifier)
    }

    /// The label on the button; at most 20 characters.
    pub fn label(self) -> &'static str {
        match self {
            Self::Rebuild => "Run checks again",
            Self::Hold => "Hold",
            Self::Resume => "Resume",
            Self::Explain => "Explain",
        }
    }

    /// What the button does; at most 40 characters.
    pub fn description(self) -> &'static str {
        match self {
            Self::Rebuild => "Run the checks of this commit again",
            Self::Hold => "Stop remedies until you press Resume",
            Self::Resume => "Let Suture act on this pull request",
            Self::Explain => "Show the diagnosis and the next step",
        }
    }

    pub fn command(self) -> Command {
        match self {
            Self::Rebuild => Command::Rebuild,
            Self::Hold => Command::Hold,
            Self::Resume => Command::Resume,
            Self::Explain => Command::Explain,
        }
    }
}

/// The result of a pressed button: accepted, accepted with a remark, or refused.
pub fn button_result(by: &str, command: Command, answer: Result<Option<&str>, &str>) -> String {
    match answer {
        Ok(None) => format!("{by} asked for `{command}`."),
        Ok(Some(remark)) => format!("{by} asked for `{command}`, but {}.", remark.trim_end_matches('.')),
        Err(reason) => format!("{by} asked for `{command}`, but Suture refused: {}.", reason.trim_end_matches('.')),
    }
}

/// A remedy that a person requested was dropped, failed or did not help.
pub fn command_failed(strategy: Strategy, why: &str) -> String {
    pull_request::sentence(&format!("Suture was asked to {}: {why}", pull_request::strategy_phrase(strategy)))
}

/// A digest of the whole check run without the times; the check run is published again when it changes.
pub fn digest(record: &PullRequest, shown: &PublishedCheckRun, policy: &Policy) -> u64 {
    let text = parts(record, shown, policy);
    let explained = if shown.explained { "explained" } else { "" };
    let buttons: String = buttons(record).into_iter().map(CheckRunButton::identifier).collect();
    jitter_seed(&format!("{}\n{}\n{}\n{explained}\n{buttons}", text.state, text.details, text.next), 0)
}

pub fn text(record: &PullRequest, shown: &PublishedCheckRun, policy: &Policy, now: Timestamp) -> CheckRunText {
    let parts = parts(record, shown, policy);
    let since = time(record.state_since);
    let next = match parts.unless {
        Some(unless) => format!("{} {}{unless}.", parts.next, pull_request::next_visit(record, now)),
        None => parts.next,
    };
    let mut summary = format!("{} since {since}.\n\n{}\n\n**Next:** {next}", parts.state, parts.details);
    if shown.explained {
        let found = classify(&DiagnosisInput { record, live: None, vulnerability: None, policy, now });
        let commands = pull_request::commands(record, policy, ApiRole::Operator);
        summary = format!("{summary}\n\n---\n\n{}", pull_request::explanation(record, &found, &commands, policy, now));
    }
    summary = format!("{summary}\n\n*As of {}. Updated only when something changes.*", time(now));
    CheckRunText { mood: mood(record), title: title(record), summary, buttons: buttons(record) }
}

fn mood(record: &PullRequest) -> CheckConclusion {
    if record.state == State::NeedsIntervention {
        CheckConclusion::Person
    } else if record.state == State::Merged {
        CheckConclusion::Done
    } else {
        CheckConclusion::Quiet
    }
}

fn buttons(record: &PullRequest) -> Vec<CheckRunButton> {
    if record.state.is_terminal() {
        return Vec::new();
    }
    let resumes = record.hold || record.state == State::NeedsIntervention;
    vec![
        CheckRunButton::Rebuild,
        if resumes { CheckRunButton::Resume } else { CheckRunButton::Hold },
        CheckRunButton::Explain,
    ]
}

/// The parts of the summary, without the times.
struct CheckRunParts {
    state: String,
    /// Cause, evidence, last command, budgets.
    details: String,
    /// The next step. If `unless` is set, the time of the next visit follows, and then `unless`.
    next: String,
    /// What could change the next step; empty if nothing.
    unless: Option<&'static str>,
}

fn parts(record: &PullRequest, shown: &PublishedCheckRun, policy: &Policy) -> CheckRunParts {
    let substatus = record.substatus.map(|substatus| format!(" ({})", substatus.name())).unwrap_or_default();
    let state = format!("**{}**{substatus}, at commit {},", record.state, record.head_sha.short());
    let mut lines = vec![format!("**Cause:** {}", cause(record, policy))];
    let evidence = shown.diagnosis.clone().map_or_else(|| signal_evidence(record, policy), |because| vec![because]);
    if !evidence.is_empty() {
        let list: Vec<String> = evidence.iter().map(|line| format!("- {}", pull_request::sentence(line))).collect();
        lines.push(format!("**Evidence:**\n{}", list.join("\n")));
    }
    lines.extend(shown.command_result.iter().map(|result| format!("**Last command:** {result}")));
    if !record.state.is_terminal() {
        lines.push(format!("**Budgets left:** {}", budgets(record, policy)));
    }
    let (next, unless) = next(record, policy);
    CheckRunParts { state, details: lines.join("\n\n"), next, unless }
}

fn title(record: &PullRequest) -> String {
    let text = if record.state == State::NeedsIntervention {
        "A person is needed".to_owned()
    } else {
        let status = pull_request::inactive_reason(record).unwrap_or_else(|| state_summary(record.state).to_owned());
        match &record.active_run {
            Some(run) if record.is_actionable() => {
                format!("{status}; remedy in progress: {}", pull_request::strategy_phrase(run.strategy))
            }
            Some(_) | None => status,
        }
    };
    truncate(text.trim_end_matches('.'), MAX_TITLE)
}

/// What a state means, in the fewest words.
fn state_summary(state: State) -> &'static str {
    match state {
        State::Created => "No check has started yet",
        State::ChecksRunning => "Checks are running",
        State::ChecksFailed => "Checks failed",
        State::ChecksPassed => "Checks passed, waiting for Policy Bot",
        State::PolicyEvaluating => "Policy Bot is evaluating",
        State::PolicyFailed => "Policy Bot rejected it",
        State::PolicyPassed => "Waiting for Approver Bot",
        State::Approved => "Approved, waiting for Automerge Bot",
        State::Merging => "Automerge Bot is merging it",
        State::Merged | State::Closed | State::NeedsIntervention => "",
    }
}

/// Why the pull request is in its state. Unlike the dashboard it does not name running checks: each would be an update.
fn cause(record: &PullRequest, policy: &Policy) -> String {
    if let Some(stopped) = pull_request::inactive_reason(record) {
        return stopped;
    }
    if matches!(record.state, State::ChecksRunning | State::ChecksFailed) {
        return format!("{}.", state_summary(record.state));
    }
    pull_request::sentence(&pull_request::expected_step(record, policy))
}

/// What the signals of the head say about its state.
fn signal_evidence(record: &PullRequest, policy: &Policy) -> Vec<String> {
    let failed = || record.signals.failed_checks(record.required(policy));
    let mut lines: Vec<String> = Vec::new();
    if record.state == State::ChecksFailed {
        lines.extend(failed().take(MAX_CHECKS).map(failed_check));
        if failed().nth(MAX_CHECKS).is_some() {
            lines.push("other checks failed too".to_owned());
        }
    } else if matches!(record.state, State::PolicyPassed | State::Approved | State::Merging) {
        lines.push("the checks passed and the policies are met".to_owned());
        let approved = record.signals.approvals.iter().filter(|approval| approval.granted);
        lines.extend(approved.map(|approval| format!("approved by {}", approval.by)).take(MAX_CHECKS));
    }
    lines
}

/// What is left of each budget and of the lifetime cap. Close-and-reopen is counted per vulnerability, not here.
fn budgets(record: &PullRequest, policy: &Policy) -> String {
    let left = |strategy: Strategy| {
        let all = policy.budget(strategy);
        format!("{strategy} {} of {all}", all.saturating_sub(record.retry_counts.of(strategy)))
    };
    let all = policy.budgets.lifetime;
    let counted = |strategy: &Strategy| *strategy != Strategy::CloseAndReopen;
    let each: Vec<String> = Strategy::ALL.into_iter().filter(counted).map(left).collect();
    format!("{}; in total {} of {all} remedies.", each.join(", "), all.saturating_sub(record.lifetime_remedies))
}

/// The next step, and what could change it. Classifies as of the time when the record becomes stale, from the record
/// alone, without GitHub or Jenkins.
fn next(record: &PullRequest, policy: &Policy) -> (String, Option<&'static str>) {
    if let Some(step) = pull_request::step_of_others(record) {
        return (step, None);
    }
    let due = record.stale_at(policy).unwrap_or(record.state_since);
    let found = classify(&DiagnosisInput { record, live: None, vulnerability: None, policy, now: due });
    if found.classification == Classification::NoAction {
        return ("Suture will look at it again".to_owned(), Some(""));
    }
    let does = action(found.classification);
    let unless = ", unless GitHub or Jenkins shows a different state by then";
    (format!("If nothing changes, Suture will {does}"), Some(unless))
}
