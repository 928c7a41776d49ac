//! One world from its first pull request to its last: time passes, and everybody does what is theirs to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use domain::event::Event;
use domain::policy::{Policies, Wake};
use futures_util::future::select;
use jiff::{SignedDuration, Timestamp};
use platform::store::Store;
use platform::store::memory::MemoryStore;
use serde_json::{Value, json};
use world::{Listening, Pr, Protection, Repo, Reports, Settings, World};

use crate::cluster::{self, Cluster};
use crate::dashboard_users::DashboardAction;
use crate::fault_injection::{CrashPoint, Function, InjectedBug, SharedState, locked};
use crate::faults::{FaultPlan, InternalFault};
use crate::final_checks::{self, FinalState};
use crate::invariants::Invariant;
use crate::queue::later;
use crate::report::Outcome;
use crate::rng::Rng;
use crate::users::{UserAction, Users};

/// A pull request that has not ended so long after the last one was opened is stuck.
const PATIENCE: SignedDuration = SignedDuration::from_hours(96);
/// So much longer for each: where heads have to be up to date, they are merged one after the other.
const PATIENCE_EACH: SignedDuration = SignedDuration::from_mins(30);
/// Between two ticks of the schedule.
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// How far ahead of the true time a process may think it is, where clocks are off.
const AHEAD: SignedDuration = SignedDuration::from_mins(2);
/// One of so many sweeps that have nothing to do is done all the same.
const IDLE_SWEEPS: u64 = 10;

/// What to play.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Everything follows from it.
    pub seed: u64,
    /// Pull requests that CodeGenie opens by itself.
    pub prs: u64,
    /// What may go wrong.
    pub faults: FaultPlan,
    /// The configuration; it acts.
    pub policies: Policies,
    /// Whether the history is written down.
    pub trace: bool,
    /// Whether the event log is kept.
    pub keeps_log: bool,
    /// What is broken on purpose.
    pub bug: Option<InjectedBug>,
    /// Where a process is stopped.
    pub stop: Option<CrashPoint>,
    /// Buttons that somebody presses for the first pull request, so long after the beginning.
    pub presses: Vec<(SignedDuration, DashboardAction)>,
}

impl SimConfig {
    /// The defaults, acting.
    ///
    /// # Errors
    /// If the defaults cannot be read.
    pub fn new(seed: u64, prs: u64, faults: FaultPlan) -> Result<Self, String> {
        let policies = read(configuration(seed))?;
        let (trace, keeps_log, bug, stop, presses) = (false, false, None, None, Vec::new());
        Ok(Self { seed, prs, faults, policies, trace, keeps_log, bug, stop, presses })
    }
}

/// What came of it.
#[derive(Debug)]
pub struct SimResult {
    /// In numbers.
    pub outcome: Outcome,
    /// The history, if it was written down.
    pub trace: Vec<String>,
    /// The event log, if it was kept.
    pub log: Vec<Event>,
    /// Calls that left each function's processes.
    pub calls: BTreeMap<Function, u64>,
}

/// Plays it, in a time of its own.
///
/// # Errors
/// If it cannot be set up.
pub fn run_seed(config: &SimConfig) -> Result<SimResult, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(run_simulation(config))
}

async fn run_simulation(config: &SimConfig) -> Result<SimResult, String> {
    let (settings, every) = setting(config);
    let mut world = World::new(config.seed, settings.clone());
    world.schedule_prs(config.prs, every);
    let prs = i32::try_from(config.prs).unwrap_or(i32::MAX);
    let last_opening = later(world.now(), every.saturating_mul(prs));
    let mut users = Users::new(config.seed);
    for (after, button) in &config.presses {
        let first = Pr { repo: settings.repos[0].name.clone(), number: 1 };
        users.will_press(later(world.now(), *after), first, *button);
    }
    let shared = SharedState::new(config, world, MemoryStore::new());
    let cluster = Cluster::new(shared, &settings, config.policies.clone())?;
    let mut run_seed = Simulation {
        users,
        pressed: 0,
        cluster,
        last_opening,
        give_up_at: later(last_opening, PATIENCE.saturating_add(PATIENCE_EACH.saturating_mul(prs))),
        next_tick: Timestamp::MIN,
        idling: Rng::new(config.seed, 5),
        idle: 0,
        doubled: Vec::new(),
        known: 0,
        unsettled: BTreeSet::new(),
        shown: 0,
        called: 0,
        requests: 0,
    };
    run_seed.run().await;
    Ok(run_seed.outcome(config).await)
}

