//! Pull request lifecycles from GitHub deliveries: in order, reordered, duplicated and with unusual payloads.

use domain::event::Actor;
use domain::state::{State, Substatus};
use serde_json::json;

use crate::harness::{
    CONFIG, Delivery, Harness, JENKINS, POLICY, approval, at, closed, comment, enqueued, merged, pull, push, run,
    status, suite,
};

/// All events of a pull request that needs no help (R-FLOW-1).
fn happy_path() -> Vec<(Delivery, State)> {
    vec![
        (pull(42, "opened", 'a', 0), State::Created),
        (status('a', JENKINS, "pending", "", 1), State::ChecksRunning),
        (status('a', JENKINS, "success", "", 10), State::ChecksPassed),
        (status('a', POLICY, "pending", "", 11), State::PolicyEvaluating),
        (status('a', POLICY, "success", "All rules approved", 12), State::PolicyPassed),
        (approval(42, 'a', 13), State::Approved),
        (enqueued(42, 14), State::Merging),
        (merged(42, 15), State::Merged),
    ]
}

const HAPPY_KINDS: &str = "PR_OPENED CHECKS_STARTED CHECKS_PASSED POLICY_STARTED POLICY_PASSED APPROVAL_GRANTED \
                           MERGE_ATTEMPTED MERGE_SUCCEEDED";

#[tokio::test]
async fn pull_request_goes_from_opened_to_merged() {
    let harness = Harness::new(CONFIG);
    for (delivery, state) in happy_path() {
        harness.expect(&delivery, "applied").await;
        assert_eq!(harness.record(42).await.state, state, "{}", delivery.id);
    }
    assert_eq!(harness.kinds(42).await, HAPPY_KINDS);
    let record = harness.record(42).await;
    assert!(record.ttl.is_some() && record.due_at.is_none());
    assert_eq!(record.vulnerability_id.as_deref(), Some("CVE-2026-1234"));
    let actors: Vec<Actor> = harness.events(42).await.iter().map(|event| event.source).collect();
    let expected = [
        Actor::Codegenie,
        Actor::GithubWebhook,
        Actor::GithubWebhook,
        Actor::PolicyBot,
        Actor::PolicyBot,
        Actor::ApproverBot,
        Actor::AutomergeBot,
        Actor::AutomergeBot,
    ];
    assert_eq!(actors, expected);
}

/// All permutations of `0..count`, by Heap's algorithm.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut all = vec![order.clone()];
    let mut turns = vec![0; count];
    let mut at = 1;
    while at < count {
        if turns[at] < at {
            order.swap(if at % 2 == 0 { 0 } else { turns[at] }, at);
            all.push(order.clone());
            turns[at] += 1;
            at = 1;
        } else {
            turns[at] = 0;
            at += 1;
        }
    }
    all
}

#[tokio::test]
async fn every_delivery_order_reaches_the_same_state() {
    let path: Vec<Delivery> = happy_path().into_iter().map(|(delivery, _)| delivery).collect();
    let all = permutations(6);
    assert_eq!(all.len(), 720);
    for order in all {
        let harness = Harness::new(CONFIG);
        harness.expect(&path[0], "applied").await;
        for &n in &order {
            let response = harness.deliver(&path[n + 1]).await;
            assert_eq!(response.code, 200, "{order:?}: {response:?}");
        }
        assert_eq!(harness.record(42).await.state, State::Merging, "{order:?}");
        harness.expect(&path[7], "applied").await;
        assert_eq!(harness.record(42).await.state, State::Merged, "{order:?}");
    }
}

/// Deterministic random number generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for n in (1..all.len()).rev() {
            all.swap(n, self.below(n + 1));
        }
    }
}

#[tokio::test]
async fn shuffled_duplicate_deliveries_end_merged() {
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let mut path: Vec<Delivery> =
            happy_path().into_iter().chain(happy_path()).map(|(delivery, _)| delivery).collect();
        rng.shuffle(&mut path);
        let harness = Harness::new(CONFIG);
        for delivery in &path {
            assert_eq!(harness.deliver(delivery).await.code, 200);
        }
        assert_eq!(harness.record(42).await.state, State::Merged, "seed {seed}");
        let events = harness.events(42).await;
        let mut firsts: Vec<&str> = events.iter().filter(|e| e.hop == 0).map(|e| e.id.as_str()).collect();
        let count = firsts.len();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), count, "seed {seed}: an event was applied twice");
    }
}

