//! The invariant checks detect bugs that are injected on purpose.

use simulate::{FaultSelection, InjectedBug, Invariant, SimConfig, SimulationReport, run_seed};

fn run_with_bug(bug: InjectedBug, faults: &str, seeds: std::ops::Range<u64>) -> SimulationReport {
    let mut total = SimulationReport::default();
    for seed in seeds {
        let config = SimConfig::new(seed, 4, FaultSelection::named(faults).unwrap()).unwrap();
        total.add(run_seed(&SimConfig { bug: Some(bug), ..config }).unwrap().outcome);
    }
    total
}

#[test]
fn lost_events_are_detected() {
    let outcome = run_with_bug(InjectedBug::StoreForgets(10), "none", 1..3);
    assert!(outcome.count(Invariant::LostEvent) > 0, "{}", outcome.json(0.0));
}

#[test]
fn lost_queue_messages_are_detected() {
    // User commands go through the queue and are acknowledged.
    let outcome = run_with_bug(InjectedBug::QueueLoses(1), "users", 1..9);
    assert!(outcome.count(Invariant::LostEvent) > 0, "{}", outcome.json(0.0));
}

#[test]
fn duplicate_effects_are_detected() {
    let outcome = run_with_bug(InjectedBug::ActsTwice, "conflict,users", 1..9);
    assert!(outcome.count(Invariant::DoubleEffect) > 0, "{}", outcome.json(0.0));
}

#[test]
fn unsent_mail_is_detected() {
    let outcome = run_with_bug(InjectedBug::MailLost, "real-test-failure", 1..9);
    assert!(outcome.count(Invariant::NotNotified) > 0, "{}", outcome.json(0.0));
}
