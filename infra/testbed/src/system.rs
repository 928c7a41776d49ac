//! Suture without the admin function, connected to the fakes: no sockets, and the fakes' clock is the only clock.

use std::any::Any;
use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use car_bridge::{CarBridge, MessageOutcome, RetryableError};
use domain::breaker::minute_of;
use domain::event::{Event, EventKind};
use domain::id::{PrId, RunId};
use domain::policy::Policies;
use domain::pull_request::PullRequest;
use domain::state::State;
use domain::text::Notice;
use fakes::{FakePrId, FakeSettings, Fakes, NewPullRequest, WebhookDelivery};
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock;
use platform::engine::Engine;
use platform::github::{Credentials, GitHub};
use platform::jenkins::Jenkins;
use platform::publish::queue_message::QueueMessage;
use platform::store::queries;
use platform::sweep_summary::SweepSummary;
use platform::telemetry::MetricLog;
use platform::transport::Transport;
use reconciler::{Reconciler, SweepOutcome, SweepTrigger};
use webhook::WebhookHandler;
use webhook::github::BotIdentity;

use crate::{
    FakeAccess, FaultStore, FaultTransport, Faults, ManualClock, MemoryStore, RecordingPublisher, SharedFakes,
    TestStore, locked,
};

/// The time limit of a sweep.
pub const SWEEP_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

/// Signs the requests to bots that are retriggered by HTTP.
const RETRIGGER_SECRET: &str = "retrigger secret of this world";

type LosesWebhook = Box<dyn FnMut(usize, &WebhookDelivery) -> bool>;
type BeforeQuery = Box<dyn FnMut(&mut Fakes) + Send>;

/// The webhook function, the Car Bridge and the reconciler on one store, connected to the fakes. They share one [`Faults`], so they
/// die together.
pub struct Testbed {
    pub faults: Arc<Faults>,
    pub store: FaultStore<TestStore>,
    pub publisher: RecordingPublisher,
    pub transport: FaultTransport,
    pub clock: ManualClock,
    pub policies: Policies,
    pub github: GitHub,
    pub jenkins: Jenkins,
    pub webhook: WebhookHandler<FaultStore<TestStore>, RecordingPublisher>,
    pub bridge: CarBridge<FaultStore<TestStore>, RecordingPublisher>,
    pub sweep: Reconciler<FaultStore<TestStore>, RecordingPublisher>,
    /// Whether the Car Bridge handles queue messages while time passes.
    pub bridging: Cell<bool>,
    /// Whether a sweep runs every minute while time passes.
    pub sweeping: Cell<bool>,
    fakes: SharedFakes,
    health: Arc<Mutex<BTreeMap<String, u16>>>,
    before_query: Arc<Mutex<BeforeQuery>>,
    summaries: RefCell<Vec<SweepSummary>>,
    loses_webhook: RefCell<LosesWebhook>,
    webhooks: Cell<usize>,
    swept_until: Cell<Option<Timestamp>>,
    kept_alive: Option<Box<dyn Any>>,
}

impl Testbed {
    /// Fakes without random faults; Suture uses a token, is in `act` mode, and runs no scheduled sweeps.
    #[must_use]
    pub fn quiet() -> Self {
        Self::configured("mode = \"act\"", |_| {})
    }

    /// [`quiet`](Self::quiet) with this configuration and changed settings of the fakes.
    #[must_use]
    pub fn configured(config: &str, set_up: impl FnOnce(&mut FakeSettings)) -> Self {
        let mut settings =
            FakeSettings { faults: fakes::FaultRates::none(), secondary_limits: false, ..FakeSettings::default() };
        set_up(&mut settings);
        let token = settings.tokens.first().map(|(token, _)| token.clone()).unwrap_or_default();
        let policies = Policies::parse(config).expect("valid configuration");
        let access = |access: &mut FakeAccess| {
            (access.credentials, access.own) = (Credentials::token(&token), BotIdentity::default());
        };
        Self { sweeping: Cell::new(false), ..Self::on(memory(), settings, policies, access) }
    }

