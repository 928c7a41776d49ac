//! The log record of a delivery: one line, with its metric. Payloads are never logged; a rejected request logs at most 300 bytes.

use crate::ingest::{IngestError, IngestResult, IngestStatus};
use domain::event::truncate;
use domain::id::{CommandId, RunId};
use jiff::Timestamp;
use platform::telemetry::LogRecord;

use crate::handler::RequestLog;
use crate::response::WebhookProblem;

const FUNCTION: &str = "webhook";
/// Longest reason in the log, in characters.
const MAX_REASON: usize = 200;
/// Longest name chosen by a sender, in characters.
const MAX_NAME: usize = 100;

fn counter(status: IngestStatus) -> &'static str {
    match status {
        IngestStatus::Ignored => "ignored",
        IngestStatus::Duplicate => "duplicate",
        IngestStatus::Superseded => "superseded",
        IngestStatus::Throttled => "throttled",
        IngestStatus::CommandQueued => "command_queued",
        IngestStatus::Applied => "applied",
        IngestStatus::Anomaly => "anomaly",
    }
}

fn start_record(request: &RequestLog<'_>, now: Timestamp, ms: u64) -> LogRecord {
    LogRecord::new(FUNCTION, now)
        .with_some("delivery", some(request.delivery))
        .with_some("event", some(request.event))
        .with_some("repo", request.repo.clone())
        .duration_ms(ms)
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| truncate(text, MAX_NAME))
}

pub(crate) fn ingested(request: &RequestLog<'_>, result: &IngestResult, now: Timestamp, ms: u64) -> LogRecord {
    let mut line = start_record(request, now, ms)
        .with("level", "INFO")
        .with("status", result.status.name())
        .with("reason", truncate(&result.reason, MAX_REASON));
    if let [one] = result.pull_requests.as_slice() {
        line = line.with("pr", one.pr.number);
    } else if !result.pull_requests.is_empty() {
        let numbers: Vec<u64> = result.pull_requests.iter().map(|one| one.pr.number).take(20).collect();
        line = line.with("prs", numbers).with("pr_count", result.pull_requests.len());
    }
    if let Some((from, to)) = result.pull_requests.iter().find_map(|one| one.change) {
        line = line.with("from", from.name()).with("to", to.name());
    }
    // Command and run ids connect this line to those of the other functions.
    let commands: Vec<&str> =
        result.pull_requests.iter().flat_map(|one| &one.commands).map(CommandId::as_str).take(20).collect();
    let run = result.run.as_ref().or_else(|| result.pull_requests.iter().find_map(|one| one.run.as_ref()));
    // The run of a person's command has the id of the command.
    let run = run.map(RunId::as_str).or(commands.first().copied()).map(str::to_owned);
    line = line.with_some("commands", (!commands.is_empty()).then_some(commands)).with_some("run", run);
    if let Some(ms) = result.pull_requests.iter().find_map(|one| one.run_duration_ms) {
        line = line.gauge("run_ms", "Milliseconds", ms);
    }
    let tries = result.pull_requests.iter().map(|one| one.attempts).max().filter(|tries| *tries > 1);
    line = line.with_some("tries", tries);
    // One delivery may concern several pull requests; each is counted.
    let mut statuses: Vec<IngestStatus> = result.pull_requests.iter().map(|one| one.status).collect();
    if statuses.is_empty() {
        statuses.push(result.status);
    }
    statuses.sort_unstable();
    statuses.chunk_by(|a, b| a == b).fold(line, |line, same| line.count(counter(same[0]), same.len() as u64))
}

pub(crate) fn rejected(request: &RequestLog<'_>, problem: &WebhookProblem, now: Timestamp) -> LogRecord {
    // Unauthenticated senders can cause any number of these lines, so they are short and hold none of the payload.
    let counter = match problem.is_unauthorized() {
        true => "unauthorized",
        false => "rejected",
    };
    LogRecord::new(FUNCTION, now)
        .count(counter, 1)
        .with("code", problem.code)
        .with("path", truncate(&request.path.escape_default().to_string(), 30))
        .with_some(
            "delivery",
            (!request.delivery.is_empty()).then(|| truncate(&request.delivery.escape_default().to_string(), 36)),
        )
}

pub(crate) fn failed(request: &RequestLog<'_>, error: &IngestError, now: Timestamp, ms: u64) -> LogRecord {
    start_record(request, now, ms)
        .count("failed", 1)
        .with("level", if error.is_conflict() { "WARN" } else { "ERROR" })
        .with("error", truncate(&error.to_string(), MAX_REASON))
}
