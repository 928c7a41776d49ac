//! Runs the four functions as processes, connected as in production but without sockets. Processes behave like Lambda's execution
//! environments: one invocation at a time, a cold start if none is free, and all memory lost when one dies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admin::Admin;
use admin::keys::{ApiKeys, new_key};
use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use axum::Router;
use bytes::Bytes;
use car_bridge::{self, CarBridge};
use domain::command::ApiRole;
use domain::policy::Policies;
use domain::time::saturating_after;
use fakes::WebhookDelivery;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock as _;
use platform::engine::Engine;
use platform::github::GitHub;
use platform::jenkins::Jenkins;
use platform::publish::dead_letters::DeadLetterQueue;
use platform::publish::queue_message::QueueName;
use platform::publish::visibility::retry_delay;
use platform::telemetry::MetricLog;
use platform::transport::{BoxError, Transport};
use reconciler::Invocation;
use reconciler::Reconciler;
use serde_json::{Value, json};
use testbed::FakeAccess;
use webhook::WebhookHandler;

use crate::fault_injection::{FakeTarget, FunctionName, ProcessBoundary, SimulatedProcess};
use crate::faults::InternalFault;
use crate::invariants::Invariant;
use crate::queue::SimulatedMessage;
use crate::shared_state::{SharedState, locked};

/// GitHub's timeout for a webhook, and the timeout of the function.
const WEBHOOK_LIMIT: Duration = Duration::from_secs(10);
const BRIDGE_LIMIT: Duration = Duration::from_secs(60);
const SWEEP_LIMIT: SignedDuration = SignedDuration::from_mins(5);
/// Six times the function's timeout, as AWS recommends.
const VISIBILITY_TIMEOUT: SignedDuration = SignedDuration::from_mins(6);
/// The most concurrent Car Bridge processes for commands, and for facts.
const MAX_WORKERS: u64 = 4;
const MAX_FACT_WORKERS: u64 = 2;
/// The most facts of a batch.
const MAX_FACTS: u64 = 10;
/// EventBridge and Scheduler retry a failed event this often.
const SWEEP_RETRIES: u32 = 2;

/// Builds the function of each process.
pub(crate) struct FunctionBuilder {
    policies: Policies,
    access: FakeAccess,
    keys: ApiKeys,
    /// The admin key that dashboard users send.
    pub(crate) admin_key: String,
}

impl FunctionBuilder {
    fn new(shared: &SharedState) -> Result<Self, String> {
        let settings = locked(&shared.fakes).settings().clone();
        let (admin_key, entry) = new_key("ops", ApiRole::Admin).map_err(|error| error.to_string())?;
        Ok(Self {
            policies: shared.config.policies.clone(),
            access: FakeAccess::new(&settings, &settings.api_url, &settings.jenkins_url)?,
            keys: ApiKeys::parse(&entry).map_err(|error| error.to_string())?,
            admin_key,
        })
    }

    fn engine(&self, boundary: &ProcessBoundary) -> Engine<ProcessBoundary, ProcessBoundary> {
        Engine::new(boundary.clone(), boundary.clone(), self.policies.clone())
    }

    fn github(&self, boundary: &ProcessBoundary) -> GitHub {
        self.access.github(boundary.transport(FakeTarget::GitHub), boundary.clock())
    }

    fn jenkins(&self, boundary: &ProcessBoundary) -> Jenkins {
        self.access.jenkins(boundary.transport(FakeTarget::Jenkins), boundary.clock())
    }

    fn webhook(&self, boundary: &ProcessBoundary) -> WebhookHandler<ProcessBoundary, ProcessBoundary> {
        let (own, senders) = (self.access.own.clone(), self.access.senders.clone());
        WebhookHandler::new(
            boundary.clone(),
            boundary.clone(),
            self.policies.clone(),
            own,
            senders,
            MetricLog::disabled(),
        )
    }

    fn bridge(&self, boundary: &ProcessBoundary) -> CarBridge<ProcessBoundary, ProcessBoundary> {
        let no_bots = Transport::with_service(tower::service_fn(|_: Request<Bytes>| async {
            Err::<Response<Bytes>, BoxError>("bots have no HTTP endpoint".into())
        }));
        let clients = car_bridge::ExternalClients {
            github: self.github(boundary),
            jenkins: Some(self.jenkins(boundary)),
            http: car_bridge::BotHttp::new(no_bots, None),
            clock: boundary.clock(),
        };
        CarBridge::new(self.engine(boundary), clients)
    }

