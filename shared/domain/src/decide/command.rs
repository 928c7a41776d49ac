//! Commands of people: a command is permitted and applied, and opens a run if it acts, or it is refused with a reason.

use crate::command::{Command, CommandSource, Situation};
use crate::comment;
use crate::decide::act::begin;
use crate::decide::{Decision, Draft, Outcome, RunChange, RunEnd};
use crate::event::{Commanded, EventKind, Payload};
use crate::id::CommandId;
use crate::policy::{Mode, Policy};
use crate::pull_request::{Blocked, Record, Until};
use crate::remedy;
use crate::run::{Run, RunKind, RunTrigger, Said};
use crate::state::State;
use crate::transition;

pub(super) fn commanded(mut draft: Draft<'_>, asked: &Commanded) -> Decision {
    let command = asked.command;
    if let Err(why) = may(&draft, asked) {
        let payload = Payload {
            by: Some(asked.by.clone()),
            name: Some(command.name().to_owned()),
            ..Payload::text(&format!("refused: {why}"))
        };
        draft.log(EventKind::CommandReceived, None, payload);
        draft.answer_button(asked, Err(&why));
        return draft.finish(Outcome::Refused, why);
    }
    let from = draft.record.state;
    let now = draft.now;
    let takes_over = command.strategy().is_some() || command == Command::Resume;
    if takes_over && from == State::NeedsIntervention {
        let implied = draft.record.implied(draft.policy);
        if let Some(hop) = transition::out_of_intervention(implied.state) {
            draft.enter(hop.state, implied.substatus, now);
        }
    }
    if matches!(command, Command::Hold | Command::Resume) {
        draft.record.hold_said_at = Some(draft.fact.occurred_at);
    }
    match command {
        Command::Hold => {
            draft.record.hold = true;
            let state = draft.record.state;
            let reason = comment::held(&asked.by, &asked.args);
            draft.record.hold_reason = Some(reason.clone());
            draft.record.blocked.get_or_insert(Blocked { reason, state, until: Until::Progress, at: now });
        }
        Command::Resume => {
            draft.record.hold = false;
            draft.record.hold_reason = None;
            draft.record.blocked = None;
            draft.record.doubt(format!("resumed by {}", asked.by), now);
        }
        Command::Rebuild
        | Command::RecheckPolicy
        | Command::RecheckSod
        | Command::RecheckApproval
        | Command::Merge
        | Command::UpdateBranch
        | Command::CloseAndReopen => open_human_run(&mut draft, asked),
        Command::Cancel => {
            // Whoever sees the closing first, GitHub's webhook, the sweep or the Car Bridge, will know why.
            draft.record.abandoning = Some(asked.run.clone());
            let run = open_run(&draft, asked, RunKind::Abandon);
            draft.runs.push(RunChange::Open(Box::new(run)));
        }
        Command::Status | Command::Explain | Command::Approve => {}
    }
    let to = draft.record.state;
    let payload = Payload {
        by: Some(asked.by.clone()),
        name: Some(command.name().to_owned()),
        run: (!draft.runs.is_empty()).then(|| asked.run.clone()),
        ..Payload::text("accepted")
    };
    draft.log(EventKind::CommandReceived, (from != to).then_some((from, to)), payload);
    let still = draft.record.hold_label().filter(|_| command == Command::Resume).map(comment::still_held);
    draft.answer_button(asked, Ok(still.as_deref()));
    let reason = still.unwrap_or_else(|| format!("{command} by {} accepted", asked.by));
    draft.finish(Outcome::Applied, reason)
}

/// Whether the person may, and whether it makes sense now.
fn may(draft: &Draft<'_>, asked: &Commanded) -> Result<(), String> {
    asked.permission.clone()?;
    // A webhook that was lost is delivered again, perhaps after what the same person has said since.
    let holds = matches!(asked.command, Command::Hold | Command::Resume);
    if holds && draft.record.hold_said_at.is_some_and(|later| draft.fact.occurred_at < later) {
        return Err(format!(
            "`{}` came late: what was said after it stands. Say it again if it is still meant",
            asked.command
        ));
    }
    is_possible(asked.command, &draft.record, draft.policy)
}

/// Whether a command makes sense for a pull request as it is, whoever gives it. It is asked again when it is carried out.
///
/// The error is the sentence for whoever gave it.
pub fn is_possible(command: Command, record: &Record, policy: &Policy) -> Result<(), String> {
    let acts = command.strategy().is_some() || command == Command::Cancel;
    if acts && policy.mode == Mode::Observe {
        return Err("observe mode: Suture only watches here. Set `mode = \"act\"` to let it act".to_owned());
    }
    command.is_valid_in(&Situation::of(record, policy)).map_err(|refusal| refusal.to_string())?;
    if command == Command::CloseAndReopen && record.vulnerability_id.is_none() {
        return Err(
            "no vulnerability id is known here, so no fresh pull request could be asked for: name it in the text"
                .to_owned(),
        );
    }
    let under_way = record.active_run.as_ref().map(|run| run.strategy);
    let cancelling = command == Command::Cancel && record.abandoning.is_some();
    if cancelling || (under_way.is_some() && under_way == command.strategy()) {
        return Err(format!("`{command}` is under way already: see `/status` for how it goes"));
    }
    Ok(())
}

/// A person's command opens a run too, but spends no budget (R-BUDGET-9). What Suture was doing gives way.
fn open_human_run(draft: &mut Draft<'_>, asked: &Commanded) {
    let Some(strategy) = asked.command.strategy() else { return };
    draft.give_back();
    draft.end_run(RunEnd::Cancelled, format!("overtaken by `{}` of {}", asked.command, asked.by));
    begin(draft, strategy, &asked.run, None, true);
    let mut run = open_run(draft, asked, RunKind::Remedy(strategy));
    run.expects = Some(remedy::of(strategy).expects.to_owned());
    draft.runs.push(RunChange::Open(Box::new(run)));
}

fn open_run(draft: &Draft<'_>, asked: &Commanded, kind: RunKind) -> Run {
    let trigger = match asked.source {
        CommandSource::PrComment => RunTrigger::PrComment,
        CommandSource::CheckRun => RunTrigger::CheckRun,
        CommandSource::AdminApi => RunTrigger::AdminApi,
        CommandSource::Reconciler => RunTrigger::Reconciler,
    };
    let record = &draft.record;
    let mut run =
        Run::on(asked.run.clone(), record.id.clone(), Some(record.head_sha.clone()), kind, trigger, draft.now);
    run.requested_by = Some(asked.by.clone());
    run.said = Said {
        command_id: Some(CommandId::new(draft.fact.id.as_str())),
        at: Some(draft.fact.occurred_at),
        args: (!asked.args.is_empty()).then(|| asked.args.clone()),
        comment: asked.comment.clone(),
    };
    run
}
