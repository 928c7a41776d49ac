//! Cancellation: a waiting request is removed, a finished one is unchanged, and a running one stops at its next check of the cancel
//! flag. A cancelled request is not a failure and uses no attempt.

use std::sync::atomic::{AtomicBool, Ordering};

use domain::breaker::BreakerStatus;
use domain::id::RunId;
use domain::reconcile_request::ReconcileScope;
use domain::run::RunState;
use fakes::FakeSettings;
use platform::reconcile_request;
use reconciler::SweepOutcome;
use testbed::{SWEEP_TIMEOUT, Testbed, pr_id};

use crate::{base, open_stale, request, run, trigger};

/// The names of the calls that a request for a stale pull request makes, in order.
async fn calls(scope: impl Fn(&fakes::FakePrId) -> ReconcileScope) -> Vec<String> {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = open_stale(&testbed, 1).await.remove(0);
    let SweepOutcome::Done(summary) = testbed.request_sweep(&trigger("r-1", scope(&pr))).await else {
        panic!("no sweep")
    };
    assert_eq!(summary.claims(), 1, "{summary:?}");
    testbed.faults.take_names()
}

#[tokio::test]
async fn cancel_flag_is_read_after_query_and_verification_and_before_each_claim_and_write() {
    let reads_cancel_flag = |name: &String| name == "get LIMIT#cancel-r-1";
    let names = calls(|_| base()).await;
    let position_of = |what: &str| {
        names.iter().position(|name| name.contains(what)).unwrap_or_else(|| panic!("{what} in {names:#?}"))
    };
    let (query, github) = (position_of("query acme/"), position_of("GitHub POST /graphql"));
    assert!(names[query..github].iter().any(reads_cancel_flag), "after the query: {names:#?}");
    // The cancel flag is read immediately before every write to a pull request.
    let writes: Vec<usize> = (0..names.len()).filter(|n| names[*n].starts_with("write PR#")).collect();
    assert_eq!(writes.len(), 3, "base move, verification and claim: {names:#?}");
    for write in &writes {
        assert!(reads_cancel_flag(&names[write - 1]), "before {}: {names:#?}", names[*write]);
    }
    let [_, verified, claimed] = writes[..] else { panic!() };
    let breaker = (verified..claimed).find(|n| names[*n].contains("LIMIT#remedies")).unwrap();
    assert!(
        names[verified + 1..breaker].iter().filter(|name| reads_cancel_flag(name)).count() >= 2,
        "after verification and before the claim: {names:#?}"
    );
}

