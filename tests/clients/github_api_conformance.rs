//! Validates every request of the GitHub client against GitHub's OpenAPI description and GraphQL schema.

use std::path::{Path, PathBuf};
use std::process::Command;

use domain::policy::Policy;
use domain::text::check_run::CheckRunButton;
use http::Request;
use jiff::SignedDuration;
use platform::github::{CheckRun, CheckRunState, IssueChange, Reaction};
use serde_json::{Value, json};
use tests::{pr, sha, start};

use crate::{ScriptedGitHub, app, response, scripted_github, token};

/// Folder in which `scripts/fetch-github-schemas` installs GitHub's published API schemas.
fn schemas() -> PathBuf {
    let set = std::env::var_os("SUTURE_GITHUB_SCHEMAS").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder = set.or_else(|| Some(cache.or(home)?.join("suture/github-schemas"))).expect("a home folder");
    assert!(
        folder.join("complete").exists(),
        "GitHub's API schemas are missing in {}: run scripts/fetch-github-schemas",
        folder.display()
    );
    folder
}

/// Runs a script of this folder and returns the violations it prints.
fn violations(script: &str, files: &[PathBuf]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script);
    let run = Command::new("node").arg(script).arg(schemas()).args(files).output().expect("node runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).expect("text")
}

fn pull() -> Value {
    json!({
        "number": 1, "node_id": "PR_1", "state": "open", "title": "t", "body": null, "user": null,
        "head": {"ref": "codegenie/fix", "sha": sha('a').as_str(), "repo": null},
        "base": {"ref": "main", "sha": sha('b').as_str(), "repo": {"full_name": "acme/shop"}},
        "created_at": "2026-03-02T09:00:00Z", "closed_at": null, "merged_at": null
    })
}

/// The smallest valid response to each request.
fn minimal_response(request: &Request<bytes::Bytes>) -> Value {
    let path = request.uri().path();
    let ends = |end: &str| path.ends_with(end);
    let reads = request.method() == "GET";
    let comment = json!({"id": 1, "node_id": "IC_1", "user": null, "body": "x", "created_at": "2026-03-02T09:00:00Z"});
    let issue = json!({"number": 1, "node_id": "I_1", "state": "open", "title": "t", "body": null});
    match path {
        "/graphql" => json!({"data": {"nodes": [], "repository": {"pullRequests": {"nodes": []}}}}),
        "/app" => json!({"slug": "suture"}),
        "/app/installations" => json!([{"id": 5, "account": {"login": "acme"}, "suspended_at": null}]),
        "/installation/repositories" => json!({"total_count": 0, "repositories": []}),
        _ if ends("/access_tokens") => json!({"token": "t", "expires_at": "2026-03-02T10:00:00Z", "permissions": {}}),
        _ if ends("/comments") && !reads || path.contains("/issues/comments/") => comment,
        _ if ends("/permission") => json!({"permission": "write", "role_name": "write"}),
        _ if path.contains("/compare/") => json!({"behind_by": 0}),
        _ if ends("/required_status_checks") => json!({"strict": true, "contexts": [], "checks": []}),
        _ if ends("/check-runs") && reads => json!({"total_count": 0, "check_runs": []}),
        _ if ends("/actions/runs") => json!({"total_count": 0, "workflow_runs": []}),
        _ if path.contains("/check-runs") => json!({"id": 1}),
        _ if ends("/pulls") && !reads || path.contains("/pulls/") => pull(),
        _ if ends("/labels") || path.contains("/labels/") => json!([]),
        _ if ends("/issues/1") || path.contains("/issues") && !reads => issue,
        _ => json!([]),
    }
}

