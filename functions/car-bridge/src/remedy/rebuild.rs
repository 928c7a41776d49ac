//! Running checks again: by Jenkins, by GitHub, or by a comment. Never while a build of this commit is at work, and what an order has
//! become at Jenkins is written down, so that the sweep can look after it: nobody waits here.

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
    pub(crate) async fn rebuild(&self, hand: &mut InHand<'_>) -> Result<String, Stop> {
        let via = hand.policy.rebuild.via;
        match (via, &self.world.jenkins) {
            (RebuildVia::Comment, _) => {
                self.say(hand, BUILD, &hand.policy.rebuild.comment).await?;
                Ok("Jenkins was asked in a comment".to_owned())
            }
            (RebuildVia::GitHub, _) => self.rerun_on_github(hand).await,
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Rescan, Some(jenkins)) => {
                let jenkins = jenkins.clone();
                self.build_on_jenkins(hand, &jenkins, via).await
            }
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Rescan, None) => Err(Stop::Fail(
                "no Jenkins is configured: set SUTURE_JENKINS_URL, or another `rebuild.via`".to_owned(),
                Failure::Invalid,
            )),
        }
    }

    async fn build_on_jenkins(
        &self,
        hand: &mut InHand<'_>,
        jenkins: &Jenkins,
        via: RebuildVia,
    ) -> Result<String, Stop> {
        if hand.done(BUILD).is_some() {
            return Ok("Jenkins has it already".to_owned());
        }
        let job = job_of(hand.record, hand.policy);
        let by_commit = !hand.policy.rebuild.sha_parameter.is_empty();
        let commit = head_of(hand);
        let looking = |since| Looking { job: &job, commit: by_commit.then_some(&commit), since };
        // Ours, if it has begun since the claim: a message that came twice, or an answer that was lost.
        let found = self.or_build_failed(hand, jenkins.find(&looking(ours_since(&hand.run))).await).await?;
        if let Some(found) = found {
            let followed = match found {
                Found::Queued(item) => Followed::Item(item.id, item.why),
                Found::Build(build) => Followed::Build(build.build.number),
            };
            self.follow(hand, followed).await?;
            return Ok("a build is under way".to_owned());
        }
        let ours = looking(Timestamp::MIN);
        let builds = self.or_build_failed(hand, jenkins.builds(&job).await).await?;
        let newest = builds.into_iter().find(|build| ours.is_of_commit(&build.revisions));
        if let Some(running) = newest.as_ref().filter(|build| build.building) {
            if !stops_first(hand) {
                return Err(Stop::Drop(format!("build {} of this pull request is at work", running.build.number)));
            }
            self.or_build_failed(hand, jenkins.stop(&running.build).await).await?;
        }
        let sent = match (via, &newest) {
            (RebuildVia::Replay, Some(build)) => jenkins.replay(&build.build).await,
            (RebuildVia::Rescan, _) => rescan(jenkins, &job).await,
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Comment | RebuildVia::GitHub, _) if by_commit => {
                let parameter = hand.policy.rebuild.sha_parameter.as_str();
                jenkins.build_with_parameters(&job, &[(parameter, commit.as_str())]).await
            }
            (RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Comment | RebuildVia::GitHub, _) => {
                jenkins.build(&job).await
            }
        };
        let (queued, what) = match sent {
            Ok(queued) => (queued, format!("Jenkins builds {job}")),
            // A job that Jenkins never made, because it missed the opening: its folder is scanned.
            Err(CallError::Gone { .. }) if via != RebuildVia::Rescan => {
                let queued = self.or_build_failed(hand, rescan(jenkins, &job).await).await?;
                (queued, format!("Jenkins looks for {job}"))
            }
            Err(error) => return self.or_build_failed(hand, Err(error)).await,
        };
        if let Some(item) = queued.item {
            self.follow(hand, Followed::Item(item, None)).await?;
        }
        Ok(what)
    }

    /// A build that we have stopped, now or before we were interrupted, looks as if a person had wanted it to end: another one
    /// has to follow it, or somebody is called for our own doing.
    async fn or_build_failed<T>(&self, hand: &InHand<'_>, answer: Result<T, CallError>) -> Result<T, Stop> {
        if stops_first(hand) || hand.run.resume_count > 0 {
            self.or_interrupt(answer).await
        } else {
            self.or_stop(answer).await
        }
    }

    /// Writes down what an order has become, and when somebody is to look at it again.
    async fn follow(&self, hand: &mut InHand<'_>, followed: Followed) -> Result<(), Stop> {
        let now = self.now();
        let again = match &followed {
            Followed::Item(..) => now.saturating_add(LOOK_AFTER).ok(),
            Followed::Build(_) => None,
        };
        let done = step(BUILD, now).done(Some(followed.to_string()), now);
        Ok(self.change(hand, |run| Ok(run.checkpoint(done)?.look_again(again, now))).await?)
    }

    /// Failed jobs of GitHub Actions, and failed checks of those who may be asked, once more. What is at work already is left alone.
    async fn rerun_on_github(&self, hand: &mut InHand<'_>) -> Result<String, Stop> {
        let (repo, head) = (hand.pr().repo.clone(), head_of(hand));
        let github = &self.world.github;
        let workflows = self.or_stop(github.workflow_runs(&repo, &head).await).await?;
        // Begun once more since the claim: by us, before our worker died or the answer was lost.
        let since = hand.run.created_at;
        let ours = |run: &WorkflowRun| run.run_attempt > 1 && run.run_started_at.is_some_and(|at| at >= since);
        if let Some(at_work) = workflows.iter().find(|run| run.conclusion.is_none() && !ours(run)) {
            return Err(Stop::Drop(format!("workflow run {} of this commit is at work", at_work.id)));
        }
        let mut asked = 0;
        for run in &workflows {
            if ours(run) {
                asked += 1;
            } else if ended_badly(run.conclusion.as_deref()) {
                asked += self.taken(github.rerun_failed_jobs(&repo, run.id).await).await?;
            }
        }
        let runs = self.or_stop(github.check_runs(&repo, &head).await).await?;
        let others = || runs.iter().filter(|run| run.app != ACTIONS && shown_on(&run.external_id).is_none());
        for run in others().filter(|run| ended_badly(run.conclusion.as_deref())) {
            asked += self.taken(github.rerequest_check_run(&repo, run.id).await).await?;
        }
        if asked > 0 {
            return Ok(format!("GitHub runs {asked} checks again"));
        }
        if hand.run.resume_count > 0 && others().any(|run| run.conclusion.is_none()) {
            return Ok("GitHub is at it already".to_owned());
        }
        let why = "GitHub has no failed check that we may have run again: others' checks are theirs, so set another `rebuild.via`";
        Err(Stop::Fail(why.to_owned(), Failure::Invalid))
    }

    /// One that was asked for counts; one that belongs to somebody else, or is gone, does not, and is no error.
    async fn taken(&self, answer: Result<(), CallError>) -> Result<u32, Stop> {
        match answer {
            Ok(()) => Ok(1),
            Err(CallError::Gone { .. } | CallError::Refused { .. }) => Ok(0),
            Err(error) => Err(self.stopped(error).await),
        }
    }
}

