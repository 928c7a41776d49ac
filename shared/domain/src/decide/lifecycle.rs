//! Lifecycle of a pull request: opened, edited, head moved, base moved, closed, merged, reopened, replaced. A merge or
//! a close that GitHub reports wins over any state of the record (R-STATE-6).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::budget::RetryCounts;
use crate::decide::{
    Decision, DecisionBuilder, FactOutcome, HeadChange, RunChange, VulnerabilityChange, VulnerabilityUpdate,
    decide_on_record, no_change,
};
use crate::event::{CloseReason, EventKind, EventPayload, Fact, FactKind, PullRequestDetails, ReplacementLink};
use crate::id::Sha;
use crate::policy::Policy;
use crate::pull_request::PullRequest;
use crate::run::RunEnd;
use crate::signals::Signals;
use crate::state::{State, Strategy, Substatus};
use crate::text;
use crate::time::saturating_after;
use crate::transition::TransitionTrigger;

/// The first fact about a pull request. Each `pull_request` event has all details, so any of them can create the
/// record, but only `opened` shows that no event was missed. A close or a merge that overtakes `opened` creates a
/// terminal record, so that the late `opened` changes nothing. Other facts are about a pull request that Suture does not
/// manage.
pub(super) fn first_seen(policy: &Policy, fact: &Fact, now: Timestamp) -> Decision {
    const MISSED: Option<&str> = Some("first seen by an event other than `opened`");
    let created = |builder: DecisionBuilder<'_>| {
        let reason = format!("{} created", builder.record.id);
        builder.finish(FactOutcome::Applied, reason)
    };
    match &fact.kind {
        FactKind::Opened(described) => created(create_record(policy, fact, described, now, None)),
        FactKind::Edited(described) | FactKind::HeadMoved { described, .. } => {
            created(create_record(policy, fact, described, now, MISSED))
        }
        FactKind::Reopened(described) => {
            let mut builder = create_record(policy, fact, described, now, MISSED);
            builder.record.reopened_at = Some(fact.occurred_at);
            created(builder)
        }
        FactKind::Closed { .. }
        | FactKind::Merged { .. }
        | FactKind::ChecksRequested { .. }
        | FactKind::Check { .. }
        | FactKind::Policy { .. }
        | FactKind::Approval { .. }
        | FactKind::Merge { .. }
        | FactKind::BaseMoved { .. }
        | FactKind::Verified(_)
        | FactKind::Skipped { .. }
        | FactKind::PostMergeVerified { .. }
        | FactKind::Linked(_)
        | FactKind::Diagnosed(_)
        | FactKind::Remedy { .. }
        | FactKind::CommandRequested(_) => match &fact.described {
            Some(described) => decide_on_record(create_record(policy, fact, described, now, MISSED)),
            None => no_change(FactOutcome::Ignored, format!("{} has no record", fact.pr)),
        },
    }
}

/// An `opened` that is handled within this time was not overtaken by a report, because checks and bots take longer.
const PROMPT: SignedDuration = SignedDuration::from_secs(2);

/// `missed` says why events may have been missed before this one.
fn create_record<'a>(
    policy: &'a Policy,
    fact: &'a Fact,
    described: &PullRequestDetails,
    now: Timestamp,
    missed: Option<&str>,
) -> DecisionBuilder<'a> {
    let at = fact.occurred_at.min(now);
    let record = PullRequest {
        id: fact.pr.clone(),
        node_id: described.node_id.clone(),
        html_url: described.html_url.clone(),
        branch: described.branch.clone(),
        base_branch: described.base_branch.clone(),
        vulnerability_id: described.vulnerability_id.clone(),
        state: State::Created,
        substatus: None,
        head_sha: described.head.clone(),
        head_at: fact.occurred_at,
        signals: Signals::default(),
        unannounced_heads: Vec::new(),
        past_heads: Vec::new(),
        required_checks: required_contexts(policy, described.required_checks.as_deref().unwrap_or_default()),
        created_at: described.created_at,
        last_event_at: at,
        state_since: at,
        lifecycle_at: fact.occurred_at,
        described_at: fact.occurred_at,
        verified_at: None,
        retry_counts: RetryCounts::default(),
        lifetime_remedies: 0,
        last_requested: BTreeMap::new(),
        last_remediation_at: None,
        remediation_action: None,
        remedied_in: None,
        active_run: None,
        labels: described.labels.clone(),
        hold: false,
        hold_requested_at: None,
        hold_reason: None,
        draft: described.draft,
        size: described.size,
        blocked: None,
        observed_decision: None,
        published_check: None,
        generation: 1,
        replaces: None,
        replaced_by: None,
        verify_reason: None,
        not_before: None,
        put_off: None,
        dropped: None,
        refused: None,
        base_conflict: None,
        abandoning: None,
        reopened_at: None,
        skips: 0,
        inconclusive_visits: 0,
        unknown_mergeable_visits: 0,
        version: 0,
        due_at: None,
        ttl: None,
    };
    let mut builder = DecisionBuilder::new(policy, record, fact, now);
    if let Some(why) = missed {
        builder.record.request_verification(why, now);
    } else if described.required_checks.is_none() && policy.checks.required.is_empty() {
        // Without the list, the first green job of a matrix would look like all required checks.
        builder.record.request_verification("the required checks of the base are not known yet", now);
    } else if saturating_after(described.created_at, PROMPT) < now {
        builder.record.request_verification("its event was late: reports may have arrived before it", now);
    }
    builder.heads.push(HeadChange::Current(described.head.clone()));
    builder.change_vulnerability(VulnerabilityUpdate::Opened);
    let payload = EventPayload {
        head: Some(described.head.clone()),
        name: described.vulnerability_id.clone(),
        ..EventPayload::text(missed.unwrap_or_default())
    };
    builder.log(EventKind::PrOpened, None, payload);
    builder
}

