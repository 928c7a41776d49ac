//! What nobody told us about (seed 004, step 1): every so often the open pull requests of all repositories are listed, and those
//! of ours that have no record get one. Webhooks that we did not take are asked for again, by the Car Bridge. What was lost
//! is counted by kind.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::event::{Actor, Happened};
use domain::id::RepoName;
use domain::run::RunTrigger;
use domain::state::State;
use jiff::SignedDuration;
use tracing::{info, warn};

use crate::limits::rate_budget::{self, Work};
use crate::sweep::{Pass, after};
use platform::engine::Applied;
use platform::engine::replacement;
use platform::github::{FailedDelivery, Listed};
use platform::guards;
use platform::http::CallError;
use platform::lookup;
use platform::outlets::message::{Chore, Message};
use platform::outlets::{Content, Outlets, Parcel};
use platform::store::{Store, StoreError};

/// The name under which the next inventory's time is kept.
pub(crate) const INVENTORY: &str = "inventory";
/// GitHub redelivers webhooks for three days.
const REDELIVERABLE: SignedDuration = SignedDuration::from_hours(72);
/// A delivery that was asked for again is left alone for this long.
const REDELIVERY_AGAIN: SignedDuration = SignedDuration::from_hours(6);
/// Deliveries asked for again in one sweep; the rest waits for the next inventory.
const MOST_REDELIVERIES: usize = 100;
/// Pull requests of a repository read at a time.
const PAGE: u32 = 1_000;
/// Whose errands these are, to the queue: they belong to no repository.
const ERRANDS: &str = "suture/errands";

