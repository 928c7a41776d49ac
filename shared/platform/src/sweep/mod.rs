//! One pass of the reconciler (seed 000 §9, seed 004; design rules 2, 7, 10 to 16, 20). It has no memory: it asks the table what
//! is due, asks GitHub for the truth, and lets the domain decide. It claims remedies and never carries one out. Whatever it
//! does not get to is still due; whatever it visits gets a new date.
//!
//! `left` takes up what others left behind, `follow` looks after orders at Jenkins, `gate` asks whether anything may be started, `visit` looks at pull requests and
//! `treat` at those that are stale, `failures` reads why a build failed, `inventory` finds pull requests nobody told us about,
//! `notices` keeps mails from becoming a flood, `idle` tells whether there is anything to do, `turn` brings one
//! pull request of a base up to date at a time, `spare` leaves out what GitHub's limits do not allow.

mod failures;
mod flight;
mod follow;
mod gate;
mod idle;
mod inventory;
mod left;
mod notices;
pub mod observed;
mod spare;
mod story;
mod summary;
mod treat;
mod turn;
mod visit;
mod wish;

use std::sync::Arc;

use domain::comment::sweep as words;
use domain::event::{Actor, Fact, Happened};
use domain::id::{EffectId, EventId, PrId, RunId};
use domain::policy::Policies;
use domain::run::{Initiator, Run, RunState, RunTrigger, Step, TransitionContext};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;
use tracing::{error, warn};

pub use self::idle::is_idle;
pub use self::notices::MOST_SINGLE;
pub use self::summary::{Plan, Skip, Summary};
pub(crate) use self::treat::build_of;
pub use self::wish::{Scope, Wish};

use self::gate::Gate;
use self::notices::Keeping;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::github::{GitHub, Rates};
use crate::guards::{self, Lease};
use crate::jenkins::Jenkins;
use crate::lookup;
use crate::outlets::Outlets;
use crate::repos;
use crate::rows::{self, DueEntry, Subject};
use crate::store::{OnlyIf, Spending, Store, StoreError, Write};

/// The lease of the regular sweep.
const LEASE: &str = "sweep";
/// The name under which GitHub's waiting times are kept for all functions.
const GITHUB: &str = "github";
/// Nothing new is begun when less than this is left before the deadline: what is under way has to end, and to be told.
const RESERVE: SignedDuration = SignedDuration::from_secs(10);
/// Pull requests are not read from GitHub when less than this is left: working out mergeability alone may take 30 s.
const READING: SignedDuration = SignedDuration::from_secs(60);
/// How long a wish to cancel is remembered; no sweep lasts longer.
const CANCEL_FOR: SignedDuration = SignedDuration::from_hours(1);

/// How a wish ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Swept {
    /// It was swept.
    Done(Box<Summary>),
    /// Another sweep is at work; what is due is in its hands.
    Busy {
        /// Whose it is.
        by: String,
        /// Until when at the latest.
        until: Timestamp,
    },
    /// This very sweep was done before, or is under way.
    Repeated,
}

