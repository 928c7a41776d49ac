//! Webhook payloads in GitHub's format, with all fields that a client may read.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::commit::{FakeCheckRun, FakeStatus};
use super::json::{label, owner, user};
use super::model::{FakeComment, PrIx, RepoIx, Sha};
use crate::clock::stamp;
use crate::fakes::Fakes;

impl Fakes {
    /// Renders the constant part of each repository's webhooks once, because it is most of the serialisation work.
    pub(crate) fn make_envelopes(&mut self) {
        let installation = self.settings.installation_id;
        let tail = |repo: RepoIx| {
            let (repository, organization) = (self.repo_json(repo), owner(&self.github.repo(repo).owner));
            let installation = json!({"id": installation, "node_id": format!("I_{installation}")});
            format!(r#","repository":{repository},"organization":{organization},"installation":{installation}"#)
        };
        self.envelopes = (0..self.github.repos.len()).map(|place| tail(RepoIx(place))).collect();
    }

    /// A webhook's body: its own fields, then the constant part.
    pub(crate) fn envelope(&self, repo: RepoIx, sender: &str, own: &Value) -> Bytes {
        let mut text = own.to_string();
        text.pop();
        text.push_str(&self.envelopes[repo.0]);
        text.push_str(&format!(r#","sender":{}}}"#, user(sender)));
        Bytes::from(text)
    }

    /// `pull_request`, with the fields that this action adds.
    pub(crate) fn emit_pull(&mut self, ix: PrIx, action: &str, sender: &str, added: &[(&str, Value)]) {
        let mut own = json!({
            "action": action, "number": self.github.pull(ix).number, "pull_request": self.pull_json(ix, true),
        });
        for (name, value) in added {
            own[*name] = value.clone();
        }
        let payload = self.envelope(self.github.pull(ix).repo, sender, &own);
        self.emit("pull_request", Some(action), Some(ix), payload);
    }

    pub(crate) fn emit_label(&mut self, ix: PrIx, added: bool, name: &str, sender: &str) {
        let action = if added { "labeled" } else { "unlabeled" };
        self.emit_pull(ix, action, sender, &[("label", label(name))]);
    }

    /// `status`: without a pull request number, and with at most ten branches.
    pub(crate) fn emit_status(&mut self, repo: RepoIx, sha: &Sha, status: &FakeStatus) {
        let prs = self.github.commits.get(sha).map_or(&[][..], |reported| &reported.prs);
        let pr = prs.first().copied();
        let branches: Vec<Value> = prs
            .iter()
            .map(|ix| self.github.pull(*ix))
            .filter(|pull| !pull.fork && **pull.head() == **sha)
            .take(10)
            .map(|pull| json!({"name": pull.head_ref, "protected": false, "commit": {"sha": sha}}))
            .collect();
        let at = stamp(status.created_at);
        let own = json!({
            "id": status.id, "sha": sha, "name": self.github.repo(repo).settings.name, "context": status.context,
            "state": status.state.name(), "description": status.description, "target_url": status.target_url,
            "created_at": at, "updated_at": at, "branches": branches,
            "commit": {"sha": sha, "node_id": format!("C_{sha}"), "parents": [],
                       "commit": {"message": "Repair", "author": {"name": "codegenie", "date": at}}},
        });
        let payload = self.envelope(repo, &status.creator, &own);
        self.emit("status", None, pr, payload);
    }

    pub(crate) fn emit_check(&mut self, repo: RepoIx, sha: &Sha, check: &FakeCheckRun, action: &str) {
        let pr = self.github.commits.get(sha).and_then(|reported| reported.prs.first().copied());
        let own = json!({"action": action, "check_run": self.check_json(repo, sha, check)});
        let payload = self.envelope(repo, &format!("{}[bot]", check.app_slug), &own);
        self.emit("check_run", Some(action), pr, payload);
    }

    /// `check_run` with action `requested_action`: a user pressed one of its buttons.
    pub(crate) fn emit_pressed(&mut self, ix: PrIx, check: &FakeCheckRun, button: &str, by: &str) {
        let (repo, sha) = (self.github.pull(ix).repo, Arc::clone(self.github.pull(ix).head()));
        let own = json!({
            "action": "requested_action", "check_run": self.check_json(repo, &sha, check),
            "requested_action": {"identifier": button},
        });
        let payload = self.envelope(repo, by, &own);
        self.emit("check_run", Some("requested_action"), Some(ix), payload);
    }

    pub(crate) fn emit_suite(&mut self, repo: RepoIx, sha: &Sha, suite_id: u64, slug: &str, action: &str) {
        let pr = self.github.commits.get(sha).and_then(|reported| reported.prs.first().copied());
        let own = json!({"action": action, "check_suite": self.suite_json(repo, sha, suite_id, true)});
        let payload = self.envelope(repo, &format!("{slug}[bot]"), &own);
        self.emit("check_suite", Some(action), pr, payload);
    }

    pub(crate) fn emit_review(&mut self, ix: PrIx, place: usize, action: &str, sender: &str) {
        let review = &self.github.pull(ix).reviews[place];
        let own = json!({
            "action": action, "review": self.review_json(ix, review, true), "pull_request": self.pull_json(ix, false),
        });
        let payload = self.envelope(self.github.pull(ix).repo, sender, &own);
        self.emit("pull_request_review", Some(action), Some(ix), payload);
    }

    /// `issue_comment`, on a pull request or an issue.
    pub(crate) fn emit_comment(&mut self, comment: &FakeComment, issue: &Value, pr: Option<PrIx>, action: &str) {
        let own = json!({"action": action, "issue": issue, "comment": self.comment_json(comment)});
        let payload = self.envelope(comment.repo, &comment.user, &own);
        self.emit("issue_comment", Some(action), pr, payload);
    }

    pub(crate) fn emit_issue(&mut self, place: usize, action: &str, sender: &str) {
        let issue = &self.github.issues[place];
        let (repo, own) = (issue.repo, json!({"action": action, "issue": self.issue_json(issue)}));
        let payload = self.envelope(repo, sender, &own);
        self.emit("issues", Some(action), None, payload);
    }

    /// `push`, to a base or a head branch.
    pub(crate) fn emit_push(
        &mut self,
        repo: RepoIx,
        branch: &str,
        before: &str,
        after: &str,
        by: &str,
        pr: Option<PrIx>,
    ) {
        let commit = json!({"id": after, "message": "Change", "timestamp": stamp(self.now()), "distinct": true,
                            "author": {"name": by, "username": by}, "added": [], "removed": [], "modified": ["README.md"]});
        let own = json!({
            "ref": format!("refs/heads/{branch}"), "before": before, "after": after, "base_ref": null,
            "created": before.bytes().all(|byte| byte == b'0'), "deleted": false, "forced": false,
            "compare": format!("{}/compare/{before}...{after}", self.repo_html(repo)),
            "commits": [commit], "head_commit": commit, "pusher": {"name": by, "email": format!("{by}@example.com")},
        });
        let payload = self.envelope(repo, by, &own);
        self.emit("push", None, pr, payload);
    }

    /// `merge_group`: the merge queue requests checks, or has destroyed the group.
    pub(crate) fn emit_merge_group(&mut self, ix: PrIx, action: &str, reason: Option<&str>) {
        let pull = self.github.pull(ix);
        let (repo, base, tip) = (pull.repo, pull.base_ref.clone(), self.github.base_tip(pull.repo));
        let head_ref = format!("refs/heads/gh-readonly-queue/{base}/pr-{}-{tip}", pull.number);
        let mut own = json!({
            "action": action,
            "merge_group": {"head_sha": pull.head(), "head_ref": head_ref, "base_sha": tip, "base_ref": format!("refs/heads/{base}"),
                            "head_commit": {"id": pull.head(), "message": "Merge", "timestamp": stamp(self.now())}},
        });
        if let Some(reason) = reason {
            own["reason"] = json!(reason);
        }
        let payload = self.envelope(repo, "github-merge-queue[bot]", &own);
        self.emit("merge_group", Some(action), Some(ix), payload);
    }
}
