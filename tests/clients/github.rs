//! The GitHub client against the fake GitHub: writes and reads.

use domain::command::RepoPermission;
use domain::id::{PrId, RepoName, Sha};
use domain::text::check_run::CheckRunButton;
use fakes::{Fault, NewPullRequest as Fresh, ProtectionSource, RepoSettings};
use jiff::SignedDuration;
use platform::github::{BaseRequirements, BranchUpdate, CheckRun, CheckRunState, IssueChange, Reaction};
use platform::transport::ApiError;
use testbed::Testbed;

use crate::{testbed_with, token};

/// A pull request on the fake GitHub with its id and head.
pub(crate) fn opened(testbed: &Testbed) -> (fakes::FakePrId, PrId, Sha) {
    let pr = testbed.with(|fakes| fakes.open_pr(Fresh::default()));
    let id = id(&pr);
    let head = head(testbed, &pr);
    (pr, id, head)
}

pub(crate) fn id(pr: &fakes::FakePrId) -> PrId {
    pr.to_string().parse().expect("a pull request")
}

pub(crate) fn head(testbed: &Testbed, pr: &fakes::FakePrId) -> Sha {
    testbed.with(|fakes| fakes.pull(pr).unwrap().commits.last().unwrap().parse().unwrap())
}

fn repo() -> RepoName {
    "acme/payments".parse().unwrap()
}

/// Asserts that the fakes know every request.
fn assert_requests_known(testbed: &Testbed) {
    assert_eq!(testbed.with(|fakes| fakes.unknown_requests().to_vec()), Vec::<String>::new());
}

#[tokio::test]
async fn update_branch_runs_once_and_names_each_refusal() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, id, head_before) = opened(&testbed);
    assert_eq!(testbed.github.update_branch(&id, &head_before).await, Ok(BranchUpdate::NothingToMerge));
    testbed.with(|fakes| fakes.push_base("acme/payments"));
    assert_eq!(testbed.github.behind_by(&id.repo, "main", &head_before).await, Ok(1));
    assert_eq!(testbed.github.update_branch(&id, &head_before).await, Ok(BranchUpdate::Accepted));
    testbed.advance(SignedDuration::from_mins(1));
    assert_ne!(head(&testbed, &pr), head_before);
    assert_eq!(testbed.github.update_branch(&id, &head_before).await, Ok(BranchUpdate::HeadMoved));
    assert_eq!(testbed.github.behind_by(&id.repo, "main", &head(&testbed, &pr)).await, Ok(0));
    testbed.with(|fakes| fakes.conflict(&pr));
    let now = head(&testbed, &pr);
    assert_eq!(testbed.github.update_branch(&id, &now).await, Ok(BranchUpdate::Conflict));
    assert_requests_known(&testbed);
}

#[tokio::test]
async fn comment_with_a_lost_response_is_found_by_its_marker() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, id, _) = opened(&testbed);
    for n in 0..120 {
        testbed.with(|fakes| fakes.person_comments(&pr, "danny", &format!("remark {n}")));
    }
    let marker = "<!-- suture:run-1 -->";
    assert_eq!(testbed.github.find_comment(&id, marker, None).await.unwrap(), None);
    testbed.with(|fakes| fakes.force_request(Fault::AnswerLost));
    let error = testbed.github.comment(&id, &format!("Closing this.\n{marker}")).await.unwrap_err();
    assert!(error.may_have_happened(), "{error}");
    let found = testbed.github.find_comment(&id, marker, None).await.unwrap().expect("the comment on the second page");
    assert!(found.body.starts_with("Closing this."));
    let since = testbed.with(|fakes| fakes.now());
    let again = testbed.github.find_comment(&id, marker, Some(since - SignedDuration::from_mins(1))).await.unwrap();
    assert_eq!(again.map(|comment| comment.id), Some(found.id));
    assert_eq!(testbed.with(|fakes| fakes.comments(&pr).filter(|one| one.body.contains(marker)).count()), 1);
    assert_requests_known(&testbed);
}

