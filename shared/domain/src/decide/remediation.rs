//! Remediation: turns a diagnosis into a claim or an escalation, and handles updates of the active run. A remedy is
//! claimed before it is executed (R-REMEDY-1), and its budget is refunded if it was never executed (R-BUDGET-8).

use jiff::{SignedDuration, Timestamp};

use crate::command::{Command, CommandMessage, CommandSource, MessageVersion};
use crate::decide::{
    Decision, DecisionBuilder, EffectKind, FactOutcome, RunChange, VulnerabilityUpdate, no_change, verify,
};
use crate::diagnosis::{Classification, Diagnosis};
use crate::event::{DiagnosisFact, EventKind, EventPayload, RemedyUpdate, truncate};
use crate::id::{CommandId, RunId};
use crate::insights;
use crate::policy::Mode;
use crate::pull_request::{
    ActiveRun, BlockedDetails, BlockedUntil, DroppedRemedies, ObservedDecision, PermanentRefusal, PullRequest, seconds,
};
use crate::remedy;
use crate::run::RunEnd;
use crate::run::{Run, RunTrigger};
use crate::state::{State, Strategy, Substatus};
use crate::text;
use crate::time::saturating_after;

/// How long a pull request waits for another open one of the same vulnerability before it escalates (R-REMEDY-8).
const DUPLICATE_WAIT: SignedDuration = SignedDuration::from_hours(24);

pub(super) fn diagnosed(builder: DecisionBuilder<'_>, found: &DiagnosisFact) -> Decision {
    let diagnosis = &found.diagnosis;
    if builder.record.state != diagnosis.state || builder.record.head_sha != diagnosis.head_sha {
        return no_change(FactOutcome::Superseded, "state or head changed since the diagnosis");
    }
    if !builder.record.is_actionable() {
        return builder.finish(FactOutcome::Applied, "no action: on hold, a draft, or escalated");
    }
    if builder.record.active_run.is_some() {
        return postpone(builder, "a remedy is in progress");
    }
    // Repeating a strategy that was refused permanently would only be refused again (R-REMEDY-6).
    let refused =
        builder.record.refused.as_ref().filter(|refused| Some(refused.strategy) == diagnosis.classification.strategy());
    if let Some(why) = refused.map(|refused| format!("{} was refused permanently: {}", refused.strategy, refused.why)) {
        return escalate(builder, found, why);
    }
    match diagnosis.classification.strategy() {
        Some(Strategy::CloseAndReopen) => check_duplicate_guard(builder, found),
        Some(strategy) => act(builder, found, strategy),
        None if diagnosis.classification == Classification::NeedsIntervention => {
            escalate(builder, found, text::blocked_reason(diagnosis))
        }
        None if diagnosis.inconclusive => verify::inconclusive(builder, &diagnosis.evidence.join("; ")),
        None => postpone(builder, &diagnosis.evidence.join("; ")),
    }
}

/// Takes no action. A record that is stale is due again after the longest backoff, not at once.
fn postpone(mut builder: DecisionBuilder<'_>, why: &str) -> Decision {
    builder.record.inconclusive_visits = 0;
    if builder.record.is_stale(builder.policy, builder.now) {
        builder.record.not_before = Some(saturating_after(builder.now, seconds(builder.policy.backoff.max_secs)));
    }
    builder.finish(FactOutcome::Applied, format!("no action: {why}"))
}

/// Close-and-reopen is destructive, so the vulnerability is checked for another open pull request before the claim
/// (R-REMEDY-8).
fn check_duplicate_guard(mut builder: DecisionBuilder<'_>, found: &DiagnosisFact) -> Decision {
    if builder.record.vulnerability_id.is_none() {
        return escalate(builder, found, "no vulnerability id is known, so no replacement can be requested".to_owned());
    }
    let row = found.vulnerability.clone().unwrap_or_default();
    if row.abandoned {
        return escalate(
            builder,
            found,
            "a person abandoned this vulnerability, so no replacement is requested".to_owned(),
        );
    }
    let Some(other) = row.open.iter().copied().find(|number| *number != builder.record.id.number) else {
        return act(builder, found, Strategy::CloseAndReopen);
    };
    let reason = format!("{}: #{other}", text::DUPLICATE_EXISTS);
    let waiting_since =
        builder.record.blocked.as_ref().filter(|blocked| blocked.reason == reason).map(|blocked| blocked.at);
    if waiting_since.is_some_and(|since| builder.now >= saturating_after(since, DUPLICATE_WAIT)) {
        return escalate(
            builder,
            found,
            format!("{reason} has been open for 24 hours, and this one still has conflicts"),
        );
    }
    let since = waiting_since.unwrap_or(builder.now);
    let state = builder.record.state;
    builder.record.blocked =
        Some(BlockedDetails { reason: reason.clone(), state, until: BlockedUntil::Mergeable, at: since });
    builder.record.not_before = Some(saturating_after(since, DUPLICATE_WAIT));
    builder.finish(FactOutcome::Applied, format!("no action: {reason}"))
}

