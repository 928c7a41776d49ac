//! The demo: fake GitHub, Jenkins and bots behind real HTTP, on a scaled clock. It starts with pull requests that are stuck
//! already, as on the day somebody installs Suture, and goes on for as long as it runs.
//!
//! The fakes are in memory. After a restart new ones begin: their time and numbers go on where the former ones ended, and what
//! was open there is closed, with a webhook.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::id::RepoName;
use domain::time::saturating_after;
use fakes::{
    EarlierPull, FakePrId, FakeServers, FakeSettings, FakeTiming, Fakes, Fault, FaultRates, JenkinsReporting,
    NewPullRequest, ProtectionSource, RepoSettings,
};
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock;
use platform::queries;
use platform::store::{Store, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::StartError;
use super::data_dir::DataDir;
use super::scaled_clock::ScaledClock;

/// It acts, and keeps its log for a shorter time than usual, since its days are short.
pub(super) const CONFIG: &str = "mode = \"act\"\n[retention]\nevents_days = 7\nruns_days = 2\n";
const FILE: &str = "demo.json";
/// How much demo time passed before Suture was installed.
const PRELUDE_FOR: SignedDuration = SignedDuration::from_mins(150);
/// CodeGenie opens a pull request this often.
const OPEN_EVERY: SignedDuration = SignedDuration::from_mins(4);
/// Every so many pull requests, one needs a person.
const PERSON_EVERY: usize = 11;
/// People repair what needs them after this long.
const REPAIR_AFTER: SignedDuration = SignedDuration::from_hours(5);
/// And close whatever else is open after this long.
const CLOSE_AFTER: SignedDuration = SignedDuration::from_hours(30);
/// A killed process may have used this many numbers since it last saved.
const NUMBERS_UNSAVED: u64 = 20;
/// And so many seconds of real time may have passed.
const SECS_UNSAVED: f64 = 3.0;
/// Webhooks under way at the same time.
const MAX_POSTS: usize = 16;

/// What happened before Suture was installed: minutes before, repository, and fault. One for each remedy there is.
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

/// In which repository CodeGenie opens the next one, in turn. The one that requires up-to-date heads gets few: there, each
/// merge sends all others back to their builds.
const TURNS: [usize; 6] = [0, 1, 0, 1, 0, 2];

/// Faults that need a person, in turn.
const NEEDS_PERSON: [Fault; 3] = [Fault::RealTestFailure, Fault::PolicyMisconfigured, Fault::ConflictAgain];

/// What the next demo continues from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct SavedDemo {
    generation: u64,
    last_number: u64,
    now: Timestamp,
    speed: f64,
}

pub(super) struct Demo {
    pub(super) world: Arc<Mutex<Fakes>>,
    pub(super) clock: Arc<ScaledClock>,
    pub(super) serving: FakeServers,
    generation: u64,
    speed: f64,
}

