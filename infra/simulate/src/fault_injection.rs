//! The border of a process: everything that leaves it passes here, takes its time, and may go wrong. What passes is shown to
//! the watch at the very moment it takes effect.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use domain::id::RunId;
use domain::policy::Policies;
use domain::route::DetailType;
use futures_util::FutureExt;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use platform::clock::{Clock, Pause};
use platform::http::{BoxError, Transport};
use platform::outlets::{Content, Outlets, Parcel, Undelivered};
use platform::store::{Key, Page, Query, Spent, Store, StoreError, Write};
use serde_dynamo::Item;
use tokio::sync::Notify;
use tokio::time::Instant;
use world::World;

use crate::faults::{FaultPlan, InternalFault};
use crate::invariants::{InvariantChecker, InvocationState};
use crate::queue::{Queue, later};
use crate::rng::Rng;
use crate::simulation::SimConfig;

/// What a test breaks on purpose, to see that the watch notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedBug {
    /// The store says yes and forgets every so many events.
    StoreForgets(u64),
    /// GitHub and Jenkins are asked everything twice.
    ActsTwice,
    /// The queue says yes and loses every so many messages.
    QueueLoses(u64),
    /// Mails are said to be sent, and are not.
    MailLost,
}

/// A way to stop a process at a call that leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashMode {
    /// It dies before the call.
    Before,
    /// It dies after the call, before it hears the answer.
    After,
    /// The answer is lost, and the process goes on.
    AnswerLost,
}

/// Where a process is stopped: at the call of this number that leaves a process of this function, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    /// Whose call.
    pub function: Function,
    /// Which.
    pub call: u64,
    /// How.
    pub how: CrashMode,
}

/// Locks; what a panic left behind is looked at all the same.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all processes share: the outside, the tables, the queue, time, and who watches them.
pub(crate) struct SharedState<S> {
    pub(crate) world: Mutex<World>,
    pub(crate) store: S,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) checker: Mutex<InvariantChecker>,
    pub(crate) faults: FaultPlan,
    pub(crate) policies: Policies,
    pub(crate) rng: Mutex<Rng>,
    /// What is asked of the reconciler on the bus.
    pub(crate) requests: Mutex<Vec<String>>,
    /// Something was put where somebody should look.
    pub(crate) changed: Notify,
    pub(crate) bug: Option<InjectedBug>,
    /// Calls that have left each function's processes, and the one at which the process is stopped.
    pub(crate) calls: Mutex<BTreeMap<Function, u64>>,
    pub(crate) stop: Option<CrashPoint>,
    /// When a process of each function died last.
    died: Mutex<BTreeMap<Function, Timestamp>>,
    /// Requests of all processes to the tables.
    pub(crate) asked: AtomicU64,
    pub(crate) trace: Option<Mutex<Vec<String>>>,
    start: Timestamp,
    began: Instant,
}

impl<S: Store> SharedState<S> {
    /// What a plot begins with.
    pub(crate) fn new(config: &SimConfig, world: World, store: S) -> Self {
        Self {
            start: world.now(),
            world: Mutex::new(world),
            store,
            queue: Mutex::default(),
            checker: Mutex::new(InvariantChecker::new(config.policies.clone(), config.keeps_log)),
            faults: config.faults.clone(),
            policies: config.policies.clone(),
            rng: Mutex::new(Rng::new(config.seed, 1)),
            requests: Mutex::default(),
            changed: Notify::new(),
            bug: config.bug,
            calls: Mutex::default(),
            stop: config.stop,
            died: Mutex::default(),
            asked: AtomicU64::new(0),
            trace: config.trace.then(Mutex::default),
            began: Instant::now(),
        }
    }

    /// The true time.
    pub(crate) fn now(&self) -> Timestamp {
        let passed = Instant::now().duration_since(self.began).as_millis();
        later(self.start, SignedDuration::from_millis(i64::try_from(passed).unwrap_or(i64::MAX)))
    }

