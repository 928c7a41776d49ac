//! What the dashboard and the API say about one pull request: why it waits, the next step, what a person can do, and
//! what happened. One sentence each; mails and comments on pull requests use the same sentences.

use jiff::Timestamp;

use super::{NO_REASON, action, diagnosis, duration, failed_check, policy_text, status, time};
use crate::command::{ApiRole, Command, CommandSource};
use crate::decide;
use crate::diagnosis::{Classification, Diagnosis, DiagnosisInput, classify};
use crate::event::{Event, EventKind, truncate};
use crate::policy::{Mode, Policy};
use crate::pull_request::PullRequest;
use crate::remedy;
use crate::signals::CheckVerdict;
use crate::state::{State, Strategy, Substatus};

/// Longest sentence, in characters.
const MAX_SENTENCE: usize = 400;
const MAX_NAMES: usize = 3;

pub(super) fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut letters = text.chars();
    let capital: String = letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default();
    format!("{}.", truncate(&capital, MAX_SENTENCE))
}

/// Why a pull request waits, or what is wrong with it; names the threshold if it is stale.
pub fn waiting_reason(record: &PullRequest, policy: &Policy, now: Timestamp) -> String {
    if let Some(stopped) = inactive_reason(record) {
        return stopped;
    }
    let waits = expected_step(record, policy);
    let stale = record.is_stale(policy, now);
    match policy.threshold(record.state).filter(|_| stale) {
        Some(threshold) => {
            let waited = duration(now.duration_since(record.state_since));
            sentence(&format!("{waits}; in this state for {waited} (threshold {})", duration(threshold)))
        }
        None => sentence(&waits),
    }
}

/// Why Suture takes no action: the pull request is finished, escalated, held or a draft.
pub(super) fn inactive_reason(record: &PullRequest) -> Option<String> {
    if let Some(result) = final_result(record) {
        return Some(result);
    }
    let reason = record.blocked.as_ref().map(|blocked| blocked.reason.as_str());
    if record.state == State::NeedsIntervention {
        return Some(sentence(&format!("Suture gave up: {}", reason.unwrap_or(NO_REASON))));
    }
    if let Some(label) = record.hold_label() {
        return Some(format!("Held by the label `{label}`."));
    }
    if record.hold {
        return super::blocked(record).map(|why| sentence(&why));
    }
    record.draft.then(|| "It is a draft.".to_owned())
}

/// How a merged or closed pull request ended.
fn final_result(record: &PullRequest) -> Option<String> {
    let text = match (record.state, record.substatus) {
        (State::Merged, _) => "It is merged.".to_owned(),
        (State::Closed, Some(Substatus::Abandoned)) => "It was closed permanently with `/cancel`.".to_owned(),
        (State::Closed, _) => match record.replaced_by {
            Some(number) => format!("It was closed and replaced by #{number}."),
            None if record.substatus == Some(Substatus::Replaced) => {
                "It was closed to be replaced; a new pull request was requested.".to_owned()
            }
            None => "It was closed without a merge.".to_owned(),
        },
        (_, _) => return None,
    };
    Some(text)
}

/// What an open pull request waits for, without a full stop.
pub(super) fn expected_step(record: &PullRequest, policy: &Policy) -> String {
    let signals = &record.signals;
    match record.state {
        State::Created => "no check has started yet".to_owned(),
        State::ChecksRunning => {
            let is_running = |verdict: CheckVerdict| matches!(verdict, CheckVerdict::Queued | CheckVerdict::Running);
            let running: Vec<String> = signals
                .checks
                .iter()
                .filter(|check| is_running(check.verdict))
                .map(|check| format!("`{}`", check.name))
                .collect();
            match running.as_slice() {
                [] => "checks have not finished, but none is reported as queued or running".to_owned(),
                names => format!("checks are running: {}", first_few(names)),
            }
        }
        State::ChecksFailed => {
            let failed: Vec<String> = signals.failed_checks(record.required(policy)).map(failed_check).collect();
            if failed.is_empty() { "a required check failed".to_owned() } else { first_few(&failed) }
        }
        State::ChecksPassed => "the checks passed, but Policy Bot has not reported yet".to_owned(),
        State::PolicyEvaluating => "Policy Bot is evaluating".to_owned(),
        State::PolicyFailed => policy_text(record),
        State::PolicyPassed => "the policies are met, but Approver Bot has not approved it yet".to_owned(),
        State::Approved => match signals.merge.as_ref().filter(|report| report.failed) {
            Some(report) => format!("it is approved, but the merge failed: {}", report.text),
            None => "it is approved, but Automerge Bot has not merged it yet".to_owned(),
        },
        State::Merging => "Automerge Bot is merging it".to_owned(),
        State::Merged | State::Closed | State::NeedsIntervention => String::new(),
    }
}

