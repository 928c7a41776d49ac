//! A rebuild that waits is looked after at Jenkins: what was taken out of the queue fails at once instead of at its deadline, and the
//! build it has become is written down. Reading only; what to do about it is decided when the pull request is visited.

use domain::backoff::Failure;
use domain::event::RemedyNews;
use domain::run::{Run, Step};
use jiff::Timestamp;
use tracing::warn;

use crate::sweep::{Pass, after};
use platform::engine::EngineError;
use platform::jenkins::{CLOCKS_APART, Followed, Found, Jenkins, LOOK_AFTER, Looking, job_of};
use platform::outlets::Outlets;
use platform::store::Store;

/// The step in which the Car Bridge wrote down what Jenkins answered.
const ORDERED: &str = "build";
/// The step in which a sweep writes down what has become of it.
const SEEN: &str = "queue";

/// What a look has shown.
enum Seen {
    /// It is a build now: nobody has to look any more.
    Build(u64),
    /// It waits still, and why.
    Waits(Option<String>),
    /// It will never be built.
    Cancelled,
    /// Jenkins knows nothing of it any more: its deadline decides.
    Forgotten,
    /// Jenkins could not be asked.
    Unknown,
}

impl<S: Store, O: Outlets> Pass<'_, S, O> {
    /// Looks what has become of a waiting run's order.
    pub(crate) async fn look(&mut self, run: Run) -> Result<(), EngineError> {
        let (Some(Followed::Item(item, _)), Some(jenkins)) = (ordered(&run), self.sweep.jenkins.clone()) else {
            return self.seen(run, None, None).await;
        };
        let again = Some(after(self.now(), LOOK_AFTER));
        if self.jenkins_is_silent {
            return self.seen(run, None, again).await;
        }
        match self.see_order(&run, item, &jenkins).await? {
            Seen::Build(number) => self.seen(run, Some(Followed::Build(number)), None).await,
            Seen::Waits(why) => self.seen(run, Some(Followed::Item(item, why)), again).await,
            Seen::Forgotten => self.seen(run, None, None).await,
            Seen::Unknown => {
                self.jenkins_is_silent = true;
                self.seen(run, None, again).await
            }
            Seen::Cancelled => {
                let error = format!("item {item} was taken out of Jenkins' queue");
                let news = RemedyNews::Failed { error: error.clone(), failure: Failure::Unavailable };
                self.over(run, news, error).await
            }
        }
    }

    async fn see_order(&self, run: &Run, item: u64, jenkins: &Jenkins) -> Result<Seen, EngineError> {
        match jenkins.queue_item(item).await {
            Ok(Some(item)) if item.cancelled => Ok(Seen::Cancelled),
            Ok(Some(item)) => Ok(item.build.map_or(Seen::Waits(item.why), |build| Seen::Build(build.number))),
            // It vanishes some minutes after its build began.
            Ok(None) => self.see_build(run, jenkins).await,
            Err(error) => {
                warn!(run = %run.id, item, %error, "Jenkins' queue could not be looked at");
                Ok(Seen::Unknown)
            }
        }
    }

    async fn see_build(&self, run: &Run, jenkins: &Jenkins) -> Result<Seen, EngineError> {
        let Some(pr) = &run.pr else { return Ok(Seen::Forgotten) };
        let Some(record) = self.engine().load(pr, self.now()).await? else { return Ok(Seen::Forgotten) };
        let policy = self.policies().for_repo(&pr.repo);
        let commit = run.head_sha.as_ref().filter(|_| !policy.rebuild.sha_parameter.is_empty());
        let since = run.created_at.saturating_sub(CLOCKS_APART).unwrap_or(Timestamp::MIN);
        let looking = Looking { job: &job_of(&record, policy), commit, since };
        Ok(match jenkins.find(&looking).await {
            Ok(Some(Found::Build(build))) => Seen::Build(build.build.number),
            Ok(Some(Found::Queued(item))) => Seen::Waits(item.why),
            Ok(None) => Seen::Forgotten,
            Err(_) => Seen::Unknown,
        })
    }

    /// Writes down what was seen, and when to look again.
    async fn seen(&self, run: Run, what: Option<Followed>, again: Option<Timestamp>) -> Result<(), EngineError> {
        let (now, loaded) = (self.now(), run.version);
        let run = match what {
            Some(what) => {
                let step = Step::started(SEEN, now).idempotent().done(Some(what.to_string()), now);
                run.clone().checkpoint(step).unwrap_or(run)
            }
            None => run,
        };
        let run = run.look_again(again, now);
        if run.version == loaded {
            return Ok(());
        }
        self.put_run(&run, loaded).await
    }
}

/// What the Car Bridge wrote down.
fn ordered(run: &Run) -> Option<Followed> {
    run.step(ORDERED)?.output.as_deref()?.parse().ok()
}
