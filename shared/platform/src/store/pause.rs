//! The pause switch: while Suture is paused it decides, but does not act.

use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use serde_dynamo::{AttributeValue, Item};

use super::lease::ttl_rounded_up;
use super::versioned::{Conflicts, write_all_if};
use super::{Condition, HOLDER, Key, RowWrite, Store, StoreError, TTL, VERSION, number, number_of, text_of};

/// Retention of the row after `unpause`: longer than API requests are recognised as duplicates, so that a late repeat finds it.
const UNPAUSED_FOR: SignedDuration = SignedDuration::from_hours(25);
const REQUESTED_AT: &str = "requested_at";

pub(super) fn key() -> Key {
    Key::state("PAUSE")
}

pub(super) fn holder_of(row: &Item) -> Option<String> {
    text_of(row, HOLDER).map(str::to_owned)
}

/// The user who paused Suture, if it is paused.
pub async fn paused_by<S: Store>(store: &S, now: Timestamp) -> Result<Option<String>, StoreError> {
    Ok(store.get(&key(), now).await?.and_then(|row| holder_of(&row)))
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
        let row = store.get(&key(), now).await?;
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
        if write_all_if(store, vec![RowWrite::Put { key: key(), item, only_if }], now).await? {
            return Ok(by.map(str::to_owned));
        }
        conflicts.pause().await?;
    }
}
