//! Suture's check run, and re-runs of other check runs and workflows.

use domain::event::truncate;
use domain::id::{PrId, RepoName, Sha};
use domain::text::check_run::{CHECK_RUN_NAME, CheckConclusion, CheckRunButton, CheckRunText};
use http::Method;
use jiff::Timestamp;
use octocrab::models::RunId;
use serde::{Deserialize, Serialize};

use super::client::{GitHub, body, encode_segment};
use super::pulls::{owner, repo_path};
use crate::transport::ApiError;

/// GitHub rejects longer texts.
const MAX_TEXT: usize = 65_535;
/// Pages of 100 check runs, per commit.
const MAX_PAGES: usize = 10;

/// Status and conclusion of Suture's check run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckRunState {
    InProgress,
    Success,
    /// Grey; blocks nothing.
    Neutral,
    Failure,
    /// A user has to act.
    ActionRequired,
}

/// Suture's check run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRun {
    pub name: String,
    pub head: Sha,
    /// Identifies the check run in later lookups.
    pub external_id: String,
    pub state: CheckRunState,
    pub title: String,
    /// Markdown; truncated to GitHub's limit.
    pub summary: String,
    /// GitHub shows at most three, and only on a completed check run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buttons: Vec<CheckRunButton>,
    /// Default: when GitHub receives it. A click on a button has no timestamp and gets this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}

#[derive(Serialize)]
struct CheckRunBody<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    head_sha: Option<&'a str>,
    external_id: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    conclusion: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    output: CheckRunOutput<'a>,
    actions: Vec<CheckRunAction>,
}

#[derive(Serialize)]
struct CheckRunAction {
    label: &'static str,
    description: &'static str,
    identifier: &'static str,
}

impl From<CheckRunButton> for CheckRunAction {
    fn from(button: CheckRunButton) -> Self {
        Self { label: button.label(), description: button.description(), identifier: button.identifier() }
    }
}

#[derive(Serialize)]
struct CheckRunOutput<'a> {
    title: &'a str,
    summary: String,
}

impl CheckRunState {
    fn status_and_conclusion(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::InProgress => ("in_progress", None),
            Self::Success => ("completed", Some("success")),
            Self::Neutral => ("completed", Some("neutral")),
            Self::Failure => ("completed", Some("failure")),
            Self::ActionRequired => ("completed", Some("action_required")),
        }
    }
}

/// Prefix of `external_id` of Suture's check runs.
const EXTERNAL_ID_PREFIX: &str = "suture:";

/// The pull request of Suture's check run with this external id; `None` for other check runs.
pub fn pr_of_check_run(external_id: &str) -> Option<PrId> {
    external_id.strip_prefix(EXTERNAL_ID_PREFIX)?.parse().ok()
}

impl CheckRun {
    /// The check run of a pull request on this head.
    pub fn of(pr: &PrId, head: &Sha, text: &CheckRunText) -> Self {
        Self {
            name: CHECK_RUN_NAME.to_owned(),
            head: head.clone(),
            external_id: format!("{EXTERNAL_ID_PREFIX}{pr}"),
            state: match text.mood {
                CheckConclusion::Quiet => CheckRunState::Neutral,
                CheckConclusion::Person => CheckRunState::ActionRequired,
                CheckConclusion::Done => CheckRunState::Success,
            },
            title: text.title.clone(),
            summary: text.summary.clone(),
            buttons: text.buttons.clone(),
            completed_at: None,
        }
    }

    /// Whether the existing check run has the same content.
    pub fn matches(&self, existing: &ExistingCheckRun) -> bool {
        let (status, conclusion) = self.state.status_and_conclusion();
        existing.status == status
            && existing.conclusion.as_deref() == conclusion
            && existing.title == self.title
            && existing.summary == truncate(&self.summary, MAX_TEXT)
    }

    fn body(&self, with_head: bool) -> CheckRunBody<'_> {
        let (status, conclusion) = self.state.status_and_conclusion();
        CheckRunBody {
            name: &self.name,
            head_sha: with_head.then(|| self.head.as_str()),
            external_id: &self.external_id,
            status,
            conclusion,
            completed_at: self.completed_at.filter(|_| conclusion.is_some()).map(|at| format!("{at:.0}")),
            output: CheckRunOutput { title: &self.title, summary: truncate(&self.summary, MAX_TEXT) },
            actions: self.buttons.iter().copied().map(CheckRunAction::from).collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "RawCheckRun")]
pub struct ExistingCheckRun {
    pub id: u64,
    pub name: String,
    /// Set by the App that created it; Jenkins uses `job/path#build`.
    pub external_id: String,
    /// `queued`, `in_progress`, `completed`, …
    pub status: String,
    /// `success`, `failure`, …; `None` until completed.
    pub conclusion: Option<String>,
    /// The slug of the App that created it.
    pub app: String,
    pub title: String,
    pub summary: String,
}

