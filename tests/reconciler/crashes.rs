//! The sweep's process is stopped before and after each call that leaves it, and each answer is lost once. Another sweep later,
//! everything is as if nothing had happened, and nothing was done twice.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::RunId;
use domain::state::State;
use jiff::SignedDuration;
use platform::sweep::{Scope, Swept, Wish};
use world::{Fault, Pr, Settings, Timing};

use crate::stage::{PATIENCE, Stage, Stop, id};

/// One of each: a claim whose message never went out, a rebuild to claim, a person to call, a merge that was missed, and one
/// that nobody has ever told us about; and the time of an inventory has come.
struct Scene {
    stage: Stage,
    prs: [Pr; 5],
}

async fn scene() -> Scene {
    let timing = Timing { build_ms: (240_000, 240_000), ..Timing::default() };
    let mut stage = Stage::new(Settings { timing, ..Settings::default() }, "sweep.inventory_every = 40");
    stage.sweep_now().await;
    (stage.bridging, stage.sweeping) = (false, false);
    let deaf = stage.open();
    stage.with(|world| world.force(Fault::JenkinsDeaf, &deaf));
    stage.pass(6).await;
    // Its claim is in the table, but its message is not on the queue.
    stage.post_is_down(true);
    stage.sweep_now().await;
    stage.post_is_down(false);
    let (flaky, broken, merged) = (stage.open(), stage.open(), stage.open());
    stage.with(|world| {
        world.force(Fault::AgentLost, &flaky);
        world.force(Fault::RealTestFailure, &broken);
    });
    stage.pass(6).await;
    let unheard = [merged.number, merged.number + 1];
    stage.lose(move |_, delivery| delivery.pr.as_ref().is_some_and(|pr| unheard.contains(&pr.number)));
    stage.with(|world| world.person_merges(&merged, "maria"));
    let unknown = stage.open();
    stage.with(|world| world.force(Fault::JenkinsDeaf, &unknown));
    stage.pass(34).await;
    assert!(stage.find(&unknown).await.is_none());
    Scene { stage, prs: [deaf, flaky, broken, merged, unknown] }
}

/// What must be the same however the sweep was interrupted: states, budgets, what was claimed and logged; and which commands
/// and mails went out, each counted once however often it was repeated.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    states: Vec<(State, u32, u32)>,
    logs: Vec<BTreeMap<&'static str, usize>>,
    commands: BTreeSet<(u64, &'static str)>,
    runs_per_pr: Vec<usize>,
    mails: BTreeSet<String>,
}

async fn outcome(stage: &Stage, prs: &[Pr]) -> Outcome {
    let (mut states, mut logs, mut runs_per_pr) = (Vec::new(), Vec::new(), Vec::new());
    let commands = stage.commands();
    for pr in prs {
        let Some(record) = stage.find(pr).await else { continue };
        states.push((record.state, record.retry_counts.rebuild, record.lifetime_remedies));
        logs.push(stage.kinds(pr).await);
        let runs: BTreeSet<&String> =
            commands.iter().filter(|(number, ..)| *number == pr.number).map(|(_, _, run)| run).collect();
        runs_per_pr.push(runs.len());
    }
    Outcome {
        states,
        logs,
        commands: commands.iter().map(|(number, command, _)| (*number, *command)).collect(),
        runs_per_pr,
        mails: stage.mails().iter().map(|(_, mail)| mail.subject.clone()).collect(),
    }
}

