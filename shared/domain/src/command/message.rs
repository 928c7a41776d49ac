//! The format of a command on the queue: versioned JSON (R-CMD-12). Permissions and execution are decided elsewhere.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Command;
use crate::id::{CommandId, PrId, RepoName, RunId, Sha};

/// One command for the Car Bridge.
///
/// Unknown fields are ignored: during a deploy a newer sender may already add one, and such a command must not end in
/// the dead-letter queue. A change of meaning needs a new `v`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandMessage {
    /// The version of this format. It stays the first field, so that it is checked before the others are read.
    pub v: MessageVersion,
    pub pr_number: u64,
    pub repo: RepoName,
    pub command: Command,
    pub source: CommandSource,
    /// The requester: a GitHub login, the name of an API key, or the reconciler.
    pub requested_by: String,
    pub timestamp: Timestamp,
    /// The idempotency key of this command.
    pub command_id: CommandId,
    /// The run that was opened for this command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The commit the command was decided on; if the head has moved since, the command is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_sha: Option<Sha>,
    /// The text after the command, for example the reason of a hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
    /// The node id of the comment or review with the command: reactions go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Suture itself sent the command again. The requester's rate was counted and the first reaction added before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resent: bool,
}

impl CommandMessage {
    /// The `args` of a `/rebuild` that must first stop a hanging build.
    pub const STOP_FIRST: &'static str = "stop-first";

    pub fn pr(&self) -> PrId {
        PrId::new(self.repo.clone(), self.pr_number)
    }

    /// The run of this command. A person's command opens a run with the command's own id.
    pub fn run_id(&self) -> RunId {
        self.run_id.clone().unwrap_or_else(|| RunId::new(self.command_id.as_str()))
    }
}

named! {
    /// The source of a command.
    pub enum CommandSource {
        PrComment = "pr-comment",
        CheckRun = "check-run",
        AdminApi = "admin-api",
        Reconciler = "reconciler",
    }
}

impl CommandSource {
    /// Whether a person sent the command. Such a command spends no budget, and the breaker never blocks it.
    pub fn is_human(self) -> bool {
        match self {
            Self::PrComment | Self::CheckRun | Self::AdminApi => true,
            Self::Reconciler => false,
        }
    }
}

/// The only version of [`CommandMessage`] that this build writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct MessageVersion;

impl MessageVersion {
    pub const NUMBER: u64 = 1;
}

/// A message of another version. It is rejected, because a half-understood command could do harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "command message version {0} is not understood by this build ({number}): deploy the Car Bridge in the sender's version, \
     then redrive the dead-letter queue",
    number = MessageVersion::NUMBER
)]
pub struct UnknownMessageVersion(pub u64);

impl TryFrom<u64> for MessageVersion {
    type Error = UnknownMessageVersion;

    fn try_from(number: u64) -> Result<Self, UnknownMessageVersion> {
        if number == Self::NUMBER { Ok(Self) } else { Err(UnknownMessageVersion(number)) }
    }
}

impl From<MessageVersion> for u64 {
    fn from(_: MessageVersion) -> Self {
        MessageVersion::NUMBER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> CommandMessage {
        CommandMessage {
            v: MessageVersion,
            pr_number: 42,
            repo: "acme/my-app".parse().unwrap(),
            command: Command::Rebuild,
            source: CommandSource::PrComment,
            requested_by: "danny".to_owned(),
            timestamp: "2026-03-01T10:00:00.5Z".parse().unwrap(),
            command_id: CommandId::new("cmd:72d3#0"),
            run_id: None,
            head_sha: None,
            args: None,
            comment: None,
            resent: false,
        }
    }

    const BARE: &str = r#"{"v":1,"pr_number":42,"repo":"acme/my-app","command":"/rebuild","source":"pr-comment","requested_by":"danny","timestamp":"2026-03-01T10:00:00.5Z","command_id":"cmd:72d3#0"}"#;

    #[test]
    fn message_round_trips_through_this_json() {
        assert_eq!(serde_json::to_string(&message()).unwrap(), BARE);
        assert_eq!(serde_json::from_str::<CommandMessage>(BARE).unwrap(), message());
        let full = CommandMessage {
            run_id: Some(RunId::new("run-1")),
            head_sha: Some("a".repeat(40).parse().unwrap()),
            args: Some("now".to_owned()),
            resent: true,
            ..message()
        };
        let json = serde_json::to_string(&full).unwrap();
        let tail = format!(r#""run_id":"run-1","head_sha":"{}","args":"now","resent":true}}"#, "a".repeat(40));
        assert!(json.ends_with(&tail), "{json}");
        assert_eq!(serde_json::from_str::<CommandMessage>(&json).unwrap(), full);
        assert_eq!(full.pr().to_string(), "acme/my-app#42");
    }

    #[test]
    fn unknown_field_is_ignored() {
        let json = BARE.replace("\"v\":1,", "\"v\":1,\"mood\":{\"x\":[1]},");
        assert_eq!(serde_json::from_str::<CommandMessage>(&json).unwrap(), message());
    }

    #[test]
    fn other_version_is_rejected_before_other_fields_are_read() {
        for (v, command) in [(0, "/rebuild"), (2, "/rebuild"), (2, "/not-yet-invented")] {
            let json = BARE.replace("\"v\":1", &format!("\"v\":{v}")).replace("/rebuild", command);
            let error = serde_json::from_str::<CommandMessage>(&json).unwrap_err().to_string();
            let expected = format!("command message version {v} is not understood by this build (1): deploy ");
            assert!(error.starts_with(&expected), "{error}");
        }
        let error = serde_json::from_str::<CommandMessage>(&BARE.replace("\"v\":1,", "")).unwrap_err();
        assert!(error.to_string().contains("missing field `v`"), "{error}");
    }

    #[test]
    fn malformed_message_is_rejected() {
        for (from, to) in [
            ("acme/my-app", "my-app"),
            ("/rebuild", "/rebuid"),
            ("pr-comment", "telegram"),
            ("2026-03-01", "yesterday"),
            (",\"command_id\":\"cmd:72d3#0\"", ""),
        ] {
            let json = BARE.replace(from, to);
            assert_ne!(json, BARE);
            assert!(serde_json::from_str::<CommandMessage>(&json).is_err(), "{json}");
        }
    }

    #[test]
    fn sources_have_one_name_everywhere_and_three_are_human() {
        let sources =
            [CommandSource::PrComment, CommandSource::CheckRun, CommandSource::AdminApi, CommandSource::Reconciler];
        assert_eq!(sources.map(CommandSource::name), ["pr-comment", "check-run", "admin-api", "reconciler"]);
        assert_eq!(sources.map(CommandSource::is_human), [true, true, true, false]);
        for source in sources {
            assert_eq!(serde_json::to_string(&source).unwrap(), format!("\"{source}\""));
        }
    }
}
