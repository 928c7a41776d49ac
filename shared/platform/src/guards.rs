//! Coordination between processes: leases, slots, counters, the shared rate limit and the pause switch. Leases and slots expire, so that
//! a crashed holder does not block others for long. (A `ttl` has whole seconds; expiry times are rounded up.)

use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use serde_dynamo::{AttributeValue, Item};

use crate::store::versioned::{Conflicts, write_all_if, write_if};
use crate::store::{
    Condition, ConditionFailed, HOLDER, Key, RowWrite, Store, StoreError, TTL, VERSION, number, number_of, text_of,
};

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

fn slot_keys(name: &str, slots: u32) -> Vec<Key> {
    (0..slots).map(|n| Key::state(format!("SLOT#{name}#{n}"))).collect()
}

/// An expiry time as a `ttl`, rounded up.
fn ttl_rounded_up(until: Timestamp) -> AttributeValue {
    number(until.as_second() + i64::from(until.subsec_nanosecond() > 0))
}

fn lease_item(holder: &str, until: Timestamp) -> Item {
    let mut item = Item::default();
    item.inner_mut().insert(HOLDER.to_owned(), AttributeValue::S(holder.to_owned()));
    item.inner_mut().insert(TTL.to_owned(), ttl_rounded_up(until));
    item
}

fn expires_at(item: &Item) -> Timestamp {
    number_of(item, TTL).and_then(|second| Timestamp::from_second(second).ok()).unwrap_or(Timestamp::MIN)
}

async fn acquire<S: Store>(
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
            let found = refused.pop().flatten().and_then(|ConditionFailed { found }| found).unwrap_or_default();
            let by = text_of(&found, HOLDER).unwrap_or("unknown").to_owned();
            Ok(LeaseResult::HeldByOther { by, until: expires_at(&found) })
        }
        Err(error) => Err(error),
    }
}

async fn release<S: Store>(store: &S, key: Key, holder: &str, now: Timestamp) -> Result<(), StoreError> {
    let write = RowWrite::Delete { key, only_if: Condition::HeldBy(holder.to_owned()) };
    // A refused delete means that the lease has expired or has another holder; either way it is released.
    write_if(store, write, now).await?;
    Ok(())
}

/// Acquires a lease, or extends the holder's own.
pub async fn acquire_lease<S: Store>(
    store: &S,
    name: &str,
    holder: &str,
    until: Timestamp,
    now: Timestamp,
) -> Result<LeaseResult, StoreError> {
    acquire(store, lease_key(name), holder, until, now).await
}

/// Releases a lease; a lease of another holder stays.
pub async fn release_lease<S: Store>(store: &S, name: &str, holder: &str, now: Timestamp) -> Result<(), StoreError> {
    release(store, lease_key(name), holder, now).await
}

/// The result of acquiring a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotResult {
    /// Held until the requested time.
    Held,
    Full {
        /// When the first slot expires.
        until: Timestamp,
    },
}

/// Acquires one of the slots with this name, or extends the holder's own.
pub async fn acquire_slot<S: Store>(
    store: &S,
    name: &str,
    slots: u32,
    holder: &str,
    until: Timestamp,
    now: Timestamp,
) -> Result<SlotResult, StoreError> {
    let keys = slot_keys(name, slots);
    let known = store.get_many(&keys, now).await?;
    let mine = known.iter().find(|(_, item)| text_of(item, HOLDER) == Some(holder)).map(|(key, _)| key.clone());
    let free = keys.iter().filter(|key| known.iter().all(|(taken, _)| taken != *key)).cloned();
    let mut first_expiry = known.iter().map(|(_, item)| expires_at(item)).min();
    for key in mine.into_iter().chain(free) {
        match acquire(store, key, holder, until, now).await? {
            LeaseResult::Held => return Ok(SlotResult::Held),
            LeaseResult::HeldByOther { until, .. } => {
                first_expiry = Some(first_expiry.map_or(until, |known| known.min(until)))
            }
        }
    }
    Ok(SlotResult::Full { until: first_expiry.unwrap_or(now) })
}

pub async fn release_slot<S: Store>(
    store: &S,
    name: &str,
    slots: u32,
    holder: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let keys = slot_keys(name, slots);
    for (key, item) in store.get_many(&keys, now).await? {
        if text_of(&item, HOLDER) == Some(holder) {
            release(store, key, holder, now).await?;
        }
    }
    Ok(())
}

/// Increments a counter of the current time window, shared by all processes, and returns the new count.
pub async fn count_in_window<S: Store>(
    store: &S,
    name: &str,
    window: SignedDuration,
    now: Timestamp,
) -> Result<i64, StoreError> {
    let length = window.as_secs().max(1);
    let window_start = now.as_second() - now.as_second().rem_euclid(length);
    // Kept for two windows, because clocks differ.
    let ttl = Timestamp::from_second(window_start.saturating_add(2 * length)).unwrap_or(Timestamp::MAX);
    store.count(&Key::state(format!("LIMIT#{name}#{window_start}")), 1, ttl, now).await
}

