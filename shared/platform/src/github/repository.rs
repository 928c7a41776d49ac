//! Repository queries: user permissions, requirements of a base branch, and how far a head is behind its base.

use std::collections::{BTreeMap, BTreeSet};

use domain::command::RepoPermission;
use domain::id::{RepoName, Sha};
use serde::Deserialize;

use super::client::{GitHub, encode_segment};
use super::graphql::{GraphqlResponse, comparisons};
use super::pulls::{owner, repo_path};
use crate::transport::ApiError;

/// The requirements of a base branch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BaseRequirements {
    /// The required contexts, sorted; `None` if neither protection nor rules could be read.
    pub contexts: Option<Vec<String>>,
    /// Whether the head must be up to date with its base.
    pub strict: bool,
}

#[derive(Deserialize)]
struct Protection {
    #[serde(default)]
    strict: bool,
    #[serde(default)]
    contexts: Vec<String>,
    #[serde(default)]
    checks: Vec<Context>,
}

#[derive(Deserialize)]
struct Context {
    context: String,
}

#[derive(Deserialize)]
struct Rule {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    parameters: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct StatusChecks {
    #[serde(default)]
    strict_required_status_checks_policy: bool,
    #[serde(default)]
    required_status_checks: Vec<Context>,
}

impl GitHub {
    /// The user's permission in a repository; `None` without access.
    pub async fn permission(&self, repo: &RepoName, login: &str) -> Result<Option<RepoPermission>, ApiError> {
        #[derive(Deserialize)]
        struct PermissionResponse {
            permission: String,
            #[serde(default)]
            role_name: String,
        }
        let path = repo_path(repo, &format!("collaborators/{}/permission", encode_segment(login)));
        match self.read::<PermissionResponse>(owner(repo), &path).await {
            Ok(found) => Ok(RepoPermission::from_github(&found.role_name, &found.permission)),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn default_branch(&self, repo: &RepoName) -> Result<String, ApiError> {
        #[derive(Deserialize)]
        struct RepositoryResponse {
            default_branch: String,
        }
        let path = format!("/repos/{repo}");
        Ok(self.read::<RepositoryResponse>(owner(repo), &path).await?.default_branch)
    }

    /// The number of commits by which the head is behind its base.
    pub async fn behind_by(&self, repo: &RepoName, base: &str, head: &Sha) -> Result<u32, ApiError> {
        #[derive(Deserialize)]
        struct Comparison {
            behind_by: u32,
        }
        // Only the first page lists files, which can be megabytes; the counts are on every page.
        let path = repo_path(repo, &format!("compare/{}...{head}?per_page=1&page=2", encode_segment(base)));
        Ok(self.read::<Comparison>(owner(repo), &path).await?.behind_by)
    }

    /// The number of commits by which each head is behind the base, in one query. `None` for a head that is not in the repository itself,
    /// such as a fork's.
    pub(super) async fn all_behind_by(
        &self,
        repo: &RepoName,
        base: &str,
        heads: &[&Sha],
    ) -> Result<Vec<Option<u32>>, ApiError> {
        #[derive(Deserialize)]
        struct ComparisonsResponse {
            repository: Option<Repository>,
        }
        #[derive(Deserialize)]
        struct Repository {
            #[serde(rename = "ref")]
            base: Option<BTreeMap<String, Option<Comparison>>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Comparison {
            behind_by: u32,
        }
        let mut variables: BTreeMap<String, String> =
            heads.iter().enumerate().map(|(index, head)| (format!("h{index}"), head.to_string())).collect();
        let fixed = [("owner", repo.owner()), ("name", repo.name()), ("base", &format!("refs/heads/{base}"))];
        variables.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let graph: GraphqlResponse<ComparisonsResponse> =
            self.query(owner(repo), &comparisons(heads.len()), variables, true).await?;
        let found = graph.data.and_then(|data| data.repository).and_then(|repository| repository.base);
        let mut found = found.unwrap_or_default();
        let behind_by = |index| found.remove(&format!("h{index}")).flatten().map(|one: Comparison| one.behind_by);
        Ok((0..heads.len()).map(behind_by).collect())
    }

    /// The requirements of a branch from its protection and rulesets, as far as Suture may read them.
    pub async fn required(&self, repo: &RepoName, branch: &str) -> Result<BaseRequirements, ApiError> {
        let branch = encode_segment(branch);
        let protection = repo_path(repo, &format!("branches/{branch}/protection/required_status_checks"));
        let protection: Option<Protection> = tolerated(self.read(owner(repo), &protection).await)?;
        let rules = repo_path(repo, &format!("rules/branches/{branch}?per_page=100"));
        let rules: Option<Vec<Rule>> = tolerated(self.read_all(owner(repo), &rules).await)?;
        let known = protection.is_some() || rules.is_some();
        let mut contexts = BTreeSet::new();
        let mut strict = false;
        if let Some(protection) = protection {
            strict |= protection.strict;
            contexts.extend(protection.contexts);
            contexts.extend(protection.checks.into_iter().map(|check| check.context));
        }
        for rule in rules.into_iter().flatten().filter(|rule| rule.kind == "required_status_checks") {
            let Some(parameters) = rule.parameters else { continue };
            let parameters: StatusChecks = serde_json::from_value(parameters)?;
            strict |= parameters.strict_required_status_checks_policy;
            contexts.extend(parameters.required_status_checks.into_iter().map(|check| check.context));
        }
        Ok(BaseRequirements { contexts: known.then(|| contexts.into_iter().collect()), strict })
    }
}

/// The response is 404 for a branch without protection, and 403 if Suture may not read it.
fn tolerated<T>(answer: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ApiError::NotFound { .. } | ApiError::Refused { status: 403, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
