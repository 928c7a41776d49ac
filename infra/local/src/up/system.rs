//! The four functions, the tables and the queue in one process, until Ctrl-C or SIGTERM.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use car_bridge::{CarBridge, ExternalClients};
use domain::breaker::minute_of;
use domain::policy::Mode;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock;
use platform::engine::Engine;
use platform::telemetry::MetricLog;
use platform::transport::{BoxError, Transport};
use reconciler::Invocation;
use reconciler::Reconciler;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use webhook::WebhookHandler;

use super::StartError;
use super::console::{self, Console, ConsoleEvent};
use super::data_dir::DataDir;
use super::demo::Demo;
use super::event_tap::EventTap;
use super::external::{AdminAccess, ExternalServices};
use super::http::{self, WebhookRoute};
use super::log_file::{self, LogFile};
use super::publisher::LocalPublisher;
use super::queue::{Consumer, DurableQueue};
use super::tables::LocalTables;

/// Messages handled at the same time.
const WORKERS: usize = 4;
/// Real time, like the next two constants.
const DELETE_EXPIRED_EVERY: Duration = Duration::from_secs(300);
const SAVE_DEMO_EVERY: Duration = Duration::from_secs(1);
/// Time for running work to finish at shutdown. Unfinished work is durable and continues after a restart.
const GRACE: Duration = Duration::from_millis(1_200);
/// Measured by the scaled clock, so it is short in the demo.
const SWEEP_LIMIT: SignedDuration = SignedDuration::from_mins(30);
/// Holder of the sweep's lease. It can be constant because the data directory is locked: a lease with this name is
/// always our own.
const HOLDER: &str = "local";

type SharedStore = Arc<EventTap>;

pub(super) struct LocalSystem {
    access: AdminAccess,
    tables: LocalTables,
    store: SharedStore,
    queue: Arc<DurableQueue>,
    external: ExternalServices,
    publisher: LocalPublisher,
    console: Console,
    events: UnboundedReceiver<ConsoleEvent>,
    log_file: LogFile,
}

impl LocalSystem {
    pub(super) async fn start(
        data_dir: &DataDir,
        external: ExternalServices,
        access: AdminAccess,
    ) -> Result<Self, StartError> {
        let (console, events) = Console::open();
        let tables = LocalTables::open(&data_dir.file("suture.db")).await?;
        let store = EventTap::new(tables.store(), console.clone());
        let queue = DurableQueue::open(tables.client.clone(), Arc::clone(&external.clock)).await;
        let queue = queue.map_err(|error| {
            StartError(format!("The queue cannot be opened: {error}. Choose another data directory with --data DIR."))
        })?;
        let log_file = LogFile::open(&data_dir.file("suture.log"));
        let log_file = log_file.map_err(|error| {
            StartError(format!(
                "The log file cannot be written: {error}. Choose another data directory with --data DIR."
            ))
        })?;
        log_file::write_warnings_to(&log_file);
        let publisher = LocalPublisher {
            queue: Arc::clone(&queue),
            bots: external.bots.clone(),
            mails: data_dir.file("mails.txt"),
            console: console.clone(),
            clock: Arc::clone(&external.clock),
        };
        Ok(Self { access, tables, store, queue, external, publisher, console, events, log_file })
    }

    /// Prints the mode, the data directory and the URLs.
    pub(super) fn greet(&self, address: &str, path: &Path, demo: Option<&Demo>) {
        let mode = match self.external.policies.base().mode {
            Mode::Act => "acting",
            Mode::Observe => "observing: it logs what it would do and changes nothing",
        };
        let what = match demo {
            Some(demo) if demo.is_continued() => {
                "a new fake GitHub (the pull requests left open by the previous demo are closed)"
            }
            Some(_) => "a fake GitHub with injected faults",
            None => "GitHub",
        };
        let clock = if demo.is_some() { "  clock      faster than real time (--speed)\n" } else { "" };
        // The fragment (`#…`) is never sent to a server or logged; the dashboard stores the key and removes it from the
        // address.
        let key = self.access.key.as_ref().map_or_else(String::new, |key| format!("#key={key}"));
        let data = path.display();
        let _ = writeln!(
            std::io::stdout(),
            "Suture on {what}, {mode}.\n  data       {data}\n{clock}  webhooks   {address}/webhook/github\n  dashboard  {address}/{key}\n  stop       Ctrl-C\n"
        );
    }

