//! The record of one pull request (R-EVENT-1), when it is stale and when it is due, and the row of its vulnerability.
//! `decide` changes the record.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::admission::GateEpoch;
use crate::backoff::BackoffSchedule;
use crate::budget::{RetryCounts, is_zero};
use crate::event::EventKind;
use crate::id::{PrId, RunId, Sha};
use crate::policy::Policy;
use crate::priority::{self, Priority, SizeTier};
use crate::remedy;
use crate::signals::{ImpliedState, Signals};
use crate::snapshot::{LiveStatus, Mergeability};
use crate::state::{State, Strategy, Substatus};
use crate::time::saturating_after;

/// Everything Suture knows about one pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullRequest {
    pub id: PrId,
    /// GitHub's node id, for GraphQL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Its page, as GitHub names it: another host with GitHub Enterprise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html_url: Option<String>,
    pub branch: String,
    pub base_branch: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vulnerability_id: Option<String>,
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substatus: Option<Substatus>,

    pub head_sha: Sha,
    pub head_at: Timestamp,
    pub signals: Signals,
    /// Signals of commits that were reported before their push event arrived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unannounced_heads: Vec<UnannouncedHead>,
    /// Former heads, newest last. Reports on them change nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_heads: Vec<Sha>,
    /// The required contexts as GitHub last returned them, without Policy Bot's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_checks: Vec<String>,

    pub created_at: Timestamp,
    /// Time of the last fact that had something new.
    pub last_event_at: Timestamp,
    /// When the state last changed, by the time of the fact. Staleness counts from here.
    pub state_since: Timestamp,
    /// When it was last opened, closed or merged; older facts of that kind are ignored.
    pub lifecycle_at: Timestamp,
    /// Time of the last update of labels, draft and base.
    pub described_at: Timestamp,
    /// When the record was last compared with GitHub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<Timestamp>,

    #[serde(default, skip_serializing_if = "RetryCounts::is_empty")]
    pub retry_counts: RetryCounts,
    /// Remedies of all strategies in this generation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lifetime_remedies: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub last_requested: BTreeMap<Strategy, Timestamp>,
    /// When the last remedy was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_remediation_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation_action: Option<Strategy>,
    /// The state in which the last remedy was claimed. Cleared by progress, which ends its backoff and cooldown: a new
    /// head, or another state than this one and the remedy's own post-action state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedied_in: Option<State>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_run: Option<ActiveRun>,

    /// Labels that Suture uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// On hold by `/hold`. (Hold labels are in `labels`, and only people remove them.)
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// Time of the last `/hold` or `/resume`. An older one that is delivered late is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_requested_at: Option<Timestamp>,
    /// Who set the hold by `/hold`, and why. State changes do not clear it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_reason: Option<String>,
    /// Drafts are verified, never remedied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draft: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<BlockedDetails>,
    /// The last decision that observe mode logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_decision: Option<ObservedDecision>,
    /// The last published check run, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_check: Option<PublishedCheckRun>,

    /// 1, and one more for each time it was reopened.
    pub generation: u32,
    /// The pull request that this one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u64>,
    /// The pull request that replaces this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<u64>,

    /// Why the record may be wrong: it is due for verification at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_reason: Option<VerifyReason>,
    /// Remedies in a row that were claimed and never executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DroppedRemedies>,
    /// A strategy that its target refused permanently: it is not tried again in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<PermanentRefusal>,
    /// GitHub refused to merge the base into this head. A new head or another base clears it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_conflict: Option<BaseConflict>,
    /// The run of a person's `/cancel`, which closes the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoning: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopened_at: Option<Timestamp>,
    /// Not due before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The gate that put its remedy off until `not_before`: when the gate opens, it is due at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_off: Option<GateEpoch>,
    /// Consecutive visits in which GitHub could not be read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skips: u32,
    /// Consecutive visits in which Jenkins could not be reached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inconclusive_visits: u32,
    /// Consecutive stale visits in which GitHub had not computed the mergeability.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown_mergeable_visits: u32,

    /// Incremented by each write, for optimistic locking.
    pub version: u64,
    /// When it is due next; `None` for terminal states only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// When the item expires; only for terminal states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Timestamp>,
}

