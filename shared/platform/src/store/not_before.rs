//! Times before which something must not be done, shared by all processes: rate limits, and intervals between repeated work.

use jiff::Timestamp;
use serde_dynamo::{AttributeValue, Item};

use super::lease::lease_item;
use super::{Condition, Key, RowWrite, Store, StoreError, text_of};

const NOT_BEFORE: &str = "not_before";

pub fn key(name: &str) -> Key {
    Key::state(format!("LIMIT#{name}"))
}

/// The stored time, if it is still to come.
pub async fn load<S: Store>(store: &S, name: &str, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    Ok(store.get(&key(name), now).await?.and_then(|item| time_of(&item, now)))
}

/// The same from rows that were loaded together with others.
pub fn read(rows: &[(Key, Item)], name: &str, now: Timestamp) -> Option<Timestamp> {
    rows.iter().find(|(row, _)| *row == key(name)).and_then(|(_, item)| time_of(item, now))
}

fn time_of(item: &Item, now: Timestamp) -> Option<Timestamp> {
    text_of(item, NOT_BEFORE).and_then(|until| until.parse().ok()).filter(|until| *until > now)
}

/// Stores a time. An earlier time does not replace a later one.
pub async fn set<S: Store>(store: &S, name: &str, until: Timestamp, now: Timestamp) -> Result<(), StoreError> {
    if load(store, name, now).await?.is_some_and(|known| known >= until) {
        return Ok(());
    }
    store.write(vec![write(name, until)], now).await
}

/// The write of a time, to be combined with other writes.
pub fn write(name: &str, until: Timestamp) -> RowWrite {
    let mut item = lease_item("everybody", until);
    item.inner_mut().insert(NOT_BEFORE.to_owned(), AttributeValue::S(until.to_string()));
    RowWrite::Put { key: key(name), item, only_if: Condition::Always }
}