#[tokio::test]
async fn timed_out_write_has_an_unknown_outcome() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, id, _) = opened(&testbed);
    testbed.github.pull(&id).await.unwrap();
    testbed.with(|fakes| fakes.force_request(Fault::ApiTimeout));
    assert!(testbed.github.comment(&id, "x").await.unwrap_err().may_have_happened());
    assert_eq!(testbed.with(|fakes| fakes.comments(&pr).count()), 0);
}

#[tokio::test]
async fn reactions_and_labels_are_written() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, id, _) = opened(&testbed);
    let comment = testbed.with(|fakes| fakes.person_comments(&pr, "danny", "/rebuild")).unwrap();
    let written = testbed.github.find_comment(&id, "/rebuild", None).await.unwrap().unwrap();
    assert_eq!(written.id, comment);
    for reaction in [Reaction::Eyes, Reaction::Eyes, Reaction::Rocket, Reaction::Confused] {
        testbed.github.react(&id.repo, &written.node_id, reaction).await.unwrap();
    }
    let mut reactions: Vec<String> = testbed.with(|fakes| {
        let comment = fakes.comments(&pr).find(|one| one.id == comment).unwrap();
        comment.reactions.iter().map(|one| one.content.to_string()).collect()
    });
    reactions.sort();
    assert_eq!(reactions, ["confused", "eyes", "rocket"]);
    let gone = testbed.github.react(&id.repo, "IC_nothing", Reaction::Eyes).await;
    assert!(matches!(gone, Err(ApiError::NotFound { .. })), "{gone:?}");
    testbed.github.add_labels(&id, &["suture/hold", "needs a look"]).await.unwrap();
    let labels = testbed.github.pull(&id).await.unwrap().labels;
    assert!(labels.contains(&"needs a look".to_owned()) && labels.contains(&"codegenie".to_owned()), "{labels:?}");
    assert_eq!(testbed.github.remove_label(&id, "needs a look").await, Ok(true));
    assert_eq!(testbed.github.remove_label(&id, "needs a look").await, Ok(false));
    assert_eq!(testbed.github.remove_label(&id, "suture/hold").await, Ok(true));
    assert_eq!(testbed.github.pull(&id).await.unwrap().labels, ["codegenie"]);
    assert_requests_known(&testbed);
}

#[tokio::test]
async fn pull_request_is_closed_once() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (_, id, _) = opened(&testbed);
    let pull = testbed.github.pull(&id).await.unwrap();
    assert_eq!((pull.open, pull.merged, pull.closed_at), (true, false, None));
    for _ in 0..2 {
        testbed.github.close(&id).await.unwrap();
        let pull = testbed.github.pull(&id).await.unwrap();
        assert!(!pull.open && !pull.merged && pull.closed_at.is_some(), "{pull:?}");
    }
    let nowhere = testbed.github.pull(&PrId::new(id.repo, 999)).await;
    assert!(matches!(nowhere, Err(ApiError::NotFound { .. })));
    assert_requests_known(&testbed);
}

#[tokio::test]
async fn permissions_match_github() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    for (login, expected) in [
        ("maria", Some(RepoPermission::Admin)),
        ("danny", Some(RepoPermission::Write)),
        ("guest", Some(RepoPermission::Read)),
    ] {
        assert_eq!(testbed.github.permission(&repo(), login).await, Ok(expected), "{login}");
    }
    assert_requests_known(&testbed);
}

