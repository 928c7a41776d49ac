//! Details of policy and merge reports, outcome counters and the cost of a push.

use domain::event::EventKind;
use domain::state::{State, Substatus};
use http::Method;
use platform::store::Store as _;
use serde_json::{Value, json};
use webhook::signature::sign;

use crate::harness::{Delivery, Harness, JENKINS, approval, comment, enqueued, pull, push, run, status};

const POLICY: &str = "policy-bot: main";
const CONFIG: &str = "mode = 'act'\nchecks.required = ['continuous-integration/jenkins/pr-merge']";

/// The counters of the last log line in CloudWatch's embedded metric format: name and value.
fn logged_counters(harness: &Harness) -> Vec<(String, u64)> {
    let line = harness.line();
    let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap().clone();
    assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Namespace"], json!("Suture"));
    let counters = metrics.iter().filter(|metric| metric["Unit"] == json!("Count"));
    counters
        .map(|metric| {
            let name = metric["Name"].as_str().unwrap().to_owned();
            let value = line[&name].as_u64().unwrap_or_else(|| panic!("{name} has no value: {line}"));
            (name, value)
        })
        .collect()
}

#[tokio::test]
async fn each_outcome_increments_its_counter() {
    let harness = Harness::new("mode = 'act'\nchecks.required = ['build']\nlimits.webhooks_per_minute_per_repo = 7");
    let opened = pull(42, "opened", 'a', 0);
    let unknown_head = Delivery { event: "status", ..status('f', JENKINS, "pending", "", 1) };
    let deliveries: Vec<(Delivery, &str)> = vec![
        (opened.clone(), "applied"),
        (opened, "duplicate"),
        (unknown_head, "ignored"),
        (pull(42, "synchronize", 'b', 1), "applied"),
        (run('a', "build", Some("success"), &[42], 2), "superseded"),
        (run('b', "build", Some("success"), &[42], 3), "applied"),
        (status('b', POLICY, "success", "", 4), "applied"),
        (run('b', "build", Some("failure"), &[42], 5), "anomaly"),
        (comment(42, "/status", 6), "command_queued"),
        (run('b', "other", None, &[42], 7), "throttled"),
    ];
    for (delivery, counter) in deliveries {
        let response = harness.deliver(&delivery).await;
        assert_eq!(logged_counters(&harness), [(counter.to_owned(), 1)], "{}: {response:?}", delivery.id);
        let line = harness.line();
        assert_eq!((&line["event"], &line["delivery"]), (&json!(delivery.event), &json!(delivery.id)));
        assert!(line["ms"].is_u64() && line["reason"].is_string() && line["repo"] == json!("acme/shop"), "{line}");
    }
    harness.request(Method::POST, "/webhook/github", &[], b"{}").await;
    assert_eq!(logged_counters(&harness), [("unauthorized".to_owned(), 1)]);
    harness.request(Method::GET, "/webhook/github", &[], b"").await;
    assert_eq!(logged_counters(&harness), [("rejected".to_owned(), 1)]);
}

#[tokio::test]
async fn policy_failure_text_sets_the_substatus() {
    for (description, substatus) in [
        ("Separation of duties: the author may not approve", Substatus::SodFailure),
        ("build policy not met", Substatus::BuildFailure),
        ("Branch protection requirements not met", Substatus::BranchProtectionFailure),
        ("Disapproved by maria", Substatus::OtherPolicyFailure),
    ] {
        let harness = Harness::new(CONFIG);
        harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
        harness.expect(&status('a', JENKINS, "success", "", 5), "applied").await;
        harness.expect(&status('a', POLICY, "pending", "evaluating", 6), "applied").await;
        assert_eq!(harness.record(42).await.state, State::PolicyEvaluating);
        harness.expect(&status('a', POLICY, "failure", description, 7), "applied").await;
        let record = harness.record(42).await;
        assert_eq!((record.state, record.substatus), (State::PolicyFailed, Some(substatus)), "{description}");
        harness.expect(&status('a', POLICY, "success", "All rules are approved", 9), "applied").await;
        assert_eq!(harness.record(42).await.state, State::PolicyPassed);
        let kinds = harness.kinds(42).await;
        for kind in ["POLICY_STARTED", "POLICY_FAILED", "POLICY_PASSED"] {
            assert!(kinds.contains(kind), "{kind} is not in {kinds}");
        }
    }
}

/// A pull request in MERGING.
async fn merging_harness() -> Harness {
    let harness = Harness::new(CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.expect(&status('a', JENKINS, "success", "", 5), "applied").await;
    harness.expect(&status('a', POLICY, "success", "", 6), "applied").await;
    harness.expect(&approval(42, 'a', 7), "applied").await;
    harness.expect(&enqueued(42, 8), "applied").await;
    assert_eq!(harness.record(42).await.state, State::Merging);
    harness
}

async fn merge_failure_text(harness: &Harness) -> String {
    let events = harness.events(42).await;
    let failed: Vec<_> = events.iter().filter(|event| event.kind == EventKind::MergeFailed).collect();
    assert_eq!(failed.len(), 1, "{}", harness.kinds(42).await);
    failed[0].payload.text.clone()
}

#[tokio::test]
async fn merge_fails_on_dequeue_or_bot_report() {
    let harness = merging_harness().await;
    let mut dequeued = pull(42, "dequeued", 'a', 9);
    dequeued.payload["reason"] = json!("CI_FAILURE");
    harness.deliver(&dequeued).await;
    assert!(merge_failure_text(&harness).await.contains("CI_FAILURE"));

    let harness = merging_harness().await;
    let report: Value = json!({"id": "r1", "bot": "automerge-bot", "repo": "acme/shop", "pr_number": 42, "head_sha": "a".repeat(40),
        "result": "failed", "reason": "the base branch was modified", "occurred_at": crate::harness::at(9)});
    let body = report.to_string();
    let signature = sign("automerge-bot-new", body.as_bytes());
    harness.request(Method::POST, "/webhook/bot", &[("x-hub-signature-256", &signature)], body.as_bytes()).await;
    assert!(merge_failure_text(&harness).await.contains("the base branch was modified"));
}

/// The cost of a push depends on the pull requests of its branch, not of the repository.
#[tokio::test]
async fn push_reads_no_records_and_only_its_base_index() {
    let harness = Harness::new("mode = 'act'\nlimits.webhooks_per_minute_per_repo = 1000");
    for number in 1..=90 {
        let base = if number <= 3 { "release" } else { "main" };
        harness.expect(&pull(number, "opened", 'a', 0).with("/pull_request/base/ref", json!(base)), "applied").await;
    }
    let before = harness.store().usage().usage();
    harness.expect(&push("release", 9), "applied").await;
    let after = harness.store().usage().usage();
    let (requests, read) = (after.requests - before.requests, after.items_read - before.items_read);
    println!("a push to a base of 3 among 90: {requests} requests, {read} items read");
    assert_eq!(harness.line()["applied"], json!(1));
    // The row of the base branch, one index query, the daily counters and the reconcile request: no record is read or written.
    assert!((requests, read) <= (6, 93), "{requests} {read}");
    for number in 1..=3 {
        assert_eq!(harness.kinds(number).await, "PR_OPENED");
    }
    // A pull request that moved to another base is no longer in the index of this one.
    for number in 1..=3 {
        let moved = pull(number, "edited", 'a', 10).with("/pull_request/base/ref", json!("main"));
        harness.expect(&moved, "applied").await;
    }
    harness.expect(&push("release", 11), "ignored").await;
}
