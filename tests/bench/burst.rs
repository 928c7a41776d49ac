//! A burst: as many webhooks as two cores take, doubled and shuffled, onto a database on a file, which is the local default's
//! store; four processes work them off. Then the tables are read: nothing may be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use domain::id::PrId;
use domain::state::State;
use jiff::Timestamp;
use platform::store::Store;
use platform::{queries, schema};
use serde_json::{Value, json};
use tests::local_aws::{Dynoxide, Folder};

use crate::lambda::{Function, work_off};
use crate::payloads::{Delivery, delivery_id, examples};
use crate::tables::Tables;
use crate::webhooks::{Programs, Who, round};

/// How many processes work at once.
const PROCESSES: usize = 4;
/// What happens to each pull request of a burst.
const LIFE: [&str; 5] = [
    "pull_request.opened",
    "check_run.created",
    "check_run.completed",
    "pull_request_review.submitted",
    "pull_request.closed",
];

/// How it went.
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

/// Who is told what, when.
struct Told {
    number: u64,
    id: String,
    event: String,
}

/// Doubled every tenth time, and shuffled the same way each time.
fn told(examples: &[Delivery], count: usize) -> Vec<Told> {
    let find = |kind: &str| examples.iter().find(|example| example.kind == kind).expect("an example");
    let life: Vec<Delivery> = LIFE.iter().map(|kind| find(kind).clone()).collect();
    let merged = |delivery: Delivery| {
        delivery
            .with("/pull_request/merged", json!(true))
            .with("/pull_request/merged_at", json!("2019-05-15T15:21:18Z"))
            .with("/pull_request/merged_by", json!({"login": "automerge-bot[bot]", "type": "Bot"}))
    };
    let distinct = count * 9 / 10;
    let mut all = Vec::new();
    for n in 0..count {
        // The last tenth is what was sent before.
        let n = if n < distinct { n } else { (n - distinct) * 9 };
        let (number, place) = ((n / LIFE.len()) as u64 + 1, n % LIFE.len());
        let delivery = life[place].about(number);
        let delivery = if place == LIFE.len() - 1 { merged(delivery) } else { delivery };
        let id = delivery_id(number, place);
        all.push(Told { number, event: delivery.gateway_event(&id), id });
    }
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for n in (1..all.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all.swap(n, (seed >> 33) as usize % (n + 1));
    }
    // What is not known to be ours is not listened to, and a sweep finds it later; so all are opened before the rest comes.
    all.sort_by_key(|one| !one.id.ends_with(&format!("{:012x}", 0)));
    all
}

/// Lets so many come as fast as they can be taken.
pub(crate) async fn burst(programs: &Programs, who: Who, count: usize) -> Burst {
    let folder = Folder::new();
    let tables = Tables::new(Dynoxide::on_file(&folder.path().join("tables.db")).await).await;
    let told = told(&examples(&programs.root), count);
    let functions: Vec<Function> = (0..PROCESSES).map(|_| programs.start(who, &tables)).collect();
    let before: f64 = functions.iter().map(Function::cpu_ms).sum();
    let events: Vec<String> = told.iter().map(|one| one.event.clone()).collect();
    let began = Instant::now();
    let working = tokio::task::spawn_blocking(move || work_off(functions, events));
    let (functions, took) = working.await.expect("workers");
    let seconds = began.elapsed().as_secs_f64();
    let cpu_ms = functions.iter().map(Function::cpu_ms).sum::<f64>() - before;
    let mut times: Vec<f64> = took.iter().map(|(_, ms, _)| *ms).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let mut answers = BTreeMap::new();
    for (_, _, answer) in &took {
        assert_eq!(answer["statusCode"], 200, "{answer}");
        *answers.entry(word(answer)).or_default() += 1;
    }
    let lost = match who {
        Who::Suture => lost(&tables, &told, &took).await,
        // The peers' own tables are not judged: they have no rule that says what must be there.
        Who::Probot | Who::Powertools => 0,
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

fn word(answer: &Value) -> String {
    let body: Value = serde_json::from_str(answer["body"].as_str().unwrap_or("null")).unwrap_or_default();
    body["status"].as_str().unwrap_or("ok").to_owned()
}

/// How much of what was acknowledged cannot be found: a delivery that is answered `applied` or `anomaly` is in the log, once, and
/// each pull request of which everything was told has been merged.
async fn lost(tables: &Tables, told: &[Told], took: &[(usize, f64, Value)]) -> usize {
    let store = tables.store().await;
    let now = Timestamp::now();
    let mut recorded: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    let mut ends: BTreeSet<u64> = BTreeSet::new();
    let mut lost = 0;
    for (place, _, answer) in took {
        let one = &told[*place];
        if ["applied", "anomaly"].contains(&word(answer).as_str())
            && !recorded.entry(one.number).or_default().insert(&one.id)
        {
            // Twice is as wrong as never.
            lost += 1;
        }
        if one.id.ends_with(&format!("{:012x}", LIFE.len() - 1)) {
            ends.insert(one.number);
        }
    }
    for (number, ids) in &recorded {
        let pr: PrId = format!("Codertocat/Hello-World#{number}").parse().expect("a pull request");
        let log = queries::events(&store, &pr, false, None, 100, now).await.expect("a store");
        let logged: BTreeSet<String> = log.entries.iter().map(|event| event.id.to_string()).collect();
        lost += ids.iter().filter(|id| !logged.contains(**id)).count();
        if ends.contains(number) {
            let key = schema::record_key(&pr);
            let row = store.get(&key, Timestamp::UNIX_EPOCH).await.expect("a store");
            let record =
                row.map(|row| schema::read::<domain::pull_request::PullRequest>(&key, &row).expect("a record"));
            lost += usize::from(record.is_none_or(|record| record.state != State::Merged));
        }
    }
    lost
}
