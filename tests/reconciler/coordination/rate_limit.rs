//! Which steps are skipped, and in which order, when GitHub's hourly rate limit runs low.

use domain::state::State;
use fakes::{FakeSettings, Fault, RepoSettings};
use testbed::Testbed;

use super::{requests, suture_issues};

/// Consumes the rate limit until less than this percentage remains.
async fn use_up(testbed: &Testbed, percent: u32) {
    let repo = "acme/payments".parse().unwrap();
    for number in 900_000.. {
        let rest = testbed.github.rate_limits().rest.unwrap();
        if rest.remaining * 100 < rest.limit * percent {
            return;
        }
        testbed.github.issue(&repo, number).await.unwrap_err();
    }
}

fn skipped_steps(testbed: &Testbed) -> Vec<String> {
    let last = testbed.summaries().last().and_then(|summary| summary.coordination.clone()).unwrap();
    last.skipped.iter().filter_map(|why| why.split(':').next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn low_rate_limit_skips_status_then_triage_then_backlog_but_not_merges() {
    let repos = vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/ops")];
    let settings = FakeSettings { repos, rate_limit: 1_000, secondary_limits: false, ..FakeSettings::default() };
    let config = "status_issue = { repo = 'acme/ops', every_minutes = 1 }\n\
                  [repos.'acme/payments']\nbacklog = { enabled = true, every_minutes = 1 }";
    let testbed = Testbed::new(settings, config);
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &pr));
    testbed.pass(3).await;
    assert_eq!((skipped_steps(&testbed).len(), testbed.with(|fakes| suture_issues(fakes)).len()), (0, 1));
    for (percent, expected) in
        [(24, &["status"][..]), (14, &["backlog triage", "status"]), (11, &["backlog", "status"])]
    {
        use_up(&testbed, percent).await;
        testbed.pass(1).await;
        assert_eq!(skipped_steps(&testbed), expected, "below {percent} %");
    }
    // A newly approved issue waits until the rate limit resets; the nearly merged pull request does not.
    testbed.with(|fakes| fakes.person_writes_issue("", "maria", "Repair CVE-2026-50001", &["pipeline/approved"]));
    use_up(&testbed, 3).await;
    testbed.pass(40).await;
    assert_eq!(testbed.state(&pr).await, Some(State::Merged));
    assert_eq!(requests(&testbed).len(), 0);
    testbed.pass(20).await;
    assert_eq!((skipped_steps(&testbed).len(), requests(&testbed).len()), (0, 1));
}
