//! Tasks: small idempotent writes to GitHub, done once despite redelivery.

use car_bridge::MessageOutcome;
use domain::id::{EffectId, PrId, RepoName};
use domain::text::check_run::{CheckConclusion, CheckRunText};
use fakes::{AuditedAction, FakePrId, NewPullRequest};
use jiff::{SignedDuration, Timestamp};
use platform::github::Reaction;
use platform::publish::queue_message::{IssueUpdate, ManagedIssue, PullRequestRequest, QueueMessage, Task};
use platform::store::not_before;
use platform::store::pause;
use platform::store::queries;
use platform::store::schema::{DueEntry, DueSubject};
use platform::store::waiting::{self, WaitingMessage};
use testbed::{CallFault, Testbed, pr_id};

async fn open_pr() -> (Testbed, FakePrId, PrId) {
    let testbed = Testbed::as_app("mode = \"act\"");
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    let id = pr_id(&pr);
    (testbed, pr, id)
}

async fn handle_task(testbed: &Testbed, task: &Task) -> MessageOutcome {
    let body = QueueMessage::Task(task.clone()).to_json().unwrap();
    testbed.bridge.handle("m1", &body).await.unwrap()
}

fn count_actions(testbed: &Testbed, action: AuditedAction) -> usize {
    testbed.fakes().audit_by("suture[bot]").filter(|effect| effect.action == action).count()
}

fn check_run(testbed: &Testbed, pr: &FakePrId, title: &str, summary: &str, as_of: Timestamp) -> Task {
    let head_sha = testbed.fakes().pull(pr).unwrap().head().parse().unwrap();
    let (title, summary) = (title.to_owned(), summary.to_owned());
    let text = Box::new(CheckRunText { mood: CheckConclusion::Quiet, title, summary, buttons: Vec::new() });
    Task::CheckRun { pr: pr_id(pr), head_sha, text, as_of }
}

#[tokio::test]
async fn reaction_is_added_once() {
    let (testbed, pr, id) = open_pr().await;
    let comment = testbed.fakes().person_comments(&pr, "maria", "hello").unwrap();
    let task = Task::React { repo: id.repo.clone(), subject: format!("IC_{comment}"), reaction: Reaction::Rocket };
    for _ in 0..2 {
        assert!(matches!(handle_task(&testbed, &task).await, MessageOutcome::Done(_)));
    }
    assert_eq!(count_actions(&testbed, AuditedAction::ReactionAdded), 1);
    let gone = Task::React { repo: id.repo, subject: "IC_999999".to_owned(), reaction: Reaction::Eyes };
    assert!(
        matches!(handle_task(&testbed, &gone).await, MessageOutcome::Failed(_)),
        "a deleted comment is not retried"
    );
}

#[tokio::test]
async fn comment_is_deduplicated_by_its_marker() {
    let (testbed, pr, id) = open_pr().await;
    let task = |marker: &str| Task::Comment {
        pr: id.clone(),
        marker: marker.to_owned(),
        text: "Suture looks after this one.".to_owned(),
        since: testbed.now() - SignedDuration::from_mins(1),
    };
    assert!(matches!(handle_task(&testbed, &task("suture:hello")).await, MessageOutcome::Done(_)));
    assert!(matches!(handle_task(&testbed, &task("suture:hello")).await, MessageOutcome::Noop(_)));
    assert!(matches!(handle_task(&testbed, &task("suture:other")).await, MessageOutcome::Done(_)));
    let comments: Vec<String> = testbed.fakes().comments(&pr).map(|comment| comment.body.clone()).collect();
    assert_eq!(comments.len(), 2);
    assert!(comments[0].ends_with("<!-- suture:hello -->"), "{comments:?}");
}

