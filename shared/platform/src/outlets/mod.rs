//! The ways out: what a committed decision asks to be sent, and what waits on the queue. One verb, since a sender that knows
//! what it sends would have to decide.

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
    /// The same in every repetition, so that a receiver can tell one from two.
    pub id: String,
    pub what: Content,
}

/// The three ways out.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// The command queue, where the Car Bridge reads.
    Queue {
        message: Message,
        /// Whose messages these are: a busy repository must not keep the others waiting.
        repo: RepoName,
        delay: Duration,
    },
    /// The event bus, where bots and the reconciler listen.
    Bus {
        detail_type: DetailType,
        detail: String,
    },
    People(Notice),
}

impl Parcel {
    /// A command for the Car Bridge, to be taken at once.
    pub fn command(id: String, command: CommandMessage) -> Self {
        let repo = command.repo.clone();
        Self { id, what: Content::Queue { message: Message::Command(command), repo, delay: Duration::ZERO } }
    }

    /// What an effect asks to be sent.
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

/// It was not sent, or nobody knows. What belongs to a decision stays in the table, and is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("could not be delivered: {0}")]
pub struct Undelivered(pub String);

/// Sends. What was sent may be sent again after a crash: receivers know it by its id.
pub trait Outlets: Send + Sync {
    /// Sends some, and answers for each in the same order whether it is on its way.
    fn send(&self, parcels: &[Parcel]) -> impl Future<Output = Vec<Result<(), Undelivered>>> + Send;

    fn send_one(&self, parcel: Parcel) -> impl Future<Output = Result<(), Undelivered>> + Send {
        async move {
            let answer = self.send(&[parcel]).await.into_iter().next();
            answer.unwrap_or_else(|| Err(Undelivered("nobody answered for it".to_owned())))
        }
    }
}
