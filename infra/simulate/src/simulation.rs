//! Runs one seed until every pull request is merged, closed or escalated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use domain::event::Event;
use domain::policy::{Policies, RetriggerVia};
use domain::time::saturating_after;
use fakes::{BotTriggers, FakePrId, FakeSettings, Fakes, JenkinsReporting, ProtectionSource, RepoSettings};
use futures_util::future::select;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::{self, Cluster};
use crate::dashboard_users::DashboardAction;
use crate::fault_injection::{CrashPoint, FunctionName, InjectedBug};
use crate::faults::{FaultSelection, InternalFault};
use crate::final_checks::{self, FinalState};
use crate::invariants::{Invariant, fakes_pr};
use crate::report::SimulationReport;
use crate::rng::SimulationRng;
use crate::shared_state::{SharedState, locked};
use crate::users::{SimulatedUsers, UserAction};

/// A pull request that is still open this long after the last one was opened is stuck.
const STUCK_AFTER: SignedDuration = SignedDuration::from_hours(96);
/// Extra time per pull request, because strict repositories merge one after the other.
const STUCK_AFTER_PER_PR: SignedDuration = SignedDuration::from_mins(30);
const TICK: SignedDuration = SignedDuration::from_mins(1);
/// The largest clock skew of a process.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(2);
/// Of the sweeps with nothing to do, only one in this many runs.
const IDLE_SWEEPS: u64 = 10;

#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Determines the whole simulation.
    pub seed: u64,
    /// The number of pull requests that CodeGenie opens without being asked.
    pub prs: u64,
    pub faults: FaultSelection,
    pub policies: Policies,
    pub trace: bool,
    /// Whether the result contains the event log.
    pub keeps_log: bool,
    pub bug: Option<InjectedBug>,
    pub crash: Option<CrashPoint>,
    /// Actions of a dashboard user for the first pull request, by time since the start.
    pub dashboard: Vec<(SignedDuration, DashboardAction)>,
}

impl SimConfig {
    /// # Errors
    /// If the seed's configuration is invalid.
    pub fn new(seed: u64, prs: u64, faults: FaultSelection) -> Result<Self, String> {
        let policies = parse_cached(configuration(seed))?;
        let (trace, keeps_log, bug, crash, dashboard) = (false, false, None, None, Vec::new());
        Ok(Self { seed, prs, faults, policies, trace, keeps_log, bug, crash, dashboard })
    }
}

#[derive(Debug)]
pub struct SimResult {
    pub outcome: SimulationReport,
    pub trace: Vec<String>,
    pub log: Vec<Event>,
    /// The number of outgoing calls of each function.
    pub calls: BTreeMap<FunctionName, u64>,
}

/// Runs one seed in virtual time.
///
/// # Errors
/// If the simulation cannot be set up.
pub fn run_seed(config: &SimConfig) -> Result<SimResult, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let mut simulation = Simulation::new(config)?;
        simulation.run().await;
        Ok(simulation.result().await)
    })
}

/// Most seeds have the same configuration; the cache compiles its patterns once.
fn parse_cached(text: String) -> Result<Policies, String> {
    static CACHE: Mutex<BTreeMap<String, Policies>> = Mutex::new(BTreeMap::new());
    let mut cache = locked(&CACHE);
    if let Some(policies) = cache.get(&text) {
        return Ok(policies.clone());
    }
    let policies = Policies::parse(&text).map_err(|error| error.to_string())?;
    cache.insert(text, policies.clone());
    Ok(policies)
}

