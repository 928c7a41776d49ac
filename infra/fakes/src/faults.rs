//! The faults that can be injected: their names, which pull requests they strike, and which of them need a person. The
//! effect of a fault is implemented where it strikes.

use std::collections::{BTreeSet, VecDeque};

use jiff::Timestamp;

use crate::fakes::{FakePrId, Fakes};
use crate::github::model::PrIx;
use crate::rng::Rng;

/// An injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A webhook gets no response: GitHub's delivery log lists it as failed, and it can be redelivered.
    WebhookLost,
    /// A webhook is never sent, and GitHub's delivery log does not list it.
    WebhookNeverSent,
    /// A webhook arrives minutes late.
    WebhookLate,
    /// A webhook arrives twice.
    WebhookDoubled,
    /// A webhook arrives after later ones.
    WebhookReordered,
    /// Jenkins does not notice the head: its checks never start.
    JenkinsDeaf,
    /// The build agent dies: the build fails although the change is correct.
    AgentLost,
    /// The build runs until it is stopped.
    BuildHung,
    /// The build finishes, but its report to GitHub is lost.
    ReportLost,
    /// A test times out once.
    FlakyTest,
    /// The change breaks a test. A person must repair it.
    RealTestFailure,
    /// Policy Bot misses that the checks are green.
    PolicyAsleep,
    /// Approver Bot misses that the policies are met.
    ApproverAsleep,
    /// Automerge Bot misses that the pull request is approved.
    AutomergeAsleep,
    /// A bot posts its result twice.
    BotAnswersTwice,
    /// The separation-of-duties validator has stale data until a new check is requested.
    SodTiming,
    /// The policy file is invalid. A person must repair it.
    PolicyMisconfigured,
    /// Another user pushes to the base.
    BaseMoves,
    /// A push to the base conflicts with the change; a replacement pull request does not conflict.
    Conflict,
    /// Two fixes conflict: the replacement pull request conflicts as well. A person must resolve it.
    ConflictAgain,
    /// CodeGenie misses the first request for a replacement pull request.
    GenieAsleep,
    /// GitHub takes minutes to compute mergeability.
    MergeableUnknown,
    /// GitHub responds 403 with a secondary rate limit.
    ApiForbidden,
    ApiTooMany,
    /// GitHub responds 500 and applies nothing.
    ApiError,
    /// GitHub does not respond, and applies nothing.
    ApiTimeout,
    /// GitHub or Jenkins applies the request, but the response is lost.
    AnswerLost,
    /// A GraphQL response lacks a node and has `errors` beside `data`.
    GraphqlPartial,
    /// Jenkins cannot be reached.
    JenkinsDown,
}

/// What a fault is injected into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultTarget {
    Webhook,
    Request,
    PullRequest,
}

const COUNT: usize = 29;

/// Every fault, in the order of the enum, with its command-line name and its target.
const TABLE: [(Fault, &str, FaultTarget); COUNT] = [
    (Fault::WebhookLost, "webhook-lost", FaultTarget::Webhook),
    (Fault::WebhookNeverSent, "webhook-never-sent", FaultTarget::Webhook),
    (Fault::WebhookLate, "webhook-late", FaultTarget::Webhook),
    (Fault::WebhookDoubled, "webhook-doubled", FaultTarget::Webhook),
    (Fault::WebhookReordered, "webhook-reordered", FaultTarget::Webhook),
    (Fault::JenkinsDeaf, "jenkins-deaf", FaultTarget::PullRequest),
    (Fault::AgentLost, "agent-lost", FaultTarget::PullRequest),
    (Fault::BuildHung, "build-hung", FaultTarget::PullRequest),
    (Fault::ReportLost, "report-lost", FaultTarget::PullRequest),
    (Fault::FlakyTest, "flaky-test", FaultTarget::PullRequest),
    (Fault::RealTestFailure, "real-test-failure", FaultTarget::PullRequest),
    (Fault::PolicyAsleep, "policy-asleep", FaultTarget::PullRequest),
    (Fault::ApproverAsleep, "approver-asleep", FaultTarget::PullRequest),
    (Fault::AutomergeAsleep, "automerge-asleep", FaultTarget::PullRequest),
    (Fault::BotAnswersTwice, "bot-answers-twice", FaultTarget::PullRequest),
    (Fault::SodTiming, "sod-timing", FaultTarget::PullRequest),
    (Fault::PolicyMisconfigured, "policy-misconfigured", FaultTarget::PullRequest),
    (Fault::BaseMoves, "base-moves", FaultTarget::PullRequest),
    (Fault::Conflict, "conflict", FaultTarget::PullRequest),
    (Fault::ConflictAgain, "conflict-again", FaultTarget::PullRequest),
    (Fault::GenieAsleep, "genie-asleep", FaultTarget::PullRequest),
    (Fault::MergeableUnknown, "mergeable-unknown", FaultTarget::PullRequest),
    (Fault::ApiForbidden, "api-403", FaultTarget::Request),
    (Fault::ApiTooMany, "api-429", FaultTarget::Request),
    (Fault::ApiError, "api-500", FaultTarget::Request),
    (Fault::ApiTimeout, "api-timeout", FaultTarget::Request),
    (Fault::AnswerLost, "answer-lost", FaultTarget::Request),
    (Fault::GraphqlPartial, "graphql-partial", FaultTarget::Request),
    (Fault::JenkinsDown, "jenkins-down", FaultTarget::Request),
];

