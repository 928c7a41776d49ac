//! R-FLOW-4: Jenkins is down, fifteen pull requests fail, the breaker trips and probes, and a person resets it.

use domain::breaker::BreakerState;
use domain::breaker::BreakerStatus;
use domain::state::State;
use fakes::{FakePrId, FakeSettings, Fault, JenkinsReporting, NewPullRequest, RepoSettings};
use platform::store::breaker;
use testbed::Testbed;

use crate::Backend;

/// Five repositories whose Jenkins publishes its build results as check runs.
fn repos() -> Vec<RepoSettings> {
    let repo = |n| RepoSettings { reports: JenkinsReporting::CheckRun, ..RepoSettings::new(&format!("acme/app-{n}")) };
    (1..=5).map(repo).collect()
}

fn claims(testbed: &Testbed) -> usize {
    testbed.commands().iter().map(|(_, _, run)| run).collect::<std::collections::BTreeSet<_>>().len()
}

#[tokio::test]
async fn jenkins_outage_trips_breaker_and_all_merge_after_reset() {
    outage(Backend::Memory).await;
}

#[tokio::test]
async fn jenkins_outage_trips_breaker_on_dynoxide() {
    outage(Backend::Dynoxide).await;
}

async fn outage(backend: Backend) {
    let repos = repos();
    let testbed = backend.testbed(FakeSettings { repos: repos.clone(), ..FakeSettings::default() }, "").await;
    let prs: Vec<FakePrId> = (0..15)
        .map(|n| {
            testbed.with(|fakes| {
                fakes.open_pr(NewPullRequest { repo: repos[n % 5].name.clone(), ..NewPullRequest::default() })
            })
        })
        .collect();
    for pr in &prs {
        testbed.with(|fakes| fakes.force(Fault::AgentLost, pr));
    }
    testbed.pass(20).await;
    let failed = async |testbed: &Testbed| {
        let mut failed = 0;
        for pr in &prs {
            failed += usize::from(testbed.state(pr).await == Some(State::ChecksFailed));
        }
        failed
    };
    assert_eq!(failed(&testbed).await, 15);
    testbed.set_jenkins_down(true);

    let now = |testbed: &Testbed| testbed.now();
    let open = testbed
        .until(60, async |testbed| {
            let breaker = breaker::load(&testbed.store, now(testbed)).await.unwrap();
            matches!(breaker.state, BreakerState::Open { .. })
        })
        .await;
    assert!(open, "the breaker did not trip: {:?}", testbed.summaries().last());
    testbed.pass(1).await;
    let mails: Vec<String> = testbed.mails().iter().map(|(_, mail)| mail.body.clone()).collect();
    let trips: Vec<&String> = mails.iter().filter(|body| body.starts_with("Circuit breaker tripped — ")).collect();
    assert_eq!(trips.len(), 1, "one mail per trip: {mails:?}");

    // While the breaker is open, stale pull requests are listed, but no remedy is claimed.
    let claimed = claims(&testbed);
    testbed.pass(7).await;
    assert_eq!(claims(&testbed), claimed);
    let listed = testbed.summaries().iter().any(|summary| !summary.stale.is_empty());
    assert!(listed, "{:?}", testbed.summaries().last());
    assert_eq!(testbed.summaries().last().unwrap().breaker, Some(BreakerStatus::Open));

    // After the cooldown one probe runs and fails: the breaker stays open and sends no second mail.
    let before = claims(&testbed);
    assert!(testbed.until(10, async |testbed| claims(testbed) > before).await);
    testbed.pass(2).await;
    assert_eq!(claims(&testbed), before + 1, "exactly one probe");
    assert_eq!(testbed.mails().len(), mails.len(), "a failed probe is not another trip");

    // Jenkins is back, and a person resets the breaker.
    testbed.set_jenkins_down(false);
    breaker::reset(&testbed.store, testbed.now()).await.unwrap();
    let merged = testbed
        .until(400, async |testbed| {
            for pr in &prs {
                if testbed.state(pr).await != Some(State::Merged) {
                    return false;
                }
            }
            true
        })
        .await;
    let mut states = Vec::new();
    for pr in &prs {
        states.push((pr.to_string(), testbed.state(pr).await, testbed.kinds(pr).await));
    }
    assert!(merged, "{states:#?}");
    assert_eq!(testbed.mails().len(), mails.len(), "no further mail was sent");
}

#[tokio::test]
async fn successful_probe_closes_breaker() {
    let repos = repos();
    let testbed = Testbed::new(FakeSettings { repos: repos.clone(), ..FakeSettings::default() }, "");
    for n in 0..8 {
        let pr = testbed.with(|fakes| {
            fakes.open_pr(NewPullRequest { repo: repos[n % 5].name.clone(), ..NewPullRequest::default() })
        });
        testbed.with(|fakes| fakes.force(Fault::AgentLost, &pr));
    }
    testbed.pass(20).await;
    testbed.set_jenkins_down(true);
    let state = async |testbed: &Testbed| breaker::load(&testbed.store, testbed.now()).await.unwrap().state;
    assert!(testbed.until(60, async |testbed| matches!(state(testbed).await, BreakerState::Open { .. })).await);
    testbed.set_jenkins_down(false);
    let before = claims(&testbed);
    assert!(testbed.until(20, async |testbed| state(testbed).await == BreakerState::Closed).await);
    assert_eq!(claims(&testbed), before + 1, "exactly one probe");
}
