//! Scenarios from the first fact to the last (R-FLOW-1, R-FLOW-2, R-STATE, R-SIGNAL): facts in any order, new heads,
//! merges and closes, drift, holds.

use super::fixture::{PrScenario, described, minutes, policy_says, run_of, sha, start, status_of};
use crate::command::Command;
use crate::decide::{FactOutcome, HeadChange, RunChange, VulnerabilityUpdate};
use crate::event::{CloseReason, EventKind, FactKind, PullRequestDetails, RemedyUpdate};
use crate::pull_request::PullRequest;
use crate::run::RunEnd;
use crate::signals::{
    ApprovalReport, CheckReport, CheckVerdict, MergeReport, PolicyReport, PolicyVerdict, RenewalMark,
};
use crate::snapshot::PullRequestState;
use crate::state::{State, Strategy, Substatus};

#[test]
fn pull_request_without_faults_goes_through_all_states() {
    let mut scenario = PrScenario::opened();
    assert_eq!(scenario.state(), State::Created);
    assert_eq!(scenario.last().heads, [HeadChange::Current(sha('a'))]);
    assert_eq!(scenario.vulnerability_updates(), [VulnerabilityUpdate::Opened]);
    assert_eq!(scenario.record().due_at, Some(start() + minutes(5)));
    scenario.advance_minutes(1);
    scenario.check("build", CheckVerdict::Running);
    assert_eq!(scenario.state(), State::ChecksRunning);
    scenario.advance_minutes(10);
    scenario.check("build", CheckVerdict::Passed);
    assert_eq!(scenario.state(), State::ChecksPassed);
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(30)));
    scenario.advance_minutes(1);
    scenario.policy_bot(PolicyVerdict::Passed);
    assert_eq!(scenario.state(), State::PolicyPassed);
    scenario.advance_minutes(1);
    scenario.approve();
    assert_eq!(scenario.state(), State::Approved);
    assert_eq!(scenario.record().state_since, scenario.now);
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Merged { by: Some("automerge-bot[bot]".into()), by_automerge_bot: true });
    assert_eq!(scenario.state(), State::Merged);
    assert_eq!(scenario.record().ttl, Some(scenario.now + minutes(24 * 60)));
    assert_eq!(scenario.last().heads, [HeadChange::Superseded(sha('a'))]);
    assert_eq!(scenario.vulnerability_updates(), [VulnerabilityUpdate::NoLongerOpen]);
    // POLICY_EVALUATING was not reported, but the log has the hop.
    assert_eq!(
        scenario.kinds(),
        [
            EventKind::PrOpened,
            EventKind::ChecksStarted,
            EventKind::ChecksPassed,
            EventKind::PolicyStarted,
            EventKind::PolicyPassed,
            EventKind::ApprovalGranted,
            EventKind::MergeSucceeded,
        ]
    );
    assert_eq!(scenario.log[3].payload.text, "implied by earlier reports");
    assert_eq!((scenario.log[3].hop, scenario.log[4].hop), (0, 1));
    assert_eq!((scenario.log[4].from, scenario.log[4].to), (Some(State::PolicyEvaluating), Some(State::PolicyPassed)));
    assert_eq!(scenario.log[0].ttl, start() + minutes(90 * 24 * 60));
    assert_eq!(scenario.log[1].sort_key(), "2026-03-02T09:01:00.000Z#f2#0");
}

#[test]
fn transient_failure_is_rebuilt_and_its_budget_resets() {
    let mut scenario = PrScenario::at(State::ChecksFailed);
    assert_eq!(scenario.record().substatus, Some(Substatus::Transient));
    assert_eq!(scenario.kinds().last(), Some(&EventKind::ChecksFailed));
    assert_eq!(scenario.log.last().unwrap().payload.text, "`build` failed, transient by rule `timeout`: timeout");
    // One minute before it is stale.
    scenario.advance_minutes(29);
    assert_eq!(scenario.sweep(scenario.github()), None);
    scenario.advance_minutes(1);
    let classification = scenario.sweep(scenario.github());
    assert_eq!(classification, Some(crate::diagnosis::Classification::RetryChecks));
    assert_eq!(scenario.kinds().last(), Some(&EventKind::RemediationRebuild));
    assert_eq!(scenario.record().retry_counts.rebuild, 1);
    assert_eq!(scenario.record().last_remediation_at, Some(scenario.now));
    assert_eq!(scenario.state(), State::ChecksFailed, "a claim changes no state");
    assert_eq!(scenario.last().effects.len(), 1);
    assert_eq!(scenario.last().effects[0].head_sha, sha('a'));
    scenario.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(scenario.state(), State::ChecksRunning);
    assert_eq!(scenario.record().retry_counts.rebuild, 1, "our own post-action state resets nothing");
    scenario.advance_minutes(2);
    scenario.rerun("build", CheckVerdict::Running, 8);
    assert_eq!(scenario.state(), State::ChecksRunning);
    scenario.advance_minutes(5);
    scenario.rerun("build", CheckVerdict::Passed, 8);
    assert_eq!(scenario.state(), State::ChecksPassed);
    assert_eq!(scenario.record().retry_counts.rebuild, 0);
    assert_eq!(scenario.record().active_run, None);
    assert!(
        matches!(&scenario.last().runs[..], [RunChange::Ended { end: RunEnd::Completed, outcome, .. }] if outcome == "the checks passed")
    );
    assert_eq!(scenario.record().lifetime_remedies, 1, "the lifetime count does not reset");
}

#[test]
fn fact_without_record_is_ignored_unless_it_has_details() {
    let mut scenario = PrScenario::new();
    scenario.check("build", CheckVerdict::Passed);
    assert_eq!(scenario.outcome(), FactOutcome::Ignored);
    assert!(scenario.record.is_none());
    scenario.apply(FactKind::Closed { by: None, why: None });
    assert_eq!(scenario.outcome(), FactOutcome::Ignored);
    // Without the `opened` event the record is created by another one, and is due for verification.
    let mut late = PrScenario::new();
    late.apply(FactKind::Edited(described(&sha('a'))));
    assert_eq!((late.outcome(), late.state()), (FactOutcome::Applied, State::Created));
    assert_eq!(late.record().due_at, Some(late.now));
    let mut reopened = PrScenario::new();
    reopened.apply(FactKind::Reopened(described(&sha('a'))));
    assert_eq!((reopened.state(), reopened.record().generation), (State::Created, 1));
    let mut opened = PrScenario::opened();
    assert_eq!(opened.record().verify_reason, None);
    opened.apply(FactKind::Opened(described(&sha('a'))));
    assert_eq!(opened.outcome(), FactOutcome::Duplicate);
}