impl<S: Store, O: Outlets> Pass<'_, S, O> {
    /// Every Nth sweep, by the time of the last: a sweep that was left out does not put it off for another N.
    pub(crate) async fn inventory(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        let github = &self.sweep.github;
        // Who asks for everything, or has just installed us, does not wait for the next one's time.
        let regular = self.wish.trigger == RunTrigger::Schedule;
        if github.not_before().is_some() || (regular && guards::held_off(self.store(), INVENTORY, now).await?.is_some())
        {
            return Ok(());
        }
        if rate_budget::left_out_until(&github.rates(), Work::Inventory, now).is_some() {
            return Ok(());
        }
        match self.adopt_all().await? {
            Ok(adopted) => self.summary.adopted = Some(adopted),
            Err(error) => {
                warn!(run = %self.wish.run, %error, "the inventory was not finished");
                self.summary.fail("inventory", &error);
                return Ok(());
            }
        }
        if !self.summary.partial && !self.summary.cancelled {
            let settings = &self.policies().base().sweep;
            let sweeps = i64::from(settings.every_minutes) * i64::from(settings.inventory_every);
            // A little earlier: the sweep of that very minute is to do it, whatever second it begins in.
            let next = SignedDuration::from_mins(sweeps).saturating_sub(SignedDuration::from_secs(30));
            guards::hold_off(self.store(), INVENTORY, after(now, next), now).await?;
        }
        self.redeliver().await
    }

    async fn adopt_all(&mut self) -> Result<Result<u32, CallError>, StoreError> {
        let repos = match self.repositories().await {
            Ok(repos) => repos,
            Err(error) => return Ok(Err(error)),
        };
        let mut adopted = 0;
        for repo in repos {
            if !self.goes_on().await {
                break;
            }
            let listed = match self.sweep.github.open_pulls(&repo, self.policies().for_repo(&repo)).await {
                Ok(listed) => listed,
                // One repository that is not shown to us is not all of them.
                Err(error @ (CallError::Gone { .. } | CallError::Refused { .. })) => {
                    warn!(%repo, %error, "a repository cannot be listed");
                    self.summary.fail(&format!("inventory of {repo}"), &error);
                    continue;
                }
                Err(error) => return Ok(Err(error)),
            };
            adopted += self.adopt(&repo, listed).await?;
        }
        Ok(Ok(adopted))
    }

    async fn repositories(&self) -> Result<Vec<RepoName>, CallError> {
        let github = &self.sweep.github;
        let mut owners = self.sweep.owners.clone();
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

    /// Gives a record to what is ours, open, and not known, or known as closed.
    async fn adopt(&mut self, repo: &RepoName, listed: Vec<Listed>) -> Result<u32, StoreError> {
        let policy = self.policies().for_repo(repo);
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
            if let Some(id) = &pull.described.vulnerability_id
                && lookup::vulnerability(self.store(), repo, &pull.described.base_branch, id, self.now())
                    .await?
                    .abandoned
            {
                continue;
            }
            let mut fact = self.fact(&pull.id, "adopt", Happened::Opened(pull.described));
            fact.occurred_at = pull.updated_at.min(fact.occurred_at);
            fact.actor = Actor::Reconciler;
            match self.engine().apply(&fact, self.now()).await {
                Ok(Applied { record: Some(record), reason, .. }) => {
                    info!(pr = %pull.id, reason, "adopted: nobody had told us about it");
                    self.summary.lose("PR_OPENED");
                    adopted += 1;
                    self.sweep.repos.register(self.store(), repo, self.now()).await;
                    if let Err(error) = replacement::link(self.engine(), &record, self.now()).await {
                        // Asked again when the replacement seems to be missing.
                        warn!(pr = %pull.id, %error, "it may replace another, which could not be told");
                    }
                }
                Ok(_) => {}
                Err(error) => self.unreadable(platform::rows::record_key(&pull.id), error).await?,
            }
        }
        Ok(adopted)
    }

    /// The pull requests of a repository that we know, and their states.
    async fn known(&self, repo: &RepoName) -> Result<BTreeMap<u64, State>, StoreError> {
        let mut known = BTreeMap::new();
        let mut after = None;
        loop {
            let page = lookup::pull_requests(self.store(), repo, None, after, PAGE, self.now()).await?;
            known.extend(page.entries.into_iter().map(|entry| (entry.pr.number, entry.state)));
            after = page.next;
            if after.is_none() {
                return Ok(known);
            }
        }
    }

    /// Webhooks that we did not take are delivered again, if GitHub still has them.
    async fn redeliver(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        let github = &self.sweep.github;
        let scarce = rate_budget::left_out_until(&github.rates(), Work::Redelivery, now).is_some();
        if !github.is_app() || scarce || !self.goes_on().await {
            return Ok(());
        }
        let since = now.saturating_sub(REDELIVERABLE).unwrap_or(now);
        let failed = match github.failed_deliveries(since).await {
            Ok(failed) => failed,
            Err(error) => {
                warn!(run = %self.wish.run, %error, "failed deliveries could not be listed");
                self.summary.fail("redelivery", &error);
                return Ok(());
            }
        };
        for delivery in failed.into_iter().take(MOST_REDELIVERIES) {
            self.ask_for(&delivery).await?;
        }
        Ok(())
    }

    async fn ask_for(&mut self, delivery: &FailedDelivery) -> Result<(), StoreError> {
        let now = self.now();
        let name = format!("redelivery-{}", delivery.guid);
        if guards::held_off(self.store(), &name, now).await?.is_some() {
            return Ok(());
        }
        let Ok(repo) = ERRANDS.parse() else { return Ok(()) };
        let message = Message::Chore(Chore::Redeliver { delivery: delivery.id });
        let what = Content::Queue { message, repo, delay: Duration::ZERO };
        let parcel = Parcel { id: format!("redeliver-{}", delivery.id), what };
        if let Err(error) = self.engine().outlets().send_now(parcel).await {
            warn!(delivery = delivery.id, %error, "a redelivery could not be asked for");
            return Ok(());
        }
        self.summary.redelivered += 1;
        self.summary.lose(&delivery.event);
        guards::hold_off(self.store(), &name, after(now, REDELIVERY_AGAIN), now).await
    }
}
