//! Pull requests: read, close, update.

use serde_json::json;

use crate::fakes::Fakes;
use crate::github::model::{PrIx, RepoIx};
use crate::http_api::{ApiRequest, ApiResponse};

impl Fakes {
    pub(super) fn pulls_api(
        &mut self,
        request: &ApiRequest,
        by: &str,
        repo: RepoIx,
        rest: &[&str],
    ) -> Option<ApiResponse> {
        let ["pulls", number, rest @ ..] = rest else { return None };
        let Some(ix) = self.pull_in(repo, number) else { return Some(ApiResponse::not_found()) };
        Some(match (request.method.as_str(), rest) {
            ("GET", []) => {
                self.ask_mergeability(ix);
                ApiResponse::ok(&self.pull_json(ix, true))
            }
            // The client only closes pull requests; a second close changes nothing.
            ("PATCH", []) if request.text("state") == Some("closed") => {
                self.close(ix, by);
                ApiResponse::ok(&self.pull_json(ix, true))
            }
            ("PUT", ["update-branch"]) => self.update_branch(request, by, ix),
            _ => return None,
        })
    }

    /// Merges the base into the head: 202, or 422 if the head has moved, the branch is up to date, or it conflicts.
    fn update_branch(&mut self, request: &ApiRequest, by: &str, ix: PrIx) -> ApiResponse {
        let pull = self.github.pull(ix);
        let expected = request.text("expected_head_sha");
        if !pull.is_open() || pull.head_deleted {
            return ApiResponse::error(422, "Head branch is not writable or the pull request is closed.");
        }
        if expected.is_some_and(|sha| *sha != **pull.head()) {
            return ApiResponse::error(422, "expected head sha didn’t match current head ref.");
        }
        if pull.conflicts {
            return ApiResponse::error(422, "merge conflict between base and head");
        }
        if self.github.behind_by(ix) == 0 {
            return ApiResponse::error(422, "There are no new commits on the base branch.");
        }
        let url = format!("{}/pulls/{}", self.repo_url(pull.repo), pull.number);
        self.push(ix, by, true);
        ApiResponse::json(202, &json!({"message": "Updating pull request branch.", "url": url}))
    }
}
