//! One pull request of a base is brought up to date at a time. Where heads have to be up to date, each merge puts all others behind
//! again: whoever updates them all at once builds them all again and again, until their budgets are spent and a person is
//! called, although nothing is wrong. The first is merged, then the next is updated, once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use domain::id::{PrId, RepoName};
use domain::policy::Policy;
use domain::pull_request::Record;
use domain::state::{State, Strategy};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use crate::sweep::{Pass, after};
use platform::lookup;
use platform::outlets::Outlets;
use platform::store::{Store, StoreError};

/// Who waits for a turn looks again after this long, once for each place in the line.
const TURN_AGAIN: SignedDuration = SignedDuration::from_mins(2);
/// Nobody waits for longer than this many places. (A merge is heard of by all of its base, and then all look again.)
const MOST_PLACES: i32 = 10;

/// The lines that this sweep has seen, by base.
pub(crate) type Turns = Mutex<BTreeMap<(RepoName, String), Line>>;

/// Who waits to be brought up to date with a base.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Those whose turn it is, the first one first: up to date, and on their way to be merged.
    on_their_way: Vec<PrId>,
    /// Whether this sweep has given somebody a turn.
    given: bool,
    /// How many this sweep has told to wait; those of the highest rank come first.
    waiting: i32,
}

impl<S: Store, O: Outlets> Pass<'_, S, O> {
    /// Whether another one of the same base goes first: why, and when to look again. If none does, the turn is taken.
    pub(crate) async fn turn_of(
        &self,
        record: &Record,
        policy: &Policy,
    ) -> Result<Option<(String, Timestamp)>, StoreError> {
        let base = &record.base_branch;
        // Held while the line is read: it is read once in a sweep, however many wait.
        let mut turns = self.turns.lock().await;
        let line = match turns.entry((record.id.repo.clone(), base.clone())) {
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(place) => {
                let on_their_way = self.on_their_way(&record.id.repo, base, policy).await?;
                place.insert(Line { on_their_way, ..Line::default() })
            }
        };
        let first = line.on_their_way.iter().find(|other| **other != record.id);
        let who = match first {
            Some(first) => format!("#{}", first.number),
            None if line.given => "another one".to_owned(),
            None => {
                line.given = !self.wish.dry_run;
                return Ok(None);
            }
        };
        line.waiting = line.waiting.saturating_add(1);
        let until = after(self.now(), TURN_AGAIN.saturating_mul(line.waiting.min(MOST_PLACES)));
        Ok(Some((format!("{who} is brought up to date with `{base}` first"), until)))
    }

    /// Those of a base that were brought up to date, and are on their way to be merged.
    async fn on_their_way(&self, repo: &RepoName, base: &str, policy: &Policy) -> Result<Vec<PrId>, StoreError> {
        let now = self.now();
        // As long as checks may take: who is not merged by then has had its turn.
        let patience = policy.threshold(State::ChecksRunning).unwrap_or(SignedDuration::ZERO);
        let mut found = lookup::on_base(self.store(), repo, base, now).await?;
        found.retain(|record| {
            let updated = record.remediation_action == Some(Strategy::BranchUpdate);
            let lately = record.last_remediation_at.is_some_and(|at| now < after(at, patience));
            let failed = matches!(record.state, State::ChecksFailed | State::PolicyFailed);
            record.is_actionable() && updated && lately && !failed
        });
        found.sort_by_key(|record| record.last_remediation_at);
        Ok(found.into_iter().map(|record| record.id).collect())
    }
}
