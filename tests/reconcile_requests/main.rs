//! Reconcile requests and reliability, end to end: scopes of requests, debouncing, limits, cancellation and
//! retries, and the handling of duplicate, excessive and failing deliveries.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests may panic and print their figures")]

mod cancellation;
mod debounce;
mod latency;
mod limits;
mod redelivery;
mod retry;
mod scopes;

use domain::id::RunId;
use domain::reconcile_request::{ReconcileRequest, ReconcileScope};
use domain::run::Run;
use fakes::{FakePrId, FakeSettings, Fault};
use platform::reconcile_request;
use platform::store::queries;
use reconciler::SweepTrigger;
use serde_json::Value;
use testbed::Testbed;
use webhook::signature::sign;

/// Opens `count` pull requests whose builds hang: not stale for an hour, so no sweep visits them.
async fn open_not_due(testbed: &Testbed, count: usize) -> Vec<FakePrId> {
    let prs: Vec<FakePrId> = (0..count).map(|_| testbed.open()).collect();
    wait_until_not_due(testbed, &prs).await;
    prs
}

/// Runs until none of the pull requests is due, and turns the schedule off.
async fn wait_until_not_due(testbed: &Testbed, prs: &[FakePrId]) {
    for pr in prs {
        testbed.with(|fakes| fakes.force(Fault::BuildHung, pr));
    }
    testbed.pass(5).await;
    testbed.sweeping.set(false);
    assert_eq!(testbed.sweep_now().await.due, 0, "nothing is due");
    testbed.faults.take_names();
}

/// Opens `count` stale pull requests: their checks never started. The schedule and the Car Bridge are off.
async fn open_stale(testbed: &Testbed, count: usize) -> Vec<FakePrId> {
    testbed.sweeping.set(false);
    let prs: Vec<FakePrId> = (0..count).map(|_| testbed.open()).collect();
    for pr in &prs {
        testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, pr));
    }
    testbed.pass(2).await;
    testbed.sweep_now().await;
    testbed.pass(6).await;
    testbed.bridging.set(false);
    testbed.faults.take_names();
    prs
}

/// The first repository's base branch.
fn base() -> ReconcileScope {
    let repo = FakeSettings::default().repos[0].clone();
    ReconcileScope::Base(repo.name.parse().unwrap(), repo.base)
}

/// Pushes to the first repository's base branch.
fn push(testbed: &Testbed) {
    testbed.with(|fakes| fakes.push_base(&FakeSettings::default().repos[0].name));
}

/// Delivers a signed GitHub webhook and returns the response body.
async fn deliver_webhook(testbed: &Testbed, event: &str, delivery: &str, payload: &Value) -> Value {
    let body = payload.to_string();
    let request = http::Request::builder()
        .method("POST")
        .uri("/webhook/github")
        .header("x-hub-signature-256", sign(&FakeSettings::default().webhook_secret, body.as_bytes()))
        .header("x-github-event", event)
        .header("x-github-delivery", delivery);
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let response = testbed.webhook.handle(&parts, body.as_bytes(), testbed.now()).await;
    serde_json::from_str(response.body()).unwrap()
}

async fn request(testbed: &Testbed, scope: &ReconcileScope) -> Option<ReconcileRequest> {
    reconcile_request::load(&testbed.store.store, &ReconcileRequest::key_of(scope, false), testbed.now()).await.unwrap()
}

async fn run(testbed: &Testbed, id: &str) -> Option<Run> {
    queries::runs(&testbed.store.store, &[RunId::new(id)], testbed.now()).await.unwrap().pop()
}

/// The runs of started requests, newest first.
async fn runs(testbed: &Testbed) -> Vec<Run> {
    let runs = queries::runs_of(&testbed.store.store, None, None, 500, testbed.now()).await.unwrap().entries;
    runs.into_iter().filter(|run| run.request.is_some()).collect()
}

fn trigger(name: &str, scope: ReconcileScope) -> SweepTrigger {
    SweepTrigger::requested(RunId::new(name), scope, false, format!("process of {name}"))
}
