//! Remedies from claim to end (R-REMEDY, R-BUDGET, R-OBSERVE, R-CMD): claimed, proven, dropped, failed, refunded,
//! escalated; and the budgets end every loop.

use jiff::SignedDuration;

use super::fixture::{PrScenario, approved, described, minutes, policy_says, run_of, sha};
use crate::backoff::AttemptFailure;
use crate::command::{Command, CommandSource};
use crate::decide::{EffectKind, FactOutcome, RunChange, VulnerabilityUpdate};
use crate::diagnosis::Classification;
use crate::event::{CommandRequest, EventKind, FactKind, RemedyUpdate, ReplacementLink};
use crate::id::RunId;
use crate::policy::Mode;
use crate::pull_request::Vulnerability;
use crate::run::RunEnd;
use crate::run::{RunKind, RunState, RunTrigger};
use crate::signals::{CheckReport, CheckVerdict, MergeReport, PolicyVerdict, RenewalMark};
use crate::snapshot::{BuildStatus, LiveStatus, Mergeability};
use crate::state::{State, Strategy, Substatus};

fn dropped() -> RemedyUpdate {
    RemedyUpdate::Dropped { why: "the head moved".into() }
}

fn failed() -> RemedyUpdate {
    RemedyUpdate::Failed { error: "Jenkins answered 500".into(), failure: AttemptFailure::Unavailable }
}

/// A pull request that is stale in this state and whose remedy was claimed.
fn claimed(state: State) -> PrScenario {
    let mut scenario = PrScenario::at(state);
    scenario.advance_minutes(130);
    scenario.sweep_with(|live| live.build = Some(BuildStatus::Gone));
    assert!(scenario.record().active_run.is_some(), "{state}: {}", scenario.last().reason);
    scenario
}

#[test]
fn claim_has_run_budget_event_and_command() {
    let scenario = claimed(State::PolicyPassed);
    let (record, last) = (scenario.record(), scenario.last());
    assert_eq!(scenario.state(), State::PolicyPassed);
    assert_eq!(record.retry_counts.retrigger_approver_bot, 1);
    assert_eq!((record.lifetime_remedies, record.remediation_action), (1, Some(Strategy::RetriggerApproverBot)));
    assert_eq!(record.last_requested[&Strategy::RetriggerApproverBot], scenario.now);
    assert_eq!(last.outcome, FactOutcome::Applied);
    assert_eq!(last.reason, "claimed: retrigger Approver Bot");
    let [event] = &last.events[..] else { panic!() };
    assert_eq!((event.kind, event.hop, event.from), (EventKind::RemediationRetriggerApprover, 0, None));
    assert_eq!(event.payload.head, Some(sha('a')));
    assert_eq!(event.payload.name.as_deref(), Some("APPROVER BOT STALE"));
    let [RunChange::Open(run)] = &last.runs[..] else { panic!() };
    assert_eq!((run.state, run.kind), (RunState::Pending, RunKind::Remedy(Strategy::RetriggerApproverBot)));
    assert_eq!((run.trigger, run.head_sha.clone()), (RunTrigger::Reconciler, Some(sha('a'))));
    assert_eq!(run.expects.as_deref(), Some("an approval of this head"));
    let [effect] = &last.effects[..] else { panic!() };
    let EffectKind::Command(message) = &effect.what else { panic!() };
    assert_eq!(effect.id.as_str(), format!("acme/my-app#42#{}#0", event.id));
    assert_eq!((message.command, message.run_id.clone()), (Command::RecheckApproval, Some(run.id.clone())));
    assert_eq!((message.head_sha.clone(), message.pr_number), (Some(sha('a')), 42));
    assert_eq!(message.requested_by, "suture");
    // Threshold of 15 min and backoff of 30 s after the first attempt.
    assert_eq!(record.due_at, Some(scenario.now + minutes(15) + SignedDuration::from_secs(30)));
}

#[test]
fn cooldown_applies_where_the_threshold_is_short() {
    let scenario = claimed(State::Merging);
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(15)), "MERGING's 5 min would be too soon");
}

#[test]
fn remedy_enters_its_post_action_state_and_is_proven_by_its_event() {
    type Step = fn(&mut PrScenario);
    let (helped, no_effect) = (RunEnd::Completed, RunEnd::NoEffect);
    let cases: [(State, State, RunEnd, &str, Step); 6] = [
        (State::Created, State::ChecksRunning, helped, "the checks passed", |t| t.check("build", CheckVerdict::Passed)),
        (State::ChecksFailed, State::ChecksRunning, no_effect, "the checks failed again", |t| {
            t.fail_again("build", None, 8)
        }),
        (State::ChecksPassed, State::PolicyEvaluating, helped, "Policy Bot answered", |t| {
            t.policy_bot(PolicyVerdict::Passed)
        }),
        (State::PolicyFailed, State::PolicyEvaluating, no_effect, "Policy Bot rejected it again", |t| {
            t.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
        }),
        (State::PolicyPassed, State::PolicyPassed, helped, "the approval arrived", |t| t.approve()),
        (State::Approved, State::Merging, helped, "Automerge Bot tried to merge", |t| t.merge_attempt()),
    ];
    for (state, post_action, end, outcome, prove) in cases {
        let mut scenario = claimed(state);
        let claimed_at = scenario.now;
        scenario.advance_minutes(1);
        scenario.remedy_update(RemedyUpdate::Accepted);
        assert_eq!(scenario.state(), post_action, "{state}");
        assert_eq!(scenario.kinds().last(), Some(&EventKind::RemediationAccepted));
        let change = (state != post_action).then_some(post_action);
        assert_eq!(scenario.log.last().unwrap().to, change, "{state}");
        if change.is_some() {
            assert_eq!(scenario.record().state_since, scenario.now);
        }
        let [RunChange::Accepted { deadline, .. }] = &scenario.last().runs[..] else { panic!() };
        assert!(*deadline > scenario.now);
        scenario.remedy_update(RemedyUpdate::Accepted);
        assert_eq!(scenario.outcome(), FactOutcome::Duplicate);
        scenario.advance_minutes(1);
        prove(&mut scenario);
        assert_eq!(scenario.run_end(), Some((end, outcome)), "{state}");
        // A remedy that is answered by the same failure ends, but does not count as healed on the dashboard.
        let healed = scenario.log.iter().filter(|event| event.is_healed()).count();
        assert_eq!(healed, usize::from(end == RunEnd::Completed), "{state}");
        assert_eq!(scenario.record().active_run, None);
        assert_eq!(scenario.record().signals.pending_renewal, None);
        assert_eq!(scenario.record().last_remediation_at, Some(claimed_at));
    }
}

#[test]
fn report_between_claim_and_acceptance_proves_the_remedy() {
    // Policy Bot reports before the Car Bridge has recorded the acceptance.
    let mut scenario = claimed(State::PolicyFailed);
    scenario.advance_minutes(1);
    scenario.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
    assert_eq!(scenario.state(), State::PolicyFailed);
    assert!(scenario.record().active_run.is_some());
    scenario.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(scenario.state(), State::PolicyFailed, "it reported a result, so it is not evaluating any more");
    assert_eq!(scenario.run_end(), Some((RunEnd::NoEffect, "Policy Bot rejected it again")));
    // The same for a build that fails again at once.
    let mut build = claimed(State::ChecksFailed);
    build.advance_minutes(1);
    build.fail_again("build", Some("timeout"), 8);
    build.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(build.state(), State::ChecksFailed);
    assert_eq!(build.run_end(), Some((RunEnd::NoEffect, "the checks failed again")));
}

