//! What is held, a draft or with a person is looked at once a day, and never remedied; what was wrong in the record is put
//! right without touching what was counted.

use domain::event::EventKind;
use domain::state::State;
use fakes::{FakeSettings, Fault};
use testbed::Testbed;

const DAY: i64 = 24 * 60;

#[tokio::test]
async fn held_and_escalated_pull_requests_are_verified_once_a_day() {
    let stage = Testbed::new(FakeSettings::default(), "sweep.inventory_every = 100000");
    let (held, broken) = (stage.open(), stage.open());
    stage.with(|world| {
        world.force(Fault::JenkinsDeaf, &held);
        world.force(Fault::RealTestFailure, &broken);
        world.person_labels(&held, "maria", "suture/hold");
    });
    stage.pass(90).await;
    assert_eq!(stage.state(&held).await, Some(State::Created));
    assert_eq!(stage.state(&broken).await, Some(State::NeedsIntervention));
    assert_eq!(stage.commands(), []);
    let verified = stage.record(&held).await.verified_at;
    stage.pass(DAY / 2).await;
    assert_eq!(stage.record(&held).await.verified_at, verified, "not before");
    stage.lose_webhooks(|_, _| true);
    stage.with(|world| {
        world.person_merges(&held, "maria");
        world.person_closes(&broken, "maria");
    });
    stage.pass(DAY / 2 + 91).await;
    assert_eq!(stage.state(&held).await, Some(State::Merged), "a missed merge does not strand it");
    assert_eq!(stage.state(&broken).await, Some(State::Closed));
}

#[tokio::test]
async fn drift_is_told_with_old_new_and_what_was_missed_and_changes_no_count() {
    let stage = Testbed::new(FakeSettings::default(), "");
    let pr = stage.open();
    stage.with(|world| world.force(Fault::AgentLost, &pr));
    let rebuilt = stage
        .until(120, async |stage| stage.find(&pr).await.is_some_and(|record| record.retry_counts.rebuild == 1))
        .await;
    assert!(rebuilt);
    let number = pr.number;
    stage.lose_webhooks(|_, _| true);
    let drifted =
        stage.until(120, async |stage| !stage.logged(&pr, EventKind::StateDriftCorrected).await.is_empty()).await;
    assert!(drifted, "{:?}", stage.kinds(&pr).await);
    let drift = stage.logged(&pr, EventKind::StateDriftCorrected).await.remove(0);
    let text = drift.payload.text;
    assert!(text.starts_with(&format!("State drift detected for PR #{number}: table=")), "{text}");
    assert!(text.contains("actual=") && text.contains("; missed: "), "{text}");
    assert!(drift.from.is_some() && drift.to.is_some());
    assert_eq!(stage.record(&pr).await.lifetime_remedies, 1);
}
