//! The limits that prevent a sweep from starting a remedy now.

pub(crate) mod dispatch_gate;
pub(crate) mod in_flight;
pub(crate) mod rate_budget;
pub(crate) mod update_queue;

use jiff::Timestamp;
use platform::sweep_summary::SkipReason;

/// Why a pull request is skipped, and when it is due again: after a backoff, if no time is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deferral {
    pub(crate) skip: SkipReason,
    pub(crate) why: String,
    pub(crate) until: Option<Timestamp>,
}

/// The limits of one sweep.
pub(crate) struct Limits<'a> {
    /// Set if no remedy may be dispatched at all.
    pub(crate) gate: Option<&'a Deferral>,
    pub(crate) queues: update_queue::UpdateQueues,
    /// Remedies in flight, including those of this sweep.
    pub(crate) in_flight: u32,
}
