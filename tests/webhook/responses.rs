//! Authentication, rejected requests and the log line of each request.

use std::collections::BTreeMap;

use http::Method;
use serde_json::json;
use webhook::signature::sign;

use crate::harness::{CONFIG, Harness, SECRET, pull, status};

const PATH: &str = "/webhook/github";

#[tokio::test]
async fn signature_rejects_any_flipped_bit() {
    // The body of GitHub's published test vector is not JSON: the signature is valid, the payload is malformed.
    let harness = Harness::new(CONFIG);
    let signature = sign(SECRET, b"Hello, World!");
    let headers =
        |signature| [("x-hub-signature-256", signature), ("x-github-event", "ping"), ("x-github-delivery", "d")];
    let response = harness.request(Method::POST, PATH, &headers(&signature), b"Hello, World!").await;
    assert_eq!((response.code, response.outcome.as_str()), (400, "WEBHOOK_MALFORMED"));
    for bit in 0..13 * 8 {
        let mut body = b"Hello, World!".to_vec();
        body[bit / 8] ^= 1 << (bit % 8);
        let response = harness.request(Method::POST, PATH, &headers(&signature), &body).await;
        assert_eq!((response.code, response.outcome.as_str()), (401, "SIGNATURE_INVALID"), "bit {bit}");
    }
}

#[tokio::test]
async fn rejected_request_returns_a_code_and_logs_at_most_300_bytes() {
    let harness = Harness::new(CONFIG);
    let body = br#"{"password":"do not log me"}"#;
    let signature = sign(SECRET, body);
    let large = vec![b' '; webhook::MAX_BODY_BYTES + 1];
    let good = ("x-hub-signature-256", signature.as_str());
    let (event, delivery) = (("x-github-event", "push"), ("x-github-delivery", "d"));
    let long_path = format!("/webhook/{}", "x".repeat(2000));
    let long_id = "x".repeat(2000);
    let post = Method::POST;
    type Case<'a> = (Method, &'a str, Vec<(&'a str, &'a str)>, &'a [u8], u16, &'a str);
    let cases: Vec<Case<'_>> = vec![
        (post.clone(), "/", vec![], body, 404, "NOT_FOUND"),
        (post.clone(), "/webhook/gitlab", vec![good], body, 404, "NOT_FOUND"),
        (post.clone(), &long_path, vec![good], body, 404, "NOT_FOUND"),
        (Method::GET, PATH, vec![good], body, 405, "METHOD_NOT_ALLOWED"),
        (post.clone(), PATH, vec![good, event, delivery], &large, 413, "PAYLOAD_TOO_LARGE"),
        (post.clone(), PATH, vec![event, delivery], body, 401, "SIGNATURE_INVALID"),
        (post.clone(), PATH, vec![("x-hub-signature-256", "sha256=00"), event], body, 401, "SIGNATURE_INVALID"),
        (
            post.clone(),
            PATH,
            vec![("authorization", "Bearer a secret"), event, delivery],
            body,
            401,
            "SIGNATURE_INVALID",
        ),
        (post.clone(), PATH, vec![good, delivery], body, 400, "WEBHOOK_MALFORMED"),
        (post.clone(), PATH, vec![good, event], body, 400, "WEBHOOK_MALFORMED"),
        (post.clone(), PATH, vec![good, event, ("x-github-delivery", "a#b")], body, 400, "WEBHOOK_MALFORMED"),
        (post.clone(), PATH, vec![good, event, ("x-github-delivery", &long_id)], body, 400, "WEBHOOK_MALFORMED"),
        (post.clone(), PATH, vec![good, ("x-github-event", "pull_request"), delivery], body, 400, "WEBHOOK_MALFORMED"),
        (
            post.clone(),
            "/webhook/jenkins",
            vec![("authorization", "Bearer policy-bot-new")],
            body,
            401,
            "TOKEN_INVALID",
        ),
        (post.clone(), "/webhook/jenkins", vec![], body, 401, "SIGNATURE_INVALID"),
        (
            post.clone(),
            "/webhook/bot",
            vec![("authorization", "Bearer policy-bot-new")],
            body,
            401,
            "SIGNATURE_INVALID",
        ),
        (
            post.clone(),
            "/webhook/bot",
            vec![("authorization", "Bearer policy-bot-new")],
            br#"{"bot":"policy-bot"}"#,
            400,
            "WEBHOOK_MALFORMED",
        ),
    ];
    for (method, path, headers, body, code, outcome) in cases {
        let response = harness.request(method, path, &headers, body).await;
        assert_eq!((response.code, response.outcome.as_str()), (code, outcome), "{path}: {response:?}");
        let line = harness.raw_line();
        assert!(line.len() <= 300, "{} bytes: {line}", line.len());
        assert!(!line.contains("do not log me") && !response.reason.contains("do not log me"), "{line}");
        let counter = if code == 401 { "unauthorized" } else { "rejected" };
        assert_eq!((&harness.line()[counter], &harness.line()["code"]), (&json!(1), &json!(outcome)));
    }
}

