//! A store decorator that shows written events and runs on the console.

use std::sync::Arc;

use domain::event::Event;
use domain::github_contact::GithubContact;
use domain::run::Run;
use jiff::Timestamp;
use platform::store::dynamo::DynamoStore;
use platform::store::github_contact;
use platform::store::schema;
use platform::store::{Key, Page, Query, RowWrite, Store, StoreError, Table, UsageMeter};
use serde_dynamo::Item;

use super::console::{Console, ConsoleEvent};

#[derive(Debug)]
pub(super) struct EventTap {
    store: DynamoStore,
    console: Console,
}

impl EventTap {
    pub(super) fn new(store: DynamoStore, console: Console) -> Arc<Self> {
        Arc::new(Self { store, console })
    }
}

fn console_event(write: &RowWrite, at: Timestamp) -> Option<ConsoleEvent> {
    let RowWrite::Put { key, item, .. } = write else { return None };
    match key.table {
        Table::Events => {
            schema::read::<Event>(key, item).ok().map(|event| ConsoleEvent::Event { at, event: Box::new(event) })
        }
        Table::State if key.partition.starts_with("RUN#") => {
            schema::read::<Run>(key, item).ok().map(|run| ConsoleEvent::Run { at, run: Box::new(run) })
        }
        Table::State if *key == github_contact::key() => {
            schema::read::<GithubContact>(key, item).ok().map(|contact| ConsoleEvent::Contact { at, contact })
        }
        Table::State => None,
    }
}

impl Store for EventTap {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        self.store.get(key, now).await
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        self.store.get_many(keys, now).await
    }

    async fn write(&self, writes: Vec<RowWrite>, now: Timestamp) -> Result<(), StoreError> {
        let events: Vec<_> = writes.iter().filter_map(|write| console_event(write, now)).collect();
        self.store.write(writes, now).await?;
        events.into_iter().for_each(|event| self.console.show(event));
        Ok(())
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        self.store.count(key, by, ttl, now).await
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        self.store.query(query, now).await
    }

    fn usage(&self) -> &UsageMeter {
        self.store.usage()
    }
}
