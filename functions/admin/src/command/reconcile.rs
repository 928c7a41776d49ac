//! Reconcile requests: an item with a due date, and an event on the bus so that the sweep starts immediately.

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

/// A requested sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepAsk {
    /// The run id, the same for every repetition of the request.
    pub run: RunId,
    pub repo: Option<RepoName>,
    pub number: Option<u64>,
    /// Only pull requests of this base branch.
    pub base: Option<String>,
    /// Only report what would be done.
    pub dry_run: bool,
}

impl<S: Store, O: Outlets> Desk<S, O> {
    /// Requests a sweep: the request and its pending run are written before the event is sent.
    pub async fn sweep(&self, caller: &Caller, sweep: SweepAsk) -> Result<RunId, DeskError> {
        let scope = self.scope(caller, &sweep).await?;
        let now = self.now();
        let new = request::Ask {
            run: sweep.run.clone(),
            at: now,
            trigger: RunTrigger::AdminApi,
            requested_by: Some(caller.name.clone()),
        };
        let target = (&scope, sweep.dry_run);
        match requests::ask(self.store(), self.engine.policies(), target, &new, now).await? {
            // A known request may lack its event, so it is sent again; a duplicate event is harmless.
            Taken::Queued(_) | Taken::Known(_) => {}
            // The run is marked as superseded.
            Taken::Superseded { .. } => return Ok(sweep.run),
            Taken::OverLimit(why) => return Err(DeskError::TooMany(why)),
        }
        let pr = match &scope {
            Scope::One(pr) => Some(pr.number),
            Scope::All | Scope::Repo(_) | Scope::Base(..) => None,
        };
        let detail = json!({
            "repo": scope.repo().map(RepoName::as_str), "pr_number": pr, "base": sweep.base, "dry_run": sweep.dry_run,
            "run_id": sweep.run.as_str(), "requested_by": caller.name,
        });
        let what = Content::Bus { detail_type: DetailType::ReconcileRequested, detail: detail.to_string() };
        if let Err(error) = self.engine.outlets().send_one(Parcel { id: sweep.run.to_string(), what }).await {
            // The request has a due date: the next scheduled sweep runs it.
            warn!(run = %sweep.run, %error, "cannot send ReconcileRequested; next scheduled sweep runs the request");
        }
        Ok(sweep.run)
    }

    /// The scope of the sweep with GitHub's spelling, if the caller may request it.
    async fn scope(&self, caller: &Caller, sweep: &SweepAsk) -> Result<Scope, DeskError> {
        let bad = |why: &str| DeskError::Invalid { code: "BAD_REQUEST", why: why.to_owned() };
        match (&sweep.repo, sweep.number, &sweep.base) {
            (Some(_), Some(_), Some(_)) => Err(bad("give `pr_number` or `base`, not both")),
            (Some(repo), Some(number), None) => {
                Ok(Scope::One(self.record(caller, &PrId::new(repo.clone(), number)).await?.id))
            }
            (Some(repo), None, _) if !caller.sees(repo) => {
                Err(DeskError::NotFound(format!("Suture has no record of the repository {repo}")))
            }
            (Some(repo), None, base) => {
                let repo = self.spelled(repo).await?.unwrap_or_else(|| repo.clone());
                Ok(base.clone().map_or(Scope::Repo(repo.clone()), |base| Scope::Base(repo, base)))
            }
            (None, Some(_), _) => Err(bad("`pr_number` needs a `repo`")),
            (None, None, Some(_)) => Err(bad("`base` needs a `repo`")),
            (None, None, None) if !caller.sees_all() => Err(DeskError::Forbidden(
                "your key is limited to some repositories: set `repo` to one of them".to_owned(),
            )),
            (None, None, None) => Ok(Scope::All),
        }
    }
}
