//! Recounts the budgets of a pull request from the event log, independently of the counters in the record. Whose push
//! moved the head is taken from what GitHub executed, not from what the events say.

use std::collections::BTreeMap;

use domain::event::{Event, EventKind};
use domain::id::RunId;
use domain::policy::Policy;
use domain::run::RunEnd;
use domain::state::{State, Strategy, Substatus};
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
    /// `updated` is true if a branch update of Suture made the head of the event. Returns the exceeded budget, if any, and
    /// the change of the vulnerability's close-and-reopen count.
    pub(crate) fn read(&mut self, event: &Event, policy: &Policy, updated: bool) -> (Option<String>, i32) {
        if let Some(strategy) = event.kind.claimed_strategy() {
            return self.claimed(event, strategy, policy);
        }
        let mut reopens = 0;
        if event.kind == EventKind::RemediationAccepted {
            if let Some(claim) = self.claim.as_mut().filter(|claim| Some(&claim.run) == event.payload.run.as_ref()) {
                claim.accepted = true;
            }
        } else if event.kind == EventKind::RemediationEnded && event.payload.run_end != Some(RunEnd::Dropped) {
            self.claim = None;
        } else if event.kind == EventKind::RemediationEnded || replaces_run(event) {
            reopens = self.refund();
        } else if moves_head(event) {
            reopens = self.head_moved(updated);
        }
        self.apply_resets(event, policy);
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
            Some(format!("{strategy} was claimed {count} times; {most} are allowed"))
        } else if self.lifetime > lifetime {
            Some(format!("{} remedies were claimed; {lifetime} are allowed per pull request", self.lifetime))
        } else {
            None
        };
        let reopens = if strategy == Strategy::CloseAndReopen { 1 } else { 0 };
        (violated, reopens)
    }

    /// A claim that was never accepted is refunded.
    fn refund(&mut self) -> i32 {
        let Some(claim) = self.claim.take().filter(|claim| !claim.accepted) else { return 0 };
        if let Some(count) = self.counts.get_mut(&claim.strategy) {
            *count = count.saturating_sub(1);
        }
        self.lifetime = self.lifetime.saturating_sub(1);
        if claim.strategy == Strategy::CloseAndReopen { -1 } else { 0 }
    }

    /// Somebody else's push resets `branch_update`. A new head cancels every remedy but a branch update.
    fn head_moved(&mut self, updated: bool) -> i32 {
        if !updated {
            self.counts.remove(&Strategy::BranchUpdate);
        }
        if self.claim.as_ref().is_some_and(|claim| claim.strategy == Strategy::BranchUpdate) {
            return 0;
        }
        self.refund()
    }

    /// Only events from outside reset a counter (R-BUDGET-2 to R-BUDGET-4), and a person's intervention resets all of them.
    fn apply_resets(&mut self, event: &Event, policy: &Policy) {
        let (Some(from), Some(to)) = (event.from, event.to) else {
            // A different failure reason resets the counter too, although the state is the same.
            let other_policy = policy.policy_bot.failure(&event.payload.text) != Substatus::SodFailure;
            if event.kind == EventKind::PolicyFailed && other_policy {
                self.counts.remove(&Strategy::RetriggerSodCheck);
            }
            return;
        };
        if from == State::NeedsIntervention || event.kind == EventKind::PrReopened {
            self.counts.retain(|strategy, _| *strategy == Strategy::CloseAndReopen);
            self.lifetime = 0;
        }
        if event.kind == EventKind::RemediationAccepted || event.withdraws_assumption() {
            return;
        }
        let mut reached = vec![to];
        if event.kind == EventKind::StateDriftCorrected {
            reached.extend(transition::walk(from, to).unwrap_or_default().into_iter().map(|hop| hop.state));
        }
        self.counts.retain(|strategy, _| !reached.iter().any(|state| proves_success(*strategy, *state)));
    }
}

/// A person's command replaces Suture's run, except `/cancel`, which closes the pull request.
fn replaces_run(event: &Event) -> bool {
    event.kind == EventKind::CommandReceived
        && event.payload.run.is_some()
        && event.payload.name.as_deref() != Some("/cancel")
}

/// The event changes the head of the pull request.
fn moves_head(event: &Event) -> bool {
    let missed = event.kind == EventKind::StateDriftCorrected
        && event.payload.name.as_deref() == Some(EventKind::BranchUpdated.name());
    missed || matches!(event.kind, EventKind::BranchUpdated | EventKind::PrReopened)
}

/// Whether reaching this state shows that the strategy succeeded.
fn proves_success(strategy: Strategy, state: State) -> bool {
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
