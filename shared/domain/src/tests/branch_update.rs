//! Branch updates: a conflict that GitHub answers, and whose push resets the budget.

use super::fixture::{PrScenario, described, minutes, sha};
use crate::backoff::AttemptFailure;
use crate::command::Command;
use crate::diagnosis::Classification;
use crate::event::{EventKind, FactKind, PullRequestDetails, RemedyUpdate};
use crate::snapshot::{LiveStatus, Mergeability};
use crate::state::State;

fn behind(live: &mut LiveStatus) {
    live.behind_by = Some(3);
}

fn unknown(live: &mut LiveStatus) {
    live.mergeable = Mergeability::Unknown;
}

fn conflict() -> RemedyUpdate {
    RemedyUpdate::Failed { error: "conflict".into(), failure: AttemptFailure::MergeConflict }
}

/// Approved, stale and behind: a branch update was claimed.
fn update_claimed() -> PrScenario {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.advance_minutes(10);
    assert_eq!(scenario.sweep_with(behind), Some(Classification::UpdateBranch));
    scenario
}

/// GitHub answered the update with a conflict one minute ago.
fn update_refused() -> PrScenario {
    let mut scenario = update_claimed();
    scenario.remedy_update(conflict());
    scenario.advance_minutes(1);
    scenario
}

#[test]
fn conflict_of_a_branch_update_is_closed_and_reopened_by_the_next_sweep() {
    for live in [behind, unknown, |_: &mut LiveStatus| {}] {
        let mut scenario = update_refused();
        assert!(scenario.record().due_at.unwrap() <= scenario.now);
        assert_eq!(scenario.record().refused, None, "a conflict has a remedy");
        assert_eq!(scenario.sweep_with(live), Some(Classification::CloseAndReopen));
        let claim = scenario.log.iter().find(|event| event.kind == EventKind::RemediationCloseAndReopen).unwrap();
        assert_eq!(claim.payload.name.as_deref(), Some("MERGE CONFLICT DETECTED"));
        assert!(claim.payload.text.contains("GitHub refused to merge the base: conflict"), "{}", claim.payload.text);
        assert!(scenario.record().due_at.unwrap() > scenario.now, "the claimed remedy gets its time");
    }
}

#[test]
fn conflict_is_explained_without_live_status() {
    let found = update_refused().diagnose(None);
    assert_eq!((found.rule.number, found.classification), ("1", Classification::CloseAndReopen));
}

#[test]
fn conflict_after_a_command_counts_too() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.command(Command::UpdateBranch);
    scenario.remedy_update(conflict());
    assert_eq!(scenario.sweep_with(unknown), Some(Classification::CloseAndReopen));
}

#[test]
fn conflict_is_cleared_by_a_new_head_or_another_base() {
    let mut pushed = update_refused();
    pushed.push('b', false);
    assert_eq!(pushed.record().base_conflict, None);
    assert_eq!(pushed.sweep_with(unknown), None, "the new head is not stale yet");
    let mut rebased = update_refused();
    let details = PullRequestDetails { base_branch: "release".into(), ..described(&sha('a')) };
    rebased.apply(FactKind::Edited(details));
    assert_eq!(rebased.record().base_conflict, None);
    // The refusal of a former head says nothing about the new one.
    let mut late = update_claimed();
    late.push('b', false);
    late.remedy_update(conflict());
    assert_eq!(late.record().base_conflict, None);
}

#[test]
fn conflict_is_disproved_only_by_a_clean_snapshot_after_the_base_moved() {
    let mut scenario = update_refused();
    scenario.verify(scenario.github());
    assert!(scenario.record().base_conflict.is_some(), "GitHub's mergeability may be older than its refusal");
    let conflict_at = scenario.record().base_conflict.unwrap().at;
    scenario.apply_at(conflict_at - minutes(1), FactKind::BaseMoved { base: "main".into() });
    scenario.verify(scenario.github());
    assert!(scenario.record().base_conflict.is_some(), "the base moved before the refusal");
    scenario.apply(FactKind::BaseMoved { base: "main".into() });
    scenario.advance_minutes(1);
    let mut github = scenario.github();
    unknown(&mut github.live);
    scenario.verify(github);
    assert!(scenario.record().base_conflict.is_some(), "unknown disproves nothing");
    scenario.verify(scenario.github());
    assert_eq!(scenario.record().base_conflict, None);
}

#[test]
fn escalated_conflict_stays_until_the_base_moved() {
    let mut scenario = update_refused();
    scenario.vulnerability.close_and_reopen = 1;
    scenario.sweep_with(unknown);
    assert_eq!(scenario.state(), State::NeedsIntervention);
    scenario.verify(scenario.github());
    assert_eq!(scenario.state(), State::NeedsIntervention, "GitHub's mergeability may be older than its refusal");
    scenario.apply(FactKind::BaseMoved { base: "main".into() });
    scenario.advance_minutes(1);
    scenario.verify(scenario.github());
    assert_eq!(scenario.state(), State::Approved);
}
