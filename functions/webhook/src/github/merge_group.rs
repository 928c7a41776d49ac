//! `merge_group`: temporary commits of the merge queue; ignored.

use super::ParseRejection;
use super::payload::MergeGroupEvent;

/// The pull requests in the group send their own `enqueued`, `dequeued` and `closed` events.
pub(super) fn read(event: &MergeGroupEvent<'_>) -> ParseRejection {
    let (action, reason) = (event.action.text(), event.reason.text());
    let summary = domain::event::truncate(format!("{action} {reason}").trim(), 50);
    ParseRejection::Ignored(format!("merge group `{summary}`: its pull requests send their own events"))
}
