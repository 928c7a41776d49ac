//! Receives webhooks of GitHub, Jenkins and the bots: who sent it (`signature`), what it says (`github`, `jenkins`, `bot`), which
//! pull requests it concerns (`ingest`), and the answer (`response`). Behind API Gateway and locally it is the same code; what
//! follows from a fact is decided by the domain.

mod bot;
pub mod config;
mod direct_report;
pub mod github;
mod handler;
pub mod ingest;
mod jenkins;
mod log;
mod response;
pub mod signature;

pub use handler::{MAX_BODY_BYTES, Senders, Webhook};
pub use response::Problem;
