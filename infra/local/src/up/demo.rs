//! The demo: the pretended world behind real HTTP, in a time that runs faster than the machine's. It begins in the middle of
//! things, as an organisation looks on the day somebody installs Suture, and goes on for as long as it is let.
//!
//! The world itself is in memory. After a restart another one begins: its time and its numbers go on where the former one's
//! ended, and what was open there is closed, which Suture is told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::id::RepoName;
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock;
use platform::lookup;
use platform::store::{Store, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use world::{Fault, Faults, Gone, NewPull, Pr, Protection, Repo, Reports, Serving, Settings, Timing, World};

use super::StartError;
use super::data_dir::DataDir;
use super::scaled_clock::ScaledClock;

/// What the demo's Suture is configured with: it acts, and forgets a little sooner than others, since its days are short.
pub(super) const CONFIG: &str = "mode = \"act\"\n[retention]\nevents_days = 7\nruns_days = 2\n";
/// The file that remembers the world that was.
const FILE: &str = "demo.json";
/// How much of the world's time there was before Suture came.
const BEFORE: SignedDuration = SignedDuration::from_mins(150);
/// CodeGenie opens a pull request this often.
const EVERY: SignedDuration = SignedDuration::from_mins(4);
/// Every so many pull requests, one needs a person.
const PERSON_EVERY: usize = 11;
/// People see to what needs them after this long.
const PEOPLE_AFTER: SignedDuration = SignedDuration::from_hours(5);
/// And to whatever else is left open after this long.
const PATIENCE: SignedDuration = SignedDuration::from_hours(30);
/// A killed process may have used this many numbers since it last wrote them down.
const NUMBERS_UNSAVED: u64 = 20;
/// And so much of the machine's time may have passed.
const TIME_UNSAVED: f64 = 3.0;
/// Webhooks on their way at the same time.
const POSTS: usize = 16;

/// What happened before Suture came: minutes before, which repository, and what goes wrong. One for each remedy there is.
const PRELUDE: [(i64, usize, Option<Fault>); 14] = [
    (145, 0, Some(Fault::BuildHung)),
    (100, 1, Some(Fault::RealTestFailure)),
    (95, 0, Some(Fault::AgentLost)),
    (90, 0, Some(Fault::PolicyAsleep)),
    (80, 1, Some(Fault::Conflict)),
    (70, 2, Some(Fault::BaseMoves)),
    (60, 0, Some(Fault::ApproverAsleep)),
    (55, 1, Some(Fault::SodTiming)),
    (45, 0, Some(Fault::AutomergeAsleep)),
    (30, 1, Some(Fault::JenkinsDeaf)),
    (25, 1, Some(Fault::ReportLost)),
    (12, 0, None),
    (8, 1, None),
    (3, 0, None),
];

/// In which repository CodeGenie opens the next one, in turn. The one that wants every head up to date gets few: there, each
/// merge sends all others back to their builds.
const TURNS: [usize; 6] = [0, 1, 0, 1, 0, 2];

/// What really needs a person, in turn.
const NEEDS_PERSON: [Fault; 3] = [Fault::RealTestFailure, Fault::PolicyMisconfigured, Fault::ConflictAgain];

/// What is remembered of a world.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct SavedDemo {
    /// How many worlds there have been.
    generation: u64,
    /// The highest number of a pull request.
    last_number: u64,
    /// The time there.
    now: Timestamp,
    speed: f64,
}

/// The world, served.
pub(super) struct Demo {
    pub(super) world: Arc<Mutex<World>>,
    pub(super) clock: Arc<ScaledClock>,
    pub(super) serving: Serving,
    generation: u64,
    speed: f64,
}

