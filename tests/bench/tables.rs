//! The AWS services of all measured programs: dynoxide as DynamoDB, behind a relay that counts requests by operation, and fakes of
//! SQS, EventBridge and SNS that accept everything. Their CPU time is not counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use platform::store::dynamo::DynamoStore;
use platform::store::dynamo::tables::TableNames;
use serde_json::{Value, json};
use tests::local_aws::{Dynoxide, client};

use crate::wire::{Counts, HttpMessage, HttpResponse, Server};

/// The tables, with counted requests.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) dynamo: Dynoxide,
    relay: Server,
    messaging: Server,
    pub(crate) counts: Counts,
    /// The messages of the facts queue.
    pub(crate) facts: QueuedFacts,
    pub(crate) names: TableNames,
}

/// The facts queue: bodies, and when they are visible.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueuedFacts(Arc<Mutex<Vec<(Instant, String)>>>);

impl QueuedFacts {
    pub(crate) fn put(&self, body: String, delay: Duration) {
        self.0.lock().expect("mutex not poisoned").push((Instant::now() + delay, body));
    }

    /// Removes up to `most` visible messages.
    pub(crate) fn take(&self, most: usize) -> Vec<String> {
        let (now, mut left) = (Instant::now(), most);
        let is_taken = |(visible_at, _): &mut (Instant, String)| {
            let taken = left > 0 && *visible_at <= now;
            left -= usize::from(taken);
            taken
        };
        self.0.lock().expect("mutex not poisoned").extract_if(.., is_taken).map(|(_, body)| body).collect()
    }

    /// Keeps the messages of a request to the facts queue.
    fn keep(&self, request: &HttpMessage) {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if !body["QueueUrl"].as_str().is_some_and(|url| url.ends_with("/facts")) {
            return;
        }
        for entry in body["Entries"].as_array().into_iter().flatten() {
            let delay = Duration::from_secs(entry["DelaySeconds"].as_u64().unwrap_or(0));
            self.put(entry["MessageBody"].as_str().unwrap_or_default().to_owned(), delay);
        }
    }
}

/// The tables of the peers.
pub(crate) const PEER_TABLES: [(&str, &str); 3] = [
    ("DELIVERIES_TABLE", "peer-deliveries"),
    ("STATE_TABLE", "peer-state-table"),
    ("EVENTS_TABLE", "peer-events-table"),
];

impl Tables {
    /// Creates all tables, empty.
    pub(crate) async fn new(dynamo: Dynoxide) -> Self {
        let counts = Counts::default();
        let names = TableNames { state: "suture-state".to_owned(), events: "suture-events".to_owned() };
        drop(dynamo.store_on(names.clone()).await);
        let direct = client(dynamo.endpoint());
        for ((_, table), keys) in PEER_TABLES.iter().zip([&["id"][..], &["pk"], &["pr", "sk"]]) {
            create(&direct, table, keys).await;
        }
        let seen = counts.clone();
        let relay = Server::relaying(dynamo.endpoint(), move |request, response| count(&seen, request, response));
        let facts = QueuedFacts::default();
        let (seen, queued) = (counts.clone(), facts.clone());
        let messaging = Server::responding(move |request| {
            queued.keep(&request);
            let (name, response) = accept(&request);
            seen.add(&name, 1);
            response
        });
        Self { dynamo, relay, messaging, counts, facts, names }
    }

    /// A store whose requests are not counted.
    pub(crate) async fn store(&self) -> DynamoStore {
        self.dynamo.store_on(self.names.clone()).await
    }