    /// [`quiet`](Self::quiet) with this configuration, where Suture is an App: only Apps may write check runs.
    #[must_use]
    pub fn as_app(config: &str) -> Self {
        let settings =
            FakeSettings { faults: fakes::FaultRates::none(), secondary_limits: false, ..FakeSettings::default() };
        Self {
            sweeping: Cell::new(false),
            ..Self::with_policies(settings, Policies::parse(config).expect("valid configuration"))
        }
    }

    /// Fakes with these settings; Suture is an App, is configured with `mode = "act"` and `toml`, and sweeps every minute.
    #[must_use]
    pub fn new(settings: FakeSettings, toml: &str) -> Self {
        let policies = Policies::parse(&format!("mode = \"act\"\n{toml}")).expect("valid configuration");
        Self::with_policies(settings, policies)
    }

    #[must_use]
    pub fn with_policies(settings: FakeSettings, policies: Policies) -> Self {
        Self::on(memory(), settings, policies, |_| {})
    }

    /// The default policies, with changed access to the fakes.
    #[must_use]
    pub fn with_access(settings: FakeSettings, change_access: impl FnOnce(&mut FakeAccess)) -> Self {
        Self::on(memory(), settings, Policies::default(), change_access)
    }

    /// Runs on this store; `change_access` may change the credentials for the fakes.
    #[must_use]
    pub fn on(
        store: TestStore,
        settings: FakeSettings,
        policies: Policies,
        change_access: impl FnOnce(&mut FakeAccess),
    ) -> Self {
        let mut access =
            FakeAccess::new(&settings, &settings.api_url, &settings.jenkins_url).expect("settings of the fakes");
        change_access(&mut access);
        let fakes: SharedFakes = Arc::new(Mutex::new(Fakes::new(7, settings)));
        let faults = Arc::new(Faults::default());
        let transport = FaultTransport::new(&faults);
        let publisher = RecordingPublisher::new(&faults, &fakes);
        let store = FaultStore::new(store, &faults);
        let clock = ManualClock::of(&fakes);
        let before_query: Arc<Mutex<BeforeQuery>> = Arc::new(Mutex::new(Box::new(|_| {})));
        let (queried, before) = (Arc::clone(&fakes), Arc::clone(&before_query));
        let to_github = transport.to("GitHub", move |request| {
            let mut fakes = locked(&queried);
            if request.uri().path() == "/graphql" {
                locked(&before)(&mut fakes);
            }
            fakes.github(request).map_err(Into::into)
        });
        let github = access.github(to_github, Arc::new(clock.clone()));
        let jenkins = access.jenkins(transport.jenkins(&fakes), Arc::new(clock.clone()));
        let clients = car_bridge::ExternalClients {
            github: github.clone(),
            jenkins: Some(jenkins.clone()),
            http: car_bridge::BotHttp::new(transport.github(&fakes), Some(RETRIGGER_SECRET.to_owned())),
            clock: Arc::new(clock.clone()),
        };
        let health = Arc::default();
        let log = MetricLog::writing_to(std::io::sink());
        let (own, senders) = (access.own, access.senders);
        let parts = (store.clone(), publisher.clone(), policies.clone(), github.clone(), Some(jenkins.clone()));
        Self {
            webhook: WebhookHandler::new(store.clone(), publisher.clone(), policies.clone(), own, senders, log),
            bridge: CarBridge::new(Engine::new(store.clone(), publisher.clone(), policies.clone()), clients),
            sweep: new_reconciler(parts, &clock, health_transport(&transport, &health)),
            faults,
            store,
            publisher,
            transport,
            clock,
            policies,
            github,
            jenkins,
            bridging: Cell::new(true),
            sweeping: Cell::new(true),
            fakes,
            health,
            before_query,
            summaries: RefCell::default(),
            loses_webhook: RefCell::new(Box::new(|_, _| false)),
            webhooks: Cell::new(0),
            swept_until: Cell::new(None),
            kept_alive: None,
        }
    }

