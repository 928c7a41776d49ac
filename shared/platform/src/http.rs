//! How requests leave, for the clients of GitHub, Jenkins and AWS alike: one transport that is either real HTTPS or any tower
//! service, a limit on time and size for every call, and errors named by what the caller can do about them. What the
//! requests say is in `github` and `jenkins`.

use std::sync::OnceLock;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use domain::backoff::Failure;
use domain::event::cut;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use thiserror::Error;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// Whatever went wrong below the protocol.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection that is not there after this long will not come.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Idle connections are closed before the other side would do it, since a request on a closing one is lost.
const IDLE_FOR: Duration = Duration::from_secs(20);
/// Larger answers are refused: nothing we ask for needs more.
const MOST_BYTES: usize = 16 << 20;
/// Longest message of the other side that is kept, in characters.
const MAX_MESSAGE: usize = 300;
/// GitHub's advice when a secondary limit comes without a time.
const UNTOLD_PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// Why a call did not do what it should, by what the caller can do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CallError {
    /// What was asked about is not there, or not for us: do without it.
    #[error("not there: {message}")]
    Gone {
        /// What the other side said.
        message: String,
    },
    /// Understood and refused: asking again changes nothing.
    #[error("refused ({status}): {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the other side said.
        message: String,
    },
    /// Something else is in the way right now: look again, then decide again.
    #[error("in conflict: {message}")]
    Conflict {
        /// What the other side said.
        message: String,
    },
    /// Too many requests: nothing may be asked before this time.
    #[error("rate limit reached, until {until}")]
    RateLimited {
        /// From when on it may be asked again.
        until: Timestamp,
    },
    /// The credentials are not accepted: read them again, or tell a person.
    #[error("credentials not accepted: {message}")]
    Unauthorized {
        /// What the other side said.
        message: String,
    },
    /// Broken, silent or not to be reached: try again later.
    #[error("unavailable: {why}")]
    Unavailable {
        /// What was seen of it.
        why: String,
        /// Whether a write may have happened all the same: ask the probe before repeating it.
        may_have_happened: bool,
    },
    /// The answer is not what the protocol promises. What was asked for has been done.
    #[error("answer not understood: {why}")]
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
}

impl CallError {
    /// Whether the same call may succeed a moment later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Gone { .. }
            | Self::Refused { .. }
            | Self::Conflict { .. }
            | Self::RateLimited { .. }
            | Self::Unauthorized { .. }
            | Self::Unreadable { .. } => false,
        }
    }

    /// Whether what was asked for may have been done although no good answer came.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Unavailable { may_have_happened, .. } => *may_have_happened,
            Self::Unreadable { .. } => true,
            Self::Gone { .. }
            | Self::Refused { .. }
            | Self::Conflict { .. }
            | Self::RateLimited { .. }
            | Self::Unauthorized { .. } => false,
        }
    }

    /// Not to be asked again before this time.
    #[must_use]
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::RateLimited { until } => Some(*until),
            Self::Gone { .. }
            | Self::Refused { .. }
            | Self::Conflict { .. }
            | Self::Unauthorized { .. }
            | Self::Unavailable { .. }
            | Self::Unreadable { .. } => None,
        }
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

    pub fn unreadable(error: &serde_json::Error) -> Self {
        Self::Unreadable { why: error.to_string() }
    }
}

/// A transport says this when nothing can have reached the other side.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not sent: {0}")]
pub struct NotSent(pub String);

/// Put into a request's extensions: of the answer's body only this much is wanted, and the rest may stay where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeAtMost(pub usize);

/// Where requests leave and answers come back, whole.
#[derive(Debug, Clone)]
pub struct Transport(BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>);

impl Transport {
    /// Real HTTP, over TLS where the address says so.
    ///
    /// # Errors
    /// When the machine has no root certificates.
    pub fn https() -> Result<Self, BoxError> {
        let connector = connector()?;
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self::with_service(tower::service_fn(move |request: Request<Bytes>| {
            let client = client.clone();
            async move {
                let wanted = request.extensions().get::<TakeAtMost>().copied();
                let response = client.request(request.map(Full::new)).await.map_err(|error| -> BoxError {
                    if error.is_connect() { NotSent(chain(&error)).into() } else { chain(&error).into() }
                })?;
                let (parts, body) = response.into_parts();
                let body = match wanted {
                    Some(TakeAtMost(most)) => beginning(body, most).await?,
                    None => Limited::new(body, MOST_BYTES).collect().await?.to_bytes(),
                };
                Ok::<_, BoxError>(Response::from_parts(parts, body))
            }
        })))
    }

    /// Any service: the simulated world, a recorder, a fault.
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

    /// Sends one request and waits for the whole answer, at most this long.
    pub async fn send(&self, request: Request<Bytes>, limit: Duration) -> Result<Response<Bytes>, CallError> {
        let writes = writes(request.method());
        match tokio::time::timeout(limit, self.0.clone().oneshot(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(lost(&*error, writes)),
            Err(_) => Err(silent(limit, writes)),
        }
    }
}

