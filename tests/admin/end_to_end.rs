//! The admin function with the Car Bridge, the reconciler and the fakes on one store.

use std::sync::Arc;

use car_bridge::MessageOutcome;
use domain::bus::DetailType;
use domain::id::RunId;
use domain::policy::Policies;
use domain::state::State;
use fakes::{FakePrId, FakeSettings, Fault, JenkinsReporting, NewPullRequest, RepoSettings};
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock as _;
use platform::publish::queue_message::QueueMessage;
use platform::publish::{Destination, OutboundMessage};
use platform::store::Store;
use reconciler::{ReconcileScope, Reconciler, SweepOutcome, SweepTrigger};
use serde_json::{Value, json};
use testbed::{FaultStore, RecordingPublisher, TestStore, Testbed};

use crate::harness::{Caller, Harness, Options};

type Shared = Harness<FaultStore<TestStore>>;

/// A testbed with one pull request, and the admin function on the same store.
async fn set_up() -> (Testbed, Shared, FakePrId, String) {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    let options = Options { github: Some(testbed.github.clone()), ..Options::default() };
    let harness = Harness::on(testbed.store.clone(), options);
    harness.clock.set(testbed.now());
    let path = format!("/api/pr/{}/{}", pr.repo, pr.number);
    (testbed, harness, pr, path)
}

/// The reconciler on the same store.
fn sweep(testbed: &Testbed, config: &str) -> Reconciler<FaultStore<TestStore>, RecordingPublisher> {
    let (store, publisher, clock) = (testbed.store.clone(), testbed.publisher.clone(), Arc::new(testbed.clock.clone()));
    Reconciler::new(store, publisher, Policies::parse(config).unwrap(), testbed.github.clone(), None, clock, vec![])
}

fn messages(harness: &Shared) -> Vec<String> {
    let body = |message: OutboundMessage| match message.destination {
        Destination::Queue { message: QueueMessage::Command(command), .. } => {
            QueueMessage::Command(command).to_json().ok()
        }
        Destination::Queue { .. } | Destination::Bus { .. } | Destination::Notice(_) => None,
    };
    harness.publisher().sent().into_iter().filter_map(body).collect()
}

