//! The clauses of the store contract.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use platform::store::{
    Condition, HOLDER, Index, Key, MAX_WRITES, Page, Query, QuerySource, RowUpdate, RowWrite, Store, StoreError, TTL,
    VERSION, number, number_of, text_of,
};
use serde_dynamo::{AttributeValue, Item};
use tests::{minute, start};

fn item(attributes: &[(&str, AttributeValue)]) -> Item {
    let mut item = Item::default();
    for (name, value) in attributes {
        item.inner_mut().insert((*name).to_owned(), value.clone());
    }
    item
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn put(key: &Key, item: Item, only_if: Condition) -> RowWrite {
    RowWrite::Put { key: key.clone(), item, only_if }
}

async fn write_one(store: &impl Store, write: RowWrite) -> Result<(), StoreError> {
    store.write(vec![write], start()).await
}

fn refused(error: StoreError) -> Vec<Option<Option<Item>>> {
    match error {
        StoreError::ConditionFailed(refused) => {
            refused.into_iter().map(|one| one.map(|refused| refused.found)).collect()
        }
        other => panic!("{other}"),
    }
}

pub(crate) async fn put_row_is_read_back(store: &impl Store) {
    let key = Key::state("PR#acme/shop#1");
    assert_eq!(store.get(&key, start()).await.unwrap(), None);
    let nested = AttributeValue::M([("a".to_owned(), AttributeValue::Bool(true))].into_iter().collect());
    let row = item(&[("body", nested), ("text", text("ä→🦀")), ("n", number(-5))]);
    write_one(store, put(&key, row, Condition::Always)).await.unwrap();
    let found = store.get(&key, start()).await.unwrap().unwrap();
    assert_eq!((text_of(&found, "text"), number_of(&found, "n")), (Some("ä→🦀"), Some(-5)));
    assert!(matches!(found.get("body"), Some(AttributeValue::M(map)) if map.contains_key("a")));
    write_one(store, put(&key, item(&[("other", text("x"))]), Condition::Always)).await.unwrap();
    let found = store.get(&key, start()).await.unwrap().unwrap();
    assert_eq!((text_of(&found, "text"), text_of(&found, "other")), (None, Some("x")), "a put replaces the whole row");
}

pub(crate) async fn absent_condition_accepts_expired_rows(store: &impl Store) {
    let key = Key::state("LEASE#sweep");
    let row = |ttl: Timestamp| item(&[(TTL, number(ttl.as_second()))]);
    write_one(store, put(&key, row(minute(1)), Condition::Absent)).await.unwrap();
    let error = write_one(store, put(&key, row(minute(2)), Condition::Absent)).await.unwrap_err();
    assert_eq!(number_of(refused(error)[0].as_ref().unwrap().as_ref().unwrap(), TTL), Some(minute(1).as_second()));
    store.write(vec![put(&key, row(minute(3)), Condition::Absent)], minute(1)).await.unwrap();
}

pub(crate) async fn never_seen_condition_rejects_expired_rows(store: &impl Store) {
    let key = Key::event("acme/shop#1", "2036-03-03T09:00:00.000Z#d1#0");
    let row = item(&[(TTL, number(start().as_second()))]);
    write_one(store, put(&key, row.clone(), Condition::NeverSeen)).await.unwrap();
    // Expired but not yet deleted by the TTL sweep: still seen.
    let error = store.write(vec![put(&key, row, Condition::NeverSeen)], minute(1)).await.unwrap_err();
    assert_eq!(refused(error).len(), 1);
}

pub(crate) async fn version_condition_rejects_other_versions(store: &impl Store) {
    let key = Key::state("PR#acme/shop#1");
    let row = |version: u64| item(&[(VERSION, number(version))]);
    let error = write_one(store, put(&key, row(1), Condition::Version(0))).await.unwrap_err();
    assert_eq!(refused(error), [Some(None)], "there is no row");
    write_one(store, put(&key, row(1), Condition::Absent)).await.unwrap();
    write_one(store, put(&key, row(2), Condition::Version(1))).await.unwrap();
    let error = write_one(store, put(&key, row(2), Condition::Version(1))).await.unwrap_err();
    let found = refused(error)[0].clone().unwrap().unwrap();
    assert_eq!(number_of(&found, VERSION), Some(2), "the error contains the conflicting row");
    let versionless = Key::state("PR#acme/shop#2");
    write_one(store, put(&versionless, item(&[("x", text("y"))]), Condition::Always)).await.unwrap();
    assert!(write_one(store, put(&versionless, row(1), Condition::Version(0))).await.is_err());
}

pub(crate) async fn failed_transaction_writes_nothing_and_returns_the_conflict(store: &impl Store) {
    let taken = Key::state("B");
    write_one(store, put(&taken, item(&[("who", text("first"))]), Condition::Always)).await.unwrap();
    let writes = vec![
        put(&Key::state("A"), item(&[]), Condition::Absent),
        put(&taken, item(&[("who", text("second"))]), Condition::Absent),
        RowWrite::Delete { key: Key::state("C"), only_if: Condition::Always },
        put(&Key::event("acme/shop#1", "x"), item(&[]), Condition::NeverSeen),
    ];
    let refused = refused(store.write(writes, start()).await.unwrap_err());
    assert_eq!(refused.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false, false]);
    assert_eq!(text_of(refused[1].as_ref().unwrap().as_ref().unwrap(), "who"), Some("first"));
    assert_eq!(store.get(&Key::state("A"), start()).await.unwrap(), None);
    assert_eq!(store.get(&Key::event("acme/shop#1", "x"), start()).await.unwrap(), None);
}

