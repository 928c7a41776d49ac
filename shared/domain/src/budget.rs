//! Retry budgets (R-BUDGET-1 to R-BUDGET-9): how often each strategy was tried, when a count resets, and when it is
//! exhausted. The maxima are in `policy`; `decide` escalates.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::state::{State, Strategy, Substatus};

/// Zero counts are not stored: most counts are zero, and every event writes the record.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How often each strategy was tried since its last reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryCounts {
    #[serde(skip_serializing_if = "is_zero")]
    pub rebuild: u32,
    /// Base merged into head.
    #[serde(skip_serializing_if = "is_zero")]
    pub branch_update: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub retrigger_policy_bot: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub retrigger_approver_bot: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub retrigger_automerge_bot: u32,
    /// SOD validator run again.
    #[serde(skip_serializing_if = "is_zero")]
    pub retrigger_sod_check: u32,
    /// Closed and replaced; also counted on the vulnerability, across pull requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub close_and_reopen: u32,
}

impl RetryCounts {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn of(&self, strategy: Strategy) -> u32 {
        match strategy {
            Strategy::Rebuild => self.rebuild,
            Strategy::BranchUpdate => self.branch_update,
            Strategy::RetriggerPolicyBot => self.retrigger_policy_bot,
            Strategy::RetriggerApproverBot => self.retrigger_approver_bot,
            Strategy::RetriggerAutomergeBot => self.retrigger_automerge_bot,
            Strategy::RetriggerSodCheck => self.retrigger_sod_check,
            Strategy::CloseAndReopen => self.close_and_reopen,
        }
    }

    fn of_mut(&mut self, strategy: Strategy) -> &mut u32 {
        match strategy {
            Strategy::Rebuild => &mut self.rebuild,
            Strategy::BranchUpdate => &mut self.branch_update,
            Strategy::RetriggerPolicyBot => &mut self.retrigger_policy_bot,
            Strategy::RetriggerApproverBot => &mut self.retrigger_approver_bot,
            Strategy::RetriggerAutomergeBot => &mut self.retrigger_automerge_bot,
            Strategy::RetriggerSodCheck => &mut self.retrigger_sod_check,
            Strategy::CloseAndReopen => &mut self.close_and_reopen,
        }
    }

    pub fn spend(&mut self, strategy: Strategy) {
        let count = self.of_mut(strategy);
        *count = count.saturating_add(1);
    }

    /// Refunds an attempt that was never executed.
    pub fn refund(&mut self, strategy: Strategy) {
        let count = self.of_mut(strategy);
        *count = count.saturating_sub(1);
    }

    /// Resets one count; that of close-and-reopen never resets.
    pub fn reset(&mut self, strategy: Strategy) {
        if strategy != Strategy::CloseAndReopen {
            *self.of_mut(strategy) = 0;
        }
    }

    /// Resets the budgets that this state proves (R-BUDGET-2). Call it only for states reached by real events: with
    /// Suture's own post-action states, no budget would ever be exhausted.
    pub fn reset_reached(&mut self, state: State, substatus: Option<Substatus>) {
        for strategy in Strategy::ALL {
            if is_reset_by(strategy, state, substatus) {
                self.reset(strategy);
            }
        }
    }

    /// Resets all counts except close-and-reopen: a person took over, or a new generation begins.
    pub fn reset_all(&mut self) {
        for strategy in Strategy::ALL {
            self.reset(strategy);
        }
    }
}

