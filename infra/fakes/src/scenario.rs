//! The API for tests and the demo: actions of users and other tools, and accessors for the state.

use std::sync::Arc;

use jiff::SignedDuration;

use crate::audit::AuditedAction;
use crate::clock::TimedEvent;
use crate::fakes::{FakePrId, Fakes};
use crate::faults::Fault;
use crate::github::changes::NewStatus;
use crate::github::commit::{FakeCheckRun, FakeStatus, StatusState};
use crate::github::model::{FakeComment, FakeIssue, FakeReview, PullOrIssue, PullState, RepoIx, ReviewState};
use crate::settings::FakeBot;

/// A pull request to open. Default: by CodeGenie, in the first repository, for a new vulnerability.
#[derive(Debug, Clone, Default)]
pub struct NewPullRequest {
    /// `owner/name`; empty for the first repository.
    pub repo: String,
    /// Login; empty for CodeGenie.
    pub author: String,
    /// The vulnerability; `None` for a new one.
    pub vulnerability: Option<String>,
    pub draft: bool,
    pub fork: bool,
    /// Labels besides `codegenie`.
    pub labels: Vec<String>,
}

impl Fakes {
    /// Opens a pull request now. An unknown repository means the first one.
    pub fn open_pr(&mut self, mut new: NewPullRequest) -> FakePrId {
        let repo = self.repo_ix(&new.repo).unwrap_or(RepoIx(0));
        let id = new.vulnerability.take().unwrap_or_else(|| self.next_vulnerability());
        let ix = self.genie_pull(repo, &id, None, new);
        self.name_of(ix)
    }

    /// Schedules `count` pull requests by CodeGenie at this interval, round-robin over the repositories.
    pub fn schedule_prs(&mut self, count: u64, every: SignedDuration) {
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(0);
        for turn in 0..count {
            let repo = usize::try_from(turn).unwrap_or(0) % self.github.repos.len().max(1);
            self.clock.after_ms(every_ms.saturating_mul(turn), TimedEvent::GenieFinds(RepoIx(repo)));
        }
    }

    pub fn push_base(&mut self, repo: &str) {
        if let Some(repo) = self.repo_ix(repo) {
            self.push_to_base(repo, "maria");
        }
    }

    /// Another user pushes a commit to the base that conflicts with this pull request.
    pub fn conflict(&mut self, pr: &FakePrId) {
        if let Some(ix) = self.ix(pr) {
            self.conflict_with(ix);
        }
    }

    /// A person writes a comment. Returns its id.
    pub fn person_comments(&mut self, pr: &FakePrId, login: &str, text: &str) -> Option<u64> {
        let repo = self.repo_ix(&pr.repo)?;
        let place = self.write_comment(repo, pr.number, login, text)?;
        Some(self.github.comments[place].id)
    }

    /// A person presses a button of a check run on the head. Returns whether the button exists; only completed check
    /// runs show any.
    pub fn person_presses(&mut self, pr: &FakePrId, check: &str, button: &str, login: &str) -> bool {
        let Some(ix) = self.ix(pr) else { return false };
        let shows = |run: &&FakeCheckRun| {
            run.name == check && run.conclusion.is_some() && run.actions.iter().any(|action| action == button)
        };
        let Some(run) = self.check_runs(pr).iter().rfind(shows).cloned() else { return false };
        self.emit_pressed(ix, &run, button, login);
        true
    }

    /// A person pushes a commit that repairs a broken test. Returns the new head.
    pub fn person_pushes(&mut self, pr: &FakePrId, login: &str) -> Option<Arc<str>> {
        let ix = self.ix(pr)?;
        self.clear_fault(pr, Fault::RealTestFailure);
        Some(self.push(ix, login, false))
    }

    /// A person resolves the conflicts by hand and pushes.
    pub fn person_resolves(&mut self, pr: &FakePrId, login: &str) -> Option<Arc<str>> {
        let ix = self.ix(pr)?;
        self.clear_fault(pr, Fault::ConflictAgain);
        self.github.pulls[ix.0].conflicts = false;
        Some(self.push(ix, login, true))
    }

