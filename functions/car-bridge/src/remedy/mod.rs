//! The external calls of each strategy, step by step. A step probes before it does anything that must not be done twice. Permanent
//! refusals are told from transient errors. `rebuild` has its own module.

mod rebuild;

use domain::backoff::AttemptFailure;
use domain::bus::{BusDetail, DetailType, RemedyTarget};
use domain::decide::FactOutcome;
use domain::event::{CloseReason, FactKind, RemedyUpdate};
use domain::id::EffectId;
use domain::policy::{BotRetrigger, Policy, RetriggerVia};
use domain::run::{Run, RunKind, StepStatus};
use domain::state::Strategy;
use domain::text;
use domain::time::saturating_after;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use tracing::info;

use crate::bot_http::PostError;
use crate::dispatch::{CarBridge, RetryableError};
use crate::run_executor::{RunContext, step};
use platform::github::BranchUpdate;
use platform::publish::{Destination, OutboundMessage, Publisher};
use platform::store::Store;
use platform::store::queries;
use platform::transport::ApiError;

/// Why a remedy stops.
pub(crate) enum RemedyError {
    /// Not executed; its budget is refunded.
    Drop(String),
    /// The request certainly did not reach its target. The budget is refunded, but the breaker counts a failure.
    NotSent(String),
    /// The target may have executed the request. The run is resumed once, and the step's probe finds out.
    Unknown(RetryableError, AttemptFailure),
    Fail(String, AttemptFailure),
    /// The message must be retried.
    Retry(RetryableError),
}

impl From<RetryableError> for RemedyError {
    fn from(again: RetryableError) -> Self {
        Self::Retry(again)
    }
}

impl From<platform::store::StoreError> for RemedyError {
    fn from(error: platform::store::StoreError) -> Self {
        Self::Retry(error.into())
    }
}

/// The name of a strategy's first step.
pub(crate) fn first_step(strategy: Strategy, policy: &Policy) -> &'static str {
    match strategy {
        Strategy::Rebuild => "build",
        Strategy::BranchUpdate => "update",
        Strategy::CloseAndReopen => "comment",
        Strategy::RetriggerPolicyBot
        | Strategy::RetriggerSodCheck
        | Strategy::RetriggerApproverBot
        | Strategy::RetriggerAutomergeBot => match policy.retrigger.of(strategy) {
            Some(BotRetrigger { via: RetriggerVia::Label, .. }) => "label",
            _ => "retrigger",
        },
    }
}

/// Whether the run has changed something outside that only its remaining steps make right: it has announced that the pull
/// request is closed, and perhaps closed it, or it has perhaps removed a label that must be added again. The other
/// remedies have one step outside; a sweep finds what it has changed.
pub(crate) fn must_finish(run: &Run) -> bool {
    match run.kind {
        RunKind::Remedy(Strategy::CloseAndReopen) | RunKind::Abandon => {
            run.step("comment").is_some_and(|step| step.status == StepStatus::Done)
        }
        RunKind::Remedy(
            Strategy::RetriggerPolicyBot
            | Strategy::RetriggerSodCheck
            | Strategy::RetriggerApproverBot
            | Strategy::RetriggerAutomergeBot,
        ) => run.step("label").is_some(),
        RunKind::Remedy(Strategy::Rebuild | Strategy::BranchUpdate) | RunKind::Sweep => false,
    }
}

/// A run that must be finished is retried for at least this long and this often; then it fails, and a person is called.
const FINISH_WITHIN: SignedDuration = SignedDuration::from_hours(1);
const FINISH_ATTEMPTS: u32 = 5;

/// Ends a run that must be finished and has been retried long enough. Attempts count too, because the time includes
/// pauses.
pub(crate) fn end_late_retries(
    run: &Run,
    result: Result<String, RemedyError>,
    now: Timestamp,
) -> Result<String, RemedyError> {
    let late = now >= saturating_after(run.created_at, FINISH_WITHIN) && run.resume_count >= FINISH_ATTEMPTS;
    match result {
        Err(RemedyError::Retry(error @ (RetryableError::Api(_) | RetryableError::Publish(_))))
            if late && must_finish(run) =>
        {
            Err(RemedyError::Fail(error.to_string(), AttemptFailure::Unavailable))
        }
        result => result,
    }
}

impl<S: Store, O: Publisher> CarBridge<S, O> {
    pub(crate) async fn remedy(&self, ctx: &mut RunContext<'_>, strategy: Strategy) -> Result<String, RemedyError> {
        match strategy {
            Strategy::BranchUpdate => self.update_branch(ctx).await,
            Strategy::Rebuild => self.rebuild(ctx).await,
            Strategy::CloseAndReopen => self.close_and_reopen(ctx).await,
            Strategy::RetriggerPolicyBot
            | Strategy::RetriggerSodCheck
            | Strategy::RetriggerApproverBot
            | Strategy::RetriggerAutomergeBot => self.retrigger(ctx, strategy).await,
        }
    }

