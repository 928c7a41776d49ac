//! The verification query: the snapshot matches the fake GitHub, also after errors.

use std::sync::Arc;

use domain::id::PrId;
use domain::policy::Policies;
use domain::signals::{CheckKind, CheckVerdict, ChecksStatus, PolicyVerdict};
use domain::snapshot::{Mergeability, PullRequestState, Snapshot};
use domain::state::State;
use fakes::{Fault, NewPullRequest, ProtectionSource, RepoSettings, ReviewState, StatusState};
use jiff::SignedDuration;
use platform::github::SnapshotError;
use platform::transport::ApiError;
use serde_json::{Value, json};
use testbed::Testbed;

use crate::github::{head, id, opened};
use crate::{response, scripted_github, testbed_with, token};

const BUILD: &str = "continuous-integration/jenkins/pr-merge";

/// The pull requests with their node ids.
fn node_ids(testbed: &Testbed, prs: &[fakes::FakePrId]) -> Vec<(PrId, String)> {
    prs.iter().map(|pr| (id(pr), testbed.with(|fakes| fakes.pull(pr).unwrap().node_id.clone()))).collect()
}

async fn snapshot(testbed: &Testbed, pr: &fakes::FakePrId) -> Result<Snapshot, SnapshotError> {
    snapshot_by(testbed, pr, "").await
}

async fn snapshot_by(testbed: &Testbed, pr: &fakes::FakePrId, toml: &str) -> Result<Snapshot, SnapshotError> {
    let policies = Policies::parse(toml).unwrap();
    let mut all = testbed.github.snapshots(&node_ids(testbed, std::slice::from_ref(pr)), &policies).await;
    assert_eq!(all.len(), 1);
    assert_eq!(testbed.with(|fakes| fakes.unknown_requests().to_vec()), Vec::<String>::new());
    all.remove(0).1
}

fn queries(testbed: &Testbed) -> usize {
    testbed.transport.lines().iter().filter(|line| *line == "POST /graphql").count()
}

fn testbed_with_repo(repo: RepoSettings) -> Testbed {
    testbed_with(fakes::FakeSettings { repos: vec![repo], ..fakes::FakeSettings::default() })
}

#[tokio::test]
async fn snapshot_matches_each_lifecycle_step() {
    for protection in [ProtectionSource::Classic, ProtectionSource::Ruleset] {
        let testbed = testbed_with_repo(RepoSettings { protection, ..RepoSettings::new("acme/payments") });
        let pr = testbed.with(|fakes| {
            fakes.open_pr(NewPullRequest {
                vulnerability: Some("CVE-2026-1234".to_owned()),
                ..NewPullRequest::default()
            })
        });
        let fresh = snapshot(&testbed, &pr).await.unwrap();
        assert_eq!((fresh.state.clone(), fresh.details.head.clone()), (PullRequestState::Open, head(&testbed, &pr)));
        assert_eq!(fresh.details.vulnerability_id.as_deref(), Some("CVE-2026-1234"));
        assert_eq!(
            (fresh.details.labels.as_slice(), fresh.details.draft),
            (["codegenie".to_owned()].as_slice(), false)
        );
        assert_eq!(fresh.required_checks, Some(vec![BUILD.to_owned()]), "without Policy Bot's own: {protection:?}");
        assert_eq!(fresh.live.mergeable, Mergeability::Clean, "queried again until GitHub knew");
        let required = fresh.required_checks.clone().unwrap();
        let mut states = vec![fresh.signals.implied(&required).state];
        let merged = loop {
            testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(5)));
            let now = snapshot(&testbed, &pr).await.unwrap();
            if now.state != PullRequestState::Open {
                break now;
            }
            let state = now.signals.implied(&required).state;
            if states.last() != Some(&state) {
                states.push(state);
            }
            assert!(states.len() < 20, "{states:?}");
        };
        for state in [State::Created, State::ChecksRunning] {
            assert!(states.contains(&state), "{state} not in {states:?}");
        }
        assert!(states.iter().any(|state| *state >= State::PolicyEvaluating), "{states:?}");
        let PullRequestState::Merged { by, by_automerge_bot, at } = merged.state else { panic!("{:?}", merged.state) };
        assert_eq!((by.as_deref(), by_automerge_bot), (Some("automerge-bot[bot]"), true));
        assert!(at <= merged.read_at);
    }
}

