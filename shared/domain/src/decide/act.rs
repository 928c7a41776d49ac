//! What Suture does, as decisions: a remedy is claimed before anything is done, followed until its proof comes, and given
//! back if it was never done (R-REMEDY-1, R-BUDGET-8); what nothing helps is handed to a person.

use jiff::{SignedDuration, Timestamp};

use crate::command::{Command, CommandMessage, CommandSource, MessageVersion};
use crate::comment;
use crate::decide::{Decision, Draft, EffectKind, Outcome, RunChange, RunEnd, VulnerabilityNews, nothing, verify};
use crate::diagnosis::{Classification, Diagnosis};
use crate::event::{Diagnosed, EventKind, Payload, RemedyNews, cut};
use crate::id::{CommandId, RunId};
use crate::insight;
use crate::policy::Mode;
use crate::pull_request::{ActiveRun, Blocked, Dropped, Record, RefusedForGood, Until, seconds};
use crate::remedy;
use crate::run::{Run, RunTrigger};
use crate::state::{State, Strategy, Substatus};
use crate::time::saturating_after;

/// How long a pull request waits for another one of the same vulnerability before a person is called (R-REMEDY-8).
const GUARD_WAIT: SignedDuration = SignedDuration::from_hours(24);

pub(super) fn diagnosed(draft: Draft<'_>, found: &Diagnosed) -> Decision {
    let diagnosis = &found.diagnosis;
    if draft.record.state != diagnosis.state || draft.record.head_sha != diagnosis.head_sha {
        return nothing(Outcome::Superseded, "the pull request has moved on since it was diagnosed");
    }
    if !draft.record.is_actionable() {
        return draft.finish(Outcome::Applied, "held, a draft, or with a person: only watched");
    }
    if draft.record.active_run.is_some() {
        return postpone(draft, "a remedy is under way");
    }
    // Whom a definitive refusal did not convince, a second one will not (R-REMEDY-6).
    let refused =
        draft.record.refused.as_ref().filter(|refused| Some(refused.strategy) == diagnosis.classification.strategy());
    if let Some(why) = refused.map(|refused| format!("{} was refused for good: {}", refused.strategy, refused.why)) {
        return escalate(draft, found, why);
    }
    match diagnosis.classification.strategy() {
        Some(Strategy::CloseAndReopen) => guarded(draft, found),
        Some(strategy) => act(draft, found, strategy),
        None if diagnosis.classification == Classification::NeedsIntervention => {
            escalate(draft, found, comment::blocked_reason(diagnosis))
        }
        None if diagnosis.inconclusive => verify::unanswered(draft, &diagnosis.evidence.join("; ")),
        None => postpone(draft, &diagnosis.evidence.join("; ")),
    }
}

/// Nothing to do now. What is overdue all the same comes back after the longest pause, not at once.
fn postpone(mut draft: Draft<'_>, why: &str) -> Decision {
    draft.record.unanswered = 0;
    if draft.record.is_stale(draft.policy, draft.now) {
        draft.record.not_before = Some(saturating_after(draft.now, seconds(draft.policy.backoff.max_secs)));
    }
    draft.finish(Outcome::Applied, format!("no action: {why}"))
}

/// Close-and-reopen is destructive, so its guard comes before its claim (R-REMEDY-8).
fn guarded(mut draft: Draft<'_>, found: &Diagnosed) -> Decision {
    if draft.record.vulnerability_id.is_none() {
        return escalate(
            draft,
            found,
            "no vulnerability id is known, so no fresh pull request can be asked for".to_owned(),
        );
    }
    let row = found.vulnerability.clone().unwrap_or_default();
    if row.abandoned {
        return escalate(
            draft,
            found,
            "a person has given this vulnerability up, so no fresh pull request is asked for".to_owned(),
        );
    }
    let Some(other) = row.open.iter().copied().find(|number| *number != draft.record.id.number) else {
        return act(draft, found, Strategy::CloseAndReopen);
    };
    let reason = format!("{}: #{other}", comment::DUPLICATE);
    let waiting_since =
        draft.record.blocked.as_ref().filter(|blocked| blocked.reason == reason).map(|blocked| blocked.at);
    if waiting_since.is_some_and(|since| draft.now >= saturating_after(since, GUARD_WAIT)) {
        return escalate(draft, found, format!("{reason} has been open for a day, and this one still has conflicts"));
    }
    let since = waiting_since.unwrap_or(draft.now);
    let state = draft.record.state;
    draft.record.blocked = Some(Blocked { reason: reason.clone(), state, until: Until::Mergeable, at: since });
    draft.record.not_before = Some(saturating_after(since, GUARD_WAIT));
    draft.finish(Outcome::Applied, format!("no action: {reason}"))
}

