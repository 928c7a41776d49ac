//! GitHub Actions, limited to rerunning failed jobs: one workflow run per built commit, whose attempts are the builds.
//! A rerun keeps the run's id.

use serde_json::{Value, json};

use crate::audit::AuditedAction;
use crate::clock::stamp;
use crate::fakes::Fakes;
use crate::github::access::ApiIdentity;
use crate::github::model::{PrIx, RepoIx};
use crate::http_api::{ApiRequest, ApiResponse, page};
use crate::jenkins::{BuildResult, FakeBuild};
use crate::settings::JenkinsReporting;

/// One workflow run: all builds of a commit of a pull request, oldest first.
struct FakeWorkflowRun<'a> {
    pr: PrIx,
    attempts: Vec<&'a FakeBuild>,
}

impl FakeWorkflowRun<'_> {
    fn id(&self) -> u64 {
        self.attempts.first().map_or(0, |first| first.queue_id)
    }

    fn last(&self) -> Option<&FakeBuild> {
        self.attempts.last().copied()
    }
}

impl Fakes {
    pub(super) fn actions_api(
        &mut self,
        request: &ApiRequest,
        caller: &ApiIdentity,
        repo: RepoIx,
        rest: &[&str],
    ) -> Option<ApiResponse> {
        Some(match (request.method.as_str(), rest) {
            ("GET", ["actions", "runs"]) => {
                let runs = self.workflows(repo);
                let wanted = |it: &&FakeWorkflowRun<'_>| {
                    request.param("head_sha").is_none_or(|sha| it.last().is_some_and(|build| *build.sha == *sha))
                };
                let list: Vec<Value> = runs.iter().rev().filter(wanted).map(|it| self.workflow_json(it)).collect();
                page(
                    request,
                    &self.settings.api_url,
                    list,
                    |items, total| json!({"total_count": total, "workflow_runs": items}),
                )
            }
            ("POST", ["actions", "runs", id, "rerun-failed-jobs"]) => self.rerun(caller, repo, id),
            _ => return None,
        })
    }

    fn workflows(&self, repo: RepoIx) -> Vec<FakeWorkflowRun<'_>> {
        let mut runs: Vec<FakeWorkflowRun<'_>> = Vec::new();
        if self.github.repo(repo).settings.reports != JenkinsReporting::Actions {
            return runs;
        }
        for build in self.jenkins.builds.iter().filter(|build| self.github.pull(build.pr).repo == repo) {
            let known = runs.iter_mut().find(|it| it.pr == build.pr && it.attempts[0].sha == build.sha);
            match known {
                Some(known) => known.attempts.push(build),
                None => runs.push(FakeWorkflowRun { pr: build.pr, attempts: vec![build] }),
            }
        }
        runs
    }

    /// Reruns failed jobs. Rejected while the run is in progress, and if it has no failed jobs.
    fn rerun(&mut self, caller: &ApiIdentity, repo: RepoIx, id: &str) -> ApiResponse {
        let runs = self.workflows(repo);
        let Some(run) = runs.iter().find(|run| run.id().to_string() == id) else { return ApiResponse::not_found() };
        let ended = run.last().and_then(|build| build.result);
        let (pr, waits) = (run.pr, self.waiting_item(run.pr).is_some());
        if ended.is_none() || waits {
            return ApiResponse::error(403, "This workflow is already running");
        }
        if ended == Some(BuildResult::Success) {
            return ApiResponse::error(403, "The workflow run containing these jobs has no failed jobs");
        }
        self.queue_build(pr, Vec::new());
        self.note(caller.login(), AuditedAction::JobsRerun, pr, id);
        ApiResponse::json(201, &json!({}))
    }

    /// A queued attempt already counts as the latest one.
    fn workflow_json(&self, run: &FakeWorkflowRun<'_>) -> Value {
        let Some(last) = run.last() else { return Value::Null };
        let waits = self.waiting_item(run.pr).and_then(|id| self.jenkins.queue.get(&id));
        let result = last.result.filter(|_| waits.is_none());
        let conclusion = result.map(|result| if result == BuildResult::Success { "success" } else { "failure" });
        let status = match (conclusion, waits) {
            (Some(_), _) => "completed",
            (None, Some(_)) => "queued",
            (None, None) => "in_progress",
        };
        json!({
            "id": run.id(), "name": "CI", "head_sha": last.sha, "run_number": 1,
            "run_attempt": run.attempts.len() + usize::from(waits.is_some()), "status": status, "conclusion": conclusion,
            "run_started_at": stamp(waits.map_or(last.started_at, |item| item.queued_at)), "event": "pull_request",
        })
    }
}
