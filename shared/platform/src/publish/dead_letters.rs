//! The dead-letter queues: messages that failed repeatedly. They can be listed without being removed, redriven to the queue they came from
//! once the cause is fixed, and deleted. Redriving a message twice is harmless, because the Car Bridge recognises duplicates.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::event::truncate;
use jiff::Timestamp;
use thiserror::Error;

use super::queue_message::QueueMessage;

/// Length of an excerpt, in characters.
const EXCERPT_CHARS: usize = 300;

domain::named! {
    /// Which dead-letter queue a message is in.
    pub enum DeadLetterSource {
        /// Messages of the command queue.
        Commands = "commands",
        /// Deferred facts.
        Facts = "facts",
        /// Events that the reconciler could not handle. They cannot be redriven: the schedule has started other sweeps since.
        Sweeps = "sweeps",
    }
}

/// A message in a dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub id: String,
    pub queue: DeadLetterSource,
    /// When it was first sent.
    pub sent_at: Option<Timestamp>,
    pub receive_count: u32,
    pub body: String,
}

impl DeadLetter {
    /// Why the message is here, as far as its content shows.
    pub fn reason(&self) -> String {
        if self.queue == DeadLetterSource::Sweeps {
            return "the reconciler could not be invoked, or failed repeatedly: search its log".to_owned();
        }
        match QueueMessage::from_json(&self.body) {
            Err(error) => error.to_string(),
            Ok(_) => {
                format!("failed {} times: search the Car Bridge's log for message {}", self.receive_count, self.id)
            }
        }
    }

    pub fn excerpt(&self) -> String {
        truncate(&self.body, EXCERPT_CHARS)
    }
}

/// The content of the dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadLetters {
    pub messages: Vec<DeadLetter>,
    pub approximate_count: u64,
}

/// The dead-letter queue cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DlqError {
    #[error("no dead-letter queue is configured: set SUTURE_DLQ_URL")]
    None,
    #[error("the dead-letter queue is unavailable: {0}")]
    Unavailable(String),
}

/// The dead-letter queue of this deployment.
#[derive(Debug, Clone, Default)]
pub enum DeadLetterQueue {
    #[default]
    None,
    #[cfg(feature = "aws")]
    Sqs(super::sqs_dead_letters::SqsDlq),
    Local(Arc<LocalDeadLetters>),
}

/// An in-process dead-letter queue.
pub struct LocalDeadLetters {
    messages: Mutex<Vec<DeadLetter>>,
    redrive_to: Box<dyn Fn(String) + Send + Sync>,
    delete: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for LocalDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalDeadLetters({})", self.messages().len())
    }
}

impl LocalDeadLetters {
    /// Empty; `redrive_to` receives the redriven messages.
    pub fn new(redrive_to: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self { messages: Mutex::default(), redrive_to: Box::new(redrive_to), delete: Box::new(|_| {}) }
    }

    /// `delete` receives the id of each deleted message.
    #[must_use]
    pub fn with_delete(self, delete: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { delete: Box::new(delete), ..self }
    }

    /// Removes the messages that match, and returns how many.
    fn remove(&self, matches: impl Fn(&DeadLetter) -> bool) -> u64 {
        let removed: Vec<DeadLetter> = self.messages().extract_if(.., |dead| matches(dead)).collect();
        removed.iter().for_each(|dead| (self.delete)(&dead.id));
        removed.len() as u64
    }

    pub fn add(&self, dead: DeadLetter) {
        self.messages().push(dead);
    }

    fn messages(&self) -> MutexGuard<'_, Vec<DeadLetter>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeadLetterQueue {
    /// The approximate number of messages.
    pub async fn count(&self) -> Result<u64, DlqError> {
        match self {
            Self::None => Err(DlqError::None),
            Self::Local(local) => Ok(local.messages().len() as u64),
            #[cfg(feature = "aws")]
            Self::Sqs(sqs) => sqs.count().await,
        }
    }

    /// Lists some messages without removing them.
    pub async fn peek(&self) -> Result<DeadLetters, DlqError> {
        match self {
            Self::None => Err(DlqError::None),
            Self::Local(local) => {
                let messages = local.messages().clone();
                let approximate_count = messages.len() as u64;
                Ok(DeadLetters { messages, approximate_count })
            }
            #[cfg(feature = "aws")]
            Self::Sqs(sqs) => sqs.peek().await,
        }
    }

