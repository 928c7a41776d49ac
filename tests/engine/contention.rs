//! Concurrent writers on one pull request, on every store.

use std::sync::Arc;

use domain::decide::FactOutcome;
use domain::event::Fact;
use domain::signals::CheckVerdict;
use domain::state::State;
use platform::engine::{ApplyResult, Engine, EngineError};
use platform::store::Store;
use testbed::{MemoryStore, RecordingPublisher};
use tests::local_aws::{Dynoxide, Ministack};
use tests::{acting, check, minute, opened, pr, start};

use super::log_of;

fn engine_on<S: Store>(store: S) -> Arc<Engine<S, RecordingPublisher>> {
    Arc::new(Engine::new(store, RecordingPublisher::default(), acting()))
}

/// Retries write conflicts, as the queue does: on a busy machine a writer may lose for five seconds. Any other error
/// fails the test.
async fn apply_until_done<S: Store>(engine: &Engine<S, RecordingPublisher>, fact: &Fact) -> ApplyResult {
    loop {
        match engine.apply(fact, minute(1)).await {
            Err(EngineError::WriteConflict { .. }) => {}
            done => return done.unwrap(),
        }
    }
}

async fn delivery_repeated_a_thousand_times_is_applied_once<S: Store + 'static>(store: S) {
    let engine = engine_on(store);
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                let mut applied = 0;
                for _ in 0..32 {
                    let fact = check(&pr(1), "d1", "build", CheckVerdict::Running, minute(1));
                    let outcome = engine.apply(&fact, minute(1)).await.unwrap().outcome;
                    applied += u32::from(outcome == FactOutcome::Applied);
                }
                applied
            })
        })
        .collect();
    let mut applied = 0;
    for task in tasks {
        applied += task.await.unwrap();
    }
    assert_eq!(applied, 1, "one transition");
    assert_eq!(log_of(&engine, 1).await.len(), 2, "one event row beside the opening's");
    let record = engine.load(&pr(1), minute(1)).await.unwrap().unwrap();
    assert_eq!((record.state, record.version), (State::ChecksRunning, 2));
}

async fn thirty_two_concurrent_writers_all_apply<S: Store + 'static>(store: S) {
    let engine = engine_on(store);
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    let tasks: Vec<_> = (0..32)
        .map(|n| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                let fact = check(&pr(1), format!("d{n}"), &format!("check-{n:02}"), CheckVerdict::Running, minute(1));
                apply_until_done(&engine, &fact).await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().outcome, FactOutcome::Applied);
    }
    let record = engine.load(&pr(1), minute(1)).await.unwrap().unwrap();
    assert_eq!((record.signals.checks.len(), record.version), (32, 33));
    assert_eq!(log_of(&engine, 1).await.len(), 33);
}

/// A matrix of a hundred jobs reports within a minute; here within ten seconds. None is refused, which would be a 503.
async fn hundred_checks_in_a_minute_all_apply<S: Store + 'static>(store: S) {
    let engine = engine_on(store);
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    let tasks: Vec<_> = (0..100_u64)
        .map(|n| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(100 * n)).await;
                let fact = check(&pr(1), format!("d{n}"), &format!("job-{n:03}"), CheckVerdict::Passed, minute(1));
                apply_until_done(&engine, &fact).await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().outcome, FactOutcome::Applied);
    }
    let record = engine.load(&pr(1), minute(1)).await.unwrap().unwrap();
    assert_eq!((record.signals.checks.len(), record.state), (100, State::ChecksPassed));
}

macro_rules! on_every_store {
    ($($scenario:ident,)*) => {
        mod memory {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                super::$scenario(MemoryStore::new()).await;
            })*
        }
        mod dynoxide {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                let dynamo = Dynoxide::in_memory().await;
                super::$scenario(dynamo.store().await).await;
            })*
        }
        mod ministack {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                super::$scenario(Ministack::shared().store().await).await;
            })*
        }
    };
}

on_every_store! {
    delivery_repeated_a_thousand_times_is_applied_once,
    thirty_two_concurrent_writers_all_apply,
    hundred_checks_in_a_minute_all_apply,
}
