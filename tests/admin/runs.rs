//! Runs that are cancelled, approved and rejected; the dead-letter queue; the breaker.

use std::sync::Arc;

use domain::event::{FactKind, RemedyUpdate};
use domain::id::RunId;
use domain::policy::Policies;
use domain::run::{Initiator, RunState, TransitionContext};
use platform::publish::dead_letters::{DeadLetter, DeadLetterQueue, DeadLetterSource, LocalDeadLetters};
use platform::store::schema;
use platform::store::{Condition, RowWrite, Store as _};
use serde_json::json;
use testbed::MemoryStore;
use tests::{claim, fact, minute, pr};

use crate::harness::{Caller, Harness, Options};
use crate::seed_records;

/// A rebuild of #2 is claimed.
async fn claim_rebuild(harness: &Harness<MemoryStore>) {
    let engine = harness.admin.engine();
    let claim = claim(engine, &pr(2), "run-1", minute(20)).await;
    engine.apply(&claim, minute(20)).await.unwrap();
}

/// Moves the run through these states, as the Car Bridge would.
async fn move_run(harness: &Harness<MemoryStore>, states: &[RunState]) {
    let engine = harness.admin.engine();
    let mut run = engine.run(&RunId::new("run-1"), minute(20)).await.unwrap().unwrap();
    let loaded = run.version;
    for state in states {
        run = run.advance(*state, TransitionContext::new(Initiator::System, minute(20))).unwrap();
    }
    let (key, item) = schema::run_row(&run, engine.policies().base()).unwrap();
    let write = RowWrite::Put { key, item, only_if: Condition::Version(loaded) };
    harness.store().write(vec![write], minute(20)).await.unwrap();
}

#[tokio::test]
async fn cancelled_run_refunds_its_budget() {
    let harness = Harness::new();
    seed_records(&harness).await;
    claim_rebuild(&harness).await;
    let cancelled = harness.post(Caller::Operator, "/api/runs/run-1/cancel", "").await;
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (202, &json!("cancelled")), "{}", cancelled.text);
    let record = harness.admin.engine().load(&pr(2), minute(20)).await.unwrap().unwrap();
    assert_eq!((record.active_run, record.retry_counts.rebuild, record.lifetime_remedies), (None, 0, 0));
    let again = harness.post(Caller::Operator, "/api/runs/run-1/cancel", "").await;
    assert_eq!(again.problem(), (409, "RUN_TERMINAL_STATE".to_owned()));
    assert_eq!(harness.post(Caller::Viewer, "/api/runs/run-1/cancel", "").await.problem().0, 403);
}

#[tokio::test]
async fn only_runs_awaiting_approval_can_be_approved_or_rejected() {
    let harness = Harness::new();
    seed_records(&harness).await;
    claim_rebuild(&harness).await;
    for verb in ["approve", "reject"] {
        let refused = harness.post(Caller::Admin, &format!("/api/runs/run-1/{verb}"), "").await;
        assert_eq!(refused.problem(), (409, "RUN_INVALID_TRANSITION".to_owned()), "{verb}");
    }
    move_run(&harness, &[RunState::Running, RunState::AwaitingApproval]).await;
    assert_eq!(harness.post(Caller::Operator, "/api/runs/run-1/approve", "").await.problem().0, 403);
    let sent = harness.publisher().sent().len();
    let approved = harness.post(Caller::Admin, "/api/runs/run-1/approve", "").await;
    assert_eq!(
        (approved.status, &approved.json()["state"]),
        (202, &json!("awaiting_approval")),
        "the Car Bridge resumes it"
    );
    let messages = harness.publisher().sent();
    assert!(format!("{:?}", messages[sent]).contains("command: Approve"), "{messages:?}");
    let rejected = harness.post(Caller::Operator, "/api/runs/run-1/reject", "").await;
    assert_eq!((rejected.status, &rejected.json()["state"]), (202, &json!("failed")), "{}", rejected.text);
    // A rejected remedy is not retried: the next sweep escalates.
    let next = claim(harness.admin.engine(), &pr(2), "run-2", minute(60 * 24)).await;
    let applied = harness.admin.engine().apply(&next, minute(60 * 24)).await.unwrap();
    assert!(applied.reason.contains("rejected by operator"), "{}", applied.reason);
}

#[tokio::test]
async fn cancel_ends_a_run_without_an_owning_record() {
    let harness = Harness::new();
    seed_records(&harness).await;
    claim_rebuild(&harness).await;
    // A user command superseded the run, and the run's final write was lost.
    let engine = harness.admin.engine();
    let update = RemedyUpdate::Dropped { why: "test".to_owned() };
    let before = engine.run(&RunId::new("run-1"), minute(20)).await.unwrap().unwrap();
    engine
        .apply(&fact(&pr(2), "n", minute(20), FactKind::Remedy { run: RunId::new("run-1"), update }), minute(20))
        .await
        .unwrap();
    let (key, item) = schema::run_row(&before, engine.policies().base()).unwrap();
    harness.store().write(vec![RowWrite::Put { key, item, only_if: Condition::Always }], minute(20)).await.unwrap();
    let cancelled = harness.post(Caller::Operator, "/api/runs/run-1/cancel", "").await;
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (202, &json!("cancelled")), "{}", cancelled.text);
}

