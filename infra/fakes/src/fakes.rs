//! [`Fakes`]: the state of all fakes, their clock, and the dispatch of scheduled events.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::audit::AuditEntry;
use crate::bots::codegenie::CodegenieRequest;
use crate::clock::{FakeClock, TimedEvent};
use crate::faults::{Fault, FaultTarget, Forced, PlannedFaults};
use crate::github::access::TokenUsage;
use crate::github::model::{FakeGitHub, FakePull, FakeRepository, PrIx, RepoIx};
use crate::github::webhooks::{DeliveryRecord, WebhookDelivery};
use crate::jenkins::FakeJenkins;
use crate::rng::Rng;
use crate::settings::FakeSettings;

/// A pull request (or issue) by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FakePrId {
    /// `owner/name`.
    pub repo: String,
    pub number: u64,
}

impl std::fmt::Display for FakePrId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}#{}", self.repo, self.number)
    }
}

/// Upper bound on the ids (statuses, checks, comments, webhooks) that one pull request uses.
const IDS_PER_NUMBER: u64 = 10_000;

/// GitHub, Jenkins, the bots and CodeGenie. Deterministic: the same seed, settings and calls give the same results.
#[derive(Debug)]
pub struct Fakes {
    pub(crate) settings: FakeSettings,
    pub(crate) clock: FakeClock,
    pub(crate) seed: u64,
    /// One random stream per purpose: ids and commits, CodeGenie, webhooks, requests. Each pull request has its own as
    /// well.
    pub(crate) id_rng: Rng,
    pub(crate) genie_rng: Rng,
    pub(crate) webhook_rng: Rng,
    pub(crate) request_rng: Rng,
    pub(crate) github: FakeGitHub,
    pub(crate) jenkins: FakeJenkins,
    pub(crate) fault_plans: Vec<PlannedFaults>,
    pub(crate) open_pulls: Vec<BTreeSet<PrIx>>,
    pub(crate) audit_log: Vec<AuditEntry>,
    pub(crate) deliveries: Vec<DeliveryRecord>,
    pub(crate) bodies_forgotten: usize,
    /// The constant end of every webhook body, per repository.
    pub(crate) envelopes: Vec<String>,
    pub(crate) outbox: Vec<WebhookDelivery>,
    pub(crate) budgets: HashMap<String, TokenUsage>,
    pub(crate) installation_tokens: HashMap<String, Timestamp>,
    pub(crate) forced: Forced,
    pub(crate) webhook_faults: Vec<Fault>,
    pub(crate) request_faults: Vec<Fault>,
    pub(crate) unknown_requests: Vec<String>,
    pub(crate) requests: u64,
    pub(crate) genie_requests: Vec<CodegenieRequest>,
    pub(crate) genie_found: u64,
    /// Vulnerabilities whose replacement pull request conflicts again.
    pub(crate) conflicts_again: BTreeSet<String>,
}

impl Fakes {
    /// Starts at `settings.start`.
    pub fn new(seed: u64, settings: FakeSettings) -> Self {
        let used_before = settings.numbers_used_before;
        let mut github = FakeGitHub { last_id: 1_000_000 + used_before * IDS_PER_NUMBER, ..FakeGitHub::default() };
        let mut id_rng = Rng::new(seed, 1);
        for repo in &settings.repos {
            let (owner, name) = repo.name.split_once('/').unwrap_or(("acme", &repo.name));
            let id = github.id();
            github.by_name.insert(repo.name.to_ascii_lowercase(), RepoIx(github.repos.len()));
            github.repos.push(FakeRepository {
                id,
                owner: owner.to_owned(),
                name: name.to_owned(),
                settings: repo.clone(),
                base: vec![Arc::from(id_rng.hex(40))],
                numbers: Vec::new(),
                used_before,
            });
        }
        let mut fakes = Self {
            clock: FakeClock::new(settings.start),
            seed,
            id_rng,
            genie_rng: Rng::new(seed, 2),
            webhook_rng: Rng::new(seed, 3),
            request_rng: Rng::new(seed, 4),
            open_pulls: vec![BTreeSet::new(); github.repos.len()],
            github,
            jenkins: FakeJenkins::default(),
            fault_plans: Vec::new(),
            audit_log: Vec::new(),
            deliveries: Vec::new(),
            bodies_forgotten: 0,
            envelopes: Vec::new(),
            outbox: Vec::new(),
            budgets: HashMap::new(),
            installation_tokens: HashMap::new(),
            forced: Forced::new(),
            webhook_faults: settings.faults.of(FaultTarget::Webhook),
            request_faults: settings.faults.of(FaultTarget::Request),
            unknown_requests: Vec::new(),
            requests: 0,
            genie_requests: Vec::new(),
            genie_found: used_before * settings.repos.len() as u64,
            conflicts_again: BTreeSet::new(),
            settings,
        };
        fakes.make_envelopes();
        fakes
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now
    }

