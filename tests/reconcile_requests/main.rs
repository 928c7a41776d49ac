//! Seeds 003 and 002 in the simulated world, sentence by sentence: who may ask for a look before the schedule takes one, what
//! becomes of many who ask for the same, what keeps requests within bounds, how they are stopped; and what makes Suture
//! reliable when the same thing is told twice, too often or in vain.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may stop, and say its figures")]

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
use platform::{queries, reconcile_request};
use reconciler::SweepTrigger;
use serde_json::Value;
use testbed::Testbed;
use webhook::signature::sign;

/// So many pull requests whose builds hang: open, healthy for an hour, and of no interest to any sweep.
async fn quiet(stage: &Testbed, count: usize) -> Vec<FakePrId> {
    let prs: Vec<FakePrId> = (0..count).map(|_| stage.open()).collect();
    settled(stage, &prs).await;
    prs
}

/// Nothing about them is due any more.
async fn settled(stage: &Testbed, prs: &[FakePrId]) {
    for pr in prs {
        stage.with(|world| world.force(Fault::BuildHung, pr));
    }
    stage.pass(5).await;
    stage.sweeping.set(false);
    assert_eq!(stage.sweep_now().await.due, 0, "nothing is due");
    stage.faults.take_names();
}

/// So many pull requests whose checks never started: stale.
async fn stale(stage: &Testbed, count: usize) -> Vec<FakePrId> {
    stage.sweeping.set(false);
    let prs: Vec<FakePrId> = (0..count).map(|_| stage.open()).collect();
    for pr in &prs {
        stage.with(|world| world.force(Fault::JenkinsDeaf, pr));
    }
    stage.pass(2).await;
    stage.sweep_now().await;
    stage.pass(6).await;
    stage.bridging.set(false);
    stage.faults.take_names();
    prs
}

/// The first repository's base branch.
fn base() -> ReconcileScope {
    let repo = FakeSettings::default().repos[0].clone();
    ReconcileScope::Base(repo.name.parse().unwrap(), repo.base)
}

/// Somebody pushes to it.
fn push(stage: &Testbed) {
    stage.with(|world| world.push_base(&FakeSettings::default().repos[0].name));
}

/// GitHub delivers something; answers what is answered.
async fn hear(stage: &Testbed, event: &str, delivery: &str, payload: &Value) -> Value {
    let body = payload.to_string();
    let request = http::Request::builder()
        .method("POST")
        .uri("/webhook/github")
        .header("x-hub-signature-256", sign(&FakeSettings::default().webhook_secret, body.as_bytes()))
        .header("x-github-event", event)
        .header("x-github-delivery", delivery);
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let answer = stage.webhook.handle(&parts, body.as_bytes(), stage.now()).await;
    serde_json::from_str(answer.body()).unwrap()
}

async fn request(stage: &Testbed, scope: &ReconcileScope) -> Option<ReconcileRequest> {
    reconcile_request::load(&stage.store.store, &ReconcileRequest::key_of(scope, false), stage.now()).await.unwrap()
}

async fn run(stage: &Testbed, id: &str) -> Option<Run> {
    queries::runs(&stage.store.store, &[RunId::new(id)], stage.now()).await.unwrap().pop()
}

/// The runs of requests that have begun, the newest first.
async fn runs(stage: &Testbed) -> Vec<Run> {
    let runs = queries::runs_of(&stage.store.store, None, None, 500, stage.now()).await.unwrap().entries;
    runs.into_iter().filter(|run| run.request.is_some()).collect()
}

fn wish(name: &str, scope: ReconcileScope) -> SweepTrigger {
    SweepTrigger::requested(RunId::new(name), scope, false, format!("process of {name}"))
}