#[tokio::test]
async fn check_run_is_updated_on_change_only_and_never_by_older_text() {
    let (testbed, pr, _) = open_pr().await;
    let task =
        |title: &str, summary: &str, minute: i64| check_run(&testbed, &pr, title, summary, tests::minute(minute));
    assert!(matches!(handle_task(&testbed, &task("Waiting", "for Policy Bot", 1)).await, MessageOutcome::Done(_)));
    for minute in [1, 2] {
        let again = handle_task(&testbed, &task("Waiting", "for Policy Bot", minute)).await;
        assert!(matches!(again, MessageOutcome::Noop(_)), "{again:?}");
    }
    assert!(matches!(handle_task(&testbed, &task("Healed", "after one rebuild", 5)).await, MessageOutcome::Done(_)));
    let late = handle_task(&testbed, &task("Waiting", "for Approver Bot", 4)).await;
    assert_eq!(late, MessageOutcome::Noop(format!("check run {} is newer", run_id(&testbed, &pr))));
    let long = handle_task(&testbed, &task("Long", &"ä".repeat(70_000), 6)).await;
    assert!(matches!(long, MessageOutcome::Done(_)), "{long:?}");
    assert!(matches!(handle_task(&testbed, &task("Long", &"ä".repeat(70_000), 7)).await, MessageOutcome::Noop(_)));
    assert_eq!(
        (
            count_actions(&testbed, AuditedAction::CheckRunCreated),
            count_actions(&testbed, AuditedAction::CheckRunUpdated)
        ),
        (1, 2)
    );
    let fakes = testbed.fakes();
    let ours = fakes.check_runs(&pr).iter().find(|run| run.name == "suture").unwrap();
    assert_eq!((ours.title.as_str(), ours.summary.chars().count()), ("Long", 65_535));
}

#[tokio::test]
async fn check_run_needs_an_app_and_makes_no_call_without_one() {
    let testbed = Testbed::quiet();
    let pr = testbed.open_and_deliver(NewPullRequest::default()).await;
    testbed.faults.plan(usize::MAX, CallFault::Before);
    let task = check_run(&testbed, &pr, "Waiting", "", testbed.now());
    let handled = handle_task(&testbed, &task).await;
    assert!(matches!(&handled, MessageOutcome::Noop(why) if why.contains("need a GitHub App")), "{handled:?}");
    assert_eq!(testbed.fakes().audit_by("suture[bot]").count(), 0);
}

fn run_id(testbed: &Testbed, pr: &FakePrId) -> u64 {
    testbed.fakes().check_runs(pr).iter().find(|run| run.name == "suture").unwrap().id
}

fn managed_issue(body: &str, as_of: Timestamp) -> ManagedIssue {
    ManagedIssue {
        key: "status".to_owned(),
        label: "suture/status".to_owned(),
        labels: vec!["ops".to_owned()],
        title: "How things stand".to_owned(),
        body: body.to_owned(),
        as_of,
        keep_updated: true,
        pin: true,
    }
}

fn issue(testbed: &Testbed, labels: &[&str]) -> FakePrId {
    testbed.fakes().person_writes_issue("", "maria", "Repair CVE-2026-50001", labels)
}

fn pull_request_task(testbed: &Testbed, repo: RepoName) -> Task {
    let issue = issue(testbed, &["pipeline/approved"]);
    let ask = PullRequestRequest {
        issue: issue.number,
        vulnerability: "CVE-2026-50001".to_owned(),
        base_branch: "main".to_owned(),
        effect: EffectId::new(format!("backlog:{issue}:1")),
        approved: "pipeline/approved".to_owned(),
        in_progress: "pipeline/in-progress".to_owned(),
    };
    Task::AskForPull { repo, ask: Box::new(ask) }
}

fn issue_update_task(testbed: &Testbed, repo: RepoName, since: Timestamp) -> Task {
    let issue = issue(testbed, &["pipeline/discovered"]);
    let tending = IssueUpdate {
        issue: issue.number,
        key: format!("backlog:{issue}:reject:1"),
        expects: "pipeline/discovered".to_owned(),
        add: vec!["pipeline/rejected".to_owned()],
        remove: vec!["pipeline/discovered".to_owned(), "suture/hold".to_owned()],
        comment: Some("Nobody said yes.".to_owned()),
        close: Some("not_planned".to_owned()),
        close_pull: None,
        since,
    };
    Task::Tend { repo, tending: Box::new(tending) }
}

