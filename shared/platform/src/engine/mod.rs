//! THE loop: load, decide, commit in one transaction, deliver, forget what was delivered. It is the only one in Suture that
//! changes a record, for webhooks, sweeps, commands and news alike, and it decides nothing itself.

pub mod ingest;
pub mod replacement;
pub mod repo_registry;

use std::time::Duration;

use domain::backoff::seed_of;
use domain::decide::{self, Decision, Effect, Outcome, RunChange, RunEnd, decide};
use domain::event::{Event, Fact, Happened};
use domain::id::{EffectId, PrId, RunId};
use domain::policy::{Policies, Policy};
use domain::pull_request::Record;
use domain::run::{Initiator, Run, RunState, TransitionContext};
use jiff::Timestamp;
use serde_dynamo::Item;
use thiserror::Error;
use tokio::time::{Instant, timeout};
use tracing::{error, warn};

use crate::lookup;
use crate::outlets::{Outlets, Parcel};
use crate::rows::{self, RunWrite};
use crate::store::{MOST_WRITES, OnlyIf, Refused, Store, StoreError, Write};

/// A fact that others keep overtaking is given up on after this long; the caller then puts it onto the queue.
const CONTEND_FOR: Duration = Duration::from_secs(5);
/// The longest pause between two tries; the first is a tenth of it.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Delivering may take this long: a Lambda freezes once it has answered, and what is left is in the table.
const DELIVER_FOR: Duration = Duration::from_secs(2);

/// What became of a fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    pub outcome: Outcome,
    pub reason: String,
    /// The record after it, if it was written.
    pub record: Option<Record>,
    pub events: Vec<Event>,
    /// Effects that could not be delivered yet; they are in the table, and the sweep will find them.
    pub undelivered: usize,
    /// How often it was decided, 1 if nobody was in the way.
    pub tries: u32,
    /// How long the runs that it ended had lasted, in milliseconds.
    pub ended_ms: Vec<u64>,
}

