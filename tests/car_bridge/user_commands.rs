//! User commands in pull request comments.

use car_bridge::MessageOutcome;
use domain::run::RunState;
use domain::state::{State, Strategy};
use fakes::{AuditedAction, FakePrId, Fault, NewPullRequest};
use testbed::Testbed;

use crate::remedies::{count, run_state, stuck_pr};

fn suture_comments(testbed: &Testbed, pr: &FakePrId) -> Vec<String> {
    let bodies: Vec<String> = testbed.fakes().comments(pr).map(|comment| comment.body.to_string()).collect();
    bodies.into_iter().filter(|body| body.contains("<!-- suture")).collect()
}

fn reactions(testbed: &Testbed) -> Vec<String> {
    let fakes = testbed.fakes();
    let added = fakes.audit().iter().filter(|effect| effect.action == AuditedAction::ReactionAdded);
    added.map(|effect| effect.detail.clone()).collect()
}

#[tokio::test]
async fn rebuild_comment_gets_reactions_and_spends_no_budget() {
    let testbed = Testbed::quiet();
    let pr = stuck_pr(&testbed, Fault::JenkinsDeaf, 10).await;
    testbed.fakes().person_comments(&pr, "maria", "/rebuild");
    testbed.pass(120).await;
    let record = testbed.record(&pr).await;
    assert_eq!((record.state, record.retry_counts.rebuild), (State::Merged, 0));
    assert_eq!(reactions(&testbed).len(), 2, "👀 and 🚀: {:?}", reactions(&testbed));
    assert_eq!(suture_comments(&testbed, &pr), [""; 0], "a successful command posts no comment");
}

#[tokio::test]
async fn unauthorized_command_is_answered_once_with_the_required_permission() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.fakes().person_comments(&pr, "danny", "/cancel");
    testbed.fakes().advance(jiff::SignedDuration::from_secs(3));
    testbed.deliver_webhooks().await;
    let (id, body) = testbed.publisher.take_message().unwrap();
    for _ in 0..3 {
        let handled = testbed.bridge.handle(&id, &body).await.unwrap();
        assert!(!matches!(handled, MessageOutcome::Done(_)), "{handled:?}");
    }
    assert_ne!(testbed.record(&pr).await.state, State::Closed);
    let comments = suture_comments(&testbed, &pr);
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(
        comments[0].contains("`/cancel` needs maintain permission on this repository, but yours is write"),
        "{comments:?}"
    );
}

#[tokio::test]
async fn invalid_command_is_answered_with_the_valid_ones() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.fakes().person_comments(&pr, "maria", "/merge");
    testbed.pass(1).await;
    let comments = suture_comments(&testbed, &pr);
    assert!(comments.len() == 1 && comments[0].contains("Valid now"), "{comments:?}");
}

#[tokio::test]
async fn status_and_explain_are_answered_in_a_comment() {
    let testbed = Testbed::quiet();
    let pr = stuck_pr(&testbed, Fault::JenkinsDeaf, 10).await;
    testbed.fakes().person_comments(&pr, "danny", "/status");
    testbed.pass(1).await;
    testbed.fakes().person_comments(&pr, "danny", "/explain");
    testbed.pass(1).await;
    let comments = suture_comments(&testbed, &pr);
    assert_eq!(comments.len(), 2, "{comments:?}");
    assert!(
        comments[0].contains("**CREATED** for")
            && comments[0].contains("Suture will look at it again in the next sweep."),
        "{comments:?}"
    );
    assert!(comments[1].contains("Rule 9a") && comments[1].contains("in the next sweep"), "{comments:?}");
    assert!(comments[1].contains("- `/rebuild`: Runs the Jenkins build again."), "{comments:?}");
}

#[tokio::test]
async fn cancel_closes_the_pull_request_and_abandons_the_vulnerability() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.fakes().person_comments(&pr, "maria", "/cancel");
    testbed.pass(5).await;
    let record = testbed.record(&pr).await;
    assert_eq!(record.state, State::Closed);
    assert_eq!(count(&testbed, AuditedAction::PullClosed), 1);
    let comments = suture_comments(&testbed, &pr);
    assert!(comments.iter().any(|body| body.contains("requested `/cancel`")), "{comments:?}");
    let id = record.vulnerability_id.clone().unwrap();
    let known = platform::store::queries::vulnerability(
        &testbed.store,
        &record.id.repo,
        &record.base_branch,
        &id,
        testbed.now(),
    );
    assert!(known.await.unwrap().abandoned);
}

#[tokio::test]
async fn hold_and_resume_set_and_clear_the_hold_flag() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.fakes().person_comments(&pr, "maria", "/hold release freeze");
    testbed.pass(1).await;
    assert!(testbed.record(&pr).await.hold);
    testbed.fakes().person_comments(&pr, "maria", "/resume");
    testbed.pass(1).await;
    assert!(!testbed.record(&pr).await.hold);
}

#[tokio::test]
async fn run_requiring_approval_waits_for_approve() {
    let testbed = Testbed::configured("mode = \"act\"\nrules.approval_required = [\"rebuild\"]", |_| {});
    let pr = stuck_pr(&testbed, Fault::JenkinsDeaf, 10).await;
    tests::claim_in(&testbed, &pr, "run-1").await;
    let handled = testbed.handle_messages().await;
    assert!(matches!(&handled[..], [Ok(MessageOutcome::Deferred(why))] if why.contains("/approve")), "{handled:?}");
    assert_eq!(run_state(&testbed, "run-1").await, RunState::AwaitingApproval);
    assert_eq!(count(&testbed, AuditedAction::BuildQueued) + count(&testbed, AuditedAction::RepositoryScanned), 0);
    testbed.fakes().person_comments(&pr, "maria", "/approve");
    testbed.pass(120).await;
    let record = testbed.record(&pr).await;
    assert_eq!(record.state, State::Merged, "{:?}", suture_comments(&testbed, &pr));
    assert_eq!(run_state(&testbed, "run-1").await, RunState::Completed);
    assert_eq!(record.retry_counts.of(Strategy::Rebuild), 0);
}

#[tokio::test]
async fn commands_over_the_hourly_limit_are_refused() {
    let testbed = Testbed::configured("mode = \"act\"\nlimits.commands_per_person_per_hour = 2", |_| {});
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    for _ in 0..3 {
        testbed.fakes().person_comments(&pr, "danny", "/status");
        testbed.pass(1).await;
    }
    let comments = suture_comments(&testbed, &pr);
    assert!(comments.len() == 3 && comments[2].contains("rate limit: 2 commands per hour"), "{comments:?}");
}
