//! HTTP responses: the ingest status, or a problem document with a stable code and a sentence that says what to do (R-HOOK-3).

use crate::ingest::IngestResult;
use crate::signature::SignatureError;
use http::{Response, StatusCode, header};
use serde_json::json;

/// A request that is rejected, or cannot be served now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookProblem {
    pub status: StatusCode,
    /// Stable; programs may rely on it.
    pub code: &'static str,
    pub detail: String,
}

impl WebhookProblem {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into() }
    }

    pub(crate) fn not_found() -> Self {
        let detail = "unknown path: send webhooks to /webhook/github, /webhook/jenkins or /webhook/bot";
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", detail)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "send webhooks with POST")
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let detail = format!("the body is larger than {limit} bytes: the next sweep reads the same facts from GitHub");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", detail)
    }

    pub(crate) fn unauthorized(why: SignatureError) -> Self {
        let detail = format!("{why}: configure the same secret for the sender and for Suture");
        Self::new(StatusCode::UNAUTHORIZED, why.code(), detail)
    }

    pub(crate) fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    pub(crate) fn malformed(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "WEBHOOK_MALFORMED", why)
    }

    pub(crate) fn unavailable() -> Self {
        let detail = "the webhook could not be stored: redeliver it later";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "TEMPORARILY_UNAVAILABLE", detail)
    }

    pub(crate) fn response(&self) -> Response<String> {
        let title = self.status.canonical_reason().unwrap_or("Problem");
        let body = json!({
            "type": "about:blank", "title": title, "status": self.status.as_u16(), "code": self.code, "detail": self.detail
        });
        build(self.status, "application/problem+json", body.to_string())
    }
}

pub(crate) fn ingested(result: &IngestResult) -> Response<String> {
    let body = json!({"status": result.status.name(), "reason": result.reason});
    build(StatusCode::OK, "application/json", body.to_string())
}

fn build(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
