//! The apply loop: load the record, decide, commit in one transaction, publish the effects, delete the published ones from the outbox.
//! All changes of records go through it: webhooks, sweeps, commands and remedy results. The decisions are in `domain::decide`.

pub mod early_reports;
mod group;
pub mod ingest;
mod outbox;
pub mod replacement;
pub mod repo_registry;

use std::collections::BTreeMap;
use std::time::Duration;

use domain::backoff::jitter_seed;
use domain::decide::{self, Decision, FactOutcome, RunChange, decide_in_turn};
use domain::event::{Event, Fact, FactKind};
use domain::id::{EventId, PrId, RunId};
use domain::policy::{Policies, Policy};
use domain::pull_request::PullRequest;
use domain::run::{Run, RunState, TransitionContext};
use jiff::Timestamp;
use thiserror::Error;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::publish::Publisher;
use crate::store::queries;
use crate::store::schema::{self, RunWrite};
use crate::store::{ConditionFailed, Key, MAX_WRITES, RowWrite, Store, StoreError};

use self::group::FactGroup;

/// Write conflicts are retried for this long.
const PATIENT: RetryLimit = RetryLimit::Time(Duration::from_secs(5));
/// The attempts of a webhook, whose sender waits; then its fact is deferred to the queue.
const IMPATIENT: RetryLimit = RetryLimit::Attempts(2);
/// Longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_millis(500);

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
    /// The results of the first facts, in their order; at least one.
    Done(Vec<ApplyResult>),
    Retry(LoadedRecord),
}

/// The result of one transaction.
enum CommitResult {
    Written {
        /// Effects that could not be published.
        unpublished: usize,
        run_durations_ms: Vec<u64>,
    },
    Refused(LoadedRecord),
}

/// The record for the next attempt, if it is loaded.
enum LoadedRecord {
    NotLoaded,
    Loaded(Option<Box<PullRequest>>),
}

/// How long write conflicts are retried.
#[derive(Debug, Clone, Copy)]
enum RetryLimit {
    Attempts(u32),
    Time(Duration),
}

impl RetryLimit {
    fn is_reached(self, tries: u32, started: Instant) -> bool {
        match self {
            Self::Attempts(most) => tries >= most,
            Self::Time(most) => started.elapsed() >= most,
        }
    }
}

impl<S: Store, O: Publisher> Engine<S, O> {
    pub fn new(store: S, publisher: O, policies: Policies) -> Self {
        Self { store, publisher, policies }
    }

    /// The same engine with a layer around its publisher.
    pub fn layer<P>(self, layer: impl FnOnce(O) -> P) -> Engine<S, P> {
        Engine { store: self.store, publisher: layer(self.publisher), policies: self.policies }
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
        self.apply_one(fact, not_loaded(fact), PATIENT, now).await
    }

    /// Applies a fact to a record that the caller has just read, which saves a read: exactly once, or not at all.
    pub async fn apply_to(
        &self,
        record: Option<PullRequest>,
        fact: &Fact,
        now: Timestamp,
    ) -> Result<ApplyResult, EngineError> {
        self.apply_one(fact, LoadedRecord::Loaded(record.map(Box::new)), PATIENT, now).await
    }

    /// Applies a fact, but gives up after the second write conflict: many processes report on this pull request at once, and the
    /// consumer of the facts queue applies all their facts in one transaction. `record` saves a read.
    pub async fn try_apply(
        &self,
        record: Option<PullRequest>,
        fact: &Fact,
        now: Timestamp,
    ) -> Result<ApplyResult, EngineError> {
        let known = record.map_or_else(|| not_loaded(fact), |record| LoadedRecord::Loaded(Some(Box::new(record))));
        self.apply_one(fact, known, IMPATIENT, now).await
    }

    async fn apply_one(
        &self,
        fact: &Fact,
        known: LoadedRecord,
        limit: RetryLimit,
        now: Timestamp,
    ) -> Result<ApplyResult, EngineError> {
        let results = self.apply_first(&[fact], known, limit, now).await?;
        results.into_iter().next().ok_or_else(|| StoreError::Unavailable("no result".to_owned()).into())
    }

