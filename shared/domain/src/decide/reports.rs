//! What checks and bots say about a commit: noted on the signals of that commit, then settled. A report on a commit that
//! is history changes nothing (R-SIGNAL-4); one on a commit not announced yet is kept until the push arrives.

use crate::comment;
use crate::decide::{Decision, Draft, Outcome, nothing};
use crate::event::{EventKind, Payload};
use crate::id::Sha;
use crate::signals::{Approval, Check, MergeReport, Noted, PolicyReport, PolicyVerdict, Signals};

/// Checks kept for a commit that is not the head yet.
const MAX_EARLY_CHECKS: usize = 50;

pub(super) fn checks_requested(draft: Draft<'_>, head: &Sha) -> Decision {
    let at = draft.at();
    note(draft, head, EventKind::ChecksStarted, Payload::default(), |signals| signals.note_requested(at))
}

pub(super) fn check(draft: Draft<'_>, head: &Sha, check: &Check) -> Decision {
    let limit = usize::try_from(draft.policy.limits.checks_per_head).unwrap_or(usize::MAX);
    // Required checks always find room; commits that may never become the head get little.
    let limit = match (*head == draft.record.head_sha, draft.record.required(draft.policy).contains(&check.name)) {
        (true, true) => usize::MAX,
        (true, false) => limit,
        (false, _) => limit.min(MAX_EARLY_CHECKS),
    };
    let text = if check.failure.is_some() { comment::failed_check(check) } else { String::new() };
    let payload = Payload { name: Some(check.name.clone()), ..Payload::text(&text) };
    let started_at = check.started_at.map(|at| draft.bounded(at));
    let check = Check { at: draft.bounded(check.at), started_at, ..check.clone() };
    note(draft, head, EventKind::CheckReported, payload, |signals| signals.note_check(&check, limit))
}

pub(super) fn policy(draft: Draft<'_>, head: &Sha, report: &PolicyReport) -> Decision {
    let kind = match report.verdict {
        PolicyVerdict::Evaluating => EventKind::PolicyStarted,
        PolicyVerdict::Passed => EventKind::PolicyPassed,
        PolicyVerdict::Failed(_) => EventKind::PolicyFailed,
    };
    let report = PolicyReport { at: draft.bounded(report.at), ..report.clone() };
    note(draft, head, kind, Payload::text(&report.text), |signals| signals.note_policy(&report))
}

pub(super) fn approval(draft: Draft<'_>, head: &Sha, approval: &Approval) -> Decision {
    let kind = if approval.granted { EventKind::ApprovalGranted } else { EventKind::ApprovalDismissed };
    let payload = Payload { by: Some(approval.by.clone()), ..Payload::default() };
    let approval = Approval { at: draft.bounded(approval.at), ..approval.clone() };
    note(draft, head, kind, payload, |signals| signals.note_approval(&approval))
}

pub(super) fn merge(draft: Draft<'_>, head: &Sha, report: &MergeReport) -> Decision {
    let kind = if report.failed { EventKind::MergeFailed } else { EventKind::MergeAttempted };
    let report = MergeReport { at: draft.bounded(report.at), ..report.clone() };
    note(draft, head, kind, Payload::text(&report.text), |signals| signals.note_merge(&report))
}

fn note(
    mut draft: Draft<'_>,
    head: &Sha,
    kind: EventKind,
    payload: Payload,
    write: impl FnOnce(&mut Signals) -> Noted,
) -> Decision {
    let payload = Payload { head: Some(head.clone()), ..payload };
    let Some(signals) = draft.record.signals_of(head) else {
        return nothing(
            Outcome::Superseded,
            format!("{kind} is about {}, which is not the head any more", head.short()),
        );
    };
    match write(signals) {
        Noted::Unchanged => nothing(Outcome::Duplicate, format!("{kind} says nothing new")),
        Noted::Full => {
            let limit = draft.policy.limits.checks_per_head;
            let why =
                format!("{head} has more than {limit} checks: `limits.checks_per_head` leaves no room for this one");
            draft.log(kind, None, Payload { anomaly: Some(why.clone()), ..payload });
            draft.record.doubt(why.clone(), draft.now);
            draft.finish(Outcome::Anomaly, why)
        }
        Noted::Changed if *head != draft.record.head_sha => {
            draft.log(kind, None, payload);
            draft.finish(Outcome::Applied, format!("{kind} is kept until {} becomes the head", head.short()))
        }
        Noted::Changed => draft.settle(kind, payload),
    }
}
