//! Observe mode and dry runs report each decision and execute none.

use domain::id::RunId;
use domain::policy::Policies;
use domain::state::State;
use fakes::{AuditedAction, FakeSettings, Fault};
use platform::store::Store;
use platform::store::queries;
use platform::store::schema;
use platform::sweep_summary::summary_of;
use reconciler::observe_report as observed;
use reconciler::{ReconcileScope, SweepOutcome, SweepTrigger};
use testbed::{Testbed, pr_id};

#[tokio::test]
async fn observe_mode_logs_decisions_and_does_nothing() {
    let testbed = Testbed::with_policies(FakeSettings::default(), Policies::default());
    let (flaky, broken) = (testbed.open(), testbed.open());
    testbed.with(|fakes| {
        fakes.force(Fault::AgentLost, &flaky);
        fakes.force(Fault::RealTestFailure, &broken);
    });
    testbed.pass(150).await;
    let (flaky_log, broken_log) = (testbed.kinds(&flaky).await, testbed.kinds(&broken).await);
    assert_eq!(flaky_log["WOULD_REMEDY"], 1, "logged once while the decision is unchanged");
    assert_eq!(broken_log["WOULD_ESCALATE"], 1);
    for pr in [&flaky, &broken] {
        let record = testbed.record(pr).await;
        assert_eq!((record.state, record.lifetime_remedies, record.active_run), (State::ChecksFailed, 0, None));
    }
    assert_eq!((testbed.mails(), testbed.commands()), (vec![], vec![]));
    let actions: Vec<AuditedAction> =
        testbed.with(|fakes| fakes.audit_by("suture[bot]").map(|entry| entry.action).collect());
    assert_eq!(actions, []);
    let last = testbed.summaries().iter().rev().find_map(|summary| summary.observed.clone()).unwrap();
    assert!(last.starts_with("would have healed 1, escalated 1 since "), "{last}");
    let week = observed::week(&testbed.store, testbed.now(), testbed.now()).await.unwrap();
    assert_eq!((week.would_remedy.len(), week.would_escalate.len()), (1, 1));
    let summaries = testbed.summaries();
    let plans: Vec<_> = summaries.iter().flat_map(|summary| &summary.plans).collect();
    let planned = plans.iter().find(|plan| plan.pr == flaky.to_string()).unwrap();
    assert!(planned.what.starts_with("would run the checks again"), "{planned:?}");
    assert!(planned.why.starts_with("Rule 3 (CHECKS FAILED — TRANSIENT)"), "{planned:?}");
}

#[tokio::test]
async fn dry_run_predicts_the_next_sweep() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let (flaky, broken) = (testbed.open(), testbed.open());
    testbed.with(|fakes| {
        fakes.force(Fault::AgentLost, &flaky);
        fakes.force(Fault::RealTestFailure, &broken);
    });
    testbed.pass(15).await;
    testbed.sweeping.set(false);
    testbed.pass(40).await;
    let before = [testbed.record(&flaky).await, testbed.record(&broken).await];
    let trigger = SweepTrigger::requested(RunId::new("dry-1"), ReconcileScope::All, true, "a");
    let SweepOutcome::Done(dry) = testbed.request_sweep(&trigger).await else { panic!("no sweep") };
    assert_eq!(before, [testbed.record(&flaky).await, testbed.record(&broken).await], "the dry run changed no record");
    assert_eq!((testbed.mails(), testbed.commands()), (vec![], vec![]));
    assert_eq!((dry.claims(), dry.escalated, dry.plans.len()), (1, 1, 2), "{dry:?}");
    let run = queries::runs(&testbed.store, &[trigger.run], testbed.now()).await.unwrap().remove(0);
    assert_eq!(summary_of(&run).unwrap().plans, dry.plans, "the run shows the plans");
    assert!(run.outcome.unwrap().starts_with("dry run: 2 due"));
    let real = testbed.sweep_now().await;
    assert_eq!(
        (real.dispatched, real.escalated),
        (dry.dispatched, dry.escalated),
        "the real sweep does what the dry run reported"
    );
    let key = schema::record_key(&pr_id(&flaky));
    assert!(testbed.store.get(&key, testbed.now()).await.unwrap().is_some());
}
