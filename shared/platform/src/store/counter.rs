//! Counters of time windows, shared by all processes.

use jiff::{SignedDuration, Timestamp};

use super::{Key, Store, StoreError};

/// Increments a counter of the current time window and returns the new count.
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
