//! The engine: a fact is applied exactly once or reported as failed.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod contention;
mod failed_writes;
mod retention;
mod together;

use domain::decide::FactOutcome;
use domain::event::{Event, Fact, FactKind, RemedyUpdate};
use domain::id::{EffectId, RunId};
use domain::run::{Initiator, RunState, TransitionContext};
use domain::signals::CheckVerdict;
use domain::state::State;
use platform::engine::{Engine, EngineError};
use platform::publish::queue_message::QueueMessage;
use platform::publish::{Destination, OutboundMessage};
use platform::store::queries;
use platform::store::schema;
use platform::store::{Condition, Key, Query, QuerySource, RowWrite, Store, StoreError};
use testbed::{MemoryStore, RecordingPublisher};
use tests::{acting, check, claim, fact, minute, opened, pr, sha, start};

type TestEngine = Engine<MemoryStore, RecordingPublisher>;

fn engine() -> TestEngine {
    Engine::new(MemoryStore::new(), RecordingPublisher::default(), acting())
}

async fn log_of<S: Store>(engine: &Engine<S, RecordingPublisher>, number: u64) -> Vec<String> {
    let log = queries::events(engine.store(), &pr(number), false, None, 1000, start()).await.unwrap();
    assert_eq!(log.next, None);
    log.entries.iter().map(Event::sort_key).collect()
}

/// A pull request whose checks never started, and the diagnosis that claims a rebuild.
async fn open_stuck_pr(engine: &TestEngine) -> Fact {
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    claim(engine, &pr(1), "run-1", minute(5)).await
}

