//! Finds pull requests whose webhooks were missed (R-SWEEP-12): every few sweeps the open pull requests of all
//! repositories are listed, and managed ones without a record are adopted. Missed events are counted by kind.

use std::collections::BTreeMap;

use domain::event::FactKind;
use domain::id::RepoName;
use domain::pull_request::PullRequest;
use domain::state::State;
use jiff::{SignedDuration, Timestamp};
use platform::engine::ApplyResult;
use platform::engine::ingest::apply_fact;
use platform::github::{GitHub, ListedPullRequest};
use platform::publish::Publisher;
use platform::store::not_before;
use platform::store::queries;
use platform::store::schema;
use platform::store::{Store, StoreError};
use platform::sweep_summary::SweepSummary;
use platform::transport::ApiError;
use thiserror::Error;
use tracing::{info, warn};

use crate::context::{SweepContext, saturating_after};
use crate::due::defer_undecodable;
use crate::limits::gates::SweepRows;
use crate::limits::rate_budget::{WorkKind, shed_until};
use crate::redelivery;

/// The name under which the time of the next inventory is stored.
pub(crate) const INVENTORY: &str = "inventory";

/// Why an inventory was not finished.
#[derive(Debug, Error)]
#[error(transparent)]
pub(crate) enum InventoryError {
    Store(#[from] StoreError),
    GitHub(#[from] ApiError),
}

struct Inventory<'a, S, O> {
    cx: &'a SweepContext<'a, S, O>,
    owners: &'a [String],
    summary: &'a mut SweepSummary,
}

/// Runs every Nth sweep, by the time of the last inventory: a missed sweep does not postpone it by another N. Does not
/// run while dispatching is blocked.
pub(crate) async fn run<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    owners: &[String],
    rows: Option<&SweepRows>,
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    let may_dispatch = |rows: &&SweepRows| rows.gates().put_off(cx.now()).is_none();
    let Some(rows) = rows.filter(may_dispatch) else { return Ok(()) };
    // A request for everything, or a new installation, does not wait until the next inventory is due.
    if (cx.is_scheduled() && rows.inventory_not_before.is_some()) || !cx.should_continue(summary).await {
        return Ok(());
    }
    Inventory { cx, owners, summary }.run().await
}

/// Adopts the open pull requests of one repository that have no record.
pub(crate) async fn adopt_open<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    repo: &RepoName,
    summary: &mut SweepSummary,
) -> Result<(), InventoryError> {
    let listed = cx.github.open_pulls(repo, cx.policies().for_repo(repo)).await?;
    Inventory { cx, owners: &[], summary }.adopt(repo, listed).await?;
    Ok(())
}

/// Adopts the pull requests of the same vulnerability that were opened and closed since `since` without a record. They
/// are adopted as open; their first visit asks GitHub and finds the merge or the close.
pub(crate) async fn adopt_closed<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    old: &PullRequest,
    since: Timestamp,
    summary: &mut SweepSummary,
) -> Result<(), InventoryError> {
    let repo = &old.id.repo;
    let mut listed = cx.github.closed_pulls(repo, cx.policies().for_repo(repo), since).await?;
    listed.retain(|pull| {
        let (described, number) = (&pull.described, pull.id.number);
        let same = described.vulnerability_id == old.vulnerability_id && described.base_branch == old.base_branch;
        same && number > old.id.number
    });
    let mut inventory = Inventory { cx, owners: &[], summary };
    let known = inventory.known_states(repo).await?;
    listed.retain(|pull| !known.contains_key(&pull.id.number));
    inventory.adopt(repo, listed).await?;
    Ok(())
}

