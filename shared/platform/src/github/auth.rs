//! Authentication: a token, or an App with a JWT and a token per installation. Octocrab signs the JWT and fetches the tokens; they are
//! cached here, because octocrab signs a JWT per request, its token cache uses the system clock (with a simulated clock every request
//! would fetch a token), and after a 401 it fetches one token per rejected request.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::time::saturating_after;
use http::{HeaderValue, Request, header};
use jiff::{SignedDuration, Timestamp};
use octocrab::auth::AppAuth;
use octocrab::models::apps::CreateInstallationAccessToken;
use octocrab::models::{AppId, InstallationId};
use octocrab::secrecy::SecretString;
use octocrab::service::middleware::base_uri::BaseUriLayer;
use octocrab::service::middleware::extra_headers::ExtraHeadersLayer;
use octocrab::{AuthState, EncodingKey, OctoBody, Octocrab, OctocrabBuilder};
use thiserror::Error;
use tokio::sync::Mutex;

use super::app::{AppInstallation, INSTALLATIONS};
use super::client::{all_pages, call_error};
use super::rate_limit::RateLimiter;
use crate::transport::ApiError;

/// Shorter than the nine minutes of octocrab's JWTs.
const JWT_LIFETIME: SignedDuration = SignedDuration::from_mins(8);
/// Shorter than the hour of GitHub's installation tokens.
const TOKEN_LIFETIME: SignedDuration = SignedDuration::from_mins(50);

/// Credentials for GitHub.
#[derive(Debug, Clone)]
pub enum Credentials {
    Token(SecretString),
    /// An App's id and private key.
    App(AppAuth),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the App's private key is not an RSA key in PEM form: {0}")]
pub struct InvalidPrivateKey(String);

impl Credentials {
    pub fn token(token: &str) -> Self {
        Self::Token(SecretString::from(token.trim().to_owned()))
    }

    /// An App. In the key, the two characters `\n` count as a line break, for environment variables.
    pub fn app(id: u64, private_key_pem: &str) -> Result<Self, InvalidPrivateKey> {
        let pem = private_key_pem.replace("\\n", "\n");
        let key = EncodingKey::from_rsa_pem(pem.as_bytes()).map_err(|error| InvalidPrivateKey(error.to_string()))?;
        Ok(Self::App(AppAuth { app_id: AppId(id), key }))
    }
}

/// The identity that sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity<'a> {
    /// The App itself, or the owner of the token.
    Own,
    /// The App's installation for this owner.
    Installation(&'a str),
}

/// Octocrab with a token, and the time to renew it.
type Expiring = (Arc<Octocrab>, Timestamp);

#[derive(Debug, Default)]
struct Tokens {
    app: Option<Expiring>,
    /// By owner, in lower case.
    installations: BTreeMap<String, (InstallationId, Option<Expiring>)>,
}

/// Octocrab clients for one set of credentials.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) app: Option<AppAuth>,
    /// With the token; for an App, without credentials.
    base: Arc<Octocrab>,
    limiter: Arc<RateLimiter>,
    /// Locked while a token is fetched, so that concurrent requests do not fetch it again.
    tokens: Mutex<Tokens>,
}

impl Session {
    pub(super) fn new(credentials: &Credentials, limiter: &Arc<RateLimiter>) -> Self {
        let (auth, app) = match credentials.clone() {
            Credentials::Token(token) => (AuthState::AccessToken { token }, None),
            Credentials::App(app) => (AuthState::None, Some(app)),
        };
        let limiter = Arc::clone(limiter);
        let headers = [(header::ACCEPT, "application/vnd.github+json"), (header::USER_AGENT, "suture")];
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let service = Arc::clone(&limiter);
        let Ok(base) = OctocrabBuilder::new_empty()
            .with_service(tower::service_fn(move |request: Request<OctoBody>| Arc::clone(&service).call(request)))
            .with_layer(&ExtraHeadersLayer::new(Arc::new(headers.to_vec())))
            .with_layer(&BaseUriLayer::new(limiter.settings.base_url.clone()))
            .with_auth(auth)
            .build();
        Self { app, base: Arc::new(base), limiter, tokens: Mutex::default() }
    }

    /// Calls octocrab, and retries once with a new token if GitHub rejects the installation's token. After a 401 even a write may be
    /// retried, because GitHub has done nothing.
    pub(super) async fn call<R, C>(&self, who: Identity<'_>, call: &impl Fn(Arc<Octocrab>) -> C) -> Result<R, ApiError>
    where
        C: Future<Output = octocrab::Result<R>>,
    {
        let github = self.octocrab(who, None).await?;
        let result = call(Arc::clone(&github)).await.map_err(call_error);
        if self.app.is_some() && who != Identity::Own && matches!(result, Err(ApiError::Unauthorized { .. })) {
            return call(self.octocrab(who, Some(&github)).await?).await.map_err(call_error);
        }
        result
    }

    /// Octocrab for this identity, with another token than `refused`. Of several requests rejected with the same token, only the first
    /// fetches a new one.
    async fn octocrab(&self, who: Identity<'_>, refused: Option<&Arc<Octocrab>>) -> Result<Arc<Octocrab>, ApiError> {
        let Some(app) = &self.app else { return Ok(Arc::clone(&self.base)) };
        let Tokens { app: jwt, installations } = &mut *self.tokens.lock().await;
        let now = self.limiter.clock.now();
        let own = match jwt {
            Some((github, renew_at)) if *renew_at > now => github,
            Some(_) | None => &mut jwt.insert(self.with_token(app.generate_bearer_token(), JWT_LIFETIME)?).0,
        };
        let Identity::Installation(owner) = who else { return Ok(Arc::clone(own)) };
        let owner = owner.to_ascii_lowercase();
        if !installations.contains_key(&owner) {
            let all = all_pages(own, INSTALLATIONS).await.map_err(call_error)?;
            for AppInstallation { id, owner } in all.into_iter().filter_map(AppInstallation::active) {
                installations.entry(owner.to_ascii_lowercase()).or_insert((InstallationId(id), None));
            }
        }
        let missing = || ApiError::NotFound { message: format!("the App is not installed for `{owner}`") };
        let (id, token) = installations.get_mut(&owner).ok_or_else(missing)?;
        if let Some((github, renew_at)) = token
            && *renew_at > now
            && refused.is_none_or(|refused| !Arc::ptr_eq(refused, github))
        {
            return Ok(Arc::clone(github));
        }
        let request = CreateInstallationAccessToken::default();
        let fetched = own.apps().create_installation_access_token(*id, &request).await.map(|fetched| fetched.token);
        match self.with_token(fetched, TOKEN_LIFETIME) {
            Ok(fetched) => Ok(Arc::clone(&token.insert(fetched).0)),
            Err(error) => {
                // Uninstalled; a new installation has another id.
                if matches!(error, ApiError::NotFound { .. }) {
                    installations.remove(&owner);
                }
                Err(error)
            }
        }
    }

    fn with_token(&self, token: octocrab::Result<String>, lifetime: SignedDuration) -> Result<Expiring, ApiError> {
        let github = token.and_then(|token| self.base.user_access_token(token)).map_err(call_error)?;
        Ok((Arc::new(github), saturating_after(self.limiter.clock.now(), lifetime)))
    }
}
