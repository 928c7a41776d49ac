//! Fakes of what Suture talks to: a stateful GitHub (REST, GraphQL, signed webhooks), Jenkins, Policy Bot, the SOD validator,
//! Approver Bot, Automerge Bot and CodeGenie, with injected faults from a seed. The crate knows only their own protocols and
//! none of Suture's crates.
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

pub use audit::{Action, AuditEntry};
pub use fakes::{Fakes, Pr};
pub use faults::{Fault, Faults};
pub use github::commit::{CheckRun, Status, StatusState};
pub use github::model::{Comment, Issue, Mergeability, Pull, PullState, Reaction, Review, ReviewState};
pub use github::webhooks::{Delivery, Gone, Target};
pub use http_api::NoResponse;
pub use jenkins::{Build, BuildResult};
pub use rng::Rng;
pub use scenario::NewPull;
pub use serve::{Serving, post, serve, serve_following};
pub use settings::{Bot, Listening, Person, Protection, Repo, Reports, Required, Settings, Timing};
