//! Decisions of a sweep across pull requests (R-COORD-2 to R-COORD-9): health checks after merges, the backlog of issues that
//! become pull requests, and the content of the status issue. Pure functions: observations go in, steps and the memory for
//! the next sweep come out.

pub mod backlog;
pub mod post_merge_health;
pub mod status_issue;

use crate::priority::Priority;
use crate::pull_request::{LABEL_HOLD, LABEL_IGNORE};

/// The label of an issue written by a person: Suture never closes it for its age.
pub const LABEL_HUMAN: &str = "source/human";

/// Whether a label is one with which people control Suture. Suture neither adds nor removes such a label.
pub fn is_control_label(label: &str) -> bool {
    let mut all = [LABEL_HOLD, LABEL_IGNORE, LABEL_HUMAN].into_iter().chain(Priority::ALL.map(Priority::label));
    all.any(|known| label.trim().eq_ignore_ascii_case(known))
}

/// Whether these labels tell Suture to take no action.
pub fn is_held<L: AsRef<str>>(labels: &[L]) -> bool {
    has_label(labels, LABEL_HOLD) || has_label(labels, LABEL_IGNORE)
}

/// Whether the label is present, compared without case as on GitHub.
pub fn has_label<L: AsRef<str>>(labels: &[L], label: &str) -> bool {
    labels.iter().any(|own| own.as_ref().eq_ignore_ascii_case(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_labels_match_without_case() {
        for label in ["suture/hold", "SUTURE/Ignore", "suture/priority-p0", "suture/priority-P2", "source/human"] {
            assert!(is_control_label(label), "{label}");
        }
        for label in ["pipeline/approved", "suture/status", "suture/outage", "hold", ""] {
            assert!(!is_control_label(label), "{label}");
        }
        assert!(is_held(&["bug", "Suture/Hold"]) && is_held(&["suture/ignore"]));
        assert!(!is_held(&["suture/priority-p0"]) && !is_held::<&str>(&[]));
    }
}
