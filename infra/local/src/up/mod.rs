//! The whole of Suture in one process (design §7): the tables, the queue, the four functions behind one port, and, without
//! credentials, a world to act on.

mod demo;
mod http;
mod lines;
mod log;
mod outlets;
mod pace;
mod place;
mod queue;
mod tables;
mod watched;

use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::policy::{Mode, Policies};
use jiff::{SignedDuration, Timestamp};
use platform::bridge::{Bridge, World};
use platform::clock::{Clock, SystemClock};
use platform::engine::Engine;
use platform::github::webhook::Own;
use platform::github::webhook::signature::Secrets;
use platform::github::{Credentials, GitHub};
use platform::http::Transport;
use platform::jenkins::{Jenkins, Login};
use platform::keys::Keys;
use platform::sweep::Sweep;
use platform::telemetry::Log;
use platform::wiring::{self, Environment};
use reconciler::Moment;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use webhook::{Senders, Webhook};

use self::demo::Demo;
use self::http::Ear;
use self::lines::{Lines, News};
use self::log::Journal;
use self::outlets::{Bots, LocalOutlets};
use self::place::{Place, Use};
use self::queue::{Queue, Reader};
use self::tables::Tables;
use self::watched::Watched;

/// How fast the demo's time passes unless told otherwise: a minute in a second.
pub const DEMO_SPEED: f64 = 60.0;
/// How fast it may pass: beyond this the machine's own slowness looks like everybody else's.
pub const SPEEDS: std::ops::RangeInclusive<f64> = 1.0..=600.0;
/// Messages handled at the same time.
const WORKERS: usize = 4;
/// The broom comes this often, in the machine's time.
const BROOM_EVERY: Duration = Duration::from_secs(60);
/// The demo's world is written down this often, in the machine's time.
const REMEMBER_EVERY: Duration = Duration::from_secs(1);
/// What is under way when we are told to stop has this long to end. Nothing is lost if it does not.
const GRACE: Duration = Duration::from_millis(1_200);
/// A sweep may take this long, by its own clock. In the demo that is little of the machine's.
const SWEEP_FOR: SignedDuration = SignedDuration::from_mins(30);
/// The file with the key of our own making.
const KEY_FILE: &str = "admin.key";
/// Who holds the sweep's lease. Always the same: only one process has the data directory, so a lease of this name is ours.
const HOLDER: &str = "local";

/// Why this process does not start: one sentence for whoever started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl From<wiring::BadWiring> for Refusal {
    fn from(bad: wiring::BadWiring) -> Self {
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

/// The outside, as this process reaches it.
struct Outside {
    policies: Policies,
    senders: Senders,
    own: Own,
    github: GitHub,
    jenkins: Option<Jenkins>,
    owners: Vec<String>,
    /// Whose repositories are meant by a bare name.
    owner: Option<String>,
    bots: Bots,
    clock: Arc<dyn Clock>,
}

type Shared = Arc<Watched>;

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
    let live = if demo { None } else { Some(live(policies.clone(), environment)?) };
    let place = Place::take(&path, used_for)?;
    let listener = listen(wanted.port).await?;
    let address = listener.local_addr().map_err(|error| Refusal(format!("The port has no address: {error}.")))?;
    let address = format!("http://{address}");
    let (world, outside) = match live {
        Some(outside) => (None, outside),
        None => {
            let demo = Arc::new(Demo::begin(&place, wanted.seed, wanted.speed.unwrap_or(DEMO_SPEED)).await?);
            let outside = pretended(&demo, policies)?;
            (Some(demo), outside)
        }
    };
    let door = Door::open(&place, environment)?;
    let system = System::start(&place, outside, door).await?;
    system.greet(&address, &path, world.as_deref());
    system.serve(&place, listener, &address, world).await;
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
    Ok(wiring::policies(environment)?)
}

async fn listen(port: u16) -> Result<TcpListener, Refusal> {
    TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => "is in use by another process".to_owned(),
            _ => format!("cannot be opened: {error}"),
        };
        Refusal(format!("Port {port} {why}: give another one with --port N (0 takes any that is free)."))
    })
}

