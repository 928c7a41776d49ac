//! Messages for the Car Bridge: versioned JSON with a `type`. Unknown types and versions are errors, never guessed at.

use domain::command::{Command, CommandMessage, MessageVersion};
use domain::event::Fact;
use domain::id::{EffectId, PrId, RepoName, Sha};
use domain::text::check_run::CheckRunText;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::github::Reaction;

/// A message for the Car Bridge.
#[derive(Debug, Clone, PartialEq)]
pub enum QueueMessage {
    /// Requested by a user or a sweep.
    Command(CommandMessage),
    /// A fact that was deferred because of the rate limit or a write conflict.
    Fact(Box<Fact>),
    /// A small write to GitHub that no record depends on.
    Task(Task),
}

domain::named! {
    /// The queues that the Car Bridge reads. Each has a consumer and a dead-letter queue of its own: facts make no writes to GitHub, so
    /// they never wait behind commands, whose writes are a second apart, nor commands behind a storm of facts.
    pub enum QueueName {
        Commands = "commands",
        Facts = "facts",
    }
}

/// Small idempotent writes to GitHub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub enum Task {
    /// Ask GitHub to redeliver a failed webhook.
    Redeliver { delivery: u64 },
    /// React to a comment or a review.
    React { repo: RepoName, subject: String, reaction: Reaction },
    /// Post a comment on a pull request, once.
    Comment {
        pr: PrId,
        /// Hidden in the comment; a comment with the same marker is not posted again.
        marker: String,
        text: String,
        /// Earlier comments are not searched for the marker.
        since: Timestamp,
    },
    /// Create or update Suture's check run on a commit, unless it has the same or newer content.
    CheckRun {
        pr: PrId,
        head_sha: Sha,
        text: Box<CheckRunText>,
        /// The time of the content.
        as_of: Timestamp,
    },
    /// Create an issue that Suture owns, or update it.
    Issue { repo: RepoName, issue: Box<ManagedIssue> },
    /// Request the pull request of a backlog issue from CodeGenie, and label the issue.
    AskForPull { repo: RepoName, ask: Box<PullRequestRequest> },
    /// Relabel or close a backlog issue.
    Tend { repo: RepoName, tending: Box<IssueUpdate> },
}

/// An issue that Suture owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedIssue {
    /// Idempotency key, hidden in the body; an issue with the same key is not created again.
    pub key: String,
    /// The label of all issues of this kind.
    pub label: String,
    /// Further labels, set when the issue is created.
    pub labels: Vec<String>,
    pub title: String,
    pub body: String,
    /// The time of the content.
    pub as_of: Timestamp,
    /// Whether the issue is kept up to date; otherwise it is created once.
    pub keep_updated: bool,
    /// Whether the issue is pinned when it is created.
    pub pin: bool,
}

/// A request to CodeGenie for the pull request of a backlog issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestRequest {
    pub issue: u64,
    pub vulnerability: String,
    pub base_branch: String,
    /// Idempotency key.
    pub effect: EffectId,
    /// The label of issues whose pull request may be requested.
    pub approved: String,
    /// The label of issues whose pull request was requested.
    pub in_progress: String,
}

/// A change of a backlog issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueUpdate {
    pub issue: u64,
    /// Idempotency key.
    pub key: String,
    /// The issue must still have this label; otherwise a user or another process changed it.
    pub expects: String,
    pub add: Vec<String>,
    pub remove: Vec<String>,
    pub comment: Option<String>,
    /// Close the issue with this GitHub `state_reason`.
    pub close: Option<String>,
    /// A pull request to close first, and the comment to post there.
    pub close_pull: Option<(u64, String)>,
    pub since: Timestamp,
}

impl Task {
    /// The repository for fair queueing; redeliveries have none.
    pub fn repo(&self) -> Option<&RepoName> {
        match self {
            Self::Redeliver { .. } => None,
            Self::React { repo, .. }
            | Self::Issue { repo, .. }
            | Self::AskForPull { repo, .. }
            | Self::Tend { repo, .. } => Some(repo),
            Self::Comment { pr, .. } | Self::CheckRun { pr, .. } => Some(&pr.repo),
        }
    }
}

