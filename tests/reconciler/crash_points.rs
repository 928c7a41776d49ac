//! The sweep's process is stopped before and after each call that leaves it, and each answer is lost once. Another sweep later,
//! everything is as if nothing had happened, and nothing was done twice. `scenes` says what there is to sweep.

use std::collections::{BTreeMap, BTreeSet};

use domain::breaker::BreakerState;
use domain::state::State;
use fakes::FakePrId;
use jiff::SignedDuration;
use platform::breaker;
use platform::publish::queue_message::QueueMessage;
use reconciler::SweepTrigger;
use reconciler::observe_report as observed;
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed};

use crate::scenarios::{Play, Scene, scene};

/// What must be the same however the sweep was interrupted: states, budgets, what was claimed and logged; and which commands,
/// chores and mails went out, each counted once however often it was repeated.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) states: Vec<(State, u32, u32)>,
    pub(crate) logs: Vec<BTreeMap<&'static str, usize>>,
    pub(crate) commands: BTreeSet<(u64, &'static str)>,
    pub(crate) runs_per_pr: Vec<usize>,
    /// Pull requests that somebody was written to about, and how many different mails name each.
    pub(crate) called: BTreeMap<u64, usize>,
    /// Mails that name no pull request.
    pub(crate) others: BTreeSet<String>,
    pub(crate) chores: BTreeSet<String>,
    pub(crate) breaker: (&'static str, u64),
    pub(crate) watched: (BTreeSet<String>, BTreeSet<String>),
}

pub(crate) async fn outcome(stage: &Testbed, prs: &[FakePrId]) -> Outcome {
    let (mut states, mut logs, mut runs_per_pr) = (Vec::new(), Vec::new(), Vec::new());
    let commands = stage.commands();
    let mut called = BTreeMap::new();
    // A repetition has the same id.
    let mails: BTreeMap<String, _> = stage.mails().into_iter().collect();
    for pr in prs {
        let Some(record) = stage.find(pr).await else { continue };
        states.push((record.state, record.retry_counts.rebuild, record.lifetime_remedies));
        let mut kinds = stage.kinds(pr).await;
        // Who is known when the request of a push is granted hears of the push; when that is depends on what was stopped.
        assert!(kinds.remove("BASE_MOVED").unwrap_or(0) <= 1, "{pr} heard of one push twice");
        logs.push(kinds);
        let runs: BTreeSet<&String> =
            commands.iter().filter(|(number, ..)| *number == pr.number).map(|(_, _, run)| run).collect();
        runs_per_pr.push(runs.len());
        let naming = mails.values().filter(|mail| mail.body.contains(&link(pr))).count();
        if naming > 0 {
            called.insert(pr.number, naming);
        }
    }
    let others = mails.iter().filter(|(_, mail)| prs.iter().all(|pr| !mail.body.contains(&link(pr))));
    let chores =
        stage.publisher.messages().into_iter().filter(|(_, message)| matches!(message, QueueMessage::Chore(_)));
    let breaker = breaker::load(&stage.store, stage.now()).await.unwrap();
    let week = observed::week(&stage.store, stage.now(), stage.now()).await.unwrap();
    Outcome {
        states,
        logs,
        commands: commands.iter().map(|(number, command, _)| (*number, *command)).collect(),
        runs_per_pr,
        called,
        others: others.map(|(id, _)| id.clone()).collect(),
        chores: chores.map(|(id, _)| id).collect(),
        breaker: (name_of(&breaker.state), breaker.trips),
        watched: (week.would_remedy, week.would_escalate),
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

/// Sweeps, interrupted; then, when its lease is over, sweeps again.
async fn swept(play: Play, stop: Option<(usize, CallFault)>) -> (Outcome, Vec<String>) {
    let Scene { stage, prs } = scene(play).await;
    stage.faults.count_anew();
    stage.faults.take_names();
    if let Some((at, how)) = stop {
        stage.faults.plan(at + 1, how);
    }
    let now = stage.now();
    let wish = SweepTrigger::scheduled("sweep", now, "first");
    let first = stage.sweep.sweep(&wish, now + SWEEP_TIMEOUT).await;
    assert!(stop.is_some() || first.is_ok());
    let names = stage.faults.take_names();
    stage.faults.restart();
    if play == Play::Probe {
        assert!(runs(&stage) <= 1, "a breaker that has cooled down lets one through: {:?}", stage.commands());
        stage.bridging.set(true);
    }
    stage.with(|world| world.advance(SWEEP_TIMEOUT + SignedDuration::from_secs(1)));
    stage.settle().await;
    let sweeps = match play {
        // A probe that never was has to be waited for; what is only watched is seen again when it is due again.
        Play::Probe | Play::Watching => 16,
        Play::Everyday | Play::Tripping | Play::Digest | Play::Redelivery => 2,
    };
    for _ in 0..sweeps {
        let summary = stage.sweep_now().await;
        assert_eq!(summary.errors, Vec::<String>::new());
        stage.with(|world| world.advance(SignedDuration::from_mins(3)));
        stage.settle().await;
    }
    if play != Play::Probe {
        let done: Vec<_> = stage.with(|world| world.audit_by("suture[bot]").map(|one| one.action).collect());
        assert_eq!(done, [], "a sweep changes nothing outside");
    }
    (outcome(&stage, &prs).await, names)
}

/// Remedies that were ever claimed.
fn runs(stage: &Testbed) -> usize {
    stage.commands().into_iter().map(|(_, _, run)| run).collect::<BTreeSet<_>>().len()
}

/// Stops a sweep at every call, in each of the three ways; everything must end as it would have. Answers how often.
async fn stop_at_every_call(play: Play, expected: &Outcome, names: &[String]) -> usize {
    let mut points = 0;
    for (at, name) in names.iter().enumerate() {
        for how in CallFault::CRASHES {
            let (found, ..) = swept(play, Some((at, how))).await;
            let place = format!("{play:?}: stopped {how:?} call {at}: {name}");
            match play {
                // Which of them is let through, and when the others follow, depends on when it was stopped.
                Play::Probe => found.is_healed(&place),
                // The two go on with their lives meanwhile.
                Play::Redelivery => assert_eq!(found.chores, expected.chores, "{place}"),
                Play::Everyday | Play::Tripping | Play::Digest | Play::Watching => {
                    assert_eq!(found, *expected, "{place}");
                }
            }
            points += 1;
        }
    }
    println!("{play:?}: {} calls leave a sweep, {points} ways to stop it", names.len());
    points
}

impl Outcome {
    /// One remedy for each at most: the scan that the first one asks for may find the others' builds too.
    fn is_healed(&self, place: &str) {
        assert_eq!(self.breaker.0, "closed", "{place}: {self:?}");
        assert!(self.states.iter().all(|(state, ..)| *state != State::Created), "{place}: {self:?}");
        let most = self.runs_per_pr.iter().max().copied();
        assert_eq!((most, self.called.len()), (Some(1), 0), "{place}: {self:?}");
    }
}

#[tokio::test]
async fn a_sweep_of_everything_may_stop_at_any_call() {
    let (expected, names) = swept(Play::Everyday, None).await;
    let states: Vec<State> = expected.states.iter().map(|(state, ..)| *state).collect();
    let waiting = [State::Created, State::ChecksFailed, State::NeedsIntervention, State::Merged, State::Created];
    assert_eq!(states, waiting);
    assert_eq!(expected.runs_per_pr, [1, 1, 0, 0, 1], "{names:#?}");
    assert_eq!(expected.logs[4]["PR_OPENED"], 1);
    assert_eq!((expected.called.len(), expected.others.len()), (1, 0));
    assert!(stop_at_every_call(Play::Everyday, &expected, &names).await > 90);
}

#[tokio::test]
async fn a_sweep_that_trips_the_breaker_may_stop_at_any_call() {
    let (expected, names) = swept(Play::Tripping, None).await;
    assert_eq!((expected.breaker, expected.commands.len()), (("open", 1), 0), "{expected:?}");
    assert_eq!(expected.others, BTreeSet::from(["breaker-trip-1".to_owned()]), "one mail for one trip");
    assert!(stop_at_every_call(Play::Tripping, &expected, &names).await > 30);
}

#[tokio::test]
async fn a_sweep_that_probes_may_stop_at_any_call() {
    let (expected, names) = swept(Play::Probe, None).await;
    expected.is_healed("undisturbed");
    assert!(stop_at_every_call(Play::Probe, &expected, &names).await > 30);
}

#[tokio::test]
async fn a_sweep_that_calls_many_may_stop_at_any_call() {
    let (expected, names) = swept(Play::Digest, None).await;
    assert_eq!(expected.called.values().copied().collect::<Vec<_>>(), [1; 6], "{expected:?}");
    assert!(stop_at_every_call(Play::Digest, &expected, &names).await > 30);
}

#[tokio::test]
async fn a_sweep_that_only_watches_may_stop_at_any_call() {
    let (expected, names) = swept(Play::Watching, None).await;
    assert_eq!((expected.watched.0.len(), expected.watched.1.len(), expected.commands.len()), (1, 1, 0));
    assert!(stop_at_every_call(Play::Watching, &expected, &names).await > 30);
}

#[tokio::test]
async fn a_sweep_that_asks_for_redeliveries_may_stop_at_any_call() {
    let (expected, names) = swept(Play::Redelivery, None).await;
    assert_eq!(expected.chores.len(), 2, "{expected:?}");
    assert!(stop_at_every_call(Play::Redelivery, &expected, &names).await > 30);
}
