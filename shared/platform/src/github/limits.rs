//! The tower service below octocrab, with what octocrab lacks: it waits for rate limits that all functions share, starts writes
//! one second apart, repeats reads and never writes, ends each call in time, and reads conditionally. What is no success leaves
//! it as a [`CallError`], so octocrab never sees one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use octocrab::OctoBody;
use tokio::sync::Semaphore;
use tracing::debug;

use super::client::Settings;
use crate::clock::Clock;
use crate::http::{BoxError, CallError, Transport, backoff, refusal};

/// A renamed repository redirects to its new address, a transferred one perhaps twice.
const MAX_REDIRECTS: usize = 2;
/// GitHub gives up on a GraphQL query after ten seconds.
const QUERY_LIMIT: Duration = Duration::from_secs(15);
/// GitHub's advice for the time between two writes.
const WRITES_APART: Duration = Duration::from_secs(1);
const MAX_CACHED_BYTES: usize = 64 * 1024;
const MAX_CACHED: usize = 512;

/// What is left of one of GitHub's hourly rate limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests (or points) per hour.
    pub limit: u32,
    /// How many are left.
    pub remaining: u32,
    /// When all are there again.
    pub resets_at: Timestamp,
}

/// GitHub's last word on its rate limits: REST and GraphQL have one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    pub rest: Option<Rate>,
    pub graphql: Option<Rate>,
}

/// What a request does: an extension of the request, where its method and path do not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads, or fetches an installation token, which changes nothing either.
    Read,
    /// A GraphQL query: a POST that reads.
    Query {
        repeat: bool,
    },
    Write,
}

impl Kind {
    fn of(request: &Request<Bytes>) -> Self {
        let reads = request.method().is_safe() || request.uri().path().ends_with("/access_tokens");
        request.extensions().get().copied().unwrap_or(if reads { Self::Read } else { Self::Write })
    }
}

#[derive(Debug, Default)]
struct State {
    rates: Rates,
    not_before: Option<Timestamp>,
    next_write: Option<Timestamp>,
    /// Responses that have an ETag, by URL and token.
    cache: HashMap<(Uri, Option<HeaderValue>), Response<Bytes>>,
}

/// See the module. One for all clones of a client, whatever its credentials.
#[derive(Debug)]
pub(super) struct Limiter {
    pub(super) settings: Settings,
    pub(super) clock: Arc<dyn Clock>,
    transport: Transport,
    slots: Semaphore,
    state: Mutex<State>,
}

