//! A stage: the world, a store, and the whole of Suture around them, in the world's own time. Everything that passes
//! a border (store, outlets, GitHub, Jenkins) goes through one trap, so that a test can stop the process at any of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use car_bridge::{self, Bridge};
use domain::bus::DetailType;
use domain::comment::Notice;
use domain::event::{Event, EventKind, Happened};
use domain::id::PrId;
use domain::policy::Policies;
use domain::pull_request::Record;
use domain::state::State;
use fakes::{Delivery, Fakes, NewPull, Pr};
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use platform::clock::{Clock, Pause};
use platform::engine::Engine;
use platform::github::{GitHub, Settings};
use platform::http::{BoxError, Transport};
use platform::jenkins::{self, Jenkins, Login};
use platform::lookup;
use platform::outlets::message::Message;
use platform::outlets::{Content, Outlets, Parcel, Undelivered};
use platform::store::dynamo::DynamoStore;
use platform::store::{Key, Page, Query, Spent, Store, StoreError, Write};
use platform::sweep_summary::Summary;
use platform::telemetry::Log;
use reconciler::{Sweep, Swept, Wish};
use serde_dynamo::Item;
use testbed::MemoryStore;
use tests::rig::Dynoxide;
use webhook::github::Own;
use webhook::signature::Secrets;
use webhook::{Senders, Webhook};

/// A sweep may take this long.
pub(crate) const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// How a call is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The process dies before the call.
    Before,
    /// It dies after the call, before it hears the answer.
    After,
    /// The answer is lost, and the process goes on.
    AnswerLost,
}

/// Counts the calls that leave the process, and stops it at one of them.
#[derive(Debug, Default)]
pub(crate) struct Trap {
    calls: AtomicUsize,
    set: Mutex<Option<(usize, Stop)>>,
    dead: AtomicBool,
    names: Mutex<Vec<String>>,
    silent: Mutex<Option<String>>,
}

impl Trap {
    /// Sets it for the call of this number, counted from now.
    pub(crate) fn set(&self, at: usize, how: Stop) {
        self.calls.store(0, Ordering::SeqCst);
        *self.set.lock().unwrap() = Some((at, how));
    }

    /// Calls whose name contains this are not answered, until somebody says otherwise.
    pub(crate) fn silence(&self, what: Option<&str>) {
        *self.silent.lock().unwrap() = what.map(str::to_owned);
    }

    /// The process is started again.
    pub(crate) fn revive(&self) {
        *self.set.lock().unwrap() = None;
        self.dead.store(false, Ordering::SeqCst);
    }

    /// How many calls there were since it was set or asked, and what they were.
    pub(crate) fn count(&self) -> usize {
        self.calls.swap(0, Ordering::SeqCst)
    }

    /// Likewise, and the count goes on.
    pub(crate) fn so_far(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        std::mem::take(&mut self.names.lock().unwrap())
    }

    /// Whether to make the call, and whether its answer arrives.
    fn pass(&self, name: impl FnOnce() -> String) -> (bool, bool) {
        if self.dead.load(Ordering::SeqCst) {
            return (false, false);
        }
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let set = *self.set.lock().unwrap();
        let named = if set.is_none() {
            let name = name();
            if self.silent.lock().unwrap().as_ref().is_some_and(|silent| name.contains(silent)) {
                return (false, false);
            }
            Some(name)
        } else {
            // The one it is stopped at is named as well.
            set.filter(|(at, _)| *at == call).map(|_| name())
        };
        if let Some(name) = named {
            self.names.lock().unwrap().push(name);
        }
        match set {
            Some((at, how)) if at == call => {
                self.dead.store(how != Stop::AnswerLost, Ordering::SeqCst);
                (how != Stop::Before, false)
            }
            Some(_) | None => (true, true),
        }
    }
}

/// What the tables are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// Memory.
    Memory,
    /// DynamoDB in this process, through the client that production uses.
    Dynoxide,
}

impl On {
    /// A stage on it, with this policy on top of `mode = "act"`.
    pub(crate) async fn stage(self, settings: fakes::Settings, toml: &str) -> Stage {
        let policies = Policies::parse(&format!("mode = \"act\"\n{toml}")).unwrap();
        match self {
            Self::Memory => Stage::with_policies(settings, policies),
            Self::Dynoxide => {
                let rig = Dynoxide::in_memory().await;
                let kept = Kept::Dynamo(Arc::new(rig.store().await));
                let mut stage = Stage::on(kept, settings, policies);
                stage.rig = Some(rig);
                stage
            }
        }
    }
}

