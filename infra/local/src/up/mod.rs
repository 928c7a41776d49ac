//! Suture in one process (design §7): the tables, the queue, the four functions behind one port, and, without credentials, fakes
//! to act on. Here are the options and what is refused; `system` does the rest.

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

/// A minute in a second.
const DEMO_SPEED: f64 = 60.0;
/// Beyond this the machine's own slowness looks like everybody else's.
const SPEEDS: std::ops::RangeInclusive<f64> = 1.0..=600.0;

/// Why this process does not start: one sentence for whoever started it.
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
    /// The port on 127.0.0.1; 0 takes any that is free
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Where everything is kept [default: .suture/demo or .suture/live]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Act on a fake GitHub, Jenkins and bots (the default without GitHub credentials)
    #[arg(long, conflicts_with = "no_demo")]
    demo: bool,
    /// Serve the GitHub of the SUTURE_GITHUB_… variables
    #[arg(long)]
    no_demo: bool,
    /// The seed of the demo's faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many times as fast as real time the demo runs [default: 60]
    #[arg(long, value_name = "X")]
    speed: Option<f64>,
    /// The configuration [default: the file SUTURE_CONFIG names, or the defaults; the demo acts]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs until Ctrl-C or SIGTERM.
///
/// # Errors
/// If it cannot even start.
pub async fn run(options: UpOptions, environment: &impl Environment) -> Result<(), StartError> {
    let is_demo = is_demo(&options, environment)?;
    let policies = policies(&options, is_demo, environment)?;
    let purpose = if is_demo { "demo" } else { "live" };
    let path = options.data.clone().unwrap_or_else(|| Path::new(".suture").join(purpose));
    // Before anything is created: what is missing is said first.
    let live = if is_demo { None } else { Some(external::live(policies.clone(), environment)?) };
    let data_dir = DataDir::open(&path, purpose)?;
    let listener = listen(options.port).await?;
    let address = listener.local_addr().map_err(|error| StartError(format!("The port has no address: {error}.")))?;
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
            "There are no GitHub credentials: set SUTURE_GITHUB_APP_ID and SUTURE_GITHUB_PRIVATE_KEY, or SUTURE_GITHUB_TOKEN, or leave --no-demo out to see the demo.".to_owned(),
        ));
    }
    match options.speed {
        Some(_) if !is_demo => {
            Err(StartError("Only the demo's time can be sped up: leave --speed out, or add --demo.".to_owned()))
        }
        Some(speed) if !SPEEDS.contains(&speed) => {
            let (least, most) = (SPEEDS.start(), SPEEDS.end());
            Err(StartError(format!("--speed {speed} is not possible: choose {least} (real time) to {most} times.")))
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
        StartError(format!("Port {port} {why}: give another one with --port N (0 takes any that is free)."))
    })
}
