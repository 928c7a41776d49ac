//! Retention and the cost of writes.

use domain::event::FactKind;
use domain::signals::CheckVerdict;
use domain::state::State;
use jiff::{SignedDuration, Timestamp};
use platform::engine::Engine;
use platform::store::dynamo::tables::TableNames;
use platform::store::queries;
use platform::store::queries::DayQuery;
use platform::store::schema;
use platform::store::{Condition, MAX_WRITES, RowWrite, Store};
use testbed::{MemoryStore, RecordingPublisher};
use tests::local_aws::{self, Dynoxide};
use tests::{acting, check, fact, minute, opened, pr, start};

#[tokio::test]
async fn expired_rows_are_invisible_before_the_ttl_sweep_and_gone_after() {
    // The TTL sweep uses the machine's clock, which is far ahead of these times.
    let long_ago: Timestamp = "2020-03-02T09:00:00Z".parse().unwrap();
    let minute = |count: i64| long_ago + SignedDuration::from_mins(count);
    let dynamo = Dynoxide::in_memory().await;
    let names = TableNames { state: "suture-state-ttl".to_owned(), events: "suture-events-ttl".to_owned() };
    let engine = Engine::new(dynamo.store_on(names.clone()).await, RecordingPublisher::default(), acting());
    engine.apply(&opened(&pr(1), "d0", long_ago), long_ago).await.unwrap();
    engine.apply(&opened(&pr(2), "d2", long_ago), long_ago).await.unwrap();
    let merged = fact(&pr(1), "d1", minute(1), FactKind::Merged { by: None, by_automerge_bot: true });
    engine.apply(&merged, minute(1)).await.unwrap();
    let client = local_aws::client(dynamo.endpoint());
    let rows = async |table: &str| client.scan().table_name(table).send().await.unwrap().items.unwrap();
    // Set on the terminal record, its commit row and every event; not on open records.
    for item in rows(&names.state).await {
        let name = item["pk"].as_s().unwrap();
        let over = name == "PR#acme/shop#1" || name.starts_with("SHA#");
        assert_eq!(item.contains_key("ttl"), over, "{name}");
    }
    let events = rows(&names.events).await;
    assert!(events.len() == 3 && events.iter().all(|event| event.contains_key("ttl")));
    let day = 24 * 60 + 1;
    assert_eq!(engine.load(&pr(1), minute(day)).await.unwrap(), None, "invisible");
    let listed = queries::pull_requests(engine.store(), &pr(1).repo, None, None, 10, minute(day)).await.unwrap();
    assert_eq!(listed.entries.iter().map(|listed| listed.pr.number).collect::<Vec<_>>(), [2]);
    let before = rows(&names.state).await.len();
    assert_eq!(dynamo.sweep_ttl(), 5, "the record, its commit and three events");
    assert_eq!((before - rows(&names.state).await.len(), rows(&names.events).await.len()), (2, 0));
}

/// 100 due records among 10,000 open ones: the query reads only the due ones.
async fn check_due_query<S: Store>(store: S) {
    let engine = Engine::new(store, RecordingPublisher::default(), acting());
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    let template = engine.load(&pr(1), start()).await.unwrap().unwrap();
    let writes: Vec<RowWrite> = (1..=10_000)
        .map(|number| {
            let mut record = template.clone();
            record.id = pr(number);
            let stale = number % 100 == 0;
            record.due_at = Some(if stale { minute(10) } else { minute(60) });
            let item = schema::record_row(&record).unwrap();
            RowWrite::Put { key: schema::record_key(&record.id), item, only_if: Condition::Always }
        })
        .collect();
    for chunk in writes.chunks(MAX_WRITES) {
        engine.store().write(chunk.to_vec(), start()).await.unwrap();
    }
    let before = engine.store().usage().usage();
    let due = queries::due(engine.store(), 500, minute(10), minute(10)).await.unwrap();
    let after = engine.store().usage().usage();
    assert_eq!((due.entries.len(), due.more), (100, false));
    let (read, requests) = (after.items_read - before.items_read, after.requests - before.requests);
    assert!(read <= 105 && requests == 4, "{read} index items in {requests} requests");
}

#[tokio::test]
async fn due_query_in_memory() {
    check_due_query(MemoryStore::new()).await;
}

#[tokio::test]
async fn due_query_on_dynoxide() {
    let dynamo = Dynoxide::in_memory().await;
    check_due_query(dynamo.store().await).await;
}

/// A lifecycle with three checks, policy, approval and merge: the requests and row sizes per event.
#[tokio::test]
async fn typical_lifecycle_costs_two_requests_per_event_and_small_rows() {
    let dynamo = Dynoxide::in_memory().await;
    let names = local_aws::fresh_names();
    let engine = Engine::new(dynamo.store_on(names.clone()).await, RecordingPublisher::default(), acting());
    for (n, fact) in tests::typical_life(&pr(1)).into_iter().enumerate() {
        let before = engine.store().usage().usage().requests;
        let at = fact.occurred_at + SignedDuration::from_secs(1);
        engine.apply(&fact, at).await.unwrap();
        let spent = engine.store().usage().usage().requests - before;
        assert_eq!(spent, if n == 0 { 1 } else { 2 }, "{}", fact.id);
    }
    let record = engine.load(&pr(1), minute(60)).await.unwrap().unwrap();
    assert_eq!(record.state, State::Merged);
    let client = local_aws::client(dynamo.endpoint());
    let mut largest = Vec::new();
    for table in [&names.state, &names.events] {
        for item in client.scan().table_name(table).send().await.unwrap().items.unwrap() {
            largest.push((local_aws::size_of(&item), item.get("pk").or(item.get("sk")).cloned()));
        }
    }
    largest.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    assert!(largest.iter().all(|(size, _)| *size <= 1024), "{largest:?}");
    // Cost of the event log's index by day: one write unit per event, since none is larger than 1 KB.
    let reading = DayQuery { day: schema::day_of(start()), backwards: false, most: 100 };
    let (day_events, whole) = queries::events_of_day(engine.store(), reading, minute(60)).await.unwrap();
    let log = queries::events(engine.store(), &pr(1), false, None, 100, minute(60)).await.unwrap();
    println!("a typical lifecycle: {} events, {} of them in the index by day", log.entries.len(), day_events.len());
    assert_eq!((log.entries.len(), day_events.len(), whole), (12, 8, true));
}

#[tokio::test]
async fn commit_row_costs_one_more_request() {
    let engine = Engine::new(MemoryStore::new(), RecordingPublisher::default(), acting());
    engine.apply(&opened(&pr(1), "d0", start()), start()).await.unwrap();
    let before = engine.store().usage().usage().requests;
    // A `status` event names only the commit.
    let numbers = queries::by_head(engine.store(), &pr(1).repo, &tests::sha('a'), minute(1)).await.unwrap();
    for number in numbers {
        engine.apply(&check(&pr(number), "d1", "build", CheckVerdict::Running, minute(1)), minute(1)).await.unwrap();
    }
    assert_eq!(engine.store().usage().usage().requests - before, 3);
}