/// Signals of a commit whose push event has not arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnannouncedHead {
    pub sha: Sha,
    pub signals: Signals,
}

/// The active remedy, as far as `decide` needs it; the rest is in its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveRun {
    pub id: RunId,
    pub strategy: Strategy,
    pub head_sha: Sha,
    pub since: Timestamp,
    /// Whether the target accepted the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepted: bool,
    /// Whether close-and-reopen has begun to close the pull request: then neither a push nor a command cancels it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
    /// Whether a person commanded it: then it spent no budget, and none is refunded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub human: bool,
    /// The remedy before this one, restored if this one is never executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousRemedy>,
    /// The previous request of this strategy, restored likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_request: Option<Timestamp>,
    /// Whether the request was repeated, because the proof did not arrive in time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// The remedy before the active one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousRemedy {
    pub at: Timestamp,
    pub strategy: Strategy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedied_in: Option<State>,
}

/// A decision of observe mode, which is logged once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedDecision {
    /// `WOULD_REMEDY` or `WOULD_ESCALATE`.
    pub kind: EventKind,
    pub classification: String,
    pub rule: String,
}

/// The last published check run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedCheckRun {
    pub head: Sha,
    /// A digest of its content without the times. It is updated only if this changes.
    pub digest: u64,
    /// Its version. Each is later than the one before, whatever the clocks say, so that an older text never replaces a
    /// newer.
    pub at: Timestamp,
    /// The diagnosis behind the remedy or the escalation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<String>,
    /// The command of the last button, and its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_result: Option<String>,
    /// Whether it has the full explanation, because a person asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub explained: bool,
}

/// Remedies that were claimed and never executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedRemedies {
    /// How many in a row.
    pub count: u32,
    pub at: Timestamp,
}

/// A refusal that a retry would not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermanentRefusal {
    pub strategy: Strategy,
    pub why: String,
}

/// A conflict between head and base that a branch update found. GitHub's own mergeability may be older than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseConflict {
    pub at: Timestamp,
    /// When the base got new commits after that, which may resolve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_moved_at: Option<Timestamp>,
}

/// Why automation stopped, and in which state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedDetails {
    pub reason: String,
    /// The state before the escalation or the hold.
    pub state: State,
    #[serde(default)]
    pub until: BlockedUntil,
    pub at: Timestamp,
}

/// What disproves the cause of an escalation (R-STATE-9, R-STATE-10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockedUntil {
    /// Signals of this head that imply a later state than the one it escalated in.
    #[default]
    Progress,
    /// Only GitHub's merge status: the head can be merged and is up to date.
    Mergeable,
    /// GitHub has computed whether the head can be merged.
    MergeabilityKnown,
}

/// Why the record has to be compared with GitHub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyReason {
    pub why: String,
    pub since: Timestamp,
}

/// The label that puts a pull request on hold.
pub const LABEL_HOLD: &str = "suture/hold";
/// The label that makes Suture ignore a pull request permanently.
pub const LABEL_IGNORE: &str = "suture/ignore";
/// Limits of `past_heads` and of unannounced heads.
const MAX_PAST_HEADS: usize = 10;
const MAX_UNANNOUNCED_HEADS: usize = 3;
/// How often pull requests on hold, drafts and escalated ones are compared with GitHub, so that a missed merge is
/// found.
const VERIFY_EVERY: SignedDuration = SignedDuration::from_hours(24);

impl PullRequest {
    /// The required contexts: those of the configuration, else GitHub's. Empty means every check seen.
    pub fn required<'a>(&'a self, policy: &'a Policy) -> &'a [String] {
        if policy.checks.required.is_empty() { &self.required_checks } else { &policy.checks.required }
    }

    pub fn implied(&self, policy: &Policy) -> ImpliedState {
        self.signals.implied(self.required(policy))
    }

    /// The page of the pull request: as GitHub named it, else on the configured host.
    pub fn url(&self, policy: &Policy) -> String {
        let on_host = || format!("{}/{}/pull/{}", policy.github_url.0, self.id.repo, self.id.number);
        self.html_url.clone().unwrap_or_else(on_host)
    }

