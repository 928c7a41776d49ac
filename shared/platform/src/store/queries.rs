//! Queries: due items, pull requests of a repository, runs, events. An item that cannot be decoded is logged, counted and skipped; it
//! never fails the whole query.

use std::collections::BTreeSet;

use domain::event::Event;
use domain::id::{EventId, PrId, RepoName, RunId, Sha};
use domain::pull_request::{PullRequest, Vulnerability};
use domain::reconcile_request::ReconcileRequest;
use domain::run::Run;
use domain::state::State;
use futures_util::future::try_join_all;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::de::DeserializeOwned;
use serde_dynamo::Item;
use tracing::error;

use crate::store::schema::{self, DueEntry, RepoIndexEntry};
use crate::store::{Cursor, Index, Key, Page, Query, QuerySource, Store, StoreError};

/// One page of results.
#[derive(Debug, Clone, PartialEq)]
pub struct ListPage<T> {
    pub entries: Vec<T>,
    /// Set if there may be more.
    pub next: Option<Cursor>,
}

/// Due items, longest due first.
#[derive(Debug, Clone, PartialEq)]
pub struct DueItems {
    /// Of pull requests that are not urgent at most the requested number per partition.
    pub entries: Vec<DueEntry>,
    pub more: bool,
}

/// A query for a whole partition.
fn all_of(from: QuerySource, partition: String, limit: u32) -> Query {
    Query { from, partition, prefix: None, up_to: None, backwards: false, limit, after: None }
}

/// Skips an item that cannot be decoded, and logs it.
fn decoded<S: Store, T>(store: &S, read: Result<T, StoreError>) -> Option<T> {
    read.inspect_err(|error| {
        store.usage().corrupt();
        error!(%error, "skipping undecodable item");
    })
    .ok()
}

fn entries<S: Store, T>(store: &S, page: Page, read: impl Fn(&Key, Item) -> Result<T, StoreError>) -> ListPage<T> {
    let entries = page.rows.into_iter().filter_map(|(key, item)| decoded(store, read(&key, item))).collect();
    ListPage { entries, next: page.next }
}

/// Reads one item.
pub async fn read<S: Store, T: DeserializeOwned>(
    store: &S,
    key: &Key,
    now: Timestamp,
) -> Result<Option<T>, StoreError> {
    store.get(key, now).await?.map(|item| schema::read_owned(key, item)).transpose()
}

/// The log entry of a fact that was applied before; `None` if it was not.
pub async fn first_event<S: Store>(
    store: &S,
    pr: &PrId,
    id: &EventId,
    occurred_at: Timestamp,
    now: Timestamp,
) -> Result<Option<Event>, StoreError> {
    let key = Key::event(pr.to_string(), Event::sort_key_of(occurred_at, id, 0));
    read(store, &key, now).await
}

/// Reads several partitions concurrently, up to the limit of each query. The flag is true if that was everything.
async fn read_parts<S: Store, T: Send>(
    store: &S,
    parts: impl IntoIterator<Item = Query>,
    read: fn(&Key, Item) -> Result<T, StoreError>,
    now: Timestamp,
) -> Result<(Vec<T>, bool), StoreError> {
    let parts = try_join_all(parts.into_iter().map(|query| read_part(store, query, read, now))).await?;
    let whole = parts.iter().all(|(_, whole)| *whole);
    Ok((parts.into_iter().flat_map(|(entries, _)| entries).collect(), whole))
}

async fn read_part<S: Store, T: Send>(
    store: &S,
    mut query: Query,
    read: fn(&Key, Item) -> Result<T, StoreError>,
    now: Timestamp,
) -> Result<(Vec<T>, bool), StoreError> {
    let most = query.limit;
    let mut found = Vec::new();
    loop {
        let ListPage { entries, next } = entries(store, store.query(&query, now).await?, read);
        found.extend(entries);
        query.limit = most.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        if next.is_none() || query.limit == 0 {
            return Ok((found, next.is_none()));
        }
        query.after = next;
    }
}

/// Items due by `until`: all effects, runs, requests and urgent pull requests, and of the other pull requests at most `most` per
/// partition. The cost depends on the number of due items, not on the number of open pull requests.
pub async fn due<S: Store>(store: &S, most: u32, until: Timestamp, now: Timestamp) -> Result<DueItems, StoreError> {
    let part = |(partition, limit)| Query {
        up_to: Some(schema::sort_time(until)),
        ..all_of(QuerySource::Index(Index::Due), partition, limit)
    };
    let urgent = (schema::DUE_URGENT.to_owned(), u32::MAX);
    let parts = schema::due_shards().map(|shard| (shard, most)).into_iter().chain([urgent]).map(part);
    let entry = |key: &Key, item: Item| schema::due_entry(key, &item);
    let (mut entries, whole) = read_parts(store, parts, entry, now).await?;
    entries.sort_by(|one, other| (one.due_at, &one.subject).cmp(&(other.due_at, &other.subject)));
    Ok(DueItems { entries, more: !whole })
}

