//! Measures a burst: four processes handle webhooks, some of them duplicated and all shuffled, as fast as two cores allow, on a
//! database file, which is the store of the local default. Afterwards the tables are checked: no event may be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use domain::id::PrId;
use domain::state::State;
use jiff::Timestamp;
use platform::store::Store;
use platform::store::queries;
use platform::store::schema;
use serde_json::{Value, json};
use tests::local_aws::{Dynoxide, Folder};

use crate::lambda::{Function, invoke_all};
use crate::payloads::{Delivery, delivery_id, examples};
use crate::tables::Tables;
use crate::webhooks::{Program, Programs, round};

/// The number of concurrent processes.
const PROCESSES: usize = 4;
/// The events of each pull request of a burst.
const LIFECYCLE: [&str; 5] = [
    "pull_request.opened",
    "check_run.created",
    "check_run.completed",
    "pull_request_review.submitted",
    "pull_request.closed",
];

/// The measurements of a burst.
#[derive(Debug, Clone)]
pub(crate) struct Burst {
    pub(crate) webhooks: usize,
    pub(crate) per_second: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) lost: usize,
    pub(crate) answers: BTreeMap<String, u64>,
}

impl Burst {
    pub(crate) fn json(&self) -> Value {
        json!({
            "webhooks": self.webhooks, "per_second": round(self.per_second), "cpu_ms_per_webhook": round(self.cpu_ms),
            "p50_ms": round(self.p50_ms), "p99_ms": round(self.p99_ms), "lost": self.lost, "answers": self.answers,
        })
    }
}

/// One webhook of a burst.
struct BurstDelivery {
    number: u64,
    id: String,
    event: String,
}

/// The webhooks of a burst: the last tenth repeats earlier ones, and the shuffle is the same in each run.
fn burst_deliveries(examples: &[Delivery], count: usize) -> Vec<BurstDelivery> {
    let find = |kind: &str| examples.iter().find(|example| example.kind == kind).expect("an example");
    let lifecycle: Vec<Delivery> = LIFECYCLE.iter().map(|kind| find(kind).clone()).collect();
    let merged = |delivery: Delivery| {
        delivery
            .with("/pull_request/merged", json!(true))
            .with("/pull_request/merged_at", json!("2019-05-15T15:21:18Z"))
            .with("/pull_request/merged_by", json!({"login": "automerge-bot[bot]", "type": "Bot"}))
    };
    let distinct = count * 9 / 10;
    let mut all = Vec::new();
    for n in 0..count {
        // The last tenth repeats earlier deliveries.
        let n = if n < distinct { n } else { (n - distinct) * 9 };
        let (number, place) = ((n / LIFECYCLE.len()) as u64 + 1, n % LIFECYCLE.len());
        let delivery = lifecycle[place].about(number);
        let delivery = if place == LIFECYCLE.len() - 1 { merged(delivery) } else { delivery };
        let id = delivery_id(number, place);
        all.push(BurstDelivery { number, event: delivery.gateway_event(&id), id });
    }
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for n in (1..all.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all.swap(n, (seed >> 33) as usize % (n + 1));
    }
    // Events of unknown pull requests are ignored until a sweep finds them, so all `opened` events come first.
    all.sort_by_key(|one| !one.id.ends_with(&format!("{:012x}", 0)));
    all
}

/// Runs a burst of `count` webhooks.
pub(crate) async fn burst(programs: &Programs, program: Program, count: usize) -> Burst {
    let folder = Folder::new();
    let tables = Tables::new(Dynoxide::on_file(&folder.path().join("tables.db")).await).await;
    let deliveries = burst_deliveries(&examples(&programs.root), count);
    let functions: Vec<Function> = (0..PROCESSES).map(|_| programs.start(program, &tables)).collect();
    let before: f64 = functions.iter().map(Function::cpu_ms).sum();
    let events: Vec<String> = deliveries.iter().map(|delivery| delivery.event.clone()).collect();
    let started = Instant::now();
    let invoking = tokio::task::spawn_blocking(move || invoke_all(functions, events));
    let (functions, results) = invoking.await.expect("workers finish");
    let seconds = started.elapsed().as_secs_f64();
    let cpu_ms = functions.iter().map(Function::cpu_ms).sum::<f64>() - before;
    let mut times: Vec<f64> = results.iter().map(|(_, ms, _)| *ms).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let mut answers = BTreeMap::new();
    for (_, _, response) in &results {
        assert_eq!(response["statusCode"], 200, "{response}");
        *answers.entry(status_of(response)).or_default() += 1;
    }
    let lost = match program {
        Program::Suture => count_lost(&tables, &deliveries, &results).await,
        // The peers have no rule for the content of their tables, so theirs are not checked.
        Program::Probot | Program::Powertools => 0,
    };
    Burst {
        webhooks: count,
        per_second: count as f64 / seconds,
        cpu_ms: cpu_ms / count as f64,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        lost,
        answers,
    }
}

pub(crate) fn status_of(response: &Value) -> String {
    let body: Value = serde_json::from_str(response["body"].as_str().unwrap_or("null")).unwrap_or_default();
    body["status"].as_str().unwrap_or("ok").to_owned()
}

/// Counts lost deliveries: one answered `applied` or `anomaly` must be in the log exactly once, and a pull request whose `closed`
/// event was delivered must be merged.
async fn count_lost(tables: &Tables, deliveries: &[BurstDelivery], results: &[(usize, f64, Value)]) -> usize {
    let store = tables.store().await;
    let now = Timestamp::now();
    let mut recorded: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    let mut closed: BTreeSet<u64> = BTreeSet::new();
    let mut lost = 0;
    for (place, _, response) in results {
        let delivery = &deliveries[*place];
        if ["applied", "anomaly"].contains(&status_of(response).as_str())
            && !recorded.entry(delivery.number).or_default().insert(&delivery.id)
        {
            // Applied twice is an error too.
            lost += 1;
        }
        if delivery.id.ends_with(&format!("{:012x}", LIFECYCLE.len() - 1)) {
            closed.insert(delivery.number);
        }
    }
    for (number, ids) in &recorded {
        let pr: PrId = format!("Codertocat/Hello-World#{number}").parse().expect("a pull request");
        let log = queries::events(&store, &pr, false, None, 100, now).await.expect("a store");
        let logged: BTreeSet<String> = log.entries.iter().map(|event| event.id.to_string()).collect();
        lost += ids.iter().filter(|id| !logged.contains(**id)).count();
        if closed.contains(number) {
            let key = schema::record_key(&pr);
            let row = store.get(&key, Timestamp::UNIX_EPOCH).await.expect("a store");
            let record =
                row.map(|row| schema::read::<domain::pull_request::PullRequest>(&key, &row).expect("a record"));
            lost += usize::from(record.is_none_or(|record| record.state != State::Merged));
        }
    }
    lost
}
