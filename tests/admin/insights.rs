//! The insights route: numbers, scopes and read limits.

use domain::event::{FactKind, RemedyUpdate};
use domain::id::RunId;
use domain::signals::CheckVerdict;
use platform::store::{Condition, Key, Query, RowWrite, Store};
use serde_json::{Value, json};
use testbed::MemoryStore;
use tests::local_aws::Dynoxide;
use tests::{check, claim, fact, minute, pr};

use crate::harness::{Caller, Harness, Options};
use crate::seed_records;

fn find<'a>(list: &'a Value, field: &str, value: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|one| one[field] == value);
    found.unwrap_or_else(|| panic!("no {value} in {list}"))
}

async fn check_insights<S: Store + 'static>(store: S) {
    let harness = Harness::on(store, Options::default());
    seed_records(&harness).await;
    let engine = harness.admin.engine();
    let claimed = claim(engine, &pr(1), "run-1", minute(40)).await;
    engine.apply(&claimed, minute(40)).await.unwrap();
    let update = FactKind::Remedy { run: RunId::new("run-1"), update: RemedyUpdate::Accepted };
    engine.apply(&fact(&pr(1), "n1", minute(41), update), minute(41)).await.unwrap();
    let mut passed = check(&pr(1), "d9", "build", CheckVerdict::Passed, minute(45));
    if let FactKind::Check { check, .. } = &mut passed.kind {
        check.id = Some(8);
    }
    engine.apply(&passed, minute(45)).await.unwrap();
    harness.clock.set(minute(60));
    let insights = harness.get(Caller::Viewer, "/api/insights").await.json();
    assert_eq!(
        (&insights["days"], &insights["partial"], &insights["partial_reason"]),
        (&json!(14), &json!(false), &json!(null))
    );
    let formulas = insights["formulas"].as_array().unwrap();
    assert!(formulas[0].as_str().unwrap().contains("p99") && formulas[1].as_str().unwrap().contains("same text"));
    let failed = find(&insights["dwell"], "state", "CHECKS_FAILED");
    assert_eq!((&failed["repo"], &failed["count"], &failed["by_itself"]), (&json!(null), &json!(1), &json!(0)));
    assert_eq!((&failed["p50_secs"], &failed["p99_secs"]), (&json!(38 * 60), &json!(38 * 60)));
    assert_eq!((&failed["configured_minutes"], &failed["suggested_minutes"]), (&json!(30), &json!(null)));
    assert!(failed["advice"].as_str().unwrap().contains("20 are needed"), "{failed}");
    let opened = find(&insights["webhooks"], "kind", "PR_OPENED");
    assert_eq!((&opened["received"], &opened["missed"], &opened["loss_percent"]), (&json!(4), &json!(0), &json!(0.0)));
    let rebuild = json!({"strategy": "rebuild", "claimed": 1, "healed": 1, "failed_again": 0, "failed": 0, "dropped": 0,
                         "success_percent": 100.0});
    assert_eq!(insights["remedies"], json!([rebuild]));
    let network = json!({"rule": "network", "retries": 1, "healed": 1, "failed_again": 0, "identical": 0,
                         "success_percent": 100.0, "flagged": false, "advice": null});
    assert_eq!(insights["rules"], json!([network]));
}

#[tokio::test]
async fn insights_include_their_formulas_in_memory() {
    check_insights(MemoryStore::new()).await;
}

#[tokio::test]
async fn insights_include_their_formulas_on_dynoxide() {
    let dynamo = Dynoxide::in_memory().await;
    check_insights(dynamo.store().await).await;
}

#[tokio::test]
async fn insights_are_limited_to_the_keys_scope() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let web = harness.get(Caller::WebViewer, "/api/insights").await;
    assert!(!web.text.contains("shop"), "{}", web.text);
    assert_eq!(find(&web.json()["webhooks"], "kind", "PR_OPENED")["received"], 1);
    let shop = harness.get(Caller::Viewer, "/api/insights?repo=shop").await.json();
    assert_eq!(find(&shop["webhooks"], "kind", "PR_OPENED")["received"], 3);
    assert!(shop["dwell"].as_array().unwrap().iter().all(|stay| stay["repo"] != "acme/web"));
    for (caller, path) in
        [(Caller::WebViewer, "/api/insights?repo=acme/shop"), (Caller::Viewer, "/api/insights?repo=acme/nowhere")]
    {
        assert_eq!(harness.get(caller, path).await.problem().0, 404, "{path}");
    }
    assert_eq!(harness.get(Caller::Viewer, "/api/insights?repo=a/b/c").await.problem(), (400, "BAD_REPO".to_owned()));
    assert_eq!(harness.get(Caller::Viewer, "/api/insights?days=3").await.problem(), (400, "BAD_QUERY".to_owned()));
}

/// A day with more events than the read limit is marked partial and costs no more than others.
#[tokio::test]
async fn insights_mark_days_that_are_read_in_part() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let (store, now) = (harness.store(), minute(20));
    let query = Query {
        from: platform::store::QuerySource::Log,
        partition: pr(3).to_string(),
        prefix: None,
        up_to: None,
        backwards: false,
        limit: 1,
        after: None,
    };
    let (_, item) = store.query(&query, now).await.unwrap().rows.remove(0);
    let copies: Vec<RowWrite> = (0..5_100)
        .map(|n| RowWrite::Put {
            key: Key::event(pr(3).to_string(), format!("2036-03-03T09:10:00.000Z#copy-{n:05}#0")),
            item: item.clone(),
            only_if: Condition::Always,
        })
        .collect();
    for chunk in copies.chunks(100) {
        store.write(chunk.to_vec(), now).await.unwrap();
    }
    let before = store.usage().usage().requests;
    let insights = harness.get(Caller::Viewer, "/api/insights").await.json();
    let requests = store.usage().usage().requests - before;
    assert_eq!(insights["partial"], true);
    let why = "For one day, only the first 5000 events of each partition were read, so the numbers are incomplete.";
    assert_eq!(insights["partial_reason"], why);
    // Fourteen days of four partitions each, plus the key's rate limit.
    assert!(requests <= 14 * 4 + 10, "{requests} requests");
    harness.get(Caller::Viewer, "/api/insights").await.json();
    let again = store.usage().usage().requests - before - requests;
    assert!(again <= 12, "days are cached: {again}");
}
