//! The transition table: every state × every trigger, and its rendering in `docs/state-machine.md`.

use std::fmt::Write as _;

use super::fixture::{PrScenario, described};
use crate::command::Command;
use crate::decide::FactOutcome;
use crate::event::FactKind;
use crate::pull_request::BlockedUntil;
use crate::remedy;
use crate::signals::{CheckVerdict, PolicyVerdict};
use crate::snapshot::Mergeability;
use crate::state::{State, Strategy, Substatus};
use crate::transition::{TransitionTrigger, by_remedy, next, out_of_intervention, walk};

#[test]
fn docs_show_the_table_as_it_is() {
    let rendered = render();
    if rendered != include_str!("../../../../docs/state-machine.md") {
        // Not over the page itself, or the test would pass the second time without a review.
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/state-machine.md.new");
        #[expect(clippy::disallowed_methods, reason = "a test may write the expected text")]
        std::fs::write(file, rendered).unwrap();
        panic!("docs/state-machine.md does not match the table: review docs/state-machine.md.new and move it there");
    }
}

#[test]
fn terminal_states_are_left_by_reopening_only() {
    for trigger in TransitionTrigger::ALL {
        assert_eq!(next(State::Merged, trigger), None, "{trigger}");
        let reopened = (trigger == TransitionTrigger::PrReopened).then_some(State::Created);
        assert_eq!(next(State::Closed, trigger), reopened, "{trigger}");
    }
}

#[test]
fn open_states_can_be_merged_closed_pushed_and_escalated() {
    for state in State::ALL.into_iter().filter(|state| !state.is_terminal()) {
        assert_eq!(next(state, TransitionTrigger::MergeConfirmed), Some(State::Merged), "{state}");
        assert_eq!(next(state, TransitionTrigger::PrClosed), Some(State::Closed), "{state}");
        assert_eq!(next(state, TransitionTrigger::BranchUpdated), Some(State::ChecksRunning), "{state}");
        let escalated = state.is_live().then_some(State::NeedsIntervention);
        assert_eq!(next(state, TransitionTrigger::Escalated), escalated, "{state}");
        assert_eq!(next(state, TransitionTrigger::PrReopened), None, "{state}");
    }
}

#[test]
fn every_live_state_but_merging_is_left_by_signals_too() {
    for state in State::ALL.into_iter().filter(|state| state.is_live() && *state != State::Merging) {
        let transitions = TransitionTrigger::OF_SIGNALS.into_iter().filter_map(|t| next(state, t)).count();
        assert!(transitions > 0, "{state}");
    }
}

/// Every transition of the pipeline (R-STATE-3), in its order.
#[test]
fn table_allows_exactly_these_transitions() {
    use State as S;
    use TransitionTrigger as T;
    let listed = [
        (S::Created, T::ChecksBegin, S::ChecksRunning),
        (S::ChecksRunning, T::ChecksSucceed, S::ChecksPassed),
        (S::ChecksRunning, T::CheckFails, S::ChecksFailed),
        (S::ChecksFailed, T::Rebuilt, S::ChecksRunning),
        (S::ChecksPassed, T::PolicyBegins, S::PolicyEvaluating),
        (S::PolicyEvaluating, T::PolicyMet, S::PolicyPassed),
        (S::PolicyEvaluating, T::PolicyNotMet, S::PolicyFailed),
        (S::PolicyFailed, T::PolicyRetriggered, S::PolicyEvaluating),
        (S::PolicyPassed, T::ApprovalSubmitted, S::Approved),
        (S::Approved, T::MergeBegins, S::Merging),
        (S::Merging, T::MergeConfirmed, S::Merged),
        (S::Merging, T::BranchUpdated, S::ChecksRunning),
        (S::Merging, T::PrClosed, S::Closed),
    ];
    for (from, trigger, to) in listed {
        assert_eq!(next(from, trigger), Some(to), "{from} {trigger}");
    }
    // Of the triggers that signals fire, a live state accepts only these.
    for from in S::ALL.into_iter().filter(|state| state.is_live()) {
        for trigger in T::OF_SIGNALS {
            let expected = listed.iter().find(|(f, t, _)| (*f, *t) == (from, trigger)).map(|(_, _, to)| *to);
            assert_eq!(next(from, trigger), expected, "{from} {trigger}");
        }
    }
}

