//! What the dashboard and the API say about one pull request: why it is where it is, what comes next, what a person could
//! do, and what happened. One sentence each; mails and comments on pull requests use the same ones.

use jiff::Timestamp;

use super::{action, diagnosis, duration, failed_check, policy_text, status, time};
use crate::command::{Command, Role};
use crate::decide;
use crate::diagnosis::{Case, Classification, Diagnosis, classify};
use crate::event::{Event, EventKind, cut};
use crate::policy::{Mode, Policy};
use crate::pull_request::Record;
use crate::remedy;
use crate::signals::Verdict;
use crate::state::{State, Strategy, Substatus};

/// Longest sentence, in characters.
const MAX_SENTENCE: usize = 400;
const MAX_NAMES: usize = 3;

pub(super) fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut letters = text.chars();
    let capital: String = letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default();
    format!("{}.", cut(&capital, MAX_SENTENCE))
}

/// What a pull request waits for, or what is wrong with it.
pub fn why(record: &Record, policy: &Policy, now: Timestamp) -> String {
    if let Some(stopped) = stopped(record) {
        return stopped;
    }
    let waits = waits_for(record, policy);
    let stale = record.is_stale(policy, now);
    match policy.threshold(record.state).filter(|_| stale) {
        Some(normal) => {
            let waited = duration(now.duration_since(record.progressed_at));
            sentence(&format!("{waits}; that has taken {waited}, and {} is normal", duration(normal)))
        }
        None => sentence(&waits),
    }
}

/// Why Suture does nothing about it: it is over, a person has it or holds it, or it is a draft.
pub(super) fn stopped(record: &Record) -> Option<String> {
    if let Some(over) = over(record) {
        return Some(over);
    }
    let reason = record.blocked.as_ref().map(|blocked| blocked.reason.as_str());
    if record.state == State::NeedsIntervention {
        return Some(sentence(&format!("Suture gave up: {}", reason.unwrap_or("nobody wrote down why"))));
    }
    if let Some(label) = record.hold_label() {
        return Some(format!("The label `{label}` holds it."));
    }
    if record.hold {
        return super::blocked(record).map(|why| sentence(&why));
    }
    record.draft.then(|| "It is a draft.".to_owned())
}

/// How it ended, if it did.
fn over(record: &Record) -> Option<String> {
    let text = match (record.state, record.substatus) {
        (State::Merged, _) => "It is merged.".to_owned(),
        (State::Closed, Some(Substatus::Abandoned)) => "It was closed for good with `/cancel`.".to_owned(),
        (State::Closed, _) => match record.replaced_by {
            Some(number) => format!("It was closed, and #{number} takes its place."),
            None if record.substatus == Some(Substatus::Replaced) => {
                "It was closed because of conflicts, and a fresh pull request was asked for.".to_owned()
            }
            None => "It was closed without a merge.".to_owned(),
        },
        (_, _) => return None,
    };
    Some(text)
}

/// What a live pull request waits for, without a full stop.
pub(super) fn waits_for(record: &Record, policy: &Policy) -> String {
    let signals = &record.signals;
    match record.state {
        State::Created => "no check has started yet".to_owned(),
        State::ChecksRunning => {
            let at_work = |verdict: Verdict| matches!(verdict, Verdict::Queued | Verdict::Running);
            let running: Vec<String> = signals
                .checks
                .iter()
                .filter(|check| at_work(check.verdict))
                .map(|check| format!("`{}`", check.name))
                .collect();
            match running.as_slice() {
                [] => "checks are under way, but none says that it is at work".to_owned(),
                names => format!("checks are running: {}", some_of(names)),
            }
        }
        State::ChecksFailed => {
            let failed: Vec<String> = signals.failed_checks(record.required(policy)).map(failed_check).collect();
            if failed.is_empty() { "a required check failed".to_owned() } else { some_of(&failed) }
        }
        State::ChecksPassed => "the checks are green, and Policy Bot has said nothing yet".to_owned(),
        State::PolicyEvaluating => "Policy Bot is evaluating".to_owned(),
        State::PolicyFailed => policy_text(record),
        State::PolicyPassed => "the policies are met, and Approver Bot has not approved yet".to_owned(),
        State::Approved => match signals.merge.as_ref().filter(|report| report.failed) {
            Some(report) => format!("it is approved, and the merge failed: {}", report.text),
            None => "it is approved, and Automerge Bot has not merged it yet".to_owned(),
        },
        State::Merging => "Automerge Bot is merging it".to_owned(),
        State::Merged | State::Closed | State::NeedsIntervention => String::new(),
    }
}

