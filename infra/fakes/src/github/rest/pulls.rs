//! Pull requests: read, list, create, close, reopen, update, merge, review.

use serde_json::{Value, json};

use crate::fakes::Fakes;
use crate::github::changes::Opening;
use crate::github::json::user;
use crate::github::model::{PrIx, PullState, RepoIx, ReviewState};
use crate::http_api::{ApiRequest, ApiResponse, page};

impl Fakes {
    pub(super) fn pulls_api(
        &mut self,
        asked: &ApiRequest,
        by: &str,
        repo: RepoIx,
        method: &str,
        rest: &[&str],
    ) -> Option<ApiResponse> {
        match (method, rest) {
            ("GET", ["pulls"]) => return Some(self.list_pulls(asked, repo)),
            ("POST", ["pulls"]) => return Some(self.create_pull(asked, by, repo)),
            (_, ["pulls", "comments", id, reactions @ ..]) => {
                return self.reactions_api(asked, by, repo, method, id, reactions);
            }
            _ => {}
        }
        let ["pulls", number, rest @ ..] = rest else { return None };
        let Some(ix) = self.pull_in(repo, number) else { return Some(ApiResponse::not_found()) };
        Some(match (method, rest) {
            ("GET", []) => {
                self.ask_mergeability(ix);
                ApiResponse::ok(&self.pull_json(ix, true))
            }
            ("PATCH", []) => self.edit_pull(asked, by, ix),
            ("PUT", ["update-branch"]) => self.update_branch(asked, by, ix),
            ("GET", ["merge"]) => {
                if self.github.pull(ix).state == PullState::Merged {
                    ApiResponse::empty(204)
                } else {
                    ApiResponse::not_found()
                }
            }
            ("PUT", ["merge"]) => self.merge_by(asked, by, ix),
            ("GET", ["reviews"]) => {
                let reviews = &self.github.pull(ix).reviews;
                let list = reviews.iter().map(|review| self.review_json(ix, review, false)).collect();
                page(asked, &self.settings.api_url, list, |items, _| Value::Array(items))
            }
            ("POST", ["reviews"]) => self.create_review(asked, by, ix),
            ("GET", ["commits"]) => {
                let list = self.github.pull(ix).commits.iter().map(|sha| json!({"sha": sha, "commit": {"message": "Repair"}, "author": user(&self.github.pull(ix).author)}));
                page(asked, &self.settings.api_url, list.collect(), |items, _| Value::Array(items))
            }
            ("GET", ["comments"]) => ApiResponse::ok(&json!([])),
            ("GET", ["files"]) => ApiResponse::ok(
                &json!([{"sha": self.github.pull(ix).head(), "filename": "Cargo.toml", "status": "modified", "additions": 12, "deletions": 3, "changes": 15}]),
            ),
            _ => return None,
        })
    }

    fn list_pulls(&self, asked: &ApiRequest, repo: RepoIx) -> ApiResponse {
        let state = asked.param("state").unwrap_or("open");
        let wanted = |ix: &PrIx| {
            let pull = self.github.pull(*ix);
            let owner = &self.github.repo(repo).owner;
            let label =
                if pull.fork { format!("contributor:{}", pull.head_ref) } else { format!("{owner}:{}", pull.head_ref) };
            (state == "all" || pull.is_open() == (state == "open"))
                && asked.param("head").is_none_or(|head| head == label)
                && asked.param("base").is_none_or(|base| base == pull.base_ref)
        };
        let ascending =
            asked.param("direction").unwrap_or(if asked.param("sort").is_some() { "asc" } else { "desc" }) == "asc";
        // The open ones are few among many: they have a list of their own.
        let mut found: Vec<PrIx> = match state {
            "open" => self.open_pulls[repo.0].iter().copied().filter(wanted).collect(),
            _ => self.github.pulls_of(repo).filter(wanted).collect(),
        };
        if asked.param("sort") == Some("updated") {
            found.sort_by_key(|ix| self.github.pull(*ix).updated_at);
        }
        if !ascending {
            found.reverse();
        }
        let list = found.into_iter().map(|ix| self.pull_json(ix, false)).collect();
        page(asked, &self.settings.api_url, list, |items, _| Value::Array(items))
    }

