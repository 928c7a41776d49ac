//! End-to-end tests of the reconciler in virtual time against fake GitHub, Jenkins and bots: diagnosis, claims, notifications,
//! limits and crash recovery.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests may panic and print their figures")]

mod admission;
mod check_run;
mod coordination;
mod crash_points;
mod diagnosis_rules;
mod events;
mod github_contact;
mod identity;
mod insights;
mod inventory;
mod jenkins_outage;
mod limits;
mod lost_webhooks;
mod notifications;
mod observe_mode;
mod overlapping_sweeps;
mod resend;
mod scale;
mod scenarios;

use std::sync::Arc;

use domain::event::{EventKind, FactKind};
use domain::policy::Policies;
use fakes::{FakePrId, FakeSettings};
use testbed::{TestStore, Testbed, pr_id};
use tests::local_aws::Dynoxide;

/// The store that holds the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    /// In-process DynamoDB, through the production client.
    Dynoxide,
}

impl Backend {
    /// A testbed on this store, with this policy on top of `mode = "act"`.
    pub(crate) async fn testbed(self, settings: FakeSettings, toml: &str) -> Testbed {
        match self {
            Self::Memory => Testbed::new(settings, toml),
            Self::Dynoxide => {
                let policies = Policies::parse(&format!("mode = \"act\"\n{toml}")).unwrap();
                let rig = Dynoxide::in_memory().await;
                let store = TestStore::Dynamo(Arc::new(rig.store().await));
                let mut testbed = Testbed::on(store, settings, policies, |_| {});
                testbed.keep_alive(rig);
                testbed
            }
        }
    }
}

/// The drift that a verification would correct now, as text; `None` if the record agrees with GitHub.
pub(crate) async fn drift(testbed: &Testbed, pr: &FakePrId) -> Option<String> {
    let record = testbed.record(pr).await;
    if record.state.is_terminal() {
        let open = testbed.with(|fakes| fakes.pull(pr).is_some_and(fakes::FakePull::is_open));
        return open.then(|| "GitHub says it is open".to_owned());
    }
    let wanted = [(pr_id(pr), record.node_id.clone().unwrap())];
    let (_, snapshot) = testbed.github.snapshots(&wanted, &testbed.policies).await.pop().unwrap();
    let fact = tests::fact(&pr_id(pr), "probe", testbed.now(), FactKind::Verified(Box::new(snapshot.unwrap())));
    let policy = testbed.policies.for_repo(&pr_id(pr).repo);
    let decision = domain::decide::decide(policy, Some(record), &fact, testbed.now());
    let drift = decision.events.iter().find(|event| event.kind == EventKind::StateDriftCorrected);
    drift.map(|event| event.payload.text.clone())
}