#[tokio::test]
async fn pull_request_of_an_issue_is_requested_as_configured() {
    for (via, target, action) in [
        ("comment", "@codegenie {vulnerability_id} on {base_branch}", AuditedAction::CommentCreated),
        ("label", "codegenie/open", AuditedAction::LabelAdded),
        ("bus", "", AuditedAction::BusEvent),
    ] {
        let config = format!("mode = \"act\"\nretrigger.codegenie = {{ via = \"{via}\", target = \"{target}\" }}");
        let testbed = Testbed::configured(&config, |_| {});
        let body = QueueMessage::Task(pull_request_task(&testbed, "acme/payments".parse().unwrap())).to_json().unwrap();
        for _ in 0..2 {
            testbed.bridge.handle("m1", &body).await.unwrap();
        }
        let text = target.replace("{vulnerability_id}", "CVE-2026-50001").replace("{base_branch}", "main");
        let fakes = testbed.fakes();
        let asked = fakes.audit().iter().filter(|it| it.action == action && it.detail.contains(&text)).count();
        assert!(asked == 1 || (via != "comment" && asked == 2), "{via}: {asked}");
    }
    let testbed = Testbed::quiet();
    testbed.publisher.remove_receivers();
    let body = QueueMessage::Task(pull_request_task(&testbed, "acme/payments".parse().unwrap())).to_json().unwrap();
    let handled = testbed.bridge.handle("m1", &body).await;
    assert!(
        matches!(&handled, Ok(MessageOutcome::Failed(why)) if why.contains("set retrigger.codegenie")),
        "{handled:?}"
    );
}

/// Simulation seed 435 with five pull requests: two workers looked for the comment before either had posted it.
#[tokio::test]
async fn concurrent_workers_post_once() {
    let (testbed, pr, id) = open_pr().await;
    let since = testbed.now();
    let shown = check_run(&testbed, &pr, "Waiting", "for Policy Bot", since);
    let issue = Box::new(managed_issue("All is well.", testbed.now()));
    let tasks = [
        Task::Comment { pr: id.clone(), marker: "suture:hello".to_owned(), text: "Hello.".to_owned(), since },
        shown,
        Task::Issue { repo: id.repo, issue },
    ];
    for (task, action) in
        tasks.iter().zip([AuditedAction::CommentCreated, AuditedAction::CheckRunCreated, AuditedAction::IssueOpened])
    {
        let body = QueueMessage::Task(task.clone()).to_json().unwrap();
        let both = tokio::join!(testbed.bridge.handle("m1", &body), testbed.bridge.handle("m1", &body));
        assert_eq!(count_actions(&testbed, action), 1, "{action:?}: {both:?}");
        // The deferred message comes back and finds the comment.
        testbed.fakes().advance(SignedDuration::from_mins(7));
        testbed.handle_messages().await;
        assert!(matches!(testbed.bridge.handle("m1", &body).await, Ok(MessageOutcome::Noop(_))));
        assert_eq!(count_actions(&testbed, action), 1, "{action:?}");
    }
}

