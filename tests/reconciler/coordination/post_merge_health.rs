//! Post-merge health checks: probes after merges, verification, and outage issues.

use std::sync::Arc;

use domain::event::EventKind;
use fakes::{AuditedAction, FakePrId, FakeSettings, RepoSettings};
use jiff::SignedDuration;
use reconciler::SweepTrigger;
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed};

use super::{SUTURE, actions, suture_issues, sweep_with_fault};

const SHOP: &str = "https://shop.example/health";
const CONFIG: &str = "post_merge_health = { urls = ['https://shop.example/health'], issue_repo = 'acme/ops' }";

fn with_ops() -> FakeSettings {
    FakeSettings {
        repos: vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/ops")],
        ..FakeSettings::default()
    }
}

/// Opens a pull request, which a person merges a minute later.
async fn open_and_merge(testbed: &Testbed) -> FakePrId {
    let pr = testbed.open();
    testbed.pass(1).await;
    testbed.with(|fakes| fakes.person_merges(&pr, "maria"));
    testbed.pass(1).await;
    pr
}

fn set_unhealthy(testbed: &Testbed, status: u16) {
    testbed.set_health(SHOP, status);
}

fn set_healthy(testbed: &Testbed) {
    testbed.set_health(SHOP, 200);
}

fn take_health_requests(testbed: &Testbed) -> usize {
    testbed.transport.take_count("health")
}

#[tokio::test]
async fn healthy_merge_is_verified_once() {
    let testbed = Testbed::new(with_ops(), CONFIG);
    testbed.pass(5).await;
    assert_eq!(take_health_requests(&testbed), 0, "no probe without a merge");
    let pr = open_and_merge(&testbed).await;
    testbed.pass(27).await;
    assert_eq!(testbed.logged(&pr, EventKind::PostMergeVerified).await, []);
    assert!(take_health_requests(&testbed) >= 26, "each sweep probes");
    testbed.pass(5).await;
    let verified = testbed.logged(&pr, EventKind::PostMergeVerified).await;
    assert_eq!(verified.len(), 1);
    assert_eq!(verified[0].payload.text, "healthy for 30 min after the merge");
    take_health_requests(&testbed);
    testbed.pass(60).await;
    assert_eq!((take_health_requests(&testbed), testbed.logged(&pr, EventKind::PostMergeVerified).await.len()), (0, 1));
    assert_eq!(actions(&testbed, AuditedAction::CommentCreated), 0, "comments are off by default");
    let total: u32 = testbed.summaries().iter().filter_map(|it| it.coordination.as_ref()).map(|it| it.verified).sum();
    assert_eq!(total, 1);
}

#[tokio::test]
async fn verification_is_commented_when_enabled() {
    let testbed = Testbed::new(with_ops(), &CONFIG.replace("issue_repo", "comment = true, issue_repo"));
    let pr = open_and_merge(&testbed).await;
    testbed.pass(60).await;
    let comments: Vec<String> = testbed.with(|fakes| {
        let comments = fakes.comments(&pr).filter(|comment| comment.user == SUTURE);
        comments.map(|comment| comment.body.clone()).collect()
    });
    assert_eq!(comments.len(), 1);
    assert!(comments[0].starts_with("✅ post-merge verified: healthy for 30 min after the merge."), "{comments:?}");
}

