//! The twelve states of a pull request, their substatuses, and the seven strategies. The legal transitions are in
//! `transition`.

named! {
    /// The state of a pull request (R-STATE-1).
    pub enum State {
        Created = "CREATED",
        ChecksRunning = "CHECKS_RUNNING",
        /// A required check failed: TRANSIENT or PERSISTENT.
        ChecksFailed = "CHECKS_FAILED",
        /// All required checks are green.
        ChecksPassed = "CHECKS_PASSED",
        PolicyEvaluating = "POLICY_EVALUATING",
        /// Policy Bot rejected it; the substatus says which policy failed.
        PolicyFailed = "POLICY_FAILED",
        PolicyPassed = "POLICY_PASSED",
        Approved = "APPROVED",
        Merging = "MERGING",
        /// Merged. Terminal.
        Merged = "MERGED",
        /// Closed without a merge. Terminal, unless it is reopened.
        Closed = "CLOSED",
        /// Escalated: no automatic remedy is left, a person has to act.
        NeedsIntervention = "NEEDS_INTERVENTION",
    }
}

impl State {
    /// MERGED or CLOSED: the record has no due date and expires.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Merged | Self::Closed)
    }

    /// Neither terminal nor escalated: Suture may act.
    pub fn is_live(self) -> bool {
        !self.is_terminal() && self != Self::NeedsIntervention
    }
}

named! {
    /// Why a check or a policy failed, or why the pull request was closed.
    pub enum Substatus {
        /// CHECKS_FAILED by infrastructure: a retry may help.
        Transient = "TRANSIENT",
        Persistent = "PERSISTENT",
        /// POLICY_FAILED, and separation of duties is the only failed policy.
        SodFailure = "SOD_FAILURE",
        BuildFailure = "BUILD_FAILURE",
        BranchProtectionFailure = "BRANCH_PROTECTION_FAILURE",
        OtherPolicyFailure = "OTHER_POLICY_FAILURE",
        /// CLOSED by `/cancel`; no replacement is ever requested.
        Abandoned = "ABANDONED",
        /// CLOSED by close-and-reopen; a new pull request replaces it.
        Replaced = "REPLACED",
    }
}

named! {
    /// The remedies for a stuck pull request. Each has its own budget.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum Strategy {
        /// Run the checks again.
        Rebuild = "rebuild",
        /// Merge the base branch into the head.
        BranchUpdate = "branch_update",
        /// Trigger Policy Bot again.
        RetriggerPolicyBot = "retrigger_policy_bot",
        /// Trigger Approver Bot again.
        RetriggerApproverBot = "retrigger_approver_bot",
        /// Trigger Automerge Bot again.
        RetriggerAutomergeBot = "retrigger_automerge_bot",
        /// Run the SOD validator again.
        RetriggerSodCheck = "retrigger_sod_check",
        /// Close, and request a replacement from CodeGenie.
        CloseAndReopen = "close_and_reopen",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_display_and_json() {
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
