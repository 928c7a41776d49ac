//! User commands in pull request comments.

use car_bridge::MessageOutcome;
use domain::command::{Command, CommandMessage, CommandSource, MessageVersion};
use domain::event::{Event, EventKind};
use domain::id::{CommandId, RunId};
use domain::run::{Initiator, RunEnd, RunState, RunTransition};
use domain::state::{State, Strategy};
use fakes::{AuditedAction, FakePrId, Fault, JenkinsReporting, NewPullRequest, RepoSettings};
use jiff::SignedDuration;
use platform::publish::queue_message::QueueMessage;
use testbed::{Testbed, pr_id};

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
    testbed.fakes().advance(SignedDuration::from_secs(3));
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
    // Who moved the run, and when, is read by the API and by audits.
    let run = testbed.bridge.engine().run(&RunId::new("run-1"), testbed.now()).await.unwrap().unwrap();
    let moves = |transition: &RunTransition| {
        let context = &transition.context;
        (transition.to, context.initiator, context.by.clone(), context.reason.clone())
    };
    let (maria, rule) = (Some("maria".to_owned()), Some("rules.approval_required".to_owned()));
    assert_eq!(
        run.transitions.iter().map(moves).collect::<Vec<_>>(),
        [
            (RunState::Running, Initiator::Policy, None, rule.clone()),
            (RunState::AwaitingApproval, Initiator::Policy, None, rule),
            (RunState::Running, Initiator::Approval, maria, None),
            (RunState::WaitingExternal, Initiator::System, None, None),
            (RunState::Completed, Initiator::Webhook, Some("github-webhook".to_owned()), None),
        ]
    );
    assert!(run.transitions.is_sorted_by_key(|transition| transition.context.at));
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

/// A repository with one build slot, in which a build waits ten minutes for an executor. One pull request's rebuild has the slot.
async fn with_one_slot_in_use(more: &str) -> (Testbed, FakePrId) {
    let config = format!("mode = \"act\"\nlimits.rebuilds_in_flight_per_repo = 1\n{more}");
    let testbed = Testbed::configured(&config, |settings| {
        settings.timing.queue_ms = (600_000, 600_000);
        settings.repos =
            vec![RepoSettings { reports: JenkinsReporting::CheckRun, ..RepoSettings::new("acme/payments") }];
    });
    let other = stuck_pr(&testbed, Fault::AgentLost, 0).await;
    let pr = stuck_pr(&testbed, Fault::AgentLost, 60).await;
    tests::claim_in(&testbed, &other, "run-1").await;
    let handled = testbed.handle_messages().await;
    assert!(matches!(&handled[..], [Ok(MessageOutcome::Done(_))]), "{handled:?}");
    (testbed, pr)
}

/// Each message that a sweep resends, and each redelivery, was counted as one more command of the person.
#[tokio::test]
async fn resent_command_counts_no_rate_and_adds_no_reaction() {
    let (testbed, pr) = with_one_slot_in_use("limits.commands_per_person_per_hour = 2").await;
    testbed.fakes().person_comments(&pr, "maria", "/rebuild");
    testbed.pass(1).await;
    assert_eq!(reactions(&testbed).len(), 1, "👀: {:?}", reactions(&testbed));
    let comments = suture_comments(&testbed, &pr);
    testbed.sweeping.set(true);
    testbed.pass(6).await;
    assert!(testbed.summaries().iter().map(|summary| summary.resent).sum::<u32>() >= 3);
    assert_eq!(reactions(&testbed).len(), 1, "{:?}", reactions(&testbed));
    assert_eq!(suture_comments(&testbed, &pr), comments, "no second answer");
    testbed.fakes().person_comments(&pr, "maria", "/status");
    testbed.pass(1).await;
    let comments = suture_comments(&testbed, &pr);
    assert!(comments.last().is_some_and(|body| body.contains("Remedy in progress: rebuild")), "{comments:?}");
    testbed.pass(120).await;
    assert_eq!(testbed.record(&pr).await.state, State::Merged);
    let rockets = reactions(&testbed).iter().filter(|reaction| reaction.contains("rocket")).count();
    assert_eq!(rockets, 2, "of /status and, when it was executed, of /rebuild: {:?}", reactions(&testbed));
}

