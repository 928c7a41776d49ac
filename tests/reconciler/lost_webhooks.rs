//! Lost webhooks: each one in turn, then all of them. After a sweep every due record agrees with GitHub.

use domain::run::{RunEnd, RunKind, RunState};
use domain::state::{State, Strategy};
use fakes::{FakePrId, FakeSettings, FakeTiming, Fault, RepoSettings};
use jiff::SignedDuration;
use platform::publish::queue_message::{QueueMessage, Task};
use platform::store::queries;
use testbed::{Testbed, pr_id};

use crate::Backend;

/// Sweeps every minute until the pull request is merged. A record that was due before a sweep agrees with GitHub after it and has
/// a later due date.
async fn run_until_merged(testbed: &Testbed, pr: &FakePrId, minutes: i64) -> bool {
    testbed.sweeping.set(false);
    for _ in 0..minutes {
        testbed.pass(1).await;
        let due = testbed.find(pr).await.and_then(|record| record.due_at).is_some_and(|due| due <= testbed.now());
        let summary = testbed.sweep_now().await;
        assert_eq!(summary.errors, Vec::<String>::new());
        if due {
            assert_eq!(
                crate::drift(testbed, pr).await,
                None,
                "the record differs from GitHub after the sweep: {:?}",
                testbed.kinds(pr).await
            );
            let next_due = testbed.record(pr).await.due_at;
            assert!(next_due.is_none_or(|at| at > testbed.now()), "every visit sets a later due date");
        }
        testbed.settle().await;
        if testbed.state(pr).await == Some(State::Merged) {
            return true;
        }
    }
    false
}

async fn merge_without(lost: Option<usize>) -> (usize, Testbed) {
    let testbed = Testbed::new(FakeSettings::default(), "");
    testbed.lose_webhooks(move |index, _| Some(index) == lost);
    let pr = testbed.open();
    let merged = run_until_merged(&testbed, &pr, 150).await;
    assert!(merged, "without webhook {lost:?}: {:?} {:?}", testbed.state(&pr).await, testbed.kinds(&pr).await);
    assert!(testbed.with(|fakes| fakes.is_merged(&pr)));
    assert_eq!(testbed.mails(), [], "without webhook {lost:?}");
    (testbed.webhooks(), testbed)
}

#[tokio::test]
async fn pull_request_merges_when_any_one_webhook_is_lost() {
    let (all, _) = merge_without(None).await;
    assert!(all >= 8, "expected at least 8 webhooks: {all}");
    for lost in 0..all {
        merge_without(Some(lost)).await;
    }
}

#[tokio::test]
async fn pull_request_merges_when_all_webhooks_are_lost() {
    merge_without_webhooks(Backend::Memory).await;
}

#[tokio::test]
async fn pull_request_merges_when_all_webhooks_are_lost_on_dynoxide() {
    merge_without_webhooks(Backend::Dynoxide).await;
}

async fn merge_without_webhooks(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    testbed.lose_webhooks(|_, _| true);
    testbed.sweeping.set(false);
    let pr = testbed.open();
    let every = i64::from(testbed.policies.base().sweep.inventory_every);
    let mut sweeps = 0;
    while testbed.find(&pr).await.is_none() {
        testbed.pass(1).await;
        testbed.sweep_now().await;
        sweeps += 1;
        assert!(sweeps <= every + 1, "a pull request without webhooks is found within {every} + 1 sweeps");
    }
    assert!(run_until_merged(&testbed, &pr, 150).await, "{:?}", testbed.kinds(&pr).await);
    let lost: u32 = testbed.summaries().iter().flat_map(|summary| summary.webhooks_missed.values()).sum();
    assert!(lost >= 2, "missed webhooks are counted by kind: {:?}", testbed.summaries().last());
    assert_eq!(testbed.mails(), []);
}

#[tokio::test]
async fn next_inventory_finds_pull_request_without_webhooks() {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 3");
    testbed.sweeping.set(false);
    testbed.sweep_now().await;
    testbed.lose_webhooks(|_, _| true);
    let pr = testbed.open();
    for sweep in 1..=4 {
        testbed.pass(1).await;
        let adopted = testbed.sweep_now().await.adopted;
        if adopted == Some(1) {
            assert!(testbed.find(&pr).await.is_some());
            return;
        }
        assert!(sweep <= 3, "{adopted:?}");
    }
    panic!("{} was never found", pr_id(&pr));
}

