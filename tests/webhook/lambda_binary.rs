//! The release binary behind the Lambda Runtime API, with DynamoDB in this process and events in API Gateway's format.

use platform::store::queries;
use serde_json::{Value, json};
use tests::lambda::Function;
use tests::local_aws::{Dynoxide, fresh_names};
use webhook::signature::sign;

use crate::harness::{Delivery, JENKINS, SECRET, pull, status};

async fn deliver(function: &Function, delivery: &Delivery, encoded: bool) -> (u64, String) {
    let response = function.invoke(&gateway_event(delivery, encoded)).await;
    let body: Value = serde_json::from_str(response["body"].as_str().unwrap_or_else(|| panic!("{response}"))).unwrap();
    let outcome = if response["statusCode"] == 200 { &body["status"] } else { &body["code"] };
    (response["statusCode"].as_u64().unwrap(), outcome.as_str().unwrap().to_owned())
}

/// The API Gateway event (payload version 2.0) of a delivery.
fn gateway_event(delivery: &Delivery, encoded: bool) -> Value {
    let body = delivery.payload.to_string();
    let signature = sign(SECRET, body.as_bytes());
    let sent = if encoded { base64(body.as_bytes()) } else { body };
    json!({
        "version": "2.0", "routeKey": "POST /webhook/github", "rawPath": "/webhook/github", "rawQueryString": "",
        "headers": {
            "content-type": "application/json", "host": "hooks.example", "user-agent": "GitHub-Hookshot/044aadd",
            "x-github-delivery": delivery.id, "x-github-event": delivery.event, "x-hub-signature-256": signature
        },
        "requestContext": {
            "accountId": "123456789012", "apiId": "api", "domainName": "hooks.example", "domainPrefix": "hooks",
            "http": {"method": "POST", "path": "/webhook/github", "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1",
                     "userAgent": "GitHub-Hookshot/044aadd"},
            "requestId": "r", "routeKey": "POST /webhook/github", "stage": "$default",
            "time": "02/Mar/2026:09:00:00 +0000", "timeEpoch": 1_772_442_000_000_u64
        },
        "body": sent, "isBase64Encoded": encoded
    })
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let three = [chunk[0], chunk.get(1).copied().unwrap_or(0), chunk.get(2).copied().unwrap_or(0)];
        let number = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for n in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * n) & 63) as usize];
            text.push(if n > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_binary_handles_gateway_events() {
    assert_eq!((base64(b"M"), base64(b"Ma"), base64(b"Man")), ("TQ==".into(), "TWE=".into(), "TWFu".into()));
    let dynamo = Dynoxide::in_memory().await;
    let names = fresh_names();
    let store = dynamo.store_on(names.clone()).await;
    let function = Function::start(
        "webhook",
        &[
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_ENDPOINT_URL_DYNAMODB", dynamo.endpoint()),
            ("SUTURE_STATE_TABLE", &names.state),
            ("SUTURE_EVENTS_TABLE", &names.events),
            // Nothing listens there: an unexpected publish fails at once.
            ("SUTURE_COMMAND_QUEUE_URL", "http://127.0.0.1:9/queue"),
            ("SUTURE_FACTS_QUEUE_URL", "http://127.0.0.1:9/facts"),
            ("SUTURE_WEBHOOK_SECRET", "the next one,a secret"),
        ],
    )
    .await;
    let opened = pull(42, "opened", 'a', 0);
    let pending = status('a', JENKINS, "pending", "", 1);
    assert_eq!(deliver(&function, &opened, false).await, (200, "applied".to_owned()));
    assert_eq!(deliver(&function, &opened, false).await, (200, "duplicate_ignored".to_owned()));
    assert_eq!(deliver(&function, &pending, true).await, (200, "applied".to_owned()));
    assert_eq!(deliver(&function, &pending, false).await, (200, "duplicate_ignored".to_owned()));
    let mut forged = gateway_event(&pull(43, "opened", 'b', 0), false);
    forged["body"] = json!("{}");
    let refused = function.invoke(&forged).await;
    assert_eq!(
        (&refused["statusCode"], &refused["headers"]["content-type"]),
        (&json!(401), &json!("application/problem+json"))
    );
    let events = queries::events(&store, &tests::pr(42), false, None, 10, jiff::Timestamp::now()).await.unwrap();
    let kinds: Vec<&str> = events.entries.iter().map(|event| event.kind.name()).collect();
    assert_eq!(kinds, ["PR_OPENED", "CHECKS_STARTED"]);
}
