//! Suture on one machine. `cargo run -p local` plays a morning of pull requests through the real core, in virtual time,
//! and prints what Suture sees and does; `check-config` tells what is wrong with a `suture.toml`, and where.

mod story;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use domain::policy::{Mode, Policies, schema};

#[derive(Parser)]
#[command(name = "local", about = "Suture on one machine", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Task>,
}

#[derive(Subcommand)]
enum Task {
    /// Play a morning of pull requests: how they get stuck, and how they are healed (the default)
    Story {
        /// The configuration to play it with; without it, the defaults, acting
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Read a suture.toml and say what is wrong with it, and where
    CheckConfig {
        /// The file to read
        file: PathBuf,
    },
    /// Print the JSON schema of suture.toml, for editors
    Schema,
    /// Play many worlds in virtual time, with everything going wrong that can, and check what must always hold
    Simulate(local::simulate::Arguments),
    /// Say what another configuration would have done to a recorded history
    Replay(local::replay::Arguments),
}

/// Whatever is wrong with what we were given ends with this, after a sentence that says so.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command.unwrap_or(Task::Story { config: None }) {
        Task::Simulate(arguments) => return local::simulate::main(&arguments),
        Task::Replay(arguments) => return local::replay::main(&arguments),
        Task::Story { config: None } => Ok(story::play(&story::acting_defaults())),
        Task::Story { config: Some(file) } => read(&file).map(|policies| story::play(policies.base())),
        Task::CheckConfig { file } => read(&file).map(|policies| describe(&file, &policies)),
        Task::Schema => serde_json::to_string_pretty(&schema()).map_err(|error| error.to_string()),
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

fn read(file: &Path) -> Result<Policies, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    Policies::parse(&text).map_err(|error| format!("{shown} cannot be used:\n{error}"))
}

fn describe(file: &Path, policies: &Policies) -> String {
    let mut text = format!("{} is fine. {}", file.display(), means(policies.base().mode));
    for (name, policy) in policies.overrides() {
        text.push_str(&format!("\n  {name} has settings of its own. {}", means(policy.mode)));
    }
    text
}

fn means(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "Mode observe: Suture watches, and says what it would do.",
        Mode::Act => "Mode act: Suture applies remedies and calls people.",
    }
}
