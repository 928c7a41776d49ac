//! The GitHub client: octocrab over the service in `limits`, as one of the identities in `auth`. Octocrab's typed endpoints are used
//! where they send and need no more than we do. Most of its models require fields that we do not read and that GitHub
//! Enterprise or an old payload may lack, so the modules beside this one have small types of their own.

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

use super::auth::{Credentials, Identity, Session};
use super::rate_limit::{RateLimiter, RateLimits};
use crate::clock::Clock;
use crate::secrets::SecretRefresher;
use crate::transport::{ApiError, Transport, error_chain};

/// Lists are read this far, 100 to a page.
const MAX_PAGES: usize = 50;
/// What needs no `%XX` in a path or query.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// How the client behaves. The defaults are for production.
#[derive(Debug, Clone)]
pub struct GitHubSettings {
    pub base_url: Uri,
    /// Longest time one REST call may take.
    pub call_limit: Duration,
    /// How often a read is repeated when it fails for a reason that may pass.
    pub repeats: usize,
    /// Requests under way at a time.
    pub concurrency: usize,
    /// The pauses before asking again whether a pull request can be merged.
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

/// A response as octocrab has it.
pub(super) type OctocrabResponse = Response<BoxBody<Bytes, octocrab::Error>>;

impl GitHub {
    /// A client over any transport, in any time. Must be called where Tokio runs.
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

    /// Uses these credentials from now on.
    pub fn use_credentials(&self, credentials: &Credentials) {
        self.session.send_replace(Arc::new(Session::new(credentials, &self.limiter)));
    }

    /// This client, and its clones, ask there for other credentials when GitHub refuses ours.
    pub fn set_credential_refresh(&mut self, renewal: SecretRefresher<Credentials>) {
        self.renewal = Some(renewal);
    }

    pub(super) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session.borrow())
    }

    /// Whether we are an App; a person's token cannot see webhook deliveries, nor installations.
    pub fn is_app(&self) -> bool {
        self.session().app.is_some()
    }

    /// GitHub's last word on its hourly rate limits.
    pub fn rate_limits(&self) -> RateLimits {
        self.limiter.state().rates
    }

    /// The time before which nothing may be asked, if there is one: for the row all functions share.
    pub fn not_before(&self) -> Option<Timestamp> {
        self.limiter.not_before()
    }

    /// Sends nothing before this time: another function met a rate limit.
    pub fn set_not_before(&self, until: Timestamp) {
        self.limiter.hold(until);
    }

    /// Calls octocrab as this identity, and again when that was refused and there are other credentials by now.
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
        // Another task may have renewed them before us.
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

    /// Changes something. Never repeated: the caller has a probe.
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
        let Some(path) = next else { break };
        let page: Page<T> = github.get(path, None::<&()>).await?;
        next = next_page(&page);
        all.extend(page);
    }
    Ok(all)
}

/// The path of the next page. Without its host, to which octocrab would show no token if it is not `api.github.com`.
pub(super) fn next_page<T>(page: &Page<T>) -> Option<String> {
    Some(page.next.as_ref()?.path_and_query()?.to_string())
}

/// The body of a response.
pub(super) async fn body<R: FromResponse>(reply: OctocrabResponse) -> Result<R, ApiError> {
    R::from_response(reply).await.map_err(call_error)
}

/// What an error of octocrab means: usually it only carries one of our own service's.
pub(super) fn call_error(error: octocrab::Error) -> ApiError {
    use octocrab::Error::{Http, JWT, Service, Uri, UriParse};
    let why = error_chain(&error);
    if let Service { source, .. } = error {
        // Anything else is octocrab's queue, closed: nothing was sent.
        let closed = ApiError::Unavailable { why, may_have_happened: false };
        source.downcast().map_or(closed, |error| *error)
    } else if matches!(error, JWT { .. }) {
        ApiError::Unauthorized { message: format!("the App's key cannot sign: {why}") }
    } else if matches!(error, Http { .. } | Uri { .. } | UriParse { .. }) {
        ApiError::Refused { status: 0, message: why }
    } else {
        ApiError::Unreadable { why }
    }
}

/// A name as one segment of a path or one value of a query.
pub(super) fn encode_segment(name: &str) -> String {
    utf8_percent_encode(name, UNRESERVED).to_string()
}
