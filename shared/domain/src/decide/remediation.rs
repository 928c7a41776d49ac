//! Remediation: turns a diagnosis into a claim or an escalation. A remedy is claimed before it is executed (R-REMEDY-1);
//! its progress is in `run_update`.

use jiff::SignedDuration;

use crate::command::CommandMessage;
use crate::decide::{
    Decision, DecisionBuilder, EffectKind, FactOutcome, RunChange, VulnerabilityUpdate, no_change, verify,
};
use crate::diagnosis::{Classification, Diagnosis};
use crate::event::{DiagnosisFact, EventKind, EventPayload, truncate};
use crate::id::RunId;
use crate::insights;
use crate::policy::Mode;
use crate::pull_request::{ActiveRun, BlockedDetails, BlockedUntil, ObservedDecision, PreviousRemedy, seconds};
use crate::remedy;
use crate::run::{Run, RunTrigger};
use crate::state::Strategy;
use crate::text;
use crate::time::saturating_after;
use crate::transition::TransitionTrigger;

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
    match (diagnosis.classification.strategy(), diagnosis.inconclusive) {
        (Some(Strategy::CloseAndReopen), _) => check_duplicate_guard(builder, found),
        (Some(strategy), _) => act(builder, found, strategy),
        (None, _) if diagnosis.classification == Classification::NeedsIntervention => {
            escalate(builder, found, text::blocked_reason(diagnosis))
        }
        (None, Some(cause)) => verify::inconclusive(builder, cause, &diagnosis.evidence.join("; ")),
        (None, None) => postpone(builder, &diagnosis.evidence.join("; ")),
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
    if waiting_since.is_none() {
        let payload = EventPayload {
            head: Some(builder.record.head_sha.clone()),
            name: Some(format!("#{other}")),
            ..EventPayload::text(&reason)
        };
        builder.log(EventKind::DuplicateExists, None, payload);
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
    let previous = previous.map(|(at, strategy)| PreviousRemedy { at, strategy, remedied_in: record.remedied_in });
    record.remedied_in = Some(record.state);
    record.not_before = None;
    (record.inconclusive_visits, record.unknown_mergeable_visits) = (0, 0);
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

/// Marks the reports that the remedy is expected to renew, and sets the active run.
pub(super) fn start_remedy(
    builder: &mut DecisionBuilder<'_>,
    strategy: Strategy,
    run: &RunId,
    previous: Option<PreviousRemedy>,
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
        closing: false,
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
    let now = builder.now;
    let change = builder.enter(TransitionTrigger::Escalated, substatus, now);
    builder.log(EventKind::EscalatedNeedsIntervention, change, payload);
    // Green checks do not resolve a conflict or a branch that is behind: only GitHub's merge status does.
    let until = match diagnosis.rule.number {
        "0" => BlockedUntil::MergeabilityKnown,
        "1" | "2" => BlockedUntil::Mergeable,
        _ => BlockedUntil::Progress,
    };
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
