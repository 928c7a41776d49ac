//! The desk: what people ask, answered from the tables, and what they want done, put where it is taken from. It never acts:
//! a command becomes a message for the Car Bridge, a sweep a request with a date. `counts` and `lists` say what there is, `days`
//! what happened, `standing` and `explain` how one pull request is, `asks` and `runs` take what people want.

mod activity;
mod explain;
mod list;
mod overview;
mod pull_request;
mod run;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::{PrId, RepoName};
use domain::pull_request::Record;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use crate::api_keys::Caller;
use platform::clock::Clock;
use platform::engine::{Engine, EngineError};
use platform::github::GitHub;
use platform::jenkins::Jenkins;
use platform::lookup;
use platform::outlets::{Outlets, Undelivered};
use platform::overview::{Counted, Day};
use platform::store::{Store, StoreError};

pub use self::activity::{Advice, Dwell, History};
pub use self::explain::Explained;
pub use self::list::{Filter, StalePlace};
pub use self::pull_request::Standing;

/// How long what was counted may be shown again.
const COUNTED_FOR: SignedDuration = SignedDuration::from_secs(5);

/// Why there is no answer, by what whoever asked can do about it.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum DeskError {
    /// It is not there, or they may not know that it is.
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{why}")]
    Conflict { code: &'static str, why: String },
    /// It does not make sense at all.
    #[error("{why}")]
    Invalid { code: &'static str, why: String },
    /// There is no room for more of it now.
    #[error("{0}")]
    TooMany(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The queue or the bus does not take it. Nothing was promised.
    #[error(transparent)]
    Undelivered(#[from] Undelivered),
}

impl From<EngineError> for DeskError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => Self::Store(error),
            EngineError::Contended { .. } => Self::Store(StoreError::Contended),
        }
    }
}

#[derive(Debug)]
pub struct Desk<S, O> {
    pub(crate) engine: Engine<S, O>,
    clock: Arc<dyn Clock>,
    github: Option<GitHub>,
    jenkins: Option<Jenkins>,
    counted: Mutex<Option<(Timestamp, Arc<Counted>)>>,
    days: Mutex<BTreeMap<Date, (Timestamp, Arc<Day>)>>,
    /// Which vulnerability, on which base, a pull request was last seen to fix: then both rows are read at once.
    fixes: Mutex<BTreeMap<PrId, (String, String)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Store, O: Outlets> Desk<S, O> {
    /// A desk on this engine. Without GitHub nothing is explained live.
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

    pub(crate) fn store(&self) -> &S {
        self.engine.store()
    }

    /// What is not there and what somebody may not see looks the same.
    fn unknown(pr: &PrId) -> DeskError {
        DeskError::NotFound(format!("Suture knows no pull request {pr}: see GET /api/prs for those it knows"))
    }

    /// A pull request that they may see, however its repository was spelled.
    pub(crate) async fn record(&self, caller: &Caller, pr: &PrId) -> Result<Record, DeskError> {
        if !caller.sees(&pr.repo) {
            return Err(Self::unknown(pr));
        }
        let now = self.now();
        if let Some(record) = self.engine.load(pr, now).await? {
            return Ok(record);
        }
        let repo = self.spelled(&pr.repo).await?.filter(|repo| *repo != pr.repo);
        let Some(repo) = repo else { return Err(Self::unknown(pr)) };
        let other = self.engine.load(&PrId::new(repo, pr.number), now).await?;
        other.ok_or_else(|| Self::unknown(pr))
    }

    /// A repository as GitHub spells it, if it is known; people do not care about case.
    pub(crate) async fn spelled(&self, repo: &RepoName) -> Result<Option<RepoName>, StoreError> {
        let known = lookup::repos(self.store(), self.now()).await?;
        Ok(known.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(repo.as_str())))
    }
}
