//! One world from its first pull request to its last: time passes, and everybody does what is theirs to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use domain::event::Event;
use domain::policy::{Policies, Wake};
use fakes::{Fakes, Listening, Pr, Protection, Repo, Reports, Settings};
use futures_util::future::select;
use jiff::{SignedDuration, Timestamp};
use platform::store::Store;
use platform::store::memory::MemoryStore;
use serde_json::{Value, json};

use super::border::{Function, Sabotage, Scene, Stopped, locked};
use super::chance::Chance;
use super::desk::Button;
use super::ending::{self, End};
use super::faults::{Inside, Mishaps};
use super::people::{Act, People};
use super::queue::later;
use super::report::Outcome;
use super::stage::{self, Stage};
use super::watch::Wrong;

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
pub struct Plot {
    /// Everything follows from it.
    pub seed: u64,
    /// Pull requests that CodeGenie opens by itself.
    pub prs: u64,
    /// What may go wrong.
    pub mishaps: Mishaps,
    /// The configuration; it acts.
    pub policies: Policies,
    /// Whether the history is written down.
    pub traced: bool,
    /// Whether the event log is kept.
    pub keeps_log: bool,
    /// What is broken on purpose.
    pub sabotage: Option<Sabotage>,
    /// Where a process is stopped.
    pub stop: Option<Stopped>,
    /// Buttons that somebody presses for the first pull request, so long after the beginning.
    pub presses: Vec<(SignedDuration, Button)>,
}

impl Plot {
    /// The defaults, acting.
    ///
    /// # Errors
    /// If the defaults cannot be read.
    pub fn new(seed: u64, prs: u64, mishaps: Mishaps) -> Result<Self, String> {
        let policies = read(configuration(seed))?;
        let (traced, keeps_log, sabotage, stop, presses) = (false, false, None, None, Vec::new());
        Ok(Self { seed, prs, mishaps, policies, traced, keeps_log, sabotage, stop, presses })
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Played {
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
pub fn play(plot: &Plot) -> Result<Played, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(played(plot))
}

async fn played(plot: &Plot) -> Result<Played, String> {
    let (settings, every) = setting(plot);
    let mut world = Fakes::new(plot.seed, settings.clone());
    world.schedule_prs(plot.prs, every);
    let prs = i32::try_from(plot.prs).unwrap_or(i32::MAX);
    let last_opening = later(world.now(), every.saturating_mul(prs));
    let mut people = People::new(plot.seed);
    for (after, button) in &plot.presses {
        let first = Pr { repo: settings.repos[0].name.clone(), number: 1 };
        people.will_press(later(world.now(), *after), first, *button);
    }
    let scene = Scene::new(plot, world, MemoryStore::new());
    let stage = Stage::new(scene, &settings, plot.policies.clone())?;
    let mut play = Play {
        people,
        pressed: 0,
        stage,
        last_opening,
        give_up_at: later(last_opening, PATIENCE.saturating_add(PATIENCE_EACH.saturating_mul(prs))),
        next_tick: Timestamp::MIN,
        idling: Chance::new(plot.seed, 5),
        idle: 0,
        doubled: Vec::new(),
        known: 0,
        unsettled: BTreeSet::new(),
        shown: 0,
        called: 0,
        wishes: 0,
    };
    play.run().await;
    Ok(play.outcome(plot).await)
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
    let mut chance = Chance::new(seed, 4);
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
    let chosen = changes.into_iter().filter(|(share, _)| chance.happens(*share)).map(|(_, line)| line);
    std::iter::once("mode = \"act\"").chain(chosen).collect::<Vec<_>>().join("\n")
}

/// A world of its own kind: how its repositories are protected, how its bots and its Jenkins report.
fn setting(plot: &Plot) -> (Settings, SignedDuration) {
    let mut chance = Chance::new(plot.seed, 3);
    let mut settings = Settings { faults: plot.mishaps.world.clone(), ..Settings::default() };
    let names = ["acme/payments", "acme/shop"];
    let count = if chance.happens(300) { 2 } else { 1 };
    settings.repos = names[..count].iter().map(|name| repo(name, &mut chance)).collect();
    settings.jenkins_notifies = chance.happens(200);
    let reports = chance.happens(200);
    settings.listening = settings.listening.map(|listening| Listening { reports, ..listening });
    let wake = &plot.policies.base().wake;
    let ways = [(wake.policy_bot, 0), (wake.approver_bot, 1), (wake.automerge_bot, 2)];
    for (way, bot) in ways {
        settings.listening[bot].labels |= way == Wake::Label;
        settings.listening[bot].comments |= way == Wake::Comment;
    }
    let every = SignedDuration::from_secs(i64::try_from(chance.between(20, 400)).unwrap_or(60));
    (settings, every)
}

fn repo(name: &str, chance: &mut Chance) -> Repo {
    let mut repo = Repo::new(name);
    repo.strict = chance.happens(300);
    repo.merge_queue = chance.happens(150);
    repo.dismiss_stale_reviews = chance.happens(700);
    repo.protection = match chance.below(10) {
        0 => Protection::None,
        1..=3 => Protection::Ruleset,
        _ => Protection::Classic,
    };
    repo.reports = match chance.below(4) {
        0 => Reports::CheckRun,
        1 => Reports::Both,
        _ => Reports::Status,
    };
    repo
}

struct Play<S: Store + 'static> {
    stage: Arc<Stage<S>>,
    people: People,
    /// Buttons that were pressed.
    pressed: u64,
    last_opening: Timestamp,
    give_up_at: Timestamp,
    next_tick: Timestamp,
    /// Which of the idle ticks are played all the same, and how many were not.
    idling: Chance,
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
    wishes: u64,
}

impl<S: Store + 'static> Play<S> {
    async fn run(&mut self) {
        self.next_tick = minute_after(self.scene().now());
        loop {
            let now = self.scene().now();
            let ticked = self.step(now);
            if now >= self.give_up_at || (ticked && self.is_over(now).await) {
                return;
            }
            let next = self.next_at().max(later(now, SignedDuration::from_millis(1)));
            let until = self.scene().instant(next);
            let scene = Arc::clone(&self.stage.scene);
            select(Box::pin(tokio::time::sleep_until(until)), Box::pin(scene.changed.notified())).await;
        }
    }

