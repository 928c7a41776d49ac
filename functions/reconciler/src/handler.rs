//! The Lambda handler: parses the event, runs the sweep, and logs one line. `infra/local` calls the same code from a
//! timer.

use std::time::Instant;

use domain::run::RunTrigger;
use jiff::Timestamp;
use platform::publish::Publisher;
use platform::store::Store;
use platform::telemetry::{LogRecord, MetricLog};
use serde_json::{Value, json};
use thiserror::Error;

use crate::event::{InvalidEvent, parse_event};
use crate::reconciler::{Reconciler, SweepError, SweepOutcome};
use crate::trigger::SweepTrigger;

/// The request id, time and deadline of one invocation.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// The Lambda request id: it distinguishes this invocation from another that received the same event.
    pub request_id: &'a str,
    pub now: Timestamp,
    pub deadline: Timestamp,
}

/// Why no sweep ran.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ReconcileError {
    #[error(transparent)]
    InvalidEvent(#[from] InvalidEvent),
    #[error(transparent)]
    Store(#[from] SweepError),
}

/// Handles one event of the schedule or the event bus.
///
/// On [`ReconcileError`] the sender retries the event, and everything that was due is still due.
pub async fn handle<S: Store, O: Publisher>(
    reconciler: &Reconciler<S, O>,
    event: Value,
    invocation: &Invocation<'_>,
    log: &MetricLog,
) -> Result<Value, ReconcileError> {
    let began = Instant::now();
    let trigger =
        parse_event(event, invocation).inspect_err(|error| log.write(&failure(invocation, "ERROR", error)))?;
    // Boxed: it contains the SDK's futures and is too deeply nested to be inlined into another future.
    let outcome = Box::pin(reconciler.sweep(&trigger, invocation.deadline)).await.inspect_err(|error| {
        let level = if error.0.is_conflict() { "WARN" } else { "ERROR" };
        log.write(&failure(invocation, level, error));
    })?;
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    log.write(&line(&trigger, &outcome, invocation.now, ms));
    Ok(match outcome {
        SweepOutcome::Done(summary) => {
            json!({"status": "completed", "run_id": trigger.run.as_str(), "summary": *summary})
        }
        SweepOutcome::Busy { by, until } => {
            json!({"status": "busy", "run_id": trigger.run.as_str(), "by": by, "until": until.to_string()})
        }
        SweepOutcome::DuplicateTrigger => json!({"status": "duplicate_trigger", "run_id": trigger.run.as_str()}),
        SweepOutcome::Superseded { by } => {
            json!({"status": "superseded", "run_id": trigger.run.as_str(), "by": by.as_str()})
        }
        SweepOutcome::RateLimited(why) => json!({"status": "rate_limited", "run_id": trigger.run.as_str(), "why": why}),
    })
}

fn failure(invocation: &Invocation<'_>, level: &'static str, error: &impl std::fmt::Display) -> LogRecord {
    LogRecord::new("reconciler", invocation.now)
        .count("failed", 1)
        .with("level", level)
        .with("error", error.to_string())
}

/// The one log line of an invocation.
pub fn line(trigger: &SweepTrigger, outcome: &SweepOutcome, now: Timestamp, ms: u64) -> LogRecord {
    let run = trigger.run.as_str();
    let base = || LogRecord::new("reconciler", now).with("level", "INFO").with("run", run);
    match outcome {
        SweepOutcome::Done(summary) if trigger.kind == RunTrigger::Schedule => summary.scheduled_line(run, now, ms),
        SweepOutcome::Done(summary) => summary.line(run, now, ms),
        SweepOutcome::Busy { by, until } => {
            base().with("by", by.as_str()).with("until", until.to_string()).count("busy", 1)
        }
        SweepOutcome::DuplicateTrigger => base().count("duplicate_trigger", 1),
        SweepOutcome::Superseded { by } => base().with("by", by.as_str()).count("superseded", 1),
        SweepOutcome::RateLimited(why) => base().with("why", why.as_str()).count("rate_limited", 1),
    }
}
