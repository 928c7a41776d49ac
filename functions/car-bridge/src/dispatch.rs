//! Dispatches each queue message to its handler: a deferred fact to the engine, a user's command to `user_command`, a claimed remedy to
//! `run_executor`, a task to `task`. Also holds what the handlers share: the external clients, writing once under a lease, GitHub's rate
//! limit, and applying facts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use domain::command::Permission;
use domain::decide::Outcome;
use domain::event::{Actor, Fact, Happened};
use domain::id::{EventId, PrId, RepoName};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use platform::clock::Clock;
use platform::engine::ingest::apply_fact;
use platform::engine::repo_registry::RepoRegistry;
use platform::engine::{Applied, Engine, EngineError};
use platform::github::GitHub;
use platform::guards::{self, Lease};
use platform::http::{CallError, Transport};
use platform::jenkins::Jenkins;
use platform::outlets::Outlets;
use platform::outlets::message::{Message, Unreadable};
use platform::store::{Store, StoreError};

/// Length of a worker's lease. Longer than an invocation can run (two minutes), even if the clocks of this worker and the next one are
/// four minutes apart.
pub(crate) const AT_WORK: SignedDuration = SignedDuration::from_mins(6);

/// The outcome of a message that is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handled {
    /// Executed; for a remedy: accepted by its target.
    Done(String),
    /// Nothing to do: executed before, superseded or finished.
    Nothing(String),
    /// Not possible now; its due date in the table brings it back.
    Waits(String),
    /// Not executed; the requester is told why.
    Refused(String),
    /// Tried and failed; the run records the error.
    Failed(String),
}

/// An error that returns the message to the queue. After several attempts SQS moves it to the dead-letter queue.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Again {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A GitHub call failed while replying, or between two steps.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Publishing to the bus or the queue failed.
    #[error("{0}")]
    Bus(String),
}

/// Clients of the external systems.
#[derive(Debug, Clone)]
pub struct World {
    pub github: GitHub,
    /// Set if Jenkins is configured.
    pub jenkins: Option<Jenkins>,
    /// For bots that are retriggered by HTTP.
    pub http: Transport,
    pub clock: Arc<dyn Clock>,
}

/// Users' permissions as read from GitHub, with the time of reading.
pub(crate) type Permissions = BTreeMap<(RepoName, String), (Timestamp, Option<Permission>)>;

#[derive(Debug)]
pub struct Bridge<S, O> {
    pub(crate) engine: Engine<S, O>,
    pub(crate) world: World,
    pub(crate) permissions: Mutex<Permissions>,
    pub(crate) repos: RepoRegistry,
    pub(crate) turns: AtomicU64,
}

/// The name of GitHub's rate limit in the table, shared by all functions.
const GITHUB: &str = "github";

impl<S: Store, O: Outlets> Bridge<S, O> {
    pub fn new(engine: Engine<S, O>, world: World) -> Self {
        Self { engine, world, permissions: Mutex::default(), repos: RepoRegistry::default(), turns: AtomicU64::new(0) }
    }

    pub fn engine(&self) -> &Engine<S, O> {
        &self.engine
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    /// Handles one message. `id` is the SQS message id, the same in every delivery.
    pub async fn handle(&self, id: &str, body: &str) -> Result<Handled, Again> {
        match Message::from_json(body)? {
            // Boxed, because the nested futures are otherwise too deep for the compiler.
            Message::Fact(fact) => Box::pin(self.heard(&fact)).await,
            Message::Command(command) if command.source.is_human() => Box::pin(self.asked(id, &command)).await,
            Message::Command(command) => Box::pin(self.carry_out(id, &command)).await,
            Message::Chore(task) => Box::pin(self.chore(id, &task)).await,
        }
    }

    pub(crate) async fn heard(&self, fact: &Fact) -> Result<Handled, Again> {
        let applied = apply_fact(&self.engine, &self.repos, None, fact, self.now()).await?;
        Ok(match applied.outcome {
            Outcome::Applied | Outcome::Anomaly => Handled::Done(applied.reason),
            Outcome::Duplicate | Outcome::Ignored | Outcome::Superseded | Outcome::Refused => {
                Handled::Nothing(applied.reason)
            }
        })
    }

    /// A unique worker name, even for two workers that handle the same message at the same time.
    pub(crate) fn worker(&self, id: &str) -> String {
        format!("{id}@{}#{}", self.now(), self.turns.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates something that must exist once, after a probe did not find it. Two workers may handle the same message at the same time and
    /// both find nothing, so the write needs a lease. After a success the lease is left to expire, because later probes find the result;
    /// after a failure it is released, so that the next attempt need not wait.
    pub(crate) async fn first<T>(
        &self,
        what: &str,
        write: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let (store, worker, now) = (self.engine.store(), self.worker("once"), self.now());
        let until = now.saturating_add(AT_WORK).unwrap_or(now);
        let why = match guards::take_lease(store, what, &worker, until, now).await {
            Ok(Lease::Held) => {
                let written = write.await;
                if written.is_err() {
                    // If the release fails, the lease expires.
                    let _ = guards::give_lease(store, what, &worker, self.now()).await;
                }
                return written;
            }
            Ok(Lease::Taken { until, .. }) => {
                format!("another worker holds the lease: retry after {until}")
            }
            Err(error) => error.to_string(),
        };
        Err(CallError::Unavailable { why, may_have_happened: false })
    }

    /// Until when GitHub's rate limit forbids calls, as recorded by any function.
    pub(crate) async fn github_held_off(&self) -> Result<Option<Timestamp>, Again> {
        Ok(guards::held_off(self.engine.store(), GITHUB, self.now()).await?)
    }

    /// If the error is a rate limit, stores it for all functions.
    pub(crate) async fn note_limit(&self, error: &CallError) -> Result<(), Again> {
        if let Some(until) = error.until() {
            guards::hold_off(self.engine.store(), GITHUB, until, self.now()).await?;
        }
        Ok(())
    }

    /// Applies a fact about something that Suture did or was asked to do. A retry must pass the same `id` and `at` to be recognised as a
    /// duplicate.
    pub(crate) async fn tell(&self, pr: &PrId, id: String, at: Timestamp, what: Happened) -> Result<Applied, Again> {
        let fact = Fact { id: EventId::new(id), pr: pr.clone(), occurred_at: at, actor: Actor::CommandQueue, what };
        Ok(self.engine.apply(&fact, self.now()).await?)
    }
}
