//! `pull_request`: opened, changed, closed, merged; also merge queue and auto-merge events.

use domain::event::{Actor, FactKind, PullRequestDetails};
use domain::policy::Policy;
use domain::signals::{MergeReport, RenewalMark};
use jiff::Timestamp;

use super::payload::{PullRequest, PullRequestEvent};
use platform::github::mapping;

use super::{ParseContext, ParseRejection, ParsedWebhook, PrSelector, WebhookFact, details_of};

pub(super) fn read(ctx: &ParseContext<'_>, event: &PullRequestEvent<'_>) -> Result<ParsedWebhook, ParseRejection> {
    let action = event.action.text();
    let repo = event.repository.name()?;
    let policy = ctx.policies.for_repo(&repo);
    let pull = event.pull_request.needed("pull_request")?;
    let number = pull.number.needed("pull_request.number")?;
    let (kind, occurred_at) = fact_kind(ctx, policy, action, event, pull)?;
    let managed = is_managed(policy, pull);
    let described = if managed && may_create_record(&kind, pull) { describe(policy, pull).ok() } else { None };
    let described = described.map(Box::new);
    let actor = actor(policy, &kind, event, pull);
    let selector = PrSelector::Numbers(vec![number]);
    let fact = WebhookFact { selector, id: ctx.event_id(), occurred_at, actor, kind, managed, described };
    Ok(ParsedWebhook { repo, fact: Some(fact), commands: Vec::new() })
}

pub(super) fn is_managed(policy: &Policy, pull: &PullRequest<'_>) -> bool {
    policy.managed.matches(&pull.origin(), pull.labels.0.iter().map(|label| label.name.text()))
}

/// Whether an unknown pull request may be recorded from the payload of this fact. A report on a closed one must not create a live record.
fn may_create_record(kind: &FactKind, pull: &PullRequest<'_>) -> bool {
    let ended = matches!(kind, FactKind::Closed { .. } | FactKind::Merged { .. });
    details_of(kind).is_none() && (ended || pull.state.text() != "closed")
}

fn fact_kind(
    ctx: &ParseContext<'_>,
    policy: &Policy,
    action: &str,
    event: &PullRequestEvent<'_>,
    pull: &PullRequest<'_>,
) -> Result<(FactKind, Timestamp), ParseRejection> {
    let open = pull.state.text() != "closed";
    let updated_at = || pull.updated_at.needed("pull_request.updated_at");
    let described = || describe(policy, pull);
    Ok(match action {
        // These facts describe an open pull request, so they are not taken from a closed one.
        "opened" | "reopened" | "synchronize" | "edited" | "labeled" | "unlabeled" | "ready_for_review"
        | "converted_to_draft"
            if !open =>
        {
            return Err(ParseRejection::Ignored(format!("`{action}` on a closed pull request")));
        }
        "opened" => (FactKind::Opened(described()?), pull.created_at.0.map_or_else(updated_at, Ok)?),
        "reopened" => (FactKind::Reopened(described()?), updated_at()?),
        "synchronize" => {
            let by_suture = ctx.own.is_login(event.sender.login());
            (FactKind::HeadMoved { described: described()?, before: event.before.sha(), by_suture }, updated_at()?)
        }
        "edited" | "labeled" | "unlabeled" | "ready_for_review" | "converted_to_draft" => {
            (FactKind::Edited(described()?), updated_at()?)
        }
        "closed" if pull.merged.0 == Some(true) || pull.merged_at.0.is_some() => {
            let by = Some(pull.merged_by.login()).filter(|login| !login.is_empty()).map(str::to_owned);
            let by_automerge_bot = by.as_deref().is_some_and(|login| policy.automerge_bot.is(login));
            let at = pull.merged_at.0.or(pull.closed_at.0).map_or_else(updated_at, Ok)?;
            (FactKind::Merged { by, by_automerge_bot }, at)
        }
        "closed" => {
            let by = Some(event.sender.login()).filter(|login| !login.is_empty()).map(str::to_owned);
            (FactKind::Closed { by, why: None }, pull.closed_at.0.map_or_else(updated_at, Ok)?)
        }
        "enqueued" | "auto_merge_enabled" | "dequeued" | "auto_merge_disabled" => {
            let at = updated_at()?;
            (merge(policy, action, event, pull, at)?, at)
        }
        other => {
            return Err(ParseRejection::Ignored(format!(
                "unhandled action `pull_request.{}`",
                domain::event::truncate(other, 50)
            )));
        }
    })
}