/// Whose check runs are asked for by their workflow run.
const ACTIONS: &str = "github-actions";

/// Whether the build under way hangs, and is to be stopped before another one is started.
fn stops_first(hand: &InHand<'_>) -> bool {
    hand.command.args.as_deref() == Some(CommandMessage::STOP_FIRST)
}

/// Since when a build is ours. Whoever takes over from a worker that died allows for clocks: the claim's date is the sweep's, the
/// build's is Jenkins', and an order that is not recognised is given twice.
fn ours_since(run: &Run) -> Timestamp {
    if run.resume_count == 0 {
        return run.created_at;
    }
    run.created_at.saturating_sub(CLOCKS_APART).unwrap_or(Timestamp::MIN)
}

async fn rescan(jenkins: &Jenkins, job: &Job) -> Result<Queued, CallError> {
    let folder = job.parent().unwrap_or_else(|| job.clone());
    // A scan is no build: there is no item of ours to follow.
    jenkins.rescan(&folder).await.map(|()| Queued { item: None })
}

fn head_of(hand: &InHand<'_>) -> Sha {
    hand.run.head_sha.clone().unwrap_or_else(|| hand.record.head_sha.clone())
}

/// Whether a check or a workflow ended badly. What is at work has no conclusion.
fn ended_badly(conclusion: Option<&str>) -> bool {
    conclusion.is_some_and(|how| !matches!(how, "success" | "neutral" | "skipped"))
}

#[cfg(test)]
mod tests {
    use domain::id::RunId;
    use domain::run::RunTrigger;
    use jiff::SignedDuration;

    use super::*;

    /// The simulation's seeds 41 and 705 of three pull requests: the sweep's clock was two minutes ahead of Jenkins', so that
    /// the build which a dead worker had ordered seemed older than its claim, was stopped, and ordered again.
    #[test]
    fn a_build_ordered_by_a_dead_worker_was_not_known_again_by_another_clock() {
        let claimed_at = Timestamp::from_second(1_800_000_000).unwrap();
        let mut run = Run::sweep(RunId::new("run-1"), RunTrigger::Schedule, claimed_at);
        assert_eq!(ours_since(&run), claimed_at, "nobody can have ordered anything before");
        run.resume_count = 1;
        assert_eq!(ours_since(&run), claimed_at - SignedDuration::from_mins(3));
    }
}
