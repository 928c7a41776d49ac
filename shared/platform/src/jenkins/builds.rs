//! What Jenkins says about its queue and its builds.

use domain::id::Sha;
use domain::snapshot::Build;
use http::Uri;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::names::{BuildRef, Job};
use super::{CallError, Jenkins};
use crate::http::TakeAtMost;

/// Builds looked through for one of a commit: what is older does not matter any more.
const MOST_BUILDS: usize = 30;
const BUILD_FIELDS: &str = "number,url,building,result,timestamp,duration,\
    actions[lastBuiltRevision[SHA1],parameters[name,value],foundFailureCauses[name,description]]";

/// What stands in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueItem {
    pub id: u64,
    pub why: Option<String>,
    /// Whether somebody took it out of the queue.
    pub cancelled: bool,
    pub since: Option<Timestamp>,
    pub build: Option<BuildRef>,
}

/// How a build stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildState {
    pub build: BuildRef,
    pub building: bool,
    /// `SUCCESS`, `FAILURE`, `UNSTABLE`, `ABORTED`, `NOT_BUILT`; `None` while at work.
    pub result: Option<String>,
    pub started_at: Timestamp,
    /// The commits it says it built, and the values of its parameters.
    pub revisions: Vec<String>,
    /// What the Build Failure Analyzer found, if it is there.
    pub failure_causes: Vec<String>,
}

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Looking<'a> {
    pub job: &'a Job,
    /// Of which commit. A job of one pull request says nothing of heads (it builds merges), so there every build since
    /// then counts: give none.
    pub commit: Option<&'a Sha>,
    pub since: Timestamp,
}

/// What was found: the newest.
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

/// Jenkins' actions are of many kinds; of most nothing is left.
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

/// The commits and parameter values among the actions.
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

/// Our clocks and Jenkins' may differ by this much.
pub const CLOCKS_APART: SignedDuration = SignedDuration::from_mins(3);

impl Looking<'_> {
    fn fits(&self, at: Timestamp, revisions: &[String]) -> bool {
        at >= self.since && self.is_of_commit(revisions)
    }

    /// Whether it is of the commit, or nobody knows commits.
    pub fn is_of_commit(&self, revisions: &[String]) -> bool {
        let of_commit = |commit: &Sha| revisions.iter().any(|one| one.eq_ignore_ascii_case(commit.as_str()));
        self.commit.is_none_or(of_commit)
    }
}

impl Jenkins {
    /// An item of the queue; `None` once Jenkins has forgotten it, about five minutes after its build began.
    pub async fn queue_item(&self, id: u64) -> Result<Option<QueueItem>, CallError> {
        let path = format!("/queue/item/{id}/api/json");
        let item = there(self.read_json::<RawItem>(&path).await)?;
        Ok(item.map(|item| item.read(self.base_url())))
    }

    /// The newest queue item or build that fits: asked before a build is started again.
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
        let fitting = queue.items.into_iter().filter(|item| {
            let url = item.task.as_ref().and_then(|task| task.url.as_deref());
            let of_job = url.and_then(|url| Job::of_url(base, url)).is_some_and(|(job, _)| job == *looking.job);
            of_job && looking.fits(item.in_queue_since.map_or(looking.since, time), &revisions(&item.actions))
        });
        Ok(fitting.max_by_key(|item| item.id).map(|item| item.read(base)))
    }

    /// Whether there is such a job or folder, for us.
    pub async fn knows(&self, job: &Job) -> Result<bool, CallError> {
        let found = there(self.read_json::<serde_json::Value>(&format!("{}/api/json?tree=name", job.path())).await)?;
        Ok(found.is_some())
    }

    /// The newest builds of a job, newest first; none if there is no such job.
    pub async fn builds(&self, job: &Job) -> Result<Vec<BuildState>, CallError> {
        #[derive(Deserialize)]
        struct Builds {
            #[serde(default)]
            builds: Vec<RawBuild>,
        }
        let path = format!("{}/api/json?tree=builds[{BUILD_FIELDS}]{{0,{MOST_BUILDS}}}", job.path());
        let path = path.replace('{', "%7B").replace('}', "%7D");
        let found = there(self.read_json::<Builds>(&path).await)?;
        let mut builds: Vec<BuildState> =
            found.into_iter().flat_map(|found| found.builds).map(|build| build.read(job)).collect();
        builds.sort_by_key(|build| std::cmp::Reverse(build.build.number));
        Ok(builds)
    }

    /// What Jenkins says about the build of a head whose checks have been running for too long (R-DIAG-15).
    pub async fn build_of(&self, looking: &Looking<'_>) -> Build {
        self.look_for_build(looking).await.unwrap_or(Build::Unreachable)
    }

    async fn look_for_build(&self, looking: &Looking<'_>) -> Result<Build, CallError> {
        if let Some(item) = self.find_queued(looking).await? {
            return Ok(Build::Building { since: item.since.unwrap_or(looking.since) });
        }
        let builds = self.builds(looking.job).await?;
        let found = builds.iter().find(|build| looking.fits(build.started_at, &build.revisions));
        // When the head came is not known exactly where its own webhook was lost; and where an earlier head is still being built,
        // another build is not ordered either.
        let at_work = || builds.iter().find(|build| build.building && looking.is_of_commit(&build.revisions));
        Ok(match found.or_else(at_work) {
            Some(build) if build.building => Build::Building { since: build.started_at },
            Some(_) => Build::Finished,
            None => Build::Gone,
        })
    }

    /// The end of a build's log, at most this many bytes of it, from the beginning of a line.
    pub async fn log_tail(&self, build: &BuildRef, most: usize) -> Result<String, CallError> {
        let at = |start: u64| format!("{}/logText/progressiveText?start={start}", build.path());
        // Jenkins says how long the log is before it sends it; a start beyond the end would count as the beginning.
        let first = self.read(&at(0), Some(TakeAtMost(0))).await?;
        let length = first.headers().get("x-text-size").and_then(|size| size.to_str().ok()?.parse::<u64>().ok());
        let start = length.unwrap_or(0).saturating_sub(u64::try_from(most).unwrap_or(u64::MAX));
        let answer = self.read(&at(start), Some(TakeAtMost(most))).await?;
        let body = answer.body();
        let text = String::from_utf8_lossy(&body[body.len().saturating_sub(most)..]).into_owned();
        let begins_within_a_line = start > 0;
        match text.split_once('\n') {
            Some((_, lines)) if begins_within_a_line => Ok(lines.to_owned()),
            Some(_) | None => Ok(text),
        }
    }
}

/// What is not there is no error here.
fn there<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(CallError::Gone { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
