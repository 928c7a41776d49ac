//! What only has to be merged goes first, and all of it at once.

use domain::state::State;
use fakes::{FakePrId, FakeSettings, Fault, NewPullRequest};
use testbed::Testbed;

/// Approved pull requests that Automerge Bot has overlooked, and urgent ones whose checks never started; all stale, none swept.
async fn waiting(stage: &Testbed, approved: usize, deaf: usize) -> (Vec<FakePrId>, Vec<FakePrId>) {
    stage.sweeping.set(false);
    let approved: Vec<FakePrId> = (0..approved).map(|_| stage.open()).collect();
    for pr in &approved {
        stage.with(|world| world.force(Fault::AutomergeAsleep, pr));
    }
    stage.pass(2).await;
    stage.sweep_now().await;
    stage.pass(30).await;
    for pr in &approved {
        assert_eq!(stage.state(pr).await, Some(State::Approved));
    }
    let urgent = NewPullRequest { labels: vec!["suture/priority-p0".to_owned()], ..NewPullRequest::default() };
    let deaf: Vec<FakePrId> = (0..deaf).map(|_| stage.with(|world| world.open_pr(urgent.clone()))).collect();
    for pr in &deaf {
        stage.with(|world| world.force(Fault::JenkinsDeaf, pr));
    }
    stage.pass(10).await;
    stage.bridging.set(false);
    (approved, deaf)
}

#[tokio::test]
async fn all_that_only_has_to_be_merged_is_merged_first_and_in_one_sweep() {
    let stage = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 2");
    let (approved, _) = waiting(&stage, 5, 3).await;
    let summary = stage.sweep_now().await;
    assert_eq!(summary.dispatched.get("retrigger_automerge_bot"), Some(&5), "{summary:?}");
    assert_eq!((summary.claims(), summary.skipped["full"]), (5, 3), "the others wait, however urgent: {summary:?}");
    let commands = stage.commands();
    assert!(commands.iter().all(|(_, command, _)| *command == "/merge"), "{commands:?}");
    stage.bridging.set(true);
    stage.pass(3).await;
    for pr in &approved {
        assert!(stage.with(|world| world.is_merged(pr)), "{pr}");
    }
}

#[tokio::test]
async fn a_batch_has_an_end() {
    let stage = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 1\ncoordination.merge_batch = 2");
    waiting(&stage, 4, 1).await;
    let summary = stage.sweep_now().await;
    // The first has room like everybody, the batch has two; the first is in both.
    assert_eq!((summary.claims(), summary.skipped["full"]), (2, 3), "{summary:?}");
    let stage = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 1\ncoordination.merge_batch = 0");
    waiting(&stage, 3, 0).await;
    assert_eq!(stage.sweep_now().await.claims(), 1, "like all others");
}