#[derive(Deserialize)]
struct RawCheckRun {
    id: u64,
    name: String,
    external_id: Option<String>,
    status: String,
    conclusion: Option<String>,
    app: Option<AppName>,
    output: Option<RawCheckOutput>,
}

#[derive(Deserialize, Default)]
struct RawCheckOutput {
    title: Option<String>,
    summary: Option<String>,
}

#[derive(Deserialize)]
struct CreatedCheckRun {
    id: u64,
}

#[derive(Deserialize)]
struct AppName {
    slug: Option<String>,
}

impl From<RawCheckRun> for ExistingCheckRun {
    fn from(raw: RawCheckRun) -> Self {
        let output = raw.output.unwrap_or_default();
        Self {
            id: raw.id,
            name: raw.name,
            external_id: raw.external_id.unwrap_or_default(),
            status: raw.status,
            conclusion: raw.conclusion,
            app: raw.app.and_then(|app| app.slug).unwrap_or_default(),
            title: output.title.unwrap_or_default(),
            summary: output.summary.unwrap_or_default(),
        }
    }
}

/// A run of a GitHub Actions workflow.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WorkflowRun {
    pub id: u64,
    /// Attempt number, from 1.
    #[serde(default)]
    pub run_attempt: u32,
    /// When this attempt started.
    pub run_started_at: Option<Timestamp>,
    /// `success`, `failure`, …; `None` until completed.
    pub conclusion: Option<String>,
}

impl GitHub {
    /// Creates a check run and returns its id.
    pub async fn create_check_run(&self, repo: &RepoName, run: &CheckRun) -> Result<u64, ApiError> {
        let path = repo_path(repo, "check-runs");
        let response = self.write(owner(repo), Method::POST, &path, Some(&run.body(true))).await?;
        Ok(body::<CreatedCheckRun>(response).await?.id)
    }

    /// Updates a check run; its commit cannot be changed.
    pub async fn update_check_run(&self, repo: &RepoName, id: u64, run: &CheckRun) -> Result<(), ApiError> {
        let path = repo_path(repo, &format!("check-runs/{id}"));
        self.write(owner(repo), Method::PATCH, &path, Some(&run.body(false))).await.map(drop)
    }

    /// The newest check runs of a commit, of all Apps.
    pub async fn check_runs(&self, repo: &RepoName, head: &Sha) -> Result<Vec<ExistingCheckRun>, ApiError> {
        self.list_check_runs(repo, head, "").await
    }

    // Octocrab's `Page` does not support lists named `check_runs`.
    async fn list_check_runs(
        &self,
        repo: &RepoName,
        head: &Sha,
        filter: &str,
    ) -> Result<Vec<ExistingCheckRun>, ApiError> {
        #[derive(Deserialize)]
        struct CheckRunList {
            total_count: usize,
            check_runs: Vec<ExistingCheckRun>,
        }
        let mut all = Vec::new();
        for page in 1..=MAX_PAGES {
            let path = repo_path(repo, &format!("commits/{head}/check-runs?{filter}per_page=100&page={page}"));
            let list: CheckRunList = self.read(owner(repo), &path).await?;
            let last = list.check_runs.len() < 100;
            all.extend(list.check_runs);
            if last || all.len() >= list.total_count {
                break;
            }
        }
        Ok(all)
    }

    /// The newest check run with this name and external id on the commit; the probe before creating one.
    pub async fn find_check_run(&self, repo: &RepoName, run: &CheckRun) -> Result<Option<ExistingCheckRun>, ApiError> {
        // `filter=all`, because two pull requests may have the same head, and `latest` would return only one of them.
        let filter = format!("check_name={}&filter=all&", encode_segment(&run.name));
        let runs = self.list_check_runs(repo, &run.head, &filter).await?;
        Ok(runs.into_iter().filter(|found| found.external_id == run.external_id).max_by_key(|found| found.id))
    }

    /// Requests a re-run of a check run; GitHub notifies only the App that created it.
    pub async fn rerequest_check_run(&self, repo: &RepoName, id: u64) -> Result<(), ApiError> {
        // Octocrab's own method sends an undocumented body.
        let path = repo_path(repo, &format!("check-runs/{id}/rerequest"));
        self.write(owner(repo), Method::POST, &path, None::<&()>).await.map(drop)
    }

    /// The workflow runs of a commit, newest first.
    pub async fn workflow_runs(&self, repo: &RepoName, head: &Sha) -> Result<Vec<WorkflowRun>, ApiError> {
        let path = repo_path(repo, &format!("actions/runs?head_sha={head}&per_page=100"));
        self.read_all(owner(repo), &path).await
    }

    pub async fn rerun_failed_jobs(&self, repo: &RepoName, run: u64) -> Result<(), ApiError> {
        let (owner_name, name, run) = (repo.owner(), repo.name(), RunId(run));
        self.call(owner(repo), |github| async move { github.workflows(owner_name, name).rerun_failed_jobs(run).await })
            .await
    }
}
