//! Suture's check run, end to end: webhooks, sweeps and the Car Bridge update it, its action buttons are commands, and a crash at
//! any call still leaves exactly one check run per head commit.

use domain::event::EventKind;
use domain::state::State;
use domain::text::check_run::CHECK_RUN_NAME;
use fakes::{
    AuditedAction, FakeCheckRun, FakePrId, FakeSettings, Fakes, Fault, JenkinsReporting, RepoSettings, RequiredContext,
};
use jiff::SignedDuration;
use testbed::{CallFault, Testbed};

const ENABLED: &str = "[check_run]\nenabled = true";

fn suture_check_runs(fakes: &Fakes, pr: &FakePrId) -> Vec<FakeCheckRun> {
    fakes.check_runs(pr).iter().filter(|run| run.name == CHECK_RUN_NAME).cloned().collect()
}

/// Jenkins publishes its build result as a check run, with the failure text.
fn jenkins_reports_check_runs() -> FakeSettings {
    let repos = vec![RepoSettings { reports: JenkinsReporting::CheckRun, ..RepoSettings::new("acme/payments") }];
    FakeSettings { repos, ..FakeSettings::default() }
}

/// Suture's check run on the head commit; panics unless there is exactly one.
fn head_check_run(testbed: &Testbed, pr: &FakePrId) -> FakeCheckRun {
    let mut runs = testbed.with(|fakes| suture_check_runs(fakes, pr));
    assert_eq!(runs.len(), 1, "expected one check run on the head: {runs:?}");
    runs.remove(0)
}

fn count_actions(testbed: &Testbed, action: AuditedAction) -> usize {
    testbed.with(|fakes| fakes.audit_by("suture[bot]").filter(|effect| effect.action == action).count())
}

/// A person presses an action button of the check run; one minute passes.
async fn press_button(testbed: &Testbed, pr: &FakePrId, button: &str, by: &str) {
    assert!(
        testbed.with(|fakes| fakes.person_presses(pr, CHECK_RUN_NAME, button, by)),
        "{button}: {:?}",
        head_check_run(testbed, pr).actions
    );
    testbed.pass(1).await;
}

#[tokio::test]
async fn check_run_shows_each_state_until_merge_without_comments() {
    let testbed = Testbed::new(jenkins_reports_check_runs(), ENABLED);
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AgentLost, &pr));
    let mut shown: Vec<(String, Option<String>, String)> = Vec::new();
    let merged = testbed
        .until(240, async |testbed| {
            if let [run] = &testbed.with(|fakes| suture_check_runs(fakes, &pr))[..] {
                let now = (run.title.clone(), run.conclusion.clone(), run.summary.clone());
                if shown.last() != Some(&now) {
                    shown.push(now);
                }
            }
            testbed.state(&pr).await == Some(State::Merged)
        })
        .await;
    assert!(merged, "{:?}", testbed.kinds(&pr).await);
    testbed.pass(2).await;
    let last = head_check_run(&testbed, &pr);
    assert_eq!((last.title.as_str(), last.conclusion.as_deref()), ("It is merged", Some("success")));
    assert_eq!(last.actions, Vec::<String>::new());
    let titles: Vec<&str> = shown.iter().map(|(title, ..)| title.as_str()).collect();
    for title in ["Checks are running", "Checks failed", "Checks are running; remedy in progress: run the checks again"]
    {
        assert!(titles.contains(&title), "{title}: {titles:?}");
    }
    assert!(
        shown.iter().all(|(_, conclusion, _)| conclusion.is_some()),
        "the check run always has a conclusion, so it blocks no merge: {shown:?}"
    );
    let failed = shown.iter().find(|(title, ..)| title == "Checks failed").unwrap();
    for part in [
        "**CHECKS_FAILED** (TRANSIENT)",
        "transient by rule",
        "Suture will run the checks again at 2",
        "rebuild 3 of 3",
        "12 of 12",
    ] {
        assert!(failed.2.contains(part), "{part}: {}", failed.2);
    }
    assert_eq!(
        (
            count_actions(&testbed, AuditedAction::CheckRunCreated),
            count_actions(&testbed, AuditedAction::CommentCreated)
        ),
        (1, 0)
    );
    println!(
        "{} check run updates for {} events",
        count_actions(&testbed, AuditedAction::CheckRunUpdated),
        testbed.log(&pr).await.len()
    );
    assert!(
        count_actions(&testbed, AuditedAction::CheckRunUpdated) <= 14,
        "{}",
        count_actions(&testbed, AuditedAction::CheckRunUpdated)
    );
}

