//! Random mutations of GitHub's example payloads. They run in the ordinary test command, since the fuzz target needs a
//! nightly compiler. A seed always produces the same sequence; its length depends on the machine.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use webhook::signature::sign;

use crate::github_examples::{CONFIG, examples};
use crate::harness::{Harness, SECRET};

/// Number of payloads: at most `MAX_PAYLOADS`, at least `MIN_PAYLOADS`, otherwise as many as fit into `TIME_BUDGET`.
const MAX_PAYLOADS: usize = 20_000;
const MIN_PAYLOADS: usize = 1_000;
const TIME_BUDGET: Duration = Duration::from_secs(10);
/// A harness keeps its whole log, so a new one starts after this many payloads.
const PAYLOADS_PER_HARNESS: usize = 200;

/// Deterministic random number generator (xorshift).
struct Rng(u64);

impl Rng {
    fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next_u64() % count.max(1) as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let place = self.below(of.len());
        &of[place]
    }
}

/// A value that GitHub never sends.
fn odd_value(rng: &mut Rng) -> Value {
    let many = 1 + rng.below(40);
    match rng.below(16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1e300),
        5 => json!(""),
        6 => json!("x".repeat(many * 500)),
        7 => json!("ä→🦀\u{0}\u{1b}[31m\r\n"),
        8 => json!([]),
        9 => json!({}),
        10 => json!("0".repeat(40)),
        11 => json!("9999-12-31T23:59:60Z"),
        12 => json!("/rebuild\n/merge\n```\n/cancel"),
        13 => (0..many).fold(json!(1), |inner, _| json!([inner])),
        14 => json!("acme/../shop#1"),
        _ => json!(rng.next_u64()),
    }
}

/// JSON pointers of all values of a payload except URLs, which are most of it and never read.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(object) => object
            .iter()
            .filter(|(key, _)| !key.ends_with("url") && *key != "_links")
            .map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(array) => array.iter().enumerate().map(|(n, value)| (n.to_string(), value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    for (key, value) in inner {
        let at = format!("{at}/{key}");
        pointers(value, &at, found);
        found.push(at);
    }
}

/// The payload without URLs: a tenth of the size.
fn without_links(value: &Value) -> Value {
    match value {
        Value::Object(object) => object
            .iter()
            .filter(|(key, _)| !key.ends_with("url") && *key != "_links")
            .map(|(key, value)| (key.clone(), without_links(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(array) => array.iter().map(without_links).collect::<Vec<_>>().into(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other.clone(),
    }
}

/// Removes one value, or replaces it with an odd value or one of another payload.
fn mutate_value(rng: &mut Rng, payload: &mut Value, others: &[(String, Value)]) {
    let mut places = Vec::new();
    pointers(payload, "", &mut places);
    if places.is_empty() {
        return;
    }
    let place = rng.pick(&places).clone();
    let value = match rng.below(3) {
        0 => {
            let (parent, key) = place.rsplit_once('/').unwrap();
            if let Some(object) = payload.pointer_mut(parent).and_then(Value::as_object_mut) {
                object.remove(key);
            }
            return;
        }
        1 => {
            let (_, other) = rng.pick(others);
            let mut theirs = Vec::new();
            pointers(other, "", &mut theirs);
            if theirs.is_empty() {
                Value::Null
            } else {
                other.pointer(rng.pick(theirs.as_slice()).as_str()).cloned().unwrap()
            }
        }
        _ => odd_value(rng),
    };
    if let Some(there) = payload.pointer_mut(&place) {
        *there = value;
    }
}

/// Flips, truncates, inserts or repeats bytes.
fn mutate_bytes(rng: &mut Rng, body: &mut Vec<u8>) {
    if body.is_empty() {
        return;
    }
    let at = rng.below(body.len());
    match rng.below(4) {
        0 => body[at] ^= 1 << rng.below(8),
        1 => body.truncate(at),
        2 => body.insert(at, b"{}[]\",:\\\x00\xff"[rng.below(10)]),
        _ => {
            let again: Vec<u8> = body[at..].iter().copied().take(200).collect();
            body.splice(at..at, again);
        }
    }
}

#[tokio::test]
async fn mutated_payloads_never_return_5xx() {
    let mut payloads: Vec<(String, Value)> = Vec::new();
    let handled_events = [
        "pull_request",
        "check_run",
        "check_suite",
        "status",
        "pull_request_review",
        "pull_request_review_comment",
        "issue_comment",
        "push",
        "merge_group",
    ];
    for event in examples() {
        let name = event["name"].as_str().unwrap().to_owned();
        if handled_events.contains(&name.as_str()) {
            let those = event["examples"].as_array().unwrap().iter().map(|one| (name.clone(), without_links(one)));
            payloads.extend(those);
        }
    }
    let mut rng = Rng(0x5075_7275);
    let began = Instant::now();
    let mut harness = Harness::new(CONFIG);
    let (mut tried, mut accepted, mut applied) = (0, 0, 0);
    while tried < MAX_PAYLOADS && (tried < MIN_PAYLOADS || began.elapsed() < TIME_BUDGET) {
        if tried % PAYLOADS_PER_HARNESS == 0 {
            harness = Harness::new(CONFIG);
        }
        let (event, payload) = rng.pick(&payloads).clone();
        let mut payload = payload;
        for _ in 0..rng.below(4) {
            mutate_value(&mut rng, &mut payload, &payloads);
        }
        let mut body = payload.to_string().into_bytes();
        if rng.below(4) == 0 {
            mutate_bytes(&mut rng, &mut body);
        }
        // Some payloads get another event's name or a forged signature.
        let event = if rng.below(20) == 0 { rng.pick(&payloads).0.clone() } else { event };
        let forged = rng.below(50) == 0;
        let signature = if forged { format!("sha256={}", "0".repeat(rng.below(70))) } else { sign(SECRET, &body) };
        let id = format!("d-{tried}");
        let headers = [
            ("x-hub-signature-256", signature.as_str()),
            ("x-github-event", event.as_str()),
            ("x-github-delivery", id.as_str()),
        ];
        let response = harness.request(Method::POST, "/webhook/github", &headers, &body).await;
        let what = || format!("{tried}: {event} {response:?}\n{}", String::from_utf8_lossy(&body));
        match response.code {
            401 => assert!(forged, "{}", what()),
            200 | 400 => assert!(!forged, "{}", what()),
            _ => panic!("{}", what()),
        }
        accepted += usize::from(response.code == 200);
        applied += usize::from(response.outcome == "applied");
        if response.code == 200 && tried % 7 == 0 {
            let again = harness.request(Method::POST, "/webhook/github", &headers, &body).await;
            let once = ["applied", "anomaly"];
            assert!(!once.contains(&again.outcome.as_str()), "a delivery applies once: {again:?}, first {}", what());
        }
        tried += 1;
    }
    println!("{tried} payloads in {} ms: {accepted} understood, {applied} applied", began.elapsed().as_millis());
    assert!(accepted > tried / 4 && applied > tried / 200, "{tried} tried, {accepted} understood, {applied} applied");
}
