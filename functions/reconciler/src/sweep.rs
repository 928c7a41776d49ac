//! One pass of the reconciler (seed 000 §9, seed 004; design rules 2, 7, 10 to 16, 20). It has no memory: it asks the table what
//! is due, asks GitHub for the truth, and lets the domain decide. It claims remedies and never carries one out. Whatever it
//! does not get to is still due; whatever it visits gets a new date.
//!
//! `left` takes up what others left behind, `follow` looks after orders at Jenkins, `gate` asks whether anything may be started, `visit` looks at pull requests and
//! `treat` at those that are stale, `failures` reads why a build failed, `inventory` finds pull requests nobody told us about,
//! `notices` keeps mails from becoming a flood, `idle` tells whether there is anything to do, `turn` brings one
//! pull request of a base up to date at a time, `spare` leaves out what GitHub's limits do not allow. `asked` grants requests:
//! each is a pass of its own over what was asked for. What goes beyond single pull requests is in `crate::coordination`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::comment::sweep as words;
use domain::event::{Actor, Fact, Happened};
use domain::id::{EffectId, EventId, PrId, RunId};
use domain::policy::Policies;
use domain::run::{Initiator, Run, RunState, RunTrigger, Step, TransitionContext};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;
use tracing::{error, warn};

use crate::coordination::{self, Beyond};
use crate::digest::Keeping;
use crate::limits::dispatch_gate::Gate;
use crate::limits::{rate_budget, update_queue};
use crate::trigger::{Scope, Wish};
use crate::{observe_report, run_recovery};
use platform::clock::Clock;
use platform::engine::Engine;
use platform::engine::repo_registry::RepoRegistry;
use platform::github::{GitHub, Rates};
use platform::guards::{self, Lease};
use platform::http::Transport;
use platform::jenkins::Jenkins;
use platform::lookup;
use platform::outlets::Outlets;
use platform::requests;
use platform::rows::{self, DueEntry, Subject};
use platform::store::{OnlyIf, Spending, Store, StoreError, Write};
use platform::sweep_summary::Summary;

/// The lease of the regular sweep.
const LEASE: &str = "sweep";
/// The name under which GitHub's waiting times are kept for all functions.
const GITHUB: &str = "github";
/// Nothing new is begun when less than this is left before the deadline: what is under way has to end, and to be told.
pub(crate) const RESERVE: SignedDuration = SignedDuration::from_secs(10);
/// Pull requests are not read from GitHub when less than this is left: working out mergeability alone may take 30 s.
pub(crate) const READING: SignedDuration = SignedDuration::from_secs(60);

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
    /// Something newer was asked for, and shows what this one would.
    Superseded {
        /// Its run.
        by: RunId,
    },
    /// The day has no room for this request, in a sentence.
    LeftToSchedule(String),
}

