//! The numbers of the status issue. `/api/overview` returns the same numbers; the text module words them.

use jiff::Timestamp;

use crate::breaker::BreakerStatus;
use crate::event::{Event, EventKind};
use crate::id::{PrId, RepoName};
use crate::state::State;

/// The pull requests in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateRow {
    pub state: State,
    pub count: u64,
    pub stale: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoRow {
    pub repo: RepoName,
    pub open: u64,
    /// How many of these need a person.
    pub needs_person: u64,
    pub stale: u64,
}

/// Counts of one day, with the names of `/api/overview`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TodayCounts {
    pub opened: u32,
    pub merged: u32,
    /// Remedies that worked.
    pub healed: u32,
    pub remedies: u32,
    /// Pull requests that were escalated to a person.
    pub escalated: u32,
}

impl TodayCounts {
    pub fn add(&mut self, other: &Self) {
        self.opened += other.opened;
        self.merged += other.merged;
        self.healed += other.healed;
        self.remedies += other.remedies;
        self.escalated += other.escalated;
    }

    pub fn note(&mut self, event: &Event) {
        self.opened += u32::from(event.kind == EventKind::PrOpened);
        self.merged += u32::from(event.to == Some(State::Merged));
        self.healed += u32::from(event.is_healed());
        self.remedies += u32::from(event.kind.claimed_strategy().is_some());
        self.escalated += u32::from(event.kind == EventKind::EscalatedNeedsIntervention);
    }
}

/// A pull request that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingPullRequest {
    pub pr: PrId,
    pub since: Timestamp,
    pub why: String,
}

/// The backlog, by stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct BacklogCounts {
    pub discovered: u32,
    pub approved: u32,
    pub in_progress: u32,
    pub pr_open: u32,
    pub wip_limit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatusReport {
    pub states: Vec<StateRow>,
    pub repos: Vec<RepoRow>,
    /// Pull requests that need a person, the longest waiting first.
    pub needs_person: Vec<WaitingPullRequest>,
    /// The counts of today, in UTC.
    pub today: TodayCounts,
    pub breaker: Option<BreakerStatus>,
    pub paused: Option<String>,
    /// The backlog, if it is enabled.
    pub backlog: Option<BacklogCounts>,
    /// Ongoing outages: since when, and what failed.
    pub outages: Vec<(Timestamp, String)>,
}
