//! The result of every event and action, and of malformed payloads.

use domain::command::{Command, CommandSource};
use domain::event::{Actor, FactKind};
use domain::id::EventId;
use domain::policy::Policies;
use domain::signals::{CheckVerdict, PolicyVerdict};
use domain::state::Substatus;
use serde_json::{Value, json};

use super::*;

const HEAD: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const T0: &str = "2026-03-02T09:00:00Z";
const T1: &str = "2026-03-02T09:01:00Z";

fn own() -> BotIdentity {
    BotIdentity { app_id: Some(77), login: Some("suture[bot]".to_owned()) }
}

fn outcome_of(event: &str, payload: &Value) -> ParseOutcome {
    let body = payload.to_string();
    parse_delivery(&GithubDelivery { event, id: "d-1", body: body.as_bytes() }, &Policies::default(), &own())
}

#[track_caller]
fn parsed(event: &str, payload: &Value) -> ParsedWebhook {
    match outcome_of(event, payload) {
        ParseOutcome::Parsed(webhook) => *webhook,
        other @ (ParseOutcome::Installed { .. } | ParseOutcome::Ignored(_) | ParseOutcome::Malformed(_)) => {
            panic!("{other:?}")
        }
    }
}

#[track_caller]
fn fact_of(event: &str, payload: &Value) -> WebhookFact {
    parsed(event, payload).fact.unwrap()
}

#[track_caller]
fn ignored(event: &str, payload: &Value) -> String {
    match outcome_of(event, payload) {
        ParseOutcome::Ignored(why) => why,
        other @ (ParseOutcome::Parsed(_) | ParseOutcome::Installed { .. } | ParseOutcome::Malformed(_)) => {
            panic!("{other:?}")
        }
    }
}

#[track_caller]
fn malformed(event: &str, payload: &Value) -> String {
    match outcome_of(event, payload) {
        ParseOutcome::Malformed(why) => why,
        other @ (ParseOutcome::Parsed(_) | ParseOutcome::Installed { .. } | ParseOutcome::Ignored(_)) => {
            panic!("{other:?}")
        }
    }
}

/// `base` with some of its fields replaced; `a.b` names a field of a field.
fn with(mut base: Value, changes: &[(&str, Value)]) -> Value {
    for (path, value) in changes {
        let pointer = format!("/{}", path.replace('.', "/"));
        match base.pointer_mut(&pointer) {
            Some(place) => *place = value.clone(),
            None => {
                let (parent, field) = pointer.rsplit_once('/').unwrap();
                base.pointer_mut(parent).unwrap()[field] = value.clone();
            }
        }
    }
    base
}

fn pull(action: &str) -> Value {
    json!({
        "action": action,
        "number": 42,
        "pull_request": {
            "number": 42, "node_id": "PR_42", "state": "open", "title": "Fix CVE-2026-1234", "body": null,
            "user": {"login": "codegenie[bot]"},
            "labels": [{"name": "suture/hold"}, {"name": "bug"}, {"name": null}, null],
            "head": {"ref": "codegenie/fix", "sha": HEAD, "repo": {"id": 5}},
            "base": {"ref": "main", "sha": "b".repeat(40), "repo": {"id": 5}},
            "draft": false, "merged": false, "merged_by": null, "additions": 3, "deletions": 4,
            "created_at": T0, "updated_at": T1, "closed_at": null, "merged_at": null
        },
        "repository": {"id": 5, "full_name": "acme/shop"},
        "sender": {"login": "codegenie[bot]"}
    })
}

#[test]
fn opened_describes_the_pull_request_and_may_create_a_record() {
    let fact = fact_of("pull_request", &pull("opened"));
    assert_eq!(
        (fact.selector.clone(), fact.creates_record(), fact.actor),
        (PrSelector::Numbers(vec![42]), true, Actor::Codegenie)
    );
    assert_eq!(fact.occurred_at.to_string(), T0);
    let fact = fact.fact("acme/shop#42".parse().unwrap());
    let FactKind::Opened(described) = fact.kind else { panic!() };
    assert_eq!(described.vulnerability_id.as_deref(), Some("CVE-2026-1234"));
    assert_eq!((described.labels, described.size), (vec!["suture/hold".to_owned()], Some(7)));
    assert_eq!((described.branch.as_str(), described.base_branch.as_str()), ("codegenie/fix", "main"));
    assert_eq!((described.node_id.as_deref(), described.required_checks), (Some("PR_42"), None));
}

