//! Leases, slots and counters.

use jiff::SignedDuration;
use platform::store::counter::count_in_window;
use platform::store::lease::LeaseResult;
use platform::store::lease::acquire as acquire_lease;
use platform::store::lease::release as release_lease;
use platform::store::not_before::load as not_before;
use platform::store::not_before::set as set_not_before;
use platform::store::pause::pause;
use platform::store::pause::paused_by;
use platform::store::pause::unpause;
use platform::store::slot::SlotResult;
use platform::store::slot::acquire as acquire_slot;
use platform::store::slot::release as release_slot;
use platform::store::{Condition, Key, RowWrite, Store};
use serde_dynamo::{AttributeValue, Item};
use tests::{minute, pr, start};

pub(crate) async fn sweep_lease_has_one_holder(store: &impl Store) {
    assert_eq!(acquire_lease(store, "sweep", "a", minute(2), start()).await.unwrap(), LeaseResult::Held);
    let taken = LeaseResult::HeldByOther { by: "a".to_owned(), until: minute(2) };
    assert_eq!(acquire_lease(store, "sweep", "b", minute(3), start()).await.unwrap(), taken);
    release_lease(store, "sweep", "b", start()).await.unwrap();
    assert_eq!(
        acquire_lease(store, "sweep", "b", minute(3), start()).await.unwrap(),
        taken,
        "only the holder can release it"
    );
    release_lease(store, "sweep", "a", start()).await.unwrap();
    assert_eq!(acquire_lease(store, "sweep", "b", minute(3), start()).await.unwrap(), LeaseResult::Held);
    assert_eq!(
        acquire_lease(store, "sweep", "c", minute(9), minute(3)).await.unwrap(),
        LeaseResult::Held,
        "it expired"
    );
}

pub(crate) async fn lease_lasts_at_least_the_requested_time(store: &impl Store) {
    let half = |secs: i64| start() + SignedDuration::from_millis(1000 * secs + 500);
    acquire_lease(store, "sweep", "a", half(10), start()).await.unwrap();
    let just_before = start() + SignedDuration::from_millis(10_400);
    assert_ne!(acquire_lease(store, "sweep", "b", half(20), just_before).await.unwrap(), LeaseResult::Held);
    assert_eq!(acquire_lease(store, "sweep", "b", half(20), half(11)).await.unwrap(), LeaseResult::Held);
}

pub(crate) async fn repeated_pause_does_not_undo_a_later_unpause(store: &impl Store) {
    let maria = Some("maria".to_owned());
    assert_eq!(pause(store, "maria", start(), start()).await.unwrap(), maria);
    assert_eq!(paused_by(store, start()).await.unwrap(), maria);
    assert_eq!(unpause(store, minute(1), minute(1)).await.unwrap(), None);
    assert_eq!(paused_by(store, minute(1)).await.unwrap(), None);
    assert_eq!(pause(store, "maria", start(), minute(6)).await.unwrap(), None, "an outdated request");
    assert_eq!(paused_by(store, minute(6)).await.unwrap(), None);
    let danny = Some("danny".to_owned());
    assert_eq!(pause(store, "danny", minute(7), minute(7)).await.unwrap(), danny);
    assert_eq!(unpause(store, minute(1), minute(8)).await.unwrap(), danny, "an outdated request");
    assert_eq!(paused_by(store, minute(8)).await.unwrap(), danny);
}

pub(crate) async fn unpause_ends_a_pause_of_an_earlier_release(store: &impl Store) {
    let mut item = Item::default();
    item.inner_mut().insert("holder".to_owned(), AttributeValue::S("maria".to_owned()));
    let row = RowWrite::Put { key: Key::state("PAUSE"), item, only_if: Condition::Always };
    store.write(vec![row], start()).await.unwrap();
    assert_eq!(paused_by(store, start()).await.unwrap().as_deref(), Some("maria"));
    assert_eq!(unpause(store, minute(1), minute(1)).await.unwrap(), None);
    assert_eq!(paused_by(store, minute(1)).await.unwrap(), None);
}

pub(crate) async fn slots_are_limited_to_their_count(store: &impl Store) {
    let repo = pr(1).repo;
    let take = |who: &'static str, until, now| {
        let repo = repo.clone();
        async move { acquire_slot(store, repo.as_str(), 2, who, until, now).await.unwrap() }
    };
    assert_eq!(take("a", minute(5), start()).await, SlotResult::Held);
    assert_eq!(take("b", minute(3), start()).await, SlotResult::Held);
    assert_eq!(take("a", minute(6), start()).await, SlotResult::Held, "its own slot, extended");
    assert_eq!(take("c", minute(9), start()).await, SlotResult::Full { until: minute(3) });
    release_slot(store, repo.as_str(), 2, "b", start()).await.unwrap();
    release_slot(store, repo.as_str(), 2, "c", start()).await.unwrap();
    assert_eq!(take("c", minute(9), start()).await, SlotResult::Held);
    assert_eq!(take("d", minute(9), start()).await, SlotResult::Full { until: minute(6) });
    assert_eq!(take("d", minute(9), minute(6)).await, SlotResult::Held, "an expired slot");
    assert_eq!(
        acquire_slot(store, repo.as_str(), 0, "e", minute(9), start()).await.unwrap(),
        SlotResult::Full { until: start() }
    );
}

pub(crate) async fn counter_restarts_with_each_window(store: &impl Store) {
    let minute_long = SignedDuration::from_mins(1);
    for n in 1..=3 {
        assert_eq!(count_in_window(store, "acme/shop", minute_long, start()).await.unwrap(), n);
    }
    assert_eq!(count_in_window(store, "acme/other", minute_long, start()).await.unwrap(), 1);
    assert_eq!(count_in_window(store, "acme/shop", minute_long, minute(1)).await.unwrap(), 1);
    let requests = store.usage().usage().requests;
    count_in_window(store, "acme/shop", minute_long, minute(1)).await.unwrap();
    assert_eq!(store.usage().usage().requests - requests, 1, "the shared counter costs one request");
}

pub(crate) async fn not_before_keeps_the_later_time(store: &impl Store) {
    assert_eq!(not_before(store, "github", start()).await.unwrap(), None);
    set_not_before(store, "github", minute(5), start()).await.unwrap();
    set_not_before(store, "github", minute(2), start()).await.unwrap();
    assert_eq!(not_before(store, "github", minute(4)).await.unwrap(), Some(minute(5)));
    assert_eq!(not_before(store, "github", minute(5)).await.unwrap(), None);
}
