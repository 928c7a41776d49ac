//! Pull requests: what GitHub says about them, and whether that leaves them stale. Each visit ends with one outcome and a new
//! date; one that goes wrong never ends the sweep.

use std::collections::{BTreeMap, BTreeSet};

use domain::decide::{Decision, decide};
use domain::event::{Event, EventKind, Fact, Happened};
use domain::id::{PrId, RepoName};
use domain::pull_request::Record;
use domain::snapshot::{Live, Snapshot};
use domain::state::Strategy;
use futures_util::future::join_all;
use jiff::Timestamp;
use tracing::{info, warn};

use crate::limits::in_flight;
use crate::sweep::{Pass, READING};
use platform::engine::replacement;
use platform::engine::{Applied, EngineError};
use platform::github::Unread;
use platform::http::CallError;
use platform::lookup;
use platform::outlets::Outlets;
use platform::rows;
use platform::store::{Store, StoreError};
use platform::sweep_summary::Skip;

/// Pull requests that are read from GitHub in one go: four queries of 25, and one for mergeability.
const READ_AT_ONCE: usize = 100;

/// How a visit ended.
pub(crate) enum Visited {
    Healthy,
    Ended,
    Dispatched(Strategy),
    /// Handed to a person; `spent` if only because a budget or the lifetime is used up.
    Escalated {
        spent: bool,
    },
    WouldRemedy,
    WouldEscalate,
    Skipped(Skip),
}

/// What is known of a pull request after GitHub was asked.
enum Verified {
    /// Its visit is over.
    Over(Visited),
    /// It is stale all the same.
    Stale(Box<Record>, Live),
}

/// One visit's result, for the summary.
struct Told {
    pr: PrId,
    verified: Verified,
    events: Vec<Event>,
    asked: bool,
}

/// A store error that is about more than one pull request.
pub(crate) type Stopped = StoreError;

/// Why nothing was written.
pub(crate) enum Unsettled {
    /// The engine could not.
    Engine(EngineError),
    /// Somebody has cancelled the sweep.
    Cancelled,
}

impl From<EngineError> for Unsettled {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<StoreError> for Unsettled {
    fn from(error: StoreError) -> Self {
        Self::Engine(EngineError::Store(error))
    }
}

impl<S: Store, O: Outlets> Pass<'_, S, O> {
    /// Visits pull requests: those that only have to be merged first, and of the others those of the highest rank.
    pub(crate) async fn visit(&mut self, prs: Vec<PrId>) -> Result<(), StoreError> {
        if prs.is_empty() {
            return Ok(());
        }
        let now = self.now();
        let mut records = lookup::records(self.store(), &prs, now).await?;
        self.missing(&prs, &records).await?;
        records.sort_by_cached_key(|record| {
            let first = (record.is_merge_ready(), record.priority_score(now));
            (std::cmp::Reverse(first), record.due_at, record.id.clone())
        });
        self.tell_repos(&records).await;
        let mut under_way = if self.wish.dry_run { 0 } else { in_flight::count(self.store(), now).await? };
        self.summary.in_flight = under_way;
        let mut rest = records.into_iter();
        loop {
            let chunk: Vec<Record> = rest.by_ref().take(READ_AT_ONCE).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            let held = self.sweep.github.not_before().is_some();
            if held || self.ends_within(READING) || !self.goes_on().await {
                // Untouched, and so still due: asking in vain would only move their dates.
                let left = chunk.len() + rest.len();
                self.summary.left += u32::try_from(left).unwrap_or(u32::MAX);
                return Ok(());
            }
            let stale = self.verify(chunk).await?;
            if !self.goes_on().await {
                // Stale, and still due: whoever is next looks again.
                self.summary.left += u32::try_from(stale.len() + rest.len()).unwrap_or(u32::MAX);
                return Ok(());
            }
            under_way = self.diagnose(stale, under_way).await?;
        }
    }

