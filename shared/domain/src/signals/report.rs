//! What checks and bots say about a commit, and which of two reports of one source is the newer one (R-SIGNAL-3). What all of
//! them together imply is in the parent module. Times are written as numbers: a record has a dozen of them, and is to fit
//! into one kilobyte.

use jiff::Timestamp;
use jiff::fmt::serde::timestamp::microsecond;
use serde::{Deserialize, Serialize};

use crate::event::cut;
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
    /// What most checks are need not be said of each.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_run(&self) -> bool {
        matches!(self, Self::Run)
    }
}

/// What a check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Queued,
    Running,
    /// Green (success, neutral or skipped).
    Passed,
    Failed,
}

impl Verdict {
    /// Queued < running < completed: what orders two reports of one check run with equal times.
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
pub struct Check {
    /// Its name: check-run name or status context.
    pub name: String,
    #[serde(default, skip_serializing_if = "CheckKind::is_run")]
    pub kind: CheckKind,
    pub verdict: Verdict,
    /// The check run's id; re-runs get a higher one. Statuses have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "microsecond::optional")]
    pub started_at: Option<Timestamp>,
    #[serde(with = "microsecond::required")]
    pub at: Timestamp,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Whether a remedy is about to renew this report.
    #[serde(default, skip_serializing_if = "Renewal::is_none")]
    pub renewal: Renewal,
}

/// A mark on a report that a remedy is to renew. A newer report comes without a mark, and so the answer to a remedy is
/// told from what was known before by identity, not by comparing clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renewal {
    #[default]
    None,
    /// A remedy is claimed, and this report is the one it is to renew. Changes nothing yet.
    Claimed,
    /// The target has accepted: the old report does not count any more.
    Promised,
}

impl Renewal {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Why a check failed, as classified when it arrived (R-TRANSIENT-1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The transient rule that matched; none: persistent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transient_rule: Option<String>,
    /// The first line of what it said.
    pub text: String,
}

impl Check {
    /// GitHub's times have one-second resolution, so the order of two reports of one check needs more than the time: per
    /// check run (id, time, phase), per status (created_at, phase). What is at work counts from its start, so that a result
    /// of the same run is always newer than it, whatever the result says about its own start, and a later start is newer
    /// than an older result. The rest makes the order total, so that it does not depend on which report arrives first; of
    /// two contradicting ones the red one counts.
    pub(super) fn order(&self) -> ((u64, Timestamp, u8), Timestamp, Verdict, Option<&str>, &str) {
        let text = self.failure.as_ref().map_or("", |failure| failure.text.as_str());
        // Who has found a reason knows more than who has not.
        let rule = self.failure.as_ref().and_then(|failure| failure.transient_rule.as_deref());
        let since = match (self.kind, self.verdict) {
            (CheckKind::Run, Verdict::Queued | Verdict::Running) => self.started_at.unwrap_or(self.at),
            // A slow clock may put the end before the start; it is the end all the same.
            (CheckKind::Run, Verdict::Passed | Verdict::Failed) => {
                self.started_at.map_or(self.at, |at| at.max(self.at))
            }
            (CheckKind::Status, _) => self.at,
        };
        let id = if self.kind == CheckKind::Run { self.id.unwrap_or(0) } else { 0 };
        ((id, since, self.verdict.phase()), self.at, self.verdict, rule, text)
    }

    pub(super) fn shorten(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.text = cut(&failure.text, MAX_TEXT);
        }
    }

    pub(super) fn key(&self) -> (&str, CheckKind) {
        (&self.name, self.kind)
    }
}

/// What Policy Bot says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// Evaluating, met, or which policy is not.
    pub verdict: PolicyVerdict,
    #[serde(with = "microsecond::required")]
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Whether a remedy is about to renew this report.
    #[serde(default, skip_serializing_if = "Renewal::is_none")]
    pub renewal: Renewal,
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

/// An approver bot's newest word on this head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    pub by: String,
    /// Approved, or taken back.
    pub granted: bool,
    #[serde(with = "microsecond::required")]
    pub at: Timestamp,
}

impl Approval {
    /// Taken back in the second it was granted: taken back.
    pub(super) fn order(&self) -> (Timestamp, bool) {
        (self.at, !self.granted)
    }
}

/// What Automerge Bot says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeReport {
    /// Whether the attempt has failed; otherwise it is under way.
    pub failed: bool,
    #[serde(with = "microsecond::required")]
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Whether a remedy is about to bring about another attempt.
    #[serde(default, skip_serializing_if = "Renewal::is_none")]
    pub renewal: Renewal,
}

impl MergeReport {
    pub(super) fn order(&self) -> (Timestamp, bool, &str) {
        (self.at, self.failed, &self.text)
    }
}