#[test]
fn old_opened_event_is_due_at_once() {
    let mut scenario = PrScenario::new();
    scenario.advance_minutes(60);
    scenario.apply_at(start(), FactKind::Opened(described(&sha('a'))));
    assert!(scenario.record().due_at.unwrap() <= scenario.now);
    assert_eq!(scenario.record().state_since, start(), "staleness counts from the time of the fact");
}

#[test]
fn future_event_time_does_not_postpone_the_due_date() {
    let mut scenario = PrScenario::new();
    scenario.apply_at(start() + minutes(600), FactKind::Opened(described(&sha('a'))));
    assert_eq!(scenario.record().due_at, Some(start() + minutes(5)));
}

#[test]
fn early_policy_pass_and_approval_count_when_checks_are_green() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.policy_bot(PolicyVerdict::Passed);
    assert_eq!((scenario.state(), scenario.outcome()), (State::ChecksRunning, FactOutcome::Applied));
    scenario.approve();
    assert_eq!(scenario.state(), State::ChecksRunning);
    assert_eq!(scenario.kinds().last(), Some(&EventKind::ApprovalGranted));
    let so_far = scenario.log.len();
    scenario.advance_minutes(1);
    scenario.check("build", CheckVerdict::Passed);
    assert_eq!(scenario.state(), State::Approved);
    let hops: Vec<_> = scenario.log[so_far..].iter().map(|e| (e.hop, e.kind, e.to.unwrap())).collect();
    assert_eq!(
        hops,
        [
            (0, EventKind::ChecksPassed, State::ChecksPassed),
            (1, EventKind::PolicyStarted, State::PolicyEvaluating),
            (2, EventKind::PolicyPassed, State::PolicyPassed),
            (3, EventKind::ApprovalGranted, State::Approved),
        ]
    );
}

#[test]
fn check_failure_after_policy_passed_is_an_anomaly_and_due_at_once() {
    let mut scenario = PrScenario::at(State::PolicyPassed);
    let progressed_at = scenario.record().state_since;
    scenario.fail_again("build", None, 8);
    assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Anomaly, State::PolicyPassed));
    let expected = "Invalid transition for PR #42: POLICY_PASSED → CHECKS_FAILED via CHECK_REPORTED";
    assert_eq!(scenario.log.last().unwrap().payload.anomaly.as_deref(), Some(expected));
    assert_eq!(scenario.last().reason, expected);
    assert_eq!(scenario.record().due_at, Some(scenario.now));
    assert_eq!(scenario.record().state_since, progressed_at, "only state changes update it");
    // The next fact does not cancel the verification.
    scenario.advance_minutes(1);
    scenario.check("lint", CheckVerdict::Passed);
    assert!(scenario.record().due_at.unwrap() < scenario.now);
    // The sweep corrects the state.
    scenario.verify(scenario.github());
    assert_eq!((scenario.state(), scenario.record().substatus), (State::ChecksFailed, Some(Substatus::Persistent)));
    let event = scenario.log.last().unwrap();
    assert_eq!(event.kind, EventKind::StateDriftCorrected);
    assert_eq!(event.payload.text, "State drift detected for PR #42: table=POLICY_PASSED, actual=CHECKS_FAILED");
    assert_eq!(scenario.record().verify_reason, None);
}

#[test]
fn reports_on_past_and_unannounced_heads() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    let version = scenario.record().version;
    scenario.push('b', false);
    assert_eq!(scenario.state(), State::ChecksRunning);
    assert_eq!(scenario.last().heads, [HeadChange::Superseded(sha('a')), HeadChange::Current(sha('b'))]);
    // A result for the old head is superseded and changes nothing.
    let old = FactKind::Check { head: sha('a'), check: run_of("build", CheckVerdict::Failed, scenario.now) };
    scenario.apply(old);
    assert_eq!(scenario.outcome(), FactOutcome::Superseded);
    assert_eq!(scenario.record().version, version + 1);
    // A result for an unannounced head is kept, and counts when the push arrives.
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Check { head: sha('c'), check: run_of("build", CheckVerdict::Passed, scenario.now) });
    assert_eq!(scenario.outcome(), FactOutcome::Applied);
    assert_eq!(scenario.last().reason, "CHECK_REPORTED: kept until ccccccc becomes the head");
    assert_eq!(scenario.state(), State::ChecksRunning);
    scenario.push('c', false);
    assert_eq!(scenario.state(), State::ChecksPassed);
    assert!(scenario.record().unannounced_heads.is_empty());
    let hops: Vec<_> = scenario.log.iter().rev().take(2).map(|e| (e.hop, e.kind)).collect();
    assert_eq!(hops, [(1, EventKind::ChecksPassed), (0, EventKind::BranchUpdated)]);
}

#[test]
fn three_unannounced_and_ten_past_heads_are_kept() {
    let mut scenario = PrScenario::opened();
    for letter in ['b', 'c', 'd', 'e'] {
        scenario
            .apply(FactKind::Check { head: sha(letter), check: run_of("build", CheckVerdict::Passed, scenario.now) });
    }
    let early: Vec<_> = scenario.record().unannounced_heads.iter().map(|early| early.sha.short().to_owned()).collect();
    assert_eq!(early, ["ccccccc", "ddddddd", "eeeeeee"]);
    for letter in "123456789bcdef".chars() {
        scenario.advance_minutes(1);
        scenario.push(letter, false);
    }
    assert_eq!(scenario.record().past_heads.len(), 10);
    assert_eq!(scenario.record().past_heads[9], sha('e'));
}

#[test]
fn pushes_out_of_order_end_at_the_newest_head() {
    let moved = |head: char, before: char| FactKind::HeadMoved {
        described: described(&sha(head)),
        before: Some(sha(before)),
        by_suture: false,
    };
    let mut scenario = PrScenario::opened();
    scenario.advance_minutes(5);
    scenario.apply_at(start() + minutes(2), moved('c', 'b'));
    scenario.apply_at(start() + minutes(1), moved('b', 'a'));
    assert_eq!((scenario.outcome(), &scenario.record().head_sha), (FactOutcome::Superseded, &sha('c')));
    // Within one second, the `before` commit decides.
    let mut same = PrScenario::opened();
    same.advance_minutes(5);
    same.apply_at(start() + minutes(1), moved('c', 'b'));
    same.apply_at(start() + minutes(1), moved('b', 'a'));
    assert_eq!((same.outcome(), &same.record().head_sha), (FactOutcome::Superseded, &sha('c')));
    let mut in_order = PrScenario::opened();
    in_order.advance_minutes(5);
    in_order.apply_at(start() + minutes(1), moved('b', 'a'));
    in_order.apply_at(start() + minutes(1), moved('c', 'b'));
    assert_eq!((in_order.outcome(), &in_order.record().head_sha), (FactOutcome::Applied, &sha('c')));
    in_order.apply_at(start() + minutes(1), moved('c', 'b'));
    assert_eq!(in_order.outcome(), FactOutcome::Duplicate);
}

