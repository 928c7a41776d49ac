//! The contract of a store, on every implementation there is.

#![expect(clippy::unwrap_used, clippy::panic, clippy::wildcard_enum_match_arm, reason = "a test may stop")]

mod contract;

use platform::store::memory::MemoryStore;

/// Runs each clause on a fresh store.
macro_rules! contract {
    ($name:ident, $store:expr) => {
        mod $name {
            use super::*;
            contract!(@clauses $store,
                what_is_put_is_read_back,
                absent_means_not_there_or_expired,
                never_seen_is_stricter_than_absent,
                a_version_must_match,
                all_or_nothing_and_what_was_in_the_way,
                rows_are_changed_without_being_read,
                deleting_twice_is_no_error,
                counters_count_and_begin_anew,
                an_index_is_sorted_sparse_and_follows_its_rows,
                pages_go_on_where_they_ended,
                the_log_is_read_by_time_and_from_its_end,
                what_has_expired_is_not_there,
                nonsense_is_refused_whole,
                requests_are_counted,
            );
        }
    };
    (@clauses $store:expr, $($clause:ident,)*) => {
        $(
            #[tokio::test]
            async fn $clause() {
                let store = $store;
                contract::$clause(&store).await;
            }
        )*
    };
}

contract!(memory, MemoryStore::new());

#[tokio::test]
async fn the_broom_takes_what_has_expired() {
    use platform::store::{Key, OnlyIf, Store, TTL, Write, number};
    let store = MemoryStore::new();
    let now = tests::start();
    for (name, ttl) in [("old", now.as_second()), ("young", now.as_second() + 1)] {
        let mut item = serde_dynamo::Item::default();
        item.inner_mut().insert(TTL.to_owned(), number(ttl));
        store.write(vec![Write::Put { key: Key::state(name), item, only_if: OnlyIf::Always }], now).await.unwrap();
    }
    assert_eq!((store.len(), store.is_empty()), (2, false));
    assert_eq!(store.sweep_ttl(now), 1);
    assert_eq!(store.len(), 1);
    assert!(store.get(&Key::state("young"), now).await.unwrap().is_some());
}
