//! Translates a batch of the command queue into messages for the Car Bridge, and its answers into a partial batch response:
//! exactly the messages that must come back do.

use crate::dispatch::{Again, Bridge, Handled};
use aws_lambda_events::event::sqs::SqsEvent;
use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse};
use jiff::{SignedDuration, Timestamp};
use platform::outlets::Outlets;
use platform::outlets::message::Message;
use platform::store::Store;
use platform::telemetry::{Line, Log};

/// No message is begun when less than this is left before Lambda ends the invocation: one that is begun makes several calls to GitHub,
/// Jenkins and AWS, each with a time limit of its own.
const RESERVE: SignedDuration = SignedDuration::from_secs(60);

/// Handles a batch, one message after the other: two of one repository must not overtake each other for nothing. What there is no
/// time for goes back to the queue.
pub async fn handle<S: Store, O: Outlets>(
    bridge: &Bridge<S, O>,
    batch: SqsEvent,
    log: &Log,
    now: impl Fn() -> Timestamp,
    deadline: Timestamp,
) -> SqsBatchResponse {
    let mut response = SqsBatchResponse::default();
    for message in batch.records {
        let id = message.message_id.unwrap_or_default();
        let body = message.body.as_deref().unwrap_or_default();
        let in_time = deadline.duration_since(now()) >= RESERVE;
        if !in_time || handle_one(bridge, &id, body, log, &now).await.is_err() {
            let mut failure = BatchItemFailure::default();
            failure.item_identifier = id;
            response.batch_item_failures.push(failure);
        }
    }
    response
}

/// Handles one message, and says so in the log.
pub async fn handle_one<S: Store, O: Outlets>(
    bridge: &Bridge<S, O>,
    id: &str,
    body: &str,
    log: &Log,
    now: impl Fn() -> Timestamp,
) -> Result<Handled, Again> {
    let begun = now();
    let handled = bridge.handle(id, body).await;
    log.write(&line(id, body, &handled, begun, now()));
    handled
}

/// One line for each message: what it was, what became of it, and why.
fn line(id: &str, body: &str, handled: &Result<Handled, Again>, begun: Timestamp, now: Timestamp) -> Line {
    let (word, why) = match handled {
        Ok(Handled::Done(what)) => ("done", what.clone()),
        Ok(Handled::Nothing(why)) => ("nothing", why.clone()),
        Ok(Handled::Waits(why)) => ("waits", why.clone()),
        Ok(Handled::Refused(why)) => ("refused", why.clone()),
        Ok(Handled::Failed(why)) => ("failed", why.clone()),
        Err(again) => ("again", again.to_string()),
    };
    let took = u64::try_from(now.duration_since(begun).as_millis()).unwrap_or(0);
    let line = about(Line::new("car-bridge", now), body);
    // Counted (R-OPS-5): a pull request that would have been a second one for the same fix, or that was asked for before.
    let asked = Message::from_json(body).is_ok_and(|message| message.asks_for_pull_request());
    let skipped = asked && matches!(handled, Ok(Handled::Nothing(_) | Handled::Refused(_)));
    let line = if skipped { line.count("pr_create_skipped", 1) } else { line };
    line.with("level", if handled.is_err() { "ERROR" } else { "INFO" })
        .with("message", id)
        .with("outcome", word)
        .with("reason", why)
        .count(word, 1)
        .took_ms(took)
}

/// What ties the line to those of the other functions: the delivery it came with, the command, the run.
fn about(line: Line, body: &str) -> Line {
    match Message::from_json(body) {
        Ok(Message::Command(command)) => line
            .with("repo", command.repo.as_str())
            .with("pr", command.pr_number)
            .with("command", command.command.name())
            .with("command_id", command.command_id.as_str())
            .with("run", command.run().as_str())
            .with("by", command.requested_by.as_str()),
        Ok(Message::Fact(fact)) => {
            line.with("repo", fact.pr.repo.as_str()).with("pr", fact.pr.number).with("event", fact.id.as_str())
        }
        Ok(Message::Chore(_)) | Err(_) => line,
    }
}
