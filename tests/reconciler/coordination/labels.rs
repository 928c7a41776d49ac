//! The labels by which people tell Suture what to do: obeyed, never put on, never taken off.

use domain::coordination::is_control_label;
use domain::state::State;
use fakes::{AuditedAction, FakeSettings, Fault, NewPullRequest};
use testbed::Testbed;

use super::SUTURE;

#[tokio::test]
async fn a_label_holds_a_pull_request_until_a_person_takes_it_off() {
    for label in ["suture/hold", "suture/ignore"] {
        let stage = Testbed::new(FakeSettings::default(), "");
        let pr = stage.with(|world| {
            world.open_pr(NewPullRequest { labels: vec![label.to_owned()], ..NewPullRequest::default() })
        });
        stage.with(|world| world.force(Fault::JenkinsDeaf, &pr));
        stage.pass(60).await;
        assert_eq!(stage.commands(), [], "{label}");
        assert!(stage.record(&pr).await.is_held());
        // A command does not take a person's label off.
        stage.with(|world| world.person_comments(&pr, "maria", "/resume"));
        stage.pass(10).await;
        assert_eq!(stage.commands().iter().filter(|(_, command, _)| *command == "/rebuild").count(), 0);
        assert!(stage.with(|world| world.pull(&pr).unwrap().labels.contains(&label.to_owned())));
        stage.with(|world| world.person_unlabels(&pr, "maria", label));
        assert!(stage.until(60, async |stage| stage.state(&pr).await == Some(State::Merged)).await, "{label}");
    }
}

#[tokio::test]
async fn the_oldest_of_the_same_priority_goes_first_and_priority_before_age() {
    let stage = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 1");
    stage.sweeping.set(false);
    let held = vec!["suture/hold".to_owned()];
    let old = stage.with(|world| world.open_pr(NewPullRequest { labels: held, ..NewPullRequest::default() }));
    stage.with(|world| world.force(Fault::JenkinsDeaf, &old));
    stage.pass(3 * 24 * 60).await;
    let (young, urgent) = (stage.open(), stage.open());
    for pr in [&young, &urgent] {
        stage.with(|world| world.force(Fault::JenkinsDeaf, pr));
    }
    stage.with(|world| world.person_labels(&urgent, "maria", "suture/priority-p1"));
    stage.with(|world| world.person_unlabels(&old, "maria", "suture/hold"));
    stage.pass(10).await;
    stage.bridging.set(false);
    stage.sweep_now().await;
    assert_eq!(stage.commands().iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [urgent.number]);
    stage.with(|world| world.person_labels(&urgent, "maria", "suture/hold"));
    let score = |record: &domain::pull_request::PullRequest| record.priority_score(stage.now());
    let (old, young) = (stage.record(&old).await, stage.record(&young).await);
    assert_eq!(score(&old) - score(&young), 15, "three days, five points each");
}

#[tokio::test]
async fn suture_neither_puts_on_nor_takes_off_peoples_labels() {
    let config = "backlog = { enabled = true, discovered_hours = 1 }\nstatus.repo = 'acme/payments'\nsentinel.urls = ['https://shop.example']\n\
                  wake = { automerge_bot = 'label', automerge_bot_with = 'automerge' }";
    let stage = Testbed::new(FakeSettings::default(), config);
    let all = ["suture/priority-p0", "suture/priority-p1", "suture/priority-p2"];
    let labels = |extra: &str| all.iter().map(|&label| label.to_owned()).chain([extra.to_owned()]).collect::<Vec<_>>();
    let held = stage
        .with(|world| world.open_pr(NewPullRequest { labels: labels("suture/hold"), ..NewPullRequest::default() }));
    let pr =
        stage.with(|world| world.open_pr(NewPullRequest { labels: labels("automerge"), ..NewPullRequest::default() }));
    stage.with(|world| world.force(Fault::AutomergeAsleep, &pr));
    let issue = stage.with(|world| {
        let labels = ["pipeline/discovered", "source/human", "suture/ignore", "suture/priority-p0"];
        world.person_writes_issue("", "maria", "CVE-2026-77777 in the cart", &labels)
    });
    stage.pass(120).await;
    assert!(stage.with(|world| world.is_merged(&pr)), "its bot was woken by its label");
    stage.with(|world| {
        let touched: Vec<&str> = world
            .audit_by(SUTURE)
            .filter(|effect| matches!(effect.action, AuditedAction::LabelAdded | AuditedAction::LabelRemoved))
            .map(|effect| effect.detail.as_str())
            .collect();
        assert!(!touched.is_empty() && touched.iter().all(|label| !is_control_label(label)), "{touched:?}");
        let now: Vec<&str> = world.pull(&held).unwrap().labels.iter().map(String::as_str).collect();
        assert!(all.iter().chain(&["suture/hold"]).all(|label| now.contains(label)), "{now:?}");
        assert!(world.issue(&issue).unwrap().open);
    });
}
