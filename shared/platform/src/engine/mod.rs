//! The apply loop: load the record, decide, commit in one transaction, publish the effects, delete the published ones from the outbox.
//! All changes of records go through it: webhooks, sweeps, commands and remedy results. The decisions are in `domain::decide`.

pub mod early_reports;
pub mod ingest;
pub mod replacement;
pub mod repo_registry;

use std::time::Duration;

use domain::backoff::jitter_seed;
use domain::decide::{self, Decision, Effect, FactOutcome, RunChange, decide};
use domain::event::{Event, Fact, FactKind};
use domain::id::{EffectId, PrId, RunId};
use domain::policy::{Policies, Policy};
use domain::pull_request::PullRequest;
use domain::run::{Run, RunState, TransitionContext};
use jiff::Timestamp;
use serde_dynamo::Item;
use thiserror::Error;
use tokio::time::{Instant, timeout};
use tracing::{error, warn};

use crate::publish::{OutboundMessage, Publisher};
use crate::store::queries;
use crate::store::schema::{self, RunWrite};
use crate::store::{Condition, ConditionFailed, MAX_WRITES, RowWrite, Store, StoreError};

/// Write conflicts are retried for this long; then the caller defers the fact to the queue.
const RETRY_FOR: Duration = Duration::from_secs(5);
/// Longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// Time limit for publishing. It must end before the response, because Lambda then freezes the process; the rest stays in the outbox.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

/// The result of applying a fact.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyResult {
    pub outcome: FactOutcome,
    pub reason: String,
    /// The new record, if it was written.
    pub record: Option<PullRequest>,
    pub events: Vec<Event>,
    /// Effects that could not be published; they are in the outbox, and the next sweep retries them.
    pub unpublished: usize,
    /// Number of attempts; 1 without a conflict.
    pub attempts: u32,
    /// Durations of the runs that the fact ended, in milliseconds.
    pub run_durations_ms: Vec<u64>,
}

/// Why a fact could not be applied. Nothing of it is written.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum EngineError {
    /// The record had write conflicts: defer the fact to the queue.
    #[error("{pr}: write conflict after {tries} attempts")]
    WriteConflict { pr: PrId, tries: u32 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EngineError {
    /// Whether other writers were faster: ordinary contention, which a retry resolves.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::WriteConflict { .. } => true,
            Self::Store(error) => error.is_conflict(),
        }
    }
}

#[derive(Debug)]
pub struct Engine<S, O> {
    store: S,
    publisher: O,
    policies: Policies,
}

/// The result of one attempt.
enum Attempt {
    Done(Box<ApplyResult>),
    Retry(LoadedRecord),
}

/// The record for the next attempt, if it is loaded.
enum LoadedRecord {
    NotLoaded,
    Loaded(Option<Box<PullRequest>>),
}

