//! Slots: at most a given number of processes at a time do something. They expire like leases.

use jiff::Timestamp;

use super::lease::{LeaseResult, acquire_key, expires_at, release_key};
use super::{HOLDER, Key, Store, StoreError, text_of};

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

fn slot_keys(name: &str, slots: u32) -> Vec<Key> {
    (0..slots).map(|n| Key::state(format!("SLOT#{name}#{n}"))).collect()
}

/// Acquires one of the slots with this name, or extends the holder's own.
pub async fn acquire<S: Store>(
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
        match acquire_key(store, key, holder, until, now).await? {
            LeaseResult::Held => return Ok(SlotResult::Held),
            LeaseResult::HeldByOther { until, .. } => {
                first_expiry = Some(first_expiry.map_or(until, |known| known.min(until)))
            }
        }
    }
    Ok(SlotResult::Full { until: first_expiry.unwrap_or(now) })
}

pub async fn release<S: Store>(
    store: &S,
    name: &str,
    slots: u32,
    holder: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let keys = slot_keys(name, slots);
    for (key, item) in store.get_many(&keys, now).await? {
        if text_of(&item, HOLDER) == Some(holder) {
            release_key(store, key, holder, now).await?;
        }
    }
    Ok(())
}

pub async fn holders<S: Store>(store: &S, name: &str, slots: u32, now: Timestamp) -> Result<Vec<String>, StoreError> {
    let keys = slot_keys(name, slots);
    let rows = store.get_many(&keys, now).await?;
    Ok(rows.iter().filter_map(|(_, item)| text_of(item, HOLDER).map(str::to_owned)).collect())
}