#[tokio::test]
async fn pending_sweep_is_cancelled_at_once() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let accepted = harness.post(Caller::Operator, "/api/reconciler/run", "").await.json();
    let path = format!("/api/runs/{}/cancel", accepted["run_id"].as_str().unwrap());
    assert_eq!(harness.post(Caller::Operator, &path, "").await.json()["state"], "cancelled");
    // Cancelling a cancelled run is a no-op.
    let again = harness.post(Caller::Operator, &path, "").await;
    assert_eq!((again.status, &again.json()["state"]), (202, &json!("cancelled")));
    // An unknown run is not created.
    assert_eq!(
        harness.post(Caller::Operator, "/api/runs/none/cancel", "").await.problem(),
        (404, "NOT_FOUND".to_owned())
    );
}

#[tokio::test]
async fn dead_letters_are_listed_with_their_reason_redriven_and_deleted() {
    let parked = Arc::new(LocalDeadLetters::new(|_| {}));
    let options = Options { dlq: DeadLetterQueue::Local(Arc::clone(&parked)), ..Options::default() };
    let harness = Harness::on(MemoryStore::new(), options);
    let body = r#"{"type":"riddle"}"#.to_owned();
    let dead = |id: &str, queue| DeadLetter {
        id: id.to_owned(),
        queue,
        sent_at: Some(minute(1)),
        receive_count: 5,
        body: body.clone(),
    };
    parked.add(dead("m1", DeadLetterSource::Commands));
    assert_eq!(harness.get(Caller::Operator, "/api/dlq").await.problem().0, 403);
    assert_eq!(
        harness.get(Caller::ShopAdmin, "/api/dlq").await.problem().0,
        403,
        "dead letters name pull requests of every scope"
    );
    let dlq = harness.get(Caller::Admin, "/api/dlq").await.json();
    assert_eq!((&dlq["approximate_count"], &dlq["messages"][0]["body_excerpt"]), (&json!(1), &json!(body)));
    assert!(dlq["messages"][0]["reason"].as_str().unwrap().contains("`type` is \"riddle\""));
    assert_eq!(harness.get(Caller::Viewer, "/api/overview").await.json()["dlq"], json!({"messages": 1}));
    assert_eq!(harness.post(Caller::Admin, "/api/dlq/redrive", "").await.json(), json!({"moved": 1}));
    assert_eq!(harness.get(Caller::Admin, "/api/dlq").await.json()["messages"], json!([]));

    parked.add(dead("m2", DeadLetterSource::Commands));
    parked.add(dead("m3", DeadLetterSource::Commands));
    parked.add(dead("s1", DeadLetterSource::Sweeps));
    let delete = r#"{"id": "m2"}"#;
    assert_eq!(harness.post(Caller::Operator, "/api/dlq/delete", delete).await.problem().0, 403);
    assert_eq!(harness.post(Caller::Admin, "/api/dlq/delete", delete).await.json(), json!({"deleted": 1}));
    assert_eq!(harness.post(Caller::Admin, "/api/dlq/delete", delete).await.json(), json!({"deleted": 0}));
    let sweeps = r#"{"queue": "sweeps"}"#;
    assert_eq!(harness.post(Caller::ShopAdmin, "/api/dlq/purge", sweeps).await.problem().0, 403);
    assert_eq!(harness.post(Caller::Admin, "/api/dlq/purge", sweeps).await.json(), json!({"deleted": 1}));
    assert_eq!(harness.post(Caller::Admin, "/api/dlq/purge", r#"{"queue": "all"}"#).await.problem().0, 400);
    assert_eq!(harness.post(Caller::Admin, "/api/dlq/purge", "").await.json(), json!({"deleted": 1}));
}

#[tokio::test]
async fn breaker_is_shown_and_reset() {
    let policies = Policies::parse("mode = \"act\"\nbreaker.minimum_actions = 1").unwrap();
    let harness = Harness::on(MemoryStore::new(), Options { policies, ..Options::default() });
    harness.clock.set(minute(20));
    let settings = &harness.admin.engine().policies().base().breaker;
    for n in 0..3 {
        let run = RunId::new(format!("r{n}"));
        platform::store::breaker::count_outcome(
            harness.store(),
            &run,
            platform::store::breaker::RemedyOutcome::Failed,
            minute(20),
        )
        .await
        .unwrap();
    }
    platform::store::breaker::evaluate(harness.store(), settings, minute(20)).await.unwrap().unwrap();
    let open = harness.get(Caller::Viewer, "/api/circuit-breaker").await.json();
    assert_eq!(
        (&open["state"], &open["failure_rate_percent"], &open["failures"]),
        (&json!("open"), &json!(100), &json!(3))
    );
    assert_eq!(open["cooldown_until"], "2036-03-03T09:30:00Z");
    // Outcomes in the minute of the reset are not counted.
    harness.clock.set(minute(20) + jiff::SignedDuration::from_secs(30));
    let closed = harness.post(Caller::Admin, "/api/circuit-breaker/reset", "").await.json();
    assert_eq!((&closed["state"], &closed["failures"]), (&json!("closed"), &json!(0)));
}
