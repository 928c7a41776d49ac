//! Requests with an idempotency key (R-API-12): executed once; a repeated request gets the stored response.

use crate::api_keys::{ApiCaller, random_hex};
use crate::idempotency::{self, ClaimResult, IdempotencyKey};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::id::CommandId;
use jiff::Timestamp;
use platform::hash::stable_id;
use platform::publish::Publisher;
use platform::store::Store;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Admin;
use crate::extract::LimitedBody;
use crate::problem::ApiProblem;

/// The headers of the idempotency key; the first one present counts.
const KEY_HEADERS: [&str; 3] = ["idempotency-key", "x-idempotency-key", "x-request-id"];
/// The longest idempotency key.
const MAX_KEY_BYTES: usize = 200;

/// The same request is already being processed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct StillProcessing {
    /// Always `processing`.
    status: &'static str,
    /// What the client should do.
    detail: &'static str,
}

/// A response that can be replayed.
struct ReplayableResponse {
    status: StatusCode,
    body: String,
}

impl ReplayableResponse {
    fn json<T: Serialize>(status: StatusCode, body: &T) -> Result<Self, ApiProblem> {
        let body = serde_json::to_string(body).map_err(ApiProblem::unavailable)?;
        Ok(Self { status, body })
    }

    fn response(self) -> Response {
        (self.status, [(header::CONTENT_TYPE, "application/json")], self.body).into_response()
    }
}

/// The identity of a request: the same for every repetition with the same idempotency key.
#[derive(Debug, Clone)]
pub(crate) struct RequestIdentity {
    seed: String,
    /// When the request was first attempted.
    pub(crate) at: Timestamp,
}

impl RequestIdentity {
    /// The id of the nth command of the request.
    pub(crate) fn command(&self, n: usize) -> CommandId {
        CommandId::new(format!("cmd:api-{}", self.part(n)))
    }

    /// A short id for the nth part of the request.
    pub(crate) fn part(&self, n: usize) -> String {
        stable_id(&[&self.seed, &n.to_string()]).chars().take(24).collect()
    }
}

/// A POST request: its headers with the idempotency key, its path and its body.
pub(crate) struct IdempotentRequest {
    headers: HeaderMap,
    path: String,
    pub(crate) body: LimitedBody,
}

impl<St: Send + Sync> FromRequest<St> for IdempotentRequest {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &St) -> Result<Self, ApiProblem> {
        let (headers, path) = (request.headers().clone(), request.uri().path().to_owned());
        Ok(Self { headers, path, body: LimitedBody::from_request(request, state).await? })
    }
}

impl IdempotentRequest {
    /// Executes the work once per idempotency key and returns its result. A failed request may be repeated with the same
    /// key; a completed one gets the stored response.
    pub(crate) async fn run_once<S: Store, O: Publisher, T: Serialize>(
        &self,
        admin: &Admin<S, O>,
        caller: &ApiCaller,
        status: StatusCode,
        work: impl AsyncFnOnce(RequestIdentity) -> Result<T, ApiProblem>,
    ) -> Result<Response, ApiProblem> {
        let respond = async |identity: RequestIdentity| ReplayableResponse::json(status, &work(identity).await?);
        once(admin, caller, &self.headers, (&self.path, &self.body.0), respond).await
    }
}

async fn once<S: Store, O: Publisher>(
    admin: &Admin<S, O>,
    caller: &ApiCaller,
    headers: &HeaderMap,
    request: (&str, &[u8]),
    work: impl AsyncFnOnce(RequestIdentity) -> Result<ReplayableResponse, ApiProblem>,
) -> Result<Response, ApiProblem> {
    let (store, now) = (admin.api.engine().store(), admin.api.now());
    let Some(name) = key_of(headers)? else {
        let seed = random_hex(16).map_err(ApiProblem::unavailable)?;
        return work(RequestIdentity { seed, at: now }).await.map(ReplayableResponse::response);
    };
    let (route, body) = request;
    let whole = [route.as_bytes(), b"\n", body].concat();
    let key = IdempotencyKey::api(&caller.name, &name);
    let claim = match idempotency::claim(store, &key, &whole, now).await? {
        ClaimResult::Work(claim) => claim,
        ClaimResult::Answered(stored) => {
            let status = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
            let mut response = ReplayableResponse { status, body: stored.body }.response();
            response.headers_mut().insert("idempotent-replayed", header::HeaderValue::from_static("true"));
            return Ok(response);
        }
        ClaimResult::Processing { .. } => {
            let processing = StillProcessing {
                status: "processing",
                detail: "The same request is already being processed. Retry in a second.",
            };
            let mut response = ReplayableResponse::json(StatusCode::ACCEPTED, &processing)?.response();
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
            return Ok(response);
        }
    };
    let identity = RequestIdentity { seed: key.as_str().to_owned(), at: claim.first_at() };
    match work(identity).await {
        Ok(replayable) => {
            let response =
                idempotency::StoredResponse { status: replayable.status.as_u16(), body: replayable.body.clone() };
            // The work is done even if the response cannot be stored; a repetition with this key has the same effect.
            let _ = idempotency::complete(store, claim, response, admin.api.now()).await;
            Ok(replayable.response())
        }
        Err(problem) => {
            let _ = idempotency::fail(store, claim, problem.code, admin.api.now()).await;
            Err(problem)
        }
    }
}

fn key_of(headers: &HeaderMap) -> Result<Option<String>, ApiProblem> {
    let Some(value) = KEY_HEADERS.iter().find_map(|name| headers.get(*name)) else { return Ok(None) };
    let plain =
        |text: &&str| (1..=MAX_KEY_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let text = value.to_str().ok().filter(plain);
    let bad = || {
        let detail =
            format!("The idempotency key must be 1 to {MAX_KEY_BYTES} visible ASCII characters without spaces.");
        ApiProblem::bad_request("BAD_IDEMPOTENCY_KEY", detail)
    };
    text.map(|text| Some(text.to_owned())).ok_or_else(bad)
}
