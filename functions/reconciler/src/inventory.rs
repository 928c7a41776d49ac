//! Pull requests that no webhook told us about (R-SWEEP-12): every so often the open pull requests of all
//! repositories are listed, and those of ours that have no record get one. Webhooks that we did not take are
//! redelivered, by the Car Bridge. What was lost is counted by kind.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::event::Happened;
use domain::id::RepoName;
use domain::state::State;
use jiff::SignedDuration;
use platform::engine::{Applied, replacement};
use platform::github::{FailedDelivery, GitHub, Listed};
use platform::guards;
use platform::http::CallError;
use platform::lookup;
use platform::outlets::message::{Chore, Message};
use platform::outlets::{Content, Outlets, Parcel};
use platform::rows;
use platform::store::{Store, StoreError};
use platform::sweep_summary::Summary;
use thiserror::Error;
use tracing::{info, warn};

use crate::context::{SweepContext, after};
use crate::due::defer_undecodable;
use crate::limits::rate_budget::{WorkKind, shed_until};

/// The name under which the next inventory's time is kept.
pub(crate) const INVENTORY: &str = "inventory";
/// GitHub redelivers webhooks for three days.
const REDELIVERABLE: SignedDuration = SignedDuration::from_hours(72);
/// A redelivery is not asked for again for this long.
const REDELIVERY_AGAIN: SignedDuration = SignedDuration::from_hours(6);
/// Redeliveries asked for in one sweep; the rest waits for the next inventory.
const MOST_REDELIVERIES: usize = 100;
/// The queue's group for redeliveries: they belong to no repository.
const ERRANDS: &str = "suture/errands";

/// Why an inventory was not finished.
#[derive(Debug, Error)]
#[error(transparent)]
enum InventoryError {
    Store(#[from] StoreError),
    GitHub(#[from] CallError),
}

struct Inventory<'a, S, O> {
    cx: &'a SweepContext<'a, S, O>,
    owners: &'a [String],
    summary: &'a mut Summary,
}

/// Every Nth sweep, by the time of the last: a sweep that was left out does not put it off for another N. Not while
/// nothing may be dispatched.
pub(crate) async fn run<S: Store, O: Outlets>(
    cx: &SweepContext<'_, S, O>,
    owners: &[String],
    may_dispatch: bool,
    summary: &mut Summary,
) -> Result<(), StoreError> {
    if !may_dispatch || !cx.should_continue(summary).await {
        return Ok(());
    }
    Inventory { cx, owners, summary }.take().await
}

impl<S: Store, O: Outlets> Inventory<'_, S, O> {
    async fn take(&mut self) -> Result<(), StoreError> {
        let now = self.cx.now();
        // A request for everything, or a new installation, does not wait for the next one's time.
        let waits = self.cx.is_scheduled();
        if self.cx.github.not_before().is_some()
            || (waits && guards::held_off(self.cx.store(), INVENTORY, now).await?.is_some())
        {
            return Ok(());
        }
        if shed_until(&self.cx.github.rates(), WorkKind::Inventory, now).is_some() {
            return Ok(());
        }
        match self.adopt_all().await {
            Ok(adopted) => self.summary.adopted = Some(adopted),
            Err(InventoryError::GitHub(error)) => {
                warn!(run = %self.cx.wish.run, %error, "cannot finish the inventory");
                self.summary.fail("inventory", &error);
                return Ok(());
            }
            Err(InventoryError::Store(error)) => return Err(error),
        }
        if !self.summary.partial && !self.summary.cancelled {
            let settings = &self.cx.policies().base().sweep;
            let sweeps = i64::from(settings.every_minutes) * i64::from(settings.inventory_every);
            // A little earlier: the sweep of that very minute is to do it, whatever second it begins in.
            let next = SignedDuration::from_mins(sweeps).saturating_sub(SignedDuration::from_secs(30));
            guards::hold_off(self.cx.store(), INVENTORY, after(now, next), now).await?;
        }
        self.redeliver().await
    }