#[tokio::test]
async fn snapshot_reads_checks_policy_and_approvals_of_the_head() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, _, _) = opened(&testbed);
    testbed.with(|fakes| {
        fakes.post_status_on(&pr, BUILD, StatusState::Error, "Connection reset by peer");
        let denied = ("policy-bot: main", StatusState::Failure, "Separation of duties failed");
        fakes.post_status_as(&pr, "policy-bot[bot]", denied);
        fakes.post_check_on(&pr, "lint", Some("timed_out"), "took too long");
        fakes.post_check_on(&pr, "scan", None, "");
        fakes.person_reviews(&pr, "approver-bot[bot]", ReviewState::Approved, "");
        fakes.person_reviews(&pr, "danny", ReviewState::Approved, "");
    });
    let snapshot_now = snapshot(&testbed, &pr).await.unwrap();
    let signals = &snapshot_now.signals;
    let found = |name: &str| signals.checks.iter().find(|check| check.name == name).unwrap();
    assert_eq!((found(BUILD).kind, found(BUILD).verdict), (CheckKind::Status, CheckVerdict::Failed));
    assert_eq!(found(BUILD).failure.as_ref().unwrap().transient_rule.as_deref(), Some("network"));
    assert_eq!((found("lint").kind, found("lint").verdict), (CheckKind::Run, CheckVerdict::Failed));
    assert_eq!(found("lint").failure.as_ref().unwrap().transient_rule.as_deref(), Some("timed-out"));
    assert!(found("lint").id.is_some());
    assert!(found("scan").verdict < CheckVerdict::Passed);
    assert_eq!(signals.checks.len(), 3, "Policy Bot's status is no check: {:?}", signals.checks);
    let policy = signals.policy.as_ref().unwrap();
    assert_eq!(policy.verdict, PolicyVerdict::Failed(domain::state::Substatus::SodFailure));
    let approvals: Vec<(&str, bool)> = signals.approvals.iter().map(|one| (one.by.as_str(), one.granted)).collect();
    assert_eq!(
        approvals,
        [("approver-bot[bot]", true)],
        "with the `[bot]` suffix that GraphQL omits; users do not count"
    );
    testbed.with(|fakes| fakes.person_pushes(&pr, "danny"));
    let pushed = snapshot(&testbed, &pr).await.unwrap();
    assert_eq!(pushed.details.head, head(&testbed, &pr));
    assert!(pushed.signals.approvals.iter().all(|one| !one.granted), "an approval belongs to its commit");
    assert_eq!(pushed.signals.checks(&[]), ChecksStatus::NotStarted);
}

#[tokio::test]
async fn snapshot_reads_250_contexts_of_one_head() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, _, _) = opened(&testbed);
    for n in 0..250 {
        testbed.with(|fakes| fakes.post_status_on(&pr, &format!("ci/{n:03}"), StatusState::Success, "fine"));
    }
    let before = queries(&testbed);
    let read = snapshot(&testbed, &pr).await.unwrap();
    assert_eq!(read.signals.checks.iter().filter(|check| check.name.starts_with("ci/")).count(), 250);
    assert_eq!(read.required_checks, Some(vec![BUILD.to_owned()]));
    let asked_again = testbed.clock.take_pauses().len();
    assert_eq!(queries(&testbed) - before, 3 + asked_again, "one page, two more, and mergeability");
}

#[tokio::test]
async fn hundred_pull_requests_take_four_queries_in_order() {
    let settings = fakes::FakeSettings { secondary_limits: false, ..fakes::FakeSettings::default() };
    let testbed = testbed_with(settings);
    let prs: Vec<fakes::FakePrId> =
        (0..100).map(|_| testbed.with(|fakes| fakes.open_pr(NewPullRequest::default()))).collect();
    let with_ids = node_ids(&testbed, &prs);
    // The first query makes GitHub compute mergeability.
    testbed.github.snapshots(&with_ids, &Policies::default()).await;
    let before = queries(&testbed);
    let all = testbed.github.snapshots(&with_ids, &Policies::default()).await;
    assert_eq!(queries(&testbed) - before, 4);
    for ((pr, _), (answered, snapshot)) in with_ids.iter().zip(&all) {
        assert_eq!(pr, answered);
        assert!(snapshot.is_ok(), "{pr}: {snapshot:?}");
    }
    assert!(testbed.github.rate_limits().graphql.is_some_and(|rate| rate.remaining < rate.limit));
}