    /// Moves messages back to the queue they came from, until the time limit. Returns how many.
    pub async fn redrive(&self) -> Result<u64, DlqError> {
        match self {
            Self::None => Err(DlqError::None),
            Self::Local(local) => {
                let messages: Vec<DeadLetter> = std::mem::take(&mut *local.messages());
                let moved = messages.len() as u64;
                messages.into_iter().for_each(|dead| (local.redrive_to)(dead.body));
                Ok(moved)
            }
            #[cfg(feature = "aws")]
            Self::Sqs(sqs) => sqs.redrive().await,
        }
    }

    /// Deletes a message. Returns false if it was not found.
    pub async fn delete(&self, id: &str) -> Result<bool, DlqError> {
        match self {
            Self::None => Err(DlqError::None),
            Self::Local(local) => Ok(local.remove(|dead| dead.id == id) > 0),
            #[cfg(feature = "aws")]
            Self::Sqs(sqs) => sqs.delete(id).await,
        }
    }

    /// Deletes all messages of one queue, or of all. Returns approximately how many.
    pub async fn purge(&self, queue: Option<DeadLetterSource>) -> Result<u64, DlqError> {
        match self {
            Self::None => Err(DlqError::None),
            Self::Local(local) => Ok(local.remove(|dead| queue.is_none_or(|queue| dead.queue == queue))),
            #[cfg(feature = "aws")]
            Self::Sqs(sqs) => sqs.purge(queue).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(id: &str, body: &str) -> DeadLetter {
        let queue = DeadLetterSource::Commands;
        DeadLetter { id: id.to_owned(), queue, sent_at: None, receive_count: 5, body: body.to_owned() }
    }

    #[tokio::test]
    async fn local_messages_are_deleted_one_by_one_or_all_of_a_queue() {
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&deleted);
        let delete = move |id: &str| sink.lock().unwrap().push(id.to_owned());
        let local = Arc::new(LocalDeadLetters::new(|_| {}).with_delete(delete));
        for id in ["m1", "m2", "m3"] {
            local.add(dead(id, "{}"));
        }
        local.add(DeadLetter { queue: DeadLetterSource::Sweeps, ..dead("s1", "{}") });
        let dlq = DeadLetterQueue::Local(local);
        assert_eq!((dlq.delete("m2").await, dlq.delete("m2").await), (Ok(true), Ok(false)));
        assert!(dlq.peek().await.unwrap().messages[2].reason().contains("reconciler"));
        assert_eq!(dlq.purge(Some(DeadLetterSource::Sweeps)).await, Ok(1));
        assert_eq!((dlq.purge(None).await, dlq.purge(None).await), (Ok(2), Ok(0)));
        assert_eq!(*deleted.lock().unwrap(), ["m2", "s1", "m1", "m3"]);
    }

    #[tokio::test]
    async fn local_messages_are_listed_and_redriven() {
        let redriven = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&redriven);
        let local = Arc::new(LocalDeadLetters::new(move |body| sink.lock().unwrap().push(body)));
        let dlq = DeadLetterQueue::Local(Arc::clone(&local));
        assert_eq!(dlq.peek().await.unwrap(), DeadLetters::default());
        local.add(dead("m1", r#"{"type":"other"}"#));
        local.add(dead("m2", r#"{"type":"task","v":1,"task":"redeliver","delivery":7}"#));
        let listed = dlq.peek().await.unwrap();
        assert_eq!((listed.approximate_count, dlq.count().await.unwrap()), (2, 2));
        assert!(listed.messages[0].reason().starts_with("`type` is \"other\""), "{}", listed.messages[0].reason());
        assert_eq!(listed.messages[1].reason(), "failed 5 times: search the Car Bridge's log for message m2");
        assert_eq!(dlq.redrive().await.unwrap(), 2);
        let left = dlq.count().await.unwrap();
        assert_eq!((redriven.lock().unwrap().len(), left), (2, 0));
        assert_eq!(
            DeadLetterQueue::None.peek().await.unwrap_err().to_string(),
            "no dead-letter queue is configured: set SUTURE_DLQ_URL"
        );
        assert_eq!(dead("m", &"x".repeat(999)).excerpt().chars().count(), EXCERPT_CHARS);
    }
}