    fn reconciler(&self, boundary: &ProcessBoundary) -> Reconciler<ProcessBoundary, ProcessBoundary> {
        let (github, jenkins) = (self.github(boundary), Some(self.jenkins(boundary)));
        let (store, publisher) = (boundary.clone(), boundary.clone());
        Reconciler::new(store, publisher, self.policies.clone(), github, jenkins, boundary.clock(), Vec::new())
    }

    pub(crate) fn admin(&self, boundary: &ProcessBoundary) -> Router {
        let settings = admin::AdminSettings {
            keys: self.keys.clone(),
            owner: None,
            github: Some(self.github(boundary)),
            jenkins: Some(self.jenkins(boundary)),
            dlq: DeadLetterQueue::None,
            clock: boundary.clock(),
            log: MetricLog::disabled(),
        };
        admin::router(Arc::new(Admin::new(self.engine(boundary), settings)))
    }
}

/// Idle processes of one function.
pub(crate) type ProcessPool<F> = Mutex<Vec<(ProcessBoundary, F)>>;

pub(crate) struct Cluster {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) functions: FunctionBuilder,
    webhooks: ProcessPool<WebhookHandler<ProcessBoundary, ProcessBoundary>>,
    bridges: ProcessPool<CarBridge<ProcessBoundary, ProcessBoundary>>,
    reconcilers: ProcessPool<Reconciler<ProcessBoundary, ProcessBoundary>>,
    pub(crate) admins: ProcessPool<Router>,
    /// Dashboard actions in progress.
    pub(crate) dashboard_actions: AtomicU64,
    started: AtomicU64,
    pub(crate) running: AtomicU64,
    /// The running Car Bridge processes for commands.
    workers: AtomicU64,
    /// The running Car Bridge processes for facts.
    fact_workers: AtomicU64,
    pub(crate) sweeps: AtomicU64,
    pub(crate) crashes: AtomicU64,
}

