//! Optimistic locking: the first writer wins, the others reload and retry. Mostly for items that hold one value with a version.

use std::time::Duration;

use domain::backoff::jitter_seed;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Condition, Key, RowWrite, Store, StoreError, TTL, VERSION, number, number_of};
use crate::store::schema;

/// Attempts before a write conflict becomes an error.
const MAX_ATTEMPTS: u32 = 8;
/// Base of the pauses between attempts; each pause is up to twice as long as the one before.
const PAUSE_MS: u64 = 5;

/// An item's value, and the version it was read with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    pub value: T,
    pub version: u64,
}

pub async fn load<S: Store, T: DeserializeOwned>(
    store: &S,
    key: &Key,
    now: Timestamp,
) -> Result<Option<Versioned<T>>, StoreError> {
    let Some(item) = store.get(key, now).await? else { return Ok(None) };
    let version = number_of(&item, VERSION).and_then(|version| u64::try_from(version).ok()).unwrap_or(0);
    Ok(Some(Versioned { value: schema::read_owned(key, item)?, version }))
}

/// Writes a value if its version is still `loaded` (`None`: no item). Returns whether it was written.
pub async fn save<S: Store, T: Serialize>(
    store: &S,
    key: &Key,
    value: &T,
    loaded: Option<u64>,
    ttl: Option<Timestamp>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    write_all_if(store, vec![replace(key, value, loaded, ttl)?], now).await
}

/// Loads a value, or its default, and writes the new one with retries; `None` leaves it unchanged.
pub async fn update<S: Store, T: Default + Serialize + DeserializeOwned, R>(
    store: &S,
    key: &Key,
    now: Timestamp,
    decide: impl Fn(T) -> (Option<T>, R),
) -> Result<R, StoreError> {
    let mut conflicts = Conflicts::new(now);
    loop {
        let known: Option<Versioned<T>> = load(store, key, now).await?;
        let loaded = known.as_ref().map(|known| known.version);
        let (next, answer) = decide(known.map(|known| known.value).unwrap_or_default());
        let Some(next) = next else { return Ok(answer) };
        if save(store, key, &next, loaded, None, now).await? {
            return Ok(answer);
        }
        conflicts.pause().await?;
    }
}

/// Counts write conflicts, and fails after too many.
pub struct Conflicts {
    /// Makes the pauses of conflicting writers differ.
    seed: String,
    tries: u32,
}

impl Conflicts {
    pub fn new(seed: impl ToString) -> Self {
        Self { seed: seed.to_string(), tries: 0 }
    }

    /// Waits before the next attempt, with full jitter that is deterministic per seed and attempt.
    pub async fn pause(&mut self) -> Result<(), StoreError> {
        self.tries += 1;
        if self.tries >= MAX_ATTEMPTS {
            return Err(StoreError::TransactionConflict);
        }
        let window = PAUSE_MS << self.tries.min(6);
        tokio::time::sleep(Duration::from_millis(jitter_seed(&self.seed, self.tries) % window)).await;
        Ok(())
    }
}

/// Writes all rows, or none on a conflict. Returns whether they were written.
pub async fn write_all_if<S: Store>(store: &S, writes: Vec<RowWrite>, now: Timestamp) -> Result<bool, StoreError> {
    match store.write(writes, now).await {
        Ok(()) => Ok(true),
        Err(StoreError::ConditionFailed(_) | StoreError::TransactionConflict) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes one row if its condition holds. Returns whether it was written.
pub async fn write_if<S: Store>(store: &S, write: RowWrite, now: Timestamp) -> Result<bool, StoreError> {
    match store.write(vec![write], now).await {
        Ok(()) => Ok(true),
        Err(StoreError::ConditionFailed(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes a value unconditionally.
pub async fn put<S: Store, T: Serialize>(
    store: &S,
    key: &Key,
    value: &T,
    ttl: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    store.write(vec![write(key, value, 1, Condition::Always, Some(ttl))?], now).await
}

fn replace<T: Serialize>(
    key: &Key,
    value: &T,
    loaded: Option<u64>,
    ttl: Option<Timestamp>,
) -> Result<RowWrite, StoreError> {
    write(key, value, loaded.unwrap_or(0).saturating_add(1), loaded.map_or(Condition::Absent, Condition::Version), ttl)
}

/// The write of a value with a version.
pub fn write<T: Serialize>(
    key: &Key,
    value: &T,
    version: u64,
    only_if: Condition,
    ttl: Option<Timestamp>,
) -> Result<RowWrite, StoreError> {
    let mut item = schema::row(key, value)?;
    item.inner_mut().insert(VERSION.to_owned(), number(version));
    if let Some(ttl) = ttl {
        item.inner_mut().insert(TTL.to_owned(), number(ttl.as_second()));
    }
    Ok(RowWrite::Put { key: key.clone(), item, only_if })
}
