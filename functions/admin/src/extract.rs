//! Extracts the path, the query and the body of a request. Invalid input is answered with a sentence that says why.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use domain::id::{PrId, RepoName, RunId};
use platform::publish::Publisher;
use platform::store::Store;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::Admin;
use crate::problem::ApiProblem;

/// The largest body that is accepted.
pub(crate) const MAX_BODY_BYTES: usize = 256 * 1024;
/// The longest run id, in characters.
const MAX_RUN_ID: usize = 300;
/// The highest pull request number: 15 digits, which every JSON parser represents exactly.
const MAX_NUMBER: u64 = 999_999_999_999_999;

/// `owner/name`, or a bare name of the configured owner. Each part has 1 to 100 characters, and is neither `.` nor `..`.
#[derive(Debug, ToSchema)]
#[schema(
    pattern = r"^(([A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,99}|\.[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,98}|\.\.[A-Za-z0-9_.\-]{1,98})/)?([A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,99}|\.[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,98}|\.\.[A-Za-z0-9_.\-]{1,98})$"
)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct RepoParam(String);

/// A run id: 1 to 300 characters without control characters.
#[derive(Debug, ToSchema)]
#[schema(pattern = r"^[^\x00-\x1f\x7f-\x9f]{1,300}$")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct RunIdParam(String);

/// The number of a pull request.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(minimum = 1, maximum = 999_999_999_999_999_u64)]
pub(crate) struct PrNumber(pub(crate) u64);

impl<'de> Deserialize<'de> for PrNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(from)?;
        // JSON has one number type, and some clients send 7 as 7.0. Rust prints a whole float as digits only.
        let whole = number.as_u64().or_else(|| number.as_f64()?.to_string().parse().ok());
        let fits = whole.filter(|whole| (1..=MAX_NUMBER).contains(whole));
        fits.map(Self).ok_or_else(|| D::Error::custom(format!("{number} is not a pull request number")))
    }
}

/// The pull request of the path: `{repo}/{number}` or `{owner}/{repo}/{number}`.
pub(crate) struct PrPath(pub(crate) PrId);

/// The run of the path.
pub(crate) struct RunPath(pub(crate) RunId);

/// Parses `owner/name`, or a bare name if an owner is configured.
pub(crate) fn repo(text: &str, owner: Option<&str>) -> Result<RepoName, ApiProblem> {
    let full = match (text.contains('/'), owner) {
        (false, Some(owner)) => format!("{owner}/{text}"),
        (true, _) | (false, None) => text.to_owned(),
    };
    full.parse().map_err(|_| {
        let detail = "Not a repository: expected `owner/name` (in a path `owner%2Fname`), or a bare name if an owner is configured.";
        ApiProblem::bad_request("BAD_REPO", detail)
    })
}

/// Parses a pull request number: digits only.
pub(crate) fn number(text: &str) -> Result<u64, ApiProblem> {
    let digits = !text.is_empty() && text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && (1..=MAX_NUMBER).contains(number));
    number
        .ok_or_else(|| ApiProblem::bad_request("BAD_NUMBER", "Not a pull request number: expected digits, such as 42."))
}

async fn path_parts<T: Send + Sync>(parts: &mut Parts, state: &T) -> Result<BTreeMap<String, String>, ApiProblem> {
    let named: Result<Path<BTreeMap<String, String>>, _> = Path::from_request_parts(parts, state).await;
    let unreadable = |_| ApiProblem::bad_request("BAD_PATH", "Invalid path: send UTF-8, percent-encoded.");
    named.map(|Path(named)| named).map_err(unreadable)
}

impl<S: Store + 'static, O: Publisher + 'static> FromRequestParts<Arc<Admin<S, O>>> for PrPath {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin<S, O>>) -> Result<Self, ApiProblem> {
        let named = path_parts(parts, admin).await?;
        let part = |name: &str| named.get(name).map(String::as_str).unwrap_or_default();
        let repo = match named.get("owner") {
            Some(owner) => repo(&format!("{owner}/{}", part("repo")), None)?,
            None => repo(part("repo"), admin.owner.as_deref())?,
        };
        Ok(Self(PrId::new(repo, number(part("number"))?)))
    }
}

impl<S: Store + 'static, O: Publisher + 'static> FromRequestParts<Arc<Admin<S, O>>> for RunPath {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin<S, O>>) -> Result<Self, ApiProblem> {
        let named = path_parts(parts, admin).await?;
        let id = named.get("id").map(String::as_str).unwrap_or_default();
        let plain = |c: char| !c.is_control();
        if !(1..=MAX_RUN_ID).contains(&id.chars().count()) || !id.chars().all(plain) {
            return Err(ApiProblem::bad_request(
                "BAD_RUN",
                "Not a run id: expected 1 to 300 characters without control characters.",
            ));
        }
        Ok(Self(RunId::new(id)))
    }
}

/// The query parameters.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, St: Send + Sync> FromRequestParts<St> for QueryParams<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &St) -> Result<Self, ApiProblem> {
        let read: Result<Query<T>, _> = Query::from_request_parts(parts, state).await;
        read.map(|Query(params)| Self(params)).map_err(|rejection| {
            let detail = format!("Invalid query: {}.", plain(&rejection.body_text()));
            ApiProblem::bad_request("BAD_QUERY", detail)
        })
    }
}

/// The text as one short line.
fn plain(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    domain::event::truncate(text.trim().trim_end_matches('.'), 200)
}

/// The request body, up to [`MAX_BODY_BYTES`].
pub(crate) struct LimitedBody(pub(crate) Bytes);

impl<St: Send + Sync> FromRequest<St> for LimitedBody {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, _: &St) -> Result<Self, ApiProblem> {
        let announced = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let announced: Option<usize> = announced.and_then(|length| length.parse().ok());
        if announced.is_some_and(|length| length > MAX_BODY_BYTES) {
            return Err(ApiProblem::too_large(MAX_BODY_BYTES));
        }
        let read = to_bytes(request.into_body(), MAX_BODY_BYTES).await;
        read.map(Self).map_err(|_| ApiProblem::too_large(MAX_BODY_BYTES))
    }
}

impl LimitedBody {
    /// The body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        serde_json::from_slice(&self.0).map_err(|error| {
            ApiProblem::bad_request("BAD_JSON", format!("Invalid JSON body: {}.", plain(&error.to_string())))
        })
    }

    /// The body as a JSON object. serde would also accept an array of the field values, which is never intended.
    pub(crate) fn object<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        if self.0.trim_ascii_start().starts_with(b"[") {
            return Err(ApiProblem::bad_request("BAD_JSON", "Invalid JSON body: expected an object, got an array."));
        }
        self.json()
    }

    /// The body as a JSON object; an empty body counts as `{}`.
    pub(crate) fn object_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, ApiProblem> {
        if self.0.trim_ascii().is_empty() { Ok(T::default()) } else { self.object() }
    }
}
