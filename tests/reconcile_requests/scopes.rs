//! The scopes of a reconcile request: one pull request, a base branch, or all.

use domain::event::EventKind;
use domain::reconcile_request::ReconcileScope;
use domain::run::{RunState, RunTrigger};
use domain::state::State;
use fakes::{FakeSettings, Fault, StatusState};
use jiff::SignedDuration;
use platform::sweep_summary::summary_of;
use reconciler::SweepOutcome;
use serde_json::json;
use testbed::{Testbed, pr_id};

use crate::{base, deliver_webhook, open_not_due, push, request, run, runs, trigger};

#[tokio::test]
async fn request_verifies_pull_request_that_is_not_due() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let prs = open_not_due(&testbed, 2).await;
    let before = testbed.record(&prs[1]).await.verified_at;
    let SweepOutcome::Done(summary) = testbed.request_sweep(&trigger("r-1", ReconcileScope::One(pr_id(&prs[0])))).await
    else {
        panic!("no sweep")
    };
    assert_eq!((summary.due, summary.verified, summary.coalesced), (1, 1, 1), "{summary:?}");
    assert_eq!(testbed.record(&prs[1]).await.verified_at, before, "no other pull request is verified");
    let run = run(&testbed, "r-1").await.unwrap();
    assert_eq!((run.state, run.request.as_deref()), (RunState::Completed, Some(format!("pr:{}", prs[0]).as_str())));
    assert_eq!(
        testbed.request_sweep(&trigger("r-1", ReconcileScope::One(pr_id(&prs[0])))).await,
        SweepOutcome::DuplicateTrigger,
        "a run id is executed once"
    );
}

#[tokio::test]
async fn explain_requests_its_pull_request() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = open_not_due(&testbed, 1).await.remove(0);
    let before = testbed.record(&pr).await.verified_at;
    testbed.with(|fakes| fakes.person_comments(&pr, "maria", "/explain"));
    testbed.pass(1).await;
    let summary = testbed.sweep_now().await;
    assert_eq!((summary.requests, summary.due), (1, 0), "the pull request was not due: {summary:?}");
    assert!(testbed.record(&pr).await.verified_at > before);
    let requested = runs(&testbed).await.remove(0);
    assert_eq!((requested.trigger, requested.requested_by.as_deref()), (RunTrigger::PrComment, Some("maria")));
    assert_eq!((requested.state, summary_of(&requested).unwrap().verified), (RunState::Completed, 1));
}

/// An anomalous webhook makes its pull request due at once. The due date also debounces: the next sweep verifies the pull request
/// once, however many anomalous webhooks arrived.
#[tokio::test]
async fn anomalous_webhooks_verify_pull_request_once() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::ApproverAsleep, &pr));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::PolicyPassed)).await);
    testbed.sweeping.set(false);
    testbed.sweep_now().await;
    for n in 0..5 {
        let state = if n % 2 == 0 { StatusState::Failure } else { StatusState::Success };
        let context = "continuous-integration/jenkins/pr-merge";
        testbed.with(|fakes| fakes.post_status_on(&pr, context, state, "odd"));
        testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(5)));
        testbed.settle().await;
    }
    let anomalies = testbed.log(&pr).await.iter().filter(|event| event.payload.anomaly.is_some()).count();
    assert!(anomalies > 1, "{:?}", testbed.kinds(&pr).await);
    assert!(testbed.record(&pr).await.due_at.unwrap() <= testbed.now());
    let (first, second) = (testbed.sweep_now().await, testbed.sweep_now().await);
    assert_eq!((first.verified, second.verified), (1, 0), "{first:?}\n{second:?}");
}

#[tokio::test]
async fn push_verifies_all_open_pull_requests_of_its_base() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let prs = open_not_due(&testbed, 3).await;
    testbed.with(|fakes| fakes.conflict(&prs[1]));
    push(&testbed);
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(5)));
    testbed.settle().await;
    let waiting = request(&testbed, &base()).await.unwrap();
    assert_eq!(waiting.waiting().unwrap().trigger, RunTrigger::Webhook);
    assert_eq!(testbed.sweep_now().await.requests, 0, "the debounce time is not over");
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(10)));
    let summary = testbed.sweep_now().await;
    assert_eq!((summary.requests, summary.verified), (1, 0), "only the request verified them: {summary:?}");
    let requested = runs(&testbed).await.remove(0);
    let found = summary_of(&requested).unwrap();
    assert_eq!((found.due, found.verified, found.remaining), (3, 3, 0), "{found:?}");
    for pr in &prs {
        assert_eq!(testbed.logged(pr, EventKind::BaseMoved).await.len(), 1, "{pr}");
    }
}

#[tokio::test]
async fn request_for_all_includes_inventory() {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 100000");
    let prs = open_not_due(&testbed, 1).await;
    // A pull request whose webhooks were all lost.
    testbed.lose_webhooks(|_, _| true);
    let unknown = testbed.open();
    testbed.pass(3).await;
    assert_eq!(testbed.sweep_now().await.adopted, None, "no inventory is due in the scheduled sweep");
    let SweepOutcome::Done(summary) = testbed.request_sweep(&trigger("r-1", ReconcileScope::All)).await else {
        panic!("no sweep")
    };
    assert_eq!(summary.adopted, Some(1), "{summary:?}");
    assert!(testbed.find(&unknown).await.is_some() && testbed.find(&prs[0]).await.is_some());
}

#[tokio::test]
async fn installation_requests_all() {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 100000");
    open_not_due(&testbed, 1).await;
    testbed.lose_webhooks(|_, _| true);
    let unknown = testbed.open();
    testbed.pass(3).await;
    let now = testbed.now();
    let installed = json!({"action": "created", "installation": {"id": 1, "updated_at": now.to_string()}});
    assert_eq!(deliver_webhook(&testbed, "installation", "i-1", &installed).await["status"], "applied");
    assert_eq!(deliver_webhook(&testbed, "installation", "i-1", &installed).await["status"], "duplicate_ignored");
    let more = json!({"action": "added", "installation": {"id": 1, "updated_at": now.to_string()}});
    assert_eq!(deliver_webhook(&testbed, "installation_repositories", "i-2", &more).await["status"], "applied");
    assert_eq!(
        deliver_webhook(&testbed, "installation", "i-3", &json!({"action": "deleted"})).await["status"],
        "ignored"
    );
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(10)));
    assert_eq!(testbed.sweep_now().await.requests, 1);
    let requested = runs(&testbed).await;
    let summary = summary_of(&requested[0]).unwrap();
    assert_eq!((requested.len(), summary.coalesced, summary.adopted), (1, 2, Some(1)), "{summary:?}");
    assert!(testbed.find(&unknown).await.is_some());
}
