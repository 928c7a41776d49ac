//! Throttling: facts beyond the limit are queued with a delay, none is dropped, and commands are never delayed.

use std::time::Duration;

use domain::event::Fact;
use domain::state::State;
use platform::publish::queue_message::QueueMessage;
use platform::publish::{Destination, OutboundMessage};
use platform::store::{Store as _, StoreError};
use serde_json::json;

use crate::harness::{Harness, JENKINS, comment, pull, push, run, status};

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
    // The throttle counter costs one request each. An opening also looks for the pull request it replaces, and the
    // first of a repository registers the repository.
    assert_eq!(cost(&pull(42, "opened", 'a', 0)).await, 4);
    // The second opening reads the first pull request, which has the same vulnerability; the repository is registered
    // already.
    assert_eq!(cost(&pull(43, "opened", 'b', 0)).await, 4);
    assert_eq!(cost(&run('a', "build", None, &[42], 1)).await, 3);
    assert_eq!(cost(&status('a', JENKINS, "pending", "", 1)).await, 4);
    let before = harness.store().usage().usage().requests;
    harness.expect(&run('f', "build", None, &[7], 1), "ignored").await;
    harness.expect(&status('f', JENKINS, "pending", "", 1), "ignored").await;
    assert_eq!(harness.store().usage().usage().requests - before, 2);
}
