//! Commands by the API: idempotency keys, validation and sweep requests.

use domain::command::{Command, CommandSource};
use domain::reconcile_request::ReconcileRequest;
use platform::publish::queue_message::QueueMessage;
use platform::publish::{Destination, OutboundMessage};
use platform::store::Store as _;
use platform::store::schema;
use serde_json::json;
use tests::{minute, pr};

use crate::harness::{Caller, Harness};
use crate::seed_records;

const COMMAND: &str = "/api/pr/shop/1/command";
const REBUILD: &str = r#"{"command":"/rebuild"}"#;

fn commands(messages: &[OutboundMessage]) -> Vec<domain::command::CommandMessage> {
    let command = |message: &OutboundMessage| match &message.destination {
        Destination::Queue { message: QueueMessage::Command(command), .. } => Some(command.clone()),
        Destination::Queue { .. } | Destination::Bus { .. } | Destination::Notice(_) => None,
    };
    messages.iter().filter_map(command).collect()
}

#[tokio::test]
async fn command_is_queued_before_the_response() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let response = harness.post(Caller::Operator, COMMAND, r#"{"command":"/REBUILD","args":" flaky "}"#).await;
    assert_eq!(response.status, 202, "{}", response.text);
    let sent = commands(&harness.publisher().sent());
    let [message] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((message.command, message.source, message.pr()), (Command::Rebuild, CommandSource::AdminApi, pr(1)));
    assert_eq!((message.requested_by.as_str(), message.args.as_deref()), ("operator", Some("flaky")));
    let json = response.json();
    assert_eq!((&json["command_id"], &json["run_id"]), (&json!(message.command_id), &json!(message.command_id)));
    assert_eq!(harness.post(Caller::Operator, COMMAND, r#"{"command":"/hold"}"#).await.json()["run_id"], json!(null));
    harness.publisher().set_down(true);
    let down = harness.post(Caller::Operator, COMMAND, REBUILD).await;
    assert_eq!(down.problem(), (503, "UNAVAILABLE".to_owned()));
    assert_eq!(down.header("retry-after"), "5");
}

#[tokio::test]
async fn repeated_idempotency_key_returns_the_first_response() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let first = harness.post_with_key(Caller::Operator, COMMAND, REBUILD, Some("k1")).await;
    let again = harness.post_with_key(Caller::Operator, COMMAND, REBUILD, Some("k1")).await;
    assert_eq!((first.status, &first.text), (202, &again.text));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    assert_eq!(commands(&harness.publisher().sent()).len(), 1);
    let other = harness.post_with_key(Caller::Operator, COMMAND, r#"{"command":"/hold"}"#, Some("k1")).await;
    assert_eq!(other.problem(), (409, "IDEMPOTENCY_CONFLICT".to_owned()));
    let elsewhere = harness.post_with_key(Caller::Operator, "/api/pr/shop/2/command", REBUILD, Some("k1")).await;
    assert_eq!(elsewhere.problem(), (409, "IDEMPOTENCY_CONFLICT".to_owned()), "the path is part of the request");
    let mine = harness.post_with_key(Caller::Admin, COMMAND, REBUILD, Some("k1")).await;
    assert_eq!(mine.status, 202, "keys are scoped to the caller");
    assert_ne!(mine.json()["command_id"], first.json()["command_id"]);
    for bad in ["", "ü", "two words", &"x".repeat(201)] {
        let response = harness.post_with_key(Caller::Operator, COMMAND, REBUILD, Some(bad)).await;
        assert_eq!(response.problem(), (400, "BAD_IDEMPOTENCY_KEY".to_owned()), "{bad}");
    }
}

#[tokio::test]
async fn retry_with_the_same_key_sends_the_same_command() {
    let harness = Harness::new();
    seed_records(&harness).await;
    harness.publisher().set_down(true);
    assert_eq!(harness.post_with_key(Caller::Operator, COMMAND, REBUILD, Some("k2")).await.status, 503);
    harness.publisher().set_down(false);
    harness.clock.set(minute(21));
    let done = harness.post_with_key(Caller::Operator, COMMAND, REBUILD, Some("k2")).await;
    assert_eq!(done.status, 202, "{}", done.text);
    let sent = commands(&harness.publisher().sent());
    // The event log deduplicates by id and time, so the retry must send those of the first attempt.
    assert_eq!((sent[0].timestamp, json!(sent[0].command_id)), (minute(20), done.json()["command_id"].clone()));
}

#[tokio::test]
async fn concurrent_request_with_the_same_key_returns_202() {
    use admin::idempotency::{IdempotencyKey, claim};
    let harness = Harness::new();
    seed_records(&harness).await;
    let whole = [COMMAND.as_bytes(), b"\n", REBUILD.as_bytes()].concat();
    claim(harness.store(), &IdempotencyKey::api("operator", "k3"), &whole, minute(20)).await.unwrap();
    let response = harness.post_with_key(Caller::Operator, COMMAND, REBUILD, Some("k3")).await;
    assert_eq!((response.status, &response.json()["status"]), (202, &json!("processing")));
    assert_eq!(harness.publisher().sent(), []);
}

#[tokio::test]
async fn invalid_command_is_refused_with_the_valid_ones() {
    let harness = Harness::new();
    seed_records(&harness).await;
    for (path, body, status, code, expected) in [
        (COMMAND, r#"{"command":"/rebiuld"}"#, 400, "UNKNOWN_COMMAND", "did you mean `/rebuild`?"),
        (COMMAND, r#"{"command":"rm -rf"}"#, 400, "UNKNOWN_COMMAND", "The commands are: `/rebuild`"),
        (COMMAND, r#"{"command":"/merge"}"#, 409, "COMMAND_NOT_POSSIBLE", "Valid now: `/rebuild`"),
        (COMMAND, r#"{"command":"/status"}"#, 400, "COMMAND_IS_READ_ONLY", "GET …/status"),
        (COMMAND, r#"{"command":7}"#, 400, "BAD_JSON", "expected a string"),
        (COMMAND, r#"{"command""#, 400, "BAD_JSON", "Invalid JSON body"),
        (COMMAND, "", 400, "BAD_JSON", "Invalid JSON body"),
        (COMMAND, "[]", 400, "BAD_JSON", "Invalid JSON body"),
        (COMMAND, "[\"/rebuild\"]", 400, "BAD_JSON", "got an array"),
        ("/api/pause", "[]", 400, "BAD_JSON", "got an array"),
        ("/api/pr/shop/3/command", REBUILD, 409, "COMMAND_NOT_POSSIBLE", "this one is merged"),
        ("/api/pr/shop/99/command", REBUILD, 404, "NOT_FOUND", "acme/shop#99"),
        ("/api/pr/nothing/1/command", REBUILD, 404, "NOT_FOUND", "acme/nothing#1"),
        ("/api/reconciler/run", r#"{"pr_number":1}"#, 400, "BAD_REQUEST", "`pr_number` needs a `repo`"),
        ("/api/reconciler/run", r#"{"repo":"shop","pr_number":99}"#, 404, "NOT_FOUND", "acme/shop#99"),
        ("/api/reconciler/run", r#"{"base":"main"}"#, 400, "BAD_REQUEST", "`base` needs a `repo`"),
        ("/api/reconciler/run", r#"{"repo":"shop","base":""}"#, 400, "BAD_REQUEST", "1 to 255 characters"),
        ("/api/reconciler/run", r#"{"repo":"shop","pr_number":1,"base":"main"}"#, 400, "BAD_REQUEST", "not both"),
        ("/api/reconciler/run", r#"{"dry":true}"#, 400, "BAD_JSON", "unknown field"),
        ("/api/reconciler/run", r#"{"repo":"shop","pr_number":99.0}"#, 404, "NOT_FOUND", "acme/shop#99"),
        ("/api/reconciler/run", r#"{"repo":"shop","pr_number":0}"#, 400, "BAD_JSON", "0 is not a pull request number"),
        (
            "/api/reconciler/run",
            r#"{"repo":"shop","pr_number":1.5}"#,
            400,
            "BAD_JSON",
            "1.5 is not a pull request number",
        ),
        (
            "/api/reconciler/run",
            r#"{"repo":"shop","pr_number":-1.0}"#,
            400,
            "BAD_JSON",
            "-1.0 is not a pull request number",
        ),
        ("/api/reconciler/run", r#"{"repo":"shop","pr_number":1e15}"#, 400, "BAD_JSON", "is not a pull request number"),
        ("/api/runs/none/cancel", "", 404, "NOT_FOUND", "No such run"),
        ("/api/dlq/redrive", "", 404, "NO_DLQ", "SUTURE_DLQ_URL"),
    ] {
        let response = harness.post(Caller::Admin, path, body).await;
        assert_eq!(response.problem(), (status, code.to_owned()), "{path} {body} {}", response.text);
        assert!(response.text.contains(expected), "{path} {body} {}", response.text);
    }
    assert_eq!(harness.publisher().sent(), []);
}

#[tokio::test]
async fn acting_commands_are_refused_while_paused() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let paused = harness.post(Caller::Admin, "/api/pause", r#"{"reason":"Jenkins moves"}"#).await.json();
    assert_eq!(paused, json!({"paused": {"by": "admin (Jenkins moves)"}}));
    let refused = harness.post(Caller::Operator, COMMAND, REBUILD).await;
    assert_eq!(refused.problem(), (409, "PAUSED".to_owned()));
    assert_eq!(harness.post(Caller::Operator, COMMAND, r#"{"command":"/hold"}"#).await.status, 202);
    assert_eq!(harness.get(Caller::Viewer, "/api/overview").await.json()["paused"]["by"], "admin (Jenkins moves)");
    assert_eq!(harness.post(Caller::Admin, "/api/unpause", "").await.json(), json!({"paused": null}));
    assert_eq!(harness.post(Caller::Operator, COMMAND, REBUILD).await.status, 202);
}

#[tokio::test]
async fn batch_accepts_at_most_100_commands() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let batch = |count: usize| {
        let item = |n: usize| match n % 4 {
            0 => json!({"repo": "shop", "pr_number": 1, "command": "/rebuild"}),
            1 => json!({"repo": "acme/web", "pr_number": 1, "command": "/hold", "args": "why"}),
            2 => json!({"repo": "../etc", "pr_number": 1, "command": "/hold"}),
            _ => json!({"repo": "shop", "pr_number": 1, "command": "/nonsense"}),
        };
        serde_json::to_string(&(0..count).map(item).collect::<Vec<_>>()).unwrap()
    };
    let response = harness.post_with_key(Caller::Operator, "/api/commands", &batch(100), Some("b1")).await;
    assert_eq!(response.status, 207);
    let results = response.json()["results"].as_array().unwrap().clone();
    let of = |n: usize| (results[n]["status"].as_u64().unwrap(), results[n]["code"].as_str().unwrap_or("").to_owned());
    assert_eq!(results.len(), 100);
    assert_eq!([of(0).0, of(1).0, of(2).0, of(3).0], [202, 202, 400, 400]);
    assert_eq!((of(2).1.as_str(), of(3).1.as_str()), ("BAD_REPO", "UNKNOWN_COMMAND"));
    let sent = commands(&harness.publisher().sent());
    let ids: std::collections::BTreeSet<_> = sent.iter().map(|message| message.command_id.clone()).collect();
    assert_eq!((sent.len(), ids.len()), (50, 50), "each is a separate command");
    let again = harness.post_with_key(Caller::Operator, "/api/commands", &batch(100), Some("b1")).await;
    assert_eq!((again.text, harness.publisher().sent().len()), (response.text, 50));
    for count in [0, 101] {
        let refused = harness.post(Caller::Operator, "/api/commands", &batch(count)).await;
        assert_eq!(refused.problem(), (400, "BAD_BATCH".to_owned()));
    }
}

#[tokio::test]
async fn sweep_request_is_stored_before_it_is_published() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let body = r#"{"repo":"shop","pr_number":1,"dry_run":true}"#;
    let accepted = harness.post_with_key(Caller::Operator, "/api/reconciler/run", body, Some("s1")).await.json();
    let id = accepted["run_id"].as_str().unwrap();
    let run = harness.get(Caller::Viewer, &format!("/api/runs/{id}")).await.json();
    assert_eq!(
        (&run["state"], &run["kind"], &run["requested_by"]),
        (&json!("pending"), &json!("sweep"), &json!("operator"))
    );
    let sent = harness.publisher().sent();
    let [OutboundMessage { destination: Destination::Bus { detail_type, detail }, .. }] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    assert_eq!(detail_type.name(), "ReconcileRequested");
    let detail: serde_json::Value = serde_json::from_str(detail).unwrap();
    let expected = json!({"repo": "acme/shop", "pr_number": 1, "base": null, "dry_run": true, "run_id": id, "requested_by": "operator"});
    assert_eq!(detail, expected);
    // The request is durable without the bus: it has a due date, and the next sweep finds it.
    harness.publisher().set_down(true);
    let silent = harness.post(Caller::Operator, "/api/reconciler/run", "").await;
    assert_eq!(silent.status, 202);
    let key = schema::request_key("all");
    let row = harness.store().get(&key, minute(20)).await.unwrap().unwrap();
    let request: ReconcileRequest = schema::read(&key, &row).unwrap();
    assert_eq!(request.waiting().unwrap().run.as_str(), silent.json()["run_id"]);
    assert_eq!(request.due_at(), Some(minute(20)));
}

#[tokio::test]
async fn repeated_sweep_requests_are_coalesced() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let body = r#"{"repo":"SHOP","pr_number":1}"#;
    let ask = async || {
        harness.post(Caller::Operator, "/api/reconciler/run", body).await.json()["run_id"].as_str().unwrap().to_owned()
    };
    let first = ask().await;
    harness.clock.set(minute(21));
    let second = ask().await;
    let run = async |id: &str| harness.get(Caller::Viewer, &format!("/api/runs/{id}")).await.json();
    assert_eq!(run(&first).await["outcome"], json!(format!("superseded by `{second}`")));
    assert_eq!((&run(&first).await["state"], &run(&second).await["state"]), (&json!("cancelled"), &json!("pending")));
    // A base branch and a dry run are different requests.
    let base = harness.post(Caller::Operator, "/api/reconciler/run", r#"{"repo":"shop","base":"main"}"#).await.json();
    let dry =
        harness.post(Caller::Operator, "/api/reconciler/run", r#"{"repo":"shop","pr_number":1,"dry_run":true}"#).await;
    assert_eq!((dry.status, &run(&second).await["state"]), (202, &json!("pending")));
    assert_eq!(run(base["run_id"].as_str().unwrap()).await["state"], "pending");
    let row =
        platform::reconcile_request::load(harness.store(), "base:acme/shop#main", minute(21)).await.unwrap().unwrap();
    assert_eq!(row.waiting().unwrap().requested_by.as_deref(), Some("operator"));
}

#[tokio::test]
async fn sweep_request_over_the_daily_limit_is_refused() {
    let policies = domain::policy::Policies::parse("mode = \"act\"\ntriggers.per_repo_per_day = 2").unwrap();
    let options = crate::harness::Options { policies, ..crate::harness::Options::default() };
    let harness = Harness::on(testbed::MemoryStore::new(), options);
    seed_records(&harness).await;
    let ask = async |body: &str| harness.post(Caller::Operator, "/api/reconciler/run", body).await;
    assert_eq!(ask(r#"{"repo":"shop","pr_number":1}"#).await.status, 202);
    assert_eq!(ask(r#"{"repo":"shop","pr_number":1}"#).await.status, 202, "it is coalesced with the pending request");
    assert_eq!(ask(r#"{"repo":"shop","base":"main"}"#).await.status, 202);
    let refused = ask(r#"{"repo":"shop"}"#).await;
    assert_eq!(refused.problem(), (429, "TOO_MANY_REQUESTS_TODAY".to_owned()));
    assert!(refused.text.contains("left to the schedule"), "{}", refused.text);
    assert_eq!(ask("{}").await.status, 202, "a sweep of everything is exempt");
}