fn first_few(texts: &[String]) -> String {
    let shown = texts.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match texts.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What Suture does next, and when. Classifies from the record alone, so the next visit may find something else.
pub fn next_step(record: &PullRequest, policy: &Policy, now: Timestamp) -> String {
    let case = DiagnosisInput { record, live: None, vulnerability: None, policy, now };
    next_step_by_diagnosis(record, &classify(&case), policy, now)
}

/// Like [`next_step`], for a diagnosis that has already been made.
pub fn next_step_by_diagnosis(record: &PullRequest, found: &Diagnosis, policy: &Policy, now: Timestamp) -> String {
    if let Some(step) = step_of_others(record) {
        return step;
    }
    let when = next_visit(record, now);
    if let Some(suspect) = &record.verify_reason {
        return sentence(&format!("Suture will verify it with GitHub {when}, because {}", suspect.why));
    }
    let does = action(found.classification);
    match (record.is_stale(policy, now), found.classification, policy.mode) {
        (false, ..) => format!("If nothing changes, Suture will look at it again {when}."),
        (true, Classification::NoAction, _) => format!("Suture will look at it again {when}."),
        (true, _, Mode::Act) => format!("Suture will {does} {when}, unless GitHub shows a different state by then."),
        (true, _, Mode::Observe) => format!("Suture would {does}, but this repository is in observe mode."),
    }
}

/// The next step if Suture itself has none to take: the pull request is finished, escalated, held or a draft, or a
/// remedy is in progress.
pub(super) fn step_of_others(record: &PullRequest) -> Option<String> {
    let text = if record.state.is_terminal() {
        "Suture has nothing more to do."
    } else if record.state == State::NeedsIntervention {
        "Suture takes no action until a person pushes, merges it, closes it or sends `/resume`."
    } else if record.hold_label().is_some() {
        "Suture takes no action until a person removes the label."
    } else if record.hold {
        "Suture takes no action until a person sends `/resume`."
    } else if record.draft {
        "Suture takes no action while it is a draft."
    } else {
        let run = record.active_run.as_ref()?;
        let (what, expects) = (strategy_phrase(run.strategy), remedy::of(run.strategy).expects);
        return Some(if run.accepted {
            format!("Remedy requested: {what}. Suture waits for {expects}.")
        } else {
            format!("Suture is about to {what}.")
        });
    };
    Some(text.to_owned())
}

/// When Suture visits the pull request next, to follow "Suture will look at it again …".
pub(super) fn next_visit(record: &PullRequest, now: Timestamp) -> String {
    match record.due_at {
        Some(at) if at > now => format!("at {}", time(at)),
        Some(_) | None => "in the next sweep".to_owned(),
    }
}

/// What a strategy does, to follow "Suture is about to …".
pub fn strategy_phrase(strategy: Strategy) -> &'static str {
    let does = Classification::ALL.into_iter().find(|does| does.strategy() == Some(strategy));
    does.map_or("", action)
}

/// The commands that are valid now and allowed for this role, in list order. `/status` and `/explain` are left out:
/// the dashboard and the API already show their answer.
pub fn commands(record: &PullRequest, policy: &Policy, role: ApiRole) -> Vec<Command> {
    let changes_something = |command: &Command| !matches!(command, Command::Status | Command::Explain);
    let is_useful = |command: &Command| match command {
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
        .filter(|command| changes_something(command) && is_useful(command) && role >= command.role())
        .filter(|command| decide::is_possible(*command, record, policy).is_ok())
        .collect()
}

/// What a person can do on GitHub, besides commands; one sentence each.
pub fn manual_steps(record: &PullRequest) -> Vec<String> {
    let mut lines = Vec::new();
    if record.state == State::Closed {
        lines.push("Reopen it on GitHub: Suture then manages it again.".to_owned());
    } else if record.state == State::NeedsIntervention {
        lines.push("Fix the cause and push to the branch: Suture then resumes automatically.".to_owned());
        lines.push("Merge or close it yourself.".to_owned());
    }
    if let Some(label) = record.hold_label() {
        lines.push(format!("Remove the label `{label}`: Suture then resumes."));
    }
    lines
}

/// Evidence line of an explanation: GitHub shows another state than the record.
pub fn diagnosis_with_corrections(from: State, to: State) -> String {
    format!("GitHub shows {to}, but the record says {from}")
}

/// The whole explanation as Markdown: status, cause, diagnosis, next step, what a person can do.
pub fn explanation(
    record: &PullRequest,
    found: &Diagnosis,
    commands: &[Command],
    policy: &Policy,
    now: Timestamp,
) -> String {
    let mut parts = vec![status(record, policy, now), waiting_reason(record, policy, now)];
    if record.is_actionable() {
        parts.push(diagnosis(found));
    }
    parts.push(next_step_by_diagnosis(record, found, policy, now));
    let commands = commands.iter().map(|command| format!("`{command}`: {}", command.help()));
    let lines: Vec<String> = manual_steps(record).into_iter().chain(commands).map(|line| format!("- {line}")).collect();
    if !lines.is_empty() {
        parts.push(lines.join("\n"));
    }
    parts.join("\n\n")
}

/// Where a command came from, to follow it in a sentence.
fn command_source(source: CommandSource) -> &'static str {
    match source {
        CommandSource::PrComment => " in a comment",
        CommandSource::CheckRun => " with a button of the check run",
        CommandSource::AdminApi => " through the API",
        CommandSource::Reconciler => "",
    }
}

