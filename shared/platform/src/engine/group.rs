//! The facts of one pull request that are applied in one transaction, and what is known about them from earlier attempts.

use std::collections::BTreeMap;

use domain::decide::{Decision, Effect, EffectKind};
use domain::event::Fact;
use domain::id::{EventId, PrId, Sha};

use super::{ApplyResult, apply_result};

/// Facts of one pull request, at least one, in the order of their times.
pub(super) struct FactGroup<'a> {
    facts: &'a [&'a Fact],
    /// The results of facts that were applied before.
    applied_before: BTreeMap<EventId, ApplyResult>,
    /// Most facts per transaction.
    most: usize,
}

impl<'a> FactGroup<'a> {
    pub(super) fn new(facts: &'a [&'a Fact]) -> Self {
        Self { facts, applied_before: BTreeMap::new(), most: facts.len() }
    }

    pub(super) fn pr(&self) -> &'a PrId {
        &self.facts[0].pr
    }

    /// The facts for the next transaction; it may be too small for all of them.
    pub(super) fn facts_to_apply(&self) -> Vec<&'a Fact> {
        let new = self.facts.iter().copied().filter(|fact| !self.applied_before.contains_key(&fact.id));
        new.take(self.most).collect()
    }

    /// The transaction was too large: from now on one fact per transaction.
    pub(super) fn split(&mut self) {
        self.most = 1;
    }

    /// Leaves out facts that were applied before, and keeps their results.
    pub(super) fn drop_duplicates(&mut self, applied_before: BTreeMap<EventId, ApplyResult>) {
        self.applied_before.extend(applied_before);
    }

    /// The results of the first facts: of those in the transaction, and of those before and between them that were applied before.
    pub(super) fn results(&self, decisions: Vec<Decision>) -> Vec<ApplyResult> {
        let mut decisions = decisions.into_iter();
        let result = |fact: &&Fact| {
            let known = self.applied_before.get(&fact.id).cloned();
            known.or_else(|| decisions.next().map(apply_result))
        };
        self.facts.iter().map_while(result).collect()
    }
}

/// The effects of decisions that are written together. Of the texts of a check run only the last one is sent.
pub(super) fn effects_to_deliver(decisions: &[Decision]) -> Vec<Effect> {
    let mut effects: Vec<Effect> = decisions.iter().flat_map(|decision| decision.effects.iter().cloned()).collect();
    let check_run = |effect: &Effect| -> Option<Sha> {
        matches!(effect.what, EffectKind::CheckRun { .. }).then(|| effect.head_sha.clone())
    };
    let last: BTreeMap<Sha, usize> =
        effects.iter().enumerate().filter_map(|(at, effect)| Some((check_run(effect)?, at))).collect();
    let mut at = 0;
    effects.retain(|effect| {
        at += 1;
        check_run(effect).is_none_or(|head| last[&head] == at - 1)
    });
    effects
}
