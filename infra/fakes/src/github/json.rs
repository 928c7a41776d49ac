//! JSON of REST responses and webhooks. GraphQL has its own format (`graphql`).

use serde_json::{Value, json};

use super::commit::FakeCheckRun;
use super::model::{FakeComment, FakeIssue, FakeReview, PrIx, PullState, RepoIx};
use crate::clock::stamp;
use crate::fakes::Fakes;
use crate::rng::hash;

/// A stable id for a login, small enough for any JSON parser.
pub(crate) fn user_id(login: &str) -> u64 {
    hash(login) % 100_000_000
}

pub(crate) fn user(login: &str) -> Value {
    let kind = if login.ends_with("[bot]") { "Bot" } else { "User" };
    let id = user_id(login);
    json!({
        "login": login, "id": id, "node_id": format!("U_{id}"), "type": kind, "site_admin": false,
        "html_url": format!("https://github.com/{}", login.trim_end_matches("[bot]")),
    })
}

pub(crate) fn label(name: &str) -> Value {
    json!({"id": user_id(name), "node_id": format!("LA_{}", user_id(name)), "name": name, "color": "ededed",
           "default": false, "description": null})
}

impl Fakes {
    pub(crate) fn repo_url(&self, repo: RepoIx) -> String {
        format!("{}/repos/{}", self.settings.api_url, self.github.repo(repo).settings.name)
    }

    pub(crate) fn repo_html(&self, repo: RepoIx) -> String {
        format!("https://github.com/{}", self.github.repo(repo).settings.name)
    }

    pub(crate) fn pull_html(&self, repo: RepoIx, number: u64) -> String {
        format!("{}/pull/{number}", self.repo_html(repo))
    }

    pub(crate) fn repo_json(&self, ix: RepoIx) -> Value {
        let repo = self.github.repo(ix);
        json!({
            "id": repo.id, "node_id": format!("R_{}", repo.id), "name": repo.name, "full_name": repo.settings.name,
            "private": true, "fork": false, "archived": false, "disabled": false, "visibility": "private",
            "owner": owner(&repo.owner), "url": self.repo_url(ix), "html_url": self.repo_html(ix),
            "default_branch": repo.settings.base, "description": null,
            "created_at": stamp(self.settings.start), "updated_at": stamp(self.settings.start),
        })
    }

    fn repo_brief(&self, ix: RepoIx) -> Value {
        let repo = self.github.repo(ix);
        json!({"id": repo.id, "name": repo.name, "full_name": repo.settings.name, "url": self.repo_url(ix), "fork": false,
               "private": true, "default_branch": repo.settings.base, "owner": {"login": repo.owner}})
    }

    /// A pull request; `detail` adds the fields that lists and webhooks omit.
    pub(crate) fn pull_json(&self, ix: PrIx, detail: bool) -> Value {
        let pull = self.github.pull(ix);
        let repo = self.github.repo(pull.repo);
        let url = self.repo_url(pull.repo);
        let merged = pull.state == PullState::Merged;
        let head_owner = if pull.fork { "contributor" } else { &repo.owner };
        let head_repo = match (pull.fork, pull.head_deleted) {
            (true, true) => Value::Null,
            (true, false) => {
                json!({"id": repo.id + 1, "name": repo.name, "full_name": format!("{head_owner}/{}", repo.name), "fork": true})
            }
            (false, _) => self.repo_brief(pull.repo),
        };
        let mut json = json!({
            "id": pull.id, "node_id": pull.node_id, "number": pull.number, "title": pull.title, "body": pull.body,
            "state": if pull.is_open() { "open" } else { "closed" }, "locked": false, "draft": pull.draft,
            "user": user(&pull.author), "author_association": self.association(&pull.author),
            "url": format!("{url}/pulls/{}", pull.number), "html_url": self.pull_html(pull.repo, pull.number),
            "issue_url": format!("{url}/issues/{}", pull.number),
            "comments_url": format!("{url}/issues/{}/comments", pull.number),
            "statuses_url": format!("{url}/statuses/{}", pull.head()),
            "created_at": stamp(pull.created_at), "updated_at": stamp(pull.updated_at),
            "closed_at": pull.closed_at.map(stamp), "merged_at": pull.closed_at.filter(|_| merged).map(stamp),
            "merge_commit_sha": pull.merge_commit, "assignee": null, "assignees": [], "requested_reviewers": [],
            "requested_teams": [], "milestone": null,
            "labels": pull.labels.iter().map(|name| label(name)).collect::<Vec<_>>(),
            "head": {"label": format!("{head_owner}:{}", pull.head_ref), "ref": pull.head_ref, "sha": pull.head(),
                     "user": owner(head_owner), "repo": head_repo},
            "base": {"label": format!("{}:{}", repo.owner, pull.base_ref), "ref": pull.base_ref,
                     "sha": repo.base[pull.base_commits.saturating_sub(1)], "user": owner(&repo.owner),
                     "repo": self.repo_brief(pull.repo)},
            "auto_merge": pull.auto_merge.as_ref().map(|(login, _)| json!({"enabled_by": user(login), "merge_method": "merge"})),
        });
        if detail {
            let comments = self.github.comments_of.get(&(pull.repo, pull.number)).map_or(0, Vec::len);
            let more = json!({
                "merged": merged, "merged_by": pull.merged_by.as_deref().map(user), "mergeable": self.mergeable(ix),
                "rebaseable": self.mergeable(ix), "mergeable_state": self.merge_state(ix).name().to_ascii_lowercase(),
                "comments": comments, "review_comments": 0, "commits": pull.commits.len(), "additions": 12, "deletions": 3,
                "changed_files": 2, "maintainer_can_modify": false,
            });
            extend(&mut json, more);
        }
        json
    }

