//! Recovery of orphaned runs: checkpoints, the resume decision (R-RUN-6) and the recovery action of each state (R-RUN-3,
//! R-RUN-4, R-RUN-7). Decisions only: the sweep calls them, the Car Bridge resumes.
//!
//! A step is checkpointed twice: as pending *before* its external effect, and as done or failed afterwards.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Run, RunError, RunState, millis_between};

/// The progress of a step, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Started; whether its effect happened is unknown.
    Pending,
    Failed,
    Done,
}

/// One checkpoint of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStep {
    /// Unique within the run.
    pub name: String,
    pub status: StepStatus,
    /// A resumed run may skip the step once it is done, and use its output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumable: bool,
    /// The step may be repeated, because it probes first or changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
    /// A small result: the number of a pull request, an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub at: Timestamp,
    /// How long the step took; set when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// What a resumed run does with one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepOnResume {
    Skip,
    Replay,
    Stop,
}

impl RunStep {
    /// A step that is about to run; neither resumable nor idempotent unless marked so.
    pub fn started(name: impl Into<String>, at: Timestamp) -> Self {
        Self {
            name: name.into(),
            status: StepStatus::Pending,
            resumable: false,
            idempotent: false,
            output: None,
            error: None,
            at,
            duration_ms: None,
        }
    }

    /// Marks the step as skippable once it is done.
    #[must_use]
    pub fn resumable(self) -> Self {
        Self { resumable: true, ..self }
    }

    #[must_use]
    pub fn idempotent(self) -> Self {
        Self { idempotent: true, ..self }
    }

    #[must_use]
    pub fn done(self, output: Option<String>, at: Timestamp) -> Self {
        let duration_ms = Some(millis_between(self.at, at));
        Self { status: StepStatus::Done, output, error: None, at, duration_ms, ..self }
    }

    #[must_use]
    pub fn failed(self, error: impl Into<String>, at: Timestamp) -> Self {
        let duration_ms = Some(millis_between(self.at, at));
        Self { status: StepStatus::Failed, output: None, error: Some(error.into()), at, duration_ms, ..self }
    }

    /// The resume decision. Only a done step has an output, so `resumable` does not matter for the others.
    pub fn on_resume(&self) -> StepOnResume {
        match (self.status, self.resumable, self.idempotent) {
            (StepStatus::Done, true, true | false) => StepOnResume::Skip,
            (StepStatus::Done, false, true) => StepOnResume::Replay,
            (StepStatus::Pending | StepStatus::Failed, true | false, true) => StepOnResume::Replay,
            (StepStatus::Done, false, false) => StepOnResume::Stop,
            (StepStatus::Pending | StepStatus::Failed, true | false, false) => StepOnResume::Stop,
        }
    }

    /// Whether `newer` replaces this checkpoint. A late checkpoint of a former worker does not, and a step that can be
    /// skipped is never reset.
    fn yields_to(&self, newer: &Self) -> bool {
        match self.on_resume() {
            StepOnResume::Skip => false,
            StepOnResume::Replay | StepOnResume::Stop => (newer.at, newer.status) > (self.at, self.status),
        }
    }
}

/// Where an orphaned run resumes. Numbers are indexes into its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResumePlan {
    /// All checkpointed steps are done: continue with this step, the first without a checkpoint.
    SkipTo(usize),
    /// Repeat this step; each later one follows its own [`RunStep::on_resume`].
    Replay(usize),
    /// Resuming is not safe.
    Impossible { step: String, why: String },
}

/// The recovery action for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunRecoveryAction {
    /// Do nothing: a worker has it, it is not due, it waits for a person, or it has ended.
    Nothing,
    /// The message seems to be lost: send it again.
    Resend,
    /// The worker is gone: resume with this plan.
    Resume(ResumePlan),
    /// The run is waiting: poll the external target.
    PollExternal,
    /// The run cannot continue: fail it with this error.
    Fail(RunError),
}

