//! Remedies from claim to end (R-REMEDY, R-BUDGET, R-OBSERVE, R-CMD): what is claimed, proven, dropped or failed, what is given back,
//! what escalates, and that every loop the budgets are there for comes to its end.

use jiff::SignedDuration;

use super::world::{Tale, approved, described, minutes, policy_says, run_of, sha};
use crate::backoff::Failure;
use crate::command::Command;
use crate::decide::{EffectKind, Outcome, RunChange, RunEnd, VulnerabilityNews};
use crate::diagnosis::Classification;
use crate::event::{Commanded, EventKind, Happened, Link, RemedyNews};
use crate::id::RunId;
use crate::policy::Mode;
use crate::pull_request::Vulnerability;
use crate::run::{RunKind, RunState, RunTrigger};
use crate::signals::{Check, MergeReport, PolicyVerdict, Renewal, Verdict};
use crate::snapshot::{Build, Live, Mergeable};
use crate::state::{State, Strategy, Substatus};

fn dropped() -> RemedyNews {
    RemedyNews::Dropped { why: "the head moved".into() }
}

fn failed() -> RemedyNews {
    RemedyNews::Failed { error: "Jenkins answered 500".into(), failure: Failure::Unavailable }
}

/// A tale whose state has gone stale and whose remedy has been claimed.
fn claimed(state: State) -> Tale {
    let mut tale = Tale::at(state);
    tale.pass(130);
    tale.sweep_with(|live| live.build = Some(Build::Gone));
    assert!(tale.record().active_run.is_some(), "{state}: {}", tale.last().reason);
    tale
}

impl Tale {
    fn sweep_with(&mut self, change: impl FnOnce(&mut Live)) -> Option<Classification> {
        let mut github = self.github();
        change(&mut github.live);
        self.sweep(github)
    }

    fn run_end(&self) -> Option<(RunEnd, &str)> {
        self.last().runs.iter().find_map(|change| match change {
            RunChange::Ended { end, outcome, .. } => Some((*end, outcome.as_str())),
            RunChange::Open(_) | RunChange::Accepted { .. } => None,
        })
    }
}

#[test]
fn a_claim_is_one_decision_with_everything_in_it() {
    let tale = claimed(State::PolicyPassed);
    let (record, last) = (tale.record(), tale.last());
    assert_eq!(tale.state(), State::PolicyPassed);
    assert_eq!(record.retry_counts.retrigger_approver_bot, 1);
    assert_eq!((record.lifetime_remedies, record.remediation_action), (1, Some(Strategy::RetriggerApproverBot)));
    assert_eq!(record.last_asked[&Strategy::RetriggerApproverBot], tale.now);
    assert_eq!(last.outcome, Outcome::Applied);
    assert_eq!(last.reason, "claimed: wake Approver Bot");
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
    // 15 min of the approver's own time, 30 s for the first attempt: the bot just woken gets its normal time.
    assert_eq!(record.due_at, Some(tale.now + minutes(15) + SignedDuration::from_secs(30)));
}

#[test]
fn the_cooldown_holds_where_thresholds_are_short() {
    let tale = claimed(State::Merging);
    assert_eq!(tale.record().due_at, Some(tale.now + minutes(15)), "MERGING's 5 min would be too soon");
}

#[test]
fn each_remedy_leads_to_its_post_action_state_and_is_proven_by_its_event() {
    type Step = fn(&mut Tale);
    let cases: [(State, State, &str, Step); 6] = [
        (State::Created, State::ChecksRunning, "the checks passed", |t| t.check("build", Verdict::Passed)),
        (State::ChecksFailed, State::ChecksRunning, "the checks failed again", |t| t.fail_again("build", None, 8)),
        (State::ChecksPassed, State::PolicyEvaluating, "Policy Bot answered", |t| t.policy_bot(PolicyVerdict::Passed)),
        (State::PolicyFailed, State::PolicyEvaluating, "Policy Bot rejected it again", |t| {
            t.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
        }),
        (State::PolicyPassed, State::PolicyPassed, "the approval came", |t| t.approve()),
        (State::Approved, State::Merging, "Automerge Bot tried to merge", |t| t.merge_attempt()),
    ];
    for (state, post_action, outcome, prove) in cases {
        let mut tale = claimed(state);
        let claimed_at = tale.now;
        tale.pass(1);
        tale.news(RemedyNews::Accepted);
        assert_eq!(tale.state(), post_action, "{state}");
        assert_eq!(tale.kinds().last(), Some(&EventKind::RemediationAccepted));
        let change = (state != post_action).then_some(post_action);
        assert_eq!(tale.log.last().unwrap().to, change, "{state}");
        if change.is_some() {
            assert_eq!(tale.record().progressed_at, tale.now);
        }
        let [RunChange::Accepted { deadline, .. }] = &tale.last().runs[..] else { panic!() };
        assert!(*deadline > tale.now);
        tale.news(RemedyNews::Accepted);
        assert_eq!(tale.outcome(), Outcome::Duplicate);
        tale.pass(1);
        prove(&mut tale);
        assert_eq!(tale.run_end(), Some((RunEnd::Completed, outcome)), "{state}");
        // What is answered by the same failure is over, and nothing is healed by it: the dashboard counts by this.
        let healed = tale.log.iter().filter(|event| event.is_healed()).count();
        assert_eq!(healed, usize::from(!outcome.contains("again") && !outcome.contains("could not")), "{state}");
        assert_eq!(tale.record().active_run, None);
        assert_eq!(tale.record().signals.asked, None);
        assert_eq!(tale.record().last_remediation_at, Some(claimed_at));
    }
}

#[test]
fn an_answer_between_claim_and_acceptance_is_not_lost() {
    // Policy Bot answers before the Car Bridge has written down that it was asked.
    let mut tale = claimed(State::PolicyFailed);
    tale.pass(1);
    tale.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
    assert_eq!(tale.state(), State::PolicyFailed);
    assert!(tale.record().active_run.is_some());
    tale.news(RemedyNews::Accepted);
    assert_eq!(tale.state(), State::PolicyFailed, "it has answered: nothing is being evaluated any more");
    assert_eq!(tale.run_end(), Some((RunEnd::Completed, "Policy Bot rejected it again")));
    // The same for a build that fails again at once.
    let mut build = claimed(State::ChecksFailed);
    build.pass(1);
    build.fail_again("build", Some("timeout"), 8);
    build.news(RemedyNews::Accepted);
    assert_eq!(build.state(), State::ChecksFailed);
    assert_eq!(build.run_end(), Some((RunEnd::Completed, "the checks failed again")));
}

