//! What one pull request's life costs on AWS, from opened to merged: once as it should be, once with a remedy. The pretended world
//! plays it in its own time; requests and capacity units are those DynamoDB's stand-in says, messages are counted as they leave.

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
/// What an invocation is assumed to wait for each of its requests, in milliseconds, and what it computes.
const MS_PER_REQUEST: f64 = 5.0;
const MS_OF_ITS_OWN: f64 = 2.0;
/// The memory of a function, in GB.
const GB: f64 = 0.125;
/// What a webhook's line in the log takes, in kilobytes.
const LOG_KB: f64 = 0.5;

/// What a life took.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
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

impl Life {
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
            // Sent, received, deleted.
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

/// The whole of Suture on one table, in the world's time; each function has its own account of what it spends.
struct Play {
    fakes: SharedFakes,
    publisher: RecordingPublisher,
    webhook: WebhookHandler<Arc<DynamoStore>, RecordingPublisher>,
    bridge: CarBridge<Arc<DynamoStore>, RecordingPublisher>,
    sweep: Reconciler<Arc<DynamoStore>, RecordingPublisher>,
    stores: [Arc<DynamoStore>; 3],
    life: Life,
}

impl Play {
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
        let outer = car_bridge::ExternalClients {
            github: github.clone(),
            jenkins: Some(jenkins.clone()),
            http: transport.github(&fakes),
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
            bridge: CarBridge::new(Engine::new(store(1), publisher.clone(), policies.clone()), outer),
            sweep: Reconciler::new(store(2), publisher.clone(), policies, github, Some(jenkins), clock, Vec::new()),
            fakes,
            publisher,
            stores,
            life: Life { name, ..Life::default() },
        }
    }