/// Automerge Bot starts a merge by queueing the pull request or enabling auto-merge. Leaving the queue or disabling auto-merge, by
/// anyone, means that the attempt failed.
fn merge(
    policy: &Policy,
    action: &str,
    event: &PullRequestEvent<'_>,
    pull: &PullRequest<'_>,
    at: Timestamp,
) -> Result<FactKind, ParseRejection> {
    let head = pull
        .head
        .0
        .as_ref()
        .and_then(|head| head.sha.sha())
        .ok_or_else(|| ParseRejection::missing("pull_request.head.sha"))?;
    let failed = matches!(action, "dequeued" | "auto_merge_disabled");
    let reason = event.reason.text();
    if failed && (pull.merged.0 == Some(true) || pull.merged_at.0.is_some() || reason.eq_ignore_ascii_case("merge")) {
        return Err(ParseRejection::ignored("left the queue by being merged: GitHub sends a separate event"));
    }
    if !failed && !policy.automerge_bot.is(event.sender.login()) {
        return Err(ParseRejection::Ignored(format!("`{action}` by a sender other than Automerge Bot")));
    }
    let text = match (failed, reason.is_empty()) {
        (false, _) => String::new(),
        (true, true) => action.to_owned(),
        (true, false) => format!("{action}: {reason}"),
    };
    Ok(FactKind::Merge { head, report: MergeReport { failed, at, text, renewal: RenewalMark::None } })
}

/// The actor of the fact: bots and CodeGenie are recognised by login.
fn actor(policy: &Policy, kind: &FactKind, event: &PullRequestEvent<'_>, pull: &PullRequest<'_>) -> Actor {
    let merged = matches!(kind, FactKind::Merged { .. });
    let login = if merged { pull.merged_by.login() } else { event.sender.login() };
    if policy.automerge_bot.is(login) {
        Actor::AutomergeBot
    } else if policy.approver_bot.is(login) {
        Actor::ApproverBot
    } else if policy.managed.authors.iter().any(|author| author.eq_ignore_ascii_case(login)) {
        Actor::Codegenie
    } else {
        Actor::GithubWebhook
    }
}

pub(super) fn describe(policy: &Policy, pull: &PullRequest<'_>) -> Result<PullRequestDetails, ParseRejection> {
    let head = pull.head.needed("pull_request.head")?;
    let base = pull.base.needed("pull_request.base")?;
    let (branch, base_branch) = (head.r#ref.text(), base.r#ref.text());
    if base_branch.is_empty() {
        return Err(ParseRejection::missing("pull_request.base.ref"));
    }
    Ok(PullRequestDetails {
        node_id: pull.node_id.0.as_deref().map(str::to_owned),
        html_url: mapping::page_url(pull.html_url.text()),
        branch: branch.to_owned(),
        base_branch: base_branch.to_owned(),
        head: head.sha.sha().ok_or_else(|| ParseRejection::missing("pull_request.head.sha"))?,
        labels: mapping::labels(policy, pull.labels.0.iter().map(|label| label.name.text())),
        draft: pull.draft.0.unwrap_or(false),
        vulnerability_id: mapping::vulnerability_id(policy, &pull.origin(), pull.title.text(), pull.body.text()),
        created_at: pull.created_at.needed("pull_request.created_at")?,
        size: pull.additions.0.zip(pull.deletions.0).map(|(added, deleted)| added.saturating_add(deleted)),
        required_checks: None,
    })
}
