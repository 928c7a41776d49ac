//! Every route by role and scope, and the first five OWASP API security risks.

use serde_json::json;
use tests::{pr, start};

use crate::harness::{Caller, Harness};
use crate::seed_records;

/// Method, path, body, status for an allowed caller and the lowest role; `shop` is the status for the admin of
/// `acme/shop`.
struct Row {
    post: bool,
    path: &'static str,
    body: &'static str,
    ok: u16,
    needs: Caller,
    shop: u16,
}

const fn get(path: &'static str, needs: Caller, shop: u16) -> Row {
    Row { post: false, path, body: "", ok: 200, needs, shop }
}

const fn post(path: &'static str, body: &'static str, ok: u16, needs: Caller, shop: u16) -> Row {
    Row { post: true, path, body, ok, needs, shop }
}

/// The routes. The last column is the status for the admin of `acme/shop`; the viewer of `acme/web` is tested on each
/// route too.
const ROUTES: [Row; 28] = [
    get("/api/overview", Caller::Viewer, 200),
    get("/api/insights", Caller::Viewer, 200),
    get("/api/insights?repo=shop", Caller::Viewer, 200),
    get("/api/insights?repo=acme/web", Caller::Viewer, 404),
    get("/api/prs", Caller::Viewer, 200),
    get("/api/prs?repo=shop", Caller::Viewer, 200),
    get("/api/prs?repo=acme/web", Caller::Viewer, 404),
    get("/api/prs/stale", Caller::Viewer, 200),
    get("/api/pr/shop/1/status", Caller::Viewer, 200),
    get("/api/pr/acme%2Fshop/1/status", Caller::Viewer, 200),
    get("/api/pr/acme/shop/1/status", Caller::Viewer, 200),
    get("/api/pr/web/1/status", Caller::Viewer, 404),
    get("/api/pr/shop/1/events", Caller::Viewer, 200),
    get("/api/pr/acme/web/1/events", Caller::Viewer, 404),
    get("/api/pr/shop/1/explain", Caller::Viewer, 200),
    get("/api/pr/acme/shop/1/explain?live=false", Caller::Viewer, 200),
    get("/api/runs?repo=shop&number=1", Caller::Viewer, 200),
    get("/api/runs?repo=web&number=1", Caller::Viewer, 404),
    get("/api/circuit-breaker", Caller::Viewer, 200),
    post("/api/pr/shop/1/command", r#"{"command":"/rebuild"}"#, 202, Caller::Operator, 202),
    post("/api/pr/acme/web/1/command", r#"{"command":"/hold"}"#, 202, Caller::Operator, 404),
    post("/api/commands", r#"[{"repo":"shop","pr_number":1,"command":"/hold"}]"#, 207, Caller::Operator, 207),
    post("/api/reconciler/run", r#"{"repo":"acme/shop"}"#, 202, Caller::Operator, 202),
    post("/api/reconciler/run", "", 202, Caller::Operator, 403),
    post("/api/pause", r#"{"reason":"Jenkins moves"}"#, 200, Caller::Admin, 403),
    post("/api/unpause", "", 200, Caller::Admin, 403),
    post("/api/circuit-breaker/reset", "", 200, Caller::Admin, 403),
    get("/api/export/events", Caller::Admin, 200),
];

fn rank(caller: Caller) -> u8 {
    match caller {
        Caller::Anonymous | Caller::UnknownKey => 0,
        Caller::Viewer | Caller::WebViewer => 1,
        Caller::Operator => 2,
        Caller::Admin | Caller::ShopAdmin => 3,
    }
}

#[tokio::test]
async fn each_route_requires_its_role_and_scope() {
    let harness = Harness::new();
    seed_records(&harness).await;
    for row in &ROUTES {
        for caller in [
            Caller::Anonymous,
            Caller::UnknownKey,
            Caller::Viewer,
            Caller::Operator,
            Caller::Admin,
            Caller::ShopAdmin,
            Caller::WebViewer,
        ] {
            let response = if row.post {
                harness.post(caller, row.path, row.body).await
            } else {
                harness.get(caller, row.path).await
            };
            let about_shop = row.path.contains("shop") && !row.path.contains("/api/reconciler");
            let expected = match caller {
                Caller::Anonymous | Caller::UnknownKey => 401,
                _ if rank(caller) < rank(row.needs) => 403,
                Caller::ShopAdmin => row.shop,
                Caller::WebViewer if about_shop => 404,
                _ => row.ok,
            };
            assert_eq!(response.status, expected, "{caller:?} {} {}", row.path, response.text);
            if response.status >= 400 {
                response.problem();
            }
        }
        // Reset what the row changed.
        harness.post(Caller::Admin, "/api/unpause", "").await;
    }
}

#[tokio::test]
async fn public_routes_need_no_key() {
    let harness = Harness::new();
    let before = store_requests(&harness);
    assert_eq!(harness.get(Caller::Anonymous, "/healthz").await.json(), json!({"status": "ok", "version": "0.1.0"}));
    assert_eq!(harness.get(Caller::Anonymous, "/api/openapi.json").await.json()["openapi"], "3.1.0");
    let page = harness.get(Caller::Anonymous, "/").await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    assert_eq!(page.header("content-security-policy"), policy);
    assert_eq!((page.header("x-content-type-options"), page.header("referrer-policy")), ("nosniff", "no-referrer"));
    for (path, kind) in
        [("/assets/app.js", "text/javascript; charset=utf-8"), ("/assets/style.css", "text/css; charset=utf-8")]
    {
        let file = harness.get(Caller::Anonymous, path).await;
        assert_eq!((file.status, file.header("content-type")), (200, kind));
    }
    assert_eq!(store_requests(&harness), before);
}

fn store_requests(harness: &Harness<testbed::MemoryStore>) -> u64 {
    use platform::store::Store as _;
    harness.store().usage().usage().requests
}

/// API1: broken object level authorization. Pull requests, runs and pages of another scope are not found.
#[tokio::test]
async fn owasp_api1_objects_of_another_scope_are_not_found() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let unknown = harness.get(Caller::WebViewer, "/api/pr/shop/999/status").await;
    let hidden = harness.get(Caller::WebViewer, "/api/pr/shop/1/status").await;
    assert_eq!((unknown.status, hidden.status), (404, 404));
    assert_eq!(unknown.text.replace("999", "1"), hidden.text, "hidden and missing look the same");
    let run = tests::claim(harness.admin.engine(), &pr(2), "run-1", tests::minute(9)).await;
    harness.admin.engine().apply(&run, tests::minute(9)).await.unwrap();
    assert_eq!(harness.get(Caller::ShopAdmin, "/api/runs/run-1").await.status, 200);
    assert_eq!(harness.get(Caller::WebViewer, "/api/runs/run-1").await.problem(), (404, "NOT_FOUND".to_owned()));
    assert_eq!(harness.post(Caller::ShopAdmin, "/api/pr/web/1/command", r#"{"command":"/hold"}"#).await.status, 404);
    let batch =
        r#"[{"repo":"acme/web","pr_number":1,"command":"/hold"},{"repo":"shop","pr_number":1,"command":"/hold"}]"#;
    let results = harness.post(Caller::ShopAdmin, "/api/commands", batch).await.json();
    assert_eq!((&results["results"][0]["status"], &results["results"][1]["status"]), (&json!(404), &json!(202)));
    assert_eq!(harness.publisher().sent().iter().filter(|message| message.id.starts_with("cmd:")).count(), 1);
    // Sweeps name pull requests of all repositories: only unscoped callers and the requester see them.
    let accepted = harness.post(Caller::ShopAdmin, "/api/reconciler/run", r#"{"repo":"shop"}"#).await.json();
    let path = format!("/api/runs/{}", accepted["run_id"].as_str().unwrap());
    assert_eq!(harness.get(Caller::ShopAdmin, &path).await.json()["state"], "pending");
    assert_eq!(harness.get(Caller::WebViewer, &path).await.status, 404);
    assert_eq!(harness.get(Caller::WebViewer, "/api/runs").await.json()["runs"], json!([]));
}

/// API2: broken authentication. Only a valid key in the `authorization` header authenticates, and an invalid one reads
/// nothing.
#[tokio::test]
async fn owasp_api2_only_a_valid_key_authenticates_and_a_wrong_one_reads_nothing() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let key = harness.key(Caller::Admin).unwrap().to_owned();
    let before = store_requests(&harness);
    let with = |name: &'static str, value: String| {
        let request = http::Request::builder().uri("/api/overview").header(name, value);
        harness.send(Caller::Anonymous, request.body(bytes::Bytes::new()).unwrap())
    };
    for wrong in [
        with("authorization", format!("Basic {key}")),
        with("authorization", key.clone()),
        with("authorization", "Bearer ".to_owned()),
        with("authorization", format!("Bearer {key}x")),
        with("authorization", format!("Bearer {}", key.to_uppercase())),
        with("x-api-key", key.clone()),
        with("cookie", format!("key={key}")),
    ] {
        let response = wrong.await;
        assert_eq!(response.problem(), (401, "UNAUTHORIZED".to_owned()));
        assert_eq!(response.header("www-authenticate"), "Bearer");
    }
    let in_query = harness.get(Caller::Anonymous, &format!("/api/overview?key={key}")).await;
    assert_eq!(in_query.status, 401);
    assert_eq!(store_requests(&harness), before, "an unauthenticated request reads nothing");
    assert_eq!(with("authorization", format!("bearer {key}")).await.status, 200);
    assert!(!harness.lines.text().contains(&key), "no key is ever logged");
}

/// API3: broken object property level authorization. Internal properties are neither shown nor settable.
#[tokio::test]
async fn owasp_api3_internal_properties_are_neither_shown_nor_settable() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let status = harness.get(Caller::Viewer, "/api/pr/shop/1/status").await.json();
    for inner in ["node_id", "signals", "past_heads", "early", "ttl", "not_before"] {
        assert!(status.get(inner).is_none(), "{inner}");
    }
    for body in [
        r#"{"command":"/rebuild","requested_by":"somebody else"}"#,
        r#"{"command":"/rebuild","source":"reconciler"}"#,
        r#"{"command":"/rebuild","run_id":"x"}"#,
    ] {
        assert_eq!(
            harness.post(Caller::Operator, "/api/pr/shop/1/command", body).await.problem(),
            (400, "BAD_JSON".to_owned())
        );
    }
    harness.post(Caller::Operator, "/api/pr/shop/1/command", r#"{"command":"/rebuild"}"#).await;
    let sent = format!("{:?}", harness.publisher().sent());
    assert!(sent.contains(r#"requested_by: "operator""#) && sent.contains("source: AdminApi"), "{sent}");
}

/// API4: unrestricted resource consumption. Each key has a limit per minute, and 429 carries `retry-after`.
#[tokio::test]
async fn owasp_api4_rate_limit_per_key_returns_retry_after() {
    let policies =
        domain::policy::Policies::parse("mode = \"act\"\nlimits.api_requests_per_minute_per_key = 3").unwrap();
    let options = crate::harness::Options { policies, ..Default::default() };
    let harness = Harness::on(testbed::MemoryStore::new(), options);
    harness.clock.set(start() + jiff::SignedDuration::from_secs(18));
    for _ in 0..3 {
        assert_eq!(harness.get(Caller::Viewer, "/api/circuit-breaker").await.status, 200);
    }
    let refused = harness.get(Caller::Viewer, "/api/circuit-breaker").await;
    assert_eq!(refused.problem(), (429, "RATE_LIMITED".to_owned()));
    assert_eq!(refused.header("retry-after"), "42");
    assert_eq!(harness.get(Caller::Operator, "/api/circuit-breaker").await.status, 200, "other keys are not limited");
    harness.clock.set(tests::minute(1));
    assert_eq!(harness.get(Caller::Viewer, "/api/circuit-breaker").await.status, 200);
    for (path, most) in
        [("/api/prs?limit=101", 100), ("/api/pr/shop/1/events?limit=201", 200), ("/api/runs?limit=101", 100)]
    {
        let refused = harness.get(Caller::Admin, path).await;
        harness.clock.set(clock_now(&harness) + jiff::SignedDuration::from_mins(1));
        assert_eq!(refused.problem(), (400, "BAD_QUERY".to_owned()));
        assert!(refused.text.contains(&most.to_string()));
    }
}

/// The rate limit is counted while the status is read: above it the response is refused, and later requests read
/// nothing.
#[tokio::test]
async fn status_query_counts_against_the_rate_limit() {
    let policies =
        domain::policy::Policies::parse("mode = \"act\"\nlimits.api_requests_per_minute_per_key = 3").unwrap();
    let options = crate::harness::Options { policies, ..Default::default() };
    let harness = Harness::on(testbed::MemoryStore::new(), options);
    seed_records(&harness).await;
    for _ in 0..3 {
        assert_eq!(harness.get(Caller::Viewer, "/api/pr/shop/1/status").await.status, 200);
    }
    for nth in 0..3 {
        let before = store_requests(&harness);
        let refused = harness.get(Caller::Viewer, "/api/pr/shop/1/status").await;
        assert_eq!(refused.problem(), (429, "RATE_LIMITED".to_owned()));
        assert!(nth == 0 || store_requests(&harness) - before == 1, "a key over its limit costs one count");
    }
    harness.clock.set(tests::minute(21));
    assert_eq!(harness.get(Caller::Viewer, "/api/pr/shop/1/status").await.status, 200);
    assert_eq!(harness.get(Caller::Viewer, "/api/pr/shop/99/status").await.problem().0, 404);
}

fn clock_now(harness: &Harness<testbed::MemoryStore>) -> jiff::Timestamp {
    use platform::clock::Clock as _;
    harness.clock.now()
}

/// API5: broken function level authorization. A role cannot use a higher role's actions by any route.
#[tokio::test]
async fn owasp_api5_role_cannot_use_actions_of_a_higher_role() {
    let harness = Harness::new();
    seed_records(&harness).await;
    for command in ["/cancel", "/close-and-reopen", "/approve"] {
        let body = json!({"command": command}).to_string();
        assert_eq!(harness.post(Caller::Operator, "/api/pr/shop/1/command", &body).await.problem().0, 403, "{command}");
        let batch = json!([{"repo": "shop", "pr_number": 1, "command": command}]).to_string();
        let results = harness.post(Caller::Operator, "/api/commands", &batch).await.json();
        assert_eq!(results["results"][0]["status"], 403, "{command}");
    }
    assert_eq!(harness.publisher().sent(), []);
    let cancel = harness.post(Caller::Admin, "/api/pr/shop/1/command", r#"{"command":"/cancel"}"#).await;
    assert_eq!(cancel.status, 202, "{}", cancel.text);
    for method in ["PUT", "DELETE", "PATCH", "POST"] {
        let request = http::Request::builder().method(method).uri("/api/overview");
        let response = harness.send(Caller::Admin, request.body(bytes::Bytes::new()).unwrap()).await;
        assert_eq!(response.problem(), (405, "METHOD_NOT_ALLOWED".to_owned()), "{method}");
    }
}
