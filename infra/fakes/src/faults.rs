//! What can go wrong, by name; which pull requests it strikes; and which of it really needs a person. What a fault does is
//! written where it strikes.

use std::collections::{BTreeSet, VecDeque};

use jiff::Timestamp;

use crate::fakes::{Fakes, Pr};
use crate::github::model::PrIx;
use crate::rng::Rng;

/// A way to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A webhook gets no answer: GitHub's delivery log shows it failed, and it can be redelivered.
    WebhookLost,
    /// A webhook is never sent, and GitHub knows nothing of it.
    WebhookNeverSent,
    /// A webhook comes minutes late.
    WebhookLate,
    /// A webhook comes twice.
    WebhookDoubled,
    /// A webhook is overtaken by those after it.
    WebhookReordered,
    /// Jenkins does not notice the head: its checks never start.
    JenkinsDeaf,
    /// The build agent dies: the build fails, the change is fine.
    AgentLost,
    /// The build never ends, until it is stopped.
    BuildHung,
    /// The build ends, and GitHub is never told.
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
    /// A bot says everything twice.
    BotAnswersTwice,
    /// The separation-of-duties validator has old data at first.
    SodTiming,
    /// The policy file is invalid. A person must repair it.
    PolicyMisconfigured,
    /// Somebody pushes to the base meanwhile.
    BaseMoves,
    /// Somebody's push to the base conflicts with the change; a fresh pull request does not.
    Conflict,
    /// Two fixes conflict: the fresh pull request conflicts as well. A person must choose.
    ConflictAgain,
    /// CodeGenie misses the first request for a fresh pull request.
    GenieAsleep,
    /// GitHub takes very long to work out whether a head can be merged.
    MergeableUnknown,
    /// GitHub answers 403 with a secondary rate limit.
    ApiForbidden,
    /// GitHub answers 429.
    ApiTooMany,
    /// GitHub answers 500 and has done nothing.
    ApiError,
    /// GitHub does not answer, and has done nothing.
    ApiTimeout,
    /// GitHub or Jenkins does what it was asked and its answer is lost.
    AnswerLost,
    /// A GraphQL answer lacks a node, with errors beside the data.
    GraphqlPartial,
    /// Jenkins cannot be reached.
    JenkinsDown,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::WebhookLost,
        Self::WebhookNeverSent,
        Self::WebhookLate,
        Self::WebhookDoubled,
        Self::WebhookReordered,
        Self::JenkinsDeaf,
        Self::AgentLost,
        Self::BuildHung,
        Self::ReportLost,
        Self::FlakyTest,
        Self::RealTestFailure,
        Self::PolicyAsleep,
        Self::ApproverAsleep,
        Self::AutomergeAsleep,
        Self::BotAnswersTwice,
        Self::SodTiming,
        Self::PolicyMisconfigured,
        Self::BaseMoves,
        Self::Conflict,
        Self::ConflictAgain,
        Self::GenieAsleep,
        Self::MergeableUnknown,
        Self::ApiForbidden,
        Self::ApiTooMany,
        Self::ApiError,
        Self::ApiTimeout,
        Self::AnswerLost,
        Self::GraphqlPartial,
        Self::JenkinsDown,
    ];

    /// Its name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WebhookLost => "webhook-lost",
            Self::WebhookNeverSent => "webhook-never-sent",
            Self::WebhookLate => "webhook-late",
            Self::WebhookDoubled => "webhook-doubled",
            Self::WebhookReordered => "webhook-reordered",
            Self::JenkinsDeaf => "jenkins-deaf",
            Self::AgentLost => "agent-lost",
            Self::BuildHung => "build-hung",
            Self::ReportLost => "report-lost",
            Self::FlakyTest => "flaky-test",
            Self::RealTestFailure => "real-test-failure",
            Self::PolicyAsleep => "policy-asleep",
            Self::ApproverAsleep => "approver-asleep",
            Self::AutomergeAsleep => "automerge-asleep",
            Self::BotAnswersTwice => "bot-answers-twice",
            Self::SodTiming => "sod-timing",
            Self::PolicyMisconfigured => "policy-misconfigured",
            Self::BaseMoves => "base-moves",
            Self::Conflict => "conflict",
            Self::ConflictAgain => "conflict-again",
            Self::GenieAsleep => "genie-asleep",
            Self::MergeableUnknown => "mergeable-unknown",
            Self::ApiForbidden => "api-403",
            Self::ApiTooMany => "api-429",
            Self::ApiError => "api-500",
            Self::ApiTimeout => "api-timeout",
            Self::AnswerLost => "answer-lost",
            Self::GraphqlPartial => "graphql-partial",
            Self::JenkinsDown => "jenkins-down",
        }
    }

    /// The fault of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// Why no machine can repair it, if none can.
    #[must_use]
    pub fn needs_a_person(self) -> Option<&'static str> {
        match self {
            Self::RealTestFailure => Some("the change breaks a test"),
            Self::PolicyMisconfigured => Some("the policy file is invalid"),
            Self::ConflictAgain => Some("two fixes conflict, and a fresh pull request conflicts again"),
            Self::WebhookLost
            | Self::WebhookNeverSent
            | Self::WebhookLate
            | Self::WebhookDoubled
            | Self::WebhookReordered
            | Self::JenkinsDeaf
            | Self::AgentLost
            | Self::BuildHung
            | Self::ReportLost
            | Self::FlakyTest
            | Self::PolicyAsleep
            | Self::ApproverAsleep
            | Self::AutomergeAsleep
            | Self::BotAnswersTwice
            | Self::SodTiming
            | Self::BaseMoves
            | Self::Conflict
            | Self::GenieAsleep
            | Self::MergeableUnknown
            | Self::ApiForbidden
            | Self::ApiTooMany
            | Self::ApiError
            | Self::ApiTimeout
            | Self::AnswerLost
            | Self::GraphqlPartial
            | Self::JenkinsDown => None,
        }
    }

    /// Where it strikes by chance: a webhook, a request, or a pull request's life.
    fn strikes(self) -> Scene {
        match self {
            Self::WebhookLost
            | Self::WebhookNeverSent
            | Self::WebhookLate
            | Self::WebhookDoubled
            | Self::WebhookReordered => Scene::Webhook,
            Self::ApiForbidden
            | Self::ApiTooMany
            | Self::ApiError
            | Self::ApiTimeout
            | Self::AnswerLost
            | Self::GraphqlPartial
            | Self::JenkinsDown => Scene::Request,
            Self::JenkinsDeaf
            | Self::AgentLost
            | Self::BuildHung
            | Self::ReportLost
            | Self::FlakyTest
            | Self::RealTestFailure
            | Self::PolicyAsleep
            | Self::ApproverAsleep
            | Self::AutomergeAsleep
            | Self::BotAnswersTwice
            | Self::SodTiming
            | Self::PolicyMisconfigured
            | Self::BaseMoves
            | Self::Conflict
            | Self::ConflictAgain
            | Self::GenieAsleep
            | Self::MergeableUnknown => Scene::Life,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    Webhook,
    Request,
    Life,
}

/// Which faults there are, and how often they strike.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// The faults that may strike by chance.
    pub chosen: BTreeSet<Fault>,
    /// The share of pull requests that something happens to.
    pub lives: f64,
    /// The share of webhooks that something happens to.
    pub webhooks: f64,
    /// The share of requests that something happens to.
    pub requests: f64,
}

