//! Updates of the active run: accepted, dropped, failed, overdue. A run that was never executed gets its budget back
//! (R-BUDGET-8); a state that Suture assumed is corrected if its remedy was not proven.

use jiff::Timestamp;

use crate::backoff::AttemptFailure;
use crate::command::{Command, CommandMessage, CommandSource, MessageVersion};
use crate::decide::{Decision, DecisionBuilder, EffectKind, FactOutcome, RunChange, VulnerabilityUpdate, no_change};
use crate::event::{EventKind, EventPayload, RemedyUpdate, truncate};
use crate::id::{CommandId, RunId};
use crate::pull_request::{ActiveRun, BaseConflict, DroppedRemedies, PermanentRefusal, PullRequest};
use crate::remedy;
use crate::run::RunEnd;
use crate::state::{State, Strategy, Substatus};
use crate::text;
use crate::time::saturating_after;
use crate::transition;

pub(super) fn remedy_update(mut builder: DecisionBuilder<'_>, run: &RunId, update: &RemedyUpdate) -> Decision {
    let Some(active) = builder.record.active_run.clone().filter(|active| active.id == *run) else {
        return abandoning_update(builder, run, update);
    };
    match update {
        RemedyUpdate::Closing => closing(builder, &active),
        RemedyUpdate::Accepted if active.accepted => no_change(FactOutcome::Duplicate, "already accepted"),
        RemedyUpdate::Accepted => {
            builder.record.dropped = None;
            accepted(builder, &active)
        }
        RemedyUpdate::Dropped { why } => {
            builder.refund();
            builder.withdraw_request(&active);
            builder.reset_after_foreign_push(&active);
            let now = builder.now;
            let drops = builder.record.dropped.take().map_or(0, |drops| drops.count);
            ended(builder, &active, RunEnd::Dropped, &format!("dropped: {why}"), |record| {
                record.dropped = Some(DroppedRemedies { count: drops.saturating_add(1), at: now });
            })
        }
        RemedyUpdate::Failed { error, failure: AttemptFailure::MergeConflict } => {
            let at = builder.now;
            builder.withdraw_request(&active);
            ended(builder, &active, RunEnd::Failed, &format!("failed: {error}"), |record| {
                if record.head_sha == active.head_sha {
                    record.base_conflict = Some(BaseConflict { at, base_moved_at: None });
                }
            })
        }
        RemedyUpdate::Failed { error, failure } => {
            if !failure.may_have_succeeded() {
                builder.withdraw_request(&active);
            }
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
        resent: false,
    }
}

/// A `/cancel` that failed ends, so that it is not retried for ever and may be requested again.
fn abandoning_update(mut builder: DecisionBuilder<'_>, run: &RunId, update: &RemedyUpdate) -> Decision {
    let error = match update {
        RemedyUpdate::Failed { error, .. } if builder.record.abandoning.as_ref() == Some(run) => error,
        RemedyUpdate::Failed { .. }
        | RemedyUpdate::Closing
        | RemedyUpdate::Accepted
        | RemedyUpdate::Dropped { .. }
        | RemedyUpdate::Overdue => {
            return no_change(FactOutcome::Ignored, format!("run {run} is not active any more"));
        }
    };
    let why = format!("failed: {error}");
    builder.record.abandoning = None;
    builder.runs.push(RunChange::Ended { id: run.clone(), end: RunEnd::Failed, outcome: why.clone() });
    let payload = EventPayload { run: Some(run.clone()), run_end: Some(RunEnd::Failed), ..EventPayload::text(&why) };
    builder.log(EventKind::RemediationEnded, None, payload);
    builder.finish(FactOutcome::Applied, format!("{} {why}", Command::Cancel))
}

/// Close-and-reopen begins to close the pull request. Cancelled after this, it would leave a closed pull request without a
/// replacement.
fn closing(mut builder: DecisionBuilder<'_>, active: &ActiveRun) -> Decision {
    if active.closing {
        return no_change(FactOutcome::Duplicate, "already closing");
    }
    if let Some(run) = &mut builder.record.active_run {
        run.closing = true;
    }
    let payload =
        EventPayload { run: Some(active.id.clone()), ..EventPayload::text("closing, to request a replacement") };
    builder.log(EventKind::RemediationClosing, None, payload);
    builder.finish(FactOutcome::Applied, "close-and-reopen is not cancelled any more")
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
    if head_changed && !active.closing {
        let why = format!("the head moved to {}", builder.record.head_sha.short());
        return ended(builder, active, RunEnd::Cancelled, &why, |_| {});
    }
    if builder.record.head_sha == active.head_sha && from.is_live() {
        builder.record.signals.mark_accepted(active.strategy);
        let implied = builder.record.implied(builder.policy);
        if Some(implied.state) == fixed.post_action && implied.state != from {
            let now = builder.now;
            change = transition::by_remedy(from, implied.state)
                .and_then(|trigger| builder.enter(trigger, implied.substatus, now));
            if change.is_none() {
                // The state changed since the claim: GitHub decides.
                builder.record.request_verification(format!("{} was accepted in {from}", active.strategy), now);
            }
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

/// Ends a run that was not proven. If the record is in the post-action state that Suture assumed, the state is corrected
/// to the one its signals imply; staleness still counts from the same time.
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
    let payload = EventPayload { run: Some(active.id.clone()), run_end: Some(end), ..EventPayload::text(why) };
    builder.log(EventKind::RemediationEnded, None, payload);
    if assumed && implied.state != from {
        let text = text::withdrawn(&builder.record.id, from, implied.state, active.strategy);
        let since = builder.record.state_since;
        let change = builder.correct_state(implied.state, implied.substatus, since);
        let payload = EventPayload { run: Some(active.id.clone()), ..EventPayload::text(&text) };
        builder.log(EventKind::StateDriftCorrected, change, payload);
    }
    if active.human {
        builder.command_result = Some(text::check_run::command_failed(active.strategy, why));
    }
    remember(&mut builder.record);
    if !builder.record.state.is_terminal() {
        builder.record.request_verification(format!("{} {}", active.strategy, truncate(why, 100)), builder.now);
    } else if builder.record.state == State::Closed && active.strategy == Strategy::CloseAndReopen {
        // The pull request is closed and has no replacement, so a person has to take care of the vulnerability, however
        // the run ended.
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

    /// The target never got the request or refused it: the one before it is the last again. A new head has had no
    /// request yet.
    fn withdraw_request(&mut self, active: &ActiveRun) {
        if active.head_sha != self.record.head_sha {
            return;
        }
        match active.previous_request {
            Some(at) => _ = self.record.last_requested.insert(active.strategy, at),
            None => _ = self.record.last_requested.remove(&active.strategy),
        }
    }

    /// A branch update that was never executed did not make the push that arrived meanwhile, and neither did an earlier
    /// one, if there was none: then somebody else pushed (R-BUDGET-4).
    fn reset_after_foreign_push(&mut self, active: &ActiveRun) {
        let pushed = active.strategy == Strategy::BranchUpdate && active.head_sha != self.record.head_sha;
        if pushed && !active.accepted && active.previous_request.is_none() {
            self.record.retry_counts.reset(Strategy::BranchUpdate);
        }
    }

    /// Undoes the claim of a remedy that was never executed: budget, lifetime count and the time of the last remedy.
    pub(super) fn refund(&mut self) {
        let Some(active) = self.record.active_run.clone().filter(|run| !run.accepted) else { return };
        if active.human {
            return;
        }
        self.record.retry_counts.refund(active.strategy);
        self.record.lifetime_remedies = self.record.lifetime_remedies.saturating_sub(1);
        self.record.last_remediation_at = active.previous.map(|previous| previous.at);
        self.record.remediation_action = active.previous.map(|previous| previous.strategy);
        let same_head = active.head_sha == self.record.head_sha;
        self.record.remedied_in = active.previous.filter(|_| same_head).and_then(|previous| previous.remedied_in);
        if active.strategy == Strategy::CloseAndReopen {
            self.change_vulnerability(VulnerabilityUpdate::RefundReopen);
        }
    }
}
