//! How requests leave, for the clients of GitHub, Jenkins and AWS alike: one transport that is either real HTTPS or any tower
//! service, a limit on time and size for every call, and errors named by what the caller can do about them. What the
//! requests say is in `github` and `jenkins`.

use std::error::Error as StdError;
use std::sync::OnceLock;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use domain::backoff::Failure;
use domain::event::cut;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use thiserror::Error;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// Any error of a transport.
pub type BoxError = Box<dyn StdError + Send + Sync>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are closed before the other side closes them: a request on a closing connection is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// No response that we ask for is larger. The rest of a larger one is not read.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Longest error message that is kept, in characters.
const MAX_MESSAGE: usize = 300;
/// GitHub's advice for a secondary rate limit that comes without a time.
const DEFAULT_RETRY_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Why a call failed, by what the caller can do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "`message` and `why` are what the other side said, in one line")]
pub enum CallError {
    /// What was asked about is not there, or not for us: do without it.
    #[error("not there: {message}")]
    Gone { message: String },
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

impl CallError {
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
    pub fn failure(&self) -> Failure {
        match self {
            Self::Unavailable { may_have_happened: true, .. } => Failure::TimedOut,
            Self::Unavailable { .. } => Failure::Unavailable,
            Self::RateLimited { .. } => Failure::Throttled,
            Self::Conflict { .. } => Failure::Contended,
            Self::Unauthorized { .. } | Self::Refused { status: 403, .. } => Failure::Forbidden,
            Self::Gone { .. } | Self::Refused { .. } | Self::Unreadable { .. } => Failure::Invalid,
        }
    }
}

impl From<serde_json::Error> for CallError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable { why: error.to_string() }
    }
}

/// A transport fails with this when nothing can have reached the other side.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not sent: {0}")]
pub struct NotSent(pub String);

/// An extension of a request: only this many bytes of the response's body are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeAtMost(pub usize);

/// Sends requests and returns whole responses: over HTTPS, or in process through any tower service.
#[derive(Debug, Clone)]
pub struct Transport(BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>);

impl Transport {
    /// Real HTTP, over TLS where the URL says so.
    ///
    /// # Errors
    /// When the machine has no root certificates.
    pub fn https() -> Result<Self, BoxError> {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .build(connector()?);
        Ok(Self::with_service(tower::service_fn(move |request: Request<Bytes>| {
            let client = client.clone();
            async move {
                let limit = request.extensions().get::<TakeAtMost>().map_or(MAX_BODY_BYTES, |limit| limit.0);
                let response = client.request(request.map(Full::new)).await.map_err(|error| -> BoxError {
                    let why = with_sources(&error);
                    if error.is_connect() { NotSent(why).into() } else { why.into() }
                })?;
                let (parts, mut body) = response.into_parts();
                let mut bytes = Vec::new();
                while bytes.len() < limit
                    && let Some(frame) = body.frame().await
                {
                    if let Ok(data) = frame?.into_data() {
                        bytes.extend_from_slice(&data[..data.len().min(limit - bytes.len())]);
                    }
                }
                Ok::<_, BoxError>(Response::from_parts(parts, bytes.into()))
            }
        })))
    }

    /// Any service: a simulated world, a recorder, a fault.
    pub fn with_service<S>(service: S) -> Self
    where
        S: Service<Request<Bytes>, Response = Response<Bytes>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        Self(BoxCloneSyncService::new(service.map_err(Into::into)))
    }

    pub fn into_service(self) -> BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError> {
        self.0
    }

    /// Sends one request and waits for the whole response, at most this long. After a failure a write may have happened, unless
    /// the transport says that it sent nothing.
    pub async fn send(&self, request: Request<Bytes>, limit: Duration) -> Result<Response<Bytes>, CallError> {
        let writes = !request.method().is_safe();
        let unavailable = |why, may_have_happened| CallError::Unavailable { why, may_have_happened };
        match tokio::time::timeout(limit, self.0.clone().oneshot(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let not_sent = sources(&*error).any(|error| error.is::<NotSent>());
                Err(unavailable(cut(&with_sources(&*error), MAX_MESSAGE), writes && !not_sent))
            }
            Err(_) => Err(unavailable(format!("no answer within {} s", limit.as_secs()), writes)),
        }
    }
}