impl Faults {
    /// Nothing goes wrong by chance.
    #[must_use]
    pub fn none() -> Self {
        Self::only([])
    }

    /// Everything that can go wrong does, sometimes.
    #[must_use]
    pub fn all() -> Self {
        Self::only(Fault::ALL)
    }

    /// Only these.
    #[must_use]
    pub fn only(chosen: impl IntoIterator<Item = Fault>) -> Self {
        Self { chosen: chosen.into_iter().collect(), lives: 0.6, webhooks: 0.05, requests: 0.02 }
    }

    /// `all`, `none` or names with commas between; the error is the name that does not exist.
    ///
    /// # Errors
    /// An unknown name.
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

    pub(crate) fn of(&self, scene: Scene) -> Vec<Fault> {
        self.chosen.iter().copied().filter(|fault| fault.strikes() == scene).collect()
    }
}

/// What is to happen and has happened to one pull request.
#[derive(Debug, Clone)]
pub(crate) struct Fate {
    /// Its own: what happens to others does not change it.
    pub(crate) rng: Rng,
    pub(crate) planned: Vec<Fault>,
    pub(crate) struck: Vec<(Timestamp, Fault)>,
    pub(crate) person: Option<&'static str>,
    /// Until when each bot overlooks this pull request.
    pub(crate) asleep_until: [Option<Timestamp>; 3],
    /// Bots that will look anyway: one look at a time is enough.
    pub(crate) looking: [bool; 3],
    /// Bots that somebody woke: they look even at what they have looked at.
    pub(crate) woken: [bool; 3],
    /// Whether Policy Bot is evaluating.
    pub(crate) evaluating: bool,
    /// Whether SOD data is old still.
    pub(crate) sod_old: bool,
}

