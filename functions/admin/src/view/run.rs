//! A run, as it is shown.

use crate::api_keys::Caller;
use domain::run::{Run, RunKind, Step, Transition};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::word;

/// The durable record of one piece of work.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Run)]
pub(crate) struct RunView {
    id: String,
    /// The repository, unless it is a sweep.
    repo: Option<String>,
    /// The pull request, unless it is a sweep.
    number: Option<u64>,
    /// The strategy, `abandon`, or `sweep`.
    kind: String,
    /// `pending`, `running`, `awaiting_approval`, `waiting_external`, `completed`, `failed` or `cancelled`.
    state: &'static str,
    /// The head it was decided on.
    head_sha: Option<String>,
    /// Where the wish came from.
    trigger: String,
    /// Whose wish it was, if a person's.
    requested_by: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    completed_at: Option<Timestamp>,
    duration_ms: Option<u64>,
    /// How it ended, in a few words.
    outcome: Option<String>,
    /// What went wrong.
    error: Option<String>,
    /// What proves it.
    expects: Option<String>,
    /// By when.
    wait_deadline: Option<Timestamp>,
    /// Until when its worker counts as alive.
    lease_until: Option<Timestamp>,
    /// How often it was taken over from a worker that was gone.
    resume_count: u32,
    /// A sweep that stopped at its deadline.
    partial: bool,
    /// Its checkpoints.
    steps: Vec<StepView>,
    /// Its changes of state, the newest last.
    transitions: Vec<TransitionView>,
    /// What was undone when it was cancelled.
    compensation: Vec<CompensationView>,
}

/// One checkpoint.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Step)]
struct StepView {
    name: String,
    /// `pending`, `failed` or `done`.
    status: String,
    at: Timestamp,
    duration_ms: Option<u64>,
    /// What it produced, such as the summary of a sweep as JSON.
    output: Option<String>,
    error: Option<String>,
}

/// One change of state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Transition)]
struct TransitionView {
    from: &'static str,
    to: &'static str,
    at: Timestamp,
    /// What kind of cause moved it.
    initiator: String,
    by: Option<String>,
    reason: Option<String>,
}

/// Something that was undone.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Compensation)]
struct CompensationView {
    at: Timestamp,
    what: String,
    detail: Option<String>,
}

/// Some runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunPage {
    /// The newest first.
    pub(crate) runs: Vec<RunView>,
    /// Where to go on, as `after`.
    pub(crate) next: Option<String>,
}

fn kind(kind: RunKind) -> String {
    match kind {
        RunKind::Remedy(strategy) => strategy.to_string(),
        RunKind::Abandon => "abandon".to_owned(),
        RunKind::Sweep => "sweep".to_owned(),
    }
}

impl StepView {
    fn of(step: &Step, whole: bool) -> Self {
        Self {
            name: step.name.clone(),
            status: word(&step.status),
            at: step.at,
            duration_ms: step.duration_ms,
            output: step.output.clone().filter(|_| whole),
            error: step.error.clone(),
        }
    }
}

impl From<&Transition> for TransitionView {
    fn from(change: &Transition) -> Self {
        let context = &change.context;
        Self {
            from: change.from.name(),
            to: change.to.name(),
            at: context.at,
            initiator: word(&context.initiator),
            by: context.by.clone(),
            reason: context.reason.clone(),
        }
    }
}

impl RunView {
    /// What a sweep wrote down may name any repository: that is for those who see all.
    pub(crate) fn of(run: &Run, caller: &Caller) -> Self {
        let whole = run.pr.is_some() || caller.sees_all();
        Self {
            id: run.id.to_string(),
            repo: run.pr.as_ref().map(|pr| pr.repo.to_string()),
            number: run.pr.as_ref().map(|pr| pr.number),
            kind: kind(run.kind),
            state: run.state.name(),
            head_sha: run.head_sha.as_ref().map(ToString::to_string),
            trigger: word(&run.trigger),
            requested_by: run.requested_by.clone(),
            created_at: run.created_at,
            updated_at: run.updated_at,
            completed_at: run.completed_at,
            duration_ms: run.duration_ms,
            outcome: run.outcome.clone(),
            error: run.error.clone(),
            expects: run.expects.clone(),
            wait_deadline: run.wait_deadline,
            lease_until: run.lease_until,
            resume_count: run.resume_count,
            partial: run.partial,
            steps: run.steps.iter().map(|step| StepView::of(step, whole)).collect(),
            transitions: run.transitions.iter().map(TransitionView::from).collect(),
            compensation: run
                .compensation
                .iter()
                .map(|entry| CompensationView { at: entry.at, what: entry.what.clone(), detail: entry.detail.clone() })
                .collect(),
        }
    }
}
