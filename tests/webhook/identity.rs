//! Whose a pull request and a report are: strangers' forks are not managed, and only the configured bots are believed.

use serde_json::json;

use crate::harness::{CONFIG, Delivery, Harness, JENKINS, approval, closed, pull, run, status};

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
