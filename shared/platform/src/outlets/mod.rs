//! Publishing: messages to the command queue, events to the bus, notices to users. The publisher has one method and decides nothing; what
//! to send is decided by the engine and the functions.

#[cfg(feature = "aws")]
pub mod aws;
pub mod dlq;
pub mod message;
#[cfg(feature = "aws")]
pub mod sqs_dlq;

use std::future::Future;
use std::time::Duration;

use domain::bus::DetailType;
use domain::command::CommandMessage;
use domain::comment::Notice;
use domain::decide::{Effect, EffectKind};
use domain::id::{PrId, RepoName};
use thiserror::Error;

use self::message::{Chore, Message};

#[derive(Debug, Clone, PartialEq)]
pub struct Parcel {
    /// Idempotency key for the receiver.
    pub id: String,
    pub what: Content,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// The command queue, read by the Car Bridge.
    Queue {
        message: Message,
        /// The message group: a busy repository must not delay the others.
        repo: RepoName,
        delay: Duration,
    },
    /// The event bus, for bots and the reconciler.
    Bus {
        detail_type: DetailType,
        detail: String,
    },
    People(Notice),
}

impl Parcel {
    /// A command for the Car Bridge, without delay.
    pub fn command(id: String, command: CommandMessage) -> Self {
        let repo = command.repo.clone();
        Self { id, what: Content::Queue { message: Message::Command(command), repo, delay: Duration::ZERO } }
    }

    /// The message of an effect.
    pub fn of(pr: &PrId, effect: &Effect) -> Self {
        let what = match &effect.what {
            EffectKind::Command(command) => return Self::command(effect.id.to_string(), command.clone()),
            EffectKind::Notice(notice) => Content::People(notice.clone()),
            EffectKind::CheckRun { text, as_of } => {
                let (pr, head_sha, text) = (pr.clone(), effect.head_sha.clone(), Box::new(text.clone()));
                let repo = pr.repo.clone();
                let message = Message::Chore(Chore::CheckRun { pr, head_sha, text, as_of: *as_of });
                Content::Queue { message, repo, delay: Duration::ZERO }
            }
        };
        Self { id: effect.id.to_string(), what }
    }
}

/// A message was not sent, or the result is unknown. Effects of a decision stay in the outbox and are retried.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot publish: {0}")]
pub struct Undelivered(pub String);

/// Sends messages. After a crash a message may be sent again; receivers recognise it by its id.
pub trait Outlets: Send + Sync {
    /// Sends messages and returns one result per message, in the same order.
    fn send(&self, messages: &[Parcel]) -> impl Future<Output = Vec<Result<(), Undelivered>>> + Send;

    fn send_one(&self, message: Parcel) -> impl Future<Output = Result<(), Undelivered>> + Send {
        async move {
            let result = self.send(&[message]).await.into_iter().next();
            result.unwrap_or_else(|| Err(Undelivered("no result".to_owned())))
        }
    }
}
