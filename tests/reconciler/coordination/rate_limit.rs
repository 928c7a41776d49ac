//! When little is left of what GitHub allows in an hour: what is left out, and in which order.

use domain::state::State;
use fakes::{FakeSettings, Fault, RepoSettings};
use testbed::Testbed;

use super::{ours, requests};

/// Somebody else uses up what is left, down to this share.
async fn use_up(stage: &Testbed, percent: u32) {
    let repo = "acme/payments".parse().unwrap();
    for nowhere in 900_000.. {
        let rest = stage.github.rate_limits().rest.unwrap();
        if rest.remaining * 100 < rest.limit * percent {
            return;
        }
        stage.github.issue(&repo, nowhere).await.unwrap_err();
    }
}

fn left_out(stage: &Testbed) -> Vec<String> {
    let last = stage.summaries().last().and_then(|summary| summary.coordination.clone()).unwrap();
    last.left_out.iter().filter_map(|why| why.split(':').next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn status_is_left_out_before_what_lies_around_then_new_work_and_merging_last_of_all() {
    let repos = vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/ops")];
    let settings = FakeSettings { repos, rate_limit: 1_000, secondary_limits: false, ..FakeSettings::default() };
    let config = "status = { repo = 'acme/ops', every_minutes = 1 }\n\
                  [repos.'acme/payments']\nbacklog = { enabled = true, every_minutes = 1 }";
    let stage = Testbed::new(settings, config);
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AutomergeAsleep, &pr));
    stage.pass(3).await;
    assert_eq!((left_out(&stage).len(), stage.with(|world| ours(world)).len()), (0, 1));
    for (percent, expected) in
        [(24, &["status"][..]), (14, &["backlog triage", "status"]), (11, &["backlog", "status"])]
    {
        use_up(&stage, percent).await;
        stage.pass(1).await;
        assert_eq!(left_out(&stage), expected, "below {percent} %");
    }
    // What is approved now waits until there is enough again; what is nearly done does not.
    stage.with(|world| world.person_writes_issue("", "maria", "Repair CVE-2026-50001", &["pipeline/approved"]));
    use_up(&stage, 3).await;
    stage.pass(40).await;
    assert_eq!(stage.state(&pr).await, Some(State::Merged));
    assert_eq!(requests(&stage).len(), 0);
    stage.pass(20).await;
    assert_eq!((left_out(&stage).len(), requests(&stage).len()), (0, 1));
}
