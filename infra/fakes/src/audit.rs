//! The audit log: every write to the fakes, so that a test can assert that nothing was done twice.

use jiff::Timestamp;

use crate::fakes::{FakePrId, Fakes};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuditedAction {
    PullOpened,
    PullClosed,
    PullReopened,
    PullMerged,
    BranchUpdated,
    HeadPushed,
    BasePushed,
    CommentCreated,
    ReactionAdded,
    LabelAdded,
    LabelRemoved,
    ReviewSubmitted,
    StatusPosted,
    CheckRunCreated,
    CheckRunUpdated,
    CheckRerequested,
    JobsRerun,
    IssueOpened,
    IssueEdited,
    IssuePinned,
    BuildQueued,
    BuildStopped,
    RepositoryScanned,
    Redelivered,
    BusEvent,
}

/// One write, in the order of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub at: Timestamp,
    /// A login, `jenkins:<user>` for requests to Jenkins, or `bus` for bus events.
    pub by: String,
    pub action: AuditedAction,
    /// The affected pull request or issue, if any.
    pub pr: Option<FakePrId>,
    /// The head commit at that time, if any.
    pub head: Option<String>,
    /// The label, the comment's text, the event's detail …
    pub detail: String,
}

impl Fakes {
    pub fn audit(&self) -> &[AuditEntry] {
        &self.audit_log
    }

    /// The writes by this login (or `jenkins:<user>`, or `bus`).
    pub fn audit_by<'a>(&'a self, by: &'a str) -> impl Iterator<Item = &'a AuditEntry> {
        self.audit_log.iter().filter(move |entry| entry.by == by)
    }

    pub(crate) fn log(
        &mut self,
        by: &str,
        action: AuditedAction,
        pr: Option<FakePrId>,
        head: Option<String>,
        detail: impl Into<String>,
    ) {
        let at = self.now();
        self.audit_log.push(AuditEntry { at, by: by.to_owned(), action, pr, head, detail: detail.into() });
    }
}
