//! Dispatches each queue message to its handler: deferred facts to the engine, a user's command to `user_command`, a claimed remedy to
//! `run_executor`, a task to `task`. Also holds what the handlers share: the external clients, writing once under a lease, GitHub's rate
//! limit, and applying facts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use domain::command::RepoPermission;
use domain::decide::FactOutcome;
use domain::event::{Actor, Fact, FactKind};
use domain::id::{EventId, PrId, RepoName};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use crate::hops::{self, HopCounter};
use platform::clock::Clock;
use platform::engine::ingest::apply_facts;
use platform::engine::repo_registry::RepoRegistry;
use platform::engine::{ApplyResult, Engine, EngineError};
use platform::github::GitHub;
use platform::jenkins::Jenkins;
use platform::publish::Publisher;
use platform::publish::queue_message::{InvalidMessage, QueueMessage};
use platform::store::lease;
use platform::store::lease::LeaseResult;
use platform::store::not_before;
use platform::store::waiting::{self, WaitingMessage};
use platform::store::{Store, StoreError};
use platform::transport::ApiError;

use crate::bot_http::BotHttp;

/// Length of a worker's lease. Longer than an invocation can run (two minutes), even if the clocks of this worker and the next one are
/// four minutes apart.
pub(crate) const WORKER_LEASE: SignedDuration = SignedDuration::from_mins(6);

/// The outcome of a message that is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageOutcome {
    /// Executed; for a remedy: accepted by its target.
    Done(String),
    /// Nothing to do: executed before or by another worker, superseded or finished.
    Noop(String),
    /// Not possible now; its due date in the table brings it back.
    Deferred(String),
    /// Not executed; the requester is told why.
    Rejected(String),
    /// Tried and failed; the run records the error.
    Failed(String),
}

/// An error that returns the message to the queue. After several attempts SQS moves it to the dead-letter queue.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RetryableError {
    #[error(transparent)]
    InvalidMessage(#[from] InvalidMessage),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A GitHub call failed while replying, or between two steps.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Publishing to the bus or the queue failed.
    #[error("{0}")]
    Publish(String),
}

impl RetryableError {
    /// Whether the retry is ordinary: another worker was faster, or a service did not respond. A message that is retried too often becomes
    /// a dead letter, which has an alarm.
    pub(crate) fn is_ordinary(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_conflict(),
            Self::Store(error) => error.is_conflict(),
            Self::Api(error) => error.is_transient(),
            Self::InvalidMessage(_) | Self::Publish(_) => false,
        }
    }
}

/// Clients of the external systems.
#[derive(Debug, Clone)]
pub struct ExternalClients {
    pub github: GitHub,
    /// Set if Jenkins is configured.
    pub jenkins: Option<Jenkins>,
    /// For bots that are retriggered by HTTP.
    pub http: BotHttp,
    pub clock: Arc<dyn Clock>,
}

/// Users' permissions as read from GitHub, with the time of reading.
pub(crate) type PermissionCache = BTreeMap<(RepoName, String), (Timestamp, Option<RepoPermission>)>;

#[derive(Debug)]
pub struct CarBridge<S, O> {
    pub(crate) engine: Engine<S, HopCounter<O>>,
    pub(crate) clients: ExternalClients,
    pub(crate) permissions: Mutex<PermissionCache>,
    pub(crate) repos: RepoRegistry,
    pub(crate) worker_counter: AtomicU64,
}

/// The name of GitHub's rate limit in the table, shared by all functions.
const GITHUB: &str = "github";

impl<S: Store, O: Publisher> CarBridge<S, O> {
    pub fn new(engine: Engine<S, O>, world: ExternalClients) -> Self {
        Self {
            engine: engine.layer(HopCounter),
            clients: world,
            permissions: Mutex::default(),
            repos: RepoRegistry::default(),
            worker_counter: AtomicU64::new(0),
        }
    }

    pub fn engine(&self) -> &Engine<S, HopCounter<O>> {
        &self.engine
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clients.clock.now()
    }

    /// Handles one message. `id` is the SQS message id, the same in every delivery.
    pub async fn handle(&self, id: &str, body: &str) -> Result<MessageOutcome, RetryableError> {
        hops::after(QueueMessage::hops(body), self.dispatch(id, body)).await
    }