/// Escalated before any check reported. Reports that are not on checks are kept, so that the next check leads out of
/// NEEDS_INTERVENTION to the state that all of them imply.
fn escalated_with(reports: &[fn(&mut PrScenario)]) -> PrScenario {
    let mut scenario = PrScenario::at(State::Created);
    escalate(&mut scenario);
    scenario.record_mut().blocked.as_mut().unwrap().until = BlockedUntil::Progress;
    for report in reports {
        report(&mut scenario);
    }
    assert_eq!(scenario.state(), State::NeedsIntervention);
    scenario
}

fn escalate(scenario: &mut PrScenario) {
    scenario.vulnerability.close_and_reopen = 1;
    scenario.advance_minutes(130);
    scenario.sweep_with(|live| live.mergeable = Mergeability::Conflicting);
}

/// A pull request in this state, prepared for the trigger.
fn before(state: State, trigger: TransitionTrigger) -> PrScenario {
    use TransitionTrigger as T;
    if state != State::NeedsIntervention {
        return PrScenario::at(state);
    }
    let passed: fn(&mut PrScenario) = |s| s.policy_bot(PolicyVerdict::Passed);
    let rejected: fn(&mut PrScenario) = |s| s.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
    match trigger {
        T::PolicyBegins => escalated_with(&[|s| s.policy_bot(PolicyVerdict::Evaluating)]),
        T::PolicyMet => escalated_with(&[passed]),
        T::PolicyNotMet => escalated_with(&[rejected]),
        T::ApprovalSubmitted => escalated_with(&[passed, PrScenario::approve]),
        T::MergeBegins => escalated_with(&[passed, PrScenario::approve, PrScenario::merge_attempt]),
        _ => escalated_with(&[]),
    }
}

/// Applies the fact that fires this trigger.
fn fire(scenario: &mut PrScenario, trigger: TransitionTrigger) {
    use TransitionTrigger as T;
    scenario.advance_minutes(1);
    match trigger {
        T::ChecksBegin => scenario.check("build", CheckVerdict::Running),
        T::CheckFails => scenario.fail("build", None, "boom"),
        T::Rebuilt => scenario.rerun("build", CheckVerdict::Running, 8),
        T::BranchUpdated => scenario.push('b', false),
        T::MergeConfirmed => scenario.apply(FactKind::Merged { by: None, by_automerge_bot: false }),
        T::PrClosed => scenario.apply(FactKind::Closed { by: None, why: None }),
        T::PrReopened => scenario.apply(FactKind::Reopened(described(&scenario.head.clone()))),
        T::Escalated => escalate(scenario),
        T::ResumedByPerson => scenario.command(Command::Resume),
        T::PolicyBegins | T::PolicyMet | T::PolicyNotMet | T::ApprovalSubmitted | T::MergeBegins | T::ChecksSucceed
            if scenario.state() == State::NeedsIntervention =>
        {
            scenario.check("build", CheckVerdict::Passed);
        }
        T::ChecksSucceed => scenario.check("build", CheckVerdict::Passed),
        T::PolicyBegins | T::PolicyRetriggered => scenario.policy_bot(PolicyVerdict::Evaluating),
        T::PolicyMet => scenario.policy_bot(PolicyVerdict::Passed),
        T::PolicyNotMet => scenario.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure)),
        T::ApprovalSubmitted => scenario.approve(),
        T::MergeBegins => scenario.merge_attempt(),
    }
}

#[test]
fn decide_makes_every_transition_of_the_table() {
    for state in State::ALL {
        for trigger in TransitionTrigger::ALL {
            let Some(to) = next(state, trigger) else { continue };
            let mut scenario = before(state, trigger);
            fire(&mut scenario, trigger);
            let logged: Vec<_> = scenario.last().events.iter().map(|e| (e.kind, e.from, e.to)).collect();
            assert_eq!(
                logged.first(),
                Some(&(trigger.event(), Some(state), Some(to))),
                "{state} {trigger}: {logged:?}"
            );
        }
    }
}

