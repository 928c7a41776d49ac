//! The benchmarks: Suture beside what people would write instead, in one run, as one table and as JSON. `scripts/bench` sets up
//! what this needs and runs it. What must hold is a limit or a ratio; absolute times are only context.
//!
//! ```text
//! bench all                    everything; writes docs/bench.json, the plot, and the recorded instructions
//! bench check                  what cannot flake, against its limits
//! bench instructions           only instructions, against what is recorded; `record` instead writes them down
//! ```

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for measuring may stop, and its output is what it is for"
)]

mod burst;
mod cost;
mod fleet;
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
use crate::webhooks::{Figures, Programs, Who, measure};

/// So often each is measured beside the others.
const AROUND: u32 = 3;

/// How often things are repeated.
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the clone");
    let release =
        PathBuf::from(std::env::var("SUTURE_BENCH_RELEASE").expect("SUTURE_BENCH_RELEASE: see scripts/bench"));
    assert!(lambda::there(&release.join("webhook")), "{} has no binaries", release.display());
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
        Some("instructions") => end(&instruct(&root, &release)),
        Some("record") => record(&root, &release),
        _ => panic!("all, check, instructions or record"),
    }
}

fn record(root: &Path, release: &Path) {
    let counted = instructions::count(root, release);
    let text = instructions::text(&counted);
    print!("{text}");
    std::fs::write(root.join("tests/bench/instructions.txt"), text).expect("a file");
}

fn instruct(root: &Path, release: &Path) -> Vec<String> {
    let counted = instructions::count(root, release);
    print!("{}", instructions::text(&counted));
    instructions::complaints(&counted, &instructions::recorded(root))
}

/// Ends with an error if there is anything to complain about.
fn end(complaints: &[String]) {
    for complaint in complaints {
        eprintln!("bench: {complaint}");
    }
    if !complaints.is_empty() {
        std::process::exit(1);
    }
}

fn complain(complaints: &mut Vec<String>, what: &str, found: f64, limit: f64) {
    if found > limit {
        complaints.push(format!("{what}: {found:.3}, the limit is {limit}"));
    }
}

/// What does not depend on how busy the machine is.
async fn check(root: &Path, release: PathBuf) {
    let mut complaints = Vec::new();
    for size in sizes::weigh(&release) {
        println!("{}: {} bytes, {} zipped", size.name, size.bytes, size.zipped);
        complain(&mut complaints, &format!("{} zipped", size.name), size.zipped as f64, sizes::LIMIT_BYTES as f64);
    }
    let programs = Programs { root: root.to_owned(), release, probot: PathBuf::new(), python: PathBuf::new() };
    let suture = measure(&programs, Who::Suture, 1, 1).await;
    println!(
        "webhook: {:.2} requests per event, at most {}, counter {:.2}, SHA rows {:.2}; {:.0} bytes of log per rejected one",
        suture.requests, suture.most_requests, suture.counter, suture.sha_rows, suture.rejected_bytes
    );
    complain(&mut complaints, "requests of one webhook", suture.most_requests as f64, 2.0);
    complain(&mut complaints, "counter requests per webhook", suture.counter, 1.0);
    complain(&mut complaints, "SHA rows per webhook", suture.sha_rows, 1.0);
    complain(&mut complaints, "bytes of log per rejected webhook", suture.rejected_bytes, 300.0);
    for open in [100, 1_000] {
        let cost = fleet::sweep(&programs, open).await;
        println!("sweep of {open}: {}", cost.json());
        complaints.extend(too_much(&cost));
    }
    complaints.extend(instruct(root, &programs.release));
    end(&complaints);
}

/// What is wrong with a sweep. Below a full page of pull requests, one request of each kind is the least there is.
fn too_much(cost: &Cost) -> Vec<String> {
    let mut complaints = Vec::new();
    let name = format!("sweep of {} open, per stale one", cost.open);
    complain(&mut complaints, &format!("{name}: index entries"), cost.index_entries, 1.05);
    let least = 2.0 / cost.stale as f64;
    complain(&mut complaints, &format!("{name}: GitHub requests"), cost.github_requests, least.max(0.04));
    complain(&mut complaints, &format!("sweep of {} open: peak memory in MB", cost.open), cost.peak_mb, 128.0);
    complaints
}

async fn all(root: &Path, release: PathBuf, effort: Effort, wanted: &impl Fn(&str) -> bool) {
    let (probot, python) = webhooks::peers(root);
    let programs = Programs { root: root.to_owned(), release, probot, python };
    let file = root.join("docs/bench.json");
    // What is not measured again is kept as it was.
    let mut json: Value = std::fs::read_to_string(&file)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_else(|| json!({}));
    let mut table = Table::default();
    if wanted("sizes") {
        let sizes = sizes::weigh(&programs.release);
        json["sizes"] = sizes.iter().map(sizes::Size::json).collect();
        table.sizes(&sizes);
    }
    if wanted("webhooks") {
        let measured = three(&programs, effort).await;
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
            eprintln!("bench: a sweep over {open}");
            costs.push(fleet::sweep(&programs, open).await);
            open *= 10;
        }
        json["sweep"] = costs.iter().map(Cost::json).collect();
        std::fs::write(root.join("docs/sweep-cost.svg"), fleet::plot(&costs)).expect("a plot");
        table.sweeps(&costs);
    }
    if wanted("burst") {
        let (mut bursts, mut shown) = (Vec::new(), serde_json::Map::new());
        for (who, name) in [(Who::Suture, "suture"), (Who::Probot, "probot")] {
            eprintln!("bench: a burst onto {name}");
            let burst = burst::burst(&programs, who, effort.burst).await;
            shown.insert(name.to_owned(), burst.json());
            bursts.push(burst);
        }
        json["burst"] = shown.into();
        table.bursts(&bursts);
    }
    if wanted("cost") {
        let (idle, lives) = cost::lives().await;
        let monthly = cost::idle_dollars_per_month(&idle);
        json["cost"] = json!({
            "assumptions": cost::assumptions(), "lives": lives.iter().map(cost::Life::json).collect::<Vec<_>>(),
            "idle_sweep": {"store_requests": idle.requests, "capacity_units": idle.units,
                           "dollars_per_month": webhooks::round(monthly)},
        });
        table.costs(&lives, &idle, monthly);
    }
    json["when"] = json!(jiff::Timestamp::now().strftime("%Y-%m-%d").to_string());
    let mut text = serde_json::to_string_pretty(&json).expect("JSON");
    text.push('\n');
    std::fs::write(&file, text).expect("docs/bench.json");
    print!("{}", table.text());
}

/// Suture and its peers, one after the other and around again, so that a disturbance does not meet only one of them: of each the
/// least disturbed time counts.
async fn three(programs: &Programs, effort: Effort) -> [Figures; 3] {
    let mut all: [Option<Figures>; 3] = [None, None, None];
    for _ in 0..AROUND {
        for (place, who) in [Who::Suture, Who::Probot, Who::Powertools].into_iter().enumerate() {
            eprintln!("bench: webhooks onto {who:?}");
            let measured = measure(programs, who, effort.cold, effort.rounds).await;
            all[place] = Some(match all[place].take() {
                None => measured,
                Some(before) => before.or_less_disturbed(measured),
            });
        }
    }
    all.map(|figures| figures.expect("it was measured"))
}
