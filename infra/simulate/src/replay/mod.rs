//! `-- replay EVENTS.jsonl --config NEW.toml`: what another configuration would have done to a recorded history. The log is
//! read into lives; each life is looked at again whenever a sweep would have come by the new thresholds, and the new
//! configuration's budgets and rules decide. Action a remedy would have *led to* is in no log: see [`CANNOT_TELL`].
//!
//! `life` reads a log, `again` decides anew, `told` compares and prints.

mod evaluate;
mod report;
mod timeline;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use domain::event::Event;
use domain::policy::Policies;

pub use report::{CANNOT_TELL, ReplayReport};

/// Action is asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The recorded history: one event per line, as `GET /api/export/events` writes it
    events: PathBuf,
    /// The configuration to try
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

/// Action somebody gave us cannot be used.
const BAD_INPUT: u8 = 2;

/// Replays and prints.
#[must_use]
pub fn main(arguments: &Arguments) -> ExitCode {
    match read(arguments).map(|(events, policies)| replay(events, &policies)) {
        Ok(report) => {
            let text = if arguments.json { report.json().to_string() } else { report.table() };
            // A reader who has seen enough (`| head`) is no error.
            let _ = writeln!(std::io::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        Err(sentence) => {
            let _ = writeln!(std::io::stderr(), "{sentence}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn read(arguments: &Arguments) -> Result<(Vec<Event>, Policies), String> {
    let text = |file: &Path| {
        std::fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))
    };
    let policies = Policies::parse(&text(&arguments.config)?)
        .map_err(|error| format!("{} cannot be used:\n{error}", arguments.config.display()))?;
    let events =
        events_of(&text(&arguments.events)?).map_err(|why| format!("{}: {why}", arguments.events.display()))?;
    Ok((events, policies))
}

/// Events of a file, one per line, in any order.
///
/// # Errors
/// The first line that is none, by number, and what is the matter with it.
pub fn events_of(text: &str) -> Result<Vec<Event>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |(place, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            format!("line {} is no event: {error}. Export the log again with GET /api/export/events", place + 1)
        })
    };
    lines.map(read).collect()
}

/// Action these policies would have done.
#[must_use]
pub fn replay(events: Vec<Event>, policies: &Policies) -> ReplayReport {
    let count = events.len();
    let timelines = timeline::timelines(events);
    let decided =
        timelines.iter().map(|timeline| (timeline, evaluate::evaluate(timeline, policies.for_repo(&timeline.pr.repo))));
    ReplayReport::of(count, decided)
}
