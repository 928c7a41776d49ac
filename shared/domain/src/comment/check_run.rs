//! What the check run on a head says: where the pull request stands, why, by what evidence, what comes next and when, what is
//! left of its budgets, and its buttons. What it says is a function of the record alone but for the times, so that "something
//! new to say" can be told from a digest.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{action, desk, failed_check, time};
use crate::backoff::seed_of;
use crate::command::{Command, Role};
use crate::diagnosis::{Case, Classification, classify};
use crate::event::cut;
use crate::policy::Policy;
use crate::pull_request::{Record, Shown};
use crate::state::{State, Strategy};

pub const NAME: &str = "suture";
/// Longest headline, in characters.
const MAX_TITLE: usize = 120;
/// Red checks that are named. More would only make it change more often.
const MAX_CHECKS: usize = 3;

/// What a check run shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckText {
    pub mood: Mood,
    pub title: String,
    pub summary: String,
    /// What people can ask for with one click.
    pub buttons: Vec<Button>,
}

/// How it looks. It never stands in the way of a merge while Suture is at it, and nothing ever has to wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mood {
    /// Grey: it says something and blocks nothing.
    Quiet,
    Person,
    Done,
}

/// What people can ask for with one click.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Button {
    /// `/rebuild`.
    Rebuild,
    /// `/hold`.
    Hold,
    /// `/resume`, in the place of `/hold` where that was said.
    Resume,
    /// `/explain`.
    Explain,
}

impl Button {
    const ALL: [Self; 4] = [Self::Rebuild, Self::Hold, Self::Resume, Self::Explain];

    /// What GitHub calls it when it is pressed; at most 20 characters.
    pub fn identifier(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::Hold => "hold",
            Self::Resume => "resume",
            Self::Explain => "explain",
        }
    }

    pub fn named(identifier: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|button| button.identifier() == identifier)
    }

    /// What stands on it; at most 20 characters.
    pub fn label(self) -> &'static str {
        match self {
            Self::Rebuild => "Run checks again",
            Self::Hold => "Hold",
            Self::Resume => "Resume",
            Self::Explain => "Explain",
        }
    }

    /// What it does; at most 40 characters.
    pub fn description(self) -> &'static str {
        match self {
            Self::Rebuild => "Suture runs this head's checks again",
            Self::Hold => "Suture only watches until you resume it",
            Self::Resume => "Suture goes on with this pull request",
            Self::Explain => "Suture says here what it knows",
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

/// What became of a button somebody pressed.
pub fn answer(by: &str, command: Command, answer: Result<Option<&str>, &str>) -> String {
    match answer {
        Ok(None) => format!("{by} asked for `{command}`."),
        Ok(Some(but)) => format!("{by} asked for `{command}`, but {}.", but.trim_end_matches('.')),
        Err(why) => format!("{by} asked for `{command}`, and Suture refused: {}.", why.trim_end_matches('.')),
    }
}

/// What somebody asked for was not done, or did not help.
pub fn came_to_nothing(strategy: Strategy, why: &str) -> String {
    desk::sentence(&format!("Suture was asked to {}: {why}", desk::doing(strategy)))
}

/// A digest of all a check run says but the times.
pub fn digest(record: &Record, shown: &Shown, policy: &Policy) -> u64 {
    let said = parts(record, shown, policy);
    let explained = if shown.explained { "explained" } else { "" };
    let buttons: String = buttons(record).into_iter().map(Button::identifier).collect();
    seed_of(&format!("{}\n{}\n{}\n{explained}\n{buttons}", said.stands, said.rest, said.next), 0)
}

pub fn text(record: &Record, shown: &Shown, policy: &Policy, now: Timestamp) -> CheckText {
    let said = parts(record, shown, policy);
    let since = time(record.progressed_at);
    let next = match said.unless {
        Some(unless) => format!("{} {}{unless}.", said.next, desk::when(record, now)),
        None => said.next,
    };
    let mut summary = format!("{} since {since}.\n\n{}\n\n**Next:** {next}", said.stands, said.rest);
    if shown.explained {
        let found = classify(&Case { record, live: None, vulnerability: None, policy, now });
        let commands = desk::commands(record, policy, Role::Operator);
        summary = format!("{summary}\n\n---\n\n{}", desk::explanation(record, &found, &commands, policy, now));
    }
    summary = format!("{summary}\n\n*As of {}. Changed only when there is something new to say.*", time(now));
    CheckText { mood: mood(record), title: title(record), summary, buttons: buttons(record) }
}

fn mood(record: &Record) -> Mood {
    if record.state == State::NeedsIntervention {
        Mood::Person
    } else if record.state == State::Merged {
        Mood::Done
    } else {
        Mood::Quiet
    }
}

fn buttons(record: &Record) -> Vec<Button> {
    if record.state.is_terminal() {
        return Vec::new();
    }
    let resumes = record.hold || record.state == State::NeedsIntervention;
    vec![Button::Rebuild, if resumes { Button::Resume } else { Button::Hold }, Button::Explain]
}

/// What it says, without the times.
struct Parts {
    stands: String,
    /// Cause, evidence, what somebody asked for, budgets.
    rest: String,
    /// What comes next. If it is a matter of time, the time belongs behind it, and then what might change it.
    next: String,
    unless: Option<&'static str>,
}

fn parts(record: &Record, shown: &Shown, policy: &Policy) -> Parts {
    let detail = record.substatus.map(|substatus| format!(" ({})", substatus.name())).unwrap_or_default();
    let stands = format!("**{}**{detail}, on {},", record.state, record.head_sha.short());
    let mut lines = vec![format!("**Cause:** {}", cause(record, policy))];
    let evidence = shown.because.clone().map_or_else(|| facts(record, policy), |because| vec![because]);
    if !evidence.is_empty() {
        let list: Vec<String> = evidence.iter().map(|line| format!("- {}", desk::sentence(line))).collect();
        lines.push(format!("**Evidence:**\n{}", list.join("\n")));
    }
    lines.extend(shown.asked.iter().map(|asked| format!("**Asked:** {asked}")));
    if !record.state.is_terminal() {
        lines.push(format!("**Budgets left:** {}", budgets(record, policy)));
    }
    let (next, unless) = next(record, policy);
    Parts { stands, rest: lines.join("\n\n"), next, unless }
}

fn title(record: &Record) -> String {
    let text = if record.state == State::NeedsIntervention {
        "A person is needed".to_owned()
    } else {
        let waits = desk::stopped(record).unwrap_or_else(|| waits(record.state).to_owned());
        match &record.active_run {
            Some(run) if record.is_actionable() => format!("{waits}; Suture is at it: {}", desk::doing(run.strategy)),
            Some(_) | None => waits,
        }
    };
    cut(text.trim_end_matches('.'), MAX_TITLE)
}

/// What a state waits for, in the fewest words.
fn waits(state: State) -> &'static str {
    match state {
        State::Created => "No check has started yet",
        State::ChecksRunning => "Checks are running",
        State::ChecksFailed => "Checks failed",
        State::ChecksPassed => "Checks are green, waiting for Policy Bot",
        State::PolicyEvaluating => "Policy Bot is evaluating",
        State::PolicyFailed => "Policy Bot rejected it",
        State::PolicyPassed => "Waiting for Approver Bot",
        State::Approved => "Approved, waiting for Automerge Bot",
        State::Merging => "Automerge Bot is merging it",
        State::Merged | State::Closed | State::NeedsIntervention => "",
    }
}

