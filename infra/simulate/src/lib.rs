//! `-- simulate`: many worlds in virtual time, each from its seed alone, with everything that can go wrong going wrong, and
//! somebody who checks after every step what must always hold.
//!
//! `play` lets one world run from its first pull request to its last; `stage` wires the functions' real code around it;
//! `border` is where calls leave their processes, take time and fail; `watch` and `ledger` check what happens, `ending` what
//! came of it; `people` are people, and press the dashboard's buttons at the `desk`; `report` counts.

mod app_key;
mod budget_model;
mod cluster;
mod command_line;
mod dashboard_users;
mod fault_injection;
mod faults;
mod final_checks;
mod invariants;
mod queue;
pub mod replay;
mod report;
mod rng;
mod simulation;
mod users;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use app_key::private_key;
pub use command_line::{Arguments, main};
pub use dashboard_users::DashboardAction;
pub use fault_injection::{CrashMode, CrashPoint, Function, InjectedBug};
pub use faults::{FaultPlan, InternalFault};
pub use final_checks::FinalState;
pub use invariants::{Escalation, Invariant, Violation};
pub use report::Outcome;
pub use simulation::{SimConfig, SimResult, run_seed};

/// What was asked for on the command line.
#[derive(Debug, Clone)]
pub struct Request {
    /// Pull requests that CodeGenie opens in each world.
    pub prs: u64,
    /// The seeds, the last excluded.
    pub seeds: std::ops::Range<u64>,
    /// What may go wrong.
    pub faults: FaultPlan,
    /// Worlds at a time.
    pub threads: usize,
}

/// `A..B`, `A..=B` or `A`.
///
/// # Errors
/// A sentence that says how it is written.
pub fn seeds(text: &str) -> Result<std::ops::Range<u64>, String> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong_seeds(text));
    let range = match text.split_once("..") {
        None => {
            let only = number(text)?;
            only..only.saturating_add(1)
        }
        Some((from, to)) => match to.strip_prefix('=') {
            Some(last) => number(from)?..number(last)?.saturating_add(1),
            None => number(from)?..number(to)?,
        },
    };
    if range.is_empty() { Err(wrong_seeds(text)) } else { Ok(range) }
}

fn wrong_seeds(text: &str) -> String {
    format!("`{text}` are no seeds: write 1..1001 for a thousand of them, or 7 for one")
}

/// Runs all seeds, as many at a time as there are threads. `tell` hears of each that is done.
///
/// # Errors
/// If a world cannot be set up.
pub fn run(request: &Request, tell: impl Fn(u64, &Outcome) + Sync) -> Result<(Outcome, f64), String> {
    let began = Instant::now();
    let next = AtomicU64::new(request.seeds.start);
    let total: Mutex<Result<Outcome, String>> = Mutex::new(Ok(Outcome::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= request.seeds.end {
                return;
            }
            let run_simulation =
                SimConfig::new(seed, request.prs, request.faults.clone()).and_then(|config| run_seed(&config));
            let mut total = fault_injection::locked(&total);
            match (run_simulation, &mut *total) {
                (Ok(run_simulation), Ok(total)) => {
                    tell(seed, &run_simulation.outcome);
                    total.add(run_simulation.outcome);
                }
                (Err(error), Ok(_)) => *total = Err(error),
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
    Ok((outcome, began.elapsed().as_secs_f64()))
}

/// The command that plays one seed again, exactly.
#[must_use]
pub fn again(request: &Request, seed: u64) -> String {
    let Request { prs, faults, .. } = request;
    let times = if faults.times == 1 { String::new() } else { format!(" --times {}", faults.times) };
    let faults = &faults.text;
    format!(
        "cargo run --profile simulate  -- simulate --prs {prs} --seeds {seed} --faults {faults}{times} --trace"
    )
}
