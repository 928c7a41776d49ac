//! The JSON of a run.

use crate::api_keys::ApiCaller;
use domain::run::{Run, RunKind, RunStep, RunTransition};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::serialized_name;

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
    /// What triggered it.
    trigger: String,
    /// The person who requested it, if any.
    requested_by: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    completed_at: Option<Timestamp>,
    duration_ms: Option<u64>,
    /// The outcome, in a few words.
    outcome: Option<String>,
    /// The error, if it failed.
    error: Option<String>,
    /// The event that proves its success.
    expects: Option<String>,
    /// The deadline for the expected event.
    wait_deadline: Option<Timestamp>,
    /// When the lease of its worker expires.
    lease_until: Option<Timestamp>,
    /// How often it was resumed after its worker crashed.
    resume_count: u32,
    /// Whether the sweep stopped at its deadline.
    partial: bool,
    /// The checkpoints.
    steps: Vec<StepView>,
    /// The state changes, newest last.
    transitions: Vec<TransitionView>,
    /// The actions that were undone when it was cancelled.
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
    /// The output, such as the summary of a sweep as JSON.
    output: Option<String>,
    error: Option<String>,
}

/// One state change.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Transition)]
struct TransitionView {
    from: &'static str,
    to: &'static str,
    at: Timestamp,
    /// The kind of cause.
    initiator: String,
    by: Option<String>,
    reason: Option<String>,
    /// The id of the event in the log that caused it.
    event: Option<String>,
}

/// An action that was undone.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Compensation)]
struct CompensationView {
    at: Timestamp,
    what: String,
    detail: Option<String>,
}

/// A page of runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunPage {
    /// Newest first.
    pub(crate) runs: Vec<RunView>,
    /// The cursor of the next page, for `after`.
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
    fn of(step: &RunStep, with_output: bool) -> Self {
        Self {
            name: step.name.clone(),
            status: serialized_name(&step.status),
            at: step.at,
            duration_ms: step.duration_ms,
            output: step.output.clone().filter(|_| with_output),
            error: step.error.clone(),
        }
    }
}

impl From<&RunTransition> for TransitionView {
    fn from(change: &RunTransition) -> Self {
        let context = &change.context;
        Self {
            from: change.from.name(),
            to: change.to.name(),
            at: context.at,
            initiator: serialized_name(&context.initiator),
            by: context.by.clone(),
            reason: context.reason.clone(),
            event: context.event.as_ref().map(ToString::to_string),
        }
    }
}

impl RunView {
    /// The output of a sweep may name any repository, so it is only for callers who can see all.
    pub(crate) fn of(run: &Run, caller: &ApiCaller) -> Self {
        let with_output = run.pr.is_some() || caller.can_see_all();
        Self {
            id: run.id.to_string(),
            repo: run.pr.as_ref().map(|pr| pr.repo.to_string()),
            number: run.pr.as_ref().map(|pr| pr.number),
            kind: kind(run.kind),
            state: run.state.name(),
            head_sha: run.head_sha.as_ref().map(ToString::to_string),
            trigger: serialized_name(&run.trigger),
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
            steps: run.steps.iter().map(|step| StepView::of(step, with_output)).collect(),
            transitions: run.transitions.iter().map(TransitionView::from).collect(),
            compensation: run
                .compensation
                .iter()
                .map(|entry| CompensationView { at: entry.at, what: entry.what.clone(), detail: entry.detail.clone() })
                .collect(),
        }
    }
}