    /// The environment variables with the addresses of the services.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL_DYNAMODB", self.relay.url()),
            ("AWS_ENDPOINT_URL_SQS", self.messaging.url()),
            ("AWS_ENDPOINT_URL_EVENTBRIDGE", self.messaging.url()),
            ("AWS_ENDPOINT_URL_SNS", self.messaging.url()),
            ("SUTURE_STATE_TABLE", self.names.state.clone()),
            ("SUTURE_EVENTS_TABLE", self.names.events.clone()),
            ("SUTURE_COMMAND_QUEUE_URL", format!("{}/123456789012/commands", self.messaging.url())),
            ("SUTURE_FACTS_QUEUE_URL", format!("{}/123456789012/facts", self.messaging.url())),
            ("SUTURE_EVENT_BUS", "suture".to_owned()),
            ("SUTURE_ALERTS_TOPIC_ARN", "arn:aws:sns:us-east-1:123456789012:alerts".to_owned()),
        ]
    }
}

async fn create(client: &Client, table: &str, keys: &[&str]) {
    let mut request = client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    for (name, kind) in keys.iter().zip([KeyType::Hash, KeyType::Range]) {
        let attribute =
            AttributeDefinition::builder().attribute_name(*name).attribute_type(ScalarAttributeType::S).build();
        let key = KeySchemaElement::builder().attribute_name(*name).key_type(kind).build();
        request = request.attribute_definitions(attribute.expect("a name")).key_schema(key.expect("a name"));
    }
    request.send().await.expect("a table");
}

/// Counts a request by operation. The rate counter of a repository and the row that maps a commit to its pull request are counted
/// separately.
fn count(counts: &Counts, request: &HttpMessage, response: &HttpMessage) {
    let operation = request.header("x-amz-target").rsplit('.').next().unwrap_or("").to_owned();
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let key = body.pointer("/Key/pk/S").and_then(Value::as_str).unwrap_or("");
    let name = if key.starts_with("LIMIT#") {
        "counter".to_owned()
    } else if key.starts_with("SHA#") {
        "SHA row".to_owned()
    } else {
        operation
    };
    counts.add(&name, 1);
    if name == "TransactWriteItems" && response.first_line.contains(" 200") {
        counts.add("transactions", 1);
    }
    if name == "Query" {
        let result: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let index = body["IndexName"].as_str().unwrap_or("log");
        counts.add(&format!("{index} entries"), result["Count"].as_u64().unwrap_or(0));
    }
}

/// Accepts a message to the queue, the bus or the topic. Returns the name of the service and the response.
fn accept(request: &HttpMessage) -> (String, HttpResponse) {
    let target = request.header("x-amz-target");
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let entries = body["Entries"].as_array().cloned().unwrap_or_default();
    if target.ends_with("SendMessageBatch") {
        let accepted: Vec<Value> = entries
            .iter()
            .map(|entry| {
                let digest = md5_of(entry["MessageBody"].as_str().unwrap_or(""));
                json!({"Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": digest})
            })
            .collect();
        let body = json!({"Successful": accepted, "Failed": []}).to_string();
        return ("SQS".to_owned(), HttpResponse::new(200, "application/x-amz-json-1.0", body));
    }
    if target.ends_with("PutEvents") {
        let accepted: Vec<Value> = entries.iter().map(|_| json!({"EventId": "e"})).collect();
        let body = json!({"FailedEntryCount": 0, "Entries": accepted}).to_string();
        return ("EventBridge".to_owned(), HttpResponse::new(200, "application/x-amz-json-1.1", body));
    }
    let xml = "<PublishResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><PublishResult><MessageId>m</MessageId>\
               </PublishResult><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></PublishResponse>";
    ("SNS".to_owned(), HttpResponse::new(200, "text/xml", xml))
}

/// A constant, because the SDK does not check the digest.
fn md5_of(_: &str) -> &'static str {
    "d41d8cd98f00b204e9800998ecf8427e"
}

/// The number of requests, without the separately counted ones and index entries.
pub(crate) fn requests(counts: &BTreeMap<String, u64>) -> u64 {
    let is_separate = |name: &str| ["counter", "SHA row", "transactions"].contains(&name) || name.ends_with(" entries");
    counts.iter().filter(|(name, _)| !is_separate(name)).map(|(_, count)| count).sum()
}