#[tokio::test]
async fn outage_opens_one_issue_that_names_recent_merges() {
    let testbed = Testbed::new(with_ops(), CONFIG);
    let (first, second) = (open_and_merge(&testbed).await, open_and_merge(&testbed).await);
    // One failed probe is not an outage.
    set_unhealthy(&testbed, 503);
    testbed.pass(1).await;
    set_healthy(&testbed);
    testbed.pass(3).await;
    assert_eq!(testbed.with(|fakes| suture_issues(fakes)).len(), 0);
    set_unhealthy(&testbed, 500);
    testbed.pass(3).await;
    let issues = testbed.with(|fakes| suture_issues(fakes));
    assert_eq!(issues.len(), 1, "{issues:?}");
    let (id, issue) = &issues[0];
    assert_eq!(
        (id.repo.as_str(), issue.labels.as_slice()),
        ("acme/ops", &["suture/outage", "P0"].map(str::to_owned)[..])
    );
    assert!(issue.title.starts_with("P0: down since "), "{}", issue.title);
    assert!(issue.body.contains("https://shop.example/health answered 500"), "{}", issue.body);
    let (newest, older) = (issue.body.find(&second.to_string()), issue.body.find(&first.to_string()));
    assert!(newest.unwrap() < older.unwrap(), "{}", issue.body);
    // The outage lasts for hours, with further merges: still one issue.
    open_and_merge(&testbed).await;
    testbed.pass(180).await;
    assert_eq!(testbed.with(|fakes| suture_issues(fakes)).len(), 1);
    for pr in [&first, &second] {
        assert_eq!(testbed.logged(pr, EventKind::PostMergeVerified).await, [], "{pr} may be the cause");
    }
    set_healthy(&testbed);
    testbed.pass(5).await;
    let comments: Vec<String> = testbed.with(|fakes| fakes.comments(id).map(|comment| comment.body.clone()).collect());
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(comments[0].starts_with("Healthy again since "), "{comments:?}");
    assert!(testbed.with(|fakes| fakes.issue(id).unwrap().open), "only a person closes the issue");
    // A second outage opens a second issue.
    open_and_merge(&testbed).await;
    set_unhealthy(&testbed, 0);
    testbed.pass(4).await;
    assert_eq!(testbed.with(|fakes| suture_issues(fakes)).len(), 2);
}

#[tokio::test]
async fn repository_outage_is_reported_in_its_own_repository() {
    let config = "[repos.'acme/payments']\npost_merge_health.urls = ['https://shop.example/health']";
    let testbed = Testbed::new(with_ops(), config);
    let other = testbed
        .with(|fakes| fakes.open_pr(fakes::NewPullRequest { repo: "acme/ops".to_owned(), ..Default::default() }));
    testbed.pass(1).await;
    testbed.with(|fakes| fakes.person_merges(&other, "maria"));
    testbed.pass(2).await;
    assert_eq!(take_health_requests(&testbed), 0, "acme/ops has no health URLs");
    set_unhealthy(&testbed, 404);
    open_and_merge(&testbed).await;
    testbed.pass(4).await;
    let issues = testbed.with(|fakes| suture_issues(fakes));
    assert_eq!(issues.iter().map(|(id, _)| id.repo.as_str()).collect::<Vec<_>>(), ["acme/payments"]);
    assert!(!issues[0].1.body.contains(&other.to_string()));
}

#[tokio::test]
async fn observe_mode_opens_no_outage_issue() {
    let policies = domain::policy::Policies::parse(CONFIG).unwrap();
    let testbed = Testbed::with_policies(with_ops(), policies);
    let pr = open_and_merge(&testbed).await;
    set_unhealthy(&testbed, 500);
    testbed.pass(10).await;
    let begun: u32 =
        testbed.summaries().iter().filter_map(|it| it.coordination.as_ref()).map(|it| it.outages_begun).sum();
    assert_eq!((begun, testbed.with(|fakes| suture_issues(fakes)).len()), (1, 0));
    set_healthy(&testbed);
    let later = open_and_merge(&testbed).await;
    testbed.pass(40).await;
    assert_eq!(testbed.logged(&pr, EventKind::PostMergeVerified).await.len(), 0);
    assert_eq!(
        testbed.logged(&later, EventKind::PostMergeVerified).await.len(),
        1,
        "observe mode still writes the event log"
    );
    assert_eq!(testbed.with(|fakes| fakes.audit_by(SUTURE).count()), 0);
}

