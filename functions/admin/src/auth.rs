//! Who asks. A handler names the role it needs in its signature, so none can forget to ask for it; a key that is wrong costs
//! nothing but its hash, and one that asks too often is told when to come back.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api_keys::Caller;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use domain::command::Role;
use jiff::SignedDuration;
use platform::guards;
use platform::outlets::Outlets;
use platform::store::Store;

use crate::Admin;
use crate::problem::Problem;

/// The stretch in which requests are counted, in seconds.
const STRETCH_SECS: i64 = 60;

/// Whose key it was, for the line in the log.
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

/// Somebody who may look.
pub(crate) struct Viewer(pub(crate) Caller);
/// Somebody who may look, whose request is counted while they are answered.
pub(crate) struct Looker(pub(crate) Caller);
/// Somebody who may give ordinary commands.
pub(crate) struct Operator(pub(crate) Caller);
/// Somebody who may do everything.
pub(crate) struct Administrator(pub(crate) Caller);
/// Somebody who may do everything, everywhere.
pub(crate) struct Everywhere(pub(crate) Caller);

async fn caller<S: Store, O: Outlets>(parts: &Parts, admin: &Admin<S, O>, needs: Role) -> Result<Caller, Problem> {
    let caller = known(parts, admin).await?;
    within_limit(admin, &caller).await?;
    allowed(caller, needs)
}

async fn known<S: Store, O: Outlets>(parts: &Parts, admin: &Admin<S, O>) -> Result<Caller, Problem> {
    let shown = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = shown.and_then(bearer).ok_or_else(Problem::unauthorized)?;
    let caller = admin.caller(key).await.ok_or_else(Problem::unauthorized)?;
    if let Some(name) = parts.extensions.get::<KeyName>() {
        name.set(&caller.name);
    }
    Ok(caller)
}

fn allowed(caller: Caller, needs: Role) -> Result<Caller, Problem> {
    if caller.role < needs {
        let detail =
            format!("This needs a key with the role {needs}, and yours is {}: ask somebody who has one.", caller.role);
        return Err(Problem::new(StatusCode::FORBIDDEN, "FORBIDDEN", detail));
    }
    Ok(caller)
}

/// The scheme is the same in any case (RFC 9110).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, key) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

impl Looker {
    /// Answers, and counts the request meanwhile: that is a write, and reading need not wait for it. Nobody over the limit gets
    /// the answer; and who is known to be over it costs nothing.
    pub(crate) async fn look<S: Store, O: Outlets, T, E>(
        &self,
        admin: &Admin<S, O>,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Problem>
    where
        Problem: From<E>,
    {
        let minute = admin.desk.now().as_second().div_euclid(STRETCH_SECS);
        if admin.refused.lock().unwrap_or_else(PoisonError::into_inner).get(&self.0.name) == Some(&minute) {
            within_limit(admin, &self.0).await?;
        }
        let (counted, answer) = tokio::join!(within_limit(admin, &self.0), work);
        if counted.is_err() {
            admin.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(self.0.name.clone(), minute);
        }
        counted?;
        Ok(answer?)
    }
}

async fn within_limit<S: Store, O: Outlets>(admin: &Admin<S, O>, caller: &Caller) -> Result<(), Problem> {
    let now = admin.desk.now();
    let store = admin.desk.engine().store();
    let limit = admin.desk.engine().policies().base().limits.api_requests_per_minute_per_key;
    let name = format!("api#{}", caller.name);
    let count = guards::count_in(store, &name, SignedDuration::from_secs(STRETCH_SECS), now).await?;
    if count <= i64::from(limit) {
        return Ok(());
    }
    let secs = (STRETCH_SECS - now.as_second().rem_euclid(STRETCH_SECS)).unsigned_abs();
    let detail = format!("This key has made more than {limit} requests within a minute: try again in {secs} s.");
    Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", detail).after(secs))
}

macro_rules! guarded {
    ($who:ident, $role:expr) => {
        impl<S: Store + 'static, O: Outlets + 'static> FromRequestParts<Arc<Admin<S, O>>> for $who {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin<S, O>>) -> Result<Self, Problem> {
                caller(parts, admin, $role).await.map($who)
            }
        }
    };
}

impl<S: Store + 'static, O: Outlets + 'static> FromRequestParts<Arc<Admin<S, O>>> for Looker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin<S, O>>) -> Result<Self, Problem> {
        allowed(known(parts, admin).await?, Role::Viewer).map(Looker)
    }
}

/// What concerns every repository is for keys that see every repository.
impl<S: Store + 'static, O: Outlets + 'static> FromRequestParts<Arc<Admin<S, O>>> for Everywhere {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin<S, O>>) -> Result<Self, Problem> {
        let caller = caller(parts, admin, Role::Admin).await?;
        if caller.sees_all() {
            return Ok(Self(caller));
        }
        let detail = "This concerns every repository, and your key sees some only: ask somebody whose key sees all.";
        Err(Problem::new(StatusCode::FORBIDDEN, "FORBIDDEN", detail))
    }
}

guarded!(Viewer, Role::Viewer);
guarded!(Operator, Role::Operator);
guarded!(Administrator, Role::Admin);
