//! Handles an SQS batch of the command queue and builds the partial batch response: SQS redelivers exactly the messages that are to be
//! retried.

use crate::dispatch::{CarBridge, MessageOutcome, RetryableError};
use aws_lambda_events::event::sqs::SqsEvent;
use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse};
use jiff::{SignedDuration, Timestamp};
use platform::publish::queue_message::{QueueMessage, Task};
use platform::publish::{Publisher, TRACE_ATTRIBUTE};
use platform::store::Store;
use platform::telemetry::{InvocationIds, LogRecord, MetricLog};

/// No message is started with less than this left before Lambda ends the invocation: each message makes several calls to GitHub,
/// Jenkins and AWS, and each call has its own timeout.
const RESERVE: SignedDuration = SignedDuration::from_secs(60);

/// Handles the messages of a batch by rank, and those of one rank in order. Messages for which there is no time left return to the queue.
pub async fn handle<S: Store, O: Publisher>(
    bridge: &CarBridge<S, O>,
    mut batch: SqsEvent,
    log: &MetricLog,
    now: impl Fn() -> Timestamp,
    deadline: Timestamp,
) -> SqsBatchResponse {
    let mut response = SqsBatchResponse::default();
    batch.records.sort_by_cached_key(|message| rank(message.body.as_deref().unwrap_or_default()));
    for message in batch.records {
        let id = message.message_id.unwrap_or_default();
        let body = message.body.as_deref().unwrap_or_default();
        let in_time = deadline.duration_since(now()) >= RESERVE;
        let trace = message.message_attributes.get(TRACE_ATTRIBUTE).and_then(|trace| trace.string_value.as_deref());
        let ids = InvocationIds::current().unwrap_or_default().in_trace(trace);
        if !in_time || ids.scope(handle_one(bridge, &id, body, log, &now)).await.is_err() {
            let mut failure = BatchItemFailure::default();
            failure.item_identifier = id;
            response.batch_item_failures.push(failure);
        }
    }
    response
}

/// Messages of a lower rank are handled first. Writes to GitHub are a second apart, so a person's command does not wait for the writes
/// of Suture's own messages, and nobody waits for a check run. Facts make no such writes, and a command that follows them needs them.
pub fn rank(body: &str) -> u8 {
    match QueueMessage::from_json(body) {
        Ok(QueueMessage::Fact(_)) => 0,
        Ok(QueueMessage::Command(command)) if command.source.is_human() => 0,
        Ok(QueueMessage::Task(Task::CheckRun { .. })) => 2,
        Ok(QueueMessage::Command(_) | QueueMessage::Task(_)) | Err(_) => 1,
    }
}

/// Handles one message and writes its log record.
pub async fn handle_one<S: Store, O: Publisher>(
    bridge: &CarBridge<S, O>,
    id: &str,
    body: &str,
    log: &MetricLog,
    now: impl Fn() -> Timestamp,
) -> Result<MessageOutcome, RetryableError> {
    let started_at = now();
    let handled = bridge.handle(id, body).await;
    log.write(&line(id, body, &handled, started_at, now()));
    handled
}

/// The log record of a message: its content, the outcome and the reason.
fn line(
    id: &str,
    body: &str,
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
    let level = match handled {
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

    /// A lost lease and a write conflict were logged like a failure, although the next delivery resolves them.
    #[test]
    fn contention_is_logged_as_a_warning() {
        let unreachable =
            |may_have_happened| ApiError::Unavailable { why: "no response".to_owned(), may_have_happened };
        let level = |error: RetryableError| {
            let line = line("m1", "{}", &Err(error), Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH).to_json();
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
