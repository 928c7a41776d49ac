//! Timeouts of AWS calls: a server that accepts connections and never responds must not use up the invocation.

use std::time::{Duration, Instant};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::Credentials;
use jiff::Timestamp;
use platform::aws::{OPERATION_TIMEOUT, timeouts};
use platform::publish::aws::{AwsPublisher, AwsTargets, QueueUrls};
use platform::publish::{Destination, OutboundMessage, Publisher};
use platform::secrets::FetchError;
use platform::store::dynamo::DynamoStore;
use platform::store::dynamo::tables::TableNames;
use platform::store::{Key, Store, StoreError};
use tokio::net::TcpListener;

/// Tolerance for a busy machine.
const SLACK: Duration = Duration::from_secs(3);

/// Accepts every connection, keeps it open and never responds.
async fn silent_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            kept.push(connection);
        }
    });
    address
}

async fn config() -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "a test"))
        .endpoint_url(silent_server().await)
        .timeout_config(timeouts())
        .load()
        .await
}

async fn within_limit<T>(call: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let answer = tokio::time::timeout(OPERATION_TIMEOUT + SLACK, call).await.expect("the call has no time limit");
    // At least two attempts: the attempt timeout is shorter than the operation timeout.
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
    answer
}

#[tokio::test]
async fn dynamodb_call_times_out() {
    let names = TableNames { state: "suture-state".to_owned(), events: "suture-events".to_owned() };
    let store = DynamoStore::new(aws_sdk_dynamodb::Client::new(&config().await), names);
    let answer = within_limit(store.get(&Key::state("BREAKER"), Timestamp::UNIX_EPOCH)).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
}

#[tokio::test]
async fn sqs_call_times_out() {
    let url = "http://127.0.0.1:9/queue".to_owned();
    let queues = QueueUrls { commands: url.clone(), facts: url };
    let addresses = AwsTargets { queues, bus: "b".to_owned(), topic_arn: None };
    let publisher = AwsPublisher::new(&config().await, addresses);
    let message = OutboundMessage {
        id: "m1".to_owned(),
        destination: Destination::queue(
            platform::publish::queue_message::QueueMessage::Task(platform::publish::queue_message::Task::Redeliver {
                delivery: 7,
            }),
            "acme/shop".parse().unwrap(),
            Duration::ZERO,
        ),
    };
    let answers = within_limit(publisher.publish(&[message])).await;
    assert!(answers[0].is_err(), "{answers:?}");
}

#[tokio::test]
async fn secrets_manager_call_times_out() {
    let fetch = platform::aws::fetch_with(aws_sdk_secretsmanager::Client::new(&config().await));
    let answer = within_limit(fetch("suture".to_owned())).await;
    assert!(matches!(answer, Err(FetchError::Unavailable(_))), "{answer:?}");
}
