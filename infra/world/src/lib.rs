//! The outside world, pretended: a stateful GitHub (REST, GraphQL, signed webhooks), Jenkins, Policy Bot, the SOD
//! validator, Approver Bot, Automerge Bot and CodeGenie, with seeded faults. It knows only their own protocols and nothing
//! of Suture's inside.
//!
//! [`World`] is one deterministic model with its own clock. In virtual time a caller moves the clock
//! ([`World::advance_to`]), takes what is sent ([`World::take_webhooks`]) and asks through [`World::github`] and
//! [`World::jenkins`] without a socket; [`serve()`] puts the same model behind real HTTP.

mod bots;
mod chance;
mod clock;
mod effects;
mod faults;
mod github;
mod jenkins;
mod script;
mod serve;
mod settings;
mod surface;
mod world;

pub use effects::{Deed, Effect};
pub use faults::{Fault, Faults};
pub use github::commit::{CheckRun, Status, StatusState};
pub use github::model::{Comment, Issue, Mergeability, Pull, PullState, Reaction, Review, ReviewState};
pub use github::webhooks::{Delivery, Gone, Target};
pub use jenkins::{Build, BuildResult};
pub use script::NewPull;
pub use serve::{Serving, post, serve, serve_following};
pub use settings::{Bot, Listening, Person, Protection, Repo, Reports, Required, Settings, Timing};
pub use surface::Silence;
pub use world::{Pr, World};
