//! What starts a sweep: the schedule, or somebody's request. The same trigger has the same run id, and so is swept once.

use domain::id::RunId;
pub use domain::request::Scope;
use domain::request::{Asked, Request};
use domain::run::RunTrigger;
use jiff::Timestamp;

/// What starts a sweep, and what it is to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The id of its run: the same in every repetition.
    pub run: RunId,
    /// The lease holder: different for each process that might do it, so the invocation's own id.
    pub holder: String,
    pub trigger: RunTrigger,
    /// The person, if one requested it.
    pub requested_by: Option<String>,
    /// The idempotency key (R-SWEEP-3).
    pub key: Option<String>,
    pub scope: Scope,
    /// Only say what would be done.
    pub dry_run: bool,
    /// When what it is about happened, if that is known: of two requests for the same scope the newer counts.
    pub at: Option<Timestamp>,
}

impl Wish {
    /// A slot of a schedule is one sweep, however often its event comes.
    pub fn scheduled(schedule: &str, slot: Timestamp, holder: impl Into<String>) -> Self {
        let minute = domain::breaker::minute_of(slot);
        Self {
            run: RunId::new(format!("{schedule}-{}", minute.strftime("%Y%m%dT%H%MZ"))),
            holder: holder.into(),
            trigger: RunTrigger::Schedule,
            requested_by: None,
            key: Some(format!("scheduler:{schedule}:{minute}")),
            scope: Scope::All,
            dry_run: false,
            at: Some(slot),
        }
    }

    pub fn requested(run: RunId, scope: Scope, dry_run: bool, holder: impl Into<String>) -> Self {
        let trigger = RunTrigger::AdminApi;
        Self { run, holder: holder.into(), trigger, requested_by: None, key: None, scope, dry_run, at: None }
    }
    /// The sweep of a request that was enqueued before.
    pub(crate) fn enqueued(request: &Request, asked: &Asked, holder: &str) -> Self {
        Self {
            trigger: asked.trigger,
            requested_by: asked.requested_by.clone(),
            at: Some(asked.at),
            ..Self::requested(asked.run.clone(), request.scope.clone(), request.dry_run, holder)
        }
    }
}
