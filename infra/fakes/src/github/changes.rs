//! Changes of pull requests, statuses and check runs. Every change is added to the audit log, sent as a webhook, and
//! triggers the bots. Comments, reviews, labels and issues are in `discussion`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::commit::{FakeCheckRun, FakeStatus, StatusState};
use super::model::{FakeMergeability, FakePull, PrIx, PullOrIssue, PullState, RepoIx, ReviewState, Sha};
use crate::audit::AuditedAction;
use crate::clock::TimedEvent;
use crate::fakes::Fakes;
use crate::faults::PlannedFaults;
use crate::rng::{Rng, hash};

#[derive(Debug, Clone)]
pub(crate) struct NewPullDetails {
    pub(crate) repo: RepoIx,
    pub(crate) author: String,
    pub(crate) title: String,
    pub(crate) body: String,
    pub(crate) head_ref: String,
    pub(crate) labels: Vec<String>,
    pub(crate) draft: bool,
    pub(crate) fork: bool,
    pub(crate) vulnerability: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct NewStatus<'a> {
    pub(crate) context: &'a str,
    pub(crate) state: StatusState,
    pub(crate) description: &'a str,
    pub(crate) target_url: &'a str,
}

impl Fakes {
    pub(crate) fn fresh_sha(&mut self) -> Sha {
        Arc::from(self.id_rng.hex(40))
    }

    /// Updates a pull request's `updated_at`.
    fn touch(&mut self, ix: PrIx) {
        self.github.pulls[ix.0].updated_at = self.clock.now;
    }

    pub(crate) fn note(&mut self, by: &str, action: AuditedAction, ix: PrIx, detail: impl Into<String>) {
        let (pr, head) = (self.name_of(ix), self.github.pull(ix).head().to_string());
        self.log(by, action, Some(pr), Some(head), detail);
    }

    pub(crate) fn open(&mut self, opening: NewPullDetails) -> PrIx {
        let (now, ix, head) = (self.now(), PrIx(self.github.pulls.len()), self.fresh_sha());
        let (id, repo) = (self.github.id(), opening.repo);
        let node_id = format!("PR_{id}");
        let base = self.github.repo(repo).settings.base.clone();
        self.github.repos[repo.0].numbers.push(PullOrIssue::Pull(ix));
        self.github.by_node.insert(node_id.clone(), PullOrIssue::Pull(ix));
        self.github.commits.entry(Arc::clone(&head)).or_default().prs.push(ix);
        self.github.pulls.push(FakePull {
            repo,
            number: self.github.repo(repo).last_number(),
            id,
            node_id,
            title: opening.title,
            body: opening.body,
            author: opening.author.clone(),
            head_ref: opening.head_ref,
            base_ref: base,
            commits: vec![head],
            base_commits: self.github.repo(repo).base.len(),
            state: PullState::Open,
            draft: opening.draft,
            created_at: now,
            updated_at: now,
            closed_at: None,
            merged_by: None,
            merge_commit: None,
            labels: opening.labels,
            reviews: Vec::new(),
            fork: opening.fork,
            conflicts: false,
            mergeability: FakeMergeability::Unasked,
            mergeability_version: 0,
            head_deleted: false,
            auto_merge: None,
            queued_at: None,
            vulnerability: opening.vulnerability,
        });
        let name = format!("{} {}", self.github.repo(repo).settings.name, self.github.pull(ix).head_ref);
        self.fault_plans.push(PlannedFaults::new(Rng::new(self.seed, hash(&name))));
        self.open_pulls[repo.0].insert(ix);
        self.plan_faults(ix);
        self.note(&opening.author, AuditedAction::PullOpened, ix, "");
        self.emit_pull(ix, "opened", &opening.author, &[]);
        self.announce_head(ix);
        ix
    }

    /// Jenkins and Policy Bot notice every new head, including those of drafts.
    fn announce_head(&mut self, ix: PrIx) {
        let sha = Arc::clone(self.github.pull(ix).head());
        let ms = self.delay(ix, self.settings.timing.notice_ms);
        self.clock.after_ms(ms, TimedEvent::JenkinsNotices(ix, sha));
        self.schedule_policy_examination(ix);
    }

    /// Pushes a commit to the head; `updated` means that it merges the base.
    pub(crate) fn push(&mut self, ix: PrIx, by: &str, updated: bool) -> Sha {
        let (sha, before) = (self.fresh_sha(), Arc::clone(self.github.pull(ix).head()));
        let repo = self.github.pull(ix).repo;
        let base_commits = self.github.repo(repo).base.len();
        let pull = &mut self.github.pulls[ix.0];
        pull.commits.push(Arc::clone(&sha));
        if updated {
            pull.base_commits = base_commits;
        }
        let head_ref = pull.head_ref.clone();
        self.github.commits.entry(Arc::clone(&sha)).or_default().prs.push(ix);
        self.touch(ix);
        self.forget_mergeability(ix);
        self.note(by, if updated { AuditedAction::BranchUpdated } else { AuditedAction::HeadPushed }, ix, "");
        self.emit_push(repo, &head_ref, &before, &sha, by, Some(ix));
        self.emit_pull(ix, "synchronize", by, &[("before", json!(before)), ("after", json!(sha))]);
        self.dequeue(ix, by);
        if self.github.repo(repo).settings.dismiss_stale_reviews {
            self.dismiss_approvals(ix);
        }
        self.announce_head(ix);
        sha
    }

