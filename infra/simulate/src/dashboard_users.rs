//! Simulated dashboard users: each action is one or more calls to the admin function's router, retried until it responds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use domain::id::RunId;
use fakes::FakePrId;
use http::{Method, Request, StatusCode};
use platform::store::schema;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::cluster::Cluster;
use crate::fault_injection::{FunctionName, ProcessBoundary};
use crate::invariants::Invariant;
use crate::shared_state::locked;

/// API Gateway's timeout.
const TIMEOUT: Duration = Duration::from_secs(29);
const MAX_ATTEMPTS: u32 = 30;
const RETRY_DELAY: Duration = Duration::from_secs(20);
const MAX_BODY: usize = 1 << 20;

/// An action of a dashboard user, for one pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DashboardAction {
    /// Opens the overview, the pull request and its explanation.
    Look,
    Command(&'static str),
    Sweep,
    /// Cancels the active run.
    CancelRun,
    ApproveRun,
    RejectRun,
    Pause,
    Unpause,
    ResetBreaker,
}

struct ApiCall {
    method: Method,
    path: String,
    body: Option<Value>,
}

fn get(path: impl Into<String>) -> ApiCall {
    ApiCall { method: Method::GET, path: path.into(), body: None }
}

fn post(path: impl Into<String>, body: Option<Value>) -> ApiCall {
    ApiCall { method: Method::POST, path: path.into(), body }
}

struct ApiReply {
    status: StatusCode,
    body: Value,
    /// The stored response of an earlier request with the same idempotency key.
    replayed: bool,
}

impl Cluster {
    /// `number` becomes the idempotency key, the same for all retries.
    pub(crate) async fn act_on_dashboard(self: Arc<Self>, pr: FakePrId, action: DashboardAction, number: u64) {
        let path = format!("/api/pr/{}/{}", pr.repo, pr.number);
        let calls = match action {
            DashboardAction::Look => {
                vec![get("/api/overview"), get(format!("{path}/status")), get(format!("{path}/explain"))]
            }
            DashboardAction::Command(name) => vec![post(format!("{path}/command"), Some(json!({"command": name})))],
            DashboardAction::Sweep => {
                vec![post("/api/reconciler/run", Some(json!({"repo": pr.repo, "pr_number": pr.number})))]
            }
            DashboardAction::CancelRun => self.run_call(&pr, "cancel", number).await,
            DashboardAction::ApproveRun => self.run_call(&pr, "approve", number).await,
            DashboardAction::RejectRun => self.run_call(&pr, "reject", number).await,
            DashboardAction::Pause => vec![post("/api/pause", None)],
            DashboardAction::Unpause => vec![post("/api/unpause", None)],
            DashboardAction::ResetBreaker => vec![post("/api/circuit-breaker/reset", None)],
        };
        for call in calls {
            self.call_with_retries(&call, number).await;
        }
        self.dashboard_actions.fetch_sub(1, Ordering::Relaxed);
        self.shared.changed.notify_one();
    }

    /// The call for the run of this pull request; empty if it has no suitable run.
    async fn run_call(&self, pr: &FakePrId, verb: &str, number: u64) -> Vec<ApiCall> {
        let list = get(format!("/api/runs?repo={}&number={}", pr.repo, pr.number));
        let Some(reply) = self.call_with_retries(&list, number).await else { return Vec::new() };
        let is_suitable = |run: &&Value| match run["state"].as_str() {
            Some("awaiting_approval") => true,
            Some("pending" | "running" | "waiting_external") => verb == "cancel",
            Some(_) | None => false,
        };
        let run = reply.body["runs"].as_array().and_then(|runs| runs.iter().find(is_suitable));
        let id = run.and_then(|run| run["id"].as_str());
        id.map(|id| post(format!("/api/runs/{id}/{verb}"), None)).into_iter().collect()
    }

    async fn call_with_retries(&self, call: &ApiCall, number: u64) -> Option<ApiReply> {
        for attempt in 0..MAX_ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            let build = |boundary: &ProcessBoundary| self.functions.admin(boundary);
            let (boundary, reply) = self
                .invoke(&self.admins, FunctionName::Admin, build, TIMEOUT, async |_, router: &Router| {
                    self.call_router(router.clone(), call, number).await
                })
                .await;
            let reply = reply.flatten();
            let status = reply.as_ref().map_or(0, |reply| reply.status.as_u16());
            boundary.trace(|| format!("{} {} → {status}", call.method, call.path));
            let Some(reply) = reply else { continue };
            if !self.is_stored_request(&boundary, &reply) {
                let detail = format!("{} was answered {}, but was not stored", call.path, reply.body);
                self.shared.violated(Invariant::LostEvent, detail);
            }
            let still_processing = reply.body["status"] == json!("processing");
            let retryable = reply.status.is_server_error() || reply.status == StatusCode::TOO_MANY_REQUESTS;
            if !still_processing && !retryable {
                return Some(reply);
            }
        }
        let detail = format!("{} {} got no answer after {MAX_ATTEMPTS} attempts", call.method, call.path);
        self.shared.violated(Invariant::Stuck, detail);
        None
    }

    async fn call_router(&self, router: Router, call: &ApiCall, number: u64) -> Option<ApiReply> {
        let body = call.body.as_ref().map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header("authorization", format!("Bearer {}", self.functions.admin_key))
            .header("content-type", "application/json")
            .header("idempotency-key", format!("press-{number}"))
            .body(body)
            .ok()?;
        let Ok(response) = router.oneshot(request).await;
        let (status, replayed) = (response.status(), response.headers().contains_key("idempotent-replayed"));
        let bytes = to_bytes(response.into_body(), MAX_BODY).await.ok()?;
        Some(ApiReply { status, body: serde_json::from_slice(&bytes).unwrap_or_default(), replayed })
    }

    /// Whether an accepted request is on the queue or in the store.
    fn is_stored_request(&self, boundary: &ProcessBoundary, reply: &ApiReply) -> bool {
        if reply.status != StatusCode::ACCEPTED || reply.replayed {
            return true;
        }
        if reply.body["command_id"].is_string() {
            return locked(&self.shared.queues).kept_all(&locked(&boundary.process.invocation).queued);
        }
        let run = reply.body["run_id"].as_str();
        run.is_none_or(|run| self.shared.peek(&schema::run_key(&RunId::new(run))).is_some())
    }
}
