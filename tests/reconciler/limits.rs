//! Limits of a sweep: its deadline, cancellation, pause, GitHub's rate limits, and the number of remedies in flight.

use domain::event::EventKind;
use domain::id::RunId;
use domain::run::RunState;
use domain::state::State;
use fakes::{FakePrId, FakeSettings, FakeTiming, Fault};
use jiff::SignedDuration;
use platform::engine::Engine;
use platform::reconcile_request;
use platform::store::lease;
use platform::store::not_before;
use platform::store::pause;
use platform::store::queries;
use platform::store::schema;
use platform::store::{Condition, Key, RowWrite, Store};
use platform::sweep_summary::summary_of;
use reconciler::{ReconcileScope, SweepOutcome, SweepTrigger};
use serde_dynamo::{AttributeValue, Item};
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed, pr_id};

/// Opens `count` pull requests whose checks never started and that are due now. The schedule and the Car Bridge are off.
async fn open_stale(testbed: &Testbed, count: usize) -> Vec<FakePrId> {
    testbed.sweeping.set(false);
    let prs: Vec<FakePrId> = (0..count).map(|_| testbed.open()).collect();
    for pr in &prs {
        testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, pr));
    }
    testbed.pass(2).await;
    testbed.sweep_now().await;
    testbed.pass(4).await;
    testbed.bridging.set(false);
    prs
}

#[tokio::test]
async fn in_flight_limit_defers_remedies_by_priority() {
    let testbed = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 3");
    let prs = open_stale(&testbed, 8).await;
    testbed.with(|fakes| fakes.person_labels(&prs[6], "maria", "suture/priority-p0"));
    testbed.with(|fakes| fakes.person_labels(&prs[4], "maria", "suture/priority-p1"));
    testbed.pass(1).await;
    let summary = testbed.sweep_now().await;
    assert_eq!((summary.claims(), summary.skipped["full"]), (3, 5), "{summary:?}");
    let first: Vec<u64> = testbed.commands().iter().map(|(number, ..)| *number).collect();
    assert_eq!(first, [prs[6].number, prs[4].number, prs[0].number]);
    // Remedies stay in flight until their runs end: five minutes later the limit is still reached.
    testbed.pass(6).await;
    let summary = testbed.sweep_now().await;
    assert_eq!((summary.claims(), summary.skipped["full"]), (0, 5), "{summary:?}");
    assert_eq!(summary.resent, 3, "their messages are resent, since the Car Bridge is off");
}

#[tokio::test]
async fn sweep_stops_before_deadline_and_rest_stays_due() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let prs = open_stale(&testbed, 3).await;
    let trigger = SweepTrigger::scheduled("sweep", testbed.now(), "a");
    let SweepOutcome::Done(summary) =
        testbed.sweep.sweep(&trigger, testbed.now() + SignedDuration::from_secs(50)).await.unwrap()
    else {
        panic!("no sweep")
    };
    assert!(summary.partial && summary.remaining == 3 && summary.verified == 0, "{summary:?}");
    let run = queries::runs_of(&testbed.store, None, None, 10, testbed.now()).await.unwrap().entries.remove(0);
    assert_eq!((run.id.clone(), run.state, run.partial), (trigger.run, RunState::Completed, true));
    assert_eq!(summary_of(&run).unwrap(), *summary);
    assert!(run.outcome.unwrap().starts_with("stopped at the deadline: 3 due"));
    let summary = testbed.sweep_now().await;
    assert_eq!((summary.claims(), summary.partial), (prs.len() as u32, false));
}

