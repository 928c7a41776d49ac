//! GraphQL: fields, aliases, fragments, pages, refusals, partial answers.

use fakes::{Fakes, Fault, NewPull, Protection, Repo, Reports, ReviewState, Settings};
use serde_json::{Value, json};

use super::asking::{ask, graphql, try_github};
use super::lives::{minutes, opened, opened_in};

/// The question a sweep asks.
const SWEEP: &str = "query PullRequests($ids: [ID!]!) {
  nodes(ids: $ids) {
    __typename
    ... on PullRequest {
      id number state isDraft merged mergedAt closedAt updatedAt additions deletions
      repository { nameWithOwner }
      mergedBy { __typename login } author { __typename login }
      headRefName headRefOid baseRefName baseRefOid mergeable mergeStateStatus reviewDecision
      isInMergeQueue mergeQueueEntry { state position enqueuedAt } autoMergeRequest { enabledAt enabledBy { login } }
      labels(first: 50) { nodes { name } }
      latestOpinionatedReviews(first: 20) { nodes { state submittedAt author { login } commit { oid } } }
      baseRef {
        branchProtectionRule { requiredStatusCheckContexts requiresStrictStatusChecks }
        refUpdateRule { requiredStatusCheckContexts }
        rules(first: 30) { pageInfo { hasNextPage } nodes { type parameters { ... on RequiredStatusChecksParameters {
          strictRequiredStatusChecksPolicy requiredStatusChecks { context } } } } }
      }
      commits(last: 1) { nodes { commit { oid statusCheckRollup { state contexts(first: 100) { totalCount pageInfo { hasNextPage endCursor } nodes {
        __typename
        ... on CheckRun { databaseId name status conclusion startedAt completedAt detailsUrl externalId title summary checkSuite { app { slug } } }
        ... on StatusContext { id context state description createdAt targetUrl }
      } } } } } }
    }
  }
  rateLimit { cost remaining resetAt }
}";

fn node_id(fakes: &Fakes, number: u64) -> String {
    fakes.pulls().find(|(pr, _)| pr.number == number).unwrap().1.node_id.clone()
}

