//! Who may use the API: keys that are known by their SHA-256 only, each with a name, a role and, if it was given one, the
//! repositories it sees. A key that is shown is compared with all of them, in the same time whatever it is.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use domain::command::Role;
use domain::id::RepoName;
use platform::hash;
use thiserror::Error;

/// How a key begins, so that whoever finds one knows what it opens.
const PREFIX: &str = "suture_";
/// How many random bytes a key has.
const RANDOM_BYTES: usize = 32;
/// The longest key that is even looked at.
const LONGEST: usize = 512;

/// An entry that is not one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadKeys {
    /// Not `name:role:sha256hex[:repo,…]`.
    #[error(
        "entry {0} is not `name:role:sha256hex` or `name:role:sha256hex:owner/name,…`: `local new-key NAME ROLE` makes one"
    )]
    Entry(usize),
    #[error("entry {0}: {1}")]
    Role(usize, String),
    #[error("entry {0}: the hash is not 64 hexadecimal digits; it is the SHA-256 of the key, never the key itself")]
    Hash(usize),
    #[error("entry {0}: {1}")]
    Repo(usize, String),
    /// Two keys of one name could not be told apart in the log.
    #[error("two entries are called `{0}`: give each key a name of its own")]
    Twice(String),
    /// There is no randomness to be had.
    #[error("this machine gives no random numbers")]
    Random,
}

#[derive(Clone)]
struct Entry {
    caller: Caller,
    hash: [u8; 32],
}

/// All keys that open the API; there may be none, and then nobody gets in.
#[derive(Clone, Default)]
pub struct Keys(Vec<Entry>);

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|entry| &entry.caller)).finish()
    }
}

/// Whoever has shown a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    pub role: Role,
    /// The repositories it sees; `None`: all.
    repos: Option<Vec<RepoName>>,
}

impl Caller {
    /// Somebody who sees everything, with this role.
    #[must_use]
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        Self { name: name.into(), role, repos: None }
    }

    /// The same, seeing only these.
    #[must_use]
    pub fn only(self, repos: impl IntoIterator<Item = RepoName>) -> Self {
        Self { repos: Some(repos.into_iter().collect()), ..self }
    }

    /// Whether this repository is there, as far as they are concerned. GitHub compares names without case.
    #[must_use]
    pub fn sees(&self, repo: &RepoName) -> bool {
        let same = |one: &RepoName| one.as_str().eq_ignore_ascii_case(repo.as_str());
        self.repos.as_ref().is_none_or(|repos| repos.iter().any(same))
    }

    /// Whether every repository is.
    #[must_use]
    pub fn sees_all(&self) -> bool {
        self.repos.is_none()
    }
}

impl Keys {
    /// Reads entries separated by `;`.
    ///
    /// # Errors
    /// [`BadKeys`] names the first entry that is wrong, by its place: what it says may be a secret.
    pub fn parse(text: &str) -> Result<Self, BadKeys> {
        let mut keys: Vec<Entry> = Vec::new();
        let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
        for (n, entry) in entries.enumerate() {
            let entry = read_entry(n + 1, entry)?;
            if keys.iter().any(|known| known.caller.name == entry.caller.name) {
                return Err(BadKeys::Twice(entry.caller.name));
            }
            keys.push(entry);
        }
        Ok(Self(keys))
    }

    /// Whose key this is.
    #[must_use]
    pub fn caller(&self, key: &str) -> Option<Caller> {
        if key.len() > LONGEST {
            return None;
        }
        let shown = digest(&SHA256, key.as_bytes());
        hash::matching(self.0.iter().map(|entry| (entry.hash, &entry.caller)), shown.as_ref()).cloned()
    }
}

