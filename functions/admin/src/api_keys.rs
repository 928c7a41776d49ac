//! API keys: only their SHA-256 is configured, each with a name, a role and optionally the repositories it can see. A
//! presented key is compared with all entries in constant time.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use domain::command::ApiRole;
use domain::id::RepoName;
use platform::hash;
use thiserror::Error;

/// The prefix of a key, so that a leaked key can be recognised.
const PREFIX: &str = "suture_";
/// How many random bytes a key has.
const RANDOM_BYTES: usize = 32;
/// The longest key that is hashed.
const MAX_KEY_BYTES: usize = 512;

/// An entry of `SUTURE_ADMIN_KEYS` is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidApiKeys {
    /// Not `name:role:sha256hex[:repo,…]`.
    #[error(
        "entry {0} is not `name:role:sha256hex` or `name:role:sha256hex:owner/name,…`: `cargo run -- new-key NAME ROLE` creates one"
    )]
    Entry(usize),
    #[error("entry {0}: {1}")]
    Role(usize, String),
    #[error("entry {0}: the hash is not 64 hexadecimal digits; use the SHA-256 of the key, never the key itself")]
    Hash(usize),
    #[error("entry {0}: {1}")]
    Repo(usize, String),
    /// Two keys with the same name could not be distinguished in the log.
    #[error("two entries are called `{0}`: give each key its own name")]
    DuplicateName(String),
    #[error("the system's random number generator failed")]
    Random,
}

#[derive(Clone)]
struct ApiKeyEntry {
    caller: ApiCaller,
    hash: [u8; 32],
}

/// All API keys; without any, every request is answered 401.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<ApiKeyEntry>);

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|entry| &entry.caller)).finish()
    }
}

/// The owner of a valid key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiCaller {
    pub name: String,
    pub role: ApiRole,
    /// The repositories the key can see; `None`: all.
    repos: Option<Vec<RepoName>>,
}

impl ApiCaller {
    /// A caller with this role who can see all repositories.
    #[must_use]
    pub fn new(name: impl Into<String>, role: ApiRole) -> Self {
        Self { name: name.into(), role, repos: None }
    }

    /// Limits the caller to these repositories.
    #[must_use]
    pub fn limited_to(self, repos: impl IntoIterator<Item = RepoName>) -> Self {
        Self { repos: Some(repos.into_iter().collect()), ..self }
    }

    /// Whether the caller can see this repository. GitHub compares names case-insensitively.
    #[must_use]
    pub fn can_see(&self, repo: &RepoName) -> bool {
        let same = |one: &RepoName| one.as_str().eq_ignore_ascii_case(repo.as_str());
        self.repos.as_ref().is_none_or(|repos| repos.iter().any(same))
    }

    /// Whether the caller can see all repositories.
    #[must_use]
    pub fn can_see_all(&self) -> bool {
        self.repos.is_none()
    }
}

impl ApiKeys {
    /// Parses entries separated by `;`.
    ///
    /// # Errors
    /// [`InvalidApiKeys`] names the first invalid entry by its number: its text may be a secret.
    pub fn parse(text: &str) -> Result<Self, InvalidApiKeys> {
        let mut keys: Vec<ApiKeyEntry> = Vec::new();
        let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
        for (n, entry) in entries.enumerate() {
            let entry = read_entry(n + 1, entry)?;
            if keys.iter().any(|known| known.caller.name == entry.caller.name) {
                return Err(InvalidApiKeys::DuplicateName(entry.caller.name));
            }
            keys.push(entry);
        }
        Ok(Self(keys))
    }

    /// The caller of this key, if it is valid.
    #[must_use]
    pub fn caller(&self, key: &str) -> Option<ApiCaller> {
        if key.len() > MAX_KEY_BYTES {
            return None;
        }
        let shown = digest(&SHA256, key.as_bytes());
        hash::matching(self.0.iter().map(|entry| (entry.hash, &entry.caller)), shown.as_ref()).cloned()
    }
}

