//! Issues, comments, labels, reactions. Pull requests are issues to most of these paths.

use serde_json::{Value, json};

use crate::audit::Action;
use crate::fakes::Fakes;
use crate::github::json::{label, user};
use crate::github::model::{Numbered, RepoIx};
use crate::http_api::{ApiRequest, ApiResponse, page};

/// The longest body GitHub takes.
const BODY: usize = 65_536;

impl Fakes {
    pub(super) fn issues_api(
        &mut self,
        asked: &ApiRequest,
        by: &str,
        repo: RepoIx,
        method: &str,
        rest: &[&str],
    ) -> Option<ApiResponse> {
        match (method, rest) {
            ("GET", ["issues"]) => return Some(self.list_issues(asked, repo)),
            ("POST", ["issues"]) => return Some(self.create_issue(asked, by, repo)),
            (_, ["issues", "comments", id]) => return self.comment_api(asked, by, repo, method, id),
            (_, ["issues", "comments", id, rest @ ..]) => return self.reactions_api(asked, by, repo, method, id, rest),
            _ => {}
        }
        let ["issues", number, rest @ ..] = rest else { return None };
        let number: u64 = number.parse().unwrap_or(0);
        let Some(numbered) = self.github.numbered(repo, number) else { return Some(ApiResponse::not_found()) };
        Some(match (method, rest) {
            ("GET", []) => ApiResponse::ok(&self.issue_or_pull(numbered)),
            ("PATCH", []) => self.edit_issue(asked, by, numbered),
            ("GET", ["comments"]) => {
                let places = self.github.comments_of.get(&(repo, number)).cloned().unwrap_or_default();
                let list = places.into_iter().map(|place| self.comment_json(&self.github.comments[place])).collect();
                page(asked, &self.settings.api_url, list, |items, _| Value::Array(items))
            }
            ("POST", ["comments"]) => match asked.text("body") {
                None | Some("") => ApiResponse::invalid("IssueComment", "body can't be blank"),
                Some(body) if body.chars().count() > BODY => {
                    ApiResponse::invalid("IssueComment", "body is too long (maximum is 65536 characters)")
                }
                Some(body) => match self.write_comment(repo, number, by, body) {
                    None => ApiResponse::not_found(),
                    Some(place) => ApiResponse::json(201, &self.comment_json(&self.github.comments[place])),
                },
            },
            ("GET", ["labels"]) => {
                let list = self.labels_of(numbered).iter().map(|name| label(name)).collect();
                page(asked, &self.settings.api_url, list, |items, _| Value::Array(items))
            }
            ("POST", ["labels"]) => self.add_labels(asked, by, numbered),
            ("DELETE", ["labels", name]) => self.remove_label(by, numbered, name),
            _ => return None,
        })
    }

    fn issue_or_pull(&self, numbered: Numbered) -> Value {
        match numbered {
            Numbered::Pull(ix) => self.pull_as_issue(ix),
            Numbered::Issue(place) => self.issue_json(&self.github.issues[place]),
        }
    }

    fn labels_of(&self, numbered: Numbered) -> Vec<String> {
        match numbered {
            Numbered::Pull(ix) => self.github.pull(ix).labels.clone(),
            Numbered::Issue(place) => self.github.issues[place].labels.clone(),
        }
    }

    fn list_issues(&self, asked: &ApiRequest, repo: RepoIx) -> ApiResponse {
        let state = asked.param("state").unwrap_or("open");
        let labels: Vec<&str> = asked.param("labels").map_or_else(Vec::new, |it| it.split(',').collect());
        let is_open = |numbered: Numbered| match numbered {
            Numbered::Pull(ix) => self.github.pull(ix).is_open(),
            Numbered::Issue(place) => self.github.issues[place].open,
        };
        let creator = |numbered: Numbered| match numbered {
            Numbered::Pull(ix) => &self.github.pull(ix).author,
            Numbered::Issue(place) => &self.github.issues[place].user,
        };
        let found = self.github.repo(repo).numbers.iter().rev().copied().filter(|numbered| {
            let own = self.labels_of(*numbered);
            (state == "all" || is_open(*numbered) == (state == "open"))
                && labels.iter().all(|name| own.iter().any(|label| label.eq_ignore_ascii_case(name)))
                && asked.param("creator").is_none_or(|login| creator(*numbered) == login)
        });
        let list = found.map(|numbered| self.issue_or_pull(numbered)).collect();
        page(asked, &self.settings.api_url, list, |items, _| Value::Array(items))
    }

    fn create_issue(&mut self, asked: &ApiRequest, by: &str, repo: RepoIx) -> ApiResponse {
        let Some(title) = asked.text("title") else { return ApiResponse::invalid("Issue", "title can't be blank") };
        let place =
            self.open_issue(repo, by, title, asked.text("body").unwrap_or_default(), names(&asked.json["labels"]));
        ApiResponse::json(201, &self.issue_json(&self.github.issues[place]))
    }

