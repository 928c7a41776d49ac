//! The status issue: one, pinned, edited in place, and always reached.

use fakes::{AuditedAction, FakeSettings, Fault, RepoSettings};
use testbed::{CallFault, Testbed};

use super::{actions, ours, stopped};

const CONFIG: &str = "status.repo = 'acme/ops'";

fn with_ops() -> FakeSettings {
    FakeSettings {
        repos: vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/ops")],
        ..FakeSettings::default()
    }
}

#[tokio::test]
async fn one_pinned_issue_is_kept_up_to_date_by_editing() {
    let stage = Testbed::new(with_ops(), CONFIG);
    let prs: Vec<_> = (0..3).map(|_| stage.open()).collect();
    stage.with(|world| world.force(Fault::RealTestFailure, &prs[0]));
    stage.pass(2).await;
    let issues = stage.with(|world| ours(world));
    assert_eq!(issues.len(), 1, "{issues:?}");
    let (place, issue) = issues[0].clone();
    assert_eq!((place.repo.as_str(), issue.title.as_str()), ("acme/ops", "Suture status: acme"));
    assert!(issue.pinned && issue.labels == ["suture/status"], "{issue:?}");
    stage.pass(180).await;
    let now = stage.with(|world| world.issue(&place).unwrap().clone());
    assert_eq!(stage.with(|world| ours(world)).len(), 1);
    assert!(now.body.contains("| NEEDS_INTERVENTION | 1 |") && now.body.contains("| MERGED | 2 |"), "{}", now.body);
    assert!(now.body.contains(&format!("- {} since ", prs[0])), "{}", now.body);
    assert!(now.body.contains("| UTC | 3 | 2 |"), "{}", now.body);
    // Nothing happens any more: it is left as it is, but for the day that begins.
    let edits = actions(&stage, AuditedAction::IssueEdited);
    assert!((2..30).contains(&edits), "{edits}");
    stage.pass(120).await;
    assert_eq!(actions(&stage, AuditedAction::IssueEdited), edits);
    assert_eq!((actions(&stage, AuditedAction::IssueOpened), actions(&stage, AuditedAction::IssuePinned)), (1, 1));
}

#[tokio::test]
async fn what_people_do_to_it_is_theirs() {
    let stage = Testbed::new(with_ops(), CONFIG);
    stage.open();
    stage.pass(2).await;
    let (place, _) = stage.with(|world| ours(world)).remove(0);
    stage.with(|world| world.person_closes_issue(&place, "maria", true));
    stage.pass(60).await;
    let issue = stage.with(|world| world.issue(&place).unwrap().clone());
    assert!(!issue.open && issue.body.contains("| MERGED | 1 |"), "closed, and up to date: {}", issue.body);
    assert_eq!((stage.with(|world| ours(world)).len(), actions(&stage, AuditedAction::IssuePinned)), (1, 1));
}

#[tokio::test]
async fn a_repository_may_have_one_of_its_own_and_no_room_to_pin_is_no_reason_for_a_second() {
    let config = "status.repo = 'acme/ops'\n[repos.'acme/payments']\nstatus.repo = 'acme/payments'";
    let stage = Testbed::new(with_ops(), config);
    stage.with(|world| {
        for n in 0..3 {
            let issue = world.person_writes_issue("acme/payments", "maria", &format!("pinned {n}"), &[]);
            world.person_pins_issue(&issue);
        }
    });
    stage.open();
    stage.with(|world| world.open_pr(fakes::NewPullRequest { repo: "acme/ops".to_owned(), ..Default::default() }));
    stage.pass(30).await;
    let issues = stage.with(|world| ours(world));
    assert_eq!(issues.len(), 2, "{issues:?}");
    let of = |repo: &str| issues.iter().find(|(place, _)| place.repo == repo).unwrap().1.clone();
    let (whole, own) = (of("acme/ops"), of("acme/payments"));
    assert!(whole.pinned && whole.body.contains("| acme/payments |") && whole.body.contains("| acme/ops |"));
    assert!(
        !own.pinned && own.body.contains("| acme/payments |") && !own.body.contains("| acme/ops |"),
        "{}",
        own.body
    );
    assert_eq!(own.title, "Suture status: acme/payments");
}

#[tokio::test]
async fn status_is_reached_whatever_fails_before() {
    // The sentinel asks what does not answer, the backlog of a repository that is not there, Jenkins is down.
    let config = "status.repo = 'acme/ops'\nsentinel.urls = ['https://shop.example']\n[repos.'acme/nowhere']\nbacklog.enabled = true";
    let stage = Testbed::new(with_ops(), config);
    let pr = stage.open();
    stage.pass(1).await;
    stage.with(|world| world.person_merges(&pr, "maria"));
    stage.set_health("https://shop.example/", 0);
    stage.set_jenkins_down(true);
    stage.pass(10).await;
    let failed: Vec<String> = stage.summaries().iter().flat_map(|summary| summary.errors.clone()).collect();
    assert!(failed.iter().any(|error| error.starts_with("backlog: acme/nowhere: not there")), "{failed:?}");
    let issues = stage.with(|world| ours(world));
    let status = issues.iter().find(|(_, issue)| issue.labels == ["suture/status"]).map(|(_, issue)| issue);
    let body = &status.expect("it is there").body;
    assert!(body.contains("| MERGED | 1 |") && body.contains("- **Down since "), "{body}");
}

#[tokio::test]
async fn it_is_one_issue_wherever_the_process_dies() {
    let mut points = 0;
    for how in CallFault::CRASHES {
        for at in 0.. {
            let stage = Testbed::new(with_ops(), CONFIG);
            stage.sweeping.set(false);
            stage.open();
            stage.pass(2).await;
            let reached = stopped(&stage, at, how).await;
            stage.sweeping.set(true);
            stage.pass(30).await;
            let issues = stage.with(|world| ours(world));
            assert_eq!(issues.len(), 1, "stopped {how:?} call {at}: {issues:?}");
            assert!(issues[0].1.pinned && issues[0].1.body.contains("| MERGED | 1 |"), "stopped {how:?} call {at}");
            if !reached {
                break;
            }
            points += 1;
        }
    }
    println!("{points} points");
    assert!(points > 60, "{points}");
}
