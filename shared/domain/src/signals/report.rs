//! Reports of checks and bots on a commit, and which of two reports of one source is newer (R-SIGNAL-3). Times are
//! stored as numbers, because a record has a dozen of them and should fit into one kilobyte.

use jiff::Timestamp;
use jiff::fmt::serde::timestamp::microsecond;
use serde::{Deserialize, Serialize};

use crate::event::truncate;
use crate::state::Substatus;

/// Longest text kept of a report, in characters.
pub(super) const MAX_TEXT: usize = 200;

/// Check run or commit status. Both may report under one name, and then both must pass (R-SIGNAL-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    /// A check run of GitHub's Checks API.
    #[default]
    Run,
    Status,
}

impl CheckKind {
    /// The default is not stored, since most checks are check runs.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_run(&self) -> bool {
        matches!(self, Self::Run)
    }
}

/// The status or result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    Queued,
    Running,
    /// Green (success, neutral or skipped).
    Passed,
    Failed,
}

impl CheckVerdict {
    /// Queued < running < completed: orders two reports of one check run with equal times.
    pub(super) fn phase(self) -> u8 {
        match self {
            Self::Queued => 0,
            Self::Running => 1,
            Self::Passed | Self::Failed => 2,
        }
    }
}

/// The newest report of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Check-run name or status context.
    pub name: String,
    #[serde(default, skip_serializing_if = "CheckKind::is_run")]
    pub kind: CheckKind,
    pub verdict: CheckVerdict,
    /// The check run's id; re-runs get a higher one. Statuses have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "microsecond::optional")]
    pub started_at: Option<Timestamp>,
    #[serde(with = "microsecond::required")]
    pub at: Timestamp,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<CheckFailure>,
    /// Whether a remedy is expected to renew this report.
    #[serde(default, skip_serializing_if = "RenewalMark::is_none")]
    pub renewal: RenewalMark,
    /// Who posted it under Policy Bot's name without being Policy Bot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posted_by: Option<String>,
}

/// A mark on a report that a remedy is expected to renew. A new report has no mark, so the answer to a remedy is
/// recognised without comparing clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenewalMark {
    #[default]
    None,
    /// A remedy was claimed that is expected to renew this report. The report still counts.
    Claimed,
    /// The target accepted: the report does not count any more.
    Promised,
}

impl RenewalMark {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Why a check failed, classified when its report arrived (R-TRANSIENT-1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFailure {
    /// The transient rule that matched; `None` means persistent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transient_rule: Option<String>,
    /// The first line of the failure text.
    pub text: String,
}

impl CheckReport {
    /// The sort key by which the newer of two reports wins. GitHub's times have one-second resolution, so more than the
    /// time is needed: (id, time, phase) for check runs, (created_at, phase) for statuses. A running check counts from
    /// its start, so that its result is always newer, and a later start is newer than an older result. The other parts
    /// make the order total, so that the order of arrival does not matter; of two contradicting reports the failed one
    /// wins.
    pub(super) fn order(&self) -> ((u64, Timestamp, u8), Timestamp, CheckVerdict, Option<&str>, &str) {
        let text = self.failure.as_ref().map_or("", |failure| failure.text.as_str());
        // A failure with a matching rule wins over one without.
        let rule = self.failure.as_ref().and_then(|failure| failure.transient_rule.as_deref());
        let since = match (self.kind, self.verdict) {
            (CheckKind::Run, CheckVerdict::Queued | CheckVerdict::Running) => self.started_at.unwrap_or(self.at),
            // A wrong clock may report the end before the start.
            (CheckKind::Run, CheckVerdict::Passed | CheckVerdict::Failed) => {
                self.started_at.map_or(self.at, |at| at.max(self.at))
            }
            (CheckKind::Status, _) => self.at,
        };
        let id = if self.kind == CheckKind::Run { self.id.unwrap_or(0) } else { 0 };
        ((id, since, self.verdict.phase()), self.at, self.verdict, rule, text)
    }

    pub(super) fn shorten(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.text = truncate(&failure.text, MAX_TEXT);
        }
    }

    pub(super) fn key(&self) -> (&str, CheckKind) {
        (&self.name, self.kind)
    }
}

/// A report of Policy Bot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// Evaluating, passed, or which policy failed.
    pub verdict: PolicyVerdict,
    #[serde(with = "microsecond::required")]
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Whether a remedy is expected to renew this report.
    #[serde(default, skip_serializing_if = "RenewalMark::is_none")]
    pub renewal: RenewalMark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyVerdict {
    Evaluating,
    Passed,
    Failed(Substatus),
}

impl PolicyReport {
    pub(super) fn order(&self) -> ((Timestamp, bool), PolicyVerdict, &str) {
        ((self.at, self.verdict != PolicyVerdict::Evaluating), self.verdict, &self.text)
    }
}

/// The newest review of an approver bot on this head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalReport {
    pub by: String,
    /// Approved, or dismissed.
    pub granted: bool,
    #[serde(with = "microsecond::required")]
    pub at: Timestamp,
}

impl ApprovalReport {
    /// Within one second, a dismissal is newer than the approval.
    pub(super) fn order(&self) -> (Timestamp, bool) {
        (self.at, !self.granted)
    }
}

/// A report of Automerge Bot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeReport {
    /// Whether the attempt failed; otherwise it is in progress.
    pub failed: bool,
    #[serde(with = "microsecond::required")]
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Whether a remedy is expected to cause another attempt.
    #[serde(default, skip_serializing_if = "RenewalMark::is_none")]
    pub renewal: RenewalMark,
}

impl MergeReport {
    pub(super) fn order(&self) -> (Timestamp, bool, &str) {
        (self.at, self.failed, &self.text)
    }
}
