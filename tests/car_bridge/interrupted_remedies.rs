//! Remedies that are stopped after their first step outside: by a pause, an open breaker, observe mode, a crash, or a target
//! that does not answer. What was begun is finished, or a person is called.

use domain::id::RunId;
use domain::run::RunState;
use domain::state::{State, Substatus};
use fakes::{AuditedAction, FakePrId, FakeSettings, Fault};
use platform::store::breaker::{self, RemedyOutcome};
use platform::store::pause;
use testbed::{CallFault, Testbed};

use crate::codegenie_requests::{assert_replaced, closing, count, replies};

/// What stops Suture between closing a pull request and asking for its replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Pause,
    Breaker,
    ObserveMode,
}

impl Stop {
    async fn begin(self, testbed: &mut Testbed) {
        match self {
            Self::Pause => drop(pause::pause(&testbed.store, "ops", testbed.now(), testbed.now()).await.unwrap()),
            Self::Breaker => {
                for n in 0..6 {
                    let run = RunId::new(format!("other-{n}"));
                    breaker::count_outcome(&testbed.store, &run, RemedyOutcome::Failed, testbed.now()).await.unwrap();
                }
                let settings = testbed.policies.base().breaker.clone();
                breaker::evaluate(&testbed.store, &settings, testbed.now()).await.unwrap().unwrap();
            }
            Self::ObserveMode => testbed.reconfigure("mode = \"observe\""),
        }
    }

    async fn end(self, testbed: &mut Testbed) {
        match self {
            Self::Pause => drop(pause::unpause(&testbed.store, testbed.now(), testbed.now()).await.unwrap()),
            Self::Breaker => drop(breaker::reset(&testbed.store, testbed.now()).await.unwrap()),
            Self::ObserveMode => testbed.reconfigure("mode = \"act\""),
        }
    }
}

/// The closed pull request of a close-and-reopen whose request to CodeGenie does not leave the Car Bridge.
async fn closed_without_request(testbed: &Testbed, command: bool) -> FakePrId {
    testbed.faults.fail_calls("#ask", true);
    let pr = closing(testbed, command).await;
    let closed = testbed.until(30, async |testbed| testbed.state(&pr).await == Some(State::Closed)).await;
    assert!(closed, "{:?}", testbed.kinds(&pr).await);
    assert_eq!((count(testbed, AuditedAction::PullClosed), count(testbed, AuditedAction::BusEvent)), (1, 0));
    testbed.faults.fail_calls("#ask", false);
    pr
}

/// Regression: the run was dropped, the pull request stayed closed without a replacement, and nobody was told.
#[tokio::test]
async fn paused_close_and_reopen_lost_its_replacement() {
    for command in [true, false] {
        let mut testbed = Testbed::new(FakeSettings::default(), "");
        let pr = closed_without_request(&testbed, command).await;
        Stop::Pause.begin(&mut testbed).await;
        testbed.pass(30).await;
        assert_eq!(count(&testbed, AuditedAction::BusEvent), 0, "nothing is done while paused");
        let record = testbed.record(&pr).await;
        assert_eq!((record.state, record.substatus), (State::Closed, Some(Substatus::Replaced)));
        assert!(record.active_run.is_some() && record.ttl.is_none(), "still expected to be replaced: {record:?}");
        Stop::Pause.end(&mut testbed).await;
        assert_replaced(&testbed, &pr, "after the pause").await;
        let replies = replies(&testbed, &pr);
        assert_eq!(replies.len(), usize::from(command), "{replies:?}");
        assert!(replies.iter().all(|reply| reply.contains("waits: Suture is paused by ops")), "{replies:?}");
    }
}

#[tokio::test]
async fn close_and_reopen_is_finished_after_a_pause_longer_than_the_retention() {
    let mut testbed = Testbed::new(FakeSettings::default(), "retention.terminal_hours = 1");
    let pr = closed_without_request(&testbed, true).await;
    Stop::Pause.begin(&mut testbed).await;
    testbed.pass(180).await;
    Stop::Pause.end(&mut testbed).await;
    assert_replaced(&testbed, &pr, "after three hours").await;
}

/// CodeGenie was asked once; a pause lasts longer than the deadline of its answer.
#[tokio::test]
async fn second_request_waits_for_the_end_of_a_pause() {
    let mut testbed = Testbed::new(FakeSettings::default(), "");
    let pr = closing(&testbed, true).await;
    testbed.with(|fakes| fakes.force(Fault::GenieAsleep, &pr));
    assert!(testbed.until(10, async |testbed| count(testbed, AuditedAction::BusEvent) == 1).await);
    Stop::Pause.begin(&mut testbed).await;
    testbed.pass(180).await;
    assert_eq!(count(&testbed, AuditedAction::BusEvent), 1, "nothing is done while paused");
    Stop::Pause.end(&mut testbed).await;
    assert_replaced(&testbed, &pr, "after the pause").await;
    assert_eq!(count(&testbed, AuditedAction::BusEvent), 2);
}

