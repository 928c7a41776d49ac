//! Every diagnosis rule, end to end: a fault occurs, the sweep diagnoses it, the Car Bridge runs the claimed remedy, and the pull
//! request merges or is escalated.

use domain::event::{Event, EventKind, FactKind};
use domain::signals::{MergeReport, RenewalMark};
use domain::state::State;
use fakes::{FakePrId, FakeSettings, FakeTiming, Fault, NewPullRequest, ProtectionSource, RepoSettings};
use platform::engine::Engine;
use platform::sweep_summary::SweepSummary;
use testbed::{Testbed, pr_id};

use crate::Backend;

/// Runs every rule on the in-memory store, and one rule per remedy on DynamoDB.
macro_rules! rules {
    (memory: [$($rule:ident,)*], dynoxide: [$($real:ident,)*]) => {
        mod memory {
            $(#[tokio::test]
            async fn $rule() {
                super::$rule(super::Backend::Memory).await;
            })*
        }
        mod dynoxide {
            $(#[tokio::test]
            async fn $real() {
                super::$real(super::Backend::Dynoxide).await;
            })*
        }
    };
}

rules!(
    memory: [
    rule_1_replaces_conflicting_pull_request,
    conflict_of_a_branch_update_is_replaced_while_mergeable_is_unknown,
    duplicate_of_a_vulnerability_is_logged_once,
    rule_2_updates_branch_behind_strict_base,
    rule_3_rebuilds_after_lost_agent,
    rule_4_escalates_on_broken_test,
    rule_5_retriggers_policy_bot,
    rule_6_rechecks_separation_of_duties,
    rule_7_escalates_on_wrong_policy,
    rule_8_retriggers_approver_bot,
    rule_9_retriggers_automerge_bot,
    rule_9a_starts_checks_that_never_started,
    rule_9b_stops_hung_build_before_rebuild,
    rule_9b_finds_hung_build_started_before_first_webhook,
    rule_9b_rebuilds_when_build_report_is_lost,
    rule_9b_escalates_after_three_unanswered_jenkins_requests,
    rule_9c_restarts_unfinished_merge,
    rule_10_takes_no_action_within_normal_time,
    rule_11_escalates_when_no_rule_matches,
    rule_0_takes_no_action_while_mergeable_is_unknown,
    required_checks_are_read_from_ruleset,
    branches_of_one_base_are_updated_one_at_a_time,
    update_queue_is_read_once_per_sweep,
    hung_build_is_rebuilt_when_stop_response_is_lost,
    ],
    dynoxide: [
    rule_1_replaces_conflicting_pull_request,
    rule_2_updates_branch_behind_strict_base,
    rule_3_rebuilds_after_lost_agent,
    rule_4_escalates_on_broken_test,
    rule_5_retriggers_policy_bot,
    rule_6_rechecks_separation_of_duties,
    rule_8_retriggers_approver_bot,
    rule_9_retriggers_automerge_bot,
    rule_9a_starts_checks_that_never_started,
    rule_9b_stops_hung_build_before_rebuild,
    ]
);

/// Bots with the `…Asleep` fault react only when they are retriggered.
fn bots_never_react() -> FakeSettings {
    let forever_ms = 30 * 24 * 3_600_000;
    FakeSettings {
        timing: FakeTiming { asleep_ms: (forever_ms, forever_ms), ..FakeTiming::default() },
        ..FakeSettings::default()
    }
}

/// Opens a pull request with a fault; returns it with the first claimed remedy: the rule's title and the command.
async fn open_with_fault(testbed: &Testbed, fault: Option<Fault>, minutes: i64) -> (FakePrId, String, &'static str) {
    let pr = testbed.open();
    if let Some(fault) = fault {
        testbed.with(|fakes| fakes.force(fault, &pr));
    }
    let (rule, command) = first_remedy(testbed, &pr, minutes).await;
    (pr, rule, command)
}

