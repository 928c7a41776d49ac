//! What a sweep decides beyond single pull requests (R-COORD-2 to R-COORD-9): whether what was merged has broken something (`sentinel`), which
//! issues become pull requests (`backlog`), and what the status issue shows (`status`). Pure: what was read goes in, steps
//! come out, and what has to be remembered until the next look.

pub mod backlog;
pub mod sentinel;
pub mod status;

use crate::priority::Priority;
use crate::pull_request::{LABEL_HOLD, LABEL_IGNORE};

/// The label by which people say that an issue is theirs: it is never rejected for its age.
pub const LABEL_HUMAN: &str = "source/human";

/// Whether a label is one by which people tell Suture what to do. Suture neither puts such a label anywhere nor takes it off.
pub fn is_peoples(label: &str) -> bool {
    let mut all = [LABEL_HOLD, LABEL_IGNORE, LABEL_HUMAN].into_iter().chain(Priority::ALL.map(Priority::label));
    all.any(|known| label.trim().eq_ignore_ascii_case(known))
}

/// Whether people have told Suture to leave something with these labels alone.
pub fn is_held<L: AsRef<str>>(labels: &[L]) -> bool {
    has(labels, LABEL_HOLD) || has(labels, LABEL_IGNORE)
}

/// Whether a label is among these; GitHub compares them without case.
pub fn has<L: AsRef<str>>(labels: &[L], label: &str) -> bool {
    labels.iter().any(|own| own.as_ref().eq_ignore_ascii_case(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peoples_labels_are_known_whatever_their_case() {
        for label in ["suture/hold", "SUTURE/Ignore", "suture/priority-p0", "suture/priority-P2", "source/human"] {
            assert!(is_peoples(label), "{label}");
        }
        for label in ["pipeline/approved", "suture/status", "suture/sentinel", "hold", ""] {
            assert!(!is_peoples(label), "{label}");
        }
        assert!(is_held(&["bug", "Suture/Hold"]) && is_held(&["suture/ignore"]));
        assert!(!is_held(&["suture/priority-p0"]) && !is_held::<&str>(&[]));
    }
}
