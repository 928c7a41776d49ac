//! I/O layer: storage, clients, the apply loop. Only code that two or more functions use. Decisions about pull requests are in the
//! `domain` crate.

#[cfg(feature = "aws")]
pub mod api_gateway;
#[cfg(feature = "aws")]
pub mod aws;
pub mod breaker;
pub mod call_error;
pub mod clients;
pub mod clock;
pub mod engine;
pub mod env;
pub mod github;
pub mod guards;
pub mod hash;
pub mod http;
pub mod jenkins;
pub mod lookup;
pub mod managed_issue;
pub mod outlets;
pub mod overview;
pub mod requests;
pub mod rows;
pub mod secrets;
pub mod store;
pub mod sweep_summary;
pub mod telemetry;
