//! Computes the AWS cost of one pull request from opened to merged, without and with a remedy. The fakes run in virtual time;
//! dynoxide reports requests and capacity units, and published messages are counted.

use std::sync::{Arc, Mutex, MutexGuard};

use car_bridge::{self, CarBridge};
use domain::policy::Policies;
use fakes::{FakeSettings, Fakes, Fault, NewPullRequest, PullState};
use http::Request;
use jiff::SignedDuration;
use platform::clock::Clock;
use platform::engine::Engine;
use platform::github::Credentials;
use platform::publish::Destination;
use platform::store::dynamo::DynamoStore;
use platform::store::{Store, Usage};
use platform::telemetry::MetricLog;
use reconciler::{Reconciler, SweepOutcome, SweepTrigger};
use serde_json::{Value, json};
use testbed::{FakeAccess, FaultTransport, ManualClock, RecordingPublisher, SharedFakes};
use tests::local_aws::Dynoxide;
use webhook::WebhookHandler;
use webhook::github::BotIdentity;

use crate::webhooks::round;

/// Prices in US dollars per million, us-east-1, as published in November 2026. Assumptions: on-demand capacity, no free tier.
const PRICES: [(&str, f64); 8] = [
    ("write units", 0.625),
    ("read units", 0.125),
    ("Lambda invocations", 0.20),
    ("HTTP API requests", 1.00),
    ("SQS requests", 0.40),
    ("EventBridge events", 1.00),
    ("SNS notices", 0.50),
    ("log kilobytes", 0.50),
];
/// A GB-second of Lambda on x86, in dollars.
const GB_SECOND: f64 = 0.000_016_666_7;
/// The assumed latency of each request of an invocation and its own computing time, in milliseconds.
const MS_PER_REQUEST: f64 = 5.0;
const MS_OF_ITS_OWN: f64 = 2.0;
/// The memory of a function, in GB.
const GB: f64 = 0.125;
/// The size of a webhook's log line, in kilobytes.
const LOG_KB: f64 = 0.5;

/// The resources that one pull request used.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lifecycle {
    pub(crate) name: &'static str,
    pub(crate) webhooks: u64,
    pub(crate) sweeps_that_saw_it: u64,
    pub(crate) store_requests: u64,
    pub(crate) units: f64,
    messages: u64,
    bus_events: u64,
    notices: u64,
    bridge_calls: u64,
    pub(crate) github_requests: u64,
    pub(crate) dollars_per_million: f64,
    pub(crate) minutes: i64,
    /// Requests and units of the webhook function, the Car Bridge and the reconciler, idle sweeps included.
    by_function: [(u64, f64); 3],
}

impl Lifecycle {
    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.name, "webhooks": self.webhooks, "sweeps_that_saw_it": self.sweeps_that_saw_it,
            "store_requests": self.store_requests, "capacity_units": round(self.units), "queue_messages": self.messages,
            "bus_events": self.bus_events, "notices": self.notices, "bridge_invocations": self.bridge_calls,
            "github_and_jenkins_requests": self.github_requests, "minutes_from_opened_to_merged": self.minutes,
            "dollars_per_million_webhooks": round(self.dollars_per_million),
            "requests_and_units_of_webhook_bridge_reconciler": self.by_function,
        })
    }

    fn price(&mut self, written: f64, read: f64) {
        let invocations = (self.webhooks + self.bridge_calls) as f64;
        let ms = invocations * MS_OF_ITS_OWN + (self.store_requests + self.messages) as f64 * MS_PER_REQUEST;
        let amounts = [
            written,
            read,
            invocations,
            self.webhooks as f64,
            // Send, receive and delete.
            self.messages as f64 * 3.0,
            self.bus_events as f64,
            self.notices as f64,
            invocations * LOG_KB,
        ];
        let dollars: f64 = PRICES.iter().zip(amounts).map(|((_, price), amount)| amount * price / 1e6).sum::<f64>()
            + ms / 1000.0 * GB * GB_SECOND;
        self.dollars_per_million = dollars / self.webhooks as f64 * 1e6;
    }
}

/// Suture on one table, in the fakes' time; each function has its own store and usage meter.
struct CostRun {
    fakes: SharedFakes,
    publisher: RecordingPublisher,
    webhook: WebhookHandler<Arc<DynamoStore>, RecordingPublisher>,
    bridge: CarBridge<Arc<DynamoStore>, RecordingPublisher>,
    sweep: Reconciler<Arc<DynamoStore>, RecordingPublisher>,
    stores: [Arc<DynamoStore>; 3],
    lifecycle: Lifecycle,
}