/// Sweeps, interrupted; then, when its lease is over, sweeps again.
async fn swept(stop: Option<(usize, Stop)>) -> (Outcome, usize, Vec<String>) {
    let Scene { mut stage, prs } = scene().await;
    stage.trap.count();
    stage.trap.names();
    if let Some((at, how)) = stop {
        stage.trap.set(at, how);
    }
    let now = stage.now();
    let wish = Wish::scheduled("sweep", now, "first");
    let first = stage.sweep.sweep(&wish, now + PATIENCE).await;
    assert!(stop.is_some() || first.is_ok());
    let (calls, names) = (stage.trap.count(), stage.trap.names());
    stage.trap.revive();
    stage.with(|world| world.advance(PATIENCE + SignedDuration::from_secs(1)));
    stage.settle().await;
    for _ in 0..2 {
        let summary = stage.sweep_now().await;
        assert_eq!(summary.errors, Vec::<String>::new());
        stage.with(|world| world.advance(SignedDuration::from_mins(3)));
        stage.settle().await;
    }
    let done: Vec<_> = stage.with(|world| world.effects_by("suture[bot]").map(|one| one.deed).collect());
    assert_eq!(done, [], "a sweep changes nothing outside");
    (outcome(&stage, &prs).await, calls, names)
}

#[tokio::test]
async fn a_sweep_may_stop_at_any_call() {
    let (expected, calls, names) = swept(None).await;
    let states: Vec<State> = expected.states.iter().map(|(state, ..)| *state).collect();
    let waiting = [State::Created, State::ChecksFailed, State::NeedsIntervention, State::Merged, State::Created];
    assert_eq!(states, waiting);
    assert_eq!(expected.runs_per_pr, [1, 1, 0, 0, 1], "{names:#?}");
    assert_eq!(expected.logs[4]["PR_OPENED"], 1);
    assert_eq!(expected.mails.len(), 1);
    assert!(calls > 30, "{calls}");
    println!("{calls} calls leave a sweep of five");
    assert_eq!(names.len(), calls);
    for (at, name) in names.iter().enumerate() {
        for how in [Stop::Before, Stop::After, Stop::AnswerLost] {
            let (found, ..) = swept(Some((at, how))).await;
            assert_eq!(found, expected, "stopped {how:?} call {at}: {name}");
        }
    }
}

#[tokio::test]
async fn a_doubled_event_and_an_overlapping_sweep_do_nothing() {
    let Scene { stage, prs } = scene().await;
    let now = stage.now();
    let tick = |holder: &str| Wish::scheduled("sweep", now, holder);
    let (one, other, next) = (
        tick("a"),
        tick("b"),
        Wish {
            run: RunId::new("requested-1"),
            ..Wish::requested(RunId::new("x"), Scope::One(id(&prs[1])), false, "c")
        },
    );
    // At the same time: the doubled event of the schedule, and a wish for one pull request.
    let (one, other, next) = tokio::join!(stage.wish(&one), stage.wish(&other), stage.wish(&next));
    let swept = [&one, &other, &next].iter().filter(|swept| matches!(swept, Swept::Done(_))).count();
    assert_eq!(swept, 2, "{one:?}\n{other:?}\n{next:?}");
    assert_eq!(stage.wish(&tick("d")).await, Swept::Repeated, "and later it is still the same event");
    let found = outcome(&stage, &prs).await;
    assert_eq!(found.runs_per_pr[..4], [1, 1, 0, 0]);
    assert_eq!(found.states[1].1, 1, "one remedy, counted once");
}

#[tokio::test]
async fn two_sweeps_that_meet_at_one_pull_request_claim_one_remedy() {
    let Scene { stage, prs } = scene().await;
    let wish = |name: &str| Wish::requested(RunId::new(name), Scope::One(id(&prs[1])), false, name);
    let (one, other) = (wish("r-1"), wish("r-2"));
    let (one, other) = tokio::join!(stage.wish(&one), stage.wish(&other));
    let claims = |swept: &Swept| match swept {
        Swept::Done(summary) => summary.claims(),
        Swept::Busy { .. } | Swept::Repeated => 0,
    };
    assert_eq!(claims(&one) + claims(&other), 1, "{one:?}\n{other:?}");
    let record = stage.record(&prs[1]).await;
    assert_eq!((record.retry_counts.rebuild, record.lifetime_remedies), (1, 1));
}
