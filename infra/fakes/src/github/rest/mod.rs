//! GitHub's REST API, limited to the endpoints around pull requests. A request to any other path gets 404 and is
//! recorded as unknown.

mod actions;
mod app;
mod checks;
mod issues;
mod pulls;
mod repos;

use super::access::ApiIdentity;
use super::model::{PrIx, RepoIx};
use crate::fakes::Fakes;
use crate::http_api::{ApiRequest, ApiResponse};

impl Fakes {
    pub(crate) fn rest(&mut self, request: &ApiRequest, key: &str, caller: &ApiIdentity) -> ApiResponse {
        let parts: Vec<&str> = request.parts.iter().map(String::as_str).collect();
        let answer = match parts.as_slice() {
            ["repos", owner, name, rest @ ..] => match self.repo_ix(&format!("{owner}/{name}")) {
                None => Some(ApiResponse::not_found()),
                // The App's JWT gives access to the App endpoints, not to repositories.
                Some(_) if *caller == ApiIdentity::App => {
                    Some(ApiResponse::error(401, "A JSON web token could not be decoded"))
                }
                Some(repo) => self.in_repo(request, caller, repo, rest),
            },
            _ => self.at_root(request, key, caller, &parts),
        };
        answer.unwrap_or_else(|| {
            self.unknown_requests.push(format!("{} {}", request.method, request.path));
            ApiResponse::not_found()
        })
    }

    fn in_repo(
        &mut self,
        request: &ApiRequest,
        caller: &ApiIdentity,
        repo: RepoIx,
        rest: &[&str],
    ) -> Option<ApiResponse> {
        let by = caller.login();
        match rest {
            ["pulls", ..] => self.pulls_api(request, by, repo, rest),
            ["issues", ..] => self.issues_api(request, by, repo, rest),
            ["actions", ..] => self.actions_api(request, caller, repo, rest),
            ["check-runs" | "commits", ..] => self.checks_api(request, caller, repo, rest),
            _ => self.repos_api(request, repo, rest),
        }
    }

    /// The pull request with this number, if it exists.
    fn pull_in(&self, repo: RepoIx, number: &str) -> Option<PrIx> {
        self.github.pull_at(repo, number.parse().ok()?)
    }
}
