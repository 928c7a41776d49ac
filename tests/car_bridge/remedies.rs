//! Remedies claimed by sweeps: execution, redelivery, rejection and what prevents them.

use car_bridge::{MessageOutcome, RetryableError};
use domain::breaker::Breaker;
use domain::command::{Command, CommandMessage, CommandSource, MessageVersion};
use domain::diagnosis::{DiagnosisInput, classify};
use domain::event::{DiagnosisFact, FactKind};
use domain::id::{CommandId, PrId, RunId};
use domain::run::RunState;
use domain::snapshot::{LiveStatus, Mergeability};
use domain::state::{State, Strategy};
use domain::text::EscalationHistory;
use fakes::{AuditedAction, FakePrId, Fault, NewPullRequest};
use platform::publish::queue_message::{QueueMessage, Task};
use platform::store::breaker::{self, RemedyOutcome};
use platform::store::pause;
use testbed::{CallFault, Testbed, pr_id};

pub(crate) fn count(testbed: &Testbed, action: AuditedAction) -> usize {
    testbed.fakes().audit().iter().filter(|effect| effect.action == action && is_suture(&effect.by)).count()
}

/// Suture acts with its token, as Jenkins' user, or through the bus.
fn is_suture(by: &str) -> bool {
    by == "bus" || by.starts_with("jenkins:") || by == "suture-operator"
}

pub(crate) async fn run_state(testbed: &Testbed, run: &str) -> RunState {
    testbed.bridge.engine().run(&RunId::new(run), testbed.now()).await.unwrap().unwrap().state
}

/// A pull request with this fault, after this many minutes.
pub(crate) async fn stuck_pr(testbed: &Testbed, fault: Fault, minutes: i64) -> FakePrId {
    let pr = testbed.fakes().open_pr(NewPullRequest::default());
    testbed.fakes().force(fault, &pr);
    testbed.pass(minutes).await;
    pr
}

#[tokio::test]
async fn pull_request_without_faults_merges_unaided() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.pass(120).await;
    assert_eq!(testbed.record(&pr).await.state, State::Merged);
    assert!(testbed.fakes().unknown_requests().is_empty());
}

#[tokio::test]
async fn rebuild_starts_checks_that_never_started() {
    let testbed = Testbed::quiet();
    let pr = stuck_pr(&testbed, Fault::JenkinsDeaf, 10).await;
    assert_eq!(testbed.record(&pr).await.state, State::Created);
    tests::claim_in(&testbed, &pr, "run-1").await;
    let handled = testbed.handle_messages().await;
    assert!(matches!(&handled[..], [Ok(MessageOutcome::Done(_))]), "{handled:?}");
    assert_eq!(run_state(&testbed, "run-1").await, RunState::WaitingExternal);
    testbed.pass(120).await;
    assert_eq!(testbed.record(&pr).await.state, State::Merged);
    assert_eq!(run_state(&testbed, "run-1").await, RunState::Completed);
    assert!(testbed.fakes().unknown_requests().is_empty(), "{:?}", testbed.fakes().unknown_requests());
}

#[tokio::test]
async fn bot_is_retriggered_once_despite_redelivery() {
    for (fault, state) in [
        (Fault::PolicyAsleep, State::PolicyEvaluating),
        (Fault::ApproverAsleep, State::PolicyPassed),
        (Fault::AutomergeAsleep, State::Approved),
    ] {
        let testbed = Testbed::quiet();
        let pr = stuck_pr(&testbed, fault, 120).await;
        assert_eq!(testbed.record(&pr).await.state, state);
        tests::claim_in(&testbed, &pr, "run-1").await;
        let (id, body) = testbed.publisher.take_message().unwrap();
        for n in 0..3 {
            let handled = testbed.bridge.handle(&id, &body).await.unwrap();
            assert_eq!(matches!(handled, MessageOutcome::Done(_)), n == 0, "{handled:?}");
        }
        assert_eq!(count(&testbed, AuditedAction::BusEvent), 1, "{fault:?}");
        testbed.pass(120).await;
        assert_eq!(testbed.record(&pr).await.state, State::Merged, "{fault:?}");
    }
}