    fn edit_issue(&mut self, asked: &ApiRequest, by: &str, numbered: Numbered) -> ApiResponse {
        let place = match numbered {
            Numbered::Issue(place) => place,
            Numbered::Pull(ix) => {
                if asked.text("state") == Some("closed") {
                    self.close(ix, by);
                }
                return ApiResponse::ok(&self.pull_as_issue(ix));
            }
        };
        if let Some(state) = asked.text("state") {
            self.set_issue_open(place, state == "open", asked.text("state_reason"), by);
        }
        let now = self.now();
        let issue = &mut self.github.issues[place];
        let mut edited = asked.json["labels"].is_array();
        for (field, given) in [(&mut issue.title, asked.text("title")), (&mut issue.body, asked.text("body"))] {
            if let Some(given) = given {
                given.clone_into(field);
                edited = true;
            }
        }
        if asked.json["labels"].is_array() {
            issue.labels = names(&asked.json["labels"]);
        }
        if edited {
            issue.updated_at = now;
            let (repo, number) = (issue.repo, issue.number);
            let pr = self.pr_named(repo, number);
            self.log(by, Action::IssueEdited, Some(pr), None, "edited");
            self.emit_issue(place, "edited", by);
        }
        ApiResponse::ok(&self.issue_json(&self.github.issues[place]))
    }

    fn add_labels(&mut self, asked: &ApiRequest, by: &str, numbered: Numbered) -> ApiResponse {
        let given = if asked.json.is_array() { names(&asked.json) } else { names(&asked.json["labels"]) };
        for name in given {
            match numbered {
                Numbered::Pull(ix) => {
                    self.label(ix, &name, true, by);
                }
                Numbered::Issue(place) => {
                    self.label_issue(place, &name, true, by);
                }
            }
        }
        ApiResponse::ok(&self.labels_of(numbered).iter().map(|name| label(name)).collect())
    }

    fn remove_label(&mut self, by: &str, numbered: Numbered, name: &str) -> ApiResponse {
        let gone = match numbered {
            Numbered::Pull(ix) => self.label(ix, name, false, by),
            Numbered::Issue(place) => self.label_issue(place, name, false, by),
        };
        if !gone {
            return ApiResponse::error(404, "Label does not exist");
        }
        ApiResponse::ok(&self.labels_of(numbered).iter().map(|name| label(name)).collect())
    }

    fn comment_api(
        &mut self,
        asked: &ApiRequest,
        by: &str,
        repo: RepoIx,
        method: &str,
        id: &str,
    ) -> Option<ApiResponse> {
        let Some(place) = id.parse().ok().and_then(|id| self.comment_place(repo, id)) else {
            return Some(ApiResponse::not_found());
        };
        Some(match method {
            "GET" => ApiResponse::ok(&self.comment_json(&self.github.comments[place])),
            "PATCH" => match asked.text("body") {
                None | Some("") => ApiResponse::invalid("IssueComment", "body can't be blank"),
                Some(body) => {
                    self.edit_comment(place, by, body);
                    ApiResponse::ok(&self.comment_json(&self.github.comments[place]))
                }
            },
            _ => return None,
        })
    }

    /// Reactions to a comment: 201 for a new one, 200 for the one that is there.
    pub(super) fn reactions_api(
        &mut self,
        asked: &ApiRequest,
        by: &str,
        repo: RepoIx,
        method: &str,
        id: &str,
        rest: &[&str],
    ) -> Option<ApiResponse> {
        let Some(place) = id.parse().ok().and_then(|id| self.comment_place(repo, id)) else {
            return Some(ApiResponse::not_found());
        };
        let shown = |id: u64, login: &str, content: &str| json!({"id": id, "node_id": format!("REA_{id}"), "user": user(login), "content": content});
        Some(match (method, rest) {
            ("GET", ["reactions"]) => {
                let reactions = &self.github.comments[place].reactions;
                let list = reactions.iter().map(|it| shown(it.id, &it.user, &it.content)).collect();
                page(asked, &self.settings.api_url, list, |items, _| Value::Array(items))
            }
            ("POST", ["reactions"]) => {
                let content = asked.text("content").unwrap_or_default();
                if !["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"].contains(&content) {
                    return Some(ApiResponse::invalid("Reaction", "content is not included in the list"));
                }
                let (new, reaction) = self.react(place, by, content);
                ApiResponse::json(if new { 201 } else { 200 }, &shown(reaction.id, &reaction.user, &reaction.content))
            }
            ("DELETE", ["reactions", reaction]) => {
                match reaction.parse().ok().is_some_and(|id| self.unreact(place, by, id)) {
                    true => ApiResponse::empty(204),
                    false => ApiResponse::not_found(),
                }
            }
            _ => return None,
        })
    }
}

/// Labels, given as names or as objects with names.
fn names(list: &Value) -> Vec<String> {
    let name = |value: &Value| value.as_str().or_else(|| value["name"].as_str()).map(str::to_owned);
    list.as_array().map_or_else(Vec::new, |list| list.iter().filter_map(name).collect())
}