/// A second delivery of a refused command was accepted: its log entry was found, but not read.
#[tokio::test]
async fn redelivered_refusal_stays_refused() {
    let testbed = Testbed::configured("mode = \"act\"\nrules.approval_required = [\"rebuild\"]", |_| {});
    let pr = stuck_pr(&testbed, Fault::JenkinsDeaf, 10).await;
    tests::claim_in(&testbed, &pr, "run-1").await;
    testbed.handle_messages().await;
    testbed.fakes().person_comments(&pr, "danny", "/approve");
    testbed.fakes().advance(SignedDuration::from_secs(3));
    testbed.deliver_webhooks().await;
    let (id, body) = testbed.publisher.take_message().unwrap();
    for _ in 0..3 {
        let handled = testbed.bridge.handle(&id, &body).await.unwrap();
        assert!(
            matches!(&handled, MessageOutcome::Rejected(why) if why.contains("needs maintain permission")),
            "{handled:?}"
        );
    }
    assert_eq!(run_state(&testbed, "run-1").await, RunState::AwaitingApproval);
    let comments = suture_comments(&testbed, &pr);
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(!reactions(&testbed).iter().any(|reaction| reaction.contains("eyes")), "{:?}", reactions(&testbed));
}

/// The second command cancelled the run of the first one, and nobody was told.
#[tokio::test]
async fn two_commands_in_one_comment_run_one_after_the_other() {
    let testbed = Testbed::quiet();
    let pr = stuck_pr(&testbed, Fault::JenkinsDeaf, 10).await;
    testbed.fakes().push_base(&pr.repo);
    testbed.pass(1).await;
    let before = testbed.record(&pr).await.head_sha;
    testbed.fakes().person_comments(&pr, "maria", "/update-branch\n/rebuild");
    testbed.fakes().advance(SignedDuration::from_secs(3));
    testbed.deliver_webhooks().await;
    let handled = testbed.handle_messages().await;
    assert!(
        matches!(&handled[..], [Ok(MessageOutcome::Done(_)), Ok(MessageOutcome::Deferred(why))] if why == "`/update-branch` is in progress"),
        "{handled:?}"
    );
    let comments = suture_comments(&testbed, &pr);
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(comments[0].contains("@maria `/rebuild` waits: `/update-branch` is in progress."), "{comments:?}");
    testbed.sweeping.set(true);
    testbed.pass(3).await;
    assert_ne!(testbed.record(&pr).await.head_sha, before);
    let log = testbed.logged(&pr, EventKind::CommandReceived).await;
    let names: Vec<_> = log.iter().filter_map(|event| event.payload.name.as_deref()).collect();
    assert_eq!(names, ["/update-branch", "/rebuild"]);
    assert_eq!(run_end(&testbed, &log[0]).await, Some(RunEnd::Completed));
    // The new head starts its own checks: the second command is refused with the reason, or executed on the new head.
    let comments = suture_comments(&testbed, &pr);
    assert!(log[1].payload.refused == (comments.len() == 2), "{log:?} {comments:?}");
    testbed.pass(120).await;
    assert_eq!(testbed.record(&pr).await.state, State::Merged);
}

async fn run_end(testbed: &Testbed, event: &Event) -> Option<RunEnd> {
    let run = event.payload.run.clone().unwrap();
    testbed.bridge.engine().run(&run, testbed.now()).await.unwrap().unwrap().end
}

