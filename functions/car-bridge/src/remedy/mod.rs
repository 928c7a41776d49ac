//! The external calls of each strategy, step by step. A step probes before it does anything that must not be done twice. Permanent
//! refusals are told from transient errors. `rebuild` has its own module.

mod rebuild;

use domain::backoff::Failure;
use domain::bus::{BusDetail, DetailType, Target};
use domain::comment;
use domain::id::EffectId;
use domain::policy::{Policy, Wake};
use domain::state::Strategy;
use http::{Method, Request, header};
use tracing::info;

use crate::dispatch::{Again, Bridge};
use crate::run_executor::{InHand, step};
use platform::github::BranchUpdate;
use platform::http::CallError;
use platform::lookup;
use platform::outlets::{Content, Outlets, Parcel};
use platform::store::Store;

/// Why a remedy stops.
pub(crate) enum Stop {
    /// Not executed; its budget is refunded.
    Drop(String),
    Fail(String, Failure),
    /// The result is unknown, so the message must be retried.
    Again(Again),
}

impl From<Again> for Stop {
    fn from(again: Again) -> Self {
        Self::Again(again)
    }
}

impl From<platform::store::StoreError> for Stop {
    fn from(error: platform::store::StoreError) -> Self {
        Self::Again(error.into())
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
        | Strategy::RetriggerAutomergeBot => match policy.wake.of(strategy) {
            Some((Wake::Label, _)) => "label",
            Some((Wake::Bus | Wake::Comment | Wake::Http, _)) | None => "wake",
        },
    }
}

impl<S: Store, O: Outlets> Bridge<S, O> {
    pub(crate) async fn remedy(&self, ctx: &mut InHand<'_>, strategy: Strategy) -> Result<String, Stop> {
        match strategy {
            Strategy::BranchUpdate => self.update_branch(ctx).await,
            Strategy::Rebuild => self.rebuild(ctx).await,
            Strategy::CloseAndReopen => self.close_and_reopen(ctx).await,
            Strategy::RetriggerPolicyBot
            | Strategy::RetriggerSodCheck
            | Strategy::RetriggerApproverBot
            | Strategy::RetriggerAutomergeBot => self.wake(ctx, strategy).await,
        }
    }

    /// Maps a failed call to the end of the remedy. A rate limit is stored for all functions and costs no budget.
    pub(crate) async fn stopped(&self, error: CallError) -> Stop {
        if let Err(again) = self.note_limit(&error).await {
            return Stop::Again(again);
        }
        match error.until() {
            Some(until) => Stop::Drop(format!("GitHub rate limit: paused until {until}")),
            None => Stop::Fail(error.to_string(), error.failure()),
        }
    }

    /// The same for a call between two steps: a transient error retries the message, and the run resumes at this step.
    pub(crate) async fn interrupted(&self, error: CallError) -> Stop {
        if error.is_transient() { Stop::Again(error.into()) } else { self.stopped(error).await }
    }