    /// Maps a failed call to the end of the remedy. A rate limit is stored for all functions. Neither a rate limit nor a request that
    /// was not sent costs budget.
    pub(crate) async fn error_to_stop(&self, error: ApiError) -> RemedyError {
        if let Err(again) = self.store_rate_limit(&error).await {
            return RemedyError::Retry(again);
        }
        let failure = error.failure();
        match error {
            ApiError::RateLimited { until } => RemedyError::Drop(format!("GitHub rate limit: paused until {until}")),
            ApiError::Unavailable { may_have_happened: false, .. } => RemedyError::NotSent(error.to_string()),
            ApiError::Unavailable { may_have_happened: true, .. } => RemedyError::Unknown(error.into(), failure),
            ApiError::NotFound { .. }
            | ApiError::Refused { .. }
            | ApiError::Conflict { .. }
            | ApiError::Unauthorized { .. }
            | ApiError::Unreadable { .. } => RemedyError::Fail(error.to_string(), failure),
        }
    }

    /// The same for a call between two steps: a transient error retries the message, and the run resumes at this step.
    pub(crate) async fn error_to_retry(&self, error: ApiError) -> RemedyError {
        if error.is_transient() { RemedyError::Retry(error.into()) } else { self.error_to_stop(error).await }
    }

    pub(crate) async fn or_stop<T>(&self, result: Result<T, ApiError>) -> Result<T, RemedyError> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.error_to_stop(error).await),
        }
    }

    pub(crate) async fn or_interrupt<T>(&self, result: Result<T, ApiError>) -> Result<T, RemedyError> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.error_to_retry(error).await),
        }
    }

    /// The same for a step that must follow an earlier one: a rate limit retries the message too.
    async fn or_finish<T>(&self, result: Result<T, ApiError>) -> Result<T, RemedyError> {
        match result {
            Err(error @ ApiError::RateLimited { .. }) => {
                self.store_rate_limit(&error).await?;
                Err(RemedyError::Retry(error.into()))
            }
            result => self.or_interrupt(result).await,
        }
    }

    async fn update_branch(&self, ctx: &mut RunContext<'_>) -> Result<String, RemedyError> {
        let expected = ctx.run.head_sha.clone().unwrap_or_else(|| ctx.record.head_sha.clone());
        match self.or_stop(self.clients.github.update_branch(ctx.pr(), &expected).await).await? {
            BranchUpdate::Accepted => Ok("merging the base into the head".to_owned()),
            BranchUpdate::NothingToMerge => Err(RemedyError::Drop("nothing to merge".to_owned())),
            BranchUpdate::Conflict => Err(RemedyError::Fail("conflict".to_owned(), AttemptFailure::MergeConflict)),
            // In a resumed run the head most likely moved because of the earlier attempt; the new head is the proof.
            BranchUpdate::HeadMoved if ctx.run.resume_count > 0 => Ok("the head has moved already".to_owned()),
            BranchUpdate::HeadMoved => Err(RemedyError::Drop("the head moved".to_owned())),
        }
    }

    async fn retrigger(&self, ctx: &mut RunContext<'_>, strategy: Strategy) -> Result<String, RemedyError> {
        self.request(ctx, strategy, first_step(strategy, ctx.policy)).await?;
        Ok(format!("retriggered {}", RemedyTarget::of(strategy)))
    }

    /// Sends the request of a step to the target of the strategy, as `[retrigger]` says.
    async fn request(&self, ctx: &mut RunContext<'_>, strategy: Strategy, step: &str) -> Result<(), RemedyError> {
        let target = RemedyTarget::of(strategy);
        let how = ctx.policy.retrigger.of(strategy).cloned().unwrap_or_default();
        match how.via {
            RetriggerVia::Bus => self.put_bus_event(ctx, target, step).await,
            RetriggerVia::Comment => {
                let id = ctx.record.vulnerability_id.as_deref().unwrap_or_default();
                let text = how.comment(id, &ctx.record.base_branch, ctx.pr().number);
                self.post_comment(ctx, step, &text).await
            }
            RetriggerVia::Label => self.retoggle_label(ctx, step, &how.target).await,
            RetriggerVia::Http => {
                let detail = serde_json::to_vec(&detail(ctx, step)).unwrap_or_default();
                self.post_json(target, &how.target, detail).await
            }
        }
    }

    /// Removes the label and adds it again; adding it triggers the bot. The step is done once the label is removed: after a
    /// crash the label is only added, which changes nothing if it is there.
    async fn retoggle_label(&self, ctx: &mut RunContext<'_>, step_name: &str, label: &str) -> Result<(), RemedyError> {
        let github = &self.clients.github;
        let pr = ctx.pr().clone();
        if ctx.done(step_name).is_none() {
            self.or_stop(github.remove_label(&pr, label).await).await?;
            let now = self.now();
            self.checkpoint(ctx, step(step_name, now).done(None, now)).await?;
        }
        self.or_finish(github.add_labels(&pr, &[label]).await).await.map(drop)
    }

    /// Posts a signed request to the URL of a bot.
    pub(crate) async fn post_json(
        &self,
        target: RemedyTarget,
        address: &str,
        detail: Vec<u8>,
    ) -> Result<(), RemedyError> {
        let status = match self.clients.http.post(address, detail, self.now()).await {
            Ok(response) => response.status(),
            Err(PostError::Invalid(why)) => return Err(RemedyError::Fail(why, AttemptFailure::Invalid)),
            Err(PostError::Api(error)) => return Err(self.error_to_stop(error).await),
        };
        if status.is_success() {
            return Ok(());
        }
        let why = format!("{target} answered {status}");
        if status.is_server_error() {
            // The bot recognises a repeated request by its effect id.
            let error = ApiError::Unavailable { why, may_have_happened: true };
            return Err(RemedyError::Unknown(error.into(), AttemptFailure::Unavailable));
        }
        let may_recover = status == StatusCode::TOO_MANY_REQUESTS;
        let failure = if may_recover { AttemptFailure::Unavailable } else { AttemptFailure::Invalid };
        Err(RemedyError::Fail(why, failure))
    }

    /// The bus event of a target, if somebody can receive it.
    pub(crate) fn bus_event_of(&self, target: RemedyTarget) -> Result<DetailType, RemedyError> {
        let invalid = |why: String| RemedyError::Fail(why, AttemptFailure::Invalid);
        let detail_type = target.detail_type().ok_or_else(|| invalid(format!("{target} has no bus event")))?;
        if self.engine.publisher().has_receiver(detail_type) {
            return Ok(detail_type);
        }
        Err(invalid(text::no_receiver(target)))
    }

    async fn put_bus_event(&self, ctx: &RunContext<'_>, target: RemedyTarget, step: &str) -> Result<(), RemedyError> {
        let detail_type = self.bus_event_of(target)?;
        let detail = detail(ctx, step);
        let id = detail.effect_id.to_string();
        info!(run = %ctx.run.id, pr = %ctx.pr(), effect = %id, detail_type = %detail_type.name(), "publishing bus event");
        let detail = serde_json::to_string(&detail)
            .map_err(|error| RemedyError::Fail(error.to_string(), AttemptFailure::Invalid))?;
        let sent = self
            .engine
            .publisher()
            .send_one(OutboundMessage { id, destination: Destination::Bus { detail_type, detail } })
            .await;
        // The bots recognise a repeated event by its effect id.
        sent.map_err(|error| {
            RemedyError::Unknown(RetryableError::Publish(error.to_string()), AttemptFailure::Unavailable)
        })
    }

    /// Posts a comment once, recognised by its hidden marker.
    pub(crate) async fn post_comment(&self, ctx: &RunContext<'_>, step: &str, text: &str) -> Result<(), RemedyError> {
        self.or_stop(self.marked_comment(ctx, step, text).await).await
    }

    async fn marked_comment(&self, ctx: &RunContext<'_>, step: &str, text: &str) -> Result<(), ApiError> {
        self.comment_once(ctx.pr(), &step_marker(ctx, step), text, Some(ctx.run.created_at)).await.map(drop)
    }

    /// Whether this run's comment of the step was posted.
    async fn has_comment(&self, ctx: &RunContext<'_>, step: &str) -> Result<bool, ApiError> {
        self.has_marked_comment(ctx.pr(), &step_marker(ctx, step), Some(ctx.run.created_at)).await
    }

    /// Duplicate guard, comment, close, request: each step is executed once, even after a crash.
    async fn close_and_reopen(&self, ctx: &mut RunContext<'_>) -> Result<String, RemedyError> {
        let pr = ctx.pr().clone();
        if ctx.done("comment").is_none() {
            self.check_duplicate_guard(ctx).await?;
            // Whether CodeGenie can be asked is known before anything is closed.
            if ctx.policy.retrigger.codegenie.via == RetriggerVia::Bus {
                self.bus_event_of(RemedyTarget::CodeGenie)?;
            }
            self.begin_closing(ctx).await?;
            let comment = text::closing_comment(ctx.run.requested_by.as_deref());
            self.or_interrupt(self.marked_comment(ctx, "comment", &comment).await).await?;
            self.done(ctx, "comment", "close").await?;
        }
        if ctx.done("close").is_none() {
            self.or_finish(self.clients.github.close(&pr).await).await?;
            // Before GitHub's webhook arrives: if the next step is refused, a person is called for a closed pull request.
            let closed = FactKind::Closed { by: ctx.run.requested_by.clone(), why: Some(CloseReason::Replaced) };
            self.apply_fact(&pr, format!("{}#closed", ctx.run.id), self.now(), closed).await?;
            self.done(ctx, "close", "ask").await?;
        }
        self.request_replacement(ctx, "ask").await?;
        Ok("closed, and requested a replacement from CodeGenie".to_owned())
    }

    /// From here neither a push nor a command cancels the run.
    async fn begin_closing(&self, ctx: &RunContext<'_>) -> Result<(), RemedyError> {
        let what = FactKind::Remedy { run: ctx.run.id.clone(), update: RemedyUpdate::Closing };
        let applied = self.apply_fact(ctx.pr(), format!("{}#closing", ctx.run.id), self.now(), what).await?;
        match applied.outcome {
            FactOutcome::Applied | FactOutcome::Duplicate => Ok(()),
            FactOutcome::Ignored
            | FactOutcome::Superseded
            | FactOutcome::Anomaly
            | FactOutcome::Refused
            | FactOutcome::Deferred => Err(RemedyError::Drop(applied.reason)),
        }
    }

    /// With another open pull request for the same vulnerability, a replacement would be a duplicate.
    async fn check_duplicate_guard(&self, ctx: &RunContext<'_>) -> Result<(), RemedyError> {
        let Some(id) = &ctx.record.vulnerability_id else {
            return Err(RemedyError::Fail(
                "the pull request has no vulnerability id".to_owned(),
                AttemptFailure::Invalid,
            ));
        };
        let (repo, base) = (&ctx.pr().repo, &ctx.record.base_branch);
        let known = queries::vulnerability(self.engine.store(), repo, base, id, self.now()).await?;
        if known.abandoned {
            return Err(RemedyError::Drop(format!("{id} was abandoned by a user")));
        }
        if let Some(other) = known.open.iter().find(|number| **number != ctx.pr().number) {
            return Err(RemedyError::Drop(format!("{} (#{other})", text::DUPLICATE_EXISTS)));
        }
        Ok(())
    }

    pub(crate) async fn request_replacement(&self, ctx: &mut RunContext<'_>, step: &str) -> Result<(), RemedyError> {
        let again = |why| RemedyError::Retry(RetryableError::Publish(format!("CodeGenie could not be asked: {why}")));
        match self.request(ctx, Strategy::CloseAndReopen, step).await {
            // The old pull request is closed, so the request is retried; only a permanent refusal ends the run.
            Err(RemedyError::Fail(why, failure)) if failure.may_retry() => Err(again(why)),
            Err(RemedyError::Drop(why) | RemedyError::NotSent(why)) => Err(again(why)),
            Err(RemedyError::Unknown(error, _)) => Err(again(error.to_string())),
            done => done,
        }
    }

    /// `/cancel`: comments and closes. It is retried until it is done or GitHub refuses it.
    pub(crate) async fn abandon(&self, ctx: &mut RunContext<'_>) -> Result<String, RemedyError> {
        let pr = ctx.pr().clone();
        if ctx.done("comment").is_none() {
            let text = text::abandoned(&ctx.command.requested_by);
            self.or_finish(self.marked_comment(ctx, "comment", &text).await).await?;
            self.done(ctx, "comment", "close").await?;
        }
        self.or_finish(self.clients.github.close(&pr).await).await?;
        Ok("closed for good".to_owned())
    }

    /// Marks a step as done and the next one as started.
    async fn done(&self, ctx: &mut RunContext<'_>, step_done: &str, next: &str) -> Result<(), RemedyError> {
        let now = self.now();
        self.checkpoint(ctx, step(step_done, now).done(None, now)).await?;
        self.checkpoint(ctx, step(next, now)).await?;
        Ok(())
    }
}

/// The hidden marker of a step's comment.
fn step_marker(ctx: &RunContext<'_>, step: &str) -> String {
    format!("suture:{}#{step}", ctx.run.id)
}

fn detail(ctx: &RunContext<'_>, step: &str) -> BusDetail {
    BusDetail {
        repo: ctx.pr().repo.clone(),
        pr_number: ctx.pr().number,
        head_sha: ctx.run.head_sha.clone().unwrap_or_else(|| ctx.record.head_sha.clone()),
        base_branch: ctx.record.base_branch.clone(),
        vulnerability_id: ctx.record.vulnerability_id.clone(),
        run_id: Some(ctx.run.id.clone()),
        effect_id: EffectId::new(format!("{}#{}#{step}", ctx.pr(), ctx.run.id)),
    }
}
