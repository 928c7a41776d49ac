//! `check_suite`: checks were requested. Their results arrive as `check_run` events.

use domain::event::FactKind;
use jiff::Timestamp;

use super::payload::{Suite, SuiteEvent};
use super::{ParseContext, ParseRejection, ParsedWebhook, lists_managed, report_on_commit, selector_for};

pub(super) fn read(ctx: &ParseContext<'_>, event: &SuiteEvent<'_>) -> Result<ParsedWebhook, ParseRejection> {
    match event.action.text() {
        "requested" | "rerequested" => {}
        // May arrive before the suite's last `check_run`, and adds nothing to them.
        "completed" => return Err(ParseRejection::ignored("results are taken from check_run events")),
        other => {
            return Err(ParseRejection::Ignored(format!(
                "unhandled action `check_suite.{}`",
                domain::event::truncate(other, 50)
            )));
        }
    }
    let repo = event.repository.name()?;
    let suite = event.check_suite.needed("check_suite")?;
    if ctx.own.is_app(suite.app.0.as_ref().and_then(|app| app.id.0)) {
        return Err(ParseRejection::ignored("Suture's own suite: GitHub creates an empty one for every App"));
    }
    let head = suite.head_sha.sha().ok_or_else(|| ParseRejection::missing("check_suite.head_sha"))?;
    let at = time_of_suite(suite)
        .ok_or_else(|| ParseRejection::ignored("the suite has no timestamp: left to the next sweep"))?;
    let managed = lists_managed(ctx.policies.for_repo(&repo), &event.repository, &suite.pull_requests);
    let selector = selector_for(&event.repository, &suite.pull_requests, head.clone());
    Ok(report_on_commit(ctx, repo, (selector, managed), at, FactKind::ChecksRequested { head }))
}

pub(super) fn time_of_suite(suite: &Suite<'_>) -> Option<Timestamp> {
    let committed = || suite.head_commit.0.as_ref().and_then(|commit| commit.timestamp.0);
    suite.updated_at.0.or(suite.created_at.0).or_else(committed)
}