#[test]
fn other_checks_reporting_do_not_bring_the_old_failure_back() {
    let mut tale = claimed(State::ChecksFailed);
    tale.news(RemedyNews::Accepted);
    tale.pass(1);
    tale.check("lint", Verdict::Passed);
    assert_eq!((tale.state(), tale.outcome()), (State::ChecksRunning, Outcome::Applied));
    // Nor does GitHub, which still shows the old failure, while the run is alive.
    let mut github = tale.github();
    github.signals.checks[0].failure = super::world::failed_because(Some("timeout"), "timeout");
    tale.pass(1);
    tale.verify(github);
    assert_eq!(tale.state(), State::ChecksRunning);
    tale.pass(1);
    tale.rerun("build", Verdict::Passed, 8);
    assert_eq!(tale.state(), State::ChecksPassed);
}

#[test]
fn what_was_said_before_a_live_run_began_corrects_nothing() {
    // A failure at minute 3 was missed; a person rebuilds at minute 10; the sweep at minute 12 sees the old failure.
    let mut tale = Tale::opened();
    tale.pass(10);
    tale.command(Command::Rebuild);
    tale.news(RemedyNews::Accepted);
    assert_eq!(tale.state(), State::ChecksRunning);
    let mut github = tale.github();
    github.signals.checks = vec![run_of("build", Verdict::Failed, tale.now - minutes(7))];
    tale.pass(2);
    github.read_at = tale.now;
    tale.verify(github.clone());
    assert_eq!(tale.state(), State::ChecksRunning);
    // What the remedy itself has brought about may seem a few seconds older than it, by GitHub's clock: that counts.
    let mut quick = tale.clone();
    let mut soon = github.clone();
    soon.signals.checks = vec![run_of("build", Verdict::Passed, tale.now - minutes(3))];
    quick.verify(soon);
    assert_eq!(quick.state(), State::ChecksPassed);
    // When the run is over, it counts.
    tale.news(failed());
    tale.verify(github);
    assert_eq!(tale.state(), State::ChecksFailed);
}

#[test]
fn a_dropped_remedy_gives_everything_back_and_makes_the_pull_request_due() {
    let mut tale = claimed(State::ChecksFailed);
    tale.pass(1);
    tale.news(dropped());
    let record = tale.record();
    assert_eq!((record.retry_counts.rebuild, record.lifetime_remedies), (0, 0));
    assert_eq!((record.last_remediation_at, record.active_run.clone()), (None, None));
    assert_eq!(record.due_at, Some(tale.now));
    assert_eq!(record.signals.checks[0].renewal, Renewal::None);
    assert_eq!(tale.run_end(), Some((RunEnd::Cancelled, "dropped: the head moved")));
    assert_eq!(tale.kinds().last(), Some(&EventKind::RemediationEnded));
    tale.news(dropped());
    assert_eq!(tale.outcome(), Outcome::Ignored, "a second time it is not under way any more");
    // A second claim's drop restores the first one's time.
    let mut twice = claimed(State::ChecksFailed);
    let first = twice.now;
    twice.news(failed());
    twice.pass(60);
    twice.sweep(twice.github());
    assert_eq!(twice.record().retry_counts.rebuild, 2);
    twice.news(dropped());
    assert_eq!((twice.record().retry_counts.rebuild, twice.record().last_remediation_at), (1, Some(first)));
    assert_eq!(twice.record().lifetime_remedies, 1);
}

#[test]
fn a_failed_remedy_keeps_its_cost_and_withdraws_its_assumption() {
    for (state, post_action) in [
        (State::Created, State::ChecksRunning),
        (State::ChecksFailed, State::ChecksRunning),
        (State::ChecksPassed, State::PolicyEvaluating),
        (State::Approved, State::Merging),
    ] {
        let mut tale = claimed(state);
        tale.news(RemedyNews::Accepted);
        assert_eq!(tale.state(), post_action);
        let progressed_at = tale.record().progressed_at;
        tale.pass(61);
        tale.news(failed());
        assert_eq!(tale.state(), state, "what is really known counts again");
        assert_eq!(tale.record().progressed_at, progressed_at, "and no clock starts anew");
        let event = tale.log.last().unwrap();
        assert_eq!((event.kind, event.from, event.to), (EventKind::RemediationEnded, Some(post_action), Some(state)));
        assert_eq!(tale.record().lifetime_remedies, 1);
        assert_eq!(tale.run_end(), Some((RunEnd::Failed, "failed: Jenkins answered 500")));
        assert_eq!(tale.record().due_at, Some(tale.now));
        // The next reading of GitHub finds nothing wrong.
        let events = tale.log.len();
        tale.verify(tale.github());
        assert_eq!((tale.state(), tale.log.len()), (state, events));
    }
}

#[test]
fn a_failed_remedy_does_not_touch_a_state_it_did_not_make() {
    let mut tale = claimed(State::PolicyPassed);
    tale.news(RemedyNews::Accepted);
    tale.pass(20);
    tale.news(failed());
    assert_eq!((tale.state(), tale.log.last().unwrap().to), (State::PolicyPassed, None));
}

#[test]
fn a_moved_head_overtakes_what_was_asked_of_the_old_one() {
    let mut tale = claimed(State::ChecksFailed);
    tale.news(RemedyNews::Accepted);
    tale.pass(1);
    tale.push('b', false);
    assert_eq!(tale.run_end(), Some((RunEnd::Cancelled, "the head moved to bbbbbbb")));
    assert_eq!(tale.record().active_run, None);
    assert_eq!(tale.record().retry_counts.rebuild, 1, "it was done, and cost what it costs");
    // Not accepted yet: it costs nothing, and what the Car Bridge says of it later does not matter.
    let mut pending = claimed(State::ChecksFailed);
    pending.push('b', false);
    assert_eq!(pending.run_end(), Some((RunEnd::Cancelled, "the head moved to bbbbbbb")));
    assert_eq!((pending.record().retry_counts.rebuild, pending.record().lifetime_remedies), (0, 0));
    assert!(pending.record().last_asked.is_empty());
    pending.news(RemedyNews::Accepted);
    assert_eq!(pending.outcome(), Outcome::Ignored);
    // An update of the branch may be the very cause, so it is kept until the Car Bridge has told.
    let mut update = Tale::at(State::Approved);
    update.pass(10);
    update.sweep_with(|live| live.behind_by = Some(3));
    update.push('b', true);
    assert!(update.record().active_run.is_some());
    update.news(RemedyNews::Accepted);
    assert_eq!(update.run_end(), Some((RunEnd::Completed, "the head moved to bbbbbbb")));
    // Accepted for a head that has gone unseen: it ends, and changes nothing of the new one.
    let mut late = claimed(State::ChecksFailed);
    late.record_mut().head_sha = sha('b');
    late.news(RemedyNews::Accepted);
    assert_eq!(late.run_end(), Some((RunEnd::Cancelled, "the head moved to bbbbbbb")));
    assert_eq!((late.state(), late.record().active_run.clone()), (State::ChecksFailed, None));
}

