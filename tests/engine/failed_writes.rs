//! Rare DynamoDB errors: transaction conflicts, throttling, timeouts and oversized items. The errors are DynamoDB's
//! own, returned by a canned server.

use std::sync::Arc;

use domain::decide::FactOutcome;
use domain::event::EventKind;
use domain::signals::CheckVerdict;
use domain::state::State;
use platform::engine::{Engine, EngineError};
use platform::store::dynamo::DynamoStore;
use platform::store::queries;
use platform::store::{Condition, Key, RowWrite, Store, StoreError};
use serde_dynamo::{AttributeValue, Item};
use testbed::{CallFault, FaultStore, MemoryStore, RecordingPublisher};
use tests::local_aws::{self, Canned, Dynoxide};
use tests::{acting, check, minute, opened, pr, start};

/// The store error for this response of DynamoDB.
async fn error_for(status: u16, body: &str) -> StoreError {
    // The SDK makes three attempts.
    let server = Canned::start(vec![(status, body.to_owned()); 3]).await;
    let store = DynamoStore::new(local_aws::client(server.endpoint()), local_aws::fresh_names());
    let row = |name: &str| RowWrite::Put { key: Key::state(name), item: Item::default(), only_if: Condition::Absent };
    store.write(vec![row("a"), row("b")], start()).await.unwrap_err()
}

fn cancelled(reasons: &str) -> String {
    format!(
        r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"cancelled","CancellationReasons":[{reasons}]}}"#
    )
}