const NOT_BEFORE: &str = "not_before";

fn not_before_key(name: &str) -> Key {
    Key::state(format!("LIMIT#{name}"))
}

/// Until when calls to a rate-limited system are forbidden, as stored by any process.
pub async fn not_before<S: Store>(store: &S, name: &str, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let row = store.get(&not_before_key(name), now).await?;
    let until = row.as_ref().and_then(|item| text_of(item, NOT_BEFORE)).and_then(|until| until.parse().ok());
    Ok(until.filter(|until| *until > now))
}

/// Stores a rate limit for all processes. A shorter wait does not replace a longer one.
pub async fn set_not_before<S: Store>(
    store: &S,
    name: &str,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    if not_before(store, name, now).await?.is_some_and(|known| known >= until) {
        return Ok(());
    }
    store.write(vec![not_before_write(name, until)], now).await
}

/// The write of a rate limit, to be combined with other writes.
pub fn not_before_write(name: &str, until: Timestamp) -> RowWrite {
    let mut item = lease_item("everybody", until);
    item.inner_mut().insert(NOT_BEFORE.to_owned(), AttributeValue::S(until.to_string()));
    RowWrite::Put { key: not_before_key(name), item, only_if: Condition::Always }
}

/// Retention of the row after `unpause`: longer than API requests are recognised as duplicates, so that a late repeat finds it.
const UNPAUSED_FOR: SignedDuration = SignedDuration::from_hours(25);
const REQUESTED_AT: &str = "said_at";

fn pause_key() -> Key {
    Key::state("PAUSE")
}

fn holder_of(row: &Item) -> Option<String> {
    text_of(row, HOLDER).map(str::to_owned)
}

/// The user who paused Suture, if it is paused.
pub async fn paused_by<S: Store>(store: &S, now: Timestamp) -> Result<Option<String>, StoreError> {
    Ok(store.get(&pause_key(), now).await?.and_then(|row| holder_of(&row)))
}

/// Pauses Suture until `unpause`. Returns who has paused it now. A repeated or late request does not override a newer one.
pub async fn pause<S: Store>(
    store: &S,
    by: &str,
    requested_at: Timestamp,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    set_paused(store, Some(by), requested_at, now).await
}

/// Ends the pause, unless a newer request paused Suture again. Returns who has paused it now.
pub async fn unpause<S: Store>(
    store: &S,
    requested_at: Timestamp,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    set_paused(store, None, requested_at, now).await
}

/// The newest request wins, by the time of the request and not of its arrival.
async fn set_paused<S: Store>(
    store: &S,
    by: Option<&str>,
    requested_at: Timestamp,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    let mut conflicts = Conflicts::new(requested_at);
    loop {
        let row = store.get(&pause_key(), now).await?;
        let last = row.as_ref().and_then(|row| number_of(row, REQUESTED_AT));
        if let Some(row) = row.as_ref().filter(|_| last > Some(requested_at.as_millisecond())) {
            return Ok(holder_of(row));
        }
        let version = row.as_ref().and_then(|row| number_of(row, VERSION)).and_then(|it| u64::try_from(it).ok());
        let (name, value) = match by {
            Some(by) => (HOLDER, AttributeValue::S(by.to_owned())),
            None => (TTL, ttl_rounded_up(saturating_after(now, UNPAUSED_FOR))),
        };
        let mut item = Item::default();
        item.inner_mut().insert(VERSION.to_owned(), number(version.unwrap_or(0) + 1));
        item.inner_mut().insert(REQUESTED_AT.to_owned(), number(requested_at.as_millisecond()));
        item.inner_mut().insert(name.to_owned(), value);
        // Rows written by older builds have no version; `unpause` must work on them too.
        let only_if = match (&row, version) {
            (None, _) => Condition::Absent,
            (Some(_), Some(version)) => Condition::Version(version),
            (Some(_), None) => Condition::Always,
        };
        if write_all_if(store, vec![RowWrite::Put { key: pause_key(), item, only_if }], now).await? {
            return Ok(by.map(str::to_owned));
        }
        conflicts.pause().await?;
    }
}

pub async fn slot_holders<S: Store>(
    store: &S,
    name: &str,
    slots: u32,
    now: Timestamp,
) -> Result<Vec<String>, StoreError> {
    let keys = slot_keys(name, slots);
    let rows = store.get_many(&keys, now).await?;
    Ok(rows.iter().filter_map(|(_, item)| text_of(item, HOLDER).map(str::to_owned)).collect())
}
