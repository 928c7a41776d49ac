//! GitHub's REST API and webhooks: what is documented, and what people learn the hard way.

use serde_json::{Value, json};
use world::{Deed, Fault, NewPull, Pr, Protection, Repo, Reports, StatusState, World};

use super::asking::{as_jwt, ask, ask_as_app, try_github};
use super::lives::{minutes, opened, opened_in};

const PULL: &str = "/repos/acme/payments/pulls/1";

fn secs(world: &mut World, secs: i64) {
    world.advance(jiff::SignedDuration::from_secs(secs));
}

#[test]
fn mergeable_is_worked_out_only_when_asked_and_a_little_later() {
    let (mut world, pr) = opened();
    minutes(&mut world, 1);
    assert_eq!(ask(&mut world, "GET", PULL, Value::Null).json["mergeable"], Value::Null);
    secs(&mut world, 5);
    let known = ask(&mut world, "GET", PULL, Value::Null).json;
    assert_eq!((&known["mergeable"], &known["mergeable_state"]), (&json!(true), &json!("blocked")));
    world.conflict(&pr);
    assert_eq!(ask(&mut world, "GET", PULL, Value::Null).json["mergeable"], Value::Null, "the base moved");
    secs(&mut world, 5);
    let known = ask(&mut world, "GET", PULL, Value::Null).json;
    assert_eq!((&known["mergeable"], &known["mergeable_state"]), (&json!(false), &json!("dirty")));
}

#[test]
fn blocked_hides_behind() {
    let (mut world, _) = opened_in(Repo { strict: true, ..Repo::new("acme/payments") });
    world.push_base("acme/payments");
    ask(&mut world, "GET", PULL, Value::Null);
    secs(&mut world, 5);
    assert_eq!(ask(&mut world, "GET", PULL, Value::Null).json["mergeable_state"], "blocked");
    minutes(&mut world, 40);
    ask(&mut world, "GET", PULL, Value::Null);
    secs(&mut world, 5);
    assert_eq!(ask(&mut world, "GET", PULL, Value::Null).json["mergeable_state"], "behind");
    let compared =
        ask(&mut world, "GET", "/repos/acme/payments/compare/main...codegenie/cve-2026-10001", Value::Null).json;
    assert_eq!((&compared["behind_by"], &compared["status"]), (&json!(1), &json!("diverged")));
}

#[test]
fn update_branch_tells_its_refusals_apart() {
    let (mut world, pr) = opened();
    let path = format!("{PULL}/update-branch");
    let head = world.pull(&pr).unwrap().head().to_string();
    let nothing = ask(&mut world, "PUT", &path, json!({"expected_head_sha": head}));
    assert_eq!(
        (nothing.code, nothing.json["message"].as_str().unwrap()),
        (422, "There are no new commits on the base branch.")
    );
    world.push_base("acme/payments");
    let moved = ask(&mut world, "PUT", &path, json!({"expected_head_sha": "0".repeat(40)}));
    assert_eq!(moved.code, 422);
    assert!(moved.json["message"].as_str().unwrap().starts_with("expected head sha"));
    let done = ask(&mut world, "PUT", &path, json!({"expected_head_sha": head}));
    assert_eq!(done.code, 202);
    assert_ne!(**world.pull(&pr).unwrap().head(), *head);
    world.conflict(&pr);
    let conflict = ask(&mut world, "PUT", &path, json!({}));
    assert_eq!(
        (conflict.code, conflict.json["message"].as_str().unwrap()),
        (422, "merge conflict between base and head")
    );
    assert_eq!(world.effects_by("suture-operator").filter(|it| it.deed == Deed::BranchUpdated).count(), 1);
}

#[test]
fn a_second_pull_request_for_a_head_is_refused_and_can_be_looked_up() {
    let (mut world, _) = opened();
    let new = json!({"title": "Again", "head": "codegenie/cve-2026-10001", "base": "main"});
    let refused = ask(&mut world, "POST", "/repos/acme/payments/pulls", new);
    assert_eq!(refused.code, 422);
    let why = refused.json["errors"][0]["message"].as_str().unwrap();
    assert_eq!(why, "A pull request already exists for acme:codegenie/cve-2026-10001.");
    let found =
        ask(&mut world, "GET", "/repos/acme/payments/pulls?head=acme:codegenie/cve-2026-10001", Value::Null).json;
    assert_eq!(found[0]["number"], 1);
    let none = ask(&mut world, "GET", "/repos/acme/payments/pulls?head=acme:other", Value::Null).json;
    assert_eq!(none, json!([]));
    let other = ask(
        &mut world,
        "POST",
        "/repos/acme/payments/pulls",
        json!({"title": "Other", "head": "other", "base": "main"}),
    );
    assert_eq!((other.code, &other.json["number"]), (201, &json!(2)));
}

