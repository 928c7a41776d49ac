//! What is asked of a sweep: by a schedule's tick, or by somebody. The same wish has the same name, and is granted once.

use domain::id::{PrId, RepoName, RunId};
use domain::run::RunTrigger;
use jiff::Timestamp;

use crate::idempotency::IdempotencyKey;

/// What a sweep is to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything that is due.
    All,
    /// What is due in one repository.
    Repo(RepoName),
    /// One pull request, due or not.
    One(PrId),
}

/// What is asked of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The name of its run. The same wish has the same name, and is granted once.
    pub run: RunId,
    /// Who holds the lease: different for each process that might do it, so the request's own id.
    pub holder: String,
    /// Where the wish comes from.
    pub trigger: RunTrigger,
    /// Whose wish it is, if a person's.
    pub requested_by: Option<String>,
    /// The key that makes it the same wish (design §6).
    pub key: Option<String>,
    /// What to look at.
    pub scope: Scope,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl Wish {
    /// A tick of a schedule. A slot is one sweep, however often its event comes.
    #[must_use]
    pub fn scheduled(schedule: &str, slot: Timestamp, holder: impl Into<String>) -> Self {
        let minute = domain::breaker::minute_of(slot);
        Self {
            run: RunId::new(format!("{schedule}-{}", minute.strftime("%Y%m%dT%H%MZ"))),
            holder: holder.into(),
            trigger: RunTrigger::Schedule,
            requested_by: None,
            key: Some(IdempotencyKey::scheduler(schedule, minute).as_str().to_owned()),
            scope: Scope::All,
            dry_run: false,
        }
    }

    /// Somebody wants one now.
    #[must_use]
    pub fn requested(run: RunId, scope: Scope, dry_run: bool, holder: impl Into<String>) -> Self {
        let trigger = RunTrigger::AdminApi;
        Self { run, holder: holder.into(), trigger, requested_by: None, key: None, scope, dry_run }
    }
}