    /// Runs until `end`.
    pub(super) async fn serve(
        mut self,
        data_dir: &DataDir,
        listener: TcpListener,
        address: &str,
        demo: Option<Arc<Demo>>,
        end: watch::Receiver<bool>,
    ) {
        let (stop, stopped) = watch::channel(false);
        let mut background = JoinSet::new();
        let colored = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
        let (_, none) = Console::open();
        background.spawn(console::print(std::mem::replace(&mut self.events, none), colored));
        let mut work = self.start_workers(&stopped);
        let (router, mut ended) = (self.router(), stopped);
        work.spawn(async move {
            let stop = async move { drop(ended.wait_for(|stop| *stop).await) };
            let _ = axum::serve(listener, router).with_graceful_shutdown(stop).await;
        });
        if let Some(demo) = &demo {
            if demo.is_continued()
                && let Err(error) = demo.close_former(&self.store).await
            {
                self.note(format!("cannot read the pull requests left open by the previous demo: {error}"));
            }
            background.spawn(Arc::clone(demo).run(address.to_owned()));
        }
        self.maintain(data_dir, demo.as_deref(), end).await;
        stop.send_replace(true);
        let _ = tokio::time::timeout(GRACE, async { while work.join_next().await.is_some() {} }).await;
        if let Some(demo) = demo {
            let _ = demo.save(data_dir);
        }
    }

    /// Starts the workers of the Car Bridge and the reconciler.
    fn start_workers(&self, stopped: &watch::Receiver<bool>) -> JoinSet<()> {
        let mut work = JoinSet::new();
        let bridge = Arc::new(self.bridge());
        let worker = || QueueWorker {
            queue: Arc::clone(&self.queue),
            log: self.log(),
            clock: Arc::clone(&self.external.clock),
            stopped: stopped.clone(),
        };
        for _ in 0..WORKERS {
            work.spawn(worker().run_bridge(Arc::clone(&bridge), Consumer::Bridge));
        }
        work.spawn(worker().run_bridge(Arc::clone(&bridge), Consumer::Facts));
        work.spawn(worker().run_reconciler(self.reconciler()));
        work
    }

    fn note(&self, text: String) {
        self.console.show(ConsoleEvent::Note { at: self.external.clock.now(), text });
    }

    /// Periodically deletes expired rows and saves the demo's state.
    async fn maintain(&self, data_dir: &DataDir, demo: Option<&Demo>, mut end: watch::Receiver<bool>) {
        let mut delete_expired = tokio::time::interval(DELETE_EXPIRED_EVERY);
        let mut save_demo = tokio::time::interval(SAVE_DEMO_EVERY);
        loop {
            tokio::select! {
                _ = end.wait_for(|end| *end) => return,
                _ = delete_expired.tick() => {
                    if let Err(error) = self.tables.delete_expired(self.external.clock.now()).await {
                        self.note(format!("cannot delete expired rows: {error}"));
                    }
                }
                _ = save_demo.tick() => {
                    if let Some(Err(error)) = demo.map(|demo| demo.save(data_dir)) {
                        self.note(error.to_string());
                    }
                }
            }
        }
    }

    fn log(&self) -> MetricLog {
        MetricLog::writing_to(self.log_file.clone())
    }

    fn engine(&self) -> Engine<SharedStore, LocalPublisher> {
        Engine::new(Arc::clone(&self.store), self.publisher.clone(), self.external.policies.clone())
    }

    fn router(&self) -> Router {
        let external = &self.external;
        let webhook = WebhookHandler::new(
            Arc::clone(&self.store),
            self.publisher.clone(),
            external.policies.clone(),
            external.own.clone(),
            external.senders.clone(),
            self.log(),
        )
        .with_last_webhook();
        let settings = admin::AdminSettings {
            keys: self.access.keys.clone(),
            owner: external.owner.clone(),
            github: Some(external.github.clone()),
            jenkins: external.jenkins.clone(),
            dlq: self.queue.dlq(),
            clock: Arc::clone(&external.clock),
            log: self.log(),
        };
        let route = Arc::new(WebhookRoute { webhook, clock: Arc::clone(&external.clock) });
        http::router(route, admin::router(Arc::new(admin::Admin::new(self.engine(), settings))))
    }