impl<S: Store, O: Publisher> Engine<S, O> {
    pub fn new(store: S, publisher: O, policies: Policies) -> Self {
        Self { store, publisher, policies }
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    pub fn publisher(&self) -> &O {
        &self.publisher
    }

    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Applies a fact: exactly once, or not at all.
    pub async fn apply(&self, fact: &Fact, now: Timestamp) -> Result<ApplyResult, EngineError> {
        // An `opened` fact is nearly always the first of its pull request, so it is written without a read; if a record exists, the
        // conditional write fails. That saves one read per pull request.
        let opening = matches!(fact.kind, FactKind::Opened(_));
        self.apply_with_retry(fact, if opening { LoadedRecord::Loaded(None) } else { LoadedRecord::NotLoaded }, now)
            .await
    }

    /// Applies a fact to a record that the caller has just read, which saves a read: exactly once, or not at all.
    pub async fn apply_to(
        &self,
        record: Option<PullRequest>,
        fact: &Fact,
        now: Timestamp,
    ) -> Result<ApplyResult, EngineError> {
        self.apply_with_retry(fact, LoadedRecord::Loaded(record.map(Box::new)), now).await
    }

    async fn apply_with_retry(
        &self,
        fact: &Fact,
        mut known: LoadedRecord,
        now: Timestamp,
    ) -> Result<ApplyResult, EngineError> {
        let policy = self.policies.for_repo(&fact.pr.repo);
        let deadline = Instant::now() + RETRY_FOR;
        let mut tries = 0;
        loop {
            tries += 1;
            let record = match known {
                LoadedRecord::Loaded(record) => record.map(|record| *record),
                LoadedRecord::NotLoaded => self.load(&fact.pr, now).await?,
            };
            match self.attempt(policy, record, fact, now).await? {
                Attempt::Done(applied) => return Ok(ApplyResult { attempts: tries, ..*applied }),
                Attempt::Retry(_) if Instant::now() >= deadline => {
                    return Err(EngineError::WriteConflict { pr: fact.pr.clone(), tries });
                }
                // After the first conflict, retry immediately with the record from the error. After further conflicts there are
                // many writers: pause, then reload.
                Attempt::Retry(record @ LoadedRecord::Loaded(_)) if tries == 1 => known = record,
                Attempt::Retry(_) => {
                    tokio::time::sleep(pause(fact, tries)).await;
                    known = LoadedRecord::NotLoaded;
                }
            }
        }
    }

    pub async fn load(&self, pr: &PrId, now: Timestamp) -> Result<Option<PullRequest>, EngineError> {
        Ok(queries::read(&self.store, &schema::record_key(pr), now).await?)
    }

    async fn attempt(
        &self,
        policy: &Policy,
        record: Option<PullRequest>,
        fact: &Fact,
        now: Timestamp,
    ) -> Result<Attempt, EngineError> {
        let before = record.clone();
        let decision = decide(policy, record, fact, now);
        match self.commit(policy, before.as_ref(), decision, fact, now).await {
            // Too large for one transaction or one item. The fact is quarantined: logged, and the next sweep asks GitHub.
            Err(EngineError::Store(StoreError::TooLarge(why))) if before.is_some() => {
                let why = format!("the result of {} cannot be stored: {why}", fact.id);
                error!(pr = %fact.pr, event = %fact.id, why, "fact quarantined");
                let quarantined = before.clone().map(|record| decide::quarantine(policy, record, fact, &why, now));
                let quarantined = quarantined.ok_or(EngineError::Store(StoreError::TooLarge(why)))?;
                self.commit(policy, before.as_ref(), quarantined, fact, now).await
            }
            done => done,
        }
    }

    async fn commit(
        &self,
        policy: &Policy,
        before: Option<&PullRequest>,
        decision: Decision,
        fact: &Fact,
        now: Timestamp,
    ) -> Result<Attempt, EngineError> {
        let Some(after) = &decision.record else {
            return Ok(Attempt::Done(Box::new(apply_result(decision, &[], 0))));
        };
        let loaded = before.map(|record| record.version);
        let runs = self.runs(&decision.runs, fact, now).await?;
        let writes = schema::commit(&decision, after, loaded, &runs, policy, now)?;
        match self.store.write(writes.clone(), now).await {
            Ok(()) => {
                let undelivered = self.deliver(&fact.pr, &decision.effects, now).await;
                Ok(Attempt::Done(Box::new(apply_result(decision, &runs, undelivered))))
            }
            Err(StoreError::ConditionFailed(refused)) => self.refused(&decision, &writes, refused, now).await,
            Err(StoreError::TransactionConflict) => Ok(Attempt::Retry(LoadedRecord::NotLoaded)),
            Err(error) => Err(EngineError::Store(error)),
        }
    }

    /// Handles a failed condition. If the event exists, the fact was applied before; its unpublished effects are published first.
    /// Otherwise another process changed the record: retry.
    async fn refused(
        &self,
        decision: &Decision,
        writes: &[RowWrite],
        refused: Vec<Option<ConditionFailed>>,
        now: Timestamp,
    ) -> Result<Attempt, EngineError> {
        let at = |position: usize| refused.get(position).and_then(Option::as_ref);
        if let (Some(event), Some(before)) = (decision.events.first(), at(schema::HOP_0)) {
            let hop_0 = before.found.clone().unwrap_or_default();
            let undelivered = self.deliver_remaining(event, &hop_0, now).await?;
            let (outcome, reason) = (FactOutcome::Duplicate, format!("{} was applied before", event.id));
            let (events, ended_ms) = (Vec::new(), Vec::new());
            let applied = ApplyResult {
                outcome,
                reason,
                record: None,
                events,
                unpublished: undelivered,
                attempts: 1,
                run_durations_ms: ended_ms,
            };
            return Ok(Attempt::Done(Box::new(applied)));
        }
        let key = writes[schema::RECORD].key();
        match at(schema::RECORD) {
            // The conflict was on a run or another row, so the record has to be loaded.
            None => Ok(Attempt::Retry(LoadedRecord::NotLoaded)),
            Some(ConditionFailed { found: None }) => Ok(Attempt::Retry(LoadedRecord::Loaded(None))),
            Some(ConditionFailed { found: Some(item) }) => {
                Ok(Attempt::Retry(LoadedRecord::Loaded(Some(schema::read(key, item)?))))
            }
        }
    }

    /// Applies a decision's changes to its runs. A run that does not allow the change any more stays as it is; the record is
    /// authoritative.
    async fn runs(&self, changes: &[RunChange], fact: &Fact, now: Timestamp) -> Result<Vec<RunWrite>, EngineError> {
        let mut writes: Vec<RunWrite> = Vec::new();
        for change in changes {
            match change {
                RunChange::Open(run) => writes.push(RunWrite { run: (**run).clone(), loaded: None }),
                RunChange::Accepted { id, .. } | RunChange::Ended { id, .. } => {
                    // One decision may change a run twice (accepted, and proven by an earlier event), but a transaction may write
                    // each row only once.
                    let known = writes.iter().position(|write| write.run.id == *id).map(|at| writes.remove(at));
                    let RunWrite { run, loaded } = match known {
                        Some(write) => write,
                        None => match self.run(id, now).await? {
                            Some(run) => RunWrite { loaded: Some(run.version), run },
                            None => {
                                warn!(run = %id, "run not found; change skipped");
                                continue;
                            }
                        },
                    };
                    let version = run.version;
                    match changed(run.clone(), change, TransitionContext::of_fact(fact, now)) {
                        Ok(run) => writes.push(RunWrite { run, loaded }),
                        Err(error) => {
                            warn!(run = %id, %error, "run does not allow the change; left unchanged");
                            if loaded != Some(version) {
                                writes.push(RunWrite { run, loaded });
                            }
                        }
                    }
                }
            }
        }
        Ok(writes)
    }

    pub async fn run(&self, id: &RunId, now: Timestamp) -> Result<Option<Run>, EngineError> {
        Ok(queries::read(&self.store, &schema::run_key(id), now).await?)
    }

    /// Publishes the remaining effects of an event that was applied before.
    async fn deliver_remaining(&self, event: &Event, hop_0: &Item, now: Timestamp) -> Result<usize, EngineError> {
        let mut left = Vec::new();
        for id in schema::effects_of(event, hop_0) {
            if let Some(effect) = self.undelivered(&id, now).await? {
                left.push(effect);
            }
        }
        Ok(self.deliver(&event.pr, &left, now).await)
    }

    /// Reads an effect from the outbox.
    pub async fn undelivered(&self, id: &EffectId, now: Timestamp) -> Result<Option<Effect>, EngineError> {
        Ok(queries::read(&self.store, &schema::effect_key(id), now).await?)
    }

    /// Publishes an effect from the outbox; a missing one has been published. Returns whether it is published.
    pub async fn redeliver(&self, id: &EffectId, now: Timestamp) -> Result<bool, EngineError> {
        let Some(effect) = self.undelivered(id, now).await? else { return Ok(true) };
        let pr = schema::pr_of_effect(id);
        let pr = pr.ok_or_else(|| {
            StoreError::Corrupt(schema::effect_key(id), "the effect id names no pull request".to_owned())
        })?;
        Ok(self.deliver(&pr, &[effect], now).await == 0)
    }

    /// Publishes effects within the time limit and deletes them from the outbox. Returns how many remain in the outbox, for a redelivery
    /// or the next sweep.
    pub async fn deliver(&self, pr: &PrId, effects: &[Effect], now: Timestamp) -> usize {
        if effects.is_empty() {
            return 0;
        }
        let messages: Vec<OutboundMessage> =
            effects.iter().map(|effect| OutboundMessage::from_effect(pr, effect)).collect();
        let Ok(results) = timeout(PUBLISH_TIMEOUT, self.publisher.publish(&messages)).await else {
            warn!(%pr, effects = effects.len(), "publishing timed out; left in outbox");
            return effects.len();
        };
        let mut deletes = Vec::new();
        for (effect, result) in effects.iter().zip(results) {
            match result {
                Ok(()) => {
                    deletes.push(RowWrite::Delete { key: schema::effect_key(&effect.id), only_if: Condition::Always })
                }
                Err(error) => warn!(%pr, effect = %effect.id, %error, "delivery failed; left in outbox"),
            }
        }
        let left = effects.len() - deletes.len();
        for chunk in deletes.chunks(MAX_WRITES) {
            if let Err(error) = self.store.write(chunk.to_vec(), now).await {
                // They will be published again; receivers recognise them by id.
                warn!(%pr, %error, "cannot delete published effects from outbox");
            }
        }
        left
    }
}

fn apply_result(decision: Decision, runs: &[RunWrite], undelivered: usize) -> ApplyResult {
    let Decision { outcome, reason, record, events, .. } = decision;
    let ended_ms = runs.iter().filter_map(|write| write.run.duration_ms).collect();
    ApplyResult { outcome, reason, record, events, unpublished: undelivered, attempts: 1, run_durations_ms: ended_ms }
}

/// Full jitter, deterministic per fact and attempt, so that conflicting writers get different pauses.
fn pause(fact: &Fact, tries: u32) -> Duration {
    let longest = MAX_PAUSE.as_millis() as u64;
    let window = (longest / 10).saturating_mul(1 << tries.min(10)).min(longest);
    Duration::from_millis(jitter_seed(fact.id.as_str(), tries) % window.max(1))
}

fn changed(run: Run, change: &RunChange, context: TransitionContext) -> Result<Run, domain::run::RunError> {
    match change {
        RunChange::Open(_) => Ok(run),
        RunChange::Accepted { deadline, .. } if run.state == RunState::WaitingExternal => {
            Ok(run.extend_deadline(*deadline, context.at))
        }
        RunChange::Accepted { expects, deadline, .. } => run.wait_for(*expects, *deadline, context),
        RunChange::Ended { end, outcome, .. } => run.end_as(*end, outcome.clone(), context),
    }
}
