//! Debouncing: of several requests with one scope the newest by event time wins, the others are superseded, and a running one
//! stops at its next stage boundary.

use domain::event::EventKind;
use domain::id::RunId;
use domain::reconcile_request::ReconcileScope;
use domain::run::{RunState, RunTrigger};
use fakes::FakeSettings;
use jiff::SignedDuration;
use platform::reconcile_request::{self, EnqueueOutcome};
use platform::sweep_summary::summary_of;
use reconciler::{SweepOutcome, SweepTrigger};
use serde_json::json;
use testbed::{SWEEP_TIMEOUT, Testbed, pr_id};

use crate::{base, deliver_webhook, open_not_due, push, request, run, runs, trigger};

#[tokio::test]
async fn two_hundred_pushes_cause_one_evaluation_per_pull_request() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let prs = open_not_due(&testbed, 12).await;
    for n in 0..200 {
        push(&testbed);
        testbed.with(|fakes| fakes.advance(SignedDuration::from_millis(300)));
        testbed.settle().await;
        if n == 100 {
            // A scheduled sweep runs in between.
            assert_eq!(testbed.sweep_now().await.requests, 0);
        }
    }
    // Wait until the remaining webhooks have arrived and the debounce time is over.
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(11)));
    testbed.settle().await;
    for _ in 0..3 {
        testbed.sweep_now().await;
        testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(1)));
        testbed.settle().await;
    }
    let requested = runs(&testbed).await;
    let found: Vec<_> = requested.iter().filter_map(summary_of).collect();
    assert_eq!(requested.len(), 1, "{requested:?}");
    println!(
        "one evaluation covers {} pushes; the others arrived out of order and were superseded",
        found[0].coalesced
    );
    assert!((50..=200).contains(&found[0].coalesced), "{}", found[0].coalesced);
    let regular: u32 = testbed.summaries().iter().rev().take(4).map(|summary| summary.verified).sum();
    assert_eq!((found[0].verified, regular), (12, 0), "each pull request is verified once");
    for pr in &prs {
        assert_eq!(testbed.logged(pr, EventKind::BaseMoved).await.len(), 1, "{pr}");
    }
    let request = request(&testbed, &base()).await.unwrap();
    assert_eq!((request.due_at(), request.waiting()), (None, None), "no request is waiting");
}

#[tokio::test]
async fn newest_event_time_supersedes_older_requests() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    open_not_due(&testbed, 1).await;
    let (scope, now) = (base(), testbed.now());
    let pushed = |secs: i64| {
        let at = now.as_second() + secs;
        let ReconcileScope::Base(repo, branch) = &scope else { panic!() };
        json!({"ref": format!("refs/heads/{branch}"), "deleted": false,
               "repository": {"full_name": repo.as_str(), "pushed_at": at}})
    };
    assert_eq!(deliver_webhook(&testbed, "push", "d-5", &pushed(5)).await["status"], "applied");
    let older = deliver_webhook(&testbed, "push", "d-3", &pushed(3)).await;
    assert_eq!(older["status"], "superseded");
    assert!(older["reason"].as_str().unwrap().starts_with("superseded by `webhook-"), "{older}");
    assert_eq!(deliver_webhook(&testbed, "push", "d-9", &pushed(9)).await["status"], "applied");
    assert_eq!(
        deliver_webhook(&testbed, "push", "d-5", &pushed(5)).await["status"],
        "superseded",
        "a redelivery is still older"
    );
    let request = request(&testbed, &scope).await.unwrap();
    let waiting = request.waiting().unwrap();
    assert_eq!((waiting.at.as_second(), waiting.coalesced), (now.as_second() + 9, 2));
}