#[tokio::test]
async fn close_and_reopen_is_finished_with_an_open_breaker_and_in_observe_mode() {
    for stop in [Stop::Breaker, Stop::ObserveMode] {
        let mut testbed = Testbed::new(FakeSettings::default(), "");
        let pr = closed_without_request(&testbed, false).await;
        stop.begin(&mut testbed).await;
        testbed.pass(2).await;
        assert_eq!(count(&testbed, AuditedAction::BusEvent), 1, "{stop:?}: CodeGenie is asked at once");
        stop.end(&mut testbed).await;
        testbed.publisher.mails().iter().for_each(|(_, mail)| assert!(mail.subject.contains("breaker"), "{mail:?}"));
        let linked = testbed.until(60, async |testbed| testbed.record(&pr).await.replaced_by.is_some()).await;
        assert!(linked, "{stop:?}: {:?}", testbed.kinds(&pr).await);
    }
}

/// The process dies at any call between closing and asking, and Suture is stopped before the run is resumed.
#[tokio::test(start_paused = true)]
async fn close_and_reopen_is_finished_after_a_crash_and_a_stop() {
    for stop in [Stop::Pause, Stop::Breaker, Stop::ObserveMode] {
        let mut points = 0;
        for call in 1.. {
            let mut testbed = Testbed::new(FakeSettings::default(), "");
            testbed.bridging.set(false);
            let pr = closing(&testbed, false).await;
            assert!(testbed.until(10, async |testbed| !testbed.commands().is_empty()).await);
            let (id, body) = testbed.publisher.take_message().unwrap();
            testbed.faults.plan(call, CallFault::After);
            let _ = testbed.bridge.handle(&id, &body).await;
            let (struck, died) = (testbed.faults.struck(), testbed.faults.is_dead());
            testbed.faults.restart();
            if !struck {
                break;
            }
            let (closed, asked) =
                (count(&testbed, AuditedAction::PullClosed), count(&testbed, AuditedAction::BusEvent));
            if !died || (closed, asked) != (1, 0) {
                continue;
            }
            points += 1;
            let at = format!("{stop:?}, call {call}");
            testbed.bridging.set(true);
            stop.begin(&mut testbed).await;
            // The crashed worker's lease expires after six minutes.
            testbed.pass(9).await;
            let asked = count(&testbed, AuditedAction::BusEvent);
            assert_eq!(asked, usize::from(stop != Stop::Pause), "{at}");
            stop.end(&mut testbed).await;
            let linked = testbed.until(60, async |testbed| testbed.record(&pr).await.replaced_by.is_some()).await;
            assert!(linked, "{at}: {:?}", testbed.kinds(&pr).await);
            assert_eq!(count(&testbed, AuditedAction::PullClosed), 1, "{at}");
        }
        assert!(points >= 2, "{stop:?}: {points}");
    }
}

/// Regression: a push or a command between the announcement and GitHub's `closed` cancelled the run, and the pull request was
/// closed without a replacement.
#[tokio::test(start_paused = true)]
async fn push_or_command_during_the_closing_lost_the_replacement() {
    for push in [true, false] {
        let (mut announced, mut closed_before) = (0, 0);
        for call in 1.. {
            let testbed = Testbed::new(FakeSettings::default(), "");
            testbed.bridging.set(false);
            let pr = closing(&testbed, false).await;
            assert!(testbed.until(10, async |testbed| !testbed.commands().is_empty()).await);
            let (id, body) = testbed.publisher.take_message().unwrap();
            testbed.faults.plan(call, CallFault::After);
            let _ = testbed.bridge.handle(&id, &body).await;
            let (struck, died) = (testbed.faults.struck(), testbed.faults.is_dead());
            testbed.faults.restart();
            if !struck {
                break;
            }
            let told = testbed.with(|fakes| fakes.comments(&pr).any(|comment| comment.body.contains("Closing due to")));
            if !died || !told || count(&testbed, AuditedAction::BusEvent) > 0 {
                continue;
            }
            announced += 1;
            let closed = count(&testbed, AuditedAction::PullClosed);
            closed_before += closed;
            if push && closed == 0 {
                testbed.with(|fakes| fakes.person_pushes(&pr, "maria").unwrap());
            } else {
                testbed.with(|fakes| fakes.person_comments(&pr, "maria", "/update-branch").unwrap());
            }
            testbed.bridging.set(true);
            assert_replaced(&testbed, &pr, &format!("push {push}, call {call}")).await;
        }
        assert!(announced > closed_before && closed_before >= 1, "{announced} announced, {closed_before} closed");
    }
}

