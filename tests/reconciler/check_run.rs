//! The living check run through the whole loop: webhooks, sweeps and the Car Bridge keep it true, people press its buttons, and
//! however a process dies, there is one on each head.

use domain::event::EventKind;
use domain::state::State;
use domain::text::check_run::CHECK_RUN_NAME;
use fakes::{
    AuditedAction, FakeCheckRun, FakePrId, FakeSettings, Fakes, Fault, JenkinsReporting, RepoSettings, RequiredContext,
};
use jiff::SignedDuration;
use testbed::{CallFault, Testbed};

const ON: &str = "[check_run]\nenabled = true";

fn ours(world: &Fakes, pr: &FakePrId) -> Vec<FakeCheckRun> {
    world.check_runs(pr).iter().filter(|run| run.name == CHECK_RUN_NAME).cloned().collect()
}

/// A world whose Jenkins tells GitHub why a build failed.
fn telling() -> FakeSettings {
    let repos = vec![RepoSettings { reports: JenkinsReporting::CheckRun, ..RepoSettings::new("acme/payments") }];
    FakeSettings { repos, ..FakeSettings::default() }
}

/// The one on the head.
fn one(stage: &Testbed, pr: &FakePrId) -> FakeCheckRun {
    let mut runs = stage.with(|world| ours(world, pr));
    assert_eq!(runs.len(), 1, "one on each head: {runs:?}");
    runs.remove(0)
}

fn done(stage: &Testbed, action: AuditedAction) -> usize {
    stage.with(|world| world.audit_by("suture[bot]").filter(|effect| effect.action == action).count())
}

/// A person presses a button, and everything that follows at once happens.
async fn press(stage: &Testbed, pr: &FakePrId, button: &str, by: &str) {
    assert!(
        stage.with(|world| world.person_presses(pr, CHECK_RUN_NAME, button, by)),
        "{button}: {:?}",
        one(stage, pr).actions
    );
    stage.pass(1).await;
}

#[tokio::test]
async fn it_tells_a_life_that_is_healed_and_leaves_no_comment() {
    let stage = Testbed::new(telling(), ON);
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AgentLost, &pr));
    let mut told: Vec<(String, Option<String>, String)> = Vec::new();
    let merged = stage
        .until(240, async |stage| {
            if let [run] = &stage.with(|world| ours(world, &pr))[..] {
                let now = (run.title.clone(), run.conclusion.clone(), run.summary.clone());
                if told.last() != Some(&now) {
                    told.push(now);
                }
            }
            stage.state(&pr).await == Some(State::Merged)
        })
        .await;
    assert!(merged, "{:?}", stage.kinds(&pr).await);
    stage.pass(2).await;
    let last = one(&stage, &pr);
    assert_eq!((last.title.as_str(), last.conclusion.as_deref()), ("It is merged", Some("success")));
    assert_eq!(last.actions, Vec::<String>::new());
    let titles: Vec<&str> = told.iter().map(|(title, ..)| title.as_str()).collect();
    for title in ["Checks are running", "Checks failed", "Checks are running; remedy in progress: run the checks again"]
    {
        assert!(titles.contains(&title), "{title}: {titles:?}");
    }
    assert!(told.iter().all(|(_, conclusion, _)| conclusion.is_some()), "nothing ever waits for it: {told:?}");
    let failed = told.iter().find(|(title, ..)| title == "Checks failed").unwrap();
    for part in [
        "**CHECKS_FAILED** (TRANSIENT)",
        "transient by rule",
        "Suture will run the checks again at 2",
        "rebuild 3 of 3",
        "12 of 12",
    ] {
        assert!(failed.2.contains(part), "{part}: {}", failed.2);
    }
    assert_eq!((done(&stage, AuditedAction::CheckRunCreated), done(&stage, AuditedAction::CommentCreated)), (1, 0));
    println!(
        "{} updates in a life of {} events",
        done(&stage, AuditedAction::CheckRunUpdated),
        stage.log(&pr).await.len()
    );
    assert!(done(&stage, AuditedAction::CheckRunUpdated) <= 14, "{}", done(&stage, AuditedAction::CheckRunUpdated));
}

