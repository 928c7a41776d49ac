//! Trust but verify (R-SWEEP-4, R-SWEEP-5): GitHub was asked, and the record follows. The snapshot's signals are noted
//! like any report and go through the same derivation; only the way there is exempt from the table, since what was
//! missed cannot be walked. A reading that says less than is known is no drift (R-SWEEP-6).

use jiff::{SignedDuration, Timestamp};

use crate::comment;
use crate::decide::{Decision, Draft, Outcome, life, nothing};
use crate::event::{EventKind, Payload};
use crate::policy::Behind;
use crate::pull_request::{Until, pauses};
use crate::signals::{Implied, Noted};
use crate::snapshot::{Life, Live, Mergeable, Snapshot};
use crate::state::{State, Strategy};
use crate::time::saturating_after;
use crate::transition;

/// GitHub's clock and ours may differ by this much.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn verified(mut draft: Draft<'_>, snapshot: &Snapshot) -> Decision {
    match &snapshot.life {
        Life::Closed { .. } if snapshot.read_at < draft.record.lifecycle_at => {
            nothing(Outcome::Superseded, "it was opened again since GitHub was asked")
        }
        Life::Closed { at } => missed_end(draft, State::Closed, EventKind::PrClosed, *at, None),
        Life::Merged { at, by, by_automerge_bot } => {
            missed_end(draft, State::Merged, life::merge_kind(*by_automerge_bot), *at, by.clone())
        }
        Life::Open if overtaken(&draft, snapshot) => {
            nothing(Outcome::Superseded, "the head has moved since GitHub was asked")
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

/// Whether a push has arrived since GitHub was asked. (GitHub's clock may run ahead of ours, so the same head is enough.)
fn overtaken(draft: &Draft<'_>, snapshot: &Snapshot) -> bool {
    draft.record.head_at > snapshot.read_at && draft.record.head_sha != snapshot.described.head
}

fn missed_end(mut draft: Draft<'_>, to: State, missed: EventKind, at: Timestamp, by: Option<String>) -> Decision {
    let from = draft.record.state;
    let drift = comment::drift(&draft.record.id, from, to);
    let payload =
        Payload { by, name: Some(missed.name().to_owned()), ..Payload::text(&format!("{drift}; missed: {missed}")) };
    draft.log(EventKind::StateDriftCorrected, Some((from, to)), payload);
    draft.record.verified_at = Some(draft.now);
    let substatus = draft.closing_substatus(to);
    life::end(&mut draft, to, substatus, at);
    draft.finish(Outcome::Applied, drift)
}

/// Notes everything the snapshot says on the record.
fn note_snapshot(draft: &mut Draft<'_>, snapshot: &Snapshot) -> Noted {
    let described = life::describe(draft, &snapshot.described, snapshot.read_at);
    if let Some(contexts) = &snapshot.required_checks {
        draft.record.required_checks = life::required(draft.policy, contexts);
    }
    if snapshot.described.head != draft.record.head_sha {
        let run = draft.record.active_run.as_ref();
        let ours = run.is_some_and(|run| run.accepted && run.strategy == Strategy::BranchUpdate);
        // Somewhere between the last head and now; a push event that is still under way must not look old.
        let at = draft.record.head_at.max(snapshot.read_at.saturating_sub(CLOCK_SKEW).unwrap_or(snapshot.read_at));
        life::move_head(draft, &snapshot.described.head, at, ours);
    }
    let live = draft.record.active_run.as_ref().filter(|run| run.head_sha == draft.record.head_sha);
    // What the remedy has brought about may seem to be from just before it, by GitHub's clock.
    let not_before = live.map(|run| run.since.saturating_sub(CLOCK_SKEW).unwrap_or(run.since));
    if not_before.is_none() {
        draft.record.signals.unmark();
    }
    let limit = usize::try_from(draft.policy.limits.checks_per_head).unwrap_or(usize::MAX);
    let required = draft.record.required(draft.policy).to_vec();
    let noted = draft.record.signals.note_all(&snapshot.signals, limit, &required, not_before);
    if noted == Noted::Unchanged && described.is_some() { Noted::Changed } else { noted }
}

/// Puts the record where GitHub says it is.
fn correct(mut draft: Draft<'_>, moved: bool, noted: Noted, live: &Live) -> Decision {
    let implied = draft.record.implied(draft.policy);
    let from = draft.record.state;
    let stays = if from == State::NeedsIntervention {
        draft.way_out(implied.state).is_empty() && !is_mergeable_again(&draft, live)
    } else {
        from == implied.state
    };
    // A push that was missed is one, even if both heads are in the same state: everything begins anew.
    if moved || !stays {
        return drift(draft, implied, moved);
    }
    draft.same_state(implied);
    draft.prove();
    let news = match noted {
        Noted::Changed => "GitHub knew more, but the state is right",
        Noted::Unchanged => "GitHub agrees",
        Noted::Full => "GitHub agrees, but shows more checks than `limits.checks_per_head` leaves room for",
    };
    draft.finish(Outcome::Applied, format!("{news}: {from}"))
}

/// Whether a conflict, or a lag behind the base, that a person was called for is gone.
fn is_mergeable_again(draft: &Draft<'_>, live: &Live) -> bool {
    let waits_for_it = draft.record.blocked.as_ref().is_some_and(|blocked| blocked.until == Until::Mergeable);
    let lag_matters = live.strict || draft.policy.checks.behind == Behind::Always;
    waits_for_it && live.mergeable == Mergeable::Clean && (!lag_matters || live.behind_by == Some(0))
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
    // Missed events are real events: what they prove starts over, on the way as at the end.
    for hop in &hops {
        draft.record.retry_counts.reached(hop.state, None);
    }
    draft.record.retry_counts.reached(to, implied.substatus);
    draft.prove();
    draft.finish(Outcome::Applied, text)
}

/// Could not find out: the pull request comes back later, and later still if that goes on (R-SWEEP-4).
pub(super) fn skipped(mut draft: Draft<'_>, why: &str, until: Option<Timestamp>) -> Decision {
    if let Some(until) = until {
        draft.record.not_before = Some(until.max(draft.now));
        return draft.finish(Outcome::Applied, format!("skipped: {why}"));
    }
    draft.record.skips = draft.record.skips.saturating_add(1);
    let visits = draft.record.skips;
    come_back(draft, visits, why)
}

/// Jenkins could not be asked. Counted apart from GitHub: the third time calls a person (R-DIAG-16).
pub(super) fn unanswered(mut draft: Draft<'_>, why: &str) -> Decision {
    draft.record.unanswered = draft.record.unanswered.saturating_add(1);
    let visits = draft.record.unanswered;
    come_back(draft, visits, why)
}

fn come_back(mut draft: Draft<'_>, visits: u32, why: &str) -> Decision {
    draft.record.not_before = Some(saturating_after(draft.now, pauses(draft.policy).delay(visits)));
    draft.finish(Outcome::Applied, format!("skipped: {why}"))
}
