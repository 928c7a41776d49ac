//! Requests to CodeGenie and the bots: as `[retrigger]` says, and only if somebody can receive them.

use domain::state::State;
use fakes::{AuditedAction, FakePrId, FakeSettings, Fault};
use jiff::SignedDuration;
use testbed::Testbed;

/// The actions of Suture's App.
pub(crate) fn count(testbed: &Testbed, action: AuditedAction) -> usize {
    let is_suture = |by: &str| by == "bus" || by == "suture[bot]";
    testbed.with(|fakes| fakes.audit().iter().filter(|it| it.action == action && is_suture(&it.by)).count())
}

pub(crate) fn replies(testbed: &Testbed, pr: &FakePrId) -> Vec<String> {
    let bodies: Vec<String> =
        testbed.with(|fakes| fakes.comments(pr).map(|comment| comment.body.to_string()).collect());
    bodies.into_iter().filter(|body| body.contains("@maria")).collect()
}

/// Approved and in conflict, so that the next sweep closes it. With `command`, a person asks for that before.
pub(crate) async fn closing(testbed: &Testbed, command: bool) -> FakePrId {
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &pr));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Approved)).await);
    if command {
        testbed.with(|fakes| fakes.person_comments(&pr, "maria", "/close-and-reopen"));
        testbed.advance(SignedDuration::from_secs(3));
        testbed.deliver_webhooks().await;
    }
    testbed.with(|fakes| fakes.conflict(&pr));
    pr
}

pub(crate) async fn assert_replaced(testbed: &Testbed, pr: &FakePrId, at: &str) {
    let linked = testbed.until(60, async |testbed| testbed.record(pr).await.replaced_by.is_some()).await;
    assert!(linked, "{at}: {:?} {:?}", testbed.record(pr).await.active_run, testbed.kinds(pr).await);
    assert_eq!(testbed.record(pr).await.active_run, None, "{at}");
    assert_eq!(testbed.mails(), [], "{at}");
    assert_eq!(count(testbed, AuditedAction::PullClosed), 1, "{at}");
}

/// Regression: the pull request was closed first, and then CodeGenie could not be asked.
#[tokio::test]
async fn nothing_is_closed_when_nobody_receives_the_request() {
    for command in [true, false] {
        let testbed = Testbed::new(FakeSettings::default(), "");
        testbed.publisher.remove_receivers();
        let pr = closing(&testbed, command).await;
        let escalated =
            testbed.until(30, async |testbed| testbed.state(&pr).await == Some(State::NeedsIntervention)).await;
        assert!(escalated, "{:?}", testbed.kinds(&pr).await);
        assert_eq!(count(&testbed, AuditedAction::PullClosed), 0);
        assert!(testbed.with(|fakes| fakes.comments(&pr).all(|comment| !comment.body.contains("Closing due to"))));
        let advice = "set retrigger.codegenie to via = \"comment\", \"label\" or \"http\"";
        if command {
            let replies = replies(&testbed, &pr);
            assert!(replies.len() == 1 && replies[0].contains(advice), "{replies:?}");
        }
        let [(_, mail)] = &testbed.mails()[..] else { panic!("{:?}", testbed.mails()) };
        assert!(mail.body.contains(advice), "{}", mail.body);
    }
}

#[tokio::test]
async fn bot_without_a_receiver_is_escalated_at_once() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    testbed.publisher.remove_receivers();
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::ApproverAsleep, &pr));
    let escalated =
        testbed.until(120, async |testbed| testbed.state(&pr).await == Some(State::NeedsIntervention)).await;
    assert!(escalated, "{:?}", testbed.kinds(&pr).await);
    assert_eq!(testbed.kinds(&pr).await["REMEDIATION_RETRIGGER_APPROVER"], 1, "not repeated");
    let [(_, mail)] = &testbed.mails()[..] else { panic!("{:?}", testbed.mails()) };
    assert!(mail.body.contains("set retrigger.approver_bot"), "{}", mail.body);
}

#[tokio::test]
async fn replacement_is_requested_by_comment_or_label() {
    for (via, target, trigger) in [
        ("comment", "@codegenie fix {vulnerability_id} on {base_branch} instead of #{number}", "@codegenie"),
        ("label", "codegenie/replace", "codegenie/replace"),
    ] {
        let settings = FakeSettings { codegenie_trigger: Some(trigger.to_owned()), ..FakeSettings::default() };
        let config = format!("retrigger.codegenie = {{ via = \"{via}\", target = \"{target}\" }}");
        let testbed = Testbed::new(settings, &config);
        testbed.publisher.remove_receivers();
        let pr = closing(&testbed, true).await;
        assert_replaced(&testbed, &pr, via).await;
        assert_eq!(count(&testbed, AuditedAction::BusEvent), 0, "{via}");
        if via == "comment" {
            let id = testbed.record(&pr).await.vulnerability_id.unwrap();
            let text = format!("@codegenie fix {id} on main instead of #{}\n", pr.number);
            let asked = testbed.with(|fakes| fakes.comments(&pr).filter(|it| it.body.starts_with(&text)).count());
            assert_eq!(asked, 1);
        }
    }
}

#[tokio::test]
async fn replacement_is_requested_again_by_label() {
    let settings = FakeSettings { codegenie_trigger: Some("codegenie/replace".to_owned()), ..FakeSettings::default() };
    let config = "retrigger.codegenie = { via = \"label\", target = \"codegenie/replace\" }";
    let testbed = Testbed::new(settings, config);
    let pr = closing(&testbed, true).await;
    testbed.with(|fakes| fakes.force(Fault::GenieAsleep, &pr));
    testbed.pass(55).await;
    assert_eq!(count(&testbed, AuditedAction::LabelAdded), 1);
    assert_replaced(&testbed, &pr, "the second request").await;
    assert_eq!(count(&testbed, AuditedAction::LabelAdded), 2, "removed and added again");
}

#[tokio::test]
async fn refusal_of_codegenie_by_http_calls_a_person() {
    let config = "retrigger.codegenie = { via = \"http\", target = \"https://codegenie.example/requests\" }";
    let testbed = Testbed::new(FakeSettings::default(), config);
    let pr = closing(&testbed, true).await;
    testbed.pass(10).await;
    let sent = testbed.transport.sent();
    let asked: Vec<_> = sent.iter().filter(|sent| sent.path == "/requests").collect();
    assert_eq!(asked.len(), 1, "a permanent refusal is not repeated");
    let (id, detail) = (testbed.record(&pr).await.vulnerability_id, asked[0].json().unwrap());
    assert_eq!((detail["vulnerability_id"].as_str(), detail["pr_number"].as_u64()), (id.as_deref(), Some(pr.number)));
    assert_eq!(detail["base_branch"], "main", "CodeGenie opens the new one on the same base");
    let [(_, mail)] = &testbed.mails()[..] else { panic!("{:?}", testbed.mails()) };
    assert!(mail.body.contains("codegenie answered 401"), "{}", mail.body);
}
