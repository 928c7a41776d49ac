//! The backlog: approved issues become pull requests.

use std::collections::BTreeSet;

use domain::state::State;
use fakes::{AuditedAction, FakePrId, FakeSettings, FakeTiming, Fault};
use jiff::SignedDuration;
use reconciler::SweepTrigger;
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed};

use super::{SUTURE, actions, requests, sweep_with_fault};

const CONFIG: &str = "[repos.'acme/payments']\nbacklog.enabled = true";

fn issue(testbed: &Testbed, number: u64, labels: &[&str]) -> FakePrId {
    testbed
        .with(|fakes| fakes.person_writes_issue("", "maria", &format!("Repair CVE-2026-{}", 50_000 + number), labels))
}

fn labels(testbed: &Testbed, issue: &FakePrId) -> Vec<String> {
    testbed.with(|fakes| fakes.issue(issue).unwrap().labels.clone())
}

fn is_open(testbed: &Testbed, issue: &FakePrId) -> bool {
    testbed.with(|fakes| fakes.issue(issue).unwrap().open)
}

fn pulls(testbed: &Testbed) -> Vec<FakePrId> {
    testbed.with(|fakes| fakes.pulls().map(|(pr, _)| pr).collect())
}

fn suture_comments(testbed: &Testbed, issue: &FakePrId) -> Vec<String> {
    testbed.with(|fakes| {
        let comments = fakes.comments(issue).filter(|comment| comment.user == SUTURE);
        comments.map(|comment| comment.body.clone()).collect()
    })
}

/// CodeGenie needs this many minutes to open a pull request.
fn genie_takes(minutes: u64) -> FakeSettings {
    let genie_ms = (minutes * 60_000, minutes * 60_000);
    FakeSettings { timing: FakeTiming { genie_ms, ..FakeTiming::default() }, ..FakeSettings::default() }
}

/// Jenkins starts builds late, so that a test can set a fault on a pull request that CodeGenie opened.
fn late_builds() -> FakeSettings {
    let timing = FakeTiming { notice_ms: (600_000, 600_000), ..FakeTiming::default() };
    FakeSettings { timing, ..FakeSettings::default() }
}

#[tokio::test]
async fn approved_issue_becomes_pull_request_and_closes_on_merge() {
    let testbed = Testbed::new(genie_takes(20), CONFIG);
    let approved = issue(&testbed, 1, &["pipeline/discovered", "pipeline/approved", "bug"]);
    testbed.pass(2).await;
    assert_eq!(requests(&testbed), [format!("backlog:{approved}:1")]);
    assert!(labels(&testbed, &approved).contains(&"pipeline/in-progress".to_owned()));
    assert!(!labels(&testbed, &approved).contains(&"pipeline/approved".to_owned()));
    testbed.pass(25).await;
    assert_eq!(pulls(&testbed).len(), 1);
    assert_eq!(labels(&testbed, &approved), ["bug", "pipeline/pr-open"]);
    let pr = pulls(&testbed).remove(0);
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Merged)).await);
    testbed.pass(6).await;
    assert!(!is_open(&testbed, &approved));
    assert_eq!((labels(&testbed, &approved), requests(&testbed).len()), (vec!["bug".to_owned()], 1));
    assert!(suture_comments(&testbed, &approved)[0].starts_with(&format!("#{} is merged.", pr.number)));
    let reason = testbed.with(|fakes| fakes.issue(&approved).unwrap().state_reason.clone());
    assert_eq!(reason.as_deref(), Some("completed"));
}

