//! Reads Jenkins' queue, builds and logs.

use domain::id::Sha;
use domain::snapshot::Build;
use http::Uri;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::names::{BuildRef, Job};
use super::{CallError, Jenkins};
use crate::http::TakeAtMost;

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

/// A search for a build.
#[derive(Debug, Clone, Copy)]
pub struct Looking<'a> {
    pub job: &'a Job,
    /// Only builds of this commit. `None` for jobs of one pull request: they build merge commits and do not report the head, so every
    /// build since `since` matches.
    pub commit: Option<&'a Sha>,
    pub since: Timestamp,
}

/// The newest match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
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
    task: Option<Address>,
    executable: Option<Address>,
    #[serde(default)]
    actions: Vec<Option<Action>>,
}

#[derive(Deserialize)]
struct Address {
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
    actions: Vec<Option<Action>>,
}

/// The fields used from Jenkins' many kinds of actions.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Action {
    last_built_revision: Option<Revision>,
    parameters: Vec<Parameter>,
    found_failure_causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Revision {
    #[serde(rename = "SHA1")]
    sha1: Option<String>,
}

#[derive(Deserialize)]
struct Parameter {
    #[serde(default)]
    value: serde_json::Value,
}

#[derive(Deserialize)]
struct Cause {
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: String,
}

/// The commits and parameter values in the actions.
fn revisions(actions: &[Option<Action>]) -> Vec<String> {
    let actions = || actions.iter().flatten();
    let built = actions().filter_map(|action| action.last_built_revision.as_ref()?.sha1.clone());
    let given = actions().flat_map(|action| &action.parameters).filter_map(|one| one.value.as_str().map(str::to_owned));
    built.chain(given).collect()
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
    fn read(self, job: &Job) -> BuildState {
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
pub const CLOCKS_APART: SignedDuration = SignedDuration::from_mins(3);

impl Looking<'_> {
    fn fits(&self, at: Timestamp, revisions: &[String]) -> bool {
        at >= self.since && self.is_of_commit(revisions)
    }

    /// Whether the build is of the commit; true if the search names no commit.
    pub fn is_of_commit(&self, revisions: &[String]) -> bool {
        let of_commit = |commit: &Sha| revisions.iter().any(|one| one.eq_ignore_ascii_case(commit.as_str()));
        self.commit.is_none_or(of_commit)
    }
}

impl Jenkins {
    /// A queue item; `None` once Jenkins has dropped it, about five minutes after its build started.
    pub async fn queue_item(&self, id: u64) -> Result<Option<QueueItem>, CallError> {
        let path = format!("/queue/item/{id}/api/json");
        let item = there(self.read_json::<RawItem>(&path).await)?;
        Ok(item.map(|item| item.read(self.base_url())))
    }

    /// The newest matching queue item or build, to avoid triggering a second one.
    pub async fn find(&self, looking: &Looking<'_>) -> Result<Option<Found>, CallError> {
        if let Some(item) = self.find_queued(looking).await? {
            return Ok(Some(Found::Queued(item)));
        }
        Ok(self
            .builds(looking.job)
            .await?
            .into_iter()
            .find_map(|build| looking.fits(build.started_at, &build.revisions).then_some(Found::Build(build))))
    }

    async fn find_queued(&self, looking: &Looking<'_>) -> Result<Option<QueueItem>, CallError> {
        #[derive(Deserialize)]
        struct Queue {
            items: Vec<RawItem>,
        }
        let fields = "id,why,cancelled,inQueueSince,task[url],actions[parameters[name,value]]";
        let queue: Queue = self.read_json(&format!("/queue/api/json?tree=items[{fields}]")).await?;
        let base = self.base_url();
        let matching = queue.items.into_iter().filter(|item| {
            let url = item.task.as_ref().and_then(|task| task.url.as_deref());
            let of_job = url.and_then(|url| Job::of_url(base, url)).is_some_and(|(job, _)| job == *looking.job);
            of_job && looking.fits(item.in_queue_since.map_or(looking.since, time), &revisions(&item.actions))
        });
        Ok(matching.max_by_key(|item| item.id).map(|item| item.read(base)))
    }

    /// Whether the job or folder exists and is visible to Suture.
    pub async fn knows(&self, job: &Job) -> Result<bool, CallError> {
        let found = there(self.read_json::<serde_json::Value>(&format!("{}/api/json?tree=name", job.path())).await)?;
        Ok(found.is_some())
    }

    /// The latest builds of a job, newest first; empty if the job does not exist.
    pub async fn builds(&self, job: &Job) -> Result<Vec<BuildState>, CallError> {
        #[derive(Deserialize)]
        struct Builds {
            #[serde(default)]
            builds: Vec<RawBuild>,
        }
        let path = format!("{}/api/json?tree=builds[{BUILD_FIELDS}]{{0,{MAX_BUILDS}}}", job.path());
        let path = path.replace('{', "%7B").replace('}', "%7D");
        let found = there(self.read_json::<Builds>(&path).await)?;
        let mut builds: Vec<BuildState> =
            found.into_iter().flat_map(|found| found.builds).map(|build| build.read(job)).collect();
        builds.sort_by_key(|build| std::cmp::Reverse(build.build.number));
        Ok(builds)
    }

    /// The build of a head whose checks have been running for too long (R-DIAG-15).
    pub async fn build_of(&self, looking: &Looking<'_>) -> Build {
        self.look_for_build(looking).await.unwrap_or(Build::Unreachable)
    }

    async fn look_for_build(&self, looking: &Looking<'_>) -> Result<Build, CallError> {
        if let Some(item) = self.find_queued(looking).await? {
            return Ok(Build::Building { since: item.since.unwrap_or(looking.since) });
        }
        let builds = self.builds(looking.job).await?;
        let found = builds.iter().find(|build| looking.fits(build.started_at, &build.revisions));
        // Any running build counts too: the time of the head is inexact if its webhook was lost, and no build is triggered while an
        // earlier head is still being built.
        let running = || builds.iter().find(|build| build.building && looking.is_of_commit(&build.revisions));
        Ok(match found.or_else(running) {
            Some(build) if build.building => Build::Building { since: build.started_at },
            Some(_) => Build::Finished,
            None => Build::Gone,
        })
    }

    /// The end of a build's log: at most `most` bytes, starting at the beginning of a line.
    pub async fn log_tail(&self, build: &BuildRef, most: usize) -> Result<String, CallError> {
        let at = |start: u64| format!("{}/logText/progressiveText?start={start}", build.path());
        // A header of the first response has the length of the log. Jenkins treats a start beyond the end as 0.
        let first = self.read(&at(0), Some(TakeAtMost(0))).await?;
        let length = first.headers().get("x-text-size").and_then(|size| size.to_str().ok()?.parse::<u64>().ok());
        let start = length.unwrap_or(0).saturating_sub(u64::try_from(most).unwrap_or(u64::MAX));
        let answer = self.read(&at(start), Some(TakeAtMost(most))).await?;
        let body = answer.body();
        let text = String::from_utf8_lossy(&body[body.len().saturating_sub(most)..]).into_owned();
        let starts_within_a_line = start > 0;
        match text.split_once('\n') {
            Some((_, lines)) if starts_within_a_line => Ok(lines.to_owned()),
            Some(_) | None => Ok(text),
        }
    }
}

/// Maps "not found" to `None`.
fn there<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(CallError::Gone { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