/// A message that cannot be decoded. It ends in the dead-letter queue; this is the reason shown there.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidMessage {
    #[error(
        "`type` is {0:?}: this build knows `command`, `fact` and `task`. Deploy the sender's version, then redrive the dead-letter queue"
    )]
    Unknown(String),
    #[error("the message is not JSON: {0}. It was not sent by Suture: find its sender, then delete it")]
    NoJson(String),
    #[error("a message of type `{kind}` cannot be read: {why}")]
    Malformed { kind: String, why: String },
}

#[derive(Serialize, Deserialize)]
struct MessageHeader {
    // A message without a type is a command, as sent by the first version.
    #[serde(rename = "type", default = "command")]
    kind: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    hops: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn command() -> String {
    "command".to_owned()
}

#[derive(Serialize, Deserialize)]
struct TypedMessage<T> {
    #[serde(flatten)]
    head: MessageHeader,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize, Deserialize)]
struct DeferredFact {
    v: MessageVersion,
    fact: Box<Fact>,
}

#[derive(Serialize, Deserialize)]
struct TaskMessage {
    v: MessageVersion,
    #[serde(flatten)]
    task: Task,
}

fn malformed(kind: &str, error: serde_json::Error) -> InvalidMessage {
    InvalidMessage::Malformed { kind: kind.to_owned(), why: error.to_string() }
}

fn write<T: Serialize>(kind: &str, hops: u32, body: T) -> Result<String, InvalidMessage> {
    let head = MessageHeader { kind: kind.to_owned(), hops };
    serde_json::to_string(&TypedMessage { head, body }).map_err(|error| malformed(kind, error))
}

fn read<T: DeserializeOwned>(kind: &str, json: &str) -> Result<T, InvalidMessage> {
    serde_json::from_str(json).map_err(|error| malformed(kind, error))
}

impl QueueMessage {
    /// The queue that the message is sent to.
    pub fn queue(&self) -> QueueName {
        match self {
            Self::Fact(_) => QueueName::Facts,
            Self::Command(_) | Self::Task(_) => QueueName::Commands,
        }
    }

    /// Whether the command requests a replacement pull request.
    pub fn asks_for_pull_request(&self) -> bool {
        matches!(self, Self::Command(message) if message.command == Command::CloseAndReopen)
    }

    /// Encodes the message.
    ///
    /// Fails for internal facts, which are never sent over the queue.
    pub fn to_json(&self) -> Result<String, InvalidMessage> {
        self.to_json_after(0)
    }

    /// Encodes a message to which this many messages of the Car Bridge led.
    pub fn to_json_after(&self, hops: u32) -> Result<String, InvalidMessage> {
        match self {
            Self::Command(command) => write("command", hops, command),
            Self::Fact(fact) => write("fact", hops, DeferredFact { v: MessageVersion, fact: fact.clone() }),
            Self::Task(task) => write("task", hops, TaskMessage { v: MessageVersion, task: task.clone() }),
        }
    }

    /// How many messages of the Car Bridge led to this one; 0 if it cannot be decoded.
    pub fn hops(json: &str) -> u32 {
        serde_json::from_str::<MessageHeader>(json).map_or(0, |head| head.hops)
    }

