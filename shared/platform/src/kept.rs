//! One row that holds one thing, with a version: read, changed by whoever is first, and left alone by everybody else.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::rows;
use crate::store::{Key, OnlyIf, Store, StoreError, TTL, VERSION, Write, number, number_of};

/// What a row holds, and the version it was read with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept<T> {
    pub what: T,
    pub version: u64,
}

/// Reads it.
pub async fn load<S: Store, T: DeserializeOwned>(
    store: &S,
    key: &Key,
    now: Timestamp,
) -> Result<Option<Kept<T>>, StoreError> {
    let Some(row) = store.get(key, now).await? else { return Ok(None) };
    let version = number_of(&row, VERSION).and_then(|version| u64::try_from(version).ok()).unwrap_or(0);
    Ok(Some(Kept { what: rows::read(key, &row)?, version }))
}

/// Writes it, if it is as it was read; `None` if there was none. Answers whether it was.
pub async fn save<S: Store, T: Serialize>(
    store: &S,
    key: &Key,
    what: &T,
    loaded: Option<u64>,
    ttl: Timestamp,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let only_if = loaded.map_or(OnlyIf::Absent, OnlyIf::Version);
    match write(store, key, what, loaded.unwrap_or(0).saturating_add(1), only_if, ttl, now).await {
        Ok(()) => Ok(true),
        Err(StoreError::Refused(_) | StoreError::Contended) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes it, whatever was there.
pub async fn put<S: Store, T: Serialize>(
    store: &S,
    key: &Key,
    what: &T,
    ttl: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    write(store, key, what, 1, OnlyIf::Always, ttl, now).await
}

async fn write<S: Store, T: Serialize>(
    store: &S,
    key: &Key,
    what: &T,
    version: u64,
    only_if: OnlyIf,
    ttl: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut item = rows::row(key, what)?;
    item.inner_mut().insert(VERSION.to_owned(), number(version));
    item.inner_mut().insert(TTL.to_owned(), number(ttl.as_second()));
    store.write(vec![Write::Put { key: key.clone(), item, only_if }], now).await
}
