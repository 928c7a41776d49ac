//! Pull requests from opened to merged without faults, in virtual time.

use fakes::{
    AuditedAction, FakePrId, FakeSettings, Fakes, Fault, JenkinsReporting, NewPullRequest, ProtectionSource,
    RepoSettings, WebhookTarget,
};
use jiff::SignedDuration;

pub(crate) fn minutes(fakes: &mut Fakes, minutes: i64) {
    fakes.advance(SignedDuration::from_mins(minutes));
}

/// One repository, and a pull request just opened in it.
pub(crate) fn opened_in(repo: RepoSettings) -> (Fakes, FakePrId) {
    let mut fakes = Fakes::new(1, FakeSettings { repos: vec![repo], ..FakeSettings::default() });
    let pr = fakes.open_pr(NewPullRequest::default());
    (fakes, pr)
}

pub(crate) fn opened() -> (Fakes, FakePrId) {
    opened_in(RepoSettings::new("acme/payments"))
}

#[test]
fn a_life_without_faults_ends_merged() {
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
            assert_eq!(fakes.next_event_at(), Some(fakes.now()), "only webhooks to take are left");
            assert!(!fakes.take_webhooks().is_empty());
            assert_eq!(fakes.next_event_at(), None);
        }
    }
}

#[test]
fn a_life_is_told_by_webhooks() {
    let (mut fakes, pr) = opened();
    minutes(&mut fakes, 30);
    let told: Vec<_> = fakes.take_webhooks();
    let names: Vec<_> = told.iter().map(|it| (it.event.as_str(), it.action.as_deref())).collect();
    for expected in [
        ("pull_request", Some("opened")),
        ("status", None),
        ("pull_request_review", Some("submitted")),
        ("pull_request", Some("closed")),
        ("push", None),
    ] {
        assert!(names.contains(&expected), "{expected:?} in {names:?}");
    }
    assert!(told.iter().all(
        |it| it.target == WebhookTarget::GitHub && it.headers.iter().any(|(name, _)| name == "x-hub-signature-256")
    ));
    assert!(told.iter().filter(|it| it.event != "push").all(|it| it.pr.as_ref() == Some(&pr)));
    let merged: serde_json::Value =
        serde_json::from_slice(&told.iter().rev().find(|it| it.action.as_deref() == Some("closed")).unwrap().body)
            .unwrap();
    assert_eq!(merged["pull_request"]["merged"], true);
    assert_eq!(merged["pull_request"]["merged_by"]["login"], "automerge-bot[bot]");
    assert!(!merged["pull_request"]["merged_at"].as_str().unwrap().contains('.'), "whole seconds");
}

#[test]
fn the_same_seed_makes_the_same_world_and_another_seed_another_one() {
    let tell = |seed| {
        let faults = fakes::FaultRates::all();
        let mut fakes = Fakes::new(seed, FakeSettings { faults, ..FakeSettings::default() });
        fakes.schedule_prs(20, SignedDuration::from_mins(1));
        minutes(&mut fakes, 120);
        let sent: Vec<_> = fakes.take_webhooks().into_iter().map(|it| (it.guid, it.due, it.body)).collect();
        (sent, fakes.audit().to_vec())
    };
    assert_eq!(tell(7), tell(7));
    assert_ne!(tell(7).0, tell(8).0);
}

#[test]
fn what_is_asked_does_not_change_what_happens_to_others() {
    let tell = |meddle: bool| {
        let repos = vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/ledger")];
        let mut fakes =
            Fakes::new(9, FakeSettings { repos, faults: fakes::FaultRates::all(), ..FakeSettings::default() });
        fakes.schedule_prs(40, SignedDuration::from_mins(1));
        minutes(&mut fakes, 5);
        if meddle {
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
    assert_eq!(tell(false), tell(true));
}

#[test]
fn a_merge_queue_merges_what_it_was_given() {
    let (mut fakes, pr) = opened_in(RepoSettings { merge_queue: true, ..RepoSettings::new("acme/payments") });
    minutes(&mut fakes, 40);
    assert_eq!(fakes.pull(&pr).unwrap().merged_by.as_deref(), Some("github-merge-queue[bot]"));
    let actions: Vec<_> = fakes.take_webhooks().into_iter().filter_map(|it| it.action).collect();
    for expected in ["enqueued", "checks_requested", "destroyed", "closed"] {
        assert!(actions.iter().any(|action| action == expected), "{expected}");
    }
}

#[test]
fn auto_merge_merges_for_whoever_switched_it_on() {
    let (mut fakes, pr) = opened();
    fakes.person_auto_merges(&pr, "maria", true);
    minutes(&mut fakes, 30);
    assert_eq!(fakes.pull(&pr).unwrap().merged_by.as_deref(), Some("maria"));
    assert!(fakes.take_webhooks().iter().any(|it| it.action.as_deref() == Some("auto_merge_enabled")));
}

#[test]
fn a_strict_base_that_moves_keeps_a_head_from_being_merged_until_it_is_updated() {
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
    assert!(fakes.is_merged(&pr), "built, evaluated and approved anew");
    assert_eq!(fakes.builds(&pr).count(), 2);
}

#[test]
fn a_push_dismisses_approvals_and_starts_anew() {
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
fn people_close_reopen_label_and_draft() {
    let (mut fakes, pr) = opened();
    fakes.person_drafts(&pr, "danny", true);
    minutes(&mut fakes, 60);
    assert!(!fakes.is_merged(&pr), "drafts are not approved");
    fakes.person_labels(&pr, "danny", "hold");
    fakes.person_drafts(&pr, "danny", false);
    minutes(&mut fakes, 60);
    assert!(!fakes.is_merged(&pr), "a label holds it");
    fakes.person_closes(&pr, "danny");
    assert!(fakes.person_reopens(&pr, "danny"));
    fakes.person_unlabels(&pr, "danny", "hold");
    minutes(&mut fakes, 60);
    assert!(fakes.is_merged(&pr));
    assert!(!fakes.person_reopens(&pr, "danny"), "what is merged stays merged");
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
