//! `push`, `merge_group`, `ping` and `installation`: what concerns a repository or the webhook itself.

use domain::event::{Actor, Happened};

use super::payload::{InstallationEvent, MergeGroupEvent, PingEvent, PushEvent};
use super::{About, News, NoFact, Reader, Reading, Told};

/// What Suture wants to hear of.
const EVENTS: [&str; 7] =
    ["pull_request", "status", "check_run", "check_suite", "pull_request_review", "issue_comment", "push"];

pub(super) fn push(reader: &Reader<'_>, event: &PushEvent<'_>) -> Result<Told, NoFact> {
    let Some(branch) = event.r#ref.text().strip_prefix("refs/heads/").filter(|branch| !branch.is_empty()) else {
        return Err(NoFact::ignored("a push, but not to a branch"));
    };
    if event.deleted.0 == Some(true) {
        return Err(NoFact::ignored("a branch was deleted: its pull requests are told about separately"));
    }
    if branch.starts_with("gh-readonly-queue/") {
        return Err(NoFact::ignored("a branch of the merge queue"));
    }
    let repo = event.repository.name()?;
    let pushed_at = event.repository.0.as_ref().and_then(|repository| repository.pushed_at.0);
    let committed_at = || event.head_commit.0.as_ref().and_then(|commit| commit.timestamp.0);
    let occurred_at = pushed_at.or_else(committed_at).ok_or_else(|| NoFact::missing("repository.pushed_at"))?;
    let news = News {
        about: About::Base(branch.to_owned()),
        id: reader.event_id(),
        occurred_at,
        actor: Actor::GithubWebhook,
        what: Happened::BaseMoved { base: branch.to_owned() },
        begins: false,
    };
    Ok(Told { repo, news: Some(news), commands: Vec::new() })
}

/// A merge group is a commit of the queue's own; what becomes of the pull requests in it, they tell themselves.
pub(super) fn merge_group(event: &MergeGroupEvent<'_>) -> NoFact {
    let (action, reason) = (event.action.text(), event.reason.text());
    let what = domain::event::cut(format!("{action} {reason}").trim(), 50);
    NoFact::Ignored(format!("merge group `{what}`: its pull requests tell when they enter and leave the queue"))
}

/// Says whether the webhook is set up well, since that is when somebody looks.
pub(super) fn ping(event: &PingEvent<'_>) -> NoFact {
    let Some(hook) = &event.hook.0 else {
        return NoFact::ignored("connected");
    };
    let has = |name: &&str| hook.events.0.iter().any(|event| event == name || event == "*");
    let missing: Vec<&str> = EVENTS.into_iter().filter(|name| !has(name)).collect();
    NoFact::Ignored(if missing.is_empty() {
        "connected, and subscribed to all that Suture listens to".to_owned()
    } else {
        format!("connected, but subscribe it to these too: {}", missing.join(", "))
    })
}

/// Only what gives us something to look at is a reason to look.
pub(super) fn installation(reader: &Reader<'_>, event: &InstallationEvent<'_>) -> Reading {
    match event.action.text() {
        "created" | "added" | "unsuspend" | "new_permissions_accepted" => {
            let at = event.installation.0.as_ref().and_then(|installation| installation.updated_at.0);
            Reading::Installed { id: reader.event_id(), at }
        }
        other => Reading::Ignored(format!("installation {}: nothing new to look at", domain::event::cut(other, 50))),
    }
}