    /// Whoever wrote a repository's first record may have died before the list of repositories had it.
    async fn tell_repos(&self, records: &[Record]) {
        if self.wish.dry_run {
            return;
        }
        let repos: BTreeSet<&RepoName> = records.iter().map(|record| &record.id.repo).collect();
        for repo in repos {
            self.sweep.repos.register(self.store(), repo, self.now()).await;
        }
    }

    /// Rows of the index without a record: gone since, or not to be understood.
    async fn missing(&mut self, prs: &[PrId], records: &[Record]) -> Result<(), StoreError> {
        for pr in prs.iter().filter(|pr| records.iter().all(|record| record.id != **pr)) {
            if let Err(error) = self.engine().load(pr, self.now()).await {
                self.unreadable(rows::record_key(pr), error).await?;
            }
        }
        Ok(())
    }

    /// Asks GitHub, and lets the records follow. Answers what is stale all the same.
    async fn verify(&mut self, records: Vec<Record>) -> Result<Vec<(Record, Live)>, Stopped> {
        let wanted: Vec<(PrId, String)> =
            join_all(records.iter().map(|record| self.node_of(record))).await.into_iter().flatten().collect();
        let read = self.sweep.github.snapshots(&wanted, self.policies()).await;
        let mut read: BTreeMap<PrId, Result<Snapshot, Unread>> = read.into_iter().collect();
        let mut stale = Vec::new();
        let mut rest = records.into_iter();
        loop {
            let group: Vec<Record> = rest.by_ref().take(self.at_once()).collect();
            if group.is_empty() {
                return Ok(stale);
            }
            let visits = group.into_iter().map(|record| {
                let unknown = || Err(Unread::Partial { why: "its node id could not be read".to_owned() });
                let snapshot = read.remove(&record.id).unwrap_or_else(unknown);
                self.compare(record, snapshot)
            });
            for told in join_all(visits).await {
                let told = told?;
                self.summary.verified += u32::from(told.asked);
                if told.asked {
                    self.visited.insert(told.pr);
                }
                self.count_events(&told.events);
                match told.verified {
                    Verified::Over(visited) => self.count(&visited),
                    Verified::Stale(record, live) => stale.push((*record, live)),
                }
            }
        }
    }

    /// The id GraphQL knows a pull request by. Records from events that did not carry it are looked up once; what GitHub
    /// shows then brings it along.
    async fn node_of(&self, record: &Record) -> Option<(PrId, String)> {
        let node_id = match &record.node_id {
            Some(node_id) => node_id.clone(),
            None => self.sweep.github.pull(&record.id).await.ok()?.node_id,
        };
        Some((record.id.clone(), node_id))
    }

    /// One record and what GitHub shows.
    async fn compare(&self, record: Record, snapshot: Result<Snapshot, Unread>) -> Result<Told, Stopped> {
        let pr = record.id.clone();
        let snapshot = match snapshot {
            Ok(snapshot) => snapshot,
            Err(unread) => {
                let why = match unread.until() {
                    Some(_) => Skip::RateLimit,
                    None => Skip::Unread,
                };
                if let Unread::Failed(CallError::Unauthorized { .. }) = &unread {
                    warn!(%pr, %unread, "GitHub does not accept our credentials");
                }
                let visited = self.put_off(record, why, unread.to_string(), unread.until()).await?;
                return Ok(Told { pr, verified: Verified::Over(visited), events: Vec::new(), asked: false });
            }
        };
        let live = snapshot.live;
        let mut fact = self.fact(&pr, "verify", Happened::Verified(Box::new(snapshot.clone())));
        fact.occurred_at = snapshot.read_at;
        let applied = match self.settle(record, &fact).await {
            Ok(applied) => applied,
            Err(error) => {
                let visited = self.lost(error)?;
                return Ok(Told { pr, verified: Verified::Over(visited), events: Vec::new(), asked: true });
            }
        };
        if let Some(drift) = applied.events.iter().find(|event| event.kind == EventKind::StateDriftCorrected) {
            info!(%pr, "{}", drift.payload.text);
        }
        if !self.wish.dry_run
            && let Err(error) = replacement::follow(self.engine(), &applied, self.now()).await
        {
            // Asked again when the replacement seems to be missing.
            warn!(%pr, %error, "what has taken its place could not be told");
        }
        let policy = self.policies().for_repo(&pr.repo);
        let verified = match applied.record {
            None => Verified::Over(Visited::Skipped(Skip::Overtaken)),
            Some(record) if record.state.is_terminal() => Verified::Over(Visited::Ended),
            Some(record) if record.is_stale(policy, self.now()) => Verified::Stale(Box::new(record), live),
            Some(_) => Verified::Over(Visited::Healthy),
        };
        Ok(Told { pr, verified, events: applied.events, asked: true })
    }