fn read_entry(place: usize, text: &str) -> Result<Entry, BadKeys> {
    let mut parts = text.split(':');
    let (Some(name), Some(role), Some(hash), repos, None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(BadKeys::Entry(place));
    };
    if !is_name(name) {
        return Err(BadKeys::Entry(place));
    }
    let role: Role = role.trim().parse().map_err(|error| BadKeys::Role(place, format!("{error}")))?;
    let hash = hash::unhex(hash.trim()).ok_or(BadKeys::Hash(place))?;
    let repo = |name: &str| name.trim().parse::<RepoName>().map_err(|error| BadKeys::Repo(place, error.to_string()));
    let repos: Option<Vec<RepoName>> = repos.map(|repos| repos.split(',').map(repo).collect()).transpose()?;
    Ok(Entry { caller: Caller { name: name.to_owned(), role, repos }, hash })
}

/// Names stand in logs, in events and before a colon.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    !name.is_empty() && name.len() <= 64 && name.chars().all(plain)
}

/// So many random bytes, in hexadecimal.
///
/// # Errors
/// [`BadKeys::Random`] if there are none to be had.
pub fn random_hex(bytes: usize) -> Result<String, BadKeys> {
    let mut random = vec![0; bytes];
    rand::fill(&mut random).map_err(|_| BadKeys::Random)?;
    Ok(hash::hex(&random))
}

/// Makes a key: the key itself, which is shown once, and the entry for `SUTURE_ADMIN_KEYS`.
///
/// # Errors
/// [`BadKeys`] if the name cannot be one, or there is no randomness to be had.
pub fn new_key(name: &str, role: Role) -> Result<(String, String), BadKeys> {
    if !is_name(name) {
        return Err(BadKeys::Entry(1));
    }
    let key = format!("{PREFIX}{}", random_hex(RANDOM_BYTES)?);
    let entry = format!("{name}:{role}:{}", hash::hash(key.as_bytes()));
    Ok((key, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_opens_with_its_role_and_no_other_key_does() {
        let (key, entry) = new_key("ops", Role::Operator).unwrap();
        let keys = Keys::parse(&entry).unwrap();
        assert_eq!(keys.caller(&key), Some(Caller::new("ops", Role::Operator)));
        for wrong in ["", "suture_", &key[1..], &format!("{key} "), &entry, &"x".repeat(1000)] {
            assert_eq!(keys.caller(wrong), None, "{wrong}");
        }
        let (other, _) = new_key("ops", Role::Operator).unwrap();
        assert!(other != key && keys.caller(&other).is_none());
        assert_eq!(key.len(), "suture_".len() + 64);
        assert!(!format!("{keys:?}").contains(&entry[13..40]), "not even the hash is shown");
    }

    #[test]
    fn a_scope_is_a_list_of_repositories_whatever_their_case() {
        let (key, entry) = new_key("team", Role::Viewer).unwrap();
        let keys = Keys::parse(&format!(" {entry}:acme/shop, acme/Web ; ")).unwrap();
        let caller = keys.caller(&key).unwrap();
        let sees = |repo: &str| caller.sees(&repo.parse().unwrap());
        assert_eq!(
            [sees("acme/shop"), sees("Acme/web"), sees("acme/shop2"), sees("other/shop")],
            [true, true, false, false]
        );
        assert!(!caller.sees_all() && Caller::new("x", Role::Admin).sees_all());
    }

    #[test]
    fn a_wrong_entry_is_named_by_its_place_and_not_shown() {
        let hash = "a".repeat(64);
        for (text, said) in [
            (format!("a:viewer:{hash};b:viewer"), "entry 2 is not"),
            (format!("a:boss:{hash}"), "entry 1: `boss` is not a role"),
            ("a:viewer:suture_secret".to_owned(), "entry 1: the hash is not 64"),
            (format!("a:viewer:{hash}:shop"), "expected `owner/name`"),
            (format!("a:viewer:{hash}:"), "expected `owner/name`"),
            (format!("a:viewer:{hash};a:admin:{hash}"), "two entries are called `a`"),
            (format!("a b:viewer:{hash}"), "entry 1 is not"),
            (format!("a:viewer:{hash}:x/y:z"), "entry 1 is not"),
        ] {
            let error = Keys::parse(&text).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{error}");
        }
        assert!(Keys::parse("").unwrap().caller("").is_none());
        assert!(new_key("a:b", Role::Viewer).is_err());
    }
}
