//! Reads Jenkins' queue, builds and logs.

use domain::id::Sha;
use domain::snapshot::BuildStatus;
use http::Uri;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::job::{BuildRef, JenkinsJob};
use super::{ApiError, Jenkins};
use crate::transport::BodyLimit;

/// Most builds read per job; older ones do not matter.
const MAX_BUILDS: usize = 30;
const BUILD_FIELDS: &str = "number,url,building,result,timestamp,duration,\
    actions[lastBuiltRevision[SHA1],parameters[name,value],foundFailureCauses[name,description]]";

/// An item of the build queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueItem {
    pub id: u64,
    pub why: Option<String>,
    /// Whether the item was cancelled in the queue.
    pub cancelled: bool,
    pub since: Option<Timestamp>,
    pub build: Option<BuildRef>,
}

/// The state of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildState {
    pub build: BuildRef,
    pub building: bool,
    /// `SUCCESS`, `FAILURE`, `UNSTABLE`, `ABORTED`, `NOT_BUILT`; `None` while running.
    pub result: Option<String>,
    pub started_at: Timestamp,
    /// The built commits, and the values of the parameters.
    pub revisions: Vec<String>,
    /// Causes found by the Build Failure Analyzer plugin, if it is installed.
    pub failure_causes: Vec<String>,
}

/// Selects the builds of a job.
#[derive(Debug, Clone, Copy)]
pub struct BuildQuery<'a> {
    pub job: &'a JenkinsJob,
    /// Only builds of this commit. `None` for jobs of one pull request: they build merge commits and do not report the head, so every
    /// build since `since` matches.
    pub commit: Option<&'a Sha>,
    pub since: Timestamp,
}

/// The newest match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildMatch {
    Queued(QueueItem),
    Build(BuildState),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawItem {
    id: u64,
    why: Option<String>,
    #[serde(default)]
    cancelled: bool,
    in_queue_since: Option<i64>,
    task: Option<RawUrl>,
    executable: Option<RawUrl>,
    #[serde(default)]
    actions: Vec<Option<RawAction>>,
}

#[derive(Deserialize)]
struct RawUrl {
    url: Option<String>,
}

#[derive(Deserialize)]
struct RawBuild {
    number: u64,
    #[serde(default)]
    building: bool,
    result: Option<String>,
    timestamp: i64,
    #[serde(default)]
    actions: Vec<Option<RawAction>>,
}

/// The fields used from Jenkins' many kinds of actions.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawAction {
    last_built_revision: Option<RawRevision>,
    parameters: Vec<RawParameter>,
    found_failure_causes: Vec<RawCause>,
}

#[derive(Deserialize)]
struct RawRevision {
    #[serde(rename = "SHA1")]
    sha1: Option<String>,
}

#[derive(Deserialize)]
struct RawParameter {
    #[serde(default)]
    value: serde_json::Value,
}

#[derive(Deserialize)]
struct RawCause {
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: String,
}

/// The commits and parameter values in the actions.
fn revisions(actions: &[Option<RawAction>]) -> Vec<String> {
    let actions = || actions.iter().flatten();
    let built = actions().filter_map(|action| action.last_built_revision.as_ref()?.sha1.clone());
    let parameters =
        actions().flat_map(|action| &action.parameters).filter_map(|one| one.value.as_str().map(str::to_owned));
    built.chain(parameters).collect()
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl RawItem {
    fn read(self, base: &Uri) -> QueueItem {
        let url = self.executable.and_then(|executable| executable.url);
        QueueItem {
            id: self.id,
            why: self.why,
            cancelled: self.cancelled,
            since: self.in_queue_since.map(time),
            build: url.and_then(|url| BuildRef::from_url(base, &url)),
        }
    }
}

impl RawBuild {
    fn read(self, job: &JenkinsJob) -> BuildState {
        let causes = self.actions.iter().flatten().flat_map(|action| &action.found_failure_causes);
        BuildState {
            build: BuildRef { job: job.clone(), number: self.number },
            building: self.building,
            result: self.result,
            started_at: time(self.timestamp),
            revisions: revisions(&self.actions),
            failure_causes: causes.map(|cause| format!("{}: {}", cause.name, cause.description)).collect(),
        }
    }
}

/// Clock skew allowed between Suture and Jenkins.
pub const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(3);

impl BuildQuery<'_> {
    fn matches(&self, at: Timestamp, revisions: &[String]) -> bool {
        at >= self.since && self.is_of_commit(revisions)
    }

    /// Whether the build is of the commit; true if the query has no commit.
    pub fn is_of_commit(&self, revisions: &[String]) -> bool {
        let of_commit = |commit: &Sha| revisions.iter().any(|one| one.eq_ignore_ascii_case(commit.as_str()));
        self.commit.is_none_or(of_commit)
    }
}

impl Jenkins {
    /// A queue item; `None` once Jenkins has dropped it, about five minutes after its build started.
    pub async fn queue_item(&self, id: u64) -> Result<Option<QueueItem>, ApiError> {
        let path = format!("/queue/item/{id}/api/json");
        let item = not_found_as_none(self.read_json::<RawItem>(&path).await)?;
        Ok(item.map(|item| item.read(self.base_url())))
    }

