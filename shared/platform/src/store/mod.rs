//! The store interface on two tables: read a row, write rows in a transaction, count, query an index. All persistence is built on it, so
//! that it works the same on DynamoDB and on the in-memory store of `infra/testbed`. The item layout is in `schema`.

pub mod breaker;
pub mod counter;
pub mod dynamo;
pub mod gates;
pub mod github_contact;
pub mod last_webhook;
pub mod lease;
pub mod managed_issue;
pub mod not_before;
pub mod pause;
pub mod queries;
pub mod schema;
pub mod slot;
pub mod versioned;
pub mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde_dynamo::{AttributeValue, Item};
use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Current data, by key prefix.
    State,
    Events,
}

/// A row's key. Rows of the state table have no sort key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub table: Table,
    pub partition: String,
    /// Empty in the state table.
    pub sort: String,
}

impl Key {
    pub fn state(partition: impl Into<String>) -> Self {
        Self { table: Table::State, partition: partition.into(), sort: String::new() }
    }

    pub fn event(pr: impl Into<String>, sort: impl Into<String>) -> Self {
        Self { table: Table::Events, partition: pr.into(), sort: sort.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.table {
            Table::State => f.write_str(&self.partition),
            Table::Events => write!(f, "{} {}", self.partition, self.sort),
        }
    }
}

/// The condition of a write.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Condition {
    #[default]
    Always,
    /// The row exists and has not expired.
    Present,
    /// The row does not exist or has expired.
    Absent,
    /// No row exists, not even an expired one; makes an event apply only once.
    NeverSeen,
    /// The row has this `version`.
    Version(u64),
    /// The row does not exist, has expired, or has this `holder`; acquires or extends a lease.
    FreeFor(String),
    /// The row has this `holder`; releases a lease.
    HeldBy(String),
}

/// One row to write.
#[derive(Debug, Clone, PartialEq)]
pub enum RowWrite {
    Put {
        key: Key,
        item: Item,
        only_if: Condition,
    },
    /// Changes attributes without loading the row; creates it if it does not exist and the condition allows that.
    Update {
        key: Key,
        change: RowUpdate,
    },
    /// Deletes a row; a missing row is no error.
    Delete {
        key: Key,
        only_if: Condition,
    },
}

impl RowWrite {
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Update { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    pub fn only_if(&self) -> &Condition {
        match self {
            Self::Put { only_if, .. } | Self::Delete { only_if, .. } => only_if,
            Self::Update { change, .. } => &change.only_if,
        }
    }
}

/// A change of a row without reading it; the result does not depend on the order of concurrent writers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RowUpdate {
    pub set: BTreeMap<String, AttributeValue>,
    pub add: BTreeMap<String, i64>,
    /// Members to add to sets of strings.
    pub insert: BTreeMap<String, BTreeSet<String>>,
    /// Members to remove from sets of strings.
    pub remove_members: BTreeMap<String, BTreeSet<String>>,
    pub remove: BTreeSet<String>,
    pub only_if: Condition,
}

/// The four indexes: three on the state table, one on the events table. All are sparse: a row without the key attributes is not in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Index {
    Due,
    /// Pull requests of a repository, by state and number.
    ByRepo,
    /// Runs of a pull request, by creation time.
    Runs,
    /// Notable events of a day, over all pull requests, in order.
    ByDay,
}

impl Index {
    pub const ALL: [Self; 4] = [Self::Due, Self::ByRepo, Self::Runs, Self::ByDay];

    pub fn table(self) -> Table {
        match self {
            Self::Due | Self::ByRepo | Self::Runs => Table::State,
            Self::ByDay => Table::Events,
        }
    }