/// Logs that the health checks after the merge passed.
pub(super) fn post_merge_verified(mut builder: DecisionBuilder<'_>, watched_minutes: u32) -> Decision {
    if builder.record.state != State::Merged {
        return no_change(FactOutcome::Ignored, format!("{} is not merged", builder.record.id));
    }
    let text = text::coordination::verified_event(watched_minutes);
    builder.log(EventKind::PostMergeVerified, None, EventPayload::text(&text));
    builder.finish(FactOutcome::Applied, text)
}

/// Required contexts, without Policy Bot's, which is a policy and never a check (R-SIGNAL-10), and without Suture's own
/// check run, which would wait for itself.
pub(super) fn required_contexts(policy: &Policy, contexts: &[String]) -> Vec<String> {
    let others = |name: &&String| !policy.is_policy_context(name) && !policy.is_own_check(name);
    contexts.iter().filter(others).cloned().collect()
}

/// Updates labels, draft, branches and the like as of `as_of`. Returns a text that lists the changes.
pub(super) fn apply_details(
    builder: &mut DecisionBuilder<'_>,
    described: &PullRequestDetails,
    as_of: Timestamp,
) -> Option<String> {
    let record = &mut builder.record;
    // Two events within one second have the same time; the larger label set wins until the next verification.
    let known = (record.described_at, record.labels.len(), &record.labels, record.draft);
    if (as_of, described.labels.len(), &described.labels, described.draft) <= known {
        return None;
    }
    let was_actionable = record.is_actionable();
    let old_vulnerability = (record.base_branch.clone(), record.vulnerability_id.clone());
    record.described_at = as_of;
    let mut changes = Vec::new();
    if record.labels != described.labels {
        changes.push(format!("labels: {}", described.labels.join(", ")));
        record.labels.clone_from(&described.labels);
    }
    if record.draft != described.draft {
        changes.push(if described.draft { "draft".to_owned() } else { "ready for review".to_owned() });
        record.draft = described.draft;
    }
    if record.base_branch != described.base_branch {
        changes.push(format!("base: {} → {}", record.base_branch, described.base_branch));
        record.base_branch.clone_from(&described.base_branch);
        record.required_checks = Vec::new();
        record.base_conflict = None;
        record.request_verification("the base branch changed", builder.now);
    }
    if described.vulnerability_id.is_some() && record.vulnerability_id != described.vulnerability_id {
        changes.push(format!("vulnerability: {}", described.vulnerability_id.as_deref().unwrap_or_default()));
        record.vulnerability_id.clone_from(&described.vulnerability_id);
    }
    if let Some(contexts) = &described.required_checks {
        record.required_checks = required_contexts(builder.policy, contexts);
    }
    record.branch.clone_from(&described.branch);
    record.node_id = described.node_id.clone().or_else(|| record.node_id.take());
    record.html_url = described.html_url.clone().or_else(|| record.html_url.take());
    record.size = described.size.or(record.size);
    if !was_actionable && record.is_actionable() && record.verify_reason.is_none() {
        // After a hold or a draft, the bots get the full threshold before the pull request counts as stale.
        record.not_before =
            builder.policy.threshold(record.state).map(|wait| saturating_after(as_of.min(builder.now), wait));
    }
    let new_vulnerability = (record.base_branch.clone(), record.vulnerability_id.clone());
    if old_vulnerability != new_vulnerability {
        // The row of the old base or vulnerability must not list this pull request as open any more.
        if let (base_branch, Some(id)) = old_vulnerability {
            let update = VulnerabilityUpdate::NoLongerOpen;
            builder.vulnerabilities.push(VulnerabilityChange { base_branch, id, update });
        }
        builder.change_vulnerability(VulnerabilityUpdate::Opened);
    }
    (!changes.is_empty()).then(|| changes.join("; "))
}