#[test]
fn report_of_another_check_does_not_restore_the_old_failure() {
    let mut scenario = claimed(State::ChecksFailed);
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.advance_minutes(1);
    scenario.check("lint", CheckVerdict::Passed);
    assert_eq!((scenario.state(), scenario.outcome()), (State::ChecksRunning, FactOutcome::Applied));
    // A snapshot with the old failure does not either, while the run is active.
    let mut github = scenario.github();
    github.signals.checks[0].failure = super::fixture::failed_because(Some("timeout"), "timeout");
    scenario.advance_minutes(1);
    scenario.verify(github);
    assert_eq!(scenario.state(), State::ChecksRunning);
    scenario.advance_minutes(1);
    scenario.rerun("build", CheckVerdict::Passed, 8);
    assert_eq!(scenario.state(), State::ChecksPassed);
}

#[test]
fn report_from_before_an_active_run_corrects_nothing() {
    // A failure at minute 3 was missed; a person rebuilds at minute 10; the sweep at minute 12 sees the old failure.
    let mut scenario = PrScenario::opened();
    scenario.advance_minutes(10);
    scenario.command(Command::Rebuild);
    scenario.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(scenario.state(), State::ChecksRunning);
    let mut github = scenario.github();
    github.signals.checks = vec![run_of("build", CheckVerdict::Failed, scenario.now - minutes(7))];
    scenario.advance_minutes(2);
    github.read_at = scenario.now;
    scenario.verify(github.clone());
    assert_eq!(scenario.state(), State::ChecksRunning);
    // By GitHub's clock a result of the remedy may be a few seconds older than the remedy; it counts.
    let mut quick = scenario.clone();
    let mut soon = github.clone();
    soon.signals.checks = vec![run_of("build", CheckVerdict::Passed, scenario.now - minutes(3))];
    quick.verify(soon);
    assert_eq!(quick.state(), State::ChecksPassed);
    // After the end of the run, the old failure counts.
    scenario.remedy_update(failed());
    scenario.verify(github);
    assert_eq!(scenario.state(), State::ChecksFailed);
}

#[test]
fn dropped_remedy_is_refunded_and_due_at_once() {
    let mut scenario = claimed(State::ChecksFailed);
    scenario.advance_minutes(1);
    scenario.remedy_update(dropped());
    let record = scenario.record();
    assert_eq!((record.retry_counts.rebuild, record.lifetime_remedies), (0, 0));
    assert_eq!((record.last_remediation_at, record.active_run.clone()), (None, None));
    assert_eq!(record.due_at, Some(scenario.now));
    assert_eq!(record.signals.checks[0].renewal, RenewalMark::None);
    assert_eq!(scenario.run_end(), Some((RunEnd::Dropped, "dropped: the head moved")));
    assert_eq!(scenario.kinds().last(), Some(&EventKind::RemediationEnded));
    scenario.remedy_update(dropped());
    assert_eq!(scenario.outcome(), FactOutcome::Ignored, "the second time it is not active any more");
    // A second claim's drop restores the first one's time.
    let mut twice = claimed(State::ChecksFailed);
    let first = twice.now;
    twice.remedy_update(failed());
    twice.advance_minutes(60);
    twice.sweep(twice.github());
    assert_eq!(twice.record().retry_counts.rebuild, 2);
    twice.remedy_update(dropped());
    assert_eq!((twice.record().retry_counts.rebuild, twice.record().last_remediation_at), (1, Some(first)));
    assert_eq!(twice.record().lifetime_remedies, 1);
}

#[test]
fn failed_remedy_keeps_its_cost_and_leaves_the_post_action_state() {
    for (state, post_action) in [
        (State::Created, State::ChecksRunning),
        (State::ChecksFailed, State::ChecksRunning),
        (State::ChecksPassed, State::PolicyEvaluating),
        (State::Approved, State::Merging),
    ] {
        let mut scenario = claimed(state);
        scenario.remedy_update(RemedyUpdate::Accepted);
        assert_eq!(scenario.state(), post_action);
        let progressed_at = scenario.record().state_since;
        scenario.advance_minutes(61);
        scenario.remedy_update(failed());
        assert_eq!(scenario.state(), state, "the signals count again");
        assert_eq!(scenario.record().state_since, progressed_at, "the threshold does not restart");
        let event = scenario.log.last().unwrap();
        assert_eq!(
            (event.kind, event.from, event.to),
            (EventKind::StateDriftCorrected, Some(post_action), Some(state))
        );
        assert!(event.withdraws_assumption(), "no event was missed");
        assert_eq!(scenario.record().lifetime_remedies, 1);
        assert_eq!(scenario.run_end(), Some((RunEnd::Failed, "failed: Jenkins answered 500")));
        assert_eq!(scenario.record().due_at, Some(scenario.now));
        // The next verification finds no drift.
        let events = scenario.log.len();
        scenario.verify(scenario.github());
        assert_eq!((scenario.state(), scenario.log.len()), (state, events));
    }
}

#[test]
fn failed_remedy_keeps_a_state_that_was_reported() {
    let mut scenario = claimed(State::PolicyPassed);
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.advance_minutes(20);
    scenario.remedy_update(failed());
    assert_eq!((scenario.state(), scenario.log.last().unwrap().to), (State::PolicyPassed, None));
}

#[test]
fn new_head_cancels_the_remedy_of_the_old_head() {
    let mut scenario = claimed(State::ChecksFailed);
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.advance_minutes(1);
    scenario.push('b', false);
    assert_eq!(scenario.run_end(), Some((RunEnd::Cancelled, "the head moved to bbbbbbb")));
    assert_eq!(scenario.record().active_run, None);
    assert_eq!(scenario.record().retry_counts.rebuild, 1, "it was executed, so the budget is spent");
    // Not accepted yet: it is refunded, and a later update of the Car Bridge is ignored.
    let mut pending = claimed(State::ChecksFailed);
    pending.push('b', false);
    assert_eq!(pending.run_end(), Some((RunEnd::Cancelled, "the head moved to bbbbbbb")));
    assert_eq!((pending.record().retry_counts.rebuild, pending.record().lifetime_remedies), (0, 0));
    assert!(pending.record().last_requested.is_empty());
    pending.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(pending.outcome(), FactOutcome::Ignored);
    // A branch update may be the cause of the push, so it is kept until the Car Bridge reports.
    let mut update = PrScenario::at(State::Approved);
    update.advance_minutes(10);
    update.sweep_with(|live| live.behind_by = Some(3));
    update.push('b', true);
    assert!(update.record().active_run.is_some());
    update.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(update.run_end(), Some((RunEnd::Completed, "the head moved to bbbbbbb")));
    // Accepted for an old head: the run ends, and the new head does not change.
    let mut late = claimed(State::ChecksFailed);
    late.record_mut().head_sha = sha('b');
    late.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(late.run_end(), Some((RunEnd::Cancelled, "the head moved to bbbbbbb")));
    assert_eq!((late.state(), late.record().active_run.clone()), (State::ChecksFailed, None));
}

