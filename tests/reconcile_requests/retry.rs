//! Requests that go wrong: tried again three times with growing pauses, taken over from a worker that died, and ended with what
//! they have when their time is up.

use domain::reconcile_request::ReconcileScope;
use domain::run::RunState;
use fakes::FakeSettings;
use jiff::SignedDuration;
use platform::sweep_summary::summary_of;
use reconciler::SweepOutcome;
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed, pr_id};

use crate::{base, quiet, request, run, wish};

#[tokio::test]
async fn a_request_that_fails_is_tried_again_three_times_with_backoff() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = quiet(&stage, 1).await.remove(0);
    let scope = ReconcileScope::One(pr_id(&pr));
    stage.faults.fail_calls("get BREAKER", true);
    let mut now = stage.now();
    for pause in [30, 60, 120] {
        let SweepOutcome::Done(summary) = stage.request_sweep(&wish("r-1", scope.clone())).await else {
            panic!("no sweep")
        };
        assert_eq!(summary.errors.len(), 1, "{summary:?}");
        let due = request(&stage, &scope).await.unwrap().due_at().unwrap();
        assert_eq!(due, now + SignedDuration::from_secs(pause));
        assert_eq!(run(&stage, "r-1").await.unwrap().state, RunState::Running, "it is not over");
        stage.with(|world| world.advance_to(due - SignedDuration::from_secs(1)));
        assert!(
            matches!(stage.request_sweep(&wish("r-1", scope.clone())).await, SweepOutcome::Busy { .. }),
            "not before"
        );
        stage.with(|world| world.advance_to(due));
        now = due;
    }
    stage.request_sweep(&wish("r-1", scope.clone())).await;
    let failed = run(&stage, "r-1").await.unwrap();
    assert_eq!((failed.state, failed.outcome.as_deref()), (RunState::Failed, Some("retries exhausted")));
    assert!(failed.error.as_deref().unwrap().contains("no answer: get BREAKER"), "{failed:?}");
    assert_eq!(failed.steps.iter().filter(|step| step.name.starts_with("try-")).count(), 3);
    assert_eq!(request(&stage, &scope).await.unwrap().due_at(), None);
    // What it was about has its own date, and lost nothing.
    stage.faults.fail_calls("get BREAKER", false);
    assert!(stage.record(&pr).await.due_at.is_some());
}

#[tokio::test]
async fn one_that_fails_once_is_granted_by_the_next_sweep() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = quiet(&stage, 1).await.remove(0);
    let scope = ReconcileScope::One(pr_id(&pr));
    stage.faults.fail_calls("get BREAKER", true);
    stage.request_sweep(&wish("r-1", scope.clone())).await;
    stage.faults.fail_calls("get BREAKER", false);
    assert_eq!(stage.sweep_now().await.requests, 0, "it is not due yet");
    stage.with(|world| world.advance(SignedDuration::from_secs(30)));
    assert_eq!(stage.sweep_now().await.requests, 1);
    let done = run(&stage, "r-1").await.unwrap();
    assert_eq!((done.state, summary_of(&done).unwrap().verified), (RunState::Completed, 1));
}