/// Pull requests of a repository, by state and number.
pub async fn pull_requests<S: Store>(
    store: &S,
    repo: &RepoName,
    state: Option<State>,
    after: Option<Cursor>,
    limit: u32,
    now: Timestamp,
) -> Result<ListPage<RepoIndexEntry>, StoreError> {
    let mut query = all_of(QuerySource::Index(Index::ByRepo), repo.as_str().to_owned(), limit);
    query.prefix = state.map(|state| format!("{state}#"));
    query.after = after;
    Ok(entries(store, store.query(&query, now).await?, |key, item| schema::repo_index_entry(key, &item)))
}

/// Page size for reading all pull requests of a repository.
const LARGE_PAGE: u32 = 1_000;

/// All pull requests of a repository, up to about `most`.
pub async fn all_pull_requests<S: Store>(
    store: &S,
    repo: &RepoName,
    most: usize,
    now: Timestamp,
) -> Result<Vec<RepoIndexEntry>, StoreError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = pull_requests(store, repo, None, after, LARGE_PAGE, now).await?;
        found.extend(page.entries);
        after = page.next;
        if after.is_none() || found.len() >= most {
            return Ok(found);
        }
    }
}

/// Page size for reading the pull requests of a base branch.
const PAGE: u32 = 100;

/// One page of the open pull requests on a base branch, by the index alone. Includes rows written before the index had the base.
async fn base_page<S: Store>(
    store: &S,
    repo: &RepoName,
    branch: &str,
    after: Option<Cursor>,
    now: Timestamp,
) -> Result<ListPage<PrId>, StoreError> {
    let page = pull_requests(store, repo, None, after, PAGE, now).await?;
    let on_it = |base: &Option<String>| base.as_ref().is_none_or(|base| base == branch);
    let open = page.entries.into_iter().filter(|listed| !listed.state.is_terminal() && on_it(&listed.base));
    Ok(ListPage { entries: open.map(|listed| listed.pr).collect(), next: page.next })
}

/// Whether a managed pull request is open on a base branch.
pub async fn has_open_on_base<S: Store>(
    store: &S,
    repo: &RepoName,
    branch: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let mut after = None;
    loop {
        let page = base_page(store, repo, branch, after, now).await?;
        if !page.entries.is_empty() {
            return Ok(true);
        }
        after = page.next;
        if after.is_none() {
            return Ok(false);
        }
    }
}

