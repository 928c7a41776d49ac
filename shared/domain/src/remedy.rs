//! The seven strategies as data (R-REMEDY-2 to R-REMEDY-4): the event that logs the claim, the state it leads to, what
//! proves that it worked, and how long that may take. The Car Bridge executes them; `decide` claims and ends them.

use jiff::SignedDuration;

use crate::event::EventKind;
use crate::policy::Policy;
use crate::pull_request::PullRequest;
use crate::run::RunEnd;
use crate::signals::{ChecksStatus, PolicyVerdict};
use crate::state::{State, Strategy};

/// The fixed properties of a strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remedy {
    pub event: EventKind,
    /// The state after the target accepted. `None` if the state does not change (retriggering Approver Bot) or a fact
    /// of its own changes it (closing).
    pub post_action: Option<State>,
    /// Description of the event that proves it.
    pub expects: &'static str,
}

pub fn of(strategy: Strategy) -> Remedy {
    match strategy {
        Strategy::Rebuild => Remedy {
            event: EventKind::RemediationRebuild,
            post_action: Some(State::ChecksRunning),
            expects: "new results of the checks",
        },
        Strategy::BranchUpdate => Remedy {
            event: EventKind::RemediationBranchUpdate,
            post_action: Some(State::ChecksRunning),
            expects: "a new head commit",
        },
        Strategy::RetriggerPolicyBot => Remedy {
            event: EventKind::RemediationRetriggerPolicy,
            post_action: Some(State::PolicyEvaluating),
            expects: "a result of Policy Bot",
        },
        Strategy::RetriggerSodCheck => Remedy {
            event: EventKind::RemediationRetriggerSod,
            post_action: Some(State::PolicyEvaluating),
            expects: "a result of Policy Bot",
        },
        Strategy::RetriggerApproverBot => Remedy {
            event: EventKind::RemediationRetriggerApprover,
            post_action: None,
            expects: "an approval of this head",
        },
        Strategy::RetriggerAutomergeBot => Remedy {
            event: EventKind::RemediationRetriggerMerge,
            post_action: Some(State::Merging),
            expects: "a merge, or an attempt at one",
        },
        Strategy::CloseAndReopen => Remedy {
            event: EventKind::RemediationCloseAndReopen,
            post_action: None,
            expects: "a new pull request for the same vulnerability",
        },
    }
}

/// How long the proof may take after the target accepted: the threshold of the state in which the proof is due.
pub fn proof_timeout(strategy: Strategy, policy: &Policy) -> SignedDuration {
    let state = match strategy {
        Strategy::Rebuild | Strategy::CloseAndReopen => State::ChecksRunning,
        Strategy::BranchUpdate => State::Created,
        Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => State::PolicyEvaluating,
        Strategy::RetriggerApproverBot => State::PolicyPassed,
        Strategy::RetriggerAutomergeBot => State::Approved,
    };
    policy.threshold(state).unwrap_or(SignedDuration::ZERO)
}

