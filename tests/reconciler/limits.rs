//! What keeps a sweep within bounds: its deadline, people who cancel or pause it, GitHub's limits, and the number of remedies
//! under way.

use domain::event::EventKind;
use domain::id::RunId;
use domain::run::RunState;
use domain::state::State;
use fakes::{FakePrId, FakeSettings, FakeTiming, Fault};
use jiff::SignedDuration;
use platform::engine::Engine;
use platform::sweep_summary::summary_of;
use platform::{guards, queries, reconcile_request, schema};
use reconciler::{ReconcileScope, SweepOutcome, SweepTrigger};
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed, pr_id};

/// So many pull requests whose checks never started, due now; nobody works on the queue.
async fn deaf(stage: &Testbed, count: usize) -> Vec<FakePrId> {
    stage.sweeping.set(false);
    let prs: Vec<FakePrId> = (0..count).map(|_| stage.open()).collect();
    for pr in &prs {
        stage.with(|world| world.force(Fault::JenkinsDeaf, pr));
    }
    stage.pass(2).await;
    stage.sweep_now().await;
    stage.pass(4).await;
    stage.bridging.set(false);
    prs
}

#[tokio::test]
async fn only_so_many_remedies_are_under_way_and_the_urgent_come_first() {
    let stage = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 3");
    let prs = deaf(&stage, 8).await;
    stage.with(|world| world.person_labels(&prs[6], "maria", "suture/priority-p0"));
    stage.with(|world| world.person_labels(&prs[4], "maria", "suture/priority-p1"));
    stage.pass(1).await;
    let summary = stage.sweep_now().await;
    assert_eq!((summary.claims(), summary.skipped["full"]), (3, 5), "{summary:?}");
    let first: Vec<u64> = stage.commands().iter().map(|(number, ..)| *number).collect();
    assert_eq!(first, [prs[6].number, prs[4].number, prs[0].number]);
    // They are under way until their runs are over: five minutes later there is still no room.
    stage.pass(6).await;
    let summary = stage.sweep_now().await;
    assert_eq!((summary.claims(), summary.skipped["full"]), (0, 5), "{summary:?}");
    assert_eq!(summary.resent, 3, "but their messages are sent again, since nobody took them");
}

#[tokio::test]
async fn a_sweep_stops_before_its_deadline_and_the_rest_is_still_due() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let prs = deaf(&stage, 3).await;
    let wish = SweepTrigger::scheduled("sweep", stage.now(), "a");
    let SweepOutcome::Done(summary) =
        stage.sweep.sweep(&wish, stage.now() + SignedDuration::from_secs(50)).await.unwrap()
    else {
        panic!("no sweep")
    };
    assert!(summary.partial && summary.left == 3 && summary.verified == 0, "{summary:?}");
    let run = queries::runs_of(&stage.store, None, None, 10, stage.now()).await.unwrap().entries.remove(0);
    assert_eq!((run.id.clone(), run.state, run.partial), (wish.run, RunState::Completed, true));
    assert_eq!(summary_of(&run).unwrap(), *summary);
    assert!(run.outcome.unwrap().starts_with("stopped at the deadline: 3 due"));
    let summary = stage.sweep_now().await;
    assert_eq!((summary.claims(), summary.partial), (prs.len() as u32, false));
}

#[tokio::test]
async fn a_sweep_is_cancelled_between_two_stages() {
    let stage = Testbed::new(FakeSettings::default(), "");
    deaf(&stage, 3).await;
    let wish = SweepTrigger::requested(RunId::new("r-1"), ReconcileScope::All, false, "a");
    reconcile_request::request_cancel(&stage.store, &wish.run, stage.now()).await.unwrap();
    let SweepOutcome::Done(summary) = stage.request_sweep(&wish).await else { panic!("no sweep") };
    assert!(summary.cancelled && summary.verified == 0, "{summary:?}");
    let run = queries::runs_of(&stage.store, None, None, 1, stage.now()).await.unwrap().entries.remove(0);
    assert_eq!((run.id.as_str(), run.state), ("r-1", RunState::Cancelled));
    assert_eq!(stage.sweep_now().await.claims(), 3, "and the next one does it");
}

#[tokio::test]
async fn while_a_person_has_paused_suture_nothing_is_claimed() {
    let stage = Testbed::new(FakeSettings::default(), "");
    deaf(&stage, 2).await;
    guards::pause(&stage.store, "maria", stage.now(), stage.now()).await.unwrap();
    let summary = stage.sweep_now().await;
    assert_eq!((summary.verified, summary.claims(), summary.skipped["paused"]), (2, 0, 2), "{summary:?}");
    assert_eq!(summary.stale.len(), 2);
    guards::unpause(&stage.store, stage.now(), stage.now()).await.unwrap();
    stage.pass(6).await;
    assert_eq!(stage.sweep_now().await.claims(), 2);
}