impl Limiter {
    pub(super) fn new(settings: Settings, transport: Transport, clock: Arc<dyn Clock>) -> Self {
        let slots = Semaphore::new(settings.concurrency.max(1));
        Self { settings, clock, transport, slots, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic here left plain values behind; the worst is one request too many.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn rates(&self) -> Rates {
        self.state().rates
    }

    /// Sends nothing before this time.
    pub(super) fn hold(&self, until: Timestamp) {
        let mut state = self.state();
        state.not_before = state.not_before.max(Some(until));
    }

    /// Until when nothing is sent, if that is still to come.
    pub(super) fn not_before(&self) -> Option<Timestamp> {
        let now = self.clock.now();
        self.state().not_before.filter(|until| *until > now)
    }

    fn check_hold(&self) -> Result<(), CallError> {
        self.not_before().map_or(Ok(()), |until| Err(CallError::RateLimited { until }))
    }

    pub(super) async fn call(self: Arc<Self>, request: Request<OctoBody>) -> Result<Response<Full<Bytes>>, BoxError> {
        let (parts, body) = request.into_parts();
        let request = Request::from_parts(parts, body.collect().await?.to_bytes());
        let kind = Kind::of(&request);
        let repeats = match kind {
            Kind::Read | Kind::Query { repeat: true } => self.settings.repeats,
            Kind::Write | Kind::Query { repeat: false } => 0,
        };
        let mut pauses = backoff(repeats);
        loop {
            let result = self.send(&request, kind).await;
            let transient = result.as_ref().is_err_and(CallError::is_transient);
            match pauses.next().filter(|_| transient) {
                Some(pause) => self.clock.sleep(pause).await,
                None => return Ok(result?.map(Full::new)),
            }
        }
    }

    /// Sends a request once, when that is allowed, and follows redirects.
    async fn send(&self, request: &Request<Bytes>, kind: Kind) -> Result<Response<Bytes>, CallError> {
        self.check_hold()?;
        if kind == Kind::Write {
            self.wait_to_write().await?;
        }
        let closed = |_| CallError::Unavailable { why: "client closed".into(), may_have_happened: false };
        let _slot = self.slots.acquire().await.map_err(closed)?;
        let mut request = request.clone();
        let mut response = self.exchange(&request, kind).await?;
        for _ in 0..MAX_REDIRECTS {
            let Some(uri) = redirect(&response, request.uri()) else { break };
            *request.uri_mut() = uri;
            response = self.exchange(&request, kind).await?;
        }
        if response.status().is_success() {
            return Ok(response);
        }
        let error = refusal(&response, self.clock.now(), kind == Kind::Write);
        if let Some(until) = error.until() {
            self.hold(until);
        }
        Err(error)
    }

    async fn wait_to_write(&self) -> Result<(), CallError> {
        let now = self.clock.now();
        let at = {
            let mut state = self.state();
            let at = state.next_write.map_or(now, |next| next.max(now));
            state.next_write = at.checked_add(WRITES_APART).ok();
            at
        };
        if at > now {
            self.clock.sleep(at.duration_since(now).unsigned_abs()).await;
        }
        self.check_hold()
    }

    /// One request and its response; for a response that has not changed, the one from the cache.
    async fn exchange(&self, request: &Request<Bytes>, kind: Kind) -> Result<Response<Bytes>, CallError> {
        let mut request = request.clone();
        let method = request.method().clone();
        let key = (request.uri().clone(), request.headers().get(header::AUTHORIZATION).cloned());
        let cached = self.state().cache.get(&key).filter(|_| method == Method::GET).cloned();
        if let Some(etag) = cached.as_ref().and_then(|cached| cached.headers().get(header::ETAG)) {
            request.headers_mut().insert(header::IF_NONE_MATCH, etag.clone());
        }
        let limit = match kind {
            Kind::Query { .. } => QUERY_LIMIT,
            Kind::Read | Kind::Write => self.settings.call_limit,
        };
        let response = self.transport.send(request, limit).await.map_err(|mut error| {
            // Not every POST writes.
            if let CallError::Unavailable { may_have_happened, .. } = &mut error {
                *may_have_happened &= kind == Kind::Write;
            }
            error
        })?;
        debug!(%method, path = key.0.path(), status = response.status().as_u16(), "GitHub answered");
        let mut state = self.state();
        state.note_rate(response.headers());
        match cached.filter(|_| response.status() == StatusCode::NOT_MODIFIED) {
            Some(cached) => return Ok(cached),
            None if method == Method::GET && response.status() == StatusCode::OK => state.cache(key, &response),
            None => {}
        }
        Ok(response)
    }
}

impl State {
    fn note_rate(&mut self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let number = |name: &str| text(name)?.parse::<u32>().ok();
        let resets_at = text("x-ratelimit-reset").and_then(|secs| Timestamp::from_second(secs.parse().ok()?).ok());
        let (Some(limit), Some(remaining), Some(resets_at)) =
            (number("x-ratelimit-limit"), number("x-ratelimit-remaining"), resets_at)
        else {
            return;
        };
        let rate = Some(Rate { limit, remaining, resets_at });
        match text("x-ratelimit-resource") {
            Some("graphql") => self.rates.graphql = rate,
            Some("core") | None => self.rates.rest = rate,
            // Search and the like have their own; nothing here uses them.
            Some(_) => {}
        }
    }

    /// Keeps a small response with an ETag. An App's JWT is another with each request, so what it read is not found again.
    fn cache(&mut self, key: (Uri, Option<HeaderValue>), response: &Response<Bytes>) {
        let jwt = key.1.as_ref().is_some_and(|token| token.as_bytes().starts_with(b"Bearer ey"));
        if jwt || response.body().len() > MAX_CACHED_BYTES || !response.headers().contains_key(header::ETAG) {
            return;
        }
        if self.cache.len() >= MAX_CACHED {
            self.cache.clear();
        }
        self.cache.insert(key, response.clone());
    }
}

/// The new address of what was asked about. Only its path counts: nothing is ever sent to another host.
fn redirect(response: &Response<Bytes>, from: &Uri) -> Option<Uri> {
    let redirected = matches!(response.status().as_u16(), 301 | 302 | 307 | 308);
    let location: Uri = response.headers().get(header::LOCATION).filter(|_| redirected)?.to_str().ok()?.parse().ok()?;
    let mut parts = from.clone().into_parts();
    parts.path_and_query = location.into_parts().path_and_query;
    Uri::from_parts(parts).ok().filter(|to| to != from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_and_graphql_have_a_rate_limit_each() {
        let mut state = State::default();
        for (resource, remaining) in [("core", "4999"), ("graphql", "7"), ("search", "1")] {
            let values = [("limit", "5000"), ("reset", "1800000000"), ("remaining", remaining), ("resource", resource)];
            let header =
                |(name, value): (&str, &str)| (format!("x-ratelimit-{name}").parse().unwrap(), value.parse().unwrap());
            state.note_rate(&values.into_iter().map(header).collect());
        }
        let resets_at = Timestamp::from_second(1_800_000_000).unwrap();
        let rate = |remaining| Some(Rate { limit: 5000, remaining, resets_at });
        assert_eq!(state.rates, Rates { rest: rate(4999), graphql: rate(7) });
    }

    #[test]
    fn a_hold_is_never_shortened() {
        let transport =
            Transport::with_service(tower::service_fn(|_| async { Ok::<_, BoxError>(Response::new(Bytes::new())) }));
        let limiter = Limiter::new(Settings::default(), transport, Arc::new(crate::clock::SystemClock));
        let at = |secs: i64| Timestamp::now() + jiff::SignedDuration::from_secs(secs);
        let (near, far) = (at(1_000), at(2_000));
        assert_eq!(limiter.not_before(), None);
        limiter.hold(far);
        limiter.hold(near);
        assert_eq!(limiter.not_before(), Some(far));
    }

    #[test]
    fn only_small_responses_with_an_etag_are_cached() {
        let mut state = State::default();
        let key = |path: &'static str| (Uri::from_static(path), None);
        let response = |etag: Option<&'static str>, bytes: usize| {
            let mut response = Response::new(Bytes::from(vec![b' '; bytes]));
            if let Some(etag) = etag {
                response.headers_mut().insert(header::ETAG, HeaderValue::from_static(etag));
            }
            response
        };
        state.cache(key("/small"), &response(Some("tag"), MAX_CACHED_BYTES));
        state.cache(key("/large"), &response(Some("tag"), MAX_CACHED_BYTES + 1));
        state.cache(key("/untagged"), &response(None, 2));
        assert_eq!(state.cache.keys().map(|(url, _)| url.path()).collect::<Vec<_>>(), ["/small"]);
    }
}
