//! Issues that become pull requests.

use std::collections::BTreeSet;

use domain::state::State;
use fakes::{AuditedAction, FakePrId, FakeSettings, FakeTiming, Fault};
use jiff::SignedDuration;
use reconciler::SweepTrigger;
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed};

use super::{SUTURE, actions, requests, stopped};

const CONFIG: &str = "[repos.'acme/payments']\nbacklog.enabled = true";

fn issue(stage: &Testbed, number: u64, labels: &[&str]) -> FakePrId {
    stage.with(|world| world.person_writes_issue("", "maria", &format!("Repair CVE-2026-{}", 50_000 + number), labels))
}

fn labels(stage: &Testbed, issue: &FakePrId) -> Vec<String> {
    stage.with(|world| world.issue(issue).unwrap().labels.clone())
}

fn is_open(stage: &Testbed, issue: &FakePrId) -> bool {
    stage.with(|world| world.issue(issue).unwrap().open)
}

fn pulls(stage: &Testbed) -> Vec<FakePrId> {
    stage.with(|world| world.pulls().map(|(pr, _)| pr).collect())
}

fn said(stage: &Testbed, issue: &FakePrId) -> Vec<String> {
    stage.with(|world| {
        let comments = world.comments(issue).filter(|comment| comment.user == SUTURE);
        comments.map(|comment| comment.body.clone()).collect()
    })
}

/// CodeGenie takes this long.
fn slow(minutes: u64) -> FakeSettings {
    let genie_ms = (minutes * 60_000, minutes * 60_000);
    FakeSettings { timing: FakeTiming { genie_ms, ..FakeTiming::default() }, ..FakeSettings::default() }
}

/// Jenkins takes its time, so that a test can say what will happen to a pull request that CodeGenie has opened.
fn late_builds() -> FakeSettings {
    let timing = FakeTiming { notice_ms: (600_000, 600_000), ..FakeTiming::default() };
    FakeSettings { timing, ..FakeSettings::default() }
}

#[tokio::test]
async fn an_approved_issue_becomes_a_pull_request_and_is_closed_when_that_is_merged() {
    let stage = Testbed::new(slow(20), CONFIG);
    let approved = issue(&stage, 1, &["pipeline/discovered", "pipeline/approved", "bug"]);
    stage.pass(2).await;
    assert_eq!(requests(&stage), [format!("backlog:{approved}:1")]);
    assert!(labels(&stage, &approved).contains(&"pipeline/in-progress".to_owned()));
    assert!(!labels(&stage, &approved).contains(&"pipeline/approved".to_owned()));
    stage.pass(25).await;
    assert_eq!(pulls(&stage).len(), 1);
    assert_eq!(labels(&stage, &approved), ["bug", "pipeline/pr-open"]);
    let pr = pulls(&stage).remove(0);
    assert!(stage.until(60, async |stage| stage.state(&pr).await == Some(State::Merged)).await);
    stage.pass(6).await;
    assert!(!is_open(&stage, &approved));
    assert_eq!((labels(&stage, &approved), requests(&stage).len()), (vec!["bug".to_owned()], 1));
    assert!(said(&stage, &approved)[0].starts_with(&format!("#{} is merged.", pr.number)));
    let reason = stage.with(|world| world.issue(&approved).unwrap().state_reason.clone());
    assert_eq!(reason.as_deref(), Some("completed"));
}

#[tokio::test]
async fn only_so_many_are_in_progress_and_the_urgent_come_first() {
    let stage = Testbed::new(slow(60), &format!("coordination.wip_limit = 3\n{CONFIG}"));
    let issues: Vec<FakePrId> = (0..6).map(|n| issue(&stage, n, &["pipeline/approved"])).collect();
    stage.with(|world| world.person_labels_issue(&issues[5], "maria", "suture/priority-p0", true));
    stage.with(|world| world.person_labels_issue(&issues[4], "maria", "suture/priority-p1", true));
    stage.pass(30).await;
    let asked: Vec<String> = [5, 4, 0].map(|n: usize| format!("backlog:{}:1", issues[n])).into();
    assert_eq!(requests(&stage), asked);
    assert_eq!(stage.summaries().iter().filter_map(|it| it.coordination.as_ref()).map(|it| it.waiting).max(), Some(3));
    // They are open now: there is room for the rest.
    stage.pass(60).await;
    assert_eq!(requests(&stage).into_iter().collect::<BTreeSet<_>>().len(), 6);
    assert_eq!(pulls(&stage).len(), 3);
}