/// How connections are made. The machine's root certificates are read once: several clients of one process need them.
fn connector() -> Result<HttpsConnector<HttpConnector>, BoxError> {
    static MADE: OnceLock<HttpsConnector<HttpConnector>> = OnceLock::new();
    if let Some(made) = MADE.get() {
        return Ok(made.clone());
    }
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_WITHIN));
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let https = HttpsConnectorBuilder::new().with_native_roots()?.https_or_http().enable_http1().wrap_connector(tcp);
    Ok(MADE.get_or_init(|| https).clone())
}

/// The first bytes of a body.
async fn beginning<B>(mut body: B, most: usize) -> Result<Bytes, BoxError>
where
    B: http_body_util::BodyExt<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let mut read = Vec::new();
    while read.len() < most
        && let Some(frame) = body.frame().await
    {
        if let Ok(data) = frame.map_err(Into::into)?.into_data() {
            read.extend_from_slice(&data[..data.len().min(most - read.len())]);
        }
    }
    Ok(read.into())
}

/// The pauses before each repeat of a read: the first, then twice as long each time.
pub fn pauses(first: Duration, repeats: usize) -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::new().with_min_delay(first).with_max_times(repeats).build()
}

/// Whether a request of this method changes anything over there.
pub fn writes(method: &http::Method) -> bool {
    !method.is_safe()
}

/// No answer came back. Only a transport that says it sent nothing is believed that nothing happened.
pub fn lost(error: &(dyn std::error::Error + 'static), writes: bool) -> CallError {
    let mut sources = std::iter::successors(Some(error), |error| error.source());
    let not_sent = sources.any(|error| error.is::<NotSent>());
    CallError::Unavailable { why: cut(&chain(error), MAX_MESSAGE), may_have_happened: writes && !not_sent }
}

/// No answer came back in time.
pub fn silent(limit: Duration, writes: bool) -> CallError {
    CallError::Unavailable { why: format!("no answer within {} s", limit.as_secs()), may_have_happened: writes }
}

/// An error with its causes: those of HTTP clients say nothing on the surface.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        source = error.source();
    }
    text
}

/// What an answer that is no success means.
pub fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp, writes: bool) -> CallError {
    let message = message_of(status, body);
    if let Some(until) = limited_until(status, headers, &message, now) {
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

/// Until when a limit holds, if this answer speaks of one. A secondary limit of GitHub is a 403 or 429 that may come with
/// thousands of requests remaining, with or without a time.
fn limited_until(status: StatusCode, headers: &HeaderMap, message: &str, now: Timestamp) -> Option<Timestamp> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    let retry_after = number(header::RETRY_AFTER.as_str());
    let exhausted = number("x-ratelimit-remaining") == Some(0);
    let spoken = message.to_ascii_lowercase();
    let named = spoken.contains("rate limit") || spoken.contains("abuse detection");
    let limited = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN => retry_after.is_some() || exhausted || named,
        _ => false,
    };
    let later = |pause| now.saturating_add(pause).unwrap_or(Timestamp::MAX);
    let reset = || number("x-ratelimit-reset").and_then(|at| Timestamp::from_second(at).ok());
    limited.then(|| match retry_after {
        Some(secs) => later(SignedDuration::from_secs(secs.max(1))),
        None if exhausted => reset().filter(|at| *at > now).unwrap_or_else(|| later(UNTOLD_PAUSE)),
        None => later(UNTOLD_PAUSE),
    })
}

/// GitHub's error shape. `errors` holds texts or objects, by endpoint.
#[derive(Deserialize)]
struct Complaint {
    message: Option<String>,
    #[serde(default)]
    errors: Vec<serde_json::Value>,
}

