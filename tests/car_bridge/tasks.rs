//! Chores: small things to do on GitHub. However often one comes, it is done once.

use car_bridge::MessageOutcome;
use domain::id::{EffectId, PrId, RepoName};
use domain::text::check_run::{CheckConclusion, CheckRunText};
use fakes::{AuditedAction, FakePrId, NewPullRequest};
use jiff::{SignedDuration, Timestamp};
use platform::github::Reaction;
use platform::guards;
use platform::publish::queue_message::{IssueUpdate, ManagedIssue, PullRequestRequest, QueueMessage, Task};
use testbed::{CallFault, Testbed, pr_id};

async fn open() -> (Testbed, FakePrId, PrId) {
    let stage = Testbed::as_app("mode = \"act\"");
    let pr = stage.open_and_deliver(NewPullRequest::default()).await;
    let id = pr_id(&pr);
    (stage, pr, id)
}

async fn handled(stage: &Testbed, chore: &Task) -> MessageOutcome {
    let body = QueueMessage::Chore(chore.clone()).to_json().unwrap();
    stage.bridge.handle("m1", &body).await.unwrap()
}

fn done(stage: &Testbed, action: AuditedAction) -> usize {
    stage.fakes().audit_by("suture[bot]").filter(|effect| effect.action == action).count()
}

fn check_run(stage: &Testbed, pr: &FakePrId, title: &str, summary: &str, as_of: Timestamp) -> Task {
    let head_sha = stage.fakes().pull(pr).unwrap().head().parse().unwrap();
    let (title, summary) = (title.to_owned(), summary.to_owned());
    let text = Box::new(CheckRunText { mood: CheckConclusion::Quiet, title, summary, buttons: Vec::new() });
    Task::CheckRun { pr: pr_id(pr), head_sha, text, as_of }
}

#[tokio::test]
async fn reaction_is_added_once() {
    let (stage, pr, id) = open().await;
    let comment = stage.fakes().person_comments(&pr, "maria", "hello").unwrap();
    let chore = Task::React { repo: id.repo.clone(), subject: format!("IC_{comment}"), reaction: Reaction::Rocket };
    for _ in 0..2 {
        assert!(matches!(handled(&stage, &chore).await, MessageOutcome::Done(_)));
    }
    assert_eq!(done(&stage, AuditedAction::ReactionAdded), 1);
    let gone = Task::React { repo: id.repo, subject: "IC_999999".to_owned(), reaction: Reaction::Eyes };
    assert!(
        matches!(handled(&stage, &gone).await, MessageOutcome::Failed(_)),
        "a comment that was deleted is no poison"
    );
}

#[tokio::test]
async fn comment_is_deduplicated_by_its_marker() {
    let (stage, pr, id) = open().await;
    let chore = |marker: &str| Task::Comment {
        pr: id.clone(),
        marker: marker.to_owned(),
        text: "Suture looks after this one.".to_owned(),
        since: stage.now() - SignedDuration::from_mins(1),
    };
    assert!(matches!(handled(&stage, &chore("suture:hello")).await, MessageOutcome::Done(_)));
    assert!(matches!(handled(&stage, &chore("suture:hello")).await, MessageOutcome::Noop(_)));
    assert!(matches!(handled(&stage, &chore("suture:other")).await, MessageOutcome::Done(_)));
    let said: Vec<String> = stage.fakes().comments(&pr).map(|comment| comment.body.clone()).collect();
    assert_eq!(said.len(), 2);
    assert!(said[0].ends_with("<!-- suture:hello -->"), "{said:?}");
}

#[tokio::test]
async fn check_run_is_updated_on_change_only_and_never_by_older_text() {
    let (stage, pr, _) = open().await;
    let chore = |title: &str, summary: &str, minute: i64| check_run(&stage, &pr, title, summary, tests::minute(minute));
    assert!(matches!(handled(&stage, &chore("Waiting", "for Policy Bot", 1)).await, MessageOutcome::Done(_)));
    for minute in [1, 2] {
        let again = handled(&stage, &chore("Waiting", "for Policy Bot", minute)).await;
        assert!(matches!(again, MessageOutcome::Noop(_)), "{again:?}");
    }
    assert!(matches!(handled(&stage, &chore("Healed", "after one rebuild", 5)).await, MessageOutcome::Done(_)));
    let late = handled(&stage, &chore("Waiting", "for Approver Bot", 4)).await;
    assert_eq!(late, MessageOutcome::Noop(format!("check run {} is newer", run_id(&stage, &pr))));
    let long = handled(&stage, &chore("Long", &"ä".repeat(70_000), 6)).await;
    assert!(matches!(long, MessageOutcome::Done(_)), "{long:?}");
    assert!(matches!(handled(&stage, &chore("Long", &"ä".repeat(70_000), 7)).await, MessageOutcome::Noop(_)));
    assert_eq!((done(&stage, AuditedAction::CheckRunCreated), done(&stage, AuditedAction::CheckRunUpdated)), (1, 2));
    let world = stage.fakes();
    let ours = world.check_runs(&pr).iter().find(|run| run.name == "suture").unwrap();
    assert_eq!((ours.title.as_str(), ours.summary.chars().count()), ("Long", 65_535));
}