#[test]
fn branch_update_is_proven_by_a_new_head_and_reset_by_foreign_pushes_only() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.advance_minutes(10);
    let behind = |live: &mut LiveStatus| live.behind_by = Some(3);
    assert_eq!(scenario.sweep_with(behind), Some(Classification::UpdateBranch));
    scenario.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(scenario.state(), State::ChecksRunning);
    scenario.advance_minutes(1);
    scenario.push('b', true);
    assert_eq!(scenario.run_end(), Some((RunEnd::Completed, "the head moved to bbbbbbb")));
    assert_eq!(scenario.record().retry_counts.branch_update, 1, "our own push resets nothing");
    scenario.advance_minutes(1);
    scenario.push('c', false);
    assert_eq!(scenario.record().retry_counts.branch_update, 0);
    // A push during Suture's branch update may be that update, whatever the payload says.
    let mut unsure = PrScenario::at(State::Approved);
    unsure.advance_minutes(10);
    unsure.sweep_with(behind);
    unsure.remedy_update(RemedyUpdate::Accepted);
    unsure.push('b', false);
    assert_eq!(unsure.record().retry_counts.branch_update, 1);
    // If the push event is lost, the sweep finds the proof.
    let mut lost = PrScenario::at(State::Approved);
    lost.advance_minutes(10);
    lost.sweep_with(behind);
    lost.remedy_update(RemedyUpdate::Accepted);
    lost.advance_minutes(2);
    let mut github = lost.github();
    github.details = described(&sha('b'));
    github.signals = crate::signals::Signals::default();
    lost.verify(github);
    assert_eq!(lost.run_end(), Some((RunEnd::Completed, "the head moved to bbbbbbb")));
    assert_eq!((lost.state(), lost.record().retry_counts.branch_update), (State::ChecksRunning, 1));
}

#[test]
fn merge_or_close_ends_the_active_remedy() {
    let merged = || FactKind::Merged { by: None, by_automerge_bot: true };
    let mut scenario = claimed(State::Approved);
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.apply(merged());
    assert_eq!(scenario.run_end(), Some((RunEnd::Completed, "merged")));
    let mut accepted_rebuild = claimed(State::ChecksFailed);
    accepted_rebuild.remedy_update(RemedyUpdate::Accepted);
    accepted_rebuild.apply(merged());
    assert_eq!(accepted_rebuild.run_end(), Some((RunEnd::Completed, "merged")), "the bot merges only passed checks");
    let mut pending = claimed(State::Approved);
    pending.apply(merged());
    assert_eq!(pending.run_end(), Some((RunEnd::Cancelled, "the pull request is MERGED")), "it was never executed");
    let mut rebuild = claimed(State::ChecksFailed);
    rebuild.apply(merged());
    assert_eq!(rebuild.run_end(), Some((RunEnd::Cancelled, "the pull request is MERGED")));
    let mut closed = claimed(State::Approved);
    closed.apply(FactKind::Closed { by: None, why: None });
    assert_eq!(closed.run_end(), Some((RunEnd::Cancelled, "the pull request is CLOSED")));
    assert_eq!(closed.record().substatus, None);
}

fn conflicting(live: &mut LiveStatus) {
    live.mergeable = Mergeability::Conflicting;
}

#[test]
fn close_and_reopen_continues_after_the_close() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.advance_minutes(10);
    assert_eq!(scenario.sweep_with(conflicting), Some(Classification::CloseAndReopen));
    assert_eq!(scenario.vulnerability_updates(), [VulnerabilityUpdate::CountReopen]);
    assert_eq!(scenario.record().retry_counts.close_and_reopen, 1);
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Closed { by: Some("suture[bot]".into()), why: None });
    assert_eq!((scenario.state(), scenario.record().substatus), (State::Closed, Some(Substatus::Replaced)));
    assert!(scenario.record().active_run.is_some(), "the replacement is still expected");
    scenario.remedy_update(RemedyUpdate::Accepted);
    assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Applied, State::Closed));
    scenario.remedy_update(failed());
    assert_eq!((scenario.outcome(), scenario.state()), (FactOutcome::Applied, State::Closed));
    assert_eq!((scenario.record().due_at, scenario.record().verify_reason.clone()), (None, None));
    // Found closed by the sweep: also REPLACED.
    let mut missed = PrScenario::at(State::Approved);
    missed.advance_minutes(10);
    missed.sweep_with(conflicting);
    let life = crate::snapshot::PullRequestState::Closed { at: missed.now };
    missed.verify(crate::snapshot::Snapshot { state: life, ..missed.github() });
    assert_eq!(missed.record().substatus, Some(Substatus::Replaced));
    // Reopened by a person meanwhile: the remedy is cancelled.
    scenario.advance_minutes(1);
    scenario.apply(FactKind::Reopened(described(&sha('a'))));
    assert_eq!(scenario.record().active_run, None);
    // Dropped: the budget of the vulnerability is refunded too.
    let mut back = PrScenario::at(State::Approved);
    back.advance_minutes(10);
    back.sweep_with(conflicting);
    back.remedy_update(dropped());
    assert_eq!(back.vulnerability_updates(), [VulnerabilityUpdate::RefundReopen]);
    assert_eq!(back.record().retry_counts.close_and_reopen, 0);
}

#[test]
fn duplicate_guard_waits_24_hours_then_escalates() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.vulnerability.open.insert(77);
    scenario.advance_minutes(10);
    assert_eq!(scenario.sweep_with(conflicting), Some(Classification::CloseAndReopen));
    assert_eq!(scenario.last().reason, "no action: duplicate PR exists: #77");
    assert_eq!((scenario.last().effects.len(), scenario.record().retry_counts.close_and_reopen), (0, 0));
    let first = scenario.now;
    assert_eq!(scenario.record().due_at, Some(first + minutes(24 * 60)));
    let event = scenario.log.last().unwrap();
    assert_eq!((event.kind, event.payload.name.as_deref()), (EventKind::DuplicateExists, Some("#77")));
    assert_eq!(event.payload.text, "duplicate PR exists: #77");
    scenario.advance_minutes(24 * 60 - 1);
    scenario.sweep_with(conflicting);
    let duplicates =
        |scenario: &PrScenario| scenario.kinds().iter().filter(|k| **k == EventKind::DuplicateExists).count();
    assert_eq!(duplicates(&scenario), 1, "once per cause, not at each visit");
    let mut other = scenario.clone();
    other.vulnerability.open = [42, 78].into();
    other.sweep_with(conflicting);
    assert_eq!(duplicates(&other), 2, "another pull request is another cause");
    assert_eq!((scenario.state(), scenario.record().due_at), (State::Approved, Some(first + minutes(24 * 60))));
    scenario.advance_minutes(1);
    scenario.sweep_with(conflicting);
    assert_eq!(scenario.state(), State::NeedsIntervention);
    assert!(
        scenario
            .record()
            .blocked
            .as_ref()
            .unwrap()
            .reason
            .starts_with("duplicate PR exists: #77 has been open for 24 hours")
    );
}

#[test]
fn duplicate_blocks_only_as_long_as_the_conflict_lasts() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.vulnerability.open.insert(77);
    scenario.advance_minutes(10);
    scenario.sweep_with(conflicting);
    assert!(scenario.record().blocked.is_some());
    scenario.advance_minutes(24 * 60);
    let mut github = scenario.github();
    github.live.mergeable = Mergeability::Unknown;
    scenario.verify(github);
    assert!(scenario.record().blocked.is_some(), "unknown resolves nothing");
    scenario.verify(scenario.github());
    assert_eq!(scenario.record().blocked, None);
    scenario.sweep_with(conflicting);
    assert_eq!(scenario.state(), State::Approved, "another conflict waits for another day");
}

#[test]
fn conflict_escalates_without_or_with_abandoned_vulnerability() {
    let mut unknown = PrScenario::at(State::Approved);
    unknown.record_mut().vulnerability_id = None;
    unknown.advance_minutes(10);
    unknown.sweep_with(conflicting);
    assert_eq!(unknown.state(), State::NeedsIntervention);
    assert!(unknown.record().blocked.as_ref().unwrap().reason.contains("no vulnerability id"));
    let mut abandoned = PrScenario::at(State::Approved);
    abandoned.vulnerability.abandoned = true;
    abandoned.advance_minutes(10);
    abandoned.sweep_with(conflicting);
    assert!(abandoned.record().blocked.as_ref().unwrap().reason.contains("abandoned this vulnerability"));
    let mut spent = PrScenario::at(State::Approved);
    spent.vulnerability = Vulnerability { open: [42].into(), close_and_reopen: 1, ..Vulnerability::default() };
    spent.advance_minutes(10);
    assert_eq!(spent.sweep_with(conflicting), Some(Classification::NeedsIntervention));
    let reason = &spent.record().blocked.as_ref().unwrap().reason;
    assert_eq!(reason, "Retry budget exhausted for close_and_reopen (1/1)");
}