/// A lease that was not released after a failure blocked the retries until the message reached the dead-letter queue.
#[tokio::test]
async fn failed_task_releases_its_lease_for_the_retry() {
    let mut points = 0;
    for kind in 0..3 {
        for call in 1.. {
            let (testbed, pr, id) = open_pr().await;
            let since = testbed.now();
            let shown = check_run(&testbed, &pr, "Waiting", "for Policy Bot", since);
            let issue = Box::new(managed_issue("All is well.", testbed.now()));
            let (task, action) = match kind {
                0 => (
                    Task::Comment { pr: id, marker: "suture:hello".to_owned(), text: "Hello.".to_owned(), since },
                    AuditedAction::CommentCreated,
                ),
                1 => (shown, AuditedAction::CheckRunCreated),
                _ => (Task::Issue { repo: id.repo, issue }, AuditedAction::IssueOpened),
            };
            let body = QueueMessage::Task(task).to_json().unwrap();
            testbed.faults.plan(call, CallFault::NotSent);
            let first = testbed.bridge.handle("m1", &body).await;
            if !testbed.faults.struck() {
                break;
            }
            points += 1;
            testbed.faults.restart();
            let again = testbed.bridge.handle("m1", &body).await;
            let at = format!("{action:?}, call {call}: {first:?}, then {again:?}");
            // If releasing the lease failed, the message is deferred until the lease expires, and the effect has
            // happened.
            assert!(
                matches!(again, Ok(MessageOutcome::Done(_) | MessageOutcome::Noop(_) | MessageOutcome::Deferred(_))),
                "{at}"
            );
            assert_eq!(count_actions(&testbed, action), 1, "{at}");
        }
    }
    assert!(points > 9, "{points}");
}

#[tokio::test]
async fn concurrent_messages_open_one_issue() {
    let (testbed, _, id) = open_pr().await;
    let issue = Box::new(managed_issue("All is well.", testbed.now()));
    let body = QueueMessage::Task(Task::Issue { repo: id.repo, issue }).to_json().unwrap();
    let (one, other) = tokio::join!(testbed.bridge.handle("m1", &body), testbed.bridge.handle("m2", &body));
    let both = [one.unwrap(), other.unwrap()];
    assert!(both.iter().any(|handled| matches!(handled, MessageOutcome::Done(_))), "{both:?}");
    testbed.fakes().advance(SignedDuration::from_mins(7));
    testbed.sweep_now().await;
    testbed.handle_messages().await;
    assert_eq!(
        (count_actions(&testbed, AuditedAction::IssueOpened), count_actions(&testbed, AuditedAction::IssuePinned)),
        (1, 1),
        "{both:?}"
    );
}

#[tokio::test]
async fn managed_issue_is_edited_on_change_only_and_never_by_older_text() {
    let (testbed, _, id) = open_pr().await;
    let task = |body: &str, minute: i64| Task::Issue {
        repo: id.repo.clone(),
        issue: Box::new(managed_issue(body, tests::minute(minute))),
    };
    assert!(matches!(handle_task(&testbed, &task("All is well.", 1)).await, MessageOutcome::Done(_)));
    assert!(matches!(handle_task(&testbed, &task("All is well.", 2)).await, MessageOutcome::Noop(_)));
    assert!(matches!(handle_task(&testbed, &task("Two are stuck.", 5)).await, MessageOutcome::Done(_)));
    assert!(
        matches!(handle_task(&testbed, &task("One is stuck.", 4)).await, MessageOutcome::Noop(_)),
        "a newer body was written"
    );
    let once = Task::Issue {
        repo: id.repo.clone(),
        issue: Box::new(ManagedIssue { keep_updated: false, ..managed_issue("Down.", tests::minute(9)) }),
    };
    assert!(matches!(handle_task(&testbed, &once).await, MessageOutcome::Noop(_)), "a write-once issue is not edited");
    let fakes = testbed.fakes();
    let ours: Vec<_> = fakes.issues().map(|(_, issue)| issue.clone()).collect();
    assert_eq!((ours.len(), ours[0].pinned, ours[0].labels.len()), (1, true, 2));
    assert!(ours[0].body.contains("Two are stuck.") && ours[0].body.ends_with("<!-- suture:status -->"), "{ours:?}");
    drop(fakes);
    assert_eq!(
        (count_actions(&testbed, AuditedAction::IssueEdited), count_actions(&testbed, AuditedAction::IssuePinned)),
        (1, 1)
    );
}