/// Cancels the request after each of its calls in turn. At most one later write happens: the one whose check of the cancel flag
/// came just before.
#[tokio::test]
async fn running_request_stops_when_cancelled_after_any_call() {
    let (mut removed, mut cancelled, mut completed) = (0, 0, 0);
    for ahead in 6.. {
        let testbed = Testbed::new(FakeSettings::default(), "");
        let pr = open_stale(&testbed, 1).await.remove(0);
        testbed.faults.count_anew();
        let now = testbed.now();
        let (sweep_done, cancel_sent) = (AtomicBool::new(false), AtomicBool::new(false));
        let sweeping = async {
            let sweep_outcome = testbed.sweep.sweep(&trigger("r-1", base()), now + SWEEP_TIMEOUT).await.unwrap();
            sweep_done.store(true, Ordering::SeqCst);
            sweep_outcome
        };
        let cancelling = async {
            while testbed.faults.calls() < ahead && !sweep_done.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            if sweep_done.load(Ordering::SeqCst) {
                return 0;
            }
            cancel_sent.store(true, Ordering::SeqCst);
            let before = testbed.faults.take_names().len();
            let request = (&*format!("{}", base()), &RunId::new("r-1"));
            reconcile_request::cancel(&testbed.store.store, &testbed.policies, request, "maria", now).await.unwrap();
            before
        };
        let (sweep_outcome, _) = tokio::join!(sweeping, cancelling);
        if !cancel_sent.load(Ordering::SeqCst) {
            break;
        }
        let names = testbed.faults.take_names();
        let late: Vec<&String> = names.iter().filter(|name| name.starts_with("write PR#")).collect();
        let SweepOutcome::Done(summary) = sweep_outcome else {
            // The request had not started, so it was removed.
            removed += 1;
            let run = run(&testbed, "r-1").await.unwrap();
            assert_eq!((run.state, run.outcome.as_deref()), (RunState::Cancelled, Some("maria cancelled it")));
            assert_eq!(late, Vec::<&String>::new());
            continue;
        };
        let (run, record) = (run(&testbed, "r-1").await.unwrap(), testbed.record(&pr).await);
        if summary.cancelled {
            cancelled += 1;
            assert!(late.len() <= 1, "after {ahead} calls: {late:?}");
            assert_eq!((run.state, run.error), (RunState::Cancelled, None), "a cancelled run has no error");
        } else {
            completed += 1;
            assert_eq!(run.state, RunState::Completed, "the request finished before it read the flag");
        }
        // An unclaimed remedy uses no budget, and the next scheduled sweep continues.
        let claimed = record.active_run.is_some();
        assert_eq!((record.retry_counts.rebuild, record.lifetime_remedies), (u32::from(claimed), u32::from(claimed)));
        let request = request(&testbed, &base()).await.unwrap();
        assert_eq!((request.due_at(), request.waiting(), request.running()), (None, None, None));
        testbed.with(|fakes| fakes.advance(jiff::SignedDuration::from_mins(1)));
        let next = testbed.sweep_now().await;
        assert_eq!((next.claims(), next.expired), (u32::from(!claimed), 0), "after {ahead} calls: {next:?}");
        assert_eq!(next.breaker, Some(BreakerStatus::Closed));
    }
    println!("cancelled after each call: {removed} before the start, {cancelled} while running, {completed} too late");
    assert!(removed > 0 && cancelled > 10, "{removed} {cancelled}");
}

#[tokio::test]
async fn cancelled_waiting_request_never_starts() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = open_stale(&testbed, 1).await.remove(0);
    let scope = ReconcileScope::One(pr_id(&pr));
    // The repository's slot is taken, so the request waits.
    let repo_slot = format!("requests:{}", scope.repo().unwrap());
    let until = testbed.now() + jiff::SignedDuration::from_mins(1);
    platform::store::slot::acquire(&testbed.store, &repo_slot, 1, "somebody", until, testbed.now()).await.unwrap();
    assert!(matches!(testbed.request_sweep(&trigger("r-1", scope.clone())).await, SweepOutcome::Busy { .. }));
    assert_eq!(run(&testbed, "r-1").await.unwrap().state, RunState::Pending);
    let cancel = async |testbed: &Testbed| {
        let request = (&*scope.to_string(), &RunId::new("r-1"));
        reconcile_request::cancel(&testbed.store, &testbed.policies, request, "maria", testbed.now()).await.unwrap();
    };
    cancel(&testbed).await;
    let run_of = run(&testbed, "r-1").await.unwrap();
    assert_eq!((run_of.state, run_of.outcome.as_deref()), (RunState::Cancelled, Some("maria cancelled it")));
    assert_eq!(request(&testbed, &scope).await.unwrap().due_at(), None);
    testbed.with(|fakes| fakes.advance(jiff::SignedDuration::from_mins(2)));
    assert_eq!(
        testbed.request_sweep(&trigger("r-1", scope.clone())).await,
        SweepOutcome::DuplicateTrigger,
        "a late event does not start it"
    );
    // Cancelling a finished request again changes nothing.
    let version = request(&testbed, &scope).await.unwrap().version;
    cancel(&testbed).await;
    assert_eq!(request(&testbed, &scope).await.unwrap().version, version);
    assert_eq!(testbed.sweep_now().await.requests, 0);
}