pub(super) fn edited(mut builder: DecisionBuilder<'_>, described: &PullRequestDetails) -> Decision {
    let as_of = builder.fact.occurred_at;
    match apply_details(&mut builder, described, as_of) {
        None => no_change(FactOutcome::Duplicate, "nothing new in the description"),
        Some(changes) => {
            builder.record.last_event_at = builder.record.last_event_at.max(builder.fact_time());
            builder.log(EventKind::PrEdited, None, EventPayload::text(&changes));
            builder.finish(FactOutcome::Applied, changes)
        }
    }
}

pub(super) fn head_moved(
    mut builder: DecisionBuilder<'_>,
    described: &PullRequestDetails,
    before: Option<&Sha>,
    by_suture: bool,
) -> Decision {
    let as_of = builder.fact.occurred_at;
    let record = &builder.record;
    if described.head == record.head_sha {
        return edited(builder, described);
    }
    // Pushes within one second are ordered by their `before` commit: a push onto a former head is itself outdated,
    // unless it starts from the current head.
    let onto_history =
        before != Some(&record.head_sha) && before.is_some_and(|before| record.past_heads.contains(before));
    if as_of < record.head_at || (as_of == record.head_at && onto_history) {
        return no_change(FactOutcome::Superseded, format!("{} is not the head any more", described.head.short()));
    }
    apply_details(&mut builder, described, as_of);
    let from = builder.record.state;
    let push = HeadPush { before, by_suture };
    move_head(&mut builder, &described.head, as_of, push);
    let payload = EventPayload { head: Some(described.head.clone()), ..EventPayload::default() };
    if from == State::NeedsIntervention && by_suture {
        builder.log(EventKind::BranchUpdated, None, payload);
        return builder.finish(FactOutcome::Applied, "push by Suture, still NEEDS_INTERVENTION");
    }
    let at = builder.fact_time();
    let change = builder.enter(TransitionTrigger::BranchUpdated, None, at);
    let to = builder.record.state;
    // Reports on the new head that arrived before the push are applied from here, hop by hop.
    builder.log(EventKind::BranchUpdated, change, payload);
    if builder.record.implied(builder.policy).state != to {
        return builder
            .apply_signals(EventKind::CheckReported, EventPayload::text("reported before the push event arrived"));
    }
    builder.record.last_event_at = builder.record.last_event_at.max(at);
    builder.complete_if_proven();
    builder.finish(FactOutcome::Applied, format!("BRANCH_UPDATED: {from} → {to}"))
}

/// What is known about a push; by default nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeadPush<'a> {
    /// The head before it.
    pub(super) before: Option<&'a Sha>,
    /// The sender is Suture. Without its own login, the webhook cannot tell.
    pub(super) by_suture: bool,
}

impl HeadPush<'_> {
    /// Whether Suture's branch update may have made this push: one was requested for the old head, and the push does not
    /// start from another commit. The request counts whether it was accepted, answered or even known to have failed,
    /// because the push event can arrive at any time (R-BUDGET-4).
    fn may_be_own(self, record: &PullRequest) -> bool {
        let requested = record.last_requested.contains_key(&Strategy::BranchUpdate);
        self.by_suture || (requested && self.before.is_none_or(|before| *before == record.head_sha))
    }
}

/// Makes another commit the head, and cancels the active remedy if the new head makes it pointless.
pub(super) fn move_head(builder: &mut DecisionBuilder<'_>, head: &Sha, at: Timestamp, push: HeadPush<'_>) {
    let old = builder.record.head_sha.clone();
    if !push.may_be_own(&builder.record) {
        builder.record.retry_counts.reset(Strategy::BranchUpdate);
    }
    let returned = builder.record.past_heads.contains(head);
    builder.record.move_head(head.clone(), at);
    // A push requests checks by itself.
    builder.record.signals.note_requested(at);
    builder.heads.push(HeadChange::Superseded(old));
    builder.heads.push(HeadChange::Current(head.clone()));
    if returned {
        builder.record.request_verification(
            "the head returned to a former commit, whose checks will not report again",
            builder.now,
        );
    }
    // A remedy of the old head is cancelled, and refunded if it was not accepted yet. A branch update is kept, accepted
    // or not, because it may be the cause of this push, and so is a close-and-reopen that has begun to close.
    if builder.record.active_run.as_ref().is_some_and(|run| run.strategy != Strategy::BranchUpdate && !run.closing) {
        builder.refund();
        builder.end_run(RunEnd::Cancelled, format!("the head moved to {}", head.short()));
    }
}

