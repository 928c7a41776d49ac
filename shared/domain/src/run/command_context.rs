//! The command behind a run, and the message rebuilt from it. If a message is lost with its worker, it is sent again with
//! the same content.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Run, RunKind, RunTrigger};
use crate::command::{Command, CommandMessage, CommandSource, MessageVersion};
use crate::id::CommandId;

/// The parts of a command that its run does not store elsewhere. Empty for most of Suture's own commands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandContext {
    /// The command id, if it differs from the run id; identifies a person's command when it is sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
    /// When the command was sent, if not when the run was opened; the time is part of the event's identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
    /// The node id of the comment with the command: reactions go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

impl CommandContext {
    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Run {
    /// Rebuilds the message that asks the Car Bridge to execute this run; `None` for a sweep.
    pub fn message(&self) -> Option<CommandMessage> {
        let command = match self.kind {
            RunKind::Remedy(strategy) => Command::for_strategy(strategy),
            RunKind::Abandon => Command::Cancel,
            RunKind::Sweep => return None,
        };
        let source = match self.trigger {
            RunTrigger::PrComment => CommandSource::PrComment,
            RunTrigger::CheckRun => CommandSource::CheckRun,
            RunTrigger::AdminApi => CommandSource::AdminApi,
            RunTrigger::Reconciler | RunTrigger::Schedule | RunTrigger::Webhook => CommandSource::Reconciler,
        };
        let pr = self.pr.clone()?;
        let context = self.command.clone();
        Some(CommandMessage {
            v: MessageVersion,
            pr_number: pr.number,
            repo: pr.repo,
            command,
            source,
            requested_by: self.requested_by.clone().unwrap_or_else(|| "suture".to_owned()),
            timestamp: context.at.unwrap_or(self.created_at),
            command_id: context.command_id.unwrap_or_else(|| CommandId::new(self.id.as_str())),
            run_id: Some(self.id.clone()),
            // A person's command applies to the pull request, whatever its current head.
            head_sha: self.head_sha.clone().filter(|_| !source.is_human()),
            args: context.args,
            comment: context.comment,
            // A person's own message opened the run, so this one is never the first.
            resent: source.is_human(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{PrId, RunId};
    use crate::state::Strategy;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_772_000_000 + second).unwrap()
    }

    fn pr() -> PrId {
        "acme/shop#7".parse().unwrap()
    }

    #[test]
    fn run_rebuilds_the_message_of_its_command() {
        let mut run =
            Run::for_pull_request(RunId::new("r1"), pr(), None, RunKind::Abandon, RunTrigger::PrComment, at(9));
        run.requested_by = Some("danny".to_owned());
        run.command = CommandContext {
            command_id: Some(CommandId::new("cmd:72d3#1")),
            at: Some(at(3)),
            args: Some("wrong fix".to_owned()),
            comment: Some("IC_1".to_owned()),
        };
        let stored: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        let again = stored.message().unwrap();
        assert_eq!((again.command, again.source, again.pr()), (Command::Cancel, CommandSource::PrComment, pr()));
        assert_eq!((again.requested_by.as_str(), again.run_id), ("danny", Some(RunId::new("r1"))));
        assert_eq!((again.command_id.as_str(), again.timestamp), ("cmd:72d3#1", at(3)));
        assert_eq!((again.args.as_deref(), again.comment.as_deref()), (Some("wrong fix"), Some("IC_1")));
        assert!(again.resent);
    }

    #[test]
    fn own_run_stores_no_command_context() {
        let head = "a".repeat(40).parse().unwrap();
        let run = Run::remedy(RunId::new("r1"), pr(), Some(head), Strategy::Rebuild, RunTrigger::Reconciler, at(0));
        assert!(!serde_json::to_string(&run).unwrap().contains("said"));
        let message = run.message().unwrap();
        assert_eq!((message.command_id.as_str(), message.timestamp), ("r1", at(0)));
        assert_eq!((message.requested_by.as_str(), message.head_sha), ("suture", run.head_sha));
        assert!(!message.resent);
        assert_eq!(Run::sweep(RunId::new("s"), RunTrigger::Schedule, at(0)).message(), None);
    }
}
