//! A handful of verbs on two tables: read a row, write some rows all or none, query an index. Everything durable in Suture
//! is built on these, once, and so holds for every implementation: DynamoDB's, and the one in memory of `infra/testbed`.
//! Nothing here knows what a row means; that is in `rows`.

pub mod dynamo;
pub mod versioned;

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
    /// Everything that is current, by key prefix.
    State,
    Events,
}

/// Where a row is. Rows of the state table have no sort key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub table: Table,
    pub partition: String,
    /// Its sort key; empty in the state table.
    pub sort: String,
}

impl Key {
    /// A row of the state table.
    #[must_use]
    pub fn state(partition: impl Into<String>) -> Self {
        Self { table: Table::State, partition: partition.into(), sort: String::new() }
    }

    /// A row of the log.
    #[must_use]
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

/// When a write may happen.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum OnlyIf {
    #[default]
    Always,
    /// If there is such a row, and its `ttl` has not passed: changing what somebody may have taken away meanwhile.
    Present,
    /// If there is no such row, or only one whose `ttl` has passed.
    Absent,
    /// If there has never been such a row, or the broom has taken it: what makes an event apply once.
    NeverSeen,
    /// If the row is there with this `version`.
    Version(u64),
    /// If there is no such row, or its `ttl` has passed, or its `holder` is this one: taking or keeping a lease.
    FreeFor(String),
    /// If the row's `holder` is this one: giving a lease back that nobody else has taken meanwhile.
    HeldBy(String),
}

/// One row to write.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Puts the whole row.
    Put {
        key: Key,
        /// What, without its key.
        item: Item,
        only_if: OnlyIf,
    },
    /// Changes some of a row that nobody has loaded; makes it if it is not there and its condition allows that.
    Change { key: Key, change: Change },
    /// Takes a row away; one that is not there is no error.
    Delete { key: Key, only_if: OnlyIf },
}

impl Write {
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Change { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    /// When it may be written.
    #[must_use]
    pub fn only_if(&self) -> &OnlyIf {
        match self {
            Self::Put { only_if, .. } | Self::Delete { only_if, .. } => only_if,
            Self::Change { change, .. } => &change.only_if,
        }
    }
}

/// A change to a row that can be made without reading it, and is the same whoever makes it first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    pub set: BTreeMap<String, AttributeValue>,
    /// Numbers to add to.
    pub add: BTreeMap<String, i64>,
    /// Members to add to sets of strings.
    pub insert: BTreeMap<String, BTreeSet<String>>,
    /// Members to take out of sets of strings.
    pub take: BTreeMap<String, BTreeSet<String>>,
    pub remove: BTreeSet<String>,
    pub only_if: OnlyIf,
}

/// The four indexes: three of the state table, one of the log. Each is sparse: a row without its attributes is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Index {
    /// What wants attention, by when.
    Due,
    /// Pull requests of a repository, by state and number.
    ByRepo,
    /// Runs of a pull request, by when they began.
    Runs,
    /// What is worth telling of a day, over all pull requests, in the order of the log.
    ByDay,
}

impl Index {
    pub const ALL: [Self; 4] = [Self::Due, Self::ByRepo, Self::Runs, Self::ByDay];

    /// The table whose rows it lists.
    #[must_use]
    pub fn table(self) -> Table {
        match self {
            Self::Due | Self::ByRepo | Self::Runs => Table::State,
            Self::ByDay => Table::Events,
        }
    }

    /// Its name, and the attributes that are its partition and sort key.
    #[must_use]
    pub fn shape(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Due => ("due", "due", "due_at"),
            Self::ByRepo => ("by_repo", "repo", "state_number"),
            Self::Runs => ("runs", "run_of", "run_at"),
            // The log's own sort key: an event says when it happened once.
            Self::ByDay => ("by_day", "day", EVENTS_SORT),
        }
    }

    /// What an entry carries besides its keys; `None` is everything. As little as a list or a sweep needs to choose: an index
    /// is written again only when what it carries changes, and most facts change neither state nor date. An event never
    /// changes, and is small: whoever reads the story of a day reads it from the index alone.
    #[must_use]
    pub fn carries(self) -> Option<&'static [&'static str]> {
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

/// What a query reads: an index, or the log itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Index(Index),
    /// The log of one pull request.
    Log,
}

