//! What a sweep sends once more says what was said the first time.

use domain::command::CommandMessage;
use domain::state::State;
use fakes::{AuditedAction, FakeSettings, Fault};
use jiff::SignedDuration;
use platform::publish::queue_message::QueueMessage;
use testbed::{CallFault, Testbed};

fn commands(stage: &Testbed) -> Vec<CommandMessage> {
    let commands = stage.publisher.messages().into_iter().filter_map(|(_, message)| match message {
        QueueMessage::Command(command) => Some(command),
        QueueMessage::Fact(_) | QueueMessage::Chore(_) => None,
    });
    commands.collect()
}

#[tokio::test]
async fn a_rebuild_that_is_sent_again_still_stops_the_hung_build_first() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = stage.open();
    stage.with(|world| world.force(Fault::BuildHung, &pr));
    stage.bridging.set(false);
    assert!(stage.until(240, async |stage| !stage.commands().is_empty()).await);
    stage.publisher.lose_queue();
    stage.pass(3).await;
    let sent = commands(&stage);
    assert!(sent.len() >= 2, "{sent:?}");
    assert_eq!(sent[0].args.as_deref(), Some(CommandMessage::STOP_FIRST));
    for again in &sent[1..] {
        assert_eq!(*again, sent[0], "the same message");
    }
    stage.bridging.set(true);
    let merged = stage.until(180, async |stage| stage.state(&pr).await == Some(State::Merged)).await;
    assert!(merged, "{:?}", stage.kinds(&pr).await);
    let stopped =
        stage.with(|world| world.audit().iter().filter(|one| one.action == AuditedAction::BuildStopped).count());
    assert_eq!(stopped, 1);
}

/// The Car Bridge dies at each of its calls, and the message with it; the sweep finds the run. The person is answered as if nothing
/// had happened.
#[tokio::test]
async fn a_persons_command_that_is_sent_again_is_the_same_command() {
    for call in 0..40 {
        let stage = Testbed::new(FakeSettings::default(), "");
        let pr = stage.open();
        stage.with(|world| world.force(Fault::JenkinsDeaf, &pr));
        stage.pass(2).await;
        stage.sweeping.set(false);
        stage.with(|world| world.person_comments(&pr, "maria", "/rebuild"));
        stage.bridging.set(false);
        stage.with(|world| world.advance(SignedDuration::from_secs(5)));
        stage.settle().await;
        let asked = commands(&stage).remove(0);
        stage.faults.plan(call + 1, CallFault::After);
        stage.bridging.set(true);
        stage.settle().await;
        let over = !stage.faults.struck();
        stage.faults.restart();
        stage.publisher.lose_queue();
        stage.sweeping.set(true);
        stage.pass(120).await;
        let said: Vec<String> = stage.with(|world| {
            let ours = world.comments(&pr).filter(|comment| comment.user.contains("suture"));
            ours.map(|comment| comment.body.clone()).collect()
        });
        assert_eq!(said, Vec::<String>::new(), "call {call}: nobody is refused what is done");
        for again in commands(&stage).iter().filter(|again| again.source == asked.source) {
            let same = CommandMessage { run_id: again.run_id.clone(), ..asked.clone() };
            assert_eq!(*again, same, "call {call}");
        }
        assert_eq!(stage.state(&pr).await, Some(State::Merged), "call {call}: {:?}", stage.kinds(&pr).await);
        if over {
            assert!(call > 8, "{call}");
            return;
        }
    }
    panic!("a command takes more than 40 calls");
}

/// A build that waits long for an executor, and a look at it every two minutes.
fn queueing() -> FakeSettings {
    let timing = fakes::FakeTiming { queue_ms: (900_000, 900_000), ..fakes::FakeTiming::default() };
    let reports = fakes::JenkinsReporting::CheckRun;
    FakeSettings {
        timing,
        repos: vec![fakes::RepoSettings { reports, ..fakes::RepoSettings::new("acme/payments") }],
        ..FakeSettings::default()
    }
}

/// Its checks have not started in time, so a build is asked for: the one that waits already is found, and followed.
async fn ordered(stage: &Testbed) -> (fakes::FakePrId, domain::id::RunId) {
    let pr = stage.open();
    assert!(stage.until(180, async |stage| !stage.commands().is_empty()).await, "{:?}", stage.kinds(&pr).await);
    stage.pass(1).await;
    let run = commands(stage)[0].run_id.clone().unwrap();
    (pr, run)
}

async fn run_of(stage: &Testbed, run: &domain::id::RunId) -> domain::run::Run {
    platform::queries::runs(&stage.store, std::slice::from_ref(run), stage.now()).await.unwrap().remove(0)
}

#[tokio::test]
async fn an_order_taken_out_of_jenkins_queue_fails_at_once_and_is_given_again() {
    let stage = Testbed::new(queueing(), "");
    let (pr, run) = ordered(&stage).await;
    let waiting = run_of(&stage, &run).await;
    assert_eq!(waiting.state, domain::run::RunState::WaitingExternal);
    assert!(stage.with(|world| world.person_cancels_queued(&pr)));
    stage.pass(4).await;
    let failed = run_of(&stage, &run).await;
    assert_eq!(failed.state, domain::run::RunState::Failed, "{failed:?}");
    assert!(failed.error.as_deref().is_some_and(|why| why.contains("Jenkins queue item")), "{failed:?}");
    assert!(stage.now() < waiting.wait_deadline.unwrap(), "long before its deadline");
    let merged = stage.until(240, async |stage| stage.state(&pr).await == Some(State::Merged)).await;
    assert!(merged, "{:?}", stage.kinds(&pr).await);
    assert!(stage.record(&pr).await.lifetime_remedies >= 2);
    assert_eq!(stage.mails(), []);
}

#[tokio::test]
async fn what_an_order_has_become_is_written_down() {
    let stage = Testbed::new(queueing(), "");
    let (pr, run) = ordered(&stage).await;
    stage.pass(3).await;
    let seen = run_of(&stage, &run).await.step("queue").unwrap().output.clone().unwrap();
    assert!(seen.starts_with("queue item ") && seen.ends_with("Waiting for next available executor"), "{seen}");
    // While Jenkins cannot be asked, nothing is known, and nothing fails.
    stage.set_jenkins_down(true);
    stage.pass(3).await;
    assert_eq!(run_of(&stage, &run).await.state, domain::run::RunState::WaitingExternal);
    stage.set_jenkins_down(false);
    // The report that the build began is lost; the look finds it.
    stage.lose_webhooks(|_, _| true);
    stage.pass(20).await;
    let seen = run_of(&stage, &run).await.step("queue").unwrap().output.clone().unwrap();
    assert_eq!(seen, "build 1", "{:?}", stage.kinds(&pr).await);
}