/// Reads a configuration. Most worlds have the same one, and its patterns are compiled once for all of them.
fn read(text: String) -> Result<Policies, String> {
    static KNOWN: Mutex<BTreeMap<String, Policies>> = Mutex::new(BTreeMap::new());
    let mut known = locked(&KNOWN);
    if let Some(policies) = known.get(&text) {
        return Ok(policies.clone());
    }
    let policies = Policies::parse(&text).map_err(|error| error.to_string())?;
    known.insert(text, policies.clone());
    Ok(policies)
}

/// A configuration of its own kind, mostly the defaults: what people change decides which code runs.
fn configuration(seed: u64) -> String {
    let mut rng = Rng::new(seed, 4);
    let changes = [
        (60, "wake.approver_bot = \"label\"\nwake.approver_bot_with = \"wake-up\""),
        (60, "wake.automerge_bot = \"comment\"\nwake.automerge_bot_with = \"merge this please\""),
        (60, "wake.policy_bot = \"label\"\nwake.policy_bot_with = \"look-again\""),
        (60, "rebuild.via = \"replay\""),
        (60, "checks.behind = \"always\""),
        (80, "limits.webhooks_per_minute_per_repo = 4"),
        (60, "limits.remedies_in_flight = 1"),
        (60, "limits.rebuilds_in_flight_per_repo = 1"),
        (80, "sweep.max_prs = 1"),
        (80, "sweep.inventory_every = 3"),
        (60, "breaker.minimum_actions = 1\nbreaker.failure_threshold = 0.3"),
    ];
    let chosen = changes.into_iter().filter(|(share, _)| rng.happens(*share)).map(|(_, line)| line);
    std::iter::once("mode = \"act\"").chain(chosen).collect::<Vec<_>>().join("\n")
}

/// A world of its own kind: how its repositories are protected, how its bots and its Jenkins report.
fn setting(config: &SimConfig) -> (Settings, SignedDuration) {
    let mut rng = Rng::new(config.seed, 3);
    let mut settings = Settings { faults: config.faults.world.clone(), ..Settings::default() };
    let names = ["acme/payments", "acme/shop"];
    let count = if rng.happens(300) { 2 } else { 1 };
    settings.repos = names[..count].iter().map(|name| repo(name, &mut rng)).collect();
    settings.jenkins_notifies = rng.happens(200);
    let reports = rng.happens(200);
    settings.listening = settings.listening.map(|listening| Listening { reports, ..listening });
    let wake = &config.policies.base().wake;
    let ways = [(wake.policy_bot, 0), (wake.approver_bot, 1), (wake.automerge_bot, 2)];
    for (way, bot) in ways {
        settings.listening[bot].labels |= way == Wake::Label;
        settings.listening[bot].comments |= way == Wake::Comment;
    }
    let every = SignedDuration::from_secs(i64::try_from(rng.between(20, 400)).unwrap_or(60));
    (settings, every)
}

fn repo(name: &str, rng: &mut Rng) -> Repo {
    let mut repo = Repo::new(name);
    repo.strict = rng.happens(300);
    repo.merge_queue = rng.happens(150);
    repo.dismiss_stale_reviews = rng.happens(700);
    repo.protection = match rng.below(10) {
        0 => Protection::None,
        1..=3 => Protection::Ruleset,
        _ => Protection::Classic,
    };
    repo.reports = match rng.below(4) {
        0 => Reports::CheckRun,
        1 => Reports::Both,
        _ => Reports::Status,
    };
    repo
}

struct Simulation<S: Store + 'static> {
    cluster: Arc<Cluster<S>>,
    users: Users,
    /// Buttons that were pressed.
    pressed: u64,
    last_opening: Timestamp,
    give_up_at: Timestamp,
    next_tick: Timestamp,
    /// Which of the idle ticks are played all the same, and how many were not.
    idling: Rng,
    idle: u64,
    /// Ticks that come once more.
    doubled: Vec<(Timestamp, Value)>,
    /// Pull requests that were looked at.
    known: usize,
    /// Those that were not seen to have ended.
    unsettled: BTreeSet<Pr>,
    /// Effects that were written into the history.
    shown: usize,
    /// Escalations that people have heard of.
    called: usize,
    requests: u64,
}

