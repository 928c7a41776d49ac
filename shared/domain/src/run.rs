//! A run: the durable record of one remedy attempt or one sweep (R-RUN-1 to R-RUN-9). This file has the record, its
//! changes, its lease and its deadlines. The state table is in `lifecycle`, checkpoints and crash recovery are in
//! `recovery`; one submodule has the command behind a run, one its errors. Nothing here does I/O.
//!
//! Every change increments `version`; a call that changes nothing does not. The condition of a write is the version
//! that was *loaded*, because several changes may be written together.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::budget::is_zero;
use crate::id::{PrId, RunId, Sha};
use crate::state::Strategy;

mod command_context;
mod error;
mod lifecycle;
mod recovery;

pub use command_context::CommandContext;
pub use error::RunError;
pub use lifecycle::{Initiator, RunState, RunTransition, TransitionContext};
pub use recovery::{ResumePlan, RunRecoveryAction, RunStep, StepOnResume, StepStatus};

/// The message of a run that is still pending after this time counts as lost and is sent again.
const RESEND_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// Only the newest transitions are stored, to keep the record small; a healthy run has five.
const MAX_TRANSITIONS: usize = 32;

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// One attempt of one strategy on one pull request.
    Remedy(Strategy),
    /// A person's `/cancel`: closing the pull request permanently.
    Abandon,
    Sweep,
}

/// What started a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunTrigger {
    Reconciler,
    /// A person's comment on the pull request.
    PrComment,
    CheckRun,
    AdminApi,
    Schedule,
    Webhook,
}

named! {
    /// How a run ended.
    pub enum RunEnd {
        Completed = "completed",
        /// Completed, but the same failure came again.
        NoEffect = "no_effect",
        Failed = "failed",
        /// The remedy was never executed.
        Dropped = "dropped",
        /// Pointless by now, or stopped by a person.
        Cancelled = "cancelled",
    }
}

/// Something that was undone, or could not be undone, when a run was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompensationEntry {
    pub at: Timestamp,
    /// What was undone, such as `budget returned`.
    pub what: String,
    /// Further details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The record. Empty fields are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub id: RunId,
    /// The pull request; `None` for a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pr: Option<PrId>,
    pub kind: RunKind,
    pub state: RunState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_sha: Option<Sha>,
    pub trigger: RunTrigger,
    /// The person who requested the run, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// The rest of the command behind the run, so that its message can be rebuilt.
    #[serde(default, skip_serializing_if = "CommandContext::is_empty")]
    pub command: CommandContext,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When the lease expires: from then on the worker counts as gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_holder: Option<String>,
    /// When the expected event counts as missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_deadline: Option<Timestamp>,
    /// When to poll the external target, before the deadline, to notice early that the expected event will not come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_at: Option<Timestamp>,
    /// The event that proves the run, in a few words; kept after the event came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expects: Option<String>,
    /// The checkpoints, in the order in which the steps first started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<RunStep>,
    /// How often the run was resumed after its worker was gone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resume_count: u32,
    /// The step from which the run was last resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
    /// What was undone; only cancelled runs have entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compensation: Vec<CompensationEntry>,
    /// How it ended. Only ends that the domain decides are recorded: those of remedies and of `/cancel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
    /// The outcome in a few words, such as `conflict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// The time from claim to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The idempotency key of the request (R-SWEEP-3, R-API-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The reconcile request that owns the run. The request has the due date and decides how the run ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    pub version: u64,
    /// Whether a sweep stopped at its deadline; what it did not reach is still due.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// The newest state changes, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transitions: Vec<RunTransition>,
}

/// The time between two timestamps; 0 if a clock went backwards.
fn millis_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}

impl Run {
    /// A pending run of a strategy, decided on this head.
    pub fn remedy(id: RunId, pr: PrId, head: Option<Sha>, does: Strategy, trigger: RunTrigger, now: Timestamp) -> Self {
        Self::for_pull_request(id, pr, head, RunKind::Remedy(does), trigger, now)
    }

    /// A pending run of any kind on one pull request.
    pub fn for_pull_request(
        id: RunId,
        pr: PrId,
        head: Option<Sha>,
        kind: RunKind,
        trigger: RunTrigger,
        now: Timestamp,
    ) -> Self {
        Self { pr: Some(pr), head_sha: head, ..Self::pending(id, kind, trigger, now) }
    }

    pub fn sweep(id: RunId, trigger: RunTrigger, now: Timestamp) -> Self {
        Self::pending(id, RunKind::Sweep, trigger, now)
    }

