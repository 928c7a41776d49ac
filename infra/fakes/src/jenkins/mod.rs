//! Jenkins: multibranch jobs, the queue, builds and their results, and its reports to GitHub. Its HTTP API is in `api`.

mod api;
mod log;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use crate::audit::AuditedAction;
use crate::clock::TimedEvent;
use crate::fakes::{FakePrId, Fakes};
use crate::faults::Fault;
use crate::github::changes::NewStatus;
use crate::github::commit::StatusState;
use crate::github::model::{PrIx, RepoIx, Sha};
use crate::github::webhooks::WebhookTarget;
use crate::settings::{ACTIONS_CHECK, JENKINS_CHECK, JENKINS_CONTEXT, JenkinsReporting};

/// The App behind the github-checks plugin.
pub(crate) const APP_ID: u64 = 12_345;
const APP_SLUG: &str = "jenkins-ci";
const LOGIN: &str = "jenkins-ci[bot]";
const ACTIONS: (u64, &str, &str) = (15_368, "github-actions", "github-actions[bot]");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildResult {
    Success,
    Unstable,
    Failure,
    Aborted,
}

impl BuildResult {
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Unstable => "UNSTABLE",
            Self::Failure => "FAILURE",
            Self::Aborted => "ABORTED",
        }
    }
}

#[derive(Debug, Clone)]
pub struct FakeBuild {
    pub(crate) pr: PrIx,
    /// Its number in its job.
    pub number: u64,
    pub sha: Arc<str>,
    pub queue_id: u64,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// The result; `None` while the build is running.
    pub result: Option<BuildResult>,
    pub parameters: Vec<(String, String)>,
    pub(crate) planned_result: PlannedResult,
    check_id: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedResult {
    Good,
    AgentLost,
    Hung,
    Flaky,
    Broken,
    Stopped,
}

/// An item of the build queue.
#[derive(Debug, Clone)]
pub(crate) struct QueuedBuild {
    pub(crate) pr: PrIx,
    pub(crate) sha: Sha,
    pub(crate) queued_at: Timestamp,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) cancelled: bool,
    /// Index of the build it became, and the time it left the queue.
    pub(crate) left: Option<(usize, Timestamp)>,
}

#[derive(Debug, Default)]
pub(crate) struct FakeJenkins {
    /// Pull requests with a job.
    known: BTreeSet<PrIx>,
    pub(crate) queue: BTreeMap<u64, QueuedBuild>,
    /// Items that are still waiting.
    waiting: BTreeSet<u64>,
    pub(crate) builds: Vec<FakeBuild>,
    pub(crate) builds_of: HashMap<PrIx, Vec<usize>>,
    last_item: u64,
    sessions: BTreeMap<String, String>,
}

/// A job named by a URL path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FakeJob {
    pub(crate) repo: RepoIx,
    /// The pull request; `None` for the repository's folder.
    pub(crate) pr: Option<PrIx>,
}

impl Fakes {
    pub fn builds(&self, pr: &FakePrId) -> impl Iterator<Item = &FakeBuild> {
        let places = self.ix(pr).and_then(|ix| self.jenkins.builds_of.get(&ix)).map_or(&[][..], Vec::as_slice);
        places.iter().map(|place| &self.jenkins.builds[*place])
    }

    /// Jenkins notices a new head, from GitHub's webhook or its own scan.
    pub(crate) fn jenkins_notices(&mut self, ix: PrIx, sha: &Sha) {
        let pull = self.github.pull(ix);
        if !pull.is_open() || pull.head() != sha || self.strikes(ix, Fault::JenkinsDeaf) {
            return;
        }
        if self.reports(ix) != JenkinsReporting::Actions {
            self.jenkins.known.insert(ix);
        }
        self.queue_build(ix, Vec::new());
    }

    /// Scans the repository for heads that were never built.
    pub(crate) fn scan(&mut self, repo: RepoIx) {
        let open: Vec<PrIx> = self.open_pulls[repo.0].iter().copied().collect();
        for ix in open {
            let sha = Arc::clone(self.github.pull(ix).head());
            if !self.is_built(ix, &sha) {
                let ms = self.delay(ix, self.settings.timing.notice_ms);
                self.clock.after_ms(ms, TimedEvent::JenkinsNotices(ix, sha));
            }
        }
    }

    fn is_built(&self, ix: PrIx, sha: &Sha) -> bool {
        let built = self
            .jenkins
            .builds_of
            .get(&ix)
            .is_some_and(|places| places.iter().any(|place| self.jenkins.builds[*place].sha == *sha));
        built || self.waiting_item(ix).is_some()
    }

    /// The waiting item of this job. Jenkins queues at most one per job.
    pub(crate) fn waiting_item(&self, ix: PrIx) -> Option<u64> {
        self.jenkins.waiting.iter().copied().find(|id| self.jenkins.queue.get(id).is_some_and(|item| item.pr == ix))
    }