    /// The newest matching queue item or build, to avoid triggering a second one.
    pub async fn find_build(&self, query: &BuildQuery<'_>) -> Result<Option<BuildMatch>, ApiError> {
        if let Some(item) = self.find_queued(query).await? {
            return Ok(Some(BuildMatch::Queued(item)));
        }
        Ok(self
            .builds(query.job)
            .await?
            .into_iter()
            .find_map(|build| query.matches(build.started_at, &build.revisions).then_some(BuildMatch::Build(build))))
    }

    async fn find_queued(&self, query: &BuildQuery<'_>) -> Result<Option<QueueItem>, ApiError> {
        #[derive(Deserialize)]
        struct RawQueue {
            items: Vec<RawItem>,
        }
        let fields = "id,why,cancelled,inQueueSince,task[url],actions[parameters[name,value]]";
        let queue: RawQueue = self.read_json(&format!("/queue/api/json?tree=items[{fields}]")).await?;
        let base = self.base_url();
        let matching = queue.items.into_iter().filter(|item| {
            let url = item.task.as_ref().and_then(|task| task.url.as_deref());
            let of_job = url.and_then(|url| JenkinsJob::of_url(base, url)).is_some_and(|(job, _)| job == *query.job);
            of_job && query.matches(item.in_queue_since.map_or(query.since, time), &revisions(&item.actions))
        });
        Ok(matching.max_by_key(|item| item.id).map(|item| item.read(base)))
    }

    /// Whether the job or folder exists and is visible to Suture.
    pub async fn job_exists(&self, job: &JenkinsJob) -> Result<bool, ApiError> {
        let found = not_found_as_none(
            self.read_json::<serde_json::Value>(&format!("{}/api/json?tree=name", job.path())).await,
        )?;
        Ok(found.is_some())
    }

    /// The latest builds of a job, newest first; empty if the job does not exist.
    pub async fn builds(&self, job: &JenkinsJob) -> Result<Vec<BuildState>, ApiError> {
        #[derive(Deserialize)]
        struct RawBuilds {
            #[serde(default)]
            builds: Vec<RawBuild>,
        }
        let path = format!("{}/api/json?tree=builds[{BUILD_FIELDS}]{{0,{MAX_BUILDS}}}", job.path());
        let path = path.replace('{', "%7B").replace('}', "%7D");
        let found = not_found_as_none(self.read_json::<RawBuilds>(&path).await)?;
        let mut builds: Vec<BuildState> =
            found.into_iter().flat_map(|found| found.builds).map(|build| build.read(job)).collect();
        builds.sort_by_key(|build| std::cmp::Reverse(build.build.number));
        Ok(builds)
    }

    /// The build of a head whose checks have been running for too long (R-DIAG-15).
    pub async fn build_of(&self, query: &BuildQuery<'_>) -> BuildStatus {
        self.find_head_build(query).await.unwrap_or(BuildStatus::Unreachable)
    }

    async fn find_head_build(&self, query: &BuildQuery<'_>) -> Result<BuildStatus, ApiError> {
        if let Some(item) = self.find_queued(query).await? {
            return Ok(BuildStatus::Building { since: item.since.unwrap_or(query.since) });
        }
        let builds = self.builds(query.job).await?;
        let found = builds.iter().find(|build| query.matches(build.started_at, &build.revisions));
        // Any running build counts too: the time of the head is inexact if its webhook was lost, and no build is triggered while an
        // earlier head is still being built.
        let running = || builds.iter().find(|build| build.building && query.is_of_commit(&build.revisions));
        Ok(match found.or_else(running) {
            Some(build) if build.building => BuildStatus::Building { since: build.started_at },
            Some(_) => BuildStatus::Finished,
            None => BuildStatus::Gone,
        })
    }

    /// The end of a build's log: at most `max_bytes` bytes, starting at the beginning of a line.
    pub async fn log_tail(&self, build: &BuildRef, max_bytes: usize) -> Result<String, ApiError> {
        let path = |start: u64| format!("{}/logText/progressiveText?start={start}", build.path());
        // A header of the first response has the length of the log. Jenkins treats a start beyond the end as 0.
        let first = self.read(&path(0), Some(BodyLimit(0))).await?;
        let length = first.headers().get("x-text-size").and_then(|size| size.to_str().ok()?.parse::<u64>().ok());
        let start = length.unwrap_or(0).saturating_sub(u64::try_from(max_bytes).unwrap_or(u64::MAX));
        let response = self.read(&path(start), Some(BodyLimit(max_bytes))).await?;
        let body = response.body();
        let text = String::from_utf8_lossy(&body[body.len().saturating_sub(max_bytes)..]).into_owned();
        let starts_within_a_line = start > 0;
        match text.split_once('\n') {
            Some((_, lines)) if starts_within_a_line => Ok(lines.to_owned()),
            Some(_) | None => Ok(text),
        }
    }
}

fn not_found_as_none<T>(result: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(ApiError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
