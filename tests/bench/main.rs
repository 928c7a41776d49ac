//! The benchmarks: compare Suture with two ordinary implementations in one run, and print a table and JSON. `scripts/bench` prepares
//! and runs this. Targets are limits or ratios; absolute times are only context.
//!
//! ```text
//! bench all                    measures everything; writes docs/bench.json and the plot
//! bench check                  checks the limits of all measurements that do not depend on the machine's load
//! bench instructions           compares instruction counts with the recorded ones
//! bench record                 records instruction counts
//! ```

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark panics on errors and prints its results"
)]

mod burst;
mod cost;
mod fleet;
mod hot;
mod instructions;
mod lambda;
mod payloads;
mod sizes;
mod table;
mod tables;
mod webhooks;
mod wire;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::fleet::Cost;
use crate::table::Table;
use crate::webhooks::{Figures, Program, Programs, measure};

/// How often each program is measured, in turn with the others.
const MEASUREMENTS: u32 = 3;

/// The numbers of repetitions and the sizes.
#[derive(Debug, Clone, Copy)]
struct Effort {
    cold: u32,
    rounds: u64,
    burst: usize,
    most_open: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("repository root");
    let release =
        PathBuf::from(std::env::var("SUTURE_BENCH_RELEASE").expect("SUTURE_BENCH_RELEASE: see scripts/bench"));
    assert!(lambda::exists(&release.join("webhook")), "{} has no binaries", release.display());
    let number = |name: &str, usual: u64| {
        let given = arguments.iter().find_map(|argument| argument.strip_prefix(&format!("--{name}=")));
        given.map_or(usual, |given| given.parse().expect("a number"))
    };
    let effort = Effort {
        cold: u32::try_from(number("cold", 7)).expect("a number"),
        rounds: number("rounds", 20),
        burst: usize::try_from(number("burst", 10_000)).expect("a number"),
        most_open: number("most-open", 100_000),
    };
    let sections: Vec<&str> = arguments.iter().filter_map(|argument| argument.strip_prefix("--only=")).collect();
    let wanted = |section: &str| sections.is_empty() || sections.contains(&section);
    match arguments.first().map(String::as_str) {
        Some("all") => all(&root, release, effort, &wanted).await,
        Some("check") => check(&root, release).await,
        Some("instructions") => exit_on_failures(&check_instructions(&root, &release)),
        Some("record") => record(&root, &release),
        _ => panic!("usage: bench all|check|instructions|record"),
    }
}

fn record(root: &Path, release: &Path) {
    let counted = instructions::count(root, release);
    let text = instructions::text(&counted);
    print!("{text}");
    std::fs::write(root.join("tests/bench/instructions.txt"), text).expect("a file");
}

fn check_instructions(root: &Path, release: &Path) -> Vec<String> {
    let counted = instructions::count(root, release);
    print!("{}", instructions::text(&counted));
    instructions::failures(&counted, &instructions::recorded(root))
}

/// Prints the failures, and exits with an error if there are any.
fn exit_on_failures(failures: &[String]) {
    for failure in failures {
        eprintln!("bench: {failure}");
    }
    if !failures.is_empty() {
        std::process::exit(1);
    }
}

fn check_limit(failures: &mut Vec<String>, what: &str, found: f64, limit: f64) {
    if found > limit {
        failures.push(format!("{what}: {found:.3}, the limit is {limit}"));
    }
}

/// Checks all limits that do not depend on the load of the machine.
async fn check(root: &Path, release: PathBuf) {
    let mut failures = Vec::new();
    for size in sizes::measure_all(&release) {
        println!("{}: {} bytes, {} zipped", size.name, size.bytes, size.zipped);
        check_limit(&mut failures, &format!("{} zipped", size.name), size.zipped as f64, sizes::LIMIT_BYTES as f64);
    }
    let programs = Programs { root: root.to_owned(), release, probot: PathBuf::new(), python: PathBuf::new() };
    let suture = measure(&programs, Program::Suture, 1, 1).await;
    println!(
        "webhook: {:.2} requests per event, at most {}, counter {:.2}, SHA rows {:.2}; {:.0} bytes of log per rejected one",
        suture.requests, suture.most_requests, suture.counter, suture.sha_rows, suture.rejected_bytes
    );
    check_limit(&mut failures, "requests of one webhook", suture.most_requests as f64, 2.0);
    check_limit(&mut failures, "counter requests per webhook", suture.counter, 1.0);
    check_limit(&mut failures, "SHA rows per webhook", suture.sha_rows, 1.0);
    check_limit(&mut failures, "bytes of log per rejected webhook", suture.rejected_bytes, 300.0);
    for open in [100, 1_000] {
        let cost = fleet::sweep(&programs, open).await;
        println!("sweep of {open}: {}", cost.json());
        failures.extend(sweep_failures(&cost));
    }
    failures.extend(check_instructions(root, &programs.release));
    exit_on_failures(&failures);
}

