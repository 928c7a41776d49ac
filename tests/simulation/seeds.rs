//! Determinism, single faults and many seeds.

use simulate::{FaultSelection, SeedRequest, SimConfig, SimulationReport, run_seed, run_seeds};

fn named_faults(list: &str) -> FaultSelection {
    FaultSelection::named(list).unwrap()
}

fn report_for(prs: u64, seeds: std::ops::Range<u64>, faults: &str) -> SimulationReport {
    let request = SeedRequest { prs, seeds, faults: named_faults(faults), threads: 2 };
    run_seeds(&request, |_| {}).unwrap().0
}

#[test]
fn same_seed_produces_an_identical_history() {
    for seed in 1..4 {
        let config = SimConfig { trace: true, ..SimConfig::new(seed, 4, named_faults("all")).unwrap() };
        let (one, other) = (run_seed(&config).unwrap(), run_seed(&config).unwrap());
        for (one, other) in one.trace.iter().zip(&other.trace) {
            assert_eq!(one, other);
        }
        assert_eq!(one.trace.len(), other.trace.len());
        assert_eq!(one.outcome.json(0.0).to_string(), other.outcome.json(0.0).to_string());
        assert!(one.trace.len() > 100, "{}", one.trace.len());
    }
}

#[test]
fn thread_count_does_not_change_the_result() {
    let with = |threads| {
        let request = SeedRequest { prs: 3, seeds: 1..7, faults: named_faults("all"), threads };
        run_seeds(&request, |_| {}).unwrap().0
    };
    assert_eq!(with(1).json(0.0), with(3).json(0.0));
}

#[test]
fn everything_merges_without_remedies_when_no_fault_is_injected() {
    let outcome = report_for(5, 1..11, "none");
    assert_eq!((outcome.prs, outcome.merged), (50, 50), "{}", outcome.json(0.0));
    assert!(outcome.is_good(), "{:?}", outcome.failed);
    assert_eq!((outcome.escalated, outcome.repeated, outcome.killed), (0, 0, 0));
}

#[test]
fn each_single_fault_is_survived() {
    for name in FaultSelection::known() {
        let outcome = report_for(4, 1..4, &name);
        assert!(outcome.is_good(), "{name}: {}", outcome.json(0.0));
    }
}

/// Small simulations with all faults: nothing is lost, repeated or stuck, and nothing escalates needlessly.
#[test]
fn thousand_seeds_with_all_faults_are_survived() {
    let outcome = report_for(3, 1..1_001, "all");
    println!("{}", outcome.json(0.0));
    assert!(outcome.is_good(), "{:?} {}", outcome.failed, outcome.json(0.0));
    assert!(outcome.seeds == 1_000 && outcome.prs >= 3_000 && outcome.killed > 0, "{}", outcome.json(0.0));
    assert_eq!(outcome.remedies.len(), 7, "every strategy was needed: {}", outcome.json(0.0));
}
