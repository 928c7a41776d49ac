//! The queries of the admin API, answered from the tables within the scope of the caller's key. `overview` counts pull
//! requests, `list` pages through them, `activity` reads the log by day, `pull_request` and `explain` show one pull
//! request, `run` shows runs. Nothing is written here; see `command` for that.

mod activity;
mod explain;
mod list;
mod overview;
mod pull_request;
mod run;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::{PrId, RepoName};
use domain::pull_request::PullRequest;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use crate::api_keys::ApiCaller;
use platform::clock::Clock;
use platform::engine::{Engine, EngineError};
use platform::github::GitHub;
use platform::jenkins::Jenkins;
use platform::overview::{DayActivity, OverviewCounts};
use platform::publish::{PublishError, Publisher};
use platform::store::queries;
use platform::store::{Store, StoreError};

pub use self::activity::{ActivityHistory, InsightPeriod, StateDwellTime};
pub use self::explain::ExplainResult;
pub use self::list::{PullRequestFilter, StaleCursor, StalePullRequests};
pub use self::pull_request::PullRequestDetail;

/// How long the overview counts are cached.
const OVERVIEW_CACHE: SignedDuration = SignedDuration::from_secs(5);

/// Why a query or a command failed, by what the client can do about it.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AdminError {
    /// Not found, or not visible to the caller.
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{why}")]
    Conflict { code: &'static str, why: String },
    /// Malformed, whatever the current state.
    #[error("{why}")]
    Invalid { code: &'static str, why: String },
    /// A daily limit is reached.
    #[error("{0}")]
    TooMany(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The queue or the event bus is unavailable. Nothing was accepted.
    #[error(transparent)]
    Undelivered(#[from] PublishError),
}

impl From<EngineError> for AdminError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => Self::Store(error),
            EngineError::WriteConflict { .. } => Self::Store(StoreError::TransactionConflict),
        }
    }
}

#[derive(Debug)]
pub struct AdminApi<S, O> {
    pub(crate) engine: Engine<S, O>,
    clock: Arc<dyn Clock>,
    github: Option<GitHub>,
    jenkins: Option<Jenkins>,
    counted: Mutex<Option<(Timestamp, Arc<OverviewCounts>)>>,
    days: Mutex<BTreeMap<Date, (Timestamp, Arc<DayActivity>)>>,
    /// The base branch and the vulnerability of recently read pull requests, so that both items are read in one request.
    fixes: Mutex<BTreeMap<PrId, (String, String)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Store, O: Publisher> AdminApi<S, O> {
    /// Without a GitHub client there are no live explanations.
    pub fn new(engine: Engine<S, O>, clock: Arc<dyn Clock>, github: Option<GitHub>, jenkins: Option<Jenkins>) -> Self {
        let (counted, days, fixes) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { engine, clock, github, jenkins, counted, days, fixes }
    }

    pub fn engine(&self) -> &Engine<S, O> {
        &self.engine
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How many seconds of Suture's clock pass in one real second.
    pub fn clock_speed(&self) -> f64 {
        self.clock.speed()
    }

    pub(crate) fn store(&self) -> &S {
        self.engine.store()
    }

    /// The same error for a pull request that does not exist and one that the caller cannot see.
    fn not_found(pr: &PrId) -> AdminError {
        AdminError::NotFound(format!("Suture has no record of {pr}: GET /api/prs lists all pull requests"))
    }

    /// The record of a pull request that the caller can see; the case of the repository name does not matter.
    pub(crate) async fn record(&self, caller: &ApiCaller, pr: &PrId) -> Result<PullRequest, AdminError> {
        if !caller.can_see(&pr.repo) {
            return Err(Self::not_found(pr));
        }
        let now = self.now();
        if let Some(record) = self.engine.load(pr, now).await? {
            return Ok(record);
        }
        let repo = self.official_spelling(&pr.repo).await?.filter(|repo| *repo != pr.repo);
        let Some(repo) = repo else { return Err(Self::not_found(pr)) };
        let other = self.engine.load(&PrId::new(repo, pr.number), now).await?;
        other.ok_or_else(|| Self::not_found(pr))
    }

    /// A registered repository with GitHub's spelling; the case of the given name does not matter.
    pub(crate) async fn official_spelling(&self, repo: &RepoName) -> Result<Option<RepoName>, StoreError> {
        let known = queries::repos(self.store(), self.now()).await?;
        Ok(known.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(repo.as_str())))
    }
}