    /// Decodes a message. The error says what is wrong, for the reader of the dead-letter queue.
    pub fn from_json(json: &str) -> Result<Self, InvalidMessage> {
        let value: serde_json::Value =
            serde_json::from_str(json).map_err(|error| InvalidMessage::NoJson(error.to_string()))?;
        let MessageHeader { kind, .. } = serde_json::from_value(value).map_err(|error| malformed("unknown", error))?;
        match kind.as_str() {
            "command" => read(&kind, json).map(Self::Command),
            "fact" => read(&kind, json).map(|DeferredFact { fact, .. }| Self::Fact(fact)),
            "task" => read(&kind, json).map(|TaskMessage { task, .. }| Self::Task(task)),
            _ => Err(InvalidMessage::Unknown(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::text::check_run::{CheckConclusion, CheckRunButton};

    use super::*;

    fn at() -> Timestamp {
        Timestamp::from_second(1_772_000_000).unwrap()
    }

    #[test]
    fn tasks_roundtrip_as_versioned_json() {
        let repo: RepoName = "acme/shop".parse().unwrap();
        let text = CheckRunText {
            mood: CheckConclusion::Quiet,
            title: "Waiting for Policy Bot".to_owned(),
            summary: "Since 09:00.".to_owned(),
            buttons: vec![CheckRunButton::Hold],
        };
        let tasks = [
            Task::Redeliver { delivery: 7 },
            Task::React { repo: repo.clone(), subject: "IC_1".to_owned(), reaction: Reaction::Rocket },
            Task::Comment {
                pr: "acme/shop#7".parse().unwrap(),
                marker: "suture:status".to_owned(),
                text: "All is well.".to_owned(),
                since: at(),
            },
            Task::CheckRun {
                pr: "acme/shop#7".parse().unwrap(),
                head_sha: "a".repeat(40).parse().unwrap(),
                text: Box::new(text),
                as_of: at(),
            },
            Task::Issue {
                repo: repo.clone(),
                issue: Box::new(ManagedIssue {
                    key: "status".to_owned(),
                    label: "suture/status".to_owned(),
                    labels: vec!["ops".to_owned()],
                    title: "Status".to_owned(),
                    body: "Well.".to_owned(),
                    as_of: at(),
                    keep_updated: true,
                    pin: true,
                }),
            },
            Task::AskForPull {
                repo: repo.clone(),
                ask: Box::new(PullRequestRequest {
                    issue: 7,
                    vulnerability: "CVE-2026-1".to_owned(),
                    base_branch: "main".to_owned(),
                    effect: EffectId::new("backlog:acme/shop#7:1"),
                    approved: "pipeline/approved".to_owned(),
                    in_progress: "pipeline/in-progress".to_owned(),
                }),
            },
            Task::Tend {
                repo,
                tending: Box::new(IssueUpdate {
                    issue: 7,
                    key: "backlog:acme/shop#7:reject".to_owned(),
                    expects: "pipeline/discovered".to_owned(),
                    add: Vec::new(),
                    remove: vec!["pipeline/discovered".to_owned()],
                    comment: Some("Too old.".to_owned()),
                    close: Some("not_planned".to_owned()),
                    close_pull: Some((8, "Given up.".to_owned())),
                    since: at(),
                }),
            },
        ];
        for task in tasks {
            let repo = task.repo().cloned();
            assert_eq!(repo.is_none(), matches!(task, Task::Redeliver { .. }));
            let message = QueueMessage::Task(task);
            let json = message.to_json().unwrap();
            assert!(json.contains(r#""type":"task""#) && json.contains(r#""v":1"#), "{json}");
            assert_eq!((QueueMessage::hops(&json), QueueMessage::from_json(&json).as_ref()), (0, Ok(&message)));
            let json = message.to_json_after(12).unwrap();
            assert_eq!((QueueMessage::hops(&json), QueueMessage::from_json(&json)), (12, Ok(message)));
        }
    }

    #[test]
    fn invalid_messages_name_the_problem() {
        for (body, why) in [
            ("", "the message is not JSON: EOF while parsing"),
            ("poison", "the message is not JSON"),
            ("[1]", "a message of type `unknown` cannot be read"),
            (r#"{"type":"other","v":1}"#, "`type` is \"other\": this build knows"),
            (
                r#"{"type":"task","v":2,"task":"redeliver","delivery":1}"#,
                "version 2 is not understood by this build (1)",
            ),
            (r#"{"type":"task","v":1,"task":"other"}"#, "unknown variant `other`"),
            (r#"{"type":"fact","v":1}"#, "missing field `fact`"),
            (r#"{"type":"command","v":1,"pr_number":1}"#, "a message of type `command` cannot be read: missing field"),
            (r#"{"v":9}"#, "version 9 is not understood"),
        ] {
            let found = QueueMessage::from_json(body).unwrap_err().to_string();
            assert!(found.contains(why), "{body}: {found}");
        }
    }
}
