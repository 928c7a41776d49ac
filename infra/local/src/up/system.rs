//! The four functions, the tables and the queue, at work in one process until somebody says stop.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::policy::Mode;
use jiff::{SignedDuration, Timestamp};
use platform::bridge::{Bridge, World};
use platform::clock::Clock;
use platform::engine::Engine;
use platform::http::{BoxError, Transport};
use platform::sweep::Sweep;
use platform::telemetry::Log;
use reconciler::Moment;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use webhook::Webhook;

use super::StartError;
use super::console::{self, Console, ConsoleEvent};
use super::data_dir::DataDir;
use super::demo::Demo;
use super::event_tap::EventTap;
use super::external::{AdminAccess, External};
use super::http::{self, WebhookRoute};
use super::log_file::LogFile;
use super::publisher::LocalPublisher;
use super::queue::{Consumer, Queue};
use super::tables::Tables;
use super::warnings::Warnings;

/// Messages handled at the same time.
const WORKERS: usize = 4;
/// The broom comes this often, in the machine's time.
const BROOM_EVERY: Duration = Duration::from_secs(300);
/// The demo's world is written down this often, in the machine's time.
const REMEMBER_EVERY: Duration = Duration::from_secs(1);
/// What is under way when we are told to stop has this long to end. Nothing is lost if it does not.
const GRACE: Duration = Duration::from_millis(1_200);
/// A sweep may take this long, by its own clock. In the demo that is little of the machine's.
const SWEEP_FOR: SignedDuration = SignedDuration::from_mins(30);
/// Who holds the sweep's lease. Always the same: only one process has the data directory, so a lease of this name is ours.
const HOLDER: &str = "local";

type Shared = Arc<EventTap>;

/// The four functions, the tables and the queue.
pub(super) struct System {
    access: AdminAccess,
    tables: Tables,
    store: Shared,
    queue: Arc<Queue>,
    external: External,
    outlets: LocalPublisher,
    lines: Console,
    told: Option<UnboundedReceiver<ConsoleEvent>>,
    log_file: LogFile,
}

impl System {
    pub(super) async fn start(data_dir: &DataDir, external: External, access: AdminAccess) -> Result<Self, StartError> {
        let (lines, told) = Console::open();
        let tables = Tables::open(&data_dir.file("suture.db")).await?;
        let store = EventTap::new(tables.store(), lines.clone());
        let queue = Queue::open(tables.client.clone(), Arc::clone(&external.clock)).await;
        let queue = queue.map_err(|error| StartError(format!("The queue cannot be opened: {error}.")))?;
        let log_file = LogFile::open(&data_dir.file("suture.log"));
        let log_file = log_file.map_err(|error| StartError(format!("The log cannot be written: {error}.")))?;
        Warnings::listen(Log::to(log_file.clone()), Arc::clone(&external.clock));
        let outlets = LocalPublisher {
            queue: Arc::clone(&queue),
            bots: external.bots.clone(),
            mails: data_dir.file("mails.txt"),
            lines: lines.clone(),
            clock: Arc::clone(&external.clock),
        };
        Ok(Self { access, tables, store, queue, external, outlets, lines, told: Some(told), log_file })
    }