#[tokio::test]
async fn wip_limit_defers_issues_by_priority() {
    let testbed = Testbed::new(genie_takes(60), &format!("coordination.wip_limit = 3\n{CONFIG}"));
    let issues: Vec<FakePrId> = (0..6).map(|n| issue(&testbed, n, &["pipeline/approved"])).collect();
    testbed.with(|fakes| fakes.person_labels_issue(&issues[5], "maria", "suture/priority-p0", true));
    testbed.with(|fakes| fakes.person_labels_issue(&issues[4], "maria", "suture/priority-p1", true));
    testbed.pass(30).await;
    let requested: Vec<String> = [5, 4, 0].map(|n: usize| format!("backlog:{}:1", issues[n])).into();
    assert_eq!(requests(&testbed), requested);
    assert_eq!(
        testbed.summaries().iter().filter_map(|it| it.coordination.as_ref()).map(|it| it.waiting).max(),
        Some(3)
    );
    // The first pull requests are open, so the other issues can start.
    testbed.pass(60).await;
    assert_eq!(requests(&testbed).into_iter().collect::<BTreeSet<_>>().len(), 6);
    assert_eq!(pulls(&testbed).len(), 3);
}

#[tokio::test]
async fn issues_claimed_by_people_are_left_alone() {
    let testbed = Testbed::new(FakeSettings::default(), &format!("{CONFIG}\nbacklog.discovered_hours = 1"));
    let held = issue(&testbed, 1, &["pipeline/approved", "suture/hold"]);
    let ignored = issue(&testbed, 2, &["pipeline/approved", "suture/ignore"]);
    let assigned = issue(&testbed, 3, &["pipeline/approved"]);
    testbed.with(|fakes| fakes.person_takes_issue(&assigned, "danny"));
    let nameless =
        testbed.with(|fakes| fakes.person_writes_issue("", "maria", "Something is slow", &["pipeline/approved"]));
    let manual = issue(&testbed, 4, &["pipeline/discovered", "source/human"]);
    testbed.pass(90).await;
    assert_eq!((requests(&testbed).len(), pulls(&testbed).len()), (0, 0));
    for issue in [&held, &ignored, &assigned, &nameless, &manual] {
        assert!(is_open(&testbed, issue), "{issue}");
    }
    assert_eq!(testbed.with(|fakes| fakes.audit_by(SUTURE).count()), 0);
    testbed.with(|fakes| fakes.person_labels_issue(&held, "maria", "suture/hold", false));
    testbed.pass(6).await;
    assert_eq!(requests(&testbed), [format!("backlog:{held}:1")]);
}

#[tokio::test]
async fn change_by_a_person_before_execution_cancels_the_request() {
    let testbed = Testbed::new(FakeSettings::default(), CONFIG);
    let (closed, unapproved, assigned) = (
        issue(&testbed, 1, &["pipeline/approved"]),
        issue(&testbed, 2, &["pipeline/approved"]),
        issue(&testbed, 3, &["pipeline/approved"]),
    );
    testbed.bridging.set(false);
    testbed.pass(2).await;
    testbed.with(|fakes| {
        fakes.person_closes_issue(&closed, "maria", true);
        fakes.person_labels_issue(&unapproved, "maria", "pipeline/approved", false);
        fakes.person_takes_issue(&assigned, "danny");
    });
    testbed.bridging.set(true);
    testbed.pass(30).await;
    assert_eq!((requests(&testbed).len(), pulls(&testbed).len()), (0, 0));
    assert_eq!(testbed.with(|fakes| fakes.audit_by(SUTURE).count()), 0);
}

#[tokio::test]
async fn request_is_repeated_with_new_id_after_two_hours() {
    let testbed = Testbed::new(genie_takes(150), CONFIG);
    let approved = issue(&testbed, 1, &["pipeline/approved"]);
    testbed.pass(119).await;
    assert_eq!(requests(&testbed).len(), 1);
    testbed.pass(16).await;
    assert_eq!(requests(&testbed), [1, 2].map(|n| format!("backlog:{approved}:{n}")));
    assert!(suture_comments(&testbed, &approved)[0].starts_with("CodeGenie did not open a pull request in time."));
    testbed.pass(300).await;
    assert_eq!(pulls(&testbed).len(), 1, "the second request finds the first one's pull request");
    assert_eq!(requests(&testbed).len(), 2);
}