impl<S: Store + 'static> Simulation<S> {
    async fn run(&mut self) {
        self.next_tick = minute_after(self.shared().now());
        loop {
            let now = self.shared().now();
            let ticked = self.step(now);
            if now >= self.give_up_at || (ticked && self.is_over(now).await) {
                return;
            }
            let next = self.next_at().max(later(now, SignedDuration::from_millis(1)));
            let until = self.shared().instant(next);
            let shared = Arc::clone(&self.cluster.shared);
            select(Box::pin(tokio::time::sleep_until(until)), Box::pin(shared.changed.notified())).await;
        }
    }

    fn shared(&self) -> &SharedState<S> {
        &self.cluster.shared
    }

    /// Everything whose time has come. Answers whether the minute was full.
    fn step(&mut self, now: Timestamp) -> bool {
        self.act(now);
        let deliveries = {
            let mut world = self.shared().world();
            world.take_webhooks()
        };
        for delivery in deliveries {
            tokio::spawn(Arc::clone(&self.cluster).deliver_webhook(delivery));
        }
        self.meet_new_ones(now);
        self.cluster.work();
        let requests = std::mem::take(&mut *locked(&self.shared().requests));
        for detail in requests {
            self.requests += 1;
            let detail = serde_json::from_str(&detail).unwrap_or_default();
            let reconcile_request = cluster::reconcile_request(&format!("bus-{}", self.requests), detail);
            tokio::spawn(Arc::clone(&self.cluster).reconcile(reconcile_request));
        }
        self.tick(now)
    }

    fn tick(&mut self, now: Timestamp) -> bool {
        let (come, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.doubled).into_iter().partition(|(at, _)| *at <= now);
        self.doubled = wait;
        for (_, event) in come {
            tokio::spawn(Arc::clone(&self.cluster).reconcile(event));
        }
        if now < self.next_tick {
            return false;
        }
        let event = cluster::tick(self.next_tick);
        self.next_tick = minute_after(now);
        let ahead = if self.shared().faults.has(InternalFault::ClockSkewed) { AHEAD } else { SignedDuration::ZERO };
        if self.shared().is_idle(later(now, ahead)) && self.idling.below(IDLE_SWEEPS) > 0 {
            self.idle += 1;
            return true;
        }
        let shared = self.shared();
        if shared.happens(InternalFault::TickLost, 50) {
            shared.trace(|| "a tick of the schedule is lost".to_owned());
            return true;
        }
        if shared.happens(InternalFault::TickDoubled, 50) {
            let secs = i64::try_from(locked(&shared.rng).between(0, 90)).unwrap_or(0);
            let again = later(now, SignedDuration::from_secs(secs));
            shared.trace(|| format!("a tick of the schedule will come again after {secs} s"));
            self.doubled.push((again, event.clone()));
        }
        tokio::spawn(Arc::clone(&self.cluster).reconcile(event));
        true
    }

    /// Users do what they have planned.
    fn act(&mut self, now: Timestamp) {
        if !self.shared().faults.has(InternalFault::Users) && self.users.is_done() {
            return;
        }
        if self.shared().faults.has(InternalFault::Users) {
            self.hear_calls(now);
        }
        for act in self.users.due(now) {
            self.shared().trace(|| format!("people: {act:?}"));
            if let UserAction::Sweeps(pr) = &act {
                self.requests += 1;
                let detail = json!({"repo": pr.repo, "pr_number": pr.number});
                let reconcile_request = cluster::reconcile_request(&format!("person-{}", self.requests), detail);
                tokio::spawn(Arc::clone(&self.cluster).reconcile(reconcile_request));
            }
            if let UserAction::Presses(pr, button) = &act {
                self.pressed += 1;
                self.cluster.pressing.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(Arc::clone(&self.cluster).press(pr.clone(), *button, self.pressed));
            }
            let said = act.happen(&mut self.shared().world());
            self.users.wait_for(&act, said, now);
        }
        let cluster = Arc::clone(&self.cluster);
        let unheard = self.users.unheard(&cluster.shared.world(), now);
        for act in unheard {
            self.users.again(act, now);
        }
    }

    /// Who was called may come.
    fn hear_calls(&mut self, now: Timestamp) {
        let calls: Vec<Pr> = {
            let checker = locked(&self.shared().checker);
            checker.escalations[self.called..].iter().map(|one| crate::invariants::fakes_pr(&one.pr)).collect()
        };
        self.called += calls.len();
        for pr in calls {
            self.users.called(&pr, now);
        }
    }

    /// Pull requests that were not there before, and what the world has done.
    fn meet_new_ones(&mut self, now: Timestamp) {
        let cluster = Arc::clone(&self.cluster);
        let world = locked(&cluster.shared.world);
        for pr in world.pulls_after(self.known) {
            self.known += 1;
            if cluster.shared.faults.has(InternalFault::Users) {
                self.users.hear_of(&pr, now);
            }
            self.unsettled.insert(pr);
        }
        if cluster.shared.trace.is_some() {
            let effects = &world.effects()[self.shown..];
            for effect in effects {
                let pr = effect.pr.as_ref().map(ToString::to_string).unwrap_or_default();
                let detail = domain::event::cut(&effect.detail.replace('\n', " "), 80);
                cluster.shared.trace(|| format!("world: {} {:?} {pr} {detail}", effect.by, effect.deed));
            }
            self.shown += effects.len();
        }
    }

    fn next_at(&self) -> Timestamp {
        let world = locked(&self.shared().world).next_event_at();
        let queue = locked(&self.shared().queue).next_at();
        let doubled = self.doubled.iter().map(|(at, _)| *at).min();
        [world, queue, doubled, self.users.next_at()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.next_tick)
            .min(self.next_tick)
    }

    /// Whether everything has ended, and nothing is under way.
    async fn is_over(&mut self, now: Timestamp) -> bool {
        // One that has not ended is enough to know.
        while let Some(pr) = self.unsettled.first() {
            if final_checks::end_of(self.shared(), pr).is_err() {
                return false;
            }
            self.unsettled.pop_first();
        }
        if now < self.last_opening || !self.users.is_done() {
            return false;
        }
        let pressing = self.cluster.pressing.load(Ordering::Relaxed);
        let idle = pressing == 0
            && self.cluster.running.load(Ordering::Relaxed) <= 1
            && locked(&self.shared().queue).len() == 0;
        if !idle || !final_checks::left_behind(self.shared()).await.iter().all(|key| key.starts_with("RUN#sweep")) {
            return false;
        }
        // Somebody may have come back: all of them once more.
        let all: Vec<Pr> = locked(&self.shared().world).pulls().map(|(pr, _)| pr).collect();
        self.unsettled = all.into_iter().filter(|pr| final_checks::end_of(self.shared(), pr).is_err()).collect();
        self.unsettled.is_empty()
    }

    async fn outcome(self, config: &SimConfig) -> SimResult {
        let shared = Arc::clone(&self.cluster.shared);
        let now = shared.now();
        let mut outcome = Outcome { seeds: 1, ..Outcome::default() };
        let all: Vec<Pr> = locked(&shared.world).pulls().map(|(pr, _)| pr).collect();
        for pr in &all {
            outcome.prs += 1;
            match final_checks::end_of(&shared, pr) {
                Ok(FinalState::Merged) => outcome.merged += 1,
                Ok(FinalState::Replaced) => outcome.replaced += 1,
                Ok(FinalState::Closed) => outcome.closed += 1,
                Ok(FinalState::Escalated) => outcome.escalated += 1,
                Err(why) => final_checks::note(&mut locked(&shared.checker), &why, pr, now),
            }
        }
        let left = final_checks::left_behind(&shared).await;
        let mut checker = locked(&shared.checker);
        for key in left.iter().filter(|key| !key.starts_with("RUN#sweep")) {
            checker.violated(Invariant::LeftBehind, now, key.clone());
        }
        let world = locked(&shared.world);
        for request in world.unknown_requests() {
            checker.violated(Invariant::UnknownRequest, now, request.clone());
        }
        outcome.take(&checker, config.seed);
        outcome.dead_letters = locked(&shared.queue).dead().len() as u64;
        outcome.sweeps = self.cluster.swept.load(Ordering::Relaxed);
        outcome.killed = self.cluster.killed.load(Ordering::Relaxed);
        outcome.github_requests = world.requests();
        outcome.idle_ticks = self.idle;
        outcome.store_requests = shared.asked.load(Ordering::Relaxed);
        for violation in &checker.violations {
            shared.trace(|| format!("WRONG {}: {} (at {})", violation.what.name(), violation.detail, violation.at));
        }
        let trace = shared.trace.as_ref().map(|trace| std::mem::take(&mut *locked(trace))).unwrap_or_default();
        let calls = locked(&shared.calls).clone();
        SimResult { outcome, trace, log: checker.log.take().unwrap_or_default(), calls }
    }
}

fn minute_after(at: Timestamp) -> Timestamp {
    later(domain::breaker::minute_of(at), MINUTE)
}
