//! Errors of calls to GitHub and Jenkins, grouped by what the caller can do, and the mapping from HTTP error responses to them.

use bytes::Bytes;
use domain::backoff::AttemptFailure;
use domain::event::truncate;
use domain::time::saturating_after;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use thiserror::Error;

/// Longest error message, in characters.
pub(crate) const MAX_MESSAGE: usize = 300;
/// GitHub's recommended wait for a secondary rate limit without a time.
const DEFAULT_RETRY_AFTER_SECS: i64 = 60;

/// Why a call failed. `message` and `why` are one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApiError {
    /// Missing, or not visible to Suture.
    #[error("not found: {message}")]
    NotFound { message: String },
    /// Permanent: a retry has the same result.
    #[error("refused ({status}): {message}")]
    Refused { status: u16, message: String },
    /// Conflicts with the current state: read it again, then decide again.
    #[error("conflict: {message}")]
    Conflict { message: String },
    /// No requests may be sent before `until`.
    #[error("rate limit: paused until {until}")]
    RateLimited { until: Timestamp },
    /// Refresh the credentials, or notify a user.
    #[error("credentials rejected: {message}")]
    Unauthorized { message: String },
    /// Server error, timeout or no connection: retry later. A write that may have happened is retried only after its probe.
    #[error("unavailable: {why}")]
    Unavailable { why: String, may_have_happened: bool },
    /// The response cannot be decoded; the request has been executed.
    #[error("invalid response: {why}")]
    Unreadable { why: String },
}

impl ApiError {
    /// Whether a retry may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether a write may have happened despite the error.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Unavailable { may_have_happened: true, .. } | Self::Unreadable { .. })
    }

    /// The end of the rate limit.
    pub fn until(&self) -> Option<Timestamp> {
        if let Self::RateLimited { until } = self { Some(*until) } else { None }
    }

    /// The kind of failure, for the backoff of the next attempt.
    pub fn failure(&self) -> AttemptFailure {
        match self {
            Self::Unavailable { may_have_happened: true, .. } => AttemptFailure::TimedOut,
            Self::Unavailable { .. } => AttemptFailure::Unavailable,
            Self::RateLimited { .. } => AttemptFailure::Throttled,
            Self::Conflict { .. } => AttemptFailure::Contended,
            Self::Unauthorized { .. } | Self::Refused { status: 403, .. } => AttemptFailure::Forbidden,
            Self::NotFound { .. } | Self::Refused { .. } | Self::Unreadable { .. } => AttemptFailure::Invalid,
        }
    }
}

impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable { why: error.to_string() }
    }
}

/// The error for an HTTP error response.
pub fn response_error(response: &Response<Bytes>, now: Timestamp, writes: bool) -> ApiError {
    let status = response.status();
    let message = error_message(response);
    if let Some(until) = rate_limited_until(response, &message, now) {
        return ApiError::RateLimited { until };
    }
    match status {
        StatusCode::UNAUTHORIZED => ApiError::Unauthorized { message },
        StatusCode::NOT_FOUND | StatusCode::GONE => ApiError::NotFound { message },
        StatusCode::CONFLICT => ApiError::Conflict { message },
        StatusCode::REQUEST_TIMEOUT => ApiError::Unavailable { why: message, may_have_happened: writes },
        status if status.is_server_error() => {
            ApiError::Unavailable { why: format!("{}: {message}", status.as_u16()), may_have_happened: writes }
        }
        status => ApiError::Refused { status: status.as_u16(), message },
    }
}

