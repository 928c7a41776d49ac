//! What is on the command queue: versioned JSON, told apart by `type`. What this build cannot read is not guessed at.

use domain::command::{Command, CommandMessage, MessageVersion};
use domain::comment::check_run::CheckText;
use domain::event::Fact;
use domain::id::{EffectId, PrId, RepoName, Sha};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::github::Reaction;

/// A message for the Car Bridge.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Somebody, or a sweep, asks for something to be done.
    Command(CommandMessage),
    /// Something that happened, put off because there was too much at once.
    Fact(Box<Fact>),
    /// Something small to do outside, that no record depends on.
    Chore(Chore),
}

/// Small things to do outside. Doing one twice does no harm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "chore", rename_all = "snake_case")]
pub enum Chore {
    /// Ask GitHub to deliver a webhook again that we did not take.
    Redeliver { delivery: u64 },
    /// React to a comment or a review.
    React { repo: RepoName, subject: String, reaction: Reaction },
    /// Say something on a pull request, once.
    Comment {
        pr: PrId,
        /// What makes it this comment and not another: hidden in it, and looked for before it is written.
        marker: String,
        text: String,
        /// Since when it may be there.
        since: Timestamp,
    },
    /// Show how a commit stands. What is shown already is not posted again, and what is older than that not at all.
    CheckRun {
        pr: PrId,
        head_sha: Sha,
        text: Box<CheckText>,
        /// When that was so.
        as_of: Timestamp,
    },
    /// Write an issue of our own, once, or keep it up to date.
    Issue {
        repo: RepoName,
        /// What it is, and how it is found again.
        issue: Box<OwnIssue>,
    },
    /// Ask CodeGenie for the pull request of an issue, and say so on it.
    AskForPull { repo: RepoName, ask: Box<PullAsk> },
    /// Move an issue of the backlog, or close it.
    Tend { repo: RepoName, tending: Box<Tending> },
}

/// An issue of our own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnIssue {
    /// The same in every repetition, and of no other issue: hidden in it, and looked for before it is written.
    pub key: String,
    /// The label all of its kind carry.
    pub label: String,
    /// Further labels it is given when it is written.
    pub labels: Vec<String>,
    pub title: String,
    pub body: String,
    /// When that was so.
    pub as_of: Timestamp,
    /// Whether it is changed when something else is to be said; otherwise it is written once.
    pub kept: bool,
    /// Whether it is pinned when it is written.
    pub pin: bool,
}

/// A pull request that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullAsk {
    pub issue: u64,
    pub vulnerability: String,
    /// The branch it is to be merged into.
    pub base_branch: String,
    /// The same in every repetition.
    pub effect: EffectId,
    /// The label of an issue that may be asked for.
    pub approved: String,
    /// The label of one that was.
    pub in_progress: String,
}

/// What to do to an issue of the backlog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tending {
    pub issue: u64,
    /// The same in every repetition.
    pub key: String,
    /// The label that it was decided on: without it somebody was faster.
    pub expects: String,
    pub add: Vec<String>,
    pub remove: Vec<String>,
    pub comment: Option<String>,
    /// Close it, for this reason of GitHub's.
    pub close: Option<String>,
    /// A pull request to close first, and what to say there.
    pub close_pull: Option<(u64, String)>,
    pub since: Timestamp,
}

impl Chore {
    /// Whose errand it is: a busy repository must not keep the others waiting. Redeliveries belong to none.
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

/// A message nobody can act on. It ends in the dead-letter queue, with this as the reason.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unreadable {
    #[error(
        "`type` is {0:?}: this build knows `command`, `fact` and `chore`. Deploy the sender's version, then redrive the dead-letter queue"
    )]
    Unknown(String),
    /// It is not even JSON.
    #[error("it is no JSON: {0}. Whoever sent it was not Suture: find out who, and delete it")]
    NoJson(String),
    /// It is one of ours, but not well formed.
    #[error("a message of type `{kind}` cannot be read: {why}")]
    Malformed { kind: String, why: String },
}

#[derive(Serialize, Deserialize)]
struct Head {
    // A message without a type is a command: that is all there was in the first place.
    #[serde(rename = "type", default = "command")]
    kind: String,
}

fn command() -> String {
    "command".to_owned()
}

#[derive(Serialize, Deserialize)]
struct Typed<T> {
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize, Deserialize)]
struct Deferred {
    v: MessageVersion,
    fact: Box<Fact>,
}

#[derive(Serialize, Deserialize)]
struct Errand {
    v: MessageVersion,
    #[serde(flatten)]
    chore: Chore,
}

fn malformed(kind: &str, error: serde_json::Error) -> Unreadable {
    Unreadable::Malformed { kind: kind.to_owned(), why: error.to_string() }
}

fn write<T: Serialize>(kind: &str, body: T) -> Result<String, Unreadable> {
    let head = Head { kind: kind.to_owned() };
    serde_json::to_string(&Typed { head, body }).map_err(|error| malformed(kind, error))
}