#[test]
fn escalation_mails_the_reason_once() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.fail("build", None, "3 tests failed");
    scenario.advance_minutes(30);
    assert_eq!(scenario.sweep(scenario.github()), Some(Classification::NeedsIntervention));
    assert_eq!(scenario.state(), State::NeedsIntervention);
    let blocked = scenario.record().blocked.clone().unwrap();
    assert_eq!((blocked.state, blocked.reason.as_str()), (State::ChecksFailed, "`build` failed: 3 tests failed"));
    let event = scenario.log.last().unwrap();
    assert_eq!((event.kind, event.to), (EventKind::EscalatedNeedsIntervention, Some(State::NeedsIntervention)));
    assert_eq!(event.payload.name.as_deref(), Some("CHECKS FAILED — PERSISTENT"));
    let [effect] = &scenario.last().effects[..] else { panic!() };
    let EffectKind::Notice(notice) = &effect.what else { panic!() };
    assert_eq!(notice.subject, "Suture: #42 needs a person: CHECKS FAILED - PERSISTENT (acme/my-app)");
    assert!(notice.body.contains("https://github.com/acme/my-app/pull/42"));
    assert!(notice.body.contains("CVE-2026-1234"));
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(24 * 60)), "verified daily, never remedied");
    scenario.advance_minutes(24 * 60);
    assert_eq!(scenario.sweep(scenario.github()), None);
    assert_eq!(scenario.state(), State::NeedsIntervention);
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(24 * 60)));
}

fn escalated() -> PrScenario {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.fail("build", None, "3 tests failed");
    scenario.record_mut().retry_counts.branch_update = 2;
    scenario.record_mut().retry_counts.close_and_reopen = 1;
    scenario.record_mut().lifetime_remedies = 9;
    scenario.advance_minutes(30);
    scenario.sweep(scenario.github());
    assert_eq!(scenario.state(), State::NeedsIntervention);
    scenario.advance_minutes(1);
    scenario
}

fn assert_fresh(scenario: &PrScenario) {
    let record = scenario.record();
    assert_eq!((record.retry_counts.branch_update, record.lifetime_remedies), (0, 0));
    assert_eq!(record.retry_counts.close_and_reopen, 1, "this one never resets");
    assert_eq!(record.blocked, None);
}

#[test]
fn needs_intervention_is_left_by_push_facts_commands_merge_or_close() {
    // A push by anybody but Suture.
    let mut push = escalated();
    push.push('b', false);
    assert_eq!(push.state(), State::ChecksRunning);
    assert_fresh(&push);
    let mut ours = escalated();
    ours.push('b', true);
    assert_eq!((ours.state(), &ours.record().head_sha), (State::NeedsIntervention, &sha('b')));
    // A fact that disproves the cause; any other fact is only logged.
    let mut fact = escalated();
    fact.policy_bot(PolicyVerdict::Passed);
    assert_eq!((fact.state(), fact.outcome()), (State::NeedsIntervention, FactOutcome::Applied));
    fact.rerun("build", CheckVerdict::Running, 8);
    assert_eq!(fact.state(), State::NeedsIntervention, "a new build proves nothing yet");
    assert_eq!(
        fact.record().substatus,
        Some(Substatus::Persistent),
        "the substatus is that of the state before the escalation"
    );
    fact.advance_minutes(1);
    fact.rerun("build", CheckVerdict::Passed, 8);
    assert_eq!((fact.state(), fact.outcome()), (State::PolicyPassed, FactOutcome::Applied));
    assert_fresh(&fact);
    // The same by a snapshot.
    let mut seen = escalated();
    let mut github = seen.github();
    github.signals.checks = vec![CheckReport { id: Some(8), ..run_of("build", CheckVerdict::Passed, seen.now) }];
    seen.verify(github);
    assert_eq!(seen.state(), State::ChecksPassed);
    assert_eq!(seen.kinds().last(), Some(&EventKind::StateDriftCorrected));
    assert_fresh(&seen);
    let mut moved = escalated();
    let mut github = moved.github();
    github.details = described(&sha('b'));
    github.signals = crate::signals::Signals::default();
    moved.advance_minutes(5);
    github.read_at = moved.now;
    moved.verify(github);
    assert_eq!(moved.state(), State::ChecksRunning);
    // Merge and close.
    let mut merged = escalated();
    merged.apply(FactKind::Merged { by: None, by_automerge_bot: false });
    assert_eq!(merged.state(), State::Merged);
    // A person's command, and /resume.
    let mut rebuild = escalated();
    rebuild.command(Command::Rebuild);
    assert_eq!((rebuild.outcome(), rebuild.state()), (FactOutcome::Applied, State::ChecksFailed));
    assert_fresh(&rebuild);
    assert_eq!(rebuild.log.last().unwrap().to, Some(State::ChecksFailed));
    let mut resume = escalated();
    resume.command(Command::Resume);
    assert_eq!((resume.state(), resume.record().due_at), (State::ChecksFailed, Some(resume.now)));
    assert_fresh(&resume);
    let mut status = escalated();
    status.command(Command::Status);
    assert_eq!(status.state(), State::NeedsIntervention);
}

#[test]
fn human_command_spends_no_budget_and_replaces_the_active_remedy() {
    let mut scenario = claimed(State::ChecksFailed);
    scenario.command(Command::Rebuild);
    assert_eq!(scenario.outcome(), FactOutcome::Refused);
    assert!(scenario.last().reason.contains("already in progress"), "{}", scenario.last().reason);
    assert_eq!(scenario.log.last().unwrap().payload.text, format!("refused: {}", scenario.last().reason));
    scenario.command(Command::UpdateBranch);
    assert_eq!(scenario.run_end(), Some((RunEnd::Cancelled, "replaced by `/update-branch` of danny")));
    let run = scenario.record().active_run.clone().unwrap();
    assert_eq!((run.strategy, run.human), (Strategy::BranchUpdate, true));
    assert_eq!((scenario.record().retry_counts.branch_update, scenario.record().lifetime_remedies), (0, 0));
    assert_eq!(
        (scenario.record().retry_counts.rebuild, scenario.record().remediation_action),
        (0, None),
        "it was never executed"
    );
    let Some(RunChange::Open(opened)) = scenario.last().runs.last() else { panic!() };
    assert_eq!((opened.trigger, opened.requested_by.as_deref()), (RunTrigger::PrComment, Some("danny")));
    assert_eq!(scenario.log.last().unwrap().payload.run, Some(run.id));
    scenario.record_mut().lifetime_remedies = 5;
    scenario.remedy_update(dropped());
    assert_eq!(scenario.record().lifetime_remedies, 5, "no budget was spent, none is refunded");
}

