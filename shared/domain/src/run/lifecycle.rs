//! The seven states of a run, the allowed transitions (R-RUN-1), and what is recorded about each transition (R-RUN-2).
//! The record itself is in `run`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::{Actor, Fact, FactKind, RemedyUpdate};
use crate::id::EventId;

named! {
    /// The state of a run.
    pub enum RunState {
        /// Claimed; no worker has started it.
        Pending = "pending",
        Running = "running",
        /// A person has to approve it first.
        AwaitingApproval = "awaiting_approval",
        /// Accepted by its target; waits for the expected event.
        WaitingExternal = "waiting_external",
        Completed = "completed",
        /// Terminal: it did not work.
        Failed = "failed",
        /// Terminal: it is no longer wanted.
        Cancelled = "cancelled",
    }
}

impl RunState {
    /// Whether no transition leaves the state: completed, failed and cancelled.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::AwaitingApproval | Self::WaitingExternal => false,
        }
    }

    /// The transition table.
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

    /// The possible next states in words: "running, failed or cancelled".
    pub fn next_names(self) -> String {
        let names: Vec<&str> = Self::ALL.into_iter().filter(|next| self.may_become(*next)).map(Self::name).collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
            None => "nothing else".to_owned(),
        }
    }
}

/// The kind of cause of a transition.
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

/// The cause, the time and the reason of a transition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionContext {
    pub initiator: Initiator,
    pub at: Timestamp,
    /// The person or key, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The event in the log that caused it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventId>,
}

impl TransitionContext {
    /// A context with only a cause and a time.
    pub fn new(initiator: Initiator, at: Timestamp) -> Self {
        Self { initiator, at, by: None, reason: None, event: None }
    }

    /// The cause is a fact.
    pub fn of_fact(fact: &Fact, at: Timestamp) -> Self {
        let (initiator, by) = match (&fact.kind, fact.actor) {
            (FactKind::CommandRequested(request), _) => (Initiator::User, Some(request.by.clone())),
            (FactKind::Remedy { update: RemedyUpdate::Overdue, .. }, _) => (Initiator::Timeout, None),
            (_, Actor::AdminApi) => (Initiator::User, None),
            (_, Actor::Reconciler | Actor::CommandQueue) => (Initiator::System, None),
            (
                _,
                actor @ (Actor::GithubWebhook
                | Actor::Codegenie
                | Actor::Jenkins
                | Actor::PolicyBot
                | Actor::ApproverBot
                | Actor::AutomergeBot),
            ) => (Initiator::Webhook, Some(actor.to_string())),
        };
        Self { by, event: Some(fact.id.clone()), ..Self::new(initiator, at) }
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

/// One state change, as stored in the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTransition {
    pub from: RunState,
    pub to: RunState,
    pub context: TransitionContext,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_allows_exactly_these_transitions() {
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
    fn terminal_states_have_no_next_state() {
        for state in RunState::ALL {
            assert_eq!(state.is_terminal(), !RunState::ALL.into_iter().any(|next| state.may_become(next)), "{state}");
        }
        assert!(RunState::Completed.is_terminal() && !RunState::Pending.is_terminal());
    }

    #[test]
    fn names_are_equal_in_json_and_display() {
        for state in RunState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
    }

    #[test]
    fn context_omits_empty_fields() {
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
