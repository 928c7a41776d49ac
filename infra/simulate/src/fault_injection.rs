//! The boundary of a process: every outgoing call passes through here, takes time, and may fail or crash the process. The invariant
//! checker checks each write when it takes effect.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use domain::bus::DetailType;
use domain::id::RunId;
use domain::time::saturating_after;
use fakes::Fakes;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use platform::clock::{Clock, SleepFuture};
use platform::publish::queue_message::QueueName;
use platform::publish::{Destination, OutboundMessage, PublishError, Publisher};
use platform::store::{Key, Page, Query, RowWrite, Store, StoreError, Table, UsageMeter};
use platform::transport::{BoxError, Transport};
use serde_dynamo::Item;
use testbed::CallFault;
use tokio::sync::Notify;

use crate::faults::InternalFault;
use crate::invariants::InvocationState;
use crate::shared_state::{SharedState, locked};

/// A deliberate bug, for tests of the invariants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedBug {
    /// The store acknowledges one in this many event writes without storing it.
    StoreForgets(u64),
    /// Every write to GitHub and Jenkins is sent twice.
    ActsTwice,
    /// The queue acknowledges one in this many messages and loses it.
    QueueLoses(u64),
    /// Mails are acknowledged but not sent.
    MailLost,
}

/// Crashes a process of this function at the function's outgoing call with this number, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    pub function: FunctionName,
    pub call: u64,
    pub fault: CallFault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FunctionName {
    Webhook,
    CarBridge,
    Reconciler,
    Admin,
}

impl FunctionName {
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

pub(crate) struct SimulatedProcess {
    pub(crate) function: FunctionName,
    pub(crate) number: u64,
    skew: SignedDuration,
    /// The current invocation.
    pub(crate) invocation: Mutex<InvocationState>,
    pub(crate) died: Notify,
}

impl SimulatedProcess {
    pub(crate) fn new(function: FunctionName, number: u64, skew: SignedDuration) -> Self {
        let invocation = Mutex::new(InvocationState::new(function, Timestamp::MIN));
        Self { function, number, skew, invocation, died: Notify::new() }
    }

    /// Signals the crash and never returns; the cluster drops the process.
    async fn die<T>(&self) -> T {
        self.died.notify_one();
        std::future::pending().await
    }
}

impl std::fmt::Display for SimulatedProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.function.name(), self.number)
    }
}

/// The share of outgoing calls that crash the process.
const KILLED_PER_MILLE: u64 = 3;
/// The timeout of a client for a response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(9);

/// Store, publisher, transport and clock of one process.
#[derive(Clone)]
pub(crate) struct ProcessBoundary {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) process: Arc<SimulatedProcess>,
}

impl std::fmt::Debug for ProcessBoundary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "boundary of {}", self.process)
    }
}

impl ProcessBoundary {
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    pub(crate) fn trace(&self, line: impl FnOnce() -> String) {
        self.shared.trace(|| format!("{}: {}", self.process, line()));
    }

    async fn delay_ms(&self, low: u64, high: u64) {
        tokio::time::sleep(Duration::from_millis(self.shared.between(low, high))).await;
    }

    fn next_fault(&self, call: impl FnOnce() -> String) -> Option<CallFault> {
        let function = self.process.function;
        let configured = self.shared.count_call(function);
        let random = || {
            let crashes =
                self.shared.happens(InternalFault::ProcessKilled, KILLED_PER_MILLE) && self.shared.may_crash(function);
            crashes.then(|| if self.shared.between(0, 1) == 0 { CallFault::Before } else { CallFault::After })
        };
        let fault = configured.or_else(random);
        if let Some(fault) = fault {
            self.trace(|| format!("crashes ({fault:?}) at: {}", call()));
        }
        fault
    }

    /// Makes an outgoing call. Returns `None` if its response is lost.
    async fn call<T>(&self, name: impl FnOnce() -> String, call: impl Future<Output = T>) -> Option<T> {
        match self.next_fault(name) {
            Some(CallFault::Before) => self.process.die().await,
            Some(CallFault::NotSent) => None,
            Some(CallFault::AnswerLost) => {
                call.await;
                None
            }
            Some(CallFault::After) => {
                call.await;
                self.process.die().await
            }
            Some(CallFault::Late) => {
                self.delay_ms(500, 500).await;
                Some(call.await)
            }
            None => Some(call.await),
        }
    }

