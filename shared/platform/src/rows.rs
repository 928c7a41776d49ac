//! What the rows mean: keys by prefix, the record and its index attributes, events, undelivered effects, commits,
//! vulnerabilities, runs. Translation only; when a row is written is decided in `engine`.

use std::collections::{BTreeMap, BTreeSet};

use domain::backoff::seed_of;
use domain::decide::{Decision, Effect, HeadChange, VulnerabilityChange, VulnerabilityNews};
use domain::event::Event;
use domain::id::{EffectId, PrId, RepoName, RunId, Sha};
use domain::policy::Policy;
use domain::priority::Priority;
use domain::pull_request::{Record, Vulnerability};
use domain::request::Request;
use domain::run::Run;
use domain::state::State;
use domain::time::saturating_after;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_dynamo::{AttributeValue, Item};

use crate::store::{Change, Index, Key, OnlyIf, StoreError, TTL, VERSION, Write, number, number_of, set_of, text_of};

/// Partitions of the `due` index: enough for one sweep to read them side by side, few enough to read them all.
pub const DUE_SHARDS: u64 = 4;
/// An effect that nobody has delivered by then is looked for by the sweep.
const DELIVERED_WITHIN: SignedDuration = SignedDuration::from_mins(1);
/// How long a former head still finds its pull request, so that what is said about it is answered `superseded`. As long as the
/// log is kept by default: two pull requests may share a head, and one that outlives the other needs the row.
const FORMER_HEAD: SignedDuration = SignedDuration::from_hours(24 * 90);

/// The set in the row that lists the repositories.
const REPOS: &str = "repos";
/// The attribute that holds the whole of what a row is.
const BODY: &str = "body";
/// On hop 0: how many effects the event has, so that a repeated delivery knows what to look for.
const EFFECTS: &str = "effects";

pub fn record_key(pr: &PrId) -> Key {
    Key::state(format!("PR#{pr}"))
}

pub fn effect_key(id: &EffectId) -> Key {
    Key::state(format!("OUT#{id}"))
}

/// The pull requests of a head commit.
pub fn head_key(repo: &RepoName, sha: &Sha) -> Key {
    Key::state(format!("SHA#{repo}#{sha}"))
}

pub fn vulnerability_key(repo: &RepoName, base: &str, id: &str) -> Key {
    Key::state(format!("VULN#{repo}#{base}#{id}"))
}

pub fn run_key(id: &RunId) -> Key {
    Key::state(format!("RUN#{id}"))
}

/// A reconcile request, by what makes two of them the same.
pub fn request_key(key: &str) -> Key {
    Key::state(format!("REQ#{key}"))
}

pub fn event_key(event: &Event) -> Key {
    Key::event(event.pr.to_string(), event.sort_key())
}

/// A time as an index sorts it: RFC 3339 with exactly three decimals.
pub fn sortable(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// The partitions of the `due` index.
pub fn due_shards() -> [String; 4] {
    [0, 1, 2, 3].map(|shard| format!("due-{shard}"))
}

/// Partitions of each day in the `by_day` index: a busy day must not be one hot partition.
const DAY_SHARDS: u64 = 4;

/// The day something happened on, in UTC.
pub fn day_of(at: Timestamp) -> Date {
    TimeZone::UTC.to_datetime(at).date()
}

/// The partitions of a day in the `by_day` index.
pub fn day_partitions(day: Date) -> [String; 4] {
    [0, 1, 2, 3].map(|shard| format!("{day}-{shard}"))
}

fn day_partition(day: Date, pr: &PrId) -> String {
    format!("{day}-{}", seed_of(&pr.to_string(), 0) % DAY_SHARDS)
}

/// The repositories that are known: the one row that lists them.
pub fn repos_key() -> Key {
    Key::state("REPOS")
}

/// Adds a repository to those that are known.
pub fn repo_known(repo: &RepoName) -> Write {
    let insert = BTreeMap::from([(REPOS.to_owned(), BTreeSet::from([repo.as_str().to_owned()]))]);
    Write::Change { key: repos_key(), change: Change { insert, ..Change::default() } }
}

/// The repositories in the row that lists them.
pub fn repos_of(item: &Item) -> BTreeSet<RepoName> {
    set_of(item, REPOS).filter_map(|member| member.parse().ok()).collect()
}

fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// A row whose body is `value`.
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
    take(key, copy)
}

