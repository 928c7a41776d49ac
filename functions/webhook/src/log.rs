//! The log record of a delivery: one line, with its metric. Payloads are never logged; a rejected request logs at most 300 bytes.

use crate::ingest::{IntakeError, Status, Taken};
use domain::event::cut;
use domain::id::CommandId;
use jiff::Timestamp;
use platform::telemetry::Line;

use crate::handler::Seen;
use crate::response::Problem;

const FUNCTION: &str = "webhook";
/// Longest reason in the log, in characters.
const MAX_REASON: usize = 200;
/// Longest name chosen by a sender, in characters.
const MAX_NAME: usize = 100;

fn counter(status: Status) -> &'static str {
    match status {
        Status::Ignored => "ignored",
        Status::Duplicate => "duplicate",
        Status::Superseded => "superseded",
        Status::Throttled => "throttled",
        Status::CommandQueued => "command_queued",
        Status::Applied => "applied",
        Status::Anomaly => "anomaly",
    }
}

fn begin(request: &Seen<'_>, now: Timestamp, ms: u64) -> Line {
    Line::new(FUNCTION, now)
        .with_some("delivery", some(request.delivery))
        .with_some("event", some(request.event))
        .with_some("repo", request.repo.clone())
        .took_ms(ms)
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| cut(text, MAX_NAME))
}

pub(crate) fn taken(request: &Seen<'_>, result: &Taken, now: Timestamp, ms: u64) -> Line {
    let mut line = begin(request, now, ms)
        .with("level", "INFO")
        .with("status", result.status.name())
        .with("reason", cut(&result.reason, MAX_REASON));
    if let [one] = result.each.as_slice() {
        line = line.with("pr", one.pr.number);
    } else if !result.each.is_empty() {
        let numbers: Vec<u64> = result.each.iter().map(|one| one.pr.number).take(20).collect();
        line = line.with("prs", numbers).with("pr_count", result.each.len());
    }
    if let Some((from, to)) = result.each.iter().find_map(|one| one.change) {
        line = line.with("from", from.name()).with("to", to.name());
    }
    // Command and run ids connect this line to those of the other functions.
    let commands: Vec<&str> =
        result.each.iter().flat_map(|one| &one.commands).map(CommandId::as_str).take(20).collect();
    line = line.with_some("commands", (!commands.is_empty()).then_some(commands));
    let run = result.run.as_ref().or_else(|| result.each.iter().find_map(|one| one.run.as_ref()));
    line = line.with_some("run", run.map(|run| run.as_str().to_owned()));
    if let Some(ms) = result.each.iter().find_map(|one| one.ended_ms) {
        line = line.gauge("run_ms", "Milliseconds", ms);
    }
    let tries = result.each.iter().map(|one| one.tries).max().filter(|tries| *tries > 1);
    line = line.with_some("tries", tries);
    // One delivery may concern several pull requests; each is counted.
    let mut statuses: Vec<Status> = result.each.iter().map(|one| one.status).collect();
    if statuses.is_empty() {
        statuses.push(result.status);
    }
    statuses.sort_unstable();
    statuses.chunk_by(|a, b| a == b).fold(line, |line, same| line.count(counter(same[0]), same.len() as u64))
}

pub(crate) fn rejected(request: &Seen<'_>, problem: &Problem, now: Timestamp) -> Line {
    // Unauthenticated senders can cause any number of these lines, so they are short and hold none of the payload.
    Line::new(FUNCTION, now)
        .count("rejected", 1)
        .with("code", problem.code)
        .with("path", cut(&request.path.escape_default().to_string(), 30))
        .with_some(
            "delivery",
            (!request.delivery.is_empty()).then(|| cut(&request.delivery.escape_default().to_string(), 36)),
        )
}

pub(crate) fn failed(request: &Seen<'_>, error: &IntakeError, now: Timestamp, ms: u64) -> Line {
    begin(request, now, ms).count("failed", 1).with("level", "ERROR").with("error", cut(&error.to_string(), MAX_REASON))
}