    /// A second pull request for the same head is refused.
    fn create_pull(&mut self, asked: &ApiRequest, by: &str, repo: RepoIx) -> ApiResponse {
        let (Some(head), Some(base)) = (asked.text("head"), asked.text("base")) else {
            return ApiResponse::invalid("PullRequest", "head and base can't be blank");
        };
        let head_ref = head.split_once(':').map_or(head, |(_, branch)| branch);
        let owner = self.github.repo(repo).owner.clone();
        if base != self.github.repo(repo).settings.base {
            return ApiResponse::invalid("PullRequest", "base is invalid");
        }
        if self.open_pulls[repo.0].iter().any(|ix| self.github.pull(*ix).head_ref == head_ref) {
            return ApiResponse::invalid(
                "PullRequest",
                &format!("A pull request already exists for {owner}:{head_ref}."),
            );
        }
        let ix = self.open(Opening {
            repo,
            author: by.to_owned(),
            title: asked.text("title").unwrap_or(head_ref).to_owned(),
            body: asked.text("body").unwrap_or_default().to_owned(),
            head_ref: head_ref.to_owned(),
            labels: Vec::new(),
            draft: asked.json["draft"].as_bool().unwrap_or(false),
            fork: false,
            vulnerability: None,
        });
        ApiResponse::json(201, &self.pull_json(ix, true))
    }

    fn edit_pull(&mut self, asked: &ApiRequest, by: &str, ix: PrIx) -> ApiResponse {
        match asked.text("state") {
            Some("closed") => self.close(ix, by),
            Some("open") => {
                if let Err(message) = self.reopen(ix, by) {
                    return ApiResponse::invalid("PullRequest", message);
                }
            }
            Some(_) => return ApiResponse::invalid("PullRequest", "state is not included in the list"),
            None => {}
        }
        let (title, body) = (asked.text("title").map(str::to_owned), asked.text("body").map(str::to_owned));
        if title.is_some() || body.is_some() {
            let pull = &mut self.github.pulls[ix.0];
            pull.title = title.unwrap_or_else(|| std::mem::take(&mut pull.title));
            pull.body = body.unwrap_or_else(|| std::mem::take(&mut pull.body));
            self.note(by, crate::audit::Action::PullEdited, ix, "");
            self.emit_pull(ix, "edited", by, &[("changes", json!({}))]);
        }
        ApiResponse::ok(&self.pull_json(ix, true))
    }

    /// Merges the base into the head: 202, or 422 if the head has moved, nothing is new, or it conflicts.
    fn update_branch(&mut self, asked: &ApiRequest, by: &str, ix: PrIx) -> ApiResponse {
        let pull = self.github.pull(ix);
        let expected = asked.text("expected_head_sha");
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

    fn merge_by(&mut self, asked: &ApiRequest, by: &str, ix: PrIx) -> ApiResponse {
        let pull = self.github.pull(ix);
        if asked.text("sha").is_some_and(|sha| *sha != **pull.head()) {
            return ApiResponse::error(409, "Head branch was modified. Review and try the merge again.");
        }
        if pull.conflicts || !pull.is_open() || pull.draft || !self.is_unblocked(ix) {
            return ApiResponse::error(405, "Pull Request is not mergeable");
        }
        if self.github.repo(pull.repo).settings.strict && self.github.behind_by(ix) > 0 {
            return ApiResponse::error(405, "Base branch was modified. Review and try the merge again.");
        }
        self.merge(ix, by);
        let sha = self.github.pull(ix).merge_commit.clone();
        ApiResponse::ok(&json!({"sha": sha, "merged": true, "message": "Pull Request successfully merged"}))
    }

    fn create_review(&mut self, asked: &ApiRequest, by: &str, ix: PrIx) -> ApiResponse {
        let state = match asked.text("event") {
            Some("APPROVE") if self.github.pull(ix).author == by => {
                return ApiResponse::error(422, "Can not approve your own pull request");
            }
            Some("APPROVE") => ReviewState::Approved,
            Some("REQUEST_CHANGES") => ReviewState::ChangesRequested,
            _ => ReviewState::Commented,
        };
        let place = self.review(ix, by, state, asked.text("body").unwrap_or_default());
        ApiResponse::ok(&self.review_json(ix, &self.github.pull(ix).reviews[place], false))
    }
}
