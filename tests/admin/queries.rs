//! Queries: the overview, paged lists and one pull request, in memory and on dynoxide.

use domain::event::{FactKind, RemedyUpdate};
use domain::id::RunId;
use domain::signals::CheckVerdict;
use domain::state::State;
use platform::store::schema;
use platform::store::{Condition, RowWrite, Store};
use serde_json::{Value, json};
use testbed::MemoryStore;
use tests::local_aws::Dynoxide;
use tests::{check, claim, fact, minute, opened, pr};

use crate::harness::{Caller, Harness, Options};
use crate::{seed_records, web};

fn state_count<'a>(overview: &'a Value, state: &str) -> &'a Value {
    overview["states"].as_array().unwrap().iter().find(|count| count["state"] == state).unwrap()
}

/// A remedy of #1 is claimed, accepted and proven.
async fn complete_remedy<S: Store + 'static>(harness: &Harness<S>) {
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
}

#[tokio::test]
async fn links_are_those_that_github_named() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let page = "https://ghe.example.org/acme/shop/pull/1";
    let mut edited = opened(&pr(1), "d77", minute(15));
    if let FactKind::Opened(described) = edited.kind.clone() {
        let (html_url, draft) = (Some(page.to_owned()), true);
        edited.kind = FactKind::Edited(domain::event::PullRequestDetails { html_url, draft, ..described });
    }
    harness.apply_fact(&edited).await;
    assert_eq!(harness.get(Caller::Viewer, "/api/pr/shop/1/status").await.json()["url"], page);
    let listed = harness.get(Caller::Viewer, "/api/prs?repo=shop").await.json();
    let urls: Vec<&Value> = listed["prs"].as_array().unwrap().iter().map(|item| &item["url"]).collect();
    assert!(urls.contains(&&json!(page)), "{urls:?}");
}

/// The vulnerability that is read together with the record is the one that the record names, also after a change.
#[tokio::test]
async fn repeated_status_query_costs_less_and_returns_the_same() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let ask = async || {
        let before = harness.store().usage().usage().requests;
        let mut status = harness.get(Caller::Viewer, "/api/pr/shop/1/status").await.json();
        status["version"].take();
        (status, harness.store().usage().usage().requests - before)
    };
    let ((first, cost), (second, later)) = (ask().await, ask().await);
    assert_eq!((&first, cost), (&second, later + 1), "record and vulnerability in one request");
    let mut edited = opened(&pr(1), "d77", minute(15));
    if let FactKind::Opened(described) = edited.kind.clone() {
        let vulnerability_id = Some("CVE-2026-7777".to_owned());
        edited.kind = FactKind::Edited(domain::event::PullRequestDetails { vulnerability_id, ..described });
    }
    harness.apply_fact(&edited).await;
    let (third, _) = ask().await;
    assert_eq!(
        (&third["vulnerability_id"], &first["vulnerability_id"]),
        (&json!("CVE-2026-7777"), &json!("CVE-2026-1234"))
    );
    assert_eq!(third["budgets"], first["budgets"]);
}

