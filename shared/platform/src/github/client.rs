//! One way for every request: as whom, not before a limit allows it, writes a second apart, within a time limit, repeated
//! only if it reads and only if it may succeed. The calls themselves are in the modules beside this one.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;

use octocrab::service::middleware::base_uri::BaseUriLayer;
use octocrab::{AuthState, OctoBody, Octocrab, OctocrabBuilder};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tower::ServiceExt;
use tracing::debug;

use super::auth::{Credentials, Speaker, Tokens};
use super::limits::{Kept, Limits, Rates};
use crate::clock::{Clock, SystemClock};
use crate::http::{BoxError, CallError, Transport, lost, pauses, refusal, silent};
use crate::secrets::Renewal;

/// A renamed repository answers with its new address, a moved one perhaps twice.
const MOST_REDIRECTS: usize = 2;
/// The version of the REST API all of this is written against.
const API_VERSION: HeaderValue = HeaderValue::from_static("2022-11-28");
const ACCEPT: HeaderValue = HeaderValue::from_static("application/vnd.github+json");
const USER_AGENT: HeaderValue = HeaderValue::from_static("suture");
/// What may stand in a path as it is; everything else is written as `%XX`.
const PATH_SAFE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// How the client behaves. The defaults are for production.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where GitHub is.
    pub base_url: Uri,
    /// Longest time one REST call may take.
    pub call_limit: Duration,
    /// Longest time one GraphQL query may take: GitHub gives up by itself after ten seconds.
    pub query_limit: Duration,
    /// How often a read is repeated when it fails for a reason that may pass.
    pub repeats: usize,
    /// The pause before the first repeat; it doubles each time.
    pub first_pause: Duration,
    /// The least time between the starts of two writes.
    pub writes_apart: Duration,
    /// Requests under way at a time.
    pub concurrency: usize,
    /// The pauses before asking again whether a pull request can be merged.
    pub mergeable_pauses: Vec<Duration>,
    /// Pull requests per verification query.
    pub batch: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            base_url: Uri::from_static("https://api.github.com"),
            call_limit: Duration::from_secs(10),
            query_limit: Duration::from_secs(15),
            repeats: 2,
            first_pause: Duration::from_millis(500),
            writes_apart: Duration::from_secs(1),
            concurrency: 10,
            mergeable_pauses: [5, 10, 15].map(Duration::from_secs).to_vec(),
            batch: 25,
        }
    }
}

/// As whom a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum As<'a> {
    /// The App itself, or whoever owns the token.
    Ourselves,
    /// The App as installed for this owner.
    Owner(&'a str),
}

/// What a request does over there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads, by REST.
    Read,
    /// Reads, by GraphQL.
    Query,
    /// Changes something: never repeated.
    Write,
}

/// One request.
pub(super) struct Ask<'a> {
    pub(super) who: As<'a>,
    pub(super) kind: Kind,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Bytes>,
}

/// One good answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_slice(&self.body).map_err(|error| CallError::unreadable(&error))
    }

    /// The address of the next page, without the host, if there is one.
    pub(super) fn next_page(&self) -> Option<String> {
        let links = self.headers.get(header::LINK)?.to_str().ok()?;
        let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
        let uri: Uri = next.split_once('<')?.1.split_once('>')?.0.parse().ok()?;
        Some(uri.path_and_query()?.as_str().to_owned())
    }
}

pub(super) struct Signed {
    /// Shows nothing: each request gets what it shows.
    pub(super) root: Octocrab,
    pub(super) credentials: Credentials,
    pub(super) tokens: Tokens,
}

struct Inner {
    transport: Transport,
    settings: Settings,
    clock: Arc<dyn Clock>,
    signed: RwLock<Arc<Signed>>,
    limits: Limits,
    slots: Semaphore,
    renewal: RwLock<Option<Renewal<Credentials>>>,
}

/// The client. Cheap to clone; all clones share tokens, limits and pace.
#[derive(Clone)]
pub struct GitHub(Arc<Inner>);