impl<S: Store, O: Publisher> Inventory<'_, S, O> {
    async fn run(&mut self) -> Result<(), StoreError> {
        let now = self.cx.now();
        if self.cx.github.not_before().is_some() {
            return Ok(());
        }
        if shed_until(&self.cx.github.rate_limits(), WorkKind::Inventory, now).is_some() {
            return Ok(());
        }
        match self.adopt_all().await {
            Ok(adopted) => self.summary.adopted = Some(adopted),
            Err(InventoryError::GitHub(error)) => {
                warn!(run = %self.cx.trigger.run, %error, "cannot finish the inventory");
                self.summary.fail("inventory", &error);
                self.summary.github_error = Some(error.to_string());
                return Ok(());
            }
            Err(InventoryError::Store(error)) => return Err(error),
        }
        if !self.summary.partial && !self.summary.cancelled {
            let settings = &self.cx.policies().base().sweep;
            let sweeps = i64::from(settings.every_minutes) * i64::from(settings.inventory_every);
            // Half a minute earlier, so that the sweep of that minute runs it whichever second it starts in.
            let next = SignedDuration::from_mins(sweeps).saturating_sub(SignedDuration::from_secs(30));
            not_before::set(self.cx.store(), INVENTORY, saturating_after(now, next), now).await?;
        }
        redelivery::run(self.cx, self.summary).await
    }

    async fn adopt_all(&mut self) -> Result<u32, InventoryError> {
        let mut adopted = 0;
        for repo in repositories(self.cx.github, self.owners).await? {
            if !self.cx.should_continue(self.summary).await {
                break;
            }
            let listed = match self.cx.github.open_pulls(&repo, self.cx.policies().for_repo(&repo)).await {
                Ok(listed) => listed,
                // One inaccessible repository does not end the inventory.
                Err(error @ (ApiError::NotFound { .. } | ApiError::Refused { .. })) => {
                    warn!(%repo, %error, "cannot list open pull requests");
                    self.summary.fail(&format!("inventory of {repo}"), &error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            adopted += self.adopt(&repo, listed).await?;
        }
        Ok(adopted)
    }

    /// Creates a record for each managed open pull request that has none or is recorded as closed.
    async fn adopt(&mut self, repo: &RepoName, listed: Vec<ListedPullRequest>) -> Result<u32, StoreError> {
        let policy = self.cx.policies().for_repo(repo);
        let managed: Vec<ListedPullRequest> = listed.into_iter().filter(|pull| pull.is_managed(policy)).collect();
        if managed.is_empty() {
            return Ok(0);
        }
        let known = self.known_states(repo).await?;
        let mut adopted = 0;
        for pull in managed {
            match known.get(&pull.id.number) {
                None | Some(State::Closed) => {}
                Some(_) => continue,
            }
            let (vulnerability, base) = (&pull.described.vulnerability_id, &pull.described.base_branch);
            if let Some(id) = vulnerability
                && queries::vulnerability(self.cx.store(), repo, base, id, self.cx.now()).await?.abandoned
            {
                continue;
            }
            let mut fact = self.cx.fact(&pull.id, "adopt", FactKind::Opened(pull.described));
            fact.occurred_at = pull.updated_at.min(fact.occurred_at);
            match apply_fact(self.cx.engine, self.cx.repos, None, &fact, self.cx.now()).await {
                Ok(ApplyResult { record: Some(_), reason, .. }) => {
                    info!(pr = %pull.id, reason, "adopted a pull request without a record");
                    self.summary.count_failure("PR_OPENED");
                    adopted += 1;
                }
                Ok(_) => {}
                Err(error) => defer_undecodable(self.cx, schema::record_key(&pull.id), error, self.summary).await?,
            }
        }
        Ok(adopted)
    }

    /// The states of the recorded pull requests of a repository, by number.
    async fn known_states(&self, repo: &RepoName) -> Result<BTreeMap<u64, State>, StoreError> {
        let listed = queries::all_pull_requests(self.cx.store(), repo, usize::MAX, self.cx.now()).await?;
        Ok(listed.into_iter().map(|entry| (entry.pr.number, entry.state)).collect())
    }
}

async fn repositories(github: &GitHub, owners: &[String]) -> Result<Vec<RepoName>, ApiError> {
    let mut owners = owners.to_vec();
    if github.is_app() {
        owners.extend(github.installations().await?.into_iter().map(|installation| installation.owner));
    }
    owners.sort_by_key(|owner| owner.to_ascii_lowercase());
    owners.dedup_by(|one, other| one.eq_ignore_ascii_case(other));
    let mut repos = Vec::new();
    for owner in owners {
        repos.extend(github.repositories(&owner).await?);
    }
    Ok(repos)
}
