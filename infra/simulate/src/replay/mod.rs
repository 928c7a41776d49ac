//! `suture replay EVENTS.jsonl --config NEW.toml`: what another configuration would have done, from recorded events. `timeline`
//! reads the log; `evaluate` diagnoses again whenever a sweep would have come by the new thresholds, with the new budgets and
//! rules; `report` compares and prints. What a remedy would have *led to* is in no log: see [`CANNOT_TELL`].

mod evaluate;
mod report;
mod timeline;

use std::path::{Path, PathBuf};

use domain::event::Event;
use domain::policy::Policies;

pub use report::{CANNOT_TELL, ReplayReport};

#[derive(Debug, Clone, clap::Args)]
pub struct ReplayArguments {
    /// The recorded events: one per line, as `GET /api/export/events` writes them
    events: PathBuf,
    /// The configuration to try
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

/// # Errors
/// If a file cannot be read, and why.
pub fn run(arguments: &ReplayArguments) -> Result<String, String> {
    let text = |file: &Path| {
        std::fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))
    };
    let policies = Policies::parse(&text(&arguments.config)?)
        .map_err(|error| format!("{} cannot be used:\n{error}", arguments.config.display()))?;
    let events = events_of(&text(&arguments.events)?);
    let report = replay(events.map_err(|error| format!("{}: {error}", arguments.events.display()))?, &policies);
    Ok(if arguments.json { report.json().to_string() } else { report.table() })
}

/// Reads events, one per line, in any order.
///
/// # Errors
/// The number of the first line that is none, and what is wrong with it.
pub fn events_of(text: &str) -> Result<Vec<Event>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            format!("line {} is no event: {error}. Export the log again with GET /api/export/events", index + 1)
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