    /// The first lines: what this is, and where to click.
    pub(super) fn greet(&self, address: &str, path: &Path, world: Option<&Demo>) {
        let mode = match self.external.policies.base().mode {
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
        let key = self.access.key.as_ref().map_or_else(String::new, |key| format!("#key={key}"));
        text.push_str(&format!("  webhooks   {address}/webhook/github\n  dashboard  {address}/{key}\n"));
        text.push_str("  stop       Ctrl-C\n");
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    /// Everything runs until somebody says stop.
    pub(super) async fn serve(
        mut self,
        data_dir: &DataDir,
        listener: TcpListener,
        address: &str,
        world: Option<Arc<Demo>>,
        end: watch::Receiver<bool>,
    ) {
        let (stop, stopped) = watch::channel(false);
        let mut beside = JoinSet::new();
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
        if let Some(told) = self.told.take() {
            beside.spawn(console::print(told, colour));
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
        self.until_told(data_dir, world.as_deref(), end).await;
        stop.send_replace(true);
        let _ = tokio::time::timeout(GRACE, async { while work.join_next().await.is_some() {} }).await;
        if let Some(demo) = world {
            let _ = demo.remember(data_dir);
        }
    }

    /// The Car Bridge and the reconciler, at work.
    fn work(&self, stopped: &watch::Receiver<bool>) -> JoinSet<()> {
        let mut work = JoinSet::new();
        let bridge = Arc::new(self.bridge());
        let queue = || Arc::clone(&self.queue);
        let clock = || Arc::clone(&self.external.clock);
        let log = || Log::to(self.log_file.clone());
        for _ in 0..WORKERS {
            work.spawn(run_bridge(Arc::clone(&bridge), queue(), log(), clock(), stopped.clone()));
        }
        work.spawn(reconcile(self.sweep(), queue(), log(), clock(), stopped.clone()));
        work
    }

    fn note(&self, text: String) {
        self.lines.tell(ConsoleEvent::Note { at: self.external.clock.now(), text });
    }

    /// What is to be done now and then, until Ctrl-C or SIGTERM.
    async fn until_told(&self, data_dir: &DataDir, world: Option<&Demo>, mut end: watch::Receiver<bool>) {
        let mut broom = tokio::time::interval(BROOM_EVERY);
        let mut remember = tokio::time::interval(REMEMBER_EVERY);
        loop {
            tokio::select! {
                _ = end.wait_for(|end| *end) => return,
                _ = broom.tick() => {
                    if let Err(error) = self.tables.sweep(self.external.clock.now()).await {
                        self.note(format!("expired rows could not be taken away: {error}"));
                    }
                }
                _ = remember.tick() => {
                    if let Some(Err(error)) = world.map(|demo| demo.remember(data_dir)) {
                        self.note(error.to_string());
                    }
                }
            }
        }
    }

    fn engine(&self) -> Engine<Shared, LocalPublisher> {
        Engine::new(Arc::clone(&self.store), self.outlets.clone(), self.external.policies.clone())
    }

    fn router(&self) -> axum::Router {
        let webhook = Webhook::new(
            Arc::clone(&self.store),
            self.outlets.clone(),
            self.external.policies.clone(),
            self.external.own.clone(),
            self.external.senders.clone(),
            Log::to(self.log_file.clone()),
        );
        let route = Arc::new(WebhookRoute { webhook, clock: Arc::clone(&self.external.clock) });
        let settings = admin::Settings {
            keys: self.access.keys.clone(),
            owner: self.external.owner.clone(),
            github: Some(self.external.github.clone()),
            jenkins: self.external.jenkins.clone(),
            dlq: self.queue.dlq(),
            clock: Arc::clone(&self.external.clock),
            log: Log::to(self.log_file.clone()),
        };
        let admin = admin::Admin::new(self.engine(), settings);
        http::router(route, admin::router(Arc::new(admin)))
    }

    fn bridge(&self) -> Bridge<Shared, LocalPublisher> {
        let external = &self.external;
        let world = World {
            github: external.github.clone(),
            jenkins: external.jenkins.clone(),
            http: https(),
            clock: Arc::clone(&external.clock),
        };
        Bridge::new(self.engine(), world)
    }

    fn sweep(&self) -> Sweep<Shared, LocalPublisher> {
        let external = &self.external;
        Sweep::new(
            Arc::clone(&self.store),
            self.outlets.clone(),
            external.policies.clone(),
            external.github.clone(),
            external.jenkins.clone(),
            Arc::clone(&external.clock),
            external.owners.clone(),
        )
        .asking_through(https())
    }
}

/// To whoever is called by an address of the configuration.
fn https() -> Transport {
    Transport::https().unwrap_or_else(|_| Transport::with_service(tower::service_fn(no_https)))
}

/// Whoever wants this process to end is heard from now on, and told to whoever listens.
pub(super) fn listen_for_the_end() -> watch::Receiver<bool> {
    let (told, end) = watch::channel(false);
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        // From here on neither ends the process by itself.
        if let (Ok(mut interrupt), Ok(mut terminate)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        {
            tokio::spawn(async move {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                told.send_replace(true);
            });
            return end;
        }
    }
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            told.send_replace(true);
        }
    });
    end
}

/// The Car Bridge's hands: one message after the other.
async fn run_bridge(
    bridge: Arc<Bridge<Shared, LocalPublisher>>,
    queue: Arc<Queue>,
    log: Log,
    clock: Arc<dyn Clock>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let entry = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            entry = queue.take(Consumer::Bridge) => entry,
        };
        match car_bridge::handle_one(&bridge, &entry.id, &entry.body, &log, || clock.now()).await {
            Ok(_) => queue.done(&entry.id).await,
            Err(again) => queue.again(entry, &again.to_string()).await,
        }
    }
}

/// The reconciler: every minute of its clock, and when somebody asks. One sweep at a time.
async fn reconcile(
    sweep: Sweep<Shared, LocalPublisher>,
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
            entry = queue.take(Consumer::Reconciler) => Some(entry),
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

async fn no_https(_: ::http::Request<bytes::Bytes>) -> Result<::http::Response<bytes::Bytes>, BoxError> {
    Err("this machine has no root certificates".into())
}
