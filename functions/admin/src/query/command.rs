//! What people want done. A command is checked against the record as it is, so that nonsense is refused at once, and put
//! onto the queue; the Car Bridge checks it again when it takes it. A sweep is a request: a row with a date, and a word on the
//! bus so that it begins at once. When this answers, what was asked for is durable; asking again under the same name asks for
//! the same.

use std::time::Duration;

use domain::bus::DetailType;
use domain::command::{Command, CommandMessage, CommandSource, MessageVersion, Requester};
use domain::decide;
use domain::id::{CommandId, PrId, RepoName, RunId};
use domain::request::{self, Scope};
use domain::run::RunTrigger;
use jiff::Timestamp;
use serde_json::json;
use tracing::warn;

use super::{Desk, DeskError};
use crate::api_keys::Caller;
use platform::guards;
use platform::outlets::message::Message;
use platform::outlets::{Content, Outlets, Parcel, Undelivered};
use platform::requests::{self, Taken};
use platform::store::Store;

/// A command that somebody gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub pr: PrId,
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
    /// Of what is open on one base branch only.
    pub base: Option<String>,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl<S: Store, O: Outlets> Desk<S, O> {
    /// Takes a command.
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
        let asked = Asked { command: message.command_id.clone(), run: opens.then(|| message.run()) };
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

    /// Asks for a sweep: its request and its run are there, pending, before anybody is told.
    pub async fn sweep(&self, caller: &Caller, ask: SweepAsk) -> Result<RunId, DeskError> {
        let scope = self.scope(caller, &ask).await?;
        let now = self.now();
        let asked = request::Ask {
            run: ask.run.clone(),
            at: now,
            trigger: RunTrigger::AdminApi,
            requested_by: Some(caller.name.clone()),
        };
        let wanted = (&scope, ask.dry_run);
        match requests::ask(self.store(), self.engine.policies(), wanted, &asked, now).await? {
            // It was asked for before; whether the bus heard of it is not known, and hearing it twice does no harm.
            Taken::Queued(_) | Taken::Known(_) => {}
            // Its run says so.
            Taken::Superseded { .. } => return Ok(ask.run),
            Taken::OverLimit(why) => return Err(DeskError::TooMany(why)),
        }
        let pr = match &scope {
            Scope::One(pr) => Some(pr.number),
            Scope::All | Scope::Repo(_) | Scope::Base(..) => None,
        };
        let detail = json!({
            "repo": scope.repo().map(RepoName::as_str), "pr_number": pr, "base": ask.base, "dry_run": ask.dry_run,
            "run_id": ask.run.as_str(), "requested_by": caller.name,
        });
        let what = Content::Bus { detail_type: DetailType::ReconcileRequested, detail: detail.to_string() };
        if let Err(error) = self.deliver(Parcel { id: ask.run.to_string(), what }).await {
            // The request has a date: the next sweep grants it.
            warn!(run = %ask.run, %error, "a request waits for the schedule");
        }
        Ok(ask.run)
    }

    /// What is to be swept, as GitHub spells it, if they may ask for that.
    async fn scope(&self, caller: &Caller, ask: &SweepAsk) -> Result<Scope, DeskError> {
        let bad = |why: &str| DeskError::Invalid { code: "BAD_REQUEST", why: why.to_owned() };
        match (&ask.repo, ask.number, &ask.base) {
            (Some(_), Some(_), Some(_)) => Err(bad("give `pr_number` or `base`, not both")),
            (Some(repo), Some(number), None) => {
                Ok(Scope::One(self.record(caller, &PrId::new(repo.clone(), number)).await?.id))
            }
            (Some(repo), None, _) if !caller.sees(repo) => {
                Err(DeskError::NotFound(format!("Suture knows no repository {repo}")))
            }
            (Some(repo), None, base) => {
                let repo = self.spelled(repo).await?.unwrap_or_else(|| repo.clone());
                Ok(base.clone().map_or(Scope::Repo(repo.clone()), |base| Scope::Base(repo, base)))
            }
            (None, Some(_), _) => Err(bad("`pr_number` needs a `repo`")),
            (None, None, Some(_)) => Err(bad("`base` needs a `repo`")),
            (None, None, None) if !caller.sees_all() => {
                Err(DeskError::Forbidden("your key sees some repositories only: name one as `repo`".to_owned()))
            }
            (None, None, None) => Ok(Scope::All),
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