#[tokio::test]
async fn oversized_query_is_halved_until_it_succeeds() {
    let settings =
        fakes::FakeSettings { graphql_502_above: 2_500, secondary_limits: false, ..fakes::FakeSettings::default() };
    let testbed = testbed_with(settings);
    let prs: Vec<fakes::FakePrId> =
        (0..25).map(|_| testbed.with(|fakes| fakes.open_pr(NewPullRequest::default()))).collect();
    let all = testbed.github.snapshots(&node_ids(&testbed, &prs), &Policies::default()).await;
    let unread: Vec<_> = all.iter().filter(|(_, snapshot)| snapshot.is_err()).collect();
    assert!(unread.is_empty(), "{unread:?}");
}

#[tokio::test]
async fn missing_node_fails_only_itself() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let prs: Vec<fakes::FakePrId> =
        (0..6).map(|_| testbed.with(|fakes| fakes.open_pr(NewPullRequest::default()))).collect();
    testbed.with(|fakes| fakes.force_request(Fault::GraphqlPartial));
    let all = testbed.github.snapshots(&node_ids(&testbed, &prs), &Policies::default()).await;
    let unread: Vec<_> = all.iter().filter_map(|(_, snapshot)| snapshot.as_ref().err()).collect();
    assert_eq!(unread.len(), 1, "{all:?}");
    assert!(matches!(unread[0], SnapshotError::Partial { .. }), "{unread:?}");
    let again = testbed.github.snapshots(&node_ids(&testbed, &prs), &Policies::default()).await;
    assert!(again.iter().all(|(_, snapshot)| snapshot.is_ok()));
}

#[tokio::test]
async fn unknown_mergeability_is_retried_with_backoff() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, _, _) = opened(&testbed);
    assert_eq!(snapshot(&testbed, &pr).await.unwrap().live.mergeable, Mergeability::Clean);
    assert_eq!(testbed.clock.take_pauses().first().map(std::time::Duration::as_secs), Some(5));
    testbed.with(|fakes| fakes.conflict(&pr));
    assert_eq!(snapshot(&testbed, &pr).await.unwrap().live.mergeable, Mergeability::Conflicting);
    let stubborn = testbed.with(|fakes| fakes.open_pr(NewPullRequest::default()));
    testbed.with(|fakes| fakes.force(Fault::MergeableUnknown, &stubborn));
    testbed.clock.take_pauses();
    assert_eq!(snapshot(&testbed, &stubborn).await.unwrap().live.mergeable, Mergeability::Unknown);
    let pauses: Vec<u64> = testbed.clock.take_pauses().iter().map(std::time::Duration::as_secs).collect();
    assert_eq!(pauses, [5, 10, 15]);
}

#[tokio::test]
async fn heads_are_compared_only_on_strict_bases() {
    let compared =
        |testbed: &Testbed| testbed.transport.lines().iter().filter(|line| line.contains("/compare/")).count();
    for protection in [ProtectionSource::Classic, ProtectionSource::Ruleset] {
        let testbed =
            testbed_with_repo(RepoSettings { strict: true, protection, ..RepoSettings::new("acme/payments") });
        let (pr, _, _) = opened(&testbed);
        testbed.with(|fakes| fakes.push_base("acme/payments"));
        let read = snapshot(&testbed, &pr).await.unwrap();
        assert_eq!((read.live.strict, read.live.behind_by), (true, Some(1)), "{protection:?}");
        assert_eq!(compared(&testbed), 1);
    }
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, _, _) = opened(&testbed);
    testbed.with(|fakes| fakes.push_base("acme/payments"));
    let read = snapshot(&testbed, &pr).await.unwrap();
    assert_eq!((read.live.strict, read.live.behind_by, compared(&testbed)), (false, None, 0));
    let read = snapshot_by(&testbed, &pr, "[checks]\nbehind = 'always'").await.unwrap();
    assert_eq!((read.live.strict, read.live.behind_by, compared(&testbed)), (false, Some(1), 1));
}

