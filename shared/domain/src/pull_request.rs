//! The record of one pull request (seed §4 and design §3), the row of its vulnerability, and when it wants attention.
//! How the record changes is in `decide`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::backoff::Schedule;
use crate::budget::RetryCounts;
use crate::id::{PrId, RunId, Sha};
use crate::policy::Policy;
use crate::priority::{self, Priority, SizeTier};
use crate::signals::{Implied, Signals};
use crate::state::{State, Strategy, Substatus};

/// Everything Suture knows about one pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Which one.
    pub id: PrId,
    /// GitHub's node id, for GraphQL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Head branch.
    pub branch: String,
    /// Target branch.
    pub base_branch: String,
    /// The vulnerability it fixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vulnerability_id: Option<String>,
    /// Where it stands.
    pub state: State,
    /// The state's detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substatus: Option<Substatus>,

    /// The head commit.
    pub head_sha: Sha,
    /// When the head became that.
    pub head_at: Timestamp,
    /// What is known about the head.
    pub signals: Signals,
    /// Signals of commits that were reported before the push that brings them (see `heads`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub early: Vec<EarlyHead>,
    /// Former heads, newest last: what is said about them changes nothing any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_heads: Vec<Sha>,
    /// The required contexts as GitHub last gave them, without Policy Bot's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_checks: Vec<String>,

    /// When the pull request was opened.
    pub created_at: Timestamp,
    /// When the last fact happened that said something new.
    pub last_event_at: Timestamp,
    /// When the state last changed, by the fact's own time: staleness counts from here.
    pub progressed_at: Timestamp,
    /// When it was last opened, closed or merged; older such facts are history.
    pub lifecycle_at: Timestamp,
    /// As of when labels, draft and base are known.
    pub described_at: Timestamp,
    /// When GitHub last confirmed all of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<Timestamp>,

    /// Attempts per strategy.
    #[serde(default)]
    pub retry_counts: RetryCounts,
    /// Remedies in this life, whatever the strategy.
    #[serde(default)]
    pub lifetime_remedies: u32,
    /// When each strategy was last claimed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub last_asked: BTreeMap<Strategy, Timestamp>,
    /// When Suture last did something about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_remediation_at: Option<Timestamp>,
    /// What that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation_action: Option<Strategy>,
    /// The remedy under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_run: Option<ActiveRun>,

    /// Labels that mean something to Suture.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Held by `/hold`. (Hold labels are in `labels`, and only people remove them.)
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// A draft is watched, never remedied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draft: bool,
    /// Changed lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Why automation stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// What observe mode last said it would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would: Option<String>,

    /// Lives of this pull request: 1, and one more for each time it was reopened.
    pub generation: u32,
    /// The pull request it takes the place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u64>,
    /// The pull request that takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<u64>,

    /// Something does not add up: GitHub is to be asked at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspect: Option<Suspect>,
    /// Not to be looked at before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Visits in a row that could not find out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skips: u32,

    /// Rises by one with each write.
    pub version: u64,
    /// When it wants attention next; never for terminal states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// When the table may forget it; only on terminal states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Signals of a commit that is not the head yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyHead {
    /// Which commit.
    pub sha: Sha,
    /// What is known about it.
    pub signals: Signals,
}

/// The remedy under way, as far as deciding needs it; the rest is in its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveRun {
    /// Which run.
    pub id: RunId,
    /// What it does.
    pub strategy: Strategy,
    /// The head it was decided on.
    pub head_sha: Sha,
    /// When it was claimed.
    pub since: Timestamp,
    /// Whether its target has accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepted: bool,
    /// Whether a person asked for it: then it has spent no budget, and there is none to give back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub human: bool,
    /// The last remedy before it, to be restored if it is never done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_at: Option<Timestamp>,
}

/// Why automation stopped, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// In a sentence.
    pub reason: String,
    /// The state it was given up in: a later state disproves it.
    pub state: State,
    /// Since when.
    pub at: Timestamp,
}

/// A doubt about the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// What does not add up.
    pub why: String,
    /// Since when.
    pub since: Timestamp,
}

/// The label by which people hold a pull request.
pub const LABEL_HOLD: &str = "suture/hold";
/// The label by which people tell Suture to stay away for good.
pub const LABEL_IGNORE: &str = "suture/ignore";
/// Former heads remembered, and early heads kept.
const MAX_PAST_HEADS: usize = 10;
const MAX_EARLY_HEADS: usize = 3;
/// Held, draft and escalated pull requests are compared with GitHub this often, so that a missed merge strands none.
const VERIFY_EVERY: SignedDuration = SignedDuration::from_hours(24);

impl Record {
    /// The required contexts: the configuration's, else GitHub's. Empty: every check seen.
    #[must_use]
    pub fn required<'a>(&'a self, policy: &'a Policy) -> &'a [String] {
        if policy.checks.required.is_empty() { &self.required_checks } else { &policy.checks.required }
    }

    /// The state this head's signals imply.
    #[must_use]
    pub fn implied(&self, policy: &Policy) -> Implied {
        self.signals.implied(self.required(policy))
    }