#[test]
fn pull_request_actions_map_to_facts() {
    let edited = ["edited", "labeled", "unlabeled", "ready_for_review", "converted_to_draft"];
    for action in edited {
        let fact = fact_of("pull_request", &pull(action));
        assert!(matches!(fact.kind, FactKind::Edited(_)) && fact.creates_record(), "{action}");
        assert_eq!(fact.occurred_at.to_string(), T1);
    }
    assert!(matches!(fact_of("pull_request", &pull("reopened")).kind, FactKind::Reopened(_)));
    for action in ["assigned", "review_requested", "locked", "milestoned", "something_new", ""] {
        assert!(ignored("pull_request", &pull(action)).contains(action), "{action}");
    }
    // The same actions on a closed pull request are ignored.
    for action in edited.into_iter().chain(["opened", "reopened", "synchronize"]) {
        let closed = with(pull(action), &[("pull_request.state", json!("closed"))]);
        assert!(ignored("pull_request", &closed).contains("closed pull request"), "{action}");
    }
}

#[test]
fn synchronize_distinguishes_own_pushes() {
    let push = with(pull("synchronize"), &[("before", json!("c".repeat(40)))]);
    let FactKind::HeadMoved { before, by_suture, .. } = fact_of("pull_request", &push).kind else { panic!() };
    assert_eq!((before.unwrap().as_str(), by_suture), ("c".repeat(40).as_str(), false));
    let own_push = with(push, &[("sender.login", json!("Suture[bot]"))]);
    assert!(matches!(fact_of("pull_request", &own_push).kind, FactKind::HeadMoved { by_suture: true, .. }));
}

#[test]
fn closed_maps_to_merged_or_closed() {
    let at = "2026-03-02T10:00:00Z";
    let closed =
        with(pull("closed"), &[("pull_request.state", json!("closed")), ("pull_request.closed_at", json!(at))]);
    let pull_fact = |payload: &Value| fact_of("pull_request", payload);
    let fact = pull_fact(&closed);
    assert_eq!(fact.kind, FactKind::Closed { by: Some("codegenie[bot]".to_owned()), why: None });
    assert_eq!((fact.occurred_at.to_string().as_str(), fact.creates_record()), (at, true));
    assert_eq!(fact.described.unwrap().head.as_str(), HEAD);
    for (login, by_automerge_bot, actor) in
        [("Automerge-Bot[bot]", true, Actor::AutomergeBot), ("jane", false, Actor::GithubWebhook)]
    {
        let merged = with(
            closed.clone(),
            &[
                ("pull_request.merged", json!(true)),
                ("pull_request.merged_at", json!(at)),
                ("pull_request.merged_by", json!({"login": login})),
            ],
        );
        let fact = pull_fact(&merged);
        assert_eq!(fact.kind, FactKind::Merged { by: Some(login.to_owned()), by_automerge_bot });
        assert_eq!(fact.actor, actor);
    }
    // A deleted user, and only `updated_at` is known.
    let deleted_user = with(closed, &[("pull_request.merged", json!(true)), ("pull_request.closed_at", json!(null))]);
    let fact = pull_fact(&deleted_user);
    assert_eq!(fact.kind, FactKind::Merged { by: None, by_automerge_bot: false });
    assert_eq!(fact.occurred_at.to_string(), T1);
}

#[test]
fn unmanaged_pull_request_creates_no_record() {
    let unmanaged = with(
        pull("opened"),
        &[("pull_request.user", json!({"login": "jane"})), ("pull_request.head.ref", json!("fix"))],
    );
    let found = fact_of("pull_request", &unmanaged);
    assert!(!found.creates_record() && found.described.is_none());
    let labelled = with(unmanaged, &[("pull_request.labels", json!([{"name": "CodeGenie"}]))]);
    assert!(fact_of("pull_request", &labelled).creates_record());
}

#[test]
fn strangers_fork_creates_no_record_and_claims_no_vulnerability() {
    for head_repo in [json!({"id": 6}), json!(null), json!({"id": null})] {
        for action in ["opened", "reopened", "synchronize", "edited", "labeled", "closed"] {
            let own_bot = with(pull(action), &[("pull_request.head.repo", head_repo.clone())]);
            let found = fact_of("pull_request", &own_bot);
            assert!(found.creates_record(), "{action}: {head_repo}");
            let labels = json!([{"name": "codegenie"}]);
            let stranger = [("pull_request.user", json!({"login": "mallory"})), ("pull_request.labels", labels)];
            let found = fact_of("pull_request", &with(own_bot, &stranger));
            assert!(!found.creates_record() && !found.managed && found.described.is_none(), "{action}: {head_repo}");
            let claimed = details_of(&found.kind).and_then(|described| described.vulnerability_id.as_deref());
            assert_eq!(claimed, None, "{action}: {head_repo}");
        }
    }
}