#[tokio::test]
async fn outage_issue_is_deferred_while_paused() {
    let testbed = Testbed::new(with_ops(), CONFIG);
    open_and_merge(&testbed).await;
    platform::store::pause::pause(&testbed.store, "maria", testbed.now(), testbed.now()).await.unwrap();
    set_unhealthy(&testbed, 500);
    testbed.pass(10).await;
    assert_eq!(testbed.with(|fakes| suture_issues(fakes)).len(), 0);
    platform::store::pause::unpause(&testbed.store, testbed.now(), testbed.now()).await.unwrap();
    testbed.pass(3).await;
    assert_eq!(testbed.with(|fakes| suture_issues(fakes)).len(), 1);
}

/// One probe has failed; the outage begins with the next sweep.
async fn one_sweep_before_outage() -> Testbed {
    let testbed = Testbed::new(with_ops(), CONFIG);
    open_and_merge(&testbed).await;
    testbed.sweeping.set(false);
    set_unhealthy(&testbed, 500);
    testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(1)));
    testbed.sweep_now().await;
    testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(1)));
    testbed
}

#[tokio::test]
async fn crash_at_any_call_opens_one_outage_issue() {
    let mut points = 0;
    for fault in CallFault::CRASHES {
        for at in 0.. {
            let testbed = one_sweep_before_outage().await;
            let reached = sweep_with_fault(&testbed, at, fault).await;
            testbed.sweeping.set(true);
            testbed.pass(15).await;
            let issues = testbed.with(|fakes| suture_issues(fakes));
            assert_eq!(issues.len(), 1, "crash {fault:?} call {at}: {issues:?}");
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
async fn crash_at_any_call_reports_verification_once() {
    let mut points = 0;
    for fault in CallFault::CRASHES {
        for at in 0.. {
            let testbed = Testbed::new(with_ops(), &CONFIG.replace("issue_repo", "comment = true, issue_repo"));
            let pr = open_and_merge(&testbed).await;
            testbed.sweeping.set(false);
            testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(31)));
            let reached = sweep_with_fault(&testbed, at, fault).await;
            testbed.sweeping.set(true);
            testbed.pass(8).await;
            let result = (
                testbed.logged(&pr, EventKind::PostMergeVerified).await.len(),
                actions(&testbed, AuditedAction::CommentCreated),
            );
            assert_eq!(result, (1, 1), "crash {fault:?} call {at}: {:?}", testbed.faults.take_names().first());
            if !reached {
                break;
            }
            points += 1;
        }
    }
    println!("{points} crash points");
    assert!(points > 60, "{points}");
}

/// Two concurrent sweeps, one of which has outlived its lease, open one issue.
#[tokio::test]
async fn overlapping_sweeps_open_one_outage_issue() {
    for ahead in (0..30).step_by(3) {
        let testbed = one_sweep_before_outage().await;
        let now = testbed.now();
        testbed.faults.count_anew();
        let (one, other) = (Arc::new(testbed.another_sweep()), Arc::new(testbed.another_sweep()));
        let triggers = ["first", "second"]
            .map(|name| SweepTrigger { run: domain::id::RunId::new(name), ..SweepTrigger::scheduled(name, now, name) });
        let second = async {
            for _ in 0..10_000 {
                if testbed.faults.calls() >= ahead {
                    break;
                }
                tokio::task::yield_now().await;
            }
            delete_lease(&testbed).await;
            other.sweep(&triggers[1], now + SWEEP_TIMEOUT).await
        };
        let (first, second) = tokio::join!(one.sweep(&triggers[0], now + SWEEP_TIMEOUT), second);
        first.unwrap();
        second.unwrap();
        testbed.settle().await;
        testbed.with(|fakes| fakes.advance(SWEEP_TIMEOUT));
        testbed.sweeping.set(true);
        testbed.pass(10).await;
        let issues = testbed.with(|fakes| suture_issues(fakes));
        assert_eq!(issues.len(), 1, "{ahead} calls ahead: {issues:?}");
    }
}

async fn delete_lease(testbed: &Testbed) {
    use platform::store::{Condition, Key, RowWrite, Store};
    let lease = RowWrite::Delete { key: Key::state("LEASE#sweep"), only_if: Condition::Always };
    testbed.store.store.write(vec![lease], testbed.now()).await.unwrap();
}
