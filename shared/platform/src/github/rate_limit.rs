//! The tower service below octocrab: enforces rate limits, which all functions share, starts writes one second apart, retries reads but
//! not writes, limits the time of each call, and sends conditional requests. HTTP errors become [`ApiError`]s before octocrab sees them.

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
use crate::api_error::{ApiError, response_error};
use crate::clock::Clock;
use crate::transport::{BoxError, Transport, backoff};

/// A renamed repository redirects once; a transferred one may redirect twice.
const MAX_REDIRECTS: usize = 2;
/// GitHub stops a GraphQL query after ten seconds.
const QUERY_TIMEOUT: Duration = Duration::from_secs(15);
/// GitHub's recommended minimum between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
const MAX_CACHED_BYTES: usize = 64 * 1024;
const MAX_CACHED: usize = 512;

/// One of GitHub's hourly rate limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests (or points) per hour.
    pub limit: u32,
    pub remaining: u32,
    pub resets_at: Timestamp,
}

/// The rate limits of the last responses; REST and GraphQL have separate ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimits {
    pub rest: Option<RateLimit>,
    pub graphql: Option<RateLimit>,
}

/// Request extension: a GraphQL query, which is a POST that only reads.
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

/// Shared by all clones of a client and across credential changes.
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
        // A panic while holding the lock cannot corrupt the state; at worst one request too many is sent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses all requests until this time.
    pub(super) fn hold(&self, until: Timestamp) {
        let mut state = self.state();
        state.not_before = state.not_before.max(Some(until));
    }

    /// The end of the pause, if it is in the future.
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
        // Fetching an installation token is a POST that may be retried.
        let reads = query.is_some() || request.method().is_safe() || request.uri().path().ends_with("/access_tokens");
        let repeats = if reads && query.is_none_or(|query| query.repeat) { self.settings.repeats } else { 0 };
        let limit = query.map_or(self.settings.call_limit, |_| QUERY_TIMEOUT);
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

    /// Sends a request once, unless paused, and follows redirects.
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
        let error = response_error(&response, self.clock.now(), !request.method().is_safe());
        if let Some(until) = error.until() {
            self.hold(until);
        }
        Err(error)
    }

    /// Sends one conditional request; 304 returns the cached response.
    async fn exchange(&self, request: &Request<Bytes>, limit: Duration) -> Result<Response<Bytes>, ApiError> {
        let (mut request, method) = (request.clone(), request.method().clone());
        let key = (request.uri().clone(), request.headers().get(header::AUTHORIZATION).cloned());
        let cached = self.state().cache.get(&key).filter(|_| method == Method::GET).cloned();
        if let Some(etag) = cached.as_ref().and_then(|cached| cached.headers().get(header::ETAG)) {
            request.headers_mut().insert(header::IF_NONE_MATCH, etag.clone());
        }
        let response = self.transport.send(request, limit).await?;
        debug!(%method, path = key.0.path(), status = response.status().as_u16(), "GitHub response");
        let mut state = self.state();
        state.update_rates(response.headers());
        if method == Method::GET && response.status() == StatusCode::OK {
            state.cache(key, &response);
        }
        Ok(cached.filter(|_| response.status() == StatusCode::NOT_MODIFIED).unwrap_or(response))
    }
}

impl LimiterState {
    fn pause_before_write(&mut self, now: Timestamp) -> Duration {
        let at = self.next_write.unwrap_or(now).max(now);
        self.next_write = at.checked_add(WRITE_INTERVAL).ok();
        at.duration_since(now).unsigned_abs()
    }

    fn update_rates(&mut self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let number = |name: &str| text(name)?.parse::<u32>().ok();
        let resets_at = text("x-ratelimit-reset").and_then(|secs| Timestamp::from_second(secs.parse().ok()?).ok());
        let rates = (number("x-ratelimit-limit"), number("x-ratelimit-remaining"), resets_at);
        let (Some(limit), Some(remaining), Some(resets_at)) = rates else { return };
        let rate = Some(RateLimit { limit, remaining, resets_at });
        match text("x-ratelimit-resource") {
            Some("graphql") => self.rates.graphql = rate,
            Some("core") | None => self.rates.rest = rate,
            // Limits of other resources, such as search, which Suture does not use.
            Some(_) => {}
        }
    }

    /// Caches a small response that has an ETag.
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

/// The redirect's target, always on the same host, so that credentials are never sent to another one.
fn redirect(response: &Response<Bytes>, from: &Uri) -> Option<Uri> {
    let redirected = matches!(response.status().as_u16(), 301 | 302 | 307 | 308);
    let location: Uri = response.headers().get(header::LOCATION).filter(|_| redirected)?.to_str().ok()?.parse().ok()?;
    let mut parts = from.clone().into_parts();
    parts.path_and_query = location.into_parts().path_and_query;
    Uri::from_parts(parts).ok().filter(|to| to != from)
}