#[test]
fn automerge_bot_attempts_map_to_merge_reports() {
    let by_bot = |action| with(pull(action), &[("sender.login", json!("automerge-bot[bot]"))]);
    for action in ["enqueued", "auto_merge_enabled"] {
        let fact = fact_of("pull_request", &by_bot(action));
        assert!(matches!(&fact.kind, FactKind::Merge { report, .. } if !report.failed), "{action}");
        assert_eq!((fact.actor, fact.creates_record()), (Actor::AutomergeBot, true));
        assert!(ignored("pull_request", &pull(action)).contains("other than Automerge Bot"), "{action}");
    }
    let dequeued = with(pull("dequeued"), &[("reason", json!("CI_FAILURE"))]);
    let FactKind::Merge { report, .. } = fact_of("pull_request", &dequeued).kind else { panic!() };
    assert_eq!((report.failed, report.text.as_str()), (true, "dequeued: CI_FAILURE"));
    let disabled = fact_of("pull_request", &pull("auto_merge_disabled")).kind;
    assert!(
        matches!(disabled, FactKind::Merge { report, .. } if report.failed && report.text == "auto_merge_disabled")
    );
    for merged in
        [with(dequeued.clone(), &[("reason", json!("MERGE"))]), with(dequeued, &[("pull_request.merged", json!(true))])]
    {
        assert!(ignored("pull_request", &merged).contains("being merged"));
    }
}

#[test]
fn missing_required_fields_are_named() {
    for (field, expected) in [
        ("pull_request", "`pull_request`"),
        ("pull_request.number", "`pull_request.number`"),
        ("pull_request.head", "`pull_request.head`"),
        ("pull_request.head.sha", "`pull_request.head.sha`"),
        ("pull_request.base.ref", "`pull_request.base.ref`"),
        ("pull_request.created_at", "`pull_request.created_at`"),
        ("repository.full_name", "`repository.full_name`"),
        ("repository", "`repository.full_name`"),
    ] {
        for value in [json!(null), json!(["x"])] {
            let why = malformed("pull_request", &with(pull("opened"), &[(field, value)]));
            assert!(why.contains(expected), "{field}: {why}");
        }
    }
    assert!(
        malformed("pull_request", &with(pull("opened"), &[("repository.full_name", json!("a#b/c"))]))
            .contains("full_name")
    );
}

fn run(status: &str, conclusion: Value) -> Value {
    json!({
        "action": if status == "completed" { "completed" } else { "created" },
        "check_run": {
            "id": 9, "name": "Jenkins", "head_sha": HEAD, "status": status, "conclusion": conclusion,
            "started_at": T0, "completed_at": if status == "completed" { json!(T1) } else { json!(null) },
            "output": {"title": "Build", "summary": "hudson.remoting.ChannelClosedException: channel is already closed"},
            "app": {"id": 3},
            "check_suite": {"created_at": T0, "updated_at": T1},
            "pull_requests": [{"number": 42, "base": {"repo": {"id": 5}}}, {"number": 1, "base": {"repo": {"id": 6}}}]
        },
        "repository": {"id": 5, "full_name": "acme/shop"}
    })
}

#[test]
fn check_run_maps_to_check_report_by_number() {
    let fact = fact_of("check_run", &run("completed", json!("failure")));
    // Number 1 belongs to another repository, of which this one is a fork.
    assert_eq!(fact.selector, PrSelector::Numbers(vec![42]));
    let FactKind::Check { head, check } = fact.kind else { panic!() };
    assert_eq!((head.as_str(), check.name.as_str(), check.verdict), (HEAD, "Jenkins", CheckVerdict::Failed));
    assert_eq!((check.id, check.at.to_string().as_str()), (Some(9), T1));
    let failure = check.failure.unwrap();
    assert_eq!((failure.transient_rule.as_deref(), failure.text.as_str()), (Some("agent-lost"), "Build"));
}

#[test]
fn check_run_of_fork_is_matched_by_commit() {
    for listed in [json!([]), json!(null), json!([{"number": 1, "base": {"repo": {"id": 6}}}])] {
        let fork = with(run("completed", json!("success")), &[("check_run.pull_requests", listed)]);
        assert_eq!(fact_of("check_run", &fork).selector, PrSelector::Head(HEAD.parse().unwrap()));
    }
}