#[tokio::test]
async fn bot_is_retriggered_by_label_or_comment() {
    for (via, target, action) in
        [("label", "wake-up", AuditedAction::LabelAdded), ("comment", "/policy check", AuditedAction::CommentCreated)]
    {
        let config = format!(
            "mode = \"act\"\nretrigger.approver_bot.via = \"{via}\"\nretrigger.approver_bot.target = \"{target}\""
        );
        let testbed = Testbed::configured(&config, |settings| {
            for listening in &mut settings.listening {
                (listening.labels, listening.comments) = (true, true);
            }
        });
        let pr = stuck_pr(&testbed, Fault::ApproverAsleep, 120).await;
        tests::claim_in(&testbed, &pr, "run-1").await;
        let handled = testbed.handle_messages().await;
        assert!(matches!(&handled[..], [Ok(MessageOutcome::Done(_))]), "{via}: {handled:?}");
        let done = testbed
            .fakes()
            .audit()
            .iter()
            .filter(|effect| effect.action == action && effect.detail.contains(target))
            .count();
        assert_eq!(done, 1, "{via}");
        testbed.pass(120).await;
        assert_eq!(testbed.record(&pr).await.state, State::Merged, "{via}");
    }
}

#[tokio::test]
async fn moved_head_cancels_the_run_and_refunds_the_budget() {
    let testbed = Testbed::quiet();
    let pr = stuck_pr(&testbed, Fault::JenkinsDeaf, 10).await;
    tests::claim_in(&testbed, &pr, "run-1").await;
    assert_eq!(testbed.record(&pr).await.retry_counts.rebuild, 1);
    testbed.fakes().person_pushes(&pr, "danny");
    testbed.fakes().advance(jiff::SignedDuration::from_mins(1));
    testbed.deliver_webhooks().await;
    let handled = testbed.handle_messages().await;
    assert!(!handled.iter().any(|handled| matches!(handled, Ok(MessageOutcome::Done(_)))), "{handled:?}");
    assert_eq!(count(&testbed, AuditedAction::BuildQueued), 0);
    let record = testbed.record(&pr).await;
    assert_eq!((record.retry_counts.rebuild, record.active_run), (0, None));
    assert_eq!(run_state(&testbed, "run-1").await, RunState::Cancelled);
}

async fn count_failures(testbed: &Testbed, runs: std::ops::Range<u32>) {
    for n in runs {
        let run = RunId::new(format!("other-{n}"));
        breaker::count_outcome(&testbed.store, &run, RemedyOutcome::Failed, testbed.now()).await.unwrap();
    }
}

#[tokio::test]
async fn pause_and_open_breaker_reject_claimed_runs() {
    let testbed = Testbed::quiet();
    let pr = stuck_pr(&testbed, Fault::JenkinsDeaf, 10).await;
    tests::claim_in(&testbed, &pr, "run-1").await;
    pause::pause(&testbed.store, "ops", testbed.now(), testbed.now()).await.unwrap();
    let handled = testbed.handle_messages().await;
    assert_eq!(handled, [Ok(MessageOutcome::Rejected("Suture is paused by ops".to_owned()))]);
    assert_eq!(testbed.record(&pr).await.retry_counts.rebuild, 0, "the budget is refunded");
    pause::unpause(&testbed.store, testbed.now(), testbed.now()).await.unwrap();
    count_failures(&testbed, 0..6).await;
    let settings = testbed.bridge.engine().policies().base().breaker.clone();
    assert!(breaker::evaluate(&testbed.store, &settings, testbed.now()).await.unwrap().is_some());
    testbed.pass(60).await;
    // The cooldown has passed by now, so trip the breaker again.
    breaker::reset(&testbed.store, testbed.now()).await.unwrap();
    testbed.pass(1).await;
    count_failures(&testbed, 10..16).await;
    breaker::evaluate(&testbed.store, &settings, testbed.now()).await.unwrap().unwrap();
    tests::claim_in(&testbed, &pr, "run-2").await;
    let handled = testbed.handle_messages().await;
    assert_eq!(handled, [Ok(MessageOutcome::Rejected("the circuit breaker is open".to_owned()))]);
    assert_eq!(count(&testbed, AuditedAction::BuildQueued), 0);
}

#[tokio::test]
async fn observe_mode_rejects_a_claimed_run() {
    let mut testbed = Testbed::quiet();
    let pr = stuck_pr(&testbed, Fault::JenkinsDeaf, 10).await;
    tests::claim_in(&testbed, &pr, "run-1").await;
    testbed.reconfigure("mode = \"observe\"");
    let handled = testbed.handle_messages().await;
    assert_eq!(handled, [Ok(MessageOutcome::Rejected("observe mode".to_owned()))]);
    let record = testbed.record(&pr).await;
    assert_eq!((record.retry_counts.rebuild, record.active_run), (0, None), "the budget is refunded");
    assert_eq!(run_state(&testbed, "run-1").await, RunState::Cancelled);
    assert_eq!(count(&testbed, AuditedAction::BuildQueued) + count(&testbed, AuditedAction::RepositoryScanned), 0);
}