    /// Applies facts of one pull request, as many as possible in one transaction: each exactly once, or not at all. Returns one result
    /// per fact, in the same order. After an error some of them may be applied.
    pub async fn apply_all(&self, facts: &[Fact], now: Timestamp) -> Result<Vec<ApplyResult>, EngineError> {
        let mut ordered: Vec<&Fact> = facts.iter().collect();
        ordered.sort_by_key(|fact| (fact.occurred_at, &fact.id));
        ordered.dedup_by_key(|fact| (fact.occurred_at, &fact.id));
        let mut results: BTreeMap<(Timestamp, &EventId), ApplyResult> = BTreeMap::new();
        while let Some(next) = ordered.first() {
            let applied = self.apply_first(&ordered, not_loaded(next), PATIENT, now).await?;
            let done: Vec<&Fact> = ordered.drain(..applied.len()).collect();
            results.extend(done.into_iter().map(|fact| (fact.occurred_at, &fact.id)).zip(applied));
        }
        // A fact that is there twice has its result once; the other one is a duplicate.
        let mut in_given_order = Vec::with_capacity(facts.len());
        for fact in facts {
            let result = results.remove(&(fact.occurred_at, &fact.id));
            in_given_order.push(result.unwrap_or_else(|| duplicate(&fact.id, 0)));
        }
        Ok(in_given_order)
    }

