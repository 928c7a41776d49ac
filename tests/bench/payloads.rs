//! The webhooks of the benchmarks: the example payloads of GitHub's own libraries, with a different pull request in each round so that
//! none is a duplicate, in API Gateway's event format.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use webhook::signature::sign;

/// The webhook secret of all programs.
pub(crate) const SECRET: &str = "a secret of the benchmarks";
/// The delivered events.
const EVENTS: [&str; 4] = ["pull_request", "check_run", "check_suite", "pull_request_review"];

/// A webhook.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    /// Event and action, such as `pull_request.opened`.
    pub(crate) kind: String,
    event: String,
    payload: Value,
}

/// The 51 examples about pull requests and their checks.
pub(crate) fn examples(root: &Path) -> Vec<Delivery> {
    let fetched = Command::new(root.join("scripts/fetch-webhook-examples")).output().expect("a shell");
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    let file = String::from_utf8(fetched.stdout).expect("a path");
    let all: Vec<Value> = serde_json::from_slice(&std::fs::read(file.trim()).expect("the examples")).expect("JSON");
    let mut deliveries = Vec::new();
    for event in EVENTS {
        let examples = all.iter().find(|entry| entry["name"] == event).expect("an event");
        for payload in examples["examples"].as_array().expect("a list") {
            let kind = format!("{event}.{}", payload["action"].as_str().expect("an action"));
            deliveries.push(Delivery { kind, event: event.to_owned(), payload: payload.clone() });
        }
    }
    // Opened first, closed last; the sort keeps the order of everything else.
    deliveries.sort_by_key(|delivery| match delivery.kind.as_str() {
        "pull_request.opened" => 0,
        "pull_request.closed" => 2,
        _ => 1,
    });
    assert_eq!(deliveries.len(), 51);
    deliveries
}

impl Delivery {
    /// The same webhook for the pull request with this number, which has its own head.
    pub(crate) fn about(&self, number: u64) -> Self {
        let mut delivery = self.clone();
        let sha = head(number);
        let payload = &mut delivery.payload;
        set(payload, "/number", json!(number));
        set(payload, "/pull_request/number", json!(number));
        set(payload, "/pull_request/head/sha", json!(sha));
        set(payload, "/review/commit_id", json!(sha));
        for part in ["check_run", "check_suite"] {
            set(payload, &format!("/{part}/head_sha"), json!(sha));
            set(payload, &format!("/{part}/check_suite/head_sha"), json!(sha));
            if let Some(pulls) = payload.pointer_mut(&format!("/{part}/pull_requests")).and_then(Value::as_array_mut) {
                pulls.iter_mut().for_each(|pull| set(pull, "/number", json!(number)));
            }
        }
        delivery
    }

    /// Replaces the value at a JSON pointer, if it exists.
    pub(crate) fn with(mut self, pointer: &str, value: Value) -> Self {
        set(&mut self.payload, pointer, value);
        self
    }

    /// The signed request body.
    pub(crate) fn body(&self) -> String {
        self.payload.to_string()
    }

    pub(crate) fn event(&self) -> &str {
        &self.event
    }

    /// The API Gateway event of this webhook, in payload format 2.0.
    pub(crate) fn gateway_event(&self, id: &str) -> String {
        let body = self.body();
        let signature = sign(SECRET, body.as_bytes());
        gateway_event(&self.event, id, &signature, &body)
    }
}

/// The head of a pull request.
pub(crate) fn head(number: u64) -> String {
    format!("{:040x}", u128::from(number) * 0x9e37_79b9_7f4a_7c15_f39c)
}

fn set(payload: &mut Value, pointer: &str, value: Value) {
    if let Some(place) = payload.pointer_mut(pointer) {
        *place = value;
    }
}

/// The API Gateway event of a request.
pub(crate) fn gateway_event(event: &str, id: &str, signature: &str, body: &str) -> String {
    json!({
        "version": "2.0", "routeKey": "POST /webhook/github", "rawPath": "/webhook/github", "rawQueryString": "",
        "headers": {
            "accept": "*/*", "content-length": body.len().to_string(), "content-type": "application/json",
            "host": "hooks.example", "user-agent": "GitHub-Hookshot/044aadd", "x-amzn-trace-id": "Root=1-5bef4de7",
            "x-forwarded-for": "192.0.2.1", "x-forwarded-port": "443", "x-forwarded-proto": "https",
            "x-github-delivery": id, "x-github-event": event, "x-github-hook-id": "292430182",
            "x-github-hook-installation-target-id": "79929171",
            "x-github-hook-installation-target-type": "integration", "x-hub-signature-256": signature
        },
        "requestContext": {
            "accountId": "123456789012", "apiId": "api", "domainName": "hooks.example", "domainPrefix": "hooks",
            "http": {"method": "POST", "path": "/webhook/github", "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1",
                     "userAgent": "GitHub-Hookshot/044aadd"},
            "requestId": "r", "routeKey": "POST /webhook/github", "stage": "$default",
            "time": "16/Nov/2026:09:00:00 +0000", "timeEpoch": 1_794_819_600_000_u64
        },
        "body": body, "isBase64Encoded": false
    })
    .to_string()
}

/// A delivery id in GitHub's format.
pub(crate) fn delivery_id(round: u64, place: usize) -> String {
    format!("{:08x}-cc78-11e3-81ab-{place:012x}", round)
}