#[tokio::test]
async fn sweep_is_cancelled_between_two_stages() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    open_stale(&testbed, 3).await;
    let trigger = SweepTrigger::requested(RunId::new("r-1"), ReconcileScope::All, false, "a");
    reconcile_request::request_cancel(&testbed.store, &trigger.run, testbed.now()).await.unwrap();
    let SweepOutcome::Done(summary) = testbed.request_sweep(&trigger).await else { panic!("no sweep") };
    assert!(summary.cancelled && summary.verified == 0, "{summary:?}");
    let run = queries::runs_of(&testbed.store, None, None, 1, testbed.now()).await.unwrap().entries.remove(0);
    assert_eq!((run.id.as_str(), run.state), ("r-1", RunState::Cancelled));
    assert_eq!(testbed.sweep_now().await.claims(), 3, "the next sweep claims the remedies");
}

#[tokio::test]
async fn paused_sweep_claims_nothing() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    open_stale(&testbed, 2).await;
    pause::pause(&testbed.store, "maria", testbed.now(), testbed.now()).await.unwrap();
    let summary = testbed.sweep_now().await;
    assert_eq!((summary.verified, summary.claims(), summary.skipped["paused"]), (2, 0, 2), "{summary:?}");
    assert_eq!(summary.stale.len(), 2);
    pause::unpause(&testbed.store, testbed.now(), testbed.now()).await.unwrap();
    testbed.pass(6).await;
    assert_eq!(testbed.sweep_now().await.claims(), 2);
}

#[tokio::test]
async fn unreadable_breaker_claims_nothing() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    open_stale(&testbed, 2).await;
    let key = Key::state("BREAKER");
    let mut item = Item::default();
    item.inner_mut().insert("body".to_owned(), AttributeValue::S("not a breaker".to_owned()));
    let put = |item| vec![RowWrite::Put { key: key.clone(), item, only_if: Condition::Always }];
    testbed.store.write(put(item), testbed.now()).await.unwrap();
    let summary = testbed.sweep_now().await;
    assert_eq!((summary.claims(), summary.skipped["store"], summary.breaker), (0, 2, None), "{summary:?}");
    assert!(summary.errors.iter().any(|error| error.starts_with("breaker: ")), "{summary:?}");
    let delete = RowWrite::Delete { key, only_if: Condition::Always };
    testbed.store.write(vec![delete], testbed.now()).await.unwrap();
    testbed.pass(2).await;
    assert_eq!(testbed.sweep_now().await.claims(), 2);
}

#[tokio::test]
async fn secondary_rate_limit_stops_queries_but_not_the_sweep() {
    let testbed = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 100");
    open_stale(&testbed, 30).await;
    // GitHub rejects the second of two queries.
    let mut queries = 0;
    testbed.before_query(move |fakes| {
        queries += 1;
        if queries == 2 {
            fakes.force_request(Fault::ApiForbidden);
        }
    });
    let summary = testbed.sweep_now().await;
    let limited = summary.skipped.get("rate_limit").copied().unwrap_or(0);
    assert_eq!((summary.claims(), limited, summary.errors.len()), (25, 5, 0), "{summary:?}");
    let until = not_before::load(&testbed.store, "github", testbed.now())
        .await
        .unwrap()
        .expect("the rate limit is stored for all functions");
    let queries = testbed.queries();
    testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(5)));
    let held = testbed.sweep_now().await;
    assert_eq!(testbed.queries(), queries, "no query before {until}");
    assert_eq!(held.verified, 0);
    testbed.with(|fakes| fakes.advance_to(until + SignedDuration::from_mins(6)));
    testbed.settle().await;
    let rest = testbed.sweep_now().await;
    assert_eq!(summary.claims() + held.claims() + rest.claims(), 30, "{summary:?}\n{rest:?}");
}