    fn bridge(&self) -> CarBridge<SharedStore, LocalPublisher> {
        let external = &self.external;
        let clients = ExternalClients {
            github: external.github.clone(),
            jenkins: external.jenkins.clone(),
            http: external.bot_http.clone(),
            clock: Arc::clone(&external.clock),
        };
        CarBridge::new(self.engine(), clients)
    }

    fn reconciler(&self) -> Reconciler<SharedStore, LocalPublisher> {
        let external = &self.external;
        Reconciler::new(
            Arc::clone(&self.store),
            self.publisher.clone(),
            external.policies.clone(),
            external.github.clone(),
            external.jenkins.clone(),
            Arc::clone(&external.clock),
            external.owners.clone(),
        )
        .with_clients(https())
    }
}

/// Client for URLs in the configuration.
pub(super) fn https() -> Transport {
    Transport::https().unwrap_or_else(|_| {
        Transport::with_service(tower::service_fn(async |_: ::http::Request<bytes::Bytes>| {
            Err::<::http::Response<bytes::Bytes>, BoxError>(
                "cannot build HTTPS client: this machine has no root certificates".into(),
            )
        }))
    })
}

/// Becomes true on Ctrl-C or SIGTERM. Neither ends the process by itself any more.
pub(super) fn end_signal() -> watch::Receiver<bool> {
    let (ended, end) = watch::channel(false);
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut interrupt), Ok(mut terminate)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        {
            tokio::spawn(async move {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                ended.send_replace(true);
            });
            return end;
        }
    }
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            ended.send_replace(true);
        }
    });
    end
}

struct QueueWorker {
    queue: Arc<DurableQueue>,
    log: MetricLog,
    clock: Arc<dyn Clock>,
    stopped: watch::Receiver<bool>,
}

impl QueueWorker {
    /// Handles the messages of one of the Car Bridge's queues: commands one after the other, facts together.
    async fn run_bridge(mut self, bridge: Arc<CarBridge<SharedStore, LocalPublisher>>, consumer: Consumer) {
        loop {
            let received = tokio::select! {
                _ = self.stopped.wait_for(|stop| *stop) => return,
                received = self.queue.receive(consumer) => received,
            };
            let messages: Vec<car_bridge::Message<'_>> = received
                .iter()
                .map(|message| car_bridge::Message { id: &message.id, body: &message.content.body, trace: None })
                .collect();
            let now = || self.clock.now();
            let results = car_bridge::handle_messages(&bridge, &messages, &self.log, now, Timestamp::MAX).await;
            for (message, result) in received.into_iter().zip(results) {
                match result {
                    Some(Ok(_)) => self.queue.delete(&message).await,
                    Some(Err(error)) => self.queue.retry(message, &error.to_string()).await,
                    None => self.queue.retry(message, "not started in time").await,
                }
            }
        }
    }

    /// Sweeps every minute of the scaled clock and on request, one sweep at a time.
    async fn run_reconciler(mut self, reconciler: Reconciler<SharedStore, LocalPublisher>) {
        let mut slot = minute_of(self.clock.now());
        loop {
            let wait = slot.duration_since(self.clock.now());
            let tick = self.clock.sleep(Duration::try_from(wait).unwrap_or_default());
            let request = tokio::select! {
                _ = self.stopped.wait_for(|stop| *stop) => return,
                received = self.queue.receive(Consumer::Reconciler) => received.into_iter().next(),
                () = tick => None,
            };
            let event = match &request {
                Some(message) => serde_json::from_str(&message.content.body).unwrap_or_default(),
                None => json!({"schedule": "sweep", "slot": slot.to_string()}),
            };
            let now = self.clock.now();
            let moment = Invocation { request_id: HOLDER, now, deadline: saturating_after(now, SWEEP_LIMIT) };
            let result = reconciler::handle(&reconciler, event, &moment, &self.log).await;
            match (request, result) {
                (Some(message), Ok(_)) => self.queue.delete(&message).await,
                (Some(message), Err(error)) => self.queue.retry(message, &error.to_string()).await,
                // A failed sweep needs no retry: its work is still due in the next one.
                (None, _) => slot = saturating_after(minute_of(self.clock.now()), SignedDuration::from_mins(1)),
            }
        }
    }
}