pub(super) fn base_moved(mut builder: DecisionBuilder<'_>, base: &str) -> Decision {
    if builder.record.base_branch != base {
        return no_change(FactOutcome::Ignored, format!("`{base}` is not the base of this pull request"));
    }
    let moved_at = builder.fact.occurred_at;
    if let Some(conflict) = builder.record.base_conflict.as_mut().filter(|conflict| moved_at > conflict.at) {
        conflict.base_moved_at = Some(moved_at);
    }
    builder.record.request_verification(format!("`{base}` has new commits"), builder.now);
    builder.log(EventKind::BaseMoved, None, EventPayload::default());
    builder
        .finish(FactOutcome::Applied, format!("`{base}` has new commits: the branch may be behind or in conflict now"))
}

pub(super) fn closed(mut builder: DecisionBuilder<'_>, by: Option<&str>, why: Option<CloseReason>) -> Decision {
    // Closed and reopened within one second: the reopening was the later of the two.
    let at = builder.fact.occurred_at;
    if at < builder.record.lifecycle_at || builder.record.reopened_at == Some(at) {
        return no_change(FactOutcome::Superseded, "reopened since");
    }
    let substatus = match why {
        Some(CloseReason::Abandoned) => Some(Substatus::Abandoned),
        Some(CloseReason::Replaced) => Some(Substatus::Replaced),
        None => builder.closing_substatus(State::Closed),
    };
    let text = if substatus.is_some() { "" } else { "out of band: not closed by Suture" };
    let payload = EventPayload { by: by.map(str::to_owned), ..EventPayload::text(text) };
    let from = builder.record.state;
    move_to_final_head(&mut builder);
    let entered_at = builder.fact_time();
    let change = builder.enter(TransitionTrigger::PrClosed, substatus, entered_at);
    builder.log(EventKind::PrClosed, change, payload);
    end_record(&mut builder, entered_at);
    builder.finish(FactOutcome::Applied, format!("PR_CLOSED: {from} → CLOSED"))
}

pub(super) fn merged(mut builder: DecisionBuilder<'_>, by: Option<&str>, by_automerge_bot: bool) -> Decision {
    let kind = merge_kind(by_automerge_bot);
    let from = builder.record.state;
    let expected = by_automerge_bot && matches!(from, State::Approved | State::Merging);
    let text = if expected { String::new() } else { format!("out of band: merged from {from}") };
    let payload = EventPayload { by: by.map(str::to_owned), ..EventPayload::text(&text) };
    move_to_final_head(&mut builder);
    let at = builder.fact_time();
    let change = builder.enter(TransitionTrigger::MergeConfirmed, None, at);
    builder.log(kind, change, payload);
    end_run_by_merge(&mut builder, kind);
    end_record(&mut builder, at);
    builder.finish(FactOutcome::Applied, format!("{kind}: {from} → MERGED"))
}

/// A close or a merge can overtake the push before it; its payload has the final head.
fn move_to_final_head(builder: &mut DecisionBuilder<'_>) {
    let (at, record) = (builder.fact.occurred_at, &mut builder.record);
    let Some(described) = &builder.fact.described else { return };
    if described.head != record.head_sha && at >= record.head_at {
        builder.heads.push(HeadChange::Superseded(record.head_sha.clone()));
        record.move_head(described.head.clone(), at);
    }
}

/// Exactly one of the two is logged for a merge (R-STATE-7).
pub(super) fn merge_kind(by_automerge_bot: bool) -> EventKind {
    if by_automerge_bot { EventKind::MergeSucceeded } else { EventKind::PrMerged }
}

/// Automerge Bot merges only what has passed its checks, its policy and its approval, so its merge proves every remedy
/// that was accepted.
pub(super) fn end_run_by_merge(builder: &mut DecisionBuilder<'_>, kind: EventKind) {
    if kind == EventKind::MergeSucceeded && builder.record.active_run.as_ref().is_some_and(|run| run.accepted) {
        builder.end_run(RunEnd::Completed, "merged");
    }
}

