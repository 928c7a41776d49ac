//! Creates keys for the admin API.

use admin::keys::{ApiKeys, new_key};
use domain::command::ApiRole;
use domain::id::RepoName;
use serde::{Deserialize, Serialize};

/// A key and its entry for `SUTURE_ADMIN_KEYS`.
#[derive(Serialize, Deserialize)]
pub(crate) struct NewApiKey {
    pub(crate) key: String,
    pub(crate) entry: String,
}

/// Creates a key that is limited to `repos`, or valid for all repositories if `repos` is empty.
pub(crate) fn make(name: &str, role: &str, repos: &[String]) -> Result<NewApiKey, String> {
    let role: ApiRole = role.parse().map_err(|error| format!("{error}."))?;
    for repo in repos {
        let parsed: Result<RepoName, _> = repo.parse();
        parsed.map_err(|error| format!("--repos: {error}."))?;
    }
    let (key, mut entry) = new_key(name, role).map_err(|_| {
        format!("`{name}` is not a valid key name: use letters, digits, `-`, `_` and `.`, without spaces.")
    })?;
    if !repos.is_empty() {
        entry = format!("{entry}:{}", repos.join(","));
    }
    // Fail here rather than when the key is first used.
    ApiKeys::parse(&entry).map_err(|error| format!("{error}."))?;
    Ok(NewApiKey { key, entry })
}