async fn first_remedy(testbed: &Testbed, pr: &FakePrId, minutes: i64) -> (String, &'static str) {
    let claimed = testbed.until(minutes, async |testbed| !testbed.commands().is_empty()).await;
    assert!(claimed, "no remedy was claimed: {:?} {:?}", testbed.kinds(pr).await, testbed.summaries().last());
    let (number, command, _) = testbed.commands()[0].clone();
    assert_eq!(number, pr.number);
    let log = testbed.log(pr).await;
    let claims = |event: &&Event| event.kind.claimed_strategy().is_some();
    let claim = log.iter().find(claims).unwrap();
    (claim.payload.name.clone().unwrap_or_default(), command)
}

/// The pull request is merged by the automerge bot, and no mail is sent.
async fn assert_merges(testbed: &Testbed, pr: &FakePrId, minutes: i64) {
    let merged = testbed.until(minutes, async |testbed| testbed.state(pr).await == Some(State::Merged)).await;
    assert!(merged, "{:?} {:?}", testbed.state(pr).await, testbed.kinds(pr).await);
    assert!(testbed.with(|fakes| fakes.is_merged(pr)));
    assert_eq!(testbed.mails(), []);
}

/// The rule with this title escalates, without a remedy and with one mail.
async fn assert_escalates(testbed: &Testbed, fault: Fault, title: &str) {
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(fault, &pr));
    let escalated =
        testbed.until(180, async |testbed| testbed.state(&pr).await == Some(State::NeedsIntervention)).await;
    assert!(escalated, "{:?}", testbed.kinds(&pr).await);
    let events = testbed.logged(&pr, EventKind::EscalatedNeedsIntervention).await;
    assert_eq!(events[0].payload.name.as_deref(), Some(title));
    assert_eq!(testbed.commands(), []);
    let mails = testbed.mails();
    assert_eq!(mails.len(), 1);
    let (_, mail) = &mails[0];
    assert!(mail.subject.is_ascii() && mail.subject.len() < 100, "{}", mail.subject);
    for part in [
        &format!("https://github.com/{}/pull/{}", pr.repo, pr.number),
        "What is wrong",
        &format!("Repository      {}", pr.repo),
        "Vulnerability   CVE-",
        "What Suture tried",
        "What you can do",
        "What happened",
        "CHECKS_STARTED",
        title,
    ] {
        assert!(mail.body.contains(part), "{part} is missing in\n{}", mail.body);
    }
}

async fn rule_1_replaces_conflicting_pull_request(backend: Backend) {
    let testbed = backend.testbed(bots_never_react(), "").await;
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &pr));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Approved)).await);
    testbed.with(|fakes| fakes.conflict(&pr));
    assert_eq!(first_remedy(&testbed, &pr, 60).await, ("MERGE CONFLICT DETECTED".to_owned(), "/close-and-reopen"));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Closed)).await);
    let replaced = testbed.until(150, async |testbed| testbed.record(&pr).await.replaced_by.is_some()).await;
    assert!(replaced, "{:?}", testbed.kinds(&pr).await);
    let fresh = FakePrId { number: testbed.record(&pr).await.replaced_by.unwrap(), ..pr.clone() };
    assert_merges(&testbed, &fresh, 120).await;
}

/// Regression: the refused update counted as a permanent refusal, and the pull request waited for the cooldown.
async fn conflict_of_a_branch_update_is_replaced_while_mergeable_is_unknown(backend: Backend) {
    let testbed = backend.testbed(bots_never_react(), "").await;
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &pr));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Approved)).await);
    testbed.with(|fakes| {
        fakes.conflict(&pr);
        fakes.force(Fault::MergeableUnknown, &pr);
        fakes.person_comments(&pr, "maria", "/update-branch");
    });
    let claims = async |testbed: &Testbed| testbed.logged(&pr, EventKind::RemediationCloseAndReopen).await;
    let claimed = testbed.until(3, async |testbed| !claims(testbed).await.is_empty()).await;
    assert!(claimed, "{:?}", testbed.kinds(&pr).await);
    let claim = &claims(&testbed).await[0].payload;
    assert_eq!(claim.name.as_deref(), Some("MERGE CONFLICT DETECTED"));
    assert!(claim.text.contains("GitHub refused to merge the base: conflict"), "{}", claim.text);
    assert!(testbed.until(10, async |testbed| testbed.state(&pr).await == Some(State::Closed)).await);
    assert_eq!(testbed.kinds(&pr).await.get("ESCALATED_NEEDS_INTERVENTION"), None);
}