/// A real GitHub, as the environment names it (design §9).
fn live(policies: Policies, environment: &impl Environment) -> Result<Outside, Refusal> {
    let github = wiring::github(environment)?;
    let secret = wiring::secrets(environment, "SUTURE_WEBHOOK_SECRET")?;
    let secret = secret.ok_or_else(|| {
        Refusal(
            "SUTURE_WEBHOOK_SECRET is not set: choose one, and give GitHub the same under the App's webhook settings."
                .to_owned(),
        )
    })?;
    let senders = Senders {
        github: secret,
        jenkins: wiring::secrets(environment, "SUTURE_JENKINS_WEBHOOK_SECRET")?,
        bot: wiring::secrets(environment, "SUTURE_BOT_SECRET")?,
    };
    Ok(Outside {
        policies,
        senders,
        own: wiring::own(environment)?,
        github,
        jenkins: wiring::jenkins(environment)?,
        owners: environment.get("SUTURE_GITHUB_OWNER").into_iter().collect(),
        owner: environment.get("SUTURE_GITHUB_OWNER"),
        bots: Bots::None,
        clock: Arc::new(SystemClock),
    })
}

/// The pretended world, reached as the real one would be: over HTTP, with signatures, as an App.
fn pretended(demo: &Demo, policies: Policies) -> Result<Outside, Refusal> {
    let settings = demo.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner).settings().clone();
    let broken = |error: &dyn fmt::Display| Refusal(format!("The pretended world cannot be reached: {error}."));
    let secrets = |text: &str| Secrets::parse(text).map_err(|error| broken(&error));
    let address = |text: &str| text.parse::<::http::Uri>().map_err(|error| broken(&error));
    let clock: Arc<dyn Clock> = Arc::clone(&demo.clock) as Arc<dyn Clock>;
    let transport = Transport::https().map_err(|error| broken(&error))?;
    let key = crate::keys::private_key().map_err(|error| broken(&error))?;
    let credentials = Credentials::app(settings.app_id, &key).map_err(|error| broken(&error))?;
    let github = platform::github::Settings {
        base_url: address(&demo.serving.github_url)?,
        ..platform::github::Settings::default()
    };
    let github = GitHub::with_service(&credentials, github, transport.clone(), Arc::clone(&clock));
    let login = Login::Token { user: settings.jenkins_user.clone(), token: settings.jenkins_token.clone() };
    let jenkins = platform::jenkins::Settings::new(address(&demo.serving.jenkins_url)?);
    let senders = Senders {
        github: secrets(&settings.webhook_secret)?,
        jenkins: Some(secrets(&settings.jenkins_secret)?),
        bot: Some(secrets(&settings.bot_secret)?),
    };
    Ok(Outside {
        policies,
        senders,
        own: Own { app_id: Some(settings.app_id), login: Some(format!("{}[bot]", settings.app_slug)) },
        github,
        jenkins: Some(Jenkins::with_service(login, jenkins, transport, Arc::clone(&clock))),
        owners: Vec::new(),
        owner: demo.repos().first().map(|repo| repo.owner().to_owned()),
        bots: Bots::Pretended(Arc::clone(&demo.world)),
        clock,
    })
}

/// Who gets in, and with which key, if it is of our own making.
struct Door {
    keys: Keys,
    key: Option<String>,
}

impl Door {
    /// The keys of the environment; without any, one that is made once and kept where only its owner can read it.
    fn open(place: &Place, environment: &impl Environment) -> Result<Self, Refusal> {
        if environment.get("SUTURE_ADMIN_KEYS").is_some() {
            return Ok(Self { keys: wiring::keys(environment)?, key: None });
        }
        let made = match place.json(KEY_FILE)? {
            Some(made) => made,
            None => {
                let made = crate::keys::make("local", "admin", &[]).map_err(Refusal)?;
                place.keep_json(KEY_FILE, &made)?;
                made
            }
        };
        let keys = Keys::parse(&made.entry).map_err(|error| Refusal(format!("{KEY_FILE}: {error}.")))?;
        Ok(Self { keys, key: Some(made.key) })
    }
}

/// The four functions, the tables and the queue.
struct System {
    door: Door,
    tables: Tables,
    store: Shared,
    queue: Arc<Queue>,
    outside: Outside,
    outlets: LocalOutlets,
    lines: Lines,
    told: Option<tokio::sync::mpsc::UnboundedReceiver<News>>,
    journal: Journal,
}

