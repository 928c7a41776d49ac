//! Queries, and rows that cannot be decoded.

use domain::id::{EffectId, RunId};
use domain::signals::CheckVerdict;
use domain::state::State;
use platform::engine::Engine;
use platform::store::queries::{by_head, due, events, pull_requests, records, repos, runs_of, vulnerability};
use platform::store::schema::{self, DueSubject};
use platform::store::{Condition, Key, RowWrite, Store};
use serde_dynamo::{AttributeValue, Item};
use testbed::RecordingPublisher;
use tests::{acting, check, claim, minute, opened, pr, sha, start};

/// Three pull requests; the first is claimed, and its effect is undelivered.
async fn engine_with_three_prs<S: Store>(store: &S) -> Engine<&S, RecordingPublisher> {
    let engine = Engine::new(store, RecordingPublisher::default(), acting());
    for number in 1..=3 {
        engine.apply(&opened(&pr(number), format!("d{number}"), start()), start()).await.unwrap();
    }
    engine.publisher().set_down(true);
    engine.apply(&claim(&engine, &pr(1), "run-1", minute(5)).await, minute(5)).await.unwrap();
    engine.apply(&check(&pr(2), "d22", "build", CheckVerdict::Running, minute(1)), minute(1)).await.unwrap();
    engine
}

pub(crate) async fn due_query_returns_the_oldest_first(store: &impl Store) {
    engine_with_three_prs(store).await;
    let found = due(store, 100, minute(6), minute(6)).await.unwrap();
    let subjects: Vec<&DueSubject> = found.entries.iter().map(|entry| &entry.subject).collect();
    assert!(found.entries.is_sorted_by_key(|entry| entry.due_at));
    let effect = DueSubject::Effect(EffectId::new("acme/shop#1#sweep-run-1#0"));
    let run = DueSubject::Run(RunId::new("run-1"));
    assert_eq!(
        subjects,
        [&DueSubject::PullRequest(pr(3)), &effect, &run],
        "#1 is claimed, and the checks of #2 are running"
    );
    assert!(!found.more);
    assert_eq!(due(store, 100, start(), start()).await.unwrap().entries, []);
    let later = due(store, 100, minute(24 * 60), minute(24 * 60)).await.unwrap();
    assert_eq!(later.entries.len(), 5, "three pull requests, a run, an effect");
    let capped = due(store, 1, minute(24 * 60), minute(24 * 60)).await.unwrap();
    assert!(capped.more && capped.entries.len() < 5);
}

/// One row of thousands of repositories made every registration an expensive write.
pub(crate) async fn repositories_are_spread_over_rows_and_the_old_row_counts(store: &impl Store) {
    let names = |n: u32| format!("acme/service-{n}").parse().unwrap();
    for n in 0..64 {
        store.write(vec![schema::add_repo(&names(n))], start()).await.unwrap();
    }
    let mut old = Item::default();
    old.inner_mut()
        .insert("repos".to_owned(), AttributeValue::Ss(vec!["acme/old".to_owned(), "acme/service-1".to_owned()]));
    let old = RowWrite::Put { key: Key::state("REPOS"), item: old, only_if: Condition::Always };
    store.write(vec![old], start()).await.unwrap();
    let listed = repos(store, start()).await.unwrap();
    assert_eq!(listed.len(), 65);
    assert!(listed.contains(&"acme/old".parse().unwrap()));
    let rows = store.get_many(&schema::repos_keys(), start()).await.unwrap();
    let most = rows.iter().map(|(_, row)| schema::repos_of(row).len()).max().unwrap();
    assert!(rows.len() > 8 && most < 20, "{} rows, the largest with {most}", rows.len());
}

pub(crate) async fn repository_is_listed_by_state_and_paged(store: &impl Store) {
    engine_with_three_prs(store).await;
    let repo = pr(1).repo;
    let created = pull_requests(store, &repo, Some(State::Created), None, 10, minute(6)).await.unwrap();
    let numbers: Vec<u64> = created.entries.iter().map(|listed| listed.pr.number).collect();
    assert_eq!(numbers, [1, 3]);
    assert_eq!(created.entries[0].since, start());
    let mut seen = Vec::new();
    let mut after = None;
    for _ in 0..5 {
        let page = pull_requests(store, &repo, None, after, 1, minute(6)).await.unwrap();
        seen.extend(page.entries.into_iter().map(|listed| (listed.state, listed.pr.number)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, [(State::ChecksRunning, 2), (State::Created, 1), (State::Created, 3)]);
}

pub(crate) async fn runs_events_heads_and_vulnerabilities_are_queried(store: &impl Store) {
    let engine = engine_with_three_prs(store).await;
    let runs = runs_of(store, Some(&pr(1)), None, 10, minute(6)).await.unwrap();
    assert_eq!(runs.entries.iter().map(|run| run.id.clone()).collect::<Vec<_>>(), [RunId::new("run-1")]);
    assert_eq!(runs_of(store, Some(&pr(2)), None, 10, minute(6)).await.unwrap().entries, []);
    let log = events(store, &pr(2), true, None, 10, minute(6)).await.unwrap();
    assert_eq!(log.entries.iter().map(|event| event.id.as_str()).collect::<Vec<_>>(), ["d22", "d2"]);
    assert_eq!(Vec::from_iter(by_head(store, &pr(1).repo, &sha('a'), minute(6)).await.unwrap()), [1, 2, 3]);
    assert!(by_head(store, &pr(1).repo, &sha('b'), minute(6)).await.unwrap().is_empty());
    let known = vulnerability(store, &pr(1).repo, "main", "CVE-2026-1234", minute(6)).await.unwrap();
    assert_eq!(Vec::from_iter(known.open), [1, 2, 3]);
    assert!(vulnerability(store, &pr(1).repo, "main", "CVE-0", minute(6)).await.unwrap().open.is_empty());
    engine.publisher().set_down(false);
    let left = EffectId::new("acme/shop#1#sweep-run-1#0");
    assert!(engine.redeliver(&left, minute(6)).await.unwrap());
    assert!(engine.redeliver(&left, minute(6)).await.unwrap(), "it is not sent again");
    assert_eq!(engine.publisher().sent().len(), 1);
}

pub(crate) async fn undecodable_row_is_counted_and_skipped(store: &impl Store) {
    engine_with_three_prs(store).await;
    let put = |key: Key, attributes: &[(&str, &str)]| {
        let mut item = Item::default();
        for (name, value) in attributes {
            item.inner_mut().insert((*name).to_owned(), AttributeValue::S((*value).to_owned()));
        }
        RowWrite::Put { key, item, only_if: Condition::Always }
    };
    let due_0 = [("due", "due-urgent"), ("due_at", "2036-03-03T08:00:00.000Z"), ("body", "nonsense")];
    let broken = schema::record_key(&pr(4));
    store.write(vec![put(broken.clone(), &due_0), put(Key::state("WHAT#is-this"), &due_0)], start()).await.unwrap();
    let found = due(store, 100, minute(6), minute(6)).await.unwrap();
    assert_eq!((found.entries.len(), store.usage().usage().corrupt), (4, 1), "one key cannot be parsed");
    let read = records(store, &[pr(1), pr(4), pr(2)], minute(6)).await.unwrap();
    assert_eq!((read.len(), store.usage().usage().corrupt), (2, 2));
    store.write(vec![schema::set_due_at(broken, minute(60), Condition::Present)], minute(6)).await.unwrap();
    assert_eq!(due(store, 100, minute(6), minute(6)).await.unwrap().entries.len(), 3, "it is not retried every minute");
}
