//! Check runs of our own, and asking for those of others to run again.

use domain::comment::check_run::{Button, CheckText, Mood, NAME};
use domain::event::cut;
use domain::id::{PrId, RepoName, Sha};
use http::Method;
use jiff::Timestamp;
use octocrab::models::RunId;
use serde::{Deserialize, Serialize};

use super::client::{GitHub, body, part};
use super::pulls::{owner, repo_path};
use crate::http::CallError;

/// GitHub refuses longer texts.
const MAX_TEXT: usize = 65_535;
/// Check runs of one commit are read this far, 100 to a page.
const MOST_PAGES: usize = 10;

/// Where a check run of ours stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    InProgress,
    Success,
    /// Grey: says something, blocks nothing.
    Neutral,
    Failure,
    /// A person has to do something.
    ActionRequired,
}

/// A check run of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRun {
    pub name: String,
    pub head: Sha,
    /// Our own name for it, by which it is found again.
    pub external_id: String,
    pub state: CheckState,
    pub title: String,
    /// The text, Markdown; cut where GitHub would refuse it.
    pub summary: String,
    /// What people can ask for with one click; GitHub shows at most three, and only once it is completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buttons: Vec<Button>,
    /// When it was completed, if that is not when GitHub hears of it. A press of a button has no time of its own, and is dated
    /// by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}

#[derive(Serialize)]
struct Body<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    head_sha: Option<&'a str>,
    external_id: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    conclusion: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    output: Output<'a>,
    actions: Vec<Action>,
}

#[derive(Serialize)]
struct Action {
    label: &'static str,
    description: &'static str,
    identifier: &'static str,
}

impl From<Button> for Action {
    fn from(button: Button) -> Self {
        Self { label: button.label(), description: button.description(), identifier: button.identifier() }
    }
}

#[derive(Serialize)]
struct Output<'a> {
    title: &'a str,
    summary: String,
}

impl CheckState {
    /// As GitHub has it: status and conclusion.
    fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::InProgress => ("in_progress", None),
            Self::Success => ("completed", Some("success")),
            Self::Neutral => ("completed", Some("neutral")),
            Self::Failure => ("completed", Some("failure")),
            Self::ActionRequired => ("completed", Some("action_required")),
        }
    }
}

/// How the names begin that Suture gives its own check runs.
const OWN: &str = "suture:";

/// The pull request whose living check run has this name; nothing if the name is not one of ours.
#[must_use]
pub fn shown_on(external_id: &str) -> Option<PrId> {
    external_id.strip_prefix(OWN)?.parse().ok()
}

impl CheckRun {
    /// The living check run of a pull request, on this head.
    #[must_use]
    pub fn of(pr: &PrId, head: &Sha, text: &CheckText) -> Self {
        Self {
            name: NAME.to_owned(),
            head: head.clone(),
            external_id: format!("{OWN}{pr}"),
            state: match text.mood {
                Mood::Quiet => CheckState::Neutral,
                Mood::Person => CheckState::ActionRequired,
                Mood::Done => CheckState::Success,
            },
            title: text.title.clone(),
            summary: text.summary.clone(),
            buttons: text.buttons.clone(),
            completed_at: None,
        }
    }

    /// Whether this is what a check run shows already.
    #[must_use]
    pub fn is_shown_by(&self, seen: &CheckRunSeen) -> bool {
        let (status, conclusion) = self.state.words();
        seen.status == status
            && seen.conclusion.as_deref() == conclusion
            && seen.title == self.title
            && seen.summary == cut(&self.summary, MAX_TEXT)
    }

    fn body(&self, with_head: bool) -> Body<'_> {
        let (status, conclusion) = self.state.words();
        Body {
            name: &self.name,
            head_sha: with_head.then(|| self.head.as_str()),
            external_id: &self.external_id,
            status,
            conclusion,
            completed_at: self.completed_at.filter(|_| conclusion.is_some()).map(|at| format!("{at:.0}")),
            output: Output { title: &self.title, summary: cut(&self.summary, MAX_TEXT) },
            actions: self.buttons.iter().copied().map(Action::from).collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "RawRun")]
pub struct CheckRunSeen {
    pub id: u64,
    pub name: String,
    /// Its maker's own name for it; Jenkins: `job/path#build`.
    pub external_id: String,
    /// `queued`, `in_progress`, `completed`, …
    pub status: String,
    /// `success`, `failure`, …; none while it is not completed.
    pub conclusion: Option<String>,
    /// The App that made it.
    pub app: String,
    pub title: String,
    pub summary: String,
}

