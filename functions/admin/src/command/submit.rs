//! Commands. Each is checked against the record as it is, so that nonsense is refused at once, and put onto the queue; the Car
//! Bridge checks it again when it takes it. Asking again under the same id asks for the same.

use domain::command::{Command, CommandMessage, CommandSource, MessageVersion, Requester};
use domain::decide;
use domain::id::{CommandId, PrId, RunId};
use jiff::Timestamp;
use platform::guards;
use platform::outlets::{Outlets, Parcel};
use platform::store::Store;

use crate::api_keys::Caller;
use crate::query::{Desk, DeskError};

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

impl<S: Store, O: Outlets> Desk<S, O> {
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
        self.engine.outlets().send_one(Parcel::command(message.command_id.to_string(), message)).await?;
        Ok(asked)
    }
}

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