impl System {
    async fn start(place: &Place, outside: Outside, door: Door) -> Result<Self, Refusal> {
        let (lines, told) = Lines::open();
        let tables = Tables::open(&place.file("suture.db")).await?;
        let store = Watched::new(tables.store(), lines.clone());
        let queue = Queue::open(tables.client.clone(), Arc::clone(&outside.clock)).await;
        let queue = queue.map_err(|error| Refusal(format!("The queue cannot be opened: {error}.")))?;
        let journal = Journal::open(&place.file("suture.log"));
        let journal = journal.map_err(|error| Refusal(format!("The log cannot be written: {error}.")))?;
        let outlets = LocalOutlets {
            queue: Arc::clone(&queue),
            bots: outside.bots.clone(),
            mails: place.file("mails.txt"),
            lines: lines.clone(),
            clock: Arc::clone(&outside.clock),
        };
        Ok(Self { door, tables, store, queue, outside, outlets, lines, told: Some(told), journal })
    }

    /// The first lines: what this is, and where to click.
    fn greet(&self, address: &str, path: &Path, world: Option<&Demo>) {
        let mode = match self.outside.policies.base().mode {
            Mode::Act => "acting",
            Mode::Observe => "observing: it says what it would do, and does nothing",
        };
        let what = match world {
            Some(demo) if demo.is_continued() => {
                "a pretended GitHub, begun anew (what was open in the former one is closed)"
            }
            Some(_) => "a pretended GitHub in which things go wrong",
            None => "GitHub",
        };
        let mut text = format!("Suture on {what}, {mode}.\n  data       {}\n", path.display());
        if world.is_some() {
            text.push_str("  times      the demo's own, faster than yours (--speed)\n");
        }
        // Behind `#` it goes to no server and into no log; the page takes it over, and out of the address.
        let key = self.door.key.as_ref().map_or_else(String::new, |key| format!("#key={key}"));
        text.push_str(&format!("  webhooks   {address}/webhook/github\n  dashboard  {address}/{key}\n"));
        text.push_str("  stop       Ctrl-C\n");
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    /// Everything runs until somebody says stop.
    async fn serve(mut self, place: &Place, listener: TcpListener, address: &str, world: Option<Arc<Demo>>) {
        let (stop, stopped) = watch::channel(false);
        let mut beside = JoinSet::new();
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
        if let Some(told) = self.told.take() {
            beside.spawn(lines::print(told, colour));
        }
        let mut work = self.work(&stopped);
        let (router, mut ended) = (self.router(), stopped);
        work.spawn(async move {
            let stop = async move { drop(ended.wait_for(|stop| *stop).await) };
            // It ends when it is told to, and has nothing else to say.
            let _ = axum::serve(listener, router).with_graceful_shutdown(stop).await;
        });
        if let Some(demo) = &world {
            if demo.is_continued()
                && let Err(error) = demo.close_former(&self.store).await
            {
                self.note(format!("what was open in the former world could not be read: {error}"));
            }
            beside.spawn(Arc::clone(demo).live(address.to_owned()));
        }
        self.until_told(place, world.as_deref()).await;
        stop.send_replace(true);
        let _ = tokio::time::timeout(GRACE, async { while work.join_next().await.is_some() {} }).await;
        if let Some(demo) = world {
            let _ = demo.remember(place);
        }
    }

    /// The Car Bridge and the reconciler, at work.
    fn work(&self, stopped: &watch::Receiver<bool>) -> JoinSet<()> {
        let mut work = JoinSet::new();
        let bridge = Arc::new(self.bridge());
        let queue = || Arc::clone(&self.queue);
        let clock = || Arc::clone(&self.outside.clock);
        let log = || Log::to(self.journal.clone());
        for _ in 0..WORKERS {
            work.spawn(carry_out(Arc::clone(&bridge), queue(), log(), clock(), stopped.clone()));
        }
        work.spawn(reconcile(self.sweep(), queue(), log(), clock(), stopped.clone()));
        work
    }

    fn note(&self, text: String) {
        self.lines.tell(News::Note { at: self.outside.clock.now(), text });
    }

    /// What is to be done now and then, until Ctrl-C or SIGTERM.
    async fn until_told(&self, place: &Place, world: Option<&Demo>) {
        let mut told = Box::pin(told());
        let mut broom = tokio::time::interval(BROOM_EVERY);
        let mut remember = tokio::time::interval(REMEMBER_EVERY);
        loop {
            tokio::select! {
                () = &mut told => return,
                _ = broom.tick() => {
                    if let Err(error) = self.tables.sweep(self.outside.clock.now()).await {
                        self.note(format!("expired rows could not be taken away: {error}"));
                    }
                }
                _ = remember.tick() => {
                    if let Some(Err(error)) = world.map(|demo| demo.remember(place)) {
                        self.note(error.to_string());
                    }
                }
            }
        }
    }

    fn engine(&self) -> Engine<Shared, LocalOutlets> {
        Engine::new(Arc::clone(&self.store), self.outlets.clone(), self.outside.policies.clone())
    }

    fn router(&self) -> axum::Router {
        let webhook = Webhook::new(
            Arc::clone(&self.store),
            self.outlets.clone(),
            self.outside.policies.clone(),
            self.outside.own.clone(),
            self.outside.senders.clone(),
            Log::to(self.journal.clone()),
        );
        let ear = Arc::new(Ear { webhook, clock: Arc::clone(&self.outside.clock) });
        let settings = admin::Settings {
            keys: self.door.keys.clone(),
            owner: self.outside.owner.clone(),
            github: Some(self.outside.github.clone()),
            jenkins: self.outside.jenkins.clone(),
            dlq: self.queue.dlq(),
            clock: Arc::clone(&self.outside.clock),
            log: Log::to(self.journal.clone()),
        };
        let admin = admin::Admin::new(self.engine(), settings);
        http::router(ear, admin::router(Arc::new(admin)))
    }

    fn bridge(&self) -> Bridge<Shared, LocalOutlets> {
        let outside = &self.outside;
        let world = World {
            github: outside.github.clone(),
            jenkins: outside.jenkins.clone(),
            http: Transport::https().unwrap_or_else(|_| Transport::with_service(tower::service_fn(no_way_out))),
            clock: Arc::clone(&outside.clock),
        };
        Bridge::new(self.engine(), world)
    }

    fn sweep(&self) -> Sweep<Shared, LocalOutlets> {
        let outside = &self.outside;
        Sweep::new(
            Arc::clone(&self.store),
            self.outlets.clone(),
            outside.policies.clone(),
            outside.github.clone(),
            outside.jenkins.clone(),
            Arc::clone(&outside.clock),
            outside.owners.clone(),
        )
    }
}

/// Ends when somebody wants this process to end.
async fn told() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// The Car Bridge's hands: one message after the other.
async fn carry_out(
    bridge: Arc<Bridge<Shared, LocalOutlets>>,
    queue: Arc<Queue>,
    log: Log,
    clock: Arc<dyn Clock>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let entry = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            entry = queue.take(Reader::Bridge) => entry,
        };
        match car_bridge::handle_one(&bridge, &entry.id, &entry.body, &log, || clock.now()).await {
            Ok(_) => queue.done(&entry.id).await,
            Err(again) => queue.again(entry, &again.to_string()).await,
        }
    }
}

