//! Publishing to AWS: messages arrive, and a rejected entry is reported as not sent.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeSet;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use aws_sdk_dynamodb::config::Credentials;
use domain::bus::DetailType;
use domain::signals::CheckVerdict;
use domain::text::Notice;
use platform::publish::aws::{AwsPublisher, AwsTargets, QueueUrls};
use platform::publish::dead_letters::{DeadLetterQueue, DeadLetterSource, DlqError};
use platform::publish::queue_message::{InvalidMessage, QueueMessage, Task};
use platform::publish::sqs_dead_letters::{SqsDeadLetterQueue, SqsDlq};
use platform::publish::visibility::{ReturnedMessage, SqsVisibility};
use platform::publish::{Destination, OutboundMessage, Publisher, TRACE_ATTRIBUTE};
use platform::telemetry::InvocationIds;
use tests::local_aws::{Canned, Ministack};
use tests::{check, claim, minute, opened, pr, start};

async fn config(endpoint: &str) -> SdkConfig {
    let config = aws_config::defaults(BehaviorVersion::latest()).region(Region::new("us-east-1"));
    config.credentials_provider(Credentials::for_tests()).endpoint_url(endpoint).load().await
}

fn deferred(id: &str) -> OutboundMessage {
    let message = QueueMessage::Fact(Box::new(check(&pr(1), id, "build", CheckVerdict::Passed, minute(1))));
    OutboundMessage { id: id.to_owned(), destination: Destination::queue(message, pr(1).repo, Duration::ZERO) }
}

fn task() -> OutboundMessage {
    let message = QueueMessage::Task(Task::Redeliver { delivery: 7 });
    let destination = Destination::queue(message, pr(1).repo, Duration::ZERO);
    OutboundMessage { id: "t1".to_owned(), destination }
}

fn reconcile_request() -> OutboundMessage {
    let detail = r#"{"repo":"acme/shop","pr_number":1}"#.to_owned();
    OutboundMessage {
        id: "e1".to_owned(),
        destination: Destination::Bus { detail_type: DetailType::ReconcileRequested, detail },
    }
}

fn notice() -> OutboundMessage {
    let notice = Notice::new("acme/shop#1 needs you".to_owned(), "It is stuck.".to_owned());
    OutboundMessage { id: "e2".to_owned(), destination: Destination::Notice(notice) }
}

async fn queue(client: &aws_sdk_sqs::Client, name: &str) -> (String, String) {
    let url = client.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
    let wanted = aws_sdk_sqs::types::QueueAttributeName::QueueArn;
    let got = client.get_queue_attributes().queue_url(&url).attribute_names(wanted.clone()).send().await.unwrap();
    let arn = got.attributes.unwrap()[&wanted].clone();
    (url, arn)
}

async fn received(client: &aws_sdk_sqs::Client, url: &str, count: usize) -> Vec<String> {
    let mut bodies = Vec::new();
    for _ in 0..20 {
        let request = client.receive_message().queue_url(url).max_number_of_messages(10).wait_time_seconds(1);
        let got = request.send().await.unwrap();
        bodies.extend(got.messages.unwrap_or_default().into_iter().filter_map(|message| message.body));
        if bodies.len() >= count {
            break;
        }
    }
    bodies
}