fn read<T: DeserializeOwned>(kind: &str, json: &str) -> Result<T, Unreadable> {
    serde_json::from_str(json).map_err(|error| malformed(kind, error))
}

impl Message {
    /// Whether it ends with a request for a fresh pull request.
    pub fn asks_for_pull_request(&self) -> bool {
        matches!(self, Self::Command(message) if message.command == Command::CloseAndReopen)
    }

    /// As it goes onto the queue.
    ///
    /// Fails for a fact that does not travel: one of Suture's own deeds.
    pub fn to_json(&self) -> Result<String, Unreadable> {
        match self {
            Self::Command(command) => write("command", command),
            Self::Fact(fact) => write("fact", Deferred { v: MessageVersion, fact: fact.clone() }),
            Self::Chore(chore) => write("chore", Errand { v: MessageVersion, chore: chore.clone() }),
        }
    }

    /// As it came from the queue.
    ///
    /// What cannot be read says why, for whoever looks into the dead-letter queue.
    pub fn from_json(json: &str) -> Result<Self, Unreadable> {
        let value: serde_json::Value =
            serde_json::from_str(json).map_err(|error| Unreadable::NoJson(error.to_string()))?;
        let Head { kind } = serde_json::from_value(value).map_err(|error| malformed("unknown", error))?;
        match kind.as_str() {
            "command" => read(&kind, json).map(Self::Command),
            "fact" => read(&kind, json).map(|Deferred { fact, .. }| Self::Fact(fact)),
            "chore" => read(&kind, json).map(|Errand { chore, .. }| Self::Chore(chore)),
            _ => Err(Unreadable::Unknown(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::comment::check_run::{Button, Mood};

    use super::*;

    fn at() -> Timestamp {
        Timestamp::from_second(1_772_000_000).unwrap()
    }

    #[test]
    fn chores_travel_as_versioned_json() {
        let repo: RepoName = "acme/shop".parse().unwrap();
        let text = CheckText {
            mood: Mood::Quiet,
            title: "Waiting for Policy Bot".to_owned(),
            summary: "Since 09:00.".to_owned(),
            buttons: vec![Button::Hold],
        };
        let chores = [
            Chore::Redeliver { delivery: 7 },
            Chore::React { repo: repo.clone(), subject: "IC_1".to_owned(), reaction: Reaction::Rocket },
            Chore::Comment {
                pr: "acme/shop#7".parse().unwrap(),
                marker: "suture:status".to_owned(),
                text: "All is well.".to_owned(),
                since: at(),
            },
            Chore::CheckRun {
                pr: "acme/shop#7".parse().unwrap(),
                head_sha: "a".repeat(40).parse().unwrap(),
                text: Box::new(text),
                as_of: at(),
            },
            Chore::Issue {
                repo: repo.clone(),
                issue: Box::new(OwnIssue {
                    key: "status".to_owned(),
                    label: "suture/status".to_owned(),
                    labels: vec!["ops".to_owned()],
                    title: "How things stand".to_owned(),
                    body: "Well.".to_owned(),
                    as_of: at(),
                    kept: true,
                    pin: true,
                }),
            },
            Chore::AskForPull {
                repo: repo.clone(),
                ask: Box::new(PullAsk {
                    issue: 7,
                    vulnerability: "CVE-2026-1".to_owned(),
                    base_branch: "main".to_owned(),
                    effect: EffectId::new("backlog:acme/shop#7:1"),
                    approved: "pipeline/approved".to_owned(),
                    in_progress: "pipeline/in-progress".to_owned(),
                }),
            },
            Chore::Tend {
                repo,
                tending: Box::new(Tending {
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
        for chore in chores {
            let repo = chore.repo().cloned();
            assert_eq!(repo.is_none(), matches!(chore, Chore::Redeliver { .. }));
            let message = Message::Chore(chore);
            let json = message.to_json().unwrap();
            assert!(json.contains(r#""type":"chore""#) && json.contains(r#""v":1"#), "{json}");
            assert_eq!(Message::from_json(&json), Ok(message));
        }
    }

    #[test]
    fn what_nobody_can_act_on_says_why() {
        for (body, why) in [
            ("", "it is no JSON: EOF while parsing"),
            ("poison", "it is no JSON"),
            ("[1]", "a message of type `unknown` cannot be read"),
            (r#"{"type":"poem","v":1}"#, "`type` is \"poem\": this build knows"),
            (
                r#"{"type":"chore","v":2,"chore":"redeliver","delivery":1}"#,
                "version 2 is not understood by this build (1)",
            ),
            (r#"{"type":"chore","v":1,"chore":"sing"}"#, "unknown variant `sing`"),
            (r#"{"type":"fact","v":1}"#, "missing field `fact`"),
            (r#"{"type":"command","v":1,"pr_number":1}"#, "a message of type `command` cannot be read: missing field"),
            (r#"{"v":9}"#, "version 9 is not understood"),
        ] {
            let found = Message::from_json(body).unwrap_err().to_string();
            assert!(found.contains(why), "{body}: {found}");
        }
    }
}
