//! The four functions, the tables and the queue, at work in one process until somebody says stop.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use car_bridge::{Bridge, World};
use domain::policy::Mode;
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock;
use platform::engine::Engine;
use platform::http::{BoxError, Transport};
use platform::telemetry::Log;
use reconciler::Moment;
use reconciler::Sweep;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use webhook::Webhook;

use super::Refusal;
use super::demo::Demo;
use super::http::{self, Ear};
use super::lines::{self, Lines, News};
use super::log::Journal;
use super::outlets::LocalOutlets;
use super::outside::{Door, Outside};
use super::place::Place;
use super::queue::{Queue, Reader};
use super::tables::Tables;
use super::warnings::Warnings;
use super::watched::Watched;

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

type Shared = Arc<Watched>;

/// The four functions, the tables and the queue.
pub(super) struct System {
    door: Door,
    tables: Tables,
    store: Shared,
    queue: Arc<Queue>,
    outside: Outside,
    outlets: LocalOutlets,
    lines: Lines,
    told: Option<UnboundedReceiver<News>>,
    journal: Journal,
}

impl System {
    pub(super) async fn start(place: &Place, outside: Outside, door: Door) -> Result<Self, Refusal> {
        let (lines, told) = Lines::open();
        let tables = Tables::open(&place.file("suture.db")).await?;
        let store = Watched::new(tables.store(), lines.clone());
        let queue = Queue::open(tables.client.clone(), Arc::clone(&outside.clock)).await;
        let queue = queue.map_err(|error| Refusal(format!("The queue cannot be opened: {error}.")))?;
        let journal = Journal::open(&place.file("suture.log"));
        let journal = journal.map_err(|error| Refusal(format!("The log cannot be written: {error}.")))?;
        Warnings::listen(Log::to(journal.clone()), Arc::clone(&outside.clock));
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
    pub(super) fn greet(&self, address: &str, path: &Path, world: Option<&Demo>) {
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
    pub(super) async fn serve(
        mut self,
        place: &Place,
        listener: TcpListener,
        address: &str,
        world: Option<Arc<Demo>>,
        end: watch::Receiver<bool>,
    ) {
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
        self.until_told(place, world.as_deref(), end).await;
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
    async fn until_told(&self, place: &Place, world: Option<&Demo>, mut end: watch::Receiver<bool>) {
        let mut broom = tokio::time::interval(BROOM_EVERY);
        let mut remember = tokio::time::interval(REMEMBER_EVERY);
        loop {
            tokio::select! {
                _ = end.wait_for(|end| *end) => return,
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
            http: way_out(),
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
        .asking_through(way_out())
    }
}

/// To whoever is called by an address of the configuration.
fn way_out() -> Transport {
    Transport::https().unwrap_or_else(|_| Transport::with_service(tower::service_fn(no_way_out)))
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

async fn no_way_out(_: ::http::Request<bytes::Bytes>) -> Result<::http::Response<bytes::Bytes>, BoxError> {
    Err("this machine has no root certificates".into())
}