#[test]
fn a_sweep_s_question_is_answered_in_full() {
    let (mut fakes, pr) = opened_in(Repo { strict: true, reports: Reports::Both, ..Repo::new("acme/payments") });
    fakes.force(Fault::AutomergeAsleep, &pr);
    minutes(&mut fakes, 40);
    let id = node_id(&fakes, 1);
    let first = graphql(&mut fakes, SWEEP, json!({"ids": [id]})).json;
    assert_eq!(first["data"]["nodes"][0]["mergeable"], "UNKNOWN", "asked for the first time");
    fakes.advance(jiff::SignedDuration::from_secs(5));
    let answer = graphql(&mut fakes, SWEEP, json!({"ids": [id]})).json;
    assert!(answer.get("errors").is_none(), "{answer}");
    let pull = &answer["data"]["nodes"][0];
    assert_eq!(pull["__typename"], "PullRequest");
    assert_eq!(
        (&pull["mergeable"], &pull["mergeStateStatus"], &pull["reviewDecision"]),
        (&json!("MERGEABLE"), &json!("CLEAN"), &json!("APPROVED"))
    );
    assert_eq!(pull["author"], json!({"__typename": "Bot", "login": "codegenie"}), "without [bot]");
    assert_eq!(pull["latestOpinionatedReviews"]["nodes"][0]["author"]["login"], "approver-bot");
    assert_eq!(pull["baseRef"]["branchProtectionRule"]["requiresStrictStatusChecks"], true);
    let rollup = &pull["commits"]["nodes"][0]["commit"]["statusCheckRollup"];
    assert_eq!((&rollup["state"], &rollup["contexts"]["totalCount"]), (&json!("SUCCESS"), &json!(3)));
    let kinds: Vec<_> =
        rollup["contexts"]["nodes"].as_array().unwrap().iter().map(|it| it["__typename"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["CheckRun", "StatusContext", "StatusContext"]);
    assert_eq!(rollup["contexts"]["nodes"][0]["checkSuite"]["app"]["slug"], "jenkins-ci");
    assert_eq!(answer["data"]["rateLimit"]["cost"], 1);
}

#[test]
fn rulesets_are_told_by_rules_and_not_by_protection() {
    let (mut fakes, _) = opened_in(Repo { protection: Protection::Ruleset, ..Repo::new("acme/payments") });
    let id = node_id(&fakes, 1);
    let answer = graphql(&mut fakes, SWEEP, json!({"ids": [id]})).json;
    let base = &answer["data"]["nodes"][0]["baseRef"];
    assert_eq!(base["branchProtectionRule"], Value::Null);
    assert_eq!(
        base["rules"]["nodes"][1]["parameters"]["requiredStatusChecks"][0]["context"],
        "continuous-integration/jenkins/pr-merge"
    );
    assert_eq!(
        answer["data"]["nodes"][0]["commits"]["nodes"][0]["commit"]["statusCheckRollup"],
        Value::Null,
        "nothing reported yet"
    );
}

#[test]
fn unknown_fields_are_refused_as_a_whole() {
    let (mut fakes, _) = opened();
    for (query, message) in [
        ("{ viewer { login shoeSize } }", "Field 'shoeSize' doesn't exist on type 'Actor'"),
        ("{ nodes(ids: []) { ... on PullRequest { colour } } }", "Field 'colour' doesn't exist on type 'PullRequest'"),
        (
            "{ nodes(ids: []) { ... on Spaceship { id } } }",
            "No such type Spaceship, so it can't be a fragment condition",
        ),
        (
            "{ repository(owner: \"a\", name: \"b\") }",
            "Field must have selections (field 'repository' returns Repository but has no selections)",
        ),
        (
            "{ repository(owner: \"acme\", name: \"payments\") { pullRequests { nodes { id } } } }",
            "You must provide a `first` or `last` value to properly paginate the `pullRequests` connection.",
        ),
    ] {
        let answer = graphql(&mut fakes, query, json!({}));
        assert_eq!((answer.code, answer.json["errors"][0]["message"].as_str().unwrap()), (200, message));
        assert!(answer.json.get("data").is_none());
    }
    let answer = graphql(&mut fakes, "{ viewer { login ", json!({})).json;
    assert!(answer["errors"][0]["message"].as_str().unwrap().starts_with("Parse error"));
}

#[test]
fn aliases_fragments_variables_and_conditions() {
    let (mut fakes, _) = opened();
    let query = "query Q($number: Int = 1, $more: Boolean!) {
      mine: repository(owner: \"acme\", name: \"payments\") { it: pullRequest(number: $number) { ...Short title @include(if: $more) } }
      repository(owner: \"acme\", name: \"payments\") { name }
      repository(owner: \"acme\", name: \"payments\") { isArchived }
    }
    fragment Short on PullRequest { number headRefName @skip(if: $more) }";
    let answer = graphql(&mut fakes, query, json!({"more": false})).json["data"].clone();
    assert_eq!(answer["mine"]["it"], json!({"number": 1, "headRefName": "codegenie/cve-2026-10001"}));
    assert_eq!(answer["repository"], json!({"name": "payments", "isArchived": false}), "merged");
    let answer = graphql(&mut fakes, query, json!({"more": true})).json["data"].clone();
    assert_eq!(answer["mine"]["it"], json!({"number": 1, "title": "Repair CVE-2026-10001"}));
}

#[test]
fn contexts_are_paged_and_know_whether_they_are_required() {
    let (mut fakes, pr) = opened();
    minutes(&mut fakes, 1);
    for place in 0..200 {
        fakes.post_check_on(&pr, &format!("check {place}"), Some("success"), "");
    }
    let query = "query($id: ID!, $after: String) { node(id: $id) { ... on PullRequest { commits(last: 1) { nodes { commit { statusCheckRollup {
        contexts(first: 100, after: $after) { totalCount pageInfo { hasNextPage endCursor } nodes {
          ... on CheckRun { name isRequired(pullRequestId: $id) } ... on StatusContext { context isRequired(pullRequestId: $id) } } } } } } } } } }";
    let (mut after, mut required, mut seen) = (Value::Null, Vec::new(), 0);
    for page in 0..3 {
        let id = node_id(&fakes, 1);
        let answer = graphql(&mut fakes, query, json!({"id": id, "after": after})).json;
        let contexts = &answer["data"]["node"]["commits"]["nodes"][0]["commit"]["statusCheckRollup"]["contexts"];
        assert_eq!(contexts["totalCount"], 202);
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
fn inventory_lists_open_pull_requests_page_by_page() {
    let (mut fakes, first) = opened();
    for _ in 0..149 {
        fakes.open_pr(NewPull::default());
    }
    fakes.person_closes(&first, "danny");
    let query = "query($after: String) { repository(owner: \"acme\", name: \"payments\") {
        pullRequests(states: OPEN, first: 100, after: $after, orderBy: { field: CREATED_AT, direction: ASC }) { totalCount pageInfo { hasNextPage endCursor } nodes { number } } } }";
    let (mut after, mut numbers) = (Value::Null, Vec::new());
    loop {
        let list =
            graphql(&mut fakes, query, json!({"after": after})).json["data"]["repository"]["pullRequests"].clone();
        numbers.extend(list["nodes"].as_array().unwrap().iter().map(|it| it["number"].as_u64().unwrap()));
        if list["pageInfo"]["hasNextPage"] == false {
            break;
        }
        after = list["pageInfo"]["endCursor"].clone();
    }
    assert_eq!(numbers, (2..=150).collect::<Vec<u64>>());
    let found = graphql(&mut fakes, "{ search(query: \"repo:acme/payments is:pr is:closed author:app/codegenie\", type: ISSUE, first: 5) { issueCount nodes { ... on PullRequest { number } } } }", json!({})).json;
    assert_eq!(found["data"]["search"], json!({"issueCount": 1, "nodes": [{"number": 1}]}));
}

