//! What people want done: once for each name, and only what makes sense.

use domain::command::{Command, CommandSource};
use domain::reconcile_request::ReconcileRequest;
use platform::publish::queue_message::QueueMessage;
use platform::publish::{Destination, OutboundMessage};
use platform::schema;
use platform::store::Store as _;
use serde_json::json;
use tests::{minute, pr};

use crate::furnished;
use crate::harness::{Counter, Who};

const COMMAND: &str = "/api/pr/shop/1/command";
const REBUILD: &str = r#"{"command":"/rebuild"}"#;

fn commands(parcels: &[OutboundMessage]) -> Vec<domain::command::CommandMessage> {
    let command = |parcel: &OutboundMessage| match &parcel.destination {
        Destination::Queue { message: QueueMessage::Command(command), .. } => Some(command.clone()),
        Destination::Queue { .. } | Destination::Bus { .. } | Destination::Notice(_) => None,
    };
    parcels.iter().filter_map(command).collect()
}

#[tokio::test]
async fn command_is_queued_before_the_response() {
    let counter = Counter::new();
    furnished(&counter).await;
    let answer = counter.post(Who::Operator, COMMAND, r#"{"command":"/REBUILD","args":" flaky "}"#).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let sent = commands(&counter.outlets().sent());
    let [message] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((message.command, message.source, message.pr()), (Command::Rebuild, CommandSource::AdminApi, pr(1)));
    assert_eq!((message.requested_by.as_str(), message.args.as_deref()), ("operator", Some("flaky")));
    let json = answer.json();
    assert_eq!((&json["command_id"], &json["run_id"]), (&json!(message.command_id), &json!(message.command_id)));
    assert_eq!(counter.post(Who::Operator, COMMAND, r#"{"command":"/hold"}"#).await.json()["run_id"], json!(null));
    counter.outlets().set_down(true);
    let down = counter.post(Who::Operator, COMMAND, REBUILD).await;
    assert_eq!(down.problem(), (503, "UNAVAILABLE".to_owned()));
    assert_eq!(down.header("retry-after"), "5");
}

#[tokio::test]
async fn repeated_idempotency_key_returns_the_first_response() {
    let counter = Counter::new();
    furnished(&counter).await;
    let first = counter.post_named(Who::Operator, COMMAND, REBUILD, Some("k1")).await;
    let again = counter.post_named(Who::Operator, COMMAND, REBUILD, Some("k1")).await;
    assert_eq!((first.status, &first.text), (202, &again.text));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    assert_eq!(commands(&counter.outlets().sent()).len(), 1);
    let other = counter.post_named(Who::Operator, COMMAND, r#"{"command":"/hold"}"#, Some("k1")).await;
    assert_eq!(other.problem(), (409, "IDEMPOTENCY_CONFLICT".to_owned()));
    let elsewhere = counter.post_named(Who::Operator, "/api/pr/shop/2/command", REBUILD, Some("k1")).await;
    assert_eq!(elsewhere.problem(), (409, "IDEMPOTENCY_CONFLICT".to_owned()), "the path is part of the request");
    let mine = counter.post_named(Who::Admin, COMMAND, REBUILD, Some("k1")).await;
    assert_eq!(mine.status, 202, "names are each caller's own");
    assert_ne!(mine.json()["command_id"], first.json()["command_id"]);
    for bad in ["", "ü", "two words", &"x".repeat(201)] {
        let answer = counter.post_named(Who::Operator, COMMAND, REBUILD, Some(bad)).await;
        assert_eq!(answer.problem(), (400, "BAD_IDEMPOTENCY_KEY".to_owned()), "{bad}");
    }
}

#[tokio::test]
async fn retry_with_the_same_key_sends_the_same_command() {
    let counter = Counter::new();
    furnished(&counter).await;
    counter.outlets().set_down(true);
    assert_eq!(counter.post_named(Who::Operator, COMMAND, REBUILD, Some("k2")).await.status, 503);
    counter.outlets().set_down(false);
    counter.clock.set(minute(21));
    let done = counter.post_named(Who::Operator, COMMAND, REBUILD, Some("k2")).await;
    assert_eq!(done.status, 202, "{}", done.text);
    let sent = commands(&counter.outlets().sent());
    // The log tells a repetition by its id and its time; both are those of the first try.
    assert_eq!((sent[0].timestamp, json!(sent[0].command_id)), (minute(20), done.json()["command_id"].clone()));
}

#[tokio::test]
async fn concurrent_request_with_the_same_key_returns_202() {
    use admin::idempotency::{IdempotencyKey, claim};
    let counter = Counter::new();
    furnished(&counter).await;
    let whole = [COMMAND.as_bytes(), b"\n", REBUILD.as_bytes()].concat();
    claim(counter.store(), &IdempotencyKey::api("operator", "k3"), &whole, minute(20)).await.unwrap();
    let answer = counter.post_named(Who::Operator, COMMAND, REBUILD, Some("k3")).await;
    assert_eq!((answer.status, &answer.json()["status"]), (202, &json!("processing")));
    assert_eq!(counter.outlets().sent(), []);
}

#[tokio::test]
async fn invalid_command_is_refused_with_the_valid_ones() {
    let counter = Counter::new();
    furnished(&counter).await;
    for (path, body, status, code, said) in [
        (COMMAND, r#"{"command":"/rebiuld"}"#, 400, "UNKNOWN_COMMAND", "did you mean `/rebuild`?"),
        (COMMAND, r#"{"command":"rm -rf"}"#, 400, "UNKNOWN_COMMAND", "The commands are: `/rebuild`"),
        (COMMAND, r#"{"command":"/merge"}"#, 409, "COMMAND_NOT_POSSIBLE", "Valid now: `/rebuild`"),
        (COMMAND, r#"{"command":"/status"}"#, 400, "COMMAND_IS_A_QUESTION", "GET …/status"),
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
        ("/api/runs/none/cancel", "", 404, "NOT_FOUND", "no such run"),
        ("/api/dlq/redrive", "", 404, "NO_DLQ", "SUTURE_DLQ_URL"),
    ] {
        let answer = counter.post(Who::Admin, path, body).await;
        assert_eq!(answer.problem(), (status, code.to_owned()), "{path} {body} {}", answer.text);
        assert!(answer.text.contains(said), "{path} {body} {}", answer.text);
    }
    assert_eq!(counter.outlets().sent(), []);
}

#[tokio::test]
async fn acting_commands_are_refused_while_paused() {
    let counter = Counter::new();
    furnished(&counter).await;
    let paused = counter.post(Who::Admin, "/api/pause", r#"{"reason":"Jenkins moves"}"#).await.json();
    assert_eq!(paused, json!({"paused": {"by": "admin (Jenkins moves)"}}));
    let refused = counter.post(Who::Operator, COMMAND, REBUILD).await;
    assert_eq!(refused.problem(), (409, "PAUSED".to_owned()));
    assert_eq!(counter.post(Who::Operator, COMMAND, r#"{"command":"/hold"}"#).await.status, 202);
    assert_eq!(counter.get(Who::Viewer, "/api/overview").await.json()["paused"]["by"], "admin (Jenkins moves)");
    assert_eq!(counter.post(Who::Admin, "/api/unpause", "").await.json(), json!({"paused": null}));
    assert_eq!(counter.post(Who::Operator, COMMAND, REBUILD).await.status, 202);
}

#[tokio::test]
async fn batch_accepts_at_most_100_commands() {
    let counter = Counter::new();
    furnished(&counter).await;
    let batch = |count: usize| {
        let item = |n: usize| match n % 4 {
            0 => json!({"repo": "shop", "pr_number": 1, "command": "/rebuild"}),
            1 => json!({"repo": "acme/web", "pr_number": 1, "command": "/hold", "args": "why"}),
            2 => json!({"repo": "../etc", "pr_number": 1, "command": "/hold"}),
            _ => json!({"repo": "shop", "pr_number": 1, "command": "/nonsense"}),
        };
        serde_json::to_string(&(0..count).map(item).collect::<Vec<_>>()).unwrap()
    };
    let answer = counter.post_named(Who::Operator, "/api/commands", &batch(100), Some("b1")).await;
    assert_eq!(answer.status, 207);
    let results = answer.json()["results"].as_array().unwrap().clone();
    let of = |n: usize| (results[n]["status"].as_u64().unwrap(), results[n]["code"].as_str().unwrap_or("").to_owned());
    assert_eq!(results.len(), 100);
    assert_eq!([of(0).0, of(1).0, of(2).0, of(3).0], [202, 202, 400, 400]);
    assert_eq!((of(2).1.as_str(), of(3).1.as_str()), ("BAD_REPO", "UNKNOWN_COMMAND"));
    let sent = commands(&counter.outlets().sent());
    let ids: std::collections::BTreeSet<_> = sent.iter().map(|message| message.command_id.clone()).collect();
    assert_eq!((sent.len(), ids.len()), (50, 50), "each is a command of its own");
    let again = counter.post_named(Who::Operator, "/api/commands", &batch(100), Some("b1")).await;
    assert_eq!((again.text, counter.outlets().sent().len()), (answer.text, 50));
    for count in [0, 101] {
        let refused = counter.post(Who::Operator, "/api/commands", &batch(count)).await;
        assert_eq!(refused.problem(), (400, "BAD_BATCH".to_owned()));
    }
}

#[tokio::test]
async fn sweep_request_is_stored_before_it_is_published() {
    let counter = Counter::new();
    furnished(&counter).await;
    let body = r#"{"repo":"shop","pr_number":1,"dry_run":true}"#;
    let asked = counter.post_named(Who::Operator, "/api/reconciler/run", body, Some("s1")).await.json();
    let id = asked["run_id"].as_str().unwrap();
    let run = counter.get(Who::Viewer, &format!("/api/runs/{id}")).await.json();
    assert_eq!(
        (&run["state"], &run["kind"], &run["requested_by"]),
        (&json!("pending"), &json!("sweep"), &json!("operator"))
    );
    let sent = counter.outlets().sent();
    let [OutboundMessage { destination: Destination::Bus { detail_type, detail }, .. }] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    assert_eq!(detail_type.name(), "ReconcileRequested");
    let detail: serde_json::Value = serde_json::from_str(detail).unwrap();
    let said = json!({"repo": "acme/shop", "pr_number": 1, "base": null, "dry_run": true, "run_id": id, "requested_by": "operator"});
    assert_eq!(detail, said);
    // Without the bus it is durable all the same: its request has a date, and the next sweep finds it.
    counter.outlets().set_down(true);
    let silent = counter.post(Who::Operator, "/api/reconciler/run", "").await;
    assert_eq!(silent.status, 202);
    let key = schema::request_key("all");
    let row = counter.store().get(&key, minute(20)).await.unwrap().unwrap();
    let request: ReconcileRequest = schema::read(&key, &row).unwrap();
    assert_eq!(request.waiting().unwrap().run.as_str(), silent.json()["run_id"]);
    assert_eq!(request.due_at(), Some(minute(20)));
}

#[tokio::test]
async fn repeated_sweep_requests_are_coalesced() {
    let counter = Counter::new();
    furnished(&counter).await;
    let body = r#"{"repo":"SHOP","pr_number":1}"#;
    let ask = async || {
        counter.post(Who::Operator, "/api/reconciler/run", body).await.json()["run_id"].as_str().unwrap().to_owned()
    };
    let first = ask().await;
    counter.clock.set(minute(21));
    let second = ask().await;
    let run = async |id: &str| counter.get(Who::Viewer, &format!("/api/runs/{id}")).await.json();
    assert_eq!(run(&first).await["outcome"], json!(format!("superseded by `{second}`")));
    assert_eq!((&run(&first).await["state"], &run(&second).await["state"]), (&json!("cancelled"), &json!("pending")));
    // A base branch is another thing, and so is a dry run.
    let base = counter.post(Who::Operator, "/api/reconciler/run", r#"{"repo":"shop","base":"main"}"#).await.json();
    let dry =
        counter.post(Who::Operator, "/api/reconciler/run", r#"{"repo":"shop","pr_number":1,"dry_run":true}"#).await;
    assert_eq!((dry.status, &run(&second).await["state"]), (202, &json!("pending")));
    assert_eq!(run(base["run_id"].as_str().unwrap()).await["state"], "pending");
    let row =
        platform::reconcile_request::load(counter.store(), "base:acme/shop#main", minute(21)).await.unwrap().unwrap();
    assert_eq!(row.waiting().unwrap().requested_by.as_deref(), Some("operator"));
}

#[tokio::test]
async fn sweep_request_over_the_daily_limit_is_refused() {
    let policies = domain::policy::Policies::parse("mode = \"act\"\ntriggers.per_repo_per_day = 2").unwrap();
    let options = crate::harness::Options { policies, ..crate::harness::Options::default() };
    let counter = Counter::on(testbed::MemoryStore::new(), options);
    furnished(&counter).await;
    let ask = async |body: &str| counter.post(Who::Operator, "/api/reconciler/run", body).await;
    assert_eq!(ask(r#"{"repo":"shop","pr_number":1}"#).await.status, 202);
    assert_eq!(ask(r#"{"repo":"shop","pr_number":1}"#).await.status, 202, "it stands for the one that waits");
    assert_eq!(ask(r#"{"repo":"shop","base":"main"}"#).await.status, 202);
    let refused = ask(r#"{"repo":"shop"}"#).await;
    assert_eq!(refused.problem(), (429, "TOO_MANY_REQUESTS_TODAY".to_owned()));
    assert!(refused.text.contains("left to the schedule"), "{}", refused.text);
    assert_eq!(ask("{}").await.status, 202, "everything is exempt");
}
