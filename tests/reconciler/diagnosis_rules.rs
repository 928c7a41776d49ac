//! Each row of the classifier, through the whole loop: something goes wrong in the world, the sweep finds out, the Car Bridge
//! does what was claimed, and the pull request moves on, or a person is called.

use domain::event::{Event, EventKind, FactKind};
use domain::signals::{MergeReport, RenewalMark};
use domain::state::State;
use fakes::{FakePrId, FakeSettings, FakeTiming, Fault, ProtectionSource, RepoSettings};
use platform::engine::Engine;
use platform::sweep_summary::SweepSummary;
use testbed::{Testbed, pr_id};

use crate::On;

/// Each rule on the store in memory; of each family one on DynamoDB.
macro_rules! rules {
    (memory: [$($rule:ident,)*], dynoxide: [$($real:ident,)*]) => {
        mod memory {
            $(#[tokio::test]
            async fn $rule() {
                super::$rule(super::On::Memory).await;
            })*
        }
        mod dynoxide {
            $(#[tokio::test]
            async fn $real() {
                super::$real(super::On::Dynoxide).await;
            })*
        }
    };
}

rules!(
    memory: [
    rule_1_a_conflict_gets_a_fresh_pull_request,
    rule_2_a_branch_behind_a_strict_base_is_updated,
    rule_3_a_lost_agent_is_worth_a_rebuild,
    rule_4_a_broken_test_is_a_persons,
    rule_5_policy_bot_is_woken,
    rule_6_separation_of_duties_is_checked_once_more,
    rule_7_a_wrong_policy_is_a_persons,
    rule_8_approver_bot_is_woken,
    rule_9_automerge_bot_is_woken,
    rule_9a_checks_that_never_started_are_started,
    rule_9b_a_hung_build_is_stopped_first,
    rule_9b_a_hung_build_is_found_although_it_began_before_we_knew_its_head,
    rule_9b_a_build_whose_report_was_lost_is_done_again,
    rule_9b_a_jenkins_that_cannot_be_asked_three_times_is_a_persons,
    rule_9c_a_merge_that_never_finished_is_begun_again,
    rule_10_what_is_in_its_normal_time_is_left_alone,
    rule_11_what_no_rule_knows_is_a_persons,
    rule_0_nothing_is_done_while_github_does_not_know,
    required_checks_may_stand_in_a_ruleset,
    heads_of_one_base_are_brought_up_to_date_one_after_the_other,
    whoever_waits_for_a_turn_does_not_read_the_whole_line,
    a_hung_build_is_built_again_although_jenkins_fell_silent_after_stopping_it,
    ],
    dynoxide: [
    rule_1_a_conflict_gets_a_fresh_pull_request,
    rule_2_a_branch_behind_a_strict_base_is_updated,
    rule_3_a_lost_agent_is_worth_a_rebuild,
    rule_4_a_broken_test_is_a_persons,
    rule_5_policy_bot_is_woken,
    rule_6_separation_of_duties_is_checked_once_more,
    rule_8_approver_bot_is_woken,
    rule_9_automerge_bot_is_woken,
    rule_9a_checks_that_never_started_are_started,
    rule_9b_a_hung_build_is_stopped_first,
    ]
);

/// A bot that sleeps until it is woken.
fn sleepy() -> FakeSettings {
    let for_ever = 30 * 24 * 3_600_000;
    FakeSettings {
        timing: FakeTiming { asleep_ms: (for_ever, for_ever), ..FakeTiming::default() },
        ..FakeSettings::default()
    }
}

/// A pull request that a fault strikes, and the first remedy claimed for it: the rule's title, the command.
async fn struck(stage: &Testbed, fault: Option<Fault>, minutes: i64) -> (FakePrId, String, &'static str) {
    let pr = stage.open();
    if let Some(fault) = fault {
        stage.with(|world| world.force(fault, &pr));
    }
    let (rule, command) = first_remedy(stage, &pr, minutes).await;
    (pr, rule, command)
}

async fn first_remedy(stage: &Testbed, pr: &FakePrId, minutes: i64) -> (String, &'static str) {
    let claimed = stage.until(minutes, async |stage| !stage.commands().is_empty()).await;
    assert!(claimed, "nothing was claimed: {:?} {:?}", stage.kinds(pr).await, stage.summaries().last());
    let (number, command, _) = stage.commands()[0].clone();
    assert_eq!(number, pr.number);
    let log = stage.log(pr).await;
    let news = [EventKind::RemediationAccepted, EventKind::RemediationEnded];
    let claims = |event: &&Event| event.kind.name().starts_with("REMEDIATION_") && !news.contains(&event.kind);
    let claim = log.iter().find(claims).unwrap();
    (claim.payload.name.clone().unwrap_or_default(), command)
}

