//! Paged lists of pull requests and events. A cursor names the last listed item, never a table key, so that an invented
//! cursor gives no access to other items.

use std::cmp::Reverse;

use domain::event::Event;
use domain::id::{PrId, RepoName};
use domain::pull_request::PullRequest;
use domain::state::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AdminApi, AdminError};
use crate::api_keys::ApiCaller;
use platform::publish::Publisher;
use platform::store::queries;
use platform::store::schema::{self, RepoIndexEntry};
use platform::store::{Cursor, Key, Store};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullRequestFilter {
    pub state: Option<State>,
    pub repo: Option<RepoName>,
}

/// The two parts of the stale list, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StaleGroup {
    Stale,
    NeedsIntervention,
}

/// Where a page of stale pull requests ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleCursor {
    pub group: StaleGroup,
    /// The priority of the last pull request, in points.
    pub priority: i64,
    /// Since when it has been in its state.
    pub since: Timestamp,
    pub pr: PrId,
}

/// A page of stale pull requests and, if they were requested, of those that need a person.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StalePullRequests {
    pub stale: Vec<PullRequest>,
    pub needs_intervention: Vec<PullRequest>,
    /// Set if there may be more.
    pub next: Option<StaleCursor>,
}

impl<S: Store, O: Publisher> AdminApi<S, O> {
    /// The repositories that this caller can see: all, or the given one.
    pub(super) async fn visible_repos(
        &self,
        caller: &ApiCaller,
        named: Option<&RepoName>,
    ) -> Result<Vec<RepoName>, AdminError> {
        let known = queries::repos(self.store(), self.now()).await?;
        let Some(named) = named else {
            return Ok(known.into_iter().filter(|repo| caller.can_see(repo)).collect());
        };
        let same = |repo: &RepoName| repo.as_str().eq_ignore_ascii_case(named.as_str()) && caller.can_see(repo);
        match known.into_iter().find(same) {
            Some(repo) => Ok(vec![repo]),
            None => Err(AdminError::NotFound(format!("Suture has no record of the repository {named}"))),
        }
    }

    /// Pull requests by repository, state and number, and the last one if there may be more.
    pub async fn pull_requests(
        &self,
        caller: &ApiCaller,
        filter: &PullRequestFilter,
        after: Option<(PrId, State)>,
        limit: u32,
    ) -> Result<(Vec<PullRequest>, Option<(PrId, State)>), AdminError> {
        let now = self.now();
        let mut found: Vec<RepoIndexEntry> = Vec::new();
        let mut more = false;
        for repo in self.visible_repos(caller, filter.repo.as_ref()).await? {
            let mut cursor = match &after {
                Some((pr, _)) if repo < pr.repo => continue,
                Some((pr, state)) if repo == pr.repo => Some(stale_cursor(pr, *state)),
                Some(_) | None => None,
            };
            loop {
                let wanted = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
                if wanted == 0 {
                    more = true;
                    break;
                }
                let page = queries::pull_requests(self.store(), &repo, filter.state, cursor, wanted, now).await?;
                found.extend(page.entries);
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            if more {
                break;
            }
        }
        let next = found.last().filter(|_| more).map(|last| (last.pr.clone(), last.state));
        let order: Vec<PrId> = found.into_iter().map(|entry| entry.pr).collect();
        let mut records = queries::records(self.store(), &order, now).await?;
        records.sort_by_key(|record| order.iter().position(|pr| *pr == record.id));
        Ok((records, next))
    }

    /// Stale pull requests, most urgent first; then, if `escalated`, those that need a person. All of them, in pages.
    pub async fn stale(
        &self,
        caller: &ApiCaller,
        repo: Option<&RepoName>,
        escalated: bool,
        after: Option<&StaleCursor>,
        limit: u32,
    ) -> Result<StalePullRequests, AdminError> {
        let repos = self.visible_repos(caller, repo).await?;
        let counted = self.overview_counts().await?;
        let visible = |repo: &RepoName| repos.contains(repo);
        let place = |group, entry: &RepoIndexEntry| StaleCursor {
            group,
            priority: entry.priority,
            since: entry.since,
            pr: entry.pr.clone(),
        };
        let key = |place: &StaleCursor| (place.group, Reverse(place.priority), place.since, place.pr.clone());
        let mut places: Vec<StaleCursor> =
            counted.overdue(visible).into_iter().map(|entry| place(StaleGroup::Stale, entry)).collect();
        if escalated {
            let group = StaleGroup::NeedsIntervention;
            places.extend(counted.escalated(visible).into_iter().map(|entry| place(group, entry)));
        }
        if let Some(after) = after {
            places.retain(|place| key(place) > key(after));
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).max(1);
        let mut page = StalePullRequests::default();
        let (mut listed, mut rest) = (0, places.chunks(limit).peekable());
        while let Some(chunk) = rest.next() {
            let prs: Vec<PrId> = chunk.iter().map(|place| place.pr.clone()).collect();
            let records = queries::records(self.store(), &prs, self.now()).await?;
            for (index, place) in chunk.iter().enumerate() {
                let Some(record) = records.iter().find(|record| record.id == place.pr) else { continue };
                if !self.belongs_to(place.group, record) {
                    continue;
                }
                match place.group {
                    StaleGroup::Stale => page.stale.push(record.clone()),
                    StaleGroup::NeedsIntervention => page.needs_intervention.push(record.clone()),
                }
                listed += 1;
                if listed == limit {
                    let is_last = index + 1 == chunk.len() && rest.peek().is_none();
                    page.next = (!is_last).then(|| place.clone());
                    return Ok(page);
                }
            }
        }
        Ok(page)
    }

    /// Whether the record, which may be newer than the index, belongs to this part of the list.
    fn belongs_to(&self, group: StaleGroup, record: &PullRequest) -> bool {
        match group {
            StaleGroup::Stale => record.is_past_threshold(self.engine.policies().for_repo(&record.id.repo), self.now()),
            StaleGroup::NeedsIntervention => record.state == State::NeedsIntervention,
        }
    }

    /// Events of a pull request, and the sort key of the last one if there may be more.
    pub async fn events(
        &self,
        caller: &ApiCaller,
        pr: &PrId,
        backwards: bool,
        after: Option<String>,
        limit: u32,
    ) -> Result<(Vec<Event>, Option<String>), AdminError> {
        let record = self.record(caller, pr).await?;
        let cursor = after.map(|sort| Cursor { key: Key::event(record.id.to_string(), sort.clone()), sort });
        let page = queries::events(self.store(), &record.id, backwards, cursor, limit, self.now()).await?;
        Ok((page.entries, page.next.map(|next| next.sort)))
    }
}

fn stale_cursor(pr: &PrId, state: State) -> Cursor {
    Cursor { key: schema::record_key(pr), sort: schema::state_number(pr, state) }
}