/// Regression: the request was retried every minute for ever, and nobody was told.
#[tokio::test]
async fn person_is_called_when_codegenie_cannot_be_asked_for_an_hour() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = closed_without_request(&testbed, true).await;
    testbed.faults.fail_calls("#ask", true);
    testbed.pass(50).await;
    assert_eq!(testbed.mails(), [], "an outage of less than an hour is not worth a mail");
    testbed.pass(20).await;
    let [(_, mail)] = &testbed.mails()[..] else { panic!("{:?}", testbed.mails()) };
    assert!(mail.subject.starts_with("Suture: no pull request for CVE-"), "{mail:?}");
    assert!(mail.body.contains("CodeGenie could not be asked"), "{}", mail.body);
    let record = testbed.record(&pr).await;
    assert!(record.active_run.is_none() && record.ttl.is_some(), "{record:?}");
    let handled = testbed.publisher.messages().len();
    testbed.pass(60).await;
    assert_eq!(testbed.publisher.messages().len(), handled, "nothing is left to retry");
}

/// Regression: the label stayed removed when Suture was paused, or GitHub failed, before it was added again.
#[tokio::test]
async fn removed_label_is_added_after_a_pause() {
    let config = "retrigger.approver_bot = { via = \"label\", target = \"wake-up\" }";
    let mut testbed = Testbed::new(FakeSettings::default(), config);
    let pr = testbed.open();
    testbed.with(|fakes| {
        fakes.force(Fault::ApproverAsleep, &pr);
        fakes.person_labels(&pr, "maria", "wake-up");
    });
    let add = format!("POST /repos/{}/issues/{}/labels", pr.repo, pr.number);
    testbed.faults.fail_calls(&add, true);
    let has_label = |testbed: &Testbed| {
        testbed.with(|fakes| fakes.pulls().any(|(id, pull)| id == pr && pull.labels.iter().any(|it| it == "wake-up")))
    };
    assert!(testbed.until(120, async |testbed| !has_label(testbed)).await, "{:?}", testbed.kinds(&pr).await);
    Stop::Pause.begin(&mut testbed).await;
    testbed.faults.fail_calls(&add, false);
    testbed.pass(20).await;
    assert!(!has_label(&testbed), "nothing is done while paused");
    Stop::Pause.end(&mut testbed).await;
    testbed.pass(3).await;
    assert!(has_label(&testbed), "{:?}", testbed.kinds(&pr).await);
    assert_eq!(testbed.kinds(&pr).await["REMEDIATION_RETRIGGER_APPROVER"], 1, "the same run");
}

/// Regression: `/cancel` was executed while Suture was paused.
#[tokio::test]
async fn cancel_waits_for_the_end_of_a_pause() {
    for begun in [false, true] {
        let mut testbed = Testbed::new(FakeSettings::default(), "");
        let pr = testbed.open();
        testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, &pr));
        testbed.pass(1).await;
        let close = format!("PATCH /repos/{}/pulls/{}", pr.repo, pr.number);
        if begun {
            testbed.faults.fail_calls(&close, true);
        } else {
            Stop::Pause.begin(&mut testbed).await;
        }
        testbed.with(|fakes| fakes.person_comments(&pr, "maria", "/cancel"));
        testbed.pass(2).await;
        let announced =
            testbed.with(|fakes| fakes.comments(&pr).filter(|it| it.body.contains("requested `/cancel`")).count());
        assert_eq!(announced, usize::from(begun));
        if begun {
            Stop::Pause.begin(&mut testbed).await;
            testbed.faults.fail_calls(&close, false);
        }
        testbed.pass(20).await;
        assert_eq!(count(&testbed, AuditedAction::PullClosed), 0, "nothing is done while paused");
        Stop::Pause.end(&mut testbed).await;
        testbed.pass(10).await;
        let record = testbed.record(&pr).await;
        assert_eq!((record.state, record.substatus), (State::Closed, Some(Substatus::Abandoned)), "begun: {begun}");
        let run = testbed.log(&pr).await.into_iter().find_map(|event| event.payload.run).unwrap();
        let run = testbed.bridge.engine().run(&run, testbed.now()).await.unwrap().unwrap();
        assert_eq!(run.state, RunState::Completed);
    }
}