    pub fn settings(&self) -> &FakeSettings {
        &self.settings
    }

    /// Time of the next scheduled event or untaken webhook; `None` if there is none.
    pub fn next_event_at(&self) -> Option<Timestamp> {
        if self.outbox.is_empty() { self.clock.next_at() } else { Some(self.now()) }
    }

    /// Advances the clock and runs all events due by `until`, in order. Time never goes back.
    pub fn advance_to(&mut self, until: Timestamp) {
        while let Some(event) = self.clock.step(until) {
            self.run_event(event);
        }
        self.clock.now = self.clock.now.max(until);
    }

    pub fn advance(&mut self, by: SignedDuration) {
        self.advance_to(self.now().checked_add(by).unwrap_or(Timestamp::MAX));
    }

    fn run_event(&mut self, event: TimedEvent) {
        match event {
            TimedEvent::MergeabilityKnown(ix, version) => self.mergeability_known(ix, version),
            TimedEvent::Send(place) => self.send(place),
            TimedEvent::JenkinsNotices(ix, sha) => self.jenkins_notices(ix, &sha),
            TimedEvent::BuildStarts(item) => self.build_starts(item),
            TimedEvent::BuildEnds(build) => self.build_ends(build),
            TimedEvent::BuildReported(build) => self.build_reported(build),
            TimedEvent::BotExamines(bot, ix) => self.bot_examines(bot, ix),
            TimedEvent::PolicyAnswers(ix, sha) => self.policy_answers(ix, &sha),
            TimedEvent::QueueMerges(ix) => self.queue_merges(ix),
            TimedEvent::BaseMoves(ix, conflicting) => self.base_moves(ix, conflicting),
            TimedEvent::GenieOpens(request) => self.genie_opens(request),
            TimedEvent::GenieFinds(repo) => self.genie_finds(repo),
        }
    }

    /// A random delay from the pull request's own stream.
    pub(crate) fn delay(&mut self, ix: PrIx, range: (u64, u64)) -> u64 {
        self.fault_plans[ix.0].rng.between(range)
    }

    pub fn pull(&self, pr: &FakePrId) -> Option<&FakePull> {
        self.ix(pr).map(|ix| self.github.pull(ix))
    }

    /// All pull requests, oldest first.
    pub fn pulls(&self) -> impl Iterator<Item = (FakePrId, &FakePull)> {
        self.github.pulls.iter().enumerate().map(|(place, pull)| (self.name_of(PrIx(place)), pull))
    }

    /// All pull requests except the `seen` oldest: the new ones for a caller that has already listed those.
    pub fn pulls_after(&self, seen: usize) -> impl Iterator<Item = FakePrId> {
        (seen..self.github.pulls.len()).map(|place| self.name_of(PrIx(place)))
    }

    /// The highest number of any pull request or issue. Later fakes must not reuse it.
    pub fn last_number(&self) -> u64 {
        self.github.repos.iter().map(FakeRepository::last_number).max().unwrap_or(0)
    }

    /// Number of requests received by GitHub and Jenkins.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Requests that the fakes do not implement. Tests assert that there are none.
    pub fn unknown_requests(&self) -> &[String] {
        &self.unknown_requests
    }

    pub(crate) fn ix(&self, pr: &FakePrId) -> Option<PrIx> {
        self.github.pull_at(self.repo_ix(&pr.repo)?, pr.number)
    }

    pub(crate) fn repo_ix(&self, name: &str) -> Option<RepoIx> {
        self.github.by_name.get(&name.to_ascii_lowercase()).copied()
    }

    pub(crate) fn name_of(&self, ix: PrIx) -> FakePrId {
        let pull = self.github.pull(ix);
        self.pr_named(pull.repo, pull.number)
    }

    pub(crate) fn pr_named(&self, repo: RepoIx, number: u64) -> FakePrId {
        FakePrId { repo: self.github.repo(repo).settings.name.clone(), number }
    }
}
