//! `check_suite`: checks were asked for. How they end is told by their runs.

use domain::event::Happened;
use jiff::Timestamp;

use super::payload::{Suite, SuiteEvent};
use super::{NoFact, Reader, Told, about_commit, report_on_commit};

pub(super) fn read(reader: &Reader<'_>, event: &SuiteEvent<'_>) -> Result<Told, NoFact> {
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
    let about = about_commit(&event.repository, &suite.pull_requests, head.clone());
    Ok(report_on_commit(reader, repo, about, at, Happened::ChecksRequested { head }))
}

pub(super) fn time_of_suite(suite: &Suite<'_>) -> Option<Timestamp> {
    let committed = || suite.head_commit.0.as_ref().and_then(|commit| commit.timestamp.0);
    suite.updated_at.0.or(suite.created_at.0).or_else(committed)
}