/// The reset mapping (R-BUDGET-2): reaching the state by a real event means that the strategy worked.
fn is_reset_by(strategy: Strategy, state: State, substatus: Option<Substatus>) -> bool {
    match strategy {
        Strategy::Rebuild => state == State::ChecksPassed,
        // Not CHECKS_RUNNING: every branch update leads there, so the budget would never be exhausted. Green checks
        // show that the update worked; if the branch is behind again later, the base has new commits.
        Strategy::BranchUpdate => matches!(state, State::ChecksPassed | State::Merging | State::Merged),
        Strategy::RetriggerPolicyBot => matches!(state, State::PolicyPassed | State::PolicyFailed),
        Strategy::RetriggerApproverBot => state == State::Approved,
        // Not MERGING, which is this strategy's own post-action state (R-BUDGET-3).
        Strategy::RetriggerAutomergeBot => state == State::Merged,
        // The same SOD failure again is not progress.
        Strategy::RetriggerSodCheck => {
            state == State::PolicyPassed
                || (state == State::PolicyFailed && substatus.is_some_and(|s| s != Substatus::SodFailure))
        }
        Strategy::CloseAndReopen => false,
    }
}

/// Name of the cap on all strategies together.
const LIFETIME: &str = "lifetime";

/// An exhausted budget. The text is fixed (R-DIAG-21).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetExhausted {
    /// The strategy, or `lifetime`.
    pub what: &'static str,
    pub count: u32,
    pub max: u32,
}

impl fmt::Display for BudgetExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max == 0 && self.what != LIFETIME {
            return write!(f, "{} is disabled: its retry budget is 0", self.what);
        }
        write!(f, "Retry budget exhausted for {} ({}/{})", self.what, self.count, self.max)
    }
}

