//! `check_run`, `check_suite` and `status`: what checks and Policy Bot say about a commit. Which pull request that is, a
//! check of the same repository names itself; a check of a fork and a status do not.

use domain::command::{CommandMessage, CommandSource, MessageVersion};
use domain::comment::check_run::Button;
use domain::event::{Actor, Happened};
use domain::id::{CommandId, RepoName, Sha};
use domain::policy::Policy;
use domain::signals::{CheckKind, Verdict};
use jiff::Timestamp;

use super::payload::{CheckRun, CheckRunEvent, Listed, Repository, StatusEvent, Suite, SuiteEvent};
use super::soft::{Many, Part};
use super::words::{self, Reported};
use super::{About, News, NoFact, Reader, Told};
use crate::github::shown_on;

pub(super) fn run(reader: &Reader<'_>, event: &CheckRunEvent<'_>) -> Result<Told, NoFact> {
    match event.action.text() {
        "created" | "completed" | "" => {}
        "requested_action" => return pressed(reader, event),
        "rerequested" => return Err(NoFact::ignored("a check is to run again: its new run reports itself")),
        other => return Err(NoFact::Ignored(format!("`check_run.{}` reports nothing", domain::event::cut(other, 50)))),
    }
    let repo = event.repository.name()?;
    let run = event.check_run.needed("check_run")?;
    let app = run.app.0.as_ref().and_then(|app| app.id.0);
    if reader.own.is_app(app) {
        return Err(NoFact::ignored("Suture's own check: it does not wait for itself"));
    }
    let head = run.head_sha.sha().ok_or_else(|| NoFact::missing("check_run.head_sha"))?;
    let policy = reader.policies.for_repo(&repo);
    let (what, at) = report_of_run(policy, run, &head)?;
    let about = about(&event.repository, &run.pull_requests, head);
    Ok(told(reader, repo, about, at, what))
}

/// Somebody pressed a button of Suture's own check run: that is a command, and whether they may give it is found out by the
/// Car Bridge, as ever. GitHub does not say when it was; it is dated by what they saw, which a redelivery says alike.
fn pressed(reader: &Reader<'_>, event: &CheckRunEvent<'_>) -> Result<Told, NoFact> {
    let repo = event.repository.name()?;
    let run = event.check_run.needed("check_run")?;
    if !reader.own.is_app(run.app.0.as_ref().and_then(|app| app.id.0)) {
        return Err(NoFact::ignored("a button of somebody else's check"));
    }
    let pr = shown_on(run.external_id.text()).filter(|pr| pr.repo == repo);
    let pr = pr.ok_or_else(|| NoFact::ignored("a button of a check run that belongs to no pull request"))?;
    let identifier = event.requested_action.needed("requested_action")?.identifier.text();
    let button = Button::named(identifier).ok_or_else(|| {
        NoFact::Ignored(format!("`{}` is no button that Suture knows", domain::event::cut(identifier, 30)))
    })?;
    let by = event.sender.login();
    if by.is_empty() || reader.own.is_login(by) {
        return Err(NoFact::ignored("a button that nobody pressed"));
    }
    let suite = run.check_suite.0.as_ref();
    let at = run.completed_at.0.max(suite.and_then(|suite| suite.updated_at.0)).or(run.started_at.0);
    let command = CommandMessage {
        v: MessageVersion,
        pr_number: pr.number,
        repo: repo.clone(),
        command: button.command(),
        source: CommandSource::CheckRun,
        requested_by: by.to_owned(),
        timestamp: at.ok_or_else(|| NoFact::missing("check_run.completed_at"))?,
        command_id: CommandId::new(format!("cmd:{}#1", reader.id)),
        run_id: None,
        head_sha: None,
        args: None,
        comment: None,
    };
    Ok(Told { repo, news: None, commands: vec![command] })
}

fn report_of_run(policy: &Policy, run: &CheckRun<'_>, head: &Sha) -> Result<(Happened, Timestamp), NoFact> {
    let name =
        Some(run.name.text()).filter(|name| !name.is_empty()).ok_or_else(|| NoFact::missing("check_run.name"))?;
    let (status, conclusion) = (run.status.text(), run.conclusion.text());
    let verdict = words::run_verdict(status, conclusion).ok_or_else(|| {
        NoFact::Ignored(format!("`{}` is no state of a check that Suture knows", short(status, conclusion)))
    })?;
    let ended_at = || run.completed_at.0.filter(|_| matches!(verdict, Verdict::Passed | Verdict::Failed));
    let suite = run.check_suite.0.as_ref();
    let at = ended_at()
        .or(run.started_at.0)
        .or_else(|| suite.and_then(time_of_suite))
        .ok_or_else(|| NoFact::ignored("the check names no time: a sweep will ask for it"))?;
    let output = run.output.0.as_ref();
    let parts = output.map_or([""; 3], |output| [output.title.text(), output.summary.text(), output.text.text()]);
    let text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    let head = head.clone();
    if policy.is_policy_context(name) {
        let state = match verdict {
            Verdict::Queued | Verdict::Running => "pending",
            Verdict::Passed => "success",
            Verdict::Failed => "failure",
        };
        let verdict = words::policy_verdict(policy, state, &text);
        let verdict = verdict.ok_or_else(|| NoFact::missing("check_run.conclusion"))?;
        return Ok((Happened::Policy { head, report: words::policy_report(verdict, at, &text) }, at));
    }
    let reported = Reported {
        name,
        kind: CheckKind::Run,
        verdict,
        conclusion,
        id: run.id.0,
        started_at: run.started_at.0,
        at,
        text: &text,
    };
    Ok((Happened::Check { head, check: words::check(policy, &reported) }, at))
}

