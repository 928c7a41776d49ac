//! After a merge, is everything still up? What is watched together gets one look per sweep for as long as a merge is fresh, or as
//! something is wrong. So many bad looks in a row are an outage, with one name, one list of likely merges and one issue; as many
//! good ones end it. A merge whose watch ends well is verified.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::id::{PrId, RepoName};
use crate::policy::Sentinel;
use crate::time::saturating_after;

/// Two looks nearer than this count as one: a doubled sweep has seen the same moment twice.
const SAME_LOOK: SignedDuration = SignedDuration::from_secs(30);
/// Merges older than this are not judged any more; which of the younger ones were, is remembered.
pub const LOOK_BACK: SignedDuration = SignedDuration::from_hours(24);
/// Merges that are remembered at most, and that an issue names at most.
const MOST_JUDGED: usize = 1_000;
const MOST_SUSPECTS: usize = 20;
/// An issue that is not there yet is asked for again after this long.
const ASK_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// A merge that may have broken something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Merge {
    pub at: Timestamp,
    pub pr: PrId,
}

/// What one look at everything that is watched together has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    Well,
    /// At least one did not; which, and what it said.
    Sick(String),
}

/// What is remembered between two looks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Watch {
    pub looked_at: Option<Timestamp>,
    /// Bad looks in a row, and when the first of them was.
    pub sick_in_a_row: u32,
    /// See `sick_in_a_row`.
    pub sick_since: Option<Timestamp>,
    /// Good looks in a row since the last bad one.
    pub well_in_a_row: u32,
    /// The outage that goes on, or the last one.
    pub outage: Option<Outage>,
    /// Merges that are judged, with their times.
    pub judged: BTreeMap<String, Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// The same for as long as it lasts, and of no other.
    pub key: String,
    /// When it was first seen.
    pub since: Timestamp,
    pub what: String,
    pub issue_repo: RepoName,
    /// The merges that may have caused it, the newest first.
    pub suspects: Vec<Merge>,
    /// When its issue was last asked for.
    pub asked_at: Option<Timestamp>,
    pub over_at: Option<Timestamp>,
}

impl Outage {
    /// Whether its issue is to be asked for now, since it is not there.
    pub fn wants_issue(&self, now: Timestamp) -> bool {
        self.asked_at.is_none_or(|at| now >= saturating_after(at, ASK_AGAIN))
    }
}

/// What follows from a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    pub watch: Watch,
    pub verified: Vec<Merge>,
    pub begun: bool,
    pub ended: bool,
}

fn watch_for(settings: &Sentinel) -> SignedDuration {
    SignedDuration::from_mins(settings.watch_minutes.into())
}

/// When the watch after a merge ends.
pub fn watched_until(merge: &Merge, settings: &Sentinel) -> Timestamp {
    saturating_after(merge.at, watch_for(settings))
}

impl Watch {
    /// Whether there is anything to look for: a merge that is not judged yet, or something that was not well.
    pub fn wants_look(&self, merges: &[Merge], now: Timestamp) -> bool {
        let again = self.looked_at.is_none_or(|at| now >= saturating_after(at, SAME_LOOK));
        let worried = self.sick_in_a_row > 0 || self.goes_on().is_some();
        again && (worried || merges.iter().any(|merge| self.is_open(merge, now)))
    }

    /// The outage that goes on, if one does.
    pub fn goes_on(&self) -> Option<&Outage> {
        self.outage.as_ref().filter(|outage| outage.over_at.is_none())
    }

    fn is_open(&self, merge: &Merge, now: Timestamp) -> bool {
        saturating_after(merge.at, LOOK_BACK) > now && !self.judged.contains_key(&merge.pr.to_string())
    }

    /// Takes one look into account. `name` is that of what is watched together.
    pub fn look(mut self, name: &str, look: &Look, merges: &[Merge], settings: &Sentinel, now: Timestamp) -> Looked {
        self.looked_at = Some(now);
        self.judged.retain(|_, at| saturating_after(*at, LOOK_BACK) > now);
        let (mut begun, mut ended, mut verified) = (false, false, Vec::new());
        match look {
            Look::Sick(what) => {
                self.well_in_a_row = 0;
                self.sick_in_a_row = self.sick_in_a_row.saturating_add(1);
                let since = *self.sick_since.get_or_insert(now);
                if self.sick_in_a_row >= settings.failures_in_a_row && self.goes_on().is_none() {
                    begun = self.begin(name, what, since, merges, settings);
                }
            }
            Look::Well => {
                self.sick_in_a_row = 0;
                self.sick_since = None;
                self.well_in_a_row = self.well_in_a_row.saturating_add(1);
                ended = self.end(settings, now);
                verified = self.judge(merges, settings, now);
            }
        }
        Looked { watch: self, verified, begun, ended }
    }