/// The end of the rate limit, if the response reports one. GitHub's secondary limits are a 403 or 429, possibly with thousands of
/// requests remaining, and with or without a time.
fn rate_limited_until(response: &Response<Bytes>, message: &str, now: Timestamp) -> Option<Timestamp> {
    let number = |name: &str| response.headers().get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    let retry_after = number("retry-after");
    let exhausted = number("x-ratelimit-remaining") == Some(0);
    let message = message.to_ascii_lowercase();
    let limited = match response.status() {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN if retry_after.is_some() || exhausted => true,
        StatusCode::FORBIDDEN => message.contains("rate limit") || message.contains("abuse detection"),
        _ => false,
    };
    let reset = number("x-ratelimit-reset").filter(|_| exhausted).map(|at| at.saturating_sub(now.as_second()));
    let secs = retry_after.map(|secs| secs.max(1)).or(reset.filter(|secs| *secs > 0));
    let pause = SignedDuration::from_secs(secs.unwrap_or(DEFAULT_RETRY_AFTER_SECS));
    limited.then(|| saturating_after(now, pause))
}

/// The error message of a response, in one line of bounded length: GitHub's JSON, or plain text.
fn error_message(response: &Response<Bytes>) -> String {
    let body = response.body();
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = if let Some(message) = json["message"].as_str() {
        // Depending on the endpoint, `errors` has strings or objects.
        let details = json["errors"].as_array().into_iter().flatten();
        let details = details.filter_map(|one| one.as_str().or_else(|| one["message"].as_str()));
        std::iter::once(message).chain(details).collect::<Vec<_>>().join("; ")
    } else {
        let text = String::from_utf8_lossy(&body[..body.len().min(4096)]);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // HTML pages of Jenkins and proxies contain no short message.
    if message.is_empty() || message.starts_with('<') {
        return response.status().canonical_reason().unwrap_or("no reason given").to_owned();
    }
    truncate(&message, MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_responses_map_to_api_errors() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let refused = |status: u16, headers: &[(&str, &str)], body: &str| {
            let response = headers.iter().fold(Response::builder(), |all, (name, value)| all.header(*name, *value));
            response_error(&response.status(status).body(Bytes::copy_from_slice(body.as_bytes())).unwrap(), now, true)
        };
        let listed = r#"{"message":"Validation Failed","errors":["head_sha",{"message":"exists"},{"code":"x"}]}"#;
        for (status, body, expected) in [
            (400, r#"{"message":"No"}"#, "refused (400): No"),
            (401, "{}", "credentials rejected: {}"),
            (403, r#"{"message":"Must be an admin"}"#, "refused (403): Must be an admin"),
            (404, "", "not found: Not Found"),
            (410, "", "not found: Gone"),
            (408, "", "unavailable: Request Timeout"),
            (409, "plain\n  words", "conflict: plain words"),
            (422, listed, "refused (422): Validation Failed; head_sha; exists"),
            (502, "<html><body>Oh no</body></html>", "unavailable: 502: Bad Gateway"),
        ] {
            let error = refused(status, &[("x-ratelimit-remaining", "4000")], body);
            assert_eq!(error.to_string(), expected);
            let transient = status == 408 || status == 502;
            assert_eq!((error.is_transient(), error.may_have_happened()), (transient, transient), "{status}");
        }
        let long = refused(422, &[], &"x".repeat(5000)).to_string();
        assert!(long.chars().count() <= MAX_MESSAGE + 20, "{long}");
        // Without a time, the default wait is one minute.
        let secondary = r#"{"message":"You have exceeded a secondary rate limit."}"#;
        let (left, none_left) = (("x-ratelimit-remaining", "4000"), ("x-ratelimit-remaining", "0"));
        let (reset, past) = (("x-ratelimit-reset", "1800000090"), ("x-ratelimit-reset", "1799999995"));
        for (status, headers, body, secs) in [
            (403, [("retry-after", "30"), left], "{}", Some(30)),
            (429, [("retry-after", "7"), reset], "{}", Some(7)),
            (429, [("retry-after", "0"), left], "{}", Some(1)),
            (403, [none_left, reset], "{}", Some(90)),
            (403, [none_left, past], "{}", Some(60)),
            (403, [left, reset], secondary, Some(60)),
            (429, [left, reset], "", Some(60)),
            (404, [none_left, reset], "{}", None),
        ] {
            let until = refused(status, &headers, body).until();
            assert_eq!(until.map(|until| until.duration_since(now).as_secs()), secs, "{status} {headers:?}");
        }
    }
}