/// The process dies at each of its calls, and whoever comes next takes the request over: it is done, or it is nowhere.
#[tokio::test]
async fn a_request_whose_worker_dies_is_taken_over() {
    let mut deaths = 0;
    for call in 0.. {
        let stage = Testbed::new(FakeSettings::default(), "");
        let prs = quiet(&stage, 2).await;
        stage.faults.plan(call + 1, CallFault::After);
        let now = stage.now();
        let swept = stage.sweep.sweep(&wish("r-1", base()), now + SWEEP_TIMEOUT).await;
        let died = stage.faults.struck();
        stage.faults.restart();
        if !died {
            assert!(matches!(swept, Ok(SweepOutcome::Done(_))), "{swept:?}");
            break;
        }
        deaths += 1;
        stage.with(|world| world.advance(SWEEP_TIMEOUT + SignedDuration::from_secs(1)));
        for _ in 0..4 {
            stage.sweep_now().await;
            stage.with(|world| world.advance(SignedDuration::from_mins(2)));
        }
        let (run, request) = (run(&stage, "r-1").await, request(&stage, &base()).await);
        match (run, request) {
            // It died before anything was written: whoever asked was not told that it was taken.
            (None, None) => assert!(call < 5, "{call}"),
            (run, request) => {
                assert_eq!(run.map(|run| run.state), Some(RunState::Completed), "call {call}");
                assert_eq!(request.map(|request| request.due_at()), Some(None), "call {call}");
                for pr in &prs {
                    let kinds = stage.kinds(pr).await;
                    assert_eq!(kinds.get("BASE_MOVED"), Some(&1), "call {call}: heard of once, {kinds:?}");
                }
            }
        }
    }
    println!("a request's worker died at each of {deaths} calls");
    assert!(deaths > 15, "{deaths}");
}

#[tokio::test]
async fn after_ten_minutes_it_ends_with_what_it_has() {
    let stage =
        Testbed::new(FakeSettings::default(), "triggers.max_prs = 130\nlimits.webhooks_per_minute_per_repo = 10000");
    quiet(&stage, 130).await;
    // Four queries of 25 are one go: the second hundred would begin after nine and a half minutes.
    stage.before_query(|fakes| fakes.advance(SignedDuration::from_secs(140)));
    let began = stage.now();
    let swept = stage.sweep.sweep(&wish("r-1", base()), began + SignedDuration::from_hours(1)).await.unwrap();
    let SweepOutcome::Done(summary) = swept else { panic!("{swept:?}") };
    assert!(summary.partial, "{summary:?}");
    assert_eq!((summary.due, summary.verified, summary.left), (130, 100, 30));
    let took = stage.now().duration_since(began);
    assert!(took <= SignedDuration::from_mins(10), "{took:#}");
    let ended = run(&stage, "r-1").await.unwrap();
    assert_eq!((ended.state, ended.partial), (RunState::Completed, true));
    assert!(ended.outcome.unwrap().starts_with("stopped at the deadline: 130 due, 100 verified"));
    assert_eq!(request(&stage, &base()).await.unwrap().due_at(), None, "it is over");
    // What it missed is due, and the schedule's.
    stage.before_query(|_| {});
    let next = stage.sweep_now().await;
    assert_eq!((next.due, next.verified), (30, 30), "{next:?}");
}

#[tokio::test]
async fn one_that_github_could_not_be_asked_about_is_tried_again() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = quiet(&stage, 1).await.remove(0);
    let (scope, now) = (ReconcileScope::One(pr_id(&pr)), stage.now());
    let until = now + SignedDuration::from_secs(20);
    platform::guards::set_not_before(&stage.store, "github", until, now).await.unwrap();
    stage.request_sweep(&wish("r-1", scope.clone())).await;
    assert_eq!(run(&stage, "r-1").await.unwrap().state, RunState::Running, "it is not over");
    stage.with(|world| world.advance(SignedDuration::from_secs(30)));
    assert_eq!(stage.sweep_now().await.requests, 1);
    let done = run(&stage, "r-1").await.unwrap();
    assert_eq!((done.state, summary_of(&done).unwrap().verified), (RunState::Completed, 1));
}

#[tokio::test]
async fn a_sweep_that_is_about_to_end_begins_with_nothing_it_cannot_look_at() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = quiet(&stage, 1).await.remove(0);
    let (scope, now) = (ReconcileScope::One(pr_id(&pr)), stage.now());
    let swept = stage.sweep.sweep(&wish("r-1", scope.clone()), now + SignedDuration::from_secs(70)).await.unwrap();
    assert!(matches!(&swept, SweepOutcome::Busy { by, .. } if by == "the deadline of this sweep"), "{swept:?}");
    let waiting = request(&stage, &scope).await.unwrap();
    assert_eq!(waiting.waiting().unwrap().tries, 0);
    assert_eq!(stage.sweep_now().await.requests, 1, "the next one has time");
}
