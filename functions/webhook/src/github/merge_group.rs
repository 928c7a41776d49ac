//! `merge_group`: temporary commits of the merge queue; ignored.

use super::NoFact;
use super::payload::MergeGroupEvent;

/// The pull requests in the group send their own `enqueued`, `dequeued` and `closed` events.
pub(super) fn read(event: &MergeGroupEvent<'_>) -> NoFact {
    let (action, reason) = (event.action.text(), event.reason.text());
    let what = domain::event::cut(format!("{action} {reason}").trim(), 50);
    NoFact::Ignored(format!("merge group `{what}`: its pull requests send their own events"))
}
