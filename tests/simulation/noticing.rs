//! A watch that never finds anything proves nothing: here something is broken on purpose, and must be found.

use local::simulate::{Mishaps, Outcome, Plot, Sabotage, Wrong, play};

fn broken(sabotage: Sabotage, faults: &str, seeds: std::ops::Range<u64>) -> Outcome {
    let mut total = Outcome::default();
    for seed in seeds {
        let plot = Plot::new(seed, 4, Mishaps::named(faults).unwrap()).unwrap();
        total.add(play(&Plot { sabotage: Some(sabotage), ..plot }).unwrap().outcome);
    }
    total
}

#[test]
fn a_store_that_forgets_events_is_found() {
    let outcome = broken(Sabotage::StoreForgets(10), "none", 1..3);
    assert!(outcome.count(Wrong::LostEvent) > 0, "{}", outcome.json(0.0));
}

#[test]
fn a_queue_that_loses_messages_is_found() {
    // People's commands go over the queue, and are acknowledged.
    let outcome = broken(Sabotage::QueueLoses(1), "people", 1..9);
    assert!(outcome.count(Wrong::LostEvent) > 0, "{}", outcome.json(0.0));
}

#[test]
fn what_is_done_twice_is_found() {
    let outcome = broken(Sabotage::ActsTwice, "conflict,people", 1..9);
    assert!(outcome.count(Wrong::DoubleEffect) > 0, "{}", outcome.json(0.0));
}

#[test]
fn a_mail_that_never_went_out_is_found() {
    let outcome = broken(Sabotage::MailLost, "real-test-failure", 1..9);
    assert!(outcome.count(Wrong::Untold) > 0, "{}", outcome.json(0.0));
}