#[tokio::test]
async fn missed_merge_and_close_end_their_records() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let (merged, closed) = (testbed.open(), testbed.open());
    testbed.pass(1).await;
    testbed.lose_webhooks(|_, _| true);
    testbed.with(|fakes| {
        fakes.person_merges(&merged, "maria");
        fakes.person_closes(&closed, "maria");
    });
    testbed.pass(70).await;
    assert_eq!(testbed.state(&merged).await, Some(State::Merged));
    assert_eq!(testbed.state(&closed).await, Some(State::Closed));
    assert_eq!(testbed.kinds(&merged).await["STATE_DRIFT_CORRECTED"], 1);
    let summaries = testbed.summaries();
    let lost: Vec<&String> = summaries.iter().flat_map(|summary| summary.webhooks_missed.keys()).collect();
    assert!(lost.iter().any(|kind| *kind == "PR_MERGED") && lost.iter().any(|kind| *kind == "PR_CLOSED"), "{lost:?}");
}

#[tokio::test]
async fn failed_delivery_is_redelivered_once() {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 1");
    let pr = testbed.open();
    testbed.bridging.set(false);
    testbed.with(|fakes| fakes.force(fakes::Fault::WebhookLost, &pr));
    testbed.pass(3).await;
    let tasks = || {
        let sent = testbed.publisher.messages();
        sent.into_iter().filter(|(id, _)| id.starts_with("redeliver-")).count()
    };
    assert_eq!(tasks(), 1, "{:?}", testbed.summaries());
    let lost: u32 = testbed.summaries().iter().flat_map(|summary| summary.webhooks_missed.values()).sum();
    assert_eq!(lost, 1, "{:?}", testbed.summaries());
    let requested: u32 = testbed.summaries().iter().map(|summary| summary.redelivered).sum();
    assert_eq!(requested, 1, "{:?}", testbed.summaries());
    testbed.bridging.set(true);
    testbed.pass(2).await;
    let redelivered = testbed
        .with(|fakes| fakes.audit().iter().filter(|entry| entry.action == fakes::AuditedAction::Redelivered).count());
    assert_eq!(redelivered, 1, "only the Car Bridge requests the redelivery");
}

/// Every list walked through three days of deliveries, most of them successful: thousands of requests per hour.
#[tokio::test]
async fn quiet_hour_lists_deliveries_with_one_request_per_inventory() {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 1");
    for _ in 0..40 {
        testbed.open();
    }
    testbed.pass(10).await;
    let lists = || testbed.transport.lines().iter().filter(|line| line.starts_with("GET /app/hook/deliveries")).count();
    let (before, sweeps) = (lists(), testbed.summaries().len());
    assert!(testbed.webhooks() > 100, "more than one page: {}", testbed.webhooks());
    testbed.pass(60).await;
    let sweeps = testbed.summaries().len() - sweeps;
    assert!(lists() - before <= sweeps && sweeps <= 61, "{} lists in {sweeps} sweeps", lists() - before);
}