    fn dismiss_approvals(&mut self, ix: PrIx) {
        for place in 0..self.github.pull(ix).reviews.len() {
            if self.github.pull(ix).reviews[place].state == ReviewState::Approved {
                self.github.pulls[ix.0].reviews[place].state = ReviewState::Dismissed;
                self.emit_review(ix, place, "dismissed", "github[bot]");
            }
        }
    }

    /// Pushes a commit to the base; every open pull request falls one commit behind.
    pub(crate) fn push_to_base(&mut self, repo: RepoIx, by: &str) -> Sha {
        let (sha, before) = (self.fresh_sha(), self.github.base_tip(repo));
        self.github.repos[repo.0].base.push(Arc::clone(&sha));
        let branch = self.github.repo(repo).settings.base.clone();
        self.log(by, AuditedAction::BasePushed, None, Some(sha.to_string()), branch.clone());
        self.emit_push(repo, &branch, &before, &sha, by, None);
        let open: Vec<PrIx> = self.open_pulls[repo.0].iter().copied().collect();
        for ix in open {
            self.forget_mergeability(ix);
        }
        sha
    }

    pub(crate) fn close(&mut self, ix: PrIx, by: &str) {
        if !self.github.pull(ix).is_open() {
            return;
        }
        self.leave(ix, PullState::Closed);
        self.note(by, AuditedAction::PullClosed, ix, "");
        self.emit_pull(ix, "closed", by, &[]);
    }

    fn leave(&mut self, ix: PrIx, state: PullState) {
        let now = self.now();
        let pull = &mut self.github.pulls[ix.0];
        pull.state = state;
        pull.closed_at = Some(now);
        pull.queued_at = None;
        pull.auto_merge = None;
        let repo = pull.repo;
        self.open_pulls[repo.0].remove(&ix);
        self.touch(ix);
    }

