//! Mergeability of a pull request: GitHub computes it lazily, and reports only one reason.

use super::commit::StatusState;
use super::model::{FakeMergeability, PrIx, PullState, ReviewState};
use crate::clock::TimedEvent;
use crate::fakes::Fakes;
use crate::faults::Fault;

/// GraphQL's `mergeStateStatus`; REST's `mergeable_state` is the same in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MergeState {
    Unknown,
    Dirty,
    Draft,
    Blocked,
    Behind,
    Unstable,
    Clean,
}

impl MergeState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Dirty => "DIRTY",
            Self::Draft => "DRAFT",
            Self::Blocked => "BLOCKED",
            Self::Behind => "BEHIND",
            Self::Unstable => "UNSTABLE",
            Self::Clean => "CLEAN",
        }
    }
}

impl Fakes {
    /// Discards the computed mergeability after a change of head or base.
    pub(crate) fn forget_mergeability(&mut self, ix: PrIx) {
        let pull = &mut self.github.pulls[ix.0];
        pull.mergeability = FakeMergeability::Unasked;
        pull.mergeability_version += 1;
    }

    /// Starts the computation after a client's request.
    pub(crate) fn ask_mergeability(&mut self, ix: PrIx) {
        let pull = self.github.pull(ix);
        if pull.mergeability != FakeMergeability::Unasked || !pull.is_open() {
            return;
        }
        let version = pull.mergeability_version;
        let slow = self.strikes(ix, Fault::MergeableUnknown);
        let ms = if slow { 900_000 } else { self.request_rng.between(self.settings.timing.mergeable_ms) };
        self.github.pulls[ix.0].mergeability = FakeMergeability::Computing;
        self.clock.after_ms(ms, TimedEvent::MergeabilityKnown(ix, version));
    }

    pub(crate) fn mergeability_known(&mut self, ix: PrIx, version: u32) {
        let pull = &mut self.github.pulls[ix.0];
        if pull.mergeability_version == version {
            pull.mergeability = FakeMergeability::Known(!pull.conflicts);
        }
    }

    /// GitHub's `mergeable`: `None` until computed.
    pub(crate) fn mergeable(&self, ix: PrIx) -> Option<bool> {
        match self.github.pull(ix).mergeability {
            FakeMergeability::Known(mergeable) => Some(mergeable),
            FakeMergeability::Unasked | FakeMergeability::Computing => None,
        }
    }

    /// GitHub reports a single state. BLOCKED takes precedence over BEHIND.
    pub(crate) fn merge_state(&self, ix: PrIx) -> MergeState {
        let pull = self.github.pull(ix);
        if pull.state != PullState::Open {
            return MergeState::Unknown;
        }
        match self.mergeable(ix) {
            None => MergeState::Unknown,
            Some(false) => MergeState::Dirty,
            Some(true) if pull.draft => MergeState::Draft,
            Some(true) if !self.is_unblocked(ix) => MergeState::Blocked,
            Some(true) if self.github.repo(pull.repo).settings.strict && self.github.behind_by(ix) > 0 => {
                MergeState::Behind
            }
            Some(true) if !self.all_green(ix) => MergeState::Unstable,
            Some(true) => MergeState::Clean,
        }
    }

    /// Whether all required contexts are green and the pull request is approved.
    pub(crate) fn is_unblocked(&self, ix: PrIx) -> bool {
        self.required_green(ix) && (self.is_approved(ix) || !self.review_required(ix))
    }

    pub(crate) fn review_required(&self, ix: PrIx) -> bool {
        self.github.repo(self.github.pull(ix).repo).settings.protection != crate::settings::ProtectionSource::None
    }

    pub(crate) fn required_green(&self, ix: PrIx) -> bool {
        let required = self.github.repo(self.github.pull(ix).repo).settings.required_contexts();
        let reported = self.github.reported(ix);
        required.iter().all(|it| reported.is_some_and(|reported| reported.is_green(&it.context, it.app_id)))
    }

    /// Whether all required contexts except Policy Bot's are green. Policy Bot waits for this.
    pub(crate) fn checks_green(&self, ix: PrIx) -> bool {
        let required = self.github.repo(self.github.pull(ix).repo).settings.required_contexts();
        let Some(reported) = self.github.reported(ix) else { return false };
        let mut checks = required.iter().filter(|it| !it.context.starts_with("policy-bot")).peekable();
        if checks.peek().is_none() {
            // Without required contexts, Jenkins' reports must still be green.
            return reported.statuses.iter().any(|status| !status.context.starts_with("policy-bot"))
                && self.all_green_but_policy(ix)
                || !reported.checks.is_empty() && self.all_green_but_policy(ix);
        }
        checks.all(|it| reported.is_green(&it.context, it.app_id))
    }

    fn all_green(&self, ix: PrIx) -> bool {
        self.github.reported(ix).is_none_or(|reported| {
            reported.current_checks().iter().all(|check| check.is_green())
                && reported.current_statuses().iter().all(|status| status.state == StatusState::Success)
        })
    }

    fn all_green_but_policy(&self, ix: PrIx) -> bool {
        self.github.reported(ix).is_some_and(|reported| {
            reported.current_checks().iter().all(|check| check.is_green())
                && reported
                    .current_statuses()
                    .iter()
                    .filter(|status| !status.context.starts_with("policy-bot"))
                    .all(|status| status.state == StatusState::Success)
        })
    }

    /// Whether at least one reviewer's latest opinion approves and none requests changes. Approvals of older heads
    /// count unless they were dismissed.
    pub(crate) fn is_approved(&self, ix: PrIx) -> bool {
        let opinions = self.latest_opinions(ix);
        let says = |state| opinions.iter().any(|place| self.github.pull(ix).reviews[*place].state == state);
        says(ReviewState::Approved) && !says(ReviewState::ChangesRequested)
    }

    /// The index of each reviewer's latest review that is not just a comment.
    pub(crate) fn latest_opinions(&self, ix: PrIx) -> Vec<usize> {
        let reviews = &self.github.pull(ix).reviews;
        let mut latest: Vec<usize> = Vec::new();
        for (place, review) in reviews.iter().enumerate() {
            if review.state == ReviewState::Commented {
                continue;
            }
            latest.retain(|known| reviews[*known].user != review.user);
            latest.push(place);
        }
        latest
    }
}