    async fn call_store<T>(
        &self,
        name: impl Fn() -> String,
        is_write: bool,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.delay_ms(1, 8).await;
        self.shared.store_requests.fetch_add(1, Ordering::Relaxed);
        if self.shared.happens(InternalFault::StoreThrottled, 3) {
            self.trace(|| format!("throttled: {}", name()));
            return Err(StoreError::Throttled);
        }
        if is_write && self.shared.happens(InternalFault::StoreConflict, 8) {
            self.trace(|| format!("transaction conflict: {}", name()));
            return Err(StoreError::TransactionConflict);
        }
        let answer = self.call(&name, call).await;
        match answer.filter(|_| !self.shared.happens(InternalFault::StoreAnswerLost, 2)) {
            Some(answer) => answer,
            None => {
                self.trace(|| format!("answer lost: {}", name()));
                Err(StoreError::Unavailable("the answer was lost".to_owned()))
            }
        }
    }

    async fn checked_write(&self, mut writes: Vec<RowWrite>, now: Timestamp) -> Result<(), StoreError> {
        let summaries = locked(&self.shared.checker).summarize(&writes);
        if let Some(InjectedBug::StoreForgets(every)) = self.shared.config.bug {
            let is_event = |write: &RowWrite| write.key().table == Table::Events;
            if writes.iter().any(is_event) && locked(&self.shared.rng).below(every) == 0 {
                writes.retain(|write| !is_event(write));
            }
        }
        self.shared.store.write(writes, now).await?;
        let at = self.shared.now();
        let mut invocation = locked(&self.process.invocation);
        let mut checker = locked(&self.shared.checker);
        let needs_a_person = |pr: &fakes::FakePrId| locked(&self.shared.fakes).needs_a_person(pr).is_some();
        for line in checker.written(summaries, &mut invocation, at, needs_a_person) {
            self.trace(|| line);
        }
        Ok(())
    }

    pub(crate) fn transport(&self, to: FakeTarget) -> Transport {
        let boundary = self.clone();
        Transport::with_service(tower::service_fn(move |request: Request<Bytes>| {
            let boundary = boundary.clone();
            async move { boundary.request(to, request).await }
        }))
    }

