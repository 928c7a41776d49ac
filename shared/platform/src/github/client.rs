//! The client: octocrab over the service in `rate_limit`, with the identities in `auth`. Most of octocrab's models require fields that
//! Suture does not read and that GitHub Enterprise may not send, so the modules beside this one have their own small types.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use jiff::Timestamp;
use octocrab::{FromResponse, Octocrab, Page};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::warn;

use super::auth::{Credentials, Identity, Session};
use super::rate_limit::{RateLimiter, RateLimits};
use crate::clock::Clock;
use crate::secrets::SecretRefresher;
use crate::transport::{ApiError, Transport, error_chain};

/// Pages of 100 entries, per list.
const MAX_PAGES: usize = 50;
/// The characters that are percent-encoded in a path or query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Settings of the client. The defaults are for production.
#[derive(Debug, Clone)]
pub struct GitHubSettings {
    pub base_url: Uri,
    /// The timeout of one REST call.
    pub call_limit: Duration,
    /// Retries of a read after a transient error.
    pub repeats: usize,
    pub concurrency: usize,
    /// Pauses between polls of a pull request's mergeability.
    pub mergeable_pauses: Vec<Duration>,
}

impl Default for GitHubSettings {
    fn default() -> Self {
        Self {
            base_url: Uri::from_static("https://api.github.com"),
            call_limit: Duration::from_secs(10),
            repeats: 2,
            concurrency: 10,
            mergeable_pauses: [5, 10, 15].map(Duration::from_secs).to_vec(),
        }
    }
}

/// The client. Cheap to clone; all clones share tokens and rate limits.
#[derive(Debug, Clone)]
pub struct GitHub {
    pub(super) limiter: Arc<RateLimiter>,
    session: watch::Sender<Arc<Session>>,
    renewal: Option<SecretRefresher<Credentials>>,
}

pub(super) type OctocrabResponse = Response<BoxBody<Bytes, octocrab::Error>>;

impl GitHub {
    /// With any transport and clock. Must be called within a Tokio runtime.
    pub fn with_service(
        credentials: &Credentials,
        settings: GitHubSettings,
        transport: Transport,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let limiter = Arc::new(RateLimiter::new(settings, transport, clock));
        let session = watch::Sender::new(Arc::new(Session::new(credentials, &limiter)));
        Self { limiter, session, renewal: None }
    }

    /// Replaces the credentials after a rotation.
    pub fn use_credentials(&self, credentials: &Credentials) {
        self.session.send_replace(Arc::new(Session::new(credentials, &self.limiter)));
    }

    /// Sets where this client and its clones get new credentials when GitHub rejects the current ones.
    pub fn set_credential_refresh(&mut self, renewal: SecretRefresher<Credentials>) {
        self.renewal = Some(renewal);
    }

    pub(super) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session.borrow())
    }

    /// Whether the credentials are an App's; a token has no access to webhook deliveries and installations.
    pub fn is_app(&self) -> bool {
        self.session().app.is_some()
    }

    /// The hourly rate limits, from the last response.
    pub fn rate_limits(&self) -> RateLimits {
        self.limiter.state().rates
    }

    /// The end of the current rate limit, for the row that all functions share.
    pub fn not_before(&self) -> Option<Timestamp> {
        self.limiter.not_before()
    }

    /// Pauses all requests until this time, because another function reached a rate limit.
    pub fn set_not_before(&self, until: Timestamp) {
        self.limiter.hold(until);
    }

    /// Calls octocrab, and retries once with refreshed credentials if GitHub rejects the current ones.
    pub(super) async fn call<R, C>(&self, who: Identity<'_>, call: impl Fn(Arc<Octocrab>) -> C) -> Result<R, ApiError>
    where
        C: Future<Output = octocrab::Result<R>>,
    {
        let session = self.session();
        let result = session.call(who, &call).await;
        if !matches!(result, Err(ApiError::Unauthorized { .. })) {
            return result;
        }
        if let Some(renewal) = &self.renewal
            && let Some(credentials) = renewal.refresh_now().await
        {
            self.use_credentials(&credentials);
        }
        // A concurrent task may have refreshed them.
        let renewed = self.session();
        if Arc::ptr_eq(&session, &renewed) { result } else { renewed.call(who, &call).await }
    }

    pub(super) async fn read<R: FromResponse>(&self, who: Identity<'_>, path: &str) -> Result<R, ApiError> {
        self.call(who, |github| async move { github.get(path, None::<&()>).await }).await
    }

    pub(super) async fn read_all<T: DeserializeOwned>(
        &self,
        who: Identity<'_>,
        path: &str,
    ) -> Result<Vec<T>, ApiError> {
        self.call(who, |github| async move { all_pages(&github, path).await }).await
    }

    /// Sends a write, without retries; callers probe before they retry.
    pub(super) async fn write<B: Serialize + ?Sized>(
        &self,
        who: Identity<'_>,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<OctocrabResponse, ApiError> {
        self.call(who, |github| {
            let request = github.build_request(Request::builder().method(method.clone()).uri(path), body);
            async move { github.execute(request?).await }
        })
        .await
    }
}

pub(super) async fn all_pages<T: DeserializeOwned>(github: &Octocrab, path: &str) -> octocrab::Result<Vec<T>> {
    let (mut all, mut next) = (Vec::new(), Some(path.to_owned()));
    for _ in 0..MAX_PAGES {
        let Some(path) = next.take() else { break };
        let page: Page<T> = github.get(path, None::<&()>).await?;
        next = next_page(&page);
        all.extend(page);
    }
    if next.is_some() {
        warn!(path, pages = MAX_PAGES, "list has more pages than are read");
    }
    Ok(all)
}

/// The path of the next page, without the host: octocrab sends its token only to `api.github.com`.
pub(super) fn next_page<T>(page: &Page<T>) -> Option<String> {
    Some(page.next.as_ref()?.path_and_query()?.to_string())
}

pub(super) async fn body<R: FromResponse>(response: OctocrabResponse) -> Result<R, ApiError> {
    R::from_response(response).await.map_err(call_error)
}

/// Maps an octocrab error; usually it wraps an [`ApiError`] of the service in `rate_limit`.
pub(super) fn call_error(error: octocrab::Error) -> ApiError {
    use octocrab::Error::{Http, JWT, Service, Uri, UriParse};
    let why = error_chain(&error);
    if let Service { source, .. } = error {
        // Any other source means that octocrab's queue is closed and nothing was sent.
        let closed = ApiError::Unavailable { why, may_have_happened: false };
        source.downcast().map_or(closed, |error| *error)
    } else if matches!(error, JWT { .. }) {
        ApiError::Unauthorized { message: format!("cannot sign with the App's private key: {why}") }
    } else if matches!(error, Http { .. } | Uri { .. } | UriParse { .. }) {
        ApiError::Refused { status: 0, message: why }
    } else {
        ApiError::Unreadable { why }
    }
}

/// Encodes a path segment or a query value.
pub(super) fn encode_segment(name: &str) -> String {
    utf8_percent_encode(name, ENCODED).to_string()
}
