//! What is asked twice under one name is done once (R-API-12): the answer is remembered and given again.

use crate::api_keys::{Caller, random_hex};
use crate::idempotency::{self, Begun, IdempotencyKey};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::id::CommandId;
use jiff::Timestamp;
use platform::hash::hashed;
use platform::outlets::Outlets;
use platform::store::Store;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Admin;
use crate::extract::Body;
use crate::problem::Problem;

/// The headers that name a request, the first that is there counts.
const NAMES: [&str; 3] = ["idempotency-key", "x-idempotency-key", "x-request-id"];
/// The longest name.
const LONGEST: usize = 200;

/// The same request is being worked on by somebody else.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Processing {
    /// Always `processing`.
    status: &'static str,
    /// What to do.
    detail: &'static str,
}

/// An answer that can be given again.
struct Answer {
    status: StatusCode,
    body: String,
}

impl Answer {
    /// This, as JSON.
    fn json<T: Serialize>(status: StatusCode, body: &T) -> Result<Self, Problem> {
        let body = serde_json::to_string(body).map_err(Problem::unavailable)?;
        Ok(Self { status, body })
    }

    fn response(self) -> Response {
        (self.status, [(header::CONTENT_TYPE, "application/json")], self.body).into_response()
    }
}

/// What makes this request this one.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    seed: String,
    /// When it was first made.
    pub(crate) at: Timestamp,
}

impl Named {
    /// The name of the nth thing that is asked for by it.
    pub(crate) fn command(&self, n: usize) -> CommandId {
        CommandId::new(format!("cmd:api-{}", self.part(n)))
    }

    /// A short name for what is asked for by it.
    pub(crate) fn part(&self, n: usize) -> String {
        hashed(&[&self.seed, &n.to_string()]).chars().take(24).collect()
    }
}

/// Something that somebody wants done: how they named it, where they asked for it, and what they said.
pub(crate) struct Wish {
    headers: HeaderMap,
    path: String,
    pub(crate) body: Body,
}

impl<St: Send + Sync> FromRequest<St> for Wish {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &St) -> Result<Self, Problem> {
        let (headers, path) = (request.headers().clone(), request.uri().path().to_owned());
        Ok(Self { headers, path, body: Body::from_request(request, state).await? })
    }
}

impl Wish {
    /// Does the work once for each name, and answers with what it brought. What was refused may be asked again under the same
    /// name; what was done is answered with what was answered then.
    pub(crate) async fn once<S: Store, O: Outlets, T: Serialize>(
        &self,
        admin: &Admin<S, O>,
        caller: &Caller,
        status: StatusCode,
        work: impl AsyncFnOnce(Named) -> Result<T, Problem>,
    ) -> Result<Response, Problem> {
        let done = async |named: Named| Answer::json(status, &work(named).await?);
        once(admin, caller, &self.headers, (&self.path, &self.body.0), done).await
    }
}

async fn once<S: Store, O: Outlets>(
    admin: &Admin<S, O>,
    caller: &Caller,
    headers: &HeaderMap,
    request: (&str, &[u8]),
    work: impl AsyncFnOnce(Named) -> Result<Answer, Problem>,
) -> Result<Response, Problem> {
    let (store, now) = (admin.desk.engine().store(), admin.desk.now());
    let Some(name) = name(headers)? else {
        let seed = random_hex(16).map_err(Problem::unavailable)?;
        return work(Named { seed, at: now }).await.map(Answer::response);
    };
    let (route, body) = request;
    let whole = [route.as_bytes(), b"\n", body].concat();
    let key = IdempotencyKey::api(&caller.name, &name);
    let claim = match idempotency::begin(store, &key, &whole, now).await? {
        Begun::Work(claim) => claim,
        Begun::Answered(answer) => {
            let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
            let mut response = Answer { status, body: answer.body }.response();
            response.headers_mut().insert("idempotent-replayed", header::HeaderValue::from_static("true"));
            return Ok(response);
        }
        Begun::Processing { .. } => {
            let processing =
                Processing { status: "processing", detail: "The same request is being worked on: ask again." };
            let mut response = Answer::json(StatusCode::ACCEPTED, &processing)?.response();
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
            return Ok(response);
        }
    };
    let named = Named { seed: key.as_str().to_owned(), at: claim.first_at() };
    match work(named).await {
        Ok(answer) => {
            let response = idempotency::Response { status: answer.status.as_u16(), body: answer.body.clone() };
            // It is done, whether or not that is remembered; doing it again under this name does the same.
            let _ = idempotency::complete(store, claim, response, admin.desk.now()).await;
            Ok(answer.response())
        }
        Err(problem) => {
            let _ = idempotency::fail(store, claim, problem.code, admin.desk.now()).await;
            Err(problem)
        }
    }
}

fn name(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = NAMES.iter().find_map(|name| headers.get(*name)) else { return Ok(None) };
    let plain = |text: &&str| (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let text = value.to_str().ok().filter(plain);
    let bad = || {
        let detail = format!("The idempotency key is 1 to {LONGEST} visible ASCII characters, without spaces.");
        Problem::bad_request("BAD_IDEMPOTENCY_KEY", detail)
    };
    text.map(|text| Some(text.to_owned())).ok_or_else(bad)
}
