//! Re-runs checks on Jenkins, on GitHub, or by a comment. Nothing is started while a build of the same commit is running. The Jenkins
//! queue item or build number is stored with the run, and sweeps poll it; nothing waits here.

use domain::backoff::Failure;
use domain::command::CommandMessage;
use domain::id::Sha;
use domain::policy::RebuildVia;
use domain::run::Run;
use jiff::Timestamp;

use crate::dispatch::Bridge;
use crate::remedy::Stop;
use crate::run_executor::{InHand, step};
use platform::github::{WorkflowRun, shown_on};
use platform::http::CallError;
use platform::jenkins::{CLOCKS_APART, Followed, Found, Jenkins, Job, LOOK_AFTER, Looking, Queued, job_of};
use platform::outlets::Outlets;
use platform::store::Store;

const BUILD: &str = "build";

impl<S: Store, O: Outlets> Bridge<S, O> {
    pub(crate) async fn rebuild(&self, ctx: &mut InHand<'_>) -> Result<String, Stop> {
        let via = ctx.policy.rebuild.via;
        match (via, &self.world.jenkins) {
            (RebuildVia::Comment, _) => {
                self.say(ctx, BUILD, &ctx.policy.rebuild.comment).await?;
                Ok("requested the build by a comment".to_owned())
            }
            (RebuildVia::GitHub, _) => self.rerun_on_github(ctx).await,
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Rescan, Some(jenkins)) => {
                let jenkins = jenkins.clone();
                self.build_on_jenkins(ctx, &jenkins, via).await
            }
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Rescan, None) => Err(Stop::Fail(
                "Jenkins is not configured: set SUTURE_JENKINS_URL, or change `rebuild.via`".to_owned(),
                Failure::Invalid,
            )),
        }
    }

    async fn build_on_jenkins(&self, ctx: &mut InHand<'_>, jenkins: &Jenkins, via: RebuildVia) -> Result<String, Stop> {
        if ctx.done(BUILD).is_some() {
            return Ok("already triggered on Jenkins".to_owned());
        }
        let job = job_of(ctx.record, ctx.policy);
        let by_commit = !ctx.policy.rebuild.sha_parameter.is_empty();
        let commit = head_of(ctx);
        let looking = |since| Looking { job: &job, commit: by_commit.then_some(&commit), since };
        // A build that started since the claim is this run's own: the message is a duplicate, or Jenkins' response was lost.
        let found = self.or_build_failed(ctx, jenkins.find(&looking(ours_since(&ctx.run))).await).await?;
        if let Some(found) = found {
            let followed = match found {
                Found::Queued(item) => Followed::Item(item.id, item.why),
                Found::Build(build) => Followed::Build(build.build.number),
            };
            self.follow(ctx, followed).await?;
            return Ok("a build is running".to_owned());
        }
        let ours = looking(Timestamp::MIN);
        let builds = self.or_build_failed(ctx, jenkins.builds(&job).await).await?;
        let newest = builds.into_iter().find(|build| ours.is_of_commit(&build.revisions));
        if let Some(running) = newest.as_ref().filter(|build| build.building) {
            if !stops_first(ctx) {
                return Err(Stop::Drop(format!("build {} of this pull request is running", running.build.number)));
            }
            self.or_build_failed(ctx, jenkins.stop(&running.build).await).await?;
        }
        let sent = match (via, &newest) {
            (RebuildVia::Replay, Some(build)) => jenkins.replay(&build.build).await,
            (RebuildVia::Rescan, _) => rescan(jenkins, &job).await,
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Comment | RebuildVia::GitHub, _) if by_commit => {
                let parameter = ctx.policy.rebuild.sha_parameter.as_str();
                jenkins.build_with_parameters(&job, &[(parameter, commit.as_str())]).await
            }
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Comment | RebuildVia::GitHub, _) => {
                jenkins.build(&job).await
            }
        };
        let (queued, what) = match sent {
            Ok(queued) => (queued, format!("triggered {job} on Jenkins")),
            // Jenkins missed the opened pull request and has no job for it, so its folder is scanned.
            Err(CallError::Gone { .. }) if via != RebuildVia::Rescan => {
                let queued = self.or_build_failed(ctx, rescan(jenkins, &job).await).await?;
                (queued, format!("Jenkins scans for {job}"))
            }
            Err(error) => return self.or_build_failed(ctx, Err(error)).await,
        };
        if let Some(item) = queued.item {
            self.follow(ctx, Followed::Item(item, None)).await?;
        }
        Ok(what)
    }

    /// A build that Suture stopped, now or before a crash, looks aborted by a user and would escalate. So after stopping one, errors retry
    /// the message until the next build is triggered.
    async fn or_build_failed<T>(&self, ctx: &InHand<'_>, result: Result<T, CallError>) -> Result<T, Stop> {
        if stops_first(ctx) || ctx.run.resume_count > 0 {
            self.or_interrupt(result).await
        } else {
            self.or_stop(result).await
        }
    }

    /// Stores the queue item or build number, and when a sweep should poll it.
    async fn follow(&self, ctx: &mut InHand<'_>, followed: Followed) -> Result<(), Stop> {
        let now = self.now();
        let again = match &followed {
            Followed::Item(..) => now.saturating_add(LOOK_AFTER).ok(),
            Followed::Build(_) => None,
        };
        let done = step(BUILD, now).done(Some(followed.to_string()), now);
        Ok(self.change(ctx, |run| Ok(run.checkpoint(done)?.look_again(again, now))).await?)
    }

    /// Re-runs failed GitHub Actions jobs and re-requests failed check runs of other Apps. Running ones are left alone.
    async fn rerun_on_github(&self, ctx: &mut InHand<'_>) -> Result<String, Stop> {
        let (repo, head) = (ctx.pr().repo.clone(), head_of(ctx));
        let github = &self.world.github;
        let workflows = self.or_stop(github.workflow_runs(&repo, &head).await).await?;
        // A re-run that started since the claim is this run's own: an earlier worker died, or GitHub's response was lost.
        let since = ctx.run.created_at;
        let ours = |run: &WorkflowRun| run.run_attempt > 1 && run.run_started_at.is_some_and(|at| at >= since);
        if let Some(running) = workflows.iter().find(|run| run.conclusion.is_none() && !ours(run)) {
            return Err(Stop::Drop(format!("workflow run {} of this commit is running", running.id)));
        }
        let mut rerun = 0;
        for run in &workflows {
            if ours(run) {
                rerun += 1;
            } else if has_failed(run.conclusion.as_deref()) {
                rerun += self.taken(github.rerun_failed_jobs(&repo, run.id).await).await?;
            }
        }
        let runs = self.or_stop(github.check_runs(&repo, &head).await).await?;
        let others = || runs.iter().filter(|run| run.app != ACTIONS && shown_on(&run.external_id).is_none());
        for run in others().filter(|run| has_failed(run.conclusion.as_deref())) {
            rerun += self.taken(github.rerequest_check_run(&repo, run.id).await).await?;
        }
        if rerun > 0 {
            return Ok(format!("re-requested {rerun} checks on GitHub"));
        }
        if ctx.run.resume_count > 0 && others().any(|run| run.conclusion.is_none()) {
            return Ok("checks are already running on GitHub".to_owned());
        }
        let why = "GitHub has no failed check that Suture may re-run: change `rebuild.via`";
        Err(Stop::Fail(why.to_owned(), Failure::Invalid))
    }

    /// 1 if the re-run was accepted; 0 if the check is gone or Suture may not re-run it.
    async fn taken(&self, result: Result<(), CallError>) -> Result<u32, Stop> {
        match result {
            Ok(()) => Ok(1),
            Err(CallError::Gone { .. } | CallError::Refused { .. }) => Ok(0),
            Err(error) => Err(self.stopped(error).await),
        }
    }
}

