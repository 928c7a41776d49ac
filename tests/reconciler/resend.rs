//! A command message that a sweep resends equals the original.

use domain::command::CommandMessage;
use domain::state::State;
use fakes::{AuditedAction, FakeSettings, Fault};
use jiff::SignedDuration;
use platform::publish::queue_message::QueueMessage;
use testbed::{CallFault, Testbed};

fn commands(testbed: &Testbed) -> Vec<CommandMessage> {
    let commands = testbed.publisher.messages().into_iter().filter_map(|(_, message)| match message {
        QueueMessage::Command(command) => Some(command),
        QueueMessage::Fact(_) | QueueMessage::Task(_) => None,
    });
    commands.collect()
}

#[tokio::test]
async fn resent_rebuild_still_stops_hung_build_first() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::BuildHung, &pr));
    testbed.bridging.set(false);
    assert!(testbed.until(240, async |testbed| !testbed.commands().is_empty()).await);
    testbed.publisher.lose_queue();
    testbed.pass(3).await;
    let sent = commands(&testbed);
    assert!(sent.len() >= 2, "{sent:?}");
    assert_eq!(sent[0].args.as_deref(), Some(CommandMessage::STOP_FIRST));
    for resent in &sent[1..] {
        assert_eq!(*resent, sent[0], "the same message");
    }
    testbed.bridging.set(true);
    let merged = testbed.until(180, async |testbed| testbed.state(&pr).await == Some(State::Merged)).await;
    assert!(merged, "{:?}", testbed.kinds(&pr).await);
    let stopped =
        testbed.with(|fakes| fakes.audit().iter().filter(|entry| entry.action == AuditedAction::BuildStopped).count());
    assert_eq!(stopped, 1);
}

/// The Car Bridge crashes at each of its calls and the message is lost; the sweep finds the run and resends the command. The
/// command completes without a refusal.
#[tokio::test]
async fn resent_user_command_is_unchanged() {
    for call in 0..40 {
        let testbed = Testbed::new(FakeSettings::default(), "");
        let pr = testbed.open();
        testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, &pr));
        testbed.pass(2).await;
        testbed.sweeping.set(false);
        testbed.with(|fakes| fakes.person_comments(&pr, "maria", "/rebuild"));
        testbed.bridging.set(false);
        testbed.with(|fakes| fakes.advance(SignedDuration::from_secs(5)));
        testbed.settle().await;
        let first_command = commands(&testbed).remove(0);
        testbed.faults.plan(call + 1, CallFault::After);
        testbed.bridging.set(true);
        testbed.settle().await;
        let finished = !testbed.faults.struck();
        testbed.faults.restart();
        testbed.publisher.lose_queue();
        testbed.sweeping.set(true);
        testbed.pass(120).await;
        let comments: Vec<String> = testbed.with(|fakes| {
            let ours = fakes.comments(&pr).filter(|comment| comment.user.contains("suture"));
            ours.map(|comment| comment.body.clone()).collect()
        });
        assert_eq!(comments, Vec::<String>::new(), "call {call}: no refusal is posted");
        for resent in commands(&testbed).iter().filter(|resent| resent.source == first_command.source) {
            let same = CommandMessage { run_id: resent.run_id.clone(), resent: resent.resent, ..first_command.clone() };
            assert_eq!(*resent, same, "call {call}");
        }
        assert_eq!(testbed.state(&pr).await, Some(State::Merged), "call {call}: {:?}", testbed.kinds(&pr).await);
        if finished {
            assert!(call > 8, "{call}");
            return;
        }
    }
    panic!("a command takes more than 40 calls");
}

/// Builds wait 15 minutes for an executor.
fn slow_queue() -> FakeSettings {
    let timing = fakes::FakeTiming { queue_ms: (900_000, 900_000), ..fakes::FakeTiming::default() };
    let reports = fakes::JenkinsReporting::CheckRun;
    FakeSettings {
        timing,
        repos: vec![fakes::RepoSettings { reports, ..fakes::RepoSettings::new("acme/payments") }],
        ..FakeSettings::default()
    }
}

/// The checks do not start in time, so a rebuild is claimed; it finds the waiting queue item and follows it.
async fn open_with_queued_build(testbed: &Testbed) -> (fakes::FakePrId, domain::id::RunId) {
    let pr = testbed.open();
    assert!(testbed.until(180, async |testbed| !testbed.commands().is_empty()).await, "{:?}", testbed.kinds(&pr).await);
    testbed.pass(1).await;
    let run = commands(testbed)[0].run_id.clone().unwrap();
    (pr, run)
}

async fn run_of(testbed: &Testbed, run: &domain::id::RunId) -> domain::run::Run {
    platform::store::queries::runs(&testbed.store, std::slice::from_ref(run), testbed.now()).await.unwrap().remove(0)
}

#[tokio::test]
async fn cancelled_queue_item_fails_run_at_once_and_is_retried() {
    let testbed = Testbed::new(slow_queue(), "");
    let (pr, run) = open_with_queued_build(&testbed).await;
    let waiting = run_of(&testbed, &run).await;
    assert_eq!(waiting.state, domain::run::RunState::WaitingExternal);
    assert!(testbed.with(|fakes| fakes.person_cancels_queued(&pr)));
    testbed.pass(4).await;
    let failed = run_of(&testbed, &run).await;
    assert_eq!(failed.state, domain::run::RunState::Failed, "{failed:?}");
    assert!(failed.error.as_deref().is_some_and(|why| why.contains("Jenkins queue item")), "{failed:?}");
    assert!(testbed.now() < waiting.wait_deadline.unwrap(), "the run fails before its deadline");
    let merged = testbed.until(240, async |testbed| testbed.state(&pr).await == Some(State::Merged)).await;
    assert!(merged, "{:?}", testbed.kinds(&pr).await);
    assert!(testbed.record(&pr).await.lifetime_remedies >= 2);
    assert_eq!(testbed.mails(), []);
}

#[tokio::test]
async fn queue_item_progress_is_recorded_on_the_run() {
    let testbed = Testbed::new(slow_queue(), "");
    let (pr, run) = open_with_queued_build(&testbed).await;
    testbed.pass(3).await;
    let output = run_of(&testbed, &run).await.step("queue").unwrap().output.clone().unwrap();
    assert!(output.starts_with("queue item ") && output.ends_with("Waiting for next available executor"), "{output}");
    // While Jenkins is down, the run keeps waiting and does not fail.
    testbed.set_jenkins_down(true);
    testbed.pass(3).await;
    assert_eq!(run_of(&testbed, &run).await.state, domain::run::RunState::WaitingExternal);
    testbed.set_jenkins_down(false);
    // The webhook of the build start is lost; polling finds the build.
    testbed.lose_webhooks(|_, _| true);
    testbed.pass(20).await;
    let output = run_of(&testbed, &run).await.step("queue").unwrap().output.clone().unwrap();
    assert_eq!(output, "build 1", "{:?}", testbed.kinds(&pr).await);
}
