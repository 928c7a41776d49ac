//! GitHub's REST API and webhooks: documented behaviour and undocumented pitfalls.

use fakes::{AuditedAction, FakePrId, Fakes, Fault, JenkinsReporting, NewPullRequest, ProtectionSource, RepoSettings};
use serde_json::{Value, json};

use super::client::{as_jwt, ask, ask_as_app, try_github};
use super::lifecycle::{minutes, opened, opened_in};

const PULL: &str = "/repos/acme/payments/pulls/1";

fn secs(fakes: &mut Fakes, secs: i64) {
    fakes.advance(jiff::SignedDuration::from_secs(secs));
}

#[test]
fn mergeable_is_computed_lazily_after_a_request() {
    let (mut fakes, pr) = opened();
    minutes(&mut fakes, 1);
    assert_eq!(ask(&mut fakes, "GET", PULL, Value::Null).json["mergeable"], Value::Null);
    secs(&mut fakes, 5);
    let known = ask(&mut fakes, "GET", PULL, Value::Null).json;
    assert_eq!((&known["mergeable"], &known["mergeable_state"]), (&json!(true), &json!("blocked")));
    fakes.conflict(&pr);
    assert_eq!(ask(&mut fakes, "GET", PULL, Value::Null).json["mergeable"], Value::Null, "the base moved");
    secs(&mut fakes, 5);
    let known = ask(&mut fakes, "GET", PULL, Value::Null).json;
    assert_eq!((&known["mergeable"], &known["mergeable_state"]), (&json!(false), &json!("dirty")));
}

#[test]
fn blocked_hides_behind() {
    let (mut fakes, _) = opened_in(RepoSettings { strict: true, ..RepoSettings::new("acme/payments") });
    fakes.push_base("acme/payments");
    ask(&mut fakes, "GET", PULL, Value::Null);
    secs(&mut fakes, 5);
    assert_eq!(ask(&mut fakes, "GET", PULL, Value::Null).json["mergeable_state"], "blocked");
    minutes(&mut fakes, 40);
    ask(&mut fakes, "GET", PULL, Value::Null);
    secs(&mut fakes, 5);
    assert_eq!(ask(&mut fakes, "GET", PULL, Value::Null).json["mergeable_state"], "behind");
    let compared =
        ask(&mut fakes, "GET", "/repos/acme/payments/compare/main...codegenie/cve-2026-10001", Value::Null).json;
    assert_eq!((&compared["behind_by"], &compared["status"]), (&json!(1), &json!("diverged")));
}

#[test]
fn update_branch_errors_have_distinct_messages() {
    let (mut fakes, pr) = opened();
    let path = format!("{PULL}/update-branch");
    let head = fakes.pull(&pr).unwrap().head().to_string();
    let nothing = ask(&mut fakes, "PUT", &path, json!({"expected_head_sha": head}));
    assert_eq!(
        (nothing.code, nothing.json["message"].as_str().unwrap()),
        (422, "There are no new commits on the base branch.")
    );
    fakes.push_base("acme/payments");
    let moved = ask(&mut fakes, "PUT", &path, json!({"expected_head_sha": "0".repeat(40)}));
    assert_eq!(moved.code, 422);
    assert!(moved.json["message"].as_str().unwrap().starts_with("expected head sha"));
    let done = ask(&mut fakes, "PUT", &path, json!({"expected_head_sha": head}));
    assert_eq!(done.code, 202);
    assert_ne!(**fakes.pull(&pr).unwrap().head(), *head);
    fakes.conflict(&pr);
    let conflict = ask(&mut fakes, "PUT", &path, json!({}));
    assert_eq!(
        (conflict.code, conflict.json["message"].as_str().unwrap()),
        (422, "merge conflict between base and head")
    );
    assert_eq!(fakes.audit_by("suture-operator").filter(|it| it.action == AuditedAction::BranchUpdated).count(), 1);
}

