//! Typed ids of repositories, pull requests, commits, events, runs, effects and commands. All other code uses these
//! types, so `owner/repo#42` has the same spelling in table keys, logs and errors.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An invalid id. The message says what was expected, since a person may have typed it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidId {
    /// Not `owner/name`.
    #[error("`{0}` is not a repository: expected `owner/name`")]
    Repo(String),
    /// Not `owner/name#42`.
    #[error("`{0}` is not a pull request: expected `owner/name#42`")]
    Pr(String),
    /// Not a full commit SHA.
    #[error("`{0}` is not a commit: expected 40 (or 64) hexadecimal digits")]
    Sha(String),
}

/// `owner/name`. GitHub ignores case; the spelling that GitHub sent is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RepoName(String);

impl RepoName {
    pub fn owner(&self) -> &str {
        self.0.split_once('/').map_or("", |(owner, _)| owner)
    }

    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The characters that GitHub allows in owners and repositories. `#` and `/` are separators in keys.
fn is_name_part(part: &str) -> bool {
    !part.is_empty()
        && part.len() <= 100
        && part != "."
        && part != ".."
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

impl FromStr for RepoName {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        match text.split_once('/') {
            Some((owner, name)) if is_name_part(owner) && is_name_part(name) => Ok(Self(text.to_owned())),
            Some(_) | None => Err(InvalidId::Repo(text.to_owned())),
        }
    }
}

impl TryFrom<String> for RepoName {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<RepoName> for String {
    fn from(repo: RepoName) -> Self {
        repo.0
    }
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One pull request, `owner/repo#42`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PrId {
    pub repo: RepoName,
    pub number: u64,
}

impl PrId {
    pub fn new(repo: RepoName, number: u64) -> Self {
        Self { repo, number }
    }
}

impl FromStr for PrId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let bad = || InvalidId::Pr(text.to_owned());
        let (repo, number) = text.split_once('#').ok_or_else(bad)?;
        let repo: RepoName = repo.parse().map_err(|_| bad())?;
        // `u64::from_str` accepts "+42", but a pull request must have one spelling.
        if !number.bytes().all(|b| b.is_ascii_digit()) || number.starts_with('0') {
            return Err(bad());
        }
        let number = number.parse().map_err(|_| bad())?;
        Ok(Self { repo, number })
    }
}

impl TryFrom<String> for PrId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<PrId> for String {
    fn from(pr: PrId) -> Self {
        pr.to_string()
    }
}

impl fmt::Display for PrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.repo, self.number)
    }
}

/// A full commit SHA in lower case. Short ones are rejected, because a fact must belong to exactly one commit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha(String);

impl Sha {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first seven digits, for display.
    pub fn short(&self) -> &str {
        self.0.get(..7).unwrap_or(&self.0)
    }
}

impl FromStr for Sha {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(InvalidId::Sha(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Sha {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<Sha> for String {
    fn from(sha: Sha) -> Self {
        sha.0
    }
}

impl fmt::Display for Sha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Declares an id that is an opaque string: compared and stored, never parsed.
macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

opaque! {
    /// Idempotency key of an event: the delivery id of a webhook, the id of a command, or run id + step of a sweep.
    EventId
}
opaque! {
    /// One attempt of a remedy, or one sweep.
    RunId
}
opaque! {
    /// One undelivered effect: `<pr>#<event>#<n>`.
    EffectId
}
opaque! {
    /// A queued command: `cmd:<comment>#<n>` for comments, chosen by the caller otherwise.
    CommandId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_request_id_has_one_spelling() {
        let pr: PrId = "acme/my.app-1#42".parse().unwrap();
        assert_eq!((pr.repo.owner(), pr.repo.name(), pr.number), ("acme", "my.app-1", 42));
        assert_eq!(pr.to_string(), "acme/my.app-1#42");
        assert_eq!(serde_json::to_string(&pr).unwrap(), "\"acme/my.app-1#42\"");
        assert_eq!(serde_json::from_str::<PrId>("\"acme/my.app-1#42\"").unwrap(), pr);
        for bad in [
            "",
            "acme",
            "acme/app",
            "acme/app#",
            "acme/app#0",
            "acme/app#042",
            "acme/app#+4",
            "acme/app#4x",
            "a/b/c#1",
            "a b/c#1",
            "/c#1",
            "a/#1",
            "../x#1",
            "a/b#99999999999999999999",
        ] {
            let error = bad.parse::<PrId>().unwrap_err();
            assert!(error.to_string().contains("expected `owner/name#42`"), "{bad}: {error}");
        }
        assert!(serde_json::from_str::<PrId>("\"nonsense\"").is_err());
    }

    #[test]
    fn repository_name_is_owner_and_name() {
        assert!("acme/app".parse::<RepoName>().is_ok());
        assert!(format!("{}/app", "o".repeat(100)).parse::<RepoName>().is_ok());
        for bad in [
            String::new(),
            "acme".into(),
            "acme/".into(),
            "acme/a#b".into(),
            "acme/a/b".into(),
            "acme/..".into(),
            "./a".into(),
            format!("{}/app", "o".repeat(101)),
        ] {
            assert!(bad.parse::<RepoName>().unwrap_err().to_string().contains("expected `owner/name`"), "{bad}");
        }
    }

    #[test]
    fn sha_is_complete_and_lower_case() {
        let sha: Sha = "ABCDEF0123456789abcdef0123456789abcdef01".parse().unwrap();
        assert_eq!(sha.as_str(), "abcdef0123456789abcdef0123456789abcdef01");
        assert_eq!((sha.short(), sha.to_string().len()), ("abcdef0", 40));
        assert!("a".repeat(64).parse::<Sha>().is_ok());
        for bad in ["", "abc", &"g".repeat(40), &"a".repeat(41)] {
            assert!(bad.parse::<Sha>().unwrap_err().to_string().contains("hexadecimal"), "{bad}");
        }
    }

    #[test]
    fn opaque_ids_are_kept_unchanged() {
        assert_eq!(EventId::new("72d3162e-cc78").as_str(), "72d3162e-cc78");
        assert_eq!(RunId::new("run-1").to_string(), "run-1");
        assert_eq!(serde_json::to_string(&CommandId::new("cmd:a#1")).unwrap(), "\"cmd:a#1\"");
    }
}