/// One of the two stores. Boxed: what the one on DynamoDB waits for is too deep to be laid out with everything around it.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    Memory(Arc<MemoryStore>),
    Dynamo(Arc<DynamoStore>),
}

impl Store for Kept {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        match self {
            Self::Memory(store) => store.get(key, now).await,
            Self::Dynamo(store) => Box::pin(store.get(key, now)).await,
        }
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        match self {
            Self::Memory(store) => store.get_many(keys, now).await,
            Self::Dynamo(store) => Box::pin(store.get_many(keys, now)).await,
        }
    }

    async fn write(&self, writes: Vec<Write>, now: Timestamp) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.write(writes, now).await,
            Self::Dynamo(store) => Box::pin(store.write(writes, now)).await,
        }
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        match self {
            Self::Memory(store) => store.count(key, by, ttl, now).await,
            Self::Dynamo(store) => Box::pin(store.count(key, by, ttl, now)).await,
        }
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        match self {
            Self::Memory(store) => store.query(query, now).await,
            Self::Dynamo(store) => Box::pin(store.query(query, now)).await,
        }
    }

    fn spent(&self) -> &Spent {
        match self {
            Self::Memory(store) => store.spent(),
            Self::Dynamo(store) => store.spent(),
        }
    }
}

/// The store, behind the trap.
#[derive(Debug, Clone)]
pub(crate) struct Trapped {
    pub(crate) store: Kept,
    trap: Arc<Trap>,
    /// Rows that queries of indexes have read.
    pub(crate) index_items: Arc<AtomicUsize>,
}

impl Trapped {
    async fn pass<T>(
        &self,
        name: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let silent = || StoreError::Unavailable("nobody answers".to_owned());
        // Whoever else is at work comes in between.
        tokio::task::yield_now().await;
        let (made, heard) = self.trap.pass(name);
        if !made {
            return Err(silent());
        }
        let answer = call.await;
        if heard { answer } else { Err(silent()) }
    }
}

impl Store for Trapped {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        self.pass(|| format!("get {key}"), self.store.get(key, now)).await
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        self.pass(|| format!("get {} rows", keys.len()), self.store.get_many(keys, now)).await
    }

    async fn write(&self, writes: Vec<Write>, now: Timestamp) -> Result<(), StoreError> {
        let name = writes.iter().map(|write| write.key().to_string()).collect::<Vec<_>>().join(", ");
        self.pass(|| format!("write {name}"), self.store.write(writes, now)).await
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        self.pass(|| format!("count {key}"), self.store.count(key, by, ttl, now)).await
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        let page = self.pass(|| format!("query {}", query.partition), self.store.query(query, now)).await?;
        self.index_items.fetch_add(page.rows.len(), Ordering::SeqCst);
        Ok(page)
    }

    fn spent(&self) -> &Spent {
        self.store.spent()
    }
}

/// What has been sent, and waits.
#[derive(Debug, Default)]
struct Mail {
    queue: Vec<(String, Message)>,
    people: Vec<(String, Notice)>,
    /// Everything that was ever put onto the queue.
    sent: Vec<(String, Message)>,
}

/// The ways out, behind the trap.
#[derive(Clone)]
pub(crate) struct Post {
    mail: Arc<Mutex<Mail>>,
    world: Arc<Mutex<Fakes>>,
    trap: Arc<Trap>,
    down: Arc<AtomicBool>,
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Post")
    }
}

impl Post {
    fn deliver(&self, parcel: &Parcel) {
        let mut mail = self.mail.lock().unwrap();
        match &parcel.what {
            Content::Queue { message, .. } => {
                mail.queue.push((parcel.id.clone(), message.clone()));
                mail.sent.push((parcel.id.clone(), message.clone()));
            }
            Content::Bus { detail_type: DetailType::ReconcileRequested, .. } => {}
            Content::Bus { detail_type, detail } => {
                self.world.lock().unwrap().bus_event(detail_type.name(), detail);
            }
            Content::People(notice) => mail.people.push((parcel.id.clone(), notice.clone())),
        }
    }
}

impl Outlets for Post {
    async fn send(&self, parcels: &[Parcel]) -> Vec<Result<(), Undelivered>> {
        let silent = || parcels.iter().map(|_| Err(Undelivered("nobody answers".to_owned()))).collect();
        let (made, heard) = self.trap.pass(|| format!("send {}", parcels[0].id));
        if !made || self.down.load(Ordering::SeqCst) {
            return silent();
        }
        parcels.iter().for_each(|parcel| self.deliver(parcel));
        if heard { parcels.iter().map(|_| Ok(())).collect() } else { silent() }
    }
}