#[test]
fn closing_and_reopening_and_why_reopening_may_fail() {
    let (mut world, pr) = opened();
    assert_eq!(ask(&mut world, "PATCH", PULL, json!({"state": "closed"})).json["state"], "closed");
    assert_eq!(ask(&mut world, "PATCH", PULL, json!({"state": "closed"})).code, 200, "closing twice does nothing");
    assert_eq!(ask(&mut world, "PATCH", PULL, json!({"state": "open"})).json["state"], "open");
    ask(&mut world, "PATCH", PULL, json!({"state": "closed"}));
    world.delete_head(&pr);
    assert_eq!(ask(&mut world, "PATCH", PULL, json!({"state": "open"})).code, 422);
    assert_eq!(world.effects_by("suture-operator").filter(|it| it.deed == Deed::PullClosed).count(), 2);
}

#[test]
fn comments_reactions_and_labels() {
    let (mut world, pr) = opened();
    let id = world.person_comments(&pr, "danny", "/rebuild").unwrap();
    let reactions = format!("/repos/acme/payments/issues/comments/{id}/reactions");
    let first = ask(&mut world, "POST", &reactions, json!({"content": "eyes"}));
    let second = ask(&mut world, "POST", &reactions, json!({"content": "eyes"}));
    assert_eq!((first.code, second.code), (201, 200), "the same reaction is there once");
    assert_eq!(first.json["id"], second.json["id"]);
    let gone = ask(&mut world, "DELETE", &format!("{reactions}/{}", first.json["id"]), Value::Null);
    assert_eq!(gone.code, 204);
    let written =
        ask(&mut world, "POST", "/repos/acme/payments/issues/1/comments", json!({"body": "<!-- marker --> hello"}));
    assert_eq!((written.code, &written.json["user"]["login"]), (201, &json!("suture-operator")));
    let edited = ask(
        &mut world,
        "PATCH",
        &format!("/repos/acme/payments/issues/comments/{}", written.json["id"]),
        json!({"body": "bye"}),
    );
    assert_eq!(edited.json["body"], "bye");
    let listed = ask(&mut world, "GET", "/repos/acme/payments/issues/1/comments?per_page=1", Value::Null);
    assert_eq!(listed.json.as_array().unwrap().len(), 1);
    assert!(listed.header("link").unwrap().contains("page=2>; rel=\"next\""));
    assert_eq!(
        ask(&mut world, "POST", "/repos/acme/payments/issues/1/comments", json!({"body": "x".repeat(70_000)})).code,
        422
    );
    ask(&mut world, "POST", "/repos/acme/payments/issues/1/labels", json!({"labels": ["a b", "c"]}));
    let left = ask(&mut world, "DELETE", "/repos/acme/payments/issues/1/labels/a%20b", Value::Null).json;
    let names: Vec<_> = left.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["codegenie", "c"]);
    assert_eq!(ask(&mut world, "DELETE", "/repos/acme/payments/issues/1/labels/a%20b", Value::Null).code, 404);
}

#[test]
fn permissions_and_protection_and_rules() {
    let (mut world, _) = opened_in(Repo { strict: true, ..Repo::new("acme/payments") });
    for (login, permission, role) in
        [("danny", "write", "write"), ("maria", "admin", "admin"), ("nobody", "read", "read")]
    {
        let got =
            ask(&mut world, "GET", &format!("/repos/acme/payments/collaborators/{login}/permission"), Value::Null).json;
        assert_eq!((got["permission"].as_str().unwrap(), got["role_name"].as_str().unwrap()), (permission, role));
    }
    let path = "/repos/acme/payments/branches/main/protection/required_status_checks";
    let required = ask(&mut world, "GET", path, Value::Null).json;
    assert_eq!(required["strict"], true);
    assert_eq!(required["contexts"], json!(["continuous-integration/jenkins/pr-merge", "policy-bot: main"]));
    assert_eq!(ask(&mut world, "GET", "/repos/acme/payments/rules/branches/main", Value::Null).json, json!([]));
    let (mut world, _) =
        opened_in(Repo { protection: Protection::Ruleset, reports: Reports::CheckRun, ..Repo::new("acme/payments") });
    assert_eq!(ask(&mut world, "GET", path, Value::Null).code, 404);
    let rules = ask(&mut world, "GET", "/repos/acme/payments/rules/branches/main", Value::Null).json;
    assert_eq!(rules[1]["parameters"]["required_status_checks"][0]["context"], "Jenkins");
}

