//! Reports of checks and bots on a commit: each is stored in the signals of that commit, then the state is derived. A report
//! on a former head changes nothing (R-SIGNAL-4); a report on an unannounced commit is kept until its push arrives.

use crate::comment;
use crate::decide::{Decision, Draft, Outcome, no_change};
use crate::event::{EventKind, Payload};
use crate::id::Sha;
use crate::signals::{Approval, Check, MergeReport, Noted, PolicyReport, PolicyVerdict, Signals};

/// Checks kept for a commit whose push has not arrived.
const MAX_UNANNOUNCED_CHECKS: usize = 50;

pub(super) fn checks_requested(draft: Draft<'_>, head: &Sha) -> Decision {
    let at = draft.fact_time();
    apply_report(draft, head, EventKind::ChecksStarted, Payload::default(), |signals| signals.note_requested(at))
}

pub(super) fn check(draft: Draft<'_>, head: &Sha, check: &Check) -> Decision {
    let limit = usize::try_from(draft.policy.limits.checks_per_head).unwrap_or(usize::MAX);
    // Required checks are always stored. A commit that may never become the head gets a small limit.
    let limit = match (*head == draft.record.head_sha, draft.record.required(draft.policy).contains(&check.name)) {
        (true, true) => usize::MAX,
        (true, false) => limit,
        (false, _) => limit.min(MAX_UNANNOUNCED_CHECKS),
    };
    let text = if check.failure.is_some() { comment::failed_check(check) } else { String::new() };
    let payload = Payload { name: Some(check.name.clone()), ..Payload::text(&text) };
    let started_at = check.started_at.map(|at| draft.limit_skew(at));
    let check = Check { at: draft.limit_skew(check.at), started_at, ..check.clone() };
    apply_report(draft, head, EventKind::CheckReported, payload, |signals| signals.note_check(&check, limit))
}

pub(super) fn policy(draft: Draft<'_>, head: &Sha, report: &PolicyReport) -> Decision {
    let kind = match report.verdict {
        PolicyVerdict::Evaluating => EventKind::PolicyStarted,
        PolicyVerdict::Passed => EventKind::PolicyPassed,
        PolicyVerdict::Failed(_) => EventKind::PolicyFailed,
    };
    let report = PolicyReport { at: draft.limit_skew(report.at), ..report.clone() };
    apply_report(draft, head, kind, Payload::text(&report.text), |signals| signals.note_policy(&report))
}

pub(super) fn approval(draft: Draft<'_>, head: &Sha, approval: &Approval) -> Decision {
    let kind = if approval.granted { EventKind::ApprovalGranted } else { EventKind::ApprovalDismissed };
    let payload = Payload { by: Some(approval.by.clone()), ..Payload::default() };
    let approval = Approval { at: draft.limit_skew(approval.at), ..approval.clone() };
    apply_report(draft, head, kind, payload, |signals| signals.note_approval(&approval))
}

pub(super) fn merge(draft: Draft<'_>, head: &Sha, report: &MergeReport) -> Decision {
    let kind = if report.failed { EventKind::MergeFailed } else { EventKind::MergeAttempted };
    let report = MergeReport { at: draft.limit_skew(report.at), ..report.clone() };
    apply_report(draft, head, kind, Payload::text(&report.text), |signals| signals.note_merge(&report))
}

fn apply_report(
    mut draft: Draft<'_>,
    head: &Sha,
    kind: EventKind,
    payload: Payload,
    store: impl FnOnce(&mut Signals) -> Noted,
) -> Decision {
    let payload = Payload { head: Some(head.clone()), ..payload };
    let Some(signals) = draft.record.signals_of(head) else {
        return no_change(Outcome::Superseded, format!("{kind}: {} is not the head any more", head.short()));
    };
    match store(signals) {
        Noted::Unchanged => no_change(Outcome::Duplicate, format!("{kind}: nothing new")),
        Noted::Full => {
            let limit = draft.policy.limits.checks_per_head;
            let why =
                format!("{head} has more than {limit} checks (`limits.checks_per_head`): this one was not stored");
            draft.log(kind, None, Payload { anomaly: Some(why.clone()), ..payload });
            draft.record.doubt(why.clone(), draft.now);
            draft.finish(Outcome::Anomaly, why)
        }
        Noted::Changed if *head != draft.record.head_sha => {
            draft.log(kind, None, payload);
            draft.finish(Outcome::Applied, format!("{kind}: kept until {} becomes the head", head.short()))
        }
        Noted::Changed => draft.apply_signals(kind, payload),
    }
}
