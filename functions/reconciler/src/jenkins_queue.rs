//! Polls Jenkins for the build that a rebuild has queued: one that was taken out of the queue fails at once instead of
//! at its deadline, and the number of the build is written to the run. Reading only; what to do about the build is
//! decided when the pull request is visited.

use domain::run::{Run, Step};
use jiff::Timestamp;
use platform::engine::EngineError;
use platform::jenkins::{CLOCKS_APART, Followed, Found, Jenkins, LOOK_AFTER, Looking, job_of};
use platform::outlets::Outlets;
use platform::store::Store;
use tracing::warn;

use crate::context::{SweepContext, after};

/// The step in which the Car Bridge wrote down what Jenkins answered.
const ORDERED: &str = "build";
/// The step in which a sweep writes down what it saw.
const SEEN: &str = "queue";

/// What has become of a queue item.
pub(crate) enum ItemState {
    /// It is a build now: it need not be polled any more.
    Build(u64),
    Queued(u64, Option<String>),
    /// It was taken out of the queue, and will never be built.
    Cancelled(u64),
    /// Jenkins does not know it any more: the run's deadline decides.
    Forgotten,
    Unknown,
}

/// The run with what was seen, and when to poll again. It has another version if that is new.
pub(crate) fn record(run: Run, state: ItemState, now: Timestamp) -> Run {
    let again = Some(after(now, LOOK_AFTER));
    let (seen, again) = match state {
        ItemState::Build(number) => (Some(Followed::Build(number)), None),
        ItemState::Queued(item, why) => (Some(Followed::Item(item, why)), again),
        ItemState::Cancelled(_) | ItemState::Forgotten => (None, None),
        ItemState::Unknown => (None, again),
    };
    let run = match seen {
        Some(seen) => {
            let step = Step::started(SEEN, now).idempotent().done(Some(seen.to_string()), now);
            run.clone().checkpoint(step).unwrap_or(run)
        }
        None => run,
    };
    run.look_again(again, now)
}

pub(crate) struct JenkinsQueue<'a, S, O> {
    pub(crate) cx: &'a SweepContext<'a, S, O>,
    /// Jenkins did not answer: it is not polled again in this sweep, or each run would cost a timeout.
    pub(crate) is_silent: bool,
}

impl<S: Store, O: Outlets> JenkinsQueue<'_, S, O> {
    pub(crate) async fn poll(&mut self, run: &Run) -> Result<ItemState, EngineError> {
        let ordered = run.step(ORDERED).and_then(|step| step.output.as_deref()?.parse().ok());
        let (Some(Followed::Item(item, _)), Some(jenkins)) = (ordered, self.cx.jenkins) else {
            return Ok(ItemState::Forgotten);
        };
        if self.is_silent {
            return Ok(ItemState::Unknown);
        }
        let state = self.item_state(run, item, jenkins).await?;
        self.is_silent = matches!(state, ItemState::Unknown);
        Ok(state)
    }

    async fn item_state(&self, run: &Run, item: u64, jenkins: &Jenkins) -> Result<ItemState, EngineError> {
        match jenkins.queue_item(item).await {
            Ok(Some(found)) if found.cancelled => Ok(ItemState::Cancelled(item)),
            Ok(Some(found)) => {
                Ok(found.build.map_or(ItemState::Queued(item, found.why), |build| ItemState::Build(build.number)))
            }
            // It vanishes some minutes after its build began.
            Ok(None) => self.find_build(run, item, jenkins).await,
            Err(error) => {
                warn!(run = %run.id, item, %error, "cannot read Jenkins' queue");
                Ok(ItemState::Unknown)
            }
        }
    }

    async fn find_build(&self, run: &Run, item: u64, jenkins: &Jenkins) -> Result<ItemState, EngineError> {
        let Some(pr) = &run.pr else { return Ok(ItemState::Forgotten) };
        let Some(record) = self.cx.engine.load(pr, self.cx.now()).await? else { return Ok(ItemState::Forgotten) };
        let policy = self.cx.policies().for_repo(&pr.repo);
        let commit = run.head_sha.as_ref().filter(|_| !policy.rebuild.sha_parameter.is_empty());
        let since = run.created_at.saturating_sub(CLOCKS_APART).unwrap_or(Timestamp::MIN);
        let looking = Looking { job: &job_of(&record, policy), commit, since };
        Ok(match jenkins.find(&looking).await {
            Ok(Some(Found::Build(build))) => ItemState::Build(build.build.number),
            Ok(Some(Found::Queued(found))) => ItemState::Queued(item, found.why),
            Ok(None) => ItemState::Forgotten,
            Err(_) => ItemState::Unknown,
        })
    }
}
