//! Rebuilds by Jenkins, by GitHub Actions and by a comment.

use car_bridge::MessageOutcome;
use domain::run::RunState;
use domain::state::State;
use fakes::{AuditedAction, Fault, JenkinsReporting, RepoSettings};
use jiff::SignedDuration;
use platform::jenkins::job_of;
use testbed::{CallFault, Testbed};

use crate::remedies::{count, run_state, stuck_pr};

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
    testbed.fakes().advance(SignedDuration::from_secs(2));
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

const RETEST: &str = "retest this please";

/// A testbed whose rebuilds are done this way, and the action that each rebuild causes.
fn rebuilding_via(via: &str) -> (Testbed, AuditedAction) {
    let (reports, action) = match via {
        "github" => (JenkinsReporting::Actions, AuditedAction::JobsRerun),
        "comment" => (JenkinsReporting::CheckRun, AuditedAction::CommentCreated),
        "rescan" => (JenkinsReporting::CheckRun, AuditedAction::RepositoryScanned),
        _ => (JenkinsReporting::CheckRun, AuditedAction::BuildQueued),
    };
    let config = format!("mode = \"act\"\nrebuild.via = \"{via}\"\nrebuild.comment = \"{RETEST}\"");
    let testbed = Testbed::configured(&config, |settings| {
        settings.repos = vec![RepoSettings { reports, ..RepoSettings::new("acme/payments") }];
    });
    (testbed, action)
}

const VIAS: [&str; 5] = ["jenkins", "replay", "rescan", "comment", "github"];

#[tokio::test]
async fn rebuild_is_requested_once_despite_redelivery_by_every_via() {
    for via in VIAS {
        let (testbed, action) = rebuilding_via(via);
        let pr = stuck_pr(&testbed, Fault::AgentLost, 30).await;
        assert_eq!(testbed.record(&pr).await.state, State::ChecksFailed, "{via}");
        tests::claim_in(&testbed, &pr, "run-1").await;
        let before = count(&testbed, action);
        let (id, body) = testbed.publisher.take_message().unwrap();
        for n in 0..3 {
            let handled = testbed.bridge.handle(&id, &body).await.unwrap();
            assert_eq!(matches!(handled, MessageOutcome::Done(_)), n == 0, "{via}: {handled:?}");
        }
        assert_eq!(count(&testbed, action) - before, 1, "{via}");
        assert_eq!(run_state(&testbed, "run-1").await, RunState::WaitingExternal, "{via}");
        let unknown = testbed.fakes().unknown_requests().to_vec();
        assert!(unknown.is_empty(), "{via}: {unknown:?}");
    }
}

/// A user starts a build, and its webhook has not arrived yet. A comment started a second build.
#[tokio::test]
async fn rebuild_is_rejected_while_checks_are_running_by_every_via() {
    for via in VIAS {
        let (testbed, action) = rebuilding_via(via);
        let pr = stuck_pr(&testbed, Fault::AgentLost, 30).await;
        if via == "github" {
            testbed.fakes().person_reruns(&pr, "maria");
        } else {
            let record = testbed.record(&pr).await;
            testbed.jenkins.trigger_build(&job_of(&record, testbed.policies.base())).await.unwrap();
        }
        testbed.fakes().advance(SignedDuration::from_secs(40));
        tests::claim_in(&testbed, &pr, "run-1").await;
        let before = count(&testbed, action);
        let handled = testbed.handle_messages().await;
        assert!(
            matches!(&handled[..], [Ok(MessageOutcome::Rejected(why))] if why.ends_with("is running")),
            "{via}: {handled:?}"
        );
        let record = testbed.record(&pr).await;
        assert_eq!((count(&testbed, action) - before, record.retry_counts.rebuild), (0, 0), "{via}");
    }
}

/// GitHub's response was lost, and the checks that the comment started are running when the run is resumed.
#[tokio::test]
async fn rebuild_recognises_its_own_comment_after_a_lost_response() {
    for call in 1..40 {
        let (testbed, action) = rebuilding_via("comment");
        let pr = stuck_pr(&testbed, Fault::AgentLost, 30).await;
        tests::claim_in(&testbed, &pr, "run-1").await;
        let (id, body) = testbed.publisher.take_message().unwrap();
        let before = count(&testbed, action);
        testbed.faults.plan(call, CallFault::AnswerLost);
        let first = testbed.bridge.handle(&id, &body).await;
        let struck = testbed.faults.struck();
        testbed.faults.restart();
        let posted = count(&testbed, action) - before;
        if posted == 1 && first.is_err() {
            let record = testbed.record(&pr).await;
            testbed.jenkins.trigger_build(&job_of(&record, testbed.policies.base())).await.unwrap();
            testbed.fakes().advance(SignedDuration::from_mins(7));
            let again = testbed.bridge.handle(&id, &body).await;
            assert!(matches!(again, Ok(MessageOutcome::Done(_) | MessageOutcome::Noop(_))), "call {call}: {again:?}");
            assert_eq!(count(&testbed, action) - before, 1, "call {call}");
        }
        if !struck {
            assert!(call > 5, "{call}");
            return;
        }
    }
    panic!("a rebuild by a comment takes more than 40 calls");
}
