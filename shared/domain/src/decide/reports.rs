//! Reports of checks and bots on a commit: each is stored in the signals of that commit, then the state is derived. A
//! report on a former head changes nothing (R-SIGNAL-4); a report on an unannounced commit is kept until its push
//! arrives.

use crate::decide::{Decision, DecisionBuilder, FactOutcome, no_change};
use crate::event::{EventKind, EventPayload};
use crate::id::Sha;
use crate::signals::{ApprovalReport, CheckReport, MergeReport, PolicyReport, PolicyVerdict, Signals, UpdateResult};
use crate::text;

/// Checks kept for a commit whose push has not arrived.
const MAX_UNANNOUNCED_CHECKS: usize = 50;

pub(super) fn checks_requested(builder: DecisionBuilder<'_>, head: &Sha) -> Decision {
    let at = builder.fact_time();
    apply_report(builder, head, EventKind::ChecksStarted, EventPayload::default(), |signals| signals.note_requested(at))
}

pub(super) fn check(builder: DecisionBuilder<'_>, head: &Sha, check: &CheckReport) -> Decision {
    let limit = usize::try_from(builder.policy.limits.checks_per_head).unwrap_or(usize::MAX);
    // Required checks are always stored. A commit that may never become the head gets a small limit.
    let limit = match (*head == builder.record.head_sha, builder.record.required(builder.policy).contains(&check.name))
    {
        (true, true) => usize::MAX,
        (true, false) => limit,
        (false, _) => limit.min(MAX_UNANNOUNCED_CHECKS),
    };
    let text = if check.failure.is_some() { text::failed_check(check) } else { String::new() };
    let payload = EventPayload { name: Some(check.name.clone()), ..EventPayload::text(&text) };
    let started_at = check.started_at.map(|at| builder.limit_skew(at));
    let check = CheckReport { at: builder.limit_skew(check.at), started_at, ..check.clone() };
    apply_report(builder, head, EventKind::CheckReported, payload, |signals| signals.note_check(&check, limit))
}

pub(super) fn policy(builder: DecisionBuilder<'_>, head: &Sha, report: &PolicyReport) -> Decision {
    let kind = match report.verdict {
        PolicyVerdict::Evaluating => EventKind::PolicyStarted,
        PolicyVerdict::Passed => EventKind::PolicyPassed,
        PolicyVerdict::Failed(_) => EventKind::PolicyFailed,
    };
    let report = PolicyReport { at: builder.limit_skew(report.at), ..report.clone() };
    apply_report(builder, head, kind, EventPayload::text(&report.text), |signals| signals.note_policy(&report))
}

pub(super) fn approval(builder: DecisionBuilder<'_>, head: &Sha, approval: &ApprovalReport) -> Decision {
    let kind = if approval.granted { EventKind::ApprovalGranted } else { EventKind::ApprovalDismissed };
    let payload = EventPayload { by: Some(approval.by.clone()), ..EventPayload::default() };
    let approval = ApprovalReport { at: builder.limit_skew(approval.at), ..approval.clone() };
    apply_report(builder, head, kind, payload, |signals| signals.note_approval(&approval))
}

pub(super) fn merge(builder: DecisionBuilder<'_>, head: &Sha, report: &MergeReport) -> Decision {
    let kind = if report.failed { EventKind::MergeFailed } else { EventKind::MergeAttempted };
    let report = MergeReport { at: builder.limit_skew(report.at), ..report.clone() };
    apply_report(builder, head, kind, EventPayload::text(&report.text), |signals| signals.note_merge(&report))
}

fn apply_report(
    mut builder: DecisionBuilder<'_>,
    head: &Sha,
    kind: EventKind,
    payload: EventPayload,
    store: impl FnOnce(&mut Signals) -> UpdateResult,
) -> Decision {
    let payload = EventPayload { head: Some(head.clone()), ..payload };
    let Some(signals) = builder.record.signals_of(head) else {
        return no_change(FactOutcome::Superseded, format!("{kind}: {} is not the head any more", head.short()));
    };
    match store(signals) {
        UpdateResult::Unchanged => no_change(FactOutcome::Duplicate, format!("{kind}: nothing new")),
        UpdateResult::LimitReached => {
            let limit = builder.policy.limits.checks_per_head;
            let why =
                format!("{head} has more than {limit} checks (`limits.checks_per_head`): this one was not stored");
            builder.log(kind, None, EventPayload { anomaly: Some(why.clone()), ..payload });
            builder.record.request_verification(why.clone(), builder.now);
            builder.finish(FactOutcome::Anomaly, why)
        }
        UpdateResult::Changed if *head != builder.record.head_sha => {
            builder.log(kind, None, payload);
            builder.finish(FactOutcome::Applied, format!("{kind}: kept until {} becomes the head", head.short()))
        }
        UpdateResult::Changed => builder.apply_signals(kind, payload),
    }
}