    /// Applies the first facts of one pull request, as many as fit into one transaction, and returns their results.
    async fn apply_first(
        &self,
        facts: &[&Fact],
        mut known: LoadedRecord,
        limit: RetryLimit,
        now: Timestamp,
    ) -> Result<Vec<ApplyResult>, EngineError> {
        let Some(first) = facts.first() else { return Ok(Vec::new()) };
        let policy = self.policies.for_repo(&first.pr.repo);
        let mut group = FactGroup::new(facts);
        let started = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let record = match known {
                LoadedRecord::Loaded(record) => record.map(|record| *record),
                LoadedRecord::NotLoaded => self.load(&first.pr, now).await?,
            };
            match self.attempt(policy, record, &mut group, now).await? {
                Attempt::Done(mut results) => {
                    results.iter_mut().for_each(|result| result.attempts = tries);
                    return Ok(results);
                }
                Attempt::Retry(_) if limit.is_reached(tries, started) => {
                    return Err(EngineError::WriteConflict { pr: first.pr.clone(), tries });
                }
                // After the first conflict, retry immediately with the record from the error. After further conflicts there are
                // many writers: pause, then reload.
                Attempt::Retry(record @ LoadedRecord::Loaded(_)) if tries == 1 => known = record,
                Attempt::Retry(_) => {
                    tokio::time::sleep(pause(first, tries)).await;
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
        group: &mut FactGroup<'_>,
        now: Timestamp,
    ) -> Result<Attempt, EngineError> {
        let facts = group.facts_to_apply();
        let Some(first) = facts.first() else { return Ok(Attempt::Done(Vec::new())) };
        let before = record.clone();
        let decisions = decide_in_turn(policy, record, &facts, MAX_WRITES, now);
        match self.commit(policy, before.as_ref(), &decisions, group, now).await {
            // Together they are too large.
            Err(EngineError::Store(StoreError::TooLarge(_))) if decisions.len() > 1 => {
                group.split();
                Ok(Attempt::Retry(LoadedRecord::Loaded(before.map(Box::new))))
            }
            // Too large for one transaction or one item. The fact is quarantined: logged, and the next sweep asks GitHub.
            Err(EngineError::Store(StoreError::TooLarge(why))) if before.is_some() => {
                let why = format!("the result of {} cannot be stored: {why}", first.id);
                error!(pr = %first.pr, event = %first.id, why, "fact quarantined");
                let quarantined = before.clone().map(|record| decide::quarantine(policy, record, first, &why, now));
                let quarantined = quarantined.ok_or(EngineError::Store(StoreError::TooLarge(why)))?;
                let quarantined = vec![quarantined];
                let committed = self.commit(policy, before.as_ref(), &quarantined, group, now).await?;
                Ok(finish(group, quarantined, committed))
            }
            committed => Ok(finish(group, decisions, committed?)),
        }
    }

    /// Writes the decisions of the first facts of the group in one transaction, then publishes their effects.
    async fn commit(
        &self,
        policy: &Policy,
        before: Option<&PullRequest>,
        decisions: &[Decision],
        group: &mut FactGroup<'_>,
        now: Timestamp,
    ) -> Result<CommitResult, EngineError> {
        let Some(after) = decisions.iter().rev().find_map(|decision| decision.record.as_ref()) else {
            return Ok(CommitResult::Written { unpublished: 0, run_durations_ms: Vec::new() });
        };
        let loaded = before.map(|record| record.version);
        let effects = group::effects_to_deliver(decisions);
        let runs = self.runs(decisions, &group.facts_to_apply(), now).await?;
        let writes = schema::commit(decisions, &effects, after, loaded, &runs, policy, now)?;
        match self.store.write(writes.clone(), now).await {
            Ok(()) => {
                let unpublished = self.deliver(&after.id, &effects, now).await;
                let run_durations_ms = runs.iter().filter_map(|write| write.run.duration_ms).collect();
                Ok(CommitResult::Written { unpublished, run_durations_ms })
            }
            Err(StoreError::ConditionFailed(refused)) => self.refused(decisions, &writes, refused, group, now).await,
            Err(StoreError::TransactionConflict) => Ok(CommitResult::Refused(LoadedRecord::NotLoaded)),
            Err(error) => Err(EngineError::Store(error)),
        }
    }

    /// Handles a failed condition. A fact whose event exists was applied before; its unpublished effects are published first, and the
    /// other facts are decided again without it. Otherwise another process changed the record: retry.
    async fn refused(
        &self,
        decisions: &[Decision],
        writes: &[RowWrite],
        refused: Vec<Option<ConditionFailed>>,
        group: &mut FactGroup<'_>,
        now: Timestamp,
    ) -> Result<CommitResult, EngineError> {
        let refused_at = |key: &Key| {
            let mut positions = writes.iter().zip(&refused).filter(|(write, _)| write.key() == key);
            positions.find_map(|(_, refused)| refused.as_ref())
        };
        let mut applied_before = BTreeMap::new();
        for event in decisions.iter().filter_map(|decision| decision.events.first()) {
            if let Some(before) = refused_at(&schema::event_key(event)) {
                let hop_0 = before.found.clone().unwrap_or_default();
                let undelivered = self.deliver_remaining(event, &hop_0, now).await?;
                applied_before.insert(event.id.clone(), duplicate(&event.id, undelivered));
            }
        }
        group.drop_duplicates(applied_before);
        let key = schema::record_key(group.pr());
        match refused_at(&key) {
            // The conflict was on a run or another row, so the record has to be loaded.
            None => Ok(CommitResult::Refused(LoadedRecord::NotLoaded)),
            Some(ConditionFailed { found: None }) => Ok(CommitResult::Refused(LoadedRecord::Loaded(None))),
            Some(ConditionFailed { found: Some(item) }) => {
                Ok(CommitResult::Refused(LoadedRecord::Loaded(Some(schema::read(&key, item)?))))
            }
        }
    }

    /// Applies the changes that decisions on facts make to runs. A run that does not allow the change any more stays as it is; the record is
    /// authoritative.
    async fn runs(
        &self,
        decisions: &[Decision],
        facts: &[&Fact],
        now: Timestamp,
    ) -> Result<Vec<RunWrite>, EngineError> {
        let mut writes: Vec<RunWrite> = Vec::new();
        let mut changes: Vec<(&RunChange, &Fact)> = Vec::new();
        for (decision, fact) in decisions.iter().zip(facts) {
            changes.extend(decision.runs.iter().map(|change| (change, *fact)));
        }
        for (change, fact) in changes {
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
}

/// The result of a fact before its effects are published.
fn apply_result(decision: Decision) -> ApplyResult {
    let Decision { outcome, reason, record, events, .. } = decision;
    ApplyResult { outcome, reason, record, events, unpublished: 0, attempts: 1, run_durations_ms: Vec::new() }
}

/// The result of a fact that was applied before.
fn duplicate(id: &EventId, unpublished: usize) -> ApplyResult {
    ApplyResult {
        outcome: FactOutcome::Duplicate,
        reason: format!("{id} was applied before"),
        record: None,
        events: Vec::new(),
        unpublished,
        attempts: 1,
        run_durations_ms: Vec::new(),
    }
}

/// An `opened` fact is nearly always the first of its pull request, so it is written without a read; if a record exists, the conditional
/// write fails. That saves one read per pull request.
fn not_loaded(fact: &Fact) -> LoadedRecord {
    let opening = matches!(fact.kind, FactKind::Opened(_));
    if opening { LoadedRecord::Loaded(None) } else { LoadedRecord::NotLoaded }
}

/// The results of facts whose decisions were committed or refused.
fn finish(group: &FactGroup<'_>, decisions: Vec<Decision>, committed: CommitResult) -> Attempt {
    match committed {
        // All of them were applied before.
        CommitResult::Refused(_) if group.facts_to_apply().is_empty() => Attempt::Done(group.results(Vec::new())),
        CommitResult::Refused(record) => Attempt::Retry(record),
        CommitResult::Written { unpublished, run_durations_ms } => {
            let mut results = group.results(decisions);
            // Which of the facts left them does not matter.
            if let Some(last) = results.iter_mut().rev().find(|result| result.record.is_some()) {
                (last.unpublished, last.run_durations_ms) = (unpublished, run_durations_ms);
            }
            Attempt::Done(results)
        }
    }
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