#[tokio::test]
async fn fifteen_pull_requests_share_two_slots() {
    let testbed = Testbed::quiet();
    let mut prs = Vec::new();
    for _ in 0..15 {
        let pr = testbed.fakes().open_pr(NewPullRequest::default());
        testbed.fakes().force(Fault::JenkinsDeaf, &pr);
        prs.push(pr);
    }
    testbed.pass(10).await;
    for (n, pr) in prs.iter().enumerate() {
        tests::claim_in(&testbed, pr, &format!("run-{n}")).await;
    }
    let handled = testbed.handle_messages().await;
    let done = handled.iter().filter(|handled| matches!(handled, Ok(MessageOutcome::Done(_)))).count();
    let waits = handled.iter().filter(|handled| matches!(handled, Ok(MessageOutcome::Deferred(_)))).count();
    assert_eq!((done, waits), (2, 13), "{handled:?}");
    assert_eq!(run_state(&testbed, "run-14").await, RunState::Pending, "its due date brings it back");
    // Slots become free over time; pending messages are resent, as the sweep does.
    for _ in 0..20 {
        testbed.pass(30).await;
        for (n, pr) in prs.iter().enumerate() {
            let run = RunId::new(format!("run-{n}"));
            let pending =
                testbed.bridge.engine().run(&run, testbed.now()).await.unwrap().unwrap().state == RunState::Pending;
            if pending {
                testbed.publisher.enqueue(run.as_str(), &rebuild_message(&pr_id(pr), &run, &testbed));
            }
        }
        let handled = testbed.handle_messages().await;
        let done = handled.iter().filter(|handled| matches!(handled, Ok(MessageOutcome::Done(_)))).count();
        assert!(done <= 2, "{handled:?}");
    }
    for (n, pr) in prs.iter().enumerate() {
        // A multibranch scan also starts the other jobs: runs that became unnecessary are cancelled, and none fails.
        let state = run_state(&testbed, &format!("run-{n}")).await;
        assert!(matches!(state, RunState::Completed | RunState::Cancelled), "{n}: {state}");
        assert_eq!(testbed.record(pr).await.state, State::Merged);
    }
}

fn rebuild_message(pr: &PrId, run: &RunId, testbed: &Testbed) -> QueueMessage {
    QueueMessage::Command(CommandMessage {
        v: MessageVersion,
        pr_number: pr.number,
        repo: pr.repo.clone(),
        command: Command::Rebuild,
        source: CommandSource::Reconciler,
        requested_by: "suture".to_owned(),
        timestamp: testbed.now(),
        command_id: CommandId::new(run.as_str()),
        run_id: Some(run.clone()),
        head_sha: None,
        args: None,
        comment: None,
        resent: false,
    })
}

#[tokio::test]
async fn close_and_reopen_links_old_and_new_pull_request() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.pass(1).await;
    let person = "maria";
    testbed.fakes().conflict(&pr);
    testbed.fakes().person_comments(&pr, person, "/close-and-reopen");
    testbed.pass(5).await;
    let comments: Vec<String> = testbed.fakes().comments(&pr).map(|comment| comment.body.to_string()).collect();
    let old = testbed.record(&pr).await;
    assert_eq!(old.state, State::Closed, "{comments:?}");
    assert_eq!(count(&testbed, AuditedAction::PullClosed), 1);
    let closing = "Closing because maria requested `/close-and-reopen`.";
    assert_eq!(comments.iter().filter(|body| body.contains(closing)).count(), 1, "{comments:?}");
    testbed.pass(60).await;
    let old = testbed.record(&pr).await;
    let fresh = old.replaced_by.expect("a replacement");
    let fresh = testbed.record(&FakePrId { repo: pr.repo.clone(), number: fresh }).await;
    assert_eq!((fresh.replaces, old.active_run), (Some(pr.number), None));
}

#[tokio::test]
async fn replacement_opened_before_the_close_event_is_linked() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.pass(1).await;
    testbed.fakes().conflict(&pr);
    testbed.fakes().person_comments(&pr, "maria", "/close-and-reopen");
    let mut late = Vec::new();
    let fresh = FakePrId { number: pr.number + 1, ..pr.clone() };
    while testbed.bridge.engine().load(&pr_id(&fresh), testbed.now()).await.unwrap().is_none() {
        let next = testbed.fakes().next_event_at().expect("a replacement");
        testbed.fakes().advance_to(next);
        let deliveries = testbed.fakes().take_webhooks();
        let (closing, others): (Vec<_>, Vec<_>) =
            deliveries.into_iter().partition(|one| one.action.as_deref() == Some("closed"));
        late.extend(closing);
        for delivery in &others {
            testbed.deliver(delivery).await;
        }
        testbed.handle_messages().await;
    }
    assert_eq!(
        (late.len(), testbed.record(&pr).await.state == State::Closed),
        (1, true),
        "Suture records its own closing"
    );
    testbed.deliver(&late[0]).await;
    let (old, new) = (testbed.record(&pr).await, testbed.record(&fresh).await);
    assert_eq!((old.state, old.replaced_by, old.active_run), (State::Closed, Some(fresh.number), None));
    assert_eq!(new.replaces, Some(pr.number));
}

