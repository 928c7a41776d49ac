//! Queries for runs.

use domain::id::{PrId, RunId};
use domain::run::Run;
use platform::outlets::Outlets;
use platform::store::{Cursor, Store};
use platform::{lookup, rows};

use super::{Desk, DeskError};
use crate::api_keys::Caller;

impl<S: Store, O: Outlets> Desk<S, O> {
    /// A sweep lists pull requests of all repositories: only a caller who can see all of them, or who requested it, can see
    /// its run.
    fn shows(caller: &Caller, run: &Run) -> bool {
        match &run.pr {
            Some(pr) => caller.sees(&pr.repo),
            None => caller.sees_all() || run.requested_by.as_deref() == Some(caller.name.as_str()),
        }
    }

    pub async fn run(&self, caller: &Caller, id: &RunId) -> Result<Run, DeskError> {
        let run = self.engine.run(id, self.now()).await?;
        let run = run.filter(|run| Self::shows(caller, run));
        run.ok_or_else(|| DeskError::NotFound("no such run, or it has expired".to_owned()))
    }

    /// The runs of a pull request, or the sweeps, newest first; and the last one if there may be more.
    pub async fn runs(
        &self,
        caller: &Caller,
        pr: Option<&PrId>,
        after: Option<&RunId>,
        limit: u32,
    ) -> Result<(Vec<Run>, Option<RunId>), DeskError> {
        let pr = match pr {
            Some(pr) => Some(self.record(caller, pr).await?.id),
            None => None,
        };
        let cursor = match after {
            // The cursor names a run, which must belong to this list.
            Some(id) => {
                let run = self.engine.run(id, self.now()).await?.filter(|run| run.pr == pr && Self::shows(caller, run));
                let run = run.ok_or_else(|| DeskError::Conflict {
                    code: "BAD_CURSOR",
                    why: "`after` is not a run of this list: start again without `after`".to_owned(),
                })?;
                Some(Cursor { key: rows::run_key(id), sort: rows::sortable(run.created_at) })
            }
            None => None,
        };
        let page = lookup::runs_of(self.store(), pr.as_ref(), cursor, limit, self.now()).await?;
        let next = page.next.and_then(|next| rows::listed_run(&next.key).ok());
        Ok((page.entries.into_iter().filter(|run| Self::shows(caller, run)).collect(), next))
    }
}
