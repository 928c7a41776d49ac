//! Pull requests from opened to merged without faults, in virtual time.

use fakes::{
    AuditedAction, FakePrId, FakeSettings, Fakes, Fault, JenkinsReporting, NewPullRequest, ProtectionSource,
    RepoSettings, WebhookTarget,
};
use jiff::SignedDuration;

pub(crate) fn minutes(fakes: &mut Fakes, minutes: i64) {
    fakes.advance(SignedDuration::from_mins(minutes));
}

/// One repository with a newly opened pull request.
pub(crate) fn opened_in(repo: RepoSettings) -> (Fakes, FakePrId) {
    let mut fakes = Fakes::new(1, FakeSettings { repos: vec![repo], ..FakeSettings::default() });
    let pr = fakes.open_pr(NewPullRequest::default());
    (fakes, pr)
}

pub(crate) fn opened() -> (Fakes, FakePrId) {
    opened_in(RepoSettings::new("acme/payments"))
}

#[test]
fn pull_request_merges_without_faults() {
    for protection in [ProtectionSource::Classic, ProtectionSource::Ruleset, ProtectionSource::None] {
        for reports in [JenkinsReporting::Status, JenkinsReporting::CheckRun, JenkinsReporting::Both] {
            let (mut fakes, pr) =
                opened_in(RepoSettings { protection, reports, strict: true, ..RepoSettings::new("acme/payments") });
            minutes(&mut fakes, 30);
            let pull = fakes.pull(&pr).unwrap();
            assert_eq!(pull.merged_by.as_deref(), Some("automerge-bot[bot]"), "{protection:?} {reports:?}");
            assert_eq!(fakes.builds(&pr).count(), 1);
            assert_eq!(fakes.reviews(&pr).len(), 1);
            assert_eq!(fakes.needs_a_person(&pr), None);
            assert_eq!(fakes.next_event_at(), Some(fakes.now()), "only untaken webhooks are left");
            assert!(!fakes.take_webhooks().is_empty());
            assert_eq!(fakes.next_event_at(), None);
        }
    }
}

#[test]
fn webhooks_cover_the_whole_lifecycle() {
    let (mut fakes, pr) = opened();
    minutes(&mut fakes, 30);
    let webhooks: Vec<_> = fakes.take_webhooks();
    let names: Vec<_> = webhooks.iter().map(|it| (it.event.as_str(), it.action.as_deref())).collect();
    for expected in [
        ("pull_request", Some("opened")),
        ("status", None),
        ("pull_request_review", Some("submitted")),
        ("pull_request", Some("closed")),
        ("push", None),
    ] {
        assert!(names.contains(&expected), "{expected:?} in {names:?}");
    }
    assert!(webhooks.iter().all(
        |it| it.target == WebhookTarget::GitHub && it.headers.iter().any(|(name, _)| name == "x-hub-signature-256")
    ));
    assert!(webhooks.iter().filter(|it| it.event != "push").all(|it| it.pr.as_ref() == Some(&pr)));
    let merged: serde_json::Value =
        serde_json::from_slice(&webhooks.iter().rev().find(|it| it.action.as_deref() == Some("closed")).unwrap().body)
            .unwrap();
    assert_eq!(merged["pull_request"]["merged"], true);
    assert_eq!(merged["pull_request"]["merged_by"]["login"], "automerge-bot[bot]");
    assert!(!merged["pull_request"]["merged_at"].as_str().unwrap().contains('.'), "whole seconds");
}

#[test]
fn same_seed_gives_the_same_history() {
    let history = |seed| {
        let faults = fakes::FaultRates::all();
        let mut fakes = Fakes::new(seed, FakeSettings { faults, ..FakeSettings::default() });
        fakes.schedule_prs(20, SignedDuration::from_mins(1));
        minutes(&mut fakes, 120);
        let sent: Vec<_> = fakes.take_webhooks().into_iter().map(|it| (it.guid, it.due, it.body)).collect();
        (sent, fakes.audit().to_vec())
    };
    assert_eq!(history(7), history(7));
    assert_ne!(history(7).0, history(8).0);
}

