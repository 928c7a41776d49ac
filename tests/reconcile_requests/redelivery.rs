//! Reliability, end to end: cooldowns, reasons for stopped automation, holds, build slots, redelivered messages and
//! counters.

use domain::budget::RetryCounts;
use domain::command::{Command, CommandMessage};
use domain::event::{Event, EventKind};
use domain::id::RunId;
use domain::state::State;
use domain::text;
use fakes::{AuditedAction, FakePrId, FakeSettings, FakeTiming, Fault};
use jiff::SignedDuration;
use platform::publish::queue_message::QueueMessage;
use platform::store::slot;
use platform::telemetry::MetricLog;
use reconciler::Invocation;
use serde_json::{Value, json};
use testbed::{SWEEP_TIMEOUT, Testbed, pr_id};

use crate::{open_not_due, open_stale};

fn is_remedy(event: &Event) -> bool {
    event.kind.claimed_strategy().is_some()
}

#[tokio::test]
async fn remedies_respect_cooldown_and_budget() {
    // Jenkins loses every build: rebuilds follow each other after the cooldown until the budget is exhausted.
    let timing = FakeTiming { build_ms: (60_000, 90_000), ..FakeTiming::default() };
    let testbed = Testbed::new(FakeSettings { timing, ..FakeSettings::default() }, "backoff.cooldown_secs = 3000");
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AgentLost, &pr));
    let mut rebuilds = 0;
    for _ in 0..900 {
        testbed.pass(1).await;
        let claimed = testbed.logged(&pr, EventKind::RemediationRebuild).await.len();
        if claimed > rebuilds {
            rebuilds = claimed;
            testbed.with(|fakes| fakes.force(Fault::AgentLost, &pr));
        }
        if matches!(testbed.state(&pr).await, Some(State::NeedsIntervention | State::Merged)) {
            break;
        }
    }
    let claims = testbed.logged(&pr, EventKind::RemediationRebuild).await;
    assert!(claims.len() >= 2, "{:?}", testbed.kinds(&pr).await);
    for pair in claims.windows(2) {
        let pause = pair[1].occurred_at.duration_since(pair[0].occurred_at);
        assert!(pause >= SignedDuration::from_secs(3000), "{pause:#}");
    }
}

/// The reason that `status` shows for a pull request whose automation has stopped.
async fn reason(testbed: &Testbed, pr: &FakePrId) -> Option<String> {
    text::blocked(&testbed.record(pr).await)
}

#[tokio::test]
async fn needs_intervention_always_has_a_reason() {
    for (fault, expected) in [(Fault::RealTestFailure, "failed"), (Fault::PolicyMisconfigured, "olicy")] {
        let testbed = Testbed::new(FakeSettings::default(), "");
        let pr = testbed.open();
        testbed.with(|fakes| fakes.force(fault, &pr));
        let escalated =
            testbed.until(300, async |testbed| testbed.state(&pr).await == Some(State::NeedsIntervention)).await;
        assert!(escalated, "{fault:?}: {:?}", testbed.kinds(&pr).await);
        let reason = reason(&testbed, &pr).await.unwrap();
        assert!(reason.contains(expected), "{fault:?}: {reason}");
        let record = testbed.record(&pr).await;
        let status = text::status(&record, testbed.policies.base(), testbed.now());
        assert!(status.contains(&format!("Waiting for a person: {}", reason.trim_end_matches('.'))), "{status}");
        // `/resume` restarts automation with fresh budgets.
        testbed.with(|fakes| fakes.person_comments(&pr, "maria", "/resume"));
        testbed.pass(1).await;
        let left = testbed.log(&pr).await.into_iter().filter(|event| event.from == Some(State::NeedsIntervention));
        let left: Vec<(EventKind, Option<State>)> = left.map(|event| (event.kind, event.to)).collect();
        let resumed_in = if fault == Fault::RealTestFailure { State::ChecksFailed } else { State::PolicyFailed };
        assert_eq!(left, [(EventKind::CommandReceived, Some(resumed_in))], "{fault:?}");
        assert_eq!(testbed.record(&pr).await.retry_counts, RetryCounts::default());
        assert_eq!(testbed.logged(&pr, EventKind::CommandReceived).await.len(), 1);
    }
}

