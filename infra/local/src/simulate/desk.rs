//! People at the dashboard: they press its buttons, which ask the admin function through its own router, and press again when
//! no answer comes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admin::Admin;
use axum::Router;
use axum::body::{Body, to_bytes};
use domain::id::RunId;
use fakes::Pr;
use http::{Method, Request, StatusCode};
use platform::engine::Engine;
use platform::outlets::dlq::Dlq;
use platform::rows;
use platform::store::Store;
use platform::telemetry::Log;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::border::{Border, Function, locked};
use super::stage::{Instance, Stage, Wiring};
use super::watch::Wrong;

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
pub enum Button {
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
struct Ask {
    method: Method,
    path: String,
    body: Option<Value>,
}

impl Ask {
    fn get(path: String) -> Self {
        Self { method: Method::GET, path, body: None }
    }

    fn post(path: impl Into<String>, body: Option<Value>) -> Self {
        Self { method: Method::POST, path: path.into(), body }
    }
}

/// An answer.
struct Said {
    status: StatusCode,
    body: Value,
    /// It was given before, to the same request.
    replayed: bool,
}

impl Wiring {
    /// The admin function of a process.
    pub(super) fn admin<S: Store + 'static>(&self, border: &Border<S>) -> Result<Router, String> {
        let engine = Engine::new(border.clone(), border.clone(), self.policies.clone());
        let settings = admin::Settings {
            keys: self.door.0.clone(),
            owner: None,
            github: Some(self.github(border)?),
            jenkins: Some(self.jenkins(border)),
            dlq: Dlq::None,
            clock: border.clock(),
            log: Log::nowhere(),
        };
        Ok(admin::router(Arc::new(Admin::new(engine, settings))))
    }
}

impl<S: Store + 'static> Stage<S> {
    /// Somebody presses a button. `number` makes this pressing this one, however often it is repeated.
    pub(crate) async fn press(self: Arc<Self>, pr: Pr, button: Button, number: u64) {
        let command = |name: &str| (format!("/api/pr/{}/{}/command", pr.repo, pr.number), json!({"command": name}));
        let pull = format!("/api/pr/{}/{}", pr.repo, pr.number);
        match button {
            Button::Look => {
                for page in ["/api/overview".to_owned(), format!("{pull}/status"), format!("{pull}/explain")] {
                    self.ask_until_answered(&Ask::get(page), number).await;
                }
            }
            Button::Command(name) => {
                let (path, body) = command(name);
                self.ask_until_answered(&Ask::post(path, Some(body)), number).await;
            }
            Button::Sweep => {
                let body = json!({"repo": pr.repo, "pr_number": pr.number});
                self.ask_until_answered(&Ask::post("/api/reconciler/run", Some(body)), number).await;
            }
            Button::CancelRun => self.about_run(&pr, "cancel", number).await,
            Button::ApproveRun => self.about_run(&pr, "approve", number).await,
            Button::RejectRun => self.about_run(&pr, "reject", number).await,
            Button::Pause => _ = self.ask_until_answered(&Ask::post("/api/pause", None), number).await,
            Button::Unpause => _ = self.ask_until_answered(&Ask::post("/api/unpause", None), number).await,
            Button::ResetBreaker => {
                self.ask_until_answered(&Ask::post("/api/circuit-breaker/reset", None), number).await;
            }
        }
        self.pressing.fetch_sub(1, Ordering::Relaxed);
        self.scene.changed.notify_one();
    }

    /// Looks for the run that is meant, and asks for this.
    async fn about_run(&self, pr: &Pr, verb: &str, number: u64) {
        let list = Ask::get(format!("/api/runs?repo={}&number={}", pr.repo, pr.number));
        let Some(said) = self.ask_until_answered(&list, number).await else { return };
        let wanted = |run: &&Value| match run["state"].as_str() {
            Some("awaiting_approval") => true,
            Some("pending" | "running" | "waiting_external") => verb == "cancel",
            Some(_) | None => false,
        };
        let run = said.body["runs"].as_array().and_then(|runs| runs.iter().find(wanted)).map(|run| run["id"].clone());
        if let Some(id) = run.as_ref().and_then(Value::as_str) {
            self.ask_until_answered(&Ask::post(format!("/api/runs/{id}/{verb}"), None), number).await;
        }
    }

    /// Asks, and asks again as long as nobody has answered.
    async fn ask_until_answered(&self, ask: &Ask, number: u64) -> Option<Said> {
        for press in 0..PRESSES {
            if press > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let instance = locked(&self.admins).pop();
            let instance = match instance {
                Some(instance) => instance,
                None => {
                    let border = self.start(Function::Admin);
                    let function = self.wiring.admin(&border).ok()?;
                    Instance { border, function }
                }
            };
            self.begins(&instance.border);
            let asked = self.asked(instance.function.clone(), ask, number);
            let said = self.alive(&instance.border, LIMIT, asked).await.flatten();
            let status = said.as_ref().map_or(0, |said| said.status.as_u16());
            let (method, path) = (&ask.method, &ask.path);
            self.scene.trace(|| format!("admin {}: {method} {path} → {status}", instance.border.process.number));
            if let Some(said) = &said {
                self.acknowledged_ask(&instance.border, ask, said);
            }
            let lives_on = said.is_some();
            if lives_on {
                locked(&self.admins).push(instance);
            }
            self.ends();
            let waits = |said: &Said| said.body["status"] == json!(PROCESSING);
            let later = |said: &Said| said.status.is_server_error() || said.status == StatusCode::TOO_MANY_REQUESTS;
            if let Some(said) = said.filter(|said| !waits(said) && !later(said)) {
                return Some(said);
            }
        }
        let detail = format!("{} {} was asked {PRESSES} times, and never answered", ask.method, ask.path);
        locked(&self.scene.watch).wrong(Wrong::Stuck, self.scene.now(), detail);
        None
    }

    async fn asked(&self, router: Router, ask: &Ask, number: u64) -> Option<Said> {
        let body = ask.body.as_ref().map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = Request::builder()
            .method(ask.method.clone())
            .uri(&ask.path)
            .header("authorization", format!("Bearer {}", self.wiring.door.1))
            .header("content-type", "application/json")
            .header("idempotency-key", format!("press-{number}"))
            .body(body)
            .ok()?;
        let Ok(response) = router.oneshot(request).await;
        let (status, replayed) = (response.status(), response.headers().contains_key("idempotent-replayed"));
        let bytes = to_bytes(response.into_body(), LONGEST).await.ok()?;
        Some(Said { status, body: serde_json::from_slice(&bytes).unwrap_or_default(), replayed })
    }

    /// What was promised is on the queue or in the table: looked up past all faults.
    fn acknowledged_ask(&self, border: &Border<S>, ask: &Ask, said: &Said) {
        let doing = border.process.doing();
        let queue = locked(&self.scene.queue);
        let kept = match (&said.body["command_id"], &said.body["run_id"]) {
            _ if said.status != StatusCode::ACCEPTED || said.replayed => true,
            (Value::String(_), _) => {
                !doing.queued.is_empty() && doing.queued.iter().all(|id| queue.has(*id) || queue.was_done(*id))
            }
            (_, Value::String(run)) => self.scene.peek(&rows::run_key(&RunId::new(run.as_str()))).is_some(),
            (_, _) => true,
        };
        drop(queue);
        if !kept {
            let detail = format!("{} was answered {}, and is nowhere", ask.path, said.body);
            locked(&self.scene.watch).wrong(Wrong::LostEvent, self.scene.now(), detail);
        }
    }
}
