//! The limits that prevent a sweep from starting a remedy now.

pub(crate) mod gates;
pub(crate) mod in_flight;
pub(crate) mod rate_budget;
pub(crate) mod update_queue;

use domain::admission::{GateEpoch, Gates, PutOff, PutOffReason};
use jiff::Timestamp;
use platform::sweep_summary::SkipReason;

/// Why a pull request is skipped, and when it is due again: after a backoff, if no time is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deferral {
    pub(crate) skip: SkipReason,
    pub(crate) why: String,
    pub(crate) until: Option<Timestamp>,
    /// The gate that is the cause, if one is: when it opens, the pull request is due at once.
    pub(crate) gate: Option<GateEpoch>,
}

impl From<PutOff> for Deferral {
    fn from(PutOff { reason, why, until, gate }: PutOff) -> Self {
        let skip = match reason {
            PutOffReason::Paused => SkipReason::Paused,
            PutOffReason::Breaker => SkipReason::Breaker,
            PutOffReason::RateLimit => SkipReason::RateLimit,
            PutOffReason::Full | PutOffReason::Slots => SkipReason::Full,
            PutOffReason::Turn => SkipReason::Turn,
        };
        Self { skip, why, until: Some(until), gate }
    }
}

/// The limits of one sweep.
pub(crate) struct Limits<'a> {
    /// `None` if they could not be read: then no remedy is dispatched.
    pub(crate) gates: Option<&'a Gates>,
    pub(crate) queues: update_queue::UpdateQueues,
    /// Remedies in flight, including those of this sweep.
    pub(crate) in_flight: u32,
}