#[test]
fn check_run_time_falls_back_to_other_timestamps() {
    let at = |changes: &[(&str, Value)]| {
        fact_of("check_run", &with(run("completed", json!("success")), changes)).occurred_at.to_string()
    };
    let null = json!(null);
    assert_eq!(at(&[]), T1);
    assert_eq!(at(&[("check_run.completed_at", null.clone())]), T0);
    assert_eq!(at(&[("check_run.completed_at", null.clone()), ("check_run.started_at", null.clone())]), T1);
    let none = with(
        run("completed", json!("success")),
        &[
            ("check_run.completed_at", null.clone()),
            ("check_run.started_at", null.clone()),
            ("check_run.check_suite", null),
        ],
    );
    assert!(ignored("check_run", &none).contains("no time"));
    // The domain orders equal times by phase.
    let equal = with(run("completed", json!("success")), &[("check_run.completed_at", json!(T0))]);
    let FactKind::Check { check, .. } = fact_of("check_run", &equal).kind else { panic!() };
    assert_eq!((check.at, check.verdict), (check.started_at.unwrap(), CheckVerdict::Passed));
}

#[test]
fn own_check_run_and_suite_are_ignored() {
    let own_run = with(
        run("completed", json!("failure")),
        &[("check_run.app", json!({"id": 77})), ("check_run.name", json!("suture"))],
    );
    assert!(ignored("check_run", &own_run).contains("own check"));
    // Some payloads have no App; then the external id shows it too.
    let external_id = ("check_run.external_id", json!("suture:acme/shop#42"));
    let unnamed = with(run("completed", json!("failure")), &[("check_run.app", json!(null)), external_id.clone()]);
    assert!(ignored("check_run", &unnamed).contains("own check"));
    // Another App cannot hide a failed check by copying them.
    let copied = with(own_run, &[("check_run.app.id", json!(3)), external_id]);
    let FactKind::Check { check, .. } = fact_of("check_run", &copied).kind else { panic!() };
    assert_eq!((check.name.as_str(), check.verdict), ("suture", CheckVerdict::Failed));
    let suite = json!({
        "action": "requested",
        "check_suite": {"head_sha": HEAD, "app": {"id": 77}, "pull_requests": [], "created_at": T0, "updated_at": T0},
        "repository": {"id": 5, "full_name": "acme/shop"}
    });
    assert!(ignored("check_suite", &suite).contains("own suite"));
    let other_app = with(suite, &[("check_suite.app.id", json!(3))]);
    assert!(matches!(fact_of("check_suite", &other_app).kind, FactKind::ChecksRequested { .. }));
    // A suite's `completed` may arrive before its last run, so it is ignored.
    assert!(ignored("check_suite", &with(other_app, &[("action", json!("completed"))])).contains("check_run events"));
}

/// A click on a button of Suture's own check run.
fn button_click(changes: &[(&str, Value)]) -> Value {
    let base = [
        ("action", json!("requested_action")),
        ("check_run.app.id", json!(77)),
        ("check_run.external_id", json!("suture:acme/shop#42")),
        ("requested_action", json!({"identifier": "hold"})),
        ("sender", json!({"login": "danny"})),
    ];
    with(with(run("completed", json!("neutral")), &base), changes)
}

#[test]
fn button_of_own_check_run_is_a_command() {
    for (button, command) in
        [("rebuild", "/rebuild"), ("hold", "/hold"), ("resume", "/resume"), ("explain", "/explain")]
    {
        let ParseOutcome::Parsed(webhook) =
            outcome_of("check_run", &button_click(&[("requested_action.identifier", json!(button))]))
        else {
            panic!()
        };
        let [message] = &webhook.commands[..] else { panic!("{webhook:?}") };
        assert_eq!(
            (message.command.name(), message.source, message.requested_by.as_str()),
            (command, CommandSource::CheckRun, "danny")
        );
        assert_eq!((message.pr().to_string(), webhook.fact.is_none()), ("acme/shop#42".to_owned(), true));
        assert_eq!(message.timestamp.to_string(), T1, "the time of the check run: the same in every redelivery");
        assert!(message.command_id.as_str().starts_with("cmd:"), "{}", message.command_id);
    }
}

#[test]
fn button_under_two_delivery_ids_is_one_command() {
    let command_id = |delivery: &str, changes: &[(&str, Value)]| {
        let body = button_click(changes).to_string();
        let delivery = GithubDelivery { event: "check_run", id: delivery, body: body.as_bytes() };
        let ParseOutcome::Parsed(webhook) = parse_delivery(&delivery, &Policies::default(), &own()) else { panic!() };
        webhook.commands[0].command_id.clone()
    };
    let first = command_id("d-1", &[]);
    assert_eq!(command_id("d-2", &[]), first);
    for other in [
        ("check_run.completed_at", json!("2026-03-02T11:00:00Z")),
        ("check_run.id", json!(10)),
        ("requested_action.identifier", json!("resume")),
        ("sender.login", json!("jane")),
    ] {
        assert_ne!(command_id("d-1", std::slice::from_ref(&other)), first, "{}", other.0);
    }
}