/// Why it is where it is. The dashboard names the checks that are at work; here that would be a change for each of them.
fn cause(record: &Record, policy: &Policy) -> String {
    if let Some(stopped) = desk::stopped(record) {
        return stopped;
    }
    if matches!(record.state, State::ChecksRunning | State::ChecksFailed) {
        return format!("{}.", waits(record.state));
    }
    desk::sentence(&desk::waits_for(record, policy))
}

/// What is known about the head that explains its state.
fn facts(record: &Record, policy: &Policy) -> Vec<String> {
    let red = || record.signals.failed_checks(record.required(policy));
    let mut lines: Vec<String> = Vec::new();
    if record.state == State::ChecksFailed {
        lines.extend(red().take(MAX_CHECKS).map(failed_check));
        if red().nth(MAX_CHECKS).is_some() {
            lines.push("and other checks".to_owned());
        }
    } else if matches!(record.state, State::PolicyPassed | State::Approved | State::Merging) {
        lines.push("the checks are green and the policies are met".to_owned());
        let approved = record.signals.approvals.iter().filter(|approval| approval.granted);
        lines.extend(approved.map(|approval| format!("approved by {}", approval.by)).take(MAX_CHECKS));
    }
    lines
}

/// What is left of each budget, and of all remedies. Close-and-reopen is counted on the vulnerability, not here.
fn budgets(record: &Record, policy: &Policy) -> String {
    let left = |strategy: Strategy| {
        let all = policy.budget(strategy);
        format!("{strategy} {} of {all}", all.saturating_sub(record.retry_counts.of(strategy)))
    };
    let all = policy.budgets.lifetime;
    let counted = |strategy: &Strategy| *strategy != Strategy::CloseAndReopen;
    let each: Vec<String> = Strategy::ALL.into_iter().filter(counted).map(left).collect();
    format!("{}; in all {} of {all} remedies.", each.join(", "), all.saturating_sub(record.lifetime_remedies))
}

/// What Suture does next, and what might change it. The classifier is asked as of the time when it will be; GitHub and Jenkins
/// are not asked.
fn next(record: &Record, policy: &Policy) -> (String, Option<&'static str>) {
    if let Some(waits) = desk::waits_for_others(record) {
        return (waits, None);
    }
    let due = record.stale_at(policy).unwrap_or(record.progressed_at);
    let found = classify(&Case { record, live: None, vulnerability: None, policy, now: due });
    if found.classification == Classification::NoAction {
        return ("Suture looks again".to_owned(), Some(""));
    }
    let does = action(found.classification);
    let unless = ", unless GitHub or Jenkins shows something else then";
    (format!("If nothing happens before, Suture will {does}"), Some(unless))
}
