//! Prepared records, one scenario for each path through a sweep. The Car Bridge and the schedule are off.

use domain::id::RunId;
use domain::policy::Policies;
use fakes::{FakePrId, FakeSettings, FakeTiming, Fault};
use jiff::SignedDuration;
use platform::store::breaker::{self, RemedyOutcome};
use reconciler::MAX_SINGLE_MAILS;
use testbed::Testbed;

use crate::Backend;
use crate::notifications;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// One of each: a claim whose message was never sent, a rebuild to claim, an escalation, a missed merge, and a pull request
    /// without any webhook. An inventory is due.
    Mixed,
    /// Six remedies failed just now, so the next sweep trips the breaker. Three pull requests are stale.
    BreakerTrip,
    /// The cooldown of the open breaker is over. Three pull requests are stale.
    BreakerProbe,
    /// One escalation more than are mailed individually.
    Digest,
    /// Observe mode: one pull request would be remedied, one escalated.
    ObserveMode,
    /// Two webhook deliveries failed, and an inventory is due.
    Redelivery,
}

/// A prepared scenario, ready for a sweep.
pub(crate) struct Setup {
    pub(crate) testbed: Testbed,
    pub(crate) prs: Vec<FakePrId>,
}

pub(crate) async fn set_up(scenario: Scenario) -> Setup {
    match scenario {
        Scenario::Mixed => mixed().await,
        Scenario::BreakerTrip => with_failed_remedies("breaker.cooldown_minutes = 60").await,
        Scenario::BreakerProbe => {
            let Setup { testbed, prs } = with_failed_remedies("breaker.cooldown_minutes = 6").await;
            let settings = testbed.policies.base().breaker.clone();
            breaker::evaluate(&testbed.store, &settings, testbed.now()).await.unwrap().unwrap();
            testbed.pass(7).await;
            Setup { testbed, prs }
        }
        Scenario::Digest => {
            let (testbed, prs) = notifications::open_broken(Backend::Memory, MAX_SINGLE_MAILS + 1).await;
            testbed.bridging.set(false);
            Setup { testbed, prs }
        }
        Scenario::ObserveMode => observe_mode().await,
        Scenario::Redelivery => redelivery().await,
    }
}

async fn mixed() -> Setup {
    let timing = FakeTiming { build_ms: (240_000, 240_000), ..FakeTiming::default() };
    let testbed = Testbed::new(FakeSettings { timing, ..FakeSettings::default() }, "sweep.inventory_every = 40");
    testbed.sweep_now().await;
    testbed.bridging.set(false);
    testbed.sweeping.set(false);
    let unbuilt = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, &unbuilt));
    testbed.pass(6).await;
    // The claim is stored, but its message is not on the queue.
    testbed.publisher.set_down(true);
    testbed.sweep_now().await;
    testbed.publisher.set_down(false);
    let (flaky, broken, merged) = (testbed.open(), testbed.open(), testbed.open());
    testbed.with(|fakes| {
        fakes.force(Fault::AgentLost, &flaky);
        fakes.force(Fault::RealTestFailure, &broken);
    });
    testbed.pass(6).await;
    let without_webhooks = [merged.number, merged.number + 1];
    testbed
        .lose_webhooks(move |_, delivery| delivery.pr.as_ref().is_some_and(|pr| without_webhooks.contains(&pr.number)));
    testbed.with(|fakes| fakes.person_merges(&merged, "maria"));
    let unknown = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, &unknown));
    testbed.pass(34).await;
    assert!(testbed.find(&unknown).await.is_none());
    Setup { testbed, prs: vec![unbuilt, flaky, broken, merged, unknown] }
}

/// Three pull requests whose checks never started, and six remedies that failed just now.
async fn with_failed_remedies(toml: &str) -> Setup {
    let testbed = Testbed::new(FakeSettings::default(), &format!("sweep.inventory_every = 1000\n{toml}"));
    testbed.sweep_now().await;
    testbed.bridging.set(false);
    testbed.sweeping.set(false);
    let prs: Vec<FakePrId> = (0..3).map(|_| testbed.open()).collect();
    for pr in &prs {
        testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, pr));
    }
    testbed.pass(2).await;
    testbed.sweep_now().await;
    testbed.pass(4).await;
    for n in 0..6 {
        breaker::count_outcome(&testbed.store, &RunId::new(format!("other-{n}")), RemedyOutcome::Failed, testbed.now())
            .await
            .unwrap();
    }
    testbed.with(|fakes| fakes.advance(SignedDuration::from_mins(1)));
    testbed.settle().await;
    Setup { testbed, prs }
}

async fn observe_mode() -> Setup {
    let policies = Policies::parse("sweep.inventory_every = 1000").unwrap();
    let testbed = Testbed::with_policies(FakeSettings::default(), policies);
    testbed.sweep_now().await;
    testbed.bridging.set(false);
    testbed.sweeping.set(false);
    let (unbuilt, broken) = (testbed.open(), testbed.open());
    testbed.with(|fakes| {
        fakes.force(Fault::JenkinsDeaf, &unbuilt);
        fakes.force(Fault::RealTestFailure, &broken);
    });
    testbed.pass(2).await;
    testbed.sweep_now().await;
    testbed.pass(40).await;
    Setup { testbed, prs: vec![unbuilt, broken] }
}

async fn redelivery() -> Setup {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 1");
    testbed.bridging.set(false);
    testbed.sweeping.set(false);
    let prs = vec![testbed.open(), testbed.open()];
    for pr in &prs {
        testbed.with(|fakes| fakes.force(Fault::WebhookLost, pr));
    }
    testbed.pass(3).await;
    Setup { testbed, prs }
}