    /// Whether it is on hold, by command or label.
    pub fn is_held(&self) -> bool {
        self.hold || self.hold_label().is_some()
    }

    /// The label that holds it.
    pub fn hold_label(&self) -> Option<&str> {
        let holds = |label: &&String| [LABEL_HOLD, LABEL_IGNORE].iter().any(|hold| label.eq_ignore_ascii_case(hold));
        self.labels.iter().find(holds).map(String::as_str)
    }

    /// Whether Suture may act: open, not escalated, not on hold, not a draft.
    pub fn is_actionable(&self) -> bool {
        self.state.is_live() && !self.is_held() && !self.draft
    }

    /// Whether only the merge is left: such pull requests go first (R-COORD-1).
    pub fn is_merge_ready(&self) -> bool {
        self.is_actionable() && matches!(self.state, State::Approved | State::Merging)
    }

    /// Its priority in a sweep (R-SWEEP-8).
    pub fn priority_score(&self, now: Timestamp) -> i64 {
        priority::score(Priority::from_labels(&self.labels), self.created_at, now, self.size.map(SizeTier::of))
    }

    /// Whether head and base conflict: GitHub reports it, or a branch update found it.
    pub fn has_conflict(&self, live: Option<&LiveStatus>) -> bool {
        self.base_conflict.is_some() || live.is_some_and(|live| live.mergeable == Mergeability::Conflicting)
    }

    /// The conflict that a branch update found and that no remedy was claimed for yet.
    fn new_conflict(&self) -> Option<BaseConflict> {
        self.base_conflict
            .filter(|found| self.active_run.is_none() && self.last_remediation_at.is_none_or(|at| at <= found.at))
    }

    /// When it has been in its state for too long (R-STALE-1, R-STALE-2). After a remedy it gets the threshold again
    /// plus the backoff, and at least the cooldown, until it progresses. A conflict does not wait: time does not resolve
    /// it (R-DIAG-23). `None` if it is terminal or escalated.
    pub fn stale_at(&self, policy: &Policy) -> Option<Timestamp> {
        let threshold = policy.threshold(self.state)?;
        // The first drop has no backoff, because its cause may be gone already.
        let by_drops = self
            .dropped
            .as_ref()
            .map(|drops| saturating_after(drops.at, visit_backoff(policy).delay(drops.count.saturating_sub(1))));
        if let Some(found) = self.new_conflict() {
            return Some(by_drops.map_or(found.at, |at| at.max(found.at)));
        }
        let by_state = saturating_after(self.state_since, threshold);
        let by_state = by_drops.map_or(by_state, |at| at.max(by_state));
        let Some((_, remedied_at)) = self.remedied_in.zip(self.last_remediation_at) else { return Some(by_state) };
        let attempt = self.remediation_action.map_or(0, |strategy| self.retry_counts.of(strategy));
        let by_remedy = saturating_after(remedied_at, threshold.saturating_add(visit_backoff(policy).delay(attempt)));
        let by_cooldown = saturating_after(remedied_at, seconds(policy.backoff.cooldown_secs));
        Some(by_state.max(by_remedy).max(by_cooldown))
    }

    /// The cooldown of the last remedy ends with progress: a state that is neither the one in which the remedy was claimed
    /// nor its own post-action state.
    pub fn end_cooldown_by(&mut self, state: State) {
        let post_action = self.remediation_action.and_then(|strategy| remedy::of(strategy).post_action);
        if ![self.remedied_in, post_action].contains(&Some(state)) {
            self.remedied_in = None;
        }
    }

    /// Whether it has been in its state for longer than the threshold, whatever Suture has done about it meanwhile.
    pub fn is_past_threshold(&self, policy: &Policy, now: Timestamp) -> bool {
        let threshold = policy.threshold(self.state).filter(|_| self.is_actionable());
        threshold.is_some_and(|threshold| now >= saturating_after(self.state_since, threshold))
    }

    /// Whether it has been in its state for too long, and the last remedy has had its time: the sweep may act.
    pub fn is_stale(&self, policy: &Policy, now: Timestamp) -> bool {
        self.is_actionable() && self.stale_at(policy).is_some_and(|at| now >= at)
    }

