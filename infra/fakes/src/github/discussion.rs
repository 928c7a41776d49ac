//! Reviews, comments, reactions, labels and issues.

use std::sync::Arc;

use super::model::{FakeComment, FakeIssue, FakeReaction, FakeReview, PrIx, PullOrIssue, RepoIx, ReviewState};
use crate::audit::AuditedAction;
use crate::fakes::Fakes;
use crate::settings::FakeBot;

impl Fakes {
    pub(crate) fn review(&mut self, ix: PrIx, by: &str, state: ReviewState, body: &str) -> usize {
        let review = FakeReview {
            id: self.github.id(),
            user: by.to_owned(),
            state,
            body: body.to_owned(),
            commit: Arc::clone(self.github.pull(ix).head()),
            submitted_at: self.now(),
            reactions: Vec::new(),
        };
        self.github.by_review.insert(review.id, (ix, self.github.pull(ix).reviews.len()));
        self.github.pulls[ix.0].reviews.push(review);
        self.github.pulls[ix.0].updated_at = self.now();
        let place = self.github.pull(ix).reviews.len() - 1;
        self.note(by, AuditedAction::ReviewSubmitted, ix, state.name());
        self.emit_review(ix, place, "submitted", by);
        self.trigger_bots_with_work(ix);
        place
    }

    /// Writes a comment; `None` if no pull request or issue has this number.
    pub(crate) fn write_comment(&mut self, repo: RepoIx, number: u64, by: &str, body: &str) -> Option<usize> {
        let numbered = self.github.numbered(repo, number)?;
        let now = self.now();
        let comment = FakeComment {
            id: self.github.id(),
            repo,
            number,
            user: by.to_owned(),
            body: body.to_owned(),
            created_at: now,
            updated_at: now,
            reactions: Vec::new(),
        };
        let place = self.github.comments.len();
        self.github.comments.push(comment);
        self.github.comments_of.entry((repo, number)).or_default().push(place);
        self.announce_comment(place, numbered, by);
        if let PullOrIssue::Pull(ix) = numbered {
            self.github.pulls[ix.0].updated_at = now;
            self.trigger_listeners(ix, |listening| listening.comments);
            if self.settings.codegenie_trigger.as_ref().is_some_and(|trigger| body.starts_with(trigger.as_str())) {
                self.genie_asked_on(ix);
            }
        }
        Some(place)
    }

    fn announce_comment(&mut self, place: usize, numbered: PullOrIssue, by: &str) {
        let comment = self.github.comments[place].clone();
        let (issue, ix) = match numbered {
            PullOrIssue::Pull(ix) => {
                self.note(by, AuditedAction::CommentCreated, ix, comment.body.clone());
                (self.pull_as_issue(ix), Some(ix))
            }
            PullOrIssue::Issue(at) => {
                let pr = self.pr_named(comment.repo, comment.number);
                self.log(by, AuditedAction::CommentCreated, Some(pr), None, comment.body.clone());
                (self.issue_json(&self.github.issues[at]), None)
            }
        };
        self.emit_comment(&comment, &issue, ix, "created");
    }

    /// Adds a reaction. A repeated reaction of the same kind by the same account is ignored.
    pub(crate) fn react(&mut self, place: usize, by: &str, content: &str) {
        let comment = &self.github.comments[place];
        if comment.reactions.iter().any(|it| it.user == by && it.content == content) {
            return;
        }
        let (comment_id, pr) = (comment.id, self.pr_named(comment.repo, comment.number));
        let reaction = FakeReaction { id: self.github.id(), user: by.to_owned(), content: content.to_owned() };
        self.github.comments[place].reactions.push(reaction);
        self.log(by, AuditedAction::ReactionAdded, Some(pr), None, format!("{content} on {comment_id}"));
    }