/// A merge leaves every other pull request of a strict base behind; one comparison per pull request was most of a
/// sweep's traffic.
#[tokio::test]
async fn heads_of_one_base_are_compared_in_one_query() {
    let testbed = testbed_with_repo(RepoSettings { strict: true, ..RepoSettings::new("acme/payments") });
    let prs: Vec<fakes::FakePrId> =
        (0..30).map(|_| testbed.with(|fakes| fakes.open_pr(NewPullRequest::default()))).collect();
    testbed.with(|fakes| fakes.push_base("acme/payments"));
    testbed.github.snapshots(&node_ids(&testbed, &prs), &Policies::default()).await;
    let (before, queries_before) = (testbed.transport.count(), queries(&testbed));
    let all = testbed.github.snapshots(&node_ids(&testbed, &prs), &Policies::default()).await;
    let behind = |(_, read): &(PrId, Result<Snapshot, SnapshotError>)| read.as_ref().unwrap().live.behind_by == Some(1);
    assert!(all.iter().all(behind), "{all:?}");
    assert_eq!(
        (testbed.transport.count() - before, queries(&testbed) - queries_before),
        (4, 4),
        "two to read, two to compare"
    );
}

#[tokio::test]
async fn snapshot_reads_closed_merged_and_missing_pull_requests() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let prs: Vec<fakes::FakePrId> =
        (0..3).map(|_| testbed.with(|fakes| fakes.open_pr(NewPullRequest::default()))).collect();
    testbed.with(|fakes| {
        fakes.person_closes(&prs[0], "danny");
        fakes.person_merges(&prs[1], "maria");
    });
    let mut with_ids = node_ids(&testbed, &prs);
    with_ids.push(("acme/payments#99".parse().unwrap(), "PR_nonsense".to_owned()));
    with_ids.push(("acme/payments#98".parse().unwrap(), with_ids[2].1.clone()));
    let all = testbed.github.snapshots(&with_ids, &Policies::default()).await;
    let life = |n: usize| all[n].1.as_ref().unwrap().state.clone();
    assert!(matches!(life(0), PullRequestState::Closed { .. }));
    assert!(matches!(life(1), PullRequestState::Merged { by: Some(by), by_automerge_bot: false, .. } if by == "maria"));
    assert_eq!(life(2), PullRequestState::Open);
    assert_eq!(all[3].1, Err(SnapshotError::Gone));
    assert_eq!(all[4].1, Err(SnapshotError::Renamed { now: prs[2].to_string() }));
}

#[tokio::test]
async fn rate_limit_mid_query_applies_to_all_remaining() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let prs: Vec<fakes::FakePrId> =
        (0..30).map(|_| testbed.with(|fakes| fakes.open_pr(NewPullRequest::default()))).collect();
    testbed.github.health().await.unwrap();
    testbed.github.pull(&id(&prs[0])).await.unwrap();
    testbed.with(|fakes| fakes.force_request(Fault::ApiForbidden));
    let sent = testbed.transport.count();
    let all = testbed.github.snapshots(&node_ids(&testbed, &prs), &Policies::default()).await;
    let until = all.iter().filter_map(|(_, snapshot)| snapshot.as_ref().err()?.until()).max().expect("a time");
    assert!(until > testbed.with(|fakes| fakes.now()));
    assert!(testbed.transport.count() - sent <= 2, "{:?}", testbed.transport.lines());
    for (pr, snapshot) in &all {
        assert!(matches!(snapshot, Err(SnapshotError::Failed(ApiError::RateLimited { .. }))), "{pr}: {snapshot:?}");
    }
}

#[tokio::test]
async fn inventory_lists_open_pull_requests_with_authors() {
    let testbed = testbed_with(fakes::FakeSettings { secondary_limits: false, ..fakes::FakeSettings::default() });
    for n in 0..130 {
        let author = if n % 10 == 0 { "danny" } else { "" };
        testbed.with(|fakes| fakes.open_pr(NewPullRequest { author: author.to_owned(), ..NewPullRequest::default() }));
    }
    let policies = Policies::default();
    let repo = "acme/payments".parse().unwrap();
    let listed = testbed.github.open_pulls(&repo, policies.base()).await.unwrap();
    assert_eq!(listed.len(), 130);
    let bots = listed.iter().filter(|one| one.author == "codegenie[bot]").count();
    assert_eq!(bots, 117);
    assert!(listed.iter().all(|one| one.is_managed(policies.base())), "all are managed by branch or label");
    let first = &listed[0];
    let pr = fakes::FakePrId { repo: "acme/payments".to_owned(), number: first.id.number };
    assert_eq!(first.described.head, head(&testbed, &pr));
    let nowhere = testbed.github.open_pulls(&"acme/nothing".parse().unwrap(), policies.base()).await;
    assert!(matches!(nowhere, Err(ApiError::NotFound { .. })), "{nowhere:?}");
}

