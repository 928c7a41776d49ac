//! Why a call to GitHub, Jenkins or anything else over HTTP failed, by what the caller can do about it, and what a response that
//! is no success means in these terms.

use bytes::Bytes;
use domain::backoff::AttemptFailure;
use domain::event::truncate;
use domain::time::saturating_after;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use thiserror::Error;

/// Longest error message that is kept, in characters.
pub(crate) const MAX_MESSAGE: usize = 300;
/// GitHub's advice for a secondary rate limit that comes without a time.
const DEFAULT_RETRY_AFTER_SECS: i64 = 60;

/// Why a call failed, by what the caller can do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "`message` and `why` are what the other side said, in one line")]
pub enum ApiError {
    /// What was asked about is not there, or not for us: do without it.
    #[error("not there: {message}")]
    NotFound { message: String },
    /// Understood and refused: asking again changes nothing.
    #[error("refused ({status}): {message}")]
    Refused { status: u16, message: String },
    /// Something else is in the way right now: look again, then decide again.
    #[error("in conflict: {message}")]
    Conflict { message: String },
    /// Too many requests: nothing may be asked before this time.
    #[error("rate limit reached, until {until}")]
    RateLimited { until: Timestamp },
    /// The credentials are not accepted: read them again, or tell a person.
    #[error("credentials not accepted: {message}")]
    Unauthorized { message: String },
    /// Broken, silent or not to be reached: try again later. A write that may have happened all the same is not repeated before
    /// its probe was asked.
    #[error("unavailable: {why}")]
    Unavailable { why: String, may_have_happened: bool },
    /// The response is not what the protocol promises. What was asked for has been done.
    #[error("answer not understood: {why}")]
    Unreadable { why: String },
}

impl ApiError {
    /// Whether the same call may succeed a moment later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether a write may have happened although no good response came.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Unavailable { may_have_happened: true, .. } | Self::Unreadable { .. })
    }

    /// Until when a rate limit holds.
    #[must_use]
    pub fn until(&self) -> Option<Timestamp> {
        if let Self::RateLimited { until } = self { Some(*until) } else { None }
    }

    /// What the next attempt of a remedy needs to know of it.
    #[must_use]
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

/// What a response that is no success means.
pub fn refusal(response: &Response<Bytes>, now: Timestamp, writes: bool) -> ApiError {
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

/// Until when a rate limit holds, if this response reports one. GitHub's secondary limits are a 403 or 429 that may come with
/// thousands of requests remaining, with or without a time.
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
        // `errors` holds texts or objects, by endpoint.
        let details = json["errors"].as_array().into_iter().flatten();
        let details = details.filter_map(|one| one.as_str().or_else(|| one["message"].as_str()));
        std::iter::once(message).chain(details).collect::<Vec<_>>().join("; ")
    } else {
        let text = String::from_utf8_lossy(&body[..body.len().min(4096)]);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // HTML pages (Jenkins, proxies) say nothing in one line.
    if message.is_empty() || message.starts_with('<') {
        return response.status().canonical_reason().unwrap_or("no reason given").to_owned();
    }
    truncate(&message, MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_response_becomes_what_the_caller_can_do_about_it() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let refused = |status: u16, headers: &[(&str, &str)], body: &str| {
            let response = headers.iter().fold(Response::builder(), |all, (name, value)| all.header(*name, *value));
            refusal(&response.status(status).body(Bytes::copy_from_slice(body.as_bytes())).unwrap(), now, true)
        };
        let listed = r#"{"message":"Validation Failed","errors":["head_sha",{"message":"exists"},{"code":"x"}]}"#;
        for (status, body, expected) in [
            (400, r#"{"message":"No"}"#, "refused (400): No"),
            (401, "{}", "credentials not accepted: {}"),
            (403, r#"{"message":"Must be an admin"}"#, "refused (403): Must be an admin"),
            (404, "", "not there: Not Found"),
            (410, "", "not there: Gone"),
            (408, "", "unavailable: Request Timeout"),
            (409, "plain\n  words", "in conflict: plain words"),
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
        // Thousands of requests remaining, and no time: GitHub's advice is a minute.
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
