//! The details of one pull request: its record, events and runs, read concurrently.

use domain::event::Event;
use domain::id::PrId;
use domain::pull_request::{PullRequest, Vulnerability};
use domain::run::Run;

use super::{AdminApi, AdminError, locked};
use crate::api_keys::ApiCaller;
use platform::publish::Publisher;
use platform::store::queries;
use platform::store::schema;
use platform::store::{Key, Store};

/// How many of the newest events are shown.
const MAX_EVENTS: u32 = 50;
/// How many of the newest runs are shown.
const MAX_RUNS: u32 = 20;

/// Pull requests whose vulnerability is cached.
const MAX_CACHED: usize = 1_000;

/// A pull request with its vulnerability, events and runs.
#[derive(Debug, Clone, PartialEq)]
pub struct PullRequestDetail {
    pub record: PullRequest,
    pub vulnerability: Option<Vulnerability>,
    pub events: Vec<Event>,
    pub runs: Vec<Run>,
}

impl<S: Store, O: Publisher> AdminApi<S, O> {
    pub async fn pull_request_detail(&self, caller: &ApiCaller, pr: &PrId) -> Result<PullRequestDetail, AdminError> {
        if !caller.can_see(&pr.repo) {
            return Err(Self::not_found(pr));
        }
        let detail = self.read_concurrently(caller, pr).await?;
        if detail.record.id == *pr {
            return Ok(detail);
        }
        // The request spelled the repository differently; events and runs are stored under GitHub's spelling.
        let official = detail.record.id;
        self.read_concurrently(caller, &official).await
    }

    async fn read_concurrently(&self, caller: &ApiCaller, pr: &PrId) -> Result<PullRequestDetail, AdminError> {
        let (store, now) = (self.store(), self.now());
        let record = self.record_and_vulnerability(caller, pr);
        let events = async { Ok(queries::events(store, pr, true, None, MAX_EVENTS, now).await?) };
        let runs = async { Ok(queries::runs_of(store, Some(pr), None, MAX_RUNS, now).await?) };
        let ((record, vulnerability), events, runs) = tokio::try_join!(record, events, runs)?;
        Ok(PullRequestDetail { record, vulnerability, events: events.entries, runs: runs.entries })
    }

    /// An open dashboard page repeats this query: the vulnerability is cached from the last time, so that its item is read
    /// together with the record, and a second time only if it has changed.
    async fn record_and_vulnerability(
        &self,
        caller: &ApiCaller,
        pr: &PrId,
    ) -> Result<(PullRequest, Option<Vulnerability>), AdminError> {
        let known = locked(&self.fixes).get(pr).cloned();
        if let Some((base, id)) = known {
            let (record, row) = (schema::record_key(pr), schema::vulnerability_key(&pr.repo, &base, &id));
            let mut found = self.store().get_many(&[record.clone(), row.clone()], self.now()).await?;
            let mut take = |key: &Key| found.iter().position(|(found, _)| found == key).map(|at| found.remove(at).1);
            if let Some(item) = take(&record) {
                let record: PullRequest = schema::read_owned(&record, item)?;
                if (&record.base_branch, record.vulnerability_id.as_ref()) == (&base, Some(&id)) {
                    let vulnerability = take(&row).as_ref().map(schema::vulnerability_of).unwrap_or_default();
                    return Ok((record, Some(vulnerability)));
                }
            }
        }
        let record = self.record(caller, pr).await?;
        let vulnerability = queries::vulnerability_of(self.store(), &record, self.now()).await?;
        let mut fixes = locked(&self.fixes);
        if fixes.len() >= MAX_CACHED {
            fixes.clear();
        }
        if let Some(id) = &record.vulnerability_id {
            fixes.insert(record.id.clone(), (record.base_branch.clone(), id.clone()));
        }
        Ok((record, vulnerability))
    }
}
