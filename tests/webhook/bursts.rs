//! Throttling: facts beyond the limit are queued with a delay, none is dropped, and commands are never delayed.

use std::time::Duration;

use domain::event::Fact;
use domain::state::State;
use platform::publish::queue_message::QueueMessage;
use platform::publish::{Destination, OutboundMessage};
use platform::store::{Store as _, StoreError};
use serde_json::json;

use crate::harness::{
    Delivery, Harness, JENKINS, POLICY, approval, closed, comment, merged, pull, push, run, status, suite,
};

const LIMITED: &str = "mode = 'act'\nchecks.required = ['build']\nlimits.webhooks_per_minute_per_repo = 5";

fn deferred_facts(messages: &[OutboundMessage]) -> Vec<(Fact, Duration)> {
    messages
        .iter()
        .filter_map(|message| match &message.destination {
            // Serialised and parsed, as the queue does.
            Destination::Queue { message, delay, .. } => {
                match QueueMessage::from_json(&message.to_json().unwrap()).unwrap() {
                    QueueMessage::Fact(fact) => Some((*fact, *delay)),
                    QueueMessage::Command(_) | QueueMessage::Task(_) => None,
                }
            }
            Destination::Bus { .. } | Destination::Notice(_) => None,
        })
        .collect()
}

#[tokio::test]
async fn throttled_facts_are_queued_with_delay_and_none_is_lost() {
    let harness = Harness::new(LIMITED);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    for n in 0..4 {
        harness.expect(&run('a', &format!("job-{n}"), Some("success"), &[42], 3), "applied").await;
    }
    for n in 4..12 {
        let response =
            harness.expect(&run('a', &format!("job-{n}"), Some("success"), &[42], 3), "throttled_delayed").await;
        assert!(response.reason.contains("limit"), "{response:?}");
        assert_eq!(harness.line()["throttled"], json!(1));
    }
    harness.expect(&run('a', "build", Some("success"), &[42], 4), "throttled_delayed").await;
    assert_eq!(harness.record(42).await.state, State::ChecksRunning);
    // Commands are not delayed.
    harness.expect(&comment(42, "/status", 5), "command_queued").await;
    let command = harness.sent().into_iter().rfind(|message| message.id.starts_with("cmd:")).unwrap();
    assert!(matches!(command.destination, Destination::Queue { delay: Duration::ZERO, .. }), "{command:?}");
    // Unmanaged pull requests neither count against the limit nor are queued.
    harness.expect(&run('f', "job", Some("success"), &[7], 3), "ignored").await;
    harness.expect(&run('f', "job", Some("success"), &[], 3), "ignored").await;
    let waiting = deferred_facts(&harness.sent());
    let delays: Vec<u64> = waiting.iter().map(|(_, delay)| delay.as_secs()).collect();
    assert_eq!(delays, [60, 72, 84, 96, 108, 120, 132, 144, 156]);
    // The Car Bridge applies queued facts through the same engine, in any order.
    for (fact, _) in waiting.iter().rev() {
        harness.apply(fact).await;
    }
    let record = harness.record(42).await;
    assert_eq!((record.state, record.signals.checks.len()), (State::ChecksPassed, 13));
    // The limit is per minute.
    let mut harness = harness;
    harness.now = tests::minute(61);
    harness.expect(&run('a', "job-13", Some("success"), &[42], 3), "applied").await;
}

#[tokio::test]
async fn redelivered_throttled_fact_is_applied_once() {
    let harness = Harness::new("mode = 'act'\nlimits.webhooks_per_minute_per_repo = 1");
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    let check = run('a', "build", Some("success"), &[42], 3);
    harness.expect(&check, "throttled_delayed").await;
    harness.expect(&check, "throttled_delayed").await;
    for (fact, _) in deferred_facts(&harness.sent()) {
        harness.apply(&fact).await;
    }
    assert_eq!(harness.events(42).await.iter().filter(|event| event.hop == 0).count(), 2);
}

#[tokio::test]
async fn pushes_to_a_busy_base_write_one_row_each() {
    let mut harness = Harness::new("mode = 'act'\nlimits.webhooks_per_minute_per_repo = 1000");
    for number in 1..=120 {
        harness.expect(&pull(number, "opened", 'a', 0), "applied").await;
    }
    let before = harness.store().usage().usage().items_written;
    for second in 0..200 {
        let at = tests::minute(9) + jiff::SignedDuration::from_millis(300 * second);
        harness.now = at;
        let push = push("main", 9);
        let id = format!("push-{second}");
        let push = crate::harness::Delivery { id, ..push }.with("/repository/pushed_at", json!(at.as_second()));
        harness.expect(&push, "applied").await;
    }
    // One row per push, plus the daily counters once.
    assert_eq!(harness.store().usage().usage().items_written - before, 202);
    assert_eq!(deferred_facts(&harness.sent()), [], "nothing is queued");
    let request =
        platform::reconcile_request::load(harness.store(), "base:acme/shop#main", harness.now).await.unwrap().unwrap();
    assert_eq!(request.waiting().unwrap().coalesced, 200);
}

