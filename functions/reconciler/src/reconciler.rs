//! The reconciler: what starts a sweep, what keeps two from running at once, and the run that records it. It has no
//! memory (R-SWEEP-1 to R-SWEEP-17): a sweep asks the table what is due, asks GitHub for
//! the truth, and lets the domain decide. It claims remedies and never executes one. Whatever it does not get to is
//! still due; whatever it visits gets a new due date. `sweep` lists the stages.

use std::sync::Arc;

use domain::id::RunId;
use domain::policy::Policies;
use domain::request::{Ask, Request, Standing};
use domain::run::{Initiator, Run, RunState, RunTrigger, TransitionContext};
use jiff::Timestamp;
use platform::clock::Clock;
use platform::engine::Engine;
use platform::engine::repo_registry::RepoRegistry;
use platform::github::GitHub;
use platform::guards::{self, Lease};
use platform::http::Transport;
use platform::jenkins::Jenkins;
use platform::outlets::Outlets;
use platform::requests::{self, Taken};
use platform::rows;
use platform::store::versioned::write_if;
use platform::store::{OnlyIf, Store, StoreError, Write};
use platform::sweep_summary::Summary;
use thiserror::Error;
use tracing::warn;

use crate::context::SweepContext;
use crate::digest::DigestingPublisher;
use crate::on_demand::RequestOutcome;
use crate::sweep;
use crate::trigger::Wish;

/// The lease of the scheduled sweep.
const LEASE: &str = "sweep";

/// How a sweep ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Swept {
    Done(Box<Summary>),
    /// Another sweep is running, and works on what is due.
    Busy {
        by: String,
        /// When its lease ends at the latest.
        until: Timestamp,
    },
    /// This very sweep was done before, or is running.
    Repeated,
    /// A newer request shows what this one would.
    Superseded {
        by: RunId,
    },
    /// The daily limit of requests is reached, in a sentence.
    LeftToSchedule(String),
}

/// The sweep could not even start.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("no sweep: {0}")]
pub struct NoSweep(#[from] pub StoreError);

/// The reconciler, with all it needs.
#[derive(Debug)]
pub struct Sweep<S, O> {
    pub(crate) engine: Engine<S, DigestingPublisher<O>>,
    pub(crate) github: GitHub,
    pub(crate) jenkins: Option<Jenkins>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) owners: Vec<String>,
    pub(crate) repos: RepoRegistry,
    pub(crate) http: Option<Transport>,
}

impl<S: Store, O: Outlets> Sweep<S, O> {
    /// A reconciler on this store, these outlets and these clients. `owners` are those whose repositories the inventory
    /// lists where we are no App; an App knows where it is installed.
    pub fn new(
        store: S,
        outlets: O,
        policies: Policies,
        github: GitHub,
        jenkins: Option<Jenkins>,
        clock: Arc<dyn Clock>,
        owners: Vec<String>,
    ) -> Self {
        let engine = Engine::new(store, DigestingPublisher::new(outlets), policies);
        Self { engine, github, jenkins, clock, owners, repos: RepoRegistry::default(), http: None }
    }

    /// The same, able to request health URLs after a merge.
    #[must_use]
    pub fn asking_through(mut self, http: Transport) -> Self {
        self.http = Some(http);
        self
    }

    pub fn store(&self) -> &S {
        self.engine.store()
    }

    /// Sweeps once, and ends before the deadline: on schedule, or what somebody requests.
    ///
    /// [`NoSweep`] if the store does not answer at all. What goes wrong later is in the summary.
    pub async fn sweep(&self, wish: &Wish, deadline: Timestamp) -> Result<Swept, NoSweep> {
        // Boxed, here and below: one future made of all of these would be too large to be laid out, and to be moved.
        if wish.trigger == RunTrigger::Schedule {
            Box::pin(self.scheduled(wish, deadline)).await
        } else {
            Box::pin(self.requested(wish, deadline)).await
        }
    }

