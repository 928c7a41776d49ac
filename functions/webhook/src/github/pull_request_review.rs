//! `pull_request_review`: approvals, and commands in a review's text.

use domain::event::{Actor, FactKind};
use domain::id::{PrId, RepoName};
use domain::signals::ApprovalReport;

use super::issue_comment::{PostedText, commands};
use super::payload::ReviewEvent;
use super::pull_request::{describe, is_managed};
use super::{ParseContext, ParseRejection, ParsedWebhook, PrSelector, WebhookFact};

pub(super) fn read(ctx: &ParseContext<'_>, event: &ReviewEvent<'_>) -> Result<ParsedWebhook, ParseRejection> {
    let action = event.action.text();
    if !matches!(action, "submitted" | "dismissed") {
        return Err(ParseRejection::Ignored(format!(
            "unhandled action `pull_request_review.{}`",
            domain::event::truncate(action, 50)
        )));
    }
    let repo = event.repository.name()?;
    let review = event.review.needed("review")?;
    let pull = event.pull_request.needed("pull_request")?;
    let number = pull.number.needed("pull_request.number")?;
    let submitted_at = review.submitted_at.0.or(pull.updated_at.0);
    let fact = approval(ctx, event, &repo, number)?;
    let commands = match (action, submitted_at) {
        ("submitted", Some(at)) => {
            let post = PostedText {
                kind: "review",
                id: review.id.0,
                pr: PrId::new(repo.clone(), number),
                by: review.user.login(),
                association: review.author_association.text(),
                body: review.body.text(),
                via_app: None,
                node_id: review.node_id.0.as_deref(),
                at,
            };
            // A review without a command still counts by its state.
            commands(ctx, &post).unwrap_or_default()
        }
        (_, _) => Vec::new(),
    };
    if fact.is_none() && commands.is_empty() {
        return Err(ParseRejection::ignored("neither an approver bot's review nor a command"));
    }
    Ok(ParsedWebhook { repo, fact, commands })
}

/// The approver bot's verdict on the reviewed commit.
fn approval(
    ctx: &ParseContext<'_>,
    event: &ReviewEvent<'_>,
    repo: &RepoName,
    number: u64,
) -> Result<Option<WebhookFact>, ParseRejection> {
    let (review, pull) = (event.review.needed("review")?, event.pull_request.needed("pull_request")?);
    let (by, policy) = (review.user.login(), ctx.policies.for_repo(repo));
    if !policy.approver_bot.is(by) {
        return Ok(None);
    }
    // Requesting changes withdraws an approval; a comment neither grants nor withdraws it.
    let granted = match (event.action.text(), review.state.text().to_ascii_lowercase().as_str()) {
        ("submitted", "approved") => true,
        ("submitted", "changes_requested") | ("dismissed", _) => false,
        (_, _) => return Ok(None),
    };
    let Some(head) = review.commit_id.sha() else {
        return Err(ParseRejection::ignored("the reviewed commit no longer exists"));
    };
    // A dismissed review keeps its submission time as `at`, so that a later approval is always newer than the dismissal of an earlier
    // one. `occurred_at` is the time of the dismissal.
    let at = review.submitted_at.0.or(pull.updated_at.0);
    let at = at.ok_or_else(|| ParseRejection::missing("review.submitted_at"))?;
    let occurred_at = if event.action.text() == "dismissed" { pull.updated_at.0.unwrap_or(at).max(at) } else { at };
    let approval = ApprovalReport { by: by.to_ascii_lowercase(), granted, at };
    // A review of a closed pull request must not create a live record.
    let managed = is_managed(policy, pull) && pull.state.text() == "open";
    let described = if managed { describe(policy, pull).ok().map(Box::new) } else { None };
    Ok(Some(WebhookFact {
        selector: PrSelector::Numbers(vec![number]),
        id: ctx.event_id(),
        occurred_at,
        actor: Actor::ApproverBot,
        kind: FactKind::Approval { head, approval },
        managed,
        described,
    }))
}