#[tokio::test]
async fn check_run_needs_an_app_and_makes_no_call_without_one() {
    let stage = Testbed::quiet();
    let pr = stage.open_and_deliver(NewPullRequest::default()).await;
    stage.faults.plan(usize::MAX, CallFault::Before);
    let chore = check_run(&stage, &pr, "Waiting", "", stage.now());
    let handled = handled(&stage, &chore).await;
    assert!(matches!(&handled, MessageOutcome::Noop(why) if why.contains("need a GitHub App")), "{handled:?}");
    assert_eq!(stage.fakes().audit_by("suture[bot]").count(), 0);
}

fn run_id(stage: &Testbed, pr: &FakePrId) -> u64 {
    stage.fakes().check_runs(pr).iter().find(|run| run.name == "suture").unwrap().id
}

fn own_issue(body: &str, as_of: Timestamp) -> ManagedIssue {
    ManagedIssue {
        key: "status".to_owned(),
        label: "suture/status".to_owned(),
        labels: vec!["ops".to_owned()],
        title: "How things stand".to_owned(),
        body: body.to_owned(),
        as_of,
        kept: true,
        pin: true,
    }
}

fn issue(stage: &Testbed, labels: &[&str]) -> FakePrId {
    stage.fakes().person_writes_issue("", "maria", "Repair CVE-2026-50001", labels)
}