fn act(builder: DecisionBuilder<'_>, found: &DiagnosisFact, strategy: Strategy) -> Decision {
    match builder.policy.mode {
        Mode::Act => claim(builder, found, strategy),
        Mode::Observe => {
            let text = format!("would {}", text::action(found.diagnosis.classification));
            log_observed(builder, EventKind::WouldRemedy, &found.diagnosis, &text)
        }
    }
}

/// Writes run, budget, event and effect in one transaction. The remedy is not executed yet, and the state does not
/// change.
fn claim(mut builder: DecisionBuilder<'_>, found: &DiagnosisFact, strategy: Strategy) -> Decision {
    let now = builder.now;
    let fixed = remedy::of(strategy);
    let record = &mut builder.record;
    record.retry_counts.spend(strategy);
    record.lifetime_remedies = record.lifetime_remedies.saturating_add(1);
    let previous = record.last_remediation_at.replace(now).zip(record.remediation_action.replace(strategy));
    record.not_before = None;
    record.inconclusive_visits = 0;
    start_remedy(&mut builder, strategy, &found.run, previous, false);
    let record = &builder.record;
    let mut run = Run::remedy(
        found.run.clone(),
        record.id.clone(),
        Some(record.head_sha.clone()),
        strategy,
        RunTrigger::Reconciler,
        now,
    );
    run.expects = Some(fixed.expects.to_owned());
    run.command.args = found.diagnosis.stop_build.then(|| CommandMessage::STOP_FIRST.to_owned());
    let message = run.message();
    let (rules, failure) = insights::failure_digest(record, builder.policy);
    let payload = EventPayload {
        head: Some(record.head_sha.clone()),
        name: Some(found.diagnosis.rule.title.to_owned()),
        run: Some(found.run.clone()),
        rules,
        failure,
        ..EventPayload::text(&text::diagnosis(&found.diagnosis))
    };
    if strategy == Strategy::CloseAndReopen {
        builder.change_vulnerability(VulnerabilityUpdate::CountReopen);
    }
    builder.log(fixed.event, None, payload);
    builder.diagnosis_text = Some(text::diagnosis(&found.diagnosis));
    builder.runs.push(RunChange::Open(Box::new(run)));
    if let Some(message) = message {
        builder.add_effect(EffectKind::Command(message));
    }
    builder.finish(FactOutcome::Applied, format!("claimed: {}", text::action(found.diagnosis.classification)))
}