    fn scene(&self) -> &Scene<S> {
        &self.stage.scene
    }

    /// Everything whose time has come. Answers whether the minute was full.
    fn step(&mut self, now: Timestamp) -> bool {
        self.act(now);
        let deliveries = {
            let mut world = self.scene().world();
            world.take_webhooks()
        };
        for delivery in deliveries {
            tokio::spawn(Arc::clone(&self.stage).hear(delivery));
        }
        self.meet_new_ones(now);
        self.stage.work();
        let wishes = std::mem::take(&mut *locked(&self.scene().wishes));
        for detail in wishes {
            self.wishes += 1;
            let detail = serde_json::from_str(&detail).unwrap_or_default();
            let wish = stage::wish(&format!("bus-{}", self.wishes), detail);
            tokio::spawn(Arc::clone(&self.stage).reconcile(wish));
        }
        self.tick(now)
    }

    fn tick(&mut self, now: Timestamp) -> bool {
        let (come, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.doubled).into_iter().partition(|(at, _)| *at <= now);
        self.doubled = wait;
        for (_, event) in come {
            tokio::spawn(Arc::clone(&self.stage).reconcile(event));
        }
        if now < self.next_tick {
            return false;
        }
        let event = stage::tick(self.next_tick);
        self.next_tick = minute_after(now);
        let ahead = if self.scene().mishaps.has(Inside::ClockSkewed) { AHEAD } else { SignedDuration::ZERO };
        if self.scene().is_idle(later(now, ahead)) && self.idling.below(IDLE_SWEEPS) > 0 {
            self.idle += 1;
            return true;
        }
        let scene = self.scene();
        if scene.happens(Inside::TickLost, 50) {
            scene.trace(|| "a tick of the schedule is lost".to_owned());
            return true;
        }
        if scene.happens(Inside::TickDoubled, 50) {
            let secs = i64::try_from(locked(&scene.chance).between(0, 90)).unwrap_or(0);
            let again = later(now, SignedDuration::from_secs(secs));
            scene.trace(|| format!("a tick of the schedule will come again after {secs} s"));
            self.doubled.push((again, event.clone()));
        }
        tokio::spawn(Arc::clone(&self.stage).reconcile(event));
        true
    }

    /// People do what they have planned.
    fn act(&mut self, now: Timestamp) {
        if !self.scene().mishaps.has(Inside::People) && self.people.is_done() {
            return;
        }
        if self.scene().mishaps.has(Inside::People) {
            self.hear_calls(now);
        }
        for act in self.people.due(now) {
            self.scene().trace(|| format!("people: {act:?}"));
            if let Act::Sweeps(pr) = &act {
                self.wishes += 1;
                let detail = json!({"repo": pr.repo, "pr_number": pr.number});
                let wish = stage::wish(&format!("person-{}", self.wishes), detail);
                tokio::spawn(Arc::clone(&self.stage).reconcile(wish));
            }
            if let Act::Presses(pr, button) = &act {
                self.pressed += 1;
                self.stage.pressing.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(Arc::clone(&self.stage).press(pr.clone(), *button, self.pressed));
            }
            let said = act.happen(&mut self.scene().world());
            self.people.wait_for(&act, said, now);
        }
        let stage = Arc::clone(&self.stage);
        let unheard = self.people.unheard(&stage.scene.world(), now);
        for act in unheard {
            self.people.again(act, now);
        }
    }

