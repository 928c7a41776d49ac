//! Storage of the circuit breaker: its state, written with optimistic locking, and one row of outcomes per minute, which all functions
//! append to without locking. The rules are in `domain::breaker`.

use std::collections::{BTreeMap, BTreeSet};

use domain::breaker::{
    Breaker, BreakerPermit, BreakerSettings, BreakerTrip as Tripped, OutcomeMinute, ProbeOutcome, minute_of,
};
use domain::id::RunId;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use serde_dynamo::Item;

use crate::store::schema;
use crate::store::versioned::{self, Versioned};
use crate::store::{Key, RowUpdate, RowWrite, Store, StoreError, TTL, number, set_of};

/// Retention of the rows per minute: longer than the longest window.
const RETENTION: SignedDuration = SignedDuration::from_hours(48);

/// How a remedy ended, as the breaker counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemedyOutcome {
    /// Accepted by its target.
    Succeeded,
    /// Not dispatched, or past its deadline.
    Failed,
}

pub(super) fn key() -> Key {
    Key::state("BREAKER")
}

/// Separates the run from the time of its outcome; run ids never contain it.
const TIME_SEPARATOR: char = '@';

fn minute_key(minute: Timestamp) -> Key {
    Key::state(format!("BREAKER#{}", schema::sort_time(minute)))
}

/// The current breaker; the default if none is stored.
pub async fn load<S: Store>(store: &S, now: Timestamp) -> Result<Breaker, StoreError> {
    let known: Option<Versioned<Breaker>> = versioned::load(store, &key(), now).await?;
    Ok(known.map(|known| known.value).unwrap_or_default().as_of(now))
}

/// Counts a remedy's outcome, and trips the breaker at once if too many have failed.
pub async fn report_outcome<S: Store>(
    store: &S,
    run: &RunId,
    ended: RemedyOutcome,
    settings: &BreakerSettings,
    now: Timestamp,
) -> Result<Option<Tripped>, StoreError> {
    count_outcome(store, run, ended, now).await?;
    match ended {
        RemedyOutcome::Succeeded => Ok(None),
        RemedyOutcome::Failed => evaluate(store, settings, now).await,
    }
}

/// Counts a remedy's outcome, once per run.
pub async fn count_outcome<S: Store>(
    store: &S,
    run: &RunId,
    ended: RemedyOutcome,
    now: Timestamp,
) -> Result<(), StoreError> {
    let set = match ended {
        RemedyOutcome::Succeeded => "succeeded",
        RemedyOutcome::Failed => "failed",
    };
    let minute = minute_of(now);
    let until = saturating_after(minute, RETENTION);
    let change = RowUpdate {
        insert: BTreeMap::from([(set.to_owned(), BTreeSet::from([format!("{run}{TIME_SEPARATOR}{now}")]))]),
        set: BTreeMap::from([(TTL.to_owned(), number(until.as_second()))]),
        ..RowUpdate::default()
    };
    store.write(vec![RowWrite::Update { key: minute_key(minute), change }], now).await
}

pub async fn minutes<S: Store>(
    store: &S,
    breaker: &Breaker,
    settings: &BreakerSettings,
    now: Timestamp,
) -> Result<Vec<OutcomeMinute>, StoreError> {
    let counted = breaker.counted_minutes(now, settings);
    let keys: Vec<Key> = counted.iter().copied().map(minute_key).collect();
    let found = store.get_many(&keys, now).await?;
    let minute = |at: Timestamp| {
        let (_, item) = found.iter().find(|(key, _)| *key == minute_key(at))?;
        Some(OutcomeMinute { at, succeeded: outcomes(item, "succeeded", at), failed: outcomes(item, "failed", at) })
    };
    Ok(counted.into_iter().filter_map(minute).collect())
}

fn outcomes(item: &Item, attribute: &str, minute: Timestamp) -> BTreeMap<RunId, Timestamp> {
    let outcome = |member: &str| match member.rsplit_once(TIME_SEPARATOR) {
        Some((run, at)) => (RunId::new(run), at.parse().unwrap_or(minute)),
        None => (RunId::new(member), minute),
    };
    set_of(item, attribute).map(outcome).collect()
}

/// Trips the breaker if too many remedies failed. Of concurrent callers only one gets the result.
pub async fn evaluate<S: Store>(
    store: &S,
    settings: &BreakerSettings,
    now: Timestamp,
) -> Result<Option<Tripped>, StoreError> {
    // Reads every minute that any breaker state could count; the loaded breaker selects from them.
    let minutes = minutes(store, &Breaker::default(), settings, now).await?;
    versioned::update(store, &key(), now, |breaker: Breaker| {
        let tripped = breaker.evaluate(&minutes, now, settings);
        (tripped.as_ref().map(|tripped| tripped.breaker.clone()), tripped)
    })
    .await
}

/// Whether a remedy may be dispatched now. A permit to probe is stored before this returns, so there is only one probe.
pub async fn may_dispatch<S: Store>(
    store: &S,
    run: &RunId,
    settings: &BreakerSettings,
    now: Timestamp,
) -> Result<BreakerPermit, StoreError> {
    versioned::update(store, &key(), now, |breaker: Breaker| {
        let permit = breaker.may_dispatch(run, now, settings);
        let probing = if let BreakerPermit::Probe(probing) = &permit { Some(probing.clone()) } else { None };
        (probing, permit)
    })
    .await
}

/// Reports the end of a remedy; if it was the probe, the breaker closes or opens.
pub async fn probe_ended<S: Store>(
    store: &S,
    run: &RunId,
    outcome: ProbeOutcome,
    settings: &BreakerSettings,
    now: Timestamp,
) -> Result<Option<Breaker>, StoreError> {
    versioned::update(store, &key(), now, |breaker: Breaker| {
        let ended = breaker.probe_ended(run, outcome, now, settings);
        (ended.clone(), ended)
    })
    .await
}

/// Closes the breaker on an administrator's request.
pub async fn reset<S: Store>(store: &S, now: Timestamp) -> Result<Breaker, StoreError> {
    versioned::update(store, &key(), now, |breaker: Breaker| {
        let reset = breaker.reset(now);
        (Some(reset.clone()), reset)
    })
    .await
}
