//! Webhooks that never arrive: one of each life, then all of them. Whatever a sweep finds due is as GitHub says after it.

use domain::state::State;
use fakes::{FakePrId, FakeSettings};
use testbed::{Testbed, pr_id};

use crate::On;

/// Lets a life pass minute by minute. Whoever was due before a sweep agrees with GitHub after it, and is not due any more.
async fn watch(stage: &Testbed, pr: &FakePrId, minutes: i64) -> bool {
    stage.sweeping.set(false);
    for _ in 0..minutes {
        stage.pass(1).await;
        let due = stage.find(pr).await.and_then(|record| record.due_at).is_some_and(|due| due <= stage.now());
        let summary = stage.sweep_now().await;
        assert_eq!(summary.errors, Vec::<String>::new());
        if due {
            assert_eq!(
                crate::drift(stage, pr).await,
                None,
                "after a sweep of what was due: {:?}",
                stage.kinds(pr).await
            );
            let again = stage.record(pr).await.due_at;
            assert!(again.is_none_or(|at| at > stage.now()), "every visit gives a new date");
        }
        stage.settle().await;
        if stage.state(pr).await == Some(State::Merged) {
            return true;
        }
    }
    false
}

async fn lives_with(lost: Option<usize>) -> (usize, Testbed) {
    let stage = Testbed::new(FakeSettings::default(), "");
    stage.lose_webhooks(move |place, _| Some(place) == lost);
    let pr = stage.open();
    let merged = watch(&stage, &pr, 150).await;
    assert!(merged, "without webhook {lost:?}: {:?} {:?}", stage.state(&pr).await, stage.kinds(&pr).await);
    assert!(stage.with(|world| world.is_merged(&pr)));
    assert_eq!(stage.mails(), [], "without webhook {lost:?}");
    (stage.webhooks(), stage)
}

#[tokio::test]
async fn any_one_webhook_may_be_lost() {
    let (all, _) = lives_with(None).await;
    assert!(all >= 8, "a life has that many: {all}");
    for lost in 0..all {
        lives_with(Some(lost)).await;
    }
}

#[tokio::test]
async fn all_webhooks_may_be_lost() {
    nobody_tells_us(On::Memory).await;
}

#[tokio::test]
async fn all_webhooks_may_be_lost_on_dynoxide() {
    nobody_tells_us(On::Dynoxide).await;
}

async fn nobody_tells_us(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    stage.lose_webhooks(|_, _| true);
    stage.sweeping.set(false);
    let pr = stage.open();
    let every = i64::from(stage.policies.base().sweep.inventory_every);
    let mut sweeps = 0;
    while stage.find(&pr).await.is_none() {
        stage.pass(1).await;
        stage.sweep_now().await;
        sweeps += 1;
        assert!(sweeps <= every + 1, "a pull request nobody told us about is found within {every} + 1 sweeps");
    }
    assert!(watch(&stage, &pr, 150).await, "{:?}", stage.kinds(&pr).await);
    let lost: u32 = stage.summaries().iter().flat_map(|summary| summary.lost.values()).sum();
    assert!(lost >= 2, "what was missed is counted by kind: {:?}", stage.summaries().last());
    assert_eq!(stage.mails(), []);
}

#[tokio::test]
async fn a_pull_request_that_opens_between_two_inventories_is_found_by_the_next() {
    let stage = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 3");
    stage.sweeping.set(false);
    stage.sweep_now().await;
    stage.lose_webhooks(|_, _| true);
    let pr = stage.open();
    for sweep in 1..=4 {
        stage.pass(1).await;
        let adopted = stage.sweep_now().await.adopted;
        if adopted == Some(1) {
            assert!(stage.find(&pr).await.is_some());
            return;
        }
        assert!(sweep <= 3, "{adopted:?}");
    }
    panic!("{} was never found", pr_id(&pr));
}

#[tokio::test]
async fn a_merge_and_a_closing_nobody_told_us_about_end_their_records() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let (merged, closed) = (stage.open(), stage.open());
    stage.pass(1).await;
    stage.lose_webhooks(|_, _| true);
    stage.with(|world| {
        world.person_merges(&merged, "maria");
        world.person_closes(&closed, "maria");
    });
    stage.pass(70).await;
    assert_eq!(stage.state(&merged).await, Some(State::Merged));
    assert_eq!(stage.state(&closed).await, Some(State::Closed));
    assert_eq!(stage.kinds(&merged).await["STATE_DRIFT_CORRECTED"], 1);
    let summaries = stage.summaries();
    let lost: Vec<&String> = summaries.iter().flat_map(|summary| summary.lost.keys()).collect();
    assert!(lost.iter().any(|kind| *kind == "PR_MERGED") && lost.iter().any(|kind| *kind == "PR_CLOSED"), "{lost:?}");
}

#[tokio::test]
async fn deliveries_that_failed_are_asked_for_again_once() {
    let stage = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 1");
    let pr = stage.open();
    stage.bridging.set(false);
    stage.with(|world| world.force(fakes::Fault::WebhookLost, &pr));
    stage.pass(3).await;
    let chores = || {
        let sent = stage.publisher.messages();
        sent.into_iter().filter(|(id, _)| id.starts_with("redeliver-")).count()
    };
    assert_eq!(chores(), 1, "{:?}", stage.summaries());
    let lost: u32 = stage.summaries().iter().filter_map(|summary| summary.lost.get("pull_request")).sum();
    assert!(lost >= 1 || stage.summaries().iter().any(|summary| summary.redelivered == 1), "{:?}", stage.summaries());
    stage.bridging.set(true);
    stage.pass(2).await;
    let again =
        stage.with(|world| world.audit().iter().filter(|one| one.action == fakes::AuditedAction::Redelivered).count());
    assert_eq!(again, 1, "the Car Bridge asks for it, and nobody else");
}