#[tokio::test]
async fn check_run_is_not_created_when_disabled() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = testbed.open();
    testbed.pass(60).await;
    assert_eq!(testbed.state(&pr).await, Some(State::Merged));
    assert_eq!(count_actions(&testbed, AuditedAction::CheckRunCreated), 0);
}

#[tokio::test]
async fn check_run_is_updated_only_on_change() {
    let testbed =
        Testbed::new(FakeSettings::default(), &format!("{ENABLED}\n[thresholds_minutes]\nchecks_running = 600"));
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::BuildHung, &pr));
    testbed.pass(10).await;
    let (before, text) =
        (count_actions(&testbed, AuditedAction::CheckRunUpdated), head_check_run(&testbed, &pr).summary);
    for _ in 0..10 {
        testbed.with(|fakes| fakes.push_base("acme/payments"));
        testbed.pass(5).await;
    }
    assert!(testbed.logged(&pr, EventKind::BaseMoved).await.len() >= 5, "the record changed and was verified");
    assert_eq!(
        (count_actions(&testbed, AuditedAction::CheckRunUpdated), head_check_run(&testbed, &pr).summary),
        (before, text)
    );
}

#[tokio::test]
async fn escalation_sets_action_required_and_sends_one_mail_without_comment() {
    let testbed = Testbed::new(FakeSettings::default(), ENABLED);
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::RealTestFailure, &pr));
    assert!(testbed.until(180, async |testbed| testbed.state(&pr).await == Some(State::NeedsIntervention)).await);
    testbed.pass(1).await;
    let run = head_check_run(&testbed, &pr);
    assert_eq!((run.conclusion.as_deref(), run.title.as_str()), (Some("action_required"), "A person is needed"));
    assert!(run.summary.contains("Rule 4 (CHECKS FAILED — PERSISTENT)"), "{}", run.summary);
    assert_eq!((testbed.mails().len(), count_actions(&testbed, AuditedAction::CommentCreated)), (1, 0));
    // A push creates a new head commit with its own check run.
    testbed.with(|fakes| fakes.person_pushes(&pr, "danny"));
    testbed.pass(3).await;
    let fresh = head_check_run(&testbed, &pr);
    assert_ne!(fresh.id, run.id);
    assert_eq!(fresh.conclusion.as_deref(), Some("neutral"), "{fresh:?}");
    assert_eq!(count_actions(&testbed, AuditedAction::CheckRunCreated), 2);
}

#[tokio::test]
async fn check_run_action_requires_write_permission() {
    let testbed =
        Testbed::new(jenkins_reports_check_runs(), &format!("{ENABLED}\n[thresholds_minutes]\nchecks_failed = 600"));
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AgentLost, &pr));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::ChecksFailed)).await);
    testbed.pass(1).await;
    assert_eq!(head_check_run(&testbed, &pr).actions, ["rebuild", "hold", "explain"]);

    press_button(&testbed, &pr, "hold", "guest").await;
    assert!(!testbed.record(&pr).await.hold, "read permission is not enough");
    let text = head_check_run(&testbed, &pr).summary;
    assert!(text.contains("guest asked for `/hold`, but Suture refused: `/hold` needs write permission"), "{text}");

    press_button(&testbed, &pr, "hold", "danny").await;
    assert!(testbed.record(&pr).await.hold);
    assert_eq!(head_check_run(&testbed, &pr).actions, ["rebuild", "resume", "explain"]);
    press_button(&testbed, &pr, "resume", "danny").await;
    assert!(!testbed.record(&pr).await.hold);
    press_button(&testbed, &pr, "explain", "danny").await;
    let text = head_check_run(&testbed, &pr).summary;
    assert!(text.contains("danny asked for `/explain`.") && text.contains("Rule 3"), "{text}");

    press_button(&testbed, &pr, "rebuild", "danny").await;
    let received = testbed.logged(&pr, EventKind::CommandReceived).await;
    let commands: Vec<_> =
        received.iter().map(|event| (event.payload.by.as_deref(), event.payload.name.as_deref())).collect();
    assert_eq!(commands.last(), Some(&(Some("danny"), Some("/rebuild"))), "{commands:?}");
    assert!(testbed.until(120, async |testbed| testbed.state(&pr).await == Some(State::Merged)).await);
    assert_eq!(testbed.record(&pr).await.retry_counts.rebuild, 0, "a rebuild requested by a person uses no budget");
    assert_eq!(
        (count_actions(&testbed, AuditedAction::CommentCreated), count_actions(&testbed, AuditedAction::ReactionAdded)),
        (0, 0)
    );
    assert!(
        !testbed.with(|fakes| fakes.person_presses(&pr, CHECK_RUN_NAME, "rebuild", "danny")),
        "a merged pull request has no buttons"
    );
}

