//! The stage: the pretended world, a store, a queue, and processes of the four functions around them, wired as in production
//! but without sockets, all in one virtual time. Processes come and go as Lambda's do: one invocation at a time each, as many
//! as are needed, started cold when none is free, and lost with all they remember when they die.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use admin::keys::Keys;
use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use axum::Router;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use car_bridge::{self, Bridge};
use domain::policy::Policies;
use fakes::{Delivery, Settings};
use futures_util::future::{Either, select};
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use platform::engine::Engine;
use platform::github::{Credentials, GitHub};
use platform::http::{BoxError, Transport};
use platform::jenkins::{Jenkins, Login};
use platform::store::Store;
use platform::telemetry::Log;
use reconciler::Moment;
use reconciler::Sweep;
use serde_json::{Value, json};
use webhook::github::Own;
use webhook::signature::Secrets;
use webhook::{Senders, Webhook};

use super::border::{Border, Function, Process, Scene, Surface, locked};
use super::faults::Inside;
use super::queue::{Waiting, later};
use super::watch::Wrong;

/// GitHub waits this long for an answer to a webhook, and so does the function.
const WEBHOOK_LIMIT: Duration = Duration::from_secs(10);
/// A worker of the queue may take this long for a batch.
const BRIDGE_LIMIT: Duration = Duration::from_secs(60);
/// A sweep may take this long.
const SWEEP_LIMIT: SignedDuration = SignedDuration::from_mins(5);
/// Workers of the queue at a time.
const MOST_WORKERS: u64 = 4;
/// An event that failed is sent to the reconciler again this often.
const SWEEP_RETRIES: u32 = 2;

/// How the functions are wired: what each process is built from.
pub(super) struct Wiring {
    pub(super) policies: Policies,
    /// Who gets in at the desk, and the key they show.
    pub(super) door: (Keys, String),
    senders: Senders,
    own: Own,
    login: (String, String),
    api_url: http::Uri,
    jenkins_url: http::Uri,
}

/// An App with a key of its own, made once: making one takes longer than a whole simulation.
fn app() -> Result<Credentials, String> {
    static APP: LazyLock<Result<Credentials, String>> = LazyLock::new(|| {
        let key = KeyPair::generate(KeySize::Rsa2048).map_err(|error| error.to_string())?;
        let der: Pkcs8V1Der<'_> = key.as_der().map_err(|error| error.to_string())?;
        let body = BASE64_STANDARD.encode(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
        Credentials::app(4711, &pem).map_err(|error| error.to_string())
    });
    APP.clone()
}

impl Wiring {
    fn new(settings: &Settings, policies: Policies) -> Result<Self, String> {
        let secrets = |text: &str| Secrets::parse(text).map_err(|error| error.to_string());
        let uri = |text: &str| text.parse::<http::Uri>().map_err(|error| error.to_string());
        let made = crate::keys::make("ops", "admin", &[])?;
        let door = (Keys::parse(&made.entry).map_err(|error| error.to_string())?, made.key);
        Ok(Self {
            policies,
            door,
            senders: Senders {
                github: secrets(&settings.webhook_secret)?,
                jenkins: Some(secrets(&settings.jenkins_secret)?),
                bot: Some(secrets(&settings.bot_secret)?),
            },
            own: Own { app_id: Some(settings.app_id), login: Some(format!("{}[bot]", settings.app_slug)) },
            login: (settings.jenkins_user.clone(), settings.jenkins_token.clone()),
            api_url: uri(&settings.api_url)?,
            jenkins_url: uri(&settings.jenkins_url)?,
        })
    }

    pub(super) fn github<S: Store + 'static>(&self, border: &Border<S>) -> Result<GitHub, String> {
        let settings =
            platform::github::Settings { base_url: self.api_url.clone(), ..platform::github::Settings::default() };
        Ok(GitHub::with_service(&app()?, settings, border.transport(Surface::GitHub), border.clock()))
    }

    pub(super) fn jenkins<S: Store + 'static>(&self, border: &Border<S>) -> Jenkins {
        let login = Login::Token { user: self.login.0.clone(), token: self.login.1.clone() };
        let settings = platform::jenkins::Settings::new(self.jenkins_url.clone());
        Jenkins::with_service(login, settings, border.transport(Surface::Jenkins), border.clock())
    }

    fn webhook<S: Store + 'static>(&self, border: &Border<S>) -> Webhook<Border<S>, Border<S>> {
        let (policies, own) = (self.policies.clone(), self.own.clone());
        Webhook::new(border.clone(), border.clone(), policies, own, self.senders.clone(), Log::nowhere())
    }

    fn bridge<S: Store + 'static>(&self, border: &Border<S>) -> Result<Bridge<Border<S>, Border<S>>, String> {
        let nobody = Transport::with_service(tower::service_fn(|_: Request<Bytes>| async {
            Err::<Response<Bytes>, BoxError>("nobody is called".into())
        }));
        let world = car_bridge::World {
            github: self.github(border)?,
            jenkins: Some(self.jenkins(border)),
            http: nobody,
            clock: border.clock(),
        };
        Ok(Bridge::new(Engine::new(border.clone(), border.clone(), self.policies.clone()), world))
    }

    fn sweep<S: Store + 'static>(&self, border: &Border<S>) -> Result<Sweep<Border<S>, Border<S>>, String> {
        let (github, jenkins) = (self.github(border)?, Some(self.jenkins(border)));
        let (policies, clock) = (self.policies.clone(), border.clock());
        Ok(Sweep::new(border.clone(), border.clone(), policies, github, jenkins, clock, Vec::new()))
    }
}

