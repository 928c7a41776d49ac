//! Seed 002, sentence by sentence, in the simulated world.

use domain::command::{Command, CommandMessage};
use domain::event::{Event, EventKind};
use domain::id::RunId;
use domain::state::State;
use domain::text;
use fakes::{AuditedAction, FakePrId, FakeSettings, FakeTiming, Fault};
use jiff::SignedDuration;
use platform::guards;
use platform::publish::queue_message::QueueMessage;
use platform::telemetry::MetricLog;
use reconciler::Invocation;
use serde_json::{Value, json};
use testbed::{SWEEP_TIMEOUT, Testbed, pr_id};

use crate::{quiet, stale};

fn is_remedy(event: &Event) -> bool {
    event.kind.name().starts_with("REMEDIATION_")
        && !matches!(event.kind, EventKind::RemediationAccepted | EventKind::RemediationEnded)
}

#[tokio::test]
async fn no_remedy_within_the_cooldown_of_the_last_and_budgets_end_them() {
    // Jenkins loses every build: three rebuilds, each after its pause, then a person.
    let timing = FakeTiming { build_ms: (60_000, 90_000), ..FakeTiming::default() };
    let stage = Testbed::new(FakeSettings { timing, ..FakeSettings::default() }, "backoff.cooldown_secs = 3000");
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AgentLost, &pr));
    let mut rebuilds = 0;
    for _ in 0..900 {
        stage.pass(1).await;
        let claimed = stage.logged(&pr, EventKind::RemediationRebuild).await.len();
        if claimed > rebuilds {
            rebuilds = claimed;
            stage.with(|world| world.force(Fault::AgentLost, &pr));
        }
        if matches!(stage.state(&pr).await, Some(State::NeedsIntervention | State::Merged)) {
            break;
        }
    }
    let claims = stage.logged(&pr, EventKind::RemediationRebuild).await;
    assert!(claims.len() >= 2, "{:?}", stage.kinds(&pr).await);
    for pair in claims.windows(2) {
        let pause = pair[1].occurred_at.duration_since(pair[0].occurred_at);
        assert!(pause >= SignedDuration::from_secs(3000), "{pause:#}");
    }
}

/// What `status` would show, for everything whose automation has stopped.
async fn reason(stage: &Testbed, pr: &FakePrId) -> Option<String> {
    text::blocked(&stage.record(pr).await)
}

#[tokio::test]
async fn every_needs_intervention_says_why() {
    for (fault, said) in [(Fault::RealTestFailure, "failed"), (Fault::PolicyMisconfigured, "olicy")] {
        let stage = Testbed::new(FakeSettings::default(), "");
        let pr = stage.open();
        stage.with(|world| world.force(fault, &pr));
        let given_up = stage.until(300, async |stage| stage.state(&pr).await == Some(State::NeedsIntervention)).await;
        assert!(given_up, "{fault:?}: {:?}", stage.kinds(&pr).await);
        let reason = reason(&stage, &pr).await.unwrap();
        assert!(reason.contains(said), "{fault:?}: {reason}");
        let record = stage.record(&pr).await;
        let status = text::status(&record, stage.policies.base(), stage.now());
        assert!(status.contains(&format!("Waiting for a person: {}", reason.trim_end_matches('.'))), "{status}");
        // `/resume` takes it back, with fresh budgets; nothing is in the way any more.
        stage.with(|world| world.person_comments(&pr, "maria", "/resume"));
        stage.pass(1).await;
        let record = stage.record(&pr).await;
        assert!(record.state != State::NeedsIntervention || record.blocked.is_some(), "{:?}", record.state);
        assert_eq!(stage.logged(&pr, EventKind::CommandReceived).await.len(), 1);
    }
}

