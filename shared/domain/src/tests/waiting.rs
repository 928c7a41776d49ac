//! How long a pull request waits: after a remedy, and while GitHub or Jenkins does not answer.

use jiff::SignedDuration;

use super::fixture::{PrScenario, minutes};
use crate::diagnosis::Classification;
use crate::event::{EventKind, RemedyUpdate};
use crate::pull_request::BlockedUntil;
use crate::signals::{CheckVerdict, PolicyVerdict};
use crate::snapshot::{LiveStatus, Mergeability};
use crate::state::State;

fn unknown(live: &mut LiveStatus) {
    live.mergeable = Mergeability::Unknown;
}

/// Stale in this state, with a cooldown of an hour; the remedy was accepted a minute ago.
fn remedied(state: State) -> PrScenario {
    let mut scenario = PrScenario::at(state);
    scenario.policy.backoff.cooldown_secs = 3600;
    scenario.advance_minutes(130);
    scenario.sweep(scenario.github());
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.advance_minutes(1);
    scenario
}

#[test]
fn cooldown_ends_when_the_pull_request_progresses() {
    let mut scenario = remedied(State::ChecksFailed);
    let remedied_at = scenario.record().last_remediation_at.unwrap();
    assert_eq!(scenario.record().due_at, Some(remedied_at + minutes(60) + SignedDuration::from_secs(30)));
    scenario.rerun("build", CheckVerdict::Passed, 8);
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(30)), "CHECKS_PASSED");
    scenario.policy_bot(PolicyVerdict::Passed);
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(15)), "POLICY_PASSED");
    scenario.approve();
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(10)), "APPROVED");
    scenario.merge_attempt();
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(5)), "MERGING");
    assert_eq!(scenario.record().last_remediation_at, Some(remedied_at), "people still see the last remedy");
}

#[test]
fn cooldown_of_a_branch_update_does_not_delay_a_rebuild() {
    let mut scenario = PrScenario::at(State::ChecksFailed);
    scenario.policy.backoff.cooldown_secs = 7200;
    scenario.advance_minutes(30);
    assert_eq!(scenario.sweep_with(|live| live.behind_by = Some(1)), Some(Classification::UpdateBranch));
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.push('b', true);
    scenario.advance_minutes(1);
    scenario.fail("build", Some("timeout"), "timeout");
    assert_eq!(
        scenario.record().due_at,
        Some(scenario.now + minutes(30)),
        "the update worked; this is another failure"
    );
}

#[test]
fn cooldown_applies_while_the_same_failure_repeats() {
    let mut scenario = remedied(State::ChecksFailed);
    let remedied_at = scenario.record().last_remediation_at.unwrap();
    scenario.fail_again("build", Some("timeout"), 8);
    assert_eq!(scenario.state(), State::ChecksFailed);
    assert_eq!(scenario.record().due_at, Some(remedied_at + minutes(60)), "the same strategy waits for its cooldown");
}

#[test]
fn dropped_remedy_restores_the_cooldown_of_the_one_before() {
    let mut scenario = remedied(State::ChecksFailed);
    scenario.fail_again("build", Some("timeout"), 8);
    let before = scenario.record().clone();
    scenario.advance_minutes(60);
    scenario.sweep(scenario.github());
    assert_ne!(scenario.record().last_remediation_at, before.last_remediation_at);
    scenario.remedy_update(RemedyUpdate::Dropped { why: "guard".into() });
    let record = scenario.record();
    assert_eq!(
        (record.last_remediation_at, record.remedied_in),
        (before.last_remediation_at, Some(State::ChecksFailed))
    );
}

#[test]
fn mergeability_unknown_three_visits_in_a_row_escalates() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.advance_minutes(10);
    for _ in 0..2 {
        assert_eq!(scenario.sweep_with(unknown), Some(Classification::NoAction));
        assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(10)));
        scenario.advance_minutes(10);
    }
    let mut answered = scenario.clone();
    answered.verify(answered.github());
    assert_eq!(answered.record().unknown_mergeable_visits, 0, "an answer ends the row");
    assert_eq!(scenario.sweep_with(unknown), Some(Classification::NeedsIntervention));
    assert_eq!(scenario.state(), State::NeedsIntervention);
    let blocked = scenario.record().blocked.clone().unwrap();
    assert_eq!(blocked.until, BlockedUntil::MergeabilityKnown);
    assert!(blocked.reason.contains("3 visits in a row: open the pull request on GitHub"), "{}", blocked.reason);
    // Progress does not disprove the cause; an answer of GitHub does, whatever it is.
    scenario.merge_attempt();
    assert_eq!(scenario.state(), State::NeedsIntervention);
    for answer in [Mergeability::Clean, Mergeability::Conflicting] {
        let mut scenario = scenario.clone();
        let mut github = scenario.github();
        unknown(&mut github.live);
        scenario.verify(github.clone());
        assert_eq!(scenario.state(), State::NeedsIntervention);
        github.live.mergeable = answer;
        scenario.verify(github);
        assert_eq!(
            (scenario.state(), scenario.kinds().last()),
            (State::Merging, Some(&EventKind::StateDriftCorrected))
        );
    }
}