#[test]
fn return_to_a_past_head_requests_verification() {
    let mut scenario = PrScenario::at(State::ChecksPassed);
    scenario.push('b', false);
    scenario.advance_minutes(1);
    scenario.push('a', false);
    assert_eq!(scenario.record().due_at, Some(scenario.now));
    assert_eq!(scenario.record().past_heads, [sha('b')]);
}

#[test]
fn post_merge_verified_is_logged_and_changes_nothing_else() {
    let verified = || FactKind::PostMergeVerified { watched_minutes: 30 };
    for state in State::ALL {
        let mut scenario = PrScenario::at(if state.is_terminal() { State::Approved } else { state });
        if state == State::Merged {
            scenario.apply(FactKind::Merged { by: None, by_automerge_bot: true });
        } else if state == State::Closed {
            scenario.apply(FactKind::Closed { by: None, why: None });
        }
        let (before, logged) = (scenario.record().clone(), scenario.log.len());
        scenario.advance_minutes(30);
        scenario.apply(verified());
        if state == State::Merged {
            assert_eq!(scenario.record(), &PullRequest { version: before.version + 1, ..before });
            let last = scenario.log.last().unwrap();
            assert_eq!((scenario.log.len(), last.kind, last.to), (logged + 1, EventKind::PostMergeVerified, None));
            assert_eq!(last.payload.text, "healthy for 30 min after the merge");
            assert!(last.is_daily_activity(), "the daily activity lists it");
        } else {
            assert_eq!((scenario.record(), scenario.log.len()), (&before, logged), "{state}");
        }
    }
}

#[test]
fn merged_and_closed_win_from_every_state_that_is_not_terminal() {
    for state in State::ALL {
        if state.is_terminal() || state == State::NeedsIntervention {
            continue;
        }
        for merged in [true, false] {
            let mut scenario = PrScenario::at(state);
            scenario.advance_minutes(1);
            scenario.apply(if merged {
                FactKind::Merged { by: Some("danny".into()), by_automerge_bot: false }
            } else {
                FactKind::Closed { by: Some("danny".into()), why: None }
            });
            let (to, kind) =
                if merged { (State::Merged, EventKind::PrMerged) } else { (State::Closed, EventKind::PrClosed) };
            assert_eq!((scenario.state(), scenario.kinds().last()), (to, Some(&kind)));
            assert!(scenario.log.last().unwrap().payload.text.starts_with("out of band"), "{state}");
            assert_eq!(scenario.log.last().unwrap().payload.by.as_deref(), Some("danny"));
            // Later facts are ignored.
            scenario.approve();
            assert_eq!(scenario.outcome(), FactOutcome::Ignored);
            scenario.push('b', false);
            assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Ignored, to));
        }
    }
}

#[test]
fn merge_by_automerge_bot_is_out_of_band_before_approved() {
    for (state, expected) in [(State::Approved, true), (State::Merging, true), (State::PolicyPassed, false)] {
        let mut scenario = PrScenario::at(state);
        scenario.apply(FactKind::Merged { by: None, by_automerge_bot: true });
        assert_eq!(scenario.kinds().last(), Some(&EventKind::MergeSucceeded));
        assert_eq!(scenario.log.last().unwrap().payload.text.is_empty(), expected, "{state}");
    }
}

#[test]
fn reopening_starts_a_new_generation() {
    let mut scenario = PrScenario::at(State::Closed);
    scenario.record_mut().retry_counts.rebuild = 2;
    scenario.record_mut().retry_counts.close_and_reopen = 1;
    scenario.record_mut().lifetime_remedies = 5;
    scenario.advance_minutes(10);
    scenario.apply(FactKind::Reopened(described(&sha('a'))));
    let record = scenario.record();
    assert_eq!((record.generation, record.ttl, record.lifetime_remedies), (2, None, 0));
    assert_eq!((record.retry_counts.rebuild, record.retry_counts.close_and_reopen), (0, 1));
    assert_eq!(record.due_at, Some(scenario.now), "events may have been missed");
    assert_eq!(scenario.state(), State::Merging, "the reports on this head still count");
    assert_eq!(scenario.last().events[0].kind, EventKind::PrReopened);
    assert_eq!(
        (scenario.last().events[0].from, scenario.last().events[0].to),
        (Some(State::Closed), Some(State::Created))
    );
    assert_eq!(scenario.last().heads, [HeadChange::Current(sha('a'))]);
    assert_eq!(scenario.vulnerability_updates(), [VulnerabilityUpdate::Opened]);
    // The close event from before the reopening may arrive late.
    scenario.apply_at(start() + minutes(8), FactKind::Closed { by: None, why: None });
    assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Superseded, State::Merging));
    let mut merged = PrScenario::at(State::Merged);
    merged.advance_minutes(1);
    merged.apply(FactKind::Reopened(described(&sha('a'))));
    assert_eq!((merged.outcome(), merged.state()), (FactOutcome::Superseded, State::Merged));
    let mut stale = PrScenario::at(State::Closed);
    stale.apply_at(start(), FactKind::Reopened(described(&sha('a'))));
    assert_eq!((stale.outcome(), stale.state()), (FactOutcome::Superseded, State::Closed));
}

#[test]
fn reopening_with_another_head_starts_without_signals() {
    let mut scenario = PrScenario::at(State::Closed);
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Reopened(described(&sha('b'))));
    assert_eq!((scenario.state(), &scenario.record().head_sha), (State::ChecksRunning, &sha('b')));
    assert_eq!(scenario.last().heads, [HeadChange::Superseded(sha('a')), HeadChange::Current(sha('b'))]);
    let mut open = PrScenario::at(State::Approved);
    open.advance_minutes(1);
    open.apply(FactKind::Reopened(described(&sha('a'))));
    assert_eq!((open.outcome(), open.state(), open.record().generation), (FactOutcome::Applied, State::Approved, 1));
    assert_eq!(open.record().due_at, Some(open.now), "a close event was missed");
}

#[test]
fn cancelled_pull_request_is_abandoned() {
    let mut scenario = PrScenario::at(State::ChecksFailed);
    scenario.apply(FactKind::Closed { by: Some("danny".into()), why: Some(CloseReason::Abandoned) });
    assert_eq!((scenario.state(), scenario.record().substatus), (State::Closed, Some(Substatus::Abandoned)));
    assert_eq!(scenario.vulnerability_updates(), [VulnerabilityUpdate::Abandoned]);
    let mut replaced = PrScenario::at(State::ChecksFailed);
    replaced.apply(FactKind::Closed { by: None, why: Some(CloseReason::Replaced) });
    assert_eq!(replaced.record().substatus, Some(Substatus::Replaced));
    assert_eq!(replaced.vulnerability_updates(), [VulnerabilityUpdate::NoLongerOpen]);
    assert_eq!(replaced.log.last().unwrap().payload.text, "", "closed by Suture, so not out of band");
}