/// A process and the function it runs.
pub(super) struct Instance<S, F> {
    pub(super) border: Border<S>,
    pub(super) function: F,
}

/// Processes that wait for something to do.
type Idle<S, F> = Mutex<Vec<Instance<S, F>>>;

/// The whole of it.
pub(crate) struct Stage<S: Store + 'static> {
    pub(crate) scene: Arc<Scene<S>>,
    pub(super) wiring: Wiring,
    webhooks: Idle<S, Webhook<Border<S>, Border<S>>>,
    bridges: Idle<S, Bridge<Border<S>, Border<S>>>,
    sweeps: Idle<S, Sweep<Border<S>, Border<S>>>,
    pub(super) admins: Idle<S, Router>,
    /// Buttons that somebody presses until there is an answer.
    pub(crate) pressing: AtomicU64,
    started: AtomicU64,
    /// Invocations under way.
    pub(crate) running: AtomicU64,
    /// Of these, workers of the queue.
    working: AtomicU64,
    /// Sweeps that were done.
    pub(crate) swept: AtomicU64,
    /// Deaths.
    pub(crate) killed: AtomicU64,
}

impl<S: Store + 'static> Stage<S> {
    pub(crate) fn new(scene: Scene<S>, settings: &Settings, policies: Policies) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self {
            scene: Arc::new(scene),
            wiring: Wiring::new(settings, policies)?,
            webhooks: Mutex::default(),
            bridges: Mutex::default(),
            sweeps: Mutex::default(),
            admins: Mutex::default(),
            pressing: AtomicU64::new(0),
            started: AtomicU64::new(0),
            running: AtomicU64::new(0),
            working: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            killed: AtomicU64::new(0),
        }))
    }

    /// A new process of this function, with a clock of its own.
    pub(crate) fn start(&self, function: Function) -> Border<S> {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let skew = if self.scene.mishaps.has(Inside::ClockSkewed) {
            let secs = locked(&self.scene.chance).below(241);
            SignedDuration::from_secs(i64::try_from(secs).unwrap_or(120) - 120)
        } else {
            SignedDuration::ZERO
        };
        let process = Arc::new(Process::new(function, number, skew));
        Border { scene: Arc::clone(&self.scene), process }
    }

    /// Runs an invocation until it ends, its process dies, or its time is over.
    pub(crate) async fn alive<T>(
        &self,
        border: &Border<S>,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let death = select(Box::pin(border.process.death()), Box::pin(tokio::time::sleep(limit)));
        match select(Box::pin(work), death).await {
            Either::Left((done, _)) => Some(done),
            Either::Right((how, _)) => {
                let why = if matches!(how, Either::Left(_)) { "died" } else { "took too long" };
                self.scene.trace(|| format!("{} {}: {why}", border.process.function.name(), border.process.number));
                self.killed.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    pub(super) fn begins(&self, border: &Border<S>) {
        border.process.begins(self.scene.now());
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ends(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.scene.changed.notify_one();
    }

    /// A webhook arrives.
    pub(crate) async fn hear(self: Arc<Self>, delivery: Delivery) {
        let instance = locked(&self.webhooks).pop().unwrap_or_else(|| {
            let border = self.start(Function::Webhook);
            let function = self.wiring.webhook(&border);
            Instance { border, function }
        });
        self.hear_with(&instance.border, &instance.function, &delivery).await.then(|| {
            locked(&self.webhooks).push(instance);
        });
    }

    /// A webhook arrives at this process. Answers whether the process lives on.
    async fn hear_with(
        &self,
        border: &Border<S>,
        function: &Webhook<Border<S>, Border<S>>,
        delivery: &Delivery,
    ) -> bool {
        self.begins(border);
        let mut request = Request::builder().method("POST").uri(delivery.target.path());
        for (name, value) in &delivery.headers {
            request = request.header(name, value);
        }
        let Ok(request) = request.body(()) else { return true };
        let (parts, ()) = request.into_parts();
        let answer = self.alive(border, WEBHOOK_LIMIT, function.handle(&parts, &delivery.body, border.now())).await;
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        self.scene.trace(|| {
            let pr = delivery.pr.as_ref().map(ToString::to_string).unwrap_or_default();
            let said = answer.as_ref().map_or("nothing", |answer| answer.body());
            let action = delivery.action.as_deref().unwrap_or("");
            format!("webhook {}: {} {action} {pr} → {code} {said}", border.process.number, delivery.event)
        });
        if code != 200 {
            self.scene.world().webhook_answered(delivery, code);
        }
        if let Some(answer) = answer.as_ref().filter(|_| code == 200) {
            self.acknowledged(border, delivery, answer.body());
        }
        self.ends();
        answer.is_some()
    }

    /// What was acknowledged is in the log, or on the queue: looked up in the store itself.
    fn acknowledged(&self, border: &Border<S>, delivery: &Delivery, answer: &str) {
        let status = serde_json::from_str::<Value>(answer).map(|json| json["status"].clone()).unwrap_or_default();
        let doing = border.process.doing();
        let logged = || !doing.events.is_empty() && doing.events.iter().all(|key| self.scene.peek(key).is_some());
        let queue = locked(&self.scene.queue);
        // A message may be done with already: then it has been acted on.
        let queued = || !doing.queued.is_empty() && doing.queued.iter().all(|id| queue.has(*id) || queue.was_done(*id));
        let kept = match status.as_str() {
            Some("applied" | "anomaly") => logged(),
            // Too many of a day are left to the schedule: whatever it did to pull requests is found when they are due.
            Some("throttled_delayed") if delivery.event == "push" => true,
            Some("throttled_delayed" | "command_queued") => queued(),
            Some("ignored" | "duplicate_ignored" | "superseded") => true,
            Some(_) | None => false,
        };
        drop(queue);
        if !kept {
            let pr = delivery.pr.as_ref().map(ToString::to_string).unwrap_or_default();
            let detail = format!("{} of {pr} was answered {answer}, and is nowhere", delivery.event);
            locked(&self.scene.watch).wrong(Wrong::LostEvent, self.scene.now(), detail);
        }
    }

    /// Takes messages off the queue, if there are any and a worker is free.
    pub(crate) fn work(self: &Arc<Self>) {
        while self.working.load(Ordering::Relaxed) < MOST_WORKERS {
            let most = usize::try_from(locked(&self.scene.chance).between(1, 3)).unwrap_or(1);
            let batch = locked(&self.scene.queue).take(most, self.scene.now());
            if batch.is_empty() {
                return;
            }
            for message in &batch {
                if self.scene.happens(Inside::MessageDoubled, 40) {
                    // Another worker gets it while this one is at it, or shortly after.
                    let secs = locked(&self.scene.chance).between(0, 40);
                    let at = later(self.scene.now(), SignedDuration::from_secs(i64::try_from(secs).unwrap_or(1)));
                    locked(&self.scene.queue).show(message.id, at);
                }
            }
            self.working.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(Arc::clone(self).carry_out(batch));
        }
    }

    async fn carry_out(self: Arc<Self>, batch: Vec<Waiting>) {
        let instance = locked(&self.bridges).pop().map_or_else(
            || {
                let border = self.start(Function::CarBridge);
                let function = self.wiring.bridge(&border)?;
                Ok::<_, String>(Instance { border, function })
            },
            Ok,
        );
        let Ok(instance) = instance else { return };
        self.begins(&instance.border);
        let event = batch_of(&batch);
        let log = self.reader(&instance.border);
        let border = instance.border.clone();
        let work = car_bridge::handle(&instance.function, event, &log, || border.now());
        let answer = self.alive(&instance.border, BRIDGE_LIMIT, work).await;
        if let Some(answer) = answer {
            let again =
                |id: u64| answer.batch_item_failures.iter().any(|failure| failure.item_identifier == id.to_string());
            for message in batch.iter().filter(|message| !again(message.id)) {
                locked(&self.scene.queue).done(message.id);
            }
            locked(&self.bridges).push(instance);
        }
        self.working.fetch_sub(1, Ordering::Relaxed);
        self.ends();
    }

    /// What a function says of itself, where the history is written down.
    fn reader(&self, border: &Border<S>) -> Log {
        if self.scene.traced.is_none() {
            return Log::nowhere();
        }
        Log::to(Lines(border.clone()))
    }

    /// The reconciler gets an event: a tick, or somebody's wish. What fails is tried again.
    pub(crate) async fn reconcile(self: Arc<Self>, event: Value) {
        for attempt in 0..=SWEEP_RETRIES {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_secs(60 * u64::from(attempt))).await;
            }
            let instance = locked(&self.sweeps).pop().map_or_else(
                || {
                    let border = self.start(Function::Reconciler);
                    let function = self.wiring.sweep(&border)?;
                    Ok::<_, String>(Instance { border, function })
                },
                Ok,
            );
            let Ok(instance) = instance else { return };
            self.begins(&instance.border);
            let now = instance.border.now();
            let request = format!("{}-{}", instance.border.process.number, self.scene.now().as_millisecond());
            let moment = Moment { request: &request, now, deadline: later(now, SWEEP_LIMIT) };
            let log = self.reader(&instance.border);
            let limit = Duration::try_from(SWEEP_LIMIT).unwrap_or_default();
            let work = reconciler::handle(&instance.function, event.clone(), &moment, &log);
            let swept = self.alive(&instance.border, limit, work).await;
            let is_done = match &swept {
                Some(Ok(answer)) => {
                    self.swept.fetch_add(u64::from(answer["status"] == json!("swept")), Ordering::Relaxed);
                    true
                }
                Some(Err(_)) | None => false,
            };
            if swept.is_some() {
                locked(&self.sweeps).push(instance);
            }
            self.ends();
            if is_done {
                return;
            }
        }
    }
}

/// Writes a function's own lines into the history.
struct Lines<S>(Border<S>);

impl<S: Store + 'static> std::io::Write for Lines<S> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Ok(json) = serde_json::from_slice::<Value>(bytes) else { return Ok(bytes.len()) };
        let said = match self.0.process.function {
            Function::Reconciler => told_of_sweep(&json),
            Function::CarBridge | Function::Webhook | Function::Admin => {
                Some(format!("{} {}", json["outcome"].as_str().unwrap_or(""), json["reason"].as_str().unwrap_or("")))
            }
        };
        if let Some(said) = said {
            let process = &self.0.process;
            self.0.scene.trace(|| format!("{} {}: {said}", process.function.name(), process.number));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A sweep that found nothing says nothing.
fn told_of_sweep(json: &Value) -> Option<String> {
    let quiet = json["due"].as_u64() == Some(0) && json["errors"].as_array().is_none_or(Vec::is_empty);
    let shown = |name: &str| json.get(name).filter(|value| **value != json!(0)).map(|value| format!("{name} {value}"));
    let names = [
        "due",
        "verified",
        "drifted",
        "dispatched",
        "escalated",
        "skipped",
        "left",
        "resent",
        "expired",
        "errors",
        "error",
        "busy",
    ];
    let text: Vec<String> = names.into_iter().filter_map(shown).collect();
    (!quiet).then(|| format!("sweeps: {}", text.join(", ")))
}

fn batch_of(batch: &[Waiting]) -> SqsEvent {
    let mut event = SqsEvent::default();
    for message in batch {
        let mut one = SqsMessage::default();
        one.message_id = Some(message.id.to_string());
        one.body = Some(message.body.clone());
        event.records.push(one);
    }
    event
}

/// The tick of a schedule, as it reaches the reconciler.
pub(crate) fn tick(slot: Timestamp) -> Value {
    json!({"schedule": "sweep", "slot": slot.to_string()})
}

/// Somebody's wish on the bus.
pub(crate) fn wish(id: &str, detail: Value) -> Value {
    json!({"id": id, "detail-type": "ReconcileRequested", "detail": detail})
}