#[derive(Deserialize)]
struct RawRun {
    id: u64,
    name: String,
    external_id: Option<String>,
    status: String,
    conclusion: Option<String>,
    app: Option<AppName>,
    output: Option<RawOutput>,
}

#[derive(Deserialize, Default)]
struct RawOutput {
    title: Option<String>,
    summary: Option<String>,
}

#[derive(Deserialize)]
struct Id {
    id: u64,
}

#[derive(Deserialize)]
struct AppName {
    slug: Option<String>,
}

impl From<RawRun> for CheckRunSeen {
    fn from(raw: RawRun) -> Self {
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
    /// Which attempt it is.
    #[serde(default)]
    pub run_attempt: u32,
    /// When this attempt began.
    pub run_started_at: Option<Timestamp>,
    /// `success`, `failure`, …; none while it is not completed.
    pub conclusion: Option<String>,
}

impl GitHub {
    /// Creates a check run and answers its id.
    pub async fn create_check_run(&self, repo: &RepoName, run: &CheckRun) -> Result<u64, CallError> {
        let path = repo_path(repo, "check-runs");
        let response = self.write(owner(repo), Method::POST, &path, Some(&run.body(true))).await?;
        Ok(body::<Id>(response).await?.id)
    }

    /// Changes a check run. Its commit stays what it was.
    pub async fn update_check_run(&self, repo: &RepoName, id: u64, run: &CheckRun) -> Result<(), CallError> {
        let path = repo_path(repo, &format!("check-runs/{id}"));
        self.write(owner(repo), Method::PATCH, &path, Some(&run.body(false))).await.map(drop)
    }

    /// The newest check runs of a commit, by whomever.
    pub async fn check_runs(&self, repo: &RepoName, head: &Sha) -> Result<Vec<CheckRunSeen>, CallError> {
        self.list_check_runs(repo, head, "").await
    }

    /// Page by page: octocrab's `Page` knows no list of this name.
    async fn list_check_runs(&self, repo: &RepoName, head: &Sha, filter: &str) -> Result<Vec<CheckRunSeen>, CallError> {
        #[derive(Deserialize)]
        struct List {
            total_count: usize,
            check_runs: Vec<CheckRunSeen>,
        }
        let mut all = Vec::new();
        for page in 1..=MOST_PAGES {
            let path = repo_path(repo, &format!("commits/{head}/check-runs?{filter}per_page=100&page={page}"));
            let list: List = self.read(owner(repo), &path).await?;
            let last = list.check_runs.len() < 100;
            all.extend(list.check_runs);
            if last || all.len() >= list.total_count {
                break;
            }
        }
        Ok(all)
    }

    /// The newest check run of ours under this name on its commit: the probe before one is created.
    pub async fn find_check_run(&self, repo: &RepoName, run: &CheckRun) -> Result<Option<CheckRunSeen>, CallError> {
        // All of them: two pull requests may share a head, and the newest of a name would hide the other's.
        let filter = format!("check_name={}&filter=all&", part(&run.name));
        let runs = self.list_check_runs(repo, &run.head, &filter).await?;
        Ok(runs.into_iter().filter(|seen| seen.external_id == run.external_id).max_by_key(|seen| seen.id))
    }

    /// Asks for a check run to run again. Only its maker hears it.
    pub async fn rerequest_check_run(&self, repo: &RepoName, id: u64) -> Result<(), CallError> {
        // Octocrab's own call would send a body that GitHub does not describe.
        let path = repo_path(repo, &format!("check-runs/{id}/rerequest"));
        self.write(owner(repo), Method::POST, &path, None::<&()>).await.map(drop)
    }

    /// The workflow runs of a commit, newest first.
    pub async fn workflow_runs(&self, repo: &RepoName, head: &Sha) -> Result<Vec<WorkflowRun>, CallError> {
        let path = repo_path(repo, &format!("actions/runs?head_sha={head}&per_page=100"));
        self.read_all(owner(repo), &path).await
    }

    /// Runs the failed jobs of a workflow run again.
    pub async fn rerun_failed_jobs(&self, repo: &RepoName, run: u64) -> Result<(), CallError> {
        let (owner_name, name, run) = (repo.owner(), repo.name(), RunId(run));
        self.call(owner(repo), |github| async move { github.workflows(owner_name, name).rerun_failed_jobs(run).await })
            .await
    }
}