/// The sweep could not even begin.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("no sweep: {0}")]
pub struct NoSweep(#[from] pub StoreError);

/// The reconciler, with all it needs.
#[derive(Debug)]
pub struct Sweep<S, O> {
    engine: Engine<S, Keeping<O>>,
    github: GitHub,
    jenkins: Option<Jenkins>,
    clock: Arc<dyn Clock>,
    owners: Vec<String>,
    repos: repos::Told,
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
        let engine = Engine::new(store, Keeping::new(outlets), policies);
        Self { engine, github, jenkins, clock, owners, repos: repos::Told::default() }
    }

    /// Its store.
    pub fn store(&self) -> &S {
        self.engine.store()
    }

    /// Sweeps once, and ends before the deadline.
    ///
    /// # Errors
    /// [`NoSweep`] if the store does not answer at all. What goes wrong later is in the summary.
    pub async fn sweep(&self, wish: &Wish, deadline: Timestamp) -> Result<Swept, NoSweep> {
        let now = self.clock.now();
        // Who looks at one pull request, or only looks, is in nobody's way.
        let alone = !wish.dry_run && !matches!(wish.scope, Scope::One(_));
        if alone && let Lease::Taken { by, until } = self.lease(wish, deadline, now).await? {
            self.busy(wish, &by, now).await?;
            return Ok(Swept::Busy { by, until });
        }
        let Some(run) = self.open(wish, deadline, now).await? else {
            if alone {
                guards::give_lease(self.store(), LEASE, &wish.holder, now).await?;
            }
            return Ok(Swept::Repeated);
        };
        let mut pass = Pass::new(self, wish, deadline);
        // Boxed, here and below: one future made of all of these would be too large to be laid out, and to be moved.
        Box::pin(pass.stages()).await;
        pass.finish(run).await;
        let summary = pass.summary;
        if alone && let Err(error) = guards::give_lease(self.store(), LEASE, &wish.holder, self.clock.now()).await {
            // It ends by itself at the deadline.
            warn!(%error, "the sweep's lease could not be given back");
        }
        Ok(Swept::Done(Box::new(summary)))
    }

    async fn lease(&self, wish: &Wish, deadline: Timestamp, now: Timestamp) -> Result<Lease, StoreError> {
        guards::take_lease(self.store(), LEASE, &wish.holder, deadline, now).await
    }

    /// Writes down that it begins; nothing if it has begun before.
    async fn open(&self, wish: &Wish, deadline: Timestamp, now: Timestamp) -> Result<Option<Run>, StoreError> {
        let run = begun(wish, deadline, now);
        Ok(self.put_first(&run, now).await?.then_some(run))
    }

    /// Writes a sweep's run, if there is none of that name or only one that was asked for and has not begun. Answers
    /// whether it did.
    async fn put_first(&self, run: &Run, now: Timestamp) -> Result<bool, StoreError> {
        let mut only_if = OnlyIf::Absent;
        for _ in 0..2 {
            let (key, item) = rows::run_row(run, self.engine.policies().base())?;
            match self.store().write(vec![Write::Put { key: key.clone(), item, only_if }], now).await {
                Ok(()) => return Ok(true),
                Err(StoreError::Refused(mut refused)) => {
                    let found = refused.pop().flatten().and_then(|refused| refused.found);
                    let found: Option<Run> = found.map(|item| rows::read(&key, &item)).transpose()?;
                    match found.filter(|found| found.state == RunState::Pending) {
                        Some(asked_for) => only_if = OnlyIf::Version(asked_for.version),
                        None => return Ok(false),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// A person who asked gets to know that it did not happen; the schedule asks again in a minute.
    async fn busy(&self, wish: &Wish, by: &str, now: Timestamp) -> Result<(), StoreError> {
        if wish.trigger == RunTrigger::Schedule {
            return Ok(());
        }
        let run = begun(wish, now, now);
        let context = TransitionContext::new(Initiator::System, now).because(format!("{by} is sweeping"));
        let Ok(run) = run.cancel("another sweep is at work", context) else { return Ok(()) };
        self.put_first(&run, now).await.map(drop)
    }
}

/// The run of a sweep that begins now.
fn begun(wish: &Wish, deadline: Timestamp, now: Timestamp) -> Run {
    let mut run = Run::sweep(wish.run.clone(), wish.trigger, now);
    run.requested_by.clone_from(&wish.requested_by);
    run.idempotency_key.clone_from(&wish.key);
    let leased = run.clone().take_lease(&wish.holder, now, deadline);
    let running = leased.and_then(|run| run.advance(RunState::Running, TransitionContext::new(Initiator::System, now)));
    // A run that was just made is free and pending, so neither can be refused.
    running.unwrap_or(run)
}

/// Asks a sweep to stop between two of its stages.
///
/// # Errors
/// If the store cannot be written.
pub async fn cancel<S: Store>(store: &S, run: &RunId, now: Timestamp) -> Result<(), StoreError> {
    guards::hold_off(store, &format!("cancel-{run}"), after(now, CANCEL_FOR), now).await
}

async fn is_cancelled<S: Store>(store: &S, run: &RunId, now: Timestamp) -> Result<bool, StoreError> {
    Ok(guards::held_off(store, &format!("cancel-{run}"), now).await?.is_some())
}

/// When a moment is so much later.
fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// One sweep under way.
struct Pass<'a, S, O> {
    sweep: &'a Sweep<S, O>,
    wish: &'a Wish,
    deadline: Timestamp,
    summary: Summary,
    gate: Option<Gate>,
    seen: observed::Week,
    turns: turn::Turns,
    spent: Spending,
    rates: Rates,
    /// Jenkins did not answer: it is not asked after orders again in this sweep, or each would cost a timeout.
    jenkins_is_silent: bool,
}

impl<'a, S: Store, O: Outlets> Pass<'a, S, O> {
    fn new(sweep: &'a Sweep<S, O>, wish: &'a Wish, deadline: Timestamp) -> Self {
        let summary = Summary { dry_run: wish.dry_run, ..Summary::default() };
        Self {
            sweep,
            wish,
            deadline,
            summary,
            gate: None,
            seen: observed::Week::default(),
            turns: turn::Turns::default(),
            spent: sweep.store().spent().so_far(),
            rates: sweep.github.rates(),
            jenkins_is_silent: false,
        }
    }

    fn now(&self) -> Timestamp {
        self.sweep.clock.now()
    }

    fn engine(&self) -> &'a Engine<S, Keeping<O>> {
        &self.sweep.engine
    }

    fn store(&self) -> &'a S {
        self.sweep.engine.store()
    }

    fn policies(&self) -> &'a Policies {
        self.sweep.engine.policies()
    }

    /// How many pull requests are worked on at the same time.
    fn at_once(&self) -> usize {
        usize::try_from(self.policies().base().sweep.concurrency).unwrap_or(1).max(1)
    }

    /// Something this sweep did. Its id is the same however often the step is repeated within the sweep.
    fn fact(&self, pr: &PrId, step: &str, what: Happened) -> Fact {
        Fact {
            id: EventId::new(format!("{}.{step}", self.wish.run)),
            pr: pr.clone(),
            occurred_at: self.now(),
            actor: Actor::Reconciler,
            what,
        }
    }

    /// Whether the end is so near that nothing new may be begun; if so, the summary says it.
    fn is_late(&mut self) -> bool {
        self.ends_within(RESERVE)
    }

    fn ends_within(&mut self, reserve: SignedDuration) -> bool {
        let late = after(self.now(), reserve) >= self.deadline;
        self.summary.partial |= late;
        late
    }

    /// Between two stages: whether to go on.
    async fn goes_on(&mut self) -> bool {
        if self.summary.cancelled || self.is_late() {
            return false;
        }
        match is_cancelled(self.store(), &self.wish.run, self.now()).await {
            Ok(cancelled) => self.summary.cancelled = cancelled,
            // Who cannot be heard has not asked for anything.
            Err(error) => warn!(%error, "whether the sweep is cancelled could not be read"),
        }
        !self.summary.cancelled
    }

    /// All stages, in order. What goes wrong in one does not keep the next from being tried.
    async fn stages(&mut self) {
        let (effects, runs, prs) = match self.due().await {
            Ok(due) => due,
            Err(error) => {
                self.failed("due", &error);
                return;
            }
        };
        if !self.wish.dry_run {
            if self.goes_on().await {
                let done = self.effects(&effects).await;
                self.note("effects", done);
            }
            if self.goes_on().await {
                let done = self.runs(&runs).await;
                self.note("runs", done);
            }
        }
        if !self.goes_on().await {
            return;
        }
        if let Err(error) = self.breaker().await {
            self.failed("breaker", &error);
            // Whether remedies mostly fail is not known: nothing is begun until it is.
            self.gate = Some(Gate::unknown(self.now()));
        }
        let held = self.hears_github().await;
        self.note("github", held);
        if self.goes_on().await {
            let done = Box::pin(self.visit(prs)).await;
            self.note("pull requests", done);
        }
        let everything = self.wish.scope == Scope::All && !self.wish.dry_run && self.gate.is_none();
        if everything && self.goes_on().await {
            let done = Box::pin(self.inventory()).await;
            self.note("inventory", done);
        }
    }

    fn note(&mut self, stage: &str, done: Result<(), StoreError>) {
        if let Err(error) = done {
            self.failed(stage, &error);
        }
    }

    fn failed(&mut self, stage: &str, error: &StoreError) {
        error!(run = %self.wish.run, stage, %error, "a stage of the sweep failed");
        self.summary.fail(stage, error);
    }

    /// What is due: effects, runs, and pull requests. Each part of the index is read as far as all of them together may be
    /// visited, and of that the highest in rank are chosen: the urgent are found among the late.
    async fn due(&mut self) -> Result<(Vec<EffectId>, Vec<RunId>, Vec<PrId>), StoreError> {
        let most = self.policies().base().sweep.max_prs.max(1);
        if let Scope::One(pr) = &self.wish.scope {
            self.summary.due = 1;
            return Ok((Vec::new(), Vec::new(), vec![pr.clone()]));
        }
        let due = lookup::due(self.store(), most, self.now()).await?;
        let (mut effects, mut runs, mut prs) = (Vec::new(), Vec::new(), Vec::new());
        for entry in due.entries {
            match (&entry.subject, &self.wish.scope) {
                (Subject::Effect(id), Scope::All) => effects.push(id.clone()),
                (Subject::Run(id), Scope::All) => runs.push(id.clone()),
                (Subject::PullRequest(pr), Scope::Repo(repo)) if pr.repo == *repo => prs.push(entry),
                (Subject::PullRequest(_), Scope::All) => prs.push(entry),
                (Subject::PullRequest(_) | Subject::Effect(_) | Subject::Run(_), _) => {}
            }
        }
        let now = self.now();
        self.summary.due = u32::try_from(prs.len()).unwrap_or(u32::MAX);
        let oldest = prs.iter().map(|entry| now.duration_since(entry.due_at).as_secs()).max();
        self.summary.oldest_due_secs = u64::try_from(oldest.unwrap_or(0)).unwrap_or(0);
        prs.sort_by_key(|entry| (std::cmp::Reverse(rank(entry, now)), entry.due_at));
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.summary.left = u32::try_from(prs.len().saturating_sub(most)).unwrap_or(u32::MAX);
        prs.truncate(most);
        let chosen = prs.into_iter().filter_map(|entry| match entry.subject {
            Subject::PullRequest(pr) => Some(pr),
            Subject::Effect(_) | Subject::Run(_) => None,
        });
        Ok((effects, runs, chosen.collect()))
    }

    /// What others were told by GitHub holds for us.
    async fn hears_github(&mut self) -> Result<(), StoreError> {
        if let Some(until) = guards::held_off(self.store(), GITHUB, self.now()).await? {
            self.sweep.github.hold_until(until);
        }
        Ok(())
    }

    /// What we were told holds for others.
    async fn tells_of_github(&self) -> Result<(), StoreError> {
        match self.sweep.github.not_before() {
            Some(until) => guards::hold_off(self.store(), GITHUB, until, self.now()).await,
            None => Ok(()),
        }
    }

    async fn release(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        let later = after(now, left::EFFECT_AGAIN);
        self.summary.notices += self.engine().outlets().release(self.store(), later, now).await?;
        Ok(())
    }

    /// Every sweep ends with this, however far it came: mails, what GitHub said, the week, and the summary.
    async fn finish(&mut self, run: Run) {
        if !self.wish.dry_run {
            let released = self.release().await;
            self.note("mails", released);
        }
        let told = self.tells_of_github().await;
        self.note("github", told);
        if !self.wish.dry_run && self.seen != observed::Week::default() {
            match observed::add(self.store(), &self.seen, self.now()).await {
                Ok(week) => {
                    let (heals, calls) = (week.would_remedy.len(), week.would_escalate.len());
                    self.summary.observed = Some(words::observed(heals, calls, observed::week_of(self.now())));
                }
                Err(error) => self.failed("observed", &error),
            }
        }
        self.summary.github_points = spare::points(&self.rates, &self.sweep.github.rates());
        self.summary.spent(self.spent, self.store().spent().so_far());
        if let Err(error) = self.close(run).await {
            self.failed("summary", &error);
        }
    }

    async fn close(&self, run: Run) -> Result<(), StoreError> {
        let now = self.now();
        let loaded = run.version;
        let json = serde_json::to_string(&self.summary).unwrap_or_default();
        let step = Step::started("summary", run.created_at).done(Some(json), now);
        let context = TransitionContext::new(Initiator::System, now);
        let id = run.id.clone();
        let ended = run.checkpoint(step).and_then(|run| {
            if self.summary.cancelled {
                run.cancel(self.summary.sentence(), context)
            } else {
                run.complete(self.summary.sentence(), context)
            }
        });
        let mut ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                warn!(run = %id, %error, "a sweep's run is left as it is");
                return Ok(());
            }
        };
        ended.partial = self.summary.partial;
        let (key, item) = rows::run_row(&ended, self.policies().base())?;
        self.store().write(vec![Write::Put { key, item, only_if: OnlyIf::Version(loaded) }], now).await
    }
}

/// A pull request's place before its record is read: what people say, and how long it has been waiting.
fn rank(entry: &DueEntry, now: Timestamp) -> i64 {
    entry.priority + 5 * (now.duration_since(entry.due_at).as_hours() / 24).max(0)
}

/// What a sweep wrote down, from its run record.
#[must_use]
pub fn summary_of(run: &Run) -> Option<Summary> {
    serde_json::from_str(run.step("summary")?.output.as_deref()?).ok()
}
