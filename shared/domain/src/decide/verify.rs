//! Compares the record with a GitHub snapshot and corrects drift (R-SWEEP-4, R-SWEEP-5). The snapshot's signals are stored
//! like any report and go through the same derivation. The correction is exempt from the transition table, since the
//! missed events cannot be replayed. A snapshot that says less than is known is not drift (R-SWEEP-6).

use jiff::{SignedDuration, Timestamp};

use crate::comment;
use crate::decide::{Decision, Draft, Outcome, life, no_change};
use crate::event::{EventKind, Payload};
use crate::policy::Behind;
use crate::pull_request::{Until, pauses};
use crate::signals::{Implied, Noted};
use crate::snapshot::{Life, Live, Mergeable, Snapshot};
use crate::state::{State, Strategy};
use crate::time::saturating_after;
use crate::transition;

/// Tolerated difference between GitHub's clock and ours.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn verified(mut draft: Draft<'_>, snapshot: &Snapshot) -> Decision {
    match &snapshot.life {
        Life::Closed { .. } if snapshot.read_at < draft.record.lifecycle_at => {
            no_change(Outcome::Superseded, "reopened after the snapshot was read")
        }
        Life::Closed { at } => correct_to_terminal(draft, State::Closed, EventKind::PrClosed, *at, None),
        Life::Merged { at, by, by_automerge_bot } => {
            correct_to_terminal(draft, State::Merged, life::merge_kind(*by_automerge_bot), *at, by.clone())
        }
        Life::Open if head_moved_since(&draft, snapshot) => {
            no_change(Outcome::Superseded, "the head moved after the snapshot was read")
        }
        Life::Open => {
            let head_was = draft.record.head_sha.clone();
            let noted = note_snapshot(&mut draft, snapshot);
            draft.record.verified_at = Some(draft.now);
            draft.record.suspect = None;
            draft.record.not_before = None;
            draft.record.skips = 0;
            let moved = draft.record.head_sha != head_was;
            correct(draft, moved, noted, &snapshot.live)
        }
    }
}

/// Whether a push arrived after the snapshot was read. GitHub's clock may run ahead of ours, so a snapshot of the same head
/// is current whatever the times say.
fn head_moved_since(draft: &Draft<'_>, snapshot: &Snapshot) -> bool {
    draft.record.head_at > snapshot.read_at && draft.record.head_sha != snapshot.described.head
}

/// GitHub says merged or closed, and no webhook reported it.
fn correct_to_terminal(
    mut draft: Draft<'_>,
    to: State,
    missed: EventKind,
    at: Timestamp,
    by: Option<String>,
) -> Decision {
    let from = draft.record.state;
    let drift = comment::drift(&draft.record.id, from, to);
    let payload =
        Payload { by, name: Some(missed.name().to_owned()), ..Payload::text(&format!("{drift}; missed: {missed}")) };
    draft.log(EventKind::StateDriftCorrected, Some((from, to)), payload);
    draft.record.verified_at = Some(draft.now);
    let substatus = draft.closing_substatus(to);
    life::enter_terminal(&mut draft, to, substatus, at);
    draft.finish(Outcome::Applied, drift)
}

/// Copies details, required checks, head and signals from the snapshot to the record.
fn note_snapshot(draft: &mut Draft<'_>, snapshot: &Snapshot) -> Noted {
    let changes = life::apply_details(draft, &snapshot.described, snapshot.read_at);
    if let Some(contexts) = &snapshot.required_checks {
        draft.record.required_checks = life::required_contexts(draft.policy, contexts);
    }
    if snapshot.described.head != draft.record.head_sha {
        let run = draft.record.active_run.as_ref();
        let ours = run.is_some_and(|run| run.accepted && run.strategy == Strategy::BranchUpdate);
        // The time of the push is unknown. It must not be later than that of a push event still to arrive.
        let at = draft.record.head_at.max(snapshot.read_at.saturating_sub(CLOCK_SKEW).unwrap_or(snapshot.read_at));
        life::move_head(draft, &snapshot.described.head, at, ours);
    }
    let live = draft.record.active_run.as_ref().filter(|run| run.head_sha == draft.record.head_sha);
    // By GitHub's clock, a result of the remedy may seem slightly older than the remedy.
    let not_before = live.map(|run| run.since.saturating_sub(CLOCK_SKEW).unwrap_or(run.since));
    if not_before.is_none() {
        draft.record.signals.unmark();
    }
    let limit = usize::try_from(draft.policy.limits.checks_per_head).unwrap_or(usize::MAX);
    let required = draft.record.required(draft.policy).to_vec();
    let noted = draft.record.signals.note_all(&snapshot.signals, limit, &required, not_before);
    if noted == Noted::Unchanged && changes.is_some() { Noted::Changed } else { noted }
}