/// The first command waits for a build slot; the second one is executed after it, and both say so.
#[tokio::test]
async fn command_waits_for_an_earlier_command_without_a_slot() {
    let (testbed, pr) = with_one_slot_in_use("").await;
    testbed.fakes().push_base(&pr.repo);
    testbed.fakes().person_comments(&pr, "maria", "/rebuild");
    testbed.pass(1).await;
    let comments = suture_comments(&testbed, &pr);
    assert!(comments.len() == 1 && comments[0].contains("`/rebuild` waits: all 1 build slots"), "{comments:?}");
    testbed.fakes().person_comments(&pr, "maria", "/update-branch");
    testbed.pass(1).await;
    let comments = suture_comments(&testbed, &pr);
    assert!(
        comments.len() == 2 && comments[1].contains("`/update-branch` waits: `/rebuild` is in progress"),
        "{comments:?}"
    );
    assert_eq!(reactions(&testbed).len(), 2, "👀 on both: {:?}", reactions(&testbed));
    testbed.sweeping.set(true);
    testbed.pass(60).await;
    assert_eq!(suture_comments(&testbed, &pr).len(), 2);
    let rockets = reactions(&testbed).iter().filter(|reaction| reaction.contains("rocket")).count();
    assert_eq!((rockets, count(&testbed, AuditedAction::BranchUpdated)), (2, 1), "{:?}", reactions(&testbed));
}

#[tokio::test]
async fn api_commands_wait_for_each_other_too() {
    let (testbed, pr) = with_one_slot_in_use("").await;
    testbed.fakes().push_base(&pr.repo);
    for (n, command) in [Command::Rebuild, Command::UpdateBranch].into_iter().enumerate() {
        let id = pr_id(&pr);
        let message = CommandMessage {
            v: MessageVersion,
            pr_number: id.number,
            repo: id.repo,
            command,
            source: CommandSource::AdminApi,
            requested_by: "ops".to_owned(),
            timestamp: testbed.now(),
            command_id: CommandId::new(format!("cmd:api#{n}")),
            run_id: None,
            head_sha: None,
            args: None,
            comment: None,
            resent: false,
        };
        testbed.publisher.enqueue(&format!("m{n}"), &QueueMessage::Command(message));
    }
    let handled = testbed.handle_messages().await;
    assert!(
        matches!(&handled[..], [Ok(MessageOutcome::Deferred(_)), Ok(MessageOutcome::Deferred(why))] if why == "`/rebuild` is in progress"),
        "{handled:?}"
    );
    testbed.sweeping.set(true);
    testbed.pass(60).await;
    assert_eq!(count(&testbed, AuditedAction::BranchUpdated), 1);
    let log = testbed.logged(&pr, EventKind::CommandReceived).await;
    assert_eq!(log.iter().map(|event| event.payload.via).collect::<Vec<_>>(), [Some(CommandSource::AdminApi); 2]);
}

/// A command that failed was reported as one that was not executed.
#[tokio::test]
async fn failed_command_is_answered_as_failed_without_a_rocket() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.pass(1).await;
    testbed.fakes().conflict(&pr);
    testbed.fakes().person_comments(&pr, "maria", "/update-branch");
    testbed.pass(1).await;
    let comments = suture_comments(&testbed, &pr);
    assert!(comments.len() == 1 && comments[0].contains("`/update-branch` failed: conflict."), "{comments:?}");
    let reactions: Vec<String> =
        reactions(&testbed).iter().map(|one| one.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(reactions, ["eyes", "confused"]);
}

#[tokio::test]
async fn old_cancel_is_answered_and_not_executed() {
    let testbed = Testbed::quiet();
    let pr = stuck_pr(&testbed, Fault::JenkinsDeaf, 10).await;
    testbed.fakes().person_comments(&pr, "maria", "/cancel");
    // The webhook arrives late: it was lost, and GitHub delivers it again.
    testbed.fakes().advance(SignedDuration::from_mins(150));
    testbed.deliver_webhooks().await;
    testbed.handle_messages().await;
    assert_eq!(count(&testbed, AuditedAction::PullClosed), 0);
    let comments = suture_comments(&testbed, &pr);
    assert!(
        comments.len() == 1 && comments[0].contains("`/cancel` is 2 h 30 min old and was not executed; repeat it"),
        "{comments:?}"
    );
    testbed.fakes().person_comments(&pr, "maria", "/cancel");
    testbed.pass(5).await;
    assert_eq!(count(&testbed, AuditedAction::PullClosed), 1, "the repeated command is executed");
}
