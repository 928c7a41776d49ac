//! Users at the dashboard: they press its buttons, which ask the admin function through its own router, and press again when
//! no answer comes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admin::Admin;
use axum::Router;
use axum::body::{Body, to_bytes};
use domain::id::RunId;
use http::{Method, Request, StatusCode};
use platform::engine::Engine;
use platform::outlets::dlq::Dlq;
use platform::rows;
use platform::store::Store;
use platform::telemetry::Log;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use world::Pr;

use crate::cluster::{Cluster, FunctionBuilder, Instance};
use crate::fault_injection::{Function, ProcessBoundary, locked};
use crate::invariants::Invariant;

/// API Gateway waits this long for an answer.
const LIMIT: Duration = Duration::from_secs(29);
/// Somebody who sees no answer presses again, so often.
const PRESSES: u32 = 30;
/// And waits this long before.
const PAUSE: Duration = Duration::from_secs(20);
/// The longest answer that is read.
const LONGEST: usize = 1 << 20;
/// The answer while another process works on the same request.
const PROCESSING: &str = "processing";

/// A button of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DashboardAction {
    /// Opens the pull request's page: where it stands, and why.
    Look,
    /// A command.
    Command(&'static str),
    /// A sweep of this pull request.
    Sweep,
    /// Whatever is under way for it is cancelled.
    CancelRun,
    /// Whatever awaits approval is approved.
    ApproveRun,
    /// Whatever awaits approval is rejected.
    RejectRun,
    /// Nothing is done any more.
    Pause,
    /// Everything goes on.
    Unpause,
    /// The breaker is closed by hand.
    ResetBreaker,
}

/// One request.
struct ApiCall {
    method: Method,
    path: String,
    body: Option<Value>,
}

impl ApiCall {
    fn get(path: String) -> Self {
        Self { method: Method::GET, path, body: None }
    }

    fn post(path: impl Into<String>, body: Option<Value>) -> Self {
        Self { method: Method::POST, path: path.into(), body }
    }
}

/// An answer.
struct ApiReply {
    status: StatusCode,
    body: Value,
    /// It was given before, to the same request.
    replayed: bool,
}

impl FunctionBuilder {
    /// The admin function of a process.
    pub(super) fn admin<S: Store + 'static>(&self, boundary: &ProcessBoundary<S>) -> Result<Router, String> {
        let engine = Engine::new(boundary.clone(), boundary.clone(), self.policies.clone());
        let settings = admin::Settings {
            keys: self.admin_key.0.clone(),
            owner: None,
            github: Some(self.github(boundary)?),
            jenkins: Some(self.jenkins(boundary)),
            dlq: Dlq::None,
            clock: boundary.clock(),
            log: Log::nowhere(),
        };
        Ok(admin::router(Arc::new(Admin::new(engine, settings))))
    }
}

