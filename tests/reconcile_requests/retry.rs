//! Failing requests: three retries with backoff, takeover from a crashed worker, and a partial result at the deadline.

use domain::reconcile_request::ReconcileScope;
use domain::run::RunState;
use fakes::FakeSettings;
use jiff::SignedDuration;
use platform::sweep_summary::summary_of;
use reconciler::SweepOutcome;
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed, pr_id};

use crate::{base, open_not_due, request, run, trigger};

#[tokio::test]
async fn failed_request_is_retried_three_times_with_backoff() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = open_not_due(&testbed, 1).await.remove(0);
    let scope = ReconcileScope::One(pr_id(&pr));
    testbed.faults.fail_calls("get BREAKER", true);
    let mut now = testbed.now();
    for pause in [30, 60, 120] {
        let SweepOutcome::Done(summary) = testbed.request_sweep(&trigger("r-1", scope.clone())).await else {
            panic!("no sweep")
        };
        assert_eq!(summary.errors.len(), 1, "{summary:?}");
        let due = request(&testbed, &scope).await.unwrap().due_at().unwrap();
        assert_eq!(due, now + SignedDuration::from_secs(pause));
        assert_eq!(run(&testbed, "r-1").await.unwrap().state, RunState::Running, "the run is not finished");
        testbed.with(|fakes| fakes.advance_to(due - SignedDuration::from_secs(1)));
        assert!(
            matches!(testbed.request_sweep(&trigger("r-1", scope.clone())).await, SweepOutcome::Busy { .. }),
            "no retry before its due time"
        );
        testbed.with(|fakes| fakes.advance_to(due));
        now = due;
    }
    testbed.request_sweep(&trigger("r-1", scope.clone())).await;
    let failed = run(&testbed, "r-1").await.unwrap();
    assert_eq!((failed.state, failed.outcome.as_deref()), (RunState::Failed, Some("retries exhausted")));
    assert!(failed.error.as_deref().unwrap().contains("no answer: get BREAKER"), "{failed:?}");
    assert_eq!(failed.steps.iter().filter(|step| step.name.starts_with("try-")).count(), 3);
    assert_eq!(request(&testbed, &scope).await.unwrap().due_at(), None);
    // The pull request keeps its own due date.
    testbed.faults.fail_calls("get BREAKER", false);
    assert!(testbed.record(&pr).await.due_at.is_some());
}

#[tokio::test]
async fn request_that_failed_once_completes_in_the_next_sweep() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = open_not_due(&testbed, 1).await.remove(0);
    let scope = ReconcileScope::One(pr_id(&pr));
    testbed.faults.fail_calls("get BREAKER", true);
    testbed.request_sweep(&trigger("r-1", scope.clone())).await;
    testbed.faults.fail_calls("get BREAKER", false);
    assert_eq!(testbed.sweep_now().await.requests, 0, "the retry is not due yet");
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(30)));
    assert_eq!(testbed.sweep_now().await.requests, 1);
    let done = run(&testbed, "r-1").await.unwrap();
    assert_eq!((done.state, summary_of(&done).unwrap().verified), (RunState::Completed, 1));
}

/// Crashes the worker at each of its calls; a later sweep takes the request over and completes it, unless it was never stored.
#[tokio::test]
async fn request_of_crashed_worker_is_taken_over() {
    let mut crashes = 0;
    for call in 0.. {
        let testbed = Testbed::new(FakeSettings::default(), "");
        let prs = open_not_due(&testbed, 2).await;
        testbed.faults.plan(call + 1, CallFault::After);
        let now = testbed.now();
        let sweep_outcome = testbed.sweep.sweep(&trigger("r-1", base()), now + SWEEP_TIMEOUT).await;
        let crashed = testbed.faults.struck();
        testbed.faults.restart();
        if !crashed {
            assert!(matches!(sweep_outcome, Ok(SweepOutcome::Done(_))), "{sweep_outcome:?}");
            break;
        }
        crashes += 1;
        testbed.with(|fakes| fakes.advance(SWEEP_TIMEOUT + SignedDuration::from_secs(1)));
        for _ in 0..4 {
            testbed.sweep_now().await;
            testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(2)));
        }
        let (run, request) = (run(&testbed, "r-1").await, request(&testbed, &base()).await);
        match (run, request) {
            // The worker crashed before the first write, so the request was never accepted.
            (None, None) => assert!(call < 5, "{call}"),
            (run, request) => {
                assert_eq!(run.map(|run| run.state), Some(RunState::Completed), "call {call}");
                assert_eq!(request.map(|request| request.due_at()), Some(None), "call {call}");
                for pr in &prs {
                    let kinds = testbed.kinds(pr).await;
                    assert_eq!(kinds.get("BASE_MOVED"), Some(&1), "call {call}: one BASE_MOVED expected, {kinds:?}");
                }
            }
        }
    }
    println!("the worker crashed at each of {crashes} calls");
    assert!(crashes > 15, "{crashes}");
}