    /// Its name, and the attributes that are its partition and sort key.
    pub fn shape(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Due => ("due", "due", "due_at"),
            Self::ByRepo => ("by_repo", "repo", "state_number"),
            Self::Runs => ("runs", "run_of", "run_at"),
            // The events table's own sort key, which starts with the time.
            Self::ByDay => ("by_day", "day", EVENTS_SORT),
        }
    }

    /// Projected attributes besides the keys; `None` means all. As few as lists and sweeps need, because DynamoDB rewrites an index entry
    /// only when a projected attribute changes, and most facts change neither state nor due date. Events are projected whole: they are
    /// small and never change, and a day is read from the index alone.
    pub fn projected_attributes(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Due => Some(&[TTL, "priority"]),
            Self::ByRepo => Some(&[TTL, "priority", "since", "base"]),
            Self::Runs => Some(&[TTL]),
            Self::ByDay => None,
        }
    }

    /// A row's sort key in this index.
    #[must_use]
    pub fn sort_of<'a>(self, key: &'a Key, item: &'a Item) -> Option<&'a str> {
        match self {
            Self::ByDay => Some(&key.sort),
            Self::Due | Self::ByRepo | Self::Runs => text_of(item, self.shape().2),
        }
    }
}

/// The source of a query: an index, or the events table itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuerySource {
    Index(Index),
    Log,
}

/// One page to read, in the order of the sort key.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    pub from: QuerySource,
    pub partition: String,
    /// Only sort keys with this prefix.
    pub prefix: Option<String>,
    /// Only sort keys up to and including this.
    pub up_to: Option<String>,
    pub backwards: bool,
    pub limit: u32,
    pub after: Option<Cursor>,
}

/// Where a page ended: the last row's key, and its sort key in the index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub key: Key,
    /// The row's sort key in the queried source.
    pub sort: String,
}

/// One page of rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// From an index, only with its projected attributes.
    pub rows: Vec<(Key, Item)>,
    /// Set if there may be more.
    pub next: Option<Cursor>,
}

/// Errors by what the caller can do about them.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum StoreError {
    /// A condition failed: a concurrent write, or a duplicate. Reload and decide again.
    #[error("{} of {} conditions did not hold", .0.iter().flatten().count(), .0.len())]
    ConditionFailed(Vec<Option<ConditionFailed>>),
    /// Conflict with another transaction. The current rows are unknown: reload.
    #[error("another transaction is writing the same rows")]
    TransactionConflict,
    /// Retry after a pause.
    #[error("the table is throttled")]
    Throttled,
    /// Retry later.
    #[error("the table cannot be reached: {0}")]
    Unavailable(String),
    /// The row cannot be decoded. Skip it, count it, and continue with the others.
    #[error("the row {0} cannot be read: {1}")]
    Corrupt(Key, String),
    /// Above a limit of the store. Nothing was written.
    #[error("{0}")]
    TooLarge(String),
}

impl StoreError {
    /// Whether another writer was faster: ordinary contention, which a retry resolves.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::ConditionFailed(_) | Self::TransactionConflict => true,
            Self::Throttled | Self::Unavailable(_) | Self::Corrupt(..) | Self::TooLarge(_) => false,
        }
    }
}

/// A write whose condition failed, with the existing row.
#[derive(Debug, Clone, PartialEq)]
pub struct ConditionFailed {
    pub found: Option<Item>,
}

/// Most rows per `write`: DynamoDB's limit for a transaction.
pub const MAX_WRITES: usize = 100;

/// The store. Callers pass the time; an expired row counts as missing, even if DynamoDB has not deleted it yet.
pub trait Store: Send + Sync {
    /// Reads a row, strongly consistent.
    fn get(&self, key: &Key, now: Timestamp) -> impl Future<Output = Result<Option<Item>, StoreError>> + Send;

    /// Reads rows, strongly consistent, in any order; missing rows are left out.
    fn get_many(
        &self,
        keys: &[Key],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(Key, Item)>, StoreError>> + Send;

    fn write(&self, writes: Vec<RowWrite>, now: Timestamp) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Adds to a counter and returns the new value; creates the row with this `ttl` if it does not exist.
    fn count(
        &self,
        key: &Key,
        by: i64,
        ttl: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Result<i64, StoreError>> + Send;

    /// Reads a page. Indexes are eventually consistent.
    fn query(&self, query: &Query, now: Timestamp) -> impl Future<Output = Result<Page, StoreError>> + Send;

    fn usage(&self) -> &UsageMeter;
}

/// Implements `Store` for a pointer to a store.
macro_rules! delegate_to {
    ($pointer:ty) => {
        impl<S: Store> Store for $pointer {
            async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
                (**self).get(key, now).await
            }

            async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
                (**self).get_many(keys, now).await
            }

            async fn write(&self, writes: Vec<RowWrite>, now: Timestamp) -> Result<(), StoreError> {
                (**self).write(writes, now).await
            }

            async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
                (**self).count(key, by, ttl, now).await
            }

            async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
                (**self).query(query, now).await
            }

