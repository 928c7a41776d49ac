//! Only Policy Bot's own reports are policy results, and old commands are answered, not executed.

use crate::command::{Command, CommandSource};
use crate::decide::FactOutcome;
use crate::event::{CommandRequest, EventKind, FactKind};
use crate::id::RunId;
use crate::signals::{CheckReport, CheckVerdict, PolicyVerdict};
use crate::state::State;
use crate::tests::fixture::{PrScenario, status_of};

const CONTEXT: &str = "policy-bot: main";

/// A status under Policy Bot's name, posted by a workflow.
fn forged(scenario: &PrScenario, verdict: CheckVerdict) -> CheckReport {
    CheckReport { posted_by: Some("github-actions[bot]".to_owned()), ..status_of(CONTEXT, verdict, scenario.now) }
}

fn forge(scenario: &mut PrScenario, verdict: CheckVerdict) {
    let check = forged(scenario, verdict);
    scenario.apply(FactKind::Check { head: scenario.head.clone(), check });
}

fn anomalies(scenario: &PrScenario) -> Vec<&str> {
    let anomalies = scenario.log.iter().filter(|event| event.kind == EventKind::Anomaly);
    anomalies.filter_map(|event| event.payload.anomaly.as_deref()).collect()
}

#[test]
fn forged_policy_result_is_a_check_and_one_anomaly_per_head() {
    let mut scenario = PrScenario::at(State::ChecksPassed);
    for verdict in [CheckVerdict::Running, CheckVerdict::Passed, CheckVerdict::Running, CheckVerdict::Passed] {
        scenario.advance_minutes(1);
        forge(&mut scenario, verdict);
        assert!(scenario.record().signals.policy.is_none());
        assert!(scenario.state() <= State::ChecksPassed, "{}", scenario.state());
    }
    let expected = "`policy-bot: main` was posted by github-actions[bot], which is not Policy Bot (`policy_bot.logins`, \
                    `policy_bot.app_ids`): it counts as an ordinary check";
    assert_eq!(anomalies(&scenario), [expected]);
    scenario.advance_minutes(1);
    scenario.push('b', false);
    scenario.advance_minutes(1);
    forge(&mut scenario, CheckVerdict::Passed);
    assert_eq!((scenario.outcome(), anomalies(&scenario).len()), (FactOutcome::Anomaly, 2));
}

#[test]
fn forged_policy_result_in_a_snapshot_is_an_anomaly_too() {
    let mut scenario = PrScenario::at(State::ChecksPassed);
    let mut github = scenario.github();
    github.signals.checks.push(forged(&scenario, CheckVerdict::Passed));
    for _ in 0..2 {
        scenario.verify(github.clone());
        assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Applied, State::ChecksPassed));
        assert_eq!(anomalies(&scenario).len(), 1);
    }
}

#[test]
fn policy_bots_own_report_replaces_a_forged_one() {
    let mut scenario = PrScenario::at(State::ChecksPassed);
    forge(&mut scenario, CheckVerdict::Running);
    assert_eq!(scenario.state(), State::ChecksPassed, "the table has no way back; the next sweep verifies");
    let forged = forged(&scenario, CheckVerdict::Running);
    scenario.advance_minutes(1);
    scenario.policy_bot(PolicyVerdict::Passed);
    assert_eq!(scenario.state(), State::PolicyPassed, "the forged report does not block for ever");
    scenario.apply(FactKind::Check { head: scenario.head.clone(), check: forged });
    assert_eq!((scenario.outcome(), anomalies(&scenario).len()), (FactOutcome::Duplicate, 1));
}

#[test]
fn old_command_that_closes_merges_or_approves_is_answered_and_not_executed() {
    for command in Command::ALL {
        let opened = PrScenario::at(State::Approved);
        for (minutes, recent) in [(60, true), (121, false)] {
            let mut scenario = opened.clone();
            scenario.advance_minutes(minutes);
            let (by, run) = ("danny".to_owned(), RunId::new("human-1"));
            let request = CommandRequest {
                command,
                source: CommandSource::PrComment,
                by,
                permission: Ok(()),
                run,
                args: String::new(),
                comment: None,
            };
            scenario.apply_at(opened.now, FactKind::CommandRequested(Box::new(request)));
            let too_old = scenario.last().reason.contains("old and was not executed");
            assert_eq!(too_old, !recent && command.must_be_recent(), "{command}: {}", scenario.last().reason);
            if too_old {
                assert_eq!(scenario.outcome(), FactOutcome::Refused);
                assert!(scenario.last().runs.is_empty() && scenario.last().reason.contains("is 2 h 1 min old"));
            }
        }
    }
}