#[tokio::test]
async fn issue_task_skips_moved_held_or_answered_issues() {
    let (testbed, _, id) = open_pr().await;
    let (ask, tend) =
        (pull_request_task(&testbed, id.repo.clone()), issue_update_task(&testbed, id.repo.clone(), testbed.now()));
    let places: Vec<FakePrId> = testbed.fakes().issues().map(|(place, _)| place).collect();
    {
        let mut fakes = testbed.fakes();
        fakes.person_labels_issue(&places[0], "maria", "suture/hold", true);
        fakes.person_labels_issue(&places[1], "maria", "pipeline/approved", true);
        fakes.person_labels_issue(&places[1], "maria", "pipeline/discovered", false);
    }
    for task in [&ask, &tend] {
        let left = handle_task(&testbed, task).await;
        assert!(matches!(left, MessageOutcome::Noop(_)), "{left:?}");
    }
    assert_eq!(testbed.fakes().audit_by("suture[bot]").count(), 0);
    // No pull request is requested while one is open, after a user abandoned the vulnerability, or while Suture is
    // paused.
    testbed.fakes().person_labels_issue(&places[0], "maria", "suture/hold", false);
    pause::pause(&testbed.store, "maria", testbed.now(), testbed.now()).await.unwrap();
    assert!(matches!(handle_task(&testbed, &ask).await, MessageOutcome::Noop(_)));
    pause::unpause(&testbed.store, testbed.now(), testbed.now()).await.unwrap();
    testbed
        .open_and_deliver(NewPullRequest {
            vulnerability: Some("CVE-2026-50001".to_owned()),
            ..NewPullRequest::default()
        })
        .await;
    let left = handle_task(&testbed, &ask).await;
    assert!(matches!(&left, MessageOutcome::Noop(why) if why.contains("is open for CVE-2026-50001")), "{left:?}");
    assert_eq!(testbed.fakes().audit_by("bus").count(), 0);
}

#[tokio::test]
async fn issue_task_never_removes_user_labels() {
    let (testbed, _, id) = open_pr().await;
    let task = issue_update_task(&testbed, id.repo, testbed.now());
    let place = testbed.fakes().issues().next().unwrap().0;
    testbed.fakes().person_labels_issue(&place, "maria", "suture/priority-p0", true);
    assert!(matches!(handle_task(&testbed, &task).await, MessageOutcome::Done(_)));
    let fakes = testbed.fakes();
    let issue = fakes.issue(&place).unwrap();
    assert_eq!((issue.open, issue.state_reason.as_deref()), (false, Some("not_planned")));
    assert_eq!(issue.labels, ["suture/priority-p0", "pipeline/rejected"]);
}

/// The process crashes, or a response is lost, at each call of each task; then the message is redelivered.
#[tokio::test(start_paused = true)]
async fn task_runs_once_when_interrupted_at_any_call() {
    let mut points = 0;
    for what in ["react", "comment", "check run", "issue", "ask", "tend"] {
        for how in CallFault::CRASHES {
            for call in 1.. {
                let (testbed, pr, id) = open_pr().await;
                let comment = testbed.fakes().person_comments(&pr, "maria", "hello").unwrap();
                let (repo, since) = (id.repo.clone(), testbed.now() - SignedDuration::from_mins(1));
                let (task, action) = match what {
                    "react" => {
                        let subject = format!("IC_{comment}");
                        (Task::React { repo, subject, reaction: Reaction::Eyes }, AuditedAction::ReactionAdded)
                    }
                    "comment" => {
                        let (marker, text) = ("suture:x".to_owned(), "Hello.".to_owned());
                        (Task::Comment { pr: id, marker, text, since }, AuditedAction::CommentCreated)
                    }
                    "issue" => (
                        Task::Issue { repo, issue: Box::new(managed_issue("All is well.", since)) },
                        AuditedAction::IssueOpened,
                    ),
                    "ask" => (pull_request_task(&testbed, repo), AuditedAction::LabelAdded),
                    "tend" => (issue_update_task(&testbed, repo, since), AuditedAction::CommentCreated),
                    _ => (check_run(&testbed, &pr, "Waiting", "for Policy Bot", since), AuditedAction::CheckRunCreated),
                };
                let body = QueueMessage::Task(task).to_json().unwrap();
                testbed.faults.plan(call, how);
                for _ in 0..6 {
                    let handled = testbed.bridge.handle("m1", &body).await;
                    if handled.is_ok() && !testbed.faults.is_dead() {
                        break;
                    }
                    testbed.faults.restart();
                    testbed.fakes().advance(SignedDuration::from_mins(7));
                }
                if !testbed.faults.struck() {
                    break;
                }
                testbed.faults.restart();
                assert_eq!(count_actions(&testbed, action), 1, "{what}, call {call}, {how:?}");
                points += 1;
            }
        }
    }
    println!("{points} points");
    assert!(points > 20, "{points}");
}

