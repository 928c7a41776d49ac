//! What a sweep may find: one scene for each way through it. Nobody works on the queue, and nothing is swept by itself.

use domain::id::RunId;
use domain::policy::Policies;
use fakes::{FakePrId, FakeSettings, FakeTiming, Fault};
use jiff::SignedDuration;
use platform::breaker::{self, RemedyOutcome};
use reconciler::MAX_SINGLE_MAILS;
use testbed::Testbed;

use crate::On;
use crate::notifications;

/// Which scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Play {
    /// One of each: a claim whose message never went out, a rebuild to claim, a person to call, a merge that was missed, and
    /// one that nobody has ever told us about; and the time of an inventory has come.
    Everyday,
    /// Too much has failed in the last minutes, and nobody has said so yet; three are stale.
    Tripping,
    /// The breaker has been open for long enough; three are stale.
    Probe,
    /// One more need a person than get a mail each.
    Digest,
    /// Observe mode: one would be remedied, for one a person would be called.
    Watching,
    /// Two webhooks failed, and an inventory is due.
    Redelivery,
}

/// A scene, ready to be swept.
pub(crate) struct Scene {
    pub(crate) stage: Testbed,
    pub(crate) prs: Vec<FakePrId>,
}

pub(crate) async fn scene(play: Play) -> Scene {
    match play {
        Play::Everyday => everyday().await,
        Play::Tripping => failing("breaker.cooldown_minutes = 60").await,
        Play::Probe => {
            let Scene { stage, prs } = failing("breaker.cooldown_minutes = 6").await;
            let settings = stage.policies.base().breaker.clone();
            breaker::evaluate(&stage.store, &settings, stage.now()).await.unwrap().unwrap();
            stage.pass(7).await;
            Scene { stage, prs }
        }
        Play::Digest => {
            let (stage, prs) = notifications::broken(On::Memory, MAX_SINGLE_MAILS + 1).await;
            stage.bridging.set(false);
            Scene { stage, prs }
        }
        Play::Watching => watching().await,
        Play::Redelivery => redelivery().await,
    }
}

async fn everyday() -> Scene {
    let timing = FakeTiming { build_ms: (240_000, 240_000), ..FakeTiming::default() };
    let stage = Testbed::new(FakeSettings { timing, ..FakeSettings::default() }, "sweep.inventory_every = 40");
    stage.sweep_now().await;
    stage.bridging.set(false);
    stage.sweeping.set(false);
    let deaf = stage.open();
    stage.with(|world| world.force(Fault::JenkinsDeaf, &deaf));
    stage.pass(6).await;
    // Its claim is in the table, but its message is not on the queue.
    stage.publisher.set_down(true);
    stage.sweep_now().await;
    stage.publisher.set_down(false);
    let (flaky, broken, merged) = (stage.open(), stage.open(), stage.open());
    stage.with(|world| {
        world.force(Fault::AgentLost, &flaky);
        world.force(Fault::RealTestFailure, &broken);
    });
    stage.pass(6).await;
    let unheard = [merged.number, merged.number + 1];
    stage.lose_webhooks(move |_, delivery| delivery.pr.as_ref().is_some_and(|pr| unheard.contains(&pr.number)));
    stage.with(|world| world.person_merges(&merged, "maria"));
    let unknown = stage.open();
    stage.with(|world| world.force(Fault::JenkinsDeaf, &unknown));
    stage.pass(34).await;
    assert!(stage.find(&unknown).await.is_none());
    Scene { stage, prs: vec![deaf, flaky, broken, merged, unknown] }
}

/// Three whose checks never started, and six remedies that failed a moment ago.
async fn failing(toml: &str) -> Scene {
    let stage = Testbed::new(FakeSettings::default(), &format!("sweep.inventory_every = 1000\n{toml}"));
    stage.sweep_now().await;
    stage.bridging.set(false);
    stage.sweeping.set(false);
    let prs: Vec<FakePrId> = (0..3).map(|_| stage.open()).collect();
    for pr in &prs {
        stage.with(|world| world.force(Fault::JenkinsDeaf, pr));
    }
    stage.pass(2).await;
    stage.sweep_now().await;
    stage.pass(4).await;
    for n in 0..6 {
        breaker::count_outcome(&stage.store, &RunId::new(format!("other-{n}")), RemedyOutcome::Failed, stage.now())
            .await
            .unwrap();
    }
    stage.with(|world| world.advance(SignedDuration::from_mins(1)));
    stage.settle().await;
    Scene { stage, prs }
}

async fn watching() -> Scene {
    let policies = Policies::parse("sweep.inventory_every = 1000").unwrap();
    let stage = Testbed::with_policies(FakeSettings::default(), policies);
    stage.sweep_now().await;
    stage.bridging.set(false);
    stage.sweeping.set(false);
    let (deaf, broken) = (stage.open(), stage.open());
    stage.with(|world| {
        world.force(Fault::JenkinsDeaf, &deaf);
        world.force(Fault::RealTestFailure, &broken);
    });
    stage.pass(2).await;
    stage.sweep_now().await;
    stage.pass(40).await;
    Scene { stage, prs: vec![deaf, broken] }
}

async fn redelivery() -> Scene {
    let stage = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 1");
    stage.bridging.set(false);
    stage.sweeping.set(false);
    let prs = vec![stage.open(), stage.open()];
    for pr in &prs {
        stage.with(|world| world.force(Fault::WebhookLost, pr));
    }
    stage.pass(3).await;
    Scene { stage, prs }
}
