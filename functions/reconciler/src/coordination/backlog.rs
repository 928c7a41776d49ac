//! The backlog: lists the issues of the pipeline, looks up their pull requests, lets the domain plan, and sends the
//! steps to the queue of the Car Bridge. All memory is one versioned item, so that of two concurrent sweeps one plans.

use std::collections::BTreeMap;

use domain::comment::coordination as words;
use domain::coordination::backlog::{self, Issue, May, Memory, Pull, Stage, Step, What, urgent_label};
use domain::id::{EffectId, PrId, RepoName};
use domain::policy::{Backlog, Mode};
use domain::state::State;
use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use platform::sweep_summary::Coordinated;

use super::{Coordinator, Failed, Failures};
use crate::context::after;
use crate::limits::rate_budget::WorkKind;
use platform::github;
use platform::guards;
use platform::http::CallError;
use platform::lookup;
use platform::outlets::Outlets;
use platform::outlets::message::{Chore, PullAsk, Tending};
use platform::store::versioned::{self, Versioned};
use platform::store::{Key, Store, StoreError};

/// The name under which the time of the next pass is stored.
const NEXT_PASS: &str = "backlog";
/// The memory is kept this long after the last pass.
const RETENTION: SignedDuration = SignedDuration::from_hours(24 * 14);

pub(super) fn key() -> Key {
    Key::state("BACKLOG")
}

