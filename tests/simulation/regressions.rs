//! Seeds that once failed. A seed reproduces its failure only until the sequence of events changes, so each cause also
//! has a dedicated test, named in the comment.

use simulate::{FaultSelection, SimConfig, SimulationReport, run_seed};

fn rerun(seed: u64, times: u32) -> SimulationReport {
    let faults = FaultSelection::named("all").unwrap().times(times);
    run_seed(&SimConfig::new(seed, 5, faults).unwrap()).unwrap().outcome
}

/// `domain`: `late_hold_after_a_newer_resume_is_refused`.
#[test]
fn late_hold_does_not_hold_forever() {
    let outcome = rerun(18, 5);
    assert!(outcome.is_good(), "{:?}", outcome.failed);
}

/// `tests/engine`: `result_before_acceptance_ends_the_run_in_one_transaction`.
#[test]
fn run_accepted_and_proven_at_once_is_stored() {
    let outcome = rerun(2049, 5);
    assert!(outcome.is_good(), "{:?}", outcome.failed);
}

/// `tests/reconciler`: `hung_build_is_rebuilt_when_stop_response_is_lost`.
#[test]
fn build_stopped_by_suture_does_not_escalate() {
    for seed in [1130, 1165] {
        let outcome = rerun(seed, 5);
        assert!(outcome.is_good(), "{}", outcome.json(0.0));
    }
}

/// `seeds`: `everything_merges_without_remedies_when_no_fault_is_injected`, where heads have to be up to date.
#[test]
fn concurrent_branch_updates_do_not_exhaust_budgets() {
    for seed in [105, 111, 144, 146, 171, 176] {
        let outcome = rerun(seed, 1);
        assert!(outcome.is_good(), "{}", outcome.json(0.0));
    }
}