#[tokio::test]
async fn request_ends_partial_after_ten_minutes() {
    let testbed =
        Testbed::new(FakeSettings::default(), "triggers.max_prs = 130\nlimits.webhooks_per_minute_per_repo = 10000");
    open_not_due(&testbed, 130).await;
    // A batch is four queries of 25 pull requests: the second batch would start after nine and a half minutes.
    testbed.before_query(|fakes| fakes.advance(SignedDuration::from_secs(140)));
    let began = testbed.now();
    let sweep_outcome =
        testbed.sweep.sweep(&trigger("r-1", base()), began + SignedDuration::from_hours(1)).await.unwrap();
    let SweepOutcome::Done(summary) = sweep_outcome else { panic!("{sweep_outcome:?}") };
    assert!(summary.partial, "{summary:?}");
    assert_eq!((summary.due, summary.verified, summary.remaining), (130, 100, 30));
    let took = testbed.now().duration_since(began);
    assert!(took <= SignedDuration::from_mins(10), "{took:#}");
    let ended = run(&testbed, "r-1").await.unwrap();
    assert_eq!((ended.state, ended.partial), (RunState::Completed, true));
    assert!(ended.outcome.unwrap().starts_with("stopped at the deadline: 130 due, 100 verified"));
    assert_eq!(request(&testbed, &base()).await.unwrap().due_at(), None, "the request is finished");
    // The unvisited pull requests are due for the scheduled sweep.
    testbed.before_query(|_| {});
    let next = testbed.sweep_now().await;
    assert_eq!((next.due, next.verified), (30, 30), "{next:?}");
}

#[tokio::test]
async fn request_is_retried_while_github_is_rate_limited() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = open_not_due(&testbed, 1).await.remove(0);
    let (scope, now) = (ReconcileScope::One(pr_id(&pr)), testbed.now());
    let until = now + SignedDuration::from_secs(20);
    platform::store::not_before::set(&testbed.store, "github", until, now).await.unwrap();
    testbed.request_sweep(&trigger("r-1", scope.clone())).await;
    assert_eq!(run(&testbed, "r-1").await.unwrap().state, RunState::Running, "the run is not finished");
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(30)));
    assert_eq!(testbed.sweep_now().await.requests, 1);
    let done = run(&testbed, "r-1").await.unwrap();
    assert_eq!((done.state, summary_of(&done).unwrap().verified), (RunState::Completed, 1));
}

#[tokio::test]
async fn sweep_near_deadline_starts_no_request() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = open_not_due(&testbed, 1).await.remove(0);
    let (scope, now) = (ReconcileScope::One(pr_id(&pr)), testbed.now());
    let sweep_outcome =
        testbed.sweep.sweep(&trigger("r-1", scope.clone()), now + SignedDuration::from_secs(70)).await.unwrap();
    assert!(
        matches!(&sweep_outcome, SweepOutcome::Busy { by, .. } if by == "the deadline of this sweep"),
        "{sweep_outcome:?}"
    );
    let waiting = request(&testbed, &scope).await.unwrap();
    assert_eq!(waiting.waiting().unwrap().tries, 0);
    assert_eq!(testbed.sweep_now().await.requests, 1, "the next sweep executes the request");
}