/// The world's time.
struct WorldTime(Arc<Mutex<Fakes>>);

impl std::fmt::Debug for WorldTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorldTime")
    }
}

impl Clock for WorldTime {
    fn now(&self) -> Timestamp {
        self.0.lock().unwrap().now()
    }

    fn sleep(&self, pause: Duration) -> Pause {
        self.0.lock().unwrap().advance(SignedDuration::try_from(pause).unwrap());
        Box::pin(std::future::ready(()))
    }
}

/// Which webhooks never arrive, by their place among all that were sent.
type Lost = Box<dyn FnMut(usize, &Delivery) -> bool>;

/// The addresses that the sentinel asks: all are well but these.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// What an address answers; 0 is silence.
    pub(crate) sick: BTreeMap<String, u16>,
    /// Everything that was asked.
    pub(crate) asked: Vec<String>,
}

fn to_health(health: &Arc<Mutex<Health>>, trap: &Arc<Trap>) -> Transport {
    let (health, trap) = (Arc::clone(health), Arc::clone(trap));
    Transport::with_service(tower::service_fn(move |request: Request<Bytes>| {
        let url = request.uri().to_string();
        let answer = through(&trap, format!("health {url}"), || {
            let mut health = health.lock().unwrap();
            health.asked.push(url.clone());
            match health.sick.get(&url).copied().unwrap_or(200) {
                0 => Err("nobody answers".into()),
                status => Ok(Response::builder().status(status).body(Bytes::from_static(b"whatever")).unwrap()),
            }
        });
        async move { answer }
    }))
}

/// The whole of it.
pub(crate) struct Stage {
    pub(crate) world: Arc<Mutex<Fakes>>,
    pub(crate) store: Trapped,
    pub(crate) trap: Arc<Trap>,
    pub(crate) policies: Policies,
    pub(crate) sweep: Sweep<Trapped, Post>,
    pub(crate) github: GitHub,
    pub(crate) jenkins_down: Arc<AtomicBool>,
    /// Bodies of GraphQL requests.
    pub(crate) queries: Arc<AtomicUsize>,
    /// The GraphQL request, counted from the first, that meets a secondary limit.
    pub(crate) limited_at: Arc<AtomicUsize>,
    /// How long each of them takes, in seconds of the world.
    pub(crate) slow_secs: Arc<AtomicUsize>,
    /// Whether somebody carries out what is on the queue.
    pub(crate) bridging: bool,
    /// Whether it is swept every minute while time passes.
    pub(crate) sweeping: bool,
    pub(crate) summaries: Vec<Summary>,
    /// What the sentinel asks.
    pub(crate) health: Arc<Mutex<Health>>,
    bridge: Bridge<Trapped, Post>,
    pub(crate) webhook: Webhook<Trapped, Post>,
    post: Post,
    lost: Lost,
    webhooks: usize,
    swept_until: Option<Timestamp>,
    clock: Arc<dyn Clock>,
    jenkins: Jenkins,
    /// What the store runs on must last as long as it does.
    rig: Option<Dynoxide>,
}

impl Stage {
    /// With this policy on top of `mode = "act"`.
    pub(crate) fn new(settings: fakes::Settings, toml: &str) -> Self {
        Self::with_policies(settings, Policies::parse(&format!("mode = \"act\"\n{toml}")).unwrap())
    }

    pub(crate) fn with_policies(settings: fakes::Settings, policies: Policies) -> Self {
        Self::on(Kept::Memory(Arc::new(MemoryStore::new())), settings, policies)
    }