#[tokio::test]
async fn superseded_request_is_shown_on_its_run() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = open_not_due(&testbed, 1).await.remove(0);
    let scope = ReconcileScope::One(pr_id(&pr));
    let new_request = |name: &str, secs: i64| domain::reconcile_request::NewRequest {
        run: RunId::new(name),
        at: testbed.now() + SignedDuration::from_secs(secs),
        trigger: RunTrigger::AdminApi,
        requested_by: Some("maria".to_owned()),
    };
    let enqueue = async |new_request| {
        reconcile_request::enqueue(&testbed.store, &testbed.policies, (&scope, false), &new_request, testbed.now())
            .await
            .unwrap()
    };
    assert!(matches!(enqueue(new_request("first", 0)).await, EnqueueOutcome::Queued(_)));
    assert!(matches!(enqueue(new_request("second", 1)).await, EnqueueOutcome::Queued(_)));
    assert_eq!(enqueue(new_request("late", -5)).await, EnqueueOutcome::Superseded { by: RunId::new("second") });
    for name in ["first", "late"] {
        let run = run(&testbed, name).await.unwrap();
        assert_eq!(
            (run.state, run.outcome.as_deref()),
            (RunState::Cancelled, Some("superseded by `second`")),
            "{name}"
        );
        assert_eq!(run.due_at(), None);
    }
    assert_eq!(testbed.request_sweep(&trigger("first", scope.clone())).await, SweepOutcome::DuplicateTrigger);
    assert!(matches!(testbed.request_sweep(&trigger("second", scope.clone())).await, SweepOutcome::Done(_)));
}

/// A newer request arrives after each call of the running one in turn: the first stops, the second completes, and no action runs
/// twice.
#[tokio::test]
async fn newer_request_cancels_running_request_at_stage_boundary() {
    let (mut stopped, mut finished) = (0, 0);
    for ahead in (6..).step_by(2) {
        let testbed = Testbed::new(FakeSettings::default(), "");
        let pr = open_not_due(&testbed, 1).await.remove(0);
        testbed.faults.count_anew();
        let (scope, now) = (ReconcileScope::One(pr_id(&pr)), testbed.now());
        let first_done = std::sync::atomic::AtomicBool::new(false);
        let first = async {
            let sweep_outcome =
                testbed.sweep.sweep(&trigger("first", scope.clone()), now + SWEEP_TIMEOUT).await.unwrap();
            first_done.store(true, std::sync::atomic::Ordering::SeqCst);
            sweep_outcome
        };
        let second = async {
            while testbed.faults.calls() < ahead {
                if first_done.load(std::sync::atomic::Ordering::SeqCst) {
                    return false;
                }
                tokio::task::yield_now().await;
            }
            let newer =
                SweepTrigger { at: Some(now + SignedDuration::from_secs(1)), ..trigger("second", scope.clone()) };
            let sweep_outcome = testbed.sweep.sweep(&newer, now + SWEEP_TIMEOUT).await.unwrap();
            assert!(matches!(sweep_outcome, SweepOutcome::Busy { .. } | SweepOutcome::Done(_)), "{sweep_outcome:?}");
            true
        };
        let (sweep_outcome, arrived) = tokio::join!(first, second);
        if !arrived {
            break;
        }
        let first = run(&testbed, "first").await.unwrap();
        let superseded = match sweep_outcome {
            SweepOutcome::Done(summary) => summary.cancelled,
            // The first request had not started.
            SweepOutcome::Busy { .. } | SweepOutcome::DuplicateTrigger | SweepOutcome::Superseded { .. } => true,
            SweepOutcome::RateLimited(why) => panic!("{why}"),
        };
        if superseded {
            stopped += 1;
            assert_eq!(first.state, RunState::Cancelled);
            assert!(first.outcome.unwrap().starts_with("superseded by `second`"));
        } else {
            finished += 1;
            assert_eq!(first.state, RunState::Completed);
        }
        testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(1)));
        testbed.sweep_now().await;
        assert_eq!(run(&testbed, "second").await.unwrap().state, RunState::Completed, "after {ahead} calls");
    }
    println!("a newer request arrived after {} calls: {stopped} times the older one stopped", stopped + finished);
    assert!(stopped > 3, "{stopped} {finished}");
}
