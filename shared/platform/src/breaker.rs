//! The breaker's rows: its state, written only by who has read it, and the outcomes of each minute, which anybody may add
//! to. What they mean is decided in the domain.

use std::collections::{BTreeMap, BTreeSet};

use domain::breaker::{Breaker, BreakerSettings, Change as Tripped, Minute, Permit, ProbeOutcome, minute_of};
use domain::id::RunId;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use serde_dynamo::{AttributeValue, Item};

use crate::rows;
use crate::store::versioned::{self, Versioned};
use crate::store::{Change, Key, Store, StoreError, TTL, Write, number};

/// How often somebody else may be faster before it is given up.
const TRIES: u32 = 8;
/// How long a minute's outcomes are kept: longer than the longest window.
const KEPT: SignedDuration = SignedDuration::from_hours(48);

/// How a remedy ended, as the breaker counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its target accepted it.
    Succeeded,
    /// It could not be dispatched, or missed its deadline.
    Failed,
}

fn key() -> Key {
    Key::state("BREAKER")
}

fn minute_key(minute: Timestamp) -> Key {
    Key::state(format!("BREAKER#{}", rows::sortable(minute)))
}

/// The breaker, and the version it was read with; a new one if there is none.
async fn read<S: Store>(store: &S, now: Timestamp) -> Result<(Breaker, Option<u64>), StoreError> {
    let found = versioned::load(store, &key(), now).await?;
    Ok(found.map_or((Breaker::default(), None), |Versioned { value, version }| (value, Some(version))))
}

/// Writes it in place of the one that was read; answers whether nobody was faster.
async fn replace<S: Store>(
    store: &S,
    loaded: Option<u64>,
    breaker: &Breaker,
    now: Timestamp,
) -> Result<bool, StoreError> {
    versioned::save(store, &key(), breaker, loaded, None, now).await
}

pub async fn load<S: Store>(store: &S, now: Timestamp) -> Result<Breaker, StoreError> {
    Ok(read(store, now).await?.0.as_of(now))
}

/// Counts how a remedy ended. Counting it twice changes nothing.
pub async fn count<S: Store>(store: &S, run: &RunId, ended: Ended, now: Timestamp) -> Result<(), StoreError> {
    let set = match ended {
        Ended::Succeeded => "succeeded",
        Ended::Failed => "failed",
    };
    let minute = minute_of(now);
    let until = saturating_after(minute, KEPT);
    let change = Change {
        insert: BTreeMap::from([(set.to_owned(), BTreeSet::from([run.as_str().to_owned()]))]),
        set: BTreeMap::from([(TTL.to_owned(), number(until.as_second()))]),
        ..Change::default()
    };
    store.write(vec![Write::Change { key: minute_key(minute), change }], now).await
}

pub async fn minutes<S: Store>(
    store: &S,
    breaker: &Breaker,
    settings: &BreakerSettings,
    now: Timestamp,
) -> Result<Vec<Minute>, StoreError> {
    let counted = breaker.counted_minutes(now, settings);
    let keys: Vec<Key> = counted.iter().copied().map(minute_key).collect();
    let found = store.get_many(&keys, now).await?;
    let minute = |at: Timestamp| {
        let (_, item) = found.iter().find(|(key, _)| *key == minute_key(at))?;
        Some(Minute { at, succeeded: ids(item, "succeeded"), failed: ids(item, "failed") })
    };
    Ok(counted.into_iter().filter_map(minute).collect())
}

fn ids(item: &Item, attribute: &str) -> BTreeSet<RunId> {
    match item.get(attribute) {
        Some(AttributeValue::Ss(members)) => members.iter().map(RunId::new).collect(),
        Some(_) | None => BTreeSet::new(),
    }
}

/// Trips it if too much has failed. Only one of many who find out gets to say so.
pub async fn evaluate<S: Store>(
    store: &S,
    settings: &BreakerSettings,
    now: Timestamp,
) -> Result<Option<Tripped>, StoreError> {
    for _ in 0..TRIES {
        let (breaker, loaded) = read(store, now).await?;
        let minutes = minutes(store, &breaker, settings, now).await?;
        let Some(tripped) = breaker.evaluate(&minutes, now, settings) else { return Ok(None) };
        if replace(store, loaded, &tripped.breaker, now).await? {
            return Ok(Some(tripped));
        }
    }
    Err(StoreError::Contended)
}

/// Whether this run's remedy may be dispatched now; if it is to be the probe, it is the only one once this has answered.
pub async fn may_dispatch<S: Store>(
    store: &S,
    run: &RunId,
    settings: &BreakerSettings,
    now: Timestamp,
) -> Result<Permit, StoreError> {
    for _ in 0..TRIES {
        let (breaker, loaded) = read(store, now).await?;
        let permit = breaker.may_dispatch(run, now, settings);
        match &permit {
            Permit::Probe(probing) if !replace(store, loaded, probing, now).await? => {}
            Permit::Probe(_) | Permit::Allowed | Permit::Refused { .. } => return Ok(permit),
        }
    }
    Err(StoreError::Contended)
}

/// The remedy of a run has ended; if it was the probe, the breaker closes or opens.
pub async fn probe_ended<S: Store>(
    store: &S,
    run: &RunId,
    outcome: ProbeOutcome,
    settings: &BreakerSettings,
    now: Timestamp,
) -> Result<Option<Breaker>, StoreError> {
    change(store, now, |breaker| breaker.probe_ended(run, outcome, now, settings)).await
}

/// A person says that the trouble is over.
pub async fn reset<S: Store>(store: &S, now: Timestamp) -> Result<Breaker, StoreError> {
    let reset = change(store, now, |breaker| Some(breaker.reset(now))).await?;
    reset.ok_or(StoreError::Contended)
}

async fn change<S: Store>(
    store: &S,
    now: Timestamp,
    to: impl Fn(&Breaker) -> Option<Breaker>,
) -> Result<Option<Breaker>, StoreError> {
    for _ in 0..TRIES {
        let (breaker, loaded) = read(store, now).await?;
        let Some(breaker) = to(&breaker) else { return Ok(None) };
        if replace(store, loaded, &breaker, now).await? {
            return Ok(Some(breaker));
        }
    }
    Err(StoreError::Contended)
}