/// `/update-branch` and `/rebuild` in one comment: the second one cancelled the first one before it was executed.
#[test]
fn command_waits_until_the_earlier_command_was_accepted() {
    let mut scenario = PrScenario::at(State::ChecksFailed);
    scenario.command(Command::Rebuild);
    let rebuild = scenario.record().active_run.clone().unwrap();
    let (version, logged) = (scenario.record().version, scenario.log.len());
    for command in [Command::UpdateBranch, Command::CloseAndReopen] {
        scenario.command(command);
        assert_eq!(
            (scenario.outcome(), scenario.last().reason.as_str()),
            (FactOutcome::Deferred, "`/rebuild` is in progress")
        );
    }
    assert_eq!((scenario.record().version, scenario.log.len()), (version, logged), "nothing is recorded");
    scenario.command_by(Command::UpdateBranch, CommandSource::PrComment, Err("no".to_owned()));
    assert_eq!(scenario.outcome(), FactOutcome::Refused, "a command without permission does not wait");
    scenario.command(Command::Hold);
    assert_eq!(scenario.outcome(), FactOutcome::Applied, "a command without a run does not wait");
    assert_eq!(scenario.record().active_run.as_ref(), Some(&rebuild));
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.command(Command::UpdateBranch);
    assert_eq!(scenario.outcome(), FactOutcome::Applied);
    assert_eq!(scenario.run_end(), Some((RunEnd::Cancelled, "replaced by `/update-branch` of danny")));
    assert_eq!(scenario.log.last().unwrap().payload.text, "accepted, replaces rebuild");
}

/// A rebuild of the old head would have no effect.
#[test]
fn command_waits_for_the_new_head_of_a_branch_update() {
    let mut scenario = PrScenario::at(State::ChecksFailed);
    scenario.command(Command::UpdateBranch);
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.command(Command::Rebuild);
    assert_eq!(scenario.outcome(), FactOutcome::Deferred);
    scenario.push('b', true);
    scenario.command(Command::Rebuild);
    assert_ne!(scenario.outcome(), FactOutcome::Deferred, "{}", scenario.last().reason);
}

#[test]
fn impossible_or_forbidden_command_is_refused_and_logged() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.command(Command::Merge);
    assert_eq!(
        (scenario.outcome(), scenario.kinds().last()),
        (FactOutcome::Refused, Some(&EventKind::CommandReceived))
    );
    assert!(scenario.last().reason.contains("APPROVED"), "{}", scenario.last().reason);
    scenario.command(Command::Rebuild);
    assert_eq!(scenario.outcome(), FactOutcome::Refused, "a build is running");
    let asked = CommandRequest {
        command: Command::UpdateBranch,
        source: CommandSource::PrComment,
        by: "mallory".into(),
        permission: Err("`/update-branch` needs write access".into()),
        run: RunId::new("r"),
        args: String::new(),
        comment: None,
    };
    scenario.apply(FactKind::CommandRequested(Box::new(asked)));
    assert_eq!(
        (scenario.outcome(), scenario.last().reason.as_str()),
        (FactOutcome::Refused, "`/update-branch` needs write access")
    );
    assert_eq!(scenario.record().active_run, None);
    scenario.command(Command::Cancel);
    assert_eq!(
        (scenario.outcome(), scenario.state()),
        (FactOutcome::Applied, State::ChecksRunning),
        "the Car Bridge closes it"
    );
    let [RunChange::Open(run)] = &scenario.last().runs[..] else { panic!() };
    assert_eq!((run.kind, run.requested_by.as_deref()), (RunKind::Abandon, Some("danny")));
    scenario.command(Command::Cancel);
    assert_eq!(scenario.outcome(), FactOutcome::Refused, "already in progress");
    // Commands on terminal pull requests get a reply too.
    for state in [State::Merged, State::Closed] {
        let mut over = PrScenario::at(state);
        over.command(Command::Rebuild);
        assert_eq!((over.outcome(), over.state()), (FactOutcome::Refused, state));
        assert_eq!(over.kinds().last(), Some(&EventKind::CommandReceived));
    }
}

#[test]
fn observe_mode_logs_each_decision_once_and_takes_no_action() {
    let mut scenario = PrScenario::at(State::ChecksFailed);
    scenario.policy.mode = Mode::Observe;
    scenario.advance_minutes(30);
    assert_eq!(scenario.sweep(scenario.github()), Some(Classification::RetryChecks));
    assert_eq!(scenario.kinds().last(), Some(&EventKind::WouldRemedy));
    assert!(scenario.last().effects.is_empty() && scenario.last().runs.is_empty());
    assert_eq!((scenario.record().retry_counts.rebuild, scenario.record().lifetime_remedies), (0, 0));
    assert_eq!((scenario.state(), scenario.record().last_remediation_at), (State::ChecksFailed, None));
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(30)));
    let events = scenario.log.len();
    scenario.advance_minutes(30);
    scenario.sweep(scenario.github());
    assert_eq!(scenario.log.len(), events, "the same decision is logged once");
    scenario.advance_minutes(30);
    scenario.sweep_with(conflicting);
    assert_eq!(scenario.log.len(), events + 1, "another decision is logged");
    scenario.fail_again("build", None, 8);
    scenario.advance_minutes(30);
    scenario.sweep(scenario.github());
    assert_eq!((scenario.kinds().last(), scenario.state()), (Some(&EventKind::WouldEscalate), State::ChecksFailed));
    scenario.command(Command::Rebuild);
    assert_eq!(scenario.outcome(), FactOutcome::Refused);
    assert!(scenario.last().reason.starts_with("observe mode"));
    scenario.command(Command::Cancel);
    assert_eq!(scenario.outcome(), FactOutcome::Refused);
    scenario.command(Command::Hold);
    assert_eq!(scenario.outcome(), FactOutcome::Applied);
}

#[test]
fn diagnosis_of_an_old_record_is_superseded() {
    let mut scenario = PrScenario::at(State::ChecksFailed);
    scenario.advance_minutes(30);
    let diagnosis = scenario.diagnose(None);
    let found = |diagnosis| {
        FactKind::Diagnosed(Box::new(crate::event::DiagnosisFact {
            diagnosis,
            run: RunId::new("r"),
            vulnerability: None,
            history: crate::text::EscalationHistory::default(),
        }))
    };
    let mut head = scenario.clone();
    head.push('b', false);
    head.record_mut().state = State::ChecksFailed;
    head.apply(found(diagnosis.clone()));
    assert_eq!(head.outcome(), FactOutcome::Superseded);
    let mut state = scenario.clone();
    state.rerun("build", CheckVerdict::Running, 8);
    state.apply(found(diagnosis.clone()));
    assert_eq!(state.outcome(), FactOutcome::Superseded);
    let mut held = scenario.clone();
    held.command(Command::Hold);
    held.apply(found(diagnosis.clone()));
    assert_eq!((held.outcome(), held.last().effects.len()), (FactOutcome::Applied, 0));
    scenario.apply(found(diagnosis.clone()));
    assert_eq!(scenario.last().effects.len(), 1);
    scenario.apply(found(diagnosis));
    assert_eq!(
        (scenario.last().effects.len(), scenario.last().reason.as_str()),
        (0, "no action: a remedy is in progress")
    );
}

#[test]
fn running_jenkins_build_is_checked_again_later() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.advance_minutes(70);
    let since = scenario.now - minutes(70);
    assert_eq!(
        scenario.sweep_with(|live| live.build = Some(BuildStatus::Building { since })),
        Some(Classification::NoAction)
    );
    assert_eq!(scenario.record().due_at, Some(scenario.now + minutes(10)));
    assert_eq!(scenario.record().skips, 0);
}

