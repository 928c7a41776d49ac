//! Beyond single pull requests (seed 004): people's labels, merges in one batch, the sentinel, the status issue, the backlog, and
//! what is left out when GitHub allows little. The whole of Suture in the simulated world, and stopped at each of its calls.

mod backlog;
mod labels;
mod merge_batch;
mod post_merge_health;
mod rate_limit;
mod status_issue;

use domain::event::EventKind;
use domain::id::RunId;
use fakes::{AuditedAction, FakeIssue, FakePrId, FakeSettings, Fakes, RepoSettings};
use jiff::SignedDuration;
use reconciler::{ReconcileScope, SweepTrigger};
use testbed::{CallFault, SWEEP_TIMEOUT, Testbed};

use crate::On;

/// Who Suture is on GitHub.
const SUTURE: &str = "suture[bot]";

/// The issues that Suture has written.
fn ours(world: &Fakes) -> Vec<(FakePrId, FakeIssue)> {
    world.issues().filter(|(_, issue)| issue.user == SUTURE).map(|(name, issue)| (name, issue.clone())).collect()
}

/// How often Suture has done this.
fn actions(stage: &Testbed, action: AuditedAction) -> usize {
    stage.with(|world| world.audit_by(SUTURE).filter(|effect| effect.action == action).count())
}

/// What was asked of CodeGenie: the effect ids, in order, repetitions included.
fn requests(stage: &Testbed) -> Vec<String> {
    let asked = |effect: &fakes::AuditEntry| {
        let detail = effect.detail.strip_prefix("PullRequestRequested ")?;
        let json: serde_json::Value = serde_json::from_str(detail).ok()?;
        json["effect_id"].as_str().map(str::to_owned)
    };
    stage.with(|world| world.audit_by("bus").filter_map(asked).collect())
}

/// Sweeps once, and carries out what it asks for, stopped at one of all calls; then the process is there again. Whether there was
/// such a call.
async fn stopped(stage: &Testbed, at: usize, how: CallFault) -> bool {
    let _ = stage.faults.take_names();
    stage.faults.plan(at + 1, how);
    let now = stage.now();
    let wish = SweepTrigger::requested(RunId::new("stopped"), ReconcileScope::All, false, "the one that dies");
    // It may not even begin.
    let _ = stage.sweep.sweep(&wish, now + SWEEP_TIMEOUT).await;
    stage.settle().await;
    let reached = stage.faults.struck();
    stage.faults.restart();
    stage.with(|world| world.advance(SWEEP_TIMEOUT + SignedDuration::from_secs(1)));
    stage.settle().await;
    reached
}

/// What is remembered between sweeps survives DynamoDB's own types.
#[tokio::test]
async fn all_of_it_on_dynoxide() {
    let repos = vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/ops")];
    let config = "status.repo = 'acme/ops'\nsentinel = { urls = ['https://shop.example/'], issue_repo = 'acme/ops' }\n\
                  [repos.'acme/payments']\nbacklog.enabled = true";
    let stage = On::Dynoxide.stage(FakeSettings { repos, ..FakeSettings::default() }, config).await;
    let approved = stage.with(|world| {
        world.person_writes_issue("acme/payments", "maria", "Repair CVE-2026-50001", &["pipeline/approved"])
    });
    let (early, late) = (stage.open(), stage.open());
    stage.pass(2).await;
    stage.with(|world| world.person_merges(&early, "maria"));
    stage.pass(35).await;
    assert_eq!(stage.logged(&early, EventKind::PostMergeVerified).await.len(), 1);
    assert!(stage.with(|world| world.is_merged(&late)), "it was merged meanwhile, and is being watched");
    stage.set_health("https://shop.example/", 502);
    let fresh = stage.open();
    stage.pass(1).await;
    stage.with(|world| world.person_merges(&fresh, "maria"));
    stage.pass(10).await;
    let issues = stage.with(|world| ours(world));
    let labels: Vec<&str> = issues.iter().map(|(_, issue)| issue.labels[0].as_str()).collect();
    assert_eq!(labels, ["suture/status", "suture/sentinel"]);
    assert!(issues[0].1.body.contains("- **Down since "), "{}", issues[0].1.body);
    assert_eq!(requests(&stage), [format!("backlog:{approved}:1")]);
    assert!(!stage.with(|world| world.issue(&approved).unwrap().open), "its pull request was merged");
    let failed: Vec<String> = stage.summaries().iter().flat_map(|summary| summary.errors.clone()).collect();
    assert_eq!(failed, Vec::<String>::new());
    assert_eq!(stage.with(|world| world.unknown_requests().to_vec()), Vec::<String>::new());
}