    async fn dispatch(&self, id: &str, body: &str) -> Result<MessageOutcome, RetryableError> {
        match QueueMessage::from_json(body)? {
            // Boxed, because the nested futures are otherwise too deep for the compiler.
            QueueMessage::Fact(fact) => {
                let outcomes = Box::pin(self.apply_deferred_facts(&[*fact])).await?;
                Ok(outcomes.into_iter().next().unwrap_or_else(|| MessageOutcome::Noop("no fact".to_owned())))
            }
            QueueMessage::Command(command) if command.source.is_human() => {
                Box::pin(self.handle_user_command(id, &command)).await
            }
            QueueMessage::Command(command) => Box::pin(self.execute_run(id, &command)).await,
            QueueMessage::Task(task) => Box::pin(self.run_task(id, &task)).await,
        }
    }

    /// Applies deferred facts of one pull request together. Returns one outcome per fact.
    pub(crate) async fn apply_deferred_facts(&self, facts: &[Fact]) -> Result<Vec<MessageOutcome>, RetryableError> {
        let results = apply_facts(&self.engine, &self.repos, facts, self.now()).await?;
        let outcome = |applied: ApplyResult| match applied.outcome {
            FactOutcome::Applied | FactOutcome::Anomaly => MessageOutcome::Done(applied.reason),
            FactOutcome::Duplicate
            | FactOutcome::Ignored
            | FactOutcome::Superseded
            | FactOutcome::Refused
            | FactOutcome::Deferred => MessageOutcome::Noop(applied.reason),
        };
        Ok(results.into_iter().map(outcome).collect())
    }

    /// A unique worker name, even for two workers that handle the same message at the same time.
    pub(crate) fn worker(&self, id: &str) -> String {
        format!("{id}@{}#{}", self.now(), self.worker_counter.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates something that must exist once, after a probe did not find it. Two workers may handle the same message at the same time and
    /// both find nothing, so the write needs a lease. After a success the lease is left to expire, because later probes find the result;
    /// after a failure it is released, so that the next attempt need not wait.
    pub(crate) async fn run_once<T>(
        &self,
        what: &str,
        write: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let (store, worker, now) = (self.engine.store(), self.worker("once"), self.now());
        let until = now.saturating_add(WORKER_LEASE).unwrap_or(now);
        let why = match lease::acquire(store, what, &worker, until, now).await {
            Ok(LeaseResult::Held) => {
                let written = write.await;
                if written.is_err() {
                    // If the release fails, the lease expires.
                    let _ = lease::release(store, what, &worker, self.now()).await;
                }
                return written;
            }
            Ok(LeaseResult::HeldByOther { until, .. }) => {
                format!("another worker holds the lease: retry after {until}")
            }
            Err(error) => error.to_string(),
        };
        Err(ApiError::Unavailable { why, may_have_happened: false })
    }

    /// Keeps a message that has no due date of its own in the table until then, before the one that is handled is acknowledged.
    pub(crate) async fn wait_until(
        &self,
        until: Timestamp,
        message: &QueueMessage,
        repo: &RepoName,
    ) -> Result<(), RetryableError> {
        let waiting = WaitingMessage { message: message.to_json()?, repo: repo.clone() };
        Ok(waiting::put(self.engine.store(), &waiting, until, self.now()).await?)
    }

    /// Until when GitHub's rate limit forbids calls, as recorded by any function.
    pub(crate) async fn github_not_before(&self) -> Result<Option<Timestamp>, RetryableError> {
        Ok(not_before::load(self.engine.store(), GITHUB, self.now()).await?)
    }

    /// If the error is a rate limit, stores it for all functions.
    pub(crate) async fn store_rate_limit(&self, error: &ApiError) -> Result<(), RetryableError> {
        if let Some(until) = error.until() {
            not_before::set(self.engine.store(), GITHUB, until, self.now()).await?;
        }
        Ok(())
    }

    /// Applies a fact about something that Suture did or was asked to do. A retry must pass the same `id` and `at` to be recognised as a
    /// duplicate.
    pub(crate) async fn apply_fact(
        &self,
        pr: &PrId,
        id: String,
        at: Timestamp,
        what: FactKind,
    ) -> Result<ApplyResult, RetryableError> {
        let fact = Fact {
            id: EventId::new(id),
            pr: pr.clone(),
            occurred_at: at,
            actor: Actor::CommandQueue,
            kind: what,
            described: None,
        };
        Ok(Box::pin(self.engine.apply(&fact, self.now())).await?)
    }
}
