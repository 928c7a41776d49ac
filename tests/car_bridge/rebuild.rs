//! Rebuilds by GitHub Actions and by Jenkins.

use car_bridge::MessageOutcome;
use domain::run::RunState;
use domain::state::State;
use fakes::{AuditedAction, Fault, JenkinsReporting, RepoSettings};
use testbed::Testbed;

use crate::remedies::{run_state, stuck_pr};

fn actions_testbed() -> Testbed {
    Testbed::configured("mode = \"act\"\nrebuild.via = \"github\"", |settings| {
        settings.repos =
            vec![RepoSettings { reports: JenkinsReporting::Actions, ..RepoSettings::new("acme/payments") }];
    })
}

fn reruns(testbed: &Testbed) -> usize {
    testbed.fakes().audit().iter().filter(|effect| effect.action == AuditedAction::JobsRerun).count()
}

#[tokio::test]
async fn rebuild_reruns_failed_github_actions_jobs() {
    let testbed = actions_testbed();
    let pr = stuck_pr(&testbed, Fault::AgentLost, 30).await;
    assert_eq!(testbed.record(&pr).await.state, State::ChecksFailed);
    tests::claim_in(&testbed, &pr, "run-1").await;
    let (id, body) = testbed.publisher.take_message().unwrap();
    let handled = testbed.bridge.handle(&id, &body).await.unwrap();
    assert_eq!(handled, MessageOutcome::Done("re-requested 1 checks on GitHub".to_owned()));
    assert!(matches!(testbed.bridge.handle(&id, &body).await.unwrap(), MessageOutcome::Noop(_)));
    assert_eq!(reruns(&testbed), 1);
    testbed.pass(120).await;
    assert_eq!(testbed.record(&pr).await.state, State::Merged);
    assert_eq!(run_state(&testbed, "run-1").await, RunState::Completed);
    assert!(testbed.fakes().unknown_requests().is_empty(), "{:?}", testbed.fakes().unknown_requests());
}

#[tokio::test]
async fn rebuild_is_rejected_while_the_workflow_is_running() {
    let testbed = actions_testbed();
    let pr = stuck_pr(&testbed, Fault::AgentLost, 30).await;
    // A user already reran the workflow, and its webhook has not arrived yet.
    testbed.fakes().person_reruns(&pr, "maria");
    testbed.fakes().advance(jiff::SignedDuration::from_secs(2));
    tests::claim_in(&testbed, &pr, "run-1").await;
    let handled = testbed.handle_messages().await;
    assert!(matches!(&handled[..], [Ok(MessageOutcome::Rejected(why))] if why.contains("is running")), "{handled:?}");
    assert_eq!((reruns(&testbed), testbed.record(&pr).await.retry_counts.rebuild), (1, 0), "the budget is refunded");
}

/// The worker crashed after GitHub accepted the rerun: a workflow run started since then counts as ours.
#[tokio::test]
async fn rebuild_recognises_its_rerun_after_a_lost_response() {
    let testbed = actions_testbed();
    let pr = stuck_pr(&testbed, Fault::AgentLost, 30).await;
    tests::claim_in(&testbed, &pr, "run-1").await;
    testbed.fakes().person_reruns(&pr, "suture[bot]");
    let handled = testbed.handle_messages().await;
    assert_eq!(handled, [Ok(MessageOutcome::Done("re-requested 1 checks on GitHub".to_owned()))]);
    assert_eq!(reruns(&testbed), 1);
    testbed.pass(120).await;
    assert_eq!(testbed.record(&pr).await.state, State::Merged);
}

#[tokio::test]
async fn rebuild_of_another_apps_check_fails_and_names_the_setting() {
    // The check run belongs to Jenkins' App, so GitHub returns 403 on a rerequest.
    let testbed = Testbed::configured("mode = \"act\"\nrebuild.via = \"github\"", |settings| {
        settings.repos =
            vec![RepoSettings { reports: JenkinsReporting::CheckRun, ..RepoSettings::new("acme/payments") }];
    });
    let pr = stuck_pr(&testbed, Fault::AgentLost, 30).await;
    tests::claim_in(&testbed, &pr, "run-1").await;
    let handled = testbed.handle_messages().await;
    assert!(
        matches!(&handled[..], [Ok(MessageOutcome::Failed(why))] if why.contains("change `rebuild.via`")),
        "{handled:?}"
    );
    let record = testbed.record(&pr).await;
    assert!(record.refused.is_some_and(|refused| refused.why.contains("rebuild.via")), "a retry would not help");
}

#[tokio::test]
async fn jenkins_trigger_stores_its_queue_item() {
    let testbed = Testbed::configured("mode = \"act\"", |settings| {
        settings.repos =
            vec![RepoSettings { reports: JenkinsReporting::CheckRun, ..RepoSettings::new("acme/payments") }];
    });
    let pr = stuck_pr(&testbed, Fault::AgentLost, 30).await;
    tests::claim_in(&testbed, &pr, "run-1").await;
    let handled = testbed.handle_messages().await;
    assert!(matches!(&handled[..], [Ok(MessageOutcome::Done(_))]), "{handled:?}");
    let run = testbed.bridge.engine().run(&domain::id::RunId::new("run-1"), testbed.now()).await.unwrap().unwrap();
    let output = run.step("build").unwrap().output.clone().unwrap();
    assert!(output.starts_with("queue item "), "{output}");
    assert_eq!(run.state, RunState::WaitingExternal);
    assert!(run.poll_at.unwrap() < run.wait_deadline.unwrap(), "{run:?}");
    testbed.pass(120).await;
    assert_eq!(testbed.record(&pr).await.state, State::Merged);
}
