//! The contract of a store, on every implementation there is.

#![expect(clippy::unwrap_used, clippy::panic, clippy::wildcard_enum_match_arm, reason = "a test may stop")]

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
                what_is_put_is_read_back,
                absent_means_not_there_or_expired,
                never_seen_is_stricter_than_absent,
                a_version_must_match,
                all_or_nothing_and_what_was_in_the_way,
                rows_are_changed_without_being_read,
                a_change_may_want_the_row_to_be_there,
                deleting_twice_is_no_error,
                counters_count_and_begin_anew,
                an_index_is_sorted_sparse_and_follows_its_rows,
                pages_go_on_where_they_ended,
                the_log_is_read_by_time_and_from_its_end,
                what_has_expired_is_not_there,
                nonsense_is_refused_whole,
                requests_are_counted,
                a_lease_is_for_one_and_ends_by_itself,
                a_lease_is_given_back_only_by_its_holder,
                many_rows_are_read_at_once,
                an_index_shows_only_what_it_carries,
                a_page_may_begin_with_a_prefix_and_end_somewhere,
                the_log_has_an_index_of_its_own_that_carries_everything,
            );
            contract!(@clauses $store, leases,
                one_sweep_at_a_time,
                a_lease_is_never_shorter_than_asked,
                a_pause_that_was_repeated_undid_a_later_unpause,
                a_pause_of_an_earlier_build_could_not_be_ended,
                two_slots_are_two,
                what_is_counted_begins_anew_with_each_stretch,
                everybody_waits_until_the_later_time,
            );
            contract!(@clauses $store, breaker,
                the_breaker_trips_once_and_only_one_probe_passes,
                a_person_may_reset_it,
            );
            contract!(@clauses $store, idempotency,
                the_second_gets_the_answer_of_the_first,
                who_died_is_relieved_after_five_minutes,
                what_failed_may_be_tried_three_times,
                of_many_at_once_one_works,
            );
            contract!(@clauses $store, queries,
                what_is_due_is_found_the_longest_first,
                a_repository_is_listed_by_state_and_paged,
                runs_events_heads_and_vulnerabilities_are_found,
                a_row_that_cannot_be_understood_is_counted_and_left_out,
            );
        }
    };
    (@clauses $store:expr, $part:ident, $($clause:ident,)*) => {
        $(
            #[tokio::test]
            async fn $clause() {
                // What a store runs on must last as long as it does.
                let (_rig, store) = $store;
                $part::$clause(&store).await;
            }
        )*
    };
}

contract!(memory, ((), MemoryStore::new()));
contract!(dynoxide_in_memory, {
    let rig = Dynoxide::in_memory().await;
    let store = rig.store().await;
    (rig, store)
});
contract!(dynoxide_on_a_file, {
    let folder = Folder::new();
    let rig = Dynoxide::on_file(&folder.path().join("tables.db")).await;
    let store = rig.store().await;
    ((rig, folder), store)
});
contract!(ministack, ((), Ministack::shared().store().await));

/// A store on DynamoDB says what its requests consumed; one in memory consumes nothing.
#[tokio::test]
async fn consumed_capacity_is_added_up() {
    let rig = Dynoxide::in_memory().await;
    for store in [rig.store().await, Ministack::shared().store().await] {
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

/// What cannot be reached is told from what is refused, and a table that is missing is named.
#[tokio::test]
async fn a_table_that_cannot_be_reached_says_so() {
    let nobody = DynamoStore::new(local_aws::client("http://127.0.0.1:9"), local_aws::fresh_names());
    let error = nobody.get(&Key::state("a"), tests::start()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("dispatch failure")), "{error}");
    let rig = Dynoxide::in_memory().await;
    let missing = DynamoStore::new(local_aws::client(rig.endpoint()), local_aws::fresh_names());
    let error = missing.get(&Key::state("a"), tests::start()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("ResourceNotFound")), "{error}");
}

#[tokio::test]
async fn the_broom_takes_what_has_expired() {
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