fn act(draft: Draft<'_>, found: &Diagnosed, strategy: Strategy) -> Decision {
    match draft.policy.mode {
        Mode::Act => claim(draft, found, strategy),
        Mode::Observe => {
            let text = format!("would {}", comment::action(found.diagnosis.classification));
            would(draft, EventKind::WouldRemedy, &found.diagnosis, &text)
        }
    }
}

/// One transaction: the run, the budget, the event, the effect. Nothing is done yet, and no state changes.
fn claim(mut draft: Draft<'_>, found: &Diagnosed, strategy: Strategy) -> Decision {
    let now = draft.now;
    let fixed = remedy::of(strategy);
    let record = &mut draft.record;
    record.retry_counts.count(strategy);
    record.lifetime_remedies = record.lifetime_remedies.saturating_add(1);
    let previous = record.last_remediation_at.replace(now).zip(record.remediation_action.replace(strategy));
    record.not_before = None;
    record.unanswered = 0;
    begin(&mut draft, strategy, &found.run, previous, false);
    let record = &draft.record;
    let mut run = Run::remedy(
        found.run.clone(),
        record.id.clone(),
        Some(record.head_sha.clone()),
        strategy,
        RunTrigger::Reconciler,
        now,
    );
    run.expects = Some(fixed.expects.to_owned());
    run.said.args = found.diagnosis.stop_build.then(|| CommandMessage::STOP_FIRST.to_owned());
    let message = run.message();
    let (rules, failure) = insight::failure_of(record, draft.policy);
    let payload = Payload {
        head: Some(record.head_sha.clone()),
        name: Some(found.diagnosis.rule.title.to_owned()),
        run: Some(found.run.clone()),
        rules,
        failure,
        ..Payload::text(&comment::diagnosis(&found.diagnosis))
    };
    if strategy == Strategy::CloseAndReopen {
        draft.vulnerability(VulnerabilityNews::CountReopen);
    }
    draft.log(fixed.event, None, payload);
    draft.because = Some(comment::diagnosis(&found.diagnosis));
    draft.runs.push(RunChange::Open(Box::new(run)));
    if let Some(message) = message {
        draft.effect(EffectKind::Command(message));
    }
    draft.finish(Outcome::Applied, format!("claimed: {}", comment::action(found.diagnosis.classification)))
}

/// What the Car Bridge is asked once more on behalf of a run that nobody has in hand.
fn message(record: &Record, command: Command, run: &RunId, now: Timestamp) -> CommandMessage {
    CommandMessage {
        v: MessageVersion,
        pr_number: record.id.number,
        repo: record.id.repo.clone(),
        command,
        source: CommandSource::Reconciler,
        requested_by: "suture".to_owned(),
        timestamp: now,
        command_id: CommandId::new(run.as_str()),
        run_id: Some(run.clone()),
        head_sha: Some(record.head_sha.clone()),
        args: None,
        comment: None,
    }
}

/// Marks what the remedy is to renew, and remembers that it is under way.
pub(super) fn begin(
    draft: &mut Draft<'_>,
    strategy: Strategy,
    run: &RunId,
    previous: Option<(Timestamp, Strategy)>,
    human: bool,
) {
    let required = draft.record.required(draft.policy).to_vec();
    let record = &mut draft.record;
    record.signals.claim(strategy, &required);
    let previous_asked = record.last_asked.insert(strategy, draft.now);
    record.active_run = Some(ActiveRun {
        id: run.clone(),
        strategy,
        head_sha: record.head_sha.clone(),
        since: draft.now,
        accepted: false,
        human,
        previous,
        previous_asked,
        asked_twice: false,
    });
}

