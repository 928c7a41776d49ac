//! The App: its tokens, its installations, its webhook deliveries.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::audit::AuditedAction;
use crate::clock::stamp;
use crate::fakes::Fakes;
use crate::github::access::ApiIdentity;
use crate::github::json::{app, owner};
use crate::github::model::RepoIx;
use crate::github::webhooks::{DeliveryRecord, listed_code};
use crate::http_api::{ApiRequest, ApiResponse, page};

impl Fakes {
    /// Endpoints outside repositories; `None` if the path is unknown.
    pub(crate) fn at_root(
        &mut self,
        request: &ApiRequest,
        key: &str,
        caller: &ApiIdentity,
        parts: &[&str],
    ) -> Option<ApiResponse> {
        let only_app = || ApiResponse::error(401, "A JSON web token could not be decoded");
        Some(match (request.method.as_str(), parts) {
            ("GET", ["rate_limit"]) => ApiResponse::ok(&self.rate_limit_json(key)),
            ("GET", ["user", "repos"]) => match caller {
                ApiIdentity::Person(_) => {
                    let list = (0..self.github.repos.len()).map(|place| self.repo_json(RepoIx(place))).collect();
                    page(request, &self.settings.api_url, list, |items, _| Value::Array(items))
                }
                ApiIdentity::App | ApiIdentity::Installation(_) => {
                    ApiResponse::error(403, "Resource not accessible by integration")
                }
            },
            ("GET", ["installation", "repositories"]) => self.installation_repositories(request, caller),
            (_, ["app", ..]) if *caller != ApiIdentity::App => only_app(),
            ("GET", ["app"]) => ApiResponse::ok(&self.app_json()),
            ("GET", ["app", "installations"]) => {
                let list = vec![self.installation_json()];
                page(request, &self.settings.api_url, list, |items, _| Value::Array(items))
            }
            ("POST", ["app", "installations", id, "access_tokens"]) => self.new_token(id),
            ("GET", ["app", "hook", "deliveries"]) => self.list_deliveries(request),
            ("POST", ["app", "hook", "deliveries", id, "attempts"]) => self.attempt(id),
            ("GET", ["app", "hook", "config"]) => ApiResponse::ok(
                &json!({"content_type": "json", "insecure_ssl": "0", "secret": "********", "url": "https://suture.example/webhook/github"}),
            ),
            _ => return None,
        })
    }

    fn app_json(&self) -> Value {
        let mut json = app(self.settings.app_id, &self.settings.app_slug);
        json["permissions"] = permissions();
        json["events"] = json!([
            "check_run",
            "check_suite",
            "issue_comment",
            "merge_group",
            "pull_request",
            "pull_request_review",
            "pull_request_review_comment",
            "push",
            "status"
        ]);
        json["installations_count"] = json!(1);
        json
    }

    fn installation_json(&self) -> Value {
        let account = self.github.repos.first().map_or("acme", |repo| repo.owner.as_str());
        json!({
            "id": self.settings.installation_id, "app_id": self.settings.app_id, "app_slug": self.settings.app_slug,
            "account": owner(account), "target_type": "Organization", "repository_selection": "selected",
            "access_tokens_url": format!("{}/app/installations/{}/access_tokens", self.settings.api_url, self.settings.installation_id),
            "permissions": permissions(), "events": [], "suspended_at": null,
        })
    }

    fn new_token(&mut self, id: &str) -> ApiResponse {
        if id != self.settings.installation_id.to_string() {
            return ApiResponse::not_found();
        }
        let token = format!("ghs_{}", self.request_rng.hex(36));
        let secs = SignedDuration::from_secs(self.settings.token_secs);
        let until = self.now().checked_add(secs).unwrap_or(Timestamp::MAX);
        let now = self.now();
        self.installation_tokens.retain(|_, until| *until > now);
        self.installation_tokens.insert(token.clone(), until);
        ApiResponse::json(
            201,
            &json!({"token": token, "expires_at": stamp(until), "permissions": permissions(), "repository_selection": "selected"}),
        )
    }

    fn installation_repositories(&self, request: &ApiRequest, caller: &ApiIdentity) -> ApiResponse {
        if !matches!(caller, ApiIdentity::Installation(_)) {
            return ApiResponse::error(
                403,
                "You must authenticate with an installation access token in order to list repositories for an installation.",
            );
        }
        let list = (0..self.github.repos.len()).map(|place| self.repo_json(RepoIx(place))).collect();
        page(
            request,
            &self.settings.api_url,
            list,
            |items, total| json!({"total_count": total, "repository_selection": "selected", "repositories": items}),
        )
    }

    /// Deliveries are paged by a cursor, newest first.
    fn list_deliveries(&self, request: &ApiRequest) -> ApiResponse {
        let per_page = request.param("per_page").and_then(|it| it.parse().ok()).unwrap_or(30).clamp(1, 100);
        let before: u64 = request
            .param("cursor")
            .and_then(|it| it.strip_prefix("v1_"))
            .and_then(|it| it.parse().ok())
            .unwrap_or(u64::MAX);
        let status = request.param("status").unwrap_or_default().to_owned();
        let is_wanted = |sent: &DeliveryRecord| match status.as_str() {
            "success" => (200..400).contains(&listed_code(sent)),
            "failure" => (400..600).contains(&listed_code(sent)),
            _ => true,
        };
        let mut found = self.listed_deliveries().filter(|(_, sent)| sent.delivery.id < before && is_wanted(sent));
        let shown: Vec<_> = found.by_ref().take(per_page).map(|(_, sent)| sent).collect();
        let more = found.next().is_some();
        let list: Vec<Value> = shown.iter().map(|sent| self.delivery_json(sent)).collect();
        let answer = ApiResponse::ok(&Value::Array(list));
        match shown.last().filter(|_| more) {
            None => answer,
            Some(last) => {
                let (api, cursor) = (&self.settings.api_url, last.delivery.id);
                let filter = if status.is_empty() { String::new() } else { format!("&status={status}") };
                let url = format!("{api}/app/hook/deliveries?per_page={per_page}&cursor=v1_{cursor}{filter}");
                answer.with("link", format!("<{url}>; rel=\"next\""))
            }
        }
    }

    fn attempt(&mut self, id: &str) -> ApiResponse {
        let Ok(number) = id.parse() else { return ApiResponse::not_found() };
        match self.redeliver(number) {
            Ok(()) => {
                self.log("app", AuditedAction::Redelivered, None, None, id);
                ApiResponse::json(202, &json!({}))
            }
            Err("Not Found") => ApiResponse::not_found(),
            Err(message) => ApiResponse::error(422, message),
        }
    }
}

fn permissions() -> Value {
    json!({"checks": "write", "contents": "write", "issues": "write", "metadata": "read", "pull_requests": "write",
           "statuses": "read", "actions": "write", "administration": "read"})
}
