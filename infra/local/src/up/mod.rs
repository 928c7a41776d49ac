//! The whole of Suture in one process (design §7): the tables, the queue, the four functions behind one port, and, without
//! credentials, a world to act on. Here is what is asked for and what is refused; `system` does the rest.

mod demo;
mod http;
mod lines;
mod log;
mod outlets;
mod outside;
mod pace;
mod place;
mod queue;
mod system;
mod tables;
mod warnings;
mod watched;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::policy::Policies;
use platform::env::{self, ConfigError, Environment};
use tokio::net::TcpListener;

use self::demo::Demo;
use self::outside::Door;
use self::place::{Place, Use};
use self::system::System;

/// How fast the demo's time passes unless told otherwise: a minute in a second.
pub const DEMO_SPEED: f64 = 60.0;
/// How fast it may pass: beyond this the machine's own slowness looks like everybody else's.
pub const SPEEDS: std::ops::RangeInclusive<f64> = 1.0..=600.0;
/// Why this process does not start: one sentence for whoever started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl From<ConfigError> for Refusal {
    fn from(bad: ConfigError) -> Self {
        Self(format!("{bad}."))
    }
}

/// What was asked for on the command line.
#[derive(Debug, Clone)]
pub struct Wanted {
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
/// [`Refusal`] if it cannot even start.
pub async fn run(wanted: Wanted, environment: &impl Environment) -> Result<(), Refusal> {
    let demo = is_demo(&wanted, environment)?;
    let policies = policies(&wanted, demo, environment)?;
    let used_for = if demo { Use::Demo } else { Use::Live };
    let path = wanted.data.clone().unwrap_or_else(|| Path::new(".suture").join(used_for.name()));
    // Before anything is made: what is missing is said first.
    let live = if demo { None } else { Some(outside::live(policies.clone(), environment)?) };
    let place = Place::take(&path, used_for)?;
    let listener = listen(wanted.port).await?;
    let address = listener.local_addr().map_err(|error| Refusal(format!("The port has no address: {error}.")))?;
    let address = format!("http://{address}");
    let (world, outside) = match live {
        Some(outside) => (None, outside),
        None => {
            let demo = Arc::new(Demo::begin(&place, wanted.seed, wanted.speed.unwrap_or(DEMO_SPEED)).await?);
            let outside = outside::pretended(&demo, policies)?;
            (Some(demo), outside)
        }
    };
    let door = Door::open(&place, environment)?;
    let end = system::listen_for_the_end();
    let system = System::start(&place, outside, door).await?;
    system.greet(&address, &path, world.as_deref());
    system.serve(&place, listener, &address, world, end).await;
    Ok(())
}

fn is_demo(wanted: &Wanted, environment: &impl Environment) -> Result<bool, Refusal> {
    let credentials = ["SUTURE_GITHUB_TOKEN", "SUTURE_GITHUB_APP_ID"];
    let has_credentials = credentials.iter().any(|name| environment.get(name).is_some());
    let demo = wanted.demo.unwrap_or(!has_credentials);
    if !demo && !has_credentials {
        return Err(Refusal(
            "There are no GitHub credentials: set SUTURE_GITHUB_APP_ID and SUTURE_GITHUB_PRIVATE_KEY, or SUTURE_GITHUB_TOKEN, or leave --no-demo out to see the demo.".to_owned(),
        ));
    }
    if !demo && wanted.speed.is_some() {
        return Err(Refusal("Only the demo's time can be sped up: leave --speed out, or add --demo.".to_owned()));
    }
    match wanted.speed {
        Some(speed) if !SPEEDS.contains(&speed) => Err(Refusal(format!(
            "--speed {speed} is not possible: choose {} (real time) to {} times.",
            SPEEDS.start(),
            SPEEDS.end()
        ))),
        Some(_) | None => Ok(demo),
    }
}

fn policies(wanted: &Wanted, demo: bool, environment: &impl Environment) -> Result<Policies, Refusal> {
    if let Some(file) = &wanted.config {
        return crate::config::read(file).map_err(Refusal);
    }
    if demo && environment.get("SUTURE_CONFIG").is_none() {
        return Policies::parse(demo::CONFIG).map_err(|error| Refusal(error.to_string()));
    }
    Ok(env::policies(environment)?)
}

async fn listen(port: u16) -> Result<TcpListener, Refusal> {
    TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| {
        let taken = error.kind() == std::io::ErrorKind::AddrInUse;
        let why = if taken { "is in use by another process".to_owned() } else { format!("cannot be opened: {error}") };
        Refusal(format!("Port {port} {why}: give another one with --port N (0 takes any that is free)."))
    })
}
