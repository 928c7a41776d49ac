//! Log lines belong together: a delivery can be followed through the webhook function, the queue, the Car Bridge, and back, by the query of
//! docs/operations.md.

use std::collections::{BTreeMap, BTreeSet};

use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage, SqsMessageAttribute};
use fakes::{FakeSettings, Fakes, Fault, NewPullRequest, WebhookDelivery};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use platform::publish::TRACE_ATTRIBUTE;
use platform::telemetry::{InvocationIds, MetricLog};
use serde_json::Value;
use testbed::{FaultStore, RecordingPublisher, TestStore, Testbed};
use tests::lambda::root;
use tests::{Written, acting};
use webhook::github::BotIdentity;
use webhook::signature::SenderSecrets;
use webhook::{WebhookHandler, WebhookSecrets};

type Handler = WebhookHandler<FaultStore<TestStore>, RecordingPublisher>;

async fn deliver(handler: &Handler, testbed: &Testbed, delivery: &WebhookDelivery, ids: InvocationIds) {
    let mut request = Request::builder().method("POST").uri(delivery.target.path());
    for (name, value) in &delivery.headers {
        request = request.header(name, value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let response = ids.scope(handler.handle(&parts, &delivery.body, testbed.now())).await;
    assert_eq!(response.status(), 200, "{}", response.body());
}

/// The Car Bridge handles all messages, each with the trace that SQS would deliver with it.
async fn handle_messages(testbed: &Testbed, log: &MetricLog, trace: &str) {
    while let Some((id, body)) = testbed.publisher.take_message() {
        let mut attribute = SqsMessageAttribute::default();
        attribute.string_value = Some(trace.to_owned());
        let mut message = SqsMessage::default();
        (message.message_id, message.body) = (Some(id), Some(body));
        message.message_attributes.insert(TRACE_ATTRIBUTE.to_owned(), attribute);
        let mut batch = SqsEvent::default();
        batch.records.push(message);
        let ids = InvocationIds::new("bridge-request", Some("Root=1-of-the-bridge"));
        let handled = car_bridge::handle(&testbed.bridge, &batch, log, || testbed.now(), Timestamp::MAX);
        ids.scope(handled).await;
    }
}

/// The fields of the query in operations.md, without CloudWatch's own.
fn queried_fields() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let (_, function) = text.split_once("\nfollow() {").unwrap();
    let (_, query) = function.split_once("insights \"fields ").unwrap();
    let query = query.split("\n}").next().unwrap();
    let (fields, filter) = query.split_once("| filter ").unwrap();
    let filter = filter.split('|').next().unwrap();
    let filtered = filter.split(" or ").map(|one| one.split(" = ").next().unwrap());
    let names = fields.split(',').chain(filtered).map(|name| name.trim().to_owned());
    names.filter(|name| !name.starts_with('@')).collect()
}

#[tokio::test]
async fn one_delivery_can_be_followed_through_webhook_queue_bridge_and_back() {
    let testbed = Testbed::quiet();
    let (written, settings) = (Written::default(), FakeSettings::default());
    let log = || MetricLog::writing_to(written.clone());
    let secrets = |text: &str| SenderSecrets::parse(text).unwrap();
    let (github, jenkins) = (secrets(&settings.webhook_secret), Some(secrets(&settings.jenkins_secret)));
    let senders = WebhookSecrets { github, jenkins, bots: BTreeMap::new() };
    let (store, publisher) = (testbed.store.clone(), testbed.publisher.clone());
    let handler = WebhookHandler::new(store, publisher, acting(), BotIdentity::default(), senders, log());
    let pr = testbed.with(|fakes| fakes.open_pr(NewPullRequest::default()));
    testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, &pr));
    testbed.advance(SignedDuration::from_mins(10));
    testbed.settle().await;

    assert!(testbed.fakes().person_comments(&pr, "maria", "/rebuild").is_some());
    testbed.advance(SignedDuration::from_secs(5));
    let ids = InvocationIds::new("webhook-request", Some("Root=1-of-the-comment;Sampled=0"));
    for delivery in testbed.with(Fakes::take_webhooks) {
        deliver(&handler, &testbed, &delivery, ids.clone()).await;
    }
    handle_messages(&testbed, &log(), "1-of-the-comment").await;
    testbed.advance(SignedDuration::from_hours(1));
    let later = InvocationIds::new("later-request", Some("Root=1-of-the-build"));
    for delivery in testbed.with(Fakes::take_webhooks) {
        deliver(&handler, &testbed, &delivery, later.clone()).await;
    }

    let lines: Vec<Value> = written.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["request_id"].is_string()), "every line has a request id: {lines:#?}");
    let command = lines.iter().find(|line| line["commands"].is_array()).expect("the comment's line");
    assert_eq!(command["trace"], "1-of-the-comment");
    let (delivery, run) = (command["delivery"].as_str().unwrap(), command["run"].as_str().unwrap());
    let followed: Vec<&Value> = lines
        .iter()
        .filter(|line| {
            let is = |field: &str, value: &str| line[field] == value;
            is("delivery", delivery) || is("event", delivery) || is("trace", "1-of-the-comment") || is("run", run)
        })
        .collect();
    let seen: BTreeSet<(&str, &str)> = followed
        .iter()
        .map(|line| (line["function"].as_str().unwrap(), line["request_id"].as_str().unwrap()))
        .collect();
    let expected = [("webhook", "webhook-request"), ("car-bridge", "bridge-request"), ("webhook", "later-request")];
    assert_eq!(seen, BTreeSet::from(expected), "{followed:#?}");
    for field in queried_fields() {
        assert!(followed.iter().any(|line| !line[&field].is_null()), "no line has `{field}`: {followed:#?}");
    }
}