/// The command that repeats the request of a run on the queue.
fn repeat_message(record: &PullRequest, command: Command, run: &RunId, now: Timestamp) -> CommandMessage {
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

/// Marks the reports that the remedy is expected to renew, and sets the active run.
pub(super) fn start_remedy(
    builder: &mut DecisionBuilder<'_>,
    strategy: Strategy,
    run: &RunId,
    previous: Option<(Timestamp, Strategy)>,
    human: bool,
) {
    let required = builder.record.required(builder.policy).to_vec();
    let record = &mut builder.record;
    record.signals.mark_claimed(strategy, &required);
    let previous_request = record.last_requested.insert(strategy, builder.now);
    record.active_run = Some(ActiveRun {
        id: run.clone(),
        strategy,
        head_sha: record.head_sha.clone(),
        since: builder.now,
        accepted: false,
        human,
        previous,
        previous_request,
        repeated: false,
    });
}

/// Moves to NEEDS_INTERVENTION and sends the escalation mail.
fn escalate(mut builder: DecisionBuilder<'_>, found: &DiagnosisFact, reason: String) -> Decision {
    let diagnosis = &found.diagnosis;
    if builder.policy.mode == Mode::Observe {
        return log_observed(builder, EventKind::WouldEscalate, diagnosis, &format!("would escalate: {reason}"));
    }
    let notice = text::escalation(&builder.record, diagnosis, &reason, &found.history, builder.policy, builder.now);
    let from = builder.record.state;
    let substatus = builder.record.substatus;
    let (rules, failure) = insights::failure_digest(&builder.record, builder.policy);
    let payload = EventPayload {
        head: Some(builder.record.head_sha.clone()),
        name: Some(diagnosis.rule.title.to_owned()),
        rules,
        failure,
        ..EventPayload::text(&reason)
    };
    builder.log(EventKind::EscalatedNeedsIntervention, Some((from, State::NeedsIntervention)), payload);
    let now = builder.now;
    builder.enter(State::NeedsIntervention, substatus, now);
    // Green checks do not resolve a conflict or a branch that is behind: only GitHub's merge status does.
    let until =
        if matches!(diagnosis.rule.number, "1" | "2") { BlockedUntil::Mergeable } else { BlockedUntil::Progress };
    builder.record.blocked =
        Some(BlockedDetails { reason: truncate(&reason, EventPayload::MAX_TEXT), state: from, until, at: now });
    builder.diagnosis_text = Some(text::diagnosis(diagnosis));
    builder.add_effect(EffectKind::Notice(notice));
    builder.finish(FactOutcome::Applied, format!("escalated: {reason}"))
}

/// Observe mode: logs the decision when it differs from the last one, and takes no action (R-OBSERVE-1).
fn log_observed(mut builder: DecisionBuilder<'_>, kind: EventKind, diagnosis: &Diagnosis, what: &str) -> Decision {
    let text = format!("{what}. {}", text::diagnosis(diagnosis));
    let decision = ObservedDecision {
        kind,
        classification: diagnosis.classification.name().to_owned(),
        rule: diagnosis.rule.number.to_owned(),
    };
    let wait = builder.policy.threshold(builder.record.state).unwrap_or(DUPLICATE_WAIT);
    builder.record.not_before = Some(saturating_after(builder.now, wait));
    if builder.record.observed_decision.as_ref() != Some(&decision) {
        let payload = EventPayload { name: Some(diagnosis.rule.title.to_owned()), ..EventPayload::text(&text) };
        builder.log(kind, None, payload);
        builder.record.observed_decision = Some(decision);
    }
    builder.finish(FactOutcome::Applied, text)
}

pub(super) fn remedy_update(mut builder: DecisionBuilder<'_>, run: &RunId, update: &RemedyUpdate) -> Decision {
    let Some(active) = builder.record.active_run.clone().filter(|active| active.id == *run) else {
        return no_change(FactOutcome::Ignored, format!("run {run} is not active any more"));
    };
    match update {
        RemedyUpdate::Accepted if active.accepted => no_change(FactOutcome::Duplicate, "already accepted"),
        RemedyUpdate::Accepted => {
            builder.record.dropped = None;
            accepted(builder, &active)
        }
        RemedyUpdate::Dropped { why } => {
            builder.refund();
            let now = builder.now;
            let drops = builder.record.dropped.take().map_or(0, |drops| drops.count);
            ended(builder, &active, RunEnd::Dropped, &format!("dropped: {why}"), |record| {
                record.dropped = Some(DroppedRemedies { count: drops.saturating_add(1), at: now });
            })
        }
        RemedyUpdate::Failed { error, failure } => {
            let refused = PermanentRefusal { strategy: active.strategy, why: truncate(error, EventPayload::MAX_TEXT) };
            let refused = (!failure.may_retry()).then_some(refused);
            ended(builder, &active, RunEnd::Failed, &format!("failed: {error}"), |record| record.refused = refused)
        }
        RemedyUpdate::Overdue if active.strategy == Strategy::CloseAndReopen && !active.repeated => {
            request_again(builder, &active)
        }
        RemedyUpdate::Overdue => {
            let why = format!("failed: {} did not arrive in time", remedy::of(active.strategy).expects);
            ended(builder, &active, RunEnd::Failed, &why, |_| {})
        }
    }
}

/// Repeats the request when CodeGenie has not opened the replacement in time. After the second deadline a person is
/// notified (R-REMEDY-9).
fn request_again(mut builder: DecisionBuilder<'_>, active: &ActiveRun) -> Decision {
    if let Some(run) = &mut builder.record.active_run {
        run.repeated = true;
    }
    let fixed = remedy::of(active.strategy);
    let deadline = saturating_after(builder.now, remedy::proof_timeout(active.strategy, builder.policy));
    builder.runs.push(RunChange::Accepted { id: active.id.clone(), expects: fixed.expects, deadline });
    let again = repeat_message(&builder.record, Command::for_strategy(active.strategy), &active.id, builder.now);
    builder.add_effect(EffectKind::Command(again));
    let payload = EventPayload {
        run: Some(active.id.clone()),
        ..EventPayload::text("requested again: no replacement was opened in time")
    };
    builder.log(EventKind::RemediationAccepted, None, payload);
    builder.finish(FactOutcome::Applied, "replacement requested again from CodeGenie")
}

/// The target accepted the request. The post-action state is written if state and head are as claimed. A report that
/// arrived since the claim is kept, and may already prove the remedy.
fn accepted(mut builder: DecisionBuilder<'_>, active: &ActiveRun) -> Decision {
    if let Some(run) = &mut builder.record.active_run {
        run.accepted = true;
    }
    let fixed = remedy::of(active.strategy);
    let from = builder.record.state;
    let mut change = None;
    let head_changed = builder.record.head_sha != active.head_sha && active.strategy != Strategy::BranchUpdate;
    if head_changed {
        let why = format!("the head moved to {}", builder.record.head_sha.short());
        return ended(builder, active, RunEnd::Cancelled, &why, |_| {});
    }
    if builder.record.head_sha == active.head_sha && from.is_live() {
        builder.record.signals.mark_accepted(active.strategy);
        let implied = builder.record.implied(builder.policy);
        if Some(implied.state) == fixed.post_action && implied.state != from {
            change = Some((from, implied.state));
            let now = builder.now;
            builder.enter(implied.state, implied.substatus, now);
        }
    }
    let deadline = saturating_after(builder.now, remedy::proof_timeout(active.strategy, builder.policy));
    builder.runs.push(RunChange::Accepted { id: active.id.clone(), expects: fixed.expects, deadline });
    let payload =
        EventPayload { run: Some(active.id.clone()), ..EventPayload::text(&format!("awaiting {}", fixed.expects)) };
    builder.log(EventKind::RemediationAccepted, change, payload);
    builder.complete_if_proven();
    builder.finish(FactOutcome::Applied, format!("{} was accepted", active.strategy))
}

/// Ends a run that was not proven. If the record is in the post-action state that Suture assumed, it returns to the
/// state its signals imply. This only withdraws Suture's own assumption, so the transition table does not apply, and
/// staleness still counts from the same time.
fn ended(
    mut builder: DecisionBuilder<'_>,
    active: &ActiveRun,
    end: RunEnd,
    why: &str,
    remember: impl FnOnce(&mut PullRequest),
) -> Decision {
    builder.end_run(end, why);
    let from = builder.record.state;
    let assumed = active.accepted && Some(from) == remedy::of(active.strategy).post_action;
    let implied = builder.record.implied(builder.policy);
    let change = (assumed && implied.state != from).then_some((from, implied.state));
    if change.is_some() {
        let progressed_at = builder.record.state_since;
        builder.enter(implied.state, implied.substatus, progressed_at);
    }
    let payload = EventPayload { run: Some(active.id.clone()), run_end: Some(end), ..EventPayload::text(why) };
    builder.log(EventKind::RemediationEnded, change, payload);
    if active.human {
        builder.command_result = Some(text::check_run::command_failed(active.strategy, why));
    }
    remember(&mut builder.record);
    if !builder.record.state.is_terminal() {
        builder.record.request_verification(format!("{} {}", active.strategy, truncate(why, 100)), builder.now);
    } else if end == RunEnd::Failed && active.strategy == Strategy::CloseAndReopen {
        // The pull request is closed and has no replacement, so a person has to take care of the vulnerability.
        builder.add_effect(EffectKind::Notice(text::missing_replacement(&builder.record, why, builder.policy)));
    }
    builder.finish(FactOutcome::Applied, format!("{} {why}", active.strategy))
}

impl DecisionBuilder<'_> {
    /// The substatus of CLOSED: ABANDONED after `/cancel`, REPLACED during close-and-reopen, none otherwise.
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

    /// Undoes the claim of a remedy that was never executed: budget, lifetime count and the time of the last remedy.
    pub(super) fn refund(&mut self) {
        let Some(active) = self.record.active_run.clone().filter(|run| !run.accepted) else { return };
        match active.previous_request {
            Some(at) => _ = self.record.last_requested.insert(active.strategy, at),
            None => _ = self.record.last_requested.remove(&active.strategy),
        }
        if active.human {
            return;
        }
        self.record.retry_counts.refund(active.strategy);
        self.record.lifetime_remedies = self.record.lifetime_remedies.saturating_sub(1);
        self.record.last_remediation_at = active.previous.map(|(at, _)| at);
        self.record.remediation_action = active.previous.map(|(_, strategy)| strategy);
        if active.strategy == Strategy::CloseAndReopen {
            self.change_vulnerability(VulnerabilityUpdate::RefundReopen);
        }
    }
}
