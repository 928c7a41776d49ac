//! SQS batches: only messages that must be retried are returned.

use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use car_bridge::MessageOutcome;
use domain::event::FactKind;
use domain::signals::CheckVerdict;
use fakes::{AuditedAction, NewPullRequest};
use jiff::{SignedDuration, Timestamp};
use platform::publish::queue_message::{QueueMessage, Task};
use platform::store::Store as _;
use platform::telemetry::MetricLog;
use testbed::{Testbed, pr_id};

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
        let response = car_bridge::handle(&testbed.bridge, &batch, &log, || testbed.now(), Timestamp::MAX).await;
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
        &batch,
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
        car_bridge::handle(&testbed.bridge, &batch, &MetricLog::writing_to(written.clone()), now, deadline).await;
    let back: Vec<&str> = response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    assert_eq!(back, ["m1", "m2"]);
    assert_eq!(written.text().lines().count(), 1, "{}", written.text());
}

fn batch_of(messages: Vec<(String, String)>) -> SqsEvent {
    let mut batch = SqsEvent::default();
    for (id, body) in messages {
        let mut message = SqsMessage::default();
        (message.message_id, message.body) = (Some(id), Some(body));
        batch.records.push(message);
    }
    batch
}

const WITH_CHECK_RUNS: &str = "mode = \"act\"\nlimits.webhooks_per_minute_per_repo = 1000\n[check_run]\nenabled = true";

/// Ten pull requests were opened at once; `/status` was answered after their ten check runs, 12 seconds later.
#[tokio::test]
async fn status_is_answered_before_check_runs_are_updated() {
    let testbed = Testbed::as_app(WITH_CHECK_RUNS);
    let mut pr = None;
    for _ in 0..10 {
        pr = Some(testbed.open_and_deliver(NewPullRequest::default()).await);
    }
    testbed.fakes().person_comments(&pr.unwrap(), "maria", "/status");
    testbed.advance(SignedDuration::from_secs(3));
    testbed.deliver_webhooks().await;
    let messages: Vec<(String, String)> = std::iter::from_fn(|| testbed.publisher.take_message()).collect();
    let status = messages.iter().position(|(_, body)| body.contains("/status")).unwrap();
    assert!(status >= 10, "{messages:?}");
    let (asked_at, log) = (testbed.now(), MetricLog::writing_to(std::io::sink()));
    car_bridge::handle(&testbed.bridge, &batch_of(messages), &log, || testbed.now(), Timestamp::MAX).await;
    let at = |action: AuditedAction| {
        let fakes = testbed.fakes();
        let done: Vec<Timestamp> =
            fakes.audit_by("suture[bot]").filter(|effect| effect.action == action).map(|effect| effect.at).collect();
        done
    };
    let (replies, shown) = (at(AuditedAction::CommentCreated), at(AuditedAction::CheckRunCreated));
    assert_eq!((replies.len(), shown.len()), (1, 10));
    assert!(replies[0] < shown[0], "{replies:?} {shown:?}");
    assert!(replies[0].duration_since(asked_at) <= SignedDuration::from_secs(2), "asked at {asked_at}: {replies:?}");
}

#[tokio::test]
async fn check_run_text_that_is_superseded_makes_no_request() {
    let testbed = Testbed::as_app(WITH_CHECK_RUNS);
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    let old: Vec<(String, String)> = std::iter::from_fn(|| testbed.publisher.take_message()).collect();
    assert_eq!(old.len(), 1, "the check run of the opening: {old:?}");
    testbed.fakes().person_comments(&pr, "maria", "/hold");
    testbed.advance(SignedDuration::from_secs(3));
    testbed.deliver_webhooks().await;
    let (id, body) = testbed.publisher.take_message().unwrap();
    testbed.bridge.handle(&id, &body).await.unwrap();
    testbed.transport.take_count("GitHub");
    let handled = testbed.bridge.handle(&old[0].0, &old[0].1).await.unwrap();
    assert!(matches!(&handled, MessageOutcome::Noop(why) if why.contains("newer text")), "{handled:?}");
    assert_eq!(testbed.transport.take_count("GitHub"), 0);
    testbed.pass(1).await;
    let fakes = testbed.fakes();
    let shown = fakes.check_runs(&pr).iter().find(|run| run.name == "suture").unwrap();
    assert!(shown.summary.contains("maria"), "{}", shown.summary);
}

