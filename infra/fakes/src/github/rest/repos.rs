//! Repositories: protection, rules, comparison, permissions.

use serde_json::{Value, json};

use crate::fakes::Fakes;
use crate::github::json::user;
use crate::github::model::{PrIx, RepoIx};
use crate::http_api::{ApiRequest, ApiResponse};
use crate::settings::ProtectionSource;

impl Fakes {
    pub(super) fn repos_api(&self, request: &ApiRequest, repo: RepoIx, rest: &[&str]) -> Option<ApiResponse> {
        if request.method != http::Method::GET {
            return None;
        }
        Some(match rest {
            [] => ApiResponse::ok(&self.repo_json(repo)),
            ["collaborators", login, "permission"] => self.permission_json(login),
            ["branches", branch, "protection", "required_status_checks"] => self.protection_json(repo, branch),
            ["rules", "branches", branch] => ApiResponse::ok(&self.rules_json(repo, branch)),
            ["compare", range @ ..] => self.compare(repo, &range.join("/")),
            _ => return None,
        })
    }

    fn permission_json(&self, login: &str) -> ApiResponse {
        let role = self.permission(login);
        // The legacy field `permission` has only four values.
        let permission = match role {
            "maintain" => "write",
            "triage" => "read",
            other => other,
        };
        ApiResponse::ok(&json!({"permission": permission, "role_name": role, "user": user(login)}))
    }

    fn protection_json(&self, repo: RepoIx, branch: &str) -> ApiResponse {
        let settings = &self.github.repo(repo).settings;
        if branch != settings.base {
            return ApiResponse::error(404, "Branch not found");
        }
        if settings.protection != ProtectionSource::Classic {
            return ApiResponse::error(404, "Branch not protected");
        }
        let required = settings.required_contexts();
        let contexts: Vec<&str> = required.iter().map(|it| it.context.as_str()).collect();
        let checks: Vec<Value> =
            required.iter().map(|it| json!({"context": it.context, "app_id": it.app_id})).collect();
        let url = format!("{}/branches/{branch}/protection/required_status_checks", self.repo_url(repo));
        ApiResponse::ok(&json!({"url": url, "strict": settings.strict, "contexts": contexts, "checks": checks}))
    }

    fn rules_json(&self, repo: RepoIx, branch: &str) -> Value {
        let settings = &self.github.repo(repo).settings;
        if settings.protection != ProtectionSource::Ruleset || branch != settings.base {
            return json!([]);
        }
        let checks: Vec<Value> = settings
            .required_contexts()
            .iter()
            .map(|it| match it.app_id {
                None => json!({"context": it.context}),
                Some(id) => json!({"context": it.context, "integration_id": id}),
            })
            .collect();
        let source = json!({"ruleset_source_type": "Repository", "ruleset_source": settings.name, "ruleset_id": 1});
        let mut rules = vec![
            json!({"type": "deletion"}),
            json!({"type": "required_status_checks", "parameters": {"strict_required_status_checks_policy": settings.strict, "required_status_checks": checks}}),
        ];
        for rule in &mut rules {
            for name in ["ruleset_source_type", "ruleset_source", "ruleset_id"] {
                rule[name] = source[name].clone();
            }
        }
        Value::Array(rules)
    }

    /// Compares `base...head`; the head is a branch or a commit.
    fn compare(&self, repo: RepoIx, range: &str) -> ApiResponse {
        let Some((base, head)) = range.split_once("...") else { return ApiResponse::not_found() };
        let named = |ix: &PrIx| {
            let pull = self.github.pull(*ix);
            pull.head_ref == head || pull.commits.iter().any(|sha| **sha == *head)
        };
        let found = self.github.pulls_of(repo).rev().find(named);
        let Some(ix) = found.filter(|_| base == self.github.repo(repo).settings.base) else {
            return ApiResponse::not_found();
        };
        let (behind, ahead) = (self.github.behind_by(ix), self.github.pull(ix).commits.len());
        let status = if behind == 0 { "ahead" } else { "diverged" };
        ApiResponse::ok(
            &json!({"status": status, "ahead_by": ahead, "behind_by": behind, "total_commits": ahead, "commits": [], "files": []}),
        )
    }
}