#[test]
fn other_buttons_are_ignored() {
    for (changes, why) in [
        (("check_run.app.id", json!(3)), "another App's check run"),
        (("check_run.external_id", json!("suture:acme/other#42")), "without a pull request"),
        (("check_run.external_id", json!("job/x#12")), "without a pull request"),
        (("check_run.external_id", json!(null)), "without a pull request"),
        (("requested_action.identifier", json!("merge")), "unknown button `merge`"),
        (("sender", json!({"login": "suture[bot]"})), "without a sender"),
        (("sender", json!(null)), "without a sender"),
    ] {
        let found = ignored("check_run", &button_click(&[changes]));
        assert!(found.contains(why), "{found}");
    }
    assert!(malformed("check_run", &button_click(&[("requested_action", json!(null))])).contains("requested_action"));
    let timeless = [
        ("check_run.completed_at", json!(null)),
        ("check_run.started_at", json!(null)),
        ("check_run.check_suite", json!(null)),
    ];
    assert!(malformed("check_run", &button_click(&timeless)).contains("completed_at"));
}

#[test]
fn command_id_never_comes_from_the_unsigned_delivery_id() {
    let ids = |event: &str, payload: &Value, delivery: &str| {
        let body = payload.to_string();
        let delivery = GithubDelivery { event, id: delivery, body: body.as_bytes() };
        match parse_delivery(&delivery, &Policies::default(), &own()) {
            ParseOutcome::Parsed(webhook) => {
                Ok(webhook.commands.iter().map(|one| one.command_id.to_string()).collect::<Vec<_>>())
            }
            ParseOutcome::Ignored(why) | ParseOutcome::Malformed(why) => Err(why),
            installed @ ParseOutcome::Installed { .. } => panic!("{installed:?}"),
        }
    };
    let reviewed = review("submitted", "commented", "jane", "/rebuild");
    let on_line = with(comment("/rebuild"), &[("pull_request", json!({"number": 42}))]);
    let cases = [
        ("issue_comment", comment("/rebuild"), "comment"),
        ("pull_request_review_comment", on_line, "comment"),
        ("pull_request_review", reviewed, "review"),
        ("check_run", button_click(&[]), "check_run"),
    ];
    for (event, payload, part) in cases {
        let first = ids(event, &payload, "hook-1").unwrap();
        assert_eq!(first.len(), 1, "{event}");
        assert_eq!(ids(event, &payload, "hook-2").unwrap(), first, "{event}: one command, whichever hook delivers it");
        let anonymous =
            with(payload, &[(&format!("{part}.id"), json!(null)), (&format!("{part}.node_id"), json!(null))]);
        let refused = ids(event, &anonymous, "hook-1");
        assert!(refused.as_ref().is_ok_and(Vec::is_empty) || refused.is_err(), "{event}: {refused:?}");
    }
}

#[test]
fn unknown_states_and_events_are_ignored() {
    assert!(ignored("check_run", &run("dreaming", json!(null))).contains("dreaming"));
    assert!(ignored("check_run", &run("completed", json!("splendid"))).contains("splendid"));
    assert!(ignored("status", &status("default", "perhaps", "")).contains("perhaps"));
    assert!(
        ignored("check_run", &with(run("queued", json!(null)), &[("action", json!("rerequested"))])).contains("re-run")
    );
    assert!(ignored("sponsorship", &json!({})).contains("`sponsorship`"));
}

fn status(context: &str, state: &str, description: &str) -> Value {
    json!({
        "sha": HEAD, "context": context, "state": state, "description": description, "created_at": T0, "updated_at": T1,
        "repository": {"id": 5, "full_name": "acme/shop"}, "sender": {"login": "policy-bot[bot]"}
    })
}

#[test]
fn policy_context_counts_only_from_policy_bot() {
    for sender in [json!({"login": "github-actions[bot]"}), json!({"login": "policy-bot"}), json!(null)] {
        let forged = with(status("policy-bot: main", "success", ""), &[("sender", sender)]);
        let fact = fact_of("status", &forged);
        assert!(matches!(&fact.kind, FactKind::Check { check, .. } if check.posted_by.is_some()), "{fact:?}");
        assert_eq!(fact.actor, Actor::GithubWebhook);
    }
    let named = |app: Value| {
        with(
            run("completed", json!("success")),
            &[("check_run.name", json!("policy-bot: main")), ("check_run.app", app)],
        )
    };
    let forged = fact_of("check_run", &named(json!({"id": 15368, "slug": "github-actions"}))).kind;
    assert!(
        matches!(&forged, FactKind::Check { check, .. } if check.posted_by.as_deref() == Some("github-actions[bot] (App 15368)")),
        "{forged:?}"
    );
    let own = fact_of("check_run", &named(json!({"id": 4, "slug": "policy-bot"})));
    assert!(matches!(own.kind, FactKind::Policy { .. }), "{own:?}");
}