    /// A second reconciler process on the same store.
    #[must_use]
    pub fn another_sweep(&self) -> Reconciler<FaultStore<TestStore>, RecordingPublisher> {
        let (github, jenkins) = (self.github.clone(), Some(self.jenkins.clone()));
        let parts = (self.store.clone(), self.publisher.clone(), self.policies.clone(), github, jenkins);
        new_reconciler(parts, &self.clock, health_transport(&self.transport, &self.health))
    }

    /// Deploys another configuration: the Car Bridge and the reconciler start again with it.
    pub fn reconfigure(&mut self, config: &str) {
        self.policies = Policies::parse(config).expect("valid configuration");
        let clients = car_bridge::ExternalClients {
            github: self.github.clone(),
            jenkins: Some(self.jenkins.clone()),
            http: car_bridge::BotHttp::new(self.transport.github(&self.fakes), Some(RETRIGGER_SECRET.to_owned())),
            clock: Arc::new(self.clock.clone()),
        };
        let engine = Engine::new(self.store.clone(), self.publisher.clone(), self.policies.clone());
        self.bridge = CarBridge::new(engine, clients);
        self.sweep = self.another_sweep();
    }

    /// Keeps a value, such as the store's server, alive as long as the testbed.
    pub fn keep_alive(&mut self, what: impl Any) {
        self.kept_alive = Some(Box::new(what));
    }