#[tokio::test]
async fn every_hold_says_who_and_why_whatever_happens_meanwhile_and_resume_ends_it() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AutomergeAsleep, &pr));
    stage.pass(2).await;
    stage.with(|world| world.person_comments(&pr, "maria", "/hold release freeze"));
    let approved = stage.until(90, async |stage| stage.state(&pr).await == Some(State::Approved)).await;
    assert!(approved, "{:?}", stage.kinds(&pr).await);
    let reason_now = reason(&stage, &pr).await;
    assert_eq!(
        reason_now.as_deref(),
        Some("held by maria: release freeze"),
        "its checks went on, and it is still held"
    );
    stage.pass(120).await;
    assert!(stage.log(&pr).await.iter().all(|event| !is_remedy(event)), "{:?}", stage.kinds(&pr).await);
    stage.with(|world| world.person_comments(&pr, "maria", "/resume"));
    let merged = stage.until(180, async |stage| stage.state(&pr).await == Some(State::Merged)).await;
    assert!(merged, "and Suture goes on: {:?}", stage.kinds(&pr).await);
}

#[tokio::test]
async fn a_label_that_holds_is_the_reason_and_only_people_remove_it() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = quiet(&stage, 1).await.remove(0);
    stage.with(|world| world.person_labels(&pr, "maria", "suture/hold"));
    stage.pass(1).await;
    assert_eq!(reason(&stage, &pr).await.as_deref(), Some("held by the label `suture/hold`"));
    let record = stage.record(&pr).await;
    let status = text::status(&record, stage.policies.base(), stage.now());
    assert!(status.contains("Waiting for a person: held by the label `suture/hold`."), "{status}");
    stage.with(|world| world.person_comments(&pr, "maria", "/resume"));
    stage.pass(1).await;
    assert!(stage.record(&pr).await.is_held(), "only people remove labels");
    stage.with(|world| world.person_unlabels(&pr, "maria", "suture/hold"));
    stage.pass(1).await;
    assert_eq!((stage.record(&pr).await.is_held(), reason(&stage, &pr).await), (false, None));
}

#[tokio::test]
async fn a_repository_has_so_many_builds_at_a_time_and_the_others_wait_instead_of_being_refused() {
    let stage = Testbed::new(
        FakeSettings::default(),
        "limits.rebuilds_in_flight_per_repo = 2\nlimits.remedies_in_flight = 100",
    );
    let prs = stale(&stage, 5).await;
    stage.sweep_now().await;
    assert_eq!(stage.commands().len(), 5, "all of them are claimed");
    stage.bridging.set(true);
    stage.settle().await;
    let repo = &pr_id(&prs[0]).repo;
    let holders = guards::slot_holders(&stage.store, repo.as_str(), 2, stage.now()).await.unwrap();
    // What Jenkins never heard of is found by a scan of its repository.
    let builds = stage.with(|world| world.audit_by("jenkins:suture").count());
    assert_eq!((holders.len(), builds), (2, 2), "two hold a slot, and only they build");
    // The other three were not refused and cost nothing: their date brings them back.
    stage.sweeping.set(true);
    for pr in &prs {
        let merged = stage.until(400, async |stage| stage.state(pr).await == Some(State::Merged)).await;
        assert!(merged, "{pr}: {:?}", stage.kinds(pr).await);
        assert_eq!(stage.record(pr).await.lifetime_remedies, 1, "{pr}");
    }
}

/// Suture opens no pull requests itself: CodeGenie does. What it asks for is asked under the same effect id however often the
/// step is repeated, and before that the duplicate guard looks; so a vulnerability never has two open ones by our doing.
#[tokio::test]
async fn the_request_for_a_fresh_pull_request_cannot_double() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = stage.open();
    stage.with(|world| world.force(Fault::BuildHung, &pr));
    stage.pass(5).await;
    stage.with(|world| world.conflict(&pr));
    let closed = stage.until(240, async |stage| stage.state(&pr).await == Some(State::Closed)).await;
    assert!(closed, "{:?}", stage.kinds(&pr).await);
    // The message comes again and again, as SQS may do.
    let sent = stage.publisher.messages();
    let (name, message) = sent.iter().rfind(|(_, message)| format!("{message:?}").contains("CloseAndReopen")).unwrap();
    for _ in 0..3 {
        stage.publisher.enqueue(name, message);
        stage.pass(2).await;
    }
    stage.pass(60).await;
    let (asked, opened) = stage.with(|world| {
        let asked = world
            .audit()
            .iter()
            .filter(|one| one.action == AuditedAction::BusEvent && one.detail.contains("PullRequestRequested"));
        (asked.count(), world.audit().iter().filter(|one| one.action == AuditedAction::PullOpened).count())
    });
    assert_eq!((asked, opened), (1, 2), "asked for once, and one replaces the other");
}

