//! When little is left of what GitHub allows in an hour: what is left out, and in which order.

use domain::state::State;
use world::{Fault, Repo, Settings};

use super::{ours, requests};
use crate::stage::Stage;

#[tokio::test]
async fn status_is_left_out_before_the_backlog_and_merging_last_of_all() {
    let repos = vec![Repo::new("acme/payments"), Repo::new("acme/ops")];
    let settings = Settings { repos, rate_limit: 100, ..Settings::default() };
    let config = "status.repo = 'acme/ops'\n[repos.'acme/payments']\nbacklog.enabled = true";
    let mut stage = Stage::new(settings, config);
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AutomergeAsleep, &pr));
    let mut left_out: Vec<String> = Vec::new();
    for _ in 0..55 {
        stage.pass(1).await;
        let last = stage.summaries.last().and_then(|summary| summary.coordination.clone()).unwrap();
        for step in last.left_out.iter().filter_map(|why| why.split(':').next()) {
            if !left_out.iter().any(|known| known == step) {
                left_out.push(step.to_owned());
            }
        }
    }
    assert_eq!(left_out, ["status", "backlog, what lies around", "backlog"], "the seed's order, from its end");
    assert_eq!(stage.state(&pr).await, Some(State::Merged), "what was nearly done was done meanwhile");
    // What is approved now waits until there is enough again.
    stage.with(|world| world.person_writes_issue("", "maria", "Repair CVE-2026-50001", &["pipeline/approved"]));
    let asked = requests(&stage).len();
    stage.pass(4).await;
    assert_eq!(requests(&stage).len(), asked);
    stage.pass(20).await;
    assert_eq!(requests(&stage).len(), asked + 1);
    assert_eq!(stage.with(|world| ours(world)).len(), 1);
}