#[tokio::test]
async fn fact_costs_two_requests_and_opening_costs_one() {
    let engine = engine();
    let spent = || engine.store().usage().usage().requests;
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    assert_eq!(spent(), 1, "an opening needs no read");
    let applied =
        engine.apply(&check(&pr(1), "d1", "build", CheckVerdict::Running, minute(1)), minute(1)).await.unwrap();
    assert_eq!((applied.outcome, applied.attempts, spent()), (FactOutcome::Applied, 1, 3));
    let again = engine.apply(&check(&pr(1), "d1", "build", CheckVerdict::Running, minute(1)), minute(1)).await.unwrap();
    assert_eq!((again.outcome, spent()), (FactOutcome::Duplicate, 4), "a duplicate costs one read");
    let unknown =
        engine.apply(&check(&pr(2), "d2", "build", CheckVerdict::Running, minute(1)), minute(1)).await.unwrap();
    assert_eq!((unknown.outcome, spent()), (FactOutcome::Ignored, 5));
    let row = engine.store().get(&Key::state(format!("SHA#acme/shop#{}", sha('a'))), minute(1)).await.unwrap().unwrap();
    assert_eq!(schema::prs_of_head(&row).into_iter().collect::<Vec<_>>(), [1]);
    let key = schema::vulnerability_key(&pr(1).repo, "main", "CVE-2026-1234");
    let row = engine.store().get(&key, minute(1)).await.unwrap().unwrap();
    assert_eq!(schema::vulnerability_of(&row).open.into_iter().collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn late_opening_finds_the_record_without_another_read() {
    let engine = engine();
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    let spent = engine.store().usage().usage().requests;
    let late = engine.apply(&opened(&pr(1), "d9", start()), minute(1)).await.unwrap();
    assert_eq!((late.outcome, late.attempts), (FactOutcome::Duplicate, 2));
    assert_eq!(engine.store().usage().usage().requests - spent, 1, "the error contains the record");
}

#[tokio::test]
async fn claim_is_one_transaction_and_its_effect_is_deleted_after_delivery() {
    let engine = engine();
    let claim = open_stuck_pr(&engine).await;
    let applied = engine.apply(&claim, minute(5)).await.unwrap();
    assert_eq!((applied.outcome, applied.unpublished), (FactOutcome::Applied, 0));
    let sent = engine.publisher().sent();
    let [OutboundMessage { id, destination: Destination::Queue { message: QueueMessage::Command(command), .. } }] =
        &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!(command.command.name(), "/rebuild");
    assert_eq!(engine.undelivered(&EffectId::new(id.as_str()), minute(5)).await.unwrap(), None);
    let run = engine.run(&RunId::new("run-1"), minute(5)).await.unwrap().unwrap();
    assert_eq!((run.state, run.pr), (RunState::Pending, Some(pr(1))));
}

#[tokio::test]
async fn undelivered_effect_stays_in_the_outbox_and_is_sent_on_redelivery() {
    let engine = engine();
    let claim = open_stuck_pr(&engine).await;
    engine.publisher().set_down(true);
    let applied = engine.apply(&claim, minute(5)).await.unwrap();
    assert_eq!((applied.outcome, applied.unpublished), (FactOutcome::Applied, 1));
    let due = Query {
        from: QuerySource::Index(platform::store::Index::Due),
        partition: String::new(),
        prefix: None,
        up_to: Some(schema::sort_time(minute(6))),
        backwards: false,
        limit: 10,
        after: None,
    };
    let mut waiting = Vec::new();
    for shard in schema::due_partitions() {
        let page = engine.store().query(&Query { partition: shard, ..due.clone() }, minute(6)).await.unwrap();
        waiting.extend(page.rows.into_iter().map(|(key, _)| key.partition).filter(|key| key.starts_with("OUT#")));
    }
    assert_eq!(waiting, ["OUT#acme/shop#1#sweep-run-1#0"], "the sweep finds it after a minute");
    engine.publisher().set_down(false);
    // The same fact on the earlier record: a redelivery after a crash.
    let before = repeated_fact(&engine).await;
    let again = engine.apply(&before, minute(6)).await.unwrap();
    assert_eq!((again.outcome, again.unpublished), (FactOutcome::Duplicate, 0));
    assert_eq!(engine.publisher().sent().len(), 1);
    let record = engine.load(&pr(1), minute(6)).await.unwrap().unwrap();
    assert_eq!(record.retry_counts.rebuild, 1, "it is counted once");
}

/// A new fact with the id of an applied one.
async fn repeated_fact(_: &TestEngine) -> Fact {
    Fact { occurred_at: minute(5), ..check(&pr(1), "sweep-run-1", "build", CheckVerdict::Running, minute(5)) }
}

#[tokio::test]
async fn run_update_writes_record_and_run_together() {
    let engine = engine();
    let claim = open_stuck_pr(&engine).await;
    engine.apply(&claim, minute(5)).await.unwrap();
    let id = RunId::new("run-1");
    let key = schema::run_key(&id);
    let run = engine.run(&id, minute(5)).await.unwrap().unwrap();
    let version = run.version;
    let context = TransitionContext::new(Initiator::System, minute(6));
    let running = run.advance(RunState::Running, context).unwrap();
    let running = running.acquire_lease("bridge", minute(6), minute(7)).unwrap();
    let (_, item) = schema::run_row(&running, acting().base()).unwrap();
    let write = RowWrite::Put { key, item, only_if: Condition::Version(version) };
    engine.store().write(vec![write], minute(6)).await.unwrap();
    let update = |name: &str, update| fact(&pr(1), name, minute(6), FactKind::Remedy { run: id.clone(), update });
    engine.apply(&update("n1", RemedyUpdate::Accepted), minute(6)).await.unwrap();
    let run = engine.run(&id, minute(6)).await.unwrap().unwrap();
    assert_eq!((run.state, run.wait_deadline), (RunState::WaitingExternal, Some(minute(66))));
    engine.apply(&check(&pr(1), "d5", "build", CheckVerdict::Passed, minute(9)), minute(9)).await.unwrap();
    let run = engine.run(&id, minute(9)).await.unwrap().unwrap();
    assert_eq!((run.state, run.outcome.as_deref()), (RunState::Completed, Some("the checks passed")));
    let record = engine.load(&pr(1), minute(9)).await.unwrap().unwrap();
    assert_eq!((record.state, record.active_run), (State::ChecksPassed, None));
}

#[tokio::test]
async fn result_before_acceptance_ends_the_run_in_one_transaction() {
    let engine = engine();
    let claim = open_stuck_pr(&engine).await;
    engine.apply(&claim, minute(5)).await.unwrap();
    let id = RunId::new("run-1");
    let run = engine.run(&id, minute(5)).await.unwrap().unwrap();
    let version = run.version;
    let running = run.acquire_lease("bridge", minute(6), minute(7)).unwrap();
    let running = running.advance(RunState::Running, TransitionContext::new(Initiator::System, minute(6))).unwrap();
    let (key, item) = schema::run_row(&running, acting().base()).unwrap();
    let write = RowWrite::Put { key, item, only_if: Condition::Version(version) };
    engine.store().write(vec![write], minute(6)).await.unwrap();
    // Jenkins' response was slow and the build quick, so the result arrives first.
    engine.apply(&check(&pr(1), "d5", "build", CheckVerdict::Passed, minute(9)), minute(9)).await.unwrap();
    let update = FactKind::Remedy { run: id.clone(), update: RemedyUpdate::Accepted };
    let applied = engine.apply(&fact(&pr(1), "n1", minute(10), update), minute(10)).await.unwrap();
    assert_eq!(applied.outcome, FactOutcome::Applied, "{}", applied.reason);
    let run = engine.run(&id, minute(10)).await.unwrap().unwrap();
    assert_eq!((run.state, run.outcome.as_deref()), (RunState::Completed, Some("the checks passed")));
    let record = engine.load(&pr(1), minute(10)).await.unwrap().unwrap();
    assert_eq!((record.state, record.active_run), (State::ChecksPassed, None));
}

#[tokio::test]
async fn undecodable_record_is_named_in_the_error() {
    let engine = engine();
    let write = RowWrite::Put {
        key: schema::record_key(&pr(1)),
        item: serde_dynamo::Item::default(),
        only_if: Condition::Always,
    };
    engine.store().write(vec![write], start()).await.unwrap();
    let error = engine.apply(&check(&pr(1), "d1", "build", CheckVerdict::Running, start()), start()).await.unwrap_err();
    assert!(matches!(&error, EngineError::Store(StoreError::Corrupt(key, _)) if key.partition == "PR#acme/shop#1"));
    assert_eq!(error.to_string(), "the row PR#acme/shop#1 cannot be read: it has no `body`");
}

#[tokio::test]
async fn terminal_records_and_events_have_a_ttl() {
    let engine = engine();
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    let merged = fact(&pr(1), "d1", minute(1), FactKind::Merged { by: None, by_automerge_bot: true });
    engine.apply(&merged, minute(1)).await.unwrap();
    let day = 24 * 60;
    assert!(engine.load(&pr(1), minute(day)).await.unwrap().is_some());
    assert_eq!(engine.load(&pr(1), minute(day + 1)).await.unwrap(), None);
    assert_eq!(engine.store().sweep_ttl(minute(day + 1)), 1);
    assert_eq!(log_of(&engine, 1).await.len(), 2, "events are kept longer");
}
