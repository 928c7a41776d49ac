//! Measures a sweep for growing numbers of open pull requests: the release binary of the reconciler behind the Runtime API, with the
//! tables, GitHub and Jenkins outside its process. One pull request in a hundred is stale, because Jenkins missed its webhook.

use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use domain::id::PrId;
use domain::policy::Policies;
use fakes::{FakeSettings, Fakes, Fault, NewPullRequest};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use platform::engine::Engine;
use platform::store::schema;
use platform::telemetry::MetricLog;
use serde_json::{Value, json};
use testbed::{MemoryStore, RecordingPublisher};
use tests::local_aws::{Dynoxide, client};
use webhook::github::BotIdentity;
use webhook::signature::SenderSecrets;
use webhook::{WebhookHandler, WebhookSecrets};

use crate::lambda::Function;
use crate::tables::{Tables, requests};
use crate::webhooks::{Programs, round};
use crate::wire::{Counts, Server};

/// The cost of a sweep.
#[derive(Debug, Clone)]
pub(crate) struct Cost {
    pub(crate) open: u64,
    pub(crate) stale: u64,
    pub(crate) index_entries: f64,
    pub(crate) github_requests: f64,
    pub(crate) jenkins_requests: f64,
    pub(crate) store_requests: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) sweep_cpu_ms: f64,
    pub(crate) peak_mb: f64,
    pub(crate) claimed: u64,
}

impl Cost {
    pub(crate) fn json(&self) -> Value {
        json!({
            "open": self.open, "stale": self.stale, "claimed": self.claimed,
            "index_entries_per_stale": round(self.index_entries), "github_requests_per_stale": round(self.github_requests),
            "jenkins_requests_per_stale": round(self.jenkins_requests),
            "store_requests_per_stale": round(self.store_requests), "cpu_ms_per_stale": round(self.cpu_ms),
            "cpu_ms": round(self.sweep_cpu_ms), "peak_rss_mb": round(self.peak_mb),
        })
    }
}

/// Measures one sweep with this many open pull requests.
pub(crate) async fn sweep(programs: &Programs, open: u64) -> Cost {
    let stale = (open / 100).max(1);
    let tables = Tables::new(Dynoxide::in_memory().await).await;
    let now = Timestamp::now();
    let settings = FakeSettings {
        start: now - SignedDuration::from_hours(2),
        secondary_limits: false,
        rate_limit: 1_000_000,
        graphql_limit: 1_000_000,
        // A token is issued at the fakes' start time and used two hours later.
        token_secs: 24 * 3600,
        ..FakeSettings::default()
    };
    let fakes = Arc::new(Mutex::new(Fakes::new(7, settings)));
    let servers = fakes::serve(Arc::clone(&fakes)).await.expect("two free ports");
    let external = Counts::default();
    let (to_github, to_jenkins) = (external.clone(), external.clone());
    let github = Server::relaying(&servers.github_url, move |_, _| to_github.add("GitHub", 1));
    let jenkins = Server::relaying(&servers.jenkins_url, move |_, _| to_jenkins.add("Jenkins", 1));
    // The first sweep of a deployment lists all open pull requests; here there are none yet.
    let mut reconciler = start(programs, &tables, &github, &jenkins);
    sweep_once(&mut reconciler, false);
    open_stale(programs, &tables, &fakes, stale, now).await;
    open_fresh(&tables, open - stale, now).await;
    // GitHub computes mergeability at the first request. These pull requests were opened two hours ago, so a dry run makes that
    // request first.
    let clock = ClockThread::start(&fakes);
    sweep_once(&mut reconciler, true);
    tables.counts.take();
    external.take();
    let before = reconciler.cpu_ms();
    let summary = invoke_sweep(&mut reconciler, &json!({"schedule": "sweep", "slot": now}));
    let cpu_ms = reconciler.cpu_ms() - before;
    let (counts, external) = (tables.counts.take(), external.take());
    assert_eq!(summary["verified"].as_u64(), Some(stale), "{summary}");
    let per = |count: u64| count as f64 / stale as f64;
    let remedies: u64 =
        summary["dispatched"].as_object().into_iter().flat_map(|all| all.values()).filter_map(Value::as_u64).sum();
    assert_eq!(remedies, stale, "each stale pull request gets a remedy: {summary}");
    drop(clock);
    servers.stop().await;
    Cost {
        open,
        stale,
        index_entries: per(counts.get("due entries").copied().unwrap_or(0)),
        github_requests: per(external.get("GitHub").copied().unwrap_or(0)),
        jenkins_requests: per(external.get("Jenkins").copied().unwrap_or(0)),
        store_requests: per(requests(&counts) + counts.get("counter").copied().unwrap_or(0)),
        cpu_ms: cpu_ms / stale as f64,
        sweep_cpu_ms: cpu_ms,
        peak_mb: reconciler.peak_mb(),
        claimed: remedies,
    }
}