/// One page to read, in the order of the sort key.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    pub from: From,
    pub partition: String,
    /// Only sort keys that begin with this.
    pub prefix: Option<String>,
    /// Only sort keys up to and including this.
    pub up_to: Option<String>,
    pub backwards: bool,
    /// At most this many rows.
    pub limit: u32,
    /// Where the last page ended.
    pub after: Option<Cursor>,
}

/// Where a page ended: the last row's key, and its sort key in the index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub key: Key,
    /// Its sort key in what was queried.
    pub sort: String,
}

/// Some rows, and where to go on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// The rows; of an index, only what it carries.
    pub rows: Vec<(Key, Item)>,
    /// Set if there may be more.
    pub next: Option<Cursor>,
}

/// What went wrong, by what the caller can do about it.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum StoreError {
    /// A condition did not hold: somebody else was faster, or it was done before. Reload and decide again.
    #[error("{} of {} conditions did not hold", .0.iter().flatten().count(), .0.len())]
    Refused(Vec<Option<Refused>>),
    /// Two transactions met. Nothing is known about the rows: reload.
    #[error("another transaction is writing the same rows")]
    Contended,
    /// Too many requests: wait, then try again.
    #[error("the table is throttled")]
    Throttled,
    /// The table cannot be reached, or does not answer: try again later.
    #[error("the table cannot be reached: {0}")]
    Unavailable(String),
    /// This row cannot be read. Skip it, count it, and go on with the others.
    #[error("the row {0} cannot be read: {1}")]
    Corrupt(Key, String),
    /// More than the store takes at once. Nothing was written.
    #[error("{0}")]
    TooLarge(String),
}

/// A write whose condition did not hold, with the row that was there.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// The row, as it is.
    pub found: Option<Item>,
}

/// Most rows one `write` takes: DynamoDB's own limit.
pub const MOST_WRITES: usize = 100;

/// What is durable. Times are arguments: a row whose `ttl` has passed is not there, whether or not the broom has come.
pub trait Store: Send + Sync {
    /// Reads a row, strongly consistent.
    fn get(&self, key: &Key, now: Timestamp) -> impl Future<Output = Result<Option<Item>, StoreError>> + Send;

    /// Reads rows, strongly consistent, in any order; what is not there is left out.
    fn get_many(
        &self,
        keys: &[Key],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(Key, Item)>, StoreError>> + Send;

    /// Writes all of them or none.
    fn write(&self, writes: Vec<Write>, now: Timestamp) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Adds to a number and answers the new value; the row is made with this `ttl` if it is not there.
    fn count(
        &self,
        key: &Key,
        by: i64,
        ttl: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Result<i64, StoreError>> + Send;

    /// Reads a page. An index may be a moment behind.
    fn query(&self, query: &Query, now: Timestamp) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// What has been spent so far.
    fn spent(&self) -> &Spent;
}

/// Delegates to what is pointed to.
macro_rules! pointed_to {
    ($pointer:ty) => {
        impl<S: Store> Store for $pointer {
            async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
                (**self).get(key, now).await
            }

            async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
                (**self).get_many(keys, now).await
            }

            async fn write(&self, writes: Vec<Write>, now: Timestamp) -> Result<(), StoreError> {
                (**self).write(writes, now).await
            }

            async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
                (**self).count(key, by, ttl, now).await
            }

            async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
                (**self).query(query, now).await
            }

            fn spent(&self) -> &Spent {
                (**self).spent()
            }
        }
    };
}