/// The machine's root certificates are read once: several clients of one process need them.
fn connector() -> Result<HttpsConnector<HttpConnector>, BoxError> {
    static CONNECTOR: OnceLock<HttpsConnector<HttpConnector>> = OnceLock::new();
    if let Some(connector) = CONNECTOR.get() {
        return Ok(connector.clone());
    }
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let https = HttpsConnectorBuilder::new().with_native_roots()?.https_or_http().enable_http1().wrap_connector(tcp);
    Ok(CONNECTOR.get_or_init(|| https).clone())
}

/// The pauses before each repeat of a read: half a second, then twice as long each time.
pub fn backoff(repeats: usize) -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(500)).with_max_times(repeats).build()
}

/// An error and its sources.
pub fn sources<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

/// An error's text with that of its sources: HTTP clients' errors say nothing by themselves.
pub fn with_sources(error: &(dyn StdError + 'static)) -> String {
    sources(error).map(ToString::to_string).fold(String::new(), |text, source| match text {
        text if text.is_empty() => source,
        text if text.contains(&source) => text,
        text => format!("{text}: {source}"),
    })
}

/// What a response that is no success means.
pub fn refusal(response: &Response<Bytes>, now: Timestamp, writes: bool) -> CallError {
    let status = response.status();
    let message = message_of(response);
    if let Some(until) = limited_until(response, &message, now) {
        return CallError::RateLimited { until };
    }
    match status {
        StatusCode::UNAUTHORIZED => CallError::Unauthorized { message },
        StatusCode::NOT_FOUND | StatusCode::GONE => CallError::Gone { message },
        StatusCode::CONFLICT => CallError::Conflict { message },
        StatusCode::REQUEST_TIMEOUT => CallError::Unavailable { why: message, may_have_happened: writes },
        status if status.is_server_error() => {
            CallError::Unavailable { why: format!("{}: {message}", status.as_u16()), may_have_happened: writes }
        }
        status => CallError::Refused { status: status.as_u16(), message },
    }
}

/// Until when a rate limit holds, if this response reports one. GitHub's secondary limits are a 403 or 429 that may come with
/// thousands of requests remaining, with or without a time.
fn limited_until(response: &Response<Bytes>, message: &str, now: Timestamp) -> Option<Timestamp> {
    let number = |name: &str| response.headers().get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    let retry_after = number(header::RETRY_AFTER.as_str());
    let exhausted = number("x-ratelimit-remaining") == Some(0);
    let message = message.to_ascii_lowercase();
    let named = message.contains("rate limit") || message.contains("abuse detection");
    let limited = match response.status() {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN => retry_after.is_some() || exhausted || named,
        _ => false,
    };
    let later = |pause| now.saturating_add(pause).unwrap_or(Timestamp::MAX);
    let reset = || number("x-ratelimit-reset").and_then(|at| Timestamp::from_second(at).ok());
    limited.then(|| match retry_after {
        Some(secs) => later(SignedDuration::from_secs(secs.max(1))),
        None if exhausted => reset().filter(|at| *at > now).unwrap_or_else(|| later(DEFAULT_RETRY_AFTER)),
        None => later(DEFAULT_RETRY_AFTER),
    })
}

/// The error message of a response, in one line of bounded length: GitHub's JSON, or plain text.
fn message_of(response: &Response<Bytes>) -> String {
    /// `errors` holds texts or objects, by endpoint.
    #[derive(Deserialize)]
    struct GitHubError {
        message: String,
        #[serde(default)]
        errors: Vec<serde_json::Value>,
    }
    let body = response.body();
    let message = match serde_json::from_slice::<GitHubError>(body) {
        Ok(error) => {
            let details = error.errors.iter().filter_map(|one| one.as_str().or_else(|| one.get("message")?.as_str()));
            std::iter::once(error.message.as_str()).chain(details).collect::<Vec<_>>().join("; ")
        }
        Err(_) => {
            let text = String::from_utf8_lossy(&body[..body.len().min(4096)]);
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    };
    // HTML pages (Jenkins, proxies) say nothing in one line.
    if message.is_empty() || message.starts_with('<') {
        return response.status().canonical_reason().unwrap_or("no reason given").to_owned();
    }
    cut(&message, MAX_MESSAGE)
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
