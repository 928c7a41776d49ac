//! Crashes a process of each function before and after every external call, or loses the call's response, one call per
//! simulation. Everything converges, no effect happens twice, and nothing escalates.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use simulate::{CrashPoint, DashboardAction, FaultSelection, FunctionName, Invariant, SimConfig, run_seed};
use testbed::CallFault;

/// A simulation of one pull request with exactly this crash. Dashboard users are active if the admin function crashes.
fn config(faults: &str, function: FunctionName) -> SimConfig {
    let mut faults = FaultSelection::named(faults).unwrap();
    faults.world.lives = 1.0;
    let dashboard = if function == FunctionName::Admin { dashboard_actions() } else { Vec::new() };
    SimConfig { dashboard, ..SimConfig::new(11, 1, faults).unwrap() }
}

/// Presses every button in turn; a pause or hold is undone again.
fn dashboard_actions() -> Vec<(SignedDuration, DashboardAction)> {
    let buttons = [
        (2, DashboardAction::Look),
        (3, DashboardAction::Sweep),
        (4, DashboardAction::Pause),
        // Requests are retried for five minutes, so a late pause may arrive after this and changes nothing.
        (6, DashboardAction::Unpause),
        (8, DashboardAction::Command("/hold")),
        (9, DashboardAction::Command("/resume")),
        (40, DashboardAction::Command("/rebuild")),
        (41, DashboardAction::CancelRun),
        (45, DashboardAction::Command("/recheck-policy")),
        (50, DashboardAction::ResetBreaker),
    ];
    buttons.into_iter().map(|(minutes, button)| (SignedDuration::from_mins(minutes), button)).collect()
}

/// Crashes at every call of every lifecycle and returns the number of crash points.
fn crash_at_every_call(function: FunctionName, lifecycles: &[&str]) -> BTreeMap<String, u64> {
    let mut points = BTreeMap::new();
    for faults in lifecycles {
        let plain = run_seed(&config(faults, function)).unwrap();
        assert!(plain.outcome.is_good(), "{faults}: {:?}", plain.outcome.failed);
        let calls = plain.calls.get(&function).copied().unwrap_or(0);
        for call in 1..=calls {
            for fault in CallFault::CRASHES {
                let config =
                    SimConfig { crash: Some(CrashPoint { function, call, fault }), ..config(faults, function) };
                let stopped = run_seed(&config).unwrap();
                let at = format!("{faults}: {} crashed {fault:?} call {call} of {calls}", function.name());
                if !stopped.outcome.is_good() {
                    let history = run_seed(&SimConfig { trace: true, ..config }).unwrap().trace.join("\n");
                    panic!("{at}: {}\n{history}", stopped.outcome.json(0.0));
                }
                assert_eq!(stopped.outcome.count(Invariant::DoubleEffect), 0, "{at}");
                *points.entry((*faults).to_owned()).or_default() += 1;
            }
        }
    }
    let total: u64 = points.values().sum();
    println!("{}: {total} points: {points:?}", function.name());
    points
}

const LIFECYCLES: [&str; 8] = [
    "none",
    "jenkins-deaf",
    "agent-lost",
    "policy-asleep",
    "automerge-asleep",
    "sod-timing",
    "conflict,genie-asleep",
    "real-test-failure",
];

#[test]
fn webhook_survives_a_crash_at_any_call() {
    let points = crash_at_every_call(FunctionName::Webhook, &LIFECYCLES[..3]);
    assert!(points.values().sum::<u64>() > 300, "{points:?}");
}

#[test]
fn car_bridge_survives_a_crash_at_any_call() {
    let points = crash_at_every_call(FunctionName::CarBridge, &LIFECYCLES[1..7]);
    assert!(points.values().sum::<u64>() > 150, "{points:?}");
}

#[test]
fn reconciler_survives_a_crash_at_any_call_of_a_short_lifecycle() {
    let points = crash_at_every_call(FunctionName::Reconciler, &LIFECYCLES[..4]);
    assert!(points.values().sum::<u64>() > 1_000, "{points:?}");
}

#[test]
fn reconciler_survives_a_crash_at_any_call_of_a_long_lifecycle() {
    let points = crash_at_every_call(FunctionName::Reconciler, &LIFECYCLES[4..]);
    assert!(points.values().sum::<u64>() > 1_200, "{points:?}");
}

#[test]
fn admin_survives_a_crash_at_any_call() {
    let points = crash_at_every_call(FunctionName::Admin, &["none", "jenkins-deaf", "policy-asleep"]);
    assert!(points.values().sum::<u64>() > 300, "{points:?}");
}
