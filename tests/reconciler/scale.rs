//! The cost of a sweep grows with the number of stale pull requests, not with the number of open ones.

use std::time::Instant;

use domain::id::{PrId, RunId};
use fakes::{FakeSettings, Fault};
use jiff::SignedDuration;
use platform::engine::Engine;
use platform::store::Store;
use reconciler::{ReconcileScope, SweepOutcome, SweepTrigger};
use testbed::{Testbed, pr_id};

use crate::Backend;

#[tokio::test]
async fn sweep_reads_only_stale_among_ten_thousand_open() {
    sweep_among(Backend::Memory, 10_000).await;
}

/// Fewer open pull requests, because each costs an HTTP request here; the cost of the sweep is the same.
#[tokio::test]
async fn sweep_reads_only_stale_among_five_hundred_open_on_dynoxide() {
    sweep_among(Backend::Dynoxide, 500).await;
}

async fn sweep_among(backend: Backend, open: usize) {
    let toml = "limits.remedies_in_flight = 100\nsweep.inventory_every = 100000";
    let testbed = backend.testbed(FakeSettings::default(), toml).await;
    testbed.sweep_now().await;
    testbed.sweeping.set(false);
    let stale: Vec<_> = (0..100).map(|_| testbed.open()).collect();
    for pr in &stale {
        testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, pr));
    }
    testbed.pass(2).await;
    testbed.sweep_now().await;
    testbed.pass(4).await;
    testbed.bridging.set(false);
    // All other pull requests were opened just now.
    let engine = Engine::new(testbed.store.clone(), testbed::RecordingPublisher::default(), testbed.policies.clone());
    for number in 1..=open - stale.len() {
        let pr: PrId = format!("acme/busy#{number}").parse().unwrap();
        let at = testbed.now();
        engine.apply(&tests::opened(&pr, format!("d{number}"), at), at).await.unwrap();
    }
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(30)));
    let (items, queries) = (testbed.store.rows_queried(), testbed.queries());
    let (spent, began) = (testbed.store.usage().usage(), Instant::now());
    let summary = testbed.sweep_now().await;
    let (took, after) = (began.elapsed(), testbed.store.usage().usage());
    let (items, queries) = (testbed.store.rows_queried() - items, testbed.queries() - queries);
    println!(
        "{backend:?}, {open} open, 100 stale: {} ms, {items} index items, {queries} GraphQL requests, {} store requests, \
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
async fn all_200_contexts_of_one_pull_request_are_read() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, &pr));
    testbed.pass(1).await;
    testbed.with(|fakes| {
        for n in 0..200 {
            fakes.post_check_on(&pr, &format!("matrix {n}"), Some("success"), "");
        }
    });
    testbed.sweeping.set(false);
    testbed.lose_webhooks(|_, _| true);
    testbed.pass(20).await;
    let trigger = SweepTrigger::requested(RunId::new("r-1"), ReconcileScope::One(pr_id(&pr)), false, "a");
    let SweepOutcome::Done(summary) = testbed.request_sweep(&trigger).await else { panic!("no sweep") };
    assert_eq!((summary.verified, summary.skipped.len()), (1, 0), "{summary:?}");
    let (record, runs) = (testbed.record(&pr).await, testbed.with(|fakes| fakes.check_runs(&pr).len()));
    assert!(record.signals.checks.len() == 200, "{} of {runs}", record.signals.checks.len());
    assert_eq!(crate::drift(&testbed, &pr).await, None);
}
