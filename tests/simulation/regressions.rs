//! Seeds that once failed, each named for what went wrong. A seed tells the same story only as long as nothing changes what
//! happens in it: the cause itself has a test of its own, named beside each.

use simulate::{FaultSelection, SimConfig, SimulationReport, run_seed};

fn again(seed: u64, times: u32) -> SimulationReport {
    let faults = FaultSelection::named("all").unwrap().times(times);
    run_seed(&SimConfig::new(seed, 5, faults).unwrap()).unwrap().outcome
}

/// `domain`: `late_hold_after_a_newer_resume_is_refused`.
#[test]
fn a_late_hold_held_for_ever() {
    let outcome = again(18, 5);
    assert!(outcome.is_good(), "{:?}", outcome.failed);
}

/// `tests/engine`: `a_proof_that_came_before_the_acceptance_ends_the_run_in_one_transaction`.
#[test]
fn a_run_that_was_accepted_and_proven_at_once_was_never_stored() {
    let outcome = again(2049, 5);
    assert!(outcome.is_good(), "{:?}", outcome.failed);
}

/// `tests/reconciler`: `a_hung_build_is_built_again_although_jenkins_fell_silent_after_stopping_it`.
#[test]
fn somebody_was_called_for_a_build_that_suture_had_stopped() {
    for seed in [1130, 1165] {
        let outcome = again(seed, 5);
        assert!(outcome.is_good(), "{:?}", outcome.failed);
        assert_eq!(outcome.escalated_needlessly, 0, "{:?}", outcome.needless);
    }
}

/// `seeds`: `without_faults_everything_is_merged_and_nothing_is_done`, where heads have to be up to date.
#[test]
fn updating_all_heads_at_once_spent_their_budgets() {
    for seed in [105, 111, 144, 146, 171, 176] {
        let outcome = again(seed, 1);
        assert!(outcome.is_good(), "{:?}", outcome.failed);
        assert_eq!(outcome.escalated_needlessly, 0, "{:?}", outcome.needless);
    }
}