impl Run {
    pub fn step(&self, name: &str) -> Option<&RunStep> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// Records a checkpoint. A known or older one changes nothing, not even the version, because a redelivered message
    /// records the same steps again.
    pub fn checkpoint(mut self, step: RunStep) -> Result<Self, RunError> {
        self.must_be_live()?;
        let at = step.at;
        match self.steps.iter_mut().find(|known| known.name == step.name) {
            Some(known) if known.yields_to(&step) => *known = step,
            Some(_) => return Ok(self),
            None => self.steps.push(step),
        }
        self.touch(at);
        Ok(self)
    }

    /// Where the run would resume. A step that can neither be skipped nor repeated stops the whole run before any other
    /// step is repeated.
    pub fn resume_plan(&self) -> ResumePlan {
        let mut replay_from = None;
        for (index, step) in self.steps.iter().enumerate() {
            match step.on_resume() {
                StepOnResume::Skip => {}
                StepOnResume::Replay => replay_from = replay_from.or(Some(index)),
                StepOnResume::Stop => {
                    return ResumePlan::Impossible { step: step.name.clone(), why: not_resumable_reason(step) };
                }
            }
        }
        replay_from.map_or(ResumePlan::SkipTo(self.steps.len()), ResumePlan::Replay)
    }

    /// The resume plan, or why there is none. Without a checkpoint it is unknown what was done (R-RUN-7).
    fn usable_plan(&self) -> Result<ResumePlan, RunError> {
        if self.steps.is_empty() {
            let since = self.lease_until.unwrap_or(self.updated_at);
            return Err(RunError::Orphaned { run: self.id.clone(), since });
        }
        match self.resume_plan() {
            ResumePlan::Impossible { why, .. } => Err(RunError::ResumeFailed { run: self.id.clone(), why }),
            plan @ (ResumePlan::SkipTo(_) | ResumePlan::Replay(_)) => Ok(plan),
        }
    }

    /// The recovery action at this time.
    pub fn recover(&self, now: Timestamp) -> RunRecoveryAction {
        if !self.is_due(now) {
            return RunRecoveryAction::Nothing;
        }
        match self.state {
            RunState::Pending => RunRecoveryAction::Resend,
            RunState::Running => self.usable_plan().map_or_else(RunRecoveryAction::Fail, RunRecoveryAction::Resume),
            RunState::WaitingExternal if !self.wait_expired(now) => RunRecoveryAction::PollExternal,
            RunState::WaitingExternal => RunRecoveryAction::Fail(RunError::WaitExpired {
                run: self.id.clone(),
                expects: self.expects.clone().unwrap_or_else(|| "an event".to_owned()),
                deadline: self.deadline(),
            }),
            RunState::AwaitingApproval | RunState::Completed | RunState::Failed | RunState::Cancelled => {
                RunRecoveryAction::Nothing
            }
        }
    }

    /// Takes over an orphaned run: acquires the lease, increments `resume_count` and returns the resume plan.
    ///
    /// [`RunError::TerminalState`] if the run has ended, [`RunError::Leased`] if another worker has it,
    /// [`RunError::Orphaned`] or [`RunError::ResumeFailed`] if it cannot be resumed: the caller then fails it.
    pub fn resume(self, holder: &str, now: Timestamp, until: Timestamp) -> Result<(Self, ResumePlan), RunError> {
        self.must_be_live()?;
        if self.state != RunState::Running {
            let why = format!("it is {}, not running", self.state);
            return Err(RunError::ResumeFailed { run: self.id, why });
        }
        self.must_be_free_for(holder, now)?;
        let plan = self.usable_plan()?;
        let mut run = self.acquire_lease(holder, now, until)?;
        let from = match &plan {
            ResumePlan::Replay(index) => run.steps.get(*index),
            ResumePlan::SkipTo(_) | ResumePlan::Impossible { .. } => run.steps.last(),
        };
        run.resumed_from = from.map(|step| step.name.clone());
        run.resume_count = run.resume_count.saturating_add(1);
        Ok((run, plan))
    }
}

