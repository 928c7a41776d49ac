//! Users' commands: check the permission, reply once, execute. Reactions: 👀 accepted, 🚀 executed, 😕 rejected or failed. A command
//! that waits says so in a reply.

use domain::command::{Command, CommandMessage, CommandRequester, CommandSource, RepoPermission};
use domain::decide::FactOutcome;
use domain::diagnosis::{DiagnosisInput, classify};
use domain::event::{CommandRequest, Event, FactKind};
use domain::id::{EventId, PrId, RunId};
use domain::pull_request::PullRequest;
use domain::reconcile_request::{NewRequest, ReconcileScope};
use domain::run::RunTrigger;
use domain::text;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use crate::dispatch::{CarBridge, MessageOutcome, RetryableError};
use platform::github::Reaction;
use platform::hash::stable_id;
use platform::publish::queue_message::QueueMessage;
use platform::publish::{OutboundMessage, Publisher};
use platform::reconcile_request;
use platform::store::Store;
use platform::store::counter;
use platform::store::queries;
use platform::transport::ApiError;

/// How long a user's permission is cached.
const PERMISSION_TTL: SignedDuration = SignedDuration::from_mins(5);

/// How long a command waits before it is decided again.
const COMMAND_RETRY_AFTER: SignedDuration = SignedDuration::from_secs(15);

impl<S: Store, O: Publisher> CarBridge<S, O> {
    pub(crate) async fn handle_user_command(
        &self,
        id: &str,
        command: &CommandMessage,
    ) -> Result<MessageOutcome, RetryableError> {
        if let Some(logged) = self.logged(command).await? {
            return Box::pin(self.repeat(id, command, &logged)).await;
        }
        let pr = command.pr();
        let permission = self.permission(command).await?;
        let request = CommandRequest {
            command: command.command,
            source: command.source,
            by: command.requested_by.clone(),
            permission,
            run: command.run_id(),
            args: command.args.clone().unwrap_or_default(),
            comment: command.comment.clone(),
        };
        let what = FactKind::CommandRequested(Box::new(request));
        let applied = self.apply_fact(&pr, command.command_id.to_string(), command.timestamp, what).await?;
        match applied.outcome {
            FactOutcome::Refused => self.reject(command, &applied.reason).await,
            FactOutcome::Ignored | FactOutcome::Superseded => {
                self.reject(command, &format!("Suture does not manage {pr}: {}.", applied.reason)).await
            }
            FactOutcome::Deferred => self.wait(command, &applied.reason).await,
            FactOutcome::Applied | FactOutcome::Anomaly => Box::pin(self.accept(id, command, applied.record)).await,
            // Another worker handles the same message.
            FactOutcome::Duplicate => match self.logged(command).await? {
                Some(logged) => Box::pin(self.repeat(id, command, &logged)).await,
                None => Ok(MessageOutcome::Noop(applied.reason)),
            },
        }
    }

    /// The log entry of the command, if it was decided before.
    async fn logged(&self, command: &CommandMessage) -> Result<Option<Event>, RetryableError> {
        let id = EventId::new(command.command_id.as_str());
        Ok(queries::first_event(self.engine.store(), &command.pr(), &id, command.timestamp, self.now()).await?)
    }

    /// Handles a command that was decided before: its message was delivered again because a worker died, or a sweep resent it for its
    /// run. The decision stays, and nothing is counted.
    async fn repeat(
        &self,
        id: &str,
        command: &CommandMessage,
        logged: &Event,
    ) -> Result<MessageOutcome, RetryableError> {
        if let Some(why) = logged.payload.refusal() {
            return self.reject(command, why).await;
        }
        Box::pin(self.accept(id, command, None)).await
    }

    /// Checks rate limit and GitHub permission. API callers were checked by the admin function.
    async fn permission(&self, command: &CommandMessage) -> Result<Result<(), String>, RetryableError> {
        match command.source {
            CommandSource::AdminApi | CommandSource::Reconciler => return Ok(Ok(())),
            CommandSource::PrComment | CommandSource::CheckRun => {}
        }
        let pr = command.pr();
        let limit = self.engine.policies().for_repo(&pr.repo).limits.commands_per_person_per_hour;
        let name = format!("command#{}#{pr}", command.requested_by);
        let hour = SignedDuration::from_hours(1);
        // A command that Suture itself sends again was counted before.
        if !command.resent
            && counter::count_in_window(self.engine.store(), &name, hour, self.now()).await? > i64::from(limit)
        {
            return Ok(Err(format!("rate limit: {limit} commands per hour")));
        }
        let has = self.github_permission(&pr, &command.requested_by).await?;
        Ok(command.command.allows(CommandRequester::GitHub(has)).map_err(|refusal| refusal.to_string()))
    }

