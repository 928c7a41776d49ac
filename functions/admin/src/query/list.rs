//! Paged lists of pull requests and events. A cursor names the last listed item, never a table key, so that an invented
//! cursor gives no access to other items.

use domain::event::Event;
use domain::id::{PrId, RepoName};
use domain::pull_request::Record;
use domain::state::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Desk, DeskError};
use crate::api_keys::Caller;
use platform::lookup;
use platform::outlets::Outlets;
use platform::rows::{self, Listed};
use platform::store::{Cursor, Key, Store};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub state: Option<State>,
    pub repo: Option<RepoName>,
}

/// Where a page of stale pull requests ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StalePlace {
    /// The priority score of the last pull request.
    pub score: i64,
    /// Since when it has been in its state.
    pub since: Timestamp,
    pub pr: PrId,
}

impl<S: Store, O: Outlets> Desk<S, O> {
    /// The repositories that this caller can see: all, or the given one.
    pub(super) async fn listed_repos(
        &self,
        caller: &Caller,
        named: Option<&RepoName>,
    ) -> Result<Vec<RepoName>, DeskError> {
        let known = lookup::repos(self.store(), self.now()).await?;
        let Some(named) = named else {
            return Ok(known.into_iter().filter(|repo| caller.sees(repo)).collect());
        };
        let same = |repo: &RepoName| repo.as_str().eq_ignore_ascii_case(named.as_str()) && caller.sees(repo);
        match known.into_iter().find(same) {
            Some(repo) => Ok(vec![repo]),
            None => Err(DeskError::NotFound(format!("Suture has no record of the repository {named}"))),
        }
    }

    /// Pull requests by repository, state and number, and the last one if there may be more.
    pub async fn pull_requests(
        &self,
        caller: &Caller,
        filter: &Filter,
        after: Option<(PrId, State)>,
        limit: u32,
    ) -> Result<(Vec<Record>, Option<(PrId, State)>), DeskError> {
        let now = self.now();
        let mut found: Vec<Listed> = Vec::new();
        let mut more = false;
        for repo in self.listed_repos(caller, filter.repo.as_ref()).await? {
            let mut cursor = match &after {
                Some((pr, _)) if repo < pr.repo => continue,
                Some((pr, state)) if repo == pr.repo => Some(place(pr, *state)),
                Some(_) | None => None,
            };
            loop {
                let wanted = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
                if wanted == 0 {
                    more = true;
                    break;
                }
                let page = lookup::pull_requests(self.store(), &repo, filter.state, cursor, wanted, now).await?;
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
        let mut records = lookup::records(self.store(), &order, now).await?;
        records.sort_by_key(|record| order.iter().position(|pr| *pr == record.id));
        Ok((records, next))
    }

    /// Stale pull requests by priority, and the position of the last one if there are more.
    pub async fn stale(
        &self,
        caller: &Caller,
        repo: Option<&RepoName>,
        after: Option<&StalePlace>,
        limit: u32,
    ) -> Result<(Vec<Record>, Option<StalePlace>), DeskError> {
        let now = self.now();
        let repos = self.listed_repos(caller, repo).await?;
        let counted = self.counted().await?;
        let place = |record: &Record| StalePlace {
            score: record.priority_score(now),
            since: record.progressed_at,
            pr: record.id.clone(),
        };
        let key = |place: &StalePlace| (std::cmp::Reverse(place.score), place.since, place.pr.clone());
        let follows = |record: &&Record| after.is_none_or(|after| key(&place(record)) > key(after));
        let stale = counted.stuck(|repo| caller.sees(repo), now);
        let mut rest = stale.into_iter().filter(|record| repos.contains(&record.id.repo)).filter(follows);
        let page: Vec<Record> = rest.by_ref().take(limit as usize).cloned().collect();
        let next = rest.next().and_then(|_| page.last().map(place));
        Ok((page, next))
    }

    /// Events of a pull request, and the sort key of the last one if there may be more.
    pub async fn events(
        &self,
        caller: &Caller,
        pr: &PrId,
        backwards: bool,
        after: Option<String>,
        limit: u32,
    ) -> Result<(Vec<Event>, Option<String>), DeskError> {
        let record = self.record(caller, pr).await?;
        let cursor = after.map(|sort| Cursor { key: Key::event(record.id.to_string(), sort.clone()), sort });
        let page = lookup::events(self.store(), &record.id, backwards, cursor, limit, self.now()).await?;
        Ok((page.entries, page.next.map(|next| next.sort)))
    }
}

fn place(pr: &PrId, state: State) -> Cursor {
    Cursor { key: rows::record_key(pr), sort: rows::state_number(pr, state) }
}
