//! The in-memory store, for tests and for simulations of millions of steps. It passes the same contract tests as DynamoDB.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_dynamo::{AttributeValue, Item};

use platform::store::{
    COUNT, Condition, ConditionFailed, Cursor, HOLDER, Index, Key, Page, Query, QuerySource, RowUpdate, RowWrite,
    Store, StoreError, TTL, UsageMeter, VERSION, is_expired, number, number_of, text_of, validate,
};

/// Two tables and their indexes, in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: Mutex<Tables>,
    usage: UsageMeter,
}

#[derive(Debug, Default)]
struct Tables {
    rows: BTreeMap<Key, Item>,
    /// Index entries (index, partition, sort, row key), so that a query visits only matching rows.
    entries: BTreeSet<(Index, String, String, Key)>,
}

impl MemoryStore {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Deletes expired rows, as DynamoDB's TTL does some time after expiry. Returns their number.
    pub fn sweep_ttl(&self, now: Timestamp) -> usize {
        let mut tables = self.tables();
        let expired: Vec<Key> =
            tables.rows.iter().filter(|(_, item)| is_expired(item, now)).map(|(key, _)| key.clone()).collect();
        for key in &expired {
            tables.remove(key);
        }
        expired.len()
    }

    /// The number of rows, including expired ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables().rows.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ignores poisoning: writes are atomic, so the tables are consistent after a panic.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn put(&mut self, key: &Key, item: Item) {
        self.remove(key);
        for (index, partition, sort) in entries_of(key, &item) {
            self.entries.insert((index, partition, sort, key.clone()));
        }
        self.rows.insert(key.clone(), item);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(old) = self.rows.remove(key) {
            for (index, partition, sort) in entries_of(key, &old) {
                self.entries.remove(&(index, partition, sort, key.clone()));
            }
        }
    }

    /// Whether the condition of a write holds.
    fn allows(&self, write: &RowWrite, now: Timestamp) -> bool {
        let (key, only_if) = (write.key(), write.only_if());
        let row = self.rows.get(key);
        let held_by = |holder: &str| row.and_then(|item| text_of(item, HOLDER)) == Some(holder);
        match only_if {
            Condition::Always => true,
            Condition::Present => row.is_some_and(|item| !is_expired(item, now)),
            Condition::NeverSeen => row.is_none(),
            Condition::Absent => row.is_none_or(|item| is_expired(item, now)),
            Condition::Version(version) => row
                .and_then(|item| number_of(item, VERSION))
                .is_some_and(|known| known.to_string() == version.to_string()),
            Condition::FreeFor(holder) => row.is_none_or(|item| is_expired(item, now)) || held_by(holder),
            Condition::HeldBy(holder) => held_by(holder),
        }
    }

    fn apply(&mut self, write: RowWrite) -> Result<(), StoreError> {
        match write {
            RowWrite::Put { key, item, .. } => self.put(&key, item),
            RowWrite::Delete { key, .. } => self.remove(&key),
            RowWrite::Update { key, change } => {
                let mut item = self.rows.get(&key).cloned().unwrap_or_default();
                apply_change(&key, &mut item, change)?;
                self.put(&key, item);
            }
        }
        Ok(())
    }
}

/// The index entries of a row: one for each index whose two key attributes it has.
fn entries_of(key: &Key, item: &Item) -> Vec<(Index, String, String)> {
    let entry = |index: Index| {
        let (_, partition, _) = index.shape();
        Some((index, text_of(item, partition)?.to_owned(), index.sort_of(key, item)?.to_owned()))
    };
    Index::ALL.into_iter().filter(|index| index.table() == key.table).filter_map(entry).collect()
}

fn apply_change(key: &Key, item: &mut Item, change: RowUpdate) -> Result<(), StoreError> {
    let corrupt = |attribute: &str| StoreError::Corrupt(key.clone(), format!("`{attribute}` has the wrong type"));
    for (attribute, value) in change.set {
        item.inner_mut().insert(attribute, value);
    }
    for (attribute, by) in change.add {
        let known = if item.contains_key(&attribute) {
            number_of(item, &attribute).ok_or_else(|| corrupt(&attribute))?
        } else {
            0
        };
        item.inner_mut().insert(attribute, number(known.saturating_add(by)));
    }
    for (attribute, members) in change.insert {
        let mut known = members_of(item, &attribute).ok_or_else(|| corrupt(&attribute))?;
        known.extend(members.into_iter().filter(|member| !known.contains(member)).collect::<Vec<_>>());
        item.inner_mut().insert(attribute, AttributeValue::Ss(known));
    }
    for (attribute, members) in change.remove_members {
        let mut known = members_of(item, &attribute).ok_or_else(|| corrupt(&attribute))?;
        known.retain(|member| !members.contains(member));
        // DynamoDB has no empty sets.
        if known.is_empty() {
            item.inner_mut().remove(&attribute);
        } else {
            item.inner_mut().insert(attribute, AttributeValue::Ss(known));
        }
    }
    for attribute in change.remove {
        item.inner_mut().remove(&attribute);
    }
    Ok(())
}

