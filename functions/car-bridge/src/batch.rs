//! Handles an SQS batch of one of the two queues and builds the partial batch response: SQS redelivers exactly the messages that are to be
//! retried.

use std::collections::{BTreeMap, BTreeSet};

use crate::dispatch::{CarBridge, MessageOutcome, RetryableError};
use crate::hops::MAX_HOPS;
use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse};
use domain::event::Fact;
use domain::id::PrId;
use jiff::{SignedDuration, Timestamp};
use platform::publish::queue_message::{QueueMessage, Task};
use platform::publish::visibility::{ReturnedMessage, retry_delay};
use platform::publish::{Publisher, TRACE_ATTRIBUTE};
use platform::store::Store;
use platform::telemetry::{InvocationIds, LogRecord, MetricLog};

/// No message is started with less than this left before Lambda ends the invocation: each message makes several calls to GitHub,
/// Jenkins and AWS, and each call has its own timeout.
const RESERVE: SignedDuration = SignedDuration::from_secs(60);

/// A message as received: its SQS id, the same in every delivery, and its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    pub id: &'a str,
    pub body: &'a str,
    /// The trace of the invocation that sent it.
    pub trace: Option<&'a str>,
}

/// What became of a message; without a result there was no time left to start it.
pub type MessageResult = Option<Result<MessageOutcome, RetryableError>>;

/// Handles the messages of a batch. Those that failed, or for which there is no time left, return to the queue.
pub async fn handle<S: Store, O: Publisher>(
    bridge: &CarBridge<S, O>,
    batch: &SqsEvent,
    log: &MetricLog,
    now: impl Fn() -> Timestamp,
    deadline: Timestamp,
) -> SqsBatchResponse {
    let messages: Vec<Message<'_>> = batch
        .records
        .iter()
        .map(|record| Message {
            id: record.message_id.as_deref().unwrap_or_default(),
            body: record.body.as_deref().unwrap_or_default(),
            trace: record.message_attributes.get(TRACE_ATTRIBUTE).and_then(|trace| trace.string_value.as_deref()),
        })
        .collect();
    let results = handle_messages(bridge, &messages, log, now, deadline).await;
    let mut response = SqsBatchResponse::default();
    for (message, result) in messages.iter().zip(results) {
        if !matches!(result, Some(Ok(_))) {
            let mut failure = BatchItemFailure::default();
            failure.item_identifier = message.id.to_owned();
            response.batch_item_failures.push(failure);
        }
    }
    response
}

/// The messages that return to the queue, and when they are visible again: the sooner, the less often they were received.
pub fn returned(batch: &SqsEvent, response: &SqsBatchResponse) -> Vec<ReturnedMessage> {
    let failed: BTreeSet<&str> =
        response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    let is_returned = |record: &&SqsMessage| record.message_id.as_deref().is_some_and(|id| failed.contains(id));
    let message = |record: &SqsMessage| {
        let receives = record.attributes.get("ApproximateReceiveCount").and_then(|count| count.parse().ok());
        Some(ReturnedMessage {
            receipt_handle: record.receipt_handle.clone()?,
            queue_arn: record.event_source_arn.clone()?,
            visible_in: retry_delay(receives.unwrap_or(1)),
        })
    };
    batch.records.iter().filter(is_returned).filter_map(message).collect()
}

