//! Scenarios from the first fact to the last (R-FLOW-1, R-FLOW-2, R-STATE, R-SIGNAL): facts in any order, new heads,
//! merges and closes, drift, holds.

use super::fixture::{PullRequestStory, described, minutes, policy_says, run_of, sha, start, status_of};
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
    let mut tale = PullRequestStory::opened();
    assert_eq!(tale.state(), State::Created);
    assert_eq!(tale.last().heads, [HeadChange::Current(sha('a'))]);
    assert_eq!(tale.vulnerability_updates(), [VulnerabilityUpdate::Opened]);
    assert_eq!(tale.record().due_at, Some(start() + minutes(5)));
    tale.advance_minutes(1);
    tale.check("build", CheckVerdict::Running);
    assert_eq!(tale.state(), State::ChecksRunning);
    tale.advance_minutes(10);
    tale.check("build", CheckVerdict::Passed);
    assert_eq!(tale.state(), State::ChecksPassed);
    assert_eq!(tale.record().due_at, Some(tale.now + minutes(30)));
    tale.advance_minutes(1);
    tale.policy_bot(PolicyVerdict::Passed);
    assert_eq!(tale.state(), State::PolicyPassed);
    tale.advance_minutes(1);
    tale.approve();
    assert_eq!(tale.state(), State::Approved);
    assert_eq!(tale.record().state_since, tale.now);
    tale.advance_minutes(1);
    tale.apply(FactKind::Merged { by: Some("automerge-bot[bot]".into()), by_automerge_bot: true });
    assert_eq!(tale.state(), State::Merged);
    assert_eq!(tale.record().ttl, Some(tale.now + minutes(24 * 60)));
    assert_eq!(tale.last().heads, [HeadChange::Superseded(sha('a'))]);
    assert_eq!(tale.vulnerability_updates(), [VulnerabilityUpdate::NoLongerOpen]);
    // POLICY_EVALUATING was not reported, but the log has the hop.
    assert_eq!(
        tale.kinds(),
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
    assert_eq!(tale.log[3].payload.text, "implied by earlier reports");
    assert_eq!((tale.log[3].hop, tale.log[4].hop), (0, 1));
    assert_eq!((tale.log[4].from, tale.log[4].to), (Some(State::PolicyEvaluating), Some(State::PolicyPassed)));
    assert_eq!(tale.log[0].ttl, start() + minutes(90 * 24 * 60));
    assert_eq!(tale.log[1].sort_key(), "2026-03-02T09:01:00.000Z#f2#0");
}

#[test]
fn transient_failure_is_rebuilt_and_its_budget_resets() {
    let mut tale = PullRequestStory::at(State::ChecksFailed);
    assert_eq!(tale.record().substatus, Some(Substatus::Transient));
    assert_eq!(tale.kinds().last(), Some(&EventKind::ChecksFailed));
    assert_eq!(tale.log.last().unwrap().payload.text, "`build` failed, transient by rule `timeout`: timeout");
    // One minute before it is stale.
    tale.advance_minutes(29);
    assert_eq!(tale.sweep(tale.github()), None);
    tale.advance_minutes(1);
    let classification = tale.sweep(tale.github());
    assert_eq!(classification, Some(crate::diagnosis::Classification::RetryChecks));
    assert_eq!(tale.kinds().last(), Some(&EventKind::RemediationRebuild));
    assert_eq!(tale.record().retry_counts.rebuild, 1);
    assert_eq!(tale.record().last_remediation_at, Some(tale.now));
    assert_eq!(tale.state(), State::ChecksFailed, "a claim changes no state");
    assert_eq!(tale.last().effects.len(), 1);
    assert_eq!(tale.last().effects[0].head_sha, sha('a'));
    tale.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(tale.state(), State::ChecksRunning);
    assert_eq!(tale.record().retry_counts.rebuild, 1, "our own post-action state resets nothing");
    tale.advance_minutes(2);
    tale.rerun("build", CheckVerdict::Running, 8);
    assert_eq!(tale.state(), State::ChecksRunning);
    tale.advance_minutes(5);
    tale.rerun("build", CheckVerdict::Passed, 8);
    assert_eq!(tale.state(), State::ChecksPassed);
    assert_eq!(tale.record().retry_counts.rebuild, 0);
    assert_eq!(tale.record().active_run, None);
    assert!(
        matches!(&tale.last().runs[..], [RunChange::Ended { end: RunEnd::Completed, outcome, .. }] if outcome == "the checks passed")
    );
    assert_eq!(tale.record().lifetime_remedies, 1, "the lifetime count does not reset");
}

#[test]
fn fact_without_record_is_ignored_unless_it_has_details() {
    let mut tale = PullRequestStory::new();
    tale.check("build", CheckVerdict::Passed);
    assert_eq!(tale.outcome(), FactOutcome::Ignored);
    assert!(tale.record.is_none());
    tale.apply(FactKind::Closed { by: None, why: None });
    assert_eq!(tale.outcome(), FactOutcome::Ignored);
    // Without the `opened` event the record is created by another one, and is due for verification.
    let mut late = PullRequestStory::new();
    late.apply(FactKind::Edited(described(&sha('a'))));
    assert_eq!((late.outcome(), late.state()), (FactOutcome::Applied, State::Created));
    assert_eq!(late.record().due_at, Some(late.now));
    let mut reopened = PullRequestStory::new();
    reopened.apply(FactKind::Reopened(described(&sha('a'))));
    assert_eq!((reopened.state(), reopened.record().generation), (State::Created, 1));
    let mut opened = PullRequestStory::opened();
    assert_eq!(opened.record().verify_reason, None);
    opened.apply(FactKind::Opened(described(&sha('a'))));
    assert_eq!(opened.outcome(), FactOutcome::Duplicate);
}

#[test]
fn old_opened_event_is_due_at_once() {
    let mut tale = PullRequestStory::new();
    tale.advance_minutes(60);
    tale.apply_at(start(), FactKind::Opened(described(&sha('a'))));
    assert!(tale.record().due_at.unwrap() <= tale.now);
    assert_eq!(tale.record().state_since, start(), "staleness counts from the time of the fact");
}

#[test]
fn future_event_time_does_not_postpone_the_due_date() {
    let mut tale = PullRequestStory::new();
    tale.apply_at(start() + minutes(600), FactKind::Opened(described(&sha('a'))));
    assert_eq!(tale.record().due_at, Some(start() + minutes(5)));
}

