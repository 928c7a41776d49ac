//! Repositories themselves: protection, rules, comparison, permissions, contents.

use serde_json::{Value, json};

use crate::fakes::Fakes;
use crate::github::json::user;
use crate::github::model::RepoIx;
use crate::http_api::{ApiRequest, ApiResponse};
use crate::settings::Protection;

impl Fakes {
    pub(super) fn repos_api(
        &mut self,
        asked: &ApiRequest,
        repo: RepoIx,
        method: &str,
        rest: &[&str],
    ) -> Option<ApiResponse> {
        if method != "GET" {
            return None;
        }
        Some(match rest {
            [] => ApiResponse::ok(&self.repo_json(repo)),
            ["installation"] => ApiResponse::ok(&self.installation_json()),
            ["collaborators", login, "permission"] => self.permission_json(login),
            ["branches", branch] => self.branch_json(repo, branch),
            ["branches", branch, "protection", "required_status_checks"] => self.protection_json(repo, branch),
            ["branches", branch, "protection"] => match self.protection_json(repo, branch) {
                found if found.code == 200 => {
                    let checks: Value = serde_json::from_slice(&found.body).unwrap_or(Value::Null);
                    ApiResponse::ok(
                        &json!({"required_status_checks": checks, "required_pull_request_reviews": {"required_approving_review_count": 1, "dismiss_stale_reviews": self.github.repo(repo).settings.dismiss_stale_reviews}}),
                    )
                }
                refused => refused,
            },
            ["rules", "branches", branch] => ApiResponse::ok(&self.rules_json(repo, branch)),
            ["compare", range @ ..] => self.compare(repo, &range.join("/")),
            ["git", "ref" | "refs", "heads", branch @ ..] => self.git_ref(repo, &branch.join("/")),
            ["contents", path @ ..] => self.contents(asked, &path.join("/")),
            _ => return None,
        })
    }

    fn permission_json(&self, login: &str) -> ApiResponse {
        let role = self.permission(login);
        // The old field knows four words only.
        let permission = match role {
            "maintain" => "write",
            "triage" => "read",
            other => other,
        };
        ApiResponse::ok(&json!({"permission": permission, "role_name": role, "user": user(login)}))
    }

    fn branch_json(&self, repo: RepoIx, branch: &str) -> ApiResponse {
        if branch != self.github.repo(repo).settings.base {
            return ApiResponse::error(404, "Branch not found");
        }
        let protected = self.github.repo(repo).settings.protection != Protection::None;
        ApiResponse::ok(&json!({"name": branch, "commit": {"sha": self.github.base_tip(repo)}, "protected": protected}))
    }

    fn protection_json(&self, repo: RepoIx, branch: &str) -> ApiResponse {
        let settings = &self.github.repo(repo).settings;
        if branch != settings.base {
            return ApiResponse::error(404, "Branch not found");
        }
        if settings.protection != Protection::Classic {
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
        if settings.protection != Protection::Ruleset || branch != settings.base {
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

    /// `base...head`, by branch or commit.
    fn compare(&self, repo: RepoIx, range: &str) -> ApiResponse {
        let Some((base, head)) = range.split_once("...") else { return ApiResponse::not_found() };
        let strip = |name: &str| name.rsplit_once(':').map_or(name, |(_, branch)| branch).to_owned();
        let (base, head) = (strip(base), strip(head));
        let is_base = |name: &str| {
            name == self.github.repo(repo).settings.base || self.github.repo(repo).base.iter().any(|it| **it == *name)
        };
        let of = |name: &str| {
            self.github.pulls_of(repo).rev().find(|ix| {
                let pull = self.github.pull(*ix);
                pull.head_ref == name || pull.commits.iter().any(|sha| **sha == *name)
            })
        };
        let (ix, turned) = match (is_base(&base), is_base(&head)) {
            (true, false) => (of(&head), false),
            (false, true) => (of(&base), true),
            (true, true) | (false, false) => (None, false),
        };
        let Some(ix) = ix else { return ApiResponse::not_found() };
        let (behind, ahead) = (self.github.behind_by(ix), self.github.pull(ix).commits.len());
        let (ahead, behind) = if turned { (behind, ahead) } else { (ahead, behind) };
        let status = match (ahead, behind) {
            (0, 0) => "identical",
            (_, 0) => "ahead",
            (0, _) => "behind",
            _ => "diverged",
        };
        ApiResponse::ok(
            &json!({"status": status, "ahead_by": ahead, "behind_by": behind, "total_commits": ahead, "commits": [], "files": []}),
        )
    }

    fn git_ref(&self, repo: RepoIx, branch: &str) -> ApiResponse {
        let head = self
            .github
            .pulls_of(repo)
            .rev()
            .map(|ix| self.github.pull(ix))
            .find(|pull| pull.head_ref == branch && !pull.head_deleted);
        let sha = match head {
            Some(pull) => pull.head().clone(),
            None if branch == self.github.repo(repo).settings.base => self.github.base_tip(repo),
            None => return ApiResponse::not_found(),
        };
        ApiResponse::ok(
            &json!({"ref": format!("refs/heads/{branch}"), "node_id": "REF_1", "object": {"sha": sha, "type": "commit"}}),
        )
    }

    fn contents(&self, asked: &ApiRequest, path: &str) -> ApiResponse {
        if path != ".policy.yml" && path != "README.md" {
            return ApiResponse::not_found();
        }
        use base64::Engine as _;
        let content =
            base64::engine::general_purpose::STANDARD.encode("policy:\n  approval:\n    - separation of duties\n");
        let at = asked.param("ref").unwrap_or("main");
        ApiResponse::ok(
            &json!({"type": "file", "encoding": "base64", "name": path, "path": path, "sha": at, "content": content, "size": 48}),
        )
    }
}
