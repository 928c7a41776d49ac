//! Issues, comments and labels. Most of these endpoints accept pull requests as well.

use serde_json::Value;

use crate::audit::AuditedAction;
use crate::fakes::Fakes;
use crate::github::json::label;
use crate::github::model::{PullOrIssue, RepoIx};
use crate::http_api::{ApiRequest, ApiResponse, page};

/// Maximum length of a body.
const BODY: usize = 65_536;

impl Fakes {
    pub(super) fn issues_api(
        &mut self,
        request: &ApiRequest,
        by: &str,
        repo: RepoIx,
        rest: &[&str],
    ) -> Option<ApiResponse> {
        match (request.method.as_str(), rest) {
            ("GET", ["issues"]) => return Some(self.list_issues(request, repo)),
            ("POST", ["issues"]) => return Some(self.create_issue(request, by, repo)),
            _ => {}
        }
        let ["issues", number, rest @ ..] = rest else { return None };
        let number: u64 = number.parse().unwrap_or(0);
        let Some(numbered) = self.github.numbered(repo, number) else { return Some(ApiResponse::not_found()) };
        Some(match (request.method.as_str(), rest) {
            ("GET", []) => ApiResponse::ok(&self.issue_or_pull(numbered)),
            ("PATCH", []) => match numbered {
                PullOrIssue::Issue(place) => self.edit_issue(request, by, place),
                PullOrIssue::Pull(_) => return None,
            },
            ("GET", ["comments"]) => {
                let places = self.github.comments_of.get(&(repo, number)).cloned().unwrap_or_default();
                let list = places.into_iter().map(|place| self.comment_json(&self.github.comments[place])).collect();
                page(request, &self.settings.api_url, list, |items, _| Value::Array(items))
            }
            ("POST", ["comments"]) => match request.text("body") {
                None | Some("") => ApiResponse::invalid("IssueComment", "body can't be blank"),
                Some(body) if body.chars().count() > BODY => {
                    ApiResponse::invalid("IssueComment", "body is too long (maximum is 65536 characters)")
                }
                Some(body) => match self.write_comment(repo, number, by, body) {
                    None => ApiResponse::not_found(),
                    Some(place) => ApiResponse::json(201, &self.comment_json(&self.github.comments[place])),
                },
            },
            ("POST", ["labels"]) => self.add_labels(request, by, numbered),
            ("DELETE", ["labels", name]) => self.remove_label(by, numbered, name),
            _ => return None,
        })
    }

    fn issue_or_pull(&self, numbered: PullOrIssue) -> Value {
        match numbered {
            PullOrIssue::Pull(ix) => self.pull_as_issue(ix),
            PullOrIssue::Issue(place) => self.issue_json(&self.github.issues[place]),
        }
    }

    fn labels_of(&self, numbered: PullOrIssue) -> Vec<String> {
        match numbered {
            PullOrIssue::Pull(ix) => self.github.pull(ix).labels.clone(),
            PullOrIssue::Issue(place) => self.github.issues[place].labels.clone(),
        }
    }

    fn list_issues(&self, request: &ApiRequest, repo: RepoIx) -> ApiResponse {
        let state = request.param("state").unwrap_or("open");
        let labels: Vec<&str> = request.param("labels").map_or_else(Vec::new, |it| it.split(',').collect());
        let is_open = |numbered: PullOrIssue| match numbered {
            PullOrIssue::Pull(ix) => self.github.pull(ix).is_open(),
            PullOrIssue::Issue(place) => self.github.issues[place].open,
        };
        let found = self.github.repo(repo).numbers.iter().rev().copied().filter(|numbered| {
            let own = self.labels_of(*numbered);
            (state == "all" || is_open(*numbered) == (state == "open"))
                && labels.iter().all(|name| own.iter().any(|label| label.eq_ignore_ascii_case(name)))
        });
        let list = found.map(|numbered| self.issue_or_pull(numbered)).collect();
        page(request, &self.settings.api_url, list, |items, _| Value::Array(items))
    }

    fn create_issue(&mut self, request: &ApiRequest, by: &str, repo: RepoIx) -> ApiResponse {
        let Some(title) = request.text("title") else { return ApiResponse::invalid("Issue", "title can't be blank") };
        let place =
            self.open_issue(repo, by, title, request.text("body").unwrap_or_default(), names(&request.json["labels"]));
        ApiResponse::json(201, &self.issue_json(&self.github.issues[place]))
    }

    fn edit_issue(&mut self, request: &ApiRequest, by: &str, place: usize) -> ApiResponse {
        if let Some(state) = request.text("state") {
            self.set_issue_open(place, state == "open", request.text("state_reason"), by);
        }
        let now = self.now();
        let issue = &mut self.github.issues[place];
        let mut edited = request.json["labels"].is_array();
        for (field, given) in [(&mut issue.title, request.text("title")), (&mut issue.body, request.text("body"))] {
            if let Some(given) = given {
                given.clone_into(field);
                edited = true;
            }
        }
        if request.json["labels"].is_array() {
            issue.labels = names(&request.json["labels"]);
        }
        if edited {
            issue.updated_at = now;
            let (repo, number) = (issue.repo, issue.number);
            let pr = self.pr_named(repo, number);
            self.log(by, AuditedAction::IssueEdited, Some(pr), None, "edited");
            self.emit_issue(place, "edited", by);
        }
        ApiResponse::ok(&self.issue_json(&self.github.issues[place]))
    }

    fn add_labels(&mut self, request: &ApiRequest, by: &str, numbered: PullOrIssue) -> ApiResponse {
        let given = if request.json.is_array() { names(&request.json) } else { names(&request.json["labels"]) };
        for name in given {
            match numbered {
                PullOrIssue::Pull(ix) => {
                    self.label(ix, &name, true, by);
                }
                PullOrIssue::Issue(place) => {
                    self.label_issue(place, &name, true, by);
                }
            }
        }
        ApiResponse::ok(&self.labels_of(numbered).iter().map(|name| label(name)).collect())
    }

    fn remove_label(&mut self, by: &str, numbered: PullOrIssue, name: &str) -> ApiResponse {
        let gone = match numbered {
            PullOrIssue::Pull(ix) => self.label(ix, name, false, by),
            PullOrIssue::Issue(place) => self.label_issue(place, name, false, by),
        };
        if !gone {
            return ApiResponse::error(404, "Label does not exist");
        }
        ApiResponse::ok(&self.labels_of(numbered).iter().map(|name| label(name)).collect())
    }
}

/// Labels, given as names or as objects with names.
fn names(list: &Value) -> Vec<String> {
    let name = |value: &Value| value.as_str().or_else(|| value["name"].as_str()).map(str::to_owned);
    list.as_array().map_or_else(Vec::new, |list| list.iter().filter_map(name).collect())
}