    /// The pull requests of a head, as in check events: empty for forks.
    pub(crate) fn pulls_of_head(&self, sha: &str) -> Value {
        let prs = self.github.commits.get(sha).map_or(&[][..], |reported| &reported.prs);
        let named = prs.iter().map(|ix| (*ix, self.github.pull(*ix))).filter(|(_, pull)| !pull.fork && pull.is_open());
        named
            .map(|(_, pull)| {
                json!({
                    "id": pull.id, "number": pull.number, "url": format!("{}/pulls/{}", self.repo_url(pull.repo), pull.number),
                    "head": {"ref": pull.head_ref, "sha": pull.head(), "repo": self.repo_brief(pull.repo)},
                    "base": {"ref": pull.base_ref, "sha": self.github.base_tip(pull.repo), "repo": self.repo_brief(pull.repo)},
                })
            })
            .collect()
    }

    pub(crate) fn check_json(&self, repo: RepoIx, sha: &str, check: &FakeCheckRun) -> Value {
        json!({
            "id": check.id, "node_id": format!("CR_{}", check.id), "name": check.name, "head_sha": sha,
            "external_id": check.external_id, "status": check.status, "conclusion": check.conclusion,
            "url": format!("{}/check-runs/{}", self.repo_url(repo), check.id),
            "html_url": format!("{}/runs/{}", self.repo_html(repo), check.id), "details_url": check.details_url,
            "started_at": check.started_at.map(stamp), "completed_at": check.completed_at.map(stamp),
            "output": {"title": text(&check.title), "summary": text(&check.summary), "text": text(&check.text),
                       "annotations_count": 0},
            "check_suite": self.suite_json(repo, sha, check.suite_id, false),
            "app": app(check.app_id, &check.app_slug), "pull_requests": self.pulls_of_head(sha),
        })
    }

    /// A check suite, with status and conclusion derived from its runs.
    pub(crate) fn suite_json(&self, repo: RepoIx, sha: &str, suite_id: u64, full: bool) -> Value {
        let runs: Vec<&FakeCheckRun> = self.github.commits.get(sha).map_or_else(Vec::new, |reported| {
            reported.current_checks().into_iter().filter(|check| check.suite_id == suite_id).collect()
        });
        let (status, conclusion) = suite_state(&runs);
        let (app_id, slug) = runs.first().map_or((0, ""), |run| (run.app_id, run.app_slug.as_str()));
        let pull =
            self.github.commits.get(sha).and_then(|reported| reported.prs.first()).map(|ix| self.github.pull(*ix));
        let mut json = json!({
            "id": suite_id, "node_id": format!("CS_{suite_id}"), "head_sha": sha,
            "head_branch": pull.filter(|pull| !pull.fork).map(|pull| pull.head_ref.clone()),
            "status": status, "conclusion": conclusion, "app": app(app_id, slug), "pull_requests": self.pulls_of_head(sha),
            "created_at": runs.first().and_then(|run| run.started_at).map(stamp), "updated_at": stamp(self.now()),
        });
        if full {
            let more = json!({
                "url": format!("{}/check-suites/{suite_id}", self.repo_url(repo)), "latest_check_runs_count": runs.len(),
                "head_commit": {"id": sha, "message": "Repair", "timestamp": stamp(self.now())},
            });
            extend(&mut json, more);
        }
        json
    }

    pub(crate) fn review_json(&self, ix: PrIx, review: &FakeReview, lower: bool) -> Value {
        let pull = self.github.pull(ix);
        let state = if lower { review.state.name().to_ascii_lowercase() } else { review.state.name().to_owned() };
        json!({
            "id": review.id, "node_id": format!("PRR_{}", review.id), "user": user(&review.user), "body": review.body,
            "state": state, "commit_id": review.commit, "submitted_at": stamp(review.submitted_at),
            "html_url": format!("{}/pull/{}#pullrequestreview-{}", self.repo_html(pull.repo), pull.number, review.id),
            "author_association": self.association(&review.user),
        })
    }

