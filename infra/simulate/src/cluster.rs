//! The stage: the pretended world, a store, a queue, and processes of the four functions around them, wired as in production
//! but without sockets, all in one virtual time. Processes come and go as Lambda's do: one invocation at a time each, as many
//! as are needed, started cold when none is free, and lost with all they remember when they die.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use axum::Router;
use bytes::Bytes;
use domain::command::Role;
use domain::policy::Policies;
use futures_util::future::{Either, select};
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use platform::bridge::{self, Bridge};
use platform::engine::Engine;
use platform::github::webhook::Own;
use platform::github::webhook::signature::Secrets;
use platform::github::{Credentials, GitHub};
use platform::http::{BoxError, Transport};
use platform::jenkins::{Jenkins, Login};
use platform::keys::{Keys, new_key};
use platform::store::Store;
use platform::sweep::Sweep;
use platform::telemetry::Log;
use reconciler::Moment;
use serde_json::{Value, json};
use webhook::{Senders, Webhook};
use world::{Delivery, Settings};

use crate::app_key::private_key;
use crate::fault_injection::{Function, Process, ProcessBoundary, SharedState, Surface, locked};
use crate::faults::InternalFault;
use crate::invariants::Invariant;
use crate::queue::{Message, later};

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
pub(super) struct FunctionBuilder {
    pub(super) policies: Policies,
    /// Who gets in at the desk, and the key they show.
    pub(super) admin_key: (Keys, String),
    senders: Senders,
    own: Own,
    login: (String, String),
    api_url: http::Uri,
    jenkins_url: http::Uri,
}

/// An App with a key of its own, made once: making one takes longer than a whole simulation.
fn app() -> Result<Credentials, String> {
    static APP: LazyLock<Result<Credentials, String>> = LazyLock::new(|| {
        let pem = private_key().map_err(|error| error.to_string())?;
        Credentials::app(4711, &pem).map_err(|error| error.to_string())
    });
    APP.clone()
}

impl FunctionBuilder {
    fn new(settings: &Settings, policies: Policies) -> Result<Self, String> {
        let secrets = |text: &str| Secrets::parse(text).map_err(|error| error.to_string());
        let uri = |text: &str| text.parse::<http::Uri>().map_err(|error| error.to_string());
        let (key, entry) = new_key("ops", Role::Admin).map_err(|error| error.to_string())?;
        let admin_key = (Keys::parse(&entry).map_err(|error| error.to_string())?, key);
        Ok(Self {
            policies,
            admin_key,
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

    pub(super) fn github<S: Store + 'static>(&self, boundary: &ProcessBoundary<S>) -> Result<GitHub, String> {
        let settings =
            platform::github::Settings { base_url: self.api_url.clone(), ..platform::github::Settings::default() };
        Ok(GitHub::with_service(&app()?, settings, boundary.transport(Surface::GitHub), boundary.clock()))
    }

    pub(super) fn jenkins<S: Store + 'static>(&self, boundary: &ProcessBoundary<S>) -> Jenkins {
        let login = Login::Token { user: self.login.0.clone(), token: self.login.1.clone() };
        let settings = platform::jenkins::Settings::new(self.jenkins_url.clone());
        Jenkins::with_service(login, settings, boundary.transport(Surface::Jenkins), boundary.clock())
    }

    fn webhook<S: Store + 'static>(
        &self,
        boundary: &ProcessBoundary<S>,
    ) -> Webhook<ProcessBoundary<S>, ProcessBoundary<S>> {
        let (policies, own) = (self.policies.clone(), self.own.clone());
        Webhook::new(boundary.clone(), boundary.clone(), policies, own, self.senders.clone(), Log::nowhere())
    }

    fn bridge<S: Store + 'static>(
        &self,
        boundary: &ProcessBoundary<S>,
    ) -> Result<Bridge<ProcessBoundary<S>, ProcessBoundary<S>>, String> {
        let nobody = Transport::with_service(tower::service_fn(|_: Request<Bytes>| async {
            Err::<Response<Bytes>, BoxError>("nobody is called".into())
        }));
        let world = bridge::World {
            github: self.github(boundary)?,
            jenkins: Some(self.jenkins(boundary)),
            http: nobody,
            clock: boundary.clock(),
        };
        Ok(Bridge::new(Engine::new(boundary.clone(), boundary.clone(), self.policies.clone()), world))
    }

    fn sweep<S: Store + 'static>(
        &self,
        boundary: &ProcessBoundary<S>,
    ) -> Result<Sweep<ProcessBoundary<S>, ProcessBoundary<S>>, String> {
        let (github, jenkins) = (self.github(boundary)?, Some(self.jenkins(boundary)));
        let (policies, clock) = (self.policies.clone(), boundary.clock());
        Ok(Sweep::new(boundary.clone(), boundary.clone(), policies, github, jenkins, clock, Vec::new()))
    }
}

