//! What people ask for in comments.

use car_bridge::MessageOutcome;
use domain::run::RunState;
use domain::state::{State, Strategy};
use fakes::{AuditedAction, FakePrId, Fault, NewPullRequest};
use testbed::Testbed;

use crate::remedies::{count, run_state, stuck};

fn said(stage: &Testbed, pr: &FakePrId) -> Vec<String> {
    let bodies: Vec<String> = stage.fakes().comments(pr).map(|comment| comment.body.to_string()).collect();
    bodies.into_iter().filter(|body| body.contains("<!-- suture")).collect()
}

fn reactions(stage: &Testbed) -> Vec<String> {
    let world = stage.fakes();
    let added = world.audit().iter().filter(|effect| effect.action == AuditedAction::ReactionAdded);
    added.map(|effect| effect.detail.clone()).collect()
}

#[tokio::test]
async fn rebuild_comment_gets_reactions_and_spends_no_budget() {
    let stage = Testbed::quiet();
    let pr = stuck(&stage, Fault::JenkinsDeaf, 10).await;
    stage.fakes().person_comments(&pr, "maria", "/rebuild");
    stage.pass(120).await;
    let record = stage.record(&pr).await;
    assert_eq!((record.state, record.retry_counts.rebuild), (State::Merged, 0));
    assert_eq!(reactions(&stage).len(), 2, "👀 and 🚀: {:?}", reactions(&stage));
    assert_eq!(said(&stage, &pr), [""; 0], "what works needs no words");
}

#[tokio::test]
async fn unauthorized_command_is_answered_once_with_the_required_permission() {
    let stage = Testbed::quiet();
    let pr = stage.open_and_deliver(NewPullRequest::default()).await;
    stage.fakes().person_comments(&pr, "danny", "/cancel");
    stage.fakes().advance(jiff::SignedDuration::from_secs(3));
    stage.deliver_webhooks().await;
    let (id, body) = stage.publisher.take_message().unwrap();
    for _ in 0..3 {
        let handled = stage.bridge.handle(&id, &body).await.unwrap();
        assert!(!matches!(handled, MessageOutcome::Done(_)), "{handled:?}");
    }
    assert_ne!(stage.record(&pr).await.state, State::Closed);
    let said = said(&stage, &pr);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("`/cancel` needs maintain permission on this repository, but yours is write"), "{said:?}");
}

#[tokio::test]
async fn invalid_command_is_answered_with_the_valid_ones() {
    let stage = Testbed::quiet();
    let pr = stage.open_and_deliver(NewPullRequest::default()).await;
    stage.fakes().person_comments(&pr, "maria", "/merge");
    stage.pass(1).await;
    let said = said(&stage, &pr);
    assert!(said.len() == 1 && said[0].contains("Valid now"), "{said:?}");
}

#[tokio::test]
async fn status_and_explain_are_answered_in_a_comment() {
    let stage = Testbed::quiet();
    let pr = stuck(&stage, Fault::JenkinsDeaf, 10).await;
    stage.fakes().person_comments(&pr, "danny", "/status");
    stage.pass(1).await;
    stage.fakes().person_comments(&pr, "danny", "/explain");
    stage.pass(1).await;
    let said = said(&stage, &pr);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains("**CREATED** for") && said[0].contains("Suture will look at it again in the next sweep."),
        "{said:?}"
    );
    assert!(said[1].contains("Rule 9a") && said[1].contains("in the next sweep"), "{said:?}");
    assert!(said[1].contains("- `/rebuild`: Runs the Jenkins build again."), "{said:?}");
}

#[tokio::test]
async fn cancel_closes_the_pull_request_and_abandons_the_vulnerability() {
    let stage = Testbed::quiet();
    let pr = stage.open_and_deliver(NewPullRequest::default()).await;
    stage.fakes().person_comments(&pr, "maria", "/cancel");
    stage.pass(5).await;
    let record = stage.record(&pr).await;
    assert_eq!(record.state, State::Closed);
    assert_eq!(count(&stage, AuditedAction::PullClosed), 1);
    let said = said(&stage, &pr);
    assert!(said.iter().any(|body| body.contains("requested `/cancel`")), "{said:?}");
    let id = record.vulnerability_id.clone().unwrap();
    let known = platform::queries::vulnerability(&stage.store, &record.id.repo, &record.base_branch, &id, stage.now());
    assert!(known.await.unwrap().abandoned);
}

#[tokio::test]
async fn hold_and_resume_set_and_clear_the_hold_flag() {
    let stage = Testbed::quiet();
    let pr = stage.open_and_deliver(NewPullRequest::default()).await;
    stage.fakes().person_comments(&pr, "maria", "/hold release freeze");
    stage.pass(1).await;
    assert!(stage.record(&pr).await.hold);
    stage.fakes().person_comments(&pr, "maria", "/resume");
    stage.pass(1).await;
    assert!(!stage.record(&pr).await.hold);
}

#[tokio::test]
async fn run_requiring_approval_waits_for_approve() {
    let stage = Testbed::configured("mode = \"act\"\npolicy.approval_required = [\"rebuild\"]", |_| {});
    let pr = stuck(&stage, Fault::JenkinsDeaf, 10).await;
    tests::claim_in(&stage, &pr, "run-1").await;
    let handled = stage.handle_messages().await;
    assert!(matches!(&handled[..], [Ok(MessageOutcome::Deferred(why))] if why.contains("/approve")), "{handled:?}");
    assert_eq!(run_state(&stage, "run-1").await, RunState::AwaitingApproval);
    assert_eq!(count(&stage, AuditedAction::BuildQueued) + count(&stage, AuditedAction::RepositoryScanned), 0);
    stage.fakes().person_comments(&pr, "maria", "/approve");
    stage.pass(120).await;
    let record = stage.record(&pr).await;
    assert_eq!(record.state, State::Merged, "{:?}", said(&stage, &pr));
    assert_eq!(run_state(&stage, "run-1").await, RunState::Completed);
    assert_eq!(record.retry_counts.of(Strategy::Rebuild), 0);
}

#[tokio::test]
async fn commands_over_the_hourly_limit_are_refused() {
    let stage = Testbed::configured("mode = \"act\"\nlimits.commands_per_person_per_hour = 2", |_| {});
    let pr = stage.open_and_deliver(NewPullRequest::default()).await;
    for _ in 0..3 {
        stage.fakes().person_comments(&pr, "danny", "/status");
        stage.pass(1).await;
    }
    let said = said(&stage, &pr);
    assert!(said.len() == 3 && said[2].contains("rate limit: 2 commands per hour"), "{said:?}");
}
