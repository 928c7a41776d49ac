//! The Jenkins client: trigger, find, poll and stop builds, read results and logs. Authenticates with an API token, or with a password
//! and a crumb. The `domain` crate decides what a build means for a pull request.

mod build_handle;
mod builds;
mod head_build;
mod job;
mod trigger;

pub use build_handle::{BuildHandle, InvalidBuildHandle, POLL_INTERVAL};
pub use builds::{BuildMatch, BuildQuery, BuildState, MAX_CLOCK_SKEW, QueueItem};
pub use head_build::{build_of, job_of, since_head};
pub use job::{BuildRef, JenkinsJob};
pub use trigger::TriggeredBuild;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tracing::debug;

use crate::api_error::{ApiError, response_error};
use crate::clock::Clock;
use crate::secrets::SecretRefresher;
use crate::transport::{BodyLimit, Transport, backoff};

/// Credentials.
#[derive(Clone)]
pub enum JenkinsLogin {
    /// An API token needs no crumb.
    Token { user: String, token: String },
    /// With a password every write needs a crumb and the cookie of the crumb's session.
    Password { user: String, password: String },
}

impl std::fmt::Debug for JenkinsLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Token { user, .. } => write!(f, "Token({user}, …)"),
            Self::Password { user, .. } => write!(f, "Password({user}, …)"),
        }
    }
}

/// Settings of the client.
#[derive(Debug, Clone)]
pub struct JenkinsSettings {
    /// With the context path, if Jenkins has one.
    pub base_url: Uri,
    /// The timeout of one call.
    pub call_limit: Duration,
    /// Retries of a read after a transient error.
    pub repeats: usize,
    pub concurrency: usize,
}

impl JenkinsSettings {
    /// The defaults for production.
    pub fn new(base_url: Uri) -> Self {
        Self { base_url, call_limit: Duration::from_secs(10), repeats: 2, concurrency: 4 }
    }
}

/// The crumb, its header name, and the cookie of its session.
#[derive(Debug, Clone)]
struct Crumb {
    field: String,
    crumb: String,
    cookie: Option<String>,
}

struct JenkinsInner {
    transport: Transport,
    settings: JenkinsSettings,
    clock: Arc<dyn Clock>,
    login: RwLock<Arc<JenkinsLogin>>,
    crumb: Mutex<Option<Crumb>>,
    slots: Semaphore,
}

/// The client. Cheap to clone.
#[derive(Clone)]
pub struct Jenkins {
    inner: Arc<JenkinsInner>,
    renewal: Option<SecretRefresher<JenkinsLogin>>,
}

impl std::fmt::Debug for Jenkins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jenkins").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

impl Jenkins {
    /// With any transport and clock.
    pub fn with_service(
        login: JenkinsLogin,
        settings: JenkinsSettings,
        transport: Transport,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let slots = Semaphore::new(settings.concurrency.max(1));
        let (login, crumb) = (RwLock::new(Arc::new(login)), Mutex::new(None));
        Self { inner: Arc::new(JenkinsInner { transport, settings, clock, login, crumb, slots }), renewal: None }
    }

    /// Replaces the credentials after a rotation.
    pub fn use_login(&self, login: JenkinsLogin) {
        *self.inner.login.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(login);
        // The crumb belongs to the session of the old credentials.
        *self.crumb() = None;
    }

    /// Sets where this client and its clones get new credentials when Jenkins rejects the current ones.
    pub fn set_login_refresh(&mut self, renewal: SecretRefresher<JenkinsLogin>) {
        self.renewal = Some(renewal);
    }

