//! The example payloads of GitHub's octokit libraries. `examples.txt` lists the reviewed response to each. The payloads
//! are downloaded, never committed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Delivery, Harness};

/// Makes the author of the examples a managed author and an approver, so that most payloads are processed.
pub(crate) const CONFIG: &str = r"
mode = 'act'
managed.authors = ['Codertocat']
approver_bot.logins = ['Codertocat']
limits.webhooks_per_minute_per_repo = 10000
";

pub(crate) fn examples() -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let fetched = Command::new(root.join("scripts/fetch-webhook-examples")).output().unwrap();
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    let file = String::from_utf8(fetched.stdout).unwrap();
    serde_json::from_slice(&fs::read(file.trim()).unwrap()).unwrap()
}

/// A harness with two open pull requests from the examples: one matches by number and head, one by head only.
async fn harness_with_open_prs(opened: &Value) -> Harness {
    let harness = Harness::new(CONFIG);
    let other = "6113728f27ae82c7b1a177c8d03f9e96e0adf246";
    let first = Delivery { event: "pull_request", id: "first".to_owned(), payload: opened.clone() };
    let second = Delivery { id: "second".to_owned(), ..first.clone() };
    let second = second.with("/pull_request/number", json!(3)).with("/pull_request/head/sha", json!(other));
    harness.expect(&first, "applied").await;
    harness.expect(&second, "applied").await;
    harness
}

#[tokio::test]
async fn github_examples_return_the_reviewed_responses() {
    let examples = examples();
    let pulls = examples.iter().find(|event| event["name"] == "pull_request").unwrap();
    let opened = pulls["examples"].as_array().unwrap().iter().find(|payload| payload["action"] == "opened").unwrap();
    let mut responses = String::new();
    let mut count = 0;
    for event in &examples {
        let name: &'static str = event["name"].as_str().unwrap().to_owned().leak();
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for payload in event["examples"].as_array().unwrap() {
            count += 1;
            let action = payload["action"].as_str().map(|action| format!(".{action}")).unwrap_or_default();
            let nth = seen.entry(action.clone()).or_default();
            *nth += 1;
            let id = format!("{name}{action}-{nth}");
            let harness = harness_with_open_prs(opened).await;
            let response = harness.deliver(&Delivery { event: name, id: id.clone(), payload: payload.clone() }).await;
            assert!(response.code < 500, "{id}: {response:?}");
            writeln!(responses, "{id}: {} {}", response.code, response.outcome).unwrap();
        }
    }
    assert_eq!(count, 329);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("webhook/examples.txt");
    let reviewed = fs::read_to_string(&path).unwrap_or_default();
    if responses != reviewed {
        let new = path.with_extension("txt.new");
        fs::write(&new, &responses).unwrap();
        let differs = responses.lines().zip(reviewed.lines()).find(|(now, then)| now != then);
        panic!("first difference: {differs:?}; read {} and move it to examples.txt", new.display());
    }
}

/// Removed or mistyped fields never cause a 5xx.
#[tokio::test]
async fn broken_examples_never_return_5xx() {
    let handled_events = [
        "pull_request",
        "check_run",
        "check_suite",
        "status",
        "pull_request_review",
        "pull_request_review_comment",
        "issue_comment",
        "push",
    ];
    // One example per action is enough: actions share a parser.
    let actions = ["opened", "synchronize", "closed", "created", "completed", "requested", "submitted", ""];
    for event in examples() {
        let name: &'static str = event["name"].as_str().unwrap().to_owned().leak();
        if !handled_events.contains(&name) {
            continue;
        }
        let harness = Harness::new(CONFIG);
        let mut seen = BTreeSet::new();
        for payload in event["examples"].as_array().unwrap() {
            let action = payload["action"].as_str().unwrap_or_default();
            if !actions.contains(&action) || !seen.insert(action) {
                continue;
            }
            for (n, (what, broken)) in broken(payload).into_iter().enumerate() {
                let response =
                    harness.deliver(&Delivery { event: name, id: format!("{action}-{n}"), payload: broken }).await;
                assert!(response.code == 200 || response.code == 400, "{name}.{action} {what}: {response:?}");
            }
        }
        assert!(!seen.is_empty(), "{name}");
    }
}

/// The payload with each field, two levels deep, set to null, given another type, or removed.
fn broken(payload: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let fields: Vec<String> = payload.as_object().unwrap().keys().map(|key| format!("/{key}")).collect();
    let inner = fields.iter().flat_map(|field| {
        let object = payload.pointer(field).and_then(Value::as_object);
        object.into_iter().flat_map(move |object| object.keys().map(move |key| format!("{field}/{key}")))
    });
    // URLs are never read.
    for pointer in fields.iter().cloned().chain(inner).filter(|pointer| !pointer.ends_with("url")) {
        for value in [Value::Null, Value::from(vec![Value::Null])] {
            let mut changed = payload.clone();
            if let Some(place) = changed.pointer_mut(&pointer) {
                *place = value;
            }
            all.push((pointer.clone(), changed));
        }
        let mut missing = payload.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        if let Some(object) = missing.pointer_mut(parent).and_then(Value::as_object_mut) {
            object.remove(key);
        }
        all.push((pointer, missing));
    }
    all
}
