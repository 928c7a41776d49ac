//! Compares the record with a GitHub snapshot and corrects drift (R-SWEEP-4, R-SWEEP-5). The snapshot's signals are
//! stored like any report and go through the same derivation. The correction is exempt from the transition table, since
//! the missed events cannot be replayed. A snapshot that says less than is known is not drift (R-SWEEP-6).

use jiff::{SignedDuration, Timestamp};

use crate::admission::GateEpoch;
use crate::decide::lifecycle::{self, HeadPush};
use crate::decide::{Decision, DecisionBuilder, FactOutcome, no_change};
use crate::diagnosis::InconclusiveCause;
use crate::event::{EventKind, EventPayload};
use crate::policy::BehindRule;
use crate::pull_request::{BlockedUntil, seconds, visit_backoff};
use crate::signals::{ImpliedState, UpdateResult};
use crate::snapshot::{LiveStatus, Mergeability, PullRequestState, Snapshot};
use crate::state::State;
use crate::text;
use crate::time::saturating_after;
use crate::transition;

/// Tolerated difference between GitHub's clock and Suture's.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn verified(mut builder: DecisionBuilder<'_>, snapshot: &Snapshot) -> Decision {
    match &snapshot.state {
        PullRequestState::Closed { .. } if snapshot.read_at < builder.record.lifecycle_at => {
            no_change(FactOutcome::Superseded, "reopened after the snapshot was read")
        }
        PullRequestState::Closed { at } => correct_to_terminal(builder, State::Closed, EventKind::PrClosed, *at, None),
        PullRequestState::Merged { at, by, by_automerge_bot } => {
            correct_to_terminal(builder, State::Merged, lifecycle::merge_kind(*by_automerge_bot), *at, by.clone())
        }
        PullRequestState::Open if head_moved_since(&builder, snapshot) => {
            no_change(FactOutcome::Superseded, "the head moved after the snapshot was read")
        }
        PullRequestState::Open => {
            let head_was = builder.record.head_sha.clone();
            let noted = note_snapshot(&mut builder, snapshot);
            builder.record.verified_at = Some(builder.now);
            builder.record.verify_reason = None;
            builder.record.not_before = None;
            builder.record.put_off = None;
            builder.record.skips = 0;
            note_mergeability(&mut builder, snapshot);
            let moved = builder.record.head_sha != head_was;
            correct(builder, moved, noted, &snapshot.live)
        }
    }
}

/// Whether a push arrived after the snapshot was read. GitHub's clock may run ahead of Suture's, so a snapshot of the same
/// head is current whatever the times say.
fn head_moved_since(builder: &DecisionBuilder<'_>, snapshot: &Snapshot) -> bool {
    builder.record.head_at > snapshot.read_at && builder.record.head_sha != snapshot.details.head
}

/// Updates what depends on the mergeability. GitHub computes it later than it refuses a branch update, so `Clean`
/// disproves the conflict of an update only if the base moved in between.
fn note_mergeability(builder: &mut DecisionBuilder<'_>, snapshot: &Snapshot) {
    let record = &mut builder.record;
    if snapshot.live.mergeable == Mergeability::Unknown {
        return;
    }
    record.unknown_mergeable_visits = 0;
    let base_moved_at = record.base_conflict.and_then(|conflict| conflict.base_moved_at);
    if snapshot.live.mergeable == Mergeability::Clean && base_moved_at.is_some_and(|at| snapshot.read_at > at) {
        record.base_conflict = None;
    }
    // Without a conflict nothing waits for the duplicate any more.
    let waits = record.blocked.as_ref().is_some_and(|blocked| blocked.until == BlockedUntil::Mergeable);
    if waits && record.state.is_live() && !record.has_conflict(Some(&snapshot.live)) {
        record.blocked = None;
    }
}

/// GitHub says merged or closed, and no webhook reported it.
fn correct_to_terminal(
    mut builder: DecisionBuilder<'_>,
    to: State,
    missed: EventKind,
    at: Timestamp,
    by: Option<String>,
) -> Decision {
    let from = builder.record.state;
    let drift = text::drift(&builder.record.id, from, to);
    let payload = EventPayload {
        by,
        name: Some(missed.name().to_owned()),
        ..EventPayload::text(&format!("{drift}; missed: {missed}"))
    };
    builder.record.verified_at = Some(builder.now);
    let substatus = builder.closing_substatus(to);
    let at = at.min(builder.now);
    let change = builder.correct_state(to, substatus, at);
    builder.log(EventKind::StateDriftCorrected, change, payload);
    lifecycle::end_run_by_merge(&mut builder, missed);
    lifecycle::end_record(&mut builder, at);
    builder.finish(FactOutcome::Applied, drift)
}

/// Copies details, required checks, head and signals from the snapshot to the record.
fn note_snapshot(builder: &mut DecisionBuilder<'_>, snapshot: &Snapshot) -> UpdateResult {
    let changes = lifecycle::apply_details(builder, &snapshot.details, snapshot.read_at);
    if let Some(contexts) = &snapshot.required_checks {
        builder.record.required_checks = lifecycle::required_contexts(builder.policy, contexts);
    }
    if snapshot.details.head != builder.record.head_sha {
        // The time of the push is unknown. It must not be later than that of a push event still to arrive.
        let at = builder.record.head_at.max(snapshot.read_at.saturating_sub(CLOCK_SKEW).unwrap_or(snapshot.read_at));
        lifecycle::move_head(builder, &snapshot.details.head, at, HeadPush::default());
    }
    let live = builder.record.active_run.as_ref().filter(|run| run.head_sha == builder.record.head_sha);
    // By GitHub's clock, a result of the remedy may seem slightly older than the remedy.
    let not_before = live.map(|run| run.since.saturating_sub(CLOCK_SKEW).unwrap_or(run.since));
    if not_before.is_none() {
        builder.record.signals.clear_marks();
    }
    let limit = usize::try_from(builder.policy.limits.checks_per_head).unwrap_or(usize::MAX);
    let required = builder.record.required(builder.policy).to_vec();
    let noted = builder.record.signals.note_all(&snapshot.signals, limit, &required, not_before);
    if noted == UpdateResult::Unchanged && changes.is_some() { UpdateResult::Changed } else { noted }
}

