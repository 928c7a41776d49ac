//! Counts for the dashboard and the status issue: pull requests by state and repository, and today's activity. Counted from the `by_repo`
//! index; records are read only for pull requests that may be stale or need a user.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

pub use domain::coordination::status_issue::TodayCounts as DayCounts;
use domain::event::Event;
use domain::id::{PrId, RepoName};
use domain::insights::EventSample;
use domain::policy::Policies;
use domain::pull_request::PullRequest;
use domain::state::State;
use domain::time::saturating_after;
use futures_util::future::try_join_all;
use jiff::Timestamp;
use jiff::civil::Date;

use crate::store::queries::{self, DayQuery};
use crate::store::schema::{self, RepoIndexEntry};
use crate::store::{Store, StoreError};

/// Most entries counted per repository.
const MAX_ENTRIES: usize = 50_000;
/// Repositories read concurrently.
const CONCURRENCY: usize = 8;
/// Most records read of each kind, possibly stale and needing a user: the longest waiting ones.
const MAX_RECORDS: usize = 500;
/// Most events read per partition of a day.
pub const MAX_EVENTS_PER_DAY: u32 = 5_000;

/// Counts of all repositories; callers filter by what a user may see.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OverviewCounts {
    pub repos: BTreeSet<RepoName>,
    entries: Vec<RepoIndexEntry>,
    /// Of pull requests that may be stale or need a user.
    records: BTreeMap<PrId, PullRequest>,
    stale: BTreeSet<PrId>,
    /// In their state for longer than its threshold, by the index alone.
    overdue: BTreeSet<PrId>,
}

/// The pull requests in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateCount {
    pub state: State,
    pub count: u64,
    pub stale: u64,
    /// The pull request that has been in the state longest.
    pub oldest: Option<(PrId, Timestamp)>,
}

impl OverviewCounts {
    /// All twelve states, for the visible repositories.
    pub fn state_counts(&self, visible: impl Fn(&RepoName) -> bool) -> Vec<StateCount> {
        let mut counts = State::ALL.map(|state| StateCount { state, count: 0, stale: 0, oldest: None });
        for entry in self.visible_entries(visible) {
            let Some(count) = counts.iter_mut().find(|count| count.state == entry.state) else { continue };
            count.count += 1;
            count.stale += u64::from(self.stale.contains(&entry.pr));
            if count.oldest.as_ref().is_none_or(|(_, since)| entry.since < *since) {
                count.oldest = Some((entry.pr.clone(), entry.since));
            }
        }
        counts.into()
    }

    /// Per repository: open, needing a user, stale.
    pub fn by_repo(&self, visible: impl Fn(&RepoName) -> bool) -> Vec<(RepoName, [u64; 3])> {
        let repos = self.repos.iter().filter(|repo| visible(repo));
        let mut repos: BTreeMap<RepoName, [u64; 3]> = repos.map(|repo| (repo.clone(), [0; 3])).collect();
        for entry in self.visible_entries(visible).filter(|entry| !entry.state.is_terminal()) {
            let counts = repos.entry(entry.pr.repo.clone()).or_default();
            counts[0] += 1;
            counts[1] += u64::from(entry.state == State::NeedsIntervention);
            counts[2] += u64::from(self.stale.contains(&entry.pr));
        }
        repos.into_iter().collect()
    }

    /// Pull requests that need a user, longest waiting first.
    pub fn needing_person(&self, visible: impl Fn(&RepoName) -> bool) -> Vec<&PullRequest> {
        let needs_user = |record: &&PullRequest| record.state == State::NeedsIntervention && visible(&record.id.repo);
        let mut records: Vec<&PullRequest> = self.records.values().filter(needs_user).collect();
        records.sort_by_key(|record| (record.state_since, &record.id));
        records
    }

    /// Stale pull requests, by priority.
    pub fn stale(&self, visible: impl Fn(&RepoName) -> bool, now: Timestamp) -> Vec<&PullRequest> {
        let stale = |record: &&PullRequest| self.stale.contains(&record.id) && visible(&record.id.repo);
        let mut records: Vec<&PullRequest> = self.records.values().filter(stale).collect();
        records
            .sort_by_cached_key(|record| (Reverse(record.priority_score(now)), record.state_since, record.id.clone()));
        records
    }

    /// Pull requests that may be stale, judged by the index alone, most urgent first. There is no limit to their number.
    pub fn overdue(&self, visible: impl Fn(&RepoName) -> bool) -> Vec<&RepoIndexEntry> {
        self.ranked(visible, |entry| self.overdue.contains(&entry.pr))
    }

    /// All pull requests that need a user, most urgent first.
    pub fn escalated(&self, visible: impl Fn(&RepoName) -> bool) -> Vec<&RepoIndexEntry> {
        self.ranked(visible, |entry| entry.state == State::NeedsIntervention)
    }

