//! Leases: only one process at a time does something. They expire, so that a crashed holder does not block others for long. (A `ttl` has
//! whole seconds; expiry times are rounded up.)

use jiff::Timestamp;
use serde_dynamo::{AttributeValue, Item};

use super::versioned::write_if;
use super::{Condition, ConditionFailed, HOLDER, Key, RowWrite, Store, StoreError, TTL, number, number_of, text_of};

/// The result of acquiring a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseResult {
    /// Held until the requested time.
    Held,
    HeldByOther {
        by: String,
        /// When it expires.
        until: Timestamp,
    },
}

fn lease_key(name: &str) -> Key {
    Key::state(format!("LEASE#{name}"))
}

/// An expiry time as a `ttl`, rounded up.
pub(super) fn ttl_rounded_up(until: Timestamp) -> AttributeValue {
    number(until.as_second() + i64::from(until.subsec_nanosecond() > 0))
}

pub(super) fn lease_item(holder: &str, until: Timestamp) -> Item {
    let mut item = Item::default();
    item.inner_mut().insert(HOLDER.to_owned(), AttributeValue::S(holder.to_owned()));
    item.inner_mut().insert(TTL.to_owned(), ttl_rounded_up(until));
    item
}

pub(super) fn expires_at(item: &Item) -> Timestamp {
    number_of(item, TTL).and_then(|second| Timestamp::from_second(second).ok()).unwrap_or(Timestamp::MIN)
}

fn held_by_other(lease: Option<Item>) -> LeaseResult {
    let lease = lease.unwrap_or_default();
    let by = text_of(&lease, HOLDER).unwrap_or("unknown").to_owned();
    LeaseResult::HeldByOther { by, until: expires_at(&lease) }
}

pub(super) async fn acquire_key<S: Store>(
    store: &S,
    key: Key,
    holder: &str,
    until: Timestamp,
    now: Timestamp,
) -> Result<LeaseResult, StoreError> {
    let write = RowWrite::Put { key, item: lease_item(holder, until), only_if: Condition::FreeFor(holder.to_owned()) };
    match store.write(vec![write], now).await {
        Ok(()) => Ok(LeaseResult::Held),
        Err(StoreError::ConditionFailed(mut refused)) => {
            Ok(held_by_other(refused.pop().flatten().and_then(|ConditionFailed { found }| found)))
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn release_key<S: Store>(store: &S, key: Key, holder: &str, now: Timestamp) -> Result<(), StoreError> {
    let write = RowWrite::Delete { key, only_if: Condition::HeldBy(holder.to_owned()) };
    // A refused delete means that the lease has expired or has another holder; either way it is released.
    write_if(store, write, now).await?;
    Ok(())
}

/// Acquires a lease, or extends the holder's own.
pub async fn acquire<S: Store>(
    store: &S,
    name: &str,
    holder: &str,
    until: Timestamp,
    now: Timestamp,
) -> Result<LeaseResult, StoreError> {
    acquire_key(store, lease_key(name), holder, until, now).await
}

/// Acquires a lease together with another write. Returns `None`, and writes nothing, if only the condition of the other write failed.
pub async fn acquire_with<S: Store>(
    store: &S,
    name: &str,
    holder: &str,
    until: Timestamp,
    other: RowWrite,
    now: Timestamp,
) -> Result<Option<LeaseResult>, StoreError> {
    let (key, only_if) = (lease_key(name), Condition::FreeFor(holder.to_owned()));
    let lease = RowWrite::Put { key, item: lease_item(holder, until), only_if };
    match store.write(vec![lease, other], now).await {
        Ok(()) => Ok(Some(LeaseResult::Held)),
        Err(StoreError::ConditionFailed(refused)) => {
            Ok(refused.into_iter().next().flatten().map(|refused| held_by_other(refused.found)))
        }
        Err(error) => Err(error),
    }
}

/// The write that releases a lease, to be combined with other writes. Its condition fails if the lease has another holder.
pub fn release_write(name: &str, holder: &str) -> RowWrite {
    RowWrite::Delete { key: lease_key(name), only_if: Condition::HeldBy(holder.to_owned()) }
}

/// Releases a lease; a lease of another holder stays.
pub async fn release<S: Store>(store: &S, name: &str, holder: &str, now: Timestamp) -> Result<(), StoreError> {
    release_key(store, lease_key(name), holder, now).await
}
