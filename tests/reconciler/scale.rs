//! The cost of a sweep follows what is stale, not what is open.

use std::time::Instant;

use domain::id::{PrId, RunId};
use fakes::{FakeSettings, Fault};
use jiff::SignedDuration;
use platform::engine::Engine;
use platform::store::Store;
use reconciler::{ReconcileScope, SweepOutcome, SweepTrigger};
use testbed::{Testbed, pr_id};

use crate::On;

#[tokio::test]
async fn ten_thousand_open_and_a_hundred_stale() {
    sweep_among(On::Memory, 10_000).await;
}

/// Fewer, since each of them is a request over HTTP here; the sweep's own figures are the same.
#[tokio::test]
async fn five_hundred_open_and_a_hundred_stale_on_dynoxide() {
    sweep_among(On::Dynoxide, 500).await;
}

async fn sweep_among(on: On, open: usize) {
    let toml = "limits.remedies_in_flight = 100\nsweep.inventory_every = 100000";
    let stage = on.stage(FakeSettings::default(), toml).await;
    stage.sweep_now().await;
    stage.sweeping.set(false);
    let stale: Vec<_> = (0..100).map(|_| stage.open()).collect();
    for pr in &stale {
        stage.with(|world| world.force(Fault::JenkinsDeaf, pr));
    }
    stage.pass(2).await;
    stage.sweep_now().await;
    stage.pass(4).await;
    stage.bridging.set(false);
    // All the others were opened a moment ago.
    let engine = Engine::new(stage.store.clone(), testbed::RecordingPublisher::default(), stage.policies.clone());
    for number in 1..=open - stale.len() {
        let pr: PrId = format!("acme/busy#{number}").parse().unwrap();
        let at = stage.now();
        engine.apply(&tests::opened(&pr, format!("d{number}"), at), at).await.unwrap();
    }
    stage.with(|world| world.advance(SignedDuration::from_secs(30)));
    let (items, queries) = (stage.store.rows_queried(), stage.queries());
    let (spent, began) = (stage.store.usage().usage(), Instant::now());
    let summary = stage.sweep_now().await;
    let (took, after) = (began.elapsed(), stage.store.usage().usage());
    let (items, queries) = (stage.store.rows_queried() - items, stage.queries() - queries);
    println!(
        "{on:?}, {open} open, 100 stale: {} ms, {items} index items, {queries} GraphQL requests, {} store requests, \
         {} rows read, {} written; {}",
        took.as_millis(),
        after.requests - spent.requests,
        after.items_read - spent.items_read,
        after.items_written - spent.items_written,
        summary.sentence(),
    );
    assert_eq!((summary.due, summary.verified, summary.claims()), (100, 100, 100), "{summary:?}");
    assert!(items <= 105, "{items}");
    assert!(queries <= 6, "{queries}");
    assert!(summary.github_points > 0 && summary.store_requests > 0);
}

#[tokio::test]
async fn two_hundred_contexts_on_one_pull_request_are_all_read() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = stage.open();
    stage.with(|world| world.force(Fault::JenkinsDeaf, &pr));
    stage.pass(1).await;
    stage.with(|world| {
        for n in 0..200 {
            world.post_check_on(&pr, &format!("matrix {n}"), Some("success"), "");
        }
    });
    stage.sweeping.set(false);
    stage.lose_webhooks(|_, _| true);
    stage.pass(20).await;
    let wish = SweepTrigger::requested(RunId::new("r-1"), ReconcileScope::One(pr_id(&pr)), false, "a");
    let SweepOutcome::Done(summary) = stage.request_sweep(&wish).await else { panic!("no sweep") };
    assert_eq!((summary.verified, summary.skipped.len()), (1, 0), "{summary:?}");
    let (record, runs) = (stage.record(&pr).await, stage.with(|world| world.check_runs(&pr).len()));
    assert!(record.signals.checks.len() == 200, "{} of {runs}", record.signals.checks.len());
    assert_eq!(crate::drift(&stage, &pr).await, None);
}