#[test]
fn accepted_remedy_makes_a_transition_of_the_table() {
    use State as S;
    for strategy in Strategy::ALL {
        let Some(to) = remedy::of(strategy).post_action else { continue };
        let from: &[State] = match strategy {
            Strategy::Rebuild => &[S::Created, S::ChecksFailed],
            Strategy::BranchUpdate => &S::ALL[..9],
            Strategy::RetriggerPolicyBot => &[S::ChecksPassed, S::PolicyFailed],
            Strategy::RetriggerSodCheck => &[S::PolicyFailed],
            Strategy::RetriggerAutomergeBot => &[S::Approved],
            Strategy::RetriggerApproverBot | Strategy::CloseAndReopen => &[],
        };
        for from in from {
            let trigger = by_remedy(*from, to).unwrap_or_else(|| panic!("{strategy} in {from}"));
            assert_eq!(next(*from, trigger), Some(to), "{strategy} in {from}");
        }
    }
    // Policy Bot passed: the table has no way back, so the command is refused.
    assert_eq!(by_remedy(S::PolicyPassed, S::PolicyEvaluating), None);
    let mut scenario = PrScenario::at(S::PolicyPassed);
    scenario.command(Command::RecheckPolicy);
    assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Refused, S::PolicyPassed));
    assert!(scenario.last().reason.contains("Valid now: `/recheck-approval`"), "{}", scenario.last().reason);
}

#[test]
fn walk_returns_the_shortest_legal_path() {
    let path = |from, to| walk(from, to).map(|hops| hops.iter().map(|hop| hop.state).collect::<Vec<_>>());
    use State as S;
    assert_eq!(path(S::Created, S::Created), Some(vec![]));
    assert_eq!(
        path(S::Created, S::Merging),
        Some(vec![S::ChecksRunning, S::ChecksPassed, S::PolicyEvaluating, S::PolicyPassed, S::Approved, S::Merging])
    );
    assert_eq!(path(S::ChecksFailed, S::ChecksPassed), Some(vec![S::ChecksRunning, S::ChecksPassed]));
    assert_eq!(path(S::PolicyFailed, S::PolicyPassed), Some(vec![S::PolicyEvaluating, S::PolicyPassed]));
    for (from, to) in [
        (S::PolicyPassed, S::ChecksFailed),
        (S::PolicyPassed, S::PolicyFailed),
        (S::Approved, S::PolicyPassed),
        (S::Merging, S::Approved),
        (S::ChecksPassed, S::ChecksRunning),
        (S::Merged, S::Created),
        (S::Closed, S::Created),
    ] {
        assert_eq!(path(from, to), None, "{from} → {to}");
    }
    // Every hop of every path is in the table.
    for from in S::ALL {
        for to in S::ALL {
            let mut at = from;
            for hop in walk(from, to).unwrap_or_default() {
                assert_eq!(next(at, hop.trigger), Some(hop.state));
                at = hop.state;
            }
            assert!(at == to || walk(from, to).is_none());
        }
    }
}

#[test]
fn intervention_is_left_by_the_trigger_of_the_implied_state() {
    for state in State::ALL {
        let hop = out_of_intervention(state);
        assert_eq!(hop.is_some(), state.is_live(), "{state}");
        if let Some(hop) = hop {
            assert_eq!(next(State::NeedsIntervention, hop.trigger), Some(state));
        }
    }
}

#[test]
fn trigger_has_its_event_name() {
    let names: Vec<&str> = TransitionTrigger::ALL.into_iter().map(|trigger| trigger.event().name()).collect();
    assert_eq!(
        names,
        [
            "CHECKS_STARTED",
            "CHECKS_PASSED",
            "CHECKS_FAILED",
            "CHECKS_STARTED",
            "POLICY_STARTED",
            "POLICY_PASSED",
            "POLICY_FAILED",
            "POLICY_STARTED",
            "APPROVAL_GRANTED",
            "MERGE_ATTEMPTED",
            "PR_MERGED",
            "BRANCH_UPDATED",
            "PR_CLOSED",
            "PR_REOPENED",
            "ESCALATED_NEEDS_INTERVENTION",
            "COMMAND_RECEIVED",
        ]
    );
}