#[tokio::test]
async fn repository_first_seen_on_the_queue_is_registered() {
    let testbed = Testbed::quiet();
    let pr: PrId = "acme/quiet-corner#7".parse().unwrap();
    let fact = QueueMessage::Fact(Box::new(tests::opened(&pr, "late-opening", testbed.now())));
    let handled = testbed.bridge.handle("m1", &fact.to_json().unwrap()).await.unwrap();
    assert!(matches!(handled, MessageOutcome::Done(_)), "{handled:?}");
    let repos = platform::store::queries::repos(&testbed.store, testbed.now()).await.unwrap();
    assert!(repos.contains(&pr.repo), "{repos:?}");
}

#[tokio::test]
async fn invalid_message_is_retryable_and_names_the_reason() {
    let testbed = Testbed::quiet();
    for (body, reason) in [
        ("{", "the message is not JSON"),
        (r#"{"type":"poem","v":1}"#, "`type` is \"poem\""),
        (r#"{"type":"command","v":9}"#, "cannot be read"),
    ] {
        let again = testbed.bridge.handle("m1", body).await.unwrap_err();
        assert!(matches!(again, RetryableError::InvalidMessage(_)) && again.to_string().contains(reason), "{again}");
    }
    let task = QueueMessage::Task(Task::Redeliver { delivery: 999 }).to_json().unwrap();
    let handled = testbed.bridge.handle("m2", &task).await.unwrap();
    assert!(matches!(handled, MessageOutcome::Failed(_)), "a personal token cannot redeliver: {handled:?}");
}

#[tokio::test]
async fn update_branch_updates_a_stale_head_once() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.pass(1).await;
    testbed.fakes().push_base(&pr.repo);
    testbed.pass(1).await;
    let before = testbed.record(&pr).await.head_sha;
    testbed.fakes().person_comments(&pr, "maria", "/update-branch");
    testbed.pass(2).await;
    assert_eq!(count(&testbed, AuditedAction::BranchUpdated), 1);
    let record = testbed.record(&pr).await;
    assert_ne!(record.head_sha, before);
    assert_eq!((testbed.fakes().behind_by(&pr), record.active_run), (0, None), "the new head completes the run");
    testbed.pass(120).await;
    assert_eq!(testbed.record(&pr).await.state, State::Merged);
}

#[tokio::test]
async fn update_branch_rejects_current_head_and_fails_on_conflict() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.pass(1).await;
    testbed.fakes().person_comments(&pr, "maria", "/update-branch");
    testbed.fakes().advance(jiff::SignedDuration::from_secs(3));
    testbed.deliver_webhooks().await;
    let handled = testbed.handle_messages().await;
    assert_eq!(handled, [Ok(MessageOutcome::Rejected("nothing to merge".to_owned()))]);
    testbed.fakes().conflict(&pr);
    testbed.fakes().person_comments(&pr, "maria", "/update-branch");
    testbed.fakes().advance(jiff::SignedDuration::from_secs(3));
    testbed.deliver_webhooks().await;
    let handled = testbed.handle_messages().await;
    assert_eq!(handled.last(), Some(&Ok(MessageOutcome::Failed("conflict".to_owned()))), "{handled:?}");
    let record = testbed.record(&pr).await;
    assert!(record.due_at.is_some_and(|due_at| due_at <= testbed.now()), "the next sweep decides");
    assert_eq!(record.active_run, None);
}

#[tokio::test]
async fn recheck_sod_publishes_one_sod_check_request() {
    let testbed = Testbed::quiet();
    let pr = stuck_pr(&testbed, Fault::SodTiming, 60).await;
    let record = testbed.record(&pr).await;
    assert_eq!(record.state, State::PolicyFailed, "{record:?}");
    testbed.fakes().person_comments(&pr, "maria", "/recheck-sod");
    testbed.pass(120).await;
    assert_eq!(testbed.record(&pr).await.state, State::Merged);
    let requests: Vec<String> = testbed.fakes().audit_by("bus").map(|effect| effect.detail.clone()).collect();
    assert!(requests.len() == 1 && requests[0].contains("SodCheckRequested"), "{requests:?}");
}

