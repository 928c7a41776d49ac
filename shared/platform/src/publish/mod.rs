//! Publishing: messages to the queues of the Car Bridge, events to the bus, notices to users. The publisher decides nothing; what
//! to send is decided by the engine and the functions.

#[cfg(feature = "aws")]
pub mod aws;
pub mod dead_letters;
pub mod queue_message;
#[cfg(feature = "aws")]
pub mod sqs_dead_letters;
pub mod visibility;

use std::future::Future;
use std::time::Duration;

use domain::bus::DetailType;
use domain::command::CommandMessage;
use domain::decide::{Effect, EffectKind};
use domain::id::{PrId, RepoName};
use domain::text::Notice;
use thiserror::Error;

use self::queue_message::{QueueMessage, Task};

/// The attribute of a queue message that names the trace it belongs to.
pub const TRACE_ATTRIBUTE: &str = "trace";

#[derive(Debug, Clone, PartialEq)]
pub struct OutboundMessage {
    /// Idempotency key for the receiver.
    pub id: String,
    pub destination: Destination,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Destination {
    /// The queue of the message (`QueueMessage::queue`), read by the Car Bridge.
    Queue {
        message: QueueMessage,
        /// The message group: a busy repository must not delay the others.
        repo: RepoName,
        delay: Duration,
        /// How many messages of the Car Bridge led to this one.
        hops: u32,
    },
    /// The event bus, for bots and the reconciler.
    Bus {
        detail_type: DetailType,
        detail: String,
    },
    Notice(Notice),
}

impl Destination {
    /// A message that no other message led to.
    pub fn queue(message: QueueMessage, repo: RepoName, delay: Duration) -> Self {
        Self::Queue { message, repo, delay, hops: 0 }
    }
}

impl OutboundMessage {
    /// A command for the Car Bridge, without delay.
    pub fn command(id: String, command: CommandMessage) -> Self {
        let repo = command.repo.clone();
        Self { id, destination: Destination::queue(QueueMessage::Command(command), repo, Duration::ZERO) }
    }

    /// The message of an effect.
    pub fn from_effect(pr: &PrId, effect: &Effect) -> Self {
        let destination = match &effect.what {
            EffectKind::Command(command) => return Self::command(effect.id.to_string(), command.clone()),
            EffectKind::Notice(notice) => Destination::Notice(notice.clone()),
            EffectKind::CheckRun { text, as_of } => {
                let (pr, head_sha, text) = (pr.clone(), effect.head_sha.clone(), Box::new(text.clone()));
                let repo = pr.repo.clone();
                let message = QueueMessage::Task(Task::CheckRun { pr, head_sha, text, as_of: *as_of });
                Destination::queue(message, repo, Duration::ZERO)
            }
        };
        Self { id: effect.id.to_string(), destination }
    }
}

/// A message was not sent, or the result is unknown. Effects of a decision stay in the outbox and are retried.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot publish: {0}")]
pub struct PublishError(pub String);

/// Sends messages. After a crash a message may be sent again; receivers recognise it by its id.
pub trait Publisher: Send + Sync {
    /// Sends messages and returns one result per message, in the same order.
    fn publish(&self, messages: &[OutboundMessage]) -> impl Future<Output = Vec<Result<(), PublishError>>> + Send;

    /// Whether somebody can receive this event of the bus. A publisher that cannot know it assumes so.
    fn has_receiver(&self, _detail_type: DetailType) -> bool {
        true
    }

    fn send_one(&self, message: OutboundMessage) -> impl Future<Output = Result<(), PublishError>> + Send {
        async move {
            let result = self.publish(&[message]).await.into_iter().next();
            result.unwrap_or_else(|| Err(PublishError("no result".to_owned())))
        }
    }
}
