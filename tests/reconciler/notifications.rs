//! Mails: a few are sent individually, many are combined into a digest, and a failed sweep loses none.

use std::collections::BTreeSet;

use domain::state::State;
use fakes::{FakePrId, FakeSettings, Fault};
use reconciler::MAX_SINGLE_MAILS;
use testbed::Testbed;

use crate::Backend;

/// Opens `count` pull requests that the next sweep escalates.
pub(crate) async fn open_broken(backend: Backend, count: usize) -> (Testbed, Vec<FakePrId>) {
    let testbed = backend.testbed(FakeSettings::default(), "sweep.inventory_every = 1000").await;
    let prs: Vec<FakePrId> = (0..count).map(|_| testbed.open()).collect();
    for pr in &prs {
        testbed.with(|fakes| fakes.force(Fault::RealTestFailure, pr));
    }
    testbed.pass(15).await;
    testbed.sweeping.set(false);
    testbed.pass(40).await;
    (testbed, prs)
}

async fn assert_all_escalated(testbed: &Testbed, prs: &[FakePrId]) {
    for pr in prs {
        assert_eq!(testbed.state(pr).await, Some(State::NeedsIntervention), "{pr}");
        assert_eq!(testbed.kinds(pr).await["ESCALATED_NEEDS_INTERVENTION"], 1, "each has one escalation event");
    }
}

#[tokio::test]
async fn few_mails_are_sent_individually() {
    let (testbed, prs) = open_broken(Backend::Memory, MAX_SINGLE_MAILS).await;
    let summary = testbed.sweep_now().await;
    assert_all_escalated(&testbed, &prs).await;
    assert_eq!((summary.escalated, summary.notices, testbed.mails().len()), (5, 5, 5));
    assert!(testbed.mails().iter().all(|(_, mail)| mail.body.contains("What Suture tried")));
}

#[tokio::test]
async fn many_mails_are_combined_into_one_digest() {
    for backend in [Backend::Memory, Backend::Dynoxide] {
        digest_names_all(backend).await;
    }
}

async fn digest_names_all(backend: Backend) {
    let (testbed, prs) = open_broken(backend, MAX_SINGLE_MAILS + 2).await;
    let summary = testbed.sweep_now().await;
    assert_all_escalated(&testbed, &prs).await;
    let mails = testbed.mails();
    assert_eq!((summary.escalated, summary.notices, mails.len()), (7, 1, 1));
    let (_, digest) = &mails[0];
    assert_eq!(digest.subject, "Suture: 7 pull requests need a person");
    for pr in &prs {
        assert!(digest.body.contains(&format!("/pull/{}", pr.number)), "{}", digest.body);
    }
    testbed.pass(5).await;
    testbed.sweep_now().await;
    assert_eq!(testbed.mails().len(), 1, "no further mail is sent");
}

#[tokio::test]
async fn unsent_mails_are_sent_by_the_next_sweep() {
    for count in [2, MAX_SINGLE_MAILS + 1] {
        let (testbed, prs) = open_broken(Backend::Memory, count).await;
        testbed.publisher.set_down(true);
        testbed.sweep_now().await;
        assert_all_escalated(&testbed, &prs).await;
        assert_eq!(testbed.mails(), []);
        testbed.publisher.set_down(false);
        testbed.pass(4).await;
        testbed.sweep_now().await;
        let ids: BTreeSet<String> = testbed.mails().into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), if count > MAX_SINGLE_MAILS { 1 } else { count });
        assert_eq!(testbed.mails().len(), ids.len());
    }
}
