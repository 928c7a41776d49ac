//! GitHub's REST API, as far as somebody looking after pull requests needs it. One table of paths; what is not in it
//! answers 404 and is remembered.

mod actions;
mod app;
mod checks;
mod issues;
mod pulls;
mod repos;

use super::access::Caller;
use super::model::{PrIx, RepoIx};
use crate::fakes::Fakes;
use crate::http_api::{ApiRequest, ApiResponse};

impl Fakes {
    pub(crate) fn rest(&mut self, asked: &ApiRequest, caller: &Caller) -> ApiResponse {
        let parts: Vec<&str> = asked.parts.iter().map(String::as_str).collect();
        let method = asked.method.as_str();
        let answer = match parts.as_slice() {
            ["repos", owner, name, rest @ ..] => match self.repo_ix(&format!("{owner}/{name}")) {
                None => Some(ApiResponse::not_found()),
                // The App's own key opens the App, not the repositories.
                Some(_) if *caller == Caller::App => {
                    Some(ApiResponse::error(401, "A JSON web token could not be decoded"))
                }
                Some(repo) => self.in_repo(asked, caller, repo, method, rest),
            },
            _ => self.at_root(asked, caller, method, &parts),
        };
        answer.unwrap_or_else(|| {
            self.unknown_requests.push(format!("{method} {}", asked.path));
            ApiResponse::not_found()
        })
    }

    fn in_repo(
        &mut self,
        asked: &ApiRequest,
        caller: &Caller,
        repo: RepoIx,
        method: &str,
        rest: &[&str],
    ) -> Option<ApiResponse> {
        let by = caller.login();
        match rest {
            ["pulls", ..] => self.pulls_api(asked, by, repo, method, rest),
            ["issues", ..] => self.issues_api(asked, by, repo, method, rest),
            ["actions", ..] => self.actions_api(asked, caller, repo, method, rest),
            ["check-runs" | "commits", ..] => self.checks_api(asked, caller, repo, method, rest),
            _ => self.repos_api(repo, method, rest),
        }
    }

    /// The pull request of this number, if the text is a number and there is one.
    fn pull_in(&self, repo: RepoIx, number: &str) -> Option<PrIx> {
        self.github.pull_at(repo, number.parse().ok()?)
    }
}
