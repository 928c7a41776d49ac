//! The webhook function: what is answered, what becomes of it, and what it does when too much comes or nothing works.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

mod responses;
mod lambda_binary;
mod request_cost;
mod harness;
mod github_examples;
mod lifecycles;
mod mutated_payloads;
mod bursts;