/// The same of a row that nobody needs any more: nothing is copied.
pub fn take<T: DeserializeOwned>(key: &Key, mut item: Item) -> Result<T, StoreError> {
    let corrupt = |why: String| StoreError::Corrupt(key.clone(), why);
    let body = item.inner_mut().remove(BODY).ok_or_else(|| corrupt(format!("it has no `{BODY}`")))?;
    serde_dynamo::from_attribute_value(body).map_err(|error| corrupt(error.to_string()))
}

fn set_due(key: &Key, item: &mut Item, due_at: Option<Timestamp>) {
    let Some(due_at) = due_at else { return };
    let (_, partition, sort) = Index::Due.shape();
    let shard = seed_of(&key.partition, 0) % DUE_SHARDS;
    item.inner_mut().insert(partition.to_owned(), text(format!("due-{shard}")));
    item.inner_mut().insert(sort.to_owned(), text(sortable(due_at)));
}

/// When a row is due, as its index entry says.
fn due_of(item: &Item) -> Option<Timestamp> {
    text_of(item, Index::Due.shape().2)?.parse().ok()
}

/// What a row in the `due` index is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Effect(EffectId),
    /// A run at its lease or deadline.
    Run(RunId),
    PullRequest(PrId),
    /// A reconcile request that waits, or whose worker is gone.
    Request(String),
}

impl Subject {
    pub fn key(&self) -> Key {
        match self {
            Self::Effect(id) => effect_key(id),
            Self::Run(id) => run_key(id),
            Self::PullRequest(pr) => record_key(pr),
            Self::Request(key) => request_key(key),
        }
    }

    fn of(key: &Key) -> Option<Self> {
        let (prefix, id) = key.partition.split_once('#')?;
        match prefix {
            "PR" => id.parse().ok().map(Self::PullRequest),
            "OUT" => Some(Self::Effect(EffectId::new(id))),
            "RUN" => Some(Self::Run(RunId::new(id))),
            "REQ" => Some(Self::Request(id.to_owned())),
            _ => None,
        }
    }
}

/// One entry of the `due` index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueEntry {
    pub subject: Subject,
    pub due_at: Timestamp,
    /// What people say about its urgency, in points.
    pub priority: i64,
}

/// Reads an entry of the `due` index.
pub fn due_entry(key: &Key, entry: &Item) -> Result<DueEntry, StoreError> {
    let corrupt = |why: &str| StoreError::Corrupt(key.clone(), why.to_owned());
    let subject = Subject::of(key).ok_or_else(|| corrupt("nothing of that name can be due"))?;
    let due_at = due_of(entry).ok_or_else(|| corrupt("`due_at` is not a time"))?;
    Ok(DueEntry { subject, due_at, priority: number_of(entry, "priority").unwrap_or(0) })
}

/// One entry of the `by_repo` index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub pr: PrId,
    pub state: State,
    /// Since when it has been in it.
    pub since: Timestamp,
    /// What people say about its urgency, in points.
    pub priority: i64,
    /// The branch it is to be merged into; unknown for rows written before the index carried it.
    pub base: Option<String>,
}

/// A pull request's sort key in the `by_repo` index.
pub fn state_number(pr: &PrId, state: State) -> String {
    format!("{state}#{:010}", pr.number)
}

/// Reads an entry of the `by_repo` index.
pub fn listed(key: &Key, entry: &Item) -> Result<Listed, StoreError> {
    let corrupt = |why: &str| StoreError::Corrupt(key.clone(), why.to_owned());
    let Some(Subject::PullRequest(pr)) = Subject::of(key) else {
        return Err(corrupt("only pull requests are listed by repository"));
    };
    let name = text_of(entry, Index::ByRepo.shape().2).and_then(|sort| sort.split('#').next());
    let state = State::ALL.into_iter().find(|state| Some(state.name()) == name);
    let state = state.ok_or_else(|| corrupt("`state_number` names no state"))?;
    let since = text_of(entry, "since").and_then(|since| since.parse().ok());
    let since = since.ok_or_else(|| corrupt("`since` is not a time"))?;
    let (priority, base) = (number_of(entry, "priority").unwrap_or(0), text_of(entry, "base").map(str::to_owned));
    Ok(Listed { pr, state, since, priority, base })
}

/// Reads an entry of the `runs` index.
pub fn listed_run(key: &Key) -> Result<RunId, StoreError> {
    match Subject::of(key) {
        Some(Subject::Run(id)) => Ok(id),
        Some(Subject::Effect(_) | Subject::PullRequest(_) | Subject::Request(_)) | None => {
            Err(StoreError::Corrupt(key.clone(), "only runs are listed as runs".to_owned()))
        }
    }
}

