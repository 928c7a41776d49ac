//! What is asked of a sweep: by a schedule's tick, or by somebody. The same wish has the same name, and is granted once.

use domain::id::RunId;
pub use domain::request::Scope;
use domain::run::RunTrigger;
use jiff::Timestamp;

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
    /// When what it is about happened, if that is known: of two requests for the same the newer counts.
    pub at: Option<Timestamp>,
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
            key: Some(format!("scheduler:{schedule}:{minute}")),
            scope: Scope::All,
            dry_run: false,
            at: Some(slot),
        }
    }

    /// Somebody wants one now.
    #[must_use]
    pub fn requested(run: RunId, scope: Scope, dry_run: bool, holder: impl Into<String>) -> Self {
        let trigger = RunTrigger::AdminApi;
        Self { run, holder: holder.into(), trigger, requested_by: None, key: None, scope, dry_run, at: None }
    }
}
