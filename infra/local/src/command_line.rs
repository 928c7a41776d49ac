//! The command line: `cargo run` starts the whole system; `--help` lists the other commands.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use domain::policy::schema;
use jiff::Timestamp;
use platform::env::{self, ProcessEnv};
use platform::transport::Transport;
use simulate::replay;

use crate::dead_letters::{self, DlqCommand};
use crate::doctor::{self, FindingLevel};
use crate::setup::{self, SetupOptions};
use crate::up::{self, UpOptions};
use crate::{config, keys};

#[derive(Parser)]
#[command(name = "suture", about = "Run Suture on one machine, and check its setup", disable_help_subcommand = true)]
#[command(args_conflicts_with_subcommands = true)]
struct LocalArguments {
    #[command(subcommand)]
    command: Option<LocalCommand>,
    #[command(flatten)]
    up: UpOptions,
}

#[derive(Subcommand)]
enum LocalCommand {
    /// Run the whole system in one process, against a real GitHub or a fake one (the default)
    Up(UpOptions),
    /// Validate a suture.toml and show where it is wrong
    CheckConfig {
        /// The file to validate
        file: PathBuf,
    },
    /// Print the JSON schema of suture.toml, for editors
    Schema,
    /// Create a key for the API and the dashboard, and its entry for SUTURE_ADMIN_KEYS
    #[command(name = "new-key")]
    NewApiKey {
        /// Name of the key's owner, shown in the log
        name: String,
        /// Role: viewer, operator or admin
        role: String,
        /// Limit the key to these repositories (`owner/name`, separated by commas)
        #[arg(long, value_name = "A,B", value_delimiter = ',')]
        repos: Vec<String>,
    },
    /// Check the App, its webhooks, Jenkins, required checks, secrets, keys and tables, and show what to fix
    Doctor {
        /// Configuration file [default: the file named by SUTURE_CONFIG, otherwise built-in defaults]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Create the GitHub App: serves a page on this machine and writes the App's secrets into a file
    Setup(SetupOptions),
    /// List, redrive, delete or purge dead letters of the deployment at SUTURE_URL, with the admin key SUTURE_KEY
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// Simulate many seeds in virtual time with injected faults, and check invariants
    Simulate(simulate::SimulateArguments),
    /// Show what another configuration would have done with recorded events
    Replay(replay::ReplayArguments),
}

/// Exit code for invalid options, files or environment variables.
const BAD_INPUT: u8 = 2;

#[must_use]
pub fn main() -> ExitCode {
    let arguments = LocalArguments::parse();
    match run(arguments.command.unwrap_or(LocalCommand::Up(arguments.up))) {
        Ok((text, succeeded)) => {
            // A closed pipe (`| head`) is not an error.
            let _ = write!(std::io::stdout(), "{text}");
            if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "{message}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// Returns the text to print and whether the command succeeded.
fn run(command: LocalCommand) -> Result<(String, bool), String> {
    let text = match command {
        LocalCommand::Simulate(arguments) => {
            return simulate::run(&arguments).map(|succeeded| (String::new(), succeeded));
        }
        LocalCommand::Doctor { config } => return run_doctor(config),
        LocalCommand::Up(options) => start(options),
        LocalCommand::Dlq(command) => run_dlq(&command),
        LocalCommand::Setup(options) => runtime()?.block_on(setup::run(options, &ProcessEnv, https()?)),
        LocalCommand::Replay(arguments) => replay::run(&arguments),
        LocalCommand::CheckConfig { file } => config::read(&file).map(|policies| config::describe(&file, &policies)),
        LocalCommand::Schema => serde_json::to_string_pretty(&schema()).map_err(|error| error.to_string()),
        LocalCommand::NewApiKey { name, role, repos } => keys::make(&name, &role, &repos).map(|key| describe_key(&key)),
    };
    text.map(|text| (format!("{text}\n"), true))
}

fn start(options: UpOptions) -> Result<String, String> {
    let runtime = runtime()?;
    let ended = runtime.block_on(up::run(options, &ProcessEnv)).map_err(|error| error.to_string());
    // The grace period of `up::run` is over. Unfinished messages are still in the queue's table.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ended.map(|()| "Stopped. All data is saved.".to_owned())
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    // All four functions run in these threads, unoptimised: their futures need more than the usual 2 MB.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(8 << 20).build();
    runtime.map_err(|error| format!("Cannot start the async runtime: {error}."))
}

fn run_doctor(config: Option<PathBuf>) -> Result<(String, bool), String> {
    let policies = match config {
        Some(file) => config::read(&file),
        None => env::policies(&ProcessEnv).map_err(|bad| bad.to_string()),
    };
    let findings = runtime()?.block_on(doctor::examine(policies, &ProcessEnv, Timestamp::now()));
    let failed = findings.iter().filter(|finding| finding.level == FindingLevel::Fail).count();
    let lines: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    let summary = match failed {
        0 => "No checks failed.".to_owned(),
        1 => "1 check failed.".to_owned(),
        many => format!("{many} checks failed."),
    };
    Ok((format!("{lines}{summary}\n"), failed == 0))
}

fn run_dlq(command: &DlqCommand) -> Result<String, String> {
    runtime()?.block_on(dead_letters::run(command, &ProcessEnv, &https()?))
}

fn https() -> Result<Transport, String> {
    Transport::https().map_err(|error| format!("cannot build HTTPS client: {error}"))
}

fn describe_key(key: &keys::NewApiKey) -> String {
    format!(
        "key    {}\nentry  {}\n\nGive the key to its owner: it is not stored and cannot be shown again. Add the entry to SUTURE_ADMIN_KEYS (separate entries with `;`).",
        key.key, key.entry
    )
}
