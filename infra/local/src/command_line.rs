//! The command line: `cargo run` brings everything up; the other commands are listed by `--help`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use domain::policy::schema;
use jiff::Timestamp;
use platform::wiring::{self, Process};
use simulate::replay;

use crate::doctor::{self, Verdict};
use crate::up::{self, Options, StartError};
use crate::{config, keys};

#[derive(Parser)]
#[command(name = "suture", about = "Suture on one machine", disable_help_subcommand = true)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Task>,
    #[command(flatten)]
    up: UpArguments,
}

#[derive(Args)]
struct UpArguments {
    /// The port on 127.0.0.1; 0 takes any that is free
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Where everything is kept [default: .suture/demo or .suture/live]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Act on a pretended world (the default without GitHub credentials)
    #[arg(long, conflicts_with = "no_demo")]
    demo: bool,
    /// Serve the GitHub of the SUTURE_GITHUB_… variables
    #[arg(long)]
    no_demo: bool,
    /// What chance begins with, in the demo
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many times as fast the demo's time passes [default: 60]
    #[arg(long, value_name = "X")]
    speed: Option<f64>,
    /// The configuration [default: the file SUTURE_CONFIG names, or the defaults; the demo acts]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Task {
    /// Everything in one process, on a real GitHub or a pretended one (the default)
    Up(UpArguments),
    /// Read a suture.toml and say what is wrong with it, and where
    CheckConfig {
        /// The file to read
        file: PathBuf,
    },
    /// Print the JSON schema of suture.toml, for editors
    Schema,
    /// Make a key for the API and the dashboard, and its entry for SUTURE_ADMIN_KEYS
    NewKey {
        /// Whose it is: shown in the log
        name: String,
        /// viewer, operator or admin
        role: String,
        /// Only for these repositories, `owner/name` with commas between
        #[arg(long, value_name = "A,B", value_delimiter = ',')]
        repos: Vec<String>,
    },
    /// Look at the App, its webhooks, Jenkins, required checks, secrets, keys and tables, and say what to fix
    Doctor {
        /// The configuration [default: the file SUTURE_CONFIG names, or the defaults]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Play many worlds in virtual time, with everything going wrong that can, and check what must always hold
    Simulate(simulate::Arguments),
    /// Say what another configuration would have done to a recorded history
    Replay(replay::Arguments),
}

/// Whatever is wrong with what we were given ends with this, after a sentence that says so.
const BAD_INPUT: u8 = 2;

/// Something that was looked for is not as it should be.
const NOT_WELL: u8 = 1;

/// Does what the arguments of this process ask for.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command.unwrap_or(Task::Up(arguments.up)) {
        Task::Up(options) => bring_up(options),
        Task::Simulate(arguments) => return simulate::main(&arguments),
        Task::Replay(arguments) => return replay::main(&arguments),
        Task::CheckConfig { file } => config::read(&file).map(|policies| config::describe(&file, &policies)),
        Task::Schema => serde_json::to_string_pretty(&schema()).map_err(|error| error.to_string()),
        Task::NewKey { name, role, repos } => keys::make(&name, &role, &repos).map(|made| describe_key(&made)),
        Task::Doctor { config } => match examine(config) {
            Ok((text, well)) => {
                let _ = writeln!(std::io::stdout(), "{text}");
                return if well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) };
            }
            Err(sentence) => Err(sentence),
        },
    };
    match done {
        Ok(text) => {
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

fn bring_up(options: UpArguments) -> Result<String, String> {
    let options = Options {
        port: options.port,
        data: options.data,
        demo: if options.demo { Some(true) } else { options.no_demo.then_some(false) },
        seed: options.seed,
        speed: options.speed,
        config: options.config,
    };
    let runtime = runtime()?;
    let ended = runtime.block_on(up::run(options, &Process)).map_err(|StartError(sentence)| sentence);
    // Whatever still runs has had its time, and loses nothing.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ended.map(|()| "Stopped. Everything is kept.".to_owned())
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| format!("This machine gives us no threads: {error}."))
}

/// The doctor's findings, and whether nothing failed.
fn examine(config: Option<PathBuf>) -> Result<(String, bool), String> {
    let policies = match config {
        Some(file) => config::read(&file),
        None => wiring::policies(&Process).map_err(|bad| bad.to_string()),
    };
    let findings = runtime()?.block_on(doctor::examine(policies, &Process, Timestamp::now()));
    let failed = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).count();
    let mut lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.push(match failed {
        0 => "Nothing keeps Suture from working.".to_owned(),
        1 => "One thing keeps Suture from working.".to_owned(),
        many => format!("{many} things keep Suture from working."),
    });
    Ok((lines.join("\n"), failed == 0))
}

fn describe_key(made: &keys::NewKey) -> String {
    format!(
        "key    {}\nentry  {}\n\nGive the key to its owner: it is not kept anywhere. Add the entry to SUTURE_ADMIN_KEYS (`;` between entries).",
        made.key, made.entry
    )
}