    /// An outage begins, with the merges that were being watched when it was first seen. They are judged by that.
    fn begin(&mut self, name: &str, what: &str, since: Timestamp, merges: &[Merge], settings: &Sentinel) -> bool {
        let fresh = |merge: &&Merge| merge.at <= since && watched_until(merge, settings) >= since;
        let mut suspects: Vec<Merge> = merges.iter().filter(fresh).cloned().collect();
        // Merges whose webhook came late may all be older than their watch, and one of them still is why we look.
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
        suspects.truncate(MOST_SUSPECTS);
        let (key, what) = (format!("outage-{name}-{}", since.as_second()), what.to_owned());
        self.outage = Some(Outage { key, since, what, issue_repo, suspects, asked_at: None, over_at: None });
        true
    }

    fn end(&mut self, settings: &Sentinel, now: Timestamp) -> bool {
        let enough = self.well_in_a_row >= settings.failures_in_a_row;
        match self.outage.as_mut().filter(|outage| outage.over_at.is_none() && enough) {
            Some(outage) => {
                outage.over_at = Some(now);
                true
            }
            None => false,
        }
    }

    /// Merges whose watch is over while all is well. An early 200 may be the old version's answer, so none is judged before.
    fn judge(&mut self, merges: &[Merge], settings: &Sentinel, now: Timestamp) -> Vec<Merge> {
        if self.goes_on().is_some() {
            return Vec::new();
        }
        let over = |merge: &&Merge| self.is_open(merge, now) && watched_until(merge, settings) <= now;
        let verified: Vec<Merge> = merges.iter().filter(over).cloned().collect();
        for merge in &verified {
            self.remember(merge);
        }
        verified
    }