#[test]
fn only_apps_write_check_runs_and_only_their_own() {
    let (mut world, pr) = opened_in(Repo { reports: Reports::Both, ..Repo::new("acme/payments") });
    minutes(&mut world, 20);
    let head = world.pull(&pr).unwrap().head().to_string();
    let new = json!({"name": "Suture", "head_sha": head, "status": "in_progress", "output": {"title": "Looking", "summary": "…"}});
    let path = "/repos/acme/payments/check-runs";
    assert_eq!(ask(&mut world, "POST", path, new.clone()).code, 403, "not with a personal token");
    let made = ask_as_app(&mut world, "POST", path, new);
    assert_eq!((made.code, &made.json["app"]["slug"]), (201, &json!("suture")));
    let own = format!("{path}/{}", made.json["id"]);
    let done = ask_as_app(&mut world, "PATCH", &own, json!({"conclusion": "neutral"}));
    assert_eq!((done.code, &done.json["status"]), (200, &json!("completed")));
    assert_eq!(
        ask_as_app(&mut world, "PATCH", &own, json!({"output": {"title": "t", "summary": "x".repeat(65_536)}})).code,
        422
    );
    let listed = ask(&mut world, "GET", &format!("/repos/acme/payments/commits/{head}/check-runs"), Value::Null).json;
    assert_eq!(listed["total_count"], 2);
    let jenkins = &listed["check_runs"].as_array().unwrap().iter().find(|it| it["name"] == "Jenkins").unwrap().clone();
    assert_eq!(jenkins["external_id"], "acme/payments/PR-1#1");
    let foreign = format!("/repos/acme/payments/check-suites/{}/rerequest", jenkins["check_suite"]["id"]);
    assert_eq!(ask_as_app(&mut world, "POST", &foreign, Value::Null).code, 403);
    assert_eq!(ask_as_app(&mut world, "POST", &format!("{own}/rerequest"), Value::Null).code, 201);
}

#[test]
fn statuses_and_their_combination() {
    let (mut world, pr) = opened();
    let head = world.pull(&pr).unwrap().head().to_string();
    world.post_status_on(&pr, "lint", StatusState::Pending, "");
    world.post_status_on(&pr, "lint", StatusState::Success, "");
    let combined = ask(&mut world, "GET", &format!("/repos/acme/payments/commits/{head}/status"), Value::Null).json;
    assert_eq!((&combined["state"], &combined["total_count"]), (&json!("success"), &json!(1)));
    let all = ask(&mut world, "GET", &format!("/repos/acme/payments/commits/{head}/statuses"), Value::Null).json;
    assert_eq!(all.as_array().unwrap().len(), 2);
    assert_eq!(all[0]["state"], "success", "newest first");
}

#[test]
fn issues_are_opened_edited_and_listed_beside_pull_requests() {
    let (mut world, _) = opened();
    let made = ask(
        &mut world,
        "POST",
        "/repos/acme/payments/issues",
        json!({"title": "Suture status", "body": "b", "labels": ["suture"]}),
    );
    assert_eq!((made.code, &made.json["number"]), (201, &json!(2)));
    let closed =
        ask(&mut world, "PATCH", "/repos/acme/payments/issues/2", json!({"state": "closed", "body": "c"})).json;
    assert_eq!((&closed["state"], &closed["body"]), (&json!("closed"), &json!("c")));
    let listed = ask(&mut world, "GET", "/repos/acme/payments/issues?state=all", Value::Null).json;
    let kinds: Vec<_> = listed.as_array().unwrap().iter().map(|it| it.get("pull_request").is_some()).collect();
    assert_eq!(kinds, [false, true]);
    assert_eq!(world.issues().count(), 1);
}