/// It is healed: merged, by the automerge bot, without a person.
async fn heals(stage: &Testbed, pr: &FakePrId, minutes: i64) {
    let merged = stage.until(minutes, async |stage| stage.state(pr).await == Some(State::Merged)).await;
    assert!(merged, "{:?} {:?}", stage.state(pr).await, stage.kinds(pr).await);
    assert!(stage.with(|world| world.is_merged(pr)));
    assert_eq!(stage.mails(), []);
}

/// A person is called, by this rule.
async fn calls_a_person(stage: &Testbed, fault: Fault, title: &str) {
    let pr = stage.open();
    stage.with(|world| world.force(fault, &pr));
    let escalated = stage.until(180, async |stage| stage.state(&pr).await == Some(State::NeedsIntervention)).await;
    assert!(escalated, "{:?}", stage.kinds(&pr).await);
    let events = stage.logged(&pr, EventKind::EscalatedNeedsIntervention).await;
    assert_eq!(events[0].payload.name.as_deref(), Some(title));
    assert_eq!(stage.commands(), []);
    let mails = stage.mails();
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
        assert!(mail.body.contains(part), "{part} is not in\n{}", mail.body);
    }
}

async fn rule_1_a_conflict_gets_a_fresh_pull_request(on: On) {
    let stage = on.stage(sleepy(), "").await;
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AutomergeAsleep, &pr));
    assert!(stage.until(60, async |stage| stage.state(&pr).await == Some(State::Approved)).await);
    stage.with(|world| world.conflict(&pr));
    assert_eq!(first_remedy(&stage, &pr, 60).await, ("MERGE CONFLICT DETECTED".to_owned(), "/close-and-reopen"));
    assert!(stage.until(60, async |stage| stage.state(&pr).await == Some(State::Closed)).await);
    let replaced = stage.until(150, async |stage| stage.record(&pr).await.replaced_by.is_some()).await;
    assert!(replaced, "{:?}", stage.kinds(&pr).await);
    let fresh = FakePrId { number: stage.record(&pr).await.replaced_by.unwrap(), ..pr.clone() };
    heals(&stage, &fresh, 120).await;
}

async fn rule_2_a_branch_behind_a_strict_base_is_updated(on: On) {
    let strict = RepoSettings { strict: true, ..RepoSettings::new("acme/payments") };
    let stage = on.stage(FakeSettings { repos: vec![strict], ..sleepy() }, "").await;
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AutomergeAsleep, &pr));
    assert!(stage.until(60, async |stage| stage.state(&pr).await == Some(State::Approved)).await);
    stage.with(|world| world.push_base("acme/payments"));
    assert_eq!(first_remedy(&stage, &pr, 60).await, ("BRANCH BEHIND BASE".to_owned(), "/update-branch"));
    heals(&stage, &pr, 180).await;
}

async fn rule_3_a_lost_agent_is_worth_a_rebuild(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    let (pr, rule, command) = struck(&stage, Some(Fault::AgentLost), 120).await;
    assert_eq!((rule.as_str(), command), ("CHECKS FAILED — TRANSIENT", "/rebuild"));
    heals(&stage, &pr, 120).await;
}

async fn rule_4_a_broken_test_is_a_persons(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    calls_a_person(&stage, Fault::RealTestFailure, "CHECKS FAILED — PERSISTENT").await;
}

async fn rule_5_policy_bot_is_woken(on: On) {
    let stage = on.stage(sleepy(), "").await;
    let (pr, rule, command) = struck(&stage, Some(Fault::PolicyAsleep), 120).await;
    assert_eq!((rule.as_str(), command), ("POLICY BOT STALE", "/recheck-policy"));
    heals(&stage, &pr, 120).await;
}

async fn rule_6_separation_of_duties_is_checked_once_more(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    let (pr, rule, command) = struck(&stage, Some(Fault::SodTiming), 120).await;
    assert_eq!((rule.as_str(), command), ("POLICY FAILED — SOD", "/recheck-sod"));
    heals(&stage, &pr, 120).await;
}

async fn rule_7_a_wrong_policy_is_a_persons(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    calls_a_person(&stage, Fault::PolicyMisconfigured, "POLICY FAILED — OTHER").await;
}

