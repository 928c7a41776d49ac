//! What a repository says about people and branches: who may write, what a base requires, how far a head lags behind.

use std::collections::{BTreeMap, BTreeSet};

use domain::command::RepoPermission;
use domain::id::{RepoName, Sha};
use serde::Deserialize;

use super::client::{GitHub, encode_segment};
use super::graphql::{GraphqlResponse, comparisons};
use super::pulls::{owner, repo_path};
use crate::transport::ApiError;

/// What a base branch requires of a head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BaseRequirements {
    /// The contexts that must be green, sorted; `None` if neither protection nor rules could be read.
    pub contexts: Option<Vec<String>>,
    /// Whether the head must have everything of its base.
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
    /// What somebody may do in a repository; `None`: nothing.
    pub async fn permission(&self, repo: &RepoName, login: &str) -> Result<Option<RepoPermission>, ApiError> {
        #[derive(Deserialize)]
        struct Answer {
            permission: String,
            #[serde(default)]
            role_name: String,
        }
        let path = repo_path(repo, &format!("collaborators/{}/permission", encode_segment(login)));
        match self.read::<Answer>(owner(repo), &path).await {
            Ok(answer) => Ok(RepoPermission::from_github(&answer.role_name, &answer.permission)),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The branch that pull requests go to unless they say otherwise.
    pub async fn default_branch(&self, repo: &RepoName) -> Result<String, ApiError> {
        #[derive(Deserialize)]
        struct Answer {
            default_branch: String,
        }
        let path = format!("/repos/{repo}");
        Ok(self.read::<Answer>(owner(repo), &path).await?.default_branch)
    }

    /// How many commits of the base the head lacks.
    pub async fn behind_by(&self, repo: &RepoName, base: &str, head: &Sha) -> Result<u32, ApiError> {
        #[derive(Deserialize)]
        struct Comparison {
            behind_by: u32,
        }
        // Only the first page lists files, which can be megabytes; the counts are on every page.
        let path = repo_path(repo, &format!("compare/{}...{head}?per_page=1&page=2", encode_segment(base)));
        Ok(self.read::<Comparison>(owner(repo), &path).await?.behind_by)
    }

    /// How many commits of the base each of these heads lacks, in one question. None where GitHub does not find the head among the
    /// repository's own commits.
    pub(super) async fn all_behind_by(
        &self,
        repo: &RepoName,
        base: &str,
        heads: &[&Sha],
    ) -> Result<Vec<Option<u32>>, ApiError> {
        #[derive(Deserialize)]
        struct Answer {
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
            heads.iter().enumerate().map(|(place, head)| (format!("h{place}"), head.to_string())).collect();
        let given = [("owner", repo.owner()), ("name", repo.name()), ("base", &format!("refs/heads/{base}"))];
        variables.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let graph: GraphqlResponse<Answer> =
            self.query(owner(repo), &comparisons(heads.len()), variables, true).await?;
        let found = graph.data.and_then(|data| data.repository).and_then(|repository| repository.base);
        let mut found = found.unwrap_or_default();
        let behind_by = |place| found.remove(&format!("h{place}")).flatten().map(|one: Comparison| one.behind_by);
        Ok((0..heads.len()).map(behind_by).collect())
    }

    /// What a branch requires, by its protection and by rulesets. Whichever of the two we may not see is left out.
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

/// A branch without protection answers 404, one we may not look at 403.
fn tolerated<T>(answer: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ApiError::NotFound { .. } | ApiError::Refused { status: 403, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