#[test]
fn pull_request_without_vulnerability_changes_no_row() {
    let mut scenario = PrScenario::new();
    scenario.apply(FactKind::Opened(PullRequestDetails { vulnerability_id: None, ..described(&sha('a')) }));
    assert_eq!(scenario.vulnerability_updates(), []);
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Edited(described(&sha('a'))));
    assert_eq!(scenario.vulnerability_updates(), [VulnerabilityUpdate::Opened], "the id was added to the description");
    let mut none = PrScenario::new();
    none.apply(FactKind::Opened(PullRequestDetails { vulnerability_id: None, ..described(&sha('a')) }));
    none.apply(FactKind::Closed { by: None, why: None });
    assert_eq!(none.vulnerability_updates(), []);
}

#[test]
fn newest_details_win_by_event_time() {
    let labelled = |labels: &[&str]| PullRequestDetails {
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        ..described(&sha('a'))
    };
    let mut scenario = PrScenario::at(State::PolicyPassed);
    scenario.advance_minutes(10);
    scenario.apply(FactKind::Edited(labelled(&["suture/hold"])));
    assert!(scenario.record().is_held() && !scenario.record().is_actionable());
    assert_eq!(scenario.last().reason, "labels: suture/hold");
    assert_eq!(scenario.record().due_at, Some(scenario.record().state_since + minutes(24 * 60)), "verified daily");
    scenario.apply_at(scenario.now - minutes(1), FactKind::Edited(labelled(&[])));
    assert_eq!((scenario.outcome(), scenario.record().is_held()), (FactOutcome::Duplicate, true));
    // Within one second, the larger label set wins.
    scenario.apply(FactKind::Edited(labelled(&[])));
    assert!(scenario.record().is_held());
    scenario.advance_minutes(100);
    scenario.apply(FactKind::Edited(labelled(&[])));
    assert!(!scenario.record().is_held());
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(15)), "the bots get the threshold first");
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Edited(PullRequestDetails { draft: true, ..described(&sha('a')) }));
    assert!(scenario.record().draft && !scenario.record().is_actionable());
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Edited(PullRequestDetails { base_branch: "release".into(), ..described(&sha('a')) }));
    assert_eq!(scenario.last().reason, "ready for review; base: main → release");
    assert_eq!(scenario.record().due_at, Some(scenario.now), "another base has other requirements");
}

#[test]
fn ignore_label_holds_too() {
    let mut scenario = PrScenario::opened();
    scenario.advance_minutes(1);
    scenario
        .apply(FactKind::Edited(PullRequestDetails { labels: vec!["suture/ignore".into()], ..described(&sha('a')) }));
    assert!(scenario.record().is_held());
}

#[test]
fn base_push_makes_pull_requests_due() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.apply(FactKind::BaseMoved { base: "release".into() });
    assert_eq!(scenario.outcome(), FactOutcome::Ignored);
    scenario.apply(FactKind::BaseMoved { base: "main".into() });
    assert_eq!((scenario.outcome(), scenario.record().due_at), (FactOutcome::Applied, Some(scenario.now)));
    assert_eq!(scenario.kinds().last(), Some(&EventKind::BaseMoved));
}

#[test]
fn repeated_and_older_reports_are_duplicates() {
    let mut scenario = PrScenario::at(State::Approved);
    let events = scenario.log.len();
    let report = policy_says(PolicyVerdict::Evaluating, start());
    scenario.apply(FactKind::Policy { head: sha('a'), report });
    assert_eq!(scenario.outcome(), FactOutcome::Duplicate);
    let check = run_of("build", CheckVerdict::Running, start() + minutes(1));
    scenario.apply(FactKind::Check { head: sha('a'), check });
    assert_eq!(scenario.outcome(), FactOutcome::Duplicate);
    scenario.apply(FactKind::ChecksRequested { head: sha('a') });
    assert_eq!(scenario.outcome(), FactOutcome::Applied);
    scenario.apply(FactKind::ChecksRequested { head: sha('a') });
    assert_eq!(scenario.outcome(), FactOutcome::Duplicate);
    assert_eq!(scenario.log.len(), events + 1);
}

#[test]
fn checks_requested_enters_checks_running() {
    let mut scenario = PrScenario::opened();
    scenario.advance_minutes(1);
    scenario.apply(FactKind::ChecksRequested { head: sha('a') });
    assert_eq!((scenario.state(), scenario.kinds().last()), (State::ChecksRunning, Some(&EventKind::ChecksStarted)));
}

#[test]
fn check_beyond_the_limit_is_an_anomaly() {
    let mut scenario = PrScenario::opened();
    scenario.policy.limits.checks_per_head = 2;
    for name in ["a", "b"] {
        scenario.check(name, CheckVerdict::Running);
    }
    scenario.check("c", CheckVerdict::Running);
    assert_eq!(scenario.outcome(), FactOutcome::Anomaly);
    assert!(scenario.last().reason.contains("more than 2 checks"), "{}", scenario.last().reason);
    assert_eq!(scenario.log.last().unwrap().payload.name.as_deref(), Some("c"));
    assert_eq!(scenario.log.last().unwrap().payload.anomaly.as_ref(), Some(&scenario.last().reason));
    assert_eq!(scenario.record().due_at, Some(scenario.now));
    scenario.advance_minutes(1);
    scenario.check("a", CheckVerdict::Passed);
    assert_eq!(scenario.outcome(), FactOutcome::Applied, "the known ones still report");
}

#[test]
fn dismissed_approval_is_an_anomaly_until_verified() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.advance_minutes(1);
    let approval = ApprovalReport { by: "approver-bot[bot]".into(), granted: false, at: scenario.now };
    scenario.apply(FactKind::Approval { head: sha('a'), approval });
    assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Anomaly, State::Approved));
    assert_eq!(scenario.kinds().last(), Some(&EventKind::ApprovalDismissed));
    scenario.verify(scenario.github());
    assert_eq!(scenario.state(), State::PolicyPassed);
}

#[test]
fn failed_merge_is_an_anomaly_until_verified() {
    let mut scenario = PrScenario::at(State::Merging);
    scenario.advance_minutes(1);
    let report = MergeReport {
        failed: true,
        at: scenario.now,
        text: "base branch was modified".into(),
        renewal: RenewalMark::None,
    };
    scenario.apply(FactKind::Merge { head: sha('a'), report });
    assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Anomaly, State::Merging));
    assert_eq!(scenario.kinds().last(), Some(&EventKind::MergeFailed));
    scenario.verify(scenario.github());
    assert_eq!(scenario.state(), State::Approved);
}