/// The default configuration with random changes, so that optional code paths run too.
fn configuration(seed: u64) -> String {
    let mut rng = SimulationRng::new(seed, 4);
    let changes = [
        (60, "retrigger.approver_bot.via = \"label\"\nretrigger.approver_bot.target = \"retry\""),
        (60, "retrigger.automerge_bot.via = \"comment\"\nretrigger.automerge_bot.target = \"merge this please\""),
        (60, "retrigger.policy_bot.via = \"label\"\nretrigger.policy_bot.target = \"re-evaluate\""),
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

/// Random settings of the fakes: branch protection, and how bots and Jenkins report. Also returns the time between two new pull
/// requests.
fn settings(config: &SimConfig) -> (FakeSettings, SignedDuration) {
    let mut rng = SimulationRng::new(config.seed, 3);
    let mut settings = FakeSettings { faults: config.faults.world.clone(), ..FakeSettings::default() };
    let names = ["acme/payments", "acme/shop"];
    let count = if rng.happens(300) { 2 } else { 1 };
    settings.repos = names[..count].iter().map(|name| repo(name, &mut rng)).collect();
    settings.jenkins_notifies = rng.happens(200);
    let reports = rng.happens(200);
    settings.listening = settings.listening.map(|listening| BotTriggers { reports, ..listening });
    let retrigger = &config.policies.base().retrigger;
    for (bot, how) in [&retrigger.policy_bot, &retrigger.approver_bot, &retrigger.automerge_bot].into_iter().enumerate()
    {
        settings.listening[bot].labels |= how.via == RetriggerVia::Label;
        settings.listening[bot].comments |= how.via == RetriggerVia::Comment;
    }
    let every = rng.seconds(20, 400);
    (settings, every)
}

fn repo(name: &str, rng: &mut SimulationRng) -> RepoSettings {
    let mut repo = RepoSettings::new(name);
    repo.strict = rng.happens(300);
    repo.merge_queue = rng.happens(150);
    repo.dismiss_stale_reviews = rng.happens(700);
    repo.protection = match rng.below(10) {
        0 => ProtectionSource::None,
        1..=3 => ProtectionSource::Ruleset,
        _ => ProtectionSource::Classic,
    };
    repo.reports = match rng.below(4) {
        0 => JenkinsReporting::CheckRun,
        1 => JenkinsReporting::Both,
        _ => JenkinsReporting::Status,
    };
    repo
}

struct Simulation {
    cluster: Arc<Cluster>,
    shared: Arc<SharedState>,
    users: SimulatedUsers,
    dashboard_actions: u64,
    last_opening: Timestamp,
    give_up_at: Timestamp,
    next_tick: Timestamp,
    /// Decides which idle ticks still start a sweep.
    idle_rng: SimulationRng,
    idle_ticks: u64,
    /// Ticks that will be delivered a second time.
    doubled: Vec<(Timestamp, Value)>,
    known_prs: usize,
    /// Pull requests not yet known to be finished.
    open: BTreeSet<FakePrId>,
    traced_effects: usize,
    seen_escalations: usize,
    reconcile_requests: u64,
}

impl Simulation {
    fn new(config: &SimConfig) -> Result<Self, String> {
        let (settings, every) = settings(config);
        let first = FakePrId { repo: settings.repos[0].name.clone(), number: 1 };
        let mut fakes = Fakes::new(config.seed, settings);
        fakes.schedule_prs(config.prs, every);
        let mut users = SimulatedUsers::new(config.seed);
        for (after, action) in &config.dashboard {
            users.plan(saturating_after(fakes.now(), *after), UserAction::Dashboard(first.clone(), *action));
        }
        let prs = i32::try_from(config.prs).unwrap_or(i32::MAX);
        let last_opening = saturating_after(fakes.now(), every.saturating_mul(prs));
        let next_tick = minute_after(fakes.now());
        let cluster = Cluster::new(SharedState::new(config.clone(), fakes))?;
        Ok(Self {
            shared: Arc::clone(&cluster.shared),
            cluster,
            users,
            dashboard_actions: 0,
            last_opening,
            give_up_at: saturating_after(
                last_opening,
                STUCK_AFTER.saturating_add(STUCK_AFTER_PER_PR.saturating_mul(prs)),
            ),
            next_tick,
            idle_rng: SimulationRng::new(config.seed, 5),
            idle_ticks: 0,
            doubled: Vec::new(),
            known_prs: 0,
            open: BTreeSet::new(),
            traced_effects: 0,
            seen_escalations: 0,
            reconcile_requests: 0,
        })
    }

    async fn run(&mut self) {
        loop {
            let now = self.shared.now();
            let ticked = self.step(now);
            if now >= self.give_up_at || (ticked && self.is_over(now).await) {
                return;
            }
            let next = self.next_at().max(saturating_after(now, SignedDuration::from_millis(1)));
            let timer = tokio::time::sleep_until(self.shared.instant(next));
            select(Box::pin(timer), Box::pin(self.shared.changed.notified())).await;
        }
    }

    fn has_users(&self) -> bool {
        self.shared.config.faults.has(InternalFault::Users)
    }

    /// Starts everything that is due. Returns whether the schedule ticked.
    fn step(&mut self, now: Timestamp) -> bool {
        self.run_users(now);
        let deliveries = self.shared.fakes().take_webhooks();
        for delivery in deliveries {
            tokio::spawn(Arc::clone(&self.cluster).deliver_webhook(delivery));
        }
        self.track_new_prs(now);
        self.cluster.start_workers();
        let requests = std::mem::take(&mut *locked(&self.shared.reconcile_requests));
        for detail in requests {
            self.request_reconcile("bus", serde_json::from_str(&detail).unwrap_or_default());
        }
        self.tick(now)
    }

    fn request_reconcile(&mut self, from: &str, detail: Value) {
        self.reconcile_requests += 1;
        let request = cluster::reconcile_request(&format!("{from}-{}", self.reconcile_requests), detail);
        tokio::spawn(Arc::clone(&self.cluster).reconcile(request));
    }

    fn tick(&mut self, now: Timestamp) -> bool {
        for (_, event) in self.doubled.extract_if(.., |(at, _)| *at <= now) {
            tokio::spawn(Arc::clone(&self.cluster).reconcile(event));
        }
        if now < self.next_tick {
            return false;
        }
        let event = cluster::tick(self.next_tick);
        self.next_tick = minute_after(now);
        let shared = &self.shared;
        let skewed = shared.config.faults.has(InternalFault::ClockSkewed);
        let ahead = if skewed { MAX_SKEW } else { SignedDuration::ZERO };
        if shared.is_idle(saturating_after(now, ahead)) && self.idle_rng.below(IDLE_SWEEPS) > 0 {
            self.idle_ticks += 1;
            return true;
        }
        if shared.happens(InternalFault::TickLost, 50) {
            shared.trace(|| "tick lost".to_owned());
            return true;
        }
        if shared.happens(InternalFault::TickDoubled, 50) {
            let after = locked(&shared.rng).seconds(0, 90);
            shared.trace(|| format!("tick doubled after {after:#}"));
            self.doubled.push((saturating_after(now, after), event.clone()));
        }
        tokio::spawn(Arc::clone(&self.cluster).reconcile(event));
        true
    }

    fn run_users(&mut self, now: Timestamp) {
        if self.has_users() {
            let checker = locked(&self.shared.checker);
            for escalation in &checker.escalations[self.seen_escalations..] {
                self.users.escalated(&fakes_pr(&escalation.pr), now);
            }
            self.seen_escalations = checker.escalations.len();
        } else if self.users.is_done() {
            return;
        }
        for action in self.users.take_due(now) {
            self.shared.trace(|| format!("users: {action:?}"));
            if let UserAction::Sweep(pr) = &action {
                self.request_reconcile("person", json!({"repo": pr.repo, "pr_number": pr.number}));
            }
            if let UserAction::Dashboard(pr, action) = &action {
                self.dashboard_actions += 1;
                self.cluster.dashboard_actions.fetch_add(1, Ordering::Relaxed);
                let cluster = Arc::clone(&self.cluster);
                tokio::spawn(cluster.act_on_dashboard(pr.clone(), *action, self.dashboard_actions));
            }
            let comment = action.apply(&mut self.shared.fakes());
            self.users.commented(&action, comment, now);
        }
        self.users.repeat_unacknowledged(&self.shared.fakes(), now);
    }

    fn track_new_prs(&mut self, now: Timestamp) {
        let (shared, has_users) = (Arc::clone(&self.shared), self.has_users());
        let fakes = locked(&shared.fakes);
        for pr in fakes.pulls_after(self.known_prs) {
            self.known_prs += 1;
            if has_users {
                self.users.pull_request_opened(&pr, now);
            }
            self.open.insert(pr);
        }
        if shared.config.trace {
            for effect in &fakes.audit()[self.traced_effects..] {
                let pr = effect.pr.as_ref().map(ToString::to_string).unwrap_or_default();
                let detail = domain::event::truncate(&effect.detail.replace('\n', " "), 80);
                shared.trace(|| format!("fakes: {} {:?} {pr} {detail}", effect.by, effect.action));
            }
            self.traced_effects = fakes.audit().len();
        }
    }

    fn next_at(&self) -> Timestamp {
        let fakes = locked(&self.shared.fakes).next_event_at();
        let queue = locked(&self.shared.queues).next_visible_at();
        let doubled = self.doubled.iter().map(|(at, _)| *at).min();
        let due = [fakes, queue, doubled, self.users.next_at()].into_iter().flatten().min();
        due.map_or(self.next_tick, |due| due.min(self.next_tick))
    }

    fn all_prs(&self) -> Vec<FakePrId> {
        locked(&self.shared.fakes).pulls().map(|(pr, _)| pr).collect()
    }

    /// Whether all pull requests are finished and nothing is running or queued.
    async fn is_over(&mut self, now: Timestamp) -> bool {
        // The first unfinished one decides.
        while let Some(pr) = self.open.first() {
            if final_checks::final_state(&self.shared, pr).is_err() {
                return false;
            }
            self.open.pop_first();
        }
        let running = self.cluster.running.load(Ordering::Relaxed);
        if now < self.last_opening
            || !self.users.is_done()
            || self.cluster.dashboard_actions.load(Ordering::Relaxed) > 0
            || running > 1
            || !locked(&self.shared.queues).is_empty()
            || !final_checks::left_behind(&self.shared).await.is_empty()
        {
            return false;
        }
        // A finished pull request may have been reopened, so check all of them again.
        let is_open = |pr: &FakePrId| final_checks::final_state(&self.shared, pr).is_err();
        self.open = self.all_prs().into_iter().filter(is_open).collect();
        self.open.is_empty()
    }

    async fn result(self) -> SimResult {
        let shared = &self.shared;
        let mut outcome = SimulationReport { seeds: 1, ..SimulationReport::default() };
        for pr in self.all_prs() {
            outcome.prs += 1;
            match final_checks::final_state(shared, &pr) {
                Ok(FinalState::Merged) => outcome.merged += 1,
                Ok(FinalState::Replaced) => outcome.replaced += 1,
                Ok(FinalState::Closed) => outcome.closed += 1,
                Ok(FinalState::Escalated) => outcome.escalated += 1,
                Err((invariant, detail)) => shared.violated(invariant, detail),
            }
        }
        for key in final_checks::left_behind(shared).await {
            shared.violated(Invariant::LeftBehind, key);
        }
        let fakes = locked(&shared.fakes);
        for request in fakes.unknown_requests() {
            shared.violated(Invariant::UnknownRequest, request.clone());
        }
        let mut checker = locked(&shared.checker);
        outcome.read(&checker, shared.config.seed);
        outcome.dead_letters = locked(&shared.queues).dead_letters() as u64;
        outcome.sweeps = self.cluster.sweeps.load(Ordering::Relaxed);
        outcome.killed = self.cluster.crashes.load(Ordering::Relaxed);
        outcome.github_requests = fakes.requests();
        outcome.idle_ticks = self.idle_ticks;
        outcome.store_requests = shared.store_requests.load(Ordering::Relaxed);
        for violation in &checker.violations {
            shared.trace(|| {
                format!("VIOLATED {}: {} (at {})", violation.invariant.name(), violation.detail, violation.at)
            });
        }
        let trace = std::mem::take(&mut *locked(&shared.trace));
        let calls = locked(&shared.calls).clone();
        SimResult { outcome, trace, log: checker.log.take().unwrap_or_default(), calls }
    }
}

fn minute_after(at: Timestamp) -> Timestamp {
    saturating_after(domain::breaker::minute_of(at), TICK)
}