#[tokio::test]
async fn duplicate_delivery_does_not_change_the_record() {
    let harness = Harness::new(CONFIG);
    for (delivery, _) in happy_path() {
        harness.expect(&delivery, "applied").await;
        let version = harness.record(42).await.version;
        let again = harness.deliver(&delivery).await;
        // Deliveries about a merged pull request are ignored.
        assert!(["duplicate_ignored", "ignored"].contains(&again.outcome.as_str()), "{again:?}");
        assert_eq!(harness.record(42).await.version, version, "{}", delivery.id);
    }
    assert_eq!(harness.kinds(42).await, HAPPY_KINDS);
    // The same result in another delivery is a duplicate too.
    let mut repeated = status('a', JENKINS, "success", "", 10);
    "another-delivery".clone_into(&mut repeated.id);
    let harness = Harness::new(CONFIG);
    for (delivery, _) in happy_path().into_iter().take(3) {
        harness.deliver(&delivery).await;
    }
    harness.expect(&repeated, "duplicate_ignored").await;
}

/// A build that timed out is rebuilt (R-FLOW-2).
#[tokio::test]
async fn transient_failure_is_rebuilt_and_merged() {
    let mut harness = Harness::new(CONFIG);
    harness.now = tests::minute(5);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.expect(&status('a', JENKINS, "pending", "", 1), "applied").await;
    harness.expect(&status('a', JENKINS, "error", "Build timed out (after 60 minutes)", 2), "applied").await;
    let record = harness.record(42).await;
    assert_eq!((record.state, record.substatus), (State::ChecksFailed, Some(Substatus::Transient)));
    let failure = record.signals.checks[0].failure.clone().unwrap();
    assert_eq!(failure.transient_rule.as_deref(), Some("timeout"));
    harness.now = tests::minute(40);
    harness.claim(&tests::pr(42), "run-1").await;
    let record = harness.record(42).await;
    assert_eq!((record.state, record.retry_counts.rebuild), (State::ChecksRunning, 1));
    harness.now = tests::minute(60);
    harness.expect(&status('a', JENKINS, "pending", "", 41), "applied").await;
    harness.expect(&status('a', JENKINS, "success", "", 50), "applied").await;
    let record = harness.record(42).await;
    assert_eq!((record.state, record.retry_counts.rebuild), (State::ChecksPassed, 0));
    for delivery in [status('a', POLICY, "success", "", 51), approval(42, 'a', 52), merged(42, 53)] {
        harness.expect(&delivery, "applied").await;
    }
    assert_eq!(harness.record(42).await.state, State::Merged);
    let kinds = harness.kinds(42).await;
    assert!(kinds.contains("CHECKS_FAILED REMEDIATION_REBUILD") && kinds.ends_with("MERGE_SUCCEEDED"), "{kinds}");
}

#[tokio::test]
async fn transient_failure_heals_in_every_delivery_order() {
    let healing = [
        status('a', JENKINS, "pending", "", 41),
        status('a', JENKINS, "success", "", 50),
        status('a', POLICY, "success", "", 51),
        approval(42, 'a', 52),
    ];
    for order in permutations(healing.len()) {
        let mut harness = Harness::new(CONFIG);
        harness.deliver(&pull(42, "opened", 'a', 0)).await;
        harness.deliver(&status('a', JENKINS, "error", "Build timed out", 2)).await;
        harness.now = tests::minute(40);
        harness.claim(&tests::pr(42), "run-1").await;
        harness.now = tests::minute(60);
        for &n in order.iter().chain(&order) {
            assert_eq!(harness.deliver(&healing[n]).await.code, 200, "{order:?}");
        }
        let record = harness.record(42).await;
        assert_eq!((record.state, record.retry_counts.rebuild), (State::Approved, 0), "{order:?}");
    }
}

#[tokio::test]
async fn policy_and_approval_wait_for_green_checks() {
    let harness = Harness::new(CONFIG);
    for delivery in [
        pull(42, "opened", 'a', 0),
        status('a', JENKINS, "pending", "", 1),
        status('a', POLICY, "success", "", 2),
        approval(42, 'a', 3),
    ] {
        harness.expect(&delivery, "applied").await;
    }
    assert_eq!(harness.record(42).await.state, State::ChecksRunning);
    harness.expect(&status('a', JENKINS, "success", "", 10), "applied").await;
    assert_eq!(harness.record(42).await.state, State::Approved);
    assert_eq!(harness.line()["from"], "CHECKS_RUNNING");
    assert_eq!(harness.line()["to"], "APPROVED");
}

