//! The GitHub client: octocrab over the service in `limits`, as one of the identities in `auth`. Octocrab's typed endpoints are used
//! where they send and need no more than we do. Most of its models require fields that we do not read and that GitHub
//! Enterprise or an old payload may lack, so the modules beside this one have small types of their own.

use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use jiff::Timestamp;
use octocrab::{FromResponse, Octocrab, Page};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::auth::{Credentials, Identity, Session};
use super::limits::{Limiter, Rates};
use crate::clock::{Clock, SystemClock};
use crate::http::{BoxError, CallError, Transport, sources, with_sources};
use crate::secrets::Renewal;

/// What needs no `%XX` in a path or query.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// How the client behaves. The defaults are for production.
#[derive(Debug, Clone)]
pub struct Settings {
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

impl Default for Settings {
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
    limiter: Arc<Limiter>,
    session: Arc<RwLock<Arc<Session>>>,
    renewal: Arc<RwLock<Option<Renewal<Credentials>>>>,
}

/// A response as octocrab has it.
pub(super) type Reply = Response<BoxBody<Bytes, octocrab::Error>>;

impl GitHub {
    /// A client over real HTTPS. Must be called where Tokio runs.
    ///
    /// # Errors
    /// When the machine has no root certificates.
    pub fn connect(credentials: &Credentials, settings: Settings) -> Result<Self, BoxError> {
        Ok(Self::with_service(credentials, settings, Transport::https()?, Arc::new(SystemClock)))
    }

    /// A client over any transport, in any time. Must be called where Tokio runs.
    #[must_use]
    pub fn with_service(
        credentials: &Credentials,
        settings: Settings,
        transport: Transport,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let limiter = Arc::new(Limiter::new(settings, transport, clock));
        let session = Arc::new(RwLock::new(Arc::new(Session::new(credentials, &limiter))));
        Self { limiter, session, renewal: Arc::default() }
    }

    /// Uses these credentials from now on.
    pub fn use_credentials(&self, credentials: &Credentials) {
        let session = Arc::new(Session::new(credentials, &self.limiter));
        *self.session.write().unwrap_or_else(PoisonError::into_inner) = session;
    }

    /// Asks there for other credentials when GitHub refuses ours.
    pub fn renew_with(&self, renewal: Renewal<Credentials>) {
        *self.renewal.write().unwrap_or_else(PoisonError::into_inner) = Some(renewal);
    }

    pub(super) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are other credentials than this session's by now.
    async fn has_renewed(&self, session: &Arc<Session>) -> bool {
        let renewal = self.renewal.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(renewal) = renewal
            && let Some(credentials) = renewal.doubt().await
        {
            self.use_credentials(&credentials);
        }
        // Another task may have renewed them before us.
        !Arc::ptr_eq(session, &self.session())
    }

    /// Whether we are an App; a person's token cannot see webhook deliveries, nor installations.
    #[must_use]
    pub fn is_app(&self) -> bool {
        self.session().app_id.is_some()
    }

    /// GitHub's last word on its hourly rate limits.
    #[must_use]
    pub fn rates(&self) -> Rates {
        self.limiter.rates()
    }

    /// The time before which nothing may be asked, if there is one: for the row all functions share.
    #[must_use]
    pub fn not_before(&self) -> Option<Timestamp> {
        self.limiter.not_before()
    }

    /// Sends nothing before this time: another function met a rate limit.
    pub fn hold_until(&self, until: Timestamp) {
        self.limiter.hold(until);
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.limiter.clock
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.limiter.settings
    }

    /// Calls octocrab as this identity, and again when that was refused and there are other credentials by now.
    pub(super) async fn call<R, C>(&self, who: Identity<'_>, call: impl Fn(Arc<Octocrab>) -> C) -> Result<R, CallError>
    where
        C: Future<Output = octocrab::Result<R>>,
    {
        let session = self.session();
        let result = session.call(who, &call).await;
        if matches!(result, Err(CallError::Unauthorized { .. })) && self.has_renewed(&session).await {
            return self.session().call(who, &call).await;
        }
        result
    }

    pub(super) async fn read<R: FromResponse>(&self, who: Identity<'_>, path: &str) -> Result<R, CallError> {
        self.call(who, |github| async move { github.get(path, None::<&()>).await }).await
    }

    /// Reads all pages, at most this many.
    pub(super) async fn read_all<T: DeserializeOwned>(
        &self,
        who: Identity<'_>,
        path: &str,
        pages: usize,
    ) -> Result<Vec<T>, CallError> {
        self.call(who, |github| async move { all_pages(&github, path, pages).await }).await
    }

    /// Changes something. Never repeated: the caller has a probe.
    pub(super) async fn write<B: Serialize + ?Sized>(
        &self,
        who: Identity<'_>,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<Reply, CallError> {
        self.call(who, |github| {
            let request = github.build_request(Request::builder().method(method.clone()).uri(path), body);
            async move { github.execute(request?).await }
        })
        .await
    }
}

pub(super) async fn all_pages<T: DeserializeOwned>(
    github: &Octocrab,
    path: &str,
    pages: usize,
) -> octocrab::Result<Vec<T>> {
    let mut all = Vec::new();
    let mut next = Some(path.to_owned());
    for _ in 0..pages {
        let Some(path) = next.take() else { break };
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
pub(super) async fn body<R: FromResponse>(reply: Reply) -> Result<R, CallError> {
    R::from_response(reply).await.map_err(call_error)
}

/// What an error of octocrab means: usually it only carries one of our own service's.
pub(super) fn call_error(error: octocrab::Error) -> CallError {
    use octocrab::Error::{Http, JWT, Service, Uri, UriParse};
    if let Some(error) = sources(&error).find_map(|source| source.downcast_ref::<CallError>()) {
        return error.clone();
    }
    let why = with_sources(&error);
    if matches!(error, JWT { .. }) {
        CallError::Unauthorized { message: format!("the App's key cannot sign: {why}") }
    } else if matches!(error, Http { .. } | Uri { .. } | UriParse { .. }) {
        CallError::Refused { status: 0, message: why }
    } else if matches!(error, Service { .. }) {
        // Octocrab's queue is closed: nothing was sent.
        CallError::Unavailable { why, may_have_happened: false }
    } else {
        CallError::Unreadable { why }
    }
}

/// A name as one segment of a path or one value of a query.
pub(super) fn part(name: &str) -> String {
    utf8_percent_encode(name, UNRESERVED).to_string()
}