#[test]
fn a_branch_update_is_proven_by_the_new_head_and_only_others_pushes_reset_it() {
    let mut tale = Tale::at(State::Approved);
    tale.pass(10);
    let behind = |live: &mut Live| live.behind_by = Some(3);
    assert_eq!(tale.sweep_with(behind), Some(Classification::UpdateBranch));
    tale.news(RemedyNews::Accepted);
    assert_eq!(tale.state(), State::ChecksRunning);
    tale.pass(1);
    tale.push('b', true);
    assert_eq!(tale.run_end(), Some((RunEnd::Completed, "the head moved to bbbbbbb")));
    assert_eq!(tale.record().retry_counts.branch_update, 1, "our own push resets nothing");
    tale.pass(1);
    tale.push('c', false);
    assert_eq!(tale.record().retry_counts.branch_update, 0);
    // A push while our update is under way may be ours, whatever the payload says.
    let mut unsure = Tale::at(State::Approved);
    unsure.pass(10);
    unsure.sweep_with(behind);
    unsure.news(RemedyNews::Accepted);
    unsure.push('b', false);
    assert_eq!(unsure.record().retry_counts.branch_update, 1);
    // And if the push event is lost, the sweep finds the proof.
    let mut lost = Tale::at(State::Approved);
    lost.pass(10);
    lost.sweep_with(behind);
    lost.news(RemedyNews::Accepted);
    lost.pass(2);
    let mut github = lost.github();
    github.described = described(&sha('b'));
    github.signals = crate::signals::Signals::default();
    lost.verify(github);
    assert_eq!(lost.run_end(), Some((RunEnd::Completed, "the head moved to bbbbbbb")));
    assert_eq!((lost.state(), lost.record().retry_counts.branch_update), (State::ChecksRunning, 1));
}

#[test]
fn a_terminal_fact_ends_the_remedy_under_way() {
    let merged = || Happened::Merged { by: None, by_automerge_bot: true };
    let mut tale = claimed(State::Approved);
    tale.news(RemedyNews::Accepted);
    tale.tell(merged());
    assert_eq!(tale.run_end(), Some((RunEnd::Completed, "it was merged")));
    let mut pending = claimed(State::Approved);
    pending.tell(merged());
    assert_eq!(pending.run_end(), Some((RunEnd::Cancelled, "the pull request is MERGED")), "it was never sent");
    let mut rebuild = claimed(State::ChecksFailed);
    rebuild.tell(merged());
    assert_eq!(rebuild.run_end(), Some((RunEnd::Cancelled, "the pull request is MERGED")));
    let mut closed = claimed(State::Approved);
    closed.tell(Happened::Closed { by: None, why: None });
    assert_eq!(closed.run_end(), Some((RunEnd::Cancelled, "the pull request is CLOSED")));
    assert_eq!(closed.record().substatus, None);
}

fn conflicting(live: &mut Live) {
    live.mergeable = Mergeable::Conflicting;
}

#[test]
fn close_and_reopen_goes_on_after_the_close() {
    let mut tale = Tale::at(State::Approved);
    tale.pass(10);
    assert_eq!(tale.sweep_with(conflicting), Some(Classification::CloseAndReopen));
    assert_eq!(tale.vulnerability_news(), [VulnerabilityNews::CountReopen]);
    assert_eq!(tale.record().retry_counts.close_and_reopen, 1);
    tale.pass(1);
    tale.tell(Happened::Closed { by: Some("suture[bot]".into()), why: None });
    assert_eq!((tale.state(), tale.record().substatus), (State::Closed, Some(Substatus::Replaced)));
    assert!(tale.record().active_run.is_some(), "a fresh pull request is still to come");
    tale.news(RemedyNews::Accepted);
    assert_eq!((tale.outcome(), tale.state()), (Outcome::Applied, State::Closed));
    tale.news(failed());
    assert_eq!((tale.outcome(), tale.state()), (Outcome::Applied, State::Closed));
    assert_eq!((tale.record().due_at, tale.record().suspect.clone()), (None, None));
    // Found closed by the sweep: replaced all the same.
    let mut missed = Tale::at(State::Approved);
    missed.pass(10);
    missed.sweep_with(conflicting);
    let life = crate::snapshot::Life::Closed { at: missed.now };
    missed.verify(crate::snapshot::Snapshot { life, ..missed.github() });
    assert_eq!(missed.record().substatus, Some(Substatus::Replaced));
    // Reopened by a person in the middle of it: they win.
    tale.pass(1);
    tale.tell(Happened::Reopened(described(&sha('a'))));
    assert_eq!(tale.record().active_run, None);
    // Dropped: the vulnerability's budget comes back too.
    let mut back = Tale::at(State::Approved);
    back.pass(10);
    back.sweep_with(conflicting);
    back.news(dropped());
    assert_eq!(back.vulnerability_news(), [VulnerabilityNews::GiveBackReopen]);
    assert_eq!(back.record().retry_counts.close_and_reopen, 0);
}

#[test]
fn the_duplicate_guard_waits_a_day_and_then_calls_a_person() {
    let mut tale = Tale::at(State::Approved);
    tale.vulnerability.open.insert(77);
    tale.pass(10);
    assert_eq!(tale.sweep_with(conflicting), Some(Classification::CloseAndReopen));
    assert_eq!(tale.last().reason, "no action: duplicate PR exists: #77");
    assert_eq!((tale.last().effects.len(), tale.record().retry_counts.close_and_reopen), (0, 0));
    let first = tale.now;
    assert_eq!(tale.record().due_at, Some(first + minutes(24 * 60)));
    tale.pass(24 * 60 - 1);
    tale.sweep_with(conflicting);
    assert_eq!((tale.state(), tale.record().due_at), (State::Approved, Some(first + minutes(24 * 60))));
    tale.pass(1);
    tale.sweep_with(conflicting);
    assert_eq!(tale.state(), State::NeedsIntervention);
    assert!(
        tale.record().blocked.as_ref().unwrap().reason.starts_with("duplicate PR exists: #77 has been open for a day")
    );
}

