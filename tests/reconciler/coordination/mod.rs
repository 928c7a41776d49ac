//! Coordination across pull requests, end to end: control labels, merge batches, post-merge health, the status issue,
//! the backlog, and which steps a low rate limit skips. Includes crashes at every call.

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

use crate::Backend;

/// Suture's GitHub login.
const SUTURE: &str = "suture[bot]";

/// The issues that Suture opened.
fn suture_issues(fakes: &Fakes) -> Vec<(FakePrId, FakeIssue)> {
    fakes.issues().filter(|(_, issue)| issue.user == SUTURE).map(|(name, issue)| (name, issue.clone())).collect()
}

/// How often Suture performed this action.
fn actions(testbed: &Testbed, action: AuditedAction) -> usize {
    testbed.with(|fakes| fakes.audit_by(SUTURE).filter(|effect| effect.action == action).count())
}

/// The effect ids of the requests to CodeGenie, in order, including repetitions.
fn requests(testbed: &Testbed) -> Vec<String> {
    let effect_id = |effect: &fakes::AuditEntry| {
        let detail = effect.detail.strip_prefix("PullRequestRequested ")?;
        let json: serde_json::Value = serde_json::from_str(detail).ok()?;
        json["effect_id"].as_str().map(str::to_owned)
    };
    testbed.with(|fakes| fakes.audit_by("bus").filter_map(effect_id).collect())
}

/// Runs one sweep and its commands with a fault at call `at`, restarts the process, and waits until the lease expires. Returns
/// whether that call was reached.
async fn sweep_with_fault(testbed: &Testbed, at: usize, fault: CallFault) -> bool {
    let _ = testbed.faults.take_names();
    testbed.faults.plan(at + 1, fault);
    let now = testbed.now();
    let trigger = SweepTrigger::requested(RunId::new("stopped"), ReconcileScope::All, false, "crashing process");
    // The fault may prevent the sweep from starting.
    let _ = testbed.sweep.sweep(&trigger, now + SWEEP_TIMEOUT).await;
    testbed.settle().await;
    let reached = testbed.faults.struck();
    testbed.faults.restart();
    testbed.with(|fakes| fakes.advance(SWEEP_TIMEOUT + SignedDuration::from_secs(1)));
    testbed.settle().await;
    reached
}

/// The state stored between sweeps survives DynamoDB's attribute types.
#[tokio::test]
async fn coordination_works_on_dynoxide() {
    let repos = vec![RepoSettings::new("acme/payments"), RepoSettings::new("acme/ops")];
    let config = "status_issue.repo = 'acme/ops'\npost_merge_health = { urls = ['https://shop.example/'], issue_repo = 'acme/ops' }\n\
                  [repos.'acme/payments']\nbacklog.enabled = true";
    let testbed = Backend::Dynoxide.testbed(FakeSettings { repos, ..FakeSettings::default() }, config).await;
    let approved = testbed.with(|fakes| {
        fakes.person_writes_issue("acme/payments", "maria", "Repair CVE-2026-50001", &["pipeline/approved"])
    });
    let (early, late) = (testbed.open(), testbed.open());
    testbed.pass(2).await;
    testbed.with(|fakes| fakes.person_merges(&early, "maria"));
    testbed.pass(35).await;
    assert_eq!(testbed.logged(&early, EventKind::PostMergeVerified).await.len(), 1);
    assert!(testbed.with(|fakes| fakes.is_merged(&late)), "it is merged and its health is being checked");
    testbed.set_health("https://shop.example/", 502);
    let fresh = testbed.open();
    testbed.pass(1).await;
    testbed.with(|fakes| fakes.person_merges(&fresh, "maria"));
    testbed.pass(10).await;
    let issues = testbed.with(|fakes| suture_issues(fakes));
    let labels: Vec<&str> = issues.iter().map(|(_, issue)| issue.labels[0].as_str()).collect();
    assert_eq!(labels, ["suture/status", "suture/outage"]);
    assert!(issues[0].1.body.contains("- **Down since "), "{}", issues[0].1.body);
    assert_eq!(requests(&testbed), [format!("backlog:{approved}:1")]);
    assert!(!testbed.with(|fakes| fakes.issue(&approved).unwrap().open), "its pull request was merged");
    let failed: Vec<String> = testbed.summaries().iter().flat_map(|summary| summary.errors.clone()).collect();
    assert_eq!(failed, Vec::<String>::new());
    assert_eq!(testbed.with(|fakes| fakes.unknown_requests().to_vec()), Vec::<String>::new());
}