    /// Who was called may come.
    fn hear_calls(&mut self, now: Timestamp) {
        let calls: Vec<Pr> = {
            let watch = locked(&self.scene().watch);
            watch.escalations[self.called..].iter().map(|one| super::watch::outside(&one.pr)).collect()
        };
        self.called += calls.len();
        for pr in calls {
            self.people.called(&pr, now);
        }
    }

    /// Pull requests that were not there before, and what the world has done.
    fn meet_new_ones(&mut self, now: Timestamp) {
        let stage = Arc::clone(&self.stage);
        let world = locked(&stage.scene.world);
        for pr in world.pulls_after(self.known) {
            self.known += 1;
            if stage.scene.mishaps.has(Inside::People) {
                self.people.hear_of(&pr, now);
            }
            self.unsettled.insert(pr);
        }
        if stage.scene.traced.is_some() {
            let effects = &world.audit()[self.shown..];
            for effect in effects {
                let pr = effect.pr.as_ref().map(ToString::to_string).unwrap_or_default();
                let detail = domain::event::cut(&effect.detail.replace('\n', " "), 80);
                stage.scene.trace(|| format!("world: {} {:?} {pr} {detail}", effect.by, effect.action));
            }
            self.shown += effects.len();
        }
    }

    fn next_at(&self) -> Timestamp {
        let world = locked(&self.scene().world).next_event_at();
        let queue = locked(&self.scene().queue).next_at();
        let doubled = self.doubled.iter().map(|(at, _)| *at).min();
        [world, queue, doubled, self.people.next_at()]
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
            if ending::end_of(self.scene(), pr).is_err() {
                return false;
            }
            self.unsettled.pop_first();
        }
        if now < self.last_opening || !self.people.is_done() {
            return false;
        }
        let pressing = self.stage.pressing.load(Ordering::Relaxed);
        let idle =
            pressing == 0 && self.stage.running.load(Ordering::Relaxed) <= 1 && locked(&self.scene().queue).len() == 0;
        if !idle || !ending::left_behind(self.scene()).await.iter().all(|key| key.starts_with("RUN#sweep")) {
            return false;
        }
        // Somebody may have come back: all of them once more.
        let all: Vec<Pr> = locked(&self.scene().world).pulls().map(|(pr, _)| pr).collect();
        self.unsettled = all.into_iter().filter(|pr| ending::end_of(self.scene(), pr).is_err()).collect();
        self.unsettled.is_empty()
    }

    async fn outcome(self, plot: &Plot) -> Played {
        let scene = Arc::clone(&self.stage.scene);
        let now = scene.now();
        let mut outcome = Outcome { seeds: 1, ..Outcome::default() };
        let all: Vec<Pr> = locked(&scene.world).pulls().map(|(pr, _)| pr).collect();
        for pr in &all {
            outcome.prs += 1;
            match ending::end_of(&scene, pr) {
                Ok(End::Merged) => outcome.merged += 1,
                Ok(End::Replaced) => outcome.replaced += 1,
                Ok(End::Closed) => outcome.closed += 1,
                Ok(End::Escalated) => outcome.escalated += 1,
                Err(why) => ending::note(&mut locked(&scene.watch), &why, pr, now),
            }
        }
        let left = ending::left_behind(&scene).await;
        let mut watch = locked(&scene.watch);
        for key in left.iter().filter(|key| !key.starts_with("RUN#sweep")) {
            watch.wrong(Wrong::LeftBehind, now, key.clone());
        }
        let world = locked(&scene.world);
        for request in world.unknown_requests() {
            watch.wrong(Wrong::UnknownRequest, now, request.clone());
        }
        outcome.take(&watch, plot.seed);
        outcome.dead_letters = locked(&scene.queue).dead().len() as u64;
        outcome.sweeps = self.stage.swept.load(Ordering::Relaxed);
        outcome.killed = self.stage.killed.load(Ordering::Relaxed);
        outcome.github_requests = world.requests();
        outcome.idle_ticks = self.idle;
        outcome.store_requests = scene.asked.load(Ordering::Relaxed);
        for violation in &watch.violations {
            scene.trace(|| format!("WRONG {}: {} (at {})", violation.what.name(), violation.detail, violation.at));
        }
        let trace = scene.traced.as_ref().map(|traced| std::mem::take(&mut *locked(traced))).unwrap_or_default();
        let calls = locked(&scene.calls).clone();
        Played { outcome, trace, log: watch.log.take().unwrap_or_default(), calls }
    }
}

fn minute_after(at: Timestamp) -> Timestamp {
    later(domain::breaker::minute_of(at), MINUTE)
}
