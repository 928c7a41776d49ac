//! The three kinds of request besides the schedule: one pull request, a base branch, everything.

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

use crate::{base, hear, push, quiet, request, run, runs, wish};

#[tokio::test]
async fn one_pull_request_that_is_not_due_is_looked_at_when_somebody_asks() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let prs = quiet(&stage, 2).await;
    let before = stage.record(&prs[1]).await.verified_at;
    let SweepOutcome::Done(summary) = stage.request_sweep(&wish("r-1", ReconcileScope::One(pr_id(&prs[0])))).await
    else {
        panic!("no sweep")
    };
    assert_eq!((summary.due, summary.verified, summary.stands_for), (1, 1, 1), "{summary:?}");
    assert_eq!(stage.record(&prs[1]).await.verified_at, before, "and no other");
    let run = run(&stage, "r-1").await.unwrap();
    assert_eq!((run.state, run.request.as_deref()), (RunState::Completed, Some(format!("pr:{}", prs[0]).as_str())));
    assert_eq!(
        stage.request_sweep(&wish("r-1", ReconcileScope::One(pr_id(&prs[0])))).await,
        SweepOutcome::DuplicateTrigger,
        "a name is granted once"
    );
}

#[tokio::test]
async fn explain_asks_for_its_pull_request() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = quiet(&stage, 1).await.remove(0);
    let before = stage.record(&pr).await.verified_at;
    stage.with(|world| world.person_comments(&pr, "maria", "/explain"));
    stage.pass(1).await;
    let summary = stage.sweep_now().await;
    assert_eq!((summary.requests, summary.due), (1, 0), "it was not due: {summary:?}");
    assert!(stage.record(&pr).await.verified_at > before);
    let asked = runs(&stage).await.remove(0);
    assert_eq!((asked.trigger, asked.requested_by.as_deref()), (RunTrigger::PrComment, Some("maria")));
    assert_eq!((asked.state, summary_of(&asked).unwrap().verified), (RunState::Completed, 1));
}

/// A webhook that looks odd: what does not fit makes its pull request due at once. Its own date is the request, and so the
/// debounce: however many odd webhooks there are, the next sweep looks once.
#[tokio::test]
async fn webhooks_that_look_odd_ask_for_their_pull_request_once() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = stage.open();
    stage.with(|world| world.force(Fault::ApproverAsleep, &pr));
    assert!(stage.until(60, async |stage| stage.state(&pr).await == Some(State::PolicyPassed)).await);
    stage.sweeping.set(false);
    stage.sweep_now().await;
    for n in 0..5 {
        let state = if n % 2 == 0 { StatusState::Failure } else { StatusState::Success };
        let context = "continuous-integration/jenkins/pr-merge";
        stage.with(|world| world.post_status_on(&pr, context, state, "odd"));
        stage.with(|world| world.advance(SignedDuration::from_secs(5)));
        stage.settle().await;
    }
    let odd = stage.log(&pr).await.iter().filter(|event| event.payload.anomaly.is_some()).count();
    assert!(odd > 1, "{:?}", stage.kinds(&pr).await);
    assert!(stage.record(&pr).await.due_at.unwrap() <= stage.now());
    let (first, second) = (stage.sweep_now().await, stage.sweep_now().await);
    assert_eq!((first.verified, second.verified), (1, 0), "{first:?}\n{second:?}");
}

#[tokio::test]
async fn a_push_asks_for_all_that_is_open_on_its_base_and_the_conflict_is_found_at_once() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let prs = quiet(&stage, 3).await;
    stage.with(|world| world.conflict(&prs[1]));
    push(&stage);
    stage.with(|world| world.advance(SignedDuration::from_secs(5)));
    stage.settle().await;
    let waiting = request(&stage, &base()).await.unwrap();
    assert_eq!(waiting.waiting().unwrap().trigger, RunTrigger::Webhook);
    assert_eq!(stage.sweep_now().await.requests, 0, "it is not quiet yet");
    stage.with(|world| world.advance(SignedDuration::from_secs(10)));
    let summary = stage.sweep_now().await;
    assert_eq!(
        (summary.requests, summary.verified),
        (1, 0),
        "the request looked, and nobody looked again: {summary:?}"
    );
    let asked = runs(&stage).await.remove(0);
    let found = summary_of(&asked).unwrap();
    assert_eq!((found.due, found.verified, found.left), (3, 3, 0), "{found:?}");
    for pr in &prs {
        assert_eq!(stage.logged(pr, EventKind::BaseMoved).await.len(), 1, "{pr}");
    }
}

#[tokio::test]
async fn everything_is_what_is_due_and_an_inventory() {
    let stage = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 100000");
    let prs = quiet(&stage, 1).await;
    // One whose webhooks were all lost.
    stage.lose_webhooks(|_, _| true);
    let unknown = stage.open();
    stage.pass(3).await;
    assert_eq!(stage.sweep_now().await.adopted, None, "the regular sweep does not list for a long time");
    let SweepOutcome::Done(summary) = stage.request_sweep(&wish("r-1", ReconcileScope::All)).await else {
        panic!("no sweep")
    };
    assert_eq!(summary.adopted, Some(1), "{summary:?}");
    assert!(stage.find(&unknown).await.is_some() && stage.find(&prs[0]).await.is_some());
}

#[tokio::test]
async fn an_installation_asks_for_everything() {
    let stage = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 100000");
    quiet(&stage, 1).await;
    stage.lose_webhooks(|_, _| true);
    let unknown = stage.open();
    stage.pass(3).await;
    let now = stage.now();
    let installed = json!({"action": "created", "installation": {"id": 1, "updated_at": now.to_string()}});
    assert_eq!(hear(&stage, "installation", "i-1", &installed).await["status"], "applied");
    assert_eq!(hear(&stage, "installation", "i-1", &installed).await["status"], "duplicate_ignored");
    let more = json!({"action": "added", "installation": {"id": 1, "updated_at": now.to_string()}});
    assert_eq!(hear(&stage, "installation_repositories", "i-2", &more).await["status"], "applied");
    assert_eq!(hear(&stage, "installation", "i-3", &json!({"action": "deleted"})).await["status"], "ignored");
    stage.with(|world| world.advance(SignedDuration::from_secs(10)));
    assert_eq!(stage.sweep_now().await.requests, 1);
    let asked = runs(&stage).await;
    let summary = summary_of(&asked[0]).unwrap();
    assert_eq!((asked.len(), summary.stands_for, summary.adopted), (1, 2, Some(1)), "{summary:?}");
    assert!(stage.find(&unknown).await.is_some());
}
