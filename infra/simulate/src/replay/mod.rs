//! `suture replay EVENTS.jsonl --config NEW.toml`: computes from recorded events what another configuration would have done.
//! `timeline` reads the log; `evaluate` repeats the diagnosis at every sweep of the new configuration, with its thresholds, budgets
//! and rules; `report` compares and prints. No log shows the *effect* of a remedy that did not happen: see [`CANNOT_TELL`].

mod evaluate;
mod report;
mod timeline;

use std::path::{Path, PathBuf};

use domain::event::Event;
use domain::policy::Policies;

pub use report::{CANNOT_TELL, ReplayReport};

#[derive(Debug, Clone, clap::Args)]
pub struct ReplayArguments {
    /// The recorded events, one per line, from `GET /api/export/events`
    events: PathBuf,
    /// The configuration to try
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print only one JSON object
    #[arg(long)]
    json: bool,
}

/// # Errors
/// If a file cannot be read or is invalid.
pub fn run(arguments: &ReplayArguments) -> Result<String, String> {
    let text = |file: &Path| {
        std::fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))
    };
    let policies = Policies::parse(&text(&arguments.config)?)
        .map_err(|error| format!("{} is not a valid configuration:\n{error}", arguments.config.display()))?;
    let events = events_of(&text(&arguments.events)?);
    let report = replay(events.map_err(|error| format!("{}: {error}", arguments.events.display()))?, &policies);
    Ok(if arguments.json { report.json().to_string() } else { report.table() })
}

/// Reads events, one per line, in any order.
///
/// # Errors
/// If a line is not an event; the error has its number and the reason.
pub fn events_of(text: &str) -> Result<Vec<Event>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            format!("line {} is not an event: {error}. Export the log again with GET /api/export/events", index + 1)
        })
    };
    lines.map(read).collect()
}

#[must_use]
pub fn replay(events: Vec<Event>, policies: &Policies) -> ReplayReport {
    let mut report = ReplayReport { events: events.len(), ..ReplayReport::default() };
    for timeline in timeline::timelines(events) {
        report.add(&timeline, &evaluate::evaluate(&timeline, policies.for_repo(&timeline.pr.repo)));
    }
    report.sooner.sort_by(f64::total_cmp);
    report.later.sort_by(f64::total_cmp);
    report
}
