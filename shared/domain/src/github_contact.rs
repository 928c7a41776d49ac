//! When Suture last read pull requests from GitHub, so that no view shows old states as if they were current (R-API-18).

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::event::truncate;
use crate::policy::Sweep;
use crate::text;
use crate::time::saturating_after;

/// A success is stored again after this long, so that most sweeps need no write.
const STORE_EVERY: SignedDuration = SignedDuration::from_mins(5);
/// Longest error to store, in characters.
const MAX_ERROR: usize = 200;

/// The results of the last requests for pull requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GithubContact {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Timestamp>,
    /// The first failure since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

named! {
    /// Whether what Suture shows is current.
    pub enum ContactStatus {
        Ok = "ok",
        /// The last requests failed.
        Failing = "failing",
        /// No request failed, but the last success is too long ago.
        Old = "old",
        /// Nothing was read yet.
        Never = "never",
    }
}

impl GithubContact {
    /// The contact after a sweep; `None` if there is nothing new to store.
    #[must_use]
    pub fn after(&self, result: Result<(), &str>, now: Timestamp) -> Option<Self> {
        match result {
            Ok(()) => {
                let recent = self.last_success.is_some_and(|at| now < saturating_after(at, STORE_EVERY));
                let known = recent && self.failing_since.is_none();
                (!known).then(|| Self { last_success: Some(now), ..Self::default() })
            }
            Err(_) if self.failing_since.is_some() => None,
            Err(error) => {
                let error = Some(truncate(error, MAX_ERROR));
                Some(Self { failing_since: Some(now), error, last_success: self.last_success })
            }
        }
    }

    /// An inventory lists all pull requests at fixed intervals, so a success that is older than two of them is too old.
    pub fn status(&self, settings: &Sweep, now: Timestamp) -> ContactStatus {
        let interval = i64::from(settings.every_minutes) * i64::from(settings.inventory_every);
        let longest = SignedDuration::from_mins(interval.saturating_mul(2).max(15));
        match (self.failing_since, self.last_success) {
            (Some(_), _) => ContactStatus::Failing,
            (None, None) => ContactStatus::Never,
            (None, Some(at)) if saturating_after(at, longest) < now => ContactStatus::Old,
            (None, Some(_)) => ContactStatus::Ok,
        }
    }

    /// One sentence for the headline.
    pub fn sentence(&self, status: ContactStatus) -> String {
        let last = self.last_success.map(text::time);
        let compared = last.map_or_else(
            || "It has not compared with GitHub yet".to_owned(),
            |at| format!("The last comparison was at {at}"),
        );
        match (status, self.failing_since) {
            (ContactStatus::Failing, Some(since)) => {
                let why = self.error.as_deref().map_or_else(String::new, |error| format!(" ({error})"));
                format!(
                    "Suture cannot see GitHub since {}{why}. {compared}; what follows may be old.",
                    text::time(since)
                )
            }
            (ContactStatus::Ok, _) => format!("{compared}."),
            (ContactStatus::Failing | ContactStatus::Old | ContactStatus::Never, _) => {
                format!("{compared}; what follows may be old.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        "2026-11-18T23:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minute)
    }

    #[test]
    fn contact_is_stored_when_it_changes_and_every_five_minutes() {
        let never = GithubContact::default();
        let first = never.after(Ok(()), at(0)).unwrap();
        assert_eq!(first.after(Ok(()), at(4)), None);
        assert_eq!(first.after(Ok(()), at(5)).unwrap().last_success, Some(at(5)));
        let failing = first.after(Err("connection refused"), at(6)).unwrap();
        assert_eq!((failing.last_success, failing.failing_since), (Some(at(0)), Some(at(6))));
        assert_eq!(failing.after(Err("timeout"), at(7)), None, "failing since the first failure");
        let again = failing.after(Ok(()), at(8)).unwrap();
        assert_eq!(again, GithubContact { last_success: Some(at(8)), ..GithubContact::default() });
    }

    #[test]
    fn headline_says_since_when_nothing_is_known() {
        let settings = Sweep { every_minutes: 1, inventory_every: 12, ..Sweep::default() };
        let shown = |contact: &GithubContact, now| {
            let status = contact.status(&settings, now);
            format!("{status}: {}", contact.sentence(status))
        };
        let success = GithubContact { last_success: Some(at(10)), ..GithubContact::default() };
        let failing = success.after(Err("connection refused"), at(19)).unwrap();
        let never = GithubContact::default();
        let lines = [shown(&success, at(34)), shown(&success, at(35)), shown(&failing, at(20)), shown(&never, at(0))]
            .join("\n");
        insta::assert_snapshot!(lines, @"
        ok: The last comparison was at 2026-11-18 23:10 UTC.
        old: The last comparison was at 2026-11-18 23:10 UTC; what follows may be old.
        failing: Suture cannot see GitHub since 2026-11-18 23:19 UTC (connection refused). The last comparison was at 2026-11-18 23:10 UTC; what follows may be old.
        never: It has not compared with GitHub yet; what follows may be old.
        ");
    }
}