/// The exceeded limits of a sweep. Below a full page of pull requests, one request of each kind is the minimum.
fn sweep_failures(cost: &Cost) -> Vec<String> {
    let mut failures = Vec::new();
    let name = format!("sweep of {} open, per stale one", cost.open);
    check_limit(&mut failures, &format!("{name}: index entries"), cost.index_entries, 1.05);
    let least = 2.0 / cost.stale as f64;
    check_limit(&mut failures, &format!("{name}: GitHub requests"), cost.github_requests, least.max(0.04));
    check_limit(&mut failures, &format!("sweep of {} open: peak memory in MB", cost.open), cost.peak_mb, 128.0);
    failures
}

async fn all(root: &Path, release: PathBuf, effort: Effort, wanted: &impl Fn(&str) -> bool) {
    let (probot, python) = webhooks::peers(root);
    let programs = Programs { root: root.to_owned(), release, probot, python };
    let file = root.join("docs/bench.json");
    // Sections that are not measured keep their old values.
    let mut json: Value = std::fs::read_to_string(&file)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_else(|| json!({}));
    let mut table = Table::default();
    if wanted("sizes") {
        let sizes = sizes::measure_all(&programs.release);
        json["sizes"] = sizes.iter().map(sizes::Size::json).collect();
        table.sizes(&sizes);
    }
    if wanted("webhooks") {
        let measured = measure_programs(&programs, effort).await;
        let named = ["suture", "probot", "powertools"].into_iter().zip(&measured);
        json["webhooks"] =
            named.map(|(name, figures)| (name.to_owned(), figures.json())).collect::<serde_json::Map<_, _>>().into();
        table.webhooks(&measured);
    }
    if wanted("instructions") {
        let counted = instructions::count(root, &programs.release);
        json["instructions"] = json!(counted);
        table.instructions(&counted);
    }
    if wanted("sweep") {
        let mut costs = Vec::new();
        let mut open = 100;
        while open <= effort.most_open {
            eprintln!("bench: measuring a sweep of {open} open pull requests");
            costs.push(fleet::sweep(&programs, open).await);
            open *= 10;
        }
        json["sweep"] = costs.iter().map(Cost::json).collect();
        std::fs::write(root.join("docs/sweep-cost.svg"), fleet::plot(&costs)).expect("a plot");
        table.sweeps(&costs);
    }
    if wanted("burst") {
        let (mut bursts, mut shown) = (Vec::new(), serde_json::Map::new());
        for (program, name) in [(Program::Suture, "suture"), (Program::Probot, "probot")] {
            eprintln!("bench: measuring a burst on {name}");
            let burst = burst::burst(&programs, program, effort.burst).await;
            shown.insert(name.to_owned(), burst.json());
            bursts.push(burst);
        }
        json["burst"] = shown.into();
        table.bursts(&bursts);
    }
    if wanted("hot") {
        eprintln!("bench: measuring one hot pull request");
        let hot = hot::hot_pull_request(&programs).await;
        json["hot_pull_request"] = hot.json();
        table.hot_pull_request(&hot);
    }
    if wanted("cost") {
        let (idle, lifecycles) = cost::lifecycles().await;
        let monthly = cost::idle_dollars_per_month(&idle);
        json["cost"] = json!({
            "assumptions": cost::assumptions(), "lives": lifecycles.iter().map(cost::Lifecycle::json).collect::<Vec<_>>(),
            "idle_sweep": {"store_requests": idle.requests, "capacity_units": idle.units,
                           "dollars_per_month": webhooks::round(monthly)},
        });
        table.costs(&lifecycles, &idle, monthly);
    }
    json["when"] = json!(jiff::Timestamp::now().strftime("%Y-%m-%d").to_string());
    let mut text = serde_json::to_string_pretty(&json).expect("JSON");
    text.push('\n');
    std::fs::write(&file, text).expect("docs/bench.json");
    print!("{}", table.text());
}

/// Measures Suture and its peers in turn, several times, so that a disturbance does not affect only one of them, and keeps the
/// shortest times.
async fn measure_programs(programs: &Programs, effort: Effort) -> [Figures; 3] {
    let mut all: [Option<Figures>; 3] = [None, None, None];
    for _ in 0..MEASUREMENTS {
        for (place, program) in [Program::Suture, Program::Probot, Program::Powertools].into_iter().enumerate() {
            eprintln!("bench: measuring webhooks of {program:?}");
            let measured = measure(programs, program, effort.cold, effort.rounds).await;
            all[place] = Some(match all[place].take() {
                None => measured,
                Some(before) => before.or_less_disturbed(measured),
            });
        }
    }
    all.map(|figures| figures.expect("measured at least once"))
}
