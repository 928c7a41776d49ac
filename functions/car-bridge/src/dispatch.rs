//! The Car Bridge: the only one that changes the outside world. It takes messages from the queue, carries out what was
//! claimed or asked for, and tells the engine what became of it. `runs` takes a run from its message to its news,
//! `remedies` and `rebuild` do what each strategy needs, `people` answers people, `chores` does small things, `issues` and `backlog` those that
//! concern issues. What is worth doing was decided before.

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

/// A worker that has not come back by then is gone: longer than a function may run (two minutes), even if its clock is two minutes
/// behind and that of whoever comes next two minutes ahead.
pub(crate) const AT_WORK: SignedDuration = SignedDuration::from_mins(6);

/// What became of a message that is done with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handled {
    /// What it asked for was done; for a remedy: its target has accepted.
    Done(String),
    /// There was nothing to do: done before, overtaken, or over.
    Nothing(String),
    /// It cannot be done now; its date in the table brings it back.
    Waits(String),
    /// It was not done, and whoever asked knows why.
    Refused(String),
    /// It was tried, and failed; the run says so.
    Failed(String),
}

/// The message goes back to the queue: nothing of it is lost, and after some tries it ends in the dead-letter queue.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Again {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The engine or the store cannot be reached, or is busy.
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// GitHub, when answering somebody or in the middle of something.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The bus, in the middle of something.
    #[error("the bus: {0}")]
    Bus(String),
}

/// The outside world, as the Car Bridge reaches it.
#[derive(Debug, Clone)]
pub struct World {
    pub github: GitHub,
    /// Jenkins, if there is one.
    pub jenkins: Option<Jenkins>,
    /// For bots that want to be called.
    pub http: Transport,
    pub clock: Arc<dyn Clock>,
}

/// What GitHub said about people's permissions, and when.
pub(crate) type Permissions = BTreeMap<(RepoName, String), (Timestamp, Option<Permission>)>;

#[derive(Debug)]
pub struct Bridge<S, O> {
    pub(crate) engine: Engine<S, O>,
    pub(crate) world: World,
    pub(crate) permissions: Mutex<Permissions>,
    pub(crate) repos: RepoRegistry,
    pub(crate) turns: AtomicU64,
}

/// The name under which GitHub's waiting times are kept for all functions.
const GITHUB: &str = "github";

impl<S: Store, O: Outlets> Bridge<S, O> {
    /// A Car Bridge on this engine, to this world.
    pub fn new(engine: Engine<S, O>, world: World) -> Self {
        Self { engine, world, permissions: Mutex::default(), repos: RepoRegistry::default(), turns: AtomicU64::new(0) }
    }

    pub fn engine(&self) -> &Engine<S, O> {
        &self.engine
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    /// Handles one message. `id` is the queue's own name for it, the same in every delivery.
    pub async fn handle(&self, id: &str, body: &str) -> Result<Handled, Again> {
        match Message::from_json(body)? {
            // Boxed: what they wait for is deep, and each on its own is deep enough for the compiler.
            Message::Fact(fact) => Box::pin(self.heard(&fact)).await,
            Message::Command(command) if command.source.is_human() => Box::pin(self.asked(id, &command)).await,
            Message::Command(command) => Box::pin(self.carry_out(id, &command)).await,
            Message::Chore(chore) => Box::pin(self.chore(id, &chore)).await,
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

    /// A name that no other worker has, not even one that handles the same message at the same moment.
    pub(crate) fn worker(&self, id: &str) -> String {
        format!("{id}@{}#{}", self.now(), self.turns.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes something that must be there once, and was not found: one message may be with two workers at the same moment, and neither
    /// finds yet what the other is about to write. What was written needs no lease any more, since whoever comes later finds it;
    /// after a failure whoever comes next may try.
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
                    // If it cannot be given back, it ends by itself.
                    let _ = guards::give_lease(store, what, &worker, self.now()).await;
                }
                return written;
            }
            Ok(Lease::Taken { until, .. }) => {
                format!("another worker is writing it, or died over it: again after {until}")
            }
            Err(error) => error.to_string(),
        };
        Err(CallError::Unavailable { why, may_have_happened: false })
    }

    /// Until when GitHub must not be called, by what any of the functions was told.
    pub(crate) async fn github_held_off(&self) -> Result<Option<Timestamp>, Again> {
        Ok(guards::held_off(self.engine.store(), GITHUB, self.now()).await?)
    }

    /// If GitHub wants to be left alone, all functions are to know.
    pub(crate) async fn note_limit(&self, error: &CallError) -> Result<(), Again> {
        if let Some(until) = error.until() {
            guards::hold_off(self.engine.store(), GITHUB, until, self.now()).await?;
        }
        Ok(())
    }

    /// Tells the engine something that Suture did, or was asked to do. The time is part of what makes it the same when it is told
    /// again.
    pub(crate) async fn tell(&self, pr: &PrId, id: String, at: Timestamp, what: Happened) -> Result<Applied, Again> {
        let fact = Fact { id: EventId::new(id), pr: pr.clone(), occurred_at: at, actor: Actor::CommandQueue, what };
        Ok(self.engine.apply(&fact, self.now()).await?)
    }
}