async fn duplicate_of_a_vulnerability_is_logged_once(backend: Backend) {
    let testbed = backend.testbed(bots_never_react(), "").await;
    let open = |labels: &[&str]| {
        let vulnerability = Some("CVE-2026-7001".to_owned());
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let pr =
            testbed.with(|fakes| fakes.open_pr(NewPullRequest { vulnerability, labels, ..NewPullRequest::default() }));
        testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &pr));
        pr
    };
    let (pr, other) = (open(&[]), open(&["suture/hold"]));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Approved)).await);
    testbed.with(|fakes| fakes.conflict(&pr));
    testbed.pass(120).await;
    let events = testbed.logged(&pr, EventKind::DuplicateExists).await;
    assert_eq!(events.len(), 1, "{:?}", testbed.kinds(&pr).await);
    assert_eq!(events[0].payload.text, format!("duplicate PR exists: #{}", other.number));
    assert_eq!((testbed.state(&pr).await, testbed.commands()), (Some(State::Approved), vec![]));
}

async fn rule_2_updates_branch_behind_strict_base(backend: Backend) {
    let strict = RepoSettings { strict: true, ..RepoSettings::new("acme/payments") };
    let testbed = backend.testbed(FakeSettings { repos: vec![strict], ..bots_never_react() }, "").await;
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &pr));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Approved)).await);
    testbed.with(|fakes| fakes.push_base("acme/payments"));
    assert_eq!(first_remedy(&testbed, &pr, 60).await, ("BRANCH BEHIND BASE".to_owned(), "/update-branch"));
    assert_merges(&testbed, &pr, 180).await;
}

async fn rule_3_rebuilds_after_lost_agent(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    let (pr, rule, command) = open_with_fault(&testbed, Some(Fault::AgentLost), 120).await;
    assert_eq!((rule.as_str(), command), ("CHECKS FAILED — TRANSIENT", "/rebuild"));
    assert_merges(&testbed, &pr, 120).await;
}

async fn rule_4_escalates_on_broken_test(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    assert_escalates(&testbed, Fault::RealTestFailure, "CHECKS FAILED — PERSISTENT").await;
}

async fn rule_5_retriggers_policy_bot(backend: Backend) {
    let testbed = backend.testbed(bots_never_react(), "").await;
    let (pr, rule, command) = open_with_fault(&testbed, Some(Fault::PolicyAsleep), 120).await;
    assert_eq!((rule.as_str(), command), ("POLICY BOT STALE", "/recheck-policy"));
    assert_merges(&testbed, &pr, 120).await;
}

async fn rule_6_rechecks_separation_of_duties(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    let (pr, rule, command) = open_with_fault(&testbed, Some(Fault::SodTiming), 120).await;
    assert_eq!((rule.as_str(), command), ("POLICY FAILED — SOD", "/recheck-sod"));
    assert_merges(&testbed, &pr, 120).await;
}

async fn rule_7_escalates_on_wrong_policy(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    assert_escalates(&testbed, Fault::PolicyMisconfigured, "POLICY FAILED — OTHER").await;
}

async fn rule_8_retriggers_approver_bot(backend: Backend) {
    let testbed = backend.testbed(bots_never_react(), "").await;
    let (pr, rule, command) = open_with_fault(&testbed, Some(Fault::ApproverAsleep), 120).await;
    assert_eq!((rule.as_str(), command), ("APPROVER BOT STALE", "/recheck-approval"));
    assert_merges(&testbed, &pr, 120).await;
}

async fn rule_9_retriggers_automerge_bot(backend: Backend) {
    let testbed = backend.testbed(bots_never_react(), "").await;
    let (pr, rule, command) = open_with_fault(&testbed, Some(Fault::AutomergeAsleep), 120).await;
    assert_eq!((rule.as_str(), command), ("AUTOMERGE BOT STALE", "/merge"));
    assert_merges(&testbed, &pr, 120).await;
}

