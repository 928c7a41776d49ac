//! Re-runs checks on Jenkins, on GitHub, or by a comment. Nothing is started while a build of the same commit is running. The Jenkins
//! queue item or build number is stored with the run, and sweeps poll it; nothing waits here.

use domain::backoff::AttemptFailure;
use domain::command::CommandMessage;
use domain::id::Sha;
use domain::policy::RebuildVia;
use domain::run::Run;
use jiff::Timestamp;

use crate::dispatch::CarBridge;
use crate::remedy::RemedyError;
use crate::run_executor::{RunContext, step};
use platform::github::{SnapshotError, WorkflowRun, pr_of_check_run};
use platform::jenkins::{
    BuildHandle, BuildMatch, BuildQuery, Jenkins, JenkinsJob, MAX_CLOCK_SKEW, POLL_INTERVAL, TriggeredBuild, job_of,
};
use platform::publish::Publisher;
use platform::store::Store;
use platform::transport::ApiError;

const BUILD: &str = "build";

impl<S: Store, O: Publisher> CarBridge<S, O> {
    pub(crate) async fn rebuild(&self, ctx: &mut RunContext<'_>) -> Result<String, RemedyError> {
        let via = ctx.policy.rebuild.via;
        match (via, &self.clients.jenkins) {
            (RebuildVia::Comment, _) => self.build_by_comment(ctx).await,
            (RebuildVia::GitHub, _) => self.rerun_on_github(ctx).await,
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Rescan, Some(jenkins)) => {
                let jenkins = jenkins.clone();
                self.build_on_jenkins(ctx, &jenkins, via).await
            }
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Rescan, None) => Err(RemedyError::Fail(
                "Jenkins is not configured: set SUTURE_JENKINS_URL, or change `rebuild.via`".to_owned(),
                AttemptFailure::Invalid,
            )),
        }
    }

    /// Nothing tells whose build a comment starts, so the checks are read first. This run's own comment is looked for before that, because
    /// its checks may be running already.
    async fn build_by_comment(&self, ctx: &RunContext<'_>) -> Result<String, RemedyError> {
        if self.or_stop(self.has_comment(ctx, BUILD).await).await? {
            return Ok("requested the build by a comment before".to_owned());
        }
        if let Some(check) = self.running_check(ctx).await? {
            return Err(RemedyError::Drop(format!("`{check}` of this commit is running")));
        }
        self.post_comment(ctx, BUILD, &ctx.policy.rebuild.comment).await?;
        Ok("requested the build by a comment".to_owned())
    }

    /// A required check of the commit that is queued or running on GitHub now.
    async fn running_check(&self, ctx: &RunContext<'_>) -> Result<Option<String>, RemedyError> {
        let (pr, github) = (ctx.pr(), &self.clients.github);
        let node = match &ctx.record.node_id {
            Some(node) => node.clone(),
            None => self.or_stop(github.pull(pr).await).await?.node_id,
        };
        let read = github.snapshots(&[(pr.clone(), node)], self.engine.policies()).await.pop();
        let snapshot = match read {
            Some((_, Ok(snapshot))) => snapshot,
            Some((_, Err(SnapshotError::Failed(error)))) => return Err(self.error_to_stop(error).await),
            Some((_, Err(error))) => return Err(RemedyError::NotSent(error.to_string())),
            None => return Err(RemedyError::NotSent("GitHub returned no snapshot".to_owned())),
        };
        if snapshot.details.head != head_of(ctx) {
            return Err(RemedyError::Drop(format!("the head moved to {}", snapshot.details.head.short())));
        }
        let required = ctx.record.required(ctx.policy);
        Ok(snapshot.signals.running_check(required).map(|check| check.name.clone()))
    }

    async fn build_on_jenkins(
        &self,
        ctx: &mut RunContext<'_>,
        jenkins: &Jenkins,
        via: RebuildVia,
    ) -> Result<String, RemedyError> {
        if ctx.done(BUILD).is_some() {
            return Ok("already triggered on Jenkins".to_owned());
        }
        let job = job_of(ctx.record, ctx.policy);
        let by_commit = !ctx.policy.rebuild.sha_parameter.is_empty();
        let commit = head_of(ctx);
        let looking = |since| BuildQuery { job: &job, commit: by_commit.then_some(&commit), since };
        // A build that started since the claim is this run's own: the message is a duplicate, or Jenkins' response was lost.
        let found = self.or_build_failed(ctx, jenkins.find_build(&looking(own_builds_since(&ctx.run))).await).await?;
        if let Some(found) = found {
            let followed = match found {
                BuildMatch::Queued(item) => BuildHandle::Item(item.id, item.why),
                BuildMatch::Build(build) => BuildHandle::Build(build.build.number),
            };
            self.record_handle(ctx, followed).await?;
            return Ok("a build is running".to_owned());
        }
        let query = looking(Timestamp::MIN);
        let builds = self.or_build_failed(ctx, jenkins.builds(&job).await).await?;
        let newest = builds.into_iter().find(|build| query.is_of_commit(&build.revisions));
        if let Some(running) = newest.as_ref().filter(|build| build.building) {
            if !stops_first(ctx) {
                return Err(RemedyError::Drop(format!(
                    "build {} of this pull request is running",
                    running.build.number
                )));
            }
            self.or_build_failed(ctx, jenkins.stop_build(&running.build).await).await?;
        }
        let sent = match (via, &newest) {
            (RebuildVia::Replay, Some(build)) => jenkins.replay_build(&build.build).await,
            (RebuildVia::Rescan, _) => rescan(jenkins, &job).await,
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Comment | RebuildVia::GitHub, _) if by_commit => {
                let parameter = ctx.policy.rebuild.sha_parameter.as_str();
                jenkins.trigger_build_with_parameters(&job, &[(parameter, commit.as_str())]).await
            }
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Comment | RebuildVia::GitHub, _) => {
                jenkins.trigger_build(&job).await
            }
        };
        let (queued, what) = match sent {
            Ok(queued) => (queued, format!("triggered {job} on Jenkins")),
            // Jenkins missed the opened pull request and has no job for it, so its folder is scanned.
            Err(ApiError::NotFound { .. }) if via != RebuildVia::Rescan => {
                let queued = self.or_build_failed(ctx, rescan(jenkins, &job).await).await?;
                (queued, format!("Jenkins scans for {job}"))
            }
            Err(error) => return self.or_build_failed(ctx, Err(error)).await,
        };
        if let Some(item) = queued.item {
            self.record_handle(ctx, BuildHandle::Item(item, None)).await?;
        }
        Ok(what)
    }

    /// A build that Suture stopped, now or before a crash, looks aborted by a user and would escalate. So after stopping one, errors retry
    /// the message until the next build is triggered.
    async fn or_build_failed<T>(&self, ctx: &RunContext<'_>, result: Result<T, ApiError>) -> Result<T, RemedyError> {
        if stops_first(ctx) || ctx.run.resume_count > 0 {
            self.or_interrupt(result).await
        } else {
            self.or_stop(result).await
        }
    }

    /// Stores the queue item or build number, and when a sweep should poll it.
    async fn record_handle(&self, ctx: &mut RunContext<'_>, followed: BuildHandle) -> Result<(), RemedyError> {
        let now = self.now();
        let again = match &followed {
            BuildHandle::Item(..) => now.saturating_add(POLL_INTERVAL).ok(),
            BuildHandle::Build(_) => None,
        };
        let done = step(BUILD, now).done(Some(followed.to_string()), now);
        Ok(self.update_run(ctx, |run| Ok(run.checkpoint(done)?.set_poll_at(again, now))).await?)
    }

    /// Re-runs failed GitHub Actions jobs and re-requests failed check runs of other Apps. Running ones are left alone.
    async fn rerun_on_github(&self, ctx: &mut RunContext<'_>) -> Result<String, RemedyError> {
        let (repo, head) = (ctx.pr().repo.clone(), head_of(ctx));
        let github = &self.clients.github;
        let workflows = self.or_stop(github.workflow_runs(&repo, &head).await).await?;
        // A re-run that started since the claim is this run's own: an earlier worker died, or GitHub's response was lost.
        let since = ctx.run.created_at;
        let started_by_suture =
            |run: &WorkflowRun| run.run_attempt > 1 && run.run_started_at.is_some_and(|at| at >= since);
        if let Some(running) = workflows.iter().find(|run| run.conclusion.is_none() && !started_by_suture(run)) {
            return Err(RemedyError::Drop(format!("workflow run {} of this commit is running", running.id)));
        }
        let mut rerun = 0;
        for run in &workflows {
            if started_by_suture(run) {
                rerun += 1;
            } else if has_failed(run.conclusion.as_deref()) {
                rerun += self.accepted_build(rerun, github.rerun_failed_jobs(&repo, run.id).await).await?;
            }
        }
        let runs = match github.check_runs(&repo, &head).await {
            Ok(runs) => runs,
            Err(error) => return Err(self.error_after(rerun, error).await),
        };
        let others = || runs.iter().filter(|run| run.app != ACTIONS && pr_of_check_run(&run.external_id).is_none());
        for run in others().filter(|run| has_failed(run.conclusion.as_deref())) {
            rerun += self.accepted_build(rerun, github.rerequest_check_run(&repo, run.id).await).await?;
        }
        if rerun > 0 {
            return Ok(format!("re-requested {rerun} checks on GitHub"));
        }
        if ctx.run.resume_count > 0 && others().any(|run| run.conclusion.is_none()) {
            return Ok("checks are already running on GitHub".to_owned());
        }
        let why = "GitHub has no failed check that Suture may re-run: change `rebuild.via`";
        Err(RemedyError::Fail(why.to_owned(), AttemptFailure::Invalid))
    }

    /// 1 if the re-run was accepted; 0 if the check is gone or Suture may not re-run it.
    async fn accepted_build(&self, rerun: u32, result: Result<(), ApiError>) -> Result<u32, RemedyError> {
        match result {
            Ok(()) => Ok(1),
            Err(ApiError::NotFound { .. } | ApiError::Refused { .. }) => Ok(0),
            Err(error) => Err(self.error_after(rerun, error).await),
        }
    }

    /// An error after some checks were re-run: the remedy was executed in part, so its budget is spent.
    async fn error_after(&self, rerun: u32, error: ApiError) -> RemedyError {
        let stop = self.error_to_stop(error).await;
        if let RemedyError::NotSent(why) = &stop
            && rerun > 0
        {
            return RemedyError::Fail(why.clone(), AttemptFailure::Unavailable);
        }
        stop
    }
}

