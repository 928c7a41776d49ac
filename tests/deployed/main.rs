//! Tests of the deployment: `template.yaml` on a local AWS, with webhooks from the fakes over HTTP; the sample events through the
//! release binaries; and the documents and lists that must agree with the code.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a failing test panics with a message")]

mod alarms;
mod data_model;
mod dependencies;
mod documents;
mod end_to_end;
mod github_app;
mod log_lines;
mod monthly_cost;
mod operability;
mod rehearsal;
mod requirements;
mod sample_events;
mod secrets;
mod stack;
mod template;