    pub(crate) async fn or_stop<T>(&self, result: Result<T, CallError>) -> Result<T, Stop> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.stopped(error).await),
        }
    }

    pub(crate) async fn or_interrupt<T>(&self, result: Result<T, CallError>) -> Result<T, Stop> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.interrupted(error).await),
        }
    }

    async fn update_branch(&self, ctx: &mut InHand<'_>) -> Result<String, Stop> {
        let expected = ctx.run.head_sha.clone().unwrap_or_else(|| ctx.record.head_sha.clone());
        match self.or_stop(self.world.github.update_branch(ctx.pr(), &expected).await).await? {
            BranchUpdate::Accepted => Ok("merging the base into the head".to_owned()),
            BranchUpdate::NothingToMerge => Err(Stop::Drop("nothing to merge".to_owned())),
            BranchUpdate::Conflict => Err(Stop::Fail("conflict".to_owned(), Failure::Invalid)),
            // In a resumed run the head most likely moved because of the earlier attempt; the new head is the proof.
            BranchUpdate::HeadMoved if ctx.run.resume_count > 0 => Ok("the head has moved already".to_owned()),
            BranchUpdate::HeadMoved => Err(Stop::Drop("the head moved".to_owned())),
        }
    }

    async fn wake(&self, ctx: &mut InHand<'_>, strategy: Strategy) -> Result<String, Stop> {
        let target = Target::of(strategy);
        let (wake, with) = ctx.policy.wake.of(strategy).unwrap_or((Wake::Bus, ""));
        let with = with.to_owned();
        match wake {
            Wake::Bus => {
                let Some(detail_type) = target.detail_type() else {
                    return Err(Stop::Fail(format!("{target} has no bus event"), Failure::Invalid));
                };
                self.onto_the_bus(ctx, detail_type, "wake").await?;
            }
            Wake::Comment => self.say(ctx, "wake", &with).await?,
            Wake::Label => self.toggle(ctx, &with).await?,
            Wake::Http => self.call(ctx, target, &with).await?,
        }
        Ok(format!("retriggered {target}"))
    }

    /// Removes the label and adds it again; adding it triggers the bot.
    async fn toggle(&self, ctx: &mut InHand<'_>, label: &str) -> Result<(), Stop> {
        let github = &self.world.github;
        let pr = ctx.pr().clone();
        if ctx.done("label").is_none() {
            self.or_stop(github.remove_label(&pr, label).await).await?;
            let now = self.now();
            self.checkpoint(ctx, step("label", now).done(None, now)).await?;
        }
        self.or_stop(github.add_labels(&pr, &[label]).await).await.map(drop)
    }

    async fn call(&self, ctx: &InHand<'_>, target: Target, address: &str) -> Result<(), Stop> {
        let detail = serde_json::to_vec(&detail(ctx, "wake")).unwrap_or_default();
        let request =
            Request::builder().method(Method::POST).uri(address).header(header::CONTENT_TYPE, "application/json");
        let request = match request.body(detail.into()) {
            Ok(request) => request,
            Err(error) => return Err(Stop::Fail(format!("{address}: {error}"), Failure::Invalid)),
        };
        let status = self.or_stop(self.world.http.send(request, CALL_TIMEOUT).await).await?.status();
        if status.is_success() {
            return Ok(());
        }
        let failure = if status.is_server_error() { Failure::Unavailable } else { Failure::Invalid };
        Err(Stop::Fail(format!("{target} answered {status}"), failure))
    }

    async fn onto_the_bus(&self, ctx: &InHand<'_>, detail_type: DetailType, step: &str) -> Result<(), Stop> {
        let detail = detail(ctx, step);
        let id = detail.effect_id.to_string();
        info!(run = %ctx.run.id, pr = %ctx.pr(), effect = %id, detail_type = %detail_type.name(), "publishing bus event");
        let detail = serde_json::to_string(&detail).map_err(|error| Stop::Fail(error.to_string(), Failure::Invalid))?;
        let sent = self.engine.outlets().send_one(Parcel { id, what: Content::Bus { detail_type, detail } }).await;
        sent.map_err(|error| Stop::Fail(error.to_string(), Failure::Unavailable))
    }

    /// Posts a comment once, recognised by its hidden marker.
    pub(crate) async fn say(&self, ctx: &InHand<'_>, step: &str, text: &str) -> Result<(), Stop> {
        self.or_stop(self.marked_comment(ctx, step, text).await).await
    }

    /// The same as the first of several steps.
    async fn say_first(&self, ctx: &InHand<'_>, text: &str) -> Result<(), Stop> {
        self.or_interrupt(self.marked_comment(ctx, "comment", text).await).await
    }

    async fn marked_comment(&self, ctx: &InHand<'_>, step: &str, text: &str) -> Result<(), CallError> {
        let marker = format!("suture:{}#{step}", ctx.run.id);
        self.comment_once(ctx.pr(), &marker, text, Some(ctx.run.created_at)).await.map(drop)
    }

    /// Duplicate guard, comment, close, request: each step is executed once, even after a crash.
    async fn close_and_reopen(&self, ctx: &mut InHand<'_>) -> Result<String, Stop> {
        let pr = ctx.pr().clone();
        if ctx.done("comment").is_none() {
            self.guard(ctx).await?;
            self.say_first(ctx, comment::CLOSING).await?;
            self.done(ctx, "comment", "close").await?;
        }
        if ctx.done("close").is_none() {
            self.or_interrupt(self.world.github.close(&pr).await).await?;
            self.done(ctx, "close", "ask").await?;
        }
        self.ask_codegenie(ctx, "ask").await?;
        Ok("closed, and requested a replacement from CodeGenie".to_owned())
    }

    /// With another open pull request for the same vulnerability, a replacement would be a duplicate.
    async fn guard(&self, ctx: &InHand<'_>) -> Result<(), Stop> {
        let Some(id) = &ctx.record.vulnerability_id else {
            return Err(Stop::Fail("the pull request has no vulnerability id".to_owned(), Failure::Invalid));
        };
        let (repo, base) = (&ctx.pr().repo, &ctx.record.base_branch);
        let known = lookup::vulnerability(self.engine.store(), repo, base, id, self.now()).await?;
        if known.abandoned {
            return Err(Stop::Drop(format!("{id} was abandoned by a user")));
        }
        if let Some(other) = known.open.iter().find(|number| **number != ctx.pr().number) {
            return Err(Stop::Drop(format!("{} (#{other})", comment::DUPLICATE)));
        }
        Ok(())
    }

    pub(crate) async fn ask_codegenie(&self, ctx: &InHand<'_>, step: &str) -> Result<(), Stop> {
        match self.onto_the_bus(ctx, DetailType::PullRequestRequested, step).await {
            // The old pull request is closed, so the request must be retried until it succeeds.
            Err(Stop::Fail(why, _)) => Err(Stop::Again(Again::Bus(why))),
            done => done,
        }
    }

    /// `/cancel`: comments and closes.
    pub(crate) async fn abandon(&self, ctx: &mut InHand<'_>) -> Result<String, Stop> {
        let pr = ctx.pr().clone();
        if ctx.done("comment").is_none() {
            self.say_first(ctx, &comment::abandoned(&ctx.command.requested_by)).await?;
            self.done(ctx, "comment", "close").await?;
        }
        self.or_interrupt(self.world.github.close(&pr).await).await?;
        Ok("closed for good".to_owned())
    }

    /// Marks a step as done and the next one as started.
    async fn done(&self, ctx: &mut InHand<'_>, step_done: &str, next: &str) -> Result<(), Stop> {
        let now = self.now();
        self.checkpoint(ctx, step(step_done, now).done(None, now)).await?;
        self.checkpoint(ctx, step(next, now)).await?;
        Ok(())
    }
}

/// The timeout of an HTTP retrigger.
const CALL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

fn detail(ctx: &InHand<'_>, step: &str) -> BusDetail {
    BusDetail {
        repo: ctx.pr().repo.clone(),
        pr_number: ctx.pr().number,
        head_sha: ctx.run.head_sha.clone().unwrap_or_else(|| ctx.record.head_sha.clone()),
        vulnerability_id: ctx.record.vulnerability_id.clone(),
        run_id: Some(ctx.run.id.clone()),
        effect_id: EffectId::new(format!("{}#{}#{step}", ctx.pr(), ctx.run.id)),
    }
}