#[tokio::test]
async fn hold_reason_persists_until_resume() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &pr));
    testbed.pass(2).await;
    testbed.with(|fakes| fakes.person_comments(&pr, "maria", "/hold release freeze"));
    let approved = testbed.until(90, async |testbed| testbed.state(&pr).await == Some(State::Approved)).await;
    assert!(approved, "{:?}", testbed.kinds(&pr).await);
    let reason_now = reason(&testbed, &pr).await;
    assert_eq!(reason_now.as_deref(), Some("held by maria: release freeze"), "still held after its checks passed");
    testbed.pass(120).await;
    assert!(testbed.log(&pr).await.iter().all(|event| !is_remedy(event)), "{:?}", testbed.kinds(&pr).await);
    testbed.with(|fakes| fakes.person_comments(&pr, "maria", "/resume"));
    let merged = testbed.until(180, async |testbed| testbed.state(&pr).await == Some(State::Merged)).await;
    assert!(merged, "not merged after /resume: {:?}", testbed.kinds(&pr).await);
}

#[tokio::test]
async fn hold_label_is_the_reason_until_a_person_removes_it() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = open_not_due(&testbed, 1).await.remove(0);
    testbed.with(|fakes| fakes.person_labels(&pr, "maria", "suture/hold"));
    testbed.pass(1).await;
    assert_eq!(reason(&testbed, &pr).await.as_deref(), Some("held by the label `suture/hold`"));
    let record = testbed.record(&pr).await;
    let status = text::status(&record, testbed.policies.base(), testbed.now());
    assert!(status.contains("Waiting for a person: held by the label `suture/hold`."), "{status}");
    testbed.with(|fakes| fakes.person_comments(&pr, "maria", "/resume"));
    testbed.pass(1).await;
    assert!(testbed.record(&pr).await.is_held(), "only people remove labels");
    testbed.with(|fakes| fakes.person_unlabels(&pr, "maria", "suture/hold"));
    testbed.pass(1).await;
    assert_eq!((testbed.record(&pr).await.is_held(), reason(&testbed, &pr).await), (false, None));
}

#[tokio::test]
async fn rebuild_limit_per_repository_defers_the_rest() {
    let testbed = Testbed::new(
        FakeSettings::default(),
        "limits.rebuilds_in_flight_per_repo = 2\nlimits.remedies_in_flight = 100",
    );
    let prs = open_stale(&testbed, 5).await;
    testbed.sweep_now().await;
    assert_eq!(testbed.commands().len(), 5, "all remedies are claimed");
    testbed.bridging.set(true);
    testbed.settle().await;
    let repo = &pr_id(&prs[0]).repo;
    let holders = slot::holders(&testbed.store, repo.as_str(), 2, testbed.now()).await.unwrap();
    // Jenkins finds branches without a build by scanning the repository.
    let builds = testbed.with(|fakes| fakes.audit_by("jenkins:suture").count());
    assert_eq!((holders.len(), builds), (2, 2), "two runs hold a slot, and only they build");
    // The other three are deferred without using an attempt, and continue when they are due.
    testbed.sweeping.set(true);
    for pr in &prs {
        let merged = testbed.until(400, async |testbed| testbed.state(pr).await == Some(State::Merged)).await;
        assert!(merged, "{pr}: {:?}", testbed.kinds(pr).await);
        assert_eq!(testbed.record(pr).await.lifetime_remedies, 1, "{pr}");
    }
}

/// CodeGenie opens pull requests on Suture's request. A repeated step sends the same effect id, and the duplicate guard runs before
/// it, so Suture never causes two open pull requests for one vulnerability.
#[tokio::test]
async fn replacement_is_requested_once_despite_redelivery() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::BuildHung, &pr));
    testbed.pass(5).await;
    testbed.with(|fakes| fakes.conflict(&pr));
    let closed = testbed.until(240, async |testbed| testbed.state(&pr).await == Some(State::Closed)).await;
    assert!(closed, "{:?}", testbed.kinds(&pr).await);
    // SQS may deliver the message several times.
    let sent = testbed.publisher.messages();
    let (name, message) = sent.iter().rfind(|(_, message)| format!("{message:?}").contains("CloseAndReopen")).unwrap();
    for _ in 0..3 {
        testbed.publisher.enqueue(name, message);
        testbed.pass(2).await;
    }
    testbed.pass(60).await;
    let (requests, opened) = testbed.with(|fakes| {
        let requests = fakes
            .audit()
            .iter()
            .filter(|entry| entry.action == AuditedAction::BusEvent && entry.detail.contains("PullRequestRequested"));
        (requests.count(), fakes.audit().iter().filter(|entry| entry.action == AuditedAction::PullOpened).count())
    });
    assert_eq!((requests, opened), (1, 2), "one request, and one replacement besides the original");
}

