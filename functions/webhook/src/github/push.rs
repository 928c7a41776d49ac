//! `push`: a base branch moved.

use domain::event::{Actor, FactKind};

use super::payload::PushEvent;
use super::{ParseContext, ParseRejection, ParsedWebhook, PrSelector, WebhookFact};

pub(super) fn read(ctx: &ParseContext<'_>, event: &PushEvent<'_>) -> Result<ParsedWebhook, ParseRejection> {
    let Some(branch) = event.r#ref.text().strip_prefix("refs/heads/").filter(|branch| !branch.is_empty()) else {
        return Err(ParseRejection::ignored("push, but not to a branch"));
    };
    if event.deleted.0 == Some(true) {
        return Err(ParseRejection::ignored("branch deleted: its pull requests send their own events"));
    }
    if branch.starts_with("gh-readonly-queue/") {
        return Err(ParseRejection::ignored("push to a merge queue branch"));
    }
    let repo = event.repository.name()?;
    let pushed_at = event.repository.0.as_ref().and_then(|repository| repository.pushed_at.0);
    let committed_at = || event.head_commit.0.as_ref().and_then(|commit| commit.timestamp.0);
    let occurred_at = pushed_at.or_else(committed_at).ok_or_else(|| ParseRejection::missing("repository.pushed_at"))?;
    let fact = WebhookFact {
        selector: PrSelector::Base(branch.to_owned()),
        id: ctx.event_id(),
        occurred_at,
        actor: Actor::GithubWebhook,
        kind: FactKind::BaseMoved { base: branch.to_owned() },
        managed: false,
        described: None,
    };
    Ok(ParsedWebhook { repo, fact: Some(fact), commands: Vec::new() })
}
