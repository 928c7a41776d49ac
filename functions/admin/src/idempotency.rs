//! Idempotency keys (R-API-12, R-API-13): the first request with a key is executed, a repeated one gets the stored
//! response. Webhooks do not need this: the event log deduplicates them.

use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use platform::hash::hash;
use platform::store::schema;
use platform::store::{Condition, ConditionFailed, Key, Store, StoreError, versioned};

/// A request that was not answered by then counts as crashed.
pub const LOCK_DURATION: SignedDuration = SignedDuration::from_mins(5);
/// How long a response can be replayed.
pub const COMPLETED_RETENTION: SignedDuration = SignedDuration::from_hours(24);
pub const FAILED_RETENTION: SignedDuration = SignedDuration::from_hours(1);
/// How often the same request may be attempted.
pub const MAX_ATTEMPTS: u32 = 3;

/// The key that identifies a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key of an API request: the caller's name and the idempotency key they sent.
    pub fn api(client: &str, request: &str) -> Self {
        Self(format!("api:{client}:{request}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn row(&self) -> Key {
        Key::state(format!("IDEM#{}", self.0))
    }
}

/// A response that can be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredResponse {
    pub status: u16,
    pub body: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
enum KeyProgress {
    Processing { lock_expires_at: Timestamp },
    Completed { response: StoredResponse },
    Failed { error: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredKey {
    request_hash: String,
    #[serde(flatten)]
    progress: KeyProgress,
    created_at: Timestamp,
    updated_at: Timestamp,
    attempts: u32,
    version: u64,
}

/// The exclusive right to execute a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyClaim {
    key: IdempotencyKey,
    stored: StoredKey,
}

impl KeyClaim {
    /// When the request was first attempted: the same in every attempt.
    pub fn first_at(&self) -> Timestamp {
        self.stored.created_at
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.stored.attempts
    }
}

/// The result of claiming a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimResult {
    /// Execute it, then [`complete`] or [`fail`] the claim.
    Work(KeyClaim),
    /// It was answered before: replay the response.
    Answered(StoredResponse),
    /// Another process is executing it: answer 202.
    Processing {
        /// By then it is answered, or may be attempted again.
        until: Timestamp,
    },
}

/// Why a request is not executed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum IdempotencyError {
    #[error("this idempotency key was used for a different request: use a new key, or send the same body again")]
    Conflict,
    #[error("this request failed {attempts} times, the last time with: {error}. Use a new idempotency key to retry")]
    Exhausted { attempts: u32, error: String },
    /// The request outlived its lock, and another process has taken over or the item has expired.
    #[error("this request took longer than its lock: its response is not stored")]
    Expired,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IdempotencyError {
    /// The code that callers may rely on (R-API-13).
    pub fn code(&self) -> &'static str {
        match self {
            Self::Conflict => "IDEMPOTENCY_CONFLICT",
            Self::Exhausted { .. } => "IDEMPOTENCY_EXHAUSTED",
            Self::Expired => "IDEMPOTENCY_EXPIRED",
            Self::Store(_) => "STORE_UNAVAILABLE",
        }
    }
}

/// Claims a request, or returns its stored response.
pub async fn claim<S: Store>(
    store: &S,
    key: &IdempotencyKey,
    request: &[u8],
    now: Timestamp,
) -> Result<ClaimResult, IdempotencyError> {
    let request_hash = hash(request);
    let progress = KeyProgress::Processing { lock_expires_at: saturating_after(now, LOCK_DURATION) };
    let first = StoredKey { request_hash, progress, created_at: now, updated_at: now, attempts: 1, version: 1 };
    let Err(found) = put(store, key, &first, Condition::Absent, now).await? else {
        return Ok(ClaimResult::Work(KeyClaim { key: key.clone(), stored: first }));
    };
    let Some(found) = found else {
        // The item has just expired: the client retries.
        return Ok(ClaimResult::Processing { until: now });
    };
    if found.request_hash != first.request_hash {
        return Err(IdempotencyError::Conflict);
    }
    let error = match &found.progress {
        KeyProgress::Completed { response } => return Ok(ClaimResult::Answered(response.clone())),
        KeyProgress::Processing { lock_expires_at } if now < *lock_expires_at => {
            return Ok(ClaimResult::Processing { until: *lock_expires_at });
        }
        KeyProgress::Processing { .. } => "timed out",
        KeyProgress::Failed { error } => error,
    };
    if found.attempts >= MAX_ATTEMPTS {
        return Err(IdempotencyError::Exhausted { attempts: found.attempts, error: error.to_owned() });
    }
    let (version, attempts) = (found.version, found.attempts + 1);
    let retry = StoredKey { created_at: found.created_at, attempts, version: version + 1, ..first };
    match put(store, key, &retry, Condition::Version(version), now).await? {
        Ok(()) => Ok(ClaimResult::Work(KeyClaim { key: key.clone(), stored: retry })),
        // Another process has just started the retry.
        Err(_) => Ok(ClaimResult::Processing { until: saturating_after(now, LOCK_DURATION) }),
    }
}

pub async fn complete<S: Store>(
    store: &S,
    claim: KeyClaim,
    response: StoredResponse,
    now: Timestamp,
) -> Result<(), IdempotencyError> {
    end(store, claim, KeyProgress::Completed { response }, now).await
}

/// Stores the failure; the same request may be attempted again.
pub async fn fail<S: Store>(
    store: &S,
    claim: KeyClaim,
    error: impl Into<String>,
    now: Timestamp,
) -> Result<(), IdempotencyError> {
    end(store, claim, KeyProgress::Failed { error: error.into() }, now).await
}

async fn end<S: Store>(
    store: &S,
    claim: KeyClaim,
    progress: KeyProgress,
    now: Timestamp,
) -> Result<(), IdempotencyError> {
    let KeyClaim { key, stored } = claim;
    let loaded = stored.version;
    let ended = StoredKey { progress, updated_at: now, version: loaded + 1, ..stored };
    put(store, &key, &ended, Condition::Version(loaded), now).await?.map_err(|_| IdempotencyError::Expired)
}

/// Writes the item; returns the existing item if the condition fails.
async fn put<S: Store>(
    store: &S,
    key: &IdempotencyKey,
    item: &StoredKey,
    only_if: Condition,
    now: Timestamp,
) -> Result<Result<(), Option<StoredKey>>, StoreError> {
    let key = key.row();
    let retention = match item.progress {
        // The lock expires sooner, but the number of attempts must be kept.
        KeyProgress::Processing { .. } | KeyProgress::Completed { .. } => COMPLETED_RETENTION,
        KeyProgress::Failed { .. } => FAILED_RETENTION,
    };
    let write = versioned::write(&key, item, item.version, only_if, Some(saturating_after(now, retention)))?;
    match store.write(vec![write], now).await {
        Ok(()) => Ok(Ok(())),
        Err(StoreError::ConditionFailed(mut refused)) => {
            let found = refused.pop().flatten().and_then(|ConditionFailed { found }| found);
            Ok(Err(found.map(|item| schema::read_owned(&key, item)).transpose()?))
        }
        Err(error) => Err(error),
    }
}