impl Cluster {
    pub(crate) fn new(shared: SharedState) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self {
            functions: FunctionBuilder::new(&shared)?,
            shared: Arc::new(shared),
            webhooks: Mutex::default(),
            bridges: Mutex::default(),
            reconcilers: Mutex::default(),
            admins: Mutex::default(),
            dashboard_actions: AtomicU64::new(0),
            started: AtomicU64::new(0),
            running: AtomicU64::new(0),
            workers: AtomicU64::new(0),
            fact_workers: AtomicU64::new(0),
            sweeps: AtomicU64::new(0),
            crashes: AtomicU64::new(0),
        }))
    }

    fn start(&self, function: FunctionName) -> ProcessBoundary {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let skew = if self.shared.config.faults.has(InternalFault::ClockSkewed) {
            locked(&self.shared.rng).seconds(0, 240) - SignedDuration::from_secs(120)
        } else {
            SignedDuration::ZERO
        };
        let process = Arc::new(SimulatedProcess::new(function, number, skew));
        ProcessBoundary { shared: Arc::clone(&self.shared), process }
    }

    /// Invokes an idle process of this function, or starts a new one. Returns `None` if the process died or timed out.
    pub(crate) async fn invoke<F, T>(
        &self,
        pool: &ProcessPool<F>,
        function: FunctionName,
        build: impl FnOnce(&ProcessBoundary) -> F,
        limit: Duration,
        work: impl AsyncFnOnce(&ProcessBoundary, &F) -> T,
    ) -> (ProcessBoundary, Option<T>) {
        let idle = locked(pool).pop();
        let (boundary, built) = idle.unwrap_or_else(|| {
            let boundary = self.start(function);
            let built = build(&boundary);
            (boundary, built)
        });
        locked(&boundary.process.invocation).begin(self.shared.now());
        self.running.fetch_add(1, Ordering::Relaxed);
        let answer = tokio::select! {
            biased;
            answer = Box::pin(work(&boundary, &built)) => Ok(answer),
            () = boundary.process.died.notified() => Err("died"),
            () = tokio::time::sleep(limit) => Err("timed out"),
        };
        if let Err(end) = answer {
            boundary.trace(|| end.to_owned());
            self.crashes.fetch_add(1, Ordering::Relaxed);
        }
        let answer = answer.ok();
        if answer.is_some() {
            locked(pool).push((boundary.clone(), built));
        }
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.shared.changed.notify_one();
        (boundary, answer)
    }

    pub(crate) async fn deliver_webhook(self: Arc<Self>, delivery: WebhookDelivery) {
        let mut request = Request::builder().method("POST").uri(delivery.target.path());
        for (name, value) in &delivery.headers {
            request = request.header(name, value);
        }
        let Ok(request) = request.body(()) else { return };
        let (parts, ()) = request.into_parts();
        let build = |boundary: &ProcessBoundary| self.functions.webhook(boundary);
        let (boundary, answer) = self
            .invoke(&self.webhooks, FunctionName::Webhook, build, WEBHOOK_LIMIT, async |boundary, webhook| {
                webhook.handle(&parts, &delivery.body, boundary.now()).await
            })
            .await;
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        let pr = || delivery.pr.as_ref().map(ToString::to_string).unwrap_or_default();
        boundary.trace(|| {
            let body = answer.as_ref().map_or("no answer", |answer| answer.body());
            format!("{} {} {} → {code} {body}", delivery.event, delivery.action.as_deref().unwrap_or(""), pr())
        });
        match answer {
            Some(answer) if code == 200 => {
                if !self.is_stored(&boundary, &delivery, answer.body()) {
                    let detail =
                        format!("{} of {} was answered {}, but was not stored", delivery.event, pr(), answer.body());
                    self.shared.violated(Invariant::LostEvent, detail);
                }
            }
            Some(_) | None => self.shared.fakes().webhook_answered(&delivery, code),
        }
    }

    /// Whether the acknowledged webhook is in the log, on the queue, or kept for a commit that is not a head yet.
    fn is_stored(&self, boundary: &ProcessBoundary, delivery: &WebhookDelivery, answer: &str) -> bool {
        let answer: Value = serde_json::from_str(answer).unwrap_or_default();
        let invocation = locked(&boundary.process.invocation);
        match answer["status"].as_str() {
            Some("applied" | "anomaly") => {
                let events = &invocation.events;
                !events.is_empty() && events.iter().all(|key| self.shared.peek(key).is_some())
            }
            // Pushes beyond the daily limit are not stored; the next scheduled sweep finds their effect.
            Some("throttled_delayed") if delivery.event == "push" => true,
            Some("throttled_delayed") if !invocation.early_reports.is_empty() => {
                invocation.early_reports.iter().all(|key| self.shared.peek(key).is_some())
            }
            Some("throttled_delayed" | "command_queued") => locked(&self.shared.queues).kept_all(&invocation.queued),
            Some("ignored" | "duplicate_ignored" | "superseded") => true,
            Some(_) | None => false,
        }
    }

    /// Starts a Car Bridge for each batch of visible messages of each queue, up to its concurrency.
    pub(crate) fn start_workers(self: &Arc<Self>) {
        for queue in QueueName::ALL {
            self.start_workers_of(queue);
        }
    }

    fn start_workers_of(self: &Arc<Self>, name: QueueName) {
        let (workers, max_workers, max_batch) = match name {
            QueueName::Commands => (&self.workers, MAX_WORKERS, 3),
            QueueName::Facts => (&self.fact_workers, MAX_FACT_WORKERS, MAX_FACTS),
        };
        while workers.load(Ordering::Relaxed) < max_workers {
            let most = usize::try_from(self.shared.between(1, max_batch)).unwrap_or(1);
            let (now, mut queues) = (self.shared.now(), locked(&self.shared.queues));
            let batch = queues.queue(name).receive(most, now, saturating_after(now, VISIBILITY_TIMEOUT));
            if batch.is_empty() {
                return;
            }
            for message in &batch {
                if self.shared.happens(InternalFault::MessageDoubled, 40) {
                    // A second worker receives the message while the first handles it, or shortly after.
                    let at = saturating_after(now, locked(&self.shared.rng).seconds(0, 40));
                    queues.queue(name).set_visible_at(&message.id, at);
                }
            }
            drop(queues);
            workers.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(Arc::clone(self).run_bridge(name, batch));
        }
    }

    async fn run_bridge(self: Arc<Self>, name: QueueName, batch: Vec<SimulatedMessage<u64, String>>) {
        let build = |boundary: &ProcessBoundary| self.functions.bridge(boundary);
        let (_, answer) = self
            .invoke(&self.bridges, FunctionName::CarBridge, build, BRIDGE_LIMIT, async |boundary, bridge| {
                car_bridge::handle(bridge, &sqs_event(&batch), &log_of(boundary), || boundary.now(), Timestamp::MAX)
                    .await
            })
            .await;
        if let Some(answer) = answer {
            let mut queues = locked(&self.shared.queues);
            let failed =
                |id: u64| answer.batch_item_failures.iter().any(|failure| failure.item_identifier == id.to_string());
            for message in &batch {
                if failed(message.id) {
                    let delay = SignedDuration::try_from(retry_delay(message.receives)).unwrap_or(VISIBILITY_TIMEOUT);
                    queues.queue(name).set_visible_at(&message.id, saturating_after(self.shared.now(), delay));
                } else if queues.queue(name).remove(&message.id).is_some() {
                    queues.handled.insert(message.id);
                }
            }
        }
        let workers = match name {
            QueueName::Commands => &self.workers,
            QueueName::Facts => &self.fact_workers,
        };
        workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sends the reconciler an event, a tick of the schedule or a request, and retries it after a failure.
    pub(crate) async fn reconcile(self: Arc<Self>, event: Value) {
        let limit = Duration::try_from(SWEEP_LIMIT).unwrap_or_default();
        for attempt in 0..=SWEEP_RETRIES {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_secs(60 * u64::from(attempt))).await;
            }
            let build = |boundary: &ProcessBoundary| self.functions.reconciler(boundary);
            let (_, answer) = self
                .invoke(&self.reconcilers, FunctionName::Reconciler, build, limit, async |boundary, reconciler| {
                    let now = boundary.now();
                    let request = format!("{}-{}", boundary.process.number, self.shared.now().as_millisecond());
                    let invocation =
                        Invocation { request_id: &request, now, deadline: saturating_after(now, SWEEP_LIMIT) };
                    reconciler::handle(reconciler, event.clone(), &invocation, &log_of(boundary)).await
                })
                .await;
            if let Some(Ok(answer)) = answer {
                self.sweeps.fetch_add(u64::from(answer["status"] == json!("completed")), Ordering::Relaxed);
                return;
            }
        }
    }
}