fn start(programs: &Programs, tables: &Tables, github: &Server, jenkins: &Server) -> Function {
    let settings = FakeSettings::default();
    let mut command = Command::new(programs.release.join("reconciler"));
    command
        .env("SUTURE_CONFIG", programs.root.join("tests/bench/suture.toml"))
        .env("SUTURE_GITHUB_API_URL", github.url())
        .env("SUTURE_GITHUB_APP_ID", settings.app_id.to_string())
        .env("SUTURE_GITHUB_PRIVATE_KEY", private_key())
        .env("SUTURE_JENKINS_URL", jenkins.url())
        .env("SUTURE_JENKINS_USER", &settings.jenkins_user)
        .env("SUTURE_JENKINS_TOKEN", &settings.jenkins_token);
    Function::start(command.envs(tables.environment()))
}

/// A key generated for this run; the fake GitHub accepts any.
fn private_key() -> String {
    let key = KeyPair::generate(KeySize::Rsa2048).expect("a key");
    let der: Pkcs8V1Der<'_> = key.as_der().expect("a key");
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", BASE64_STANDARD.encode(der.as_ref()))
}

/// Advances the fakes' clock in real time until dropped.
struct ClockThread(Arc<AtomicBool>);

impl ClockThread {
    fn start(fakes: &Arc<Mutex<Fakes>>) -> Self {
        let (fakes, stopped) = (Arc::clone(fakes), Arc::new(AtomicBool::new(false)));
        let thread = Self(Arc::clone(&stopped));
        std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                fakes.lock().expect("mutex not poisoned").advance_to(Timestamp::now());
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        thread
    }
}