pub(crate) async fn update_changes_rows_without_a_read(store: &impl Store) {
    let key = Key::state("VULN#acme/shop#main#CVE-2026-1234");
    let one = |number: &str| BTreeSet::from([number.to_owned()]);
    let insert =
        |number: &str| RowUpdate { insert: BTreeMap::from([("open".to_owned(), one(number))]), ..RowUpdate::default() };
    let take = |number: &str| RowUpdate {
        remove_members: BTreeMap::from([("open".to_owned(), one(number))]),
        ..RowUpdate::default()
    };
    let change = |change: RowUpdate| RowWrite::Update { key: key.clone(), change };
    for number in ["1", "2", "2"] {
        write_one(store, change(insert(number))).await.unwrap();
    }
    let add = |by: i64| RowUpdate { add: BTreeMap::from([("count".to_owned(), by)]), ..RowUpdate::default() };
    write_one(store, change(add(3))).await.unwrap();
    write_one(store, change(add(-1))).await.unwrap();
    let set = RowUpdate { set: BTreeMap::from([("x".to_owned(), text("y"))]), ..RowUpdate::default() };
    write_one(store, change(set)).await.unwrap();
    write_one(store, change(take("1"))).await.unwrap();
    let found = store.get(&key, start()).await.unwrap().unwrap();
    assert_eq!((number_of(&found, "count"), text_of(&found, "x")), (Some(2), Some("y")));
    assert!(matches!(found.get("open"), Some(AttributeValue::Ss(members)) if *members == ["2"]));
    write_one(store, change(take("2"))).await.unwrap();
    write_one(store, change(take("2"))).await.unwrap();
    let remove = RowUpdate { remove: one("x"), ..RowUpdate::default() };
    write_one(store, change(remove)).await.unwrap();
    let found = store.get(&key, start()).await.unwrap().unwrap();
    assert!(!found.contains_key("open") && !found.contains_key("x"));
}