#[test]
fn what_is_missing_is_null_with_an_error_beside_the_data() {
    let (mut fakes, _) = opened();
    let id = node_id(&fakes, 1);
    let answer = graphql(&mut fakes, SWEEP, json!({"ids": ["PR_0", id]})).json;
    assert_eq!((&answer["data"]["nodes"][0], &answer["data"]["nodes"][1]["number"]), (&Value::Null, &json!(1)));
    assert_eq!(
        (&answer["errors"][0]["type"], &answer["errors"][0]["path"]),
        (&json!("NOT_FOUND"), &json!(["nodes", 0]))
    );
    fakes.force_request(Fault::GraphqlPartial);
    let partial = graphql(&mut fakes, SWEEP, json!({"ids": [id]}));
    assert_eq!((partial.code, &partial.json["data"]["nodes"][0]), (200, &Value::Null));
    assert!(partial.json["errors"][0]["message"].as_str().unwrap().starts_with("Something went wrong"));
}

#[test]
fn too_large_a_question_gets_a_502_and_far_too_large_a_refusal() {
    let mut fakes = Fakes::new(1, Settings { graphql_502_above: 1_000, ..Settings::default() });
    let ids: Vec<String> = (0..10)
        .map(|_| fakes.open_pr(NewPull::default()))
        .collect::<Vec<_>>()
        .iter()
        .map(|pr| fakes.pull(pr).unwrap().node_id.clone())
        .collect();
    assert_eq!(graphql(&mut fakes, SWEEP, json!({"ids": ids})).code, 502);
    assert_eq!(graphql(&mut fakes, SWEEP, json!({"ids": ids[..4]})).code, 200, "halved, and halved again");
    let deep = "{ repository(owner: \"acme\", name: \"payments\") { pullRequests(first: 100) { nodes { reviews(first: 100) { nodes { commit {
        statusCheckRollup { contexts(first: 100) { nodes { __typename } } } } } } } } } }";
    assert_eq!(graphql(&mut fakes, deep, json!({})).json["errors"][0]["type"], "MAX_NODE_LIMIT_EXCEEDED");
    let wide = "{ repository(owner: \"acme\", name: \"payments\") { pullRequests(first: 101) { nodes { id } } } }";
    assert_eq!(graphql(&mut fakes, wide, json!({})).json["errors"][0]["extensions"]["code"], "EXCESSIVE_PAGINATION");
}

#[test]
fn points_run_out_as_errors_with_a_200() {
    let mut fakes = Fakes::new(1, Settings { graphql_limit: 1, ..Settings::default() });
    let query = "{ viewer { login } rateLimit { remaining } }";
    assert_eq!(
        graphql(&mut fakes, query, json!({})).json["data"],
        json!({"viewer": {"login": "suture-operator"}, "rateLimit": {"remaining": 0}})
    );
    let refused = graphql(&mut fakes, query, json!({}));
    assert_eq!((refused.code, &refused.json["errors"][0]["type"]), (200, &json!("RATE_LIMITED")));
    assert_eq!(refused.header("x-ratelimit-resource"), Some("graphql"));
}

#[test]
fn issues_are_pinned_by_mutation() {
    let (mut fakes, _) = opened();
    let issue = ask(&mut fakes, "POST", "/repos/acme/payments/issues", json!({"title": "Status"})).json;
    let query = "mutation PinIssue($issue: ID!) { pinIssue(input: { issueId: $issue }) { issue { id } } }";
    let answer = graphql(&mut fakes, query, json!({"issue": issue["node_id"]})).json;
    assert_eq!(answer["data"]["pinIssue"]["issue"]["id"], issue["node_id"]);
    assert!(fakes.issues().next().unwrap().1.pinned);
    let lost = graphql(&mut fakes, query, json!({"issue": "I_0"})).json;
    assert_eq!((&lost["data"]["pinIssue"], &lost["errors"][0]["type"]), (&Value::Null, &json!("NOT_FOUND")));
}

#[test]
fn comments_and_reviews_are_reacted_to_once() {
    let (mut fakes, pr) = opened();
    let comment = fakes.person_comments(&pr, "danny", "/rebuild").unwrap();
    fakes.person_reviews(&pr, "danny", ReviewState::Commented, "/rebuild");
    let review = fakes.reviews(&pr)[0].id;
    let query = "mutation AddReaction($subject: ID!, $content: ReactionContent!) {
      addReaction(input: { subjectId: $subject, content: $content }) { reaction { content } }
    }";
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
    assert_eq!(fakes.comments(&pr).next().unwrap().reactions.len(), 2, "done, although no answer came");
}

#[test]
fn behind_is_compared_through_the_base() {
    let (mut fakes, _) = opened();
    fakes.push_base("acme/payments");
    let query = "{ repository(owner: \"acme\", name: \"payments\") { ref(qualifiedName: \"refs/heads/main\") { compare(headRef: \"codegenie/cve-2026-10001\") { behindBy aheadBy status } } } }";
    let answer = graphql(&mut fakes, query, json!({})).json;
    assert_eq!(
        answer["data"]["repository"]["ref"]["compare"],
        json!({"behindBy": 1, "aheadBy": 1, "status": "DIVERGED"})
    );
}