/// Makes every call once. Each must succeed, since a failing call may not send all its requests.
async fn call_everything(client: &ScriptedGitHub) -> Result<(), platform::transport::ApiError> {
    let (github, pr) = (&client.github, pr(1));
    let repo = &pr.repo;
    let run = CheckRun {
        name: "suture".to_owned(),
        head: sha('a'),
        external_id: "acme/shop#1".to_owned(),
        state: CheckRunState::InProgress,
        title: "Watching".to_owned(),
        summary: "All is well".to_owned(),
        buttons: vec![CheckRunButton::Rebuild, CheckRunButton::Hold, CheckRunButton::Explain],
        completed_at: None,
    };
    github.pull(&pr).await?;
    github.close(&pr).await?;
    github.update_branch(&pr, &sha('a')).await?;
    github.comment(&pr, "hello").await?;
    github.find_comment(&pr, "marker", None).await?;
    github.find_comment(&pr, "marker", Some(start())).await?;
    for reaction in [Reaction::Eyes, Reaction::Rocket, Reaction::Confused] {
        github.react(repo, "IC_1", reaction).await?;
    }
    github.add_labels(&pr, &["suture/hold"]).await?;
    github.remove_label(&pr, "suture/hold").await?;
    github.permission(repo, "maria").await?;
    github.behind_by(repo, "release/1.x", &sha('a')).await?;
    github.required(repo, "release/1.x").await?;
    for state in [
        CheckRunState::InProgress,
        CheckRunState::Success,
        CheckRunState::Neutral,
        CheckRunState::Failure,
        CheckRunState::ActionRequired,
    ] {
        github.create_check_run(repo, &CheckRun { state, ..run.clone() }).await?;
        github.update_check_run(repo, 1, &CheckRun { state, ..run.clone() }).await?;
    }
    github.check_runs(repo, &sha('a')).await?;
    github.find_check_run(repo, &run).await?;
    github.rerequest_check_run(repo, 1).await?;
    github.workflow_runs(repo, &sha('a')).await?;
    github.rerun_failed_jobs(repo, 1).await?;
    github.issues_labelled(repo, "suture/status", false).await?;
    github.issues_labelled(repo, "suture/status", true).await?;
    let issue = github.issue(repo, 1).await?;
    github.create_issue(repo, "Status", "All is well", &["suture/status"]).await?;
    for reason in ["completed", "not_planned"] {
        let (state, state_reason) = (Some("closed".into()), Some(reason.into()));
        github.update_issue(repo, 1, &IssueChange { state, state_reason, ..IssueChange::default() }).await?;
    }
    github.pin_issue(repo, &issue).await?;
    github.open_pulls(repo, &Policy::default()).await?;
    github.closed_pulls(repo, &Policy::default(), start()).await?;
    github.repositories("acme").await?;
    github.health().await?;
    if github.is_app() {
        github.installations().await?;
        github.failed_deliveries(start() - SignedDuration::from_hours(72)).await?;
        github.redeliver(1).await?;
    }
    Ok(())
}

#[tokio::test]
async fn requests_conform_to_github_openapi() {
    let mut requests = Vec::new();
    for credentials in [app(), token()] {
        let client =
            scripted_github(&credentials, |request| Ok(response(200, &minimal_response(&request).to_string())));
        call_everything(&client).await.unwrap();
        requests.extend(
            client.transport.sent().iter().filter(|sent| sent.path != "/graphql").map(
                |sent| json!({"method": sent.method, "path": sent.path, "query": sent.query, "body": sent.json()}),
            ),
        );
        for sent in client.transport.sent() {
            for (header, value) in [("accept", "application/vnd.github+json"), ("user-agent", "suture")] {
                assert!(sent.headers.get(header).is_some_and(|given| given == value), "{sent:?}");
            }
            assert!(sent.headers.contains_key("authorization"), "{sent:?}");
        }
    }
    let operations: std::collections::BTreeSet<String> =
        requests.iter().map(|one| format!("{} {}", one["method"], one["path"])).collect();
    assert_eq!(operations.len(), 29, "{operations:#?}");
    let file = std::env::temp_dir().join(format!("suture-requests-{}.json", std::process::id()));
    std::fs::write(&file, serde_json::to_vec(&requests).unwrap()).unwrap();
    let violations = violations("requests.mjs", std::slice::from_ref(&file));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(violations, "");
}

#[test]
fn undocumented_request_is_detected() {
    let wrong = json!([
        {"method": "PUT", "path": "/repos/a/b/pulls/1/update-branch", "query": "", "body": {"head": "x"}},
        {"method": "GET", "path": "/repos/a/b/pulls/x", "query": "", "body": null},
        {"method": "GET", "path": "/repos/a/b/pulls", "query": "stat=open", "body": null},
        {"method": "POST", "path": "/repos/a/b/issues", "query": "", "body": {"title": []}},
        {"method": "POST", "path": "/repos/a/b/pulls/1/update-branch", "query": "", "body": null},
    ]);
    let file = std::env::temp_dir().join(format!("suture-wrong-requests-{}.json", std::process::id()));
    std::fs::write(&file, wrong.to_string()).unwrap();
    let violations = violations("requests.mjs", std::slice::from_ref(&file));
    std::fs::remove_file(&file).unwrap();
    for part in ["update-branch?: body has head", "{pull_number}", "query stat is", "body:/value/title", "no such op"] {
        assert!(violations.contains(part), "{part} not in:\n{violations}");
    }
}

#[test]
fn graphql_documents_are_valid_against_github_schema() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/platform/src/github/queries");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 7, "{files:?}");
    let generated = std::env::temp_dir().join(format!("suture-comparisons-{}.graphql", std::process::id()));
    std::fs::write(&generated, platform::github::comparisons(25)).unwrap();
    files.push(generated.clone());
    let own_violations = violations("documents.mjs", &files);
    std::fs::remove_file(&generated).unwrap();
    assert_eq!(own_violations, "");
    let wrong = std::env::temp_dir().join(format!("suture-wrong-{}.graphql", std::process::id()));
    let text = "query { nodes(ids: []) { ... on PullRequest { nope commits(first: 200) { nodes { id } } } } }";
    std::fs::write(&wrong, text).unwrap();
    let violations = violations("documents.mjs", std::slice::from_ref(&wrong));
    std::fs::remove_file(&wrong).unwrap();
    assert!(violations.contains("nope") && violations.contains("commits requests 200"), "{violations}");
}