#[test]
fn snapshot_that_says_less_is_not_drift() {
    // GitHub shows neither MERGING nor a policy evaluation that only the bot reported.
    for state in [State::Merging, State::PolicyEvaluating] {
        let mut scenario = PrScenario::at(state);
        let mut github = scenario.github();
        github.signals.merge = None;
        github.signals.policy = (state == State::Merging).then(|| scenario.record().signals.policy.clone().unwrap());
        let events = scenario.log.len();
        scenario.advance_minutes(1);
        scenario.verify(github);
        assert_eq!((scenario.state(), scenario.log.len()), (state, events));
        assert_eq!(scenario.last().reason, format!("verified: {state}"));
        assert_eq!(scenario.record().verified_at, Some(scenario.now));
    }
}

#[test]
fn drift_counts_from_the_time_of_the_missed_report() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    let green_at = scenario.now + minutes(1);
    let mut github = scenario.github();
    github.signals.checks = vec![run_of("build", CheckVerdict::Passed, green_at)];
    scenario.advance_minutes(75);
    scenario.record_mut().retry_counts.rebuild = 2;
    github.read_at = scenario.now;
    scenario.verify(github);
    assert_eq!((scenario.state(), scenario.record().state_since), (State::ChecksPassed, green_at));
    assert_eq!(scenario.record().retry_counts.rebuild, 0, "a missed event is a real event");
    assert!(
        scenario.record().is_stale(&scenario.policy, scenario.now),
        "Policy Bot has been silent for longer than the threshold"
    );
    let said = "State drift detected for PR #42: table=CHECKS_RUNNING, actual=CHECKS_PASSED; missed: CHECKS_PASSED";
    assert_eq!(scenario.log.last().unwrap().payload.text, said);
    assert_eq!(scenario.log.last().unwrap().payload.name.as_deref(), Some("CHECKS_PASSED"));
}

#[test]
fn drift_over_several_states_resets_their_budgets() {
    let mut scenario = PrScenario::at(State::ChecksFailed);
    scenario.record_mut().retry_counts.rebuild = 3;
    scenario.record_mut().retry_counts.retrigger_policy_bot = 1;
    scenario.record_mut().retry_counts.branch_update = 1;
    scenario.record_mut().lifetime_remedies = 4;
    let mut github = scenario.github();
    scenario.advance_minutes(5);
    github.read_at = scenario.now;
    github.signals.checks = vec![CheckReport { id: Some(9), ..run_of("build", CheckVerdict::Passed, scenario.now) }];
    github.signals.policy = Some(policy_says(PolicyVerdict::Passed, scenario.now));
    scenario.verify(github);
    let counts = scenario.record().retry_counts;
    assert_eq!(scenario.state(), State::PolicyPassed);
    assert_eq!((counts.rebuild, counts.retrigger_policy_bot, counts.branch_update), (0, 0, 0));
    assert_eq!(scenario.record().lifetime_remedies, 4, "drift does not change the lifetime count");
}

#[test]
fn missed_merge_or_close_is_found_by_verification() {
    for merged in [true, false] {
        let mut scenario = PrScenario::at(State::Approved);
        let at = scenario.now + minutes(1);
        scenario.advance_minutes(30);
        let life = if merged {
            PullRequestState::Merged { at, by: Some("danny".into()), by_automerge_bot: false }
        } else {
            PullRequestState::Closed { at }
        };
        scenario.verify(crate::snapshot::Snapshot { state: life, ..scenario.github() });
        let (to, missed) = if merged { (State::Merged, "PR_MERGED") } else { (State::Closed, "PR_CLOSED") };
        assert_eq!((scenario.state(), scenario.record().state_since), (to, at));
        assert_eq!(scenario.log.last().unwrap().kind, EventKind::StateDriftCorrected);
        assert_eq!(
            scenario.log.last().unwrap().payload.text,
            format!("State drift detected for PR #42: table=APPROVED, actual={to}; missed: {missed}")
        );
    }
    let mut reopened = PrScenario::at(State::Closed);
    reopened.advance_minutes(5);
    reopened.apply(FactKind::Reopened(described(&sha('a'))));
    let life = PullRequestState::Closed { at: start() };
    let read_at = reopened.now - minutes(1);
    reopened.verify(crate::snapshot::Snapshot { state: life.clone(), read_at, ..reopened.github() });
    assert_eq!(reopened.outcome(), FactOutcome::Superseded, "the snapshot was read before the reopening");
    // A snapshot read after the reopening wins, whatever time it has for the close.
    reopened.verify(crate::snapshot::Snapshot { state: life, ..reopened.github() });
    assert_eq!(reopened.state(), State::Closed);
}

#[test]
fn missed_push_is_found_by_verification() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.advance_minutes(30);
    let mut github = scenario.github();
    github.details = described(&sha('b'));
    github.signals = crate::signals::Signals::default();
    scenario.verify(github.clone());
    assert_eq!((scenario.state(), &scenario.record().head_sha), (State::ChecksRunning, &sha('b')));
    assert_eq!(scenario.log.last().unwrap().payload.name.as_deref(), Some("BRANCH_UPDATED"));
    assert_eq!(scenario.last().heads.len(), 2);
    assert_eq!(scenario.record().state_since, scenario.now - minutes(1), "GitHub's clock and Suture's may differ");
    // The push event arrives late and has nothing new; an older one is superseded.
    scenario.apply_at(
        scenario.now - minutes(20),
        FactKind::HeadMoved { described: described(&sha('b')), before: None, by_suture: false },
    );
    assert_eq!(scenario.outcome(), FactOutcome::Duplicate);
    scenario.apply_at(
        scenario.now - minutes(20),
        FactKind::HeadMoved { described: described(&sha('c')), before: None, by_suture: false },
    );
    assert_eq!(scenario.outcome(), FactOutcome::Superseded);
    // If GitHub's clock runs ahead of Suture's, a snapshot of the same head is still accepted.
    let mut ahead = scenario.clone();
    ahead.record_mut().head_at = ahead.now + minutes(90);
    ahead.verify(github.clone());
    assert_eq!(ahead.outcome(), FactOutcome::Applied);
    // A snapshot from before a push corrects nothing.
    scenario.advance_minutes(10);
    scenario.push('d', false);
    github.read_at = scenario.now - minutes(1);
    scenario.verify(github);
    assert_eq!((scenario.outcome(), &scenario.record().head_sha), (FactOutcome::Superseded, &sha('d')));
}