#[tokio::test]
async fn api_command_runs_once_despite_redelivery() {
    let (testbed, harness, pr, path) = set_up().await;
    let accepted =
        harness.post(Caller::Operator, &format!("{path}/command"), r#"{"command":"/hold","args":"a freeze"}"#).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    let sent = messages(&harness);
    for n in 0..2 {
        let handled = testbed.bridge.handle(&format!("m{n}"), &sent[0]).await.unwrap();
        assert!(matches!(handled, MessageOutcome::Done(_)), "{handled:?}");
    }
    let record = testbed.record(&pr).await;
    assert!(record.hold);
    assert_eq!(record.blocked.unwrap().reason, "held by operator: a freeze");
    let status = harness.get(Caller::Operator, &format!("{path}/status")).await.json();
    let received: Vec<&serde_json::Value> =
        status["history"].as_array().unwrap().iter().filter(|event| event["kind"] == "COMMAND_RECEIVED").collect();
    assert_eq!(
        (received.len(), &received[0]["by"], &received[0]["id"]),
        (1, &json!("operator"), &accepted.json()["command_id"])
    );
    assert_eq!((&status["held"], &status["why"]), (&json!(true), &json!("Held by operator: a freeze.")));
    assert!(status["commands"].as_array().unwrap().iter().any(|command| command["command"] == "/resume"));
}

/// The documented procedure after an escalation: `/resume` by the API gives the pull request fresh budgets.
#[tokio::test]
async fn escalated_pull_request_is_resumed_by_the_api() {
    let (testbed, harness, pr, path) = set_up().await;
    testbed.fakes().force(Fault::RealTestFailure, &pr);
    let sweep = sweep(&testbed, "mode = \"act\"");
    let mut minutes = 0;
    while testbed.record(&pr).await.state != State::NeedsIntervention {
        assert!(minutes < 300, "{:?}", testbed.record(&pr).await);
        (minutes, _) = (minutes + 5, testbed.pass(5).await);
        let trigger = SweepTrigger::scheduled("sweep", testbed.now(), "here");
        sweep.sweep(&trigger, testbed.now() + SignedDuration::from_mins(4)).await.unwrap();
        testbed.handle_messages().await;
    }
    harness.clock.set(testbed.now());
    let status = harness.get(Caller::Operator, &format!("{path}/status")).await.json();
    assert!(status["blocked_reason"].as_str().is_some_and(|why| why.contains("failed")), "{status}");
    let accepted = harness.post(Caller::Operator, &format!("{path}/command"), r#"{"command":"/resume"}"#).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    let sent = messages(&harness);
    assert_eq!(sent.len(), 1, "{sent:?}");
    let handled = testbed.bridge.handle("m-resume", &sent[0]).await.unwrap();
    assert!(matches!(handled, MessageOutcome::Done(_)), "{handled:?}");
    let record = testbed.record(&pr).await;
    assert_eq!((record.state, record.blocked), (State::ChecksFailed, None));
    assert_eq!(record.retry_counts, domain::budget::RetryCounts::default());
    let status = harness.get(Caller::Operator, &format!("{path}/status")).await.json();
    assert_eq!(status["blocked_reason"], json!(null), "{status}");
}

#[tokio::test]
async fn requested_sweep_runs_in_the_reconciler_under_its_run_id() {
    let (testbed, harness, ..) = set_up().await;
    let accepted = harness.post(Caller::Operator, "/api/reconciler/run", "").await.json();
    let id = accepted["run_id"].as_str().unwrap();
    let sweep = sweep(&testbed, "mode = \"act\"");
    let trigger = SweepTrigger::requested(RunId::new(id), ReconcileScope::All, false, "here");
    let deadline = testbed.now() + SignedDuration::from_mins(5);
    assert!(matches!(sweep.sweep(&trigger, deadline).await.unwrap(), SweepOutcome::Done(_)));
    assert_eq!(sweep.sweep(&trigger, deadline).await.unwrap(), SweepOutcome::DuplicateTrigger);
    let run = harness.get(Caller::Viewer, &format!("/api/runs/{id}")).await.json();
    assert_eq!((&run["state"], &run["kind"]), (&json!("completed"), &json!("sweep")));
    let overview = harness.get(Caller::Viewer, "/api/overview").await.json();
    assert_eq!(overview["last_sweep"]["run_id"], id);
    assert_eq!(overview["health"]["github"]["status"], "ok", "{}", overview["health"]);
    // A request whose bus event was lost is served by the next scheduled sweep, because it has a due date.
    testbed.fakes().advance(SignedDuration::from_mins(1));
    harness.clock.set(testbed.now());
    let lost = harness.post(Caller::Operator, "/api/reconciler/run", "").await.json();
    let tick = SweepTrigger::scheduled("sweep", testbed.now(), "there");
    let deadline = testbed.now() + SignedDuration::from_mins(5);
    let SweepOutcome::Done(summary) = sweep.sweep(&tick, deadline).await.unwrap() else { panic!("no sweep") };
    assert_eq!(summary.requests, 1);
    let run = harness.get(Caller::Viewer, &format!("/api/runs/{}", lost["run_id"].as_str().unwrap())).await.json();
    assert_eq!(run["state"], "completed");
}

/// R-FLOW-4: after an outage of Jenkins, an engineer resets the breaker and rebuilds everything that is stale.
#[tokio::test]
async fn outage_is_recovered_through_the_api_without_waiting_for_cooldowns() {
    let repo = RepoSettings { reports: JenkinsReporting::CheckRun, ..RepoSettings::new("acme/shop") };
    let testbed = Testbed::new(FakeSettings { repos: vec![repo], ..FakeSettings::default() }, "");
    let prs: Vec<FakePrId> = (0..15).map(|_| testbed.open()).collect();
    for pr in &prs {
        testbed.with(|fakes| fakes.force(Fault::AgentLost, pr));
    }
    testbed.pass(20).await;
    testbed.set_jenkins_down(true);
    // Jenkins stays down for two hours.
    testbed.pass(120).await;
    let harness = Harness::on(testbed.store.clone(), Options::default());
    harness.clock.set(testbed.now());
    let breaker = harness.get(Caller::Viewer, "/api/circuit-breaker").await.json();
    assert_ne!(breaker["state"], "closed", "{breaker}");
    testbed.set_jenkins_down(false);
    let reset = harness.post(Caller::Admin, "/api/circuit-breaker/reset", "").await;
    assert_eq!((reset.status, &reset.json()["state"]), (200, &json!("closed")));
    let requested = harness.publisher().sent().into_iter().filter_map(|message| match message.destination {
        Destination::Bus { detail_type, .. } => Some(detail_type),
        Destination::Queue { .. } | Destination::Notice(_) => None,
    });
    assert_eq!(requested.collect::<Vec<_>>(), [DetailType::ReconcileRequested], "a sweep is requested");

    let page = "/api/prs/stale?include=needs_intervention&limit=100";
    let stale = harness.get(Caller::Operator, page).await.json();
    let listed = [&stale["prs"], &stale["needs_intervention"]].map(|prs| prs.as_array().unwrap().clone()).concat();
    assert_eq!(listed.len(), 15, "{stale}");
    let commands: Vec<Value> =
        listed.iter().map(|pr| json!({"repo": pr["repo"], "pr_number": pr["number"], "command": "/rebuild"})).collect();
    let accepted = harness.post(Caller::Operator, "/api/commands", &Value::from(commands).to_string()).await;
    assert_eq!(accepted.status, 207, "{}", accepted.text);
    for (n, message) in messages(&harness).iter().enumerate() {
        testbed.bridge.handle(&format!("batch-{n}"), message).await.unwrap();
    }
    // Two builds at a time, each of at most twelve minutes, and the rest of the pipeline; no cooldown in between.
    let all_merged = async |testbed: &Testbed| {
        let mut merged = 0;
        for pr in &prs {
            merged += usize::from(testbed.state(pr).await == Some(State::Merged));
        }
        merged == prs.len()
    };
    let merged = testbed.until(8 * 13 + 20, all_merged).await;
    let mut states = Vec::new();
    for pr in &prs {
        states.push((pr.number, testbed.state(pr).await));
    }
    assert!(merged, "{states:?}");
    let recovered_at = harness.clock.now();
    let builds: Vec<(Timestamp, Timestamp)> = testbed.with(|fakes| {
        let builds = prs.iter().flat_map(|pr| fakes.builds(pr).map(|build| (build.started_at, build.ended_at)));
        builds.filter_map(|(start, end)| Some((start, end?))).filter(|(start, _)| *start >= recovered_at).collect()
    });
    let at_once = |at: Timestamp| builds.iter().filter(|(start, end)| *start <= at && at < *end).count();
    let most = builds.iter().map(|(start, _)| at_once(*start)).max();
    assert_eq!((builds.len(), most), (15, Some(2)), "{builds:?}");
}

/// The numbers in the row of the status issue that starts with this text.
fn issue_numbers(body: &str, begins: &str) -> Vec<u64> {
    let row = body.lines().find(|line| line.starts_with(&format!("| {begins} |")));
    let cells = row.unwrap_or_else(|| panic!("no {begins} in {body}")).split('|').skip(2);
    cells.filter_map(|cell| cell.trim().parse().ok()).collect()
}

#[tokio::test]
async fn status_issue_shows_the_overview_counts() {
    let (testbed, harness, pr, _) = set_up().await;
    for _ in 0..3 {
        testbed.open_and_deliver(NewPullRequest::default()).await;
    }
    testbed.pass(3).await;
    testbed.fakes().person_merges(&pr, "maria");
    testbed.pass(40).await;
    let sweep = sweep(&testbed, "mode = \"act\"\nstatus_issue.repo = 'acme/payments'");
    let trigger = SweepTrigger::scheduled("sweep", testbed.now(), "here");
    let SweepOutcome::Done(summary) =
        sweep.sweep(&trigger, testbed.now() + SignedDuration::from_mins(5)).await.unwrap()
    else {
        panic!("no sweep")
    };
    assert_eq!((summary.errors.len(), summary.coordination.map(|it| it.status)), (0, Some(1)));
    harness.clock.set(testbed.now());
    let overview = harness.get(Caller::Viewer, "/api/overview").await.json();
    testbed.handle_messages().await;
    let body = testbed.fakes().issues().next().map(|(_, issue)| issue.body.clone()).unwrap();
    let states = overview["states"].as_array().unwrap();
    assert_eq!(states.len(), 12);
    for state in states {
        let expected = [&state["count"], &state["stale"]].map(|number| number.as_u64().unwrap());
        assert_eq!(issue_numbers(&body, state["state"].as_str().unwrap()), expected, "{state}");
    }
    for repo in overview["repos"].as_array().unwrap() {
        let expected = ["open", "needs_person", "stale"].map(|field| repo[field].as_u64().unwrap());
        assert_eq!(issue_numbers(&body, repo["repo"].as_str().unwrap()), expected, "{repo}");
    }
    let today = overview["days"].as_array().unwrap().last().unwrap();
    let expected = ["opened", "merged", "healed", "remedies", "escalated"].map(|field| today[field].as_u64().unwrap());
    assert_eq!(issue_numbers(&body, "UTC"), expected);
    assert!(expected[0] == 4 && expected[1] >= 1, "{today}");
}

#[tokio::test]
async fn live_explain_does_not_change_the_record() {
    let (testbed, harness, pr, path) = set_up().await;
    testbed.fakes().advance(SignedDuration::from_mins(1));
    let before = testbed.record(&pr).await;
    let written = testbed.store.usage().usage().items_written;
    harness.clock.set(testbed.now());
    let live = harness.get(Caller::Viewer, &format!("{path}/explain?live=true")).await.json();
    assert_eq!((&live["live"], &live["live_error"]), (&json!(true), &json!(null)), "{live}");
    assert_eq!(testbed.record(&pr).await, before);
    assert!(testbed.store.usage().usage().items_written <= written + 1, "only the rate limit counter was written");
}