#[test]
fn comments_are_paged_and_limited_and_labels_are_removed_once() {
    let (mut fakes, pr) = opened();
    fakes.person_comments(&pr, "danny", "/rebuild").unwrap();
    let written =
        ask(&mut fakes, "POST", "/repos/acme/payments/issues/1/comments", json!({"body": "<!-- marker --> hello"}));
    assert_eq!((written.code, &written.json["user"]["login"]), (201, &json!("suture-operator")));
    let listed = ask(&mut fakes, "GET", "/repos/acme/payments/issues/1/comments?per_page=1", Value::Null);
    assert_eq!(listed.json.as_array().unwrap().len(), 1);
    assert!(listed.header("link").unwrap().contains("page=2>; rel=\"next\""));
    assert_eq!(
        ask(&mut fakes, "POST", "/repos/acme/payments/issues/1/comments", json!({"body": "x".repeat(70_000)})).code,
        422
    );
    ask(&mut fakes, "POST", "/repos/acme/payments/issues/1/labels", json!({"labels": ["a b", "c"]}));
    let left = ask(&mut fakes, "DELETE", "/repos/acme/payments/issues/1/labels/a%20b", Value::Null).json;
    let names: Vec<_> = left.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["codegenie", "c"]);
    assert_eq!(ask(&mut fakes, "DELETE", "/repos/acme/payments/issues/1/labels/a%20b", Value::Null).code, 404);
}

#[test]
fn second_close_is_a_noop_and_reopen_needs_the_head() {
    let (mut fakes, pr) = opened();
    for _ in 0..2 {
        assert_eq!(ask(&mut fakes, "PATCH", PULL, json!({"state": "closed"})).json["state"], "closed");
    }
    assert_eq!(fakes.audit_by("suture-operator").filter(|it| it.action == AuditedAction::PullClosed).count(), 1);
    assert!(fakes.person_reopens(&pr, "danny"));
    fakes.person_closes(&pr, "danny");
    fakes.delete_head(&pr);
    assert!(!fakes.person_reopens(&pr, "danny"), "its head was deleted");
}

#[test]
fn permissions_protection_and_rules_are_served() {
    let (mut fakes, _) = opened_in(RepoSettings { strict: true, ..RepoSettings::new("acme/payments") });
    for (login, permission, role) in
        [("danny", "write", "write"), ("maria", "admin", "admin"), ("nobody", "read", "read")]
    {
        let got =
            ask(&mut fakes, "GET", &format!("/repos/acme/payments/collaborators/{login}/permission"), Value::Null).json;
        assert_eq!((got["permission"].as_str().unwrap(), got["role_name"].as_str().unwrap()), (permission, role));
    }
    let path = "/repos/acme/payments/branches/main/protection/required_status_checks";
    let required = ask(&mut fakes, "GET", path, Value::Null).json;
    assert_eq!(required["strict"], true);
    assert_eq!(required["contexts"], json!(["continuous-integration/jenkins/pr-merge", "policy-bot: main"]));
    assert_eq!(ask(&mut fakes, "GET", "/repos/acme/payments/rules/branches/main", Value::Null).json, json!([]));
    let (mut fakes, _) = opened_in(RepoSettings {
        protection: ProtectionSource::Ruleset,
        reports: JenkinsReporting::CheckRun,
        ..RepoSettings::new("acme/payments")
    });
    assert_eq!(ask(&mut fakes, "GET", path, Value::Null).code, 404);
    let rules = ask(&mut fakes, "GET", "/repos/acme/payments/rules/branches/main", Value::Null).json;
    assert_eq!(rules[1]["parameters"]["required_status_checks"][0]["context"], "Jenkins");
}

