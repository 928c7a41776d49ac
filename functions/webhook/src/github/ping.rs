//! `ping`: the webhook was set up.

use super::NoFact;
use super::payload::PingEvent;

/// What Suture wants to hear of.
const EVENTS: [&str; 7] =
    ["pull_request", "status", "check_run", "check_suite", "pull_request_review", "issue_comment", "push"];

/// Says whether the webhook is set up well, since that is when somebody looks.
pub(super) fn read(event: &PingEvent<'_>) -> NoFact {
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