async fn rule_9a_starts_checks_that_never_started(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    let (pr, rule, command) = open_with_fault(&testbed, Some(Fault::JenkinsDeaf), 60).await;
    assert_eq!((rule.as_str(), command), ("CHECKS NEVER STARTED", "/rebuild"));
    assert_merges(&testbed, &pr, 120).await;
}

async fn rule_9b_stops_hung_build_before_rebuild(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    let (pr, rule, command) = open_with_fault(&testbed, Some(Fault::BuildHung), 240).await;
    assert_eq!((rule.as_str(), command), ("CHECKS RUNNING TOO LONG", "/rebuild"));
    let text = testbed.logged(&pr, EventKind::RemediationRebuild).await[0].payload.text.clone();
    assert!(text.contains("stopped first"), "{text}");
    assert_merges(&testbed, &pr, 120).await;
}

async fn branches_of_one_base_are_updated_one_at_a_time(backend: Backend) {
    let strict = RepoSettings { strict: true, ..RepoSettings::new("acme/payments") };
    let testbed = backend.testbed(FakeSettings { repos: vec![strict], ..FakeSettings::default() }, "").await;
    let prs: Vec<FakePrId> = (0..5).map(|_| testbed.open()).collect();
    for pr in &prs {
        assert_merges(&testbed, pr, 600).await;
    }
    // Each merge puts the other branches behind. Updating all at once would need ten builds and exhaust some budgets.
    let updates = testbed
        .with(|fakes| fakes.audit().iter().filter(|entry| entry.action == fakes::AuditedAction::BranchUpdated).count());
    assert_eq!(updates, 4);
}

/// Regression: every deferred pull request read all records of its base; a hundred of them cost ten thousand reads per sweep.
async fn update_queue_is_read_once_per_sweep(backend: Backend) {
    let strict = RepoSettings { strict: true, ..RepoSettings::new("acme/payments") };
    let settings = FakeSettings { repos: vec![strict], ..FakeSettings::default() };
    let testbed = backend.testbed(settings, "").await;
    for _ in 0..30 {
        testbed.open();
    }
    testbed.pass(240).await;
    let all_deferred =
        |summary: &&SweepSummary| summary.skipped.get("turn").is_some_and(|waiting| *waiting == summary.verified);
    let cost = |summary: &SweepSummary| (u64::from(summary.verified), summary.store_requests);
    let summaries = testbed.summaries();
    let costs = || summaries.iter().filter(all_deferred).map(cost);
    let (few, many) = (costs().min().unwrap(), costs().max().unwrap());
    assert!(many.0 >= few.0 + 3, "{few:?} {many:?}");
    // Each pull request costs two writes: the verification and the next due date. Reading the queue each time would make it four.
    assert!(many.1 - few.1 < 3 * (many.0 - few.0), "{few:?} {many:?}");
}

async fn hung_build_is_rebuilt_when_stop_response_is_lost(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    let pr = testbed.open();
    testbed.with(|fakes| {
        fakes.force(Fault::BuildHung, &pr);
        // The first write to Jenkins is the stop request.
        fakes.force(Fault::AnswerLost, &pr);
    });
    assert_merges(&testbed, &pr, 300).await;
    let stopped = testbed
        .with(|fakes| fakes.audit().iter().filter(|entry| entry.action == fakes::AuditedAction::BuildStopped).count());
    assert_eq!((stopped, testbed.record(&pr).await.lifetime_remedies), (1, 1));
}

/// Regression: when the first webhook arrived after the build had started, Suture assumed there was no build, and decided and
/// dropped rebuilds forever.
async fn rule_9b_finds_hung_build_started_before_first_webhook(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::BuildHung, &pr));
    testbed.sweeping.set(false);
    testbed.lose_webhooks(|_, _| true);
    testbed.pass(10).await;
    testbed.lose_webhooks(|_, _| false);
    testbed.with(|fakes| fakes.person_labels(&pr, "maria", "security"));
    testbed.pass(1).await;
    testbed.sweeping.set(true);
    let (rule, command) = first_remedy(&testbed, &pr, 240).await;
    assert_eq!((rule.as_str(), command), ("CHECKS RUNNING TOO LONG", "/rebuild"));
    assert_merges(&testbed, &pr, 120).await;
    assert_eq!(testbed.record(&pr).await.lifetime_remedies, 1, "{:?}", testbed.kinds(&pr).await);
}