impl CostRun {
    async fn new(name: &'static str, dynamo: &Dynoxide) -> Self {
        let settings = FakeSettings { secondary_limits: false, ..FakeSettings::default() };
        let policies = Policies::parse("mode = \"act\"\nsweep.inventory_every = 100000").expect("a configuration");
        let mut access = FakeAccess::new(&settings, &settings.api_url, &settings.jenkins_url).expect("addresses");
        access.credentials = Credentials::token(&settings.tokens[0].0);
        let fakes = Arc::new(Mutex::new(Fakes::new(3, settings)));
        let transport = FaultTransport::default();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::of(&fakes));
        let github = access.github(transport.github(&fakes), Arc::clone(&clock));
        let jenkins = access.jenkins(transport.jenkins(&fakes), Arc::clone(&clock));
        let names = tests::local_aws::fresh_names();
        let stores = [
            Arc::new(dynamo.store_on(names.clone()).await),
            Arc::new(dynamo.store_on(names.clone()).await),
            Arc::new(dynamo.store_on(names).await),
        ];
        let publisher = RecordingPublisher::new(&Arc::default(), &fakes);
        let store = |n: usize| Arc::clone(&stores[n]);
        let clients = car_bridge::ExternalClients {
            github: github.clone(),
            jenkins: Some(jenkins.clone()),
            http: car_bridge::BotHttp::new(transport.github(&fakes), None),
            clock: Arc::clone(&clock),
        };
        Self {
            webhook: WebhookHandler::new(
                store(0),
                publisher.clone(),
                policies.clone(),
                BotIdentity::default(),
                access.senders,
                MetricLog::writing_to(std::io::sink()),
            ),
            bridge: CarBridge::new(Engine::new(store(1), publisher.clone(), policies.clone()), clients),
            sweep: Reconciler::new(store(2), publisher.clone(), policies, github, Some(jenkins), clock, Vec::new()),
            fakes,
            publisher,
            stores,
            lifecycle: Lifecycle { name, ..Lifecycle::default() },
        }
    }

    fn fakes(&self) -> MutexGuard<'_, Fakes> {
        self.fakes.lock().expect("mutex not poisoned")
    }

    /// The numbers of published messages, bus events and notices.
    fn published(&self) -> [u64; 3] {
        let mut counts = [0; 3];
        for message in self.publisher.sent() {
            let place = match message.destination {
                Destination::Queue { .. } => 0,
                Destination::Bus { .. } => 1,
                Destination::Notice(_) => 2,
            };
            counts[place] += 1;
        }
        counts
    }

    fn spent(&self) -> Usage {
        self.stores.iter().map(|store| store.usage().usage()).fold(Usage::default(), |sum, one| Usage {
            requests: sum.requests + one.requests,
            units: sum.units + one.units,
            ..sum
        })
    }

    /// Delivers pending webhooks, then handles queue messages.
    async fn deliver(&mut self) {
        let deliveries = self.fakes().take_webhooks();
        for delivery in deliveries {
            let mut request = Request::builder().method("POST").uri("/webhook/github");
            for (name, value) in &delivery.headers {
                request = request.header(name, value);
            }
            let (parts, ()) = request.body(()).expect("a request").into_parts();
            let now = self.fakes().now();
            let response = self.webhook.handle(&parts, &delivery.body, now).await;
            assert!(response.status().is_success(), "{}", response.body());
            self.lifecycle.webhooks += 1;
        }
        while let Some((id, body)) = self.publisher.take_message() {
            let handled = self.bridge.handle(&id, &body).await;
            assert!(handled.is_ok(), "{handled:?}");
            self.lifecycle.bridge_calls += 1;
        }
    }

    /// Runs a scheduled sweep. Returns its usage, and whether it had anything to do.
    async fn tick(&mut self) -> (Usage, bool) {
        let (before, now) = (self.stores[2].usage().usage(), self.fakes().now());
        let trigger = SweepTrigger::scheduled("sweep", now, format!("p{}", now.as_second()));
        let outcome = self.sweep.sweep(&trigger, now + SignedDuration::from_mins(5)).await.expect("sweep succeeds");
        let SweepOutcome::Done(summary) = outcome else { panic!("{outcome:?}") };
        let after = self.stores[2].usage().usage();
        let cost =
            Usage { requests: after.requests - before.requests, units: after.units - before.units, ..Usage::default() };
        (cost, summary.due > 0 || summary.delivered > 0 || summary.expired > 0 || summary.resent > 0)
    }
}