fn read_entry(place: usize, text: &str) -> Result<ApiKeyEntry, InvalidApiKeys> {
    let mut parts = text.split(':');
    let (Some(name), Some(role), Some(hash), repos, None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(InvalidApiKeys::Entry(place));
    };
    if !is_name(name) {
        return Err(InvalidApiKeys::Entry(place));
    }
    let role: ApiRole = role.trim().parse().map_err(|error| InvalidApiKeys::Role(place, format!("{error}")))?;
    let hash = hash::unhex(hash.trim()).ok_or(InvalidApiKeys::Hash(place))?;
    let repo =
        |name: &str| name.trim().parse::<RepoName>().map_err(|error| InvalidApiKeys::Repo(place, error.to_string()));
    let repos: Option<Vec<RepoName>> = repos.map(|repos| repos.split(',').map(repo).collect()).transpose()?;
    Ok(ApiKeyEntry { caller: ApiCaller { name: name.to_owned(), role, repos }, hash })
}

/// Names appear in logs and events, and before a colon in the entry.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    !name.is_empty() && name.len() <= 64 && name.chars().all(plain)
}

/// Random bytes in hexadecimal.
///
/// # Errors
/// [`InvalidApiKeys::Random`] if the random number generator fails.
pub fn random_hex(bytes: usize) -> Result<String, InvalidApiKeys> {
    let mut random = vec![0; bytes];
    rand::fill(&mut random).map_err(|_| InvalidApiKeys::Random)?;
    Ok(hash::hex(&random))
}

/// Creates a key: the key itself, which is shown once, and the entry for `SUTURE_ADMIN_KEYS`.
///
/// # Errors
/// [`InvalidApiKeys`] if the name is invalid or the random number generator fails.
pub fn new_key(name: &str, role: ApiRole) -> Result<(String, String), InvalidApiKeys> {
    if !is_name(name) {
        return Err(InvalidApiKeys::Entry(1));
    }
    let key = format!("{PREFIX}{}", random_hex(RANDOM_BYTES)?);
    let entry = format!("{name}:{role}:{}", hash::hash(key.as_bytes()));
    Ok((key, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_issued_key_authenticates_with_its_role() {
        let (key, entry) = new_key("ops", ApiRole::Operator).unwrap();
        let keys = ApiKeys::parse(&entry).unwrap();
        assert_eq!(keys.caller(&key), Some(ApiCaller::new("ops", ApiRole::Operator)));
        for wrong in ["", "suture_", &key[1..], &format!("{key} "), &entry, &"x".repeat(1000)] {
            assert_eq!(keys.caller(wrong), None, "{wrong}");
        }
        let (other, _) = new_key("ops", ApiRole::Operator).unwrap();
        assert!(other != key && keys.caller(&other).is_none());
        assert_eq!(key.len(), "suture_".len() + 64);
        assert!(!format!("{keys:?}").contains(&entry[13..40]), "not even the hash is shown");
    }

    #[test]
    fn scope_lists_repositories_case_insensitively() {
        let (key, entry) = new_key("team", ApiRole::Viewer).unwrap();
        let keys = ApiKeys::parse(&format!(" {entry}:acme/shop, acme/Web ; ")).unwrap();
        let caller = keys.caller(&key).unwrap();
        let sees = |repo: &str| caller.can_see(&repo.parse().unwrap());
        assert_eq!(
            [sees("acme/shop"), sees("Acme/web"), sees("acme/shop2"), sees("other/shop")],
            [true, true, false, false]
        );
        assert!(!caller.can_see_all() && ApiCaller::new("x", ApiRole::Admin).can_see_all());
    }

    #[test]
    fn invalid_entry_is_named_by_number_and_not_shown() {
        let hash = "a".repeat(64);
        for (text, expected) in [
            (format!("a:viewer:{hash};b:viewer"), "entry 2 is not"),
            (format!("a:boss:{hash}"), "entry 1: `boss` is not a role"),
            ("a:viewer:suture_secret".to_owned(), "entry 1: the hash is not 64"),
            (format!("a:viewer:{hash}:shop"), "expected `owner/name`"),
            (format!("a:viewer:{hash}:"), "expected `owner/name`"),
            (format!("a:viewer:{hash};a:admin:{hash}"), "two entries are called `a`"),
            (format!("a b:viewer:{hash}"), "entry 1 is not"),
            (format!("a:viewer:{hash}:x/y:z"), "entry 1 is not"),
        ] {
            let error = ApiKeys::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
        assert!(ApiKeys::parse("").unwrap().caller("").is_none());
        assert!(new_key("a:b", ApiRole::Viewer).is_err());
    }
}