/// Why a fact could not be applied. In each case nothing of it is written.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum EngineError {
    /// Others kept writing the same record: put the fact onto the queue.
    #[error("{pr} is being written by others all the time: gave up after {tries} tries")]
    Contended { pr: PrId, tries: u32 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The loop, with what it needs.
#[derive(Debug)]
pub struct Engine<S, O> {
    store: S,
    outlets: O,
    policies: Policies,
}

/// How one try ended.
enum Try {
    Done(Box<Applied>),
    Again(Known),
}

/// What is known of the record before it is decided.
enum Known {
    Unread,
    Told(Option<Box<Record>>),
}

impl<S: Store, O: Outlets> Engine<S, O> {
    /// An engine on this store and these outlets.
    pub fn new(store: S, outlets: O, policies: Policies) -> Self {
        Self { store, outlets, policies }
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    pub fn outlets(&self) -> &O {
        &self.outlets
    }

    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Applies a fact: exactly once, or not at all.
    pub async fn apply(&self, fact: &Fact, now: Timestamp) -> Result<Applied, EngineError> {
        // Nearly every opening is the first that is heard of a pull request: it is written blindly, and the store says if
        // there was something already. That saves a read for each pull request's first event.
        let opening = matches!(fact.what, Happened::Opened(_));
        self.contend(fact, if opening { Known::Told(None) } else { Known::Unread }, now).await
    }

    /// Applies a fact to a record that the caller has just read, which saves reading it again: exactly once, or not at all.
    pub async fn apply_to(&self, record: Option<Record>, fact: &Fact, now: Timestamp) -> Result<Applied, EngineError> {
        self.contend(fact, Known::Told(record.map(Box::new)), now).await
    }

    async fn contend(&self, fact: &Fact, mut known: Known, now: Timestamp) -> Result<Applied, EngineError> {
        let policy = self.policies.for_repo(&fact.pr.repo);
        let give_up_at = Instant::now() + CONTEND_FOR;
        let mut tries = 0;
        loop {
            tries += 1;
            let record = match known {
                Known::Told(record) => record.map(|record| *record),
                Known::Unread => self.load(&fact.pr, now).await?,
            };
            match self.attempt(policy, record, fact, now).await? {
                Try::Done(applied) => return Ok(Applied { tries, ..*applied }),
                Try::Again(_) if Instant::now() >= give_up_at => {
                    return Err(EngineError::Contended { pr: fact.pr.clone(), tries });
                }
                // The first time, what the refusal told is as fresh as can be: decide again at once. After that there are
                // many, and what was told before a pause is history after it.
                Try::Again(record @ Known::Told(_)) if tries == 1 => known = record,
                Try::Again(_) => {
                    tokio::time::sleep(pause(fact, tries)).await;
                    known = Known::Unread;
                }
            }
        }
    }

    pub async fn load(&self, pr: &PrId, now: Timestamp) -> Result<Option<Record>, EngineError> {
        Ok(lookup::read(&self.store, &rows::record_key(pr), now).await?)
    }

    async fn attempt(
        &self,
        policy: &Policy,
        record: Option<Record>,
        fact: &Fact,
        now: Timestamp,
    ) -> Result<Try, EngineError> {
        let before = record.clone();
        let decision = decide(policy, record, fact, now);
        match self.commit(policy, before.as_ref(), decision, fact, now).await {
            // Too much for one transaction or one row. What was heard is not lost: the log has it, and GitHub is asked.
            Err(EngineError::Store(StoreError::TooLarge(why))) if before.is_some() => {
                let why = format!("what follows from {} cannot be stored: {why}", fact.id);
                error!(pr = %fact.pr, event = %fact.id, why, "a fact is set aside");
                let set_aside = before.clone().map(|record| decide::set_aside(policy, record, fact, &why, now));
                let set_aside = set_aside.ok_or(EngineError::Store(StoreError::TooLarge(why)))?;
                self.commit(policy, before.as_ref(), set_aside, fact, now).await
            }
            done => done,
        }
    }

    async fn commit(
        &self,
        policy: &Policy,
        before: Option<&Record>,
        decision: Decision,
        fact: &Fact,
        now: Timestamp,
    ) -> Result<Try, EngineError> {
        let Some(after) = &decision.record else {
            return Ok(Try::Done(Box::new(answer(decision, &[], 0))));
        };
        let loaded = before.map(|record| record.version);
        let runs = self.runs(&decision.runs, now).await?;
        let writes = rows::commit(&decision, after, loaded, &runs, policy, now)?;
        match self.store.write(writes.clone(), now).await {
            Ok(()) => {
                let undelivered = self.deliver(&fact.pr, &decision.effects, now).await;
                Ok(Try::Done(Box::new(answer(decision, &runs, undelivered))))
            }
            Err(StoreError::Refused(refused)) => self.refused(&decision, &writes, refused, now).await,
            Err(StoreError::Contended) => Ok(Try::Again(Known::Unread)),
            Err(error) => Err(EngineError::Store(error)),
        }
    }

    /// A condition did not hold. If it was that of the event, it has been applied before, whatever else is the matter;
    /// what it left undelivered is delivered first. Otherwise somebody was faster.
    async fn refused(
        &self,
        decision: &Decision,
        writes: &[Write],
        refused: Vec<Option<Refused>>,
        now: Timestamp,
    ) -> Result<Try, EngineError> {
        let at = |position: usize| refused.get(position).and_then(Option::as_ref);
        if let (Some(event), Some(before)) = (decision.events.first(), at(rows::HOP_0)) {
            let hop_0 = before.found.clone().unwrap_or_default();
            let undelivered = self.deliver_again(event, &hop_0, now).await?;
            let (outcome, reason) = (Outcome::Duplicate, format!("{} was applied before", event.id));
            let (events, ended_ms) = (Vec::new(), Vec::new());
            let applied = Applied { outcome, reason, record: None, events, undelivered, tries: 1, ended_ms };
            return Ok(Try::Done(Box::new(applied)));
        }
        let key = writes[rows::RECORD].key();
        match at(rows::RECORD) {
            // A run or another row was in the way; the record is as it was, but must be loaded to know.
            None => Ok(Try::Again(Known::Unread)),
            Some(Refused { found: None }) => Ok(Try::Again(Known::Told(None))),
            Some(Refused { found: Some(item) }) => Ok(Try::Again(Known::Told(Some(rows::read(key, item)?)))),
        }
    }

    /// The runs a decision changes, as they are to be. A run that cannot be changed that way any more is left alone: the
    /// record is what counts, and says so.
    async fn runs(&self, changes: &[RunChange], now: Timestamp) -> Result<Vec<RunWrite>, EngineError> {
        let mut writes: Vec<RunWrite> = Vec::new();
        for change in changes {
            match change {
                RunChange::Open(run) => writes.push(RunWrite { run: (**run).clone(), loaded: None }),
                RunChange::Accepted { id, .. } | RunChange::Ended { id, .. } => {
                    // One decision may change a run twice: accepted, and proven by what had come before. That is one row,
                    // and a transaction takes each row once.
                    let known = writes.iter().position(|write| write.run.id == *id).map(|at| writes.remove(at));
                    let RunWrite { run, loaded } = match known {
                        Some(write) => write,
                        None => match self.run(id, now).await? {
                            Some(run) => RunWrite { loaded: Some(run.version), run },
                            None => {
                                warn!(run = %id, "a run that is to be changed is not there");
                                continue;
                            }
                        },
                    };
                    let version = run.version;
                    match changed(run.clone(), change, now) {
                        Ok(run) => writes.push(RunWrite { run, loaded }),
                        Err(error) => {
                            warn!(run = %id, %error, "a run is left as it is");
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
        Ok(lookup::read(&self.store, &rows::run_key(id), now).await?)
    }

    /// What an event left undelivered when it was applied.
    async fn deliver_again(&self, event: &Event, hop_0: &Item, now: Timestamp) -> Result<usize, EngineError> {
        let mut left = Vec::new();
        for id in rows::effects_of(event, hop_0) {
            if let Some(effect) = self.undelivered(&id, now).await? {
                left.push(effect);
            }
        }
        Ok(self.deliver(&event.pr, &left, now).await)
    }

    /// Reads an effect that has not been delivered.
    pub async fn undelivered(&self, id: &EffectId, now: Timestamp) -> Result<Option<Effect>, EngineError> {
        Ok(lookup::read(&self.store, &rows::effect_key(id), now).await?)
    }

    /// Delivers an effect that was left behind; one that is not there any more has been delivered. Answers whether it is out.
    pub async fn redeliver(&self, id: &EffectId, now: Timestamp) -> Result<bool, EngineError> {
        let Some(effect) = self.undelivered(id, now).await? else { return Ok(true) };
        let pr = rows::pr_of_effect(id);
        let pr = pr.ok_or_else(|| StoreError::Corrupt(rows::effect_key(id), "it names no pull request".to_owned()))?;
        Ok(self.deliver(&pr, &[effect], now).await == 0)
    }

    /// Delivers, awaited and bounded, and forgets what was delivered. Answers how many are left: they stay in the table,
    /// where a repeated delivery or the sweep finds them.
    pub async fn deliver(&self, pr: &PrId, effects: &[Effect], now: Timestamp) -> usize {
        if effects.is_empty() {
            return 0;
        }
        let parcels: Vec<Parcel> = effects.iter().map(|effect| Parcel::of(pr, effect)).collect();
        let Ok(answers) = timeout(DELIVER_FOR, self.outlets.send(&parcels)).await else {
            warn!(%pr, effects = effects.len(), "effects stay in the table: sending them took too long");
            return effects.len();
        };
        let mut forget = Vec::new();
        for (effect, answer) in effects.iter().zip(answers) {
            match answer {
                Ok(()) => forget.push(Write::Delete { key: rows::effect_key(&effect.id), only_if: OnlyIf::Always }),
                Err(error) => warn!(%pr, effect = %effect.id, %error, "an effect stays in the table"),
            }
        }
        let left = effects.len() - forget.len();
        for chunk in forget.chunks(MOST_WRITES) {
            if let Err(error) = self.store.write(chunk.to_vec(), now).await {
                // They will be delivered once more; their receivers know them by their ids.
                warn!(%pr, %error, "delivered effects could not be forgotten");
            }
        }
        left
    }
}

fn answer(decision: Decision, runs: &[RunWrite], undelivered: usize) -> Applied {
    let Decision { outcome, reason, record, events, .. } = decision;
    let ended_ms = runs.iter().filter_map(|write| write.run.duration_ms).collect();
    Applied { outcome, reason, record, events, undelivered, tries: 1, ended_ms }
}

/// Full jitter, the same for the same delivery and try: those who met once do not meet again.
fn pause(fact: &Fact, tries: u32) -> Duration {
    let longest = LONGEST_PAUSE.as_millis() as u64;
    let window = (longest / 10).saturating_mul(1 << tries.min(10)).min(longest);
    Duration::from_millis(seed_of(fact.id.as_str(), tries) % window.max(1))
}

fn changed(run: Run, change: &RunChange, now: Timestamp) -> Result<Run, domain::run::RunError> {
    let context = TransitionContext::new(Initiator::System, now);
    match change {
        RunChange::Open(_) => Ok(run),
        RunChange::Accepted { deadline, .. } if run.state == RunState::WaitingExternal => {
            Ok(run.wait_longer(*deadline, now))
        }
        RunChange::Accepted { expects, deadline, .. } => run.wait_for(*expects, *deadline, context),
        RunChange::Ended { end, outcome, .. } => match end {
            RunEnd::Completed => run.complete(outcome.clone(), context),
            RunEnd::Failed => run.fail("failed", outcome.clone(), context),
            RunEnd::Cancelled => run.cancel(outcome.clone(), context),
        },
    }
}
