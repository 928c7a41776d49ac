//! Authentication, roles and the rate limit per key. A handler names the role it needs in its signature, so that none can
//! omit the check. A wrong key costs one hash and no store request.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api_keys::ApiCaller;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use domain::command::ApiRole;
use jiff::SignedDuration;
use platform::publish::Publisher;
use platform::store::Store;
use platform::store::counter;

use crate::Admin;
use crate::problem::ApiProblem;

/// The window of the rate limit, in seconds.
const WINDOW_SECS: i64 = 60;

/// The name of the caller's key, for the log line.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyName(Arc<Mutex<Option<String>>>);

impl KeyName {
    fn set(&self, name: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.to_owned());
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A caller who may read.
pub(crate) struct Viewer(pub(crate) ApiCaller);
/// A caller who may read, whose request is counted while it is answered.
pub(crate) struct CountedViewer(pub(crate) ApiCaller);
/// A caller who may give ordinary commands.
pub(crate) struct Operator(pub(crate) ApiCaller);
/// A caller with the admin role.
pub(crate) struct Administrator(pub(crate) ApiCaller);
/// A caller with the admin role for all repositories.
pub(crate) struct GlobalAdministrator(pub(crate) ApiCaller);

async fn authorize<S: Store, O: Publisher>(
    parts: &Parts,
    admin: &Admin<S, O>,
    needs: ApiRole,
) -> Result<ApiCaller, ApiProblem> {
    let caller = authenticate(parts, admin).await?;
    within_limit(admin, &caller).await?;
    require_role(caller, needs)
}

async fn authenticate<S: Store, O: Publisher>(parts: &Parts, admin: &Admin<S, O>) -> Result<ApiCaller, ApiProblem> {
    let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = header.and_then(bearer).ok_or_else(ApiProblem::unauthorized)?;
    let caller = admin.caller(key).await.ok_or_else(ApiProblem::unauthorized)?;
    if let Some(name) = parts.extensions.get::<KeyName>() {
        name.set(&caller.name);
    }
    Ok(caller)
}

fn require_role(caller: ApiCaller, needs: ApiRole) -> Result<ApiCaller, ApiProblem> {
    if caller.role < needs {
        let detail =
            format!("This needs a key with the role {needs}; yours has the role {}. Use another key.", caller.role);
        return Err(ApiProblem::new(StatusCode::FORBIDDEN, "FORBIDDEN", detail));
    }
    Ok(caller)
}

/// The key of a bearer header. The scheme is case-insensitive (RFC 9110).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, key) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

impl CountedViewer {
    /// Runs the query and counts the request concurrently, because counting is a write that reads need not wait for. A
    /// caller over the limit does not get the response; one known to be over it is refused before the query runs.
    pub(crate) async fn authenticate_viewer<S: Store, O: Publisher, T, E>(
        &self,
        admin: &Admin<S, O>,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ApiProblem>
    where
        ApiProblem: From<E>,
    {
        let minute = admin.api.now().as_second().div_euclid(WINDOW_SECS);
        if admin.over_limit.lock().unwrap_or_else(PoisonError::into_inner).get(&self.0.name) == Some(&minute) {
            within_limit(admin, &self.0).await?;
        }
        let (counted, result) = tokio::join!(within_limit(admin, &self.0), work);
        if counted.is_err() {
            admin.over_limit.lock().unwrap_or_else(PoisonError::into_inner).insert(self.0.name.clone(), minute);
        }
        counted?;
        Ok(result?)
    }
}

async fn within_limit<S: Store, O: Publisher>(admin: &Admin<S, O>, caller: &ApiCaller) -> Result<(), ApiProblem> {
    let now = admin.api.now();
    let store = admin.api.engine().store();
    let limit = admin.api.engine().policies().base().limits.api_requests_per_minute_per_key;
    let name = format!("api#{}", caller.name);
    let count = counter::count_in_window(store, &name, SignedDuration::from_secs(WINDOW_SECS), now).await?;
    if count <= i64::from(limit) {
        return Ok(());
    }
    let secs = (WINDOW_SECS - now.as_second().rem_euclid(WINDOW_SECS)).unsigned_abs();
    let detail = format!("Rate limit: {limit} requests per minute and key. Retry in {secs} s.");
    Err(ApiProblem::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", detail).after(secs))
}

macro_rules! guarded {
    ($caller:ident, $role:expr) => {
        impl<S: Store + 'static, O: Publisher + 'static> FromRequestParts<Arc<Admin<S, O>>> for $caller {
            type Rejection = ApiProblem;

            async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin<S, O>>) -> Result<Self, ApiProblem> {
                authorize(parts, admin, $role).await.map($caller)
            }
        }
    };
}

impl<S: Store + 'static, O: Publisher + 'static> FromRequestParts<Arc<Admin<S, O>>> for CountedViewer {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin<S, O>>) -> Result<Self, ApiProblem> {
        require_role(authenticate(parts, admin).await?, ApiRole::Viewer).map(CountedViewer)
    }
}

/// Operations on all repositories need a key that can see all repositories.
impl<S: Store + 'static, O: Publisher + 'static> FromRequestParts<Arc<Admin<S, O>>> for GlobalAdministrator {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin<S, O>>) -> Result<Self, ApiProblem> {
        let caller = authorize(parts, admin, ApiRole::Admin).await?;
        if caller.can_see_all() {
            return Ok(Self(caller));
        }
        let detail =
            "This affects all repositories, and your key is limited to some. Use a key without a repository list.";
        Err(ApiProblem::new(StatusCode::FORBIDDEN, "FORBIDDEN", detail))
    }
}

guarded!(Viewer, ApiRole::Viewer);
guarded!(Operator, ApiRole::Operator);
guarded!(Administrator, ApiRole::Admin);