/// Handles messages by rank, and those of one rank in order; facts of one pull request together. Returns one result per message, in
/// the order of the messages.
pub async fn handle_messages<S: Store, O: Publisher>(
    bridge: &CarBridge<S, O>,
    messages: &[Message<'_>],
    log: &MetricLog,
    now: impl Fn() -> Timestamp,
    deadline: Timestamp,
) -> Vec<MessageResult> {
    let mut results: Vec<MessageResult> = messages.iter().map(|_| None).collect();
    for group in in_order(messages) {
        let started_at = now();
        if deadline.duration_since(started_at) < RESERVE {
            continue;
        }
        let handled = match &group {
            MessageGroup::Single(at) => {
                let message = messages[*at];
                vec![(*at, ids_of(message).scope(bridge.handle(message.id, message.body)).await)]
            }
            MessageGroup::Facts(facts) => apply_facts(bridge, facts).await,
        };
        for (at, result) in handled {
            ids_of(messages[at]).scope(async { log.write(&line(messages[at], &result, started_at, now())) }).await;
            results[at] = Some(result);
        }
    }
    results
}

/// The ids on the log lines of a message.
fn ids_of(message: Message<'_>) -> InvocationIds {
    InvocationIds::current().unwrap_or_default().in_trace(message.trace)
}

/// Messages that are handled together, by their positions in the batch.
enum MessageGroup {
    Single(usize),
    /// Deferred facts of one pull request.
    Facts(Vec<(usize, Fact)>),
}

async fn apply_facts<S: Store, O: Publisher>(
    bridge: &CarBridge<S, O>,
    facts: &[(usize, Fact)],
) -> Vec<(usize, Result<MessageOutcome, RetryableError>)> {
    let (positions, facts): (Vec<usize>, Vec<Fact>) = facts.iter().cloned().unzip();
    match Box::pin(bridge.apply_deferred_facts(&facts)).await {
        Ok(outcomes) => positions.into_iter().zip(outcomes.into_iter().map(Ok)).collect(),
        // Some may be applied; they are recognised when they are delivered again.
        Err(error) => positions.into_iter().map(|at| (at, Err(error.clone()))).collect(),
    }
}

/// The order in which messages are handled: facts first, because a command that follows them needs them; then by rank.
fn in_order(messages: &[Message<'_>]) -> Vec<MessageGroup> {
    let mut facts: BTreeMap<PrId, Vec<(usize, Fact)>> = BTreeMap::new();
    let mut others: Vec<usize> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match QueueMessage::from_json(message.body) {
            Ok(QueueMessage::Fact(fact)) => facts.entry(fact.pr.clone()).or_default().push((at, *fact)),
            Ok(QueueMessage::Command(_) | QueueMessage::Task(_)) | Err(_) => others.push(at),
        }
    }
    others.sort_by_cached_key(|at| rank(messages[*at].body));
    let others = others.into_iter().map(MessageGroup::Single);
    facts.into_values().map(MessageGroup::Facts).chain(others).collect()
}

/// Messages of a lower rank are handled first. Writes to GitHub are a second apart, so a person's command does not wait for the writes
/// of Suture's own messages, and nobody waits for a check run.
pub fn rank(body: &str) -> u8 {
    match QueueMessage::from_json(body) {
        Ok(QueueMessage::Fact(_)) => 0,
        Ok(QueueMessage::Command(command)) if command.source.is_human() => 0,
        Ok(QueueMessage::Task(Task::CheckRun { .. })) => 2,
        Ok(QueueMessage::Command(_) | QueueMessage::Task(_)) | Err(_) => 1,
    }
}

/// The log record of a message: its content, the outcome and the reason.
fn line(
    Message { id, body, .. }: Message<'_>,
    handled: &Result<MessageOutcome, RetryableError>,
    started_at: Timestamp,
    now: Timestamp,
) -> LogRecord {
    let (outcome, why) = match handled {
        Ok(MessageOutcome::Done(what)) => ("done", what.clone()),
        Ok(MessageOutcome::Noop(why)) => ("noop", why.clone()),
        Ok(MessageOutcome::Deferred(why)) => ("deferred", why.clone()),
        Ok(MessageOutcome::Rejected(why)) => ("refused", why.clone()),
        Ok(MessageOutcome::Failed(why)) => ("failed", why.clone()),
        Err(error) => ("retried", error.to_string()),
    };
    let took = u64::try_from(now.duration_since(started_at).as_millis()).unwrap_or(0);
    let line = about(LogRecord::new("car-bridge", now), body);
    // Metric (R-OPS-5): pull requests not requested because the same fix has an open one or was requested before.
    let asked = QueueMessage::from_json(body).is_ok_and(|message| message.asks_for_pull_request());
    let skipped = asked && matches!(handled, Ok(MessageOutcome::Noop(_) | MessageOutcome::Rejected(_)));
    let line = if skipped { line.count("pr_create_skipped", 1) } else { line };
    let at_limit = QueueMessage::hops(body) >= MAX_HOPS;
    let line = if at_limit { line.count("hop_limit", 1) } else { line };
    let level = match handled {
        Ok(_) if at_limit => "WARN",
        Ok(_) => "INFO",
        Err(error) if error.is_ordinary() => "WARN",
        Err(_) => "ERROR",
    };
    line.with("level", level)
        .with("message", id)
        .with("outcome", outcome)
        .with("reason", why)
        .count(outcome, 1)
        .duration_ms(took)
}

/// Adds the ids that connect this line to those of the other functions: event, command, run.
fn about(line: LogRecord, body: &str) -> LogRecord {
    match QueueMessage::from_json(body) {
        Ok(QueueMessage::Command(command)) => line
            .with("repo", command.repo.as_str())
            .with("pr", command.pr_number)
            .with("command", command.command.name())
            .with("command_id", command.command_id.as_str())
            .with("run", command.run_id().as_str())
            .with("by", command.requested_by.as_str()),
        Ok(QueueMessage::Fact(fact)) => {
            line.with("repo", fact.pr.repo.as_str()).with("pr", fact.pr.number).with("event", fact.id.as_str())
        }
        Ok(QueueMessage::Task(_)) | Err(_) => line,
    }
}

#[cfg(test)]
mod tests {
    use platform::engine::EngineError;
    use platform::store::StoreError;
    use platform::transport::ApiError;

    use super::*;

    /// Messages that were given back were hidden for 12 minutes, the visibility timeout of the queue.
    #[test]
    fn returned_messages_are_visible_after_30_s_doubling() {
        let mut batch = SqsEvent::default();
        for (id, receives) in [("m1", "1"), ("m2", "2"), ("m3", "4"), ("done", "1")] {
            let mut message = SqsMessage::default();
            (message.message_id, message.receipt_handle) = (Some(id.to_owned()), Some(format!("receipt-{id}")));
            message.event_source_arn = Some("arn:aws:sqs:eu-west-1:1:commands".to_owned());
            message.attributes.insert("ApproximateReceiveCount".to_owned(), receives.to_owned());
            batch.records.push(message);
        }
        let mut response = SqsBatchResponse::default();
        for id in ["m1", "m2", "m3"] {
            let mut failure = BatchItemFailure::default();
            failure.item_identifier = id.to_owned();
            response.batch_item_failures.push(failure);
        }
        let returned = returned(&batch, &response);
        let shown: Vec<(&str, u64)> =
            returned.iter().map(|message| (message.receipt_handle.as_str(), message.visible_in.as_secs())).collect();
        assert_eq!(shown, [("receipt-m1", 30), ("receipt-m2", 60), ("receipt-m3", 240)]);
    }

    /// A lost lease and a write conflict were logged like a failure, although the next delivery resolves them.
    #[test]
    fn contention_is_logged_as_a_warning() {
        let unreachable =
            |may_have_happened| ApiError::Unavailable { why: "no response".to_owned(), may_have_happened };
        let level = |error: RetryableError| {
            let message = Message { id: "m1", body: "{}", trace: None };
            let line = line(message, &Err(error), Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH).to_json();
            ["INFO", "WARN", "ERROR"].into_iter().find(|level| line.contains(&format!("\"level\":\"{level}\"")))
        };
        for ordinary in [
            RetryableError::Store(StoreError::ConditionFailed(Vec::new())),
            RetryableError::Store(StoreError::TransactionConflict),
            RetryableError::Engine(EngineError::WriteConflict { pr: "acme/app#1".parse().unwrap(), tries: 9 }),
            RetryableError::Engine(EngineError::Store(StoreError::TransactionConflict)),
            RetryableError::Api(unreachable(true)),
            RetryableError::Api(unreachable(false)),
        ] {
            assert_eq!(level(ordinary.clone()), Some("WARN"), "{ordinary}");
        }
        for failure in [
            RetryableError::Store(StoreError::Unavailable("no route".to_owned())),
            RetryableError::Engine(EngineError::Store(StoreError::TooLarge("5 MB".to_owned()))),
            RetryableError::Api(ApiError::Unauthorized { message: "bad key".to_owned() }),
            RetryableError::Publish("no queue".to_owned()),
        ] {
            assert_eq!(level(failure.clone()), Some("ERROR"), "{failure}");
        }
    }
}