#[tokio::test]
async fn fork_checks_match_pull_requests_by_head() {
    let harness = Harness::new("mode = 'act'\nchecks.required = ['build']");
    harness.expect(&run('a', "build", None, &[], 1), "ignored").await;
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.expect(&run('a', "build", None, &[], 1), "applied").await;
    harness.expect(&run('a', "build", Some("success"), &[], 5), "applied").await;
    assert_eq!(harness.record(42).await.state, State::ChecksPassed);
    // Two pull requests may share a head.
    harness.expect(&pull(43, "opened", 'a', 2), "applied").await;
    let again =
        run('a', "build", None, &[], 9).with("/check_run/id", json!(10)).with("/check_run/started_at", json!(at(9)));
    harness.expect(&again, "anomaly").await;
    assert_eq!(harness.line()["prs"], json!([42, 43]));
}

#[tokio::test]
async fn result_for_an_old_head_is_superseded() {
    let harness = Harness::new(CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.expect(&status('a', JENKINS, "pending", "", 1), "applied").await;
    harness.expect(&pull(42, "synchronize", 'b', 5), "applied").await;
    let late = harness.expect(&status('a', JENKINS, "success", "", 6), "superseded").await;
    assert!(late.reason.contains("not the head any more"), "{late:?}");
    harness.expect(&approval(42, 'a', 7), "superseded").await;
    assert_eq!(harness.record(42).await.state, State::ChecksRunning);
    // A check that arrives before its push is stored until the push arrives.
    let mut early = run('c', JENKINS, Some("success"), &[42], 8);
    early = early.with("/check_run/started_at", json!(at(8)));
    harness.expect(&early, "applied").await;
    assert_eq!(harness.record(42).await.state, State::ChecksRunning);
    harness.expect(&pull(42, "synchronize", 'c', 8), "applied").await;
    assert_eq!(harness.record(42).await.state, State::ChecksPassed);
}

#[tokio::test]
async fn completed_suite_does_not_pass_pending_checks() {
    let harness = Harness::new("mode = 'act'\nchecks.required = ['one', 'two']");
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.expect(&suite('a', "requested", &[42], 1), "applied").await;
    assert_eq!(harness.record(42).await.state, State::ChecksRunning);
    harness.expect(&run('a', "one", Some("success"), &[42], 3), "applied").await;
    harness.expect(&suite('a', "completed", &[42], 4), "ignored").await;
    assert_eq!(harness.record(42).await.state, State::ChecksRunning);
    harness.expect(&run('a', "two", Some("success"), &[42], 4), "applied").await;
    assert_eq!(harness.record(42).await.state, State::ChecksPassed);
}

#[tokio::test]
async fn equal_or_missing_timestamps_do_not_reverse_a_result() {
    let harness = Harness::new("mode = 'act'\nchecks.required = ['build']");
    harness.expect(&pull(42, "opened", 'a', 1), "applied").await;
    // Start and end within one second, delivered in reverse.
    let green = run('a', "build", Some("success"), &[42], 1);
    harness.expect(&green, "applied").await;
    harness.expect(&run('a', "build", None, &[42], 1), "duplicate_ignored").await;
    assert_eq!(harness.record(42).await.state, State::ChecksPassed);
    // Without a time the order is unknown, so the report is ignored and a sweep reads GitHub.
    let timeless = run('a', "build", Some("failure"), &[42], 2)
        .with("/check_run/completed_at", json!(null))
        .with("/check_run/started_at", json!(null))
        .with("/check_run/check_suite", json!(null));
    let response = harness.expect(&timeless, "ignored").await;
    assert!(response.reason.contains("no time"), "{response:?}");
    assert_eq!(harness.record(42).await.state, State::ChecksPassed);
    // Of two statuses within one second the final one counts, in either order.
    for order in [["pending", "success"], ["success", "pending"]] {
        let harness = Harness::new(CONFIG);
        harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
        for state in order {
            harness.deliver(&status('a', JENKINS, state, "", 3)).await;
        }
        assert_eq!(harness.record(42).await.state, State::ChecksPassed, "{order:?}");
    }
}

#[tokio::test]
async fn reopened_pull_request_starts_a_new_generation() {
    let harness = Harness::new(CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.expect(&closed(42, 5), "applied").await;
    assert_eq!(harness.record(42).await.state, State::Closed);
    harness.expect(&status('a', JENKINS, "success", "", 6), "ignored").await;
    harness.expect(&pull(42, "reopened", 'a', 9), "applied").await;
    let record = harness.record(42).await;
    assert_eq!((record.state, record.generation, record.ttl), (State::Created, 2, None));
    // A reopened pull request without a record.
    harness.expect(&pull(50, "reopened", 'd', 9), "applied").await;
    assert_eq!(harness.kinds(50).await, "PR_OPENED");
    // The close event of the first generation arrives late.
    harness.expect(&closed(42, 8), "superseded").await;
}

#[tokio::test]
async fn labels_and_draft_flag_are_tracked() {
    let harness = Harness::new(CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    let held =
        pull(42, "labeled", 'a', 2).with("/pull_request/labels", json!([{"name": "suture/hold"}, {"name": "x"}]));
    harness.expect(&held, "applied").await;
    assert!(harness.record(42).await.is_held());
    harness.expect(&pull(42, "unlabeled", 'a', 3), "applied").await;
    assert!(!harness.record(42).await.is_held());
    harness.expect(&pull(42, "converted_to_draft", 'a', 4).with("/pull_request/draft", json!(true)), "applied").await;
    assert!(harness.record(42).await.draft);
    harness.expect(&pull(42, "ready_for_review", 'a', 5), "applied").await;
    harness.expect(&pull(42, "edited", 'a', 6), "duplicate_ignored").await;
}

#[tokio::test]
async fn managed_pull_request_stays_tracked_after_losing_its_label() {
    let theirs = |delivery: Delivery| {
        let labelless = delivery.with("/pull_request/user", json!({"login": "jane"}));
        labelless.with("/pull_request/head/ref", json!("fix"))
    };
    let label = |delivery: Delivery| delivery.with("/pull_request/labels", json!([{"name": "codegenie"}]));
    let harness = Harness::new(CONFIG);
    harness.expect(&theirs(pull(42, "opened", 'a', 0)), "ignored").await;
    assert!(harness.find_record(42).await.is_none());
    harness.expect(&label(theirs(pull(42, "labeled", 'a', 1))), "applied").await;
    harness.expect(&theirs(pull(42, "unlabeled", 'a', 2)), "applied").await;
    harness.expect(&theirs(pull(42, "synchronize", 'b', 3)), "applied").await;
    harness.expect(&theirs(merged(42, 4)), "applied").await;
    assert_eq!(harness.record(42).await.state, State::Merged);
    // A merge of an untracked pull request is ignored.
    harness.expect(&theirs(merged(43, 4)), "ignored").await;
}

#[tokio::test]
async fn push_to_a_base_enqueues_one_reconcile_request() {
    let harness = Harness::new(CONFIG);
    for number in 1..=3 {
        harness.expect(&pull(number, "opened", 'a', 0), "applied").await;
    }
    harness.expect(&pull(4, "opened", 'b', 0).with("/pull_request/base/ref", json!("release")), "applied").await;
    harness.expect(&merged(3, 5), "applied").await;
    harness.expect(&push("main", 6), "applied").await;
    let run = harness.line()["run"].as_str().unwrap().to_owned();
    let waiting = async |harness: &Harness| {
        let request =
            platform::reconcile_request::load(harness.store(), "base:acme/shop#main", harness.now).await.unwrap();
        request.unwrap().waiting().unwrap().clone()
    };
    assert_eq!((waiting(&harness).await.run.as_str(), waiting(&harness).await.at), (run.as_str(), tests::minute(6)));
    assert_eq!(harness.kinds(1).await, "PR_OPENED", "pull requests are updated after the debounce");
    harness.expect(&push("main", 6), "duplicate_ignored").await;
    let older = harness.expect(&push("main", 5), "superseded").await;
    assert_eq!(older.reason, format!("superseded by `{run}`"));
    harness.expect(&push("main", 7), "applied").await;
    assert_eq!((waiting(&harness).await.at, waiting(&harness).await.coalesced), (tests::minute(7), 2));
    harness.expect(&push("elsewhere", 7), "ignored").await;
}

#[tokio::test]
async fn dequeue_while_merging_is_an_anomaly() {
    let harness = Harness::new(CONFIG);
    for (delivery, _) in happy_path().into_iter().take(7) {
        harness.expect(&delivery, "applied").await;
    }
    let mut dequeued = pull(42, "dequeued", 'a', 15);
    dequeued.payload["reason"] = json!("CI_FAILURE");
    // There is no transition from MERGING to APPROVED: the event is recorded as an anomaly and the record is due at
    // once.
    harness.expect(&dequeued, "anomaly").await;
    let record = harness.record(42).await;
    assert_eq!((record.state, record.due_at), (State::Merging, Some(harness.now)));
    assert!(harness.kinds(42).await.ends_with("MERGE_ATTEMPTED MERGE_FAILED"));
}

#[tokio::test]
async fn failed_check_after_policy_passed_is_an_anomaly() {
    let harness = Harness::new(CONFIG);
    for (delivery, _) in happy_path().into_iter().take(5) {
        harness.expect(&delivery, "applied").await;
    }
    let red = harness.expect(&status('a', JENKINS, "failure", "2 tests failed", 14), "anomaly").await;
    assert!(red.reason.contains("Invalid transition"), "{red:?}");
    assert_eq!((harness.record(42).await.state, &harness.line()["anomaly"]), (State::PolicyPassed, &json!(1)));
}

#[tokio::test]
async fn comment_under_two_delivery_ids_is_one_command() {
    let harness = Harness::new(CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    let by_app = comment(42, "/rebuild", 2);
    let by_hook = Delivery { id: "another-hook".to_owned(), ..by_app.clone() };
    harness.expect(&by_app, "command_queued").await;
    harness.expect(&by_hook, "command_queued").await;
    // Equal messages: the Car Bridge executes a command id once.
    let sent = harness.sent();
    assert_eq!((sent.len(), &sent[0]), (2, &sent[1]));
}

#[tokio::test]
async fn commands_are_queued_with_any_line_ending() {
    let harness = Harness::new(CONFIG);
    harness.expect(&comment(42, "/rebuild", 1), "ignored").await;
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    let commands = comment(42, "Please:\r\n\r\n/hold until Monday\r\n/rebuild\r\n", 2);
    let response = harness.expect(&commands, "command_queued").await;
    assert_eq!(response.reason, "/hold, /rebuild");
    let ids: Vec<String> = harness.sent().into_iter().map(|message| message.id).collect();
    assert_eq!(ids, ["cmd:IC_42_2#1", "cmd:IC_42_2#2"]);
    harness.expect(&comment(42, "/rebuild", 3).with("/action", json!("edited")), "ignored").await;
    harness.expect(&comment(42, "<!-- suture:status -->\n/rebuild", 4), "ignored").await;
    assert_eq!(harness.sent().len(), 2);
    // A redelivery queues the same message ids, so the Car Bridge deduplicates them.
    harness.expect(&commands, "command_queued").await;
    assert_eq!(harness.sent()[2..], harness.sent()[..2]);
}

#[tokio::test]
async fn redelivered_end_is_a_duplicate() {
    for end in [closed(42, 9), merged(42, 9)] {
        let harness = Harness::new(CONFIG);
        harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
        harness.expect(&end, "applied").await;
        harness.expect(&end, "duplicate_ignored").await;
        let by_hook = Delivery { id: "another-hook".to_owned(), ..end };
        harness.expect(&by_hook, "duplicate_ignored").await;
        assert_eq!(harness.events(42).await.len(), 2);
    }
}

#[tokio::test]
async fn end_before_opened_is_terminal() {
    for (end, state) in [(closed(42, 9), State::Closed), (merged(42, 9), State::Merged)] {
        let harness = Harness::new(CONFIG);
        harness.expect(&end, "applied").await;
        harness.expect(&pull(42, "opened", 'a', 0), "ignored").await;
        harness.expect(&pull(42, "synchronize", 'b', 5), "ignored").await;
        harness.expect(&end, "duplicate_ignored").await;
        let record = harness.record(42).await;
        assert_eq!((record.state, record.due_at, record.ttl.is_some()), (state, None, true));
        assert!(harness.sent().is_empty(), "a terminal record has no effects");
    }
}

#[tokio::test]
async fn end_of_an_unmanaged_pull_request_creates_no_record() {
    let harness = Harness::new(CONFIG);
    let unmanaged =
        merged(7, 9).with("/pull_request/user/login", json!("jane")).with("/pull_request/head/ref", json!("feature"));
    harness.expect(&unmanaged, "ignored").await;
    assert!(harness.find_record(7).await.is_none());
}
