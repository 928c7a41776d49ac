//! The item layout of both tables: keys by prefix, records and their index attributes, events, outbox, head commits, vulnerabilities,
//! runs, requests. Encoding and decoding only; `engine` decides when an item is written. docs/data-model.md lists all of them.

use std::collections::{BTreeMap, BTreeSet};

use domain::backoff::jitter_seed;
use domain::decide::{Decision, Effect, HeadChange, VulnerabilityChange, VulnerabilityUpdate};
use domain::event::Event;
use domain::id::{EffectId, PrId, RepoName, RunId, Sha};
use domain::policy::Policy;
use domain::priority::Priority;
use domain::pull_request::{PullRequest, Vulnerability};
use domain::reconcile_request::ReconcileRequest;
use domain::run::Run;
use domain::state::State;
use domain::time::saturating_after;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_dynamo::{AttributeValue, Item};

use crate::store::waiting::waiting_key;
use crate::store::{
    Condition, Index, Key, RowUpdate, RowWrite, StoreError, TTL, VERSION, number, number_of, set_of, text_of,
};

/// The partition of the `due` index that a sweep always reads whole: effects, runs, requests, waiting messages and pull requests of
/// priority P0. However many other pull requests are overdue, none of these waits behind them.
pub const DUE_URGENT: &str = "due-urgent";
/// Partitions of the `due` index for all other pull requests.
const DUE_SHARDS: u64 = 3;
/// Effects still in the outbox after this time are due for the sweep.
const PUBLISH_GRACE: SignedDuration = SignedDuration::from_mins(1);
/// Retention of a former head's row, so that webhooks about it are answered `superseded`. As long as the default retention of the event
/// log: two pull requests may share a head, and the one that stays open needs the row.
const FORMER_HEAD_RETENTION: SignedDuration = SignedDuration::from_hours(24 * 90);

/// Rows of the registry: one row of thousands of repositories would make every registration an expensive write.
const REPO_SHARDS: u64 = 16;
/// The attribute of a registry row that holds the repositories.
const REPOS: &str = "repos";
/// The attribute that holds the serialised value.
const BODY: &str = "body";
/// On hop 0: the number of the event's effects, so that a redelivery can publish the remaining ones.
const EFFECTS: &str = "effects";

pub fn record_key(pr: &PrId) -> Key {
    Key::state(format!("PR#{pr}"))
}

pub fn effect_key(id: &EffectId) -> Key {
    Key::state(format!("OUT#{id}"))
}

/// The row of a head commit, with its pull requests.
pub fn head_key(repo: &RepoName, sha: &Sha) -> Key {
    Key::state(format!("SHA#{repo}#{sha}"))
}

pub fn vulnerability_key(repo: &RepoName, base: &str, id: &str) -> Key {
    Key::state(format!("VULN#{repo}#{base}#{id}"))
}

pub fn run_key(id: &RunId) -> Key {
    Key::state(format!("RUN#{id}"))
}

/// The row of a reconcile request, by its coalescing key.
pub fn request_key(key: &str) -> Key {
    Key::state(format!("REQ#{key}"))
}

pub fn event_key(event: &Event) -> Key {
    Key::event(event.pr.to_string(), event.sort_key())
}

