//! Control labels: Suture obeys them, and never adds or removes them.

use domain::coordination::is_control_label;
use domain::state::State;
use fakes::{AuditedAction, FakeSettings, Fault, NewPullRequest};
use testbed::Testbed;

use super::SUTURE;

#[tokio::test]
async fn hold_label_blocks_remedies_until_a_person_removes_it() {
    for label in ["suture/hold", "suture/ignore"] {
        let testbed = Testbed::new(FakeSettings::default(), "");
        let pr = testbed.with(|fakes| {
            fakes.open_pr(NewPullRequest { labels: vec![label.to_owned()], ..NewPullRequest::default() })
        });
        testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, &pr));
        testbed.pass(60).await;
        assert_eq!(testbed.commands(), [], "{label}");
        assert!(testbed.record(&pr).await.is_held());
        // A command does not remove a person's label.
        testbed.with(|fakes| fakes.person_comments(&pr, "maria", "/resume"));
        testbed.pass(10).await;
        assert_eq!(testbed.commands().iter().filter(|(_, command, _)| *command == "/rebuild").count(), 0);
        assert!(testbed.with(|fakes| fakes.pull(&pr).unwrap().labels.contains(&label.to_owned())));
        testbed.with(|fakes| fakes.person_unlabels(&pr, "maria", label));
        assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::Merged)).await, "{label}");
    }
}

#[tokio::test]
async fn priority_goes_before_age_then_oldest_first() {
    let testbed = Testbed::new(FakeSettings::default(), "limits.remedies_in_flight = 1");
    testbed.sweeping.set(false);
    let held = vec!["suture/hold".to_owned()];
    let old = testbed.with(|fakes| fakes.open_pr(NewPullRequest { labels: held, ..NewPullRequest::default() }));
    testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, &old));
    testbed.pass(3 * 24 * 60).await;
    let (young, urgent) = (testbed.open(), testbed.open());
    for pr in [&young, &urgent] {
        testbed.with(|fakes| fakes.force(Fault::JenkinsDeaf, pr));
    }
    testbed.with(|fakes| fakes.person_labels(&urgent, "maria", "suture/priority-p1"));
    testbed.with(|fakes| fakes.person_unlabels(&old, "maria", "suture/hold"));
    testbed.pass(10).await;
    testbed.bridging.set(false);
    testbed.sweep_now().await;
    assert_eq!(testbed.commands().iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [urgent.number]);
    testbed.with(|fakes| fakes.person_labels(&urgent, "maria", "suture/hold"));
    let score = |record: &domain::pull_request::PullRequest| record.priority_score(testbed.now());
    let (old, young) = (testbed.record(&old).await, testbed.record(&young).await);
    assert_eq!(score(&old) - score(&young), 15, "three days at five points each");
}

#[tokio::test]
async fn suture_never_changes_control_labels() {
    let config = "backlog = { enabled = true, discovered_hours = 1 }\nstatus_issue.repo = 'acme/payments'\npost_merge_health.urls = ['https://shop.example']\n\
                  retrigger.automerge_bot = { via = 'label', target = 'automerge' }";
    let testbed = Testbed::new(FakeSettings::default(), config);
    let all = ["suture/priority-p0", "suture/priority-p1", "suture/priority-p2"];
    let labels = |extra: &str| all.iter().map(|&label| label.to_owned()).chain([extra.to_owned()]).collect::<Vec<_>>();
    let held = testbed
        .with(|fakes| fakes.open_pr(NewPullRequest { labels: labels("suture/hold"), ..NewPullRequest::default() }));
    let pr = testbed
        .with(|fakes| fakes.open_pr(NewPullRequest { labels: labels("automerge"), ..NewPullRequest::default() }));
    testbed.with(|fakes| fakes.force(Fault::AutomergeAsleep, &pr));
    let issue = testbed.with(|fakes| {
        let labels = ["pipeline/discovered", "source/human", "suture/ignore", "suture/priority-p0"];
        fakes.person_writes_issue("", "maria", "CVE-2026-77777 in the cart", &labels)
    });
    testbed.pass(120).await;
    assert!(testbed.with(|fakes| fakes.is_merged(&pr)), "the label retriggered the automerge bot");
    testbed.with(|fakes| {
        let touched: Vec<&str> = fakes
            .audit_by(SUTURE)
            .filter(|effect| matches!(effect.action, AuditedAction::LabelAdded | AuditedAction::LabelRemoved))
            .map(|effect| effect.detail.as_str())
            .collect();
        assert!(!touched.is_empty() && touched.iter().all(|label| !is_control_label(label)), "{touched:?}");
        let now: Vec<&str> = fakes.pull(&held).unwrap().labels.iter().map(String::as_str).collect();
        assert!(all.iter().chain(&["suture/hold"]).all(|label| now.contains(label)), "{now:?}");
        assert!(fakes.issue(&issue).unwrap().open);
    });
}