fn look(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Demo {
    /// Begins a world, after the one this place remembers.
    pub(super) async fn begin(data_dir: &DataDir, seed: u64, speed: f64) -> Result<Self, StartError> {
        let before: Option<SavedDemo> = data_dir.json(FILE)?;
        let now = Timestamp::now();
        let start = before.map_or(now, |before| {
            let unsaved = SignedDuration::try_from_secs_f64(TIME_UNSAVED * before.speed).unwrap_or_default();
            // Time never goes back, whatever the machine's clock says.
            before.now.saturating_add(unsaved).unwrap_or(before.now).max(now)
        });
        let generation = before.map_or(1, |before| before.generation + 1);
        let used = before.map_or(0, |before| before.last_number + NUMBERS_UNSAVED);
        let settings = settings(start.saturating_sub(BEFORE).unwrap_or(start), used);
        let mut world = World::new(seed.wrapping_add(generation.wrapping_mul(0x9e37_79b9_7f4a_7c15)), settings);
        prelude(&mut world, start);
        let clock = Arc::new(ScaledClock::new(start, speed));
        let world = Arc::new(Mutex::new(world));
        let time = Arc::clone(&clock);
        let serving = world::serve_following(Arc::clone(&world), move || time.now()).await;
        let serving =
            serving.map_err(|error| StartError(format!("The pretended world finds no free port: {error}.")))?;
        let demo = Self { world, clock, serving, generation, speed };
        demo.remember(data_dir)?;
        Ok(demo)
    }

    /// Its repositories.
    pub(super) fn repos(&self) -> Vec<RepoName> {
        look(&self.world).settings().repos.iter().filter_map(|repo| repo.name.parse().ok()).collect()
    }

    /// Whether there was a world before this one.
    pub(super) fn is_continued(&self) -> bool {
        self.generation > 1
    }

    /// Writes down what the next world must know.
    pub(super) fn remember(&self, data_dir: &DataDir) -> Result<(), StartError> {
        let remembered = SavedDemo {
            generation: self.generation,
            last_number: look(&self.world).last_number(),
            now: self.clock.now(),
            speed: self.speed,
        };
        data_dir.keep_json(FILE, &remembered)
    }

    /// What Suture knows as open, and this world knows nothing of, is closed. Answers how many those were.
    pub(super) async fn close_former<S: Store>(&self, store: &S) -> Result<usize, StoreError> {
        let now = self.clock.now();
        let mut gone = Vec::new();
        for repo in self.repos() {
            let mut after = None;
            loop {
                let listing = lookup::pull_requests(store, &repo, None, after, 200, now).await?;
                let open: Vec<_> = listing.entries.iter().filter(|one| !one.state.is_terminal()).collect();
                let ids: Vec<_> = open.iter().map(|one| one.pr.clone()).collect();
                gone.extend(lookup::records(store, &ids, now).await?);
                after = listing.next;
                if after.is_none() {
                    break;
                }
            }
        }
        let mut world = look(&self.world);
        for record in &gone {
            let pr = Pr { repo: record.id.repo.to_string(), number: record.id.number };
            let (head_ref, head) = (record.branch.clone(), record.head_sha.to_string());
            world.tell_closed(&Gone { pr, node_id: record.node_id.clone(), head_ref, head });
        }
        Ok(gone.len())
    }

    /// The world's life: time passes, webhooks are posted to this address, pull requests are opened, people see to what
    /// needs them.
    pub(super) async fn live(self: Arc<Self>, address: String) {
        let posts = Arc::new(Semaphore::new(POSTS));
        let mut next_opening = self.clock.now();
        let mut next_round = self.clock.now();
        let mut opened = 0;
        loop {
            let now = self.clock.now();
            let deliveries = {
                let mut world = look(&self.world);
                world.advance_to(now);
                if now >= next_opening {
                    open_one(&mut world, opened);
                    opened += 1;
                    next_opening = later(now, EVERY);
                }
                if now >= next_round {
                    people(&mut world, now);
                    next_round = later(now, SignedDuration::from_mins(5));
                }
                world.take_webhooks()
            };
            for delivery in deliveries {
                let Ok(permit) = Arc::clone(&posts).acquire_owned().await else { return };
                let (world, address) = (Arc::clone(&self.world), address.clone());
                tokio::spawn(async move {
                    let code = world::post(&address, &delivery).await;
                    look(&world).webhook_answered(&delivery, code);
                    drop(permit);
                });
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Three repositories that differ in what they require and how Jenkins reports.
fn settings(start: Timestamp, numbers_used_before: u64) -> Settings {
    let payments = Repo::new("acme/payments");
    let shop = Repo { protection: Protection::Ruleset, reports: Reports::CheckRun, ..Repo::new("acme/shop") };
    let ledger = Repo { strict: true, ..Repo::new("acme/ledger") };
    // Bots take their time: what they do one after the other is to be seen one after the other.
    let timing = Timing { bot_ms: (20_000, 90_000), policy_ms: (20_000, 60_000), ..Timing::default() };
    Settings {
        start,
        repos: vec![payments, shop, ledger],
        numbers_used_before,
        faults: Faults::none(),
        timing,
        jenkins_notifies: true,
        ..Settings::default()
    }
}

/// What happened before Suture came, and so without it.
fn prelude(world: &mut World, start: Timestamp) {
    let repos: Vec<String> = world.settings().repos.iter().map(|repo| repo.name.clone()).collect();
    for (minutes, repo, fault) in PRELUDE {
        world.advance_to(start.saturating_sub(SignedDuration::from_mins(minutes)).unwrap_or(start));
        let pr = world.open_pr(NewPull { repo: repos[repo].clone(), ..NewPull::default() });
        if let Some(fault) = fault {
            world.force(fault, &pr);
        }
    }
    world.advance_to(start);
    // Whoever got them, it was not Suture.
    drop(world.take_webhooks());
    let by_chance = Fault::ALL.into_iter().filter(|fault| fault.needs_a_person().is_none());
    world.set_faults(Faults { lives: 0.4, webhooks: 0.04, requests: 0.01, ..Faults::only(by_chance) });
}

/// CodeGenie opens a pull request. Every so often one that a person will have to see to; the others are left to chance.
fn open_one(world: &mut World, turn: usize) {
    let repos = &world.settings().repos;
    let repo = repos[TURNS[turn % TURNS.len()]].name.clone();
    let pr = world.open_pr(NewPull { repo, ..NewPull::default() });
    if turn % PERSON_EVERY == PERSON_EVERY - 1 {
        world.force(NEEDS_PERSON[turn / PERSON_EVERY % NEEDS_PERSON.len()], &pr);
    }
}

/// People see to what has waited for them long enough.
fn people(world: &mut World, now: Timestamp) {
    let open: Vec<(Pr, Timestamp)> =
        world.pulls().filter(|(_, pull)| pull.is_open()).map(|(pr, pull)| (pr, pull.created_at)).collect();
    for (pr, created_at) in open {
        let struck = world.struck(&pr).iter().rfind(|(_, fault)| fault.needs_a_person().is_some()).copied();
        if let Some((_, fault)) = struck.filter(|(at, _)| now.duration_since(*at) > PEOPLE_AFTER) {
            if fault == Fault::PolicyMisconfigured {
                world.person_repairs_policy(&pr);
            } else if fault == Fault::ConflictAgain {
                drop(world.person_resolves(&pr, "danny"));
            } else {
                drop(world.person_pushes(&pr, "danny"));
            }
        } else if now.duration_since(created_at) > PATIENCE {
            world.person_closes(&pr, "maria");
        }
    }
}