#[test]
fn required_checks_come_from_github_unless_configured() {
    let mut scenario = PrScenario::at(State::ChecksPassed);
    let mut github = scenario.github();
    github.required_checks = Some(vec!["build".into(), "scan".into(), "policy-bot: main".into()]);
    scenario.advance_minutes(1);
    github.read_at = scenario.now;
    scenario.verify(github);
    assert_eq!(scenario.record().required_checks, ["build", "scan"], "Policy Bot's own context is never a check");
    assert_eq!(scenario.state(), State::ChecksRunning, "a required check has not reported");
    scenario.advance_minutes(1);
    let check = status_of("scan", CheckVerdict::Passed, scenario.now);
    scenario.apply(FactKind::Check { head: sha('a'), check });
    assert_eq!(scenario.state(), State::ChecksPassed);
    scenario.policy.checks.required = vec!["deploy".into()];
    assert_eq!(scenario.record().implied(&scenario.policy).state, State::ChecksRunning);
}

#[test]
fn skipped_visit_is_repeated_with_growing_backoff() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.advance_minutes(100);
    for (n, secs) in [(1, 30), (2, 60), (3, 120)] {
        scenario.apply(FactKind::Skipped { why: "GitHub answered 502".into(), until: None, gate: None });
        assert_eq!(scenario.record().skips, n);
        assert_eq!(scenario.record().due_at, Some(scenario.now + jiff::SignedDuration::from_secs(secs)));
        assert!(scenario.last().events.is_empty());
    }
    scenario.verify(scenario.github());
    assert_eq!((scenario.record().skips, scenario.record().not_before), (0, None));
    let mut full = PrScenario::at(State::ChecksRunning);
    full.policy.limits.checks_per_head = 1;
    let mut github = full.github();
    github.signals.checks =
        vec![run_of("a", CheckVerdict::Passed, full.now), run_of("b", CheckVerdict::Passed, full.now)];
    full.verify(github);
    assert!(full.last().reason.contains("limits.checks_per_head"), "{}", full.last().reason);
    assert_eq!((full.outcome(), full.record().skips), (FactOutcome::Applied, 0));
    // A skip with a known time is not counted as a failure.
    let until = full.now + minutes(7);
    full.apply(FactKind::Skipped { why: "the breaker is open".into(), until: Some(until), gate: None });
    assert_eq!((full.record().not_before, full.record().skips), (Some(until), 0));
    full.apply(FactKind::Skipped { why: "the breaker is open".into(), until: Some(full.now - minutes(7)), gate: None });
    assert_eq!(full.record().not_before, Some(full.now));
}

#[test]
fn required_checks_are_stored_beyond_the_limit() {
    let mut scenario = PrScenario::opened();
    scenario.policy.limits.checks_per_head = 1;
    scenario.record_mut().required_checks = vec!["build".into(), "scan".into()];
    scenario.check("advice", CheckVerdict::Running);
    scenario.check("build", CheckVerdict::Running);
    assert_eq!(scenario.outcome(), FactOutcome::Applied);
    let mut github = scenario.github();
    github.signals.checks =
        vec![run_of("other", CheckVerdict::Passed, scenario.now), run_of("scan", CheckVerdict::Passed, scenario.now)];
    scenario.verify(github);
    let names: Vec<&str> = scenario.record().signals.checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["advice", "build", "scan"]);
}

#[test]
fn unannounced_head_has_a_smaller_check_limit() {
    let mut scenario = PrScenario::opened();
    for n in 0..51 {
        let check = run_of(&format!("check-{n:02}"), CheckVerdict::Running, scenario.now);
        scenario.apply(FactKind::Check { head: sha('b'), check });
    }
    assert_eq!(
        (scenario.outcome(), scenario.record().unannounced_heads[0].signals.checks.len()),
        (FactOutcome::Anomaly, 50)
    );
}

#[test]
fn report_texts_are_truncated() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.fail("build", None, &"ä".repeat(500));
    let failure = scenario.record().signals.checks[0].failure.clone().unwrap();
    assert_eq!(failure.text.chars().count(), 200);
    let report = PolicyReport { text: "x".repeat(500), ..policy_says(PolicyVerdict::Passed, scenario.now) };
    scenario.apply(FactKind::Policy { head: sha('a'), report });
    let report = MergeReport { failed: true, at: scenario.now, text: "y".repeat(500), renewal: RenewalMark::None };
    scenario.apply(FactKind::Merge { head: sha('a'), report });
    let signals = &scenario.record().signals;
    assert_eq!((signals.policy.as_ref().unwrap().text.len(), signals.merge.as_ref().unwrap().text.len()), (202, 202));
}

#[test]
fn report_far_in_the_future_is_set_to_now() {
    let mut scenario = PrScenario::at(State::PolicyEvaluating);
    let ahead = scenario.now + minutes(60);
    let report = policy_says(PolicyVerdict::Failed(Substatus::SodFailure), ahead);
    scenario.apply(FactKind::Policy { head: sha('a'), report });
    assert_eq!(scenario.record().signals.policy.as_ref().unwrap().at, scenario.now);
    scenario.advance_minutes(1);
    scenario.policy_bot(PolicyVerdict::Passed);
    assert_eq!(scenario.record().signals.policy.as_ref().unwrap().verdict, PolicyVerdict::Passed);
    // A difference of a few minutes is tolerated and kept, because it orders the reports of other senders.
    let near = policy_says(PolicyVerdict::Evaluating, scenario.now + minutes(5));
    scenario.apply(FactKind::Policy { head: sha('a'), report: near });
    assert_eq!(scenario.record().signals.policy.as_ref().unwrap().at, scenario.now + minutes(5));
}

#[test]
fn snapshot_overrules_webhooks_of_the_same_second() {
    let mut scenario = PrScenario::at(State::PolicyEvaluating);
    scenario.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
    scenario.policy_bot(PolicyVerdict::Passed);
    assert_eq!(scenario.state(), State::PolicyFailed, "within one second the failure wins");
    let mut github = scenario.github();
    github.signals.policy = Some(policy_says(PolicyVerdict::Passed, scenario.now));
    scenario.verify(github);
    assert_eq!(scenario.state(), State::PolicyPassed);
    let mut checks = PrScenario::at(State::ChecksRunning);
    checks.fail("build", None, "no");
    let mut github = checks.github();
    github.signals.checks = vec![run_of("build", CheckVerdict::Passed, checks.now)];
    checks.verify(github);
    assert_eq!(checks.state(), State::ChecksPassed);
    // A failure that matches no transient rule does not replace one that does.
    let mut known = PrScenario::at(State::ChecksFailed);
    let mut github = known.github();
    github.signals.checks[0].failure = super::fixture::failed_because(None, "zzz: This commit cannot be built");
    known.verify(github);
    assert_eq!((known.state(), known.record().substatus), (State::ChecksFailed, Some(Substatus::Transient)));
}