#[tokio::test]
async fn required_checks_come_from_protection_and_rulesets() {
    for (protection, strict) in [
        (ProtectionSource::Classic, true),
        (ProtectionSource::Ruleset, true),
        (ProtectionSource::Classic, false),
        (ProtectionSource::None, false),
    ] {
        let repository = RepoSettings { protection, strict, ..RepoSettings::new("acme/payments") };
        let testbed = testbed_with(fakes::FakeSettings { repos: vec![repository], ..fakes::FakeSettings::default() });
        let required = testbed.github.required(&repo(), "main").await.unwrap();
        let names: &[&str] = match protection {
            ProtectionSource::None => &[],
            ProtectionSource::Classic | ProtectionSource::Ruleset => {
                &["continuous-integration/jenkins/pr-merge", "policy-bot: main"]
            }
        };
        let contexts = Some(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(required, BaseRequirements { contexts, strict }, "{protection:?}");
        assert_requests_known(&testbed);
    }
}

#[tokio::test]
async fn check_runs_are_created_updated_and_listed() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let (pr, id, head) = opened(&testbed);
    let run = CheckRun {
        name: "Suture".to_owned(),
        head: head.clone(),
        external_id: id.to_string(),
        state: CheckRunState::InProgress,
        title: "Watching".to_owned(),
        summary: "x".repeat(70_000),
        buttons: vec![CheckRunButton::Rebuild, CheckRunButton::Hold, CheckRunButton::Explain],
        completed_at: None,
    };
    let ours = testbed.github.create_check_run(&id.repo, &run).await.unwrap();
    let done = CheckRun { state: CheckRunState::Neutral, summary: "done".to_owned(), ..run };
    testbed.github.update_check_run(&id.repo, ours, &done).await.unwrap();
    let theirs = testbed.with(|fakes| fakes.post_check_on(&pr, "lint", Some("failure"), "2 errors")).unwrap();
    let seen = testbed.github.check_runs(&id.repo, &head).await.unwrap();
    let found = |name: &str| seen.iter().find(|run| run.name == name).unwrap();
    assert_eq!((found("Suture").id, found("Suture").conclusion.as_deref()), (ours, Some("neutral")));
    assert_eq!((found("lint").id, found("lint").conclusion.as_deref()), (theirs, Some("failure")));
    testbed.github.rerequest_check_run(&id.repo, ours).await.unwrap();
    assert_requests_known(&testbed);
}

#[tokio::test]
async fn issues_are_written_found_and_pinned() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    let issue = testbed.github.create_issue(&repo(), "Suture", "All is well", &["suture/status"]).await.unwrap();
    opened(&testbed);
    let found = testbed.github.issues_labelled(&repo(), "suture/status", false).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&issue));
    let ours = testbed.github.issues_labelled(&repo(), "codegenie", true).await.unwrap();
    assert_eq!(ours, [], "pull requests are not listed");
    let change = IssueChange { body: Some("Two are stuck".to_owned()), ..IssueChange::default() };
    let changed = testbed.github.update_issue(&repo(), issue.number, &change).await.unwrap();
    assert_eq!((changed.title.as_str(), changed.body.as_str()), ("Suture", "Two are stuck"));
    testbed.github.pin_issue(&repo(), &issue).await.unwrap();
    let (state, state_reason) = (Some("closed".to_owned()), Some("not_planned".to_owned()));
    let closing = IssueChange { state, state_reason, ..IssueChange::default() };
    assert!(!testbed.github.update_issue(&repo(), issue.number, &closing).await.unwrap().is_open());
    assert_eq!(testbed.github.issues_labelled(&repo(), "suture/status", false).await.unwrap(), []);
    assert_eq!(testbed.github.issues_labelled(&repo(), "suture/status", true).await.unwrap().len(), 1);
    let shown = testbed.github.issue(&repo(), issue.number).await.unwrap();
    assert_eq!(
        (shown.labels.as_slice(), shown.assigned, shown.is_pull),
        (&["suture/status".to_owned()][..], false, false)
    );
    let gone = testbed.github.issue(&repo(), 999).await;
    assert!(matches!(gone, Err(platform::transport::ApiError::NotFound { .. })), "{gone:?}");
    assert_requests_known(&testbed);
}

