//! Malformed input always gets a problem response with a sentence: never a 5xx, a stack trace or another scope's names.

use bytes::Bytes;
use http::Request;
use testbed::{FaultStore, MemoryStore};

use crate::harness::{Caller, Harness, Options};
use crate::seed_records;

#[tokio::test]
async fn malformed_paths_are_refused() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let long = "x".repeat(5000);
    for path in [
        "/api/pr/../../etc/passwd/1/status".to_owned(),
        "/api/pr/%2e%2e/1/status".to_owned(),
        "/api/pr/acme%2F..%2Fshop/1/status".to_owned(),
        "/api/pr/acme%2F%2Fshop/1/status".to_owned(),
        "/api/pr/%2F/1/status".to_owned(),
        "/api/pr/shop%00/1/status".to_owned(),
        "/api/pr/shop/1%00/status".to_owned(),
        "/api/pr/shop%23x/1/status".to_owned(),
        "/api/pr/shop/0/status".to_owned(),
        "/api/pr/shop/-1/status".to_owned(),
        "/api/pr/shop/+1/status".to_owned(),
        "/api/pr/shop/1e3/status".to_owned(),
        "/api/pr/shop/99999999999999999999/status".to_owned(),
        "/api/pr/shop/01x/status".to_owned(),
        "/api/pr/%ff%fe/1/status".to_owned(),
        format!("/api/pr/{long}/1/status"),
        format!("/api/pr/shop/{long}/status"),
        format!("/api/runs/{long}"),
        "/api/runs/%00".to_owned(),
        "/api/runs/..%2F..%2FPR%23acme%2Fshop%231".to_owned(),
        "/assets/../main.rs".to_owned(),
        "/assets/%2e%2e/index.html".to_owned(),
        "//api/overview".to_owned(),
        "/api/overview/".to_owned(),
        "/API/overview".to_owned(),
        "/api".to_owned(),
    ] {
        let response = harness.get(Caller::Admin, &path).await;
        let (status, _) = response.problem();
        assert!((400..500).contains(&status), "{path}: {status}");
        assert!(!response.text.contains("passwd") && response.text.len() < 1500, "{}", response.text);
    }
    // Repository names are case-insensitive as on GitHub; leading zeros in a number are refused.
    assert_eq!(harness.get(Caller::Admin, "/api/pr/ACME/Shop/1/status").await.json()["repo"], "acme/shop");
}

