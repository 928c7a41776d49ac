//! Who we are to GitHub: somebody's token, or an App that gets a token per installation. Octocrab signs and exchanges;
//! how long a token is used is counted here, by the client's clock.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use octocrab::auth::AppAuth;
use octocrab::models::{AppId, InstallationId};
use octocrab::secrecy::SecretString;
use octocrab::{AuthState, EncodingKey, Octocrab};
use thiserror::Error;

use super::client::{As, GitHub};
use crate::http::{self, CallError};

/// GitHub's installation tokens live for an hour; they are renewed well before.
const USED_FOR: SignedDuration = SignedDuration::from_mins(50);

/// What we show GitHub.
#[derive(Clone)]
pub enum Credentials {
    /// Somebody's token.
    Token(SecretString),
    /// An App's id and private key.
    App {
        /// The App's id.
        id: u64,
        /// Its private key.
        key: EncodingKey,
    },
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Token(_) => f.write_str("Token(…)"),
            Self::App { id, .. } => write!(f, "App({id}, …)"),
        }
    }
}

/// The App's private key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the App's private key is not an RSA key in PEM form: {0}")]
pub struct BadKey(String);

impl Credentials {
    /// Somebody's token.
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
        Ok(Self::App { id, key })
    }

    pub(super) fn app_id(&self) -> Option<u64> {
        match self {
            Self::Token(_) => None,
            Self::App { id, .. } => Some(*id),
        }
    }

    pub(super) fn state(&self) -> AuthState {
        match self {
            Self::Token(token) => AuthState::AccessToken { token: token.clone() },
            Self::App { id, key } => AuthState::App(AppAuth { app_id: AppId(*id), key: key.clone() }),
        }
    }
}

#[derive(Clone)]
struct Token {
    crab: Octocrab,
    renew_at: Timestamp,
    serial: u64,
}

/// Who speaks for us, and by which token, if it is one that can be replaced.
pub(super) struct Speaker {
    pub(super) crab: Octocrab,
    pub(super) token: Option<u64>,
}

/// Installations by owner (in lower case, as GitHub compares them), and their tokens.
#[derive(Default)]
pub(super) struct Tokens {
    installations: Mutex<BTreeMap<String, u64>>,
    tokens: Mutex<BTreeMap<u64, Token>>,
    /// One at a time asks for a token; the others then find it. Counts the tokens.
    asking: tokio::sync::Mutex<u64>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tokens {
    fn installation(&self, owner: &str) -> Option<u64> {
        locked(&self.installations).get(&owner.to_ascii_lowercase()).copied()
    }

    fn valid(&self, owner: &str, now: Timestamp) -> Option<Speaker> {
        let id = self.installation(owner)?;
        let tokens = locked(&self.tokens);
        let token = tokens.get(&id).filter(|token| token.renew_at > now)?;
        Some(Speaker { crab: token.crab.clone(), token: Some(token.serial) })
    }

    /// Forgets an owner's token, which GitHub did not accept. Of several who were refused with it, the first makes the others
    /// a new one: what is there by now is none of their business.
    fn forget(&self, owner: &str, refused: u64) {
        if let Some(id) = self.installation(owner) {
            let mut tokens = locked(&self.tokens);
            if tokens.get(&id).is_some_and(|token| token.serial == refused) {
                tokens.remove(&id);
            }
        }
    }
}

impl GitHub {
    /// The octocrab that speaks for us here.
    pub(super) async fn speaker(&self, who: As<'_>) -> Result<Speaker, CallError> {
        let signed = self.signed();
        let owner = match who {
            As::Owner(owner) if signed.app_id.is_some() => owner,
            As::Owner(_) | As::Ourselves => return Ok(Speaker { crab: signed.root.clone(), token: None }),
        };
        if let Some(speaker) = signed.tokens.valid(owner, self.clock().now()) {
            return Ok(speaker);
        }
        let mut serial = signed.tokens.asking.lock().await;
        if let Some(speaker) = signed.tokens.valid(owner, self.clock().now()) {
            return Ok(speaker);
        }
        let id = match signed.tokens.installation(owner) {
            Some(id) => id,
            None => self.find_installation(owner).await?,
        };
        let asked_at = self.clock().now();
        let asked = signed.root.installation_and_token(InstallationId(id));
        let limit = self.settings().call_limit;
        let answer = tokio::time::timeout(limit, asked).await.map_err(|_| http::silent(limit, false))?;
        let (_, token) = answer.map_err(|error| {
            if matches!(&error, octocrab::Error::GitHub { source, .. } if source.status_code == 404) {
                // Uninstalled, and perhaps installed again under another number.
                locked(&signed.tokens.installations).clear();
            }
            self.refused_token(&error)
        })?;
        let crab = signed.root.user_access_token(token).map_err(|error| self.refused_token(&error))?;
        let renew_at = asked_at.saturating_add(USED_FOR).unwrap_or(Timestamp::MAX);
        *serial += 1;
        locked(&signed.tokens.tokens).insert(id, Token { crab: crab.clone(), renew_at, serial: *serial });
        Ok(Speaker { crab, token: Some(*serial) })
    }

    /// The listing speaks as the App itself and so does not come back here; the compiler has to be told by a box.
    fn find_installation<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<u64, CallError>> + Send + 'a>> {
        Box::pin(async move {
            let all = self.installations().await?;
            let signed = self.signed();
            let mut known = locked(&signed.tokens.installations);
            *known = all.into_iter().map(|one| (one.owner.to_ascii_lowercase(), one.id)).collect();
            let found = known.get(&owner.to_ascii_lowercase()).copied();
            found.ok_or_else(|| CallError::Gone { message: format!("the App is not installed for `{owner}`") })
        })
    }

    /// After a 401 with this token: whether another may be tried.
    pub(super) fn try_another_token(&self, who: As<'_>, refused: Option<u64>) -> bool {
        match (who, refused) {
            (As::Owner(owner), Some(refused)) => {
                self.signed().tokens.forget(owner, refused);
                true
            }
            (As::Owner(_) | As::Ourselves, _) => false,
        }
    }

    fn refused_token(&self, error: &octocrab::Error) -> CallError {
        if let octocrab::Error::GitHub { source, .. } = error {
            let none = ::http::HeaderMap::new();
            let headers = source.headers.as_ref().unwrap_or(&none);
            let now = self.clock().now();
            let refused = http::refusal(source.status_code, headers, source.message.as_bytes(), now, false);
            self.note_limit(&refused);
            return refused;
        }
        if let octocrab::Error::JWT { source, .. } = error {
            return CallError::Unauthorized { message: format!("the App's key cannot sign: {source}") };
        }
        http::lost(error, false)
    }
}