    /// When that is, for tokio's timers.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        let passed = at.duration_since(self.start).as_millis();
        self.began + Duration::from_millis(u64::try_from(passed).unwrap_or(0))
    }

    /// The world, as of now.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        let now = self.now();
        let mut world = locked(&self.world);
        world.advance_to(now);
        world
    }

    /// One line of the history, if somebody wants to read it.
    pub(crate) fn trace(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let passed = self.now().duration_since(self.start);
            let secs = passed.as_secs();
            let stamp =
                format!("{:>3}:{:02}:{:02}.{:03}", secs / 3600, secs / 60 % 60, secs % 60, passed.subsec_millis());
            locked(trace).push(format!("{stamp}  {}", line()));
        }
    }

    /// A row, read past all faults.
    pub(crate) fn peek(&self, key: &Key) -> Option<Item> {
        self.store.get(key, self.now()).now_or_never()?.ok()?
    }

    /// Whether no sweep has anything to do until then, read past all faults.
    pub(crate) fn is_idle(&self, until: Timestamp) -> bool {
        let idle = platform::sweep::is_idle(&self.store, self.policies.base(), until).now_or_never();
        matches!(idle, Some(Ok(true)))
    }

    /// One more call leaves a process of this function. Answers whether it is the one to stop at.
    fn stops(&self, function: Function) -> Option<CrashMode> {
        let mut calls = locked(&self.calls);
        let call = calls.entry(function).or_default();
        *call += 1;
        self.stop.filter(|stop| stop.function == function && stop.call == *call).map(|stop| stop.how)
    }

    /// Whether this goes wrong now.
    pub(crate) fn happens(&self, fault: InternalFault, per_mille: u64) -> bool {
        let per_mille = per_mille * u64::from(self.faults.times);
        self.faults.has(fault) && locked(&self.rng).happens(per_mille.min(300))
    }

    /// Whether another process of this function may die already.
    fn may_die(&self, function: Function) -> bool {
        let (now, mut died) = (self.now(), locked(&self.died));
        let recently = died.get(&function).is_some_and(|last| now.duration_since(*last) < DEATHS_APART);
        if !recently {
            died.insert(function, now);
        }
        !recently
    }

    fn between(&self, low: u64, high: u64) -> u64 {
        locked(&self.rng).between(low, high)
    }
}

/// Which function a process is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Function {
    Webhook,
    CarBridge,
    Reconciler,
    Admin,
}

impl Function {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::CarBridge => "car-bridge",
            Self::Reconciler => "reconciler",
            Self::Admin => "admin",
        }
    }
}

/// One process: what it is doing, its clock, and whether it is still there.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) function: Function,
    pub(crate) number: u64,
    skew: SignedDuration,
    invocation: Mutex<InvocationState>,
    died: Notify,
}

impl Process {
    pub(crate) fn new(function: Function, number: u64, skew: SignedDuration) -> Self {
        let invocation = InvocationState::new(function);
        Self { function, number, skew, invocation: Mutex::new(invocation), died: Notify::new() }
    }

    /// It begins something new.
    pub(crate) fn begins(&self, now: Timestamp) {
        *locked(&self.invocation) = InvocationState { since: now, ..InvocationState::new(self.function) };
    }

    pub(crate) fn invocation(&self) -> InvocationState {
        locked(&self.invocation).clone()
    }

    /// Comes when it has died.
    pub(crate) async fn death(&self) {
        self.died.notified().await;
    }

    /// It dies here: the call never comes back, and whoever runs it lets it go.
    async fn dies<T>(&self) -> T {
        self.died.notify_one();
        std::future::pending().await
    }
}

/// The border of one process.
pub(crate) struct ProcessBoundary<S> {
    pub(crate) shared: Arc<SharedState<S>>,
    pub(crate) process: Arc<Process>,
}

impl<S> Clone for ProcessBoundary<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), process: Arc::clone(&self.process) }
    }
}

impl<S> std::fmt::Debug for ProcessBoundary<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "border of {} {}", self.process.function.name(), self.process.number)
    }
}

/// One of so many calls ends its process.
const KILLED_PER_MILLE: u64 = 3;
/// Machines break by the hour, not by the call: the sweep of a large fleet makes hundreds of calls, and none would ever end.
const DEATHS_APART: SignedDuration = SignedDuration::from_mins(10);

