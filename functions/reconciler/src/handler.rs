//! The Lambda's handler: parses the event, sweeps, and logs one line. `infra/local` calls the same code from a timer.

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

/// The circumstances of one invocation.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// The request's own id: what makes this process different from another that was given the same event.
    pub request: &'a str,
    pub now: Timestamp,
    pub deadline: Timestamp,
}

/// Why there was no sweep.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum NotSwept {
    #[error(transparent)]
    Unclear(#[from] Unclear),
    #[error(transparent)]
    Store(#[from] NoSweep),
}

/// Answers one event of the schedule or the bus.
///
/// [`NotSwept`]: the event is tried again by whoever sent it, and what is due stays due.
pub async fn handle<S: Store, O: Outlets>(
    sweep: &Sweep<S, O>,
    event: Value,
    moment: &Moment<'_>,
    log: &Log,
) -> Result<Value, NotSwept> {
    let began = Instant::now();
    let wish = wish_of(event, moment).inspect_err(|error| log.write(&refused(moment, error)))?;
    // Boxed: with the SDK's futures inside, it is too deep to be part of another.
    let swept =
        Box::pin(sweep.sweep(&wish, moment.deadline)).await.inspect_err(|error| log.write(&refused(moment, error)))?;
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let line = line(&wish.run, &swept, moment.now, ms);
    // Only the schedule's own count: if they stop coming, somebody else's must not hide it.
    let regular = wish.trigger == RunTrigger::Schedule && matches!(swept, Swept::Done(_));
    log.write(&if regular { line.count("sweeps", 1) } else { line });
    Ok(match swept {
        Swept::Done(summary) => json!({"status": "swept", "run_id": wish.run.as_str(), "summary": *summary}),
        Swept::Busy { by, until } => {
            json!({"status": "busy", "run_id": wish.run.as_str(), "by": by, "until": until.to_string()})
        }
        Swept::Repeated => json!({"status": "repeated", "run_id": wish.run.as_str()}),
        Swept::Superseded { by } => {
            json!({"status": "superseded", "run_id": wish.run.as_str(), "by": by.as_str()})
        }
        Swept::LeftToSchedule(why) => json!({"status": "left_to_schedule", "run_id": wish.run.as_str(), "why": why}),
    })
}

fn refused(moment: &Moment<'_>, error: &impl std::fmt::Display) -> Line {
    Line::new("reconciler", moment.now)
        .count("failed", 1)
        .with("level", "ERROR")
        .with("request", moment.request)
        .with("error", error.to_string())
}

/// The one line an invocation leaves in the log.
pub fn line(run: &RunId, swept: &Swept, now: Timestamp, ms: u64) -> Line {
    let said = || Line::new("reconciler", now).with("level", "INFO").with("run", run.as_str());
    match swept {
        Swept::Done(summary) => summary.line(run.as_str(), now, ms),
        Swept::Busy { by, until } => said().with("by", by.as_str()).with("until", until.to_string()).count("busy", 1),
        Swept::Repeated => said().count("repeated", 1),
        Swept::Superseded { by } => said().with("by", by.as_str()).count("superseded", 1),
        Swept::LeftToSchedule(why) => said().with("why", why.as_str()).count("left_to_schedule", 1),
    }
}