/// The sweep could not even begin.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("no sweep: {0}")]
pub struct NoSweep(#[from] pub StoreError);

/// The reconciler, with all it needs.
#[derive(Debug)]
pub struct Sweep<S, O> {
    pub(crate) engine: Engine<S, Keeping<O>>,
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
        let engine = Engine::new(store, Keeping::new(outlets), policies);
        Self { engine, github, jenkins, clock, owners, repos: RepoRegistry::default(), http: None }
    }

    /// The same, able to ask the sentinel's health addresses.
    #[must_use]
    pub fn asking_through(mut self, http: Transport) -> Self {
        self.http = Some(http);
        self
    }

    /// Its store.
    pub fn store(&self) -> &S {
        self.engine.store()
    }

    /// Sweeps once, and ends before the deadline: as the schedule wants it, or what somebody asks for.
    ///
    /// # Errors
    /// [`NoSweep`] if the store does not answer at all. What goes wrong later is in the summary.
    pub async fn sweep(&self, wish: &Wish, deadline: Timestamp) -> Result<Swept, NoSweep> {
        // Boxed, here and below: one future made of all of these would be too large to be laid out, and to be moved.
        match wish.trigger {
            RunTrigger::Schedule => Box::pin(self.regular(wish, deadline)).await,
            RunTrigger::AdminApi
            | RunTrigger::CheckRun
            | RunTrigger::PrComment
            | RunTrigger::Webhook
            | RunTrigger::Reconciler => Box::pin(self.requested(wish, deadline)).await,
        }
    }

    pub(crate) async fn regular(&self, wish: &Wish, deadline: Timestamp) -> Result<Swept, NoSweep> {
        let now = self.clock.now();
        if let Lease::Taken { by, until } = self.lease(&wish.holder, deadline, now).await? {
            return Ok(Swept::Busy { by, until });
        }
        let Some(run) = self.open(wish, deadline, now).await? else {
            guards::give_lease(self.store(), LEASE, &wish.holder, now).await?;
            return Ok(Swept::Repeated);
        };
        let mut pass = Pass::new(self, wish, deadline);
        if let Some(mut due) = pass.find().await {
            pass.left_behind(&due).await;
            let seen = Box::pin(self.grant_due(&mut pass, std::mem::take(&mut due.requests))).await;
            due.prs.retain(|pr| !seen.contains(pr));
            Box::pin(pass.pull_requests(due.prs)).await;
        }
        Box::pin(pass.coordinate()).await;
        pass.finish().await;
        if let Err(error) = pass.close(run).await {
            pass.failed("summary", &error);
        }
        self.give_lease(&wish.holder).await;
        Ok(Swept::Done(Box::new(pass.summary)))
    }

    pub(crate) async fn lease(&self, holder: &str, deadline: Timestamp, now: Timestamp) -> Result<Lease, StoreError> {
        guards::take_lease(self.store(), LEASE, holder, deadline, now).await
    }

    pub(crate) async fn give_lease(&self, holder: &str) {
        if let Err(error) = guards::give_lease(self.store(), LEASE, holder, self.clock.now()).await {
            // It ends by itself at the deadline.
            warn!(%error, "the sweep's lease could not be given back");
        }
    }

    /// Writes down that it begins; nothing if it has begun before.
    pub(crate) async fn open(
        &self,
        wish: &Wish,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Run>, StoreError> {
        let run = begun(wish, deadline, now);
        let (key, item) = rows::run_row(&run, self.engine.policies().base())?;
        match self.store().write(vec![Write::Put { key, item, only_if: OnlyIf::Absent }], now).await {
            Ok(()) => Ok(Some(run)),
            Err(StoreError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The run of a sweep that begins now.
pub(crate) fn begun(wish: &Wish, deadline: Timestamp, now: Timestamp) -> Run {
    let mut run = Run::sweep(wish.run.clone(), wish.trigger, now);
    run.requested_by.clone_from(&wish.requested_by);
    run.idempotency_key.clone_from(&wish.key);
    let leased = run.clone().take_lease(&wish.holder, now, deadline);
    let running = leased.and_then(|run| run.advance(RunState::Running, TransitionContext::new(Initiator::System, now)));
    // A run that was just made is free and pending, so neither can be refused.
    running.unwrap_or(run)
}

/// When a moment is so much later.
pub(crate) fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// One sweep under way.
pub(crate) struct Pass<'a, S, O> {
    pub(crate) sweep: &'a Sweep<S, O>,
    pub(crate) wish: &'a Wish,
    pub(crate) deadline: Timestamp,
    pub(crate) summary: Summary,
    pub(crate) gate: Option<Gate>,
    pub(crate) seen: observe_report::Week,
    pub(crate) turns: update_queue::Turns,
    pub(crate) spent: Spending,
    pub(crate) rates: Rates,
    /// Jenkins did not answer: it is not asked after orders again in this sweep, or each would cost a timeout.
    pub(crate) jenkins_is_silent: bool,
    /// Somebody has cancelled it.
    pub(crate) stopped: AtomicBool,
    /// The first stage that failed, and why.
    pub(crate) broken: Option<String>,
    /// Pull requests that were compared with GitHub.
    pub(crate) visited: BTreeSet<PrId>,
}

/// What is due, by kind.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub(crate) effects: Vec<EffectId>,
    pub(crate) runs: Vec<RunId>,
    pub(crate) requests: Vec<String>,
    pub(crate) prs: Vec<PrId>,
}

impl<'a, S: Store, O: Outlets> Pass<'a, S, O> {
    pub(crate) fn new(sweep: &'a Sweep<S, O>, wish: &'a Wish, deadline: Timestamp) -> Self {
        let summary = Summary { dry_run: wish.dry_run, ..Summary::default() };
        Self {
            sweep,
            wish,
            deadline,
            summary,
            gate: None,
            seen: observe_report::Week::default(),
            turns: update_queue::Turns::default(),
            spent: sweep.store().spent().so_far(),
            rates: sweep.github.rates(),
            jenkins_is_silent: false,
            stopped: AtomicBool::new(false),
            broken: None,
            visited: BTreeSet::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.sweep.clock.now()
    }

    pub(crate) fn engine(&self) -> &'a Engine<S, Keeping<O>> {
        &self.sweep.engine
    }

    pub(crate) fn store(&self) -> &'a S {
        self.sweep.engine.store()
    }

    pub(crate) fn policies(&self) -> &'a Policies {
        self.sweep.engine.policies()
    }

    /// How many pull requests are worked on at the same time.
    pub(crate) fn at_once(&self) -> usize {
        usize::try_from(self.policies().base().sweep.concurrency).unwrap_or(1).max(1)
    }

    /// Something this sweep did. Its id is the same however often the step is repeated within the sweep.
    pub(crate) fn fact(&self, pr: &PrId, step: &str, what: Happened) -> Fact {
        Fact {
            id: EventId::new(format!("{}.{step}", self.wish.run)),
            pr: pr.clone(),
            occurred_at: self.now(),
            actor: Actor::Reconciler,
            what,
        }
    }

    /// Whether the end is so near that nothing new may be begun; if so, the summary says it.
    pub(crate) fn is_late(&mut self) -> bool {
        self.ends_within(RESERVE)
    }

    pub(crate) fn ends_within(&mut self, reserve: SignedDuration) -> bool {
        let late = after(self.now(), reserve) >= self.deadline;
        self.summary.partial |= late;
        late
    }

    /// Between two stages: whether to go on.
    pub(crate) async fn goes_on(&mut self) -> bool {
        if self.summary.cancelled || self.is_late() {
            return false;
        }
        self.summary.cancelled = self.hears_stop().await;
        !self.summary.cancelled
    }

    /// Before each claim and each write of a request: whether somebody has cancelled it meanwhile. The regular sweep is
    /// cancelled between its stages only: nobody waits for that one, and asking would cost a read for each write.
    pub(crate) async fn is_stopped(&self) -> bool {
        self.wish.trigger != RunTrigger::Schedule && self.hears_stop().await
    }

    pub(crate) async fn hears_stop(&self) -> bool {
        if self.stopped.load(Ordering::Relaxed) {
            return true;
        }
        match requests::is_told_to_stop(self.store(), &self.wish.run, self.now()).await {
            Ok(stopped) => {
                self.stopped.store(stopped, Ordering::Relaxed);
                stopped
            }
            // Who cannot be heard has not asked for anything.
            Err(error) => {
                warn!(%error, "whether the sweep is cancelled could not be read");
                false
            }
        }
    }

    /// All stages of a request.
    pub(crate) async fn stages(&mut self) {
        if let Some(due) = self.find().await {
            self.left_behind(&due).await;
            Box::pin(self.pull_requests(due.prs)).await;
        }
    }

    /// What is due, or was asked for.
    pub(crate) async fn find(&mut self) -> Option<Due> {
        let due = self.due().await;
        due.inspect_err(|error| self.failed("due", error)).ok()
    }

    /// What others left behind comes first. What goes wrong in one stage does not keep the next from being tried.
    pub(crate) async fn left_behind(&mut self, due: &Due) {
        if self.wish.dry_run || self.wish.scope != Scope::All {
            return;
        }
        if self.goes_on().await {
            let done = self.effects(&due.effects).await;
            self.note("effects", done);
        }
        if self.goes_on().await {
            let done = self.runs(&due.runs).await;
            self.note("runs", done);
        }
    }

    /// Then the pull requests.
    pub(crate) async fn pull_requests(&mut self, prs: Vec<PrId>) {
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

    /// Beyond single pull requests, whatever became of the stages.
    pub(crate) async fn coordinate(&mut self) {
        let wanted = self.wish.scope == Scope::All && !self.wish.dry_run && !self.summary.cancelled;
        if !wanted || !coordination::is_configured(self.policies()) {
            return;
        }
        let beyond = Beyond {
            engine: self.engine(),
            github: &self.sweep.github,
            http: self.sweep.http.as_ref(),
            clock: &*self.sweep.clock,
            deadline: self.deadline,
            run: &self.wish.run,
            breaker: &self.summary.breaker,
        };
        let (told, failed) = beyond.coordinate().await;
        self.summary.coordination = Some(told);
        for (step, why) in failed {
            self.summary.fail(step, &why);
        }
    }

    pub(crate) fn note(&mut self, stage: &str, done: Result<(), StoreError>) {
        if let Err(error) = done {
            self.failed(stage, &error);
        }
    }

    pub(crate) fn failed(&mut self, stage: &str, error: &StoreError) {
        error!(run = %self.wish.run, stage, %error, "a stage of the sweep failed");
        self.summary.fail(stage, error);
        self.broken.get_or_insert_with(|| format!("{stage}: {error}"));
    }

    /// What is due: effects, runs, requests, and pull requests. Each part of the index is read as far as all of them together
    /// may be visited, and of that the highest in rank are chosen: the urgent are found among the late.
    pub(crate) async fn due(&mut self) -> Result<Due, StoreError> {
        let most = self.policies().base().sweep.max_prs.max(1);
        let wish = self.wish;
        match &wish.scope {
            Scope::One(pr) => {
                self.summary.due = 1;
                return Ok(Due { prs: vec![pr.clone()], ..Due::default() });
            }
            Scope::Base(repo, branch) => {
                let prs = Box::pin(self.of_base(repo, branch)).await?;
                return Ok(Due { prs, ..Due::default() });
            }
            Scope::All | Scope::Repo(_) => {}
        }
        let (mut due, mut prs) = (Due::default(), Vec::new());
        for entry in lookup::due(self.store(), most, self.now()).await?.entries {
            match (&entry.subject, &self.wish.scope) {
                (Subject::Effect(id), Scope::All) => due.effects.push(id.clone()),
                (Subject::Run(id), Scope::All) => due.runs.push(id.clone()),
                (Subject::Request(key), Scope::All) => due.requests.push(key.clone()),
                (Subject::PullRequest(pr), Scope::Repo(repo)) if pr.repo == *repo => prs.push(entry),
                (Subject::PullRequest(_), Scope::All) => prs.push(entry),
                (Subject::PullRequest(_) | Subject::Effect(_) | Subject::Run(_) | Subject::Request(_), _) => {}
            }
        }
        let now = self.now();
        self.summary.due = u32::try_from(prs.len()).unwrap_or(u32::MAX);
        let oldest = prs.iter().map(|entry| now.duration_since(entry.due_at).as_secs()).max();
        self.summary.oldest_due_secs = u64::try_from(oldest.unwrap_or(0)).unwrap_or(0);
        prs.sort_by_key(|entry| (std::cmp::Reverse(rank(entry, now)), entry.due_at));
        let ranked = prs.into_iter().filter_map(|entry| match entry.subject {
            Subject::PullRequest(pr) => Some(pr),
            Subject::Effect(_) | Subject::Run(_) | Subject::Request(_) => None,
        });
        let most = self.wish.scope.repo().map_or(most, |repo| self.policies().for_repo(repo).triggers.max_prs);
        due.prs = self.first_of(ranked.collect(), most);
        Ok(due)
    }

    /// As many as may be visited. The others are counted and named: they are left to the schedule.
    pub(crate) fn first_of(&mut self, mut ranked: Vec<PrId>, most: u32) -> Vec<PrId> {
        let rest = ranked.split_off(ranked.len().min(usize::try_from(most.max(1)).unwrap_or(usize::MAX)));
        self.summary.leave_out(&rest);
        ranked
    }

    /// What others were told by GitHub holds for us.
    pub(crate) async fn hears_github(&mut self) -> Result<(), StoreError> {
        if let Some(until) = guards::held_off(self.store(), GITHUB, self.now()).await? {
            self.sweep.github.hold_until(until);
        }
        Ok(())
    }

    /// What we were told holds for others.
    pub(crate) async fn tells_of_github(&self) -> Result<(), StoreError> {
        match self.sweep.github.not_before() {
            Some(until) => guards::hold_off(self.store(), GITHUB, until, self.now()).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn release(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        let later = after(now, run_recovery::EFFECT_AGAIN);
        self.summary.notices += self.engine().outlets().release(self.store(), later, now).await?;
        Ok(())
    }

    /// Every sweep ends with this, however far it came: mails, what GitHub said, and the week. The summary comes last.
    pub(crate) async fn finish(&mut self) {
        self.summary.cancelled |= self.stopped.load(Ordering::Relaxed);
        if !self.wish.dry_run {
            let released = self.release().await;
            self.note("mails", released);
        }
        let told = self.tells_of_github().await;
        self.note("github", told);
        if !self.wish.dry_run && self.seen != observe_report::Week::default() {
            match observe_report::add(self.store(), &self.seen, self.now()).await {
                Ok(week) => {
                    let (heals, calls) = (week.would_remedy.len(), week.would_escalate.len());
                    self.summary.observed = Some(words::observed(heals, calls, observe_report::week_of(self.now())));
                }
                Err(error) => self.failed("observed", &error),
            }
        }
        self.summary.github_points = rate_budget::points(&self.rates, &self.sweep.github.rates());
        self.summary.spent(self.spent, self.store().spent().so_far());
    }

    /// What it did, as the step of its run that holds it.
    pub(crate) fn summed_up(&self, run: &Run, now: Timestamp) -> Step {
        let json = serde_json::to_string(&self.summary).unwrap_or_default();
        Step::started("summary", run.created_at).done(Some(json), now)
    }

    pub(crate) async fn close(&self, run: Run) -> Result<(), StoreError> {
        let now = self.now();
        let loaded = run.version;
        let step = self.summed_up(&run, now);
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
