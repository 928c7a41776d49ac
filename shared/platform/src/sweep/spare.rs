//! What is left out when little is left of GitHub's hourly allowance: the least urgent first, so that what is nearly done
//! still gets done (seed 004, "Error Handling").

use domain::state::Strategy;
use jiff::Timestamp;

use crate::github::Rates;

/// What costs GitHub's patience, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    Merge,
    Approver,
    Policy,
    Rebuild,
    CloseAndReopen,
    Inventory,
    Redelivery,
}

impl Work {
    /// What a remedy counts as.
    pub(super) fn of(strategy: Strategy) -> Self {
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
            Self::Inventory => 20,
            Self::Redelivery => 30,
        }
    }
}

/// Until when this work is to be left out, if it is: the scarcer of the two allowances decides.
pub(super) fn left_out_until(rates: &Rates, work: Work, now: Timestamp) -> Option<Timestamp> {
    let scarce = |rate: &&crate::github::Rate| {
        rate.resets_at > now && u64::from(rate.remaining) * 100 < u64::from(rate.limit) * work.least_percent()
    };
    [&rates.rest, &rates.graphql].into_iter().flatten().filter(scarce).map(|rate| rate.resets_at).max()
}

/// What GitHub has counted between two looks at its allowances. One that began anew in between is counted from there.
pub(super) fn points(before: &Rates, after: &Rates) -> u64 {
    let used = |before: Option<crate::github::Rate>, after: Option<crate::github::Rate>| match (before, after) {
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
    use crate::github::Rate;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn rate(remaining: u32) -> Option<Rate> {
        Some(Rate { limit: 5_000, remaining, resets_at: at(600) })
    }

    const ALL: [Work; 7] = [
        Work::Merge,
        Work::Approver,
        Work::Policy,
        Work::Rebuild,
        Work::CloseAndReopen,
        Work::Inventory,
        Work::Redelivery,
    ];

    fn done_with(remaining: u32) -> Vec<Work> {
        let rates = Rates { rest: rate(5_000), graphql: rate(remaining) };
        ALL.into_iter().filter(|work| left_out_until(&rates, *work, at(0)).is_none()).collect()
    }

    #[test]
    fn work_is_left_out_one_kind_at_a_time_and_merging_last() {
        assert_eq!(done_with(1_500), ALL);
        let counts: Vec<usize> =
            [1_499, 999, 499, 399, 299, 199, 99].into_iter().map(|remaining| done_with(remaining).len()).collect();
        assert_eq!(counts, [6, 5, 4, 3, 2, 1, 0]);
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
