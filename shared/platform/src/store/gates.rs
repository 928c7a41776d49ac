//! The gates of `domain::admission`, read in one request: the pause switch and the circuit breaker; and up to which epochs the sweeps have
//! visited what the gates had put off.

use domain::admission::Gates;
use domain::breaker::Breaker;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_dynamo::Item;

use super::versioned;
use super::{Condition, Key, Store, StoreError, VERSION, breaker, number_of, pause};
use crate::store::schema;

/// The gates, and what the sweeps know of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateRows {
    pub gates: Gates,
    pub released: ReleasedEpochs,
}

impl GateRows {
    /// Whether a gate has opened since the last sweep visited what it had put off.
    pub fn has_opened(&self) -> bool {
        self.released != ReleasedEpochs::of(&self.gates)
    }
}

/// The epochs of the gates after which a sweep has visited everything that earlier epochs had put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReleasedEpochs {
    pub pause: u64,
    pub breaker: u64,
}

impl ReleasedEpochs {
    fn of(gates: &Gates) -> Self {
        Self { pause: gates.pause_epoch, breaker: gates.breaker.epoch }
    }
}

fn released_key() -> Key {
    Key::state("RELEASED")
}

/// The keys of all rows that [`read`] needs.
pub fn keys() -> [Key; 3] {
    [breaker::key(), pause::key(), released_key()]
}

/// Reads the gates from rows that were loaded together with others.
pub fn read(rows: &[(Key, Item)], now: Timestamp) -> Result<GateRows, StoreError> {
    let row = |wanted: Key| rows.iter().find(|(key, _)| *key == wanted).map(|(_, item)| item);
    let breaker: Breaker = match row(breaker::key()) {
        Some(item) => schema::read(&breaker::key(), item)?,
        None => Breaker::default(),
    };
    let released = match row(released_key()) {
        Some(item) => schema::read(&released_key(), item)?,
        None => ReleasedEpochs::default(),
    };
    let paused = row(pause::key());
    let pause_epoch = paused.and_then(|item| number_of(item, VERSION)).and_then(|it| u64::try_from(it).ok());
    let gates = Gates {
        paused_by: paused.and_then(pause::holder_of),
        pause_epoch: pause_epoch.unwrap_or(0),
        breaker: breaker.as_of(now),
    };
    Ok(GateRows { gates, released })
}

pub async fn load<S: Store>(store: &S, now: Timestamp) -> Result<Gates, StoreError> {
    Ok(read(&store.get_many(&keys(), now).await?, now)?.gates)
}

/// Records that everything which the gates had put off before was visited.
pub async fn mark_released<S: Store>(store: &S, gates: &Gates, now: Timestamp) -> Result<(), StoreError> {
    let write = versioned::write(&released_key(), &ReleasedEpochs::of(gates), 1, Condition::Always, None)?;
    store.write(vec![write], now).await
}