    fn on(kept: Kept, settings: fakes::Settings, policies: Policies) -> Self {
        let jenkins_url: http::Uri = settings.jenkins_url.parse().unwrap();
        let login = Login::Token { user: settings.jenkins_user.clone(), token: settings.jenkins_token.clone() };
        let senders = Senders {
            github: Secrets::parse(&settings.webhook_secret).unwrap(),
            jenkins: Some(Secrets::parse(&settings.jenkins_secret).unwrap()),
            bot: Some(Secrets::parse(&settings.bot_secret).unwrap()),
        };
        let own = Own { app_id: Some(settings.app_id), login: Some(format!("{}[bot]", settings.app_slug)) };
        let world = Arc::new(Mutex::new(Fakes::new(7, settings)));
        let trap = Arc::new(Trap::default());
        let jenkins_down = Arc::new(AtomicBool::new(false));
        let queries = Arc::new(AtomicUsize::new(0));
        let limited_at = Arc::new(AtomicUsize::new(0));
        let slow_secs = Arc::new(AtomicUsize::new(0));
        let clock: Arc<dyn Clock> = Arc::new(WorldTime(Arc::clone(&world)));
        let github = {
            let transport = to_github(&world, &trap, &queries, [&limited_at, &slow_secs]);
            GitHub::with_service(&tests::stage::app(), Settings::default(), transport, Arc::clone(&clock))
        };
        let jenkins = {
            let transport = to_jenkins(&world, &trap, &jenkins_down);
            Jenkins::with_service(login, jenkins::Settings::new(jenkins_url), transport, Arc::clone(&clock))
        };
        let store = Trapped { store: kept, trap: Arc::clone(&trap), index_items: Arc::default() };
        let post =
            Post { mail: Arc::default(), world: Arc::clone(&world), trap: Arc::clone(&trap), down: Arc::default() };
        let nobody = Transport::with_service(tower::service_fn(|_: Request<Bytes>| async {
            Err::<Response<Bytes>, BoxError>("nobody is called".into())
        }));
        let outside = car_bridge::World {
            github: github.clone(),
            jenkins: Some(jenkins.clone()),
            http: nobody,
            clock: Arc::clone(&clock),
        };
        let health = Arc::new(Mutex::new(Health::default()));
        let sweep = Sweep::new(
            store.clone(),
            post.clone(),
            policies.clone(),
            github.clone(),
            Some(jenkins.clone()),
            Arc::clone(&clock),
            Vec::new(),
        )
        .asking_through(to_health(&health, &trap));
        Self {
            bridge: Bridge::new(Engine::new(store.clone(), post.clone(), policies.clone()), outside),
            webhook: Webhook::new(
                store.clone(),
                post.clone(),
                policies.clone(),
                own,
                senders,
                Log::to(std::io::sink()),
            ),
            world,
            store,
            trap,
            policies,
            sweep,
            github,
            jenkins_down,
            queries,
            limited_at,
            slow_secs,
            bridging: true,
            sweeping: true,
            summaries: Vec::new(),
            health,
            post,
            lost: Box::new(|_, _| false),
            webhooks: 0,
            swept_until: None,
            clock,
            jenkins,
            rig: None,
        }
    }

    /// Another process that sweeps, beside the first.
    pub(crate) fn another_sweep(&self) -> Sweep<Trapped, Post> {
        Sweep::new(
            self.store.clone(),
            self.post.clone(),
            self.policies.clone(),
            self.github.clone(),
            Some(self.jenkins.clone()),
            Arc::clone(&self.clock),
            Vec::new(),
        )
        .asking_through(to_health(&self.health, &self.trap))
    }

    /// The world's time.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// What is on the queue is lost.
    pub(crate) fn lose_the_queue(&self) {
        self.post.mail.lock().unwrap().queue.clear();
    }

    /// Whoever carries out what is on the queue.
    pub(crate) fn bridge(&self) -> &Bridge<Trapped, Post> {
        &self.bridge
    }

    /// A message comes once more.
    pub(crate) fn again(&self, id: &str, message: &Message) {
        self.post.mail.lock().unwrap().queue.push((id.to_owned(), message.clone()));
    }

    /// Which webhooks never arrive.
    pub(crate) fn lose(&mut self, lost: impl FnMut(usize, &Delivery) -> bool + 'static) {
        self.lost = Box::new(lost);
    }

