//! The seven states of a run, which may follow which (R-RUN-1), and what is written down about each change
//! (R-RUN-2). The record that goes through them is in `run`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

named! {
    /// Where a run stands.
    pub enum RunState {
        /// Claimed; nobody works on it yet.
        Pending = "pending",
        Running = "running",
        /// A person has to agree first.
        AwaitingApproval = "awaiting_approval",
        /// Accepted by its target; waits for the event that proves it.
        WaitingExternal = "waiting_external",
        Completed = "completed",
        /// It did not work. Terminal.
        Failed = "failed",
        /// Not wanted any more. Terminal.
        Cancelled = "cancelled",
    }
}

impl RunState {
    /// Completed, failed and cancelled: nothing follows.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::AwaitingApproval | Self::WaitingExternal => false,
        }
    }

    /// The table: which state may follow which.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Pending => match next {
                Self::Running | Self::Failed | Self::Cancelled => true,
                Self::Pending | Self::AwaitingApproval | Self::WaitingExternal | Self::Completed => false,
            },
            Self::Running => match next {
                Self::AwaitingApproval | Self::WaitingExternal => true,
                Self::Completed | Self::Failed | Self::Cancelled => true,
                Self::Pending | Self::Running => false,
            },
            Self::AwaitingApproval | Self::WaitingExternal => match next {
                Self::Running | Self::Completed | Self::Failed | Self::Cancelled => true,
                Self::Pending | Self::AwaitingApproval | Self::WaitingExternal => false,
            },
            Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }

    /// The states that may follow, as a person reads them: "running, failed or cancelled".
    pub fn next_names(self) -> String {
        let names: Vec<&str> = Self::ALL.into_iter().filter(|next| self.may_become(*next)).map(Self::name).collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
            None => "nothing else".to_owned(),
        }
    }
}

/// What kind of cause moved a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initiator {
    User,
    /// Suture itself: the Car Bridge or the sweep.
    System,
    Timeout,
    Policy,
    Webhook,
    Approval,
}

/// Who moved a run, when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionContext {
    pub initiator: Initiator,
    pub at: Timestamp,
    /// Who, if it was somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl TransitionContext {
    /// A change with this cause at this time, nothing more known about it.
    pub fn new(initiator: Initiator, at: Timestamp) -> Self {
        Self { initiator, at, by: None, reason: None }
    }

    #[must_use]
    pub fn by(self, who: impl Into<String>) -> Self {
        Self { by: Some(who.into()), ..self }
    }

    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }
}

/// One change of state, as kept in the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    pub from: RunState,
    pub to: RunState,
    pub context: TransitionContext,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_table_allows_exactly_these_changes() {
        let table: Vec<String> =
            RunState::ALL.into_iter().map(|state| format!("{state} -> {}", state.next_names())).collect();
        assert_eq!(
            table,
            [
                "pending -> running, failed or cancelled",
                "running -> awaiting_approval, waiting_external, completed, failed or cancelled",
                "awaiting_approval -> running, completed, failed or cancelled",
                "waiting_external -> running, completed, failed or cancelled",
                "completed -> nothing else",
                "failed -> nothing else",
                "cancelled -> nothing else",
            ]
        );
    }

    #[test]
    fn terminal_states_are_those_nothing_follows() {
        for state in RunState::ALL {
            assert_eq!(state.is_terminal(), !RunState::ALL.into_iter().any(|next| state.may_become(next)), "{state}");
        }
        assert!(RunState::Completed.is_terminal() && !RunState::Pending.is_terminal());
    }

    #[test]
    fn names_are_the_same_in_displays_and_in_json() {
        for state in RunState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
    }

    #[test]
    fn a_context_stores_only_what_is_known() {
        let at: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let bare = TransitionContext::new(Initiator::Timeout, at);
        let json = serde_json::to_string(&bare).unwrap();
        assert_eq!(json, r#"{"initiator":"timeout","at":"2026-03-01T12:00:00Z"}"#);
        assert_eq!(serde_json::from_str::<TransitionContext>(&json).unwrap(), bare);
        let full = bare.by("ada").because("asked");
        let json = serde_json::to_string(&full).unwrap();
        assert_eq!(json, r#"{"initiator":"timeout","at":"2026-03-01T12:00:00Z","by":"ada","reason":"asked"}"#);
        assert_eq!(serde_json::from_str::<TransitionContext>(&json).unwrap(), full);
    }
}
