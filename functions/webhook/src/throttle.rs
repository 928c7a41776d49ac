//! The rate limit of a repository's webhooks: which facts are applied now, and by how long the others are delayed on the queue.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::id::RepoName;
use domain::policy::Policies;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use platform::store::{Key, Store, StoreError};

/// Facts of one webhook that are applied immediately; a commit can be the head of many pull requests.
const MAX_IMMEDIATE: usize = 50;
const WINDOW_SECS: i64 = 60;
/// How long a fact is deferred if its webhook concerns too many pull requests.
const SHORT_DELAY: Duration = Duration::from_secs(10);
/// How long a fact is deferred after write conflicts: until the other reports on its pull request are on the queue too, because the
/// consumer applies all of them together.
pub(crate) const CONFLICT_DELAY: Duration = Duration::from_secs(2);
/// SQS cannot delay a message for longer.
const MAX_DELAY_SECS: u64 = 900;

/// The facts that this process has applied in the current minute without asking the shared counter, by repository. A process asks only
/// when it applies more than a tenth of the limit, so that ordinary traffic needs no request for it; then it adds what it has not counted.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    uncounted: Mutex<BTreeMap<RepoName, UncountedFacts>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct UncountedFacts {
    minute: i64,
    facts: u64,
    /// Whether the process has exceeded its share, and counts everything until the minute ends.
    counting: bool,
}

impl Throttle {
    /// The number to add to the shared counter; `None` while the process is within its share.
    fn to_count(&self, repo: &RepoName, minute: i64, count: u64, limit: u64) -> Option<u64> {
        let mut uncounted = self.uncounted.lock().unwrap_or_else(PoisonError::into_inner);
        uncounted.retain(|_, facts| facts.minute == minute);
        let seen = uncounted.entry(repo.clone()).or_insert(UncountedFacts { minute, ..UncountedFacts::default() });
        seen.facts += count;
        seen.counting |= seen.facts > limit / 10;
        seen.counting.then(|| std::mem::take(&mut seen.facts))
    }

    /// The delay of each fact, with its reason; `None` if it is applied now. Facts above the limit per minute are spread over the
    /// following minutes, so that a burst does not return as a burst.
    pub(crate) async fn delays<S: Store>(
        &self,
        store: &S,
        policies: &Policies,
        repo: &RepoName,
        count: usize,
        now: Timestamp,
    ) -> Result<Vec<Option<(Duration, &'static str)>>, StoreError> {
        let limit = u64::from(policies.for_repo(repo).limits.webhooks_per_minute_per_repo.max(1));
        let minute = now.as_second().div_euclid(WINDOW_SECS);
        let Some(added) = self.to_count(repo, minute, count as u64, limit) else {
            return Ok(spread(count as u64, count, limit, now));
        };
        let ttl = saturating_after(now, SignedDuration::from_secs(2 * WINDOW_SECS));
        let total = store.count(&limit_key(repo, minute), i64::try_from(added).unwrap_or(i64::MAX), ttl, now).await?;
        Ok(spread(u64::try_from(total).unwrap_or(0), count, limit, now))
    }
}

/// The delays of the last `count` of the `total` facts of this minute.
fn spread(total: u64, count: usize, limit: u64, now: Timestamp) -> Vec<Option<(Duration, &'static str)>> {
    let before = total.saturating_sub(count as u64);
    let into_minute = now.as_second().rem_euclid(WINDOW_SECS).unsigned_abs();
    (0..count)
        .map(|n| {
            let position = before + n as u64;
            if position >= limit {
                Some((delay(position, limit, into_minute), "webhook limit per minute of this repository"))
            } else if n >= MAX_IMMEDIATE {
                Some((SHORT_DELAY, "too many pull requests in one delivery"))
            } else {
                None
            }
        })
        .collect()
}

/// The delay of a command on a pull request whose record is expected at this time.
pub(crate) fn delay_until(expected_at: Timestamp, now: Timestamp) -> Duration {
    let wait = Duration::try_from(expected_at.duration_since(now)).unwrap_or_default();
    (wait + SHORT_DELAY).min(Duration::from_secs(MAX_DELAY_SECS))
}

fn limit_key(repo: &RepoName, minute: i64) -> Key {
    Key::state(format!("LIMIT#webhook#{repo}#{minute}"))
}

/// The delay of the `position`th fact of this minute, counted from 0.
fn delay(position: u64, limit: u64, into_minute: u64) -> Duration {
    let window = WINDOW_SECS.unsigned_abs();
    let minutes_later = position / limit;
    let into_that_minute = (position % limit) * window / limit;
    let secs = (minutes_later * window + into_that_minute).saturating_sub(into_minute).clamp(1, MAX_DELAY_SECS);
    Duration::from_secs(secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_counts_when_it_exceeds_a_tenth_of_the_limit() {
        let (throttle, repo) = (Throttle::default(), "acme/shop".parse().unwrap());
        let counted: Vec<_> = (0..6).map(|_| throttle.to_count(&repo, 7, 1, 30)).collect();
        assert_eq!(counted, [None, None, None, Some(4), Some(1), Some(1)]);
        assert_eq!(throttle.to_count(&repo, 8, 1, 30), None, "another minute");
        assert_eq!(throttle.to_count(&repo, 8, 50, 30), Some(51));
        assert_eq!(throttle.to_count(&"acme/api".parse().unwrap(), 8, 1, 9), Some(1), "a small limit is exact");
    }

    #[test]
    fn burst_is_spread_over_the_following_minutes() {
        let delays: Vec<u64> = [30, 31, 59, 60, 75, 90].map(|position| delay(position, 30, 20).as_secs()).into();
        assert_eq!(delays, [40, 42, 98, 100, 130, 160]);
        assert_eq!(delay(1, 1, 59).as_secs(), 1);
        assert_eq!(delay(u64::MAX / 60, 1, 0).as_secs(), 900);
    }
}