#[test]
fn requests_do_not_change_the_faults_of_other_pull_requests() {
    let history = |interfere: bool| {
        let repos = vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/ledger")];
        let mut fakes =
            Fakes::new(9, FakeSettings { repos, faults: fakes::FaultRates::all(), ..FakeSettings::default() });
        fakes.schedule_prs(40, SignedDuration::from_mins(1));
        minutes(&mut fakes, 5);
        if interfere {
            for _ in 0..20 {
                drop(super::client::try_github(
                    &mut fakes,
                    "GET",
                    "/repos/acme/payments/pulls/1",
                    &[("authorization", "Bearer world-token")],
                    &serde_json::Value::Null,
                ));
            }
            fakes.person_pushes(&FakePrId { repo: "acme/payments".to_owned(), number: 1 }, "danny");
        }
        minutes(&mut fakes, 300);
        let others = fakes.pulls().filter(|(pr, _)| pr.repo == "acme/ledger");
        others.map(|(pr, pull)| (pull.closed_at, fakes.struck(&pr).to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(history(false), history(true));
}

#[test]
fn merge_queue_merges_an_enqueued_pull_request() {
    let (mut fakes, pr) = opened_in(RepoSettings { merge_queue: true, ..RepoSettings::new("acme/payments") });
    minutes(&mut fakes, 40);
    assert_eq!(fakes.pull(&pr).unwrap().merged_by.as_deref(), Some("github-merge-queue[bot]"));
    let actions: Vec<_> = fakes.take_webhooks().into_iter().filter_map(|it| it.action).collect();
    for expected in ["enqueued", "checks_requested", "destroyed", "closed"] {
        assert!(actions.iter().any(|action| action == expected), "{expected}");
    }
}

#[test]
fn auto_merge_merges_as_the_user_who_enabled_it() {
    let (mut fakes, pr) = opened();
    fakes.person_auto_merges(&pr, "maria", true);
    minutes(&mut fakes, 30);
    assert_eq!(fakes.pull(&pr).unwrap().merged_by.as_deref(), Some("maria"));
    assert!(fakes.take_webhooks().iter().any(|it| it.action.as_deref() == Some("auto_merge_enabled")));
}

#[test]
fn strict_base_blocks_the_merge_until_the_branch_is_updated() {
    let (mut fakes, pr) = opened_in(RepoSettings { strict: true, ..RepoSettings::new("acme/payments") });
    fakes.push_base("acme/payments");
    minutes(&mut fakes, 60);
    assert!(!fakes.is_merged(&pr));
    assert_eq!(fakes.behind_by(&pr), 1);
    let updated =
        super::client::ask(&mut fakes, "PUT", "/repos/acme/payments/pulls/1/update-branch", serde_json::json!({}));
    assert_eq!(updated.code, 202);
    assert_eq!(fakes.behind_by(&pr), 0);
    minutes(&mut fakes, 30);
    assert!(fakes.is_merged(&pr), "built, evaluated and approved again");
    assert_eq!(fakes.builds(&pr).count(), 2);
}

#[test]
fn push_dismisses_approvals_and_restarts_the_checks() {
    let (mut fakes, pr) = opened();
    fakes.force(Fault::AutomergeAsleep, &pr);
    minutes(&mut fakes, 40);
    assert_eq!(fakes.reviews(&pr).len(), 1);
    fakes.take_webhooks();
    fakes.person_pushes(&pr, "danny").unwrap();
    minutes(&mut fakes, 1);
    let actions: Vec<_> = fakes.take_webhooks().into_iter().filter_map(|it| it.action).collect();
    assert!(actions.contains(&"synchronize".to_owned()) && actions.contains(&"dismissed".to_owned()), "{actions:?}");
    minutes(&mut fakes, 30);
    assert!(fakes.is_merged(&pr));
}

#[test]
fn users_can_close_reopen_label_and_draft() {
    let (mut fakes, pr) = opened();
    fakes.person_drafts(&pr, "danny", true);
    minutes(&mut fakes, 60);
    assert!(!fakes.is_merged(&pr), "drafts are not approved");
    fakes.person_labels(&pr, "danny", "hold");
    fakes.person_drafts(&pr, "danny", false);
    minutes(&mut fakes, 60);
    assert!(!fakes.is_merged(&pr), "the label `hold` blocks the merge");
    fakes.person_closes(&pr, "danny");
    assert!(fakes.person_reopens(&pr, "danny"));
    fakes.person_unlabels(&pr, "danny", "hold");
    minutes(&mut fakes, 60);
    assert!(fakes.is_merged(&pr));
    assert!(!fakes.person_reopens(&pr, "danny"), "a merged pull request cannot be reopened");
    let actions: Vec<_> = fakes.audit_by("danny").map(|it| it.action).collect();
    assert_eq!(
        actions,
        [
            AuditedAction::LabelAdded,
            AuditedAction::PullClosed,
            AuditedAction::PullReopened,
            AuditedAction::LabelRemoved
        ]
    );
}