/// A stale pull request whose base has moved.
async fn behind_pr(testbed: &Testbed) -> FakePrId {
    let pr = stuck_pr(testbed, Fault::JenkinsDeaf, 10).await;
    testbed.fakes().push_base(&pr.repo);
    testbed.pass(1).await;
    pr
}

/// Claims a branch update the way a sweep does that has found the head behind its base.
async fn claim_branch_update(testbed: &Testbed, pr: &FakePrId, run: &str) {
    let (record, now) = (testbed.record(pr).await, testbed.now());
    let live = LiveStatus { mergeable: Mergeability::Clean, behind_by: Some(1), strict: true, build: None };
    let policy = testbed.policies.base();
    let case = DiagnosisInput { record: &record, live: Some(&live), vulnerability: None, policy, now };
    let found = DiagnosisFact {
        diagnosis: classify(&case),
        run: RunId::new(run),
        vulnerability: None,
        history: EscalationHistory::default(),
    };
    let fact = tests::fact(&record.id, format!("sweep-{run}"), now, FactKind::Diagnosed(Box::new(found)));
    testbed.bridge.engine().apply(&fact, now).await.unwrap();
    let claimed = testbed.record(pr).await.active_run.map(|active| active.strategy);
    assert_eq!(claimed, Some(Strategy::BranchUpdate));
}

/// The failures that the breaker has counted.
async fn failures(testbed: &Testbed) -> usize {
    let settings = &testbed.policies.base().breaker;
    let window = breaker::minutes(&testbed.store, &Breaker::default(), settings, testbed.now()).await.unwrap();
    window.iter().map(|minute| minute.failed.len()).sum()
}

/// An attempt whose connection failed spent the budget, although GitHub never saw it.
#[tokio::test]
async fn request_that_was_not_sent_spends_no_budget_and_counts_for_the_breaker() {
    let testbed = Testbed::quiet();
    let pr = behind_pr(&testbed).await;
    claim_branch_update(&testbed, &pr, "run-1").await;
    assert_eq!(testbed.record(&pr).await.retry_counts.branch_update, 1);
    testbed.transport.refuse_connections("update-branch", true);
    let handled = testbed.handle_messages().await;
    assert!(
        matches!(&handled[..], [Ok(MessageOutcome::Rejected(why))] if why.starts_with("unavailable: ")),
        "{handled:?}"
    );
    let record = testbed.record(&pr).await;
    assert_eq!((record.retry_counts.branch_update, record.lifetime_remedies, record.active_run), (0, 0, None));
    assert_eq!(record.dropped.map(|drops| drops.count), Some(1), "it is retried later");
    assert_eq!(failures(&testbed).await, 1);
    testbed.transport.refuse_connections("update-branch", false);
    claim_branch_update(&testbed, &pr, "run-2").await;
    let handled = testbed.handle_messages().await;
    assert!(matches!(&handled[..], [Ok(MessageOutcome::Done(_))]), "{handled:?}");
    assert_eq!(count(&testbed, AuditedAction::BranchUpdated), 1);
}

/// GitHub updated the branch, and its response was lost. The remedy failed, although it had worked.
#[tokio::test]
async fn request_without_a_response_is_resolved_by_its_probe() {
    for call in 1.. {
        let testbed = Testbed::quiet();
        let pr = behind_pr(&testbed).await;
        claim_branch_update(&testbed, &pr, "run-1").await;
        let (id, body) = testbed.publisher.take_message().unwrap();
        testbed.faults.plan(call, CallFault::AnswerLost);
        let handled = testbed.bridge.handle(&id, &body).await;
        assert!(testbed.faults.struck(), "the branch was updated without a fault: {handled:?}");
        testbed.faults.restart();
        if count(&testbed, AuditedAction::BranchUpdated) == 0 {
            continue;
        }
        assert!(matches!(handled, Err(RetryableError::Api(_))), "{handled:?}");
        testbed.fakes().advance(jiff::SignedDuration::from_secs(10));
        let again = testbed.bridge.handle(&id, &body).await.unwrap();
        assert_eq!(again, MessageOutcome::Done("the head has moved already".to_owned()));
        testbed.pass(2).await;
        assert_eq!(run_state(&testbed, "run-1").await, RunState::Completed);
        assert_eq!((count(&testbed, AuditedAction::BranchUpdated), failures(&testbed).await), (1, 0));
        return;
    }
}