#[tokio::test]
async fn requests_stop_after_three_attempts() {
    let testbed = Testbed::new(genie_takes(100_000), CONFIG);
    let approved = issue(&testbed, 1, &["pipeline/approved"]);
    testbed.pass(12 * 60).await;
    assert_eq!(requests(&testbed).len(), 3);
    assert!(labels(&testbed, &approved).contains(&"pipeline/urgent".to_owned()));
    let last = suture_comments(&testbed, &approved).pop().unwrap();
    assert!(last.starts_with("CodeGenie was asked 3 times, but no pull request was merged."), "{last}");
    let comments = suture_comments(&testbed, &approved).len();
    testbed.pass(4 * 60).await;
    assert_eq!((requests(&testbed).len(), suture_comments(&testbed, &approved).len()), (3, comments));
}

#[tokio::test]
async fn unapproved_issue_is_rejected_after_a_day_and_can_be_reopened() {
    let testbed = Testbed::new(FakeSettings::default(), CONFIG);
    let found = issue(&testbed, 1, &["pipeline/discovered"]);
    testbed.pass(24 * 60 - 10).await;
    assert!(is_open(&testbed, &found));
    testbed.pass(20).await;
    assert!(!is_open(&testbed, &found));
    assert_eq!(labels(&testbed, &found), ["pipeline/rejected"]);
    assert!(suture_comments(&testbed, &found)[0].starts_with("Closed because it was not approved within 24 h."));
    let reason = testbed.with(|fakes| fakes.issue(&found).unwrap().state_reason.clone());
    assert_eq!(reason.as_deref(), Some("not_planned"));
    testbed.with(|fakes| {
        fakes.person_closes_issue(&found, "maria", false);
        fakes.person_labels_issue(&found, "maria", "pipeline/approved", true);
    });
    testbed.pass(6).await;
    assert_eq!(requests(&testbed), [format!("backlog:{found}:1")]);
}

#[tokio::test]
async fn issue_becomes_urgent_when_pull_request_is_unapproved_for_four_hours() {
    let testbed = Testbed::new(late_builds(), CONFIG);
    let approved = issue(&testbed, 1, &["pipeline/approved"]);
    testbed.pass(4).await;
    let pr = pulls(&testbed).remove(0);
    testbed.with(|fakes| fakes.force(Fault::RealTestFailure, &pr));
    testbed.pass(3 * 60).await;
    assert!(!labels(&testbed, &approved).contains(&"pipeline/urgent".to_owned()));
    testbed.pass(70).await;
    assert_eq!(labels(&testbed, &approved), ["pipeline/pr-open", "pipeline/urgent"]);
    testbed.pass(120).await;
    let urgent =
        suture_comments(&testbed, &approved).iter().filter(|body| body.contains("A person should look")).count();
    assert_eq!(urgent, 1);
}

#[tokio::test]
async fn unfixed_failed_review_closes_pull_request_and_requests_another() {
    let testbed = Testbed::new(late_builds(), CONFIG);
    let approved = issue(&testbed, 1, &["pipeline/approved"]);
    testbed.pass(4).await;
    let pr = pulls(&testbed).remove(0);
    // A held pull request is not closed.
    testbed.with(|fakes| {
        fakes.force(Fault::RealTestFailure, &pr);
        fakes.person_labels(&pr, "maria", "suture/hold");
        fakes.person_labels_issue(&approved, "maria", "pipeline/review-failed", true);
    });
    testbed.pass(5 * 60).await;
    assert!(testbed.with(|fakes| fakes.pull(&pr).unwrap().is_open()));
    testbed.with(|fakes| fakes.person_unlabels(&pr, "maria", "suture/hold"));
    testbed.pass(12).await;
    assert!(testbed.with(|fakes| !fakes.pull(&pr).unwrap().is_open()), "{:?}", labels(&testbed, &approved));
    assert!(
        suture_comments(&testbed, &pr).iter().any(|body| body.contains("was not fixed within 4 h")),
        "{:?}",
        suture_comments(&testbed, &pr)
    );
    assert_eq!(requests(&testbed).into_iter().collect::<BTreeSet<_>>().len(), 2);
    testbed.pass(15).await;
    assert_eq!(pulls(&testbed).len(), 2);
}