/// The reconciler: every minute of its clock, and when somebody asks. One sweep at a time.
async fn reconcile(
    sweep: Sweep<Shared, LocalOutlets>,
    queue: Arc<Queue>,
    log: Log,
    clock: Arc<dyn Clock>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut slot = minute(clock.now());
    loop {
        let wait = slot.duration_since(clock.now());
        let tick = clock.sleep(Duration::try_from(wait).unwrap_or_default());
        let asked = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            entry = queue.take(Reader::Reconciler) => Some(entry),
            () = tick => None,
        };
        let event = match &asked {
            Some(entry) => serde_json::from_str(&entry.body).unwrap_or_default(),
            None => json!({"schedule": "sweep", "slot": slot.to_string()}),
        };
        let now = clock.now();
        let deadline = now.saturating_add(SWEEP_FOR).unwrap_or(Timestamp::MAX);
        let moment = Moment { request: HOLDER, now, deadline };
        let swept = reconciler::handle(&sweep, event, &moment, &log).await;
        match (asked, swept) {
            (Some(entry), Ok(_)) => queue.done(&entry.id).await,
            (Some(entry), Err(error)) => queue.again(entry, &error.to_string()).await,
            // What was due is still due; the next minute tries again.
            (None, _) => {
                slot = minute(clock.now()).saturating_add(SignedDuration::from_mins(1)).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

/// The minute a time is in.
fn minute(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second().div_euclid(60) * 60).unwrap_or(at)
}

async fn no_way_out(
    _: ::http::Request<bytes::Bytes>,
) -> Result<::http::Response<bytes::Bytes>, platform::http::BoxError> {
    Err("this machine has no root certificates".into())
}
