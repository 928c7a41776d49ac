//! Commands of people: checks whether a command is possible now, applies it to the record, and opens its run. A refusal
//! is logged too, and says what is wrong.

use jiff::SignedDuration;

use crate::command::{Command, CommandSource, ValidityContext};
use crate::decide::remediation::start_remedy;
use crate::decide::{Decision, DecisionBuilder, FactOutcome, RunChange, no_change};
use crate::event::{CommandRequest, EventKind, EventPayload};
use crate::id::CommandId;
use crate::policy::{Mode, Policy};
use crate::pull_request::{BlockedDetails, BlockedUntil, PullRequest};
use crate::remedy;
use crate::run::RunEnd;
use crate::run::{CommandContext, Run, RunKind, RunTrigger};
use crate::state::{State, Strategy};
use crate::text;
use crate::transition;

/// How long after it was given a command that closes, merges or approves is executed.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(1);

pub(super) fn command_requested(mut builder: DecisionBuilder<'_>, request: &CommandRequest) -> Decision {
    let command = request.command;
    let may_wait = request.permission.is_ok() && too_old(&builder, command).is_none();
    if let Some(earlier) = unfinished_command(command, &builder.record).filter(|_| may_wait) {
        return no_change(FactOutcome::Deferred, text::command_in_progress(earlier));
    }
    if let Err(why) = permit(&builder, request) {
        let payload = EventPayload {
            by: Some(request.by.clone()),
            via: Some(request.source),
            name: Some(command.name().to_owned()),
            ..EventPayload::refused(&why)
        };
        builder.log(EventKind::CommandReceived, None, payload);
        builder.show_button_result(request, Err(&why));
        return builder.finish(FactOutcome::Refused, why);
    }
    let from = builder.record.state;
    let now = builder.now;
    let takes_over = command.strategy().is_some() || command == Command::Resume;
    if takes_over && from == State::NeedsIntervention {
        let implied = builder.record.implied(builder.policy);
        if let Some(hop) = transition::out_of_intervention(implied.state) {
            builder.enter(hop.trigger, implied.substatus, now);
        }
    }
    if matches!(command, Command::Hold | Command::Resume) {
        builder.record.hold_requested_at = Some(builder.fact.occurred_at);
    }
    let mut replaced = None;
    match command {
        Command::Hold => {
            builder.record.hold = true;
            let state = builder.record.state;
            let reason = text::hold_reason(&request.by, &request.args);
            builder.record.hold_reason = Some(reason.clone());
            builder.record.blocked.get_or_insert(BlockedDetails {
                reason,
                state,
                until: BlockedUntil::Progress,
                at: now,
            });
        }
        Command::Resume => {
            builder.record.hold = false;
            builder.record.hold_reason = None;
            builder.record.blocked = None;
            builder.record.request_verification(format!("resumed by {}", request.by), now);
        }
        Command::Rebuild
        | Command::RecheckPolicy
        | Command::RecheckSod
        | Command::RecheckApproval
        | Command::Merge
        | Command::UpdateBranch
        | Command::CloseAndReopen => replaced = open_human_run(&mut builder, request),
        Command::Cancel => {
            // The closing is first reported by the webhook, the sweep or the Car Bridge; each finds the reason here.
            builder.record.abandoning = Some(request.run.clone());
            let run = open_run(&builder, request, RunKind::Abandon);
            builder.runs.push(RunChange::Open(Box::new(run)));
        }
        Command::Status | Command::Explain | Command::Approve => {}
    }
    let to = builder.record.state;
    let payload = EventPayload {
        by: Some(request.by.clone()),
        via: Some(request.source),
        name: Some(command.name().to_owned()),
        run: (!builder.runs.is_empty()).then(|| request.run.clone()),
        ..EventPayload::text(&text::command_accepted(replaced))
    };
    builder.log(EventKind::CommandReceived, (from != to).then_some((from, to)), payload);
    let still = builder.record.hold_label().filter(|_| command == Command::Resume).map(text::held_by_label);
    builder.show_button_result(request, Ok(still.as_deref()));
    let reason = still.unwrap_or_else(|| format!("{command} by {} accepted", request.by));
    builder.finish(FactOutcome::Applied, reason)
}