/// Moves the record to the state that GitHub's signals imply.
fn correct(mut builder: DecisionBuilder<'_>, moved: bool, noted: UpdateResult, live: &LiveStatus) -> Decision {
    let implied = builder.record.implied(builder.policy);
    let from = builder.record.state;
    let stays = if from == State::NeedsIntervention {
        builder.hop_out_of_intervention(implied.state).is_empty() && !is_mergeable_again(&builder, live)
    } else {
        from == implied.state
    };
    // A missed push is drift even if both heads imply the same state, because all checks start again.
    if moved || !stays {
        return drift(builder, implied, moved);
    }
    builder.update_substatus(implied);
    builder.complete_if_proven();
    let summary = match noted {
        UpdateResult::Changed => "verified, with changes",
        UpdateResult::Unchanged => "verified",
        UpdateResult::LimitReached => "verified, but the head has more checks than `limits.checks_per_head` allows",
    };
    builder.finish(FactOutcome::Applied, format!("{summary}: {from}"))
}

/// Whether GitHub's merge status disproves the cause of the escalation: the conflict or the branch lag is resolved, or
/// the mergeability is known again.
fn is_mergeable_again(builder: &DecisionBuilder<'_>, live: &LiveStatus) -> bool {
    match builder.record.blocked.as_ref().map(|blocked| blocked.until) {
        Some(BlockedUntil::MergeabilityKnown) => live.mergeable != Mergeability::Unknown,
        Some(BlockedUntil::Mergeable) => {
            let lag_matters = live.strict || builder.policy.checks.behind == BehindRule::Always;
            let resolved = builder.record.base_conflict.is_none() && live.mergeable == Mergeability::Clean;
            resolved && (!lag_matters || live.behind_by == Some(0))
        }
        Some(BlockedUntil::Progress) | None => false,
    }
}

fn drift(mut builder: DecisionBuilder<'_>, implied: ImpliedState, moved: bool) -> Decision {
    let from = builder.record.state;
    let to = implied.state;
    let hops = transition::walk(from, to).unwrap_or_default();
    let mut missed: Vec<&str> = hops.iter().map(|hop| hop.trigger.event().name()).collect();
    if moved {
        missed = vec![EventKind::BranchUpdated.name()];
    }
    let text = text::drift(&builder.record.id, from, to);
    let detail = if missed.is_empty() { text.clone() } else { format!("{text}; missed: {}", missed.join(", ")) };
    let payload = EventPayload {
        head: Some(builder.record.head_sha.clone()),
        name: missed.last().map(|&name| name.to_owned()),
        ..EventPayload::text(&detail)
    };
    let since = builder
        .record
        .signals
        .since(to, builder.record.required(builder.policy))
        .unwrap_or(builder.record.head_at)
        .min(builder.now);
    let change = builder.correct_state(to, implied.substatus, since);
    builder.log(EventKind::StateDriftCorrected, change, payload);
    builder.record.last_event_at = builder.record.last_event_at.max(since);
    // Missed events count as real events: each state on the way resets the budgets it proves.
    for hop in &hops {
        builder.record.retry_counts.reset_reached(hop.state, None);
    }
    builder.record.retry_counts.reset_reached(to, implied.substatus);
    builder.complete_if_proven();
    builder.finish(FactOutcome::Applied, text)
}

/// GitHub could not be read, or the sweep may not act now: the pull request is due again after a growing backoff, or at
/// `until` if the time is known (R-SWEEP-4).
pub(super) fn skipped(
    mut builder: DecisionBuilder<'_>,
    why: &str,
    until: Option<Timestamp>,
    gate: Option<GateEpoch>,
) -> Decision {
    builder.record.put_off = gate;
    if let Some(until) = until {
        builder.record.not_before = Some(until.max(builder.now));
        return builder.finish(FactOutcome::Applied, format!("skipped: {why}"));
    }
    builder.record.skips = builder.record.skips.saturating_add(1);
    let visits = builder.record.skips;
    retry_later(builder, visits, why)
}

/// Jenkins could not be reached, or GitHub has not computed the mergeability. Each is counted on its own (R-DIAG-16,
/// R-DIAG-24).
pub(super) fn inconclusive(mut builder: DecisionBuilder<'_>, cause: InconclusiveCause, why: &str) -> Decision {
    let record = &mut builder.record;
    match cause {
        InconclusiveCause::Jenkins => {
            record.inconclusive_visits = record.inconclusive_visits.saturating_add(1);
            let visits = record.inconclusive_visits;
            retry_later(builder, visits, why)
        }
        InconclusiveCause::Mergeability => {
            record.unknown_mergeable_visits = record.unknown_mergeable_visits.saturating_add(1);
            // The visit has asked several times already, so the next one waits for the longest backoff.
            record.not_before = Some(saturating_after(builder.now, seconds(builder.policy.backoff.max_secs)));
            builder.finish(FactOutcome::Applied, format!("no action: {why}"))
        }
    }
}

fn retry_later(mut builder: DecisionBuilder<'_>, visits: u32, why: &str) -> Decision {
    builder.record.not_before = Some(saturating_after(builder.now, visit_backoff(builder.policy).delay(visits)));
    builder.finish(FactOutcome::Applied, format!("skipped: {why}"))
}
