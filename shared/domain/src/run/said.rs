//! What the command that opened a run said, and the message that says it again. A message may be lost with its worker; whoever
//! sends it once more must not say less than the first time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Run, RunKind, RunTrigger};
use crate::command::{Command, CommandMessage, CommandSource, MessageVersion};
use crate::id::CommandId;

/// What a command said beyond what its run says anyway. Most of Suture's own say nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Said {
    /// Its id, if that is not the run's: by it a person's command is known when it is told again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
    /// When it was said, if that was not when the run was opened: the time is part of what makes it the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
    /// The comment it stood in: reactions go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

impl Said {
    /// Nothing more than the run itself says.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Run {
    /// The message by which the Car Bridge was asked to carry it out, made anew; nothing for a sweep.
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
        let said = self.said.clone();
        Some(CommandMessage {
            v: MessageVersion,
            pr_number: pr.number,
            repo: pr.repo,
            command,
            source,
            requested_by: self.requested_by.clone().unwrap_or_else(|| "suture".to_owned()),
            timestamp: said.at.unwrap_or(self.created_at),
            command_id: said.command_id.unwrap_or_else(|| CommandId::new(self.id.as_str())),
            run_id: Some(self.id.clone()),
            // People mean the pull request, not the commit it happened to be at.
            head_sha: self.head_sha.clone().filter(|_| !source.is_human()),
            args: said.args,
            comment: said.comment,
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
    fn a_run_remembers_what_its_command_said() {
        let mut run = Run::on(RunId::new("r1"), pr(), None, RunKind::Abandon, RunTrigger::PrComment, at(9));
        run.requested_by = Some("danny".to_owned());
        run.said = Said {
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
    }

    #[test]
    fn sutures_own_runs_are_known_by_their_name_and_store_nothing_more() {
        let head = "a".repeat(40).parse().unwrap();
        let run = Run::remedy(RunId::new("r1"), pr(), Some(head), Strategy::Rebuild, RunTrigger::Reconciler, at(0));
        assert!(!serde_json::to_string(&run).unwrap().contains("said"));
        let message = run.message().unwrap();
        assert_eq!((message.command_id.as_str(), message.timestamp), ("r1", at(0)));
        assert_eq!((message.requested_by.as_str(), message.head_sha), ("suture", run.head_sha));
        assert_eq!(Run::sweep(RunId::new("s"), RunTrigger::Schedule, at(0)).message(), None);
    }
}