    pub(crate) fn reopen(&mut self, ix: PrIx, by: &str) -> Result<(), &'static str> {
        let pull = &mut self.github.pulls[ix.0];
        match pull.state {
            PullState::Open => return Ok(()),
            PullState::Merged => return Err("state cannot be changed. The pull request was merged."),
            PullState::Closed if pull.head_deleted => {
                return Err("state cannot be changed. The head branch was deleted or force-pushed.");
            }
            PullState::Closed => {}
        }
        pull.state = PullState::Open;
        pull.closed_at = None;
        let repo = pull.repo;
        self.open_pulls[repo.0].insert(ix);
        self.touch(ix);
        self.forget_mergeability(ix);
        self.note(by, AuditedAction::PullReopened, ix, "");
        self.emit_pull(ix, "reopened", by, &[]);
        self.announce_head(ix);
        Ok(())
    }

    /// Merges without checking branch protection or permissions; the caller checks them.
    pub(crate) fn merge(&mut self, ix: PrIx, by: &str) {
        let (repo, sha) = (self.github.pull(ix).repo, self.fresh_sha());
        self.leave(ix, PullState::Merged);
        self.github.pulls[ix.0].merged_by = Some(by.to_owned());
        self.github.pulls[ix.0].merge_commit = Some(Arc::clone(&sha));
        self.note(by, AuditedAction::PullMerged, ix, sha.to_string());
        self.emit_pull(ix, "closed", by, &[]);
        if self.settings.merges_move_base {
            self.push_to_base(repo, by);
        }
    }

    pub(crate) fn set_draft(&mut self, ix: PrIx, draft: bool, by: &str) {
        self.github.pulls[ix.0].draft = draft;
        self.touch(ix);
        self.emit_pull(ix, if draft { "converted_to_draft" } else { "ready_for_review" }, by, &[]);
        self.schedule_policy_examination(ix);
        self.trigger_bots_with_work(ix);
    }

    pub(crate) fn enqueue(&mut self, ix: PrIx, by: &str) {
        let now = self.now();
        if self.github.pull(ix).queued_at.is_some() || !self.github.pull(ix).is_open() {
            return;
        }
        self.github.pulls[ix.0].queued_at = Some(now);
        self.emit_pull(ix, "enqueued", by, &[]);
        self.emit_merge_group(ix, "checks_requested", None);
        let ms = self.delay(ix, self.settings.timing.merge_queue_ms);
        self.clock.after_ms(ms, TimedEvent::QueueMerges(ix));
    }

    pub(crate) fn dequeue(&mut self, ix: PrIx, by: &str) {
        if self.github.pulls[ix.0].queued_at.take().is_some() {
            self.emit_pull(ix, "dequeued", by, &[("reason", json!("INVALIDATED_BY_PUSH"))]);
            self.emit_merge_group(ix, "destroyed", Some("invalidated"));
        }
    }

    pub(crate) fn queue_merges(&mut self, ix: PrIx) {
        if self.github.pull(ix).queued_at.is_none() || !self.github.pull(ix).is_open() {
            return;
        }
        if self.github.pull(ix).conflicts {
            self.github.pulls[ix.0].queued_at = None;
            self.emit_pull(ix, "dequeued", "github-merge-queue[bot]", &[("reason", json!("MERGE_CONFLICT"))]);
            return;
        }
        self.emit_merge_group(ix, "destroyed", Some("merged"));
        self.merge(ix, "github-merge-queue[bot]");
    }

    pub(crate) fn set_auto_merge(&mut self, ix: PrIx, on: bool, by: &str) {
        let now = self.now();
        self.github.pulls[ix.0].auto_merge = on.then(|| (by.to_owned(), now));
        self.touch(ix);
        self.emit_pull(ix, if on { "auto_merge_enabled" } else { "auto_merge_disabled" }, by, &[]);
        self.trigger_bots_with_work(ix);
    }

    pub(crate) fn post_status(&mut self, repo: RepoIx, sha: &Sha, by: &str, report: NewStatus<'_>) {
        let status = FakeStatus {
            id: self.github.id(),
            context: report.context.to_owned(),
            state: report.state,
            description: report.description.to_owned(),
            target_url: report.target_url.to_owned(),
            creator: by.to_owned(),
            created_at: self.now(),
        };
        let prs = {
            let reported = self.github.commits.entry(Arc::clone(sha)).or_default();
            reported.statuses.push(status.clone());
            reported.prs.clone()
        };
        let pr = prs.first().map(|ix| self.name_of(*ix));
        self.log(
            by,
            AuditedAction::StatusPosted,
            pr,
            Some(sha.to_string()),
            format!("{}: {}", report.context, report.state.name()),
        );
        self.emit_status(repo, sha, &status);
        self.trigger_bots_of(sha, &prs);
    }

    /// Creates a check run, or replaces the one with its id.
    pub(crate) fn put_check(&mut self, repo: RepoIx, sha: &Sha, check: FakeCheckRun, by: &str) {
        self.github.sha_of_check.insert(check.id, Arc::clone(sha));
        self.github.sha_of_check.insert(check.suite_id, Arc::clone(sha));
        let reported = self.github.commits.entry(Arc::clone(sha)).or_default();
        let prs = reported.prs.clone();
        let known = reported.checks.iter_mut().find(|known| known.id == check.id);
        let was_completed = known.as_ref().is_some_and(|known| known.conclusion.is_some());
        let new = known.is_none();
        match known {
            Some(known) => *known = check.clone(),
            None => reported.checks.push(check.clone()),
        }
        let first_of_suite = reported.checks.iter().filter(|other| other.suite_id == check.suite_id).count() == 1;
        let suite_done = reported
            .current_checks()
            .iter()
            .filter(|it| it.suite_id == check.suite_id)
            .all(|it| it.conclusion.is_some());
        let pr = prs.first().map(|ix| self.name_of(*ix));
        let action = if new { AuditedAction::CheckRunCreated } else { AuditedAction::CheckRunUpdated };
        self.log(by, action, pr, Some(sha.to_string()), format!("{}: {}", check.name, check.status));
        if new && first_of_suite {
            self.emit_suite(repo, sha, check.suite_id, &check.app_slug, "requested");
        }
        if new {
            self.emit_check(repo, sha, &check, "created");
        }
        if check.conclusion.is_some() && !was_completed {
            self.emit_check(repo, sha, &check, "completed");
            if suite_done {
                self.emit_suite(repo, sha, check.suite_id, &check.app_slug, "completed");
            }
            self.trigger_bots_of(sha, &prs);
        }
    }

    /// Triggers the bots of the pull requests whose head is this commit, after a report on it.
    fn trigger_bots_of(&mut self, sha: &Sha, prs: &[PrIx]) {
        for ix in prs {
            if self.github.pull(*ix).head() == sha && self.github.pull(*ix).is_open() {
                self.trigger_bots_with_work(*ix);
            }
        }
    }

    /// A new check run in its App's check suite of this commit.
    pub(crate) fn new_check(&mut self, sha: &str, name: &str, app_id: u64, app_slug: &str) -> FakeCheckRun {
        let known = self.github.commits.get(sha).and_then(|it| it.checks.iter().find(|check| check.app_id == app_id));
        let suite = known.map(|check| check.suite_id);
        let started: Option<Timestamp> = Some(self.now());
        FakeCheckRun {
            id: self.github.id(),
            suite_id: suite.unwrap_or_else(|| self.github.id()),
            name: name.to_owned(),
            app_id,
            app_slug: app_slug.to_owned(),
            status: "queued".to_owned(),
            conclusion: None,
            external_id: String::new(),
            details_url: String::new(),
            started_at: started,
            completed_at: None,
            title: String::new(),
            summary: String::new(),
            text: String::new(),
            actions: Vec::new(),
        }
    }
}