/// 100 requests per inventory: with 150 failed deliveries, commands were among the last, and those that were requested before used up
/// the limit again and again.
#[tokio::test]
async fn failed_commands_are_redelivered_first_and_requested_ones_do_not_count() {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 1");
    testbed.sweeping.set(false);
    testbed.bridging.set(false);
    let pr = testbed.open();
    testbed.pass(1).await;
    testbed.with(|fakes| {
        for n in 0..150 {
            fakes.post_check_on(&pr, &format!("matrix {n}"), Some("success"), "");
        }
    });
    testbed.fakes().person_comments(&pr, "maria", "/hold");
    testbed.advance(SignedDuration::from_mins(2));
    let deliveries = testbed.with(fakes::Fakes::take_webhooks);
    assert!(deliveries.len() > 150, "{}", deliveries.len());
    testbed.with(|fakes| deliveries.iter().for_each(|delivery| fakes.webhook_answered(delivery, 503)));
    let comment = deliveries.iter().find(|delivery| delivery.event == "issue_comment").unwrap().id;
    let requested = |testbed: &Testbed| -> Vec<u64> {
        let messages = std::iter::from_fn(|| testbed.publisher.take_message());
        let of = |(_, body): (String, String)| {
            let message = QueueMessage::from_json(&body).unwrap();
            if let QueueMessage::Task(Task::Redeliver { delivery }) = message { Some(delivery) } else { None }
        };
        messages.filter_map(of).collect()
    };
    let mut all: Vec<u64> = Vec::new();
    for _ in 0..deliveries.len().div_ceil(100) {
        testbed.sweep_now().await;
        let next = requested(&testbed);
        assert!(!next.is_empty() && next.len() <= 100, "{}", next.len());
        all.extend(next);
        testbed.advance(SignedDuration::from_mins(2));
    }
    assert_eq!(all.first(), Some(&comment));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), deliveries.len(), "each once");
    testbed.sweep_now().await;
    assert_eq!(requested(&testbed), Vec::<u64>::new());
}

const WITHOUT_INVENTORY: &str = "sweep.inventory_every = 1440";

/// Opens a pull request with a fault that this strategy repairs. Its target has accepted the remedy, and all webhooks from now on are
/// lost.
async fn accepted_remedy_without_webhooks(fault: Fault, strategy: Strategy) -> (Testbed, FakePrId) {
    // Only an inventory finds the replacement. For the other remedies it must not be needed.
    let config = if strategy == Strategy::CloseAndReopen { "" } else { WITHOUT_INVENTORY };
    accepted_remedy_with(fault, strategy, config).await
}

async fn accepted_remedy_with(fault: Fault, strategy: Strategy, config: &str) -> (Testbed, FakePrId) {
    let forever_ms = 30 * 24 * 3_600_000;
    let timing = FakeTiming { asleep_ms: (forever_ms, forever_ms), ..FakeTiming::default() };
    let strict = strategy == Strategy::BranchUpdate;
    let repos = vec![RepoSettings { strict, ..RepoSettings::new("acme/payments") }];
    let testbed = Testbed::new(FakeSettings { timing, repos, ..FakeSettings::default() }, config);
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(fault, &pr));
    if matches!(strategy, Strategy::BranchUpdate | Strategy::CloseAndReopen) {
        assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Approved)).await);
        testbed.with(|fakes| if strict { fakes.push_base("acme/payments") } else { fakes.conflict(&pr) });
    }
    let accepted = async |testbed: &Testbed| testbed.kinds(&pr).await.contains_key("REMEDIATION_ACCEPTED");
    assert!(testbed.until(240, accepted).await, "{strategy}: {:?}", testbed.kinds(&pr).await);
    testbed.lose_webhooks(|_, _| true);
    (testbed, pr)
}

/// The state and the end of the first run of this strategy.
async fn first_run(testbed: &Testbed, pr: &FakePrId, strategy: Strategy) -> (RunState, Option<RunEnd>) {
    let runs = queries::runs_of(&testbed.store, Some(&pr_id(pr)), None, 50, testbed.now()).await.unwrap().entries;
    let first = runs.iter().rfind(|run| run.kind == RunKind::Remedy(strategy)).unwrap();
    (first.state, first.end)
}

/// Regression: a run whose proof arrived on GitHub, but whose webhooks were lost, ended as failed and counted against the breaker.
async fn assert_proof_is_found_on_github(fault: Fault, strategy: Strategy) {
    let (testbed, pr) = accepted_remedy_without_webhooks(fault, strategy).await;
    testbed.pass(200).await;
    let first = first_run(&testbed, &pr, strategy).await;
    assert_eq!(first, (RunState::Completed, Some(RunEnd::Completed)), "{strategy}: {:?}", testbed.kinds(&pr).await);
    assert_eq!(testbed.mails(), [], "{strategy}");
    let failed: u32 = testbed.summaries().iter().map(|summary| summary.expired).sum();
    assert_eq!(failed, 0, "{strategy}: the breaker counted a failure");
}