    /// When it is due next. Every record that is not terminal has a due date.
    pub fn next_due_at(&self, policy: &Policy) -> Option<Timestamp> {
        if self.state.is_terminal() {
            return None;
        }
        if let Some(suspect) = &self.verify_reason {
            return Some(self.not_before.map_or(suspect.since, |at| at.max(suspect.since)));
        }
        let by_state = if self.is_actionable() { self.stale_at(policy) } else { None };
        let verified_at = self.verified_at.map_or(self.state_since, |at| at.max(self.state_since));
        let at = by_state.unwrap_or_else(|| saturating_after(verified_at, VERIFY_EVERY));
        Some(self.not_before.map_or(at, |earliest| at.max(earliest)))
    }

    /// Makes it due for verification at once. The first reason is kept, because it explains the others.
    pub fn request_verification(&mut self, why: impl Into<String>, since: Timestamp) {
        if self.verify_reason.is_none() {
            self.verify_reason = Some(VerifyReason { why: why.into(), since });
        }
        self.not_before = None;
    }

    /// Moves to another head. Reports that arrived before the push of the new head count now.
    pub(crate) fn move_head(&mut self, head: Sha, at: Timestamp) {
        self.past_heads.retain(|past| *past != head);
        let early = self
            .unannounced_heads
            .iter()
            .position(|early| early.sha == head)
            .map(|at| self.unannounced_heads.remove(at));
        let old = std::mem::replace(&mut self.head_sha, head);
        self.add_past_head(old);
        self.signals = early.map_or_else(Signals::default, |early| early.signals);
        self.head_at = at;
        self.base_conflict = None;
        self.remedied_in = None;
        self.last_requested.clear();
    }

    /// Adds a commit to the past heads: it is not the head any more, or never will be.
    pub(crate) fn add_past_head(&mut self, sha: Sha) {
        self.unannounced_heads.retain(|early| early.sha != sha);
        if sha != self.head_sha && !self.past_heads.contains(&sha) {
            self.past_heads.push(sha);
            if self.past_heads.len() > MAX_PAST_HEADS {
                self.past_heads.remove(0);
            }
        }
    }

    /// The signals that a report on this commit belongs to: those of the head, or of an unannounced commit. `None` if
    /// the commit is a former head.
    pub(crate) fn signals_of(&mut self, sha: &Sha) -> Option<&mut Signals> {
        if *sha == self.head_sha {
            return Some(&mut self.signals);
        }
        if self.past_heads.contains(sha) {
            return None;
        }
        let at = self.unannounced_heads.iter().position(|early| early.sha == *sha).unwrap_or_else(|| {
            if self.unannounced_heads.len() >= MAX_UNANNOUNCED_HEADS {
                self.unannounced_heads.remove(0);
            }
            self.unannounced_heads.push(UnannouncedHead { sha: sha.clone(), signals: Signals::default() });
            self.unannounced_heads.len() - 1
        });
        self.unannounced_heads.get_mut(at).map(|early| &mut early.signals)
    }
}

pub fn seconds(secs: u32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(secs))
}

pub fn visit_backoff(policy: &Policy) -> BackoffSchedule {
    BackoffSchedule { base_secs: policy.backoff.base_secs.into(), max_secs: policy.backoff.max_secs.into() }
}

