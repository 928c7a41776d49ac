//! Measures webhooks, cold and warm: Suture's release binary and the two peers, behind the same Runtime API, on the same tables, with
//! the same events. Also measures the log bytes of a rejected webhook.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tests::local_aws::Dynoxide;

use crate::lambda::Function;
use crate::payloads::{Delivery, SECRET, delivery_id, examples, gateway_event};
use crate::tables::{PEER_TABLES, Tables, requests};

/// The measured program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Suture,
    Probot,
    Powertools,
}

/// The paths of the programs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) root: PathBuf,
    /// The folder of the release binaries.
    pub(crate) release: PathBuf,
    /// Probot's folder.
    pub(crate) probot: PathBuf,
    /// The folder with the Python interpreter.
    pub(crate) python: PathBuf,
}

impl Programs {
    /// Suture's configuration for the benchmarks: it handles the examples' author, and no limit delays anything.
    fn config(&self) -> PathBuf {
        self.root.join("tests/bench/suture.toml")
    }

    /// Starts a process of this program on these tables.
    pub(crate) fn start(&self, program: Program, tables: &Tables) -> Function {
        let mut command = match program {
            Program::Suture => {
                let mut command = Command::new(self.release.join("webhook"));
                command.env("SUTURE_CONFIG", self.config()).env("SUTURE_WEBHOOK_SECRET", SECRET);
                command
            }
            Program::Probot => {
                let mut command = Command::new("node");
                command.arg(self.probot.join("loop.mjs")).current_dir(&self.probot);
                command.env("NODE_ENV", "production").env("APP_ID", "1").env("WEBHOOK_SECRET", SECRET);
                command.env("PRIVATE_KEY_PATH", self.probot.join("key.pem"));
                command.env("LOG_FORMAT", "json").env("LOG_LEVEL", "info");
                command
            }
            Program::Powertools => {
                let mut command = Command::new(self.python.join("python"));
                command.arg(self.root.join("tests/bench/peers/loop.py"));
                command.env("WEBHOOK_SECRET", SECRET).env("POWERTOOLS_LOG_LEVEL", "INFO");
                command
            }
        };
        Function::start(command.envs(tables.environment()).envs(PEER_TABLES))
    }
}

/// The measurements of one program.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) init_ms: f64,
    pub(crate) first_ms: f64,
    pub(crate) warm_ms: f64,
    /// Only events that are recorded.
    pub(crate) recorded_ms: f64,
    pub(crate) peak_mb: f64,
    pub(crate) threads: f64,
    pub(crate) requests: f64,
    pub(crate) recorded_requests: f64,
    pub(crate) most_requests: u64,
    pub(crate) counter: f64,
    pub(crate) sha_rows: f64,
    pub(crate) rejected_bytes: f64,
    pub(crate) statuses: BTreeMap<String, u64>,
    /// The most requests per kind of event, without the separately counted ones.
    pub(crate) kinds: BTreeMap<String, u64>,
}

impl Figures {
    /// Combines two measurements: the shorter times and the larger peak memory.
    pub(crate) fn or_less_disturbed(mut self, other: Self) -> Self {
        self.init_ms = self.init_ms.min(other.init_ms);
        self.first_ms = self.first_ms.min(other.first_ms);
        self.warm_ms = self.warm_ms.min(other.warm_ms);
        self.recorded_ms = self.recorded_ms.min(other.recorded_ms);
        self.peak_mb = self.peak_mb.max(other.peak_mb);
        self
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "init_cpu_ms": round(self.init_ms), "first_event_cpu_ms": round(self.first_ms),
            "warm_cpu_ms_per_event": round(self.warm_ms), "warm_cpu_ms_per_recorded_event": round(self.recorded_ms),
            "peak_rss_mb": round(self.peak_mb), "threads": self.threads, "requests_per_event": round(self.requests),
            "requests_per_recorded_event": round(self.recorded_requests), "most_requests_of_one_event": self.most_requests,
            "counter_requests_per_event": round(self.counter), "sha_row_requests_per_event": round(self.sha_rows),
            "log_bytes_per_rejected": round(self.rejected_bytes), "answers": self.statuses, "requests_by_kind": self.kinds,
        })
    }
}

pub(crate) fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Kinds of events that Suture records for the example pull request; the peers record them too.
const RECORDED: [&str; 4] =
    ["pull_request.opened", "check_run.created", "check_run.completed", "pull_request.converted_to_draft"];