#[tokio::test]
async fn what_is_a_persons_is_left_alone() {
    let stage = Testbed::new(FakeSettings::default(), &format!("{CONFIG}\nbacklog.discovered_hours = 1"));
    let held = issue(&stage, 1, &["pipeline/approved", "suture/hold"]);
    let ignored = issue(&stage, 2, &["pipeline/approved", "suture/ignore"]);
    let taken = issue(&stage, 3, &["pipeline/approved"]);
    stage.with(|world| world.person_takes_issue(&taken, "danny"));
    let nameless =
        stage.with(|world| world.person_writes_issue("", "maria", "Something is slow", &["pipeline/approved"]));
    let mine = issue(&stage, 4, &["pipeline/discovered", "source/human"]);
    stage.pass(90).await;
    assert_eq!((requests(&stage).len(), pulls(&stage).len()), (0, 0));
    for issue in [&held, &ignored, &taken, &nameless, &mine] {
        assert!(is_open(&stage, issue), "{issue}");
    }
    assert_eq!(stage.with(|world| world.audit_by(SUTURE).count()), 0);
    stage.with(|world| world.person_labels_issue(&held, "maria", "suture/hold", false));
    stage.pass(6).await;
    assert_eq!(requests(&stage), [format!("backlog:{held}:1")]);
}

#[tokio::test]
async fn whoever_is_faster_than_the_car_bridge_wins() {
    let stage = Testbed::new(FakeSettings::default(), CONFIG);
    let (closed, back, taken) = (
        issue(&stage, 1, &["pipeline/approved"]),
        issue(&stage, 2, &["pipeline/approved"]),
        issue(&stage, 3, &["pipeline/approved"]),
    );
    stage.bridging.set(false);
    stage.pass(2).await;
    stage.with(|world| {
        world.person_closes_issue(&closed, "maria", true);
        world.person_labels_issue(&back, "maria", "pipeline/approved", false);
        world.person_takes_issue(&taken, "danny");
    });
    stage.bridging.set(true);
    stage.pass(30).await;
    assert_eq!((requests(&stage).len(), pulls(&stage).len()), (0, 0));
    assert_eq!(stage.with(|world| world.audit_by(SUTURE).count()), 0);
}

#[tokio::test]
async fn without_a_pull_request_for_two_hours_it_is_asked_for_again_under_another_name() {
    let stage = Testbed::new(slow(150), CONFIG);
    let approved = issue(&stage, 1, &["pipeline/approved"]);
    stage.pass(119).await;
    assert_eq!(requests(&stage).len(), 1);
    stage.pass(16).await;
    assert_eq!(requests(&stage), [1, 2].map(|n| format!("backlog:{approved}:{n}")));
    assert!(said(&stage, &approved)[0].starts_with("CodeGenie did not open a pull request in time."));
    stage.pass(300).await;
    assert_eq!(pulls(&stage).len(), 1, "the second request finds the first one's pull request");
    assert_eq!(requests(&stage).len(), 2);
}

#[tokio::test]
async fn it_is_not_asked_for_for_ever() {
    let stage = Testbed::new(slow(100_000), CONFIG);
    let approved = issue(&stage, 1, &["pipeline/approved"]);
    stage.pass(12 * 60).await;
    assert_eq!(requests(&stage).len(), 3);
    assert!(labels(&stage, &approved).contains(&"pipeline/urgent".to_owned()));
    let last = said(&stage, &approved).pop().unwrap();
    assert!(last.starts_with("CodeGenie was asked 3 times, but no pull request was merged."), "{last}");
    let comments = said(&stage, &approved).len();
    stage.pass(4 * 60).await;
    assert_eq!((requests(&stage).len(), said(&stage, &approved).len()), (3, comments));
}

#[tokio::test]
async fn what_nobody_approves_for_a_day_is_rejected_and_who_brings_it_back_is_obeyed() {
    let stage = Testbed::new(FakeSettings::default(), CONFIG);
    let found = issue(&stage, 1, &["pipeline/discovered"]);
    stage.pass(24 * 60 - 10).await;
    assert!(is_open(&stage, &found));
    stage.pass(20).await;
    assert!(!is_open(&stage, &found));
    assert_eq!(labels(&stage, &found), ["pipeline/rejected"]);
    assert!(said(&stage, &found)[0].starts_with("Closed because it was not approved within 24 h."));
    let reason = stage.with(|world| world.issue(&found).unwrap().state_reason.clone());
    assert_eq!(reason.as_deref(), Some("not_planned"));
    stage.with(|world| {
        world.person_closes_issue(&found, "maria", false);
        world.person_labels_issue(&found, "maria", "pipeline/approved", true);
    });
    stage.pass(6).await;
    assert_eq!(requests(&stage), [format!("backlog:{found}:1")]);
}

#[tokio::test]
async fn a_pull_request_nobody_approves_for_four_hours_makes_its_issue_urgent() {
    let stage = Testbed::new(late_builds(), CONFIG);
    let approved = issue(&stage, 1, &["pipeline/approved"]);
    stage.pass(4).await;
    let pr = pulls(&stage).remove(0);
    stage.with(|world| world.force(Fault::RealTestFailure, &pr));
    stage.pass(3 * 60).await;
    assert!(!labels(&stage, &approved).contains(&"pipeline/urgent".to_owned()));
    stage.pass(70).await;
    assert_eq!(labels(&stage, &approved), ["pipeline/pr-open", "pipeline/urgent"]);
    stage.pass(120).await;
    let urgent = said(&stage, &approved).iter().filter(|said| said.contains("A person should look")).count();
    assert_eq!(urgent, 1);
}

