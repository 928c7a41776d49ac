//! The webhook function: responses, state changes, throttling and outages.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod bursts;
mod github_examples;
mod harness;
mod identity;
mod lambda_binary;
mod lifecycles;
mod mutated_payloads;
mod request_cost;
mod responses;
