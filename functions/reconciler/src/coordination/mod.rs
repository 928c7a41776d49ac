//! Work of a sweep beyond single pull requests (R-COORD-2 to R-COORD-9): `post_merge_health` requests health URLs after
//! merges, `backlog` moves issues through the pipeline that turns them into pull requests, `status_issue` updates the
//! status issue. The steps only read, and store what they have read: `domain::coordination` decides, and the Car Bridge
//! writes to GitHub. A failed step does not prevent the next one, and a step that is not configured costs nothing.

mod backlog;
mod post_merge_health;
mod status_issue;

use std::time::Duration;

use domain::admission::Gates;
use domain::breaker::BreakerState;
use domain::id::RepoName;
use domain::policy::{Mode, Policies};
use platform::engine::EngineError;
use platform::publish::queue_message::{QueueMessage, Task};
use platform::publish::{Destination, OutboundMessage, PublishError, Publisher};
use platform::store::{Store, StoreError};
use platform::sweep_summary::{CoordinationSummary, SweepSummary};
use platform::transport::{ApiError, Transport};
use thiserror::Error;
use tracing::{error, warn};

use crate::context::{RESERVE, SweepContext, saturating_after};
use crate::limits::rate_budget::{WorkKind, shed_until};

/// Why a step failed. The next sweep retries it.
#[derive(Debug, Clone, PartialEq, Error)]
enum CoordinationError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Call(#[from] ApiError),
    #[error(transparent)]
    Undelivered(#[from] PublishError),
    #[error("{0}")]
    Missing(&'static str),
}

impl CoordinationError {
    fn is_conflict(&self) -> bool {
        match self {
            Self::Store(error) => error.is_conflict(),
            Self::Engine(error) => error.is_conflict(),
            Self::Call(_) | Self::Undelivered(_) | Self::Missing(_) => false,
        }
    }
}

/// The context that the steps share.
struct Coordinator<'a, S, O> {
    cx: &'a SweepContext<'a, S, O>,
    /// For health URLs; nothing else is requested through it.
    http: Option<&'a Transport>,
    /// `None` if they could not be read.
    gates: Option<&'a Gates>,
}

/// The errors, by step.
type CoordinationErrors = Vec<(&'static str, String)>;

/// Whether any step is configured.
pub(crate) fn is_configured(policies: &Policies) -> bool {
    let all = std::iter::once(policies.base()).chain(policies.overrides().map(|(_, policy)| policy));
    all.into_iter().any(|policy| {
        !policy.post_merge_health.urls.is_empty() || policy.backlog.enabled || !policy.status_issue.repo.is_empty()
    })
}

/// Runs all configured steps, unless the sweep was cancelled.
pub(crate) async fn run<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    http: Option<&Transport>,
    gates: Option<&Gates>,
    summary: &mut SweepSummary,
) {
    if summary.cancelled || !is_configured(cx.policies()) {
        return;
    }
    let (coordinated, failed) = Coordinator { cx, http, gates }.coordinate().await;
    summary.coordination = Some(coordinated);
    for (step, why) in failed {
        summary.fail(step, &why);
    }
}

impl<S: Store, O: Publisher> Coordinator<'_, S, O> {
    /// Runs all steps in order. The status issue comes last, and is skipped only if the deadline is near.
    async fn coordinate(&self) -> (CoordinationSummary, CoordinationErrors) {
        let (mut summary, mut failed) = (CoordinationSummary::default(), CoordinationErrors::new());
        match self.gates {
            Some(gates) => self.deliver_effect(gates.paused_by.is_none(), &mut summary, &mut failed).await,
            // Suture may be paused: without knowing, no step but the status issue runs.
            None => failed.push(("pause", "cannot read whether Suture is paused".to_owned())),
        }
        if self.has_time("status", &mut summary) {
            self.log_failure("status", Box::pin(self.update_status_issue(&mut summary)).await, &mut failed);
        }
        (summary, failed)
    }

    async fn deliver_effect(&self, acts: bool, summary: &mut CoordinationSummary, failed: &mut CoordinationErrors) {
        if self.has_time("post_merge_health", summary) {
            self.log_failure("post_merge_health", Box::pin(self.check_post_merge_health(acts, summary)).await, failed);
        }
        if !acts {
            summary.skipped.push("backlog: Suture is paused".to_owned());
        } else if self.has_time("backlog", summary) {
            let done = Box::pin(self.backlog(summary, failed)).await;
            self.log_failure("backlog", done, failed);
        }
    }

    fn log_failure(&self, step: &'static str, result: Result<(), CoordinationError>, failed: &mut CoordinationErrors) {
        if let Err(error) = result {
            if error.is_conflict() {
                warn!(run = %self.cx.trigger.run, step, %error, "write conflict ended coordination step; the next sweep continues");
                return;
            }
            error!(run = %self.cx.trigger.run, step, %error, "coordination step failed");
            failed.push((step, error.to_string()));
        }
    }

    fn has_time(&self, step: &str, summary: &mut CoordinationSummary) -> bool {
        // The longest step waits 8 s for a health URL.
        let has = saturating_after(self.cx.now(), RESERVE) < self.cx.deadline;
        if !has {
            summary.skipped.push(format!("{step}: deadline too near"));
        }
        has
    }

    /// False if the breaker is open, half open, or could not be read.
    fn is_breaker_closed(&self) -> bool {
        self.gates.is_some_and(|gates| gates.breaker.state == BreakerState::Closed)
    }

    /// Whether this repository is in act mode, so that GitHub may be written to.
    fn acts_in(&self, repo: &RepoName) -> bool {
        self.cx.policies().for_repo(repo).mode == Mode::Act
    }

    /// Whether the work is shed because GitHub's rate limit is low; if so, the summary lists it.
    fn is_scarce(&self, work: WorkKind, step: &str, summary: &mut CoordinationSummary) -> bool {
        let now = self.cx.now();
        let until = shed_until(&self.cx.github.rate_limits(), work, now).or_else(|| self.cx.github.not_before());
        if let Some(until) = until.filter(|until| *until > now) {
            summary.skipped.push(format!("{step}: GitHub rate limit is low until {until}"));
            return true;
        }
        false
    }

    /// Sends a task to the queue of the Car Bridge.
    async fn send(&self, id: String, task: Task) -> Result<(), CoordinationError> {
        let Some(repo) = task.repo().cloned() else { return Ok(()) };
        let what = Destination::queue(QueueMessage::Task(task), repo, Duration::ZERO);
        Ok(self.cx.engine.publisher().send_now(OutboundMessage { id, destination: what }).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordination_is_not_configured_by_default() {
        assert!(!is_configured(&Policies::default()));
        for text in [
            "post_merge_health.urls = ['https://shop.example']",
            "backlog.enabled = true",
            "status_issue.repo = 'acme/ops'",
            "[repos.'acme/shop']\nstatus_issue.repo = 'acme/shop'",
        ] {
            assert!(is_configured(&Policies::parse(text).unwrap()), "{text}");
        }
    }
}
