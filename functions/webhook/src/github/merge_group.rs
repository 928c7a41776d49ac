//! `merge_group`: the merge queue's own commits.

use super::NoFact;
use super::payload::MergeGroupEvent;

/// A merge group is a commit of the queue's own; what becomes of the pull requests in it, they tell themselves.
pub(super) fn read(event: &MergeGroupEvent<'_>) -> NoFact {
    let (action, reason) = (event.action.text(), event.reason.text());
    let what = domain::event::cut(format!("{action} {reason}").trim(), 50);
    NoFact::Ignored(format!("merge group `{what}`: its pull requests tell when they enter and leave the queue"))
}
