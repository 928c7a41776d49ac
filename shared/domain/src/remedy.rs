//! The seven strategies (seed §10) as data: the command each becomes, the state it leads to, what proves that it worked and
//! how long that may take. Doing them is the Car Bridge's work; claiming and ending them is decided in `decide`.

use jiff::SignedDuration;

use crate::command::Command;
use crate::event::EventKind;
use crate::policy::Policy;
use crate::pull_request::Record;
use crate::signals::Checks;
use crate::state::{State, Strategy};

/// What is fixed about a strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remedy {
    /// The event that claims it.
    pub event: EventKind,
    /// The command the Car Bridge gets.
    pub command: Command,
    /// The state once its target has accepted; `None` if it stays (waking the approver) or is a fact of its own (closing).
    pub post_action: Option<State>,
    /// The event that proves it, in words.
    pub expects: &'static str,
    /// Why doing it twice does no harm, or what keeps it from being done twice.
    pub idempotent: &'static str,
}

/// Looks a strategy up.
#[must_use]
pub fn of(strategy: Strategy) -> Remedy {
    match strategy {
        Strategy::Rebuild => Remedy {
            event: EventKind::RemediationRebuild,
            command: Command::Rebuild,
            post_action: Some(State::ChecksRunning),
            expects: "new results of the checks",
            idempotent: "never while a build of this head is queued or running",
        },
        Strategy::BranchUpdate => Remedy {
            event: EventKind::RemediationBranchUpdate,
            command: Command::UpdateBranch,
            post_action: Some(State::ChecksRunning),
            expects: "a new head commit",
            idempotent: "carries the head it expects; with nothing to merge it does nothing",
        },
        Strategy::RetriggerPolicyBot => Remedy {
            event: EventKind::RemediationRetriggerPolicy,
            command: Command::RecheckPolicy,
            post_action: Some(State::PolicyEvaluating),
            expects: "a result of Policy Bot",
            idempotent: "evaluating twice is harmless",
        },
        Strategy::RetriggerSodCheck => Remedy {
            event: EventKind::RemediationRetriggerSod,
            command: Command::RecheckSod,
            post_action: Some(State::PolicyEvaluating),
            expects: "a result of Policy Bot",
            idempotent: "validating twice is harmless",
        },
        Strategy::RetriggerApproverBot => Remedy {
            event: EventKind::RemediationRetriggerApprover,
            command: Command::RecheckApproval,
            post_action: None,
            expects: "an approval of this head",
            idempotent: "a second approval is harmless",
        },
        Strategy::RetriggerAutomergeBot => Remedy {
            event: EventKind::RemediationRetriggerMerge,
            command: Command::Merge,
            post_action: Some(State::Merging),
            expects: "a merge, or an attempt at one",
            idempotent: "merging what is merged does nothing",
        },
        Strategy::CloseAndReopen => Remedy {
            event: EventKind::RemediationCloseAndReopen,
            command: Command::CloseAndReopen,
            post_action: None,
            expects: "a fresh pull request for the same vulnerability",
            idempotent: "the duplicate guard keeps a second one from being asked for",
        },
    }
}

/// How long the proof may take once the target has accepted: the normal time of whoever is to give it.
#[must_use]
pub fn wait(strategy: Strategy, policy: &Policy) -> SignedDuration {
    let state = match strategy {
        Strategy::Rebuild | Strategy::CloseAndReopen => State::ChecksRunning,
        Strategy::BranchUpdate => State::Created,
        Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => State::PolicyEvaluating,
        Strategy::RetriggerApproverBot => State::PolicyPassed,
        Strategy::RetriggerAutomergeBot => State::Approved,
    };
    policy.threshold(state).unwrap_or(SignedDuration::ZERO)
}

/// Whether what is known now proves the remedy under way, and how it ended. Read from the record, not from the fact at
/// hand, so it is the same whether a webhook or the sweep brought the news.
#[must_use]
pub fn proof(record: &Record, policy: &Policy) -> Option<String> {
    let run = record.active_run.as_ref()?;
    if run.head_sha != record.head_sha {
        return match run.strategy {
            Strategy::BranchUpdate => Some(format!("the head moved to {}", record.head_sha.short())),
            Strategy::Rebuild
            | Strategy::RetriggerPolicyBot
            | Strategy::RetriggerApproverBot
            | Strategy::RetriggerAutomergeBot
            | Strategy::RetriggerSodCheck
            | Strategy::CloseAndReopen => None,
        };
    }
    let required = record.required(policy);
    if !record.signals.is_answered(run.strategy, required) {
        return None;
    }
    Some(match run.strategy {
        Strategy::Rebuild => match record.signals.checks(required) {
            Checks::Passed => "the checks passed".to_owned(),
            Checks::Failed(_) | Checks::Running | Checks::NotStarted => "the checks failed again".to_owned(),
        },
        Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => "Policy Bot answered".to_owned(),
        Strategy::RetriggerApproverBot => "the approval came".to_owned(),
        Strategy::RetriggerAutomergeBot => "Automerge Bot tried to merge".to_owned(),
        Strategy::BranchUpdate | Strategy::CloseAndReopen => return None,
    })
}