#[tokio::test]
async fn a_secondary_limit_in_the_middle_stops_the_asking_and_not_the_sweep() {
    let stage = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 100");
    deaf(&stage, 30).await;
    // The second of two queries is refused.
    let mut queries = 0;
    stage.before_query(move |fakes| {
        queries += 1;
        if queries == 2 {
            fakes.force_request(Fault::ApiForbidden);
        }
    });
    let summary = stage.sweep_now().await;
    let limited = summary.skipped.get("rate_limit").copied().unwrap_or(0);
    assert_eq!((summary.claims(), limited, summary.errors.len()), (25, 5, 0), "{summary:?}");
    let until = guards::not_before(&stage.store, "github", stage.now()).await.unwrap().expect("all functions know");
    let queries = stage.queries();
    stage.with(|world| world.advance(SignedDuration::from_secs(5)));
    let held = stage.sweep_now().await;
    assert_eq!(stage.queries(), queries, "nobody asks before {until}");
    assert_eq!(held.verified, 0);
    stage.with(|world| world.advance_to(until + SignedDuration::from_mins(6)));
    stage.settle().await;
    let rest = stage.sweep_now().await;
    assert_eq!(summary.claims() + held.claims() + rest.claims(), 30, "{summary:?}\n{rest:?}");
}

#[tokio::test]
async fn a_pull_request_that_can_never_be_read_does_not_starve_the_others() {
    let stage = Testbed::new(FakeSettings::default(), "sweep.max_prs = 2\nlimits.remedies_in_flight = 100");
    // A record whose pull request GitHub does not know, and older than all others.
    let ghost: domain::id::PrId = "acme/payments#999999".parse().unwrap();
    let at = stage.now();
    let engine = Engine::new(stage.store.clone(), testbed::RecordingPublisher::default(), stage.policies.clone());
    engine.apply(&tests::opened(&ghost, "ghost", at), at).await.unwrap();
    let prs = deaf(&stage, 5).await;
    let mut seen = 0;
    for _ in 0..12 {
        stage.sweep_now().await;
        stage.pass(1).await;
    }
    for pr in &prs {
        seen += usize::from(stage.commands().iter().any(|(number, ..)| *number == pr.number));
    }
    assert_eq!(seen, 5, "{:?}", stage.summaries());
    let ghost = queries::records(&stage.store, &[ghost], stage.now()).await.unwrap().remove(0);
    assert!(ghost.skips >= 2 && ghost.due_at.unwrap() > at, "it comes back with growing pauses");
}

#[tokio::test]
async fn a_row_nobody_understands_is_counted_and_put_off() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let prs = deaf(&stage, 2).await;
    let record = stage.record(&prs[0]).await;
    let mut row = schema::record_row(&record).unwrap();
    row.inner_mut().remove("body");
    let key = schema::record_key(&pr_id(&prs[0]));
    let write = platform::store::RowWrite::Put { key, item: row, only_if: platform::store::Condition::Always };
    platform::store::Store::write(&stage.store, vec![write], stage.now()).await.unwrap();
    let summary = stage.sweep_now().await;
    assert_eq!((summary.unreadable, summary.claims()), (1, 1), "{summary:?}");
    stage.pass(1).await;
    let summary = stage.sweep_now().await;
    assert_eq!((summary.unreadable, summary.due), (0, 0), "it is in nobody's way for an hour");
}

#[tokio::test]
async fn only_what_was_asked_for_is_looked_at() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let prs = deaf(&stage, 3).await;
    let one = SweepTrigger::requested(RunId::new("r-1"), ReconcileScope::One(pr_id(&prs[1])), false, "a");
    let SweepOutcome::Done(summary) = stage.request_sweep(&one).await else { panic!("no sweep") };
    assert_eq!((summary.due, summary.claims()), (1, 1));
    assert_eq!(stage.commands()[0].0, prs[1].number);
    let elsewhere =
        SweepTrigger::requested(RunId::new("r-2"), ReconcileScope::Repo("acme/other".parse().unwrap()), false, "a");
    let SweepOutcome::Done(summary) = stage.request_sweep(&elsewhere).await else { panic!("no sweep") };
    assert_eq!((summary.due, summary.verified), (0, 0));
}

#[tokio::test]
async fn a_person_who_asks_for_everything_while_another_sweep_is_at_work_gets_it_from_the_next() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let until = stage.now() + SignedDuration::from_mins(1);
    guards::acquire_lease(&stage.store, "sweep", "somebody", until, stage.now()).await.unwrap();
    let wish = SweepTrigger::requested(RunId::new("r-1"), ReconcileScope::All, false, "a");
    assert_eq!(stage.request_sweep(&wish).await, SweepOutcome::Busy { by: "somebody".to_owned(), until });
    let run =
        async |stage: &Testbed| queries::runs(&stage.store, &[RunId::new("r-1")], stage.now()).await.unwrap().remove(0);
    assert_eq!(run(&stage).await.state, RunState::Pending);
    stage.with(|world| world.advance(SignedDuration::from_mins(2)));
    assert_eq!(stage.sweep_now().await.requests, 1);
    assert_eq!(run(&stage).await.state, RunState::Completed);
}