/// The App whose check runs are re-run through their workflow run.
const ACTIONS: &str = "github-actions";

/// Whether the running build hangs and must be stopped first.
fn stops_first(ctx: &InHand<'_>) -> bool {
    ctx.command.args.as_deref() == Some(CommandMessage::STOP_FIRST)
}

/// Builds that started after this time are this run's own. A resumed run allows for clock skew, because the claim has the sweep's time
/// and the build has Jenkins' time; a build that is not recognised would be triggered twice.
fn ours_since(run: &Run) -> Timestamp {
    if run.resume_count == 0 {
        return run.created_at;
    }
    run.created_at.saturating_sub(CLOCKS_APART).unwrap_or(Timestamp::MIN)
}

async fn rescan(jenkins: &Jenkins, job: &Job) -> Result<Queued, CallError> {
    let folder = job.parent().unwrap_or_else(|| job.clone());
    // A scan has no queue item.
    jenkins.rescan(&folder).await.map(|()| Queued { item: None })
}

fn head_of(ctx: &InHand<'_>) -> Sha {
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
        assert_eq!(ours_since(&run), claimed_at, "no earlier worker can have triggered a build");
        run.resume_count = 1;
        assert_eq!(ours_since(&run), claimed_at - SignedDuration::from_mins(3));
    }
}