    /// Queues a build of the current head, unless the job has a waiting item. Returns the item, and whether it is new.
    pub(crate) fn queue_build(&mut self, ix: PrIx, parameters: Vec<(String, String)>) -> (u64, bool) {
        if let Some(id) = self.waiting_item(ix) {
            return (id, false);
        }
        self.jenkins.last_item += 1;
        let id = self.jenkins.last_item;
        let sha = Arc::clone(self.github.pull(ix).head());
        let queued_at = self.now();
        self.jenkins.queue.insert(
            id,
            QueuedBuild { pr: ix, sha: Arc::clone(&sha), queued_at, parameters, cancelled: false, left: None },
        );
        self.jenkins.waiting.insert(id);
        self.report_status(ix, &sha, StatusState::Pending, "This commit is scheduled to be built", None);
        let ms = self.delay(ix, self.settings.timing.queue_ms);
        self.clock.after_ms(ms, TimedEvent::BuildStarts(id));
        (id, true)
    }

    pub(crate) fn cancel_item(&mut self, id: u64) -> bool {
        let waits = self.jenkins.waiting.remove(&id);
        if let Some(item) = self.jenkins.queue.get_mut(&id).filter(|_| waits) {
            item.cancelled = true;
        }
        waits
    }

    pub(crate) fn build_starts(&mut self, id: u64) {
        if !self.jenkins.waiting.remove(&id) {
            return;
        }
        let (now, place) = (self.now(), self.jenkins.builds.len());
        let Some(item) = self.jenkins.queue.get_mut(&id) else { return };
        item.left = Some((place, now));
        let (ix, sha, parameters) = (item.pr, Arc::clone(&item.sha), item.parameters.clone());
        let planned_result = self.planned_result(ix);
        let places = self.jenkins.builds_of.entry(ix).or_default();
        places.push(place);
        let number = places.len() as u64;
        let check_id = self.open_check(ix, &sha, number);
        self.jenkins.builds.push(FakeBuild {
            pr: ix,
            number,
            sha: Arc::clone(&sha),
            queue_id: id,
            started_at: now,
            ended_at: None,
            result: None,
            parameters,
            planned_result,
            check_id,
        });
        self.report_status(ix, &sha, StatusState::Pending, "This commit is being built", Some(number));
        self.notify(place, "STARTED");
        let ms = match planned_result {
            PlannedResult::Hung => return,
            PlannedResult::AgentLost => self.delay(ix, self.settings.timing.build_ms) / 3,
            PlannedResult::Good | PlannedResult::Flaky | PlannedResult::Broken | PlannedResult::Stopped => {
                self.delay(ix, self.settings.timing.build_ms)
            }
        };
        self.clock.after_ms(ms, TimedEvent::BuildEnds(place));
    }

    fn planned_result(&mut self, ix: PrIx) -> PlannedResult {
        if self.strikes(ix, Fault::BuildHung) {
            PlannedResult::Hung
        } else if self.strikes(ix, Fault::AgentLost) {
            PlannedResult::AgentLost
        } else if self.strikes(ix, Fault::FlakyTest) {
            PlannedResult::Flaky
        // A broken test fails in every build until a person pushes a fix.
        } else if self.awaits_repair(ix, Fault::RealTestFailure) || self.strikes(ix, Fault::RealTestFailure) {
            PlannedResult::Broken
        } else {
            PlannedResult::Good
        }
    }

    pub(crate) fn build_ends(&mut self, place: usize) {
        let now = self.now();
        let build = &mut self.jenkins.builds[place];
        if build.result.is_some() {
            return;
        }
        build.ended_at = Some(now);
        build.result = Some(match build.planned_result {
            PlannedResult::Good => BuildResult::Success,
            PlannedResult::Broken => BuildResult::Unstable,
            PlannedResult::AgentLost | PlannedResult::Flaky => BuildResult::Failure,
            PlannedResult::Stopped | PlannedResult::Hung => BuildResult::Aborted,
        });
        let ix = build.pr;
        if !self.strikes(ix, Fault::ReportLost) {
            let ms = self.delay(ix, (500, 3_000));
            self.clock.after_ms(ms, TimedEvent::BuildReported(place));
        }
    }

    /// Aborts a running build immediately.
    pub(crate) fn stop_build(&mut self, place: usize) -> bool {
        if self.jenkins.builds[place].result.is_some() {
            return false;
        }
        self.jenkins.builds[place].planned_result = PlannedResult::Stopped;
        self.build_ends(place);
        true
    }

    pub(crate) fn build_reported(&mut self, place: usize) {
        let build = self.jenkins.builds[place].clone();
        let Some(result) = build.result else { return };
        let (state, description) = match result {
            BuildResult::Success => (StatusState::Success, "This commit looks good"),
            BuildResult::Unstable => (StatusState::Failure, "This commit has test failures"),
            BuildResult::Failure => (StatusState::Error, "This commit cannot be built"),
            BuildResult::Aborted => (StatusState::Error, "The build of this commit was aborted"),
        };
        self.report_status(build.pr, &build.sha, state, description, Some(build.number));
        self.close_check(&build, result);
        self.notify(place, "FINALIZED");
    }