#[test]
fn jenkins_unreachable_three_times_escalates() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.advance_minutes(70);
    let unreachable = |live: &mut LiveStatus| live.build = Some(BuildStatus::Unreachable);
    for (visits, secs) in [(1, 30), (2, 60), (3, 120)] {
        // Only Jenkins is unreachable, not GitHub.
        assert_eq!(scenario.sweep_with(unreachable), Some(Classification::NoAction));
        assert_eq!((scenario.record().inconclusive_visits, scenario.record().skips), (visits, 0));
        assert_eq!(scenario.record().due_at, Some(scenario.now + SignedDuration::from_secs(secs)));
        scenario.advance_minutes(10);
    }
    // A response in between resets the count.
    let mut answered = scenario.clone();
    let since = answered.now - minutes(70);
    answered.sweep_with(|live| live.build = Some(BuildStatus::Building { since }));
    assert_eq!(answered.record().inconclusive_visits, 0);
    assert_eq!(scenario.sweep_with(unreachable), Some(Classification::NeedsIntervention));
    assert_eq!(scenario.state(), State::NeedsIntervention);
    assert_eq!(scenario.record().inconclusive_visits, 0);
}

/// Repeats a remedy until NEEDS_INTERVENTION. Returns the number of claims and the reason.
fn repeat_until_escalated(mut scenario: PrScenario, mut round: impl FnMut(&mut PrScenario, u64)) -> (u32, String) {
    for claims in 0..40 {
        scenario.advance_minutes(200);
        scenario.sweep_with(|live| {
            live.build = Some(BuildStatus::Gone);
        });
        if scenario.state() == State::NeedsIntervention {
            return (claims, scenario.record().blocked.clone().unwrap().reason);
        }
        assert!(scenario.record().active_run.is_some(), "after {claims} claims: {}", scenario.last().reason);
        scenario.remedy_update(RemedyUpdate::Accepted);
        scenario.advance_minutes(5);
        round(&mut scenario, u64::from(claims));
    }
    panic!("this loop never ends");
}

#[test]
fn loops_of_remedies_end_at_their_budgets() {
    // The checks keep failing transiently.
    let (claims, why) = repeat_until_escalated(PrScenario::at(State::ChecksFailed), |scenario, n| {
        scenario.fail_again("build", Some("timeout"), 10 + n)
    });
    assert_eq!((claims, why.as_str()), (3, "Retry budget exhausted for rebuild (3/3)"));

    // SOD keeps failing: the same failure must not reset its own budget.
    let (claims, why) = repeat_until_escalated(PrScenario::at(State::PolicyFailed), |scenario, _| {
        scenario.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
    });
    assert_eq!((claims, why.as_str()), (1, "Retry budget exhausted for retrigger_sod_check (1/1)"));

    // Policy Bot never reports.
    let (claims, why) =
        repeat_until_escalated(PrScenario::at(State::ChecksPassed), |scenario, _| scenario.remedy_update(failed()));
    assert_eq!((claims, why.as_str()), (2, "Retry budget exhausted for retrigger_policy_bot (2/2)"));

    // Approver Bot never reports.
    let (claims, why) =
        repeat_until_escalated(PrScenario::at(State::PolicyPassed), |scenario, _| scenario.remedy_update(failed()));
    assert_eq!((claims, why.as_str()), (2, "Retry budget exhausted for retrigger_approver_bot (2/2)"));

    // Every merge attempt fails: reaching MERGING must not reset the budget of the strategy that leads there.
    let (claims, why) = repeat_until_escalated(PrScenario::at(State::Approved), |scenario, _| {
        let report = MergeReport { failed: true, at: scenario.now, text: "no".into(), renewal: RenewalMark::None };
        scenario.apply(FactKind::Merge { head: sha('a'), report });
        scenario.verify(scenario.github());
        assert_eq!(scenario.state(), State::Approved);
    });
    assert_eq!((claims, why.as_str()), (2, "Retry budget exhausted for retrigger_automerge_bot (2/2)"));
}

/// A branch that is always behind, whose checks have this result after each update. Returns the number of updates and
/// the reason of the escalation.
fn always_behind(checks: CheckVerdict) -> (usize, String) {
    let mut scenario = PrScenario::at(State::Approved);
    for (n, head) in "bcdef0123456789".chars().enumerate() {
        scenario.advance_minutes(200);
        scenario.sweep_with(|live| live.behind_by = Some(1));
        if scenario.state() == State::NeedsIntervention {
            return (n, scenario.record().blocked.as_ref().unwrap().reason.clone());
        }
        scenario.remedy_update(RemedyUpdate::Accepted);
        scenario.push(head, true);
        scenario.advance_minutes(1);
        // A reset by CHECKS_RUNNING would make the loop endless (R-BUDGET-3).
        scenario.check("build", checks);
        scenario.policy_bot(PolicyVerdict::Passed);
        let approval = approved(scenario.now);
        scenario.apply(FactKind::Approval { head: scenario.head.clone(), approval });
    }
    panic!("this loop never ends");
}

#[test]
fn branch_updates_with_green_checks_end_at_the_lifetime_cap() {
    assert_eq!(always_behind(CheckVerdict::Passed), (12, "Retry budget exhausted for lifetime (12/12)".to_owned()));
}

#[test]
fn branch_updates_with_failed_checks_end_at_their_budget() {
    assert_eq!(always_behind(CheckVerdict::Failed), (2, "Retry budget exhausted for branch_update (2/2)".to_owned()));
}

#[test]
fn successful_remedies_end_at_the_lifetime_cap() {
    // Each rebuild succeeds and resets its own budget, then the checks fail again: only the lifetime cap ends the loop.
    let (claims, why) = repeat_until_escalated(PrScenario::at(State::ChecksFailed), |scenario, n| {
        scenario.rerun("build", CheckVerdict::Passed, 100 + 2 * n);
        assert_eq!(scenario.state(), State::ChecksPassed);
        scenario.advance_minutes(1);
        scenario.fail_again("build", Some("timeout"), 101 + 2 * n);
        scenario.verify(scenario.github());
        assert_eq!((scenario.state(), scenario.record().retry_counts.rebuild), (State::ChecksFailed, 0));
    });
    assert_eq!((claims, why.as_str()), (12, "Retry budget exhausted for lifetime (12/12)"));
}

#[test]
fn policy_bot_report_resets_its_own_budget() {
    let mut scenario = claimed(State::ChecksPassed);
    scenario.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(scenario.record().retry_counts.retrigger_policy_bot, 1);
    scenario.advance_minutes(1);
    let report = policy_says(PolicyVerdict::Failed(Substatus::OtherPolicyFailure), scenario.now);
    scenario.apply(FactKind::Policy { head: sha('a'), report });
    assert_eq!((scenario.state(), scenario.record().retry_counts.retrigger_policy_bot), (State::PolicyFailed, 0));
}

#[test]
fn failed_optional_check_does_not_block_the_proof_of_a_rebuild() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.record_mut().required_checks = vec!["build".to_owned()];
    scenario.fail("coverage", None, "79 %");
    scenario.fail("build", Some("timeout"), "timeout");
    scenario.advance_minutes(30);
    scenario.sweep(scenario.github());
    scenario.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(scenario.state(), State::ChecksRunning);
    scenario.advance_minutes(5);
    scenario.rerun("build", CheckVerdict::Passed, 8);
    assert_eq!((scenario.state(), scenario.record().active_run.clone()), (State::ChecksPassed, None));
}

#[test]
fn drops_in_a_row_have_growing_backoff() {
    let mut scenario = claimed(State::ChecksFailed);
    for secs in [0, 30, 60, 120] {
        scenario.remedy_update(dropped());
        assert_eq!(
            scenario.record().stale_at(&scenario.policy),
            Some((scenario.now + SignedDuration::from_secs(secs)).max(minute_35()))
        );
        assert_eq!(scenario.record().due_at, Some(scenario.now), "verification is still due at once");
        scenario.verify(scenario.github());
        scenario.advance_minutes(3);
        scenario.sweep(scenario.github());
        assert!(scenario.record().active_run.is_some());
    }
    scenario.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(scenario.record().dropped, None, "a state change resets the count");
}

