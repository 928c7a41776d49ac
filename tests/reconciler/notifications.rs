//! Mails: a few go out one by one, many become one, and none is lost with a sweep.

use std::collections::BTreeSet;

use domain::state::State;
use fakes::{FakePrId, FakeSettings, Fault};
use reconciler::MAX_SINGLE_MAILS;
use testbed::Testbed;

use crate::On;

/// So many pull requests that a person is needed for, just before anybody is called.
pub(crate) async fn broken(on: On, count: usize) -> (Testbed, Vec<FakePrId>) {
    let stage = on.stage(FakeSettings::default(), "sweep.inventory_every = 1000").await;
    let prs: Vec<FakePrId> = (0..count).map(|_| stage.open()).collect();
    for pr in &prs {
        stage.with(|world| world.force(Fault::RealTestFailure, pr));
    }
    stage.pass(15).await;
    stage.sweeping.set(false);
    stage.pass(40).await;
    (stage, prs)
}

async fn all_escalated(stage: &Testbed, prs: &[FakePrId]) {
    for pr in prs {
        assert_eq!(stage.state(pr).await, Some(State::NeedsIntervention), "{pr}");
        assert_eq!(stage.kinds(pr).await["ESCALATED_NEEDS_INTERVENTION"], 1, "each has its event");
    }
}

#[tokio::test]
async fn a_few_mails_go_out_one_by_one() {
    let (stage, prs) = broken(On::Memory, MAX_SINGLE_MAILS).await;
    let summary = stage.sweep_now().await;
    all_escalated(&stage, &prs).await;
    assert_eq!((summary.escalated, summary.notices, stage.mails().len()), (5, 5, 5));
    assert!(stage.mails().iter().all(|(_, mail)| mail.body.contains("What Suture tried")));
}

#[tokio::test]
async fn many_mails_become_one_that_names_them_all() {
    for on in [On::Memory, On::Dynoxide] {
        one_for_all(on).await;
    }
}

async fn one_for_all(on: On) {
    let (stage, prs) = broken(on, MAX_SINGLE_MAILS + 2).await;
    let summary = stage.sweep_now().await;
    all_escalated(&stage, &prs).await;
    let mails = stage.mails();
    assert_eq!((summary.escalated, summary.notices, mails.len()), (7, 1, 1));
    let (_, digest) = &mails[0];
    assert_eq!(digest.subject, "Suture: 7 pull requests need a person");
    for pr in &prs {
        assert!(digest.body.contains(&format!("/pull/{}", pr.number)), "{}", digest.body);
    }
    stage.pass(5).await;
    stage.sweep_now().await;
    assert_eq!(stage.mails().len(), 1, "and none of them comes later");
}

#[tokio::test]
async fn mails_that_could_not_be_sent_are_sent_by_the_next_sweep() {
    for count in [2, MAX_SINGLE_MAILS + 1] {
        let (stage, prs) = broken(On::Memory, count).await;
        stage.publisher.set_down(true);
        stage.sweep_now().await;
        all_escalated(&stage, &prs).await;
        assert_eq!(stage.mails(), []);
        stage.publisher.set_down(false);
        stage.pass(4).await;
        stage.sweep_now().await;
        let ids: BTreeSet<String> = stage.mails().into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), if count > MAX_SINGLE_MAILS { 1 } else { count });
        assert_eq!(stage.mails().len(), ids.len());
    }
}
