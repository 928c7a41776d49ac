//! What the status issue shows: numbers only. The same ones are at `/api/overview`; how they are worded is in `comment`.

use jiff::Timestamp;

use crate::event::{Event, EventKind};
use crate::id::{PrId, RepoName};
use crate::state::State;

/// One state's pull requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    pub state: State,
    pub count: u64,
    pub stale: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    pub repo: RepoName,
    pub open: u64,
    /// Of these, with a person.
    pub needs_person: u64,
    pub stale: u64,
}

/// What happened on a day; the names are those of `/api/overview`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Today {
    pub opened: u32,
    pub merged: u32,
    /// Remedies that were proven by the event they expected.
    pub healed: u32,
    pub remedies: u32,
    /// Pull requests that were handed to a person.
    pub escalated: u32,
}

impl Today {
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
        self.remedies += u32::from(event.kind.claims().is_some());
        self.escalated += u32::from(event.kind == EventKind::EscalatedNeedsIntervention);
    }
}

/// A pull request that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub pr: PrId,
    pub since: Timestamp,
    pub why: String,
}

/// The backlog, by stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Issues {
    pub discovered: u32,
    pub approved: u32,
    pub in_progress: u32,
    pub pr_open: u32,
    pub wip_limit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Numbers {
    pub states: Vec<Lane>,
    pub repos: Vec<Repo>,
    /// What a person has, the longest waiting first.
    pub needs_person: Vec<Waiting>,
    /// What happened today, in UTC.
    pub today: Today,
    /// `closed`, `open` or `half_open`.
    pub breaker: String,
    pub paused: Option<String>,
    /// The backlog, if it is looked after.
    pub backlog: Option<Issues>,
    /// Outages that go on: since when, and what was seen.
    pub outages: Vec<(Timestamp, String)>,
}
