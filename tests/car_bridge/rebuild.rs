//! The many ways to run checks again: GitHub Actions, and what an order becomes at Jenkins.

use car_bridge::MessageOutcome;
use domain::run::RunState;
use domain::state::State;
use fakes::{AuditedAction, Fault, JenkinsReporting, RepoSettings};
use testbed::Testbed;

use crate::remedies::{run_state, stuck};

fn actions() -> Testbed {
    Testbed::configured("mode = \"act\"\nrebuild.via = \"github\"", |settings| {
        settings.repos =
            vec![RepoSettings { reports: JenkinsReporting::Actions, ..RepoSettings::new("acme/payments") }];
    })
}

fn reruns(stage: &Testbed) -> usize {
    stage.fakes().audit().iter().filter(|effect| effect.action == AuditedAction::JobsRerun).count()
}

#[tokio::test]
async fn rebuild_reruns_failed_github_actions_jobs() {
    let stage = actions();
    let pr = stuck(&stage, Fault::AgentLost, 30).await;
    assert_eq!(stage.record(&pr).await.state, State::ChecksFailed);
    tests::claim_in(&stage, &pr, "run-1").await;
    let (id, body) = stage.publisher.take_message().unwrap();
    let handled = stage.bridge.handle(&id, &body).await.unwrap();
    assert_eq!(handled, MessageOutcome::Done("re-requested 1 checks on GitHub".to_owned()));
    assert!(matches!(stage.bridge.handle(&id, &body).await.unwrap(), MessageOutcome::Noop(_)));
    assert_eq!(reruns(&stage), 1);
    stage.pass(120).await;
    assert_eq!(stage.record(&pr).await.state, State::Merged);
    assert_eq!(run_state(&stage, "run-1").await, RunState::Completed);
    assert!(stage.fakes().unknown_requests().is_empty(), "{:?}", stage.fakes().unknown_requests());
}

#[tokio::test]
async fn rebuild_is_rejected_while_the_workflow_is_running() {
    let stage = actions();
    let pr = stuck(&stage, Fault::AgentLost, 30).await;
    // Somebody was faster, and nobody has told us yet.
    stage.fakes().person_reruns(&pr, "maria");
    stage.fakes().advance(jiff::SignedDuration::from_secs(2));
    tests::claim_in(&stage, &pr, "run-1").await;
    let handled = stage.handle_messages().await;
    assert!(matches!(&handled[..], [Ok(MessageOutcome::Rejected(why))] if why.contains("is running")), "{handled:?}");
    assert_eq!((reruns(&stage), stage.record(&pr).await.retry_counts.rebuild), (1, 0), "given back");
}

/// Our worker died after GitHub had accepted: the run that was begun since is ours.
#[tokio::test]
async fn rebuild_recognises_its_rerun_after_a_lost_response() {
    let stage = actions();
    let pr = stuck(&stage, Fault::AgentLost, 30).await;
    tests::claim_in(&stage, &pr, "run-1").await;
    stage.fakes().person_reruns(&pr, "suture[bot]");
    let handled = stage.handle_messages().await;
    assert_eq!(handled, [Ok(MessageOutcome::Done("re-requested 1 checks on GitHub".to_owned()))]);
    assert_eq!(reruns(&stage), 1);
    stage.pass(120).await;
    assert_eq!(stage.record(&pr).await.state, State::Merged);
}

#[tokio::test]
async fn rebuild_of_another_apps_check_fails_and_names_the_setting() {
    // Jenkins' App owns its check run: GitHub answers 403 when we ask for it.
    let stage = Testbed::configured("mode = \"act\"\nrebuild.via = \"github\"", |settings| {
        settings.repos =
            vec![RepoSettings { reports: JenkinsReporting::CheckRun, ..RepoSettings::new("acme/payments") }];
    });
    let pr = stuck(&stage, Fault::AgentLost, 30).await;
    tests::claim_in(&stage, &pr, "run-1").await;
    let handled = stage.handle_messages().await;
    assert!(
        matches!(&handled[..], [Ok(MessageOutcome::Failed(why))] if why.contains("change `rebuild.via`")),
        "{handled:?}"
    );
    let record = stage.record(&pr).await;
    assert!(record.refused.is_some_and(|refused| refused.why.contains("rebuild.via")), "asking again would not help");
}

#[tokio::test]
async fn jenkins_trigger_stores_its_queue_item() {
    let stage = Testbed::configured("mode = \"act\"", |settings| {
        settings.repos =
            vec![RepoSettings { reports: JenkinsReporting::CheckRun, ..RepoSettings::new("acme/payments") }];
    });
    let pr = stuck(&stage, Fault::AgentLost, 30).await;
    tests::claim_in(&stage, &pr, "run-1").await;
    let handled = stage.handle_messages().await;
    assert!(matches!(&handled[..], [Ok(MessageOutcome::Done(_))]), "{handled:?}");
    let run = stage.bridge.engine().run(&domain::id::RunId::new("run-1"), stage.now()).await.unwrap().unwrap();
    let output = run.step("build").unwrap().output.clone().unwrap();
    assert!(output.starts_with("queue item "), "{output}");
    assert_eq!(run.state, RunState::WaitingExternal);
    assert!(run.look_at.unwrap() < run.wait_deadline.unwrap(), "{run:?}");
    stage.pass(120).await;
    assert_eq!(stage.record(&pr).await.state, State::Merged);
}
