//! Keys: those of this process's own making, and those it makes for others.

use domain::command::Role;
use domain::id::RepoName;
use platform::keys::{Keys, new_key};
use serde::{Deserialize, Serialize};

/// A key and the entry that lets it in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewKey {
    /// The key itself.
    pub(crate) key: String,
    /// Its entry for `SUTURE_ADMIN_KEYS`.
    pub(crate) entry: String,
}

/// Makes a key of this name and role, for these repositories or for all.
///
/// # Errors
/// A sentence about what is wrong with the name, the role or a repository.
pub(crate) fn make(name: &str, role: &str, repos: &[String]) -> Result<NewKey, String> {
    let role: Role = role.parse().map_err(|error| format!("{error}."))?;
    for repo in repos {
        let named: Result<RepoName, _> = repo.parse();
        named.map_err(|error| format!("--repos: {error}."))?;
    }
    let (key, mut entry) = new_key(name, role).map_err(|_| {
        format!("`{name}` cannot be the name of a key: use letters, digits, `-`, `_` and `.`, without spaces.")
    })?;
    if !repos.is_empty() {
        entry = format!("{entry}:{}", repos.join(","));
    }
    // What is handed out must let its bearer in.
    Keys::parse(&entry).map_err(|error| format!("{error}."))?;
    Ok(NewKey { key, entry })
}
