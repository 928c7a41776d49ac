//! The command line of `-- simulate`: what was asked for, a progress bar where somebody looks, one JSON object where a machine
//! does, and for every seed that fails the command that plays it again.

use std::io::{IsTerminal, Write as _};
use std::ops::Range;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

use crate::{FaultPlan, Outcome, Request, SimConfig, again, run, run_seed, seeds};

/// What is asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Pull requests that are opened in each world
    #[arg(long, value_name = "N", default_value_t = 5)]
    prs: u64,
    /// Seeds: each makes one world. 1..1001 are a thousand, 7 is one
    #[arg(long, value_name = "A..B", default_value = "1..101", value_parser = seeds)]
    seeds: Range<u64>,
    /// What may go wrong: all, none, or names with commas between
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = FaultPlan::named)]
    faults: FaultPlan,
    /// How many times as often as usual things go wrong
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50))]
    times: u32,
    /// Print one JSON object, and nothing else
    #[arg(long)]
    json: bool,
    /// Print the whole history of each seed
    #[arg(long)]
    trace: bool,
    /// Print who was called needlessly, and why
    #[arg(long)]
    needless: bool,
    /// Worlds at a time; without it, one for each core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Failing seeds whose commands are printed.
const MOST_SHOWN: usize = 10;
/// What somebody asked for cannot be done.
const BAD_INPUT: u8 = 2;

/// Simulates, prints, and fails if anything happened that must not.
#[must_use]
pub fn main(arguments: &Arguments) -> ExitCode {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let request = Request {
        prs: arguments.prs,
        seeds: arguments.seeds.clone(),
        faults: arguments.faults.clone().times(arguments.times),
        threads: arguments.threads.unwrap_or_else(cores),
    };
    if arguments.trace {
        return trace(&request);
    }
    let bar = bar(&request, arguments.json);
    let told = run(&request, |_, outcome| {
        bar.inc(1);
        if !outcome.is_good() {
            bar.set_message("something went wrong");
        }
    });
    bar.finish_and_clear();
    match told {
        Ok((outcome, seconds)) => {
            print(arguments, &request, &outcome, seconds);
            if outcome.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(sentence) => {
            say(&sentence);
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// A bar where a person looks at a terminal; nothing where a machine reads.
fn bar(request: &Request, json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(request.seeds.end - request.seeds.start);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} worlds, {elapsed} gone, {eta} to go  {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn print(arguments: &Arguments, request: &Request, outcome: &Outcome, seconds: f64) {
    let text = if arguments.json { outcome.json(seconds).to_string() } else { outcome.table(seconds) };
    let _ = writeln!(std::io::stdout(), "{text}");
    if arguments.needless {
        for (seed, why) in &outcome.needless {
            say(&format!("seed {seed}: {why}"));
        }
    }
    for (seed, first) in outcome.failed.iter().take(MOST_SHOWN) {
        say(&format!("seed {seed} went wrong: {first}\n  again: {}", again(request, *seed)));
    }
    if outcome.failed.len() > MOST_SHOWN {
        say(&format!("and {} more seeds", outcome.failed.len() - MOST_SHOWN));
    }
}

/// The history of each seed, one after the other.
fn trace(request: &Request) -> ExitCode {
    let mut good = true;
    for seed in request.seeds.clone() {
        let config =
            SimConfig::new(seed, request.prs, request.faults.clone()).map(|config| SimConfig { trace: true, ..config });
        match config.and_then(|config| run_seed(&config)) {
            Ok(run_simulation) => {
                good &= run_simulation.outcome.is_good();
                let _ = writeln!(std::io::stdout(), "seed {seed}\n{}\n", run_simulation.trace.join("\n"));
                let _ = writeln!(std::io::stdout(), "{}", run_simulation.outcome.table(0.0));
            }
            Err(sentence) => {
                say(&sentence);
                return ExitCode::from(BAD_INPUT);
            }
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
