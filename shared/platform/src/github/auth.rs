//! Who we are to GitHub: somebody's token, or an App with a token per installation. Octocrab signs for the App and fetches the
//! tokens; they are kept here and not in octocrab, whose cache reads the machine's clock (in the simulation's time each request
//! would fetch a token), and which after a 401 fetches a token for each of several requests that were refused at once.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use ::http::{HeaderValue, Request, header};
use jiff::{SignedDuration, Timestamp};
use octocrab::auth::AppAuth;
use octocrab::models::{AppId, InstallationId};
use octocrab::secrecy::SecretString;
use octocrab::service::middleware::base_uri::BaseUriLayer;
use octocrab::service::middleware::extra_headers::ExtraHeadersLayer;
use octocrab::{AuthState, EncodingKey, OctoBody, Octocrab, OctocrabBuilder};
use thiserror::Error;
use tokio::sync::Mutex;

use super::app::{INSTALLATIONS, Installation, MOST_PAGES};
use super::client::{all_pages, call_error};
use super::limits::Limiter;
use crate::http::CallError;

/// GitHub's installation tokens live for an hour.
const TOKEN_LIFE: SignedDuration = SignedDuration::from_mins(50);

/// What we show GitHub.
#[derive(Clone)]
pub enum Credentials {
    Token(SecretString),
    /// An App's id and private key.
    App(AppAuth),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Token(_) => f.write_str("Token(…)"),
            Self::App(app) => write!(f, "App({}, …)", app.app_id),
        }
    }
}

/// The App's private key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the App's private key is not an RSA key in PEM form: {0}")]
pub struct BadKey(String);

impl Credentials {
    #[must_use]
    pub fn token(token: &str) -> Self {
        Self::Token(SecretString::from(token.trim().to_owned()))
    }

    /// An App. Where a key cannot hold line breaks (an environment variable), `\n` written out stands for one.
    ///
    /// # Errors
    /// When the key is none.
    pub fn app(id: u64, private_key_pem: &str) -> Result<Self, BadKey> {
        let pem = private_key_pem.replace("\\n", "\n");
        let key = EncodingKey::from_rsa_pem(pem.as_bytes()).map_err(|error| BadKey(error.to_string()))?;
        Ok(Self::App(AppAuth { app_id: AppId(id), key }))
    }
}

/// As whom a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity<'a> {
    /// The App itself, or the owner of the token.
    Own,
    /// The App as installed for this owner.
    Installation(&'a str),
}

#[derive(Debug)]
struct Entry {
    id: InstallationId,
    /// Octocrab with its token, and when that is renewed.
    token: Option<(Arc<Octocrab>, Timestamp)>,
}

/// Octocrab with one set of credentials.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) app_id: Option<u64>,
    own: Arc<Octocrab>,
    limiter: Arc<Limiter>,
    /// By owner, in lower case. Locked while a token is fetched, so that it is fetched once.
    installations: Mutex<BTreeMap<String, Entry>>,
}

impl Session {
    pub(super) fn new(credentials: &Credentials, limiter: &Arc<Limiter>) -> Self {
        let (auth, app_id) = match credentials.clone() {
            Credentials::Token(token) => (AuthState::AccessToken { token }, None),
            Credentials::App(app) => (AuthState::App(app.clone()), Some(app.app_id.0)),
        };
        let service = {
            let limiter = Arc::clone(limiter);
            tower::service_fn(move |request: Request<OctoBody>| Arc::clone(&limiter).call(request))
        };
        let headers = [(header::ACCEPT, "application/vnd.github+json"), (header::USER_AGENT, "suture")];
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let Ok(own) = OctocrabBuilder::new_empty()
            .with_service(service)
            .with_layer(&ExtraHeadersLayer::new(Arc::new(headers.to_vec())))
            .with_layer(&BaseUriLayer::new(limiter.settings.base_url.clone()))
            .with_auth(auth)
            .build();
        Self { app_id, own: Arc::new(own), limiter: Arc::clone(limiter), installations: Mutex::default() }
    }

    /// Calls octocrab as this identity, and again with a new token when GitHub refused the installation's: a 401 did nothing over
    /// there, so even a write may be sent again.
    pub(super) async fn call<R, C>(&self, who: Identity<'_>, call: &impl Fn(Arc<Octocrab>) -> C) -> Result<R, CallError>
    where
        C: Future<Output = octocrab::Result<R>>,
    {
        let owner = match who {
            Identity::Installation(owner) if self.app_id.is_some() => owner.to_ascii_lowercase(),
            Identity::Installation(_) | Identity::Own => return call(Arc::clone(&self.own)).await.map_err(call_error),
        };
        let github = self.installation(&owner, None).await?;
        match call(Arc::clone(&github)).await.map_err(call_error) {
            Err(CallError::Unauthorized { .. }) => {
                call(self.installation(&owner, Some(&github)).await?).await.map_err(call_error)
            }
            result => result,
        }
    }

    /// Octocrab with a token of this owner's installation, but not the one that GitHub refused. Of several requests that were
    /// refused with one token, the first fetches the next for all of them.
    async fn installation(&self, owner: &str, refused: Option<&Arc<Octocrab>>) -> Result<Arc<Octocrab>, CallError> {
        let mut installations = self.installations.lock().await;
        if !installations.contains_key(owner) {
            let all = all_pages(&self.own, INSTALLATIONS, MOST_PAGES).await.map_err(call_error)?;
            for Installation { id, owner } in all.into_iter().filter_map(Installation::active) {
                let entry = Entry { id: InstallationId(id), token: None };
                installations.entry(owner.to_ascii_lowercase()).or_insert(entry);
            }
        }
        let missing = || CallError::Gone { message: format!("the App is not installed for `{owner}`") };
        let entry = installations.get_mut(owner).ok_or_else(missing)?;
        let now = self.limiter.clock.now();
        if let Some((github, renew_at)) = &entry.token
            && *renew_at > now
            && !refused.is_some_and(|refused| Arc::ptr_eq(refused, github))
        {
            return Ok(Arc::clone(github));
        }
        let fetched =
            self.own.installation_and_token(entry.id).await.and_then(|(_, token)| self.own.user_access_token(token));
        let fetched = fetched.map(Arc::new).map_err(call_error);
        if let Ok(github) = &fetched {
            entry.token = Some((Arc::clone(github), now.saturating_add(TOKEN_LIFE).unwrap_or(Timestamp::MAX)));
        } else if matches!(fetched, Err(CallError::Gone { .. })) {
            // Uninstalled, and perhaps installed again under another id.
            installations.remove(owner);
        }
        fetched
    }
}