fn asking(stage: &Testbed, repo: RepoName) -> Task {
    let issue = issue(stage, &["pipeline/approved"]);
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

fn tending(stage: &Testbed, repo: RepoName, since: Timestamp) -> Task {
    let issue = issue(stage, &["pipeline/discovered"]);
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

/// The simulation's seed 435 of five pull requests: neither worker found the comment that the other was about to write.
#[tokio::test]
async fn concurrent_workers_post_once() {
    let (stage, pr, id) = open().await;
    let since = stage.now();
    let shown = check_run(&stage, &pr, "Waiting", "for Policy Bot", since);
    let issue = Box::new(own_issue("All is well.", stage.now()));
    let chores = [
        Task::Comment { pr: id.clone(), marker: "suture:hello".to_owned(), text: "Hello.".to_owned(), since },
        shown,
        Task::Issue { repo: id.repo, issue },
    ];
    for (chore, action) in
        chores.iter().zip([AuditedAction::CommentCreated, AuditedAction::CheckRunCreated, AuditedAction::IssueOpened])
    {
        let body = QueueMessage::Chore(chore.clone()).to_json().unwrap();
        let both = tokio::join!(stage.bridge.handle("m1", &body), stage.bridge.handle("m1", &body));
        assert_eq!(done(&stage, action), 1, "{action:?}: {both:?}");
        // The one that was sent away comes back, and finds it.
        stage.fakes().advance(SignedDuration::from_mins(7));
        stage.handle_messages().await;
        assert!(matches!(stage.bridge.handle("m1", &body).await, Ok(MessageOutcome::Noop(_))));
        assert_eq!(done(&stage, action), 1, "{action:?}");
    }
}

/// A lease that was kept after a failure kept the next try from saying anything: five tries later the message was dead.
#[tokio::test]
async fn failed_task_releases_its_lease_for_the_retry() {
    let mut points = 0;
    for kind in 0..3 {
        for call in 1.. {
            let (stage, pr, id) = open().await;
            let since = stage.now();
            let shown = check_run(&stage, &pr, "Waiting", "for Policy Bot", since);
            let issue = Box::new(own_issue("All is well.", stage.now()));
            let (chore, action) = match kind {
                0 => (
                    Task::Comment { pr: id, marker: "suture:hello".to_owned(), text: "Hello.".to_owned(), since },
                    AuditedAction::CommentCreated,
                ),
                1 => (shown, AuditedAction::CheckRunCreated),
                _ => (Task::Issue { repo: id.repo, issue }, AuditedAction::IssueOpened),
            };
            let body = QueueMessage::Chore(chore).to_json().unwrap();
            stage.faults.plan(call, CallFault::NotSent);
            let first = stage.bridge.handle("m1", &body).await;
            if !stage.faults.struck() {
                break;
            }
            points += 1;
            stage.faults.restart();
            let again = stage.bridge.handle("m1", &body).await;
            let at = format!("{action:?}, call {call}: {first:?}, then {again:?}");
            // If it was the lease that could not be given back, the message waits for its end, and nothing is missing.
            assert!(
                matches!(again, Ok(MessageOutcome::Done(_) | MessageOutcome::Noop(_) | MessageOutcome::Deferred(_))),
                "{at}"
            );
            assert_eq!(done(&stage, action), 1, "{at}");
        }
    }
    assert!(points > 9, "{points}");
}

#[tokio::test]
async fn concurrent_messages_open_one_issue() {
    let (stage, _, id) = open().await;
    let issue = Box::new(own_issue("All is well.", stage.now()));
    let body = QueueMessage::Chore(Task::Issue { repo: id.repo, issue }).to_json().unwrap();
    let (one, other) = tokio::join!(stage.bridge.handle("m1", &body), stage.bridge.handle("m2", &body));
    let both = [one.unwrap(), other.unwrap()];
    assert!(both.iter().any(|handled| matches!(handled, MessageOutcome::Done(_))), "{both:?}");
    stage.fakes().advance(SignedDuration::from_mins(7));
    stage.handle_messages().await;
    assert_eq!(
        (done(&stage, AuditedAction::IssueOpened), done(&stage, AuditedAction::IssuePinned)),
        (1, 1),
        "{both:?}"
    );
}

#[tokio::test]
async fn managed_issue_is_edited_on_change_only_and_never_by_older_text() {
    let (stage, _, id) = open().await;
    let chore = |body: &str, minute: i64| Task::Issue {
        repo: id.repo.clone(),
        issue: Box::new(own_issue(body, tests::minute(minute))),
    };
    assert!(matches!(handled(&stage, &chore("All is well.", 1)).await, MessageOutcome::Done(_)));
    assert!(matches!(handled(&stage, &chore("All is well.", 2)).await, MessageOutcome::Noop(_)));
    assert!(matches!(handled(&stage, &chore("Two are stuck.", 5)).await, MessageOutcome::Done(_)));
    assert!(matches!(handled(&stage, &chore("One is stuck.", 4)).await, MessageOutcome::Noop(_)), "it was overtaken");
    let once = Task::Issue {
        repo: id.repo.clone(),
        issue: Box::new(ManagedIssue { kept: false, ..own_issue("Down.", tests::minute(9)) }),
    };
    assert!(matches!(handled(&stage, &once).await, MessageOutcome::Noop(_)), "what is written once is written");
    let world = stage.fakes();
    let ours: Vec<_> = world.issues().map(|(_, issue)| issue.clone()).collect();
    assert_eq!((ours.len(), ours[0].pinned, ours[0].labels.len()), (1, true, 2));
    assert!(ours[0].body.contains("Two are stuck.") && ours[0].body.ends_with("<!-- suture:status -->"), "{ours:?}");
    drop(world);
    assert_eq!((done(&stage, AuditedAction::IssueEdited), done(&stage, AuditedAction::IssuePinned)), (1, 1));
}

#[tokio::test]
async fn issue_task_skips_moved_held_or_answered_issues() {
    let (stage, _, id) = open().await;
    let (ask, tend) = (asking(&stage, id.repo.clone()), tending(&stage, id.repo.clone(), stage.now()));
    let places: Vec<FakePrId> = stage.fakes().issues().map(|(place, _)| place).collect();
    {
        let mut world = stage.fakes();
        world.person_labels_issue(&places[0], "maria", "suture/hold", true);
        world.person_labels_issue(&places[1], "maria", "pipeline/approved", true);
        world.person_labels_issue(&places[1], "maria", "pipeline/discovered", false);
    }
    for chore in [&ask, &tend] {
        let left = handled(&stage, chore).await;
        assert!(matches!(left, MessageOutcome::Noop(_)), "{left:?}");
    }
    assert_eq!(stage.fakes().audit_by("suture[bot]").count(), 0);
    // And what a pull request is open for is not asked for, nor what a person has given up, nor while Suture is paused.
    stage.fakes().person_labels_issue(&places[0], "maria", "suture/hold", false);
    guards::pause(&stage.store, "maria", stage.now(), stage.now()).await.unwrap();
    assert!(matches!(handled(&stage, &ask).await, MessageOutcome::Noop(_)));
    guards::unpause(&stage.store, stage.now(), stage.now()).await.unwrap();
    stage
        .open_and_deliver(NewPullRequest {
            vulnerability: Some("CVE-2026-50001".to_owned()),
            ..NewPullRequest::default()
        })
        .await;
    let left = handled(&stage, &ask).await;
    assert!(matches!(&left, MessageOutcome::Noop(why) if why.contains("is open for CVE-2026-50001")), "{left:?}");
    assert_eq!(stage.fakes().audit_by("bus").count(), 0);
}

#[tokio::test]
async fn issue_task_never_removes_user_labels() {
    let (stage, _, id) = open().await;
    let chore = tending(&stage, id.repo, stage.now());
    let place = stage.fakes().issues().next().unwrap().0;
    stage.fakes().person_labels_issue(&place, "maria", "suture/priority-p0", true);
    assert!(matches!(handled(&stage, &chore).await, MessageOutcome::Done(_)));
    let world = stage.fakes();
    let issue = world.issue(&place).unwrap();
    assert_eq!((issue.open, issue.state_reason.as_deref()), (false, Some("not_planned")));
    assert_eq!(issue.labels, ["suture/priority-p0", "pipeline/rejected"]);
}

/// The process dies, or loses the answer, at each call of each chore; then the message comes again.
#[tokio::test(start_paused = true)]
async fn task_runs_once_when_interrupted_at_any_call() {
    let mut points = 0;
    for what in ["react", "comment", "check run", "issue", "ask", "tend"] {
        for how in CallFault::CRASHES {
            for call in 1.. {
                let (stage, pr, id) = open().await;
                let comment = stage.fakes().person_comments(&pr, "maria", "hello").unwrap();
                let (repo, since) = (id.repo.clone(), stage.now() - SignedDuration::from_mins(1));
                let (chore, action) = match what {
                    "react" => {
                        let subject = format!("IC_{comment}");
                        (Task::React { repo, subject, reaction: Reaction::Eyes }, AuditedAction::ReactionAdded)
                    }
                    "comment" => {
                        let (marker, text) = ("suture:x".to_owned(), "Hello.".to_owned());
                        (Task::Comment { pr: id, marker, text, since }, AuditedAction::CommentCreated)
                    }
                    "issue" => (
                        Task::Issue { repo, issue: Box::new(own_issue("All is well.", since)) },
                        AuditedAction::IssueOpened,
                    ),
                    "ask" => (asking(&stage, repo), AuditedAction::LabelAdded),
                    "tend" => (tending(&stage, repo, since), AuditedAction::CommentCreated),
                    _ => (check_run(&stage, &pr, "Waiting", "for Policy Bot", since), AuditedAction::CheckRunCreated),
                };
                let body = QueueMessage::Chore(chore).to_json().unwrap();
                stage.faults.plan(call, how);
                for _ in 0..6 {
                    let handled = stage.bridge.handle("m1", &body).await;
                    if handled.is_ok() && !stage.faults.is_dead() {
                        break;
                    }
                    stage.faults.restart();
                    stage.fakes().advance(SignedDuration::from_mins(7));
                }
                if !stage.faults.struck() {
                    break;
                }
                stage.faults.restart();
                assert_eq!(done(&stage, action), 1, "{what}, call {call}, {how:?}");
                points += 1;
            }
        }
    }
    println!("{points} points");
    assert!(points > 20, "{points}");
}

#[tokio::test]
async fn rate_limited_task_is_requeued() {
    let (stage, _, id) = open().await;
    let until = stage.now() + SignedDuration::from_mins(5);
    guards::set_not_before(&stage.store, "github", until, stage.now()).await.unwrap();
    let (marker, text) = ("suture:x".to_owned(), "Hello.".to_owned());
    let chore = Task::Comment { pr: id, marker, text, since: stage.now() };
    assert!(matches!(handled(&stage, &chore).await, MessageOutcome::Deferred(_)));
    assert_eq!(done(&stage, AuditedAction::CommentCreated), 0);
    let (_, waiting) = stage.publisher.take_message().expect("it is on the queue again");
    assert_eq!(QueueMessage::from_json(&waiting), Ok(QueueMessage::Chore(chore)));
    stage.fakes().advance(SignedDuration::from_mins(7));
    assert!(matches!(stage.bridge.handle("m2", &waiting).await, Ok(MessageOutcome::Done(_))));
    assert_eq!(done(&stage, AuditedAction::CommentCreated), 1);
}
