//! Gives messages back to their SQS queue, so that they are received again soon. Otherwise SQS hides them until the visibility timeout of
//! the queue has passed, which is six times as long as a batch may take.

use std::time::Duration;

/// The delay after the first receive; it doubles with each further one. The last attempt thus comes after the lease of a crashed worker
/// has expired.
const FIRST_DELAY: Duration = Duration::from_secs(30);
/// The visibility timeout of the queues.
const MAX_DELAY: Duration = Duration::from_secs(720);

/// How long a message that was received this often is hidden before it is received again.
pub fn retry_delay(receives: u32) -> Duration {
    FIRST_DELAY.saturating_mul(1 << receives.saturating_sub(1).min(8)).min(MAX_DELAY)
}

/// A message that returns to its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnedMessage {
    pub receipt_handle: String,
    pub queue_arn: String,
    pub visible_in: Duration,
}

#[cfg(feature = "aws")]
pub use sqs::SqsVisibility;

#[cfg(feature = "aws")]
mod sqs {
    use aws_sdk_sqs::Client;
    use aws_sdk_sqs::error::DisplayErrorContext;
    use aws_sdk_sqs::types::ChangeMessageVisibilityBatchRequestEntry as Entry;
    use tracing::warn;

    use super::ReturnedMessage;
    use crate::publish::aws::QueueUrls;
    use crate::publish::queue_message::QueueName;

    /// SQS' limit for one call.
    const BATCH: usize = 10;

    /// Changes the visibility of messages on SQS.
    #[derive(Debug, Clone)]
    pub struct SqsVisibility {
        client: Client,
        queues: QueueUrls,
    }

    impl SqsVisibility {
        pub fn new(config: &aws_config::SdkConfig, queues: QueueUrls) -> Self {
            Self { client: Client::new(config), queues }
        }

        /// Makes messages visible again after their delay. Best effort: after a failure the visibility timeout of the queue applies.
        pub async fn give_back(&self, messages: &[ReturnedMessage]) {
            for queue in QueueName::ALL {
                let url = self.queues.url(queue);
                let of_queue: Vec<&ReturnedMessage> =
                    messages.iter().filter(|message| is_queue(url, &message.queue_arn)).collect();
                for chunk in of_queue.chunks(BATCH) {
                    self.change(url, chunk).await;
                }
            }
        }

        async fn change(&self, url: &str, messages: &[&ReturnedMessage]) {
            let entry = |(at, message): (usize, &&ReturnedMessage)| {
                let secs = i32::try_from(message.visible_in.as_secs()).unwrap_or(i32::MAX);
                let entry = Entry::builder().id(at.to_string()).receipt_handle(&message.receipt_handle);
                entry.visibility_timeout(secs).build().ok()
            };
            let entries = messages.iter().enumerate().filter_map(entry).collect();
            let request = self.client.change_message_visibility_batch().queue_url(url).set_entries(Some(entries));
            match request.send().await {
                Ok(changed) if changed.failed().is_empty() => {}
                Ok(changed) => warn!(failed = changed.failed().len(), "cannot shorten the visibility timeout"),
                Err(error) => {
                    warn!(error = %DisplayErrorContext(error), "cannot shorten the visibility timeout");
                }
            }
        }
    }

    /// Whether a queue URL and an ARN name the same queue: both end in its name.
    fn is_queue(url: &str, arn: &str) -> bool {
        url.rsplit('/').next() == arn.rsplit(':').next()
    }
}