#[tokio::test]
async fn closed_pull_requests_are_listed_since_a_time() {
    let testbed = testbed_with(fakes::FakeSettings { secondary_limits: false, ..fakes::FakeSettings::default() });
    let open = |count: usize| -> Vec<fakes::FakePrId> { (0..count).map(|_| testbed.open()).collect() };
    let old = open(2);
    testbed.advance(SignedDuration::from_mins(10));
    let since = testbed.now();
    let new = open(120);
    testbed.with(|fakes| {
        for pr in old.iter().chain(&new).skip(1) {
            fakes.person_closes(pr, "danny");
        }
        fakes.open_pr(NewPullRequest::default());
    });
    let (repo, policies) = ("acme/payments".parse().unwrap(), Policies::default());
    let listed = testbed.github.closed_pulls(&repo, policies.base(), since).await.unwrap();
    let numbers: Vec<u64> = listed.iter().map(|pull| pull.id.number).collect();
    assert_eq!(numbers, (3..=122).rev().collect::<Vec<u64>>(), "newest first, over two pages");
}

/// Pull request n in the query's format: no checks, mergeable.
fn node(id: &str) -> Value {
    let number: u64 = id.trim_start_matches("PR_").parse().unwrap();
    let oid = "a".repeat(40);
    json!({
        "__typename": "PullRequest", "id": id, "number": number, "title": "t", "body": "", "state": "OPEN",
        "isDraft": false, "isCrossRepository": false, "author": null, "createdAt": "2026-03-02T09:00:00Z", "closedAt": null, "mergedAt": null, "additions": 1,
        "deletions": 1, "headRefName": "codegenie/x", "headRefOid": oid, "baseRefName": "main",
        "mergeable": "MERGEABLE", "mergeStateStatus": "BLOCKED", "repository": {"nameWithOwner": "Acme/Shop"},
        "mergedBy": null, "mergeQueueEntry": null, "autoMergeRequest": null,
        "labels": {"pageInfo": {"hasNextPage": false}, "nodes": []},
        "latestOpinionatedReviews": {"pageInfo": {"hasNextPage": false}, "nodes": []},
        "baseRef": {"branchProtectionRule": null, "refUpdateRule": null,
            "rules": {"pageInfo": {"hasNextPage": false}, "nodes": []}},
        "commits": {"nodes": [{"commit": {"oid": oid, "statusCheckRollup": null}}]}
    })
}

fn sample_prs(count: u64) -> Vec<(PrId, String)> {
    (1..=count).map(|n| (tests::pr(n), format!("PR_{n}"))).collect()
}