/// Facts have a queue of their own: they do not wait behind commands, nor commands behind them.
#[tokio::test]
async fn commands_facts_requests_and_notices_are_published() {
    let config = config(Ministack::shared().endpoint()).await;
    let (queues, bus) = (aws_sdk_sqs::Client::new(&config), aws_sdk_eventbridge::Client::new(&config));
    let people = aws_sdk_sns::Client::new(&config);
    let (commands, _) = queue(&queues, "commands").await;
    let (facts_url, _) = queue(&queues, "facts").await;
    let (mail_url, mail_arn) = queue(&queues, "mail").await;
    let (bus_url, bus_arn) = queue(&queues, "bus-messages").await;
    let topic_arn = people.create_topic().name("alerts").send().await.unwrap().topic_arn.unwrap();
    people.subscribe().topic_arn(&topic_arn).protocol("sqs").endpoint(&mail_arn).send().await.unwrap();
    bus.create_event_bus().name("suture").send().await.unwrap();
    let rule = bus.put_rule().name("all").event_bus_name("suture").event_pattern(r#"{"source":["suture"]}"#);
    rule.send().await.unwrap();
    let target = aws_sdk_eventbridge::types::Target::builder().id("q").arn(bus_arn).build().unwrap();
    bus.put_targets().rule("all").event_bus_name("suture").targets(target).send().await.unwrap();

    let urls = QueueUrls { commands: commands.clone(), facts: facts_url.clone() };
    let addresses = AwsTargets { queues: urls, bus: "suture".to_owned(), topic_arn: Some(topic_arn) };
    let publisher = AwsPublisher::new(&config, addresses);
    let messages: Vec<OutboundMessage> =
        (0..12).map(|n| deferred(&format!("d{n:02}"))).chain([task(), reconcile_request(), notice()]).collect();
    let answers = publisher.publish(&messages).await;
    assert!(answers.len() == 15 && answers.iter().all(Result::is_ok), "{answers:?}");
    let mut facts: Vec<String> = received(&queues, &facts_url, 12)
        .await
        .iter()
        .map(|body| match QueueMessage::from_json(body).unwrap() {
            QueueMessage::Fact(fact) => {
                assert_eq!(*fact, check(&pr(1), fact.id.as_str(), "build", CheckVerdict::Passed, minute(1)));
                fact.id.to_string()
            }
            other @ (QueueMessage::Command(_) | QueueMessage::Task(_)) => panic!("{other:?}"),
        })
        .collect();
    facts.sort();
    assert_eq!(facts, (0..12).map(|n| format!("d{n:02}")).collect::<Vec<_>>());
    let tasks = received(&queues, &commands, 1).await;
    assert!(tasks.len() == 1 && tasks[0].contains("redeliver"), "{tasks:?}");
    let bus_messages = received(&queues, &bus_url, 1).await;
    assert!(
        bus_messages[0].contains("ReconcileRequested") && bus_messages[0].contains("acme/shop"),
        "{bus_messages:?}"
    );
    let mail = received(&queues, &mail_url, 1).await;
    assert!(mail[0].contains("acme/shop#1 needs you") && mail[0].contains("It is stuck."), "{mail:?}");
}

async fn publish_to(body: &str, messages: &[OutboundMessage]) -> Vec<Result<(), String>> {
    let server = Canned::start(vec![(200, body.to_owned())]).await;
    let url = format!("{}/1/q", server.endpoint());
    let queues = QueueUrls { commands: url.clone(), facts: url };
    let addresses = AwsTargets { queues, bus: "b".to_owned(), topic_arn: None };
    let publisher = AwsPublisher::new(&config(server.endpoint()).await, addresses);
    publisher.publish(messages).await.into_iter().map(|answer| answer.map_err(|error| error.to_string())).collect()
}

/// SQS and EventBridge return 200 and list rejected entries in the body.
#[tokio::test]
async fn rejected_entries_are_reported_as_unpublished() {
    let half = r#"{"Successful":[{"Id":"0","MessageId":"m","MD5OfMessageBody":"x"}],"Failed":[{"Id":"1","SenderFault":false,"Code":"InternalError","Message":"try again"}]}"#;
    let answers = publish_to(half, &[deferred("d0"), deferred("d1"), deferred("d2")]).await;
    let undelivered = |why: &str| Err(format!("cannot publish: {why}"));
    assert_eq!(answers, [Ok(()), undelivered("SQS: try again"), undelivered("SQS: no result")]);
    let half = r#"{"FailedEntryCount":1,"Entries":[{"EventId":"e"},{"ErrorCode":"ThrottlingException","ErrorMessage":"slow down"}]}"#;
    let answers = publish_to(half, &[reconcile_request(), reconcile_request(), reconcile_request()]).await;
    let undelivered = |why: &str| Err(format!("cannot publish: EventBridge: {why}"));
    assert_eq!(answers, [Ok(()), undelivered("slow down"), undelivered("no result")]);
    let answers = publish_to("{}", &[notice()]).await;
    assert_eq!(
        answers,
        [Err("cannot publish: no topic for notices is configured: set SUTURE_ALERTS_TOPIC_ARN".to_owned())]
    );
}

#[tokio::test]
async fn message_names_its_type_and_its_errors() {
    let engine = platform::engine::Engine::new(
        testbed::MemoryStore::new(),
        testbed::RecordingPublisher::default(),
        tests::acting(),
    );
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    let own = claim(&engine, &pr(1), "run-1", minute(5)).await;
    engine.apply(&own, minute(5)).await.unwrap();
    let sent = engine.publisher().sent();
    let Destination::Queue { message, .. } = &sent[0].destination else { panic!("{sent:?}") };
    let json = message.to_json().unwrap();
    assert!(json.starts_with(r#"{"type":"command","v":1,"#), "{json}");
    assert_eq!(QueueMessage::from_json(&json).as_ref(), Ok(message));
    // The companion bots send commands without `type`.
    assert_eq!(QueueMessage::from_json(&json.replace(r#""type":"command","#, "")).as_ref(), Ok(message));
    let unknown = QueueMessage::from_json(r#"{"type":"poem","v":1}"#).unwrap_err();
    assert_eq!(unknown, InvalidMessage::Unknown("poem".to_owned()));
    let newer = QueueMessage::from_json(&json.replace(r#""v":1"#, r#""v":2"#)).unwrap_err();
    assert!(newer.to_string().contains("version 2 is not understood by this build"), "{newer}");
    let broken = QueueMessage::from_json("{").unwrap_err();
    assert!(broken.to_string().starts_with("the message is not JSON: EOF"), "{broken}");
    assert!(QueueMessage::Fact(Box::new(own)).to_json().is_err(), "Suture's own facts are not queued");
}

/// Invalid messages are retried until SQS moves them to the dead-letter queue, where the reason can be read. A valid
/// message in the same batch is handled at once.
#[tokio::test]
async fn invalid_message_reaches_the_dead_letter_queue_with_a_reason() {
    let config = config(Ministack::shared().endpoint()).await;
    let client = aws_sdk_sqs::Client::new(&config);
    let (dead_url, dead_arn) = queue(&client, "poison-dead").await;
    let (url, _) = queue(&client, "poison").await;
    let redrive = format!(r#"{{"deadLetterTargetArn":"{dead_arn}","maxReceiveCount":"3"}}"#);
    let (policy, hidden) = (
        aws_sdk_sqs::types::QueueAttributeName::RedrivePolicy,
        aws_sdk_sqs::types::QueueAttributeName::VisibilityTimeout,
    );
    let attributes = client.set_queue_attributes().queue_url(&url).attributes(policy, redrive).attributes(hidden, "0");
    attributes.send().await.unwrap();
    let good = QueueMessage::Task(Task::Redeliver { delivery: 1 }).to_json().unwrap();
    for body in [r#"{"type":"command","v":7,"pr_number":1}"#, "not ours", &good] {
        client.send_message().queue_url(&url).message_body(body).send().await.unwrap();
    }
    let testbed = testbed::Testbed::quiet();
    let log = platform::telemetry::MetricLog::writing_to(std::io::sink());
    // Emulates Lambda's SQS poller: one batch at a time; only messages that are not in `batch_item_failures` are
    // deleted.
    let mut handed = 0;
    for _ in 0..30 {
        let got = client.receive_message().queue_url(&url).max_number_of_messages(10).send().await.unwrap();
        let Some(messages) = got.messages.filter(|messages| !messages.is_empty()) else { break };
        let mut batch = SqsEvent::default();
        for message in &messages {
            let mut one = SqsMessage::default();
            (one.message_id, one.body) = (message.message_id.clone(), message.body.clone());
            batch.records.push(one);
        }
        handed += messages.len();
        let response = car_bridge::handle(&testbed.bridge, &batch, &log, || testbed.now(), jiff::Timestamp::MAX).await;
        let failed: Vec<&String> = response.batch_item_failures.iter().map(|one| &one.item_identifier).collect();
        for done in messages.iter().filter(|message| !failed.contains(&message.message_id.as_ref().unwrap())) {
            client
                .delete_message()
                .queue_url(&url)
                .receipt_handle(done.receipt_handle.as_ref().unwrap())
                .send()
                .await
                .unwrap();
        }
    }
    assert_eq!(handed, 3 + 3 + 1, "three attempts per invalid message, one for the valid one");
    let mut reasons: Vec<String> = received(&client, &dead_url, 2)
        .await
        .iter()
        .map(|body| QueueMessage::from_json(body).unwrap_err().to_string())
        .collect();
    reasons.sort();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons[0].contains("version 7 is not understood by this build (1): deploy"), "{reasons:?}");
    assert!(reasons[1].starts_with("the message is not JSON"), "{reasons:?}");
}

/// A message that was given back was hidden until the visibility timeout of its queue had passed.
#[tokio::test]
async fn returned_message_is_visible_after_its_own_delay() {
    let config = config(Ministack::shared().endpoint()).await;
    let client = aws_sdk_sqs::Client::new(&config);
    let ((commands, arn), (facts, _)) = (queue(&client, "returned").await, queue(&client, "returned-facts").await);
    let hidden = aws_sdk_sqs::types::QueueAttributeName::VisibilityTimeout;
    client.set_queue_attributes().queue_url(&commands).attributes(hidden, "720").send().await.unwrap();
    let visibility = SqsVisibility::new(&config, QueueUrls { commands: commands.clone(), facts });
    client.send_message().queue_url(&commands).message_body("later").send().await.unwrap();
    let receive = async || {
        let got = client.receive_message().queue_url(&commands).wait_time_seconds(2).send().await.unwrap();
        got.messages.unwrap_or_default().into_iter().next().and_then(|message| message.receipt_handle)
    };
    let receipt_handle = receive().await.unwrap();
    assert_eq!(receive().await, None, "hidden for 12 minutes");
    let visible_in = Duration::from_secs(1);
    visibility.give_back(&[ReturnedMessage { receipt_handle, queue_arn: arn, visible_in }]).await;
    assert!(receive().await.is_some());
}

/// The lines of the Car Bridge could not be connected to the webhook that caused them.
#[tokio::test]
async fn message_carries_the_trace_of_its_cause_also_after_a_redrive() {
    let config = config(Ministack::shared().endpoint()).await;
    let client = aws_sdk_sqs::Client::new(&config);
    let ((url, _), (dead, _)) =
        (queue(&client, "suture-test-trace").await, queue(&client, "suture-test-trace-dead").await);
    let targets = |url: &str| {
        let queues = QueueUrls { commands: url.to_owned(), facts: url.to_owned() };
        AwsTargets { queues, bus: "default".to_owned(), topic_arn: None }
    };
    let traced = InvocationIds::new("r-1", Some("Root=1-abc;Sampled=0"));
    let publisher = AwsPublisher::new(&config, targets(&dead));
    assert_eq!(traced.scope(publisher.publish(&[deferred("traced")])).await, [Ok(())]);
    assert_eq!(AwsPublisher::new(&config, targets(&url)).publish(&[deferred("untraced")]).await, [Ok(())]);
    let commands = SqsDeadLetterQueue { source: DeadLetterSource::Commands, url: dead, redrive_to: Some(url.clone()) };
    assert_eq!(DeadLetterQueue::Sqs(SqsDlq::new(&config, vec![commands])).redrive().await, Ok(1));
    let request = client.receive_message().queue_url(&url).max_number_of_messages(10).message_attribute_names("All");
    let messages = request.send().await.unwrap().messages.unwrap_or_default();
    let traces: BTreeSet<(bool, Option<String>)> = messages
        .iter()
        .map(|message| {
            let trace = message.message_attributes().and_then(|attributes| attributes.get(TRACE_ATTRIBUTE));
            (message.body().unwrap().contains("untraced"), trace.and_then(|trace| trace.string_value.clone()))
        })
        .collect();
    assert_eq!(traces, BTreeSet::from([(false, Some("1-abc".to_owned())), (true, None)]));
}

#[tokio::test]
async fn dead_letters_are_peeked_redriven_and_deleted() {
    let config = config(Ministack::shared().endpoint()).await;
    let client = aws_sdk_sqs::Client::new(&config);
    let ((dead, _), (alive, _)) = (queue(&client, "suture-test-dead").await, queue(&client, "suture-test-alive").await);
    let (sweeps, _) = queue(&client, "suture-test-dead-sweeps").await;
    let of = |source, url: &str, redrive_to: Option<&String>| SqsDeadLetterQueue {
        source,
        url: url.to_owned(),
        redrive_to: redrive_to.cloned(),
    };
    let (dead_facts, facts) =
        (queue(&client, "suture-test-dead-facts").await.0, queue(&client, "suture-test-facts").await.0);
    let queues = vec![
        of(DeadLetterSource::Commands, &dead, Some(&alive)),
        of(DeadLetterSource::Facts, &dead_facts, Some(&facts)),
        of(DeadLetterSource::Sweeps, &sweeps, None),
    ];
    let dlq = DeadLetterQueue::Sqs(SqsDlq::new(&config, queues));
    assert_eq!(dlq.peek().await.unwrap().messages, []);
    for body in [r#"{"type":"riddle"}"#, "not even JSON"] {
        client.send_message().queue_url(&dead).message_body(body).send().await.unwrap();
    }
    client.send_message().queue_url(&dead_facts).message_body("a fact").send().await.unwrap();
    for _ in 0..2 {
        let dump = dlq.peek().await.unwrap();
        assert_eq!((dump.messages.len(), dump.approximate_count), (3, 3), "{dump:?}");
        assert!(dump.messages.iter().all(|dead| dead.sent_at.is_some() && !dead.reason().is_empty()));
    }
    assert_eq!(dlq.redrive().await.unwrap(), 3);
    assert_eq!((dlq.count().await.unwrap(), received(&client, &alive, 2).await.len()), (0, 2));
    assert_eq!(received(&client, &facts, 1).await, ["a fact"], "each returns to the queue it came from");

    for (queue, body) in [(&dead, "a"), (&dead, "b"), (&sweeps, "c")] {
        client.send_message().queue_url(queue).message_body(body).send().await.unwrap();
    }
    let listed = dlq.peek().await.unwrap().messages;
    let found: BTreeSet<_> = listed.iter().map(|dead| (dead.queue.name(), dead.body.as_str())).collect();
    assert_eq!(found, BTreeSet::from([("commands", "a"), ("commands", "b"), ("sweeps", "c")]));
    let id = |body: &str| listed.iter().find(|dead| dead.body == body).unwrap().id.clone();
    assert!(dlq.delete(&id("c")).await.unwrap(), "a failed sweep is deleted");
    assert!(!dlq.delete("no such id").await.unwrap());
    assert_eq!(dlq.purge(Some(DeadLetterSource::Sweeps)).await.unwrap(), 0, "it was the only one");
    dlq.purge(None).await.unwrap();
    assert_eq!((dlq.peek().await.unwrap().messages, dlq.count().await.unwrap()), (Vec::new(), 0));
    let nowhere = of(DeadLetterSource::Commands, "http://127.0.0.1:9/queue", None);
    let nowhere = DeadLetterQueue::Sqs(SqsDlq::new(&config, vec![nowhere]));
    assert!(matches!(nowhere.peek().await, Err(DlqError::Unavailable(_))));
}