#[test]
fn events_of_forks_name_no_pull_request_and_statuses_never_do() {
    let (mut world, _) = opened_in(Repo { reports: Reports::Both, ..Repo::new("acme/payments") });
    world.open_pr(NewPull { fork: true, ..NewPull::default() });
    minutes(&mut world, 2);
    for sent in world.take_webhooks() {
        let payload: Value = serde_json::from_slice(&sent.body).unwrap();
        let fork = sent.pr == Some(Pr { repo: "acme/payments".to_owned(), number: 2 });
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
fn failed_deliveries_are_listed_and_sent_again_with_the_same_guid() {
    let (mut world, pr) = opened();
    world.force(Fault::WebhookLost, &pr);
    world.force(Fault::WebhookNeverSent, &pr);
    world.person_comments(&pr, "danny", "lost");
    world.person_comments(&pr, "danny", "never sent");
    world.person_comments(&pr, "danny", "answered with an error");
    secs(&mut world, 10);
    let taken = world.take_webhooks();
    let texts: Vec<_> = taken
        .iter()
        .filter(|it| it.event == "issue_comment")
        .map(|it| serde_json::from_slice::<Value>(&it.body).unwrap()["comment"]["body"].clone())
        .collect();
    assert_eq!(texts, ["answered with an error"]);
    world.webhook_answered(taken.iter().find(|it| it.event == "issue_comment").unwrap(), 503);
    let failed: Vec<Value> = as_jwt(&mut world, "GET", "/app/hook/deliveries?per_page=100")
        .json
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["status"] != "OK")
        .cloned()
        .collect();
    let codes: Vec<_> = failed.iter().map(|it| it["status_code"].as_u64().unwrap()).collect();
    assert_eq!(codes, [503, 0], "newest first; what was never sent is not known");
    let lost = &failed[1];
    let again = as_jwt(&mut world, "POST", &format!("/app/hook/deliveries/{}/attempts", lost["id"]));
    assert_eq!(again.code, 202);
    secs(&mut world, 10);
    let redelivered = world.take_webhooks().into_iter().find(|it| it.redelivery).unwrap();
    assert_eq!(json!(redelivered.guid), lost["guid"]);
    assert_ne!(json!(redelivered.id), lost["id"]);
    minutes(&mut world, 4 * 24 * 60);
    assert_eq!(as_jwt(&mut world, "GET", "/app/hook/deliveries").json, json!([]), "three days are shown");
    assert_eq!(as_jwt(&mut world, "POST", &format!("/app/hook/deliveries/{}/attempts", lost["id"])).code, 404);
}

#[test]
fn deliveries_are_paged_by_cursor() {
    let (mut world, pr) = opened();
    for _ in 0..25 {
        world.person_comments(&pr, "danny", "hello");
    }
    secs(&mut world, 10);
    let (mut path, mut seen) = ("/app/hook/deliveries?per_page=10".to_owned(), Vec::new());
    loop {
        let page = as_jwt(&mut world, "GET", &path);
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
fn who_asks_is_checked() {
    let (mut world, _) = opened();
    let none = try_github(&mut world, "GET", PULL, &[], &Value::Null).unwrap();
    let bad = try_github(&mut world, "GET", PULL, &[("authorization", "Bearer nonsense")], &Value::Null).unwrap();
    assert_eq!((none.code, bad.code), (401, 401));
    assert_eq!(as_jwt(&mut world, "GET", PULL).code, 401, "the App's key opens no repository");
    assert_eq!(ask(&mut world, "GET", "/app", Value::Null).code, 401, "a person is no App");
    assert_eq!(as_jwt(&mut world, "GET", "/app").json["id"], 4711);
    assert_eq!(as_jwt(&mut world, "GET", "/app/installations").json[0]["id"], 815);
    assert_eq!(ask_as_app(&mut world, "GET", "/installation/repositories", Value::Null).json["total_count"], 1);
    let token =
        as_jwt(&mut world, "POST", "/app/installations/815/access_tokens").json["token"].as_str().unwrap().to_owned();
    let with = |world: &mut World| {
        try_github(world, "GET", PULL, &[("authorization", &format!("Bearer {token}"))], &Value::Null).unwrap().code
    };
    assert_eq!(with(&mut world), 200);
    minutes(&mut world, 61);
    assert_eq!(with(&mut world), 401, "an hour is all it lives");
    assert_eq!(as_jwt(&mut world, "POST", "/app/installations/9/access_tokens").code, 404);
}

#[test]
fn what_is_unknown_is_remembered() {
    let (mut world, _) = opened();
    let got = ask(&mut world, "GET", "/repos/acme/payments/topics", Value::Null);
    assert_eq!((got.code, got.json["message"].as_str().unwrap()), (404, "Not Found"));
    assert_eq!(ask(&mut world, "GET", "/repos/acme/payments/pulls/99", Value::Null).code, 404);
    assert_eq!(ask(&mut world, "GET", "/repos/acme/nothing", Value::Null).code, 404);
    assert_eq!(world.unknown_requests(), ["GET /repos/acme/payments/topics"], "what does not exist is not unknown");
}
