//! The dead-letter queue: messages nobody could act on. They are looked at without being taken, and sent back to the command
//! queue when what was wrong is repaired. Sending one back twice does no harm: the Car Bridge knows what it has done.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName as About, QueueAttributeName};
use domain::event::cut;
use jiff::Timestamp;
use thiserror::Error;

use super::message::Message;

/// What SQS gives at once.
const BATCH: i32 = 10;
/// How often SQS is asked for more when looking: it gives what it happens to find.
const LOOKS: usize = 6;
/// Most messages that are sent back at once; who has more asks again.
const MOST_MOVED: usize = 500;
/// How long sending back may take; a function ends after half a minute.
const MOVE_FOR: Duration = Duration::from_secs(15);
/// Nobody else gets a message that is being sent back for this long, in seconds.
const HELD_SECS: i32 = 30;
/// How much of a message is shown, in characters.
const EXCERPT: usize = 300;

/// A message nobody could act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// The queue's name for it.
    pub id: String,
    /// When it was first sent.
    pub sent_at: Option<Timestamp>,
    /// How often it was delivered.
    pub receive_count: u32,
    /// What it says.
    pub body: String,
}

impl Dead {
    /// Why it is here, as far as it shows.
    #[must_use]
    pub fn reason(&self) -> String {
        match Message::from_json(&self.body) {
            Err(unreadable) => unreadable.to_string(),
            Ok(_) => {
                format!("it came back {} times: see the log line of message {}", self.receive_count, self.id)
            }
        }
    }

    /// Its beginning.
    #[must_use]
    pub fn excerpt(&self) -> String {
        cut(&self.body, EXCERPT)
    }
}

/// What is in the dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dump {
    /// Some of it.
    pub messages: Vec<Dead>,
    /// About how many there are.
    pub approximate_count: u64,
}

/// It could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DlqError {
    /// There is none.
    #[error("no dead-letter queue is configured: set SUTURE_DLQ_URL")]
    None,
    /// The queue does not answer.
    #[error("the dead-letter queue does not answer: {0}")]
    Unavailable(String),
}

/// Where dead messages are.
#[derive(Debug, Clone, Default)]
pub enum Dlq {
    /// Nowhere.
    #[default]
    None,
    /// On SQS.
    Sqs(SqsDlq),
    /// In this process.
    Local(Arc<Parked>),
}

/// A dead-letter queue on SQS, and the queue its messages came from.
#[derive(Debug, Clone)]
pub struct SqsDlq {
    client: Client,
    dead: String,
    queue: String,
}

/// Dead messages in this process.
pub struct Parked {
    messages: Mutex<Vec<Dead>>,
    back: Box<dyn Fn(String) + Send + Sync>,
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parked({})", self.messages().len())
    }
}

impl Parked {
    /// None yet; what is sent back goes there.
    pub fn new(back: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self { messages: Mutex::default(), back: Box::new(back) }
    }

    /// One more.
    pub fn park(&self, dead: Dead) {
        self.messages().push(dead);
    }