impl<S: Store, O: Outlets> Coordinator<'_, S, O> {
    pub(super) async fn backlog(&self, summary: &mut Coordinated, failed: &mut Failures) -> Result<(), Failed> {
        let repos = self.backlog_repos().await?;
        let now = self.cx.now();
        if repos.is_empty() || guards::held_off(self.cx.store(), NEXT_PASS, now).await?.is_some() {
            return Ok(());
        }
        if self.is_scarce(WorkKind::Build, "backlog", summary) {
            return Ok(());
        }
        let tidy = !self.is_scarce(WorkKind::Triage, "backlog triage", summary);
        let issues = self.read_issues(&repos, failed).await?;
        let known: Option<Versioned<Memory>> = versioned::load(self.cx.store(), &key(), now).await?;
        let version = known.as_ref().map(|known| known.version);
        let memory = known.map(|known| known.value).unwrap_or_default();
        let policies = self.cx.policies();
        let may = May { ask: self.is_breaker_closed, tidy };
        let wip_limit = policies.base().coordination.wip_limit;
        let plan = backlog::plan(&issues, memory, |repo| &policies.for_repo(repo).backlog, wip_limit, may, now);
        // Saved before sending: a second sweep loses the conditional write and sends nothing.
        if !versioned::save(self.cx.store(), &key(), &plan.memory, version, Some(after(now, RETENTION)), now).await? {
            return Ok(());
        }
        summary.waiting += plan.waiting;
        for step in &plan.steps {
            self.send_step(step, summary).await?;
        }
        let every = repos.iter().map(|repo| policies.for_repo(repo).backlog.every_minutes).min().unwrap_or(1);
        // Half a minute earlier, so that the sweep of that minute runs it whichever second it starts in.
        let next = SignedDuration::from_mins(every.into()).saturating_sub(SignedDuration::from_secs(30));
        Ok(guards::hold_off(self.cx.store(), NEXT_PASS, after(now, next), now).await?)
    }

    /// The repositories with an enabled backlog in act mode: registered ones, and those named in the configuration.
    async fn backlog_repos(&self) -> Result<Vec<RepoName>, StoreError> {
        let policies = self.cx.policies();
        let named: Vec<RepoName> = policies.overrides().filter_map(|(name, _)| name.parse().ok()).collect();
        if !policies.base().backlog.enabled && named.iter().all(|repo| !policies.for_repo(repo).backlog.enabled) {
            return Ok(Vec::new());
        }
        let mut repos: Vec<RepoName> = lookup::repos(self.cx.store(), self.cx.now()).await?.into_iter().collect();
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
    async fn read_issues(&self, repos: &[RepoName], failed: &mut Failures) -> Result<Vec<Issue>, Failed> {
        let mut found = Vec::new();
        for repo in repos {
            match self.list_issues(repo).await {
                Ok(issues) => {
                    for (issue, stage) in issues {
                        let number = issue.number;
                        match self.with_pull(repo, issue, stage).await {
                            Ok(issue) => found.push(issue),
                            // The memory of the issue still counts.
                            Err(Failed::Call(error)) => failed.push(("backlog", format!("{repo}#{number}: {error}"))),
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => {
                    warn!(run = %self.cx.trigger.run, %repo, %error, "cannot list backlog issues");
                    failed.push(("backlog", format!("{repo}: {error}")));
                    if !matches!(error, CallError::Gone { .. } | CallError::Refused { .. }) {
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
    async fn list_issues(&self, repo: &RepoName) -> Result<Vec<(github::Issue, Stage)>, CallError> {
        let settings = &self.cx.policies().for_repo(repo).backlog;
        let mut issues: BTreeMap<u64, github::Issue> = BTreeMap::new();
        for stage in Stage::ALL {
            for issue in self.cx.github.issues_labelled(repo, &stage.label(settings), false).await? {
                issues.insert(issue.number, issue);
            }
        }
        let staged = |issue: github::Issue| Stage::of(&issue.labels, settings).map(|stage| (issue, stage));
        Ok(issues.into_values().filter_map(staged).collect())
    }

    async fn with_pull(&self, repo: &RepoName, issue: github::Issue, stage: Stage) -> Result<Issue, Failed> {
        let policy = self.cx.policies().for_repo(repo);
        let vulnerability = policy.ours.vulnerability_id(&[&issue.title, &issue.body]);
        let (mut abandoned, mut pull) = (false, Pull::None);
        if let Some(id) = &vulnerability {
            let (store, now) = (self.cx.store(), self.cx.now());
            let known = lookup::vulnerability(store, repo, &policy.backlog.base_branch, id, now).await?;
            abandoned = known.abandoned;
            if let Some(number) = known.open.last().or_else(|| known.lineage.last()) {
                pull = self.pull_of(&PrId::new(repo.clone(), *number), stage).await?;
            }
        }
        let created_at = issue.created_at.unwrap_or_else(|| self.cx.now());
        let (number, labels, assigned) = (issue.number, issue.labels, issue.assigned);
        Ok(Issue { repo: repo.clone(), number, labels, assigned, created_at, vulnerability, abandoned, pull })
    }

    /// The state of a pull request: from its record, or from GitHub if the record has expired and the stage needs it.
    async fn pull_of(&self, pr: &PrId, stage: Stage) -> Result<Pull, Failed> {
        if let Some(record) = lookup::records(self.cx.store(), std::slice::from_ref(pr), self.cx.now()).await?.pop() {
            let number = pr.number;
            if record.state.is_terminal() {
                let merged = record.state == State::Merged;
                let at = record.progressed_at;
                return Ok(if merged { Pull::Merged { number, at } } else { Pull::Closed(number) });
            }
            let approved = matches!(record.state, State::Approved | State::Merging);
            let taken = record.is_held() || record.draft || record.active_run.is_some();
            return Ok(Pull::Open { number, approved, taken });
        }
        if !matches!(stage, Stage::PrOpen | Stage::ReviewFailed) {
            return Ok(Pull::None);
        }
        Ok(match self.cx.github.pull(pr).await {
            Ok(pull) if pull.merged => {
                Pull::Merged { number: pr.number, at: pull.closed_at.unwrap_or_else(|| self.cx.now()) }
            }
            // Only known to be open: treated as approved and taken, so that it is not closed.
            Ok(pull) if pull.open => Pull::Open { number: pr.number, approved: true, taken: true },
            Ok(_) => Pull::Closed(pr.number),
            Err(CallError::Gone { .. }) => Pull::None,
            Err(error) => return Err(error.into()),
        })
    }

    async fn send_step(&self, step: &Step, summary: &mut Coordinated) -> Result<(), Failed> {
        let settings = &self.cx.policies().for_repo(&step.repo).backlog;
        let (repo, issue) = (step.repo.clone(), step.number);
        if let What::Ask { vulnerability, request } = &step.what {
            let effect = format!("backlog:{repo}#{issue}:{request}");
            let ask = PullAsk {
                issue,
                vulnerability: vulnerability.clone(),
                base_branch: settings.base_branch.clone(),
                effect: EffectId::new(effect.clone()),
                approved: Stage::Approved.label(settings),
                in_progress: Stage::InProgress.label(settings),
            };
            summary.asked += 1;
            return self.send(effect, Chore::AskForPull { repo, ask: Box::new(ask) }).await;
        }
        let Some(tending) = tending(step, settings, self.cx.now()) else { return Ok(()) };
        summary.tended += 1;
        self.send(tending.key.clone(), Chore::Tend { repo, tending: Box::new(tending) }).await
    }
}

/// The issue update that the Car Bridge executes for a step.
fn tending(step: &Step, settings: &Backlog, now: Timestamp) -> Option<Tending> {
    let label = |stage: Stage| stage.label(settings);
    let but = |kept: Stage| Stage::ALL.into_iter().filter(|stage| *stage != kept).map(label).collect::<Vec<_>>();
    let all = || Stage::ALL.into_iter().map(label).collect::<Vec<_>>();
    let (name, add, remove, comment, close) = match &step.what {
        What::Ask { .. } => return None,
        What::Opened(_) => ("opened", vec![label(Stage::PrOpen)], but(Stage::PrOpen), None, None),
        What::Requeue(why) => {
            let comment = Some(words::requeued(*why));
            ("requeue", vec![label(Stage::Approved)], but(Stage::Approved), comment, None)
        }
        What::GiveUp(_) => ("give-up", vec![label(Stage::Approved)], but(Stage::Approved), None, None),
        What::Reject => {
            let rejected = format!("{}rejected", settings.label_prefix);
            let comment = Some(words::rejected(settings.discovered_hours));
            ("reject", vec![rejected], all(), comment, Some("not_planned"))
        }
        What::Done(number) => ("done", Vec::new(), all(), Some(words::done(*number)), Some("completed")),
        What::Urge(why) => ("urge", vec![urgent_label(settings)], Vec::new(), Some(words::urgent(*why)), None),
    };
    let close_pull = match &step.what {
        What::GiveUp(number) => Some((*number, words::given_up(step.number, settings.review_failed_hours))),
        What::Ask { .. } | What::Opened(_) | What::Requeue(_) | What::Reject | What::Done(_) | What::Urge(_) => None,
    };
    Some(Tending {
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
