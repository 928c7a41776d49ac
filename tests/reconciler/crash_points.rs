//! Crashes a sweep before and after each of its outgoing calls, and drops each response once. After the next sweeps the outcome is
//! the same as without the crash, and no action ran twice. `scenarios` prepares the records.

use std::collections::{BTreeMap, BTreeSet};

use domain::breaker::BreakerState;
use domain::state::State;
use fakes::FakePrId;
use jiff::SignedDuration;
use platform::publish::queue_message::QueueMessage;
use platform::store::breaker;
use reconciler::SweepTrigger;
use reconciler::observe_report as observed;
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed};

use crate::scenarios::{Scenario, Setup, set_up};

/// The result that must not depend on where the sweep crashed: states, budgets, claims and logs, and the distinct commands, tasks
/// and mails. Repetitions with the same id count once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) states: Vec<(State, u32, u32)>,
    pub(crate) logs: Vec<BTreeMap<&'static str, usize>>,
    pub(crate) commands: BTreeSet<(u64, &'static str)>,
    pub(crate) runs_per_pr: Vec<usize>,
    /// Number of distinct mails that name each pull request; pull requests without a mail are absent.
    pub(crate) notified: BTreeMap<u64, usize>,
    /// Mails that name no pull request.
    pub(crate) other_mails: BTreeSet<String>,
    pub(crate) tasks: BTreeSet<String>,
    pub(crate) breaker: (&'static str, u64),
    pub(crate) observed: (BTreeSet<String>, BTreeSet<String>),
}

pub(crate) async fn outcome(testbed: &Testbed, prs: &[FakePrId]) -> Outcome {
    let (mut states, mut logs, mut runs_per_pr) = (Vec::new(), Vec::new(), Vec::new());
    let commands = testbed.commands();
    let mut notified = BTreeMap::new();
    // A repeated mail has the same id.
    let mails: BTreeMap<String, _> = testbed.mails().into_iter().collect();
    for pr in prs {
        let Some(record) = testbed.find(pr).await else { continue };
        states.push((record.state, record.retry_counts.rebuild, record.lifetime_remedies));
        let mut kinds = testbed.kinds(pr).await;
        // Whether the record exists when the push request runs depends on the crash point, so BASE_MOVED may be absent.
        assert!(kinds.remove("BASE_MOVED").unwrap_or(0) <= 1, "{pr} logged one push twice");
        logs.push(kinds);
        let runs: BTreeSet<&String> =
            commands.iter().filter(|(number, ..)| *number == pr.number).map(|(_, _, run)| run).collect();
        runs_per_pr.push(runs.len());
        let naming = mails.values().filter(|mail| mail.body.contains(&link(pr))).count();
        if naming > 0 {
            notified.insert(pr.number, naming);
        }
    }
    let other_mails = mails.iter().filter(|(_, mail)| prs.iter().all(|pr| !mail.body.contains(&link(pr))));
    let tasks =
        testbed.publisher.messages().into_iter().filter(|(_, message)| matches!(message, QueueMessage::Task(_)));
    let breaker = breaker::load(&testbed.store, testbed.now()).await.unwrap();
    let week = observed::week(&testbed.store, testbed.now(), testbed.now()).await.unwrap();
    Outcome {
        states,
        logs,
        commands: commands.iter().map(|(number, command, _)| (*number, *command)).collect(),
        runs_per_pr,
        notified,
        other_mails: other_mails.map(|(id, _)| id.clone()).collect(),
        tasks: tasks.map(|(id, _)| id).collect(),
        breaker: (name_of(&breaker.state), breaker.trips),
        observed: (week.would_remedy, week.would_escalate),
    }
}

fn name_of(state: &BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open { .. } => "open",
        BreakerState::HalfOpen { .. } => "half_open",
    }
}

fn link(pr: &FakePrId) -> String {
    format!("/{}/pull/{}\n", pr.repo, pr.number)
}

/// Runs a sweep with the given fault, waits until its lease expires, and sweeps again.
async fn sweep_with_fault(scenario: Scenario, stop: Option<(usize, CallFault)>) -> (Outcome, Vec<String>) {
    let Setup { testbed, prs } = set_up(scenario).await;
    testbed.faults.count_anew();
    testbed.faults.take_names();
    if let Some((at, fault)) = stop {
        testbed.faults.plan(at + 1, fault);
    }
    let now = testbed.now();
    let trigger = SweepTrigger::scheduled("sweep", now, "first");
    let first = testbed.sweep.sweep(&trigger, now + SWEEP_TIMEOUT).await;
    assert!(stop.is_some() || first.is_ok());
    let names = testbed.faults.take_names();
    testbed.faults.restart();
    if scenario == Scenario::BreakerProbe {
        assert!(runs(&testbed) <= 1, "a half-open breaker allows one remedy: {:?}", testbed.commands());
        testbed.bridging.set(true);
    }
    testbed.with(|fakes| fakes.advance(SWEEP_TIMEOUT + SignedDuration::from_secs(1)));
    testbed.settle().await;
    let sweeps = match scenario {
        // A lost probe has to time out; in observe mode a pull request is visited again only when it is due.
        Scenario::BreakerProbe | Scenario::ObserveMode => 16,
        Scenario::Mixed | Scenario::BreakerTrip | Scenario::Digest | Scenario::Redelivery => 2,
    };
    for _ in 0..sweeps {
        let summary = testbed.sweep_now().await;
        assert_eq!(summary.errors, Vec::<String>::new());
        testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(3)));
        testbed.settle().await;
    }
    if scenario != Scenario::BreakerProbe {
        let done: Vec<_> = testbed.with(|fakes| fakes.audit_by("suture[bot]").map(|entry| entry.action).collect());
        assert_eq!(done, [], "a sweep itself writes nothing to GitHub or Jenkins");
    }
    (outcome(&testbed, &prs).await, names)
}