    async fn github_permission(&self, pr: &PrId, login: &str) -> Result<Option<RepoPermission>, RetryableError> {
        let key = (pr.repo.clone(), login.to_owned());
        let now = self.now();
        let fresh = |at: Timestamp| now.duration_since(at) < PERMISSION_TTL;
        let known = self.permissions.lock().ok().and_then(|known| known.get(&key).copied());
        if let Some((at, has)) = known
            && fresh(at)
        {
            return Ok(has);
        }
        let has = self.clients.github.permission(&pr.repo, login).await?;
        if let Ok(mut known) = self.permissions.lock() {
            known.retain(|_, (at, _)| fresh(*at));
            known.insert(key, (now, has));
        }
        Ok(has)
    }

    /// Keeps a copy of the command for later, because an earlier one is in progress.
    async fn wait(&self, command: &CommandMessage, why: &str) -> Result<MessageOutcome, RetryableError> {
        let again = CommandMessage { resent: true, ..command.clone() };
        let until = saturating_after(self.now(), COMMAND_RETRY_AFTER);
        self.wait_until(until, &QueueMessage::Command(again), &command.repo).await?;
        if !command.resent {
            self.react(command, Reaction::Eyes).await?;
            self.reply_waiting(command, why).await?;
        }
        Ok(MessageOutcome::Deferred(why.to_owned()))
    }

    async fn reject(&self, command: &CommandMessage, why: &str) -> Result<MessageOutcome, RetryableError> {
        self.react(command, Reaction::Confused).await?;
        self.reply(command, why).await?;
        Ok(MessageOutcome::Rejected(why.to_owned()))
    }

    async fn accept(
        &self,
        id: &str,
        command: &CommandMessage,
        decided: Option<PullRequest>,
    ) -> Result<MessageOutcome, RetryableError> {
        let pr = command.pr();
        if !command.resent {
            self.react(command, Reaction::Eyes).await?;
        }
        let record = match decided {
            Some(record) => Some(record),
            None => self.engine.load(&pr, self.now()).await?,
        };
        let Some(record) = record else {
            return Ok(MessageOutcome::Noop(format!("{pr} has no record any more")));
        };
        match command.command {
            Command::Status => {
                let policy = self.engine.policies().for_repo(&pr.repo);
                self.reply(command, &text::status(&record, policy, self.now())).await?;
            }
            Command::Explain => self.explain(command, &record).await?,
            Command::Hold => {}
            // A hold label outlasts `/resume`; the reply says so.
            Command::Resume => {
                if let Some(label) = record.hold_label() {
                    self.reply(command, &text::held_by_label(label)).await?;
                }
            }
            Command::Approve => return self.approved(command, &record).await,
            Command::Rebuild
            | Command::RecheckPolicy
            | Command::RecheckSod
            | Command::RecheckApproval
            | Command::Merge
            | Command::UpdateBranch
            | Command::CloseAndReopen
            | Command::Cancel => return self.act(id, command).await,
        }
        self.react(command, Reaction::Rocket).await?;
        Ok(MessageOutcome::Done(format!("replied to {} by {}", command.command, command.requested_by)))
    }

    async fn act(&self, id: &str, command: &CommandMessage) -> Result<MessageOutcome, RetryableError> {
        // Boxed, like the calls above: in one piece the future is too large for the stack of a worker thread.
        let handled = Box::pin(self.execute_run(id, command)).await?;
        match &handled {
            MessageOutcome::Done(_) => self.react(command, Reaction::Rocket).await?,
            MessageOutcome::Rejected(why) => {
                self.react(command, Reaction::Confused).await?;
                self.reply(command, &text::command_dropped(command.command, why)).await?;
            }
            MessageOutcome::Failed(why) => {
                self.react(command, Reaction::Confused).await?;
                self.reply(command, &text::command_failed(command.command, why)).await?;
            }
            MessageOutcome::Deferred(why) if !command.resent => self.reply_waiting(command, why).await?,
            MessageOutcome::Deferred(_) | MessageOutcome::Noop(_) => {}
        }
        Ok(handled)
    }