/// A conditional update must not recreate a deleted or expired row.
pub(crate) async fn present_condition_rejects_missing_and_expired_rows(store: &impl Store) {
    let (key, other) = (Key::state("RUN#1"), Key::state("RUN#2"));
    let set = BTreeMap::from([("due_at".to_owned(), text("later"))]);
    let change = |key: &Key| RowWrite::Update {
        key: key.clone(),
        change: RowUpdate { set: set.clone(), only_if: Condition::Present, ..RowUpdate::default() },
    };
    assert_eq!(refused(write_one(store, change(&key)).await.unwrap_err()), [Some(None)]);
    assert_eq!(store.get(&key, start()).await.unwrap(), None, "no row was created");
    let row = item(&[(TTL, number(minute(1).as_second())), (VERSION, number(3))]);
    write_one(store, put(&key, row, Condition::Always)).await.unwrap();
    write_one(store, change(&key)).await.unwrap();
    let found = store.get(&key, start()).await.unwrap().unwrap();
    assert_eq!((text_of(&found, "due_at"), number_of(&found, VERSION)), (Some("later"), Some(3)));
    // The same in a transaction, and with a version condition.
    let both = refused(store.write(vec![change(&key), change(&other)], start()).await.unwrap_err());
    assert_eq!(both.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
    let by_version = |version: u64| RowWrite::Update {
        key: key.clone(),
        change: RowUpdate { set: set.clone(), only_if: Condition::Version(version), ..RowUpdate::default() },
    };
    write_one(store, by_version(3)).await.unwrap();
    let found = refused(write_one(store, by_version(4)).await.unwrap_err());
    assert_eq!(number_of(found[0].as_ref().unwrap().as_ref().unwrap(), VERSION), Some(3));
    assert!(store.write(vec![change(&key)], minute(1)).await.is_err(), "it has expired");
    write_one(store, put(&other, item(&[]), Condition::Present)).await.unwrap_err();
    write_one(store, RowWrite::Delete { key: other.clone(), only_if: Condition::Present }).await.unwrap_err();
}

pub(crate) async fn repeated_delete_succeeds(store: &impl Store) {
    let key = Key::state("OUT#1");
    write_one(store, put(&key, item(&[]), Condition::Always)).await.unwrap();
    for _ in 0..2 {
        write_one(store, RowWrite::Delete { key: key.clone(), only_if: Condition::Always }).await.unwrap();
        assert_eq!(store.get(&key, start()).await.unwrap(), None);
    }
}

pub(crate) async fn counter_restarts_after_expiry(store: &impl Store) {
    let key = Key::state("LIMIT#acme/shop#1");
    assert_eq!(store.count(&key, 1, minute(1), start()).await.unwrap(), 1);
    assert_eq!(store.count(&key, 4, minute(1), start()).await.unwrap(), 5);
    assert_eq!(store.count(&key, 1, minute(9), start()).await.unwrap(), 6, "the TTL is set on creation");
    assert_eq!(store.count(&key, 1, minute(2), minute(1)).await.unwrap(), 1, "the old counter has expired");
    assert_eq!(store.count(&key, -3, minute(2), minute(1)).await.unwrap(), -2);
}

fn due(shard: &str, up_to: Option<&str>, limit: u32) -> Query {
    Query {
        from: QuerySource::Index(Index::Due),
        partition: shard.to_owned(),
        prefix: None,
        up_to: up_to.map(str::to_owned),
        backwards: false,
        limit,
        after: None,
    }
}

fn keys(page: &Page) -> Vec<&str> {
    page.rows.iter().map(|(key, _)| key.partition.as_str()).collect()
}

pub(crate) async fn index_is_sorted_sparse_and_follows_its_rows(store: &impl Store) {
    let row = |at: &str| item(&[("due", text("due-0")), ("due_at", text(at))]);
    for (name, at) in [("c", "3"), ("a", "1"), ("b", "2"), ("d", "4")] {
        write_one(store, put(&Key::state(name), row(at), Condition::Always)).await.unwrap();
    }
    write_one(store, put(&Key::state("quiet"), item(&[("due", text("due-0"))]), Condition::Always)).await.unwrap();
    write_one(
        store,
        put(&Key::state("other"), item(&[("due", text("due-1")), ("due_at", text("1"))]), Condition::Always),
    )
    .await
    .unwrap();
    let page = store.query(&due("due-0", Some("3"), 10), start()).await.unwrap();
    assert_eq!((keys(&page), page.next.is_none()), (vec!["a", "b", "c"], true));
    write_one(store, put(&Key::state("a"), row("9"), Condition::Always)).await.unwrap();
    write_one(store, put(&Key::state("b"), item(&[]), Condition::Always)).await.unwrap();
    write_one(store, RowWrite::Delete { key: Key::state("d"), only_if: Condition::Always }).await.unwrap();
    let page = store.query(&due("due-0", None, 10), start()).await.unwrap();
    assert_eq!(keys(&page), ["c", "a"]);
    let by_repo = |prefix: &str| Query {
        from: QuerySource::Index(Index::ByRepo),
        partition: "acme/shop".to_owned(),
        prefix: Some(prefix.to_owned()),
        ..due("", None, 10)
    };
    for (name, state) in [("p1", "APPROVED#0000000001"), ("p2", "APPROVED#0000000002"), ("p3", "MERGED#0000000003")] {
        let row = item(&[("repo", text("acme/shop")), ("state_number", text(state))]);
        write_one(store, put(&Key::state(name), row, Condition::Always)).await.unwrap();
    }
    assert_eq!(keys(&store.query(&by_repo("APPROVED#"), start()).await.unwrap()), ["p1", "p2"]);
    assert_eq!(keys(&store.query(&by_repo("CLOSED#"), start()).await.unwrap()), [""; 0]);
}

pub(crate) async fn next_page_continues_after_the_cursor(store: &impl Store) {
    // Rows with the same sort key must not be lost or repeated between pages.
    for n in 0..25 {
        let row = item(&[("due", text("due-0")), ("due_at", text(if n < 20 { "1" } else { "2" }))]);
        write_one(store, put(&Key::state(format!("row-{n:02}")), row, Condition::Always)).await.unwrap();
    }
    for backwards in [false, true] {
        let mut query = Query { backwards, ..due("due-0", None, 7) };
        let mut seen = Vec::new();
        for _ in 0..10 {
            let page = store.query(&query, start()).await.unwrap();
            seen.extend(page.rows.iter().map(|(key, _)| key.partition.clone()));
            assert!(page.rows.len() <= 7);
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
        let distinct: BTreeSet<&String> = seen.iter().collect();
        assert_eq!((seen.len(), distinct.len()), (25, 25));
        let last = if backwards { "row-00" } else { "row-24" };
        assert_eq!(seen.last().map(String::as_str), Some(last));
    }
}

pub(crate) async fn event_log_is_read_by_time_in_both_directions(store: &impl Store) {
    for (pr, sort) in
        [("acme/shop#1", "1#a#0"), ("acme/shop#1", "2#b#0"), ("acme/shop#1", "2#b#1"), ("acme/shop#10", "1#z#0")]
    {
        write_one(store, put(&Key::event(pr, sort), item(&[]), Condition::NeverSeen)).await.unwrap();
    }
    let query = |backwards| Query {
        from: QuerySource::Log,
        partition: "acme/shop#1".to_owned(),
        backwards,
        ..due("", None, 10)
    };
    let sorts = |page: Page| page.rows.into_iter().map(|(key, _)| key.sort).collect::<Vec<_>>();
    assert_eq!(sorts(store.query(&query(false), start()).await.unwrap()), ["1#a#0", "2#b#0", "2#b#1"]);
    assert_eq!(sorts(store.query(&query(true), start()).await.unwrap()), ["2#b#1", "2#b#0", "1#a#0"]);
}

pub(crate) async fn expired_rows_are_not_returned(store: &impl Store) {
    let key = Key::state("PR#acme/shop#1");
    let row = item(&[("due", text("due-0")), ("due_at", text("1")), (TTL, number(minute(1).as_second()))]);
    write_one(store, put(&key, row, Condition::Always)).await.unwrap();
    assert!(store.get(&key, minute(0)).await.unwrap().is_some());
    assert_eq!(store.get(&key, minute(1)).await.unwrap(), None);
    assert_eq!(store.query(&due("due-0", None, 10), minute(0)).await.unwrap().rows.len(), 1);
    assert_eq!(store.query(&due("due-0", None, 10), minute(1)).await.unwrap().rows.len(), 0);
}

pub(crate) async fn invalid_write_batch_is_refused_whole(store: &impl Store) {
    assert!(matches!(store.write(vec![], start()).await, Err(StoreError::TooLarge(_))));
    let many =
        |count: usize| (0..count).map(|n| put(&Key::state(format!("{n}")), item(&[]), Condition::Always)).collect();
    assert!(matches!(store.write(many(MAX_WRITES + 1), start()).await, Err(StoreError::TooLarge(_))));
    store.write(many(MAX_WRITES), start()).await.unwrap();
    let twice = vec![
        RowWrite::Delete { key: Key::state("a"), only_if: Condition::Always },
        put(&Key::state("a"), item(&[]), Condition::Always),
    ];
    let error = store.write(twice, start()).await.unwrap_err();
    assert_eq!(error.to_string(), "a is written twice in one transaction");
}

pub(crate) async fn requests_are_counted(store: &impl Store) {
    let before = store.usage().usage();
    let key = Key::state("a");
    store
        .write(
            vec![put(&key, item(&[]), Condition::Always), put(&Key::state("b"), item(&[]), Condition::Always)],
            start(),
        )
        .await
        .unwrap();
    store.get(&key, start()).await.unwrap();
    let after = store.usage().usage();
    assert_eq!(after.requests - before.requests, 2);
    assert_eq!((after.items_written - before.items_written, after.items_read - before.items_read), (2, 1));
}

fn lease(holder: &str, until: Timestamp) -> Item {
    item(&[(HOLDER, text(holder)), (TTL, number(until.as_second()))])
}

pub(crate) async fn lease_has_one_holder_and_expires(store: &impl Store) {
    let key = Key::state("LEASE#sweep");
    let take = |holder: &str, until| put(&key, lease(holder, until), Condition::FreeFor(holder.to_owned()));
    write_one(store, take("first", minute(2))).await.unwrap();
    write_one(store, take("first", minute(3))).await.unwrap();
    let error = write_one(store, take("second", minute(4))).await.unwrap_err();
    assert_eq!(text_of(refused(error)[0].as_ref().unwrap().as_ref().unwrap(), HOLDER), Some("first"));
    assert!(store.write(vec![take("second", minute(4))], minute(2)).await.is_err(), "it was extended");
    store.write(vec![take("second", minute(4))], minute(3)).await.unwrap();
}

pub(crate) async fn lease_is_released_only_by_its_holder(store: &impl Store) {
    let key = Key::state("LEASE#sweep");
    write_one(store, put(&key, lease("first", minute(2)), Condition::Absent)).await.unwrap();
    let give_back = |holder: &str| RowWrite::Delete { key: key.clone(), only_if: Condition::HeldBy(holder.to_owned()) };
    let other = RowWrite::Put { key: Key::event("acme/shop#1", "x"), item: item(&[]), only_if: Condition::Always };
    let error = store.write(vec![other, give_back("second")], start()).await.unwrap_err();
    assert_eq!(refused(error).iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
    assert!(write_one(store, give_back("second")).await.is_err());
    write_one(store, give_back("first")).await.unwrap();
    assert_eq!(refused(write_one(store, give_back("first")).await.unwrap_err()), [Some(None)]);
}

pub(crate) async fn batch_get_reads_many_rows(store: &impl Store) {
    let mut keys: Vec<Key> = (0..130).map(|n| Key::state(format!("row-{n}"))).collect();
    keys.push(Key::event("acme/shop#1", "x"));
    for chunk in keys.chunks(MAX_WRITES) {
        let row = |key: &Key| put(key, item(&[("name", text(&key.to_string()))]), Condition::Always);
        store.write(chunk.iter().map(row).collect(), start()).await.unwrap();
    }
    let expired = Key::state("expired");
    write_one(store, put(&expired, lease("x", start()), Condition::Always)).await.unwrap();
    keys.extend([Key::state("missing"), expired, Key::state("row-1")]);
    let mut found = store.get_many(&keys, start()).await.unwrap();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.dedup_by(|a, b| a.0 == b.0);
    assert_eq!(found.len(), 131);
    for (key, row) in &found {
        assert_eq!(text_of(row, "name"), Some(key.to_string().as_str()));
    }
    assert_eq!(store.get_many(&[], start()).await.unwrap(), []);
}

pub(crate) async fn index_returns_only_projected_attributes(store: &impl Store) {
    let row = item(&[("due", text("due-0")), ("due_at", text("1")), ("priority", number(5)), ("body", text("long"))]);
    write_one(store, put(&Key::state("a"), row, Condition::Always)).await.unwrap();
    let page = store.query(&due("due-0", None, 10), start()).await.unwrap();
    let (key, entry) = &page.rows[0];
    assert_eq!((key, number_of(entry, "priority")), (&Key::state("a"), Some(5)));
    assert!(!entry.contains_key("body"), "lists must use projected attributes only");
}

pub(crate) async fn query_is_bounded_by_prefix_and_end(store: &impl Store) {
    for sort in ["1", "2a", "2b", "2c", "3"] {
        write_one(store, put(&Key::event("acme/shop#1", sort), item(&[]), Condition::Always)).await.unwrap();
    }
    let query = Query {
        from: QuerySource::Log,
        partition: "acme/shop#1".to_owned(),
        prefix: Some("2".to_owned()),
        ..due("", Some("2b"), 10)
    };
    let page = store.query(&query, start()).await.unwrap();
    assert_eq!(page.rows.iter().map(|(key, _)| key.sort.as_str()).collect::<Vec<_>>(), ["2a", "2b"]);
}

pub(crate) async fn event_log_index_projects_all_attributes(store: &impl Store) {
    let row = |day: &str| item(&[("day", text(day)), ("body", text("all of it"))]);
    // The same sort key in two pull requests must not be lost or repeated between pages.
    for (pr, sort, day) in [
        ("acme/shop#1", "1#a#0", "2036-03-03-0"),
        ("acme/shop#2", "1#a#0", "2036-03-03-0"),
        ("acme/shop#1", "2#b#0", "2036-03-03-0"),
        ("acme/shop#1", "3#c#0", "2036-03-04-0"),
    ] {
        write_one(store, put(&Key::event(pr, sort), row(day), Condition::NeverSeen)).await.unwrap();
    }
    write_one(store, put(&Key::event("acme/shop#1", "9#quiet#0"), item(&[]), Condition::NeverSeen)).await.unwrap();
    // The same attribute in the state table is not indexed.
    write_one(store, put(&Key::state("x"), row("2036-03-03-0"), Condition::Always)).await.unwrap();
    for backwards in [false, true] {
        let mut query = Query {
            from: QuerySource::Index(Index::ByDay),
            partition: "2036-03-03-0".to_owned(),
            backwards,
            ..due("", None, 1)
        };
        let mut seen = Vec::new();
        for _ in 0..5 {
            let page = store.query(&query, start()).await.unwrap();
            assert!(page.rows.iter().all(|(_, item)| text_of(item, "body") == Some("all of it")));
            seen.extend(page.rows.into_iter().map(|(key, _)| (key.sort, key.partition)));
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
        let distinct: BTreeSet<_> = seen.iter().collect();
        assert_eq!((seen.len(), distinct.len()), (3, 3), "{seen:?}");
        let last = if backwards { "1#a#0" } else { "2#b#0" };
        assert_eq!(seen.last().map(|(sort, _)| sort.as_str()), Some(last));
        let up_to = Query { up_to: Some("1#z".to_owned()), limit: 10, after: None, ..query };
        assert_eq!(store.query(&up_to, start()).await.unwrap().rows.len(), 2);
    }
}
