//! The tower service below octocrab, with what octocrab lacks: it waits for rate limits that all functions share, starts writes
//! one second apart, repeats reads and never writes, ends each call in time, and reads conditionally. What is no success leaves
//! it as a [`ApiError`], so octocrab never sees one.

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

use super::client::GitHubSettings;
use crate::api_error::{ApiError, refusal};
use crate::clock::Clock;
use crate::transport::{BoxError, Transport, backoff};

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
pub struct RateLimit {
    /// Requests (or points) per hour.
    pub limit: u32,
    /// How many are left.
    pub remaining: u32,
    /// When all are there again.
    pub resets_at: Timestamp,
}

/// GitHub's last word on its rate limits: REST and GraphQL have one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimits {
    pub rest: Option<RateLimit>,
    pub graphql: Option<RateLimit>,
}

/// An extension of a request: a GraphQL query, a POST that reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query {
    pub(super) repeat: bool,
}

#[derive(Debug, Default)]
pub(super) struct LimiterState {
    pub(super) rates: RateLimits,
    not_before: Option<Timestamp>,
    next_write: Option<Timestamp>,
    /// Responses that have an ETag, by URL and token.
    cache: HashMap<(Uri, Option<HeaderValue>), Response<Bytes>>,
}

/// See the module. One for all clones of a client, whatever its credentials.
#[derive(Debug)]
pub(super) struct RateLimiter {
    pub(super) settings: GitHubSettings,
    pub(super) clock: Arc<dyn Clock>,
    transport: Transport,
    slots: Semaphore,
    state: Mutex<LimiterState>,
}

impl RateLimiter {
    pub(super) fn new(settings: GitHubSettings, transport: Transport, clock: Arc<dyn Clock>) -> Self {
        let slots = Semaphore::new(settings.concurrency.max(1));
        Self { settings, clock, transport, slots, state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LimiterState> {
        // A panic here left plain values behind; the worst is one request too many.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn check_hold(&self) -> Result<(), ApiError> {
        self.not_before().map_or(Ok(()), |until| Err(ApiError::RateLimited { until }))
    }

    pub(super) async fn call(self: Arc<Self>, request: Request<OctoBody>) -> Result<Response<Full<Bytes>>, BoxError> {
        let (parts, body) = request.into_parts();
        let request = Request::from_parts(parts, body.collect().await?.to_bytes());
        let query = request.extensions().get::<Query>();
        // Fetching an installation token changes nothing either.
        let reads = query.is_some() || request.method().is_safe() || request.uri().path().ends_with("/access_tokens");
        let repeats = if reads && query.is_none_or(|query| query.repeat) { self.settings.repeats } else { 0 };
        let limit = query.map_or(self.settings.call_limit, |_| QUERY_LIMIT);
        if !reads {
            self.check_hold()?;
            let pause = self.state().pause_before_write(self.clock.now());
            if !pause.is_zero() {
                self.clock.sleep(pause).await;
            }
        }
        let mut pauses = backoff(repeats);
        loop {
            let mut result = self.send(request.clone(), limit).await;
            if let Err(ApiError::Unavailable { may_have_happened, .. }) = &mut result {
                *may_have_happened &= !reads;
                if let Some(pause) = pauses.next() {
                    self.clock.sleep(pause).await;
                    continue;
                }
            }
            return Ok(result?.map(Full::new));
        }
    }

    /// Sends a request once, when that is allowed, and follows redirects.
    async fn send(&self, mut request: Request<Bytes>, limit: Duration) -> Result<Response<Bytes>, ApiError> {
        self.check_hold()?;
        let _slot = self.slots.acquire().await;
        let mut response = self.exchange(&request, limit).await?;
        for _ in 0..MAX_REDIRECTS {
            let Some(uri) = redirect(&response, request.uri()) else { break };
            *request.uri_mut() = uri;
            response = self.exchange(&request, limit).await?;
        }
        if response.status().is_success() {
            return Ok(response);
        }
        let error = refusal(&response, self.clock.now(), !request.method().is_safe());
        if let Some(until) = error.until() {
            self.hold(until);
        }
        Err(error)
    }

    /// One request and its response; for a response that has not changed, the one from the cache.
    async fn exchange(&self, request: &Request<Bytes>, limit: Duration) -> Result<Response<Bytes>, ApiError> {
        let (mut request, method) = (request.clone(), request.method().clone());
        let key = (request.uri().clone(), request.headers().get(header::AUTHORIZATION).cloned());
        let cached = self.state().cache.get(&key).filter(|_| method == Method::GET).cloned();
        if let Some(etag) = cached.as_ref().and_then(|cached| cached.headers().get(header::ETAG)) {
            request.headers_mut().insert(header::IF_NONE_MATCH, etag.clone());
        }
        let response = self.transport.send(request, limit).await?;
        debug!(%method, path = key.0.path(), status = response.status().as_u16(), "GitHub answered");
        let mut state = self.state();
        state.note_rate(response.headers());
        if method == Method::GET && response.status() == StatusCode::OK {
            state.cache(key, &response);
        }
        Ok(cached.filter(|_| response.status() == StatusCode::NOT_MODIFIED).unwrap_or(response))
    }
}

impl LimiterState {
    fn pause_before_write(&mut self, now: Timestamp) -> Duration {
        let at = self.next_write.unwrap_or(now).max(now);
        self.next_write = at.checked_add(WRITES_APART).ok();
        at.duration_since(now).unsigned_abs()
    }

    fn note_rate(&mut self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let number = |name: &str| text(name)?.parse::<u32>().ok();
        let resets_at = text("x-ratelimit-reset").and_then(|secs| Timestamp::from_second(secs.parse().ok()?).ok());
        let rates = (number("x-ratelimit-limit"), number("x-ratelimit-remaining"), resets_at);
        let (Some(limit), Some(remaining), Some(resets_at)) = rates else { return };
        let rate = Some(RateLimit { limit, remaining, resets_at });
        match text("x-ratelimit-resource") {
            Some("graphql") => self.rates.graphql = rate,
            Some("core") | None => self.rates.rest = rate,
            // Search and the like have their own; nothing here uses them.
            Some(_) => {}
        }
    }

    /// Keeps a small response with an ETag.
    fn cache(&mut self, key: (Uri, Option<HeaderValue>), response: &Response<Bytes>) {
        if response.body().len() > MAX_CACHED_BYTES || !response.headers().contains_key(header::ETAG) {
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
