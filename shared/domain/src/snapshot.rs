//! A pull request as GitHub's API shows it, in domain types. It has the same signals as webhooks and goes through the
//! same derivation (R-SIGNAL-1). `platform` reads it over GraphQL.

use jiff::Timestamp;

use crate::event::PullRequestDetails;
use crate::signals::Signals;

/// GitHub's current view of one pull request.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    pub read_at: Timestamp,
    pub details: PullRequestDetails,
    pub state: PullRequestState,
    /// Checks, policy, approvals and merge of the head.
    pub signals: Signals,
    /// The required contexts, without Policy Bot's; `None` if GitHub did not return them.
    pub required_checks: Option<Vec<String>>,
    /// Merge status, lag behind the base, and the Jenkins build.
    pub live: LiveStatus,
}

/// Open, closed or merged, as GitHub reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullRequestState {
    Open,
    /// Closed without a merge.
    Closed {
        at: Timestamp,
    },
    Merged {
        at: Timestamp,
        by: Option<String>,
        by_automerge_bot: bool,
    },
}

/// What GitHub and Jenkins say at the time of the read; never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveStatus {
    pub mergeable: Mergeability,
    /// Number of commits the head is behind its base; `None` if not compared.
    pub behind_by: Option<u32>,
    /// Whether the base branch requires heads to be up to date.
    pub strict: bool,
    /// The Jenkins build of this head; read only when checks have been running for too long.
    pub build: Option<BuildStatus>,
}

/// GitHub computes this lazily: `Unknown` is read again, and never counts as a conflict (R-CLIENT-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mergeability {
    #[default]
    Unknown,
    Clean,
    Conflicting,
}

/// The state of a Jenkins build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildStatus {
    Gone,
    /// Finished, but its result never reached GitHub.
    Finished,
    /// Still running.
    Building {
        since: Timestamp,
    },
    Unreachable,
}