    fn pending(id: RunId, kind: RunKind, trigger: RunTrigger, now: Timestamp) -> Self {
        Self {
            id,
            pr: None,
            kind,
            state: RunState::Pending,
            head_sha: None,
            trigger,
            requested_by: None,
            command: CommandContext::default(),
            created_at: now,
            updated_at: now,
            lease_until: None,
            lease_holder: None,
            wait_deadline: None,
            poll_at: None,
            expects: None,
            steps: Vec::new(),
            resume_count: 0,
            resumed_from: None,
            compensation: Vec::new(),
            end: None,
            outcome: None,
            error: None,
            completed_at: None,
            duration_ms: None,
            idempotency_key: None,
            request: None,
            version: 0,
            partial: false,
            transitions: Vec::new(),
        }
    }

    fn touch(&mut self, at: Timestamp) {
        // The clocks of two workers may differ, but `updated_at` must not go backwards.
        self.updated_at = self.updated_at.max(at);
        self.version = self.version.saturating_add(1);
    }

    fn must_be_live(&self) -> Result<(), RunError> {
        if self.state.is_terminal() {
            return Err(RunError::TerminalState { run: self.id.clone(), state: self.state });
        }
        Ok(())
    }

    /// Moves the run to another state. Leaving RUNNING ends the lease, leaving WAITING_EXTERNAL ends the deadline, and a
    /// terminal state sets `completed_at` and the duration.
    ///
    /// [`RunError::TerminalState`] if the run has ended, [`RunError::InvalidTransition`] if the table does not allow it.
    pub fn advance(mut self, to: RunState, context: TransitionContext) -> Result<Self, RunError> {
        self.must_be_live()?;
        let from = self.state;
        if !from.may_become(to) {
            return Err(RunError::InvalidTransition { run: self.id, from, to });
        }
        let at = context.at;
        self.state = to;
        if to != RunState::Running {
            (self.lease_until, self.lease_holder) = (None, None);
        }
        if to != RunState::WaitingExternal {
            self.wait_deadline = None;
        }
        if to.is_terminal() {
            self.completed_at = Some(at);
            self.poll_at = None;
            self.duration_ms = Some(millis_between(self.created_at, at));
        }
        if self.transitions.len() == MAX_TRANSITIONS {
            self.transitions.remove(0);
        }
        self.transitions.push(RunTransition { from, to, context });
        self.touch(at);
        Ok(self)
    }

    /// The target has accepted; the run waits for the event that proves it.
    pub fn wait_for(
        self,
        expects: impl Into<String>,
        deadline: Timestamp,
        context: TransitionContext,
    ) -> Result<Self, RunError> {
        let waiting = self.advance(RunState::WaitingExternal, context)?;
        Ok(Self { expects: Some(expects.into()), wait_deadline: Some(deadline), ..waiting })
    }

    /// Extends the deadline after the request was repeated. Changes only a waiting run.
    #[must_use]
    pub fn extend_deadline(mut self, deadline: Timestamp, now: Timestamp) -> Self {
        if self.state == RunState::WaitingExternal {
            self.wait_deadline = Some(deadline);
            self.touch(now);
        }
        self
    }

    /// Sets or clears the time of the next poll of the target.
    #[must_use]
    pub fn set_poll_at(mut self, at: Option<Timestamp>, now: Timestamp) -> Self {
        if !self.state.is_terminal() && self.poll_at != at {
            self.poll_at = at;
            self.touch(now);
        }
        self
    }

    /// Ends the run as the domain decided.
    pub fn end_as(self, end: RunEnd, outcome: impl Into<String>, context: TransitionContext) -> Result<Self, RunError> {
        let ended = match end {
            RunEnd::Completed | RunEnd::NoEffect => self.complete(outcome, context)?,
            RunEnd::Failed => self.fail("failed", outcome, context)?,
            RunEnd::Dropped | RunEnd::Cancelled => self.cancel(outcome, context)?,
        };
        Ok(Self { end: Some(end), ..ended })
    }

    pub fn complete(self, outcome: impl Into<String>, context: TransitionContext) -> Result<Self, RunError> {
        Ok(Self { outcome: Some(outcome.into()), ..self.advance(RunState::Completed, context)? })
    }

