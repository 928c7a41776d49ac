//! The transition table (R-STATE-3): which trigger leads from which state to which. `docs/state-machine.md` is rendered
//! from it. The derivation of the implied state is in `signals`; `decide` fires the triggers.

use std::fmt;

use crate::event::EventKind;
use crate::state::State;

/// The causes of a state change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TransitionTrigger {
    ChecksBegin,
    ChecksSucceed,
    /// Any required check fails or times out.
    CheckFails,
    /// A rebuild was triggered: by the reconciler, a command, or by hand.
    Rebuilt,
    PolicyBegins,
    PolicyMet,
    /// Policy Bot reports one or more policies failed.
    PolicyNotMet,
    PolicyRetriggered,
    ApprovalSubmitted,
    MergeBegins,
    MergeConfirmed,
    /// A push by anybody: checks start again.
    BranchUpdated,
    /// Closed by the close-and-reopen remedy or by a person.
    PrClosed,
    /// A person reopened a closed pull request.
    PrReopened,
    Escalated,
    /// A person's command returns an escalated pull request to CREATED, because no check has started.
    ResumedByPerson,
}

impl TransitionTrigger {
    /// All triggers, in the order of the pipeline.
    pub const ALL: [Self; 16] = [
        Self::ChecksBegin,
        Self::ChecksSucceed,
        Self::CheckFails,
        Self::Rebuilt,
        Self::PolicyBegins,
        Self::PolicyMet,
        Self::PolicyNotMet,
        Self::PolicyRetriggered,
        Self::ApprovalSubmitted,
        Self::MergeBegins,
        Self::MergeConfirmed,
        Self::BranchUpdated,
        Self::PrClosed,
        Self::PrReopened,
        Self::Escalated,
        Self::ResumedByPerson,
    ];

    /// The triggers that signals of one head can fire. The others need a fact of their own (a push, a close, an
    /// escalation), so `walk` never uses them.
    pub(crate) const OF_SIGNALS: [Self; 10] = [
        Self::ChecksBegin,
        Self::ChecksSucceed,
        Self::CheckFails,
        Self::Rebuilt,
        Self::PolicyBegins,
        Self::PolicyMet,
        Self::PolicyNotMet,
        Self::PolicyRetriggered,
        Self::ApprovalSubmitted,
        Self::MergeBegins,
    ];

    /// The triggers that a remedy fires when its target accepted it.
    const OF_REMEDIES: [Self; 6] = [
        Self::ChecksBegin,
        Self::Rebuilt,
        Self::PolicyBegins,
        Self::PolicyRetriggered,
        Self::MergeBegins,
        Self::BranchUpdated,
    ];

    /// The event that is logged for a hop by this trigger.
    pub fn event(self) -> EventKind {
        match self {
            Self::ChecksBegin | Self::Rebuilt => EventKind::ChecksStarted,
            Self::ChecksSucceed => EventKind::ChecksPassed,
            Self::CheckFails => EventKind::ChecksFailed,
            Self::PolicyBegins | Self::PolicyRetriggered => EventKind::PolicyStarted,
            Self::PolicyMet => EventKind::PolicyPassed,
            Self::PolicyNotMet => EventKind::PolicyFailed,
            Self::ApprovalSubmitted => EventKind::ApprovalGranted,
            Self::MergeBegins => EventKind::MergeAttempted,
            Self::MergeConfirmed => EventKind::PrMerged,
            Self::BranchUpdated => EventKind::BranchUpdated,
            Self::PrClosed => EventKind::PrClosed,
            Self::PrReopened => EventKind::PrReopened,
            Self::Escalated => EventKind::EscalatedNeedsIntervention,
            Self::ResumedByPerson => EventKind::CommandReceived,
        }
    }

