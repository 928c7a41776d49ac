//! GitHub's rate limit. All functions share the time until which GitHub has told one of them to wait. When the hourly
//! allowance runs low, the least urgent work is shed first, so that pull requests close to a merge still get merged
//! (R-SWEEP-11). Most urgent first:
//!
//! | kind | work |
//! |---|---|
//! | Merge | retriggering Automerge Bot |
//! | Review | retriggering Approver Bot, then Policy Bot and the SOD validator |
//! | Fix (and Rebase) | rebuilding, updating branches |
//! | Build | close-and-reopen, then requesting pull requests for the backlog |
//! | Triage | stale issues of the backlog |
//! | Scout | the inventory of open pull requests |
//! | metrics | the status issue, then webhook redeliveries |
//!
//! The post-merge health check sends no request to GitHub; the Car Bridge writes its issue.

use domain::state::Strategy;
use jiff::Timestamp;
use platform::github::{RateLimit, RateLimits};
use platform::publish::Publisher;
use platform::store::github_contact;
use platform::store::not_before;
use platform::store::{Store, StoreError};
use platform::sweep_summary::SweepSummary;

use super::gates::SweepRows;
use crate::context::SweepContext;

/// The name under which the rate-limit pause is stored for all functions.
pub(crate) const GITHUB: &str = "github";

/// Work that costs GitHub requests, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkKind {
    Merge,
    Approver,
    Policy,
    Rebuild,
    CloseAndReopen,
    Build,
    Triage,
    Inventory,
    Status,
    Redelivery,
}

impl WorkKind {
    pub(crate) fn of(strategy: Strategy) -> Self {
        match strategy {
            Strategy::RetriggerAutomergeBot => Self::Merge,
            Strategy::RetriggerApproverBot => Self::Approver,
            Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => Self::Policy,
            Strategy::Rebuild | Strategy::BranchUpdate => Self::Rebuild,
            Strategy::CloseAndReopen => Self::CloseAndReopen,
        }
    }

    /// The work is shed when less than this share of the hourly allowance is left.
    fn least_percent(self) -> u64 {
        match self {
            Self::Merge => 2,
            Self::Approver => 4,
            Self::Policy => 6,
            Self::Rebuild => 8,
            Self::CloseAndReopen => 10,
            Self::Build => 12,
            Self::Triage => 15,
            Self::Inventory => 20,
            Self::Status => 25,
            Self::Redelivery => 30,
        }
    }
}

/// Until when this work is shed, if it is; of two allowances that are low, the later reset counts.
pub(crate) fn shed_until(rates: &RateLimits, work: WorkKind, now: Timestamp) -> Option<Timestamp> {
    let scarce = |rate: &&RateLimit| {
        rate.resets_at > now && u64::from(rate.remaining) * 100 < u64::from(rate.limit) * work.least_percent()
    };
    [&rates.rest, &rates.graphql].into_iter().flatten().filter(scarce).map(|rate| rate.resets_at).max()
}

/// The REST requests and GraphQL points that GitHub counted between two readings. If an allowance was reset in between,
/// only its use since the reset counts.
pub(crate) fn points(before: &RateLimits, after: &RateLimits) -> u64 {
    let used = |before: Option<RateLimit>, after: Option<RateLimit>| match (before, after) {
        (Some(before), Some(after)) if before.resets_at == after.resets_at => {
            before.remaining.saturating_sub(after.remaining)
        }
        (Some(_) | None, Some(after)) => after.limit.saturating_sub(after.remaining),
        (Some(_) | None, None) => 0,
    };
    u64::from(used(before.rest, after.rest)) + u64::from(used(before.graphql, after.graphql))
}

/// Stores our rate-limit pause for the other functions.
pub(crate) async fn store_rate_limit(cx: &SweepContext<'_, impl Store, impl Publisher>) -> Result<(), StoreError> {
    match cx.github.not_before() {
        Some(until) => not_before::set(cx.store(), GITHUB, until, cx.now()).await,
        None => Ok(()),
    }
}

/// Stores whether this sweep could read GitHub, if that is news.
pub(crate) async fn store_contact(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    rows: Option<&SweepRows>,
    summary: &SweepSummary,
) -> Result<(), StoreError> {
    let Some((rows, result)) = rows.zip(summary.github_result()) else { return Ok(()) };
    match rows.github_contact.after(result, cx.now()) {
        Some(contact) => cx.store().write(vec![github_contact::write(&contact)?], cx.now()).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn rate(remaining: u32) -> Option<RateLimit> {
        Some(RateLimit { limit: 5_000, remaining, resets_at: at(600) })
    }

    const ALL: [WorkKind; 10] = [
        WorkKind::Merge,
        WorkKind::Approver,
        WorkKind::Policy,
        WorkKind::Rebuild,
        WorkKind::CloseAndReopen,
        WorkKind::Build,
        WorkKind::Triage,
        WorkKind::Inventory,
        WorkKind::Status,
        WorkKind::Redelivery,
    ];

    fn kept_with(remaining: u32) -> Vec<WorkKind> {
        let rates = RateLimits { rest: rate(5_000), graphql: rate(remaining) };
        ALL.into_iter().filter(|work| shed_until(&rates, *work, at(0)).is_none()).collect()
    }

    #[test]
    fn work_is_shed_one_kind_at_a_time_and_merging_last() {
        assert_eq!(kept_with(1_500), ALL);
        let edges = [1_499, 1_249, 999, 749, 599, 499, 399, 299, 199, 99];
        for (shed, remaining) in edges.into_iter().enumerate() {
            assert_eq!(kept_with(remaining), ALL[..9 - shed], "with {remaining} left");
            assert_eq!(kept_with(remaining + 1), ALL[..10 - shed], "with {} left", remaining + 1);
        }
        assert_eq!(kept_with(100), [WorkKind::Merge]);
    }

    #[test]
    fn reset_or_unknown_allowance_sheds_nothing() {
        let rates = RateLimits { rest: None, graphql: rate(0) };
        assert_eq!(shed_until(&rates, WorkKind::Merge, at(0)), Some(at(600)));
        assert_eq!(shed_until(&rates, WorkKind::Merge, at(600)), None);
        assert_eq!(shed_until(&RateLimits::default(), WorkKind::Redelivery, at(0)), None);
    }

    #[test]
    fn points_are_counted_since_the_last_reset() {
        let before = RateLimits { rest: rate(5_000), graphql: rate(4_000) };
        let after = RateLimits { rest: rate(4_990), graphql: rate(3_996) };
        assert_eq!(points(&before, &after), 14);
        assert_eq!(points(&RateLimits::default(), &after), 10 + 1_004);
        assert_eq!(points(&before, &RateLimits::default()), 0);
    }
}
