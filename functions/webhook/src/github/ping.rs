//! `ping`: the webhook was created.

use super::ParseRejection;
use super::payload::PingEvent;

/// The events Suture handles.
const EVENTS: [&str; 8] = [
    "pull_request",
    "status",
    "check_run",
    "check_suite",
    "pull_request_review",
    "pull_request_review_comment",
    "issue_comment",
    "push",
];

/// Names missing event subscriptions, because the ping's response is visible on GitHub while the webhook is being set up.
pub(super) fn read(event: &PingEvent<'_>) -> ParseRejection {
    let Some(hook) = &event.hook.0 else {
        return ParseRejection::ignored("connected");
    };
    let has = |name: &&str| hook.events.0.iter().any(|event| event == name || event == "*");
    let missing: Vec<&str> = EVENTS.into_iter().filter(|name| !has(name)).collect();
    ParseRejection::Ignored(if missing.is_empty() {
        "connected, and subscribed to all required events".to_owned()
    } else {
        format!("connected, but these event subscriptions are missing: {}", missing.join(", "))
    })
}
