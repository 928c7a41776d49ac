//! Branch updates: a conflict that GitHub answers, and whose push resets the budget.

use proptest::prelude::*;
use proptest::sample::Index;

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

/// What the system reports about one executed branch update. Each may be missing, and they come in any order.
#[derive(Debug, Clone, PartialEq)]
enum Report {
    /// The push event; the webhook cannot always tell who pushed.
    Push {
        known_sender: bool,
        before: bool,
    },
    Snapshot,
    Update(RemedyUpdate),
}

/// Either the push event or a snapshot shows the new head, the Car Bridge reports any result, and the run may expire.
fn any_reports() -> impl Strategy<Value = Vec<Report>> {
    let push = (any::<bool>(), any::<bool>()).prop_map(|(known_sender, before)| Report::Push { known_sender, before });
    let seen = prop_oneof![
        2 => push.clone().prop_map(|push| vec![push]),
        1 => Just(vec![Report::Snapshot]),
        1 => push.prop_map(|push| vec![push, Report::Snapshot]),
    ];
    let failed = |failure| RemedyUpdate::Failed { error: "no answer".into(), failure };
    let result = prop_oneof![
        3 => Just(vec![RemedyUpdate::Accepted]),
        1 => Just(vec![RemedyUpdate::Accepted, RemedyUpdate::Overdue]),
        1 => Just(vec![failed(AttemptFailure::TimedOut)]),
        1 => Just(vec![failed(AttemptFailure::Unavailable)]),
        1 => Just(vec![RemedyUpdate::Overdue]),
        1 => Just(vec![]),
    ];
    (seen, result, any::<[Index; 4]>()).prop_map(|(seen, result, order)| {
        // The results keep their order; the sightings of the new head come anywhere between them.
        let mut reports: Vec<Report> = result.into_iter().map(Report::Update).collect();
        for (report, place) in seen.into_iter().zip(order) {
            reports.insert(place.index(reports.len() + 1), report);
        }
        reports
    })
}

impl PrScenario {
    fn report(&mut self, report: &Report, head: char, update: &crate::id::RunId) {
        self.advance_minutes(1);
        match report {
            Report::Push { known_sender, before } => {
                let before = before.then(|| self.head.clone());
                let details = described(&sha(head));
                self.apply(FactKind::HeadMoved { described: details, before, by_suture: *known_sender });
                self.head = sha(head);
            }
            Report::Snapshot => {
                let mut github = self.github();
                if self.record().head_sha != sha(head) {
                    github.signals = crate::signals::Signals::default();
                }
                github.details = described(&sha(head));
                self.verify(github);
                self.head = sha(head);
            }
            Report::Update(update_kind) => {
                self.apply(FactKind::Remedy { run: update.clone(), update: update_kind.clone() });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Regression: the push of our own update reset its budget if it arrived before the acceptance or after the run ended.
    #[test]
    fn budget_of_branch_updates_binds_in_every_order_of_reports(rounds in prop::collection::vec(any_reports(), 2)) {
        let mut scenario = PrScenario::at(State::Approved);
        for (n, reports) in rounds.iter().enumerate() {
            scenario.advance_minutes(130);
            prop_assert_eq!(scenario.sweep_with(behind), Some(Classification::UpdateBranch));
            let run = scenario.record().active_run.as_ref().unwrap().id.clone();
            for report in reports {
                scenario.report(report, ['b', 'c'][n], &run);
            }
            // The run ends at the latest when its message is resent and the Car Bridge finds the new head.
            scenario.apply(FactKind::Remedy { run, update: RemedyUpdate::Accepted });
            prop_assert_eq!(scenario.record().active_run.clone(), None);
            prop_assert_eq!(scenario.record().retry_counts.branch_update, u32::try_from(n + 1).unwrap());
        }
        scenario.advance_minutes(130);
        prop_assert_eq!(scenario.sweep_with(behind), Some(Classification::NeedsIntervention));
        let reason = &scenario.record().blocked.as_ref().unwrap().reason;
        prop_assert_eq!(reason, "Retry budget exhausted for branch_update (2/2)");
    }
}

#[test]
fn push_onto_another_commit_is_not_our_branch_update() {
    let mut scenario = update_claimed();
    // Our update and another push within seconds: the second event arrives first.
    let other = FactKind::HeadMoved { described: described(&sha('c')), before: Some(sha('b')), by_suture: false };
    scenario.apply(other);
    assert_eq!(scenario.record().retry_counts.branch_update, 0);
}

#[test]
fn push_by_somebody_else_before_the_update_resets_the_budget_when_the_update_is_dropped() {
    let mut scenario = update_claimed();
    scenario.record_mut().retry_counts.branch_update = 2;
    scenario.push('b', false);
    assert_eq!(scenario.record().retry_counts.branch_update, 2, "it may be our own push");
    scenario.remedy_update(RemedyUpdate::Dropped { why: "the head moved".into() });
    assert_eq!(scenario.record().retry_counts.branch_update, 0, "it was not");
    assert!(scenario.record().last_requested.is_empty(), "the new head has had no request");
    // With an earlier update of the same head, the push may be that one's.
    let mut twice = update_claimed();
    twice.remedy_update(RemedyUpdate::Failed { error: "no answer".into(), failure: AttemptFailure::TimedOut });
    twice.advance_minutes(60);
    assert_eq!(twice.sweep_with(behind), Some(Classification::UpdateBranch));
    twice.push('b', false);
    twice.remedy_update(RemedyUpdate::Dropped { why: "the head moved".into() });
    assert_eq!(twice.record().retry_counts.branch_update, 1);
}

#[test]
fn push_after_a_refused_branch_update_resets_the_budget() {
    let mut scenario = update_refused();
    assert_eq!(scenario.record().retry_counts.branch_update, 1);
    scenario.push('b', false);
    assert_eq!(scenario.record().retry_counts.branch_update, 0, "GitHub refused ours, so a person pushed");
}