#[test]
fn early_policy_pass_and_approval_count_when_checks_are_green() {
    let mut tale = PullRequestStory::at(State::ChecksRunning);
    tale.policy_bot(PolicyVerdict::Passed);
    assert_eq!((tale.state(), tale.outcome()), (State::ChecksRunning, FactOutcome::Applied));
    tale.approve();
    assert_eq!(tale.state(), State::ChecksRunning);
    assert_eq!(tale.kinds().last(), Some(&EventKind::ApprovalGranted));
    let so_far = tale.log.len();
    tale.advance_minutes(1);
    tale.check("build", CheckVerdict::Passed);
    assert_eq!(tale.state(), State::Approved);
    let hops: Vec<_> = tale.log[so_far..].iter().map(|e| (e.hop, e.kind, e.to.unwrap())).collect();
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
    let mut tale = PullRequestStory::at(State::PolicyPassed);
    let progressed_at = tale.record().state_since;
    tale.fail_again("build", None, 8);
    assert_eq!((tale.outcome(), tale.state()), (FactOutcome::Anomaly, State::PolicyPassed));
    let expected = "Invalid transition for PR #42: POLICY_PASSED → CHECKS_FAILED via CHECK_REPORTED";
    assert_eq!(tale.log.last().unwrap().payload.anomaly.as_deref(), Some(expected));
    assert_eq!(tale.last().reason, expected);
    assert_eq!(tale.record().due_at, Some(tale.now));
    assert_eq!(tale.record().state_since, progressed_at, "only state changes update it");
    // The next fact does not cancel the verification.
    tale.advance_minutes(1);
    tale.check("lint", CheckVerdict::Passed);
    assert!(tale.record().due_at.unwrap() < tale.now);
    // The sweep corrects the state.
    tale.verify(tale.github());
    assert_eq!((tale.state(), tale.record().substatus), (State::ChecksFailed, Some(Substatus::Persistent)));
    let event = tale.log.last().unwrap();
    assert_eq!(event.kind, EventKind::StateDriftCorrected);
    assert_eq!(event.payload.text, "State drift detected for PR #42: table=POLICY_PASSED, actual=CHECKS_FAILED");
    assert_eq!(tale.record().verify_reason, None);
}

#[test]
fn reports_on_past_and_unannounced_heads() {
    let mut tale = PullRequestStory::at(State::ChecksRunning);
    let version = tale.record().version;
    tale.push('b', false);
    assert_eq!(tale.state(), State::ChecksRunning);
    assert_eq!(tale.last().heads, [HeadChange::Superseded(sha('a')), HeadChange::Current(sha('b'))]);
    // A result for the old head is superseded and changes nothing.
    let old = FactKind::Check { head: sha('a'), check: run_of("build", CheckVerdict::Failed, tale.now) };
    tale.apply(old);
    assert_eq!(tale.outcome(), FactOutcome::Superseded);
    assert_eq!(tale.record().version, version + 1);
    // A result for an unannounced head is kept, and counts when the push arrives.
    tale.advance_minutes(1);
    tale.apply(FactKind::Check { head: sha('c'), check: run_of("build", CheckVerdict::Passed, tale.now) });
    assert_eq!(tale.outcome(), FactOutcome::Applied);
    assert_eq!(tale.last().reason, "CHECK_REPORTED: kept until ccccccc becomes the head");
    assert_eq!(tale.state(), State::ChecksRunning);
    tale.push('c', false);
    assert_eq!(tale.state(), State::ChecksPassed);
    assert!(tale.record().unannounced_heads.is_empty());
    let hops: Vec<_> = tale.log.iter().rev().take(2).map(|e| (e.hop, e.kind)).collect();
    assert_eq!(hops, [(1, EventKind::ChecksPassed), (0, EventKind::BranchUpdated)]);
}

#[test]
fn three_unannounced_and_ten_past_heads_are_kept() {
    let mut tale = PullRequestStory::opened();
    for letter in ['b', 'c', 'd', 'e'] {
        tale.apply(FactKind::Check { head: sha(letter), check: run_of("build", CheckVerdict::Passed, tale.now) });
    }
    let early: Vec<_> = tale.record().unannounced_heads.iter().map(|early| early.sha.short().to_owned()).collect();
    assert_eq!(early, ["ccccccc", "ddddddd", "eeeeeee"]);
    for letter in "123456789bcdef".chars() {
        tale.advance_minutes(1);
        tale.push(letter, false);
    }
    assert_eq!(tale.record().past_heads.len(), 10);
    assert_eq!(tale.record().past_heads[9], sha('e'));
}

#[test]
fn pushes_out_of_order_end_at_the_newest_head() {
    let moved = |head: char, before: char| FactKind::HeadMoved {
        described: described(&sha(head)),
        before: Some(sha(before)),
        by_suture: false,
    };
    let mut tale = PullRequestStory::opened();
    tale.advance_minutes(5);
    tale.apply_at(start() + minutes(2), moved('c', 'b'));
    tale.apply_at(start() + minutes(1), moved('b', 'a'));
    assert_eq!((tale.outcome(), &tale.record().head_sha), (FactOutcome::Superseded, &sha('c')));
    // Within one second, the `before` commit decides.
    let mut same = PullRequestStory::opened();
    same.advance_minutes(5);
    same.apply_at(start() + minutes(1), moved('c', 'b'));
    same.apply_at(start() + minutes(1), moved('b', 'a'));
    assert_eq!((same.outcome(), &same.record().head_sha), (FactOutcome::Superseded, &sha('c')));
    let mut in_order = PullRequestStory::opened();
    in_order.advance_minutes(5);
    in_order.apply_at(start() + minutes(1), moved('b', 'a'));
    in_order.apply_at(start() + minutes(1), moved('c', 'b'));
    assert_eq!((in_order.outcome(), &in_order.record().head_sha), (FactOutcome::Applied, &sha('c')));
    in_order.apply_at(start() + minutes(1), moved('c', 'b'));
    assert_eq!(in_order.outcome(), FactOutcome::Duplicate);
}

#[test]
fn return_to_a_past_head_requests_verification() {
    let mut tale = PullRequestStory::at(State::ChecksPassed);
    tale.push('b', false);
    tale.advance_minutes(1);
    tale.push('a', false);
    assert_eq!(tale.record().due_at, Some(tale.now));
    assert_eq!(tale.record().past_heads, [sha('b')]);
}

