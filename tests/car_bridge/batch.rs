//! SQS batches: only messages that must be retried are returned.

use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use jiff::{SignedDuration, Timestamp};
use platform::publish::queue_message::{QueueMessage, Task};
use platform::telemetry::MetricLog;
use testbed::Testbed;

/// All 1,024 combinations of ten valid or invalid messages.
#[tokio::test]
async fn batch_returns_only_failed_messages() {
    let testbed = Testbed::quiet();
    let good = QueueMessage::Task(Task::Redeliver { delivery: 1 }).to_json().unwrap();
    let log = MetricLog::writing_to(std::io::sink());
    for mask in 0..1024_u32 {
        let mut batch = SqsEvent::default();
        for n in 0..10 {
            let mut message = SqsMessage::default();
            message.message_id = Some(format!("m{n}"));
            message.body = Some(if mask & (1 << n) == 0 { good.clone() } else { "poison".to_owned() });
            batch.records.push(message);
        }
        let response = car_bridge::handle(&testbed.bridge, batch, &log, || testbed.now(), Timestamp::MAX).await;
        let back: Vec<String> =
            response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect();
        let expected: Vec<String> = (0..10).filter(|n| mask & (1 << n) != 0).map(|n| format!("m{n}")).collect();
        assert_eq!(back, expected, "{mask:b}");
    }
}

/// The log says why a message is invalid, for the operator of the dead-letter queue.
#[tokio::test]
async fn invalid_message_is_logged_with_its_reason() {
    let testbed = Testbed::quiet();
    let written = tests::Written::default();
    let mut message = SqsMessage::default();
    message.message_id = Some("m1".to_owned());
    message.body = Some(r#"{"type":"poem"}"#.to_owned());
    let mut batch = SqsEvent::default();
    batch.records.push(message);
    car_bridge::handle(
        &testbed.bridge,
        batch,
        &MetricLog::writing_to(written.clone()),
        || testbed.now(),
        Timestamp::MAX,
    )
    .await;
    let line = written.text();
    assert!(
        line.contains(r#""outcome":"retried""#) && line.contains("this build knows `command`, `fact` and `task`"),
        "{line}"
    );
}

/// The clock advances 50 s per read, so only the first message is handled before the deadline.
#[tokio::test]
async fn messages_past_the_deadline_return_to_the_queue() {
    let testbed = Testbed::quiet();
    let good = QueueMessage::Task(Task::Redeliver { delivery: 1 }).to_json().unwrap();
    let mut batch = SqsEvent::default();
    for n in 0..3 {
        let mut message = SqsMessage::default();
        (message.message_id, message.body) = (Some(format!("m{n}")), Some(good.clone()));
        batch.records.push(message);
    }
    let (started, reads) = (testbed.now(), std::cell::Cell::new(0));
    let now = || {
        reads.set(reads.get() + 1);
        started + SignedDuration::from_secs(50 * (reads.get() - 1))
    };
    let written = tests::Written::default();
    let deadline = started + SignedDuration::from_secs(110);
    let response =
        car_bridge::handle(&testbed.bridge, batch, &MetricLog::writing_to(written.clone()), now, deadline).await;
    let back: Vec<&str> = response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    assert_eq!(back, ["m1", "m2"]);
    assert_eq!(written.text().lines().count(), 1, "{}", written.text());
}