async fn rule_8_approver_bot_is_woken(on: On) {
    let stage = on.stage(sleepy(), "").await;
    let (pr, rule, command) = struck(&stage, Some(Fault::ApproverAsleep), 120).await;
    assert_eq!((rule.as_str(), command), ("APPROVER BOT STALE", "/recheck-approval"));
    heals(&stage, &pr, 120).await;
}

async fn rule_9_automerge_bot_is_woken(on: On) {
    let stage = on.stage(sleepy(), "").await;
    let (pr, rule, command) = struck(&stage, Some(Fault::AutomergeAsleep), 120).await;
    assert_eq!((rule.as_str(), command), ("AUTOMERGE BOT STALE", "/merge"));
    heals(&stage, &pr, 120).await;
}

async fn rule_9a_checks_that_never_started_are_started(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    let (pr, rule, command) = struck(&stage, Some(Fault::JenkinsDeaf), 60).await;
    assert_eq!((rule.as_str(), command), ("CHECKS NEVER STARTED", "/rebuild"));
    heals(&stage, &pr, 120).await;
}

async fn rule_9b_a_hung_build_is_stopped_first(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    let (pr, rule, command) = struck(&stage, Some(Fault::BuildHung), 240).await;
    assert_eq!((rule.as_str(), command), ("CHECKS RUNNING TOO LONG", "/rebuild"));
    let text = stage.logged(&pr, EventKind::RemediationRebuild).await[0].payload.text.clone();
    assert!(text.contains("stopped first"), "{text}");
    heals(&stage, &pr, 120).await;
}

async fn heads_of_one_base_are_brought_up_to_date_one_after_the_other(on: On) {
    let strict = RepoSettings { strict: true, ..RepoSettings::new("acme/payments") };
    let stage = on.stage(FakeSettings { repos: vec![strict], ..FakeSettings::default() }, "").await;
    let prs: Vec<FakePrId> = (0..5).map(|_| stage.open()).collect();
    for pr in &prs {
        heals(&stage, pr, 600).await;
    }
    // Each merge puts the others behind. All at once they would be built ten times, and some be given up.
    let updates = stage
        .with(|world| world.audit().iter().filter(|one| one.action == fakes::AuditedAction::BranchUpdated).count());
    assert_eq!(updates, 4);
}

/// For each that waited, all records of the base were read: a hundred of them cost ten thousand reads, every two minutes.
async fn whoever_waits_for_a_turn_does_not_read_the_whole_line(on: On) {
    let strict = RepoSettings { strict: true, ..RepoSettings::new("acme/payments") };
    let settings = FakeSettings { repos: vec![strict], ..FakeSettings::default() };
    let stage = on.stage(settings, "").await;
    for _ in 0..30 {
        stage.open();
    }
    stage.pass(240).await;
    let waited =
        |summary: &&SweepSummary| summary.skipped.get("turn").is_some_and(|waiting| *waiting == summary.verified);
    let cost = |summary: &SweepSummary| (u64::from(summary.verified), summary.store_requests);
    let summaries = stage.summaries();
    let costs = || summaries.iter().filter(waited).map(cost);
    let (few, many) = (costs().min().unwrap(), costs().max().unwrap());
    assert!(many.0 >= few.0 + 3, "{few:?} {many:?}");
    // Each is written down twice: as GitHub has it, and when it looks again. Whoever read the line would need four requests.
    assert!(many.1 - few.1 < 3 * (many.0 - few.0), "{few:?} {many:?}");
}

async fn a_hung_build_is_built_again_although_jenkins_fell_silent_after_stopping_it(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    let pr = stage.open();
    stage.with(|world| {
        world.force(Fault::BuildHung, &pr);
        // The first thing that is written about it is the order to stop.
        world.force(Fault::AnswerLost, &pr);
    });
    heals(&stage, &pr, 300).await;
    let stopped =
        stage.with(|world| world.audit().iter().filter(|one| one.action == fakes::AuditedAction::BuildStopped).count());
    assert_eq!((stopped, stage.record(&pr).await.lifetime_remedies), (1, 1));
}

/// First heard of after its build had begun, and taken for one without a build: rebuilds were decided and dropped for ever.
async fn rule_9b_a_hung_build_is_found_although_it_began_before_we_knew_its_head(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    let pr = stage.open();
    stage.with(|world| world.force(Fault::BuildHung, &pr));
    stage.sweeping.set(false);
    stage.lose_webhooks(|_, _| true);
    stage.pass(10).await;
    stage.lose_webhooks(|_, _| false);
    stage.with(|world| world.person_labels(&pr, "maria", "security"));
    stage.pass(1).await;
    stage.sweeping.set(true);
    let (rule, command) = first_remedy(&stage, &pr, 240).await;
    assert_eq!((rule.as_str(), command), ("CHECKS RUNNING TOO LONG", "/rebuild"));
    heals(&stage, &pr, 120).await;
    assert_eq!(stage.record(&pr).await.lifetime_remedies, 1, "{:?}", stage.kinds(&pr).await);
}

