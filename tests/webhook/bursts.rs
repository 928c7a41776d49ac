//! Too much at once: nothing is dropped, and people are not kept waiting.

use std::time::Duration;

use domain::event::Fact;
use domain::state::State;
use platform::publish::queue_message::QueueMessage;
use platform::publish::{Destination, OutboundMessage};
use platform::store::{Store as _, StoreError};
use serde_json::json;

use crate::harness::{Ear, JENKINS, comment, pull, push, run, status};

const LIMITED: &str = "mode = 'act'\nchecks.required = ['build']\nlimits.webhooks_per_minute_per_repo = 5";

fn put_off(parcels: &[OutboundMessage]) -> Vec<(Fact, Duration)> {
    parcels
        .iter()
        .filter_map(|parcel| match &parcel.destination {
            // As it would come out of the queue.
            Destination::Queue { message, delay, .. } => {
                match QueueMessage::from_json(&message.to_json().unwrap()).unwrap() {
                    QueueMessage::Fact(fact) => Some((*fact, *delay)),
                    QueueMessage::Command(_) | QueueMessage::Chore(_) => None,
                }
            }
            Destination::Bus { .. } | Destination::Notice(_) => None,
        })
        .collect()
}

#[tokio::test]
async fn throttled_facts_are_queued_with_delay_and_none_is_lost() {
    let ear = Ear::new(LIMITED);
    ear.expect(&pull(42, "opened", 'a', 0), "applied").await;
    for n in 0..4 {
        ear.expect(&run('a', &format!("job-{n}"), Some("success"), &[42], 3), "applied").await;
    }
    for n in 4..12 {
        let answer = ear.expect(&run('a', &format!("job-{n}"), Some("success"), &[42], 3), "throttled_delayed").await;
        assert!(answer.reason.contains("limit"), "{answer:?}");
        assert_eq!(ear.line()["throttled"], json!(1));
    }
    ear.expect(&run('a', "build", Some("success"), &[42], 4), "throttled_delayed").await;
    assert_eq!(ear.record(42).await.state, State::ChecksRunning);
    // Commands do not wait, neither here nor on the queue.
    ear.expect(&comment(42, "/status", 5), "command_queued").await;
    let command = ear.sent().into_iter().rfind(|parcel| parcel.id.starts_with("cmd:")).unwrap();
    assert!(matches!(command.destination, Destination::Queue { delay: Duration::ZERO, .. }), "{command:?}");
    // Pull requests that are none of ours take up no room, and are not queued.
    ear.expect(&run('f', "job", Some("success"), &[7], 3), "ignored").await;
    ear.expect(&run('f', "job", Some("success"), &[], 3), "ignored").await;
    let waiting = put_off(&ear.sent());
    let delays: Vec<u64> = waiting.iter().map(|(_, delay)| delay.as_secs()).collect();
    assert_eq!(delays, [60, 72, 84, 96, 108, 120, 132, 144, 156]);
    // The Car Bridge applies them through the same engine, in whatever order.
    for (fact, _) in waiting.iter().rev() {
        ear.apply(fact).await;
    }
    let record = ear.record(42).await;
    assert_eq!((record.state, record.signals.checks.len()), (State::ChecksPassed, 13));
    // Another minute has room again, and so has another repository.
    let mut ear = ear;
    ear.now = tests::minute(61);
    ear.expect(&run('a', "job-13", Some("success"), &[42], 3), "applied").await;
}

#[tokio::test]
async fn redelivered_throttled_fact_is_applied_once() {
    let ear = Ear::new("mode = 'act'\nlimits.webhooks_per_minute_per_repo = 1");
    ear.expect(&pull(42, "opened", 'a', 0), "applied").await;
    let check = run('a', "build", Some("success"), &[42], 3);
    ear.expect(&check, "throttled_delayed").await;
    ear.expect(&check, "throttled_delayed").await;
    for (fact, _) in put_off(&ear.sent()) {
        ear.apply(&fact).await;
    }
    assert_eq!(ear.events(42).await.iter().filter(|event| event.hop == 0).count(), 2);
}