/// The command of a person that the next one has to wait for (R-CMD-15). Until its target accepted it, it would end without
/// a result. A branch update and a replacement then still change the head or close the pull request, and the next command
/// is decided after that. A close-and-reopen of the reconciler that has begun to close is waited for too.
fn unfinished_command(command: Command, record: &PullRequest) -> Option<Command> {
    let active = record.active_run.as_ref().filter(|run| run.human || run.closing)?;
    if record.state.is_terminal() {
        return None;
    }
    let changes_head = matches!(active.strategy, Strategy::BranchUpdate | Strategy::CloseAndReopen);
    let differs = command.strategy().is_some_and(|strategy| strategy != active.strategy);
    (differs && (!active.accepted || changes_head)).then(|| Command::for_strategy(active.strategy))
}

/// The age of a command that must be recent and is not, by the time that its comment carries.
fn too_old(builder: &DecisionBuilder<'_>, command: Command) -> Option<SignedDuration> {
    let age = builder.now.duration_since(builder.fact.occurred_at);
    (command.must_be_recent() && age > MAX_AGE).then_some(age)
}

/// Whether the person has permission, and whether the command is possible now.
fn permit(builder: &DecisionBuilder<'_>, request: &CommandRequest) -> Result<(), String> {
    request.permission.clone()?;
    if let Some(age) = too_old(builder, request.command) {
        return Err(text::command_too_old(request.command, age));
    }
    // A lost webhook may be redelivered after a newer `/hold` or `/resume` was applied.
    let changes_hold = matches!(request.command, Command::Hold | Command::Resume);
    if changes_hold && builder.record.hold_requested_at.is_some_and(|later| builder.fact.occurred_at < later) {
        return Err(format!(
            "`{}` is older than the last `/hold` or `/resume`, so it was ignored. Repeat it if it still applies",
            request.command
        ));
    }
    is_possible(request.command, &builder.record, builder.policy)
}

/// Whether the state of a pull request allows a command. Checked when the command is submitted and again when it is
/// executed.
///
/// The error is the sentence that the requester reads.
pub fn is_possible(command: Command, record: &PullRequest, policy: &Policy) -> Result<(), String> {
    let writes = command.strategy().is_some() || command == Command::Cancel;
    if writes && policy.mode == Mode::Observe {
        return Err("observe mode: Suture takes no action here. Set `mode = \"act\"` to allow it".to_owned());
    }
    command.is_valid_in(&ValidityContext::of(record, policy)).map_err(|refusal| refusal.to_string())?;
    if command == Command::CloseAndReopen && record.vulnerability_id.is_none() {
        return Err(
            "no vulnerability id is known, so no replacement can be requested: add the id to the title".to_owned()
        );
    }
    let running = record.active_run.as_ref().map(|run| run.strategy);
    let cancelling = command == Command::Cancel && record.abandoning.is_some();
    if cancelling || (running.is_some() && running == command.strategy()) {
        return Err(format!("`{command}` is already in progress: see `/status`"));
    }
    Ok(())
}

/// A person's command opens a run too, but spends no budget (R-BUDGET-9). It cancels the remedy that was active, and
/// returns its strategy.
fn open_human_run(builder: &mut DecisionBuilder<'_>, request: &CommandRequest) -> Option<Strategy> {
    let strategy = request.command.strategy()?;
    builder.refund();
    let replaced = builder.end_run(RunEnd::Cancelled, format!("replaced by `{}` of {}", request.command, request.by));
    start_remedy(builder, strategy, &request.run, None, true);
    let mut run = open_run(builder, request, RunKind::Remedy(strategy));
    run.expects = Some(remedy::of(strategy).expects.to_owned());
    builder.runs.push(RunChange::Open(Box::new(run)));
    replaced
}

fn open_run(builder: &DecisionBuilder<'_>, request: &CommandRequest, kind: RunKind) -> Run {
    let trigger = match request.source {
        CommandSource::PrComment => RunTrigger::PrComment,
        CommandSource::CheckRun => RunTrigger::CheckRun,
        CommandSource::AdminApi => RunTrigger::AdminApi,
        CommandSource::Reconciler => RunTrigger::Reconciler,
    };
    let record = &builder.record;
    let mut run = Run::for_pull_request(
        request.run.clone(),
        record.id.clone(),
        Some(record.head_sha.clone()),
        kind,
        trigger,
        builder.now,
    );
    run.requested_by = Some(request.by.clone());
    run.command = CommandContext {
        command_id: Some(CommandId::new(builder.fact.id.as_str())),
        at: Some(builder.fact.occurred_at),
        args: (!request.args.is_empty()).then(|| request.args.clone()),
        comment: request.comment.clone(),
    };
    run
}
