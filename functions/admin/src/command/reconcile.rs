//! Reconcile requests: an item with a due date, and an event on the bus so that the sweep starts immediately.

use domain::bus::DetailType;
use domain::id::{PrId, RepoName, RunId};
use domain::reconcile_request::{NewRequest, ReconcileScope};
use domain::run::RunTrigger;
use platform::publish::{Destination, OutboundMessage, Publisher};
use platform::reconcile_request::{self, EnqueueOutcome};
use platform::store::Store;
use serde_json::json;
use tracing::warn;

use crate::api_keys::ApiCaller;
use crate::query::{AdminApi, AdminError};

/// A requested sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepRequest {
    /// The run id, the same for every repetition of the request.
    pub run: RunId,
    pub repo: Option<RepoName>,
    pub number: Option<u64>,
    /// Only pull requests of this base branch.
    pub base: Option<String>,
    /// Only report what would be done.
    pub dry_run: bool,
}

impl<S: Store, O: Publisher> AdminApi<S, O> {
    /// Requests a sweep: the request and its pending run are written before the event is sent.
    pub async fn sweep(&self, caller: &ApiCaller, sweep: SweepRequest) -> Result<RunId, AdminError> {
        let scope = self.scope(caller, &sweep).await?;
        let now = self.now();
        let new = NewRequest {
            run: sweep.run.clone(),
            at: now,
            trigger: RunTrigger::AdminApi,
            requested_by: Some(caller.name.clone()),
        };
        let target = (&scope, sweep.dry_run);
        match reconcile_request::enqueue(self.store(), self.engine.policies(), target, &new, now).await? {
            // A known request may lack its event, so it is sent again; a duplicate event is harmless.
            EnqueueOutcome::Queued(_) | EnqueueOutcome::AlreadyKnown(_) => {}
            // The run is marked as superseded.
            EnqueueOutcome::Superseded { .. } => return Ok(sweep.run),
            EnqueueOutcome::OverLimit(why) => return Err(AdminError::TooMany(why)),
        }
        let pr = match &scope {
            ReconcileScope::One(pr) => Some(pr.number),
            ReconcileScope::All | ReconcileScope::Repo(_) | ReconcileScope::Base(..) => None,
        };
        let detail = json!({
            "repo": scope.repo().map(RepoName::as_str), "pr_number": pr, "base": sweep.base, "dry_run": sweep.dry_run,
            "run_id": sweep.run.as_str(), "requested_by": caller.name,
        });
        let what = Destination::Bus { detail_type: DetailType::ReconcileRequested, detail: detail.to_string() };
        if let Err(error) =
            self.engine.publisher().send_one(OutboundMessage { id: sweep.run.to_string(), destination: what }).await
        {
            // The request has a due date: the next scheduled sweep runs it.
            warn!(run = %sweep.run, %error, "cannot send ReconcileRequested; next scheduled sweep runs the request");
        }
        Ok(sweep.run)
    }

    /// The scope of the sweep with GitHub's spelling, if the caller may request it.
    async fn scope(&self, caller: &ApiCaller, sweep: &SweepRequest) -> Result<ReconcileScope, AdminError> {
        let bad = |why: &str| AdminError::Invalid { code: "BAD_REQUEST", why: why.to_owned() };
        match (&sweep.repo, sweep.number, &sweep.base) {
            (Some(_), Some(_), Some(_)) => Err(bad("give `pr_number` or `base`, not both")),
            (Some(repo), Some(number), None) => {
                Ok(ReconcileScope::One(self.record(caller, &PrId::new(repo.clone(), number)).await?.id))
            }
            (Some(repo), None, _) if !caller.can_see(repo) => {
                Err(AdminError::NotFound(format!("Suture has no record of the repository {repo}")))
            }
            (Some(repo), None, base) => {
                let repo = self.official_spelling(repo).await?.unwrap_or_else(|| repo.clone());
                Ok(base.clone().map_or(ReconcileScope::Repo(repo.clone()), |base| ReconcileScope::Base(repo, base)))
            }
            (None, Some(_), _) => Err(bad("`pr_number` needs a `repo`")),
            (None, None, Some(_)) => Err(bad("`base` needs a `repo`")),
            (None, None, None) if !caller.can_see_all() => Err(AdminError::Forbidden(
                "your key is limited to some repositories: set `repo` to one of them".to_owned(),
            )),
            (None, None, None) => Ok(ReconcileScope::All),
        }
    }
}
