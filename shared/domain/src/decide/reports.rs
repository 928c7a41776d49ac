//! Reports of checks and bots on a commit: each is stored in the signals of that commit, then the state is derived. A
//! report on a former head changes nothing (R-SIGNAL-4); a report on an unannounced commit is kept until its push
//! arrives.

use crate::comment;
use crate::decide::{Decision, Draft, Outcome, no_change};
use crate::event::{EventKind, Payload};
use crate::id::Sha;
use crate::signals::{Approval, Check, MergeReport, Noted, PolicyReport, PolicyVerdict, Signals};

/// Checks kept for a commit whose push has not arrived.
const MAX_UNANNOUNCED_CHECKS: usize = 50;

pub(super) fn checks_requested(builder: Draft<'_>, head: &Sha) -> Decision {
    let at = builder.fact_time();
    apply_report(builder, head, EventKind::ChecksStarted, Payload::default(), |signals| signals.note_requested(at))
}

pub(super) fn check(builder: Draft<'_>, head: &Sha, check: &Check) -> Decision {
    let limit = usize::try_from(builder.policy.limits.checks_per_head).unwrap_or(usize::MAX);
    // Required checks are always stored. A commit that may never become the head gets a small limit.
    let limit = match (*head == builder.record.head_sha, builder.record.required(builder.policy).contains(&check.name))
    {
        (true, true) => usize::MAX,
        (true, false) => limit,
        (false, _) => limit.min(MAX_UNANNOUNCED_CHECKS),
    };
    let text = if check.failure.is_some() { comment::failed_check(check) } else { String::new() };
    let payload = Payload { name: Some(check.name.clone()), ..Payload::text(&text) };
    let started_at = check.started_at.map(|at| builder.limit_skew(at));
    let check = Check { at: builder.limit_skew(check.at), started_at, ..check.clone() };
    apply_report(builder, head, EventKind::CheckReported, payload, |signals| signals.note_check(&check, limit))
}

pub(super) fn policy(builder: Draft<'_>, head: &Sha, report: &PolicyReport) -> Decision {
    let kind = match report.verdict {
        PolicyVerdict::Evaluating => EventKind::PolicyStarted,
        PolicyVerdict::Passed => EventKind::PolicyPassed,
        PolicyVerdict::Failed(_) => EventKind::PolicyFailed,
    };
    let report = PolicyReport { at: builder.limit_skew(report.at), ..report.clone() };
    apply_report(builder, head, kind, Payload::text(&report.text), |signals| signals.note_policy(&report))
}

pub(super) fn approval(builder: Draft<'_>, head: &Sha, approval: &Approval) -> Decision {
    let kind = if approval.granted { EventKind::ApprovalGranted } else { EventKind::ApprovalDismissed };
    let payload = Payload { by: Some(approval.by.clone()), ..Payload::default() };
    let approval = Approval { at: builder.limit_skew(approval.at), ..approval.clone() };
    apply_report(builder, head, kind, payload, |signals| signals.note_approval(&approval))
}

pub(super) fn merge(builder: Draft<'_>, head: &Sha, report: &MergeReport) -> Decision {
    let kind = if report.failed { EventKind::MergeFailed } else { EventKind::MergeAttempted };
    let report = MergeReport { at: builder.limit_skew(report.at), ..report.clone() };
    apply_report(builder, head, kind, Payload::text(&report.text), |signals| signals.note_merge(&report))
}

fn apply_report(
    mut builder: Draft<'_>,
    head: &Sha,
    kind: EventKind,
    payload: Payload,
    store: impl FnOnce(&mut Signals) -> Noted,
) -> Decision {
    let payload = Payload { head: Some(head.clone()), ..payload };
    let Some(signals) = builder.record.signals_of(head) else {
        return no_change(Outcome::Superseded, format!("{kind}: {} is not the head any more", head.short()));
    };
    match store(signals) {
        Noted::Unchanged => no_change(Outcome::Duplicate, format!("{kind}: nothing new")),
        Noted::Full => {
            let limit = builder.policy.limits.checks_per_head;
            let why =
                format!("{head} has more than {limit} checks (`limits.checks_per_head`): this one was not stored");
            builder.log(kind, None, Payload { anomaly: Some(why.clone()), ..payload });
            builder.record.doubt(why.clone(), builder.now);
            builder.finish(Outcome::Anomaly, why)
        }
        Noted::Changed if *head != builder.record.head_sha => {
            builder.log(kind, None, payload);
            builder.finish(Outcome::Applied, format!("{kind}: kept until {} becomes the head", head.short()))
        }
        Noted::Changed => builder.apply_signals(kind, payload),
    }
}