#[tokio::test]
async fn app_lists_installations_and_failed_deliveries() {
    let testbed = testbed_with(fakes::FakeSettings::default());
    assert_eq!(testbed.github.health().await.unwrap().app.unwrap().slug, "suture");
    let installations = testbed.github.installations().await.unwrap();
    assert_eq!((installations[0].id, installations[0].owner.as_str()), (815, "acme"));
    assert_eq!(testbed.github.repositories("acme").await.unwrap(), [repo()]);
    opened(&testbed);
    testbed.advance(SignedDuration::from_mins(1));
    let start = testbed.with(|fakes| fakes.settings().start);
    let deliveries = testbed.with(fakes::Fakes::take_webhooks);
    assert!(deliveries.len() > 1);
    testbed.with(|fakes| {
        fakes.webhook_answered(&deliveries[0], 500);
        for delivery in &deliveries[1..] {
            fakes.webhook_answered(delivery, 200);
        }
    });
    let listed = testbed.github.failed_deliveries(start).await.unwrap();
    assert!(listed.is_complete);
    let failed = listed.deliveries;
    let guids: Vec<&str> = failed.iter().map(|delivery| delivery.guid.as_str()).collect();
    assert_eq!(guids, [deliveries[0].guid.as_str()]);
    assert_eq!((failed[0].event.as_str(), failed[0].status_code), (deliveries[0].event.as_str(), 500));
    testbed.github.redeliver(failed[0].id).await.unwrap();
    testbed.advance(SignedDuration::from_mins(1));
    let again = testbed.with(fakes::Fakes::take_webhooks);
    let again = again.iter().find(|delivery| delivery.guid == deliveries[0].guid).expect("a redelivery");
    testbed.with(|fakes| fakes.webhook_answered(again, 200));
    // The failed attempt stays listed; whether a later one succeeded is not asked.
    assert_eq!(testbed.github.failed_deliveries(start).await.unwrap().deliveries, failed);
    let later = testbed.now() - SignedDuration::from_secs(30);
    assert_eq!(testbed.github.failed_deliveries(later).await.unwrap().deliveries, []);
    assert_requests_known(&testbed);
}

#[tokio::test]
async fn token_expired_early_is_renewed_transparently() {
    let settings = fakes::FakeSettings { token_secs: 60, ..fakes::FakeSettings::default() };
    let testbed = testbed_with(settings);
    let (_, id, _) = opened(&testbed);
    testbed.github.pull(&id).await.unwrap();
    testbed.advance(SignedDuration::from_mins(5));
    testbed.github.pull(&id).await.unwrap();
    let exchanges = testbed.transport.lines().iter().filter(|line| line.ends_with("/access_tokens")).count();
    assert_eq!(exchanges, 2);
}

#[tokio::test]
async fn personal_token_works_and_a_bad_one_is_reported() {
    let testbed = Testbed::with_access(fakes::FakeSettings::default(), |access| access.credentials = token());
    let (_, id, _) = opened(&testbed);
    assert_eq!(testbed.github.health().await.unwrap().app, None);
    assert!(testbed.github.pull(&id).await.is_ok());
    assert!(testbed.github.rate_limits().rest.is_some_and(|rate| rate.limit == 5_000 && rate.remaining < 5_000));
    testbed.github.use_credentials(&platform::github::Credentials::token("nobody's"));
    let error = testbed.github.health().await.unwrap_err();
    assert!(matches!(error, ApiError::Unauthorized { .. }), "{error}");
}

#[tokio::test]
async fn client_obeys_rate_limits() {
    for fault in [Fault::ApiForbidden, Fault::ApiTooMany] {
        let testbed = testbed_with(fakes::FakeSettings::default());
        let (_, id, _) = opened(&testbed);
        testbed.github.pull(&id).await.unwrap();
        testbed.with(|fakes| fakes.force_request(fault));
        let until = testbed.github.pull(&id).await.unwrap_err().until().expect("a time");
        let sent = testbed.transport.count();
        assert!(testbed.github.pull(&id).await.is_err());
        assert_eq!(testbed.transport.count(), sent, "nothing was sent before {until}");
        testbed.with(|fakes| fakes.advance_to(until));
        assert!(testbed.github.pull(&id).await.is_ok(), "{fault:?}");
    }
}
