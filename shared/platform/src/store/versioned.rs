//! One item that holds one value, with a version: read, replaced by whoever is first, and left alone by everybody else.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Key, OnlyIf, Store, StoreError, TTL, VERSION, Write, number, number_of};
use crate::rows;

/// What an item holds, and the version it was read with.
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
    Ok(Some(Versioned { value: rows::read(key, &item)?, version }))
}

/// Writes it, if it is as it was read (`loaded` is `None` if there was none). Answers whether it was.
pub async fn save<S: Store, T: Serialize>(
    store: &S,
    key: &Key,
    value: &T,
    loaded: Option<u64>,
    ttl: Option<Timestamp>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let only_if = loaded.map_or(OnlyIf::Absent, OnlyIf::Version);
    let write = write(key, value, loaded.unwrap_or(0).saturating_add(1), only_if, ttl)?;
    match store.write(vec![write], now).await {
        Ok(()) => Ok(true),
        Err(StoreError::Refused(_) | StoreError::Contended) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes it, whatever was there.
pub async fn put<S: Store, T: Serialize>(
    store: &S,
    key: &Key,
    value: &T,
    ttl: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    store.write(vec![write(key, value, 1, OnlyIf::Always, Some(ttl))?], now).await
}

fn write<T: Serialize>(
    key: &Key,
    value: &T,
    version: u64,
    only_if: OnlyIf,
    ttl: Option<Timestamp>,
) -> Result<Write, StoreError> {
    let mut item = rows::row(key, value)?;
    item.inner_mut().insert(VERSION.to_owned(), number(version));
    if let Some(ttl) = ttl {
        item.inner_mut().insert(TTL.to_owned(), number(ttl.as_second()));
    }
    Ok(Write::Put { key: key.clone(), item, only_if })
}