impl std::fmt::Debug for GitHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GitHub").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

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
        let signed = RwLock::new(Arc::new(sign(credentials, &transport, &settings.base_url)));
        let slots = Semaphore::new(settings.concurrency.max(1));
        let (limits, renewal) = (Limits::default(), RwLock::default());
        Self(Arc::new(Inner { transport, settings, clock, signed, limits, slots, renewal }))
    }

    /// Uses other credentials from now on: secrets are read again now and then.
    pub fn use_credentials(&self, credentials: &Credentials) {
        let signed = Arc::new(sign(credentials, &self.0.transport, &self.0.settings.base_url));
        *self.0.signed.write().unwrap_or_else(PoisonError::into_inner) = signed;
    }

    /// Asks there for other credentials when ours are not accepted.
    pub fn renew_with(&self, renewal: Renewal<Credentials>) {
        *self.0.renewal.write().unwrap_or_else(PoisonError::into_inner) = Some(renewal);
    }

    /// Whether there are other credentials than these by now.
    async fn renewed_since(&self, before: &Arc<Signed>) -> bool {
        let renewal = self.0.renewal.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(renewal) = renewal
            && let Some(credentials) = renewal.doubt().await
        {
            self.use_credentials(&credentials);
        }
        // Another task may have been told before us.
        !Arc::ptr_eq(before, &self.signed())
    }

    /// Whether we are an App; a person's token cannot see webhook deliveries, nor installations.
    #[must_use]
    pub fn is_app(&self) -> bool {
        self.app_id().is_some()
    }

    /// The App's id, if we are one: its own check runs are not waited for.
    pub(super) fn app_id(&self) -> Option<u64> {
        self.signed().credentials.app_id()
    }

    /// What GitHub last said about its hourly limits.
    #[must_use]
    pub fn rates(&self) -> Rates {
        self.0.limits.rates()
    }

    /// The time before which nothing may be asked, if there is one: for the row all functions share.
    #[must_use]
    pub fn not_before(&self) -> Option<Timestamp> {
        self.0.limits.held(self.0.clock.now())
    }

    /// Somebody else was told to wait until then: so are we.
    pub fn hold_until(&self, until: Timestamp) {
        self.0.limits.hold(until);
    }

    pub(super) fn signed(&self) -> Arc<Signed> {
        Arc::clone(&self.0.signed.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.0.clock
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(super) fn note_limit(&self, error: &CallError) {
        if let Some(until) = error.until() {
            self.0.limits.hold(until);
        }
    }

    /// Reads one thing.
    pub(super) async fn read(&self, who: As<'_>, path: String) -> Result<Answer, CallError> {
        self.repeatedly(&Ask { who, kind: Kind::Read, method: Method::GET, path, body: None }).await
    }

    /// Reads all pages, at most this many.
    pub(super) async fn read_all<T, P>(
        &self,
        who: As<'_>,
        path: String,
        pages: usize,
        items: impl Fn(P) -> Vec<T>,
    ) -> Result<Vec<T>, CallError>
    where
        P: DeserializeOwned,
    {
        let mut all = Vec::new();
        let mut next = Some(path);
        for _ in 0..pages {
            let Some(path) = next.take() else { break };
            let answer = self.read(who, path).await?;
            all.extend(items(answer.json()?));
            next = answer.next_page();
        }
        Ok(all)
    }

    /// Changes something. Never repeated: the caller has a probe.
    pub(super) async fn write<B: Serialize + ?Sized>(
        &self,
        who: As<'_>,
        method: Method,
        path: String,
        body: Option<&B>,
    ) -> Result<Answer, CallError> {
        let body = body.map(json).transpose()?;
        self.once(&Ask { who, kind: Kind::Write, method, path, body }).await
    }

    /// Asks again, after growing pauses, as long as the failure may pass.
    pub(super) async fn repeatedly(&self, ask: &Ask<'_>) -> Result<Answer, CallError> {
        let mut pauses = pauses(self.0.settings.first_pause, self.0.settings.repeats);
        loop {
            let error = match self.once(ask).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match pauses.next().filter(|_| error.is_transient()) {
                Some(pause) => self.0.clock.sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    /// Asks once.
    pub(super) async fn once(&self, ask: &Ask<'_>) -> Result<Answer, CallError> {
        self.not_held()?;
        if ask.kind == Kind::Write {
            let pause = self.0.limits.turn(self.0.clock.now(), self.0.settings.writes_apart);
            if !pause.is_zero() {
                self.0.clock.sleep(pause).await;
                self.not_held()?;
            }
        }
        let signed = self.signed();
        let mut answer = self.exchange(ask).await;
        // A 401 did nothing over there, so even a write may be sent again.
        if let Ok((first, token)) = &answer
            && first.status == StatusCode::UNAUTHORIZED
            && self.try_another_token(ask.who, *token)
        {
            answer = self.exchange(ask).await;
        }
        if unauthorized(&answer) && self.renewed_since(&signed).await {
            answer = self.exchange(ask).await;
        }
        let (answer, _) = answer?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let now = self.0.clock.now();
        let error = refusal(answer.status, &answer.headers, &answer.body, now, ask.kind == Kind::Write);
        self.note_limit(&error);
        Err(error)
    }

    fn not_held(&self) -> Result<(), CallError> {
        self.not_before().map_or(Ok(()), |until| Err(CallError::RateLimited { until }))
    }

    /// Sends it and follows where GitHub says that the thing has moved. Answers by which token, too.
    async fn exchange(&self, ask: &Ask<'_>) -> Result<(Answer, Option<u64>), CallError> {
        let Speaker { crab, token } = self.speaker(ask.who).await?;
        let closed = || CallError::Unavailable { why: "the client is being closed".into(), may_have_happened: false };
        let _slot = self.0.slots.acquire().await.map_err(|_| closed())?;
        let mut path = ask.path.clone();
        for _ in 0..MOST_REDIRECTS {
            let answer = self.send(&crab, ask, &path).await?;
            match moved_to(&answer) {
                Some(there) if there != path => path = there,
                Some(_) | None => return Ok((answer, token)),
            }
        }
        Ok((self.send(&crab, ask, &path).await?, token))
    }

    pub(super) async fn send(&self, crab: &Octocrab, ask: &Ask<'_>, path: &str) -> Result<Answer, CallError> {
        let question = format!("{:?} {path}", ask.who);
        let kept = if ask.kind == Kind::Read { self.0.limits.kept(&question) } else { None };
        let request = request(ask, path, kept.as_ref().map(|kept| &kept.etag))?;
        let limit = if ask.kind == Kind::Query { self.0.settings.query_limit } else { self.0.settings.call_limit };
        let writes = ask.kind == Kind::Write;
        let whole = async {
            let (parts, body) = crab.execute(request).await?.into_parts();
            Ok::<_, octocrab::Error>((parts, body.collect().await?.to_bytes()))
        };
        let (mut parts, body) = match tokio::time::timeout(limit, whole).await {
            Ok(answer) => answer.map_err(|error| lost(&error, writes))?,
            Err(_) => return Err(silent(limit, writes)),
        };
        debug!(method = %ask.method, path, status = parts.status.as_u16(), "GitHub answered");
        self.0.limits.note(&parts.headers);
        let (status, body) = match (parts.status, kept) {
            (StatusCode::NOT_MODIFIED, Some(Kept { link, body, .. })) => {
                parts.headers.extend(link.map(|link| (header::LINK, link)));
                (StatusCode::OK, body)
            }
            (StatusCode::OK, _) if ask.kind == Kind::Read => {
                self.0.limits.keep(question, &parts.headers, &body);
                (StatusCode::OK, body)
            }
            (status, _) => (status, body),
        };
        Ok(Answer { status, headers: parts.headers, body })
    }
}

fn unauthorized(answer: &Result<(Answer, Option<u64>), CallError>) -> bool {
    match answer {
        Ok((answer, _)) => answer.status == StatusCode::UNAUTHORIZED,
        // The App's own key was not accepted when a token was asked for.
        Err(error) => matches!(error, CallError::Unauthorized { .. }),
    }
}

/// An octocrab that sends through our transport: without its retries, which repeat writes, and its rate limiter, which
/// sleeps for as long as GitHub likes.
fn sign(credentials: &Credentials, transport: &Transport, base_url: &Uri) -> Signed {
    let transport = transport.clone();
    let service = tower::service_fn(move |request: Request<OctoBody>| {
        let transport = transport.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let response = transport.into_service().oneshot(Request::from_parts(parts, body)).await?;
            Ok::<_, BoxError>(response.map(Full::new))
        }
    });
    let Ok(root) = OctocrabBuilder::new_empty()
        .with_service(service)
        .with_layer(&BaseUriLayer::new(base_url.clone()))
        .with_auth(AuthState::None)
        .build();
    Signed { root, credentials: credentials.clone(), tokens: Tokens::default() }
}

fn request(ask: &Ask<'_>, path: &str, etag: Option<&HeaderValue>) -> Result<Request<OctoBody>, CallError> {
    let mut builder = Request::builder()
        .method(ask.method.clone())
        .uri(path)
        .header(header::ACCEPT, ACCEPT)
        .header(header::USER_AGENT, USER_AGENT)
        .header("x-github-api-version", API_VERSION);
    if let Some(etag) = etag {
        builder = builder.header(header::IF_NONE_MATCH, etag);
    }
    let body = match &ask.body {
        Some(body) => {
            builder = builder.header(header::CONTENT_TYPE, "application/json");
            OctoBody::from(body.to_vec())
        }
        None => OctoBody::empty(),
    };
    builder.body(body).map_err(|error| CallError::Refused { status: 0, message: error.to_string() })
}

/// Where GitHub says that what was asked about is now. Only its path counts: nothing is ever sent to another host.
fn moved_to(answer: &Answer) -> Option<String> {
    let moved = matches!(answer.status.as_u16(), 301 | 302 | 307 | 308);
    let location = answer.headers.get(header::LOCATION).filter(|_| moved)?;
    let uri: Uri = location.to_str().ok()?.parse().ok()?;
    Some(uri.path_and_query()?.as_str().to_owned())
}

/// A body as GitHub reads it.
pub(super) fn json<B: Serialize + ?Sized>(body: &B) -> Result<Bytes, CallError> {
    let unwritable = |error: serde_json::Error| CallError::Refused { status: 0, message: error.to_string() };
    serde_json::to_vec(body).map(Bytes::from).map_err(unwritable)
}

/// A name as one part of a path or one value of a query.
pub(super) fn part(name: &str) -> String {
    utf8_percent_encode(name, PATH_SAFE).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::id::PrId;
    use domain::policy::Policies;

    /// Callers spawn these: whether they may is decided when this compiles.
    #[tokio::test]
    async fn calls_can_be_spawned() {
        let none = Transport::with_service(tower::service_fn(|_: Request<Bytes>| async {
            Err::<http::Response<Bytes>, BoxError>("nobody there".into())
        }));
        let settings = Settings { repeats: 0, ..Settings::default() };
        let github = GitHub::with_service(&Credentials::token("t"), settings, none, Arc::new(SystemClock));
        let pr: PrId = "acme/shop#1".parse().unwrap();
        let one = tokio::spawn({
            let (github, pr) = (github.clone(), pr.clone());
            async move { github.pull(&pr).await }
        });
        assert!(one.await.unwrap().is_err());
        let many = tokio::spawn(async move {
            let wanted = [(pr.clone(), "PR_1".to_owned())];
            let policies = Policies::default();
            (github.snapshots(&wanted, &policies).await, github.open_pulls(&pr.repo, policies.base()).await.is_err())
        });
        let (snapshots, failed) = many.await.unwrap();
        assert!(snapshots[0].1.is_err() && failed);
    }
}
