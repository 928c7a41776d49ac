//! GraphQL: paging, errors, partial responses, and mutations that REST lacks. Operations are recognised by name.

use fakes::{
    FakePrId, FakeSettings, Fakes, Fault, JenkinsReporting, NewPullRequest, ProtectionSource, RepoSettings, ReviewState,
};
use serde_json::{Value, json};

use super::client::{ask, graphql, try_github};
use super::lifecycle::{minutes, opened, opened_in};

fn node_id(fakes: &Fakes, number: u64) -> String {
    fakes.pulls().find(|(pr, _)| pr.number == number).unwrap().1.node_id.clone()
}

fn snapshot(fakes: &mut Fakes, ids: &[String]) -> Value {
    graphql(fakes, "query PullRequests($ids: [ID!]!) {", json!({"ids": ids})).json
}

#[test]
fn first_query_returns_all_fields_but_mergeable() {
    let (mut fakes, pr) =
        opened_in(RepoSettings { strict: true, reports: JenkinsReporting::Both, ..RepoSettings::new("acme/payments") });
    fakes.force(Fault::AutomergeAsleep, &pr);
    minutes(&mut fakes, 40);
    let ids = [node_id(&fakes, 1)];
    assert_eq!(snapshot(&mut fakes, &ids)["data"]["nodes"][0]["mergeable"], "UNKNOWN");
    fakes.advance(jiff::SignedDuration::from_secs(5));
    let answer = snapshot(&mut fakes, &ids);
    assert!(answer.get("errors").is_none(), "{answer}");
    let pull = &answer["data"]["nodes"][0];
    assert_eq!((&pull["mergeable"], &pull["mergeStateStatus"]), (&json!("MERGEABLE"), &json!("CLEAN")));
    let author = &pull["latestOpinionatedReviews"]["nodes"][0]["author"];
    assert_eq!(*author, json!({"__typename": "Bot", "login": "approver-bot"}), "without [bot]");
    assert_eq!(pull["baseRef"]["branchProtectionRule"]["requiresStrictStatusChecks"], true);
    let contexts = &pull["commits"]["nodes"][0]["commit"]["statusCheckRollup"]["contexts"]["nodes"];
    let kinds: Vec<_> = contexts.as_array().unwrap().iter().map(|it| it["__typename"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["CheckRun", "StatusContext", "StatusContext"]);
    assert_eq!(answer["data"]["rateLimit"]["cost"], 1);
    let again = graphql(&mut fakes, "query Mergeable($ids: [ID!]!) {", json!({"ids": ids})).json;
    assert_eq!(again["data"]["nodes"][0]["mergeStateStatus"], "CLEAN");
}

#[test]
fn rulesets_are_in_rules_and_not_in_branch_protection() {
    let (mut fakes, _) =
        opened_in(RepoSettings { protection: ProtectionSource::Ruleset, ..RepoSettings::new("acme/payments") });
    let ids = [node_id(&fakes, 1)];
    let pull = snapshot(&mut fakes, &ids)["data"]["nodes"][0].clone();
    assert_eq!(pull["baseRef"]["branchProtectionRule"], Value::Null);
    let rule = &pull["baseRef"]["rules"]["nodes"][1]["parameters"];
    assert_eq!(rule["requiredStatusChecks"][0]["context"], "continuous-integration/jenkins/pr-merge");
    assert_eq!(pull["commits"]["nodes"][0]["commit"]["statusCheckRollup"], Value::Null, "nothing reported yet");
}

#[test]
fn unknown_operation_is_rejected_and_recorded() {
    let (mut fakes, _) = opened();
    let answer = graphql(&mut fakes, "query ShoeSize { viewer { shoeSize } }", json!({}));
    assert_eq!((answer.code, answer.json.get("data")), (200, None));
    assert_eq!(fakes.unknown_requests(), ["graphql: ShoeSize"]);
}

#[test]
fn contexts_are_paged_and_marked_as_required() {
    let (mut fakes, pr) = opened();
    minutes(&mut fakes, 1);
    for place in 0..200 {
        fakes.post_check_on(&pr, &format!("check {place}"), Some("success"), "");
    }
    let (mut after, mut required, mut seen) = (Value::Null, Vec::new(), 0);
    for page in 0..3 {
        let variables = json!({"id": node_id(&fakes, 1), "after": after});
        let answer = graphql(&mut fakes, "query Contexts($id: ID!, $after: String) {", variables).json;
        let contexts = &answer["data"]["node"]["commits"]["nodes"][0]["commit"]["statusCheckRollup"]["contexts"];
        for node in contexts["nodes"].as_array().unwrap() {
            seen += 1;
            if node["isRequired"] == true {
                required.push(node["context"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(contexts["pageInfo"]["hasNextPage"], page < 2);
        after = contexts["pageInfo"]["endCursor"].clone();
    }
    required.sort();
    assert_eq!(
        (seen, required),
        (202, vec!["continuous-integration/jenkins/pr-merge".to_owned(), "policy-bot: main".to_owned()])
    );
}

#[test]
fn open_pull_requests_are_paged() {
    let (mut fakes, first) = opened();
    for _ in 0..149 {
        fakes.open_pr(NewPullRequest::default());
    }
    fakes.person_closes(&first, "danny");
    let (mut after, mut numbers) = (Value::Null, Vec::new());
    loop {
        let variables = json!({"owner": "acme", "name": "payments", "after": after});
        let answer = graphql(&mut fakes, "query OpenPullRequests {", variables).json;
        let list = &answer["data"]["repository"]["pullRequests"];
        numbers.extend(list["nodes"].as_array().unwrap().iter().map(|it| it["number"].as_u64().unwrap()));
        if list["pageInfo"]["hasNextPage"] == false {
            break;
        }
        after = list["pageInfo"]["endCursor"].clone();
    }
    assert_eq!(numbers, (2..=150).collect::<Vec<u64>>());
    fakes.person_merges(&FakePrId { number: 9, ..first }, "danny");
    let variables = json!({"owner": "acme", "name": "payments", "after": null});
    let answer = graphql(&mut fakes, "query ClosedPullRequests {", variables).json;
    let list = &answer["data"]["repository"]["pullRequests"]["nodes"];
    let numbers: Vec<u64> = list.as_array().unwrap().iter().filter_map(|it| it["number"].as_u64()).collect();
    assert_eq!(numbers, [9, 1], "closed and merged, newest first");
}

#[test]
fn missing_node_is_null_with_an_error() {
    let (mut fakes, _) = opened();
    let id = node_id(&fakes, 1);
    let answer = snapshot(&mut fakes, &["PR_0".to_owned(), id.clone()]);
    assert_eq!((&answer["data"]["nodes"][0], &answer["data"]["nodes"][1]["number"]), (&Value::Null, &json!(1)));
    let error = &answer["errors"][0];
    assert_eq!((&error["type"], &error["path"]), (&json!("NOT_FOUND"), &json!(["nodes", 0])));
    fakes.force_request(Fault::GraphqlPartial);
    let partial = snapshot(&mut fakes, &[id]);
    assert_eq!(partial["data"]["nodes"][0], Value::Null);
    assert!(partial["errors"][0]["message"].as_str().unwrap().starts_with("Something went wrong"));
    let variables = json!({"owner": "acme", "name": "nothing", "after": null});
    let gone = graphql(&mut fakes, "query OpenPullRequests {", variables).json;
    assert_eq!((&gone["data"]["repository"], &gone["errors"][0]["type"]), (&Value::Null, &json!("NOT_FOUND")));
}

#[test]
fn large_query_gets_a_502_and_too_many_ids_are_rejected() {
    let mut fakes = Fakes::new(1, FakeSettings { graphql_502_above: 1_300, ..FakeSettings::default() });
    let ids: Vec<String> = (1..=10).map(|n| format!("PR_{n}")).collect();
    let code = |fakes: &mut Fakes, ids: &[String]| graphql(fakes, "query PullRequests(", json!({"ids": ids})).code;
    assert_eq!(code(&mut fakes, &ids), 502);
    assert_eq!(code(&mut fakes, &ids[..4]), 200, "halved, and halved again");
    let many: Vec<String> = (0..101).map(|n| format!("PR_{n}")).collect();
    assert_eq!(snapshot(&mut fakes, &many)["errors"][0]["extensions"]["code"], "ARGUMENT_LIMIT");
}

#[test]
fn exhausted_points_return_an_error_with_status_200() {
    let mut fakes = Fakes::new(1, FakeSettings { graphql_limit: 1, ..FakeSettings::default() });
    let query = "query Mergeable($ids: [ID!]!) {";
    assert_eq!(graphql(&mut fakes, query, json!({"ids": []})).json["data"]["rateLimit"]["remaining"], 0);
    let refused = graphql(&mut fakes, query, json!({"ids": []}));
    assert_eq!((refused.code, &refused.json["errors"][0]["type"]), (200, &json!("RATE_LIMITED")));
    assert_eq!(refused.header("x-ratelimit-resource"), Some("graphql"));
}

#[test]
fn at_most_three_issues_can_be_pinned() {
    let (mut fakes, _) = opened();
    for place in 0..4 {
        let issue = ask(&mut fakes, "POST", "/repos/acme/payments/issues", json!({"title": "Status"})).json;
        let answer = graphql(&mut fakes, "mutation PinIssue($issue: ID!) {", json!({"issue": issue["node_id"]})).json;
        if place < 3 {
            assert_eq!(answer["data"]["pinIssue"]["issue"]["id"], issue["node_id"]);
        } else {
            assert_eq!(answer["errors"][0]["type"], "UNPROCESSABLE");
        }
    }
    assert_eq!(fakes.issues().filter(|(_, issue)| issue.pinned).count(), 3);
    let missing = graphql(&mut fakes, "mutation PinIssue($issue: ID!) {", json!({"issue": "I_0"})).json;
    assert_eq!((&missing["data"]["pinIssue"], &missing["errors"][0]["type"]), (&Value::Null, &json!("NOT_FOUND")));
}

#[test]
fn repeated_reaction_is_stored_once() {
    let (mut fakes, pr) = opened();
    let comment = fakes.person_comments(&pr, "danny", "/rebuild").unwrap();
    fakes.person_reviews(&pr, "danny", ReviewState::Commented, "/rebuild");
    let review = fakes.reviews(&pr)[0].id;
    let query = "mutation AddReaction($subject: ID!, $content: ReactionContent!) {";
    for subject in [format!("IC_{comment}"), format!("PRR_{review}")] {
        for _ in 0..2 {
            let answer = graphql(&mut fakes, query, json!({"subject": subject, "content": "EYES"})).json;
            assert_eq!(answer["data"]["addReaction"]["reaction"]["content"], "EYES", "{answer}");
        }
    }
    assert_eq!(fakes.comments(&pr).next().unwrap().reactions.len(), 1);
    assert_eq!(fakes.reviews(&pr)[0].reactions[0].content, "eyes");
    fakes.force_request(Fault::AnswerLost);
    let body = json!({"query": query, "variables": {"subject": format!("IC_{comment}"), "content": "ROCKET"}});
    assert!(try_github(&mut fakes, "POST", "/graphql", &[("authorization", "Bearer world-token")], &body).is_err());
    assert_eq!(fakes.comments(&pr).next().unwrap().reactions.len(), 2, "applied, although the response was lost");
}

#[test]
fn heads_are_compared_with_the_base_by_alias() {
    let (mut fakes, _) = opened();
    fakes.push_base("acme/payments");
    let variables = json!({"owner": "acme", "name": "payments", "base": "refs/heads/main",
                           "h0": "codegenie/cve-2026-10001", "h1": "nothing"});
    let answer = graphql(&mut fakes, "query Comparisons($owner: String!, $name: String!) {", variables).json;
    assert_eq!(answer["data"]["repository"]["ref"], json!({"h0": {"behindBy": 1}, "h1": null}));
    assert_eq!(answer["errors"][0]["path"], json!(["repository", "ref", "h1"]));
}
