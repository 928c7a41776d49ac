//! `status`: a commit status of a check or of Policy Bot. The payload names no pull request.

use domain::event::Happened;
use domain::signals::CheckKind;
use platform::github::mapping::{self, Reported};

use super::payload::StatusEvent;
use super::{About, NoFact, Reader, Told, report_on_commit, short};

pub(super) fn read(ctx: &Reader<'_>, event: &StatusEvent<'_>) -> Result<Told, NoFact> {
    let repo = event.repository.name()?;
    let policy = ctx.policies.for_repo(&repo);
    let head = event.sha.sha().ok_or_else(|| NoFact::missing("sha"))?;
    let (context, state, description) = (event.context.text(), event.state.text(), event.description.text());
    if context.is_empty() {
        return Err(NoFact::missing("context"));
    }
    let unknown = || NoFact::Ignored(format!("unknown status state `{}`", short(state, "")));
    let at = event
        .created_at
        .0
        .or(event.updated_at.0)
        .ok_or_else(|| NoFact::ignored("the status has no timestamp: left to the next sweep"))?;
    let about = About::Head(head.clone());
    if policy.is_policy_context(context) {
        let verdict = mapping::policy_verdict(policy, state, description).ok_or_else(unknown)?;
        let report = mapping::policy_report(verdict, at, description);
        return Ok(report_on_commit(ctx, repo, about, at, Happened::Policy { head, report }));
    }
    let verdict = mapping::status_verdict(state).ok_or_else(unknown)?;
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
    let check = mapping::check(policy, &reported);
    Ok(report_on_commit(ctx, repo, about, at, Happened::Check { head, check }))
}