async fn rule_9b_rebuilds_when_build_report_is_lost(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    let (pr, rule, command) = open_with_fault(&testbed, Some(Fault::ReportLost), 120).await;
    assert_eq!((rule.as_str(), command), ("CHECKS RUNNING TOO LONG", "/rebuild"));
    assert_merges(&testbed, &pr, 120).await;
}

async fn rule_9b_escalates_after_three_unanswered_jenkins_requests(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::BuildHung, &pr));
    testbed.pass(30).await;
    testbed.set_jenkins_down(true);
    let escalated =
        testbed.until(120, async |testbed| testbed.state(&pr).await == Some(State::NeedsIntervention)).await;
    assert!(escalated, "{:?}", testbed.kinds(&pr).await);
    let reason = &testbed.logged(&pr, EventKind::EscalatedNeedsIntervention).await[0].payload.text;
    assert!(reason.contains("Jenkins could not be reached"), "{reason}");
}

async fn rule_9c_restarts_unfinished_merge(backend: Backend) {
    let testbed = backend.testbed(bots_never_react(), "").await;
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &pr));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Approved)).await);
    let (head, at) = (testbed.record(&pr).await.head_sha, testbed.now());
    let report = MergeReport { failed: false, text: String::new(), at, renewal: RenewalMark::None };
    let engine = Engine::new(testbed.store.clone(), testbed::RecordingPublisher::default(), testbed.policies.clone());
    let fact = tests::fact(&pr_id(&pr), "bot-1", at, FactKind::Merge { head, report });
    engine.apply(&fact, at).await.unwrap();
    assert_eq!(testbed.state(&pr).await, Some(State::Merging));
    assert_eq!(first_remedy(&testbed, &pr, 30).await, ("MERGE NEVER FINISHED".to_owned(), "/merge"));
    assert_merges(&testbed, &pr, 60).await;
}

async fn rule_10_takes_no_action_within_normal_time(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "").await;
    let pr = testbed.open();
    assert_merges(&testbed, &pr, 60).await;
    assert_eq!(testbed.commands(), []);
    assert!(testbed.summaries().iter().all(|summary| summary.claims() == 0 && summary.escalated == 0));
}

async fn rule_11_escalates_when_no_rule_matches(backend: Backend) {
    let testbed = backend.testbed(FakeSettings::default(), "rules.extended = false").await;
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, &pr));
    assert!(testbed.until(30, async |testbed| testbed.state(&pr).await == Some(State::NeedsIntervention)).await);
    let events = testbed.logged(&pr, EventKind::EscalatedNeedsIntervention).await;
    assert_eq!(events[0].payload.name.as_deref(), Some("FALLTHROUGH"));
}

async fn rule_0_takes_no_action_while_mergeable_is_unknown(backend: Backend) {
    let testbed = backend.testbed(bots_never_react(), "").await;
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &pr));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Approved)).await);
    testbed.with(|fakes| {
        fakes.force(Fault::MergeableUnknown, &pr);
        fakes.push_base("acme/payments");
    });
    testbed.pass(12).await;
    let before: u32 =
        testbed.summaries().iter().map(|summary| summary.skipped.get("no_action").copied().unwrap_or(0)).sum();
    assert!(before > 0 && testbed.commands().is_empty(), "{:?} {:?}", testbed.commands(), testbed.summaries().last());
}

async fn required_checks_are_read_from_ruleset(backend: Backend) {
    let with_ruleset = RepoSettings { protection: ProtectionSource::Ruleset, ..RepoSettings::new("acme/payments") };
    let testbed = backend.testbed(FakeSettings { repos: vec![with_ruleset], ..FakeSettings::default() }, "").await;
    let (pr, rule, _) = open_with_fault(&testbed, Some(Fault::FlakyTest), 120).await;
    assert_eq!(rule, "CHECKS FAILED — TRANSIENT");
    assert_merges(&testbed, &pr, 120).await;
}