/// What a function said of itself.
fn counted(lines: &tests::Written, name: &str) -> u64 {
    let text = lines.text();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| is_metric(line, name)).filter_map(|line| line[name].as_u64()).sum()
}

fn is_metric(line: &Value, name: &str) -> bool {
    let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array();
    metrics.is_some_and(|metrics| metrics.iter().any(|metric| metric["Name"] == name))
}

/// The counters of seed 002 §8 that the reconciler and the Car Bridge keep, each counted by something that happens;
/// `docs/operations.md` maps the names. Those of the webhook function are in `tests/webhook/request_cost.rs`.
#[tokio::test]
async fn skipped_retried_throttled_blocked_loops_and_skipped_pull_requests_are_counted() {
    let config = "budgets.rebuild = 1\nlimits.remedies_in_flight = 1\ntriggers.per_repo_per_day = 1";
    let stage = Testbed::new(FakeSettings::default(), config);
    let prs = stale(&stage, 2).await;
    let lines = tests::Written::default();
    let log = MetricLog::writing_to(lines.clone());
    let sweep = async |stage: &Testbed, event: Value| {
        let now = stage.now();
        let moment = Invocation { request_id: "r", now, deadline: now + SWEEP_TIMEOUT };
        reconciler::handle(&stage.sweep, event, &moment, &log).await.unwrap()
    };
    let tick = |stage: &Testbed| json!({"schedule": "sweep", "slot": stage.now().to_string()});
    sweep(&stage, tick(&stage)).await;
    assert_eq!((counted(&lines, "dispatched"), counted(&lines, "skipped")), (1, 1), "one retry, and one has no room");
    // Two requests of one repository: the second is one too many for the day.
    for pr in &prs {
        let detail = json!({"repo": pr_id(pr).repo.as_str(), "pr_number": pr.number, "run_id": format!("r-{pr}")});
        sweep(&stage, json!({"detail-type": "ReconcileRequested", "detail": detail})).await;
    }
    assert_eq!(counted(&lines, "rate_limited"), 1);
    // Jenkins is down, and the rebuild fails: the budget of one is used up, and a person is called.
    stage.set_jenkins_down(true);
    stage.bridging.set(true);
    for _ in 0..200 {
        stage.with(|world| world.advance(SignedDuration::from_mins(3)));
        stage.settle().await;
        sweep(&stage, tick(&stage)).await;
        if counted(&lines, "loop_blocked") > 0 {
            break;
        }
    }
    assert!(counted(&lines, "loop_blocked") > 0, "{:?}", stage.kinds(&prs[0]).await);
    assert!(counted(&lines, "loop_blocked") <= counted(&lines, "escalated"));
    // A message of close-and-reopen whose run is not there (any more) asks for nothing, and is counted.
    let (_, QueueMessage::Command(rebuild)) = stage.publisher.messages().remove(0) else { panic!() };
    let message = CommandMessage { command: Command::CloseAndReopen, run_id: Some(RunId::new("gone")), ..rebuild };
    let body = QueueMessage::Command(message).to_json().unwrap();
    car_bridge::handle_one(&stage.bridge, "m", &body, &log, || stage.now()).await.unwrap();
    assert_eq!((counted(&lines, "noop"), counted(&lines, "pr_create_skipped")), (1, 1));
}