/// After MERGED or CLOSED was entered: the record has no due date any more, and expires.
pub(super) fn end_record(builder: &mut DecisionBuilder<'_>, at: Timestamp) {
    let (state, substatus) = (builder.record.state, builder.record.substatus);
    builder.record.retry_counts.reset_reached(state, substatus);
    builder.record.lifecycle_at = builder.record.lifecycle_at.max(at);
    builder.record.last_event_at = builder.record.last_event_at.max(at);
    builder.record.verify_reason = None;
    builder.heads.push(HeadChange::Superseded(builder.record.head_sha.clone()));
    let abandoned = substatus == Some(Substatus::Abandoned);
    builder.change_vulnerability(if abandoned {
        VulnerabilityUpdate::Abandoned
    } else {
        VulnerabilityUpdate::NoLongerOpen
    });
    if let Some(id) = builder.record.abandoning.take() {
        builder.runs.push(RunChange::Ended {
            id,
            end: RunEnd::Completed,
            outcome: format!("the pull request is {state}"),
        });
    }
    let Some(run) = &builder.record.active_run else { return };
    match (state, run.strategy) {
        // Closing is only a step of close-and-reopen; the run continues until the replacement is open.
        (State::Closed, Strategy::CloseAndReopen) => {}
        (State::Merged, Strategy::RetriggerAutomergeBot) if run.accepted => {
            builder.end_run(RunEnd::Completed, "merged");
        }
        (_, _) => {
            builder.end_run(RunEnd::Cancelled, format!("the pull request is {state}"));
        }
    }
}

pub(super) fn reopened(mut builder: DecisionBuilder<'_>, described: &PullRequestDetails) -> Decision {
    let at = builder.fact.occurred_at;
    if builder.record.state == State::Merged || at < builder.record.lifecycle_at {
        return no_change(FactOutcome::Superseded, "closed or merged since");
    }
    let from = builder.record.state;
    builder.record.lifecycle_at = at;
    builder.record.reopened_at = Some(at);
    apply_details(&mut builder, described, at);
    builder.record.request_verification("reopened: events may have been missed while it was closed", builder.now);
    if from != State::Closed {
        builder.log(EventKind::PrReopened, None, EventPayload::text("the close event was missed"));
        return builder.finish(FactOutcome::Applied, "reopened; the close event was missed");
    }
    builder.record.generation = builder.record.generation.saturating_add(1);
    builder.end_run(RunEnd::Cancelled, "the pull request was reopened");
    builder.record.lifetime_remedies = 0;
    builder.record.retry_counts.reset_all();
    builder.record.base_conflict = None;
    let at_or_now = builder.fact_time();
    let payload = EventPayload { head: Some(described.head.clone()), ..EventPayload::default() };
    let change = builder.enter(TransitionTrigger::PrReopened, None, at_or_now);
    builder.log(EventKind::PrReopened, change, payload);
    builder.change_vulnerability(VulnerabilityUpdate::Opened);
    if described.head == builder.record.head_sha {
        builder.heads.push(HeadChange::Current(described.head.clone()));
    } else {
        move_head(&mut builder, &described.head, at, HeadPush::default());
    }
    if builder.record.implied(builder.policy).state == State::Created {
        return builder.finish(FactOutcome::Applied, "PR_REOPENED: CLOSED → CREATED");
    }
    builder.apply_signals(EventKind::CheckReported, EventPayload::text("known from before the close"))
}

/// Links the closed pull request and its replacement both ways, which completes the run of close-and-reopen.
pub(super) fn linked(mut builder: DecisionBuilder<'_>, link: ReplacementLink) -> Decision {
    let record = &mut builder.record;
    let (known, number, text) = match link {
        ReplacementLink::ReplacedBy(number) => (&mut record.replaced_by, number, format!("replaced by #{number}")),
        ReplacementLink::Replaces(number) => (&mut record.replaces, number, format!("replaces #{number}")),
    };
    if *known == Some(number) {
        return no_change(FactOutcome::Duplicate, text);
    }
    *known = Some(number);
    let replacing = record.active_run.as_ref().is_some_and(|run| run.strategy == Strategy::CloseAndReopen);
    if replacing && matches!(link, ReplacementLink::ReplacedBy(_)) {
        builder.end_run(RunEnd::Completed, text.clone());
    }
    builder.log(EventKind::PrLinked, None, EventPayload::text(&text));
    builder.finish(FactOutcome::Applied, text)
}
