//! The twelve states of a pull request, their substatuses, and the seven strategies. Only names and what is true of a
//! name alone; how one state leads to another is in `transition`.

named! {
    /// Where a pull request stands (R-STATE-1).
    pub enum State {
        Created = "CREATED",
        ChecksRunning = "CHECKS_RUNNING",
        /// A required check failed: TRANSIENT or PERSISTENT.
        ChecksFailed = "CHECKS_FAILED",
        /// All required checks are green.
        ChecksPassed = "CHECKS_PASSED",
        PolicyEvaluating = "POLICY_EVALUATING",
        /// Policy Bot said no; the substatus says which policy.
        PolicyFailed = "POLICY_FAILED",
        PolicyPassed = "POLICY_PASSED",
        Approved = "APPROVED",
        Merging = "MERGING",
        /// Merged. Terminal.
        Merged = "MERGED",
        /// Closed without a merge. Terminal, until somebody reopens it.
        Closed = "CLOSED",
        /// Automation is at its end; a person is needed.
        NeedsIntervention = "NEEDS_INTERVENTION",
    }
}

impl State {
    /// MERGED and CLOSED: the record is on its way out.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Merged | Self::Closed)
    }

    /// Neither terminal nor handed to a person: Suture may act.
    pub fn is_live(self) -> bool {
        !self.is_terminal() && self != Self::NeedsIntervention
    }
}

named! {
    /// The detail of a state that has one.
    pub enum Substatus {
        /// CHECKS_FAILED: infrastructure, worth a retry.
        Transient = "TRANSIENT",
        Persistent = "PERSISTENT",
        /// POLICY_FAILED: separation of duties, and nothing else.
        SodFailure = "SOD_FAILURE",
        BuildFailure = "BUILD_FAILURE",
        BranchProtectionFailure = "BRANCH_PROTECTION_FAILURE",
        OtherPolicyFailure = "OTHER_POLICY_FAILURE",
        /// CLOSED: a person cancelled it; never asked for again.
        Abandoned = "ABANDONED",
        /// CLOSED: a fresh pull request takes its place.
        Replaced = "REPLACED",
    }
}

named! {
    /// What Suture can do about a stuck pull request; each has a budget of its own.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum Strategy {
        Rebuild = "rebuild",
        /// Merge the base branch into the head.
        BranchUpdate = "branch_update",
        RetriggerPolicyBot = "retrigger_policy_bot",
        RetriggerApproverBot = "retrigger_approver_bot",
        RetriggerAutomergeBot = "retrigger_automerge_bot",
        /// Ask the SOD validator again.
        RetriggerSodCheck = "retrigger_sod_check",
        /// Close, and ask CodeGenie for a fresh pull request.
        CloseAndReopen = "close_and_reopen",
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
