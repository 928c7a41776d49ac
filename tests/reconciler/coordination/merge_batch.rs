//! Merge batches: approved pull requests are dispatched first, all in one sweep.

use domain::state::State;
use fakes::{FakePrId, FakeSettings, Fault, NewPullRequest};
use testbed::Testbed;

/// Opens approved pull requests that Automerge Bot missed, and urgent ones whose checks never started. All are stale; the schedule
/// and the Car Bridge are off.
async fn open_stale(testbed: &Testbed, approved: usize, unbuilt: usize) -> (Vec<FakePrId>, Vec<FakePrId>) {
    testbed.sweeping.set(false);
    let approved: Vec<FakePrId> = (0..approved).map(|_| testbed.open()).collect();
    for pr in &approved {
        testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, pr));
    }
    testbed.pass(2).await;
    testbed.sweep_now().await;
    testbed.pass(30).await;
    for pr in &approved {
        assert_eq!(testbed.state(pr).await, Some(State::Approved));
    }
    let urgent = NewPullRequest { labels: vec!["suture/priority-p0".to_owned()], ..NewPullRequest::default() };
    let unbuilt: Vec<FakePrId> = (0..unbuilt).map(|_| testbed.with(|fakes| fakes.open_pr(urgent.clone()))).collect();
    for pr in &unbuilt {
        testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, pr));
    }
    testbed.pass(10).await;
    testbed.bridging.set(false);
    (approved, unbuilt)
}

#[tokio::test]
async fn approved_pull_requests_are_merged_first_in_one_sweep() {
    let testbed = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 2");
    let (approved, _) = open_stale(&testbed, 5, 3).await;
    let summary = testbed.sweep_now().await;
    assert_eq!(summary.dispatched.get("retrigger_automerge_bot"), Some(&5), "{summary:?}");
    assert_eq!(
        (summary.claims(), summary.skipped["full"]),
        (5, 3),
        "the others are deferred despite their priority: {summary:?}"
    );
    let commands = testbed.commands();
    assert!(commands.iter().all(|(_, command, _)| *command == "/merge"), "{commands:?}");
    testbed.bridging.set(true);
    testbed.pass(3).await;
    for pr in &approved {
        assert!(testbed.with(|fakes| fakes.is_merged(pr)), "{pr}");
    }
}

#[tokio::test]
async fn merge_batch_is_limited() {
    let testbed = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 1\ncoordination.merge_batch = 2");
    open_stale(&testbed, 4, 1).await;
    let summary = testbed.sweep_now().await;
    // The in-flight limit allows one and the batch two; the first merge counts for both.
    assert_eq!((summary.claims(), summary.skipped["full"]), (2, 3), "{summary:?}");
    let testbed = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 1\ncoordination.merge_batch = 0");
    open_stale(&testbed, 3, 0).await;
    assert_eq!(testbed.sweep_now().await.claims(), 1, "without a batch the in-flight limit applies");
}