/// The sum of a metric over all log lines.
fn metric_sum(lines: &tests::Written, name: &str) -> u64 {
    let text = lines.text();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| is_metric(line, name)).filter_map(|line| line[name].as_u64()).sum()
}

fn is_metric(line: &Value, name: &str) -> bool {
    let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array();
    metrics.is_some_and(|metrics| metrics.iter().any(|metric| metric["Name"] == name))
}

/// The counters (R-OPS-5) that the reconciler and the Car Bridge emit; `docs/operations.md` maps the names. Those of the
/// webhook function are in `tests/webhook/request_cost.rs`.
#[tokio::test]
async fn skipped_retried_throttled_and_blocked_remedies_are_counted() {
    let config = "budgets.rebuild = 1\nlimits.remedies_in_flight = 1\ntriggers.per_repo_per_day = 1";
    let testbed = Testbed::new(FakeSettings::default(), config);
    let prs = open_stale(&testbed, 2).await;
    let lines = tests::Written::default();
    let log = MetricLog::writing_to(lines.clone());
    let sweep = async |testbed: &Testbed, event: Value| {
        let now = testbed.now();
        let invocation = Invocation { request_id: "r", now, deadline: now + SWEEP_TIMEOUT };
        reconciler::handle(&testbed.sweep, event, &invocation, &log).await.unwrap()
    };
    let tick = |testbed: &Testbed| json!({"schedule": "sweep", "slot": testbed.now().to_string()});
    sweep(&testbed, tick(&testbed)).await;
    assert_eq!(
        (metric_sum(&lines, "dispatched"), metric_sum(&lines, "skipped")),
        (1, 1),
        "one remedy dispatched, one over the in-flight limit"
    );
    // Two requests for one repository: the second exceeds the daily limit.
    for pr in &prs {
        let detail = json!({"repo": pr_id(pr).repo.as_str(), "pr_number": pr.number, "run_id": format!("r-{pr}")});
        sweep(&testbed, json!({"detail-type": "ReconcileRequested", "detail": detail})).await;
    }
    assert_eq!(metric_sum(&lines, "rate_limited"), 1);
    // Jenkins is down and the rebuild fails: the budget of one is exhausted, and the pull request is escalated.
    testbed.set_jenkins_down(true);
    testbed.bridging.set(true);
    for _ in 0..200 {
        testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(3)));
        testbed.settle().await;
        sweep(&testbed, tick(&testbed)).await;
        if metric_sum(&lines, "loop_blocked") > 0 {
            break;
        }
    }
    assert!(metric_sum(&lines, "loop_blocked") > 0, "{:?}", testbed.kinds(&prs[0]).await);
    assert!(metric_sum(&lines, "loop_blocked") <= metric_sum(&lines, "escalated"));
    // A close-and-reopen message whose run does not exist requests no pull request and is counted.
    let (_, QueueMessage::Command(rebuild)) = testbed.publisher.messages().remove(0) else { panic!() };
    let message = CommandMessage { command: Command::CloseAndReopen, run_id: Some(RunId::new("gone")), ..rebuild };
    let body = QueueMessage::Command(message).to_json().unwrap();
    let message = car_bridge::Message { id: "m", body: &body, trace: None };
    let now = || testbed.now();
    car_bridge::handle_messages(&testbed.bridge, &[message], &log, now, jiff::Timestamp::MAX).await;
    assert_eq!((metric_sum(&lines, "noop"), metric_sum(&lines, "pr_create_skipped")), (1, 1));
}
