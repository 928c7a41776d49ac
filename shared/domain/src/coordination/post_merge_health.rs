//! Health checks after merges. Each sweep checks every target while a merge is being watched or a check fails. A number of
//! failed checks in a row is an outage, with one key, one list of likely merges and one issue; as many passed checks end it.
//! A merge is verified when its watch time ends without an outage.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::id::{PrId, RepoName};
use crate::policy::PostMergeHealth;
use crate::time::saturating_after;

/// The least time between two checks: two sweeps at the same time must not count twice.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Merges older than this are ignored; the decisions about newer ones are stored.
pub const MAX_MERGE_AGE: SignedDuration = SignedDuration::from_hours(24);
/// The most merges that are stored, and that an issue names.
const MAX_JUDGED: usize = 1_000;
const MAX_SUSPECTS: usize = 20;
/// The request for a missing issue is repeated after this time.
const RETRY_ISSUE_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// A merge that may have caused an outage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WatchedMerge {
    pub at: Timestamp,
    pub pr: PrId,
}

/// The result of one check of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthResult {
    /// Every URL returned 200.
    Healthy,
    /// At least one URL failed: which, and how.
    Unhealthy(String),
}

/// What is stored about a target between two checks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthWatch {
    pub checked_at: Option<Timestamp>,
    /// Failed checks in a row.
    pub failures_in_a_row: u32,
    /// When the first of them was.
    pub failing_since: Option<Timestamp>,
    /// Passed checks in a row since the last failed one.
    pub successes_in_a_row: u32,
    /// The ongoing outage, or the last one.
    pub outage: Option<HealthOutage>,
    /// Merges that are verified or suspected of an outage, with their times.
    pub judged: BTreeMap<String, Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthOutage {
    /// Unique per outage.
    pub key: String,
    /// The time of the first failed check.
    pub since: Timestamp,
    pub what: String,
    pub issue_repo: RepoName,
    /// The merges that may have caused it, the newest first.
    pub suspects: Vec<WatchedMerge>,
    /// When the issue was last requested.
    pub requested_at: Option<Timestamp>,
    pub over_at: Option<Timestamp>,
}

impl HealthOutage {
    /// Whether to request the issue now, because it does not exist yet.
    pub fn needs_issue(&self, now: Timestamp) -> bool {
        self.requested_at.is_none_or(|at| now >= saturating_after(at, RETRY_ISSUE_AFTER))
    }
}

/// The decision after a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthDecision {
    pub watch: HealthWatch,
    pub verified: Vec<WatchedMerge>,
    pub outage_began: bool,
    pub outage_ended: bool,
}

fn watch_for(settings: &PostMergeHealth) -> SignedDuration {
    SignedDuration::from_mins(settings.watch_minutes.into())
}

/// When the watch time of a merge ends.
pub fn watched_until(merge: &WatchedMerge, settings: &PostMergeHealth) -> Timestamp {
    saturating_after(merge.at, watch_for(settings))
}

impl HealthWatch {
    /// Whether a check is needed: a merge is not judged yet, or the last check failed, or an outage is ongoing.
    pub fn needs_check(&self, merges: &[WatchedMerge], now: Timestamp) -> bool {
        let interval_over = self.checked_at.is_none_or(|at| now >= saturating_after(at, MIN_INTERVAL));
        let failing = self.failures_in_a_row > 0 || self.ongoing_outage().is_some();
        interval_over && (failing || merges.iter().any(|merge| self.is_open(merge, now)))
    }

    /// The ongoing outage, if any.
    pub fn ongoing_outage(&self) -> Option<&HealthOutage> {
        self.outage.as_ref().filter(|outage| outage.over_at.is_none())
    }

    fn is_open(&self, merge: &WatchedMerge, now: Timestamp) -> bool {
        saturating_after(merge.at, MAX_MERGE_AGE) > now && !self.judged.contains_key(&merge.pr.to_string())
    }

    /// Applies the result of one check. `name` is the name of the target.
    pub fn apply_check(
        mut self,
        name: &str,
        look: &HealthResult,
        merges: &[WatchedMerge],
        settings: &PostMergeHealth,
        now: Timestamp,
    ) -> HealthDecision {
        self.checked_at = Some(now);
        self.judged.retain(|_, at| saturating_after(*at, MAX_MERGE_AGE) > now);
        let (mut begun, mut ended, mut verified) = (false, false, Vec::new());
        match look {
            HealthResult::Unhealthy(what) => {
                self.successes_in_a_row = 0;
                self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
                let since = *self.failing_since.get_or_insert(now);
                if self.failures_in_a_row >= settings.failures_in_a_row && self.ongoing_outage().is_none() {
                    begun = self.begin(name, what, since, merges, settings);
                }
            }
            HealthResult::Healthy => {
                self.failures_in_a_row = 0;
                self.failing_since = None;
                self.successes_in_a_row = self.successes_in_a_row.saturating_add(1);
                ended = self.end(settings, now);
                verified = self.judge(merges, settings, now);
            }
        }
        HealthDecision { watch: self, verified, outage_began: begun, outage_ended: ended }
    }

