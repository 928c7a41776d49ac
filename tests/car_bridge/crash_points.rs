//! Crashes the process before and after every external call of every remedy, or loses the call's response; then
//! redelivers the message. Each effect happens once, the final state is right, and no run stays active.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::state::State;
use fakes::{AuditedAction, FakePrId, Fault, JenkinsReporting, RepoSettings};
use testbed::{CallFault, Testbed};

use crate::remedies::stuck_pr;

/// A remedy to interrupt: the fault, the trigger and the expected final state.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    fault: Option<Fault>,
    minutes: i64,
    /// Comment that triggers the remedy; without one a sweep claims it.
    comment: Option<&'static str>,
    config: &'static str,
    ends: State,
    /// Actions that may happen at most once.
    once: &'static [AuditedAction],
}

const ACT: &str = "mode = \"act\"";

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "rebuild",
        fault: Some(Fault::JenkinsDeaf),
        minutes: 10,
        comment: None,
        config: ACT,
        ends: State::Merged,
        once: &[AuditedAction::BuildQueued, AuditedAction::RepositoryScanned],
    },
    Scenario {
        name: "approver",
        fault: Some(Fault::ApproverAsleep),
        minutes: 120,
        comment: None,
        config: ACT,
        ends: State::Merged,
        once: &[],
    },
    Scenario {
        name: "label",
        fault: Some(Fault::ApproverAsleep),
        minutes: 120,
        comment: None,
        config: "mode = \"act\"\nretrigger.approver_bot.via = \"label\"\nretrigger.approver_bot.target = \"wake-up\"",
        ends: State::Merged,
        once: &[AuditedAction::LabelAdded],
    },
    Scenario {
        name: "comment",
        fault: Some(Fault::ApproverAsleep),
        minutes: 120,
        comment: None,
        config: "mode = \"act\"\nretrigger.approver_bot.via = \"comment\"\nretrigger.approver_bot.target = \"/wake\"",
        ends: State::Merged,
        once: &[AuditedAction::CommentCreated],
    },
    Scenario {
        name: "automerge",
        fault: Some(Fault::AutomergeAsleep),
        minutes: 120,
        comment: None,
        config: ACT,
        ends: State::Merged,
        once: &[],
    },
    Scenario {
        name: "GitHub Actions",
        fault: Some(Fault::AgentLost),
        minutes: 30,
        comment: None,
        config: "mode = \"act\"\nrebuild.via = \"github\"",
        ends: State::Merged,
        once: &[AuditedAction::JobsRerun],
    },
    Scenario {
        name: "person's rebuild",
        fault: Some(Fault::JenkinsDeaf),
        minutes: 10,
        comment: Some("/rebuild"),
        config: ACT,
        ends: State::Merged,
        once: &[AuditedAction::BuildQueued, AuditedAction::RepositoryScanned],
    },
    Scenario {
        name: "update branch",
        fault: Some(Fault::BaseMoves),
        minutes: 1,
        comment: Some("/update-branch"),
        config: ACT,
        ends: State::Merged,
        once: &[AuditedAction::BranchUpdated],
    },
    Scenario {
        name: "cancel",
        fault: None,
        minutes: 1,
        comment: Some("/cancel"),
        config: ACT,
        ends: State::Closed,
        once: &[AuditedAction::PullClosed, AuditedAction::CommentCreated],
    },
    Scenario {
        name: "close and reopen",
        fault: None,
        minutes: 1,
        comment: Some("/close-and-reopen"),
        config: ACT,
        ends: State::Closed,
        once: &[AuditedAction::PullClosed, AuditedAction::CommentCreated],
    },
];

