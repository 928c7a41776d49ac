//! Queries for runs.

use domain::id::{PrId, RunId};
use domain::run::Run;
use platform::publish::Publisher;
use platform::store::queries;
use platform::store::schema;
use platform::store::{Cursor, Store};

use super::{AdminApi, AdminError};
use crate::api_keys::ApiCaller;

impl<S: Store, O: Publisher> AdminApi<S, O> {
    /// A sweep lists pull requests of all repositories: only a caller who can see all of them, or who requested it, can see
    /// its run.
    fn is_visible(caller: &ApiCaller, run: &Run) -> bool {
        match &run.pr {
            Some(pr) => caller.can_see(&pr.repo),
            None => caller.can_see_all() || run.requested_by.as_deref() == Some(caller.name.as_str()),
        }
    }

    pub async fn run(&self, caller: &ApiCaller, id: &RunId) -> Result<Run, AdminError> {
        let run = self.engine.run(id, self.now()).await?;
        let run = run.filter(|run| Self::is_visible(caller, run));
        run.ok_or_else(|| AdminError::NotFound("no such run, or it has expired".to_owned()))
    }

    /// The runs of a pull request, or the sweeps, newest first; and the last one if there may be more.
    pub async fn runs(
        &self,
        caller: &ApiCaller,
        pr: Option<&PrId>,
        after: Option<&RunId>,
        limit: u32,
    ) -> Result<(Vec<Run>, Option<RunId>), AdminError> {
        let pr = match pr {
            Some(pr) => Some(self.record(caller, pr).await?.id),
            None => None,
        };
        let cursor = match after {
            // The cursor names a run, which must belong to this list.
            Some(id) => {
                let run =
                    self.engine.run(id, self.now()).await?.filter(|run| run.pr == pr && Self::is_visible(caller, run));
                let run = run.ok_or_else(|| AdminError::Conflict {
                    code: "BAD_CURSOR",
                    why: "`after` is not a run of this list: start again without `after`".to_owned(),
                })?;
                Some(Cursor { key: schema::run_key(id), sort: schema::sort_time(run.created_at) })
            }
            None => None,
        };
        let page = queries::runs_of(self.store(), pr.as_ref(), cursor, limit, self.now()).await?;
        let next = page.next.and_then(|next| schema::runs_index_entry(&next.key).ok());
        Ok((page.entries.into_iter().filter(|run| Self::is_visible(caller, run)).collect(), next))
    }
}