    pub fn person_repairs_policy(&mut self, pr: &FakePrId) {
        self.clear_fault(pr, Fault::PolicyMisconfigured);
        if let Some(ix) = self.ix(pr) {
            self.retrigger(FakeBot::Policy, ix);
        }
    }

    fn clear_fault(&mut self, pr: &FakePrId, cleared: Fault) {
        let Some(ix) = self.ix(pr) else { return };
        let plan = &mut self.fault_plans[ix.0];
        plan.struck.retain(|(_, fault)| *fault != cleared);
        plan.person = plan.struck.iter().map(|(_, fault)| *fault).find(|fault| fault.needs_a_person());
    }

    /// A person cancels the waiting item in Jenkins' queue. Returns whether there was one.
    pub fn person_cancels_queued(&mut self, pr: &FakePrId) -> bool {
        let item = self.ix(pr).and_then(|ix| self.waiting_item(ix));
        item.is_some_and(|item| self.cancel_item(item))
    }

    /// A person reruns the failed GitHub Actions jobs of the head.
    pub fn person_reruns(&mut self, pr: &FakePrId, login: &str) {
        if let Some(ix) = self.ix(pr) {
            self.queue_build(ix, Vec::new());
            self.note(login, AuditedAction::JobsRerun, ix, "by hand");
        }
    }

    pub fn person_closes(&mut self, pr: &FakePrId, login: &str) {
        if let Some(ix) = self.ix(pr) {
            self.close(ix, login);
        }
    }

    /// A person reopens the pull request. Returns false if GitHub refuses.
    pub fn person_reopens(&mut self, pr: &FakePrId, login: &str) -> bool {
        self.ix(pr).is_some_and(|ix| self.reopen(ix, login).is_ok())
    }

    /// A person merges the pull request, bypassing branch protection.
    pub fn person_merges(&mut self, pr: &FakePrId, login: &str) {
        if let Some(ix) = self.ix(pr).filter(|ix| self.github.pull(*ix).is_open()) {
            self.merge(ix, login);
        }
    }

    pub fn person_labels(&mut self, pr: &FakePrId, login: &str, name: &str) {
        if let Some(ix) = self.ix(pr) {
            self.label(ix, name, true, login);
        }
    }

    pub fn person_unlabels(&mut self, pr: &FakePrId, login: &str, name: &str) {
        if let Some(ix) = self.ix(pr) {
            self.label(ix, name, false, login);
        }
    }

    /// A person opens an issue. An unknown repository means the first one.
    pub fn person_writes_issue(&mut self, repo: &str, login: &str, title: &str, labels: &[&str]) -> FakePrId {
        let repo = self.repo_ix(repo).unwrap_or(RepoIx(0));
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let place = self.open_issue(repo, login, title, "", labels);
        self.pr_named(repo, self.github.issues[place].number)
    }

    /// A person adds or removes a label of an issue.
    pub fn person_labels_issue(&mut self, issue: &FakePrId, login: &str, name: &str, on: bool) {
        if let Some(place) = self.issue_place(issue) {
            self.label_issue(place, name, on, login);
        }
    }

    /// A person closes or reopens an issue.
    pub fn person_closes_issue(&mut self, issue: &FakePrId, login: &str, closed: bool) {
        if let Some(place) = self.issue_place(issue) {
            self.set_issue_open(place, !closed, None, login);
        }
    }

    pub fn person_pins_issue(&mut self, issue: &FakePrId) {
        if let Some(place) = self.issue_place(issue) {
            self.github.issues[place].pinned = true;
        }
    }

    /// A person is assigned to an issue.
    pub fn person_takes_issue(&mut self, issue: &FakePrId, login: &str) {
        if let Some(place) = self.issue_place(issue) {
            self.github.issues[place].assignees.push(login.to_owned());
        }
    }

    pub fn issue(&self, issue: &FakePrId) -> Option<&FakeIssue> {
        self.issue_place(issue).map(|place| &self.github.issues[place])
    }

    fn issue_place(&self, issue: &FakePrId) -> Option<usize> {
        match self.github.numbered(self.repo_ix(&issue.repo)?, issue.number)? {
            PullOrIssue::Issue(place) => Some(place),
            PullOrIssue::Pull(_) => None,
        }
    }

