//! Recounts the budgets of a pull request from the log alone, independently of the record's own counts.

use std::collections::BTreeMap;

use domain::event::{Event, EventKind};
use domain::id::RunId;
use domain::policy::Policy;
use domain::state::{State, Strategy};
use domain::transition;

#[derive(Debug, Clone)]
struct ClaimedRemedy {
    run: RunId,
    strategy: Strategy,
    accepted: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct BudgetModel {
    claim: Option<ClaimedRemedy>,
    counts: BTreeMap<Strategy, u32>,
    lifetime: u32,
}

impl BudgetModel {
    /// Answers which budget is exceeded, if any, and the change of the vulnerability's count of close-and-reopens.
    pub(crate) fn read(&mut self, event: &Event, policy: &Policy) -> (Option<String>, i32) {
        if let Some(strategy) = event.kind.claimed_strategy() {
            return self.claimed(event, strategy, policy);
        }
        let mut reopens = 0;
        if event.kind == EventKind::RemediationAccepted {
            if let Some(claim) = self.claim.as_mut().filter(|claim| Some(&claim.run) == event.payload.run.as_ref()) {
                claim.accepted = true;
            }
        } else if event.kind == EventKind::RemediationEnded && !event.payload.text.starts_with("dropped") {
            self.claim = None;
        } else if event.kind == EventKind::RemediationEnded || gives_way(event) {
            reopens = self.give_back();
        } else if moves_head(event) {
            reopens = self.head_moved();
        }
        self.resets(event);
        (None, reopens)
    }

    fn claimed(&mut self, event: &Event, strategy: Strategy, policy: &Policy) -> (Option<String>, i32) {
        let run = event.payload.run.clone().unwrap_or_else(|| RunId::new(event.id.as_str()));
        self.claim = Some(ClaimedRemedy { run, strategy, accepted: false });
        let count = self.counts.entry(strategy).or_default();
        *count += 1;
        self.lifetime += 1;
        let (most, lifetime) = (policy.budget(strategy), policy.budgets.lifetime);
        let violated = if *count > most {
            Some(format!("{strategy} was claimed {count} times, and {most} are allowed"))
        } else if self.lifetime > lifetime {
            Some(format!("{} remedies were claimed, and {lifetime} are allowed in a life", self.lifetime))
        } else {
            None
        };
        let reopens = if strategy == Strategy::CloseAndReopen { 1 } else { 0 };
        (violated, reopens)
    }

    /// A claim that was never accepted costs nothing.
    fn give_back(&mut self) -> i32 {
        let Some(claim) = self.claim.take().filter(|claim| !claim.accepted) else { return 0 };
        if let Some(count) = self.counts.get_mut(&claim.strategy) {
            *count = count.saturating_sub(1);
        }
        self.lifetime = self.lifetime.saturating_sub(1);
        if claim.strategy == Strategy::CloseAndReopen { -1 } else { 0 }
    }

    fn head_moved(&mut self) -> i32 {
        if self.claim.as_ref().is_some_and(|claim| claim.strategy == Strategy::BranchUpdate) {
            return 0;
        }
        self.counts.remove(&Strategy::BranchUpdate);
        self.give_back()
    }

    /// Seed §14, under rule 9: only others' events reset, and a person who takes over resets everything.
    fn resets(&mut self, event: &Event) {
        let (Some(from), Some(to)) = (event.from, event.to) else {
            // Another reason than before resets too, although the state is the same.
            if event.kind == EventKind::PolicyFailed && !event.payload.text.contains("eparation of duties") {
                self.counts.remove(&Strategy::RetriggerSodCheck);
            }
            return;
        };
        if from == State::NeedsIntervention || event.kind == EventKind::PrReopened {
            self.counts.retain(|strategy, _| *strategy == Strategy::CloseAndReopen);
            self.lifetime = 0;
        }
        if matches!(event.kind, EventKind::RemediationAccepted | EventKind::RemediationEnded) {
            return;
        }
        let mut reached = vec![to];
        if event.kind == EventKind::StateDriftCorrected {
            reached.extend(transition::walk(from, to).unwrap_or_default().into_iter().map(|hop| hop.state));
        }
        self.counts.retain(|strategy, _| !reached.iter().any(|state| is_proof(*strategy, *state)));
    }
}

/// A person's own run replaces ours; closing for good does not.
fn gives_way(event: &Event) -> bool {
    event.kind == EventKind::CommandReceived
        && event.payload.run.is_some()
        && event.payload.name.as_deref() != Some("/cancel")
}

/// The pull request has another head now.
fn moves_head(event: &Event) -> bool {
    let missed = event.kind == EventKind::StateDriftCorrected
        && event.payload.name.as_deref() == Some(EventKind::BranchUpdated.name());
    missed || matches!(event.kind, EventKind::BranchUpdated | EventKind::PrReopened)
}

/// Whether reaching this state shows that the strategy has done its work.
fn is_proof(strategy: Strategy, state: State) -> bool {
    match strategy {
        Strategy::Rebuild => state == State::ChecksPassed,
        Strategy::BranchUpdate => matches!(state, State::ChecksPassed | State::Merging | State::Merged),
        Strategy::RetriggerPolicyBot => matches!(state, State::PolicyPassed | State::PolicyFailed),
        Strategy::RetriggerApproverBot => state == State::Approved,
        Strategy::RetriggerAutomergeBot => state == State::Merged,
        Strategy::RetriggerSodCheck => state == State::PolicyPassed,
        Strategy::CloseAndReopen => false,
    }
}