/// A process and the function it runs.
pub(super) struct Instance<S, F> {
    pub(super) boundary: ProcessBoundary<S>,
    pub(super) function: F,
}

/// Processes that wait for something to do.
type Idle<S, F> = Mutex<Vec<Instance<S, F>>>;

/// The whole of it.
pub(crate) struct Cluster<S: Store + 'static> {
    pub(crate) shared: Arc<SharedState<S>>,
    pub(super) functions: FunctionBuilder,
    webhooks: Idle<S, Webhook<ProcessBoundary<S>, ProcessBoundary<S>>>,
    bridges: Idle<S, Bridge<ProcessBoundary<S>, ProcessBoundary<S>>>,
    sweeps: Idle<S, Sweep<ProcessBoundary<S>, ProcessBoundary<S>>>,
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

impl<S: Store + 'static> Cluster<S> {
    pub(crate) fn new(shared: SharedState<S>, settings: &Settings, policies: Policies) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self {
            shared: Arc::new(shared),
            functions: FunctionBuilder::new(settings, policies)?,
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
    pub(crate) fn start(&self, function: Function) -> ProcessBoundary<S> {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let skew = if self.shared.faults.has(InternalFault::ClockSkewed) {
            let secs = locked(&self.shared.rng).below(241);
            SignedDuration::from_secs(i64::try_from(secs).unwrap_or(120) - 120)
        } else {
            SignedDuration::ZERO
        };
        let process = Arc::new(Process::new(function, number, skew));
        ProcessBoundary { shared: Arc::clone(&self.shared), process }
    }

    /// Runs an invocation until it ends, its process dies, or its time is over.
    pub(crate) async fn alive<T>(
        &self,
        boundary: &ProcessBoundary<S>,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let death = select(Box::pin(boundary.process.death()), Box::pin(tokio::time::sleep(limit)));
        match select(Box::pin(work), death).await {
            Either::Left((done, _)) => Some(done),
            Either::Right((how, _)) => {
                let why = if matches!(how, Either::Left(_)) { "died" } else { "took too long" };
                self.shared
                    .trace(|| format!("{} {}: {why}", boundary.process.function.name(), boundary.process.number));
                self.killed.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    pub(super) fn begins(&self, boundary: &ProcessBoundary<S>) {
        boundary.process.begins(self.shared.now());
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ends(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.shared.changed.notify_one();
    }

    /// A webhook arrives.
    pub(crate) async fn deliver_webhook(self: Arc<Self>, delivery: Delivery) {
        let instance = locked(&self.webhooks).pop().unwrap_or_else(|| {
            let boundary = self.start(Function::Webhook);
            let function = self.functions.webhook(&boundary);
            Instance { boundary, function }
        });
        self.deliver_to(&instance.boundary, &instance.function, &delivery).await.then(|| {
            locked(&self.webhooks).push(instance);
        });
    }

    /// A webhook arrives at this process. Answers whether the process lives on.
    async fn deliver_to(
        &self,
        boundary: &ProcessBoundary<S>,
        function: &Webhook<ProcessBoundary<S>, ProcessBoundary<S>>,
        delivery: &Delivery,
    ) -> bool {
        self.begins(boundary);
        let mut request = Request::builder().method("POST").uri(delivery.target.path());
        for (name, value) in &delivery.headers {
            request = request.header(name, value);
        }
        let Ok(request) = request.body(()) else { return true };
        let (parts, ()) = request.into_parts();
        let answer = self.alive(boundary, WEBHOOK_LIMIT, function.handle(&parts, &delivery.body, boundary.now())).await;
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        self.shared.trace(|| {
            let pr = delivery.pr.as_ref().map(ToString::to_string).unwrap_or_default();
            let said = answer.as_ref().map_or("nothing", |answer| answer.body());
            let action = delivery.action.as_deref().unwrap_or("");
            format!("webhook {}: {} {action} {pr} → {code} {said}", boundary.process.number, delivery.event)
        });
        if code != 200 {
            self.shared.world().webhook_answered(delivery, code);
        }
        if let Some(answer) = answer.as_ref().filter(|_| code == 200) {
            self.acknowledged(boundary, delivery, answer.body());
        }
        self.ends();
        answer.is_some()
    }

    /// What was acknowledged is in the log, or on the queue: looked up in the store itself.
    fn acknowledged(&self, boundary: &ProcessBoundary<S>, delivery: &Delivery, answer: &str) {
        let status = serde_json::from_str::<Value>(answer).map(|json| json["status"].clone()).unwrap_or_default();
        let invocation = boundary.process.invocation();
        let logged =
            || !invocation.events.is_empty() && invocation.events.iter().all(|key| self.shared.peek(key).is_some());
        let queue = locked(&self.shared.queue);
        // A message may be done with already: then it has been acted on.
        let queued = || {
            !invocation.queued.is_empty() && invocation.queued.iter().all(|id| queue.has(*id) || queue.was_done(*id))
        };
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
            locked(&self.shared.checker).violated(Invariant::LostEvent, self.shared.now(), detail);
        }
    }

    /// Takes messages off the queue, if there are any and a worker is free.
    pub(crate) fn work(self: &Arc<Self>) {
        while self.working.load(Ordering::Relaxed) < MOST_WORKERS {
            let most = usize::try_from(locked(&self.shared.rng).between(1, 3)).unwrap_or(1);
            let batch = locked(&self.shared.queue).take(most, self.shared.now());
            if batch.is_empty() {
                return;
            }
            for message in &batch {
                if self.shared.happens(InternalFault::MessageDoubled, 40) {
                    // Another worker gets it while this one is at it, or shortly after.
                    let secs = locked(&self.shared.rng).between(0, 40);
                    let at = later(self.shared.now(), SignedDuration::from_secs(i64::try_from(secs).unwrap_or(1)));
                    locked(&self.shared.queue).show(message.id, at);
                }
            }
            self.working.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(Arc::clone(self).run_bridge(batch));
        }
    }

    async fn run_bridge(self: Arc<Self>, batch: Vec<Message>) {
        let instance = locked(&self.bridges).pop().map_or_else(
            || {
                let boundary = self.start(Function::CarBridge);
                let function = self.functions.bridge(&boundary)?;
                Ok::<_, String>(Instance { boundary, function })
            },
            Ok,
        );
        let Ok(instance) = instance else { return };
        self.begins(&instance.boundary);
        let event = batch_of(&batch);
        let log = self.reader(&instance.boundary);
        let boundary = instance.boundary.clone();
        let work = car_bridge::handle(&instance.function, event, &log, || boundary.now());
        let answer = self.alive(&instance.boundary, BRIDGE_LIMIT, work).await;
        if let Some(answer) = answer {
            let again =
                |id: u64| answer.batch_item_failures.iter().any(|failure| failure.item_identifier == id.to_string());
            for message in batch.iter().filter(|message| !again(message.id)) {
                locked(&self.shared.queue).done(message.id);
            }
            locked(&self.bridges).push(instance);
        }
        self.working.fetch_sub(1, Ordering::Relaxed);
        self.ends();
    }

    /// What a function says of itself, where the history is written down.
    fn reader(&self, boundary: &ProcessBoundary<S>) -> Log {
        if self.shared.trace.is_none() {
            return Log::nowhere();
        }
        Log::to(TraceWriter(boundary.clone()))
    }

    /// The reconciler gets an event: a tick, or somebody's wish. What fails is tried again.
    pub(crate) async fn reconcile(self: Arc<Self>, event: Value) {
        for attempt in 0..=SWEEP_RETRIES {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_secs(60 * u64::from(attempt))).await;
            }
            let instance = locked(&self.sweeps).pop().map_or_else(
                || {
                    let boundary = self.start(Function::Reconciler);
                    let function = self.functions.sweep(&boundary)?;
                    Ok::<_, String>(Instance { boundary, function })
                },
                Ok,
            );
            let Ok(instance) = instance else { return };
            self.begins(&instance.boundary);
            let now = instance.boundary.now();
            let request = format!("{}-{}", instance.boundary.process.number, self.shared.now().as_millisecond());
            let moment = Moment { request: &request, now, deadline: later(now, SWEEP_LIMIT) };
            let log = self.reader(&instance.boundary);
            let limit = Duration::try_from(SWEEP_LIMIT).unwrap_or_default();
            let work = reconciler::handle(&instance.function, event.clone(), &moment, &log);
            let swept = self.alive(&instance.boundary, limit, work).await;
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
struct TraceWriter<S>(ProcessBoundary<S>);

impl<S: Store + 'static> std::io::Write for TraceWriter<S> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Ok(json) = serde_json::from_slice::<Value>(bytes) else { return Ok(bytes.len()) };
        let said = match self.0.process.function {
            Function::Reconciler => sweep_line(&json),
            Function::CarBridge | Function::Webhook | Function::Admin => {
                Some(format!("{} {}", json["outcome"].as_str().unwrap_or(""), json["reason"].as_str().unwrap_or("")))
            }
        };
        if let Some(said) = said {
            let process = &self.0.process;
            self.0.shared.trace(|| format!("{} {}: {said}", process.function.name(), process.number));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A sweep that found nothing says nothing.
fn sweep_line(json: &Value) -> Option<String> {
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

fn batch_of(batch: &[Message]) -> SqsEvent {
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
pub(crate) fn reconcile_request(id: &str, detail: Value) -> Value {
    json!({"id": id, "detail-type": "ReconcileRequested", "detail": detail})
}