#[tokio::test]
async fn a_sweep_that_died_is_ended_by_the_next() {
    let stage = Testbed::new(FakeSettings::default(), "");
    deaf(&stage, 1).await;
    stage.faults.plan(9, CallFault::After);
    let wish = SweepTrigger::scheduled("sweep", stage.now(), "a");
    let _ = stage.sweep.sweep(&wish, stage.now() + SWEEP_TIMEOUT).await;
    stage.faults.restart();
    stage.with(|world| world.advance(SWEEP_TIMEOUT + SignedDuration::from_secs(1)));
    stage.sweep_now().await;
    let runs = queries::runs_of(&stage.store, None, None, 10, stage.now()).await.unwrap().entries;
    let died = runs.iter().find(|run| run.id == wish.run).unwrap();
    assert_eq!((died.state, died.outcome.as_deref()), (RunState::Failed, Some("expired")));
}

#[tokio::test]
async fn when_little_is_left_of_the_rate_limit_merging_still_goes_on() {
    let for_ever = 30 * 24 * 3_600_000;
    let timing = FakeTiming { asleep_ms: (for_ever, for_ever), ..FakeTiming::default() };
    let settings = FakeSettings { timing, graphql_limit: 200, ..FakeSettings::default() };
    let stage = Testbed::new(settings, "sweep.inventory_every = 100000");
    let merge = stage.open();
    stage.with(|world| world.force(Fault::AutomergeAsleep, &merge));
    assert!(stage.until(60, async |stage| stage.state(&merge).await == Some(State::Approved)).await);
    let rebuild = deaf(&stage, 1).await.remove(0);
    stage.pass(10).await;
    let wanted = [(pr_id(&merge), stage.record(&merge).await.node_id.unwrap())];
    let left = |stage: &Testbed| stage.github.rate_limits().graphql.map_or(200, |rate| rate.remaining);
    while left(&stage) > 14 {
        stage.github.snapshots(&wanted, &stage.policies).await;
    }
    let summary = stage.sweep_now().await;
    assert!((4..16).contains(&left(&stage)), "{}", left(&stage));
    let commands: Vec<u64> = stage.commands().iter().map(|(number, ..)| *number).collect();
    assert_eq!((commands, summary.skipped["rate_limit"]), (vec![merge.number], 1), "{summary:?}");
    assert_eq!(stage.record(&rebuild).await.due_at, stage.github.rate_limits().graphql.map(|rate| rate.resets_at));
}

#[tokio::test]
async fn a_failure_whose_log_cannot_be_read_is_not_taken_for_a_real_one_at_once() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AgentLost, &pr));
    assert!(stage.until(30, async |stage| stage.state(&pr).await == Some(State::ChecksFailed)).await);
    stage.set_jenkins_down(true);
    let unanswered = stage.until(60, async |stage| stage.record(&pr).await.inconclusive_visits == 1).await;
    assert!(unanswered, "{:?}", stage.kinds(&pr).await);
    stage.set_jenkins_down(false);
    assert!(stage.until(10, async |stage| !stage.commands().is_empty()).await);
    let claim = stage.logged(&pr, EventKind::RemediationRebuild).await.remove(0);
    assert!(claim.payload.text.contains("transient by rule"), "{}", claim.payload.text);
    assert_eq!(stage.mails(), []);
}

#[tokio::test]
async fn when_less_is_left_of_the_rate_limit_the_inventory_waits_and_remedies_go_on() {
    let settings = FakeSettings { graphql_limit: 200, ..FakeSettings::default() };
    let stage = Testbed::new(settings, "sweep.inventory_every = 1");
    let pr = deaf(&stage, 1).await.remove(0);
    let wanted = [(pr_id(&pr), stage.record(&pr).await.node_id.unwrap())];
    let left = |stage: &Testbed| stage.github.rate_limits().graphql.map_or(200, |rate| rate.remaining);
    // Between the tenth that remedies need and the fifth that an inventory needs.
    while left(&stage) > 34 {
        stage.github.snapshots(&wanted, &stage.policies).await;
    }
    let summary = stage.sweep_now().await;
    assert!((20..40).contains(&left(&stage)), "{}", left(&stage));
    assert_eq!((summary.claims(), summary.adopted, summary.redelivered), (1, None, 0), "{summary:?}");
    stage.with(|world| world.advance(SignedDuration::from_mins(61)));
    stage.settle().await;
    assert!(stage.sweep_now().await.adopted.is_some(), "when there is enough again, it is done");
}