impl Fault {
    pub const ALL: [Self; COUNT] = {
        let mut all = [Self::WebhookLost; COUNT];
        let mut place = 0;
        while place < COUNT {
            all[place] = TABLE[place].0;
            place += 1;
        }
        all
    };

    /// Its command-line name.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    fn target(self) -> FaultTarget {
        TABLE[self as usize].2
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// Whether only a person can repair it: the change breaks a test, the policy file is invalid, or two fixes conflict and a fresh
    /// pull request conflicts again.
    pub fn needs_a_person(self) -> bool {
        matches!(self, Self::RealTestFailure | Self::PolicyMisconfigured | Self::ConflictAgain)
    }
}

/// Which faults are enabled, and how often they strike.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRates {
    /// The faults that may strike at random.
    pub chosen: BTreeSet<Fault>,
    /// The share of pull requests that a fault strikes.
    pub lives: f64,
    /// The share of webhooks that a fault strikes.
    pub webhooks: f64,
    /// The share of requests that a fault strikes.
    pub requests: f64,
}

impl FaultRates {
    /// No random faults.
    pub fn none() -> Self {
        Self::only([])
    }

    /// All faults at the default rates.
    pub fn all() -> Self {
        Self::only(Fault::ALL)
    }

    pub fn only(chosen: impl IntoIterator<Item = Fault>) -> Self {
        Self { chosen: chosen.into_iter().collect(), lives: 0.6, webhooks: 0.05, requests: 0.02 }
    }

    /// Parses `all`, `none` or names separated by commas; the error is the unknown name.
    pub fn named(list: &str) -> Result<Self, String> {
        match list {
            "all" => Ok(Self::all()),
            "none" | "" => Ok(Self::none()),
            names => names
                .split(',')
                .map(|name| Fault::named(name.trim()).ok_or_else(|| name.trim().to_owned()))
                .collect::<Result<Vec<_>, _>>()
                .map(Self::only),
        }
    }

    pub(crate) fn of(&self, target: FaultTarget) -> Vec<Fault> {
        self.chosen.iter().copied().filter(|fault| fault.target() == target).collect()
    }
}

/// The faults planned for one pull request, those that have struck it, and what its bots are doing.
#[derive(Debug, Clone)]
pub(crate) struct PlannedFaults {
    /// Separate per pull request, so that other pull requests do not affect it.
    pub(crate) rng: Rng,
    pub(crate) planned: Vec<Fault>,
    pub(crate) struck: Vec<(Timestamp, Fault)>,
    pub(crate) person: Option<Fault>,
    /// Time until which each bot ignores this pull request.
    pub(crate) asleep_until: [Option<Timestamp>; 3],
    /// Bots with a scheduled examination; a second one is not scheduled.
    pub(crate) examination_scheduled: [bool; 3],
    /// Bots that were retriggered: they examine a pull request even if they have already done so.
    pub(crate) retriggered: [bool; 3],
    /// Whether Policy Bot is evaluating.
    pub(crate) evaluating: bool,
    /// Whether the SOD data is stale.
    pub(crate) sod_stale: bool,
}

impl PlannedFaults {
    pub(crate) fn new(rng: Rng) -> Self {
        Self {
            rng,
            planned: Vec::new(),
            struck: Vec::new(),
            person: None,
            asleep_until: [None; 3],
            examination_scheduled: [false; 3],
            retriggered: [false; 3],
            evaluating: false,
            sod_stale: false,
        }
    }
}

