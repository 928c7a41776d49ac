//! Statuses and check runs of a commit.

use jiff::Timestamp;

use super::model::PrIx;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusState {
    Pending,
    Success,
    Failure,
    Error,
}

impl StatusState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Error => "error",
        }
    }
}

#[derive(Debug, Clone)]
pub struct FakeStatus {
    pub id: u64,
    pub context: String,
    pub state: StatusState,
    pub description: String,
    pub target_url: String,
    /// Login of the author.
    pub creator: String,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct FakeCheckRun {
    pub id: u64,
    pub suite_id: u64,
    pub name: String,
    pub app_id: u64,
    pub app_slug: String,
    /// `queued`, `in_progress` or `completed`.
    pub status: String,
    pub conclusion: Option<String>,
    /// The App's own identifier of it.
    pub external_id: String,
    pub details_url: String,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub title: String,
    pub summary: String,
    pub text: String,
    /// Identifiers of its action buttons.
    pub actions: Vec<String>,
}

/// All statuses and check runs of a commit.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommitReports {
    pub(crate) prs: Vec<PrIx>,
    pub(crate) statuses: Vec<FakeStatus>,
    pub(crate) checks: Vec<FakeCheckRun>,
}

impl CommitReports {
    /// The newest status of each context, in order of first appearance.
    pub(crate) fn current_statuses(&self) -> Vec<&FakeStatus> {
        let mut current: Vec<&FakeStatus> = Vec::new();
        for status in &self.statuses {
            match current.iter_mut().find(|known| known.context == status.context) {
                Some(known) => *known = status,
                None => current.push(status),
            }
        }
        current
    }

    /// The newest check run of each name and App, in order of first appearance.
    pub(crate) fn current_checks(&self) -> Vec<&FakeCheckRun> {
        let mut current: Vec<&FakeCheckRun> = Vec::new();
        for check in &self.checks {
            match current.iter_mut().find(|known| known.name == check.name && known.app_id == check.app_id) {
                Some(known) => *known = check,
                None => current.push(check),
            }
        }
        current
    }

    /// Whether a current status or check run has this name, and all that do are green.
    pub(crate) fn is_green(&self, context: &str, app_id: Option<u64>) -> bool {
        let status = self.statuses.iter().rev().find(|status| status.context == context);
        let mut checks = self.current_checks();
        checks.retain(|check| check.name == context && app_id.is_none_or(|id| id == check.app_id));
        let status_green = status.map(|status| status.state == StatusState::Success);
        let checks_green = (!checks.is_empty()).then(|| checks.iter().all(|check| check.is_green()));
        match (status_green, checks_green) {
            (None, None) => false,
            (status, checks) => status.unwrap_or(true) && checks.unwrap_or(true),
        }
    }
}

impl FakeCheckRun {
    /// Whether the conclusion allows a merge.
    pub fn is_green(&self) -> bool {
        self.conclusion.as_deref().is_some_and(|it| matches!(it, "success" | "neutral" | "skipped"))
    }
}