#[tokio::test]
async fn crash_at_any_call_requests_one_pull_request() {
    let mut points = 0;
    for fault in CallFault::CRASHES {
        for at in 0.. {
            let testbed = Testbed::new(FakeSettings::default(), CONFIG);
            testbed.sweeping.set(false);
            let approved = issue(&testbed, 1, &["pipeline/approved"]);
            let found = issue(&testbed, 2, &["pipeline/discovered"]);
            testbed.pass(1).await;
            let reached = sweep_with_fault(&testbed, at, fault).await;
            testbed.sweeping.set(true);
            testbed.pass(40).await;
            let context = format!("crash {fault:?} call {at}");
            let requested: BTreeSet<String> = requests(&testbed).into_iter().collect();
            assert_eq!(requested, BTreeSet::from([format!("backlog:{approved}:1")]), "{context}");
            assert_eq!(pulls(&testbed).len(), 1, "{context}");
            assert!(
                !is_open(&testbed, &approved) && is_open(&testbed, &found),
                "{context}: {:?}",
                labels(&testbed, &approved)
            );
            if !reached {
                break;
            }
            points += 1;
        }
    }
    println!("{points} crash points");
    assert!(points > 60, "{points}");
}

#[tokio::test]
async fn crash_at_any_call_posts_rejection_once() {
    let mut points = 0;
    for fault in CallFault::CRASHES {
        for at in (0..).step_by(2) {
            let testbed = Testbed::new(FakeSettings::default(), &format!("{CONFIG}\nbacklog.discovered_hours = 1"));
            let found = issue(&testbed, 1, &["pipeline/discovered"]);
            testbed.pass(58).await;
            testbed.sweeping.set(false);
            testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(5)));
            let reached = sweep_with_fault(&testbed, at, fault).await;
            testbed.sweeping.set(true);
            testbed.pass(15).await;
            let result = (is_open(&testbed, &found), actions(&testbed, AuditedAction::CommentCreated));
            assert_eq!(result, (false, 1), "crash {fault:?} call {at}");
            if !reached {
                break;
            }
            points += 1;
        }
    }
    println!("{points} crash points");
    assert!(points > 30, "{points}");
}

#[tokio::test]
async fn overlapping_sweeps_respect_wip_limit() {
    for ahead in (0..40).step_by(4) {
        let testbed = Testbed::new(genie_takes(60), &format!("coordination.wip_limit = 2\n{CONFIG}"));
        testbed.sweeping.set(false);
        for n in 0..6 {
            issue(&testbed, n, &["pipeline/approved"]);
        }
        testbed.pass(1).await;
        let now = testbed.now();
        testbed.faults.count_anew();
        let (one, other) = (testbed.another_sweep(), testbed.another_sweep());
        let triggers = ["first", "second"].map(|name| SweepTrigger::scheduled(name, now, name));
        let second = async {
            for _ in 0..10_000 {
                if testbed.faults.calls() >= ahead {
                    break;
                }
                tokio::task::yield_now().await;
            }
            use platform::store::{Condition, Key, RowWrite, Store};
            let lease = RowWrite::Delete { key: Key::state("LEASE#sweep"), only_if: Condition::Always };
            testbed.store.store.write(vec![lease], now).await.unwrap();
            other.sweep(&triggers[1], now + SWEEP_TIMEOUT).await
        };
        let (first, second) = tokio::join!(one.sweep(&triggers[0], now + SWEEP_TIMEOUT), second);
        first.unwrap();
        second.unwrap();
        testbed.settle().await;
        testbed.sweeping.set(true);
        testbed.pass(20).await;
        let requested: BTreeSet<String> = requests(&testbed).into_iter().collect();
        assert_eq!(requested.len(), 2, "{ahead} calls ahead: {requested:?}");
    }
}