/// When the failure of `claimed(ChecksFailed)` becomes stale.
fn minute_35() -> jiff::Timestamp {
    super::fixture::start() + minutes(32)
}

#[test]
fn drop_restores_the_previous_remedy_times() {
    let mut scenario = claimed(State::ChecksFailed);
    let first = scenario.now;
    scenario.remedy_update(failed());
    scenario.advance_minutes(60);
    scenario.sweep_with(|live| live.behind_by = Some(1));
    let record = scenario.record();
    assert_eq!((record.remediation_action, record.last_requested.len()), (Some(Strategy::BranchUpdate), 2));
    scenario.remedy_update(dropped());
    let record = scenario.record();
    assert_eq!((record.remediation_action, record.last_remediation_at), (Some(Strategy::Rebuild), Some(first)));
    assert_eq!(record.last_requested.get(&Strategy::Rebuild), Some(&first));
    assert_eq!(record.last_requested.get(&Strategy::BranchUpdate), None);
}

#[test]
fn permanent_refusal_is_not_retried() {
    let mut scenario = claimed(State::ChecksFailed);
    scenario
        .remedy_update(RemedyUpdate::Failed { error: "403: no such job".into(), failure: AttemptFailure::Forbidden });
    assert_eq!(scenario.record().refused.as_ref().unwrap().strategy, Strategy::Rebuild);
    scenario.advance_minutes(60);
    assert_eq!(scenario.sweep(scenario.github()), Some(Classification::RetryChecks));
    assert_eq!(scenario.state(), State::NeedsIntervention);
    let reason = &scenario.record().blocked.as_ref().unwrap().reason;
    assert_eq!(reason, "rebuild was refused permanently: 403: no such job");
    // Another strategy is still tried.
    let mut other = claimed(State::ChecksFailed);
    other.remedy_update(RemedyUpdate::Failed { error: "403".into(), failure: AttemptFailure::Forbidden });
    other.advance_minutes(60);
    assert_eq!(other.sweep_with(|live| live.behind_by = Some(1)), Some(Classification::UpdateBranch));
    assert!(other.record().active_run.is_some());
}

#[test]
fn missing_proof_fails_the_remedy() {
    let mut scenario = claimed(State::ChecksFailed);
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.advance_minutes(60);
    scenario.remedy_update(RemedyUpdate::Overdue);
    assert_eq!(scenario.run_end(), Some((RunEnd::Failed, "failed: new results of the checks did not arrive in time")));
    assert_eq!((scenario.state(), scenario.record().refused.clone()), (State::ChecksFailed, None));
}

#[test]
fn replacement_is_requested_twice_then_a_person_is_notified() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.advance_minutes(10);
    scenario.sweep_with(conflicting);
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.apply(FactKind::Closed { by: None, why: None });
    scenario.advance_minutes(60);
    scenario.remedy_update(RemedyUpdate::Overdue);
    assert_eq!(scenario.last().reason, "replacement requested again from CodeGenie");
    let [effect] = &scenario.last().effects[..] else { panic!() };
    assert!(
        matches!(&effect.what, EffectKind::Command(m) if m.command == Command::CloseAndReopen && m.run_id.is_some())
    );
    let [RunChange::Accepted { deadline, .. }] = &scenario.last().runs[..] else { panic!() };
    assert_eq!(*deadline, scenario.now + minutes(60));
    scenario.advance_minutes(60);
    scenario.remedy_update(RemedyUpdate::Overdue);
    assert_eq!(scenario.run_end().map(|(end, _)| end), Some(RunEnd::Failed));
    let [effect] = &scenario.last().effects[..] else { panic!() };
    let EffectKind::Notice(notice) = &effect.what else { panic!() };
    assert_eq!(notice.subject, "Suture: no pull request for CVE-2026-1234 (acme/my-app)");
    assert!(notice.body.contains("reopen #42"), "{}", notice.body);
    assert_eq!(scenario.state(), State::Closed);
}

/// A pull request that Suture closed because of a conflict; its replacement is not requested yet.
fn closed_for_replacement() -> PrScenario {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.advance_minutes(10);
    scenario.sweep_with(conflicting);
    scenario.apply(FactKind::Closed { by: None, why: None });
    assert_eq!((scenario.state(), scenario.record().substatus), (State::Closed, Some(Substatus::Replaced)));
    scenario
}

/// Regression: only a failed run called a person, so a dropped one left the vulnerability without a pull request.
#[test]
fn person_is_notified_when_a_closed_pull_request_loses_its_run() {
    for update in [dropped(), failed()] {
        let mut scenario = closed_for_replacement();
        scenario.remedy_update(update.clone());
        let [effect] = &scenario.last().effects[..] else { panic!("{update:?}: {:?}", scenario.last().effects) };
        let EffectKind::Notice(notice) = &effect.what else { panic!("{update:?}") };
        assert_eq!(notice.subject, "Suture: no pull request for CVE-2026-1234 (acme/my-app)");
    }
    let mut open = PrScenario::at(State::Approved);
    open.advance_minutes(10);
    open.sweep_with(conflicting);
    open.remedy_update(dropped());
    assert_eq!(open.last().effects, [], "an open pull request is due instead");
    assert!(open.record().due_at.is_some_and(|due_at| due_at <= open.now));
}

/// Regression: with `retention.terminal_hours = 1`, the record expired before CodeGenie was asked a second time.
#[test]
fn closed_pull_request_expires_only_after_its_replacement_is_linked() {
    let mut scenario = closed_for_replacement();
    scenario.policy.retention.terminal_hours = 1;
    scenario.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(scenario.record().ttl, None, "the record is still needed");
    scenario.advance_minutes(120);
    let mut unanswered = scenario.clone();
    scenario.apply(FactKind::Linked(ReplacementLink::ReplacedBy(77)));
    assert_eq!(scenario.record().ttl, Some(scenario.now + minutes(60)));
    unanswered.remedy_update(failed());
    assert_eq!(unanswered.record().ttl, Some(unanswered.now + minutes(60)));
}

/// Regression: the end of a `/cancel` that GitHub refused was ignored; it was retried every few minutes, and a second
/// `/cancel` was refused as already in progress.
#[test]
fn failed_cancel_ends_and_may_be_repeated() {
    let mut scenario = PrScenario::at(State::ChecksFailed);
    scenario.command(Command::Cancel);
    let run = scenario.record().abandoning.clone().unwrap();
    scenario.apply(FactKind::Remedy { run: run.clone(), update: failed() });
    assert_eq!(scenario.run_end(), Some((RunEnd::Failed, "failed: Jenkins answered 500")));
    assert_eq!(scenario.record().abandoning, None);
    scenario.apply(FactKind::Remedy { run, update: failed() });
    assert_eq!(scenario.outcome(), FactOutcome::Ignored);
    scenario.command(Command::Cancel);
    assert_eq!(scenario.outcome(), FactOutcome::Applied, "{}", scenario.last().reason);
}

#[test]
fn replacement_proves_the_remedy_and_links_both_pull_requests() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.advance_minutes(10);
    scenario.sweep_with(conflicting);
    scenario.remedy_update(RemedyUpdate::Accepted);
    scenario.apply(FactKind::Closed { by: None, why: None });
    scenario.apply(FactKind::Linked(ReplacementLink::ReplacedBy(77)));
    assert_eq!(scenario.run_end(), Some((RunEnd::Completed, "replaced by #77")));
    assert_eq!((scenario.record().replaced_by, scenario.record().active_run.clone()), (Some(77), None));
    let [.., linked, ended] = scenario.log.as_slice() else { panic!("{:?}", scenario.kinds()) };
    assert_eq!((linked.kind, linked.hop), (EventKind::PrLinked, 0));
    assert_eq!((ended.kind, ended.hop, ended.is_healed()), (EventKind::RemediationEnded, 1, true));
    assert_eq!(ended.payload.text, "replaced by #77");
    scenario.apply(FactKind::Linked(ReplacementLink::ReplacedBy(77)));
    assert_eq!(scenario.outcome(), FactOutcome::Duplicate);
    let mut fresh = claimed(State::ChecksFailed);
    fresh.apply(FactKind::Linked(ReplacementLink::Replaces(42)));
    assert_eq!((fresh.record().replaces, fresh.record().replaced_by), (Some(42), None));
    assert!(fresh.record().active_run.is_some(), "this is another remedy");
    assert_eq!(fresh.log.last().unwrap().payload.text, "replaces #42");
}