/// A task that waited was sent to its own queue: Lambda drops a message after sixteen such hops, and its batch with it.
#[tokio::test]
async fn rate_limited_task_waits_as_a_row_until_a_sweep_sends_it() {
    let (testbed, _, id) = open_pr().await;
    let (marker, text) = ("suture:x".to_owned(), "Hello.".to_owned());
    let task = Task::Comment { pr: id, marker, text, since: testbed.now() };
    let mut body = QueueMessage::Task(task.clone()).to_json().unwrap();
    for round in 0..20 {
        let until = testbed.now() + SignedDuration::from_mins(5);
        not_before::set(&testbed.store, "github", until, testbed.now()).await.unwrap();
        // Delivered twice, it waits once.
        for _ in 0..2 {
            let handled = testbed.bridge.handle("m1", &body).await.unwrap();
            assert!(matches!(handled, MessageOutcome::Deferred(_)), "{round}: {handled:?}");
        }
        testbed.sweep_now().await;
        assert_eq!(testbed.publisher.take_message(), None, "{round}: it waits in the table, not on the queue");
        testbed.advance(SignedDuration::from_mins(6));
        assert_eq!(testbed.sweep_now().await.delivered, 1, "{round}");
        body = testbed.publisher.take_message().expect("the sweep sends it").1;
        assert_eq!((QueueMessage::hops(&body), testbed.publisher.take_message()), (0, None), "{round}");
        assert_eq!(QueueMessage::from_json(&body), Ok(QueueMessage::Task(task.clone())), "{round}");
    }
    assert_eq!(count_actions(&testbed, AuditedAction::CommentCreated), 0);
    assert!(matches!(testbed.bridge.handle("m2", &body).await, Ok(MessageOutcome::Done(_))));
    assert_eq!(count_actions(&testbed, AuditedAction::CommentCreated), 1);
    testbed.advance(SignedDuration::from_mins(6));
    assert_eq!(testbed.sweep_now().await.delivered, 0, "its row is gone");
}

/// The sweep deletes the row after the message is sent; by then the message may be handled already and wait again.
#[tokio::test]
async fn message_that_waits_again_is_not_deleted_with_its_former_wait() {
    let testbed = Testbed::quiet();
    let waiting = WaitingMessage { message: "{}".to_owned(), repo: "acme/shop".parse().unwrap() };
    let (first, second) = (testbed.now(), testbed.now() + SignedDuration::from_mins(5));
    let put = async |until| waiting::put(&testbed.store, &waiting, until, testbed.now()).await.unwrap();
    put(first).await;
    let due = queries::due(&testbed.store, 10, second, testbed.now()).await.unwrap().entries;
    let [DueEntry { subject: DueSubject::Message(id), .. }] = &due[..] else { panic!("{due:?}") };
    let sent = waiting::load(&testbed.store, id, testbed.now()).await.unwrap().unwrap();
    put(second).await;
    waiting::delete(&testbed.store, id, sent.version, testbed.now()).await.unwrap();
    let kept = waiting::load(&testbed.store, id, testbed.now()).await.unwrap().unwrap();
    waiting::delete(&testbed.store, id, kept.version, testbed.now()).await.unwrap();
    assert_eq!(waiting::load(&testbed.store, id, testbed.now()).await.unwrap(), None);
}
