//! Whose a pull request and a report are: strangers' forks are not managed, and only the configured bots are believed.

use domain::state::State;
use http::Method;
use platform::store::Store;
use serde_json::json;
use webhook::signature::sign;

use crate::harness::{CONFIG, Delivery, Harness, JENKINS, POLICY, approval, at, closed, pull, run, status};

/// A stranger's pull request: from a fork, with CodeGenie's branch, label and vulnerability id.
fn from_fork(delivery: Delivery) -> Delivery {
    delivery
        .with("/pull_request/user/login", json!("mallory"))
        .with("/pull_request/labels", json!([{"name": "codegenie"}]))
        .with("/pull_request/body", json!("Fixes CVE-2026-1234"))
        .with("/pull_request/head/repo", json!({"id": 6}))
        .with("/sender/login", json!("mallory"))
}

#[tokio::test]
async fn strangers_fork_is_ignored_whatever_it_calls_itself() {
    let harness = Harness::new(CONFIG);
    for action in ["opened", "labeled", "edited", "synchronize", "reopened", "ready_for_review"] {
        harness.expect(&from_fork(pull(42, action, 'a', 1)), "ignored").await;
        let deleted = from_fork(pull(42, action, 'a', 2)).with("/pull_request/head/repo", json!(null));
        harness.expect(&deleted, "ignored").await;
    }
    harness.expect(&from_fork(closed(42, 3)), "ignored").await;
    let mut review = approval(42, 'a', 3);
    review.payload["pull_request"] = from_fork(pull(42, "opened", 'a', 3)).payload["pull_request"].clone();
    harness.expect(&review, "ignored").await;
    harness.expect(&status('a', JENKINS, "success", "", 3), "ignored").await;
    harness.expect(&run('a', "build", Some("success"), &[], 3), "ignored").await;
    assert_eq!(harness.find_record(42).await, None);
    assert_eq!(harness.store().usage().usage().items_written, 0, "neither a record nor a vulnerability nor a report");
    // The configured author is ours from a fork, too.
    let ours = pull(43, "opened", 'b', 1).with("/pull_request/head/repo", json!({"id": 6}));
    harness.expect(&ours, "applied").await;
    assert_eq!(harness.record(43).await.vulnerability_id.as_deref(), Some("CVE-2026-1234"));
}

#[tokio::test]
async fn workflow_token_cannot_post_a_policy_pass() {
    let harness = Harness::new(CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.expect(&status('a', JENKINS, "success", "", 1), "applied").await;
    let forged = |state: &str, minute: i64| {
        status('a', POLICY, state, "", minute).with("/sender/login", json!("github-actions[bot]"))
    };
    let response = harness.expect(&forged("success", 2), "anomaly").await;
    assert!(response.reason.contains("posted by github-actions[bot]"), "{response:?}");
    harness.expect(&forged("pending", 3), "applied").await;
    harness.expect(&forged("success", 4), "applied").await;
    let app =
        run('a', POLICY, Some("success"), &[42], 5).with("/check_run/app", json!({"id": 15368, "slug": "actions"}));
    harness.expect(&app, "applied").await;
    harness.expect(&approval(42, 'a', 6), "applied").await;
    assert_eq!(harness.record(42).await.state, State::ChecksPassed, "nobody has evaluated the policies");
    let kinds = harness.kinds(42).await;
    assert_eq!(kinds.matches("ANOMALY").count(), 1, "{kinds}");
    harness.expect(&status('a', POLICY, "success", "", 7), "applied").await;
    assert_eq!(harness.record(42).await.state, State::Approved);
}

#[tokio::test]
async fn policy_bot_may_be_known_by_its_app_id() {
    let harness = Harness::new(&format!("{CONFIG}[policy_bot]\nlogins = []\napp_ids = [4711]"));
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.expect(&status('a', JENKINS, "success", "", 1), "applied").await;
    harness.expect(&status('a', POLICY, "success", "", 2), "anomaly").await;
    let own = run('a', POLICY, Some("success"), &[42], 3).with("/check_run/app", json!({"id": 4711, "slug": "x"}));
    harness.expect(&own, "applied").await;
    assert_eq!(harness.record(42).await.state, State::PolicyPassed);
}

#[tokio::test]
async fn secret_of_one_bot_does_not_authenticate_another() {
    let harness = Harness::new(CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    let report = |bot: &str, result: &str| {
        json!({"id": "r-1", "bot": bot, "repo": "acme/shop", "pr_number": 42, "head_sha": "a".repeat(40), "result": result,
               "reason": "", "occurred_at": at(1)})
        .to_string()
    };
    let results = [("policy-bot", "passed"), ("approver-bot", "approved"), ("automerge-bot", "attempted")];
    for (bot, result) in results {
        let body = report(bot, result);
        for (other, _) in results.into_iter().filter(|(other, _)| *other != bot) {
            let (secret, signature) = (format!("{other}-new"), sign(&format!("{other}-new"), body.as_bytes()));
            let bearer = format!("Bearer {secret}");
            for header in [("authorization", bearer.as_str()), ("x-hub-signature-256", signature.as_str())] {
                let response = harness.request(Method::POST, "/webhook/bot", &[header], body.as_bytes()).await;
                assert_eq!(response.code, 401, "{other} reports for {bot}: {response:?}");
            }
        }
        // Another bot's name in a second field does not help either.
        let twice = body.replacen('{', r#"{"bot":"policy-bot","#, 1);
        let bearer = "Bearer policy-bot-new";
        let response =
            harness.request(Method::POST, "/webhook/bot", &[("authorization", bearer)], twice.as_bytes()).await;
        assert_eq!(response.code, 401, "{response:?}");
        let own = sign(&format!("{bot}-old"), body.as_bytes());
        let response =
            harness.request(Method::POST, "/webhook/bot", &[("x-hub-signature-256", &own)], body.as_bytes()).await;
        assert_eq!((response.code, response.outcome.as_str()), (200, "applied"), "{bot}: {response:?}");
    }
}