#[test]
fn cancel_closes_as_abandoned_by_webhook_or_sweep() {
    for swept in [false, true] {
        let mut scenario = PrScenario::at(State::ChecksFailed);
        scenario.command(Command::Cancel);
        let run = scenario.record().abandoning.clone();
        assert!(run.is_some());
        scenario.advance_minutes(1);
        if swept {
            let life = crate::snapshot::PullRequestState::Closed { at: scenario.now };
            scenario.verify(crate::snapshot::Snapshot { state: life, ..scenario.github() });
        } else {
            scenario.apply(FactKind::Closed { by: Some("suture[bot]".into()), why: None });
        }
        assert_eq!((scenario.state(), scenario.record().substatus), (State::Closed, Some(Substatus::Abandoned)));
        assert_eq!(scenario.vulnerability_updates(), [VulnerabilityUpdate::Abandoned]);
        assert_eq!(scenario.run_end(), Some((RunEnd::Completed, "the pull request is CLOSED")));
        assert_eq!(scenario.record().abandoning, None);
    }
}

#[test]
fn green_checks_do_not_resolve_a_conflict() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.vulnerability.close_and_reopen = 1;
    scenario.advance_minutes(60);
    scenario.sweep_with(conflicting);
    assert_eq!(scenario.state(), State::NeedsIntervention);
    scenario.check("build", CheckVerdict::Passed);
    scenario.policy_bot(PolicyVerdict::Passed);
    assert_eq!(scenario.state(), State::NeedsIntervention, "the conflict is still there: one mail is enough");
    scenario.advance_minutes(24 * 60);
    let mut github = scenario.github();
    conflicting(&mut github.live);
    scenario.verify(github);
    assert_eq!(scenario.state(), State::NeedsIntervention);
    let mut behind = scenario.clone();
    let mut github = behind.github();
    github.live.behind_by = Some(1);
    behind.verify(github);
    assert_eq!(behind.state(), State::NeedsIntervention);
    // If the base is not strict, being behind does not matter; if it is, the lag must be known.
    for (strict, behind_by, out) in [(false, Some(1), true), (false, None, true), (true, None, false)] {
        let mut scenario = scenario.clone();
        let mut github = scenario.github();
        (github.live.strict, github.live.behind_by) = (strict, behind_by);
        scenario.verify(github);
        assert_eq!(scenario.state() == State::PolicyPassed, out, "{strict} {behind_by:?}");
    }
    scenario.verify(scenario.github());
    assert_eq!((scenario.state(), scenario.record().retry_counts.branch_update), (State::PolicyPassed, 0));
    // A persistent failure is not resolved by being mergeable.
    let mut red = escalated();
    red.verify(red.github());
    assert_eq!(red.state(), State::NeedsIntervention);
}

#[test]
fn close_and_reopen_command_needs_a_vulnerability() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.record_mut().vulnerability_id = None;
    scenario.command(Command::CloseAndReopen);
    assert_eq!(scenario.outcome(), FactOutcome::Refused);
    assert!(scenario.last().reason.contains("no vulnerability id"), "{}", scenario.last().reason);
    scenario.command(Command::Merge);
    assert_eq!(scenario.outcome(), FactOutcome::Applied, "other commands need none");
    let mut known = PrScenario::at(State::Approved);
    known.command(Command::CloseAndReopen);
    assert_eq!(known.outcome(), FactOutcome::Applied);
}

#[test]
fn hanging_build_is_stopped_before_a_rebuild() {
    let mut scenario = PrScenario::at(State::ChecksRunning);
    scenario.advance_minutes(130);
    let since = scenario.now - minutes(130);
    scenario.sweep_with(|live| live.build = Some(BuildStatus::Building { since }));
    let EffectKind::Command(message) = &scenario.last().effects[0].what else { panic!() };
    assert_eq!(message.args.as_deref(), Some("stop-first"));
}

#[test]
fn observe_mode_logs_why_it_would_escalate() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.policy.mode = Mode::Observe;
    scenario.advance_minutes(10);
    scenario.sweep_with(conflicting);
    assert_eq!(scenario.kinds().last(), Some(&EventKind::WouldRemedy));
    scenario.vulnerability.abandoned = true;
    scenario.advance_minutes(10);
    scenario.sweep_with(conflicting);
    assert_eq!(scenario.kinds().last(), Some(&EventKind::WouldEscalate), "the same rule, but another decision");
    let text = &scenario.log.last().unwrap().payload.text;
    assert!(text.starts_with("would escalate: a person abandoned this vulnerability"), "{text}");
}

#[test]
fn hold_keeps_its_reason() {
    let mut scenario = PrScenario::at(State::Approved);
    let asked = CommandRequest {
        command: Command::Hold,
        source: CommandSource::AdminApi,
        by: "danny".into(),
        permission: Ok(()),
        run: RunId::new("r"),
        args: "release freeze".into(),
        comment: None,
    };
    scenario.apply(FactKind::CommandRequested(Box::new(asked)));
    assert_eq!(scenario.record().blocked.as_ref().unwrap().reason, "held by danny: release freeze");
}

#[test]
fn remedy_events_have_run_and_requester() {
    let mut scenario = claimed(State::ChecksFailed);
    let run = scenario.record().active_run.as_ref().map(|run| run.id.clone());
    assert_eq!(scenario.log.last().unwrap().payload.run, run);
    scenario.remedy_update(RemedyUpdate::Accepted);
    assert_eq!(scenario.log.last().unwrap().payload.run, run);
    scenario.remedy_update(failed());
    assert_eq!(scenario.log.last().unwrap().payload.run, run);
    scenario.command(Command::Merge);
    let payload = scenario.log.last().unwrap().payload.clone();
    assert_eq!((payload.by.as_deref(), payload.name.as_deref()), (Some("danny"), Some("/merge")));
    let escalated = escalated();
    let event = escalated.log.iter().find(|event| event.kind == EventKind::EscalatedNeedsIntervention).unwrap();
    assert_eq!(event.payload.head, Some(sha('a')));
    let mut observed = PrScenario::at(State::ChecksFailed);
    observed.policy.mode = Mode::Observe;
    observed.advance_minutes(30);
    observed.sweep(observed.github());
    assert_eq!(observed.log.last().unwrap().payload.name.as_deref(), Some("CHECKS FAILED — TRANSIENT"));
}

#[test]
fn other_commands_are_accepted_during_a_remedy() {
    let mut scenario = claimed(State::ChecksFailed);
    for command in [Command::Hold, Command::Status, Command::Resume] {
        scenario.command(command);
        assert_eq!(scenario.outcome(), FactOutcome::Applied, "{command}");
    }
    assert!(scenario.record().active_run.is_some());
}

#[test]
fn push_by_suture_resets_no_budget() {
    let mut scenario = PrScenario::at(State::Approved);
    scenario.record_mut().retry_counts.branch_update = 1;
    scenario.push('b', true);
    assert_eq!(scenario.record().retry_counts.branch_update, 1);
}