fn not_resumable_reason(step: &RunStep) -> String {
    let name = &step.name;
    match step.status {
        StepStatus::Pending => format!("step `{name}` was started, may have taken effect, and must not be repeated"),
        StepStatus::Failed => format!("step `{name}` failed and must not be repeated"),
        StepStatus::Done => format!("step `{name}` is done and can be neither skipped nor repeated"),
    }
}
#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::id::RunId;
    use crate::run::{Initiator, RunTrigger, TransitionContext};
    use crate::state::Strategy;

    fn at(secs: i64) -> Timestamp {
        "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(secs)
    }

    fn by_system(secs: i64) -> TransitionContext {
        TransitionContext::new(Initiator::System, at(secs))
    }

    fn pending() -> Run {
        let pr = "acme/app#42".parse().unwrap();
        Run::remedy(RunId::new("r1"), pr, None, Strategy::CloseAndReopen, RunTrigger::Reconciler, at(0))
    }

    /// Running, leased until 300 s, with these steps.
    fn running(steps: Vec<RunStep>) -> Run {
        let run = pending().acquire_lease("bridge-1", at(10), at(300)).unwrap();
        Run { steps, ..run.advance(RunState::Running, by_system(10)).unwrap() }
    }

    fn skippable(name: &str) -> RunStep {
        RunStep::started(name, at(11)).resumable().done(Some("42".into()), at(12))
    }

    fn repeatable(name: &str) -> RunStep {
        RunStep::started(name, at(13)).idempotent()
    }

    fn dangerous(name: &str) -> RunStep {
        RunStep::started(name, at(13)).resumable()
    }

    #[test]
    fn waiting_run_is_polled_before_its_deadline_and_fails_at_it() {
        let waiting = running(vec![]).wait_for("CHECKS_STARTED", at(900), by_system(20)).unwrap();
        assert_eq!((waiting.due_at(), waiting.recover(at(500))), (Some(at(900)), RunRecoveryAction::Nothing));
        let looked = waiting.set_poll_at(Some(at(200)), at(21));
        assert_eq!((looked.due_at(), looked.recover(at(199))), (Some(at(200)), RunRecoveryAction::Nothing));
        assert_eq!((looked.recover(at(200)), looked.wait_expired(at(200))), (RunRecoveryAction::PollExternal, false));
        assert!(matches!(looked.recover(at(900)), RunRecoveryAction::Fail(RunError::WaitExpired { .. })));
        let version = looked.version;
        let again = looked.set_poll_at(Some(at(200)), at(22));
        assert_eq!(again.version, version, "nothing has changed");
        assert_eq!(again.clone().set_poll_at(None, at(23)).due_at(), Some(at(900)));
        let over = again.complete("done", by_system(24)).unwrap();
        assert_eq!((over.poll_at, over.due_at()), (None, None));
        assert_eq!(over.clone().set_poll_at(Some(at(1)), at(25)), over, "an ended run does not change");
    }

    #[test]
    fn resume_decision_of_every_step_status() {
        let tree = |resumable: bool, idempotent: bool| {
            let step = RunStep { resumable, idempotent, ..RunStep::started("x", at(1)) };
            [step.clone(), step.clone().failed("e", at(2)), step.done(None, at(2))].map(|step| step.on_resume())
        };
        use StepOnResume::{Replay, Skip, Stop};
        assert_eq!(tree(true, true), [Replay, Replay, Skip]);
        assert_eq!(tree(true, false), [Stop, Stop, Skip]);
        assert_eq!(tree(false, true), [Replay, Replay, Replay]);
        assert_eq!(tree(false, false), [Stop, Stop, Stop]);
    }

    #[test]
    fn step_records_status_output_and_duration() {
        let started = RunStep::started("close", at(1));
        assert_eq!((started.status, started.resumable, started.idempotent), (StepStatus::Pending, false, false));
        assert_eq!(started.duration_ms, None);
        let failed = started.clone().failed("502", at(4));
        assert_eq!((failed.status, failed.error.as_deref(), failed.at), (StepStatus::Failed, Some("502"), at(4)));
        assert_eq!(failed.duration_ms, Some(3000));
        assert_eq!(failed.clone().done(None, at(5)).error, None, "the second try has no error");
        assert_eq!(started.clone().done(Some("#43".into()), at(3)).failed("502", at(4)).output, None);
        let done = started.idempotent().resumable().done(Some("#43".into()), at(3));
        assert_eq!((done.status, done.output.as_deref(), done.at), (StepStatus::Done, Some("#43"), at(3)));
        assert_eq!((done.duration_ms, done.resumable, done.idempotent), (Some(2000), true, true));
        assert_eq!(
            serde_json::to_string(&RunStep::started("close", at(1)).resumable()).unwrap(),
            r#"{"name":"close","status":"pending","resumable":true,"at":"2026-03-01T12:00:01Z"}"#
        );
    }

    #[test]
    fn plan_skips_done_steps_repeats_idempotent_ones_and_stops_at_others() {
        let plan = |steps: Vec<RunStep>| running(steps).resume_plan();
        assert_eq!(plan(vec![]), ResumePlan::SkipTo(0));
        assert_eq!(plan(vec![skippable("guard"), skippable("comment")]), ResumePlan::SkipTo(2));
        assert_eq!(plan(vec![skippable("guard"), repeatable("comment")]), ResumePlan::Replay(1));
        let two = vec![repeatable("guard"), skippable("comment"), repeatable("close")];
        assert_eq!(plan(two), ResumePlan::Replay(0));
        // The step that cannot be resumed is found before anything is repeated.
        assert_eq!(
            plan(vec![skippable("guard"), repeatable("comment"), dangerous("close")]),
            ResumePlan::Impossible {
                step: "close".into(),
                why: "step `close` was started, may have taken effect, and must not be repeated".into()
            }
        );
    }

    #[test]
    fn impossible_plan_has_a_reason() {
        let why = |step: RunStep| match running(vec![step]).resume_plan() {
            ResumePlan::Impossible { why, .. } => why,
            plan @ (ResumePlan::SkipTo(_) | ResumePlan::Replay(_)) => panic!("{plan:?}"),
        };
        assert_eq!(why(dangerous("close").failed("e", at(14))), "step `close` failed and must not be repeated");
        let done = RunStep::started("close", at(1)).done(None, at(2));
        assert_eq!(why(done), "step `close` is done and can be neither skipped nor repeated");
    }

    #[test]
    fn each_state_recovers_exactly_at_its_deadline() {
        assert_eq!(pending().recover(at(59)), RunRecoveryAction::Nothing);
        assert_eq!(pending().recover(at(60)), RunRecoveryAction::Resend);

        let run = running(vec![skippable("guard")]);
        assert_eq!(run.recover(at(299)), RunRecoveryAction::Nothing);
        assert_eq!(run.recover(at(300)), RunRecoveryAction::Resume(ResumePlan::SkipTo(1)));
        let orphaned = RunError::Orphaned { run: RunId::new("r1"), since: at(300) };
        assert_eq!(running(vec![]).recover(at(301)), RunRecoveryAction::Fail(orphaned));
        let RunRecoveryAction::Fail(error) = running(vec![dangerous("close")]).recover(at(300)) else { panic!() };
        assert_eq!(error.code(), "RUN_RESUME_FAILED");

        let waiting = run.clone().wait_for("MERGED", at(900), by_system(20)).unwrap();
        assert_eq!(waiting.recover(at(899)), RunRecoveryAction::Nothing);
        let expired = RunError::WaitExpired { run: RunId::new("r1"), expects: "MERGED".into(), deadline: at(900) };
        assert_eq!(waiting.recover(at(900)), RunRecoveryAction::Fail(expired));
        let nameless = run.clone().advance(RunState::WaitingExternal, by_system(20)).unwrap();
        let expired = RunError::WaitExpired { run: RunId::new("r1"), expects: "an event".into(), deadline: at(20) };
        assert_eq!(nameless.recover(at(20)), RunRecoveryAction::Fail(expired));

        let asked = run.advance(RunState::AwaitingApproval, by_system(20)).unwrap();
        assert_eq!(asked.recover(Timestamp::MAX), RunRecoveryAction::Nothing);
    }

    #[test]
    fn resume_is_recorded_in_the_run() {
        let run = running(vec![skippable("guard"), repeatable("comment")]);
        let version = run.version;
        let (resumed, plan) = run.resume("bridge-2", at(300), at(600)).unwrap();
        assert_eq!(plan, ResumePlan::Replay(1));
        assert_eq!((resumed.resume_count, resumed.resumed_from.as_deref()), (1, Some("comment")));
        assert_eq!((resumed.lease_until, resumed.lease_holder.as_deref()), (Some(at(600)), Some("bridge-2")));
        assert_eq!((resumed.version, resumed.state), (version + 1, RunState::Running));
        let (again, plan) = resumed
            .checkpoint(repeatable("comment").resumable().done(None, at(310)))
            .unwrap()
            .resume("b3", at(600), at(900))
            .unwrap();
        assert_eq!(
            (plan, again.resume_count, again.resumed_from.as_deref()),
            (ResumePlan::SkipTo(2), 2, Some("comment"))
        );
    }

    #[test]
    fn leased_unresumable_or_pending_run_is_not_resumed() {
        let code = |run: Run, now: i64| run.resume("bridge-2", at(now), at(600)).unwrap_err().code();
        assert_eq!(code(running(vec![skippable("guard")]), 299), "RUN_LEASED");
        assert_eq!(code(running(vec![dangerous("close")]), 299), "RUN_LEASED", "its worker may still finish it");
        assert_eq!(code(running(vec![dangerous("close")]), 300), "RUN_RESUME_FAILED");
        assert_eq!(code(running(vec![]), 300), "RUN_ORPHANED");
        let error = pending().resume("bridge-2", at(300), at(600)).unwrap_err();
        assert_eq!(error, RunError::ResumeFailed { run: RunId::new("r1"), why: "it is pending, not running".into() });
    }

    #[test]
    fn repeated_checkpoint_changes_nothing() {
        let once = running(vec![]).checkpoint(repeatable("comment")).unwrap();
        assert_eq!((once.version, once.updated_at), (running(vec![]).version + 1, at(13)));
        assert_eq!(once.step("comment"), Some(&repeatable("comment")));
        assert_eq!(once.step("close"), None);
        assert_eq!(once.clone().checkpoint(repeatable("comment")).unwrap(), once);
        let done = once.clone().checkpoint(repeatable("comment").done(None, at(13))).unwrap();
        assert_eq!((done.steps.len(), done.version), (1, once.version + 1));
        assert_eq!(done.step("comment").unwrap().status, StepStatus::Done);
        assert_eq!(done.clone().checkpoint(repeatable("comment")).unwrap(), done, "the start is older than the end");
    }

    #[test]
    fn skippable_step_is_never_reset_but_others_may_restart() {
        let run = running(vec![skippable("guard"), repeatable("comment").done(None, at(14))]);
        let restarted = RunStep { at: at(50), ..RunStep::started("guard", at(50)).resumable() };
        assert_eq!(run.clone().checkpoint(restarted).unwrap(), run);
        let again = run.checkpoint(RunStep::started("comment", at(50)).idempotent()).unwrap();
        assert_eq!(again.step("comment").unwrap().status, StepStatus::Pending);
        assert_eq!(again.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["guard", "comment"]);
    }
}