async fn check_overview<S: Store + 'static>(store: S) {
    let harness = Harness::on(store, Options::default());
    seed_records(&harness).await;
    harness.clock.set(minute(35));
    let overview = harness.get(Caller::Viewer, "/api/overview").await.json();
    let states: Vec<&str> =
        overview["states"].as_array().unwrap().iter().map(|count| count["state"].as_str().unwrap()).collect();
    assert_eq!(states.len(), 12);
    assert_eq!(
        (&state_count(&overview, "CREATED")["count"], &state_count(&overview, "CREATED")["stale"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(
        state_count(&overview, "CREATED")["oldest"],
        json!({"repo": "acme/shop", "number": 2, "since": "2036-03-03T09:02:00Z"})
    );
    assert_eq!(
        (&state_count(&overview, "CHECKS_FAILED")["stale"], &state_count(&overview, "MERGED")["count"]),
        (&json!(1), &json!(1))
    );
    let repos = json!([{"repo": "acme/shop", "open": 2, "needs_person": 0, "stale": 2},
                       {"repo": "acme/web", "open": 1, "needs_person": 0, "stale": 1}]);
    assert_eq!(overview["repos"], repos);
    assert_eq!(overview["stuck"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&overview["role"], &overview["key"], &overview["mode"]),
        (&json!("viewer"), &json!("viewer"), &json!("act"))
    );
    assert_eq!(
        (&overview["breaker"]["state"], &overview["dlq"], &overview["last_sweep"]),
        (&json!("closed"), &json!(null), &json!(null))
    );
    complete_remedy(&harness).await;
    harness.clock.set(minute(46));
    let overview = harness.get(Caller::Viewer, "/api/overview").await.json();
    let days = overview["days"].as_array().unwrap();
    assert_eq!((days.len(), &days[13]["day"]), (14, &json!("2036-03-03")));
    let today = json!({"day": "2036-03-03", "opened": 4, "merged": 1, "healed": 1, "remedies": 1, "escalated": 0});
    assert_eq!(days[13], today);
    let activity: Vec<(&str, &str)> = overview["activity"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["kind"].as_str().unwrap(), line["text"].as_str().unwrap()))
        .collect();
    assert_eq!(activity[0], ("REMEDIATION_ENDED", "A remedy worked: the checks passed."));
    assert!(activity[1].1.starts_with("Suture started a remedy (run the checks again): Rule 3"), "{activity:?}");
    assert_eq!(activity[2], ("MERGE_SUCCEEDED", "Automerge Bot merged it."));
    let dwell = overview["dwell"].as_array().unwrap();
    assert_eq!((dwell.len(), &dwell[1]["state"]), (9, &json!("CHECKS_RUNNING")));
    assert!(dwell[1]["count"].as_u64().unwrap() >= 1 && dwell[1]["median_secs"].as_u64().unwrap() > 0);
    // A scoped viewer sees nothing of other repositories.
    let scoped = harness.get(Caller::WebViewer, "/api/overview").await;
    assert!(!scoped.text.contains("shop"), "{}", scoped.text);
    assert_eq!(
        (&state_count(&scoped.json(), "CREATED")["count"], &scoped.json()["days"][13]["opened"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test]
async fn overview_in_memory() {
    check_overview(MemoryStore::new()).await;
}

#[tokio::test]
async fn overview_on_dynoxide() {
    let dynamo = Dynoxide::in_memory().await;
    check_overview(dynamo.store().await).await;
}

#[tokio::test]
async fn overview_is_cached_for_five_seconds() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let first = harness.get(Caller::Viewer, "/api/overview").await.json();
    harness.apply_fact(&opened(&pr(9), "d99", minute(20))).await;
    let second = harness.get(Caller::Viewer, "/api/overview").await.json();
    assert_eq!(state_count(&first, "CREATED"), state_count(&second, "CREATED"));
    harness.clock.set(minute(20) + jiff::SignedDuration::from_secs(5));
    let third = harness.get(Caller::Viewer, "/api/overview").await.json();
    assert_eq!(state_count(&third, "CREATED")["count"], 3);
}

fn numbers(page: &Value) -> Vec<(String, u64)> {
    let of = |item: &Value| (item["repo"].as_str().unwrap().to_owned(), item["number"].as_u64().unwrap());
    page["prs"].as_array().unwrap().iter().map(of).collect()
}

async fn pages<S: Store + 'static>(harness: &Harness<S>, caller: Caller, path: &str) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    let mut after = String::new();
    for _ in 0..20 {
        let page = harness.get(caller, &format!("{path}{after}")).await.json();
        all.extend(numbers(&page));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return all,
        }
    }
    panic!("endless pages: {all:?}");
}

async fn check_lists<S: Store + 'static>(store: S) {
    let harness = Harness::on(store, Options::default());
    seed_records(&harness).await;
    for n in 10..17 {
        harness.apply_fact(&opened(&pr(n), format!("o{n}"), minute(5))).await;
        harness.apply_fact(&opened(&web(n), format!("w{n}"), minute(5))).await;
    }
    harness.clock.set(minute(20));
    for limit in [1, 2, 5, 100] {
        let all = pages(&harness, Caller::Viewer, &format!("/api/prs?limit={limit}")).await;
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!((all.len(), distinct.len()), (18, 18), "limit {limit}");
        let created = pages(&harness, Caller::Viewer, &format!("/api/prs?limit={limit}&state=CREATED")).await;
        assert_eq!(created.len(), 16);
        let of_web = pages(&harness, Caller::WebViewer, &format!("/api/prs?limit={limit}")).await;
        assert_eq!(of_web.len(), 8);
        assert!(of_web.iter().all(|(repo, _)| repo == "acme/web"));
        let stale = pages(&harness, Caller::Viewer, &format!("/api/prs/stale?limit={limit}")).await;
        assert_eq!(stale.len(), 16, "all but the failed one, which is below its threshold, and the merged one");
        let of_shop = pages(&harness, Caller::Viewer, &format!("/api/prs/stale?limit={limit}&repo=shop")).await;
        assert_eq!(of_shop.len(), 8);
    }
    let mut events = Vec::new();
    let mut after = String::new();
    loop {
        let page = harness.get(Caller::Viewer, &format!("/api/pr/shop/3/events?limit=3{after}")).await.json();
        events
            .extend(page["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    let newest = harness.get(Caller::Viewer, "/api/pr/acme/shop/3/events?order=desc").await.json();
    let newest: Vec<String> =
        newest["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(newest, events.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(newest.last().map(String::as_str), Some("PR_OPENED"));
}

#[tokio::test]
async fn lists_in_memory() {
    check_lists(MemoryStore::new()).await;
}

/// Regression: the list ended at 500 pull requests without saying so.
#[tokio::test]
async fn stale_list_has_every_stale_pull_request() {
    let harness = Harness::new();
    for n in 1..=620 {
        harness.apply_fact(&opened(&pr(n), format!("o{n}"), minute(0))).await;
    }
    for n in 601..=620 {
        let mut record = harness.admin.engine().load(&pr(n), minute(1)).await.unwrap().unwrap();
        record.state = State::NeedsIntervention;
        let (key, item) = (schema::record_key(&pr(n)), schema::record_row(&record).unwrap());
        harness.store().write(vec![RowWrite::Put { key, item, only_if: Condition::Always }], minute(1)).await.unwrap();
    }
    harness.clock.set(minute(20));
    let (mut stale, mut escalated, mut after) = (Vec::new(), 0, String::new());
    loop {
        let path = format!("/api/prs/stale?limit=100&include=needs_intervention{after}");
        let page = harness.get(Caller::Viewer, &path).await.json();
        stale.extend(numbers(&page));
        escalated += page["needs_intervention"].as_array().unwrap().len();
        assert!(escalated == 0 || stale.len() == 600, "those that need a person come last");
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    stale.sort();
    stale.dedup();
    assert_eq!((stale.len(), escalated), (600, 20));
    let without = harness.get(Caller::Viewer, "/api/prs/stale?limit=1").await.json();
    assert!(without.get("needs_intervention").is_none(), "{without}");
}

#[tokio::test]
async fn lists_on_dynoxide() {
    let dynamo = Dynoxide::in_memory().await;
    check_lists(dynamo.store().await).await;
}

#[tokio::test]
async fn cursor_never_exposes_another_scope() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let page = harness.get(Caller::Admin, "/api/prs?limit=1&repo=shop").await.json();
    let next = page["next"].as_str().unwrap();
    let theirs = harness.get(Caller::WebViewer, &format!("/api/prs?after={next}")).await;
    assert!(!theirs.text.contains("shop"), "{}", theirs.text);
    let stale = harness.get(Caller::Admin, "/api/prs/stale?limit=1").await.json();
    let next = stale["next"].as_str().unwrap();
    assert_eq!(harness.get(Caller::Admin, &format!("/api/prs?after={next}")).await.problem().1, "BAD_CURSOR");
    let theirs = harness.get(Caller::WebViewer, &format!("/api/prs/stale?after={next}")).await;
    assert!(!theirs.text.contains("shop"), "{}", theirs.text);
    let events = harness.get(Caller::Admin, "/api/pr/shop/3/events?limit=1").await.json();
    let next = events["next"].as_str().unwrap();
    let theirs = harness.get(Caller::WebViewer, &format!("/api/pr/web/1/events?after={next}")).await;
    assert_eq!(theirs.status, 200);
    assert!(!theirs.text.contains("MERGE"), "{}", theirs.text);
}

async fn check_status<S: Store + 'static>(store: S) {
    let harness = Harness::on(store, Options::default());
    seed_records(&harness).await;
    harness.clock.set(minute(35));
    let status = harness.get(Caller::Operator, "/api/pr/shop/1/status").await.json();
    assert_eq!(
        (&status["state"], &status["substatus"], &status["stale"]),
        (&json!("CHECKS_FAILED"), &json!("TRANSIENT"), &json!(true))
    );
    assert_eq!(status["url"], "https://github.com/acme/shop/pull/1");
    let failed = json!({"name": "build", "required": true, "verdict": "failed", "at": "2036-03-03T09:03:00Z",
                        "failure": {"text": "connection reset", "transient_rule": "network"}});
    assert_eq!(status["checks"], json!([failed]));
    assert_eq!(status["budgets"][0], json!({"strategy": "rebuild", "used": 0, "max": 3, "remaining": 3}));
    assert_eq!((&status["lifetime"], &status["mode"]), (&json!({"used": 0, "max": 12}), &json!("act")));
    let commands: Vec<&str> =
        status["commands"].as_array().unwrap().iter().map(|command| command["command"].as_str().unwrap()).collect();
    assert_eq!(commands, ["/rebuild", "/update-branch", "/hold"]);
    assert_eq!(status["history"][0]["kind"], "CHECKS_FAILED");
    complete_remedy(&harness).await;
    let status = harness.get(Caller::Viewer, "/api/pr/shop/1/status").await.json();
    assert_eq!((&status["state"], &status["commands"]), (&json!("CHECKS_PASSED"), &json!([])));
    let run = &status["runs"][0];
    assert_eq!((&run["id"], &run["kind"], &run["state"]), (&json!("run-1"), &json!("rebuild"), &json!("pending")));
    assert_eq!(status["history"][0]["run_end"], "completed");
    assert_eq!(harness.get(Caller::Viewer, "/api/runs?repo=shop&number=1").await.json()["runs"][0], *run);
}

#[tokio::test]
async fn status_in_memory() {
    check_status(MemoryStore::new()).await;
}

#[tokio::test]
async fn status_on_dynoxide() {
    let dynamo = Dynoxide::in_memory().await;
    check_status(dynamo.store().await).await;
}

#[tokio::test]
async fn export_has_one_line_per_event_in_order() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let export =
        harness.get(Caller::Admin, "/api/export/events?from=2036-03-03T09:00:00Z&to=2036-03-03T09:14:00Z").await;
    assert_eq!(export.header("content-type"), "application/x-ndjson");
    let lines: Vec<Value> = export.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times: Vec<&str> = lines.iter().map(|line| line["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted() && lines.len() >= 8, "{times:?}");
    assert!(lines.iter().all(|line| line["repo"].is_string() && line["kind"].is_string()));
    let scoped = harness.get(Caller::ShopAdmin, "/api/export/events").await;
    assert!(scoped.text.contains("acme/shop") && !scoped.text.contains("acme/web"));
}
