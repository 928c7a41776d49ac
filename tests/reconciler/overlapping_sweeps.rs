//! Sweeps that meet: a doubled event, two on one pull request, and two whole ones, one of which believes to be alone because the
//! other has outlived its lease. Whatever they meet at is done once.

use std::sync::atomic::{AtomicBool, Ordering};

use domain::id::RunId;
use platform::store::{Condition, Key, RowWrite, Store};
use reconciler::{ReconcileScope, SweepOutcome, SweepTrigger};
use testbed::{SWEEP_TIMEOUT, Testbed, pr_id, scheduled_sweep};

use crate::crash_points::{Outcome, outcome};
use crate::scenarios::{Play, Scene, scene};

#[tokio::test]
async fn a_doubled_event_and_an_overlapping_sweep_do_nothing() {
    let Scene { stage, prs } = scene(Play::Everyday).await;
    let now = stage.now();
    let tick = |holder: &str| SweepTrigger::scheduled("sweep", now, holder);
    let (one, other, next) = (
        tick("a"),
        tick("b"),
        SweepTrigger {
            run: RunId::new("requested-1"),
            ..SweepTrigger::requested(RunId::new("x"), ReconcileScope::One(pr_id(&prs[1])), false, "c")
        },
    );
    // At the same time: the doubled event of the schedule, and a wish for one pull request.
    let (one, other, next) =
        tokio::join!(stage.request_sweep(&one), stage.request_sweep(&other), stage.request_sweep(&next));
    let swept = [&one, &other, &next].iter().filter(|swept| matches!(swept, SweepOutcome::Done(_))).count();
    assert_eq!(swept, 2, "{one:?}\n{other:?}\n{next:?}");
    assert_eq!(
        stage.request_sweep(&tick("d")).await,
        SweepOutcome::DuplicateTrigger,
        "and later it is still the same event"
    );
    let found = outcome(&stage, &prs).await;
    assert_eq!(found.runs_per_pr[..4], [1, 1, 0, 0]);
    assert_eq!(found.states[1].1, 1, "one remedy, counted once");
}

#[tokio::test]
async fn two_sweeps_that_meet_at_one_pull_request_claim_one_remedy() {
    let Scene { stage, prs } = scene(Play::Everyday).await;
    let wish = |name: &str| SweepTrigger::requested(RunId::new(name), ReconcileScope::One(pr_id(&prs[1])), false, name);
    let (one, other) = (wish("r-1"), wish("r-2"));
    let (one, other) = tokio::join!(stage.request_sweep(&one), stage.request_sweep(&other));
    let claims = |swept: &SweepOutcome| match swept {
        SweepOutcome::Done(summary) => summary.claims(),
        SweepOutcome::Busy { .. }
        | SweepOutcome::DuplicateTrigger
        | SweepOutcome::Superseded { .. }
        | SweepOutcome::RateLimited(_) => 0,
    };
    assert!(claims(&one) + claims(&other) <= 1, "{one:?}\n{other:?}");
    // The one that came second took the place of the first, and waits if that was under way: the next sweep grants it.
    stage.sweep_now().await;
    let record = stage.record(&prs[1]).await;
    assert_eq!((record.retry_counts.rebuild, record.lifetime_remedies), (1, 1));
}

/// The second sweep begins when the first has made so many calls, and then both go on, call by call. Nothing if the first was
/// over before.
async fn both(play: Play, ahead: usize) -> Option<Outcome> {
    let Scene { stage, prs } = scene(play).await;
    stage.faults.count_anew();
    let now = stage.now();
    let (one, other) = (stage.another_sweep(), stage.another_sweep());
    let over = AtomicBool::new(false);
    let first = async {
        let wish = SweepTrigger::scheduled("sweep", now, "first");
        let swept = one.sweep(&wish, now + SWEEP_TIMEOUT).await.unwrap();
        over.store(true, Ordering::SeqCst);
        swept
    };
    let second = async {
        while stage.faults.calls() < ahead {
            if over.load(Ordering::SeqCst) {
                return None;
            }
            tokio::task::yield_now().await;
        }
        // The first one's lease is gone, as if it had outlived it.
        let lease = RowWrite::Delete { key: Key::state("LEASE#sweep"), only_if: Condition::Always };
        stage.store.store.write(vec![lease], now).await.unwrap();
        let wish = scheduled_sweep("second", now);
        Some(other.sweep(&wish, now + SWEEP_TIMEOUT).await.unwrap())
    };
    let (first, second) = tokio::join!(first, second);
    let second = second?;
    for swept in [&first, &second] {
        let SweepOutcome::Done(summary) = swept else { panic!("{swept:?}") };
        assert_eq!(summary.errors, Vec::<String>::new());
    }
    Some(settle(stage, &prs).await)
}

/// What is left, the next sweeps do.
async fn settle(stage: Testbed, prs: &[fakes::FakePrId]) -> Outcome {
    for _ in 0..2 {
        stage.with(|world| world.advance(jiff::SignedDuration::from_mins(3)));
        stage.settle().await;
        stage.sweep_now().await;
    }
    outcome(&stage, prs).await
}

#[tokio::test]
async fn two_whole_sweeps_that_overlap_do_no_harm() {
    let mut meetings = 0;
    for play in [Play::Everyday, Play::Tripping, Play::Digest, Play::Watching, Play::Redelivery] {
        let Scene { stage, prs } = scene(play).await;
        stage.sweep_now().await;
        let alone = settle(stage, &prs).await;
        for ahead in (1..).step_by(3) {
            // Nothing: the first was over before the second could begin.
            let Some(found) = both(play, ahead).await else { break };
            let place = format!("{play:?}, the second began after {ahead} calls of the first");
            if play == Play::Redelivery {
                assert_eq!(found.chores, alone.chores, "{place}");
            } else {
                assert_eq!(found, alone, "{place}");
            }
            meetings += 1;
        }
    }
    println!("two whole sweeps met in {meetings} ways");
    assert!(meetings > 40, "{meetings}");
}