/// The outcome of the active run, if the record proves it: `NoEffect` if the remedy was answered by the same failure. Read from the record, not from the current fact, so that it
/// does not matter whether a webhook or the sweep brought the report.
pub fn proof(record: &PullRequest, policy: &Policy) -> Option<(RunEnd, String)> {
    let run = record.active_run.as_ref()?;
    if run.head_sha != record.head_sha {
        let updates = run.strategy == Strategy::BranchUpdate;
        return updates.then(|| (RunEnd::Completed, format!("the head moved to {}", record.head_sha.short())));
    }
    let required = record.required(policy);
    if !record.signals.is_answered(run.strategy, required) {
        return None;
    }
    let (end, outcome) = match run.strategy {
        Strategy::Rebuild => match record.signals.checks(required) {
            ChecksStatus::Passed => (RunEnd::Completed, "the checks passed"),
            ChecksStatus::Failed(_) | ChecksStatus::Running | ChecksStatus::NotStarted => {
                (RunEnd::NoEffect, "the checks failed again")
            }
        },
        Strategy::RetriggerPolicyBot | Strategy::RetriggerSodCheck => match &record.signals.policy {
            Some(report) if matches!(report.verdict, PolicyVerdict::Failed(_)) => {
                (RunEnd::NoEffect, "Policy Bot rejected it again")
            }
            Some(_) | None => (RunEnd::Completed, "Policy Bot answered"),
        },
        Strategy::RetriggerApproverBot => (RunEnd::Completed, "the approval arrived"),
        Strategy::RetriggerAutomergeBot => match &record.signals.merge {
            Some(report) if report.failed => (RunEnd::NoEffect, "Automerge Bot tried to merge, and could not"),
            Some(_) | None => (RunEnd::Completed, "Automerge Bot tried to merge"),
        },
        Strategy::BranchUpdate | Strategy::CloseAndReopen => return None,
    };
    Some((end, outcome.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::id::RunId;
    use crate::pull_request::ActiveRun;
    use crate::signals::{CheckReport, CheckVerdict, MergeReport};
    use crate::state::Substatus;
    use crate::tests::fixture::{PrScenario, acting, approved, merging, minutes, policy_says, run_of, sha};

    /// A pull request in this state whose remedy was claimed and accepted.
    fn with_accepted_run(state: State, strategy: Strategy) -> PrScenario {
        let mut scenario = PrScenario::at(state);
        let (head_sha, since) = (scenario.head.clone(), scenario.now);
        let record = scenario.record_mut();
        record.signals.mark_claimed(strategy, &[]);
        record.signals.mark_accepted(strategy);
        record.active_run = Some(ActiveRun {
            id: RunId::new("run-1"),
            strategy,
            head_sha,
            since,
            accepted: true,
            closing: false,
            human: false,
            previous: None,
            previous_request: None,
            repeated: false,
        });
        scenario.advance_minutes(1);
        scenario
    }

    fn proof_of(scenario: &PrScenario) -> Option<String> {
        proof(scenario.record(), &scenario.policy).map(|(_, outcome)| outcome)
    }

    /// Stores a check report without `decide`, which would end the run.
    fn note(scenario: &mut PrScenario, check: &CheckReport) {
        scenario.record_mut().signals.note_check(check, 250);
    }

    #[test]
    fn each_strategy_has_its_event_command_and_post_action_state() {
        let table = [
            (Strategy::Rebuild, EventKind::RemediationRebuild, Command::Rebuild, Some(State::ChecksRunning)),
            (
                Strategy::BranchUpdate,
                EventKind::RemediationBranchUpdate,
                Command::UpdateBranch,
                Some(State::ChecksRunning),
            ),
            (
                Strategy::RetriggerPolicyBot,
                EventKind::RemediationRetriggerPolicy,
                Command::RecheckPolicy,
                Some(State::PolicyEvaluating),
            ),
            (Strategy::RetriggerApproverBot, EventKind::RemediationRetriggerApprover, Command::RecheckApproval, None),
            (
                Strategy::RetriggerAutomergeBot,
                EventKind::RemediationRetriggerMerge,
                Command::Merge,
                Some(State::Merging),
            ),
            (
                Strategy::RetriggerSodCheck,
                EventKind::RemediationRetriggerSod,
                Command::RecheckSod,
                Some(State::PolicyEvaluating),
            ),
            (Strategy::CloseAndReopen, EventKind::RemediationCloseAndReopen, Command::CloseAndReopen, None),
        ];
        assert_eq!(table.map(|(strategy, ..)| strategy), Strategy::ALL);
        for (strategy, event, command, post_action) in table {
            let remedy = of(strategy);
            assert_eq!((remedy.event, remedy.post_action), (event, post_action));
            assert_eq!(command, Command::for_strategy(strategy));
            assert!(!remedy.expects.is_empty());
        }
    }

    #[test]
    fn proof_deadline_is_the_threshold_of_the_expected_state() {
        let waits = Strategy::ALL.map(|strategy| proof_timeout(strategy, &acting()));
        assert_eq!(waits, [60, 5, 30, 15, 10, 30, 60].map(minutes));
        let mut policy = acting();
        policy.thresholds_minutes.policy_evaluating = 7;
        policy.thresholds_minutes.created = 2;
        let waits = Strategy::ALL.map(|strategy| proof_timeout(strategy, &policy));
        assert_eq!(waits, [60, 2, 7, 15, 10, 7, 60].map(minutes));
    }

    #[test]
    fn proof_is_none_without_an_active_run() {
        for state in [State::ChecksPassed, State::PolicyPassed, State::Approved, State::Merging] {
            assert_eq!(proof_of(&PrScenario::at(state)), None, "{state}");
        }
    }

    #[test]
    fn rebuild_is_proven_by_new_results_of_all_marked_checks() {
        for (verdict, outcome) in
            [(CheckVerdict::Passed, "the checks passed"), (CheckVerdict::Failed, "the checks failed again")]
        {
            let mut scenario = with_accepted_run(State::ChecksFailed, Strategy::Rebuild);
            assert_eq!(proof_of(&scenario), None, "the old result proves nothing");
            let again = CheckReport { id: Some(8), ..run_of("build", CheckVerdict::Running, scenario.now) };
            note(&mut scenario, &again);
            assert_eq!(proof_of(&scenario), None, "a start proves nothing");
            note(&mut scenario, &CheckReport { verdict, ..again });
            assert_eq!(proof_of(&scenario).as_deref(), Some(outcome));
        }
    }

    #[test]
    fn rebuild_with_two_failed_checks_waits_for_both() {
        let mut scenario = with_accepted_run(State::ChecksFailed, Strategy::Rebuild);
        let lint = run_of("lint", CheckVerdict::Failed, scenario.now);
        note(&mut scenario, &lint);
        scenario.record_mut().signals.mark_claimed(Strategy::Rebuild, &[]);
        let green =
            |name: &str| CheckReport { id: Some(8), ..run_of(name, CheckVerdict::Passed, lint.at + minutes(1)) };
        note(&mut scenario, &green("build"));
        assert_eq!(proof_of(&scenario), None);
        note(&mut scenario, &green("lint"));
        assert_eq!(proof_of(&scenario).as_deref(), Some("the checks passed"));
    }

    #[test]
    fn rebuild_outcome_depends_on_required_checks_only() {
        let mut scenario = with_accepted_run(State::ChecksFailed, Strategy::Rebuild);
        let green = CheckReport { id: Some(8), ..run_of("build", CheckVerdict::Passed, scenario.now) };
        note(&mut scenario, &green);
        scenario.record_mut().required_checks = vec!["build".to_owned(), "scan".to_owned()];
        assert_eq!(proof_of(&scenario), None, "a required check has not reported");
        scenario.policy.checks.required = vec!["build".to_owned()];
        assert_eq!(proof_of(&scenario).as_deref(), Some("the checks passed"));
        let red = run_of("coverage", CheckVerdict::Failed, scenario.now);
        note(&mut scenario, &red);
        assert_eq!(proof_of(&scenario).as_deref(), Some("the checks passed"), "not a required check");
    }

    #[test]
    fn policy_retrigger_is_proven_by_a_new_result() {
        for strategy in [Strategy::RetriggerPolicyBot, Strategy::RetriggerSodCheck] {
            for (verdict, outcome) in [
                (PolicyVerdict::Passed, "Policy Bot answered"),
                (PolicyVerdict::Failed(Substatus::SodFailure), "Policy Bot rejected it again"),
            ] {
                let mut scenario = with_accepted_run(State::PolicyFailed, strategy);
                assert_eq!(proof_of(&scenario), None, "the old result proves nothing");
                let started = policy_says(PolicyVerdict::Evaluating, scenario.now);
                scenario.record_mut().signals.note_policy(&started);
                assert_eq!(proof_of(&scenario), None, "a start proves nothing");
                let result = policy_says(verdict, scenario.now);
                scenario.record_mut().signals.note_policy(&result);
                let end = if verdict == PolicyVerdict::Passed { RunEnd::Completed } else { RunEnd::NoEffect };
                assert_eq!(proof(scenario.record(), &scenario.policy), Some((end, outcome.to_owned())));
            }
        }
    }

    #[test]
    fn approver_retrigger_is_proven_by_an_approval() {
        let mut scenario = with_accepted_run(State::PolicyPassed, Strategy::RetriggerApproverBot);
        assert_eq!(proof_of(&scenario), None);
        let approval = approved(scenario.now);
        scenario.record_mut().signals.note_approval(&approval);
        assert_eq!(proof_of(&scenario).as_deref(), Some("the approval arrived"));
    }

    #[test]
    fn automerge_retrigger_is_proven_by_any_merge_attempt() {
        for (failed, outcome) in
            [(false, "Automerge Bot tried to merge"), (true, "Automerge Bot tried to merge, and could not")]
        {
            let mut scenario = with_accepted_run(State::Approved, Strategy::RetriggerAutomergeBot);
            assert_eq!(proof_of(&scenario), None);
            let report = MergeReport { failed, ..merging(scenario.now) };
            scenario.record_mut().signals.note_merge(&report);
            let end = if failed { RunEnd::NoEffect } else { RunEnd::Completed };
            assert_eq!(proof(scenario.record(), &scenario.policy), Some((end, outcome.to_owned())));
        }
        // An attempt from before the retrigger proves nothing.
        assert_eq!(proof_of(&with_accepted_run(State::Merging, Strategy::RetriggerAutomergeBot)), None);
    }

    #[test]
    fn new_head_proves_a_branch_update_only() {
        for strategy in Strategy::ALL {
            let mut scenario = with_accepted_run(State::Merging, strategy);
            scenario.record_mut().signals.clear_marks();
            scenario.record_mut().head_sha = sha('b');
            let expected = (strategy == Strategy::BranchUpdate).then_some("the head moved to bbbbbbb");
            assert_eq!(proof_of(&scenario).as_deref(), expected, "{strategy}");
        }
    }

    #[test]
    fn branch_update_and_replacement_are_not_proven_on_the_same_head() {
        for strategy in [Strategy::BranchUpdate, Strategy::CloseAndReopen] {
            let mut scenario = with_accepted_run(State::Merging, strategy);
            scenario.record_mut().signals.clear_marks();
            assert_eq!(proof_of(&scenario), None, "{strategy}");
        }
    }
}