    pub fn person_reviews(&mut self, pr: &FakePrId, login: &str, state: ReviewState, body: &str) {
        if let Some(ix) = self.ix(pr) {
            self.review(ix, login, state, body);
        }
    }

    /// A person converts the pull request to a draft, or marks it ready for review.
    pub fn person_drafts(&mut self, pr: &FakePrId, login: &str, draft: bool) {
        if let Some(ix) = self.ix(pr) {
            self.set_draft(ix, draft, login);
        }
    }

    /// A person enables or disables auto-merge.
    pub fn person_auto_merges(&mut self, pr: &FakePrId, login: &str, on: bool) {
        if let Some(ix) = self.ix(pr) {
            self.set_auto_merge(ix, on, login);
        }
    }

    /// Deletes the head branch, after which a closed pull request cannot be reopened.
    pub fn delete_head(&mut self, pr: &FakePrId) {
        if let Some(ix) = self.ix(pr) {
            self.github.pulls[ix.0].head_deleted = true;
        }
    }

    /// Another tool posts a status on the head.
    pub fn post_status_on(&mut self, pr: &FakePrId, context: &str, state: StatusState, description: &str) {
        self.post_status_as(pr, "other-tool[bot]", (context, state, description));
    }

    /// This account posts a status (context, state, description) on the head.
    pub fn post_status_as(&mut self, pr: &FakePrId, login: &str, status: (&str, StatusState, &str)) {
        let Some(ix) = self.ix(pr) else { return };
        let (repo, sha) = (self.github.pull(ix).repo, Arc::clone(self.github.pull(ix).head()));
        let (context, state, description) = status;
        self.post_status(
            repo,
            &sha,
            login,
            NewStatus { context, state, description, target_url: "https://tool.example" },
        );
    }

    /// Another App posts a check run on the head; without a conclusion it is in progress. Returns its id.
    pub fn post_check_on(&mut self, pr: &FakePrId, name: &str, conclusion: Option<&str>, summary: &str) -> Option<u64> {
        let ix = self.ix(pr)?;
        let (repo, sha, now) = (self.github.pull(ix).repo, Arc::clone(self.github.pull(ix).head()), self.now());
        let mut check = self.new_check(&sha, name, 77, "other-tool");
        check.status = if conclusion.is_some() { "completed" } else { "in_progress" }.to_owned();
        check.conclusion = conclusion.map(str::to_owned);
        check.completed_at = conclusion.map(|_| now);
        summary.clone_into(&mut check.summary);
        let id = check.id;
        self.put_check(repo, &sha, check, "other-tool[bot]");
        Some(id)
    }

    /// The comments of a pull request or issue, oldest first.
    pub fn comments(&self, pr: &FakePrId) -> impl Iterator<Item = &FakeComment> {
        let places = self.repo_ix(&pr.repo).and_then(|repo| self.github.comments_of.get(&(repo, pr.number)));
        places.map_or(&[][..], Vec::as_slice).iter().map(|place| &self.github.comments[*place])
    }

    pub fn statuses(&self, pr: &FakePrId) -> &[FakeStatus] {
        self.ix(pr).and_then(|ix| self.github.reported(ix)).map_or(&[], |reported| &reported.statuses)
    }

    pub fn check_runs(&self, pr: &FakePrId) -> &[FakeCheckRun] {
        self.ix(pr).and_then(|ix| self.github.reported(ix)).map_or(&[], |reported| &reported.checks)
    }

    pub fn reviews(&self, pr: &FakePrId) -> &[FakeReview] {
        self.pull(pr).map_or(&[], |pull| &pull.reviews)
    }

    /// Number of base commits that the head lacks.
    pub fn behind_by(&self, pr: &FakePrId) -> usize {
        self.ix(pr).map_or(0, |ix| self.github.behind_by(ix))
    }

    /// Issues of all repositories, oldest first.
    pub fn issues(&self) -> impl Iterator<Item = (FakePrId, &FakeIssue)> {
        self.github.issues.iter().map(|issue| (self.pr_named(issue.repo, issue.number), issue))
    }

    pub fn is_merged(&self, pr: &FakePrId) -> bool {
        self.pull(pr).is_some_and(|pull| pull.state == PullState::Merged)
    }
}