// A borrowed store is one, and so is a shared one.
pointed_to!(&S);
pointed_to!(Arc<S>);

/// Requests, items and units, so that tests and benchmarks can say what an operation costs.
#[derive(Debug, Default)]
pub struct Spent {
    requests: AtomicU64,
    items_read: AtomicU64,
    items_written: AtomicU64,
    half_units: AtomicU64,
    corrupt: AtomicU64,
}

/// The figures of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spending {
    pub requests: u64,
    /// Rows and index entries read.
    pub items_read: u64,
    pub items_written: u64,
    /// Capacity units, as DynamoDB says them; the store in memory has none.
    pub units: f64,
    /// Rows that could not be understood, and were left out.
    pub corrupt: u64,
}

impl Spent {
    /// One more request that read or wrote so many rows.
    pub fn request(&self, items_read: usize, items_written: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.items_read.fetch_add(items_read as u64, Ordering::Relaxed);
        self.items_written.fetch_add(items_written as u64, Ordering::Relaxed);
    }

    /// So many more rows were read by a request that is counted already.
    pub fn read(&self, items: usize) {
        self.items_read.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// What a request consumed. Capacity comes in halves.
    pub fn consumed(&self, units: f64) {
        self.half_units.fetch_add((units * 2.0).round() as u64, Ordering::Relaxed);
    }

    /// A row could not be understood, and was left out.
    pub fn corrupt(&self) {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
    }

    /// The figures so far.
    #[must_use]
    pub fn so_far(&self) -> Spending {
        Spending {
            requests: self.requests.load(Ordering::Relaxed),
            items_read: self.items_read.load(Ordering::Relaxed),
            items_written: self.items_written.load(Ordering::Relaxed),
            units: self.half_units.load(Ordering::Relaxed) as f64 / 2.0,
            corrupt: self.corrupt.load(Ordering::Relaxed),
        }
    }
}

/// The attribute DynamoDB's broom looks at, in seconds since 1970.
pub const TTL: &str = "ttl";
/// The attribute that is the log's sort key.
const EVENTS_SORT: &str = "sk";
/// The attribute `OnlyIf::Version` looks at.
pub const VERSION: &str = "version";
/// The attribute `OnlyIf::FreeFor` and `OnlyIf::HeldBy` look at.
pub const HOLDER: &str = "holder";
/// The attribute `Store::count` counts in.
pub const COUNT: &str = "count";

/// A number as a row stores it.
#[must_use]
pub fn number(value: impl fmt::Display) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A number of a row.
#[must_use]
pub fn number_of(item: &Item, attribute: &str) -> Option<i64> {
    match item.get(attribute) {
        Some(AttributeValue::N(digits)) => digits.parse().ok(),
        Some(_) | None => None,
    }
}

/// A text of a row.
#[must_use]
pub fn text_of<'a>(item: &'a Item, attribute: &str) -> Option<&'a str> {
    match item.get(attribute) {
        Some(AttributeValue::S(text)) => Some(text),
        Some(_) | None => None,
    }
}

/// What DynamoDB would refuse too: nothing at all, too much at once, or one row twice.
///
/// # Errors
/// [`StoreError::TooLarge`].
pub fn refuse_nonsense(writes: &[Write]) -> Result<(), StoreError> {
    if writes.is_empty() || writes.len() > MOST_WRITES {
        return Err(StoreError::TooLarge(format!(
            "{} rows cannot be written at once: 1 to {MOST_WRITES} can",
            writes.len()
        )));
    }
    let mut keys: Vec<&Key> = writes.iter().map(Write::key).collect();
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(StoreError::TooLarge(format!("{} is written twice in one transaction", pair[0]))),
        None => Ok(()),
    }
}

/// Whether a row's time has passed.
#[must_use]
pub fn is_expired(item: &Item, now: Timestamp) -> bool {
    number_of(item, TTL).is_some_and(|ttl| ttl <= now.as_second())
}