fn waiting_for(state: State) -> &'static str {
    match state {
        State::Created => "CI checks to begin",
        State::ChecksRunning => "check results",
        State::ChecksFailed => "remediation: a retry, or escalation",
        State::ChecksPassed => "Policy Bot to begin evaluation",
        State::PolicyEvaluating => "Policy Bot's result",
        State::PolicyFailed => "remediation or escalation",
        State::PolicyPassed => "Approver Bot's approval",
        State::Approved => "Automerge Bot to merge",
        State::Merging => "the merge's result",
        State::Merged => "nothing: terminal, expires after 24 h",
        State::Closed => "nothing: terminal, expires after 24 h unless reopened",
        State::NeedsIntervention => "a person",
    }
}

fn substatuses(state: State) -> &'static [Substatus] {
    match state {
        State::ChecksFailed => &[Substatus::Transient, Substatus::Persistent],
        State::PolicyFailed => &[
            Substatus::SodFailure,
            Substatus::BuildFailure,
            Substatus::BranchProtectionFailure,
            Substatus::OtherPolicyFailure,
        ],
        State::Closed => &[Substatus::Abandoned, Substatus::Replaced],
        State::Created
        | State::ChecksRunning
        | State::ChecksPassed
        | State::PolicyEvaluating
        | State::PolicyPassed
        | State::Approved
        | State::Merging
        | State::Merged
        | State::NeedsIntervention => &[],
    }
}

fn render() -> String {
    let mut page = String::from(include_str!("state-machine.head.md"));
    let policy = super::fixture::acting();
    page.push_str("## States\n\n| state | waits for | stale after | detail |\n|---|---|---|---|\n");
    for state in State::ALL {
        let stale = policy.threshold(state).map_or("–".to_owned(), |wait| format!("{} min", wait.as_mins()));
        let detail: Vec<String> = substatuses(state).iter().map(|sub| format!("`{sub}`")).collect();
        let _ = writeln!(page, "| `{state}` | {} | {stale} | {} |", waiting_for(state), detail.join(", "));
    }
    page.push_str(
        "\n## Diagram\n\nThe hops of the pipeline; triggers that apply to many states are in the table below.\n\n",
    );
    page.push_str("```mermaid\nstateDiagram-v2\n    [*] --> CREATED\n");
    for state in State::ALL.into_iter().filter(|state| state.is_live()) {
        for trigger in TransitionTrigger::OF_SIGNALS {
            if let Some(to) = next(state, trigger) {
                let _ = writeln!(page, "    {state} --> {to}: {trigger}");
            }
        }
    }
    page.push_str("    MERGING --> MERGED: GitHub confirms merge\n    MERGED --> [*]\n```\n\n");
    page.push_str("## Table\n\nEvery legal hop. Any other change is an anomaly: it is logged, the state stays, and verification with GitHub is due at once.\n\n");
    page.push_str("| from | trigger | to |\n|---|---|---|\n");
    for state in State::ALL {
        for trigger in TransitionTrigger::ALL {
            if let Some(to) = next(state, trigger) {
                let _ = writeln!(page, "| `{state}` | {trigger} | `{to}` |");
            }
        }
    }
    page.push_str("\n## Paths\n\nThe path from the state of a record (row) to the state that the signals of its head imply (column): the number of hops,\neach of them logged. `·` means no hop, `✗` means no path: an anomaly.\n\n|  |");
    let live: Vec<State> = State::ALL.into_iter().filter(|state| state.is_live()).collect();
    for to in &live {
        let _ = write!(page, " {to} |");
    }
    let _ = writeln!(page, "\n|---|{}", "---|".repeat(live.len()));
    for from in &live {
        let _ = write!(page, "| **{from}** |");
        for to in &live {
            let cell = match walk(*from, *to) {
                None => "✗".to_owned(),
                Some(hops) if hops.is_empty() => "·".to_owned(),
                Some(hops) => hops.len().to_string(),
            };
            let _ = write!(page, " {cell} |");
        }
        page.push('\n');
    }
    page
}
