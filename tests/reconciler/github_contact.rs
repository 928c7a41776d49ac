//! R-API-18: what Suture shows may be old while GitHub cannot be read, and it says so.

use domain::github_contact::ContactStatus;
use domain::state::State;
use fakes::{FakeSettings, Fault};
use platform::store::github_contact;
use testbed::Testbed;

/// Regression: with GitHub unreachable the headline said that nothing is stuck.
#[tokio::test]
async fn overview_says_first_that_github_cannot_be_seen() {
    let testbed = Testbed::new(FakeSettings::default(), "");
    let status = async |testbed: &Testbed| {
        let contact = github_contact::load(&testbed.store, testbed.now()).await.unwrap();
        (contact.status(&testbed.policies.base().sweep, testbed.now()), contact)
    };
    assert_eq!(status(&testbed).await.0, ContactStatus::Never);
    let pr = testbed.open();
    testbed.with(|fakes| fakes.force(Fault::ApproverAsleep, &pr));
    assert!(testbed.until(60, async |testbed| testbed.state(&pr).await == Some(State::PolicyPassed)).await);
    let (before, seen) = status(&testbed).await;
    assert_eq!(before, ContactStatus::Ok, "{seen:?}");
    testbed.transport.refuse_connections("/graphql", true);
    let from = testbed.now();
    testbed.pass(60).await;
    let (failing, contact) = status(&testbed).await;
    assert_eq!(failing, ContactStatus::Failing, "{contact:?}");
    assert!(contact.failing_since.is_some_and(|since| since >= from), "{contact:?}");
    assert!(contact.last_success.is_some_and(|at| at <= from), "the last success is kept: {contact:?}");
    let sentence = contact.sentence(failing);
    assert!(sentence.starts_with("Suture cannot see GitHub since "), "{sentence}");
    testbed.transport.refuse_connections("/graphql", false);
    testbed.pass(60).await;
    let (after, contact) = status(&testbed).await;
    assert_eq!((after, contact.error.as_deref()), (ContactStatus::Ok, None), "{contact:?}");
}