    fn remember(&mut self, merge: &Merge) {
        self.judged.insert(merge.pr.to_string(), merge.at);
        while self.judged.len() > MOST_JUDGED {
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

    fn merge(number: u64, at: i64) -> Merge {
        Merge { at: minute(at), pr: PrId::new("acme/shop".parse().unwrap(), number) }
    }

    fn sick() -> Look {
        Look::Sick("https://shop.example answered 500".to_owned())
    }

    fn numbers(merges: &[Merge]) -> Vec<u64> {
        merges.iter().map(|merge| merge.pr.number).collect()
    }

    /// Looks once a minute, as a sweep would; answers what each look led to.
    fn looks(watch: &mut Watch, merges: &[Merge], from: i64, looks: &[Look]) -> Vec<Looked> {
        let settings = Sentinel::default();
        let mut all = Vec::new();
        for (n, look) in looks.iter().enumerate() {
            let now = minute(from + i64::try_from(n).unwrap());
            let looked = watch.clone().look("shop", look, merges, &settings, now);
            *watch = looked.watch.clone();
            all.push(looked);
        }
        all
    }

    #[test]
    fn a_merge_is_verified_once_when_its_watch_ends_well() {
        let (mut watch, merges) = (Watch::default(), [merge(1, 0), merge(2, 10)]);
        assert!(watch.wants_look(&merges, minute(1)));
        let early = looks(&mut watch, &merges, 1, &vec![Look::Well; 29]);
        assert!(early.iter().all(|looked| looked.verified.is_empty()), "the old version may have answered");
        let at_the_end = looks(&mut watch, &merges, 30, &[Look::Well, Look::Well]);
        assert_eq!(at_the_end.iter().map(|looked| numbers(&looked.verified)).collect::<Vec<_>>(), [vec![1], vec![]]);
        assert!(watch.wants_look(&merges, minute(33)));
        assert_eq!(numbers(&looks(&mut watch, &merges, 40, &[Look::Well])[0].verified), [2]);
        assert!(!watch.wants_look(&merges, minute(60)), "there is nothing left to look for");
    }

    #[test]
    fn one_bad_look_is_no_outage_and_two_are_one() {
        let (mut watch, merges) = (Watch::default(), [merge(1, -40), merge(2, 0), merge(3, 2), merge(4, 9)]);
        let looked = looks(&mut watch, &merges, 3, &[Look::Well, sick(), Look::Well, sick(), sick(), sick()]);
        let begun: Vec<bool> = looked.iter().map(|looked| looked.begun).collect();
        assert_eq!(begun, [false, false, false, false, true, false]);
        let outage = watch.goes_on().unwrap();
        assert_eq!((outage.since, outage.key.as_str()), (minute(6), "outage-shop-1772000360"));
        assert_eq!(numbers(&outage.suspects), [3, 2], "the newest first; not what was merged long before or after");
        assert_eq!(outage.issue_repo.as_str(), "acme/shop");
        assert!(watch.wants_look(&[], minute(500)), "it is watched until it is over");
    }

    #[test]
    fn two_good_looks_end_it_and_the_next_one_has_another_name() {
        let (mut watch, merges) = (Watch::default(), [merge(1, 0)]);
        looks(&mut watch, &merges, 1, &[sick(), sick()]);
        let first = watch.goes_on().unwrap().key.clone();
        let back = looks(&mut watch, &merges, 3, &[Look::Well, sick(), Look::Well, Look::Well]);
        assert_eq!(back.iter().map(|looked| looked.ended).collect::<Vec<_>>(), [false, false, false, true]);
        assert!(back.iter().all(|looked| !looked.begun), "it is still the same outage");
        assert!(watch.goes_on().is_none() && !watch.wants_look(&merges, minute(9)));
        let late = looks(&mut watch, &merges, 40, &[Look::Well]);
        assert_eq!(late[0].verified, [], "a suspect is never verified");
        let fresh = [merge(1, 0), merge(2, 50)];
        looks(&mut watch, &fresh, 51, &[sick(), sick()]);
        assert_ne!(watch.goes_on().unwrap().key, first);
    }

    #[test]
    fn the_same_moment_is_not_seen_twice() {
        let merges = [merge(1, 0)];
        let watch = Watch::default().look("shop", &sick(), &merges, &Sentinel::default(), minute(1)).watch;
        assert!(!watch.wants_look(&merges, minute(1) + SignedDuration::from_secs(29)));
        assert!(watch.wants_look(&merges, minute(1) + SignedDuration::from_secs(30)));
    }

    #[test]
    fn an_issue_is_asked_for_until_it_is_there_but_not_every_minute() {
        let (mut watch, merges) = (Watch::default(), [merge(1, 0)]);
        looks(&mut watch, &merges, 1, &[sick(), sick()]);
        let mut outage = watch.outage.unwrap();
        assert!(outage.wants_issue(minute(2)));
        outage.asked_at = Some(minute(2));
        assert!(!outage.wants_issue(minute(6)) && outage.wants_issue(minute(7)));
    }

    #[test]
    fn what_was_merged_long_ago_or_found_late_is_judged_within_a_day() {
        let mut watch = Watch::default();
        let late = [merge(1, -300), merge(2, -24 * 60)];
        assert_eq!(numbers(&looks(&mut watch, &late, 0, &[Look::Well])[0].verified), [1]);
        assert!(!watch.wants_look(&late, minute(1)));
        let settings = Sentinel { failures_in_a_row: 1, ..Sentinel::default() };
        let found = [merge(3, -300)];
        let looked = Watch::default().look("shop", &sick(), &found, &settings, minute(0));
        assert_eq!(numbers(&looked.watch.outage.unwrap().suspects), [3], "it is why we look");
    }

    #[test]
    fn the_issue_is_written_where_the_settings_say() {
        let settings = Sentinel { issue_repo: "acme/ops".to_owned(), failures_in_a_row: 1, ..Sentinel::default() };
        let looked = Watch::default().look("shop", &sick(), &[], &settings, minute(0));
        assert_eq!(looked.watch.outage.unwrap().issue_repo.as_str(), "acme/ops");
        let nowhere = Sentinel { failures_in_a_row: 1, ..Sentinel::default() };
        let looked = Watch::default().look("shop", &sick(), &[], &nowhere, minute(0));
        assert!(!looked.begun && looked.watch.outage.is_none(), "there is no merge, and so no place");
    }

    #[test]
    fn memory_is_bounded() {
        let merges: Vec<Merge> = (0..1_500).map(|n| merge(n + 1, -i64::try_from(n).unwrap() / 10 - 31)).collect();
        let watch = Watch::default().look("shop", &Look::Well, &merges, &Sentinel::default(), minute(0)).watch;
        assert_eq!(watch.judged.len(), MOST_JUDGED);
        let later = watch.look("shop", &Look::Well, &[], &Sentinel::default(), minute(24 * 60)).watch;
        assert!(later.judged.is_empty());
    }
}