/// Moves a row to another time without reading it: for one that cannot be read, so that it is not in the way every minute. A row
/// that somebody has taken away meanwhile stays away: then the write is refused.
pub fn redate(key: Key, until: Timestamp, only_if: OnlyIf) -> Write {
    let (_, _, sort) = Index::Due.shape();
    let set = BTreeMap::from([(sort.to_owned(), text(sortable(until)))]);
    Write::Change { key, change: Change { set, only_if, ..Change::default() } }
}

fn set_ttl(item: &mut Item, ttl: Option<Timestamp>) {
    if let Some(ttl) = ttl {
        item.inner_mut().insert(TTL.to_owned(), number(ttl.as_second()));
    }
}

/// The row of a record, with what the indexes need.
pub fn record_row(record: &Record) -> Result<Item, StoreError> {
    let key = record_key(&record.id);
    let mut item = row(&key, record)?;
    let (_, partition, sort) = Index::ByRepo.shape();
    item.inner_mut().insert(partition.to_owned(), text(record.id.repo.as_str()));
    item.inner_mut().insert(sort.to_owned(), text(state_number(&record.id, record.state)));
    item.inner_mut().insert("priority".to_owned(), number(Priority::from_labels(&record.labels).points()));
    item.inner_mut().insert("since".to_owned(), text(sortable(record.progressed_at)));
    item.inner_mut().insert("base".to_owned(), text(record.base_branch.as_str()));
    item.inner_mut().insert(VERSION.to_owned(), number(record.version));
    set_due(&key, &mut item, record.due_at);
    set_ttl(&mut item, record.ttl);
    Ok(item)
}

fn event_row(event: &Event, effects: usize) -> Result<Item, StoreError> {
    let mut item = row(&event_key(event), event)?;
    if event.is_of_the_day() {
        let (_, partition, _) = Index::ByDay.shape();
        item.inner_mut().insert(partition.to_owned(), text(day_partition(day_of(event.occurred_at), &event.pr)));
    }
    if event.hop == 0 && effects > 0 {
        item.inner_mut().insert(EFFECTS.to_owned(), number(effects));
    }
    set_ttl(&mut item, Some(event.ttl));
    Ok(item)
}

/// The pull request an effect belongs to: its id begins with it.
pub fn pr_of_effect(id: &EffectId) -> Option<PrId> {
    let mut parts = id.as_str().splitn(3, '#');
    let (repo, number) = (parts.next()?, parts.next()?);
    format!("{repo}#{number}").parse().ok()
}

/// The ids of the effects an event had when it was applied, delivered or not.
pub fn effects_of(event: &Event, hop_0: &Item) -> Vec<EffectId> {
    let count = number_of(hop_0, EFFECTS).unwrap_or(0);
    (0..count).map(|n| EffectId::new(format!("{}#{}#{n}", event.pr, event.id))).collect()
}

fn effect_row(effect: &Effect, now: Timestamp) -> Result<(Key, Item), StoreError> {
    let key = effect_key(&effect.id);
    let mut item = row(&key, effect)?;
    set_due(&key, &mut item, Some(saturating_after(now, DELIVERED_WITHIN)));
    Ok((key, item))
}

/// The row of a run, with what the indexes need.
pub fn run_row(run: &Run, policy: &Policy) -> Result<(Key, Item), StoreError> {
    let key = run_key(&run.id);
    let mut item = row(&key, run)?;
    let (_, partition, sort) = Index::Runs.shape();
    let of = runs_of(run.pr.as_ref());
    item.inner_mut().insert(partition.to_owned(), text(of));
    item.inner_mut().insert(sort.to_owned(), text(sortable(run.created_at)));
    item.inner_mut().insert(VERSION.to_owned(), number(run.version));
    set_due(&key, &mut item, run.due_at());
    let kept = SignedDuration::from_hours(24 * i64::from(policy.retention.runs_days));
    set_ttl(&mut item, run.completed_at.map(|at| saturating_after(at, kept)));
    Ok((key, item))
}

/// The row of a request, with its date.
pub fn request_row(request: &Request, now: Timestamp) -> Result<(Key, Item), StoreError> {
    let key = request_key(&request.key());
    let mut item = row(&key, request)?;
    item.inner_mut().insert(VERSION.to_owned(), number(request.version));
    set_due(&key, &mut item, request.due_at());
    set_ttl(&mut item, request.ttl(now));
    Ok((key, item))
}

