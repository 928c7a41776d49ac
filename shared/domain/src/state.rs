//! The twelve states of a pull request, their substatuses, and the seven strategies. Only names and what is true of a
//! name alone; how one state leads to another is in `transition`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a pull request stands (seed §1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Opened; no check has started.
    Created,
    /// CI is at work.
    ChecksRunning,
    /// A required check failed: TRANSIENT or PERSISTENT.
    ChecksFailed,
    /// All required checks are green.
    ChecksPassed,
    /// Policy Bot is evaluating.
    PolicyEvaluating,
    /// Policy Bot said no; the substatus says which policy.
    PolicyFailed,
    /// Policy Bot said yes.
    PolicyPassed,
    /// Approver Bot has approved.
    Approved,
    /// Automerge Bot is merging.
    Merging,
    /// Merged. Terminal.
    Merged,
    /// Closed without a merge. Terminal, until somebody reopens it.
    Closed,
    /// Automation is at its end; a person is needed.
    NeedsIntervention,
}

impl State {
    /// All states, in the order of a life.
    pub const ALL: [Self; 12] = [
        Self::Created,
        Self::ChecksRunning,
        Self::ChecksFailed,
        Self::ChecksPassed,
        Self::PolicyEvaluating,
        Self::PolicyFailed,
        Self::PolicyPassed,
        Self::Approved,
        Self::Merging,
        Self::Merged,
        Self::Closed,
        Self::NeedsIntervention,
    ];

    /// The name as the seeds, the tables and the API spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::ChecksRunning => "CHECKS_RUNNING",
            Self::ChecksFailed => "CHECKS_FAILED",
            Self::ChecksPassed => "CHECKS_PASSED",
            Self::PolicyEvaluating => "POLICY_EVALUATING",
            Self::PolicyFailed => "POLICY_FAILED",
            Self::PolicyPassed => "POLICY_PASSED",
            Self::Approved => "APPROVED",
            Self::Merging => "MERGING",
            Self::Merged => "MERGED",
            Self::Closed => "CLOSED",
            Self::NeedsIntervention => "NEEDS_INTERVENTION",
        }
    }

    /// MERGED and CLOSED: the record is on its way out.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Merged | Self::Closed)
    }

    /// Neither terminal nor handed to a person: Suture may act.
    pub fn is_live(self) -> bool {
        !self.is_terminal() && self != Self::NeedsIntervention
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The detail of a state that has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Substatus {
    /// CHECKS_FAILED: infrastructure, worth a retry.
    Transient,
    /// CHECKS_FAILED: a real failure.
    Persistent,
    /// POLICY_FAILED: separation of duties, and nothing else.
    SodFailure,
    /// POLICY_FAILED: the build policy.
    BuildFailure,
    /// POLICY_FAILED: branch protection.
    BranchProtectionFailure,
    /// POLICY_FAILED: anything else.
    OtherPolicyFailure,
    /// CLOSED: a person cancelled it; never asked for again.
    Abandoned,
    /// CLOSED: a fresh pull request takes its place.
    Replaced,
}

impl Substatus {
    /// The name as the seeds spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transient => "TRANSIENT",
            Self::Persistent => "PERSISTENT",
            Self::SodFailure => "SOD_FAILURE",
            Self::BuildFailure => "BUILD_FAILURE",
            Self::BranchProtectionFailure => "BRANCH_PROTECTION_FAILURE",
            Self::OtherPolicyFailure => "OTHER_POLICY_FAILURE",
            Self::Abandoned => "ABANDONED",
            Self::Replaced => "REPLACED",
        }
    }
}

impl fmt::Display for Substatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What Suture can do about a stuck pull request (seed §7); each has a budget of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Run the checks again.
    Rebuild,
    /// Merge the base branch into the head.
    BranchUpdate,
    /// Wake Policy Bot.
    RetriggerPolicyBot,
    /// Wake Approver Bot.
    RetriggerApproverBot,
    /// Wake Automerge Bot.
    RetriggerAutomergeBot,
    /// Ask the SOD validator again.
    RetriggerSodCheck,
    /// Close, and ask CodeGenie for a fresh pull request.
    CloseAndReopen,
}

impl Strategy {
    /// All strategies, in the seed's order.
    pub const ALL: [Self; 7] = [
        Self::Rebuild,
        Self::BranchUpdate,
        Self::RetriggerPolicyBot,
        Self::RetriggerApproverBot,
        Self::RetriggerAutomergeBot,
        Self::RetriggerSodCheck,
        Self::CloseAndReopen,
    ];

    /// The name as the seed's budget table spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::BranchUpdate => "branch_update",
            Self::RetriggerPolicyBot => "retrigger_policy_bot",
            Self::RetriggerApproverBot => "retrigger_approver_bot",
            Self::RetriggerAutomergeBot => "retrigger_automerge_bot",
            Self::RetriggerSodCheck => "retrigger_sod_check",
            Self::CloseAndReopen => "close_and_reopen",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_displays_and_in_json() {
        for state in State::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
        for strategy in Strategy::ALL {
            assert_eq!(serde_json::to_string(&strategy).unwrap(), format!("\"{strategy}\""));
        }
        for sub in [
            Substatus::Transient,
            Substatus::Persistent,
            Substatus::SodFailure,
            Substatus::BuildFailure,
            Substatus::BranchProtectionFailure,
            Substatus::OtherPolicyFailure,
            Substatus::Abandoned,
            Substatus::Replaced,
        ] {
            assert_eq!(serde_json::to_string(&sub).unwrap(), format!("\"{sub}\""));
        }
    }

    #[test]
    fn three_states_are_not_live_and_two_of_them_are_terminal() {
        let not_live: Vec<State> = State::ALL.into_iter().filter(|s| !s.is_live()).collect();
        assert_eq!(not_live, [State::Merged, State::Closed, State::NeedsIntervention]);
        let terminal: Vec<State> = State::ALL.into_iter().filter(|s| s.is_terminal()).collect();
        assert_eq!(terminal, [State::Merged, State::Closed]);
    }
}