/// A sortable timestamp: RFC 3339 with exactly three decimals.
pub fn sort_time(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// All partitions of the `due` index.
pub fn due_partitions() -> impl Iterator<Item = String> {
    due_shards().into_iter().chain([DUE_URGENT.to_owned()])
}

/// The partitions of the `due` index that hold pull requests only.
pub fn due_shards() -> [String; DUE_SHARDS as usize] {
    [0, 1, 2].map(due_shard)
}

/// Partitions per day in the `by_day` index, to avoid a hot partition.
const DAY_SHARDS: u64 = 4;

/// The UTC date of a time.
pub fn day_of(at: Timestamp) -> Date {
    TimeZone::UTC.to_datetime(at).date()
}

/// The partitions of a day in the `by_day` index.
pub fn day_partitions(day: Date) -> [String; 4] {
    [0, 1, 2, 3].map(|shard| format!("{day}-{shard}"))
}

fn day_partition(day: Date, pr: &PrId) -> String {
    format!("{day}-{}", jitter_seed(&pr.to_string(), 0) % DAY_SHARDS)
}

fn repos_key(shard: u64) -> Key {
    Key::state(format!("REPOS#{shard}"))
}

/// All registry rows. The first version wrote one row of all repositories.
pub fn repos_keys() -> Vec<Key> {
    (0..REPO_SHARDS).map(repos_key).chain([Key::state("REPOS")]).collect()
}

/// Adds a repository to the registry.
pub fn add_repo(repo: &RepoName) -> RowWrite {
    let insert = BTreeMap::from([(REPOS.to_owned(), BTreeSet::from([repo.as_str().to_owned()]))]);
    let key = repos_key(jitter_seed(repo.as_str(), 0) % REPO_SHARDS);
    RowWrite::Update { key, change: RowUpdate { insert, ..RowUpdate::default() } }
}

/// The repositories in a registry row.
pub fn repos_of(item: &Item) -> BTreeSet<RepoName> {
    set_of(item, REPOS).filter_map(|member| member.parse().ok()).collect()
}

fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// An item whose body is `value`.
pub fn row<T: Serialize>(key: &Key, value: &T) -> Result<Item, StoreError> {
    let body =
        serde_dynamo::to_attribute_value(value).map_err(|error| StoreError::Corrupt(key.clone(), error.to_string()))?;
    let mut item = Item::default();
    item.inner_mut().insert(BODY.to_owned(), body);
    Ok(item)
}

pub fn read<T: DeserializeOwned>(key: &Key, item: &Item) -> Result<T, StoreError> {
    let mut copy = Item::default();
    copy.inner_mut().extend(item.get(BODY).map(|body| (BODY.to_owned(), body.clone())));
    read_owned(key, copy)
}

/// Like [`read`], but consumes the item instead of copying the body.
pub fn read_owned<T: DeserializeOwned>(key: &Key, mut item: Item) -> Result<T, StoreError> {
    let corrupt = |why: String| StoreError::Corrupt(key.clone(), why);
    let body = item.inner_mut().remove(BODY).ok_or_else(|| corrupt(format!("it has no `{BODY}`")))?;
    serde_dynamo::from_attribute_value(body).map_err(|error| corrupt(error.to_string()))
}

pub(super) fn set_due(item: &mut Item, partition: &str, due_at: Option<Timestamp>) {
    let Some(due_at) = due_at else { return };
    let (_, partition_name, sort) = Index::Due.shape();
    item.inner_mut().insert(partition_name.to_owned(), text(partition));
    item.inner_mut().insert(sort.to_owned(), text(sort_time(due_at)));
}

/// The partition of a record in the `due` index.
fn due_partition(record: &PullRequest) -> String {
    match Priority::from_labels(&record.labels) {
        Priority::P0 => DUE_URGENT.to_owned(),
        Priority::P1 | Priority::P2 => due_shard(jitter_seed(&record.id.to_string(), 0) % DUE_SHARDS),
    }
}

fn due_shard(shard: u64) -> String {
    format!("due-pr-{shard}")
}

/// When an item is due, from its index entry.
fn due_of(item: &Item) -> Option<Timestamp> {
    text_of(item, Index::Due.shape().2)?.parse().ok()
}

/// What an entry of the `due` index refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DueSubject {
    Effect(EffectId),
    /// Due when its lease or deadline expires.
    Run(RunId),
    PullRequest(PrId),
    /// A reconcile request that is pending, or whose worker crashed.
    Request(String),
    /// A message for the Car Bridge that waits.
    Message(String),
}

impl DueSubject {
    pub fn key(&self) -> Key {
        match self {
            Self::Effect(id) => effect_key(id),
            Self::Run(id) => run_key(id),
            Self::PullRequest(pr) => record_key(pr),
            Self::Request(key) => request_key(key),
            Self::Message(id) => waiting_key(id),
        }
    }

    fn of(key: &Key) -> Option<Self> {
        let (prefix, id) = key.partition.split_once('#')?;
        match prefix {
            "PR" => id.parse().ok().map(Self::PullRequest),
            "OUT" => Some(Self::Effect(EffectId::new(id))),
            "RUN" => Some(Self::Run(RunId::new(id))),
            "REQ" => Some(Self::Request(id.to_owned())),
            "WAIT" => Some(Self::Message(id.to_owned())),
            _ => None,
        }
    }
}