/// The testbed with the queued message of the scenario.
async fn set_up(scenario: &Scenario) -> (Testbed, FakePrId, (String, String)) {
    let testbed = Testbed::configured(scenario.config, |settings| {
        for listening in &mut settings.listening {
            (listening.labels, listening.comments) = (true, true);
        }
        if scenario.config.contains("github") {
            settings.repos =
                vec![RepoSettings { reports: JenkinsReporting::Actions, ..RepoSettings::new("acme/payments") }];
        }
    });
    let pr = match scenario.fault {
        Some(fault) => stuck_pr(&testbed, fault, scenario.minutes).await,
        None => {
            let pr = testbed.open_and_deliver(fakes::NewPullRequest::default()).await;
            testbed.pass(scenario.minutes).await;
            pr
        }
    };
    match scenario.comment {
        None => drop(tests::claim_in(&testbed, &pr, "run-1").await),
        Some(text) => {
            testbed.fakes().person_comments(&pr, "maria", text);
            testbed.fakes().advance(jiff::SignedDuration::from_secs(3));
            testbed.deliver_webhooks().await;
        }
    }
    let message = testbed.publisher.take_message().unwrap();
    (testbed, pr, message)
}

/// Redelivers the message until it is handled; a crashed process leaves it on the queue.
async fn deliver(testbed: &Testbed, (id, body): &(String, String)) {
    for _ in 0..6 {
        let handled = testbed.bridge.handle(id, body).await;
        let died = testbed.faults.is_dead();
        testbed.faults.restart();
        // Printed only when the test fails.
        eprintln!("{} {handled:?}", testbed.now());
        if handled.is_ok() && !died {
            return;
        }
        // After the visibility timeout the crashed worker's lease has expired too.
        testbed.fakes().advance(jiff::SignedDuration::from_mins(7));
        testbed.deliver_webhooks().await;
    }
    panic!("the message is never handled");
}

fn assert_once(testbed: &Testbed, pr: &FakePrId, scenario: &Scenario, at: &str) {
    for action in scenario.once {
        let fakes = testbed.fakes();
        let done = fakes
            .audit()
            .iter()
            .filter(|effect| effect.action == *action && effect.pr.as_ref().is_none_or(|of| of == pr))
            .filter(|effect| effect.by == "suture-operator" || effect.by.starts_with("jenkins:suture"))
            .count();
        assert!(done <= 1, "{at}: {action:?} was done {done} times");
    }
}

/// Simulation seed 1575 with five pull requests: SQS delivered one message to two workers; the first was slow, and the
/// second treated its run as abandoned.
#[tokio::test(start_paused = true)]
async fn second_worker_does_not_repeat_a_slow_workers_remedy() {
    let mut points = 0;
    for scenario in SCENARIOS {
        for call in 1.. {
            let (testbed, pr, (id, body)) = set_up(scenario).await;
            testbed.faults.plan(call, CallFault::Late);
            let second = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                testbed.bridge.handle(&id, &body).await
            };
            let both = tokio::join!(testbed.bridge.handle(&id, &body), second);
            let at = format!("{}, call {call}: {both:?}", scenario.name);
            if !testbed.faults.struck() {
                break;
            }
            points += 1;
            testbed.faults.restart();
            testbed.pass(180).await;
            assert_once(&testbed, &pr, scenario, &at);
            let record = testbed.record(&pr).await;
            assert_eq!((record.state, record.active_run), (scenario.ends, None), "{at}");
        }
    }
    assert!(points > 100, "{points}");
}

#[tokio::test(start_paused = true)]
async fn remedy_runs_once_when_interrupted_at_any_call() {
    let mut points: BTreeMap<&str, usize> = BTreeMap::new();
    for scenario in SCENARIOS {
        for how in CallFault::CRASHES {
            for call in 1.. {
                let (testbed, pr, message) = set_up(scenario).await;
                testbed.faults.plan(call, how);
                deliver(&testbed, &message).await;
                if !testbed.faults.struck() {
                    break;
                }
                *points.entry(scenario.name).or_default() += 1;
                let at = format!("{}, call {call}, {how:?}", scenario.name);
                testbed.pass(180).await;
                let record = testbed.record(&pr).await;
                // A remedy whose response was lost may be recorded as failed, and a sweep would retry it. It must never
                // run twice.
                let finished = record.active_run.is_none();
                assert!(finished, "{at}: {:?}", record.active_run);
                assert_once(&testbed, &pr, scenario, &at);
                if how != CallFault::AnswerLost {
                    assert_eq!(record.state, scenario.ends, "{at}");
                }
            }
        }
    }
    let total: usize = points.values().sum();
    println!("{total} points: {points:?}");
    assert!(total > 150, "{total}: {points:?}");
}