#[test]
fn status_maps_to_check_or_policy_report() {
    let check = fact_of("status", &status("continuous-integration/jenkins/pr-merge", "error", "Build timed out"));
    assert_eq!((check.selector, check.actor), (PrSelector::Head(HEAD.parse().unwrap()), Actor::GithubWebhook));
    let FactKind::Check { check, .. } = check.kind else { panic!() };
    assert_eq!((check.verdict, check.at.to_string().as_str()), (CheckVerdict::Failed, T0));
    assert_eq!(check.failure.unwrap().transient_rule.as_deref(), Some("timeout"));
    for (description, substatus) in [
        ("SOD check failed", Substatus::SodFailure),
        ("build policy not met", Substatus::BuildFailure),
        ("Branch protection requirements not met", Substatus::BranchProtectionFailure),
        ("Disapproved", Substatus::OtherPolicyFailure),
    ] {
        let policy = fact_of("status", &status("policy-bot: main", "failure", description));
        let FactKind::Policy { report, .. } = policy.kind else { panic!() };
        assert_eq!(
            (report.verdict, policy.actor),
            (PolicyVerdict::Failed(substatus), Actor::PolicyBot),
            "{description}"
        );
    }
    let null_times = with(status("x", "success", ""), &[("created_at", json!(null))]);
    assert_eq!(fact_of("status", &null_times).occurred_at.to_string(), T1);
}

fn review(action: &str, state: &str, login: &str, body: &str) -> Value {
    json!({
        "action": action,
        "review": {
            "id": 9, "node_id": "PRR_1", "user": {"login": login}, "body": body, "state": state, "commit_id": HEAD,
            "submitted_at": T0, "author_association": "MEMBER"
        },
        "pull_request": {"number": 42, "updated_at": T1},
        "repository": {"id": 5, "full_name": "acme/shop"}
    })
}

#[test]
fn approver_bot_review_maps_to_approval() {
    let approval = |action, state| fact_of("pull_request_review", &review(action, state, "Approver-Bot[bot]", ""));
    for (action, state, granted, occurred_at) in [
        ("submitted", "approved", true, T0),
        ("submitted", "APPROVED", true, T0),
        ("submitted", "changes_requested", false, T0),
        ("dismissed", "dismissed", false, T1),
    ] {
        let fact = approval(action, state);
        let FactKind::Approval { head, approval } = &fact.kind else { panic!() };
        assert_eq!(
            (head.as_str(), approval.granted, approval.at.to_string().as_str()),
            (HEAD, granted, T0),
            "{action}"
        );
        assert_eq!((approval.by.as_str(), fact.actor), ("approver-bot[bot]", Actor::ApproverBot));
        assert_eq!(fact.occurred_at.to_string(), occurred_at);
    }
    assert!(ignored("pull_request_review", &review("submitted", "approved", "jane", "")).contains("neither"));
    assert!(ignored("pull_request_review", &review("edited", "approved", "approver-bot[bot]", "")).contains("edited"));
    let gone = with(review("submitted", "approved", "approver-bot[bot]", ""), &[("review.commit_id", json!(null))]);
    assert!(ignored("pull_request_review", &gone).contains("no longer exists"));
}

#[test]
fn review_text_may_contain_a_command() {
    let webhook =
        parsed("pull_request_review", &review("submitted", "commented", "jane", "Looks stuck.\r\n\r\n/rebuild\r\n"));
    assert_eq!((webhook.fact, webhook.commands.len()), (None, 1));
    assert_eq!(webhook.commands[0].command_id.as_str(), "cmd:PRR_1#1");
    let both = parsed("pull_request_review", &review("submitted", "approved", "approver-bot[bot]", "/merge"));
    assert!(both.fact.is_some() && both.commands[0].command == Command::Merge);
}

fn comment(body: &str) -> Value {
    json!({
        "action": "created",
        "issue": {"number": 42, "pull_request": {"url": "x"}},
        "comment": {"node_id": "IC_1", "user": {"login": "jane"}, "body": body, "created_at": T0, "author_association": "MEMBER",
                    "performed_via_github_app": null},
        "repository": {"id": 5, "full_name": "acme/shop"}
    })
}