    /// Begins an outage. The merges that were being watched at its first failed check become suspects, and so are judged.
    fn begin(
        &mut self,
        name: &str,
        what: &str,
        since: Timestamp,
        merges: &[WatchedMerge],
        settings: &PostMergeHealth,
    ) -> bool {
        let watched = |merge: &&WatchedMerge| merge.at <= since && watched_until(merge, settings) >= since;
        let mut suspects: Vec<WatchedMerge> = merges.iter().filter(watched).cloned().collect();
        // Merges whose webhooks came late may all be past their watch time, but one of them is the reason for the check.
        if suspects.is_empty() {
            suspects = merges.iter().filter(|merge| self.is_open(merge, since)).cloned().collect();
        }
        suspects.sort_by(|one, other| other.cmp(one));
        let Some(issue_repo) =
            settings.issue_repo.parse().ok().or_else(|| suspects.first().map(|first| first.pr.repo.clone()))
        else {
            return false;
        };
        for merge in &suspects {
            self.remember(merge);
        }
        suspects.truncate(MAX_SUSPECTS);
        let (key, what) = (format!("outage-{name}-{}", since.as_second()), what.to_owned());
        self.outage = Some(HealthOutage { key, since, what, issue_repo, suspects, requested_at: None, over_at: None });
        true
    }

    fn end(&mut self, settings: &PostMergeHealth, now: Timestamp) -> bool {
        let enough = self.successes_in_a_row >= settings.failures_in_a_row;
        match self.outage.as_mut().filter(|outage| outage.over_at.is_none() && enough) {
            Some(outage) => {
                outage.over_at = Some(now);
                true
            }
            None => false,
        }
    }

    /// Verifies merges whose watch time is over, if there is no outage. Not earlier: an early 200 may come from the old
    /// version.
    fn judge(&mut self, merges: &[WatchedMerge], settings: &PostMergeHealth, now: Timestamp) -> Vec<WatchedMerge> {
        if self.ongoing_outage().is_some() {
            return Vec::new();
        }
        let over = |merge: &&WatchedMerge| self.is_open(merge, now) && watched_until(merge, settings) <= now;
        let verified: Vec<WatchedMerge> = merges.iter().filter(over).cloned().collect();
        for merge in &verified {
            self.remember(merge);
        }
        verified
    }