fn some_of(texts: &[String]) -> String {
    let shown = texts.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match texts.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What Suture does next, and when. The classifier is asked without GitHub, so what GitHub shows may change it.
pub fn next(record: &Record, policy: &Policy, now: Timestamp) -> String {
    let case = Case { record, live: None, vulnerability: None, policy, now };
    next_by(record, &classify(&case), policy, now)
}

/// The same, by a diagnosis that was made.
pub fn next_by(record: &Record, found: &Diagnosis, policy: &Policy, now: Timestamp) -> String {
    if let Some(waits) = waits_for_others(record) {
        return waits;
    }
    let when = when(record, now);
    if let Some(suspect) = &record.suspect {
        return sentence(&format!("Suture asks GitHub {when}, because {}", suspect.why));
    }
    let does = action(found.classification);
    match (record.is_stale(policy, now), found.classification, policy.mode) {
        (false, ..) => format!("If nothing happens before, Suture looks again {when}."),
        (true, Classification::NoAction, _) => format!("Suture looks again {when}."),
        (true, _, Mode::Act) => format!("Suture will {does} {when}, unless GitHub shows something else."),
        (true, _, Mode::Observe) => format!("Suture would {does}, but only observes here."),
    }
}

/// What comes next if that is not a matter of time: it is over, a person has it, or a remedy is under way.
pub(super) fn waits_for_others(record: &Record) -> Option<String> {
    let text = if record.state.is_terminal() {
        "Suture is done with it."
    } else if record.state == State::NeedsIntervention {
        "Suture only watches until a person pushes, merges, closes or says `/resume`."
    } else if record.hold_label().is_some() {
        "Suture only watches until a person removes the label."
    } else if record.hold {
        "Suture only watches until somebody says `/resume`."
    } else if record.draft {
        "Suture only watches while it is a draft."
    } else {
        let run = record.active_run.as_ref()?;
        let (what, expects) = (doing(run.strategy), remedy::of(run.strategy).expects);
        return Some(if run.accepted {
            format!("Suture has asked to {what}, and waits for {expects}.")
        } else {
            format!("Suture is about to {what}.")
        });
    };
    Some(text.to_owned())
}

/// When Suture looks at it next, as in "Suture looks again …".
pub(super) fn when(record: &Record, now: Timestamp) -> String {
    match record.due_at {
        Some(at) if at > now => format!("at {}", time(at)),
        Some(_) | None => "with the next sweep".to_owned(),
    }
}

/// What a strategy does, as in "Suture is about to …".
pub fn doing(strategy: Strategy) -> &'static str {
    let does = Classification::ALL.into_iter().find(|does| does.strategy() == Some(strategy));
    does.map_or("", action)
}

/// The commands that somebody with this role could give now, in the order of the list. `/status` and `/explain` are
/// answered where one reads this.
pub fn commands(record: &Record, policy: &Policy, role: Role) -> Vec<Command> {
    let asks = |command: &Command| !matches!(command, Command::Status | Command::Explain);
    let makes_sense = |command: &Command| match command {
        Command::Resume => record.is_held() || record.state == State::NeedsIntervention,
        Command::Hold => !record.hold,
        Command::Approve => record.active_run.as_ref().is_some_and(|run| !run.accepted),
        Command::Rebuild
        | Command::RecheckPolicy
        | Command::RecheckSod
        | Command::RecheckApproval
        | Command::Merge
        | Command::UpdateBranch
        | Command::CloseAndReopen
        | Command::Cancel
        | Command::Status
        | Command::Explain => true,
    };
    Command::ALL
        .into_iter()
        .filter(|command| asks(command) && makes_sense(command) && role >= command.role())
        .filter(|command| decide::is_possible(*command, record, policy).is_ok())
        .collect()
}