#[tokio::test]
async fn unreadable_pull_request_does_not_starve_others() {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.max_prs = 2\nlimits.remedies_in_flight = 100");
    // The oldest record, of a pull request that GitHub does not know.
    let missing: domain::id::PrId = "acme/payments#999999".parse().unwrap();
    let at = testbed.now();
    let engine = Engine::new(testbed.store.clone(), testbed::RecordingPublisher::default(), testbed.policies.clone());
    engine.apply(&tests::opened(&missing, "ghost", at), at).await.unwrap();
    let prs = open_stale(&testbed, 5).await;
    let mut claimed = 0;
    for _ in 0..12 {
        testbed.sweep_now().await;
        testbed.pass(1).await;
    }
    for pr in &prs {
        claimed += usize::from(testbed.commands().iter().any(|(number, ..)| *number == pr.number));
    }
    assert_eq!(claimed, 5, "{:?}", testbed.summaries());
    let missing = queries::records(&testbed.store, &[missing], testbed.now()).await.unwrap().remove(0);
    assert!(missing.skips >= 2 && missing.due_at.unwrap() > at, "it is retried with backoff");
}

#[tokio::test]
async fn undecodable_row_is_counted_and_deferred() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let prs = open_stale(&testbed, 2).await;
    let record = testbed.record(&prs[0]).await;
    let mut row = schema::record_row(&record).unwrap();
    row.inner_mut().remove("body");
    let key = schema::record_key(&pr_id(&prs[0]));
    let write = platform::store::RowWrite::Put { key, item: row, only_if: platform::store::Condition::Always };
    platform::store::Store::write(&testbed.store, vec![write], testbed.now()).await.unwrap();
    let summary = testbed.sweep_now().await;
    assert_eq!((summary.unreadable, summary.claims()), (1, 1), "{summary:?}");
    testbed.pass(1).await;
    let summary = testbed.sweep_now().await;
    assert_eq!((summary.unreadable, summary.due), (0, 0), "the row is skipped for an hour");
}

#[tokio::test]
async fn requested_sweep_visits_only_its_scope() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let prs = open_stale(&testbed, 3).await;
    let one = SweepTrigger::requested(RunId::new("r-1"), ReconcileScope::One(pr_id(&prs[1])), false, "a");
    let SweepOutcome::Done(summary) = testbed.request_sweep(&one).await else { panic!("no sweep") };
    assert_eq!((summary.due, summary.claims()), (1, 1));
    assert_eq!(testbed.commands()[0].0, prs[1].number);
    let elsewhere =
        SweepTrigger::requested(RunId::new("r-2"), ReconcileScope::Repo("acme/other".parse().unwrap()), false, "a");
    let SweepOutcome::Done(summary) = testbed.request_sweep(&elsewhere).await else { panic!("no sweep") };
    assert_eq!((summary.due, summary.verified), (0, 0));
}

#[tokio::test]
async fn request_for_all_waits_for_running_sweep() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let until = testbed.now() + SignedDuration::from_mins(1);
    lease::acquire(&testbed.store, "sweep", "somebody", until, testbed.now()).await.unwrap();
    let trigger = SweepTrigger::requested(RunId::new("r-1"), ReconcileScope::All, false, "a");
    assert_eq!(testbed.request_sweep(&trigger).await, SweepOutcome::Busy { by: "somebody".to_owned(), until });
    let run = async |testbed: &Testbed| {
        queries::runs(&testbed.store, &[RunId::new("r-1")], testbed.now()).await.unwrap().remove(0)
    };
    assert_eq!(run(&testbed).await.state, RunState::Pending);
    testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(2)));
    assert_eq!(testbed.sweep_now().await.requests, 1);
    assert_eq!(run(&testbed).await.state, RunState::Completed);
}

#[tokio::test]
async fn crashed_sweep_is_marked_failed_by_the_next() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    open_stale(&testbed, 1).await;
    testbed.faults.plan(9, CallFault::After);
    let trigger = SweepTrigger::scheduled("sweep", testbed.now(), "a");
    let _ = testbed.sweep.sweep(&trigger, testbed.now() + SWEEP_TIMEOUT).await;
    testbed.faults.restart();
    testbed.with(|fakes| fakes.advance(SWEEP_TIMEOUT + SignedDuration::from_secs(1)));
    testbed.sweep_now().await;
    let runs = queries::runs_of(&testbed.store, None, None, 10, testbed.now()).await.unwrap().entries;
    let crashed = runs.iter().find(|run| run.id == trigger.run).unwrap();
    assert_eq!((crashed.state, crashed.outcome.as_deref()), (RunState::Failed, Some("expired")));
}