    async fn request(&self, to: FakeTarget, request: Request<Bytes>) -> Result<Response<Bytes>, BoxError> {
        let name = format!("{to:?} {} {}", request.method(), request.uri().path());
        self.delay_ms(10, 120).await;
        let answer = self.call(|| name.clone(), async { self.call_fake(to, request) }).await;
        self.delay_ms(10, 120).await;
        match answer {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(no_response)) => {
                self.trace(|| format!("no answer: {name}"));
                tokio::time::sleep(CLIENT_TIMEOUT).await;
                Err(no_response.into())
            }
            None => Err("the answer was lost".into()),
        }
    }

    fn call_fake(&self, to: FakeTarget, request: Request<Bytes>) -> Result<Response<Bytes>, fakes::NoResponse> {
        let mut fakes = self.shared.fakes();
        let before = fakes.audit().len();
        let twice = self.shared.config.bug == Some(InjectedBug::ActsTwice) && request.method() != http::Method::GET;
        let repeated = twice.then(|| request.clone());
        let answer = to.call(&mut fakes, request);
        if let Some(repeated) = repeated {
            let _ = to.call(&mut fakes, repeated);
        }
        self.check_effects(&fakes, before);
        drop(fakes);
        self.shared.changed.notify_one();
        answer
    }

    fn check_effects(&self, fakes: &Fakes, since: usize) {
        let invocation = locked(&self.process.invocation);
        let mut checker = locked(&self.shared.checker);
        for line in checker.acted(&fakes.audit()[since..], &invocation, fakes, self.shared.now()) {
            self.trace(|| line);
        }
    }

    fn publish(&self, outbound: &OutboundMessage) -> Result<(), PublishError> {
        match &outbound.destination {
            Destination::Queue { message, delay, hops, .. } => {
                let body = message.to_json_after(*hops).map_err(|error| PublishError(error.to_string()))?;
                let delay = SignedDuration::try_from(*delay).unwrap_or(SignedDuration::ZERO);
                self.enqueue(message.queue(), body, delay);
            }
            Destination::Bus { detail_type: DetailType::ReconcileRequested, detail } => {
                locked(&self.shared.reconcile_requests).push(detail.clone());
            }
            Destination::Bus { detail_type, detail } => {
                let mut fakes = self.shared.fakes();
                let before = fakes.audit().len();
                fakes.bus_event(detail_type.name(), detail);
                self.check_effects(&fakes, before);
            }
            Destination::Notice(notice) => {
                self.trace(|| format!("mail: {}", notice.subject));
                if self.shared.config.bug != Some(InjectedBug::MailLost) {
                    locked(&self.shared.checker).mailed(&outbound.id, notice, self.shared.now());
                }
            }
        }
        self.shared.changed.notify_one();
        Ok(())
    }

    fn enqueue(&self, name: QueueName, body: String, delay: SignedDuration) {
        let mut visible_at = saturating_after(self.shared.now(), delay);
        if self.shared.happens(InternalFault::MessageLate, 60) {
            let late = locked(&self.shared.rng).seconds(30, 900);
            self.trace(|| format!("message delayed by {late:#}"));
            visible_at = saturating_after(visible_at, late);
        }
        let mut queues = locked(&self.shared.queues);
        let id = queues.send(name, body, visible_at);
        locked(&self.process.invocation).queued.push(id);
        if let Some(InjectedBug::QueueLoses(every)) = self.shared.config.bug
            && id.is_multiple_of(every)
        {
            queues.queue(name).remove(&id);
        }
    }
}

/// The fake that a request is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FakeTarget {
    GitHub,
    Jenkins,
}

impl FakeTarget {
    fn call(self, fakes: &mut Fakes, request: Request<Bytes>) -> Result<Response<Bytes>, fakes::NoResponse> {
        match self {
            Self::GitHub => fakes.github(request),
            Self::Jenkins => fakes.jenkins(request),
        }
    }
}

impl Store for ProcessBoundary {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        // The process works on the run that it read last.
        if let Some(run) = key.partition.strip_prefix("RUN#") {
            locked(&self.process.invocation).run = Some(RunId::new(run));
        }
        self.call_store(|| format!("get {key}"), false, self.shared.store.get(key, now)).await
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        self.call_store(|| format!("get {} rows", keys.len()), false, self.shared.store.get_many(keys, now)).await
    }

    async fn write(&self, writes: Vec<RowWrite>, now: Timestamp) -> Result<(), StoreError> {
        let first = writes.first().map(|write| write.key().to_string()).unwrap_or_default();
        self.call_store(|| format!("write {first}"), true, self.checked_write(writes, now)).await
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        self.call_store(|| format!("count {key}"), false, self.shared.store.count(key, by, ttl, now)).await
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        self.call_store(|| format!("query {}", query.partition), false, self.shared.store.query(query, now)).await
    }

    fn usage(&self) -> &UsageMeter {
        self.shared.store.usage()
    }
}

impl Publisher for ProcessBoundary {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<(), PublishError>> {
        self.delay_ms(2, 30).await;
        let name = || format!("send {}", messages.first().map_or("", |message| &message.id));
        let sent = self.call(name, async { messages.iter().map(|message| self.publish(message)).collect() }).await;
        sent.unwrap_or_else(|| messages.iter().map(|_| Err(PublishError("the answer was lost".to_owned()))).collect())
    }
}

impl Clock for ProcessBoundary {
    fn now(&self) -> Timestamp {
        saturating_after(self.shared.now(), self.process.skew)
    }

    fn sleep(&self, pause: Duration) -> SleepFuture {
        Box::pin(tokio::time::sleep(pause))
    }
}
