//! A process that dies at any external call: before it, after it, or with the answer lost. A fuse counts the calls and blows at
//! the one it is set to; a call that never answers is how a dead process looks from inside.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use platform::outlets::{Outlets, Parcel, Undelivered};
use platform::store::{Key, Page, Query, Spent, Store, StoreError, Write};
use serde_dynamo::Item;

/// How it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// The process dies before the call is made.
    Before,
    /// The call is made, and the process dies before it hears of it.
    After,
    /// The call is made, but its answer is lost; the process goes on.
    AnswerLost,
    /// The call is made so late that others have come by meanwhile.
    Late,
    /// The call does not get through; the process goes on.
    Unmade,
}

impl Blow {
    /// Those after which the message comes again.
    pub const ALL: [Self; 3] = [Self::Before, Self::After, Self::AnswerLost];
    const EVERY: [Self; 5] = [Self::Before, Self::After, Self::AnswerLost, Self::Late, Self::Unmade];
}

/// Counts external calls, and blows at one of them.
#[derive(Debug, Default)]
pub struct Fuse {
    calls: AtomicUsize,
    at: AtomicUsize,
    how: AtomicUsize,
}

impl Fuse {
    /// Blows at this call from now on, counted from 1.
    pub fn set(&self, at: usize, how: Blow) {
        self.calls.store(0, Ordering::SeqCst);
        self.how.store(how as usize, Ordering::SeqCst);
        self.at.store(at, Ordering::SeqCst);
    }

    /// Never blows.
    pub fn remove(&self) {
        self.at.store(0, Ordering::SeqCst);
    }

    /// Calls since it was set.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Whether it blows at this call, and how.
    #[must_use]
    pub fn next(&self) -> Option<Blow> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let blows = call == self.at.load(Ordering::SeqCst);
        blows.then(|| Blow::EVERY[self.how.load(Ordering::SeqCst)])
    }
}

/// Never comes back: the process is dead.
pub async fn dead<T>() -> T {
    std::future::pending().await
}

/// As long as somebody else needs for all of their work. (Tests with late calls run on a paused clock.)
pub async fn late() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// A store behind a fuse.
#[derive(Debug, Clone)]
pub struct FusedStore<S> {
    /// The store.
    pub store: S,
    /// The fuse.
    pub fuse: Arc<Fuse>,
}

impl<S: Store> FusedStore<S> {
    async fn through<T>(&self, call: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
        match self.fuse.next() {
            None => call.await,
            Some(Blow::Before) => dead().await,
            Some(Blow::After) => {
                let _ = call.await;
                dead().await
            }
            Some(Blow::AnswerLost) => {
                let _ = call.await;
                Err(StoreError::Unavailable("the answer was lost".to_owned()))
            }
            Some(Blow::Late) => {
                late().await;
                call.await
            }
            Some(Blow::Unmade) => Err(StoreError::Unavailable("it did not get through".to_owned())),
        }
    }
}

impl<S: Store> Store for FusedStore<S> {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        self.through(self.store.get(key, now)).await
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        self.through(self.store.get_many(keys, now)).await
    }

    async fn write(&self, writes: Vec<Write>, now: Timestamp) -> Result<(), StoreError> {
        self.through(self.store.write(writes, now)).await
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        self.through(self.store.count(key, by, ttl, now)).await
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        self.through(self.store.query(query, now)).await
    }

    fn spent(&self) -> &Spent {
        self.store.spent()
    }
}

/// Outlets behind a fuse.
#[derive(Debug, Clone)]
pub struct FusedOutlets<O> {
    /// The outlets.
    pub outlets: O,
    /// The fuse.
    pub fuse: Arc<Fuse>,
}

impl<O: Outlets> Outlets for FusedOutlets<O> {
    async fn send(&self, parcels: &[Parcel]) -> Vec<Result<(), Undelivered>> {
        match self.fuse.next() {
            None => self.outlets.send(parcels).await,
            Some(Blow::Before) => dead().await,
            Some(Blow::After) => {
                self.outlets.send(parcels).await;
                dead().await
            }
            Some(Blow::AnswerLost) => {
                self.outlets.send(parcels).await;
                parcels.iter().map(|_| Err(Undelivered("the answer was lost".to_owned()))).collect()
            }
            Some(Blow::Late) => {
                late().await;
                self.outlets.send(parcels).await
            }
            Some(Blow::Unmade) => {
                parcels.iter().map(|_| Err(Undelivered("it did not get through".to_owned()))).collect()
            }
        }
    }
}