/// The node ids of a query.
fn queried_ids(request: &http::Request<bytes::Bytes>) -> Vec<String> {
    let body: Value = serde_json::from_slice(request.body()).unwrap();
    let ids = body["variables"]["ids"].as_array().cloned().unwrap_or_default();
    ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn failing_pull_request_is_isolated_and_the_others_are_read() {
    for bad in ["PR_1", "PR_13", "PR_25"] {
        let client = scripted_github(&token(), move |request| {
            let ids = queried_ids(&request);
            if ids.iter().any(|id| id == bad) {
                return Ok(response(502, "<html>"));
            }
            let nodes: Vec<Value> = ids.iter().map(|id| node(id)).collect();
            Ok(response(200, &json!({"data": {"nodes": nodes}}).to_string()))
        });
        let all = client.github.snapshots(&sample_prs(25), &Policies::default()).await;
        let unread: Vec<String> =
            all.iter().filter(|(_, one)| one.is_err()).map(|(pr, _)| format!("PR_{}", pr.number)).collect();
        assert_eq!(unread, [bad]);
        assert!(client.transport.count() <= 12, "{bad}: {}", client.transport.count());
    }
}

#[tokio::test]
async fn query_gives_up_while_github_is_down() {
    let down = scripted_github(&token(), |_| Ok(response(502, "")));
    let all = down.github.snapshots(&sample_prs(25), &Policies::default()).await;
    assert!(all.iter().all(|(_, one)| matches!(one, Err(SnapshotError::Failed(ApiError::Unavailable { .. })))));
    assert!(down.transport.count() <= 8, "{}", down.transport.count());
    let slow = scripted_github(&token(), |_| {
        Ok(response(200, r#"{"data":null,"errors":[{"message":"Something went wrong while executing your query."}]}"#))
    });
    let all = slow.github.snapshots(&sample_prs(4), &Policies::default()).await;
    assert!(all.iter().all(|(_, one)| one.is_err()));
    let wrong = scripted_github(&token(), |_| {
        let error = json!({"message": "Field 'x' doesn't exist", "extensions": {"code": "undefinedField"}});
        Ok(response(200, &json!({"errors": [error]}).to_string()))
    });
    let all = wrong.github.snapshots(&sample_prs(4), &Policies::default()).await;
    assert!(all.iter().all(|(_, one)| matches!(one, Err(SnapshotError::Failed(ApiError::Refused { .. })))));
    assert_eq!(wrong.transport.count(), 1, "an invalid query is not retried");
}

/// Changes a response before it is sent.
type Change = Box<dyn Fn(&mut Value) + Send + Sync>;

/// Reads `PR_1` from a response that is changed before it is sent, with these `errors`.
async fn read_one(
    change: impl Fn(&mut Value) + Send + Sync + 'static,
    errors: Value,
) -> Result<Snapshot, SnapshotError> {
    let errors = Arc::new(errors);
    let client = scripted_github(&token(), move |_| {
        let mut one = node("PR_1");
        change(&mut one);
        Ok(response(200, &json!({"data": {"nodes": [one]}, "errors": *errors}).to_string()))
    });
    client.github.snapshots(&sample_prs(1), &Policies::default()).await.remove(0).1
}

#[tokio::test]
async fn partial_response_is_an_error() {
    let none = || json!([]);
    assert!(read_one(|_| {}, none()).await.is_ok());
    let status = json!({"__typename": "StatusContext", "context": "ci", "state": "SUCCESS", "description": null,
        "createdAt": "2026-03-02T09:00:00Z"});
    let rollup = move |nodes: Value| json!({"contexts": {"pageInfo": {"hasNextPage": false}, "nodes": nodes}});
    let incomplete: Vec<Change> = vec![
        Box::new(|one| one["labels"] = Value::Null),
        Box::new(|one| one["labels"]["pageInfo"]["hasNextPage"] = json!(true)),
        Box::new(|one| one["latestOpinionatedReviews"]["nodes"] = json!([null])),
        Box::new(|one| one["commits"]["nodes"] = json!([])),
        Box::new(|one| one["commits"]["nodes"][0]["commit"]["oid"] = json!("b".repeat(40))),
        Box::new(move |one| {
            one["commits"]["nodes"][0]["commit"]["statusCheckRollup"] = rollup(json!([status, null]));
        }),
        Box::new(|one| one["mergeable"] = json!("PERHAPS")),
        Box::new(|one| one["state"] = json!("DREAMING")),
        Box::new(|one| one["headRefOid"] = json!("short")),
        Box::new(|one| one["title"] = Value::Null),
    ];
    for (n, change) in incomplete.into_iter().enumerate() {
        let read = read_one(change, none()).await;
        assert!(matches!(read, Err(SnapshotError::Partial { .. })), "{n}: {read:?}");
    }
    for errors in [json!([{"message": "timeout"}]), json!([{"message": "timeout", "path": ["nodes", 0, "commits"]}])] {
        assert!(matches!(read_one(|_| {}, errors).await, Err(SnapshotError::Partial { .. })));
    }
    let elsewhere = json!([{"message": "timeout", "path": ["rateLimit"]}]);
    assert!(read_one(|_| {}, elsewhere).await.is_ok(), "unused fields may be missing");
}

#[tokio::test]
async fn required_checks_come_from_contexts_when_rules_are_hidden() {
    let client = scripted_github(&token(), |request| {
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        if !body["query"].as_str().unwrap().contains("query Contexts") {
            let hidden = json!({"type": "FORBIDDEN", "message": "Resource not accessible by integration",
                "path": ["nodes", 0, "baseRef", "branchProtectionRule"]});
            return Ok(response(200, &json!({"data": {"nodes": [node("PR_1")]}, "errors": [hidden]}).to_string()));
        }
        let context = |name: &str, required: bool| {
            json!({"__typename": "StatusContext", "context": name, "state": "PENDING", "description": null,
                "createdAt": "2026-03-02T09:00:00Z", "isRequired": required,
                "creator": {"__typename": "Bot", "login": "policy-bot"}})
        };
        let rollup = json!({"contexts": {"pageInfo": {"hasNextPage": false}, "nodes":
            [context("ci", true), context("policy-bot: main", true), context("extra", false)]}});
        let commit = json!({"commit": {"oid": "a".repeat(40), "statusCheckRollup": rollup}});
        let one = json!({"__typename": "PullRequest", "commits": {"nodes": [commit]}});
        Ok(response(200, &json!({"data": {"node": one}}).to_string()))
    });
    let read = client.github.snapshots(&sample_prs(1), &Policies::default()).await.remove(0).1.unwrap();
    assert_eq!(read.required_checks, Some(vec!["ci".to_owned()]));
    assert_eq!(read.signals.checks.len(), 2);
    assert_eq!(client.transport.count(), 2);
}

#[tokio::test]
async fn head_missing_from_the_batch_comparison_is_compared_alone() {
    let client = scripted_github(&token(), |request| {
        let path = request.uri().path();
        if path.contains("/compare/") {
            return Ok(response(200, &json!({"behind_by": 3}).to_string()));
        }
        let ids = queried_ids(&request);
        if ids.is_empty() {
            let errors =
                json!([{"type": "NOT_FOUND", "path": ["repository", "ref", "h1"], "message": "no such commit"}]);
            let compared = json!({"h0": {"behindBy": 2}, "h1": null});
            return Ok(response(
                200,
                &json!({"data": {"repository": {"ref": compared}}, "errors": errors}).to_string(),
            ));
        }
        let nodes: Vec<Value> = ids.iter().map(|id| node(id)).collect();
        Ok(response(200, &json!({"data": {"nodes": nodes}}).to_string()))
    });
    let policies = Policies::parse("[checks]\nbehind = 'always'").unwrap();
    let all = client.github.snapshots(&sample_prs(2), &policies).await;
    let behind: Vec<_> = all.iter().map(|(_, read)| read.as_ref().unwrap().live.behind_by).collect();
    assert_eq!((behind, client.transport.count()), (vec![Some(2), Some(3)], 3));
}

#[tokio::test]
async fn own_check_run_is_ignored_and_ids_come_from_the_path() {
    let run = |name: &str, app: u64| {
        json!({"__typename": "CheckRun", "databaseId": null, "resourcePath": "/acme/shop/runs/5000000001", "name": name,
            "status": "QUEUED", "conclusion": null, "startedAt": null, "completedAt": null, "title": null,
            "summary": null, "text": null,
            "checkSuite": {"createdAt": "2026-03-02T09:01:00Z", "updatedAt": null, "app": {"databaseId": app, "slug": "jenkins"}}})
    };
    let mut unnamed = run("suture", 0);
    unnamed["checkSuite"]["app"] = json!(null);
    let runs = json!([run("suture", 4711), unnamed, run("Jenkins", 5)]);
    let client = scripted_github(&crate::app(), move |request| {
        Ok(match request.uri().path() {
            "/app/installations" => response(200, r#"[{"id":5,"account":{"login":"acme"}}]"#),
            "/graphql" => {
                let mut one = node("PR_1");
                one["commits"]["nodes"][0]["commit"]["statusCheckRollup"] =
                    json!({"contexts": {"pageInfo": {"hasNextPage": false}, "nodes": runs}});
                response(200, &json!({"data": {"nodes": [one]}}).to_string())
            }
            _ => response(201, r#"{"token":"t","expires_at":"2026-03-02T10:00:00Z","permissions":{}}"#),
        })
    });
    let read = client.github.snapshots(&sample_prs(1), &Policies::default()).await.remove(0).1.unwrap();
    let checks: Vec<_> = read.signals.checks.iter().map(|one| (one.name.as_str(), one.id, one.verdict)).collect();
    assert_eq!(checks, [("Jenkins", Some(5_000_000_001), CheckVerdict::Queued)]);
    assert_eq!(read.signals.checks[0].at, "2026-03-02T09:01:00Z".parse().unwrap());
}