#[test]
fn command_id_comes_from_the_comment_and_not_from_the_delivery() {
    let command_id = |node_id: Value, id: Value| {
        let payload = with(comment("/hold"), &[("comment.node_id", node_id), ("comment.id", id)]);
        parsed("issue_comment", &payload).commands[0].command_id.to_string()
    };
    assert_eq!(command_id(json!("MDEyOklzc3VlQ29tbWVudDE="), json!(7)), "cmd:MDEyOklzc3VlQ29tbWVudDE=#1");
    assert_eq!(command_id(json!(null), json!(7)), "cmd:comment-7#1");
    assert_eq!(command_id(json!("a#b"), json!(7)), "cmd:comment-7#1");
    let unnamed = with(comment("/hold"), &[("comment.node_id", json!("x".repeat(101)))]);
    assert!(malformed("issue_comment", &unnamed).contains("node_id"));
    let numbered = [("review.id", json!(7)), ("review.node_id", json!(null))];
    let review = with(review("submitted", "commented", "jane", "/hold"), &numbered);
    assert_eq!(parsed("pull_request_review", &review).commands[0].command_id.as_str(), "cmd:review-7#1");
}

#[test]
fn comment_on_a_line_is_a_command() {
    let on_line = |changes: &[(&str, Value)]| {
        let payload = json!({
            "action": "created",
            "comment": {"id": 7, "node_id": "PRRC_1", "user": {"login": "jane"}, "body": "Stuck?\r\n/rebuild", "created_at": T0,
                        "author_association": "MEMBER", "path": "src/main.rs", "line": 3},
            "pull_request": {"number": 42, "state": "open"},
            "repository": {"id": 5, "full_name": "acme/shop"}
        });
        with(payload, changes)
    };
    let webhook = parsed("pull_request_review_comment", &on_line(&[]));
    let [command] = &webhook.commands[..] else { panic!("{webhook:?}") };
    assert_eq!((command.command_id.as_str(), command.command), ("cmd:PRRC_1#1", Command::Rebuild));
    assert_eq!((command.pr().to_string().as_str(), command.comment.as_deref()), ("acme/shop#42", Some("PRRC_1")));
    assert_eq!((command.source, webhook.fact), (CommandSource::PrComment, None));
    for (change, why) in [
        (("action", json!("edited")), "edited"),
        (("action", json!("deleted")), "pull_request_review_comment.deleted"),
        (("comment.body", json!("no command")), "without a command"),
        (("comment.author_association", json!("NONE")), "without write access"),
        (("comment.user.login", json!("suture[bot]")), "own comment"),
    ] {
        let found = ignored("pull_request_review_comment", &on_line(&[change]));
        assert!(found.contains(why), "{found}");
    }
    let nowhere = on_line(&[("pull_request", json!(null))]);
    assert!(malformed("pull_request_review_comment", &nowhere).contains("pull_request"));
}

#[test]
fn comment_commands_are_parsed_in_order() {
    let webhook = parsed("issue_comment", &comment("/hold until Monday\r\n/rebuild\r\n/holdd"));
    let commands: Vec<(&str, Command, Option<&str>)> =
        webhook.commands.iter().map(|c| (c.command_id.as_str(), c.command, c.args.as_deref())).collect();
    assert_eq!(commands, [("cmd:IC_1#1", Command::Hold, Some("until Monday")), ("cmd:IC_1#2", Command::Rebuild, None)]);
    let first = &webhook.commands[0];
    assert_eq!((first.pr().to_string().as_str(), first.requested_by.as_str()), ("acme/shop#42", "jane"));
    assert_eq!((first.timestamp.to_string().as_str(), &first.run_id, &first.head_sha), (T0, &None, &None));
    assert_eq!((webhook.fact, first.comment.as_deref()), (None, Some("IC_1")));
}