/// Whether one more attempt is allowed. Only this strategy and the lifetime cap are checked: the exhausted budget of
/// another strategy does not matter (R-BUDGET-7). `on_vulnerability` is the count of close-and-reopen on the
/// vulnerability, over all its pull requests.
pub fn check(
    policy: &Policy,
    strategy: Strategy,
    counts: &RetryCounts,
    lifetime: u32,
    on_vulnerability: u32,
) -> Result<(), BudgetExhausted> {
    let shared = if strategy == Strategy::CloseAndReopen { on_vulnerability } else { 0 };
    let count = counts.of(strategy).max(shared);
    let max = policy.budget(strategy);
    if count >= max {
        return Err(BudgetExhausted { what: strategy.name(), count, max });
    }
    let max = policy.budgets.lifetime;
    if lifetime >= max {
        return Err(BudgetExhausted { what: LIFETIME, count: lifetime, max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY_SUBSTATUSES: [Option<Substatus>; 5] = [
        None,
        Some(Substatus::SodFailure),
        Some(Substatus::BuildFailure),
        Some(Substatus::BranchProtectionFailure),
        Some(Substatus::OtherPolicyFailure),
    ];

    /// Every count different, so that no two fields can be taken for each other.
    fn one_to_seven() -> RetryCounts {
        RetryCounts {
            rebuild: 1,
            branch_update: 2,
            retrigger_policy_bot: 3,
            retrigger_approver_bot: 4,
            retrigger_automerge_bot: 5,
            retrigger_sod_check: 6,
            close_and_reopen: 7,
        }
    }

    fn all(counts: &RetryCounts) -> [u32; 7] {
        Strategy::ALL.map(|strategy| counts.of(strategy))
    }

    fn with(strategy: Strategy, count: u32) -> RetryCounts {
        let mut counts = RetryCounts::default();
        *counts.of_mut(strategy) = count;
        counts
    }

    #[test]
    fn each_strategy_has_a_count_of_its_own() {
        assert_eq!(all(&one_to_seven()), [1, 2, 3, 4, 5, 6, 7]);
        for (n, strategy) in Strategy::ALL.into_iter().enumerate() {
            let mut expected = [1, 2, 3, 4, 5, 6, 7];
            let mut counts = one_to_seven();
            counts.spend(strategy);
            expected[n] += 1;
            assert_eq!(all(&counts), expected, "{strategy}");
            counts.refund(strategy);
            counts.refund(strategy);
            expected[n] -= 2;
            assert_eq!(all(&counts), expected, "{strategy}");
        }
    }

    #[test]
    fn counts_saturate() {
        for strategy in Strategy::ALL {
            let mut none = RetryCounts::default();
            none.refund(strategy);
            assert_eq!(none, RetryCounts::default(), "no refund below zero for {strategy}");
            let mut full = with(strategy, u32::MAX);
            full.spend(strategy);
            assert_eq!(full.of(strategy), u32::MAX);
        }
    }

    #[test]
    fn reset_changes_one_count_and_never_close_and_reopen() {
        for (n, strategy) in Strategy::ALL.into_iter().enumerate() {
            let mut expected = [1, 2, 3, 4, 5, 6, 7];
            if strategy != Strategy::CloseAndReopen {
                expected[n] = 0;
            }
            let mut counts = one_to_seven();
            counts.reset(strategy);
            assert_eq!(all(&counts), expected, "{strategy}");
        }
        let mut counts = one_to_seven();
        counts.reset_all();
        assert_eq!(all(&counts), [0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn budgets_reset_at_the_states_that_prove_them() {
        use Strategy::{
            BranchUpdate, Rebuild, RetriggerApproverBot, RetriggerAutomergeBot, RetriggerPolicyBot, RetriggerSodCheck,
        };
        let mapping: [(State, &[Strategy]); 11] = [
            (State::Created, &[]),
            // Not branch_update: every branch update leads here.
            (State::ChecksRunning, &[]),
            (State::ChecksFailed, &[]),
            (State::ChecksPassed, &[Rebuild, BranchUpdate]),
            (State::PolicyEvaluating, &[]),
            (State::PolicyPassed, &[RetriggerPolicyBot, RetriggerSodCheck]),
            (State::Approved, &[RetriggerApproverBot]),
            // Not retrigger_automerge_bot: it is that strategy's own post-action state.
            (State::Merging, &[BranchUpdate]),
            (State::Merged, &[BranchUpdate, RetriggerAutomergeBot]),
            (State::Closed, &[]),
            (State::NeedsIntervention, &[]),
        ];
        for (state, resets) in mapping {
            for substatus in POLICY_SUBSTATUSES.into_iter().chain([Some(Substatus::Transient)]) {
                assert_resets(state, substatus, resets);
            }
        }
        for substatus in POLICY_SUBSTATUSES {
            // Neither the same SOD failure nor an unknown failure is progress.
            let resets: &[Strategy] = match substatus {
                None | Some(Substatus::SodFailure) => &[RetriggerPolicyBot],
                Some(_) => &[RetriggerPolicyBot, RetriggerSodCheck],
            };
            assert_resets(State::PolicyFailed, substatus, resets);
        }
        assert_eq!(mapping.len() + 1, State::ALL.len());
    }

    fn assert_resets(state: State, substatus: Option<Substatus>, resets: &[Strategy]) {
        let mut counts = one_to_seven();
        counts.reset_reached(state, substatus);
        let mut expected = one_to_seven();
        for strategy in resets {
            *expected.of_mut(*strategy) = 0;
        }
        assert_eq!(counts, expected, "{state} {substatus:?}");
    }

    #[test]
    fn budget_is_exhausted_at_its_maximum() {
        let policy = Policy::default();
        for (strategy, max, sentence) in [
            (Strategy::Rebuild, 3, "Retry budget exhausted for rebuild (3/3)"),
            (Strategy::BranchUpdate, 2, "Retry budget exhausted for branch_update (2/2)"),
            (Strategy::RetriggerPolicyBot, 2, "Retry budget exhausted for retrigger_policy_bot (2/2)"),
            (Strategy::RetriggerApproverBot, 2, "Retry budget exhausted for retrigger_approver_bot (2/2)"),
            (Strategy::RetriggerAutomergeBot, 2, "Retry budget exhausted for retrigger_automerge_bot (2/2)"),
            (Strategy::RetriggerSodCheck, 1, "Retry budget exhausted for retrigger_sod_check (1/1)"),
            (Strategy::CloseAndReopen, 1, "Retry budget exhausted for close_and_reopen (1/1)"),
        ] {
            assert_eq!(check(&policy, strategy, &with(strategy, max - 1), 0, 0), Ok(()), "{strategy}");
            let exhausted = check(&policy, strategy, &with(strategy, max), 0, 0).unwrap_err();
            assert_eq!(exhausted, BudgetExhausted { what: strategy.name(), count: max, max });
            assert_eq!(exhausted.to_string(), sentence);
            // A budget that was lowered below its count stays exhausted.
            let over = check(&policy, strategy, &with(strategy, max + 5), 0, 0).unwrap_err();
            assert_eq!((over.count, over.max), (max + 5, max));
        }
    }

    #[test]
    fn only_the_checked_strategy_and_the_lifetime_cap_count() {
        let policy = Policy::default();
        for strategy in Strategy::ALL {
            let mut counts = RetryCounts::default();
            for other in Strategy::ALL.into_iter().filter(|other| *other != strategy) {
                *counts.of_mut(other) = 9;
            }
            assert_eq!(check(&policy, strategy, &counts, 11, 0), Ok(()), "{strategy}");
            let exhausted = check(&policy, strategy, &counts, 12, 0).unwrap_err();
            assert_eq!(exhausted.to_string(), "Retry budget exhausted for lifetime (12/12)", "{strategy}");
        }
        // If both are exhausted, the strategy's own is reported.
        let both = check(&policy, Strategy::Rebuild, &with(Strategy::Rebuild, 3), 13, 0).unwrap_err();
        assert_eq!(both.to_string(), "Retry budget exhausted for rebuild (3/3)");
        let beyond = check(&policy, Strategy::Rebuild, &RetryCounts::default(), 13, 0).unwrap_err();
        assert_eq!(beyond.to_string(), "Retry budget exhausted for lifetime (13/12)");
    }

    #[test]
    fn close_and_reopen_is_also_counted_on_the_vulnerability() {
        let policy = Policy::default();
        let none = RetryCounts::default();
        let exhausted = check(&policy, Strategy::CloseAndReopen, &none, 0, 1).unwrap_err();
        assert_eq!(exhausted.to_string(), "Retry budget exhausted for close_and_reopen (1/1)");
        // The larger count wins.
        let on_record = check(&policy, Strategy::CloseAndReopen, &with(Strategy::CloseAndReopen, 3), 0, 2).unwrap_err();
        let on_row = check(&policy, Strategy::CloseAndReopen, &with(Strategy::CloseAndReopen, 2), 0, 4).unwrap_err();
        assert_eq!((on_record.count, on_row.count), (3, 4));
        for strategy in Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::CloseAndReopen) {
            assert_eq!(check(&policy, strategy, &none, 0, 9), Ok(()), "{strategy} has nothing to do with it");
        }
    }

    #[test]
    fn zero_budget_disables_the_strategy() {
        let mut policy = Policy::default();
        policy.budgets.close_and_reopen = 0;
        let none = RetryCounts::default();
        let disabled = check(&policy, Strategy::CloseAndReopen, &none, 0, 0).unwrap_err();
        assert_eq!(disabled.to_string(), "close_and_reopen is disabled: its retry budget is 0");
        assert_eq!(check(&policy, Strategy::Rebuild, &none, 0, 0), Ok(()));
        policy.budgets.lifetime = 0;
        let disabled = check(&policy, Strategy::Rebuild, &none, 0, 0).unwrap_err();
        assert_eq!(disabled.to_string(), "Retry budget exhausted for lifetime (0/0)");
    }

    #[test]
    fn counts_are_stored_by_strategy_name_and_default_to_zero() {
        let json = serde_json::to_string(&one_to_seven()).unwrap();
        assert_eq!(
            json,
            r#"{"rebuild":1,"branch_update":2,"retrigger_policy_bot":3,"retrigger_approver_bot":4,"retrigger_automerge_bot":5,"retrigger_sod_check":6,"close_and_reopen":7}"#
        );
        assert_eq!(serde_json::from_str::<RetryCounts>(&json).unwrap(), one_to_seven());
        assert_eq!(serde_json::from_str::<RetryCounts>(r#"{"rebuild":2}"#).unwrap(), with(Strategy::Rebuild, 2));
    }
}