/// One activity line for an event, if it is notable: remedies and their results, escalations, drift corrections,
/// commands, merges, closes.
pub fn activity(event: &Event) -> Option<String> {
    let details = event.payload.text.trim().trim_end_matches('.');
    let by = event.payload.by.as_deref().unwrap_or("a person");
    let name = event.payload.name.as_deref().unwrap_or("a command");
    if let Some(strategy) = event.kind.claimed_strategy() {
        return Some(sentence(&format!("Suture started a remedy ({}): {details}", strategy_phrase(strategy))));
    }
    let text = match event.kind {
        EventKind::RemediationEnded if event.is_healed() => format!("A remedy worked: {details}"),
        EventKind::RemediationEnded => format!("A remedy ended: {details}"),
        EventKind::DuplicateExists => format!("Suture did not close it: {details}"),
        EventKind::EscalatedNeedsIntervention => format!("Suture escalated it to a person: {details}"),
        EventKind::CommandReceived => {
            let via = event.payload.via.map(command_source).unwrap_or_default();
            let refused = if event.payload.refused { format!(", {details}") } else { String::new() };
            format!("{by} asked for `{name}`{via}{refused}")
        }
        EventKind::StateDriftCorrected if event.withdraws_assumption() => {
            format!("Suture corrected the state: {details}")
        }
        EventKind::StateDriftCorrected => format!("Suture corrected the state from GitHub: {details}"),
        EventKind::MergeSucceeded => "Automerge Bot merged it".to_owned(),
        EventKind::PrMerged => match &event.payload.by {
            Some(by) => format!("{by} merged it"),
            None => "It was merged".to_owned(),
        },
        EventKind::PrClosed => "It was closed without a merge".to_owned(),
        EventKind::WouldRemedy | EventKind::WouldEscalate => format!("Suture {details}"),
        EventKind::PostMergeVerified => format!("Post-merge health check passed: {details}"),
        EventKind::Anomaly => {
            format!("Anomaly: {}", event.payload.anomaly.as_deref().unwrap_or(details))
        }
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
        | EventKind::RemediationClosing
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
    use crate::pull_request::{BlockedDetails, BlockedUntil};
    use crate::tests::fixture::{PrScenario, minutes, start};

    /// `why` and `next`, right after the state was entered and a day later.
    fn why_and_next(state: State) -> String {
        let mut scenario = PrScenario::at(state);
        if state == State::NeedsIntervention {
            let reason = "Retry budget exhausted for rebuild (3/3)".to_owned();
            let record = scenario.record_mut();
            record.blocked =
                Some(BlockedDetails { reason, state: record.state, until: BlockedUntil::Progress, at: start() });
            record.state = state;
        }
        let mut text = String::new();
        for (when, at) in [("early", scenario.record().state_since), ("late", start() + minutes(60 * 24))] {
            scenario.now = at;
            let (record, policy) = (scenario.record(), &scenario.policy);
            text.push_str(&format!(
                "{state} {when}: {} {}\n",
                waiting_reason(record, policy, at),
                next_step(record, policy, at)
            ));
        }
        text
    }

    #[test]
    fn every_state_says_why_and_what_next() {
        let all: String = State::ALL.into_iter().map(why_and_next).collect();
        insta::assert_snapshot!(all);
    }

    #[test]
    fn held_draft_and_observed_pull_requests_say_so() {
        let mut scenario = PrScenario::at(State::ChecksFailed);
        scenario.now = start() + minutes(600);
        let say = |scenario: &PrScenario| {
            format!(
                "{} {}",
                waiting_reason(scenario.record(), &scenario.policy, scenario.now),
                next_step(scenario.record(), &scenario.policy, scenario.now)
            )
        };
        let mut held = scenario.clone();
        held.record_mut().hold = true;
        assert_eq!(say(&held), "Held by a person. Suture takes no action until a person sends `/resume`.");
        held.record_mut().labels.push("suture/hold".to_owned());
        assert_eq!(
            say(&held),
            "Held by the label `suture/hold`. Suture takes no action until a person removes the label."
        );
        let mut draft = scenario.clone();
        draft.record_mut().draft = true;
        assert_eq!(say(&draft), "It is a draft. Suture takes no action while it is a draft.");
        let mut observed = scenario.clone();
        observed.policy = Policies::default().base().clone();
        assert!(
            say(&observed).ends_with("Suture would run the checks again, but this repository is in observe mode."),
            "{}",
            say(&observed)
        );
        scenario.record_mut().request_verification("`main` has moved", start());
        assert!(say(&scenario).ends_with("because `main` has moved."), "{}", say(&scenario));
    }

    #[test]
    fn commands_are_valid_now_and_allowed_for_the_role() {
        let scenario = PrScenario::at(State::ChecksFailed);
        let of = |role: ApiRole| commands(scenario.record(), &scenario.policy, role);
        assert_eq!(of(ApiRole::Viewer), []);
        assert_eq!(of(ApiRole::Operator), [Command::Rebuild, Command::UpdateBranch, Command::Hold]);
        let admin = [Command::Rebuild, Command::UpdateBranch, Command::CloseAndReopen, Command::Cancel, Command::Hold];
        assert_eq!(of(ApiRole::Admin), admin);
        let mut stuck = scenario.clone();
        stuck.record_mut().state = State::NeedsIntervention;
        assert!(commands(stuck.record(), &stuck.policy, ApiRole::Operator).contains(&Command::Resume));
        let observe = Policies::default().base().clone();
        assert_eq!(commands(scenario.record(), &observe, ApiRole::Admin), [Command::Hold]);
        assert_eq!(commands(PrScenario::at(State::Merged).record(), &scenario.policy, ApiRole::Admin), []);
    }

    #[test]
    fn explanation_has_every_part_once() {
        let mut scenario = PrScenario::at(State::ChecksFailed);
        scenario.now = start() + minutes(120);
        let found = scenario.diagnose(None);
        let commands = commands(scenario.record(), &scenario.policy, ApiRole::Operator);
        let text = explanation(scenario.record(), &found, &commands, &scenario.policy, scenario.now);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn activity_lists_notable_events_only() {
        let mut scenario = PrScenario::at(State::ChecksFailed);
        scenario.advance_minutes(35);
        scenario.sweep(scenario.github());
        scenario.remedy_update(crate::event::RemedyUpdate::Accepted);
        scenario.check("build", CheckVerdict::Passed);
        let lines: Vec<String> = scenario.log.iter().filter_map(activity).collect();
        insta::assert_snapshot!(lines.join("\n"));
        assert!(scenario.log.iter().any(Event::is_healed));
    }
    #[test]
    fn activity_of_a_command_says_where_it_came_from() {
        let mut scenario = PrScenario::at(State::ChecksFailed);
        scenario.command_by(Command::Hold, CommandSource::PrComment, Ok(()));
        scenario.command_by(Command::Resume, CommandSource::CheckRun, Ok(()));
        scenario.command_by(Command::Rebuild, CommandSource::AdminApi, Ok(()));
        scenario.command_by(Command::Merge, CommandSource::AdminApi, Err("no".to_owned()));
        let lines: Vec<String> = scenario.log.iter().filter_map(activity).collect();
        insta::assert_snapshot!(lines.join("\n"), @"
        Danny asked for `/hold` in a comment.
        Danny asked for `/resume` with a button of the check run.
        Danny asked for `/rebuild` through the API.
        Danny asked for `/merge` through the API, refused: no.
        ");
        let via: Vec<_> = scenario.log.iter().filter_map(|event| event.payload.via).collect();
        let expected = [CommandSource::PrComment, CommandSource::CheckRun, CommandSource::AdminApi];
        assert_eq!(via, [expected.as_slice(), &[CommandSource::AdminApi]].concat());
    }
}