/// 300 reports at once took 72 seconds: each one was a transaction of its own on the same record.
#[tokio::test]
async fn facts_of_one_pull_request_in_a_batch_are_one_transaction() {
    let testbed = Testbed::quiet();
    let prs = [testbed.open(), testbed.open()];
    testbed.advance(SignedDuration::from_secs(3));
    testbed.deliver_webhooks().await;
    std::iter::from_fn(|| testbed.publisher.take_message()).for_each(drop);
    let mut messages = Vec::new();
    for n in 0..60 {
        let pr = &prs[n % 2];
        let mut fact =
            tests::check(&pr_id(pr), format!("d{n}"), &format!("job-{n}"), CheckVerdict::Running, testbed.now());
        if let FactKind::Check { head, .. } = &mut fact.kind {
            *head = testbed.fakes().pull(pr).unwrap().head().parse().unwrap();
        }
        messages.push((format!("m{n}"), QueueMessage::Fact(Box::new(fact)).to_json().unwrap()));
    }
    messages.push(("poison".to_owned(), "poison".to_owned()));
    let before = testbed.store.usage().usage().requests;
    let written = tests::Written::default();
    let log = MetricLog::writing_to(written.clone());
    let response =
        car_bridge::handle(&testbed.bridge, &batch_of(messages), &log, || testbed.now(), Timestamp::MAX).await;
    let back: Vec<&str> = response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    assert_eq!(back, ["poison"]);
    assert_eq!(testbed.store.usage().usage().requests - before, 4, "a read and a transaction per pull request");
    assert_eq!(written.text().matches(r#""outcome":"done""#).count(), 60, "{}", written.text());
    for pr in &prs {
        let jobs =
            testbed.log(pr).await.iter().filter(|event| event.id.as_str().starts_with('d') && event.hop == 0).count();
        assert_eq!(jobs, 30);
    }
}

/// Lambda drops a message, and its batch, when the function has invoked itself through the queue sixteen times.
#[tokio::test]
async fn message_with_too_many_hops_leaves_its_effects_to_a_sweep() {
    for (hops, sent) in [(0, 1), (11, 1), (12, 0)] {
        let testbed = Testbed::as_app(WITH_CHECK_RUNS);
        let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
        std::iter::from_fn(|| testbed.publisher.take_message()).for_each(drop);
        testbed.fakes().person_comments(&pr, "maria", "/hold");
        testbed.advance(SignedDuration::from_secs(3));
        testbed.deliver_webhooks().await;
        let (id, body) = testbed.publisher.take_message().unwrap();
        let body = QueueMessage::from_json(&body).unwrap().to_json_after(hops).unwrap();
        let (written, now) = (tests::Written::default(), || testbed.now());
        let (message, log) =
            (car_bridge::Message { id: &id, body: &body, trace: None }, MetricLog::writing_to(written.clone()));
        car_bridge::handle_messages(&testbed.bridge, &[message], &log, now, Timestamp::MAX).await;
        let next: Vec<u32> = std::iter::from_fn(|| testbed.publisher.take_message())
            .map(|(_, body)| QueueMessage::hops(&body))
            .collect();
        assert_eq!(next, vec![hops + 1; sent], "after {hops} hops");
        assert_eq!(written.text().contains(r#""hop_limit":1"#), hops == 12, "{}", written.text());
        testbed.advance(SignedDuration::from_mins(2));
        assert_eq!(testbed.sweep_now().await.delivered, u32::from(hops == 12), "after {hops} hops");
        let resent: Vec<(String, String)> = std::iter::from_fn(|| testbed.publisher.take_message()).collect();
        assert!(resent.iter().all(|(_, body)| QueueMessage::hops(body) == 0), "{resent:?}");
    }
}