#[tokio::test]
async fn low_rate_limit_still_allows_merges() {
    let for_ever = 30 * 24 * 3_600_000;
    let timing = FakeTiming { asleep_ms: (for_ever, for_ever), ..FakeTiming::default() };
    let settings = FakeSettings { timing, graphql_limit: 200, ..FakeSettings::default() };
    let testbed = Testbed::new(settings, "sweep.inventory_every = 100000");
    let merge = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &merge));
    assert!(testbed.until(60, async |testbed| testbed.state(&merge).await == Some(State::Approved)).await);
    let rebuild = open_stale(&testbed, 1).await.remove(0);
    testbed.pass(10).await;
    let wanted = [(pr_id(&merge), testbed.record(&merge).await.node_id.unwrap())];
    let remaining = |testbed: &Testbed| testbed.github.rate_limits().graphql.map_or(200, |rate| rate.remaining);
    while remaining(&testbed) > 14 {
        testbed.github.snapshots(&wanted, &testbed.policies).await;
    }
    let summary = testbed.sweep_now().await;
    assert!((4..16).contains(&remaining(&testbed)), "{}", remaining(&testbed));
    let commands: Vec<u64> = testbed.commands().iter().map(|(number, ..)| *number).collect();
    assert_eq!((commands, summary.skipped["rate_limit"]), (vec![merge.number], 1), "{summary:?}");
    assert_eq!(testbed.record(&rebuild).await.due_at, testbed.github.rate_limits().graphql.map(|rate| rate.resets_at));
}

#[tokio::test]
async fn unreadable_build_log_does_not_escalate_at_once() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AgentLost, &pr));
    assert!(testbed.until(30, async |testbed| testbed.state(&pr).await == Some(State::ChecksFailed)).await);
    testbed.set_jenkins_down(true);
    let inconclusive = testbed.until(60, async |testbed| testbed.record(&pr).await.inconclusive_visits == 1).await;
    assert!(inconclusive, "{:?}", testbed.kinds(&pr).await);
    testbed.set_jenkins_down(false);
    assert!(testbed.until(10, async |testbed| !testbed.commands().is_empty()).await);
    let claim = testbed.logged(&pr, EventKind::RemediationRebuild).await.remove(0);
    assert!(claim.payload.text.contains("transient by rule"), "{}", claim.payload.text);
    assert_eq!(testbed.mails(), []);
}

#[tokio::test]
async fn low_rate_limit_defers_inventory_but_not_remedies() {
    let settings = FakeSettings { graphql_limit: 200, ..FakeSettings::default() };
    let testbed = Testbed::new(settings, "sweep.inventory_every = 1");
    let pr = open_stale(&testbed, 1).await.remove(0);
    let wanted = [(pr_id(&pr), testbed.record(&pr).await.node_id.unwrap())];
    let remaining = |testbed: &Testbed| testbed.github.rate_limits().graphql.map_or(200, |rate| rate.remaining);
    // Between the 10 % that remedies need and the 20 % that an inventory needs.
    while remaining(&testbed) > 34 {
        testbed.github.snapshots(&wanted, &testbed.policies).await;
    }
    let summary = testbed.sweep_now().await;
    assert!((20..40).contains(&remaining(&testbed)), "{}", remaining(&testbed));
    assert_eq!((summary.claims(), summary.adopted, summary.redelivered), (1, None, 0), "{summary:?}");
    testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(61)));
    testbed.settle().await;
    assert!(testbed.sweep_now().await.adopted.is_some(), "the inventory runs after the rate limit resets");
}
