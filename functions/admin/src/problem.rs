//! Error responses: `application/problem+json` with a stable code for clients and one sentence that says what to do. Never
//! a stack trace, never a name outside the caller's scope.

use crate::idempotency::IdempotencyError;
use crate::query::AdminError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use platform::publish::dead_letters::DlqError;
use platform::store::StoreError;
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

/// An error response (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiProblem {
    /// Always `about:blank`; see `code`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The reason phrase of the status.
    pub title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// A stable code, such as `NOT_FOUND` or `COMMAND_NOT_POSSIBLE`.
    pub code: &'static str,
    /// One sentence that says what happened and what to do.
    pub detail: String,
    /// Seconds until a retry is useful, also in the header `Retry-After`.
    #[serde(skip)]
    pub retry_after_secs: Option<u64>,
    /// The internal cause, for the log only.
    #[serde(skip)]
    pub cause: Option<String>,
}

impl ApiProblem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            code,
            detail: detail.into(),
            retry_after_secs: None,
            cause: None,
        }
    }

    pub(crate) fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", "Unknown path. GET /api/openapi.json lists all paths.")
    }

    pub(crate) fn method_not_allowed() -> Self {
        let detail = "This path does not support the method. GET /api/openapi.json lists the methods.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", detail)
    }

    pub(crate) fn unauthorized() -> Self {
        let detail = "No valid key. Send `Authorization: Bearer <key>`; `cargo run -- new-key NAME ROLE` creates one.";
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", detail)
    }

    pub(crate) fn too_large(max: usize) -> Self {
        let detail = format!("The body is larger than {max} bytes. Send less at once.");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", detail)
    }

    pub(crate) fn unavailable(cause: impl std::fmt::Display) -> Self {
        let detail = "A service that Suture depends on is unavailable; nothing was changed. Retry in a few seconds.";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", detail);
        Self { retry_after_secs: Some(5), cause: Some(cause.to_string()), ..problem }
    }

    pub(crate) fn after(self, secs: u64) -> Self {
        Self { retry_after_secs: Some(secs), ..self }
    }
}

/// The text with a capital letter at its start and a full stop at its end.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let capitalised: String = chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default();
    if capitalised.ends_with(['.', '!', '?']) { capitalised } else { format!("{capitalised}.") }
}

/// The code of a write conflict with another request.
pub(crate) const CONTENDED: &str = "CONTENDED";

impl From<AdminError> for ApiProblem {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::NotFound(why) => Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", sentence(&why)),
            AdminError::Forbidden(why) => Self::new(StatusCode::FORBIDDEN, "FORBIDDEN", sentence(&why)),
            AdminError::Conflict { code, why } => Self::new(StatusCode::CONFLICT, code, sentence(&why)),
            AdminError::Invalid { code, why } => Self::bad_request(code, sentence(&why)),
            AdminError::TooMany(why) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS_TODAY", sentence(&why))
            }
            AdminError::Store(error) => error.into(),
            AdminError::Undelivered(error) => Self::unavailable(error),
        }
    }
}

impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TransactionConflict | StoreError::ConditionFailed(_) => {
                let detail = "Write conflict with another request. Retry in a second.";
                let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, CONTENDED, detail).after(1);
                Self { cause: Some(error.to_string()), ..problem }
            }
            StoreError::Throttled | StoreError::Unavailable(_) | StoreError::Corrupt(..) | StoreError::TooLarge(_) => {
                Self::unavailable(error)
            }
        }
    }
}

impl From<IdempotencyError> for ApiProblem {
    fn from(error: IdempotencyError) -> Self {
        match error {
            IdempotencyError::Store(error) => error.into(),
            IdempotencyError::Conflict | IdempotencyError::Exhausted { .. } | IdempotencyError::Expired => {
                Self::new(StatusCode::CONFLICT, error.code(), sentence(&error.to_string()))
            }
        }
    }
}

impl From<DlqError> for ApiProblem {
    fn from(error: DlqError) -> Self {
        match error {
            DlqError::None => Self::new(StatusCode::NOT_FOUND, "NO_DLQ", sentence(&error.to_string())),
            DlqError::Unavailable(_) => Self::unavailable(error),
        }
    }
}

/// The code and the cause of a problem, for the log line.
#[derive(Debug, Clone)]
pub(crate) struct ProblemCause {
    pub(crate) code: &'static str,
    pub(crate) cause: Option<String>,
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        if let Some(secs) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(ProblemCause { code: self.code, cause: self.cause });
        response
    }
}

/// The error responses that every authenticated route can return.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum CommonProblems {
    /// The request is malformed.
    #[response(status = 400, content_type = "application/problem+json")]
    BadRequest(ApiProblem),
    /// No valid key.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(ApiProblem),
    /// The key does not permit the request.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(ApiProblem),
    /// Not found, or not visible to this key.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(ApiProblem),
    /// Well formed, but not possible in the current state; `code` says why.
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(ApiProblem),
    /// The body is too large.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(ApiProblem),
    /// The rate limit of the key is reached; see `Retry-After`.
    #[response(status = 429, content_type = "application/problem+json")]
    TooMany(ApiProblem),
    /// A service that Suture depends on is unavailable; nothing was changed.
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(ApiProblem),
}
