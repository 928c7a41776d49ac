//! What a gate has put off is visited by the next sweep after the gate has opened, and a sweep without work is cheap.

use std::sync::Arc;

use domain::admission::{Gate, GateEpoch};
use domain::id::RunId;
use domain::policy::Policies;
use fakes::{FakePrId, FakeSettings, Fault};
use jiff::SignedDuration;
use platform::store::breaker::{self, RemedyOutcome};
use platform::store::pause;
use platform::sweep_summary::SweepSummary;
use reconciler::{ReconcileScope, Reconciler, SweepOutcome, SweepTrigger};
use testbed::Testbed;

use crate::Backend;

/// Pull requests whose checks never start.
async fn with_stale(backend: Backend, count: usize) -> (Testbed, Vec<FakePrId>) {
    let testbed = backend.testbed(FakeSettings::default(), "sweep.inventory_every = 1000").await;
    testbed.sweep_now().await;
    let prs: Vec<FakePrId> = (0..count).map(|_| testbed.open()).collect();
    for pr in &prs {
        testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, pr));
    }
    (testbed, prs)
}

async fn trip(testbed: &Testbed) {
    for n in 0..6 {
        let run = RunId::new(format!("other-{n}"));
        breaker::count_outcome(&testbed.store, &run, RemedyOutcome::Failed, testbed.now()).await.unwrap();
    }
    let settings = testbed.policies.base().breaker.clone();
    breaker::evaluate(&testbed.store, &settings, testbed.now()).await.unwrap().unwrap();
}

fn dispatched(testbed: &Testbed) -> u32 {
    testbed.summaries().iter().map(SweepSummary::claims).sum()
}

async fn put_off_by(testbed: &Testbed, prs: &[FakePrId]) -> Vec<Option<GateEpoch>> {
    let mut gates = Vec::new();
    for pr in prs {
        gates.push(testbed.record(pr).await.put_off);
    }
    gates
}

#[tokio::test]
async fn put_off_pull_requests_waited_for_the_cooldown_after_a_reset() {
    for backend in [Backend::Memory, Backend::Dynoxide] {
        let (testbed, prs) = with_stale(backend, 4).await;
        testbed.pass(4).await;
        trip(&testbed).await;
        testbed.pass(4).await;
        let gate = Some(GateEpoch { gate: Gate::Breaker, epoch: 0 });
        assert_eq!(put_off_by(&testbed, &prs).await, [gate; 4]);
        assert_eq!(dispatched(&testbed), 0);
        breaker::reset(&testbed.store, testbed.now()).await.unwrap();
        testbed.pass(1).await;
        assert_eq!(dispatched(&testbed), 4, "{:?}", testbed.summaries().last());
        assert_eq!(put_off_by(&testbed, &prs).await, [None; 4]);
    }
}

#[tokio::test]
async fn put_off_pull_requests_waited_five_minutes_after_unpause() {
    let (testbed, prs) = with_stale(Backend::Memory, 3).await;
    pause::pause(&testbed.store, "ops", testbed.now(), testbed.now()).await.unwrap();
    testbed.pass(7).await;
    assert!(put_off_by(&testbed, &prs).await.iter().all(|gate| gate.is_some_and(|gate| gate.gate == Gate::Pause)));
    pause::unpause(&testbed.store, testbed.now(), testbed.now()).await.unwrap();
    testbed.pass(1).await;
    assert_eq!(dispatched(&testbed), 3);
    // Once everything was visited, sweeps look only at what is due again.
    testbed.pass(1).await;
    let last = testbed.summaries().last().cloned().unwrap();
    assert_eq!((last.due, last.claims()), (0, 0), "{last:?}");
}

#[tokio::test]
async fn sweep_with_more_released_than_it_may_visit_leaves_the_rest_to_the_next() {
    let (testbed, _) = with_stale(Backend::Memory, 5).await;
    testbed.pass(4).await;
    trip(&testbed).await;
    testbed.pass(4).await;
    assert_eq!(dispatched(&testbed), 0);
    breaker::reset(&testbed.store, testbed.now()).await.unwrap();
    let policies = Policies::parse("mode = \"act\"\nsweep.max_prs = 2\nsweep.inventory_every = 1000").unwrap();
    let (github, jenkins) = (testbed.github.clone(), Some(testbed.jenkins.clone()));
    let (store, clock) = (testbed.store.clone(), Arc::new(testbed.clock.clone()));
    let small = Reconciler::new(store, testbed.publisher.clone(), policies, github, jenkins, clock, vec![]);
    let mut claimed = Vec::new();
    for n in 0..3 {
        testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(60)));
        let trigger = SweepTrigger::scheduled(&format!("small-{n}"), testbed.now(), "small");
        let deadline = testbed.now() + SignedDuration::from_mins(4);
        let SweepOutcome::Done(summary) = small.sweep(&trigger, deadline).await.unwrap() else { panic!("no sweep") };
        claimed.push(summary.claims());
    }
    assert_eq!(claimed, [2, 2, 1]);
}

#[tokio::test]
async fn requested_sweep_visits_stale_pull_requests_before_their_backoff_ends() {
    let (testbed, _) = with_stale(Backend::Memory, 2).await;
    testbed.pass(4).await;
    testbed.faults.fail_calls("GitHub", true);
    testbed.pass(12).await;
    testbed.faults.fail_calls("GitHub", false);
    testbed.sweeping.set(false);
    let trigger = SweepTrigger::requested(RunId::new("by-hand"), ReconcileScope::All, false, "here");
    let deadline = testbed.now() + SignedDuration::from_mins(4);
    let SweepOutcome::Done(summary) = testbed.sweep.sweep(&trigger, deadline).await.unwrap() else { panic!() };
    assert_eq!((summary.due, summary.claims()), (2, 2), "{summary:?}");
}

#[tokio::test]
async fn sweep_without_work_costs_six_store_requests() {
    let (testbed, _) = with_stale(Backend::Dynoxide, 0).await;
    testbed.pass(3).await;
    let last = testbed.summaries().last().cloned().unwrap();
    println!("sweep without work: {} store requests, {} units", last.store_requests, last.store_units);
    assert!(last.store_requests <= 6, "{last:?}");
    // It needs no lease, and its slot still starts one sweep.
    let trigger = SweepTrigger::scheduled("idle", testbed.now(), "first");
    let deadline = testbed.now() + SignedDuration::from_mins(4);
    assert!(matches!(testbed.sweep.sweep(&trigger, deadline).await.unwrap(), SweepOutcome::Done(_)));
    assert_eq!(testbed.sweep.sweep(&trigger, deadline).await.unwrap(), SweepOutcome::DuplicateTrigger);
}

#[tokio::test]
async fn breaker_trips_when_the_outcome_arrives() {
    let (testbed, _) = with_stale(Backend::Memory, 0).await;
    let settings = testbed.policies.base().breaker.clone();
    let mut tripped = Vec::new();
    for n in 0..6 {
        let run = RunId::new(format!("other-{n}"));
        let outcome = RemedyOutcome::Failed;
        tripped.push(
            breaker::report_outcome(&testbed.store, &run, outcome, &settings, testbed.now()).await.unwrap().is_some(),
        );
    }
    assert_eq!(tripped, [false, false, false, false, false, true]);
    // The next sweep mails the trip, although nothing is due.
    testbed.pass(1).await;
    assert_eq!(testbed.mails().len(), 1);
}