/// NEEDS_INTERVENTION, with a mail that says everything a person needs.
fn escalate(mut draft: Draft<'_>, found: &Diagnosed, reason: String) -> Decision {
    let diagnosis = &found.diagnosis;
    if draft.policy.mode == Mode::Observe {
        return would(draft, EventKind::WouldEscalate, diagnosis, &format!("would call a person: {reason}"));
    }
    let notice = comment::escalation(&draft.record, diagnosis, &reason, &found.story, draft.policy, draft.now);
    let from = draft.record.state;
    let substatus = draft.record.substatus;
    let (rules, failure) = insight::failure_of(&draft.record, draft.policy);
    let payload = Payload {
        head: Some(draft.record.head_sha.clone()),
        name: Some(diagnosis.rule.title.to_owned()),
        rules,
        failure,
        ..Payload::text(&reason)
    };
    draft.log(EventKind::EscalatedNeedsIntervention, Some((from, State::NeedsIntervention)), payload);
    let now = draft.now;
    draft.enter(State::NeedsIntervention, substatus, now);
    // Green checks do not resolve a conflict: what the base is in the way of, only GitHub's own word takes back.
    let until = if matches!(diagnosis.rule.number, "1" | "2") { Until::Mergeable } else { Until::Progress };
    draft.record.blocked = Some(Blocked { reason: cut(&reason, Payload::MAX_TEXT), state: from, until, at: now });
    draft.because = Some(comment::diagnosis(diagnosis));
    draft.effect(EffectKind::Notice(notice));
    draft.finish(Outcome::Applied, format!("escalated: {reason}"))
}

/// Observe mode: says what would be done, once for each change of mind, and does nothing (R-OBSERVE-1).
fn would(mut draft: Draft<'_>, kind: EventKind, diagnosis: &Diagnosis, what: &str) -> Decision {
    let text = format!("{what}. {}", comment::diagnosis(diagnosis));
    let decision = format!("{kind} {} by rule {}", diagnosis.classification.name(), diagnosis.rule.number);
    let wait = draft.policy.threshold(draft.record.state).unwrap_or(GUARD_WAIT);
    draft.record.not_before = Some(saturating_after(draft.now, wait));
    if draft.record.would.as_deref() != Some(decision.as_str()) {
        let payload = Payload { name: Some(diagnosis.rule.title.to_owned()), ..Payload::text(&text) };
        draft.log(kind, None, payload);
        draft.record.would = Some(decision);
    }
    draft.finish(Outcome::Applied, text)
}

pub(super) fn remedy_news(mut draft: Draft<'_>, run: &RunId, news: &RemedyNews) -> Decision {
    let Some(active) = draft.record.active_run.clone().filter(|active| active.id == *run) else {
        return nothing(Outcome::Ignored, format!("run {run} is not under way any more"));
    };
    match news {
        RemedyNews::Accepted if active.accepted => nothing(Outcome::Duplicate, "accepted already"),
        RemedyNews::Accepted => {
            draft.record.dropped = None;
            accepted(draft, &active)
        }
        RemedyNews::Dropped { why } => {
            draft.give_back();
            let now = draft.now;
            let drops = draft.record.dropped.take().map_or(0, |drops| drops.count);
            ended(draft, &active, RunEnd::Cancelled, &format!("dropped: {why}"), |record| {
                record.dropped = Some(Dropped { count: drops.saturating_add(1), at: now });
            })
        }
        RemedyNews::Failed { error, failure } => {
            let refused = RefusedForGood { strategy: active.strategy, why: cut(error, Payload::MAX_TEXT) };
            let refused = (!failure.may_retry()).then_some(refused);
            ended(draft, &active, RunEnd::Failed, &format!("failed: {error}"), |record| record.refused = refused)
        }
        RemedyNews::Overdue if active.strategy == Strategy::CloseAndReopen && !active.asked_twice => {
            ask_once_more(draft, &active)
        }
        RemedyNews::Overdue => {
            let why = format!("failed: {} did not come in time", remedy::of(active.strategy).expects);
            ended(draft, &active, RunEnd::Failed, &why, |_| {})
        }
    }
}

/// CodeGenie has not opened a fresh pull request in time: it is asked once more, and then a person is (R-REMEDY-9).
fn ask_once_more(mut draft: Draft<'_>, active: &ActiveRun) -> Decision {
    if let Some(run) = &mut draft.record.active_run {
        run.asked_twice = true;
    }
    let fixed = remedy::of(active.strategy);
    let deadline = saturating_after(draft.now, remedy::wait(active.strategy, draft.policy));
    draft.runs.push(RunChange::Accepted { id: active.id.clone(), expects: fixed.expects, deadline });
    let again = message(&draft.record, Command::for_strategy(active.strategy), &active.id, draft.now);
    draft.effect(EffectKind::Command(again));
    let payload =
        Payload { run: Some(active.id.clone()), ..Payload::text("asked once more: no fresh pull request came") };
    draft.log(EventKind::RemediationAccepted, None, payload);
    draft.finish(Outcome::Applied, "CodeGenie is asked once more")
}

