//! Errors of a run, each with a message for people and a stable code for programs.

use jiff::Timestamp;
use thiserror::Error;

use super::RunState;
use crate::id::RunId;

/// Why a run rejects a change.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunError {
    #[error("run `{run}` is {from} and cannot become {to}; it can become {}", .from.next_names())]
    InvalidTransition {
        run: RunId,
        from: RunState,
        /// The requested state.
        to: RunState,
    },
    #[error("run `{run}` is already {state} and cannot change; start a new run instead")]
    TerminalState { run: RunId, state: RunState },
    /// The worker disappeared before the first checkpoint.
    #[error("run `{run}` lost its worker at {since} before its first checkpoint; start a new run")]
    Orphaned {
        run: RunId,
        /// When the lease expired.
        since: Timestamp,
    },
    /// The checkpoints do not allow a resume.
    #[error("run `{run}` cannot be resumed: {why}; check what it did, then start a new run")]
    ResumeFailed { run: RunId, why: String },
    #[error("run `{run}` is held by `{holder}` until {until}; try again then")]
    Leased {
        run: RunId,
        holder: String,
        /// When the lease expires.
        until: Timestamp,
    },
    /// The expected event did not come.
    #[error("run `{run}` waited until {deadline} for {expects}, which did not come; check whether the target works")]
    WaitExpired { run: RunId, expects: String, deadline: Timestamp },
}

impl RunError {
    /// The stable code in API responses; R-RUN-9 names the first four.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidTransition { .. } => "RUN_INVALID_TRANSITION",
            Self::TerminalState { .. } => "RUN_TERMINAL_STATE",
            Self::Orphaned { .. } => "RUN_ORPHANED",
            Self::ResumeFailed { .. } => "RUN_RESUME_FAILED",
            Self::Leased { .. } => "RUN_LEASED",
            Self::WaitExpired { .. } => "RUN_WAIT_EXPIRED",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_code_and_a_message() {
        let run = || RunId::new("r1");
        let at: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let rows = [
            RunError::InvalidTransition { run: run(), from: RunState::Pending, to: RunState::Completed },
            RunError::TerminalState { run: run(), state: RunState::Failed },
            RunError::Orphaned { run: run(), since: at },
            RunError::ResumeFailed { run: run(), why: "step `close` failed and must not be repeated".into() },
            RunError::Leased { run: run(), holder: "bridge-1".into(), until: at },
            RunError::WaitExpired { run: run(), expects: "CHECKS_RUNNING".into(), deadline: at },
        ];
        let text: Vec<String> = rows.iter().map(|error| format!("{}: {error}", error.code())).collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        RUN_INVALID_TRANSITION: run `r1` is pending and cannot become completed; it can become running, failed or cancelled
        RUN_TERMINAL_STATE: run `r1` is already failed and cannot change; start a new run instead
        RUN_ORPHANED: run `r1` lost its worker at 2026-03-01T12:00:00Z before its first checkpoint; start a new run
        RUN_RESUME_FAILED: run `r1` cannot be resumed: step `close` failed and must not be repeated; check what it did, then start a new run
        RUN_LEASED: run `r1` is held by `bridge-1` until 2026-03-01T12:00:00Z; try again then
        RUN_WAIT_EXPIRED: run `r1` waited until 2026-03-01T12:00:00Z for CHECKS_RUNNING, which did not come; check whether the target works
        ");
    }
}