impl<S: Store + 'static> ProcessBoundary<S> {
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(ProcessClock(self.clone()))
    }

    /// Time by this process' clock.
    pub(crate) fn now(&self) -> Timestamp {
        later(self.shared.now(), self.process.skew)
    }

    fn trace(&self, line: impl FnOnce() -> String) {
        self.shared.trace(|| format!("{} {}: {}", self.process.function.name(), self.process.number, line()));
    }

    /// Whether and how the process is stopped at this call.
    fn stop(&self, what: impl FnOnce() -> String) -> Option<CrashMode> {
        let told = self.shared.stops(self.process.function);
        let by_chance = || {
            let dies = self.shared.happens(InternalFault::ProcessKilled, KILLED_PER_MILLE)
                && self.shared.may_die(self.process.function);
            dies.then(|| if self.shared.between(0, 1) == 0 { CrashMode::Before } else { CrashMode::After })
        };
        let stop = told.or_else(by_chance);
        if let Some(how) = stop {
            self.trace(|| format!("is stopped ({how:?}) at: {}", what()));
        }
        stop
    }

    async fn takes_ms(&self, low: u64, high: u64) {
        tokio::time::sleep(Duration::from_millis(self.shared.between(low, high))).await;
    }

    /// A call to the table.
    async fn ask<T>(
        &self,
        name: impl Fn() -> String,
        is_write: bool,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.takes_ms(1, 8).await;
        self.shared.asked.fetch_add(1, Ordering::Relaxed);
        if self.shared.happens(InternalFault::StoreThrottled, 3) {
            self.trace(|| format!("throttled: {}", name()));
            return Err(StoreError::Throttled);
        }
        if is_write && self.shared.happens(InternalFault::StoreConflict, 8) {
            self.trace(|| format!("meets another transaction: {}", name()));
            return Err(StoreError::Contended);
        }
        let stop = self.stop(&name);
        if stop == Some(CrashMode::Before) {
            return self.process.dies().await;
        }
        let answer = call.await;
        if stop == Some(CrashMode::After) {
            return self.process.dies().await;
        }
        if stop == Some(CrashMode::AnswerLost) || self.shared.happens(InternalFault::StoreAnswerLost, 2) {
            self.trace(|| format!("hears no answer to: {}", name()));
            return Err(StoreError::Unavailable("the answer was lost".to_owned()));
        }
        answer
    }

    /// Writes, and shows what was written to the watch in the same moment.
    async fn written(&self, writes: Vec<Write>, now: Timestamp) -> Result<(), StoreError> {
        let summaries = locked(&self.shared.checker).digest(&writes);
        let kept = match self.shared.bug {
            Some(InjectedBug::StoreForgets(every)) => forget(&self.shared, writes, every),
            Some(InjectedBug::ActsTwice | InjectedBug::QueueLoses(_) | InjectedBug::MailLost) | None => writes,
        };
        self.shared.store.write(kept, now).await?;
        let at = self.shared.now();
        let mut invocation = locked(&self.process.invocation);
        let mut checker = locked(&self.shared.checker);
        let needs_a_person = |pr: &world::Pr| locked(&self.shared.world).needs_a_person(pr).is_some();
        for line in checker.wrote(summaries, &mut invocation, at, needs_a_person) {
            self.trace(|| line);
        }
        Ok(())
    }

    /// Where requests to GitHub or Jenkins leave.
    pub(crate) fn transport(&self, to: Surface) -> Transport {
        let boundary = self.clone();
        Transport::with_service(tower::service_fn(move |request: Request<Bytes>| {
            let boundary = boundary.clone();
            async move { boundary.request(to, request).await }
        }))
    }

    async fn request(&self, to: Surface, request: Request<Bytes>) -> Result<Response<Bytes>, BoxError> {
        let name = format!("{to:?} {} {}", request.method(), request.uri().path());
        self.takes_ms(10, 120).await;
        let stop = self.stop(|| name.clone());
        if stop == Some(CrashMode::Before) {
            return self.process.dies().await;
        }
        let answer = self.put(to, request);
        if stop == Some(CrashMode::After) {
            return self.process.dies().await;
        }
        self.takes_ms(10, 120).await;
        if stop == Some(CrashMode::AnswerLost) {
            return Err("the answer was lost".into());
        }
        match answer {
            Ok(answer) => Ok(answer),
            Err(silence) => {
                self.trace(|| format!("hears nothing: {name}"));
                // As long as a client is willing to wait, and then nothing.
                tokio::time::sleep(Duration::from_secs(9)).await;
                Err(silence.into())
            }
        }
    }

    /// Asks the world, and shows the watch what it did.
    fn put(&self, to: Surface, request: Request<Bytes>) -> Result<Response<Bytes>, world::Silence> {
        let mut world = self.shared.world();
        let before = world.effects().len();
        let twice = self.shared.bug == Some(InjectedBug::ActsTwice) && request.method() != http::Method::GET;
        let again = twice.then(|| request.clone());
        let answer = to.ask(&mut world, request);
        if let Some(again) = again {
            let _ = to.ask(&mut world, again);
        }
        self.show(&world, before);
        drop(world);
        self.shared.changed.notify_one();
        answer
    }

    /// Shows the watch what was done to the outside since then.
    fn show(&self, world: &World, since: usize) {
        let invocation = locked(&self.process.invocation);
        let mut checker = locked(&self.shared.checker);
        for line in checker.did(&world.effects()[since..], &invocation, world, self.shared.now()) {
            self.trace(|| line);
        }
    }

    fn deliver(&self, parcel: &Parcel) -> Result<(), Undelivered> {
        match &parcel.what {
            Content::Queue { message, delay, .. } => {
                let body = message.to_json().map_err(|error| Undelivered(error.to_string()))?;
                let delay = SignedDuration::try_from(*delay).unwrap_or(SignedDuration::ZERO);
                self.enqueue(body, delay);
            }
            Content::Bus { detail_type: DetailType::ReconcileRequested, detail } => {
                locked(&self.shared.requests).push(detail.clone());
            }
            Content::Bus { detail_type, detail } => {
                let mut world = self.shared.world();
                let before = world.effects().len();
                world.bus_event(detail_type.name(), detail);
                self.show(&world, before);
            }
            Content::People(notice) => {
                self.trace(|| format!("tells people: {}", notice.subject));
                if self.shared.bug != Some(InjectedBug::MailLost) {
                    locked(&self.shared.checker).mailed(&parcel.id, notice, self.shared.now());
                }
            }
        }
        self.shared.changed.notify_one();
        Ok(())
    }

    fn enqueue(&self, body: String, delay: SignedDuration) {
        let mut at = later(self.shared.now(), delay);
        if self.shared.happens(InternalFault::MessageLate, 60) {
            let late = SignedDuration::from_secs(i64::try_from(self.shared.between(30, 900)).unwrap_or(60));
            self.trace(|| format!("a message will come {late:#} late"));
            at = later(at, late);
        }
        let id = locked(&self.shared.queue).put(body, at);
        locked(&self.process.invocation).queued.push(id);
        if let Some(InjectedBug::QueueLoses(every)) = self.shared.bug
            && id.is_multiple_of(every)
        {
            locked(&self.shared.queue).lose(id);
        }
    }

    /// A run that the process reads is the one it works on.
    fn reads(&self, key: &Key) {
        if let Some(run) = key.partition.strip_prefix("RUN#") {
            locked(&self.process.invocation).run = Some(RunId::new(run));
        }
    }
}

