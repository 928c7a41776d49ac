//! The Lambda handler: parses the event, runs the sweep, and logs one line. `infra/local` calls the same code from a
//! timer.

use std::time::Instant;

use domain::id::RunId;
use domain::run::RunTrigger;
use jiff::Timestamp;
use platform::outlets::Outlets;
use platform::store::Store;
use platform::telemetry::{Line, Log};
use serde_json::{Value, json};
use thiserror::Error;

use crate::event::{Unclear, wish_of};
use crate::reconciler::{NoSweep, Sweep, Swept};

/// The request id, time and deadline of one invocation.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// The Lambda request id: it distinguishes this invocation from another that received the same event.
    pub request: &'a str,
    pub now: Timestamp,
    pub deadline: Timestamp,
}

/// Why no sweep ran.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum NotSwept {
    #[error(transparent)]
    Unclear(#[from] Unclear),
    #[error(transparent)]
    Store(#[from] NoSweep),
}

/// Handles one event of the schedule or the event bus.
///
/// On [`NotSwept`] the sender retries the event, and everything that was due is still due.
pub async fn handle<S: Store, O: Outlets>(
    reconciler: &Sweep<S, O>,
    event: Value,
    invocation: &Moment<'_>,
    log: &Log,
) -> Result<Value, NotSwept> {
    let began = Instant::now();
    let trigger = wish_of(event, invocation).inspect_err(|error| log.write(&failure(invocation, error)))?;
    // Boxed: it contains the SDK's futures and is too deeply nested to be inlined into another future.
    let outcome = Box::pin(reconciler.sweep(&trigger, invocation.deadline))
        .await
        .inspect_err(|error| log.write(&failure(invocation, error)))?;
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let line = line(&trigger.run, &outcome, invocation.now, ms);
    // Only scheduled sweeps count: requested ones must not hide a schedule that has stopped.
    let scheduled = trigger.trigger == RunTrigger::Schedule && matches!(outcome, Swept::Done(_));
    log.write(&if scheduled { line.count("sweeps", 1) } else { line });
    Ok(match outcome {
        Swept::Done(summary) => json!({"status": "completed", "run_id": trigger.run.as_str(), "summary": *summary}),
        Swept::Busy { by, until } => {
            json!({"status": "busy", "run_id": trigger.run.as_str(), "by": by, "until": until.to_string()})
        }
        Swept::Repeated => json!({"status": "duplicate_trigger", "run_id": trigger.run.as_str()}),
        Swept::Superseded { by } => {
            json!({"status": "superseded", "run_id": trigger.run.as_str(), "by": by.as_str()})
        }
        Swept::LeftToSchedule(why) => json!({"status": "rate_limited", "run_id": trigger.run.as_str(), "why": why}),
    })
}

fn failure(invocation: &Moment<'_>, error: &impl std::fmt::Display) -> Line {
    Line::new("reconciler", invocation.now)
        .count("failed", 1)
        .with("level", "ERROR")
        .with("request", invocation.request)
        .with("error", error.to_string())
}

/// The one log line of an invocation.
pub fn line(run: &RunId, outcome: &Swept, now: Timestamp, ms: u64) -> Line {
    let base = || Line::new("reconciler", now).with("level", "INFO").with("run", run.as_str());
    match outcome {
        Swept::Done(summary) => summary.line(run.as_str(), now, ms),
        Swept::Busy { by, until } => base().with("by", by.as_str()).with("until", until.to_string()).count("busy", 1),
        Swept::Repeated => base().count("duplicate_trigger", 1),
        Swept::Superseded { by } => base().with("by", by.as_str()).count("superseded", 1),
        Swept::LeftToSchedule(why) => base().with("why", why.as_str()).count("rate_limited", 1),
    }
}