#[tokio::test]
async fn each_dynamodb_error_maps_to_what_the_caller_can_do() {
    let none = r#"{"Code":"None"}"#;
    let conflict = r#"{"Code":"TransactionConflict","Message":"ongoing"}"#;
    let failed = r#"{"Code":"ConditionalCheckFailed","Item":{"pk":{"S":"b"},"who":{"S":"first"}}}"#;
    assert_eq!(error_for(400, &cancelled(&format!("{none},{conflict}"))).await, StoreError::TransactionConflict);
    let both = error_for(400, &cancelled(&format!("{conflict},{failed}"))).await;
    let StoreError::ConditionFailed(refused) = both else { panic!("{both}") };
    assert_eq!(
        refused.iter().map(Option::is_some).collect::<Vec<_>>(),
        [false, true],
        "a failed condition takes precedence"
    );
    let found = refused[1].as_ref().unwrap().found.as_ref().unwrap();
    assert_eq!(platform::store::text_of(found, "who"), Some("first"));
    let throttled = cancelled(&format!(r#"{none},{{"Code":"ThrottlingError","Message":"slow down"}}"#));
    assert_eq!(error_for(400, &throttled).await, StoreError::Throttled);
    let too_large = cancelled(&format!(r#"{none},{{"Code":"ValidationError","Message":"Item size has exceeded"}}"#));
    assert!(matches!(error_for(400, &too_large).await, StoreError::TooLarge(why) if why.contains("Item size")));
    let busy = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"no"}"#;
    assert_eq!(error_for(400, busy).await, StoreError::Throttled);
    let down =
        error_for(500, r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"oh"}"#).await;
    assert!(matches!(&down, StoreError::Unavailable(why) if why.contains("InternalServerError")), "{down}");
    let denied = r#"{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"not authorized"}"#;
    assert!(matches!(error_for(400, denied).await, StoreError::Unavailable(why) if why.contains("AccessDenied")));
}

#[tokio::test]
async fn transaction_conflict_is_decided_again() {
    let dynamo = Dynoxide::in_memory().await;
    let engine =
        Engine::new(FaultStore::new(dynamo.store().await, &Arc::default()), RecordingPublisher::default(), acting());
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    engine.store().fail_writes([StoreError::TransactionConflict, StoreError::TransactionConflict]);
    let fact = check(&pr(1), "d1", "build", CheckVerdict::Running, minute(1));
    let applied = engine.apply(&fact, minute(1)).await.unwrap();
    assert_eq!((applied.outcome, applied.attempts), (FactOutcome::Applied, 3));
    let record = engine.load(&pr(1), minute(1)).await.unwrap().unwrap();
    assert_eq!((record.state, record.version), (State::ChecksRunning, 2));
}

#[tokio::test(start_paused = true)]
async fn apply_gives_up_after_repeated_write_conflicts() {
    let engine = Engine::new(FaultStore::<MemoryStore>::default(), RecordingPublisher::default(), acting());
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    engine.store().fail_writes(std::iter::repeat_n(StoreError::TransactionConflict, 1000));
    let error =
        engine.apply(&check(&pr(1), "d1", "build", CheckVerdict::Running, minute(1)), minute(1)).await.unwrap_err();
    assert!(matches!(&error, EngineError::WriteConflict { tries, .. } if *tries > 5), "{error}");
    assert!(error.to_string().starts_with("acme/shop#1: write conflict after"));
}

/// The write succeeded but its response was lost: the redelivery finds its event and delivers the rest.
#[tokio::test]
async fn commit_with_a_lost_response_is_not_repeated() {
    let engine = Engine::new(FaultStore::<MemoryStore>::default(), RecordingPublisher::default(), acting());
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    let claim = tests::claim(&engine, &pr(1), "run-1", minute(5)).await;
    engine.store().faults.plan(2, CallFault::AnswerLost);
    let error = engine.apply(&claim, minute(5)).await.unwrap_err();
    assert!(error.to_string().contains("no answer: write PR#"), "{error}");
    engine.store().faults.restart();
    assert!(matches!(error, EngineError::Store(StoreError::Unavailable(_))));
    assert_eq!(engine.publisher().sent(), []);
    let due = queries::due(engine.store(), 10, minute(6), minute(6)).await.unwrap();
    for entry in due.entries {
        if let platform::store::schema::DueSubject::Effect(id) = entry.subject {
            assert!(engine.redeliver(&id, minute(6)).await.unwrap());
        }
    }
    assert_eq!(engine.publisher().sent().len(), 1);
    assert_eq!(engine.load(&pr(1), minute(6)).await.unwrap().unwrap().retry_counts.rebuild, 1);
}

#[tokio::test]
async fn throttling_is_reported_and_nothing_is_written() {
    let engine = Engine::new(FaultStore::<MemoryStore>::default(), RecordingPublisher::default(), acting());
    engine.store().fail_writes([StoreError::Throttled]);
    let error = engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap_err();
    assert_eq!(error, EngineError::Store(StoreError::Throttled));
    assert_eq!(engine.load(&pr(1), start()).await.unwrap(), None);
    assert_eq!(engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap().outcome, FactOutcome::Applied);
}

/// The record exceeds the size limit: the event log names the fact and the reason, and the record is due.
#[tokio::test]
async fn oversized_record_is_logged_as_an_anomaly() {
    let engine = Engine::new(FaultStore::<MemoryStore>::default(), RecordingPublisher::default(), acting());
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    engine.store().fail_writes([StoreError::TooLarge("DynamoDB does not take this".to_owned())]);
    let fact = check(&pr(1), "d1", "build", CheckVerdict::Running, minute(1));
    let applied = engine.apply(&fact, minute(1)).await.unwrap();
    assert_eq!(applied.outcome, FactOutcome::Anomaly);
    assert_eq!(applied.reason, "the result of d1 cannot be stored: DynamoDB does not take this");
    let log = queries::events(engine.store(), &pr(1), true, None, 1, minute(1)).await.unwrap();
    assert_eq!((log.entries[0].kind, log.entries[0].id.as_str()), (EventKind::Anomaly, "d1"));
    let record = engine.load(&pr(1), minute(1)).await.unwrap().unwrap();
    assert_eq!((record.state, record.due_at), (State::Created, Some(minute(1))), "the record is due at once");
    let again = engine.apply(&fact, minute(2)).await.unwrap();
    assert_eq!(again.outcome, FactOutcome::Duplicate);
}

/// A record that exceeds DynamoDB's item size, on dynoxide.
#[tokio::test]
async fn row_over_400_kb_is_refused_as_too_large() {
    let dynamo = Dynoxide::in_memory().await;
    let store = dynamo.store().await;
    let mut item = Item::default();
    item.inner_mut().insert("body".to_owned(), AttributeValue::S("x".repeat(410_000)));
    let large = RowWrite::Put { key: Key::state("a"), item, only_if: Condition::Absent };
    let small = RowWrite::Put { key: Key::state("b"), item: Item::default(), only_if: Condition::Absent };
    for writes in [vec![large.clone()], vec![large, small]] {
        let error = store.write(writes, start()).await.unwrap_err();
        assert!(matches!(&error, StoreError::TooLarge(_)), "{error}");
    }
}
