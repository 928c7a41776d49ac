//! The dead-letter queue on SQS.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName as Attribute, QueueAttributeName};
use jiff::Timestamp;

use super::dead_letters::{DeadLetter, DeadLetters, DlqError};

/// SQS' limit for one receive call.
const BATCH: i32 = 10;
/// Most receive calls for a listing; each returns an arbitrary part of the queue.
const MAX_RECEIVES: usize = 6;
/// Most messages per redrive; larger queues need several.
const MAX_REDRIVEN: usize = 500;
/// Time limit of a redrive; the admin function times out after 30 seconds.
const REDRIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// Visibility timeout of messages that are being redriven, in seconds.
const VISIBILITY_TIMEOUT_SECS: i32 = 30;

/// A dead-letter queue on SQS, and the queue its messages came from.
#[derive(Debug, Clone)]
pub struct SqsDlq {
    client: Client,
    dead: String,
    queue: String,
}

fn unavailable<E: std::error::Error>(error: E) -> DlqError {
    DlqError::Unavailable(DisplayErrorContext(error).to_string())
}

impl SqsDlq {
    /// The dead-letter queue, and the queue its messages came from.
    pub fn new(config: &aws_config::SdkConfig, dead: String, queue: String) -> Self {
        Self { client: Client::new(config), dead, queue }
    }

    pub(super) async fn count(&self) -> Result<u64, DlqError> {
        let wanted = QueueAttributeName::ApproximateNumberOfMessages;
        let request = self.client.get_queue_attributes().queue_url(&self.dead).attribute_names(wanted.clone());
        let response = request.send().await.map_err(unavailable)?;
        let count = response.attributes().and_then(|attributes| attributes.get(&wanted));
        Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    async fn receive(&self, visibility_secs: i32) -> Result<Vec<Received>, DlqError> {
        let request = self.client.receive_message().queue_url(&self.dead).max_number_of_messages(BATCH);
        let request = request.visibility_timeout(visibility_secs).wait_time_seconds(0);
        let request = request.message_system_attribute_names(Attribute::All);
        Ok(request.send().await.map_err(unavailable)?.messages.unwrap_or_default())
    }

    pub(super) async fn peek(&self) -> Result<DeadLetters, DlqError> {
        let mut found: BTreeMap<String, DeadLetter> = BTreeMap::new();
        for _ in 0..MAX_RECEIVES {
            let before = found.len();
            // A visibility timeout of 0 leaves the message available to others.
            let batch = self.receive(0).await?;
            found.extend(batch.into_iter().filter_map(dead).map(|dead| (dead.id.clone(), dead)));
            if found.len() == before {
                break;
            }
        }
        let approximate_count = self.count().await?.max(found.len() as u64);
        let mut messages: Vec<DeadLetter> = found.into_values().collect();
        messages.sort_by_key(|dead| dead.sent_at);
        Ok(DeadLetters { messages, approximate_count })
    }

    pub(super) async fn redrive(&self) -> Result<u64, DlqError> {
        let deadline = Instant::now() + REDRIVE_TIMEOUT;
        let mut moved = 0;
        while moved < MAX_REDRIVEN && Instant::now() < deadline {
            let batch = self.receive(VISIBILITY_TIMEOUT_SECS).await?;
            if batch.is_empty() {
                break;
            }
            for message in batch {
                let (Some(body), Some(handle)) = (message.body(), message.receipt_handle()) else { continue };
                let group =
                    message.attributes().and_then(|attributes| attributes.get(&Attribute::MessageGroupId)).cloned();
                let request = self.client.send_message().queue_url(&self.queue).message_body(body);
                request.set_message_group_id(group).send().await.map_err(unavailable)?;
                // If the delete fails, a later redrive sends the message again.
                let delete = self.client.delete_message().queue_url(&self.dead).receipt_handle(handle);
                delete.send().await.map_err(unavailable)?;
                moved += 1;
            }
        }
        Ok(moved as u64)
    }
}

fn dead(message: Received) -> Option<DeadLetter> {
    let attribute = |name: Attribute| message.attributes().and_then(|attributes| attributes.get(&name)).cloned();
    let sent_at = attribute(Attribute::SentTimestamp).and_then(|ms| ms.parse().ok());
    Some(DeadLetter {
        id: message.message_id()?.to_owned(),
        sent_at: sent_at.and_then(|ms| Timestamp::from_millisecond(ms).ok()),
        receive_count: attribute(Attribute::ApproximateReceiveCount).and_then(|count| count.parse().ok()).unwrap_or(0),
        body: message.body().unwrap_or_default().to_owned(),
    })
}