#[tokio::test]
async fn path_may_start_with_the_api_stage() {
    let harness = Harness::new(CONFIG);
    let body = br#"{"hook":{"events":["*"]}}"#;
    let signature = sign(SECRET, body);
    let headers = [("x-hub-signature-256", signature.as_str()), ("x-github-event", "ping"), ("x-github-delivery", "d")];
    let response = harness.request(Method::POST, "/prod/webhook/github", &headers, body).await;
    assert_eq!((response.code, response.outcome.as_str()), (200, "ignored"));
}

#[tokio::test]
async fn log_line_has_all_fields() {
    let harness = Harness::new(CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.expect(&status('a', crate::harness::JENKINS, "pending", "", 1), "applied").await;
    let line = harness.line();
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(text("event"), "status");
    assert_eq!(text("delivery"), "status-a-continuous-integration-jenkins-pr-merge-pending-1");
    assert_eq!((text("repo").as_str(), line["pr"].as_u64()), ("acme/shop", Some(42)));
    assert_eq!((text("from").as_str(), text("to").as_str()), ("CREATED", "CHECKS_RUNNING"));
    assert_eq!((text("status").as_str(), text("function").as_str()), ("applied", "webhook"));
    assert!(text("reason").contains("CHECK_REPORTED: CREATED → CHECKS_RUNNING"), "{line}");
    assert!(line["ms"].is_u64() && line["applied"] == json!(1));
    let metrics = &line["_aws"]["CloudWatchMetrics"][0]["Metrics"];
    let names: Vec<&str> = metrics.as_array().unwrap().iter().map(|metric| metric["Name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ms", "applied"]);
}

#[tokio::test]
async fn delivery_returns_503_when_the_store_is_down() {
    let harness = Harness::new(CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.store().faults.fail_calls("", true);
    for delivery in [pull(43, "opened", 'a', 0), status('a', crate::harness::JENKINS, "pending", "", 1)] {
        let response = harness.deliver(&delivery).await;
        assert_eq!((response.code, response.outcome.as_str()), (503, "TEMPORARILY_UNAVAILABLE"));
        assert_eq!((&harness.line()["failed"], &harness.line()["level"]), (&json!(1), &json!("ERROR")));
    }
    // A ping needs no store.
    let ping = crate::harness::Delivery { event: "ping", id: "p".to_owned(), payload: json!({}) };
    harness.expect(&ping, "ignored").await;
    harness.store().faults.fail_calls("", false);
    harness.expect(&status('a', crate::harness::JENKINS, "pending", "", 1), "applied").await;
}

#[tokio::test]
async fn sender_without_a_configured_secret_gets_404() {
    let harness = Harness::with_secrets(CONFIG, None, BTreeMap::new());
    let signature = sign(SECRET, b"{}");
    let headers = [("x-hub-signature-256", signature.as_str()), ("authorization", "Bearer ")];
    for path in ["/webhook/jenkins", "/webhook/bot"] {
        let response = harness.request(Method::POST, path, &headers, b"{}").await;
        assert_eq!((response.code, response.outcome.as_str()), (404, "NOT_FOUND"), "{path}");
    }
}

#[tokio::test]
async fn wrong_bearer_token_is_not_called_a_signature() {
    let harness = Harness::new(CONFIG);
    let body = br#"{"bot":"approver-bot"}"#;
    for path in ["/webhook/jenkins", "/webhook/bot"] {
        for (value, why) in [("Bearer wrong", "the bearer token is neither"), ("Basic x", "is not `Bearer`")] {
            let response = harness.request(Method::POST, path, &[("authorization", value)], body).await;
            assert_eq!((response.code, response.outcome.as_str()), (401, "TOKEN_INVALID"), "{path}");
            assert!(response.reason.contains(why) && !response.reason.contains("signature"), "{}", response.reason);
        }
        let response = harness.request(Method::POST, path, &[], body).await;
        assert!(response.reason.contains("neither a signature nor a bearer token"), "{}", response.reason);
    }
}

#[tokio::test]
async fn jenkins_and_bots_use_their_own_secrets() {
    let harness = Harness::new(CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    let build = |phase: &str, result: serde_json::Value, minute: i64| {
        json!({"name": "shop/PR-42", "build": {
            "number": 7, "phase": phase, "status": result, "timestamp": tests::minute(minute).as_millisecond(),
            "scm": {"url": "https://github.com/acme/shop.git", "commit": "a".repeat(40)}
        }})
        .to_string()
    };
    let started = build("STARTED", json!(null), 1);
    let signature = sign("j", started.as_bytes());
    let signed = [("x-hub-signature-256", signature.as_str())];
    let shown = [("authorization", "Bearer j")];
    let jenkins = "/webhook/jenkins";
    assert_eq!(harness.request(Method::POST, jenkins, &signed, started.as_bytes()).await.outcome, "applied");
    assert_eq!(harness.request(Method::POST, jenkins, &shown, started.as_bytes()).await.outcome, "duplicate_ignored");
    let wrong = [("x-hub-signature-256", "sha256=00"), ("authorization", "Bearer j")];
    assert_eq!(harness.request(Method::POST, jenkins, &wrong, started.as_bytes()).await.code, 401);
    let done = build("COMPLETED", json!("SUCCESS"), 5);
    assert_eq!(harness.request(Method::POST, jenkins, &shown, done.as_bytes()).await.outcome, "applied");
    // GitHub reports the same result later: a duplicate.
    harness.expect(&status('a', crate::harness::JENKINS, "success", "", 5), "duplicate_ignored").await;
    let report = |id: &str, bot: &str, result: &str, minute: i64| {
        json!({"id": id, "bot": bot, "repo": "acme/shop", "pr_number": 42, "head_sha": "a".repeat(40), "result": result,
               "reason": "", "occurred_at": crate::harness::at(minute)})
        .to_string()
    };
    for (n, (bot, result)) in [
        ("policy-bot", "passed"),
        ("approver-bot", "approved"),
        ("automerge-bot", "attempted"),
        ("automerge-bot", "failed"),
    ]
    .into_iter()
    .enumerate()
    {
        let body = report(&format!("r{n}"), bot, result, 6 + i64::try_from(n).unwrap());
        let secret = format!("Bearer {bot}-{}", if n % 2 == 0 { "new" } else { "old" });
        let headers = [("authorization", secret.as_str())];
        // There is no transition out of MERGING for a failed merge: the event is recorded as an anomaly.
        let outcome = if result == "failed" { "anomaly" } else { "applied" };
        assert_eq!(
            harness.request(Method::POST, "/webhook/bot", &headers, body.as_bytes()).await.outcome,
            outcome,
            "{bot}"
        );
        assert_eq!(
            harness.request(Method::POST, "/webhook/bot", &headers, body.as_bytes()).await.outcome,
            "duplicate_ignored"
        );
    }
    assert!(harness.kinds(42).await.ends_with("POLICY_PASSED APPROVAL_GRANTED MERGE_ATTEMPTED MERGE_FAILED"));
}