    /// Not now: the pull request comes back when it is said, or after a growing pause.
    pub(crate) async fn put_off(
        &self,
        record: Record,
        skip: Skip,
        why: String,
        until: Option<Timestamp>,
    ) -> Result<Visited, Stopped> {
        let fact = self.fact(&record.id.clone(), "skip", Happened::Skipped { why, until });
        match self.settle(record, &fact).await {
            Ok(_) => Ok(Visited::Skipped(skip)),
            Err(error) => self.lost(error),
        }
    }

    /// Applies a fact, or in a dry run only finds out what would follow from it.
    pub(crate) async fn settle(&self, record: Record, fact: &Fact) -> Result<Applied, Unsettled> {
        if self.is_stopped().await {
            return Err(Unsettled::Cancelled);
        }
        let now = self.now();
        if !self.wish.dry_run {
            return Ok(self.engine().apply_to(Some(record), fact, now).await?);
        }
        let Decision { outcome, reason, record, events, .. } =
            decide(self.policies().for_repo(&fact.pr.repo), Some(record), fact, now);
        Ok(Applied { outcome, reason, record, events, undelivered: 0, tries: 1, ended_ms: Vec::new() })
    }

    /// What an error means for one pull request. A store that is gone is gone for all.
    pub(crate) fn lost(&self, error: impl Into<Unsettled>) -> Result<Visited, Stopped> {
        let error = match error.into() {
            Unsettled::Engine(error) => error,
            Unsettled::Cancelled => return Ok(Visited::Skipped(Skip::Cancelled)),
        };
        match error {
            EngineError::Contended { .. } => Ok(Visited::Skipped(Skip::Overtaken)),
            EngineError::Store(error @ (StoreError::Unavailable(_) | StoreError::Throttled)) => Err(error),
            EngineError::Store(StoreError::Refused(_) | StoreError::Contended) => Ok(Visited::Skipped(Skip::Overtaken)),
            EngineError::Store(error @ (StoreError::Corrupt(..) | StoreError::TooLarge(_))) => {
                warn!(run = %self.wish.run, %error, "a pull request is left as it is");
                Ok(Visited::Skipped(Skip::Store))
            }
        }
    }

    pub(crate) fn count(&mut self, visited: &Visited) {
        match visited {
            Visited::Healthy => self.summary.healthy += 1,
            Visited::Ended => self.summary.ended += 1,
            Visited::Dispatched(strategy) => self.summary.dispatch(*strategy),
            Visited::Escalated { spent } => {
                self.summary.escalated += 1;
                self.summary.loop_blocked += u32::from(*spent);
            }
            Visited::WouldRemedy => self.summary.would_remedy += 1,
            Visited::WouldEscalate => self.summary.would_escalate += 1,
            Visited::Skipped(why) => self.summary.skip(*why),
        }
    }

    /// Drift, and what was missed.
    fn count_events(&mut self, events: &[Event]) {
        for event in events.iter().filter(|event| event.kind == EventKind::StateDriftCorrected) {
            self.summary.drifted += 1;
            if let Some(missed) = &event.payload.name {
                self.summary.lose(missed);
            }
        }
    }
}
