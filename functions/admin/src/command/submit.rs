//! Submits commands. A command is validated against the current record, so that an impossible one is refused immediately,
//! and put onto the queue; the Car Bridge validates it again. Repeating a command with the same id has no further effect.

use domain::command::{Command, CommandMessage, CommandRequester, CommandSource, MessageVersion};
use domain::decide;
use domain::id::{CommandId, PrId, RunId};
use jiff::Timestamp;
use platform::publish::{OutboundMessage, Publisher};
use platform::store::Store;
use platform::store::pause;

use crate::api_keys::ApiCaller;
use crate::query::{AdminApi, AdminError};

/// A command to submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSubmission {
    pub pr: PrId,
    pub command: Command,
    /// The arguments, such as a reason.
    pub args: Option<String>,
    /// The same for every repetition.
    pub id: CommandId,
    /// When it was first submitted; also the same for every repetition.
    pub at: Timestamp,
}

/// An accepted command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedCommand {
    pub command: CommandId,
    /// The run that it starts, if any.
    pub run: Option<RunId>,
}

impl<S: Store, O: Publisher> AdminApi<S, O> {
    pub async fn command(
        &self,
        caller: &ApiCaller,
        submission: CommandSubmission,
    ) -> Result<SubmittedCommand, AdminError> {
        let record = self.record(caller, &submission.pr).await?;
        let command = submission.command;
        if matches!(command, Command::Status | Command::Explain) {
            let why = format!("`{command}` is a query: use GET …{command} instead");
            return Err(AdminError::Invalid { code: "COMMAND_IS_READ_ONLY", why });
        }
        command
            .allows(CommandRequester::Api(caller.role))
            .map_err(|refusal| AdminError::Forbidden(refusal.to_string()))?;
        let policy = self.engine.policies().for_repo(&record.id.repo);
        decide::is_possible(command, &record, policy)
            .map_err(|why| AdminError::Conflict { code: "COMMAND_NOT_POSSIBLE", why })?;
        let starts_run = command.strategy().is_some() || command == Command::Cancel;
        if starts_run && let Some(by) = pause::paused_by(self.store(), self.now()).await? {
            let why = format!("Suture is paused by {by}: POST /api/unpause resumes it");
            return Err(AdminError::Conflict { code: "PAUSED", why });
        }
        let message = message(caller, record.id, submission);
        let accepted =
            SubmittedCommand { command: message.command_id.clone(), run: starts_run.then(|| message.run_id()) };
        self.engine.publisher().send_one(OutboundMessage::command(message.command_id.to_string(), message)).await?;
        Ok(accepted)
    }
}

fn message(caller: &ApiCaller, pr: PrId, submission: CommandSubmission) -> CommandMessage {
    CommandMessage {
        v: MessageVersion,
        pr_number: pr.number,
        repo: pr.repo,
        command: submission.command,
        source: CommandSource::AdminApi,
        requested_by: caller.name.clone(),
        timestamp: submission.at,
        command_id: submission.id,
        run_id: None,
        // A command refers to the pull request, not to its current head.
        head_sha: None,
        args: submission.args,
        comment: None,
        resent: false,
    }
}
