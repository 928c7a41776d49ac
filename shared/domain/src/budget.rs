//! Retry budgets (seed §7 and §14, rule 9): how often each strategy was tried, when a count starts over, and when enough
//! is enough. The maxima are in `policy`; who escalates is in `decide`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::state::{State, Strategy, Substatus};

/// How often each strategy was tried since its count last started over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryCounts {
    /// Checks run again.
    pub rebuild: u32,
    /// Base merged into head.
    pub branch_update: u32,
    /// Policy Bot woken.
    pub retrigger_policy_bot: u32,
    /// Approver Bot woken.
    pub retrigger_approver_bot: u32,
    /// Automerge Bot woken.
    pub retrigger_automerge_bot: u32,
    /// SOD validator asked again.
    pub retrigger_sod_check: u32,
    /// Closed and asked for afresh; the vulnerability counts it too, across pull requests.
    pub close_and_reopen: u32,
}

impl RetryCounts {
    /// The count of one strategy.
    #[must_use]
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

    /// One more attempt.
    pub fn count(&mut self, strategy: Strategy) {
        let count = self.of_mut(strategy);
        *count = count.saturating_add(1);
    }

    /// An attempt that was never made is given back.
    pub fn give_back(&mut self, strategy: Strategy) {
        let count = self.of_mut(strategy);
        *count = count.saturating_sub(1);
    }

    /// The count starts over, except close-and-reopen's, which never does.
    pub fn reset(&mut self, strategy: Strategy) {
        if strategy != Strategy::CloseAndReopen {
            *self.of_mut(strategy) = 0;
        }
    }

    /// A real event has brought the pull request to this state: what it proves starts over (seed §14 under rule 9).
    /// Suture's own post-action states must not be reported here, or no budget would ever bind.
    pub fn reached(&mut self, state: State, substatus: Option<Substatus>) {
        for strategy in Strategy::ALL {
            if is_reset_by(strategy, state, substatus) {
                self.reset(strategy);
            }
        }
    }

    /// A person takes over, or a new generation begins: everything starts over except close-and-reopen.
    pub fn reset_all(&mut self) {
        for strategy in Strategy::ALL {
            self.reset(strategy);
        }
    }
}

/// The reset mapping of seed §14, with the three corrections of rule 9: reaching the state through a real event means
/// that the strategy has done its work.
fn is_reset_by(strategy: Strategy, state: State, substatus: Option<Substatus>) -> bool {
    match strategy {
        Strategy::Rebuild => state == State::ChecksPassed,
        // Seed §14 says CHECKS_RUNNING, but that is what every branch update leads to: the budget would never bind.
        Strategy::BranchUpdate => matches!(state, State::Merging | State::Merged),
        Strategy::RetriggerPolicyBot => matches!(state, State::PolicyPassed | State::PolicyFailed),
        Strategy::RetriggerApproverBot => state == State::Approved,
        // Seed §14 also says MERGING, but that is this strategy's own post-action state.
        Strategy::RetriggerAutomergeBot => state == State::Merged,
        // Seed §14 says POLICY_FAILED too, but the same SOD failure again is no progress.
        Strategy::RetriggerSodCheck => {
            state == State::PolicyPassed
                || (state == State::PolicyFailed && substatus.is_some_and(|s| s != Substatus::SodFailure))
        }
        Strategy::CloseAndReopen => false,
    }
}

/// A budget that is used up. Its wording is the seed's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhausted {
    /// The strategy, or `lifetime`.
    pub what: &'static str,
    /// Attempts made.
    pub count: u32,
    /// Attempts allowed.
    pub max: u32,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Retry budget exhausted for {} ({}/{})", self.what, self.count, self.max)
    }
}

/// Whether one more attempt is allowed. Only the strategy at hand and the lifetime cap are asked: a spent budget of
/// another strategy is no reason to give up on this one (rule 9). `on_vulnerability` is what the vulnerability's own row
/// has counted for close-and-reopen, over all its pull requests.
///
/// # Errors
/// The budget that is used up.
pub fn check(
    policy: &Policy,
    strategy: Strategy,
    counts: &RetryCounts,
    lifetime: u32,
    on_vulnerability: u32,
) -> Result<(), Exhausted> {
    let count = match strategy {
        Strategy::CloseAndReopen => counts.of(strategy).max(on_vulnerability),
        Strategy::Rebuild
        | Strategy::BranchUpdate
        | Strategy::RetriggerPolicyBot
        | Strategy::RetriggerApproverBot
        | Strategy::RetriggerAutomergeBot
        | Strategy::RetriggerSodCheck => counts.of(strategy),
    };
    let max = policy.budget(strategy);
    if count >= max {
        return Err(Exhausted { what: strategy.name(), count, max });
    }
    let max = policy.budgets.lifetime;
    if lifetime >= max {
        return Err(Exhausted { what: "lifetime", count: lifetime, max });
    }
    Ok(())
}