            fn usage(&self) -> &UsageMeter {
                (**self).usage()
            }
        }
    };
}

delegate_to!(&S);
delegate_to!(Arc<S>);

/// Counts requests, items and capacity units, for sweep summaries, tests and benchmarks.
#[derive(Debug, Default)]
pub struct UsageMeter {
    requests: AtomicU64,
    items_read: AtomicU64,
    items_written: AtomicU64,
    half_units: AtomicU64,
    corrupt: AtomicU64,
}

/// A reading of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    pub requests: u64,
    pub items_read: u64,
    pub items_written: u64,
    /// Capacity units reported by DynamoDB; 0 in the in-memory store.
    pub units: f64,
    /// Undecodable rows that were skipped.
    pub corrupt: u64,
}

impl UsageMeter {
    /// Counts a request with the rows it read and wrote.
    pub fn request(&self, items_read: usize, items_written: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.items_read.fetch_add(items_read as u64, Ordering::Relaxed);
        self.items_written.fetch_add(items_written as u64, Ordering::Relaxed);
    }

    /// Counts rows read by a request that is already counted.
    pub fn read(&self, items: usize) {
        self.items_read.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Counts consumed capacity, which comes in half units.
    pub fn consumed(&self, units: f64) {
        self.half_units.fetch_add((units * 2.0).round() as u64, Ordering::Relaxed);
    }

    /// Counts an undecodable row.
    pub fn corrupt(&self) {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
    }

    pub fn usage(&self) -> Usage {
        Usage {
            requests: self.requests.load(Ordering::Relaxed),
            items_read: self.items_read.load(Ordering::Relaxed),
            items_written: self.items_written.load(Ordering::Relaxed),
            units: self.half_units.load(Ordering::Relaxed) as f64 / 2.0,
            corrupt: self.corrupt.load(Ordering::Relaxed),
        }
    }
}

/// The expiry attribute of DynamoDB's TTL, in Unix seconds.
pub const TTL: &str = "ttl";
/// The sort key attribute of the events table.
const EVENTS_SORT: &str = "sk";
/// The attribute that `Condition::Version` compares.
pub const VERSION: &str = "version";
/// The attribute that `Condition::FreeFor` and `Condition::HeldBy` compare.
pub const HOLDER: &str = "holder";
/// The attribute that `Store::count` increments.
pub const COUNT: &str = "count";

/// A number attribute.
pub fn number(value: impl fmt::Display) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub fn number_of(item: &Item, attribute: &str) -> Option<i64> {
    match item.get(attribute) {
        Some(AttributeValue::N(digits)) => digits.parse().ok(),
        Some(_) | None => None,
    }
}

pub fn text_of<'a>(item: &'a Item, attribute: &str) -> Option<&'a str> {
    match item.get(attribute) {
        Some(AttributeValue::S(text)) => Some(text),
        Some(_) | None => None,
    }
}

/// The members of a set of strings.
pub fn set_of<'a>(item: &'a Item, attribute: &str) -> impl Iterator<Item = &'a str> {
    let members = match item.get(attribute) {
        Some(AttributeValue::Ss(members)) => members.as_slice(),
        Some(_) | None => &[],
    };
    members.iter().map(String::as_str)
}

/// Rejects what DynamoDB would reject: an empty transaction, too many rows, or one row twice.
pub fn validate(writes: &[RowWrite]) -> Result<(), StoreError> {
    if writes.is_empty() || writes.len() > MAX_WRITES {
        return Err(StoreError::TooLarge(format!(
            "cannot write {} rows in one transaction: the limit is 1 to {MAX_WRITES}",
            writes.len()
        )));
    }
    let mut keys: Vec<&Key> = writes.iter().map(RowWrite::key).collect();
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(StoreError::TooLarge(format!("{} is written twice in one transaction", pair[0]))),
        None => Ok(()),
    }
}

pub fn is_expired(item: &Item, now: Timestamp) -> bool {
    number_of(item, TTL).is_some_and(|ttl| ttl <= now.as_second())
}
