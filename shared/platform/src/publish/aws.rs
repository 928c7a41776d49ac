//! The publisher on AWS: SQS for the Car Bridge, EventBridge for bots and the reconciler, SNS for notices. Batch responses have a result
//! per entry; an entry without a positive result counts as not sent.

use std::collections::HashMap;

use aws_sdk_eventbridge::error::DisplayErrorContext;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use domain::bus::BUS_SOURCE;

use super::queue_message::QueueName;
use super::{Destination, OutboundMessage, PublishError, Publisher, TRACE_ATTRIBUTE};
use crate::telemetry::InvocationIds;

/// The batch limit of SQS and EventBridge.
const BATCH: usize = 10;
/// SQS' limit for a delay, in seconds.
const MAX_DELAY_SECS: u64 = 900;

/// The queues that the Car Bridge reads.
#[derive(Debug, Clone)]
pub struct QueueUrls {
    pub commands: String,
    pub facts: String,
}

impl QueueUrls {
    pub fn url(&self, queue: QueueName) -> &str {
        match queue {
            QueueName::Commands => &self.commands,
            QueueName::Facts => &self.facts,
        }
    }
}

#[derive(Debug, Clone)]
pub struct AwsTargets {
    pub queues: QueueUrls,
    pub bus: String,
    /// The topic for notices; without one they stay in the outbox, and a warning is logged.
    pub topic_arn: Option<String>,
}

/// SQS, EventBridge and SNS.
#[derive(Debug, Clone)]
pub struct AwsPublisher {
    queue: aws_sdk_sqs::Client,
    bus: aws_sdk_eventbridge::Client,
    topic: aws_sdk_sns::Client,
    addresses: AwsTargets,
}

type PublishResults = Vec<(usize, Result<(), PublishError>)>;

impl AwsPublisher {
    pub fn new(config: &aws_config::SdkConfig, addresses: AwsTargets) -> Self {
        Self {
            queue: aws_sdk_sqs::Client::new(config),
            bus: aws_sdk_eventbridge::Client::new(config),
            topic: aws_sdk_sns::Client::new(config),
            addresses,
        }
    }

    async fn send_to_queue(
        &self,
        queue: QueueName,
        entries: Vec<(usize, SendMessageBatchRequestEntry)>,
    ) -> PublishResults {
        let mut results = Vec::new();
        for chunk in entries.chunks(BATCH) {
            let entries = chunk.iter().map(|(_, entry)| entry.clone()).collect();
            let request = self.queue.send_message_batch().queue_url(self.addresses.queues.url(queue));
            let sent = request.set_entries(Some(entries)).send().await;
            results.extend(chunk.iter().map(|(at, entry)| {
                let result = match &sent {
                    Err(error) => Err(PublishError(format!("SQS: {}", DisplayErrorContext(error)))),
                    Ok(sent) if sent.successful().iter().any(|sent| sent.id() == entry.id()) => Ok(()),
                    Ok(sent) => {
                        let why = sent.failed().iter().find(|failed| failed.id() == entry.id());
                        let why = why.map_or("no result", |failed| failed.message().unwrap_or(failed.code()));
                        Err(PublishError(format!("SQS: {why}")))
                    }
                };
                (*at, result)
            }));
        }
        results
    }

    async fn send_to_bus(&self, entries: Vec<(usize, PutEventsRequestEntry)>) -> PublishResults {
        let mut results = Vec::new();
        for chunk in entries.chunks(BATCH) {
            let events = chunk.iter().map(|(_, entry)| entry.clone()).collect();
            let sent = self.bus.put_events().set_entries(Some(events)).send().await;
            results.extend(chunk.iter().enumerate().map(|(n, (at, _))| {
                let result = match &sent {
                    Err(error) => Err(PublishError(format!("EventBridge: {}", DisplayErrorContext(error)))),
                    // Results are in the order of the entries; a failed one has a code instead of an id.
                    Ok(sent) => match sent.entries().get(n) {
                        Some(entry) if entry.event_id().is_some() && entry.error_code().is_none() => Ok(()),
                        Some(failed) => {
                            let why = failed.error_message().or(failed.error_code()).unwrap_or("no reason given");
                            Err(PublishError(format!("EventBridge: {why}")))
                        }
                        None => Err(PublishError("EventBridge: no result".to_owned())),
                    },
                };
                (*at, result)
            }));
        }
        results
    }

    async fn send_to_topic(&self, notice: &domain::text::Notice) -> Result<(), PublishError> {
        let Some(topic) = &self.addresses.topic_arn else {
            return Err(PublishError("no topic for notices is configured: set SUTURE_ALERTS_TOPIC_ARN".to_owned()));
        };
        let request = self.topic.publish().topic_arn(topic).subject(&notice.subject).message(&notice.body);
        let sent = request.send().await;
        sent.map(|_| ()).map_err(|error| PublishError(format!("SNS: {}", DisplayErrorContext(error))))
    }
}

impl Publisher for AwsPublisher {
    async fn publish(&self, outbound: &[OutboundMessage]) -> Vec<Result<(), PublishError>> {
        let (mut commands, mut facts) = (Vec::new(), Vec::new());
        let mut events = Vec::new();
        let mut results: PublishResults = Vec::new();
        for (at, item) in outbound.iter().enumerate() {
            match &item.destination {
                Destination::Queue { message, repo, delay, hops } => {
                    let delay = i32::try_from(delay.as_secs().min(MAX_DELAY_SECS)).unwrap_or(0);
                    let body = message.to_json_after(*hops).map_err(|error| PublishError(error.to_string()));
                    let entry = body.and_then(|body| {
                        let entry = SendMessageBatchRequestEntry::builder().id(at.to_string()).message_body(body);
                        // On a standard queue a message group does not order messages; it makes repositories share the queue fairly.
                        let entry = entry.message_group_id(group(repo.as_str())).delay_seconds(delay);
                        let entry = entry.set_message_attributes(trace_attribute()?);
                        entry.build().map_err(|error| PublishError(error.to_string()))
                    });
                    match entry {
                        Ok(entry) => match message.queue() {
                            QueueName::Commands => commands.push((at, entry)),
                            QueueName::Facts => facts.push((at, entry)),
                        },
                        Err(error) => results.push((at, Err(error))),
                    }
                }
                Destination::Bus { detail_type, detail } => {
                    let entry = PutEventsRequestEntry::builder().event_bus_name(&self.addresses.bus);
                    let entry = entry.source(BUS_SOURCE).detail_type(detail_type.name()).detail(detail);
                    events.push((at, entry.build()));
                }
                Destination::Notice(notice) => results.push((at, self.send_to_topic(notice).await)),
            }
        }
        results.extend(self.send_to_queue(QueueName::Commands, commands).await);
        results.extend(self.send_to_queue(QueueName::Facts, facts).await);
        results.extend(self.send_to_bus(events).await);
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// The trace that the message belongs to. It is an attribute of our own: Lambda counts in its own header how often a message goes round.
fn trace_attribute() -> Result<Option<HashMap<String, MessageAttributeValue>>, PublishError> {
    let Some(trace) = InvocationIds::current().and_then(|ids| ids.trace) else { return Ok(None) };
    let value = MessageAttributeValue::builder().data_type("String").string_value(trace).build();
    let value = value.map_err(|error| PublishError(error.to_string()))?;
    Ok(Some(HashMap::from([(TRACE_ATTRIBUTE.to_owned(), value)])))
}

/// A message group id has at most 128 letters, digits and punctuation characters; a repository name fits except for its length.
fn group(repo: &str) -> String {
    repo.chars().take(128).collect()
}
