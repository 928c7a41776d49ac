//! A store with bad days: the next writes fail in the ways that they are told to.

use std::collections::VecDeque;
use std::sync::Mutex;

use jiff::Timestamp;
use platform::store::{Key, Page, Query, Spent, Store, StoreError, Write};
use serde_dynamo::Item;

/// How a write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Another transaction is writing the same rows; nothing is written.
    Contended,
    /// Too many requests; nothing is written.
    Throttled,
    /// More than DynamoDB takes; nothing is written.
    TooLarge,
    /// It is written, but nobody says so.
    AnswerLost,
}

/// A store whose writes fail as they are told to.
#[derive(Debug)]
pub struct Faulty<S> {
    store: S,
    faults: Mutex<VecDeque<Fault>>,
}

impl<S> Faulty<S> {
    /// This store, for now without faults.
    pub fn new(store: S) -> Self {
        Self { store, faults: Mutex::default() }
    }

    /// What the next writes do.
    pub fn next_writes(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().expect("nobody panicked").extend(faults);
    }
}

impl<S: Store> Store for Faulty<S> {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        self.store.get(key, now).await
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        self.store.get_many(keys, now).await
    }

    async fn write(&self, writes: Vec<Write>, now: Timestamp) -> Result<(), StoreError> {
        let fault = self.faults.lock().expect("nobody panicked").pop_front();
        match fault {
            None => self.store.write(writes, now).await,
            Some(Fault::Contended) => Err(StoreError::Contended),
            Some(Fault::Throttled) => Err(StoreError::Throttled),
            Some(Fault::TooLarge) => Err(StoreError::TooLarge("DynamoDB does not take this".to_owned())),
            Some(Fault::AnswerLost) => {
                self.store.write(writes, now).await?;
                Err(StoreError::Unavailable("the answer was lost".to_owned()))
            }
        }
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        self.store.count(key, by, ttl, now).await
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        self.store.query(query, now).await
    }

    fn spent(&self) -> &Spent {
        self.store.spent()
    }
}