    /// Adds or removes a label of a pull request. Returns whether it changed anything.
    pub(crate) fn label(&mut self, ix: PrIx, name: &str, on: bool, by: &str) -> bool {
        let labels = &mut self.github.pulls[ix.0].labels;
        let place = labels.iter().position(|label| label == name);
        match (on, place) {
            (true, None) => labels.push(name.to_owned()),
            (false, Some(place)) => {
                labels.remove(place);
            }
            (true, Some(_)) | (false, None) => return false,
        }
        self.github.pulls[ix.0].updated_at = self.clock.now;
        self.note(by, if on { AuditedAction::LabelAdded } else { AuditedAction::LabelRemoved }, ix, name);
        self.emit_label(ix, on, name, by);
        self.trigger_listeners(ix, |listening| listening.labels);
        if on && self.settings.codegenie_trigger.as_deref() == Some(name) {
            self.genie_asked_on(ix);
        }
        true
    }

    /// Triggers the bots configured for this kind of change.
    fn trigger_listeners(&mut self, ix: PrIx, to: fn(&crate::settings::BotTriggers) -> bool) {
        for (bot, listening) in FakeBot::ALL.into_iter().zip(self.settings.listening) {
            if to(&listening) {
                self.retrigger(bot, ix);
            }
        }
    }

    /// Adds or removes a label of an issue, ignoring case as GitHub does. Returns whether it changed anything.
    pub(crate) fn label_issue(&mut self, place: usize, name: &str, on: bool, by: &str) -> bool {
        let now = self.now();
        let issue = &mut self.github.issues[place];
        let known = issue.labels.iter().position(|label| label.eq_ignore_ascii_case(name));
        match (on, known) {
            (true, None) => issue.labels.push(name.to_owned()),
            (false, Some(known)) => {
                issue.labels.remove(known);
            }
            (true, Some(_)) | (false, None) => return false,
        }
        issue.updated_at = now;
        let (repo, number) = (issue.repo, issue.number);
        let pr = self.pr_named(repo, number);
        self.log(by, if on { AuditedAction::LabelAdded } else { AuditedAction::LabelRemoved }, Some(pr), None, name);
        self.emit_issue(place, if on { "labeled" } else { "unlabeled" }, by);
        true
    }

    /// Opens or closes an issue. Returns whether it changed anything.
    pub(crate) fn set_issue_open(&mut self, place: usize, open: bool, reason: Option<&str>, by: &str) -> bool {
        let now = self.now();
        let issue = &mut self.github.issues[place];
        if issue.open == open {
            return false;
        }
        issue.open = open;
        issue.updated_at = now;
        issue.state_reason = Some(reason.unwrap_or(if open { "reopened" } else { "completed" }).to_owned());
        let event_action = if open { "reopened" } else { "closed" };
        let (repo, number) = (issue.repo, issue.number);
        let pr = self.pr_named(repo, number);
        self.log(by, AuditedAction::IssueEdited, Some(pr), None, event_action);
        self.emit_issue(place, event_action, by);
        true
    }

    pub(crate) fn open_issue(&mut self, repo: RepoIx, by: &str, title: &str, body: &str, labels: Vec<String>) -> usize {
        let (now, id, place) = (self.now(), self.github.id(), self.github.issues.len());
        let node_id = format!("I_{id}");
        self.github.repos[repo.0].numbers.push(PullOrIssue::Issue(place));
        self.github.by_node.insert(node_id.clone(), PullOrIssue::Issue(place));
        let number = self.github.repo(repo).last_number();
        self.github.issues.push(FakeIssue {
            repo,
            number,
            id,
            node_id,
            title: title.to_owned(),
            body: body.to_owned(),
            user: by.to_owned(),
            open: true,
            pinned: false,
            state_reason: None,
            labels,
            assignees: Vec::new(),
            created_at: now,
            updated_at: now,
        });
        let pr = self.pr_named(repo, number);
        self.log(by, AuditedAction::IssueOpened, Some(pr), None, title);
        self.emit_issue(place, "opened", by);
        place
    }
}
