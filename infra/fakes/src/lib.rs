//! Fakes of what Suture talks to: a stateful GitHub (REST, GraphQL, signed webhooks), Jenkins, Policy Bot, the SOD
//! validator, Approver Bot, Automerge Bot and CodeGenie, with injected faults from a seed. The crate knows only their
//! own protocols and none of Suture's crates.
//!
//! [`Fakes`] is one deterministic model with its own clock. In virtual time a caller moves the clock
//! ([`Fakes::advance_to`]), takes the webhooks that were sent ([`Fakes::take_webhooks`]) and calls the APIs through
//! [`Fakes::github`] and [`Fakes::jenkins`] without a socket; [`serve()`] puts the same model behind real HTTP.

mod audit;
mod bots;
mod clock;
mod fakes;
mod faults;
mod github;
mod http_api;
mod jenkins;
mod rng;
mod scenario;
mod serve;
mod settings;

pub use audit::{AuditEntry, AuditedAction};
pub use fakes::{FakePrId, Fakes};
pub use faults::{Fault, FaultRates};
pub use github::commit::{FakeCheckRun, FakeStatus, StatusState};
pub use github::model::{
    FakeComment, FakeIssue, FakeMergeability, FakePull, FakeReaction, FakeReview, PullState, ReviewState,
};
pub use github::webhooks::{EarlierPull, WebhookDelivery, WebhookTarget};
pub use http_api::NoResponse;
pub use jenkins::{BuildResult, FakeBuild};
pub use rng::Rng;
pub use scenario::NewPullRequest;
pub use serve::{FakeServers, post, serve, serve_following};
pub use settings::{
    BotTriggers, FakeBot, FakePerson, FakeSettings, FakeTiming, JenkinsReporting, ProtectionSource, RepoSettings,
    RequiredContext,
};