/// The usage of a sweep with nothing to do, and of two pull requests.
pub(crate) async fn lifecycles() -> (Usage, Vec<Lifecycle>) {
    let dynamo = Dynoxide::in_memory().await;
    let mut run = CostRun::new("idle", &dynamo).await;
    run.tick().await;
    run.fakes().advance(SignedDuration::from_mins(1));
    let (idle, _) = run.tick().await;
    let mut lifecycles = Vec::new();
    for (name, fault) in [("opened to merged", None), ("with one heal", Some(Fault::JenkinsDeaf))] {
        lifecycles.push(run_lifecycle(&dynamo, name, fault).await);
    }
    (idle, lifecycles)
}

async fn run_lifecycle(dynamo: &Dynoxide, name: &'static str, fault: Option<Fault>) -> Lifecycle {
    let mut run = CostRun::new(name, dynamo).await;
    // The first sweep takes the inventory, which is a cost of the deployment.
    run.tick().await;
    let (before, requests_before) = (run.spent(), run.fakes().requests());
    let usage_of = |run: &CostRun| run.stores.each_ref().map(|store| store.usage().usage());
    let usage_before = usage_of(&run);
    let pr = run.fakes().open_pr(NewPullRequest::default());
    if let Some(fault) = fault {
        run.fakes().force(fault, &pr);
    }
    let opened_at = run.fakes().now();
    let mut idle = Usage::default();
    for _ in 0..600 {
        let minute = run.fakes().now() + SignedDuration::from_mins(1);
        loop {
            run.deliver().await;
            let next = run.fakes().next_event_at().filter(|at| *at <= minute);
            let Some(at) = next else { break };
            run.fakes().advance_to(at);
        }
        run.fakes().advance_to(minute);
        run.deliver().await;
        let (cost, worked) = run.tick().await;
        if worked {
            run.lifecycle.sweeps_that_saw_it += 1;
        } else {
            (idle.requests, idle.units) = (idle.requests + cost.requests, idle.units + cost.units);
        }
        run.deliver().await;
        let ended = run.fakes().pull(&pr).is_some_and(|pull| pull.state != PullState::Open);
        if ended {
            break;
        }
    }
    let merged = run.fakes().pull(&pr).is_some_and(|pull| pull.state == PullState::Merged);
    assert!(merged, "{name}: not merged in time");
    let spent = run.spent();
    let mut lifecycle = run.lifecycle.clone();
    lifecycle.minutes = run.fakes().now().duration_since(opened_at).as_mins();
    // Idle sweeps are a cost per minute, not per pull request.
    lifecycle.store_requests = spent.requests - before.requests - idle.requests;
    lifecycle.units = spent.units - before.units - idle.units;
    [lifecycle.messages, lifecycle.bus_events, lifecycle.notices] = run.published();
    lifecycle.github_requests = run.fakes().requests() - requests_before;
    for (place, (then, now)) in usage_before.iter().zip(usage_of(&run)).enumerate() {
        lifecycle.by_function[place] = (now.requests - then.requests, now.units - then.units);
    }
    // Nearly all units are write units; the few read units are priced as write units, which overestimates the cost.
    let units = lifecycle.units;
    lifecycle.price(units, 0.0);
    lifecycle
}

/// The cost of one idle sweep per minute for 30 days.
pub(crate) fn idle_dollars_per_month(idle: &Usage) -> f64 {
    let sweeps = 30.0 * 24.0 * 60.0;
    let ms = MS_OF_ITS_OWN + idle.requests as f64 * MS_PER_REQUEST;
    let each =
        idle.units * PRICES[0].1 / 1e6 + PRICES[2].1 / 1e6 + LOG_KB * PRICES[7].1 / 1e6 + ms / 1000.0 * GB * GB_SECOND;
    sweeps * each
}

/// The assumed prices.
pub(crate) fn assumptions() -> Value {
    let prices: serde_json::Map<String, Value> =
        PRICES.iter().map(|(name, price)| ((*name).to_owned(), json!(price))).collect();
    json!({
        "region": "us-east-1", "as_of": "2026-11", "dollars_per_million": prices, "dollars_per_gb_second": GB_SECOND,
        "ms_per_request": MS_PER_REQUEST, "ms_of_its_own": MS_OF_ITS_OWN, "memory_gb": GB,
        "read_units_are_priced_as_written": true
    })
}
