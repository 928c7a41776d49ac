//! I/O layer: storage, clients, the apply loop. Only code that two or more functions use. Decisions about pull requests are in the
//! `domain` crate.

pub mod api_error;
#[cfg(feature = "aws")]
pub mod api_gateway;
#[cfg(feature = "aws")]
pub mod aws;
pub mod clients;
pub mod clock;
pub mod engine;
pub mod env;
pub mod github;
pub mod hash;
pub mod jenkins;
pub mod overview;
pub mod publish;
pub mod reconcile_request;
pub mod secrets;
pub mod store;
pub mod sweep_summary;
pub mod telemetry;
pub mod transport;
