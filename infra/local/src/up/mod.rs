//! Suture in one process: the tables, the queue, the four functions behind one port, and, without GitHub credentials,
//! the fakes. This module has the options and their validation; `system` runs the system.

mod console;
mod data_dir;
mod demo;
mod event_tap;
mod external;
mod http;
mod log_file;
mod publisher;
mod queue;
mod scaled_clock;
mod system;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::policy::Policies;
use platform::env::{self, Environment};
use tokio::net::TcpListener;

use self::data_dir::DataDir;
use self::demo::Demo;
use self::external::AdminAccess;
use self::system::LocalSystem;

/// One simulated minute per real second.
const DEMO_SPEED: f64 = 60.0;
/// At higher speeds, a slow machine looks like slow bots and builds.
const SPEEDS: std::ops::RangeInclusive<f64> = 1.0..=600.0;

/// Why the process cannot start, and how to fix it: one sentence, shown to the user.
#[derive(Debug)]
pub struct StartError(pub String);

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<env::ConfigError> for StartError {
    fn from(bad: env::ConfigError) -> Self {
        Self(format!("{bad}."))
    }
}

#[derive(Debug, Clone, clap::Args)]
pub struct UpOptions {
    /// Port to listen on at 127.0.0.1 (0: any free port)
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Data directory [default: .suture/demo or .suture/live]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Use a fake GitHub, Jenkins and bots (the default without GitHub credentials)
    #[arg(long, conflicts_with = "no_demo")]
    demo: bool,
    /// Use the GitHub configured by the SUTURE_GITHUB_… variables
    #[arg(long)]
    no_demo: bool,
    /// Seed of the demo's random faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Speed of the demo as a multiple of real time [default: 60]
    #[arg(long, value_name = "X")]
    speed: Option<f64>,
    /// Configuration file [default: the file named by SUTURE_CONFIG, otherwise built-in defaults; the demo runs in mode
    /// act]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs until Ctrl-C or SIGTERM.
///
/// # Errors
/// The system cannot start: an option, a file, a port or an environment variable is wrong.
pub async fn run(options: UpOptions, environment: &impl Environment) -> Result<(), StartError> {
    let is_demo = is_demo(&options, environment)?;
    let policies = policies(&options, is_demo, environment)?;
    let purpose = if is_demo { "demo" } else { "live" };
    let path = options.data.clone().unwrap_or_else(|| Path::new(".suture").join(purpose));
    // Check the environment before creating any file.
    let live = if is_demo { None } else { Some(external::live(policies.clone(), environment)?) };
    let data_dir = DataDir::open(&path, purpose)?;
    let listener = listen(options.port).await?;
    let address = listener
        .local_addr()
        .map_err(|error| StartError(format!("Cannot read the address of the listening port: {error}.")))?;
    let address = format!("http://{address}");
    let (demo, external) = match live {
        Some(external) => (None, external),
        None => {
            let speed = options.speed.unwrap_or(DEMO_SPEED);
            let demo = Arc::new(Demo::start(&data_dir, options.seed, speed).await?);
            let external = external::fakes(&demo, policies)?;
            (Some(demo), external)
        }
    };
    let access = AdminAccess::open(&data_dir, environment)?;
    let end = system::end_signal();
    let system = LocalSystem::start(&data_dir, external, access).await?;
    system.greet(&address, &path, demo.as_deref());
    system.serve(&data_dir, listener, &address, demo, end).await;
    Ok(())
}

fn is_demo(options: &UpOptions, environment: &impl Environment) -> Result<bool, StartError> {
    let credentials = ["SUTURE_GITHUB_TOKEN", "SUTURE_GITHUB_APP_ID"];
    let has_credentials = credentials.iter().any(|name| environment.get(name).is_some());
    let is_demo = options.demo || (!options.no_demo && !has_credentials);
    if !is_demo && !has_credentials {
        return Err(StartError(
            "There are no GitHub credentials: set SUTURE_GITHUB_APP_ID and SUTURE_GITHUB_PRIVATE_KEY, or SUTURE_GITHUB_TOKEN, or remove --no-demo to run the demo.".to_owned(),
        ));
    }
    match options.speed {
        Some(_) if !is_demo => {
            Err(StartError("--speed works only in the demo: remove --speed, or add --demo.".to_owned()))
        }
        Some(speed) if !SPEEDS.contains(&speed) => {
            let (least, most) = (SPEEDS.start(), SPEEDS.end());
            Err(StartError(format!(
                "--speed {speed} is out of range: choose a value from {least} (real time) to {most}."
            )))
        }
        Some(_) | None => Ok(is_demo),
    }
}

fn policies(options: &UpOptions, is_demo: bool, environment: &impl Environment) -> Result<Policies, StartError> {
    if let Some(file) = &options.config {
        return crate::config::read(file).map_err(StartError);
    }
    if is_demo && environment.get("SUTURE_CONFIG").is_none() {
        return Policies::parse(demo::CONFIG).map_err(|error| StartError(error.to_string()));
    }
    Ok(env::policies(environment)?)
}

async fn listen(port: u16) -> Result<TcpListener, StartError> {
    TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| {
        let taken = error.kind() == std::io::ErrorKind::AddrInUse;
        let why = if taken { "is in use by another process".to_owned() } else { format!("cannot be opened: {error}") };
        StartError(format!("Port {port} {why}: choose another one with --port N (0 takes any free port)."))
    })
}