/// Moves the record to the state that GitHub's signals imply.
fn correct(mut draft: Draft<'_>, moved: bool, noted: Noted, live: &Live) -> Decision {
    let implied = draft.record.implied(draft.policy);
    let from = draft.record.state;
    let stays = if from == State::NeedsIntervention {
        draft.hop_out_of_intervention(implied.state).is_empty() && !is_mergeable_again(&draft, live)
    } else {
        from == implied.state
    };
    // A missed push is drift even if both heads imply the same state, because all checks start again.
    if moved || !stays {
        return drift(draft, implied, moved);
    }
    draft.update_substatus(implied);
    draft.complete_if_proven();
    let news = match noted {
        Noted::Changed => "verified, with changes",
        Noted::Unchanged => "verified",
        Noted::Full => "verified, but the head has more checks than `limits.checks_per_head` allows",
    };
    draft.finish(Outcome::Applied, format!("{news}: {from}"))
}

/// Whether the conflict or the branch lag that caused the escalation is resolved.
fn is_mergeable_again(draft: &Draft<'_>, live: &Live) -> bool {
    let awaits_merge_status = draft.record.blocked.as_ref().is_some_and(|blocked| blocked.until == Until::Mergeable);
    let lag_matters = live.strict || draft.policy.checks.behind == Behind::Always;
    awaits_merge_status && live.mergeable == Mergeable::Clean && (!lag_matters || live.behind_by == Some(0))
}

fn drift(mut draft: Draft<'_>, implied: Implied, moved: bool) -> Decision {
    let from = draft.record.state;
    let to = implied.state;
    let hops = transition::walk(from, to).unwrap_or_default();
    let mut missed: Vec<&str> = hops.iter().map(|hop| hop.trigger.event().name()).collect();
    if moved {
        missed = vec![EventKind::BranchUpdated.name()];
    }
    let text = comment::drift(&draft.record.id, from, to);
    let detail = if missed.is_empty() { text.clone() } else { format!("{text}; missed: {}", missed.join(", ")) };
    let payload = Payload {
        head: Some(draft.record.head_sha.clone()),
        name: missed.last().map(|&name| name.to_owned()),
        ..Payload::text(&detail)
    };
    draft.log(EventKind::StateDriftCorrected, Some((from, to)), payload);
    let since = draft
        .record
        .signals
        .since(to, draft.record.required(draft.policy))
        .unwrap_or(draft.record.head_at)
        .min(draft.now);
    draft.enter(to, implied.substatus, since);
    draft.record.last_event_at = draft.record.last_event_at.max(since);
    // Missed events count as real events: each state on the way resets the budgets it proves.
    for hop in &hops {
        draft.record.retry_counts.reached(hop.state, None);
    }
    draft.record.retry_counts.reached(to, implied.substatus);
    draft.complete_if_proven();
    draft.finish(Outcome::Applied, text)
}

/// GitHub could not be read, or the sweep may not act now: the pull request is due again after a growing backoff, or at
/// `until` if the time is known (R-SWEEP-4).
pub(super) fn skipped(mut draft: Draft<'_>, why: &str, until: Option<Timestamp>) -> Decision {
    if let Some(until) = until {
        draft.record.not_before = Some(until.max(draft.now));
        return draft.finish(Outcome::Applied, format!("skipped: {why}"));
    }
    draft.record.skips = draft.record.skips.saturating_add(1);
    let visits = draft.record.skips;
    retry_later(draft, visits, why)
}

/// Jenkins could not be reached. Counted separately from GitHub: the third time in a row escalates (R-DIAG-16).
pub(super) fn unanswered(mut draft: Draft<'_>, why: &str) -> Decision {
    draft.record.unanswered = draft.record.unanswered.saturating_add(1);
    let visits = draft.record.unanswered;
    retry_later(draft, visits, why)
}

fn retry_later(mut draft: Draft<'_>, visits: u32, why: &str) -> Decision {
    draft.record.not_before = Some(saturating_after(draft.now, pauses(draft.policy).delay(visits)));
    draft.finish(Outcome::Applied, format!("skipped: {why}"))
}