#[test]
fn post_merge_verified_is_logged_and_changes_nothing_else() {
    let verified = || FactKind::PostMergeVerified { watched_minutes: 30 };
    for state in State::ALL {
        let mut tale = PullRequestStory::at(if state.is_terminal() { State::Approved } else { state });
        if state == State::Merged {
            tale.apply(FactKind::Merged { by: None, by_automerge_bot: true });
        } else if state == State::Closed {
            tale.apply(FactKind::Closed { by: None, why: None });
        }
        let (before, logged) = (tale.record().clone(), tale.log.len());
        tale.advance_minutes(30);
        tale.apply(verified());
        if state == State::Merged {
            assert_eq!(tale.record(), &PullRequest { version: before.version + 1, ..before });
            let last = tale.log.last().unwrap();
            assert_eq!((tale.log.len(), last.kind, last.to), (logged + 1, EventKind::PostMergeVerified, None));
            assert_eq!(last.payload.text, "healthy for 30 min after the merge");
            assert!(last.is_daily_activity(), "the daily activity lists it");
        } else {
            assert_eq!((tale.record(), tale.log.len()), (&before, logged), "{state}");
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
            let mut tale = PullRequestStory::at(state);
            tale.advance_minutes(1);
            tale.apply(if merged {
                FactKind::Merged { by: Some("danny".into()), by_automerge_bot: false }
            } else {
                FactKind::Closed { by: Some("danny".into()), why: None }
            });
            let (to, kind) =
                if merged { (State::Merged, EventKind::PrMerged) } else { (State::Closed, EventKind::PrClosed) };
            assert_eq!((tale.state(), tale.kinds().last()), (to, Some(&kind)));
            assert!(tale.log.last().unwrap().payload.text.starts_with("out of band"), "{state}");
            assert_eq!(tale.log.last().unwrap().payload.by.as_deref(), Some("danny"));
            // Later facts are ignored.
            tale.approve();
            assert_eq!(tale.outcome(), FactOutcome::Ignored);
            tale.push('b', false);
            assert_eq!((tale.outcome(), tale.state()), (FactOutcome::Ignored, to));
        }
    }
}

#[test]
fn merge_by_automerge_bot_is_out_of_band_before_approved() {
    for (state, expected) in [(State::Approved, true), (State::Merging, true), (State::PolicyPassed, false)] {
        let mut tale = PullRequestStory::at(state);
        tale.apply(FactKind::Merged { by: None, by_automerge_bot: true });
        assert_eq!(tale.kinds().last(), Some(&EventKind::MergeSucceeded));
        assert_eq!(tale.log.last().unwrap().payload.text.is_empty(), expected, "{state}");
    }
}

#[test]
fn reopening_starts_a_new_generation() {
    let mut tale = PullRequestStory::at(State::Closed);
    tale.record_mut().retry_counts.rebuild = 2;
    tale.record_mut().retry_counts.close_and_reopen = 1;
    tale.record_mut().lifetime_remedies = 5;
    tale.advance_minutes(10);
    tale.apply(FactKind::Reopened(described(&sha('a'))));
    let record = tale.record();
    assert_eq!((record.generation, record.ttl, record.lifetime_remedies), (2, None, 0));
    assert_eq!((record.retry_counts.rebuild, record.retry_counts.close_and_reopen), (0, 1));
    assert_eq!(record.due_at, Some(tale.now), "events may have been missed");
    assert_eq!(tale.state(), State::Merging, "the reports on this head still count");
    assert_eq!(tale.last().events[0].kind, EventKind::PrReopened);
    assert_eq!((tale.last().events[0].from, tale.last().events[0].to), (Some(State::Closed), Some(State::Created)));
    assert_eq!(tale.last().heads, [HeadChange::Current(sha('a'))]);
    assert_eq!(tale.vulnerability_updates(), [VulnerabilityUpdate::Opened]);
    // The close event from before the reopening may arrive late.
    tale.apply_at(start() + minutes(8), FactKind::Closed { by: None, why: None });
    assert_eq!((tale.outcome(), tale.state()), (FactOutcome::Superseded, State::Merging));
    let mut merged = PullRequestStory::at(State::Merged);
    merged.advance_minutes(1);
    merged.apply(FactKind::Reopened(described(&sha('a'))));
    assert_eq!((merged.outcome(), merged.state()), (FactOutcome::Superseded, State::Merged));
    let mut stale = PullRequestStory::at(State::Closed);
    stale.apply_at(start(), FactKind::Reopened(described(&sha('a'))));
    assert_eq!((stale.outcome(), stale.state()), (FactOutcome::Superseded, State::Closed));
}

#[test]
fn reopening_with_another_head_starts_without_signals() {
    let mut tale = PullRequestStory::at(State::Closed);
    tale.advance_minutes(1);
    tale.apply(FactKind::Reopened(described(&sha('b'))));
    assert_eq!((tale.state(), &tale.record().head_sha), (State::ChecksRunning, &sha('b')));
    assert_eq!(tale.last().heads, [HeadChange::Superseded(sha('a')), HeadChange::Current(sha('b'))]);
    let mut open = PullRequestStory::at(State::Approved);
    open.advance_minutes(1);
    open.apply(FactKind::Reopened(described(&sha('a'))));
    assert_eq!((open.outcome(), open.state(), open.record().generation), (FactOutcome::Applied, State::Approved, 1));
    assert_eq!(open.record().due_at, Some(open.now), "a close event was missed");
}

#[test]
fn cancelled_pull_request_is_abandoned() {
    let mut tale = PullRequestStory::at(State::ChecksFailed);
    tale.apply(FactKind::Closed { by: Some("danny".into()), why: Some(CloseReason::Abandoned) });
    assert_eq!((tale.state(), tale.record().substatus), (State::Closed, Some(Substatus::Abandoned)));
    assert_eq!(tale.vulnerability_updates(), [VulnerabilityUpdate::Abandoned]);
    let mut replaced = PullRequestStory::at(State::ChecksFailed);
    replaced.apply(FactKind::Closed { by: None, why: Some(CloseReason::Replaced) });
    assert_eq!(replaced.record().substatus, Some(Substatus::Replaced));
    assert_eq!(replaced.vulnerability_updates(), [VulnerabilityUpdate::NoLongerOpen]);
    assert_eq!(replaced.log.last().unwrap().payload.text, "", "closed by Suture, so not out of band");
}

