//! The command line: `cargo run` starts everything; `--help` lists the other commands.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use domain::policy::schema;
use jiff::Timestamp;
use platform::env::{self, ProcessEnv};
use simulate::replay;

use crate::doctor::{self, FindingLevel};
use crate::up::{self, UpOptions};
use crate::{config, keys};

#[derive(Parser)]
#[command(name = "suture", about = "Suture on one machine", disable_help_subcommand = true)]
#[command(args_conflicts_with_subcommands = true)]
struct LocalArguments {
    #[command(subcommand)]
    command: Option<LocalCommand>,
    #[command(flatten)]
    up: UpOptions,
}

#[derive(Subcommand)]
enum LocalCommand {
    /// Run everything in one process, on a real GitHub or a fake one (the default)
    Up(UpOptions),
    /// Read a suture.toml and say what is wrong with it, and where
    CheckConfig {
        /// The file to read
        file: PathBuf,
    },
    /// Print the JSON schema of suture.toml, for editors
    Schema,
    /// Make a key for the API and the dashboard, and its entry for SUTURE_ADMIN_KEYS
    #[command(name = "new-key")]
    NewApiKey {
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
    /// Simulate many seeds in virtual time with injected faults, and check invariants
    Simulate(simulate::SimulateArguments),
    /// Say what another configuration would have done, from recorded events
    Replay(replay::ReplayArguments),
}

/// The exit code when options, files or the environment are wrong.
const BAD_INPUT: u8 = 2;

#[must_use]
pub fn main() -> ExitCode {
    let arguments = LocalArguments::parse();
    match run(arguments.command.unwrap_or(LocalCommand::Up(arguments.up))) {
        Ok((text, succeeded)) => {
            // A closed pipe (`| head`) is no error.
            let _ = write!(std::io::stdout(), "{text}");
            if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(sentence) => {
            let _ = writeln!(std::io::stderr(), "{sentence}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// Answers what to print, and whether all is well.
fn run(task: LocalCommand) -> Result<(String, bool), String> {
    let text = match task {
        LocalCommand::Simulate(arguments) => {
            return simulate::run(&arguments).map(|succeeded| (String::new(), succeeded));
        }
        LocalCommand::Doctor { config } => return examine(config),
        LocalCommand::Up(options) => start(options),
        LocalCommand::Replay(arguments) => replay::run(&arguments),
        LocalCommand::CheckConfig { file } => config::read(&file).map(|policies| config::describe(&file, &policies)),
        LocalCommand::Schema => serde_json::to_string_pretty(&schema()).map_err(|error| error.to_string()),
        LocalCommand::NewApiKey { name, role, repos } => {
            keys::make(&name, &role, &repos).map(|made| describe_key(&made))
        }
    };
    text.map(|text| (format!("{text}\n"), true))
}

fn start(options: UpOptions) -> Result<String, String> {
    let runtime = runtime()?;
    let ended = runtime.block_on(up::run(options, &ProcessEnv)).map_err(|error| error.to_string());
    // Whatever still runs has had its time; nothing is lost.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ended.map(|()| "Stopped. Everything is kept.".to_owned())
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| format!("This machine gives us no threads: {error}."))
}

fn examine(config: Option<PathBuf>) -> Result<(String, bool), String> {
    let policies = match config {
        Some(file) => config::read(&file),
        None => env::policies(&ProcessEnv).map_err(|bad| bad.to_string()),
    };
    let findings = runtime()?.block_on(doctor::examine(policies, &ProcessEnv, Timestamp::now()));
    let failed = findings.iter().filter(|finding| finding.verdict == FindingLevel::Fail).count();
    let lines: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    let summary = match failed {
        0 => "Nothing keeps Suture from working.".to_owned(),
        1 => "One thing keeps Suture from working.".to_owned(),
        many => format!("{many} things keep Suture from working."),
    };
    Ok((format!("{lines}{summary}\n"), failed == 0))
}

fn describe_key(made: &keys::NewApiKey) -> String {
    format!(
        "key    {}\nentry  {}\n\nGive the key to its owner: it is not kept anywhere. Add the entry to SUTURE_ADMIN_KEYS (`;` between entries).",
        made.key, made.entry
    )
}
