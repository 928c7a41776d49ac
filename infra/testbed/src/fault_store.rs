//! A store whose calls fail on demand.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use platform::store::dynamo::DynamoStore;
use platform::store::{Key, Page, Query, RowWrite, Store, StoreError, UsageMeter};
use serde_dynamo::Item;

use crate::{Faults, MemoryStore, locked};

/// Wraps a store and fails its calls as [`Faults`] says.
#[derive(Debug, Clone, Default)]
pub struct FaultStore<S = MemoryStore> {
    /// The wrapped store, without faults.
    pub store: S,
    pub faults: Arc<Faults>,
    write_errors: Arc<Mutex<VecDeque<StoreError>>>,
    rows_queried: Arc<AtomicUsize>,
}

impl<S: Store> FaultStore<S> {
    pub fn new(store: S, faults: &Arc<Faults>) -> Self {
        Self { store, faults: Arc::clone(faults), write_errors: Arc::default(), rows_queried: Arc::default() }
    }

    /// The next writes return these errors and write nothing.
    pub fn fail_writes(&self, errors: impl IntoIterator<Item = StoreError>) {
        *locked(&self.write_errors) = errors.into_iter().collect();
    }

    /// The number of rows that queries have returned.
    #[must_use]
    pub fn rows_queried(&self) -> usize {
        self.rows_queried.load(Ordering::SeqCst)
    }

    async fn call<T>(
        &self,
        name: String,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        // Lets other tasks run between two calls.
        tokio::task::yield_now().await;
        self.faults.call(name, call).await.unwrap_or_else(|why| Err(StoreError::Unavailable(why)))
    }
}

impl<S: Store> Store for FaultStore<S> {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        self.call(format!("get {key}"), self.store.get(key, now)).await
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        self.call(format!("get {} rows", keys.len()), self.store.get_many(keys, now)).await
    }

    async fn write(&self, writes: Vec<RowWrite>, now: Timestamp) -> Result<(), StoreError> {
        let keys = writes.iter().map(|write| write.key().to_string()).collect::<Vec<_>>().join(", ");
        let error = locked(&self.write_errors).pop_front();
        let write = async { if let Some(error) = error { Err(error) } else { self.store.write(writes, now).await } };
        self.call(format!("write {keys}"), write).await
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        self.call(format!("count {key}"), self.store.count(key, by, ttl, now)).await
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        let page = self.call(format!("query {}", query.partition), self.store.query(query, now)).await?;
        self.rows_queried.fetch_add(page.rows.len(), Ordering::SeqCst);
        Ok(page)
    }

    fn usage(&self) -> &UsageMeter {
        self.store.usage()
    }
}

/// The in-memory store, or DynamoDB through the production client.
#[derive(Debug, Clone)]
pub enum TestStore {
    Memory(Arc<MemoryStore>),
    Dynamo(Arc<DynamoStore>),
}

/// Calls the selected store. DynamoDB's future is boxed, because it is too large and nested for the compiler to lay out inline.
macro_rules! call_store {
    ($this:ident, $store:ident => $call:expr) => {
        match $this {
            TestStore::Memory($store) => $call.await,
            TestStore::Dynamo($store) => Box::pin($call).await,
        }
    };
}

impl Store for TestStore {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        call_store!(self, store => store.get(key, now))
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        call_store!(self, store => store.get_many(keys, now))
    }

    async fn write(&self, writes: Vec<RowWrite>, now: Timestamp) -> Result<(), StoreError> {
        call_store!(self, store => store.write(writes, now))
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        call_store!(self, store => store.count(key, by, ttl, now))
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        call_store!(self, store => store.query(query, now))
    }

    fn usage(&self) -> &UsageMeter {
        match self {
            Self::Memory(store) => store.usage(),
            Self::Dynamo(store) => store.usage(),
        }
    }
}