/// Number of remedies claimed so far.
fn runs(testbed: &Testbed) -> usize {
    testbed.commands().into_iter().map(|(_, _, run)| run).collect::<BTreeSet<_>>().len()
}

/// Crashes a sweep at every call in each of three ways and compares the outcome. Returns the number of crash points.
async fn stop_at_every_call(scenario: Scenario, expected: &Outcome, names: &[String]) -> usize {
    let mut points = 0;
    for (at, name) in names.iter().enumerate() {
        for fault in CallFault::CRASHES {
            let (found, ..) = sweep_with_fault(scenario, Some((at, fault))).await;
            let context = format!("{scenario:?}: crash {fault:?} call {at}: {name}");
            match scenario {
                // The crash point decides which pull request is the probe, and when the others follow.
                Scenario::BreakerProbe => found.assert_healed(&context),
                // The two pull requests continue meanwhile, so only the tasks are comparable.
                Scenario::Redelivery => assert_eq!(found.tasks, expected.tasks, "{context}"),
                Scenario::Mixed | Scenario::BreakerTrip | Scenario::Digest | Scenario::ObserveMode => {
                    assert_eq!(found, *expected, "{context}");
                }
            }
            points += 1;
        }
    }
    println!("{scenario:?}: {} outgoing calls, {points} crash points", names.len());
    points
}

impl Outcome {
    /// At most one remedy each: the repository scan of the first rebuild may also find the builds of the others.
    fn assert_healed(&self, context: &str) {
        assert_eq!(self.breaker.0, "closed", "{context}: {self:?}");
        assert!(self.states.iter().all(|(state, ..)| *state != State::Created), "{context}: {self:?}");
        let most = self.runs_per_pr.iter().max().copied();
        assert_eq!((most, self.notified.len()), (Some(1), 0), "{context}: {self:?}");
    }
}

#[tokio::test]
async fn mixed_sweep_recovers_from_crash_at_any_call() {
    let (expected, names) = sweep_with_fault(Scenario::Mixed, None).await;
    let states: Vec<State> = expected.states.iter().map(|(state, ..)| *state).collect();
    let waiting = [State::Created, State::ChecksFailed, State::NeedsIntervention, State::Merged, State::Created];
    assert_eq!(states, waiting);
    assert_eq!(expected.runs_per_pr, [1, 1, 0, 0, 1], "{names:#?}");
    assert_eq!(expected.logs[4]["PR_OPENED"], 1);
    assert_eq!((expected.notified.len(), expected.other_mails.len()), (1, 0));
    assert!(stop_at_every_call(Scenario::Mixed, &expected, &names).await > 90);
}

#[tokio::test]
async fn breaker_trip_recovers_from_crash_at_any_call() {
    let (expected, names) = sweep_with_fault(Scenario::BreakerTrip, None).await;
    assert_eq!((expected.breaker, expected.commands.len()), (("open", 1), 0), "{expected:?}");
    assert_eq!(expected.other_mails, BTreeSet::from(["breaker-trip-1".to_owned()]), "one mail per trip");
    assert!(stop_at_every_call(Scenario::BreakerTrip, &expected, &names).await > 30);
}

#[tokio::test]
async fn breaker_probe_recovers_from_crash_at_any_call() {
    let (expected, names) = sweep_with_fault(Scenario::BreakerProbe, None).await;
    expected.assert_healed("without a crash");
    assert!(stop_at_every_call(Scenario::BreakerProbe, &expected, &names).await > 30);
}

#[tokio::test]
async fn mail_digest_recovers_from_crash_at_any_call() {
    let (expected, names) = sweep_with_fault(Scenario::Digest, None).await;
    assert_eq!(expected.notified.values().copied().collect::<Vec<_>>(), [1; 6], "{expected:?}");
    assert!(stop_at_every_call(Scenario::Digest, &expected, &names).await > 30);
}

#[tokio::test]
async fn observe_mode_recovers_from_crash_at_any_call() {
    let (expected, names) = sweep_with_fault(Scenario::ObserveMode, None).await;
    assert_eq!((expected.observed.0.len(), expected.observed.1.len(), expected.commands.len()), (1, 1, 0));
    assert!(stop_at_every_call(Scenario::ObserveMode, &expected, &names).await > 30);
}

#[tokio::test]
async fn redelivery_recovers_from_crash_at_any_call() {
    let (expected, names) = sweep_with_fault(Scenario::Redelivery, None).await;
    assert_eq!(expected.tasks.len(), 2, "{expected:?}");
    assert!(stop_at_every_call(Scenario::Redelivery, &expected, &names).await > 30);
}
