//! The store, watched: what was written to the log is told to the terminal. Nothing else is different about it.

use std::sync::Arc;

use domain::event::Event;
use domain::run::Run;
use jiff::Timestamp;
use platform::rows;
use platform::store::dynamo::DynamoStore;
use platform::store::{Key, Page, Query, Spent, Store, StoreError, Table, Write};
use serde_dynamo::Item;

use super::console::{Console, ConsoleEvent};

/// A store that tells what is written to it.
#[derive(Debug)]
pub(super) struct EventTap {
    store: DynamoStore,
    lines: Console,
}

impl EventTap {
    pub(super) fn new(store: DynamoStore, lines: Console) -> Arc<Self> {
        Arc::new(Self { store, lines })
    }
}

/// What some writes say, if they succeed.
fn news(writes: &[Write], now: Timestamp) -> Vec<ConsoleEvent> {
    let told = writes.iter().filter_map(|write| {
        let Write::Put { key, item, .. } = write else { return None };
        match key.table {
            Table::Events => {
                rows::read::<Event>(key, item).ok().map(|event| ConsoleEvent::Event { at: now, event: Box::new(event) })
            }
            Table::State if key.partition.starts_with("RUN#") => {
                rows::read::<Run>(key, item).ok().map(|run| ConsoleEvent::Run { at: now, run: Box::new(run) })
            }
            Table::State => None,
        }
    });
    told.collect()
}

impl Store for EventTap {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        self.store.get(key, now).await
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        self.store.get_many(keys, now).await
    }

    async fn write(&self, writes: Vec<Write>, now: Timestamp) -> Result<(), StoreError> {
        let news = news(&writes, now);
        self.store.write(writes, now).await?;
        news.into_iter().for_each(|one| self.lines.tell(one));
        Ok(())
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