#[test]
fn only_apps_write_check_runs_and_only_their_own() {
    let (mut fakes, pr) =
        opened_in(RepoSettings { reports: JenkinsReporting::Both, ..RepoSettings::new("acme/payments") });
    minutes(&mut fakes, 20);
    let head = fakes.pull(&pr).unwrap().head().to_string();
    let new = json!({"name": "Suture", "head_sha": head, "status": "in_progress", "output": {"title": "Looking", "summary": "…"}});
    let path = "/repos/acme/payments/check-runs";
    assert_eq!(ask(&mut fakes, "POST", path, new.clone()).code, 403, "not with a personal token");
    let made = ask_as_app(&mut fakes, "POST", path, new);
    assert_eq!((made.code, &made.json["app"]["slug"]), (201, &json!("suture")));
    let own = format!("{path}/{}", made.json["id"]);
    let done = ask_as_app(&mut fakes, "PATCH", &own, json!({"conclusion": "neutral"}));
    assert_eq!((done.code, &done.json["status"]), (200, &json!("completed")));
    assert_eq!(
        ask_as_app(&mut fakes, "PATCH", &own, json!({"output": {"title": "t", "summary": "x".repeat(65_536)}})).code,
        422
    );
    let listed = ask(&mut fakes, "GET", &format!("/repos/acme/payments/commits/{head}/check-runs"), Value::Null).json;
    assert_eq!(listed["total_count"], 2);
    let jenkins = &listed["check_runs"].as_array().unwrap().iter().find(|it| it["name"] == "Jenkins").unwrap().clone();
    assert_eq!(jenkins["external_id"], "acme/payments/PR-1#1");
    let foreign = format!("{path}/{}/rerequest", jenkins["id"]);
    assert_eq!(ask_as_app(&mut fakes, "POST", &foreign, Value::Null).code, 403);
    assert_eq!(ask_as_app(&mut fakes, "POST", &format!("{own}/rerequest"), Value::Null).code, 201);
}

#[test]
fn issues_are_opened_edited_and_listed_beside_pull_requests() {
    let (mut fakes, _) = opened();
    let made = ask(
        &mut fakes,
        "POST",
        "/repos/acme/payments/issues",
        json!({"title": "Suture status", "body": "b", "labels": ["suture"]}),
    );
    assert_eq!((made.code, &made.json["number"]), (201, &json!(2)));
    let closed =
        ask(&mut fakes, "PATCH", "/repos/acme/payments/issues/2", json!({"state": "closed", "body": "c"})).json;
    assert_eq!((&closed["state"], &closed["body"]), (&json!("closed"), &json!("c")));
    let listed = ask(&mut fakes, "GET", "/repos/acme/payments/issues?state=all", Value::Null).json;
    let kinds: Vec<_> = listed.as_array().unwrap().iter().map(|it| it.get("pull_request").is_some()).collect();
    assert_eq!(kinds, [false, true]);
    assert_eq!(fakes.issues().count(), 1);
}

#[test]
fn fork_and_status_events_name_no_pull_request() {
    let (mut fakes, _) =
        opened_in(RepoSettings { reports: JenkinsReporting::Both, ..RepoSettings::new("acme/payments") });
    fakes.open_pr(NewPullRequest { fork: true, ..NewPullRequest::default() });
    minutes(&mut fakes, 2);
    for sent in fakes.take_webhooks() {
        let payload: Value = serde_json::from_slice(&sent.body).unwrap();
        let fork = sent.pr == Some(FakePrId { repo: "acme/payments".to_owned(), number: 2 });
        match sent.event.as_str() {
            "status" => {
                assert!(payload.get("number").is_none() && payload.get("pull_requests").is_none());
                assert_eq!(payload["branches"].as_array().unwrap().is_empty(), fork);
            }
            "check_run" => assert_eq!(payload["check_run"]["pull_requests"].as_array().unwrap().is_empty(), fork),
            _ => {}
        }
        assert_eq!(payload["installation"]["id"], 815);
    }
}

#[test]
fn failed_deliveries_are_listed_and_redelivered_with_the_same_guid() {
    let (mut fakes, pr) = opened();
    fakes.force(Fault::WebhookLost, &pr);
    fakes.force(Fault::WebhookNeverSent, &pr);
    fakes.person_comments(&pr, "danny", "lost");
    fakes.person_comments(&pr, "danny", "never sent");
    fakes.person_comments(&pr, "danny", "answered with an error");
    secs(&mut fakes, 10);
    let taken = fakes.take_webhooks();
    let texts: Vec<_> = taken
        .iter()
        .filter(|it| it.event == "issue_comment")
        .map(|it| serde_json::from_slice::<Value>(&it.body).unwrap()["comment"]["body"].clone())
        .collect();
    assert_eq!(texts, ["answered with an error"]);
    fakes.webhook_answered(taken.iter().find(|it| it.event == "issue_comment").unwrap(), 503);
    let failed: Vec<Value> =
        as_jwt(&mut fakes, "GET", "/app/hook/deliveries?per_page=100&status=failure").json.as_array().unwrap().clone();
    let codes: Vec<_> = failed.iter().map(|it| it["status_code"].as_u64().unwrap()).collect();
    assert_eq!(codes, [503, 504], "newest first; a webhook that was never sent is not listed");
    let lost = &failed[1];
    let again = as_jwt(&mut fakes, "POST", &format!("/app/hook/deliveries/{}/attempts", lost["id"]));
    assert_eq!(again.code, 202);
    secs(&mut fakes, 10);
    let redelivered = fakes.take_webhooks().into_iter().find(|it| it.redelivery).unwrap();
    assert_eq!(json!(redelivered.guid), lost["guid"]);
    assert_ne!(json!(redelivered.id), lost["id"]);
    minutes(&mut fakes, 4 * 24 * 60);
    assert_eq!(
        as_jwt(&mut fakes, "GET", "/app/hook/deliveries").json,
        json!([]),
        "only the last three days are listed"
    );
    assert_eq!(as_jwt(&mut fakes, "POST", &format!("/app/hook/deliveries/{}/attempts", lost["id"])).code, 404);
}