#[test]
fn missed_push_is_drift_even_in_the_same_state() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.advance_minutes(60);
    assert!(scenario.record().is_stale(&scenario.policy, scenario.now));
    let mut github = scenario.github();
    github.details = described(&sha('b'));
    github.signals = crate::signals::Signals::default();
    scenario.verify(github);
    assert_eq!(
        (scenario.state(), scenario.kinds().last()),
        (State::ChecksRunning, Some(&EventKind::StateDriftCorrected))
    );
    assert!(!scenario.record().is_stale(&scenario.policy, scenario.now), "the new head gets the threshold again");
}

#[test]
fn unannounced_reports_survive_a_verification() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.apply(FactKind::Check { head: sha('b'), check: run_of("build", CheckVerdict::Passed, scenario.now) });
    scenario.verify(scenario.github());
    scenario.advance_minutes(1);
    scenario.push('b', false);
    assert_eq!(scenario.state(), State::ChecksPassed);
}

#[test]
fn any_event_of_an_open_pull_request_reopens_a_closed_record() {
    for what in [
        FactKind::Opened(described(&sha('a'))),
        FactKind::Edited(described(&sha('a'))),
        FactKind::HeadMoved { described: described(&sha('b')), before: None, by_suture: false },
    ] {
        let mut scenario = PrScenario::at(State::Closed);
        scenario.apply_at(scenario.now, what.clone());
        assert_eq!(
            (scenario.outcome(), scenario.state()),
            (FactOutcome::Ignored, State::Closed),
            "not newer than the closing"
        );
        scenario.advance_minutes(1);
        scenario.apply(what.clone());
        assert_eq!((scenario.outcome(), scenario.record().generation), (FactOutcome::Applied, 2));
        assert_eq!(scenario.record().ttl, None);
        let mut merged = PrScenario::at(State::Merged);
        merged.advance_minutes(1);
        merged.apply(what);
        assert_eq!((merged.outcome(), merged.state()), (FactOutcome::Ignored, State::Merged));
    }
}

#[test]
fn closed_and_reopened_within_one_second_is_open_in_any_order() {
    let closed = || FactKind::Closed { by: None, why: None };
    let reopened = || FactKind::Reopened(described(&sha('a')));
    let mut in_order = PrScenario::at(State::ChecksRunning);
    in_order.apply(closed());
    in_order.apply(reopened());
    let mut swapped = PrScenario::at(State::ChecksRunning);
    swapped.apply(reopened());
    swapped.apply(closed());
    assert_eq!((in_order.state(), swapped.state()), (State::ChecksRunning, State::ChecksRunning));
    swapped.advance_minutes(1);
    swapped.apply(closed());
    assert_eq!(swapped.state(), State::Closed);
}

#[test]
fn unknown_required_checks_request_verification() {
    let opened = |required_checks: Option<Vec<String>>, configured: &[&str]| {
        let mut scenario = PrScenario::new();
        scenario.policy.checks.required = configured.iter().map(|&name| name.to_owned()).collect();
        scenario.apply(FactKind::Opened(PullRequestDetails { required_checks, ..described(&sha('a')) }));
        scenario
    };
    assert_eq!(opened(None, &[]).record().due_at, Some(start()), "one green job is not all required checks");
    assert_eq!(opened(None, &["build"]).record().due_at, Some(start() + minutes(5)));
    let known = opened(Some(vec!["build".into(), "policy-bot: main".into()]), &[]);
    assert_eq!(
        (known.record().due_at, &known.record().required_checks[..]),
        (Some(start() + minutes(5)), &["build".to_owned()][..])
    );
    let mut edited = known.clone();
    edited.advance_minutes(1);
    let required_checks = Some(vec!["scan".to_owned()]);
    edited.apply(FactKind::Edited(PullRequestDetails {
        required_checks,
        labels: vec!["x".into()],
        ..described(&sha('a'))
    }));
    assert_eq!(edited.record().required_checks, ["scan"]);
}

#[test]
fn changed_vulnerability_or_base_updates_both_rows() {
    let mut scenario = PrScenario::opened();
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Edited(PullRequestDetails {
        vulnerability_id: Some("CVE-2026-9".into()),
        ..described(&sha('a'))
    }));
    let changes: Vec<_> =
        scenario.last().vulnerabilities.iter().map(|c| (c.base_branch.as_str(), c.id.as_str(), c.update)).collect();
    let [closed, opened] = [VulnerabilityUpdate::NoLongerOpen, VulnerabilityUpdate::Opened];
    assert_eq!(changes, [("main", "CVE-2026-1234", closed), ("main", "CVE-2026-9", opened)]);
    scenario.advance_minutes(1);
    let moved = PullRequestDetails { vulnerability_id: None, base_branch: "release".into(), ..described(&sha('a')) };
    scenario.apply(FactKind::Edited(moved));
    let changes: Vec<_> =
        scenario.last().vulnerabilities.iter().map(|c| (c.base_branch.as_str(), c.id.as_str(), c.update)).collect();
    assert_eq!(changes, [("main", "CVE-2026-9", closed), ("release", "CVE-2026-9", opened)]);
}

#[test]
fn hold_labels_ignore_case_and_resume_reports_them() {
    let mut scenario = PrScenario::opened();
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Edited(PullRequestDetails { labels: vec!["Suture/Hold".into()], ..described(&sha('a')) }));
    assert!(scenario.record().is_held());
    scenario.command(Command::Resume);
    assert_eq!(
        scenario.last().reason,
        "it is still held by the label `Suture/Hold`: remove that label, Suture never does"
    );
    assert!(scenario.record().is_held());
}

#[test]
fn new_substatus_in_the_same_state_resets_budgets() {
    let mut scenario = PrScenario::at(State::PolicyFailed);
    scenario.record_mut().retry_counts.retrigger_sod_check = 1;
    scenario.advance_minutes(1);
    scenario.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
    assert_eq!(scenario.record().retry_counts.retrigger_sod_check, 1, "the same failure again is not progress");
    scenario.advance_minutes(1);
    scenario.policy_bot(PolicyVerdict::Failed(Substatus::BuildFailure));
    assert_eq!(scenario.record().retry_counts.retrigger_sod_check, 0);
}