#[tokio::test]
async fn off_means_off() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = stage.open();
    stage.pass(60).await;
    assert_eq!(stage.state(&pr).await, Some(State::Merged));
    assert_eq!(done(&stage, AuditedAction::CheckRunCreated), 0);
}

#[tokio::test]
async fn it_is_changed_only_on_change() {
    let stage = Testbed::new(FakeSettings::default(), &format!("{ON}\n[thresholds_minutes]\nchecks_running = 600"));
    let pr = stage.open();
    stage.with(|world| world.force(Fault::BuildHung, &pr));
    stage.pass(10).await;
    let (before, text) = (done(&stage, AuditedAction::CheckRunUpdated), one(&stage, &pr).summary);
    for _ in 0..10 {
        stage.with(|world| world.push_base("acme/payments"));
        stage.pass(5).await;
    }
    assert!(stage.logged(&pr, EventKind::BaseMoved).await.len() >= 5, "it was written, and asked GitHub about");
    assert_eq!((done(&stage, AuditedAction::CheckRunUpdated), one(&stage, &pr).summary), (before, text));
}

#[tokio::test]
async fn a_person_who_is_needed_is_called_there_and_by_mail_and_nowhere_else() {
    let stage = Testbed::new(FakeSettings::default(), ON);
    let pr = stage.open();
    stage.with(|world| world.force(Fault::RealTestFailure, &pr));
    assert!(stage.until(180, async |stage| stage.state(&pr).await == Some(State::NeedsIntervention)).await);
    stage.pass(1).await;
    let run = one(&stage, &pr);
    assert_eq!((run.conclusion.as_deref(), run.title.as_str()), (Some("action_required"), "A person is needed"));
    assert!(run.summary.contains("Rule 4 (CHECKS FAILED — PERSISTENT)"), "{}", run.summary);
    assert_eq!((stage.mails().len(), done(&stage, AuditedAction::CommentCreated)), (1, 0));
    // A push is a new head, with a check run of its own.
    stage.with(|world| world.person_pushes(&pr, "danny"));
    stage.pass(3).await;
    let fresh = one(&stage, &pr);
    assert_ne!(fresh.id, run.id);
    assert_eq!(fresh.conclusion.as_deref(), Some("neutral"), "{fresh:?}");
    assert_eq!(done(&stage, AuditedAction::CheckRunCreated), 2);
}

#[tokio::test]
async fn a_press_is_a_command_with_the_usual_permission() {
    let stage = Testbed::new(telling(), &format!("{ON}\n[thresholds_minutes]\nchecks_failed = 600"));
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AgentLost, &pr));
    assert!(stage.until(60, async |stage| stage.state(&pr).await == Some(State::ChecksFailed)).await);
    stage.pass(1).await;
    assert_eq!(one(&stage, &pr).actions, ["rebuild", "hold", "explain"]);

    press(&stage, &pr, "hold", "guest").await;
    assert!(!stage.record(&pr).await.hold, "reading is not enough");
    let text = one(&stage, &pr).summary;
    assert!(text.contains("guest asked for `/hold`, but Suture refused: `/hold` needs write permission"), "{text}");

    press(&stage, &pr, "hold", "danny").await;
    assert!(stage.record(&pr).await.hold);
    assert_eq!(one(&stage, &pr).actions, ["rebuild", "resume", "explain"]);
    press(&stage, &pr, "resume", "danny").await;
    assert!(!stage.record(&pr).await.hold);
    press(&stage, &pr, "explain", "danny").await;
    let text = one(&stage, &pr).summary;
    assert!(text.contains("danny asked for `/explain`.") && text.contains("Rule 3"), "{text}");

    press(&stage, &pr, "rebuild", "danny").await;
    let asked = stage.logged(&pr, EventKind::CommandReceived).await;
    let said: Vec<_> = asked.iter().map(|event| (event.payload.by.as_deref(), event.payload.name.as_deref())).collect();
    assert_eq!(said.last(), Some(&(Some("danny"), Some("/rebuild"))), "{said:?}");
    assert!(stage.until(120, async |stage| stage.state(&pr).await == Some(State::Merged)).await);
    assert_eq!(stage.record(&pr).await.retry_counts.rebuild, 0, "a person's rebuild spends no budget");
    assert_eq!((done(&stage, AuditedAction::CommentCreated), done(&stage, AuditedAction::ReactionAdded)), (0, 0));
    assert!(!stage.with(|world| world.person_presses(&pr, CHECK_RUN_NAME, "rebuild", "danny")), "merged: no buttons");
}