    pub fn fakes(&self) -> MutexGuard<'_, Fakes> {
        locked(&self.fakes)
    }

    /// Calls `act` with the fakes.
    pub fn with<T>(&self, act: impl FnOnce(&mut Fakes) -> T) -> T {
        act(&mut self.fakes())
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Advances the fakes' clock without delivering anything.
    pub fn advance(&self, by: SignedDuration) {
        self.clock.advance(by);
    }

    /// CodeGenie opens a pull request.
    pub fn open(&self) -> FakePrId {
        self.with(|fakes| fakes.open_pr(NewPullRequest::default()))
    }

    /// CodeGenie opens a pull request; its webhooks are delivered.
    pub async fn open_and_deliver(&self, new: NewPullRequest) -> FakePrId {
        let pr = self.with(|fakes| fakes.open_pr(new));
        self.advance(SignedDuration::from_secs(3));
        self.deliver_webhooks().await;
        pr
    }

    /// Makes all requests to Jenkins fail, or succeed again.
    pub fn set_jenkins_down(&self, down: bool) {
        self.faults.fail_calls("Jenkins ", down);
    }

    /// Sets the status that a health check URL returns instead of 200; 0 means no response.
    pub fn set_health(&self, url: &str, status: u16) {
        locked(&self.health).insert(url.to_owned(), status);
    }

    /// Calls `act` with the fakes before each GraphQL request.
    pub fn before_query(&self, act: impl FnMut(&mut Fakes) + Send + 'static) {
        *locked(&self.before_query) = Box::new(act);
    }

    /// The number of GraphQL requests sent so far.
    #[must_use]
    pub fn queries(&self) -> usize {
        self.transport.lines().iter().filter(|line| *line == "POST /graphql").count()
    }

    /// Drops the webhooks for which `lost` returns true; its first argument is the webhook's number, counted from 0.
    pub fn lose_webhooks(&self, lost: impl FnMut(usize, &WebhookDelivery) -> bool + 'static) {
        *self.loses_webhook.borrow_mut() = Box::new(lost);
    }

    /// The number of webhooks sent so far, including lost ones.
    #[must_use]
    pub fn webhooks(&self) -> usize {
        self.webhooks.get()
    }

    /// Delivers all pending webhooks. Returns whether there were any.
    pub async fn deliver_webhooks(&self) -> bool {
        let before = self.webhooks.get();
        loop {
            let deliveries = self.with(Fakes::take_webhooks);
            if deliveries.is_empty() {
                return self.webhooks.get() > before;
            }
            for delivery in &deliveries {
                let number = self.webhooks.replace(self.webhooks.get() + 1);
                if !(self.loses_webhook.borrow_mut())(number, delivery) {
                    self.deliver(delivery).await;
                }
            }
        }
    }

    /// Delivers one webhook.
    pub async fn deliver(&self, delivery: &WebhookDelivery) {
        let mut request = Request::builder().method("POST").uri(delivery.target.path());
        for (name, value) in &delivery.headers {
            request = request.header(name, value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let answer = self.webhook.handle(&parts, &delivery.body, self.now()).await;
        let code = answer.status().as_u16();
        if code != 200 {
            // Visible only if the test fails.
            eprintln!("{} {} {}", self.now(), delivery.event, answer.body());
            self.with(|fakes| fakes.webhook_answered(delivery, code));
        }
    }

    /// The Car Bridge handles each message on the queue once, except those whose delay has not passed.
    pub async fn handle_messages(&self) -> Vec<Result<MessageOutcome, RetryableError>> {
        let mut handled = Vec::new();
        while let Some((id, body)) = self.publisher.take_due_message() {
            let result = self.bridge.handle(&id, &body).await;
            // Visible only if the test fails.
            eprintln!("{} {result:?}", self.now());
            handled.push(result);
        }
        handled
    }

    /// Delivers all pending webhooks and messages, except messages whose delay has not passed; a message that fails stays in the queue.
    pub async fn settle(&self) {
        loop {
            let delivered = self.deliver_webhooks().await;
            let message = if self.bridging.get() { self.publisher.take_due_message() } else { None };
            let Some((id, body)) = message else { if delivered { continue } else { return } };
            if self.bridge.handle(&id, &body).await.is_err() {
                return self.publisher.enqueue_body(&id, body);
            }
        }
    }

    /// Advances the clock: webhooks are delivered, messages are handled, and a sweep runs every minute.
    pub async fn pass(&self, minutes: i64) {
        let until = self.now() + SignedDuration::from_mins(minutes);
        self.settle().await;
        while self.now() < until {
            let minute = minute_of(self.now()) + SignedDuration::from_mins(1);
            let next = self.with(|fakes| fakes.next_event_at()).unwrap_or(minute).min(minute).min(until);
            self.clock.set(next);
            self.settle().await;
            let this = minute_of(self.now());
            if self.sweeping.get() && self.swept_until.get().is_none_or(|last| last < this) {
                self.swept_until.set(Some(this));
                self.sweep_now().await;
                self.settle().await;
            }
        }
    }

    /// Advances the clock until the condition holds or the time is over. Returns whether it holds.
    pub async fn until(&self, minutes: i64, mut is_true: impl AsyncFnMut(&Self) -> bool) -> bool {
        for _ in 0..minutes {
            if is_true(self).await {
                return true;
            }
            self.pass(1).await;
        }
        is_true(self).await
    }

    /// Runs a scheduled sweep.
    pub async fn sweep_now(&self) -> SweepSummary {
        let name = format!("sweep-{}", self.summaries.borrow().len());
        let outcome = self.request_sweep(&scheduled_sweep(&name, self.now())).await;
        let SweepOutcome::Done(summary) = outcome else { panic!("{outcome:?}") };
        self.summaries.borrow_mut().push((*summary).clone());
        *summary
    }

    /// Runs a sweep with this trigger.
    pub async fn request_sweep(&self, trigger: &SweepTrigger) -> SweepOutcome {
        self.sweep.sweep(trigger, self.now() + SWEEP_TIMEOUT).await.expect("the store responds")
    }

    /// The summaries of all scheduled sweeps.
    #[must_use]
    pub fn summaries(&self) -> Ref<'_, Vec<SweepSummary>> {
        self.summaries.borrow()
    }

    /// Mails so far: id and mail.
    #[must_use]
    pub fn mails(&self) -> Vec<(String, Notice)> {
        self.publisher.mails()
    }

    /// All commands sent to the queue so far: pull request, command, run.
    #[must_use]
    pub fn commands(&self) -> Vec<(u64, &'static str, String)> {
        let command = |(_, message)| match message {
            QueueMessage::Command(command) => {
                let run = command.run_id.as_ref().map(ToString::to_string).unwrap_or_default();
                Some((command.pr_number, command.command.name(), run))
            }
            QueueMessage::Fact(_) | QueueMessage::Task(_) => None,
        };
        self.publisher.messages().into_iter().filter_map(command).collect()
    }

    /// The record; panics if there is none.
    pub async fn record(&self, pr: &FakePrId) -> PullRequest {
        self.find(pr).await.unwrap_or_else(|| panic!("{pr} has no record"))
    }

    pub async fn find(&self, pr: &FakePrId) -> Option<PullRequest> {
        queries::records(&self.store.store, &[pr_id(pr)], self.now()).await.expect("store responds").pop()
    }

    pub async fn state(&self, pr: &FakePrId) -> Option<State> {
        self.find(pr).await.map(|record| record.state)
    }

    /// The event log of a pull request.
    pub async fn log(&self, pr: &FakePrId) -> Vec<Event> {
        queries::events(&self.store.store, &pr_id(pr), false, None, 1_000, self.now())
            .await
            .expect("store responds")
            .entries
    }

    pub async fn logged(&self, pr: &FakePrId, kind: EventKind) -> Vec<Event> {
        self.log(pr).await.into_iter().filter(|event| event.kind == kind).collect()
    }

    /// The number of events of each kind in the log.
    pub async fn kinds(&self, pr: &FakePrId) -> BTreeMap<&'static str, usize> {
        let mut kinds = BTreeMap::new();
        for event in self.log(pr).await {
            *kinds.entry(event.kind.name()).or_default() += 1;
        }
        kinds
    }
}

