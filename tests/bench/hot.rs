//! Measures one hot pull request: 300 check reports at once from 32 connections. The webhook processes and the Car Bridge are the release
//! binaries; this file is API Gateway, and the event source mapping of the facts queue as in template.yaml.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use domain::id::PrId;
use jiff::Timestamp;
use platform::store::queries;
use serde_json::{Value, json};
use tests::local_aws::{Dynoxide, Folder};

use crate::burst::status_of;
use crate::lambda::{Function, invoke_all};
use crate::payloads::{delivery_id, examples};
use crate::tables::{QueuedFacts, Tables};
use crate::webhooks::{Program, Programs, round};

const CONNECTIONS: usize = 32;
const REPORTS: usize = 300;
const PR: &str = "Codertocat/Hello-World#1";
/// As in template.yaml: batch size, batching window and concurrency of the facts queue.
const BATCH: usize = 100;
const WINDOW: Duration = Duration::from_secs(1);
const CONSUMERS: usize = 2;
/// The measurement ends here.
const PATIENCE: Duration = Duration::from_secs(120);

/// The measurements of one hot pull request.
#[derive(Debug, Clone)]
pub(crate) struct HotPullRequest {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) deferred: u64,
    /// Until all reports were in the log.
    pub(crate) logged_secs: f64,
    pub(crate) facts_per_transaction: f64,
    pub(crate) lost: usize,
}

impl HotPullRequest {
    pub(crate) fn json(&self) -> Value {
        json!({
            "reports": REPORTS, "connections": CONNECTIONS, "p50_ms": round(self.p50_ms), "p99_ms": round(self.p99_ms),
            "deferred": self.deferred, "logged_secs": round(self.logged_secs),
            "facts_per_transaction": round(self.facts_per_transaction), "lost": self.lost,
        })
    }
}

/// Sends all reports at once, and waits until they are in the log.
pub(crate) async fn hot_pull_request(programs: &Programs) -> HotPullRequest {
    let folder = Folder::new();
    let tables = Tables::new(Dynoxide::on_file(&folder.path().join("tables.db")).await).await;
    let mut functions: Vec<Function> = (0..CONNECTIONS).map(|_| programs.start(Program::Suture, &tables)).collect();
    let examples = examples(&programs.root);
    let example = |kind: &str| examples.iter().find(|example| example.kind == kind).expect("an example").about(1);
    functions[0].invoke(&example("pull_request.opened").gateway_event(&delivery_id(1, 0)));
    let report = |n: usize| {
        let check = example("check_run.completed").with("/check_run/name", json!(format!("job {n}")));
        check.with("/check_run/id", json!(1_000_000 + n)).gateway_event(&delivery_id(2, n))
    };
    let events: Vec<String> = (0..REPORTS).map(report).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|_| {
            let (facts, is_over) = (tables.facts.clone(), Arc::clone(&is_over));
            let function = start_car_bridge(programs, &tables);
            thread::spawn(move || consume(function, &facts, &is_over))
        })
        .collect();
    tables.counts.take();
    let started = Instant::now();
    let invoking = tokio::task::spawn_blocking(move || invoke_all(functions, events));
    let (_functions, results) = invoking.await.expect("workers finish");
    let (logged_secs, logged) = wait_for_log(&tables, started).await;
    is_over.store(true, Ordering::SeqCst);
    consumers.into_iter().for_each(|consumer| consumer.join().expect("a consumer"));
    let mut times: Vec<f64> = results.iter().map(|(_, ms, _)| *ms).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let mut answers: BTreeMap<String, u64> = BTreeMap::new();
    for (_, _, response) in &results {
        *answers.entry(status_of(response)).or_default() += 1;
    }
    let count = |status: &str| answers.get(status).copied().unwrap_or(0);
    let (deferred, transactions) =
        (count("throttled_delayed"), tables.counts.take().remove("transactions").unwrap_or(0));
    let of_facts = transactions.saturating_sub(count("applied") + count("anomaly"));
    HotPullRequest {
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        deferred,
        logged_secs,
        facts_per_transaction: deferred as f64 / of_facts.max(1) as f64,
        lost: REPORTS - logged.min(REPORTS),
    }
}

fn start_car_bridge(programs: &Programs, tables: &Tables) -> Function {
    let mut command = Command::new(programs.release.join("car-bridge"));
    // Facts make no requests to GitHub.
    command
        .env("SUTURE_CONFIG", programs.root.join("tests/bench/suture.toml"))
        .env("SUTURE_GITHUB_API_URL", "http://127.0.0.1:9")
        .env("SUTURE_GITHUB_TOKEN", "none");
    Function::start(command.envs(tables.environment()))
}

/// The event source mapping: waits for the first message, fills the batch for a second, invokes, and gives failed messages back.
fn consume(mut function: Function, facts: &QueuedFacts, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        let mut batch = facts.take(BATCH);
        if batch.is_empty() {
            thread::sleep(Duration::from_millis(20));
            continue;
        }
        let until = Instant::now() + WINDOW;
        while batch.len() < BATCH && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
            batch.extend(facts.take(BATCH - batch.len()));
        }
        let record = |(n, body): (usize, &String)| {
            json!({
                "messageId": n.to_string(), "receiptHandle": n.to_string(), "body": body, "md5OfBody": "",
                "attributes": {"ApproximateReceiveCount": "1"}, "messageAttributes": {}, "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:facts", "awsRegion": "us-east-1",
            })
        };
        let records: Vec<Value> = batch.iter().enumerate().map(record).collect();
        let response = function.invoke(&json!({"Records": records}).to_string());
        for failure in response["batchItemFailures"].as_array().into_iter().flatten() {
            let place: Option<usize> = failure["itemIdentifier"].as_str().and_then(|id| id.parse().ok());
            let body = place.and_then(|place| batch.get(place)).expect("a message of the batch");
            facts.put(body.clone(), Duration::from_secs(30));
        }
    }
}

/// Waits until all reports are in the log. Returns the seconds, and how many are there.
async fn wait_for_log(tables: &Tables, started: Instant) -> (f64, usize) {
    let store = tables.store().await;
    let pr: PrId = PR.parse().expect("a pull request");
    loop {
        let log = queries::events(&store, &pr, false, None, 1_000, Timestamp::now()).await.expect("a store");
        let begins = delivery_id(2, 0)[..8].to_owned();
        let logged =
            log.entries.iter().filter(|event| event.hop == 0 && event.id.as_str().starts_with(&begins)).count();
        if logged >= REPORTS || started.elapsed() > PATIENCE {
            return (started.elapsed().as_secs_f64(), logged);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