/// Measures one program: `cold` starts, then `rounds` rounds of the 51 events.
pub(crate) async fn measure(programs: &Programs, program: Program, cold: u32, rounds: u64) -> Figures {
    let tables = Tables::new(Dynoxide::in_memory().await).await;
    let examples = examples(&programs.root);
    let mut figures = Figures::default();
    // A start is short, so it is measured several times; the minimum is the least disturbed.
    (figures.init_ms, figures.first_ms) = (f64::MAX, f64::MAX);
    for n in 0..cold {
        let mut function = programs.start(program, &tables);
        let opened = examples[0].about(900_000 + u64::from(n)).gateway_event(&delivery_id(900_000, n as usize));
        function.invoke(&opened);
        figures.init_ms = figures.init_ms.min(function.init_ms);
        figures.first_ms = figures.first_ms.min(function.cpu_ms() - function.init_ms);
    }
    let mut function = programs.start(program, &tables);
    // Two uncounted rounds warm up just-in-time compilers and caches.
    warm_rounds(&mut function, &examples, 1, 2);
    tables.counts.take();
    by_kind(&mut function, &tables, &examples, &mut figures);
    tables.counts.take();
    let before = function.cpu_ms();
    let statuses = warm_rounds(&mut function, &examples, 100, rounds);
    let events = (rounds * 51) as f64;
    figures.warm_ms = (function.cpu_ms() - before) / events;
    let counts = tables.counts.take();
    figures.statuses = statuses;
    figures.requests = requests(&counts) as f64 / events;
    figures.counter = counts.get("counter").copied().unwrap_or(0) as f64 / events;
    figures.sha_rows = counts.get("SHA row").copied().unwrap_or(0) as f64 / events;
    recorded(&mut function, &tables, &examples, rounds, &mut figures);
    (figures.peak_mb, figures.threads) = (function.peak_mb(), function.threads());
    figures.rejected_bytes = rejected(&mut function, &examples);
    figures
}

/// Runs `rounds` rounds, each for its own pull request. Returns how often each status was returned.
fn warm_rounds(function: &mut Function, examples: &[Delivery], first: u64, rounds: u64) -> BTreeMap<String, u64> {
    let mut statuses = BTreeMap::new();
    for round in first..first + rounds {
        for (place, example) in examples.iter().enumerate() {
            let answer = function.invoke(&example.about(round).gateway_event(&delivery_id(round, place)));
            *statuses.entry(status_of(&answer)).or_default() += 1;
        }
    }
    statuses
}

fn status_of(answer: &Value) -> String {
    assert_eq!(answer["statusCode"], 200, "{answer}");
    let body: Value = serde_json::from_str(answer["body"].as_str().unwrap_or("null")).unwrap_or_default();
    body["status"].as_str().unwrap_or("ok").to_owned()
}

/// Runs one round and counts the requests of each event.
fn by_kind(function: &mut Function, tables: &Tables, examples: &[Delivery], figures: &mut Figures) {
    for (place, example) in examples.iter().enumerate() {
        function.invoke(&example.about(50).gateway_event(&delivery_id(50, place)));
        let made = requests(&tables.counts.take());
        figures.most_requests = figures.most_requests.max(made);
        let most = figures.kinds.entry(example.kind.clone()).or_default();
        *most = (*most).max(made);
    }
}

/// Measures only events that all programs record, each for a new pull request.
fn recorded(function: &mut Function, tables: &Tables, examples: &[Delivery], rounds: u64, figures: &mut Figures) {
    let chosen: Vec<&Delivery> =
        RECORDED.iter().filter_map(|kind| examples.iter().find(|example| example.kind == *kind)).collect();
    tables.counts.take();
    let before = function.cpu_ms();
    let mut statuses = BTreeMap::<String, u64>::new();
    for round in 10_000..10_000 + rounds * 8 {
        for (place, example) in chosen.iter().enumerate() {
            let answer = function.invoke(&example.about(round).gateway_event(&delivery_id(round, place)));
            *statuses.entry(status_of(&answer)).or_default() += 1;
        }
    }
    let events = (rounds * 8 * chosen.len() as u64) as f64;
    figures.recorded_ms = (function.cpu_ms() - before) / events;
    figures.recorded_requests = requests(&tables.counts.take()) as f64 / events;
    for (status, count) in statuses {
        *figures.statuses.entry(format!("recorded: {status}")).or_default() += count;
    }
}

/// The log bytes of a webhook with a wrong signature.
fn rejected(function: &mut Function, examples: &[Delivery]) -> f64 {
    let body = examples[0].body();
    let signature = format!("sha256={}", "0".repeat(64));
    let before = function.output().len();
    let count = 20;
    for n in 0..count {
        let event = gateway_event("pull_request", &delivery_id(700_000, n), &signature, &body);
        let answer = function.invoke(&event);
        assert_ne!(answer["statusCode"], 200, "{answer}");
    }
    (function.output().len() - before) as f64 / count as f64
}

/// The folders of Probot and of the Python interpreter.
pub(crate) fn peers(root: &Path) -> (PathBuf, PathBuf) {
    let fetched = Command::new(root.join("scripts/fetch-bench-peers")).output().expect("a shell");
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    let text = String::from_utf8(fetched.stdout).expect("two paths");
    let mut lines = text.lines().map(PathBuf::from);
    (lines.next().expect("Probot's folder"), lines.next().expect("Python's folder"))
}
