//! Reconcile requests: an item with a date, and an event on the bus so that it begins at once.

use domain::bus::DetailType;
use domain::id::{PrId, RepoName, RunId};
use domain::request::{self, Scope};
use domain::run::RunTrigger;
use platform::outlets::{Content, Outlets, Parcel};
use platform::requests::{self, Taken};
use platform::store::Store;
use serde_json::json;
use tracing::warn;

use crate::api_keys::Caller;
use crate::query::{Desk, DeskError};

/// A sweep that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepAsk {
    /// The name of its run, the same in every repetition.
    pub run: RunId,
    pub repo: Option<RepoName>,
    pub number: Option<u64>,
    /// Of what is open on one base branch only.
    pub base: Option<String>,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl<S: Store, O: Outlets> Desk<S, O> {
    /// Asks for a sweep: its request and its run are there, pending, before anybody is told.
    pub async fn sweep(&self, caller: &Caller, ask: SweepAsk) -> Result<RunId, DeskError> {
        let scope = self.scope(caller, &ask).await?;
        let now = self.now();
        let asked = request::Ask {
            run: ask.run.clone(),
            at: now,
            trigger: RunTrigger::AdminApi,
            requested_by: Some(caller.name.clone()),
        };
        let wanted = (&scope, ask.dry_run);
        match requests::ask(self.store(), self.engine.policies(), wanted, &asked, now).await? {
            // It was asked for before; whether the bus heard of it is not known, and hearing it twice does no harm.
            Taken::Queued(_) | Taken::Known(_) => {}
            // Its run says so.
            Taken::Superseded { .. } => return Ok(ask.run),
            Taken::OverLimit(why) => return Err(DeskError::TooMany(why)),
        }
        let pr = match &scope {
            Scope::One(pr) => Some(pr.number),
            Scope::All | Scope::Repo(_) | Scope::Base(..) => None,
        };
        let detail = json!({
            "repo": scope.repo().map(RepoName::as_str), "pr_number": pr, "base": ask.base, "dry_run": ask.dry_run,
            "run_id": ask.run.as_str(), "requested_by": caller.name,
        });
        let what = Content::Bus { detail_type: DetailType::ReconcileRequested, detail: detail.to_string() };
        if let Err(error) = self.engine.outlets().send_one(Parcel { id: ask.run.to_string(), what }).await {
            // The request has a date: the next sweep grants it.
            warn!(run = %ask.run, %error, "a request waits for the schedule");
        }
        Ok(ask.run)
    }

    /// What is to be swept, as GitHub spells it, if they may ask for that.
    async fn scope(&self, caller: &Caller, ask: &SweepAsk) -> Result<Scope, DeskError> {
        let bad = |why: &str| DeskError::Invalid { code: "BAD_REQUEST", why: why.to_owned() };
        match (&ask.repo, ask.number, &ask.base) {
            (Some(_), Some(_), Some(_)) => Err(bad("give `pr_number` or `base`, not both")),
            (Some(repo), Some(number), None) => {
                Ok(Scope::One(self.record(caller, &PrId::new(repo.clone(), number)).await?.id))
            }
            (Some(repo), None, _) if !caller.sees(repo) => {
                Err(DeskError::NotFound(format!("Suture knows no repository {repo}")))
            }
            (Some(repo), None, base) => {
                let repo = self.spelled(repo).await?.unwrap_or_else(|| repo.clone());
                Ok(base.clone().map_or(Scope::Repo(repo.clone()), |base| Scope::Base(repo, base)))
            }
            (None, Some(_), _) => Err(bad("`pr_number` needs a `repo`")),
            (None, None, Some(_)) => Err(bad("`base` needs a `repo`")),
            (None, None, None) if !caller.sees_all() => {
                Err(DeskError::Forbidden("your key sees some repositories only: name one as `repo`".to_owned()))
            }
            (None, None, None) => Ok(Scope::All),
        }
    }
}
