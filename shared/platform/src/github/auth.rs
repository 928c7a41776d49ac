//! Who we are to GitHub: somebody's token, or an App that gets a token per installation. Octocrab signs; how long a token is
//! used is counted here, by the client's clock.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::http::Method;
use jiff::{SignedDuration, Timestamp};
use octocrab::auth::create_jwt;
use octocrab::models::AppId;
use octocrab::secrecy::SecretString;
use octocrab::{EncodingKey, Octocrab};
use serde::Deserialize;
use thiserror::Error;

use super::client::{As, Ask, GitHub, Kind};
use crate::clock::{Clock, SystemClock};
use crate::http::{self, CallError};

/// GitHub's installation tokens live for an hour; they are renewed well before.
const USED_FOR: SignedDuration = SignedDuration::from_mins(50);
/// What the App signs for itself is good for nine minutes, by the machine's clock.
const SIGNED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// What we show GitHub.
#[derive(Clone)]
pub enum Credentials {
    /// Somebody's token.
    Token(SecretString),
    /// An App, shared by all who speak for it.
    App(Arc<App>),
}

/// An App's id and private key, and what it last signed: reading the key and signing take longer than everything else we do
/// about a request.
pub struct App {
    id: u64,
    key: EncodingKey,
    signed: Mutex<Option<(Timestamp, SecretString)>>,
}

impl App {
    /// What shows GitHub that we are the App. Signed anew when the last one is getting old, by the machine's clock, which is
    /// the one that octocrab writes into it.
    fn bearer(&self) -> Result<SecretString, CallError> {
        let now = SystemClock.now();
        let mut signed = locked(&self.signed);
        let is_fresh = |at: Timestamp| at <= now && now < at.saturating_add(SIGNED_FOR).unwrap_or(at);
        if let Some((_, bearer)) = signed.as_ref().filter(|(at, _)| is_fresh(*at)) {
            return Ok(bearer.clone());
        }
        let unsigned = |error: &dyn std::fmt::Display| CallError::Unauthorized {
            message: format!("the App's key cannot sign: {error}"),
        };
        let bearer = SecretString::from(create_jwt(AppId(self.id), &self.key).map_err(|error| unsigned(&error))?);
        *signed = Some((now, bearer.clone()));
        Ok(bearer)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Token(_) => f.write_str("Token(…)"),
            Self::App(app) => write!(f, "App({}, …)", app.id),
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
        Ok(Self::App(Arc::new(App { id, key, signed: Mutex::default() })))
    }

    pub(super) fn app_id(&self) -> Option<u64> {
        match self {
            Self::Token(_) => None,
            Self::App(app) => Some(app.id),
        }
    }

    /// What is shown where we speak for ourselves.
    fn bearer(&self) -> Result<SecretString, CallError> {
        match self {
            Self::Token(token) => Ok(token.clone()),
            Self::App(app) => app.bearer(),
        }
    }
}

/// GitHub's answer to an App that asks for a token.
#[derive(Deserialize)]
struct Granted {
    token: String,
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
            As::Owner(owner) if signed.credentials.app_id().is_some() => owner,
            As::Owner(_) | As::Ourselves => return Ok(Speaker { crab: self.ourselves()?, token: None }),
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
        let crab = self.speaking(self.new_token(id).await?)?;
        let renew_at = asked_at.saturating_add(USED_FOR).unwrap_or(Timestamp::MAX);
        *serial += 1;
        locked(&signed.tokens.tokens).insert(id, Token { crab: crab.clone(), renew_at, serial: *serial });
        Ok(Speaker { crab, token: Some(*serial) })
    }

    fn ourselves(&self) -> Result<Octocrab, CallError> {
        self.speaking(self.signed().credentials.bearer()?)
    }

    /// An octocrab that shows this token.
    fn speaking(&self, token: SecretString) -> Result<Octocrab, CallError> {
        self.signed().root.user_access_token(token).map_err(|error| http::lost(&error, false))
    }

    /// Asks for a token of this installation.
    async fn new_token(&self, installation: u64) -> Result<SecretString, CallError> {
        let path = format!("/app/installations/{installation}/access_tokens");
        let ask = Ask { who: As::Ourselves, kind: Kind::Write, method: Method::POST, path, body: None };
        let answer = self.send(&self.ourselves()?, &ask, &ask.path).await.map_err(harmless)?;
        if answer.status.is_success() {
            return Ok(SecretString::from(answer.json::<Granted>()?.token));
        }
        let refused = http::refusal(answer.status, &answer.headers, &answer.body, self.clock().now(), false);
        self.note_limit(&refused);
        if matches!(refused, CallError::Gone { .. }) {
            // Uninstalled, and perhaps installed again under another number.
            locked(&self.signed().tokens.installations).clear();
        }
        Err(refused)
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
}

/// A token that nobody got to see has changed nothing: whoever asked for it may ask again.
fn harmless(mut error: CallError) -> CallError {
    if let CallError::Unavailable { may_have_happened, .. } = &mut error {
        *may_have_happened = false;
    }
    error
}
