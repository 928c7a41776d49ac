//! DynamoDB for all functions alike: dynoxide, behind a relay that counts requests by what they are for. What it takes of the
//! processor is not the functions', and is not counted. Beside it SQS, EventBridge and SNS, which take everything.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use platform::store::dynamo::DynamoStore;
use platform::store::dynamo::tables::TableNames;
use serde_json::{Value, json};
use tests::local_aws::{Dynoxide, client};

use crate::wire::{Answer, Counts, Letter, Server};

/// The tables, counted.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) dynamo: Dynoxide,
    relay: Server,
    elsewhere: Server,
    pub(crate) counts: Counts,
    pub(crate) names: TableNames,
}

/// The tables the peers keep.
pub(crate) const PEER_TABLES: [(&str, &str); 3] = [
    ("DELIVERIES_TABLE", "peer-deliveries"),
    ("STATE_TABLE", "peer-state-table"),
    ("EVENTS_TABLE", "peer-events-table"),
];

impl Tables {
    /// All tables, empty.
    pub(crate) async fn new(dynamo: Dynoxide) -> Self {
        let counts = Counts::default();
        let names = TableNames { state: "suture-state".to_owned(), events: "suture-events".to_owned() };
        drop(dynamo.store_on(names.clone()).await);
        let direct = client(dynamo.endpoint());
        for ((_, table), keys) in PEER_TABLES.iter().zip([&["id"][..], &["pk"], &["pr", "sk"]]) {
            create(&direct, table, keys).await;
        }
        let seen = counts.clone();
        let relay = Server::relaying(dynamo.endpoint(), move |request, answer| count(&seen, request, answer));
        let seen = counts.clone();
        let elsewhere = Server::answering(move |request| {
            let (name, answer) = take(&request);
            seen.add(&name, 1);
            answer
        });
        Self { dynamo, relay, elsewhere, counts, names }
    }

    /// A store that is not counted.
    pub(crate) async fn store(&self) -> DynamoStore {
        self.dynamo.store_on(self.names.clone()).await
    }

    /// What a function needs to find them.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL_DYNAMODB", self.relay.url()),
            ("AWS_ENDPOINT_URL_SQS", self.elsewhere.url()),
            ("AWS_ENDPOINT_URL_EVENTBRIDGE", self.elsewhere.url()),
            ("AWS_ENDPOINT_URL_SNS", self.elsewhere.url()),
            ("SUTURE_STATE_TABLE", self.names.state.clone()),
            ("SUTURE_EVENTS_TABLE", self.names.events.clone()),
            ("SUTURE_COMMAND_QUEUE_URL", format!("{}/123456789012/commands", self.elsewhere.url())),
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

/// Counts a request: the shared counter of a repository's minute and the row that leads from a commit to its pull request are
/// counted apart.
fn count(counts: &Counts, request: &Letter, answer: &Letter) {
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
    if name == "Query" {
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let index = body["IndexName"].as_str().unwrap_or("log");
        counts.add(&format!("{index} entries"), said["Count"].as_u64().unwrap_or(0));
    }
}

/// Takes what is sent to the queue, the bus or people, and says so.
fn take(request: &Letter) -> (String, Answer) {
    let target = request.header("x-amz-target");
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let entries = body["Entries"].as_array().cloned().unwrap_or_default();
    if target.ends_with("SendMessageBatch") {
        let taken: Vec<Value> = entries
            .iter()
            .map(|entry| {
                let digest = md5_of(entry["MessageBody"].as_str().unwrap_or(""));
                json!({"Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": digest})
            })
            .collect();
        let body = json!({"Successful": taken, "Failed": []}).to_string();
        return ("SQS".to_owned(), Answer::new(200, "application/x-amz-json-1.0", body));
    }
    if target.ends_with("PutEvents") {
        let taken: Vec<Value> = entries.iter().map(|_| json!({"EventId": "e"})).collect();
        let body = json!({"FailedEntryCount": 0, "Entries": taken}).to_string();
        return ("EventBridge".to_owned(), Answer::new(200, "application/x-amz-json-1.1", body));
    }
    let xml = "<PublishResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><PublishResult><MessageId>m</MessageId>\
               </PublishResult><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></PublishResponse>";
    ("SNS".to_owned(), Answer::new(200, "text/xml", xml))
}

/// The SDK does not compare it.
fn md5_of(_: &str) -> &'static str {
    "d41d8cd98f00b204e9800998ecf8427e"
}

/// All but what is counted apart, entries included.
pub(crate) fn requests(counts: &BTreeMap<String, u64>) -> u64 {
    let apart = |name: &str| name == "counter" || name == "SHA row" || name.ends_with(" entries");
    counts.iter().filter(|(name, _)| !apart(name)).map(|(_, count)| count).sum()
}