#[test]
fn pull_request_without_vulnerability_changes_no_row() {
    let mut tale = PullRequestStory::new();
    tale.apply(FactKind::Opened(PullRequestDetails { vulnerability_id: None, ..described(&sha('a')) }));
    assert_eq!(tale.vulnerability_updates(), []);
    tale.advance_minutes(1);
    tale.apply(FactKind::Edited(described(&sha('a'))));
    assert_eq!(tale.vulnerability_updates(), [VulnerabilityUpdate::Opened], "the id was added to the description");
    let mut none = PullRequestStory::new();
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
    let mut tale = PullRequestStory::at(State::PolicyPassed);
    tale.advance_minutes(10);
    tale.apply(FactKind::Edited(labelled(&["suture/hold"])));
    assert!(tale.record().is_held() && !tale.record().is_actionable());
    assert_eq!(tale.last().reason, "labels: suture/hold");
    assert_eq!(tale.record().due_at, Some(tale.record().state_since + minutes(24 * 60)), "verified daily");
    tale.apply_at(tale.now - minutes(1), FactKind::Edited(labelled(&[])));
    assert_eq!((tale.outcome(), tale.record().is_held()), (FactOutcome::Duplicate, true));
    // Within one second, the larger label set wins.
    tale.apply(FactKind::Edited(labelled(&[])));
    assert!(tale.record().is_held());
    tale.advance_minutes(100);
    tale.apply(FactKind::Edited(labelled(&[])));
    assert!(!tale.record().is_held());
    assert_eq!(tale.record().due_at, Some(tale.now + minutes(15)), "the bots get the threshold first");
    tale.advance_minutes(1);
    tale.apply(FactKind::Edited(PullRequestDetails { draft: true, ..described(&sha('a')) }));
    assert!(tale.record().draft && !tale.record().is_actionable());
    tale.advance_minutes(1);
    tale.apply(FactKind::Edited(PullRequestDetails { base_branch: "release".into(), ..described(&sha('a')) }));
    assert_eq!(tale.last().reason, "ready for review; base: main → release");
    assert_eq!(tale.record().due_at, Some(tale.now), "another base has other requirements");
}

#[test]
fn ignore_label_holds_too() {
    let mut tale = PullRequestStory::opened();
    tale.advance_minutes(1);
    tale.apply(FactKind::Edited(PullRequestDetails { labels: vec!["suture/ignore".into()], ..described(&sha('a')) }));
    assert!(tale.record().is_held());
}

#[test]
fn base_push_makes_pull_requests_due() {
    let mut tale = PullRequestStory::at(State::Approved);
    tale.apply(FactKind::BaseMoved { base: "release".into() });
    assert_eq!(tale.outcome(), FactOutcome::Ignored);
    tale.apply(FactKind::BaseMoved { base: "main".into() });
    assert_eq!((tale.outcome(), tale.record().due_at), (FactOutcome::Applied, Some(tale.now)));
    assert_eq!(tale.kinds().last(), Some(&EventKind::BaseMoved));
}

#[test]
fn repeated_and_older_reports_are_duplicates() {
    let mut tale = PullRequestStory::at(State::Approved);
    let events = tale.log.len();
    let report = policy_says(PolicyVerdict::Evaluating, start());
    tale.apply(FactKind::Policy { head: sha('a'), report });
    assert_eq!(tale.outcome(), FactOutcome::Duplicate);
    let check = run_of("build", CheckVerdict::Running, start() + minutes(1));
    tale.apply(FactKind::Check { head: sha('a'), check });
    assert_eq!(tale.outcome(), FactOutcome::Duplicate);
    tale.apply(FactKind::ChecksRequested { head: sha('a') });
    assert_eq!(tale.outcome(), FactOutcome::Applied);
    tale.apply(FactKind::ChecksRequested { head: sha('a') });
    assert_eq!(tale.outcome(), FactOutcome::Duplicate);
    assert_eq!(tale.log.len(), events + 1);
}

#[test]
fn checks_requested_enters_checks_running() {
    let mut tale = PullRequestStory::opened();
    tale.advance_minutes(1);
    tale.apply(FactKind::ChecksRequested { head: sha('a') });
    assert_eq!((tale.state(), tale.kinds().last()), (State::ChecksRunning, Some(&EventKind::ChecksStarted)));
}

#[test]
fn check_beyond_the_limit_is_an_anomaly() {
    let mut tale = PullRequestStory::opened();
    tale.policy.limits.checks_per_head = 2;
    for name in ["a", "b"] {
        tale.check(name, CheckVerdict::Running);
    }
    tale.check("c", CheckVerdict::Running);
    assert_eq!(tale.outcome(), FactOutcome::Anomaly);
    assert!(tale.last().reason.contains("more than 2 checks"), "{}", tale.last().reason);
    assert_eq!(tale.log.last().unwrap().payload.name.as_deref(), Some("c"));
    assert_eq!(tale.log.last().unwrap().payload.anomaly.as_ref(), Some(&tale.last().reason));
    assert_eq!(tale.record().due_at, Some(tale.now));
    tale.advance_minutes(1);
    tale.check("a", CheckVerdict::Passed);
    assert_eq!(tale.outcome(), FactOutcome::Applied, "the known ones still report");
}

#[test]
fn dismissed_approval_is_an_anomaly_until_verified() {
    let mut tale = PullRequestStory::at(State::Approved);
    tale.advance_minutes(1);
    let approval = ApprovalReport { by: "approver-bot[bot]".into(), granted: false, at: tale.now };
    tale.apply(FactKind::Approval { head: sha('a'), approval });
    assert_eq!((tale.outcome(), tale.state()), (FactOutcome::Anomaly, State::Approved));
    assert_eq!(tale.kinds().last(), Some(&EventKind::ApprovalDismissed));
    tale.verify(tale.github());
    assert_eq!(tale.state(), State::PolicyPassed);
}