    fn ranked(
        &self,
        visible: impl Fn(&RepoName) -> bool,
        wanted: impl Fn(&RepoIndexEntry) -> bool,
    ) -> Vec<&RepoIndexEntry> {
        let mut entries: Vec<&RepoIndexEntry> = self.visible_entries(visible).filter(|entry| wanted(entry)).collect();
        entries.sort_by_cached_key(|entry| (Reverse(entry.priority), entry.since, entry.pr.clone()));
        entries
    }

    fn visible_entries(&self, visible: impl Fn(&RepoName) -> bool) -> impl Iterator<Item = &RepoIndexEntry> {
        self.entries.iter().filter(move |entry| visible(&entry.pr.repo))
    }
}

/// Whether the pull request has been in its state long enough to be stale, judged by the index alone.
fn may_be_stale(entry: &RepoIndexEntry, policies: &Policies, now: Timestamp) -> bool {
    let threshold = policies.for_repo(&entry.pr.repo).threshold(entry.state);
    threshold.is_some_and(|threshold| saturating_after(entry.since, threshold) <= now)
}

/// Counts all pull requests, for `/api/overview` and the status issue.
pub async fn count<S: Store>(store: &S, policies: &Policies, now: Timestamp) -> Result<OverviewCounts, StoreError> {
    let repos = queries::repos(store, now).await?;
    let names: Vec<&RepoName> = repos.iter().collect();
    let mut listed = Vec::new();
    for group in names.chunks(CONCURRENCY) {
        let lists =
            try_join_all(group.iter().map(|repo| queries::all_pull_requests(store, repo, MAX_ENTRIES, now))).await?;
        listed.extend(lists.into_iter().flatten());
    }
    let longest_waiting = |mut entries: Vec<&RepoIndexEntry>| {
        entries.sort_by_key(|entry| entry.since);
        entries.into_iter().take(MAX_RECORDS).map(|entry| entry.pr.clone()).collect::<Vec<PrId>>()
    };
    let overdue: Vec<&RepoIndexEntry> = listed.iter().filter(|entry| may_be_stale(entry, policies, now)).collect();
    let overdue_ids: BTreeSet<PrId> = overdue.iter().map(|entry| entry.pr.clone()).collect();
    let needs_user = listed.iter().filter(|entry| entry.state == State::NeedsIntervention).collect();
    let wanted: Vec<PrId> = longest_waiting(overdue).into_iter().chain(longest_waiting(needs_user)).collect();
    let read = queries::records(store, &wanted, now).await?;
    let records: BTreeMap<PrId, PullRequest> = read.into_iter().map(|record| (record.id.clone(), record)).collect();
    // Without a record, because of the limit above, the index entry counts as stale.
    let is_stale = |pr: &PrId| match records.get(pr) {
        Some(record) => record.is_past_threshold(policies.for_repo(&pr.repo), now),
        None => !wanted.contains(pr),
    };
    let stale = overdue_ids.iter().filter(|pr| is_stale(pr)).cloned().collect();
    Ok(OverviewCounts { repos, entries: listed, records, stale, overdue: overdue_ids })
}

/// The activity of one day.
#[derive(Debug, Default)]
pub struct DayActivity {
    counts: BTreeMap<RepoName, DayCounts>,
    pub traces: Vec<EventSample>,
    /// Whether the day has more events than were read.
    pub truncated: bool,
}

impl DayActivity {
    fn of(events: &[Event], truncated: bool) -> Self {
        let mut counts: BTreeMap<RepoName, DayCounts> = BTreeMap::new();
        for event in events {
            counts.entry(event.pr.repo.clone()).or_default().note(event);
        }
        Self { counts, traces: events.iter().filter_map(EventSample::of).collect(), truncated }
    }

    pub fn sum(&self, visible: impl Fn(&RepoName) -> bool) -> DayCounts {
        let mut sum = DayCounts::default();
        self.counts.iter().filter(|(repo, _)| visible(repo)).for_each(|(_, counts)| sum.add(counts));
        sum
    }
}

/// Reads the events of one day.
pub async fn read_day<S: Store>(store: &S, date: Date, now: Timestamp) -> Result<DayActivity, StoreError> {
    let query = DayQuery { day: date, backwards: false, most: MAX_EVENTS_PER_DAY };
    let (events, whole) = queries::events_of_day(store, query, now).await?;
    Ok(DayActivity::of(&events, !whole))
}

/// Today's counts for the visible repositories, the last day in `/api/overview`.
pub async fn today<S: Store>(
    store: &S,
    visible: impl Fn(&RepoName) -> bool,
    now: Timestamp,
) -> Result<DayCounts, StoreError> {
    Ok(read_day(store, schema::day_of(now), now).await?.sum(visible))
}
