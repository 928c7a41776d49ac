//! What is left out when little is left of GitHub's hourly allowance: the least urgent first, so that what is nearly done
//! still gets done (seed 004, "Error Handling"). Its order, and what of ours each of its steps is:
//!
//! | seed 004 | here |
//! |---|---|
//! | Merge | waking Automerge Bot |
//! | Review | waking Approver Bot, then Policy Bot and the SOD validator |
//! | Fix (and Rebase) | running checks again, updating branches |
//! | Build | closing and asking for a fresh pull request, then asking for those of the backlog |
//! | Triage | issues of the backlog that lie around |
//! | Scout | the inventory of what nobody told us about |
//! | metrics | the status issue, then webhooks that are asked for again |
//!
//! The sentinel asks GitHub for nothing, and its issue is the Car Bridge's next request.

use domain::state::Strategy;
use jiff::Timestamp;

use platform::github::Rates;

/// What costs GitHub's patience, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
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

impl Work {
    /// What a remedy counts as.
    pub(crate) fn of(strategy: Strategy) -> Self {
        match strategy {
            Strategy::RetriggerAutomergeBot => Self::Merge,
            Strategy::RetriggerApproverBot => Self::Approver,
            Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => Self::Policy,
            Strategy::Rebuild | Strategy::BranchUpdate => Self::Rebuild,
            Strategy::CloseAndReopen => Self::CloseAndReopen,
        }
    }

    /// It is left out when less than this share of the hour's allowance is left.
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

/// Until when this work is to be left out, if it is: the scarcer of the two allowances decides.
pub(crate) fn left_out_until(rates: &Rates, work: Work, now: Timestamp) -> Option<Timestamp> {
    let scarce = |rate: &&platform::github::Rate| {
        rate.resets_at > now && u64::from(rate.remaining) * 100 < u64::from(rate.limit) * work.least_percent()
    };
    [&rates.rest, &rates.graphql].into_iter().flatten().filter(scarce).map(|rate| rate.resets_at).max()
}

/// What GitHub has counted between two looks at its allowances. One that began anew in between is counted from there.
pub(crate) fn points(before: &Rates, after: &Rates) -> u64 {
    let used = |before: Option<platform::github::Rate>, after: Option<platform::github::Rate>| match (before, after) {
        (Some(before), Some(after)) if before.resets_at == after.resets_at => {
            before.remaining.saturating_sub(after.remaining)
        }
        (Some(_) | None, Some(after)) => after.limit.saturating_sub(after.remaining),
        (Some(_) | None, None) => 0,
    };
    u64::from(used(before.rest, after.rest)) + u64::from(used(before.graphql, after.graphql))
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::github::Rate;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn rate(remaining: u32) -> Option<Rate> {
        Some(Rate { limit: 5_000, remaining, resets_at: at(600) })
    }

    const ALL: [Work; 10] = [
        Work::Merge,
        Work::Approver,
        Work::Policy,
        Work::Rebuild,
        Work::CloseAndReopen,
        Work::Build,
        Work::Triage,
        Work::Inventory,
        Work::Status,
        Work::Redelivery,
    ];

    fn done_with(remaining: u32) -> Vec<Work> {
        let rates = Rates { rest: rate(5_000), graphql: rate(remaining) };
        ALL.into_iter().filter(|work| left_out_until(&rates, *work, at(0)).is_none()).collect()
    }

    #[test]
    fn work_is_left_out_one_kind_at_a_time_and_merging_last() {
        assert_eq!(done_with(1_500), ALL);
        let edges = [1_499, 1_249, 999, 749, 599, 499, 399, 299, 199, 99];
        for (left_out, remaining) in edges.into_iter().enumerate() {
            assert_eq!(done_with(remaining), ALL[..9 - left_out], "with {remaining} left");
            assert_eq!(done_with(remaining + 1), ALL[..10 - left_out], "with {} left", remaining + 1);
        }
        assert_eq!(done_with(100), [Work::Merge]);
    }

    #[test]
    fn an_allowance_that_is_there_again_is_not_scarce_and_none_is_unknown() {
        let rates = Rates { rest: None, graphql: rate(0) };
        assert_eq!(left_out_until(&rates, Work::Merge, at(0)), Some(at(600)));
        assert_eq!(left_out_until(&rates, Work::Merge, at(600)), None);
        assert_eq!(left_out_until(&Rates::default(), Work::Redelivery, at(0)), None);
    }

    #[test]
    fn points_are_counted_within_one_hour() {
        let before = Rates { rest: rate(5_000), graphql: rate(4_000) };
        let after = Rates { rest: rate(4_990), graphql: rate(3_996) };
        assert_eq!(points(&before, &after), 14);
        assert_eq!(points(&Rates::default(), &after), 10 + 1_004);
        assert_eq!(points(&before, &Rates::default()), 0);
    }
}