#[test]
fn failed_merge_is_an_anomaly_until_verified() {
    let mut tale = PullRequestStory::at(State::Merging);
    tale.advance_minutes(1);
    let report =
        MergeReport { failed: true, at: tale.now, text: "base branch was modified".into(), renewal: RenewalMark::None };
    tale.apply(FactKind::Merge { head: sha('a'), report });
    assert_eq!((tale.outcome(), tale.state()), (FactOutcome::Anomaly, State::Merging));
    assert_eq!(tale.kinds().last(), Some(&EventKind::MergeFailed));
    tale.verify(tale.github());
    assert_eq!(tale.state(), State::Approved);
}

#[test]
fn snapshot_that_says_less_is_not_drift() {
    // GitHub shows neither MERGING nor a policy evaluation that only the bot reported.
    for state in [State::Merging, State::PolicyEvaluating] {
        let mut tale = PullRequestStory::at(state);
        let mut github = tale.github();
        github.signals.merge = None;
        github.signals.policy = (state == State::Merging).then(|| tale.record().signals.policy.clone().unwrap());
        let events = tale.log.len();
        tale.advance_minutes(1);
        tale.verify(github);
        assert_eq!((tale.state(), tale.log.len()), (state, events));
        assert_eq!(tale.last().reason, format!("verified: {state}"));
        assert_eq!(tale.record().verified_at, Some(tale.now));
    }
}

#[test]
fn drift_counts_from_the_time_of_the_missed_report() {
    let mut tale = PullRequestStory::at(State::ChecksRunning);
    let green_at = tale.now + minutes(1);
    let mut github = tale.github();
    github.signals.checks = vec![run_of("build", CheckVerdict::Passed, green_at)];
    tale.advance_minutes(75);
    tale.record_mut().retry_counts.rebuild = 2;
    github.read_at = tale.now;
    tale.verify(github);
    assert_eq!((tale.state(), tale.record().state_since), (State::ChecksPassed, green_at));
    assert_eq!(tale.record().retry_counts.rebuild, 0, "a missed event is a real event");
    assert!(tale.record().is_stale(&tale.policy, tale.now), "Policy Bot has been silent for longer than the threshold");
    let said = "State drift detected for PR #42: table=CHECKS_RUNNING, actual=CHECKS_PASSED; missed: CHECKS_PASSED";
    assert_eq!(tale.log.last().unwrap().payload.text, said);
    assert_eq!(tale.log.last().unwrap().payload.name.as_deref(), Some("CHECKS_PASSED"));
}

#[test]
fn drift_over_several_states_resets_their_budgets() {
    let mut tale = PullRequestStory::at(State::ChecksFailed);
    tale.record_mut().retry_counts.rebuild = 3;
    tale.record_mut().retry_counts.retrigger_policy_bot = 1;
    tale.record_mut().retry_counts.branch_update = 1;
    tale.record_mut().lifetime_remedies = 4;
    let mut github = tale.github();
    tale.advance_minutes(5);
    github.read_at = tale.now;
    github.signals.checks = vec![CheckReport { id: Some(9), ..run_of("build", CheckVerdict::Passed, tale.now) }];
    github.signals.policy = Some(policy_says(PolicyVerdict::Passed, tale.now));
    tale.verify(github);
    let counts = tale.record().retry_counts;
    assert_eq!(tale.state(), State::PolicyPassed);
    assert_eq!((counts.rebuild, counts.retrigger_policy_bot, counts.branch_update), (0, 0, 0));
    assert_eq!(tale.record().lifetime_remedies, 4, "drift does not change the lifetime count");
}

#[test]
fn missed_merge_or_close_is_found_by_verification() {
    for merged in [true, false] {
        let mut tale = PullRequestStory::at(State::Approved);
        let at = tale.now + minutes(1);
        tale.advance_minutes(30);
        let life = if merged {
            PullRequestState::Merged { at, by: Some("danny".into()), by_automerge_bot: false }
        } else {
            PullRequestState::Closed { at }
        };
        tale.verify(crate::snapshot::Snapshot { state: life, ..tale.github() });
        let (to, missed) = if merged { (State::Merged, "PR_MERGED") } else { (State::Closed, "PR_CLOSED") };
        assert_eq!((tale.state(), tale.record().state_since), (to, at));
        assert_eq!(tale.log.last().unwrap().kind, EventKind::StateDriftCorrected);
        assert_eq!(
            tale.log.last().unwrap().payload.text,
            format!("State drift detected for PR #42: table=APPROVED, actual={to}; missed: {missed}")
        );
    }
    let mut reopened = PullRequestStory::at(State::Closed);
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
    let mut tale = PullRequestStory::at(State::Approved);
    tale.advance_minutes(30);
    let mut github = tale.github();
    github.details = described(&sha('b'));
    github.signals = crate::signals::Signals::default();
    tale.verify(github.clone());
    assert_eq!((tale.state(), &tale.record().head_sha), (State::ChecksRunning, &sha('b')));
    assert_eq!(tale.log.last().unwrap().payload.name.as_deref(), Some("BRANCH_UPDATED"));
    assert_eq!(tale.last().heads.len(), 2);
    assert_eq!(tale.record().state_since, tale.now - minutes(1), "GitHub's clock and Suture's may differ");
    // The push event arrives late and has nothing new; an older one is superseded.
    tale.apply_at(
        tale.now - minutes(20),
        FactKind::HeadMoved { described: described(&sha('b')), before: None, by_suture: false },
    );
    assert_eq!(tale.outcome(), FactOutcome::Duplicate);
    tale.apply_at(
        tale.now - minutes(20),
        FactKind::HeadMoved { described: described(&sha('c')), before: None, by_suture: false },
    );
    assert_eq!(tale.outcome(), FactOutcome::Superseded);
    // If GitHub's clock runs ahead of Suture's, a snapshot of the same head is still accepted.
    let mut ahead = tale.clone();
    ahead.record_mut().head_at = ahead.now + minutes(90);
    ahead.verify(github.clone());
    assert_eq!(ahead.outcome(), FactOutcome::Applied);
    // A snapshot from before a push corrects nothing.
    tale.advance_minutes(10);
    tale.push('d', false);
    github.read_at = tale.now - minutes(1);
    tale.verify(github);
    assert_eq!((tale.outcome(), &tale.record().head_sha), (FactOutcome::Superseded, &sha('d')));
}

