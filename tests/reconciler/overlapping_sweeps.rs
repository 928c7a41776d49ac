//! Overlapping sweeps: a duplicate event, two sweeps of one pull request, and two full sweeps of which one has outlived its lease.
//! Every action runs once.

use std::sync::atomic::{AtomicBool, Ordering};

use domain::id::RunId;
use platform::store::{Condition, Key, RowWrite, Store};
use reconciler::{ReconcileScope, SweepOutcome, SweepTrigger};
use testbed::{SWEEP_TIMEOUT, Testbed, pr_id, scheduled_sweep};

use crate::crash_points::{Outcome, outcome};
use crate::scenarios::{Scenario, Setup, set_up};

#[tokio::test]
async fn duplicate_event_and_overlapping_sweep_do_nothing() {
    let Setup { testbed, prs } = set_up(Scenario::Mixed).await;
    let now = testbed.now();
    let tick = |holder: &str| SweepTrigger::scheduled("sweep", now, holder);
    let (one, other, next) = (
        tick("a"),
        tick("b"),
        SweepTrigger {
            run: RunId::new("requested-1"),
            ..SweepTrigger::requested(RunId::new("x"), ReconcileScope::One(pr_id(&prs[1])), false, "c")
        },
    );
    // Concurrently: a duplicate scheduled event, and a request for one pull request.
    let (one, other, next) =
        tokio::join!(testbed.request_sweep(&one), testbed.request_sweep(&other), testbed.request_sweep(&next));
    let completed = [&one, &other, &next].iter().filter(|result| matches!(result, SweepOutcome::Done(_))).count();
    assert_eq!(completed, 2, "{one:?}\n{other:?}\n{next:?}");
    assert_eq!(
        testbed.request_sweep(&tick("d")).await,
        SweepOutcome::DuplicateTrigger,
        "a later duplicate is recognised as well"
    );
    let found = outcome(&testbed, &prs).await;
    assert_eq!(found.runs_per_pr[..4], [1, 1, 0, 0]);
    assert_eq!(found.states[1].1, 1, "one remedy counted once");
}

#[tokio::test]
async fn two_sweeps_of_one_pull_request_claim_one_remedy() {
    let Setup { testbed, prs } = set_up(Scenario::Mixed).await;
    let trigger =
        |name: &str| SweepTrigger::requested(RunId::new(name), ReconcileScope::One(pr_id(&prs[1])), false, name);
    let (one, other) = (trigger("r-1"), trigger("r-2"));
    let (one, other) = tokio::join!(testbed.request_sweep(&one), testbed.request_sweep(&other));
    let claims = |sweep_outcome: &SweepOutcome| match sweep_outcome {
        SweepOutcome::Done(summary) => summary.claims(),
        SweepOutcome::Busy { .. }
        | SweepOutcome::DuplicateTrigger
        | SweepOutcome::Superseded { .. }
        | SweepOutcome::RateLimited(_) => 0,
    };
    assert!(claims(&one) + claims(&other) <= 1, "{one:?}\n{other:?}");
    // The second request supersedes the first; if the first was running, the next sweep executes the second.
    testbed.sweep_now().await;
    let record = testbed.record(&prs[1]).await;
    assert_eq!((record.retry_counts.rebuild, record.lifetime_remedies), (1, 1));
}

/// A sweep reads what is due before it acquires its lease: one read, four queries, and the write of the lease itself.
const CALLS_BEFORE_THE_LEASE: usize = 6;

/// Starts a second sweep after the first has made `ahead` calls; both then interleave call by call. `None` if the first finished
/// earlier.
async fn overlap_sweeps(scenario: Scenario, ahead: usize) -> Option<Outcome> {
    let Setup { testbed, prs } = set_up(scenario).await;
    testbed.faults.count_anew();
    let now = testbed.now();
    let (one, other) = (testbed.another_sweep(), testbed.another_sweep());
    let first_done = AtomicBool::new(false);
    let first = async {
        let trigger = SweepTrigger::scheduled("sweep", now, "first");
        let sweep_outcome = one.sweep(&trigger, now + SWEEP_TIMEOUT).await.unwrap();
        first_done.store(true, Ordering::SeqCst);
        sweep_outcome
    };
    let second = async {
        while testbed.faults.calls() < ahead {
            if first_done.load(Ordering::SeqCst) {
                return None;
            }
            tokio::task::yield_now().await;
        }
        // Delete the first sweep's lease, as if it had expired.
        let lease = RowWrite::Delete { key: Key::state("LEASE#sweep"), only_if: Condition::Always };
        testbed.store.store.write(vec![lease], now).await.unwrap();
        let trigger = scheduled_sweep("second", now);
        Some(other.sweep(&trigger, now + SWEEP_TIMEOUT).await.unwrap())
    };
    let (first, second) = tokio::join!(first, second);
    let second = second?;
    let mut done = 0;
    for sweep_outcome in [&first, &second] {
        match sweep_outcome {
            SweepOutcome::Done(summary) => {
                assert_eq!(summary.errors, Vec::<String>::new());
                done += 1;
            }
            // The first sweep had not acquired its lease yet.
            SweepOutcome::Busy { .. } => assert!(ahead <= CALLS_BEFORE_THE_LEASE, "{ahead}: {sweep_outcome:?}"),
            other @ (SweepOutcome::DuplicateTrigger
            | SweepOutcome::Superseded { .. }
            | SweepOutcome::RateLimited(_)) => {
                panic!("{other:?}")
            }
        }
    }
    assert!(done >= 1);
    Some(settle(testbed, &prs).await)
}

/// Lets two more sweeps finish the remaining work.
async fn settle(testbed: Testbed, prs: &[fakes::FakePrId]) -> Outcome {
    for _ in 0..2 {
        testbed.with(|fakes| fakes.advance(jiff::SignedDuration::from_mins(3)));
        testbed.settle().await;
        testbed.sweep_now().await;
    }
    outcome(&testbed, prs).await
}

#[tokio::test]
async fn overlapping_full_sweeps_act_once() {
    let mut overlaps = 0;
    for scenario in
        [Scenario::Mixed, Scenario::BreakerTrip, Scenario::Digest, Scenario::ObserveMode, Scenario::Redelivery]
    {
        let Setup { testbed, prs } = set_up(scenario).await;
        testbed.sweep_now().await;
        let expected = settle(testbed, &prs).await;
        for ahead in (1..).step_by(3) {
            // `None`: the first sweep finished before the second started.
            let Some(found) = overlap_sweeps(scenario, ahead).await else { break };
            let context = format!("{scenario:?}, the second sweep started after {ahead} calls of the first");
            if scenario == Scenario::Redelivery {
                assert_eq!(found.tasks, expected.tasks, "{context}");
            } else {
                assert_eq!(found, expected, "{context}");
            }
            overlaps += 1;
        }
    }
    println!("{overlaps} overlaps of two full sweeps");
    assert!(overlaps > 40, "{overlaps}");
}