/// Writes a function's log lines into the trace.
struct TraceWriter(ProcessBoundary);

fn log_of(boundary: &ProcessBoundary) -> MetricLog {
    if boundary.shared.config.trace {
        MetricLog::writing_to(TraceWriter(boundary.clone()))
    } else {
        MetricLog::disabled()
    }
}

impl std::io::Write for TraceWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Ok(json) = serde_json::from_slice::<Value>(bytes) else { return Ok(bytes.len()) };
        let line = match self.0.process.function {
            FunctionName::Reconciler => sweep_line(&json),
            FunctionName::CarBridge | FunctionName::Webhook | FunctionName::Admin => {
                Some(format!("{} {}", json["outcome"].as_str().unwrap_or(""), json["reason"].as_str().unwrap_or("")))
            }
        };
        if let Some(line) = line {
            self.0.trace(|| line);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The non-zero counters of a sweep, or `None` if nothing was due.
fn sweep_line(json: &Value) -> Option<String> {
    const COUNTERS: &str = "due verified drifted dispatched escalated skipped left resent expired errors error busy";
    let is_idle = json["due"].as_u64() == Some(0) && json["errors"].as_array().is_none_or(Vec::is_empty);
    let shown = |name: &str| json.get(name).filter(|value| **value != json!(0)).map(|value| format!("{name} {value}"));
    let text: Vec<String> = COUNTERS.split(' ').filter_map(shown).collect();
    (!is_idle).then(|| format!("sweep: {}", text.join(", ")))
}

fn sqs_event(batch: &[SimulatedMessage<u64, String>]) -> SqsEvent {
    let mut event = SqsEvent::default();
    for message in batch {
        let mut record = SqsMessage::default();
        record.message_id = Some(message.id.to_string());
        record.body = Some(message.content.clone());
        event.records.push(record);
    }
    event
}

pub(crate) fn tick(slot: Timestamp) -> Value {
    json!({"schedule": "sweep", "slot": slot.to_string()})
}

pub(crate) fn reconcile_request(id: &str, detail: Value) -> Value {
    json!({"id": id, "detail-type": "ReconcileRequested", "detail": detail})
}
