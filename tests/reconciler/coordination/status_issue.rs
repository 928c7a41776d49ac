//! The status issue: one per repository or organisation, pinned, edited in place, and updated even when other steps fail.

use fakes::{AuditedAction, FakeSettings, Fault, RepoSettings};
use testbed::{CallFault, Testbed};

use super::{actions, suture_issues, sweep_with_fault};

const CONFIG: &str = "status_issue.repo = 'acme/ops'";

fn with_ops() -> FakeSettings {
    FakeSettings {
        repos: vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/ops")],
        ..FakeSettings::default()
    }
}

#[tokio::test]
async fn status_issue_is_pinned_and_edited_in_place() {
    let testbed = Testbed::new(with_ops(), CONFIG);
    let prs: Vec<_> = (0..3).map(|_| testbed.open()).collect();
    testbed.with(|fakes| fakes.force(Fault::RealTestFailure, &prs[0]));
    testbed.pass(2).await;
    let issues = testbed.with(|fakes| suture_issues(fakes));
    assert_eq!(issues.len(), 1, "{issues:?}");
    let (id, issue) = issues[0].clone();
    assert_eq!((id.repo.as_str(), issue.title.as_str()), ("acme/ops", "Suture status: acme"));
    assert!(issue.pinned && issue.labels == ["suture/status"], "{issue:?}");
    testbed.pass(180).await;
    let now = testbed.with(|fakes| fakes.issue(&id).unwrap().clone());
    assert_eq!(testbed.with(|fakes| suture_issues(fakes)).len(), 1);
    assert!(now.body.contains("| NEEDS_INTERVENTION | 1 |") && now.body.contains("| MERGED | 2 |"), "{}", now.body);
    assert!(now.body.contains(&format!("- {} since ", prs[0])), "{}", now.body);
    assert!(now.body.contains("| UTC | 3 | 2 |"), "{}", now.body);
    // Without new activity the issue is not edited.
    let edits = actions(&testbed, AuditedAction::IssueEdited);
    assert!((2..30).contains(&edits), "{edits}");
    testbed.pass(120).await;
    assert_eq!(actions(&testbed, AuditedAction::IssueEdited), edits);
    assert_eq!((actions(&testbed, AuditedAction::IssueOpened), actions(&testbed, AuditedAction::IssuePinned)), (1, 1));
}

#[tokio::test]
async fn status_issue_closed_by_a_person_stays_closed() {
    let testbed = Testbed::new(with_ops(), CONFIG);
    testbed.open();
    testbed.pass(2).await;
    let (id, _) = testbed.with(|fakes| suture_issues(fakes)).remove(0);
    testbed.with(|fakes| fakes.person_closes_issue(&id, "maria", true));
    testbed.pass(60).await;
    let issue = testbed.with(|fakes| fakes.issue(&id).unwrap().clone());
    assert!(!issue.open && issue.body.contains("| MERGED | 1 |"), "the closed issue is still updated: {}", issue.body);
    assert_eq!(
        (testbed.with(|fakes| suture_issues(fakes)).len(), actions(&testbed, AuditedAction::IssuePinned)),
        (1, 1)
    );
}

#[tokio::test]
async fn repository_has_its_own_status_issue_even_if_pinning_fails() {
    let config = "status_issue.repo = 'acme/ops'\n[repos.'acme/payments']\nstatus_issue.repo = 'acme/payments'";
    let testbed = Testbed::new(with_ops(), config);
    testbed.with(|fakes| {
        for n in 0..3 {
            let issue = fakes.person_writes_issue("acme/payments", "maria", &format!("pinned {n}"), &[]);
            fakes.person_pins_issue(&issue);
        }
    });
    testbed.open();
    testbed.with(|fakes| fakes.open_pr(fakes::NewPullRequest { repo: "acme/ops".to_owned(), ..Default::default() }));
    testbed.pass(30).await;
    let issues = testbed.with(|fakes| suture_issues(fakes));
    assert_eq!(issues.len(), 2, "{issues:?}");
    let of = |repo: &str| issues.iter().find(|(id, _)| id.repo == repo).unwrap().1.clone();
    let (organisation, own) = (of("acme/ops"), of("acme/payments"));
    assert!(
        organisation.pinned
            && organisation.body.contains("| acme/payments |")
            && organisation.body.contains("| acme/ops |")
    );
    assert!(
        !own.pinned && own.body.contains("| acme/payments |") && !own.body.contains("| acme/ops |"),
        "{}",
        own.body
    );
    assert_eq!(own.title, "Suture status: acme/payments");
}

#[tokio::test]
async fn status_issue_is_updated_when_earlier_steps_fail() {
    // The health check gets no response, the backlog's repository does not exist, and Jenkins is down.
    let config = "status_issue.repo = 'acme/ops'\npost_merge_health.urls = ['https://shop.example']\n[repos.'acme/nowhere']\nbacklog.enabled = true";
    let testbed = Testbed::new(with_ops(), config);
    let pr = testbed.open();
    testbed.pass(1).await;
    testbed.with(|fakes| fakes.person_merges(&pr, "maria"));
    testbed.set_health("https://shop.example/", 0);
    testbed.set_jenkins_down(true);
    testbed.pass(10).await;
    let failed: Vec<String> = testbed.summaries().iter().flat_map(|summary| summary.errors.clone()).collect();
    assert!(failed.iter().any(|error| error.starts_with("backlog: acme/nowhere: not found")), "{failed:?}");
    let issues = testbed.with(|fakes| suture_issues(fakes));
    let status = issues.iter().find(|(_, issue)| issue.labels == ["suture/status"]).map(|(_, issue)| issue);
    let body = &status.expect("the status issue exists").body;
    assert!(body.contains("| MERGED | 1 |") && body.contains("- **Down since "), "{body}");
}

#[tokio::test]
async fn crash_at_any_call_opens_one_status_issue() {
    let mut points = 0;
    for fault in CallFault::CRASHES {
        for at in 0.. {
            let testbed = Testbed::new(with_ops(), CONFIG);
            testbed.sweeping.set(false);
            testbed.open();
            testbed.pass(2).await;
            let reached = sweep_with_fault(&testbed, at, fault).await;
            testbed.sweeping.set(true);
            testbed.pass(30).await;
            let issues = testbed.with(|fakes| suture_issues(fakes));
            assert_eq!(issues.len(), 1, "crash {fault:?} call {at}: {issues:?}");
            assert!(issues[0].1.pinned && issues[0].1.body.contains("| MERGED | 1 |"), "crash {fault:?} call {at}");
            if !reached {
                break;
            }
            points += 1;
        }
    }
    println!("{points} crash points");
    assert!(points > 60, "{points}");
}