fn locked(world: &Mutex<Fakes>) -> MutexGuard<'_, Fakes> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Demo {
    /// Continues from what the data directory has saved.
    pub(super) async fn start(data_dir: &DataDir, seed: u64, speed: f64) -> Result<Self, StartError> {
        let before: Option<SavedDemo> = data_dir.read_json(FILE)?;
        let now = Timestamp::now();
        let start = before.map_or(now, |before| {
            let unsaved = SignedDuration::try_from_secs_f64(SECS_UNSAVED * before.speed).unwrap_or_default();
            // Time never goes back, whatever the machine's clock says.
            before.now.saturating_add(unsaved).unwrap_or(before.now).max(now)
        });
        let generation = before.map_or(1, |before| before.generation + 1);
        let used = before.map_or(0, |before| before.last_number + NUMBERS_UNSAVED);
        let settings = settings(start.saturating_sub(PRELUDE_FOR).unwrap_or(start), used);
        let mut world = Fakes::new(seed.wrapping_add(generation.wrapping_mul(0x9e37_79b9_7f4a_7c15)), settings);
        prelude(&mut world, start);
        let clock = Arc::new(ScaledClock::new(start, speed));
        let world = Arc::new(Mutex::new(world));
        let time = Arc::clone(&clock);
        let serving = fakes::serve_following(Arc::clone(&world), move || time.now()).await;
        let serving = serving.map_err(|error| StartError(format!("The fake GitHub finds no free port: {error}.")))?;
        let demo = Self { world, clock, serving, generation, speed };
        demo.save(data_dir)?;
        Ok(demo)
    }

    pub(super) fn repos(&self) -> Vec<RepoName> {
        locked(&self.world).settings().repos.iter().filter_map(|repo| repo.name.parse().ok()).collect()
    }

    pub(super) fn is_continued(&self) -> bool {
        self.generation > 1
    }

    pub(super) fn save(&self, data_dir: &DataDir) -> Result<(), StartError> {
        let remembered = SavedDemo {
            generation: self.generation,
            last_number: locked(&self.world).last_number(),
            now: self.clock.now(),
            speed: self.speed,
        };
        data_dir.write_json(FILE, &remembered)
    }

    /// Closes what Suture knows as open, and these fakes do not know.
    pub(super) async fn close_former<S: Store>(&self, store: &S) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut gone = Vec::new();
        for repo in self.repos() {
            let mut after = None;
            loop {
                let listing = queries::pull_requests(store, &repo, None, after, 200, now).await?;
                let open: Vec<_> = listing.entries.iter().filter(|one| !one.state.is_terminal()).collect();
                let ids: Vec<_> = open.iter().map(|one| one.pr.clone()).collect();
                gone.extend(queries::records(store, &ids, now).await?);
                after = listing.next;
                if after.is_none() {
                    break;
                }
            }
        }
        let mut world = locked(&self.world);
        for record in &gone {
            let pr = FakePrId { repo: record.id.repo.to_string(), number: record.id.number };
            let (head_ref, head) = (record.branch.clone(), record.head_sha.to_string());
            world.tell_closed(&EarlierPull { pr, node_id: record.node_id.clone(), head_ref, head });
        }
        Ok(())
    }

    /// Advances the fakes, posts their webhooks to this address, opens pull requests, and lets people repair.
    pub(super) async fn run(self: Arc<Self>, address: String) {
        let posts = Arc::new(Semaphore::new(MAX_POSTS));
        let mut next_opening = self.clock.now();
        let mut next_round = self.clock.now();
        let mut opened = 0;
        loop {
            let now = self.clock.now();
            let deliveries = {
                let mut world = locked(&self.world);
                world.advance_to(now);
                if now >= next_opening {
                    open_one(&mut world, opened);
                    opened += 1;
                    next_opening = saturating_after(now, OPEN_EVERY);
                }
                if now >= next_round {
                    repair(&mut world, now);
                    next_round = saturating_after(now, SignedDuration::from_mins(5));
                }
                world.take_webhooks()
            };
            for delivery in deliveries {
                let Ok(permit) = Arc::clone(&posts).acquire_owned().await else { return };
                let (world, address) = (Arc::clone(&self.world), address.clone());
                tokio::spawn(async move {
                    let code = fakes::post(&address, &delivery).await;
                    locked(&world).webhook_answered(&delivery, code);
                    drop(permit);
                });
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Three repositories that differ in what they require and in how Jenkins reports.
fn settings(start: Timestamp, numbers_used_before: u64) -> FakeSettings {
    let payments = RepoSettings::new("acme/payments");
    let shop = RepoSettings {
        protection: ProtectionSource::Ruleset,
        reports: JenkinsReporting::CheckRun,
        ..RepoSettings::new("acme/shop")
    };
    let ledger = RepoSettings { strict: true, ..RepoSettings::new("acme/ledger") };
    // Bots are slow enough that one can see what they do one after the other.
    let timing = FakeTiming { bot_ms: (20_000, 90_000), policy_ms: (20_000, 60_000), ..FakeTiming::default() };
    FakeSettings {
        start,
        repos: vec![payments, shop, ledger],
        numbers_used_before,
        faults: FaultRates::none(),
        timing,
        jenkins_notifies: true,
        ..FakeSettings::default()
    }
}

fn prelude(world: &mut Fakes, start: Timestamp) {
    let repos: Vec<String> = world.settings().repos.iter().map(|repo| repo.name.clone()).collect();
    for (minutes, repo, fault) in PRELUDE {
        world.advance_to(start.saturating_sub(SignedDuration::from_mins(minutes)).unwrap_or(start));
        let pr = world.open_pr(NewPullRequest { repo: repos[repo].clone(), ..NewPullRequest::default() });
        if let Some(fault) = fault {
            world.force(fault, &pr);
        }
    }
    world.advance_to(start);
    // Suture was not there to receive them.
    drop(world.take_webhooks());
    let by_chance = Fault::ALL.into_iter().filter(|fault| fault.needs_a_person().is_none());
    world.set_faults(FaultRates { lives: 0.4, webhooks: 0.04, requests: 0.01, ..FaultRates::only(by_chance) });
}

/// CodeGenie opens a pull request. Every so often one that needs a person; the faults of the others are random.
fn open_one(world: &mut Fakes, turn: usize) {
    let repos = &world.settings().repos;
    let repo = repos[TURNS[turn % TURNS.len()]].name.clone();
    let pr = world.open_pr(NewPullRequest { repo, ..NewPullRequest::default() });
    if turn % PERSON_EVERY == PERSON_EVERY - 1 {
        world.force(NEEDS_PERSON[turn / PERSON_EVERY % NEEDS_PERSON.len()], &pr);
    }
}

fn repair(world: &mut Fakes, now: Timestamp) {
    let open: Vec<(FakePrId, Timestamp)> =
        world.pulls().filter(|(_, pull)| pull.is_open()).map(|(pr, pull)| (pr, pull.created_at)).collect();
    for (pr, created_at) in open {
        let struck = world.struck(&pr).iter().rfind(|(_, fault)| fault.needs_a_person().is_some()).copied();
        if let Some((_, fault)) = struck.filter(|(at, _)| now.duration_since(*at) > REPAIR_AFTER) {
            if fault == Fault::PolicyMisconfigured {
                world.person_repairs_policy(&pr);
            } else if fault == Fault::ConflictAgain {
                drop(world.person_resolves(&pr, "danny"));
            } else {
                drop(world.person_pushes(&pr, "danny"));
            }
        } else if now.duration_since(created_at) > CLOSE_AFTER {
            world.person_closes(&pr, "maria");
        }
    }
}
