//! The backlog: lists the issues of the pipeline, looks up their pull requests, lets the domain plan, and sends the
//! steps to the queue of the Car Bridge. All memory is one versioned item, so that of two concurrent sweeps one plans.

use std::collections::BTreeMap;

use domain::coordination::backlog::{
    self, BacklogAction, BacklogIssue, BacklogLimits, BacklogMemory, BacklogStep, IssuePullRequest, IssueStage,
    urgent_label,
};
use domain::id::{EffectId, PrId, RepoName};
use domain::policy::{Backlog, Mode};
use domain::state::State;
use domain::text::coordination as coordination_text;
use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use platform::sweep_summary::CoordinationSummary;

use super::{CoordinationError, CoordinationErrors, Coordinator};
use crate::context::saturating_after;
use crate::limits::rate_budget::WorkKind;
use platform::github;
use platform::publish::Publisher;
use platform::publish::queue_message::{IssueUpdate, PullRequestRequest, Task};
use platform::store::not_before;
use platform::store::queries;
use platform::store::versioned::{self, Versioned};
use platform::store::{Key, Store, StoreError};
use platform::transport::ApiError;

/// The name under which the time of the next pass is stored.
const NEXT_PASS: &str = "backlog";
/// The memory is kept this long after the last pass.
const RETENTION: SignedDuration = SignedDuration::from_hours(24 * 14);

pub(super) fn key() -> Key {
    Key::state("BACKLOG")
}