/// Faults that a test forces on the next request.
pub(crate) type Forced = VecDeque<(Fault, Option<PrIx>)>;

impl Fakes {
    /// Makes a fault strike this pull request at the next opportunity, in addition to the random ones.
    pub fn force(&mut self, fault: Fault, pr: &FakePrId) {
        let Some(ix) = self.ix(pr) else { return };
        match fault.target() {
            FaultTarget::Request => self.forced.push_back((fault, Some(ix))),
            FaultTarget::Webhook => self.fault_plans[ix.0].planned.push(fault),
            FaultTarget::PullRequest => {
                self.fault_plans[ix.0].planned.push(fault);
                self.plan_base(ix);
            }
        }
    }

    /// Makes a fault strike the next request to GitHub or Jenkins to which it applies.
    pub fn force_request(&mut self, fault: Fault) {
        self.forced.push_back((fault, None));
    }

    /// Replaces the random faults from now on.
    pub fn set_faults(&mut self, faults: FaultRates) {
        self.webhook_faults = faults.of(FaultTarget::Webhook);
        self.request_faults = faults.of(FaultTarget::Request);
        self.settings.faults = faults;
    }

    /// The fault of this pull request that only a person can repair.
    pub fn needs_a_person(&self, pr: &FakePrId) -> Option<Fault> {
        self.ix(pr).and_then(|ix| self.fault_plans[ix.0].person)
    }

    /// The faults that have struck this pull request, and when.
    pub fn struck(&self, pr: &FakePrId) -> &[(Timestamp, Fault)] {
        self.ix(pr).map_or(&[], |ix| &self.fault_plans[ix.0].struck)
    }

    /// Picks the random faults of a new pull request.
    pub(crate) fn plan_faults(&mut self, ix: PrIx) {
        let candidates = self.settings.faults.of(FaultTarget::PullRequest);
        let mut share = self.settings.faults.lives;
        let plan = &mut self.fault_plans[ix.0];
        while !candidates.is_empty() && plan.rng.happens(share) {
            if let Some(fault) = plan.rng.pick(&candidates).filter(|fault| !plan.planned.contains(fault)) {
                plan.planned.push(*fault);
            }
            share /= 4.0;
        }
        self.plan_base(ix);
    }

    /// Whether this fault is planned; if so, it strikes now, and only once.
    pub(crate) fn strikes(&mut self, ix: PrIx, fault: Fault) -> bool {
        let now = self.now();
        let plan = &mut self.fault_plans[ix.0];
        let Some(place) = plan.planned.iter().position(|planned| *planned == fault) else { return false };
        plan.planned.remove(place);
        plan.struck.push((now, fault));
        plan.person = plan.person.or(fault.needs_a_person().then_some(fault));
        true
    }

    /// Whether this fault has struck and still waits for a person's repair.
    pub(crate) fn awaits_repair(&self, ix: PrIx, fault: Fault) -> bool {
        let plan = &self.fault_plans[ix.0];
        plan.person.is_some() && plan.struck.iter().any(|(_, struck)| *struck == fault)
    }

    /// The fault that strikes a webhook about this pull request, if any.
    pub(crate) fn webhook_fault(&mut self, ix: Option<PrIx>) -> Option<Fault> {
        if let Some(ix) = ix {
            let planned =
                self.fault_plans[ix.0].planned.iter().copied().find(|fault| fault.target() == FaultTarget::Webhook);
            if let Some(fault) = planned {
                self.strikes(ix, fault);
                return Some(fault);
            }
        }
        if !self.webhook_faults.is_empty() && self.webhook_rng.happens(self.settings.faults.webhooks) {
            return self.webhook_rng.pick(&self.webhook_faults).copied();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_follows_the_order_of_the_enum_and_names_are_unique() {
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!((fault as usize, Fault::named(fault.name())), (place, Some(fault)));
        }
        assert_eq!(
            FaultRates::named("agent-lost, conflict"),
            Ok(FaultRates::only([Fault::AgentLost, Fault::Conflict]))
        );
        assert_eq!(FaultRates::named("agent-last"), Err("agent-last".to_owned()));
        assert_eq!(FaultRates::named("all").map(|faults| faults.chosen.len()), Ok(29));
    }
}
