//! Secrets that are kept in Secrets Manager. A variable of the environment may hold `secret:NAME#field` instead of the secret
//! itself: the field of that name in a JSON secret. A [`Vault`] is the environment with these resolved: read when a function
//! starts, read again every five minutes, and when somebody is not believed or does not believe us, since that is how a
//! rotation shows first. It says what the secrets are now; who uses them is not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use thiserror::Error;
use tracing::{info, warn};

use crate::env::Environment;

/// The variables that may refer to a secret.
pub const VARIABLES: [&str; 9] = [
    "SUTURE_ADMIN_KEYS",
    "SUTURE_BOT_SECRET",
    "SUTURE_GITHUB_APP_ID",
    "SUTURE_GITHUB_PRIVATE_KEY",
    "SUTURE_GITHUB_TOKEN",
    "SUTURE_JENKINS_TOKEN",
    "SUTURE_JENKINS_USER",
    "SUTURE_JENKINS_WEBHOOK_SECRET",
    "SUTURE_WEBHOOK_SECRET",
];
const PREFIX: &str = "secret:";
/// Secrets are read again when they are this old.
const BELIEVED_FOR: SignedDuration = SignedDuration::from_mins(5);
/// Whatever happens, they are not read more often than this: anybody can send a wrong signature.
const ASKED_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// Why a secret cannot be had, for whoever deploys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadSecret {
    #[error("{variable}: a reference to Secrets Manager is written secret:NAME#field")]
    Reference { variable: &'static str },
    #[error("{variable}: Secrets Manager has no secret `{secret}` here. Create it, or correct its name and region")]
    Missing { variable: &'static str, secret: String },
    /// We may not read it.
    #[error(
        "{variable}: the secret `{secret}` may not be read. The function's role needs secretsmanager:GetSecretValue on it, and kms:Decrypt if it has a key of its own"
    )]
    Denied { variable: &'static str, secret: String },
    #[error("{variable}: the secret `{secret}` is not a JSON object of texts")]
    NotJson { variable: &'static str, secret: String },
    #[error("{variable}: the secret `{secret}` has no field `{field}`, or it is empty")]
    NoField { variable: &'static str, secret: String, field: String },
    #[error("{variable}: the secret `{secret}` could not be read: {why}")]
    Unread { variable: &'static str, secret: String, why: String },
}

/// Why a secret could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchError {
    Missing,
    Denied,
    Unavailable(String),
}

/// Fetches the text of a secret by its name.
pub type Fetch = Box<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<String, FetchError>> + Send>> + Send + Sync>;

/// `secret:NAME#field`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reference {
    secret: String,
    field: String,
}

impl Reference {
    /// Reads one; `None` if the text is the secret itself.
    fn of(variable: &'static str, text: &str) -> Option<Result<Self, BadSecret>> {
        let (secret, field) = match text.trim().strip_prefix(PREFIX)?.rsplit_once('#') {
            Some((secret, field)) if !secret.is_empty() && !field.is_empty() => (secret, field),
            Some(_) | None => return Some(Err(BadSecret::Reference { variable })),
        };
        Some(Ok(Self { secret: secret.to_owned(), field: field.to_owned() }))
    }
}

type Values = BTreeMap<&'static str, String>;

struct Known {
    values: Values,
    read_at: Timestamp,
}

/// The environment, with its references to secrets resolved.
pub struct Vault {
    environment: Box<dyn Environment + Send + Sync>,
    fetch: Fetch,
    references: BTreeMap<&'static str, Reference>,
    known: RwLock<Known>,
    changes: AtomicU64,
    /// When Secrets Manager was last asked again. One at a time asks; the others then find what it was told.
    asked_at: tokio::sync::Mutex<Option<Timestamp>>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("references", &self.references).finish_non_exhaustive()
    }
}

impl Environment for Vault {
    fn get(&self, name: &str) -> Option<String> {
        if self.references.contains_key(name) {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            return known.values.get(name).cloned();
        }
        self.environment.get(name)
    }
}

impl Vault {
    /// Resolves what the environment refers to, with one request for each secret.
    pub async fn open(
        environment: impl Environment + Send + Sync + 'static,
        fetch: Fetch,
        now: Timestamp,
    ) -> Result<Self, BadSecret> {
        let mut references = BTreeMap::new();
        for variable in VARIABLES {
            if let Some(reference) = environment.get(variable).and_then(|text| Reference::of(variable, &text)) {
                references.insert(variable, reference?);
            }
        }
        let values = read(&fetch, &references).await?;
        let known = RwLock::new(Known { values, read_at: now });
        let asked_at = tokio::sync::Mutex::new(None);
        let (environment, changes) = (Box::new(environment), AtomicU64::new(0));
        Ok(Self { environment, fetch, references, known, changes, asked_at })
    }

    /// How often any of the secrets was found to be another.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Reads the secrets again if they are five minutes old.
    pub async fn freshen(&self, now: Timestamp) {
        let read_at = self.known.read().unwrap_or_else(PoisonError::into_inner).read_at;
        if now.duration_since(read_at) >= BELIEVED_FOR {
            self.ask(now).await;
        }
    }