async fn rule_9b_a_build_whose_report_was_lost_is_done_again(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    let (pr, rule, command) = struck(&stage, Some(Fault::ReportLost), 120).await;
    assert_eq!((rule.as_str(), command), ("CHECKS RUNNING TOO LONG", "/rebuild"));
    heals(&stage, &pr, 120).await;
}

async fn rule_9b_a_jenkins_that_cannot_be_asked_three_times_is_a_persons(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    let pr = stage.open();
    stage.with(|world| world.force(Fault::BuildHung, &pr));
    stage.pass(30).await;
    stage.set_jenkins_down(true);
    let escalated = stage.until(120, async |stage| stage.state(&pr).await == Some(State::NeedsIntervention)).await;
    assert!(escalated, "{:?}", stage.kinds(&pr).await);
    let reason = &stage.logged(&pr, EventKind::EscalatedNeedsIntervention).await[0].payload.text;
    assert!(reason.contains("Jenkins did not answer"), "{reason}");
}

async fn rule_9c_a_merge_that_never_finished_is_begun_again(on: On) {
    let stage = on.stage(sleepy(), "").await;
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AutomergeAsleep, &pr));
    assert!(stage.until(60, async |stage| stage.state(&pr).await == Some(State::Approved)).await);
    let (head, at) = (stage.record(&pr).await.head_sha, stage.now());
    let report = MergeReport { failed: false, text: String::new(), at, renewal: RenewalMark::None };
    let engine = Engine::new(stage.store.clone(), testbed::RecordingPublisher::default(), stage.policies.clone());
    let fact = tests::fact(&pr_id(&pr), "bot-1", at, FactKind::Merge { head, report });
    engine.apply(&fact, at).await.unwrap();
    assert_eq!(stage.state(&pr).await, Some(State::Merging));
    assert_eq!(first_remedy(&stage, &pr, 30).await, ("MERGE NEVER FINISHED".to_owned(), "/merge"));
    heals(&stage, &pr, 60).await;
}

async fn rule_10_what_is_in_its_normal_time_is_left_alone(on: On) {
    let stage = on.stage(FakeSettings::default(), "").await;
    let pr = stage.open();
    heals(&stage, &pr, 60).await;
    assert_eq!(stage.commands(), []);
    assert!(stage.summaries().iter().all(|summary| summary.claims() == 0 && summary.escalated == 0));
}

async fn rule_11_what_no_rule_knows_is_a_persons(on: On) {
    let stage = on.stage(FakeSettings::default(), "policy.extended_rules = false").await;
    let pr = stage.open();
    stage.with(|world| world.force(Fault::JenkinsDeaf, &pr));
    assert!(stage.until(30, async |stage| stage.state(&pr).await == Some(State::NeedsIntervention)).await);
    let events = stage.logged(&pr, EventKind::EscalatedNeedsIntervention).await;
    assert_eq!(events[0].payload.name.as_deref(), Some("FALLTHROUGH"));
}

async fn rule_0_nothing_is_done_while_github_does_not_know(on: On) {
    let stage = on.stage(sleepy(), "").await;
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AutomergeAsleep, &pr));
    assert!(stage.until(60, async |stage| stage.state(&pr).await == Some(State::Approved)).await);
    stage.with(|world| {
        world.force(Fault::MergeableUnknown, &pr);
        world.push_base("acme/payments");
    });
    stage.pass(12).await;
    let before: u32 =
        stage.summaries().iter().map(|summary| summary.skipped.get("no_action").copied().unwrap_or(0)).sum();
    assert!(before > 0 && stage.commands().is_empty(), "{:?} {:?}", stage.commands(), stage.summaries().last());
}

async fn required_checks_may_stand_in_a_ruleset(on: On) {
    let ruled = RepoSettings { protection: ProtectionSource::Ruleset, ..RepoSettings::new("acme/payments") };
    let stage = on.stage(FakeSettings { repos: vec![ruled], ..FakeSettings::default() }, "").await;
    let (pr, rule, _) = struck(&stage, Some(Fault::FlakyTest), 120).await;
    assert_eq!(rule, "CHECKS FAILED — TRANSIENT");
    heals(&stage, &pr, 120).await;
}
