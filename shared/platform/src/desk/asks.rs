//! What people want done. A command is checked against the record as it is, so that nonsense is refused at once, and put
//! onto the queue; the Car Bridge checks it again when it takes it. A sweep is asked for on the bus. When this answers, what
//! was asked for is durable; asking again under the same name asks for the same.

use std::time::Duration;

use domain::command::{Command, CommandMessage, CommandSource, MessageVersion, Requester};
use domain::decide;
use domain::id::{CommandId, PrId, RepoName, RunId};
use domain::route::DetailType;
use domain::run::{Initiator, Run, RunTrigger, TransitionContext};
use jiff::Timestamp;
use serde_json::json;

use super::{Desk, DeskError};
use crate::bridge::run_of;
use crate::guards;
use crate::keys::Caller;
use crate::outlets::message::Message;
use crate::outlets::{Content, Outlets, Parcel, Undelivered};
use crate::rows;
use crate::store::{OnlyIf, Store, StoreError, Write};

/// A command that somebody gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// On what.
    pub pr: PrId,
    /// What.
    pub command: Command,
    /// What else they said, such as a reason.
    pub args: Option<String>,
    /// The same in every repetition.
    pub id: CommandId,
    /// When it was first given; likewise.
    pub at: Timestamp,
}

/// A command that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its name.
    pub command: CommandId,
    /// The run that it opens, if it opens one.
    pub run: Option<RunId>,
}

/// A sweep that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepAsk {
    /// The name of its run, the same in every repetition.
    pub run: RunId,
    /// Of one repository only.
    pub repo: Option<RepoName>,
    /// Of one pull request only.
    pub number: Option<u64>,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl<S: Store, O: Outlets> Desk<S, O> {
    /// Takes a command.
    ///
    /// # Errors
    /// [`DeskError`]; nothing was asked for then.
    pub async fn command(&self, caller: &Caller, ask: Ask) -> Result<Asked, DeskError> {
        let record = self.record(caller, &ask.pr).await?;
        let command = ask.command;
        if matches!(command, Command::Status | Command::Explain) {
            let why = format!("`{command}` is answered by GET …{command}: there is nothing to be done");
            return Err(DeskError::Invalid { code: "COMMAND_IS_A_QUESTION", why });
        }
        command.allows(Requester::Api(caller.role)).map_err(|refusal| DeskError::Forbidden(refusal.to_string()))?;
        let policy = self.engine.policies().for_repo(&record.id.repo);
        decide::is_possible(command, &record, policy)
            .map_err(|why| DeskError::Conflict { code: "COMMAND_NOT_POSSIBLE", why })?;
        let opens = command.strategy().is_some() || command == Command::Cancel;
        if opens && let Some(by) = guards::paused(self.store(), self.now()).await? {
            let why = format!("Suture is paused by {by}: POST /api/unpause lets it act again");
            return Err(DeskError::Conflict { code: "PAUSED", why });
        }
        let message = message(caller, record.id, ask);
        let asked = Asked { command: message.command_id.clone(), run: opens.then(|| run_of(&message)) };
        self.send(message.command_id.to_string(), message).await?;
        Ok(asked)
    }

    /// Puts a command onto the queue.
    pub(super) async fn send(&self, id: String, message: CommandMessage) -> Result<(), Undelivered> {
        let repo = message.repo.clone();
        let what = Content::Queue { message: Message::Command(message), repo, delay: Duration::ZERO };
        self.deliver(Parcel { id, what }).await
    }

    async fn deliver(&self, parcel: Parcel) -> Result<(), Undelivered> {
        let answer = self.engine.outlets().send(&[parcel]).await.into_iter().next();
        answer.unwrap_or_else(|| Err(Undelivered("nobody answered".to_owned())))
    }

    /// Asks for a sweep: its run is there, pending, before anybody is told.
    ///
    /// # Errors
    /// [`DeskError`]; nothing was asked for then.
    pub async fn sweep(&self, caller: &Caller, ask: SweepAsk) -> Result<RunId, DeskError> {
        match (&ask.repo, ask.number) {
            (Some(repo), Some(number)) => _ = self.record(caller, &PrId::new(repo.clone(), number)).await?,
            (Some(repo), None) if !caller.sees(repo) => {
                return Err(DeskError::NotFound(format!("Suture knows no repository {repo}")));
            }
            (None, Some(_)) => {
                let why = "`pr_number` needs a `repo`".to_owned();
                return Err(DeskError::Invalid { code: "BAD_REQUEST", why });
            }
            (None, None) if !caller.sees_all() => {
                return Err(DeskError::Forbidden(
                    "your key sees some repositories only: name one as `repo`".to_owned(),
                ));
            }
            (Some(_) | None, None) => {}
        }
        let now = self.now();
        let mut run = Run::sweep(ask.run.clone(), RunTrigger::AdminApi, now);
        run.requested_by = Some(caller.name.clone());
        let (key, item) = rows::run_row(&run, self.engine.policies().base())?;
        match self.store().write(vec![Write::Put { key, item, only_if: OnlyIf::Absent }], now).await {
            // It was asked for before; whether the bus heard of it is not known, and hearing it twice does no harm.
            Ok(()) | Err(StoreError::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let detail = json!({
            "repo": ask.repo.as_ref().map(RepoName::as_str), "pr_number": ask.number, "dry_run": ask.dry_run,
            "run_id": ask.run.as_str(), "requested_by": caller.name,
        });
        let what = Content::Bus { detail_type: DetailType::ReconcileRequested, detail: detail.to_string() };
        if let Err(error) = self.deliver(Parcel { id: ask.run.to_string(), what }).await {
            self.never_began(run, &error.to_string()).await?;
            return Err(error.into());
        }
        Ok(ask.run)
    }

    /// The bus did not take it, so nobody is to wait for it.
    async fn never_began(&self, run: Run, why: &str) -> Result<(), StoreError> {
        let now = self.now();
        let loaded = run.version;
        let context = TransitionContext::new(Initiator::System, now);
        let Ok(cancelled) = run.cancel(format!("it could not be asked for: {why}"), context) else { return Ok(()) };
        let (key, item) = rows::run_row(&cancelled, self.engine.policies().base())?;
        match self.store().write(vec![Write::Put { key, item, only_if: OnlyIf::Version(loaded) }], now).await {
            Ok(()) | Err(StoreError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The message of a command.
fn message(caller: &Caller, pr: PrId, ask: Ask) -> CommandMessage {
    CommandMessage {
        v: MessageVersion,
        pr_number: pr.number,
        repo: pr.repo,
        command: ask.command,
        source: CommandSource::AdminApi,
        requested_by: caller.name.clone(),
        timestamp: ask.at,
        command_id: ask.id,
        run_id: None,
        // People mean the pull request, not the commit it happened to be at.
        head_sha: None,
        args: ask.args,
        comment: None,
    }
}
