//! One answer for one request, however often it is sent (R-API-12, R-API-13): whoever comes first works, whoever comes
//! again gets the stored answer. Webhooks do not need this: their log is their dedupe.

use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use platform::hash::hash;
use platform::rows;
use platform::store::{Key, OnlyIf, Refused, Store, StoreError, versioned};

/// A process that has not answered by then has died.
pub const LOCKED_FOR: SignedDuration = SignedDuration::from_mins(5);
/// How long an answer can be had again.
pub const COMPLETED_FOR: SignedDuration = SignedDuration::from_hours(24);
pub const FAILED_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How often the same request may be tried.
pub const MOST_ATTEMPTS: u32 = 3;

/// What makes a request the same request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// A call of the API, by who calls and what they named it.
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

/// An answer that can be given again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    pub status: u16,
    pub body: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
enum Progress {
    Processing { lock_expires_at: Timestamp },
    Completed { response: Response },
    Failed { error: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    request_hash: String,
    #[serde(flatten)]
    progress: Progress,
    created_at: Timestamp,
    updated_at: Timestamp,
    attempts: u32,
    version: u64,
}

/// The right to work on a request, and to answer it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    key: IdempotencyKey,
    remembered: Remembered,
}

impl Claim {
    /// When the request was first worked on: the same in every try.
    pub fn first_at(&self) -> Timestamp {
        self.remembered.created_at
    }

    /// Which try this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.remembered.attempts
    }
}

/// What to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Work on it, then [`complete`] or [`fail`] the claim.
    Work(Claim),
    /// It was answered before: say the same.
    Answered(Response),
    /// Somebody is at work on it: answer 202.
    Processing {
        /// By then it is answered, or may be tried again.
        until: Timestamp,
    },
}

/// Why a request is not worked on.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum IdempotencyError {
    #[error("this idempotency key was used for another request: use a new key, or send the same body again")]
    Conflict,
    #[error("this request failed {attempts} times, last because: {error}. Use a new idempotency key to try again")]
    Exhausted { attempts: u32, error: String },
    /// Whoever worked on it took too long, and another has taken over or the record is gone.
    #[error("the work on this request took longer than its lock: its answer is not remembered")]
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

/// Claims a request, or tells what became of it.
pub async fn begin<S: Store>(
    store: &S,
    key: &IdempotencyKey,
    request: &[u8],
    now: Timestamp,
) -> Result<Begun, IdempotencyError> {
    let request_hash = hash(request);
    let progress = Progress::Processing { lock_expires_at: saturating_after(now, LOCKED_FOR) };
    let first = Remembered { request_hash, progress, created_at: now, updated_at: now, attempts: 1, version: 1 };
    let Err(found) = put(store, key, &first, OnlyIf::Absent, now).await? else {
        return Ok(Begun::Work(Claim { key: key.clone(), remembered: first }));
    };
    let Some(found) = found else {
        // It was there a moment ago: whoever had it is done with it. Ask again.
        return Ok(Begun::Processing { until: now });
    };
    if found.request_hash != first.request_hash {
        return Err(IdempotencyError::Conflict);
    }
    let error = match &found.progress {
        Progress::Completed { response } => return Ok(Begun::Answered(response.clone())),
        Progress::Processing { lock_expires_at } if now < *lock_expires_at => {
            return Ok(Begun::Processing { until: *lock_expires_at });
        }
        Progress::Processing { .. } => "it took too long",
        Progress::Failed { error } => error,
    };
    if found.attempts >= MOST_ATTEMPTS {
        return Err(IdempotencyError::Exhausted { attempts: found.attempts, error: error.to_owned() });
    }
    let (version, attempts) = (found.version, found.attempts + 1);
    let again = Remembered { created_at: found.created_at, attempts, version: version + 1, ..first };
    match put(store, key, &again, OnlyIf::Version(version), now).await? {
        Ok(()) => Ok(Begun::Work(Claim { key: key.clone(), remembered: again })),
        // Somebody else has just begun to try again.
        Err(_) => Ok(Begun::Processing { until: saturating_after(now, LOCKED_FOR) }),
    }
}

pub async fn complete<S: Store>(
    store: &S,
    claim: Claim,
    response: Response,
    now: Timestamp,
) -> Result<(), IdempotencyError> {
    end(store, claim, Progress::Completed { response }, now).await
}

/// Remembers that it failed; the same request may be tried again.
pub async fn fail<S: Store>(
    store: &S,
    claim: Claim,
    error: impl Into<String>,
    now: Timestamp,
) -> Result<(), IdempotencyError> {
    end(store, claim, Progress::Failed { error: error.into() }, now).await
}

async fn end<S: Store>(store: &S, claim: Claim, progress: Progress, now: Timestamp) -> Result<(), IdempotencyError> {
    let Claim { key, remembered } = claim;
    let loaded = remembered.version;
    let ended = Remembered { progress, updated_at: now, version: loaded + 1, ..remembered };
    put(store, &key, &ended, OnlyIf::Version(loaded), now).await?.map_err(|_| IdempotencyError::Expired)
}

/// Writes it; answers what was in the way.
async fn put<S: Store>(
    store: &S,
    key: &IdempotencyKey,
    remembered: &Remembered,
    only_if: OnlyIf,
    now: Timestamp,
) -> Result<Result<(), Option<Remembered>>, StoreError> {
    let key = key.row();
    let kept = match remembered.progress {
        // Its lock ends sooner, but how often it was tried must be remembered.
        Progress::Processing { .. } | Progress::Completed { .. } => COMPLETED_FOR,
        Progress::Failed { .. } => FAILED_FOR,
    };
    let write = versioned::write(&key, remembered, remembered.version, only_if, Some(saturating_after(now, kept)))?;
    match store.write(vec![write], now).await {
        Ok(()) => Ok(Ok(())),
        Err(StoreError::Refused(mut refused)) => {
            let found = refused.pop().flatten().and_then(|Refused { found }| found);
            Ok(Err(found.map(|item| rows::take(&key, item)).transpose()?))
        }
        Err(error) => Err(error),
    }
}