/// One entry of the `due` index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueEntry {
    pub subject: DueSubject,
    pub due_at: Timestamp,
    /// From the priority labels, in points.
    pub priority: i64,
}

/// Reads an entry of the `due` index.
pub fn due_entry(key: &Key, entry: &Item) -> Result<DueEntry, StoreError> {
    let corrupt = |why: &str| StoreError::Corrupt(key.clone(), why.to_owned());
    let subject = DueSubject::of(key).ok_or_else(|| corrupt("unknown key prefix in the due index"))?;
    let due_at = due_of(entry).ok_or_else(|| corrupt("`due_at` is not a time"))?;
    Ok(DueEntry { subject, due_at, priority: number_of(entry, "priority").unwrap_or(0) })
}

/// One entry of the `by_repo` index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoIndexEntry {
    pub pr: PrId,
    pub state: State,
    /// When it entered the state.
    pub since: Timestamp,
    /// From the priority labels, in points.
    pub priority: i64,
    /// The base branch; unknown for rows written before the index had it.
    pub base: Option<String>,
}

/// A pull request's sort key in the `by_repo` index.
pub fn state_number(pr: &PrId, state: State) -> String {
    format!("{state}#{:010}", pr.number)
}

/// Reads an entry of the `by_repo` index.
pub fn repo_index_entry(key: &Key, entry: &Item) -> Result<RepoIndexEntry, StoreError> {
    let corrupt = |why: &str| StoreError::Corrupt(key.clone(), why.to_owned());
    let Some(DueSubject::PullRequest(pr)) = DueSubject::of(key) else {
        return Err(corrupt("not a pull request, but in the by_repo index"));
    };
    let name = text_of(entry, Index::ByRepo.shape().2).and_then(|sort| sort.split('#').next());
    let state = State::ALL.into_iter().find(|state| Some(state.name()) == name);
    let state = state.ok_or_else(|| corrupt("`state_number` names no state"))?;
    let since = text_of(entry, "since").and_then(|since| since.parse().ok());
    let since = since.ok_or_else(|| corrupt("`since` is not a time"))?;
    let (priority, base) = (number_of(entry, "priority").unwrap_or(0), text_of(entry, "base").map(str::to_owned));
    Ok(RepoIndexEntry { pr, state, since, priority, base })
}

/// Reads an entry of the `runs` index.
pub fn runs_index_entry(key: &Key) -> Result<RunId, StoreError> {
    match DueSubject::of(key) {
        Some(DueSubject::Run(id)) => Ok(id),
        Some(DueSubject::Effect(_) | DueSubject::PullRequest(_) | DueSubject::Request(_) | DueSubject::Message(_))
        | None => Err(StoreError::Corrupt(key.clone(), "not a run, but in the runs index".to_owned())),
    }
}

/// Changes an item's due date without reading it, for undecodable items that would otherwise be due in every sweep. The condition must
/// prevent the write from creating an item that was deleted meanwhile.
pub fn set_due_at(key: Key, until: Timestamp, only_if: Condition) -> RowWrite {
    let (_, _, sort) = Index::Due.shape();
    let set = BTreeMap::from([(sort.to_owned(), text(sort_time(until)))]);
    RowWrite::Update { key, change: RowUpdate { set, only_if, ..RowUpdate::default() } }
}

fn set_ttl(item: &mut Item, ttl: Option<Timestamp>) {
    if let Some(ttl) = ttl {
        item.inner_mut().insert(TTL.to_owned(), number(ttl.as_second()));
    }
}

/// The item of a record, with its index attributes.
pub fn record_row(record: &PullRequest) -> Result<Item, StoreError> {
    let key = record_key(&record.id);
    let mut item = row(&key, record)?;
    let (_, partition, sort) = Index::ByRepo.shape();
    item.inner_mut().insert(partition.to_owned(), text(record.id.repo.as_str()));
    item.inner_mut().insert(sort.to_owned(), text(state_number(&record.id, record.state)));
    item.inner_mut().insert("priority".to_owned(), number(Priority::from_labels(&record.labels).points()));
    item.inner_mut().insert("since".to_owned(), text(sort_time(record.state_since)));
    item.inner_mut().insert("base".to_owned(), text(record.base_branch.as_str()));
    item.inner_mut().insert(VERSION.to_owned(), number(record.version));
    set_due(&mut item, &due_partition(record), record.due_at);
    set_ttl(&mut item, record.ttl);
    Ok(item)
}