#[tokio::test]
async fn pushes_to_a_busy_base_write_one_row_each() {
    let mut ear = Ear::new("mode = 'act'\nlimits.webhooks_per_minute_per_repo = 1000");
    for number in 1..=120 {
        ear.expect(&pull(number, "opened", 'a', 0), "applied").await;
    }
    let before = ear.store().usage().usage().items_written;
    for second in 0..200 {
        let at = tests::minute(9) + jiff::SignedDuration::from_millis(300 * second);
        ear.now = at;
        let push = push("main", 9);
        let id = format!("push-{second}");
        let push = crate::harness::Delivery { id, ..push }.with("/repository/pushed_at", json!(at.as_second()));
        ear.expect(&push, "applied").await;
    }
    // One row for each push, and once the counters of the day.
    assert_eq!(ear.store().usage().usage().items_written - before, 202);
    assert_eq!(put_off(&ear.sent()), [], "and nothing waits on the queue");
    let request =
        platform::reconcile_request::load(ear.store(), "base:acme/shop#main", ear.now).await.unwrap().unwrap();
    assert_eq!(request.waiting().unwrap().stands_for, 200);
}

#[tokio::test(start_paused = true)]
async fn fact_is_deferred_after_repeated_write_conflicts() {
    let ear = Ear::new(crate::harness::CONFIG);
    ear.expect(&pull(42, "opened", 'a', 0), "applied").await;
    ear.store().fail_writes(std::iter::repeat_n(StoreError::TransactionConflict, 1_000));
    let answer = ear.expect(&status('a', JENKINS, "pending", "", 1), "throttled_delayed").await;
    assert!(answer.reason.contains("write conflict"), "{answer:?}");
    ear.store().fail_writes([]);
    let waiting = put_off(&ear.sent());
    assert_eq!(waiting.len(), 1);
    ear.apply(&waiting[0].0).await;
    assert_eq!(ear.record(42).await.state, State::ChecksRunning);
}

#[tokio::test]
async fn delivery_returns_503_when_the_queue_is_down() {
    let ear = Ear::new("mode = 'act'\nlimits.webhooks_per_minute_per_repo = 1");
    ear.expect(&pull(42, "opened", 'a', 0), "applied").await;
    ear.outlets().set_down(true);
    let answer = ear.hear(&run('a', "build", None, &[42], 1)).await;
    assert_eq!((answer.code, answer.word.as_str()), (503, "TEMPORARILY_UNAVAILABLE"));
    let answer = ear.hear(&comment(42, "/rebuild", 2)).await;
    assert_eq!(answer.code, 503);
    ear.outlets().set_down(false);
    ear.expect(&comment(42, "/rebuild", 2), "command_queued").await;
}

#[tokio::test]
async fn fact_stays_within_its_request_budget() {
    let ear = Ear::new(crate::harness::CONFIG);
    let cost = async |delivery: &crate::harness::Delivery| {
        let before = ear.store().usage().usage().requests;
        ear.expect(delivery, "applied").await;
        ear.store().usage().usage().requests - before
    };
    // The counter is one of each; an opening also looks whom it replaces, and a repository's first is put on the list of
    // repositories.
    assert_eq!(cost(&pull(42, "opened", 'a', 0)).await, 4);
    // The next one reads the first, which has the same vulnerability; the list is known by now.
    assert_eq!(cost(&pull(43, "opened", 'b', 0)).await, 4);
    assert_eq!(cost(&run('a', "build", None, &[42], 1)).await, 3);
    assert_eq!(cost(&status('a', JENKINS, "pending", "", 1)).await, 4);
    let before = ear.store().usage().usage().requests;
    ear.expect(&run('f', "build", None, &[7], 1), "ignored").await;
    ear.expect(&status('f', JENKINS, "pending", "", 1), "ignored").await;
    assert_eq!(ear.store().usage().usage().requests - before, 2);
}