/// The partition of the `runs` index: a pull request's remedies, or the sweeps.
pub fn runs_of(pr: Option<&PrId>) -> String {
    pr.map_or("sweeps".to_owned(), PrId::to_string)
}

/// A run to write, and the version it was loaded with; `None` if it is new.
#[derive(Debug, Clone, PartialEq)]
pub struct RunWrite {
    pub run: Run,
    pub loaded: Option<u64>,
}

/// Everything a decision writes, in one transaction: the record first, then hop 0, then the rest.
pub fn commit(
    decision: &Decision,
    record: &Record,
    loaded: Option<u64>,
    runs: &[RunWrite],
    policy: &Policy,
    now: Timestamp,
) -> Result<Vec<Write>, StoreError> {
    let mut writes = vec![Write::Put {
        key: record_key(&record.id),
        item: record_row(record)?,
        only_if: loaded.map_or(OnlyIf::Absent, OnlyIf::Version),
    }];
    for event in &decision.events {
        let only_if = if event.hop == 0 { OnlyIf::NeverSeen } else { OnlyIf::Always };
        writes.push(Write::Put { key: event_key(event), item: event_row(event, decision.effects.len())?, only_if });
    }
    for effect in &decision.effects {
        let (key, item) = effect_row(effect, now)?;
        writes.push(Write::Put { key, item, only_if: OnlyIf::Always });
    }
    for write in runs {
        let (key, item) = run_row(&write.run, policy)?;
        writes.push(Write::Put { key, item, only_if: write.loaded.map_or(OnlyIf::Absent, OnlyIf::Version) });
    }
    writes.extend(heads(record, &decision.heads, now));
    writes.extend(vulnerabilities(record, &decision.vulnerabilities));
    Ok(writes)
}

/// The position of the record among the writes of a commit.
pub const RECORD: usize = 0;
/// The position of hop 0, if there is one.
pub const HOP_0: usize = 1;

fn heads(record: &Record, changes: &[HeadChange], now: Timestamp) -> Vec<Write> {
    // One row must not be written twice in a transaction: of two changes to one commit the last counts.
    let mut last: BTreeMap<&Sha, &HeadChange> = BTreeMap::new();
    for change in changes {
        let (HeadChange::Current(sha) | HeadChange::Superseded(sha)) = change;
        last.insert(sha, change);
    }
    let write = |(sha, head): (&Sha, &HeadChange)| {
        let mut change = Change::default();
        match head {
            HeadChange::Current(_) => {
                change.insert.insert("prs".to_owned(), BTreeSet::from([record.id.number.to_string()]));
                change.remove.insert(TTL.to_owned());
            }
            HeadChange::Superseded(_) => {
                let until = saturating_after(now, FORMER_HEAD);
                change.set.insert(TTL.to_owned(), number(until.as_second()));
            }
        }
        Write::Change { key: head_key(&record.id.repo, sha), change }
    };
    last.into_iter().map(write).collect()
}

/// One write for each row, since a transaction takes each row once; news about one row add up.
fn vulnerabilities(record: &Record, changes: &[VulnerabilityChange]) -> Vec<Write> {
    let mut rows: BTreeMap<Key, Change> = BTreeMap::new();
    for VulnerabilityChange { base_branch, id, news } in changes {
        let this = BTreeSet::from([record.id.number.to_string()]);
        let change = rows.entry(vulnerability_key(&record.id.repo, base_branch, id)).or_default();
        match news {
            VulnerabilityNews::Opened => {
                change.take.remove("open");
                change.insert.insert("open".to_owned(), this.clone());
                change.insert.insert("lineage".to_owned(), this);
            }
            VulnerabilityNews::NoLongerOpen | VulnerabilityNews::Abandoned => {
                change.insert.remove("open");
                change.take.insert("open".to_owned(), this);
                if *news == VulnerabilityNews::Abandoned {
                    change.set.insert("abandoned".to_owned(), AttributeValue::Bool(true));
                }
            }
            VulnerabilityNews::CountReopen => *change.add.entry("close_and_reopen".to_owned()).or_default() += 1,
            VulnerabilityNews::GiveBackReopen => *change.add.entry("close_and_reopen".to_owned()).or_default() -= 1,
        }
    }
    rows.into_iter().map(|(key, change)| Write::Change { key, change }).collect()
}

fn numbers(item: &Item, attribute: &str) -> BTreeSet<u64> {
    set_of(item, attribute).filter_map(|member| member.parse().ok()).collect()
}

/// The pull requests whose head a commit is or was.
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