fn event_row(event: &Event, effects: usize) -> Result<Item, StoreError> {
    let mut item = row(&event_key(event), event)?;
    if event.is_daily_activity() {
        let (_, partition, _) = Index::ByDay.shape();
        item.inner_mut().insert(partition.to_owned(), text(day_partition(day_of(event.occurred_at), &event.pr)));
    }
    if event.hop == 0 && effects > 0 {
        item.inner_mut().insert(EFFECTS.to_owned(), number(effects));
    }
    set_ttl(&mut item, Some(event.ttl));
    Ok(item)
}

/// The pull request of an effect; the effect's id starts with it.
pub fn pr_of_effect(id: &EffectId) -> Option<PrId> {
    let mut parts = id.as_str().splitn(3, '#');
    let (repo, number) = (parts.next()?, parts.next()?);
    format!("{repo}#{number}").parse().ok()
}

/// The ids of all effects of an event, published or not.
pub fn effects_of(event: &Event, hop_0: &Item) -> Vec<EffectId> {
    let count = number_of(hop_0, EFFECTS).unwrap_or(0);
    (0..count).map(|n| EffectId::new(format!("{}#{}#{n}", event.pr, event.id))).collect()
}

fn effect_row(effect: &Effect, now: Timestamp) -> Result<(Key, Item), StoreError> {
    let key = effect_key(&effect.id);
    let mut item = row(&key, effect)?;
    set_due(&mut item, DUE_URGENT, Some(saturating_after(now, PUBLISH_GRACE)));
    Ok((key, item))
}

/// The item of a run, with its index attributes.
pub fn run_row(run: &Run, policy: &Policy) -> Result<(Key, Item), StoreError> {
    let key = run_key(&run.id);
    let mut item = row(&key, run)?;
    let (_, partition, sort) = Index::Runs.shape();
    let of = runs_of(run.pr.as_ref());
    item.inner_mut().insert(partition.to_owned(), text(of));
    item.inner_mut().insert(sort.to_owned(), text(sort_time(run.created_at)));
    item.inner_mut().insert(VERSION.to_owned(), number(run.version));
    set_due(&mut item, DUE_URGENT, run.due_at());
    let kept = SignedDuration::from_hours(24 * i64::from(policy.retention.runs_days));
    set_ttl(&mut item, run.completed_at.map(|at| saturating_after(at, kept)));
    Ok((key, item))
}

/// The item of a reconcile request, with its due date.
pub fn request_row(request: &ReconcileRequest, now: Timestamp) -> Result<(Key, Item), StoreError> {
    let key = request_key(&request.key());
    let mut item = row(&key, request)?;
    item.inner_mut().insert(VERSION.to_owned(), number(request.version));
    set_due(&mut item, DUE_URGENT, request.due_at());
    set_ttl(&mut item, request.ttl(now));
    Ok((key, item))
}

/// The partition of the `runs` index: a pull request, or `sweeps`.
pub fn runs_of(pr: Option<&PrId>) -> String {
    pr.map_or("sweeps".to_owned(), PrId::to_string)
}

/// A run to write, and the version it was loaded with; `None` if it is new.
#[derive(Debug, Clone, PartialEq)]
pub struct RunWrite {
    pub run: Run,
    pub loaded: Option<u64>,
}

