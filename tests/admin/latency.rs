//! Latency of a status query, compared with reading the same rows directly.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use domain::signals::CheckVerdict;
use tests::local_aws::{self, Dynoxide};
use tests::{check, minute, opened, pr, start};

use crate::harness::{Caller, Harness, Options};

/// Measured requests per variant.
const SAMPLES: usize = 200;
/// Warm-up requests, not measured.
const WARMUP: usize = 20;

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The limit is 3 × at p99. A status reads the record, its vulnerability, its events and its runs; the baseline reads
/// them one after the other. Both are measured alternately, so that other load affects both. On a busy machine single
/// responses are late nevertheless, so the comparison with one Query asserts the median.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_costs_little_more_than_reading_its_rows() {
    let dynamo = Dynoxide::in_memory().await;
    let names = local_aws::fresh_names();
    let harness = Harness::on(dynamo.store_on(names.clone()).await, Options::default());
    harness.apply_fact(&opened(&pr(1), "d0", start())).await;
    for n in 0..60 {
        let name = format!("check-{}", n % 20);
        let verdict = if n % 2 == 0 { CheckVerdict::Running } else { CheckVerdict::Passed };
        harness.apply_fact(&check(&pr(1), format!("d{n}x"), &name, verdict, minute(1 + n))).await;
    }
    let client = local_aws::client(dynamo.endpoint());
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let query = async || {
        let events = client.query().table_name(&names.events).key_condition_expression("pr = :pr");
        let events = events.expression_attribute_values(":pr", text("acme/shop#1")).scan_index_forward(false);
        assert!(events.limit(50).send().await.unwrap().count() > 20);
    };
    let rows = async || {
        for key in ["PR#acme/shop#1", "VULN#acme/shop#main#CVE-2026-1234"] {
            let row = client.get_item().table_name(&names.state).key("pk", text(key)).consistent_read(true);
            assert!(row.send().await.unwrap().item.is_some(), "{key}");
        }
        query().await;
        let runs = client.query().table_name(&names.state).index_name("runs").key_condition_expression("run_of = :pr");
        let runs = runs.expression_attribute_values(":pr", text("acme/shop#1")).scan_index_forward(false);
        runs.limit(20).send().await.unwrap();
    };
    let ask = async || {
        let response = harness.get(Caller::Viewer, "/api/pr/shop/1/status").await;
        assert_eq!(response.status, 200);
    };
    let (mut single, mut by_hand, mut status) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..SAMPLES + WARMUP {
        // Advance a minute per hundred requests, so that the key's rate limit does not apply.
        harness.clock.set(minute(80 + i64::try_from(n / 100).unwrap()));
        let times = [timed(&query).await, timed(&rows).await, timed(&ask).await];
        if n >= WARMUP {
            single.push(times[0]);
            by_hand.push(times[1]);
            status.push(times[2]);
        }
    }
    let ratio = |one: Duration, other: Duration| one.as_secs_f64() / other.as_secs_f64();
    let [single, by_hand, status] = [single, by_hand, status].map(|times| (median(times.clone()), p99(times)));
    println!(
        "status: median {:?}, p99 {:?}; its rows by hand: {:?}, {:?} ({:.2}×, {:.2}×); its events alone: {:?}, {:?} ({:.2}×, {:.2}×)",
        status.0,
        status.1,
        by_hand.0,
        by_hand.1,
        ratio(status.0, by_hand.0),
        ratio(status.1, by_hand.1),
        single.0,
        single.1,
        ratio(status.0, single.0),
        ratio(status.1, single.1),
    );
    assert!(ratio(status.0, by_hand.0) <= 3.0, "median {:?} against {:?}", status.0, by_hand.0);
    assert!(ratio(status.0, single.0) <= 4.0, "median {:?} against {:?}", status.0, single.0);
    assert!(ratio(status.1, by_hand.1) <= 3.0, "p99 {:?} against {:?}", status.1, by_hand.1);
}

async fn timed(work: &impl AsyncFn()) -> Duration {
    let began = Instant::now();
    work().await;
    began.elapsed()
}
