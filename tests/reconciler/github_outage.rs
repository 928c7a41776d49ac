//! Seed 000 §19: Jenkins is gone, fifteen pull requests fail, the breaker trips, is probed, and is reset by a person.

use domain::breaker::BreakerState;
use domain::state::State;
use fakes::{FakePrId, FakeSettings, Fault, JenkinsReporting, NewPullRequest, RepoSettings};
use platform::breaker;
use testbed::Testbed;

use crate::On;

/// Five repositories whose Jenkins tells GitHub why a build failed.
fn repos() -> Vec<RepoSettings> {
    let repo = |n| RepoSettings { reports: JenkinsReporting::CheckRun, ..RepoSettings::new(&format!("acme/app-{n}")) };
    (1..=5).map(repo).collect()
}

fn claims(stage: &Testbed) -> usize {
    stage.commands().iter().map(|(_, _, run)| run).collect::<std::collections::BTreeSet<_>>().len()
}

#[tokio::test]
async fn an_outage_of_jenkins_trips_the_breaker_and_nothing_is_lost() {
    outage(On::Memory).await;
}

#[tokio::test]
async fn an_outage_of_jenkins_trips_the_breaker_on_dynoxide_too() {
    outage(On::Dynoxide).await;
}

async fn outage(on: On) {
    let repos = repos();
    let stage = on.stage(FakeSettings { repos: repos.clone(), ..FakeSettings::default() }, "").await;
    let prs: Vec<FakePrId> = (0..15)
        .map(|n| {
            stage.with(|world| {
                world.open_pr(NewPullRequest { repo: repos[n % 5].name.clone(), ..NewPullRequest::default() })
            })
        })
        .collect();
    for pr in &prs {
        stage.with(|world| world.force(Fault::AgentLost, pr));
    }
    stage.pass(20).await;
    let failed = async |stage: &Testbed| {
        let mut failed = 0;
        for pr in &prs {
            failed += usize::from(stage.state(pr).await == Some(State::ChecksFailed));
        }
        failed
    };
    assert_eq!(failed(&stage).await, 15);
    stage.set_jenkins_down(true);

    let now = |stage: &Testbed| stage.now();
    let open = stage
        .until(60, async |stage| {
            let breaker = breaker::load(&stage.store, now(stage)).await.unwrap();
            matches!(breaker.state, BreakerState::Open { .. })
        })
        .await;
    assert!(open, "it trips: {:?}", stage.summaries().last());
    stage.pass(1).await;
    let mails: Vec<String> = stage.mails().iter().map(|(_, mail)| mail.body.clone()).collect();
    let trips: Vec<&String> = mails.iter().filter(|body| body.starts_with("Circuit breaker tripped — ")).collect();
    assert_eq!(trips.len(), 1, "one mail for one trip: {mails:?}");

    // While it is open, what is stale is listed, and nothing is claimed.
    let claimed = claims(&stage);
    stage.pass(7).await;
    assert_eq!(claims(&stage), claimed);
    let listed = stage.summaries().iter().any(|summary| !summary.stale.is_empty());
    assert!(listed, "{:?}", stage.summaries().last());
    assert_eq!(stage.summaries().last().unwrap().breaker, "open");

    // Cooled down, one is let through, and fails: it stays open, without another mail.
    let before = claims(&stage);
    assert!(stage.until(10, async |stage| claims(stage) > before).await);
    stage.pass(2).await;
    assert_eq!(claims(&stage), before + 1, "exactly one probe");
    assert_eq!(stage.mails().len(), mails.len(), "a failed probe is not another trip");

    // Jenkins is back, and a person says so.
    stage.set_jenkins_down(false);
    breaker::reset(&stage.store, stage.now()).await.unwrap();
    let merged = stage
        .until(400, async |stage| {
            for pr in &prs {
                if stage.state(pr).await != Some(State::Merged) {
                    return false;
                }
            }
            true
        })
        .await;
    let mut states = Vec::new();
    for pr in &prs {
        states.push((pr.to_string(), stage.state(pr).await, stage.kinds(pr).await));
    }
    assert!(merged, "{states:#?}");
    assert_eq!(stage.mails().len(), mails.len(), "nobody had to be called");
}

#[tokio::test]
async fn a_probe_that_works_closes_the_breaker() {
    let repos = repos();
    let stage = Testbed::new(FakeSettings { repos: repos.clone(), ..FakeSettings::default() }, "");
    for n in 0..8 {
        let pr = stage.with(|world| {
            world.open_pr(NewPullRequest { repo: repos[n % 5].name.clone(), ..NewPullRequest::default() })
        });
        stage.with(|world| world.force(Fault::AgentLost, &pr));
    }
    stage.pass(20).await;
    stage.set_jenkins_down(true);
    let state = async |stage: &Testbed| breaker::load(&stage.store, stage.now()).await.unwrap().state;
    assert!(stage.until(60, async |stage| matches!(state(stage).await, BreakerState::Open { .. })).await);
    stage.set_jenkins_down(false);
    let before = claims(&stage);
    assert!(stage.until(20, async |stage| state(stage).await == BreakerState::Closed).await);
    assert_eq!(claims(&stage), before + 1, "one remedy was enough to know");
}