    fn fakes(&self) -> MutexGuard<'_, Fakes> {
        self.fakes.lock().expect("nobody panicked")
    }

    /// Messages, bus events and notices that were published.
    fn published(&self) -> [u64; 3] {
        let mut counts = [0; 3];
        for parcel in self.publisher.sent() {
            let place = match parcel.destination {
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

    async fn hear(&mut self) {
        let deliveries = self.fakes().take_webhooks();
        for delivery in deliveries {
            let mut request = Request::builder().method("POST").uri("/webhook/github");
            for (name, value) in &delivery.headers {
                request = request.header(name, value);
            }
            let (parts, ()) = request.body(()).expect("a request").into_parts();
            let now = self.fakes().now();
            let answer = self.webhook.handle(&parts, &delivery.body, now).await;
            assert!(answer.status().is_success(), "{}", answer.body());
            self.life.webhooks += 1;
        }
        while let Some((id, body)) = self.publisher.take_message() {
            let handled = self.bridge.handle(&id, &body).await;
            assert!(handled.is_ok(), "{handled:?}");
            self.life.bridge_calls += 1;
        }
    }

    /// A sweep as the schedule makes one each minute. Answers what it cost, and whether it had anything to do.
    async fn tick(&mut self) -> (Usage, bool) {
        let (before, now) = (self.stores[2].usage().usage(), self.fakes().now());
        let wish = SweepTrigger::scheduled("sweep", now, format!("p{}", now.as_second()));
        let swept = self.sweep.sweep(&wish, now + SignedDuration::from_mins(5)).await.expect("a sweep");
        let SweepOutcome::Done(summary) = swept else { panic!("{swept:?}") };
        let after = self.stores[2].usage().usage();
        let cost =
            Usage { requests: after.requests - before.requests, units: after.units - before.units, ..Usage::default() };
        (cost, summary.due > 0 || summary.delivered > 0 || summary.expired > 0 || summary.resent > 0)
    }
}

/// What a sweep costs that finds nothing to do, and two lives.
pub(crate) async fn lives() -> (Usage, Vec<Life>) {
    let dynamo = Dynoxide::in_memory().await;
    let mut play = Play::new("idle", &dynamo).await;
    play.tick().await;
    play.fakes().advance(SignedDuration::from_mins(1));
    let (idle, _) = play.tick().await;
    let mut lives = Vec::new();
    for (name, fault) in [("opened to merged", None), ("with one heal", Some(Fault::JenkinsDeaf))] {
        lives.push(live(&dynamo, name, fault).await);
    }
    (idle, lives)
}

async fn live(dynamo: &Dynoxide, name: &'static str, fault: Option<Fault>) -> Life {
    let mut play = Play::new(name, dynamo).await;
    // The first sweep takes the inventory; it is a deployment's, not a life's.
    play.tick().await;
    let (before, asked) = (play.spent(), play.fakes().requests());
    let each = |play: &Play| play.stores.each_ref().map(|store| store.usage().usage());
    let each_before = each(&play);
    let pr = play.fakes().open_pr(NewPullRequest::default());
    if let Some(fault) = fault {
        play.fakes().force(fault, &pr);
    }
    let opened_at = play.fakes().now();
    let mut idle = Usage::default();
    for _ in 0..600 {
        let minute = play.fakes().now() + SignedDuration::from_mins(1);
        loop {
            play.hear().await;
            let next = play.fakes().next_event_at().filter(|at| *at <= minute);
            let Some(at) = next else { break };
            play.fakes().advance_to(at);
        }
        play.fakes().advance_to(minute);
        play.hear().await;
        let (cost, worked) = play.tick().await;
        if worked {
            play.life.sweeps_that_saw_it += 1;
        } else {
            (idle.requests, idle.units) = (idle.requests + cost.requests, idle.units + cost.units);
        }
        play.hear().await;
        let ended = play.fakes().pull(&pr).is_some_and(|pull| pull.state != PullState::Open);
        if ended {
            break;
        }
    }
    let merged = play.fakes().pull(&pr).is_some_and(|pull| pull.state == PullState::Merged);
    assert!(merged, "{name}: it was not merged in time");
    let spent = play.spent();
    let mut life = play.life.clone();
    life.minutes = play.fakes().now().duration_since(opened_at).as_mins();
    // Sweeps that found nothing are paid by the minute, not by the pull request.
    life.store_requests = spent.requests - before.requests - idle.requests;
    life.units = spent.units - before.units - idle.units;
    [life.messages, life.bus_events, life.notices] = play.published();
    life.github_requests = play.fakes().requests() - asked;
    for (place, (then, now)) in each_before.iter().zip(each(&play)).enumerate() {
        life.by_function[place] = (now.requests - then.requests, now.units - then.units);
    }
    // Nearly all units are written ones; the few that are read are priced as if they were, which is too much.
    let units = life.units;
    life.price(units, 0.0);
    life
}

/// What sweeping each minute costs in a month of 30 days, whatever is open.
pub(crate) fn idle_dollars_per_month(idle: &Usage) -> f64 {
    let sweeps = 30.0 * 24.0 * 60.0;
    let ms = MS_OF_ITS_OWN + idle.requests as f64 * MS_PER_REQUEST;
    let each =
        idle.units * PRICES[0].1 / 1e6 + PRICES[2].1 / 1e6 + LOG_KB * PRICES[7].1 / 1e6 + ms / 1000.0 * GB * GB_SECOND;
    sweeps * each
}

/// The prices, as they are assumed.
pub(crate) fn assumptions() -> Value {
    let prices: serde_json::Map<String, Value> =
        PRICES.iter().map(|(name, price)| ((*name).to_owned(), json!(price))).collect();
    json!({
        "region": "us-east-1", "as_of": "2026-11", "dollars_per_million": prices, "dollars_per_gb_second": GB_SECOND,
        "ms_per_request": MS_PER_REQUEST, "ms_of_its_own": MS_OF_ITS_OWN, "memory_gb": GB,
        "read_units_are_priced_as_written": true
    })
}
