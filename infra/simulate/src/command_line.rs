//! `suture simulate`: shows a progress bar on a terminal, prints a table or one JSON object, and prints for each failed seed the
//! command that repeats it.

use std::io::{IsTerminal, Write as _};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::faults::FaultSelection;
use crate::report::SimulationReport;
use crate::shared_state::locked;
use crate::simulation::{SimConfig, run_seed};

#[derive(Debug, Clone, clap::Args)]
pub struct SimulateArguments {
    /// Pull requests opened in each simulation
    #[arg(long, value_name = "N", default_value_t = 5)]
    prs: u64,
    /// One simulation per seed: 1..1001 runs a thousand, 7 runs one
    #[arg(long, value_name = "A..B", default_value = "1..101", value_parser = seeds)]
    seeds: Range<u64>,
    /// The faults to inject: all, none, or a comma-separated list of names
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = FaultSelection::named)]
    faults: FaultSelection,
    /// Makes faults this many times as frequent
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50))]
    times: u32,
    /// Print only one JSON object
    #[arg(long)]
    json: bool,
    /// Print the trace of each seed
    #[arg(long)]
    trace: bool,
    /// Concurrent simulations; by default one per core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// The seeds to run, and how.
#[derive(Debug, Clone)]
pub struct SeedRequest {
    /// The number of pull requests that CodeGenie opens in each simulation.
    pub prs: u64,
    pub seeds: Range<u64>,
    pub faults: FaultSelection,
    pub threads: usize,
}

/// The most failed seeds to print.
const MAX_SHOWN: usize = 10;

/// Runs the command. Returns whether all invariants held and nobody was called needlessly.
///
/// # Errors
/// If a simulation cannot be set up.
pub fn run(arguments: &SimulateArguments) -> Result<bool, String> {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let request = SeedRequest {
        prs: arguments.prs,
        seeds: arguments.seeds.clone(),
        faults: arguments.faults.clone().times(arguments.times),
        threads: arguments.threads.unwrap_or_else(cores),
    };
    if arguments.trace { print_traces(&request) } else { simulate(arguments, &request) }
}

fn simulate(arguments: &SimulateArguments, request: &SeedRequest) -> Result<bool, String> {
    let bar = progress_bar(request, arguments.json);
    let result = run_seeds(request, |outcome| {
        bar.inc(1);
        if !outcome.is_good() {
            bar.set_message("invariant violated");
        }
    });
    bar.finish_and_clear();
    let (outcome, seconds) = result?;
    let text = if arguments.json { outcome.json(seconds).to_string() } else { outcome.table(seconds) };
    print(&text);
    for (seed, why) in &outcome.needless {
        print_error(&format!("seed {seed} escalated needlessly: {why}\n  repeat: {}", repeat_command(request, *seed)));
    }
    for (seed, first) in outcome.failed.iter().take(MAX_SHOWN) {
        print_error(&format!("seed {seed} failed: {first}\n  repeat: {}", repeat_command(request, *seed)));
    }
    if outcome.failed.len() > MAX_SHOWN {
        print_error(&format!("and {} more seeds", outcome.failed.len() - MAX_SHOWN));
    }
    Ok(outcome.is_good())
}

fn progress_bar(request: &SeedRequest, json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(request.seeds.end - request.seeds.start);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {elapsed} elapsed, {eta} left  {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn print_traces(request: &SeedRequest) -> Result<bool, String> {
    let mut good = true;
    for seed in request.seeds.clone() {
        let config = SimConfig { trace: true, ..SimConfig::new(seed, request.prs, request.faults.clone())? };
        let result = run_seed(&config)?;
        good &= result.outcome.is_good();
        print(&format!("seed {seed}\n{}\n\n{}", result.trace.join("\n"), result.outcome.table(0.0)));
    }
    Ok(good)
}

/// Ignores a closed pipe (`| head`).
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `A..B`, `A..=B` or `A`.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let invalid = || format!("`{text}` is not a range of seeds: write 1..1001 for a thousand seeds, or 7 for one");
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| invalid());
    let range = match text.split_once("..") {
        None => number(text)?..number(text)?.saturating_add(1),
        Some((from, to)) => match to.strip_prefix('=') {
            Some(last) => number(from)?..number(last)?.saturating_add(1),
            None => number(from)?..number(to)?,
        },
    };
    if range.is_empty() { Err(invalid()) } else { Ok(range) }
}

/// Runs all seeds on `threads` threads and calls `on_outcome` for each.
///
/// # Errors
/// If a simulation cannot be set up.
pub fn run_seeds(
    request: &SeedRequest,
    on_outcome: impl Fn(&SimulationReport) + Sync,
) -> Result<(SimulationReport, f64), String> {
    let started = Instant::now();
    let next = AtomicU64::new(request.seeds.start);
    let total: Mutex<Result<SimulationReport, String>> = Mutex::new(Ok(SimulationReport::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= request.seeds.end {
                return;
            }
            let config = SimConfig::new(seed, request.prs, request.faults.clone());
            let result = config.and_then(|config| run_seed(&config));
            match (result, &mut *locked(&total)) {
                (Ok(result), Ok(total)) => {
                    on_outcome(&result.outcome);
                    total.add(result.outcome);
                }
                (Err(error), total @ Ok(_)) => *total = Err(error),
                (_, Err(_)) => return,
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..request.threads.max(1) {
            scope.spawn(work);
        }
    });
    let outcome = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
    Ok((outcome, started.elapsed().as_secs_f64()))
}

/// The command that repeats one seed exactly.
fn repeat_command(request: &SeedRequest, seed: u64) -> String {
    let SeedRequest { prs, faults: FaultSelection { text, times, .. }, .. } = request;
    let times = if *times == 1 { String::new() } else { format!(" --times {times}") };
    format!("cargo run --profile simulate -- simulate --prs {prs} --seeds {seed} --faults {text}{times} --trace")
}