#[tokio::test]
async fn malformed_query_strings_are_refused() {
    let harness = Harness::new();
    seed_records(&harness).await;
    for path in [
        "/api/prs?state=checks_failed",
        "/api/prs?state=X",
        "/api/prs?limit=0",
        "/api/prs?limit=-1",
        "/api/prs?limit=9999999999999",
        "/api/prs?after=%00",
        "/api/prs?unknown=1",
        "/api/prs?repo=..%2F..",
        "/api/pr/shop/1/events?order=sideways",
        "/api/pr/shop/1/explain?live=perhaps",
        "/api/runs?repo=shop",
        "/api/runs?number=1",
        "/api/runs?repo=shop&number=0",
        "/api/export/events?from=yesterday",
    ] {
        let (status, code) = harness.get(Caller::Admin, path).await.problem();
        assert_eq!(status, 400, "{path}: {code}");
    }
    // Well formed by the OpenAPI schema, but invalid.
    for (path, expected) in [
        ("/api/prs?after=eyJsIjoicHJzIiwicCI6WyJhY21lL3Nob3AjMSIsIkNSRUFURUQiLDFdfQ", "BAD_CURSOR"),
        ("/api/prs?after=A", "BAD_CURSOR"),
        ("/api/runs?after=eyJsIjoicnVucyIsInAiOiJub25lIn0", "BAD_CURSOR"),
        ("/api/export/events?from=2036-03-03T09:00:00Z&to=2036-03-01T09:00:00Z", "BAD_RANGE"),
        ("/api/export/events?from=2020-01-01T00:00:00Z&to=2036-03-01T09:00:00Z", "BAD_RANGE"),
    ] {
        assert_eq!(harness.get(Caller::Admin, path).await.problem(), (409, expected.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn oversized_and_malformed_bodies_are_refused() {
    let harness = Harness::new();
    seed_records(&harness).await;
    let command = "/api/pr/shop/1/command";
    let huge = format!(r#"{{"command":"{}"}}"#, "x".repeat(300 * 1024));
    assert_eq!(harness.post(Caller::Admin, command, &huge).await.problem(), (413, "TOO_LARGE".to_owned()));
    let declared = Request::builder().method("POST").uri(command).header("content-length", "99999999999");
    let response = harness.send(Caller::Admin, declared.body(Bytes::new()).unwrap()).await;
    assert_eq!(response.problem().0, 413, "the body is not read");
    let unseen = harness.post(Caller::Anonymous, command, &huge).await;
    assert_eq!(unseen.problem().0, 401, "no body is read without a key");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(harness.post(Caller::Admin, "/api/commands", &deep).await.problem(), (400, "BAD_JSON".to_owned()));
    let not_utf8 =
        Request::builder().method("POST").uri(command).body(Bytes::from_static(&[b'{', 0xff, 0xfe])).unwrap();
    assert_eq!(harness.send(Caller::Admin, not_utf8).await.problem(), (400, "BAD_JSON".to_owned()));
    let markup = harness.post(Caller::Admin, command, r#"{"command":"<script>alert(1)</script>"}"#).await;
    assert_eq!((markup.problem().0, markup.header("x-content-type-options")), (400, "nosniff"));
}

#[tokio::test]
async fn store_outage_returns_503_without_internal_names() {
    let harness = Harness::on(FaultStore::<MemoryStore>::default(), Options::default());
    // The key's rate limit is the first store call. In a second pass it works, so that the later calls fail.
    for unanswered in [&[""][..], &["get ", "write ", "query "]] {
        harness.store().faults.fail_calls("", false);
        unanswered.iter().for_each(|calls| harness.store().faults.fail_calls(calls, true));
        for path in [
            "/api/overview",
            "/api/prs",
            "/api/prs/stale",
            "/api/pr/shop/1/status",
            "/api/pr/shop/1/events",
            "/api/pr/shop/1/explain",
            "/api/runs",
            "/api/runs/x",
            "/api/circuit-breaker",
            "/api/export/events",
        ] {
            let response = harness.get(Caller::Admin, path).await;
            assert_eq!(response.problem(), (503, "UNAVAILABLE".to_owned()), "{path}");
            assert!(!response.text.contains("no answer: "), "{}", response.text);
        }
        for (path, body) in [
            ("/api/pr/shop/1/command", r#"{"command":"/hold"}"#),
            ("/api/pause", ""),
            ("/api/reconciler/run", ""),
            ("/api/commands", r#"[{"repo":"shop","pr_number":1,"command":"/hold"}]"#),
        ] {
            for name in [None, Some("k")] {
                assert_eq!(harness.post_with_key(Caller::Admin, path, body, name).await.problem().0, 503, "{path}");
            }
        }
    }
    assert!(harness.lines.text().contains("no answer: query "), "the log names the failed call");
    assert_eq!(harness.get(Caller::Anonymous, "/healthz").await.status, 200);
}

#[tokio::test]
async fn each_request_logs_one_line_with_key_route_and_duration() {
    let harness = Harness::new();
    seed_records(&harness).await;
    harness.get(Caller::Viewer, "/api/pr/shop/1/status?x=1").await;
    harness.get(Caller::Anonymous, "/no/such/path").await;
    harness.post(Caller::Operator, "/api/pr/shop/1/command", r#"{"command":"/merge"}"#).await;
    let text = harness.lines.text();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["key"], &lines[0]["route"]), (&"viewer".into(), &"/api/pr/{repo}/{number}/status".into()));
    assert_eq!((&lines[0]["status"], &lines[0]["method"]), (&200.into(), &"GET".into()));
    assert!(lines[0]["ms"].is_u64());
    assert_eq!((&lines[1]["route"], lines[1].get("key"), &lines[1]["status"]), (&"none".into(), None, &404.into()));
    assert_eq!((&lines[2]["code"], &lines[2]["refused"]), (&"COMMAND_NOT_POSSIBLE".into(), &1.into()));
}