#[test]
fn hold_stops_remedies_until_resume() {
    let mut scenario = PrScenario::at(State::PolicyPassed);
    scenario.command(Command::Hold);
    assert!(scenario.record().hold);
    assert_eq!(scenario.record().blocked.as_ref().unwrap().reason, "held by danny");
    assert_eq!(crate::text::blocked(scenario.record()).as_deref(), Some("held by danny"));
    scenario.advance_minutes(60);
    assert!(!scenario.record().is_stale(&scenario.policy, scenario.now), "a pull request on hold is not stale");
    assert_eq!(scenario.sweep(scenario.github()), None);
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(24 * 60)));
    scenario.command(Command::Resume);
    assert_eq!((scenario.record().hold, scenario.record().blocked.clone()), (false, None));
    assert_eq!(scenario.record().due_at, Some(scenario.now));
    assert_eq!(scenario.kinds().iter().filter(|&&kind| kind == EventKind::CommandReceived).count(), 2);
    let event = scenario.log.last().unwrap();
    assert_eq!((event.payload.by.as_deref(), event.payload.name.as_deref()), (Some("danny"), Some("/resume")));
    assert_eq!(event.payload.run, None);
}

#[test]
fn late_hold_after_a_newer_resume_is_refused() {
    let mut scenario = PrScenario::at(State::PolicyPassed);
    let held_at = scenario.now;
    scenario.advance_minutes(20);
    scenario.command(Command::Resume);
    scenario.advance_minutes(6);
    let request = crate::event::CommandRequest {
        command: Command::Hold,
        source: crate::command::CommandSource::PrComment,
        by: "danny".to_owned(),
        permission: Ok(()),
        run: crate::id::RunId::new("late"),
        args: String::new(),
        comment: None,
    };
    scenario.apply_at(held_at, FactKind::CommandRequested(Box::new(request)));
    assert_eq!((scenario.outcome(), scenario.record().hold), (FactOutcome::Refused, false));
    assert!(scenario.last().reason.starts_with("`/hold` is older than the last"), "{}", scenario.last().reason);
    scenario.command(Command::Hold);
    assert!(scenario.record().hold, "repeated");
}

#[test]
fn policy_failure_updates_its_substatus() {
    let mut scenario = PrScenario::at(State::PolicyFailed);
    let progressed_at = scenario.record().state_since;
    scenario.advance_minutes(1);
    let report = PolicyReport {
        text: "build policy not met".into(),
        ..policy_says(PolicyVerdict::Failed(Substatus::BuildFailure), scenario.now)
    };
    scenario.apply(FactKind::Policy { head: sha('a'), report });
    assert_eq!((scenario.state(), scenario.record().substatus), (State::PolicyFailed, Some(Substatus::BuildFailure)));
    assert_eq!(scenario.record().state_since, progressed_at);
    assert_eq!(scenario.log.last().unwrap().payload.text, "build policy not met");
    assert_eq!(scenario.record().last_event_at, scenario.now);
    assert_eq!(scenario.record().last_requested.get(&Strategy::Rebuild), None);
}

#[test]
fn check_result_is_newer_than_its_run_whatever_its_start_time() {
    for started_at in [Some(start() - minutes(1)), None] {
        let mut scenario = PrScenario::at(State::ChecksRunning);
        let done = CheckReport { started_at, ..run_of("build", CheckVerdict::Passed, scenario.now) };
        scenario.apply(FactKind::Check { head: sha('a'), check: done });
        assert_eq!(scenario.state(), State::ChecksPassed);
        // A run that was started again after its result is running again.
        let again = CheckReport {
            started_at: Some(scenario.now + minutes(1)),
            ..run_of("build", CheckVerdict::Running, scenario.now)
        };
        scenario.advance_minutes(2);
        scenario.apply(FactKind::Check { head: sha('a'), check: again });
        assert_eq!(scenario.record().signals.checks[0].verdict, CheckVerdict::Running);
    }
}

#[test]
fn opened_event_logs_head_and_vulnerability() {
    let mut scenario = PrScenario::opened();
    let payload = scenario.log[0].payload.clone();
    assert_eq!((payload.head, payload.name.as_deref()), (Some(sha('a')), Some("CVE-2026-1234")));
    scenario.push('b', false);
    assert_eq!(scenario.log.last().unwrap().payload.head, Some(sha('b')));
    scenario.apply(FactKind::Closed { by: None, why: None });
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Reopened(described(&sha('b'))));
    assert_eq!(scenario.last().events[0].payload.head, Some(sha('b')));
}

#[test]
fn opened_and_closed_within_one_second_is_closed() {
    let mut scenario = PrScenario::opened();
    scenario.apply(FactKind::Closed { by: None, why: None });
    assert_eq!(scenario.state(), State::Closed);
}

#[test]
fn snapshot_updates_labels() {
    let mut scenario = PrScenario::opened();
    scenario.advance_minutes(1);
    let mut github = scenario.github();
    github.details.labels = vec!["suture/hold".into()];
    scenario.verify(github);
    assert!(scenario.record().is_held());
    assert!(scenario.last().reason.starts_with("verified, with changes"), "{}", scenario.last().reason);
}

#[test]
fn start_time_far_in_the_future_is_set_to_now() {
    let mut scenario = PrScenario::opened();
    let check = CheckReport {
        started_at: Some(scenario.now + minutes(60)),
        ..run_of("build", CheckVerdict::Running, scenario.now)
    };
    scenario.apply(FactKind::Check { head: sha('a'), check });
    assert_eq!(scenario.record().signals.checks[0].started_at, Some(scenario.now));
}

#[test]
fn every_report_far_in_the_future_is_set_to_now() {
    let mut scenario = PrScenario::at(State::Approved);
    let ahead = scenario.now + minutes(60);
    let approval = ApprovalReport { by: "second[bot]".into(), granted: true, at: ahead };
    scenario.apply(FactKind::Approval { head: sha('a'), approval });
    assert_eq!(scenario.record().signals.approved_at(), Some(scenario.now));
    let report = MergeReport { failed: false, at: ahead, text: String::new(), renewal: RenewalMark::None };
    scenario.apply(FactKind::Merge { head: sha('a'), report });
    assert_eq!(scenario.record().signals.merge.as_ref().unwrap().at, scenario.now);
}

#[test]
fn drift_event_has_actor_and_head() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.advance_minutes(1);
    let mut moved = scenario.clone();
    let mut github = moved.github();
    github.details = described(&sha('b'));
    moved.verify(github);
    assert_eq!(moved.log.last().unwrap().payload.head, Some(sha('b')));
    let life = PullRequestState::Merged { at: scenario.now, by: Some("danny".into()), by_automerge_bot: false };
    scenario.verify(crate::snapshot::Snapshot { state: life, ..scenario.github() });
    assert_eq!(scenario.log.last().unwrap().payload.by.as_deref(), Some("danny"));
}

#[test]
fn snapshot_from_the_second_of_a_push_counts() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.record_mut().head_at = scenario.now;
    let mut github = scenario.github();
    github.details = described(&sha('b'));
    scenario.verify(github);
    assert_eq!((scenario.outcome(), &scenario.record().head_sha), (FactOutcome::Applied, &sha('b')));
}
