//! Secrets in AWS Secrets Manager. An environment variable may hold `secret:NAME#field` instead of the secret itself: a field of a JSON
//! secret. `SecretEnv` is the environment with these references resolved. It reads the secrets at startup, every five minutes, and after
//! a failed authentication, which is the first sign of a rotation.

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
pub const VARIABLES: [&str; 12] = [
    "SUTURE_ADMIN_KEYS",
    "SUTURE_APPROVER_BOT_SECRET",
    "SUTURE_AUTOMERGE_BOT_SECRET",
    "SUTURE_GITHUB_APP_ID",
    "SUTURE_GITHUB_PRIVATE_KEY",
    "SUTURE_GITHUB_TOKEN",
    "SUTURE_JENKINS_TOKEN",
    "SUTURE_JENKINS_USER",
    "SUTURE_JENKINS_WEBHOOK_SECRET",
    "SUTURE_POLICY_BOT_SECRET",
    "SUTURE_RETRIGGER_SECRET",
    "SUTURE_WEBHOOK_SECRET",
];
const PREFIX: &str = "secret:";
/// Secrets older than this are stale.
const STALE_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// Secrets are never read more often than this, because anyone can send a wrong signature.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Why a secret cannot be used. The messages are for the operator who deploys Suture.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SecretError {
    #[error("{variable}: write a reference to Secrets Manager as secret:NAME#field")]
    Reference { variable: &'static str },
    #[error(
        "{variable}: Secrets Manager has no secret `{secret}` in this region. Create it, or correct its name or the region"
    )]
    Missing { variable: &'static str, secret: String },
    #[error(
        "{variable}: access to the secret `{secret}` is denied. The function's role needs secretsmanager:GetSecretValue on it, and kms:Decrypt if it has its own key"
    )]
    Denied { variable: &'static str, secret: String },
    #[error("{variable}: the secret `{secret}` is not a JSON object with string values")]
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
pub type FetchSecret =
    Box<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<String, FetchError>> + Send>> + Send + Sync>;

/// `secret:NAME#field`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SecretReference {
    secret: String,
    field: String,
}

impl SecretReference {
    /// Parses a reference; `None` if the text is the secret itself.
    fn of(variable: &'static str, text: &str) -> Option<Result<Self, SecretError>> {
        let (secret, field) = match text.trim().strip_prefix(PREFIX)?.rsplit_once('#') {
            Some((secret, field)) if !secret.is_empty() && !field.is_empty() => (secret, field),
            Some(_) | None => return Some(Err(SecretError::Reference { variable })),
        };
        Some(Ok(Self { secret: secret.to_owned(), field: field.to_owned() }))
    }
}

type SecretValues = BTreeMap<&'static str, String>;

struct CachedSecrets {
    values: SecretValues,
    read_at: Timestamp,
}

/// The environment, with references to secrets resolved.
pub struct SecretEnv {
    environment: Box<dyn Environment + Send + Sync>,
    fetch: FetchSecret,
    references: BTreeMap<&'static str, SecretReference>,
    known: RwLock<CachedSecrets>,
    changes: AtomicU64,
    /// When the secrets were last refreshed. The lock lets one task refresh; the others then find the result.
    refreshed_at: tokio::sync::Mutex<Option<Timestamp>>,
}

impl fmt::Debug for SecretEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("references", &self.references).finish_non_exhaustive()
    }
}

impl Environment for SecretEnv {
    fn get(&self, name: &str) -> Option<String> {
        if self.references.contains_key(name) {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            return known.values.get(name).cloned();
        }
        self.environment.get(name)
    }
}

impl SecretEnv {
    /// Resolves all references, with one request per secret.
    pub async fn resolve(
        environment: impl Environment + Send + Sync + 'static,
        fetch: FetchSecret,
        now: Timestamp,
    ) -> Result<Self, SecretError> {
        let mut references = BTreeMap::new();
        for variable in VARIABLES {
            if let Some(reference) = environment.get(variable).and_then(|text| SecretReference::of(variable, &text)) {
                references.insert(variable, reference?);
            }
        }
        let values = read(&fetch, &references).await?;
        let known = RwLock::new(CachedSecrets { values, read_at: now });
        let refreshed_at = tokio::sync::Mutex::new(None);
        let (environment, changes) = (Box::new(environment), AtomicU64::new(0));
        Ok(Self { environment, fetch, references, known, changes, refreshed_at })
    }

    /// How often a refresh found changed secrets.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Refreshes the secrets if they are stale.
    pub async fn refresh_if_stale(&self, now: Timestamp) {
        let read_at = self.known.read().unwrap_or_else(PoisonError::into_inner).read_at;
        if now.duration_since(read_at) >= STALE_AFTER {
            self.refresh(now).await;
        }
    }

    /// Refreshes the secrets after a failed authentication, at most once a minute.
    pub async fn refresh_now(&self, now: Timestamp) {
        self.refresh(now).await;
    }

