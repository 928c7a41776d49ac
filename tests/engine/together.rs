//! Facts of one pull request that are applied in one transaction: each its own event, exactly once.

use domain::decide::FactOutcome;
use domain::event::{Event, Fact};
use domain::signals::CheckVerdict;
use domain::state::State;
use platform::engine::{Engine, EngineError};
use platform::store::{Condition, Key, MAX_WRITES, RowWrite, Store, StoreError};
use serde_dynamo::Item;
use testbed::{FaultStore, Faults, MemoryStore, RecordingPublisher, TestStore};
use tests::{acting, check, minute, opened, pr, start};

use super::{engine, log_of};

fn reports(count: usize) -> Vec<Fact> {
    let report = |n: usize| check(&pr(1), format!("d{n:03}"), &format!("job-{n:03}"), CheckVerdict::Passed, minute(1));
    (1..=count).map(report).collect()
}

/// The number of facts in the log.
async fn logged(engine: &Engine<MemoryStore, RecordingPublisher>) -> usize {
    log_of(engine, 1).await.iter().filter(|key| key.ends_with("#0")).count()
}

/// 300 reports at once took 300 transactions on one record, most of which conflicted.
#[tokio::test]
async fn waiting_facts_of_one_pull_request_are_one_transaction() {
    let engine = engine();
    engine.apply(&opened(&pr(1), "d000", start()), start()).await.unwrap();
    let before = engine.store().usage().usage();
    let results = engine.apply_all(&reports(90), minute(2)).await.unwrap();
    let after = engine.store().usage().usage();
    assert!(results.iter().all(|result| result.outcome == FactOutcome::Applied), "{results:?}");
    assert_eq!(after.requests - before.requests, 2, "one read and one transaction");
    assert_eq!(logged(&engine).await, 91, "each fact has its own event");
    let record = engine.load(&pr(1), minute(2)).await.unwrap().unwrap();
    assert_eq!((record.signals.checks.len(), record.state), (90, State::ChecksPassed));
}

#[tokio::test]
async fn facts_above_the_transaction_limit_take_several_transactions() {
    let engine = engine();
    engine.apply(&opened(&pr(1), "d000", start()), start()).await.unwrap();
    let before = engine.store().usage().usage().requests;
    let facts = reports(2 * MAX_WRITES + 40);
    let results = engine.apply_all(&facts, minute(2)).await.unwrap();
    assert_eq!(results.len(), facts.len());
    assert!(results.iter().all(|result| result.outcome == FactOutcome::Applied));
    assert_eq!(engine.store().usage().usage().requests - before, 6, "three transactions, with their reads");
    assert_eq!(logged(&engine).await, facts.len() + 1);
}

/// The same decisions as one after the other, in whatever order they are given.
#[tokio::test]
async fn facts_together_give_the_same_record_and_log_as_one_after_the_other() {
    let (together, alone) = (engine(), engine());
    let mut facts = reports(20);
    facts.push(check(&pr(1), "e1", "job-001", CheckVerdict::Running, minute(2)));
    facts.push(opened(&pr(1), "d000", start()));
    for fact in facts.iter().rev().take(1).chain(&facts[..21]) {
        alone.apply(fact, minute(3)).await.unwrap();
    }
    together.apply_all(&facts, minute(3)).await.unwrap();
    assert_eq!(log_of(&together, 1).await, log_of(&alone, 1).await);
    let (one, other) = (together.load(&pr(1), minute(3)).await, alone.load(&pr(1), minute(3)).await);
    assert_eq!(one.unwrap().unwrap(), other.unwrap().unwrap());
}

/// One fact of the group was applied before, and one is in it twice: the others are applied, and no event is written again.
#[tokio::test]
async fn fact_that_was_applied_before_is_dropped_and_the_others_are_applied() {
    let engine = engine();
    engine.apply(&opened(&pr(1), "d000", start()), start()).await.unwrap();
    let mut facts = reports(10);
    facts.push(facts[0].clone());
    // Only the log shows that the fifth was applied before.
    let key = Key::event(pr(1).to_string(), Event::sort_key_of(facts[4].occurred_at, &facts[4].id, 0));
    let put = RowWrite::Put { key, item: Item::default(), only_if: Condition::Always };
    engine.store().write(vec![put], minute(2)).await.unwrap();
    let results = engine.apply_all(&facts, minute(3)).await.unwrap();
    let outcomes: Vec<FactOutcome> = results.iter().map(|result| result.outcome).collect();
    for (at, outcome) in outcomes.iter().enumerate() {
        let expected = if [4, 10].contains(&at) { FactOutcome::Duplicate } else { FactOutcome::Applied };
        assert_eq!(*outcome, expected, "{at}: {outcomes:?}");
    }
    let record = engine.load(&pr(1), minute(3)).await.unwrap().unwrap();
    assert_eq!(record.signals.checks.len(), 9);
    assert_eq!(logged(&engine).await, 10, "without the row that cannot be decoded");
}

/// A webhook waits for nobody: its sender does.
#[tokio::test(start_paused = true)]
async fn webhook_gives_up_after_the_second_conflict() {
    let faults = std::sync::Arc::new(Faults::default());
    let store = FaultStore::new(TestStore::Memory(std::sync::Arc::new(MemoryStore::new())), &faults);
    let engine = Engine::new(store, RecordingPublisher::default(), acting());
    engine.apply(&opened(&pr(1), "d000", start()), start()).await.unwrap();
    let fact = &reports(1)[0];
    engine.store().fail_writes(std::iter::repeat_n(StoreError::TransactionConflict, 2));
    let began = tokio::time::Instant::now();
    let refused = engine.try_apply(None, fact, minute(2)).await.unwrap_err();
    assert_eq!(refused, EngineError::WriteConflict { pr: pr(1), tries: 2 });
    assert!(began.elapsed() < std::time::Duration::from_millis(500), "{:?}", began.elapsed());
    engine.store().fail_writes(std::iter::repeat_n(StoreError::TransactionConflict, 2));
    let applied = engine.apply_all(std::slice::from_ref(fact), minute(2)).await.unwrap();
    assert_eq!((applied[0].outcome, applied[0].attempts), (FactOutcome::Applied, 3), "the queue's consumer is patient");
}
