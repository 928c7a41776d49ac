//! The cost of a sweep grows with the number of stale pull requests, not with the number of open ones.

use std::time::Instant;

use domain::decide::{Effect, EffectKind};
use domain::id::{EffectId, PrId, RunId};
use fakes::{FakeSettings, Fault};
use jiff::SignedDuration;
use platform::engine::Engine;
use platform::store::{Condition, RowWrite, Store, schema};
use reconciler::{ReconcileScope, SweepOutcome, SweepTrigger};
use testbed::{Testbed, pr_id};
use tests::claim_in;

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

/// A month without sweeps, or a mass reopening: 10,000 pull requests are overdue, twenty times what a sweep visits.
#[tokio::test]
async fn urgent_items_are_handled_in_the_next_sweep_among_ten_thousand_overdue() {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 100000");
    testbed.sweep_now().await;
    testbed.sweeping.set(false);
    testbed.bridging.set(false);
    // The run of the first has an expired lease, and the second is P0. They are due later than all others.
    let (leased, urgent) = (testbed.open(), testbed.open());
    testbed.with(|fakes| {
        fakes.force(Fault::JenkinsDeaf, &leased);
        fakes.force(Fault::JenkinsDeaf, &urgent);
        fakes.person_labels(&urgent, "maria", "suture/priority-p0");
    });
    testbed.pass(20).await;
    let engine = Engine::new(testbed.store.clone(), testbed::RecordingPublisher::default(), testbed.policies.clone());
    let long_ago = testbed.now() - SignedDuration::from_hours(24 * 30);
    for number in 1..=10_000 {
        let pr: PrId = format!("acme/busy#{number}").parse().unwrap();
        engine.apply(&tests::opened(&pr, format!("d{number}"), long_ago), long_ago).await.unwrap();
    }
    let claimed = claim_in(&testbed, &leased, "run-1").await;
    assert!(claimed.record.is_some_and(|record| record.active_run.is_some()), "{}", claimed.reason);
    // A mail that could not be sent.
    testbed.publisher.set_down(true);
    let (pr, notice) = (pr_id(&urgent), domain::text::Notice::new("acme/shop#1 needs you".to_owned(), String::new()));
    let effect = Effect {
        id: EffectId::new(format!("{pr}#mail#0")),
        head_sha: testbed.record(&urgent).await.head_sha,
        what: EffectKind::Notice(notice),
    };
    let key = schema::effect_key(&effect.id);
    let mut item = schema::row(&key, &effect).unwrap();
    for (name, value) in [("due", schema::DUE_URGENT.to_owned()), ("due_at", schema::sort_time(testbed.now()))] {
        item.inner_mut().insert(name.to_owned(), serde_dynamo::AttributeValue::S(value));
    }
    let put = RowWrite::Put { key, item, only_if: Condition::Always };
    testbed.store.write(vec![put], testbed.now()).await.unwrap();
    testbed.publisher.set_down(false);
    testbed.publisher.lose_queue();
    testbed.advance(SignedDuration::from_mins(20));
    let began = Instant::now();
    let summary = testbed.sweep_now().await;
    println!("10,000 overdue: {} ms; {}", began.elapsed().as_millis(), summary.sentence());
    assert!(testbed.mails().iter().any(|(id, _)| id.ends_with("#mail#0")), "the mail is sent: {summary:?}");
    assert!(summary.resent >= 1, "the run without a message is resent: {summary:?}");
    let claimed: Vec<u64> = testbed.commands().iter().map(|(number, ..)| *number).collect();
    assert!(claimed.contains(&urgent.number), "the P0 pull request is remediated: {claimed:?}");
    assert!(summary.due > 1_000, "{summary:?}");
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