    /// Does something with the world.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Fakes) -> T) -> T {
        act(&mut self.world.lock().unwrap())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.with(|world| world.now())
    }

    /// CodeGenie opens a pull request.
    pub(crate) fn open(&self) -> Pr {
        self.with(|world| world.open_pr(NewPull::default()))
    }

    /// Nothing leaves any more, or everything again.
    pub(crate) fn post_is_down(&self, down: bool) {
        self.post.down.store(down, Ordering::SeqCst);
    }

    /// Mails so far: id and mail.
    pub(crate) fn mails(&self) -> Vec<(String, Notice)> {
        self.post.mail.lock().unwrap().people.clone()
    }

    /// Everything that was ever put onto the queue.
    pub(crate) fn sent(&self) -> Vec<(String, Message)> {
        self.post.mail.lock().unwrap().sent.clone()
    }

    /// Commands that were ever put onto the queue: pull request, command, run.
    pub(crate) fn commands(&self) -> Vec<(u64, &'static str, String)> {
        let sent = self.sent();
        let commands = sent.iter().filter_map(|(_, message)| match message {
            Message::Command(command) => {
                let run = command.run_id.as_ref().map(ToString::to_string).unwrap_or_default();
                Some((command.pr_number, command.command.name(), run))
            }
            Message::Fact(_) | Message::Chore(_) => None,
        });
        commands.collect()
    }

    /// How many webhooks were sent so far, lost ones included.
    pub(crate) fn webhooks(&self) -> usize {
        self.webhooks
    }

    /// Sweeps now, as the schedule would.
    pub(crate) async fn sweep_now(&mut self) -> Summary {
        let now = self.now();
        let wish = regular(&format!("sweep-{}", self.summaries.len()), now);
        match self.sweep.sweep(&wish, now + PATIENCE).await.unwrap() {
            Swept::Done(summary) => {
                self.summaries.push((*summary).clone());
                *summary
            }
            other @ (Swept::Busy { .. } | Swept::Repeated | Swept::Superseded { .. } | Swept::LeftToSchedule(_)) => {
                panic!("{other:?}")
            }
        }
    }

    /// Asks for something particular.
    pub(crate) async fn wish(&self, wish: &Wish) -> Swept {
        self.sweep.sweep(wish, self.now() + PATIENCE).await.unwrap()
    }

    /// Lets time pass: webhooks arrive, the queue is worked on, and every minute it is swept.
    pub(crate) async fn pass(&mut self, minutes: i64) {
        let until = self.now() + SignedDuration::from_mins(minutes);
        while self.now() < until {
            let minute = domain::breaker::minute_of(self.now()) + SignedDuration::from_mins(1);
            let next = self.with(|world| world.next_event_at()).unwrap_or(minute).min(minute).min(until);
            self.with(|world| world.advance_to(next));
            self.settle().await;
            let this = domain::breaker::minute_of(self.now());
            if self.sweeping && self.swept_until.is_none_or(|last| last < this) {
                self.swept_until = Some(this);
                self.sweep_now().await;
                self.settle().await;
            }
        }
    }

    /// Lets time pass until something is true, at most this long.
    pub(crate) async fn until(&mut self, minutes: i64, mut true_now: impl AsyncFnMut(&Self) -> bool) -> bool {
        for _ in 0..minutes {
            if true_now(self).await {
                return true;
            }
            self.pass(1).await;
        }
        true_now(self).await
    }

    /// Everything that is under way arrives.
    pub(crate) async fn settle(&mut self) {
        loop {
            let deliveries = self.with(Fakes::take_webhooks);
            for delivery in &deliveries {
                let lost = (self.lost)(self.webhooks, delivery);
                self.webhooks += 1;
                if !lost {
                    self.arrive(delivery).await;
                }
            }
            let queue =
                if self.bridging { std::mem::take(&mut self.post.mail.lock().unwrap().queue) } else { Vec::new() };
            if deliveries.is_empty() && queue.is_empty() {
                return;
            }
            for (id, message) in queue {
                let body = message.to_json().unwrap();
                if self.bridge.handle(&id, &body).await.is_err() {
                    self.post.mail.lock().unwrap().queue.push((id, message));
                    return;
                }
            }
        }
    }

    async fn arrive(&self, delivery: &Delivery) {
        let mut request = Request::builder().method("POST").uri(delivery.target.path());
        for (name, value) in &delivery.headers {
            request = request.header(name, value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let answer = self.webhook.handle(&parts, &delivery.body, self.now()).await;
        let code = answer.status().as_u16();
        if code != 200 {
            self.with(|world| world.webhook_answered(delivery, code));
        }
    }

    /// The record, which must be there.
    pub(crate) async fn record(&self, pr: &Pr) -> Record {
        self.find(pr).await.unwrap_or_else(|| panic!("{pr} is not known"))
    }

    pub(crate) async fn find(&self, pr: &Pr) -> Option<Record> {
        lookup::records(&self.store.store, &[id(pr)], self.now()).await.unwrap().pop()
    }

    pub(crate) async fn state(&self, pr: &Pr) -> Option<State> {
        self.find(pr).await.map(|record| record.state)
    }

    pub(crate) async fn log(&self, pr: &Pr) -> Vec<Event> {
        lookup::events(&self.store.store, &id(pr), false, None, 1_000, self.now()).await.unwrap().entries
    }

    pub(crate) async fn logged(&self, pr: &Pr, kind: EventKind) -> Vec<Event> {
        self.log(pr).await.into_iter().filter(|event| event.kind == kind).collect()
    }

    /// How often each thing has happened in the log.
    pub(crate) async fn kinds(&self, pr: &Pr) -> BTreeMap<&'static str, usize> {
        let mut kinds = BTreeMap::new();
        for event in self.log(pr).await {
            *kinds.entry(event.kind.name()).or_default() += 1;
        }
        kinds
    }

    /// What GitHub would correct about a record right now, in words; nothing if they agree.
    pub(crate) async fn drift(&self, pr: &Pr) -> Option<String> {
        let record = self.record(pr).await;
        if record.state.is_terminal() {
            let open = self.with(|world| world.pull(pr).is_some_and(fakes::Pull::is_open));
            return open.then(|| "GitHub says it is open".to_owned());
        }
        let wanted = [(id(pr), record.node_id.clone().unwrap())];
        let (_, snapshot) = self.github.snapshots(&wanted, &self.policies).await.pop().unwrap();
        let fact = tests::fact(&id(pr), "probe", self.now(), Happened::Verified(Box::new(snapshot.unwrap())));
        let policy = self.policies.for_repo(&id(pr).repo);
        let decision = domain::decide::decide(policy, Some(record), &fact, self.now());
        let drift = decision.events.iter().find(|event| event.kind == EventKind::StateDriftCorrected);
        drift.map(|event| event.payload.text.clone())
    }
}

