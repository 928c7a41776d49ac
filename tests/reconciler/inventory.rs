//! Held, draft and escalated pull requests are verified once a day and never remedied. Drift correction repairs the record without
//! changing its counters.

use domain::event::EventKind;
use domain::state::State;
use fakes::{FakeSettings, Fault};
use testbed::Testbed;

const DAY: i64 = 24 * 60;

#[tokio::test]
async fn held_and_escalated_pull_requests_are_verified_once_a_day() {
    let testbed = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 100000");
    let (held, broken) = (testbed.open(), testbed.open());
    testbed.with(|fakes| {
        fakes.force(Fault::JenkinsDeaf, &held);
        fakes.force(Fault::RealTestFailure, &broken);
        fakes.person_labels(&held, "maria", "suture/hold");
    });
    testbed.pass(90).await;
    assert_eq!(testbed.state(&held).await, Some(State::Created));
    assert_eq!(testbed.state(&broken).await, Some(State::NeedsIntervention));
    assert_eq!(testbed.commands(), []);
    let verified = testbed.record(&held).await.verified_at;
    testbed.pass(DAY / 2).await;
    assert_eq!(testbed.record(&held).await.verified_at, verified, "not verified before a day has passed");
    testbed.lose_webhooks(|_, _| true);
    testbed.with(|fakes| {
        fakes.person_merges(&held, "maria");
        fakes.person_closes(&broken, "maria");
    });
    testbed.pass(DAY / 2 + 91).await;
    assert_eq!(testbed.state(&held).await, Some(State::Merged), "the missed merge is found");
    assert_eq!(testbed.state(&broken).await, Some(State::Closed));
}

#[tokio::test]
async fn drift_event_names_old_new_and_missed_and_keeps_counters() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::AgentLost, &pr));
    let rebuilt = testbed
        .until(120, async |testbed| testbed.find(&pr).await.is_some_and(|record| record.retry_counts.rebuild == 1))
        .await;
    assert!(rebuilt);
    let number = pr.number;
    testbed.lose_webhooks(|_, _| true);
    let drifted =
        testbed.until(120, async |testbed| !testbed.logged(&pr, EventKind::StateDriftCorrected).await.is_empty()).await;
    assert!(drifted, "{:?}", testbed.kinds(&pr).await);
    let drift = testbed.logged(&pr, EventKind::StateDriftCorrected).await.remove(0);
    let text = drift.payload.text;
    assert!(text.starts_with(&format!("State drift detected for PR #{number}: table=")), "{text}");
    assert!(text.contains("actual=") && text.contains("; missed: "), "{text}");
    assert!(drift.from.is_some() && drift.to.is_some());
    assert_eq!(testbed.record(&pr).await.lifetime_remedies, 1);
}