    fn login(&self) -> Arc<JenkinsLogin> {
        Arc::clone(&self.inner.login.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Refreshes the credentials; true if they differ from `before`.
    async fn renewed_since(&self, before: &Arc<JenkinsLogin>) -> bool {
        if let Some(renewal) = &self.renewal
            && let Some(login) = renewal.refresh_now().await
        {
            self.use_login(login);
        }
        // A concurrent task may have refreshed them.
        !Arc::ptr_eq(before, &self.login())
    }

    pub fn base_url(&self) -> &Uri {
        &self.inner.settings.base_url
    }

    /// GET with retries and backoff after transient errors.
    async fn read(&self, path: &str, limit: Option<BodyLimit>) -> Result<Response<Bytes>, ApiError> {
        let mut pauses = backoff(self.inner.settings.repeats);
        loop {
            let response = self.send(Method::GET, path, None, limit).await;
            let result = response.and_then(|response| self.check_status(response, false));
            let transient = result.as_ref().is_err_and(ApiError::is_transient);
            match pauses.next().filter(|_| transient) {
                Some(pause) => self.inner.clock.sleep(pause).await,
                None => return result,
            }
        }
    }

    async fn read_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        let response = self.read(path, None).await?;
        Ok(serde_json::from_slice(response.body())?)
    }

    /// POST, sent once. The exception is a rejected crumb, because Jenkins then has done nothing.
    async fn write(&self, path: &str, form: Option<String>) -> Result<Response<Bytes>, ApiError> {
        let had_crumb = self.crumb().is_some();
        self.ensure_crumb().await?;
        let mut response = self.send(Method::POST, path, form.clone(), None).await?;
        if response.status() == StatusCode::FORBIDDEN && had_crumb && mentions_crumb(response.body()) {
            *self.crumb() = None;
            self.ensure_crumb().await?;
            response = self.send(Method::POST, path, form, None).await?;
        }
        // Jenkins redirects to the page of the result.
        if matches!(response.status(), StatusCode::FOUND | StatusCode::SEE_OTHER) && !redirects_to_sign_in(&response) {
            return Ok(response);
        }
        self.check_status(response, true)
    }

    fn check_status(&self, response: Response<Bytes>, writes: bool) -> Result<Response<Bytes>, ApiError> {
        if response.status().is_success() {
            return Ok(response);
        }
        if redirects_to_sign_in(&response) {
            return Err(ApiError::Unauthorized { message: "Jenkins redirects to its sign-in page".to_owned() });
        }
        Err(response_error(&response, self.inner.clock.now(), writes))
    }

    fn crumb(&self) -> MutexGuard<'_, Option<Crumb>> {
        self.inner.crumb.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gets a crumb if the credentials need one. A Jenkins without crumbs responds with 404.
    async fn ensure_crumb(&self) -> Result<(), ApiError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CrumbResponse {
            crumb: String,
            crumb_request_field: String,
        }
        if matches!(*self.login(), JenkinsLogin::Token { .. }) || self.crumb().is_some() {
            return Ok(());
        }
        let response = match self.read("/crumbIssuer/api/json", None).await {
            Ok(response) => response,
            Err(ApiError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let issued: CrumbResponse = serde_json::from_slice(response.body())?;
        let cookies = response.headers().get_all(header::SET_COOKIE).iter();
        let cookies: Vec<&str> = cookies.filter_map(|cookie| cookie.to_str().ok()?.split(';').next()).collect();
        let cookie = (!cookies.is_empty()).then(|| cookies.join("; "));
        *self.crumb() = Some(Crumb { field: issued.crumb_request_field, crumb: issued.crumb, cookie });
        Ok(())
    }

    /// Sends a request, and again with refreshed credentials if Jenkins rejects the current ones, because then it has done nothing.
    async fn send(
        &self,
        method: Method,
        path: &str,
        form: Option<String>,
        limit: Option<BodyLimit>,
    ) -> Result<Response<Bytes>, ApiError> {
        let login = self.login();
        let response = self.send_once(method.clone(), path, form.clone(), limit).await?;
        let refused = response.status() == StatusCode::UNAUTHORIZED || redirects_to_sign_in(&response);
        if refused && self.renewed_since(&login).await {
            return self.send_once(method, path, form, limit).await;
        }
        Ok(response)
    }

    async fn send_once(
        &self,
        method: Method,
        path: &str,
        form: Option<String>,
        limit: Option<BodyLimit>,
    ) -> Result<Response<Bytes>, ApiError> {
        let base = self.inner.settings.base_url.to_string();
        let mut request = Request::builder()
            .method(method.clone())
            .uri(format!("{}{path}", base.trim_end_matches('/')))
            .header(header::AUTHORIZATION, self.authorization())
            .header(header::USER_AGENT, "suture");
        if let Some(Crumb { field, crumb, cookie }) = self.crumb().as_ref() {
            request = request.header(field, crumb);
            if let Some(cookie) = cookie {
                request = request.header(header::COOKIE, cookie);
            }
        }
        if form.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        if let Some(limit) = limit {
            request = request.extension(limit);
        }
        let request = request
            .body(form.map(Bytes::from).unwrap_or_default())
            .map_err(|error| ApiError::Refused { status: 0, message: error.to_string() })?;
        let _slot = self.inner.slots.acquire().await;
        let response = self.inner.transport.send(request, self.inner.settings.call_limit).await?;
        debug!(%method, path, status = response.status().as_u16(), "Jenkins response");
        Ok(response)
    }

    fn authorization(&self) -> String {
        let pair = match &*self.login() {
            JenkinsLogin::Token { user, token } => format!("{user}:{token}"),
            JenkinsLogin::Password { user, password } => format!("{user}:{password}"),
        };
        format!("Basic {}", BASE64_STANDARD.encode(pair))
    }
}

fn mentions_crumb(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).to_ascii_lowercase().contains("crumb")
}

/// Some security realms respond to bad credentials with a redirect to the sign-in page instead of 401.
fn redirects_to_sign_in(response: &Response<Bytes>) -> bool {
    let location = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
    response.status().is_redirection()
        && location.is_some_and(|to| to.contains("/login") || to.contains("/securityRealm/"))
}