impl<S: Store + 'static> Cluster<S> {
    /// Somebody presses a button. `number` makes this pressing this one, however often it is repeated.
    pub(crate) async fn press(self: Arc<Self>, pr: Pr, button: DashboardAction, number: u64) {
        let command = |name: &str| (format!("/api/pr/{}/{}/command", pr.repo, pr.number), json!({"command": name}));
        let pull = format!("/api/pr/{}/{}", pr.repo, pr.number);
        match button {
            DashboardAction::Look => {
                for page in ["/api/overview".to_owned(), format!("{pull}/status"), format!("{pull}/explain")] {
                    self.ask_until_answered(&ApiCall::get(page), number).await;
                }
            }
            DashboardAction::Command(name) => {
                let (path, body) = command(name);
                self.ask_until_answered(&ApiCall::post(path, Some(body)), number).await;
            }
            DashboardAction::Sweep => {
                let body = json!({"repo": pr.repo, "pr_number": pr.number});
                self.ask_until_answered(&ApiCall::post("/api/reconciler/run", Some(body)), number).await;
            }
            DashboardAction::CancelRun => self.about_run(&pr, "cancel", number).await,
            DashboardAction::ApproveRun => self.about_run(&pr, "approve", number).await,
            DashboardAction::RejectRun => self.about_run(&pr, "reject", number).await,
            DashboardAction::Pause => _ = self.ask_until_answered(&ApiCall::post("/api/pause", None), number).await,
            DashboardAction::Unpause => _ = self.ask_until_answered(&ApiCall::post("/api/unpause", None), number).await,
            DashboardAction::ResetBreaker => {
                self.ask_until_answered(&ApiCall::post("/api/circuit-breaker/reset", None), number).await;
            }
        }
        self.pressing.fetch_sub(1, Ordering::Relaxed);
        self.shared.changed.notify_one();
    }

    /// Looks for the run that is meant, and asks for this.
    async fn about_run(&self, pr: &Pr, verb: &str, number: u64) {
        let list = ApiCall::get(format!("/api/runs?repo={}&number={}", pr.repo, pr.number));
        let Some(said) = self.ask_until_answered(&list, number).await else { return };
        let wanted = |run: &&Value| match run["state"].as_str() {
            Some("awaiting_approval") => true,
            Some("pending" | "running" | "waiting_external") => verb == "cancel",
            Some(_) | None => false,
        };
        let run = said.body["runs"].as_array().and_then(|runs| runs.iter().find(wanted)).map(|run| run["id"].clone());
        if let Some(id) = run.as_ref().and_then(Value::as_str) {
            self.ask_until_answered(&ApiCall::post(format!("/api/runs/{id}/{verb}"), None), number).await;
        }
    }

    /// Asks, and asks again as long as nobody has answered.
    async fn ask_until_answered(&self, ask: &ApiCall, number: u64) -> Option<ApiReply> {
        for press in 0..PRESSES {
            if press > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let instance = locked(&self.admins).pop();
            let instance = match instance {
                Some(instance) => instance,
                None => {
                    let boundary = self.start(Function::Admin);
                    let function = self.functions.admin(&boundary).ok()?;
                    Instance { boundary, function }
                }
            };
            self.begins(&instance.boundary);
            let asked = self.asked(instance.function.clone(), ask, number);
            let said = self.alive(&instance.boundary, LIMIT, asked).await.flatten();
            let status = said.as_ref().map_or(0, |said| said.status.as_u16());
            let (method, path) = (&ask.method, &ask.path);
            self.shared.trace(|| format!("admin {}: {method} {path} → {status}", instance.boundary.process.number));
            if let Some(said) = &said {
                self.acknowledged_ask(&instance.boundary, ask, said);
            }
            let lives_on = said.is_some();
            if lives_on {
                locked(&self.admins).push(instance);
            }
            self.ends();
            let waits = |said: &ApiReply| said.body["status"] == json!(PROCESSING);
            let later = |said: &ApiReply| said.status.is_server_error() || said.status == StatusCode::TOO_MANY_REQUESTS;
            if let Some(said) = said.filter(|said| !waits(said) && !later(said)) {
                return Some(said);
            }
        }
        let detail = format!("{} {} was asked {PRESSES} times, and never answered", ask.method, ask.path);
        locked(&self.shared.checker).violated(Invariant::Stuck, self.shared.now(), detail);
        None
    }

    async fn asked(&self, router: Router, ask: &ApiCall, number: u64) -> Option<ApiReply> {
        let body = ask.body.as_ref().map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = Request::builder()
            .method(ask.method.clone())
            .uri(&ask.path)
            .header("authorization", format!("Bearer {}", self.functions.admin_key.1))
            .header("content-type", "application/json")
            .header("idempotency-key", format!("press-{number}"))
            .body(body)
            .ok()?;
        let Ok(response) = router.oneshot(request).await;
        let (status, replayed) = (response.status(), response.headers().contains_key("idempotent-replayed"));
        let bytes = to_bytes(response.into_body(), LONGEST).await.ok()?;
        Some(ApiReply { status, body: serde_json::from_slice(&bytes).unwrap_or_default(), replayed })
    }

    /// What was promised is on the queue or in the table: looked up past all faults.
    fn acknowledged_ask(&self, boundary: &ProcessBoundary<S>, ask: &ApiCall, said: &ApiReply) {
        let invocation = boundary.process.invocation();
        let queue = locked(&self.shared.queue);
        let kept = match (&said.body["command_id"], &said.body["run_id"]) {
            _ if said.status != StatusCode::ACCEPTED || said.replayed => true,
            (Value::String(_), _) => {
                !invocation.queued.is_empty()
                    && invocation.queued.iter().all(|id| queue.has(*id) || queue.was_done(*id))
            }
            (_, Value::String(run)) => self.shared.peek(&rows::run_key(&RunId::new(run.as_str()))).is_some(),
            (_, _) => true,
        };
        drop(queue);
        if !kept {
            let detail = format!("{} was answered {}, and is nowhere", ask.path, said.body);
            locked(&self.shared.checker).violated(Invariant::LostEvent, self.shared.now(), detail);
        }
    }
}