    fn remember(&mut self, merge: &WatchedMerge) {
        self.judged.insert(merge.pr.to_string(), merge.at);
        while self.judged.len() > MAX_JUDGED {
            let Some(oldest) = self.judged.iter().min_by_key(|(_, at)| **at).map(|(pr, _)| pr.clone()) else { break };
            self.judged.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(minute: i64) -> Timestamp {
        Timestamp::from_second(1_772_000_000 + 60 * minute).unwrap()
    }

    fn merge(number: u64, at: i64) -> WatchedMerge {
        WatchedMerge { at: minute(at), pr: PrId::new("acme/shop".parse().unwrap(), number) }
    }

    fn sick() -> HealthResult {
        HealthResult::Unhealthy("https://shop.example answered 500".to_owned())
    }

    fn numbers(merges: &[WatchedMerge]) -> Vec<u64> {
        merges.iter().map(|merge| merge.pr.number).collect()
    }

    /// Applies one check per minute, as sweeps would; returns the decisions.
    fn looks(
        watch: &mut HealthWatch,
        merges: &[WatchedMerge],
        from: i64,
        looks: &[HealthResult],
    ) -> Vec<HealthDecision> {
        let settings = PostMergeHealth::default();
        let mut all = Vec::new();
        for (n, look) in looks.iter().enumerate() {
            let now = minute(from + i64::try_from(n).unwrap());
            let looked = watch.clone().apply_check("shop", look, merges, &settings, now);
            *watch = looked.watch.clone();
            all.push(looked);
        }
        all
    }

    #[test]
    fn merge_is_verified_once_at_the_end_of_its_watch() {
        let (mut watch, merges) = (HealthWatch::default(), [merge(1, 0), merge(2, 10)]);
        assert!(watch.needs_check(&merges, minute(1)));
        let early = looks(&mut watch, &merges, 1, &vec![HealthResult::Healthy; 29]);
        assert!(early.iter().all(|looked| looked.verified.is_empty()), "the old version may have answered");
        let at_the_end = looks(&mut watch, &merges, 30, &[HealthResult::Healthy, HealthResult::Healthy]);
        assert_eq!(at_the_end.iter().map(|looked| numbers(&looked.verified)).collect::<Vec<_>>(), [vec![1], vec![]]);
        assert!(watch.needs_check(&merges, minute(33)));
        assert_eq!(numbers(&looks(&mut watch, &merges, 40, &[HealthResult::Healthy])[0].verified), [2]);
        assert!(!watch.needs_check(&merges, minute(60)), "every merge is judged");
    }

    #[test]
    fn outage_begins_after_two_failed_checks_in_a_row() {
        let (mut watch, merges) = (HealthWatch::default(), [merge(1, -40), merge(2, 0), merge(3, 2), merge(4, 9)]);
        let looked = looks(
            &mut watch,
            &merges,
            3,
            &[HealthResult::Healthy, sick(), HealthResult::Healthy, sick(), sick(), sick()],
        );
        let begun: Vec<bool> = looked.iter().map(|looked| looked.outage_began).collect();
        assert_eq!(begun, [false, false, false, false, true, false]);
        let outage = watch.ongoing_outage().unwrap();
        assert_eq!((outage.since, outage.key.as_str()), (minute(6), "outage-shop-1772000360"));
        assert_eq!(numbers(&outage.suspects), [3, 2], "newest first, without merges long before or after");
        assert_eq!(outage.issue_repo.as_str(), "acme/shop");
        assert!(watch.needs_check(&[], minute(500)), "an outage is checked until it is over");
    }

    #[test]
    fn outage_ends_after_two_passed_checks_and_the_next_has_another_key() {
        let (mut watch, merges) = (HealthWatch::default(), [merge(1, 0)]);
        looks(&mut watch, &merges, 1, &[sick(), sick()]);
        let first = watch.ongoing_outage().unwrap().key.clone();
        let back = looks(
            &mut watch,
            &merges,
            3,
            &[HealthResult::Healthy, sick(), HealthResult::Healthy, HealthResult::Healthy],
        );
        assert_eq!(back.iter().map(|looked| looked.outage_ended).collect::<Vec<_>>(), [false, false, false, true]);
        assert!(back.iter().all(|looked| !looked.outage_began), "it is still the same outage");
        assert!(watch.ongoing_outage().is_none() && !watch.needs_check(&merges, minute(9)));
        let late = looks(&mut watch, &merges, 40, &[HealthResult::Healthy]);
        assert_eq!(late[0].verified, [], "a suspect is never verified");
        let fresh = [merge(1, 0), merge(2, 50)];
        looks(&mut watch, &fresh, 51, &[sick(), sick()]);
        assert_ne!(watch.ongoing_outage().unwrap().key, first);
    }

    #[test]
    fn checks_within_30_seconds_count_once() {
        let merges = [merge(1, 0)];
        let watch =
            HealthWatch::default().apply_check("shop", &sick(), &merges, &PostMergeHealth::default(), minute(1)).watch;
        assert!(!watch.needs_check(&merges, minute(1) + SignedDuration::from_secs(29)));
        assert!(watch.needs_check(&merges, minute(1) + SignedDuration::from_secs(30)));
    }

    #[test]
    fn missing_issue_is_requested_again_after_five_minutes() {
        let (mut watch, merges) = (HealthWatch::default(), [merge(1, 0)]);
        looks(&mut watch, &merges, 1, &[sick(), sick()]);
        let mut outage = watch.outage.unwrap();
        assert!(outage.needs_issue(minute(2)));
        outage.requested_at = Some(minute(2));
        assert!(!outage.needs_issue(minute(6)) && outage.needs_issue(minute(7)));
    }

    #[test]
    fn late_merge_is_judged_within_a_day() {
        let mut watch = HealthWatch::default();
        let late = [merge(1, -300), merge(2, -24 * 60)];
        assert_eq!(numbers(&looks(&mut watch, &late, 0, &[HealthResult::Healthy])[0].verified), [1]);
        assert!(!watch.needs_check(&late, minute(1)));
        let settings = PostMergeHealth { failures_in_a_row: 1, ..PostMergeHealth::default() };
        let found = [merge(3, -300)];
        let looked = HealthWatch::default().apply_check("shop", &sick(), &found, &settings, minute(0));
        assert_eq!(numbers(&looked.watch.outage.unwrap().suspects), [3], "it is the reason for the check");
    }

    #[test]
    fn issue_repo_comes_from_the_settings_or_the_suspect() {
        let settings =
            PostMergeHealth { issue_repo: "acme/ops".to_owned(), failures_in_a_row: 1, ..PostMergeHealth::default() };
        let looked = HealthWatch::default().apply_check("shop", &sick(), &[], &settings, minute(0));
        assert_eq!(looked.watch.outage.unwrap().issue_repo.as_str(), "acme/ops");
        let without_repo = PostMergeHealth { failures_in_a_row: 1, ..PostMergeHealth::default() };
        let looked = HealthWatch::default().apply_check("shop", &sick(), &[], &without_repo, minute(0));
        assert!(
            !looked.outage_began && looked.watch.outage.is_none(),
            "without a merge there is no repository for the issue"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let merges: Vec<WatchedMerge> =
            (0..1_500).map(|n| merge(n + 1, -i64::try_from(n).unwrap() / 10 - 31)).collect();
        let watch = HealthWatch::default()
            .apply_check("shop", &HealthResult::Healthy, &merges, &PostMergeHealth::default(), minute(0))
            .watch;
        assert_eq!(watch.judged.len(), MAX_JUDGED);
        let later =
            watch.apply_check("shop", &HealthResult::Healthy, &[], &PostMergeHealth::default(), minute(24 * 60)).watch;
        assert!(later.judged.is_empty());
    }
}
