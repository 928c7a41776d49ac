//! The demo: fake GitHub, Jenkins and bots behind real HTTP, on a scaled clock. It starts with pull requests that are
//! already stuck, as on the day Suture is installed, and opens new ones while it runs.
//!
//! The fakes are in memory. A restart creates new ones: their time and pull request numbers continue after those of the
//! previous process, and the pull requests left open by it are closed with a webhook.

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
use platform::store::queries;
use platform::store::{Store, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::StartError;
use super::data_dir::DataDir;
use super::scaled_clock::ScaledClock;

/// Mode act, and a short retention because a simulated day takes only minutes.
pub(super) const CONFIG: &str = "mode = \"act\"\n[retention]\nevents_days = 7\nruns_days = 2\n";
const FILE: &str = "demo.json";
/// Simulated time between the start of the fakes and the installation of Suture.
const HISTORY_LENGTH: SignedDuration = SignedDuration::from_mins(150);
/// CodeGenie opens a pull request this often.
const OPEN_EVERY: SignedDuration = SignedDuration::from_mins(4);
/// One of this many pull requests needs a person.
const PERSON_EVERY: usize = 11;
/// The simulated people repair a pull request that needs them after this long.
const REPAIR_AFTER: SignedDuration = SignedDuration::from_hours(5);
/// They close any other pull request that is open for this long.
const CLOSE_AFTER: SignedDuration = SignedDuration::from_hours(30);
/// Upper bound on the pull request numbers that a killed process used since its last save.
const NUMBERS_UNSAVED: u64 = 20;
/// Upper bound on the real seconds between the last save and the end of a killed process.
const SECS_UNSAVED: f64 = 3.0;
/// Concurrent webhook deliveries.
const MAX_POSTS: usize = 16;

/// Pull requests opened before Suture was installed: minutes before, repository index, fault. Covers every remedy.
const HISTORY: [(i64, usize, Option<Fault>); 14] = [
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

/// Repository index of each new pull request, round-robin. The repository that requires up-to-date branches gets few:
/// there, each merge forces all others to rebuild.
const REPO_ORDER: [usize; 6] = [0, 1, 0, 1, 0, 2];

/// Faults that need a person, round-robin.
const NEEDS_PERSON: [Fault; 3] = [Fault::RealTestFailure, Fault::PolicyMisconfigured, Fault::ConflictAgain];

/// State that the next process continues from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct SavedDemo {
    generation: u64,
    last_number: u64,
    now: Timestamp,
    speed: f64,
}

pub(super) struct Demo {
    pub(super) fakes: Arc<Mutex<Fakes>>,
    pub(super) clock: Arc<ScaledClock>,
    pub(super) serving: FakeServers,
    generation: u64,
    speed: f64,
}

fn locked(fakes: &Mutex<Fakes>) -> MutexGuard<'_, Fakes> {
    fakes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Demo {
    /// Continues from what the data directory has saved.
    pub(super) async fn start(data_dir: &DataDir, seed: u64, speed: f64) -> Result<Self, StartError> {
        let saved: Option<SavedDemo> = data_dir.read_json(FILE)?;
        let now = Timestamp::now();
        let start = saved.map_or(now, |saved| {
            let unsaved = SignedDuration::try_from_secs_f64(SECS_UNSAVED * saved.speed).unwrap_or_default();
            // The demo's time must never go back, even if the machine's clock does.
            saved.now.saturating_add(unsaved).unwrap_or(saved.now).max(now)
        });
        let generation = saved.map_or(1, |saved| saved.generation + 1);
        let used = saved.map_or(0, |saved| saved.last_number + NUMBERS_UNSAVED);
        let settings = settings(start.saturating_sub(HISTORY_LENGTH).unwrap_or(start), used);
        let mut fakes = Fakes::new(seed.wrapping_add(generation.wrapping_mul(0x9e37_79b9_7f4a_7c15)), settings);
        create_history(&mut fakes, start);
        let clock = Arc::new(ScaledClock::new(start, speed));
        let fakes = Arc::new(Mutex::new(fakes));
        let time = Arc::clone(&clock);
        let serving = fakes::serve_following(Arc::clone(&fakes), move || time.now()).await;
        let serving = serving.map_err(|error| StartError(format!("The fake GitHub cannot open a port: {error}.")))?;
        let demo = Self { fakes, clock, serving, generation, speed };
        demo.save(data_dir)?;
        Ok(demo)
    }

    pub(super) fn repos(&self) -> Vec<RepoName> {
        locked(&self.fakes).settings().repos.iter().filter_map(|repo| repo.name.parse().ok()).collect()
    }

    pub(super) fn is_continued(&self) -> bool {
        self.generation > 1
    }

    pub(super) fn save(&self, data_dir: &DataDir) -> Result<(), StartError> {
        let state = SavedDemo {
            generation: self.generation,
            last_number: locked(&self.fakes).last_number(),
            now: self.clock.now(),
            speed: self.speed,
        };
        data_dir.write_json(FILE, &state)
    }

    /// Closes the pull requests of a previous process: open in Suture's store, but unknown to these fakes.
    pub(super) async fn close_former<S: Store>(&self, store: &S) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut left_open = Vec::new();
        for repo in self.repos() {
            let mut after = None;
            loop {
                let listing = queries::pull_requests(store, &repo, None, after, 200, now).await?;
                let open: Vec<_> = listing.entries.iter().filter(|one| !one.state.is_terminal()).collect();
                let ids: Vec<_> = open.iter().map(|one| one.pr.clone()).collect();
                left_open.extend(queries::records(store, &ids, now).await?);
                after = listing.next;
                if after.is_none() {
                    break;
                }
            }
        }
        let mut fakes = locked(&self.fakes);
        for record in &left_open {
            let pr = FakePrId { repo: record.id.repo.to_string(), number: record.id.number };
            let (head_ref, head) = (record.branch.clone(), record.head_sha.to_string());
            fakes.tell_closed(&EarlierPull { pr, node_id: record.node_id.clone(), head_ref, head });
        }
        Ok(())
    }

    /// Advances the fakes, posts their webhooks to this address, opens pull requests, and simulates people's repairs.
    pub(super) async fn run(self: Arc<Self>, address: String) {
        let posts = Arc::new(Semaphore::new(MAX_POSTS));
        let mut next_opening = self.clock.now();
        let mut next_repair = self.clock.now();
        let mut opened = 0;
        loop {
            let now = self.clock.now();
            let deliveries = {
                let mut fakes = locked(&self.fakes);
                fakes.advance_to(now);
                if now >= next_opening {
                    open_one(&mut fakes, opened);
                    opened += 1;
                    next_opening = saturating_after(now, OPEN_EVERY);
                }
                if now >= next_repair {
                    repair(&mut fakes, now);
                    next_repair = saturating_after(now, SignedDuration::from_mins(5));
                }
                fakes.take_webhooks()
            };
            for delivery in deliveries {
                let Ok(permit) = Arc::clone(&posts).acquire_owned().await else { return };
                let (fakes, address) = (Arc::clone(&self.fakes), address.clone());
                tokio::spawn(async move {
                    let code = fakes::post(&address, &delivery).await;
                    locked(&fakes).webhook_answered(&delivery, code);
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
    // Bots are slow enough for a viewer to follow their steps.
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

fn create_history(fakes: &mut Fakes, start: Timestamp) {
    let repos: Vec<String> = fakes.settings().repos.iter().map(|repo| repo.name.clone()).collect();
    for (minutes, repo, fault) in HISTORY {
        fakes.advance_to(start.saturating_sub(SignedDuration::from_mins(minutes)).unwrap_or(start));
        let pr = fakes.open_pr(NewPullRequest { repo: repos[repo].clone(), ..NewPullRequest::default() });
        if let Some(fault) = fault {
            fakes.force(fault, &pr);
        }
    }
    fakes.advance_to(start);
    // Suture was not yet installed, so these webhooks are lost.
    drop(fakes.take_webhooks());
    let random = Fault::ALL.into_iter().filter(|fault| !fault.needs_a_person());
    fakes.set_faults(FaultRates { lives: 0.4, webhooks: 0.04, requests: 0.01, ..FaultRates::only(random) });
}

/// Opens a pull request as CodeGenie. One in `PERSON_EVERY` needs a person; the faults of the others are random.
fn open_one(fakes: &mut Fakes, turn: usize) {
    let repos = &fakes.settings().repos;
    let repo = repos[REPO_ORDER[turn % REPO_ORDER.len()]].name.clone();
    let pr = fakes.open_pr(NewPullRequest { repo, ..NewPullRequest::default() });
    if turn % PERSON_EVERY == PERSON_EVERY - 1 {
        fakes.force(NEEDS_PERSON[turn / PERSON_EVERY % NEEDS_PERSON.len()], &pr);
    }
}

fn repair(fakes: &mut Fakes, now: Timestamp) {
    let open: Vec<(FakePrId, Timestamp)> =
        fakes.pulls().filter(|(_, pull)| pull.is_open()).map(|(pr, pull)| (pr, pull.created_at)).collect();
    for (pr, created_at) in open {
        let struck = fakes.struck(&pr).iter().rfind(|(_, fault)| fault.needs_a_person()).copied();
        if let Some((_, fault)) = struck.filter(|(at, _)| now.duration_since(*at) > REPAIR_AFTER) {
            if fault == Fault::PolicyMisconfigured {
                fakes.person_repairs_policy(&pr);
            } else if fault == Fault::ConflictAgain {
                drop(fakes.person_resolves(&pr, "danny"));
            } else {
                drop(fakes.person_pushes(&pr, "danny"));
            }
        } else if now.duration_since(created_at) > CLOSE_AFTER {
            fakes.person_closes(&pr, "maria");
        }
    }
}
