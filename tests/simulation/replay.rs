//! Replays a simulated history with another configuration.

use domain::policy::Policies;
use simulate::replay::{ReplayReport, events_of, replay};
use simulate::{FaultSelection, SimConfig, run_seed};

/// A history with stalled bots, lost agents and failing tests.
fn history() -> String {
    let mut lines = Vec::new();
    for seed in 1..6 {
        let faults = "policy-asleep,approver-asleep,automerge-asleep,agent-lost,jenkins-deaf,real-test-failure";
        let mut faults = FaultSelection::named(faults).unwrap();
        faults.world.lives = 1.0;
        // Without this each seed has its own configuration.
        let policies = Policies::parse("mode = \"act\"").unwrap();
        let config = SimConfig { keeps_log: true, policies, ..SimConfig::new(seed, 6, faults).unwrap() };
        // All seeds use the same repository names, so rename them per seed.
        let log = run_seed(&config).unwrap().log;
        lines.extend(
            log.iter().map(|event| serde_json::to_string(event).unwrap().replace("acme/", &format!("acme-{seed}/"))),
        );
    }
    // Replay accepts events in any order.
    lines.sort();
    lines.join("\n")
}

fn replay_with(config: &str) -> ReplayReport {
    let policies = Policies::parse(config).unwrap();
    replay(events_of(&history()).unwrap(), &policies)
}

#[test]
fn replay_with_the_same_configuration_matches_the_history() {
    let report = replay_with("mode = \"act\"");
    assert!(report.prs >= 30 && report.events > 300, "{report:?}");
    assert!(report.recorded.values().sum::<u64>() >= 10, "{report:?}");
    assert_eq!(report.recorded, report.would, "{}", report.table());
    assert_eq!((report.escalated_less, report.escalated_more), (0, 0), "{}", report.table());
    assert_eq!((report.sooner.len(), report.later.len()), (0, 0), "{}", report.table());
}

#[test]
fn replay_heals_sooner_with_shorter_thresholds() {
    let short =
        replay_with("mode = \"act\"\n[thresholds_minutes]\npolicy_passed = 5\nchecks_failed = 10\napproved = 3");
    assert!(!short.sooner.is_empty() && short.later.is_empty(), "{}", short.table());
    let median = short.json()["healed_sooner"]["median_minutes"].as_f64().unwrap();
    assert!((3.0..60.0).contains(&median), "{median}");
    let long =
        replay_with("mode = \"act\"\n[thresholds_minutes]\npolicy_passed = 60\nchecks_failed = 120\napproved = 45");
    assert!(long.sooner.is_empty(), "{}", long.table());
    assert!(
        long.would.values().sum::<u64>() < long.recorded.values().sum(),
        "pull requests that ended before the threshold get no remedy"
    );
}

#[test]
fn replay_without_budget_escalates() {
    let report = replay_with("mode = \"act\"\n[budgets]\nrebuild = 0\nretrigger_approver_bot = 0");
    assert!(report.escalated_more > 0 && !report.would.contains_key("rebuild"), "{}", report.table());
    assert!(report.difference()["rebuild"] < 0, "{}", report.table());
}

#[test]
fn unreadable_history_line_is_named() {
    let wrong = events_of("\n{\"pr\": 7}").unwrap_err();
    assert!(wrong.starts_with("line 2 is not an event") && wrong.contains("/api/export/events"), "{wrong}");
    assert!(events_of("\n\n").unwrap().is_empty());
}