    fn report_status(&mut self, ix: PrIx, sha: &Sha, state: StatusState, description: &str, number: Option<u64>) {
        let repo = self.github.pull(ix).repo;
        if matches!(self.reports(ix), JenkinsReporting::CheckRun | JenkinsReporting::Actions) {
            return;
        }
        let target_url = format!(
            "{}{}/display/redirect",
            self.job_url(ix),
            number.map_or_else(String::new, |number| format!("{number}"))
        );
        self.post_status(
            repo,
            sha,
            LOGIN,
            NewStatus { context: JENKINS_CONTEXT, state, description, target_url: &target_url },
        );
    }

    fn open_check(&mut self, ix: PrIx, sha: &Sha, number: u64) -> Option<u64> {
        let repo = self.github.pull(ix).repo;
        let (name, app_id, slug, login) = match self.reports(ix) {
            JenkinsReporting::Status => return None,
            JenkinsReporting::CheckRun | JenkinsReporting::Both => (JENKINS_CHECK, APP_ID, APP_SLUG, LOGIN),
            JenkinsReporting::Actions => (ACTIONS_CHECK, ACTIONS.0, ACTIONS.1, ACTIONS.2),
        };
        let mut check = self.new_check(sha, name, app_id, slug);
        "in_progress".clone_into(&mut check.status);
        if app_id == APP_ID {
            check.external_id = format!("{}#{number}", self.job_name(ix));
            check.details_url = format!("{}{number}/display/redirect", self.job_url(ix));
        }
        let id = check.id;
        self.put_check(repo, sha, check, login);
        Some(id)
    }

    fn close_check(&mut self, build: &FakeBuild, result: BuildResult) {
        let (repo, now) = (self.github.pull(build.pr).repo, self.now());
        let checks = self.github.commits.get(&build.sha).map_or(&[][..], |it| &it.checks);
        let Some(mut check) = checks.iter().find(|check| Some(check.id) == build.check_id).cloned() else { return };
        "completed".clone_into(&mut check.status);
        check.completed_at = Some(now);
        check.conclusion = Some(if result == BuildResult::Success { "success" } else { "failure" }.to_owned());
        check.title = format!("{}: {}", check.name, result.name());
        let log = self.log_of(build);
        let lines: Vec<&str> = log.lines().collect();
        check.summary = lines[lines.len().saturating_sub(3)..].join("\n");
        let login = if check.app_id == APP_ID { LOGIN } else { ACTIONS.2 };
        self.put_check(repo, &build.sha, check, login);
    }

    /// The Notification plugin's webhook.
    fn notify(&mut self, place: usize, phase: &str) {
        let build = self.jenkins.builds[place].clone();
        if !self.settings.jenkins_notifies || self.reports(build.pr) == JenkinsReporting::Actions {
            return;
        }
        let (name, url) = (self.job_name(build.pr), self.job_url(build.pr));
        let payload = json!({
            "name": name, "display_name": format!("PR-{}", self.github.pull(build.pr).number), "url": url,
            "build": {
                "full_url": format!("{url}{}/", build.number), "number": build.number, "queue_id": build.queue_id, "phase": phase,
                "status": build.result.map(BuildResult::name), "timestamp": self.now().as_millisecond(),
                "scm": {"url": self.repo_html(self.github.pull(build.pr).repo), "branch": format!("PR-{}", self.github.pull(build.pr).number), "commit": build.sha},
                "parameters": build.parameters.iter().cloned().collect::<BTreeMap<_, _>>(),
            },
        });
        self.send_direct(WebhookTarget::Jenkins, "jenkins", Some(build.pr), &payload);
    }

    fn reports(&self, ix: PrIx) -> JenkinsReporting {
        self.github.repo(self.github.pull(ix).repo).settings.reports
    }

    pub(crate) fn job_name(&self, ix: PrIx) -> String {
        let pull = self.github.pull(ix);
        format!("{}/PR-{}", self.github.repo(pull.repo).settings.name, pull.number)
    }

    pub(crate) fn job_url(&self, ix: PrIx) -> String {
        let pull = self.github.pull(ix);
        let repo = self.github.repo(pull.repo);
        format!("{}/job/{}/job/{}/job/PR-{}/", self.settings.jenkins_url, repo.owner, repo.name, pull.number)
    }

    /// Adds a request to Jenkins to the audit log.
    pub(crate) fn log_jenkins(&mut self, user: &str, action: AuditedAction, ix: PrIx, detail: String) {
        self.note(&format!("jenkins:{user}"), action, ix, detail);
    }
}