    /// Somebody does not believe us, or is not believed: reads the secrets again, once a minute at most.
    pub async fn doubt(&self, now: Timestamp) {
        self.ask(now).await;
    }

    async fn ask(&self, now: Timestamp) {
        if self.references.is_empty() {
            return;
        }
        let mut asked_at = self.asked_at.lock().await;
        if asked_at.is_some_and(|at| now.duration_since(at) < ASKED_EVERY) {
            return;
        }
        *asked_at = Some(now);
        match read(&self.fetch, &self.references).await {
            Ok(values) => {
                let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
                known.read_at = now;
                if known.values != values {
                    info!("a secret is another now");
                    known.values = values;
                    self.changes.fetch_add(1, Ordering::SeqCst);
                }
            }
            // What was true a while ago is most likely true still.
            Err(error) => warn!(%error, "the secrets could not be read again: the old ones are used"),
        }
    }
}

/// Reads each secret once, and takes out of it what is referred to.
async fn read(fetch: &Fetch, references: &BTreeMap<&'static str, Reference>) -> Result<Values, BadSecret> {
    let mut values = Values::new();
    let names: BTreeSet<&str> = references.values().map(|reference| reference.secret.as_str()).collect();
    for name in names {
        let fields: Vec<(&'static str, &Reference)> =
            references.iter().filter(|(_, reference)| reference.secret == name).map(|(at, one)| (*at, one)).collect();
        let Some((first, _)) = fields.first() else { continue };
        let secret = parse(first, name, fetch(name.to_owned()).await)?;
        for (variable, reference) in fields {
            let value = match secret.get(&reference.field) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                Some(Value::Null) | None => String::new(),
                Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                    return Err(BadSecret::NotJson { variable, secret: name.to_owned() });
                }
            };
            if value.trim().is_empty() {
                let field = reference.field.clone();
                return Err(BadSecret::NoField { variable, secret: name.to_owned(), field });
            }
            values.insert(variable, value);
        }
    }
    Ok(values)
}

fn parse(
    variable: &'static str,
    name: &str,
    fetched: Result<String, FetchError>,
) -> Result<Map<String, Value>, BadSecret> {
    let secret = name.to_owned();
    match fetched {
        Ok(text) => serde_json::from_str(&text).map_err(|_| BadSecret::NotJson { variable, secret }),
        Err(FetchError::Missing) => Err(BadSecret::Missing { variable, secret }),
        Err(FetchError::Denied) => Err(BadSecret::Denied { variable, secret }),
        Err(FetchError::Unavailable(why)) => Err(BadSecret::Unread { variable, secret, why }),
    }
}

/// Makes of the secrets what somebody uses; nothing if they lack it.
type Make<T> = dyn Fn(&Vault) -> Option<T> + Send + Sync;

/// A way to what a secret has become, for one who uses it: a client whose credentials are not accepted, or whoever has work to
/// do after a while. It answers once for each change. Its clones are one user.
pub struct Renewal<T> {
    vault: Arc<Vault>,
    make: Arc<Make<T>>,
    now: fn() -> Timestamp,
    /// The change that was told last.
    told: Arc<AtomicU64>,
}

impl<T> Clone for Renewal<T> {
    fn clone(&self) -> Self {
        let (vault, make) = (Arc::clone(&self.vault), Arc::clone(&self.make));
        Self { vault, make, now: self.now, told: Arc::clone(&self.told) }
    }
}

impl<T> fmt::Debug for Renewal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewal")
    }
}

impl<T> Renewal<T> {
    /// Of what `make` makes of this vault; nothing, if what the secret was changed to is not usable.
    pub fn new(
        vault: &Arc<Vault>,
        now: fn() -> Timestamp,
        make: impl Fn(&Vault) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        let told = Arc::new(AtomicU64::new(vault.changes()));
        Self { vault: Arc::clone(vault), make: Arc::new(make), now, told }
    }

    /// There is work to do: what it is now, if it is another.
    pub async fn freshen(&self, now: Timestamp) -> Option<T> {
        self.vault.freshen(now).await;
        self.untold()
    }

    /// Somebody does not believe us, or is not believed: what it is now, if it is another.
    pub async fn doubt(&self) -> Option<T> {
        self.vault.doubt((self.now)()).await;
        self.untold()
    }

    /// Another user of the same vault may have seen the change first.
    fn untold(&self) -> Option<T> {
        let changes = self.vault.changes();
        if self.told.swap(changes, Ordering::SeqCst) == changes { None } else { (self.make)(&self.vault) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_names_a_secret_and_a_field() {
        let of = |text| Reference::of("SUTURE_BOT_SECRET", text);
        let reference = of("secret:suture/prod#bot_secret").unwrap().unwrap();
        assert_eq!((reference.secret.as_str(), reference.field.as_str()), ("suture/prod", "bot_secret"));
        // Names of secrets may hold a `#`; the field is what follows the last.
        assert_eq!(of(" secret:a#b#c ").unwrap().unwrap().secret, "a#b");
        assert!(of("plain").is_none());
        for bad in ["secret:", "secret:suture", "secret:#field", "secret:suture#"] {
            assert_eq!(of(bad).unwrap().unwrap_err(), BadSecret::Reference { variable: "SUTURE_BOT_SECRET" }, "{bad}");
        }
    }
}