    async fn scheduled(&self, wish: &Wish, deadline: Timestamp) -> Result<Swept, NoSweep> {
        let now = self.clock.now();
        if let Lease::Taken { by, until } = self.take_lease(&wish.holder, deadline, now).await? {
            return Ok(Swept::Busy { by, until });
        }
        let Some(run) = self.open_run(wish, deadline, now).await? else {
            guards::give_lease(self.store(), LEASE, &wish.holder, now).await?;
            return Ok(Swept::Repeated);
        };
        let cx = SweepContext::new(self, wish, deadline);
        let mut summary = Box::pin(sweep::run(self, &cx)).await.summary;
        if let Err(error) = close_run(&cx, run, &summary).await {
            cx.stage_failed("summary", &error, &mut summary);
        }
        self.give_lease(&wish.holder).await;
        Ok(Swept::Done(Box::new(summary)))
    }

    /// An event names a request: it is enqueued like every other, and swept at once if it may start.
    async fn requested(&self, wish: &Wish, deadline: Timestamp) -> Result<Swept, NoSweep> {
        let (store, policies, now) = (self.store(), self.engine.policies(), self.clock.now());
        let ask = Ask {
            run: wish.run.clone(),
            at: wish.at.unwrap_or(now),
            trigger: wish.trigger,
            requested_by: wish.requested_by.clone(),
        };
        match requests::ask(store, policies, (&wish.scope, wish.dry_run), &ask, now).await? {
            Taken::Queued(_) | Taken::Known(Standing::Waiting | Standing::Running) => {}
            Taken::Known(Standing::Over) => return Ok(Swept::Repeated),
            Taken::Superseded { by } => return Ok(Swept::Superseded { by }),
            Taken::OverLimit(why) => return Ok(Swept::LeftToSchedule(why)),
        }
        let key = Request::key_of(&wish.scope, wish.dry_run);
        let Some(request) = requests::load(store, &key, now).await? else { return Ok(Swept::Repeated) };
        if let Some(newer) = request.waiting().filter(|asked| asked.run != wish.run) {
            return Ok(Swept::Superseded { by: newer.run.clone() });
        }
        Ok(match self.sweep_request(&request, &wish.holder, deadline, false).await? {
            RequestOutcome::Done(summary, _) => Swept::Done(summary),
            RequestOutcome::Later { by, until } => Swept::Busy { by, until },
            RequestOutcome::Nothing => Swept::Repeated,
        })
    }

    pub(crate) async fn take_lease(
        &self,
        holder: &str,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<Lease, StoreError> {
        guards::take_lease(self.store(), LEASE, holder, deadline, now).await
    }

    pub(crate) async fn give_lease(&self, holder: &str) {
        if let Err(error) = guards::give_lease(self.store(), LEASE, holder, self.clock.now()).await {
            // It ends by itself at the deadline.
            warn!(%error, "cannot release the sweep's lease");
        }
    }

    /// Writes the run of a sweep that starts; nothing if it has started before.
    async fn open_run(&self, wish: &Wish, deadline: Timestamp, now: Timestamp) -> Result<Option<Run>, StoreError> {
        let run = started_run(wish, deadline, now);
        let (key, item) = rows::run_row(&run, self.engine.policies().base())?;
        let first = write_if(self.store(), Write::Put { key, item, only_if: OnlyIf::Absent }, now).await?;
        Ok(first.then_some(run))
    }
}

fn started_run(wish: &Wish, deadline: Timestamp, now: Timestamp) -> Run {
    let mut run = Run::sweep(wish.run.clone(), wish.trigger, now);
    run.requested_by.clone_from(&wish.requested_by);
    run.idempotency_key.clone_from(&wish.key);
    let leased = run.clone().take_lease(&wish.holder, now, deadline);
    let running = leased.and_then(|run| run.advance(RunState::Running, TransitionContext::new(Initiator::System, now)));
    // A run that was just made is free and pending, so neither can be refused.
    running.unwrap_or(run)
}

/// Writes the run of a sweep that has ended, with its summary.
async fn close_run(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    run: Run,
    summary: &Summary,
) -> Result<(), StoreError> {
    let (now, loaded) = (cx.now(), run.version);
    let context = TransitionContext::new(Initiator::System, now);
    let step = sweep::summary_step(summary, &run, now);
    let ended = run.checkpoint(step).and_then(|run| {
        if summary.cancelled {
            run.cancel(summary.sentence(), context)
        } else {
            run.complete(summary.sentence(), context)
        }
    });
    match ended {
        Ok(ended) => cx.put_run(&Run { partial: summary.partial, ..ended }, loaded).await,
        Err(error) => {
            warn!(run = %cx.wish.run, %error, "cannot close the sweep's run");
            Ok(())
        }
    }
}
