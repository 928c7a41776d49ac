//! `check_run`: the result of one check, and clicks on the buttons of Suture's own check run.

use domain::command::{CommandMessage, CommandSource, MessageVersion};
use domain::event::FactKind;
use domain::id::{CommandId, Sha};
use domain::policy::{Policy, ReportAuthor};
use domain::signals::{CheckKind, CheckVerdict};
use domain::text::check_run::CheckRunButton;
use jiff::Timestamp;
use platform::github::mapping::{self, CheckReportSource};
use platform::github::pr_of_check_run;
use platform::hash::stable_id;

use super::check_suite::time_of_suite;
use super::payload::{CheckRun, CheckRunEvent};
use super::{ParseContext, ParseRejection, ParsedWebhook, lists_managed, report_on_commit, selector_for, short};

pub(super) fn read(ctx: &ParseContext<'_>, event: &CheckRunEvent<'_>) -> Result<ParsedWebhook, ParseRejection> {
    match event.action.text() {
        "created" | "completed" | "" => {}
        "requested_action" => return button_command(ctx, event),
        "rerequested" => return Err(ParseRejection::ignored("re-run requested: the new run sends its own events")),
        other => {
            return Err(ParseRejection::Ignored(format!(
                "unhandled action `check_run.{}`",
                domain::event::truncate(other, 50)
            )));
        }
    }
    let repo = event.repository.name()?;
    let run = event.check_run.needed("check_run")?;
    let app = run.app.0.as_ref().and_then(|app| app.id.0);
    if mapping::is_own_check_run(ctx.own.app_id, app, run.name.text(), run.external_id.text()) {
        return Err(ParseRejection::ignored("Suture's own check run"));
    }
    let head = run.head_sha.sha().ok_or_else(|| ParseRejection::missing("check_run.head_sha"))?;
    let policy = ctx.policies.for_repo(&repo);
    let (kind, at) = report_of_run(policy, run, &head)?;
    let managed = lists_managed(policy, &event.repository, &run.pull_requests);
    let selector = selector_for(&event.repository, &run.pull_requests, head);
    Ok(report_on_commit(ctx, repo, (selector, managed), at, kind))
}

/// A click on a button of Suture's own check run is a command; the Car Bridge checks permissions. The payload has no time of the click,
/// so the command gets the time of the check run, which is the same in a redelivery.
fn button_command(ctx: &ParseContext<'_>, event: &CheckRunEvent<'_>) -> Result<ParsedWebhook, ParseRejection> {
    let repo = event.repository.name()?;
    let run = event.check_run.needed("check_run")?;
    if !ctx.own.is_app(run.app.0.as_ref().and_then(|app| app.id.0)) {
        return Err(ParseRejection::ignored("button of another App's check run"));
    }
    let pr = pr_of_check_run(run.external_id.text()).filter(|pr| pr.repo == repo);
    let pr = pr.ok_or_else(|| ParseRejection::ignored("button of a check run without a pull request"))?;
    let identifier = event.requested_action.needed("requested_action")?.identifier.text();
    let button = CheckRunButton::from_identifier(identifier).ok_or_else(|| {
        ParseRejection::Ignored(format!("unknown button `{}`", domain::event::truncate(identifier, 30)))
    })?;
    let by = event.sender.login();
    if by.is_empty() || ctx.own.is_login(by) {
        return Err(ParseRejection::ignored("action without a sender"));
    }
    let suite = run.check_suite.0.as_ref();
    let at = run.completed_at.0.max(suite.and_then(|suite| suite.updated_at.0)).or(run.started_at.0);
    let at = at.ok_or_else(|| ParseRejection::missing("check_run.completed_at"))?;
    // From the signed payload, not from the delivery: the check run is updated after each click, so its time tells two clicks apart.
    let id = run.id.needed("check_run.id")?.to_string();
    let click = format!("button-{}", &stable_id(&[&id, identifier, by, &at.to_string()])[..20]);
    let command = CommandMessage {
        v: MessageVersion,
        pr_number: pr.number,
        repo: repo.clone(),
        command: button.command(),
        source: CommandSource::CheckRun,
        requested_by: by.to_owned(),
        timestamp: at,
        command_id: CommandId::new(format!("cmd:{click}#1")),
        run_id: None,
        head_sha: None,
        args: None,
        comment: None,
        resent: false,
    };
    Ok(ParsedWebhook { repo, fact: None, commands: vec![command] })
}

fn report_of_run(policy: &Policy, run: &CheckRun<'_>, head: &Sha) -> Result<(FactKind, Timestamp), ParseRejection> {
    let name = Some(run.name.text())
        .filter(|name| !name.is_empty())
        .ok_or_else(|| ParseRejection::missing("check_run.name"))?;
    let (status, conclusion) = (run.status.text(), run.conclusion.text());
    let verdict = mapping::run_verdict(status, conclusion)
        .ok_or_else(|| ParseRejection::Ignored(format!("unknown check run state `{}`", short(status, conclusion))))?;
    let ended_at = || run.completed_at.0.filter(|_| matches!(verdict, CheckVerdict::Passed | CheckVerdict::Failed));
    let suite = run.check_suite.0.as_ref();
    let at = ended_at()
        .or(run.started_at.0)
        .or_else(|| suite.and_then(time_of_suite))
        .ok_or_else(|| ParseRejection::ignored("the check run has no timestamp: left to the next sweep"))?;
    let output = run.output.0.as_ref();
    let parts = output.map_or([""; 3], |output| [output.title.text(), output.summary.text(), output.text.text()]);
    let text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    let app = run.app.0.as_ref();
    let reported = CheckReportSource {
        name,
        kind: CheckKind::Run,
        verdict,
        conclusion,
        id: run.id.0,
        started_at: run.started_at.0,
        at,
        text: &text,
        author: ReportAuthor::App { id: app.and_then(|app| app.id.0), slug: app.map_or("", |app| app.slug.text()) },
    };
    Ok((mapping::report(policy, &reported).fact(head.clone()), at))
}