#[tokio::test]
async fn duplicate_action_delivery_runs_command_once() {
    let testbed = Testbed::new(FakeSettings::default(), ENABLED);
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::BuildHung, &pr));
    testbed.pass(5).await;
    testbed.with(|fakes| fakes.force(Fault::WebhookDoubled, &pr));
    press_button(&testbed, &pr, "hold", "danny").await;
    testbed.pass(5).await;
    assert_eq!(testbed.logged(&pr, EventKind::CommandReceived).await.len(), 1);
}

#[tokio::test]
async fn own_check_run_is_never_a_signal_even_if_required() {
    let contexts = ["continuous-integration/jenkins/pr-merge", "policy-bot: main", CHECK_RUN_NAME];
    let required = contexts.map(|context| RequiredContext { context: context.to_owned(), app_id: None }).to_vec();
    let repos = vec![RepoSettings { required, ..RepoSettings::new("acme/payments") }];
    let testbed = Testbed::new(FakeSettings { repos, ..FakeSettings::default() }, ENABLED);
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::PolicyAsleep, &pr));
    let merged = testbed
        .until(240, async |testbed| {
            if let Some(record) = testbed.find(&pr).await {
                assert!(
                    record.signals.checks.iter().all(|check| check.name != CHECK_RUN_NAME),
                    "{:?}",
                    record.signals.checks
                );
                assert!(
                    record.required_checks.iter().all(|name| name != CHECK_RUN_NAME),
                    "{:?}",
                    record.required_checks
                );
            }
            testbed.state(&pr).await == Some(State::Merged)
        })
        .await;
    assert!(merged, "{:?}", testbed.kinds(&pr).await);
    assert!(
        !testbed.logged(&pr, EventKind::RemediationRetriggerPolicy).await.is_empty(),
        "the pull request was swept and verified"
    );
}

/// Crashes the process at every call between opening and failing checks, in each of three ways.
#[tokio::test]
async fn crash_at_any_call_leaves_one_correct_check_run() {
    let simulate = async |stop: Option<(usize, CallFault)>| {
        let testbed = Testbed::new(FakeSettings::default(), ENABLED);
        let pr = testbed.open();
        testbed.with(|fakes| fakes.force(Fault::RealTestFailure, &pr));
        testbed.faults.count_anew();
        testbed.faults.take_names();
        if let Some((at, fault)) = stop {
            testbed.faults.plan(at + 1, fault);
        }
        for _ in 0..6 {
            testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(30)));
            testbed.settle().await;
        }
        let names = testbed.faults.take_names();
        testbed.faults.restart();
        testbed.pass(40).await;
        (testbed, pr, names)
    };
    let (testbed, pr, names) = simulate(None).await;
    let expected = head_check_run(&testbed, &pr);
    let mut points = 0;
    for (at, name) in names.iter().enumerate() {
        for fault in CallFault::CRASHES {
            let (testbed, pr, _) = simulate(Some((at, fault))).await;
            let found = head_check_run(&testbed, &pr);
            assert_eq!((&found.title, &found.conclusion), (&expected.title, &expected.conclusion), "{fault:?} {name}");
            assert_eq!(count_actions(&testbed, AuditedAction::CheckRunCreated), 1, "{fault:?} {name}");
            points += 1;
        }
    }
    println!("{points} crash points");
    assert!(points > 60, "{points}");
}
