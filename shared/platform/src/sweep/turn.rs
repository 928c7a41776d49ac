//! One pull request of a base is brought up to date at a time. Where heads have to be up to date, each merge puts all others behind
//! again: whoever updates them all at once builds them all again and again, until their budgets are spent and a person is
//! called, although nothing is wrong. The first is merged, then the next is updated, once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use domain::id::{PrId, RepoName};
use domain::policy::Policy;
use domain::pull_request::Record;
use domain::state::{State, Strategy};
use jiff::{SignedDuration, Timestamp};

use super::{Pass, after};
use crate::lookup;
use crate::outlets::Outlets;
use crate::store::{Store, StoreError};

/// Who waits for a turn looks again after this long.
const TURN_AGAIN: SignedDuration = SignedDuration::from_mins(2);
/// Pull requests read at a time.
const PAGE: u32 = 100;

/// The bases that this sweep has given a turn on.
pub(super) type Turns = Mutex<BTreeSet<(RepoName, String)>>;

impl<S: Store, O: Outlets> Pass<'_, S, O> {
    /// Whether another one of the same base goes first: why, and when to look again. If none does, the turn is taken.
    pub(super) async fn turn_of(
        &self,
        record: &Record,
        policy: &Policy,
    ) -> Result<Option<(String, Timestamp)>, StoreError> {
        let (now, base) = (self.now(), &record.base_branch);
        let wait =
            |who: &str| Some((format!("{who} is brought up to date with `{base}` first"), after(now, TURN_AGAIN)));
        if let Some(first) = self.on_its_way(record, policy).await? {
            return Ok(wait(&format!("#{}", first.number)));
        }
        let turn = (record.id.repo.clone(), base.clone());
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(if self.wish.dry_run || turns.insert(turn) { None } else { wait("another one") })
    }

    /// Another one of the same base that was brought up to date, and is on its way to be merged.
    async fn on_its_way(&self, record: &Record, policy: &Policy) -> Result<Option<PrId>, StoreError> {
        let now = self.now();
        // As long as checks may take: who is not merged by then has had its turn.
        let patience = policy.threshold(State::ChecksRunning).unwrap_or(SignedDuration::ZERO);
        let is_first = |other: &Record| {
            let updated = other.remediation_action == Some(Strategy::BranchUpdate);
            let lately = other.last_remediation_at.is_some_and(|at| now < after(at, patience));
            let failed = matches!(other.state, State::ChecksFailed | State::PolicyFailed);
            other.id != record.id
                && other.base_branch == record.base_branch
                && other.is_actionable()
                && updated
                && lately
                && !failed
        };
        let mut page_after = None;
        loop {
            let page = lookup::pull_requests(self.store(), &record.id.repo, None, page_after, PAGE, now).await?;
            let live: Vec<PrId> =
                page.entries.into_iter().filter(|listed| listed.state.is_live()).map(|listed| listed.pr).collect();
            let others = if live.is_empty() { Vec::new() } else { lookup::records(self.store(), &live, now).await? };
            if let Some(first) = others.into_iter().filter(is_first).min_by_key(|other| other.last_remediation_at) {
                return Ok(Some(first.id));
            }
            page_after = page.next;
            if page_after.is_none() {
                return Ok(None);
            }
        }
    }
}
