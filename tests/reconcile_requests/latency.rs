//! Latency of enqueueing, limit checks and cancel checks, on in-process DynamoDB through the production client.
//! `cargo test -p tests --all-features --test reconcile_requests latency -- --nocapture` prints the figures.

use std::time::{Duration, Instant};

use domain::id::{PrId, RunId};
use domain::reconcile_request::{NewRequest, ReconcileScope};
use domain::run::RunTrigger;
use platform::reconcile_request;
use tests::local_aws::Dynoxide;
use tests::{acting, start};

/// Repetitions of each operation.
const TIMES: u64 = 60;

fn figures(name: &str, limit_ms: u64, mut took: Vec<Duration>) {
    took.sort_unstable();
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    let p95 = took[took.len() * 95 / 100];
    println!("{name}: median {median:.1?}, p95 {p95:.1?}, worst {worst:.1?} (at most {limit_ms} ms)");
    // Only the median is asserted: a busy machine may slow down single calls.
    assert!(median <= Duration::from_millis(limit_ms), "{name}: {median:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_operations_stay_within_latency_limits() {
    let rig = Dynoxide::in_memory().await;
    let (store, policies) = (rig.store().await, acting());
    let scope = |number| ReconcileScope::One(PrId::new("acme/shop".parse().unwrap(), number));
    let (mut enqueue, mut limits, mut cancels) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=TIMES {
        let run = RunId::new(format!("r-{number}"));
        let new_request =
            NewRequest { run: run.clone(), at: start(), trigger: RunTrigger::AdminApi, requested_by: None };
        let began = Instant::now();
        reconcile_request::enqueue(&store, &policies, (&scope(number), false), &new_request, start()).await.unwrap();
        enqueue.push(began.elapsed());
        let began = Instant::now();
        reconcile_request::count_toward_limit(&store, &policies, &scope(number), start()).await.unwrap();
        limits.push(began.elapsed());
        let began = Instant::now();
        assert!(!reconcile_request::is_cancel_requested(&store, &run, start()).await.unwrap());
        cancels.push(began.elapsed());
    }
    figures("enqueue", 100, enqueue);
    figures("limit check", 10, limits);
    figures("cancel check", 5, cancels);
}
