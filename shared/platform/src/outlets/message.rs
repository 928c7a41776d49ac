//! What is on the command queue: versioned JSON, told apart by `type`. What this build cannot read is not guessed at.

use domain::command::{CommandMessage, MessageVersion};
use domain::event::Fact;
use serde::{Deserialize, Serialize};
use thiserror::Error;

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
    Redeliver {
        /// GitHub's number of the delivery.
        delivery: u64,
    },
}

/// A message nobody can act on. It ends in the dead-letter queue, with this as the reason.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// It is not one of ours.
    #[error(
        "`type` is {0:?}: this build knows `command`, `fact` and `chore`. Deploy the sender's version, then redrive the dead-letter queue"
    )]
    Unknown(String),
    /// It is one of ours, but not well formed.
    #[error("a message of type `{kind}` cannot be read: {why}")]
    Malformed {
        /// Its type.
        kind: String,
        /// What is the matter.
        why: String,
    },
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

impl Message {
    /// As it goes onto the queue.
    ///
    /// # Errors
    /// If it is a fact that does not travel: one of Suture's own deeds.
    pub fn to_json(&self) -> Result<String, Unreadable> {
        let (kind, json) = match self {
            Self::Command(command) => {
                let kind = "command".to_owned();
                (kind.clone(), serde_json::to_string(&Typed { head: Head { kind }, body: command }))
            }
            Self::Fact(fact) => {
                let kind = "fact".to_owned();
                let body = Deferred { v: MessageVersion, fact: fact.clone() };
                (kind.clone(), serde_json::to_string(&Typed { head: Head { kind }, body }))
            }
            Self::Chore(chore) => {
                let kind = "chore".to_owned();
                let body = Errand { v: MessageVersion, chore: chore.clone() };
                (kind.clone(), serde_json::to_string(&Typed { head: Head { kind }, body }))
            }
        };
        json.map_err(|error| Unreadable::Malformed { kind, why: error.to_string() })
    }

    /// As it came from the queue.
    ///
    /// # Errors
    /// [`Unreadable`], with a sentence for whoever looks into the dead-letter queue.
    pub fn from_json(json: &str) -> Result<Self, Unreadable> {
        let malformed = |kind: &str, error: serde_json::Error| Unreadable::Malformed {
            kind: kind.to_owned(),
            why: error.to_string(),
        };
        let Head { kind } = serde_json::from_str(json).map_err(|error| malformed("unknown", error))?;
        match kind.as_str() {
            "command" => serde_json::from_str(json).map(Self::Command).map_err(|error| malformed(&kind, error)),
            "fact" => {
                let deferred: Result<Deferred, _> = serde_json::from_str(json);
                deferred.map(|deferred| Self::Fact(deferred.fact)).map_err(|error| malformed(&kind, error))
            }
            "chore" => {
                let errand: Result<Errand, _> = serde_json::from_str(json);
                errand.map(|errand| Self::Chore(errand.chore)).map_err(|error| malformed(&kind, error))
            }
            _ => Err(Unreadable::Unknown(kind)),
        }
    }
}
