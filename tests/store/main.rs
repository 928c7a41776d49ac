//! The store contract, on every implementation.

#![expect(clippy::unwrap_used, clippy::panic, clippy::wildcard_enum_match_arm, reason = "tests may panic")]

mod breaker;
mod contract;
mod idempotency;
mod leases;
mod queries;

use platform::store::dynamo::DynamoStore;
use platform::store::{Condition, Key, RowWrite, Store, StoreError, TTL, number};
use serde_dynamo::Item;
use testbed::MemoryStore;
use tests::local_aws::{self, Dynoxide, Folder, Ministack};

/// Runs each clause on a fresh store.
macro_rules! contract {
    ($name:ident, $store:expr) => {
        mod $name {
            use super::*;
            contract!(@clauses $store, contract,
                put_row_is_read_back,
                absent_condition_accepts_expired_rows,
                never_seen_condition_rejects_expired_rows,
                version_condition_rejects_other_versions,
                failed_transaction_writes_nothing_and_returns_the_conflict,
                update_changes_rows_without_a_read,
                present_condition_rejects_missing_and_expired_rows,
                repeated_delete_succeeds,
                counter_restarts_after_expiry,
                index_is_sorted_sparse_and_follows_its_rows,
                next_page_continues_after_the_cursor,
                event_log_is_read_by_time_in_both_directions,
                expired_rows_are_not_returned,
                invalid_write_batch_is_refused_whole,
                requests_are_counted,
                lease_has_one_holder_and_expires,
                lease_is_released_only_by_its_holder,
                batch_get_reads_many_rows,
                index_returns_only_projected_attributes,
                query_is_bounded_by_prefix_and_end,
                event_log_index_projects_all_attributes,
            );
            contract!(@clauses $store, leases,
                sweep_lease_has_one_holder,
                lease_lasts_at_least_the_requested_time,
                repeated_pause_does_not_undo_a_later_unpause,
                unpause_ends_a_pause_of_an_earlier_release,
                slots_are_limited_to_their_count,
                counter_restarts_with_each_window,
                not_before_keeps_the_later_time,
            );
            contract!(@clauses $store, breaker,
                breaker_trips_once_and_admits_one_probe,
                breaker_can_be_reset_manually,
            );
            contract!(@clauses $store, idempotency,
                repeated_request_returns_the_stored_response,
                expired_lock_can_be_retaken_after_five_minutes,
                failed_request_gets_three_attempts,
                concurrent_requests_run_once,
            );
            contract!(@clauses $store, queries,
                due_query_returns_the_oldest_first,
                repositories_are_spread_over_rows_and_the_old_row_counts,
                repository_is_listed_by_state_and_paged,
                runs_events_heads_and_vulnerabilities_are_queried,
                undecodable_row_is_counted_and_skipped,
            );
        }
    };
    (@clauses $store:expr, $part:ident, $($clause:ident,)*) => {
        $(
            #[tokio::test]
            async fn $clause() {
                // The backend must outlive the store.
                let (_backend, store) = $store;
                $part::$clause(&store).await;
            }
        )*
    };
}

contract!(memory, ((), MemoryStore::new()));
contract!(dynoxide_in_memory, {
    let dynamo = Dynoxide::in_memory().await;
    let store = dynamo.store().await;
    (dynamo, store)
});
contract!(dynoxide_on_a_file, {
    let folder = Folder::new();
    let dynamo = Dynoxide::on_file(&folder.path().join("tables.db")).await;
    let store = dynamo.store().await;
    ((dynamo, folder), store)
});
contract!(ministack, ((), Ministack::shared().store().await));

/// A DynamoDB store adds up the consumed capacity; an in-memory store consumes none.
#[tokio::test]
async fn consumed_capacity_is_added_up() {
    let dynamo = Dynoxide::in_memory().await;
    for store in [dynamo.store().await, Ministack::shared().store().await] {
        let row = |key: &str| RowWrite::Put { key: Key::state(key), item: Item::default(), only_if: Condition::Always };
        store.write(vec![row("one")], tests::start()).await.unwrap();
        let one = store.usage().usage().units;
        assert!(one >= 1.0, "{one}");
        store.write(vec![row("a"), row("b")], tests::start()).await.unwrap();
        let two = store.usage().usage().units - one;
        assert!(two >= 2.0 * one, "{two}");
        store.get(&Key::state("one"), tests::start()).await.unwrap();
        assert!(store.usage().usage().units > one + two);
    }
}

/// An unreachable endpoint and a missing table are distinguished from a refusal.
#[tokio::test]
async fn unreachable_and_missing_tables_are_reported() {
    let unreachable = DynamoStore::new(local_aws::client("http://127.0.0.1:9"), local_aws::fresh_names());
    let error = unreachable.get(&Key::state("a"), tests::start()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("dispatch failure")), "{error}");
    let dynamo = Dynoxide::in_memory().await;
    let missing = DynamoStore::new(local_aws::client(dynamo.endpoint()), local_aws::fresh_names());
    let error = missing.get(&Key::state("a"), tests::start()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("ResourceNotFound")), "{error}");
}

#[tokio::test]
async fn ttl_sweep_removes_expired_rows() {
    let store = MemoryStore::new();
    let now = tests::start();
    for (name, ttl) in [("old", now.as_second()), ("young", now.as_second() + 1)] {
        let mut item = serde_dynamo::Item::default();
        item.inner_mut().insert(TTL.to_owned(), number(ttl));
        store
            .write(vec![RowWrite::Put { key: Key::state(name), item, only_if: Condition::Always }], now)
            .await
            .unwrap();
    }
    assert_eq!((store.len(), store.is_empty()), (2, false));
    assert_eq!(store.sweep_ttl(now), 1);
    assert_eq!(store.len(), 1);
    assert!(store.get(&Key::state("young"), now).await.unwrap().is_some());
}
