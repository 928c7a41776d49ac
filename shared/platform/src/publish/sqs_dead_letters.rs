//! The dead-letter queues on SQS.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName as Attribute, QueueAttributeName};
use jiff::Timestamp;

use super::TRACE_ATTRIBUTE;
use super::dead_letters::{DeadLetter, DeadLetterSource, DeadLetters, DlqError};

/// SQS' limit for one receive call.
const BATCH: i32 = 10;
/// Most receive calls for a listing; each returns an arbitrary part of the queue.
const MAX_RECEIVES: usize = 6;
/// Most messages per redrive; larger queues need several.
const MAX_REDRIVEN: usize = 500;
/// Time limit of a redrive and of a search; the admin function times out after 30 seconds.
const TIME_LIMIT: Duration = Duration::from_secs(15);
/// Visibility timeout of messages that are being redriven or searched, in seconds.
const VISIBILITY_TIMEOUT_SECS: i32 = 30;

/// A dead-letter queue and the queue that its messages came from.
#[derive(Debug, Clone)]
pub struct SqsDeadLetterQueue {
    pub source: DeadLetterSource,
    pub url: String,
    /// Where its messages are redriven to; `None` if they cannot be.
    pub redrive_to: Option<String>,
}

/// The dead-letter queues of a deployment.
#[derive(Debug, Clone)]
pub struct SqsDlq {
    client: Client,
    queues: Vec<SqsDeadLetterQueue>,
}

fn unavailable<E: std::error::Error>(error: E) -> DlqError {
    DlqError::Unavailable(DisplayErrorContext(error).to_string())
}

impl SqsDlq {
    pub fn new(config: &aws_config::SdkConfig, queues: Vec<SqsDeadLetterQueue>) -> Self {
        Self { client: Client::new(config), queues }
    }

    pub(super) async fn count(&self) -> Result<u64, DlqError> {
        let mut count = 0;
        for queue in &self.queues {
            count += self.count_in(queue).await?;
        }
        Ok(count)
    }

    async fn count_in(&self, queue: &SqsDeadLetterQueue) -> Result<u64, DlqError> {
        let wanted = QueueAttributeName::ApproximateNumberOfMessages;
        let request = self.client.get_queue_attributes().queue_url(&queue.url).attribute_names(wanted.clone());
        let response = request.send().await.map_err(unavailable)?;
        let count = response.attributes().and_then(|attributes| attributes.get(&wanted));
        Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    async fn receive(&self, queue: &SqsDeadLetterQueue, visibility_secs: i32) -> Result<Vec<Received>, DlqError> {
        let request = self.client.receive_message().queue_url(&queue.url).max_number_of_messages(BATCH);
        let request = request.visibility_timeout(visibility_secs).wait_time_seconds(0);
        let request = request.message_system_attribute_names(Attribute::All).message_attribute_names(TRACE_ATTRIBUTE);
        Ok(request.send().await.map_err(unavailable)?.messages.unwrap_or_default())
    }

    async fn remove(&self, queue: &SqsDeadLetterQueue, receipt_handle: &str) -> Result<(), DlqError> {
        let delete = self.client.delete_message().queue_url(&queue.url).receipt_handle(receipt_handle);
        delete.send().await.map(drop).map_err(unavailable)
    }

    pub(super) async fn peek(&self) -> Result<DeadLetters, DlqError> {
        let mut found: BTreeMap<String, DeadLetter> = BTreeMap::new();
        for queue in &self.queues {
            for _ in 0..MAX_RECEIVES {
                let before = found.len();
                // A visibility timeout of 0 leaves the message available to others.
                let batch = self.receive(queue, 0).await?;
                let batch = batch.into_iter().filter_map(|message| dead(queue.source, message));
                found.extend(batch.map(|dead| (dead.id.clone(), dead)));
                if found.len() == before {
                    break;
                }
            }
        }
        let approximate_count = self.count().await?.max(found.len() as u64);
        let mut messages: Vec<DeadLetter> = found.into_values().collect();
        messages.sort_by_key(|dead| dead.sent_at);
        Ok(DeadLetters { messages, approximate_count })
    }

    pub(super) async fn redrive(&self) -> Result<u64, DlqError> {
        let deadline = Instant::now() + TIME_LIMIT;
        let mut moved = 0;
        for queue in &self.queues {
            let Some(redrive_to) = &queue.redrive_to else { continue };
            while moved < MAX_REDRIVEN && Instant::now() < deadline {
                let batch = self.receive(queue, VISIBILITY_TIMEOUT_SECS).await?;
                if batch.is_empty() {
                    break;
                }
                for message in batch {
                    let (Some(body), Some(handle)) = (message.body(), message.receipt_handle()) else { continue };
                    let group = attribute(&message, &Attribute::MessageGroupId);
                    let request = self.client.send_message().queue_url(redrive_to).message_body(body);
                    let request = request.set_message_attributes(message.message_attributes().cloned());
                    request.set_message_group_id(group).send().await.map_err(unavailable)?;
                    // If the delete fails, a later redrive sends the message again.
                    self.remove(queue, handle).await?;
                    moved += 1;
                }
            }
        }
        Ok(moved as u64)
    }

    /// Searches all queues for a message, because SQS deletes only what was received before. The others are visible again after half a minute.
    pub(super) async fn delete(&self, id: &str) -> Result<bool, DlqError> {
        let deadline = Instant::now() + TIME_LIMIT;
        for queue in &self.queues {
            while Instant::now() < deadline {
                let batch = self.receive(queue, VISIBILITY_TIMEOUT_SECS).await?;
                if batch.is_empty() {
                    break;
                }
                let found = batch.iter().find(|message| message.message_id() == Some(id));
                if let Some(handle) = found.and_then(Received::receipt_handle) {
                    self.remove(queue, handle).await?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    pub(super) async fn purge(&self, only: Option<DeadLetterSource>) -> Result<u64, DlqError> {
        let mut purged = 0;
        for queue in self.queues.iter().filter(|queue| only.is_none_or(|only| queue.source == only)) {
            purged += self.count_in(queue).await?;
            self.client.purge_queue().queue_url(&queue.url).send().await.map_err(unavailable)?;
        }
        Ok(purged)
    }
}

fn attribute(message: &Received, name: &Attribute) -> Option<String> {
    message.attributes().and_then(|attributes| attributes.get(name)).cloned()
}

fn dead(queue: DeadLetterSource, message: Received) -> Option<DeadLetter> {
    let number = |name: Attribute| attribute(&message, &name);
    let sent_at = number(Attribute::SentTimestamp).and_then(|ms| ms.parse().ok());
    Some(DeadLetter {
        id: message.message_id()?.to_owned(),
        queue,
        sent_at: sent_at.and_then(|ms| Timestamp::from_millisecond(ms).ok()),
        receive_count: number(Attribute::ApproximateReceiveCount).and_then(|count| count.parse().ok()).unwrap_or(0),
        body: message.body().unwrap_or_default().to_owned(),
    })
}