/// A tick of the schedule, named by its millisecond: tests sweep more often than once a minute.
pub(crate) fn regular(name: &str, now: Timestamp) -> Wish {
    let run = domain::id::RunId::new(format!("{name}-{}", now.as_millisecond()));
    Wish { run, ..Wish::scheduled("sweep", now, format!("{name}-process-{}", now.as_millisecond())) }
}

/// Suture's name of a pull request of the world.
pub(crate) fn id(pr: &Pr) -> PrId {
    pr.to_string().parse().unwrap()
}

fn to_github(
    world: &Arc<Mutex<Fakes>>,
    trap: &Arc<Trap>,
    queries: &Arc<AtomicUsize>,
    [limited_at, slow_secs]: [&Arc<AtomicUsize>; 2],
) -> Transport {
    let (world, trap) = (Arc::clone(world), Arc::clone(trap));
    let (queries, limited_at, slow_secs) = (Arc::clone(queries), Arc::clone(limited_at), Arc::clone(slow_secs));
    Transport::with_service(tower::service_fn(move |request: Request<Bytes>| {
        let path = request.uri().path().to_owned();
        if path == "/graphql" {
            let number = queries.fetch_add(1, Ordering::SeqCst) + 1;
            let slow = i64::try_from(slow_secs.load(Ordering::SeqCst)).unwrap();
            world.lock().unwrap().advance(SignedDuration::from_secs(slow));
            if number == limited_at.load(Ordering::SeqCst) {
                world.lock().unwrap().force_request(fakes::Fault::ApiForbidden);
            }
        }
        let answer = through(&trap, format!("GitHub {} {path}", request.method()), || {
            world.lock().unwrap().github(request).map_err(Into::into)
        });
        async move { answer }
    }))
}

fn to_jenkins(world: &Arc<Mutex<Fakes>>, trap: &Arc<Trap>, down: &Arc<AtomicBool>) -> Transport {
    let (world, trap, down) = (Arc::clone(world), Arc::clone(trap), Arc::clone(down));
    Transport::with_service(tower::service_fn(move |request: Request<Bytes>| {
        let name = format!("Jenkins {} {}", request.method(), request.uri().path());
        let answer = through(&trap, name, || {
            if down.load(Ordering::SeqCst) {
                return Err("Jenkins is down".into());
            }
            world.lock().unwrap().jenkins(request).map_err(Into::into)
        });
        async move { answer }
    }))
}

fn through(
    trap: &Trap,
    name: String,
    call: impl FnOnce() -> Result<Response<Bytes>, BoxError>,
) -> Result<Response<Bytes>, BoxError> {
    let (made, heard) = trap.pass(|| name);
    if !made {
        return Err("nobody answers".into());
    }
    let answer = call();
    if heard { answer } else { Err("the answer was lost".into()) }
}