#[tokio::test]
async fn a_press_that_github_delivers_twice_is_one() {
    let stage = Testbed::new(FakeSettings::default(), ON);
    let pr = stage.open();
    stage.with(|world| world.force(Fault::BuildHung, &pr));
    stage.pass(5).await;
    stage.with(|world| world.force(Fault::WebhookDoubled, &pr));
    press(&stage, &pr, "hold", "danny").await;
    stage.pass(5).await;
    assert_eq!(stage.logged(&pr, EventKind::CommandReceived).await.len(), 1);
}

#[tokio::test]
async fn it_is_never_a_signal_not_even_where_the_base_requires_it() {
    let contexts = ["continuous-integration/jenkins/pr-merge", "policy-bot: main", CHECK_RUN_NAME];
    let required = contexts.map(|context| RequiredContext { context: context.to_owned(), app_id: None }).to_vec();
    let repos = vec![RepoSettings { required, ..RepoSettings::new("acme/payments") }];
    let stage = Testbed::new(FakeSettings { repos, ..FakeSettings::default() }, ON);
    let pr = stage.open();
    stage.with(|world| world.force(Fault::PolicyAsleep, &pr));
    let merged = stage
        .until(240, async |stage| {
            if let Some(record) = stage.find(&pr).await {
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
            stage.state(&pr).await == Some(State::Merged)
        })
        .await;
    assert!(merged, "{:?}", stage.kinds(&pr).await);
    assert!(!stage.logged(&pr, EventKind::RemediationRetriggerPolicy).await.is_empty(), "it was swept and verified");
}

/// From its opening to its failure, the process is stopped at every call, in each of three ways.
#[tokio::test]
async fn however_a_process_dies_there_is_one_and_it_tells_the_truth() {
    let play = async |stop: Option<(usize, CallFault)>| {
        let stage = Testbed::new(FakeSettings::default(), ON);
        let pr = stage.open();
        stage.with(|world| world.force(Fault::RealTestFailure, &pr));
        stage.faults.count_anew();
        stage.faults.take_names();
        if let Some((at, how)) = stop {
            stage.faults.plan(at + 1, how);
        }
        for _ in 0..6 {
            stage.with(|world| world.advance(SignedDuration::from_secs(30)));
            stage.settle().await;
        }
        let names = stage.faults.take_names();
        stage.faults.restart();
        stage.pass(40).await;
        (stage, pr, names)
    };
    let (stage, pr, names) = play(None).await;
    let expected = one(&stage, &pr);
    let mut points = 0;
    for (at, name) in names.iter().enumerate() {
        for how in CallFault::CRASHES {
            let (stage, pr, _) = play(Some((at, how))).await;
            let found = one(&stage, &pr);
            assert_eq!((&found.title, &found.conclusion), (&expected.title, &expected.conclusion), "{how:?} {name}");
            assert_eq!(done(&stage, AuditedAction::CheckRunCreated), 1, "{how:?} {name}");
            points += 1;
        }
    }
    println!("{points} points");
    assert!(points > 60, "{points}");
}