    /// Description for the rendered table.
    pub fn description(self) -> &'static str {
        match self {
            Self::ChecksBegin => "CI checks begin",
            Self::ChecksSucceed => "all required checks complete successfully",
            Self::CheckFails => "any required check fails or times out",
            Self::Rebuilt => "rebuild triggered (reconciler, command or by hand)",
            Self::PolicyBegins => "Policy Bot begins evaluation",
            Self::PolicyMet => "Policy Bot reports all policies met",
            Self::PolicyNotMet => "Policy Bot reports one or more policies failed",
            Self::PolicyRetriggered => "policy re-evaluation triggered",
            Self::ApprovalSubmitted => "Approver Bot submits approval review",
            Self::MergeBegins => "Automerge Bot initiates merge",
            Self::MergeConfirmed => "GitHub confirms merge",
            Self::BranchUpdated => "branch updated (new commits reset checks)",
            Self::PrClosed => "pull request closed (by close-and-reopen or a person)",
            Self::PrReopened => "a person reopens the pull request",
            Self::Escalated => "no automatic remedy is left",
            Self::ResumedByPerson => "a person's command before checks have started",
        }
    }
}

impl fmt::Display for TransitionTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description())
    }
}

/// The state that `trigger` leads to from `state`; `None` if the table does not allow it (R-STATE-3).
///
/// A merge applies from every state that is not terminal (R-STATE-6). NEEDS_INTERVENTION allows almost every trigger,
/// so that a fact that disproves its cause, or a person's command, leads out of it (R-STATE-9).
#[rustfmt::skip]
#[expect(clippy::too_many_lines, reason = "a table is read as a whole")]
pub fn next(state: State, trigger: TransitionTrigger) -> Option<State> {
    use State::{
        Approved, ChecksFailed, ChecksPassed, ChecksRunning, Closed, Created, Merged, Merging, NeedsIntervention,
        PolicyEvaluating, PolicyFailed, PolicyPassed,
    };
    use TransitionTrigger as T;
    match state {
        Created => match trigger {
            T::ChecksBegin       => Some(ChecksRunning),
            T::MergeConfirmed    => Some(Merged),
            T::BranchUpdated     => Some(ChecksRunning),
            T::PrClosed          => Some(Closed),
            T::Escalated         => Some(NeedsIntervention),
            T::ChecksSucceed | T::CheckFails | T::Rebuilt | T::PolicyBegins | T::PolicyMet | T::PolicyNotMet
            | T::PolicyRetriggered | T::ApprovalSubmitted | T::MergeBegins | T::PrReopened | T::ResumedByPerson => None,
        },
        ChecksRunning => match trigger {
            T::ChecksSucceed     => Some(ChecksPassed),
            T::CheckFails        => Some(ChecksFailed),
            T::MergeConfirmed    => Some(Merged),
            T::BranchUpdated     => Some(ChecksRunning),
            T::PrClosed          => Some(Closed),
            T::Escalated         => Some(NeedsIntervention),
            T::ChecksBegin | T::Rebuilt | T::PolicyBegins | T::PolicyMet | T::PolicyNotMet | T::PolicyRetriggered
            | T::ApprovalSubmitted | T::MergeBegins | T::PrReopened | T::ResumedByPerson => None,
        },
        ChecksFailed => match trigger {
            T::Rebuilt           => Some(ChecksRunning),
            T::MergeConfirmed    => Some(Merged),
            T::BranchUpdated     => Some(ChecksRunning),
            T::PrClosed          => Some(Closed),
            T::Escalated         => Some(NeedsIntervention),
            T::ChecksBegin | T::ChecksSucceed | T::CheckFails | T::PolicyBegins | T::PolicyMet | T::PolicyNotMet
            | T::PolicyRetriggered | T::ApprovalSubmitted | T::MergeBegins | T::PrReopened | T::ResumedByPerson => None,
        },
        ChecksPassed => match trigger {
            T::PolicyBegins      => Some(PolicyEvaluating),
            T::MergeConfirmed    => Some(Merged),
            T::BranchUpdated     => Some(ChecksRunning),
            T::PrClosed          => Some(Closed),
            T::Escalated         => Some(NeedsIntervention),
            T::ChecksBegin | T::ChecksSucceed | T::CheckFails | T::Rebuilt | T::PolicyMet | T::PolicyNotMet
            | T::PolicyRetriggered | T::ApprovalSubmitted | T::MergeBegins | T::PrReopened | T::ResumedByPerson => None,
        },
        PolicyEvaluating => match trigger {
            T::PolicyMet         => Some(PolicyPassed),
            T::PolicyNotMet      => Some(PolicyFailed),
            T::MergeConfirmed    => Some(Merged),
            T::BranchUpdated     => Some(ChecksRunning),
            T::PrClosed          => Some(Closed),
            T::Escalated         => Some(NeedsIntervention),
            T::ChecksBegin | T::ChecksSucceed | T::CheckFails | T::Rebuilt | T::PolicyBegins | T::PolicyRetriggered
            | T::ApprovalSubmitted | T::MergeBegins | T::PrReopened | T::ResumedByPerson => None,
        },
        PolicyFailed => match trigger {
            T::PolicyRetriggered => Some(PolicyEvaluating),
            T::MergeConfirmed    => Some(Merged),
            T::BranchUpdated     => Some(ChecksRunning),
            T::PrClosed          => Some(Closed),
            T::Escalated         => Some(NeedsIntervention),
            T::ChecksBegin | T::ChecksSucceed | T::CheckFails | T::Rebuilt | T::PolicyBegins | T::PolicyMet
            | T::PolicyNotMet | T::ApprovalSubmitted | T::MergeBegins | T::PrReopened | T::ResumedByPerson => None,
        },
        PolicyPassed => match trigger {
            T::ApprovalSubmitted => Some(Approved),
            T::MergeConfirmed    => Some(Merged),
            T::BranchUpdated     => Some(ChecksRunning),
            T::PrClosed          => Some(Closed),
            T::Escalated         => Some(NeedsIntervention),
            T::ChecksBegin | T::ChecksSucceed | T::CheckFails | T::Rebuilt | T::PolicyBegins | T::PolicyMet
            | T::PolicyNotMet | T::PolicyRetriggered | T::MergeBegins | T::PrReopened | T::ResumedByPerson => None,
        },
        Approved => match trigger {
            T::MergeBegins       => Some(Merging),
            T::MergeConfirmed    => Some(Merged),
            T::BranchUpdated     => Some(ChecksRunning),
            T::PrClosed          => Some(Closed),
            T::Escalated         => Some(NeedsIntervention),
            T::ChecksBegin | T::ChecksSucceed | T::CheckFails | T::Rebuilt | T::PolicyBegins | T::PolicyMet
            | T::PolicyNotMet | T::PolicyRetriggered | T::ApprovalSubmitted | T::PrReopened | T::ResumedByPerson => None,
        },
        Merging => match trigger {
            T::MergeConfirmed    => Some(Merged),
            T::BranchUpdated     => Some(ChecksRunning),
            T::PrClosed          => Some(Closed),
            T::Escalated         => Some(NeedsIntervention),
            T::ChecksBegin | T::ChecksSucceed | T::CheckFails | T::Rebuilt | T::PolicyBegins | T::PolicyMet
            | T::PolicyNotMet | T::PolicyRetriggered | T::ApprovalSubmitted | T::MergeBegins | T::PrReopened
            | T::ResumedByPerson => None,
        },
        NeedsIntervention => match trigger {
            T::ResumedByPerson   => Some(Created),
            T::ChecksBegin | T::BranchUpdated => Some(ChecksRunning),
            T::ChecksSucceed     => Some(ChecksPassed),
            T::CheckFails        => Some(ChecksFailed),
            T::PolicyBegins      => Some(PolicyEvaluating),
            T::PolicyMet         => Some(PolicyPassed),
            T::PolicyNotMet      => Some(PolicyFailed),
            T::ApprovalSubmitted => Some(Approved),
            T::MergeBegins       => Some(Merging),
            T::MergeConfirmed    => Some(Merged),
            T::PrClosed          => Some(Closed),
            T::Rebuilt | T::PolicyRetriggered | T::PrReopened | T::Escalated => None,
        },
        Closed => match trigger {
            T::PrReopened        => Some(Created),
            T::ChecksBegin | T::ChecksSucceed | T::CheckFails | T::Rebuilt | T::PolicyBegins | T::PolicyMet
            | T::PolicyNotMet | T::PolicyRetriggered | T::ApprovalSubmitted | T::MergeBegins | T::MergeConfirmed
            | T::BranchUpdated | T::PrClosed | T::Escalated | T::ResumedByPerson => None,
        },
        Merged => match trigger {
            T::ChecksBegin | T::ChecksSucceed | T::CheckFails | T::Rebuilt | T::PolicyBegins | T::PolicyMet
            | T::PolicyNotMet | T::PolicyRetriggered | T::ApprovalSubmitted | T::MergeBegins | T::MergeConfirmed
            | T::BranchUpdated | T::PrClosed | T::PrReopened | T::Escalated | T::ResumedByPerson => None,
        },
    }
}