#[test]
fn required_checks_come_from_github_unless_configured() {
    let mut tale = PullRequestStory::at(State::ChecksPassed);
    let mut github = tale.github();
    github.required_checks = Some(vec!["build".into(), "scan".into(), "policy-bot: main".into()]);
    tale.advance_minutes(1);
    github.read_at = tale.now;
    tale.verify(github);
    assert_eq!(tale.record().required_checks, ["build", "scan"], "Policy Bot's own context is never a check");
    assert_eq!(tale.state(), State::ChecksRunning, "a required check has not reported");
    tale.advance_minutes(1);
    let check = status_of("scan", CheckVerdict::Passed, tale.now);
    tale.apply(FactKind::Check { head: sha('a'), check });
    assert_eq!(tale.state(), State::ChecksPassed);
    tale.policy.checks.required = vec!["deploy".into()];
    assert_eq!(tale.record().implied(&tale.policy).state, State::ChecksRunning);
}

#[test]
fn skipped_visit_is_repeated_with_growing_backoff() {
    let mut tale = PullRequestStory::at(State::ChecksRunning);
    tale.advance_minutes(100);
    for (n, secs) in [(1, 30), (2, 60), (3, 120)] {
        tale.apply(FactKind::Skipped { why: "GitHub answered 502".into(), until: None });
        assert_eq!(tale.record().skips, n);
        assert_eq!(tale.record().due_at, Some(tale.now + jiff::SignedDuration::from_secs(secs)));
        assert!(tale.last().events.is_empty());
    }
    tale.verify(tale.github());
    assert_eq!((tale.record().skips, tale.record().not_before), (0, None));
    let mut full = PullRequestStory::at(State::ChecksRunning);
    full.policy.limits.checks_per_head = 1;
    let mut github = full.github();
    github.signals.checks =
        vec![run_of("a", CheckVerdict::Passed, full.now), run_of("b", CheckVerdict::Passed, full.now)];
    full.verify(github);
    assert!(full.last().reason.contains("limits.checks_per_head"), "{}", full.last().reason);
    assert_eq!((full.outcome(), full.record().skips), (FactOutcome::Applied, 0));
    // A skip with a known time is not counted as a failure.
    let until = full.now + minutes(7);
    full.apply(FactKind::Skipped { why: "the breaker is open".into(), until: Some(until) });
    assert_eq!((full.record().not_before, full.record().skips), (Some(until), 0));
    full.apply(FactKind::Skipped { why: "the breaker is open".into(), until: Some(full.now - minutes(7)) });
    assert_eq!(full.record().not_before, Some(full.now));
}

#[test]
fn required_checks_are_stored_beyond_the_limit() {
    let mut tale = PullRequestStory::opened();
    tale.policy.limits.checks_per_head = 1;
    tale.record_mut().required_checks = vec!["build".into(), "scan".into()];
    tale.check("advice", CheckVerdict::Running);
    tale.check("build", CheckVerdict::Running);
    assert_eq!(tale.outcome(), FactOutcome::Applied);
    let mut github = tale.github();
    github.signals.checks =
        vec![run_of("other", CheckVerdict::Passed, tale.now), run_of("scan", CheckVerdict::Passed, tale.now)];
    tale.verify(github);
    let names: Vec<&str> = tale.record().signals.checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["advice", "build", "scan"]);
}

#[test]
fn unannounced_head_has_a_smaller_check_limit() {
    let mut tale = PullRequestStory::opened();
    for n in 0..51 {
        let check = run_of(&format!("check-{n:02}"), CheckVerdict::Running, tale.now);
        tale.apply(FactKind::Check { head: sha('b'), check });
    }
    assert_eq!((tale.outcome(), tale.record().unannounced_heads[0].signals.checks.len()), (FactOutcome::Anomaly, 50));
}

#[test]
fn report_texts_are_truncated() {
    let mut tale = PullRequestStory::at(State::ChecksRunning);
    tale.fail("build", None, &"ä".repeat(500));
    let failure = tale.record().signals.checks[0].failure.clone().unwrap();
    assert_eq!(failure.text.chars().count(), 200);
    let report = PolicyReport { text: "x".repeat(500), ..policy_says(PolicyVerdict::Passed, tale.now) };
    tale.apply(FactKind::Policy { head: sha('a'), report });
    let report = MergeReport { failed: true, at: tale.now, text: "y".repeat(500), renewal: RenewalMark::None };
    tale.apply(FactKind::Merge { head: sha('a'), report });
    let signals = &tale.record().signals;
    assert_eq!((signals.policy.as_ref().unwrap().text.len(), signals.merge.as_ref().unwrap().text.len()), (202, 202));
}

#[test]
fn report_far_in_the_future_is_set_to_now() {
    let mut tale = PullRequestStory::at(State::PolicyEvaluating);
    let ahead = tale.now + minutes(60);
    let report = policy_says(PolicyVerdict::Failed(Substatus::SodFailure), ahead);
    tale.apply(FactKind::Policy { head: sha('a'), report });
    assert_eq!(tale.record().signals.policy.as_ref().unwrap().at, tale.now);
    tale.advance_minutes(1);
    tale.policy_bot(PolicyVerdict::Passed);
    assert_eq!(tale.record().signals.policy.as_ref().unwrap().verdict, PolicyVerdict::Passed);
    // A difference of a few minutes is tolerated and kept, because it orders the reports of other senders.
    let near = policy_says(PolicyVerdict::Evaluating, tale.now + minutes(5));
    tale.apply(FactKind::Policy { head: sha('a'), report: near });
    assert_eq!(tale.record().signals.policy.as_ref().unwrap().at, tale.now + minutes(5));
}

#[test]
fn snapshot_overrules_webhooks_of_the_same_second() {
    let mut tale = PullRequestStory::at(State::PolicyEvaluating);
    tale.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
    tale.policy_bot(PolicyVerdict::Passed);
    assert_eq!(tale.state(), State::PolicyFailed, "within one second the failure wins");
    let mut github = tale.github();
    github.signals.policy = Some(policy_says(PolicyVerdict::Passed, tale.now));
    tale.verify(github);
    assert_eq!(tale.state(), State::PolicyPassed);
    let mut checks = PullRequestStory::at(State::ChecksRunning);
    checks.fail("build", None, "no");
    let mut github = checks.github();
    github.signals.checks = vec![run_of("build", CheckVerdict::Passed, checks.now)];
    checks.verify(github);
    assert_eq!(checks.state(), State::ChecksPassed);
    // A failure that matches no transient rule does not replace one that does.
    let mut known = PullRequestStory::at(State::ChecksFailed);
    let mut github = known.github();
    github.signals.checks[0].failure = super::fixture::failed_because(None, "zzz: This commit cannot be built");
    known.verify(github);
    assert_eq!((known.state(), known.record().substatus), (State::ChecksFailed, Some(Substatus::Transient)));
}