pub(super) fn suite(reader: &Reader<'_>, event: &SuiteEvent<'_>) -> Result<Told, NoFact> {
    match event.action.text() {
        "requested" | "rerequested" => {}
        // It may arrive before the last of its runs, and says nothing that they do not say.
        "completed" => return Err(NoFact::ignored("the runs of a suite report themselves")),
        other => {
            return Err(NoFact::Ignored(format!("`check_suite.{}` reports nothing", domain::event::cut(other, 50))));
        }
    }
    let repo = event.repository.name()?;
    let suite = event.check_suite.needed("check_suite")?;
    if reader.own.is_app(suite.app.0.as_ref().and_then(|app| app.id.0)) {
        return Err(NoFact::ignored("Suture's own suite: GitHub makes one for every App, and nothing runs in it"));
    }
    let head = suite.head_sha.sha().ok_or_else(|| NoFact::missing("check_suite.head_sha"))?;
    let at = time_of_suite(suite).ok_or_else(|| NoFact::ignored("the suite names no time: a sweep will ask for it"))?;
    let about = about(&event.repository, &suite.pull_requests, head.clone());
    Ok(told(reader, repo, about, at, Happened::ChecksRequested { head }))
}

fn time_of_suite(suite: &Suite<'_>) -> Option<Timestamp> {
    let committed = || suite.head_commit.0.as_ref().and_then(|commit| commit.timestamp.0);
    suite.updated_at.0.or(suite.created_at.0).or_else(committed)
}

pub(super) fn status(reader: &Reader<'_>, event: &StatusEvent<'_>) -> Result<Told, NoFact> {
    let repo = event.repository.name()?;
    let policy = reader.policies.for_repo(&repo);
    let head = event.sha.sha().ok_or_else(|| NoFact::missing("sha"))?;
    let (context, state, description) = (event.context.text(), event.state.text(), event.description.text());
    if context.is_empty() {
        return Err(NoFact::missing("context"));
    }
    let unknown = || NoFact::Ignored(format!("`{}` is no state of a status that Suture knows", short(state, "")));
    let at = event
        .created_at
        .0
        .or(event.updated_at.0)
        .ok_or_else(|| NoFact::ignored("the status names no time: a sweep will ask for it"))?;
    let about = About::Head(head.clone());
    if policy.is_policy_context(context) {
        let verdict = words::policy_verdict(policy, state, description).ok_or_else(unknown)?;
        let report = words::policy_report(verdict, at, description);
        return Ok(told(reader, repo, about, at, Happened::Policy { head, report }));
    }
    let verdict = words::status_verdict(state).ok_or_else(unknown)?;
    let reported = Reported {
        name: context,
        kind: CheckKind::Status,
        verdict,
        conclusion: state,
        id: None,
        started_at: None,
        at,
        text: description,
    };
    let check = words::check(policy, &reported);
    Ok(told(reader, repo, about, at, Happened::Check { head, check }))
}

/// By number, if the check names pull requests of this repository: it may name those of others, whose heads are here.
fn about(repository: &Part<Repository<'_>>, listed: &Many<Part<Listed>>, head: Sha) -> About {
    let here = repository.0.as_ref().and_then(|repository| repository.id.0);
    let is_here = |pull: &&Listed| {
        let there = pull.base.0.as_ref().and_then(|base| base.repo.0.as_ref()).and_then(|repo| repo.id.0);
        there.is_none() || here.is_none() || there == here
    };
    let mut numbers: Vec<u64> = listed.0.iter().filter(is_here).filter_map(|pull| pull.number.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.is_empty() { About::Head(head) } else { About::Numbers(numbers) }
}

fn told(reader: &Reader<'_>, repo: RepoName, about: About, at: Timestamp, what: Happened) -> Told {
    let by_policy_bot = matches!(what, Happened::Policy { .. });
    let actor = if by_policy_bot { Actor::PolicyBot } else { Actor::GithubWebhook };
    let news = News { about, id: reader.event_id(), occurred_at: at, actor, what, begins: false };
    Told { repo, news: Some(news), commands: Vec::new() }
}

fn short(status: &str, conclusion: &str) -> String {
    domain::event::cut(format!("{status} {conclusion}").trim(), 50)
}