/// All writes of decisions about one pull request, for one transaction: the last record first, then the rest.
pub fn commit(
    decisions: &[Decision],
    effects: &[Effect],
    record: &PullRequest,
    loaded: Option<u64>,
    runs: &[RunWrite],
    policy: &Policy,
    now: Timestamp,
) -> Result<Vec<RowWrite>, StoreError> {
    let mut writes = vec![RowWrite::Put {
        key: record_key(&record.id),
        item: record_row(record)?,
        only_if: loaded.map_or(Condition::Absent, Condition::Version),
    }];
    for decision in decisions {
        for event in &decision.events {
            let only_if = if event.hop == 0 { Condition::NeverSeen } else { Condition::Always };
            let item = event_row(event, decision.effects.len())?;
            writes.push(RowWrite::Put { key: event_key(event), item, only_if });
        }
    }
    for effect in effects {
        let (key, item) = effect_row(effect, now)?;
        writes.push(RowWrite::Put { key, item, only_if: Condition::Always });
    }
    for write in runs {
        let (key, item) = run_row(&write.run, policy)?;
        writes.push(RowWrite::Put { key, item, only_if: write.loaded.map_or(Condition::Absent, Condition::Version) });
    }
    writes.extend(heads(record, decisions.iter().flat_map(|decision| &decision.heads), now));
    writes.extend(vulnerabilities(record, decisions.iter().flat_map(|decision| &decision.vulnerabilities)));
    Ok(writes)
}

fn heads<'a>(record: &PullRequest, changes: impl Iterator<Item = &'a HeadChange>, now: Timestamp) -> Vec<RowWrite> {
    // A transaction may write each row only once, so the last change to a commit wins.
    let mut last: BTreeMap<&Sha, &HeadChange> = BTreeMap::new();
    for change in changes {
        let (HeadChange::Current(sha) | HeadChange::Superseded(sha)) = change;
        last.insert(sha, change);
    }
    let write = |(sha, head): (&Sha, &HeadChange)| {
        let mut change = RowUpdate::default();
        match head {
            HeadChange::Current(_) => {
                change.insert.insert("prs".to_owned(), BTreeSet::from([record.id.number.to_string()]));
                change.remove.insert(TTL.to_owned());
            }
            HeadChange::Superseded(_) => {
                let until = saturating_after(now, FORMER_HEAD_RETENTION);
                change.set.insert(TTL.to_owned(), number(until.as_second()));
            }
        }
        RowWrite::Update { key: head_key(&record.id.repo, sha), change }
    };
    last.into_iter().map(write).collect()
}

/// One write per row, because a transaction may write each row only once; changes to one row are merged.
fn vulnerabilities<'a>(record: &PullRequest, changes: impl Iterator<Item = &'a VulnerabilityChange>) -> Vec<RowWrite> {
    let mut rows: BTreeMap<Key, RowUpdate> = BTreeMap::new();
    for VulnerabilityChange { base_branch, id, update } in changes {
        let this = BTreeSet::from([record.id.number.to_string()]);
        let change = rows.entry(vulnerability_key(&record.id.repo, base_branch, id)).or_default();
        match update {
            VulnerabilityUpdate::Opened => {
                change.remove_members.remove("open");
                change.insert.insert("open".to_owned(), this.clone());
                change.insert.insert("lineage".to_owned(), this);
            }
            VulnerabilityUpdate::NoLongerOpen | VulnerabilityUpdate::Abandoned => {
                change.insert.remove("open");
                change.remove_members.insert("open".to_owned(), this);
                if *update == VulnerabilityUpdate::Abandoned {
                    change.set.insert("abandoned".to_owned(), AttributeValue::Bool(true));
                }
            }
            VulnerabilityUpdate::CountReopen => *change.add.entry("close_and_reopen".to_owned()).or_default() += 1,
            VulnerabilityUpdate::RefundReopen => *change.add.entry("close_and_reopen".to_owned()).or_default() -= 1,
        }
    }
    rows.into_iter().map(|(key, change)| RowWrite::Update { key, change }).collect()
}

fn numbers(item: &Item, attribute: &str) -> BTreeSet<u64> {
    set_of(item, attribute).filter_map(|member| member.parse().ok()).collect()
}

/// The pull requests whose head is or was the commit.
pub fn prs_of_head(item: &Item) -> BTreeSet<u64> {
    numbers(item, "prs")
}

pub fn vulnerability_of(item: &Item) -> Vulnerability {
    Vulnerability {
        open: numbers(item, "open"),
        close_and_reopen: number_of(item, "close_and_reopen").and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
        lineage: numbers(item, "lineage"),
        abandoned: matches!(item.get("abandoned"), Some(AttributeValue::Bool(true))),
    }
}