    async fn approved(&self, command: &CommandMessage, record: &PullRequest) -> Result<MessageOutcome, RetryableError> {
        let active = record.active_run.as_ref().map(|active| &active.id);
        if command.run_id.is_some() && command.run_id.as_ref() != active {
            return self.reject(command, "That run is not awaiting approval any more.").await;
        }
        let Some(run) = self.approve(record, &command.requested_by).await? else {
            return self.reject(command, "Nothing is awaiting approval here.").await;
        };
        if let Some(message) = run.message() {
            let outbound = OutboundMessage::command(format!("{}#approved", run.id), message);
            if let Err(error) = self.engine.publisher().send_one(outbound).await {
                // The run's lease has expired, so the next sweep resumes it.
                warn!(run = %run.id, %error, "cannot queue approved run; left to the next sweep");
            }
        }
        self.react(command, Reaction::Rocket).await?;
        Ok(MessageOutcome::Done(format!("run {} resumed", run.id)))
    }

    async fn explain(&self, command: &CommandMessage, record: &PullRequest) -> Result<(), RetryableError> {
        let (policy, now) = (self.engine.policies().for_repo(&record.id.repo), self.now());
        let vulnerability = queries::vulnerability_of(self.engine.store(), record, now).await?;
        let case = DiagnosisInput { record, live: None, vulnerability: vulnerability.as_ref(), policy, now };
        self.request_reconcile(command, now).await?;
        self.reply(command, &text::explanation(record, &classify(&case), policy, now)).await
    }

    /// `/explain` often means that something looks wrong, so the pull request is reconciled early. The reply does not wait for it.
    async fn request_reconcile(&self, command: &CommandMessage, now: Timestamp) -> Result<(), RetryableError> {
        let ask = NewRequest {
            run: RunId::new(format!("explain-{}", &stable_id(&[command.command_id.as_str()])[..20])),
            at: command.timestamp,
            trigger: RunTrigger::PrComment,
            requested_by: Some(command.requested_by.clone()),
        };
        let scope = ReconcileScope::One(command.pr());
        // Over the limit, the pull request is visited at its due date instead.
        reconcile_request::enqueue(self.engine.store(), self.engine.policies(), (&scope, false), &ask, now).await?;
        Ok(())
    }

    /// Best effort: a deleted comment or a rate limit must not stop the command.
    async fn react(&self, command: &CommandMessage, reaction: Reaction) -> Result<(), RetryableError> {
        let Some(subject) = &command.comment else { return Ok(()) };
        match self.clients.github.react(&command.repo, subject, reaction).await {
            Ok(()) => {}
            Err(error) => {
                self.store_rate_limit(&error).await?;
                warn!(command = %command.command_id, %error, "cannot add reaction");
            }
        }
        Ok(())
    }

    /// Posts one reply on the pull request. Callers of the API get the result from the API; buttons show it on the check run.
    async fn reply(&self, command: &CommandMessage, text: &str) -> Result<(), RetryableError> {
        self.reply_as(command, &format!("suture:{}", command.command_id), text).await
    }

    /// Says once that the command waits. Its result may need another reply, so the marker differs.
    async fn reply_waiting(&self, command: &CommandMessage, why: &str) -> Result<(), RetryableError> {
        let marker = format!("suture:{}#waits", command.command_id);
        self.reply_as(command, &marker, &text::command_waits(command.command, why)).await
    }

    async fn reply_as(&self, command: &CommandMessage, marker: &str, text: &str) -> Result<(), RetryableError> {
        match command.source {
            CommandSource::AdminApi | CommandSource::CheckRun | CommandSource::Reconciler => return Ok(()),
            CommandSource::PrComment => {}
        }
        let text = format!("@{} {text}", command.requested_by);
        match self.comment_once(&command.pr(), marker, &text, Some(command.timestamp)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_transient() => Err(error.into()),
            Err(error) => {
                self.store_rate_limit(&error).await?;
                warn!(command = %command.command_id, %error, "cannot post reply");
                Ok(())
            }
        }
    }

    /// Posts a comment unless one with the same hidden marker exists. Returns whether it was posted now.
    pub(crate) async fn comment_once(
        &self,
        pr: &PrId,
        marker: &str,
        text: &str,
        since: Option<Timestamp>,
    ) -> Result<bool, ApiError> {
        if self.has_marked_comment(pr, marker, since).await? {
            return Ok(false);
        }
        let marker = hidden(marker);
        let text = format!("{text}\n\n{marker}");
        self.run_once(&format!("comment-{pr}-{marker}"), self.clients.github.comment(pr, &text)).await.map(|_| true)
    }
    /// Whether a comment with this hidden marker exists.
    pub(crate) async fn has_marked_comment(
        &self,
        pr: &PrId,
        marker: &str,
        since: Option<Timestamp>,
    ) -> Result<bool, ApiError> {
        Ok(self.clients.github.find_comment(pr, &hidden(marker), since).await?.is_some())
    }
}

/// A marker that GitHub does not show.
fn hidden(marker: &str) -> String {
    format!("<!-- {marker} -->")
}