/// What a person could do, one sentence each: first what only people can, then the commands.
pub fn you_can(record: &Record, commands: &[Command]) -> Vec<String> {
    let mut lines = Vec::new();
    if record.state == State::Closed {
        lines.push("Reopen it on GitHub: Suture takes it up again.".to_owned());
    } else if record.state == State::NeedsIntervention {
        lines.push("Fix the cause and push to the branch: Suture takes over again by itself.".to_owned());
        lines.push("Merge or close it: Suture notices.".to_owned());
    }
    if let Some(label) = record.hold_label() {
        lines.push(format!("Remove the label `{label}`: Suture goes on."));
    }
    lines.extend(commands.iter().map(|command| format!("`{command}`: {}", command.help())));
    lines
}

/// The rule in one sentence, and what GitHub knew that the record did not: the evidence of an explanation.
pub fn corrected(from: State, to: State) -> String {
    format!("GitHub shows {to}, and the record still says {from}")
}

/// Everything an explanation says, as markdown: where it stands, what is wrong, what comes next, what one could do.
pub fn explanation(
    record: &Record,
    found: &Diagnosis,
    commands: &[Command],
    policy: &Policy,
    now: Timestamp,
) -> String {
    let mut parts = vec![status(record, policy, now), why(record, policy, now)];
    if record.is_actionable() {
        parts.push(diagnosis(found));
    }
    parts.push(next_by(record, found, policy, now));
    let can = you_can(record, commands);
    if !can.is_empty() {
        parts.push(can.iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n"));
    }
    parts.join("\n\n")
}

/// One line of what happened lately, if it is worth one: remedies and their ends, escalations, drift, commands, ends.
pub fn activity(event: &Event) -> Option<String> {
    let said = event.payload.text.trim().trim_end_matches('.');
    let by = event.payload.by.as_deref().unwrap_or("somebody");
    let name = event.payload.name.as_deref().unwrap_or("a command");
    if let Some(strategy) = event.kind.claims() {
        return Some(sentence(&format!("Suture set out to {}: {said}", doing(strategy))));
    }
    let text = match event.kind {
        EventKind::RemediationEnded if event.is_healed() => format!("A remedy worked: {said}"),
        EventKind::RemediationEnded => format!("A remedy ended: {said}"),
        EventKind::EscalatedNeedsIntervention => format!("Suture called a person: {said}"),
        EventKind::CommandReceived if said.starts_with("refused") => format!("{by} asked for `{name}`, {said}"),
        EventKind::CommandReceived => format!("{by} asked for `{name}`"),
        EventKind::StateDriftCorrected => format!("GitHub knew more: {said}"),
        EventKind::MergeSucceeded => "Automerge Bot merged it".to_owned(),
        EventKind::PrMerged => match &event.payload.by {
            Some(by) => format!("{by} merged it"),
            None => "It was merged".to_owned(),
        },
        EventKind::PrClosed => "It was closed without a merge".to_owned(),
        EventKind::WouldRemedy | EventKind::WouldEscalate => format!("Suture {said}"),
        EventKind::PostMergeVerified => format!("All is well after the merge: {said}"),
        EventKind::Anomaly => format!("Something could not be recorded: {said}"),
        EventKind::PrOpened
        | EventKind::PrReopened
        | EventKind::PrEdited
        | EventKind::BranchUpdated
        | EventKind::BaseMoved
        | EventKind::PrLinked
        | EventKind::ChecksStarted
        | EventKind::CheckReported
        | EventKind::ChecksPassed
        | EventKind::ChecksFailed
        | EventKind::PolicyStarted
        | EventKind::PolicyPassed
        | EventKind::PolicyFailed
        | EventKind::ApprovalGranted
        | EventKind::ApprovalDismissed
        | EventKind::MergeAttempted
        | EventKind::MergeFailed
        | EventKind::RemediationAccepted
        | EventKind::RemediationBranchUpdate
        | EventKind::RemediationRebuild
        | EventKind::RemediationRetriggerPolicy
        | EventKind::RemediationRetriggerSod
        | EventKind::RemediationRetriggerApprover
        | EventKind::RemediationRetriggerMerge
        | EventKind::RemediationCloseAndReopen => return None,
    };
    Some(sentence(text.trim_end_matches(": ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policies;
    use crate::pull_request::{Blocked, Until};
    use crate::tests::world::{Tale, minutes, start};

    /// `why` and `next`, a moment after it got there and long after.
    fn told(state: State) -> String {
        let mut tale = Tale::at(state);
        if state == State::NeedsIntervention {
            let reason = "Retry budget exhausted for rebuild (3/3)".to_owned();
            let record = tale.record_mut();
            record.blocked = Some(Blocked { reason, state: record.state, until: Until::Progress, at: start() });
            record.state = state;
        }
        let mut text = String::new();
        for (when, at) in [("early", tale.record().progressed_at), ("late", start() + minutes(60 * 24))] {
            tale.now = at;
            let (record, policy) = (tale.record(), &tale.policy);
            text.push_str(&format!("{state} {when}: {} {}\n", why(record, policy, at), next(record, policy, at)));
        }
        text
    }

    #[test]
    fn every_state_says_why_and_what_next() {
        let all: String = State::ALL.into_iter().map(told).collect();
        insta::assert_snapshot!(all);
    }

    #[test]
    fn held_drafts_and_observed_ones_say_so() {
        let mut tale = Tale::at(State::ChecksFailed);
        tale.now = start() + minutes(600);
        let say = |tale: &Tale| {
            format!("{} {}", why(tale.record(), &tale.policy, tale.now), next(tale.record(), &tale.policy, tale.now))
        };
        let mut held = tale.clone();
        held.record_mut().hold = true;
        assert_eq!(say(&held), "A person holds it. Suture only watches until somebody says `/resume`.");
        held.record_mut().labels.push("suture/hold".to_owned());
        assert_eq!(
            say(&held),
            "The label `suture/hold` holds it. Suture only watches until a person removes the label."
        );
        let mut draft = tale.clone();
        draft.record_mut().draft = true;
        assert_eq!(say(&draft), "It is a draft. Suture only watches while it is a draft.");
        let mut observed = tale.clone();
        observed.policy = Policies::default().base().clone();
        assert!(
            say(&observed).ends_with("Suture would run the checks again, but only observes here."),
            "{}",
            say(&observed)
        );
        tale.record_mut().doubt("`main` has moved", start());
        assert!(say(&tale).ends_with("because `main` has moved."), "{}", say(&tale));
    }

    #[test]
    fn buttons_are_for_what_makes_sense_now_and_may_be_done() {
        let tale = Tale::at(State::ChecksFailed);
        let of = |role: Role| commands(tale.record(), &tale.policy, role);
        assert_eq!(of(Role::Viewer), []);
        assert_eq!(of(Role::Operator), [Command::Rebuild, Command::UpdateBranch, Command::Hold]);
        let admin = [Command::Rebuild, Command::UpdateBranch, Command::CloseAndReopen, Command::Cancel, Command::Hold];
        assert_eq!(of(Role::Admin), admin);
        let mut stuck = tale.clone();
        stuck.record_mut().state = State::NeedsIntervention;
        assert!(commands(stuck.record(), &stuck.policy, Role::Operator).contains(&Command::Resume));
        let observe = Policies::default().base().clone();
        assert_eq!(commands(tale.record(), &observe, Role::Admin), [Command::Hold]);
        assert_eq!(commands(Tale::at(State::Merged).record(), &tale.policy, Role::Admin), []);
    }

    #[test]
    fn an_explanation_says_everything_once() {
        let mut tale = Tale::at(State::ChecksFailed);
        tale.now = start() + minutes(120);
        let found = tale.diagnose(None);
        let commands = commands(tale.record(), &tale.policy, Role::Operator);
        let text = explanation(tale.record(), &found, &commands, &tale.policy, tale.now);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_happened_is_told_in_sentences_and_the_rest_is_left_out() {
        let mut tale = Tale::at(State::ChecksFailed);
        tale.pass(35);
        tale.sweep(tale.github());
        tale.news(crate::event::RemedyNews::Accepted);
        tale.check("build", Verdict::Passed);
        let lines: Vec<String> = tale.log.iter().filter_map(activity).collect();
        insta::assert_snapshot!(lines.join("\n"));
        assert!(tale.log.iter().any(Event::is_healed));
    }
}
