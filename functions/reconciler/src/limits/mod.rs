//! What keeps a sweep from starting a remedy now.

pub(crate) mod dispatch_gate;
pub(crate) mod in_flight;
pub(crate) mod rate_budget;
pub(crate) mod update_queue;