#[test]
fn without_a_vulnerability_or_with_an_abandoned_one_conflicts_escalate() {
    let mut unknown = Tale::at(State::Approved);
    unknown.record_mut().vulnerability_id = None;
    unknown.pass(10);
    unknown.sweep_with(conflicting);
    assert_eq!(unknown.state(), State::NeedsIntervention);
    assert!(unknown.record().blocked.as_ref().unwrap().reason.contains("no vulnerability id"));
    let mut abandoned = Tale::at(State::Approved);
    abandoned.vulnerability.abandoned = true;
    abandoned.pass(10);
    abandoned.sweep_with(conflicting);
    assert!(abandoned.record().blocked.as_ref().unwrap().reason.contains("given this vulnerability up"));
    let mut spent = Tale::at(State::Approved);
    spent.vulnerability = Vulnerability { open: [42].into(), close_and_reopen: 1, ..Vulnerability::default() };
    spent.pass(10);
    assert_eq!(spent.sweep_with(conflicting), Some(Classification::NeedsIntervention));
    let reason = &spent.record().blocked.as_ref().unwrap().reason;
    assert_eq!(reason, "Retry budget exhausted for close_and_reopen (1/1)");
}

#[test]
fn escalation_says_why_and_calls_once() {
    let mut tale = Tale::at(State::ChecksRunning);
    tale.fail("build", None, "3 tests failed");
    tale.pass(30);
    assert_eq!(tale.sweep(tale.github()), Some(Classification::NeedsIntervention));
    assert_eq!(tale.state(), State::NeedsIntervention);
    let blocked = tale.record().blocked.clone().unwrap();
    assert_eq!((blocked.state, blocked.reason.as_str()), (State::ChecksFailed, "`build` failed: 3 tests failed"));
    let event = tale.log.last().unwrap();
    assert_eq!((event.kind, event.to), (EventKind::EscalatedNeedsIntervention, Some(State::NeedsIntervention)));
    assert_eq!(event.payload.name.as_deref(), Some("CHECKS FAILED — PERSISTENT"));
    let [effect] = &tale.last().effects[..] else { panic!() };
    let EffectKind::Notice(notice) = &effect.what else { panic!() };
    assert_eq!(notice.subject, "Suture: #42 needs a person: CHECKS FAILED - PERSISTENT (acme/my-app)");
    assert!(notice.body.contains("https://github.com/acme/my-app/pull/42"));
    assert!(notice.body.contains("CVE-2026-1234"));
    assert_eq!(tale.record().due_at, Some(tale.now + minutes(24 * 60)), "verified daily, never remedied");
    tale.pass(24 * 60);
    assert_eq!(tale.sweep(tale.github()), None);
    assert_eq!(tale.state(), State::NeedsIntervention);
    assert_eq!(tale.record().due_at, Some(tale.now + minutes(24 * 60)));
}

fn escalated() -> Tale {
    let mut tale = Tale::at(State::ChecksRunning);
    tale.fail("build", None, "3 tests failed");
    tale.record_mut().retry_counts.branch_update = 2;
    tale.record_mut().retry_counts.close_and_reopen = 1;
    tale.record_mut().lifetime_remedies = 9;
    tale.pass(30);
    tale.sweep(tale.github());
    assert_eq!(tale.state(), State::NeedsIntervention);
    tale.pass(1);
    tale
}

fn assert_fresh(tale: &Tale) {
    let record = tale.record();
    assert_eq!((record.retry_counts.branch_update, record.lifetime_remedies), (0, 0));
    assert_eq!(record.retry_counts.close_and_reopen, 1, "this one never resets");
    assert_eq!(record.blocked, None);
}

