//! A pull request as GitHub shows it when asked, in Suture's words. It yields the same signals as webhooks do and goes
//! through the same derivation (R-SIGNAL-1). Reading it from GraphQL is the platform's work.

use jiff::Timestamp;

use crate::event::Described;
use crate::signals::Signals;

/// GitHub's whole answer about one pull request.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    pub read_at: Timestamp,
    pub described: Described,
    pub life: Life,
    /// Checks, policy, approvals and merge of the head.
    pub signals: Signals,
    /// The required contexts, without Policy Bot's own; `None` if GitHub would not say.
    pub required_checks: Option<Vec<String>>,
    /// Whether it can be merged, and whether its base has moved on.
    pub live: Live,
}

/// Open, closed or merged, as GitHub sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
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

/// What only the living GitHub and Jenkins know; never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live {
    pub mergeable: Mergeable,
    /// Commits the head is behind its base, by comparison; `None` if not compared.
    pub behind_by: Option<u32>,
    /// Whether the base demands that heads are up to date.
    pub strict: bool,
    /// What Jenkins says about this head's build; asked only when checks have been running for too long.
    pub build: Option<Build>,
}

/// GitHub computes this lazily: unknown is asked again, and is never a conflict (R-CLIENT-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mergeable {
    #[default]
    Unknown,
    Clean,
    Conflicting,
}

/// What Jenkins says about a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    Gone,
    /// It has finished, and GitHub was never told.
    Finished,
    /// It is at work, since this time.
    Building {
        since: Timestamp,
    },
    Unreachable,
}
