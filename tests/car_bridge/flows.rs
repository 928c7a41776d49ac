//! Two flows with commands: a developer's `/rebuild` (R-FLOW-3) and an engineer's batch after an outage (R-FLOW-4).

use car_bridge::MessageOutcome;
use domain::command::{Command, CommandMessage, CommandSource, MessageVersion};
use domain::event::EventKind;
use domain::id::{CommandId, RunId};
use domain::state::State;
use fakes::{FakePrId, Fault, NewPullRequest};
use platform::publish::queue_message::QueueMessage;
use platform::store::breaker::{self, RemedyOutcome};
use platform::store::queries;
use testbed::{Testbed, pr_id};

use crate::remedies::stuck_pr;

async fn kinds(testbed: &Testbed, pr: &FakePrId) -> Vec<EventKind> {
    let log = queries::events(&testbed.store, &pr_id(pr), false, None, 100, testbed.now()).await.unwrap();
    log.entries.iter().map(|event| event.kind).collect()
}

#[tokio::test]
async fn developer_rebuild_runs_before_the_reconciler() {
    let testbed = Testbed::quiet();
    let pr = stuck_pr(&testbed, Fault::AgentLost, 30).await;
    assert_eq!(testbed.record(&pr).await.state, State::ChecksFailed);
    testbed.fakes().person_comments(&pr, "danny", "/rebuild");
    testbed.fakes().advance(jiff::SignedDuration::from_secs(3));
    testbed.deliver_webhooks().await;
    let (id, body) = testbed.publisher.take_message().unwrap();
    let QueueMessage::Command(command) = QueueMessage::from_json(&body).unwrap() else { panic!("{body}") };
    assert_eq!(
        (command.pr(), command.command, command.source, command.requested_by.as_str()),
        (pr_id(&pr), Command::Rebuild, CommandSource::PrComment, "danny")
    );
    let handled = testbed.bridge.handle(&id, &body).await.unwrap();
    assert!(matches!(handled, MessageOutcome::Done(_)), "{handled:?}");
    testbed.pass(120).await;
    let kinds = kinds(&testbed, &pr).await;
    let at = |kind: EventKind| {
        kinds.iter().position(|known| *known == kind).unwrap_or_else(|| panic!("no {kind} in {kinds:?}"))
    };
    assert!(at(EventKind::CommandReceived) < at(EventKind::ChecksPassed), "{kinds:?}");
    assert_eq!(testbed.record(&pr).await.state, State::Merged, "{kinds:?}");
}

#[tokio::test]
async fn batch_rebuild_after_outage_heals_fifteen_pull_requests() {
    let testbed = Testbed::quiet();
    let mut prs = Vec::new();
    for _ in 0..15 {
        let pr = testbed.fakes().open_pr(NewPullRequest::default());
        testbed.fakes().force(Fault::AgentLost, &pr);
        prs.push(pr);
    }
    testbed.pass(40).await;
    for n in 0..6 {
        let run = RunId::new(format!("lost-{n}"));
        breaker::count_outcome(&testbed.store, &run, RemedyOutcome::Failed, testbed.now()).await.unwrap();
    }
    let settings = testbed.bridge.engine().policies().base().breaker.clone();
    breaker::evaluate(&testbed.store, &settings, testbed.now()).await.unwrap().unwrap();
    for (n, pr) in prs.iter().enumerate() {
        assert_eq!(testbed.record(pr).await.state, State::ChecksFailed, "{n}");
        let id = pr_id(pr);
        testbed.publisher.enqueue(
            &format!("m{n}"),
            &QueueMessage::Command(CommandMessage {
                v: MessageVersion,
                pr_number: id.number,
                repo: id.repo.clone(),
                command: Command::Rebuild,
                source: CommandSource::AdminApi,
                requested_by: "ops".to_owned(),
                timestamp: testbed.now(),
                command_id: CommandId::new(format!("cmd:batch#{n}")),
                run_id: None,
                head_sha: None,
                args: None,
                comment: None,
                resent: false,
            }),
        );
    }
    let mut most = 0;
    // Resends deferred messages, as the sweep does.
    for _ in 0..40 {
        let mut waiting = Vec::new();
        let mut done = 0;
        while let Some((id, body)) = testbed.publisher.take_message() {
            match testbed.bridge.handle(&id, &body).await.unwrap() {
                MessageOutcome::Deferred(_) => waiting.push((id, QueueMessage::from_json(&body).unwrap())),
                MessageOutcome::Done(_) => done += 1,
                other @ (MessageOutcome::Noop(_) | MessageOutcome::Rejected(_) | MessageOutcome::Failed(_)) => {
                    panic!("{other:?}")
                }
            }
        }
        most = most.max(done);
        for (id, message) in waiting {
            testbed.publisher.enqueue(&id, &message);
        }
        let until = testbed.now() + jiff::SignedDuration::from_mins(15);
        loop {
            let next = testbed.fakes().next_event_at().filter(|at| *at <= until);
            let Some(at) = next else { break };
            testbed.fakes().advance_to(at);
            testbed.deliver_webhooks().await;
        }
        testbed.fakes().advance_to(until);
        testbed.deliver_webhooks().await;
    }
    assert!((1..=2).contains(&most), "two slots: {most}");
    for (n, pr) in prs.iter().enumerate() {
        let record = testbed.record(pr).await;
        assert_eq!((record.state, record.retry_counts.rebuild), (State::Merged, 0), "{n}");
    }
}