impl Drop for ClockThread {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs a requested sweep: unlike a scheduled one, it always lists the open pull requests.
fn sweep_once(reconciler: &mut Function, dry_run: bool) -> Value {
    let id = format!("bench-{}", Timestamp::now().as_nanosecond());
    let detail = json!({"dry_run": dry_run});
    invoke_sweep(
        reconciler,
        &json!({"id": id, "detail-type": "ReconcileRequested", "source": "suture", "detail": detail}),
    )
}

fn invoke_sweep(reconciler: &mut Function, event: &Value) -> Value {
    let response = reconciler.invoke(&event.to_string());
    assert_eq!(response["status"], "completed", "{response}: {}", reconciler.output());
    response["summary"].clone()
}

/// Opens pull requests two hours ago whose webhooks Jenkins missed; Suture received all of its webhooks.
async fn open_stale(programs: &Programs, tables: &Tables, fakes: &Mutex<Fakes>, count: u64, now: Timestamp) {
    let text = std::fs::read_to_string(programs.root.join("tests/bench/suture.toml")).expect("a configuration");
    let policies = Policies::parse(&text).expect("a configuration");
    let secrets = SenderSecrets::parse(&FakeSettings::default().webhook_secret).expect("a secret");
    let senders = WebhookSecrets { github: secrets, jenkins: None, bots: std::collections::BTreeMap::new() };
    let log = MetricLog::writing_to(std::io::sink());
    let webhook = WebhookHandler::new(
        tables.store().await,
        RecordingPublisher::default(),
        policies,
        BotIdentity::default(),
        senders,
        log,
    );
    let locked = || fakes.lock().expect("mutex not poisoned");
    for _ in 0..count {
        let pr = locked().open_pr(NewPullRequest::default());
        locked().force(Fault::JenkinsDeaf, &pr);
    }
    loop {
        let next = locked().next_event_at().filter(|at| *at <= now);
        locked().advance_to(next.unwrap_or(now));
        let deliveries = locked().take_webhooks();
        for delivery in deliveries {
            let mut request = Request::builder().method("POST").uri("/webhook/github");
            for (name, value) in &delivery.headers {
                request = request.header(name, value);
            }
            let (parts, ()) = request.body(()).expect("a request").into_parts();
            let at = locked().now();
            let response = webhook.handle(&parts, &delivery.body, at).await;
            assert!(response.status().is_success(), "{}", response.body());
        }
        if next.is_none() {
            return;
        }
    }
}

/// Opens pull requests just now: writes the engine's records to the table in bulk.
async fn open_fresh(tables: &Tables, count: u64, now: Timestamp) {
    let direct = client(tables.dynamo.endpoint());
    let numbers: Vec<u64> = (1..=count).collect();
    for chunk in numbers.chunks(25) {
        let engine = Engine::new(MemoryStore::new(), RecordingPublisher::default(), tests::acting());
        let mut puts = Vec::new();
        for number in chunk {
            let pr: PrId = format!("acme/busy#{number}").parse().expect("a pull request");
            let opened = tests::opened(&pr, format!("d{number}"), now);
            let applied = engine.apply(&opened, now).await.expect("a store");
            let row = schema::record_row(&applied.record.expect("a record")).expect("a row");
            let mut item: HashMap<String, AttributeValue> = row.into();
            item.insert("pk".to_owned(), AttributeValue::S(schema::record_key(&pr).partition));
            let put = PutRequest::builder().set_item(Some(item)).build().expect("an item");
            puts.push(WriteRequest::builder().put_request(put).build());
        }
        direct.batch_write_item().request_items(&tables.names.state, puts).send().await.expect("written");
    }
}

/// An SVG plot of the cost per stale pull request over the number of open ones.
pub(crate) fn plot(costs: &[Cost]) -> String {
    let (width, height, left, top, row) = (760.0, 470.0, 190.0, 56.0, 96.0);
    let x = |open: u64| left + ((open as f64).log10() - 2.0) / 3.0 * (width - left - 60.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"13\" role=\"img\" aria-label=\"What a sweep costs per stale pull request, for 100 to 100,000 open ones\">\n\
         <style>\n\
         :root {{ color-scheme: light dark; --ink: #1f2328; --soft: #6e7781; --line: #d0d7de; --mark: #0969da; --limit: #cf222e; --page: #ffffff; }}\n\
         @media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --mark: #4493f8; --limit: #f85149; --page: #0d1117; }} }}\n\
         .page {{ fill: var(--page); }} text {{ fill: var(--ink); }} .soft {{ fill: var(--soft); }} .axis {{ stroke: var(--line); }}\n\
         .mark {{ stroke: var(--mark); fill: none; stroke-width: 2; }} .dot {{ fill: var(--mark); }}\n\
         .limit {{ stroke: var(--limit); stroke-dasharray: 5 4; }} .limit-text {{ fill: var(--limit); }}\n\
         </style>\n<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"600\">A sweep costs what is stale, not what is open</text>\n\
         <text x=\"16\" y=\"42\" class=\"soft\">1 % of the open pull requests is stale; limits dashed</text>\n"
    );
    type Value = fn(&Cost) -> f64;
    let rows: [(&str, &str, Value, Option<f64>); 4] = [
        ("index entries read", "per stale one", |cost| cost.index_entries, Some(1.05)),
        ("GitHub requests", "per stale one", |cost| cost.github_requests, Some(0.04)),
        ("CPU, ms", "per stale one", |cost| cost.cpu_ms, None),
        ("peak memory, MB", "of the process", |cost| cost.peak_mb, Some(128.0)),
    ];
    for (place, (name, under, value, limit)) in rows.iter().enumerate() {
        let bottom = top + row * (place as f64 + 1.0) - 8.0;
        let most = costs.iter().map(value).fold(limit.unwrap_or(0.0), f64::max) * 1.15;
        let y = |amount: f64| bottom - amount / most * (row - 30.0);
        svg.push_str(&format!(
            "<text x=\"16\" y=\"{:.0}\">{name}</text><text x=\"16\" y=\"{:.0}\" class=\"soft\">{under}</text>\n\
             <line class=\"axis\" x1=\"{left}\" y1=\"{bottom}\" x2=\"{}\" y2=\"{bottom}\"/>\n",
            bottom - 34.0,
            bottom - 17.0,
            width - 40.0
        ));
        if let Some(limit) = limit {
            svg.push_str(&format!(
                "<line class=\"limit\" x1=\"{left}\" y1=\"{0:.1}\" x2=\"{1}\" y2=\"{0:.1}\"/><text class=\"limit-text\" x=\"{2}\" \
                 y=\"{3:.1}\" text-anchor=\"start\" font-size=\"11\">{limit}</text>\n",
                y(*limit),
                width - 40.0,
                width - 36.0,
                y(*limit) + 4.0
            ));
        }
        let points: Vec<String> =
            costs.iter().map(|cost| format!("{:.1},{:.1}", x(cost.open), y(value(cost)))).collect();
        svg.push_str(&format!("<polyline class=\"mark\" points=\"{}\"/>\n", points.join(" ")));
        for cost in costs {
            let amount = value(cost);
            let shown = if amount >= 10.0 { format!("{amount:.0}") } else { format!("{amount:.2}") };
            svg.push_str(&format!(
                "<circle class=\"dot\" cx=\"{0:.1}\" cy=\"{1:.1}\" r=\"3.5\"/><text x=\"{0:.1}\" y=\"{2:.1}\" text-anchor=\"middle\" \
                 font-size=\"11\">{shown}</text>\n",
                x(cost.open),
                y(amount),
                if y(amount) > bottom - 16.0 { y(amount) - 8.0 } else { y(amount) + 17.0 }
            ));
        }
    }
    for cost in costs {
        let stale = if cost.stale == 1 { "1 stale".to_owned() } else { format!("{} stale", thousands(cost.stale)) };
        svg.push_str(&format!(
            "<text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">{2} open</text><text x=\"{0:.1}\" y=\"{3}\" \
             text-anchor=\"middle\" class=\"soft\" font-size=\"11\">{stale}</text>\n",
            x(cost.open),
            height - 14.0,
            thousands(cost.open),
            height - 0.5
        ));
    }
    svg.push_str("</svg>\n");
    svg
}

/// `100,000`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