/// The App whose check runs are re-run through their workflow run.
const ACTIONS: &str = "github-actions";

/// Whether the running build hangs and must be stopped first.
fn stops_first(ctx: &RunContext<'_>) -> bool {
    ctx.command.args.as_deref() == Some(CommandMessage::STOP_FIRST)
}

/// Builds that started after this time are this run's own. A resumed run allows for clock skew, because the claim has the sweep's time
/// and the build has Jenkins' time; a build that is not recognised would be triggered twice.
fn own_builds_since(run: &Run) -> Timestamp {
    if run.resume_count == 0 {
        return run.created_at;
    }
    run.created_at.saturating_sub(MAX_CLOCK_SKEW).unwrap_or(Timestamp::MIN)
}

async fn rescan(jenkins: &Jenkins, job: &JenkinsJob) -> Result<TriggeredBuild, ApiError> {
    let folder = job.parent().unwrap_or_else(|| job.clone());
    // A scan has no queue item.
    jenkins.scan_multibranch(&folder).await.map(|()| TriggeredBuild { item: None })
}

fn head_of(ctx: &RunContext<'_>) -> Sha {
    ctx.run.head_sha.clone().unwrap_or_else(|| ctx.record.head_sha.clone())
}

/// Whether a check or workflow failed. A running one has no conclusion.
fn has_failed(conclusion: Option<&str>) -> bool {
    conclusion.is_some_and(|how| !matches!(how, "success" | "neutral" | "skipped"))
}

#[cfg(test)]
mod tests {
    use domain::id::RunId;
    use domain::run::RunTrigger;
    use jiff::SignedDuration;

    use super::*;

    /// Simulation seeds 41 and 705 with three pull requests: the sweep's clock was two minutes ahead of Jenkins', so the build of a dead
    /// worker seemed older than its claim, and was stopped and triggered again.
    #[test]
    fn rebuild_recognises_orphaned_build_despite_clock_skew() {
        let claimed_at = Timestamp::from_second(1_800_000_000).unwrap();
        let mut run = Run::sweep(RunId::new("run-1"), RunTrigger::Schedule, claimed_at);
        assert_eq!(own_builds_since(&run), claimed_at, "no earlier worker can have triggered a build");
        run.resume_count = 1;
        assert_eq!(own_builds_since(&run), claimed_at - SignedDuration::from_mins(3));
    }
}