/// What the other side said, in one line of bounded length.
fn message_of(status: StatusCode, body: &[u8]) -> String {
    let plain = || {
        let text = String::from_utf8_lossy(&body[..body.len().min(4096)]).into_owned();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // Pages for people (Jenkins) and proxies' apologies say nothing in one line.
        if text.is_empty() || text.starts_with('<') {
            status.canonical_reason().unwrap_or("no reason given").to_owned()
        } else {
            text
        }
    };
    let complaint = serde_json::from_slice::<Complaint>(body).ok();
    let Some(Complaint { message: Some(message), errors }) = complaint else {
        return cut(&plain(), MAX_MESSAGE);
    };
    let details = errors.iter().filter_map(|error| error.as_str().or_else(|| error.get("message")?.as_str()));
    let whole = std::iter::once(message.as_str()).chain(details).collect::<Vec<_>>().join("; ");
    cut(&whole, MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn said(status: u16, headers: &[(&'static str, &str)], body: &str, writes: bool) -> CallError {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        refusal(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes(), now(), writes)
    }

    #[test]
    fn a_refusal_is_named_by_what_can_be_done_about_it() {
        let text = |text: &str| text.to_owned();
        let no = r#"{"message":"No"}"#;
        for (status, writes, expected) in [
            (400, false, CallError::Refused { status: 400, message: text("No") }),
            (401, true, CallError::Unauthorized { message: text("No") }),
            (403, true, CallError::Refused { status: 403, message: text("No") }),
            (404, true, CallError::Gone { message: text("No") }),
            (410, false, CallError::Gone { message: text("No") }),
            (408, true, CallError::Unavailable { why: text("No"), may_have_happened: true }),
            (409, true, CallError::Conflict { message: text("No") }),
            (422, true, CallError::Refused { status: 422, message: text("No") }),
            (500, false, CallError::Unavailable { why: text("500: No"), may_have_happened: false }),
            (502, true, CallError::Unavailable { why: text("502: No"), may_have_happened: true }),
        ] {
            let error = said(status, &[], no, writes);
            assert_eq!(error, expected);
            assert_eq!(error.is_transient(), status >= 500 || status == 408, "{status}");
            assert_eq!(error.may_have_happened(), writes && error.is_transient(), "{status}");
        }
    }

    #[test]
    fn a_limit_says_until_when_with_or_without_a_time() {
        let secs = |secs| now() + SignedDuration::from_secs(secs);
        let reset = secs(90).as_second().to_string();
        let past = secs(-5).as_second().to_string();
        let secondary = r#"{"message":"You have exceeded a secondary rate limit."}"#;
        for (status, headers, body, until) in [
            (403, vec![("retry-after", "30")], "{}", 30),
            (429, vec![("retry-after", "7"), ("x-ratelimit-reset", &reset)], "{}", 7),
            (429, vec![("retry-after", "0")], "{}", 1),
            (403, vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &reset)], "{}", 90),
            (403, vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &past)], "{}", 60),
            // Thousands remaining, and no time: GitHub's advice is a minute.
            (403, vec![("x-ratelimit-remaining", "4000"), ("x-ratelimit-reset", &reset)], secondary, 60),
            (429, vec![], "", 60),
        ] {
            let error = said(status, &headers, body, true);
            assert_eq!(error, CallError::RateLimited { until: secs(until) }, "{status} {headers:?}");
            assert_eq!((error.until(), error.may_have_happened()), (Some(secs(until)), false));
        }
        let plain = said(403, &[("x-ratelimit-remaining", "4000")], r#"{"message":"Must have admin rights"}"#, false);
        assert_eq!(plain.until(), None);
        // A 404 with nothing remaining is still a 404.
        assert_eq!(said(404, &[("x-ratelimit-remaining", "0")], "{}", false).until(), None);
    }

    #[test]
    fn what_was_said_is_one_line_of_bounded_length() {
        let message = |body: &str| {
            let CallError::Refused { message, .. } = said(422, &[], body, false) else { panic!("not refused: {body}") };
            message
        };
        let listed = r#"{"message":"Validation Failed","errors":["head_sha",{"message":"exists"},{"code":"x"}]}"#;
        assert_eq!(message(listed), "Validation Failed; head_sha; exists");
        assert_eq!(message("plain\n  words"), "plain words");
        assert_eq!(message("<html><body>Oh no</body></html>"), "Unprocessable Entity");
        assert_eq!(message(""), "Unprocessable Entity");
        assert_eq!(message(&"x".repeat(5000)).chars().count(), MAX_MESSAGE);
    }

    #[tokio::test]
    async fn only_who_says_that_nothing_was_sent_is_believed() {
        let send = async |error: BoxError, method: &str| {
            let text = error.to_string();
            let not_sent = error.is::<NotSent>();
            let transport = Transport::with_service(tower::service_fn(move |_: Request<Bytes>| {
                let error: BoxError = if not_sent { NotSent(text.clone()).into() } else { text.clone().into() };
                async move { Err::<Response<Bytes>, BoxError>(error) }
            }));
            let request = Request::builder().method(method).uri("/").body(Bytes::new()).unwrap();
            transport.send(request, Duration::from_secs(5)).await.unwrap_err()
        };
        assert!(send("reset".into(), "POST").await.may_have_happened());
        assert!(!send("reset".into(), "GET").await.may_have_happened());
        let refused = send(NotSent("refused".into()).into(), "POST").await;
        assert!(refused.is_transient() && !refused.may_have_happened(), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends() {
        let transport = Transport::with_service(tower::service_fn(|_: Request<Bytes>| {
            std::future::pending::<Result<Response<Bytes>, BoxError>>()
        }));
        let request = Request::builder().method("POST").uri("/").body(Bytes::new()).unwrap();
        let error = transport.send(request, Duration::from_secs(9)).await.unwrap_err();
        assert_eq!(error.to_string(), "unavailable: no answer within 9 s");
        assert!(error.may_have_happened());
    }
}