#[test]
fn needs_intervention_listens() {
    // A push by anybody but Suture.
    let mut push = escalated();
    push.push('b', false);
    assert_eq!(push.state(), State::ChecksRunning);
    assert_fresh(&push);
    let mut ours = escalated();
    ours.push('b', true);
    assert_eq!((ours.state(), &ours.record().head_sha), (State::NeedsIntervention, &sha('b')));
    // A fact that disproves the cause; one that does not is only noted.
    let mut fact = escalated();
    fact.policy_bot(PolicyVerdict::Passed);
    assert_eq!((fact.state(), fact.outcome()), (State::NeedsIntervention, Outcome::Applied));
    fact.rerun("build", Verdict::Running, 8);
    assert_eq!(fact.state(), State::NeedsIntervention, "a new build proves nothing yet");
    assert_eq!(fact.record().substatus, Some(Substatus::Persistent), "the detail is that of the state given up in");
    fact.pass(1);
    fact.rerun("build", Verdict::Passed, 8);
    assert_eq!((fact.state(), fact.outcome()), (State::PolicyPassed, Outcome::Applied));
    assert_fresh(&fact);
    // The same through GitHub's own reading.
    let mut seen = escalated();
    let mut github = seen.github();
    github.signals.checks = vec![Check { id: Some(8), ..run_of("build", Verdict::Passed, seen.now) }];
    seen.verify(github);
    assert_eq!(seen.state(), State::ChecksPassed);
    assert_eq!(seen.kinds().last(), Some(&EventKind::StateDriftCorrected));
    assert_fresh(&seen);
    let mut moved = escalated();
    let mut github = moved.github();
    github.described = described(&sha('b'));
    github.signals = crate::signals::Signals::default();
    moved.pass(5);
    github.read_at = moved.now;
    moved.verify(github);
    assert_eq!(moved.state(), State::ChecksRunning);
    // Merge and close.
    let mut merged = escalated();
    merged.tell(Happened::Merged { by: None, by_automerge_bot: false });
    assert_eq!(merged.state(), State::Merged);
    // A person's command, and /resume.
    let mut rebuild = escalated();
    rebuild.command(Command::Rebuild);
    assert_eq!((rebuild.outcome(), rebuild.state()), (Outcome::Applied, State::ChecksFailed));
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
fn people_spend_no_budget_and_go_before_suture() {
    let mut tale = claimed(State::ChecksFailed);
    tale.command(Command::Rebuild);
    assert_eq!(tale.outcome(), Outcome::Refused);
    assert!(tale.last().reason.contains("under way already"), "{}", tale.last().reason);
    assert_eq!(tale.log.last().unwrap().payload.text, format!("refused: {}", tale.last().reason));
    tale.command(Command::UpdateBranch);
    assert_eq!(tale.run_end(), Some((RunEnd::Cancelled, "overtaken by `/update-branch` of danny")));
    let run = tale.record().active_run.clone().unwrap();
    assert_eq!((run.strategy, run.human), (Strategy::BranchUpdate, true));
    assert_eq!((tale.record().retry_counts.branch_update, tale.record().lifetime_remedies), (0, 0));
    assert_eq!((tale.record().retry_counts.rebuild, tale.record().remediation_action), (0, None), "it was never done");
    let Some(RunChange::Open(opened)) = tale.last().runs.last() else { panic!() };
    assert_eq!((opened.trigger, opened.requested_by.as_deref()), (RunTrigger::PrComment, Some("danny")));
    assert_eq!(tale.log.last().unwrap().payload.run, Some(run.id));
    tale.record_mut().lifetime_remedies = 5;
    tale.news(dropped());
    assert_eq!(tale.record().lifetime_remedies, 5, "nothing was spent, nothing comes back");
}

#[test]
fn commands_that_make_no_sense_or_are_not_allowed_are_refused_and_logged() {
    let mut tale = Tale::at(State::ChecksRunning);
    tale.command(Command::Merge);
    assert_eq!((tale.outcome(), tale.kinds().last()), (Outcome::Refused, Some(&EventKind::CommandReceived)));
    assert!(tale.last().reason.contains("APPROVED"), "{}", tale.last().reason);
    tale.command(Command::Rebuild);
    assert_eq!(tale.outcome(), Outcome::Refused, "a build is at work");
    let asked = Commanded {
        command: Command::UpdateBranch,
        source: crate::command::CommandSource::PrComment,
        by: "mallory".into(),
        permission: Err("`/update-branch` needs write access".into()),
        run: RunId::new("r"),
        args: String::new(),
        comment: None,
    };
    tale.tell(Happened::Commanded(Box::new(asked)));
    assert_eq!(
        (tale.outcome(), tale.last().reason.as_str()),
        (Outcome::Refused, "`/update-branch` needs write access")
    );
    assert_eq!(tale.record().active_run, None);
    tale.command(Command::Cancel);
    assert_eq!((tale.outcome(), tale.state()), (Outcome::Applied, State::ChecksRunning), "closing is the Car Bridge's");
    let [RunChange::Open(run)] = &tale.last().runs[..] else { panic!() };
    assert_eq!((run.kind, run.requested_by.as_deref()), (RunKind::Abandon, Some("danny")));
    tale.command(Command::Cancel);
    assert_eq!(tale.outcome(), Outcome::Refused, "it is under way already");
    // What is over gets an answer too.
    for state in [State::Merged, State::Closed] {
        let mut over = Tale::at(state);
        over.command(Command::Rebuild);
        assert_eq!((over.outcome(), over.state()), (Outcome::Refused, state));
        assert_eq!(over.kinds().last(), Some(&EventKind::CommandReceived));
    }
}

#[test]
fn observe_mode_says_what_it_would_do_once_and_does_nothing() {
    let mut tale = Tale::at(State::ChecksFailed);
    tale.policy.mode = Mode::Observe;
    tale.pass(30);
    assert_eq!(tale.sweep(tale.github()), Some(Classification::RetryChecks));
    assert_eq!(tale.kinds().last(), Some(&EventKind::WouldRemedy));
    assert!(tale.last().effects.is_empty() && tale.last().runs.is_empty());
    assert_eq!((tale.record().retry_counts.rebuild, tale.record().lifetime_remedies), (0, 0));
    assert_eq!((tale.state(), tale.record().last_remediation_at), (State::ChecksFailed, None));
    assert_eq!(tale.record().due_at, Some(tale.now + minutes(30)));
    let events = tale.log.len();
    tale.pass(30);
    tale.sweep(tale.github());
    assert_eq!(tale.log.len(), events, "the same decision is said once");
    tale.pass(30);
    tale.sweep_with(conflicting);
    assert_eq!(tale.log.len(), events + 1, "another one is said");
    tale.fail_again("build", None, 8);
    tale.pass(30);
    tale.sweep(tale.github());
    assert_eq!((tale.kinds().last(), tale.state()), (Some(&EventKind::WouldEscalate), State::ChecksFailed));
    tale.command(Command::Rebuild);
    assert_eq!(tale.outcome(), Outcome::Refused);
    assert!(tale.last().reason.starts_with("observe mode"));
    tale.command(Command::Cancel);
    assert_eq!(tale.outcome(), Outcome::Refused);
    tale.command(Command::Hold);
    assert_eq!(tale.outcome(), Outcome::Applied);
}

#[test]
fn what_is_decided_on_an_old_record_is_void() {
    let mut tale = Tale::at(State::ChecksFailed);
    tale.pass(30);
    let diagnosis = tale.diagnose(None);
    let found = |diagnosis| {
        Happened::Diagnosed(Box::new(crate::event::Diagnosed {
            diagnosis,
            run: RunId::new("r"),
            vulnerability: None,
            story: crate::comment::Story::default(),
        }))
    };
    let mut head = tale.clone();
    head.push('b', false);
    head.record_mut().state = State::ChecksFailed;
    head.tell(found(diagnosis.clone()));
    assert_eq!(head.outcome(), Outcome::Superseded);
    let mut state = tale.clone();
    state.rerun("build", Verdict::Running, 8);
    state.tell(found(diagnosis.clone()));
    assert_eq!(state.outcome(), Outcome::Superseded);
    let mut held = tale.clone();
    held.command(Command::Hold);
    held.tell(found(diagnosis.clone()));
    assert_eq!((held.outcome(), held.last().effects.len()), (Outcome::Applied, 0));
    tale.tell(found(diagnosis.clone()));
    assert_eq!(tale.last().effects.len(), 1);
    tale.tell(found(diagnosis));
    assert_eq!((tale.last().effects.len(), tale.last().reason.as_str()), (0, "no action: a remedy is under way"));
}

#[test]
fn jenkins_still_building_is_looked_at_again_later() {
    let mut tale = Tale::at(State::ChecksRunning);
    tale.pass(70);
    let since = tale.now - minutes(70);
    assert_eq!(tale.sweep_with(|live| live.build = Some(Build::Building { since })), Some(Classification::NoAction));
    assert_eq!(tale.record().due_at, Some(tale.now + minutes(10)));
    assert_eq!(tale.record().skips, 0);
}

#[test]
fn jenkins_unreachable_three_times_calls_a_person() {
    let mut tale = Tale::at(State::ChecksRunning);
    tale.pass(70);
    let unreachable = |live: &mut Live| live.build = Some(Build::Unreachable);
    for (visits, secs) in [(1, 30), (2, 60), (3, 120)] {
        // GitHub answers each time: only Jenkins does not.
        assert_eq!(tale.sweep_with(unreachable), Some(Classification::NoAction));
        assert_eq!((tale.record().unanswered, tale.record().skips), (visits, 0));
        assert_eq!(tale.record().due_at, Some(tale.now + SignedDuration::from_secs(secs)));
        tale.pass(10);
    }
    // An answer in between starts the count over.
    let mut answered = tale.clone();
    let since = answered.now - minutes(70);
    answered.sweep_with(|live| live.build = Some(Build::Building { since }));
    assert_eq!(answered.record().unanswered, 0);
    assert_eq!(tale.sweep_with(unreachable), Some(Classification::NeedsIntervention));
    assert_eq!(tale.state(), State::NeedsIntervention);
    assert_eq!(tale.record().unanswered, 0);
}

/// Plays a loop of remedies until it ends in NEEDS_INTERVENTION, and counts the claims.
fn loop_ends(mut tale: Tale, mut round: impl FnMut(&mut Tale, u64)) -> (u32, String) {
    for claims in 0..40 {
        tale.pass(200);
        tale.sweep_with(|live| {
            live.build = Some(Build::Gone);
        });
        if tale.state() == State::NeedsIntervention {
            return (claims, tale.record().blocked.clone().unwrap().reason);
        }
        assert!(tale.record().active_run.is_some(), "after {claims} claims: {}", tale.last().reason);
        tale.news(RemedyNews::Accepted);
        tale.pass(5);
        round(&mut tale, u64::from(claims));
    }
    panic!("this loop never ends");
}

#[test]
fn loops_of_remedies_end_at_their_budgets() {
    // The checks keep failing transiently.
    let (claims, why) =
        loop_ends(Tale::at(State::ChecksFailed), |tale, n| tale.fail_again("build", Some("timeout"), 10 + n));
    assert_eq!((claims, why.as_str()), (3, "Retry budget exhausted for rebuild (3/3)"));

    // SOD keeps failing: the answer "SOD again" must not reset its own budget.
    let (claims, why) = loop_ends(Tale::at(State::PolicyFailed), |tale, _| {
        tale.policy_bot(PolicyVerdict::Failed(Substatus::SodFailure));
    });
    assert_eq!((claims, why.as_str()), (1, "Retry budget exhausted for retrigger_sod_check (1/1)"));

    // Policy Bot never answers.
    let (claims, why) = loop_ends(Tale::at(State::ChecksPassed), |tale, _| tale.news(failed()));
    assert_eq!((claims, why.as_str()), (2, "Retry budget exhausted for retrigger_policy_bot (2/2)"));

    // The approver never answers.
    let (claims, why) = loop_ends(Tale::at(State::PolicyPassed), |tale, _| tale.news(failed()));
    assert_eq!((claims, why.as_str()), (2, "Retry budget exhausted for retrigger_approver_bot (2/2)"));

    // Every merge attempt fails: reaching MERGING must not reset the budget of the strategy that leads there.
    let (claims, why) = loop_ends(Tale::at(State::Approved), |tale, _| {
        let report = MergeReport { failed: true, at: tale.now, text: "no".into(), renewal: Renewal::None };
        tale.tell(Happened::Merge { head: sha('a'), report });
        tale.verify(tale.github());
        assert_eq!(tale.state(), State::Approved);
    });
    assert_eq!((claims, why.as_str()), (2, "Retry budget exhausted for retrigger_automerge_bot (2/2)"));
}

/// Behind again and again: each update is made, and then the checks say this. Answers how many there were, and why it ended.
fn always_behind(checks: Verdict) -> (usize, String) {
    let mut tale = Tale::at(State::Approved);
    for (n, head) in "bcdef0123456789".chars().enumerate() {
        tale.pass(200);
        tale.sweep_with(|live| live.behind_by = Some(1));
        if tale.state() == State::NeedsIntervention {
            return (n, tale.record().blocked.as_ref().unwrap().reason.clone());
        }
        tale.news(RemedyNews::Accepted);
        tale.push(head, true);
        tale.pass(1);
        // CHECKS_RUNNING starts again: a reset here would let the loop go on for ever (R-BUDGET-3).
        tale.check("build", checks);
        tale.policy_bot(PolicyVerdict::Passed);
        let approval = approved(tale.now);
        tale.tell(Happened::Approval { head: tale.head.clone(), approval });
    }
    panic!("this loop never ends");
}

#[test]
fn a_base_that_moves_for_ever_ends_at_the_lifetime_cap_while_the_checks_are_green() {
    assert_eq!(always_behind(Verdict::Passed), (12, "Retry budget exhausted for lifetime (12/12)".to_owned()));
}

#[test]
fn a_branch_whose_checks_fail_is_not_updated_again_and_again() {
    assert_eq!(always_behind(Verdict::Failed), (2, "Retry budget exhausted for branch_update (2/2)".to_owned()));
}

#[test]
fn a_life_of_small_successes_ends_at_the_lifetime_cap() {
    // Each rebuild works and resets its own budget, and then the checks fail again: only the lifetime cap ends this.
    let (claims, why) = loop_ends(Tale::at(State::ChecksFailed), |tale, n| {
        tale.rerun("build", Verdict::Passed, 100 + 2 * n);
        assert_eq!(tale.state(), State::ChecksPassed);
        tale.pass(1);
        tale.fail_again("build", Some("timeout"), 101 + 2 * n);
        tale.verify(tale.github());
        assert_eq!((tale.state(), tale.record().retry_counts.rebuild), (State::ChecksFailed, 0));
    });
    assert_eq!((claims, why.as_str()), (12, "Retry budget exhausted for lifetime (12/12)"));
}

#[test]
fn policy_bot_answering_resets_its_own_budget() {
    let mut tale = claimed(State::ChecksPassed);
    tale.news(RemedyNews::Accepted);
    assert_eq!(tale.record().retry_counts.retrigger_policy_bot, 1);
    tale.pass(1);
    let report = policy_says(PolicyVerdict::Failed(Substatus::OtherPolicyFailure), tale.now);
    tale.tell(Happened::Policy { head: sha('a'), report });
    assert_eq!((tale.state(), tale.record().retry_counts.retrigger_policy_bot), (State::PolicyFailed, 0));
}

#[test]
fn a_red_check_that_nobody_requires_does_not_keep_a_rebuild_from_its_proof() {
    let mut tale = Tale::at(State::ChecksRunning);
    tale.record_mut().required_checks = vec!["build".to_owned()];
    tale.fail("coverage", None, "79 %");
    tale.fail("build", Some("timeout"), "timeout");
    tale.pass(30);
    tale.sweep(tale.github());
    tale.news(RemedyNews::Accepted);
    assert_eq!(tale.state(), State::ChecksRunning);
    tale.pass(5);
    tale.rerun("build", Verdict::Passed, 8);
    assert_eq!((tale.state(), tale.record().active_run.clone()), (State::ChecksPassed, None));
}

#[test]
fn drops_in_a_row_are_paused_longer_and_longer() {
    let mut tale = claimed(State::ChecksFailed);
    for secs in [0, 30, 60, 120] {
        tale.news(dropped());
        assert_eq!(
            tale.record().stale_at(&tale.policy),
            Some((tale.now + SignedDuration::from_secs(secs)).max(minute_35()))
        );
        assert_eq!(tale.record().due_at, Some(tale.now), "GitHub is asked at once all the same");
        tale.verify(tale.github());
        tale.pass(3);
        tale.sweep(tale.github());
        assert!(tale.record().active_run.is_some());
    }
    tale.news(RemedyNews::Accepted);
    assert_eq!(tale.record().dropped, None, "a state that changes starts the count over");
}

/// When the failure of `claimed(ChecksFailed)` has become stale.
fn minute_35() -> jiff::Timestamp {
    super::world::start() + minutes(32)
}

#[test]
fn a_drop_restores_what_was_before() {
    let mut tale = claimed(State::ChecksFailed);
    let first = tale.now;
    tale.news(failed());
    tale.pass(60);
    tale.sweep_with(|live| live.behind_by = Some(1));
    let record = tale.record();
    assert_eq!((record.remediation_action, record.last_asked.len()), (Some(Strategy::BranchUpdate), 2));
    tale.news(dropped());
    let record = tale.record();
    assert_eq!((record.remediation_action, record.last_remediation_at), (Some(Strategy::Rebuild), Some(first)));
    assert_eq!(record.last_asked.get(&Strategy::Rebuild), Some(&first));
    assert_eq!(record.last_asked.get(&Strategy::BranchUpdate), None);
}

#[test]
fn a_definitive_refusal_is_not_repeated() {
    let mut tale = claimed(State::ChecksFailed);
    tale.news(RemedyNews::Failed { error: "403: no such job".into(), failure: Failure::Forbidden });
    assert_eq!(tale.record().refused.as_ref().unwrap().strategy, Strategy::Rebuild);
    tale.pass(60);
    assert_eq!(tale.sweep(tale.github()), Some(Classification::RetryChecks));
    assert_eq!(tale.state(), State::NeedsIntervention);
    let reason = &tale.record().blocked.as_ref().unwrap().reason;
    assert_eq!(reason, "rebuild was refused for good: 403: no such job");
    // Another strategy may still help.
    let mut other = claimed(State::ChecksFailed);
    other.news(RemedyNews::Failed { error: "403".into(), failure: Failure::Forbidden });
    other.pass(60);
    assert_eq!(other.sweep_with(|live| live.behind_by = Some(1)), Some(Classification::UpdateBranch));
    assert!(other.record().active_run.is_some());
}

#[test]
fn a_proof_that_does_not_come_is_a_failure() {
    let mut tale = claimed(State::ChecksFailed);
    tale.news(RemedyNews::Accepted);
    tale.pass(60);
    tale.news(RemedyNews::Overdue);
    assert_eq!(tale.run_end(), Some((RunEnd::Failed, "failed: new results of the checks did not come in time")));
    assert_eq!((tale.state(), tale.record().refused.clone()), (State::ChecksFailed, None));
}

#[test]
fn a_fresh_pull_request_is_asked_for_twice_and_then_a_person_is() {
    let mut tale = Tale::at(State::Approved);
    tale.pass(10);
    tale.sweep_with(conflicting);
    tale.news(RemedyNews::Accepted);
    tale.tell(Happened::Closed { by: None, why: None });
    tale.pass(60);
    tale.news(RemedyNews::Overdue);
    assert_eq!(tale.last().reason, "CodeGenie is asked once more");
    let [effect] = &tale.last().effects[..] else { panic!() };
    assert!(
        matches!(&effect.what, EffectKind::Command(m) if m.command == Command::CloseAndReopen && m.run_id.is_some())
    );
    let [RunChange::Accepted { deadline, .. }] = &tale.last().runs[..] else { panic!() };
    assert_eq!(*deadline, tale.now + minutes(60));
    tale.pass(60);
    tale.news(RemedyNews::Overdue);
    assert_eq!(tale.run_end().map(|(end, _)| end), Some(RunEnd::Failed));
    let [effect] = &tale.last().effects[..] else { panic!() };
    let EffectKind::Notice(notice) = &effect.what else { panic!() };
    assert_eq!(notice.subject, "Suture: no pull request for CVE-2026-1234 (acme/my-app)");
    assert!(notice.body.contains("reopen #42"), "{}", notice.body);
    assert_eq!(tale.state(), State::Closed);
}

#[test]
fn the_fresh_pull_request_proves_the_remedy_and_both_are_linked() {
    let mut tale = Tale::at(State::Approved);
    tale.pass(10);
    tale.sweep_with(conflicting);
    tale.news(RemedyNews::Accepted);
    tale.tell(Happened::Closed { by: None, why: None });
    tale.tell(Happened::Linked(Link::ReplacedBy(77)));
    assert_eq!(tale.run_end(), Some((RunEnd::Completed, "replaced by #77")));
    assert_eq!((tale.record().replaced_by, tale.record().active_run.clone()), (Some(77), None));
    let [.., linked, ended] = tale.log.as_slice() else { panic!("{:?}", tale.kinds()) };
    assert_eq!((linked.kind, linked.hop), (EventKind::PrLinked, 0));
    assert_eq!((ended.kind, ended.hop, ended.is_healed()), (EventKind::RemediationEnded, 1, true));
    assert_eq!(ended.payload.text, "replaced by #77");
    tale.tell(Happened::Linked(Link::ReplacedBy(77)));
    assert_eq!(tale.outcome(), Outcome::Duplicate);
    let mut fresh = claimed(State::ChecksFailed);
    fresh.tell(Happened::Linked(Link::Replaces(42)));
    assert_eq!((fresh.record().replaces, fresh.record().replaced_by), (Some(42), None));
    assert!(fresh.record().active_run.is_some(), "that is another remedy");
    assert_eq!(fresh.log.last().unwrap().payload.text, "takes the place of #42");
}

#[test]
fn cancel_is_known_as_such_whoever_sees_the_closing() {
    for swept in [false, true] {
        let mut tale = Tale::at(State::ChecksFailed);
        tale.command(Command::Cancel);
        let run = tale.record().abandoning.clone();
        assert!(run.is_some());
        tale.pass(1);
        if swept {
            let life = crate::snapshot::Life::Closed { at: tale.now };
            tale.verify(crate::snapshot::Snapshot { life, ..tale.github() });
        } else {
            tale.tell(Happened::Closed { by: Some("suture[bot]".into()), why: None });
        }
        assert_eq!((tale.state(), tale.record().substatus), (State::Closed, Some(Substatus::Abandoned)));
        assert_eq!(tale.vulnerability_news(), [VulnerabilityNews::Abandoned]);
        assert_eq!(tale.run_end(), Some((RunEnd::Completed, "the pull request is CLOSED")));
        assert_eq!(tale.record().abandoning, None);
    }
}

#[test]
fn green_checks_do_not_resolve_a_conflict() {
    let mut tale = Tale::at(State::ChecksRunning);
    tale.vulnerability.close_and_reopen = 1;
    tale.pass(60);
    tale.sweep_with(conflicting);
    assert_eq!(tale.state(), State::NeedsIntervention);
    tale.check("build", Verdict::Passed);
    tale.policy_bot(PolicyVerdict::Passed);
    assert_eq!(tale.state(), State::NeedsIntervention, "the conflict is still there: one mail is enough");
    tale.pass(24 * 60);
    let mut github = tale.github();
    conflicting(&mut github.live);
    tale.verify(github);
    assert_eq!(tale.state(), State::NeedsIntervention);
    let mut behind = tale.clone();
    let mut github = behind.github();
    github.live.behind_by = Some(1);
    behind.verify(github);
    assert_eq!(behind.state(), State::NeedsIntervention);
    // Where the base does not demand it, being behind is no trouble; where it does, it must be known.
    for (strict, behind_by, out) in [(false, Some(1), true), (false, None, true), (true, None, false)] {
        let mut tale = tale.clone();
        let mut github = tale.github();
        (github.live.strict, github.live.behind_by) = (strict, behind_by);
        tale.verify(github);
        assert_eq!(tale.state() == State::PolicyPassed, out, "{strict} {behind_by:?}");
    }
    tale.verify(tale.github());
    assert_eq!((tale.state(), tale.record().retry_counts.branch_update), (State::PolicyPassed, 0));
    // A real failure, on the other hand, is not disproved by being mergeable.
    let mut red = escalated();
    red.verify(red.github());
    assert_eq!(red.state(), State::NeedsIntervention);
}

#[test]
fn close_and_reopen_needs_a_vulnerability_even_for_people() {
    let mut tale = Tale::at(State::Approved);
    tale.record_mut().vulnerability_id = None;
    tale.command(Command::CloseAndReopen);
    assert_eq!(tale.outcome(), Outcome::Refused);
    assert!(tale.last().reason.contains("no vulnerability id"), "{}", tale.last().reason);
    tale.command(Command::Merge);
    assert_eq!(tale.outcome(), Outcome::Applied, "other commands need none");
    let mut known = Tale::at(State::Approved);
    known.command(Command::CloseAndReopen);
    assert_eq!(known.outcome(), Outcome::Applied);
}

#[test]
fn a_hanging_build_is_stopped_first() {
    let mut tale = Tale::at(State::ChecksRunning);
    tale.pass(130);
    let since = tale.now - minutes(130);
    tale.sweep_with(|live| live.build = Some(Build::Building { since }));
    let EffectKind::Command(message) = &tale.last().effects[0].what else { panic!() };
    assert_eq!(message.args.as_deref(), Some("stop-first"));
}

#[test]
fn observe_mode_says_why_it_would_call_a_person() {
    let mut tale = Tale::at(State::Approved);
    tale.policy.mode = Mode::Observe;
    tale.pass(10);
    tale.sweep_with(conflicting);
    assert_eq!(tale.kinds().last(), Some(&EventKind::WouldRemedy));
    tale.vulnerability.abandoned = true;
    tale.pass(10);
    tale.sweep_with(conflicting);
    assert_eq!(tale.kinds().last(), Some(&EventKind::WouldEscalate), "the same rule, but another decision");
    let text = &tale.log.last().unwrap().payload.text;
    assert!(text.starts_with("would call a person: a person has given this vulnerability up"), "{text}");
}

#[test]
fn a_hold_keeps_its_reason() {
    let mut tale = Tale::at(State::Approved);
    let asked = Commanded {
        command: Command::Hold,
        source: crate::command::CommandSource::AdminApi,
        by: "danny".into(),
        permission: Ok(()),
        run: RunId::new("r"),
        args: "release freeze".into(),
        comment: None,
    };
    tale.tell(Happened::Commanded(Box::new(asked)));
    assert_eq!(tale.record().blocked.as_ref().unwrap().reason, "held by danny: release freeze");
}

#[test]
fn the_log_says_which_run_and_who_asked() {
    let mut tale = claimed(State::ChecksFailed);
    let run = tale.record().active_run.as_ref().map(|run| run.id.clone());
    assert_eq!(tale.log.last().unwrap().payload.run, run);
    tale.news(RemedyNews::Accepted);
    assert_eq!(tale.log.last().unwrap().payload.run, run);
    tale.news(failed());
    assert_eq!(tale.log.last().unwrap().payload.run, run);
    tale.command(Command::Merge);
    let payload = tale.log.last().unwrap().payload.clone();
    assert_eq!((payload.by.as_deref(), payload.name.as_deref()), (Some("danny"), Some("/merge")));
    let escalated = escalated();
    let event = escalated.log.iter().find(|event| event.kind == EventKind::EscalatedNeedsIntervention).unwrap();
    assert_eq!(event.payload.head, Some(sha('a')));
    let mut observed = Tale::at(State::ChecksFailed);
    observed.policy.mode = Mode::Observe;
    observed.pass(30);
    observed.sweep(observed.github());
    assert_eq!(observed.log.last().unwrap().payload.name.as_deref(), Some("CHECKS FAILED — TRANSIENT"));
}

#[test]
fn other_commands_are_taken_while_a_remedy_is_under_way() {
    let mut tale = claimed(State::ChecksFailed);
    for command in [Command::Hold, Command::Status, Command::Resume] {
        tale.command(command);
        assert_eq!(tale.outcome(), Outcome::Applied, "{command}");
    }
    assert!(tale.record().active_run.is_some());
}

#[test]
fn a_push_of_ours_resets_nothing_even_when_no_run_is_known() {
    let mut tale = Tale::at(State::Approved);
    tale.record_mut().retry_counts.branch_update = 1;
    tale.push('b', true);
    assert_eq!(tale.record().retry_counts.branch_update, 1);
}

#[test]
fn nobody_is_called_for_a_replacement_that_was_dropped() {
    let mut tale = Tale::at(State::Approved);
    tale.pass(10);
    tale.sweep_with(conflicting);
    tale.tell(Happened::Closed { by: None, why: None });
    tale.news(dropped());
    assert_eq!((tale.outcome(), tale.last().effects.len()), (Outcome::Applied, 0));
}
