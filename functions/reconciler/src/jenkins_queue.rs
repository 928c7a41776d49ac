//! Polls the Jenkins queue for the build that a rebuild has queued: a cancelled queue item fails the run immediately
//! instead of at its deadline, and the build number is written to the run. Jenkins is only read; the visit of the pull
//! request decides what follows.

use domain::run::{Run, RunStep};
use jiff::Timestamp;
use platform::engine::EngineError;
use platform::jenkins::{BuildHandle, BuildMatch, BuildQuery, Jenkins, MAX_CLOCK_SKEW, POLL_INTERVAL, job_of};
use platform::publish::Publisher;
use platform::store::Store;
use tracing::warn;

use crate::context::{SweepContext, saturating_after};

/// The step in which the Car Bridge stored Jenkins' response.
const BUILD_STEP: &str = "build";
/// The step in which a sweep stores the state of the queue item.
const QUEUE_STEP: &str = "queue";

/// The state of a queue item.
pub(crate) enum ItemState {
    /// The item has become a build and needs no more polling.
    Build(u64),
    Queued(u64, Option<String>),
    /// The item was removed from the queue and will never be built.
    Cancelled(u64),
    /// Jenkins no longer knows the item: the deadline of the run decides.
    Forgotten,
    /// Jenkins did not answer.
    Unknown,
}

/// Adds the state and the next poll time to the run. Its version changes only if one of them is new.
pub(crate) fn record(run: Run, state: ItemState, now: Timestamp) -> Run {
    let next_poll = Some(saturating_after(now, POLL_INTERVAL));
    let (handle, poll_at) = match state {
        ItemState::Build(number) => (Some(BuildHandle::Build(number)), None),
        ItemState::Queued(item, why) => (Some(BuildHandle::Item(item, why)), next_poll),
        ItemState::Cancelled(_) | ItemState::Forgotten => (None, None),
        ItemState::Unknown => (None, next_poll),
    };
    let run = match handle {
        Some(handle) => {
            let step = RunStep::started(QUEUE_STEP, now).idempotent().done(Some(handle.to_string()), now);
            run.clone().checkpoint(step).unwrap_or(run)
        }
        None => run,
    };
    run.set_poll_at(poll_at, now)
}

pub(crate) struct JenkinsQueue<'a, S, O> {
    pub(crate) cx: &'a SweepContext<'a, S, O>,
    /// Jenkins did not answer: it is not polled again in this sweep, because each run would cost a timeout.
    pub(crate) is_unavailable: bool,
}

impl<S: Store, O: Publisher> JenkinsQueue<'_, S, O> {
    pub(crate) async fn poll(&mut self, run: &Run) -> Result<ItemState, EngineError> {
        let handle = run.step(BUILD_STEP).and_then(|step| step.output.as_deref()?.parse().ok());
        let (Some(BuildHandle::Item(item, _)), Some(jenkins)) = (handle, self.cx.jenkins) else {
            return Ok(ItemState::Forgotten);
        };
        if self.is_unavailable {
            return Ok(ItemState::Unknown);
        }
        let state = self.item_state(run, item, jenkins).await?;
        self.is_unavailable = matches!(state, ItemState::Unknown);
        Ok(state)
    }

    async fn item_state(&self, run: &Run, item: u64, jenkins: &Jenkins) -> Result<ItemState, EngineError> {
        match jenkins.queue_item(item).await {
            Ok(Some(found)) if found.cancelled => Ok(ItemState::Cancelled(item)),
            Ok(Some(found)) => {
                Ok(found.build.map_or(ItemState::Queued(item, found.why), |build| ItemState::Build(build.number)))
            }
            // Jenkins deletes the item some minutes after its build starts.
            Ok(None) => self.find_build(run, item, jenkins).await,
            Err(error) => {
                warn!(run = %run.id, item, %error, "cannot read Jenkins queue item");
                Ok(ItemState::Unknown)
            }
        }
    }

    async fn find_build(&self, run: &Run, item: u64, jenkins: &Jenkins) -> Result<ItemState, EngineError> {
        let Some(pr) = &run.pr else { return Ok(ItemState::Forgotten) };
        let Some(record) = self.cx.engine.load(pr, self.cx.now()).await? else { return Ok(ItemState::Forgotten) };
        let policy = self.cx.policies().for_repo(&pr.repo);
        let commit = run.head_sha.as_ref().filter(|_| !policy.rebuild.sha_parameter.is_empty());
        let since = run.created_at.saturating_sub(MAX_CLOCK_SKEW).unwrap_or(Timestamp::MIN);
        let looking = BuildQuery { job: &job_of(&record, policy), commit, since };
        Ok(match jenkins.find_build(&looking).await {
            Ok(Some(BuildMatch::Build(build))) => ItemState::Build(build.build.number),
            Ok(Some(BuildMatch::Queued(found))) => ItemState::Queued(item, found.why),
            Ok(None) => ItemState::Forgotten,
            Err(_) => ItemState::Unknown,
        })
    }
}
