//! `-- simulate`: many worlds in virtual time, each from its seed alone, with everything that can go wrong going wrong, and
//! somebody who checks after every step what must always hold.
//!
//! `play` lets one world run from its first pull request to its last; `stage` wires the functions' real code around it;
//! `border` is where calls leave their processes, take time and fail; `watch` and `ledger` check what happens, `ending` what
//! came of it; `people` are people, and press the dashboard's buttons at the `desk`; `report` counts.

mod border;
mod chance;
mod command;
mod desk;
mod ending;
mod faults;
mod ledger;
mod people;
mod play;
mod queue;
mod report;
mod stage;
mod watch;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use border::{Function, Sabotage, Stop, Stopped};
pub use command::{Arguments, main};
pub use desk::Button;
pub use ending::End;
pub use faults::{Inside, Mishaps};
pub use play::{Played, Plot, play};
pub use report::Outcome;
pub use watch::{Escalation, Violation, Wrong};

/// What was asked for on the command line.
#[derive(Debug, Clone)]
pub struct Request {
    /// Pull requests that CodeGenie opens in each world.
    pub prs: u64,
    /// The seeds, the last excluded.
    pub seeds: std::ops::Range<u64>,
    /// What may go wrong.
    pub mishaps: Mishaps,
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
            let played = Plot::new(seed, request.prs, request.mishaps.clone()).and_then(|plot| play(&plot));
            let mut total = border::locked(&total);
            match (played, &mut *total) {
                (Ok(played), Ok(total)) => {
                    tell(seed, &played.outcome);
                    total.add(played.outcome);
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
    let Request { prs, mishaps, .. } = request;
    let times = if mishaps.times == 1 { String::new() } else { format!(" --times {}", mishaps.times) };
    let faults = &mishaps.text;
    format!(
        "cargo run --profile simulate -p local -- simulate --prs {prs} --seeds {seed} --faults {faults}{times} --trace"
    )
}