#[test]
fn comments_without_valid_command_are_ignored() {
    for (changes, why) in [
        (vec![("action", json!("edited"))], "edited"),
        (vec![("action", json!("deleted"))], "deleted"),
        (vec![("issue.pull_request", json!(null))], "not on a pull request"),
        (vec![("comment.user", json!({"login": "SUTURE[bot]"}))], "own comment"),
        (vec![("comment.performed_via_github_app", json!({"id": 77}))], "own comment"),
        (vec![("comment.body", json!("<!-- suture:notice:1 -->\n/rebuild"))], "own comment"),
        (vec![("comment.body", json!("> /rebuild"))], "without a command"),
        (vec![("comment.body", json!(null))], "without a command"),
        (vec![("comment.body", json!("/rebuid"))], "`/rebuid` (`/rebuild`?)"),
        (vec![("comment.author_association", json!("NONE"))], "`NONE`"),
        (vec![("comment.author_association", json!("FIRST_TIME_CONTRIBUTOR"))], "FIRST_TIME"),
        (vec![("comment.author_association", json!(null))], "without write access"),
        (vec![("comment.user", json!(null))], "without write access"),
    ] {
        let found = ignored("issue_comment", &with(comment("/rebuild"), &changes));
        assert!(found.contains(why), "{changes:?}: {found}");
    }
    // Another App may write a command for its user.
    assert_eq!(
        parsed("issue_comment", &with(comment("/rebuild"), &[("comment.performed_via_github_app", json!({"id": 3}))]))
            .commands
            .len(),
        1
    );
}

#[test]
fn push_maps_to_base_moved() {
    let push = json!({
        "ref": "refs/heads/release/1.0", "deleted": false, "head_commit": {"timestamp": T1},
        "repository": {"full_name": "acme/shop", "pushed_at": 1_772_442_000}
    });
    let moved = fact_of("push", &push);
    assert_eq!(
        (moved.selector, moved.occurred_at.to_string().as_str()),
        (PrSelector::Base("release/1.0".to_owned()), T0)
    );
    assert_eq!(moved.kind, FactKind::BaseMoved { base: "release/1.0".to_owned() });
    assert_eq!(
        fact_of("push", &with(push.clone(), &[("repository.pushed_at", json!(null))])).occurred_at.to_string(),
        T1
    );
    for (field, value) in [
        ("ref", json!("refs/tags/v1")),
        ("ref", json!("refs/heads/")),
        ("ref", json!(null)),
        ("ref", json!("refs/heads/gh-readonly-queue/main/pr-1-abc")),
        ("deleted", json!(true)),
    ] {
        ignored("push", &with(push.clone(), &[(field, value)]));
    }
}

#[test]
fn ping_names_missing_event_subscriptions() {
    let ping = |events: &[&str]| ignored("ping", &json!({"hook": {"events": events}}));
    assert!(ping(&["*"]).contains("subscribed to all"));
    let some = ping(&["pull_request", "push"]);
    assert!(some.ends_with("check_suite, pull_request_review, pull_request_review_comment, issue_comment"), "{some}");
    assert_eq!(ignored("ping", &json!({})), "connected");
    assert!(ignored("installation", &json!({"action": "deleted"})).contains("deleted"));
    assert!(
        ignored("merge_group", &json!({"action": "destroyed", "reason": "invalidated"}))
            .contains("destroyed invalidated")
    );
}

#[test]
fn new_installation_requests_full_reconcile() {
    for (event, action) in [
        ("installation", "created"),
        ("installation", "unsuspend"),
        ("installation", "new_permissions_accepted"),
        ("installation_repositories", "added"),
    ] {
        let payload = json!({"action": action, "installation": {"updated_at": T1}});
        let installed = ParseOutcome::Installed { id: EventId::new("d-1"), at: T1.parse().ok() };
        assert_eq!(outcome_of(event, &payload), installed, "{event} {action}");
        let silent = ParseOutcome::Installed { id: EventId::new("d-1"), at: None };
        assert_eq!(outcome_of(event, &json!({"action": action})), silent);
    }
    for action in ["deleted", "suspend", "removed", ""] {
        ignored("installation", &json!({"action": action}));
    }
}

#[test]
fn invalid_json_is_malformed_and_not_echoed() {
    let read_bytes =
        |event, body: &[u8]| parse_delivery(&GithubDelivery { event, id: "d", body }, &Policies::default(), &own());
    for event in ["pull_request", "status", "anything"] {
        for body in [&b""[..], b"{", b"secret-text", b"\xff\xfe", "[".repeat(1000).as_bytes()] {
            let ParseOutcome::Malformed(why) = read_bytes(event, body) else { panic!("{event} {body:?}") };
            assert!(why.contains("line") && !why.contains("secret"), "{why}");
        }
    }
    let ParseOutcome::Malformed(why) = read_bytes("push", b"payload=%7B%7D") else { panic!() };
    assert!(why.contains("application/json"));
    for id in ["", "a#b", "a b", "é", &"x".repeat(101)] {
        let delivery = GithubDelivery { event: "ping", id, body: b"{}" };
        assert!(matches!(parse_delivery(&delivery, &Policies::default(), &own()), ParseOutcome::Malformed(_)), "{id}");
    }
}