/// One vulnerability on one base branch, for the duplicate guard and the budget that never resets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Vulnerability {
    /// The open pull requests for it; normally one.
    pub open: BTreeSet<u64>,
    /// How often a pull request for it was closed and replaced.
    pub close_and_reopen: u32,
    pub lineage: BTreeSet<u64>,
    /// A person cancelled it: no pull request is adopted or requested for it again.
    pub abandoned: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policies;
    use crate::signals::CheckVerdict;
    use crate::tests::fixture::{PrScenario, acting, minutes, run_of, sha, start};

    const SECOND: SignedDuration = SignedDuration::from_secs(1);
    const DAY: SignedDuration = SignedDuration::from_hours(24);

    const THRESHOLDS: [(State, i64); 9] = [
        (State::Created, 5),
        (State::ChecksRunning, 60),
        (State::ChecksFailed, 30),
        (State::ChecksPassed, 30),
        (State::PolicyEvaluating, 30),
        (State::PolicyFailed, 15),
        (State::PolicyPassed, 15),
        (State::Approved, 10),
        (State::Merging, 5),
    ];

    /// A record that entered this state at `start()`.
    fn record_in(state: State) -> PullRequest {
        let mut record = PrScenario::at(State::Created).record().clone();
        record.state = state;
        record.state_since = start();
        record
    }

    /// The same, with `attempts` remedies, the last of them ten minutes later.
    fn remedied(state: State, strategy: Strategy, attempts: u32) -> PullRequest {
        let mut record = record_in(state);
        record.last_remediation_at = Some(start() + minutes(10));
        record.remediation_action = Some(strategy);
        record.remedied_in = Some(state);
        for _ in 0..attempts {
            record.retry_counts.spend(strategy);
        }
        record
    }

    /// How long after the remedy it becomes stale.
    fn stale_after_remedy(record: &PullRequest) -> SignedDuration {
        record.stale_at(&acting()).unwrap().duration_since(record.last_remediation_at.unwrap())
    }

    #[test]
    fn state_is_stale_after_its_threshold() {
        for (state, threshold) in THRESHOLDS {
            assert_eq!(record_in(state).stale_at(&acting()), Some(start() + minutes(threshold)), "{state}");
        }
        for state in [State::Merged, State::Closed, State::NeedsIntervention] {
            assert_eq!(record_in(state).stale_at(&acting()), None, "{state}");
            let mut record = remedied(State::ChecksFailed, Strategy::Rebuild, 1);
            record.state = state;
            assert_eq!(record.stale_at(&acting()), None, "{state}");
        }
    }

    #[test]
    fn stale_at_adds_threshold_and_backoff_after_a_remedy() {
        for (attempts, backoff_secs) in [(0, 0), (1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 600), (7, 600)] {
            let record = remedied(State::ChecksFailed, Strategy::Rebuild, attempts);
            assert_eq!(stale_after_remedy(&record), minutes(30) + SECOND * backoff_secs, "{attempts} attempts");
        }
        // The backoff depends on the count of this strategy only.
        let mut record = remedied(State::ChecksFailed, Strategy::Rebuild, 1);
        record.retry_counts.branch_update = 2;
        assert_eq!(stale_after_remedy(&record), minutes(30) + SECOND * 30);
        record.remediation_action = None;
        assert_eq!(stale_after_remedy(&record), minutes(30));
    }

    #[test]
    fn cooldown_applies_where_the_threshold_is_shorter() {
        let merging = remedied(State::Merging, Strategy::RetriggerAutomergeBot, 1);
        assert_eq!(stale_after_remedy(&merging), SECOND * 900);
        let running = remedied(State::ChecksRunning, Strategy::Rebuild, 1);
        assert_eq!(stale_after_remedy(&running), minutes(60) + SECOND * 30);
        // The threshold of POLICY_PASSED plus the backoff is longer than the cooldown.
        let passed = remedied(State::PolicyPassed, Strategy::RetriggerApproverBot, 1);
        assert_eq!(stale_after_remedy(&passed), SECOND * 930);
        let mut policy = acting();
        policy.backoff.cooldown_secs = 0;
        assert_eq!(merging.stale_at(&policy), Some(start() + minutes(15) + SECOND * 30));
    }

    #[test]
    fn state_change_after_a_remedy_restarts_the_threshold() {
        let mut record = remedied(State::ChecksFailed, Strategy::Rebuild, 3);
        let remedied_at = record.last_remediation_at.unwrap();
        record.state_since = remedied_at + minutes(2);
        assert_eq!(record.stale_at(&acting()), Some(remedied_at + minutes(32)), "threshold and backoff");
        record.state_since = remedied_at + minutes(2) + SECOND;
        assert_eq!(record.stale_at(&acting()), Some(remedied_at + minutes(32) + SECOND), "the later of the two");
        // After progress neither the backoff nor the cooldown applies.
        record.state = State::Merging;
        record.remedied_in = None;
        assert_eq!(record.stale_at(&acting()), Some(record.state_since + minutes(5)));
    }

    #[test]
    fn pull_request_is_stale_from_its_threshold_on() {
        for (state, threshold) in THRESHOLDS {
            let record = record_in(state);
            let at = start() + minutes(threshold);
            assert!(!record.is_stale(&acting(), at - SECOND), "{state}");
            assert!(record.is_stale(&acting(), at), "{state}");
            assert!(record.is_stale(&acting(), Timestamp::MAX), "{state}");
        }
        for state in [State::Merged, State::Closed, State::NeedsIntervention] {
            assert!(!record_in(state).is_stale(&acting(), Timestamp::MAX), "{state}");
        }
    }

    #[test]
    fn pull_request_on_hold_or_draft_is_never_stale() {
        let changes: [fn(&mut PullRequest); 4] = [
            |record| record.hold = true,
            |record| record.labels.push(LABEL_HOLD.to_owned()),
            |record| record.labels.push("suture/ignore".to_owned()),
            |record| record.draft = true,
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut record = record_in(State::Approved);
            record.labels.push("codegenie".to_owned());
            assert!(record.is_actionable() && !record.is_held());
            change(&mut record);
            assert!(!record.is_actionable(), "change {n}");
            assert_eq!(record.is_held(), n < 3, "a draft is not held");
            assert!(!record.is_stale(&acting(), Timestamp::MAX));
            assert_eq!(record.stale_at(&acting()), Some(start() + minutes(10)), "the threshold still counts");
            // It is verified once a day.
            assert_eq!(record.next_due_at(&acting()), Some(start() + DAY));
        }
        for state in [State::Merged, State::Closed, State::NeedsIntervention] {
            assert!(!record_in(state).is_actionable(), "{state}");
        }
        assert_eq!((LABEL_HOLD, LABEL_IGNORE), ("suture/hold", "suture/ignore"));
    }

    #[test]
    fn due_date_is_the_later_of_stale_at_and_not_before() {
        let mut record = record_in(State::Approved);
        assert_eq!(record.next_due_at(&acting()), Some(start() + minutes(10)));
        record.not_before = Some(start() + minutes(9));
        assert_eq!(record.next_due_at(&acting()), Some(start() + minutes(10)));
        record.not_before = Some(start() + minutes(11));
        assert_eq!(record.next_due_at(&acting()), Some(start() + minutes(11)));
        // A verification does not change the threshold.
        record.verified_at = Some(start() + minutes(50));
        assert_eq!(record.next_due_at(&acting()), Some(start() + minutes(11)));
    }

    #[test]
    fn verification_request_makes_it_due_at_once() {
        let mut record = record_in(State::ChecksRunning);
        let requested_at = start() + minutes(7);
        record.not_before = Some(start() + minutes(50));
        record.request_verification("the first", requested_at);
        assert_eq!(record.not_before, None);
        assert_eq!(record.next_due_at(&acting()), Some(requested_at));
        // The first reason is kept, and a second one makes it due at once again.
        record.not_before = Some(start() + minutes(50));
        record.request_verification("the second".to_owned(), requested_at + minutes(1));
        assert_eq!(record.verify_reason, Some(VerifyReason { why: "the first".to_owned(), since: requested_at }));
        assert_eq!(record.not_before, None);
        // A visit that was skipped is repeated later.
        record.not_before = Some(requested_at + minutes(5));
        assert_eq!(record.next_due_at(&acting()), Some(requested_at + minutes(5)));
        record.not_before = Some(requested_at - minutes(5));
        assert_eq!(record.next_due_at(&acting()), Some(requested_at));
        // Also on hold and after an escalation.
        record.not_before = None;
        record.hold = true;
        assert_eq!(record.next_due_at(&acting()), Some(requested_at));
        record.state = State::NeedsIntervention;
        assert_eq!(record.next_due_at(&acting()), Some(requested_at));
        record.state = State::Merged;
        assert_eq!(record.next_due_at(&acting()), None);
    }

    #[test]
    fn escalated_pull_request_is_verified_once_a_day() {
        let mut record = record_in(State::NeedsIntervention);
        assert_eq!(record.next_due_at(&acting()), Some(start() + DAY));
        record.verified_at = Some(start() - minutes(1));
        assert_eq!(record.next_due_at(&acting()), Some(start() + DAY), "verified before it was escalated");
        record.verified_at = Some(start() + minutes(3));
        assert_eq!(record.next_due_at(&acting()), Some(start() + minutes(3) + DAY));
        record.not_before = Some(start() + DAY * 2);
        assert_eq!(record.next_due_at(&acting()), Some(start() + DAY * 2));
        for state in [State::Merged, State::Closed] {
            record.state = state;
            assert_eq!(record.next_due_at(&acting()), None, "{state}");
        }
    }

    #[test]
    fn priority_score_depends_on_labels_age_and_size() {
        let mut record = record_in(State::ChecksFailed);
        record.size = Some(12);
        assert_eq!(record.priority_score(start()), 9);
        assert_eq!(record.priority_score(start() + DAY * 3), 24);
        record.size = None;
        assert_eq!(record.priority_score(start()), 10);
        record.size = Some(1000);
        assert_eq!(record.priority_score(start()), 6);
        record.labels = vec!["codegenie".to_owned(), "suture/priority-p1".to_owned()];
        assert_eq!(record.priority_score(start()), 96);
        record.labels.push("suture/priority-p0".to_owned());
        assert_eq!(record.priority_score(start()), 996);
    }

    #[test]
    fn required_checks_come_from_configuration_else_from_github() {
        let mut record = record_in(State::ChecksRunning);
        let mut policy = acting();
        assert!(record.required(&policy).is_empty());
        record.required_checks = vec!["build".to_owned()];
        assert_eq!(record.required(&policy), ["build"]);
        policy.checks.required = vec!["jenkins".to_owned(), "scan".to_owned()];
        assert_eq!(record.required(&policy), ["jenkins", "scan"]);
        // The derivation uses this list.
        record.signals.note_check(&run_of("build", CheckVerdict::Passed, start()), 9);
        assert_eq!(record.implied(&policy).state, State::ChecksRunning);
        assert_eq!(record.implied(&acting()).state, State::ChecksPassed);
    }

    #[test]
    fn moving_back_to_a_past_head_removes_it_from_past_heads() {
        let mut record = record_in(State::ChecksRunning);
        record.signals.note_requested(start());
        record.move_head(sha('b'), start() + minutes(1));
        assert_eq!((&record.head_sha, record.head_at), (&sha('b'), start() + minutes(1)));
        assert_eq!((record.past_heads.as_slice(), &record.signals), ([sha('a')].as_slice(), &Signals::default()));
        assert!(record.signals_of(&sha('a')).is_none(), "reports on a former head are not stored");
        record.move_head(sha('a'), start() + minutes(2));
        assert_eq!(record.past_heads, [sha('b')]);
        record.signals_of(&sha('a')).unwrap().note_requested(start());
        assert_eq!(record.signals.requested_at, Some(start()));
    }

    #[test]
    fn report_on_unannounced_head_is_kept_until_the_push() {
        let mut record = record_in(State::ChecksRunning);
        record.signals_of(&sha('b')).unwrap().note_requested(start());
        record.signals_of(&sha('c')).unwrap().note_requested(start() + minutes(1));
        record.signals_of(&sha('b')).unwrap().note_requested(start() + minutes(2));
        let early: Vec<_> =
            record.unannounced_heads.iter().map(|early| (&early.sha, early.signals.requested_at.unwrap())).collect();
        assert_eq!(early, [(&sha('b'), start() + minutes(2)), (&sha('c'), start() + minutes(1))]);
        record.add_past_head(sha('c'));
        record.add_past_head(sha('c'));
        assert_eq!((record.unannounced_heads.len(), record.past_heads.as_slice()), (1, [sha('c')].as_slice()));
        record.move_head(sha('b'), start() + minutes(3));
        assert_eq!(record.signals.requested_at, Some(start() + minutes(2)));
        assert!(record.unannounced_heads.is_empty());
        record.add_past_head(sha('b'));
        assert!(!record.past_heads.contains(&sha('b')), "the head is not a past head");
    }

    #[test]
    fn ten_past_heads_and_three_unannounced_heads_are_kept() {
        let mut record = record_in(State::ChecksRunning);
        for letter in "0123456789b".chars() {
            record.add_past_head(sha(letter));
        }
        assert_eq!((record.past_heads.len(), &record.past_heads[0], &record.past_heads[9]), (10, &sha('1'), &sha('b')));
        for letter in ['c', 'd', 'e', 'f'] {
            record.signals_of(&sha(letter)).unwrap().note_requested(start());
        }
        let early: Vec<_> = record.unannounced_heads.iter().map(|early| early.sha.clone()).collect();
        assert_eq!(early, ["d", "e", "f"].map(|letter| letter.repeat(40).parse().unwrap()));
    }

    #[test]
    fn seconds_and_backoff_do_not_overflow() {
        assert_eq!(seconds(u32::MAX).as_secs(), 4_294_967_295);
        let schedule = visit_backoff(Policies::default().base());
        assert_eq!((schedule.base_secs, schedule.max_secs), (30, 600));
    }

    fn assert_read_back(record: &PullRequest) {
        let json = serde_json::to_string(record).unwrap();
        assert_eq!(serde_json::from_str::<PullRequest>(&json).unwrap(), *record);
    }

    #[test]
    fn record_survives_a_json_round_trip() {
        let mut scenario = PrScenario::at(State::ChecksFailed);
        scenario.advance_minutes(30);
        scenario.sweep(scenario.github());
        let mut record = scenario.record().clone();
        assert!(record.active_run.is_some() && record.due_at.is_some());
        assert_read_back(&record);
        // Also with every field set that is usually empty.
        let at = start() + SECOND;
        record.unannounced_heads.push(UnannouncedHead { sha: sha('e'), signals: record.signals.clone() });
        record.past_heads.push(sha('f'));
        record.required_checks.push("build".to_owned());
        record.labels.push(LABEL_HOLD.to_owned());
        (record.hold, record.draft, record.skips) = (true, true, 2);
        record.blocked = Some(BlockedDetails {
            reason: "why".to_owned(),
            state: State::ChecksFailed,
            until: BlockedUntil::Mergeable,
            at,
        });
        record.observed_decision = Some(ObservedDecision {
            kind: EventKind::WouldRemedy,
            classification: "REBUILD".to_owned(),
            rule: "3".to_owned(),
        });
        (record.replaces, record.replaced_by) = (Some(41), Some(43));
        record.request_verification("why", at);
        (record.not_before, record.ttl) = (Some(at), Some(at));
        let previous = PreviousRemedy { at, strategy: Strategy::Rebuild, remedied_in: Some(State::ChecksFailed) };
        if let Some(run) = &mut record.active_run {
            (run.accepted, run.human, run.previous) = (true, true, Some(previous));
        }
        assert_read_back(&record);
    }

    #[test]
    fn record_without_newer_fields_is_readable() {
        let record = record_in(State::Created);
        let mut counted = record.clone();
        counted.retry_counts.rebuild = 1;
        counted.lifetime_remedies = 1;
        let mut json = serde_json::to_value(&counted).unwrap();
        for field in ["retry_counts", "lifetime_remedies"] {
            assert!(json.as_object_mut().unwrap().remove(field).is_some());
        }
        assert_eq!(serde_json::from_value::<PullRequest>(json).unwrap(), record);
    }

    #[test]
    fn typical_record_is_smaller_than_one_kilobyte() {
        let scenario = PrScenario::at(State::Approved);
        let json = serde_json::to_string(scenario.record()).unwrap();
        assert!(json.len() < 1_000, "{} bytes: {json}", json.len());
        // Fields with default values are not stored.
        for absent in [
            "retry_counts",
            "lifetime_remedies",
            "kind",
            "hold",
            "draft",
            "skips",
            "suspect",
            "early",
            "past_heads",
            "renewal",
            "asked",
            "ttl",
        ] {
            assert!(!json.contains(&format!("\"{absent}\"")), "{absent} in {json}");
        }
        assert!(!json.contains("null"), "{json}");
    }

    #[test]
    fn vulnerability_survives_a_json_round_trip_and_missing_fields_default() {
        let row = Vulnerability { open: [42].into(), close_and_reopen: 1, lineage: [41, 42].into(), abandoned: true };
        let json = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<Vulnerability>(&json).unwrap(), row);
        assert_eq!(serde_json::from_str::<Vulnerability>("{}").unwrap(), Vulnerability::default());
    }
}
