//! A watch that never finds anything proves nothing: here something is broken on purpose, and must be found.

use simulate::{FaultSelection, InjectedBug, Invariant, SimConfig, SimulationReport, run_seed};

fn broken(bug: InjectedBug, faults: &str, seeds: std::ops::Range<u64>) -> SimulationReport {
    let mut total = SimulationReport::default();
    for seed in seeds {
        let config = SimConfig::new(seed, 4, FaultSelection::named(faults).unwrap()).unwrap();
        total.add(run_seed(&SimConfig { bug: Some(bug), ..config }).unwrap().outcome);
    }
    total
}

#[test]
fn a_store_that_forgets_events_is_found() {
    let outcome = broken(InjectedBug::StoreForgets(10), "none", 1..3);
    assert!(outcome.count(Invariant::LostEvent) > 0, "{}", outcome.json(0.0));
}

#[test]
fn a_queue_that_loses_messages_is_found() {
    // People's commands go over the queue, and are acknowledged.
    let outcome = broken(InjectedBug::QueueLoses(1), "users", 1..9);
    assert!(outcome.count(Invariant::LostEvent) > 0, "{}", outcome.json(0.0));
}

#[test]
fn what_is_done_twice_is_found() {
    let outcome = broken(InjectedBug::ActsTwice, "conflict,users", 1..9);
    assert!(outcome.count(Invariant::DoubleEffect) > 0, "{}", outcome.json(0.0));
}

#[test]
fn a_mail_that_never_went_out_is_found() {
    let outcome = broken(InjectedBug::MailLost, "real-test-failure", 1..9);
    assert!(outcome.count(Invariant::NotNotified) > 0, "{}", outcome.json(0.0));
}
