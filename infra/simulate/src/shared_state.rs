//! State shared by all simulated processes: the fakes, the store, the queue, virtual time, and the invariant checker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::time::saturating_after;
use fakes::Fakes;
use futures_util::FutureExt;
use jiff::{SignedDuration, Timestamp};
use platform::publish::queue_message::QueueName;
use platform::store::{Key, Store};
use serde_dynamo::Item;
use testbed::{CallFault, MemoryStore};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::fault_injection::FunctionName;
use crate::faults::InternalFault;
use crate::invariants::{Invariant, InvariantChecker};
use crate::queue::{SimulatedMessage, SimulatedQueue};
use crate::rng::SimulationRng;
use crate::simulation::SimConfig;

/// Without a minimum, no sweep of a large fleet would ever finish, because it makes hundreds of calls.
const MIN_BETWEEN_CRASHES: SignedDuration = SignedDuration::from_mins(10);

/// Ignores poisoning: after a panic, the state is still readable.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The two queues of the Car Bridge, and the ids of handled messages.
#[derive(Default)]
pub(crate) struct BridgeQueues {
    commands: SimulatedQueue<u64, String>,
    facts: SimulatedQueue<u64, String>,
    sent: u64,
    pub(crate) handled: BTreeSet<u64>,
}

impl BridgeQueues {
    pub(crate) fn queue(&mut self, name: QueueName) -> &mut SimulatedQueue<u64, String> {
        match name {
            QueueName::Commands => &mut self.commands,
            QueueName::Facts => &mut self.facts,
        }
    }

    fn both(&self) -> [&SimulatedQueue<u64, String>; 2] {
        [&self.commands, &self.facts]
    }

    pub(crate) fn send(&mut self, name: QueueName, body: String, visible_at: Timestamp) -> u64 {
        self.sent += 1;
        let id = self.sent;
        self.queue(name).put(SimulatedMessage { id, content: body, visible_at, receives: 0 });
        id
    }

    /// Whether there is at least one message, and each is queued or handled.
    pub(crate) fn kept_all(&self, ids: &[u64]) -> bool {
        let is_queued = |id: &u64| self.both().iter().any(|queue| queue.contains(id));
        !ids.is_empty() && ids.iter().all(|id| is_queued(id) || self.handled.contains(id))
    }

    pub(crate) fn next_visible_at(&self) -> Option<Timestamp> {
        self.both().iter().filter_map(|queue| queue.next_visible_at()).min()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.both().iter().all(|queue| queue.is_empty())
    }

    pub(crate) fn dead_letters(&self) -> usize {
        self.both().iter().map(|queue| queue.dead().len()).sum()
    }
}

pub(crate) struct SharedState {
    pub(crate) config: SimConfig,
    pub(crate) fakes: Mutex<Fakes>,
    pub(crate) store: MemoryStore,
    pub(crate) queues: Mutex<BridgeQueues>,
    pub(crate) checker: Mutex<InvariantChecker>,
    pub(crate) rng: Mutex<SimulationRng>,
    /// Details of `ReconcileRequested` events on the bus.
    pub(crate) reconcile_requests: Mutex<Vec<String>>,
    /// Notifies the simulation loop.
    pub(crate) changed: Notify,
    /// The number of outgoing calls of each function.
    pub(crate) calls: Mutex<BTreeMap<FunctionName, u64>>,
    last_crash: Mutex<BTreeMap<FunctionName, Timestamp>>,
    pub(crate) store_requests: AtomicU64,
    pub(crate) trace: Mutex<Vec<String>>,
    start: Timestamp,
    started: Instant,
}

impl SharedState {
    pub(crate) fn new(config: SimConfig, fakes: Fakes) -> Self {
        Self {
            start: fakes.now(),
            fakes: Mutex::new(fakes),
            store: MemoryStore::new(),
            queues: Mutex::default(),
            checker: Mutex::new(InvariantChecker::new(config.policies.clone(), config.keeps_log)),
            rng: Mutex::new(SimulationRng::new(config.seed, 1)),
            reconcile_requests: Mutex::default(),
            changed: Notify::new(),
            calls: Mutex::default(),
            last_crash: Mutex::default(),
            store_requests: AtomicU64::new(0),
            trace: Mutex::default(),
            started: Instant::now(),
            config,
        }
    }

    /// The true time; the clocks of processes may differ from it.
    pub(crate) fn now(&self) -> Timestamp {
        let passed = self.started.elapsed().as_millis();
        saturating_after(self.start, SignedDuration::from_millis(i64::try_from(passed).unwrap_or(i64::MAX)))
    }

    /// The tokio instant of a timestamp.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        let passed = at.duration_since(self.start).as_millis();
        self.started + Duration::from_millis(u64::try_from(passed).unwrap_or(0))
    }

    /// The fakes, advanced to the present.
    pub(crate) fn fakes(&self) -> MutexGuard<'_, Fakes> {
        let now = self.now();
        let mut fakes = locked(&self.fakes);
        fakes.advance_to(now);
        fakes
    }

    pub(crate) fn trace(&self, line: impl FnOnce() -> String) {
        if self.config.trace {
            let passed = self.now().duration_since(self.start);
            let (secs, ms) = (passed.as_secs(), passed.subsec_millis());
            let stamp = format!("{:>3}:{:02}:{:02}.{ms:03}", secs / 3600, secs / 60 % 60, secs % 60);
            locked(&self.trace).push(format!("{stamp}  {}", line()));
        }
    }

    pub(crate) fn violated(&self, invariant: Invariant, detail: String) {
        locked(&self.checker).violated(invariant, self.now(), detail);
    }

    /// Reads a row without faults.
    pub(crate) fn peek(&self, key: &Key) -> Option<Item> {
        self.store.get(key, self.now()).now_or_never()?.ok()?
    }

    /// Whether a sweep at this time would have nothing to do; reads without faults.
    pub(crate) fn is_idle(&self, until: Timestamp) -> bool {
        let idle = reconciler::is_idle(&self.store, &self.config.policies, until).now_or_never();
        matches!(idle, Some(Ok(true)))
    }

    /// Counts an outgoing call of this function. Returns the configured fault of this call, if any.
    pub(crate) fn count_call(&self, function: FunctionName) -> Option<CallFault> {
        let mut calls = locked(&self.calls);
        let call = calls.entry(function).or_default();
        *call += 1;
        self.config.crash.filter(|point| point.function == function && point.call == *call).map(|point| point.fault)
    }

    pub(crate) fn happens(&self, fault: InternalFault, per_mille: u64) -> bool {
        let faults = &self.config.faults;
        let per_mille = per_mille * u64::from(faults.times);
        faults.has(fault) && locked(&self.rng).happens(per_mille.min(300))
    }

    pub(crate) fn may_crash(&self, function: FunctionName) -> bool {
        let (now, mut last) = (self.now(), locked(&self.last_crash));
        let recently = last.get(&function).is_some_and(|last| now.duration_since(*last) < MIN_BETWEEN_CRASHES);
        if !recently {
            last.insert(function, now);
        }
        !recently
    }

    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        locked(&self.rng).between(low, high)
    }
}