    async fn adopt_all(&mut self) -> Result<u32, InventoryError> {
        let mut adopted = 0;
        for repo in repositories(self.cx.github, self.owners).await? {
            if !self.cx.should_continue(self.summary).await {
                break;
            }
            let listed = match self.cx.github.open_pulls(&repo, self.cx.policies().for_repo(&repo)).await {
                Ok(listed) => listed,
                // One repository that is not shown to us is not all of them.
                Err(error @ (CallError::Gone { .. } | CallError::Refused { .. })) => {
                    warn!(%repo, %error, "cannot list a repository");
                    self.summary.fail(&format!("inventory of {repo}"), &error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            adopted += self.adopt(&repo, listed).await?;
        }
        Ok(adopted)
    }

    /// Gives a record to what is ours, open, and not known, or known as closed.
    async fn adopt(&mut self, repo: &RepoName, listed: Vec<Listed>) -> Result<u32, StoreError> {
        let policy = self.cx.policies().for_repo(repo);
        let ours: Vec<Listed> = listed.into_iter().filter(|pull| pull.is_ours(policy)).collect();
        if ours.is_empty() {
            return Ok(0);
        }
        let known = self.known(repo).await?;
        let mut adopted = 0;
        for pull in ours {
            match known.get(&pull.id.number) {
                None | Some(State::Closed) => {}
                Some(_) => continue,
            }
            let (vulnerability, base) = (&pull.described.vulnerability_id, &pull.described.base_branch);
            if let Some(id) = vulnerability
                && lookup::vulnerability(self.cx.store(), repo, base, id, self.cx.now()).await?.abandoned
            {
                continue;
            }
            let mut fact = self.cx.fact(&pull.id, "adopt", Happened::Opened(pull.described));
            fact.occurred_at = pull.updated_at.min(fact.occurred_at);
            match self.cx.engine.apply(&fact, self.cx.now()).await {
                Ok(Applied { record: Some(record), reason, .. }) => {
                    info!(pr = %pull.id, reason, "adopted a pull request without a record");
                    self.summary.lose("PR_OPENED");
                    adopted += 1;
                    self.cx.repos.register(self.cx.store(), repo, self.cx.now()).await;
                    if let Err(error) = replacement::link(self.cx.engine, &record, self.cx.now()).await {
                        // Tried again when the replacement seems to be missing.
                        warn!(pr = %pull.id, %error, "cannot link replacement");
                    }
                }
                Ok(_) => {}
                Err(error) => defer_undecodable(self.cx, rows::record_key(&pull.id), error, self.summary).await?,
            }
        }
        Ok(adopted)
    }

    /// The pull requests of a repository that we know, and their states.
    async fn known(&self, repo: &RepoName) -> Result<BTreeMap<u64, State>, StoreError> {
        let listed = lookup::all_pull_requests(self.cx.store(), repo, usize::MAX, self.cx.now()).await?;
        Ok(listed.into_iter().map(|entry| (entry.pr.number, entry.state)).collect())
    }

    /// Webhooks that we did not take are redelivered, if GitHub still has them.
    async fn redeliver(&mut self) -> Result<(), StoreError> {
        let now = self.cx.now();
        let shed = shed_until(&self.cx.github.rates(), WorkKind::Redelivery, now).is_some();
        if !self.cx.github.is_app() || shed || !self.cx.should_continue(self.summary).await {
            return Ok(());
        }
        let since = now.saturating_sub(REDELIVERABLE).unwrap_or(now);
        match self.cx.github.failed_deliveries(since).await {
            Ok(failed) => {
                for delivery in failed.into_iter().take(MOST_REDELIVERIES) {
                    self.request_redelivery(&delivery).await?;
                }
            }
            Err(error) => {
                warn!(run = %self.cx.wish.run, %error, "cannot list failed deliveries");
                self.summary.fail("redelivery", &error);
            }
        }
        Ok(())
    }

    async fn request_redelivery(&mut self, delivery: &FailedDelivery) -> Result<(), StoreError> {
        let now = self.cx.now();
        let name = format!("redelivery-{}", delivery.guid);
        if guards::held_off(self.cx.store(), &name, now).await?.is_some() {
            return Ok(());
        }
        let Ok(repo) = ERRANDS.parse() else { return Ok(()) };
        let message = Message::Chore(Chore::Redeliver { delivery: delivery.id });
        let what = Content::Queue { message, repo, delay: Duration::ZERO };
        let parcel = Parcel { id: format!("redeliver-{}", delivery.id), what };
        if let Err(error) = self.cx.engine.outlets().send_now(parcel).await {
            warn!(delivery = delivery.id, %error, "cannot request a redelivery");
            return Ok(());
        }
        self.summary.redelivered += 1;
        self.summary.lose(&delivery.event);
        guards::hold_off(self.cx.store(), &name, after(now, REDELIVERY_AGAIN), now).await
    }
}

async fn repositories(github: &GitHub, owners: &[String]) -> Result<Vec<RepoName>, CallError> {
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
