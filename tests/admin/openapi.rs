//! The OpenAPI document: the copy in the repository is current, and schemathesis finds no violation.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::router;
use platform::publish::dead_letters::{DeadLetterQueue, LocalDeadLetters};

use crate::harness::{Caller, Harness, Options};
use crate::seed_records;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn openapi_document_in_the_repository_is_current() {
    let path = root().join("docs/openapi.json");
    let current = format!("{}\n", serde_json::to_string_pretty(&admin::openapi()).unwrap());
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    if current != committed {
        // Writes a separate file: a test that repairs what it checks would pass the second time.
        std::fs::write(root().join("docs/openapi.json.new"), current).unwrap();
        panic!("docs/openapi.json is out of date: review docs/openapi.json.new and move it there");
    }
}

#[tokio::test]
async fn every_documented_path_exists_and_requires_its_key() {
    let harness = Harness::new();
    let described = serde_json::to_value(admin::openapi()).unwrap();
    for (path, item) in described["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let path = path.replace("{repo}", "shop").replace("{number}", "1").replace("{id}", "x");
            let request = http::Request::builder().method(method.to_uppercase().as_str()).uri(&path);
            let response = harness.send(Caller::Anonymous, request.body(bytes::Bytes::new()).unwrap()).await;
            let expected = if operation.get("security").is_some() { 401 } else { 200 };
            assert_eq!(response.status, expected, "{method} {path}");
        }
    }
}

/// Serves the router on a free port until it is dropped.
async fn serve(router: axum::Router) -> (String, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let _ = axum::serve(listener, router).await;
    });
    (address, served)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis_finds_no_violations() {
    let policies =
        domain::policy::Policies::parse("mode = \"act\"\nlimits.api_requests_per_minute_per_key = 100000").unwrap();
    let dlq = DeadLetterQueue::Local(Arc::new(LocalDeadLetters::new(|_| {})));
    let harness = Harness::on(testbed::MemoryStore::new(), Options { policies, dlq, ..Options::default() });
    seed_records(&harness).await;
    let (address, served) = serve(router(Arc::clone(&harness.admin))).await;
    let tools = Command::new(root().join("scripts/python-tools")).arg("schemathesis").output().unwrap();
    assert!(tools.status.success(), "{}", String::from_utf8_lossy(&tools.stderr));
    let programs = PathBuf::from(String::from_utf8(tools.stdout).unwrap().trim());
    let mut run = Command::new(programs.join("schemathesis"))
        .args(["run", &format!("{address}/api/openapi.json")])
        .args(["--header", &format!("Authorization: Bearer {}", harness.key(Caller::Admin).unwrap())])
        // One worker: Python 3.11 fails when two threads parse at once (`AST constructor recursion depth mismatch`),
        // and only one worker sends the same requests in every run. No examples of earlier runs are replayed.
        .args(["--max-examples", "25", "--seed", "7", "--workers", "1", "--phases", "examples,coverage,fuzzing"])
        .args(["--checks", "all", "--generation-database", "none"])
        .args(["--request-timeout", "10", "--no-color"])
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Usually ten seconds. `--max-time` is a goal rather than a bound: with it schemathesis runs that long.
    let give_up = Instant::now() + Duration::from_secs(120);
    let ended = loop {
        if let Some(status) = run.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() >= give_up {
            run.kill().unwrap();
            break None;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let output = run.wait_with_output().unwrap();
    served.abort();
    let stdout = String::from_utf8_lossy(&output.stdout);
    println!("{stdout}");
    assert!(ended.is_some_and(|status| status.success()), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!harness.lines.text().contains("\"level\":\"ERROR\""), "no response was a 5xx");
}