/// A scheduled sweep whose run id contains milliseconds, because tests sweep more often than once a minute.
#[must_use]
pub fn scheduled_sweep(name: &str, now: Timestamp) -> SweepTrigger {
    let run = RunId::new(format!("{name}-{}", now.as_millisecond()));
    SweepTrigger { run, ..SweepTrigger::scheduled("sweep", now, format!("{name}-process-{}", now.as_millisecond())) }
}

/// Suture's id for a pull request of the fakes.
#[must_use]
pub fn pr_id(pr: &FakePrId) -> PrId {
    pr.to_string().parse().expect("a pull request")
}

fn memory() -> TestStore {
    TestStore::Memory(Arc::new(MemoryStore::new()))
}

type ReconcilerParts = (FaultStore<TestStore>, RecordingPublisher, Policies, GitHub, Option<Jenkins>);

fn new_reconciler(
    (store, publisher, policies, github, jenkins): ReconcilerParts,
    clock: &ManualClock,
    health: Transport,
) -> Reconciler<FaultStore<TestStore>, RecordingPublisher> {
    let clock = Arc::new(clock.clone());
    Reconciler::new(store, publisher, policies, github, jenkins, clock, Vec::new()).with_clients(health)
}

/// A transport to the health check URLs.
fn health_transport(transport: &FaultTransport, health: &Arc<Mutex<BTreeMap<String, u16>>>) -> Transport {
    let health = Arc::clone(health);
    transport.to("health", move |request| match locked(&health).get(&request.uri().to_string()).copied() {
        Some(0) => Err("no response".into()),
        status => Ok(Response::builder().status(status.unwrap_or(200)).body(Bytes::new())?),
    })
}
