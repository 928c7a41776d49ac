//! The admin API: answers queries from the tables, and puts commands onto the queue. It never acts on GitHub itself. The
//! same router runs behind API Gateway and locally. `auth` checks keys and roles, `routes` has the handlers, `query` and
//! `command` the work behind them, and `view` the JSON they return.

pub mod api_keys;
mod auth;
pub mod command;
pub mod config;
mod cursor;
mod extract;
pub mod idempotency;
mod idempotent_request;
mod problem;
pub mod query;
mod routes;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use crate::query::AdminApi;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use platform::clock::Clock;
use platform::engine::Engine;
use platform::github::GitHub;
use platform::jenkins::Jenkins;
use platform::publish::Publisher;
use platform::publish::dead_letters::DeadLetterQueue;
use platform::secrets::SecretRefresher;
use platform::store::Store;
use platform::telemetry::{LogRecord, MetricLog};
use tower_http::compression::CompressionLayer;

pub use crate::api_keys as keys;
pub use problem::ApiProblem;
pub use routes::openapi;

use auth::KeyName;
use problem::{CONTENDED, ProblemCause};

/// Allows only our own files, and no framing.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The settings and clients of the function.
#[derive(Debug)]
pub struct AdminSettings {
    pub keys: keys::ApiKeys,
    /// The owner of a bare repository name.
    pub owner: Option<String>,
    pub github: Option<GitHub>,
    pub jenkins: Option<Jenkins>,
    pub dlq: DeadLetterQueue,
    pub clock: Arc<dyn Clock>,
    pub log: MetricLog,
}

/// The admin function: queries, commands, keys and the request log.
#[derive(Debug)]
pub struct Admin<S, O> {
    api: AdminApi<S, O>,
    keys: RwLock<Arc<keys::ApiKeys>>,
    renewal: Option<SecretRefresher<keys::ApiKeys>>,
    owner: Option<String>,
    dlq: DeadLetterQueue,
    log: MetricLog,
    /// The keys over their rate limit, each with the minute.
    over_limit: Mutex<BTreeMap<String, i64>>,
}

impl<S: Store, O: Publisher> Admin<S, O> {
    pub fn new(engine: Engine<S, O>, settings: AdminSettings) -> Self {
        let AdminSettings { keys, owner, github, jenkins, dlq, clock, log } = settings;
        let (api, keys) = (AdminApi::new(engine, clock, github, jenkins), RwLock::new(Arc::new(keys)));
        Self { api, keys, renewal: None, owner, dlq, log, over_limit: Mutex::default() }
    }

    /// Reloads the keys when a request has an unknown key: it may have been added a moment ago.
    #[must_use]
    pub fn with_secret_refresh(self, renewal: SecretRefresher<keys::ApiKeys>) -> Self {
        Self { renewal: Some(renewal), ..self }
    }

    /// The caller of a key. A removed key stops working within five minutes.
    async fn caller(&self, key: &str) -> Option<keys::ApiCaller> {
        let known = || Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner));
        let replace = |keys| *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        let Some(renewal) = &self.renewal else { return known().caller(key) };
        if let Some(keys) = renewal.refresh_if_stale(self.api.now()).await {
            replace(keys);
        }
        let before = known();
        if let Some(caller) = before.caller(key) {
            return Some(caller);
        }
        if let Some(keys) = renewal.refresh_now().await {
            replace(keys);
        }
        let after = known();
        if Arc::ptr_eq(&before, &after) { None } else { after.caller(key) }
    }

    pub fn engine(&self) -> &Engine<S, O> {
        self.api.engine()
    }
}

/// The router with all routes and middleware.
pub fn router<S: Store + 'static, O: Publisher + 'static>(admin: Arc<Admin<S, O>>) -> Router {
    let logged = from_fn_with_state(Arc::clone(&admin), log_request::<S, O>);
    // The first page load is three files and one API response: compression cuts them to a third.
    routes::routes().layer(CompressionLayer::new()).layer(logged).with_state(admin)
}

/// The time of Suture's clock, and how many of its seconds pass in a real one.
const NOW: HeaderName = HeaderName::from_static("suture-now");
const SPEED: HeaderName = HeaderName::from_static("suture-speed");

/// Logs one line per request, and sets the headers of every response.
async fn log_request<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let (name, method) = (KeyName::default(), request.method().clone());
    request.extensions_mut().insert(name.clone());
    // The route, not the path: an invented path must not become a metric dimension.
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = route.unwrap_or_else(|| "none".to_owned());
    let at = admin.api.now();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (header, value) in [
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("x-frame-options"), "DENY"),
    ] {
        headers.insert(header, HeaderValue::from_static(value));
    }
    // The demo's clock runs faster than the browser's.
    for (header, value) in [(NOW, admin.api.now().to_string()), (SPEED, admin.api.clock_speed().to_string())] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(header, value);
        }
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let problem = response.extensions().get::<ProblemCause>();
    let status = response.status();
    // A write conflict is answered with 503, so that the client retries, but nothing failed.
    let contended = problem.is_some_and(|problem| problem.code == CONTENDED);
    let level = match status.is_server_error() {
        true if contended => "WARN",
        true => "ERROR",
        false => "INFO",
    };
    let line = LogRecord::new("admin", at)
        .with("level", level)
        .with("route", route)
        .with("method", method.as_str())
        .with("status", status.as_u16())
        .with_some("key", name.get())
        .with_some("code", problem.map(|problem| problem.code))
        .with_some("error", problem.and_then(|problem| problem.cause.clone()))
        .count("requests", 1)
        .count("refused", u64::from(status.is_client_error()))
        .count("failed", u64::from(status.is_server_error()))
        .duration_ms(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    admin.log.write(&line);
    response
}
