//! Whose a pull request and a report are, as the sweep reads them from GitHub.

use domain::event::EventKind;
use domain::signals::PolicyVerdict;
use domain::state::State;
use fakes::{FakeSettings, Fault, NewPullRequest, StatusState};
use testbed::{Testbed, pr_id};

fn stranger(vulnerability: &str) -> NewPullRequest {
    let (author, vulnerability) = ("mallory".to_owned(), Some(vulnerability.to_owned()));
    NewPullRequest { author, vulnerability, fork: true, ..NewPullRequest::default() }
}

#[tokio::test]
async fn inventory_adopts_no_strangers_fork() {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 1");
    testbed.lose_webhooks(|_, _| true);
    let open = |new: NewPullRequest| testbed.with(|fakes| fakes.open_pr(new));
    let strange = open(stranger("CVE-2026-77001"));
    let ours = open(NewPullRequest { vulnerability: Some("CVE-2026-77001".to_owned()), ..NewPullRequest::default() });
    let from_own_fork = open(NewPullRequest { fork: true, ..NewPullRequest::default() });
    testbed.pass(5).await;
    assert!(testbed.find(&strange).await.is_none(), "adopted {}", pr_id(&strange));
    for pr in [&ours, &from_own_fork] {
        assert!(testbed.find(pr).await.is_some(), "not adopted: {}", pr_id(pr));
    }
    let listed = testbed.github.open_pulls(&pr_id(&strange).repo, testbed.policies.base()).await.unwrap();
    let claims: Vec<Option<&str>> = listed.iter().map(|one| one.described.vulnerability_id.as_deref()).collect();
    assert_eq!(claims[..2], [None, Some("CVE-2026-77001")], "a stranger claims no vulnerability");
}

#[tokio::test]
async fn sweep_believes_no_forged_policy_pass() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = testbed.open();
    testbed.with(|fakes| {
        fakes.force(Fault::PolicyAsleep, &pr);
        // Otherwise it would believe the forged status.
        fakes.force(Fault::ApproverAsleep, &pr);
    });
    // Policy Bot has said that it waits for the build, and misses that the build is green.
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::PolicyEvaluating)).await);
    testbed.lose_webhooks(|_, _| true);
    let forged = ("policy-bot: main", StatusState::Success, "All rules are approved");
    testbed.with(|fakes| fakes.post_status_as(&pr, "github-actions[bot]", forged));
    let verified = testbed.record(&pr).await.verified_at;
    assert!(testbed.until(60, async |testbed| testbed.record(&pr).await.verified_at > verified).await);
    let policy = testbed.record(&pr).await.signals.policy.map(|report| report.verdict);
    assert_eq!(policy, Some(PolicyVerdict::Evaluating));
    assert!(testbed.state(&pr).await < Some(State::PolicyPassed));
    let anomaly = testbed.logged(&pr, EventKind::Anomaly).await.remove(0).payload;
    assert_eq!(
        (anomaly.by.as_deref(), anomaly.name.as_deref()),
        (Some("github-actions[bot]"), Some("policy-bot: main"))
    );
}
