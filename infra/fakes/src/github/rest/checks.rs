//! Check runs.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::audit::AuditedAction;
use crate::fakes::Fakes;
use crate::github::access::ApiIdentity;
use crate::github::commit::FakeCheckRun;
use crate::github::model::{RepoIx, Sha};
use crate::http_api::{ApiRequest, ApiResponse, page};

/// Maximum length of a check run's text.
const TEXT: usize = 65_535;

impl Fakes {
    pub(super) fn checks_api(
        &mut self,
        request: &ApiRequest,
        caller: &ApiIdentity,
        repo: RepoIx,
        rest: &[&str],
    ) -> Option<ApiResponse> {
        Some(match (request.method.as_str(), rest) {
            ("POST", ["check-runs"]) => self.create_check(request, caller, repo),
            ("PATCH", ["check-runs", id]) => self.update_check(request, caller, repo, id),
            ("POST", ["check-runs", id, "rerequest"]) => self.rerequest(caller, id),
            ("GET", ["commits", sha, "check-runs"]) => self.list_checks(request, repo, sha),
            _ => return None,
        })
    }

    fn check_of(&self, id: &str) -> Option<(Sha, FakeCheckRun)> {
        let id: u64 = id.parse().ok()?;
        let sha = self.github.sha_of_check.get(&id).cloned()?;
        let check = self.github.commits.get(&sha)?.checks.iter().find(|check| check.id == id)?.clone();
        Some((sha, check))
    }

    /// Creates a check run. Only Apps may do so.
    fn create_check(&mut self, request: &ApiRequest, caller: &ApiIdentity, repo: RepoIx) -> ApiResponse {
        let ApiIdentity::Installation(by) = caller else {
            return ApiResponse::error(403, "You must authenticate via a GitHub App.");
        };
        let (Some(name), Some(sha)) = (request.text("name"), request.text("head_sha")) else {
            return ApiResponse::invalid("CheckRun", "name and head_sha are required");
        };
        let sha: Sha = Arc::from(sha);
        if !self.github.commits.contains_key(&sha) {
            return ApiResponse::error(422, &format!("No commit found for SHA: {sha}"));
        }
        let (app_id, slug) = (self.settings.app_id, self.settings.app_slug.clone());
        let mut check = self.new_check(&sha, name, app_id, &slug);
        if let Err(message) = fill(&mut check, request, self.now()) {
            return ApiResponse::invalid("CheckRun", message);
        }
        self.put_check(repo, &sha, check.clone(), by);
        ApiResponse::json(201, &self.check_json(repo, &sha, &check))
    }

    fn update_check(&mut self, request: &ApiRequest, caller: &ApiIdentity, repo: RepoIx, id: &str) -> ApiResponse {
        let Some((sha, mut check)) = self.check_of(id) else { return ApiResponse::not_found() };
        let ApiIdentity::Installation(by) = caller else {
            return ApiResponse::error(403, "You must authenticate via a GitHub App.");
        };
        if check.app_id != self.settings.app_id {
            return ApiResponse::error(403, "Invalid app_id: the check run belongs to another App");
        }
        if let Err(message) = fill(&mut check, request, self.now()) {
            return ApiResponse::invalid("CheckRun", message);
        }
        self.put_check(repo, &sha, check.clone(), by);
        ApiResponse::ok(&self.check_json(repo, &sha, &check))
    }

    /// Rerequests a check run. Only its own App may do so.
    fn rerequest(&mut self, caller: &ApiIdentity, id: &str) -> ApiResponse {
        let Some((_, check)) = self.check_of(id) else { return ApiResponse::not_found() };
        if check.app_id != self.settings.app_id || !matches!(caller, ApiIdentity::Installation(_)) {
            return ApiResponse::error(403, "Resource not accessible by integration");
        }
        self.log(caller.login(), AuditedAction::CheckRerequested, None, None, id);
        ApiResponse::json(201, &json!({}))
    }

    fn list_checks(&self, request: &ApiRequest, repo: RepoIx, sha: &str) -> ApiResponse {
        let latest = request.param("filter").unwrap_or("latest") == "latest";
        let checks = self
            .github
            .commits
            .get(sha)
            .map_or_else(Vec::new, |it| if latest { it.current_checks() } else { it.checks.iter().collect() });
        let wanted = |check: &&FakeCheckRun| {
            request.param("check_name").is_none_or(|name| name == check.name)
                && request.param("app_id").is_none_or(|id| id == check.app_id.to_string())
                && request.param("status").is_none_or(|status| status == check.status)
        };
        let list = checks.into_iter().filter(wanted).map(|check| self.check_json(repo, sha, check)).collect();
        page(request, &self.settings.api_url, list, |items, total| json!({"total_count": total, "check_runs": items}))
    }
}

/// Identifiers of the action buttons: at most three, each with a short label, description and identifier.
fn buttons(actions: &[Value]) -> Result<Vec<String>, &'static str> {
    let short = |action: &Value, field: &str, most: usize| {
        action[field].as_str().is_some_and(|text| !text.is_empty() && text.chars().count() <= most)
    };
    if actions.len() > 3 {
        return Err("actions exceeds a maximum of 3");
    }
    let fits = |action: &Value| {
        short(action, "label", 20) && short(action, "description", 40) && short(action, "identifier", 20)
    };
    if !actions.iter().all(fits) {
        return Err("actions: label, description and identifier are required, of at most 20, 40 and 20 characters");
    }
    Ok(actions.iter().filter_map(|action| action["identifier"].as_str()).map(str::to_owned).collect())
}

/// Applies the request's fields to a check run.
fn fill(check: &mut FakeCheckRun, request: &ApiRequest, now: jiff::Timestamp) -> Result<(), &'static str> {
    let take = |field: &mut String, given: Option<&str>| {
        if let Some(given) = given {
            given.clone_into(field);
        }
    };
    take(&mut check.name, request.text("name"));
    take(&mut check.external_id, request.text("external_id"));
    take(&mut check.details_url, request.text("details_url"));
    take(&mut check.status, request.text("status"));
    let output = &request.json["output"];
    for (field, name) in [(&mut check.title, "title"), (&mut check.summary, "summary"), (&mut check.text, "text")] {
        let given = output[name].as_str();
        if given.is_some_and(|given| given.chars().count() > TEXT) {
            return Err("output exceeds a maximum length of 65535");
        }
        take(field, given);
    }
    if let Some(actions) = request.json["actions"].as_array() {
        check.actions = buttons(actions)?;
    }
    if let Some(conclusion) = request.text("conclusion") {
        check.conclusion = Some(conclusion.to_owned());
        "completed".clone_into(&mut check.status);
        check.completed_at = request.text("completed_at").and_then(|at| at.parse().ok()).or(Some(now));
    } else if check.status == "completed" && check.conclusion.is_none() {
        return Err("conclusion is required when status is completed");
    }
    Ok(())
}