fn members_of(item: &Item, attribute: &str) -> Option<Vec<String>> {
    match item.get(attribute) {
        None => Some(Vec::new()),
        Some(AttributeValue::Ss(members)) => Some(members.clone()),
        Some(_) => None,
    }
}

impl Store for MemoryStore {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        self.usage.request(1, 0);
        Ok(self.tables().rows.get(key).filter(|item| !is_expired(item, now)).cloned())
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.usage.request(keys.len(), 0);
        let tables = self.tables();
        let row = |key: &Key| tables.rows.get(key).filter(|item| !is_expired(item, now)).cloned();
        Ok(keys.iter().filter_map(|key| Some((key.clone(), row(key)?))).collect())
    }

    async fn write(&self, writes: Vec<RowWrite>, now: Timestamp) -> Result<(), StoreError> {
        validate(&writes)?;
        self.usage.request(0, writes.len());
        let mut tables = self.tables();
        let failures: Vec<Option<ConditionFailed>> = writes
            .iter()
            .map(|write| {
                (!tables.allows(write, now)).then(|| ConditionFailed { found: tables.rows.get(write.key()).cloned() })
            })
            .collect();
        if failures.iter().any(Option::is_some) {
            return Err(StoreError::ConditionFailed(failures));
        }
        for write in writes {
            tables.apply(write)?;
        }
        Ok(())
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        self.usage.request(0, 1);
        let mut tables = self.tables();
        let known = tables.rows.get(key).filter(|item| !is_expired(item, now));
        let count = known.and_then(|item| number_of(item, COUNT)).unwrap_or(0).saturating_add(by);
        let ttl = known.and_then(|item| number_of(item, TTL)).unwrap_or(ttl.as_second());
        let mut item = Item::default();
        item.inner_mut().insert(COUNT.to_owned(), number(count));
        item.inner_mut().insert(TTL.to_owned(), number(ttl));
        tables.put(key, item);
        Ok(count)
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        let tables = self.tables();
        // No string sorts between a string and the same string followed by NUL.
        let next_partition = format!("{}\0", query.partition);
        let page = match query.from {
            QuerySource::Index(index) => {
                let first = |partition: &str| (index, partition.to_owned(), String::new(), Key::state(""));
                let range = tables.entries.range(first(&query.partition)..first(&next_partition));
                page_of(&tables, query, range.map(|(_, _, sort, key)| (sort.as_str(), key)), now)
            }
            QuerySource::Log => {
                let range = tables.rows.range(Key::event(query.partition.as_str(), "")..Key::event(next_partition, ""));
                page_of(&tables, query, range.map(|(key, _)| (key.sort.as_str(), key)), now)
            }
        };
        self.usage.request(page.rows.len(), 0);
        Ok(page)
    }

    fn usage(&self) -> &UsageMeter {
        &self.usage
    }
}

fn page_of<'a>(
    tables: &Tables,
    query: &Query,
    found: impl DoubleEndedIterator<Item = (&'a str, &'a Key)>,
    now: Timestamp,
) -> Page {
    let in_range = |sort: &str| query.up_to.as_ref().is_none_or(|last| sort <= last.as_str());
    if query.backwards {
        first_page(tables, query, found.rev().filter(|(sort, _)| in_range(sort)), now)
    } else {
        first_page(tables, query, found.take_while(|(sort, _)| in_range(sort)), now)
    }
}

/// The first page of matching rows, in iteration order.
fn first_page<'a>(
    tables: &Tables,
    query: &Query,
    found: impl Iterator<Item = (&'a str, &'a Key)>,
    now: Timestamp,
) -> Page {
    let has_prefix = |sort: &str| query.prefix.as_ref().is_none_or(|prefix| sort.starts_with(prefix));
    let follows = |sort: &str, key: &Key| {
        query.after.as_ref().is_none_or(|after| {
            let order = (sort, key).cmp(&(&after.sort, &after.key));
            if query.backwards { order.is_lt() } else { order.is_gt() }
        })
    };
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let mut matching = found.filter(|(sort, key)| has_prefix(sort) && follows(sort, key));
    let taken: Vec<(&str, &Key)> = matching.by_ref().take(limit).collect();
    let next = if matching.next().is_some() {
        taken.last().map(|(sort, key)| Cursor { key: (*key).clone(), sort: (*sort).to_owned() })
    } else {
        None
    };
    let row =
        |key: &Key| tables.rows.get(key).filter(|item| !is_expired(item, now)).map(|item| projection(query.from, item));
    let rows = taken.into_iter().filter_map(|(_, key)| row(key).map(|item| (key.clone(), item))).collect();
    Page { rows, next }
}

/// The attributes of a row that the queried index projects.
fn projection(from: QuerySource, item: &Item) -> Item {
    let QuerySource::Index(index) = from else { return item.clone() };
    let Some(attributes) = index.projected_attributes() else { return item.clone() };
    let (_, partition, sort) = index.shape();
    let mut projected = Item::default();
    for attribute in [partition, sort].into_iter().chain(attributes.iter().copied()) {
        if let Some(value) = item.get(attribute) {
            projected.inner_mut().insert(attribute.to_owned(), value.clone());
        }
    }
    projected
}