/// One transition of a path: the trigger and the state it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransitionHop {
    pub trigger: TransitionTrigger,
    pub state: State,
}

/// The shortest path of legal hops from the current state to the implied one. Empty if both are the same; `None` if the
/// table has no path, which is an anomaly.
pub fn walk(from: State, to: State) -> Option<Vec<TransitionHop>> {
    if from == to {
        return Some(Vec::new());
    }
    // Breadth-first search over at most twelve states; `reached_by` has the hop by which each was first reached.
    let mut reached_by: [Option<(State, TransitionHop)>; State::ALL.len()] = [None; State::ALL.len()];
    let mut frontier = vec![from];
    while !frontier.is_empty() && reached_by[to as usize].is_none() {
        let mut reached = Vec::new();
        for state in frontier {
            for trigger in TransitionTrigger::OF_SIGNALS {
                if let Some(there) = next(state, trigger)
                    && there != from
                    && reached_by[there as usize].is_none()
                {
                    reached_by[there as usize] = Some((state, TransitionHop { trigger, state: there }));
                    reached.push(there);
                }
            }
        }
        frontier = reached;
    }
    let mut hops = Vec::new();
    let mut at = to;
    while let Some((before, hop)) = reached_by[at as usize] {
        hops.push(hop);
        at = before;
    }
    hops.reverse();
    if hops.is_empty() { None } else { Some(hops) }
}

/// The single hop from NEEDS_INTERVENTION to the implied state. Its trigger is the one that normally leads to that
/// state.
pub fn out_of_intervention(to: State) -> Option<TransitionHop> {
    let trigger = match to {
        State::Created => TransitionTrigger::ResumedByPerson,
        State::ChecksRunning => TransitionTrigger::ChecksBegin,
        State::ChecksFailed => TransitionTrigger::CheckFails,
        State::ChecksPassed => TransitionTrigger::ChecksSucceed,
        State::PolicyEvaluating => TransitionTrigger::PolicyBegins,
        State::PolicyFailed => TransitionTrigger::PolicyNotMet,
        State::PolicyPassed => TransitionTrigger::PolicyMet,
        State::Approved => TransitionTrigger::ApprovalSubmitted,
        State::Merging => TransitionTrigger::MergeBegins,
        State::Merged | State::Closed | State::NeedsIntervention => return None,
    };
    Some(TransitionHop { trigger, state: to })
}

/// The trigger by which an accepted remedy leads to its post-action state; `None` if the table has none.
pub fn by_remedy(from: State, to: State) -> Option<TransitionTrigger> {
    TransitionTrigger::OF_REMEDIES.into_iter().find(|trigger| next(from, *trigger) == Some(to))
}
