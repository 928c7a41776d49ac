//! Receives webhooks from GitHub, Jenkins and the bots: verifies the sender (`signature`), parses the payload (`github`, `jenkins`,
//! `bot`), finds the pull requests and applies the facts (`ingest`, `throttle`), and builds the HTTP response (`response`). The same code runs
//! behind API Gateway and locally. The `domain` crate decides what follows from a fact.

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
mod throttle;

pub use bot::ReportingBot;
pub use handler::{MAX_BODY_BYTES, WebhookHandler, WebhookSecrets};
pub use response::WebhookProblem;