#[tokio::test]
async fn a_failed_review_nobody_fixes_closes_the_pull_request_and_brings_the_issue_back() {
    let stage = Testbed::new(late_builds(), CONFIG);
    let approved = issue(&stage, 1, &["pipeline/approved"]);
    stage.pass(4).await;
    let pr = pulls(&stage).remove(0);
    // Held by a person: nobody else closes it.
    stage.with(|world| {
        world.force(Fault::RealTestFailure, &pr);
        world.person_labels(&pr, "maria", "suture/hold");
        world.person_labels_issue(&approved, "maria", "pipeline/review-failed", true);
    });
    stage.pass(5 * 60).await;
    assert!(stage.with(|world| world.pull(&pr).unwrap().is_open()));
    stage.with(|world| world.person_unlabels(&pr, "maria", "suture/hold"));
    stage.pass(12).await;
    assert!(stage.with(|world| !world.pull(&pr).unwrap().is_open()), "{:?}", labels(&stage, &approved));
    assert!(said(&stage, &pr).iter().any(|said| said.contains("was not fixed within 4 h")), "{:?}", said(&stage, &pr));
    assert_eq!(requests(&stage).into_iter().collect::<BTreeSet<_>>().len(), 2);
    stage.pass(15).await;
    assert_eq!(pulls(&stage).len(), 2);
}

#[tokio::test]
async fn a_request_is_one_pull_request_wherever_the_process_dies() {
    let mut points = 0;
    for how in CallFault::CRASHES {
        for at in 0.. {
            let stage = Testbed::new(FakeSettings::default(), CONFIG);
            stage.sweeping.set(false);
            let approved = issue(&stage, 1, &["pipeline/approved"]);
            let found = issue(&stage, 2, &["pipeline/discovered"]);
            stage.pass(1).await;
            let reached = stopped(&stage, at, how).await;
            stage.sweeping.set(true);
            stage.pass(40).await;
            let place = format!("stopped {how:?} call {at}");
            let asked: BTreeSet<String> = requests(&stage).into_iter().collect();
            assert_eq!(asked, BTreeSet::from([format!("backlog:{approved}:1")]), "{place}");
            assert_eq!(pulls(&stage).len(), 1, "{place}");
            assert!(!is_open(&stage, &approved) && is_open(&stage, &found), "{place}: {:?}", labels(&stage, &approved));
            if !reached {
                break;
            }
            points += 1;
        }
    }
    println!("{points} points");
    assert!(points > 60, "{points}");
}

#[tokio::test]
async fn a_rejection_is_told_once_wherever_the_process_dies() {
    let mut points = 0;
    for how in CallFault::CRASHES {
        for at in (0..).step_by(2) {
            let stage = Testbed::new(FakeSettings::default(), &format!("{CONFIG}\nbacklog.discovered_hours = 1"));
            let found = issue(&stage, 1, &["pipeline/discovered"]);
            stage.pass(58).await;
            stage.sweeping.set(false);
            stage.with(|world| world.advance(SignedDuration::from_mins(5)));
            let reached = stopped(&stage, at, how).await;
            stage.sweeping.set(true);
            stage.pass(15).await;
            let told = (is_open(&stage, &found), actions(&stage, AuditedAction::CommentCreated));
            assert_eq!(told, (false, 1), "stopped {how:?} call {at}");
            if !reached {
                break;
            }
            points += 1;
        }
    }
    println!("{points} points");
    assert!(points > 30, "{points}");
}

#[tokio::test]
async fn sweeps_that_overlap_ask_for_no_more_than_there_is_room_for() {
    for ahead in (0..40).step_by(4) {
        let stage = Testbed::new(slow(60), &format!("coordination.wip_limit = 2\n{CONFIG}"));
        stage.sweeping.set(false);
        for n in 0..6 {
            issue(&stage, n, &["pipeline/approved"]);
        }
        stage.pass(1).await;
        let now = stage.now();
        stage.faults.count_anew();
        let (one, other) = (stage.another_sweep(), stage.another_sweep());
        let wishes = ["first", "second"].map(|name| SweepTrigger::scheduled(name, now, name));
        let second = async {
            for _ in 0..10_000 {
                if stage.faults.calls() >= ahead {
                    break;
                }
                tokio::task::yield_now().await;
            }
            use platform::store::{Condition, Key, RowWrite, Store};
            let gone = RowWrite::Delete { key: Key::state("LEASE#sweep"), only_if: Condition::Always };
            stage.store.store.write(vec![gone], now).await.unwrap();
            other.sweep(&wishes[1], now + SWEEP_TIMEOUT).await
        };
        let (first, second) = tokio::join!(one.sweep(&wishes[0], now + SWEEP_TIMEOUT), second);
        first.unwrap();
        second.unwrap();
        stage.settle().await;
        stage.sweeping.set(true);
        stage.pass(20).await;
        let asked: BTreeSet<String> = requests(&stage).into_iter().collect();
        assert_eq!(asked.len(), 2, "{ahead} calls ahead: {asked:?}");
    }
}
