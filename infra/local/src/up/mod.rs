//! The whole of Suture in one process (design §7): the tables, the queue, the four functions behind one port, and, without
//! credentials, a world to act on. Here is what is asked for and what is refused; `system` does the rest.

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
mod warnings;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::policy::Policies;
use platform::wiring::{self, Environment};
use tokio::net::TcpListener;

use self::data_dir::{DataDir, Purpose};
use self::demo::Demo;
use self::external::AdminAccess;
use self::system::System;

/// How fast the demo's time passes unless told otherwise: a minute in a second.
pub const DEMO_SPEED: f64 = 60.0;
/// How fast it may pass: beyond this the machine's own slowness looks like everybody else's.
pub const SPEEDS: std::ops::RangeInclusive<f64> = 1.0..=600.0;
/// Why this process does not start: one sentence for whoever started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError(pub String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<wiring::BadWiring> for StartError {
    fn from(bad: wiring::BadWiring) -> Self {
        Self(format!("{bad}."))
    }
}

/// What was asked for on the command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// The port; 0 for any that is free.
    pub port: u16,
    /// The data directory; without it, one below `.suture`.
    pub data: Option<PathBuf>,
    /// The demo, or not the demo; without it, the demo if there are no credentials.
    pub demo: Option<bool>,
    /// What the demo's chance begins with.
    pub seed: u64,
    /// How fast the demo's time passes.
    pub speed: Option<f64>,
    /// The configuration; without it, what `SUTURE_CONFIG` names, or the defaults.
    pub config: Option<PathBuf>,
}

/// Runs until Ctrl-C or SIGTERM.
///
/// # Errors
/// [`StartError`] if it cannot even start.
pub async fn run(options: Options, environment: &impl Environment) -> Result<(), StartError> {
    let demo = is_demo(&options, environment)?;
    let policies = policies(&options, demo, environment)?;
    let used_for = if demo { Purpose::Demo } else { Purpose::Live };
    let path = options.data.clone().unwrap_or_else(|| Path::new(".suture").join(used_for.name()));
    // Before anything is made: what is missing is said first.
    let live = if demo { None } else { Some(external::live(policies.clone(), environment)?) };
    let data_dir = DataDir::take(&path, used_for)?;
    let listener = listen(options.port).await?;
    let address = listener.local_addr().map_err(|error| StartError(format!("The port has no address: {error}.")))?;
    let address = format!("http://{address}");
    let (world, external) = match live {
        Some(external) => (None, external),
        None => {
            let demo = Arc::new(Demo::begin(&data_dir, options.seed, options.speed.unwrap_or(DEMO_SPEED)).await?);
            let external = external::pretended(&demo, policies)?;
            (Some(demo), external)
        }
    };
    let access = AdminAccess::open(&data_dir, environment)?;
    let end = system::listen_for_the_end();
    let system = System::start(&data_dir, external, access).await?;
    system.greet(&address, &path, world.as_deref());
    system.serve(&data_dir, listener, &address, world, end).await;
    Ok(())
}

fn is_demo(options: &Options, environment: &impl Environment) -> Result<bool, StartError> {
    let credentials = ["SUTURE_GITHUB_TOKEN", "SUTURE_GITHUB_APP_ID"];
    let has_credentials = credentials.iter().any(|name| environment.get(name).is_some());
    let demo = options.demo.unwrap_or(!has_credentials);
    if !demo && !has_credentials {
        return Err(StartError(
            "There are no GitHub credentials: set SUTURE_GITHUB_APP_ID and SUTURE_GITHUB_PRIVATE_KEY, or SUTURE_GITHUB_TOKEN, or leave --no-demo out to see the demo.".to_owned(),
        ));
    }
    if !demo && options.speed.is_some() {
        return Err(StartError("Only the demo's time can be sped up: leave --speed out, or add --demo.".to_owned()));
    }
    match options.speed {
        Some(speed) if !SPEEDS.contains(&speed) => Err(StartError(format!(
            "--speed {speed} is not possible: choose {} (real time) to {} times.",
            SPEEDS.start(),
            SPEEDS.end()
        ))),
        Some(_) | None => Ok(demo),
    }
}

fn policies(options: &Options, demo: bool, environment: &impl Environment) -> Result<Policies, StartError> {
    if let Some(file) = &options.config {
        return crate::config::read(file).map_err(StartError);
    }
    if demo && environment.get("SUTURE_CONFIG").is_none() {
        return Policies::parse(demo::CONFIG).map_err(|error| StartError(error.to_string()));
    }
    Ok(wiring::policies(environment)?)
}

async fn listen(port: u16) -> Result<TcpListener, StartError> {
    TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| {
        let taken = error.kind() == std::io::ErrorKind::AddrInUse;
        let why = if taken { "is in use by another process".to_owned() } else { format!("cannot be opened: {error}") };
        StartError(format!("Port {port} {why}: give another one with --port N (0 takes any that is free)."))
    })
}