    /// Whether a person holds it, by command or label.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold || self.labels.iter().any(|label| label == LABEL_HOLD || label == LABEL_IGNORE)
    }

    /// Whether Suture may do something about it: open, not handed to a person, not held, not a draft.
    #[must_use]
    pub fn is_actionable(&self) -> bool {
        self.state.is_live() && !self.is_held() && !self.draft
    }

    /// Its place in the queue (seed 004).
    #[must_use]
    pub fn priority_score(&self, now: Timestamp) -> i64 {
        priority::score(Priority::from_labels(&self.labels), self.created_at, now, self.size.map(SizeTier::of))
    }

    /// When it has been in its state for too long (seed §8, rule 10). After a remedy it gets its normal time again, a
    /// growing pause, and never less than the cool-down. `None`: never, it is terminal or a person has it.
    #[must_use]
    pub fn stale_at(&self, policy: &Policy) -> Option<Timestamp> {
        let threshold = policy.threshold(self.state)?;
        let by_state = later(self.progressed_at, threshold);
        let Some(remedied_at) = self.last_remediation_at else { return Some(by_state) };
        let attempt = self.remediation_action.map_or(0, |strategy| self.retry_counts.of(strategy));
        let by_remedy = later(remedied_at, threshold.saturating_add(pauses(policy).delay(attempt)));
        let by_cooldown = later(remedied_at, seconds(policy.backoff.cooldown_secs));
        // What has happened since the remedy starts its own clock; the pause belongs to the state the remedy left behind.
        let by_clock = if self.progressed_at > remedied_at { by_state } else { by_state.max(by_remedy) };
        Some(by_clock.max(by_cooldown))
    }

    /// Whether it has been in its state for too long.
    #[must_use]
    pub fn is_stale(&self, policy: &Policy, now: Timestamp) -> bool {
        self.is_actionable() && self.stale_at(policy).is_some_and(|at| now >= at)
    }

    /// When it wants attention next. Every record that is not terminal has such a date: nothing is forgotten.
    #[must_use]
    pub fn attention_at(&self, policy: &Policy) -> Option<Timestamp> {
        if self.state.is_terminal() {
            return None;
        }
        if let Some(suspect) = &self.suspect {
            return Some(self.not_before.map_or(suspect.since, |at| at.max(suspect.since)));
        }
        let by_state = if self.is_actionable() { self.stale_at(policy) } else { None };
        let verified_at = self.verified_at.map_or(self.progressed_at, |at| at.max(self.progressed_at));
        let at = by_state.unwrap_or_else(|| later(verified_at, VERIFY_EVERY));
        Some(self.not_before.map_or(at, |earliest| at.max(earliest)))
    }

    /// Makes it due at once. The first doubt is kept: it is the one to explain.
    pub fn doubt(&mut self, why: impl Into<String>, since: Timestamp) {
        if self.suspect.is_none() {
            self.suspect = Some(Suspect { why: why.into(), since });
        }
        self.not_before = None;
    }

    /// Moves to another head. The old one is history; what was already said about the new one counts now.
    pub(crate) fn move_head(&mut self, head: Sha, at: Timestamp) {
        self.past_heads.retain(|past| *past != head);
        let early = self.early.iter().position(|early| early.sha == head).map(|at| self.early.remove(at));
        let old = std::mem::replace(&mut self.head_sha, head);
        self.forget_head(old);
        self.signals = early.map_or_else(Signals::default, |early| early.signals);
        self.head_at = at;
    }

    /// Remembers that a commit is no longer the head, or never will be.
    pub(crate) fn forget_head(&mut self, sha: Sha) {
        self.early.retain(|early| early.sha != sha);
        if sha != self.head_sha && !self.past_heads.contains(&sha) {
            self.past_heads.push(sha);
            if self.past_heads.len() > MAX_PAST_HEADS {
                self.past_heads.remove(0);
            }
        }
    }

    /// The signals to note a report on: the head's, or those of a commit that may yet become the head. `None` if the
    /// commit is history.
    pub(crate) fn signals_of(&mut self, sha: &Sha) -> Option<&mut Signals> {
        if *sha == self.head_sha {
            return Some(&mut self.signals);
        }
        if self.past_heads.contains(sha) {
            return None;
        }
        let at = self.early.iter().position(|early| early.sha == *sha).unwrap_or_else(|| {
            if self.early.len() >= MAX_EARLY_HEADS {
                self.early.remove(0);
            }
            self.early.push(EarlyHead { sha: sha.clone(), signals: Signals::default() });
            self.early.len() - 1
        });
        self.early.get_mut(at).map(|early| &mut early.signals)
    }
}

/// `at + by`, held within what a timestamp can say.
#[must_use]
pub fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// That many seconds.
#[must_use]
pub fn seconds(secs: u32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(secs))
}

/// The pauses between attempts.
#[must_use]
pub fn pauses(policy: &Policy) -> Schedule {
    Schedule { base_secs: policy.backoff.base_secs.into(), max_secs: policy.backoff.max_secs.into() }
}

/// One vulnerability on one base branch: the duplicate guard, and the budget that never resets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Vulnerability {
    /// The open pull request for it.
    pub open_pr: Option<u64>,
    /// How often it was closed and asked for afresh.
    pub close_and_reopen: u32,
    /// All its pull requests, oldest first.
    pub lineage: Vec<u64>,
    /// A person cancelled it: never adopted or asked for again.
    pub abandoned: bool,
}