impl Fate {
    pub(crate) fn new(rng: Rng) -> Self {
        Self {
            rng,
            planned: Vec::new(),
            struck: Vec::new(),
            person: None,
            asleep_until: [None; 3],
            looking: [false; 3],
            woken: [false; 3],
            evaluating: false,
            sod_old: false,
        }
    }
}

/// Faults asked for by a test, for the next request.
pub(crate) type Forced = VecDeque<(Fault, Option<PrIx>)>;

impl Fakes {
    /// Makes a fault strike this pull request at its next occasion, whatever chance says.
    pub fn force(&mut self, fault: Fault, pr: &Pr) {
        let Some(ix) = self.ix(pr) else { return };
        match fault.strikes() {
            Scene::Request => self.forced.push_back((fault, Some(ix))),
            Scene::Webhook => self.fates[ix.0].planned.push(fault),
            Scene::Life => {
                self.fates[ix.0].planned.push(fault);
                self.plan_base(ix);
            }
        }
    }

    /// Makes a fault of GitHub's or Jenkins' HTTP surface strike the next request it can strike.
    pub fn force_request(&mut self, fault: Fault) {
        self.forced.push_back((fault, None));
    }

    /// From now on, other things go wrong by chance.
    pub fn set_faults(&mut self, faults: Faults) {
        self.webhook_faults = faults.of(Scene::Webhook);
        self.request_faults = faults.of(Scene::Request);
        self.settings.faults = faults;
    }

    /// Why this pull request really needs a person, if it does.
    #[must_use]
    pub fn needs_a_person(&self, pr: &Pr) -> Option<&'static str> {
        self.ix(pr).and_then(|ix| self.fates[ix.0].person)
    }

    /// The faults that have struck this pull request, and when.
    #[must_use]
    pub fn struck(&self, pr: &Pr) -> &[(Timestamp, Fault)] {
        self.ix(pr).map_or(&[], |ix| &self.fates[ix.0].struck)
    }

    /// Chooses by chance what will happen to a new pull request.
    pub(crate) fn plan_fate(&mut self, ix: PrIx) {
        let candidates = self.settings.faults.of(Scene::Life);
        let mut share = self.settings.faults.lives;
        while !candidates.is_empty() && self.fates[ix.0].rng.happens(share) {
            let pick = usize::try_from(self.fates[ix.0].rng.below(candidates.len() as u64)).unwrap_or(0);
            if !self.fates[ix.0].planned.contains(&candidates[pick]) {
                self.fates[ix.0].planned.push(candidates[pick]);
            }
            share /= 4.0;
        }
        self.plan_base(ix);
    }

    /// Whether this fault strikes now; it strikes once.
    pub(crate) fn strikes(&mut self, ix: PrIx, fault: Fault) -> bool {
        let now = self.now();
        let fate = &mut self.fates[ix.0];
        let Some(place) = fate.planned.iter().position(|planned| *planned == fault) else { return false };
        fate.planned.remove(place);
        fate.struck.push((now, fault));
        fate.person = fate.person.or(fault.needs_a_person());
        true
    }

    /// What happens to a webhook about this pull request, if anything.
    pub(crate) fn webhook_fault(&mut self, ix: Option<PrIx>) -> Option<Fault> {
        if let Some(ix) = ix {
            let planned = self.fates[ix.0].planned.iter().copied().find(|fault| fault.strikes() == Scene::Webhook);
            if let Some(fault) = planned {
                self.strikes(ix, fault);
                return Some(fault);
            }
        }
        if !self.webhook_faults.is_empty() && self.sending.happens(self.settings.faults.webhooks) {
            let pick = self.sending.below(self.webhook_faults.len() as u64);
            return Some(self.webhook_faults[usize::try_from(pick).unwrap_or(0)]);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name_of_its_own() {
        let names: BTreeSet<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        for fault in Fault::ALL {
            assert_eq!(Fault::named(fault.name()), Some(fault));
        }
        assert_eq!(Faults::named("agent-lost, conflict"), Ok(Faults::only([Fault::AgentLost, Fault::Conflict])));
        assert_eq!(Faults::named("agent-last"), Err("agent-last".to_owned()));
        assert_eq!(Faults::named("all").map(|faults| faults.chosen.len()), Ok(29));
    }
}
