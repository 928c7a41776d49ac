//! What there is: counted from the index that lists pull requests by repository. Records are read only of those that may be
//! stale by that index, and of those a person has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::id::{PrId, RepoName};
use domain::policy::Policies;
use domain::pull_request::{Record, later};
use domain::state::State;
use futures_util::future::try_join_all;
use jiff::Timestamp;

use super::{COUNTED_FOR, Desk, after, locked};
use crate::keys::Caller;
use crate::lookup;
use crate::outlets::Outlets;
use crate::rows::Listed;
use crate::store::{Store, StoreError};

/// Entries of the index read at a time.
const PAGE: u32 = 1000;
/// Entries of one repository that are counted; nobody counts further by eye.
const MOST_ENTRIES: usize = 50_000;
/// Repositories that are read side by side.
const AT_ONCE: usize = 8;
/// Records that are read of what may be stale, and of what a person has: the longest waiting ones.
const MOST_RECORDS: usize = 500;

/// What there is, for everybody; who may see what is asked when it is shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counted {
    /// The repositories.
    pub repos: BTreeSet<RepoName>,
    listed: Vec<Listed>,
    /// Of what may be stale, and of what a person has.
    records: BTreeMap<PrId, Record>,
    stale: BTreeSet<PrId>,
}

/// One state's pull requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Which state.
    pub state: State,
    /// How many.
    pub count: u64,
    /// Of these, stale.
    pub stale: u64,
    /// The one that has been there longest.
    pub oldest: Option<(PrId, Timestamp)>,
}

impl Counted {
    /// All twelve, as this caller sees them.
    #[must_use]
    pub fn lanes(&self, caller: &Caller) -> Vec<Lane> {
        let mut lanes = State::ALL.map(|state| Lane { state, count: 0, stale: 0, oldest: None });
        for entry in self.seen_by(caller) {
            let Some(lane) = lanes.iter_mut().find(|lane| lane.state == entry.state) else { continue };
            lane.count += 1;
            lane.stale += u64::from(self.stale.contains(&entry.pr));
            if lane.oldest.as_ref().is_none_or(|(_, since)| entry.since < *since) {
                lane.oldest = Some((entry.pr.clone(), entry.since));
            }
        }
        lanes.into()
    }

    /// Each repository: open, with a person, stale.
    #[must_use]
    pub fn by_repo(&self, caller: &Caller) -> Vec<(RepoName, [u64; 3])> {
        let seen = self.repos.iter().filter(|repo| caller.sees(repo));
        let mut repos: BTreeMap<RepoName, [u64; 3]> = seen.map(|repo| (repo.clone(), [0; 3])).collect();
        for entry in self.seen_by(caller).filter(|entry| !entry.state.is_terminal()) {
            let counts = repos.entry(entry.pr.repo.clone()).or_default();
            counts[0] += 1;
            counts[1] += u64::from(entry.state == State::NeedsIntervention);
            counts[2] += u64::from(self.stale.contains(&entry.pr));
        }
        repos.into_iter().collect()
    }

    /// What a person has, the longest first.
    #[must_use]
    pub fn needs_person(&self, caller: &Caller) -> Vec<&Record> {
        let with_person = |record: &&Record| record.state == State::NeedsIntervention && caller.sees(&record.id.repo);
        let mut records: Vec<&Record> = self.records.values().filter(with_person).collect();
        records.sort_by_key(|record| (record.progressed_at, &record.id));
        records
    }

    /// What is stale, by its place in the queue.
    #[must_use]
    pub fn stuck(&self, caller: &Caller, now: Timestamp) -> Vec<&Record> {
        let stale = |record: &&Record| self.stale.contains(&record.id) && caller.sees(&record.id.repo);
        let mut records: Vec<&Record> = self.records.values().filter(stale).collect();
        records.sort_by_cached_key(|record| {
            (std::cmp::Reverse(record.priority_score(now)), record.progressed_at, record.id.clone())
        });
        records
    }

    fn seen_by<'a>(&'a self, caller: &'a Caller) -> impl Iterator<Item = &'a Listed> {
        self.listed.iter().filter(|entry| caller.sees(&entry.pr.repo))
    }
}

/// Whether the index alone says that it cannot be stale: it has not been in its state for long enough.
fn may_be_stale(entry: &Listed, policies: &Policies, now: Timestamp) -> bool {
    let threshold = policies.for_repo(&entry.pr.repo).threshold(entry.state);
    threshold.is_some_and(|threshold| later(entry.since, threshold) <= now)
}

impl<S: Store, O: Outlets> Desk<S, O> {
    /// What there is, at most a few seconds old.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn counted(&self) -> Result<Arc<Counted>, StoreError> {
        let now = self.now();
        let known = locked(&self.counted).clone();
        if let Some((at, counted)) = known
            && at <= now
            && now < after(at, COUNTED_FOR)
        {
            return Ok(counted);
        }
        let counted = Arc::new(count(self.store(), self.engine.policies(), now).await?);
        *locked(&self.counted) = Some((now, Arc::clone(&counted)));
        Ok(counted)
    }
}

/// Counts what there is: for `/api/overview`, and for the status issue.
///
/// # Errors
/// If the store cannot be read.
pub async fn count<S: Store>(store: &S, policies: &Policies, now: Timestamp) -> Result<Counted, StoreError> {
    let repos = lookup::repos(store, now).await?;
    let names: Vec<&RepoName> = repos.iter().collect();
    let mut listed = Vec::new();
    for group in names.chunks(AT_ONCE) {
        let lists = try_join_all(group.iter().map(|repo| entries(store, repo, now))).await?;
        listed.extend(lists.into_iter().flatten());
    }
    let longest = |mut entries: Vec<&Listed>| {
        entries.sort_by_key(|entry| entry.since);
        entries.into_iter().take(MOST_RECORDS).map(|entry| entry.pr.clone()).collect::<Vec<PrId>>()
    };
    let late: Vec<&Listed> = listed.iter().filter(|entry| may_be_stale(entry, policies, now)).collect();
    let late_ids: BTreeSet<PrId> = late.iter().map(|entry| entry.pr.clone()).collect();
    let with_person = listed.iter().filter(|entry| entry.state == State::NeedsIntervention).collect();
    let wanted: Vec<PrId> = longest(late).into_iter().chain(longest(with_person)).collect();
    let read = lookup::records(store, &wanted, now).await?;
    let records: BTreeMap<PrId, Record> = read.into_iter().map(|record| (record.id.clone(), record)).collect();
    // Of those beyond the bound only the index is known, and it says that they are late.
    let is_stale = |pr: &PrId| match records.get(pr) {
        Some(record) => record.is_stale(policies.for_repo(&pr.repo), now),
        None => !wanted.contains(pr),
    };
    let stale = late_ids.into_iter().filter(is_stale).collect();
    Ok(Counted { repos, listed, records, stale })
}

async fn entries<S: Store>(store: &S, repo: &RepoName, now: Timestamp) -> Result<Vec<Listed>, StoreError> {
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let page = lookup::pull_requests(store, repo, None, cursor, PAGE, now).await?;
        found.extend(page.entries);
        cursor = page.next;
        if cursor.is_none() || found.len() >= MOST_ENTRIES {
            return Ok(found);
        }
    }
}