#[tokio::test]
async fn rebuild_that_worked_failed_without_webhooks() {
    assert_proof_is_found_on_github(Fault::AgentLost, Strategy::Rebuild).await;
}

#[tokio::test]
async fn branch_update_that_worked_failed_without_webhooks() {
    assert_proof_is_found_on_github(Fault::AutomergeAsleep, Strategy::BranchUpdate).await;
}

#[tokio::test]
async fn policy_retrigger_that_worked_failed_without_webhooks() {
    assert_proof_is_found_on_github(Fault::PolicyAsleep, Strategy::RetriggerPolicyBot).await;
}

#[tokio::test]
async fn sod_retrigger_that_worked_failed_without_webhooks() {
    assert_proof_is_found_on_github(Fault::SodTiming, Strategy::RetriggerSodCheck).await;
}

#[tokio::test]
async fn approver_retrigger_that_worked_failed_without_webhooks() {
    assert_proof_is_found_on_github(Fault::ApproverAsleep, Strategy::RetriggerApproverBot).await;
}

#[tokio::test]
async fn automerge_retrigger_that_worked_failed_without_webhooks() {
    assert_proof_is_found_on_github(Fault::AutomergeAsleep, Strategy::RetriggerAutomergeBot).await;
}

#[tokio::test]
async fn replacement_that_was_opened_failed_without_webhooks() {
    assert_proof_is_found_on_github(Fault::AutomergeAsleep, Strategy::CloseAndReopen).await;
}

/// Regression: only open pull requests were searched, so a replacement that was merged before an inventory listed it was not found, and
/// a person was called.
#[tokio::test]
async fn replacement_that_was_merged_or_closed_failed_without_webhooks() {
    for (merged, ends) in [(true, State::Merged), (false, State::Closed)] {
        let strategy = Strategy::CloseAndReopen;
        let (testbed, pr) = accepted_remedy_with(Fault::AutomergeAsleep, strategy, WITHOUT_INVENTORY).await;
        let replacement = FakePrId { number: pr.number + 1, ..pr.clone() };
        let opened = async |testbed: &Testbed| testbed.with(|fakes| fakes.pulls().any(|(id, _)| id == replacement));
        assert!(testbed.until(5, opened).await);
        testbed.with(|fakes| {
            if merged { fakes.person_merges(&replacement, "maria") } else { fakes.person_closes(&replacement, "maria") }
        });
        testbed.pass(65).await;
        let first = first_run(&testbed, &pr, strategy).await;
        assert_eq!(first, (RunState::Completed, Some(RunEnd::Completed)), "{:?}", testbed.kinds(&pr).await);
        assert_eq!(testbed.record(&pr).await.replaced_by, Some(replacement.number));
        assert_eq!(testbed.state(&replacement).await, Some(ends));
        assert_eq!(testbed.mails(), []);
        assert_eq!(testbed.summaries().iter().map(|summary| summary.expired).sum::<u32>(), 0, "the breaker counted");
        assert_eq!(testbed.with(|fakes| fakes.unknown_requests().to_vec()), [] as [String; 0]);
    }
}

#[tokio::test]
async fn overdue_run_stays_open_while_github_does_not_answer() {
    let strategy = Strategy::RetriggerPolicyBot;
    for silent_for in [120, 13 * 60] {
        let (testbed, pr) = accepted_remedy_without_webhooks(Fault::PolicyAsleep, strategy).await;
        testbed.faults.fail_calls("GitHub", true);
        testbed.pass(silent_for).await;
        if silent_for == 120 {
            assert_eq!(first_run(&testbed, &pr, strategy).await, (RunState::WaitingExternal, None));
            testbed.faults.fail_calls("GitHub", false);
            testbed.pass(20).await;
            assert_eq!(first_run(&testbed, &pr, strategy).await, (RunState::Completed, Some(RunEnd::Completed)));
            assert_eq!(testbed.mails(), []);
        } else {
            assert_eq!(first_run(&testbed, &pr, strategy).await, (RunState::Failed, Some(RunEnd::Failed)));
        }
    }
}
