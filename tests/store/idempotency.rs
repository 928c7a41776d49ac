//! Idempotency keys.

use admin::idempotency::{
    ClaimResult, IdempotencyError, IdempotencyKey, KeyClaim, StoredResponse, claim, complete, fail,
};
use platform::hash::stable_id;
use platform::store::Store;
use tests::{minute, start};

fn key() -> IdempotencyKey {
    IdempotencyKey::api("ops", "req-1")
}

fn response() -> StoredResponse {
    StoredResponse { status: 202, body: r#"{"command_id":"c1"}"#.to_owned() }
}

fn work(result: ClaimResult) -> KeyClaim {
    match result {
        ClaimResult::Work(claim) => claim,
        ClaimResult::Answered(_) | ClaimResult::Processing { .. } => panic!("{result:?}"),
    }
}

pub(crate) async fn repeated_request_returns_the_stored_response(store: &impl Store) {
    let first = work(claim(store, &key(), b"body", start()).await.unwrap());
    assert_eq!(first.attempt(), 1);
    let waiting = claim(store, &key(), b"body", minute(1)).await.unwrap();
    assert_eq!(waiting, ClaimResult::Processing { until: minute(5) });
    complete(store, first, response(), minute(2)).await.unwrap();
    assert_eq!(claim(store, &key(), b"body", minute(3)).await.unwrap(), ClaimResult::Answered(response()));
    let error = claim(store, &key(), b"another", minute(3)).await.unwrap_err();
    assert_eq!((error.code(), error), ("IDEMPOTENCY_CONFLICT", IdempotencyError::Conflict));
    let day = 24 * 60 + 2;
    assert_eq!(claim(store, &key(), b"body", minute(day - 1)).await.unwrap(), ClaimResult::Answered(response()));
    assert_eq!(
        work(claim(store, &key(), b"another", minute(day)).await.unwrap()).attempt(),
        1,
        "it expires after a day"
    );
}

pub(crate) async fn expired_lock_can_be_retaken_after_five_minutes(store: &impl Store) {
    let dead = work(claim(store, &key(), b"body", start()).await.unwrap());
    let next = work(claim(store, &key(), b"body", minute(5)).await.unwrap());
    assert_eq!(next.attempt(), 2);
    let late = complete(store, dead, response(), minute(6)).await.unwrap_err();
    assert_eq!((late.code(), late), ("IDEMPOTENCY_EXPIRED", IdempotencyError::Expired));
    complete(store, next, response(), minute(6)).await.unwrap();
    assert_eq!(claim(store, &key(), b"body", minute(7)).await.unwrap(), ClaimResult::Answered(response()));
}

pub(crate) async fn failed_request_gets_three_attempts(store: &impl Store) {
    for attempt in 1..=3 {
        let first = work(claim(store, &key(), b"body", minute(attempt)).await.unwrap());
        assert_eq!(i64::from(first.attempt()), attempt);
        fail(store, first, format!("jenkins said no ({attempt})"), minute(attempt)).await.unwrap();
    }
    let error = claim(store, &key(), b"body", minute(4)).await.unwrap_err();
    assert_eq!(error.code(), "IDEMPOTENCY_EXHAUSTED");
    assert_eq!(
        error.to_string(),
        "this request failed 3 times, the last time with: jenkins said no (3). Use a new idempotency key to retry"
    );
    assert_eq!(work(claim(store, &key(), b"body", minute(63)).await.unwrap()).attempt(), 1, "it expires after an hour");
}

pub(crate) async fn concurrent_requests_run_once(store: &impl Store) {
    let named = IdempotencyKey::api("ops", "at-once");
    let begin = || claim(store, &named, b"", start());
    let all = tokio::join!(begin(), begin(), begin(), begin(), begin(), begin());
    let all = [all.0, all.1, all.2, all.3, all.4, all.5].map(Result::unwrap);
    assert_eq!(all.iter().filter(|result| matches!(result, ClaimResult::Work(_))).count(), 1);
}

#[test]
fn composite_ids_do_not_collide() {
    assert_ne!(stable_id(&["ab", "c"]), stable_id(&["a", "bc"]));
    assert_eq!(stable_id(&["job", "7"]), stable_id(&["job", "7"]));
    assert_eq!(stable_id(&["job", "7"]).len(), 64);
    assert_eq!(platform::hash::hash(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(key().as_str(), "api:ops:req-1");
}