#[test]
fn missed_push_is_drift_even_in_the_same_state() {
    let mut tale = PullRequestStory::at(State::ChecksRunning);
    tale.advance_minutes(60);
    assert!(tale.record().is_stale(&tale.policy, tale.now));
    let mut github = tale.github();
    github.details = described(&sha('b'));
    github.signals = crate::signals::Signals::default();
    tale.verify(github);
    assert_eq!((tale.state(), tale.kinds().last()), (State::ChecksRunning, Some(&EventKind::StateDriftCorrected)));
    assert!(!tale.record().is_stale(&tale.policy, tale.now), "the new head gets the threshold again");
}

#[test]
fn unannounced_reports_survive_a_verification() {
    let mut tale = PullRequestStory::at(State::ChecksRunning);
    tale.apply(FactKind::Check { head: sha('b'), check: run_of("build", CheckVerdict::Passed, tale.now) });
    tale.verify(tale.github());
    tale.advance_minutes(1);
    tale.push('b', false);
    assert_eq!(tale.state(), State::ChecksPassed);
}

#[test]
fn any_event_of_an_open_pull_request_reopens_a_closed_record() {
    for what in [
        FactKind::Opened(described(&sha('a'))),
        FactKind::Edited(described(&sha('a'))),
        FactKind::HeadMoved { described: described(&sha('b')), before: None, by_suture: false },
    ] {
        let mut tale = PullRequestStory::at(State::Closed);
        tale.apply_at(tale.now, what.clone());
        assert_eq!((tale.outcome(), tale.state()), (FactOutcome::Ignored, State::Closed), "not newer than the closing");
        tale.advance_minutes(1);
        tale.apply(what.clone());
        assert_eq!((tale.outcome(), tale.record().generation), (FactOutcome::Applied, 2));
        assert_eq!(tale.record().ttl, None);
        let mut merged = PullRequestStory::at(State::Merged);
        merged.advance_minutes(1);
        merged.apply(what);
        assert_eq!((merged.outcome(), merged.state()), (FactOutcome::Ignored, State::Merged));
    }
}

#[test]
fn closed_and_reopened_within_one_second_is_open_in_any_order() {
    let closed = || FactKind::Closed { by: None, why: None };
    let reopened = || FactKind::Reopened(described(&sha('a')));
    let mut in_order = PullRequestStory::at(State::ChecksRunning);
    in_order.apply(closed());
    in_order.apply(reopened());
    let mut swapped = PullRequestStory::at(State::ChecksRunning);
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
        let mut tale = PullRequestStory::new();
        tale.policy.checks.required = configured.iter().map(|&name| name.to_owned()).collect();
        tale.apply(FactKind::Opened(PullRequestDetails { required_checks, ..described(&sha('a')) }));
        tale
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
    let mut tale = PullRequestStory::opened();
    tale.advance_minutes(1);
    tale.apply(FactKind::Edited(PullRequestDetails {
        vulnerability_id: Some("CVE-2026-9".into()),
        ..described(&sha('a'))
    }));
    let changes: Vec<_> =
        tale.last().vulnerabilities.iter().map(|c| (c.base_branch.as_str(), c.id.as_str(), c.update)).collect();
    let [closed, opened] = [VulnerabilityUpdate::NoLongerOpen, VulnerabilityUpdate::Opened];
    assert_eq!(changes, [("main", "CVE-2026-1234", closed), ("main", "CVE-2026-9", opened)]);
    tale.advance_minutes(1);
    let moved = PullRequestDetails { vulnerability_id: None, base_branch: "release".into(), ..described(&sha('a')) };
    tale.apply(FactKind::Edited(moved));
    let changes: Vec<_> =
        tale.last().vulnerabilities.iter().map(|c| (c.base_branch.as_str(), c.id.as_str(), c.update)).collect();
    assert_eq!(changes, [("main", "CVE-2026-9", closed), ("release", "CVE-2026-9", opened)]);
}

#[test]
fn hold_labels_ignore_case_and_resume_reports_them() {
    let mut tale = PullRequestStory::opened();
    tale.advance_minutes(1);
    tale.apply(FactKind::Edited(PullRequestDetails { labels: vec!["Suture/Hold".into()], ..described(&sha('a')) }));
    assert!(tale.record().is_held());
    tale.command(Command::Resume);
    assert_eq!(tale.last().reason, "it is still held by the label `Suture/Hold`: remove that label, Suture never does");
    assert!(tale.record().is_held());
}

#[test]
fn new_substatus_in_the_same_state_resets_budgets() {
    let mut tale = PullRequestStory::at(State::PolicyFailed);
    tale.record_mut().retry_counts.retrigger_sod_check = 1;
    tale.advance_minutes(1);
    tale.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
    assert_eq!(tale.record().retry_counts.retrigger_sod_check, 1, "the same failure again is not progress");
    tale.advance_minutes(1);
    tale.policy_bot(PolicyVerdict::Failed(Substatus::BuildFailure));
    assert_eq!(tale.record().retry_counts.retrigger_sod_check, 0);
}

#[test]
fn hold_stops_remedies_until_resume() {
    let mut tale = PullRequestStory::at(State::PolicyPassed);
    tale.command(Command::Hold);
    assert!(tale.record().hold);
    assert_eq!(tale.record().blocked.as_ref().unwrap().reason, "held by danny");
    assert_eq!(crate::text::blocked(tale.record()).as_deref(), Some("held by danny"));
    tale.advance_minutes(60);
    assert!(!tale.record().is_stale(&tale.policy, tale.now), "a pull request on hold is not stale");
    assert_eq!(tale.sweep(tale.github()), None);
    assert_eq!(tale.record().due_at, Some(tale.now + minutes(24 * 60)));
    tale.command(Command::Resume);
    assert_eq!((tale.record().hold, tale.record().blocked.clone()), (false, None));
    assert_eq!(tale.record().due_at, Some(tale.now));
    assert_eq!(tale.kinds().iter().filter(|&&kind| kind == EventKind::CommandReceived).count(), 2);
    let event = tale.log.last().unwrap();
    assert_eq!((event.payload.by.as_deref(), event.payload.name.as_deref()), (Some("danny"), Some("/resume")));
    assert_eq!(event.payload.run, None);
}