    /// Ends the run as failed; `outcome` is a few words, `error` has the details for debugging.
    pub fn fail(
        self,
        outcome: impl Into<String>,
        error: impl Into<String>,
        context: TransitionContext,
    ) -> Result<Self, RunError> {
        let failed = self.advance(RunState::Failed, context)?;
        Ok(Self { outcome: Some(outcome.into()), error: Some(error.into()), ..failed })
    }

    pub fn cancel(self, outcome: impl Into<String>, context: TransitionContext) -> Result<Self, RunError> {
        Ok(Self { outcome: Some(outcome.into()), ..self.advance(RunState::Cancelled, context)? })
    }

    /// Acquires or extends the lease of this holder. The state stays; `advance` changes it.
    ///
    /// [`RunError::Leased`] if another holder's lease is valid, [`RunError::TerminalState`] if the run has ended.
    pub fn acquire_lease(mut self, holder: &str, now: Timestamp, until: Timestamp) -> Result<Self, RunError> {
        self.must_be_live()?;
        self.must_be_free_for(holder, now)?;
        (self.lease_until, self.lease_holder) = (Some(until), Some(holder.to_owned()));
        self.touch(now);
        Ok(self)
    }

    fn must_be_free_for(&self, holder: &str, now: Timestamp) -> Result<(), RunError> {
        match (&self.lease_holder, self.lease_until) {
            (Some(other), Some(until)) if other != holder && now < until => {
                Err(RunError::Leased { run: self.id.clone(), holder: other.clone(), until })
            }
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    /// Records that the message was sent again, so that the run is due a minute later. Changes only a pending run.
    #[must_use]
    pub fn mark_resent(mut self, now: Timestamp) -> Self {
        if self.state == RunState::Pending {
            self.touch(now);
        }
        self
    }

    /// When the run is due: pending, a minute after its message was sent; running, when its lease ends; waiting, at its
    /// next poll or its deadline. Without a lease or deadline it is due at once, so that no run gets stranded. Runs that
    /// await approval, ended runs and runs of a reconcile request have no due date.
    pub fn due_at(&self) -> Option<Timestamp> {
        // The request has the due date.
        if self.request.is_some() {
            return None;
        }
        match self.state {
            RunState::Pending => Some(self.updated_at.checked_add(RESEND_AFTER).unwrap_or(Timestamp::MAX)),
            RunState::Running => Some(self.lease_until.unwrap_or(self.updated_at)),
            RunState::WaitingExternal => Some(self.deadline().min(self.poll_at.unwrap_or(Timestamp::MAX))),
            RunState::AwaitingApproval | RunState::Completed | RunState::Failed | RunState::Cancelled => None,
        }
    }

    /// When the expected event counts as missed.
    fn deadline(&self) -> Timestamp {
        self.wait_deadline.unwrap_or(self.updated_at)
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.due_at().is_some_and(|due_at| now >= due_at)
    }

    /// Whether the worker is gone: the run is running, but its lease has expired.
    pub fn is_orphaned(&self, now: Timestamp) -> bool {
        self.state == RunState::Running && self.is_due(now)
    }

    /// Whether the expected event did not come in time.
    pub fn wait_expired(&self, now: Timestamp) -> bool {
        self.state == RunState::WaitingExternal && now >= self.deadline()
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(secs)
    }

    fn by_system(secs: i64) -> TransitionContext {
        TransitionContext::new(Initiator::System, at(secs))
    }

    fn fresh() -> Run {
        let head = "a".repeat(40).parse().unwrap();
        let pr = "acme/app#42".parse().unwrap();
        Run::remedy(RunId::new("r1"), pr, Some(head), Strategy::Rebuild, RunTrigger::Reconciler, at(0))
    }

    /// A run in this state; the lease ends at 300 s, the deadline is at 900 s.
    fn in_state(state: RunState) -> Run {
        let running = || {
            fresh()
                .acquire_lease("bridge-1", at(10), at(300))
                .unwrap()
                .advance(RunState::Running, by_system(10))
                .unwrap()
        };
        match state {
            RunState::Pending => fresh(),
            RunState::Running => running(),
            RunState::WaitingExternal => running().wait_for("CHECKS_RUNNING", at(900), by_system(20)).unwrap(),
            RunState::AwaitingApproval | RunState::Completed | RunState::Failed | RunState::Cancelled => {
                running().advance(state, by_system(20)).unwrap()
            }
        }
    }

    #[test]
    fn all_49_transitions_follow_the_table() {
        for from in RunState::ALL {
            for to in RunState::ALL {
                let run = in_state(from);
                assert_eq!(run.state, from);
                let version = run.version;
                let code = match run.advance(to, by_system(30)) {
                    Ok(run) => {
                        assert_eq!((run.state, run.updated_at, run.version), (to, at(30), version + 1));
                        let last = run.transitions.last().cloned().unwrap();
                        assert_eq!((last.from, last.to, last.context), (from, to, by_system(30)));
                        "ok"
                    }
                    Err(error) => error.code(),
                };
                let expected = match (from.is_terminal(), from.may_become(to)) {
                    (true, _) => "RUN_TERMINAL_STATE",
                    (false, true) => "ok",
                    (false, false) => "RUN_INVALID_TRANSITION",
                };
                assert_eq!(code, expected, "{from} -> {to}");
            }
        }
    }

    #[test]
    fn ended_run_rejects_every_change() {
        for state in [RunState::Completed, RunState::Failed, RunState::Cancelled] {
            let refused = [
                in_state(state).complete("x", by_system(30)),
                in_state(state).fail("x", "y", by_system(30)),
                in_state(state).cancel("x", by_system(30)),
                in_state(state).wait_for("x", at(40), by_system(30)),
                in_state(state).acquire_lease("bridge-1", at(30), at(40)),
                in_state(state).checkpoint(RunStep::started("guard", at(30))),
                in_state(state).resume("bridge-1", at(30), at(40)).map(|(run, _)| run),
            ];
            for result in refused {
                assert_eq!(result, Err(RunError::TerminalState { run: RunId::new("r1"), state }));
            }
            assert_eq!(in_state(state).mark_resent(at(9999)), in_state(state));
            assert_eq!(in_state(state).recover(at(9999)), RunRecoveryAction::Nothing);
        }
    }

    #[test]
    fn ended_run_has_time_duration_and_outcome() {
        let run = in_state(RunState::WaitingExternal).complete("proven", by_system(75)).unwrap();
        assert_eq!((run.completed_at, run.duration_ms), (Some(at(75)), Some(75_000)));
        assert_eq!((run.outcome.as_deref(), run.error.as_deref()), (Some("proven"), None));
        assert_eq!((run.state, run.expects.as_deref()), (RunState::Completed, Some("CHECKS_RUNNING")));
        let run = in_state(RunState::Running).fail("conflict", "409 merge conflict", by_system(75)).unwrap();
        assert_eq!((run.outcome.as_deref(), run.error.as_deref()), (Some("conflict"), Some("409 merge conflict")));
        assert_eq!(run.state, RunState::Failed);
        let run = fresh().cancel("head moved", by_system(1)).unwrap();
        assert_eq!((run.state, run.outcome.as_deref(), run.error), (RunState::Cancelled, Some("head moved"), None));
        let run = in_state(RunState::Running);
        assert_eq!((run.completed_at, run.duration_ms, run.outcome), (None, None, None), "not before the end");
    }

    #[test]
    fn backwards_clock_gives_zero_duration() {
        let run = in_state(RunState::Running).advance(RunState::Completed, by_system(-5)).unwrap();
        assert_eq!((run.updated_at, run.completed_at, run.duration_ms), (at(10), Some(at(-5)), Some(0)));
    }

    #[test]
    fn lease_and_deadline_end_with_their_state() {
        let running = in_state(RunState::Running);
        assert_eq!((running.lease_until, running.lease_holder.as_deref()), (Some(at(300)), Some("bridge-1")));
        let waiting = in_state(RunState::WaitingExternal);
        assert_eq!((waiting.lease_until, waiting.lease_holder, waiting.wait_deadline), (None, None, Some(at(900))));
        let again = in_state(RunState::WaitingExternal).advance(RunState::Running, by_system(30)).unwrap();
        assert_eq!(again.wait_deadline, None);
        let asked = in_state(RunState::AwaitingApproval);
        assert_eq!((asked.lease_until, asked.lease_holder), (None, None));
    }

    #[test]
    fn only_the_newest_32_transitions_are_kept() {
        let mut run = in_state(RunState::Running);
        for n in 0..40 {
            run = run.advance(RunState::AwaitingApproval, by_system(100 + n)).unwrap();
            run = run.advance(RunState::Running, by_system(100 + n)).unwrap();
        }
        assert_eq!(run.transitions.len(), 32);
        assert_eq!(run.transitions.first().unwrap().context.at, at(124));
        assert_eq!(run.transitions.last().unwrap().context.at, at(139));
    }

    #[test]
    fn lease_excludes_other_workers_until_it_expires() {
        let held = in_state(RunState::Running);
        let refused = held.clone().acquire_lease("bridge-2", at(299), at(600)).unwrap_err();
        let expected = RunError::Leased { run: RunId::new("r1"), holder: "bridge-1".into(), until: at(300) };
        assert_eq!(refused, expected);
        let taken = held.clone().acquire_lease("bridge-2", at(300), at(600)).unwrap();
        assert_eq!((taken.lease_until, taken.lease_holder.as_deref()), (Some(at(600)), Some("bridge-2")));
        assert_eq!((taken.version, taken.updated_at, taken.state), (held.version + 1, at(300), RunState::Running));
        let prolonged = held.acquire_lease("bridge-1", at(299), at(700)).unwrap();
        assert_eq!(prolonged.lease_until, Some(at(700)));
        assert_eq!(fresh().acquire_lease("bridge-1", at(1), at(2)).unwrap().state, RunState::Pending);
    }

    #[test]
    fn due_date_of_every_state() {
        let due = RunState::ALL.map(|state| in_state(state).due_at());
        assert_eq!(due, [Some(at(60)), Some(at(300)), None, Some(at(900)), None, None, None]);
    }

    #[test]
    fn run_without_lease_or_deadline_is_due_at_once() {
        let running = fresh().advance(RunState::Running, by_system(10)).unwrap();
        assert_eq!((running.due_at(), running.is_orphaned(at(10))), (Some(at(10)), true));
        let waiting = running.advance(RunState::WaitingExternal, by_system(20)).unwrap();
        assert_eq!((waiting.due_at(), waiting.wait_expired(at(20))), (Some(at(20)), true));
        let mut last = fresh();
        last.updated_at = Timestamp::MAX;
        assert_eq!(last.due_at(), Some(Timestamp::MAX));
    }

    #[test]
    fn orphaned_and_expired_begin_exactly_at_their_deadline() {
        for state in RunState::ALL {
            let run = in_state(state);
            assert_eq!(run.is_orphaned(at(300)), state == RunState::Running, "{state}");
            assert!(!run.is_orphaned(at(299)), "{state}");
            assert_eq!(run.wait_expired(at(900)), state == RunState::WaitingExternal, "{state}");
            assert!(!run.wait_expired(at(899)), "{state}");
        }
    }

    #[test]
    fn resend_postpones_the_due_date_of_a_pending_run_only() {
        let resent = fresh().mark_resent(at(60));
        assert_eq!((resent.due_at(), resent.version, resent.created_at), (Some(at(120)), 1, at(0)));
        assert_eq!(in_state(RunState::Running).mark_resent(at(60)), in_state(RunState::Running));
    }

    #[test]
    fn new_run_is_stored_without_empty_fields() {
        let sweep = Run::sweep(RunId::new("sweep-1"), RunTrigger::Schedule, at(0));
        insta::assert_snapshot!(serde_json::to_string(&sweep).unwrap(), @r#"{"id":"sweep-1","kind":"sweep","state":"pending","trigger":"schedule","created_at":"2026-03-01T12:00:00Z","updated_at":"2026-03-01T12:00:00Z","version":0}"#);
        insta::assert_snapshot!(serde_json::to_string(&fresh()).unwrap(), @r#"{"id":"r1","pr":"acme/app#42","kind":{"remedy":"rebuild"},"state":"pending","head_sha":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","trigger":"reconciler","created_at":"2026-03-01T12:00:00Z","updated_at":"2026-03-01T12:00:00Z","version":0}"#);
        let names = [RunTrigger::PrComment, RunTrigger::AdminApi, RunTrigger::Webhook];
        assert_eq!(serde_json::to_string(&names).unwrap(), r#"["pr-comment","admin-api","webhook"]"#);
    }

    #[test]
    fn full_run_round_trips_through_json() {
        for state in RunState::ALL {
            let mut run = in_state(state);
            run.steps = vec![RunStep::started("guard", at(1)).idempotent().done(Some("clear".into()), at(2))];
            run.compensation = vec![CompensationEntry { at: at(3), what: "budget returned".into(), detail: None }];
            (run.resume_count, run.partial, run.requested_by) = (2, true, Some("ada".into()));
            let json = serde_json::to_string(&run).unwrap();
            assert_eq!(serde_json::from_str::<Run>(&json).unwrap(), run);
            assert!(json.contains(r#""resume_count":2"#) && json.contains(r#""partial":true"#));
        }
    }
}