#[test]
fn deliveries_are_paged_by_cursor() {
    let (mut fakes, pr) = opened();
    for _ in 0..25 {
        fakes.person_comments(&pr, "danny", "hello");
    }
    secs(&mut fakes, 10);
    let (mut path, mut seen) = ("/app/hook/deliveries?per_page=10".to_owned(), Vec::new());
    loop {
        let page = as_jwt(&mut fakes, "GET", &path);
        seen.extend(page.json.as_array().unwrap().iter().map(|it| it["id"].as_u64().unwrap()));
        let Some(link) = page.header("link") else { break };
        path = link.trim_start_matches("<https://api.github.com").split('>').next().unwrap().to_owned();
    }
    let mut sorted = seen.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert!(seen.len() >= 25 && sorted.len() == seen.len());
}

#[test]
fn requests_are_authenticated() {
    let (mut fakes, _) = opened();
    let none = try_github(&mut fakes, "GET", PULL, &[], &Value::Null).unwrap();
    let bad = try_github(&mut fakes, "GET", PULL, &[("authorization", "Bearer nonsense")], &Value::Null).unwrap();
    assert_eq!((none.code, bad.code), (401, 401));
    assert_eq!(as_jwt(&mut fakes, "GET", PULL).code, 401, "the App's JWT does not give access to repositories");
    assert_eq!(
        ask(&mut fakes, "GET", "/app", Value::Null).code,
        401,
        "a personal token is not accepted for App endpoints"
    );
    assert_eq!(as_jwt(&mut fakes, "GET", "/app").json["id"], 4711);
    assert_eq!(as_jwt(&mut fakes, "GET", "/app/installations").json[0]["id"], 815);
    assert_eq!(ask_as_app(&mut fakes, "GET", "/installation/repositories", Value::Null).json["total_count"], 1);
    let token =
        as_jwt(&mut fakes, "POST", "/app/installations/815/access_tokens").json["token"].as_str().unwrap().to_owned();
    let with = |fakes: &mut Fakes| {
        try_github(fakes, "GET", PULL, &[("authorization", &format!("Bearer {token}"))], &Value::Null).unwrap().code
    };
    assert_eq!(with(&mut fakes), 200);
    minutes(&mut fakes, 61);
    assert_eq!(with(&mut fakes), 401, "installation tokens expire after an hour");
    assert_eq!(as_jwt(&mut fakes, "POST", "/app/installations/9/access_tokens").code, 404);
}

#[test]
fn unknown_requests_are_recorded() {
    let (mut fakes, _) = opened();
    let got = ask(&mut fakes, "GET", "/repos/acme/payments/topics", Value::Null);
    assert_eq!((got.code, got.json["message"].as_str().unwrap()), (404, "Not Found"));
    assert_eq!(ask(&mut fakes, "GET", "/repos/acme/payments/pulls/99", Value::Null).code, 404);
    assert_eq!(ask(&mut fakes, "GET", "/repos/acme/nothing", Value::Null).code, 404);
    assert_eq!(
        fakes.unknown_requests(),
        ["GET /repos/acme/payments/topics"],
        "a missing object is not an unknown request"
    );
}