#[test]
fn late_hold_after_a_newer_resume_is_refused() {
    let mut tale = PullRequestStory::at(State::PolicyPassed);
    let held_at = tale.now;
    tale.advance_minutes(20);
    tale.command(Command::Resume);
    tale.advance_minutes(6);
    let request = crate::event::CommandRequest {
        command: Command::Hold,
        source: crate::command::CommandSource::PrComment,
        by: "danny".to_owned(),
        permission: Ok(()),
        run: crate::id::RunId::new("late"),
        args: String::new(),
        comment: None,
    };
    tale.apply_at(held_at, FactKind::CommandRequested(Box::new(request)));
    assert_eq!((tale.outcome(), tale.record().hold), (FactOutcome::Refused, false));
    assert!(tale.last().reason.starts_with("`/hold` is older than the last"), "{}", tale.last().reason);
    tale.command(Command::Hold);
    assert!(tale.record().hold, "repeated");
}

#[test]
fn policy_failure_updates_its_substatus() {
    let mut tale = PullRequestStory::at(State::PolicyFailed);
    let progressed_at = tale.record().state_since;
    tale.advance_minutes(1);
    let report = PolicyReport {
        text: "build policy not met".into(),
        ..policy_says(PolicyVerdict::Failed(Substatus::BuildFailure), tale.now)
    };
    tale.apply(FactKind::Policy { head: sha('a'), report });
    assert_eq!((tale.state(), tale.record().substatus), (State::PolicyFailed, Some(Substatus::BuildFailure)));
    assert_eq!(tale.record().state_since, progressed_at);
    assert_eq!(tale.log.last().unwrap().payload.text, "build policy not met");
    assert_eq!(tale.record().last_event_at, tale.now);
    assert_eq!(tale.record().last_requested.get(&Strategy::Rebuild), None);
}

#[test]
fn check_result_is_newer_than_its_run_whatever_its_start_time() {
    for started_at in [Some(start() - minutes(1)), None] {
        let mut tale = PullRequestStory::at(State::ChecksRunning);
        let done = CheckReport { started_at, ..run_of("build", CheckVerdict::Passed, tale.now) };
        tale.apply(FactKind::Check { head: sha('a'), check: done });
        assert_eq!(tale.state(), State::ChecksPassed);
        // A run that was started again after its result is running again.
        let again =
            CheckReport { started_at: Some(tale.now + minutes(1)), ..run_of("build", CheckVerdict::Running, tale.now) };
        tale.advance_minutes(2);
        tale.apply(FactKind::Check { head: sha('a'), check: again });
        assert_eq!(tale.record().signals.checks[0].verdict, CheckVerdict::Running);
    }
}

#[test]
fn opened_event_logs_head_and_vulnerability() {
    let mut tale = PullRequestStory::opened();
    let payload = tale.log[0].payload.clone();
    assert_eq!((payload.head, payload.name.as_deref()), (Some(sha('a')), Some("CVE-2026-1234")));
    tale.push('b', false);
    assert_eq!(tale.log.last().unwrap().payload.head, Some(sha('b')));
    tale.apply(FactKind::Closed { by: None, why: None });
    tale.advance_minutes(1);
    tale.apply(FactKind::Reopened(described(&sha('b'))));
    assert_eq!(tale.last().events[0].payload.head, Some(sha('b')));
}

#[test]
fn opened_and_closed_within_one_second_is_closed() {
    let mut tale = PullRequestStory::opened();
    tale.apply(FactKind::Closed { by: None, why: None });
    assert_eq!(tale.state(), State::Closed);
}

#[test]
fn snapshot_updates_labels() {
    let mut tale = PullRequestStory::opened();
    tale.advance_minutes(1);
    let mut github = tale.github();
    github.details.labels = vec!["suture/hold".into()];
    tale.verify(github);
    assert!(tale.record().is_held());
    assert!(tale.last().reason.starts_with("verified, with changes"), "{}", tale.last().reason);
}

#[test]
fn start_time_far_in_the_future_is_set_to_now() {
    let mut tale = PullRequestStory::opened();
    let check =
        CheckReport { started_at: Some(tale.now + minutes(60)), ..run_of("build", CheckVerdict::Running, tale.now) };
    tale.apply(FactKind::Check { head: sha('a'), check });
    assert_eq!(tale.record().signals.checks[0].started_at, Some(tale.now));
}

#[test]
fn every_report_far_in_the_future_is_set_to_now() {
    let mut tale = PullRequestStory::at(State::Approved);
    let ahead = tale.now + minutes(60);
    let approval = ApprovalReport { by: "second[bot]".into(), granted: true, at: ahead };
    tale.apply(FactKind::Approval { head: sha('a'), approval });
    assert_eq!(tale.record().signals.approved_at(), Some(tale.now));
    let report = MergeReport { failed: false, at: ahead, text: String::new(), renewal: RenewalMark::None };
    tale.apply(FactKind::Merge { head: sha('a'), report });
    assert_eq!(tale.record().signals.merge.as_ref().unwrap().at, tale.now);
}

#[test]
fn drift_event_has_actor_and_head() {
    let mut tale = PullRequestStory::at(State::Approved);
    tale.advance_minutes(1);
    let mut moved = tale.clone();
    let mut github = moved.github();
    github.details = described(&sha('b'));
    moved.verify(github);
    assert_eq!(moved.log.last().unwrap().payload.head, Some(sha('b')));
    let life = PullRequestState::Merged { at: tale.now, by: Some("danny".into()), by_automerge_bot: false };
    tale.verify(crate::snapshot::Snapshot { state: life, ..tale.github() });
    assert_eq!(tale.log.last().unwrap().payload.by.as_deref(), Some("danny"));
}

#[test]
fn snapshot_from_the_second_of_a_push_counts() {
    let mut tale = PullRequestStory::at(State::Approved);
    tale.record_mut().head_at = tale.now;
    let mut github = tale.github();
    github.details = described(&sha('b'));
    tale.verify(github);
    assert_eq!((tale.outcome(), &tale.record().head_sha), (FactOutcome::Applied, &sha('b')));
}