impl<S: Store, O: Publisher> Coordinator<'_, S, O> {
    pub(super) async fn backlog(
        &self,
        summary: &mut CoordinationSummary,
        failed: &mut CoordinationErrors,
    ) -> Result<(), CoordinationError> {
        let repos = self.backlog_repos().await?;
        let now = self.cx.now();
        if repos.is_empty() || not_before::load(self.cx.store(), NEXT_PASS, now).await?.is_some() {
            return Ok(());
        }
        if self.is_scarce(WorkKind::Build, "backlog", summary) {
            return Ok(());
        }
        let tidy = !self.is_scarce(WorkKind::Triage, "backlog triage", summary);
        let issues = self.read_issues(&repos, failed).await?;
        let known: Option<Versioned<BacklogMemory>> = versioned::load(self.cx.store(), &key(), now).await?;
        let version = known.as_ref().map(|known| known.version);
        let memory = known.map(|known| known.value).unwrap_or_default();
        let policies = self.cx.policies();
        let may = BacklogLimits { may_request: self.is_breaker_closed(), may_follow_up: tidy };
        let wip_limit = policies.base().coordination.wip_limit;
        let plan = backlog::plan(&issues, memory, |repo| &policies.for_repo(repo).backlog, wip_limit, may, now);
        // Saved before sending: a second sweep loses the conditional write and sends nothing.
        if !versioned::save(self.cx.store(), &key(), &plan.memory, version, Some(saturating_after(now, RETENTION)), now)
            .await?
        {
            return Ok(());
        }
        summary.waiting += plan.waiting;
        for step in &plan.steps {
            self.send_step(step, summary).await?;
        }
        let every = repos.iter().map(|repo| policies.for_repo(repo).backlog.every_minutes).min().unwrap_or(1);
        // Half a minute earlier, so that the sweep of that minute runs it whichever second it starts in.
        let next = SignedDuration::from_mins(every.into()).saturating_sub(SignedDuration::from_secs(30));
        Ok(not_before::set(self.cx.store(), NEXT_PASS, saturating_after(now, next), now).await?)
    }

    /// The repositories with an enabled backlog in act mode: registered ones, and those named in the configuration.
    async fn backlog_repos(&self) -> Result<Vec<RepoName>, StoreError> {
        let policies = self.cx.policies();
        let named: Vec<RepoName> = policies.overrides().filter_map(|(name, _)| name.parse().ok()).collect();
        if !policies.base().backlog.enabled && named.iter().all(|repo| !policies.for_repo(repo).backlog.enabled) {
            return Ok(Vec::new());
        }
        let mut repos: Vec<RepoName> = queries::repos(self.cx.store(), self.cx.now()).await?.into_iter().collect();
        for repo in named {
            // A registered repository is already listed, with GitHub's spelling.
            if repos.iter().all(|known| !known.as_str().eq_ignore_ascii_case(repo.as_str())) {
                repos.push(repo);
            }
        }
        let enabled = |repo: &RepoName| {
            let policy = policies.for_repo(repo);
            policy.backlog.enabled && policy.mode == Mode::Act
        };
        repos.retain(enabled);
        Ok(repos)
    }

    /// The open issues of the pipeline. A repository that cannot be listed is skipped and reported.
    async fn read_issues(
        &self,
        repos: &[RepoName],
        failed: &mut CoordinationErrors,
    ) -> Result<Vec<BacklogIssue>, CoordinationError> {
        let mut found = Vec::new();
        for repo in repos {
            match self.list_issues(repo).await {
                Ok(issues) => {
                    for (issue, stage) in issues {
                        let number = issue.number;
                        match self.with_pull(repo, issue, stage).await {
                            Ok(issue) => found.push(issue),
                            // The memory of the issue still counts.
                            Err(CoordinationError::Call(error)) => {
                                failed.push(("backlog", format!("{repo}#{number}: {error}")))
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => {
                    warn!(run = %self.cx.trigger.run, %repo, %error, "cannot list backlog issues");
                    failed.push(("backlog", format!("{repo}: {error}")));
                    if !matches!(error, ApiError::NotFound { .. } | ApiError::Refused { .. }) {
                        // GitHub is unavailable for the next repository too.
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    /// Lists in the order of the pipeline: an issue that changes its stage meanwhile is in one list or in both, and
    /// counts once.
    async fn list_issues(&self, repo: &RepoName) -> Result<Vec<(github::GitHubIssue, IssueStage)>, ApiError> {
        let settings = &self.cx.policies().for_repo(repo).backlog;
        let mut issues: BTreeMap<u64, github::GitHubIssue> = BTreeMap::new();
        for stage in IssueStage::ALL {
            for issue in self.cx.github.issues_labelled(repo, &stage.label(settings), false).await? {
                issues.insert(issue.number, issue);
            }
        }
        let staged = |issue: github::GitHubIssue| IssueStage::of(&issue.labels, settings).map(|stage| (issue, stage));
        Ok(issues.into_values().filter_map(staged).collect())
    }

    async fn with_pull(
        &self,
        repo: &RepoName,
        issue: github::GitHubIssue,
        stage: IssueStage,
    ) -> Result<BacklogIssue, CoordinationError> {
        let policy = self.cx.policies().for_repo(repo);
        let vulnerability = policy.managed.vulnerability_id(&[&issue.title, &issue.body]);
        let (mut abandoned, mut pull) = (false, IssuePullRequest::None);
        if let Some(id) = &vulnerability {
            let (store, now) = (self.cx.store(), self.cx.now());
            let known = queries::vulnerability(store, repo, &policy.backlog.base_branch, id, now).await?;
            abandoned = known.abandoned;
            if let Some(number) = known.open.last().or_else(|| known.lineage.last()) {
                pull = self.pull_of(&PrId::new(repo.clone(), *number), stage).await?;
            }
        }
        let created_at = issue.created_at.unwrap_or_else(|| self.cx.now());
        let (number, labels, assigned) = (issue.number, issue.labels, issue.assigned);
        Ok(BacklogIssue { repo: repo.clone(), number, labels, assigned, created_at, vulnerability, abandoned, pull })
    }

    /// The state of a pull request: from its record, or from GitHub if the record has expired and the stage needs it.
    async fn pull_of(&self, pr: &PrId, stage: IssueStage) -> Result<IssuePullRequest, CoordinationError> {
        if let Some(record) = queries::records(self.cx.store(), std::slice::from_ref(pr), self.cx.now()).await?.pop() {
            let number = pr.number;
            if record.state.is_terminal() {
                let merged = record.state == State::Merged;
                let at = record.state_since;
                return Ok(if merged {
                    IssuePullRequest::Merged { number, at }
                } else {
                    IssuePullRequest::Closed(number)
                });
            }
            let approved = matches!(record.state, State::Approved | State::Merging);
            let taken = record.is_held() || record.draft || record.active_run.is_some();
            return Ok(IssuePullRequest::Open { number, approved, taken });
        }
        if !matches!(stage, IssueStage::PrOpen | IssueStage::ReviewFailed) {
            return Ok(IssuePullRequest::None);
        }
        Ok(match self.cx.github.pull(pr).await {
            Ok(pull) if pull.merged => {
                IssuePullRequest::Merged { number: pr.number, at: pull.closed_at.unwrap_or_else(|| self.cx.now()) }
            }
            // Only known to be open: treated as approved and taken, so that it is not closed.
            Ok(pull) if pull.open => IssuePullRequest::Open { number: pr.number, approved: true, taken: true },
            Ok(_) => IssuePullRequest::Closed(pr.number),
            Err(ApiError::NotFound { .. }) => IssuePullRequest::None,
            Err(error) => return Err(error.into()),
        })
    }

    async fn send_step(&self, step: &BacklogStep, summary: &mut CoordinationSummary) -> Result<(), CoordinationError> {
        let settings = &self.cx.policies().for_repo(&step.repo).backlog;
        let (repo, issue) = (step.repo.clone(), step.number);
        if let BacklogAction::RequestPullRequest { vulnerability, request } = &step.action {
            let effect = format!("backlog:{repo}#{issue}:{request}");
            let ask = PullRequestRequest {
                issue,
                vulnerability: vulnerability.clone(),
                base_branch: settings.base_branch.clone(),
                effect: EffectId::new(effect.clone()),
                approved: IssueStage::Approved.label(settings),
                in_progress: IssueStage::InProgress.label(settings),
            };
            summary.requested += 1;
            return self.send(effect, Task::AskForPull { repo, ask: Box::new(ask) }).await;
        }
        let Some(tending) = issue_update(step, settings, self.cx.now()) else { return Ok(()) };
        summary.issues_updated += 1;
        self.send(tending.key.clone(), Task::Tend { repo, tending: Box::new(tending) }).await
    }
}

/// The issue update that the Car Bridge executes for a step.
fn issue_update(step: &BacklogStep, settings: &Backlog, now: Timestamp) -> Option<IssueUpdate> {
    let label = |stage: IssueStage| stage.label(settings);
    let but =
        |kept: IssueStage| IssueStage::ALL.into_iter().filter(|stage| *stage != kept).map(label).collect::<Vec<_>>();
    let all = || IssueStage::ALL.into_iter().map(label).collect::<Vec<_>>();
    let (name, add, remove, comment, close) = match &step.action {
        BacklogAction::RequestPullRequest { .. } => return None,
        BacklogAction::Opened(_) => ("opened", vec![label(IssueStage::PrOpen)], but(IssueStage::PrOpen), None, None),
        BacklogAction::Requeue(why) => {
            let comment = Some(coordination_text::issue_requeued(*why));
            ("requeue", vec![label(IssueStage::Approved)], but(IssueStage::Approved), comment, None)
        }
        BacklogAction::ClosePullRequest(_) => {
            ("give-up", vec![label(IssueStage::Approved)], but(IssueStage::Approved), None, None)
        }
        BacklogAction::CloseUnapproved => {
            let rejected = format!("{}rejected", settings.label_prefix);
            let comment = Some(coordination_text::issue_rejected(settings.discovered_hours));
            ("reject", vec![rejected], all(), comment, Some("not_planned"))
        }
        BacklogAction::Done(number) => {
            ("done", Vec::new(), all(), Some(coordination_text::issue_done(*number)), Some("completed"))
        }
        BacklogAction::MarkUrgent(why) => {
            ("urge", vec![urgent_label(settings)], Vec::new(), Some(coordination_text::issue_urgent(*why)), None)
        }
    };
    let close_pull = match &step.action {
        BacklogAction::ClosePullRequest(number) => {
            Some((*number, coordination_text::pull_request_given_up(step.number, settings.review_failed_hours)))
        }
        BacklogAction::RequestPullRequest { .. }
        | BacklogAction::Opened(_)
        | BacklogAction::Requeue(_)
        | BacklogAction::CloseUnapproved
        | BacklogAction::Done(_)
        | BacklogAction::MarkUrgent(_) => None,
    };
    Some(IssueUpdate {
        issue: step.number,
        // The same while the issue stays in its stage.
        key: format!("backlog:{}#{}:{name}:{}", step.repo, step.number, step.since.as_second()),
        expects: label(step.from),
        add,
        remove,
        comment,
        close: close.map(str::to_owned),
        close_pull,
        since: step.since.min(now),
    })
}