/// The open pull requests on a base branch. Only the records that the index selects are read.
pub async fn open_on_base<S: Store>(
    store: &S,
    repo: &RepoName,
    branch: &str,
    now: Timestamp,
) -> Result<Vec<PullRequest>, StoreError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = base_page(store, repo, branch, after, now).await?;
        let read = if page.entries.is_empty() { Vec::new() } else { records(store, &page.entries, now).await? };
        found.extend(read.into_iter().filter(|record| record.base_branch == branch && !record.state.is_terminal()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    found.sort_by_key(|record| record.id.number);
    Ok(found)
}

/// Pull requests of a repository in one state, highest numbers first, at most `most`.
pub async fn newest_in_state<S: Store>(
    store: &S,
    repo: &RepoName,
    state: State,
    most: u32,
    now: Timestamp,
) -> Result<Vec<RepoIndexEntry>, StoreError> {
    let mut query = all_of(QuerySource::Index(Index::ByRepo), repo.as_str().to_owned(), most);
    query.prefix = Some(format!("{state}#"));
    query.backwards = true;
    Ok(entries(store, store.query(&query, now).await?, |key, item| schema::repo_index_entry(key, &item)).entries)
}

/// Runs of a pull request, or sweeps; newest first.
pub async fn runs_of<S: Store>(
    store: &S,
    pr: Option<&PrId>,
    after: Option<Cursor>,
    limit: u32,
    now: Timestamp,
) -> Result<ListPage<Run>, StoreError> {
    let mut query = all_of(QuerySource::Index(Index::Runs), schema::runs_of(pr), limit);
    query.backwards = true;
    query.after = after;
    let ListPage { entries: ids, next } =
        entries(store, store.query(&query, now).await?, |key, _| schema::runs_index_entry(key));
    let keys: Vec<Key> = ids.iter().map(schema::run_key).collect();
    let mut runs: Vec<Run> = read_many(store, &keys, now).await?;
    runs.sort_by_key(|run| ids.iter().position(|id| *id == run.id));
    Ok(ListPage { entries: runs, next })
}

pub async fn events<S: Store>(
    store: &S,
    pr: &PrId,
    backwards: bool,
    after: Option<Cursor>,
    limit: u32,
    now: Timestamp,
) -> Result<ListPage<Event>, StoreError> {
    let query = Query { backwards, after, ..all_of(QuerySource::Log, pr.to_string(), limit) };
    Ok(entries(store, store.query(&query, now).await?, schema::read_owned))
}

/// The repositories that have, or had, managed pull requests.
pub async fn repos<S: Store>(store: &S, now: Timestamp) -> Result<BTreeSet<RepoName>, StoreError> {
    let rows = store.get_many(&schema::repos_keys(), now).await?;
    Ok(rows.iter().flat_map(|(_, row)| schema::repos_of(row)).collect())
}

/// A query for the events of a day.
#[derive(Debug, Clone, Copy)]
pub struct DayQuery {
    /// In UTC.
    pub day: Date,
    pub backwards: bool,
    /// Most events per partition.
    pub most: u32,
}

/// The notable events of a day, over all pull requests, in order. The flag is true if that was everything.
pub async fn events_of_day<S: Store>(
    store: &S,
    reading: DayQuery,
    now: Timestamp,
) -> Result<(Vec<Event>, bool), StoreError> {
    let DayQuery { day, backwards, most } = reading;
    let part = |partition| Query { backwards, ..all_of(QuerySource::Index(Index::ByDay), partition, most) };
    let (mut events, whole) =
        read_parts(store, schema::day_partitions(day).map(part), schema::read_owned::<Event>, now).await?;
    events.sort_by_cached_key(|event: &Event| (event.sort_key(), event.pr.clone()));
    if backwards {
        events.reverse();
    }
    Ok((events, whole))
}

/// Records, in any order; missing and undecodable ones are skipped.
pub async fn records<S: Store>(store: &S, prs: &[PrId], now: Timestamp) -> Result<Vec<PullRequest>, StoreError> {
    let keys: Vec<Key> = prs.iter().map(schema::record_key).collect();
    read_many(store, &keys, now).await
}

/// Runs, in any order; missing and undecodable ones are skipped.
pub async fn runs<S: Store>(store: &S, ids: &[RunId], now: Timestamp) -> Result<Vec<Run>, StoreError> {
    let keys: Vec<Key> = ids.iter().map(schema::run_key).collect();
    read_many(store, &keys, now).await
}

/// Reconcile requests, in any order; missing and undecodable ones are skipped.
pub async fn requests<S: Store>(
    store: &S,
    keys: &[String],
    now: Timestamp,
) -> Result<Vec<ReconcileRequest>, StoreError> {
    let keys: Vec<Key> = keys.iter().map(|key| schema::request_key(key)).collect();
    read_many(store, &keys, now).await
}

async fn read_many<S: Store, T: DeserializeOwned>(
    store: &S,
    keys: &[Key],
    now: Timestamp,
) -> Result<Vec<T>, StoreError> {
    let found = store.get_many(keys, now).await?;
    Ok(found.into_iter().filter_map(|(key, item)| decoded(store, schema::read_owned(&key, item))).collect())
}

/// The pull requests whose head is or was this commit, for webhooks that name only a commit.
pub async fn by_head<S: Store>(
    store: &S,
    repo: &RepoName,
    sha: &Sha,
    now: Timestamp,
) -> Result<BTreeSet<u64>, StoreError> {
    let row = store.get(&schema::head_key(repo, sha), now).await?;
    Ok(row.as_ref().map(schema::prs_of_head).unwrap_or_default())
}

/// The vulnerability's row on a base branch; the default if there is none.
pub async fn vulnerability<S: Store>(
    store: &S,
    repo: &RepoName,
    base: &str,
    id: &str,
    now: Timestamp,
) -> Result<Vulnerability, StoreError> {
    let row = store.get(&schema::vulnerability_key(repo, base, id), now).await?;
    Ok(row.as_ref().map(schema::vulnerability_of).unwrap_or_default())
}

/// The row of a pull request's vulnerability, if it names one.
pub async fn vulnerability_of<S: Store>(
    store: &S,
    record: &PullRequest,
    now: Timestamp,
) -> Result<Option<Vulnerability>, StoreError> {
    let Some(id) = &record.vulnerability_id else { return Ok(None) };
    vulnerability(store, &record.id.repo, &record.base_branch, id, now).await.map(Some)
}
