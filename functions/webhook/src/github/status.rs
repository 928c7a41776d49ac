//! `status`: a commit status of a check or of Policy Bot. The payload names no pull request.

use domain::policy::{Policy, PullRequestOrigin, ReportAuthor};
use domain::signals::CheckKind;
use platform::github::mapping::{self, CheckReportSource};

use super::payload::{BranchTip, StatusEvent};
use super::{ParseContext, ParseRejection, ParsedWebhook, PrSelector, report_on_commit, short};

pub(super) fn read(ctx: &ParseContext<'_>, event: &StatusEvent<'_>) -> Result<ParsedWebhook, ParseRejection> {
    let repo = event.repository.name()?;
    let policy = ctx.policies.for_repo(&repo);
    let head = event.sha.sha().ok_or_else(|| ParseRejection::missing("sha"))?;
    let (context, state, description) = (event.context.text(), event.state.text(), event.description.text());
    if context.is_empty() {
        return Err(ParseRejection::missing("context"));
    }
    let unknown = || ParseRejection::Ignored(format!("unknown status state `{}`", short(state, "")));
    let at = event
        .created_at
        .0
        .or(event.updated_at.0)
        .ok_or_else(|| ParseRejection::ignored("the status has no timestamp: left to the next sweep"))?;
    let selector = (PrSelector::Head(head.clone()), is_tip_of_managed_branch(policy, event));
    let verdict = mapping::status_verdict(state).ok_or_else(unknown)?;
    let reported = CheckReportSource {
        name: context,
        kind: CheckKind::Status,
        verdict,
        conclusion: state,
        id: None,
        started_at: None,
        at,
        text: description,
        // The payload has no `creator`; the sender is the account that posted the status.
        author: ReportAuthor::Account(event.sender.login()),
    };
    Ok(report_on_commit(ctx, repo, selector, at, mapping::report(policy, &reported).fact(head)))
}

/// Whether the commit is the tip of a branch of a managed pull request. The payload lists branches of the repository, not of forks.
fn is_tip_of_managed_branch(policy: &Policy, event: &StatusEvent<'_>) -> bool {
    let is_tip = |tip: Option<&BranchTip<'_>>| tip.is_some_and(|tip| tip.sha.text() == event.sha.text());
    let mut tips = event.branches.0.iter().filter(|branch| is_tip(branch.commit.0.as_ref()));
    tips.any(|branch| {
        policy.managed.matches(&PullRequestOrigin { author: "", branch: branch.name.text(), fork: false }, [])
    })
}