/// The target took it. The post-action state is written if everything is as it was claimed; a report that has come in the
/// meantime stands, and may be the proof already.
fn accepted(mut draft: Draft<'_>, active: &ActiveRun) -> Decision {
    if let Some(run) = &mut draft.record.active_run {
        run.accepted = true;
    }
    let fixed = remedy::of(active.strategy);
    let from = draft.record.state;
    let mut change = None;
    let gone = draft.record.head_sha != active.head_sha && active.strategy != Strategy::BranchUpdate;
    if gone {
        let why = format!("the head moved to {}", draft.record.head_sha.short());
        return ended(draft, active, RunEnd::Cancelled, &why, |_| {});
    }
    if draft.record.head_sha == active.head_sha && from.is_live() {
        draft.record.signals.promise(active.strategy);
        let implied = draft.record.implied(draft.policy);
        if Some(implied.state) == fixed.post_action && implied.state != from {
            change = Some((from, implied.state));
            let now = draft.now;
            draft.enter(implied.state, implied.substatus, now);
        }
    }
    let deadline = saturating_after(draft.now, remedy::wait(active.strategy, draft.policy));
    draft.runs.push(RunChange::Accepted { id: active.id.clone(), expects: fixed.expects, deadline });
    let payload = Payload { run: Some(active.id.clone()), ..Payload::text(&format!("awaiting {}", fixed.expects)) };
    draft.log(EventKind::RemediationAccepted, change, payload);
    draft.prove();
    draft.finish(Outcome::Applied, format!("{} was accepted", active.strategy))
}

/// It is over without a proof. If its post-action state was ours, it goes back to what is really known: our own assumption
/// is withdrawn, so the table does not apply, and the clock does not start again.
fn ended(
    mut draft: Draft<'_>,
    active: &ActiveRun,
    end: RunEnd,
    why: &str,
    remember: impl FnOnce(&mut Record),
) -> Decision {
    draft.end_run(end, why);
    let from = draft.record.state;
    let assumed = active.accepted && Some(from) == remedy::of(active.strategy).post_action;
    let implied = draft.record.implied(draft.policy);
    let change = (assumed && implied.state != from).then_some((from, implied.state));
    if change.is_some() {
        let progressed_at = draft.record.progressed_at;
        draft.enter(implied.state, implied.substatus, progressed_at);
    }
    let name = Some(end.name().to_owned());
    let payload = Payload { run: Some(active.id.clone()), name, ..Payload::text(why) };
    draft.log(EventKind::RemediationEnded, change, payload);
    if active.human {
        draft.asked = Some(comment::check_run::came_to_nothing(active.strategy, why));
    }
    remember(&mut draft.record);
    if !draft.record.state.is_terminal() {
        draft.record.doubt(format!("{} {}", active.strategy, cut(why, 100)), draft.now);
    } else if end == RunEnd::Failed && active.strategy == Strategy::CloseAndReopen {
        // The old one is closed and no fresh one came: nobody but a person can see to this vulnerability now.
        draft.effect(EffectKind::Notice(comment::missing_replacement(&draft.record, why)));
    }
    draft.finish(Outcome::Applied, format!("{} {why}", active.strategy))
}

impl Draft<'_> {
    /// CLOSED after `/cancel` is ABANDONED, in the middle of close-and-reopen REPLACED; anything else has no detail.
    pub(super) fn closing_substatus(&self, to: State) -> Option<Substatus> {
        let replacing = self.record.active_run.as_ref().is_some_and(|run| run.strategy == Strategy::CloseAndReopen);
        if to != State::Closed {
            None
        } else if self.record.abandoning.is_some() {
            Some(Substatus::Abandoned)
        } else {
            replacing.then_some(Substatus::Replaced)
        }
    }

    /// What a remedy that was never done has cost comes back, if Suture had claimed it.
    pub(super) fn give_back(&mut self) {
        let Some(active) = self.record.active_run.clone().filter(|run| !run.accepted) else { return };
        match active.previous_asked {
            Some(at) => _ = self.record.last_asked.insert(active.strategy, at),
            None => _ = self.record.last_asked.remove(&active.strategy),
        }
        if active.human {
            return;
        }
        self.record.retry_counts.give_back(active.strategy);
        self.record.lifetime_remedies = self.record.lifetime_remedies.saturating_sub(1);
        self.record.last_remediation_at = active.previous.map(|(at, _)| at);
        self.record.remediation_action = active.previous.map(|(_, strategy)| strategy);
        if active.strategy == Strategy::CloseAndReopen {
            self.vulnerability(VulnerabilityNews::GiveBackReopen);
        }
    }
}