    pub(crate) fn comment_json(&self, comment: &FakeComment) -> Value {
        let count = |content: &str| comment.reactions.iter().filter(|reaction| reaction.content == content).count();
        json!({
            "id": comment.id, "node_id": format!("IC_{}", comment.id), "user": user(&comment.user), "body": comment.body,
            "url": format!("{}/issues/comments/{}", self.repo_url(comment.repo), comment.id),
            "issue_url": format!("{}/issues/{}", self.repo_url(comment.repo), comment.number),
            "html_url": format!("{}/issues/{}#issuecomment-{}", self.repo_html(comment.repo), comment.number, comment.id),
            "created_at": stamp(comment.created_at), "updated_at": stamp(comment.updated_at),
            "author_association": self.association(&comment.user), "performed_via_github_app": null,
            "reactions": {"total_count": comment.reactions.len(), "eyes": count("eyes"), "rocket": count("rocket"),
                          "confused": count("confused"), "+1": count("+1"), "-1": count("-1")},
        })
    }

    pub(crate) fn issue_json(&self, issue: &FakeIssue) -> Value {
        let comments = self.github.comments_of.get(&(issue.repo, issue.number)).map_or(0, Vec::len);
        json!({
            "id": issue.id, "node_id": issue.node_id, "number": issue.number, "title": issue.title, "body": issue.body,
            "user": user(&issue.user), "state": if issue.open { "open" } else { "closed" }, "locked": false,
            "state_reason": issue.state_reason, "assignee": issue.assignees.first().map(|login| user(login)),
            "assignees": issue.assignees.iter().map(|login| user(login)).collect::<Vec<_>>(),
            "labels": issue.labels.iter().map(|name| label(name)).collect::<Vec<_>>(), "comments": comments,
            "url": format!("{}/issues/{}", self.repo_url(issue.repo), issue.number),
            "html_url": format!("{}/issues/{}", self.repo_html(issue.repo), issue.number),
            "created_at": stamp(issue.created_at), "updated_at": stamp(issue.updated_at),
            "closed_at": (!issue.open).then(|| stamp(issue.updated_at)), "author_association": self.association(&issue.user),
        })
    }

    /// A pull request as the issues endpoints show it.
    pub(crate) fn pull_as_issue(&self, ix: PrIx) -> Value {
        let pull = self.github.pull(ix);
        let url = format!("{}/pulls/{}", self.repo_url(pull.repo), pull.number);
        json!({
            "id": pull.id, "node_id": pull.node_id, "number": pull.number, "title": pull.title, "body": pull.body,
            "user": user(&pull.author), "state": if pull.is_open() { "open" } else { "closed" }, "locked": false,
            "labels": pull.labels.iter().map(|name| label(name)).collect::<Vec<_>>(), "draft": pull.draft,
            "comments": self.github.comments_of.get(&(pull.repo, pull.number)).map_or(0, Vec::len),
            "url": format!("{}/issues/{}", self.repo_url(pull.repo), pull.number),
            "html_url": self.pull_html(pull.repo, pull.number),
            "created_at": stamp(pull.created_at), "updated_at": stamp(pull.updated_at),
            "closed_at": pull.closed_at.map(stamp), "author_association": self.association(&pull.author),
            "pull_request": {"url": url, "html_url": self.pull_html(pull.repo, pull.number),
                             "merged_at": pull.closed_at.filter(|_| pull.state == PullState::Merged).map(stamp)},
        })
    }

    pub(crate) fn association(&self, login: &str) -> &'static str {
        match self.permission(login) {
            "admin" => "OWNER",
            "maintain" | "write" => "COLLABORATOR",
            "triage" => "CONTRIBUTOR",
            _ => "NONE",
        }
    }

    /// The permission of an account: as configured, otherwise `read`; bots have none.
    pub(crate) fn permission(&self, login: &str) -> &str {
        match self.settings.people.iter().find(|person| person.login == login) {
            Some(person) => &person.permission,
            None if login.ends_with("[bot]") => "none",
            None => "read",
        }
    }
}

pub(crate) fn owner(login: &str) -> Value {
    let id = user_id(login);
    json!({"login": login, "id": id, "node_id": format!("O_{id}"), "type": "Organization", "site_admin": false})
}

pub(crate) fn app(id: u64, slug: &str) -> Value {
    json!({"id": id, "node_id": format!("A_{id}"), "slug": slug, "name": slug, "owner": owner("acme"), "events": [], "permissions": {}})
}

/// Adds the fields of one object to another.
pub(crate) fn extend(json: &mut Value, more: Value) {
    if let (Value::Object(json), Value::Object(more)) = (json, more) {
        json.extend(more);
    }
}

/// GitHub writes null for an empty text.
fn text(given: &str) -> Value {
    if given.is_empty() { Value::Null } else { json!(given) }
}

fn suite_state(runs: &[&FakeCheckRun]) -> (&'static str, Option<&'static str>) {
    if runs.iter().all(|run| run.status == "queued") {
        return ("queued", None);
    }
    if runs.iter().any(|run| run.conclusion.is_none()) {
        return ("in_progress", None);
    }
    let worst = ["failure", "timed_out", "cancelled", "action_required", "startup_failure", "stale"];
    let found = worst.into_iter().find(|worst| runs.iter().any(|run| run.conclusion.as_deref() == Some(*worst)));
    ("completed", Some(found.unwrap_or("success")))
}
