//! When GitHub's last webhook was received: one row, so that a sweep notices silence. Each process writes it at most once a minute.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde_dynamo::{AttributeValue, Item};
use tracing::warn;

use super::{Key, RowUpdate, RowWrite, Store, schema, text_of};

const AT: &str = "at";
/// Silence is measured in minutes, so a more precise time would only cost writes.
const WRITE_EVERY: SignedDuration = SignedDuration::from_mins(1);

pub fn key() -> Key {
    Key::state("LAST-WEBHOOK")
}

/// Reads the time from rows that were loaded together with others.
pub fn read(rows: &[(Key, Item)]) -> Option<Timestamp> {
    let (_, row) = rows.iter().find(|(found, _)| *found == key())?;
    text_of(row, AT)?.parse().ok()
}

/// When this process last wrote the row.
#[derive(Debug, Default)]
pub struct LastWebhook(Mutex<Option<Timestamp>>);

impl LastWebhook {
    /// Writes the row, unless this process wrote it within the last minute. A failure is only logged: the next webhook tries again.
    pub async fn received<S: Store>(&self, store: &S, now: Timestamp) {
        let is_recent = |last: Timestamp| now.duration_since(last) < WRITE_EVERY;
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(is_recent) {
            return;
        }
        let set = BTreeMap::from([(AT.to_owned(), AttributeValue::S(schema::sort_time(now)))]);
        let write = RowWrite::Update { key: key(), change: RowUpdate { set, ..RowUpdate::default() } };
        match store.write(vec![write], now).await {
            Ok(()) => *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now),
            Err(error) => warn!(%error, "cannot store when the last webhook was received"),
        }
    }
}