    async fn refresh(&self, now: Timestamp) {
        if self.references.is_empty() {
            return;
        }
        let mut refreshed_at = self.refreshed_at.lock().await;
        if refreshed_at.is_some_and(|at| now.duration_since(at) < MIN_INTERVAL) {
            return;
        }
        *refreshed_at = Some(now);
        match read(&self.fetch, &self.references).await {
            Ok(values) => {
                let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
                known.read_at = now;
                if known.values != values {
                    info!("secret rotated");
                    known.values = values;
                    self.changes.fetch_add(1, Ordering::SeqCst);
                }
            }
            // The old values are most likely still valid.
            Err(error) => warn!(%error, "cannot refresh secrets; using the old ones"),
        }
    }
}

/// Fetches each secret once and extracts the referenced fields.
async fn read(
    fetch: &FetchSecret,
    references: &BTreeMap<&'static str, SecretReference>,
) -> Result<SecretValues, SecretError> {
    let mut values = SecretValues::new();
    let names: BTreeSet<&str> = references.values().map(|reference| reference.secret.as_str()).collect();
    for name in names {
        let fields: Vec<(&'static str, &SecretReference)> =
            references.iter().filter(|(_, reference)| reference.secret == name).map(|(at, one)| (*at, one)).collect();
        let Some((first, _)) = fields.first() else { continue };
        let secret = parse(first, name, fetch(name.to_owned()).await)?;
        for (variable, reference) in fields {
            let value = match secret.get(&reference.field) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                Some(Value::Null) | None => String::new(),
                Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                    return Err(SecretError::NotJson { variable, secret: name.to_owned() });
                }
            };
            if value.trim().is_empty() {
                let field = reference.field.clone();
                return Err(SecretError::NoField { variable, secret: name.to_owned(), field });
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
) -> Result<Map<String, Value>, SecretError> {
    let secret = name.to_owned();
    match fetched {
        Ok(text) => serde_json::from_str(&text).map_err(|_| SecretError::NotJson { variable, secret }),
        Err(FetchError::Missing) => Err(SecretError::Missing { variable, secret }),
        Err(FetchError::Denied) => Err(SecretError::Denied { variable, secret }),
        Err(FetchError::Unavailable(why)) => Err(SecretError::Unread { variable, secret, why }),
    }
}

/// Builds credentials from the secrets; `None` if they are invalid.
type BuildFromSecrets<T> = dyn Fn(&SecretEnv) -> Option<T> + Send + Sync;

/// Gives a client its new credentials after a rotation, once per change. Clones share the change they have seen last.
pub struct SecretRefresher<T> {
    secret_env: Arc<SecretEnv>,
    make: Arc<BuildFromSecrets<T>>,
    now: fn() -> Timestamp,
    /// The change that was last returned.
    seen: Arc<AtomicU64>,
}

impl<T> Clone for SecretRefresher<T> {
    fn clone(&self) -> Self {
        let (secret_env, make) = (Arc::clone(&self.secret_env), Arc::clone(&self.make));
        Self { secret_env, make, now: self.now, seen: Arc::clone(&self.seen) }
    }
}

impl<T> fmt::Debug for SecretRefresher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewal")
    }
}

impl<T> SecretRefresher<T> {
    /// `make` builds the credentials; it returns `None` if the rotated secret is invalid.
    pub fn new(
        secret_env: &Arc<SecretEnv>,
        now: fn() -> Timestamp,
        make: impl Fn(&SecretEnv) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::new(AtomicU64::new(secret_env.changes()));
        Self { secret_env: Arc::clone(secret_env), make: Arc::new(make), now, seen }
    }

    /// Refreshes stale secrets; returns the credentials if they changed.
    pub async fn refresh_if_stale(&self, now: Timestamp) -> Option<T> {
        self.secret_env.refresh_if_stale(now).await;
        self.if_changed()
    }

    /// Refreshes the secrets after a failed authentication; returns the credentials if they changed.
    pub async fn refresh_now(&self) -> Option<T> {
        self.secret_env.refresh_now((self.now)()).await;
        self.if_changed()
    }

    /// Another user of the secrets may have triggered the refresh.
    fn if_changed(&self) -> Option<T> {
        let changes = self.secret_env.changes();
        if self.seen.swap(changes, Ordering::SeqCst) == changes { None } else { (self.make)(&self.secret_env) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_names_a_secret_and_a_field() {
        let of = |text| SecretReference::of("SUTURE_POLICY_BOT_SECRET", text);
        let reference = of("secret:suture/prod#policy_bot_secret").unwrap().unwrap();
        assert_eq!((reference.secret.as_str(), reference.field.as_str()), ("suture/prod", "policy_bot_secret"));
        // A secret's name may contain `#`; the field follows the last one.
        assert_eq!(of(" secret:a#b#c ").unwrap().unwrap().secret, "a#b");
        assert!(of("plain").is_none());
        for bad in ["secret:", "secret:suture", "secret:#field", "secret:suture#"] {
            assert_eq!(
                of(bad).unwrap().unwrap_err(),
                SecretError::Reference { variable: "SUTURE_POLICY_BOT_SECRET" },
                "{bad}"
            );
        }
    }
}