fn forget<S: Store>(shared: &SharedState<S>, writes: Vec<Write>, every: u64) -> Vec<Write> {
    let is_event = |write: &Write| write.key().table == platform::store::Table::Events;
    let forgets = writes.iter().any(is_event) && locked(&shared.rng).below(every) == 0;
    writes.into_iter().filter(|write| !(forgets && is_event(write))).collect()
}

/// Which of the world's surfaces.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Surface {
    GitHub,
    Jenkins,
}

impl Surface {
    fn ask(self, world: &mut World, request: Request<Bytes>) -> Result<Response<Bytes>, world::Silence> {
        match self {
            Self::GitHub => world.github(request),
            Self::Jenkins => world.jenkins(request),
        }
    }
}

impl<S: Store + 'static> Store for ProcessBoundary<S> {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        self.reads(key);
        self.ask(|| format!("get {key}"), false, self.shared.store.get(key, now)).await
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        self.ask(|| format!("get {} rows", keys.len()), false, self.shared.store.get_many(keys, now)).await
    }

    async fn write(&self, writes: Vec<Write>, now: Timestamp) -> Result<(), StoreError> {
        let first = writes.first().map(|write| write.key().clone());
        let name = || format!("write {}", first.as_ref().map(ToString::to_string).unwrap_or_default());
        self.ask(name, true, self.written(writes, now)).await
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        self.ask(|| format!("count {key}"), false, self.shared.store.count(key, by, ttl, now)).await
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        self.ask(|| format!("query {}", query.partition), false, self.shared.store.query(query, now)).await
    }

    fn spent(&self) -> &Spent {
        self.shared.store.spent()
    }
}

impl<S: Store + 'static> Outlets for ProcessBoundary<S> {
    async fn send(&self, parcels: &[Parcel]) -> Vec<Result<(), Undelivered>> {
        let silent = || parcels.iter().map(|_| Err(Undelivered("nobody answers".to_owned()))).collect();
        self.takes_ms(2, 30).await;
        let stop = self.stop(|| format!("send {}", parcels.first().map_or("", |parcel| &parcel.id)));
        if stop == Some(CrashMode::Before) {
            return self.process.dies().await;
        }
        let answers = parcels.iter().map(|parcel| self.deliver(parcel)).collect();
        match stop {
            Some(CrashMode::After) => self.process.dies().await,
            Some(CrashMode::AnswerLost) => silent(),
            Some(CrashMode::Before) | None => answers,
        }
    }
}

/// A process' own clock: the world's, a little off.
struct ProcessClock<S>(ProcessBoundary<S>);

impl<S> std::fmt::Debug for ProcessClock<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("clock of a process")
    }
}

impl<S: Store + 'static> Clock for ProcessClock<S> {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn sleep(&self, pause: Duration) -> Pause {
        Box::pin(tokio::time::sleep(pause))
    }
}