    fn messages(&self) -> MutexGuard<'_, Vec<Dead>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dlq {
    /// On SQS: the dead-letter queue, and the queue its messages came from.
    #[must_use]
    pub fn sqs(config: &aws_types::SdkConfig, dead: String, queue: String) -> Self {
        Self::Sqs(SqsDlq { client: Client::new(config), dead, queue })
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// About how many messages are in it.
    ///
    /// # Errors
    /// [`DlqError`].
    pub async fn count(&self) -> Result<u64, DlqError> {
        match self {
            Self::None => Err(DlqError::None),
            Self::Local(parked) => Ok(parked.messages().len() as u64),
            Self::Sqs(sqs) => sqs.count().await,
        }
    }

    /// Looks at some of it, and takes nothing.
    ///
    /// # Errors
    /// [`DlqError`].
    pub async fn look(&self) -> Result<Dump, DlqError> {
        match self {
            Self::None => Err(DlqError::None),
            Self::Local(parked) => {
                let messages = parked.messages().clone();
                let approximate_count = messages.len() as u64;
                Ok(Dump { messages, approximate_count })
            }
            Self::Sqs(sqs) => sqs.look().await,
        }
    }

    /// Sends everything back, as far as there is time, and answers how much that was.
    ///
    /// # Errors
    /// [`DlqError`]; what was sent back before stays so.
    pub async fn redrive(&self) -> Result<u64, DlqError> {
        match self {
            Self::None => Err(DlqError::None),
            Self::Local(parked) => {
                let messages: Vec<Dead> = std::mem::take(&mut *parked.messages());
                let moved = messages.len() as u64;
                messages.into_iter().for_each(|dead| (parked.back)(dead.body));
                Ok(moved)
            }
            Self::Sqs(sqs) => sqs.redrive().await,
        }
    }
}

fn unavailable<E: std::error::Error>(error: E) -> DlqError {
    DlqError::Unavailable(DisplayErrorContext(error).to_string())
}

impl SqsDlq {
    async fn count(&self) -> Result<u64, DlqError> {
        let wanted = QueueAttributeName::ApproximateNumberOfMessages;
        let request = self.client.get_queue_attributes().queue_url(&self.dead).attribute_names(wanted.clone());
        let got = request.send().await.map_err(unavailable)?;
        let count = got.attributes().and_then(|attributes| attributes.get(&wanted));
        Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    async fn receive(&self, held_secs: i32) -> Result<Vec<Received>, DlqError> {
        let request = self.client.receive_message().queue_url(&self.dead).max_number_of_messages(BATCH);
        let request = request.visibility_timeout(held_secs).wait_time_seconds(0);
        let request = request.message_system_attribute_names(About::All);
        Ok(request.send().await.map_err(unavailable)?.messages.unwrap_or_default())
    }

    async fn look(&self) -> Result<Dump, DlqError> {
        let mut found: BTreeMap<String, Dead> = BTreeMap::new();
        for _ in 0..LOOKS {
            let before = found.len();
            // Nobody is kept from a message that was only looked at.
            let batch = self.receive(0).await?;
            found.extend(batch.into_iter().filter_map(dead).map(|dead| (dead.id.clone(), dead)));
            if found.len() == before {
                break;
            }
        }
        let approximate_count = self.count().await?.max(found.len() as u64);
        let mut messages: Vec<Dead> = found.into_values().collect();
        messages.sort_by_key(|dead| dead.sent_at);
        Ok(Dump { messages, approximate_count })
    }

    async fn redrive(&self) -> Result<u64, DlqError> {
        let give_up_at = Instant::now() + MOVE_FOR;
        let mut moved = 0;
        while moved < MOST_MOVED && Instant::now() < give_up_at {
            let batch = self.receive(HELD_SECS).await?;
            if batch.is_empty() {
                break;
            }
            for message in batch {
                let (Some(body), Some(handle)) = (message.body(), message.receipt_handle()) else { continue };
                let group = message.attributes().and_then(|about| about.get(&About::MessageGroupId)).cloned();
                let request = self.client.send_message().queue_url(&self.queue).message_body(body);
                request.set_message_group_id(group).send().await.map_err(unavailable)?;
                // If this fails, it is sent back twice.
                let taken = self.client.delete_message().queue_url(&self.dead).receipt_handle(handle);
                taken.send().await.map_err(unavailable)?;
                moved += 1;
            }
        }
        Ok(moved as u64)
    }
}

fn dead(message: Received) -> Option<Dead> {
    let about = |name: About| message.attributes().and_then(|attributes| attributes.get(&name)).cloned();
    let sent_at = about(About::SentTimestamp).and_then(|ms| ms.parse().ok());
    Some(Dead {
        id: message.message_id()?.to_owned(),
        sent_at: sent_at.and_then(|ms| Timestamp::from_millisecond(ms).ok()),
        receive_count: about(About::ApproximateReceiveCount).and_then(|count| count.parse().ok()).unwrap_or(0),
        body: message.body().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(id: &str, body: &str) -> Dead {
        Dead { id: id.to_owned(), sent_at: None, receive_count: 5, body: body.to_owned() }
    }

    #[tokio::test]
    async fn what_is_parked_is_looked_at_and_sent_back() {
        let back = Arc::new(Mutex::new(Vec::new()));
        let there = Arc::clone(&back);
        let parked = Arc::new(Parked::new(move |body| there.lock().unwrap().push(body)));
        let dlq = Dlq::Local(Arc::clone(&parked));
        assert_eq!(dlq.look().await.unwrap(), Dump::default());
        parked.park(dead("m1", r#"{"type":"riddle"}"#));
        parked.park(dead("m2", r#"{"type":"chore","v":1,"chore":"redeliver","delivery":7}"#));
        let dump = dlq.look().await.unwrap();
        assert_eq!((dump.approximate_count, dlq.count().await.unwrap()), (2, 2));
        assert!(dump.messages[0].reason().starts_with("`type` is \"riddle\""), "{}", dump.messages[0].reason());
        assert_eq!(dump.messages[1].reason(), "it came back 5 times: see the log line of message m2");
        assert_eq!(dlq.redrive().await.unwrap(), 2);
        let left = dlq.count().await.unwrap();
        assert_eq!((back.lock().unwrap().len(), left), (2, 0));
        assert_eq!(
            Dlq::None.look().await.unwrap_err().to_string(),
            "no dead-letter queue is configured: set SUTURE_DLQ_URL"
        );
        assert_eq!(dead("m", &"x".repeat(999)).excerpt().chars().count(), EXCERPT);
    }
}