/// Each push to a feature branch walked through all pull requests of the repository.
#[tokio::test]
async fn push_to_a_branch_that_is_nobodys_base_costs_one_read() {
    let harness = Harness::new("mode = 'act'\nlimits.webhooks_per_minute_per_repo = 1000");
    for number in 1..=300 {
        harness.expect(&pull(number, "opened", 'a', 0), "applied").await;
    }
    let before = harness.store().usage().usage();
    let response = harness.expect(&push("feature-x", 9), "ignored").await;
    assert!(response.reason.contains("no managed pull request is based on `feature-x`"), "{response:?}");
    let after = harness.store().usage().usage();
    assert_eq!((after.requests - before.requests, after.items_written - before.items_written), (1, 0));
    // A pull request that is retargeted brings its base with it.
    let retargeted = pull(7, "edited", 'a', 10).with("/pull_request/base/ref", json!("release"));
    harness.expect(&push("release", 9), "ignored").await;
    harness.expect(&retargeted, "applied").await;
    harness.expect(&push("release", 11), "applied").await;
}

#[tokio::test(start_paused = true)]
async fn fact_is_deferred_after_repeated_write_conflicts() {
    let harness = Harness::new(crate::harness::CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.store().fail_writes(std::iter::repeat_n(StoreError::TransactionConflict, 1_000));
    let response = harness.expect(&status('a', JENKINS, "pending", "", 1), "throttled_delayed").await;
    assert!(response.reason.contains("write conflict"), "{response:?}");
    harness.store().fail_writes([]);
    let waiting = deferred_facts(&harness.sent());
    assert_eq!(waiting.len(), 1);
    harness.apply(&waiting[0].0).await;
    assert_eq!(harness.record(42).await.state, State::ChecksRunning);
}

#[tokio::test]
async fn delivery_returns_503_when_the_queue_is_down() {
    let harness = Harness::new("mode = 'act'\nlimits.webhooks_per_minute_per_repo = 1");
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    harness.publisher().set_down(true);
    let response = harness.deliver(&run('a', "build", None, &[42], 1)).await;
    assert_eq!((response.code, response.outcome.as_str()), (503, "TEMPORARILY_UNAVAILABLE"));
    let response = harness.deliver(&comment(42, "/rebuild", 2)).await;
    assert_eq!(response.code, 503);
    harness.publisher().set_down(false);
    harness.expect(&comment(42, "/rebuild", 2), "command_queued").await;
}

#[tokio::test]
async fn fact_stays_within_its_request_budget() {
    let harness = Harness::new(crate::harness::CONFIG);
    let cost = async |delivery: &crate::harness::Delivery| {
        let before = harness.store().usage().usage().requests;
        harness.expect(delivery, "applied").await;
        harness.store().usage().usage().requests - before
    };
    // An opening also looks for the pull request it replaces and for early reports on its head, and the first of a
    // repository registers the repository and the base branch.
    assert_eq!(cost(&pull(42, "opened", 'a', 0)).await, 5);
    // The second opening reads the first pull request, which has the same vulnerability; the repository is registered
    // already.
    assert_eq!(cost(&pull(43, "opened", 'b', 0)).await, 4);
    assert_eq!(cost(&run('a', "build", None, &[42], 1)).await, 2);
    // A status names only its commit.
    assert_eq!(cost(&status('a', JENKINS, "pending", "", 1)).await, 3);
    let before = harness.store().usage().usage();
    harness.expect(&run('f', "build", None, &[7], 1), "ignored").await;
    harness.expect(&status('f', JENKINS, "pending", "", 1), "ignored").await;
    let after = harness.store().usage().usage();
    // Unmanaged: one read for the pull request, and one for an announcement of the commit.
    assert_eq!((after.requests - before.requests, after.items_written - before.items_written), (4, 0));
}

/// A pull request of the storm: its deliveries in order, and how it ends.
struct StormLife {
    number: u64,
    deliveries: Vec<Delivery>,
    end: State,
    /// The final head.
    head: String,
}

fn storm_sha(number: u64, version: u64) -> String {
    format!("{:040x}", number * 16 + version)
}

/// A `check_run` or `check_suite` delivery about one pull request, listed as GitHub lists it.
fn of_branch(delivery: Delivery, event: &str, id: String, head: &str, branch: &str) -> Delivery {
    let listed = json!({"ref": branch, "sha": head, "repo": {"id": 5}});
    let mut delivery = Delivery { id, ..delivery }.with(&format!("/{event}/head_sha"), json!(head));
    delivery.payload[event]["pull_requests"][0]["head"] = listed;
    delivery
}

/// Opened; every fifth gets another push; checked, passed by Policy Bot, approved. A third is merged, a third closed.
fn storm_life(number: u64, branch: &str) -> StormLife {
    let (first, pushed) = (storm_sha(number, 1), number.is_multiple_of(5));
    let head = if pushed { storm_sha(number, 2) } else { first.clone() };
    let branch = format!("{branch}{number}");
    let id = |what: &str| format!("{what}-{number}");
    let of_pull = |delivery: Delivery, what: &str, head: &str| {
        Delivery { id: id(what), ..delivery }
            .with("/pull_request/head/sha", json!(head))
            .with("/pull_request/head/ref", json!(branch))
            .with("/pull_request/title", json!(format!("Fix VULN-{number}")))
    };
    let mut deliveries = vec![of_pull(pull(number, "opened", 'a', 0), "opened", &first)];
    if pushed {
        let push = of_pull(pull(number, "synchronize", 'a', 1), "pushed", &head);
        deliveries.push(push.with("/before", json!(first)));
    }
    let requested = suite('a', "requested", &[number], 2);
    deliveries.push(of_branch(requested, "check_suite", id("requested"), &head, &branch));
    for (what, conclusion, minute) in [("running", None, 2), ("green", Some("success"), 5)] {
        let run = run('a', "build", conclusion, &[number], minute);
        deliveries.push(of_branch(run, "check_run", id(what), &head, &branch));
    }
    let tip = json!([{"name": "main", "commit": {"sha": "f".repeat(40)}}, {"name": branch, "commit": {"sha": head}}]);
    let policy = status('a', POLICY, "success", "", 6).with("/sha", json!(head)).with("/branches", tip);
    deliveries.push(Delivery { id: id("policy"), ..policy });
    let reviewed = of_pull(pull(number, "opened", 'a', 7), "reviewed", &head).payload["pull_request"].clone();
    let approval = Delivery { id: id("approval"), ..approval(number, 'a', 7) };
    deliveries.push(approval.with("/review/commit_id", json!(head)).with("/pull_request", reviewed));
    let end = match number % 3 {
        0 => {
            deliveries.push(of_pull(merged(number, 8), "merged", &head));
            State::Merged
        }
        1 => {
            deliveries.push(of_pull(closed(number, 8), "closed", &head));
            State::Closed
        }
        _ => State::Approved,
    };
    StormLife { number, deliveries, end, head }
}

/// A permutation that depends on the seed.
fn shuffle<T>(entries: &mut [T], mut seed: u64) {
    for at in (1..entries.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        entries.swap(at, usize::try_from(seed >> 33).unwrap() % (at + 1));
    }
}

const STORM: &str = "mode = 'act'\nchecks.required = ['build']\nlimits.webhooks_per_minute_per_repo = 30\n";

/// Delivers the storm within one minute, in order or shuffled by the seed, drains the queue in any order, and compares.
async fn storm(config: &str, branch: &str, seed: Option<u64>) {
    let harness = Harness::new(config);
    let lives: Vec<StormLife> = (1..=60).map(|number| storm_life(number, branch)).collect();
    let rounds = lives.iter().map(|life| life.deliveries.len()).max().unwrap();
    // All openings first, then all second facts, and so on.
    let mut deliveries: Vec<&Delivery> =
        (0..rounds).flat_map(|n| lives.iter().filter_map(move |life| life.deliveries.get(n))).collect();
    if let Some(seed) = seed {
        shuffle(&mut deliveries, seed);
    }
    for delivery in deliveries {
        let response = harness.deliver(delivery).await;
        assert_eq!(response.code, 200, "{}: {response:?}", delivery.id);
    }
    let mut waiting = deferred_facts(&harness.sent());
    assert!(waiting.len() > 30, "the limit defers most facts");
    shuffle(&mut waiting, seed.unwrap_or(7));
    for (fact, _) in &waiting {
        harness.apply_deferred(fact).await;
    }
    for life in lives {
        let record = harness.record(life.number).await;
        let (state, head) = (record.state, record.head_sha.as_str());
        assert_eq!((state, head), (life.end, life.head.as_str()), "#{} with seed {seed:?}", life.number);
    }
}

#[tokio::test]
async fn storm_of_openings_loses_no_later_fact() {
    storm(STORM, "codegenie/fix-", None).await;
}

#[tokio::test]
async fn shuffled_storm_loses_no_fact() {
    for seed in 0..20 {
        storm(STORM, "codegenie/fix-", Some(seed)).await;
    }
}

/// Only the author shows that these are managed, so reports on a commit depend on the announcement by a deferred event.
#[tokio::test]
async fn storm_of_pull_requests_managed_by_author_loses_no_later_fact() {
    storm(&format!("{STORM}managed.branch_prefixes = []"), "fix-", None).await;
}

/// Regression: the command was answered "not managed", because the event that opens its pull request was still on the queue.
#[tokio::test]
async fn command_on_a_pull_request_whose_opening_is_queued_is_kept() {
    let harness = Harness::new("mode = 'act'\nchecks.required = ['build']\nlimits.webhooks_per_minute_per_repo = 1");
    harness.expect(&pull(1, "opened", 'a', 0), "applied").await;
    harness.expect(&pull(2, "opened", 'b', 0), "throttled_delayed").await;
    harness.expect(&comment(2, "/hold", 1), "command_queued").await;
    let deferral = deferred_facts(&harness.sent())[0].1;
    let command = harness.sent().into_iter().rfind(|message| message.id.starts_with("cmd:")).unwrap();
    let Destination::Queue { delay, .. } = command.destination else { panic!("{command:?}") };
    assert!(delay > deferral && delay < deferral + Duration::from_mins(1), "{delay:?} after {deferral:?}");
    harness.expect(&comment(3, "/hold", 1), "ignored").await;
}

/// Regression: nothing asked GitHub for a report that had overtaken the event of its pull request, because neither its branch nor a
/// queued event shows that the commit is managed.
#[tokio::test]
async fn pull_request_whose_opening_was_late_is_verified_at_once() {
    for (late, verified) in [(1, false), (3, true)] {
        let mut harness = Harness::new("mode = 'act'\nchecks.required = ['build']\nmanaged.branch_prefixes = []");
        harness.now = tests::minute(0) + jiff::SignedDuration::from_secs(late);
        harness.expect(&status('a', POLICY, "success", "", 0), "ignored").await;
        harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
        let record = harness.record(42).await;
        assert_eq!(record.verify_reason.is_some(), verified, "{late} s: {:?}", record.verify_reason);
        assert_eq!(record.due_at == Some(harness.now), verified, "{late} s");
    }
}

#[tokio::test]
async fn reports_on_unmanaged_commits_are_neither_stored_nor_queued() {
    let harness = Harness::new(LIMITED);
    harness.expect(&pull(1, "opened", 'a', 0), "applied").await;
    let before = harness.store().usage().usage().items_written;
    for number in 2..40 {
        let (head, branch) = (storm_sha(number, 1), format!("feature/{number}"));
        let check = run('f', "build", None, &[number], 1);
        let check = of_branch(check, "check_run", format!("run-{number}"), &head, &branch);
        harness.expect(&check, "ignored").await;
        // A managed branch name proves nothing in a fork, or if the commit is not its tip.
        let fork = Delivery { id: format!("fork-{number}"), ..check };
        let fork = fork
            .with("/check_run/pull_requests/0/head/ref", json!("codegenie/fix"))
            .with("/check_run/pull_requests/0/head/repo/id", json!(6));
        harness.expect(&fork, "ignored").await;
        let tip = json!([{"name": "codegenie/fix", "commit": {"sha": "e".repeat(40)}}]);
        let status = status('f', JENKINS, "pending", "", 1).with("/sha", json!(head)).with("/branches", tip);
        harness.expect(&status, "ignored").await;
        let review = Delivery { id: format!("review-{number}"), ..approval(number, 'f', 1) };
        harness.expect(&review, "ignored").await;
    }
    assert_eq!(harness.store().usage().usage().items_written - before, 0);
    assert_eq!(deferred_facts(&harness.sent()), []);
}

#[tokio::test]
async fn report_on_a_new_head_is_kept_until_its_push_is_applied() {
    let harness = Harness::new(crate::harness::CONFIG);
    harness.expect(&pull(42, "opened", 'a', 0), "applied").await;
    let tip = json!([{"name": "codegenie/fix", "commit": {"sha": "b".repeat(40)}}]);
    let green = status('b', JENKINS, "success", "", 3).with("/branches", tip);
    let response = harness.expect(&green, "throttled_delayed").await;
    assert!(response.reason.contains("kept until"), "{response:?}");
    harness.expect(&pull(42, "synchronize", 'b', 1), "applied").await;
    assert_eq!(harness.record(42).await.state, State::ChecksPassed);
    // The same delivery again changes nothing.
    harness.expect(&green, "duplicate_ignored").await;
}
